//! Custom avatars: the list of parameters, previews, and the life cycle of a bake. The child
//! process that draws is a fake (`fake_renderer.rs`).

use control_api::keys;
use serde_json::{Value, json};

use crate::kit::{Folder, Reply, Server, agent, until};
use crate::servers::{expire, two};

const PATH: &str = "/v2/custom-avatar";
const FAILED: &str = "the face could not be drawn; the server's log says why";

/// Behaviour of the fake renderer, indexed by the character's seed, as in `fake_renderer.rs`.
const DOES: [&str; 7] = ["draw", "crash", "refuse", "nonsense", "half", "shares", "torn"];

fn zoe(does: &str) -> Value {
    let seed = DOES.iter().position(|known| *known == does).unwrap();
    json!({"avatar_name": "Zoe", "gender": "female", "voice": "awb", "character": {"age": 0.4, "headscarf": "#336699", "seed": seed}, "rest": {"smile": 0.5}})
}

async fn queue(server: &Server, does: &str) -> String {
    let made = server.post(PATH, zoe(does)).await.expect(200);
    assert_eq!(
        (&made["status"], &made["progress"], &made["output"]),
        (&json!("QUEUED"), &json!(0), &Value::Null)
    );
    made["id"].as_str().unwrap().to_owned()
}

/// The record as soon as `wanted` holds for it.
async fn once(server: &Server, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until("the drawing", async || {
        let record = server.get(&format!("{PATH}/{id}")).await.expect(200);
        wanted(&record).then_some(record)
    })
    .await
}

async fn ended(server: &Server, id: &str) -> Value {
    once(server, id, |record| ["COMPLETED", "FAILED"].contains(&record["status"].as_str().unwrap())).await
}

async fn offer(server: &Server, token: &str) -> Reply {
    let body = json!({"sdp": "v=0", "type": "offer"}).to_string();
    let request = server.request("POST", &format!("/api/offer?token={token}"));
    server.send(request.header("content-type", "application/json").body(body)).await
}

/// Size in bytes of the pose set in the last offer, if it has one.
fn brought(server: &Server) -> Option<usize> {
    brought_share(server).map(|(length, _)| length)
}

/// Size in bytes and completeness in percent of that pose set.
fn brought_share(server: &Server) -> Option<(usize, u8)> {
    let offers = server.stage.offers.lock().unwrap();
    offers.last().unwrap().config.pose_set.as_ref().map(|face| (face.data.len(), face.completeness))
}

/// The pose sets that the engine received as replacements: avatar, size in bytes, completeness in
/// percent.
fn renewed(server: &Server) -> Vec<(String, usize, u8)> {
    let told = server.stage.renewed.lock().unwrap();
    told.iter().map(|(id, face)| (id.clone(), face.data.len(), face.completeness)).collect()
}

#[tokio::test]
async fn a_drawn_person_is_a_face_for_agents_until_it_is_deleted() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let id = queue(&server, "draw").await;
    let done = ended(&server, &id).await;
    assert_eq!(
        (&done["status"], &done["progress"], &done["error"]),
        (&json!("COMPLETED"), &json!(100), &Value::Null)
    );
    assert_eq!(
        (&done["output"]["width"], &done["output"]["height"], &done["output"]["fps"]),
        (&json!(512), &json!(512), &json!(25))
    );
    assert!(done["output"]["preview_url"].as_str().unwrap().starts_with("data:image/webp;base64,UklGR"));
    // The parameters are returned as they were given, so that a client can send them again.
    let given = zoe("draw");
    assert!(["character", "rest", "voice"].iter().all(|name| done[name] == given[name]), "{done}");
    assert_eq!(server.get("/v2/custom-avatars").await.expect(200), json!([done]));

    let named = json!({"avatars": [{"avatar_key_id": id}]});
    let agent_id = server.agent(named.clone()).await;
    let path = format!("/v1/ext/agent/{agent_id}");
    assert_eq!(server.get(&path).await.expect(200)["avatars"][0]["persona_name"], "Zoe");
    let short = json!({"name": "S", "system_prompt": "P", "avatar_key_id": id});
    server.post("/v1/agent/api", short).await.expect(200);
    let template =
        json!({"template_name": "t", "template_system_prompt": "p", "avatars": [{"avatar_key_id": id}]});
    let template = server.post("/v1/ext/template", template).await.expect(201)["id"].clone();
    server
        .post("/v1/ext/agentbytemplate", json!({"template_id": template, "avatar_key_id": id}))
        .await
        .expect(200);

    let pass = server.post("/v1/auth/conversation", json!({"agentId": agent_id})).await.expect(200);
    assert_eq!(
        (&pass["avatar_name"], &pass["display_picture"]),
        (&json!("Zoe"), &done["output"]["preview_url"])
    );
    offer(&server, pass["token"].as_str().unwrap()).await.expect(200);
    assert_eq!(brought(&server), Some(include_bytes!("../../../assets/avatars/mei.512.poses").len()));
    let stock = server.agent(json!({})).await;
    let (_, token) = server.conversation(&stock).await;
    offer(&server, &token).await.expect(200);
    assert_eq!(brought(&server), None, "the engine has the stock faces");

    server.delete(&format!("{PATH}/{id}")).await.expect(200);
    server.get(&format!("{PATH}/{id}")).await.expect(404);
    let refused = server.post("/v1/ext/agent", agent(named)).await.expect(400);
    assert_eq!(
        refused["details"],
        json!([{"field": "avatars[0].avatar_key_id", "reason": "names no avatar"}])
    );
    // Agents with this avatar do not change: their calls show another avatar.
    server.call("PATCH", &path, json!({"agent_name": "Renamed"})).await.expect(200);
    let (_, token) = server.conversation(&agent_id).await;
    offer(&server, &token).await.expect(200);
    assert_eq!(brought(&server), None);
}

