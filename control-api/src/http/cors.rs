//! CORS: which pages may call the REST plane. Signaling accepts every origin: access depends on a
//! token, which no browser attaches by itself.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

/// The layer for pages of these origins; `*` = any origin. `None` without an origin: browsers then
/// let no page of another origin read a response.
///
/// No credentials: an API key is in a header of its own, never in a cookie.
pub(crate) fn layer(origins: &[String]) -> Option<CorsLayer> {
    let list: Vec<HeaderValue> =
        origins.iter().filter_map(|origin| HeaderValue::try_from(origin).ok()).collect();
    if list.is_empty() {
        return None;
    }
    let origins = if list.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(list)
    };
    let named = |names: &[&'static str]| {
        names.iter().copied().map(HeaderName::from_static).collect::<Vec<_>>()
    };
    Some(
        CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers(
                [
                    named(&["x-api-key", "last-event-id", "idempotency-key"]),
                    vec![header::CONTENT_TYPE],
                ]
                .concat(),
            )
            .expose_headers(named(&[
                "x-total-count",
                "retry-after",
                "ratelimit-limit",
                "ratelimit-remaining",
                "ratelimit-reset",
            ]))
            .max_age(Duration::from_secs(600)),
    )
}
