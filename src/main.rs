//! The `visavis` binary: wiring only. It alone knows everybody.
#![allow(clippy::print_stdout, clippy::print_stderr)] // its output is its contract

mod check;
mod cli;
mod config;
mod keys;
mod local;
mod serve;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::{Cli, Command, Place};
use crate::config::Config;

/// How a command ended badly.
enum Failure {
    /// It could not be done: exit status 1.
    Failed(anyhow::Error),
    /// It was asked wrongly: exit status 2.
    Usage(String),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("bad usage");
            eprintln!("{} (see visavis --help)", first.trim_start_matches("error: "));
            return ExitCode::from(2);
        }
    };
    let result = match cli.command {
        Command::Serve(options) => serve::run(&options),
        Command::Keys { command } => keys::run(&command),
        Command::Check { json, place } => check::run(&place, json),
        Command::Simulate { file, explain } => simulate(&file, explain),
    };
    match result {
        Ok(code) => code,
        Err(Failure::Usage(sentence)) => {
            eprintln!("{sentence}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(error)) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The configuration of a place: flag over environment over file over default.
fn configuration(place: &Place) -> Result<Config, Failure> {
    let mut config = Config::load(place.config.as_deref(), std::env::vars()).map_err(Failure::Usage)?;
    if let Some(data) = &place.data {
        config.server.data.clone_from(data);
    }
    Ok(config)
}

fn simulate(file: &std::path::Path, explain: bool) -> Result<ExitCode, Failure> {
    use std::io::Read as _;

    let bad = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let mut json = Vec::new();
    let source = std::fs::File::open(file).map_err(|e| bad(e.to_string()))?;
    // One byte over the limit is enough for the parser to say so.
    let limit = conversation::simulate::LARGEST as u64 + 1;
    source.take(limit).read_to_end(&mut json).map_err(|e| bad(e.to_string()))?;
    let lines = conversation::simulate::simulate(&json, explain).map_err(|e| bad(e.to_string()))?;
    match std::io::Write::write_all(&mut std::io::stdout(), lines.as_bytes()) {
        // Who reads only the first lines has what he wanted.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
