//! Custom avatars from photos: the check in the request, what is kept, and previews. The child
//! process is a fake (`fake_renderer.rs`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{TempFolder, TestServer, wait_for};
use crate::interface_rows::field_error;

const PATH: &str = "/v2/custom-avatar";
const PREVIEW_PATH: &str = "/v2/custom-avatar/photo";
/// Maximum number of checks that run or wait.
const MAX_REQUESTED: usize = 10;

/// A data URI of a picture of 8 × 8 pixels with this word, which selects the behavior of the fake.
pub(crate) fn photo(word: &str) -> String {
    const HEADER: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08";
    let file = [HEADER, word.as_bytes()].concat();
    format!("data:image/png;base64,{}", STANDARD.encode(file))
}

pub(crate) fn avatar_body(word: &str, more: Value) -> Value {
    let mut body = json!({"avatar_name": "Zoe", "gender": "female", "input_image": photo(word)});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The record of a finished avatar.
pub(crate) async fn complete(server: &TestServer, body: Value) -> Value {
    let created = server.post(PATH, body).await.expect_status(200);
    assert_eq!(created["status"], "QUEUED");
    let path = format!("{PATH}/{}", created["id"].as_str().unwrap());
    let done = wait_for("the drawing", async || {
        let record = server.get(&path).await.expect_status(200);
        (record["status"] == "COMPLETED").then_some(record)
    });
    done.await
}

/// Whether a file in this folder contains these bytes.
pub(crate) fn is_in_a_file(folder: &std::path::Path, needle: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_in_a_file(&path, needle);
        }
        std::fs::read(path).unwrap().windows(needle.len()).any(|bytes| bytes == needle)
    })
}

/// Whether the document has a response with exactly the fields of this one.
fn is_documented(path: &str, status: u16, body: &Value) -> bool {
    let document: Value = serde_json::from_str(&control_api::openapi::document_json()).unwrap();
    let responses = &document["paths"][path]["post"]["responses"];
    let schema = &responses[status.to_string()]["content"]["application/json"]["schema"];
    let resolve = |schema: &Value| {
        let reference = schema["$ref"].as_str().unwrap_or("#/absent");
        document.pointer(&reference[1..]).cloned().unwrap_or_default()
    };
    let schema = resolve(schema);
    let choices = match schema["anyOf"].as_array() {
        Some(choices) => choices.iter().map(resolve).collect(),
        None => vec![schema],
    };
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    choices.iter().any(|choice| {
        choice["properties"].as_object().is_some_and(|properties| {
            properties.len() == names.len()
                && names.iter().all(|name| properties.contains_key(*name))
        })
    })
}

#[tokio::test]
async fn a_photo_becomes_an_avatar_and_its_crop_is_kept_encrypted() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let word = "a-person-who-smiles";
    let done = complete(&server, avatar_body(word, json!({"consent": true}))).await;
    assert_eq!(
        (&done["progress"], &done["character"], &done["has_source"], &done["output"]["width"]),
        (&json!(100), &Value::Null, &json!(true), &json!(512))
    );
    assert!(done["consent_at"].is_string(), "{done}");
    let agent = server.create_agent(json!({"avatars": [{"avatar_key_id": done["id"]}]})).await;
    let agent = server.get(&format!("/v1/ext/agent/{agent}")).await.expect_status(200);
    assert_eq!(agent["avatars"][0]["persona_name"], "Zoe");
    let uri = photo(word);
    let image = uri.split_once(',').unwrap().1;
    for text in [word, &image[40..]] {
        assert!(!is_in_a_file(&folder.0, text.as_bytes()), "{text} is stored as it is");
    }
    let path = format!("{PATH}/{}", done["id"].as_str().unwrap());
    server.delete(&path).await.expect_status(200);
    server.get(&path).await.expect_status(404);
}

#[tokio::test]
async fn without_keep_source_nothing_remains_of_the_photo() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let done = complete(&server, avatar_body("", json!({"keep_source": false}))).await;
    assert_eq!((&done["has_source"], &done["consent_at"]), (&json!(false), &Value::Null));
}

