//! All routes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use serde_json::json;

use crate::error::{ApiError, Resource};
use crate::http::{console_session, cors, outage, security_headers};
use crate::join::{about, audio_socket, embed, livekit, signaling};
use crate::openapi;
use crate::ops::{health, metrics};
use crate::resources::{self, recordings};
use crate::state::AppState;
use crate::web::{Pages, error_page};

/// The routes of a worker, which serves only LiveKit rooms.
pub(crate) fn worker_router(state: &Arc<AppState>) -> Router {
    Router::new()
        .merge(health::routes())
        .merge(metrics::routes())
        .fallback(async || ApiError::NotFound(Resource::Route))
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(from_fn_with_state(Arc::clone(state), security_headers::outer_middleware))
        .with_state(Arc::clone(state))
}

pub(crate) fn router(state: &Arc<AppState>) -> Router {
    let pages = Pages::new(&json!(state.config.ice_servers))
        .with_branding(state.config.branding.clone())
        .with_media_origin(state.storage.insecure_origin());
    // Within CORS, so that pages of other origins can read its responses.
    let outage = || from_fn_with_state(Arc::clone(state), outage::limit_time_in_outage);
    let api_routes = resources::routes()
        .merge(livekit::routes())
        .merge(openapi::routes())
        // Set here, so that a preflight request, for which no route exists, reaches the layer.
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(outage());
    let api_routes = match cors::layer(&state.config.cors_origins) {
        Some(layer) => api_routes.layer(layer),
        None => api_routes,
    };
    let other_routes = Router::new()
        .merge(console_session::routes())
        .merge(health::routes())
        .merge(recordings::media::routes())
        .merge(metrics::routes())
        .merge(embed::routes(&pages))
        .merge(livekit::embed_routes())
        .merge(embed::landing_routes(&pages))
        .merge(pages.router())
        .merge(about::routes())
        .merge(audio_socket::routes())
        .layer(outage());
    Router::new()
        .merge(api_routes)
        .merge(other_routes)
        .merge(signaling::routes(state))
        .fallback(async || ApiError::NotFound(Resource::Route))
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(from_fn_with_state(pages, error_page::middleware))
        .layer(from_fn_with_state(Arc::clone(state), security_headers::outer_middleware))
        .with_state(Arc::clone(state))
}
