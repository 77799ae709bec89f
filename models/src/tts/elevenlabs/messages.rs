//! Messages of ElevenLabs. Names are in camel case at one endpoint and in snake case at the other.

use serde::Deserialize;

use crate::tts::hosted::JsonText;
use crate::tts::{Word, words_from_characters};

/// What a message says.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow, rename = "contextId", alias = "context_id")]
    pub(super) context: Option<JsonText<'a>>,
    /// Samples in base64.
    #[serde(borrow)]
    pub(super) audio: Option<JsonText<'a>>,
    #[serde(rename = "isFinal", alias = "is_final")]
    pub(super) is_final: Option<bool>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<JsonText<'a>>,
    /// Short name of an error.
    #[serde(borrow)]
    pub(super) error: Option<JsonText<'a>>,
    /// Description of an error.
    #[serde(borrow)]
    pub(super) message: Option<JsonText<'a>>,
    /// Close code of an error.
    pub(super) code: Option<u32>,
}

/// The times of a message.
#[derive(Deserialize)]
pub(super) struct Times<'a> {
    /// Of the text that was sent.
    #[serde(borrow, default)]
    alignment: Option<Alignment<'a>>,
    /// Of the text that is spoken, with numbers as words.
    #[serde(borrow, default, rename = "normalizedAlignment", alias = "normalized_alignment")]
    normalized: Option<Alignment<'a>>,
}

#[derive(Deserialize)]
struct Alignment<'a> {
    #[serde(borrow, default)]
    chars: Vec<JsonText<'a>>,
    #[serde(default, rename = "charStartTimesMs", alias = "char_start_times_ms")]
    starts: Vec<f64>,
    #[serde(
        default,
        rename = "charDurationsMs",
        alias = "charsDurationsMs",
        alias = "char_durations_ms"
    )]
    durations: Vec<f64>,
}

impl Times<'_> {
    /// The words, or parts of words at the ends of the message.
    pub(super) fn words(&self) -> Vec<Word> {
        let alignments = [&self.alignment, &self.normalized].into_iter().flatten();
        let Some(times) = alignments.into_iter().find(|times| !times.chars.is_empty()) else {
            return Vec::new();
        };
        let begins: Vec<f64> = times.starts.iter().map(|start| start / 1e3).collect();
        let ends = begins.iter().zip(&times.durations).map(|(begin, ms)| begin + ms / 1e3);
        words_from_characters(&times.chars, &begins, &ends.collect::<Vec<_>>(), 0.0)
    }
}
