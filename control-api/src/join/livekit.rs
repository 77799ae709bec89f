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

use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{BaseUrl, Json, Path};
use crate::http::peer::Peer;
use crate::http::validate::FieldErrors;
use crate::join::embed;
use crate::resources::conversations::{self, ContextValue, NewConversation};
use crate::resources::livekit::{
    AGENT_PREFIX, CallerNames, LiveKitAccess, MAX_IDENTITY_BYTES, access, new_id, our_dispatch,
    require_livekit,
};
use crate::state::AppState;
use crate::state::livekit::{LiveKit, rooms};
use crate::store::conversation::Row;

/// Maximum size of a name, in bytes.
const MAX_TEXT_BYTES: usize = MAX_IDENTITY_BYTES;
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
    /// Default: a new room. Agents are dispatched only if the room does not exist yet. Keys of
    /// workspaces other than `livekit.workspace` may name only rooms of their own conversations.
    room_name: Option<String>,
    /// Identity of the caller, unique in the room. It must not begin with `agent-`. Default: a random
    /// one.
    participant_identity: Option<String>,
    participant_name: Option<String>,
    participant_metadata: Option<String>,
    participant_attributes: Option<HashMap<String, String>>,
    /// The agents of a new room: `{"agents": [{"agent_name", "metadata"}]}`. The metadata of an agent
    /// of this server are the text of a JSON object with `agent_id`, `user_id`, `user_name`,
    /// `context` and `meta_data`. Default: `livekit.default_agent`.
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
    if request.participant_identity.as_ref().is_some_and(|id| id.starts_with(AGENT_PREFIX)) {
        errors.add("participant_identity", "must not begin with \"agent-\"");
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
    check_room(&state, livekit, &caller, &request).await?;
    let mut dispatches = Vec::new();
    let mut conversation = None;
    for dispatch in requested_agents(&request, livekit)? {
        if dispatch.agent_name != livekit.config.agent_name {
            if *caller.workspace != *livekit.workspace {
                let reason = "must name agents of this server only";
                return Err(ApiError::invalid_field("room_config.agents", reason));
            }
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
    let access =
        access(&state, livekit, &room, request.names(), dispatches, conversation.as_ref())?;
    Ok((StatusCode::CREATED, axum::Json(access)))
}

/// Checks that the caller's workspace may name the room. The LiveKit project belongs to
/// `livekit.workspace`; other workspaces share it.
async fn check_room(
    state: &AppState,
    livekit: &LiveKit,
    caller: &ApiCaller,
    request: &TokenRequest,
) -> Result<(), ApiError> {
    let Some(room) = request.room_name.as_deref().filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    match rooms::conversation_of_name(room) {
        Some(id) => {
            let row = state.store.conversation_in_any_workspace(id).await?;
            let is_own = row.is_none_or(|row| *row.workspace == *caller.workspace);
            is_own.then_some(()).ok_or(ApiError::NotFound(Resource::Conversation))
        }
        None if *caller.workspace == *livekit.workspace => Ok(()),
        None => Err(ApiError::invalid_field("room_name", "must be a room of a conversation")),
    }
}

/// The agents that the request asks for: those of `room_config`, or the default agent.
fn requested_agents(
    request: &TokenRequest,
    livekit: &LiveKit,
) -> Result<Vec<RoomAgentDispatch>, ApiError> {
    let invalid = |reason: &str| ApiError::invalid_field("room_config.agents", reason);
    let config = request.room_config.as_ref().filter(|config| !config.is_null());
    if config.is_some_and(|config| !config.is_object()) {
        return Err(ApiError::invalid_field("room_config", "must be an object"));
    }
    let agents = config.and_then(|config| config.get("agents"));
    let Some(agents) = agents.filter(|agents| !agents.is_null()) else {
        let is_default = request.room_name.is_none() && livekit.config.default_agent.is_some();
        let agent_name = livekit.config.agent_name.clone();
        let own = RoomAgentDispatch { agent_name, ..RoomAgentDispatch::default() };
        return Ok(is_default.then_some(own).into_iter().collect());
    };
    let agents = agents.as_array().ok_or_else(|| invalid("must be an array"))?;
    agents.iter().map(|agent| read_agent(agent).map_err(invalid)).collect()
}

fn read_agent(agent: &Value) -> Result<RoomAgentDispatch, &'static str> {
    let agent = agent.as_object().ok_or("must have objects")?;
    let Some(Value::String(agent_name)) = agent.get("agent_name") else {
        return Err("must have agent_name, a string");
    };
    let metadata = match agent.get("metadata") {
        None | Some(Value::Null) => "",
        Some(Value::String(metadata)) => metadata,
        Some(_) => return Err("must have metadata as a string with a JSON object"),
    };
    let (agent_name, metadata) = (agent_name.clone(), metadata.to_owned());
    Ok(RoomAgentDispatch { agent_name, metadata, ..RoomAgentDispatch::default() })
}

/// The conversation of an agent that a holder of an API key dispatches.
async fn create_conversation(
    state: &AppState,
    livekit: &LiveKit,
    caller: &ApiCaller,
    dispatch: &RoomAgentDispatch,
) -> Result<Row, ApiError> {
    let text = if dispatch.metadata.trim().is_empty() { "{}" } else { &dispatch.metadata };
    let reason = "must have metadata as a string with a JSON object";
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
) -> Response {
    let token = make_visitor_token(&state, &id, &base, peer, &headers, request).await;
    let mut response = token.into_response();
    // An error has nothing that a page may not read, and tells it what to do.
    allow_origin(response.headers_mut(), &headers);
    response
}

async fn make_visitor_token(
    state: &AppState,
    id: &str,
    base: &str,
    peer: Peer,
    headers: &HeaderMap,
    request: Request,
) -> Result<(StatusCode, axum::Json<LiveKitAccess>), ApiError> {
    state.check_rate_limit(&state.rate_limits.embeds, peer)?;
    let Json(body) = <Json>::from_request(request, &()).await?;
    let mut visitor = read_request(body)?;
    let agent = embed::find_embeddable_agent(state, id).await?;
    if !embed::is_origin_allowed(headers, base, &agent.origins) {
        return Err(ApiError::Forbidden("This page may not use the agent"));
    }
    let livekit = require_livekit(state)?;
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
    let row = conversations::create_record(state, &agent.workspace, &new).await?;
    let room = rooms::name_of(&row.id);
    let dispatches = vec![our_dispatch(state, livekit, &row)];
    let access = access(state, livekit, &room, visitor.names(), dispatches, Some(&row))?;
    Ok((StatusCode::CREATED, axum::Json(access)))
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
