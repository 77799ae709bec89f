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

use crate::kit::{Came, Folder, Hooks, Server, joined, until};

/// Environment variables of the process that crashes: its folder, its receiver, the kind of crash
/// point, and the occurrence of that kind at which it aborts (from 1; 0 = never). The order of
/// crash points of different kinds differs between runs, so a count over all kinds would not
/// identify a crash point.
const FOLDER: &str = "VISAVIS_CRASH_FOLDER";
const RECEIVER: &str = "VISAVIS_CRASH_RECEIVER";
const KIND: &str = "VISAVIS_CRASH_KIND";
const AT: &str = "VISAVIS_CRASH_AT";
const KINDS: [CrashPoint; 4] = [CrashPoint::BeforeCommit, CrashPoint::AfterCommit, CrashPoint::BeforeSend, CrashPoint::AfterSend];
/// Maximum number of processes that run at the same time.
const WIDTH: usize = 4;
const WANTED: [&str; 4] = ["user.started_speaking", "utterance_committed", "participant_left", "call_ended"];

static MOMENTS: [AtomicU32; KINDS.len()] = [const { AtomicU32::new(0) }; KINDS.len()];
static LOG: OnceLock<PathBuf> = OnceLock::new();

/// Appends a line to the log of what the process has seen. An abort ends the process only, so the
/// log survives it.
fn note(what: &str, value: impl Into<Value>) {
    let mut log = OpenOptions::new().create(true).append(true).open(LOG.get().unwrap()).unwrap();
    let value: Value = value.into();
    writeln!(log, "{}", json!([what, value])).unwrap();
}

fn crash_at(moment: CrashPoint) {
    // At any other crash point, nothing has changed since the last one of these kinds.
    let Some(number) = KINDS.iter().position(|kind| *kind == moment) else { return };
    let told = |name| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let passed = MOMENTS[number].fetch_add(1, Ordering::Relaxed) + 1;
    if number == told(KIND) as usize && passed == told(AT) {
        note("crash", format!("{moment:?}"));
        std::process::abort();
    }
}

fn hasty(config: &mut Config) {
    config.webhooks.schedule = [0, 10, 20, 40].map(Duration::from_millis).to_vec();
}

#[tokio::test]
#[ignore = "the other test here starts it"]
async fn the_process_that_crashes() {
    let folder = PathBuf::from(std::env::var(FOLDER).expect("started by the other test"));
    LOG.set(folder.join("seen")).unwrap();
    let server = Server::start_with(&folder, |config| {
        hasty(config);
        config.crash_hook = Some(crash_at);
    })
    .await;
    let receiver = std::env::var(RECEIVER).unwrap();
    let made = server.agent(json!({"callback_url": receiver, "callback_events": WANTED})).await;
    note("agent", made.as_str());
    for _ in 0..2 {
        let body = json!({"name": "Same name", "prompt": "p"});
        note("guardrail", server.post("/v1/ext/guardrail", body).await.expect(201)["id"].clone());
    }

    let (talked, _) = server.conversation(&made).await;
    note("started", talked.as_str());
    let speak = format!("/v1/conversation/{talked}/speak");
    server.call("PUT", &speak, json!({"text": "Welcome."})).await.expect(200);
    note("command", talked.as_str());
    server.stage.tell(&talked, 0, 0.0, joined());
    server.status(&talked, "IN_PROGRESS").await;
    note("joined", talked.as_str());
    let facts = [
        Event::UserStartedSpeaking,
        Event::UtteranceCommitted { text: "Hello?".into() },
        Event::ParticipantLeft { id: "u".into() },
    ];
    for (n, fact) in (1..).zip(facts) {
        server.stage.tell(&talked, n, n as f64, fact);
        let count = async || (kept(&server, &talked).await.len() as u64 > n).then_some(());
        until("the fact", count).await;
        note("facts", json!([talked, n + 1]));
    }

    let (unjoined, _) = server.conversation(&made).await;
    note("started", unjoined.as_str());
    server.delete(&format!("/v1/conversation/{unjoined}")).await.expect(200);
    note("ended", unjoined.as_str());

    let end = [(4.0, Event::CallEnded), (4.0, Event::Ended { reason: EndReason::UserLeft })];
    server.stage.tell_all(&talked, 4, end);
    server.status(&talked, "ENDED").await;
    note("ended", talked.as_str());
    let feedback = json!({"rating": 4, "feedback": "Fine."});
    server.post(&format!("/v1/ext/conversation/{talked}/feedback"), feedback).await.expect(200);
    note("rated", talked.as_str());
    let (waiting, _) = server.conversation(&made).await;
    note("started", waiting.as_str());
    until("the last webhook", async || (server.webhooks("done").await == 5).then_some(())).await;
    note("moments", json!(MOMENTS.each_ref().map(|count| count.load(Ordering::Relaxed))));
}

async fn kept(server: &Server, id: &str) -> Vec<Value> {
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.expect(200);
    events.as_array().unwrap().clone()
}

/// The outcome of one run.
struct Ran {
    /// The crash point at which the process aborted, if it reached it.
    crash: Option<String>,
    /// Number of crash points reached, by kind, if the process did not crash.
    moments: Option<Vec<u64>>,
}

