//! The interface as rows: a request and its expected response.

use serde_json::{Value, json};

use crate::harness::{Reply, TempFolder, TestServer};

/// Matches any value but null.
pub(crate) const ANY: &str = "<any>";
/// An id that belongs to no record.
pub(crate) const UNKNOWN_ID: &str = "00000000-0000-4000-8000-000000000000";

/// One row: a statement, the method, path and body of the request, the status, and the expected
/// body. An expected object must be a part of the actual one. `<any>` matches any value but null.
pub(crate) struct InterfaceRow(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) String,
    pub(crate) Value,
    pub(crate) u16,
    pub(crate) Value,
);

/// Whether `expected` is a part of `actual`.
pub(crate) fn matches_expected(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (actual, Value::String(any)) if any == ANY => !actual.is_null(),
        (Value::Object(actual), Value::Object(expected)) => expected.iter().all(|(name, value)| {
            actual.get(name).is_some_and(|actual| matches_expected(actual, value))
        }),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len()
                && actual.iter().zip(expected).all(|(g, w)| matches_expected(g, w))
        }
        (actual, expected) => actual == expected,
    }
}

/// Sends the request of each row. An error response must equal the expected body byte for byte; of
/// a success, the expected body may be a part.
pub(crate) async fn check_rows(server: &TestServer, rows: impl IntoIterator<Item = InterfaceRow>) {
    for InterfaceRow(statement, method, path, body, status, expected) in rows {
        let reply: Reply = match &body {
            Value::Null => {
                server.send(server.request(method, &path).header("x-api-key", &server.key)).await
            }
            body => server.send_json(method, &path, body.clone()).await,
        };
        let actual = if reply.text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&reply.text).unwrap_or_else(|_| reply.text.clone().into())
        };
        assert_eq!(reply.status, status, "{statement}: {method} {path} {body}: {reply:?}");
        let matches = if status >= 400 && !expected.get("details").is_some_and(|d| d == ANY) {
            // Compared as text, not as a value: the bytes are the contract.
            let bytes = expected.as_str().map_or_else(|| expected.to_string(), str::to_owned);
            reply.text == bytes
        } else {
            matches_expected(&actual, &expected)
        };
        assert!(
            matches,
            "{statement}: {method} {path} {body}:\n  came   {actual}\n  wanted {expected}"
        );
    }
}

fn row(
    statement: &'static str,
    method: &'static str,
    path: impl Into<String>,
    body: Value,
    status: u16,
    expected: Value,
) -> InterfaceRow {
    InterfaceRow(statement, method, path.into(), body, status, expected)
}

pub(crate) fn field_error(field: &str, reason: &str) -> Value {
    json!({"error": "Invalid request body", "details": [{"field": field, "reason": reason}]})
}

fn message_body(text: &str) -> Value {
    json!({ "message": text })
}

