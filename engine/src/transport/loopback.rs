//! A call without a network: sound goes in at 16 kHz and comes out at 48 kHz, block by block, with the piece it belongs to.
//! For tests, simulation and load.

use std::time::Instant;

use conversation::input::SegmentId;
use conversation::time::Position;
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

use super::{TransportEvent, VideoFrame};

/// What leaves the call.
#[derive(Clone, Debug)]
pub enum LoopbackOutput {
    /// The connection came up: the first sample that was said is heard as if it was spoken now.
    Connected {
        /// When.
        at: Instant,
    },
    /// 10 or 20 ms of the agent's sound.
    Audio {
        /// When it left.
        at: Instant,
        /// On the media clock, at 48 kHz: counts from [`LoopbackOutput::Connected`].
        timestamp: u64,
        /// 48 kHz mono.
        pcm: Box<[i16]>,
        /// Piece and position of its first sample that is speech.
        segment: Option<(SegmentId, Position)>,
    },
    /// A picture.
    Video {
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
pub struct LoopbackServer {
    audio: Receiver<Vec<i16>>,
    events: Receiver<TransportEvent>,
    outputs: Sender<LoopbackOutput>,
    leftover: Vec<i16>,
    connected: bool,
}

/// The user's end.
pub struct LoopbackClient {
    audio: Option<Sender<Vec<i16>>>,
    events: Sender<TransportEvent>,
    outputs: Receiver<LoopbackOutput>,
}

/// Both ends of a call's sound. The far one's `Drop` is a connection closed without a word.
#[must_use]
pub fn pair() -> (LoopbackServer, LoopbackClient) {
    let (audio, server_audio) = unbounded();
    let (events, server_events) = unbounded();
    let (outputs, client_outputs) = unbounded();
    let server = LoopbackServer {
        audio: server_audio,
        events: server_events,
        outputs,
        leftover: Vec::with_capacity(1_024),
        connected: false,
    };
    (server, LoopbackClient { audio: Some(audio), events, outputs: client_outputs })
}

impl LoopbackServer {
    /// What happened, one at a time.
    pub(crate) fn poll(&mut self) -> Option<TransportEvent> {
        if !self.connected {
            self.connected = true;
            return Some(TransportEvent::Connected);
        }
        self.events.try_recv().ok()
    }

    /// Fills a block of the user's sound; silence where none is given. False if the user's end is gone.
    pub(crate) fn read_audio(&mut self, block: &mut [i16]) -> bool {
        let mut connected = true;
        while self.leftover.len() < block.len() {
            match self.audio.try_recv() {
                Ok(more) => self.leftover.extend(more),
                Err(e) => {
                    connected = e == TryRecvError::Empty;
                    break;
                }
            }
        }
        let n = self.leftover.len().min(block.len());
        block[..n].copy_from_slice(&self.leftover[..n]);
        block[n..].fill(0);
        self.leftover.drain(..n);
        connected
    }

    pub(crate) fn send_output(&self, output: LoopbackOutput) {
        // Nobody listens any more: so it is with a real network.
        let _ = self.outputs.send(output);
    }
}

impl LoopbackClient {
    /// Speaks: 16 kHz mono, taken in blocks of 20 ms.
    pub fn send_audio(&self, pcm: Vec<i16>) {
        if let Some(audio) = &self.audio {
            let _ = audio.send(pcm);
        }
    }

    /// Something happens on the connection.
    pub fn send_event(&self, event: TransportEvent) {
        let _ = self.events.send(event);
    }

    /// The network is gone: nothing is heard from now on.
    pub fn disconnect(&mut self) {
        self.audio = None;
    }

    /// What left the call since last asked.
    pub fn drain_outputs(&self) -> impl Iterator<Item = LoopbackOutput> + '_ {
        self.outputs.try_iter()
    }
}
