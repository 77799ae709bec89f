//! `visavis-load`, the load generator: callers that say a recorded workload, and what they found.
//!
//! Two ways to call: over real WebRTC against any server ([`network`], on the `webrtc` crate, which shares no code with the engine's own
//! stack), and through the loop-back transport of an engine in this process ([`engine_only`]: no network, no codec, no face).
//! Both say the same recording on each caller's own clock and score what comes back in the same way ([`score`]).
//!
//! # What is measured, and what the measuring adds
//!
//! - *Voice-to-voice*: true end of an utterance → the first frame of the answer's sound was handed out. A caller says sample n at its beginning plus n/rate, and
//!   sends a packet once its last sample was said, as a microphone does. By WebRTC a frame is handed out when its packet reaches the
//!   caller's task: network, the sender's pacing and the waking of that task (below 1 ms unless the caller's processor is full) are in the
//!   figure; a playout buffer, as browsers have it, is not.
//! - *Overhead*: that, less what an ideal engine needs: endpointing, first token, the tokens up to the one that ends the first sentence, the
//!   voice's first sound, all by the workload's own times.
//! - *Barge-in*: true onset of an interruption → end of the last sound before .1 s of silence, to 5 ms. *Duck*: → the level is halved, or it is silent.
//! - *Late*: a frame handed out over 60 ms after the playout clock needed it, and every frame that never came. The clock is that of the frames' time
//!   stamps; by WebRTC it begins with the fastest frame so far, in the engine with the call.

#![allow(clippy::print_stdout, clippy::print_stderr)] // its output is its contract

mod api;
mod args;
mod caller;
mod engine_only;
mod flood;
mod hooks;
mod late;
mod machine;
mod metrics;
mod network;
mod progress;
mod report;
mod require;
mod score;
mod soak;
mod stats;
mod summary;
mod turns;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use args::{Args, Kind};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// It was asked wrongly.
    #[error("{0}")]
    Usage(String),
    /// It could not be done.
    #[error("{0}")]
    Failed(String),
}

/// Hold many calls at once, of a server or in an engine of this process, and measure
#[derive(Parser)]
#[command(name = "visavis-load", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    args: Args,
}

/// What else it does.
#[derive(Subcommand)]
enum Other {
    /// Send stray datagrams to a media port of this machine, and say how many were sent
    Flood(flood::Args),
}

/// Exits with 0 if the run comes to its end and every requirement holds, with 1 if not, and with 2 if it is asked wrongly.
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
            eprintln!("{} (see visavis-load --help)", first.trim_start_matches("error: "));
            return ExitCode::from(2);
        }
    };
    let done = match cli.other {
        Some(Other::Flood(args)) => flood::run(&args).map(|()| true),
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

/// Folder of the speech detector's weights, for an engine of this process.
fn models() -> PathBuf {
    std::env::var_os("VISAVIS_MODELS_DIR")
        .map_or_else(|| PathBuf::from(models::paths::DEFAULT), PathBuf::from)
}

/// Runs as asked; prints the table and writes the report. Whether it came to its end and every requirement holds.
///
/// # Errors
/// Bad arguments, or a run that could not begin.
fn run(args: Args) -> Result<bool, Error> {
    let plan = args.plan()?;
    let ran = match &plan.kind {
        Kind::Network(target) => network::run(&plan, target),
        Kind::Engine { threads, cpus } => engine_only::run(&plan, *threads, cpus.as_ref(), &models()),
    };
    let mut report = ran.inspect_err(|_| {
        // That it can be written was tried; what it held stays.
        if let Some(out) = plan.out.as_ref().filter(|out| out.metadata().is_ok_and(|file| file.len() == 0)) {
            let _ = std::fs::remove_file(out);
        }
    })?;
    report.asked = plan.asked();
    print!("{}", report.table());
    let json = require::report(&report);
    if let Some(out) = &plan.out {
        let text = serde_json::to_string_pretty(&json).unwrap_or_default() + "\n";
        std::fs::write(out, text).map_err(|e| Error::Failed(format!("{}: {e}", out.display())))?;
    }
    // What was stopped has not shown what was asked.
    let mut held = !report.interrupted;
    if report.calls == 0 {
        println!("BROKEN  no call ran to its end");
        held = false;
    }
    for requirement in &plan.requirements {
        match requirement.check(&json) {
            Ok(()) => println!("held    {requirement}"),
            Err(why) => {
                println!("BROKEN  {why}");
                held = false;
            }
        }
    }
    Ok(held)
}

/// Becomes true when the user (Ctrl-C) or the system (SIGTERM) asks to stop; a second time ends the program at once.
fn interrupted() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    // Without a runtime of its own the program ends at the first Ctrl-C, as any does.
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
                if told.swap(true, Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    });
    stop
}
