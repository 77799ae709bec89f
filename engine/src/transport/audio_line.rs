//! A connection that carries samples: the audio of a call for a service that delivers it over a
//! socket. It has no video and no messages.
//!
//! The client feeds pieces by a timer of its own, so they arrive early and late. The call keeps a
//! cushion of one block of 20 ms:
//!
//! ```text
//!         a piece has arrived          20 ms later, or two blocks are there
//! empty ─────────────────────> filling ────────────────────────────────────> playing
//!   ^                                                                           │
//!   └──────────────────────────── a block is not complete ──────────────────────┘
//! ```
//!
//! Both queues are bounded and allocate nothing per piece.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use engine_api::AudioLine;
use tokio::sync::oneshot;

use super::resampler::StreamResampler;
use super::{ConnectionReply, TransportEvent};
use crate::hear::decode::SAMPLE_RATE;
use crate::speak::AudioFrame;
use crate::speak::playout::FRAME_SAMPLES_48K;

/// Samples of a block, 20 ms at 16 kHz.
const BLOCK_SAMPLES: usize = 320;
/// Blocks that may wait; the oldest samples beyond are dropped: .5 s.
const MAX_WAITING_BLOCKS: usize = 25;
/// Blocks that may wait longer than their silence: a burst is caught up with in pauses.
const MAX_SILENT_BLOCKS: usize = 3;
/// Largest sample of a block that counts as silent: −44 dBFS.
const SILENT_PEAK: u16 = 200;
/// Capacity of both queues. A client that exchanges nothing for so long (.6 s or more) hears
/// nothing.
const QUEUE_CAPACITY: usize = 64;
/// Silence that follows speech, so that the filter of the resampler holds none of it: 20 ms.
const TAIL_SAMPLES: usize = FRAME_SAMPLES_48K;
/// Rate of the agent's audio in Hz.
const SPOKEN_RATE: u32 = 48_000;

/// Up to 20 ms of the user's audio at 16 kHz; empty if only time has passed.
struct Piece {
    samples: [i16; BLOCK_SAMPLES],
    len: usize,
}

/// Up to 20 ms of the agent's audio at 48 kHz.
struct SpokenFrame {
    samples: [i16; FRAME_SAMPLES_48K],
    len: usize,
}

/// The call's side.
pub struct LineServer {
    pieces: Receiver<Piece>,
    spoken: Sender<SpokenFrame>,
    /// Tells the client what became of the line, once.
    reply: Option<oneshot::Sender<ConnectionReply>>,
    is_connected: bool,
    /// The client is gone. What it sent may still wait.
    is_gone: bool,
    is_gone_reported: bool,
    /// Pieces have arrived since the last [`LineServer::take_received`].
    has_received: bool,
    waiting: VecDeque<i16>,
    /// The next blocks are silent until the cushion is there.
    is_filling: bool,
    has_waited: bool,
    dropped_samples: u64,
    lost_pieces: Arc<AtomicU64>,
    /// Samples of silence since the last speech.
    silent_samples: usize,
}

/// The client's side.
pub struct Line {
    pieces: Sender<Piece>,
    spoken: Receiver<SpokenFrame>,
    heard_resampler: StreamResampler,
    spoken_resampler: StreamResampler,
    heard: Vec<i16>,
    lost_pieces: Arc<AtomicU64>,
}

/// Creates both sides of a line; `None` if no resampler exists for a rate of the client's. The receiver
/// learns what became of the line.
#[must_use]
pub fn pair(
    input_rate: u32,
    output_rate: u32,
) -> Option<(LineServer, Line, oneshot::Receiver<ConnectionReply>)> {
    let heard_resampler = StreamResampler::new(input_rate, SAMPLE_RATE)?;
    let spoken_resampler = StreamResampler::new(SPOKEN_RATE, output_rate)?;
    let (pieces, received_pieces) = bounded(QUEUE_CAPACITY);
    let (spoken, received_spoken) = bounded(QUEUE_CAPACITY);
    let (reply, outcome) = oneshot::channel();
    let lost_pieces = Arc::<AtomicU64>::default();
    let server = LineServer {
        pieces: received_pieces,
        spoken,
        reply: Some(reply),
        is_connected: false,
        is_gone: false,
        is_gone_reported: false,
        has_received: false,
        waiting: VecDeque::with_capacity((MAX_WAITING_BLOCKS + 1) * BLOCK_SAMPLES),
        is_filling: true,
        has_waited: false,
        dropped_samples: 0,
        lost_pieces: Arc::clone(&lost_pieces),
        silent_samples: TAIL_SAMPLES,
    };
    let heard = Vec::with_capacity(2 * BLOCK_SAMPLES);
    let line = Line {
        pieces,
        spoken: received_spoken,
        heard_resampler,
        spoken_resampler,
        heard,
        lost_pieces,
    };
    Some((server, line, outcome))
}

impl LineServer {
    /// Tells the client what became of the line. Only the first reply counts.
    pub(crate) fn reply(&mut self, outcome: ConnectionReply) {
        if let Some(reply) = self.reply.take() {
            // The client may have stopped waiting. The line is then closed.
            let _ = reply.send(outcome);
        }
    }

