//! Many workspaces on one server: they take turns, and none exceeds its limits.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control_api::{Limits, keys};
use conversation::event::{EndReason, Event, TriggeredGuardrail, UtteranceId};
use engine_api::OfferError;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{
    Reply, TEST_API_KEY, TempFolder, TestServer, WebhookReceiver, agent_body, joined_event,
    wait_for,
};
use crate::knowledge::upload_to;

/// An API key of another workspace.
pub(crate) async fn create_other_workspace_key(folder: &TempFolder) -> String {
    let url = folder.database_url().await;
    keys::create(&folder.0.join("data"), url.as_deref(), "other").await.unwrap()
}

fn with_limits(change: impl FnOnce(&mut Limits)) -> impl FnOnce(&mut control_api::Config) {
    move |config| change(&mut config.limits)
}

/// The response body at a limit of the workspace.
fn limit_error(field: &str, reason: &str) -> Value {
    json!({"error": "Workspace limit reached", "details": [{"field": field, "reason": reason}]})
}

#[tokio::test]
async fn a_workspace_whose_receivers_all_hang_leaves_room_for_the_others() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    // An attempt at a receiver that hangs lasts longer than this test.
    let mut server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.timeout = Duration::from_secs(3600)
    })
    .await;
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}/", silent.local_addr().unwrap());
    // More deliveries than attempts may run at once in total (256). No agent exceeds its own limit
    // (64).
    for _ in 0..5 {
        let agent = server
            .create_agent(json!({"callback_url": silent, "callback_events": ["call_ended"]}))
            .await;
        for _ in 0..60 {
            let (id, _) = server.create_conversation(&agent).await;
            server.engine.record_events(&id, 0, [(0.0, joined_event()), (1.0, Event::CallEnded)]);
        }
    }
    wait_for("all of them to wait", async || {
        (server.webhook_count("pending").await == 300).then_some(())
    })
    .await;
    server.key = create_other_workspace_key(&folder).await;
    let id = server
        .create_running_call(
            json!({"callback_url": hooks.url, "callback_events": ["utterance_committed"]}),
        )
        .await;
    let utterances = (1..=20)
        .map(|n| (f64::from(n), Event::UtteranceCommitted { text: n.to_string(), speaker: None }));
    server.engine.record_events(&id, 1, utterances);
    hooks.wait_for_first(20).await;
    wait_for("all of them to be accepted", async || {
        (server.webhook_count("done").await == 20).then_some(())
    })
    .await;
    assert_eq!(
        server.webhook_count("pending").await,
        300,
        "the other one was served while these hung"
    );
}

/// Events that trigger a guardrail with a receiver `count` times, and the utterance that answers.
fn guardrail_events(receiver: &str, count: usize) -> Vec<(f64, Event)> {
    let triggered = TriggeredGuardrail {
        key: "k".into(),
        category: String::new(),
        content: "x".into(),
        response_message: Some("No.".into()),
        verdict: None,
        callback_url: Some(receiver.to_owned()),
    };
    let mut events = vec![(1.0, Event::GuardrailTriggered(Box::new(triggered))); count];
    events
        .push((2.0, Event::AgentStartedSpeaking { text: "No.".into(), utterance: UtteranceId(1) }));
    events
}

#[tokio::test]
async fn guardrail_callbacks_to_a_receiver_that_hangs_are_bounded_and_hold_up_no_other_workspace() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    // A request to a receiver that hangs lasts longer than this test.
    let mut server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.timeout = Duration::from_secs(3600)
    })
    .await;
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("http://{}/", silent.local_addr().unwrap());
    let accepted = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(silent.accept().await.unwrap());
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let id = server.create_running_call(json!({})).await;
    server.engine.record_events(&id, 1, guardrail_events(&silent_url, 300));
    // Of one agent, 16 are in flight and 256 wait.
    wait_for("the other ones to be dropped", async || {
        let metrics = server.get("/metrics").await.text;
        metrics.contains("visavis_guardrail_callbacks_dropped_total 28").then_some(())
    })
    .await;
    wait_for("the requests", async || (accepted.load(Ordering::Relaxed) == 16).then_some(())).await;
    server.key = create_other_workspace_key(&folder).await;
    let id = server.create_running_call(json!({})).await;
    server.engine.record_events(&id, 1, guardrail_events(&hooks.url, 1));
    let received = hooks.wait_for_first(1).await;
    assert!(received[0].body.contains(&id), "{received:?}");
    assert_eq!(accepted.load(Ordering::Relaxed), 16, "the other one was served while these hung");
}

