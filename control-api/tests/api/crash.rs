//! A server that crashes before or after any of its commits and sends. After the restart,
//! everything that it acknowledged is stored. Every stored event is delivered to its receiver, in
//! order, always under the same `webhook-id`.
//!
//! The test program starts itself: [`the_process_that_crashes`] makes requests of many kinds and
//! aborts at the given crash point.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use control_api::{Config, CrashPoint};
use conversation::event::{EndReason, Event, EventEnvelope};
use conversation::time::Time;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::harness::{
    ReceivedWebhook, TempFolder, TestServer, WebhookReceiver, joined_event, wait_for,
};

/// Environment variables of the process that crashes: its folder, its receiver, the kind of crash
/// point, and the occurrence of that kind at which it aborts (from 1; 0 = never). The order of
/// crash points of different kinds differs between runs, so a count over all kinds would not
/// identify a crash point.
const FOLDER_VAR: &str = "VISAVIS_CRASH_FOLDER";
const RECEIVER_VAR: &str = "VISAVIS_CRASH_RECEIVER";
const POINT_VAR: &str = "VISAVIS_CRASH_KIND";
const OCCURRENCE_VAR: &str = "VISAVIS_CRASH_AT";
const CRASH_POINTS: [CrashPoint; 4] = [
    CrashPoint::BeforeCommit,
    CrashPoint::AfterCommit,
    CrashPoint::BeforeSend,
    CrashPoint::AfterSend,
];
/// Maximum number of processes that run at the same time.
const MAX_PROCESSES: usize = 4;
const SUBSCRIBED_EVENTS: [&str; 4] =
    ["user.started_speaking", "utterance_committed", "participant_left", "call_ended"];

static REACHED_COUNTS: [AtomicU32; CRASH_POINTS.len()] =
    [const { AtomicU32::new(0) }; CRASH_POINTS.len()];
static LOG_FILE: OnceLock<PathBuf> = OnceLock::new();

/// Appends a line to the log of what the process has seen. An abort ends the process only, so the
/// log survives it.
fn log_seen(what: &str, value: impl Into<Value>) {
    let mut log =
        OpenOptions::new().create(true).append(true).open(LOG_FILE.get().unwrap()).unwrap();
    let value: Value = value.into();
    writeln!(log, "{}", json!([what, value])).unwrap();
}

fn abort_at_point(point: CrashPoint) {
    // At any other crash point, nothing has changed since the last one of these kinds.
    let Some(number) = CRASH_POINTS.iter().position(|kind| *kind == point) else { return };
    let read_number = |name| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let passed = REACHED_COUNTS[number].fetch_add(1, Ordering::Relaxed) + 1;
    if number == read_number(POINT_VAR) as usize && passed == read_number(OCCURRENCE_VAR) {
        log_seen("crash", format!("{point:?}"));
        std::process::abort();
    }
}

fn fast_retries(config: &mut Config) {
    config.webhooks.schedule = [0, 10, 20, 40].map(Duration::from_millis).to_vec();
}

