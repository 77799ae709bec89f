//! The two protocols of ElevenLabs.
//!
//! - `text-to-speech/VOICE/multi-stream-input`: the first message of a context is a blank, with the
//!   settings of the voice; they may not change afterwards. Each text ends with a blank.
//! - `text-to-dialogue/multi-stream-input`, for the models `eleven_v3…` and `eleven_v4…`: the first
//!   message names the voices. `close_context` speaks what is buffered first, so the sound of a
//!   cancelled context is dropped by its id.
//!
//! A connection has at most five contexts. A closed one counts until its final message.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use super::messages::{Content, Times};
use super::{DEFAULT_VOICE, ElevenLabsConfig};
use crate::tts::hosted::codec::{Codec, Incoming, Output, Text};
use crate::tts::hosted::non_empty;
use crate::tts::hosted::samples::SampleReader;
use crate::tts::hosted::voices::primary_language;

/// Contexts of a connection after which the next one is on another connection. The vendor closes a
/// connection with more than five.
const MAX_CONTEXTS: usize = 4;
/// Interval of keep-alive messages. The vendor may close a connection after 20 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum duration without text that the vendor permits, in seconds.
const INACTIVITY_TIMEOUT: &str = "180";
/// Close code of an error that names none.
const UNKNOWN_ERROR_CODE: u16 = 1011;

/// Codec of one connection.
pub(super) struct ElevenLabsCodec {
    base: Url,
    config: ElevenLabsConfig,
    is_dialogue: bool,
    /// Whether the vendor is asked not to store the texts.
    omits_logging: bool,
    /// Number of the newest context. Never used again.
    newest: u64,
    /// The context whose sound is delivered.
    current: Option<u64>,
    /// Contexts without a final message.
    open: Vec<u64>,
    reader: SampleReader,
}

fn name_of(context: u64) -> String {
    format!("reply-{context}")
}

impl ElevenLabsCodec {
    pub(super) fn new(base: Url, config: ElevenLabsConfig) -> Self {
        let model = config.model();
        let is_dialogue = ["eleven_v3", "eleven_v4"].iter().any(|known| model.starts_with(known));
        Self {
            base,
            is_dialogue,
            omits_logging: config.share_data,
            config,
            newest: 0,
            current: None,
            open: Vec::new(),
            reader: SampleReader::default(),
        }
    }

    fn voice<'a>(&'a self, voice: &'a str) -> &'a str {
        non_empty(voice, non_empty(&self.config.voice, DEFAULT_VOICE))
    }

    fn start_context(&mut self, voice: &str, messages: &mut Vec<String>) {
        self.newest += 1;
        self.current = Some(self.newest);
        self.open.push(self.newest);
        self.reader = SampleReader::default();
        let mut first = json!({"context_id": name_of(self.newest)});
        if self.is_dialogue {
            first["voices"] = json!([voice]);
        } else {
            first["text"] = " ".into();
        }
        if let Some(settings) = self.config.options.voice_settings(self.is_dialogue) {
            first["voice_settings"] = settings;
        }
        messages.push(first.to_string());
    }
}