fn id_of(made: &Value) -> String {
    made["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn guardrails() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let refused = |text: &str| json!({ "error": text });
    let body = json!({"name": "No advice!", "prompt": "The user asks for advice"});
    let created = server.post("/v1/ext/guardrail", body.clone()).await.expect_status(201);
    let again = server.post("/v1/ext/guardrail", body.clone()).await.expect_status(201);
    let third = server
        .post("/v1/ext/guardrail", json!({"name": "no-advice-", "prompt": "x"}))
        .await
        .expect_status(201);
    assert_eq!(created, json!({"id": created["id"], "message": "Guardrail created"}));
    let path = |created: &Value| format!("/v1/ext/guardrail/{}", id_of(created));
    let agent =
        server.create_agent(json!({"guardrail": [created["id"], {"id": again["id"]}]})).await;
    let whole = json!({
        "id": created["id"], "key": "no_advice_", "name": "No advice!", "category": "", "prompt": "The user asks for advice",
        "response_message": "", "callback_url": "", "created_at": ANY, "updated_at": ANY,
    });
    check_rows(
        &server,
        [
            row("a guardrail's fields, unset strings empty", "GET", path(&created), Value::Null, 200, whole.clone()),
            row("the first collision has the suffix _2", "GET", path(&again), Value::Null, 200, json!({"key": "no_advice__2"})),
            row("and the next _3", "GET", path(&third), Value::Null, 200, json!({"key": "no_advice__3"})),
            row("the list holds all, newest first", "GET", "/v1/ext/guardrail", Value::Null, 200, json!([{"id": third["id"]}, {"id": again["id"]}, whole])),
            row("the list pages where asked", "GET", "/v1/ext/guardrail?perpage=1&offset=1", Value::Null, 200, json!([{"id": again["id"]}])),
            row("an agent returns guardrails in full", "GET", format!("/v1/ext/agent/{agent}"), Value::Null, 200, json!({"guardrail": [whole, {"key": "no_advice__2"}]})),
            row("name is required", "POST", "/v1/ext/guardrail", json!({"prompt": "x"}), 400, refused("name is required")),
            row("prompt is required", "POST", "/v1/ext/guardrail", json!({"name": "x"}), 400, refused("prompt is required")),
            row("callback_url must be well formed", "POST", "/v1/ext/guardrail", json!({"name": "x", "prompt": "y", "callback_url": "x"}), 400, refused("callback_url must be a valid http(s) URL")),
            row("a wrong type is an invalid body", "POST", "/v1/ext/guardrail", json!({"name": 1, "prompt": "y"}), 400, field_error("name", "must be a string")),
            row("PUT needs the same fields", "PUT", path(&created), json!({"name": "x"}), 400, refused("prompt is required")),
            row("PUT replaces every field", "PUT", path(&created), json!({"name": "Other", "prompt": "p", "category": "c", "response_message": "r", "callback_url": "https://x.example/"}), 200, json!({"id": created["id"], "message": "Guardrail updated"})),
            row("and never the key", "GET", path(&created), Value::Null, 200, json!({"key": "no_advice_", "name": "Other", "category": "c", "response_message": "r", "callback_url": "https://x.example/"})),
            row("what PUT leaves out is empty", "PUT", path(&created), json!({"name": "Other", "prompt": "p"}), 200, json!({"id": created["id"], "message": "Guardrail updated"})),
            row("as here", "GET", path(&created), Value::Null, 200, json!({"category": "", "response_message": "", "callback_url": ""})),
            row("DELETE", "DELETE", path(&created), Value::Null, 200, json!({"id": created["id"], "message": "Guardrail deleted"})),
            row("DELETE of none", "DELETE", path(&created), Value::Null, 404, message_body("Guardrail not found")),
            row("GET of none", "GET", path(&created), Value::Null, 404, message_body("Guardrail not found")),
            row("PUT of none", "PUT", path(&created), body, 404, message_body("Guardrail not found")),
            row("an id that is no UUID", "DELETE", "/v1/ext/guardrail/x", Value::Null, 404, message_body("Guardrail not found")),
            row("the agent leaves a deleted one out", "GET", format!("/v1/ext/agent/{agent}"), Value::Null, 200, json!({"guardrail": [{"id": again["id"]}]})),
            row("and can still be changed", "PATCH", format!("/v1/ext/agent/{agent}"), json!({"agent_name": "x"}), 200, json!({"id": agent})),
        ],
    )
    .await;
}

#[tokio::test]
async fn mcp_configurations() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let body = json!({
        "name": "Files", "description": "d", "type": "shttp",
        "request_config": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer sesame"}},
    });
    let created = server.post("/v1/ext/mcp", body.clone()).await.expect_status(200);
    let expected = json!({"id": created["id"], "name": "Files", "description": "d", "type": "shttp", "created_at": created["created_at"]});
    assert_eq!(created, expected);
    let path = format!("/v1/ext/mcp/{}", id_of(&created));
    let agent = server.create_agent(json!({"mcp": [created["id"]]})).await;
    let shown = json!({
        "id": created["id"], "name": "Files", "description": "d", "type": "shttp",
        "request_config": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "***"}}, "created_at": created["created_at"], "updated_at": ANY,
    });
    let missing = json!({"error": "MCP not found"});
    check_rows(
        &server,
        [
            row("header values are stars", "GET", &path, Value::Null, 200, shown.clone()),
            row("the list", "GET", "/v1/ext/mcp", Value::Null, 200, json!([shown])),
            row("an agent shows it", "GET", format!("/v1/ext/agent/{agent}"), Value::Null, 200, json!({"mcp": [shown]})),
            row("name is required", "POST", "/v1/ext/mcp", json!({"request_config": {"url": "http://x/"}}), 400, field_error("name", "is required")),
            row("the address must be well formed", "POST", "/v1/ext/mcp", json!({"name": "x", "request_config": {"url": "x"}}), 400, field_error("request_config.url", "must be a valid http(s) URL")),
            row("types", "POST", "/v1/ext/mcp", json!({"name": "x", "type": "stdio", "request_config": {"url": "http://x/"}}), 400, field_error("type", "must be one of shttp/sse, shttp, sse")),
            row("the type's default", "POST", "/v1/ext/mcp", json!({"name": "x", "request_config": {"url": "http://x/"}}), 200, json!({"type": "shttp/sse", "description": ""})),
            row("PUT answers the record", "PUT", &path, json!({"name": "New", "request_config": {"url": "http://x/", "headers": {"Authorization": "***", "Other": "***"}}}), 200, json!({"id": created["id"], "name": "New", "request_config": {"url": "http://x/", "headers": {"Authorization": "***"}}})),
            row("PUT with a body at fault", "PUT", format!("/v1/ext/mcp/{UNKNOWN_ID}"), json!({}), 400, json!({"error": "Invalid request body", "details": ANY})),
            row("PUT of none", "PUT", format!("/v1/ext/mcp/{UNKNOWN_ID}"), body, 404, missing.clone()),
            row("DELETE", "DELETE", &path, Value::Null, 204, Value::Null),
            row("DELETE of none", "DELETE", &path, Value::Null, 404, missing.clone()),
            row("GET of none", "GET", &path, Value::Null, 404, missing.clone()),
            row("an id that is no UUID", "GET", "/v1/ext/mcp/x", Value::Null, 404, missing),
        ],
    )
    .await;
}

