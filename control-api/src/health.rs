//! `/healthz`, `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::app::Shared;
use crate::error::UNWRITABLE;
use crate::supervise::LEDGER;

/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

async fn alive() -> Response {
    axum::Json(json!({"status": "ok"})).into_response()
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    // Who asks has a time-out of its own, and a pool's patience is longer than that.
    let answer = tokio::time::timeout(PATIENCE, shared.store.alive()).await;
    let failed = match &answer {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(late) => Some(late.to_string()),
    };
    let reason = if let Some(error) = failed {
        tracing::error!(%error, "the store does not answer");
        Some("the store does not answer".to_owned())
    } else if shared.store.health.failing().is_some() {
        Some(UNWRITABLE.to_owned())
    } else if shared.tasks.is_down(LEDGER) {
        Some("events are not being stored".to_owned())
    } else if shared.draining() {
        Some("draining".to_owned())
    } else {
        // What a new call would be told at the door. The calls that run do not suffer from it.
        shared
            .host()
            .not_ready_reason()
            .or_else(|| shared.host().capacity_error())
            .or_else(|| shared.host().stt_unavailable())
    };
    match reason {
        // Less than all of the server takes calls: it is told, and no load balancer takes the server out for it.
        None => match shared.host().degraded_reason() {
            None => axum::Json(json!({"status": "ready"})).into_response(),
            Some(reason) => axum::Json(json!({"status": "ready", "reason": reason})).into_response(),
        },
        Some(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, axum::Json(json!({"status": "not ready", "reason": reason})))
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use models::net;

    use super::*;
    use crate::app::App;
    use crate::config::Config;

    #[tokio::test]
    async fn a_server_whose_ledger_is_down_is_not_ready() {
        let data = std::env::temp_dir().join(format!("visavis-health-{}", std::process::id()));
        let net = net::Client::new(net::Policy { allow_private: true }).unwrap();
        let config = Config { data: data.clone(), ..Config::default() };
        let app = App::open(config, Vec::new(), net).await.unwrap();
        app.shared().tasks.panicked(LEDGER);
        let answer = ready(State(Arc::clone(app.shared()))).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({"status": "not ready", "reason": "events are not being stored"}));
        app.shared().store.close().await;
        std::fs::remove_dir_all(data).unwrap();
    }
}
