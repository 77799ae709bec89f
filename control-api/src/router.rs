//! Every route.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use serde_json::json;

use crate::app::Shared;
use crate::error::{ApiError, Missing};
use crate::web::Pages;
use crate::{about, agent, apikey, avatar, conversation, door, embed, guard, health, kb, tool};

pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let pages = Pages::new(&json!(shared.config.ice_servers));
    Router::new()
        .merge(agent::routes())
        .merge(apikey::routes())
        .merge(avatar::routes())
        .merge(conversation::routes())
        .merge(kb::routes())
        .merge(tool::routes())
        .merge(health::routes())
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
