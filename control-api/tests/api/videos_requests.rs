//! What a request for a video may contain, limits, and requests that are sent twice.

use std::fs;

use serde_json::{Value, json};

use crate::fairness::create_other_workspace_key;
use crate::harness::{Reply, TempFolder, TestServer, wait_for};
use crate::interface_rows::field_error;
use crate::videos::{
    SOUND, VIDEO, VIDEOS, body, create, id_of, read, start, start_with, tell, wait_for_no_files,
    wait_for_video,
};

async fn post_with_key(server: &TestServer, key: &str, body: &Value) -> Reply {
    let request = server.request("POST", VIDEO).header("x-api-key", &server.key);
    let request = request.header("idempotency-key", key);
    server.send(request.header("content-type", "application/json").body(body.to_string())).await
}

#[tokio::test]
async fn what_the_server_does_not_have_is_refused_with_the_field() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    let no_character = "cannot change for this avatar, because it was not drawn from a character: \
                        choose another avatar";
    for (extra, field, reason) in [
        (json!({"avatar_key_id": "nobody"}), "avatar_key_id", "is not an existing avatar"),
        (
            json!({"avatar_key_id": "0193a5b0-0000-7000-8000-000000000001"}),
            "avatar_key_id",
            "is not an existing avatar",
        ),
        (json!({"avatar_key_id": "ada", "size": "1280x720"}), "size", no_character),
        (json!({"avatar_key_id": "ada", "background": "#102030"}), "background", no_character),
        (
            json!({"tts": {"provider": "nobody"}}),
            "tts.provider",
            "is not a provider of this server",
        ),
        (
            json!({"tts": {"provider": "elevenlabs"}}),
            "tts.provider",
            "The text-to-speech provider \"elevenlabs\" needs an API key.",
        ),
        (json!({"tts": {"voice_id": "nobody"}}), "tts.voice_id", "is not a voice of this provider"),
        (json!({"text": ""}), "text", "is required if there is no audio"),
        (json!({"audio": SOUND}), "audio", "must not come with a text"),
        (json!({"text": null, "audio": "!"}), "audio", "must be a base64 data URI or base64 text"),
        (json!({"text": null, "audio": "AAAA"}), "audio", "must be WAV, MP3 or Ogg"),
    ] {
        let expected = field_error(field, reason);
        server.post(VIDEO, body(extra)).await.assert_is(400, expected);
    }
    let large = server.post(VIDEO, body(json!({"audio": "x".repeat(14 << 20)}))).await;
    assert_eq!(large.status, 413);
    let request = server.request("POST", VIDEO).header("x-api-key", &server.key);
    let text = request.header("content-type", "text/plain").body("{}");
    let reason = "Content-Type must be application/json or multipart/form-data";
    server.send(text).await.assert_is(415, json!({"error": reason}));
    assert_eq!(server.get(VIDEOS).await.expect_status(200), json!([]));
    wait_for_no_files(&folder).await;
}

#[tokio::test]
async fn a_server_without_models_speaks_no_text() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let reply = server.post(VIDEO, body(json!({}))).await.expect_status(503);
    assert_eq!(reply["reason"], "this server has no models");
    let shown = server.get("/v1/ext/capabilities").await.expect_status(200);
    assert_eq!(shown["video"]["reason"], "This server has no models.");
}

#[tokio::test]
async fn the_number_and_the_size_of_a_workspace_s_videos_are_limited() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    tell(&folder, "stalled", "");
    for _ in 0..100 {
        create(&server, json!({})).await;
    }
    let full = server.post(VIDEO, body(json!({}))).await;
    assert_eq!(full.header("retry-after"), "60");
    let reason = "100 videos of this workspace are waiting to be made";
    full.assert_is(429, json!({"error": "Too many requests", "reason": reason}));
    server.stop().await;

    let folder = TempFolder::new();
    let server = start_with(&folder, |config| config.limits.workspace_bytes = 20_000).await;
    let large = server.post(VIDEO, body(json!({"text": "Hello. ".repeat(2_800)}))).await;
    assert_eq!(large.expect_status(429)["details"][0]["field"], "workspace_bytes");
    // The fake writes its task: the text once more.
    let id = id_of(&create(&server, json!({"text": "Hello. ".repeat(1_500)})).await);
    let record = wait_for_video(&server, &id, "FAILED").await;
    assert_eq!(record["error"], "The workspace has no space left for the video.");
    wait_for_no_files(&folder).await;
}

