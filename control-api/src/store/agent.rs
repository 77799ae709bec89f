//! The documents of agents and templates. A request has the same form, with a few additions
//! (`resources/agents/parse.rs`). The JSON Schema of these types checks requests and is published.
//!
//! Every property is optional unless it is listed in `required`. A null counts as absent, except
//! where `x-null` says what it means.

use std::borrow::Cow;

use conversation::contract::participation_settings::MEETING_SETTING_KEYS;
use conversation::event::{ADDITIONAL_WEBHOOK_EVENTS, WEBHOOK_EVENTS};
use conversation::participation::Participation;
use conversation::settings::{DEFAULT_ERROR_MESSAGE, MAX_SECONDS, Settings, TURN_SETTING_KEYS};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Number, Value, json};

use super::background::Background;
use super::framing::{Framing, VideoSize};
use super::providers::Providers;

/// An event name that is accepted and stored, but never sent.
const ACTION_FOUND: &str = "action_found";

/// The lists of attached records, by the names of an agent's fields.
pub(crate) const ATTACHMENT_FIELDS: [&str; 4] = ["knowledge_base", "tool", "guardrail", "mcp"];

/// An agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Agent {
    #[schemars(length(min = 1))]
    pub(crate) agent_name: String,
    #[schemars(length(min = 1))]
    pub(crate) agent_system_prompt: String,
    #[serde(flatten)]
    pub(crate) settings: AgentSettings,
}

/// A template for agents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Template {
    #[schemars(length(min = 1))]
    pub(crate) template_name: String,
    #[schemars(length(min = 1))]
    pub(crate) template_system_prompt: String,
    #[serde(flatten)]
    pub(crate) settings: AgentSettings,
}

/// What agents and templates have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct AgentSettings {
    pub(crate) avatars: Vec<Avatar>,
    pub(crate) callback_events: Vec<CallbackEvent>,
    /// Receiver of webhooks; empty = none.
    #[schemars(extend("format" = "uri"))]
    pub(crate) callback_url: String,
    pub(crate) config: AgentConfig,
    pub(crate) knowledge_base: Option<RecordIds>,
    pub(crate) tool: Option<RecordIds>,
    pub(crate) guardrail: Option<RecordIds>,
    pub(crate) mcp: Option<RecordIds>,
    pub(crate) record: bool,
    pub(crate) is_active: bool,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) email: Option<String>,
    pub(crate) embed: Embed,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            avatars: Vec::new(),
            callback_events: Vec::new(),
            callback_url: String::new(),
            config: AgentConfig::default(),
            knowledge_base: None,
            tool: None,
            guardrail: None,
            mcp: None,
            record: false,
            is_active: true,
            kind: None,
            email: None,
            embed: Embed::default(),
        }
    }
}

impl AgentSettings {
    /// The ids of attached records in one of [`ATTACHMENT_FIELDS`]; `None` if it is not set.
    pub(crate) fn attachments(&self, field: &str) -> Option<&RecordIds> {
        match field {
            "knowledge_base" => self.knowledge_base.as_ref(),
            "tool" => self.tool.as_ref(),
            "guardrail" => self.guardrail.as_ref(),
            _ => self.mcp.as_ref(),
        }
    }

    /// The same, to change it.
    pub(crate) fn attachments_mut(&mut self, field: &str) -> Option<&mut RecordIds> {
        match field {
            "knowledge_base" => self.knowledge_base.as_mut(),
            "tool" => self.tool.as_mut(),
            "guardrail" => self.guardrail.as_mut(),
            _ => self.mcp.as_mut(),
        }
    }

    /// The ids of attached records in one of [`ATTACHMENT_FIELDS`].
    pub(crate) fn attached_ids(&self, field: &str) -> &[String] {
        self.attachments(field).map_or(&[], |ids| &ids.0)
    }

    /// The avatar of a call.
    pub(crate) fn first_avatar(&self) -> Cow<'_, Avatar> {
        self.avatars.first().map_or_else(|| Cow::Owned(Avatar::default()), Cow::Borrowed)
    }
}

/// The embed page of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Embed {
    pub(crate) enabled: bool,
    /// Origins that may embed the page; empty = all.
    pub(crate) origins: Vec<Origin>,
}

/// An origin such as `https://shop.example`, or `*` for any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("format" = "origin"))]
pub(crate) struct Origin(pub(crate) String);

