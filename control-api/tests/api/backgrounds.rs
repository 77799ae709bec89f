//! Backgrounds of avatars: what a request may contain, drawing, sharing, limits, and what calls
//! show. The child process is a fake (`fake_renderer.rs`).

use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{TempFolder, TestServer, agent_body, wait_for};
use crate::interface_rows::field_error;
use crate::photo_avatars::{avatar_body, complete, is_in_a_file, photo};

const AGENTS: &str = "/v1/ext/agent";
/// Maximum number of backgrounds in use.
const MAX_IN_USE: usize = 20;
/// Colours that select the behavior of the fake, as in `fake_renderer.rs`.
const REFUSE: &str = "#000002";
const WAIT: &str = "#000007";
/// Sizes of the fake's pose sets: for a colour, and for another background.
const COLOUR_BYTES: usize = include_bytes!("../../../assets/avatars/nia.512.poses").len();
const OTHER_BYTES: usize = include_bytes!("../../../assets/avatars/leo.512.poses").len();

const DRAWING: &str = "The new background is being drawn; until then, calls show the previous one.";
const DRAWING_FIRST: &str =
    "The background is being drawn; until then, calls show the avatar's own background.";
const FAILED: &str = "The new background could not be drawn, so calls show the previous one: save \
                      the agent again to try once more.";
const FAILED_FIRST: &str = "The background could not be drawn, so calls show the avatar's own \
                            background: save the agent again to try once more.";
const GONE: &str = "The background is not shown, because what it was drawn from was deleted: choose \
                    another avatar or background.";

fn colour(colour: &str) -> Value {
    json!({"type": "colour", "colour": colour})
}

/// The avatars of an agent: one in front of a background.
fn avatars(avatar: &str, background: &Value) -> Value {
    json!({"avatars": [{"avatar_key_id": avatar, "background": background}]})
}

async fn save(server: &TestServer, agent: &str, avatar: &str, background: &Value) {
    let path = format!("{AGENTS}/{agent}");
    server.send_json("PATCH", &path, avatars(avatar, background)).await.expect_status(200);
}

pub(crate) async fn read(server: &TestServer, agent: &str) -> Value {
    server.get(&format!("{AGENTS}/{agent}")).await.expect_status(200)
}

/// Waits until an agent has these warnings.
pub(crate) async fn wait_for_warnings(server: &TestServer, agent: &str, warnings: &[&str]) {
    wait_for(&format!("{warnings:?}"), async || {
        (read(server, agent).await["warnings"] == json!(warnings)).then_some(())
    })
    .await;
}

/// Creates an agent and waits for its background.
async fn drawn_agent(server: &TestServer, avatar: &str, background: &Value) -> String {
    let agent = server.create_agent(avatars(avatar, background)).await;
    wait_for_warnings(server, &agent, &[]).await;
    agent
}

/// What a call of an agent shows.
#[derive(Debug, PartialEq)]
pub(crate) struct Shown {
    /// The id by which calls share it.
    pub(crate) id: String,
    /// Size of its pose set; `None`: the engine's own.
    pub(crate) pose_bytes: Option<usize>,
    /// Picture of the page where the user joins.
    pub(crate) picture: String,
}

pub(crate) async fn call(server: &TestServer, agent: &str) -> Shown {
    let body = json!({"agentId": agent});
    let pass = server.post("/v1/auth/conversation", body).await.expect_status(200);
    join(server, &pass).await
}

async fn join(server: &TestServer, pass: &Value) -> Shown {
    let path = format!("/api/offer?token={}", pass["token"].as_str().unwrap());
    let offer = json!({"sdp": "v=0", "type": "offer"}).to_string();
    let request = server.request("POST", &path).header("content-type", "application/json");
    server.send(request.body(offer)).await.expect_status(200);
    let offers = server.engine.offers.lock().unwrap();
    let config = &offers.last().unwrap().config;
    Shown {
        id: config.avatar.avatar_key_id.clone(),
        pose_bytes: config.pose_set.as_ref().map(|poses| poses.data.len()),
        picture: pass["display_picture"].as_str().unwrap().to_owned(),
    }
}

