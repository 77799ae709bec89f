//! Answers requests that wait for a database that does not respond. A statement that was sent before
//! the connection broke may never be answered.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::error::ApiError;
use crate::state::AppState;

/// A request may take longer than this while the store works: some have other work than the store.
const MAX_TIME_IN_OUTAGE: Duration = Duration::from_millis(1800);

/// Answers 503 to a request that takes long while the store fails.
pub(crate) async fn limit_time_in_outage(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    if !state.store.is_shared() {
        return next.run(request).await;
    }
    let mut response = pin!(next.run(request));
    let outage = async {
        tokio::time::sleep(MAX_TIME_IN_OUTAGE).await;
        state.store.health.wait_for_failure().await;
    };
    tokio::select! {
        biased;
        response = &mut response => response,
        () = outage => {
            let reason = state.store.health.failure_reason().unwrap_or_default();
            ApiError::StoreUnwritable(reason).into_response()
        }
    }
}

/// The same for signaling. A client that reconnects to a running call may reach its server with the
/// next request, so it waits shorter than others.
pub(crate) async fn limit_time_of_signaling_in_outage(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = limit_time_in_outage(State(Arc::clone(&state)), request, next).await;
    if response.status() == StatusCode::SERVICE_UNAVAILABLE
        && state.store.health.failure_reason().is_some()
    {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
    }
    response
}
