//! The REST representation of a conversation: the projection of its events, and the other columns
//! of its row.

use std::borrow::Cow;

use conversation::event::{EndReason, Role};
use conversation::time::Time;
use conversation::view::{ConversationView, round_to_millis};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock::{self, Iso8601, Micros, to_iso8601};
use crate::scope::Scope;
use crate::state::AppState;
use crate::state::join_token::Claims;
use crate::store;
use crate::store::conversation::{ENDED, Row, STARTED};
use crate::store::meeting;

/// Name of an end reason.
pub(crate) const fn end_reason_name(reason: EndReason) -> &'static str {
    match reason {
        EndReason::UserLeft => "user_left",
        EndReason::EndedByApi => "ended_by_api",
        EndReason::MaxCallDuration => "max_call_duration",
        EndReason::NoJoin => "no_join",
        EndReason::Idle => "idle",
        EndReason::Error => "error",
        EndReason::MeetingEnded => "meeting_ended",
        EndReason::AgentEnded => "agent_ended",
    }
}

/// The part of a record that follows from the events. Stored with an ended conversation.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredRecord {
    pub(crate) transcript: Vec<TranscriptEntry>,
    chat_history: Value,
    snippets: Value,
    usage_json: String,
    warnings: Vec<String>,
    pub(crate) is_recorded: bool,
    pub(crate) turns: Value,
}

/// One utterance of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TranscriptEntry {
    #[schemars(extend("format" = "date-time"))]
    timestamp: String,
    #[schemars(extend("enum" = ["user", "assistant"]))]
    pub(crate) role: Cow<'static, str>,
    /// The name of the person who spoke, if several people take part and it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    speaker: Option<String>,
    pub(crate) content: String,
    #[schemars(extend("format" = "uuid"))]
    conversation_id: String,
    /// When its first word was spoken, in seconds since the start of the conversation.
    message_timestamp: f64,
}

impl StoredRecord {
    /// `started_at`: wall clock time of the conversation's start.
    pub(crate) fn new(view: &ConversationView, id: &str, started_at: Micros) -> Self {
        let wall_clock = |at: Time| to_iso8601(started_at.saturating_add(at.as_micros() as Micros));
        let transcript = view.transcript().map(|item| TranscriptEntry {
            timestamp: wall_clock(item.started_at),
            role: if item.role == Role::User { "user" } else { "assistant" }.into(),
            speaker: item.speaker.clone(),
            content: item.text.clone(),
            conversation_id: id.to_owned(),
            message_timestamp: round_to_millis(item.started_at.as_seconds()),
        });
        Self {
            transcript: transcript.collect(),
            chat_history: view.chat_history(|at| wall_clock(at).into()),
            snippets: view.snippets_json(),
            // Every call sends video for its whole duration, unless the page requested none, which
            // no event records.
            usage_json: view.usage_json(view.duration()).to_string(),
            warnings: view.warnings.clone(),
            is_recorded: view.is_recorded,
            turns: json!(view.turns),
        }
    }
}

/// The projection in a record: stored with an ended conversation, otherwise computed from its
/// events.
pub(crate) async fn load_projection(state: &AppState, row: &Row) -> store::Result<StoredRecord> {
    if let Some(record) = &row.record {
        return serde_json::from_str(record)
            .map_err(|e| store::Error::CorruptRow("conversation", e.to_string()));
    }
    let mut view = ConversationView::default();
    if row.status != STARTED {
        for event in state.store.events(&row.id, 0).await? {
            view.apply(&event);
        }
    }
    Ok(StoredRecord::new(&view, &row.id, row.joined_at.unwrap_or(row.created_at)))
}

/// The session token of a conversation.
pub(crate) fn session_token(state: &AppState, id: &str, created_at: Micros) -> Option<String> {
    let iat = u64::try_from(created_at / 1_000_000).ok()?;
    let exp = iat + state.config.timeouts.token.as_secs();
    Some(state.token_signer.sign(&Claims { sub: id.parse().ok()?, iat, exp }))
}

/// The page where a user joins.
pub(crate) fn join_link(state: &AppState, row: &Row, base: &str) -> String {
    let token = session_token(state, &row.id, row.created_at).unwrap_or_default();
    format!("{base}/join/{}#token={token}", row.id)
}

