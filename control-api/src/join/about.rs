//! `GET /join/{conversation_id}/about`: what the call page may know about its conversation before
//! it sends an offer. Requires only the session token, and is refused like signaling: 401 for an
//! expired link, 409 after the conversation's end.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::extract::Path;
use crate::http::responses::JsonResult;
use crate::join::{offers, signaling};
use crate::state::AppState;
use crate::store::agent::{Agent, AgentSettings};
use crate::store::json_record;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/join/{conversation_id}/about", get(about))
}

/// What the call page shows before the call.
#[derive(Serialize, JsonSchema)]
pub(crate) struct About {
    /// Status of the conversation.
    status: String,
    persona_name: String,
    /// Questions that the page suggests; at most 6.
    suggested_questions: Vec<String>,
    /// Present if the call is recorded and the page must say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    recording: Option<RecordingNotice>,
}

/// What a page says about the recording of calls, as in `bot-ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct RecordingNotice {
    /// Always true.
    notice: bool,
    /// Whether the user may discard the recording during the call.
    optional: bool,
}

impl RecordingNotice {
    /// The notice of an agent's calls; `None` if they are not recorded, because the agent does not
    /// want it or this server cannot, or are recorded without a notice.
    pub(crate) fn of(state: &AppState, settings: &AgentSettings) -> Option<Self> {
        let recording = &settings.config.recording;
        (settings.record && recording.notice && state.engine().recording_error().is_none())
            .then_some(Self { notice: true, optional: recording.optional })
    }
}

async fn about(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> JsonResult<About> {
    let (parts, _) = request.into_parts();
    let claims = signaling::verify_token_for(&state, &parts, &id)?;
    let row = offers::find_joinable(&state, &claims).await?.row;
    let agent: Agent = json_record::parse_document(&row.agent_document)?;
    let avatar = agent.settings.first_avatar();
    // The avatar's persona name, otherwise the agent's name.
    let persona = avatar.persona_name.as_deref().filter(|name| !name.trim().is_empty());
    let persona_name = persona.unwrap_or(&row.agent_name).to_owned();
    let suggested_questions = agent.settings.config.suggested_questions.clone();
    let recording = RecordingNotice::of(&state, &agent.settings);
    Ok(axum::Json(About { status: row.status, persona_name, suggested_questions, recording }))
}
