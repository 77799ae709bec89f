//! Conversations: `/v1/ext/conversation`, `/v1/auth/conversation`. Control of a running one is in
//! [`control`], its events are in [`events`].
//!
//! ```text
//!   create_record              Joined                  Ended              erase
//!   -------------> STARTED -------------> IN_PROGRESS --------> ENDED -----------> deleted
//!                     |                                           ^
//!                     +-- ended by the API, or no join in time ---+
//! ```

pub(crate) mod control;
pub(crate) mod events;

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock;
use crate::cluster::erasure;
use crate::config::{IceServer, StockAvatar};
use crate::error::{ApiError, ErrorText, OrInternalError as _, Resource};
use crate::events::record::{self, RecordingView};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{BaseUrl, Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{JsonResult, Message};
use crate::resources::livekit::{self, LiveKitAccess};
use crate::resources::{recording_link, variants};
use crate::state::AppState;
use crate::store::agent::Agent;
use crate::store::conversation::{Draft, ENDED, Row};
use crate::store::json_record::{self, Table};
use crate::store::{self, Lock};

const READ_FAILED: &str = "Failed to retrieve conversation details";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/auth/conversation", post(create_and_join))
        .route("/v1/ext/conversation", post(create).get(list))
        .route("/v1/ext/conversation/{id}", get(read).delete(erase))
        .route("/v1/ext/conversation/{id}/feedback", post(feedback))
        .merge(events::routes())
        .merge(control::routes())
        .layer(Extension(ErrorText::uniform(READ_FAILED)))
}

/// The input of a new conversation.
#[derive(Debug)]
pub(crate) struct NewConversation {
    pub(crate) agent: String,
    pub(crate) user_name: Option<String>,
    pub(crate) user_id: Option<String>,
    /// JSON.
    pub(crate) context: Option<String>,
    /// Whether user, name and context come from a visitor and are not trusted.
    pub(crate) from_visitor: bool,
    /// JSON.
    pub(crate) meta_data: Option<String>,
    /// The external meeting that the agent joins.
    pub(crate) meeting: Option<NewMeeting>,
}

/// The external meeting of a new conversation.
#[derive(Debug)]
pub(crate) struct NewMeeting {
    /// How the agent takes part, as JSON.
    pub(crate) settings: String,
    /// Name of the meeting service, and whose account is used.
    pub(crate) provider: &'static str,
    pub(crate) account: &'static str,
    /// Identify the meeting.
    pub(crate) platform: &'static str,
    pub(crate) code: String,
    /// Without passwords.
    pub(crate) url: String,
    /// Whether the agent may be in the meeting more than once.
    pub(crate) allow_multiple: bool,
}

/// The type of conversations in external meetings.
const MEETING_KIND: &str = "meeting";

/// The context that a request gives: a text or an object.
#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct ContextValue(Value);

impl ContextValue {
    /// As it is stored: JSON.
    pub(crate) fn to_json(&self) -> String {
        self.0.to_string()
    }
}

impl JsonSchema for ContextValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ContextValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "object"]})
    }
}

/// A request for a conversation.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "ConversationBody")]
pub(crate) struct ConversationRequest {
    #[schemars(length(min = 1))]
    agent_id: String,
    user_name: Option<String>,
    user_id: Option<String>,
    context: Option<ContextValue>,
    meta_data: Option<Map<String, Value>>,
    /// How the client connects. Default: `webrtc`.
    transport: Option<ClientTransport>,
}

/// How a client connects to its call: directly to this server, or in a LiveKit room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientTransport {
    #[default]
    WebRtc,
    LiveKit,
}

/// The same with the names of `/v1/auth/conversation`.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "AuthBody")]
pub(crate) struct AuthRequest {
    #[serde(rename = "agentId")]
    #[schemars(length(min = 1))]
    agent_id: String,
    #[serde(rename = "userName")]
    user_name: Option<String>,
    #[serde(rename = "userId")]
    user_id: Option<String>,
    context: Option<ContextValue>,
    meta_data: Option<Map<String, Value>>,
}

