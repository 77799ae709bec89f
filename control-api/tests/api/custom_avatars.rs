//! Custom avatars: the list of parameters, previews, and the life cycle of a bake. The child
//! process that draws is a fake (`fake_renderer.rs`).

use control_api::keys;
use serde_json::{Value, json};

use crate::harness::{Reply, TempFolder, TestServer, agent_body, wait_for};
use crate::servers::{expire_lease, start_two_servers};

const PATH: &str = "/v2/custom-avatar";
const FAILED_MESSAGE: &str = "the avatar could not be drawn; see the server's log";

/// Behavior of the fake renderer, indexed by the character's seed, as in `fake_renderer.rs`.
const BEHAVIOURS: [&str; 7] = ["draw", "crash", "refuse", "nonsense", "half", "shares", "torn"];

fn avatar_body(behaviour: &str) -> Value {
    let seed = BEHAVIOURS.iter().position(|known| *known == behaviour).unwrap();
    json!({
        "avatar_name": "Zoe",
        "gender": "female",
        "voice": "awb",
        "character": {"age": 0.4, "headscarf": "#336699", "seed": seed},
        "rest": {"smile": 0.5},
    })
}

async fn queue_bake(server: &TestServer, behaviour: &str) -> String {
    let created = server.post(PATH, avatar_body(behaviour)).await.expect_status(200);
    assert_eq!(
        (&created["status"], &created["progress"], &created["output"]),
        (&json!("QUEUED"), &json!(0), &Value::Null)
    );
    created["id"].as_str().unwrap().to_owned()
}

/// The record as soon as `wanted` holds for it.
async fn wait_for_record(server: &TestServer, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    wait_for("the drawing", async || {
        let record = server.get(&format!("{PATH}/{id}")).await.expect_status(200);
        wanted(&record).then_some(record)
    })
    .await
}

async fn wait_for_end(server: &TestServer, id: &str) -> Value {
    wait_for_record(server, id, |record| {
        ["COMPLETED", "FAILED"].contains(&record["status"].as_str().unwrap())
    })
    .await
}

async fn send_offer(server: &TestServer, token: &str) -> Reply {
    let body = json!({"sdp": "v=0", "type": "offer"}).to_string();
    let request = server.request("POST", &format!("/api/offer?token={token}"));
    server.send(request.header("content-type", "application/json").body(body)).await
}

/// Size in bytes of the pose set in the last offer, if it has one.
fn offered_pose_bytes(server: &TestServer) -> Option<usize> {
    offered_poses(server).map(|(length, _)| length)
}

/// Size in bytes and completeness in percent of that pose set.
fn offered_poses(server: &TestServer) -> Option<(usize, u8)> {
    let offers = server.engine.offers.lock().unwrap();
    offers.last().unwrap().config.pose_set.as_ref().map(|face| (face.data.len(), face.completeness))
}

/// The pose sets that the engine received as replacements: avatar, size in bytes, completeness in
/// percent.
fn swapped_pose_sets(server: &TestServer) -> Vec<(String, usize, u8)> {
    let swapped = server.engine.swapped_pose_sets.lock().unwrap();
    swapped.iter().map(|(id, face)| (id.clone(), face.data.len(), face.completeness)).collect()
}