#[tokio::test]
async fn templates_and_agents_made_of_them() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let guardrail = server
        .post("/v1/ext/guardrail", json!({"name": "g", "prompt": "p"}))
        .await
        .expect_status(201);
    let body = json!({
        "template_name": "Seller", "template_system_prompt": "Sell kindly.", "guardrail": [guardrail["id"]], "callback_url": "http://127.0.0.1:1/",
        "avatars": [{"llm": {"provider": "custom", "url": "http://127.0.0.1:1/v1", "model": "m", "token": "sesame"}, "welcome_message": {"messages": ["Hi"]}}],
    });
    let created = server.post("/v1/ext/template", body.clone()).await.expect_status(201);
    assert_eq!(created, json!({"id": created["id"], "message": "Template created successfully"}));
    let path = format!("/v1/ext/template/{}", id_of(&created));
    let by = "/v1/ext/agentbytemplate";
    let template = &created["id"];
    let fetch = json!({"error": "Failed to fetch template/avatar"});
    let missing = message_body("Template not found");
    check_rows(
        &server,
        [
            row("a template's fields", "GET", &path, Value::Null, 200, json!({
                "id": template, "template_name": "Seller", "template_system_prompt": "Sell kindly.", "guardrail": [{"key": "g"}], "record": false,
                "avatars": [{"avatar_key_id": null, "config": {"llm": {"model": "m", "token": "***"}}, "welcome_message": {"messages": ["Hi"]}}], "created_at": ANY,
            })),
            row("the list pages", "GET", "/v1/ext/templates?search=SELL", Value::Null, 200, json!([{"id": template}])),
            row("name and prompt are required", "POST", "/v1/ext/template", json!({}), 400, json!({"error": "Invalid request body", "details": [
                {"field": "template_name", "reason": "is required"}, {"field": "template_system_prompt", "reason": "is required"}]})),
            row("a face may stay open, not be unknown", "POST", "/v1/ext/template", json!({"template_name": "x", "template_system_prompt": "y", "avatars": [{"avatar_key_id": "nobody"}]}), 400, field_error("avatars[0].avatar_key_id", "is not an existing avatar")),
            row("attached records must exist", "POST", "/v1/ext/template", json!({"template_name": "x", "template_system_prompt": "y", "mcp": [UNKNOWN_ID]}), 400, field_error("mcp[0]", "names nothing")),
            row("an agent of a template", "POST", by, json!({"template_id": template, "avatar_key_id": "mia", "email": "a@b.example", "context_override": "Only today."}), 200, json!({"id": ANY, "message": "Agent created successfully"})),
            row("which inherits everything", "GET", "/v1/ext/agent?perpage=1", Value::Null, 200, json!([{
                "agent_name": "Seller", "agent_system_prompt": "Sell kindly.\n\nOnly today.", "email": "a@b.example", "guardrail": [{"key": "g"}], "callback_url": "http://127.0.0.1:1/",
                "avatars": [{"avatar_key_id": "mia", "persona_name": "Mia", "config": {"llm": {"model": "m", "token": "***"}}, "welcome_message": {"messages": ["Hi"]}}],
            }])),
            row("avatar_ids in place of avatar_key_id", "POST", by, json!({"template_id": template, "avatar_ids": ["ada", "mia"]}), 200, json!({"id": ANY})),
            row("each face has the settings", "GET", "/v1/ext/agent?perpage=1", Value::Null, 200, json!([{"avatars": [
                {"avatar_key_id": "ada", "config": {"llm": {"token": "***"}}}, {"avatar_key_id": "mia", "config": {"llm": {"token": "***"}}}]}])),
            row("template_id is required", "POST", by, json!({"avatar_key_id": "ada"}), 400, field_error("template_id", "is required")),
            row("a face is required", "POST", by, json!({"template_id": template}), 400, field_error("avatar_key_id", "is required")),
            row("a body that is no object", "POST", by, json!([]), 400, json!({"error": "Invalid request body"})),
            row("an unknown template", "POST", by, json!({"template_id": UNKNOWN_ID, "avatar_key_id": "ada"}), 500, fetch.clone()),
            row("a template's id that is no UUID", "POST", by, json!({"template_id": "x", "avatar_key_id": "ada"}), 500, fetch.clone()),
            row("an unknown avatar", "POST", by, json!({"template_id": template, "avatar_key_id": "nobody"}), 500, fetch),
            row("PUT", "PUT", &path, json!({"template_name": "New", "template_system_prompt": "y"}), 200, json!({"id": template, "message": "Template details updated successfully"})),
            row("PUT replaces", "GET", &path, Value::Null, 200, json!({"template_name": "New", "guardrail": null, "avatars": [], "callback_url": ""})),
            row("a template without avatars makes agents too", "POST", by, json!({"template_id": template, "avatar_key_id": "ada"}), 200, json!({"id": ANY})),
            row("PUT of none", "PUT", format!("/v1/ext/template/{UNKNOWN_ID}"), body, 404, missing.clone()),
            row("DELETE", "DELETE", &path, Value::Null, 200, json!({"id": template, "message": "Template details deleted successfully"})),
            row("DELETE of none", "DELETE", &path, Value::Null, 404, missing.clone()),
            row("GET of none", "GET", &path, Value::Null, 404, missing.clone()),
            row("an id that is no UUID", "GET", "/v1/ext/template/x", Value::Null, 404, missing),
        ],
    )
    .await;
    // The token was copied, encrypted for its new row.
    let agents = server.get("/v1/ext/agent?search=Seller").await.expect_status(200);
    let (conversation, token) = server.create_conversation(&id_of(&agents[0])).await;
    let offer =
        server.request("POST", &format!("/rtc/{conversation}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    let offered = server.engine.offers.lock().unwrap()[0].config.llm.token.clone();
    assert_eq!(offered.as_deref(), Some("sesame"));
}

#[tokio::test]
async fn the_short_form_of_an_agent() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let path = "/v1/agent/api";
    let body = json!({"name": "N", "system_prompt": "P", "avatar_ids": ["mia", "ada"], "callback_url": "http://127.0.0.1:1/", "callback_events": ["call_ended"]});
    let without = |name: &str| {
        let mut body = body.clone();
        body.as_object_mut().unwrap().remove(name);
        body
    };
    let with = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        body
    };
    check_rows(
        &server,
        [
            row("makes an agent", "POST", path, body.clone(), 200, json!({"id": ANY, "message": "Agent created successfully", "webhook_secret": ANY})),
            row("with these fields", "GET", "/v1/ext/agent", Value::Null, 200, json!([{
                "agent_name": "N", "agent_system_prompt": "P", "callback_url": "http://127.0.0.1:1/", "callback_events": ["call_ended"], "record": false,
                "avatars": [{"avatar_key_id": "mia", "persona_name": "Mia"}, {"avatar_key_id": "ada", "persona_name": "Ada"}],
            }])),
            row("name", "POST", path, without("name"), 400, field_error("name", "is required")),
            row("system_prompt", "POST", path, without("system_prompt"), 400, field_error("system_prompt", "is required")),
            row("avatar_ids", "POST", path, with("avatar_ids", json!([])), 400, field_error("avatar_ids", "must contain at least one avatar")),
            row("avatar_ids of a wrong type", "POST", path, with("avatar_ids", json!("ada")), 400, field_error("avatar_ids", "must be an array of strings")),
            row("an unknown avatar", "POST", path, with("avatar_ids", json!(["ada", "nobody"])), 400, field_error("avatar_ids[1]", "is not an existing avatar")),
            row("callback_url", "POST", path, with("callback_url", json!("x")), 400, field_error("callback_url", "must be a valid http(s) URL")),
        ],
    )
    .await;
}