const LEO: usize = include_bytes!("../../../assets/avatars/leo.512.poses").len();
const NIA: usize = include_bytes!("../../../assets/avatars/nia.512.poses").len();
const MEI: usize = include_bytes!("../../../assets/avatars/mei.512.poses").len();

#[tokio::test]
async fn what_is_drawn_so_far_is_a_face_already_and_calls_get_each_better_one() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let id = queue(&server, "shares").await;
    let early = server.post("/v1/ext/agent", agent(json!({"avatars": [{"avatar_key_id": id}]}))).await;
    assert!(early.status == 400 || !renewed(&server).is_empty(), "there is nothing to be shown yet");
    let record = once(&server, &id, |record| record["output"].is_object()).await;
    assert_eq!((&record["status"], &record["output"]["width"]), (&json!("PROCESSING"), &json!(512)));
    let picture = &record["output"]["preview_url"];
    let preview = server.post("/v2/character/preview", json!({"character": {"seed": 1}})).await;
    assert_eq!(preview.status, 200, "no preview waits for a drawing to end");
    assert_eq!(server.get(&format!("{PATH}/{id}")).await.expect(200)["status"], "PROCESSING");
    let made = server.agent(json!({"avatars": [{"avatar_key_id": id}]})).await;
    let join = async || {
        let pass = server.post("/v1/auth/conversation", json!({"agentId": made})).await.expect(200);
        assert_eq!((&pass["avatar_name"], &pass["display_picture"]), (&json!("Zoe"), picture));
        offer(&server, pass["token"].as_str().unwrap()).await.expect(200);
        brought_share(&server).unwrap()
    };
    assert_eq!(join().await, (LEO, 20));
    std::fs::write(folder.0.join("more"), "").unwrap();
    until("the better one", async || (renewed(&server).len() == 2).then_some(())).await;
    assert_eq!(join().await, (NIA, 50));
    std::fs::write(folder.0.join("all"), "").unwrap();
    assert_eq!(ended(&server, &id).await["status"], "COMPLETED");
    until("the last one", async || (renewed(&server).len() == 3).then_some(())).await;
    assert_eq!(renewed(&server), [(LEO, 20), (NIA, 50), (MEI, 100)].map(|(n, share)| (id.clone(), n, share)));
    assert_eq!(join().await, (MEI, 100));
}

#[tokio::test]
async fn a_part_outlives_a_restart_but_not_a_failure() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let id = queue(&server, "torn").await;
    std::fs::write(folder.0.join("more"), "").unwrap();
    // The two partial sets may arrive so close together that the second one is read twice.
    let nia = |server: &Server| renewed(server).last() == Some(&(id.clone(), NIA, 50));
    until("the second part", async || nia(&server).then_some(())).await;
    let made = server.agent(json!({"avatars": [{"avatar_key_id": id}]})).await;
    server.kill().await;
    let server = Server::start(&folder).await;
    // Both partial sets are read again, the less complete one first. It does not replace a more
    // complete one.
    until("both parts again", async || nia(&server).then_some(())).await;
    let (_, token) = server.conversation(&made).await;
    offer(&server, &token).await.expect(200);
    assert_eq!(brought_share(&server), Some((NIA, 50)));
    std::fs::write(folder.0.join("all"), "").unwrap();
    let record = ended(&server, &id).await;
    assert_eq!((&record["status"], &record["output"]), (&json!("FAILED"), &Value::Null));
    let (_, token) = server.conversation(&made).await;
    offer(&server, &token).await.expect(200);
    assert_eq!(brought(&server), None, "calls show another face, and say so");
}

