//! Messages of Deepgram's streaming interface, version 1.
//!
//! - `Results` with `is_final: false` replaces the text since the last final segment. With
//!   `is_final: true` it appends a segment.
//! - After `Finalize`, all audio so far comes back in a segment with `from_finalize: true`. It may
//!   be empty, and it may not come at all.
//! - `start` and `duration` are seconds of audio that was received on this connection.
//!
//! Message types and fields that are not listed here are ignored.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use crate::stt::streaming::{
    BYTES_PER_SECOND, Codec, Limits, Outgoing, Output, Utterance, Utterances, message_type, parse,
    stream_id,
};

/// How fast a working server answers. `Finalize` may remain unanswered.
const LIMITS: Limits = Limits {
    answer: Duration::from_millis(700),
    silent_answer: Duration::from_secs(2),
    answered_audio: Some(BYTES_PER_SECOND),
    answers_each_end: false,
};
/// Time in which the answer to a `Finalize` that timed out is expected to arrive late.
const LATE_ANSWER_TIME: Duration = Duration::from_secs(3);
/// Accuracy of the vendor's times, in seconds.
const TIME_TOLERANCE: f64 = 0.1;

/// Ends a stream.
pub(super) const CLOSE_STREAM: &str = r#"{"type":"CloseStream"}"#;

/// A transcript of a part of the audio.
#[derive(Deserialize)]
struct Results<'a> {
    #[serde(default)]
    start: f64,
    #[serde(default)]
    duration: f64,
    #[serde(default)]
    is_final: bool,
    #[serde(default)]
    from_finalize: bool,
    #[serde(borrow)]
    channel: Channel<'a>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

impl Results<'_> {
    fn end(&self) -> f64 {
        self.start + self.duration
    }

    fn text(&self) -> &str {
        let best = self.channel.alternatives.first().and_then(|best| best.transcript.as_deref());
        best.unwrap_or_default().trim()
    }
}

#[derive(Deserialize)]
struct Channel<'a> {
    #[serde(borrow, default)]
    alternatives: Vec<Alternative<'a>>,
}

#[derive(Deserialize)]
struct Alternative<'a> {
    #[serde(borrow, default)]
    transcript: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    request_id: Option<Cow<'a, str>>,
}

/// The last final segment of an utterance.
struct Segment {
    start: f64,
    duration: f64,
    text: String,
}

impl Segment {
    /// Whether the results repeat it.
    fn is_repeated_by(&self, results: &Results<'_>) -> bool {
        results.duration > 0.0
            && self.start == results.start
            && self.duration == results.duration
            && self.text == results.text()
    }

    /// Whether the results are older.
    fn is_newer_than(&self, results: &Results<'_>) -> bool {
        results.duration > 0.0
            && results.start < self.start
            && results.end() <= self.start + self.duration
    }
}

/// An utterance whose `Finalize` was not answered in time: the positions of its audio, in seconds.
struct GivenUp {
    start: f64,
    end: f64,
    until: Instant,
}

/// State of a connection.
pub(super) struct NovaCodec {
    utterances: Utterances,
    given_up: VecDeque<GivenUp>,
    /// Of the oldest utterance.
    last_segment: Option<Segment>,
    request_id: String,
}

impl Default for NovaCodec {
    fn default() -> Self {
        Self {
            utterances: Utterances::new(LIMITS),
            given_up: VecDeque::new(),
            last_segment: None,
            request_id: String::new(),
        }
    }
}

impl Codec for NovaCodec {
    fn reset(&mut self, _: &mut Vec<Outgoing>) {
        self.utterances.reset();
        self.given_up.clear();
        self.last_segment = None;
        self.request_id.clear();
    }

    fn utterances(&self) -> &Utterances {
        &self.utterances
    }

    fn utterances_mut(&mut self) -> &mut Utterances {
        &mut self.utterances
    }

    fn push_audio(&mut self, now: Instant, pcm: Bytes, messages: &mut Vec<Outgoing>) {
        self.utterances.push_audio(now, pcm.len());
        messages.push(Outgoing::Binary(pcm));
    }

    fn end_speech(&mut self, now: Instant, messages: &mut Vec<Outgoing>) {
        self.utterances.end(now);
        messages.push(Outgoing::text(r#"{"type":"Finalize"}"#));
    }

    fn keep_alive(&mut self, messages: &mut Vec<Outgoing>) {
        messages.push(Outgoing::text(r#"{"type":"KeepAlive"}"#));
    }

    fn close_stream(&mut self, messages: &mut Vec<Outgoing>) {
        messages.push(Outgoing::text(CLOSE_STREAM));
    }

    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>) {
        match message_type(text).as_deref() {
            None => self.utterances.counts.malformed += 1,
            Some("Results") => match parse::<Results<'_>>(text) {
                Some(results) => self.on_results(now, &results, outputs),
                None => self.utterances.counts.malformed += 1,
            },
            Some("Metadata" | "SpeechStarted" | "UtteranceEnd") => {}
            Some("Error") => self.utterances.counts.errors += 1,
            Some(_) => self.utterances.counts.unknown += 1,
        }
    }

    fn give_up(&mut self, now: Instant, utterance: &Utterance) {
        self.last_segment = None;
        let (start, end) = (utterance.start(), utterance.end().unwrap_or(f64::MAX));
        self.given_up.push_back(GivenUp { start, end, until: now + LATE_ANSWER_TIME });
    }

    fn stream_id(&self) -> &str {
        &self.request_id
    }
}

impl NovaCodec {
    fn on_results(&mut self, now: Instant, results: &Results<'_>, outputs: &mut Vec<Output>) {
        self.utterances.has_answered = true;
        if self.request_id.is_empty()
            && let Some(Metadata { request_id: Some(id) }) = &results.metadata
        {
            self.request_id = stream_id(id);
        }
        self.given_up.retain(|given_up| given_up.until > now);
        let is_late = self.belongs_to_given_up(results);
        let is_answer = results.is_final && results.from_finalize;
        let Some(front) = self.utterances.front_mut().filter(|_| !is_late) else {
            if is_answer {
                self.given_up.pop_front();
            }
            self.utterances.counts.late +=
                u32::from(results.is_final && !results.text().is_empty());
            return;
        };
        if is_answer && !front.has_ended() {
            // A second answer for the previous utterance.
            self.given_up.pop_front();
            self.utterances.counts.late += 1;
            return;
        }
        front.is_answered = true;
        let last = self.last_segment.as_ref();
        if results.is_final {
            if last.is_some_and(|last| last.is_repeated_by(results)) {
                self.utterances.counts.repeated += 1;
            } else {
                front.add_segment(results.text());
                let text = results.text().to_owned();
                let (start, duration) = (results.start, results.duration);
                self.last_segment = Some(Segment { start, duration, text });
            }
        } else if last.is_some_and(|last| last.is_newer_than(results)) {
            self.utterances.counts.repeated += 1;
        } else {
            front.set_interim(results.text());
        }
        if is_answer {
            // What was given up before it is not answered any more.
            self.given_up.clear();
            self.last_segment = None;
            self.utterances.finish(now, outputs);
        } else {
            self.utterances.deliver_interim(outputs);
        }
    }

    /// Whether the results are about the audio of an utterance that was given up.
    fn belongs_to_given_up(&self, results: &Results<'_>) -> bool {
        self.given_up.iter().any(|given_up| {
            results.end() > given_up.start && results.end() <= given_up.end + TIME_TOLERANCE
        })
    }
}

#[cfg(test)]
#[path = "nova_tests.rs"]
mod tests;
