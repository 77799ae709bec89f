//! External meetings: `/v1/ext/externalmeeting`. No meeting service is installed: requests are
//! validated, then rejected.

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

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/ext/externalmeeting", post(create))
}

/// The platform of a meeting's URL, by its host.
fn platform(url: &str) -> Option<&'static str> {
    let url = url::Url::parse(url).ok().filter(|u| matches!(u.scheme(), "http" | "https"))?;
    let host = url.host_str()?.to_ascii_lowercase();
    let of = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    match () {
        () if host == "meet.google.com" => Some("google_meet"),
        () if of("zoom.us") || of("zoom.com") => Some("zoom"),
        () if of("teams.microsoft.com") || of("teams.live.com") => Some("microsoft_teams"),
        () => None,
    }
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
    if !url.trim().is_empty() && platform(url).is_none() {
        errors.add("meeting_url", "must be a meeting of Google Meet, Zoom or Microsoft Teams");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_is_known_by_its_host() {
        for (url, known) in [
            ("https://meet.google.com/abc-defg-hij", Some("google_meet")),
            ("https://us05web.zoom.us/j/1?pwd=x", Some("zoom")),
            ("https://ZOOM.US/j/1", Some("zoom")),
            ("https://teams.microsoft.com/l/meetup-join/x", Some("microsoft_teams")),
            ("https://teams.live.com/meet/1", Some("microsoft_teams")),
            ("https://evilzoom.us/j/1", None),
            ("https://meet.google.com.evil.example/", None),
            ("https://example.com/?u=meet.google.com", None),
            ("ftp://zoom.us/j/1", None),
            ("zoom.us/j/1", None),
        ] {
            assert_eq!(platform(url), known, "{url}");
        }
    }
}
