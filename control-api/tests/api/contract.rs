//! The parts of the contract that no single request shows: the bodies of all events, the policy for
//! outgoing requests, the retention.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use control_api::Config;
use conversation::event::{EndReason, Event, TriggeredGuardrail, UtteranceId};
use serde_json::json;

use crate::conversations::sample_call;
use crate::harness::{
    CALL_STARTED_AT, TempFolder, TestServer, WebhookReceiver, advance_clock, joined_event, wait_for,
};

#[tokio::test]
async fn every_event_is_told_by_its_name_and_fields() {
    let utterance = UtteranceId(0);
    let text = || "Hi.".to_owned();
    let cases = [
        (Event::UserStartedSpeaking, "user.started_speaking", json!({})),
        (Event::UserStoppedSpeaking, "user.stopped_speaking", json!({})),
        (
            Event::UtteranceCommitted { text: text(), speaker: None },
            "utterance_committed",
            json!({"text": "Hi."}),
        ),
        (
            Event::AgentStartedSpeaking { text: text(), utterance },
            "agent.started_speaking",
            json!({"text": "Hi."}),
        ),
        (Event::AgentInterrupted, "agent.interrupted", json!({})),
        (
            Event::AgentStoppedSpeaking { text: text(), utterance },
            "agent.stopped_speaking",
            json!({"text": "Hi."}),
        ),
        (
            Event::ToolCall {
                tool_name: "t".into(),
                parameters: json!({}),
                result: json!({"b": 2}),
                failed: false,
            },
            "tool_call",
            json!({"tool_name": "t", "parameters": {}, "result": {"b": 2}, "status": "completed"}),
        ),
        (
            Event::ToolCall {
                tool_name: "t".into(),
                parameters: json!({"a": 1}),
                result: json!("timeout"),
                failed: true,
            },
            "tool_call",
            json!({
                "tool_name": "t",
                "parameters": {"a": 1},
                "result": {"error": "timeout"},
                "status": "failed",
            }),
        ),
        (
            Event::MaxCallDurationWarning { call_duration: 50.5, max_call_duration: 60.0 },
            "max_call_duration_warning",
            json!({"call_duration": 50.5, "max_call_duration": 60.0}),
        ),
        (
            Event::MaxCallDurationTimeout { call_duration: 60.0, max_call_duration: 60.0 },
            "max_call_duration_timeout",
            json!({"call_duration": 60.0, "max_call_duration": 60.0}),
        ),
        (Event::ParticipantLeft { id: "u".into() }, "participant_left", json!({"id": "u"})),
        (Event::CallEnded, "call_ended", json!({})),
    ];
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    let names: BTreeSet<&str> = cases.iter().map(|(_, name, _)| *name).collect();
    let agent =
        server.create_agent(json!({"callback_url": hooks.url, "callback_events": names})).await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_event(&id, 0, 0.0, joined_event());
    for (seq, (event, ..)) in (1_u64..).zip(&cases) {
        server.engine.record_event(&id, seq, seq as f64 / 2.0, event.clone());
    }
    let last = cases.len() as u64 + 1;
    let ended = Event::Ended { reason: EndReason::MaxCallDuration };
    server.engine.record_event(&id, last, last as f64 / 2.0, ended);
    let received = hooks.wait_for_first(cases.len()).await;
    for (seq, (received, (_, name, payload))) in (1_u64..).zip(received.iter().zip(&cases)) {
        let timestamp = CALL_STARTED_AT as f64 / 1e6 + seq as f64 / 2.0;
        let event = json!({"name": name, "payload": payload});
        let body = json!({
            "timestamp": timestamp,
            "conversation_id": id,
            "type": "pipeline",
            "event": event,
        });
        assert_eq!(received.body, body.to_string(), "byte for byte");
        assert_eq!(received.sequence(), seq);
    }
}

#[test]
fn private_targets_are_allowed_by_default_only_where_nobody_else_reaches_the_server() {
    let with = |listen: [u8; 4], public_url: Option<&str>, allow_private_targets: Option<bool>| {
        let listen = SocketAddr::from((IpAddr::from(listen), 1));
        let public_url = public_url.map(str::to_owned);
        Config { listen, public_url, allow_private_targets, ..Config::default() }
            .allows_private_targets()
    };
    let public = Some("https://talk.example");
    assert!(with([127, 0, 0, 1], None, None));
    assert!(!with([127, 0, 0, 1], public, None));
    assert!(!with([0, 0, 0, 0], None, None));
    assert!(!with([127, 0, 0, 1], None, Some(false)));
    assert!(with([0, 0, 0, 0], public, Some(true)));
}

