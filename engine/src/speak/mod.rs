//! From the text of the reply to packets of the agent's audio.

pub mod encode;
pub mod gesture_words;
mod lips;
pub mod manners;
pub mod playout;
pub mod tts;
mod words;

use std::time::{Duration, Instant};

use conversation::input::{Epoch, PlayoutEvent, SegmentId};
use models::Handle;

use encode::Encoder;
use playout::{FRAME_SAMPLES_48K, Playout, PlayoutEvents, PlayoutPosition, SHORT_FRAME_SAMPLES};

/// Length of a frame if no change is near.
pub const FRAME_DURATION: Duration = Duration::from_millis(20);
/// Length of a frame if a change is near.
const SHORT_FRAME_DURATION: Duration = Duration::from_millis(10);
/// Frames of [`FRAME_DURATION`] sent at once after a late tick; further missed frames are skipped
/// and counted.
const MAX_CATCH_UP_FRAMES: u32 = 10;

/// A segment that the TTS is synthesizing.
struct PendingSynthesis {
    segment: SegmentId,
    epoch: Epoch,
    /// The provider that speaks; empty until it is known.
    provider: &'static str,
    /// Samples have arrived.
    has_samples: bool,
    _handle: Handle,
}

/// The audio output of one call on the media clock: contiguous frames, silence included. A frame
/// has 20 ms of audio, or 10 ms if a change is near. The short frame halves the delay before an
/// answer begins, and before an interrupted one ends.
pub struct AudioOutput {
    /// The agent's audio, by segment.
    pub playout: Playout,
    encoder: Encoder,
    pending: Vec<PendingSynthesis>,
    frame: Box<[i16; FRAME_SAMPLES_48K]>,
    playout_events: PlayoutEvents,
    /// When the next frame is due, and its RTP timestamp.
    next_due: Instant,
    timestamp: u64,
    /// When the last frame was due.
    last_due: Instant,
    /// The detector reports that the user speaks.
    user_speaking: bool,
    /// Frames skipped since the last report.
    skipped_frames: u64,
    reported_underruns: u64,
    in_speech: bool,
}

/// A frame that is due.
pub struct AudioFrame<'a> {
    /// RTP timestamp at 48 kHz.
    pub timestamp: u64,
    /// When the playout clock needs it.
    pub due: Instant,
    /// Whether speech begins in it, after silence.
    pub starts_talk_spurt: bool,
    /// The Opus packet; empty for a frame that is not encoded.
    pub packet: &'a [u8],
    /// Its samples, 10 or 20 ms of them.
    pub pcm: &'a [i16],
    /// The speech in the frame, if any.
    pub playout_position: Option<PlayoutPosition>,
    /// Whether the agent speaks or pauses within a segment.
    pub is_within_segment: bool,
}

impl AudioFrame<'_> {
    /// Whether it belongs to speech: the agent speaks, fades out, or pauses within a segment. Reads
    /// the samples of a silent frame.
    #[must_use]
    pub fn is_speech(&self) -> bool {
        self.is_within_segment || self.pcm.iter().any(|sample| *sample != 0)
    }
}

impl AudioOutput {
    /// An output whose first frame is due at `start`.
    ///
    /// # Errors
    /// The encoder cannot be created.
    pub fn new(start: Instant) -> Result<Self, encode::Error> {
        Ok(Self {
            playout: Playout::default(),
            encoder: Encoder::new()?,
            pending: Vec::with_capacity(8),
            frame: Box::new([0; FRAME_SAMPLES_48K]),
            playout_events: Vec::with_capacity(8),
            next_due: start,
            timestamp: 0,
            last_due: start,
            user_speaking: false,
            skipped_frames: 0,
            reported_underruns: 0,
            in_speech: false,
        })
    }

    /// Starts the media clock: timestamps count from `origin`, the first frame is due at `first`.
    pub fn start_clock(&mut self, origin: Instant, first: Instant) {
        self.next_due = first;
        self.timestamp = (first.saturating_duration_since(origin).as_micros() as u64) * 48 / 1_000;
    }

    /// Whether the user speaks: the agent's audio may have to end soon.
    pub fn set_user_speaking(&mut self, user_speaking: bool) {
        self.user_speaking = user_speaking;
    }

    /// Losses since the last call: frames skipped because a tick came too late, and frames in which
    /// a playing segment lacked samples.
    pub fn take_losses(&mut self) -> (u64, u64) {
        let underruns = self.playout.underruns();
        let before = std::mem::replace(&mut self.reported_underruns, underruns);
        (std::mem::take(&mut self.skipped_frames), underruns - before)
    }

