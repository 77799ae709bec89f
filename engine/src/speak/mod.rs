//! From words to packets of the agent's voice.

pub mod encode;
mod lips;
pub mod playout;
pub mod tts;

use std::time::{Duration, Instant};

use conversation::input::{Epoch, PlayoutEvent, SegmentId};
use models::Handle;

use encode::Encoder;
use playout::{BLOCK, Leaving, Playout, Reports, SHORT};

/// Length of a block where no change is near.
pub const FRAME: Duration = Duration::from_millis(20);
/// Length of a block where one is.
const BRISK: Duration = Duration::from_millis(10);
/// Blocks of [`FRAME`] sent at once after a late tick; what is missed beyond is left out, and counted.
const CATCH_UP: u32 = 10;

/// A piece that the TTS is making.
struct Making {
    piece: SegmentId,
    epoch: Epoch,
    /// Samples have come.
    ready: bool,
    _handle: Handle,
}

/// One call's voice on the media clock: block behind block, silence included. A block has 20 ms of sound; where a change is near, 10, so
/// that an answer begins, and a voice that is interrupted ends, half as late.
pub struct Speaking {
    /// What sounds.
    pub playout: Playout,
    encoder: Encoder,
    making: Vec<Making>,
    block: Box<[i16; BLOCK]>,
    reports: Reports,
    /// When the next block is due, and its time stamp: the clock of the RTP time stamps.
    next: Instant,
    timestamp: u64,
    /// When the last block was due.
    last: Instant,
    /// The user is heard.
    talked_over: bool,
    /// Blocks left out since last told.
    left_out: u64,
    told_underruns: u64,
    sounding: bool,
}

/// A block that is due.
pub struct Block<'a> {
    /// RTP time stamp at 48 kHz.
    pub timestamp: u64,
    /// When the playout clock needs it.
    pub due: Instant,
    /// Whether speech begins in it, after silence.
    pub begins: bool,
    /// The Opus packet; empty for a block that is not encoded.
    pub packet: &'a [u8],
    /// Its samples, 10 or 20 ms of them.
    pub pcm: &'a [i16],
    /// What sounds in it.
    pub leaving: Option<Leaving>,
}

impl Speaking {
    /// A voice whose first block is due at `start`.
    ///
    /// # Errors
    /// There is no encoder.
    pub fn new(start: Instant) -> Result<Self, encode::Error> {
        Ok(Self {
            playout: Playout::default(),
            encoder: Encoder::new()?,
            making: Vec::with_capacity(8),
            block: Box::new([0; BLOCK]),
            reports: Vec::with_capacity(8),
            next: start,
            timestamp: 0,
            last: start,
            talked_over: false,
            left_out: 0,
            told_underruns: 0,
            sounding: false,
        })
    }

    /// The media clock begins: time stamps count from `origin`, the first block is due at `first`.
    pub fn begin(&mut self, origin: Instant, first: Instant) {
        self.next = first;
        self.timestamp = (first.saturating_duration_since(origin).as_micros() as u64) * 48 / 1_000;
    }

    /// Whether the user is heard: what the agent says may have to end soon.
    pub fn set_talked_over(&mut self, talked_over: bool) {
        self.talked_over = talked_over;
    }

    /// Since last asked: blocks left out because a tick came too late for them, and blocks in which a sounding piece lacked samples.
    pub fn losses(&mut self) -> (u64, u64) {
        let underruns = self.playout.underruns();
        let before = std::mem::replace(&mut self.told_underruns, underruns);
        (std::mem::take(&mut self.left_out), underruns - before)
    }

    /// Renders the block that is due at `now`, if one is. `audible`: somebody is there to hear; otherwise the sound waits.
    pub fn render(&mut self, now: Instant, encode: bool, audible: bool) -> Option<Block<'_>> {
        if now < self.next {
            return None;
        }
        let behind = (now - self.next).as_millis() as u64 / FRAME.as_millis() as u64;
        if behind > u64::from(CATCH_UP) {
            // Time stamps go on with the clock; what should have sounded sounds later.
            let skipped = behind - u64::from(CATCH_UP);
            self.timestamp += skipped * BLOCK as u64;
            self.next += FRAME * u32::try_from(skipped).unwrap_or(u32::MAX);
            self.left_out += skipped;
        }
        let near = self.playout.awaits() || (self.talked_over && self.playout.leaving().is_some());
        // Behind a late tick there is nothing to win.
        let (samples, length) = if near && behind == 0 { (SHORT, BRISK) } else { (BLOCK, FRAME) };
        let block = &mut self.block[..samples];
        if audible {
            self.playout.render(block, &mut self.reports);
        } else {
            block.fill(0);
        }
        let (timestamp, due) = (self.timestamp, self.next);
        self.timestamp += samples as u64;
        (self.last, self.next) = (due, due + length);
        let leaving = self.playout.leaving().filter(|_| audible);
        let begins = leaving.is_some() && !self.sounding;
        self.sounding = leaving.is_some();
        // An encoder that fails once is likely to work again; the packet is missed like a lost one.
        let packet = if encode { self.encoder.encode(block).unwrap_or(&[]) } else { &[] };
        Some(Block { timestamp, due, begins, packet, pcm: block, leaving })
    }

    /// The receiver reports that it lost this part of the last packets.
    pub fn lost(&mut self, part: f32) {
        // Refused, it is coded as before: it sounds all the same.
        let _ = self.encoder.lost(part);
    }

    /// What the last blocks told, in order.
    pub fn reports(&mut self) -> Option<(SegmentId, PlayoutEvent)> {
        if self.reports.is_empty() { None } else { Some(self.reports.remove(0)) }
    }

    /// Piece and second of it that leave at `now`.
    #[must_use]
    pub fn mouth(&self, now: Instant) -> Option<(SegmentId, f32)> {
        let leaving = self.playout.leaving()?;
        let since = now.saturating_duration_since(self.last).as_secs_f64();
        let at = leaving.position.as_seconds() - leaving.offset as f64 / 48_000.0 + since;
        (at >= 0.0).then_some((leaving.piece, at as f32))
    }

    /// A piece is being made.
    pub fn make(&mut self, piece: SegmentId, epoch: Epoch, handle: Handle) {
        self.playout.open(piece, epoch);
        self.making.push(Making { piece, epoch, ready: false, _handle: handle });
    }

    /// Whether a piece is still being made; whether these are its first samples.
    pub fn arrived(&mut self, piece: SegmentId) -> Option<bool> {
        let making = self.making.iter_mut().find(|m| m.piece == piece)?;
        Some(!std::mem::replace(&mut making.ready, true))
    }

    /// Whether a piece is still being made.
    #[must_use]
    pub fn makes(&self, piece: SegmentId) -> bool {
        self.making.iter().any(|m| m.piece == piece)
    }

    /// A piece is made, or not wanted any more: whatever still makes it stops.
    pub fn made(&mut self, piece: SegmentId) {
        self.making.retain(|m| m.piece != piece);
    }

    /// Nothing of an epoch is wanted any more.
    pub fn cancelled(&mut self, epoch: Epoch) {
        self.making.retain(|m| m.epoch != epoch);
    }
}
