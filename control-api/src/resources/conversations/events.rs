//! The events of a conversation, as a list or as a server-sent stream, and the latency breakdown of
//! each turn.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Item, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use conversation::event::EventEnvelope;
use futures_util::Stream;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::found;
use crate::clock::{self, Micros};
use crate::error::{ApiError, OrFail as _};
use crate::events::record;
use crate::http::auth::Caller;
use crate::http::extract::Path;
use crate::state::AppState;
use crate::store::conversation::{ENDED, Row};

const READ: &str = "Failed to retrieve conversation details";
const ALIVE: Duration = Duration::from_secs(15);
/// Polling interval of a shared database, for events that another server stored.
const ELSEWHERE: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/conversation/{id}/turns", get(turns))
        .route("/v1/ext/conversation/{id}/events", get(events))
}

async fn turns(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    let row = found(&shared, &caller, &id).await?;
    let mut fold = record::of(&shared, &row).await.or_fail(READ)?;
    Ok(axum::Json(fold["turns"].take()))
}

/// An event as JSON: sequence number, seconds since the start, wall clock time, then the fields of
/// the event.
fn shown(fact: &EventEnvelope, base: Micros) -> Value {
    let mut item = Map::new();
    item.insert("seq".into(), fact.seq.into());
    item.insert("at".into(), fact.at.as_seconds().into());
    item.insert("timestamp".into(), clock::iso(base.saturating_add(fact.at.as_micros() as Micros)).into());
    if let Value::Object(event) = json!(fact.event) {
        item.extend(event);
    }
    Value::Object(item)
}

fn base(row: &Row) -> Micros {
    row.joined_at.unwrap_or(row.created_at)
}

/// A list, or a stream if the client accepts `text/event-stream`. The stream continues after
/// `Last-Event-ID` and ends with the conversation.
async fn events(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let row = found(&shared, &caller, &id).await?;
    let accepts = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !accepts.contains("text/event-stream") {
        let facts = shared.store.events(&row.id, 0).await.or_fail(READ)?;
        let items: Vec<Value> = facts.iter().map(|fact| shown(fact, base(&row))).collect();
        return Ok(axum::Json(items).into_response());
    }
    let last = headers.get("last-event-id").and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    let reader = Reader {
        news: shared.news.subscribe(),
        shared,
        id: row.id,
        next: last.map_or(0, |n| n + 1),
        ready: Vec::new(),
    };
    Ok(Sse::new(reader.stream()).keep_alive(KeepAlive::new().interval(ALIVE)).into_response())
}

/// Reads a conversation's events as they are stored.
struct Reader {
    shared: Arc<AppState>,
    news: broadcast::Receiver<conversation::id::ConversationId>,
    id: String,
    next: u64,
    /// Read and not sent yet, newest first.
    ready: Vec<Item>,
}

impl Reader {
    fn stream(self) -> impl Stream<Item = Result<Item, Infallible>> {
        futures_util::stream::unfold(self, |mut reader| async move {
            let item = reader.item().await?;
            Some((Ok(item), reader))
        })
    }

    /// The next event; `None` when the conversation is over, erased, or unreadable.
    async fn item(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready.pop() {
                return Some(item);
            }
            // The status is read first: events that are stored afterwards are found in the next
            // iteration.
            let row = self.shared.store.conversation_anywhere(&self.id).await.ok().flatten()?;
            let facts = self.shared.store.events(&self.id, self.next).await.ok()?;
            if let Some(last) = facts.last() {
                self.next = last.seq + 1;
                let items = facts.iter().map(|fact| {
                    let shown = shown(fact, base(&row));
                    let name = shown["what"].as_str().unwrap_or_default().to_owned();
                    Item::default().id(fact.seq.to_string()).event(name).data(shown.to_string())
                });
                self.ready = items.rev().collect();
            } else if row.status == ENDED {
                return None;
            } else {
                self.changed().await?;
            }
        }
    }

    /// Waits until an event of this conversation was stored.
    async fn changed(&mut self) -> Option<()> {
        loop {
            let news = match self.shared.store.is_shared() {
                // Another server may store them; this server is not notified of those.
                true => match tokio::time::timeout(ELSEWHERE, self.news.recv()).await {
                    Ok(news) => news,
                    Err(_) => return Some(()),
                },
                false => self.news.recv().await,
            };
            match news {
                Ok(id) if id.to_string() == self.id => return Some(()),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(()),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
