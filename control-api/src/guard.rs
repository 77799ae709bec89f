//! What stands before every route: the Host check of loopback listeners, and headers that no answer goes without.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::Shared;
use crate::error::ApiError;

/// Host without its port, in lower case.
fn name(host: &str) -> String {
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    host.to_ascii_lowercase()
}

/// Whether a loopback listener may answer under this name. A page elsewhere whose name was made to point here (DNS rebinding) may not.
fn known(host: &str, public_url: Option<&str>) -> bool {
    let name = name(host);
    let public = public_url
        .and_then(|u| url::Url::parse(u).ok())
        .and_then(|u| u.host_str().map(str::to_ascii_lowercase));
    matches!(name.as_str(), "127.0.0.1" | "localhost" | "::1")
        || public.is_some_and(|public| public.trim_matches(['[', ']']) == name)
}

/// The outermost layer.
pub(crate) async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let refused =
        shared.config.listen.ip().is_loopback() && !known(host, shared.config.public_url.as_deref());
    let mut response = if refused { ApiError::UnknownHost.into_response() } else { next.run(request).await };
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
    fn a_loopback_listener_answers_to_its_own_names_only() {
        for host in
            ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:80", "talk.example", "talk.example:443"]
        {
            assert!(known(host, Some("https://talk.example")), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "[::2]"] {
            assert!(!known(host, Some("https://talk.example")), "{host}");
        }
        assert!(!known("talk.example", None));
    }
}
