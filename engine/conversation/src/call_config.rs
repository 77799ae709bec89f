//! What a call needs from its agent, besides the [`Spec`] of its turn-taking: plain data, known to no vendor.
//! Snapshotted when the user joins; changes of the agent apply from the next conversation.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{Knowledge, RemoteTool, ToolServers};
use crate::spec::Spec;

/// A conversation's id: a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ConversationId(pub u128);

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e] = [
            self.0 >> 96,
            self.0 >> 80 & 0xffff,
            self.0 >> 64 & 0xffff,
            self.0 >> 48 & 0xffff,
            self.0 & 0xffff_ffff_ffff,
        ];
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

impl fmt::Debug for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no UUID of the form 8-4-4-4-12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID")]
pub struct InvalidUuid;

impl FromStr for ConversationId {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        let bytes = text.as_bytes();
        let dashes = [8, 13, 18, 23];
        let shape = bytes.len() == 36
            && bytes
                .iter()
                .enumerate()
                .all(|(i, b)| if dashes.contains(&i) { *b == b'-' } else { b.is_ascii_hexdigit() });
        if !shape {
            return Err(InvalidUuid);
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Self).map_err(|_| InvalidUuid)
    }
}

impl From<ConversationId> for String {
    fn from(id: ConversationId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ConversationId {
    type Error = InvalidUuid;

    fn try_from(text: String) -> Result<Self, InvalidUuid> {
        text.parse()
    }
}

/// All that the engine is told about a call.
#[derive(Clone)]
pub struct CallConfig {
    /// Which conversation.
    pub id: ConversationId,
    /// Turn-taking.
    pub spec: Spec,
    /// The agent's name.
    pub agent_name: String,
    /// The system prompt, context and memory included.
    pub system_prompt: String,
    /// Who listens and understands.
    pub stt: SttChoice,
    /// Who thinks.
    pub llm: LlmChoice,
    /// Who speaks.
    pub tts: TtsChoice,
    /// Whose face.
    pub avatar: AvatarChoice,
    /// The face itself, where it is none of the engine's own.
    pub pose_set: Option<PoseSetFile>,
    /// What the LLM may call.
    pub tools: Vec<Tool>,
    /// Who brings more of them once the call has begun.
    pub tool_servers: Option<Arc<dyn ToolServers>>,
    /// What the user's messages are checked against, in the order in which it counts.
    pub guardrails: Vec<Guardrail>,
    /// What the agent knows, if anything.
    pub knowledge: Option<Arc<dyn Knowledge>>,
    /// Whether outside clients see the arguments and results of tools.
    pub expose_tools: bool,
    /// Whether the operator controls the clients: what they tell then counts as the operator's word.
    pub trust_client_context: bool,
    /// Whether the inputs are written as a trace.
    pub record_trace: bool,
}

impl CallConfig {
    /// A call of an agent that was told nothing and chose nothing: what tests and measurements begin with.
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
        }
    }
}

/// The agent's choice of speech to text. Names are free strings, resolved when the call starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SttChoice {
    /// Vendor; empty = built in.
    pub provider: String,
    /// Model; empty = the vendor's default.
    pub model: String,
    /// Tried after a failure.
    pub fallback_model: Option<String>,
    /// BCP 47; empty = en.
    pub language: String,
}

/// The agent's choice of language model.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlmChoice {
    /// Vendor; empty = built in; `custom` = any OpenAI-compatible server at `url`.
    pub provider: String,
    /// Model.
    pub model: String,
    /// Asked after a failure.
    pub fallback_model: Option<String>,
    /// Base that ends in `/v1`.
    pub url: Option<String>,
    /// Bearer token. Secret.
    pub token: Option<String>,
}

impl fmt::Debug for LlmChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmChoice")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The agent's choice of voice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TtsChoice {
    /// Vendor; empty = built in.
    pub provider: String,
    /// Model.
    pub model_id: String,
    /// Voice; empty = the avatar's own.
    pub voice_id: String,
    /// Rate asked of the voice in Hz; `None` = its own.
    pub sample_rate: Option<u32>,
    /// Words spoken otherwise than written.
    pub custom_pronunciation: Vec<Pronunciation>,
}

/// A word spoken otherwise than written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pronunciation {
    /// As written.
    pub word: String,
    /// As it should sound, in ordinary letters.
    pub pronunciation: String,
}

/// A face that comes with a call.
#[derive(Clone)]
pub struct PoseSetFile {
    /// The file of a pose set.
    pub data: Arc<[u8]>,
    /// How much of the person it shows, in percent: while somebody is drawn there are sets of a part, and better ones follow.
    pub completeness: u8,
}

/// The agent's choice of face.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AvatarChoice {
    /// `avatar_key_id`.
    pub avatar_key_id: String,
    /// Pictures a second: 25 or 30.
    pub frame_rate: u32,
}

/// A rule that the user's messages are checked against beside the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guardrail {
    /// Its permanent name.
    pub key: String,
    /// A tag.
    pub category: String,
    /// The rule, in words for a model.
    pub prompt: String,
    /// Said in the reply's place; without it a moderation endpoint is asked, and the model is told what it says.
    pub response_message: Option<String>,
    /// Who is told.
    pub callback_url: Option<String>,
}

/// A tool that the LLM may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name, as the LLM sees it.
    pub name: String,
    /// What it does, for the LLM.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// How it is run.
    pub backend: ToolBackend,
}

/// A tool of a server. Equal only to itself.
#[derive(Clone)]
pub struct RemoteToolHandle(pub Arc<dyn RemoteTool>);

impl PartialEq for RemoteToolHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// How a tool is run.
#[derive(Clone, PartialEq)]
pub enum ToolBackend {
    /// By HTTP.
    Http {
        /// GET, POST, PUT, PATCH or DELETE.
        method: String,
        /// With `{param}`s.
        url: String,
        /// Secret values.
        headers: Vec<(String, String)>,
    },
    /// In the user's browser, over the data channel.
    Client,
    /// By a server of tools.
    Remote(RemoteToolHandle),
    /// It is a guardrail without words of its own: what the moderation endpoint says of the user's message is the result.
    Moderation,
}

impl fmt::Debug for ToolBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { method, url, .. } => write!(f, "{method} {url}"),
            Self::Client => f.write_str("client"),
            Self::Remote(_) => f.write_str("remote"),
            Self::Moderation => f.write_str("moderation"),
        }
    }
}
