//! The signals that stop the server.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT, and SIGHUP unless the process was started to survive it.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

impl StopSignals {
    pub(super) fn new() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hang_up = (!is_hang_up_ignored(&status)).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: hang_up.transpose()?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = hang_up => {}
        }
    }

    /// Waits for a further one that a person or a service manager sends on purpose. A terminal that
    /// closes may send SIGHUP twice: once by the shell, once by the kernel.
    pub(super) async fn next_deliberate(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Whether `nohup` has started the process: SIGHUP is among the ignored signals in its
/// `/proc/PID/status`.
fn is_hang_up_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 has bit 0.
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_nohup_survives_its_terminal() {
        assert!(is_hang_up_ignored("Name:\tvisavis\nSigIgn:\t0000000000001001\n"));
        assert!(!is_hang_up_ignored("Name:\tvisavis\nSigIgn:\t0000000000001000\n"));
        assert!(!is_hang_up_ignored(""));
    }
}
