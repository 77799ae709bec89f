//! The HTML pages: the landing page, the call page at `/join/{conversation_id}#token=…` and
//! `/embed/{agentId}`, the page of a bot in a meeting at `/meet/{conversation_id}#token=…`, and the
//! [`console`].
//!
//! Plain HTML, CSS and ES modules, compiled into the binary; no build step, no third-party code.
//! There is no inline code, so the content security policy can forbid it. The caller decides which
//! agent may be embedded, and where; this module only builds the response.

mod branding;
mod console;
pub(crate) mod error_page;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) use self::branding::LOGO;
use crate::config::Branding;
use crate::error::{ApiError, Resource};

const LANDING: &str = include_str!("pages/landing.html");
const CALL: &str = include_str!("pages/call.html");
const MEET: &str = include_str!("pages/meet.html");
const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// Name, media type, content.
type Asset = (&'static str, &'static str, &'static str);

/// All files under `/assets/`, except those of the console.
const ASSETS: &[Asset] = &[
    ("base.css", CSS, include_str!("pages/base.css")),
    ("landing.css", CSS, include_str!("pages/landing.css")),
    ("call.css", CSS, include_str!("pages/call.css")),
    ("docs.css", CSS, include_str!("pages/docs.css")),
    ("call.js", JS, include_str!("pages/call.js")),
    ("captions.js", JS, include_str!("pages/captions.js")),
    ("suggestions.js", JS, include_str!("pages/suggestions.js")),
    ("unheard-microphone.js", JS, include_str!("pages/unheard-microphone.js")),
    ("captions-view.js", JS, include_str!("pages/captions-view.js")),
    ("recording-notice.js", JS, include_str!("pages/recording-notice.js")),
    ("call-client.js", JS, include_str!("pages/call-client.js")),
    ("audio-devices.js", JS, include_str!("pages/audio-devices.js")),
    ("saved-state.js", JS, include_str!("pages/saved-state.js")),
    ("texts.js", JS, include_str!("pages/texts.js")),
    ("meet.css", CSS, include_str!("pages/meet.css")),
    ("meet.js", JS, include_str!("pages/meet.js")),
    ("meet-captions.js", JS, include_str!("pages/meet-captions.js")),
    ("meet-microphone.js", JS, include_str!("pages/meet-microphone.js")),
    ("icon.svg", "image/svg+xml", include_str!("pages/icon.svg")),
];

/// The pages, with values from the operator's configuration.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Escaped JSON.
    ice_servers: String,
    branding: Branding,
    /// Origin of the storage of recordings, if the console must be permitted to read it.
    media_origin: Option<String>,
}

impl Pages {
    /// `ice_servers` is the array that `RTCPeerConnection` takes as `iceServers` (TURN for clients
    /// that need it), `[]` for none.
    #[must_use]
    pub fn new(ice_servers: &Value) -> Self {
        Self {
            ice_servers: escape(&ice_servers.to_string()),
            branding: Branding::default(),
            media_origin: None,
        }
    }

    /// Gives the pages for visitors the operator's name, logo and color.
    #[must_use]
    pub fn with_branding(self, branding: Branding) -> Self {
        Self { branding, ..self }
    }

    /// Permits the console to play recordings from this origin. Those with `https` need none.
    #[must_use]
    pub fn with_media_origin(self, origin: Option<&str>) -> Self {
        let media_origin = origin.filter(|origin| is_csp_source(origin)).map(str::to_owned);
        Self { media_origin, ..self }
    }