#[tokio::test]
async fn a_drawn_person_is_a_face_for_agents_until_it_is_deleted() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = queue_bake(&server, "draw").await;
    let done = wait_for_end(&server, &id).await;
    assert_eq!(
        (&done["status"], &done["progress"], &done["error"]),
        (&json!("COMPLETED"), &json!(100), &Value::Null)
    );
    assert_eq!(
        (&done["output"]["width"], &done["output"]["height"], &done["output"]["fps"]),
        (&json!(512), &json!(512), &json!(25))
    );
    assert!(
        done["output"]["preview_url"].as_str().unwrap().starts_with("data:image/webp;base64,UklGR")
    );
    // The parameters are returned as they were given, so that a client can send them again.
    let given = avatar_body("draw");
    assert!(["character", "rest", "voice"].iter().all(|name| done[name] == given[name]), "{done}");
    assert_eq!(server.get("/v2/custom-avatars").await.expect_status(200), json!([done]));

    let named = json!({"avatars": [{"avatar_key_id": id}]});
    let agent_id = server.create_agent(named.clone()).await;
    let path = format!("/v1/ext/agent/{agent_id}");
    assert_eq!(server.get(&path).await.expect_status(200)["avatars"][0]["persona_name"], "Zoe");
    let short = json!({"name": "S", "system_prompt": "P", "avatar_key_id": id});
    server.post("/v1/agent/api", short).await.expect_status(200);
    let template = json!({
        "template_name": "t",
        "template_system_prompt": "p",
        "avatars": [{"avatar_key_id": id}],
    });
    let template = server.post("/v1/ext/template", template).await.expect_status(201)["id"].clone();
    server
        .post("/v1/ext/agentbytemplate", json!({"template_id": template, "avatar_key_id": id}))
        .await
        .expect_status(200);

    let pass =
        server.post("/v1/auth/conversation", json!({"agentId": agent_id})).await.expect_status(200);
    assert_eq!(
        (&pass["avatar_name"], &pass["display_picture"]),
        (&json!("Zoe"), &done["output"]["preview_url"])
    );
    send_offer(&server, pass["token"].as_str().unwrap()).await.expect_status(200);
    assert_eq!(
        offered_pose_bytes(&server),
        Some(include_bytes!("../../../assets/avatars/mei.512.poses").len())
    );
    let stock = server.create_agent(json!({})).await;
    let (_, token) = server.create_conversation(&stock).await;
    send_offer(&server, &token).await.expect_status(200);
    assert_eq!(offered_pose_bytes(&server), None, "the engine has the stock faces");

    assert_eq!(server.get(&path).await.expect_status(200)["warnings"], json!([]));
    server.delete(&format!("{PATH}/{id}")).await.expect_status(200);
    server.get(&format!("{PATH}/{id}")).await.expect_status(404);
    let warnings = server.get(&path).await.expect_status(200)["warnings"].to_string();
    assert!(warnings.contains("that of the agent was deleted"), "{warnings}");
    let refused = server.post("/v1/ext/agent", agent_body(named)).await.expect_status(400);
    assert_eq!(
        refused["details"],
        json!([{"field": "avatars[0].avatar_key_id", "reason": "is not an existing avatar"}])
    );
    // Agents with this avatar do not change: their calls show another avatar.
    server.send_json("PATCH", &path, json!({"agent_name": "Renamed"})).await.expect_status(200);
    let (_, token) = server.create_conversation(&agent_id).await;
    send_offer(&server, &token).await.expect_status(200);
    assert_eq!(offered_pose_bytes(&server), None);
}

const LEO_BYTES: usize = include_bytes!("../../../assets/avatars/leo.512.poses").len();
const NIA_BYTES: usize = include_bytes!("../../../assets/avatars/nia.512.poses").len();
const MEI_BYTES: usize = include_bytes!("../../../assets/avatars/mei.512.poses").len();

#[tokio::test]
async fn a_partial_pose_set_is_used_and_calls_switch_to_each_better_one() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = queue_bake(&server, "shares").await;
    let early =
        server.post("/v1/ext/agent", agent_body(json!({"avatars": [{"avatar_key_id": id}]}))).await;
    assert!(
        early.status == 400 || !swapped_pose_sets(&server).is_empty(),
        "no pose set exists yet"
    );
    let record = wait_for_record(&server, &id, |record| record["output"].is_object()).await;
    assert_eq!(
        (&record["status"], &record["output"]["width"]),
        (&json!("PROCESSING"), &json!(512))
    );
    let picture = &record["output"]["preview_url"];
    let preview = server.post("/v2/character/preview", json!({"character": {"seed": 1}})).await;
    assert_eq!(preview.status, 200, "a preview does not wait for a bake");
    assert_eq!(
        server.get(&format!("{PATH}/{id}")).await.expect_status(200)["status"],
        "PROCESSING"
    );
    let created = server.create_agent(json!({"avatars": [{"avatar_key_id": id}]})).await;
    let join = async || {
        let pass = server
            .post("/v1/auth/conversation", json!({"agentId": created}))
            .await
            .expect_status(200);
        assert_eq!((&pass["avatar_name"], &pass["display_picture"]), (&json!("Zoe"), picture));
        send_offer(&server, pass["token"].as_str().unwrap()).await.expect_status(200);
        offered_poses(&server).unwrap()
    };
    assert_eq!(join().await, (LEO_BYTES, 20));
    std::fs::write(folder.0.join("more"), "").unwrap();
    wait_for("the better one", async || (swapped_pose_sets(&server).len() == 2).then_some(()))
        .await;
    assert_eq!(join().await, (NIA_BYTES, 50));
    std::fs::write(folder.0.join("all"), "").unwrap();
    assert_eq!(wait_for_end(&server, &id).await["status"], "COMPLETED");
    wait_for("the last one", async || (swapped_pose_sets(&server).len() == 3).then_some(())).await;
    assert_eq!(
        swapped_pose_sets(&server),
        [(LEO_BYTES, 20), (NIA_BYTES, 50), (MEI_BYTES, 100)].map(|(n, share)| (
            id.clone(),
            n,
            share
        ))
    );
    assert_eq!(join().await, (MEI_BYTES, 100));
}

