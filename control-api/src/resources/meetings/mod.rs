//! External meetings: `/v1/ext/externalmeeting` sends an agent into a meeting, by way of a
//! meeting-bot service.
//!
//! ```text
//! POST --> create_record: STARTED, joining --> the service creates a bot --> 200
//!                    |                                  |
//!                    |                                  +-- refused --> ENDED, error --> 502
//! task, webhook --> lifecycle: waiting_room, in_call, left, done, error
//! the page or the socket of the bot joins ---------> IN_PROGRESS
//! the conversation ends, whoever ends it ----------> the task removes the bot
//! ```

mod accounts;
mod lifecycle;
mod link;
mod order;
mod overdue;
pub(crate) mod settings;
mod task;
mod webhook;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use conversation::event::Event;
use conversation::participation::ParticipationMode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{ApiError, Resource};
use crate::events::record;
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::Json;
use crate::http::quota;
use crate::http::validate::FieldErrors;
use crate::meeting_services::{self, BotOrder, Detail, MediaMode, MeetingService};
use crate::resources::conversations::{self, NewConversation, NewMeeting};
use crate::state::AppState;
use crate::store::json_record::Table;
use crate::store::{self, Lock, meeting};

pub(crate) use accounts::Accounts;
pub(crate) use lifecycle::Lifecycle;
use link::{MeetingLink, Platform};
use order::{OrderParts, display_name, is_blank};
use settings::MeetingSettings;
pub(crate) use task::{BotWatch, MeetingTask};

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/ext/externalmeeting", post(create)).merge(webhook::routes())
}

/// A request to send an agent into a meeting.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Meeting")]
pub(crate) struct MeetingRequest {
    #[schemars(length(min = 1))]
    agent_id: String,
    /// A meeting of Google Meet, Zoom or Microsoft Teams.
    #[schemars(length(min = 1))]
    meeting_url: String,
    /// The agent's display name.
    #[schemars(length(min = 1))]
    user_name: String,
    #[schemars(length(min = 1))]
    user_id: String,
    context: Option<String>,
    /// What addresses the agent, in addition to its name; in the mode `observer`, instead of it.
    #[schemars(length(max = 200))]
    wake_phrase: Option<String>,
    /// `participant` answers when it is addressed, `observer` only after the wake phrase,
    /// `one_to_one` always. Unknown modes count as `participant`.
    mode: Option<String>,
    /// Whether the agent may be in the meeting more than once; null = false.
    allow_multiple: Option<bool>,
}

/// A valid request.
#[derive(Debug)]
pub(crate) struct NewBot {
    pub(crate) agent: String,
    link: MeetingLink,
    name: String,
    user_id: String,
    context: Option<String>,
    wake_phrase: Option<String>,
    mode: ParticipationMode,
    allow_multiple: bool,
}

pub(crate) fn parse(body: Value) -> Result<NewBot, ApiError> {
    let errors = FieldErrors::default();
    let request: MeetingRequest = body::read(body, &errors)?;
    let url = request.meeting_url.trim();
    let link = MeetingLink::parse(url);
    if let Err(reason) = &link
        && !url.is_empty()
    {
        errors.add("meeting_url", *reason);
    }
    let name = display_name(&request.user_name);
    if name.is_empty() && !request.user_name.is_empty() {
        errors.add("user_name", "must contain a character that every platform shows");
    }
    if let Some(phrase) = &request.wake_phrase
        && !phrase.trim().is_empty()
        && !phrase.chars().any(|c| c.is_alphanumeric() && !is_blank(c))
    {
        errors.add("wake_phrase", "must contain a letter or a digit");
    }
    let non_blank = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let no_link = || MeetingLink {
        platform: Platform::Zoom,
        code: String::new(),
        url: String::new(),
        shown_url: String::new(),
    };
    errors.into_result(NewBot {
        agent: request.agent_id,
        // Only of a request that is refused.
        link: link.unwrap_or_else(|_| no_link()),
        name,
        user_id: request.user_id,
        context: non_blank(request.context),
        wake_phrase: non_blank(request.wake_phrase),
        mode: ParticipationMode::from_name(request.mode.as_deref()),
        allow_multiple: request.allow_multiple.unwrap_or(false),
    })
}

