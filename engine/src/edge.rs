//! Bounded edges between threads. Each says what happens when it is full, and counts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, TrySendError};
use mio::Waker;

use crate::thread;

/// What happens to the newcomer when an edge is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It is dropped and counted.
    Drop,
    /// The sender is told and decides.
    Refuse,
    /// The sender waits at most this long, one that never waits ([`thread::never_waits`]) not at all; then the newcomer is dropped and counted.
    Wait(Duration),
}

/// An edge of the graph, as [`crate::graph::EDGES`] documents it.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Who sends to whom.
    pub name: &'static str,
    /// How many items it holds.
    pub depth: usize,
    /// What happens when it is full.
    pub on_full: OnFull,
}

/// The sending end. Cheap to clone.
pub struct Sender<T> {
    edge: &'static Edge,
    channel: crossbeam_channel::Sender<T>,
    waker: Option<Arc<Waker>>,
    counts: Arc<Counts>,
}

/// What an edge counts of itself.
#[derive(Default)]
struct Counts {
    full: AtomicU64,
    deepest: AtomicUsize,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            edge: self.edge,
            channel: self.channel.clone(),
            waker: self.waker.clone(),
            counts: Arc::clone(&self.counts),
        }
    }
}

/// An edge with its sending and receiving ends; `waker` interrupts the receiver's poll, if it has one.
#[must_use]
pub fn open<T>(edge: &'static Edge, waker: Option<Arc<Waker>>) -> (Sender<T>, Receiver<T>) {
    let (channel, receiver) = crossbeam_channel::bounded(edge.depth);
    (Sender { edge, channel, waker, counts: Arc::default() }, receiver)
}

impl<T> Sender<T> {
    /// The same receiver reached by another edge, with that one's behaviour when full and a count of its own.
    #[must_use]
    pub fn by(&self, edge: &'static Edge) -> Self {
        debug_assert_eq!(edge.depth, self.edge.depth, "one receiver has one depth");
        Self { edge, counts: Arc::default(), ..self.clone() }
    }

    /// Sends, and does what the edge says when it is full.
    ///
    /// # Errors
    /// The item, if it was not taken: the edge is full, or nobody receives any more.
    pub fn send(&self, item: T) -> Result<(), T> {
        let sent = match self.edge.on_full {
            OnFull::Drop | OnFull::Refuse => self.channel.try_send(item).map_err(|e| match e {
                TrySendError::Full(item) => (item, true),
                TrySendError::Disconnected(item) => (item, false),
            }),
            OnFull::Wait(limit) => match self.channel.try_send(item) {
                Ok(()) => Ok(()),
                Err(TrySendError::Disconnected(item)) => Err((item, false)),
                Err(TrySendError::Full(item)) if !thread::may_wait() => Err((item, true)),
                Err(TrySendError::Full(item)) => {
                    self.channel.send_timeout(item, limit).map_err(|e| match e {
                        SendTimeoutError::Timeout(item) => (item, true),
                        SendTimeoutError::Disconnected(item) => (item, false),
                    })
                }
            },
        };
        match sent {
            Ok(()) => {
                self.counts.deepest.fetch_max(self.channel.len(), Ordering::Relaxed);
                if let Some(waker) = &self.waker {
                    // Fails only where the poll is gone, and then nobody is to be woken.
                    let _ = waker.wake();
                }
                Ok(())
            }
            Err((item, full)) => {
                if full {
                    self.counts.full.fetch_add(1, Ordering::Relaxed);
                }
                Err(item)
            }
        }
    }

    /// How often it was full.
    #[must_use]
    pub fn full(&self) -> u64 {
        self.counts.full.load(Ordering::Relaxed)
    }

    /// Most items that waited behind this sender, those of the receiver's other edges included.
    #[must_use]
    pub fn deepest(&self) -> usize {
        self.counts.deepest.load(Ordering::Relaxed)
    }

    /// Items that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.channel.len()
    }

    /// Which edge it is.
    #[must_use]
    pub fn edge(&self) -> &'static Edge {
        self.edge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SMALL: Edge = Edge { name: "test", depth: 2, on_full: OnFull::Drop };
    static PATIENT: Edge =
        Edge { name: "test, patient", depth: 2, on_full: OnFull::Wait(Duration::from_millis(1)) };

    #[test]
    fn a_full_edge_gives_the_newcomer_back_and_counts_it() {
        let (sender, receiver) = open(&SMALL, None);
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.send(2), Ok(()));
        assert_eq!(sender.send(3), Err(3));
        assert_eq!((sender.full(), sender.deepest(), sender.waiting()), (1, 2, 2));
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2]);
    }

    /// Who waits here waits for ever: nobody reads.
    static ENDLESS: Edge =
        Edge { name: "test, endless", depth: 1, on_full: OnFull::Wait(Duration::from_secs(3600)) };

    #[test]
    fn a_thread_that_never_waits_gets_the_newcomer_back_at_once() {
        let (sender, receiver) = open(&ENDLESS, None);
        let (told, came_back) = std::sync::mpsc::channel();
        let full = sender.clone();
        thread::spawn("test-media", move || {
            thread::never_waits();
            told.send((full.send(1), full.send(2))).unwrap();
        })
        .unwrap();
        let answer = came_back.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
        assert_eq!(answer, (Ok(()), Err(2)));
        assert_eq!(sender.full(), 1);
        drop(receiver);
    }

    #[test]
    fn edges_into_one_receiver_count_apart() {
        let (sender, receiver) = open(&SMALL, None);
        let patient = sender.by(&PATIENT);
        sender.send(1).unwrap();
        patient.send(2).unwrap();
        assert_eq!(patient.send(3), Err(3));
        assert_eq!((sender.full(), patient.full()), (0, 1));
        drop(receiver);
        assert_eq!(patient.send(4), Err(4));
        assert_eq!(patient.full(), 1, "nobody there is not full");
    }
}
