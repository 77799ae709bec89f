//! Results of webhooks: the delivery log of a conversation, the dead letters of a workspace, and
//! redelivery of a dead letter.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::clock::{self, Iso8601};
use crate::error::{ApiError, ErrorText, OrInternalError as _, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{ListResponse, PageQuery, Path};
use crate::http::responses::{Done, JsonResult};
use crate::resources::conversations::find_conversation;
use crate::state::AppState;
use crate::state::webhook_queue::OutboxMessage;
use crate::store::agent::Agent;
use crate::store::delivery::{self, AttemptLogEntry, DeliveryLogEntry};
use crate::store::json_record::{self, Table, parse_document};
use crate::store::{self, Lock};

const READ_FAILED: &str = "Failed to retrieve conversation details";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/conversation/{id}/deliveries", get(list_of_conversation))
        .layer(Extension(ErrorText::uniform(READ_FAILED)))
        .route("/v1/ext/deadletters", get(list_dead_letters))
        .route("/v1/ext/deadletter/{id}/redeliver", post(redeliver))
}

/// A webhook with its attempts.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Delivery<'a> {
    id: &'a str,
    #[schemars(extend("format" = "uuid"))]
    conversation_id: &'a str,
    #[schemars(extend("format" = "uuid"))]
    agent_id: &'a str,
    sequence: i64,
    event: &'a str,
    url: &'a str,
    body: &'a str,
    #[schemars(extend("enum" = ["pending", "done", "dead", "dropped"]))]
    state: &'a str,
    /// Why it was given up.
    reason: Option<&'a str>,
    /// Time of the next attempt of a pending one.
    next_try: Option<Iso8601>,
    created_at: Iso8601,
    tries: Vec<Attempt<'a>>,
}

/// An attempt to deliver a webhook.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Attempt<'a> {
    attempt: i64,
    at: Iso8601,
    /// Milliseconds.
    took_ms: i64,
    /// HTTP status of the response.
    status: Option<i64>,
    error: Option<&'a str>,
}

/// A delivery as JSON, with its attempts.
fn delivery_to_json(row: &DeliveryLogEntry, tries: &[AttemptLogEntry]) -> Value {
    let tries = tries.iter().filter(|t| t.delivery == row.id).map(|t| Attempt {
        attempt: t.attempt,
        at: Iso8601(t.at_us),
        took_ms: t.took_us / 1000,
        status: t.status,
        error: t.error.as_deref(),
    });
    json!(Delivery {
        id: &row.id,
        conversation_id: &row.conversation,
        agent_id: &row.agent,
        sequence: row.sequence,
        event: &row.event,
        url: &row.url,
        body: &row.body,
        state: &row.state,
        reason: row.reason.as_deref(),
        next_try: (row.state == "pending").then_some(Iso8601(row.next_attempt_at)),
        created_at: Iso8601(row.created_at),
        tries: tries.collect(),
    })
}

async fn deliveries_to_json(
    state: &AppState,
    rows: &[DeliveryLogEntry],
) -> store::Result<Vec<Value>> {
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    let tries = state.store.delivery_attempts(&ids).await?;
    Ok(rows.iter().map(|row| delivery_to_json(row, &tries)).collect())
}

/// In the order in which they were to be sent.
async fn list_of_conversation(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let row = find_conversation(&state, &caller, &id).await?;
    let (rows, total) =
        state.store.deliveries_of(&row.id, &page).await.or_internal_error(READ_FAILED)?;
    Ok(ListResponse(deliveries_to_json(&state, &rows).await.or_internal_error(READ_FAILED)?, total))
}

/// Newest first.
async fn list_dead_letters(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let (rows, total) = state.store.dead_letters(&caller.workspace, &page).await?;
    Ok(ListResponse(deliveries_to_json(&state, &rows).await?, total))
}

/// Delivers a dead letter again, with the full schedule and under the same `webhook-id` and
/// sequence number. The request goes to the agent's current webhook URL, because a wrong URL is a
/// common cause of failure.
async fn redeliver(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    // Our ids contain no NUL, and PostgreSQL rejects it.
    let id = id.replace('\0', "");
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let row = delivery::redeliver(&mut tx, &caller.workspace, &id, &state.server_id, clock::now())
        .await?;
    let mut row = row.ok_or(ApiError::NotFound(Resource::DeadLetter))?;
    if let Some(agent) =
        json_record::find_in(&mut tx, Table::Agent, &caller.workspace, &row.agent).await?
    {
        let agent: Agent = parse_document(&agent.document)?;
        let url = &agent.settings.callback_url;
        if !url.is_empty() && *url != row.url {
            delivery::set_url(&mut tx, &row.id, url).await?;
            url.clone_into(&mut row.url);
        }
    }
    tx.commit().await?;
    // The receiver lives as long as the background tasks; after that the delivery is in the store.
    let _ = state.outbox.send(OutboxMessage::Written(row));
    Ok(axum::Json(Done { id, message: "Webhook is delivered again" }))
}