/// The variants that were drawn, in their order, as the renderer received them.
pub(crate) fn drawn(folder: &TempFolder) -> Vec<Value> {
    let lines = std::fs::read_to_string(folder.0.join("variants.jsonl")).unwrap_or_default();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Number of stored backgrounds.
pub(crate) async fn count_stored(folder: &TempFolder) -> i64 {
    let mut connection = folder.connect().await;
    let count =
        sqlx::query_scalar("SELECT COUNT(*) FROM custom_avatar WHERE base_avatar IS NOT NULL")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    connection.close().await.unwrap();
    count
}

#[tokio::test]
async fn each_type_is_drawn_and_shown_in_calls() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let own = server.create_agent(avatars("nia", &Value::Null)).await;
    let own = call(&server, &own).await;
    assert_eq!((own.id.as_str(), own.pose_bytes), ("nia", None));
    for (given, stored, requested, bytes) in [
        (
            json!({"type": "colour", "colour": "#AA3366"}),
            json!({"type": "colour", "colour": "#aa3366"}),
            json!({"type": "colour", "colour": "#aa3366"}),
            COLOUR_BYTES,
        ),
        (
            json!({"type": "gradient", "from": "#102030", "to": "#ffffff"}),
            json!({"type": "gradient", "from": "#102030", "to": "#ffffff", "angle": 180}),
            json!({"type": "gradient", "from": "#102030", "to": "#ffffff", "angle": 180.0}),
            OTHER_BYTES,
        ),
        (
            json!({"type": "blur", "strength": null}),
            json!({"type": "blur", "strength": 0.5}),
            json!({"type": "blur", "strength": 0.5}),
            OTHER_BYTES,
        ),
    ] {
        let agent = drawn_agent(&server, "nia", &given).await;
        let record = read(&server, &agent).await;
        assert_eq!(record["avatars"][0]["background"], stored);
        let request = drawn(&folder).pop().unwrap();
        assert_eq!(request["background"], requested);
        let character = &request["subject"]["character"];
        assert_eq!(character["size"], json!([512, 512]));
        assert!(character["file"].as_str().unwrap().contains("Nia"), "{character}");
        let shown = call(&server, &agent).await;
        assert_eq!((&json!(shown.id), shown.pose_bytes), (&character["id"], Some(bytes)));
        assert_ne!(shown.picture, own.picture);
    }
    for own_background in [json!({"type": "keep"}), Value::Null] {
        let agent = server.create_agent(avatars("nia", &own_background)).await;
        let record = read(&server, &agent).await;
        assert_eq!(record["avatars"][0]["background"], own_background);
        assert_eq!(record["warnings"], json!([]));
        assert_eq!(call(&server, &agent).await, own);
    }
    assert_eq!(drawn(&folder).len(), 3);
    // They are no custom avatars.
    let none: [Value; 0] = [];
    assert_eq!(server.get("/v2/custom-avatars").await.expect_status(200), json!(none));
    let id = drawn(&folder)[0]["subject"]["character"]["id"].as_str().unwrap().to_owned();
    let path = format!("/v2/custom-avatar/{id}");
    server.get(&path).await.expect_status(404);
    server.delete(&path).await.expect_status(404);
    let refused =
        server.post(AGENTS, agent_body(avatars(&id, &Value::Null))).await.expect_status(400);
    assert_eq!(refused["details"][0]["field"], "avatars[0].avatar_key_id");
}

