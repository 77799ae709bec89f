//! Videos from the request to the link: what is rendered, the record, webhooks, deletion. The child
//! process is a fake (`fake_filmer.rs`), which writes its task instead of a video.

use std::fs;

use control_api::{Config, keys};
use serde_json::{Value, json};

use crate::backgrounds::count_stored;
use crate::harness::{Reply, TempFolder, TestServer, WebhookReceiver, wait_for};
use crate::providers::registry;
use crate::recordings::{files, follow, metric};
use crate::webhooks::check_signature;

pub(crate) const VIDEO: &str = "/v1/ext/video";
pub(crate) const VIDEOS: &str = "/v1/ext/videos";
/// The beginning of a WAV file, in base64.
pub(crate) const SOUND: &str = "UklGRgAAAABXQVZF";

/// A server with models, with a configuration changed by `change`.
pub(crate) async fn start_with(
    folder: &TempFolder,
    change: impl FnOnce(&mut Config),
) -> TestServer {
    let models = registry(None);
    TestServer::start_with(&folder.0, |config| {
        config.registry = Some(models);
        change(config);
    })
    .await
}

pub(crate) async fn start(folder: &TempFolder) -> TestServer {
    start_with(folder, |_| {}).await
}

/// A file by which a test tells the fake in its data folder what to do.
pub(crate) fn tell(folder: &TempFolder, name: &str, content: &str) {
    fs::write(folder.0.join("data").join(name), content).unwrap();
}

/// A request for a video of a text, with `extra` fields.
pub(crate) fn body(extra: Value) -> Value {
    let mut body = json!({"avatar_key_id": "nia", "text": "Hello. How are you?"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Creates a video with `extra` fields.
pub(crate) async fn create(server: &TestServer, extra: Value) -> Value {
    server.post(VIDEO, body(extra)).await.expect_status(201)
}

pub(crate) fn id_of(video: &Value) -> String {
    video["id"].as_str().unwrap().to_owned()
}

pub(crate) async fn read(server: &TestServer, id: &str) -> Value {
    server.get(&format!("{VIDEO}/{id}")).await.expect_status(200)
}

/// The record as soon as its status is `status`.
pub(crate) async fn wait_for_video(server: &TestServer, id: &str, status: &str) -> Value {
    wait_for(status, async || {
        let record = read(server, id).await;
        (record["status"] == status).then_some(record)
    })
    .await
}

/// The task of the fake, which is the content of a completed video.
pub(crate) async fn task_of(server: &TestServer, record: &Value) -> Value {
    let (reply, bytes) = follow(server, "GET", record["url"].as_str().unwrap(), None).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let text = String::from_utf8(bytes[4..].to_vec()).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

pub(crate) async fn wait_for_no_files(folder: &TempFolder) {
    wait_for("the files to be removed", async || files(folder, "videos").is_empty().then_some(()))
        .await;
}

/// Sends a form: fields, and files with their content.
async fn post_form(server: &TestServer, fields: &[(&str, &str)], sounds: &[&[u8]]) -> Reply {
    let mut text = Vec::new();
    for (name, value) in fields {
        text.extend(
            format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
                .bytes(),
        );
    }
    for sound in sounds {
        let head =
            "--x\r\nContent-Disposition: form-data; name=\"audio\"; filename=\"a.wav\"\r\n\r\n";
        text.extend(head.bytes().chain(sound.iter().copied()).chain("\r\n".bytes()));
    }
    text.extend(b"--x--\r\n");
    let request = server.request("POST", VIDEO).header("x-api-key", &server.key);
    let request = request.header("content-type", "multipart/form-data; boundary=x");
    server.send(request.body(text)).await
}

#[tokio::test]
async fn a_text_becomes_a_video_with_its_captions_and_says_so() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = start(&folder).await;
    let extra = json!({
        "captions": "vtt",
        "title": "Greeting",
        "frame_rate": 30,
        "callback_url": hooks.url,
        "meta_data": {"order": 7},
        "tts": {"voice_id": "heart", "custom_pronunciation": [{"word": "a", "pronunciation": "b"}]},
    });
    let created = create(&server, extra).await;
    let id = id_of(&created);
    let secret = created["webhook_secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_"));
    for (field, value) in [
        ("status", json!("QUEUED")),
        ("text", json!("Hello. How are you?")),
        ("url", json!("")),
        ("duration", Value::Null),
        ("size", json!("512x512")),
        ("width", json!(512)),
        ("error", Value::Null),
        ("finished_at", Value::Null),
    ] {
        assert_eq!(created[field], value, "{field}");
    }
    assert_eq!(created["tts"]["provider"], "builtin", "the default provider is stored");

    let record = wait_for_video(&server, &id, "COMPLETED").await;
    assert_eq!(record.get("webhook_secret"), None, "it is shown once");
    for (field, value) in [
        ("progress", json!(1.0)),
        ("duration", json!(1.5)),
        ("warnings", json!(["The voice of a test speaks."])),
        ("waiting", Value::Null),
    ] {
        assert_eq!(record[field], value, "{field}");
    }
    let mut bytes = Vec::new();
    for (field, ending, kind) in [
        ("url", "webm", "video/webm"),
        ("poster_url", "webp", "image/webp"),
        ("captions_url", "vtt", "text/vtt; charset=utf-8"),
    ] {
        let (reply, content) = follow(&server, "GET", record[field].as_str().unwrap(), None).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind), "{field}");
        let name = format!("inline; filename=\"{id}.{ending}\"");
        assert_eq!(reply.header("content-disposition"), name);
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        bytes.push(content.len());
    }
    let bytes = bytes[0];
    assert_eq!(record["bytes"], bytes);
    let (part, _) =
        follow(&server, "GET", record["url"].as_str().unwrap(), Some("bytes=0-3")).await;
    assert_eq!((part.status, part.header("content-length")), (206, "4"));
    let task = task_of(&server, &record).await;
    assert_eq!(task["picture"], json!({"stock": {"id": "nia"}}));
    let speech = json!({"voice": {
        "text": "Hello. How are you?", "provider": "builtin", "voice": "heart", "language": null,
        "pronunciation": [["a", "b"]],
    }});
    assert_eq!((&task["speech"], &task["frame_rate"]), (&speech, &json!(30)));

    let received = hooks.wait_for_first(1).await;
    check_signature(&received[0], secret);
    let event: Value = serde_json::from_str(&received[0].body).unwrap();
    let payload = json!({
        "duration": 1.5, "width": 512, "height": 512, "bytes": bytes, "format": "webm",
        "title": "Greeting", "meta_data": {"order": 7},
    });
    assert_eq!(event["event"], json!({"name": "video_completed", "payload": payload}));
    assert_eq!((&event["type"], &event["video_id"]), (&json!("video"), &json!(id)));
    assert!(event["timestamp"].as_f64().unwrap() > 1.6e9, "{event}");
    wait_for_no_files(&folder).await;
    assert_eq!(metric(&server, "visavis_videos{state=\"completed\"}").await, 1);
    assert_eq!(metric(&server, "visavis_videos_rendered_total").await, 1);
    assert_eq!(metric(&server, "visavis_video_cpu_seconds_total").await, 2);
}

