//! The resources of the REST interface, one file or folder for each: its routes, its validation,
//! its JSON representation, and its background tasks.

pub(crate) mod agents;
pub(crate) mod api_keys;
pub(crate) mod avatars;
pub(crate) mod backgrounds;
pub(crate) mod call_limits;
pub(crate) mod characters;
pub(crate) mod conversations;
pub(crate) mod credentials;
pub(crate) mod custom_avatars;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod document_resource;
pub(crate) mod guardrails;
pub(crate) mod knowledge;
pub(crate) mod knowledge_cache;
pub(crate) mod livekit;
pub(crate) mod mcp;
pub(crate) mod meetings;
pub(crate) mod model_choices;
pub(crate) mod provider_trials;
pub(crate) mod providers;
pub(crate) mod recording_link;
pub(crate) mod recordings;
pub(crate) mod secret_headers;
pub(crate) mod servers;
pub(crate) mod templates;
pub(crate) mod tools;
pub(crate) mod variants;
pub(crate) mod videos;

use std::sync::Arc;

use axum::Router;

use crate::state::AppState;

/// The routes of all resources.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .merge(agents::routes())
        .merge(api_keys::routes())
        .merge(avatars::routes())
        .merge(characters::routes())
        .merge(conversations::routes())
        .merge(credentials::routes())
        .merge(custom_avatars::routes())
        .merge(dead_letters::routes())
        .merge(guardrails::routes())
        .merge(knowledge::routes())
        .merge(livekit::routes())
        .merge(mcp::routes())
        .merge(meetings::routes())
        .merge(provider_trials::routes())
        .merge(providers::routes())
        .merge(recordings::routes())
        .merge(servers::routes())
        .merge(templates::routes())
        .merge(tools::routes())
        .merge(videos::routes())
}
