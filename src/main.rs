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