/// Runs a process that crashes at the `at`th crash point of a kind (0 = never), then checks what is
/// left.
async fn run((kind, at): (usize, u64)) -> Ran {
    let folder = Folder::new();
    let hooks = Hooks::start().await;
    // The first attempt of each webhook fails, so that a crash can also interrupt a retry.
    hooks.rule(|one, before| if before.iter().any(|b| b.id() == one.id()) { 204 } else { 500 });
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["crash::the_process_that_crashes", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, &folder.0)
        .env(RECEIVER, &hooks.url)
        .env(KIND, kind.to_string())
        .env(AT, at.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let log = std::fs::read_to_string(folder.0.join("seen")).unwrap_or_default();
    let seen: Vec<(String, Value)> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |what: &str| seen.iter().find(|(w, _)| w == what).map(|(_, value)| value.clone());
    let ran = Ran {
        crash: find("crash").map(|c| c.as_str().unwrap().to_owned()),
        moments: find("moments").map(|m| serde_json::from_value(m).unwrap()),
    };
    assert!(
        ran.crash.is_some() != ran.moments.is_some(),
        "moment {at} of kind {kind}: it failed otherwise: {output:?}"
    );

    let server = Server::start_with(&folder.0, hasty).await;
    check(&server, &hooks, &seen).await;
    server.stop().await;
    ran
}

/// Everything that was acknowledged is stored, and every stored event is delivered.
async fn check(server: &Server, hooks: &Hooks, seen: &[(String, Value)]) {
    let of = |what: &'static str| {
        seen.iter().filter(move |(w, _)| w == what).map(|(_, value)| value.as_str().unwrap())
    };
    for id in of("agent") {
        server.get(&format!("/v1/ext/agent/{id}")).await.expect(200);
    }
    let all = server.get("/v1/ext/guardrail").await.expect(200);
    let all = all.as_array().unwrap();
    assert!(of("guardrail").all(|id| all.iter().any(|g| g["id"] == id)), "{all:?}");
    let keys: HashSet<&str> = all.iter().map(|g| g["key"].as_str().unwrap()).collect();
    assert!(keys.len() == all.len() && keys.iter().all(|k| ["same_name", "same_name_2"].contains(k)));

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
        assert!(status == "ENDED" || (status == "STARTED" && !has("joined") && !has("ended")), "{record}");
        assert!(!has("rated") || record["rating"] == 4, "{record}");
        let facts = seen.iter().filter(|(what, value)| what == "facts" && value[0] == id);
        let count = facts.map(|(_, value)| value[1].as_u64().unwrap()).max().unwrap_or(0);
        let before = kept(server, id).await;
        assert!(before.len() as u64 >= count, "{count} were shown: {before:?}");
        if status == "STARTED" {
            server.delete(&format!("/v1/conversation/{id}")).await.expect(200);
        }
    }
    until("every webhook to be told", async || (server.webhooks("pending").await == 0).then_some(())).await;
    assert_eq!(server.webhooks("dead").await + server.webhooks("dropped").await, 0);
    let came = hooks.came();
    for record in records {
        told_once(server, record["id"].as_str().unwrap(), &came).await;
    }
}

/// Every event of a conversation was delivered, in order, always with the same id and body. No
/// other event was delivered.
async fn told_once(server: &Server, id: &str, came: &[Came]) {
    let wanted: Vec<Value> = kept(server, id)
        .await
        .into_iter()
        .filter_map(|item| {
            let event: Event = serde_json::from_value(item).unwrap();
            let body =
                EventEnvelope { seq: 0, at: Time::ZERO, event }.webhook_body(id.parse().unwrap(), 0)?;
            let body: Value = serde_json::from_str(&body).unwrap();
            WANTED.contains(&body["event"]["name"].as_str()?).then(|| body["event"].clone())
        })
        .collect();
    let body = |one: &Came| serde_json::from_str::<Value>(&one.body).unwrap();
    let mut told: Vec<&Came> = Vec::new();
    for one in came.iter().filter(|one| body(one)["conversation_id"] == id) {
        match told.iter().find(|known| known.id() == one.id()) {
            Some(known) => assert_eq!((&known.body, known.sequence()), (&one.body, one.sequence())),
            None => told.push(one),
        }
    }
    assert_eq!(told.iter().map(|one| body(one)["event"].clone()).collect::<Vec<_>>(), wanted);
    assert!(told.iter().map(|one| one.sequence()).eq(1..=told.len() as u64), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_moment_loses_nothing_and_doubles_nothing_but_tries() {
    let moments = run((0, 0)).await.moments.expect("nothing crashed it");
    let of = |(kind, count): (usize, u64)| (1..=count).map(move |at| (kind, at));
    let all = moments.iter().copied().enumerate().flat_map(of);
    let ran: Vec<Ran> = futures_util::stream::iter(all).map(run).buffer_unordered(WIDTH).collect().await;
    let crashes: Vec<String> = ran.into_iter().filter_map(|ran| ran.crash).collect();
    // The grouping of events into commits differs between runs. The minimum is this number of
    // commits, and two attempts for each of five webhooks.
    for (moment, least) in KINDS.into_iter().zip([10, 10, 10, 10]) {
        let name = format!("{moment:?}");
        let count = crashes.iter().filter(|crash| **crash == name).count();
        assert!(count >= least, "{name}: {count} of {moments:?}");
    }
}
