//! A line that says how far a run is: on a terminal only, on stderr.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// The line.
pub(crate) struct Progress {
    terminal: bool,
    begun: Instant,
    told: Option<Instant>,
    whole: Duration,
}

impl Progress {
    /// Of a run that takes `whole`.
    #[must_use]
    pub(crate) fn new(now: Instant, whole: Duration) -> Self {
        Self { terminal: stderr().is_terminal(), begun: now, told: None, whole }
    }

    /// So many calls run; once a second.
    pub(crate) fn tell(&mut self, now: Instant, calls: usize, of: usize, failed: usize) {
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= Duration::from_secs(1));
        if !self.terminal || !due {
            return;
        }
        self.told = Some(now);
        let share = now.saturating_duration_since(self.begun).as_secs_f64() / self.whole.as_secs_f64();
        let done = (share.clamp(0.0, 1.0) * 40.0) as usize;
        let bar = "#".repeat(done) + &"·".repeat(40 - done);
        let left = self.whole.saturating_sub(now.saturating_duration_since(self.begun)).as_secs();
        eprint!("\r[{bar}] {calls} of {of} calls, {failed} failed, {left} s left   ");
        // A terminal that is gone needs no line.
        let _ = stderr().flush();
    }

    /// The run is over.
    pub(crate) fn end(&mut self) {
        if self.terminal && self.told.take().is_some() {
            eprintln!();
        }
    }
}