/// The same page for an API key that may not hold conversations: without the token, which would
/// permit it.
fn join_link_without_token(row: &Row, base: &str) -> String {
    format!("{base}/join/{}", row.id)
}

// The schema of `chat_history`, which `ConversationView::chat_history` builds.

/// What was said in a conversation.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes a value")]
struct ChatHistory {
    /// In the order of their ends.
    messages: Vec<ChatMessage>,
}

/// A message of a conversation: spoken, returned by a tool, or context from a command.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes a value")]
struct ChatMessage {
    #[schemars(extend("enum" = ["user", "assistant", "tool", "system", "visitor"]))]
    role: String,
    /// The name of the person who spoke, if several people take part and it is known.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    speaker: Option<String>,
    /// The text: spoken by the user, heard from the agent, or returned by the tool.
    content: String,
    #[schemars(extend("format" = "date-time"))]
    timestamp: String,
    /// Start of the message, in seconds since the start of the conversation, which is that of the
    /// recording: the first sample of the agent's utterance, or the begin of the user's speech.
    seconds_from_start: f64,
    /// Seconds from the start to the end of the message.
    duration: f64,
    /// The agent's utterance.
    speech_id: Option<String>,
    /// Whether the agent was cut.
    interrupted: bool,
    /// Of a message of a tool.
    #[schemars(with = "ChatToolCall", skip_serializing_if = "Option::is_none")]
    tool_call: Option<ChatToolCall>,
    /// The words of a message of the agent, if the call is recorded and the voice reports the times
    /// of all of them. A word that was cut is absent.
    #[schemars(with = "Vec<ChatWord>", skip_serializing_if = "Option::is_none")]
    words: Option<Vec<ChatWord>>,
}

/// A call of a tool.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes a value")]
struct ChatToolCall {
    name: String,
    #[schemars(with = "Option<Map<String, Value>>")]
    arguments: Value,
    /// Of a tool that failed, the reason.
    result: String,
    #[schemars(extend("enum" = ["completed", "failed"]))]
    status: String,
}

/// A word that was heard.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes a value")]
struct ChatWord {
    /// The word as in `content`, with its punctuation.
    text: String,
    /// When it began, in seconds of the recording, which starts with the conversation.
    start: f64,
    /// When it ended.
    end: f64,
}

/// The fields of both representations.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConversationFields<'a> {
    #[schemars(extend("format" = "uuid"))]
    id: &'a str,
    #[schemars(extend("format" = "uuid"))]
    agent_id: &'a str,
    agent_name: &'a str,
    avatar_id: &'a str,
    user_id: Option<&'a str>,
    user_name: Option<&'a str>,
    /// JSON: a text or an object.
    context: Option<&'a str>,
    #[schemars(extend("enum" = ["STARTED", "IN_PROGRESS", "ENDED"]))]
    status: &'a str,
    end_reason: Option<&'a str>,
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    #[schemars(with = "Option<Map<String, Value>>")]
    meta_data: Option<Value>,
    feedback: Option<&'a str>,
    rating: Option<i64>,
    #[schemars(extend("enum" = ["pending", "completed"]))]
    usage_status: &'static str,
    is_active: bool,
    created_at: Iso8601,
    updated_at: Iso8601,
    joined_at: Option<Iso8601>,
    ended_at: Option<Iso8601>,
    /// The external meeting, without passwords. Only of a conversation in a meeting, as are the
    /// next fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    meeting_url: Option<&'a str>,
    /// Where the agent is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [
        "joining", "waiting_room", "in_call", "left", "done", "error"
    ]))]
    meeting_status: Option<&'static str>,
    /// Why the agent is not in the meeting any more; absent before, and after the conversation was
    /// ended from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [
        "denied", "lobby_timeout", "removed", "alone", "ended", "service_error", "not_found",
        "login_required", "host_missing"
    ]))]
    meeting_detail: Option<&'a str>,
}

