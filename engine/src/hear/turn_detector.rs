//! Requests to the turn model: the audio of the user's turn, at most as long as the model's span,
//! and its transcript so far.
//!
//! The model is queried about speech only, never about silence. The request starts as soon as the
//! user has been quiet for `PREFETCH_SILENCE`: the model takes time, and the turn may be committed
//! .15 s after the detector's report. If the user continues, the request is void. The answer comes
//! through the thread's inbox and counts from the report on. The conversation decides how long the
//! answer is useful ([`awaits_turn_probability`][awaits]); after that time the request is canceled.
//!
//! States of the request (`pending`):
//!
//! ```text
//! Idle ── prefetch ──────────────────────────────────> Prefetched
//! Prefetched ── request: the end is reported ────────> Reported
//! Prefetched ── resume_speech ───────────────────────> Idle
//! Reported ── cancel ────────────────────────────────> Idle
//! Reported ── prefetch: replaces the request ────────> Prefetched
//! Prefetched ── prefetch: replaces the request ──────> Prefetched
//! Idle, Reported ── request: a new request at once ──> Reported
//! Prefetched, Reported ── on_answer: stores it ──────> unchanged
//! ```
//!
//! [awaits]: conversation::conversation::Conversation::awaits_turn_probability

use std::sync::Arc;
use std::time::Duration;

use conversation::input::SpeechSegmentId;
use conversation::output::OpenTurn;
use conversation::time::Time;
use engine_api::CallConfig;
use models::turn::{SAMPLE_RATE, TurnModel, TurnRequest};
use models::{Error, Handle, Sink};

use crate::model_factory::Models;

/// Silence after which the model is queried, before the detector reports the end of the speech
/// (after .25 s by default).
pub(crate) const PREFETCH_SILENCE: Duration = Duration::from_millis(150);
/// Audio before the turn's first onset that belongs to the turn: as much as the STT gets.
const PRE_ROLL_DURATION: Duration = Duration::from_millis(500);

/// The turn model, if the agent enables it and the server has one. If it is missing, adds a warning
/// for the conversation's record.
pub(crate) fn resolve_turn_model(
    models: &dyn Models,
    call: &CallConfig,
    warnings: &mut Vec<String>,
) -> Option<Arc<dyn TurnModel>> {
    if !call.spec.turn_model {
        return None;
    }
    let missing = |error: &Error| {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(
            conversation = %call.id,
            %error,
            cause,
            "the turn model is unavailable: turns are decided without it"
        );
        warnings.push(format!("stt.turn_model is on, but {error}; turns are decided without it."));
    };
    models.turn_model().inspect_err(missing).ok()
}

/// The turn detection of one call.
pub struct TurnDetector {
    model: Arc<dyn TurnModel>,
    audio: SampleRing,
    pending: Option<PendingRequest>,
    /// Number of requests so far.
    request_count: u64,
}

/// A request whose answer may still count.
struct PendingRequest {
    request_id: u64,
    _handle: Handle,
    /// The speech segment that it is about, once the detector has reported its end.
    speech_segment: Option<SpeechSegmentId>,
    /// The answer, if it has arrived.
    probability: Option<f32>,
}

impl TurnDetector {
    /// Buffers at most as much audio as the model's span: 256 KB for 8 s, allocated here.
    #[must_use]
    pub fn new(model: Arc<dyn TurnModel>) -> Self {
        let audio = SampleRing::new(samples_in(model.max_audio()));
        Self { model, audio, pending: None, request_count: 0 }
    }

    /// Takes the user's audio, 16 kHz mono, with or without speech, which ends at `end`.
    pub fn push_audio(&mut self, pcm: &[i16], end: Time) {
        self.audio.push(pcm, end);
    }

    /// The user pauses and may have finished: requests the probability that the turn is over.
    /// `answer_sink` gets the request's number and returns the sink for the probability.
    pub fn prefetch(&mut self, turn: OpenTurn, answer_sink: impl FnOnce(u64) -> Sink<f32>) {
        let length = turn.onset.map(|onset| self.audio.end_time.since(onset) + PRE_ROLL_DURATION);
        let sound = self.audio.last(length.map_or(usize::MAX, samples_in));
        self.request_count += 1;
        let request_id = self.request_count;
        // Cancel the previous request first, so that the model does not work on both.
        self.pending = None;
        let handle = self.model.predict(
            TurnRequest { audio: sound, transcript: turn.transcript },
            answer_sink(request_id),
        );
        self.pending = Some(PendingRequest {
            request_id,
            _handle: handle,
            speech_segment: None,
            probability: None,
        });
    }

