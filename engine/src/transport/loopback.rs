//! A call without a network, for tests, simulation and load. Audio enters at 16 kHz and leaves at
//! 48 kHz, frame by frame, with the segment that it belongs to.

use std::time::Instant;

use conversation::input::SegmentId;
use conversation::time::Position;
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

use super::{TransportEvent, VideoFrame};

/// An output of the call.
#[derive(Clone, Debug)]
pub enum LoopbackOutput {
    /// The connection came up. The first sample that the client sent is heard as if it was spoken
    /// at this instant.
    Connected {
        /// When.
        at: Instant,
    },
    /// 10 or 20 ms of the agent's audio.
    Audio {
        /// When it left the call.
        at: Instant,
        /// Media time at 48 kHz, counted from [`LoopbackOutput::Connected`].
        timestamp: u64,
        /// Samples, 48 kHz mono.
        pcm: Box<[i16]>,
        /// Segment and position of the first sample that is speech.
        segment: Option<(SegmentId, Position)>,
    },
    /// A video frame.
    Video {
        /// When it left the call.
        at: Instant,
        /// The frame.
        frame: VideoFrame,
    },
    /// A message of the data channel.
    Text(String),
    /// The call hung up.
    Closed,
}

/// The call's side.
pub struct LoopbackServer {
    audio: Receiver<Vec<i16>>,
    events: Receiver<TransportEvent>,
    outputs: Sender<LoopbackOutput>,
    leftover: Vec<i16>,
    connected: bool,
}

/// The user's side.
pub struct LoopbackClient {
    audio: Option<Sender<Vec<i16>>>,
    events: Sender<TransportEvent>,
    outputs: Receiver<LoopbackOutput>,
}

/// Creates both sides of a loopback connection. Dropping the client acts like a connection closed
/// without a leave message.
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
    /// The next event, if there is one.
    pub(crate) fn poll(&mut self) -> Option<TransportEvent> {
        if !self.connected {
            self.connected = true;
            return Some(TransportEvent::Connected);
        }
        self.events.try_recv().ok()
    }

    /// Fills `block` with the user's audio, padded with silence. False if the client has
    /// disconnected.
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
        // An error means that the client is gone. A real network would drop the output too.
        let _ = self.outputs.send(output);
    }
}

impl LoopbackClient {
    /// Sends user audio: 16 kHz mono, consumed in frames of 20 ms.
    pub fn send_audio(&self, pcm: Vec<i16>) {
        if let Some(audio) = &self.audio {
            let _ = audio.send(pcm);
        }
    }

    /// Injects an event as if it came from the connection.
    pub fn send_event(&self, event: TransportEvent) {
        let _ = self.events.send(event);
    }

    /// Simulates a lost network: the call receives no further audio.
    pub fn disconnect(&mut self) {
        self.audio = None;
    }

    /// The outputs of the call since the last drain.
    pub fn drain_outputs(&self) -> impl Iterator<Item = LoopbackOutput> + '_ {
        self.outputs.try_iter()
    }
}
