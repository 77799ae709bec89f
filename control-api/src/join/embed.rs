//! `/embed/{agentId}`: a page for an iframe, where a click creates a conversation. It needs no API
//! key. It is therefore limited to agents that permit it and rate limited per address, and the
//! visitor's data is not trusted.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{ApiError, Resource};
use crate::http::body;
use crate::http::extract::{BaseUrl, Json, Path};
use crate::http::peer::Peer;
use crate::http::validate::FieldErrors;
use crate::join::about::{self, RecordingNotice};
use crate::join::obstacle;
use crate::resources::conversations::{self, ContextValue, JoinResponse, NewConversation};
use crate::resources::demo;
use crate::state::AppState;
use crate::store::agent::{Agent, Avatar};
use crate::store::{self, json_record};
use crate::web::{Pages, ShownAgent};

/// Maximum size of a visitor's name and id, bytes.
const MAX_TEXT_BYTES: usize = 200;
/// Maximum size of a visitor's context, bytes.
const MAX_CONTEXT_BYTES: usize = 2048;

/// An agent that may be embedded.
pub(crate) struct EmbeddableAgent {
    pub(crate) workspace: String,
    pub(crate) id: String,
    pub(crate) origins: Vec<String>,
    name: String,
    avatar: Avatar,
    recording: Option<RecordingNotice>,
}

/// A visitor's request for a conversation.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "EmbedBody")]
pub(crate) struct VisitorRequest {
    /// At most 200 bytes.
    #[serde(rename = "userName")]
    user_name: Option<String>,
    /// At most 200 bytes.
    #[serde(rename = "userId")]
    user_id: Option<String>,
    /// At most 2 KB.
    context: Option<ContextValue>,
}

/// Name, id and context (JSON) of a visitor.
pub(crate) fn parse_visitor(body: Value) -> Result<[Option<String>; 3], ApiError> {
    let errors = FieldErrors::default();
    let VisitorRequest { user_name, user_id, context } = body::read(body, &errors)?;
    for (name, text) in [("userName", &user_name), ("userId", &user_id)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
            errors.add(name, "must be at most 200 bytes");
        }
    }
    let context = context.map(|context| context.to_json());
    if context.as_ref().is_some_and(|context| context.len() > MAX_CONTEXT_BYTES) {
        errors.add("context", "must be at most 2 KB");
    }
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    errors.into_result([non_empty(user_name), non_empty(user_id), context])
}

/// The agent in the path; 404 unless it exists and may be embedded.
pub(crate) async fn find_embeddable_agent(
    state: &AppState,
    id: &str,
) -> Result<EmbeddableAgent, ApiError> {
    let not_found = || ApiError::NotFound(Resource::Agent);
    let id = store::normalize_id(id).ok_or_else(not_found)?;
    let (workspace, row) = state.store.agent_in_any_workspace(&id).await?.ok_or_else(not_found)?;
    let Agent { agent_name, settings, .. } = json_record::parse_document(&row.document)?;
    if !settings.embed.enabled || !settings.is_active {
        return Err(not_found());
    }
    let recording = RecordingNotice::of(state, &settings);
    let avatar = settings.first_avatar().into_owned();
    let name = about::persona_name(&avatar, &agent_name).to_owned();
    let origins = settings.embed.origins.into_iter().map(|origin| origin.0).collect();
    Ok(EmbeddableAgent { workspace, id, origins, name, avatar, recording })
}

/// The agent as a page shows it before the call.
async fn show(state: &AppState, agent: EmbeddableAgent) -> Result<ShownAgent, ApiError> {
    let EmbeddableAgent { workspace, id, name, avatar, .. } = agent;
    let avatar_id = avatar.avatar_key_id.as_deref().unwrap_or_default();
    let picture = about::shown_picture(state, &workspace, &id, avatar_id, &avatar).await?;
    Ok(ShownAgent { id, name, picture })
}

pub(crate) fn routes(pages: &Pages) -> Router<Arc<AppState>> {
    let pages = pages.clone();
    let page = async move |State(state): State<Arc<AppState>>, Path(id): Path<String>| {
        let agent = find_embeddable_agent(&state, &id).await?;
        let (origins, recording) = (agent.origins.clone(), json!(agent.recording));
        Ok::<_, ApiError>(pages.embed(&origins, &recording, &show(&state, agent).await?))
    };
    Router::new().route("/embed/{agent_id}", get(page).post(create_conversation))
}

/// Whether the origin is permitted: our own (the page itself), or one of the agent's origins.
pub(crate) fn is_origin_allowed(headers: &HeaderMap, base: &str, origins: &[String]) -> bool {
    match headers.get(header::ORIGIN).map(|v| v.to_str().unwrap_or_default()) {
        None => true,
        Some(origin) => {
            let same = url::Url::parse(base)
                .is_ok_and(|base| base.origin().ascii_serialization() == origin);
            same || origins
                .iter()
                .any(|allowed| allowed == "*" || allowed.trim_end_matches('/') == origin)
        }
    }
}

async fn create_conversation(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    BaseUrl(base): BaseUrl,
    peer: Peer,
    headers: HeaderMap,
    request: Request,
) -> Result<axum::Json<JoinResponse>, ApiError> {
    state.check_rate_limit(&state.rate_limits.embeds, peer)?;
    let Json(body) = <Json>::from_request(request, &()).await?;
    let [user_name, user_id, context] = parse_visitor(body)?;
    let agent = find_embeddable_agent(&state, &id).await?;
    if !is_origin_allowed(&headers, &base, &agent.origins) {
        return Err(ApiError::Forbidden("This page may not use the agent"));
    }
    // The visitor has not been asked for the microphone yet.
    if let Some(reason) = obstacle::of_agent(&state, &agent.workspace, &agent.id).await? {
        return Err(ApiError::Unavailable(reason));
    }
    let new_conversation = NewConversation {
        meeting: None,
        agent: agent.id,
        user_name,
        user_id,
        context,
        from_visitor: true,
        meta_data: None,
    };
    let row = conversations::create_record(&state, &agent.workspace, &new_conversation).await?;
    Ok(axum::Json(conversations::join_response(&state, &row, &base).await?))
}

/// `GET /`: a landing page with a link to the demo agent.
pub(crate) fn landing_routes(pages: &Pages) -> Router<Arc<AppState>> {
    let pages = pages.clone();
    let page = async move |State(state): State<Arc<AppState>>| -> Result<Response, ApiError> {
        let Some(id) = demo::find(&state).await? else { return Ok(pages.landing(None)) };
        let agent = match find_embeddable_agent(&state, &id).await {
            Ok(agent) => agent,
            // It is not active.
            Err(ApiError::NotFound(_)) => return Ok(pages.landing(None)),
            Err(error) => return Err(error),
        };
        Ok(pages.landing(Some(&show(&state, agent).await?)))
    };
    Router::new().route("/", get(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_page_and_the_agent_s_origins_may_click() {
        let from = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            is_origin_allowed(
                &headers,
                "https://talk.example/base",
                &["https://shop.example/".to_owned()],
            )
        };
        assert!(from("https://talk.example"));
        assert!(from("https://shop.example"));
        assert!(!from("https://evil.example"));
        assert!(!from("null"));
        assert!(is_origin_allowed(&HeaderMap::new(), "https://talk.example", &[]));
    }
}