#[tokio::test]
async fn each_bad_value_is_refused_with_its_path() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let colour_reason = "must be a colour such as #c0906f";
    for (background, field, reason) in [
        (json!({"type": 7}), ".type", "must be a string"),
        (json!({}), ".type", "is required"),
        (json!({"type": "video"}), ".type", "must be one of keep, colour, gradient, blur, image"),
        (json!({"type": "blur", "radius": 3}), ".radius", "is unknown"),
        (json!({"type": "colour"}), ".colour", "is required"),
        (json!({"type": "colour", "colour": "red"}), ".colour", colour_reason),
        (json!({"type": "gradient", "from": "#000000", "to": "#12345"}), ".to", colour_reason),
        (json!({"type": "gradient", "to": "#000000"}), ".from", "is required"),
        (
            json!({"type": "gradient", "from": "#000000", "to": "#ffffff", "angle": 361}),
            ".angle",
            "must be between 0 and 360",
        ),
        (json!({"type": "blur", "strength": 1.5}), ".strength", "must be between 0 and 1"),
        (json!({"type": "blur", "strength": "0.5"}), ".strength", "must be a number"),
        (
            json!({"type": "keep", "colour": "#000000"}),
            ".colour",
            "is not allowed for the type keep",
        ),
        (json!({"type": "image"}), ".image", "is required"),
        (
            json!({"type": "image", "image": "https://example.com/a.png"}),
            ".image",
            "must be a base64 data URI",
        ),
        (
            json!({"type": "image", "image": "data:image/gif;base64,R0lGODlh"}),
            ".image",
            "must be PNG, JPEG or WebP",
        ),
        (json!({"type": "image", "image": photo("nobody")}), ".image", "no face was found"),
        (
            json!({"type": "image", "image": photo("crash")}),
            ".image",
            "the picture takes too much time or memory to read: save it with fewer pixels",
        ),
        (
            json!({"type": "image", "image": "sha256:12"}),
            ".image",
            "must be sha256: and 64 hexadecimal digits",
        ),
        (
            json!({"type": "image", "image": format!("sha256:{}", "0".repeat(64))}),
            ".image",
            "is not a picture that an agent of this workspace uses: upload it as a data URI",
        ),
    ] {
        let expected = field_error(&format!("avatars[0].background{field}"), reason);
        let body = agent_body(avatars("nia", &background));
        server.post(AGENTS, body).await.assert_is(400, expected);
    }
    let mut second = agent_body(json!({}));
    second["avatars"] = json!([
        {"avatar_key_id": "nia"},
        {"avatar_key_id": "nia", "background": {"type": "colour", "colour": 1}},
    ]);
    let expected = field_error("avatars[1].background.colour", "must be a string");
    server.post(AGENTS, second).await.assert_is(400, expected);
    assert_eq!(count_stored(&folder).await, 0);
}

#[tokio::test]
async fn a_picture_is_uploaded_once_and_then_referred_to_by_its_hash() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    // A body of an agent may have 2 MiB without its pictures.
    let word = format!("a-view-of-the-sea{}", "x".repeat(3 << 20));
    let uploaded = json!({"type": "image", "image": photo(&word)});
    let first = drawn_agent(&server, "nia", &uploaded).await;
    let large = agent_body(json!({"agent_system_prompt": word}));
    server.post(AGENTS, large).await.assert_is(413, json!({"error": "Request body is too large"}));
    let record = read(&server, &first).await;
    let reference = record["avatars"][0]["background"].clone();
    let hash = reference["image"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert_eq!((hash.len(), &reference["type"]), (64, &json!("image")));
    // The child's file: "small a-view-of-the-seaxxx".
    let small_file = "c21hbGwgYS12aWV3LW9mLXRoZS1zZWF4eHg=";
    assert_eq!(drawn(&folder)[0]["background"], json!({"type": "image", "image": small_file}));
    for text in ["a-view-of-the-sea", small_file] {
        assert!(!is_in_a_file(&folder.0.join("data"), text.as_bytes()), "{text} is stored");
    }
    // The record can be sent back, and another avatar can stand in front of the same picture.
    let path = format!("{AGENTS}/{first}");
    server.send_json("PUT", &path, record.clone()).await.expect_status(200);
    assert_eq!(read(&server, &first).await["warnings"], json!([]));
    assert_eq!(drawn(&folder).len(), 1);
    let body = json!({"avatar_name": "Zoe", "gender": "female", "character": {"seed": 0}});
    let zoe = complete(&server, body).await["id"].as_str().unwrap().to_owned();
    let second = drawn_agent(&server, &zoe, &reference).await;
    let [_, request] = &drawn(&folder)[..] else { panic!("{:?}", drawn(&folder)) };
    assert_eq!(request["background"]["image"], small_file);
    assert!(request["subject"]["character"]["file"].as_str().unwrap().contains("Zoe"));
    // The picture is known as long as an agent uses it.
    server.delete(&path).await.expect_status(200);
    server.create_agent(avatars("nia", &reference)).await;
    save(&server, &second, &zoe, &Value::Null).await;
    assert_eq!(count_stored(&folder).await, 1);
    let agents = server.get(AGENTS).await.expect_status(200);
    for agent in agents.as_array().unwrap() {
        let path = format!("{AGENTS}/{}", agent["id"].as_str().unwrap());
        server.delete(&path).await.expect_status(200);
    }
    assert_eq!(count_stored(&folder).await, 0);
    let refused = server.post(AGENTS, agent_body(avatars("nia", &reference))).await;
    let refused = refused.expect_status(400);
    assert_eq!(refused["details"][0]["field"], "avatars[0].background.image");
}

