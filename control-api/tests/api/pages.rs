//! What the pages for visitors show before a call, and pages in place of errors.

use control_api::{BrandColor, Branding, Logo};
use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer};

const PICTURE: &str = "src=\"data:image/png;base64,AA==\"";
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// A PNG of 8×8 pixels, of which only the header is there.
fn logo() -> Vec<u8> {
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08\x08\x02\0\0\0".to_vec()
}

#[tokio::test]
async fn pages_show_the_face_and_the_name_of_their_agent() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    server.app.bootstrap().await.unwrap();
    let landing = server.get("/").await;
    assert!(landing.text.contains(PICTURE), "{}", landing.text);
    assert!(landing.text.contains("<strong>Ada</strong>"), "{}", landing.text);

    let fields = json!({
        "avatars": [{"avatar_key_id": "mia", "persona_name": "Theo <b>"}],
        "embed": {"enabled": true},
    });
    let agent = server.create_agent(fields).await;
    let embed = server.get(&format!("/embed/{agent}")).await;
    assert!(embed.text.contains("Ready to talk with Theo &lt;b&gt;?"), "{}", embed.text);
    assert!(embed.text.contains(PICTURE) && !embed.text.contains("{{"), "{}", embed.text);
    assert!(embed.header("content-security-policy").contains("img-src 'self' data:;"));

    let missing = server
        .create_agent(json!({
            "avatars": [{"avatar_key_id": "ada"}], "embed": {"enabled": true}, "is_active": false,
        }))
        .await;
    assert_eq!(server.get(&format!("/embed/{missing}")).await.status, 404);
}

#[tokio::test]
async fn pages_and_programs_learn_the_branding() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.branding = Branding {
            name: Some("Museum of Time".into()),
            logo: Some(Logo::parse(logo()).unwrap()),
            color: Some(BrandColor::parse("#5b2a86").unwrap()),
        };
    })
    .await;
    let agent = server.create_agent(json!({"embed": {"enabled": true}})).await;
    let (id, token) = server.create_conversation(&agent).await;
    let request = server.request("GET", &format!("/join/{id}/about")).bearer_auth(&token);
    let about: Value = server.send(request).await.expect_status(200);
    let expected =
        json!({"name": "Museum of Time", "logo": "/assets/brand-logo", "color": "#5b2a86"});
    assert_eq!(about["branding"], expected);
    for path in ["/", &format!("/join/{id}"), &format!("/embed/{agent}")] {
        let page = server.get(path).await;
        assert!(page.text.contains("alt=\"\">Museum of Time</p>"), "{path}: {}", page.text);
        assert!(page.text.contains("href=\"/assets/branding.css\""), "{path}: {}", page.text);
    }
    assert_eq!(server.get("/assets/brand-logo").await.header("content-type"), "image/png");
    assert!(server.get("/assets/branding.css").await.text.contains("--accent: #5b2a86;"));
}

#[tokio::test]
async fn a_browser_gets_a_page_instead_of_a_json_error() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let embed = format!("/embed/{agent}");
    let media = "/media/recordings/x.webm?expires=1&signature=x";
    for (path, status, title) in [
        ("/no/such/page", 404, "There is no page at this address"),
        ("/assets/nothing.js", 404, "There is no page at this address"),
        (embed.as_str(), 404, "There is no agent at this address"),
        (media, 403, "This link has expired or is not valid"),
    ] {
        let ask = |accept: &str| server.send(server.request("GET", path).header("accept", accept));
        let page = ask(BROWSER).await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (status, "text/html; charset=utf-8")
        );
        assert!(page.text.contains(&format!("<h1>{title}</h1>")), "{path}: {}", page.text);
        assert!(page.header("content-security-policy").starts_with("default-src 'none'"));
        for accept in ["*/*", "application/json", "application/json, text/html;q=0.9"] {
            let json = ask(accept).await;
            assert_eq!((json.status, json.header("content-type")), (status, "application/json"));
        }
    }
    for path in ["/v1/nothing", "/v2/nothing", "/api/nothing", "/rtc/x/y/z"] {
        let reply = server.send(server.request("GET", path).header("accept", BROWSER)).await;
        reply.assert_is(404, json!({"error": "Not found"}));
    }
    let reply = server.send(server.request("POST", "/nothing").header("accept", BROWSER)).await;
    reply.assert_is(404, json!({"error": "Not found"}));
}