#[tokio::test]
async fn what_is_wrong_with_a_drawing_is_only_that_job_s() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let mut ids = Vec::new();
    for does in ["crash", "refuse", "nonsense", "draw"] {
        ids.push(queue(&server, does).await);
    }
    for id in &ids[..3] {
        let record = ended(&server, id).await;
        assert_eq!(
            (&record["status"], &record["error"], &record["output"]),
            (&json!("FAILED"), &json!(FAILED), &Value::Null)
        );
        let refused = server.post("/v1/ext/agent", agent(json!({"avatars": [{"avatar_key_id": id}]}))).await;
        assert_eq!(refused.status, 400);
    }
    assert_eq!(ended(&server, &ids[3]).await["status"], "COMPLETED");
    until("its face", async || (!renewed(&server).is_empty()).then_some(())).await;
    assert_eq!(renewed(&server), [(ids[3].clone(), MEI, 100)], "what is no set is shown to nobody");
}

#[tokio::test]
async fn workspaces_take_turns_and_none_orders_without_end() {
    let folder = Folder::new();
    let mut server = Server::start(&folder).await;
    let database = folder.database().await;
    let mut other = keys::create(&folder.0.join("data"), database.as_deref(), "other").await.unwrap();
    // One bake runs until the test lets it continue, so that the others wait.
    let stuck = queue(&server, "shares").await;
    once(&server, &stuck, |record| record["output"].is_object()).await;
    let mut mine = Vec::new();
    for _ in 0..7 {
        mine.push(queue(&server, "half").await);
    }
    let refused = server.post(PATH, zoe("draw")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "60"));
    assert_eq!(
        refused.expect(429),
        json!({"error": "Too many requests", "reason": "8 people of this workspace are waiting to be drawn"})
    );
    // The workspace that ordered last has had no turn yet.
    std::mem::swap(&mut server.key, &mut other);
    let theirs = queue(&server, "draw").await;
    std::mem::swap(&mut server.key, &mut other);
    for word in ["more", "all"] {
        std::fs::write(folder.0.join(word), "").unwrap();
    }
    std::mem::swap(&mut server.key, &mut other);
    assert_eq!(ended(&server, &theirs).await["status"], "COMPLETED");
    std::mem::swap(&mut server.key, &mut other);
    for id in &mine[1..] {
        assert_eq!(server.get(&format!("{PATH}/{id}")).await.expect(200)["status"], "QUEUED");
    }
}

#[tokio::test]
async fn a_restart_goes_on_where_the_drawing_was() {
    let folder = Folder::new();
    for gently in [true, false] {
        let server = Server::start(&folder).await;
        let id = queue(&server, "half").await;
        let record = once(&server, &id, |record| record["progress"] == 50).await;
        assert_eq!(record["status"], "PROCESSING");
        if gently {
            server.stop().await
        } else {
            server.kill().await
        }
        let server = Server::start(&folder).await;
        let record = server.get(&format!("{PATH}/{id}")).await.expect(200);
        assert!(record["progress"].as_i64().unwrap() >= 50, "{record}");
        assert_eq!(ended(&server, &id).await["status"], "COMPLETED");
        server.stop().await;
    }
}