#[tokio::test]
#[ignore = "the other test here starts it"]
async fn the_process_that_crashes() {
    let folder = PathBuf::from(std::env::var(FOLDER_VAR).expect("started by the other test"));
    LOG_FILE.set(folder.join("seen")).unwrap();
    let server = TestServer::start_with(&folder, |config| {
        fast_retries(config);
        config.crash_hook = Some(abort_at_point);
    })
    .await;
    let receiver = std::env::var(RECEIVER_VAR).unwrap();
    let created = server
        .create_agent(json!({"callback_url": receiver, "callback_events": SUBSCRIBED_EVENTS}))
        .await;
    log_seen("agent", created.as_str());
    for _ in 0..2 {
        let body = json!({"name": "Same name", "prompt": "p"});
        log_seen(
            "guardrail",
            server.post("/v1/ext/guardrail", body).await.expect_status(201)["id"].clone(),
        );
    }

    let (joined_id, _) = server.create_conversation(&created).await;
    log_seen("started", joined_id.as_str());
    let speak = format!("/v1/conversation/{joined_id}/speak");
    server.send_json("PUT", &speak, json!({"text": "Welcome."})).await.expect_status(200);
    log_seen("command", joined_id.as_str());
    server.engine.record_event(&joined_id, 0, 0.0, joined_event());
    server.wait_for_status(&joined_id, "IN_PROGRESS").await;
    log_seen("joined", joined_id.as_str());
    let events = [
        Event::UserStartedSpeaking,
        Event::UtteranceCommitted { text: "Hello?".into(), speaker: None },
        Event::ParticipantLeft { id: "u".into() },
    ];
    for (n, event) in (1..).zip(events) {
        server.engine.record_event(&joined_id, n, n as f64, event);
        let count =
            async || (stored_events(&server, &joined_id).await.len() as u64 > n).then_some(());
        wait_for("the fact", count).await;
        log_seen("facts", json!([joined_id, n + 1]));
    }

    let (unjoined, _) = server.create_conversation(&created).await;
    log_seen("started", unjoined.as_str());
    server.delete(&format!("/v1/conversation/{unjoined}")).await.expect_status(200);
    log_seen("ended", unjoined.as_str());

    let end = [(4.0, Event::CallEnded), (4.0, Event::Ended { reason: EndReason::UserLeft })];
    server.engine.record_events(&joined_id, 4, end);
    server.wait_for_status(&joined_id, "ENDED").await;
    log_seen("ended", joined_id.as_str());
    let feedback = json!({"rating": 4, "feedback": "Fine."});
    server
        .post(&format!("/v1/ext/conversation/{joined_id}/feedback"), feedback)
        .await
        .expect_status(200);
    log_seen("rated", joined_id.as_str());
    let (waiting, _) = server.create_conversation(&created).await;
    log_seen("started", waiting.as_str());
    wait_for("the last webhook", async || (server.webhook_count("done").await == 5).then_some(()))
        .await;
    log_seen(
        "moments",
        json!(REACHED_COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed))),
    );
}

async fn stored_events(server: &TestServer, id: &str) -> Vec<Value> {
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.expect_status(200);
    events.as_array().unwrap().clone()
}

/// The outcome of one run.
struct CrashRun {
    /// The crash point at which the process aborted, if it reached it.
    crash: Option<String>,
    /// Number of crash points reached, by kind, if the process did not crash.
    reached_counts: Option<Vec<u64>>,
}

/// Runs a process that crashes at the `at`th crash point of a kind (0 = never), then checks what is
/// left.
async fn run_until_crash((kind, at): (usize, u64)) -> CrashRun {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    // The first attempt of each webhook fails, so that a crash can also interrupt a retry.
    hooks.respond_by_rule(
        |one, before| if before.iter().any(|b| b.id() == one.id()) { 204 } else { 500 },
    );
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["crash::the_process_that_crashes", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER_VAR, &folder.0)
        .env(RECEIVER_VAR, &hooks.url)
        .env(POINT_VAR, kind.to_string())
        .env(OCCURRENCE_VAR, at.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let log = std::fs::read_to_string(folder.0.join("seen")).unwrap_or_default();
    let seen: Vec<(String, Value)> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |what: &str| seen.iter().find(|(w, _)| w == what).map(|(_, value)| value.clone());
    let outcome = CrashRun {
        crash: find("crash").map(|c| c.as_str().unwrap().to_owned()),
        reached_counts: find("moments").map(|m| serde_json::from_value(m).unwrap()),
    };
    assert!(
        outcome.crash.is_some() != outcome.reached_counts.is_some(),
        "crash point {at} of kind {kind}: another failure: {output:?}"
    );

    let server = TestServer::start_with(&folder.0, fast_retries).await;
    check_recovered(&server, &hooks, &seen).await;
    server.stop().await;
    outcome
}

/// Everything that was acknowledged is stored, and every stored event is delivered.
async fn check_recovered(server: &TestServer, hooks: &WebhookReceiver, seen: &[(String, Value)]) {
    let of = |what: &'static str| {
        seen.iter().filter(move |(w, _)| w == what).map(|(_, value)| value.as_str().unwrap())
    };
    for id in of("agent") {
        server.get(&format!("/v1/ext/agent/{id}")).await.expect_status(200);
    }
    let all = server.get("/v1/ext/guardrail").await.expect_status(200);
    let all = all.as_array().unwrap();
    assert!(of("guardrail").all(|id| all.iter().any(|g| g["id"] == id)), "{all:?}");
    let keys: HashSet<&str> = all.iter().map(|g| g["key"].as_str().unwrap()).collect();
    assert!(
        keys.len() == all.len() && keys.iter().all(|k| ["same_name", "same_name_2"].contains(k))
    );

    let list = server.get("/v1/ext/conversation").await;
    assert_eq!(list.header("x-total-count"), list.json().as_array().unwrap().len().to_string());
    let list = list.json();
    let records = list.as_array().unwrap();
    assert!(of("started").all(|id| records.iter().any(|r| r["id"] == id)), "{records:?}");
    for record in records {
        let id = record["id"].as_str().unwrap();
        let has = |what| of(what).any(|known| known == id);
        let status = record["status"].as_str().unwrap();
        // A call that was joined has ended; a conversation without a join may still be joined.
        assert!(
            status == "ENDED" || (status == "STARTED" && !has("joined") && !has("ended")),
            "{record}"
        );
        assert!(!has("rated") || record["rating"] == 4, "{record}");
        let counts = seen.iter().filter(|(what, value)| what == "facts" && value[0] == id);
        let count = counts.map(|(_, value)| value[1].as_u64().unwrap()).max().unwrap_or(0);
        let before = stored_events(server, id).await;
        assert!(before.len() as u64 >= count, "{count} were shown: {before:?}");
        if status == "STARTED" {
            server.delete(&format!("/v1/conversation/{id}")).await.expect_status(200);
        }
    }
    wait_for("every webhook to be delivered", async || {
        (server.webhook_count("pending").await == 0).then_some(())
    })
    .await;
    assert_eq!(server.webhook_count("dead").await + server.webhook_count("dropped").await, 0);
    let received = hooks.received();
    for record in records {
        check_delivered_once(server, record["id"].as_str().unwrap(), &received).await;
    }
}

