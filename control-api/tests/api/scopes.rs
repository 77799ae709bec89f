//! The scopes of API keys: every operation of the OpenAPI document with a key of each scope.

use std::collections::BTreeMap;

use control_api::{Scope, keys};
use serde_json::{Value, json};

use crate::harness::{TEST_API_KEY, TempFolder, TestServer, agent_body, wait_for};
use crate::interface_rows::UNKNOWN_ID;

/// The operations that a key of scope `operate` may use in addition to reads.
const OPERATE_OPERATIONS: [(&str, &str); 16] = [
    ("POST", "/v1/auth/conversation"),
    ("POST", "/v1/ext/conversation"),
    ("DELETE", "/v1/ext/conversation/{id}"),
    ("DELETE", "/v1/ext/conversation/{id}/recording"),
    ("POST", "/v1/ext/conversation/{id}/feedback"),
    ("POST", "/v1/ext/externalmeeting"),
    ("DELETE", "/v1/conversation/{id}"),
    ("PUT", "/v1/conversation/{id}/speak"),
    ("POST", "/v1/conversation/{id}/interrupt"),
    ("POST", "/v1/conversation/{id}/respond"),
    ("POST", "/v1/conversation/{id}/context"),
    ("POST", "/v1/ext/apikey"),
    ("POST", "/v1/livekit/token"),
    ("POST", "/v1/ext/provider/{provider}/sample"),
    ("POST", "/v1/ext/video"),
    ("DELETE", "/v1/ext/video/{id}"),
];

/// Creates a key with a scope in the workspace of the server's own key.
async fn create_key(server: &TestServer, scope: Scope) -> String {
    let created =
        server.post("/v1/ext/apikey", json!({"name": scope.name(), "scope": scope.name()})).await;
    created.expect_status(201)["key"].as_str().unwrap().to_owned()
}

/// Method, path and documented scope of every operation that an API key authorizes.
fn key_operations() -> Vec<(String, String, String)> {
    let document: Value = serde_json::from_str(&control_api::openapi::document_json()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["security"] == json!([{"key": []}]) {
                let scope = operation["x-scope"].as_str().unwrap_or("none").to_owned();
                all.push((method.to_uppercase(), path.clone(), scope));
            } else {
                assert_eq!(operation["x-scope"], Value::Null, "{method} {path}");
            }
        }
    }
    all
}

#[tokio::test]
async fn every_operation_opens_to_its_scope_and_to_no_lesser_one() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let mut keys = Vec::new();
    for scope in Scope::ALL {
        keys.push((scope, create_key(&server, scope).await));
    }
    let mut counted = BTreeMap::new();
    for (method, path, documented) in key_operations() {
        let needed = match method.as_str() {
            "GET" => Scope::Read,
            method if OPERATE_OPERATIONS.contains(&(method, path.as_str())) => Scope::Operate,
            _ => Scope::Administer,
        };
        assert_eq!(documented, needed.name(), "the document: {method} {path}");
        *counted.entry(needed.name()).or_insert(0) += 1;
        let url = path.replace("{id}", UNKNOWN_ID).replace("{name}", "openai");
        let url = url.replace("{provider}", "nobody");
        assert!(!url.contains('{'), "{path}");
        for (scope, key) in &keys {
            let request = server.request(&method, &url).header("x-api-key", key);
            let reply =
                server.send(request.header("content-type", "application/json").body("{}")).await;
            if *scope >= needed {
                assert!(![401, 403].contains(&reply.status), "{scope}: {method} {path}: {reply:?}");
            } else {
                let expected =
                    json!({"error": format!("Forbidden: this API key has scope {scope}")});
                assert_eq!(
                    (reply.status, reply.json()),
                    (403, expected),
                    "{scope}: {method} {path}"
                );
            }
        }
    }
    assert_eq!(counted["operate"], OPERATE_OPERATIONS.len(), "each of them is an operation");
    assert!(counted["read"] > 20 && counted["administer"] > 20, "{counted:?}");
}

#[tokio::test]
async fn a_refusal_comes_behind_that_of_the_key_and_before_that_of_the_body() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let read = create_key(&server, Scope::Read).await;
    let refused = json!({"error": "Forbidden: this API key has scope read"});
    let huge = "x".repeat(10_000_000);
    let with =
        |key: &str| server.request("POST", "/v1/ext/agent").header("x-api-key", key.to_owned());
    server.send(with(&read).body(huge.clone())).await.assert_is(403, refused.clone());
    server
        .send(with(&read).header("content-type", "text/plain").body("{"))
        .await
        .assert_is(403, refused.clone());
    assert_eq!(server.send(with("vv_wrong").body(huge.clone())).await.status, 401);
    assert_eq!(server.send(with(TEST_API_KEY).body(huge)).await.status, 413);
    let put = server.request("PUT", "/v1/ext/agent").header("x-api-key", read.clone());
    assert_eq!(server.send(put).await.status, 405, "a method without a route has no scope");
    let head = server.request("HEAD", "/v1/ext/agent").header("x-api-key", read.clone());
    assert_eq!(server.send(head).await.status, 200, "HEAD reads");
    // The response does not reveal an existing record either.
    let id = server.create_agent(json!({})).await;
    let path = format!("/v1/ext/agent/{id}");
    let gone = server.request("DELETE", &path).header("x-api-key", read.clone());
    server.send(gone).await.assert_is(403, refused);
    server.get(&path).await.expect_status(200);
}

