//! `visavis-load`, the load generator: callers that speak a recorded workload, and a report of what
//! they measured.
//!
//! There are two ways to call. One is real WebRTC against any server ([`network`], on the `webrtc`
//! crate, which shares no code with the engine's stack). The other is the loopback transport of an
//! engine in this process ([`engine_only`]: no network, codecs or video). Both play the same
//! recording on each caller's own clock, and score the received audio in the same way ([`score`]).
//!
//! # What is measured, and what the measurement adds
//!
//! - *Voice-to-voice*: true end of an utterance → delivery of the first audio frame of the reply. A
//!   caller speaks sample n at its start plus n/rate. It sends a packet once its last sample was
//!   spoken, as a microphone does. Over WebRTC a frame is delivered when its packet reaches the
//!   caller's task. The result includes the network, the sender's pacing and the wake-up of that
//!   task (below 1 ms unless the caller's CPU is full). It does not include a playout buffer, as
//!   browsers have it.
//! - *Overhead*: voice-to-voice minus the time of an ideal engine. That time is the sum of
//!   endpointing, first token, the tokens up to the one that ends the first sentence, and the first
//!   audio of the TTS, all by the workload's own times.
//! - *Barge-in*: true onset of an interruption → end of the last sound before .1 s of silence, with
//!   a resolution of 5 ms. *Duck*: the same onset → half the level, or silence.
//! - *Late*: a frame delivered over 60 ms after the playout clock needed it, and every missing
//!   frame. The clock is that of the RTP timestamps. Over WebRTC it starts with the fastest frame
//!   so far, in the engine with the call.

#![allow(clippy::print_stdout, clippy::print_stderr)] // its output is its contract

mod api;
mod args;
mod caller;
mod deliveries;
mod engine_only;
mod flood;
mod lateness;
mod machine;
mod metrics;
mod network;
mod pacing;
mod progress;
mod recording;
mod report;
mod report_builder;
mod requirement;
mod score;
mod soak;
mod stats;
mod turns;
mod webhook_receiver;
mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use args::{Args, Mode};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// The run could not be completed.
    #[error("{0}")]
    Failed(String),
}

/// Generate load: run many concurrent calls against a server or an in-process engine, and report
/// latency and cost
#[derive(Parser)]
#[command(name = "visavis-load", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<LoadCommand>,
    #[command(flatten)]
    args: Args,
}

/// Other commands.
#[derive(Subcommand)]
enum LoadCommand {
    /// Send unrelated UDP datagrams to a media port of this machine, and report how many were sent
    Flood(flood::Args),
}

/// Exits with 0 if the run completes and every requirement holds, with 1 if not, and with 2 if the
/// command line is invalid.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let text = error.to_string();
            let first =
                text.lines().find(|line| !line.trim().is_empty()).unwrap_or("invalid command line");
            eprintln!("{} (see visavis-load --help)", first.trim_start_matches("error: "));
            return ExitCode::from(2);
        }
    };
    let done = match cli.command {
        Some(LoadCommand::Flood(args)) => flood::run(&args).map(|()| true),
        None => run(cli.args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Runs the calls, prints the table and writes the report. Returns whether the run completed and
/// every requirement holds.
///
/// # Errors
/// Invalid arguments, or a run that could not start.
fn run(args: Args) -> Result<bool, Error> {
    let plan = args.into_plan()?;
    let result = match &plan.mode {
        Mode::Network(target) => network::run(&plan, target),
        Mode::Engine { threads, cpus } => {
            engine_only::run(&plan, *threads, cpus.as_ref(), &models::paths::models_dir(None))
        }
    };
    let mut report = result.inspect_err(|_| {
        // The check of `--out` created the file if it was missing. A file with content stays.
        if let Some(out) =
            plan.out.as_ref().filter(|out| out.metadata().is_ok_and(|file| file.len() == 0))
        {
            let _ = std::fs::remove_file(out);
        }
    })?;
    report.settings = plan.run_settings();
    print!("{}", report.table());
    let json = requirement::report_json(&report);
    if let Some(out) = &plan.out {
        let text = serde_json::to_string_pretty(&json).unwrap_or_default() + "\n";
        std::fs::write(out, text).map_err(|e| Error::Failed(format!("{}: {e}", out.display())))?;
    }
    // An interrupted run does not prove its requirements.
    let mut passed = !report.interrupted;
    if report.calls == 0 {
        println!("FAILED  no call completed");
        passed = false;
    }
    for requirement in &plan.requirements {
        match requirement.check(&json) {
            Ok(()) => println!("PASSED  {requirement}"),
            Err(why) => {
                println!("FAILED  {why}");
                passed = false;
            }
        }
    }
    Ok(passed)
}

/// A flag that becomes true on Ctrl-C or SIGTERM. The second signal ends the program immediately.
fn interrupt_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Without this thread, the first Ctrl-C ends the program, as by default.
    let _ = engine::thread::spawn("interrupt", move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            let Ok(mut terminated) = signal(SignalKind::terminate()) else { return };
            loop {
                tokio::select! {
                    asked = tokio::signal::ctrl_c() => if asked.is_err() { return },
                    _ = terminated.recv() => {}
                }
                if flag.swap(true, Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    });
    stop
}
