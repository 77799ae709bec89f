//! Videos on a server whose child process, disk, storage or voice fails, and that is restarted.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{TempFolder, TestServer, WebhookReceiver, wait_for};
use crate::providers::registry;
use crate::recordings::{metric, wait_for_metric};
use crate::servers::{expire_lease, start_two_servers_with};
use crate::videos::{
    SOUND, VIDEO, create, id_of, read, start, task_of, tell, wait_for_no_files, wait_for_video,
};
use crate::webhooks::check_signature;

#[tokio::test]
async fn a_child_that_fails_is_started_again_at_most_five_times() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = start(&folder).await;
    tell(&folder, "crashes", "4444");
    let id = id_of(&create(&server, json!({})).await);
    wait_for_video(&server, &id, "COMPLETED").await;
    tell(&folder, "crashes", "55555");
    let extra = json!({"callback_url": hooks.url, "title": "T"});
    let created = create(&server, extra).await;
    let record = wait_for_video(&server, &id_of(&created), "FAILED").await;
    let error = "The video cannot be made: the process that writes it failed.";
    assert_eq!((&record["error"], &record["url"]), (&json!(error), &json!("")));
    let received = hooks.wait_for_first(1).await;
    check_signature(&received[0], created["webhook_secret"].as_str().unwrap());
    let event: Value = serde_json::from_str(&received[0].body).unwrap();
    let payload = json!({"error": error, "title": "T", "meta_data": null});
    assert_eq!(event["event"], json!({"name": "video_failed", "payload": payload}));
    wait_for_no_files(&folder).await;
}

#[tokio::test]
async fn damaged_input_fails_with_a_sentence_and_a_full_disk_is_waited_for() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    tell(&folder, "damaged", "1");
    let sound = json!({"avatar_key_id": "nia", "audio": SOUND});
    let id = id_of(&server.post(VIDEO, sound).await.expect_status(201));
    let record = wait_for_video(&server, &id, "FAILED").await;
    assert_eq!(record["error"], "The audio is damaged.");
    tell(&folder, "full", &"x".repeat(12));
    let id = id_of(&create(&server, json!({})).await);
    let waits = wait_for("the full disk", async || {
        let record = read(&server, &id).await;
        (record["waiting"] != Value::Null).then_some(record)
    })
    .await;
    assert_eq!(waits["waiting"], "The video is made later: the disk is full.");
    assert_eq!(waits["status"], "PROCESSING");
    let record = wait_for_video(&server, &id, "COMPLETED").await;
    assert_eq!((&record["waiting"], &record["error"]), (&Value::Null, &Value::Null));
    wait_for_no_files(&folder).await;
}

#[tokio::test]
async fn a_video_goes_on_after_a_restart_and_its_progress_never_falls() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    tell(&folder, "stalled", "");
    let sound = json!({"avatar_key_id": "nia", "audio": SOUND});
    let id = id_of(&server.post(VIDEO, sound).await.expect_status(201));
    let before = wait_for("the progress", async || {
        read(&server, &id).await["progress"].as_f64().filter(|progress| *progress > 0.0)
    })
    .await;
    server.kill().await;
    fs::remove_file(folder.0.join("data/stalled")).unwrap();
    let left = folder.0.join("data/videos/0193a5b0-0000-7000-8000-000000000001");
    fs::create_dir_all(&left).unwrap();
    let server = start(&folder).await;
    assert!(read(&server, &id).await["progress"].as_f64().unwrap() >= before);
    wait_for_video(&server, &id, "COMPLETED").await;
    wait_for_no_files(&folder).await;
}

#[tokio::test]
async fn a_storage_that_fails_is_waited_for() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    let storage = folder.0.join("data/storage/videos");
    fs::create_dir_all(storage.parent().unwrap()).unwrap();
    // A file where the folder should be.
    fs::write(&storage, b"").unwrap();
    let id = id_of(&create(&server, json!({})).await);
    let waits = wait_for("the storage", async || {
        let record = read(&server, &id).await;
        (record["waiting"] != Value::Null).then_some(record)
    })
    .await;
    assert_eq!((&waits["status"], &waits["url"]), (&json!("PROCESSING"), &json!("")));
    let expected = "The video waits for the storage: the folder of the storage is missing.";
    assert_eq!(waits["waiting"], expected);
    wait_for_metric(&server, "visavis_video_upload_failures_total", 2).await;
    assert_eq!(metric(&server, "visavis_videos_waiting").await, 1);
    fs::remove_file(&storage).unwrap();
    let record = wait_for_video(&server, &id, "COMPLETED").await;
    let file = storage.join(format!("{id}.webm"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&file).unwrap();
    let record = read(&server, record["id"].as_str().unwrap()).await;
    assert_eq!(record["error"], "The stored file is missing.");
}

