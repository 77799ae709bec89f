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
use conversation::event::{Event, EventEnvelope, MeetingStatus};
use futures_util::Stream;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::find_conversation;
use crate::clock::{self, Iso8601, Micros};
use crate::error::{ApiError, OrInternalError as _};
use crate::events::record;
use crate::http::auth::ApiCaller;
use crate::http::extract::Path;
use crate::state::AppState;
use crate::store;
use crate::store::conversation::{ENDED, Row, STARTED};

const READ_FAILED: &str = "Failed to retrieve conversation details";
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Polling interval of a shared database, for events that another server stored.
const SHARED_STORE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Polling interval of a stream while the store does not respond.
const OUTAGE_POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/conversation/{id}/turns", get(turns))
        .route("/v1/ext/conversation/{id}/events", get(events))
}

async fn turns(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    let row = find_conversation(&state, &caller, &id).await?;
    let projection = record::load_projection(&state, &row).await.or_internal_error(READ_FAILED)?;
    Ok(axum::Json(projection.turns))
}

/// An event in a list or a stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub(crate) struct EventItem<'a> {
    /// Number of the event in its conversation.
    seq: u64,
    /// Seconds since the start of the conversation.
    at: f64,
    timestamp: Iso8601,
    #[serde(flatten)]
    #[schemars(with = "EventName")]
    event: &'a Event,
}

/// The status of a meeting in the stream of a conversation that has not started.
#[derive(Serialize)]
struct UnnumberedItem<'a> {
    timestamp: Iso8601,
    #[serde(flatten)]
    event: &'a Event,
}

/// What the schema says of an event's own fields.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes a part of EventItem")]
struct EventName {
    /// Name of the event. Its fields depend on it.
    what: String,
}

fn event_to_json(envelope: &EventEnvelope, started_at: Micros) -> Value {
    json!(EventItem {
        seq: envelope.seq,
        at: envelope.at.as_seconds(),
        timestamp: Iso8601(started_at.saturating_add(envelope.at.as_micros() as Micros)),
        event: &envelope.event,
    })
}

fn started_at(row: &Row) -> Micros {
    row.joined_at.unwrap_or(row.created_at)
}

/// A list, or a stream if the client accepts `text/event-stream`. The stream continues after
/// `Last-Event-ID` and ends with the conversation.
async fn events(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let row = find_conversation(&state, &caller, &id).await?;
    let accepts = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !accepts.contains("text/event-stream") {
        let events = state.store.events(&row.id, 0).await.or_internal_error(READ_FAILED)?;
        let items: Vec<Value> =
            events.iter().map(|event| event_to_json(event, started_at(&row))).collect();
        return Ok(axum::Json(items).into_response());
    }
    let last = headers.get("last-event-id").and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    let reader = EventReader {
        commits: state.commits.subscribe(),
        state,
        id: row.id,
        next_seq: last.map_or(0, |n| n + 1),
        meeting_status: None,
        buffered: Vec::new(),
    };
    Ok(Sse::new(reader.into_stream())
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
        .into_response())
}

/// Reads a conversation's events as they are stored.
struct EventReader {
    state: Arc<AppState>,
    commits: broadcast::Receiver<conversation::id::ConversationId>,
    id: String,
    next_seq: u64,
    /// The last status of the meeting that was sent before the conversation's start.
    meeting_status: Option<MeetingStatus>,
    /// Read and not sent yet, newest first.
    buffered: Vec<Item>,
}

impl EventReader {
    fn into_stream(self) -> impl Stream<Item = Result<Item, Infallible>> {
        futures_util::stream::unfold(self, |mut reader| async move {
            let item = reader.next_item().await?;
            Some((Ok(item), reader))
        })
    }

    /// The next event; `None` when the conversation is over, erased, or unreadable.
    async fn next_item(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.buffered.pop() {
                return Some(item);
            }
            // The status is read first: events that are stored afterwards are found in the next
            // iteration.
            let (row, events) = match self.read().await {
                Ok(found) => found?,
                // A client that is sent away could not come back before the outage is over.
                Err(error) if error.is_temporary() => {
                    tokio::time::sleep(OUTAGE_POLL_INTERVAL).await;
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot read events for a stream");
                    return None;
                }
            };
            if let Some(last) = events.last() {
                self.next_seq = last.seq + 1;
                let items = events.iter().map(|event| {
                    let json = event_to_json(event, started_at(&row));
                    let name = json["what"].as_str().unwrap_or_default().to_owned();
                    Item::default().id(event.seq.to_string()).event(name).data(json.to_string())
                });
                self.buffered = items.rev().collect();
            } else if row.status == ENDED {
                return None;
            } else if let Some(item) = self.next_meeting_status(&row).await {
                return Some(item);
            } else {
                self.wait_for_commit().await?;
            }
        }
    }

    /// A new status of the meeting of a conversation that has not started. It has no number: the
    /// events of a conversation begin with its start.
    async fn next_meeting_status(&mut self, row: &Row) -> Option<Item> {
        if row.meeting.is_none() || row.status != STARTED {
            return None;
        }
        // A failed read is repeated after the next commit.
        let meeting = self.state.store.meeting(&row.id).await.ok()??;
        let status = meeting.status();
        if self.meeting_status.replace(status) == Some(status) {
            return None;
        }
        let event = Event::MeetingStatus { status, detail: meeting.detail };
        let json = json!(UnnumberedItem { timestamp: Iso8601(clock::now()), event: &event });
        Some(Item::default().event("meeting.status").data(json.to_string()))
    }

    /// The conversation and its next events; `None` if it was erased.
    async fn read(&self) -> store::Result<Option<(Row, Vec<EventEnvelope>)>> {
        let Some(row) = self.state.store.conversation_in_any_workspace(&self.id).await? else {
            return Ok(None);
        };
        Ok(Some((row, self.state.store.events(&self.id, self.next_seq).await?)))
    }

    /// Waits until an event of this conversation was stored.
    async fn wait_for_commit(&mut self) -> Option<()> {
        loop {
            let commit = match self.state.store.is_shared() {
                // Another server may store them; this server is not notified of those.
                true => match tokio::time::timeout(SHARED_STORE_POLL_INTERVAL, self.commits.recv())
                    .await
                {
                    Ok(commit) => commit,
                    Err(_) => return Some(()),
                },
                false => self.commits.recv().await,
            };
            match commit {
                Ok(id) if id.to_string() == self.id => return Some(()),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(()),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
