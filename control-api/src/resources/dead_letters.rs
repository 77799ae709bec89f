//! Results of webhooks: the delivery log of a conversation, the dead letters of a workspace, and
//! redelivery of a dead letter.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, Missing, OrFail as _, OwnText};
use crate::http::auth::Caller;
use crate::http::extract::{Listed, Paged, Path};
use crate::resources::conversations::found;
use crate::state::AppState;
use crate::state::webhook_queue::News;
use crate::store;
use crate::store::delivery::{self, Logged, Tried};
use crate::store::document::{self, Table, parsed};

const READ: &str = "Failed to retrieve conversation details";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/conversation/{id}/deliveries", get(of_conversation))
        .layer(Extension(OwnText::of(READ)))
        .route("/v1/ext/deadletters", get(dead))
        .route("/v1/ext/deadletter/{id}/redeliver", post(redeliver))
}

/// A delivery as JSON, with its attempts.
fn shown(row: &Logged, tries: &[Tried]) -> Value {
    let tries: Vec<Value> = tries
        .iter()
        .filter(|t| t.delivery == row.id)
        .map(|t| {
            json!({
                "attempt": t.attempt,
                "at": clock::iso(t.at_us),
                "took_ms": t.took_us / 1000,
                "status": t.status,
                "error": t.error,
            })
        })
        .collect();
    json!({
        "id": row.id,
        "conversation_id": row.conversation,
        "agent_id": row.agent,
        "sequence": row.sequence,
        "event": row.event,
        "url": row.url,
        "body": row.body,
        "state": row.state,
        "reason": row.reason,
        "next_try": (row.state == "pending").then(|| clock::iso(row.next_try)),
        "created_at": clock::iso(row.created_at),
        "tries": tries,
    })
}

async fn told(shared: &AppState, rows: &[Logged]) -> store::Result<Vec<Value>> {
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    let tries = shared.store.delivery_tries(&ids).await?;
    Ok(rows.iter().map(|row| shown(row, &tries)).collect())
}

/// In the order in which they were to be sent.
async fn of_conversation(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let row = found(&shared, &caller, &id).await?;
    let (rows, total) = shared.store.deliveries_of(&row.id, &page).await.or_fail(READ)?;
    Ok(Listed(told(&shared, &rows).await.or_fail(READ)?, total))
}

/// Newest first.
async fn dead(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) = shared.store.dead_letters(&caller.workspace, &page).await?;
    Ok(Listed(told(&shared, &rows).await?, total))
}

/// Delivers a dead letter again, with the full schedule and under the same `webhook-id` and
/// sequence number. The request goes to the agent's current webhook URL, because a wrong URL is a
/// common cause of failure.
async fn redeliver(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    // Our ids contain no NUL, and PostgreSQL rejects it.
    let id = id.replace('\0', "");
    let mut tx = shared.store.write().await?;
    let row = delivery::revive(&mut tx, &caller.workspace, &id, &shared.server, clock::now()).await?;
    let mut row = row.ok_or(ApiError::Missing(Missing::DeadLetter))?;
    if let Some(agent) = document::find_in(&mut tx, Table::Agent, &caller.workspace, &row.agent).await? {
        let agent = parsed(&agent.document)?;
        let url = agent["callback_url"].as_str().unwrap_or_default();
        if !url.is_empty() && url != row.url {
            delivery::readdress(&mut tx, &row.id, url).await?;
            url.clone_into(&mut row.url);
        }
    }
    tx.commit().await?;
    // The receiver lives as long as the background tasks; after that the delivery is in the store.
    let _ = shared.outbox.send(News::Written(row));
    Ok(axum::Json(json!({"id": id, "message": "Webhook is delivered again"})))
}