#[tokio::test]
async fn a_part_outlives_a_restart_but_not_a_failure() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = queue_bake(&server, "torn").await;
    std::fs::write(folder.0.join("more"), "").unwrap();
    // The two partial sets may arrive so close together that the second one is read twice.
    let nia = |server: &TestServer| {
        swapped_pose_sets(server).last() == Some(&(id.clone(), NIA_BYTES, 50))
    };
    wait_for("the second part", async || nia(&server).then_some(())).await;
    let created = server.create_agent(json!({"avatars": [{"avatar_key_id": id}]})).await;
    server.kill().await;
    let server = TestServer::start(&folder).await;
    // Both partial sets are read again, the less complete one first. It does not replace a more
    // complete one.
    wait_for("both parts again", async || nia(&server).then_some(())).await;
    let (_, token) = server.create_conversation(&created).await;
    send_offer(&server, &token).await.expect_status(200);
    assert_eq!(offered_poses(&server), Some((NIA_BYTES, 50)));
    std::fs::write(folder.0.join("all"), "").unwrap();
    let record = wait_for_end(&server, &id).await;
    assert_eq!((&record["status"], &record["output"]), (&json!("FAILED"), &Value::Null));
    let (_, token) = server.create_conversation(&created).await;
    send_offer(&server, &token).await.expect_status(200);
    assert_eq!(offered_pose_bytes(&server), None, "calls show another avatar and report it");
}

#[tokio::test]
async fn a_failing_bake_affects_only_its_own_job() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let mut ids = Vec::new();
    for does in ["crash", "refuse", "nonsense", "draw"] {
        ids.push(queue_bake(&server, does).await);
    }
    for id in &ids[..3] {
        let record = wait_for_end(&server, id).await;
        assert_eq!(
            (&record["status"], &record["error"], &record["output"]),
            (&json!("FAILED"), &json!(FAILED_MESSAGE), &Value::Null)
        );
        let refused = server
            .post("/v1/ext/agent", agent_body(json!({"avatars": [{"avatar_key_id": id}]})))
            .await;
        assert_eq!(refused.status, 400);
    }
    assert_eq!(wait_for_end(&server, &ids[3]).await["status"], "COMPLETED");
    wait_for("its face", async || (!swapped_pose_sets(&server).is_empty()).then_some(())).await;
    assert_eq!(
        swapped_pose_sets(&server),
        [(ids[3].clone(), MEI_BYTES, 100)],
        "an invalid pose set is not used in calls"
    );
}

