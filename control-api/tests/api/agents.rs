//! The endpoints of agents.

use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer, agent_body};

const UNKNOWN_ID: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn an_agent_is_made_read_changed_and_deleted() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let created = server
        .post("/v1/ext/agent", agent_body(json!({"callback_events": ["call_ended"]})))
        .await
        .expect_status(200);
    assert_eq!(created["message"], "Agent created successfully");
    assert!(created["webhook_secret"].as_str().unwrap().starts_with("whsec_"));
    let path = format!("/v1/ext/agent/{}", created["id"].as_str().unwrap());

    let read = server.get(&path).await.expect_status(200);
    assert_eq!(read["agent_name"], "Test agent");
    assert_eq!(read["webhook_secret"], "***");
    assert_eq!(read["callback_url"], "");
    assert_eq!(read["tool"], Value::Null);
    assert_eq!(read["avatars"][0]["config"]["stt"]["min_endpointing_delay"], 0.4);
    assert_eq!(read["avatars"][0]["config"]["stt"]["max_endpointing_delay"], 3.0);

    let done = json!({"id": created["id"], "message": "Agent updated successfully"});
    server
        .send_json("PATCH", &path, json!({"agent_name": "New", "config": {"maxCallDuration": 60}}))
        .await
        .assert_is(200, done.clone());
    let read = server.get(&path).await.expect_status(200);
    assert_eq!(
        (&read["agent_name"], &read["config"]["maxCallDuration"]),
        (&json!("New"), &json!(60))
    );
    assert_eq!(read["callback_events"], json!(["call_ended"]));

    // The response of a GET is a valid body for PUT. A PUT resets every field that it does not
    // name.
    server.send_json("PUT", &path, read.clone()).await.assert_is(200, done.clone());
    assert_eq!(server.get(&path).await.expect_status(200)["agent_name"], "New");
    server.send_json("PUT", &path, agent_body(json!({}))).await.assert_is(200, done);
    let read = server.get(&path).await.expect_status(200);
    assert_eq!(
        (&read["config"]["maxCallDuration"], &read["callback_events"]),
        (&Value::Null, &json!([]))
    );

    server
        .delete(&path)
        .await
        .assert_is(200, json!({"id": created["id"], "message": "Agent deleted successfully"}));
    for reply in [server.get(&path).await, server.delete(&path).await] {
        reply.assert_is(404, json!({"message": "Agent details not found"}));
    }
}

#[tokio::test]
async fn a_missing_agent_and_a_body_at_fault_are_told_in_order() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let missing = json!({"message": "Agent details not found"});
    for id in [UNKNOWN_ID, "nonsense"] {
        let path = format!("/v1/ext/agent/{id}");
        server.get(&path).await.assert_is(404, missing.clone());
        server.delete(&path).await.assert_is(404, missing.clone());
        server.send_json("PUT", &path, agent_body(json!({}))).await.assert_is(404, missing.clone());
        server
            .send_json("PATCH", &path, json!({"agent_name": "x"}))
            .await
            .assert_is(404, missing.clone());
        let refused = server.send_json("PUT", &path, json!({})).await.expect_status(400);
        assert_eq!(refused["error"], "Invalid request body");
    }
    server
        .send_json("POST", "/v1/ext/agent", json!([]))
        .await
        .assert_is(400, json!({"error": "Invalid request body"}));
    let refused = server.post("/v1/ext/agent", agent_body(json!({"tool": [UNKNOWN_ID]}))).await;
    refused.assert_is(
        400,
        json!({
            "error": "Invalid request body",
            "details": [{"field": "tool[0]", "reason": "names nothing"}],
        }),
    );
    for list in ["guardrail", "mcp", "knowledge_base"] {
        let refused = server
            .post("/v1/ext/agent", agent_body(json!({list: [UNKNOWN_ID]})))
            .await
            .expect_status(400);
        assert_eq!(refused["details"][0]["field"], format!("{list}[0]"));
    }
    let refused = server
        .post("/v1/ext/agent", agent_body(json!({"avatars": [{"avatar_key_id": "nobody"}]})))
        .await;
    assert_eq!(refused.expect_status(400)["details"][0]["field"], "avatars[0].avatar_key_id");
}

