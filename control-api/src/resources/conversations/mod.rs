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

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::{Map, Value, json};

use crate::clock;
use crate::cluster::erasure;
use crate::error::{ApiError, Missing, OrFail as _, OwnText};
use crate::events::record;
use crate::http::auth::Caller;
use crate::http::extract::{Base, Json, Listed, Paged, Path};
use crate::http::quota;
use crate::http::validate::{Faults, Fields};
use crate::resources::avatars;
use crate::state::AppState;
use crate::store;
use crate::store::conversation::{Draft, ENDED, Row};
use crate::store::document::{self, Table};

type Answer = Result<axum::Json<Value>, ApiError>;

const READ: &str = "Failed to retrieve conversation details";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/auth/conversation", post(authorize))
        .route("/v1/ext/conversation", post(create).get(list))
        .route("/v1/ext/conversation/{id}", get(one).delete(erase))
        .route("/v1/ext/conversation/{id}/feedback", post(feedback))
        .merge(events::routes())
        .merge(control::routes())
        .layer(Extension(OwnText::of(READ)))
}

/// The input of a new conversation.
pub(crate) struct Wish {
    pub(crate) agent: String,
    pub(crate) user_name: Option<String>,
    pub(crate) user_id: Option<String>,
    /// JSON.
    pub(crate) context: Option<String>,
    /// Whether user, name and context come from a visitor and are not trusted.
    pub(crate) visitor: bool,
    /// JSON.
    pub(crate) meta_data: Option<String>,
}

/// The context, a string or an object, as JSON.
fn context(fields: &Fields<'_>) -> Option<String> {
    match fields.raw("context") {
        None | Some(Value::Null) => None,
        Some(value @ (Value::String(_) | Value::Object(_))) => Some(value.to_string()),
        Some(_) => {
            fields.fault("context", "must be a string or an object");
            None
        }
    }
}

fn wish(body: Value, [agent, user_name, user_id]: [&str; 3]) -> Result<Wish, ApiError> {
    let faults = Faults::default();
    let fields = Fields::body(body, &faults)?;
    let meta_data = fields.raw("meta_data").filter(|v| !v.is_null());
    if meta_data.is_some_and(|v| !v.is_object()) {
        fields.fault("meta_data", "must be an object");
    }
    let wish = Wish {
        agent: fields.required(agent),
        user_name: fields.text(user_name),
        user_id: fields.text(user_id),
        context: context(&fields),
        visitor: false,
        meta_data: meta_data.map(Value::to_string),
    };
    faults.unless(wish)
}

/// Creates a conversation in status STARTED.
pub(crate) async fn begin(shared: &AppState, workspace: &str, wish: &Wish) -> Result<Row, ApiError> {
    let missing = || ApiError::Missing(Missing::Agent);
    // STT capacity is checked at signaling: a decoder that is in use now may be free when the user
    // joins.
    if let Some(why) = shared.host().reject_new_call() {
        return Err(ApiError::NoCapacity(why));
    }
    if shared.draining() {
        return Err(ApiError::NoCapacity("the server is shutting down".into()));
    }
    let agent = store::id(&wish.agent).ok_or_else(missing)?;
    // A v4 UUID: the id appears in links, so it must not reveal when others were created.
    let id = uuid::Uuid::new_v4().to_string();
    let mut tx = shared.store.write().await?;
    let row = document::find_in(&mut tx, Table::Agent, workspace, &agent).await?.ok_or_else(missing)?;
    let agent = document::parsed(&row.document)?;
    if agent["is_active"] == false {
        return Err(ApiError::Conflict("Agent is not active".into()));
    }
    quota::conversation(shared, &mut tx, workspace).await?;
    let number = document::next_call(&mut tx, &row.id).await?;
    let draft = Draft {
        id: &id,
        workspace,
        server: &shared.server,
        agent: &row.id,
        agent_name: agent["agent_name"].as_str().unwrap_or_default(),
        agent_document: &row.document,
        agent_secrets: &row.secrets,
        avatar_id: agent["avatars"][0]["avatar_key_id"].as_str().unwrap_or_default(),
        number,
        kind: agent["type"].as_str(),
        user_id: wish.user_id.as_deref(),
        user_name: wish.user_name.as_deref(),
        context: wish.context.as_deref(),
        visitor: wish.visitor,
        meta_data: wish.meta_data.as_deref(),
        at: clock::now(),
    };
    store::conversation::insert(&mut tx, &draft).await?;
    let row = store::conversation::find_in(&mut tx, &id).await?;
    tx.commit().await?;
    row.ok_or(ApiError::Failed("Internal server error", "a row that was just written does not exist".into()))
}

