//! Every operation of the OpenAPI document, with every kind of credential and with another
//! workspace.

use control_api::keys;
use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer, agent_body, joined_event};
use crate::interface_rows::UNKNOWN_ID;
use crate::videos::SOUND;

/// Path, method and whether an API key authorizes it, for every operation.
fn operations() -> Vec<(String, String, bool)> {
    let document: Value = serde_json::from_str(&control_api::openapi::document_json()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let keyed = operation["security"] == json!([{"key": []}]);
            all.push((path.clone(), method.to_uppercase(), keyed));
        }
    }
    assert!(all.len() > 60, "{}", all.len());
    all
}

fn fill_path(path: &str, id: &str) -> String {
    let mut path_filled = String::new();
    for (i, part) in path.split('{').enumerate() {
        match part.split_once('}') {
            Some((_, rest)) if i > 0 => path_filled.push_str(&format!("{id}{rest}")),
            _ => path_filled.push_str(part),
        }
    }
    path_filled
}

#[tokio::test]
async fn no_route_of_the_plane_opens_without_its_own_credential() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (_, token) = server.create_conversation(&agent).await;
    let refused = json!({"error": "Unauthorized: not a valid authorization api key"});
    for (path, method, keyed) in operations() {
        let url = fill_path(&path, UNKNOWN_ID);
        let ask = |header: Option<(&str, &str)>| {
            let request =
                server.request(&method, &url).header("content-type", "application/json").body("{}");
            server.send(match header {
                Some((name, value)) => request.header(name, value),
                None => request,
            })
        };
        let bearer = format!("Bearer {token}");
        if keyed {
            for header in
                [None, Some(("x-api-key", "vv_wrong")), Some(("authorization", bearer.as_str()))]
            {
                let reply = ask(header).await;
                assert_eq!(
                    (reply.status, reply.json()),
                    (401, refused.clone()),
                    "{method} {path} {header:?}"
                );
            }
            let reply = ask(Some(("X-API-Key", &server.key))).await;
            assert!(![401, 405].contains(&reply.status), "{method} {path}: {reply:?}");
        } else {
            let reply = ask(Some(("x-api-key", &server.key))).await;
            assert_ne!(reply.status, 405, "{method} {path}: {reply:?}");
            if path.starts_with("/rtc/") || path == "/api/offer" {
                assert_eq!(
                    reply.status, 401,
                    "an API key gives no access: {method} {path}: {reply:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn nothing_of_another_workspace_is_visible() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let create_resource = async |path: &str, body: Value| {
        let reply = server.post(path, body).await;
        assert!(reply.status < 300, "{path}: {reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    };
    let guardrail = json!({"name": "n", "prompt": "p"});
    let mcp = json!({"name": "n", "request_config": {"url": "http://127.0.0.1:1/"}});
    let tool = json!({
        "type": "tool.api",
        "schema": {"name": "t"},
        "request_config": {"url": "http://127.0.0.1:1/"},
    });
    let template = json!({"template_name": "t", "template_system_prompt": "p"});
    let image = "data:image/png;base64,iVBORw0KGgoAAAAN";
    let face = json!({"avatar_name": "Z", "gender": "female", "input_image": image});
    let sound = json!({"avatar_key_id": "ada", "audio": SOUND});
    let ids = [
        ("/v1/ext/video/", create_resource("/v1/ext/video", sound).await),
        ("/v1/ext/agent/", create_resource("/v1/ext/agent", agent_body(json!({}))).await),
        ("/v1/ext/guardrail/", create_resource("/v1/ext/guardrail", guardrail.clone()).await),
        ("/v1/ext/mcp/", create_resource("/v1/ext/mcp", mcp.clone()).await),
        ("/v1/ext/tool/", create_resource("/v1/ext/tool", tool.clone()).await),
        ("/v1/ext/template/", create_resource("/v1/ext/template", template.clone()).await),
        ("/v2/custom-avatar/", create_resource("/v2/custom-avatar", face).await),
        ("/v1/ext/apikey/", create_resource("/v1/ext/apikey", json!({"name": "n"})).await),
    ];
    let agent_id = ids[1].1.clone();
    let (conversation, _) = server.create_conversation(&agent_id).await;
    server.engine.record_event(&conversation, 0, 0.0, joined_event());
    server.wait_for_status(&conversation, "IN_PROGRESS").await;

    server.key =
        keys::create(&folder.0.join("data"), folder.database_url().await.as_deref(), "other")
            .await
            .unwrap();
    let body = |path: &str, method: &str| match (method, path) {
        ("PUT", p) if p.contains("/agent/") => agent_body(json!({})),
        ("PATCH", _) => json!({"agent_name": "x"}),
        ("PUT", p) if p.contains("/guardrail/") => guardrail.clone(),
        ("PUT", p) if p.contains("/mcp/") => mcp.clone(),
        ("PUT", p) if p.contains("/tool/") => tool.clone(),
        ("PUT", p) if p.contains("/template/") => template.clone(),
        (_, p) if p.ends_with("/feedback") => json!({"rating": 5}),
        _ => json!({"text": "x"}),
    };
    let mut tried = 0;
    for (path, method, keyed) in operations() {
        let known =
            ids.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, id)| id.as_str());
        let conversations =
            path.starts_with("/v1/ext/conversation/") || path.starts_with("/v1/conversation/");
        // A path without an id names no record of anybody.
        if !path.contains('{') {
            continue;
        }
        let Some(id) = known.or(conversations.then_some(conversation.as_str())).filter(|_| keyed)
        else {
            continue;
        };
        let url = fill_path(&path, id);
        let reply = server.send_json(&method, &url, body(&path, &method)).await;
        assert_eq!(reply.status, 404, "{method} {path}: {reply:?}");
        tried += 1;
    }
    assert!(tried > 25, "{tried}");
    for list in [
        "/v1/ext/agent",
        "/v1/ext/guardrail",
        "/v1/ext/mcp",
        "/v1/ext/tool",
        "/v1/ext/templates",
        "/v1/ext/kbs",
        "/v2/custom-avatars",
        "/v1/ext/videos",
        "/v1/ext/conversation",
        "/v1/ext/deadletters",
    ] {
        assert_eq!(server.get(list).await.expect_status(200), json!([]), "{list}");
    }
    let stolen = server
        .post("/v1/ext/agent", agent_body(json!({"guardrail": [ids[2].1]})))
        .await
        .expect_status(400);
    assert_eq!(stolen["details"][0]["field"], "guardrail[0]");
    let stolen = server.post("/v1/ext/conversation", json!({"agent_id": agent_id})).await;
    stolen.assert_is(404, json!({"message": "Agent details not found"}));
}

#[tokio::test]
async fn the_document_is_served_and_readable() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let document = server.send(server.request("GET", "/openapi.json")).await;
    assert_eq!(document.text, control_api::openapi::document_json());
    assert_eq!(document.json()["openapi"], "3.1.0");
    let page = server.send(server.request("GET", "/docs")).await;
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(
        page.text.contains("/v1/ext/guardrail/{id}") && !page.text.contains("<script"),
        "{}",
        page.text
    );
}
