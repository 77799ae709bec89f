//! The session of the console: a cookie, and a token that each request must carry with it.

use control_api::keys;
use serde_json::json;

use crate::harness::{Reply, TEST_API_KEY, TempFolder, TestServer, agent_body};

/// A browser with a session.
struct Browser {
    cookie: String,
    token: String,
}

/// `name=value` of the cookie that a response sets.
fn session_cookie(reply: &Reply) -> String {
    let set = reply.headers["set-cookie"].to_str().unwrap();
    assert!(set.contains("; Path=/; HttpOnly; SameSite=Strict"), "{set}");
    set.split(';').next().unwrap().to_owned()
}

async fn log_in(server: &TestServer, key: &str) -> Browser {
    let reply = server
        .send(server.request("POST", "/console/session").body(json!({"key": key}).to_string()))
        .await;
    let browser = Browser { cookie: session_cookie(&reply), token: String::new() };
    let body = reply.expect_status(200);
    Browser { token: body["csrf_token"].as_str().unwrap().to_owned(), ..browser }
}

async fn request_status(server: &TestServer, cookie: Option<&str>, token: Option<&str>) -> u16 {
    let mut request = server.request("GET", "/v1/ext/agent");
    for (name, value) in [("cookie", cookie), ("x-csrf-token", token)] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    server.send(request).await.status
}

async fn get_session(server: &TestServer, cookie: &str) -> Reply {
    server.send(server.request("GET", "/console/session").header("cookie", cookie)).await
}

#[tokio::test]
async fn a_session_opens_what_its_key_opens_and_only_with_both_halves() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let [mine, other] =
        [log_in(&server, TEST_API_KEY).await, log_in(&server, &format!(" {TEST_API_KEY} ")).await];
    assert!(!mine.cookie.contains(TEST_API_KEY) && mine.token != other.token);
    assert_eq!(request_status(&server, Some(&mine.cookie), Some(&mine.token)).await, 200);
    let both = format!("theme=dark; {}; x=y", mine.cookie);
    assert_eq!(
        request_status(&server, Some(&both), Some(&mine.token)).await,
        200,
        "among other cookies"
    );
    let (cookie, token) = (mine.cookie.as_str(), mine.token.as_str());
    let another = cookie.replace("console=", "console2=");
    for (cookie, token) in [
        (Some(cookie), None),
        (None, Some(token)),
        (Some(cookie), Some("")),
        (Some(cookie), Some(other.token.as_str())),
        (Some("visavis_console="), Some("")),
        (Some("visavis_console=AAAA"), Some(token)),
        (Some(&cookie[..cookie.len() - 2]), Some(token)),
        (Some(another.as_str()), Some(token)),
    ] {
        assert_eq!(request_status(&server, cookie, token).await, 401, "{cookie:?} {token:?}");
    }
    let created = server
        .request("POST", "/v1/ext/agent")
        .header("cookie", &mine.cookie)
        .header("x-csrf-token", &mine.token)
        .body(agent_body(json!({})).to_string());
    server.send(created).await.expect_status(200);
    // A key in the header takes precedence over the session, valid or not.
    let wrong = server.request("GET", "/v1/ext/agent").header("x-api-key", "vv_wrong");
    let wrong = wrong.header("cookie", &mine.cookie).header("x-csrf-token", &mine.token);
    assert_eq!(server.send(wrong).await.status, 401);
}

