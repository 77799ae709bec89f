//! The `visavis` binary: wiring only. No other crate depends on all the others.
#![allow(clippy::print_stdout, clippy::print_stderr)] // its output is its contract

mod audio_file;
mod backup;
mod bake;
mod check;
mod child_process;
mod cli;
mod config;
mod deliver;
mod documentation;
mod draw;
mod health;
mod keys;
mod listen;
mod load;
mod local_models;
mod local_stt;
mod log;
mod otlp;
mod photo;
mod progress;
mod replay;
mod serve;
mod systemd;
mod video;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

use crate::cli::{Cli, Command, ConfigPaths};
use crate::config::{Config, Setting};

/// The configuration that the packages install and their service reads.
const PACKAGE_CONFIG: &str = "/etc/visavis/visavis.toml";

/// Why a command failed.
enum CommandError {
    /// The command could not be completed: exit status 1.
    Failed(anyhow::Error),
    /// The command line or an input is invalid: exit status 2.
    Usage(String),
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{error}");
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("{} (see visavis --help)", cli::usage_message(&error));
            return ExitCode::from(2);
        }
    };
    let result = match cli.command {
        Command::Serve(options) => serve::run(&options, serve::Role::Server),
        Command::Worker(options) => serve::run(&options, serve::Role::Worker),
        Command::Keys { command } => keys::run(&command),
        Command::Check { json, live, place } => check::run(&place, json, live),
        Command::Health { url, live, place } => health::run(url.as_deref(), live, &place),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => backup::restore(&arguments),
        Command::Extract { kind } => documents::extract_as_child(&kind)
            .map(|()| ExitCode::SUCCESS)
            .map_err(CommandError::from),
        Command::DecodeAudio => {
            documents::decode_as_child().map(|()| ExitCode::SUCCESS).map_err(CommandError::from)
        }
        Command::Bake { person, size, framing, out, keep, first, json, background } => {
            let (out, keep, first) = (out.as_deref(), keep.as_deref(), first.as_deref());
            let bake_options = bake::BakeOptions {
                size: &size,
                framing: &framing,
                out,
                cache_dir: keep,
                partial_out: first,
                json,
            };
            bake::run(person.as_deref(), &bake_options, background)
        }
        Command::Photo { models } => photo::run(&models),
        Command::Draw => draw::run(),
        Command::DeliverRecording { capture, out, channels } => {
            deliver::run(&capture, &out, channels)
        }
        Command::ConvertRecording { conversion, parent } => match parent {
            Some(parent) => deliver::become_ffmpeg(&conversion, parent),
            None => deliver::convert(&conversion),
        },
        Command::Video(arguments) => video::run(&arguments),
        Command::RenderVideo => video::render_as_child(),
        Command::Simulate { file, explain } => simulate(&file, explain),
        Command::Load { arguments } => load::run(&arguments),
        Command::Replay { trace, explain } => replay::run(&trace, explain),
        Command::Completions { shell } => documentation::print_completions(&Cli::command(), shell),
        Command::Man { out } => documentation::print_manual(&Cli::command(), out.as_deref()),
    };
    match result {
        Ok(code) => code,
        Err(CommandError::Usage(sentence)) => {
            eprintln!("{sentence}");
            ExitCode::from(2)
        }
        Err(CommandError::Failed(error)) => {
            eprintln!("{}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, each only once: many messages already include their cause.
fn error_chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        _ if text.ends_with(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}

/// Loads the configuration, and prints its warnings on stderr.
fn load_config(place: &ConfigPaths) -> Result<Config, CommandError> {
    let config = read_config(place)?;
    config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let is_named = place.config.is_some()
        || place.data.is_some()
        || std::env::var_os(config::CONFIG_VARIABLE).is_some_and(|file| !file.is_empty());
    // A command without data is probably meant for the installed service.
    if !is_named
        && config.server.database_url.is_none()
        && !config.server.data.exists()
        && std::path::Path::new(PACKAGE_CONFIG).exists()
    {
        eprintln!("note: {PACKAGE_CONFIG} is not read; name it with --config {PACKAGE_CONFIG}");
    }
    Ok(config)
}

/// The configuration of the environment, for commands without flags for it.
fn load_environment_config() -> Result<Config, CommandError> {
    load_config(&ConfigPaths { config: None, data: None })
}

/// Loads the configuration. Precedence: flag, environment, file, default.
fn read_config(place: &ConfigPaths) -> Result<Config, CommandError> {
    // A variable with a name that is not Unicode is not a key. A value that is not Unicode is
    // rejected when its key is validated.
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    let mut config =
        Config::load(place.config.as_deref(), environment).map_err(CommandError::Usage)?;
    if let Some(data) = &place.data {
        config.server.data.clone_from(data);
        config.changed.retain(|setting| setting.key != "server.data");
        let data = data.to_string_lossy();
        config.changed.push(Setting::of_flag("server.data", &data, "--data"));
    }
    Ok(config)
}

fn simulate(file: &std::path::Path, explain: bool) -> Result<ExitCode, CommandError> {
    use std::io::Read as _;

    let bad = |why: String| CommandError::Usage(format!("{}: {why}", file.display()));
    let mut json = Vec::new();
    let source = std::fs::File::open(file).map_err(|e| bad(e.to_string()))?;
    // One byte over the limit is enough for the parser to detect the excess.
    let limit = conversation::simulate::MAX_SCENARIO_BYTES as u64 + 1;
    source.take(limit).read_to_end(&mut json).map_err(|e| bad(e.to_string()))?;
    let lines = conversation::simulate::simulate(&json, explain).map_err(|e| bad(e.to_string()))?;
    match std::io::Write::write_all(&mut std::io::stdout(), lines.as_bytes()) {
        // The reader closed the pipe early, for example `head`. That is not an error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_cause_is_printed_once() {
        let cause = || std::io::Error::other("no space");
        let twice = anyhow::Error::from(cause()).context("/data: no space").context("cannot start");
        assert_eq!(error_chain(&twice), "cannot start: /data: no space");
        assert_eq!(
            error_chain(&anyhow::Error::from(cause()).context("cannot start")),
            "cannot start: no space"
        );
    }
}