impl From<AuthRequest> for ConversationRequest {
    fn from(AuthRequest { agent_id, user_name, user_id, context, meta_data }: AuthRequest) -> Self {
        Self { agent_id, user_name, user_id, context, meta_data, transport: None }
    }
}

impl From<ConversationRequest> for NewConversation {
    fn from(request: ConversationRequest) -> Self {
        Self {
            agent: request.agent_id,
            user_name: request.user_name,
            user_id: request.user_id,
            context: request.context.map(|context| context.to_json()),
            from_visitor: false,
            meta_data: request.meta_data.map(|data| Value::Object(data).to_string()),
            meeting: None,
        }
    }
}

pub(crate) fn parse_new_conversation(body: Value) -> Result<NewConversation, ApiError> {
    body::parse::<ConversationRequest>(body).map(Into::into)
}

pub(crate) fn parse_auth_conversation(body: Value) -> Result<NewConversation, ApiError> {
    body::parse::<AuthRequest>(body).map(|request| ConversationRequest::from(request).into())
}

/// Creates a conversation in status STARTED if this server has capacity for its call.
pub(crate) async fn create_record(
    state: &AppState,
    workspace: &str,
    new_conversation: &NewConversation,
) -> Result<Row, ApiError> {
    // STT capacity is checked at signaling: a decoder that is in use now may be free when the user
    // joins.
    if let Some(why) = state.engine().reject_new_call() {
        return Err(ApiError::NoCapacity(why));
    }
    create_reserved_record(state, workspace, new_conversation).await
}

/// Like [`create_record`], for a call whose place is reserved.
pub(crate) async fn create_reserved_record(
    state: &AppState,
    workspace: &str,
    new_conversation: &NewConversation,
) -> Result<Row, ApiError> {
    let not_found = || ApiError::NotFound(Resource::Agent);
    if state.is_draining() {
        return Err(ApiError::NoCapacity("the server is shutting down".into()));
    }
    let agent = store::normalize_id(&new_conversation.agent).ok_or_else(not_found)?;
    // A v4 UUID: the id appears in links, so it must not reveal when others were created.
    let id = uuid::Uuid::new_v4().to_string();
    let mut tx = state.store.begin_write(Lock::Workspace(workspace)).await?;
    let row = json_record::find_in(&mut tx, Table::Agent, workspace, &agent)
        .await?
        .ok_or_else(not_found)?;
    let agent: Agent = json_record::parse_document(&row.document)?;
    if !agent.settings.is_active {
        return Err(ApiError::Conflict("Agent is not active".into()));
    }
    let avatar = agent.settings.first_avatar();
    let meeting = new_conversation.meeting.as_ref();
    if let Some(NewMeeting { platform, code, allow_multiple: false, .. }) = meeting
        && store::meeting::is_present(&mut tx, workspace, &row.id, platform, code).await?
    {
        return Err(ApiError::Conflict("Agent is already in this meeting".into()));
    }
    quota::check_conversations(state, &mut tx, workspace).await?;
    let number = json_record::next_conversation_number(&mut tx, &row.id).await?;
    let draft = Draft {
        id: &id,
        workspace,
        server: &state.server_id,
        agent: &row.id,
        agent_name: &agent.agent_name,
        agent_document: &row.document,
        agent_secrets: &row.secrets,
        avatar_id: avatar.avatar_key_id.as_deref().unwrap_or_default(),
        conversation_number: number,
        kind: meeting.map_or(agent.settings.kind.as_deref(), |_| Some(MEETING_KIND)),
        user_id: new_conversation.user_id.as_deref(),
        user_name: new_conversation.user_name.as_deref(),
        context: new_conversation.context.as_deref(),
        from_visitor: new_conversation.from_visitor,
        meta_data: new_conversation.meta_data.as_deref(),
        meeting: meeting.map(|meeting| &*meeting.settings),
        at: clock::now(),
    };
    store::conversation::insert(&mut tx, &draft).await?;
    if let Some(meeting) = meeting {
        let draft = store::meeting::Draft {
            conversation: &id,
            workspace,
            agent: &row.id,
            server: &state.server_id,
            provider: meeting.provider,
            account: meeting.account,
            platform: meeting.platform,
            code: &meeting.code,
            url: &meeting.url,
        };
        store::meeting::insert(&mut tx, &draft).await?;
    }
    let row = store::conversation::find_in_any_workspace(&mut tx, &id).await?;
    tx.commit().await?;
    row.ok_or(ApiError::Internal(
        "Internal server error",
        "a row that was just written does not exist".into(),
    ))
}

