//! Bounded channels between threads ([`CHANNELS`]). Each has a rule for overflow and counts how
//! often it was full.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, TrySendError};
use mio::Waker;

use crate::thread;

/// What happens to a new item when the channel is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The item is dropped and counted.
    Drop,
    /// The sender gets the item back and decides.
    Reject,
    /// The sender blocks for at most this time, then the item is dropped and counted. A thread that
    /// must not block ([`thread::forbid_blocking`]) drops it at once.
    Wait(Duration),
}

/// A channel, as listed in [`CHANNELS`].
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Source and receiver; also the value of the label in metrics.
    pub name: &'static str,
    /// Capacity in items.
    pub capacity: usize,
    /// What happens when the channel is full.
    pub overflow: Overflow,
}

/// Capacity of a media thread's inbox, in messages. One call causes at most some 50 messages a
/// second, while its agent speaks.
const INBOX_CAPACITY: usize = 8_192;

/// Offers, commands and hang-ups → media thread. When it is full, the requester gets an error: an
/// offer fails with 503 and a command with `NotRunning`.
pub static REQUESTS: Channel =
    Channel { name: "requests → media", capacity: INBOX_CAPACITY, overflow: Overflow::Reject };
/// Text, decisions and samples from models and tools → media thread. When it is full, the model's
/// thread blocks for up to 200 ms rather than lose text. A media thread that reads nothing for that
/// long is broken, so events are then dropped and counted.
pub static STAGE_EVENTS: Channel = Channel {
    name: "stage events → media",
    capacity: INBOX_CAPACITY,
    overflow: Overflow::Wait(Duration::from_millis(200)),
};
/// ICE-TCP datagrams → media thread. When it is full, datagrams are dropped and counted, as by a
/// full socket. It is no part of the inbox: anyone with a token of an embed page can send
/// datagrams, and they must not displace requests and stage events. Holds 80 ms of a thousand
/// clients that send audio.
pub static TCP: Channel =
    Channel { name: "tcp → media", capacity: 4_096, overflow: Overflow::Drop };
/// Inputs and outputs of traced calls → disk thread. Live calls have priority: when it is full,
/// they are dropped and counted.
pub static TRACE: Channel =
    Channel { name: "media → disk", capacity: 16_384, overflow: Overflow::Drop };
/// Packets of recorded calls → recorder, in batches of 0.2 s. Live calls have priority: when it is
/// full, or a batch has waited in it for three seconds, the recording ends. Holds 4 s of a thousand
/// calls.
pub static RECORDER: Channel =
    Channel { name: "media → recorder", capacity: 20_480, overflow: Overflow::Drop };

/// All channels between threads. Other paths have their own bounds:
///
/// - audio → STT and requests → turn model: bounded by the adapters. They never block. Audio that
///   does not fit is dropped, and a request that does not fit gets no answer.
/// - events → event sink: never blocks. The control plane bounds its backlog, drops progress events
///   first, counts each loss, and always keeps the end of a call.
/// - text → data channel and packets → socket: bounded by the transport, which counts what it
///   drops.
///
/// Within a media thread, only the samples of a segment queue ([`crate::speak::playout`]); the
/// length of the segment bounds them.
pub static CHANNELS: [&Channel; 5] = [&REQUESTS, &STAGE_EVENTS, &TCP, &TRACE, &RECORDER];

/// The sending end. Cheap to clone.
pub struct Sender<T> {
    channel: &'static Channel,
    sender: crossbeam_channel::Sender<T>,
    waker: Option<Arc<Waker>>,
    counts: Arc<ChannelCounts>,
}

/// Statistics of a channel.
#[derive(Default)]
struct ChannelCounts {
    sent_count: AtomicU64,
    full_count: AtomicU64,
    max_depth: AtomicUsize,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            channel: self.channel,
            sender: self.sender.clone(),
            waker: self.waker.clone(),
            counts: Arc::clone(&self.counts),
        }
    }
}

/// Opens a channel and returns both ends. `waker` interrupts the receiver's poll, if it has one.
#[must_use]
pub fn open<T>(channel: &'static Channel, waker: Option<Arc<Waker>>) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = crossbeam_channel::bounded(channel.capacity);
    (Sender { channel, sender, waker, counts: Arc::default() }, receiver)
}

impl<T> Sender<T> {
    /// A sender to the same receiver over another channel, with that channel's overflow rule and
    /// its own statistics.
    #[must_use]
    pub fn with_channel(&self, channel: &'static Channel) -> Self {
        debug_assert_eq!(channel.capacity, self.channel.capacity, "one receiver has one depth");
        Self { channel, counts: Arc::default(), ..self.clone() }
    }