#[tokio::test]
async fn meetings_are_checked_and_refused() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let path = "/v1/ext/externalmeeting";
    let body = json!({"agent_id": agent, "meeting_url": "https://meet.google.com/abc-defg-hij", "user_name": "A", "user_id": "1", "mode": "whatever"});
    let with = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        body
    };
    let refused = json!("Unable to create agent request.");
    check_rows(
        &server,
        [
            row("no meeting service is installed", "POST", path, body.clone(), 502, refused),
            row("an unknown agent", "POST", path, with("agent_id", json!(UNKNOWN_ID)), 404, message_body("Agent details not found")),
            row("another platform", "POST", path, with("meeting_url", json!("https://example.com/x")), 400, field_error("meeting_url", "must be a meeting of Google Meet (meet.google.com), Zoom (zoom.us, zoom.com) or Microsoft Teams (teams.microsoft.com, teams.live.com)")),
            row("every required field is named", "POST", path, json!({}), 400, json!({"error": "Invalid request body", "details": [
                {"field": "agent_id", "reason": "is required"}, {"field": "meeting_url", "reason": "is required"},
                {"field": "user_name", "reason": "is required"}, {"field": "user_id", "reason": "is required"}]})),
        ],
    )
    .await;
    let reply = server.post(path, body).await;
    assert!(reply.header("content-type").starts_with("text/plain"), "{reply:?}");
}

