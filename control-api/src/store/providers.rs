//! The STT, the LLM and the TTS that an avatar names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// The providers of an avatar's calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Providers {
    pub(crate) llm: Llm,
    pub(crate) stt: Stt,
    pub(crate) tts: Tts,
}

/// The language model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Llm {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) fallback_model: Option<String>,
    pub(crate) url: Option<String>,
    /// The provider's API key. Returned as `***`, which retains it.
    pub(crate) token: Option<String>,
    /// Options of the requests, such as `max_tokens` and `temperature`; `docs/speech.md` lists those
    /// of each provider. A conversation's `warnings` name the options that the provider ignores.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
    /// Providers that are used after a failure, in this order. Their keys are those of the workspace
    /// or of the server.
    #[schemars(length(max = 5))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fallback: Vec<LlmFallback>,
}

/// A language model that is used after a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct LlmFallback {
    pub(crate) provider: String,
    pub(crate) model: Option<String>,
    pub(crate) url: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
}

/// Speech to text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Stt {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    /// The model of the same provider that is used after a failure.
    pub(crate) fallback_model: Option<String>,
    /// BCP 47 tag.
    pub(crate) language: Option<String>,
    /// Seconds; null = as `turn_handling` says.
    #[schemars(range(min = 0, max = 10))]
    pub(crate) min_endpointing_delay: Option<Number>,
    /// Seconds, not below `min_endpointing_delay`; null = as `turn_handling` says.
    #[schemars(range(min = 0, max = 10))]
    pub(crate) max_endpointing_delay: Option<Number>,
    /// Whether the turn model helps to find the end of a turn.
    pub(crate) turn_model: bool,
    /// Base URL of a hosted provider; null = the provider's own server.
    pub(crate) url: Option<String>,
    /// The provider's API key. Returned as `***`, which retains it.
    pub(crate) token: Option<String>,
    /// Words that a hosted provider shall expect, such as names.
    #[schemars(length(max = 100), inner(length(min = 1, max = 100)))]
    pub(crate) keyterms: Vec<String>,
    /// Settings of the provider; `docs/speech.md` lists those of each one.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
    /// Providers that are used after a failure, in this order, before the built-in STT. Their keys
    /// are those of the workspace or of the server.
    #[schemars(length(max = 5))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fallback: Vec<SttFallback>,
    pub(crate) turn: TurnSource,
}

/// Who says when the user's turn is over. `provider`: the STT's provider, if it has an opinion
/// (Deepgram Flux, AssemblyAI); `docs/operations.md` has the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TurnSource {
    #[default]
    Local,
    Provider,
}

/// An STT that is used after a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct SttFallback {
    pub(crate) provider: String,
    pub(crate) model: Option<String>,
    /// BCP 47 tag; null = that of the first provider.
    pub(crate) language: Option<String>,
    pub(crate) url: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
}

/// Text to speech.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Tts {
    pub(crate) model_id: Option<String>,
    pub(crate) provider: Option<String>,
    #[schemars(length(max = 1_000))]
    pub(crate) voice_id: Option<String>,
    /// Hz.
    #[schemars(range(min = 8_000, max = 48_000))]
    pub(crate) sample_rate: Option<Number>,
    pub(crate) custom_pronunciation: Vec<Pronunciation>,
    /// BCP 47 tag; null = the language of the STT.
    pub(crate) language: Option<String>,
    /// Base URL of a hosted provider; null = the provider's own server.
    pub(crate) url: Option<String>,
    /// The provider's API key. Returned as `***`, which retains it.
    pub(crate) token: Option<String>,
    /// Settings of the provider, such as `speed`; `docs/speech.md` lists those of each one.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
    /// Providers that are used after a failure, in this order, before the built-in voices. Their
    /// keys are those of the workspace or of the server.
    #[schemars(length(max = 5))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fallback: Vec<TtsFallback>,
}

/// A TTS that is used after a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TtsFallback {
    pub(crate) provider: String,
    pub(crate) model_id: Option<String>,
    #[schemars(length(max = 1_000))]
    pub(crate) voice_id: Option<String>,
    /// BCP 47 tag; null = that of the first provider.
    pub(crate) language: Option<String>,
    pub(crate) url: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
}

/// How a word is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Pronunciation {
    #[schemars(length(min = 1))]
    pub(crate) word: String,
    #[schemars(length(min = 1))]
    pub(crate) pronunciation: String,
}