    /// The detector has reported the end of this speech segment. Returns the request's number and
    /// its answer, if the answer has already arrived. Without a prefetched request, starts one now.
    pub fn request(
        &mut self,
        speech_segment: SpeechSegmentId,
        turn: OpenTurn,
        answer_sink: impl FnOnce(u64) -> Sink<f32>,
    ) -> Option<(u64, f32)> {
        if self.pending.as_ref().is_none_or(|pending| pending.speech_segment.is_some()) {
            self.prefetch(turn, answer_sink);
        }
        let pending = self.pending.as_mut()?;
        pending.speech_segment = Some(speech_segment);
        Some((pending.request_id, pending.probability?))
    }

    /// Takes an answer. Returns its speech segment, if the segment's end is already reported and
    /// the request is still pending.
    pub fn on_answer(&mut self, request_id: u64, probability: f32) -> Option<SpeechSegmentId> {
        let pending = self.pending.as_mut().filter(|pending| pending.request_id == request_id)?;
        pending.probability = Some(probability);
        pending.speech_segment
    }

    /// The user continues before the end was reported: the prefetched request is void.
    pub fn resume_speech(&mut self) {
        if self.pending.as_ref().is_some_and(|pending| pending.speech_segment.is_none()) {
            self.pending = None;
        }
    }

    /// The answer about a reported speech segment is not needed any more.
    pub fn cancel(&mut self) {
        if self.pending.as_ref().is_some_and(|pending| pending.speech_segment.is_some()) {
            self.pending = None;
        }
    }
}

fn samples_in(span: Duration) -> usize {
    (span.as_micros() * u128::from(SAMPLE_RATE) / 1_000_000) as usize
}

/// Ring buffer of the last samples.
struct SampleRing {
    samples: Box<[i16]>,
    /// Index of the next sample.
    write_index: usize,
    filled: usize,
    end_time: Time,
}

impl SampleRing {
    fn new(length: usize) -> Self {
        Self { samples: vec![0; length].into(), write_index: 0, filled: 0, end_time: Time::ZERO }
    }

    fn push(&mut self, pcm: &[i16], end: Time) {
        self.end_time = end;
        let length = self.samples.len();
        let pcm = &pcm[pcm.len().saturating_sub(length)..];
        let (first, rest) = pcm.split_at(pcm.len().min(length - self.write_index));
        self.samples[self.write_index..self.write_index + first.len()].copy_from_slice(first);
        self.samples[..rest.len()].copy_from_slice(rest);
        self.write_index =
            if rest.is_empty() { self.write_index + first.len() } else { rest.len() };
        if self.write_index == length {
            self.write_index = 0;
        }
        self.filled = length.min(self.filled + pcm.len());
    }

    /// The last `count` samples, or all if there are fewer.
    fn last(&self, count: usize) -> Vec<i16> {
        let count = count.min(self.filled);
        let mut out = Vec::with_capacity(count);
        let wrapped = count.saturating_sub(self.write_index);
        out.extend_from_slice(&self.samples[self.samples.len() - wrapped..]);
        out.extend_from_slice(
            &self.samples[self.write_index - (count - wrapped)..self.write_index],
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_holds_the_last_samples_in_their_order_for_every_chunk_length() {
        for length in [0, 1, 7, 100] {
            for chunk_len in [1, 3, 7, 33, 250] {
                let mut ring = SampleRing::new(length);
                let sound: Vec<i16> = (1..=400).collect();
                let mut pushed = 0;
                for chunk in sound.chunks(chunk_len) {
                    ring.push(chunk, Time::ZERO);
                    pushed += chunk.len();
                    for wanted in [0, 1, 5, length, usize::MAX] {
                        let from = pushed - wanted.min(length).min(pushed);
                        assert_eq!(
                            ring.last(wanted),
                            sound[from..pushed],
                            "{length} {chunk_len} {wanted}"
                        );
                    }
                }
            }
        }
    }
}
