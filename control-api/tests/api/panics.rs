//! Panics in the server's own code. Only the operation concerned fails; nothing is lost or
//! duplicated.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use control_api::CrashPoint;
use conversation::event::{EndReason, Event};
use conversation::input::Command;
use serde_json::{Value, json};

use crate::kit::{Folder, Hooks, Server, joined, leap, until};

fn said(n: u64) -> (f64, Event) {
    (n as f64, Event::UtteranceCommitted { text: format!("number {n}") })
}

fn ended(seconds: f64) -> [(f64, Event); 2] {
    [(seconds, Event::CallEnded), (seconds, Event::Ended { reason: EndReason::UserLeft })]
}

async fn numbers(server: &Server, id: &str) -> Vec<u64> {
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.expect(200);
    events.as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_fact_whose_code_panics_is_kept_as_text_and_all_others_go_on() {
    static FACTS: AtomicU32 = AtomicU32::new(0);
    fn third(moment: CrashPoint) {
        if moment == CrashPoint::BeforeEvent {
            assert_ne!(FACTS.fetch_add(1, Ordering::Relaxed), 2, "the test's own panic");
        }
    }
    let folder = Folder::new();
    let hooks = Hooks::start().await;
    let server = Server::start_with(&folder.0, |config| config.crash_hook = Some(third)).await;
    let wanted = json!({"callback_url": hooks.url, "callback_events": ["utterance_committed", "call_ended"]});
    let made = server.agent(wanted).await;
    let (bad, _) = server.conversation(&made).await;
    let (good, _) = server.conversation(&made).await;
    for call in [&bad, &good] {
        server.stage.tell(call, 0, 0.0, joined());
        server.stage.tell_all(call, 1, (1..=4).map(said));
        server.stage.tell_all(call, 5, ended(5.0));
    }
    // The call with the event that panics sends one webhook less.
    let came = hooks.first(9).await;
    let of = |call: &str| {
        let of = came.iter().filter(|one| one.body.contains(call));
        let told = |body: &str| body.split("number ").nth(1).map_or('e', |rest| rest.chars().next().unwrap());
        of.map(|one| (one.sequence(), told(&one.body))).collect::<Vec<_>>()
    };
    assert_eq!(of(&good), [(1, '1'), (2, '2'), (3, '3'), (4, '4'), (5, 'e')]);
    assert_eq!(of(&bad), [(1, '1'), (2, '3'), (3, '4'), (4, 'e')]);
    for (call, stored) in [(&bad, vec![0, 1, 3, 4, 5, 6]), (&good, vec![0, 1, 2, 3, 4, 5, 6])] {
        server.status(call, "ENDED").await;
        assert_eq!(numbers(&server, call).await, stored);
    }
    let kept: (String, i64, String, String) =
        sqlx::query_as("SELECT conversation, seq, json, reason FROM failed_event")
            .fetch_one(&mut folder.store().await)
            .await
            .unwrap();
    assert_eq!((&kept.0, kept.1), (&bad, 2));
    assert!(kept.2.contains("number 2") && kept.3.contains("panicked"), "{kept:?}");
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("visavis_events_failed 1"), "{metrics}");
    assert!(metrics.contains("visavis_events_queued 0"), "{metrics}");
}