/// A vendor with the interface of OpenAI.
#[derive(Clone, Default)]
struct VoiceServer {
    /// The statuses of its next responses; further texts are spoken.
    statuses: Arc<Mutex<VecDeque<u16>>>,
    /// The texts of all requests.
    texts: Arc<Mutex<Vec<String>>>,
}

impl VoiceServer {
    /// Starts it and returns its address.
    async fn start(&self) -> String {
        async fn speak(State(server): State<VoiceServer>, body: String) -> impl IntoResponse {
            let request: Value = serde_json::from_str(&body).unwrap();
            server.texts.lock().unwrap().push(request["input"].as_str().unwrap().to_owned());
            let status = server.statuses.lock().unwrap().pop_front().unwrap_or(200);
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("content-type", "audio/pcm")], vec![1_u8; 4_800])
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback_service(post(speak).with_state(self.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }
}

#[tokio::test]
async fn a_hosted_voice_speaks_each_sentence_once() {
    let folder = TempFolder::new();
    let vendor = VoiceServer::default();
    vendor.statuses.lock().unwrap().extend([200, 500]);
    let models = registry(Some(&vendor.start().await));
    let server = TestServer::start_with(&folder.0, |config| config.registry = Some(models)).await;
    // After the sentences, the child process crashes once.
    tell(&folder, "crashes", "1");
    let text = "One. Two.\n\nThree.";
    let extra = json!({"text": text, "tts": {"provider": "openai"}});
    let id = id_of(&create(&server, extra).await);
    let record = wait_for_video(&server, &id, "COMPLETED").await;
    let task = task_of(&server, &record).await;
    assert_eq!((&task["sentences"], &task["speech"]["spool"]["text"]), (&json!(3), &json!(text)));
    assert_eq!(*vendor.texts.lock().unwrap(), ["One.", "Two.", "Two.", "Three."]);

    vendor.statuses.lock().unwrap().extend([401; 5]);
    let id = id_of(&create(&server, json!({"tts": {"provider": "openai"}})).await);
    let record = wait_for_video(&server, &id, "FAILED").await;
    let error = record["error"].as_str().unwrap();
    let start = "The video cannot be made: the voice of openai failed: ";
    assert!(error.starts_with(start) && error.ends_with('.'), "{error}");
    assert!(!error.ends_with(".."), "{error}");
}

#[tokio::test]
async fn a_lost_server_s_texts_are_taken_over_and_its_sounds_wait() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let models = registry(None);
    let started = start_two_servers_with(&folders, |config| {
        config.registry = Some(Arc::clone(&models));
    });
    let Some([one, other]) = started.await else { return };
    folders.iter().for_each(|folder| tell(folder, "stalled", ""));
    let text = id_of(&create(&one, json!({})).await);
    // Either server may take it.
    let is_at = |folder: &TempFolder| folder.0.join("data/pid").exists();
    wait_for("a server to work", async || folders.iter().any(is_at).then_some(())).await;
    let (dies, lives) = if is_at(&folders[0]) { (one, other) } else { (other, one) };
    let sound = json!({"avatar_key_id": "nia", "audio": SOUND});
    let sound = id_of(&dies.post(VIDEO, sound).await.expect_status(201));
    dies.kill().await;
    for folder in &folders {
        fs::remove_file(folder.0.join("data/stalled")).unwrap();
    }
    expire_lease(&folders, "video", &text).await;
    wait_for_video(&lives, &text, "COMPLETED").await;
    let waits = read(&lives, &sound).await;
    assert_eq!(waits["waiting"], "The audio is on a server that is not running.");
    assert_eq!(waits["status"], "QUEUED");
}
