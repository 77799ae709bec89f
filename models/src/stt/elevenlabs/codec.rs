//! Messages of the realtime interface of ElevenLabs Scribe.
//!
//! - `partial_transcript` contains the text since the last commit.
//! - Each commit is answered by one `committed_transcript`. (A second answer, with word times or
//!   the language, comes only if it is requested.)
//! - A commit of less than .3 s of audio is refused.
//!
//! Message types and fields that are not listed here are ignored.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use crate::stt::streaming::{
    AudioMessages, BYTES_PER_SECOND, Codec, Fault, Limits, Outgoing, Output, Utterance, Utterances,
    message_type, parse, stream_id,
};

/// How fast a working server answers.
const LIMITS: Limits = Limits {
    answer: Duration::from_millis(700),
    silent_answer: Duration::from_secs(2),
    // A short noise gets no partial transcript.
    answered_audio: Some(BYTES_PER_SECOND * 3 / 2),
    answers_each_end: true,
};
/// Time in which the answer to a commit that timed out is expected to arrive late.
const LATE_ANSWER_TIME: Duration = Duration::from_secs(3);
/// Amount of audio that a commit needs.
const MIN_COMMIT_BYTES: usize = BYTES_PER_SECOND * 3 / 10;
/// Silence that is added to less.
const SILENCE: [u8; MIN_COMMIT_BYTES] = [0; MIN_COMMIT_BYTES];

const AUDIO: (&str, &str) = (
    r#"{"message_type":"input_audio_chunk","audio_base_64":""#,
    r#"","commit":false,"sample_rate":16000}"#,
);
const COMMIT: &str =
    r#"{"message_type":"input_audio_chunk","audio_base_64":"","commit":true,"sample_rate":16000}"#;

#[derive(Deserialize)]
struct SessionStarted<'a> {
    #[serde(borrow, default)]
    session_id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Transcript<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

/// State of a connection.
pub(super) struct ScribeCodec {
    utterances: Utterances,
    /// Until when the answers to commits that timed out are expected.
    given_up: VecDeque<Instant>,
    audio: AudioMessages,
    session_id: String,
}

impl Default for ScribeCodec {
    fn default() -> Self {
        Self {
            utterances: Utterances::new(LIMITS),
            given_up: VecDeque::new(),
            audio: AudioMessages::new(AUDIO.0, AUDIO.1),
            session_id: String::new(),
        }
    }
}

impl Codec for ScribeCodec {
    fn reset(&mut self, _: &mut Vec<Outgoing>) {
        self.utterances.reset();
        self.given_up.clear();
        self.session_id.clear();
    }

    fn utterances(&self) -> &Utterances {
        &self.utterances
    }

    fn utterances_mut(&mut self) -> &mut Utterances {
        &mut self.utterances
    }

    fn push_audio(&mut self, now: Instant, pcm: Bytes, messages: &mut Vec<Outgoing>) {
        self.utterances.push_audio(now, pcm.len());
        messages.push(self.audio.message(&pcm));
    }

    fn end_speech(&mut self, now: Instant, messages: &mut Vec<Outgoing>) {
        if self.utterances.current_bytes() < MIN_COMMIT_BYTES {
            messages.push(self.audio.message(&SILENCE));
        }
        self.utterances.end(now);
        messages.push(Outgoing::text(COMMIT));
    }

    fn keep_alive_interval(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn keep_alive(&mut self, messages: &mut Vec<Outgoing>) {
        messages.push(self.audio.message(&[]));
    }

    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>) {
        let kind = message_type(text);
        let was_read = match kind.as_deref() {
            Some("partial_transcript") => {
                parse(text).map(|partial| self.on_partial(now, &partial, outputs))
            }
            Some("committed_transcript") => {
                parse(text).map(|committed| self.on_committed(now, &committed, outputs))
            }
            Some("session_started") => parse::<SessionStarted<'_>>(text)
                .map(|started| self.session_id = stream_id(&started.session_id)),
            Some(kind) => {
                self.on_other(now, kind, text, outputs);
                Some(())
            }
            None => None,
        };
        self.utterances.counts.malformed += u32::from(was_read.is_none());
    }

    fn give_up(&mut self, now: Instant, _: &Utterance) {
        self.given_up.push_back(now + LATE_ANSWER_TIME);
    }

    fn stream_id(&self) -> &str {
        &self.session_id
    }
}

impl ScribeCodec {
    /// Whether the next answer is that to a commit that timed out.
    fn expects_late_answer(&mut self, now: Instant) -> bool {
        self.given_up.retain(|until| *until > now);
        !self.given_up.is_empty()
    }

    fn on_partial(&mut self, now: Instant, partial: &Transcript<'_>, outputs: &mut Vec<Output>) {
        self.utterances.has_answered = true;
        if self.expects_late_answer(now) {
            return;
        }
        if let Some(front) = self.utterances.front_mut() {
            front.is_answered = true;
            front.set_interim(&partial.text);
            self.utterances.deliver_interim(outputs);
        }
    }

    fn on_committed(
        &mut self,
        now: Instant,
        committed: &Transcript<'_>,
        outputs: &mut Vec<Output>,
    ) {
        self.utterances.has_answered = true;
        let is_late = self.expects_late_answer(now);
        let front = self.utterances.front_mut().filter(|front| !is_late && front.has_ended());
        let Some(front) = front else {
            self.given_up.pop_front();
            self.utterances.counts.late += 1;
            return;
        };
        front.add_segment(&committed.text);
        self.utterances.finish(now, outputs);
    }

    fn on_other(&mut self, now: Instant, kind: &str, text: &str, outputs: &mut Vec<Output>) {
        let fault = match kind {
            "auth_error" => Fault::Key,
            "quota_exceeded" => Fault::NoCredit,
            "rate_limited" | "resource_exhausted" | "queue_overflow" => Fault::Busy,
            "unaccepted_terms"
            | "unaccepted_terms_error"
            | "invalid_request"
            | "input_error"
            | "chunk_size_exceeded" => Fault::Refused,
            "error" | "transcriber_error" | "session_time_limit_exceeded" => Fault::Broken,
            "commit_throttled" | "insufficient_audio_activity" => {
                self.utterances.counts.errors += 1;
                // The commit has no other answer.
                if self.utterances.front_mut().is_some_and(|front| front.has_ended()) {
                    self.utterances.finish(now, outputs);
                }
                return;
            }
            _ => {
                self.utterances.counts.unknown += 1;
                return;
            }
        };
        outputs.push(Output::Failed(fault, text.to_owned()));
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
