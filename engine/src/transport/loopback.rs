//! A call without a network: sound goes in at 16 kHz and comes out at 48 kHz, block by block, with the piece it belongs to.
//! For tests, simulation and load.

use std::time::Instant;

use conversation::input::SegmentId;
use conversation::time::Position;
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

use super::{Event, VideoFrame};

/// What leaves the call.
#[derive(Clone, Debug)]
pub enum Left {
    /// The connection came up: the first sample that was said is heard as if it was spoken now.
    Began {
        /// When.
        at: Instant,
    },
    /// 10 or 20 ms of the agent's sound.
    Sound {
        /// When it left.
        at: Instant,
        /// On the media clock, at 48 kHz: counts from [`Left::Began`].
        timestamp: u64,
        /// 48 kHz mono.
        pcm: Box<[i16]>,
        /// Piece and position of its first sample that is speech.
        piece: Option<(SegmentId, Position)>,
    },
    /// A picture.
    Picture {
        /// When it left.
        at: Instant,
        /// The frame.
        frame: VideoFrame,
    },
    /// A message of the data channel.
    Text(String),
    /// The call has hung up.
    Closed,
}

/// The call's end.
pub struct Near {
    sound: Receiver<Vec<i16>>,
    events: Receiver<Event>,
    left: Sender<Left>,
    rest: Vec<i16>,
    connected: bool,
}

/// The user's end.
pub struct Far {
    sound: Option<Sender<Vec<i16>>>,
    events: Sender<Event>,
    left: Receiver<Left>,
}

/// Both ends of a call's sound. The far one's `Drop` is a connection closed without a word.
#[must_use]
pub fn pair() -> (Near, Far) {
    let (sound, near_sound) = unbounded();
    let (events, near_events) = unbounded();
    let (left, far_left) = unbounded();
    let near = Near {
        sound: near_sound,
        events: near_events,
        left,
        rest: Vec::with_capacity(1_024),
        connected: false,
    };
    (near, Far { sound: Some(sound), events, left: far_left })
}

impl Near {
    /// What happened, one at a time.
    pub(crate) fn poll(&mut self) -> Option<Event> {
        if !self.connected {
            self.connected = true;
            return Some(Event::Connected);
        }
        self.events.try_recv().ok()
    }

    /// Fills a block of the user's sound; silence where none is given. False if the user's end is gone.
    pub(crate) fn pull(&mut self, block: &mut [i16]) -> bool {
        let mut here = true;
        while self.rest.len() < block.len() {
            match self.sound.try_recv() {
                Ok(more) => self.rest.extend(more),
                Err(e) => {
                    here = e == TryRecvError::Empty;
                    break;
                }
            }
        }
        let n = self.rest.len().min(block.len());
        block[..n].copy_from_slice(&self.rest[..n]);
        block[n..].fill(0);
        self.rest.drain(..n);
        here
    }

    pub(crate) fn send(&self, left: Left) {
        // Nobody listens any more: so it is with a real network.
        let _ = self.left.send(left);
    }
}

impl Far {
    /// Speaks: 16 kHz mono, taken in blocks of 20 ms.
    pub fn say(&self, pcm: Vec<i16>) {
        if let Some(sound) = &self.sound {
            let _ = sound.send(pcm);
        }
    }

    /// Something happens on the connection.
    pub fn event(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// The network is gone: nothing is heard from now on.
    pub fn vanish(&mut self) {
        self.sound = None;
    }

    /// What left the call since last asked.
    pub fn heard(&self) -> impl Iterator<Item = Left> + '_ {
        self.left.try_iter()
    }
}