/// The data that a client needs to join: token, links, ICE servers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct JoinInfo {
    #[serde(rename = "webrtcRequestParams")]
    webrtc_request_params: OfferEndpoint,
    #[serde(rename = "iceConfig")]
    ice_config: IceConfig,
    /// Session token of the conversation.
    token: String,
}

/// Where RTVI clients send their offer.
#[derive(Serialize, JsonSchema)]
struct OfferEndpoint {
    endpoint: String,
}

/// ICE servers for a browser's `RTCPeerConnection`.
#[derive(Serialize, JsonSchema)]
struct IceConfig {
    #[serde(rename = "iceServers")]
    ice_servers: Vec<IceServer>,
}

/// The response of `POST /v1/auth/conversation` and of a click on an embedded page.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pass")]
pub(crate) struct JoinResponse {
    #[serde(flatten)]
    info: JoinInfo,
    #[serde(rename = "conversationId")]
    #[schemars(extend("format" = "uuid"))]
    conversation_id: String,
    /// The page where a user joins.
    url: String,
    #[serde(flatten)]
    avatar: Option<StockAvatar>,
}

/// A new conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewConversation")]
pub(crate) struct CreatedConversation<'a> {
    #[serde(flatten)]
    conversation: record::Conversation<'a>,
    /// The page where a user joins.
    join_link: String,
    #[serde(flatten)]
    info: JoinInfo,
    /// The room, if `transport` is `livekit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    livekit: Option<LiveKitAccess>,
}

fn join_info(state: &AppState, row: &Row, base: &str) -> JoinInfo {
    let token = record::session_token(state, &row.id, row.created_at).unwrap_or_default();
    JoinInfo {
        webrtc_request_params: OfferEndpoint {
            endpoint: format!("{base}/api/offer?token={token}"),
        },
        ice_config: IceConfig { ice_servers: state.config.ice_servers.clone() },
        token,
    }
}

/// What a client needs to join, and the avatar that it will see.
pub(crate) async fn join_response(
    state: &AppState,
    row: &Row,
    base: &str,
) -> store::Result<JoinResponse> {
    Ok(JoinResponse {
        info: join_info(state, row, base),
        conversation_id: row.id.clone(),
        url: record::join_link(state, row, base),
        avatar: find_shown_avatar(state, row).await?,
    })
}

/// The avatar of a conversation, with the picture of what its call shows.
async fn find_shown_avatar(state: &AppState, row: &Row) -> store::Result<Option<StockAvatar>> {
    let agent: Agent = json_record::parse_document(&row.agent_document)?;
    let avatar = agent.settings.first_avatar();
    variants::find_shown_avatar(state, &row.workspace, &row.agent, &row.avatar_id, &avatar).await
}

