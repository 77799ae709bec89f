//! Recordings from the file of a call to the link: delivery, links, deletion, and what fails. The
//! file of the call is written here as the engine writes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use control_api::Config;
use conversation::event::{EndReason, Event};
use recording::capture::CaptureWriter;
use recording::{Packet, Track};
use serde_json::{Value, json};

use crate::harness::{
    CALL_STARTED_AT, Reply, TempFolder, TestServer, WebhookReceiver, agent_body, wait_for,
};
use crate::servers::start_two_servers_with;

/// 20 ms of silence, as Opus (CELT, 48 kHz, mono).
const SILENCE: &[u8] = &[0xf8, 0xff, 0xfe];
/// Duration of the calls of these tests in seconds.
const CALL_SECONDS: u64 = 3;

/// Writes the file of a call of some seconds, as the engine leaves it.
pub(crate) fn write_capture(data: &Path, id: &str) -> PathBuf {
    let folder = data.join("recordings");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{id}.recorded"));
    let mut writer = CaptureWriter::new(File::create(&file).unwrap(), None).unwrap();
    for n in 0..CALL_SECONDS * 50 {
        for track in [Track::Agent, Track::User] {
            let data = Bytes::from_static(SILENCE);
            writer.push(Packet { at: Duration::from_millis(n * 20), track, data }).unwrap();
        }
    }
    writer.flush().unwrap();
    file
}

/// Ends a call whose last event has the number before `seq`.
pub(crate) fn end_call(server: &TestServer, id: &str, seq: u64) {
    let seconds = CALL_SECONDS as f64;
    let end =
        [(seconds, Event::CallEnded), (seconds, Event::Ended { reason: EndReason::UserLeft })];
    server.engine.record_events(id, seq, end);
}

/// A call that was recorded and has ended. Its agent has `extra` fields.
pub(crate) async fn recorded_call(
    server: &TestServer,
    folder: &TempFolder,
    extra: Value,
) -> String {
    let mut body = json!({"record": true});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let id = server.create_running_call(body).await;
    server.engine.record_event(&id, 1, 0.2, Event::RecordingStarted);
    write_capture(&folder.0.join("data"), &id);
    end_call(server, &id, 2);
    server.app.recorded_hook()(id.parse().unwrap());
    id
}

pub(crate) async fn read_record(server: &TestServer, id: &str) -> Value {
    server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200)
}

/// The record as soon as its recording can be read.
pub(crate) async fn wait_until_ready(server: &TestServer, id: &str) -> Value {
    wait_for("the recording", async || {
        let record = read_record(server, id).await;
        (record["recording_url"] != "").then_some(record)
    })
    .await
}

/// Requests a link with these headers, without an API key.
pub(crate) async fn follow(
    server: &TestServer,
    method: &str,
    link: &str,
    range: Option<&str>,
) -> (Reply, Bytes) {
    let path = link.strip_prefix(&server.url).unwrap_or_else(|| panic!("{link}"));
    let mut request = server.request(method, path);
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await.unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (Reply { status, headers, text }, bytes)
}

/// Files of a folder of the data folder, by name.
pub(crate) fn files(folder: &TempFolder, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder.0.join("data").join(name)).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The value of a metric, with its labels.
pub(crate) async fn metric(server: &TestServer, name: &str) -> u64 {
    let text = server.send(server.request("GET", "/metrics")).await.text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).parse::<f64>().unwrap() as u64
}

pub(crate) async fn wait_for_metric(server: &TestServer, name: &str, minimum: u64) {
    wait_for(name, async || (metric(server, name).await >= minimum).then_some(())).await;
}

