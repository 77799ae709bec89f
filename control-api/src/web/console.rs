//! The console: one page for every path below `/console`, and its modules. It reads its data from
//! the REST API.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::{Router, routing::get};
use bytes::Bytes;

use super::{Asset, CSS, JS, PERMISSIONS_POLICY, page, served};

const PAGE: &str = include_str!("console/console.html");
/// The camera takes photos of new avatars.
const PERMISSIONS: &str = "camera=(self), geolocation=(), microphone=(self)";

macro_rules! assets {
    ($($kind:ident: $($name:literal),*;)*) => {
        &[$($(($name, $kind, include_str!(concat!("console/", $name))),)*)*]
    };
}

/// All files under `/assets/console/`.
const ASSETS: &[Asset] = assets! {
    CSS: "background.css", "console.css", "parts.css", "photo.css", "recording.css",
        "video.css";
    JS: "agent-fields.js", "agent-model-fields.js", "agent-new.js", "agent-picture-fields.js",
        "agent-recording-fields.js", "agent-warnings.js", "agents.js", "api.js", "app.js",
        "audio-widget.js", "avatars.js", "background-values.js", "background-widget.js",
        "chain-test.js", "character.js", "control.js", "conversation.js", "conversations.js",
        "credentials.js", "deliveries.js", "dom.js", "editor.js", "field-ids.js", "files.js",
        "form.js", "guardrails.js", "keys.js", "knowledge.js", "local-llm.js", "login.js", "mcp.js",
        "media-player.js", "meeting-status.js", "meeting.js", "paths.js", "photo-check.js",
        "photo-landmarks.js", "photo-source.js", "photo-stage.js", "photo.js", "picture.js",
        "preview.js", "provider-widgets.js", "providers.js", "recording-timeline.js",
        "recording.js", "records.js", "sample-player.js", "scope.js", "selectable-avatars.js",
        "servers.js", "slider.js", "templates.js", "timed-lines.js", "tools.js",
        "transcript-follower.js", "transcript-view.js", "transcript.js", "turns.js", "ui.js",
        "video-new.js", "video-values.js", "video.js", "videos.js", "voice-picker.js",
        "webhooks.js", "widgets.js";
};

/// `GET /console`, all paths below it, and `GET /assets/console/{file}`.
/// `media_origin`: storage of recordings without `https`.
pub(super) fn router<S: Clone + Send + Sync + 'static>(media_origin: Option<&str>) -> Router<S> {
    // Samples of voices are blobs. Recordings may be in object storage, at an address that only
    // their links know.
    let mut media = "'self' blob: https:".to_owned();
    if let Some(origin) = media_origin {
        media.push(' ');
        media.push_str(origin);
    }
    let media: Arc<str> = media.into();
    // Images of avatars are data URIs.
    let shell = async move || {
        let content = Bytes::from_static(PAGE.as_bytes());
        let mut response = page(content, "'self' data:", Some(&media), "'none'");
        response.headers_mut().insert(PERMISSIONS_POLICY, HeaderValue::from_static(PERMISSIONS));
        response
    };
    Router::new()
        .route("/console", get(shell.clone()))
        .route("/console/{*page}", get(shell))
        .route("/assets/console/{file}", get(asset))
}

async fn asset(Path(file): Path<String>, request: HeaderMap) -> Response<Body> {
    served(ASSETS, &file, &request)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use axum::http::{Request, StatusCode};
    use tower::ServiceExt;

    use super::*;

    async fn fetch(path: &str) -> Response<Body> {
        router::<()>(None)
            .with_state(())
            .oneshot(Request::get(path).body(Body::empty()).unwrap())
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn every_address_of_the_console_is_its_page_under_a_strict_policy() {
        for path in
            ["/console", "/console/agents", "/console/agents/new", "/console/nothing/at/all"]
        {
            let response = fetch(path).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let policy = response.headers()["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with(
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
            ));
            assert!(
                !policy.contains("unsafe") && policy.ends_with("frame-ancestors 'none'"),
                "{policy}"
            );
            assert_eq!(response.headers()[PERMISSIONS_POLICY], PERMISSIONS, "{path}");
        }
    }

    #[tokio::test]
    async fn recordings_are_played_from_the_server_from_https_and_from_the_storage() {
        for (origin, sources) in [
            (None, "'self' blob: https:"),
            (Some("http://storage.lan:9000"), "'self' blob: https: http://storage.lan:9000"),
        ] {
            let request = Request::get("/console").body(Body::empty()).unwrap();
            let response = router::<()>(origin).with_state(()).oneshot(request).await.unwrap();
            let policy = response.headers()["content-security-policy"].to_str().unwrap();
            assert!(policy.contains(&format!("; media-src {sources}; connect-src")), "{policy}");
        }
    }

    #[tokio::test]
    async fn every_file_that_is_there_or_named_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/web/console");
        let files: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        let known: BTreeSet<String> =
            ASSETS.iter().map(|(name, ..)| (*name).into()).chain(["console.html".into()]).collect();
        assert_eq!(files, known);
        for (_, _, text) in ASSETS {
            for part in text.split("from \"./").skip(1) {
                let name = part.split('"').next().unwrap();
                assert_eq!(
                    fetch(&format!("/assets/console/{name}")).await.status(),
                    StatusCode::OK,
                    "{name}"
                );
            }
        }
        assert_eq!(fetch("/assets/console/nothing.js").await.status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn nothing_is_inline_and_no_module_makes_html_out_of_text() {
        assert!(
            !PAGE.contains("<style") && !PAGE.contains(" style=") && !PAGE.contains(" onclick=")
        );
        assert!(PAGE.split("<script").skip(1).all(|part| part.contains("src=\"/assets/console/")));
        for (name, _, text) in ASSETS {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "srcdoc",
                "DOMParser",
            ] {
                assert!(!text.contains(word), "{name} uses {word}");
            }
        }
    }
}
