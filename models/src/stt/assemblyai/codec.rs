//! Messages of AssemblyAI's streaming interface, version 3.
//!
//! - `Turn` contains the text of the whole turn so far. Before its end, only `words` contains the
//!   words that may change. With `end_of_turn: true` the turn is complete. Universal-Streaming sends
//!   that twice: without punctuation, then with it.
//! - `end_of_turn_confidence` rises while the user is silent.
//! - `ForceEndpoint` completes the open turn. Without an open turn it has no answer.
//! - The times of words are milliseconds of audio that was received in this session.
//!
//! Message types and fields that are not listed here are ignored.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::time::Instant;

use crate::stt::TurnHint;
use crate::stt::streaming::{
    CHUNK_BYTES, Codec, Fault, Outgoing, Output, TurnUpdate, Turns, Utterances, Word, message_type,
    parse, stream_id,
};

/// Confidence from which the end of the turn is probable.
const EAGER_CONFIDENCE: f64 = 0.5;
/// The vendor ends a session after 3 h.
const MAX_SESSION_AGE: Duration = Duration::from_secs(170 * 60);

#[derive(Deserialize)]
struct Begin<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Turn<'a> {
    #[serde(default)]
    turn_order: u64,
    #[serde(default)]
    turn_is_formatted: bool,
    #[serde(default)]
    end_of_turn: bool,
    #[serde(default)]
    end_of_turn_confidence: Option<f64>,
    #[serde(borrow, default)]
    transcript: Cow<'a, str>,
    #[serde(borrow, default)]
    words: Vec<TurnWord<'a>>,
}

/// A word with its times in milliseconds.
#[derive(Deserialize)]
struct TurnWord<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
    #[serde(default)]
    start: f64,
    #[serde(default)]
    end: f64,
}

#[derive(Deserialize)]
struct SessionError<'a> {
    #[serde(default)]
    error_code: Option<u32>,
    #[serde(borrow, default)]
    error: Cow<'a, str>,
}

/// State of a connection.
pub(super) struct AssemblyAiCodec {
    turns: Turns,
    /// Whether the end of a turn is sent twice: at first without punctuation.
    formats_twice: bool,
    /// Whether the end of the turn was reported as probable.
    is_eager: bool,
    session_id: String,
}

impl AssemblyAiCodec {
    pub(super) fn new(formats_twice: bool, sends_hints: bool) -> Self {
        let (turns, session_id) = (Turns::new(sends_hints), String::new());
        Self { turns, formats_twice, is_eager: false, session_id }
    }

    fn on_turn(&mut self, now: Instant, turn: Turn<'_>, outputs: &mut Vec<Output>) {
        let word = |word: TurnWord<'_>| Word {
            text: word.text.into_owned().into(),
            start: word.start / 1_000.0,
            end: word.end / 1_000.0,
        };
        let mut text = turn.transcript;
        if !turn.end_of_turn && !turn.words.is_empty() {
            let words: Vec<&str> = turn.words.iter().map(|word| word.text.as_ref()).collect();
            text = words.join(" ").into();
        }
        if self.formats_twice && turn.end_of_turn && !turn.turn_is_formatted && text.is_empty() {
            // Not a retraction: the turn is empty, as its second end will say.
            self.is_eager = false;
            return self.turns.note_answer();
        }
        let update = TurnUpdate {
            order: turn.turn_order,
            text: &text,
            words: turn.words.into_iter().map(word).collect(),
            is_complete: turn.end_of_turn && (turn.turn_is_formatted || !self.formats_twice),
            // The vendor does not say so.
            is_answer: false,
        };
        self.turns.update(now, &update, outputs);
        let is_second = self.formats_twice && turn.turn_is_formatted;
        let confidence = turn.end_of_turn_confidence.unwrap_or_default();
        let is_eager = !turn.end_of_turn && confidence >= EAGER_CONFIDENCE;
        let was_eager = std::mem::replace(&mut self.is_eager, is_eager);
        let hint = match (turn.end_of_turn, is_eager, was_eager) {
            (true, ..) if !is_second => TurnHint::End,
            (false, true, false) => TurnHint::EagerEnd,
            (false, false, true) => TurnHint::Resumed,
            _ => return,
        };
        if !text.trim().is_empty() {
            self.turns.hint(hint, outputs);
        }
    }
}

impl Codec for AssemblyAiCodec {
    /// Audio much faster than real time is refused.
    const MAX_SPEED: Option<f64> = Some(1.2);
    const MAX_AGE: Option<Duration> = Some(MAX_SESSION_AGE);

    fn reset(&mut self, _: &mut Vec<Outgoing>) {
        self.turns.reset();
        self.is_eager = false;
        self.session_id.clear();
    }

    fn utterances(&self) -> &Utterances {
        &self.turns.utterances
    }

    fn utterances_mut(&mut self) -> &mut Utterances {
        &mut self.turns.utterances
    }

    fn push_audio(&mut self, now: Instant, pcm: Bytes, messages: &mut Vec<Outgoing>) {
        // Messages of less than 50 ms are refused.
        let pcm = if pcm.len() < CHUNK_BYTES {
            let mut padded = BytesMut::from(&pcm[..]);
            padded.resize(CHUNK_BYTES, 0);
            padded.freeze()
        } else {
            pcm
        };
        self.turns.utterances.push_audio(now, pcm.len());
        messages.push(Outgoing::Binary(pcm));
    }

    fn end_speech(&mut self, now: Instant, messages: &mut Vec<Outgoing>) {
        self.turns.end_speech(now);
        messages.push(Outgoing::text(r#"{"type":"ForceEndpoint"}"#));
    }

    fn keep_alive(&mut self, messages: &mut Vec<Outgoing>) {
        messages.push(Outgoing::text(r#"{"type":"KeepAlive"}"#));
    }

    fn close_stream(&mut self, messages: &mut Vec<Outgoing>) {
        messages.push(Outgoing::text(r#"{"type":"Terminate"}"#));
    }

    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>) {
        let kind = message_type(text);
        let was_read = match kind.as_deref() {
            Some("Turn") => parse::<Turn<'_>>(text).map(|turn| self.on_turn(now, turn, outputs)),
            Some("Begin") => {
                parse::<Begin<'_>>(text).map(|begin| self.session_id = stream_id(&begin.id))
            }
            Some("Error") => parse::<SessionError<'_>>(text).map(|error| {
                let code = error.error_code.and_then(|code| u16::try_from(code).ok());
                let fault = code.map_or(Fault::Broken, Fault::Code);
                outputs.push(Output::Failed(fault, error.error.into_owned()));
            }),
            Some("SpeechStarted") => {
                self.turns.note_answer();
                Some(())
            }
            Some("Warning") => {
                self.turns.utterances.counts.errors += 1;
                Some(())
            }
            Some(
                "Termination" | "Heartbeat" | "Silence" | "SpeakerRevision" | "LLMGatewayResponse",
            ) => Some(()),
            Some(_) => {
                self.turns.utterances.counts.unknown += 1;
                Some(())
            }
            None => None,
        };
        self.turns.utterances.counts.malformed += u32::from(was_read.is_none());
    }

    fn stream_id(&self) -> &str {
        &self.session_id
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