/// Creates a conversation and answers with what its client needs to join.
async fn create_and_join(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    Json(body): Json,
) -> JsonResult<JoinResponse> {
    let new_conversation = parse_auth_conversation(body)?;
    let row = create_record(&state, &caller.workspace, &new_conversation).await?;
    Ok(axum::Json(join_response(&state, &row, &base).await?))
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<Value>), ApiError> {
    let request: ConversationRequest = body::parse(body)?;
    let is_in_room = request.transport == Some(ClientTransport::LiveKit);
    if is_in_room {
        livekit::require_livekit(&state)?;
    }
    let row = create_record(&state, &caller.workspace, &request.into()).await?;
    let access = is_in_room.then(|| livekit::access_of_conversation(&state, &row)).transpose()?;
    let projection = record::load_projection(&state, &row).await?;
    let response = CreatedConversation {
        conversation: record::detail(&row, None, projection, RecordingView::default()),
        join_link: record::join_link(&state, &row, &base),
        info: join_info(&state, &row, &base),
        livekit: access,
    };
    Ok((StatusCode::CREATED, axum::Json(json!(response))))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let (rows, total) = state
        .store
        .conversation_page(&caller.workspace, &page)
        .await
        .or_internal_error(READ_FAILED)?;
    let in_meetings = rows.iter().filter(|row| row.meeting.is_some());
    let in_meetings: Vec<&str> = in_meetings.map(|row| &*row.id).collect();
    let meetings = state.store.meetings(&in_meetings).await.or_internal_error(READ_FAILED)?;
    let mut listed = Vec::with_capacity(rows.len());
    for row in rows {
        let projection =
            record::load_projection(&state, &row).await.or_internal_error(READ_FAILED)?;
        let meeting = meetings.get(&row.id);
        listed.push(json!(record::list_item(
            &state,
            &row,
            meeting,
            projection,
            &base,
            caller.scope
        )));
    }
    Ok(ListResponse(listed, total))
}

/// The conversation in the path, or 404.
pub(crate) async fn find_conversation(
    state: &AppState,
    caller: &ApiCaller,
    id: &str,
) -> Result<Row, ApiError> {
    let not_found = || ApiError::NotFound(Resource::Conversation);
    let id = store::normalize_id(id).ok_or_else(not_found)?;
    state
        .store
        .conversation(&caller.workspace, &id)
        .await
        .or_internal_error(READ_FAILED)?
        .ok_or_else(not_found)
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    let row = find_conversation(&state, &caller, &id).await?;
    let projection = record::load_projection(&state, &row).await.or_internal_error(READ_FAILED)?;
    let recording = recording_link::view(&state, &row.id, projection.is_recorded, &base)
        .await
        .or_internal_error(READ_FAILED)?;
    let meeting = match &row.meeting {
        Some(_) => state.store.meeting(&row.id).await.or_internal_error(READ_FAILED)?,
        None => None,
    };
    Ok(axum::Json(json!(record::detail(&row, meeting.as_ref(), projection, recording))))
}

async fn erase(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let row = find_conversation(&state, &caller, &id).await?;
    if row.status != ENDED {
        return Err(ApiError::Conflict("Conversation has not ended".into()));
    }
    // Concurrent requests may all find the conversation; only one erases it.
    let (store, data) = (&state.store, &state.config.data);
    if !erasure::erase_conversation(store, &state.server_id, data, &row.id).await? {
        return Err(ApiError::NotFound(Resource::Conversation));
    }
    state.recordings.begin_deletion();
    Ok(StatusCode::NO_CONTENT)
}

/// The user's feedback.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Feedback")]
pub(crate) struct FeedbackRequest {
    /// A whole number.
    #[schemars(range(min = 1, max = 5), extend("multipleOf" = 1))]
    rating: f64,
    feedback: Option<String>,
}

/// Rating and text of a feedback.
pub(crate) fn parse_feedback(body: Value) -> Result<(i64, Option<String>), ApiError> {
    let FeedbackRequest { rating, feedback } = body::parse(body)?;
    Ok((rating as i64, feedback))
}

async fn feedback(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Message> {
    let (rating, feedback) = parse_feedback(body)?;
    let row = find_conversation(&state, &caller, &id).await?;
    let mut tx = state.store.begin_write(Lock::Rows).await?;
    store::conversation::save_feedback(
        &mut tx,
        &caller.workspace,
        &row.id,
        rating,
        feedback.as_deref(),
        clock::now(),
    )
    .await?;
    tx.commit().await?;
    Ok(axum::Json(Message { message: "Feedback saved successfully" }))
}
