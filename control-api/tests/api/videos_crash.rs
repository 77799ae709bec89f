//! A server that crashes before or after any commit between the request for a video and its webhook.
//! After the restart there is one video, and `video_completed` is delivered with one id.

use std::collections::HashSet;

use serde_json::json;

use crate::commit_crash;
use crate::harness::{TempFolder, WebhookReceiver, wait_for};
use crate::recordings::{files, follow};
use crate::videos::{
    SOUND, VIDEO, VIDEOS, id_of, start, start_with, wait_for_no_files, wait_for_video,
};

#[tokio::test]
#[ignore = "the other test here starts it"]
async fn the_process_that_crashes() {
    let path = commit_crash::folder();
    // The other test removes the folder.
    let folder = std::mem::ManuallyDrop::new(TempFolder(path));
    let server =
        start_with(&folder, |config| config.crash_hook = Some(commit_crash::abort_at_commit)).await;
    server.get(VIDEOS).await.expect_status(200);
    commit_crash::arm();
    let body = json!({
        "avatar_key_id": "nia",
        "audio": SOUND,
        "callback_url": commit_crash::receiver_url(),
    });
    let request = server.request("POST", VIDEO).header("x-api-key", &server.key);
    let request = request.header("idempotency-key", "the-video");
    let request = request.header("content-type", "application/json").body(body.to_string());
    let created = server.send(request).await.expect_status(201);
    wait_for_video(&server, &id_of(&created), "COMPLETED").await;
    wait_for("the webhook", async || (server.webhook_count("done").await == 1).then_some(())).await;
    commit_crash::finish();
}

/// Runs a process that crashes at the `at`th commit point, then checks what is left. False if the
/// process reached no such point.
async fn crashes_at(at: u32) -> bool {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let crashed = commit_crash::crashes("videos_crash", at, &folder, &hooks).await;

    let server = start(&folder).await;
    // The client got no response, and sends the request again.
    let body = json!({"avatar_key_id": "nia", "audio": SOUND, "callback_url": hooks.url});
    let request = server.request("POST", VIDEO).header("x-api-key", &server.key);
    let request = request.header("idempotency-key", "the-video");
    let request = request.header("content-type", "application/json").body(body.to_string());
    let id = id_of(&server.send(request).await.expect_status(201));
    let record = wait_for_video(&server, &id, "COMPLETED").await;
    let (reply, _) = follow(&server, "GET", record["url"].as_str().unwrap(), None).await;
    assert_eq!(reply.status, 200, "commit {at}");
    assert_eq!(server.get(VIDEOS).await.header("x-total-count"), "1", "commit {at}");
    wait_for("the webhook", async || (server.webhook_count("done").await == 1).then_some(())).await;
    let received = hooks.received();
    let ids: HashSet<&str> = received.iter().map(|one| one.id()).collect();
    assert_eq!(ids.len(), 1, "commit {at}: {received:?}");
    wait_for_no_files(&folder).await;
    let stored = files(&folder, "storage/videos");
    assert_eq!(stored, [format!("{id}.webm"), format!("{id}.webp")], "commit {at}");
    server.stop().await;
    crashed
}

#[tokio::test]
async fn a_crash_at_any_commit_loses_no_video_and_doubles_no_webhook() {
    let mut at = 1;
    while crashes_at(at).await {
        at += 1;
        assert!(at < commit_crash::MAX_POINTS);
    }
    // Before and after: the request, the claim, the files, the storage, the webhook.
    assert!(at > 9, "{at}");
}