#[tokio::test]
async fn agents_share_a_background_with_the_same_content() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let one = drawn_agent(&server, "nia", &colour("#336699")).await;
    let other = server.create_agent(avatars("nia", &colour("#336699"))).await;
    assert_eq!(read(&server, &other).await["warnings"], json!([]), "it is finished already");
    let shown = call(&server, &one).await;
    assert_eq!(call(&server, &other).await, shown);
    assert_eq!((drawn(&folder).len(), count_stored(&folder).await), (1, 1));
    server.delete(&format!("{AGENTS}/{one}")).await.expect_status(200);
    assert_eq!(call(&server, &other).await, shown);
    save(&server, &other, "nia", &json!({"type": "keep"})).await;
    assert_eq!(count_stored(&folder).await, 0);
    assert_eq!(call(&server, &other).await.id, "nia");
}

#[tokio::test]
async fn a_workspace_uses_twenty_backgrounds_at_most() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let number = |n: usize| colour(&format!("#aa{n:02x}00"));
    let mut agents = Vec::new();
    for n in 0..MAX_IN_USE {
        agents.push(drawn_agent(&server, "nia", &number(n)).await);
    }
    let expected = field_error(
        "avatars[0].background",
        "is one too many: the agents of a workspace may use 20 variants of avatars (background, \
         framing, size); use one of them, or remove one from another agent",
    );
    let one_more = agent_body(avatars("nia", &number(MAX_IN_USE)));
    server.post(AGENTS, one_more.clone()).await.assert_is(400, expected);
    // One of them again, and another one instead of one of them.
    let shared = server.create_agent(avatars("nia", &number(0))).await;
    save(&server, &agents[1], "nia", &number(MAX_IN_USE)).await;
    wait_for_warnings(&server, &agents[1], &[]).await;
    server.delete(&format!("{AGENTS}/{shared}")).await.expect_status(200);
    server.delete(&format!("{AGENTS}/{}", agents[0])).await.expect_status(200);
    server.post(AGENTS, one_more).await.expect_status(200);
    assert_eq!(count_stored(&folder).await, MAX_IN_USE as i64 - 1);
}

