//! Framing and size of an agent's avatar: what a request may contain, what is drawn, and what calls
//! show. The child process is a fake (`fake_renderer.rs`). Sharing, limits and failures are those
//! of backgrounds.

use serde_json::{Value, json};

use crate::backgrounds::{call, count_stored, drawn, read, wait_for_warnings};
use crate::harness::{TempFolder, TestServer, agent_body};
use crate::interface_rows::field_error;
use crate::photo_avatars::{avatar_body, complete};

const AGENTS: &str = "/v1/ext/agent";
/// Size of the fake's pose set of a variant with the avatar's own background.
const VARIANT_BYTES: usize = include_bytes!("../../../assets/avatars/nia.512.poses").len();
const DRAWING: &str = "The avatar is being drawn in its new framing and size; until then, calls show \
                       it as before.";
const DRAWING_FIRST: &str = "The avatar is being drawn in its framing and size; until then, calls \
                             show it in its own.";
const FAILED_FIRST: &str = "The avatar could not be drawn in its framing and size, so calls show it \
                            in its own: save the agent again to try once more.";
const GONE: &str = "The framing and size are not shown, because what the avatar was drawn from was \
                    deleted: choose another avatar.";

/// The avatars of an agent: `avatar` with these fields.
fn avatars(avatar: &str, fields: Value) -> Value {
    let mut element = json!({"avatar_key_id": avatar});
    element.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"avatars": [element]})
}

async fn save(server: &TestServer, agent: &str, avatar: &str, fields: Value) {
    let path = format!("{AGENTS}/{agent}");
    server.send_json("PATCH", &path, avatars(avatar, fields)).await.expect_status(200);
}

/// Creates an agent and waits for its variant.
async fn drawn_agent(server: &TestServer, avatar: &str, fields: Value) -> String {
    let agent = server.create_agent(avatars(avatar, fields)).await;
    wait_for_warnings(server, &agent, &[]).await;
    agent
}

#[tokio::test]
async fn framing_and_size_are_drawn_when_they_are_not_the_avatar_s_own() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let own = server.create_agent(avatars("nia", json!({}))).await;
    let record = read(&server, &own).await;
    let stored = &record["avatars"][0];
    assert_eq!((&stored["framing"], &stored["size"]), (&json!("close"), &Value::Null));
    for fields in [
        json!({"framing": null, "size": null}),
        json!({"framing": "close", "size": "512x512"}),
        json!({"framing": "close", "size": "512x512", "background": {"type": "keep"}}),
    ] {
        let agent = server.create_agent(avatars("nia", fields)).await;
        assert_eq!(read(&server, &agent).await["warnings"], json!([]));
        assert_eq!(call(&server, &agent).await.id, "nia");
    }
    assert_eq!(count_stored(&folder).await, 0);
    for (i, (fields, framing, size)) in [
        (json!({"framing": "bust"}), "bust", [512, 512]),
        (json!({"size": "1280x720"}), "close", [1280, 720]),
        (json!({"framing": "bust", "size": "720x1280"}), "bust", [720, 1280]),
    ]
    .into_iter()
    .enumerate()
    {
        let agent = drawn_agent(&server, "nia", fields.clone()).await;
        let record = read(&server, &agent).await;
        let stored = &record["avatars"][0];
        assert_eq!((&stored["framing"], &stored["size"]), (&json!(framing), &fields["size"]));
        let requests = drawn(&folder);
        assert_eq!(requests.len(), i + 1);
        let (request, character) = (&requests[i], &requests[i]["subject"]["character"]);
        assert_eq!(
            (&character["framing"], &request["background"]),
            (&json!(framing), &Value::Null)
        );
        assert_eq!(character["size"], json!(size));
        let shown = call(&server, &agent).await;
        assert_eq!((&json!(shown.id), shown.pose_bytes), (&character["id"], Some(VARIANT_BYTES)));
        let same = server.create_agent(avatars("nia", fields)).await;
        assert_eq!(call(&server, &same).await, shown, "agents share it");
    }
    let both = json!({"framing": "bust", "background": {"type": "blur"}});
    drawn_agent(&server, "nia", both).await;
    let request = drawn(&folder).pop().unwrap();
    assert_eq!(request["subject"]["character"]["framing"], "bust");
    assert_eq!(request["background"], json!({"type": "blur", "strength": 0.5}));
    assert_eq!(count_stored(&folder).await, 4);
}