#[tokio::test]
async fn deleting_stops_the_drawing_and_leaves_nothing() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let stuck = queue(&server, "half").await;
    let next = queue(&server, "draw").await;
    once(&server, &stuck, |record| record["progress"] == 50).await;
    assert_eq!(server.get(&format!("{PATH}/{next}")).await.expect(200)["status"], "QUEUED", "one at a time");
    server.delete(&format!("{PATH}/{stuck}")).await.expect(200);
    assert_eq!(ended(&server, &next).await["status"], "COMPLETED");
    until("an empty folder", async || {
        std::fs::read_dir(folder.0.join("data/bakes")).unwrap().next().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_a_character_is_told_by_its_path() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let body = json!({
        "avatar_name": "x".repeat(201), "gender": "female", "voice": 1,
        "character": {"eyes": {"size": 9}, "skin": {"colour": "red"}, "wings": 2}, "rest": {"smile": "NaN", "mouth": {"jaw": -1e300}},
    });
    let refused = server.post(PATH, body).await.expect(400);
    assert_eq!(
        refused,
        json!({"error": "Invalid request body", "details": [
            {"field": "avatar_name", "reason": "must be at most 200 characters"},
            {"field": "voice", "reason": "must be a string"},
            {"field": "character.eyes.size", "reason": "must be between 0.8 and 1.3"},
            {"field": "character.skin.colour", "reason": "must be a colour such as #c0906f"},
            {"field": "character.wings", "reason": "is not known"},
            {"field": "rest.smile", "reason": "must be a number"},
            {"field": "rest.mouth.jaw", "reason": "must be 0"},
        ]})
    );
    let odd = json!({
        "avatar_name": "Zo\u{7}e", "gender": "female", "voice": "nobody", "character": {}, "charakter": {}, "size": null,
    });
    let refused = server.post(PATH, odd).await.expect(400);
    assert_eq!(
        refused["details"],
        json!([
            {"field": "avatar_name", "reason": "must not have control characters"},
            {"field": "charakter", "reason": "is not known"},
            {"field": "size", "reason": "is not known"},
            {"field": "voice", "reason": "must be one of slt, rms, awb, kal16, kal"},
        ])
    );
    // Numbers that JSON cannot represent or that are out of range, and a body that is too large.
    for raw in [
        r#"{"avatar_name": "Z", "gender": "male", "character": {"age": NaN}}"#,
        r#"{"character": {"age": 1e999}}"#,
    ] {
        let request = server.request("POST", PATH).header("x-api-key", &server.key);
        server.send(request.body(raw)).await.is(400, json!({"error": "Invalid request body"}));
    }
    let large = json!({"avatar_name": "Z", "gender": "male", "character": {"skin": {"colour": "x".repeat(15 << 20)}}});
    server.post(PATH, large).await.is(413, json!({"error": "Request body is too large"}));
    assert_eq!(server.get("/v2/custom-avatars").await.expect(200), json!([]));
}

#[tokio::test]
async fn a_preview_is_a_picture_and_a_crash_costs_only_one() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let path = "/v2/character/preview";
    let seed = |seed: u32| json!({"character": {"seed": seed}, "pose": {"mouth": {"jaw": 0.5}}});
    let picture = server.post(path, seed(1)).await;
    assert_eq!(
        (picture.status, picture.header("content-type"), picture.header("cache-control")),
        (200, "image/webp", "no-store")
    );
    assert!(picture.text.starts_with("RIFF"));
    let failed = json!({"error": "The preview could not be drawn"});
    for bad in [13, 404] {
        server.post(path, seed(bad)).await.is(500, failed.clone());
        assert_eq!(server.post(path, seed(1)).await.status, 200);
    }
    let refused = server.post(path, json!({"pose": {"smile": 2}, "size": 255})).await.expect(400);
    assert_eq!(
        refused["details"],
        json!([
            {"field": "character", "reason": "is required"},
            {"field": "size", "reason": "must be an even whole number"},
            {"field": "pose.smile", "reason": "must be between 0 and 1"},
        ])
    );
    let refused = server.post(path, json!({"character": {}, "size": 100_000})).await.expect(400);
    assert_eq!(refused["details"], json!([{"field": "size", "reason": "must be between 64 and 512"}]));
}

#[tokio::test]
async fn an_editor_learns_what_may_be_set_and_every_person_of_the_house_is_taken() {
    let folder = Folder::new();
    let server = Server::start(&folder).await;
    let reply = server.get("/v2/character").await;
    assert!(reply.text.contains(
        r#""name":"eyes.size","group":"eyes","kind":"slider","unit":"factor","least":0.8,"most":1.3"#
    ));
    let sheet = reply.json();
    let people = sheet["people"].as_array().unwrap();
    assert!(people.len() >= 9);
    for person in people {
        let body = json!({"avatar_name": person["name"], "gender": person["gender"], "voice": person["voice"], "character": person["character"], "rest": person["rest"]});
        let id = server.post(PATH, body).await.expect(200)["id"].as_str().unwrap().to_owned();
        // There are more characters than the queue accepts, so each is deleted before it is drawn.
        server.delete(&format!("{PATH}/{id}")).await.expect(200);
    }
    let body = json!({"character": sheet["default"], "pose": sheet["default_pose"]});
    assert_eq!(server.post("/v2/character/preview", body).await.status, 200);
}

#[tokio::test]
async fn a_dead_server_s_drawing_is_taken_over_and_every_server_has_the_face() {
    let folders = [Folder::new(), Folder::new()];
    let Some([one, other]) = two(&folders).await else { return };
    // Either server may take the job. It stops half way.
    let id = queue(&one, "half").await;
    once(&one, &id, |record| record["progress"] == 50).await;
    let halves = |folder: &Folder| folder.0.join("data/bakes").join(&id).join("parts/half").exists();
    let (dies, lives) = if halves(&folders[0]) { (one, other) } else { (other, one) };
    dies.kill().await;
    expire(&folders, "custom_avatar", &id).await;
    // The other server finds none of the drawn poses, so its bake also stops half way. Nothing
    // restarts it, so the test deletes the job.
    until("the take-over", async || folders.iter().all(halves).then_some(())).await;
    lives.delete(&format!("{PATH}/{id}")).await.expect(200);
    let id = queue(&lives, "draw").await;
    assert_eq!(ended(&lives, &id).await["status"], "COMPLETED");
    let agent = lives.agent(json!({"avatars": [{"avatar_key_id": id}]})).await;
    let (_, token) = lives.conversation(&agent).await;
    offer(&lives, &token).await.expect(200);
    assert!(brought(&lives).is_some());
}
