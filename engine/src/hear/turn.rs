//! What the turn model is asked: the sound of the user's turn, kept for as long as the model listens to, and what was understood of it.
//!
//! Asked about speech, never about silence: as soon as the user has been quiet for [`AHEAD`], because the model takes its time and the turn
//! may be committed .15 s after the detector's report; if the user goes on, the question is void. The answer comes through the thread's
//! inbox and counts from the report on; the conversation says until when it is worth having
//! ([`Conversation::awaits_turn_probability`]), and a question whose time is over is withdrawn.
//!
//! [`Conversation::awaits_turn_probability`]: conversation::conversation::Conversation::awaits_turn_probability

use std::sync::Arc;
use std::time::Duration;

use conversation::call_config::CallConfig;
use conversation::input::SpeechSegmentId;
use conversation::output::OpenTurn;
use conversation::time::Time;
use models::turn::{Question, SAMPLE_RATE, TurnModel};
use models::{Error, Handle, Sink};

use crate::host::Models;

/// Silence after which the model is asked, before the detector is sure that the speech is over (after .25 s by default).
pub(crate) const AHEAD: Duration = Duration::from_millis(150);
/// How much before the turn's first speech belongs to it: as much as the STT hears of it.
const PRE_ROLL: Duration = Duration::from_millis(500);

/// The turn model, where the agent wants it and there is one; a warning for the conversation's record where there is none.
pub(crate) fn wanted(
    models: &dyn Models,
    call: &CallConfig,
    warnings: &mut Vec<String>,
) -> Option<Arc<dyn TurnModel>> {
    if !call.spec.turn_model {
        return None;
    }
    let missing = |error: &Error| {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(conversation = %call.id, %error, cause, "turns are decided without the turn model");
        warnings.push(format!("stt.turn_model is on, but {error}; turns are decided without it."));
    };
    models.turn().inspect_err(missing).ok()
}

/// One call's way to the turn model.
pub struct Asker {
    model: Arc<dyn TurnModel>,
    ring: Ring,
    open: Option<Open>,
    /// Questions asked so far.
    count: u64,
}

/// A question whose answer may still count.
struct Open {
    number: u64,
    _handle: Handle,
    /// What it is about, once the detector has reported the end.
    stretch: Option<SpeechSegmentId>,
    /// The answer, where it was there before the report.
    p: Option<f32>,
}

impl Asker {
    /// Keeps as much sound as the model listens to, at most: 256 KB for 8 s, allocated here.
    #[must_use]
    pub fn new(model: Arc<dyn TurnModel>) -> Self {
        let ring = Ring::new(samples(model.span()));
        Self { model, ring, open: None, count: 0 }
    }

    /// The user's sound, 16 kHz mono, speech or not, which ends at `end`.
    pub fn audio(&mut self, pcm: &[i16], end: Time) {
        self.ring.push(pcm, end);
    }

    /// The user pauses and may have finished: asks whether the turn is over. `answer` gets the question's number and the probability.
    pub fn ahead(&mut self, turn: OpenTurn, answer: impl FnOnce(u64) -> Sink<f32>) {
        let length = turn.onset.map(|onset| self.ring.end.since(onset) + PRE_ROLL);
        let sound = self.ring.last(length.map_or(usize::MAX, samples));
        self.count += 1;
        let number = self.count;
        // What was asked before is withdrawn first, so that the model does not work for both.
        self.open = None;
        let handle = self.model.ask(Question { sound, words: turn.transcript }, answer(number));
        self.open = Some(Open { number, _handle: handle, stretch: None, p: None });
    }

    /// The detector has reported the end of this stretch: the answer that was asked for ahead and its question's number, if it is there. Where
    /// nothing was asked, it is now.
    pub fn ask(
        &mut self,
        stretch: SpeechSegmentId,
        turn: OpenTurn,
        answer: impl FnOnce(u64) -> Sink<f32>,
    ) -> Option<(u64, f32)> {
        if self.open.as_ref().is_none_or(|open| open.stretch.is_some()) {
            self.ahead(turn, answer);
        }
        let open = self.open.as_mut()?;
        open.stretch = Some(stretch);
        Some((open.number, open.p?))
    }

    /// An answer: the stretch that it is about, if its end is reported already and the answer is still wanted.
    pub fn answered(&mut self, number: u64, p: f32) -> Option<SpeechSegmentId> {
        let open = self.open.as_mut().filter(|open| open.number == number)?;
        open.p = Some(p);
        open.stretch
    }

    /// The user goes on before the end was reported: what was asked ahead is void.
    pub fn went_on(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.stretch.is_none()) {
            self.open = None;
        }
    }

    /// The answer about a stretch is not wanted any more.
    pub fn withdraw(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.stretch.is_some()) {
            self.open = None;
        }
    }
}

fn samples(span: Duration) -> usize {
    (span.as_micros() * u128::from(SAMPLE_RATE) / 1_000_000) as usize
}

/// The last samples.
struct Ring {
    samples: Box<[i16]>,
    /// Where the next one goes.
    next: usize,
    filled: usize,
    end: Time,
}

impl Ring {
    fn new(length: usize) -> Self {
        Self { samples: vec![0; length].into(), next: 0, filled: 0, end: Time::ZERO }
    }

    fn push(&mut self, pcm: &[i16], end: Time) {
        self.end = end;
        let length = self.samples.len();
        let pcm = &pcm[pcm.len().saturating_sub(length)..];
        let (first, rest) = pcm.split_at(pcm.len().min(length - self.next));
        self.samples[self.next..self.next + first.len()].copy_from_slice(first);
        self.samples[..rest.len()].copy_from_slice(rest);
        self.next = if rest.is_empty() { self.next + first.len() } else { rest.len() };
        if self.next == length {
            self.next = 0;
        }
        self.filled = length.min(self.filled + pcm.len());
    }

    /// The last `count` of them, or all.
    fn last(&self, count: usize) -> Vec<i16> {
        let count = count.min(self.filled);
        let mut out = Vec::with_capacity(count);
        let wrapped = count.saturating_sub(self.next);
        out.extend_from_slice(&self.samples[self.samples.len() - wrapped..]);
        out.extend_from_slice(&self.samples[self.next - (count - wrapped)..self.next]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_holds_the_last_samples_in_their_order_whatever_the_pieces() {
        for length in [0, 1, 7, 100] {
            for piece in [1, 3, 7, 33, 250] {
                let mut ring = Ring::new(length);
                let sound: Vec<i16> = (1..=400).collect();
                let mut heard = 0;
                for part in sound.chunks(piece) {
                    ring.push(part, Time::ZERO);
                    heard += part.len();
                    for wanted in [0, 1, 5, length, usize::MAX] {
                        let from = heard - wanted.min(length).min(heard);
                        assert_eq!(ring.last(wanted), sound[from..heard], "{length} {piece} {wanted}");
                    }
                }
            }
        }
    }
}
