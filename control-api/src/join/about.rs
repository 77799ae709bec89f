//! `GET /join/{conversation_id}/about`: what the call page may know about its conversation before
//! it sends an offer. Requires only the session token, and is refused like signaling: 401 for an
//! expired link, 409 after the conversation's end.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::Branding;
use crate::http::extract::Path;
use crate::http::responses::JsonResult;
use crate::join::{offers, signaling};
use crate::resources::variants;
use crate::state::AppState;
use crate::store::agent::{Agent, AgentSettings, Avatar};
use crate::store::{self, json_record};
use crate::web;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/join/{conversation_id}/about", get(about))
}

/// What the call page shows before the call.
#[derive(Serialize, JsonSchema)]
pub(crate) struct About {
    /// Status of the conversation.
    status: String,
    persona_name: String,
    /// The avatar as calls show it: a data URI.
    avatar_picture: Option<String>,
    /// The operator's name, logo and color; null without them.
    branding: Option<ShownBranding>,
    /// Questions that the page suggests; at most 6.
    suggested_questions: Vec<String>,
    /// Present if the call is recorded and the page must say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    recording: Option<RecordingNotice>,
}

/// How the pages for visitors look, by the operator's configuration.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Branding")]
pub(crate) struct ShownBranding {
    name: Option<String>,
    /// Address of the logo on this server: PNG or WebP.
    logo: Option<&'static str>,
    /// Color of buttons: `#rrggbb`.
    color: Option<String>,
}

impl ShownBranding {
    fn of(branding: &Branding) -> Option<Self> {
        let shown = Self {
            name: branding.name.clone(),
            logo: branding.logo.as_ref().map(|_| web::LOGO),
            color: branding.color.map(|color| color.to_string()),
        };
        (*branding != Branding::default()).then_some(shown)
    }
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

/// The avatar's persona name, otherwise the agent's name.
pub(super) fn persona_name<'a>(avatar: &'a Avatar, agent_name: &'a str) -> &'a str {
    avatar.persona_name.as_deref().filter(|name| !name.trim().is_empty()).unwrap_or(agent_name)
}

/// The picture of an agent's avatar as calls show it.
pub(super) async fn shown_picture(
    state: &AppState,
    workspace: &str,
    agent: &str,
    avatar_id: &str,
    avatar: &Avatar,
) -> store::Result<Option<String>> {
    let shown = variants::find_shown_avatar(state, workspace, agent, avatar_id, avatar).await?;
    Ok(shown.map(|avatar| avatar.display_picture).filter(|picture| !picture.is_empty()))
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
    let persona_name = persona_name(&avatar, &row.agent_name).to_owned();
    let avatar_picture =
        shown_picture(&state, &row.workspace, &row.agent, &row.avatar_id, &avatar).await?;
    let suggested_questions = agent.settings.config.suggested_questions.clone();
    let recording = RecordingNotice::of(&state, &agent.settings);
    let branding = ShownBranding::of(&state.config.branding);
    Ok(axum::Json(About {
        status: row.status,
        persona_name,
        avatar_picture,
        branding,
        suggested_questions,
        recording,
    }))
}
