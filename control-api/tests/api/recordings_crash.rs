//! A server that crashes before or after any commit between the end of a recorded call and the
//! moment at which its recording can be read. After the restart the recording can be read, and
//! `recording_ready` is stored once and delivered with one id.
//!
//! The test program starts itself, as in `crash.rs`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use control_api::CrashPoint;
use serde_json::json;

use crate::harness::{TempFolder, TestServer, WebhookReceiver, wait_for};
use crate::recordings::{end_call, files, follow, wait_until_ready, write_capture};

/// Environment variables of the process that crashes: its folder, its receiver, and the number of
/// the commit point at which it aborts.
const FOLDER_VAR: &str = "VISAVIS_RECORDING_CRASH_FOLDER";
const RECEIVER_VAR: &str = "VISAVIS_RECORDING_CRASH_RECEIVER";
const OCCURRENCE_VAR: &str = "VISAVIS_RECORDING_CRASH_AT";
/// Maximum number of commit points. The tasks of the server commit in no fixed order.
const MAX_POINTS: u32 = 40;

static ARMED: AtomicBool = AtomicBool::new(false);
static REACHED: AtomicU32 = AtomicU32::new(0);

fn abort_at_commit(point: CrashPoint) {
    let is_commit = matches!(point, CrashPoint::BeforeCommit | CrashPoint::AfterCommit);
    if !is_commit || !ARMED.load(Ordering::Relaxed) {
        return;
    }
    let reached = REACHED.fetch_add(1, Ordering::Relaxed) + 1;
    if reached == std::env::var(OCCURRENCE_VAR).unwrap().parse::<u32>().unwrap() {
        std::process::abort();
    }
}

#[tokio::test]
#[ignore = "the other test here starts it"]
async fn the_process_that_crashes() {
    let folder = PathBuf::from(std::env::var(FOLDER_VAR).expect("started by the other test"));
    let server = TestServer::start_with(&folder, |config| {
        config.crash_hook = Some(abort_at_commit);
    })
    .await;
    let agent = json!({
        "record": true,
        "callback_url": std::env::var(RECEIVER_VAR).unwrap(),
        "callback_events": ["recording_ready"],
    });
    let id = server.create_running_call(agent).await;
    std::fs::write(folder.join("id"), &id).unwrap();
    write_capture(&folder.join("data"), &id);
    ARMED.store(true, Ordering::Relaxed);
    end_call(&server, &id, 1);
    server.app.recorded_hook()(id.parse().unwrap());
    wait_until_ready(&server, &id).await;
    wait_for("the webhook", async || (server.webhook_count("done").await == 1).then_some(())).await;
    std::fs::write(folder.join("finished"), b"").unwrap();
}

/// Runs a process that crashes at the `at`th commit point, then checks what is left. False if the
/// process reached no such point.
async fn crashes_at(at: u32) -> bool {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["recordings_crash::the_process_that_crashes", "--exact", "--ignored"])
        .env(FOLDER_VAR, &folder.0)
        .env(RECEIVER_VAR, &hooks.url)
        .env(OCCURRENCE_VAR, at.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let crashed = !output.status.success();
    assert_ne!(crashed, folder.0.join("finished").exists(), "commit {at}: {output:?}");
    let id = std::fs::read_to_string(folder.0.join("id")).unwrap();

    let server = TestServer::start(&folder).await;
    let record = wait_until_ready(&server, &id).await;
    let (reply, _) = follow(&server, "GET", record["recording_url"].as_str().unwrap(), None).await;
    assert_eq!(reply.status, 200, "commit {at}");
    assert_eq!(record["warnings"], json!([]), "commit {at}");
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.expect_status(200);
    let ready = events.as_array().unwrap().iter().filter(|one| one["what"] == "recording_ready");
    assert_eq!(ready.count(), 1, "commit {at}: {events}");
    wait_for("the webhook", async || (server.webhook_count("done").await == 1).then_some(())).await;
    let received = hooks.received();
    let ids: HashSet<&str> = received.iter().map(|one| one.id()).collect();
    assert_eq!(ids.len(), 1, "commit {at}: {received:?}");
    wait_for("the local files to be removed", async || {
        files(&folder, "recordings").is_empty().then_some(())
    })
    .await;
    assert_eq!(files(&folder, "storage/recordings"), [format!("{id}.webm")], "commit {at}");
    server.stop().await;
    crashed
}

#[tokio::test]
async fn a_crash_at_any_commit_loses_no_recording_and_doubles_no_event() {
    let mut at = 1;
    while crashes_at(at).await {
        at += 1;
        assert!(at < MAX_POINTS);
    }
    // Before and after: the end of the call, the capture, the delivery, the storage, the webhook.
    assert!(at > 10, "{at}");
}
