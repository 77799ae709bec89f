//! The console: one page for every path below `/console`, and its modules. It reads its data from
//! the REST API.

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, Response};
use axum::{Router, routing::get};
use bytes::Bytes;

use super::{Asset, CSS, JS, page, served};

const PAGE: &str = include_str!("console/console.html");

macro_rules! assets {
    ($($kind:ident: $($name:literal),*;)*) => {
        &[$($(($name, $kind, include_str!(concat!("console/", $name))),)*)*]
    };
}

/// All files under `/assets/console/`.
const ASSETS: &[Asset] = assets! {
    CSS: "console.css", "parts.css", "recording.css";
    JS: "agent-fields.js", "agent-model-fields.js", "agent-new.js", "agent-recording-fields.js",
        "agents.js", "api.js", "app.js", "avatars.js", "chain-test.js", "character.js",
        "control.js", "conversation.js", "conversations.js", "credentials.js", "deliveries.js",
        "dom.js", "editor.js", "field-ids.js", "files.js", "form.js", "guardrails.js", "keys.js",
        "knowledge.js", "local-llm.js", "login.js", "mcp.js", "media-player.js", "meeting.js",
        "paths.js", "preview.js", "provider-widgets.js", "providers.js", "recording-timeline.js",
        "recording.js", "records.js", "sample-player.js", "scope.js", "selectable-avatars.js",
        "templates.js", "timed-lines.js", "tools.js", "transcript-follower.js",
        "transcript-view.js", "transcript.js", "turns.js", "ui.js", "voice-picker.js",
        "webhooks.js", "widgets.js";
};

/// `GET /console`, all paths below it, and `GET /assets/console/{file}`.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    // Images of avatars are data URIs.
    let shell = async || page(Bytes::from_static(PAGE.as_bytes()), "'self' data:", "'none'");
    Router::new()
        .route("/console", get(shell))
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
        router::<()>()
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