#[tokio::test]
async fn a_key_that_reads_gets_no_token_with_the_links_of_conversations() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, token) = server.create_conversation(&agent).await;
    for (scope, end) in [
        (Scope::Read, format!("/join/{id}")),
        (Scope::Operate, format!("/join/{id}#token={token}")),
        (Scope::Administer, format!("/join/{id}#token={token}")),
    ] {
        TEST_API_KEY.clone_into(&mut server.key);
        server.key = create_key(&server, scope).await;
        let reply = server.get("/v1/ext/conversation").await;
        let link = reply.json()[0]["join_link"].as_str().unwrap().to_owned();
        assert!(link.ends_with(&end), "{scope}: {link}");
        assert_eq!(reply.text.contains(&token), scope > Scope::Read, "{scope}");
    }
}

#[tokio::test]
async fn a_key_makes_keys_of_its_own_scope_or_less() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let asked = |scope: Option<&str>| match scope {
        Some(scope) => json!({"name": "n", "scope": scope}),
        None => json!({"name": "n"}),
    };
    let operate = create_key(&server, Scope::Operate).await;
    let at_fault = server.post("/v1/ext/apikey", asked(Some("root"))).await.expect_status(400);
    let reason = "must be one of read, operate, administer";
    assert_eq!(at_fault["details"], json!([{"field": "scope", "reason": reason}]));
    server.key = operate;
    let refused = json!({"error": "Forbidden: this API key has scope operate"});
    for (scope, status) in
        [(Some("read"), 201), (Some("operate"), 201), (Some("administer"), 403), (None, 403)]
    {
        let reply = server.post("/v1/ext/apikey", asked(scope)).await;
        if status == 403 {
            reply.assert_is(403, refused.clone());
        } else {
            reply.expect_status(status);
        }
    }
    server.key = TEST_API_KEY.into();
    server.post("/v1/ext/apikey", json!({"name": "whole"})).await.expect_status(201);
    let list = server.get("/v1/ext/apikey").await.expect_status(200);
    let list: Vec<(&str, &str)> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (key["name"].as_str().unwrap(), key["scope"].as_str().unwrap()))
        .collect();
    assert_eq!(
        list,
        [("whole", "administer"), ("n", "operate"), ("n", "read"), ("operate", "operate")]
    );
}

#[tokio::test]
async fn a_session_of_the_console_has_the_scope_of_its_key() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let read = create_key(&server, Scope::Read).await;
    let login = server.request("POST", "/console/session").body(json!({"key": read}).to_string());
    let reply = server.send(login).await;
    let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
    let session = reply.expect_status(200);
    assert_eq!(session["scope"], "read");
    let ask = |method: &str| {
        let request = server.request(method, "/v1/ext/agent").header("cookie", cookie.clone());
        server.send(
            request
                .header("x-csrf-token", session["csrf_token"].as_str().unwrap().to_owned())
                .body("{}"),
        )
    };
    assert_eq!(ask("GET").await.status, 200);
    ask("POST").await.assert_is(403, json!({"error": "Forbidden: this API key has scope read"}));
}

/// When the key of this name was last used, as the list of keys shows it.
async fn last_used_at(server: &TestServer, name: &str) -> Value {
    let list = server.get("/v1/ext/apikey").await.expect_status(200);
    let key = list.as_array().unwrap().iter().find(|key| key["name"] == name);
    key.unwrap()["last_used_at"].clone()
}

#[tokio::test]
async fn a_key_s_last_use_is_kept_to_the_minute() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let [busy, other] =
        [create_key(&server, Scope::Read).await, create_key(&server, Scope::Operate).await];
    assert_eq!(last_used_at(&server, "read").await, Value::Null, "never");
    let get = async |key: &str| {
        let request = server.request("GET", "/v1/ext/avatars").header("x-api-key", key.to_owned());
        assert_eq!(server.send(request).await.status, 200);
    };
    get(&busy).await;
    let first = wait_for("the first use", async || {
        Some(last_used_at(&server, "read").await).filter(|at| !at.is_null())
    });
    let first = first.await;
    // Moves the last use 30 s into the past, which is recent enough not to be written again. Uses
    // are written in order: as soon as the other key's use is stored, no earlier one is pending.
    let micros = "(SELECT last_used_at FROM api_key WHERE name = 'read')";
    folder
        .execute_sql(format!(
            "UPDATE api_key SET last_used_at = {micros} - 30000000 WHERE name = 'read'"
        ))
        .await;
    let half = last_used_at(&server, "read").await;
    assert!(half.as_str() < first.as_str(), "{half} {first}");
    for _ in 0..20 {
        get(&busy).await;
    }
    get(&other).await;
    wait_for("the use of the other one", async || {
        Some(last_used_at(&server, "operate").await).filter(|at| !at.is_null())
    })
    .await;
    assert_eq!(last_used_at(&server, "read").await, half, "not written again within a minute");
    // Moves the last use two minutes into the past.
    folder
        .execute_sql(format!(
            "UPDATE api_key SET last_used_at = {micros} - 90000000 WHERE name = 'read'"
        ))
        .await;
    get(&busy).await;
    wait_for("a later use", async || {
        let at = last_used_at(&server, "read").await;
        (at.as_str() > first.as_str()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_command_line_makes_and_lists_keys_of_a_scope() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let data = folder.0.join("data");
    let url = folder.database_url().await;
    server.key = keys::create_scoped(&data, url.as_deref(), "shop", Scope::Operate).await.unwrap();
    server.post("/v1/ext/agent", agent_body(json!({}))).await.expect_status(403);
    assert_eq!(
        server.post("/v1/ext/conversation", json!({"agent_id": UNKNOWN_ID})).await.status,
        404
    );
    let known = wait_for("the use", async || {
        let known = keys::list(&data, url.as_deref()).await.unwrap();
        known[0].last_used_at.is_some().then_some(known)
    })
    .await;
    assert_eq!((known.len(), known[0].scope), (1, Scope::Operate));
}