#[tokio::test]
async fn calls_show_the_previous_background_until_the_new_one_is_drawn() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(avatars("nia", &colour(WAIT))).await;
    assert_eq!(read(&server, &agent).await["warnings"], json!([DRAWING_FIRST]));
    let own = call(&server, &agent).await;
    assert_eq!((own.id.as_str(), own.pose_bytes), ("nia", None));
    // The first one is not wanted any more: its drawing stops.
    save(&server, &agent, "nia", &json!({"type": "blur"})).await;
    wait_for_warnings(&server, &agent, &[]).await;
    let blurred = call(&server, &agent).await;
    assert_eq!(blurred.pose_bytes, Some(OTHER_BYTES));
    let body = json!({"agentId": agent});
    let early = server.post("/v1/auth/conversation", body).await.expect_status(200);

    save(&server, &agent, "nia", &colour(WAIT)).await;
    assert_eq!(read(&server, &agent).await["warnings"], json!([DRAWING]));
    assert_eq!(call(&server, &agent).await, blurred);
    // Another change of the agent, or of the background, does not end that.
    let path = format!("{AGENTS}/{agent}");
    server.send_json("PATCH", &path, json!({"agent_name": "B"})).await.expect_status(200);
    save(&server, &agent, "nia", &colour("#000107")).await;
    save(&server, &agent, "nia", &colour(WAIT)).await;
    assert_eq!(call(&server, &agent).await, blurred);
    assert_eq!(join(&server, &early).await, blurred);
    std::fs::write(folder.0.join("go"), "").unwrap();
    wait_for_warnings(&server, &agent, &[]).await;
    let plain = call(&server, &agent).await;
    assert_eq!(plain.pose_bytes, Some(COLOUR_BYTES));
    assert_ne!(plain.id, blurred.id);
    assert_eq!(count_stored(&folder).await, 1, "the previous one is not needed any more");
    assert_eq!(join(&server, &early).await.id, plain.id, "its own one is gone");
    assert!(
        server.engine.swapped_pose_sets.lock().unwrap().is_empty(),
        "calls keep what they show"
    );
    // Another avatar does not show the previous one.
    std::fs::remove_file(folder.0.join("go")).unwrap();
    let body = json!({"avatar_name": "Zoe", "gender": "female", "character": {"seed": 0}});
    let zoe = complete(&server, body).await["id"].as_str().unwrap().to_owned();
    save(&server, &agent, &zoe, &colour(WAIT)).await;
    assert_eq!(read(&server, &agent).await["warnings"], json!([DRAWING_FIRST]));
    assert_eq!(call(&server, &agent).await.id, zoe);
}

#[tokio::test]
async fn a_failed_background_is_reported_and_tried_again_on_request() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(avatars("nia", &colour(REFUSE))).await;
    wait_for_warnings(&server, &agent, &[FAILED_FIRST]).await;
    assert_eq!(call(&server, &agent).await.id, "nia");
    save(&server, &agent, "nia", &colour("#336699")).await;
    wait_for_warnings(&server, &agent, &[]).await;
    let shown = call(&server, &agent).await;
    save(&server, &agent, "nia", &colour(REFUSE)).await;
    wait_for_warnings(&server, &agent, &[FAILED]).await;
    assert_eq!(call(&server, &agent).await, shown);
    let count = drawn(&folder).len();
    let path = format!("{AGENTS}/{agent}");
    server.send_json("PATCH", &path, json!({"agent_name": "B"})).await.expect_status(200);
    wait_for("another try", async || (drawn(&folder).len() > count).then_some(())).await;
    wait_for_warnings(&server, &agent, &[FAILED]).await;
    assert_eq!(call(&server, &agent).await, shown);
}

#[tokio::test]
async fn only_avatars_that_can_be_drawn_again_change_their_background() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let mut ids = Vec::new();
    for (word, more) in [
        ("", json!({"resolution": "1280x720"})),
        ("", json!({"keep_source": false})),
        ("no mask", json!({})),
    ] {
        let photo = complete(&server, avatar_body(word, more)).await;
        ids.push(photo["id"].as_str().unwrap().to_owned());
    }
    let agent = drawn_agent(&server, &ids[0], &json!({"type": "blur", "strength": 1})).await;
    let request = drawn(&folder).pop().unwrap();
    let photo = &request["subject"]["photo"];
    assert_eq!((&photo["name"], &photo["gender"]), (&json!("Zoe"), &json!("female")));
    assert_eq!(photo["source"]["size"], json!([1280, 720]));
    assert_eq!(call(&server, &agent).await.pose_bytes, Some(OTHER_BYTES));
    for (id, reason) in [
        (
            "ada",
            "cannot change for this avatar, because it was not drawn from a character: choose \
             another avatar",
        ),
        (
            ids[1].as_str(),
            "cannot change for this avatar, because its photo was not kept (keep_source): create \
             the avatar again",
        ),
        (
            ids[2].as_str(),
            "cannot change for this avatar, because the network that finds the person on the photo \
             was not installed: run `make setup` on the server and create the avatar again",
        ),
    ] {
        let expected = field_error("avatars[0].background", reason);
        let body = agent_body(avatars(id, &json!({"type": "blur"})));
        server.post(AGENTS, body).await.assert_is(400, expected);
        server.create_agent(avatars(id, &json!({"type": "keep"}))).await;
    }
}