#[tokio::test]
async fn custom_avatars_of_photos_and_characters() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let path = "/v2/custom-avatar";
    let image = "data:image/png;base64,iVBORw0KGgoAAAAN";
    let body =
        json!({"avatar_name": "Zoe", "gender": "female", "input_image": image, "is_private": true});
    let created = server.post(path, body.clone()).await.expect_status(200);
    assert!(matches_expected(
        &created,
        &json!({
            "id": ANY, "job_id": ANY, "avatar_key_id": ANY, "avatar_id": ANY, "avatar_name": "Zoe", "gender": "female", "category": "custom",
            "status": "QUEUED", "is_private": true, "output": null, "error": null, "created_at": ANY, "updated_at": ANY,
        })
    ));
    let one = format!("{path}/{}", id_of(&created));
    let with = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        body
    };
    let missing = message_body("Custom avatar not found");
    check_rows(
        &server,
        [
            row(
                "the list",
                "GET",
                "/v2/custom-avatars?search=zo",
                Value::Null,
                200,
                json!([{"id": created["id"]}]),
            ),
            row(
                "genders",
                "POST",
                path,
                with("gender", json!("other")),
                400,
                field_error("gender", "must be one of male, female"),
            ),
            row(
                "the picture is needed",
                "POST",
                path,
                with("input_image", Value::Null),
                400,
                field_error("input_image", "is required"),
            ),
            row(
                "kinds of pictures",
                "POST",
                path,
                with("input_image", json!("data:image/gif;base64,R0lGODlh")),
                400,
                field_error("input_image", "must be PNG, JPEG or WebP"),
            ),
            row(
                "a drawn person needs none",
                "POST",
                path,
                json!({"avatar_name": "D", "gender": "male", "character": {"hair": {"style": "bun"}}}),
                200,
                json!({"status": "QUEUED"}),
            ),
            row(
                "DELETE",
                "DELETE",
                &one,
                Value::Null,
                200,
                json!({"id": created["id"], "message": "Custom avatar deleted successfully"}),
            ),
            row("DELETE of none", "DELETE", &one, Value::Null, 404, missing.clone()),
            row("GET of none", "GET", &one, Value::Null, 404, missing.clone()),
            row("an id that is no UUID", "GET", format!("{path}/x"), Value::Null, 404, missing),
        ],
    )
    .await;
    let large = |bytes: usize| {
        with("input_image", format!("data:image/png;base64,{}", "A".repeat(bytes * 4 / 3)).into())
    };
    for bytes in [(9 << 20) + 6, 11 << 20] {
        server
            .post(path, large(bytes))
            .await
            .assert_is(413, json!({"error": "Request body is too large"}));
    }
}

