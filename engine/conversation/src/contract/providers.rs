//! The providers that serve a conversation, and what they use.

use serde::{Deserialize, Serialize};

use crate::contract::event::Stage;

/// What a provider used of one kind since its last report. Which part is billed depends on the
/// provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProviderUsage {
    /// Its kind: STT, LLM or TTS.
    pub kind: Stage,
    /// Its name, as agents write it.
    pub provider: String,
    /// What it used.
    #[serde(flatten)]
    pub amounts: UsageAmounts,
}

/// Amounts of use; 0 for what does not apply or is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageAmounts {
    /// Duration of open connections, in seconds.
    pub connected_seconds: f64,
    /// Duration of the audio: sent to an STT, received from a TTS, in seconds.
    pub audio_seconds: f64,
    /// Characters (Unicode code points) that were sent to a TTS.
    pub characters: u64,
    /// Tokens of requests, the cached ones included. For an STT, those of the audio.
    pub input_tokens: u64,
    /// Tokens of requests that the provider had cached.
    pub cached_tokens: u64,
    /// Tokens of answers or transcripts.
    pub output_tokens: u64,
    /// Requests: answers of an LLM, texts of a TTS, uploads to an STT without a stream.
    pub requests: u64,
}

impl UsageAmounts {
    /// Adds further use.
    pub fn add(&mut self, more: &Self) {
        self.connected_seconds += more.connected_seconds;
        self.audio_seconds += more.audio_seconds;
        self.characters = self.characters.saturating_add(more.characters);
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.requests = self.requests.saturating_add(more.requests);
    }
}

/// The providers that served a turn, in the order in which they took over. A list is empty if
/// nothing was served or the provider is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnProviders {
    /// Their final transcripts form the user's turn.
    pub stt: Vec<String>,
    /// Their answers form the reply.
    pub llm: Vec<String>,
    /// Their audio was played.
    pub tts: Vec<String>,
}

impl TurnProviders {
    /// Whether no provider is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stt.is_empty() && self.llm.is_empty() && self.tts.is_empty()
    }
}

/// Adds a provider to a list, unless it is the last one. Returns whether it was added.
pub(crate) fn add_provider(list: &mut Vec<String>, provider: Option<&String>) -> bool {
    let added = provider.filter(|provider| list.last() != Some(provider));
    list.extend(added.cloned());
    added.is_some()
}