impl<'a> ConversationFields<'a> {
    fn new(row: &'a Row, meeting: Option<&'a meeting::Row>) -> Self {
        let is_ended = row.status == ENDED;
        Self {
            id: &row.id,
            agent_id: &row.agent,
            agent_name: &row.agent_name,
            avatar_id: &row.avatar_id,
            user_id: row.user_id.as_deref(),
            user_name: row.user_name.as_deref(),
            context: row.context.as_deref(),
            status: &row.status,
            end_reason: row.end_reason.as_deref(),
            kind: row.kind.as_deref(),
            meta_data: row.meta_data.as_deref().and_then(|text| serde_json::from_str(text).ok()),
            feedback: row.feedback.as_deref(),
            rating: row.rating,
            usage_status: if is_ended { "completed" } else { "pending" },
            is_active: !is_ended,
            created_at: Iso8601(row.created_at),
            updated_at: Iso8601(row.updated_at),
            joined_at: row.joined_at.map(Iso8601),
            ended_at: row.ended_at.map(Iso8601),
            meeting_url: meeting.map(|meeting| &*meeting.url),
            meeting_status: meeting.map(|meeting| meeting.status().as_str()),
            meeting_detail: meeting.and_then(|meeting| meeting.detail.as_deref()),
        }
    }
}

/// A conversation in a list.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ListedConversation<'a> {
    #[serde(flatten)]
    fields: ConversationFields<'a>,
    /// The page where a user joins; without its token if the key may not hold conversations.
    join_link: String,
    job_id: Option<String>,
    /// JSON.
    usage_json: String,
    #[schemars(with = "Map<String, Value>")]
    snippets: Value,
    #[schemars(with = "ChatHistory")]
    chat_history: Value,
}

/// A conversation with its transcript.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Conversation<'a> {
    #[serde(flatten)]
    fields: ConversationFields<'a>,
    is_recorded: bool,
    /// A link to the recording, new in each response; empty until it is stored.
    recording_url: String,
    /// Why the recording has failed, so that there is no link and will be none. Otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    recording_error: Option<String>,
    transcript: Vec<TranscriptEntry>,
    #[schemars(with = "ChatHistory")]
    chat_history: Value,
    #[schemars(with = "Map<String, Value>")]
    snippets: Value,
    /// JSON.
    usage_json: String,
    warnings: Vec<String>,
}

/// An element of the list, as an API key with this scope sees it.
pub(crate) fn list_item<'a>(
    state: &AppState,
    row: &'a Row,
    meeting: Option<&'a meeting::Row>,
    projection: StoredRecord,
    base: &str,
    scope: Scope,
) -> ListedConversation<'a> {
    let join_link = if scope < Scope::Operate {
        join_link_without_token(row, base)
    } else {
        join_link(state, row, base)
    };
    ListedConversation {
        fields: ConversationFields::new(row, meeting),
        join_link,
        job_id: None,
        usage_json: projection.usage_json,
        snippets: projection.snippets,
        chat_history: projection.chat_history,
    }
}

/// Whether a conversation is recorded, and where.
#[derive(Default)]
pub(crate) struct RecordingView {
    pub(crate) is_recorded: bool,
    /// Empty until it is stored.
    pub(crate) url: String,
    /// Why there is no file, and will be none.
    pub(crate) error: Option<String>,
    /// What it waits for after a failure, in one sentence.
    pub(crate) waiting: Option<String>,
}

/// The single-record form.
pub(crate) fn detail<'a>(
    row: &'a Row,
    meeting: Option<&'a meeting::Row>,
    projection: StoredRecord,
    recording: RecordingView,
) -> Conversation<'a> {
    let mut warnings = projection.warnings;
    warnings.extend(recording.waiting);
    Conversation {
        fields: ConversationFields::new(row, meeting),
        is_recorded: recording.is_recorded,
        recording_url: recording.url,
        recording_error: recording.error,
        transcript: projection.transcript,
        chat_history: projection.chat_history,
        snippets: projection.snippets,
        usage_json: projection.usage_json,
        warnings,
    }
}

/// Whether the time for the first join has expired. The agent may wait for its admission to a
/// meeting for longer; the token is then valid until the conversation ends.
pub(crate) fn is_join_expired(state: &AppState, row: &Row) -> bool {
    row.meeting.is_none()
        && clock::now()
            >= row.created_at.saturating_add(clock::to_micros(state.config.timeouts.token))
}
