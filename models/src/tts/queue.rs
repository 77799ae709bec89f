//! Queue of texts that wait for a synthesis thread. A cancelled text stops counting at once. It
//! costs the texts after it only the time to skip it, however many a caller cancels.
//!
//! States of a ticket; only a waiting one counts:
//!
//! ```text
//! waiting ──start()──► started
//!    │                    │
//!    └─────cancel()───────┴──► cancelled
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Maximum number of waiting texts.
pub(super) const MAX_WAITING_TEXTS: usize = 256;
/// The same, including cancelled texts that were not skipped yet.
const MAX_QUEUED_TEXTS: usize = 16 * MAX_WAITING_TEXTS;

const STATE_WAITING: u8 = 0;
const STATE_STARTED: u8 = 1;
const STATE_CANCELLED: u8 = 2;

/// The state of a queued text, shared by the caller and the synthesis thread.
pub(super) struct Ticket {
    state: AtomicU8,
    waiting: Arc<AtomicUsize>,
}

impl Ticket {
    /// Starts the job; false if it was cancelled.
    pub(super) fn start(&self) -> bool {
        self.leave_queue(STATE_STARTED)
    }

    /// Cancels the job, waiting or started.
    pub(super) fn cancel(&self) {
        if !self.leave_queue(STATE_CANCELLED) {
            self.state.store(STATE_CANCELLED, Ordering::Relaxed);
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.state.load(Ordering::Relaxed) == STATE_CANCELLED
    }

    fn leave_queue(&self, to: u8) -> bool {
        let waited = self
            .state
            .compare_exchange(STATE_WAITING, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if waited {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        waited
    }
}

/// Sending end of the queue.
pub(super) struct JobQueue<T> {
    jobs: Sender<(T, Arc<Ticket>)>,
    waiting: Arc<AtomicUsize>,
}

impl<T> JobQueue<T> {
    pub(super) fn channel() -> (Self, Receiver<(T, Arc<Ticket>)>) {
        let (jobs, receiver) = bounded(MAX_QUEUED_TEXTS);
        (Self { jobs, waiting: Arc::default() }, receiver)
    }

    /// Number of waiting jobs.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues a job; `None` if too many wait, or no thread receives them. Never blocks.
    pub(super) fn push(&self, job: T) -> Option<Arc<Ticket>> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING_TEXTS {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let ticket = Arc::new(Ticket {
            state: AtomicU8::new(STATE_WAITING),
            waiting: Arc::clone(&self.waiting),
        });
        if self.jobs.try_send((job, Arc::clone(&ticket))).is_err() {
            ticket.cancel();
            return None;
        }
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_what_is_cancelled_makes_room_at_once() {
        let (queue, jobs) = JobQueue::channel();
        let tickets: Vec<_> = (0..MAX_WAITING_TEXTS).map(|n| queue.push(n).unwrap()).collect();
        assert!(queue.push(0).is_none());
        tickets.iter().for_each(|ticket| ticket.cancel());
        tickets.iter().for_each(|ticket| ticket.cancel());
        assert!(
            (0..MAX_WAITING_TEXTS).all(|n| queue.push(n).is_some()),
            "the queue accepts this number and no more:"
        );
        assert!(queue.push(0).is_none());
        let wanted = jobs.try_iter().filter(|(_, ticket)| ticket.start()).count();
        assert_eq!(wanted, MAX_WAITING_TEXTS);
        assert!(queue.push(0).is_some());
    }

    #[test]
    fn a_text_that_is_spoken_can_be_cancelled_and_counts_once() {
        let (queue, jobs) = JobQueue::channel();
        let ticket = queue.push(()).unwrap();
        let (_, taken) = jobs.recv().unwrap();
        assert!(taken.start() && !taken.is_cancelled());
        ticket.cancel();
        assert!(taken.is_cancelled() && !taken.start());
        assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
    }
}
