//! The REST representation of a conversation: the projection of its events, and the other columns
//! of its row.

use conversation::event::{EndReason, Role};
use conversation::time::Time;
use conversation::view::{ConversationView, round_to_millis};
use serde_json::{Map, Value, json};

use crate::clock::{self, Micros, to_iso8601};
use crate::scope::Scope;
use crate::state::AppState;
use crate::state::join_token::Claims;
use crate::store;
use crate::store::conversation::{ENDED, Row, STARTED};

/// Name of an end reason.
pub(crate) fn end_reason_name(reason: EndReason) -> &'static str {
    match reason {
        EndReason::UserLeft => "user_left",
        EndReason::EndedByApi => "ended_by_api",
        EndReason::MaxCallDuration => "max_call_duration",
        EndReason::NoJoin => "no_join",
        EndReason::Idle => "idle",
        EndReason::Error => "error",
        EndReason::MeetingEnded => "meeting_ended",
    }
}

/// The part of a record that follows from the events. `base`: wall clock time of the conversation's
/// start.
pub(crate) fn projection_to_json(view: &ConversationView, id: &str, started_at: Micros) -> Value {
    let wall_clock = |at: Time| Value::from(to_iso8601(started_at.saturating_add(at.as_micros() as Micros)));
    let transcript: Vec<Value> = view
        .transcript()
        .map(|item| {
            let role = if item.role == Role::User { "user" } else { "assistant" };
            json!({
                "timestamp": wall_clock(item.started_at),
                "role": role,
                "content": item.text,
                "conversation_id": id,
                "message_timestamp": round_to_millis(item.started_at.as_seconds()),
            })
        })
        .collect();
    json!({
        "transcript": transcript,
        "chat_history": view.chat_history(wall_clock),
        "snippets": view.snippets_json(),
        // Every call sends video for its whole duration, unless the page requested none, which no
        // event records.
        "usage_json": view.usage_json(view.duration()).to_string(),
        "warnings": view.warnings,
        "turns": view.turns,
    })
}

/// The projection in a record: stored with an ended conversation, otherwise computed from its
/// events.
pub(crate) async fn load_projection(state: &AppState, row: &Row) -> store::Result<Value> {
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
    Ok(projection_to_json(&view, &row.id, row.joined_at.unwrap_or(row.created_at)))
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

fn parse_or_null(text: Option<&str>) -> Value {
    text.and_then(|t| serde_json::from_str(t).ok()).unwrap_or(Value::Null)
}

/// The fields of both forms, without the projection.
fn common_fields(row: &Row) -> Map<String, Value> {
    let fields = json!({
        "id": row.id,
        "agent_id": row.agent,
        "agent_name": row.agent_name,
        "avatar_id": row.avatar_id,
        "user_id": row.user_id,
        "user_name": row.user_name,
        "context": row.context,
        "status": row.status,
        "end_reason": row.end_reason,
        "type": row.kind,
        "meta_data": parse_or_null(row.meta_data.as_deref()),
        "feedback": row.feedback,
        "rating": row.rating,
        "usage_status": if row.status == ENDED { "completed" } else { "pending" },
        "is_active": row.status != ENDED,
        "created_at": to_iso8601(row.created_at),
        "updated_at": to_iso8601(row.updated_at),
        "joined_at": row.joined_at.map(to_iso8601),
        "ended_at": row.ended_at.map(to_iso8601),
    });
    match fields {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// An element of the list, as an API key with this scope sees it.
pub(crate) fn list_item(
    state: &AppState,
    row: &Row,
    mut projection: Value,
    base: &str,
    scope: Scope,
) -> Value {
    let mut record = common_fields(row);
    let link =
        if scope < Scope::Operate { join_link_without_token(row, base) } else { join_link(state, row, base) };
    record.insert("join_link".into(), link.into());
    record.insert("job_id".into(), Value::Null);
    for name in ["usage_json", "snippets", "chat_history"] {
        record.insert(name.into(), projection[name].take());
    }
    Value::Object(record)
}

/// The single-record form.
pub(crate) fn detail(row: &Row, mut projection: Value) -> Value {
    let mut record = common_fields(row);
    record.insert("is_recorded".into(), false.into());
    record.insert("recording_url".into(), "".into());
    for name in ["transcript", "chat_history", "snippets", "usage_json", "warnings"] {
        record.insert(name.into(), projection[name].take());
    }
    Value::Object(record)
}

/// Whether the time for the first join has expired.
pub(crate) fn is_join_expired(state: &AppState, row: &Row) -> bool {
    clock::now() >= row.created_at.saturating_add(clock::to_micros(state.config.timeouts.token))
}