/// The data that a client needs to join: token, links, ICE servers.
pub(crate) fn pass(shared: &AppState, row: &Row, base: &str) -> Map<String, Value> {
    let token = record::token(shared, &row.id, row.created_at).unwrap_or_default();
    let mut pass = Map::new();
    pass.insert("webrtcRequestParams".into(), json!({"endpoint": format!("{base}/api/offer?token={token}")}));
    pass.insert("iceConfig".into(), json!({"iceServers": shared.config.ice_servers}));
    pass.insert("token".into(), token.into());
    pass
}

/// The response of `POST /v1/auth/conversation` and of a click on an embedded page.
pub(crate) async fn authorized(shared: &AppState, row: &Row, base: &str) -> store::Result<Value> {
    let mut answer = Map::new();
    answer.extend(pass(shared, row, base));
    answer.insert("conversationId".into(), row.id.clone().into());
    answer.insert("url".into(), record::join_link(shared, row, base).into());
    let face = avatars::find(shared, &row.workspace, &row.avatar_id).await?;
    if let Some(Value::Object(avatar)) = face.as_ref().map(avatars::shown) {
        answer.extend(avatar);
    }
    Ok(Value::Object(answer))
}

async fn authorize(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Base(base): Base,
    Json(body): Json,
) -> Answer {
    let wish = wish(body, ["agentId", "userName", "userId"])?;
    let row = begin(&shared, &caller.workspace, &wish).await?;
    Ok(axum::Json(authorized(&shared, &row, &base).await?))
}

async fn create(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Base(base): Base,
    Json(body): Json,
) -> Result<(StatusCode, axum::Json<Value>), ApiError> {
    let wish = wish(body, ["agent_id", "user_name", "user_id"])?;
    let row = begin(&shared, &caller.workspace, &wish).await?;
    let mut answer = record::single(&row, record::of(&shared, &row).await?);
    if let Value::Object(map) = &mut answer {
        map.insert("join_link".into(), record::join_link(&shared, &row, &base).into());
        map.extend(pass(&shared, &row, &base));
    }
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

async fn list(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Base(base): Base,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) = shared.store.conversation_page(&caller.workspace, &page).await.or_fail(READ)?;
    let mut listed = Vec::with_capacity(rows.len());
    for row in rows {
        let fold = record::of(&shared, &row).await.or_fail(READ)?;
        listed.push(record::listed(&shared, &row, fold, &base, caller.scope));
    }
    Ok(Listed(listed, total))
}

/// The conversation in the path, or 404.
pub(crate) async fn found(shared: &AppState, caller: &Caller, id: &str) -> Result<Row, ApiError> {
    let missing = || ApiError::Missing(Missing::Conversation);
    let id = store::id(id).ok_or_else(missing)?;
    shared.store.conversation(&caller.workspace, &id).await.or_fail(READ)?.ok_or_else(missing)
}

async fn one(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let row = found(&shared, &caller, &id).await?;
    let fold = record::of(&shared, &row).await.or_fail(READ)?;
    Ok(axum::Json(record::single(&row, fold)))
}

async fn erase(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let row = found(&shared, &caller, &id).await?;
    if row.status != ENDED {
        return Err(ApiError::Conflict("Conversation has not ended".into()));
    }
    // Concurrent requests may all find the conversation; only one erases it.
    if !erasure::erase(&shared, &row.id).await? {
        return Err(ApiError::Missing(Missing::Conversation));
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn feedback(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json,
) -> Answer {
    let (rating, feedback) = {
        let faults = Faults::default();
        let fields = Fields::body(body, &faults)?;
        let rating = fields.number("rating", 1.0..=5.0);
        match (&rating, fields.raw("rating")) {
            (None, None | Some(Value::Null)) => fields.fault("rating", "is required"),
            (Some(value), _) if value.as_f64().is_none_or(|n| n.fract() != 0.0) => {
                fields.fault("rating", "must be a whole number")
            }
            _ => {}
        }
        let feedback = fields.text("feedback");
        faults.unless((rating.and_then(|v| v.as_f64()).unwrap_or_default() as i64, feedback))?
    };
    let row = found(&shared, &caller, &id).await?;
    let mut tx = shared.store.write().await?;
    store::conversation::rate(&mut tx, &caller.workspace, &row.id, rating, feedback.as_deref(), clock::now())
        .await?;
    tx.commit().await?;
    Ok(axum::Json(json!({"message": "Feedback saved successfully"})))
}
