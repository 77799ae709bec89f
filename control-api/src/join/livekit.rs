//! Tokens for callers of LiveKit rooms, by the interface that LiveKit's clients expect of a token
//! endpoint.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use livekit_protocol::RoomAgentDispatch;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{BaseUrl, Json, Path};
use crate::http::peer::Peer;
use crate::http::validate::FieldErrors;
use crate::join::embed;
use crate::resources::conversations::{self, ContextValue, NewConversation};
use crate::resources::livekit::{
    CallerNames, LiveKitAccess, access, new_id, our_dispatch, require_livekit,
};
use crate::state::AppState;
use crate::state::livekit::{LiveKit, rooms};
use crate::store::conversation::Row;

/// Maximum size of a name or an identity, in bytes.
const MAX_TEXT_BYTES: usize = 200;
/// Maximum size of a caller's metadata and of all attributes together, in bytes.
const MAX_METADATA_BYTES: usize = 16 << 10;
/// How long a browser remembers the answer to a preflight request, in seconds.
const PREFLIGHT_SECONDS: &str = "600";

/// The route of the REST plane.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/livekit/token", post(create_token))
}

/// The route of embedded agents, which sets CORS headers of its own.
pub(crate) fn embed_routes() -> Router<Arc<AppState>> {
    Router::new().route("/embed/{agent_id}/token", post(create_visitor_token).options(preflight))
}

/// A request for a caller's token, as LiveKit's clients send it.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "LiveKitTokenBody")]
pub(crate) struct TokenRequest {
    /// Default: a new room.
    room_name: Option<String>,
    /// Identity of the caller, unique in the room. Default: a random one.
    participant_identity: Option<String>,
    participant_name: Option<String>,
    participant_metadata: Option<String>,
    participant_attributes: Option<HashMap<String, String>>,
    /// The agents of a new room: `{"agents": [{"agent_name", "metadata"}]}`. The metadata of an agent
    /// of this server are a JSON object with `agent_id`, `user_id`, `user_name`, `context` and
    /// `meta_data`. Default: `livekit.default_agent`.
    room_config: Option<Value>,
    /// Context of a visitor of an embedded agent.
    context: Option<ContextValue>,
}

impl TokenRequest {
    fn names(self) -> CallerNames {
        CallerNames {
            identity: self.participant_identity,
            name: self.participant_name,
            metadata: self.participant_metadata,
            attributes: self.participant_attributes.unwrap_or_default(),
        }
    }
}

fn read_request(body: Value) -> Result<TokenRequest, ApiError> {
    let errors = FieldErrors::default();
    let request: TokenRequest = body::read(body, &errors)?;
    for (name, text) in [
        ("room_name", &request.room_name),
        ("participant_identity", &request.participant_identity),
        ("participant_name", &request.participant_name),
    ] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
            errors.add(name, "must be at most 200 bytes");
        }
    }
    if request.participant_metadata.as_ref().is_some_and(|text| text.len() > MAX_METADATA_BYTES) {
        errors.add("participant_metadata", "must be at most 16 KiB");
    }
    let attributes = request.participant_attributes.iter().flatten();
    if attributes.map(|(key, value)| key.len() + value.len()).sum::<usize>() > MAX_METADATA_BYTES {
        errors.add("participant_attributes", "must be at most 16 KiB");
    }
    errors.into_result(request)
}

/// A caller's token, for holders of an API key.
async fn create_token(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<LiveKitAccess>), ApiError> {
    let request = read_request(body)?;
    let livekit = require_livekit(&state)?;
    let mut dispatches = Vec::new();
    let mut conversation = None;
    for dispatch in requested_agents(&request, livekit)? {
        if dispatch.agent_name != livekit.config.agent_name {
            dispatches.push(dispatch);
            continue;
        }
        if conversation.is_some() {
            let reason = "must name an agent of this server once";
            return Err(ApiError::invalid_field("room_config.agents", reason));
        }
        conversation = Some(create_conversation(&state, livekit, &caller, &dispatch).await?);
    }
    dispatches.extend(conversation.iter().map(|row| our_dispatch(&state, livekit, row)));
    let new_room =
        || rooms::name_of(&conversation.as_ref().map_or_else(new_id, |row: &Row| row.id.clone()));
    let given = request.room_name.clone().filter(|name| !name.is_empty());
    let room = given.unwrap_or_else(new_room);
    let access = access(livekit, &room, request.names(), dispatches, conversation.as_ref())?;
    Ok((StatusCode::CREATED, axum::Json(access)))
}