/// Parts of what the store holds of an avatar: of its crop (encrypted), its poses and its preview.
/// A part may lie across the border of two pages, so there are several of each.
async fn stored_parts(folder: &TempFolder, id: &str) -> Vec<String> {
    let mut connection = folder.connect().await;
    let columns: [Option<String>; 3] = {
        let row: (Option<String>, Option<String>, Option<String>) =
            sqlx::query_as("SELECT source, poses, output FROM custom_avatar WHERE id = $1")
                .bind(id)
                .fetch_one(&mut connection)
                .await
                .unwrap();
        row.into()
    };
    connection.close().await.unwrap();
    let columns = columns.iter().flatten();
    columns.flat_map(|text| (1..6).map(|i| text[i * text.len() / 6..][..48].to_owned())).collect()
}

/// How many of these parts the database file and its log contain. Read on another thread, because
/// the server under test runs on this one.
async fn count_in_database(folder: &TempFolder, parts: &[String]) -> usize {
    let (folder, parts) = (folder.0.join("data"), parts.to_vec());
    let count = move || {
        let files = ["visavis.db", "visavis.db-wal"].map(|name| {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        parts.iter().filter(|part| files.iter().any(|file| file.contains(part.as_str()))).count()
    };
    tokio::task::spawn_blocking(count).await.unwrap()
}

async fn wait_until_erased(folder: &TempFolder, parts: &[String]) {
    let erased = async || (count_in_database(folder, parts).await == 0).then_some(());
    wait_for("the erasure", erased).await;
}

#[tokio::test]
async fn a_deleted_avatar_leaves_nothing_in_the_files_of_the_database() {
    let folder = TempFolder::new();
    if folder.database_url().await.is_some() {
        return;
    }
    let server = TestServer::start(&folder).await;
    let word = "somebody ".repeat(20_000);
    let done = complete(&server, avatar_body(&word, json!({}))).await;
    let id = done["id"].as_str().unwrap();
    let background = json!({"type": "colour", "colour": "#336600"});
    let avatars = json!([{"avatar_key_id": id, "background": background}]);
    let agent = server.create_agent(json!({"avatars": avatars})).await;
    let agent = format!("/v1/ext/agent/{agent}");
    let set = wait_for("the background", async || {
        let record = server.get(&agent).await.expect_status(200);
        let mut connection = folder.connect().await;
        let set: String = sqlx::query_scalar("SELECT id FROM custom_avatar WHERE base_avatar = $1")
            .bind(id)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        (record["warnings"] == json!([])).then_some(set)
    });
    let set = stored_parts(&folder, &set.await).await;
    let parts = stored_parts(&folder, id).await;
    assert_eq!((set.len(), parts.len()), (10, 15));
    assert!(count_in_database(&folder, &set).await > 5);
    assert!(count_in_database(&folder, &parts).await > 10);
    // A reader needs the log when the avatar is deleted.
    let mut reader = folder.connect().await;
    sqlx::raw_sql("BEGIN; SELECT id FROM custom_avatar").execute(&mut reader).await.unwrap();
    server.delete(&format!("{PATH}/{id}")).await.expect_status(200);
    reader.close().await.unwrap();
    wait_until_erased(&folder, &[parts, set].concat()).await;
}

#[tokio::test]
async fn without_keep_source_the_crop_leaves_the_files_of_the_database() {
    let folder = TempFolder::new();
    if folder.database_url().await.is_some() {
        return;
    }
    let server = TestServer::start(&folder).await;
    let word = format!("drawn later{}", " somebody".repeat(20_000));
    let body = avatar_body(&word, json!({"keep_source": false}));
    let created = server.post(PATH, body).await.expect_status(200);
    let id = created["id"].as_str().unwrap();
    let crop = stored_parts(&folder, id).await;
    assert_eq!(crop.len(), 5);
    assert!(count_in_database(&folder, &crop).await > 3);
    std::fs::write(folder.0.join("go"), b"").unwrap();
    wait_until_erased(&folder, &crop).await;
    let done = wait_for("the drawing", async || {
        let record = server.get(&format!("{PATH}/{id}")).await.expect_status(200);
        (record["status"] == "COMPLETED").then_some(record)
    });
    assert_eq!(done.await["has_source"], false);
}

#[tokio::test]
async fn a_photo_that_cannot_be_used_is_refused_at_once_and_not_stored() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let no_face = json!({"error": "no face was found", "reason": "no face"});
    let too_complex = json!({
        "error": "the picture takes too much time or memory to read: save it with fewer pixels",
        "reason": "too complex",
    });
    let no_networks = json!({
        "error": "Service unavailable",
        "reason": "face.tflite is missing: run `make setup`; without it, a photo needs `landmarks`",
    });
    for path in [PATH, PREVIEW_PATH] {
        let body = |word: &str| match path {
            PATH => avatar_body(word, json!({})),
            _ => json!({"input_image": photo(word)}),
        };
        for (word, status, expected) in [
            ("nobody", 400, no_face.clone()),
            ("crash", 400, too_complex.clone()),
            ("no networks", 503, no_networks.clone()),
            ("nonsense", 500, json!({"error": "The photo could not be checked"})),
        ] {
            server.post(path, body(word)).await.assert_is(status, expected.clone());
            if status != 500 {
                assert!(is_documented(path, status, &expected), "{path}: {status} {expected}");
            }
        }
        let mut invalid = body("");
        invalid["landmarks"] = json!({"chin": 3});
        let expected = field_error("landmarks.chin", "must be [x, y]");
        server.post(path, invalid).await.assert_is(400, expected.clone());
        assert!(is_documented(path, 400, &expected), "{path}: {expected}");
    }
    let none: [Value; 0] = [];
    assert_eq!(server.get("/v2/custom-avatars").await.expect_status(200), json!(none));
}

#[tokio::test]
async fn consent_is_required_if_the_operator_says_so() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, |config| config.require_consent = true).await;
    let expected =
        field_error("consent", "must be true: this server requires the consent of the person");
    for consent in [json!({}), json!({"consent": false}), json!({"consent": null})] {
        server.post(PATH, avatar_body("", consent)).await.assert_is(400, expected.clone());
    }
    complete(&server, avatar_body("", json!({"consent": true}))).await;
    let drawn = json!({"avatar_name": "D", "gender": "male", "character": {}});
    server.post(PATH, drawn).await.expect_status(200);
}

