//! The main loop of a media thread, and its recovery after a failure.
//!
//! A failed thread is not replaced. It restarts with its own socket, inbox and models, so its port
//! and the channels of all senders stay valid. Until the restart succeeds, it takes no calls
//! ([`ThreadStats::dead`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mio::{Events, Interest};
use models::panic_isolation::{RestartBackoff, catch_panic};

use super::{MediaThread, SOCKET_TOKEN};
use crate::messages::{Message, OfferReply, OfferRequest};
use crate::stats::ThreadStats;
use crate::transport::socket::Socket;
use crate::{clock, thread};

/// Marks the thread as dead when it ends, for whatever reason.
struct DeadGuard(Arc<ThreadStats>);

impl Drop for DeadGuard {
    fn drop(&mut self) {
        self.0.dead.store(true, Relaxed);
    }
}

impl MediaThread {
    /// Runs the thread until [`Message::Quit`]. Restarts it after each failure.
    pub fn run(mut self) {
        let dead_guard = DeadGuard(Arc::clone(self.meter.stats()));
        let dead = &dead_guard.0.dead;
        thread::forbid_blocking();
        if !thread::raise_priority() {
            tracing::debug!("not permitted to raise the priority of the media threads");
        }
        let mut events = Events::with_capacity(64);
        let mut socket_registered = true;
        let mut restarts = RestartBackoff::default();
        loop {
            let why =
                match catch_panic(|| self.run_until_stopped(&mut events, &mut socket_registered)) {
                    Some(Ok(())) => return,
                    Some(Err(error)) => format!("cannot poll its socket: {error}"),
                    None => "panicked".to_owned(),
                };
            // Set first, so that the clients of the ending calls do not return to this thread.
            dead.store(true, Relaxed);
            let calls = self.calls.len();
            tracing::error!(
                reason = why,
                calls,
                "media thread failed: its calls end, and it restarts"
            );
            self.recover(&mut restarts);
            dead.store(false, Relaxed);
        }
    }

    /// Steps the thread until it must end.
    ///
    /// # Errors
    /// Waiting for the socket fails, or the thread has no socket.
    fn run_until_stopped(
        &mut self,
        events: &mut Events,
        socket_registered: &mut bool,
    ) -> io::Result<()> {
        while self.running {
            let now = clock::now();
            let more = self.run_step(now, &clock::now);
            self.meter.end_step(clock::now().saturating_duration_since(now));
            let wait = if more {
                Some(Duration::ZERO)
            } else {
                self.wake_at().map(|at| at.saturating_duration_since(clock::now()))
            };
            let (Some(poll), Some(socket)) = (&mut self.poll, &mut self.socket) else {
                return Err(io::Error::other("no socket"));
            };
            if *socket_registered == self.reads_socket_on_tick {
                let registry = poll.registry();
                if self.reads_socket_on_tick {
                    registry.deregister(socket)?;
                } else {
                    registry.register(socket, SOCKET_TOKEN, Interest::READABLE)?;
                }
                self.rooms.wake_thread(registry, !self.reads_socket_on_tick)?;
                // Updated only after success, so that a failed registration is tried again.
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

    /// Ends the thread's calls, resets the thread, and pauses if failures are too frequent. A panic
    /// in the restart counts as one more failure; the next restart does the remaining work.
    fn recover(&mut self, restarts: &mut RestartBackoff) {
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

    /// Counts a failure. Returns how long the thread must pause.
    fn record_failure(&self, restarts: &mut RestartBackoff) -> Duration {
        let pause = restarts.next_backoff(clock::now());
        if !pause.is_zero() {
            self.meter.stats().restart_pauses.fetch_add(1, Relaxed);
            tracing::error!(
                ?pause,
                "media thread fails repeatedly: it accepts no calls during this pause"
            );
        }
        pause
    }

    /// Tries a restart. Returns whether it succeeded.
    fn try_restart(&mut self) -> bool {
        let done = catch_panic(|| self.reset_after_failure()).is_some();
        // The last datagrams of the calls are sent before a pause.
        catch_panic(|| self.socket.as_mut().map(Socket::flush));
        done
    }

    /// Takes no calls for the duration `pause`. The inbox is still read, so that no requester waits
    /// until the pause is over.
    fn pause(&mut self, pause: Duration) {
        let end = clock::now() + pause;
        while self.running && clock::now() < end {
            let Ok(message) = self.messages.recv_deadline(end) else { return };
            catch_panic(|| self.reject_message(message));
        }
    }

    fn reject_message(&mut self, message: Message) {
        match message {
            Message::Ready(resources) => self.resources = Some(*resources),
            Message::Quit => self.running = false,
            Message::Offer(offer) => {
                let OfferRequest { new_call, pending_offer, reply, .. } = *offer;
                // Released before the engine tries another thread.
                drop((new_call, pending_offer));
                // The client may have aborted the request.
                let _ = reply.send(OfferReply::NotRunning);
            }
            // The call has ended, or was about to start here. A requester sees its reply channel
            // closed, which means that the call is not running.
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
        let ended = catch_panic::<()>(move || {
            let _gone = DeadGuard(thread_stats);
            panic!("the test's own panic");
        });
        assert!(ended.is_none() && stats.dead.load(Relaxed));
    }
}
