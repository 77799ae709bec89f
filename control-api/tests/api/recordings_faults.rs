//! Recordings on a server whose disk, storage or recorder fails, and recordings that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use control_api::Config;
use conversation::event::Event;
use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer, wait_for};
use crate::recordings::{
    end_call, files, metric, read_record, recorded_call, wait_for_metric, wait_until_ready,
    write_capture,
};

/// A call whose recording the user refuses. Its last event has the number 2.
async fn refused_call(server: &TestServer) -> String {
    let id = server.create_running_call(json!({"record": true})).await;
    let events =
        [(0.2, Event::RecordingStarted), (0.5, Event::RecordingEnded { is_discarded: true })];
    server.engine.record_events(&id, 1, events);
    wait_for("the refusal", async || {
        let deleting = metric(server, "visavis_recordings{state=\"deleting\"}").await;
        let deleted = metric(server, "visavis_recordings{state=\"deleted\"}").await;
        (deleting + deleted == 1).then_some(())
    })
    .await;
    id
}

#[tokio::test]
async fn a_refused_recording_does_not_come_back() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = refused_call(&server).await;
    server.kill().await;
    // The recorder had not deleted the file. The start of the engine has completed it.
    let data = folder.0.join("data");
    let file = write_capture(&data, &id);
    let server = TestServer::start(&folder).await;
    wait_for("the file to be removed", async || (!file.exists()).then_some(())).await;
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!((&record["is_recorded"], &record["recording_url"]), (&json!(false), &json!("")));
    // The recorder could not delete the file of the call.
    let capture = file.with_extension("capture");
    write_capture(&data, &id);
    fs::rename(&file, &capture).unwrap();
    server.app.recorded_hook()(id.parse().unwrap());
    wait_for("the capture to be removed", async || (!capture.exists()).then_some(())).await;
    assert_eq!(metric(&server, "visavis_recordings{state=\"stored\"}").await, 0);
    assert_eq!(read_record(&server, &id).await["warnings"], json!([]));
}

#[tokio::test]
async fn the_events_of_an_older_version_refuse_a_recording_too() {
    // It kept no status of a call that runs.
    for sql in ["DELETE FROM recording", "UPDATE recording SET status = 'CAPTURED'"] {
        let folder = TempFolder::new();
        let server = TestServer::start(&folder).await;
        let id = refused_call(&server).await;
        server.kill().await;
        folder.execute_sql(sql.into()).await;
        let file = write_capture(&folder.0.join("data"), &id);
        // A conversation ends long before its recording is delivered.
        let server = TestServer::start(&folder).await;
        server.wait_for_status(&id, "ENDED").await;
        wait_for("the file to be removed", async || (!file.exists()).then_some(())).await;
        let record = read_record(&server, &id).await;
        assert_eq!((&record["is_recorded"], &record["warnings"]), (&json!(false), &json!([])));
        assert!(files(&folder, "storage/recordings").is_empty(), "{sql}");
    }
}

#[tokio::test]
async fn a_capture_of_an_erased_conversation_is_removed() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = recorded_call(&server, &folder, json!({})).await;
    wait_until_ready(&server, &id).await;
    let running = server.create_running_call(json!({"record": true})).await;
    let data = folder.0.join("data");
    let captures = [&id, &running].map(|id| {
        let recorded = write_capture(&data, id);
        let capture = recorded.with_extension("capture");
        fs::rename(recorded, &capture).unwrap();
        capture
    });
    assert_eq!(server.delete(&format!("/v1/ext/conversation/{id}")).await.status, 204);
    server.app.recorded_hook()(id.parse().unwrap());
    wait_for("the capture to be removed", async || (!captures[0].exists()).then_some(())).await;
    assert!(captures[1].exists(), "that of a running call");
}