#[tokio::test]
async fn the_backgrounds_of_a_deleted_avatar_are_deleted() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let zoe = complete(&server, avatar_body("", json!({}))).await;
    let zoe = zoe["id"].as_str().unwrap();
    let agent = drawn_agent(&server, zoe, &colour("#336699")).await;
    let waiting = server.create_agent(avatars(zoe, &colour(WAIT))).await;
    wait_for("the drawing", async || (drawn(&folder).len() == 2).then_some(())).await;
    server.delete(&format!("/v2/custom-avatar/{zoe}")).await.expect_status(200);
    assert_eq!(count_stored(&folder).await, 0);
    for agent in [&agent, &waiting] {
        assert_eq!(read(&server, agent).await["warnings"], json!([GONE]));
        // The agents can still change.
        let path = format!("{AGENTS}/{agent}");
        server.send_json("PATCH", &path, json!({"agent_name": "B"})).await.expect_status(200);
    }
    // The queue goes on.
    drawn_agent(&server, "nia", &colour("#336699")).await;
}

#[tokio::test]
async fn a_template_keeps_its_picture_and_draws_nothing() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let background = json!({"type": "image", "image": photo("a-view-of-the-sea")});
    let mut template = json!({"template_name": "t", "template_system_prompt": "p"});
    template["avatars"] = avatars("nia", &background)["avatars"].clone();
    let created = server.post("/v1/ext/template", template.clone()).await.expect_status(201);
    let path = format!("/v1/ext/template/{}", created["id"].as_str().unwrap());
    let record = server.get(&path).await.expect_status(200);
    let reference = record["avatars"][0]["background"].clone();
    assert!(reference["image"].as_str().unwrap().starts_with("sha256:"), "{record}");
    server.send_json("PUT", &path, record).await.expect_status(200);
    assert_eq!(count_stored(&folder).await, 0);
    let from_template = async |avatar: &str| {
        let body = json!({"template_id": created["id"], "avatar_key_id": avatar});
        server.post("/v1/ext/agentbytemplate", body).await
    };
    let agent = from_template("nia").await.expect_status(200)["id"].as_str().unwrap().to_owned();
    wait_for_warnings(&server, &agent, &[]).await;
    assert_eq!(read(&server, &agent).await["avatars"][0]["background"], reference);
    // "small a-view-of-the-sea"
    let small_file = "c21hbGwgYS12aWV3LW9mLXRoZS1zZWE=";
    assert_eq!(drawn(&folder)[0]["background"]["image"], small_file);
    let refused = from_template("ada").await.expect_status(400);
    assert_eq!(refused["details"][0]["field"], "avatars[0].background");
    template["avatars"][0]["background"]["image"] = json!(format!("sha256:{}", "1".repeat(64)));
    let refused = server.post("/v1/ext/template", template).await.expect_status(400);
    assert_eq!(refused["details"][0]["field"], "avatars[0].background.image");
    // The second avatar of an agent keeps its picture too: it is drawn when it becomes the first.
    let two = json!([{"avatar_key_id": "ada"}, {"avatar_key_id": "nia", "background": reference}]);
    let second = server.create_agent(json!({"avatars": two})).await;
    server.delete(&format!("{AGENTS}/{agent}")).await.expect_status(200);
    assert_eq!(count_stored(&folder).await, 0);
    save(&server, &second, "nia", &reference).await;
    wait_for_warnings(&server, &second, &[]).await;
    assert_eq!(drawn(&folder)[1]["background"]["image"], small_file);
}