#[tokio::test]
async fn workspaces_take_turns_at_their_videos() {
    let folder = TempFolder::new();
    let mut server = start(&folder).await;
    let mut other = create_other_workspace_key(&folder).await;
    // The others wait until this one is deleted.
    tell(&folder, "stalled", "");
    let first = id_of(&create(&server, json!({})).await);
    let pid = folder.0.join("data/pid");
    wait_for("the child", async || pid.exists().then_some(())).await;
    let mut mine = Vec::new();
    for _ in 0..4 {
        mine.push(id_of(&create(&server, json!({})).await));
    }
    std::mem::swap(&mut server.key, &mut other);
    let theirs =
        [id_of(&create(&server, json!({})).await), id_of(&create(&server, json!({})).await)];
    std::mem::swap(&mut server.key, &mut other);
    fs::remove_file(folder.0.join("data/stalled")).unwrap();
    server.delete(&format!("{VIDEO}/{first}")).await.expect_status(200);
    wait_for_video(&server, &mine[3], "COMPLETED").await;
    let order = fs::read_to_string(folder.0.join("data/order")).unwrap();
    let expected = [&theirs[0], &mine[0], &theirs[1], &mine[1], &mine[2], &mine[3]];
    assert_eq!(order.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_request_that_is_sent_twice_with_a_key_creates_one_video() {
    let folder = TempFolder::new();
    let server = start(&folder).await;
    let request = body(json!({}));
    let first = post_with_key(&server, "k-1", &request).await.expect_status(201);
    // Fields in another order, and defaults.
    let again = json!({"text": "Hello. How are you?", "size": "512x512", "avatar_key_id": "nia"});
    let second = post_with_key(&server, "k-1", &again).await.expect_status(201);
    assert_eq!(first, second, "with the secret");
    let other = body(json!({"title": "Another"}));
    let conflict = json!({"error": "Idempotency-Key was used for another request"});
    post_with_key(&server, "k-1", &other).await.assert_is(409, conflict);
    let third = post_with_key(&server, "k-2", &request).await.expect_status(201);
    assert_ne!(first["id"], third["id"]);
    for key in ["a b", &"k".repeat(256)] {
        let reply = post_with_key(&server, key, &request).await;
        let reason = "must be 1 to 255 visible ASCII characters";
        reply.assert_is(400, field_error("Idempotency-Key", reason));
    }
    // A request that is refused is not remembered.
    post_with_key(&server, "k-3", &body(json!({"text": ""}))).await.expect_status(400);
    post_with_key(&server, "k-3", &request).await.expect_status(201);
    let (one, two) = tokio::join!(
        post_with_key(&server, "k-4", &request),
        post_with_key(&server, "k-4", &request)
    );
    assert_eq!(one.expect_status(201), two.expect_status(201));
    assert_eq!(server.get(VIDEOS).await.header("x-total-count"), "4");
    let sound = json!({"avatar_key_id": "nia", "audio": SOUND});
    let one = post_with_key(&server, "k-5", &sound).await.expect_status(201);
    let two = post_with_key(&server, "k-5", &sound).await.expect_status(201);
    assert_eq!(one, two);

    // After a day it is another request.
    let sql = "UPDATE idempotency SET created_at = created_at - 86400000000 WHERE key = 'k-1'";
    folder.execute_sql(sql.into()).await;
    let later = post_with_key(&server, "k-1", &other).await.expect_status(201);
    assert_ne!(later["id"], first["id"]);
    let id = id_of(&later);
    server.delete(&format!("{VIDEO}/{id}")).await.expect_status(200);
    let fresh = post_with_key(&server, "k-1", &other).await.expect_status(201);
    assert_ne!(fresh["id"], later["id"], "a deleted video leaves nothing behind");
    read(&server, &id_of(&fresh)).await;
}

#[tokio::test]
async fn old_videos_are_deleted_after_the_retention_time() {
    let folder = TempFolder::new();
    let server = start_with(&folder, |config| config.retention_days = 1).await;
    let old = id_of(&create(&server, json!({})).await);
    let new = id_of(&create(&server, json!({})).await);
    for id in [&old, &new] {
        wait_for_video(&server, id, "COMPLETED").await;
    }
    server.stop().await;
    let age =
        format!("UPDATE video SET finished_at = finished_at - 86400000000 WHERE id = '{old}'");
    folder.execute_sql(age).await;
    let server = start_with(&folder, |config| config.retention_days = 1).await;
    wait_for("the old video to be deleted", async || {
        (crate::recordings::files(&folder, "storage/videos").len() == 2).then_some(())
    })
    .await;
    assert_eq!(server.get(&format!("{VIDEO}/{old}")).await.status, 404);
    read(&server, &new).await;
}