/// Settings of calls that do not belong to an avatar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct AgentConfig {
    /// Maximum duration of a call, in seconds, if `maxCallDuration` sets none.
    #[schemars(range(min = 0, max = 86_400))]
    pub(crate) timeout: Option<Number>,
    /// Maximum duration of a call, in seconds; 0 = none.
    #[serde(rename = "maxCallDuration")]
    #[schemars(range(min = 0, max = 86_400))]
    pub(crate) max_call_duration: Option<Number>,
    /// Added to the system prompt.
    #[serde(rename = "conversationalContext")]
    pub(crate) conversational_context: String,
    pub(crate) memory: Memory,
    /// Spoken when an answer fails.
    #[schemars(extend("x-null" = "no message"))]
    pub(crate) error_message: Option<String>,
    /// Turn-taking.
    pub(crate) turn: TurnSettings,
    /// Whether clients get the names, arguments and results of tool calls.
    pub(crate) expose_tools: bool,
    /// Whether context from clients counts as the operator's.
    pub(crate) trust_client_context: bool,
    /// Whether calls are traced, for `visavis replay`.
    pub(crate) record_trace: bool,
    /// Whether the agent may end a call when the user says goodbye.
    pub(crate) end_call: bool,
    /// Whether language models are told how to set the avatar's expression. If they are not, it
    /// follows from the text.
    pub(crate) expressions: bool,
    /// Questions that the call page suggests to the visitor.
    #[schemars(length(max = 6), inner(length(min = 1, max = 120)))]
    pub(crate) suggested_questions: Vec<String>,
    /// How calls are recorded, if `record` is set.
    pub(crate) recording: Recording,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            timeout: None,
            max_call_duration: None,
            conversational_context: String::new(),
            memory: Memory::default(),
            error_message: Some(DEFAULT_ERROR_MESSAGE.into()),
            turn: TurnSettings::default(),
            expose_tools: false,
            trust_client_context: false,
            record_trace: false,
            end_call: true,
            expressions: true,
            suggested_questions: Vec::new(),
            recording: Recording::default(),
        }
    }
}

/// How calls are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Recording {
    /// Whether both voices share a channel.
    pub(crate) channels: RecordingChannels,
    /// Format of the file.
    pub(crate) format: RecordingFormat,
    /// Whether the pages and the RTVI clients say that the call is recorded.
    pub(crate) notice: bool,
    /// Spoken after the greeting.
    pub(crate) message: Option<String>,
    /// Whether a client may end and delete the recording during the call.
    pub(crate) optional: bool,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            channels: RecordingChannels::default(),
            format: RecordingFormat::default(),
            notice: true,
            message: None,
            optional: false,
        }
    }
}

/// The channels of a recording's sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordingChannels {
    /// Both voices in one channel.
    #[default]
    Mixed,
    /// The user left, the agent right.
    Split,
}

/// The format of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordingFormat {
    #[default]
    Webm,
    /// Needs `ffmpeg` on the server.
    Mp4,
}

/// Whether earlier conversations of the user enter the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Memory {
    #[serde(rename = "isEnabled")]
    pub(crate) is_enabled: bool,
    pub(crate) instruction: String,
}

/// One avatar of an agent, with the providers and messages of its calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Avatar {
    /// Required in an agent.
    pub(crate) avatar_key_id: Option<String>,
    /// Name of the persona; null = the avatar's name.
    pub(crate) persona_name: Option<String>,
    pub(crate) config: Providers,
    pub(crate) welcome_message: WelcomeMessage,
    pub(crate) idle_timeout: IdleTimeout,
    pub(crate) exit_heads_up_message: ExitWarning,
    pub(crate) exit_message: ExitMessage,
    pub(crate) turn_handling: TurnHandling,
    pub(crate) interruptability: Interruptability,
    /// Video frames per second.
    #[schemars(range(min = 1, max = 60))]
    pub(crate) frame_rate: Number,
    /// What replaces the avatar's own background; null = nothing. Drawn when the agent is saved.
    pub(crate) background: Option<Background>,
    /// How much of the avatar the video shows: the head, or head and chest. Another one than
    /// `close` is drawn when the agent is saved.
    pub(crate) framing: Framing,
    /// Width and height of the video in pixels; null = the avatar's own, which is 512x512 unless its
    /// photo has another `resolution`. Another one is drawn when the agent is saved.
    pub(crate) size: Option<VideoSize>,
}

impl Default for Avatar {
    fn default() -> Self {
        Self {
            avatar_key_id: None,
            persona_name: None,
            config: Providers::default(),
            welcome_message: WelcomeMessage::default(),
            idle_timeout: IdleTimeout::default(),
            exit_heads_up_message: ExitWarning::default(),
            exit_message: ExitMessage::default(),
            turn_handling: TurnHandling::default(),
            interruptability: Interruptability::default(),
            frame_rate: 25.into(),
            background: None,
            framing: Framing::default(),
            size: None,
        }
    }
}

/// The greeting: the messages take turns over an agent's conversations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct WelcomeMessage {
    /// Seconds from the start of the call.
    #[schemars(range(min = 0, max = 60))]
    pub(crate) wait_time: Number,
    pub(crate) messages: Vec<String>,
}

impl Default for WelcomeMessage {
    fn default() -> Self {
        Self { wait_time: 1.into(), messages: Vec::new() }
    }
}

/// What the agent says when the user is silent for long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct IdleTimeout {
    /// Seconds.
    #[schemars(range(min = 0, max = 86_400), extend("x-null" = "no call-outs"))]
    pub(crate) timeout: Option<Number>,
    pub(crate) filler_phrases: Vec<String>,
    /// Number of call-outs after which the call ends.
    #[schemars(range(min = 0, max = 1000), extend("x-null" = "the call does not end"))]
    pub(crate) end_after: Option<u32>,
}