#[tokio::test]
async fn equal_requests_have_equal_seeds() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    let mut seeds = Vec::new();
    for extra in [json!({}), json!({"title": "Another"}), json!({"text": "Hello. How is it?"})] {
        let id = id_of(&create(&server, extra).await);
        let record = wait_for_video(&server, &id, "COMPLETED").await;
        seeds.push(task_of(&server, &record).await["seed"].clone());
    }
    assert_eq!(seeds[0], seeds[1]);
    assert_ne!(seeds[0], seeds[2]);
}

#[tokio::test]
async fn a_sound_is_uploaded_as_a_file_or_as_base64() {
    let folder = TempFolder::new();
    // No voice is needed.
    let server = TestServer::start(&folder).await;
    let wav = b"RIFF\0\0\0\0WAVE";
    for sound in [SOUND.to_owned(), format!("data:audio/wav;base64,{SOUND}")] {
        let body = json!({"avatar_key_id": "nia", "audio": sound});
        let created = server.post(VIDEO, body).await.expect_status(201);
        assert_eq!((&created["text"], &created["tts"]), (&Value::Null, &Value::Null));
        let record = wait_for_video(&server, &id_of(&created), "COMPLETED").await;
        assert!(task_of(&server, &record).await["speech"]["audio"]["file"].is_string());
    }
    let fields = [
        ("avatar_key_id", "nia"),
        ("frame_rate", "20"),
        ("meta_data", "{\"a\": [1]}"),
        ("title", "Form"),
    ];
    let created = post_form(&server, &fields, &[wav]).await.expect_status(201);
    assert_eq!((&created["frame_rate"], &created["meta_data"]), (&json!(20), &json!({"a": [1]})));
    wait_for_video(&server, &id_of(&created), "COMPLETED").await;

    let invalid = async |fields: &[(&str, &str)], sounds: &[&[u8]]| {
        let reply = post_form(&server, fields, sounds).await.expect_status(400);
        let detail = &reply["details"][0];
        format!("{} {}", detail["field"].as_str().unwrap(), detail["reason"].as_str().unwrap())
    };
    let avatar = ("avatar_key_id", "nia");
    assert_eq!(invalid(&[], &[wav]).await, "avatar_key_id is required");
    assert_eq!(invalid(&[avatar], &[]).await, "text is required if there is no audio");
    assert_eq!(invalid(&[avatar], &[wav, wav]).await, "audio must be given once");
    assert_eq!(invalid(&[avatar], &[b""]).await, "audio must not be empty");
    assert_eq!(invalid(&[avatar], &[b"%PDF-1.7"]).await, "audio must be WAV, MP3 or Ogg");
    assert_eq!(invalid(&[avatar, ("tts", "x")], &[wav]).await, "tts must be JSON");
    let large = vec![0; 50 * 1024 * 1024 + 1];
    assert_eq!(post_form(&server, &[avatar], &[&large]).await.status, 413);
    wait_for_no_files(&folder).await;
}

