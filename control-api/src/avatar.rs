//! Stock avatars: `/v1/ext/avatars`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde_json::{Value, json};

use crate::app::Shared;
use crate::auth::Caller;
use crate::config::StockAvatar;
use crate::request::{Listed, Paged};

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/v1/ext/avatars", get(list))
}

/// A stock avatar as it is told.
pub(crate) fn shown(avatar: &StockAvatar) -> Value {
    json!(avatar)
}

async fn list(State(shared): State<Arc<Shared>>, _: Caller, Paged(page): Paged<true>) -> Listed {
    let matches = |avatar: &&StockAvatar| {
        let text = format!("{}\n{}", avatar.avatar_key_id, avatar.avatar_name).to_lowercase();
        page.search.as_ref().is_none_or(|part| text.contains(part))
    };
    Listed::slice(shared.avatars.iter().filter(matches).map(shown).collect(), &page)
}