impl Codec for ElevenLabsCodec {
    fn url(&self, voice: &str, language: Option<&str>) -> String {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1");
            if self.is_dialogue {
                path.push("text-to-dialogue");
            } else {
                path.push("text-to-speech").push(self.voice(voice));
            }
            path.push("multi-stream-input");
        }
        let model = self.config.model();
        let language = primary_language(language.unwrap_or(&self.config.language));
        // Other models refuse it.
        let takes_language = self.is_dialogue || model.contains("v2_5");
        let takes_language = takes_language && !matches!(language.as_str(), "" | "auto" | "multi");
        let normalization = &self.config.options.apply_text_normalization;
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("model_id", model)
                .append_pair("output_format", "pcm_24000")
                .append_pair("sync_alignment", "true");
            if takes_language {
                query.append_pair("language_code", &language);
            }
            if !self.omits_logging {
                query.append_pair("enable_logging", "false");
            }
            if !self.is_dialogue {
                query
                    .append_pair("auto_mode", "true")
                    .append_pair("inactivity_timeout", INACTIVITY_TIMEOUT);
                if !normalization.is_empty() {
                    query.append_pair("apply_text_normalization", normalization);
                }
            }
        }
        url.into()
    }

    fn reset(&mut self) {
        self.current = None;
        self.open.clear();
    }

    fn speak(&mut self, _: Instant, text: &Text<'_>, starts: bool, messages: &mut Vec<String>) {
        let voice = self.voice(text.voice).to_owned();
        if starts {
            self.start_context(&voice, messages);
        }
        let spoken = format!("{} ", text.text);
        let context = name_of(self.newest);
        let message = if self.is_dialogue {
            let inputs: Value = json!([{"text": spoken, "voice_id": voice}]);
            json!({"context_id": context, "inputs": inputs, "flush": true})
        } else {
            json!({"text": spoken, "context_id": context, "flush": true})
        };
        messages.push(message.to_string());
    }

    fn cancel(&mut self, messages: &mut Vec<String>) {
        self.close_context(messages);
    }

    fn close_context(&mut self, messages: &mut Vec<String>) {
        if let Some(current) = self.current.take() {
            let close = json!({"context_id": name_of(current), "close_context": true});
            messages.push(close.to_string());
        }
    }

    fn receive(&mut self, message: &Incoming<'_>, outputs: &mut Vec<Output>) {
        let Incoming::Text(text) = message else { return };
        let Ok(content) = serde_json::from_str::<Content<'_>>(text) else { return };
        if let Some(error) = &content.error {
            let words = content.message.as_ref().map_or("", |message| message.as_ref());
            let code = content.code.and_then(|code| u16::try_from(code).ok());
            let reason = format!("{}: {words}", error.as_ref());
            outputs.push(Output::Closing(code.unwrap_or(UNKNOWN_ERROR_CODE), reason));
            return;
        }
        let name = content.context.as_ref().map_or("", |name| name.as_ref());
        let number = name.strip_prefix("reply-").and_then(|number| number.parse().ok());
        let is_current = number.is_some() && number == self.current;
        if is_current {
            // Words come before their sound.
            if let Ok(times) = serde_json::from_str::<Times<'_>>(text) {
                let words = times.words();
                if !words.is_empty() {
                    outputs.push(Output::Words(words));
                }
            }
            let audio = content.audio.as_ref().map_or("", |audio| audio.as_ref());
            let samples = self.reader.read_base64(audio);
            if !samples.is_empty() {
                outputs.push(Output::Samples(samples));
            }
            if content.kind.is_some_and(|kind| kind.as_ref() == "flush_done") {
                outputs.push(Output::Mark);
            }
        }
        if content.is_final == Some(true) {
            self.open.retain(|open| Some(*open) != number);
            if is_current {
                self.current = None;
                outputs.push(Output::End);
            }
        }
    }

    fn omit_refused(&mut self, words: &str) -> bool {
        let words = words.to_lowercase();
        let is_about_it = ["enable_logging", "zero retention", "zero_retention"]
            .iter()
            .any(|phrase| words.contains(phrase));
        let omits = is_about_it && !self.omits_logging;
        if omits {
            tracing::warn!("this account of ElevenLabs does not permit to switch off its logging");
            self.omits_logging = true;
        }
        omits
    }

    fn is_full(&self) -> bool {
        self.open.len() >= MAX_CONTEXTS
    }

    fn keep_alive(&self) -> Option<(Duration, &'static str)> {
        // Without a context: it would begin one, whose settings could not be set any more.
        (!self.is_dialogue).then_some((KEEP_ALIVE_INTERVAL, r#"{"text":""}"#))
    }

    fn goodbye(&self) -> Option<&'static str> {
        Some(r#"{"close_socket":true}"#)
    }
}
