//! The causes that end conversations outside the engine, and what survives a restart.

use std::time::Duration;

use conversation::event::{Event, UtteranceId};
use serde_json::json;

use crate::harness::{
    TempFolder, TestServer, WebhookReceiver, advance_clock, joined_event, wait_for,
};

#[tokio::test]
async fn a_conversation_that_nobody_joins_ends_and_is_told() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start_with(&folder.0, |config| {
        config.timeouts.join = Duration::from_millis(300)
    })
    .await;
    let agent = server
        .create_agent(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]}))
        .await;
    let (id, _) = server.create_conversation(&agent).await;
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "no_join");
    let received = hooks.wait_for_first(1).await;
    assert_eq!((received[0].name(), received[0].sequence()), ("call_ended".into(), 1));
}

#[tokio::test]
async fn a_damaged_conversation_does_not_keep_the_others_from_ending() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.timeouts.join = Duration::from_secs(3600)
    })
    .await;
    let agent = server.create_agent(json!({})).await;
    let (damaged, _) = server.create_conversation(&agent).await;
    let (whole, _) = server.create_conversation(&agent).await;
    folder
        .execute_sql(format!(
            "UPDATE conversation SET agent_document = '{{' WHERE id = '{damaged}'"
        ))
        .await;
    // Both conversations are now older than the join timeout; the damaged one is the older of the
    // two. The sweep runs every 30 s.
    folder.execute_sql("UPDATE conversation SET created_at = created_at - 7200000000".into()).await;
    advance_clock(Duration::from_secs(31)).await;
    let record = server.wait_for_status(&whole, "ENDED").await;
    assert_eq!(record["end_reason"], "no_join");
}

#[tokio::test]
async fn an_offer_that_came_in_time_may_still_connect() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| {
        config.timeouts.join = Duration::from_secs(3600);
        config.timeouts.offer = Duration::from_secs(3600);
    })
    .await;
    let agent = server.create_agent(json!({})).await;
    let (connecting, token) = server.create_conversation(&agent).await;
    let offer =
        server.request("POST", &format!("/rtc/{connecting}")).bearer_auth(token).body("v=0");
    assert_eq!(server.send(offer).await.status, 201);
    let (waiting, _) = server.create_conversation(&agent).await;
    // Both conversations are now older than the join timeout. The sweep runs every 30 s.
    folder.execute_sql("UPDATE conversation SET created_at = created_at - 7200000000".into()).await;
    advance_clock(Duration::from_secs(31)).await;
    server.wait_for_status(&waiting, "ENDED").await;
    let record = server.get(&format!("/v1/ext/conversation/{connecting}")).await.expect_status(200);
    assert_eq!(record["status"], "STARTED", "the newer one ended, the older one still connects");
}

#[tokio::test]
async fn after_a_crash_the_call_is_over_with_what_was_heard() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    let agent = server
        .create_agent(json!({
            "callback_url": hooks.url,
            "callback_events": ["call_ended", "agent.stopped_speaking"],
        }))
        .await;
    let (running, _) = server.create_conversation(&agent).await;
    let (waiting, token) = server.create_conversation(&agent).await;
    let utterance = UtteranceId(0);
    server.engine.record_events(
        &running,
        0,
        [
            (0.0, joined_event()),
            (1.0, Event::AgentStartedSpeaking { text: "One two three four.".into(), utterance }),
            (2.0, Event::AgentSpeechHeard { utterance, text: "One two".into() }),
        ],
    );
    let events = format!("/v1/ext/conversation/{running}/events");
    wait_for("the events to be stored", async || {
        (server.get(&events).await.json().as_array().unwrap().len() == 3).then_some(())
    })
    .await;
    server.kill().await;

    let server = TestServer::start(&folder).await;
    let record = server.get(&format!("/v1/ext/conversation/{running}")).await.expect_status(200);
    assert_eq!(
        (&record["status"], &record["end_reason"]),
        (&json!("ENDED"), &json!("error")),
        "ended before the first request"
    );
    assert_eq!(record["transcript"][0]["content"], "One two");
    assert_eq!(record["chat_history"]["messages"][0]["interrupted"], true);
    assert_eq!(record["ended_at"], "2023-11-14T22:13:22.000Z");
    let received = hooks.wait_for_first(2).await;
    assert_eq!([received[0].name(), received[1].name()], ["agent.stopped_speaking", "call_ended"]);
    assert_eq!([received[0].sequence(), received[1].sequence()], [1, 2]);
    let record = server.get(&format!("/v1/ext/conversation/{waiting}")).await.expect_status(200);
    assert_eq!(record["status"], "STARTED");
    let offer = server.request("POST", &format!("/rtc/{waiting}")).bearer_auth(token).body("v=0");
    assert_eq!(
        server.send(offer).await.status,
        201,
        "a conversation without a user stays joinable"
    );
}

#[tokio::test]
async fn events_emitted_before_the_stop_are_stored() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, crate::conversations::sample_call());
    server.stop().await;
    let server = TestServer::start(&folder).await;
    let record = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
    assert_eq!((&record["status"], &record["end_reason"]), (&json!("ENDED"), &json!("user_left")));
}