#[tokio::test]
async fn a_webhook_to_a_refused_address_is_a_dead_letter_at_once_and_no_error_before() {
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
    let log = wait_for("the dead letter", async || {
        let log =
            server.get(&format!("/v1/ext/conversation/{id}/deliveries")).await.expect_status(200);
        (log[0]["state"] == "dead").then_some(log)
    })
    .await;
    assert_eq!(log[0]["reason"], "refused address");
    assert!(log[0]["tries"].as_array().unwrap().len() <= 1, "no second attempt: {log}");
    assert!(hooks.received().is_empty());
}

#[tokio::test]
async fn a_guardrail_s_receiver_at_a_refused_address_is_not_asked() {
    let folder = TempFolder::new();
    let (hooks, open) = (WebhookReceiver::start().await, TempFolder::new());
    let utterance = UtteranceId(1);
    let events = || {
        let fired = Event::GuardrailTriggered(Box::new(TriggeredGuardrail {
            key: "k".into(),
            category: String::new(),
            content: "x".into(),
            response_message: Some("No.".into()),
            verdict: None,
            callback_url: Some(hooks.url.clone()),
        }));
        let speaks = Event::AgentStartedSpeaking { text: "No.".into(), utterance };
        let ended = Event::Ended { reason: EndReason::UserLeft };
        [(0.0, joined_event()), (1.0, fired), (1.5, speaks), (2.0, Event::CallEnded), (2.0, ended)]
    };
    let server =
        TestServer::start_with(&folder.0, |config| config.allow_private_targets = Some(false))
            .await;
    let agent = server.create_agent(json!({})).await;
    let (refused, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&refused, 0, events());
    server.wait_for_status(&refused, "ENDED").await;
    // A stop waits for outgoing requests in progress.
    server.stop().await;
    assert!(hooks.received().is_empty());

    let server = TestServer::start(&open).await;
    let agent = server.create_agent(json!({})).await;
    let (allowed, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&allowed, 0, events());
    let received = hooks.wait_for_first(1).await;
    assert!(received[0].body.contains(&allowed), "{received:?}");
}

#[tokio::test]
async fn what_ended_longer_ago_than_the_retention_erases_itself() {
    let folder = TempFolder::new();
    // The conversations of these tests start in 2023.
    let server = TestServer::start_with(&folder.0, |config| {
        config.retention_days = 1;
        config.timeouts.join = std::time::Duration::from_secs(3600);
    })
    .await;
    let traces = folder.0.join("data/traces");
    std::fs::create_dir_all(&traces).unwrap();
    let agent = server.create_agent(json!({})).await;
    let (old, _) = server.create_conversation(&agent).await;
    let (young, _) = server.create_conversation(&agent).await;
    let trace = traces.join(format!("{old}.jsonl"));
    std::fs::write(&trace, "{}").unwrap();
    server.engine.record_events(&old, 0, sample_call());
    wait_for("the old one to end", async || {
        let reply = server.get(&format!("/v1/ext/conversation/{old}")).await;
        (reply.status == 404 || reply.json()["status"] == "ENDED").then_some(())
    })
    .await;
    // From now on the young conversation is older than the join timeout. The sweep runs every 30 s.
    folder
        .execute_sql(format!(
            "UPDATE conversation SET created_at = created_at - 7200000000 WHERE id = '{young}'"
        ))
        .await;
    advance_clock(std::time::Duration::from_secs(31)).await;
    wait_for("the old one to be erased", async || {
        let reply = server.get(&format!("/v1/ext/conversation/{old}")).await;
        (reply.status == 404 && !trace.exists()).then_some(())
    })
    .await;
    server.get(&format!("/v1/ext/conversation/{old}/events")).await.expect_status(404);
    let record = server.wait_for_status(&young, "ENDED").await;
    assert_eq!(record["end_reason"], "no_join", "a conversation that ended just now is kept");
}
