//! Transcripts of vendors that divide the audio into turns: the text of a message is that of the
//! whole turn so far, and a message completes the turn.
//!
//! A turn of the vendor is not an utterance of this server. An utterance may contain several turns,
//! and a turn that was not completed in time may contain words of an earlier utterance. The times
//! of the words decide.

use std::borrow::Cow;
use std::time::Duration;

use tokio::time::Instant;

use super::utterances::{Limits, Utterances};
use super::{BYTES_PER_SECOND, Output};
use crate::stt::TurnHint;

/// Accuracy of the vendors' times, in seconds.
const TIME_TOLERANCE: f64 = 0.1;
/// Time for another turn to begin after the end mark, if all text so far is final.
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// Audio after the last word of a turn that certainly contains no further word, in seconds.
const SILENT_TAIL: f64 = 0.6;

/// A word of a turn.
#[derive(Clone, Debug)]
pub(in crate::stt) struct Word<'a> {
    pub(in crate::stt) text: Cow<'a, str>,
    /// Position of its start and end, in seconds of audio on the connection.
    pub(in crate::stt) start: f64,
    pub(in crate::stt) end: f64,
}

/// A message about a turn.
#[derive(Clone, Debug)]
pub(in crate::stt) struct TurnUpdate<'a> {
    /// Number of the turn; rises after each.
    pub(in crate::stt) order: u64,
    /// Text of the turn so far.
    pub(in crate::stt) text: &'a str,
    /// Its words; may be empty.
    pub(in crate::stt) words: Vec<Word<'a>>,
    /// Whether the turn is complete.
    pub(in crate::stt) is_complete: bool,
    /// Whether it was completed by the end mark.
    pub(in crate::stt) is_answer: bool,
}

/// The utterances of a connection, and the vendor's turns in them.
#[derive(Debug)]
pub(in crate::stt) struct Turns {
    pub(in crate::stt) utterances: Utterances,
    /// The last turn that is complete.
    completed: Option<u64>,
    /// Whether the vendor's ends of turns are reported.
    sends_hints: bool,
    /// Whether an end of the turn was reported for the current utterance.
    has_hinted_end: bool,
}

impl Turns {
    /// `sends_hints`: whether the vendor decides about the ends of turns, so that they mean more
    /// than a short silence.
    pub(in crate::stt) fn new(sends_hints: bool) -> Self {
        let limits = Limits {
            answer: Duration::from_millis(700),
            silent_answer: Duration::from_secs(2),
            // A short noise gets no answer.
            answered_audio: Some(BYTES_PER_SECOND * 3 / 2),
            answers_each_end: false,
        };
        Self {
            utterances: Utterances::new(limits),
            completed: None,
            sends_hints,
            has_hinted_end: false,
        }
    }

    pub(in crate::stt) fn reset(&mut self) {
        self.utterances.reset();
        self.completed = None;
        self.has_hinted_end = false;
    }

    /// The end mark is sent.
    pub(in crate::stt) fn end_speech(&mut self, now: Instant) {
        self.utterances.end(now);
        self.has_hinted_end = false;
        self.expect_no_more(now);
    }

    /// If the oldest utterance has ended and all its text is final, only a turn that begins soon can
    /// add to it.
    fn expect_no_more(&mut self, now: Instant) {
        if let Some(front) = self.utterances.front_mut()
            && front.has_ended()
            && front.is_segmented()
        {
            front.settle(Some(now + SETTLE_TIME));
        }
    }

    /// The vendor had no open turn at the end mark. The same, even if there is no text.
    pub(in crate::stt) fn expect_nothing(&mut self, now: Instant) {
        if let Some(front) = self.utterances.front_mut()
            && front.has_ended()
            && !front.is_open()
        {
            front.settle(Some(now + SETTLE_TIME));
        }
    }

    /// The vendor has answered without a transcript.
    pub(in crate::stt) fn note_answer(&mut self) {
        self.utterances.has_answered = true;
        if let Some(front) = self.utterances.front_mut() {
            front.is_answered = true;
        }
    }

    /// Reports an opinion of the vendor about the current utterance.
    pub(in crate::stt) fn hint(&mut self, hint: TurnHint, outputs: &mut Vec<Output>) {
        let is_current = self.utterances.iter().count() == 1 && self.utterances.is_speaking();
        if self.sends_hints && is_current {
            self.has_hinted_end = hint == TurnHint::End;
            outputs.push(Output::Turn(hint));
        }
    }

    /// Handles a message about a turn.
    pub(in crate::stt) fn update(
        &mut self,
        now: Instant,
        update: &TurnUpdate<'_>,
        outputs: &mut Vec<Output>,
    ) {
        self.utterances.has_answered = true;
        if self.completed.is_some_and(|completed| update.order <= completed) {
            self.utterances.counts.repeated += 1;
            return;
        }
        if update.is_complete {
            self.completed = Some(update.order);
        }
        self.finish_before(now, update, outputs);
        let front = self.utterances.front_mut();
        let text = front.as_ref().and_then(|front| text_after(front.start(), update));
        let (Some(front), Some(text)) = (front, text) else {
            let is_late = update.is_complete && !update.text.trim().is_empty();
            self.utterances.counts.late += u32::from(is_late);
            return;
        };
        front.is_answered = true;
        if !text.is_empty() {
            front.settle(None);
        }
        if update.is_complete {
            front.add_segment(&text);
        } else {
            front.set_interim(&text);
        }
        match front.end() {
            Some(end) if update.is_complete => {
                let last_word = update.words.last().map_or(end, |word| word.end);
                if update.is_answer || end - last_word <= SILENT_TAIL {
                    self.utterances.finish(now, outputs);
                } else {
                    front.settle(Some(now + SETTLE_TIME));
                    self.utterances.deliver_interim(outputs);
                }
            }
            _ => {
                self.utterances.deliver_interim(outputs);
                if self.has_hinted_end && !update.is_complete && !text.is_empty() {
                    self.hint(TurnHint::Resumed, outputs);
                }
            }
        }
    }

    /// Finishes the utterances that have ended before the first word of a turn: the vendor found
    /// nothing more in them.
    fn finish_before(&mut self, now: Instant, update: &TurnUpdate<'_>, outputs: &mut Vec<Output>) {
        let Some(first) = update.words.first() else { return };
        loop {
            let mut ends = self.utterances.iter().map(super::Utterance::end);
            match (ends.next().flatten(), ends.next()) {
                (Some(end), Some(_)) if first.start >= end - TIME_TOLERANCE => {}
                _ => return,
            }
            drop(ends);
            self.utterances.finish(now, outputs);
        }
    }
}

/// The text of the words after `start`; `None` if all are before it.
fn text_after<'a>(start: f64, update: &TurnUpdate<'a>) -> Option<Cow<'a, str>> {
    let is_after = |word: &&Word<'a>| word.end > start + TIME_TOLERANCE;
    match update.words.first() {
        Some(first) if !is_after(&first) => {
            let words: Vec<&str> =
                update.words.iter().filter(is_after).map(|word| word.text.as_ref()).collect();
            (!words.is_empty()).then(|| words.join(" ").into())
        }
        _ => Some(update.text.trim().into()),
    }
}