    /// `GET /join/{conversation_id}`, `GET /meet/{conversation_id}`, the console, and the files of
    /// all three.
    ///
    /// The first two are the same for every id. Only an offer with a token reveals whether the
    /// conversation exists.
    pub fn router<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        let call = self.call(&Value::Null, None);
        let meet = Bytes::from(fill(MEET, &[("ice_servers", &self.ice_servers)]));
        let style = branding::style(&self.branding).map(Bytes::from);
        let logo = self.branding.logo.clone();
        Router::new()
            .route(
                "/join/{conversation_id}",
                get(move || async move { page(call, PICTURES, None, "'none'") }),
            )
            .route("/meet/{conversation_id}", get(move || async move { meet_page(meet) }))
            .route("/assets/{file}", get(asset))
            .route(
                "/assets/branding.css",
                get(async move |request: HeaderMap| match &style {
                    Some(style) => served_content(CSS, style.clone(), &request),
                    None => not_found(),
                }),
            )
            .route(
                branding::LOGO,
                get(async move |request: HeaderMap| match &logo {
                    Some(logo) => served_content(logo.media_type, logo.content.clone(), &request),
                    None => not_found(),
                }),
            )
            .merge(console::router(self.media_origin.as_deref()))
    }

    fn call(&self, recording: &Value, agent: Option<&ShownAgent>) -> Bytes {
        let name = agent.map(|agent| agent.name.trim()).filter(|name| !name.is_empty());
        let (title, words) = match name {
            Some(name) => (
                format!("Ready to talk with {name}?"),
                format!("{name} is an AI agent. It shows a face, but it is a program."),
            ),
            None => ("Ready to talk?".to_owned(), SPEAKING_WITH_AN_AGENT.to_owned()),
        };
        let picture = agent.and_then(ShownAgent::picture_source);
        let values: [(&str, &str); 6] = [
            ("recording", &escape(&recording.to_string())),
            ("ice_servers", &self.ice_servers),
            ("agent_name", &escape(name.unwrap_or_default())),
            ("welcome_title", &escape(&title)),
            ("welcome_words", &escape(&words)),
            ("picture", picture.as_deref().unwrap_or("hidden")),
        ];
        self.with_branding_values(&values, |values| fill(CALL, values)).into()
    }

    /// Calls `render` with the values of the branding in addition.
    fn with_branding_values(
        &self,
        values: &[(&str, &str)],
        render: impl FnOnce(&[(&str, &str)]) -> String,
    ) -> String {
        let [name, line, style] = [branding::name, branding::line, branding::style_link]
            .map(|render| render(&self.branding));
        let own: [(&str, &str); 3] =
            [("brand_name", &name), ("brand", &line), ("brand_style", &style)];
        render(&[values, &own].concat())
    }

    /// `GET /`, with a link to the demo agent if there is one.
    #[must_use]
    pub fn landing(&self, demo: Option<&ShownAgent>) -> Response<Body> {
        let link = demo.map_or_else(String::new, |agent| {
            format!(
                r#"<a class="button primary" href="/embed/{}">Talk with the demo agent</a>"#,
                escape(&agent.id)
            )
        });
        let shown = demo.map_or_else(String::new, |agent| {
            let picture = agent.picture_source().map_or_else(String::new, |source| {
                format!(r#"<img class="picture" alt="" {source}>"#)
            });
            format!(
                r#"<p class="landing-agent">{picture}<span><strong>{}</strong><br>An AI agent: it shows a face, but it is a program.</span></p>"#,
                escape(&agent.name)
            )
        });
        let values: [(&str, &str); 2] = [("demo_link", &link), ("demo_agent", &shown)];
        let content = self.with_branding_values(&values, |values| fill(LANDING, values));
        page(content.into(), PICTURES, None, "'none'")
    }

    /// `GET /embed/{agentId}` of an agent that may be embedded. Without origins, any page may frame
    /// it. `recording`: the notice that the calls are recorded (`{"notice": true, "optional": …}`), or
    /// null. A join page reads its own with its token.
    #[must_use]
    pub fn embed(
        &self,
        origins: &[String],
        recording: &Value,
        agent: &ShownAgent,
    ) -> Response<Body> {
        let call = self.call(recording, Some(agent));
        let sources: Vec<&str> =
            origins.iter().map(String::as_str).filter(|origin| is_csp_source(origin)).collect();
        match (origins.is_empty(), sources.is_empty()) {
            (true, _) => page(call, PICTURES, None, ""),
            (false, true) => page(call, PICTURES, None, "'none'"),
            (false, false) => page(call, PICTURES, None, &sources.join(" ")),
        }
    }
}

/// An agent as a page shows it before the call.
#[derive(Clone, Debug, Default)]
pub struct ShownAgent {
    /// Its id.
    pub id: String,
    /// The name of its persona, otherwise its own.
    pub name: String,
    /// A data URI.
    pub picture: Option<String>,
}

impl ShownAgent {
    /// The attribute of an image element.
    fn picture_source(&self) -> Option<String> {
        let picture = self.picture.as_deref().filter(|uri| uri.starts_with("data:image/"))?;
        Some(format!(r#"src="{}""#, escape(picture)))
    }
}

/// Fills the places of a template, such as `{{name}}`, in one pass: a value may contain such a text.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        text.push_str(
            values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value),
        );
        text.push_str(rest);
    }
    text
}

