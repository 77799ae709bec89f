//! Messages of Deepgram Flux, the streaming interface of version 2.
//!
//! - `TurnInfo` contains the text of the whole turn so far. The event `EndOfTurn` completes the
//!   turn.
//! - `ForceEndTurn` completes the open turn. Without an open turn it leads to a `Warning`.
//! - Without audio, time stands still for the vendor. There is no message that keeps a connection
//!   open.
//!
//! Message types, events and fields that are not listed here are ignored.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use super::nova::CLOSE_STREAM;
use crate::stt::TurnHint;
use crate::stt::streaming::{
    BYTES_PER_SECOND, Codec, Fault, Outgoing, Output, TurnUpdate, Turns, Utterances, Word,
    message_type, parse, stream_id,
};

/// Time without audio of an utterance after which silence is sent, and the amount.
const SPEECH_GAP: (Duration, usize) = (Duration::from_millis(500), BYTES_PER_SECOND / 2);
/// The same between utterances.
const IDLE_GAP: (Duration, usize) = (Duration::from_secs(5), BYTES_PER_SECOND / 10);
static SILENCE: [u8; SPEECH_GAP.1] = [0; SPEECH_GAP.1];

#[derive(Deserialize)]
struct Connected<'a> {
    #[serde(borrow, default)]
    request_id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct TurnInfo<'a> {
    #[serde(borrow, default)]
    event: Cow<'a, str>,
    #[serde(default)]
    turn_index: u64,
    #[serde(borrow, default)]
    transcript: Cow<'a, str>,
    #[serde(borrow, default)]
    words: Vec<TurnWord<'a>>,
    #[serde(borrow, default)]
    trigger: Option<Cow<'a, str>>,
}

/// A word with its times in seconds.
#[derive(Deserialize)]
struct TurnWord<'a> {
    #[serde(borrow, default)]
    word: Cow<'a, str>,
    #[serde(default)]
    start: f64,
    #[serde(default)]
    end: f64,
}

/// State of a connection.
pub(super) struct FluxCodec {
    turns: Turns,
    request_id: String,
}

impl FluxCodec {
    pub(super) fn new(sends_hints: bool) -> Self {
        Self { turns: Turns::new(sends_hints), request_id: String::new() }
    }

    fn gap(&self) -> (Duration, usize) {
        if self.turns.utterances.is_speaking() { SPEECH_GAP } else { IDLE_GAP }
    }

    fn on_turn(&mut self, now: Instant, info: TurnInfo<'_>, outputs: &mut Vec<Output>) {
        let is_complete = info.event == "EndOfTurn";
        let is_answer = info.trigger.as_deref() == Some("manual");
        let word = |word: TurnWord<'_>| Word {
            text: word.word.into_owned().into(),
            start: word.start,
            end: word.end,
        };
        let update = TurnUpdate {
            order: info.turn_index,
            text: &info.transcript,
            words: info.words.into_iter().map(word).collect(),
            is_complete,
            is_answer,
        };
        self.turns.update(now, &update, outputs);
        let hint = match &*info.event {
            "EagerEndOfTurn" => TurnHint::EagerEnd,
            "TurnResumed" => TurnHint::Resumed,
            "EndOfTurn" if !is_answer => TurnHint::End,
            _ => return,
        };
        self.turns.hint(hint, outputs);
    }
}

impl Codec for FluxCodec {
    fn reset(&mut self, _: &mut Vec<Outgoing>) {
        self.turns.reset();
        self.request_id.clear();
    }

    fn utterances(&self) -> &Utterances {
        &self.turns.utterances
    }

    fn utterances_mut(&mut self) -> &mut Utterances {
        &mut self.turns.utterances
    }

    fn push_audio(&mut self, now: Instant, pcm: Bytes, messages: &mut Vec<Outgoing>) {
        self.turns.utterances.push_audio(now, pcm.len());
        messages.push(Outgoing::Binary(pcm));
    }

    fn end_speech(&mut self, now: Instant, messages: &mut Vec<Outgoing>) {
        self.turns.end_speech(now);
        messages.push(Outgoing::text(r#"{"type":"ForceEndTurn"}"#));
    }

    fn keep_alive_interval(&self) -> Duration {
        self.gap().0
    }

    fn keep_alive(&mut self, messages: &mut Vec<Outgoing>) {
        let silence = &SILENCE[..self.gap().1];
        self.turns.utterances.push_silence(silence.len());
        messages.push(Outgoing::Binary(Bytes::from_static(silence)));
    }

    fn close_stream(&mut self, messages: &mut Vec<Outgoing>) {
        messages.push(Outgoing::text(CLOSE_STREAM));
    }

    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>) {
        let kind = message_type(text);
        let was_read = match kind.as_deref() {
            Some("TurnInfo") => parse(text).map(|info| self.on_turn(now, info, outputs)),
            Some("Connected") => parse(text)
                .map(|message: Connected<'_>| self.request_id = stream_id(&message.request_id)),
            Some("Warning") => {
                self.turns.utterances.counts.errors += 1;
                self.turns.expect_nothing(now);
                Some(())
            }
            Some("Error") => {
                outputs.push(Output::Failed(Fault::Broken, text.to_owned()));
                Some(())
            }
            Some("ConfigureSuccess" | "ConfigureFailure") => Some(()),
            Some(_) => {
                self.turns.utterances.counts.unknown += 1;
                Some(())
            }
            None => None,
        };
        self.turns.utterances.counts.malformed += u32::from(was_read.is_none());
    }

    fn stream_id(&self) -> &str {
        &self.request_id
    }
}

#[cfg(test)]
#[path = "flux_tests.rs"]
mod tests;