#[tokio::test]
async fn an_end_whose_code_panics_ends_the_conversation_all_the_same() {
    static FACTS: AtomicU32 = AtomicU32::new(0);
    fn fourth(moment: CrashPoint) {
        if moment == CrashPoint::BeforeEvent {
            assert_ne!(FACTS.fetch_add(1, Ordering::Relaxed), 3, "the test's own panic");
        }
    }
    let folder = Folder::new();
    let server = Server::start_with(&folder.0, |config| config.crash_hook = Some(fourth)).await;
    let made = server.agent(json!({})).await;
    let (id, _) = server.conversation(&made).await;
    server.stage.tell(&id, 0, 0.0, joined());
    server.stage.tell_all(&id, 1, [said(1)]);
    server.stage.tell_all(&id, 2, ended(2.0));
    let record = server.status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "user_left");
    assert_eq!(numbers(&server, &id).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_panic_behind_a_commit_stores_and_tells_once() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    fn once(moment: CrashPoint) {
        if moment == CrashPoint::AfterCommit {
            assert!(!ARMED.swap(false, Ordering::Relaxed), "the test's own panic");
        }
    }
    let folder = Folder::new();
    let hooks = Hooks::start().await;
    let server = Server::start_with(&folder.0, |config| {
        config.crash_hook = Some(once);
        // No lease renewal may write meanwhile: the hook panics at the next write.
        config.timeouts.lease = Duration::from_secs(3600);
    })
    .await;
    let wanted = json!({"callback_url": hooks.url, "callback_events": ["utterance_committed", "call_ended"]});
    let id = server.running(wanted).await;
    ARMED.store(true, Ordering::Relaxed);
    server.stage.tell_all(&id, 1, [said(1), said(2)]);
    hooks.first(2).await;
    assert!(!ARMED.load(Ordering::Relaxed), "it panicked");
    server.stage.tell_all(&id, 3, ended(3.0));
    let came = hooks.first(3).await;
    assert_eq!(came.iter().map(|one| one.sequence()).collect::<Vec<_>>(), [1, 2, 3], "each once, in order");
    server.status(&id, "ENDED").await;
    assert_eq!(numbers(&server, &id).await, [0, 1, 2, 3, 4]);
    assert!(!server.stage.given().contains(&Command::End), "no fact was refused");
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("visavis_events_failed 0"), "{metrics}");
}

#[tokio::test]
async fn a_background_task_that_panics_is_restarted() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    fn once(moment: CrashPoint) {
        if moment == CrashPoint::BeforeCommit {
            assert!(!ARMED.swap(false, Ordering::Relaxed), "the test's own panic");
        }
    }
    let folder = Folder::new();
    let hooks = Hooks::start().await;
    let server = Server::start_with(&folder.0, |config| {
        config.crash_hook = Some(once);
        config.timeouts.join = Duration::from_secs(3600);
        // No lease renewal may write meanwhile: the hook panics at the next write.
        config.timeouts.lease = Duration::from_secs(3600);
    })
    .await;
    let made = server.agent(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]})).await;
    let (id, _) = server.conversation(&made).await;
    ARMED.store(true, Ordering::Relaxed);
    // The conversation is now older than the join timeout. The sweep runs every 30 s.
    folder.change("UPDATE conversation SET created_at = created_at - 7200000000".into()).await;
    leap(Duration::from_secs(31)).await;
    let record = server.status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "no_join");
    hooks.first(1).await;
    let metrics = server.get("/metrics").await.text;
    for (task, count) in [("conversations", 1), ("ledger", 0), ("webhooks", 0)] {
        let line = format!("visavis_task_panics_total{{task=\"{task}\"}} {count}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_webhook_whose_try_panics_is_tried_again() {
    static ARMED: AtomicBool = AtomicBool::new(true);
    fn once(moment: CrashPoint) {
        if moment == CrashPoint::BeforeSend {
            assert!(!ARMED.swap(false, Ordering::Relaxed), "the test's own panic");
        }
    }
    let folder = Folder::new();
    let hooks = Hooks::start().await;
    let server = Server::start_with(&folder.0, |config| {
        config.crash_hook = Some(once);
        config.webhooks.schedule = [0, 10].map(Duration::from_millis).to_vec();
    })
    .await;
    let wanted = json!({"callback_url": hooks.url, "callback_events": ["utterance_committed"]});
    let id = server.running(wanted).await;
    server.stage.tell_all(&id, 1, [said(1)]);
    hooks.first(1).await;
    until("the outcome", async || (server.webhooks("done").await == 1).then_some(())).await;
    let told = server.get(&format!("/v1/ext/conversation/{id}/deliveries")).await.expect(200);
    let tries = told[0]["tries"].as_array().unwrap();
    assert_eq!(tries.len(), 2, "{told}");
    assert_eq!((&tries[0]["status"], &tries[1]["status"]), (&Value::Null, &json!(204)));
    assert!(tries[0]["error"].as_str().unwrap().contains("panicked"), "{told}");
}