#[tokio::test]
async fn a_recording_waits_until_there_is_space() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config: &mut Config| {
        config.recordings.min_free = u64::MAX;
    })
    .await;
    let id = recorded_call(&server, &folder, json!({})).await;
    let warning = "The recording waits for its delivery: the disk is almost full.";
    wait_for("the warning", async || {
        (read_record(&server, &id).await["warnings"] == json!([warning])).then_some(())
    })
    .await;
    wait_for_metric(&server, "visavis_recordings_waiting", 1).await;
    server.stop().await;
    // Now the disk is full while the file is written, more often than any other failure may occur.
    let full = folder.0.join("data/full");
    fs::write(&full, [0; 12]).unwrap();
    let server = TestServer::start(&folder).await;
    let record = wait_until_ready(&server, &id).await;
    assert_eq!(record["warnings"], json!([]), "it does not wait any more");
    assert_eq!(fs::read(&full).unwrap(), b"");
    assert_eq!(metric(&server, "visavis_recordings_waiting").await, 0);
}

#[tokio::test]
async fn a_file_that_is_lost_during_the_call_is_reported() {
    for is_restarted in [false, true] {
        let folder = TempFolder::new();
        let mut server = TestServer::start(&folder).await;
        let id = server.create_running_call(json!({"record": true})).await;
        server.engine.record_event(&id, 1, 0.2, Event::RecordingStarted);
        wait_for("the recording", async || {
            (read_record(&server, &id).await["is_recorded"] == true).then_some(())
        })
        .await;
        if is_restarted {
            server.kill().await;
            server = TestServer::start(&folder).await;
        } else {
            end_call(&server, &id, 2);
            server.app.recorded_hook()(id.parse().unwrap());
        }
        wait_for_metric(&server, "visavis_recordings{state=\"failed\"}", 1).await;
        let record = read_record(&server, &id).await;
        assert_eq!(record["recording_error"], "the file of the call is missing");
        let warning = "The recording cannot be delivered: the file of the call is missing.";
        assert_eq!(record["warnings"], json!([warning]));
    }
}

#[tokio::test]
async fn a_file_that_the_recorder_does_not_complete_is_delivered_nevertheless() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({"record": true})).await;
    server.engine.record_event(&id, 1, 0.2, Event::RecordingStarted);
    let recorded = write_capture(&folder.0.join("data"), &id);
    let capture = recorded.with_extension("capture");
    fs::rename(&recorded, &capture).unwrap();
    end_call(&server, &id, 2);
    server.wait_for_status(&id, "ENDED").await;
    server.app.recorded_hook()(id.parse().unwrap());
    // The calls of these tests ended long ago.
    let record = wait_until_ready(&server, &id).await;
    assert_eq!(record["warnings"], json!([]));
    assert!(!capture.exists());
}

#[tokio::test]
async fn a_storage_that_fails_is_reported_until_it_works() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let storage = folder.0.join("data/storage");
    fs::remove_dir(&storage).unwrap();
    fs::write(&storage, b"not a folder").unwrap();
    let capability = async || {
        let reply = server.get("/v1/ext/capabilities").await.expect_status(200);
        (reply["recording"]["available"].clone(), reply["recording"]["reason"].clone())
    };
    assert_eq!(capability().await, (json!(true), Value::Null), "nothing has failed yet");
    let id = recorded_call(&server, &folder, json!({})).await;
    wait_for_metric(&server, "visavis_recording_uploads_failed_total", 1).await;
    let reason = "the folder of the storage is missing";
    let sentence = format!("Recordings cannot be stored now and wait on the server: {reason}.");
    wait_for("the reason", async || {
        (capability().await == (json!(false), json!(sentence))).then_some(())
    })
    .await;
    let record = read_record(&server, &id).await;
    let waiting = format!("The recording waits for the storage: {reason}.");
    assert_eq!(record["warnings"], json!([waiting]));
    // Agents whose calls are recorded say it from the start of a call on.
    for (records, expected) in [(true, Some(sentence.as_str())), (false, None)] {
        let agent = server.create_agent(json!({"record": records})).await;
        let (called, token) = server.create_conversation(&agent).await;
        let offer = server.request("POST", &format!("/rtc/{called}"));
        let reply = server.send(offer.bearer_auth(token).body("v=0")).await;
        assert_eq!(reply.status, 201);
        let choice = server.engine.offers.lock().unwrap().last().unwrap().config.recording.clone();
        assert_eq!(choice.as_ref().and_then(|choice| choice.warning.as_deref()), expected);
    }
    fs::remove_file(&storage).unwrap();
    let record = wait_until_ready(&server, &id).await;
    assert_eq!(record["warnings"], json!([]));
    assert_eq!(capability().await, (json!(true), Value::Null));
}