#[tokio::test]
async fn lists_are_paged_searched_and_counted() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    for i in 0..12 {
        let name = if i == 5 { "100%_Ädler" } else { "Plain" };
        server.create_agent(json!({"agent_name": format!("{name} {i}")})).await;
    }
    let page = server.get("/v1/ext/agent").await;
    assert_eq!(page.header("x-total-count"), "12");
    let page = page.expect_status(200);
    assert_eq!(page.as_array().unwrap().len(), 10);
    assert_eq!(page[0]["agent_name"], "Plain 11", "the newest is first");
    let rest = server.get("/v1/ext/agent?offset=10&perpage=1000").await.expect_status(200);
    assert_eq!(rest.as_array().unwrap().len(), 2);

    for search in ["%25_%C3%A4", "%C3%84DLER"] {
        let found = server.get(&format!("/v1/ext/agent?search={search}")).await;
        assert_eq!(found.header("x-total-count"), "1", "{search}");
        assert_eq!(found.expect_status(200)[0]["agent_name"], "100%_Ädler 5");
    }
    let id = page[3]["id"].as_str().unwrap();
    assert_eq!(
        server.get(&format!("/v1/ext/agent?search={id}")).await.header("x-total-count"),
        "1"
    );
    assert_eq!(server.get("/v1/ext/agent?search=nobody").await.expect_status(200), json!([]));
    let tomorrow = "2999-01-01";
    assert_eq!(
        server.get(&format!("/v1/ext/agent?fromDate={tomorrow}")).await.header("x-total-count"),
        "0"
    );
    assert_eq!(
        server.get(&format!("/v1/ext/agent?toDate={tomorrow}")).await.header("x-total-count"),
        "12"
    );
    let refused = server.get("/v1/ext/agent?perpage=0&fromDate=x").await.expect_status(400);
    assert_eq!(refused["error"], "Invalid request body");
    assert_eq!(refused["details"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn secrets_are_written_and_never_read() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let avatar = |token: &str| {
        json!([{
            "avatar_key_id": "ada",
            "llm": {"provider": "custom", "url": "http://127.0.0.1:1/v1", "token": token},
        }])
    };
    let id = server.create_agent(json!({"avatars": avatar("sesame-open")})).await;
    let path = format!("/v1/ext/agent/{id}");
    let read = server.get(&path).await;
    assert!(!read.text.contains("sesame"), "{read:?}");
    assert_eq!(read.json()["avatars"][0]["config"]["llm"]["token"], "***");
    server.send_json("PATCH", &path, json!({"agent_name": "Kept"})).await.expect_status(200);
    let (conversation, token) = server.create_conversation(&id).await;
    let endpoint = format!("/rtc/{conversation}");
    server.send(server.request("POST", &endpoint).bearer_auth(&token).body("v=0")).await;
    assert_eq!(
        server.engine.offers.lock().unwrap()[0].config.llm.token.as_deref(),
        Some("sesame-open")
    );

    server.send_json("PUT", &path, agent_body(json!({}))).await.expect_status(200);
    assert_eq!(server.get(&path).await.json()["avatars"][0]["config"]["llm"]["token"], Value::Null);
    server.stop().await;
    let entries = std::fs::read_dir(folder.0.join("data")).unwrap().flatten();
    for entry in entries.filter(|entry| entry.path().is_file()) {
        let bytes = std::fs::read(entry.path()).unwrap();
        assert!(
            !bytes.windows(11).any(|w| w == b"sesame-open"),
            "{:?} contains the secret in plain text",
            entry.path()
        );
    }
}

#[tokio::test]
async fn a_deleted_tool_stays_referenced_and_is_left_out() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let tool = json!({
        "type": "tool.api",
        "schema": {"name": "t"},
        "request_config": {"url": "http://127.0.0.1:1"},
    });
    let tool = server.post("/v1/ext/tool", tool).await.expect_status(201)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let agent = server.create_agent(json!({"tool": [{"id": tool}]})).await;
    let path = format!("/v1/ext/agent/{agent}");
    assert_eq!(server.get(&path).await.json()["tool"][0]["schema"]["name"], "t");
    server.delete(&format!("/v1/ext/tool/{tool}")).await.expect_status(200);
    assert_eq!(server.get(&path).await.json()["tool"], json!([]));
    server.send_json("PATCH", &path, json!({"agent_name": "Still there"})).await.expect_status(200);
}

#[tokio::test]
async fn a_webhook_secret_can_be_renewed() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let created = server.post("/v1/ext/agent", agent_body(json!({}))).await.expect_status(200);
    let path = format!("/v1/ext/agent/{}/webhook-secret", created["id"].as_str().unwrap());
    let renewed = server.post(&path, json!({})).await.expect_status(200);
    assert!(renewed["webhook_secret"].as_str().unwrap().starts_with("whsec_"));
    assert_ne!(renewed["webhook_secret"], created["webhook_secret"]);
    let path = format!("/v1/ext/agent/{UNKNOWN_ID}/webhook-secret");
    server
        .post(&path, json!({}))
        .await
        .assert_is(404, json!({"message": "Agent details not found"}));
}

#[tokio::test]
async fn stock_avatars_are_listed() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let reply = server.get("/v1/ext/avatars").await;
    assert_eq!(reply.header("x-total-count"), "3");
    assert_eq!(
        reply.expect_status(200)[0],
        json!({
            "avatar_key_id": "ada",
            "avatar_name": "Ada",
            "gender": "female",
            "display_picture": "data:image/png;base64,AA==",
        })
    );
    assert_eq!(
        server.get("/v1/ext/avatars?perpage=1&offset=1").await.expect_status(200)[0]["avatar_key_id"],
        "mia"
    );
}

#[tokio::test]
async fn suggested_questions_have_limits() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let long = "?".repeat(121);
    for (questions, field, reason) in [
        (json!("Why?"), "", "must be an array of strings"),
        (json!(["Why?", 7]), "", "must be an array of strings"),
        (json!(vec!["?"; 7]), "", "must contain at most 6 entries"),
        (json!(["Why?", " "]), "[1]", "must not be empty"),
        (json!([long]), "[0]", "must be at most 120 characters"),
    ] {
        let body = agent_body(json!({"config": {"suggested_questions": questions}}));
        let refused = server.post("/v1/ext/agent", body).await.expect_status(400);
        let field = format!("config.suggested_questions{field}");
        assert_eq!(refused["details"], json!([{"field": field, "reason": reason}]));
    }
}
