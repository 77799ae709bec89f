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

use crate::stt::streaming::{BYTES_PER_SECOND, Codec, Outgoing, Output, duration_of};

/// Time for the answer to `Finalize`. Afterwards the last interim transcript is the final one.
const FINALIZE_TIMEOUT: Duration = Duration::from_millis(700);
/// The same if the vendor has sent nothing for the utterance.
const SILENT_FINALIZE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum addition to both, for audio that was sent faster than real time.
const MAX_BACKLOG_TIME: Duration = Duration::from_millis(1_300);
/// Amount of audio that a working server answers.
const ANSWERED_AUDIO_BYTES: usize = BYTES_PER_SECOND;
/// Time for that answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2_500);
/// Time in which the answer to a `Finalize` that timed out is expected to arrive late.
const LATE_ANSWER_TIME: Duration = Duration::from_secs(3);
/// Accuracy of the vendor's times, in seconds.
const TIME_TOLERANCE: f64 = 0.1;
/// Maximum size of a message.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Maximum size of an utterance's text. Further segments are dropped.
const MAX_TEXT_BYTES: usize = 32 << 10;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

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

/// An utterance without a final transcript.
struct Utterance {
    started_at: Instant,
    /// Position of its audio on the connection, in bytes.
    start: usize,
    /// Final segments, joined with blanks.
    segments: String,
    /// Start and duration of the last segment, and its text.
    last_segment: Option<(f64, f64, String)>,
    /// Text after them that may change.
    interim: String,
    /// The last interim transcript that was delivered.
    delivered: String,
    /// Whether the vendor has sent anything for it.
    is_answered: bool,
    /// When an answer became due.
    answer_due_since: Option<Instant>,
    /// When `Finalize` was sent, and the position of the audio at that time.
    ended: Option<(Instant, usize)>,
}

impl Utterance {
    fn text(&self) -> String {
        let mut text = self.segments.clone();
        append(&mut text, &self.interim);
        text
    }

    /// Adds a final segment, unless it is a duplicate. Returns whether it was added.
    fn add_segment(&mut self, results: &Results<'_>) -> bool {
        let text = results.text();
        let is_duplicate = |(start, duration, last): &(f64, f64, String)| {
            results.duration > 0.0
                && *start == results.start
                && *duration == results.duration
                && last == text
        };
        if self.last_segment.as_ref().is_some_and(is_duplicate) {
            return false;
        }
        append(&mut self.segments, text);
        self.interim.clear();
        self.last_segment = Some((results.start, results.duration, text.to_owned()));
        true
    }

    /// Whether these results are older than a final segment.
    fn is_outdated(&self, results: &Results<'_>) -> bool {
        self.last_segment.as_ref().is_some_and(|(start, duration, _)| {
            results.duration > 0.0 && results.start < *start && results.end() <= start + duration
        })
    }

    /// Time that audio which was sent faster than real time takes.
    fn backlog_time(&self, ended_at: Instant, end: usize) -> Duration {
        let spoken = ended_at.saturating_duration_since(self.started_at);
        let ahead = duration_of(end - self.start).saturating_sub(spoken);
        // The pre-roll is always ahead.
        (ahead.saturating_sub(Duration::from_secs(1)) / 5).min(MAX_BACKLOG_TIME)
    }

    /// When [`DeepgramCodec::expire`] gives the utterance up, and whether the vendor has then
    /// failed.
    fn deadline(&self) -> Option<(Instant, bool)> {
        let answer = self.answer_due_since.filter(|_| !self.is_answered);
        let answer = answer.map(|since| (since + ANSWER_TIMEOUT, true));
        let Some((ended_at, end)) = self.ended else { return answer };
        let is_failure = answer.is_some();
        let time = if is_failure { SILENT_FINALIZE_TIMEOUT } else { FINALIZE_TIMEOUT };
        let finalized = ended_at + time + self.backlog_time(ended_at, end);
        Some((answer.map_or(finalized, |(answer, _)| answer.min(finalized)), is_failure))
    }
}

/// An utterance whose `Finalize` was not answered in time: the positions of its audio, in seconds.
struct GivenUp {
    start: f64,
    end: f64,
    until: Instant,
}

/// Numbers of unusual messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Messages of an unknown type.
    unknown: u32,
    /// Messages that cannot be read.
    malformed: u32,
    /// Errors about a message of ours; the connection goes on.
    errors: u32,
    /// Final segments of utterances that have their final transcript.
    late: u32,
    /// Segments and interim transcripts that were sent twice or out of order.
    repeated: u32,
    /// Utterances without an answer to `Finalize`.
    unanswered: u32,
}

/// State of a connection.
#[derive(Default)]
pub(super) struct DeepgramCodec {
    utterances: VecDeque<Utterance>,
    given_up: VecDeque<GivenUp>,
    /// Audio that was sent on this connection.
    sent_bytes: usize,
    has_answered: bool,
    request_id: String,
    counts: Counts,
}

impl Codec for DeepgramCodec {
    fn reset(&mut self) {
        self.utterances.clear();
        self.given_up.clear();
        self.sent_bytes = 0;
        self.has_answered = false;
        self.request_id.clear();
    }

