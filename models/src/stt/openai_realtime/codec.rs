//! Messages of OpenAI's realtime interface for transcriptions.
//!
//! - Each commit of audio becomes an item. `input_audio_buffer.committed` names it, in the order of
//!   the commits.
//! - `….delta` appends to the text of an item. `….completed` contains its final text. The items may
//!   be completed in another order.
//! - A commit of less than 100 ms of audio is refused.
//!
//! Message types and fields that are not listed here are ignored.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::resampler::Resampler;
use crate::stt::streaming::{
    AudioMessages, Codec, Fault, Limits, Outgoing, Output, TokenUsage, Utterance, Utterances,
    message_type, parse, stream_id,
};

/// How fast a working server answers. Some models send nothing while the user speaks.
const LIMITS: Limits = Limits {
    answer: Duration::from_millis(2_000),
    silent_answer: Duration::from_millis(2_500),
    answered_audio: None,
    answers_each_end: true,
};
/// Maximum number of items whose messages are still recognized.
const MAX_ITEMS: usize = 16;

const COMMIT: &str = r#"{"type":"input_audio_buffer.commit"}"#;
const TRANSCRIPTION: &str = "conversation.item.input_audio_transcription.";

#[derive(Deserialize)]
struct ItemMessage<'a> {
    #[serde(borrow)]
    item_id: Cow<'a, str>,
    #[serde(borrow, default)]
    delta: Cow<'a, str>,
    #[serde(borrow, default)]
    transcript: Cow<'a, str>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct ErrorMessage<'a> {
    #[serde(borrow)]
    error: ErrorBody<'a>,
}

#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    code: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

impl ErrorBody<'_> {
    fn fault(&self) -> Fault {
        match (self.code.as_deref(), self.kind.as_deref()) {
            (Some("invalid_api_key"), _) | (_, Some("authentication_error")) => Fault::Key,
            (Some("insufficient_quota"), _) | (_, Some("insufficient_quota")) => Fault::NoCredit,
            (Some("rate_limit_exceeded"), _) | (_, Some("rate_limit_error")) => Fault::Busy,
            (Some("session_expired"), _) => Fault::Broken,
            (_, Some("invalid_request_error")) => Fault::Refused,
            _ => Fault::Broken,
        }
    }
}

#[derive(Deserialize)]
struct SessionMessage<'a> {
    #[serde(borrow)]
    session: Session<'a>,
}

#[derive(Deserialize)]
struct Session<'a> {
    #[serde(borrow, default)]
    id: Cow<'a, str>,
}

/// An utterance that was committed.
#[derive(Default)]
struct Item {
    /// Unknown until the vendor names it.
    id: Option<String>,
    /// The final text, which may come before that of an earlier item.
    text: Option<String>,
    /// Its utterance has a final transcript.
    is_over: bool,
}

/// State of a connection.
pub(super) struct RealtimeCodec {
    utterances: Utterances,
    /// In the order of the commits. Those that are not over belong to the oldest utterances.
    items: VecDeque<Item>,
    audio: AudioMessages,
    resampler: Option<Resampler>,
    /// The message that sets the session up.
    session_update: String,
    session_id: String,
}

impl RealtimeCodec {
    pub(super) fn new(session_update: String) -> Self {
        let audio = AudioMessages::new(r#"{"type":"input_audio_buffer.append","audio":""#, r#""}"#);
        Self {
            utterances: Utterances::new(LIMITS),
            items: VecDeque::new(),
            audio,
            // Without it, no audio is sent, and another STT takes over.
            resampler: Resampler::new().ok(),
            session_update,
            session_id: String::new(),
        }
    }

    fn push_resampled(&mut self, pcm: &[u8], messages: &mut Vec<Outgoing>) {
        if let Some(resampler) = &mut self.resampler {
            messages.push(self.audio.message(resampler.process(pcm)));
        }
    }
}

impl Codec for RealtimeCodec {
    const MAX_AGE: Option<Duration> = Some(Duration::from_secs(600));

    fn reset(&mut self, messages: &mut Vec<Outgoing>) {
        self.utterances.reset();
        self.items.clear();
        self.session_id.clear();
        messages.push(Outgoing::Text(self.session_update.clone().into()));
    }

    fn utterances(&self) -> &Utterances {
        &self.utterances
    }

    fn utterances_mut(&mut self) -> &mut Utterances {
        &mut self.utterances
    }

    fn push_audio(&mut self, now: Instant, pcm: Bytes, messages: &mut Vec<Outgoing>) {
        self.utterances.push_audio(now, pcm.len());
        self.push_resampled(&pcm, messages);
    }