    /// Sends an item, and applies the overflow rule if the channel is full.
    ///
    /// # Errors
    /// The item, if it was not sent: the channel is full, or the receiver is gone.
    pub fn send(&self, item: T) -> Result<(), T> {
        let sent = match self.channel.overflow {
            Overflow::Drop | Overflow::Reject => self.sender.try_send(item).map_err(|e| match e {
                TrySendError::Full(item) => (item, true),
                TrySendError::Disconnected(item) => (item, false),
            }),
            Overflow::Wait(limit) => match self.sender.try_send(item) {
                Ok(()) => Ok(()),
                Err(TrySendError::Disconnected(item)) => Err((item, false)),
                Err(TrySendError::Full(item)) if !thread::may_block() => Err((item, true)),
                Err(TrySendError::Full(item)) => {
                    self.sender.send_timeout(item, limit).map_err(|e| match e {
                        SendTimeoutError::Timeout(item) => (item, true),
                        SendTimeoutError::Disconnected(item) => (item, false),
                    })
                }
            },
        };
        match sent {
            Ok(()) => {
                self.counts.sent_count.fetch_add(1, Ordering::Relaxed);
                self.counts.max_depth.fetch_max(self.sender.len(), Ordering::Relaxed);
                if let Some(waker) = &self.waker {
                    // Fails only if the poll is gone, and then there is no thread to wake.
                    let _ = waker.wake();
                }
                Ok(())
            }
            Err((item, full)) => {
                if full {
                    self.counts.full_count.fetch_add(1, Ordering::Relaxed);
                }
                Err(item)
            }
        }
    }

    /// Number of items sent.
    #[must_use]
    pub fn sent_count(&self) -> u64 {
        self.counts.sent_count.load(Ordering::Relaxed)
    }

    /// Number of sent items that the receiver has taken. Only for a receiver with one channel.
    #[must_use]
    pub fn taken_count(&self) -> u64 {
        // In this order: an item that is sent in between must not count as taken.
        let sent = self.sent_count();
        sent.saturating_sub(self.sender.len() as u64)
    }

    /// How often the channel was full.
    #[must_use]
    pub fn full_count(&self) -> u64 {
        self.counts.full_count.load(Ordering::Relaxed)
    }

    /// Maximum number of queued items seen by this sender, items of the receiver's other channels
    /// included.
    #[must_use]
    pub fn max_depth(&self) -> usize {
        self.counts.max_depth.load(Ordering::Relaxed)
    }

    /// Number of items queued now, items of the receiver's other channels included.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.sender.len()
    }

    /// The channel of this sender.
    #[must_use]
    pub fn channel(&self) -> &'static Channel {
        self.channel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static DROPPING: Channel = Channel { name: "test", capacity: 2, overflow: Overflow::Drop };
    static BLOCKING: Channel = Channel {
        name: "test, patient",
        capacity: 2,
        overflow: Overflow::Wait(Duration::from_millis(1)),
    };

    #[test]
    fn a_full_channel_returns_the_new_message_and_counts_it() {
        let (sender, receiver) = open(&DROPPING, None);
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.send(2), Ok(()));
        assert_eq!(sender.send(3), Err(3));
        assert_eq!((sender.full_count(), sender.max_depth(), sender.depth()), (1, 2, 2));
        assert_eq!((sender.sent_count(), sender.taken_count()), (2, 0));
        assert_eq!(receiver.recv(), Ok(1));
        assert_eq!((sender.sent_count(), sender.taken_count()), (2, 1));
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [2]);
    }

    /// No receiver reads this channel, so a send that blocks would outlast the test.
    static BLOCKING_FOREVER: Channel = Channel {
        name: "test, endless",
        capacity: 1,
        overflow: Overflow::Wait(Duration::from_secs(3600)),
    };

    #[test]
    fn a_thread_that_never_waits_gets_the_new_message_back_at_once() {
        let (sender, receiver) = open(&BLOCKING_FOREVER, None);
        let (results, came_back) = std::sync::mpsc::channel();
        let full = sender.clone();
        thread::spawn("test-media", move || {
            thread::forbid_blocking();
            results.send((full.send(1), full.send(2))).unwrap();
        })
        .unwrap();
        let answer = came_back.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
        assert_eq!(answer, (Ok(()), Err(2)));
        assert_eq!(sender.full_count(), 1);
        drop(receiver);
    }

    #[test]
    fn channels_into_one_receiver_count_separately() {
        let (sender, receiver) = open(&DROPPING, None);
        let patient = sender.with_channel(&BLOCKING);
        sender.send(1).unwrap();
        patient.send(2).unwrap();
        assert_eq!(patient.send(3), Err(3));
        assert_eq!((sender.full_count(), patient.full_count()), (0, 1));
        drop(receiver);
        assert_eq!(patient.send(4), Err(4));
        assert_eq!(patient.full_count(), 1, "a channel without a receiver does not count as full");
    }
}
