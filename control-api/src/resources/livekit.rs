//! Access to LiveKit rooms: the tokens of callers, and the webhooks of the LiveKit server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::routing::post;
use livekit_protocol::RoomAgentDispatch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::ApiError;
use crate::events::record;
use crate::http::extract::read_body;
use crate::state::AppState;
use crate::state::livekit::tokens::{CallerToken, TokenError};
use crate::state::livekit::{LiveKit, ReportedRoom, rooms};
use crate::store::conversation::Row;

/// Maximum size of a webhook, in bytes.
const MAX_WEBHOOK_BYTES: usize = 1 << 20;
/// Attributes with these prefixes belong to LiveKit and to agents.
const RESERVED_PREFIXES: [&str; 2] = ["lk.", "visavis."];
/// Identities with this prefix belong to agents.
pub(crate) const AGENT_PREFIX: &str = "agent-";
/// Maximum size of an identity, in bytes. LiveKit refuses longer ones than 256.
pub(crate) const MAX_IDENTITY_BYTES: usize = 200;
/// Validity of a caller's token for a room without an agent of this server.
const DEFAULT_VALIDITY: Duration = Duration::from_secs(3_600);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/livekit/webhook", post(receive_webhook))
}

/// What a caller says about itself.
#[derive(Default)]
pub(crate) struct CallerNames {
    /// Default: a random one.
    pub(crate) identity: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) attributes: HashMap<String, String>,
}

/// A caller's token.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LiveKitAccess {
    server_url: String,
    participant_token: String,
    room_name: String,
    /// The conversation that begins when the caller joins; null if no agent of this server does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uuid"))]
    conversation_id: Option<String>,
}

/// The LiveKit server of the configuration, or 409.
pub(crate) fn require_livekit(state: &AppState) -> Result<&Arc<LiveKit>, ApiError> {
    let missing = || ApiError::Conflict("LiveKit is not configured: set livekit.url".into());
    state.livekit.as_ref().ok_or_else(missing)
}

/// What dispatches the agent of a conversation to its room.
pub(crate) fn our_dispatch(state: &AppState, livekit: &LiveKit, row: &Row) -> RoomAgentDispatch {
    // The token proves that the conversation was made for this job.
    let token = record::session_token(state, &row.id, row.created_at);
    RoomAgentDispatch {
        agent_name: livekit.config.agent_name.clone(),
        metadata: json!({"conversation_id": row.id, "token": token}).to_string(),
        ..RoomAgentDispatch::default()
    }
}

/// A caller's access to a room, which dispatches agents if the room is new.
pub(crate) fn access(
    state: &AppState,
    livekit: &LiveKit,
    room: &str,
    names: CallerNames,
    dispatches: Vec<RoomAgentDispatch>,
    conversation: Option<&Row>,
) -> Result<LiveKitAccess, ApiError> {
    let given = names.identity.filter(|identity| !identity.is_empty());
    let identity = given.unwrap_or_else(|| format!("user-{}", new_id()));
    let is_free = |(name, _): &(String, String)| {
        !RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    // Clients reuse a token as long as it is valid, so it must not outlive its conversation.
    let timeouts = &state.config.timeouts;
    let validity = conversation.map_or(DEFAULT_VALIDITY, |_| timeouts.join.min(timeouts.token));
    let caller = CallerToken {
        room,
        identity: &identity,
        name: names.name.as_deref().unwrap_or_default(),
        metadata: names.metadata.as_deref().unwrap_or_default(),
        attributes: names.attributes.into_iter().filter(is_free).collect(),
        dispatches,
        validity,
    };
    let failed = |error: TokenError| ApiError::Internal("Internal server error", error.to_string());
    Ok(LiveKitAccess {
        server_url: livekit.client_url(),
        participant_token: livekit.tokens.caller(caller).map_err(failed)?,
        room_name: room.to_owned(),
        conversation_id: conversation.map(|row| row.id.clone()),
    })
}

/// What the client of a new conversation needs to join its room.
pub(crate) fn access_of_conversation(
    state: &AppState,
    row: &Row,
) -> Result<LiveKitAccess, ApiError> {
    let livekit = require_livekit(state)?;
    let is_identity = |id: &String| id.len() <= MAX_IDENTITY_BYTES && !id.starts_with(AGENT_PREFIX);
    let (identity, name) = (row.user_id.clone().filter(is_identity), row.user_name.clone());
    let names = CallerNames { identity, name, ..CallerNames::default() };
    let dispatches = vec![our_dispatch(state, livekit, row)];
    access(state, livekit, &rooms::name_of(&row.id), names, dispatches, Some(row))
}

pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// What of a webhook is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WebhookEvent {
    event: String,
    room: WebhookRoom,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WebhookRoom {
    name: String,
    sid: String,
}

/// A webhook of the LiveKit server. It only tells which room to look at.
async fn receive_webhook(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let livekit = require_livekit(&state)?;
    let (parts, body) = request.into_parts();
    let body = read_body(body, &parts.headers, MAX_WEBHOOK_BYTES).await?;
    let token = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !livekit.tokens.is_genuine(token.unwrap_or_default(), &body) {
        return Err(ApiError::Unauthorized);
    }
    let event: WebhookEvent = serde_json::from_slice(&body)
        .map_err(|_| ApiError::BadRequest("the event is malformed".into()))?;
    if matches!(
        &*event.event,
        "participant_joined" | "participant_left" | "participant_connection_aborted"
    ) && !event.room.name.is_empty()
    {
        livekit.report(ReportedRoom { name: event.room.name, sid: event.room.sid });
    }
    Ok(StatusCode::OK)
}