#[tokio::test]
async fn a_recorded_call_gets_a_link_to_its_file_and_says_so() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    let agent = json!({
        "callback_url": hooks.url,
        "callback_events": ["call_ended", "recording_ready"],
    });
    let id = recorded_call(&server, &folder, agent).await;
    let record = wait_until_ready(&server, &id).await;
    assert_eq!((&record["is_recorded"], &record["warnings"]), (&json!(true), &json!([])));
    let usage: Value = serde_json::from_str(record["usage_json"].as_str().unwrap()).unwrap();
    assert_eq!(usage["duration_seconds"], CALL_SECONDS as f64, "delivery is no part of the call");

    let link = record["recording_url"].as_str().unwrap();
    let (whole, bytes) = follow(&server, "GET", link, None).await;
    assert_eq!(whole.status, 200, "{whole:?}");
    assert_eq!(&bytes[..4], [0x1a, 0x45, 0xdf, 0xa3], "WebM");
    for (name, value) in [
        ("content-type", "video/webm"),
        ("content-length", &bytes.len().to_string()),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
        ("content-disposition", &format!("inline; filename=\"{id}.webm\"")),
    ] {
        assert_eq!(whole.header(name), value, "{name}");
    }

    let received = hooks.wait_for_first(2).await;
    let names: Vec<_> = received.iter().map(|one| (one.name(), one.sequence())).collect();
    assert_eq!(names, [("call_ended".to_owned(), 1), ("recording_ready".to_owned(), 2)]);
    let body: Value = serde_json::from_str(&received[1].body).unwrap();
    let payload = &body["event"]["payload"];
    let duration = payload["duration"].as_f64().unwrap();
    assert!((duration - CALL_SECONDS as f64).abs() < 0.1, "{payload}");
    let expected = json!({"duration": duration, "bytes": bytes.len(), "format": "webm"});
    assert_eq!(*payload, expected);
    assert!(body["timestamp"].as_f64().unwrap() > CALL_STARTED_AT as f64 / 1e6 + 1e6, "{body}");
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.expect_status(200);
    assert_eq!(events.as_array().unwrap().last().unwrap()["what"], "recording_ready");
    wait_for("the local files to be removed", async || {
        files(&folder, "recordings").is_empty().then_some(())
    })
    .await;
    assert_eq!(metric(&server, "visavis_recordings{state=\"stored\"}").await, 1);
    // As the child process reports it.
    assert_eq!(metric(&server, "visavis_recordings_delivered_total").await, 1);
    assert_eq!(metric(&server, "visavis_recording_delivery_cpu_seconds_total").await, 2);
}

#[tokio::test]
async fn a_file_is_read_in_parts() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = recorded_call(&server, &folder, json!({})).await;
    let record = wait_until_ready(&server, &id).await;
    let link = record["recording_url"].as_str().unwrap();
    let (_, whole) = follow(&server, "GET", link, None).await;
    let size = whole.len();
    for (range, expected) in [
        ("bytes=0-99".to_owned(), 0..100),
        ("bytes=100-".to_owned(), 100..size),
        ("bytes=-5".to_owned(), size - 5..size),
        (format!("bytes=7-{}", size + 1_000), 7..size),
    ] {
        let (part, bytes) = follow(&server, "GET", link, Some(&range)).await;
        assert_eq!(part.status, 206, "{range}: {part:?}");
        let text = format!("bytes {}-{}/{size}", expected.start, expected.end - 1);
        assert_eq!(part.header("content-range"), text, "{range}");
        assert_eq!(bytes, whole.slice(expected), "{range}");
    }
    let (beyond, bytes) = follow(&server, "GET", link, Some(&format!("bytes={size}-"))).await;
    assert_eq!((beyond.status, bytes.len()), (416, 0));
    assert_eq!(beyond.header("content-range"), format!("bytes */{size}"));
    let (several, bytes) = follow(&server, "GET", link, Some("bytes=0-1,5-6")).await;
    assert_eq!((several.status, bytes.len()), (200, size), "one part or all");
    let (head, bytes) = follow(&server, "HEAD", link, None).await;
    assert_eq!((head.status, bytes.len()), (200, 0));
    assert_eq!(head.header("content-length"), size.to_string());
}