#[tokio::test]
async fn only_the_owner_reads_files_of_the_storage() {
    let folder = TempFolder::new();
    let storage = folder.0.join("shared/calls");
    // An earlier version has created the folder.
    fs::create_dir_all(storage.join("recordings")).unwrap();
    let everyone = fs::Permissions::from_mode(0o755);
    fs::set_permissions(storage.join("recordings"), everyone).unwrap();
    let server = TestServer::start_with(&folder.0, |config| {
        config.storage.url = Some(format!("file://{}", storage.display()));
    })
    .await;
    let id = recorded_call(&server, &folder, json!({})).await;
    wait_until_ready(&server, &id).await;
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(storage.join("recordings")), 0o700);
    assert_eq!(mode(storage.join(format!("recordings/{id}.webm"))), 0o600);
}

#[tokio::test]
async fn a_stored_file_that_vanished_has_no_link() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = recorded_call(&server, &folder, json!({})).await;
    wait_until_ready(&server, &id).await;
    fs::remove_file(folder.0.join(format!("data/storage/recordings/{id}.webm"))).unwrap();
    let record = read_record(&server, &id).await;
    assert_eq!(record["recording_url"], "");
    assert_eq!(record["recording_error"], "the stored file is missing");
}

#[tokio::test]
async fn a_conversion_delays_no_other_recording_and_ends_with_the_deletion() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config: &mut Config| {
        config.recordings.ffmpeg = Some("/usr/bin/stalled".into());
    })
    .await;
    let mp4 = json!({"config": {"recording": {"format": "mp4"}}});
    let converted = recorded_call(&server, &folder, mp4.clone()).await;
    let part = folder.0.join(format!("data/recordings/{converted}.mp4.part"));
    let process = wait_for("the conversion", async || {
        let id: u32 = fs::read_to_string(&part).ok()?.parse().ok()?;
        Some(PathBuf::from(format!("/proc/{id}")))
    })
    .await;
    let other = recorded_call(&server, &folder, json!({})).await;
    wait_until_ready(&server, &other).await;
    assert!(process.exists());
    assert_eq!(metric(&server, "visavis_recordings{state=\"converting\"}").await, 1);
    let path = format!("/v1/ext/conversation/{converted}/recording");
    assert_eq!(server.delete(&path).await.status, 204);
    wait_for("the end of the process", async || (!process.exists()).then_some(())).await;
    wait_for("the files to be removed", async || {
        files(&folder, "recordings").is_empty().then_some(())
    })
    .await;
    // The next start converts what this one did not finish.
    let next = recorded_call(&server, &folder, mp4).await;
    wait_for_metric(&server, "visavis_recordings{state=\"converting\"}", 1).await;
    server.kill().await;
    let server = TestServer::start_with(&folder.0, |config: &mut Config| {
        config.recordings.ffmpeg = Some("/usr/bin/ffmpeg-of-a-test".into());
    })
    .await;
    wait_until_ready(&server, &next).await;
    assert!(folder.0.join(format!("data/storage/recordings/{next}.mp4")).exists());
}

#[tokio::test]
async fn damage_of_a_capture_is_reported() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({"record": true})).await;
    let file = write_capture(&folder.0.join("data"), &id);
    let mut content = fs::read(&file).unwrap();
    let middle = content.len() / 2;
    content[middle..middle + 20].fill(0);
    fs::write(&file, content).unwrap();
    end_call(&server, &id, 1);
    server.app.recorded_hook()(id.parse().unwrap());
    let record = wait_until_ready(&server, &id).await;
    let warning = "A part of the recording is missing: the file that was written during the call \
                   is damaged.";
    assert_eq!(record["warnings"], json!([warning]));
}
