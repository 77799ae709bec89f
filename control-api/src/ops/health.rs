//! `/healthz`, `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine_api::MissingModel;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::STORE_UNWRITABLE;
use crate::state::AppState;
use crate::state::supervise::EVENT_WRITER;

/// Maximum time for a response of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

/// Whether the server runs, or accepts calls.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The models that are not installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingItem>,
}

impl Health {
    fn of(status: &'static str, reason: Option<String>) -> Self {
        Self { status, reason, missing: Vec::new() }
    }
}

/// A model that is not installed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MissingModel")]
struct MissingItem {
    /// Name of the model.
    name: &'static str,
    /// `vad`, `stt`, `tts`, `turn` or `llm`.
    kind: &'static str,
    /// Whether agents that name no provider cannot be called without it.
    needed: bool,
    /// What to install.
    reason: String,
}

impl From<MissingModel> for MissingItem {
    fn from(model: MissingModel) -> Self {
        let MissingModel { name, kind, needed, reason } = model;
        Self { name, kind, needed, reason }
    }
}

/// The response of a process that runs.
pub(crate) async fn alive() -> Response {
    axum::Json(Health::of("ok", None)).into_response()
}

/// The response of a server that takes no calls.
pub(crate) fn not_ready(reason: &str) -> Response {
    let health = Health::of("not ready", Some(reason.to_owned()));
    (StatusCode::SERVICE_UNAVAILABLE, axum::Json(health)).into_response()
}

async fn ready(State(state): State<Arc<AppState>>) -> Response {
    // The prober has its own timeout, which is shorter than the pool's acquire timeout.
    let answer = tokio::time::timeout(STORE_TIMEOUT, state.store.ping()).await;
    let failed = match &answer {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(late) => Some(late.to_string()),
    };
    let reason = if let Some(error) = failed {
        tracing::error!(%error, "the store does not respond");
        Some("the store does not respond".to_owned())
    } else if state.store.health.failure_reason().is_some() {
        Some(STORE_UNWRITABLE.to_owned())
    } else if state.tasks.is_down(EVENT_WRITER) {
        Some("events are not being stored".to_owned())
    } else if state.is_draining() {
        Some("draining".to_owned())
    } else {
        // The reason for which a new call would be rejected. Running calls are not affected by it.
        state
            .engine()
            .not_ready_reason()
            .or_else(|| state.engine().capacity_error())
            .or_else(|| state.engine().models_unavailable())
            .or_else(|| state.livekit.as_ref()?.not_ready_reason())
    };
    let (code, status, reason) = match reason {
        // Part of the server takes no calls. The reason is reported, but a load balancer must not
        // remove the server for it.
        None => (StatusCode::OK, "ready", state.engine().degraded_reason()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, "not ready", Some(reason)),
    };
    let missing = state.engine.get().map(|engine| engine.missing_models());
    let missing = missing.into_iter().flatten().map(MissingItem::from).collect();
    (code, axum::Json(Health { status, reason, missing })).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use serde_json::json;

    use super::*;
    use crate::app::App;
    use crate::config::Config;

    #[tokio::test]
    async fn a_server_is_not_ready_while_its_event_writer_is_down() {
        let data = std::env::temp_dir().join(format!("visavis-health-{}", std::process::id()));
        let net = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
        let config = Config { data: data.clone(), ..Config::default() };
        let app = App::open(config, Vec::new(), net).await.unwrap();
        app.state().tasks.record_panic(EVENT_WRITER);
        let answer = ready(State(Arc::clone(app.state()))).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({"status": "not ready", "reason": "events are not being stored"}));
        app.state().store.close().await;
        std::fs::remove_dir_all(data).unwrap();
    }
}