#[tokio::test]
async fn a_link_opens_its_file_and_nothing_else() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = recorded_call(&server, &folder, json!({})).await;
    let other = recorded_call(&server, &folder, json!({})).await;
    let record = wait_until_ready(&server, &id).await;
    wait_until_ready(&server, &other).await;
    let link = record["recording_url"].as_str().unwrap();
    let invalid = json!({"error": "Forbidden: the link is not valid"});
    let (place, query) = link.split_once('?').unwrap();
    for changed in [
        place.to_owned(),
        link.replace(&id, &other),
        link.replace("expires=", "expires=1"),
        link.replace("signature=", "signature=A"),
        format!("{}/media/../secrets.key?{query}", server.url),
        format!("{}/media/recordings/..%2f..%2fsecrets.key?{query}", server.url),
        format!("{}/media/%2fetc%2fpasswd?{query}", server.url),
    ] {
        let (reply, _) = follow(&server, "GET", &changed, None).await;
        let is_refused = (reply.status, reply.json()) == (403, invalid.clone());
        let is_unknown = (reply.status, reply.json()) == (404, json!({"error": "Not found"}));
        assert!(is_refused || is_unknown, "{changed}: {reply:?}");
    }
    assert_eq!(follow(&server, "GET", link, None).await.0.status, 200);
    server.stop().await;

    let server = TestServer::start_with(&folder.0, |config| {
        config.recordings.link_validity = Duration::ZERO;
    })
    .await;
    let record = read_record(&server, &id).await;
    let (reply, _) = follow(&server, "GET", record["recording_url"].as_str().unwrap(), None).await;
    reply.assert_is(403, json!({"error": "Forbidden: the link has expired"}));
}

#[tokio::test]
async fn a_deleted_recording_is_gone_everywhere() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let running = server.create_running_call(json!({"record": true})).await;
    let path = |id: &str| format!("/v1/ext/conversation/{id}/recording");
    server
        .delete(&path(&running))
        .await
        .assert_is(409, json!({"error": "Conversation has not ended"}));
    end_call(&server, &running, 1);
    server.wait_for_status(&running, "ENDED").await;
    let none = json!({"error": "Recording not found"});
    server.delete(&path(&running)).await.assert_is(404, none.clone());

    let id = recorded_call(&server, &folder, json!({})).await;
    let record = wait_until_ready(&server, &id).await;
    let link = record["recording_url"].as_str().unwrap().to_owned();
    // A process that was killed during an upload leaves its part.
    let stored = folder.0.join("data/storage/recordings");
    fs::write(stored.join(format!("{id}.webm#1")), b"a part").unwrap();
    assert_eq!(server.delete(&path(&id)).await.status, 204);
    let (reply, _) = follow(&server, "GET", &link, None).await;
    reply.assert_is(404, none.clone());
    let record = read_record(&server, &id).await;
    assert_eq!((&record["is_recorded"], &record["recording_url"]), (&json!(false), &json!("")));
    server.delete(&path(&id)).await.assert_is(404, none);
    wait_for("the copies to be removed", async || {
        files(&folder, "storage/recordings").is_empty().then_some(())
    })
    .await;
    wait_for_metric(&server, "visavis_recordings{state=\"deleted\"}", 1).await;
    // A file that turns up later is removed, too.
    write_capture(&folder.0.join("data"), &id);
    server.app.recorded_hook()(id.parse().unwrap());
    wait_for("the file to be removed", async || {
        files(&folder, "recordings").is_empty().then_some(())
    })
    .await;
    assert_eq!(read_record(&server, &id).await["is_recorded"], false);
}

