//! External meetings: `/v1/ext/externalmeeting`. No meeting service is installed: requests are
//! validated, then rejected.

mod link;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::Json;
use crate::http::validate::FieldErrors;
use crate::state::AppState;
use crate::store;
use crate::store::json_record::Table;

use link::MeetingLink;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/ext/externalmeeting", post(create))
}

/// A request to send an agent into a meeting.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Meeting")]
#[expect(dead_code, reason = "no meeting service is installed")]
pub(crate) struct MeetingRequest {
    #[schemars(length(min = 1))]
    agent_id: String,
    /// A meeting of Google Meet, Zoom or Microsoft Teams.
    #[schemars(length(min = 1))]
    meeting_url: String,
    #[schemars(length(min = 1))]
    user_name: String,
    #[schemars(length(min = 1))]
    user_id: String,
    context: Option<String>,
    wake_phrase: Option<String>,
    /// Unknown modes count as `participant`.
    mode: Option<String>,
}

/// The agent of a valid request.
pub(crate) fn parse(body: Value) -> Result<String, ApiError> {
    let errors = FieldErrors::default();
    let request: MeetingRequest = body::read(body, &errors)?;
    let url = &request.meeting_url;
    if let Err(reason) = MeetingLink::parse(url)
        && !url.trim().is_empty()
    {
        errors.add("meeting_url", reason);
    }
    errors.into_result(request.agent_id)
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<&'static str, ApiError> {
    let agent = parse(body)?;
    let not_found = || ApiError::NotFound(Resource::Agent);
    let id = store::normalize_id(&agent).ok_or_else(not_found)?;
    state.store.document(Table::Agent, &caller.workspace, &id).await?.ok_or_else(not_found)?;
    Err(ApiError::MeetingRefused)
}
