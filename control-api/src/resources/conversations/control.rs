//! Control of a conversation: speak, interrupt, respond, context, end.
//!
//! In STARTED a command is queued and takes effect when the user joins. In IN_PROGRESS the engine
//! executes it. After ENDED the response is 409.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{delete, post, put};
use conversation::direction::{self, Expression};
use conversation::event::EndReason;
use conversation::id::ConversationId;
use conversation::input::{Command, MAX_TEXT_CHARS};
use conversation::output::{CommandOutcome, Rejection};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::find_conversation;
use crate::error::{ApiError, Resource};
use crate::events::ending;
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, Path};
use crate::http::responses::{JsonResult, Message};
use crate::state::AppState;
use crate::state::event_storage::EventStorage;
use crate::store;
use crate::store::conversation::{ENDED, Row, STARTED};

/// How long DELETE waits for each of the two that end a conversation, the store and the engine,
/// until the record has status ENDED.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the end of a call of another server is looked for.
const REMOTE_END_POLL: Duration = Duration::from_millis(50);
/// Reason in the response to a command for a call that no server runs: it is about to start or end.
const NO_HOLDER: &str = "no server runs the call";
/// Reason in the response of DELETE if the end is not stored yet.
const END_NOT_STORED: &str = "the end of the conversation is not stored yet";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/conversation/{id}", delete(end))
        .route("/v1/conversation/{id}/speak", put(speak))
        .route("/v1/conversation/{id}/interrupt", post(interrupt))
        .route("/v1/conversation/{id}/respond", post(respond))
        .route("/v1/conversation/{id}/context", post(context))
}

fn conflict(refusal: Rejection) -> ApiError {
    ApiError::Conflict(refusal.to_string())
}

/// Sends a command to a conversation in any status.
async fn send_command(
    state: &AppState,
    caller: &ApiCaller,
    row: Row,
    command: Command,
) -> Result<(), ApiError> {
    let id: ConversationId =
        row.id.parse().map_err(|_| ApiError::NotFound(Resource::Conversation))?;
    let mut row = row;
    // Twice, because the call may start or end between reading its status and sending the command.
    for _ in 0..2 {
        if row.status == ENDED {
            return Err(conflict(Rejection::Ended));
        }
        let queued = if row.status == STARTED {
            state.store.queue_command(&caller.workspace, &row.id, &command).await?
        } else {
            None
        };
        let holder = state.relay.other_holder(id).await?;
        if queued.is_some() && holder.is_none() && !state.pending_offers.contains(id) {
            return Ok(());
        }
        let outcome = execute(state, holder, id, command.clone()).await;
        if let (Err(_), Some(position)) = (&outcome, queued) {
            // The caller is told to try again, so a later offer must not execute it.
            state.store.remove_queued_command(&row.id, position).await?;
        }
        match outcome? {
            Some(CommandOutcome::Accepted | CommandOutcome::NothingToDo) => return Ok(()),
            Some(CommandOutcome::Rejected(refusal)) => return Err(conflict(refusal)),
            None if queued.is_some() => return Ok(()),
            None => {}
        }
        state.events.flush(&state.store).await;
        row = find_conversation(state, caller, &row.id).await?;
    }
    if row.status == ENDED {
        Err(conflict(Rejection::Ended))
    } else {
        Err(ApiError::NoCapacity(NO_HOLDER.into()))
    }
}

/// Lets a command take effect in a call of this server, or of the other server that holds it. `None`
/// if no such call runs there.
async fn execute(
    state: &AppState,
    holder: Option<String>,
    id: ConversationId,
    command: Command,
) -> Result<Option<CommandOutcome>, ApiError> {
    if let Some(holder) = holder {
        return state.relay.send_command(&holder, id, command).await;
    }
    Ok(state.send_command(id, command).await)
}

/// Text that the agent speaks.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Speak")]
pub(crate) struct SpeakRequest {
    #[schemars(length(min = 1, max = MAX_TEXT_CHARS))]
    text: String,
    /// Whether it interrupts the current speech; null = true.
    interrupt: Option<bool>,
    /// Whether the model sees it as its own words; null = false.
    add_to_context: Option<bool>,
    /// The expression of the avatar, up to the first tag of the text, such as `[glad]`; null = by
    /// the text.
    expression: Option<ExpressionName>,
}

/// Expression of the avatar while it speaks.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
struct ExpressionName(Expression);

impl JsonSchema for ExpressionName {
    fn schema_name() -> Cow<'static, str> {
        "Expression".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": Expression::ALL.map(Expression::name)})
    }
}

/// Text that the agent answers.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Respond")]
pub(crate) struct RespondRequest {
    #[schemars(length(min = 1, max = MAX_TEXT_CHARS))]
    text: String,
}

/// New context of a conversation.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Context")]
pub(crate) struct ContextRequest {
    #[schemars(length(min = 1))]
    text: String,
    #[serde(default)]
    mode: ContextMode,
}

/// Whether a context extends the current one or replaces it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ContextMode {
    #[default]
    Append,
    Overwrite,
}

pub(crate) fn parse_speak(body: Value) -> Result<Command, ApiError> {
    let SpeakRequest { text, interrupt, add_to_context, expression } = body::parse(body)?;
    // It would interrupt the current speech, and say nothing.
    if !direction::split(&text).0.contains(char::is_alphanumeric) {
        return Err(ApiError::invalid_field("text", "must contain something to speak"));
    }
    Ok(Command::Say {
        text,
        interrupt: interrupt.unwrap_or(true),
        allow_interruptions: true,
        add_to_context: add_to_context.unwrap_or(false),
        expression: expression.map(|name| name.0),
    })
}

pub(crate) fn parse_respond(body: Value) -> Result<Command, ApiError> {
    let RespondRequest { text } = body::parse(body)?;
    Ok(Command::Respond { text })
}

