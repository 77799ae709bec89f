//! `/healthz`, `/readyz`, `/metrics`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::app::Shared;
use crate::auth::bearer;
use crate::error::ApiError;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready)).route("/metrics", get(metrics))
}

async fn alive() -> Response {
    axum::Json(json!({"status": "ok"})).into_response()
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let reason = match shared.store.alive().await {
        Err(error) => {
            tracing::error!(%error, "the store does not answer");
            Some("the store does not answer".to_owned())
        }
        Ok(()) if shared.draining() => Some("draining".to_owned()),
        Ok(()) => shared.host().not_ready(),
    };
    match reason {
        None => axum::Json(json!({"status": "ready"})).into_response(),
        Some(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, axum::Json(json!({"status": "not ready", "reason": reason})))
                .into_response()
        }
    }
}

/// Whether a request may read the metrics: the token's holder, or this machine while the server is not public.
fn may_read(shared: &Shared, request: &Request) -> bool {
    let given = bearer(request.headers(), request.uri().query());
    if let (Some(token), Some(given)) = (&shared.config.metrics_token, given)
        && aws_lc_rs::constant_time::verify_slices_are_equal(token.as_bytes(), given.as_bytes()).is_ok()
    {
        return true;
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    shared.config.public_url.is_none() && peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback())
}

/// Prometheus' text format.
async fn metrics(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, ApiError> {
    if !may_read(&shared, &request) {
        return Err(ApiError::Unauthorized);
    }
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, values: &[(String, i64)]| {
        // Writing into a String does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    gauge(
        "visavis_calls",
        "Calls held now, connecting ones included.",
        &[(String::new(), shared.host().calls() as i64)],
    );
    gauge(
        "visavis_facts_queued",
        "Facts that wait to be written.",
        &[(String::new(), shared.facts.waiting() as i64)],
    );
    let states = |counts: Vec<(String, i64)>| -> Vec<(String, i64)> {
        counts.into_iter().map(|(state, n)| (format!("{{state=\"{}\"}}", state.to_lowercase()), n)).collect()
    };
    let deliveries = states(shared.store.delivery_counts().await?);
    gauge("visavis_webhooks", "Webhooks in the store, by what became of them.", &deliveries);
    let conversations = states(shared.store.conversation_counts().await?);
    gauge("visavis_conversations", "Conversations in the store, by status.", &conversations);
    let ready = i64::from(!shared.draining() && shared.host().not_ready().is_none());
    gauge("visavis_ready", "Whether calls are taken.", &[(String::new(), ready)]);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
