//! A server that crashes before or after any commit between the end of a recorded call and the
//! moment at which its recording can be read. After the restart the recording can be read, and
//! `recording_ready` is stored once and delivered with one id.

use std::collections::HashSet;

use serde_json::json;

use crate::commit_crash;
use crate::harness::{TempFolder, TestServer, WebhookReceiver, wait_for};
use crate::recordings::{end_call, files, follow, wait_until_ready, write_capture};

#[tokio::test]
#[ignore = "the other test here starts it"]
async fn the_process_that_crashes() {
    let folder = commit_crash::folder();
    let server = TestServer::start_with(&folder, |config| {
        config.crash_hook = Some(commit_crash::abort_at_commit);
    })
    .await;
    let agent = json!({
        "record": true,
        "callback_url": commit_crash::receiver_url(),
        "callback_events": ["recording_ready"],
    });
    let id = server.create_running_call(agent).await;
    std::fs::write(folder.join("id"), &id).unwrap();
    write_capture(&folder.join("data"), &id);
    commit_crash::arm();
    end_call(&server, &id, 1);
    server.app.recorded_hook()(id.parse().unwrap());
    wait_until_ready(&server, &id).await;
    wait_for("the webhook", async || (server.webhook_count("done").await == 1).then_some(())).await;
    commit_crash::finish();
}

/// Runs a process that crashes at the `at`th commit point, then checks what is left. False if the
/// process reached no such point.
async fn crashes_at(at: u32) -> bool {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let crashed = commit_crash::crashes("recordings_crash", at, &folder, &hooks).await;
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
        assert!(at < commit_crash::MAX_POINTS);
    }
    // Before and after: the end of the call, the capture, the delivery, the storage, the webhook.
    assert!(at > 10, "{at}");
}