#[tokio::test]
async fn a_preview_shows_each_pose_once_and_stores_nothing() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let body = json!({"input_image": photo(""), "show": ["blink", "aa", "blink"]});
    let preview = server.post(PREVIEW_PATH, body).await.expect_status(200);
    let picture = format!(
        "data:image/webp;base64,{}",
        STANDARD.encode(include_bytes!("../../../assets/avatars/mei.512.webp"))
    );
    assert_eq!(
        preview,
        json!({
            "landmarks": [[0.25, 0.5]],
            "box": [0.1, 0.2, 0.3, 0.4],
            "warnings": ["soft"],
            "pictures": {"aa": picture, "blink": picture},
        })
    );
    for (name, value, reason) in [
        ("show", json!(["smile"]), None),
        ("input_image", json!("https://example.com/a.png"), Some("must be a base64 data URI")),
        ("resolution", json!("4k"), Some("must be one of 512x512, 1280x720")),
        ("pose", json!(1), Some("is unknown")),
    ] {
        let mut body = json!({"input_image": photo("")});
        body[name] = value;
        let refused = server.post(PREVIEW_PATH, body).await.expect_status(400);
        let field = refused["details"][0]["field"].as_str().unwrap_or_default();
        assert!(field.starts_with(name), "{refused}");
        if let Some(reason) = reason {
            assert_eq!(refused["details"][0]["reason"], reason);
        }
    }
    let none: [Value; 0] = [];
    assert_eq!(server.get("/v2/custom-avatars").await.expect_status(200), json!(none));
}

#[tokio::test]
async fn too_many_checks_at_once_are_refused() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let signal = folder.0.join("go");
    let body = json!({"input_image": photo(&format!("wait:{}", signal.display()))});
    // One more than may wait: it is refused while all others wait for the signal.
    let requests = (0..=MAX_REQUESTED).map(async |_| {
        let reply = server.post(PREVIEW_PATH, body.clone()).await;
        if reply.status == 503 {
            assert_eq!(reply.header("retry-after"), "2");
            std::fs::write(&signal, b"").unwrap();
        }
        reply.status
    });
    let mut statuses = join_all(requests).await;
    statuses.sort_unstable();
    assert_eq!((&statuses[..MAX_REQUESTED], statuses[MAX_REQUESTED]), (&[200; 10][..], 503));
}