    fn end_speech(&mut self, now: Instant, messages: &mut Vec<Outgoing>) {
        if self.utterances.current_bytes() == 0 {
            // A commit needs 100 ms.
            self.push_resampled(&[], messages);
        }
        self.push_resampled(&[], messages);
        self.utterances.end(now);
        self.items.push_back(Item::default());
        if self.items.len() > MAX_ITEMS {
            self.items.pop_front();
        }
        messages.push(Outgoing::text(COMMIT));
    }

    fn receive(&mut self, now: Instant, text: &str, outputs: &mut Vec<Output>) {
        let kind = message_type(text);
        let was_read = match kind.as_deref() {
            Some("input_audio_buffer.committed") => parse(text).map(|message: ItemMessage<'_>| {
                self.name_item(&message.item_id);
            }),
            Some("session.created" | "session.updated") => {
                parse(text).map(|message: SessionMessage<'_>| {
                    self.session_id = stream_id(&message.session.id)
                })
            }
            Some("error") => parse(text)
                .map(|message: ErrorMessage<'_>| self.on_error(now, &message.error, outputs)),
            Some(kind) => match kind.strip_prefix(TRANSCRIPTION) {
                Some("delta") => parse(text).map(|message| self.on_delta(&message, outputs)),
                Some("completed") => {
                    parse(text).map(|message| self.on_completed(now, &message, outputs))
                }
                Some("failed") => parse(text).map(|message: ErrorMessage<'_>| {
                    let fault = match message.error.fault() {
                        Fault::Refused => Fault::Broken,
                        fault => fault,
                    };
                    let words = message.error.message.unwrap_or_default();
                    outputs.push(Output::Failed(fault, words.into_owned()));
                }),
                _ => {
                    self.utterances.counts.unknown += 1;
                    Some(())
                }
            },
            None => None,
        };
        self.utterances.counts.malformed += u32::from(was_read.is_none());
    }

    fn give_up(&mut self, _: Instant, _: &Utterance) {
        if let Some(item) = self.items.iter_mut().find(|item| !item.is_over) {
            item.is_over = true;
        }
    }

    fn stream_id(&self) -> &str {
        &self.session_id
    }
}

impl RealtimeCodec {
    /// The item with this id. An unknown id is that of the oldest item without one.
    fn name_item(&mut self, id: &str) -> Option<&mut Item> {
        let has_id = |item: &Item| item.id.as_deref() == Some(id);
        let index = self.items.iter().position(has_id);
        let index = index.or_else(|| self.items.iter().position(|item| item.id.is_none()))?;
        let item = &mut self.items[index];
        item.id.get_or_insert_with(|| id.to_owned());
        Some(item)
    }

    fn on_delta(&mut self, message: &ItemMessage<'_>, outputs: &mut Vec<Output>) {
        self.utterances.has_answered = true;
        let oldest = self.items.iter().position(|item| !item.is_over);
        let has_id = |item: &Item| item.id.as_deref() == Some(&*message.item_id);
        let is_oldest = match (self.items.iter().position(has_id), oldest) {
            (Some(index), oldest) => Some(index) == oldest,
            // Some models name an item after its first words.
            (None, Some(oldest)) => self.items[oldest].id.is_none(),
            (None, None) => true,
        };
        if let Some(front) = self.utterances.front_mut().filter(|_| is_oldest) {
            front.is_answered = true;
            front.extend_interim(&message.delta);
            self.utterances.deliver_interim(outputs);
        }
    }

    fn on_completed(&mut self, now: Instant, message: &ItemMessage<'_>, outputs: &mut Vec<Output>) {
        self.utterances.has_answered = true;
        let usage = TokenUsage::read(&message.usage);
        if usage != TokenUsage::default() {
            outputs.push(Output::Tokens(usage));
        }
        match self.name_item(&message.item_id) {
            Some(item) if !item.is_over => item.text = Some(message.transcript.to_string()),
            _ => self.utterances.counts.late += 1,
        }
        while let Some(item) = self.items.iter_mut().find(|item| !item.is_over)
            && let Some(text) = item.text.take()
        {
            item.is_over = true;
            if let Some(front) = self.utterances.front_mut() {
                front.add_segment(&text);
            }
            self.utterances.finish(now, outputs);
        }
    }

    fn on_error(&mut self, now: Instant, error: &ErrorBody<'_>, outputs: &mut Vec<Output>) {
        if error.code.as_deref() == Some("input_audio_buffer_commit_empty") {
            self.utterances.counts.errors += 1;
            // The commit becomes no item.
            if let Some(index) = self.items.iter().position(|item| item.id.is_none()) {
                let is_oldest = self.items.iter().take(index).all(|item| item.is_over);
                let item = self.items.remove(index);
                if is_oldest && item.is_some_and(|item| !item.is_over) {
                    self.utterances.finish(now, outputs);
                }
            }
            return;
        }
        let words = error.message.as_deref().unwrap_or_default();
        outputs.push(Output::Failed(error.fault(), words.to_owned()));
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