/// Why no agent can be sent into a meeting. One sentence for the operator.
fn refuse(reason: &str) -> ApiError {
    tracing::warn!(reason, "cannot send an agent into a meeting");
    ApiError::MeetingRefused
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<Response, ApiError> {
    let new = parse(body)?;
    let not_found = || ApiError::NotFound(Resource::Agent);
    let agent = store::normalize_id(&new.agent).ok_or_else(not_found)?;
    let workspace = &*caller.workspace;
    state.store.document(Table::Agent, workspace, &agent).await?.ok_or_else(not_found)?;
    let accounts = Accounts::of(&state);
    let Some((account, owner)) = accounts.find(workspace).await? else {
        return Err(refuse(
            "no meeting service is configured: set meetings.provider, or store a key of one",
        ));
    };
    let Some(service) = accounts.connect(&account, owner) else {
        return Err(refuse("the meeting service is not supported"));
    };
    let public = state.config.public_url.as_deref().filter(|url| url.starts_with("https://"));
    let Some(base) = public else {
        return Err(refuse("meeting services need server.public_url with https"));
    };
    let mode =
        meeting_services::media_mode(account.provider, state.config.meetings.preferred_media());
    let settings = MeetingSettings {
        mode: new.mode,
        name: new.name.clone(),
        wake_phrase: new.wake_phrase,
        is_page: mode == MediaMode::Page,
    };
    let conversation = NewConversation {
        agent,
        user_name: Some(new.name),
        user_id: Some(new.user_id),
        context: new.context.map(|text| json!(text).to_string()),
        from_visitor: false,
        meta_data: None,
        meeting: Some(NewMeeting {
            settings: json!(settings).to_string(),
            provider: account.provider,
            account: owner,
            platform: new.link.platform.as_str(),
            code: new.link.code,
            url: new.link.shown_url,
            allow_multiple: new.allow_multiple,
        }),
    };
    quota::ensure_room_for_meeting(&state, workspace).await?;
    let row = conversations::create_record(&state, workspace, &conversation).await?;
    let token = record::session_token(&state, &row.id, row.created_at).unwrap_or_default();
    let order = OrderParts {
        config: &state.config.meetings,
        meetings: &state.meetings,
        account: &account,
        owner,
        row: &row,
        link: &new.link.url,
        is_zoom: new.link.platform == Platform::Zoom,
        base,
        token: &token,
    };
    let order = order.into_order()?;
    // A task of its own: a client that disconnects cancels its request, but the bot exists then.
    let created = tokio::spawn(create_bot(Arc::clone(&state), service, account.provider, order));
    if !created.await.unwrap_or(Ok(false))? {
        return Err(ApiError::MeetingRefused);
    }
    let location = format!("/v1/ext/conversation/{}", row.id);
    Ok(([(header::LOCATION, location)], "Agent request successfully created.").into_response())
}

/// Creates the bot of a conversation. Returns whether the service accepts it; otherwise the
/// conversation has ended.
async fn create_bot(
    state: Arc<AppState>,
    service: Box<dyn MeetingService>,
    provider: &'static str,
    order: BotOrder,
) -> Result<bool, ApiError> {
    let id = &order.conversation;
    let error = match service.create(&order).await {
        Ok(bot) => match store_bot(&state, id, &bot).await {
            Ok(()) => {
                tracing::info!(conversation = %id, provider, bot, "agent sent into a meeting");
                state.meetings.created.notify_one();
                return Ok(true);
            }
            Err(error) => {
                // Nobody would remember the bot.
                if let Err(error) = service.leave(&bot).await {
                    tracing::error!(conversation = %id, bot, %error, "cannot remove a bot");
                }
                return Err(error.into());
            }
        },
        Err(error) => error,
    };
    state.meetings.count_failed_request(provider, &error);
    tracing::warn!(conversation = %id, provider, %error, "the meeting service refuses the agent");
    let text = meeting_services::end_sentence(&format!("The agent was not sent: {error}"));
    let warning = Event::Warning { text };
    let lifecycle = Lifecycle::of(&state);
    lifecycle.fail(id, Detail::ServiceError, warning).await?;
    let mut tx = state.store.begin_write(Lock::Rows).await?;
    meeting::release_uncreated(&mut tx, id).await?;
    tx.commit().await?;
    Ok(false)
}

async fn store_bot(state: &AppState, id: &str, bot: &str) -> store::Result<()> {
    let mut tx = state.store.begin_write(Lock::Rows).await?;
    meeting::set_bot(&mut tx, id, bot).await?;
    tx.commit().await
}
