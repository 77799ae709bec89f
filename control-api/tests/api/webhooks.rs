//! Webhooks: content, signature, order, retries, and when a delivery is given up.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conversation::event::Event;
use serde_json::{Value, json};

use crate::conversations::sample_call;
use crate::harness::{
    CALL_STARTED_AT, ReceivedWebhook, TempFolder, TestServer, WebhookReceiver, agent_body,
    joined_event, wait_for,
};

const ALL_EVENTS: [&str; 11] = [
    "agent.interrupted",
    "agent.started_speaking",
    "agent.stopped_speaking",
    "call_ended",
    "max_call_duration_timeout",
    "max_call_duration_warning",
    "participant_left",
    "tool_call",
    "utterance_committed",
    "user.started_speaking",
    "user.stopped_speaking",
];

pub(crate) fn check_signature(webhook: &ReceivedWebhook, secret: &str) {
    let header = |name: &str| webhook.headers[name].to_str().unwrap();
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let signed =
        format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), webhook.body);
    let tag = STANDARD.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes(), &tag)
        .expect("the signature is valid");
}

/// Retry delays of milliseconds.
fn fast_retries(config: &mut control_api::Config) {
    config.webhooks.schedule = [0, 20, 40].map(Duration::from_millis).to_vec();
}

#[tokio::test]
async fn the_webhooks_of_a_call_are_ordered_signed_and_match_the_interface() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    let created = server
        .post(
            "/v1/ext/agent",
            agent_body(json!({"callback_url": hooks.url, "callback_events": ALL_EVENTS})),
        )
        .await
        .expect_status(200);
    let (id, _) = server.create_conversation(created["id"].as_str().unwrap()).await;
    server.engine.record_events(&id, 0, sample_call());
    let received = hooks.wait_for_first(7).await;
    let names: Vec<String> = received.iter().map(ReceivedWebhook::name).collect();
    assert_eq!(
        names,
        [
            "user.started_speaking",
            "user.stopped_speaking",
            "utterance_committed",
            "agent.started_speaking",
            "agent.stopped_speaking",
            "participant_left",
            "call_ended"
        ]
    );
    for (i, one) in received.iter().enumerate() {
        assert_eq!(one.sequence(), i as u64 + 1);
        assert_eq!(one.headers["content-type"], "application/json");
        check_signature(one, created["webhook_secret"].as_str().unwrap());
    }
    let body: Value = serde_json::from_str(&received[2].body).unwrap();
    let timestamp = CALL_STARTED_AT as f64 / 1e6 + 2.5;
    assert_eq!(
        body,
        json!({
            "timestamp": timestamp,
            "conversation_id": id,
            "type": "pipeline",
            "event": {"name": "utterance_committed", "payload": {"text": "Hello?"}},
        })
    );
}

#[tokio::test]
async fn only_listed_events_are_sent() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    let agent = server
        .create_agent(json!({
            "callback_url": hooks.url,
            "callback_events": ["call_ended", "action_found", "utterance_committed"],
        }))
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    let received = hooks.wait_for_first(2).await;
    assert_eq!([received[0].name(), received[1].name()], ["utterance_committed", "call_ended"]);
    assert_eq!([received[0].sequence(), received[1].sequence()], [1, 2]);
}

#[tokio::test]
async fn a_refused_event_is_tried_again_before_the_next_one() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([500, 302]);
    let server = TestServer::start_with(&folder.0, fast_retries).await;
    let agent = server
        .create_agent(json!({
            "callback_url": hooks.url,
            "callback_events": ["utterance_committed", "call_ended"],
        }))
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    let received = hooks.wait_for_first(4).await;
    let names: Vec<String> = received.iter().map(ReceivedWebhook::name).collect();
    assert_eq!(
        names,
        ["utterance_committed", "utterance_committed", "utterance_committed", "call_ended"]
    );
    assert!(
        received[..3]
            .iter()
            .all(|one| one.id() == received[0].id() && one.body == received[0].body),
        "the same event, byte for byte"
    );
}

#[tokio::test]
async fn a_failing_event_holds_the_next_one_back_for_so_long_only() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_by_rule(|one, _| if one.name() == "utterance_committed" { 500 } else { 204 });
    let server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.schedule = vec![Duration::ZERO, Duration::from_secs(3600)];
        config.webhooks.hold = Duration::from_millis(50);
    })
    .await;
    let agent = server
        .create_agent(json!({
            "callback_url": hooks.url,
            "callback_events": ["utterance_committed", "call_ended"],
        }))
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    // A first attempt that takes longer than `hold` does not block the next event either, so the
    // two may arrive in either order.
    let mut names: Vec<String> =
        hooks.wait_for_first(2).await.iter().map(ReceivedWebhook::name).collect();
    names.sort_unstable();
    assert_eq!(names, ["call_ended", "utterance_committed"]);
}