async fn upload_documents(server: &TestServer, file: &str, count: usize) -> String {
    let content: &[u8] =
        if file.ends_with("json") { b"{\"a\": \"word\"}" } else { b"<p>A word,\nand more</p>" };
    let head: [(&str, Option<&str>, &[u8]); 2] =
        [("name", None, b"K"), ("description", None, b"d")];
    let mut parts = head.to_vec();
    parts.extend((0..count).map(|_| ("input", Some(file), content)));
    let created = upload_to(server, "/v1/ext/kb", &parts).await.expect_status(200);
    format!("/v1/ext/kb/{}", created["id"].as_str().unwrap())
}

async fn document_statuses(server: &TestServer, path: &str) -> Vec<String> {
    let base = server.get(path).await.expect_status(200);
    let states = base["documents"].as_array().unwrap().iter();
    states.map(|document| document["status"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn workspaces_take_turns_at_the_reading_of_their_documents() {
    let folder = TempFolder::new();
    // The extraction of the first document never ends.
    let hangs: Vec<OsString> = ["/bin/sh", "-c", "exec tail -f /dev/null"].map(Into::into).to_vec();
    let mut server =
        TestServer::start_with(&folder.0, |config| config.extract_command = Some(hangs)).await;
    let many = upload_documents(&server, "many.json", 3).await;
    wait_for("the first one", async || {
        (document_statuses(&server, &many).await == ["processing", "started", "started"])
            .then_some(())
    })
    .await;
    server.key = create_other_workspace_key(&folder).await;
    let few = upload_documents(&server, "few.html", 2).await;
    server.stop().await;

    // The command logs the type of each document before it extracts its text.
    let (log, real) = (folder.0.join("order"), env!("CARGO_BIN_EXE_visavis-extract-under-test"));
    let script = format!("echo \"$0\" >> '{}'; exec '{real}' \"$0\"", log.display());
    let notes: Vec<OsString> = ["/bin/sh".into(), "-c".into(), script.into()].to_vec();
    let mut server =
        TestServer::start_with(&folder.0, |config| config.extract_command = Some(notes)).await;
    wait_for("all of them to be read", async || {
        (document_statuses(&server, &many).await.iter().all(|status| status == "ready"))
            .then_some(())
    })
    .await;
    let order = std::fs::read_to_string(&log).unwrap();
    assert_eq!(
        order.split_whitespace().collect::<Vec<_>>(),
        ["html", "json", "html", "json", "json"]
    );
    server.key = create_other_workspace_key(&folder).await;
    assert_eq!(document_statuses(&server, &few).await, ["ready", "ready"]);
}

#[tokio::test]
async fn a_workspace_has_no_more_agents_than_it_may() {
    let folder = TempFolder::new();
    let mut server =
        TestServer::start_with(&folder.0, with_limits(|limits| limits.workspace_agents = 2)).await;
    let template = json!({
        "template_name": "t",
        "template_system_prompt": "p",
        "avatars": [{"avatar_key_id": "ada"}],
    });
    let template = server.post("/v1/ext/template", template).await.expect_status(201)["id"].clone();
    let short = json!({"name": "n", "system_prompt": "p", "avatar_ids": ["ada"]});
    let by_template = json!({"template_id": template, "avatar_key_id": "ada"});
    let ways = [
        ("/v1/ext/agent", agent_body(json!({}))),
        ("/v1/agent/api", short),
        ("/v1/ext/agentbytemplate", by_template),
    ];
    let first = server.post(ways[0].0, ways[0].1.clone()).await.expect_status(200);
    server.post(ways[1].0, ways[1].1.clone()).await.expect_status(200);
    for (path, body) in &ways {
        let refused = server.post(path, body.clone()).await;
        assert_eq!(refused.headers.get("retry-after"), None, "time alone frees no capacity");
        refused.assert_is(429, limit_error("workspace_agents", "a workspace may have 2 agents"));
    }
    let path = format!("/v1/ext/agent/{}", first["id"].as_str().unwrap());
    server.send_json("PATCH", &path, json!({"agent_name": "x"})).await.expect_status(200);
    // An invalid body is still reported.
    assert_eq!(server.post("/v1/ext/agent", json!({})).await.status, 400);
    server.delete(&path).await.expect_status(200);
    server.post(ways[2].0, ways[2].1.clone()).await.expect_status(200);
    server.key = create_other_workspace_key(&folder).await;
    server.post(ways[0].0, ways[0].1.clone()).await.expect_status(200);
}

#[tokio::test]
async fn a_workspace_makes_no_more_conversations_a_day_than_it_may() {
    let folder = TempFolder::new();
    let change = with_limits(|limits| limits.workspace_conversations = 2);
    let mut server = TestServer::start_with(&folder.0, change).await;
    // Midnight must not fall between two requests.
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 86_400;
    wait_for("midnight to pass", async || (second() < 86_370).then_some(())).await;
    let agent = server.create_agent(json!({"embed": {"enabled": true}})).await;
    let (first, _) = server.create_conversation(&agent).await;
    server.create_conversation(&agent).await;
    // An erased conversation still counts.
    server.delete(&format!("/v1/conversation/{first}")).await.expect_status(200);
    server.delete(&format!("/v1/ext/conversation/{first}")).await.expect_status(204);
    let expected =
        limit_error("workspace_conversations", "a workspace may create 2 conversations per day");
    for (path, body) in [
        ("/v1/ext/conversation", json!({"agent_id": agent})),
        ("/v1/auth/conversation", json!({"agentId": agent})),
        (&format!("/embed/{agent}") as &str, json!({})),
    ] {
        let refused = server.post(path, body).await;
        let wait: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=86_400).contains(&wait), "{wait}");
        refused.assert_is(429, expected.clone());
    }
    // Makes the count that of the previous day.
    folder.execute_sql("UPDATE workspace SET made_on = made_on - 1 WHERE made = 2".into()).await;
    server.create_conversation(&agent).await;
    server.key = create_other_workspace_key(&folder).await;
    let theirs = server.create_agent(json!({})).await;
    server.create_conversation(&theirs).await;
}

#[tokio::test]
async fn a_workspace_stores_no_more_bytes_than_it_may() {
    let folder = TempFolder::new();
    let mut server =
        TestServer::start_with(&folder.0, with_limits(|limits| limits.workspace_bytes = 20_000))
            .await;
    let long = "x".repeat(20_001);
    let expected =
        limit_error("workspace_bytes", "a workspace may store 20000 bytes, and stores 0");
    let request = json!({"url": "http://127.0.0.1:1/"});
    let image = format!("data:image/png;base64,iVBORw0KGgoAAAAN{}", "A".repeat(32_000));
    for (path, body) in [
        ("/v1/ext/agent", agent_body(json!({"agent_system_prompt": long}))),
        ("/v1/ext/template", json!({"template_name": "t", "template_system_prompt": long})),
        (
            "/v1/ext/tool",
            json!({
                "type": "tool.api",
                "schema": {"name": "t", "description": long},
                "request_config": request,
            }),
        ),
        ("/v1/ext/guardrail", json!({"name": "n", "prompt": long})),
        ("/v1/ext/mcp", json!({"name": "n", "description": long, "request_config": request})),
        (
            "/v2/custom-avatar",
            json!({"avatar_name": "Z", "gender": "female", "input_image": image}),
        ),
    ] {
        let refused = server.post(path, body).await;
        assert_eq!((refused.status, refused.json()), (429, expected.clone()), "{path}");
    }
    let head: [(&str, Option<&str>, &[u8]); 2] =
        [("name", None, b"K"), ("description", None, b"d")];
    let form = |text: &'static [u8]| [head.to_vec(), vec![("text", None, text)]].concat();
    const TEXT: &[u8] = &[b'x'; 20_001];
    upload_to(&server, "/v1/ext/kb", &form(TEXT)).await.assert_is(429, expected);
    // Two documents of half the limit. After them, even the smallest document is too large.
    let base = upload_to(&server, "/v1/ext/kb", &form(&TEXT[..10_000])).await.expect_status(200);
    let path = format!("/v1/ext/kb/{}", base["id"].as_str().unwrap());
    let add = format!("{path}/doc");
    upload_to(&server, &add, &form(&TEXT[..10_000])).await.expect_status(200);
    let expected =
        limit_error("workspace_bytes", "a workspace may store 20000 bytes, and stores 20000");
    upload_to(&server, &add, &form(&TEXT[..1])).await.assert_is(429, expected);
    let whole = server.get(&path).await.expect_status(200);
    assert_eq!(whole["documents"].as_array().unwrap().len(), 2, "rejected data is not stored");
    let document = format!("/v1/ext/kb/doc/{}", whole["documents"][0]["id"].as_str().unwrap());
    server.delete(&document).await.expect_status(200);
    let id = server.create_agent(json!({})).await;
    // An existing record may not grow beyond the limit either, but it may shrink.
    let path = format!("/v1/ext/agent/{id}");
    let patch = |length: usize| json!({"agent_system_prompt": "x".repeat(length)});
    let refused = server.send_json("PATCH", &path, patch(12_000)).await;
    assert_eq!(
        (refused.status, &refused.json()["details"][0]["field"]),
        (429, &json!("workspace_bytes"))
    );
    assert_eq!(server.get(&path).await.expect_status(200)["agent_system_prompt"], "Be kind.");
    server.send_json("PATCH", &path, patch(2000)).await.expect_status(200);
    server.send_json("PATCH", &path, patch(10)).await.expect_status(200);
    server.key = create_other_workspace_key(&folder).await;
    upload_to(&server, "/v1/ext/kb", &form(&TEXT[..20_000])).await.expect_status(200);
}

/// Offers a connection for a conversation.
async fn send_offer(server: &TestServer, (id, token): &(String, String)) -> Reply {
    server.send(server.request("POST", &format!("/rtc/{id}")).bearer_auth(token).body("v=0")).await
}

fn assert_workspace_full(reply: &Reply) {
    let reason = "the workspace is full: its call limit is reached";
    assert_eq!(
        (reply.status, reply.json()),
        (503, json!({"error": "No capacity", "reason": reason}))
    );
    assert_eq!(reply.header("retry-after"), "2");
}

#[tokio::test]
async fn a_workspace_holds_no_more_calls_than_it_may() {
    let folder = TempFolder::new();
    let mut server =
        TestServer::start_with(&folder.0, with_limits(|limits| limits.workspace_calls = 1)).await;
    let agent = server.create_agent(json!({})).await;
    // Conversations may be created ahead of their calls.
    let [first, second, third] = [
        server.create_conversation(&agent).await,
        server.create_conversation(&agent).await,
        server.create_conversation(&agent).await,
    ];
    // An offer that the engine rejects takes no slot.
    server.engine.offer_errors.lock().unwrap().push_back(OfferError::BadSdp("x".into()));
    assert_eq!(send_offer(&server, &first).await.status, 400);
    assert_eq!(send_offer(&server, &second).await.status, 201);
    assert_workspace_full(&send_offer(&server, &third).await);
    assert_eq!(send_offer(&server, &second).await.status, 201, "the same call once more");
    server.engine.record_event(&second.0, 0, 0.0, joined_event());
    server.wait_for_status(&second.0, "IN_PROGRESS").await;
    assert_workspace_full(&send_offer(&server, &third).await);
    assert_eq!(send_offer(&server, &second).await.status, 201, "a running call may be taken over");
    // Another workspace has a limit of its own.
    server.key = create_other_workspace_key(&folder).await;
    let theirs = server.create_agent(json!({})).await;
    let theirs = server.create_conversation(&theirs).await;
    assert_eq!(send_offer(&server, &theirs).await.status, 201);
    server.key = TEST_API_KEY.into();
    server.engine.record_events(
        &second.0,
        1,
        [(1.0, Event::CallEnded), (1.0, Event::Ended { reason: EndReason::UserLeft })],
    );
    server.wait_for_status(&second.0, "ENDED").await;
    assert_eq!(send_offer(&server, &third).await.status, 201);
}

#[tokio::test]
async fn of_many_offers_at_once_no_more_pass_than_a_workspace_may_hold() {
    let folder = TempFolder::new();
    let server =
        TestServer::start_with(&folder.0, with_limits(|limits| limits.workspace_calls = 3)).await;
    let agent = server.create_agent(json!({})).await;
    let mut conversations = Vec::new();
    for _ in 0..20 {
        conversations.push(server.create_conversation(&agent).await);
    }
    let answers =
        join_all(conversations.iter().map(|conversation| send_offer(&server, conversation))).await;
    let taken = answers.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(taken, 3);
    answers.iter().filter(|reply| reply.status != 201).for_each(assert_workspace_full);
}

#[tokio::test]
async fn an_offer_that_did_not_connect_in_time_holds_no_place() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.limits.workspace_calls = 1;
        config.timeouts.offer = Duration::ZERO;
    })
    .await;
    let agent = server.create_agent(json!({})).await;
    for _ in 0..3 {
        let conversation = server.create_conversation(&agent).await;
        assert_eq!(send_offer(&server, &conversation).await.status, 201);
    }
}