#[tokio::test]
async fn a_size_or_a_colour_is_drawn_first_and_shared() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    let portrait = json!({"size": "720x1280"});
    let first = create(&server, portrait.clone()).await;
    assert_eq!((&first["width"], &first["height"]), (&json!(720), &json!(1280)));
    let record = wait_for_video(&server, &id_of(&first), "COMPLETED").await;
    assert!(task_of(&server, &record).await["picture"]["set"]["file"].is_string());
    assert_eq!(count_stored(&folder).await, 1);
    let second = create(&server, portrait).await;
    let colour = create(&server, json!({"background": "#102000"})).await;
    for video in [&second, &colour] {
        wait_for_video(&server, &id_of(video), "COMPLETED").await;
    }
    assert_eq!(count_stored(&folder).await, 2);
    // A change of an agent removes variants that nothing shows.
    let background = json!({"type": "colour", "colour": "#304000"});
    let agent = server
        .create_agent(json!({"avatars": [{"avatar_key_id": "nia", "background": background}]}))
        .await;
    let plain = json!({"avatars": [{"avatar_key_id": "nia", "background": {"type": "keep"}}]});
    let path = format!("/v1/ext/agent/{agent}");
    server.send_json("PATCH", &path, plain).await.expect_status(200);
    assert_eq!(count_stored(&folder).await, 2, "those of videos stay");
    for video in [&first, &second, &colour] {
        server.delete(&format!("{VIDEO}/{}", id_of(video))).await.expect_status(200);
    }
    wait_for("the variants to be removed", async || {
        (count_stored(&folder).await == 0).then_some(())
    })
    .await;
    // Blue 1 and 2: the fake renderer crashes, or refuses.
    let broken = create(&server, json!({"background": "#102002"})).await;
    let record = wait_for_video(&server, &id_of(&broken), "FAILED").await;
    assert_eq!(record["error"], "The avatar cannot be drawn in this size.");
}

#[tokio::test]
async fn mp4_and_burned_captions_are_written_by_ffmpeg() {
    let folder = TempFolder::new();
    let server = start_with(&folder, |config| {
        config.recordings.ffmpeg = Some("/usr/bin/ffmpeg".into());
    })
    .await;
    for (extra, expected, kind) in [
        (json!({"format": "mp4"}), "mp4 false", "video/mp4"),
        (json!({"captions": "burned"}), "webm true", "video/webm"),
        (json!({"captions": "burned", "format": "mp4"}), "mp4 true", "video/mp4"),
    ] {
        let id = id_of(&create(&server, extra.clone()).await);
        let record = wait_for_video(&server, &id, "COMPLETED").await;
        assert_eq!(record["captions_url"], "", "{extra}");
        let url = record["url"].as_str().unwrap();
        let (reply, bytes) = follow(&server, "GET", url, None).await;
        assert_eq!(reply.header("content-type"), kind, "{extra}");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(text.lines().last(), Some(expected), "{extra}");
    }
    let shown = server.get("/v1/ext/capabilities").await.expect_status(200);
    let expected = json!({
        "available": true, "reason": null,
        "formats": ["webm", "mp4"], "captions": ["none", "vtt", "burned"],
    });
    assert_eq!(shown["video"], expected);
}

