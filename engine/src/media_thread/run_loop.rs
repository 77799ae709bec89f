//! The life of a media thread: rounds of work, and what follows when one fails.
//!
//! A thread that fails is not replaced by another one: it begins anew with its own socket, inbox and models, so its port and every sender's
//! channel stay valid. Until that has succeeded it takes no calls ([`ThreadStats::dead`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mio::{Events, Interest};
use models::contain::{Restarts, contained};

use super::{MediaThread, SOCKET_TOKEN};
use crate::messages::{Message, OfferReply, OfferRequest};
use crate::stats::ThreadStats;
use crate::transport::socket::Socket;
use crate::{clock, thread};

/// Says that a thread takes no calls, in whatever way it ends.
struct DeadGuard(Arc<ThreadStats>);

impl Drop for DeadGuard {
    fn drop(&mut self) {
        self.0.dead.store(true, Relaxed);
    }
}

impl MediaThread {
    /// The thread's life.
    pub fn run(mut self) {
        let dead_guard = DeadGuard(Arc::clone(self.meter.stats()));
        let dead = &dead_guard.0.dead;
        thread::forbid_blocking();
        if !thread::raise_priority() {
            tracing::debug!("media threads have the priority of all others: a raised one is not allowed");
        }
        let mut events = Events::with_capacity(64);
        let mut socket_registered = true;
        let mut restarts = Restarts::default();
        loop {
            let why = match contained(|| self.run_until_stopped(&mut events, &mut socket_registered)) {
                Some(Ok(())) => return,
                Some(Err(error)) => format!("it cannot wait for its socket: {error}"),
                None => "it panicked".to_owned(),
            };
            // First, so that none of the calls that end by it comes back to it.
            dead.store(true, Relaxed);
            let calls = self.calls.len();
            tracing::error!(why, calls, "a media thread failed: its calls end, and it begins anew");
            self.recover(&mut restarts);
            dead.store(false, Relaxed);
        }
    }

    /// Works until the thread is to end.
    ///
    /// # Errors
    /// The socket cannot be waited for.
    fn run_until_stopped(&mut self, events: &mut Events, socket_registered: &mut bool) -> io::Result<()> {
        while self.running {
            let now = clock::now();
            let more = self.run_step(now);
            self.meter.end_step(clock::now().saturating_duration_since(now));
            let wait = if more {
                Some(Duration::ZERO)
            } else {
                self.wake_at().map(|at| at.saturating_duration_since(clock::now()))
            };
            let (Some(poll), Some(socket)) = (&mut self.poll, &mut self.socket) else {
                return Err(io::Error::other("it has none"));
            };
            if *socket_registered == self.reads_socket_on_tick {
                let registry = poll.registry();
                if self.reads_socket_on_tick {
                    registry.deregister(socket)?;
                } else {
                    registry.register(socket, SOCKET_TOKEN, Interest::READABLE)?;
                }
                // Only now: what failed is tried again.
                *socket_registered = !self.reads_socket_on_tick;
            }
            if let Err(error) = poll.poll(events, wait)
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the thread's calls, puts it in order, and pauses if it failed too often. A restart that panics is one more failure; the next one
    /// does what it left.
    fn recover(&mut self, restarts: &mut Restarts) {
        let pause = self.record_failure(restarts);
        let restarted = self.try_restart();
        self.pause(pause);
        if restarted {
            return;
        }
        while self.running && !self.try_restart() {
            let pause = self.record_failure(restarts);
            self.pause(pause);
        }
    }

    /// How long it is to pause after a failure.
    fn record_failure(&self, restarts: &mut Restarts) -> Duration {
        let pause = restarts.pause(clock::now());
        if !pause.is_zero() {
            self.meter.stats().restart_pauses.fetch_add(1, Relaxed);
            tracing::error!(?pause, "a media thread fails again and again: it takes no calls for a while");
        }
        pause
    }

    /// Whether a restart succeeds.
    fn try_restart(&mut self) -> bool {
        let done = contained(|| self.reset_after_failure()).is_some();
        // What the calls say at last leaves before a pause.
        contained(|| self.socket.as_mut().map(Socket::flush));
        done
    }

    /// Takes no calls for so long. The inbox is read meanwhile, so that nobody waits for an answer until the pause is over.
    fn pause(&mut self, pause: Duration) {
        let end = clock::now() + pause;
        while self.running && clock::now() < end {
            let Ok(message) = self.messages.recv_deadline(end) else { return };
            contained(|| self.reject_message(message));
        }
    }

    fn reject_message(&mut self, message: Message) {
        match message {
            Message::Ready(kit) => self.resources = Some(*kit),
            Message::Quit => self.running = false,
            Message::Offer(offer) => {
                let OfferRequest { new_call: arrival, pending_offer: unconnected, reply, .. } = *offer;
                // Free before the engine asks for another thread.
                drop((arrival, unconnected));
                // The client may have hung up the request.
                let _ = reply.send(OfferReply::NotRunning);
            }
            // Its call is over, or was to begin here. Whoever waits for an answer sees the other end dropped, which says that it is not here.
            other => drop(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_by_a_panic_takes_no_calls() {
        let stats = Arc::new(ThreadStats::default());
        let thread_stats = Arc::clone(&stats);
        let ended = contained::<()>(move || {
            let _gone = DeadGuard(thread_stats);
            panic!("the test's own panic");
        });
        assert!(ended.is_none() && stats.dead.load(Relaxed));
    }
}