#[tokio::test]
async fn an_erased_conversation_leaves_no_recording() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let ids = [
        recorded_call(&server, &folder, json!({})).await,
        recorded_call(&server, &folder, json!({})).await,
    ];
    for id in &ids {
        wait_until_ready(&server, id).await;
    }
    assert_eq!(files(&folder, "storage/recordings").len(), 2);
    assert_eq!(server.delete(&format!("/v1/ext/conversation/{}", ids[0])).await.status, 204);
    let remaining = vec![format!("{}.webm", ids[1])];
    wait_for("the recording to be removed", async || {
        (files(&folder, "storage/recordings") == remaining).then_some(())
    })
    .await;
    // Of an erased conversation, the file of the call goes, too.
    write_capture(&folder.0.join("data"), &ids[0]);
    server.stop().await;
    let server = TestServer::start_with(&folder.0, |config| config.retention_days = 1).await;
    wait_for("retention", async || {
        let is_empty = files(&folder, "storage/recordings").is_empty();
        (is_empty && files(&folder, "recordings").is_empty()).then_some(())
    })
    .await;
    wait_for("the rows to be removed", async || {
        let states = ["captured", "finished", "stored", "failed", "deleting", "deleted"];
        let mut rows = 0;
        for state in states {
            rows += metric(&server, &format!("visavis_recordings{{state=\"{state}\"}}")).await;
        }
        (rows == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_file_of_a_call_is_delivered_by_the_next_start() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({"record": true})).await;
    server.kill().await;
    let data = folder.0.join("data");
    write_capture(&data, &id);
    // What a child that was killed has left.
    fs::write(data.join("recordings").join(format!("{id}.webm.part")), b"half").unwrap();
    let server = TestServer::start(&folder).await;
    let record = wait_until_ready(&server, &id).await;
    assert_eq!((&record["status"], &record["end_reason"]), (&json!("ENDED"), &json!("error")));
    assert_eq!(record["is_recorded"], true);
    server.stop().await;
    // What a crash after the upload has left.
    fs::write(data.join("recordings").join(format!("{id}.webm")), b"again").unwrap();
    let server = TestServer::start(&folder).await;
    wait_for("the file to be removed", async || {
        files(&folder, "recordings").is_empty().then_some(())
    })
    .await;
    wait_until_ready(&server, &id).await;
}

#[tokio::test]
async fn a_call_is_recorded_from_its_first_packet() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({"record": true})).await;
    assert_eq!(read_record(&server, &id).await["is_recorded"], false);
    server.engine.record_event(&id, 1, 0.2, Event::RecordingStarted);
    wait_for("the event", async || {
        let record = read_record(&server, &id).await;
        (record["is_recorded"] == true && record["recording_url"] == "").then_some(())
    })
    .await;
    end_call(&server, &id, 2);
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["is_recorded"], true);
}

