//! Recordings in object storage: uploads in parts, links, deletion, and faults of the storage.

use std::fs::File;
use std::time::Duration;

use bytes::Bytes;
use recording::capture::CaptureWriter;
use recording::{Frame, Packet, Size, Track};
use serde_json::json;

use crate::harness::{TempFolder, TestServer, wait_for};
use crate::recordings::{end_call, read_record, recorded_call, wait_for_metric, wait_until_ready};
use crate::s3_server::{Fault, S3Server};

/// Size of a picture that makes a recording large, and their number.
const PICTURE_BYTES: usize = 1 << 20;
const PICTURES: usize = 20;

async fn start_server(folder: &TempFolder, storage: control_api::StorageConfig) -> TestServer {
    TestServer::start_with(&folder.0, |config| config.storage = storage).await
}

#[tokio::test]
async fn a_recording_is_stored_and_read_by_a_link_of_the_storage() {
    let (folder, s3) = (TempFolder::new(), S3Server::start().await);
    let server = start_server(&folder, s3.config(None)).await;
    let id = recorded_call(&server, &folder, json!({})).await;
    let record = wait_until_ready(&server, &id).await;
    let link = record["recording_url"].as_str().unwrap();
    assert!(link.contains("/bucket/calls/recordings/") && link.contains("X-Amz-Expires=3600"));
    assert_eq!(s3.objects("recordings").len(), 1);
    // Its address is not https: only the console may play files from it.
    let origin = link.split("/bucket").next().unwrap();
    for (page, is_allowed) in [("/console", true), (&*format!("/join/{id}"), false), ("/", false)] {
        let reply = server.send(server.request("GET", page)).await;
        let policy = reply.header("content-security-policy");
        assert_eq!(
            policy.contains(&format!("media-src 'self' blob: https: {origin};")),
            is_allowed
        );
        assert_eq!(policy.contains("media-src"), is_allowed, "{page}: {policy}");
    }
    let stored = std::fs::read(&s3.objects("recordings")[0]).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let whole = client.get(link).send().await.unwrap();
    assert_eq!(whole.status(), 200);
    assert_eq!(whole.headers()["content-type"], "video/webm");
    let saved = format!("attachment; filename=\"{id}.webm\"");
    assert_eq!(whole.headers()["content-disposition"], saved, "a browser saves the file");
    assert_eq!(whole.bytes().await.unwrap(), stored);
    let part = client.get(link).header("range", "bytes=4-9").send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.unwrap(), stored[4..10]);
    let changed = link.replace(&id, "00000000-0000-4000-8000-000000000000");
    assert_eq!(client.get(changed).send().await.unwrap().status(), 403);
    // Nothing is served at the local address.
    let local = format!("/media/recordings/{id}.webm?expires=99999999999&signature=AA");
    assert_eq!(server.send(server.request("GET", &local)).await.status, 403);

    let path = format!("/v1/ext/conversation/{id}/recording");
    assert_eq!(server.delete(&path).await.status, 204);
    wait_for("the object to be removed", async || {
        s3.objects("recordings").is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_large_recording_is_uploaded_in_parts() {
    let (folder, s3) = (TempFolder::new(), S3Server::start().await);
    let server = start_server(&folder, s3.config(None)).await;
    let id = server.create_running_call(json!({"record": true})).await;
    let recordings = folder.0.join("data/recordings");
    std::fs::create_dir_all(&recordings).unwrap();
    let file = File::create(recordings.join(format!("{id}.recorded"))).unwrap();
    let size = Some(Size { width: 16, height: 16 });
    let mut writer = CaptureWriter::new(file, size).unwrap();
    for n in 0..PICTURES {
        // A frame header that says "key frame, shown".
        let mut data = vec![n as u8; PICTURE_BYTES];
        data[0] = 0x10;
        let at = Duration::from_millis(n as u64 * 40);
        let data = Bytes::from(data);
        writer.push(Packet { at, track: Track::Video(Frame::Key), data }).unwrap();
    }
    writer.flush().unwrap();
    end_call(&server, &id, 1);
    server.app.recorded_hook()(id.parse().unwrap());
    wait_until_ready(&server, &id).await;
    let stored = std::fs::metadata(&s3.objects("recordings")[0]).unwrap().len();
    assert!(stored > (PICTURES * PICTURE_BYTES) as u64, "{stored}");
}

#[tokio::test]
async fn an_upload_survives_faults_of_the_storage() {
    let (folder, s3) = (TempFolder::new(), S3Server::start().await);
    let failed = "visavis_recording_uploads_failed_total";
    for fault in [Fault::Unavailable, Fault::Cut(3_000)] {
        let server = start_server(&folder, s3.config(None)).await;
        s3.set_fault(fault);
        let id = recorded_call(&server, &folder, json!({})).await;
        wait_for_metric(&server, failed, 1).await;
        let record = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
        assert_eq!(record["recording_url"], "", "{fault:?}");
        s3.set_fault(Fault::None);
        wait_until_ready(&server, &id).await;
        server.stop().await;
    }

    // A slow storage delays nothing else.
    let server = start_server(&folder, s3.config(None)).await;
    s3.set_fault(Fault::Slow);
    let before = s3.connections();
    let id = recorded_call(&server, &folder, json!({})).await;
    wait_for("the upload to begin", async || (s3.connections() > before).then_some(())).await;
    wait_for_metric(&server, "visavis_recordings{state=\"finished\"}", 1).await;
    s3.set_fault(Fault::None);
    wait_until_ready(&server, &id).await;
    server.stop().await;

    let mut nowhere = s3.config(None);
    nowhere.options[0].1 = "http://127.0.0.1:9".into();
    let refused = "the storage refuses the access of this server";
    let mut id = String::new();
    for (storage, reason) in [
        (nowhere, "the storage cannot be reached, or fails"),
        (s3.config(Some("a wrong secret")), refused),
    ] {
        let server = start_server(&folder, storage).await;
        id = recorded_call(&server, &folder, json!({})).await;
        wait_for_metric(&server, failed, 1).await;
        let warning = format!("The recording waits for the storage: {reason}.");
        wait_for("the warning", async || {
            (read_record(&server, &id).await["warnings"] == json!([warning])).then_some(())
        })
        .await;
        server.stop().await;
    }
    let server = start_server(&folder, s3.config(None)).await;
    wait_until_ready(&server, &id).await;
    wait_for("all uploads", async || (s3.objects("recordings").len() == 5).then_some(())).await;
}

#[tokio::test]
async fn the_check_says_whether_the_storage_can_be_written() {
    let (folder, s3) = (TempFolder::new(), S3Server::start().await);
    let works = control_api::check_storage(&folder.0, &s3.config(None)).await;
    assert_eq!(works.unwrap(), "recordings are stored in s3://bucket/calls");
    let wrong = control_api::check_storage(&folder.0, &s3.config(Some("a wrong secret"))).await;
    let wrong = wrong.unwrap_err();
    assert!(
        wrong.starts_with("recordings cannot be stored in s3://bucket/calls: ")
            && wrong.contains("SignatureDoesNotMatch")
            && !wrong.contains("a wrong secret"),
        "{wrong}"
    );
    let local = control_api::StorageConfig::default();
    let place = folder.0.join("storage");
    let by_url = control_api::StorageConfig {
        url: Some(format!("file://{}", place.display())),
        ..control_api::StorageConfig::default()
    };
    for config in [&local, &by_url] {
        let later = control_api::check_storage(&folder.0, config).await.unwrap();
        assert!(later.ends_with("which the first start creates") && !place.exists(), "{later}");
    }
    std::fs::create_dir(&place).unwrap();
    assert_eq!(
        control_api::check_storage(&folder.0, &local).await.unwrap(),
        format!("recordings are stored in {}", place.display())
    );
    for url in ["ftp://host/x", "s3:///x", "file://host/x", "s3://b?x=1", "no url"] {
        assert!(control_api::StorageConfig::check_url(url).is_err(), "{url}");
    }
}