/// Every event of a conversation was delivered, in order, always with the same id and body. No
/// other event was delivered.
async fn check_delivered_once(server: &TestServer, id: &str, came: &[ReceivedWebhook]) {
    let expected: Vec<Value> = stored_events(server, id)
        .await
        .into_iter()
        .filter_map(|item| {
            let event: Event = serde_json::from_value(item).unwrap();
            let body = EventEnvelope { seq: 0, at: Time::ZERO, event }
                .webhook_body(id.parse().unwrap(), 0)?;
            let body: Value = serde_json::from_str(&body).unwrap();
            SUBSCRIBED_EVENTS
                .contains(&body["event"]["name"].as_str()?)
                .then(|| body["event"].clone())
        })
        .collect();
    let body = |one: &ReceivedWebhook| serde_json::from_str::<Value>(&one.body).unwrap();
    let mut delivered: Vec<&ReceivedWebhook> = Vec::new();
    for one in came.iter().filter(|one| body(one)["conversation_id"] == id) {
        match delivered.iter().find(|known| known.id() == one.id()) {
            Some(known) => assert_eq!((&known.body, known.sequence()), (&one.body, one.sequence())),
            None => delivered.push(one),
        }
    }
    assert_eq!(
        delivered.iter().map(|one| body(one)["event"].clone()).collect::<Vec<_>>(),
        expected
    );
    assert!(
        delivered.iter().map(|one| one.sequence()).eq(1..=delivered.len() as u64),
        "{delivered:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_moment_loses_nothing_and_doubles_nothing_but_tries() {
    let moments = run_until_crash((0, 0)).await.reached_counts.expect("no crash point was reached");
    let of = |(kind, count): (usize, u64)| (1..=count).map(move |at| (kind, at));
    let all = moments.iter().copied().enumerate().flat_map(of);
    let ran: Vec<CrashRun> = futures_util::stream::iter(all)
        .map(run_until_crash)
        .buffer_unordered(MAX_PROCESSES)
        .collect()
        .await;
    let crashes: Vec<String> = ran.into_iter().filter_map(|ran| ran.crash).collect();
    // The grouping of events into commits differs between runs. The minimum is this number of
    // commits, and two attempts for each of five webhooks.
    for (moment, min) in CRASH_POINTS.into_iter().zip([10, 10, 10, 10]) {
        let name = format!("{moment:?}");
        let count = crashes.iter().filter(|crash| **crash == name).count();
        assert!(count >= min, "{name}: {count} of {moments:?}");
    }
}