    /// The next event, if there is one.
    pub(crate) fn poll(&mut self) -> Option<TransportEvent> {
        if !self.is_connected {
            self.is_connected = true;
            return Some(TransportEvent::Connected);
        }
        self.take_pieces();
        let is_news = self.is_gone && !std::mem::replace(&mut self.is_gone_reported, self.is_gone);
        is_news.then_some(TransportEvent::Closed)
    }

    /// Whether the client has sent something, be it empty, since the last call of this method.
    pub(crate) fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.has_received)
    }

    /// Number of blocks that were dropped since the last call of this method because the client
    /// sent faster than real time.
    pub(crate) fn take_dropped_blocks(&mut self) -> u64 {
        let blocks = self.dropped_samples / BLOCK_SAMPLES as u64;
        self.dropped_samples %= BLOCK_SAMPLES as u64;
        blocks + self.lost_pieces.swap(0, Relaxed)
    }

    fn take_pieces(&mut self) {
        loop {
            match self.pieces.try_recv() {
                Ok(piece) => {
                    self.has_received = true;
                    self.waiting.extend(&piece.samples[..piece.len]);
                    self.drop_oldest();
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_gone = true;
                    return;
                }
            }
        }
    }

    fn drop_oldest(&mut self) {
        let surplus = self.waiting.len().saturating_sub(MAX_WAITING_BLOCKS * BLOCK_SAMPLES);
        self.waiting.drain(..surplus);
        self.dropped_samples += surplus as u64;
    }

    /// Skips silence while too much audio waits, so that a burst does not delay all later audio.
    fn skip_silence(&mut self) {
        while self.waiting.len() > MAX_SILENT_BLOCKS * BLOCK_SAMPLES
            && self.waiting.range(..BLOCK_SAMPLES).all(|s| s.unsigned_abs() <= SILENT_PEAK)
        {
            self.waiting.drain(..BLOCK_SAMPLES);
        }
    }

    /// Fills `block` with the user's audio, padded with silence. False if the client is gone and
    /// all of its audio was read.
    pub(crate) fn read_audio(&mut self, block: &mut [i16; BLOCK_SAMPLES]) -> bool {
        self.take_pieces();
        self.skip_silence();
        if self.is_filling && !self.is_gone {
            let is_complete = self.waiting.len() >= 2 * BLOCK_SAMPLES
                || (self.has_waited && !self.waiting.is_empty());
            if !is_complete {
                self.has_waited = !self.waiting.is_empty();
                block.fill(0);
                return true;
            }
            self.is_filling = false;
        }
        let n = self.waiting.len().min(BLOCK_SAMPLES);
        for (out, sample) in block.iter_mut().zip(self.waiting.drain(..n)) {
            *out = sample;
        }
        block[n..].fill(0);
        if n < BLOCK_SAMPLES {
            (self.is_filling, self.has_waited) = (true, false);
        }
        n > 0 || !self.is_gone
    }

    /// Whether the client takes what the agent says.
    pub(crate) fn is_listening(&self) -> bool {
        !self.is_gone && !self.spoken.is_full()
    }

    /// Sends a frame of the agent's audio, if it belongs to speech.
    pub(crate) fn send_audio(&mut self, frame: &AudioFrame<'_>) {
        if frame.is_speech() {
            self.silent_samples = 0;
        } else if self.silent_samples < TAIL_SAMPLES {
            self.silent_samples += frame.pcm.len();
        } else {
            return;
        }
        let mut samples = [0; FRAME_SAMPLES_48K];
        let len = frame.pcm.len().min(samples.len());
        samples[..len].copy_from_slice(&frame.pcm[..len]);
        // An error means that the client is gone or takes nothing. A network would drop it too.
        let _ = self.spoken.try_send(SpokenFrame { samples, len });
    }
}

impl AudioLine for Line {
    fn exchange(&mut self, heard: &[i16], spoken: &mut Vec<i16>) -> bool {
        self.heard.clear();
        self.heard_resampler.push(heard, &mut self.heard);
        let pieces = self.heard.chunks(BLOCK_SAMPLES);
        // Without samples, an empty piece says that the client is there.
        let nothing: &[i16] = &[];
        let empty = self.heard.is_empty().then_some(nothing);
        for part in pieces.chain(empty) {
            let mut samples = [0; BLOCK_SAMPLES];
            samples[..part.len()].copy_from_slice(part);
            let sent = self.pieces.try_send(Piece { samples, len: part.len() });
            if sent.is_err() && !part.is_empty() {
                self.lost_pieces.fetch_add(1, Relaxed);
            }
        }
        loop {
            match self.spoken.try_recv() {
                Ok(frame) => self.spoken_resampler.push(&frame.samples[..frame.len], spoken),
                Err(e) => return e == TryRecvError::Empty,
            }
        }
    }
}

#[cfg(test)]
#[path = "audio_line_tests.rs"]
mod tests;