/// Which devices a page may use.
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

/// Default source of a page's images and connections.
const SELF: &str = "'self'";
/// Source of images of a page that shows an avatar, whose picture is a data URI.
const PICTURES: &str = "'self' data:";
/// What a page says before the call if it does not know the agent's name.
const SPEAKING_WITH_AN_AGENT: &str =
    "You are about to speak with an AI agent. It shows a face, but it is a program.";

/// Whether a text can be one source of a Content-Security-Policy: it must not end the directive or
/// add another source.
pub(crate) fn is_csp_source(origin: &str) -> bool {
    !origin.is_empty()
        && origin.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'\'' | b'"'))
}

/// Where Attendee's own script in the meeting page asks for the sound of the meeting. Instances from
/// before Chromium guarded local addresses do so from within the page, under its policy; without
/// this source the page would have no microphone there.
const ATTENDEE_AUDIO: &str = "http://localhost:8000";

/// The page of a bot in a meeting.
fn meet_page(content: Bytes) -> Response<Body> {
    page_connecting_to(&format!("{SELF} {ATTENDEE_AUDIO}"), content, SELF, None, "'none'")
}

/// A page with images from `images` and files with sound from `media`, which `ancestors` may frame
/// (empty: any page). The media of a call are streams, to which no policy applies.
fn page(content: Bytes, images: &str, media: Option<&str>, ancestors: &str) -> Response<Body> {
    page_connecting_to(SELF, content, images, media, ancestors)
}

fn page_connecting_to(
    connections: &str,
    content: Bytes,
    images: &str,
    media: Option<&str>,
    ancestors: &str,
) -> Response<Body> {
    let mut policy =
        format!("default-src 'none'; script-src 'self'; style-src 'self'; img-src {images}; ");
    if let Some(media) = media {
        policy.push_str("media-src ");
        policy.push_str(media);
        policy.push_str("; ");
    }
    policy.push_str("connect-src ");
    policy.push_str(connections);
    policy.push_str("; base-uri 'none'; form-action 'none'");
    if !ancestors.is_empty() {
        policy.push_str("; frame-ancestors ");
        policy.push_str(ancestors);
    }
    // Only ASCII goes into the policy, so the value is always valid. An invalid one would block the
    // page's content, not allow more.
    let policy =
        HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(HTML)),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (
            PERMISSIONS_POLICY,
            HeaderValue::from_static("camera=(), geolocation=(), microphone=(self)"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, content).into_response()
}

async fn asset(Path(file): Path<String>, request: HeaderMap) -> Response<Body> {
    served(ASSETS, &file, &request)
}

/// One file of a list; 304 if the browser already has it.
fn served(assets: &[Asset], file: &str, request: &HeaderMap) -> Response<Body> {
    let Some((_, media_type, content)) = assets.iter().find(|(name, ..)| *name == file) else {
        return not_found();
    };
    served_content(media_type, Bytes::from_static(content.as_bytes()), request)
}

fn not_found() -> Response<Body> {
    ApiError::NotFound(Resource::Route).into_response()
}

/// A file; 304 if the browser already has it.
fn served_content(media_type: &str, content: Bytes, request: &HeaderMap) -> Response<Body> {
    let digest = Sha256::digest(&content);
    let tag = format!(
        "\"{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}\"",
        digest[0], digest[1], digest[2], digest[3], digest[4], digest[5]
    );
    let known =
        request.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    // An old page with new scripts would be worse than one request for every load.
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ETAG, tag),
    ];
    if known {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        (headers, content).into_response()
    }
}

/// A text page.
pub(crate) fn document(content: Bytes) -> Response<Body> {
    page(content, SELF, None, "'none'")
}