#[tokio::test]
async fn each_bad_value_is_refused_with_its_path() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    for (fields, field, reason) in [
        (json!({"framing": "wide"}), "framing", "must be one of close, bust"),
        (json!({"framing": 1}), "framing", "must be a string"),
        (json!({"size": "512"}), "size", "must be one of 512x512, 1280x720, 720x1280"),
        (json!({"size": [512, 512]}), "size", "must be a string"),
    ] {
        let expected = field_error(&format!("avatars[0].{field}"), reason);
        server.post(AGENTS, agent_body(avatars("nia", fields))).await.assert_is(400, expected);
    }
    let no_character = "cannot change for this avatar, because it was not drawn from a character: \
                        choose another avatar";
    for (fields, field) in [
        (json!({"framing": "bust"}), "framing"),
        (json!({"size": "720x1280"}), "size"),
        (json!({"framing": "bust", "size": "720x1280"}), "framing"),
        (json!({"framing": "bust", "background": {"type": "blur"}}), "background"),
    ] {
        let expected = field_error(&format!("avatars[0].{field}"), no_character);
        server.post(AGENTS, agent_body(avatars("ada", fields))).await.assert_is(400, expected);
    }
    assert_eq!(count_stored(&folder).await, 0);
}

#[tokio::test]
async fn calls_show_the_avatar_as_before_until_the_variant_is_drawn() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    std::fs::write(folder.0.join("again"), "wait").unwrap();
    let agent = server.create_agent(avatars("nia", json!({"size": "1280x720"}))).await;
    assert_eq!(read(&server, &agent).await["warnings"], json!([DRAWING_FIRST]));
    assert_eq!(call(&server, &agent).await.id, "nia");
    std::fs::write(folder.0.join("go"), "").unwrap();
    wait_for_warnings(&server, &agent, &[]).await;
    let wide = call(&server, &agent).await;
    std::fs::remove_file(folder.0.join("go")).unwrap();
    save(&server, &agent, "nia", json!({"size": "720x1280"})).await;
    assert_eq!(read(&server, &agent).await["warnings"], json!([DRAWING]));
    assert_eq!(call(&server, &agent).await, wide);
    std::fs::write(folder.0.join("go"), "").unwrap();
    wait_for_warnings(&server, &agent, &[]).await;
    assert_ne!(call(&server, &agent).await.id, wide.id);
    assert!(
        server.engine.swapped_pose_sets.lock().unwrap().is_empty(),
        "the size of a call is fixed at its start"
    );
    std::fs::write(folder.0.join("again"), "refuse").unwrap();
    let failing = server.create_agent(avatars("nia", json!({"framing": "bust"}))).await;
    wait_for_warnings(&server, &failing, &[FAILED_FIRST]).await;
    assert_eq!(call(&server, &failing).await.id, "nia");
    save(&server, &agent, "nia", json!({"framing": "close"})).await;
    assert_eq!(call(&server, &agent).await.id, "nia");
}

#[tokio::test]
async fn the_own_size_of_a_photo_is_its_resolution() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let photo = async |more: Value| {
        complete(&server, avatar_body("", more)).await["id"].as_str().unwrap().to_owned()
    };
    let wide = photo(json!({"resolution": "1280x720"})).await;
    let own = drawn_agent(&server, &wide, json!({"size": "1280x720"})).await;
    assert_eq!((call(&server, &own).await.id, count_stored(&folder).await), (wide.clone(), 0));
    let other = drawn_agent(&server, &wide, json!({"size": "512x512"})).await;
    assert_ne!(call(&server, &other).await.id, wide);
    let bust = drawn_agent(&server, &wide, json!({"framing": "bust"})).await;
    let requests = drawn(&folder);
    let sizes: Vec<_> =
        requests.iter().map(|request| &request["subject"]["photo"]["size"]).collect();
    assert_eq!(sizes, [&json!([512, 512]), &json!([1280, 720])]);
    // Without its source, it is what it is.
    let lost = photo(json!({"keep_source": false})).await;
    server.create_agent(avatars(&lost, json!({"size": "512x512"}))).await;
    let expected = field_error(
        "avatars[0].size",
        "cannot change for this avatar, because its photo was not kept (keep_source): create the \
         avatar again",
    );
    let body = agent_body(avatars(&lost, json!({"size": "720x1280"})));
    server.post(AGENTS, body).await.assert_is(400, expected);
    // Only a background needs the mask of the person.
    let unmasked = complete(&server, avatar_body("no mask", json!({}))).await;
    drawn_agent(&server, unmasked["id"].as_str().unwrap(), json!({"framing": "bust"})).await;
    server.delete(&format!("/v2/custom-avatar/{wide}")).await.expect_status(200);
    assert_eq!(read(&server, &bust).await["warnings"], json!([GONE]));
}
