//! `/embed/{agentId}`: a page for an iframe, where a click creates a conversation. It needs no API
//! key. It is therefore limited to agents that permit it and rate limited per address, and the
//! visitor's data is not trusted.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::error::{ApiError, Missing};
use crate::http::extract::{Base, Json, Path};
use crate::http::peer::Peer;
use crate::http::validate::{Faults, Fields};
use crate::resources::conversations::{self, Wish};
use crate::state::AppState;
use crate::store::{self, document};
use crate::web::Pages;

/// Maximum size of a visitor's context, bytes.
const CONTEXT_LIMIT: usize = 2048;

/// An agent that may be embedded.
struct Embedded {
    workspace: String,
    id: String,
    origins: Vec<String>,
}

/// The agent in the path; 404 unless it exists and may be embedded.
async fn embedded(shared: &AppState, id: &str) -> Result<Embedded, ApiError> {
    let missing = || ApiError::Missing(Missing::Agent);
    let id = store::id(id).ok_or_else(missing)?;
    let (workspace, row) = shared.store.agent_anywhere(&id).await?.ok_or_else(missing)?;
    let agent = document::parsed(&row.document)?;
    if agent["embed"]["enabled"] != true || agent["is_active"] == false {
        return Err(missing());
    }
    let origins = document::ids(&agent["embed"], "origins");
    Ok(Embedded { workspace, id, origins })
}

pub(crate) fn routes(pages: &Pages) -> Router<Arc<AppState>> {
    let pages = pages.clone();
    let page = async move |State(shared): State<Arc<AppState>>, Path(id): Path<String>| {
        embedded(&shared, &id).await.map(|agent| pages.embed(&agent.origins))
    };
    Router::new().route("/embed/{agent_id}", get(page).post(click))
}

/// Whether the origin is permitted: our own (the page itself), or one of the agent's origins.
fn allowed(headers: &HeaderMap, base: &str, origins: &[String]) -> bool {
    match headers.get(header::ORIGIN).map(|v| v.to_str().unwrap_or_default()) {
        None => true,
        Some(origin) => {
            let same = url::Url::parse(base).is_ok_and(|base| base.origin().ascii_serialization() == origin);
            same || origins.iter().any(|allowed| allowed.trim_end_matches('/') == origin)
        }
    }
}

async fn click(
    State(shared): State<Arc<AppState>>,
    Path(id): Path<String>,
    Base(base): Base,
    peer: Peer,
    headers: HeaderMap,
    request: Request,
) -> Result<axum::Json<Value>, ApiError> {
    shared.limited(&shared.limits.embeds, peer)?;
    let Json(body) = <Json>::from_request(request, &()).await?;
    let (user_name, user_id, context) = {
        let faults = Faults::default();
        let fields = Fields::body(body, &faults)?;
        let context = fields.raw("context").filter(|v| !v.is_null()).map(Value::to_string);
        if context.as_ref().is_some_and(|c| c.len() > CONTEXT_LIMIT) {
            fields.fault("context", "must be at most 2 KB");
        }
        if fields.raw("context").is_some_and(|v| !v.is_null() && !v.is_string() && !v.is_object()) {
            fields.fault("context", "must be a string or an object");
        }
        let short = |name: &str| {
            let text = fields.text(name).filter(|t| !t.is_empty());
            if text.as_ref().is_some_and(|t| t.len() > 200) {
                fields.fault(name, "must be at most 200 bytes");
            }
            text
        };
        let read = (short("userName"), short("userId"), context);
        faults.unless(read)?
    };
    let agent = embedded(&shared, &id).await?;
    if !allowed(&headers, &base, &agent.origins) {
        return Err(ApiError::Forbidden("This page may not use the agent"));
    }
    let wish = Wish { agent: agent.id, user_name, user_id, context, visitor: true, meta_data: None };
    let row = conversations::begin(&shared, &agent.workspace, &wish).await?;
    Ok(axum::Json(conversations::authorized(&shared, &row, &base).await?))
}

/// `GET /`: a landing page with a link to the demo agent.
pub(crate) fn landing(pages: &Pages) -> Router<Arc<AppState>> {
    let pages = pages.clone();
    let page = async move |State(shared): State<Arc<AppState>>| -> Result<Response, ApiError> {
        let demo = crate::resources::demo::find(&shared).await?;
        Ok(pages.landing(demo.as_deref()))
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
            allowed(&headers, "https://talk.example/base", &["https://shop.example/".to_owned()])
        };
        assert!(from("https://talk.example"));
        assert!(from("https://shop.example"));
        assert!(!from("https://evil.example"));
        assert!(!from("null"));
        assert!(allowed(&HeaderMap::new(), "https://talk.example", &[]));
    }
}