    /// Renders the frame that is due at `now`, if one is. Without `audible` (no listener) the frame
    /// is silent and playout waits.
    pub fn render_frame(
        &mut self,
        now: Instant,
        encode: bool,
        audible: bool,
    ) -> Option<AudioFrame<'_>> {
        if now < self.next_due {
            return None;
        }
        let missed_frames =
            (now - self.next_due).as_millis() as u64 / FRAME_DURATION.as_millis() as u64;
        if missed_frames > u64::from(MAX_CATCH_UP_FRAMES) {
            // Timestamps follow the clock; the skipped audio plays later.
            let skipped = missed_frames - u64::from(MAX_CATCH_UP_FRAMES);
            self.timestamp += skipped * FRAME_SAMPLES_48K as u64;
            self.next_due += FRAME_DURATION * u32::try_from(skipped).unwrap_or(u32::MAX);
            self.skipped_frames += skipped;
        }
        let change_near = self.playout.has_pending_audio()
            || (self.user_speaking && self.playout.position().is_some());
        // After a late tick a short frame gains nothing.
        let (samples, length) = if change_near && missed_frames == 0 {
            (SHORT_FRAME_SAMPLES, SHORT_FRAME_DURATION)
        } else {
            (FRAME_SAMPLES_48K, FRAME_DURATION)
        };
        let frame = &mut self.frame[..samples];
        if audible {
            self.playout.render(frame, &mut self.playout_events);
        } else {
            frame.fill(0);
        }
        let is_within_segment =
            audible && (self.playout.position().is_some() || self.playout.is_within_segment());
        let (timestamp, due) = (self.timestamp, self.next_due);
        self.timestamp += samples as u64;
        (self.last_due, self.next_due) = (due, due + length);
        let position = self.playout.position().filter(|_| audible);
        let starts_talk_spurt = position.is_some() && !self.in_speech;
        self.in_speech = position.is_some();
        // An encoder that fails once is likely to recover; the packet is missing like a lost one.
        let packet = if encode { self.encoder.encode(frame).unwrap_or(&[]) } else { &[] };
        Some(AudioFrame {
            timestamp,
            due,
            starts_talk_spurt,
            packet,
            pcm: frame,
            playout_position: position,
            is_within_segment,
        })
    }

    /// The receiver reports this fraction of the last packets as lost.
    pub fn on_packet_loss(&mut self, fraction: f32) {
        // If the change is rejected, the previous settings stay in effect and the audio still
        // plays.
        let _ = self.encoder.on_packet_loss(fraction);
    }

    /// The next playout event of the last frames, in order.
    pub fn next_playout_event(&mut self) -> Option<(SegmentId, PlayoutEvent)> {
        if self.playout_events.is_empty() { None } else { Some(self.playout_events.remove(0)) }
    }

    /// The segment that leaves at `now`, and the position in it in seconds.
    #[must_use]
    pub fn lip_sync_position(&self, now: Instant) -> Option<(SegmentId, f32)> {
        let position = self.playout.position()?;
        let since = now.saturating_duration_since(self.last_due).as_secs_f64();
        let at = position.position.as_seconds() - position.offset as f64 / 48_000.0 + since;
        (at >= 0.0).then_some((position.segment, at as f32))
    }

    /// Registers a segment that is being synthesized.
    pub fn add_synthesis(&mut self, segment: SegmentId, epoch: Epoch, handle: Handle) {
        self.playout.add_segment(segment, epoch);
        self.pending.push(PendingSynthesis {
            segment,
            epoch,
            provider: "",
            has_samples: false,
            _handle: handle,
        });
    }

    /// This provider synthesizes the segment from now on.
    pub fn set_provider(&mut self, segment: SegmentId, provider: &'static str) {
        if let Some(pending) = self.pending.iter_mut().find(|m| m.segment == segment) {
            pending.provider = provider;
        }
    }

    /// `None` if the segment is no longer synthesized; otherwise whether these are its first
    /// samples, and the provider that sent them.
    pub fn on_samples(&mut self, segment: SegmentId) -> Option<(bool, &'static str)> {
        let pending = self.pending.iter_mut().find(|m| m.segment == segment)?;
        Some((!std::mem::replace(&mut pending.has_samples, true), pending.provider))
    }

    /// Whether a segment is still being synthesized.
    #[must_use]
    pub fn is_synthesizing(&self, segment: SegmentId) -> bool {
        self.pending.iter().any(|m| m.segment == segment)
    }

    /// A segment is complete or not needed any more: cancels its synthesis if it still runs.
    pub fn end_synthesis(&mut self, segment: SegmentId) {
        self.pending.retain(|m| m.segment != segment);
    }

    /// Cancels the synthesis of all segments.
    pub fn cancel_syntheses(&mut self) {
        self.pending.clear();
    }

    /// Cancels the synthesis of all segments of an epoch.
    pub fn cancel_epoch(&mut self, epoch: Epoch) {
        self.pending.retain(|m| m.epoch != epoch);
    }
}
