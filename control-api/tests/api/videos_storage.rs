//! Videos in object storage, and the faults of what is outside the server: the storage, and the
//! receivers of webhooks.

use std::time::Duration;

use control_api::Config;
use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer, WebhookReceiver, wait_for};
use crate::recordings::{metric, wait_for_metric};
use crate::s3_server::{Fault, S3Server};
use crate::videos::{
    VIDEO, create, id_of, read, start, start_with, wait_for_no_files, wait_for_video,
};
use crate::webhooks::check_signature;

const FAILED_UPLOADS: &str = "visavis_video_upload_failures_total";

async fn start_server(folder: &TempFolder, storage: control_api::StorageConfig) -> TestServer {
    start_with(folder, |config| config.storage = storage).await
}

/// Waits until a video waits for the storage, and returns why.
async fn wait_for_reason(server: &TestServer, id: &str) -> Value {
    wait_for("the reason", async || {
        let record = read(server, id).await;
        assert_eq!((&record["url"], &record["error"]), (&json!(""), &Value::Null));
        Some(record["waiting"].clone()).filter(|reason| !reason.is_null())
    })
    .await
}

#[tokio::test]
async fn a_video_is_stored_and_read_by_links_of_the_storage() {
    let (folder, s3) = (TempFolder::new(), S3Server::start().await);
    let server = start_server(&folder, s3.config(None)).await;
    let id = id_of(&create(&server, json!({"captions": "vtt"})).await);
    let record = wait_for_video(&server, &id, "COMPLETED").await;
    assert_eq!(s3.objects("videos").len(), 3);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (field, ending, kind) in [
        ("url", "webm", "video/webm"),
        ("poster_url", "webp", "image/webp"),
        ("captions_url", "vtt", "text/vtt; charset=utf-8"),
    ] {
        let link = record[field].as_str().unwrap();
        let object = format!("/bucket/calls/videos/{id}.{ending}?");
        assert!(link.contains(&object) && link.contains("X-Amz-Expires=3600"), "{link}");
        let reply = client.get(link).send().await.unwrap();
        assert_eq!(reply.status(), 200, "{field}");
        assert_eq!(reply.headers()["content-type"], kind);
        let bytes = reply.bytes().await.unwrap();
        if field == "url" {
            assert_eq!(record["bytes"], bytes.len());
        }
    }
    server.delete(&format!("{VIDEO}/{id}")).await.expect_status(200);
    wait_for("the objects to be removed", async || s3.objects("videos").is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn an_upload_of_a_video_survives_faults_of_the_storage() {
    let (folder, s3) = (TempFolder::new(), S3Server::start().await);
    let hooks = WebhookReceiver::start().await;
    // The text is a part of the fake's video: longer than what is passed on before the cut.
    let extra = json!({"text": "Hello. ".repeat(1_000), "callback_url": hooks.url});
    for (count, fault) in (1..).zip([Fault::Unavailable, Fault::Cut(3_000)]) {
        let server = start_server(&folder, s3.config(None)).await;
        s3.set_fault(fault);
        let id = id_of(&create(&server, extra.clone()).await);
        wait_for_metric(&server, FAILED_UPLOADS, 1).await;
        let reason = wait_for_reason(&server, &id).await;
        let expected = "The video waits for the storage: the storage cannot be reached, or fails.";
        assert_eq!(reason, expected, "{fault:?}");
        assert!(hooks.received().len() < count, "it is not complete");
        s3.set_fault(Fault::None);
        let record = wait_for_video(&server, &id, "COMPLETED").await;
        assert_eq!(record["waiting"], Value::Null);
        hooks.wait_for_first(count).await;
        wait_for_no_files(&folder).await;
        server.stop().await;
    }
    let mut nowhere = s3.config(None);
    nowhere.options[0].1 = "http://127.0.0.1:9".into();
    let mut ids = Vec::new();
    for (storage, reason) in [
        (nowhere, "the storage cannot be reached, or fails"),
        (s3.config(Some("a wrong secret")), "the storage refuses the access of this server"),
    ] {
        let server = start_server(&folder, storage).await;
        let id = id_of(&create(&server, json!({})).await);
        let expected = format!("The video waits for the storage: {reason}.");
        wait_for("the reason", async || {
            (read(&server, &id).await["waiting"] == *expected).then_some(())
        })
        .await;
        assert_eq!(read(&server, &id).await["status"], "PROCESSING");
        ids.push(id);
        server.stop().await;
    }
    let server = start_server(&folder, s3.config(None)).await;
    for id in ids {
        wait_for_video(&server, &id, "COMPLETED").await;
    }
    // A poster and a video of each.
    assert_eq!(s3.objects("videos").len(), 8);
    wait_for_no_files(&folder).await;
    assert_eq!(hooks.received().len(), 2, "a webhook for each video that asks for it");
}

#[tokio::test]
async fn a_slow_storage_delays_no_rendering_and_keeps_nothing_of_a_deleted_video() {
    let (folder, s3) = (TempFolder::new(), S3Server::start().await);
    let server = start_server(&folder, s3.config(None)).await;
    s3.set_fault(Fault::Slow);
    let before = s3.connections();
    let deleted = id_of(&create(&server, json!({})).await);
    wait_for("the upload to begin", async || (s3.connections() > before).then_some(())).await;
    let stays = id_of(&create(&server, json!({})).await);
    wait_for_metric(&server, "visavis_videos{state=\"storing\"}", 2).await;
    let path = format!("{VIDEO}/{deleted}");
    server.delete(&path).await.expect_status(200);
    assert_eq!(server.get(&path).await.status, 404);
    s3.set_fault(Fault::None);
    wait_for_video(&server, &stays, "COMPLETED").await;
    wait_for("the objects of one video", async || {
        let objects = s3.objects("videos");
        let is_left = |object: &std::path::PathBuf| object.to_string_lossy().contains(&*stays);
        (objects.len() == 2 && objects.iter().all(is_left)).then_some(())
    })
    .await;
    wait_for_no_files(&folder).await;
    assert_eq!(metric(&server, "visavis_videos{state=\"deleting\"}").await, 0);
}

/// The dead letter of a video, as soon as there is one.
async fn dead_letter(server: &TestServer, video: &str) -> Value {
    wait_for("the dead letter", async || {
        let list = server.get("/v1/ext/deadletters").await.expect_status(200);
        let found = list.as_array().unwrap().iter().find(|one| one["conversation_id"] == video);
        found.cloned()
    })
    .await
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_one_request_and_its_video_stays() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([410]);
    let server = start(&folder).await;
    let extra = json!({"callback_url": hooks.url});
    let created = create(&server, extra.clone()).await;
    let id = id_of(&created);
    wait_for_video(&server, &id, "COMPLETED").await;
    let dead = dead_letter(&server, &id).await;
    assert_eq!(
        (&dead["event"], &dead["agent_id"], &dead["reason"], dead["tries"][0]["status"].as_i64()),
        (&json!("video_completed"), &json!(id), &json!("responded with status 410"), Some(410))
    );
    assert_eq!(hooks.received().len(), 1);
    // A receiver belongs to its video: the next one asks the same address.
    let next = create(&server, extra).await;
    wait_for_video(&server, &id_of(&next), "COMPLETED").await;
    let received = hooks.wait_for_first(2).await;
    check_signature(&received[1], next["webhook_secret"].as_str().unwrap());
    // The receiver is back, and gets the same message.
    let path = format!("/v1/ext/deadletter/{}/redeliver", dead["id"].as_str().unwrap());
    server.post(&path, json!({})).await.expect_status(200);
    let again = &hooks.wait_for_first(3).await[2];
    check_signature(again, created["webhook_secret"].as_str().unwrap());
    assert_eq!(again.body, received[0].body);
}

#[tokio::test]
async fn a_receiver_that_fails_is_asked_again() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([503, 307]);
    let server = start_with(&folder, |config: &mut Config| {
        config.webhooks.schedule = [0, 20, 40].map(Duration::from_millis).to_vec();
    })
    .await;
    let created = create(&server, json!({"callback_url": hooks.url})).await;
    let received = hooks.wait_for_first(3).await;
    for one in &received {
        check_signature(one, created["webhook_secret"].as_str().unwrap());
        assert_eq!(one.body, received[0].body);
    }
    wait_for("the delivery", async || (server.webhook_count("done").await == 1).then_some(()))
        .await;
}

#[tokio::test]
async fn a_webhook_of_a_video_to_a_private_address_is_a_dead_letter() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = start_with(&folder, |config: &mut Config| {
        config.allow_private_targets = Some(false);
    })
    .await;
    let named = hooks.url.replace("127.0.0.1", "localhost");
    for url in [&hooks.url, &named] {
        let id = id_of(&create(&server, json!({"callback_url": url})).await);
        wait_for_video(&server, &id, "COMPLETED").await;
        let dead = dead_letter(&server, &id).await;
        assert_eq!(dead["reason"], "refused address");
        assert!(dead["tries"].as_array().unwrap().len() <= 1, "{dead}");
    }
    assert!(hooks.received().is_empty());
}
