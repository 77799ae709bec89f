//! Panics in the server's own code. Only the operation concerned fails; nothing is lost or
//! duplicated.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use control_api::CrashPoint;
use conversation::event::{EndReason, Event};
use conversation::input::Command;
use serde_json::{Value, json};

use crate::harness::{
    TempFolder, TestServer, WebhookReceiver, advance_clock, joined_event, wait_for,
};

fn utterance(n: u64) -> (f64, Event) {
    (n as f64, Event::UtteranceCommitted { text: format!("number {n}"), speaker: None })
}

fn call_end_events(seconds: f64) -> [(f64, Event); 2] {
    [(seconds, Event::CallEnded), (seconds, Event::Ended { reason: EndReason::UserLeft })]
}

async fn stored_seqs(server: &TestServer, id: &str) -> Vec<u64> {
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.expect_status(200);
    events.as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn an_event_whose_code_panics_is_stored_as_text_and_others_continue() {
    static FACTS: AtomicU32 = AtomicU32::new(0);
    fn panic_at_third_event(point: CrashPoint) {
        if point == CrashPoint::BeforeEvent {
            assert_ne!(FACTS.fetch_add(1, Ordering::Relaxed), 2, "the test's own panic");
        }
    }
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server =
        TestServer::start_with(&folder.0, |config| config.crash_hook = Some(panic_at_third_event))
            .await;
    let agent_fields = json!({
        "callback_url": hooks.url,
        "callback_events": ["utterance_committed", "call_ended"],
    });
    let created = server.create_agent(agent_fields).await;
    let (bad, _) = server.create_conversation(&created).await;
    let (good, _) = server.create_conversation(&created).await;
    for call in [&bad, &good] {
        server.engine.record_event(call, 0, 0.0, joined_event());
        server.engine.record_events(call, 1, (1..=4).map(utterance));
        server.engine.record_events(call, 5, call_end_events(5.0));
    }
    // The call with the event that panics sends one webhook less.
    let received = hooks.wait_for_first(9).await;
    let of = |call: &str| {
        let of = received.iter().filter(|one| one.body.contains(call));
        let digit_of = |body: &str| {
            body.split("number ").nth(1).map_or('e', |rest| rest.chars().next().unwrap())
        };
        of.map(|one| (one.sequence(), digit_of(&one.body))).collect::<Vec<_>>()
    };
    assert_eq!(of(&good), [(1, '1'), (2, '2'), (3, '3'), (4, '4'), (5, 'e')]);
    assert_eq!(of(&bad), [(1, '1'), (2, '3'), (3, '4'), (4, 'e')]);
    for (call, stored) in [(&bad, vec![0, 1, 3, 4, 5, 6]), (&good, vec![0, 1, 2, 3, 4, 5, 6])] {
        server.wait_for_status(call, "ENDED").await;
        assert_eq!(stored_seqs(&server, call).await, stored);
    }
    let failed_event: (String, i64, String, String) =
        sqlx::query_as("SELECT conversation, seq, json, reason FROM failed_event")
            .fetch_one(&mut folder.connect().await)
            .await
            .unwrap();
    assert_eq!((&failed_event.0, failed_event.1), (&bad, 2));
    assert!(
        failed_event.2.contains("number 2") && failed_event.3.contains("panicked"),
        "{failed_event:?}"
    );
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("visavis_events_failed 1"), "{metrics}");
    assert!(metrics.contains("visavis_events_queued 0"), "{metrics}");
}

