//! Messages of Cartesia.
//!
//! - All messages of a context have the same parameters. Their texts are joined as they are, so each
//!   ends with a blank.
//! - With a buffer delay of 0, each text is spoken at once, and its end is marked by `flush_done`.
//! - A context ends 1 s after its last sound. Text for it is then an error, and begins another one.
//! - A cancelled context may still send sound, which is dropped by its id.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use egress::websocket::Refusal;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{CartesiaConfig, DEFAULT_MODEL, DEFAULT_VOICE};
use crate::tts::Word;
use crate::tts::hosted::codec::{Codec, Incoming, Output, Text};
use crate::tts::hosted::context::SAMPLE_RATE;
use crate::tts::hosted::samples::SampleReader;
use crate::tts::hosted::voices::primary_language;
use crate::tts::hosted::{JsonText, non_empty};

/// Time after its last sound in which a context surely takes more text.
const CONTEXT_LIFETIME: Duration = Duration::from_millis(600);
/// Time without text after which a connection is replaced. The vendor closes it after 300 s.
const MAX_IDLE: Duration = Duration::from_secs(240);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<JsonText<'a>>,
    #[serde(borrow, rename = "context_id")]
    context: Option<JsonText<'a>>,
    /// Samples in base64.
    #[serde(borrow)]
    data: Option<JsonText<'a>>,
    word_timestamps: Option<WordTimes>,
    status_code: Option<u16>,
    #[serde(borrow)]
    title: Option<JsonText<'a>>,
    #[serde(borrow)]
    message: Option<JsonText<'a>>,
    #[serde(borrow)]
    error: Option<JsonText<'a>>,
    #[serde(borrow)]
    error_code: Option<JsonText<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WordTimes {
    words: Vec<String>,
    /// In seconds from the beginning of the context.
    start: Vec<f64>,
    end: Vec<f64>,
}

impl WordTimes {
    fn into_words(self) -> Vec<Word> {
        let times = self.start.into_iter().zip(self.end);
        let word = |(text, (begin, end))| Word { text, begin: Some(begin), end };
        self.words.into_iter().zip(times).map(word).collect()
    }
}

/// Codec of one connection.
pub(super) struct CartesiaCodec {
    url: String,
    config: CartesiaConfig,
    /// Makes the names of the contexts unique, because connections of one key share them.
    prefix: u64,
    /// Number of the newest context.
    newest: u64,
    /// Name of the context whose sound is delivered.
    current: Option<String>,
    reader: SampleReader,
}

impl CartesiaCodec {
    pub(super) fn new(url: String, config: CartesiaConfig) -> Self {
        let prefix = RandomState::new().hash_one(0u8);
        let reader = SampleReader::default();
        Self { url, config, prefix, newest: 0, current: None, reader }
    }

    fn language(&self, requested: Option<&str>) -> String {
        let language = primary_language(requested.unwrap_or(&self.config.language));
        match language.as_str() {
            "" | "auto" | "multi" => "en".to_owned(),
            _ => language,
        }
    }
}

impl Codec for CartesiaCodec {
    fn url(&self, _: &str, _: Option<&str>) -> String {
        self.url.clone()
    }

    fn reset(&mut self) {
        self.current = None;
    }

    fn speak(&mut self, _: Instant, text: &Text<'_>, starts: bool, messages: &mut Vec<String>) {
        if starts {
            self.newest += 1;
            self.current = Some(format!("{:016x}-{}", self.prefix, self.newest));
            self.reader = SampleReader::default();
        }
        let voice = non_empty(text.voice, non_empty(&self.config.voice, DEFAULT_VOICE));
        let mut message = Map::new();
        let mut add = |name: &str, value: Value| message.insert(name.into(), value);
        add("context_id", self.current.as_deref().unwrap_or_default().into());
        add("model_id", non_empty(&self.config.model, DEFAULT_MODEL).into());
        add("transcript", format!("{} ", text.text).into());
        add("voice", json!({"mode": "id", "id": voice}));
        add("language", self.language(text.language).into());
        let format = json!({
            "container": "raw", "encoding": "pcm_s16le", "sample_rate": SAMPLE_RATE,
        });
        add("output_format", format);
        add("continue", true.into());
        add("max_buffer_delay_ms", 0.into());
        add("add_timestamps", true.into());
        add("use_normalized_timestamps", false.into());
        self.config.options.add_to(&mut message);
        messages.push(Value::Object(message).to_string());
    }

    fn cancel(&mut self, messages: &mut Vec<String>) {
        if let Some(current) = self.current.take() {
            messages.push(json!({"context_id": current, "cancel": true}).to_string());
        }
    }

    fn close_context(&mut self, _: &mut Vec<String>) {
        // It ends by itself. A message for it may come too late, which is an error.
        self.current = None;
    }

    fn receive(&mut self, message: &Incoming<'_>, outputs: &mut Vec<Output>) {
        let Incoming::Text(text) = message else { return };
        let Ok(message) = serde_json::from_str::<Message<'_>>(text) else { return };
        let kind = message.kind.as_ref().map_or("", |kind| kind.as_ref());
        let context = message.context.as_ref().map(AsRef::as_ref);
        let is_error = kind == "error" || (kind.is_empty() && message.error.is_some());
        // An error may concern the whole connection.
        if context != self.current.as_deref() && !(is_error && context.is_none()) {
            return;
        }
        match kind {
            "chunk" => {
                let data = message.data.as_ref().map_or("", |data| data.as_ref());
                let samples = self.reader.read_base64(data);
                if !samples.is_empty() {
                    outputs.push(Output::Samples(samples));
                }
            }
            "timestamps" => {
                let words = message.word_timestamps.map(WordTimes::into_words);
                outputs.extend(words.filter(|words| !words.is_empty()).map(Output::Words));
            }
            "flush_done" => outputs.push(Output::Mark),
            "done" => {
                self.current = None;
                outputs.push(Output::End);
            }
            _ if is_error => {
                self.current = None;
                outputs.push(read_error(&message));
            }
            _ => {}
        }
    }

    fn context_lifetime(&self) -> Option<Duration> {
        Some(CONTEXT_LIFETIME)
    }

    fn max_idle(&self) -> Option<Duration> {
        Some(MAX_IDLE)
    }
}

fn read_error(message: &Message<'_>) -> Output {
    let parts = [&message.error_code, &message.title, &message.message, &message.error];
    let parts: Vec<&str> = parts.into_iter().flatten().map(AsRef::as_ref).collect();
    let words = parts.join(": ");
    let lower = words.to_lowercase();
    if lower.contains("context") && lower.contains("expired") {
        return Output::End;
    }
    let status = message.status_code.filter(|status| *status >= 400).unwrap_or(500);
    Output::Refused(Refusal { status, retry_after: None, body: words })
}