#[tokio::test]
async fn workspaces_take_turns_and_none_orders_without_end() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let database = folder.database_url().await;
    let mut other =
        keys::create(&folder.0.join("data"), database.as_deref(), "other").await.unwrap();
    // One bake runs until the test lets it continue, so that the others wait.
    let stuck = queue_bake(&server, "shares").await;
    wait_for_record(&server, &stuck, |record| record["output"].is_object()).await;
    let mut mine = Vec::new();
    for _ in 0..7 {
        mine.push(queue_bake(&server, "half").await);
    }
    let refused = server.post(PATH, avatar_body("draw")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "60"));
    assert_eq!(
        refused.expect_status(429),
        json!({
            "error": "Too many requests",
            "reason": "8 avatars of this workspace are waiting to be drawn",
        })
    );
    // The workspace that ordered last has had no turn yet.
    std::mem::swap(&mut server.key, &mut other);
    let theirs = queue_bake(&server, "draw").await;
    std::mem::swap(&mut server.key, &mut other);
    for word in ["more", "all"] {
        std::fs::write(folder.0.join(word), "").unwrap();
    }
    std::mem::swap(&mut server.key, &mut other);
    assert_eq!(wait_for_end(&server, &theirs).await["status"], "COMPLETED");
    std::mem::swap(&mut server.key, &mut other);
    for id in &mine[1..] {
        assert_eq!(
            server.get(&format!("{PATH}/{id}")).await.expect_status(200)["status"],
            "QUEUED"
        );
    }
}

#[tokio::test]
async fn a_restart_goes_on_where_the_drawing_was() {
    let folder = TempFolder::new();
    for gently in [true, false] {
        let server = TestServer::start(&folder).await;
        let id = queue_bake(&server, "half").await;
        let record = wait_for_record(&server, &id, |record| record["progress"] == 50).await;
        assert_eq!(record["status"], "PROCESSING");
        if gently {
            server.stop().await
        } else {
            server.kill().await
        }
        let server = TestServer::start(&folder).await;
        let record = server.get(&format!("{PATH}/{id}")).await.expect_status(200);
        assert!(record["progress"].as_i64().unwrap() >= 50, "{record}");
        assert_eq!(wait_for_end(&server, &id).await["status"], "COMPLETED");
        server.stop().await;
    }
}

#[tokio::test]
async fn deleting_stops_the_drawing_and_leaves_nothing() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let stuck = queue_bake(&server, "half").await;
    let next = queue_bake(&server, "draw").await;
    wait_for_record(&server, &stuck, |record| record["progress"] == 50).await;
    assert_eq!(
        server.get(&format!("{PATH}/{next}")).await.expect_status(200)["status"],
        "QUEUED",
        "one at a time"
    );
    server.delete(&format!("{PATH}/{stuck}")).await.expect_status(200);
    assert_eq!(wait_for_end(&server, &next).await["status"], "COMPLETED");
    wait_for("an empty folder", async || {
        std::fs::read_dir(folder.0.join("data/bakes")).unwrap().next().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_character_error_is_reported_with_its_path() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let body = json!({
        "avatar_name": "x".repeat(201), "gender": "female", "voice": 1,
        "character": {"eyes": {"size": 9}, "skin": {"colour": "red"}, "wings": 2},
        "rest": {"smile": "NaN", "mouth": {"jaw": -1e300}},
    });
    let refused = server.post(PATH, body).await.expect_status(400);
    assert_eq!(
        refused,
        json!({"error": "Invalid request body", "details": [
            {"field": "avatar_name", "reason": "must be at most 200 characters"},
            {"field": "character.skin.colour", "reason": "must be a colour such as #c0906f"},
            {"field": "character.eyes.size", "reason": "must be between 0.8 and 1.3"},
            {"field": "character.wings", "reason": "is unknown"},
            {"field": "rest.mouth.jaw", "reason": "must be 0"},
            {"field": "rest.smile", "reason": "must be a number"},
            {"field": "voice", "reason": "must be a string"},
        ]})
    );
    let odd = json!({
        "avatar_name": "Zo\u{7}e", "gender": "female", "voice": "nobody", "character": {},
        "charakter": {}, "size": null,
    });
    let refused = server.post(PATH, odd).await.expect_status(400);
    assert_eq!(
        refused["details"],
        json!([
            {"field": "charakter", "reason": "is unknown"},
            {"field": "size", "reason": "is unknown"},
            {"field": "avatar_name", "reason": "must not contain control characters"},
            {"field": "voice", "reason": "must be one of heart, slt, rms, awb, kal16, kal"},
        ])
    );
    // Numbers that JSON cannot represent or that are out of range, and a body that is too large.
    for raw in [
        r#"{"avatar_name": "Z", "gender": "male", "character": {"age": NaN}}"#,
        r#"{"character": {"age": 1e999}}"#,
    ] {
        let request = server.request("POST", PATH).header("x-api-key", &server.key);
        server
            .send(request.body(raw))
            .await
            .assert_is(400, json!({"error": "Invalid request body"}));
    }
    let large = json!({
        "avatar_name": "Z",
        "gender": "male",
        "character": {"skin": {"colour": "x".repeat(15 << 20)}},
    });
    server.post(PATH, large).await.assert_is(413, json!({"error": "Request body is too large"}));
    assert_eq!(server.get("/v2/custom-avatars").await.expect_status(200), json!([]));
}

#[tokio::test]
async fn a_preview_is_a_picture_and_a_crash_costs_only_one() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let path = "/v2/character/preview";
    let seed = |seed: u32| json!({"character": {"seed": seed}, "pose": {"mouth": {"jaw": 0.5}}});
    let picture = server.post(path, seed(1)).await;
    assert_eq!(
        (picture.status, picture.header("content-type"), picture.header("cache-control")),
        (200, "image/webp", "no-store")
    );
    assert!(picture.text.starts_with("RIFF"));
    let failed = json!({"error": "The preview could not be rendered"});
    for bad in [13, 404] {
        server.post(path, seed(bad)).await.assert_is(500, failed.clone());
        assert_eq!(server.post(path, seed(1)).await.status, 200);
    }
    let refused =
        server.post(path, json!({"pose": {"smile": 2}, "size": 255})).await.expect_status(400);
    assert_eq!(
        refused["details"],
        json!([
            {"field": "character", "reason": "is required"},
            {"field": "pose.smile", "reason": "must be between 0 and 1"},
            {"field": "size", "reason": "must be an even whole number"},
        ])
    );
    let refused =
        server.post(path, json!({"character": {}, "size": 100_000})).await.expect_status(400);
    assert_eq!(
        refused["details"],
        json!([{"field": "size", "reason": "must be between 64 and 512"}])
    );
}