#[tokio::test]
async fn providers_are_told_with_their_state() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let all = server.get("/v1/ext/providers").await;
    assert_eq!(all.header("x-total-count"), all.json().as_array().unwrap().len().to_string());
    let openai = json!([{
        "display_name": ANY, "provider": "openai", "provider_type": "llm", "model": "gpt-4.1-mini", "configured": false, "source": "none", "key_variables": ["OPENAI_API_KEY"], "languages": [],
        "additional_fields": [{"name": "model", "type": "ENUM", "label": ANY, "items": ANY, "default_value": "gpt-4.1-mini"}],
    }]);
    let deepgram = json!([{
        "display_name": "Deepgram", "provider": "deepgram", "provider_type": "stt", "model": "nova-3",
        "configured": false, "source": "none", "languages": ANY, "additional_fields": ANY,
    }]);
    let voice = json!([{"provider": "builtin", "configured": true, "source": "builtin", "languages": ["en"], "additional_fields": [{
        "name": "voice_id", "type": "ENUM", "label": ANY, "items": ANY, "default_value": "heart",
    }]}]);
    check_rows(
        &server,
        [
            row(
                "a provider that lacks its key",
                "GET",
                "/v1/ext/providers?search=openai,%20or",
                Value::Null,
                200,
                openai,
            ),
            row(
                "a hosted STT that lacks its key",
                "GET",
                "/v1/ext/providers?type=stt&search=deepgram",
                Value::Null,
                200,
                deepgram,
            ),
            row(
                "a provider's choices",
                "GET",
                "/v1/ext/providers?type=tts&search=built-in",
                Value::Null,
                200,
                voice,
            ),
            row(
                "the list pages where asked",
                "GET",
                "/v1/ext/providers?perpage=0",
                Value::Null,
                400,
                field_error("perpage", "must be a whole number of at least 1"),
            ),
        ],
    )
    .await;
}
