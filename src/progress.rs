//! Progress of commands that take a while.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// Progress output: a bar on a terminal, otherwise one line for each 10 %. With `json`, one JSON
/// line for each 1 %.
pub(crate) struct ProgressBar<'a> {
    name: &'a str,
    start: Instant,
    /// Progress, 0 to 1.
    progress: f64,
    /// The last percentage that was printed.
    last_percent: Option<u32>,
    terminal: bool,
    json: bool,
}

impl<'a> ProgressBar<'a> {
    /// `name` precedes the progress of people.
    pub(crate) fn new(name: &'a str, json: bool) -> Self {
        let terminal = !json && std::io::stderr().is_terminal();
        Self { name, start: Instant::now(), progress: 0.0, last_percent: None, terminal, json }
    }

    /// Sets the progress, 0 to 1.
    pub(crate) fn update(&mut self, done: f64) {
        self.progress = done;
        let percent = (done * 100.0) as u32;
        let percent = if self.terminal || self.json { percent } else { percent / 10 * 10 };
        if self.last_percent.replace(percent) == Some(percent) {
            return;
        }
        let seconds = self.start.elapsed().as_secs();
        if self.json {
            println!("{}", serde_json::json!({"progress": f64::from(percent) / 100.0}));
        } else if self.terminal {
            let full = "#".repeat(percent as usize * 30 / 100);
            eprint!("\r{} [{full:<30}] {percent:3} %, {seconds} s", self.name);
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{}: {percent} %, {seconds} s", self.name);
        }
    }

    /// Reports that a partial set was written.
    pub(crate) fn report_partial(&self) {
        if self.json {
            println!("{}", serde_json::json!({"first": self.progress}));
        }
    }

    /// Removes the bar from the terminal.
    pub(crate) fn clear(&self) {
        if self.terminal {
            eprint!("\r{:70}\r", "");
        }
    }
}