    fn start_speech(&mut self, now: Instant) {
        self.utterances.push_back(Utterance {
            started_at: now,
            start: self.sent_bytes,
            segments: String::new(),
            last_segment: None,
            interim: String::new(),
            delivered: String::new(),
            is_answered: false,
            answer_due_since: None,
            ended: None,
        });
    }

    fn push_audio(&mut self, now: Instant, pcm: Bytes) -> Outgoing {
        self.sent_bytes += pcm.len();
        if let Some(current) = self.utterances.back_mut()
            && self.sent_bytes - current.start >= ANSWERED_AUDIO_BYTES
        {
            current.answer_due_since.get_or_insert(now);
        }
        Outgoing::Binary(pcm)
    }

    fn end_speech(&mut self, now: Instant) -> Outgoing {
        if let Some(current) = self.utterances.back_mut() {
            current.ended = Some((now, self.sent_bytes));
        }
        Outgoing::Text(r#"{"type":"Finalize"}"#)
    }

    fn keep_alive(&self) -> Option<Outgoing> {
        Some(Outgoing::Text(r#"{"type":"KeepAlive"}"#))
    }

    fn close_stream(&self) -> Option<Outgoing> {
        Some(Outgoing::Text(r#"{"type":"CloseStream"}"#))
    }

    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>) {
        let envelope = if text.len() > MAX_MESSAGE_BYTES {
            None
        } else {
            serde_json::from_str::<Envelope<'_>>(text).ok()
        };
        match envelope.as_ref().map(|envelope| envelope.kind.as_ref()) {
            None => self.counts.malformed += 1,
            Some("Results") => match serde_json::from_str::<Results<'_>>(text) {
                Ok(results) => self.on_results(now, &results, outputs),
                Err(_) => self.counts.malformed += 1,
            },
            Some("Metadata" | "SpeechStarted" | "UtteranceEnd") => {}
            Some("Error") => self.counts.errors += 1,
            Some(_) => self.counts.unknown += 1,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.utterances.front()?.deadline().map(|(deadline, _)| deadline)
    }

    fn expire(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        while let Some(front) = self.utterances.front()
            && let Some((deadline, is_failure)) = front.deadline()
            && deadline <= now
        {
            if is_failure {
                outputs.push(Output::Stalled);
                return;
            }
            self.counts.unanswered += 1;
            let end = front.ended.map_or(self.sent_bytes, |(_, end)| end);
            self.given_up.push_back(GivenUp {
                start: seconds(front.start),
                end: seconds(end),
                until: now + LATE_ANSWER_TIME,
            });
            self.finish(now, outputs);
        }
    }

    fn has_answered(&self) -> bool {
        self.has_answered
    }

    fn statistics(&self) -> String {
        format!("request {:?}, {:?}", self.request_id, self.counts)
    }
}

impl DeepgramCodec {
    fn on_results(&mut self, now: Instant, results: &Results<'_>, outputs: &mut Vec<Output>) {
        self.has_answered = true;
        if self.request_id.is_empty()
            && let Some(Metadata { request_id: Some(id) }) = &results.metadata
        {
            self.request_id = id.chars().take(64).collect();
        }
        self.given_up.retain(|given_up| given_up.until > now);
        let is_late = self.utterances.is_empty() || self.belongs_to_given_up(results);
        let is_answer = results.is_final && results.from_finalize;
        let Some(front) = self.utterances.front_mut().filter(|_| !is_late) else {
            if is_answer {
                self.given_up.pop_front();
            }
            self.counts.late += u32::from(results.is_final && !results.text().is_empty());
            return;
        };
        if is_answer && front.ended.is_none() {
            // A second answer for the previous utterance.
            self.given_up.pop_front();
            self.counts.late += 1;
            return;
        }
        front.is_answered = true;
        if results.is_final {
            self.counts.repeated += u32::from(!front.add_segment(results));
        } else if front.is_outdated(results) {
            self.counts.repeated += 1;
        } else {
            front.interim.clear();
            append(&mut front.interim, results.text());
        }
        if is_answer {
            // What was given up before it is not answered any more.
            self.given_up.clear();
            return self.finish(now, outputs);
        }
        let text = front.text();
        if !text.is_empty() && text != front.delivered {
            front.delivered.clone_from(&text);
            outputs.push(Output::Interim(text));
        }
    }

    /// Whether the results are about the audio of an utterance that was given up.
    fn belongs_to_given_up(&self, results: &Results<'_>) -> bool {
        self.given_up.iter().any(|given_up| {
            results.end() > given_up.start && results.end() <= given_up.end + TIME_TOLERANCE
        })
    }

    /// The oldest utterance gets its final transcript.
    fn finish(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        if let Some(utterance) = self.utterances.pop_front() {
            outputs.push(Output::Final(utterance.text()));
        }
        // The vendor transcribes in order: the next utterance had no answer yet.
        if let Some(next) = self.utterances.front_mut()
            && let Some(since) = &mut next.answer_due_since
        {
            *since = now;
        }
    }
}

/// Appends a text after a blank.
fn append(text: &mut String, more: &str) {
    let more = more.trim();
    if more.is_empty() || text.len() + more.len() >= MAX_TEXT_BYTES {
        return;
    }
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(more);
}

/// Duration of audio, in seconds.
fn seconds(bytes: usize) -> f64 {
    duration_of(bytes).as_secs_f64()
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