pub(crate) fn parse_context(body: Value) -> Result<Command, ApiError> {
    let ContextRequest { text, mode } = body::parse(body)?;
    Ok(Command::Context { text, overwrite: mode == ContextMode::Overwrite })
}

async fn speak(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Message> {
    let command = parse_speak(body)?;
    let row = find_conversation(&state, &caller, &id).await?;
    send_command(&state, &caller, row, command).await?;
    Ok(axum::Json(Message { message: "Agent is speaking the provided text." }))
}

async fn interrupt(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Message> {
    let row = find_conversation(&state, &caller, &id).await?;
    send_command(&state, &caller, row, Command::Interrupt).await?;
    Ok(axum::Json(Message { message: "Agent interrupted successfully" }))
}

async fn respond(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Message> {
    let command = parse_respond(body)?;
    let row = find_conversation(&state, &caller, &id).await?;
    send_command(&state, &caller, row, command).await?;
    Ok(axum::Json(Message { message: "Agent is responding to the provided text." }))
}

async fn context(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
    Json(body): Json,
) -> JsonResult<Message> {
    let command = parse_context(body)?;
    let row = find_conversation(&state, &caller, &id).await?;
    send_command(&state, &caller, row, command).await?;
    Ok(axum::Json(Message { message: "Context updated successfully" }))
}

/// Ends a conversation that no client joined; `None` if that takes longer than a client should
/// wait. Runs in a task of its own: a client that disconnects cancels its request, but a stored end
/// must be announced.
async fn end_unjoined(storage: &EventStorage, id: &str) -> Option<store::Result<bool>> {
    let (storage, id) = (storage.clone(), id.to_owned());
    let ending =
        async move { ending::end_unjoined(&storage, &id, EndReason::EndedByApi, None).await };
    let ended = timeout(END_TIMEOUT, tokio::spawn(ending.in_current_span())).await.ok()?;
    Some(ended.unwrap_or(Err(store::Error::Panicked)))
}

/// The response to the end of a conversation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Ended {
    /// Name of the agent.
    agent_identity: String,
    #[schemars(extend("format" = "uuid"))]
    conversation_id: String,
    message: &'static str,
}

async fn end(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Ended> {
    let row = find_conversation(&state, &caller, &id).await?;
    let id: ConversationId =
        row.id.parse().map_err(|_| ApiError::NotFound(Resource::Conversation))?;
    let respond_ended = || {
        // Further requests get 409.
        state.unconfirmed_ends.take(id);
        Ok(axum::Json(Ended {
            agent_identity: row.agent_name.clone(),
            conversation_id: row.id.clone(),
            message: "Conversation ended successfully",
        }))
    };
    if row.status == ENDED {
        // A client that received an error because the end was not stored repeats the request, and
        // now gets the confirmation.
        return if state.unconfirmed_ends.take(id) {
            respond_ended()
        } else {
            Err(conflict(Rejection::Ended))
        };
    }
    let unwritable = || {
        state.unconfirmed_ends.insert(id);
        ApiError::StoreUnwritable(
            state.store.health.failure_reason().unwrap_or_else(|| END_NOT_STORED.to_owned()),
        )
    };
    let mut commits = state.commits.subscribe();
    // Of concurrent requests only the one that ends the conversation succeeds; the others get 409.
    // `None`: the store may still end it.
    let mut ended_unjoined = Some(false);
    if row.status == STARTED {
        ended_unjoined = match end_unjoined(&state.event_storage, &row.id).await {
            Some(Ok(ended)) => Some(ended),
            // During an outage the engine's call is ended in any case.
            Some(Err(error)) if !error.is_outage() => return Err(error.into()),
            Some(Err(_)) | None => None,
        };
    }
    let holder = if state.store.health.failure_reason().is_none() {
        state.relay.other_holder(id).await?
    } else {
        None
    };
    let is_remote = holder.is_some();
    let ended_here = match execute(&state, holder, id, Command::End).await? {
        Some(CommandOutcome::Accepted) => true,
        Some(CommandOutcome::NothingToDo | CommandOutcome::Rejected(Rejection::Ended)) | None => {
            ended_unjoined.ok_or_else(unwritable)?
        }
        Some(CommandOutcome::Rejected(refusal)) => return Err(conflict(refusal)),
    };
    if !ended_here {
        if let Some(reason) = state.store.health.failure_reason() {
            return Err(ApiError::StoreUnwritable(reason));
        }
        // After a timeout the current status is read nevertheless.
        let _ = timeout(END_TIMEOUT, state.events.flush(&state.store)).await;
        if find_conversation(&state, &caller, &row.id).await?.status == ENDED {
            return if state.unconfirmed_ends.take(id) {
                respond_ended()
            } else {
                Err(conflict(Rejection::Ended))
            };
        }
        return Err(if state.unconfirmed_ends.contains(id) {
            unwritable()
        } else {
            ApiError::NoCapacity(NO_HOLDER.into())
        });
    }
    let ended = async {
        loop {
            let now = find_conversation(&state, &caller, &row.id).await?;
            if now.status == ENDED {
                return Ok::<_, ApiError>(());
            }
            if is_remote {
                // Commits of another server are not announced here.
                tokio::time::sleep(REMOTE_END_POLL).await;
                continue;
            }
            // A reader that lags reads the store again in any case.
            let _ = commits.recv().await;
        }
    };
    tokio::select! {
        ended = ended => ended?,
        () = state.store.health.wait_for_failure() => return Err(unwritable()),
        // The call ends nevertheless, and a repeated request confirms it.
        () = tokio::time::sleep(END_TIMEOUT) => return Err(unwritable()),
    }
    respond_ended()
}
