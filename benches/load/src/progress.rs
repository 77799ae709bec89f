//! Progress line on stderr, only on a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// The progress line.
pub(crate) struct Progress {
    terminal: bool,
    started_at: Instant,
    last_update: Option<Instant>,
    duration: Duration,
}

impl Progress {
    /// The progress line of a run of this duration.
    #[must_use]
    pub(crate) fn new(now: Instant, whole: Duration) -> Self {
        Self {
            terminal: stderr().is_terminal(),
            started_at: now,
            last_update: None,
            duration: whole,
        }
    }

    /// Shows the number of running and failed calls, at most once per second.
    pub(crate) fn update(&mut self, now: Instant, calls: usize, of: usize, failed: usize) {
        let due = self
            .last_update
            .is_none_or(|last| now.saturating_duration_since(last) >= Duration::from_secs(1));
        if !self.terminal || !due {
            return;
        }
        self.last_update = Some(now);
        let share = now.saturating_duration_since(self.started_at).as_secs_f64()
            / self.duration.as_secs_f64();
        let done = (share.clamp(0.0, 1.0) * 40.0) as usize;
        let bar = "#".repeat(done) + &"·".repeat(40 - done);
        let left =
            self.duration.saturating_sub(now.saturating_duration_since(self.started_at)).as_secs();
        eprint!("\r[{bar}] {calls} of {of} calls, {failed} failed, {left} s left   ");
        // If the terminal is gone, the line is not needed.
        let _ = stderr().flush();
    }

    /// Ends the line.
    pub(crate) fn finish(&mut self) {
        if self.terminal && self.last_update.take().is_some() {
            eprintln!();
        }
    }
}