#[tokio::test]
async fn a_session_tells_its_token_to_its_own_page_and_ends_with_log_out_or_its_key() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let created =
        server.post("/v1/ext/apikey", json!({"name": "console"})).await.expect_status(201);
    let browser = log_in(&server, created["key"].as_str().unwrap()).await;
    let reply = get_session(&server, &browser.cookie).await;
    assert_eq!(reply.headers.get("access-control-allow-origin"), None);
    let renewed = session_cookie(&reply);
    assert_eq!(
        reply.expect_status(200),
        json!({"prefix": created["prefix"], "scope": "administer", "csrf_token": browser.token})
    );
    assert_eq!(request_status(&server, Some(&renewed), Some(&browser.token)).await, 200);
    let over = server.send(server.request("DELETE", "/console/session")).await;
    assert!(over.headers["set-cookie"].to_str().unwrap().ends_with("; Max-Age=0"));
    assert_eq!((over.status, session_cookie(&over).as_str()), (204, "visavis_console="));
    assert_eq!(get_session(&server, "").await.status, 204);
    server
        .delete(&format!("/v1/ext/apikey/{}", created["id"].as_str().unwrap()))
        .await
        .expect_status(200);
    assert_eq!(request_status(&server, Some(&renewed), Some(&browser.token)).await, 401);
    assert_eq!(get_session(&server, &renewed).await.status, 204);
}

#[tokio::test]
async fn a_logout_ends_only_the_session_of_its_cookie() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let [mine, other] = [log_in(&server, TEST_API_KEY).await, log_in(&server, TEST_API_KEY).await];
    // The cookie that a later read of the session sets. It and a copy of the first one end with the
    // session.
    let renewed = session_cookie(&get_session(&server, &mine.cookie).await);
    assert_eq!(request_status(&server, Some(&renewed), Some(&mine.token)).await, 200);
    let out = server.request("DELETE", "/console/session").header("cookie", &mine.cookie);
    assert_eq!(server.send(out).await.status, 204);
    for copied in [&mine.cookie, &renewed] {
        assert_eq!(request_status(&server, Some(copied), Some(&mine.token)).await, 401);
        assert_eq!(get_session(&server, copied).await.status, 204);
    }
    assert_eq!(
        request_status(&server, Some(&other.cookie), Some(&other.token)).await,
        200,
        "another log-in with the same key"
    );
    server.stop().await;
    let server = TestServer::start(&folder).await;
    assert_eq!(
        request_status(&server, Some(&renewed), Some(&mine.token)).await,
        401,
        "after a restart, too"
    );
    assert_eq!(request_status(&server, Some(&other.cookie), Some(&other.token)).await, 200);
}

#[tokio::test]
async fn a_wrong_key_gets_no_cookie_and_an_expired_one_neither() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let ask = async |body: &str| {
        let reply =
            server.send(server.request("POST", "/console/session").body(body.to_owned())).await;
        assert_eq!(reply.headers.get("set-cookie"), None, "{body}");
        reply
    };
    let refused = json!({"error": "Unauthorized: not a valid authorization api key"});
    ask(r#"{"key": "vv_wrong"}"#).await.assert_is(401, refused);
    let details = json!([{"field": "key", "reason": "is required"}]);
    ask("{}").await.assert_is(400, json!({"error": "Invalid request body", "details": details}));
    assert_eq!(ask("key").await.status, 400);
}

#[tokio::test]
async fn behind_https_the_cookie_is_secure_and_a_session_sees_its_own_workspace() {
    let folder = TempFolder::new();
    let server =
        TestServer::start_with(&folder.0, |c| c.public_url = Some("https://talk.example".into()))
            .await;
    let id = server.create_agent(json!({})).await;
    let data = folder.0.join("data");
    let other = keys::create(&data, folder.database_url().await.as_deref(), "other").await.unwrap();
    let reply = server
        .send(server.request("POST", "/console/session").body(json!({"key": other}).to_string()))
        .await;
    assert!(reply.headers["set-cookie"].to_str().unwrap().ends_with("; SameSite=Strict; Secure"));
    let cookie = session_cookie(&reply);
    let token = reply.expect_status(200)["csrf_token"].as_str().unwrap().to_owned();
    let request = server.request("GET", &format!("/v1/ext/agent/{id}"));
    assert_eq!(
        server.send(request.header("cookie", cookie).header("x-csrf-token", token)).await.status,
        404
    );
}