#[tokio::test]
async fn while_the_storage_is_down_files_wait_and_deletions_too() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let storage = folder.0.join("data/storage");
    let (away, blocker) = (folder.0.join("away"), b"not a folder");
    let fail = || {
        fs::rename(&storage, &away).unwrap();
        fs::write(&storage, blocker).unwrap();
    };
    let repair = || {
        fs::remove_file(&storage).unwrap();
        fs::rename(&away, &storage).unwrap();
    };
    fail();
    let id = recorded_call(&server, &folder, json!({})).await;
    wait_for_metric(&server, "visavis_recording_uploads_failed_total", 2).await;
    let record = read_record(&server, &id).await;
    assert_eq!((&record["is_recorded"], &record["recording_url"]), (&json!(true), &json!("")));
    assert_eq!(record.get("recording_error"), None, "the upload is repeated");
    assert_eq!(files(&folder, "recordings"), [format!("{id}.webm")]);
    assert_eq!(metric(&server, "visavis_recordings{state=\"finished\"}").await, 1);
    server.stop().await;
    repair();
    let server = TestServer::start(&folder).await;
    wait_until_ready(&server, &id).await;

    fail();
    let path = format!("/v1/ext/conversation/{id}");
    assert_eq!(server.delete(&path).await.status, 204);
    wait_for_metric(&server, "visavis_recording_deletions_failed_total", 2).await;
    assert_eq!(server.get(&path).await.status, 404);
    server.stop().await;
    repair();
    assert_eq!(files(&folder, "storage/recordings").len(), 1);
    let server = TestServer::start(&folder).await;
    wait_for("the deletion", async || {
        files(&folder, "storage/recordings").is_empty().then_some(())
    })
    .await;
    wait_for("the row to be removed", async || {
        (metric(&server, "visavis_recordings{state=\"deleting\"}").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn mp4_is_written_where_ffmpeg_is_and_webm_elsewhere() {
    let mp4 = json!({"config": {"recording": {"format": "mp4", "channels": "split"}}});
    let cases: [(&str, Option<&str>); 3] = [
        ("there is none", None),
        ("it works", Some("/usr/bin/ffmpeg-of-a-test")),
        ("it fails", Some("/usr/bin/broken")),
    ];
    for (case, ffmpeg) in cases {
        let folder = TempFolder::new();
        let server = TestServer::start_with(&folder.0, |config: &mut Config| {
            config.recordings.ffmpeg = ffmpeg.map(PathBuf::from);
        })
        .await;
        let id = recorded_call(&server, &folder, mp4.clone()).await;
        let record = wait_until_ready(&server, &id).await;
        let link = record["recording_url"].as_str().unwrap();
        let (reply, bytes) = follow(&server, "GET", link, None).await;
        let kind = reply.header("content-type");
        let (expected_kind, expected_warnings) = match case {
            "it works" => ("video/mp4", json!([])),
            "there is none" => (
                "video/webm",
                json!(["The recording is WebM, not MP4: ffmpeg is not installed on the server."]),
            ),
            _ => (
                "video/webm",
                json!(["The recording is WebM, not MP4: ffmpeg failed on the server."]),
            ),
        };
        assert_eq!((kind, &record["warnings"]), (expected_kind, &expected_warnings), "{case}");
        assert_eq!(&bytes[..] == b"MP4 of a test", case == "it works", "{case}");
        wait_for("the local files to be removed", async || {
            files(&folder, "recordings").is_empty().then_some(())
        })
        .await;
        let formats = server.get("/v1/ext/capabilities").await.expect_status(200);
        let formats = formats["recording"]["formats"].clone();
        let expected = if ffmpeg.is_some() { json!(["webm", "mp4"]) } else { json!(["webm"]) };
        assert_eq!(formats, expected, "{case}");
    }
}

#[tokio::test]
async fn a_damaged_file_stays_and_is_reported() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let mut empty = Vec::new();
    CaptureWriter::new(&mut empty, None).unwrap().flush().unwrap();
    for (content, reason) in [
        (&b"no capture at all"[..], "the file has no valid header"),
        (&empty, "nothing was recorded"),
    ] {
        let id = server.create_running_call(json!({"record": true})).await;
        let file = write_capture(&folder.0.join("data"), &id);
        fs::write(&file, content).unwrap();
        end_call(&server, &id, 1);
        server.app.recorded_hook()(id.parse().unwrap());
        wait_for_metric(&server, "visavis_recordings{state=\"failed\"}", 1).await;
        let record = read_record(&server, &id).await;
        let warning = format!("The recording cannot be delivered: {reason}.");
        assert_eq!(record["warnings"], json!([warning]));
        assert_eq!(record["recording_url"], "");
        assert_eq!(record["recording_error"], reason);
        assert!(file.exists(), "for the operator");
        let path = format!("/v1/ext/conversation/{id}/recording");
        assert_eq!(server.delete(&path).await.status, 204);
        wait_for("the file to be removed", async || (!file.exists()).then_some(())).await;
    }
}

#[tokio::test]
async fn a_delivered_file_that_vanishes_before_its_upload_is_reported() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let storage = folder.0.join("data/storage");
    fs::remove_dir(&storage).unwrap();
    fs::write(&storage, b"not a folder").unwrap();
    let id = recorded_call(&server, &folder, json!({})).await;
    wait_for_metric(&server, "visavis_recording_uploads_failed_total", 1).await;
    fs::remove_file(folder.0.join(format!("data/recordings/{id}.webm"))).unwrap();
    wait_for_metric(&server, "visavis_recordings{state=\"failed\"}", 1).await;
    let record = read_record(&server, &id).await;
    let warning = "The recording cannot be stored: the delivered file is missing.";
    assert_eq!(record["warnings"], json!([warning]));
    assert_eq!(record["recording_error"], "the delivered file is missing");
    assert_eq!((&record["is_recorded"], &record["recording_url"]), (&json!(true), &json!("")));
}

#[tokio::test]
async fn a_child_that_crashes_is_started_again_five_times_at_most() {
    for (crashes, is_delivered) in [(2, true), (9, false)] {
        let folder = TempFolder::new();
        let server = TestServer::start(&folder).await;
        let id = server.create_running_call(json!({"record": true})).await;
        write_capture(&folder.0.join("data"), &id);
        let asked = folder.0.join("data/crashes");
        fs::write(&asked, vec![0; crashes]).unwrap();
        end_call(&server, &id, 1);
        server.app.recorded_hook()(id.parse().unwrap());
        if is_delivered {
            wait_until_ready(&server, &id).await;
        } else {
            wait_for_metric(&server, "visavis_recordings{state=\"failed\"}", 1).await;
            assert_eq!(fs::read(&asked).unwrap().len(), crashes - 5);
            let record = read_record(&server, &id).await;
            let text = record["warnings"][0].as_str().unwrap();
            assert!(
                text == "The recording cannot be delivered: the process that writes it failed.",
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_says_whether_it_can_record() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let path = "/v1/ext/capabilities";
    let recording = async || server.get(path).await.expect_status(200)["recording"].clone();
    assert_eq!(recording().await, json!({"available": true, "reason": null, "formats": ["webm"]}));
    let reason = "This server does not record calls.";
    *server.engine.recording_error.lock().unwrap() = Some(reason.into());
    assert_eq!(
        recording().await,
        json!({"available": false, "reason": reason, "formats": ["webm"]})
    );
    let refused = agent_body(json!({"callback_events": ["recording_started"]}));
    assert_eq!(server.post("/v1/ext/agent", refused).await.status, 400);
}

#[tokio::test]
async fn the_copy_in_a_shared_storage_is_deleted_although_its_server_is_dead() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let shared = folders[0].0.join("shared");
    let storage = format!("file://{}", shared.display());
    let Some(servers) = start_two_servers_with(&folders, |config| {
        config.storage.url = Some(storage.clone());
    })
    .await
    else {
        return;
    };
    let [one, other] = servers;
    let id = recorded_call(&one, &folders[0], json!({})).await;
    let record = wait_until_ready(&other, &id).await;
    let (reply, _) = follow(&other, "GET", record["recording_url"].as_str().unwrap(), None).await;
    assert_eq!(reply.status, 200, "the other server reads the same folder");
    one.kill().await;
    let object = shared.join(format!("recordings/{id}.webm"));
    assert!(object.exists());
    let expired = "UPDATE server SET lease_until = 0 WHERE id = \
        (SELECT server FROM recording LIMIT 1)";
    folders[0].execute_sql(expired.into()).await;
    assert_eq!(other.delete(&format!("/v1/ext/conversation/{id}/recording")).await.status, 204);
    wait_for("the object to be removed", async || (!object.exists()).then_some(())).await;
    // Its own files are removed when it is back.
    assert_eq!(metric(&other, "visavis_recordings{state=\"deleting\"}").await, 1);
    let url = folders[0].database_url().await;
    let one = TestServer::start_with(&folders[0].0, |config| {
        config.database_url = url;
        config.storage.url = Some(storage);
    })
    .await;
    wait_for_metric(&other, "visavis_recordings{state=\"deleted\"}", 1).await;
    one.stop().await;
    other.stop().await;
}