/// Text as the content of an element or of a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::Request;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;
    use crate::config::{BrandColor, Logo};

    async fn body(response: Response<Body>) -> String {
        String::from_utf8(to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
    }

    async fn fetch(pages: &Pages, path: &str) -> Response<Body> {
        pages
            .router::<()>()
            .with_state(())
            .oneshot(Request::get(path).body(Body::empty()).unwrap())
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_join_page_forbids_everything_that_it_does_not_need() {
        let response =
            fetch(&Pages::new(&json!([])), "/join/0190e4b2-0000-7000-8000-000000000000").await;
        assert_eq!(response.status(), StatusCode::OK);
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(!policy.contains("media-src"), "{policy}");
        assert!(
            !policy.contains("unsafe") && policy.ends_with("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
    }

    #[tokio::test]
    async fn a_meeting_page_permits_only_the_services_own_connection_in_addition() {
        let pages = Pages::new(&json!([{"urls": "turn:a\"b"}]));
        let id = "0190e4b2-0000-7000-8000-000000000000";
        let join = fetch(&pages, &format!("/join/{id}")).await;
        let meet = fetch(&pages, &format!("/meet/{id}")).await;
        assert_eq!(meet.status(), StatusCode::OK);
        for name in ["referrer-policy", "permissions-policy", "x-content-type-options"] {
            assert_eq!(meet.headers()[name], join.headers()[name], "{name}");
        }
        let policy = |page: &Response<Body>| {
            page.headers()["content-security-policy"].to_str().unwrap().to_owned()
        };
        let connections = "connect-src 'self' http://localhost:8000;";
        let without_pictures = policy(&join).replace("img-src 'self' data:;", "img-src 'self';");
        assert_eq!(policy(&meet), without_pictures.replace("connect-src 'self';", connections));
        assert_ne!(policy(&meet), policy(&join));
        let page = body(meet).await;
        assert!(page.contains("data-ice-servers=\"[{&quot;urls&quot;:"), "{page}");
        assert!(!page.contains("{{"), "{page}");
    }

    #[tokio::test]
    async fn every_file_that_a_page_or_a_module_names_is_served() {
        let pages = Pages::new(&json!([]));
        for text in [LANDING, CALL, MEET, error_page::MESSAGE] {
            for part in text.split("/assets/").skip(1) {
                let name = part.split('"').next().unwrap();
                assert_eq!(
                    fetch(&pages, &format!("/assets/{name}")).await.status(),
                    StatusCode::OK,
                    "{name}"
                );
            }
        }
        for (_, media_type, text) in ASSETS.iter().filter(|(_, media_type, _)| *media_type == JS) {
            assert_eq!(*media_type, JS);
            for part in text.split("from \"./").skip(1) {
                let name = part.split('"').next().unwrap();
                assert_eq!(
                    fetch(&pages, &format!("/assets/{name}")).await.status(),
                    StatusCode::OK,
                    "{name}"
                );
            }
        }
        assert_eq!(fetch(&pages, "/assets/nothing.js").await.status(), StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn an_unchanged_file_is_not_sent_again() {
        let pages = Pages::new(&json!([]));
        let tag = fetch(&pages, "/assets/call.js").await.headers()["etag"].clone();
        let request = Request::get("/assets/call.js")
            .header("if-none-match", tag)
            .body(Body::empty())
            .unwrap();
        let response = pages.router::<()>().with_state(()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn no_page_has_a_script_or_a_style_of_its_own() {
        for text in [LANDING, CALL, MEET, error_page::MESSAGE] {
            assert!(
                !text.contains("<style")
                    && !text.contains(" style=")
                    && !text.contains(" onclick=")
            );
            assert!(
                text.split("<script")
                    .skip(1)
                    .all(|part| part.contains("src=\"/assets/") && part.contains("></script>"))
            );
        }
    }

    #[test]
    fn no_module_makes_html_out_of_text() {
        for (name, _, text) in ASSETS {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "srcdoc",
            ] {
                assert!(!text.contains(word), "{name} uses {word}");
            }
        }
    }

    #[tokio::test]
    async fn ice_servers_reach_the_page_as_text_only() {
        let pages = Pages::new(&json!([{"urls": "turn:a\"><script>b'"}]));
        let page = body(pages.embed(&[], &Value::Null, &ShownAgent::default())).await;
        assert!(
            page.contains(
                "data-ice-servers=\"[{&quot;urls&quot;:\
                 &quot;turn:a\\&quot;&gt;&lt;script&gt;b&#39;&quot;}]\""
            ),
            "{page}"
        );
    }

    #[tokio::test]
    async fn the_notice_of_a_recording_is_in_the_embed_page() {
        let pages = Pages::new(&json!([{"urls": "turn:{{recording}}"}]));
        let notice = json!({"notice": true, "optional": false});
        let embed = body(pages.embed(&[], &notice, &ShownAgent::default())).await;
        let attribute = "data-recording=\"{&quot;notice&quot;:true,&quot;optional&quot;:false}\"";
        assert!(embed.contains(attribute), "{embed}");
        let embed = pages.embed(&[], &Value::Null, &ShownAgent::default());
        for page in [embed, fetch(&pages, "/join/x").await] {
            let page = body(page).await;
            assert!(page.contains("data-recording=\"null\""), "{page}");
        }
    }

    #[tokio::test]
    async fn the_landing_page_links_the_demo_only_where_there_is_one() {
        let pages = Pages::new(&json!([]));
        let shown = body(pages.landing(Some(&agent("Clara")))).await;
        assert!(shown.contains("href=\"/embed/abc\""), "{shown}");
        assert!(shown.contains("src=\"data:image/webp;base64,AA\""), "{shown}");
        assert!(shown.contains("<strong>Clara</strong>"), "{shown}");
        let none = body(pages.landing(None)).await;
        assert!(!none.contains("/embed/") && !none.contains("<img"), "{none}");
    }

    /// An agent with a picture.
    fn agent(name: &str) -> ShownAgent {
        let picture = Some("data:image/webp;base64,AA".to_owned());
        ShownAgent { id: "abc".into(), name: name.into(), picture }
    }

    #[tokio::test]
    async fn an_embed_page_shows_its_agent_before_any_script_runs() {
        let pages = Pages::new(&json!([]));
        let page = body(pages.embed(&[], &Value::Null, &agent("{{brand}} <b>"))).await;
        assert!(page.contains("Ready to talk with {{brand}} &lt;b&gt;?</h1>"), "{page}");
        assert!(page.contains("alt=\"\" src=\"data:image/webp;base64,AA\">"), "{page}");
        let unsafe_picture = ShownAgent { picture: Some("https://x.example".into()), ..agent("A") };
        let page = body(pages.embed(&[], &Value::Null, &unsafe_picture)).await;
        assert!(page.contains("class=\"picture\" alt=\"\" hidden>"), "{page}");
        assert!(body(fetch(&pages, "/join/x").await).await.contains("alt=\"\" hidden>"));
    }

    #[tokio::test]
    async fn the_branding_is_on_the_pages_for_visitors() {
        let plain = Pages::new(&json!([]));
        for path in ["/assets/branding.css", "/assets/brand-logo"] {
            assert_eq!(fetch(&plain, path).await.status(), StatusCode::NOT_FOUND, "{path}");
        }
        let logo = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08\x08\x02\0\0\0";
        let pages = plain.clone().with_branding(Branding {
            name: Some("Museum".into()),
            logo: Some(Logo::parse(logo.to_vec()).unwrap()),
            color: Some(BrandColor::parse("#5b2a86").unwrap()),
        });
        let landing = pages.landing(None);
        let embed = pages.embed(&[], &Value::Null, &agent("Clara"));
        for page in [landing, embed, fetch(&pages, "/join/x").await] {
            let page = body(page).await;
            let line = "<p class=\"brand\"><img class=\"logo\" src=\"/assets/brand-logo\" \
                        alt=\"\">Museum</p>";
            assert!(page.contains(line) && !page.contains("Visavis</p>"), "{page}");
            assert!(page.contains("href=\"/assets/branding.css\"") && !page.contains("{{"));
        }
        let style = fetch(&pages, "/assets/branding.css").await;
        assert_eq!(style.headers()["content-type"], CSS);
        assert!(body(style).await.contains("--accent: #5b2a86;"));
        let served = fetch(&pages, "/assets/brand-logo").await;
        assert_eq!(served.headers()["content-type"], "image/png");
        let landing = body(plain.landing(None)).await;
        assert!(landing.contains("</svg>Visavis</p>") && !landing.contains("branding"));
    }

    #[test]
    fn an_embed_page_may_be_framed_by_its_origins_only() {
        let pages = Pages::new(&json!([]));
        let policy = |origins: &[&str]| {
            let origins: Vec<String> = origins.iter().map(|origin| (*origin).to_owned()).collect();
            let embed = pages.embed(&origins, &Value::Null, &ShownAgent::default());
            embed.headers()["content-security-policy"].to_str().unwrap().to_owned()
        };
        assert!(!policy(&[]).contains("frame-ancestors"));
        assert!(
            policy(&["https://a.example", "https://b.example"])
                .ends_with("frame-ancestors https://a.example https://b.example")
        );
        assert!(policy(&["https://a.example; script-src *"]).ends_with("frame-ancestors 'none'"));
    }
}