#[tokio::test]
async fn lists_are_paged_searched_and_filtered() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    tell(&folder, "damaged", "x");
    let failed = id_of(&create(&server, json!({"title": "First"})).await);
    wait_for_video(&server, &failed, "FAILED").await;
    let mut ids = vec![failed];
    for title in ["Second", "Third"] {
        let id = id_of(&create(&server, json!({"title": title})).await);
        wait_for_video(&server, &id, "COMPLETED").await;
        ids.push(id);
    }
    for (query, expected) in [
        ("", vec![2, 1, 0]),
        ("?perpage=1&offset=1", vec![1]),
        ("?search=SECOND", vec![1]),
        ("?search=nia", vec![2, 1, 0]),
        ("?search=fail", vec![0]),
        ("?type=completed", vec![2, 1]),
        ("?type=failed", vec![0]),
        ("?type=queued", vec![]),
    ] {
        let reply = server.get(&format!("{VIDEOS}{query}")).await;
        let items = reply.json();
        let found: Vec<&str> =
            items.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
        let expected: Vec<&str> = expected.into_iter().map(|i: usize| ids[i].as_str()).collect();
        assert_eq!(found, expected, "{query}");
        assert!(items.as_array().unwrap().iter().all(|one| one.get("text").is_none()));
    }
    let total = server.get(&format!("{VIDEOS}?perpage=1")).await;
    assert_eq!(total.header("x-total-count"), "3");
    let reason = "must be one of queued, processing, completed, failed";
    let reply = server.get(&format!("{VIDEOS}?type=COMPLETE")).await.expect_status(400);
    assert_eq!(reply["details"], json!([{"field": "type", "reason": reason}]));
}

#[tokio::test]
async fn a_video_is_deleted_in_any_status_with_its_files() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = start(&folder).await;
    let not_found = json!({"message": "Video not found"});
    let delete = async |id: &str| {
        let path = format!("{VIDEO}/{id}");
        let done = json!({"id": id, "message": "Video deleted successfully"});
        server.delete(&path).await.assert_is(200, done);
        server.delete(&path).await.assert_is(404, not_found.clone());
        server.get(&path).await.assert_is(404, not_found.clone());
    };
    let completed = id_of(&create(&server, json!({"callback_url": hooks.url})).await);
    let record = wait_for_video(&server, &completed, "COMPLETED").await;
    wait_for("the webhook", async || (server.webhook_count("done").await == 1).then_some(())).await;
    delete(&completed).await;
    assert_eq!(server.webhook_count("done").await, 0, "its webhooks are deleted");
    let (reply, _) = follow(&server, "GET", record["url"].as_str().unwrap(), None).await;
    reply.assert_is(404, not_found.clone());
    wait_for("the stored files to be removed", async || {
        files(&folder, "storage/videos").is_empty().then_some(())
    })
    .await;

    tell(&folder, "stalled", "");
    let processing = id_of(&create(&server, json!({})).await);
    let queued = id_of(&create(&server, json!({})).await);
    let shown = wait_for("the progress", async || {
        let record = read(&server, &processing).await;
        (record["progress"].as_f64().unwrap() > 0.2).then_some(record)
    })
    .await;
    assert_eq!(shown["status"], "PROCESSING");
    assert_eq!(read(&server, &queued).await["status"], "QUEUED");
    delete(&queued).await;
    let pid = wait_for("the child", async || {
        fs::read_to_string(folder.0.join("data/pid")).ok().filter(|pid| !pid.is_empty())
    })
    .await;
    delete(&processing).await;
    wait_for("the child to end", async || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    })
    .await;
    wait_for_no_files(&folder).await;
    wait_for("the rows to be removed", async || {
        (metric(&server, "visavis_videos{state=\"deleting\"}").await == 0).then_some(())
    })
    .await;
    assert_eq!(server.get(VIDEOS).await.expect_status(200), json!([]));
}

#[tokio::test]
async fn videos_of_another_workspace_do_not_exist() {
    let folder = TempFolder::new();
    let mut server = start(&folder).await;
    let id = id_of(&create(&server, json!({})).await);
    let data = folder.0.join("data");
    let url = folder.database_url().await;
    server.key = keys::create(&data, url.as_deref(), "other").await.unwrap();
    let not_found = json!({"message": "Video not found"});
    server.get(&format!("{VIDEO}/{id}")).await.assert_is(404, not_found.clone());
    server.delete(&format!("{VIDEO}/{id}")).await.assert_is(404, not_found);
    assert_eq!(server.get(VIDEOS).await.expect_status(200), json!([]));
}