#[tokio::test]
async fn after_the_last_try_an_event_is_a_dead_letter_and_a_speaking_one_is_dropped() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([500; 6]);
    let server = TestServer::start_with(&folder.0, fast_retries).await;
    let agent = server
        .create_agent(json!({
            "callback_url": hooks.url,
            "callback_events": ["user.started_speaking", "utterance_committed", "call_ended"],
        }))
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    let received = hooks.wait_for_first(7).await;
    assert_eq!(received[6].name(), "call_ended");
    wait_for("the outcome", async || {
        let counts = [
            server.webhook_count("dead").await,
            server.webhook_count("dropped").await,
            server.webhook_count("done").await,
        ];
        (counts == [1, 1, 1]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_left_alone_until_the_agent_changes() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([410]);
    let server = TestServer::start(&folder).await;
    let body = json!({
        "callback_url": hooks.url,
        "callback_events": ["utterance_committed", "call_ended"],
    });
    let agent_id = server.create_agent(body.clone()).await;
    let (id, _) = server.create_conversation(&agent_id).await;
    let committed = || (1.0, Event::UtteranceCommitted { text: "x".into(), speaker: None });
    server.engine.record_events(&id, 0, [(0.0, joined_event()), committed()]);
    wait_for("the delivery to be abandoned", async || {
        (server.webhook_count("dead").await == 1).then_some(())
    })
    .await;
    server.engine.record_events(&id, 2, [committed()]);
    let events = format!("/v1/ext/conversation/{id}/events");
    wait_for("the event to be stored", async || {
        (server.get(&events).await.json().as_array().unwrap().len() == 3).then_some(())
    })
    .await;
    assert_eq!((server.webhook_count("pending").await, hooks.received().len()), (0, 1));

    server
        .send_json("PUT", &format!("/v1/ext/agent/{agent_id}"), agent_body(body))
        .await
        .expect_status(200);
    server.engine.record_events(&id, 3, [committed()]);
    assert_eq!(hooks.wait_for_first(2).await[1].name(), "utterance_committed");
}

#[tokio::test]
async fn what_was_not_delivered_is_delivered_after_a_restart() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([500]);
    let server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.schedule =
            vec![Duration::ZERO, Duration::from_millis(700), Duration::from_millis(700)];
    })
    .await;
    let agent = server
        .create_agent(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]}))
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    let first = hooks.wait_for_first(1).await;
    server.kill().await;
    let server = TestServer::start(&folder).await;
    let received = hooks.wait_for_first(2).await;
    assert_eq!((received[1].id(), &received[1].body), (first[0].id(), &first[0].body));
    wait_for("the delivery to be stored", async || {
        (server.webhook_count("done").await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_private_target_is_refused_unless_the_operator_allows_it() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server =
        TestServer::start_with(&folder.0, |config| config.allow_private_targets = Some(false))
            .await;
    let agent = server
        .create_agent(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]}))
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    wait_for("the dead letter", async || (server.webhook_count("dead").await == 1).then_some(()))
        .await;
    assert!(hooks.received().is_empty());
}

