//! The parts of the contract that no single request shows: the bodies of all events, the policy for
//! outgoing requests, the retention.

use std::net::{IpAddr, SocketAddr};

use control_api::Config;
use conversation::event::{EndReason, Event, TriggeredGuardrail, UtteranceId};
use serde_json::json;

use crate::conversations::talk;
use crate::kit::{BEGAN, Folder, Hooks, Server, joined, leap, until};

#[tokio::test]
async fn every_event_is_told_by_its_name_and_fields() {
    let utterance = UtteranceId(0);
    let text = || "Hi.".to_owned();
    let told = [
        (Event::UserStartedSpeaking, "user.started_speaking", json!({})),
        (Event::UserStoppedSpeaking, "user.stopped_speaking", json!({})),
        (Event::UtteranceCommitted { text: text() }, "utterance_committed", json!({"text": "Hi."})),
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
            Event::ToolCall { tool_name: "t".into(), parameters: json!({"a": 1}), result: json!({"b": 2}) },
            "tool_call",
            json!({"tool_name": "t", "parameters": {"a": 1}, "result": {"b": 2}}),
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
    let folder = Folder::new();
    let hooks = Hooks::start().await;
    let server = Server::start(&folder).await;
    let names: Vec<&str> = told.iter().map(|(_, name, _)| *name).collect();
    let agent = server.agent(json!({"callback_url": hooks.url, "callback_events": names})).await;
    let (id, _) = server.conversation(&agent).await;
    server.stage.tell(&id, 0, 0.0, joined());
    for (seq, (event, ..)) in (1_u64..).zip(&told) {
        server.stage.tell(&id, seq, seq as f64 / 2.0, event.clone());
    }
    server.stage.tell(&id, 12, 6.0, Event::Ended { reason: EndReason::MaxCallDuration });
    let came = hooks.first(told.len()).await;
    for (seq, (came, (_, name, payload))) in (1_u64..).zip(came.iter().zip(&told)) {
        let timestamp = BEGAN as f64 / 1e6 + seq as f64 / 2.0;
        let event = json!({"name": name, "payload": payload});
        let body = json!({"timestamp": timestamp, "conversation_id": id, "type": "pipeline", "event": event});
        assert_eq!(came.body, body.to_string(), "byte for byte");
        assert_eq!(came.sequence(), seq);
    }
}

#[test]
fn private_targets_are_allowed_by_default_only_where_nobody_else_reaches_the_server() {
    let with = |listen: [u8; 4], public_url: Option<&str>, allow_private_targets: Option<bool>| {
        let listen = SocketAddr::from((IpAddr::from(listen), 1));
        let public_url = public_url.map(str::to_owned);
        Config { listen, public_url, allow_private_targets, ..Config::default() }.allows_private_targets()
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
    let folder = Folder::new();
    let hooks = Hooks::start().await;
    let server = Server::start_with(&folder.0, |config| config.allow_private_targets = Some(false)).await;
    let agent = server.agent(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]})).await;
    let (id, _) = server.conversation(&agent).await;
    server.stage.tell_all(&id, 0, talk());
    let log = until("the dead letter", async || {
        let log = server.get(&format!("/v1/ext/conversation/{id}/deliveries")).await.expect(200);
        (log[0]["state"] == "dead").then_some(log)
    })
    .await;
    assert_eq!(log[0]["reason"], "refused address");
    assert!(log[0]["tries"].as_array().unwrap().len() <= 1, "no second try: {log}");
    assert!(hooks.came().is_empty());
}

#[tokio::test]
async fn a_guardrail_s_receiver_at_a_refused_address_is_not_asked() {
    let folder = Folder::new();
    let (hooks, open) = (Hooks::start().await, Folder::new());
    let utterance = UtteranceId(1);
    let facts = || {
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
        [(0.0, joined()), (1.0, fired), (1.5, speaks), (2.0, Event::CallEnded), (2.0, ended)]
    };
    let server = Server::start_with(&folder.0, |config| config.allow_private_targets = Some(false)).await;
    let agent = server.agent(json!({})).await;
    let (refused, _) = server.conversation(&agent).await;
    server.stage.tell_all(&refused, 0, facts());
    server.status(&refused, "ENDED").await;
    // A stop waits for outgoing requests in progress.
    server.stop().await;
    assert!(hooks.came().is_empty());

    let server = Server::start(&open).await;
    let agent = server.agent(json!({})).await;
    let (allowed, _) = server.conversation(&agent).await;
    server.stage.tell_all(&allowed, 0, facts());
    let came = hooks.first(1).await;
    assert!(came[0].body.contains(&allowed), "{came:?}");
}

#[tokio::test]
async fn what_ended_longer_ago_than_the_retention_erases_itself() {
    let folder = Folder::new();
    // The conversations of these tests start in 2023.
    let server = Server::start_with(&folder.0, |config| {
        config.retention_days = 1;
        config.timeouts.join = std::time::Duration::from_secs(3600);
    })
    .await;
    let traces = folder.0.join("data/traces");
    std::fs::create_dir_all(&traces).unwrap();
    let agent = server.agent(json!({})).await;
    let (old, _) = server.conversation(&agent).await;
    let (young, _) = server.conversation(&agent).await;
    let trace = traces.join(format!("{old}.jsonl"));
    std::fs::write(&trace, "{}").unwrap();
    server.stage.tell_all(&old, 0, talk());
    until("the old one to be over", async || {
        let reply = server.get(&format!("/v1/ext/conversation/{old}")).await;
        (reply.status == 404 || reply.json()["status"] == "ENDED").then_some(())
    })
    .await;
    // From now on the young conversation is older than the join timeout. The sweep runs every 30 s.
    folder
        .change(format!("UPDATE conversation SET created_at = created_at - 7200000000 WHERE id = '{young}'"))
        .await;
    leap(std::time::Duration::from_secs(31)).await;
    until("the old one to be gone", async || {
        let reply = server.get(&format!("/v1/ext/conversation/{old}")).await;
        (reply.status == 404 && !trace.exists()).then_some(())
    })
    .await;
    server.get(&format!("/v1/ext/conversation/{old}/events")).await.expect(404);
    let record = server.status(&young, "ENDED").await;
    assert_eq!(record["end_reason"], "no_join", "what ended just now stays");
}
