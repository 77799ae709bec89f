//! All routes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use serde_json::json;

use crate::app::Shared;
use crate::error::{ApiError, Missing};
use crate::web::Pages;
use crate::{
    about, agent, apikey, avatar, character, conversation, cors, custom_avatar, delivery, door, embed, guard,
    guardrail, health, kb, mcp, meeting, metrics, openapi, provider, session, template, tool,
};

pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let pages = Pages::new(&json!(shared.config.ice_servers));
    let rest = Router::new()
        .merge(agent::routes())
        .merge(apikey::routes())
        .merge(avatar::routes())
        .merge(character::routes())
        .merge(conversation::routes())
        .merge(custom_avatar::routes())
        .merge(delivery::log::routes())
        .merge(guardrail::routes())
        .merge(kb::routes())
        .merge(mcp::routes())
        .merge(meeting::routes())
        .merge(openapi::routes())
        .merge(provider::routes())
        .merge(template::routes())
        .merge(tool::routes())
        // Set here, so that a preflight request, for which no route exists, reaches the layer.
        .method_not_allowed_fallback(async || ApiError::Method);
    let rest = match cors::layer(&shared.config.cors_origins) {
        Some(layer) => rest.layer(layer),
        None => rest,
    };
    Router::new()
        .merge(rest)
        .merge(session::routes())
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(embed::routes(&pages))
        .merge(embed::landing(&pages))
        .merge(pages.router())
        .merge(about::routes())
        .merge(door::routes(shared))
        .fallback(async || ApiError::Missing(Missing::Path))
        .method_not_allowed_fallback(async || ApiError::Method)
        .layer(from_fn_with_state(Arc::clone(shared), guard::guard))
        .with_state(Arc::clone(shared))
}