impl Default for IdleTimeout {
    fn default() -> Self {
        Self { timeout: Some(30.into()), filler_phrases: Vec::new(), end_after: Some(3) }
    }
}

/// The warning before a call reaches its maximum duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ExitWarning {
    /// Seconds before the end.
    #[schemars(range(min = 0, max = 86_400))]
    pub(crate) callout_before: Number,
    /// The first one is spoken.
    pub(crate) messages: Vec<String>,
}

impl Default for ExitWarning {
    fn default() -> Self {
        Self { callout_before: 10.into(), messages: Vec::new() }
    }
}

/// The end of a call at its maximum duration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ExitMessage {
    /// The first one is spoken.
    pub(crate) messages: Vec<String>,
    /// Maximum duration of a call, in seconds, if `config` sets none.
    #[schemars(range(min = 0, max = 86_400))]
    pub(crate) max_call_duration: Option<Number>,
}

/// Preset of the endpointing delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TurnHandling {
    Proactive,
    #[default]
    Balanced,
    Deliberate,
}

impl TurnHandling {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Proactive => "proactive",
            Self::Balanced => "balanced",
            Self::Deliberate => "deliberate",
        }
    }
}

/// Preset of how easily the user interrupts the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Interruptability {
    Low,
    #[default]
    Medium,
    High,
}

impl Interruptability {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The name of an event that is sent to `callback_url`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CallbackEvent(pub(crate) String);

impl JsonSchema for CallbackEvent {
    fn schema_name() -> Cow<'static, str> {
        "CallbackEvent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = WEBHOOK_EVENTS
            .into_iter()
            .chain(ADDITIONAL_WEBHOOK_EVENTS)
            .chain([ACTION_FOUND])
            .collect();
        json_schema!({"type": "string", "enum": names})
    }
}

/// The keys of `config.turn` that are set, with the values that `conversation::settings` admits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TurnSettings(pub(crate) Map<String, Value>);

impl JsonSchema for TurnSettings {
    fn schema_name() -> Cow<'static, str> {
        "TurnSettings".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Its values have no types here, because the settings themselves check them.
        let mut properties = Map::new();
        for key in TURN_SETTING_KEYS {
            let mut property = json!({});
            if let Some(meaning) = null_meaning(key) {
                property["x-null"] = meaning.into();
            }
            properties.insert(key.into(), property);
        }
        properties.insert("meeting".into(), json!({}));
        json_schema!({"type": "object", "properties": properties, "additionalProperties": true})
    }
}

/// The schema of `config.turn` for readers: the types that the settings accept.
pub(crate) fn documented_turn_settings() -> Value {
    let accepts = |key: &str, value: Value| Settings::product_defaults().set(key, &value).is_ok();
    let mut properties = Map::new();
    for key in TURN_SETTING_KEYS {
        let kind = if accepts(key, true.into()) {
            "boolean"
        } else if accepts(key, 0.5.into()) {
            "number"
        } else {
            "integer"
        };
        let mut property = json!({"type": kind});
        if kind != "boolean" {
            property["minimum"] = 0.into();
        }
        if kind == "number" {
            property["maximum"] =
                if accepts(key, 2.into()) { MAX_SECONDS.into() } else { 1.into() };
        }
        if let Some(meaning) = null_meaning(key) {
            property["type"] = json!([kind, "null"]);
            property["x-null"] = meaning.into();
        }
        properties.insert(key.into(), property);
    }
    properties.insert("meeting".into(), documented_meeting_settings());
    json!({"type": "object", "properties": properties})
}

/// The same for `config.turn.meeting`.
fn documented_meeting_settings() -> Value {
    let mut properties = Map::new();
    for key in MEETING_SETTING_KEYS {
        let takes_seconds = Participation::default().set(key, &json!(1)).is_ok();
        let property = if takes_seconds {
            json!({"type": "number", "minimum": 0, "maximum": 600})
        } else {
            json!({"type": "string"})
        };
        properties.insert(key.into(), property);
    }
    json!({
        "type": "object",
        "description": "Turn-taking in external meetings.",
        "properties": properties,
    })
}

/// What null means as the value of a turn setting, if it has a meaning.
fn null_meaning(key: &str) -> Option<&'static str> {
    match key {
        "false_interruption_timeout" => Some("an interrupted reply is not resumed"),
        "transcript_timeout" => Some("no limit"),
        _ => None,
    }
}

/// Ids of attached records. A request may name each by its id or by an object with `id`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct RecordIds(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for RecordIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Item {
            Id(String),
            Record { id: String },
        }
        let mut ids = Vec::new();
        for item in Vec::<Item>::deserialize(deserializer)? {
            let (Item::Id(id) | Item::Record { id }) = item;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(Self(ids))
    }
}

impl JsonSchema for RecordIds {
    fn schema_name() -> Cow<'static, str> {
        "RecordIds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let record =
            json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
        json_schema!({"type": "array", "items": {"anyOf": [{"type": "string"}, record]}})
    }
}
