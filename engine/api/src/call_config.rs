//! What a call needs from its agent besides the [`Spec`] of its turn-taking. Plain data,
//! independent of any vendor.
//!
//! The agent's document is copied when the conversation is created. Its tools, guardrails and
//! knowledge are read at the offer.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use conversation::id::ConversationId;
use conversation::spec::Spec;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::knowledge::Knowledge;
use crate::tools::{Tool, ToolServers};

/// Everything that the engine knows about a call.
#[derive(Clone)]
pub struct CallConfig {
    /// The conversation.
    pub id: ConversationId,
    /// The rules of turn-taking.
    pub spec: Spec,
    /// The agent's name.
    pub agent_name: String,
    /// The system prompt, including context and memory.
    pub system_prompt: String,
    /// Speech to text.
    pub stt: SttChoice,
    /// The language model.
    pub llm: LlmChoice,
    /// Text to speech.
    pub tts: TtsChoice,
    /// The avatar that is shown.
    pub avatar: AvatarChoice,
    /// The pose set, unless the avatar is one of the engine's own.
    pub pose_set: Option<PoseSetFile>,
    /// The tools that the LLM may call.
    pub tools: Vec<Tool>,
    /// Servers that add tools after the call has started.
    pub tool_servers: Option<Arc<dyn ToolServers>>,
    /// The rules that each user message is checked against. The first rule that matches wins.
    pub guardrails: Vec<Guardrail>,
    /// The agent's knowledge, if it has any.
    pub knowledge: Option<Arc<dyn Knowledge>>,
    /// Whether external clients see the arguments and results of tools.
    pub expose_tools: bool,
    /// Whether the operator controls the clients. Context from a client then counts as the
    /// operator's.
    pub trust_client_context: bool,
    /// Whether inputs and outputs are written as a trace.
    pub record_trace: bool,
    /// Whether the language model is told how to set the avatar's expression.
    pub offers_expressions: bool,
    /// Whether and how the call is recorded.
    pub recording: Option<RecordingChoice>,
    /// How long the call waits for a connection that was closed or does not respond; `None` = as
    /// the engine is configured.
    pub reconnect_timeout: Option<Duration>,
}

/// How a call is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingChoice {
    /// Whether the pages say that the call is recorded.
    pub notice: bool,
    /// Whether a client may end and delete the recording.
    pub is_optional: bool,
    /// What is wrong with recordings on this server, for the warnings of the call.
    pub warning: Option<String>,
}

impl CallConfig {
    /// A call of an agent without any instruction or choice: the starting point of tests and
    /// measurements.
    #[must_use]
    pub fn minimal(id: ConversationId, spec: Spec) -> Self {
        Self {
            id,
            spec,
            agent_name: "Ada".into(),
            system_prompt: String::new(),
            stt: SttChoice::default(),
            llm: LlmChoice::default(),
            tts: TtsChoice::default(),
            avatar: AvatarChoice::default(),
            pose_set: None,
            tools: Vec::new(),
            tool_servers: None,
            guardrails: Vec::new(),
            knowledge: None,
            expose_tools: false,
            trust_client_context: false,
            record_trace: false,
            offers_expressions: true,
            recording: None,
            reconnect_timeout: None,
        }
    }
}

/// The agent's choice of speech to text. Names are free strings, resolved when the call starts.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SttChoice {
    /// Vendor; empty = built in.
    pub provider: String,
    /// Model; empty = the vendor's default.
    pub model: String,
    /// The model of the same vendor to use after a failure.
    pub fallback_model: Option<String>,
    /// BCP 47 tag; empty = `en`.
    pub language: String,
    /// Base URL of the vendor's interface; `None` = the vendor's own server.
    pub url: Option<String>,
    /// API key. Secret.
    pub token: Option<String>,
    /// Words that the STT shall expect.
    pub keyterms: Vec<String>,
    /// Whether the vendor's opinion about the ends of turns is used, if it has one.
    pub provider_turns: bool,
    /// Further settings. A provider reads those that it knows.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Used after a failure, in this order. Their own lists are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<SttChoice>,
    /// The agent's workspace: an operator's key may be limited to some.
    #[serde(skip)]
    pub workspace: String,
}

impl fmt::Debug for SttChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SttChoice")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

/// The agent's choice of language model.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlmChoice {
    /// Vendor; empty = built in; `custom` = any OpenAI-compatible server at `url`.
    pub provider: String,
    /// Model.
    pub model: String,
    /// The model to use after a failure.
    pub fallback_model: Option<String>,
    /// Base URL; of an OpenAI-compatible server, it ends in `/v1`.
    pub url: Option<String>,
    /// Bearer token. Secret.
    pub token: Option<String>,
    /// Options of the requests, such as `max_tokens`. A provider reads those that it knows.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Used after a failure, in this order. Their own lists are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<LlmChoice>,
    /// The agent's workspace: an operator's key may be limited to some.
    #[serde(skip)]
    pub workspace: String,
}

impl fmt::Debug for LlmChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmChoice")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The agent's choice of text to speech.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TtsChoice {
    /// Vendor; empty = built in.
    pub provider: String,
    /// Model.
    pub model_id: String,
    /// Voice; empty = the avatar's own.
    pub voice_id: String,
    /// Sample rate to request from the TTS, in Hz; `None` = the voice's own.
    pub sample_rate: Option<u32>,
    /// Words that are spoken differently from their spelling.
    pub custom_pronunciation: Vec<Pronunciation>,
    /// BCP 47 tag; empty = the provider's default.
    pub language: String,
    /// Base URL of the vendor's interface; `None` = the vendor's own server.
    pub url: Option<String>,
    /// API key. Secret.
    pub token: Option<String>,
    /// Further settings. A provider reads those that it knows.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Used after a failure, in this order. Their own lists are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<TtsChoice>,
    /// The agent's workspace: an operator's key may be limited to some.
    #[serde(skip)]
    pub workspace: String,
}

impl fmt::Debug for TtsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtsChoice")
            .field("provider", &self.provider)
            .field("model_id", &self.model_id)
            .field("voice_id", &self.voice_id)
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

/// A word that is spoken differently from its spelling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pronunciation {
    /// The word as written.
    pub word: String,
    /// The pronunciation in ordinary letters.
    pub pronunciation: String,
}

/// A pose set that comes with a call.
#[derive(Clone)]
pub struct PoseSetFile {
    /// The pose set file.
    pub data: Arc<[u8]>,
    /// Share of the avatar's poses in the file, in percent. While an avatar is drawn there are
    /// partial sets; more complete ones replace them.
    pub completeness: u8,
    /// Version of plan and renderer that drew it. A set of a newer version replaces it, too.
    pub version: u32,
}

impl PoseSetFile {
    /// Of two sets of one avatar, the one of the greater rank is better: version, then
    /// completeness. Sets of equal ranks are the same.
    #[must_use]
    pub fn rank(&self) -> (u32, u8) {
        (self.version, self.completeness)
    }
}

/// The agent's choice of avatar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AvatarChoice {
    /// `avatar_key_id`.
    pub avatar_key_id: String,
    /// Video frame rate: 25 or 30 frames per second.
    pub frame_rate: u32,
}

/// A rule that each user message is checked against, in parallel with the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guardrail {
    /// Its permanent key.
    pub key: String,
    /// A label.
    pub category: String,
    /// The rule, in natural language for a model.
    pub prompt: String,
    /// Spoken instead of the reply. Without it the rule is a tool: the LLM calls it, and the
    /// moderation endpoint's verdict is its result.
    pub response_message: Option<String>,
    /// URL to notify when the rule fires.
    pub callback_url: Option<String>,
}
