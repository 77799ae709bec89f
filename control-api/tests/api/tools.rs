//! The endpoints of tools.

use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer};

fn tool_body() -> Value {
    json!({
        "type": "tool.api",
        "schema": {
            "type": "function",
            "name": "weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
        "request_config": {
            "method": "GET",
            "url": "http://127.0.0.1:1/w",
            "headers": {"X-Key": "secret"},
        },
        "event_messages": {"on_start": {"message": "Let me look."}},
    })
}

#[tokio::test]
async fn a_tool_is_made_read_replaced_and_deleted() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let created = server.post("/v1/ext/tool", tool_body()).await.expect_status(201);
    assert_eq!(created["message"], "Tool details created successfully");
    let path = format!("/v1/ext/tool/{}", created["id"].as_str().unwrap());
    let read = server.get(&path).await.expect_status(200);
    assert_eq!(read["schema"], tool_body()["schema"]);
    assert_eq!(read["request_config"]["headers"], json!({"X-Key": "***"}));
    assert_eq!(read["event_messages"]["on_start"], json!({"message": "Let me look."}));
    assert_eq!(server.get("/v1/ext/tool").await.expect_status(200)[0]["id"], created["id"]);

    server.send_json("PUT", &path, read).await.assert_is(
        200,
        json!({"id": created["id"], "message": "Tool details updated successfully"}),
    );
    let agent = server.create_agent(json!({"tool": [created["id"]]})).await;
    let (conversation, token) = server.create_conversation(&agent).await;
    let offer =
        server.request("POST", &format!("/rtc/{conversation}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    {
        let offers = server.engine.offers.lock().unwrap();
        let engine_api::ToolBackend::Http { method, headers, .. } =
            &offers[0].config.tools[0].backend
        else {
            panic!("no HTTP tool")
        };
        assert_eq!(method, "GET");
        assert_eq!(headers, &[("X-Key".to_owned(), "secret".to_owned())], "stars keep the value");
        assert_eq!(offers[0].config.spec.tools[0].on_start.as_deref(), Some("Let me look."));
    }
    server.delete(&path).await.assert_is(
        200,
        json!({"id": created["id"], "message": "Tool details deleted successfully"}),
    );
    for reply in [
        server.get(&path).await,
        server.delete(&path).await,
        server.send_json("PUT", &path, tool_body()).await,
    ] {
        reply.assert_is(404, json!({"message": "Tool not found"}));
    }
}

#[tokio::test]
async fn an_agent_may_end_a_call_unless_a_setting_or_its_own_tool_prevents_it() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let mut own_tool = tool_body();
    own_tool["schema"]["name"] = json!("end_call");
    let own = server.post("/v1/ext/tool", own_tool).await.expect_status(201)["id"].clone();
    let agents = [
        (json!({}), 1, true),
        (json!({"config": {"end_call": false}}), 0, false),
        (json!({"tool": [own]}), 1, false),
    ];
    for (i, (settings, count, ends_call)) in agents.into_iter().enumerate() {
        let agent = server.create_agent(settings).await;
        let (conversation, token) = server.create_conversation(&agent).await;
        let path = format!("/rtc/{conversation}");
        let offer = server.request("POST", &path).bearer_auth(&token).body("v=0");
        assert_eq!(server.send(offer).await.status, 201);
        let offers = server.engine.offers.lock().unwrap();
        let config = &offers[i].config;
        let named = config.tools.iter().filter(|tool| tool.name == "end_call").count();
        assert_eq!(named, count);
        assert_eq!(config.spec.tools.iter().any(|tool| tool.ends_call), ends_call);
    }
}
