//! A server whose database does not respond yet: it waits, and answers health checks meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::get;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::app::OpenError;
use crate::error::ApiError;
use crate::ops::health;
use crate::store::{self, database_address};

/// Maximum time of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The routes of a server that waits for the database at `url`.
pub fn starting_router(url: &str) -> Router {
    let reason: Arc<str> = format!("waiting for the database at {}", database_address(url)).into();
    let ready = Arc::clone(&reason);
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(async move || health::not_ready(&ready)))
        .fallback(async move || ApiError::Unavailable(reason.to_string()).into_response())
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
}

/// Waits until the PostgreSQL database at `url` accepts connections, for at most `limit`. Each
/// attempt that fails is a line of the log, without the credentials.
///
/// # Errors
/// The database refuses this server, or does not respond in time.
pub async fn wait_for_database(url: &str, limit: Duration) -> Result<(), OpenError> {
    let deadline = Instant::now() + limit;
    loop {
        let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, PgConnection::connect(url)).await;
        let error = match attempt {
            Ok(Ok(connection)) => {
                // It was only a test.
                let _ = connection.close().await;
                return Ok(());
            }
            Ok(Err(error)) => store::Error::from(error),
            Err(_) => store::Error::from(sqlx::Error::PoolTimedOut),
        };
        let (database, cause) = (database_address(url), error.describe());
        let left = deadline.saturating_duration_since(Instant::now());
        if !error.is_outage() || left.is_zero() {
            return Err(OpenError::Database(database, cause));
        }
        tracing::warn!(
            %database,
            %cause,
            "cannot connect to the database; trying for {} s more",
            left.as_secs_f64().ceil()
        );
        tokio::time::sleep(RETRY_DELAY.min(left)).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;

    const URL: &str = "postgres://visavis:secret-of-the-test@127.0.0.1:1/db";

    #[tokio::test]
    async fn a_database_that_does_not_listen_is_named_without_its_password() {
        let error = wait_for_database(URL, Duration::ZERO).await.unwrap_err().to_string();
        let expected = "server.database_url: the database at 127.0.0.1:1/db cannot be used: ";
        assert!(error.starts_with(expected) && error.contains("refused"), "{error}");
        assert!(!error.contains("secret-of-the-test"), "{error}");
    }

    #[tokio::test]
    async fn health_checks_are_answered_while_the_server_waits() {
        for (path, status, body) in [
            ("/healthz", 200, "{\"status\":\"ok\"}"),
            (
                "/readyz",
                503,
                "{\"status\":\"not ready\",\"reason\":\"waiting for the database at 127.0.0.1:1/db\"}",
            ),
            (
                "/v1/ext/agents",
                503,
                "{\"error\":\"Service unavailable\",\"reason\":\"waiting for the database at \
                 127.0.0.1:1/db\"}",
            ),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = starting_router(URL).oneshot(request).await.unwrap();
            assert_eq!(response.status(), status, "{path}");
            let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert_eq!(text, body.as_bytes(), "{path}");
        }
    }
}
