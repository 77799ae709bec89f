//! `POST /v1/meetings/webhook/{token}`: what meeting services report. The token names the account;
//! the signature proves the origin.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;

use super::accounts::Accounts;
use super::lifecycle::Lifecycle;
use crate::clock;
use crate::error::ApiError;
use crate::http::extract::{Path, read_body};
use crate::meeting_services::{SERVICES, Webhook, WebhookError, is_bot_id};
use crate::state::AppState;
use crate::state::meetings::WebhookAccount;
use crate::store::meeting::{Row, SERVER_ACCOUNT, WORKSPACE_ACCOUNT};
use crate::store::{self, Lock, meeting};

/// Maximum size of a body, in bytes.
const MAX_BYTES: usize = 256 << 10;

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/meetings/webhook/{token}", post(receive))
}

async fn receive(
    State(state): State<Arc<AppState>>,
    Path(token): Path<String>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let refuse = |error: ApiError| {
        state.meetings.count_rejected_webhook();
        error
    };
    let account =
        state.meetings.read_token(&token).ok_or_else(|| refuse(ApiError::Unauthorized))?;
    let (parts, body) = request.into_parts();
    let body = read_body(body, &parts.headers, MAX_BYTES).await.map_err(refuse)?;
    let webhook = match verify(&state, &account, &parts.headers, &body).await? {
        Ok(webhook) => webhook,
        Err(WebhookError::Unsigned) => return Err(refuse(ApiError::Unauthorized)),
        Err(WebhookError::Malformed) => {
            return Err(refuse(ApiError::BadRequest("the event is malformed".into())));
        }
    };
    if let Some(row) = find_bot(&state, &account, &webhook).await? {
        let lifecycle = Lifecycle::of(&state);
        for report in webhook.reports {
            lifecycle.apply(&row.conversation, report).await?;
        }
    }
    // Other bots of the account are not ours.
    Ok(StatusCode::OK)
}

async fn verify(
    state: &AppState,
    account: &WebhookAccount,
    headers: &HeaderMap,
    body: &[u8],
) -> store::Result<Result<Webhook, WebhookError>> {
    let accounts = Accounts::of(state);
    let known = SERVICES.into_iter().find(|(name, _)| *name == account.provider);
    let Some((provider, _)) = known else { return Ok(Err(WebhookError::Unsigned)) };
    let (found, owner) = match &account.workspace {
        Some(workspace) => (accounts.of_workspace(workspace, provider).await?, WORKSPACE_ACCOUNT),
        None => (accounts.of_server().filter(|own| own.provider == provider), SERVER_ACCOUNT),
    };
    let service = found.and_then(|account| accounts.connect(&account, owner));
    let now = clock::now() / 1_000_000;
    let Some(service) = service else { return Ok(Err(WebhookError::Unsigned)) };
    let webhook = service.read_webhook(headers, body, now);
    Ok(match webhook {
        Ok(webhook) if !is_bot_id(&webhook.bot) => Err(WebhookError::Malformed),
        webhook => webhook,
    })
}

/// The bot that a webhook is about, if it belongs to the account. A bot whose creation was answered
/// later than its first webhook gets its id here.
async fn find_bot(
    state: &AppState,
    account: &WebhookAccount,
    webhook: &Webhook,
) -> store::Result<Option<Row>> {
    let is_own = |row: &Row| match &account.workspace {
        Some(workspace) => row.account == WORKSPACE_ACCOUNT && row.workspace == *workspace,
        None => row.account == SERVER_ACCOUNT,
    };
    let workspace = account.workspace.as_deref();
    let found = state.store.meeting_of_bot(&account.provider, &webhook.bot, workspace).await?;
    if found.is_some() {
        return Ok(found);
    }
    let Some(conversation) = &webhook.conversation else { return Ok(None) };
    let named = state.store.meeting(conversation).await?.filter(is_own);
    let Some(row) = named.filter(|row| row.provider == account.provider && row.bot.is_empty())
    else {
        return Ok(None);
    };
    let mut tx = state.store.begin_write(Lock::Rows).await?;
    meeting::set_bot(&mut tx, conversation, &webhook.bot).await?;
    tx.commit().await?;
    state.meetings.created.notify_one();
    Ok(Some(row))
}