#[tokio::test]
async fn the_character_schema_is_served_and_accepts_every_stock_character() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let reply = server.get("/v2/character").await;
    assert!(reply.text.contains(
        r#""name":"eyes.size","group":"eyes","kind":"slider","unit":"factor","least":0.8,"most":1.3"#
    ));
    let sheet = reply.json();
    let people = sheet["people"].as_array().unwrap();
    assert!(people.len() >= 9);
    for person in people {
        let body = json!({
            "avatar_name": person["name"],
            "gender": person["gender"],
            "voice": person["voice"],
            "character": person["character"],
            "rest": person["rest"],
        });
        let id =
            server.post(PATH, body).await.expect_status(200)["id"].as_str().unwrap().to_owned();
        // There are more characters than the queue accepts, so each is deleted before it is drawn.
        server.delete(&format!("{PATH}/{id}")).await.expect_status(200);
    }
    let body = json!({"character": sheet["default"], "pose": sheet["default_pose"]});
    assert_eq!(server.post("/v2/character/preview", body).await.status, 200);
}

#[tokio::test]
async fn a_dead_server_s_drawing_is_taken_over_and_every_server_has_the_face() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    // Either server may take the job. It stops half way.
    let id = queue_bake(&one, "half").await;
    wait_for_record(&one, &id, |record| record["progress"] == 50).await;
    let halves =
        |folder: &TempFolder| folder.0.join("data/bakes").join(&id).join("parts/half").exists();
    let (dies, lives) = if halves(&folders[0]) { (one, other) } else { (other, one) };
    dies.kill().await;
    expire_lease(&folders, "custom_avatar", &id).await;
    // The other server finds none of the drawn poses, so its bake also stops half way. Nothing
    // restarts it, so the test deletes the job.
    wait_for("the take-over", async || folders.iter().all(halves).then_some(())).await;
    lives.delete(&format!("{PATH}/{id}")).await.expect_status(200);
    let id = queue_bake(&lives, "draw").await;
    assert_eq!(wait_for_end(&lives, &id).await["status"], "COMPLETED");
    let agent = lives.create_agent(json!({"avatars": [{"avatar_key_id": id}]})).await;
    let (_, token) = lives.create_conversation(&agent).await;
    send_offer(&lives, &token).await.expect_status(200);
    assert!(offered_pose_bytes(&lives).is_some());
}