/// The agents that the request asks for: those of `room_config`, or the default agent.
fn requested_agents(
    request: &TokenRequest,
    livekit: &LiveKit,
) -> Result<Vec<RoomAgentDispatch>, ApiError> {
    let invalid = |reason: &str| ApiError::invalid_field("room_config.agents", reason);
    let agents = request.room_config.as_ref().and_then(|config| config.get("agents"));
    let Some(agents) = agents.filter(|agents| !agents.is_null()) else {
        let is_default = request.room_name.is_none() && livekit.config.default_agent.is_some();
        let agent_name = livekit.config.agent_name.clone();
        let own = RoomAgentDispatch { agent_name, ..RoomAgentDispatch::default() };
        return Ok(is_default.then_some(own).into_iter().collect());
    };
    let agents = agents.as_array().ok_or_else(|| invalid("must be an array"))?;
    let read = |agent: &Value| {
        let text = |name: &str| agent[name].as_str().unwrap_or_default().to_owned();
        agent.is_object().then(|| RoomAgentDispatch {
            agent_name: text("agent_name"),
            metadata: text("metadata"),
            ..RoomAgentDispatch::default()
        })
    };
    agents.iter().map(|agent| read(agent).ok_or_else(|| invalid("must have objects"))).collect()
}

/// The conversation of an agent that a holder of an API key dispatches.
async fn create_conversation(
    state: &AppState,
    livekit: &LiveKit,
    caller: &ApiCaller,
    dispatch: &RoomAgentDispatch,
) -> Result<Row, ApiError> {
    let text = if dispatch.metadata.trim().is_empty() { "{}" } else { &dispatch.metadata };
    let reason = "must have a JSON object as metadata";
    let invalid = || ApiError::invalid_field("room_config.agents", reason);
    let metadata: Value = serde_json::from_str(text).map_err(|_| invalid())?;
    let mut metadata = metadata.as_object().cloned().ok_or_else(invalid)?;
    if metadata.get("agent_id").is_none_or(Value::is_null)
        && let Some(default) = &livekit.config.default_agent
    {
        metadata.insert("agent_id".into(), json!(default));
    }
    let new = conversations::parse_new_conversation(Value::Object(metadata))?;
    conversations::create_record(state, &caller.workspace, &new).await
}

/// A visitor's token: for a new room with this agent only.
async fn create_visitor_token(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    BaseUrl(base): BaseUrl,
    peer: Peer,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    state.check_rate_limit(&state.rate_limits.embeds, peer)?;
    let Json(body) = <Json>::from_request(request, &()).await?;
    let mut visitor = read_request(body)?;
    let agent = embed::find_embeddable_agent(&state, &id).await?;
    if !embed::is_origin_allowed(&headers, &base, &agent.origins) {
        return Err(ApiError::Forbidden("This page may not use the agent"));
    }
    require_livekit(&state)?;
    let [user_name, user_id, context] = embed::parse_visitor(json!({
        "userName": visitor.participant_name,
        "userId": visitor.participant_identity,
        "context": visitor.context.take().map(|context| context.to_json())
            .and_then(|text| serde_json::from_str::<Value>(&text).ok()),
    }))?;
    let new = NewConversation {
        agent: agent.id,
        user_name,
        user_id,
        context,
        from_visitor: true,
        meta_data: None,
        meeting: None,
    };
    let row = conversations::create_record(&state, &agent.workspace, &new).await?;
    let livekit = require_livekit(&state)?;
    let room = rooms::name_of(&row.id);
    let dispatches = vec![our_dispatch(&state, livekit, &row)];
    let access = access(livekit, &room, visitor.names(), dispatches, Some(&row))?;
    let mut response = (StatusCode::CREATED, axum::Json(access)).into_response();
    allow_origin(response.headers_mut(), &headers);
    Ok(response)
}

/// Answers the question of a browser whether a page of another origin may ask for a token.
async fn preflight(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    BaseUrl(base): BaseUrl,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let agent = embed::find_embeddable_agent(&state, &id).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if embed::is_origin_allowed(&headers, &base, &agent.origins) {
        let answer = response.headers_mut();
        allow_origin(answer, &headers);
        let post = HeaderValue::from_static("POST");
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, post);
        answer
            .insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type"));
        answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
    }
    Ok(response)
}

fn allow_origin(response: &mut HeaderMap, request: &HeaderMap) {
    if let Some(origin) = request.get(header::ORIGIN) {
        response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    response.append(header::VARY, HeaderValue::from_static("origin"));
}
