//! Pages in place of JSON errors, for people who open an address in a browser.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::Next;
use bytes::Bytes;

use super::{Pages, SELF, fill, page};

pub(super) const MESSAGE: &str = include_str!("pages/message.html");
const START: &str =
    r#"<div class="actions"><a class="button primary" href="/">Go to the start page</a></div>"#;

/// What a page says.
struct Explanation {
    title: &'static str,
    words: &'static str,
    actions: &'static str,
    /// Whether a page elsewhere may frame it.
    in_frames: bool,
}

const NO_PAGE: Explanation = Explanation {
    title: "There is no page at this address",
    words: "Check the address. If it is from a link, ask the person who sent it for a new one.",
    actions: START,
    in_frames: false,
};
const NO_AGENT: Explanation = Explanation {
    title: "There is no agent at this address",
    words: "It was removed, or its owner does not permit calls from web pages. Ask the owner of \
            the page for another link.",
    actions: "",
    in_frames: true,
};
const EXPIRED_MEDIA: Explanation = Explanation {
    title: "This link has expired or is not valid",
    words: "A link to a recording or a video works for a limited time. Open the recording or the \
            video in the console for a new one, or ask the person who sent the link.",
    actions: r#"<div class="actions"><a class="button primary" href="/console">Open the console</a></div>"#,
    in_frames: false,
};

/// The explanation of an error at an address, if it is an address for people.
fn explain(path: &str, status: StatusCode) -> Option<&'static Explanation> {
    let first = path.split('/').nth(1).unwrap_or_default();
    match (first, status) {
        ("v1" | "v2" | "rtc" | "api", _) => None,
        ("media", StatusCode::FORBIDDEN) => Some(&EXPIRED_MEDIA),
        ("embed", StatusCode::NOT_FOUND) => Some(&NO_AGENT),
        (_, StatusCode::NOT_FOUND) => Some(&NO_PAGE),
        _ => None,
    }
}

/// Whether a client prefers HTML to JSON, by its `Accept` (RFC 9110, 12.5.1).
fn prefers_html(headers: &HeaderMap) -> bool {
    let mut qualities = [("text/html", None), ("application/json", None)];
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts
                .find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")))
                .map_or(1.0, |text| text.parse::<f32>().unwrap_or(0.0));
            for (media_type, best) in &mut qualities {
                let precision = match media_type.split_once('/') {
                    _ if name == *media_type => 2,
                    Some((kind, _)) if name.strip_suffix("/*") == Some(kind) => 1,
                    _ if name == "*/*" => 0,
                    _ => continue,
                };
                if best.is_none_or(|(known, _)| precision > known) {
                    *best = Some((precision, quality));
                }
            }
        }
    }
    let [html, json] = qualities.map(|(_, best)| best.map_or(0.0, |(_, quality)| quality));
    html > json
}

/// Replaces the errors of addresses for people by pages, if the client prefers HTML. The status
/// stays.
pub(crate) async fn middleware(
    State(pages): State<Pages>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let wanted = request.method() == Method::GET && prefers_html(request.headers());
    let path = wanted.then(|| request.uri().path().to_owned());
    let response = next.run(request).await;
    match path.and_then(|path| explain(&path, response.status())) {
        Some(explanation) => pages.message(explanation, response.status()),
        None => response,
    }
}

impl Pages {
    fn message(&self, explanation: &Explanation, status: StatusCode) -> Response<Body> {
        let Explanation { title, words, actions, in_frames } = *explanation;
        let values = [("title", title), ("words", words), ("actions", actions)];
        let content = self.with_branding_values(&values, |values| fill(MESSAGE, values));
        let ancestors = if in_frames { "" } else { "'none'" };
        let mut response = page(Bytes::from(content), SELF, None, ancestors);
        *response.status_mut() = status;
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_name_html_first_prefer_it() {
        let prefers = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            prefers_html(&headers)
        };
        assert!(!prefers_html(&HeaderMap::new()));
        for accept in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/html",
            "application/json;q=0.5, text/*",
            "text/html;q=0.5, application/json;q=0.4",
        ] {
            assert!(prefers(accept), "{accept}");
        }
        for accept in [
            "*/*",
            "application/json",
            "application/json, text/html;q=0.9",
            "text/html;q=0, */*",
            "text/html, application/json",
            "text/html;q=x",
            "image/avif,image/webp,*/*;q=0.8",
        ] {
            assert!(!prefers(accept), "{accept}");
        }
    }

    #[test]
    fn addresses_of_programs_keep_their_json() {
        for path in ["/v1", "/v1/ext/agent/x", "/v2/x", "/rtc/x/y", "/api/offer"] {
            assert!(explain(path, StatusCode::NOT_FOUND).is_none(), "{path}");
        }
        for path in ["/x", "/v3/x", "/embed/x", "/assets/x", "/join/a/b", "/media/a/b"] {
            assert!(explain(path, StatusCode::NOT_FOUND).is_some(), "{path}");
        }
        assert!(explain("/media/a/b", StatusCode::FORBIDDEN).is_some());
        assert!(explain("/x", StatusCode::METHOD_NOT_ALLOWED).is_none());
    }
}
