//! The outermost layer, before every route: the Host check of loopback listeners, the restriction
//! of reserved connections, and the headers of every response.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use conversation::id::ConversationId;
use tracing::Instrument as _;

use crate::error::{ApiError, StoreOutage};
use crate::http::serve::{ReservedConnection, is_essential_path};
use crate::state::AppState;

/// The host without its port, in lower case.
fn host_name(host: &str) -> String {
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    host.to_ascii_lowercase()
}

/// Whether a loopback listener may respond under this name. A page elsewhere may use a name that
/// resolves to this machine (DNS rebinding); such names are rejected.
fn is_allowed_host(host: &str, public_url: Option<&str>) -> bool {
    let name = host_name(host);
    let public = public_url
        .and_then(|u| url::Url::parse(u).ok())
        .and_then(|u| u.host_str().map(str::to_ascii_lowercase));
    matches!(name.as_str(), "127.0.0.1" | "localhost" | "::1")
        || public.is_some_and(|public| public.trim_matches(['[', ']']) == name)
}

/// The conversation in a path.
fn conversation_in_path(path: &str) -> Option<ConversationId> {
    let parts: Vec<&str> = path.split('/').skip(1).take(4).collect();
    match parts[..] {
        ["rtc" | "join", id, ..]
        | ["v1", "conversation", id, ..]
        | ["v1", "ext", "conversation", id, ..] => id.parse().ok(),
        _ => None,
    }
}

/// Span that adds the conversation's id to log lines. It has the highest level, so that no filter
/// removes the id from a line that passes.
pub(crate) fn call_span(id: ConversationId) -> tracing::Span {
    tracing::error_span!("call", conversation = %id)
}

/// The outermost layer.
pub(crate) async fn outer_middleware(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let host =
        request.headers().get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let host_rejected = state.config.listen.ip().is_loopback()
        && !is_allowed_host(host, state.config.public_url.as_deref());
    let slot_rejected = request.extensions().get::<ReservedConnection>().is_some()
        && !is_essential_path(request.uri().path());
    let call = conversation_in_path(request.uri().path()).map(call_span);
    let mut response = match call {
        _ if host_rejected => ApiError::UnknownHost.into_response(),
        _ if slot_rejected => {
            ApiError::NoCapacity("all connections are in use".into()).into_response()
        }
        Some(span) => next.run(request).instrument(span).await,
        None => next.run(request).await,
    };
    if let Some(StoreOutage(reason)) = response.extensions().get() {
        state.store.health.report_failure(reason);
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "cross-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conversation_id_is_read_from_the_path() {
        let id = "00000000-0000-4000-8000-000000000001";
        for path in [
            "/rtc/ID",
            "/rtc/ID/x",
            "/join/ID/about",
            "/v1/conversation/ID/speak",
            "/v1/ext/conversation/ID",
        ] {
            let found = conversation_in_path(&path.replace("ID", id)).map(|id| id.to_string());
            assert_eq!(found.as_deref(), Some(id), "{path}");
        }
        for path in [
            "/",
            "/rtc",
            "/rtc/x",
            "/v1/ext/conversation",
            "/v1/ext/agent/00000000-0000-4000-8000-000000000001",
        ] {
            assert_eq!(conversation_in_path(path), None, "{path}");
        }
    }

    #[test]
    fn reserved_places_serve_health_checks_and_calls() {
        for path in ["/healthz", "/readyz", "/rtc", "/rtc/x", "/rtc/x/y", "/api/offer"] {
            assert!(is_essential_path(path), "{path}");
        }
        for path in
            ["/", "/healthz/", "/rtcx", "/api/offers", "/v1/ext/agent", "/metrics", "/join/x"]
        {
            assert!(!is_essential_path(path), "{path}");
        }
    }

    #[test]
    fn a_loopback_listener_answers_to_its_own_names_only() {
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:1",
            "[::1]:80",
            "talk.example",
            "talk.example:443",
        ] {
            assert!(is_allowed_host(host, Some("https://talk.example")), "{host}");
        }
        for host in
            ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "[::2]"]
        {
            assert!(!is_allowed_host(host, Some("https://talk.example")), "{host}");
        }
        assert!(!is_allowed_host("talk.example", None));
    }
}