#[tokio::test]
async fn an_end_whose_code_panics_ends_the_conversation_all_the_same() {
    static FACTS: AtomicU32 = AtomicU32::new(0);
    fn panic_at_fourth_event(point: CrashPoint) {
        if point == CrashPoint::BeforeEvent {
            assert_ne!(FACTS.fetch_add(1, Ordering::Relaxed), 3, "the test's own panic");
        }
    }
    let folder = TempFolder::new();
    let server =
        TestServer::start_with(&folder.0, |config| config.crash_hook = Some(panic_at_fourth_event))
            .await;
    let created = server.create_agent(json!({})).await;
    let (id, _) = server.create_conversation(&created).await;
    server.engine.record_event(&id, 0, 0.0, joined_event());
    server.engine.record_events(&id, 1, [utterance(1)]);
    server.engine.record_events(&id, 2, call_end_events(2.0));
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "user_left");
    assert_eq!(stored_seqs(&server, &id).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_panic_behind_a_commit_stores_and_tells_once() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    fn panic_once(point: CrashPoint) {
        if point == CrashPoint::AfterCommit {
            assert!(!ARMED.swap(false, Ordering::Relaxed), "the test's own panic");
        }
    }
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start_with(&folder.0, |config| {
        config.crash_hook = Some(panic_once);
        // No lease renewal may write meanwhile: the hook panics at the next write.
        config.timeouts.lease = Duration::from_secs(3600);
    })
    .await;
    let agent_fields = json!({
        "callback_url": hooks.url,
        "callback_events": ["utterance_committed", "call_ended"],
    });
    let id = server.create_running_call(agent_fields).await;
    ARMED.store(true, Ordering::Relaxed);
    server.engine.record_events(&id, 1, [utterance(1), utterance(2)]);
    hooks.wait_for_first(2).await;
    assert!(!ARMED.load(Ordering::Relaxed), "it panicked");
    server.engine.record_events(&id, 3, call_end_events(3.0));
    let received = hooks.wait_for_first(3).await;
    assert_eq!(
        received.iter().map(|one| one.sequence()).collect::<Vec<_>>(),
        [1, 2, 3],
        "each once, in order"
    );
    server.wait_for_status(&id, "ENDED").await;
    assert_eq!(stored_seqs(&server, &id).await, [0, 1, 2, 3, 4]);
    assert!(!server.engine.received_commands().contains(&Command::End), "no event was rejected");
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("visavis_events_failed 0"), "{metrics}");
}

#[tokio::test]
async fn a_background_task_that_panics_is_restarted() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    fn panic_once(point: CrashPoint) {
        if point == CrashPoint::BeforeCommit {
            assert!(!ARMED.swap(false, Ordering::Relaxed), "the test's own panic");
        }
    }
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start_with(&folder.0, |config| {
        config.crash_hook = Some(panic_once);
        config.timeouts.join = Duration::from_secs(3600);
        // No lease renewal may write meanwhile: the hook panics at the next write.
        config.timeouts.lease = Duration::from_secs(3600);
    })
    .await;
    let created = server
        .create_agent(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]}))
        .await;
    let (id, _) = server.create_conversation(&created).await;
    ARMED.store(true, Ordering::Relaxed);
    // The conversation is now older than the join timeout. The sweep runs every 30 s.
    folder.execute_sql("UPDATE conversation SET created_at = created_at - 7200000000".into()).await;
    advance_clock(Duration::from_secs(31)).await;
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "no_join");
    hooks.wait_for_first(1).await;
    let metrics = server.get("/metrics").await.text;
    for (task, count) in [("conversations", 1), ("event-writer", 0), ("webhooks", 0)] {
        let line = format!("visavis_task_panics_total{{task=\"{task}\"}} {count}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_webhook_whose_try_panics_is_tried_again() {
    static ARMED: AtomicBool = AtomicBool::new(true);
    fn panic_once(point: CrashPoint) {
        if point == CrashPoint::BeforeSend {
            assert!(!ARMED.swap(false, Ordering::Relaxed), "the test's own panic");
        }
    }
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start_with(&folder.0, |config| {
        config.crash_hook = Some(panic_once);
        config.webhooks.schedule = [0, 10].map(Duration::from_millis).to_vec();
    })
    .await;
    let agent_fields =
        json!({"callback_url": hooks.url, "callback_events": ["utterance_committed"]});
    let id = server.create_running_call(agent_fields).await;
    server.engine.record_events(&id, 1, [utterance(1)]);
    hooks.wait_for_first(1).await;
    wait_for("the outcome", async || (server.webhook_count("done").await == 1).then_some(())).await;
    let deliveries =
        server.get(&format!("/v1/ext/conversation/{id}/deliveries")).await.expect_status(200);
    let tries = deliveries[0]["tries"].as_array().unwrap();
    assert_eq!(tries.len(), 2, "{deliveries}");
    assert_eq!((&tries[0]["status"], &tries[1]["status"]), (&Value::Null, &json!(204)));
    assert!(tries[0]["error"].as_str().unwrap().contains("panicked"), "{deliveries}");
}
