//! Messages of Deepgram Aura.
//!
//! - `Speak` adds text, `Flush` speaks it to its end, which `Flushed` marks. `Clear` drops what is
//!   not sent yet; `Cleared` answers it.
//! - Sound comes in binary messages without an id. After `Clear`, everything is dropped until
//!   `Cleared`.
//! - Only 20 flushes are permitted in 60 s. Text that would need another one waits.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use url::Url;

use super::DeepgramTtsConfig;
use crate::tts::hosted::JsonText;
use crate::tts::hosted::codec::{Codec, Incoming, Output, Text};
use crate::tts::hosted::context::SAMPLE_RATE;
use crate::tts::hosted::samples::SampleReader;

/// Maximum number of flushes in [`FLUSH_WINDOW`].
const MAX_FLUSHES: usize = 20;
/// See [`MAX_FLUSHES`]. Longer than the vendor's 60 s, because messages take some time.
const FLUSH_WINDOW: Duration = Duration::from_millis(60_500);
/// Maximum number of characters of a message; the vendor permits 2,000.
const MAX_CHARACTERS: usize = 1_900;
/// Time without text after which a connection is replaced. The vendor closes it after 60 minutes.
const MAX_IDLE: Duration = Duration::from_secs(3_000);
/// Close code of an error in a message.
const ERROR_CODE: u16 = 1011;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<JsonText<'a>>,
    #[serde(borrow, alias = "warn_msg", alias = "err_msg")]
    description: Option<JsonText<'a>>,
}

/// Codec of one connection.
pub(super) struct AuraCodec {
    url: Url,
    config: DeepgramTtsConfig,
    reader: SampleReader,
    /// Number of `Clear` messages without an answer.
    clearing: u32,
    /// When the latest flushes were sent.
    flushes: VecDeque<Instant>,
}

impl AuraCodec {
    pub(super) fn new(url: Url, config: DeepgramTtsConfig) -> Self {
        let reader = SampleReader::default();
        Self { url, config, reader, clearing: 0, flushes: VecDeque::with_capacity(MAX_FLUSHES) }
    }
}

impl Codec for AuraCodec {
    fn url(&self, voice: &str, language: Option<&str>) -> String {
        let mut url = self.url.clone();
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("model", &self.config.full_voice(voice, language))
                .append_pair("encoding", "linear16")
                .append_pair("sample_rate", &SAMPLE_RATE.to_string());
            if !self.config.share_data {
                query.append_pair("mip_opt_out", "true");
            }
            if let Some(speed) = self.config.options.speed {
                query.append_pair("speed", &speed.to_string());
            }
        }
        url.into()
    }

    fn reset(&mut self) {
        self.clearing = 0;
        self.flushes.clear();
        self.reader = SampleReader::default();
    }

    fn speak(&mut self, now: Instant, text: &Text<'_>, starts: bool, messages: &mut Vec<String>) {
        if starts {
            self.reader = SampleReader::default();
        }
        for part in split(text.text, MAX_CHARACTERS) {
            // The blank separates it from the next text.
            messages.push(json!({"type": "Speak", "text": format!("{part} ")}).to_string());
        }
        messages.push(r#"{"type":"Flush"}"#.to_owned());
        if self.flushes.len() >= MAX_FLUSHES {
            self.flushes.pop_front();
        }
        self.flushes.push_back(now);
    }

    fn cancel(&mut self, messages: &mut Vec<String>) {
        self.clearing += 1;
        messages.push(r#"{"type":"Clear"}"#.to_owned());
    }

    fn close_context(&mut self, _: &mut Vec<String>) {}

    fn receive(&mut self, message: &Incoming<'_>, outputs: &mut Vec<Output>) {
        let text = match message {
            Incoming::Text(text) => text,
            Incoming::Binary(bytes) => {
                if self.clearing == 0 {
                    let samples = self.reader.read(bytes);
                    if !samples.is_empty() {
                        outputs.push(Output::Samples(samples));
                    }
                }
                return;
            }
        };
        let Ok(message) = serde_json::from_str::<Message<'_>>(text) else { return };
        let description = message.description.as_ref().map_or("", |words| words.as_ref());
        match message.kind.as_ref().map_or("", |kind| kind.as_ref()) {
            "Flushed" if self.clearing == 0 => outputs.push(Output::Mark),
            "Cleared" => {
                self.clearing = self.clearing.saturating_sub(1);
                self.reader = SampleReader::default();
            }
            "Warning" => tracing::debug!("Deepgram warns about a text to speak"),
            "Error" => outputs.push(Output::Closing(ERROR_CODE, description.to_owned())),
            _ => {}
        }
    }

    fn ready_at(&self) -> Option<Instant> {
        let oldest = self.flushes.front().filter(|_| self.flushes.len() >= MAX_FLUSHES)?;
        Some(*oldest + FLUSH_WINDOW)
    }

    fn max_idle(&self) -> Option<Duration> {
        Some(MAX_IDLE)
    }

    fn goodbye(&self) -> Option<&'static str> {
        Some(r#"{"type":"Close"}"#)
    }
}

/// Parts of a text with at most `limit` characters, cut at blanks where there are some.
fn split(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((end, _)) = rest.char_indices().nth(limit) {
        let cut = rest[..end].rfind(' ').filter(|cut| *cut > 0).unwrap_or(end);
        parts.push(&rest[..cut]);
        rest = rest[cut..].trim_start();
    }
    parts.push(rest);
    parts
}