#[tokio::test]
async fn a_dead_letter_is_listed_with_its_tries_and_delivered_again() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([500, 500, 500]);
    let server = TestServer::start_with(&folder.0, fast_retries).await;
    let agent = server
        .create_agent(
            json!({"callback_url": hooks.url, "callback_events": ["utterance_committed"]}),
        )
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    let dead = wait_for("the dead letter", async || {
        let list = server.get("/v1/ext/deadletters").await;
        (list.header("x-total-count") == "1").then(|| list.json()[0].clone())
    })
    .await;
    let (statuses, numbers): (Vec<_>, Vec<_>) = dead["tries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| (t["status"].as_i64().unwrap(), t["attempt"].as_i64().unwrap()))
        .unzip();
    assert_eq!((statuses, numbers), (vec![500; 3], vec![1, 2, 3]));
    assert_eq!(
        (&dead["state"], &dead["reason"]),
        (&json!("dead"), &json!("responded with status 500"))
    );
    assert_eq!(
        (&dead["event"], &dead["conversation_id"]),
        (&json!("utterance_committed"), &json!(id))
    );

    // The receiver's address was wrong. After its correction, the dead letter is redelivered to the
    // new address.
    let right = WebhookReceiver::start().await;
    server
        .send_json("PATCH", &format!("/v1/ext/agent/{agent}"), json!({"callback_url": right.url}))
        .await
        .expect_status(200);
    let again = format!("/v1/ext/deadletter/{}/redeliver", dead["id"].as_str().unwrap());
    server
        .post(&again, json!({}))
        .await
        .assert_is(200, json!({"id": dead["id"], "message": "Webhook is delivered again"}));
    let mut received = hooks.wait_for_first(3).await;
    received.extend(right.wait_for_first(1).await);
    assert!(received.iter().all(|one| one.id() == received[0].id()
        && one.body == received[0].body
        && one.sequence() == 1));
    let path = format!("/v1/ext/conversation/{id}/deliveries");
    let log = wait_for("the delivery", async || {
        let log = server.get(&path).await.expect_status(200);
        (log[0]["state"] == "done").then_some(log)
    })
    .await;
    assert_eq!(log[0]["tries"].as_array().unwrap().len(), 4, "{log}");
    assert_eq!(log[0]["tries"][3]["status"], 204);
    let missing = json!({"message": "Dead letter not found"});
    server.post(&again, json!({})).await.assert_is(404, missing.clone());
    server.post("/v1/ext/deadletter/nothing/redeliver", json!({})).await.assert_is(404, missing);
    server
        .get("/v1/ext/conversation/nothing/deliveries")
        .await
        .assert_is(404, json!({"error": "Conversation not found"}));
    assert_eq!(server.get("/v1/ext/deadletters").await.expect_status(200), json!([]));
}

#[tokio::test]
async fn a_guardrail_that_fires_is_told_once_with_the_speech_that_answers_it() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([500]);
    let server = TestServer::start_with(&folder.0, fast_retries).await;
    let guardrail = json!({
        "name": "No advice",
        "prompt": "The user asks for advice",
        "category": "law",
        "response_message": "I must not.",
        "callback_url": hooks.url,
    });
    let rule = server.post("/v1/ext/guardrail", guardrail).await.expect_status(201);
    let silent = server
        .post("/v1/ext/guardrail", json!({"name": "Hate", "prompt": "Hate"}))
        .await
        .expect_status(201);
    let created = server
        .post("/v1/ext/agent", agent_body(json!({"guardrail": [silent["id"], rule["id"]]})))
        .await
        .expect_status(200);
    let (id, token) = server.create_conversation(created["id"].as_str().unwrap()).await;
    let offer = server.request("POST", &format!("/rtc/{id}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    let (rule, tools) = {
        let offers = server.engine.offers.lock().unwrap();
        let call = &offers[0].config;
        assert_eq!(
            call.guardrails.iter().map(|g| g.key.as_str()).collect::<Vec<_>>(),
            ["hate", "no_advice"]
        );
        (call.guardrails[1].clone(), call.tools.clone())
    };
    assert_eq!(
        tools.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["hate", "end_call"],
        "only a guardrail without words is a tool"
    );
    assert_eq!(tools[0].backend, engine_api::ToolBackend::Moderation);
    let utterance = conversation::event::UtteranceId(2);
    let fired = Event::GuardrailTriggered(Box::new(conversation::event::TriggeredGuardrail {
        key: rule.key,
        category: rule.category,
        content: "May I sue?".into(),
        response_message: rule.response_message,
        verdict: None,
        callback_url: rule.callback_url,
    }));
    let speaks = |utterance| Event::AgentStartedSpeaking { text: "I must not.".into(), utterance };
    server.engine.record_events(
        &id,
        0,
        [(0.0, joined_event()), (1.5, fired), (1.6, speaks(utterance)), (3.0, speaks(utterance))],
    );
    let received = hooks.wait_for_first(1).await;
    check_signature(&received[0], created["webhook_secret"].as_str().unwrap());
    assert_eq!(
        received[0].body,
        json!({
            "event": "guardrail_triggered", "guardrail": {"name": "no_advice", "category": "law"},
            "content": "May I sue?",
            "response_message": "I must not.", "verdict": null, "conversation_id": id,
            "speech_id": "speech_2",
            "agent_id": "Test agent", "timestamp": "2023-11-14T22:13:21.500Z",
        })
        .to_string()
    );
    server.engine.record_events(
        &id,
        4,
        [
            (4.0, Event::CallEnded),
            (4.0, Event::Ended { reason: conversation::event::EndReason::UserLeft }),
        ],
    );
    server.wait_for_status(&id, "ENDED").await;
    assert_eq!(hooks.received().len(), 1, "one attempt, though it failed");
    let log = server.get(&format!("/v1/ext/conversation/{id}/deliveries")).await.expect_status(200);
    assert_eq!(log, json!([]));
}
