//! Avatars that an older version drew are drawn again when nothing else waits. The child process is
//! a fake (`fake_renderer.rs`).

use models::face::PLAN_VERSION;
use serde_json::{Value, json};

use crate::backgrounds::{call, drawn};
use crate::harness::{TempFolder, TestServer, wait_for};
use crate::photo_avatars::{avatar_body, complete};
use crate::servers::start_two_servers;

const PATH: &str = "/v2/custom-avatar";
/// Sizes of the fake's pose sets: at first, and after a renewal.
const FIRST_BYTES: usize = include_bytes!("../../../assets/avatars/mei.512.poses").len();
const RENEWED_BYTES: usize = include_bytes!("../../../assets/avatars/nia.512.poses").len();

fn drawn_body() -> Value {
    json!({"avatar_name": "Zoe", "gender": "female", "character": {"seed": 0}})
}

async fn draw(server: &TestServer) -> String {
    complete(server, drawn_body()).await["id"].as_str().unwrap().to_owned()
}

/// Makes all avatars those of a release before.
async fn outdate(folder: &TempFolder) {
    folder.execute_sql("UPDATE custom_avatar SET plan_version = 0".to_owned()).await;
}

/// Lets the fake draw again in this way.
fn behave(folder: &TempFolder, word: &str) {
    std::fs::write(folder.0.join("again"), word).unwrap();
}

/// Ids of the avatars that were drawn again, in their order.
fn renewed(folder: &TempFolder) -> Vec<String> {
    let id = |request: &Value| {
        let subject = request["subject"].as_object().unwrap().values().next().unwrap();
        subject["id"].as_str().unwrap().to_owned()
    };
    drawn(folder).iter().map(id).collect()
}

/// The pose sets to which running calls were to switch after a renewal: avatars, and versions.
fn swapped(server: &TestServer) -> Vec<(String, u32)> {
    let swapped = server.engine.swapped_pose_sets.lock().unwrap();
    let renewed = swapped.iter().filter(|(_, set)| set.data.len() == RENEWED_BYTES);
    renewed.map(|(id, set)| (id.clone(), set.version)).collect()
}

async fn agent_of(server: &TestServer, avatar: &str) -> String {
    server.create_agent(json!({"avatars": [{"avatar_key_id": avatar}]})).await
}

#[tokio::test]
async fn what_an_older_version_drew_is_drawn_again_after_an_upgrade() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let zoe = draw(&server).await;
    let photo = complete(&server, avatar_body("", json!({}))).await["id"].clone();
    let lost = complete(&server, avatar_body("", json!({"keep_source": false}))).await;
    let before = server.get(&format!("{PATH}/{zoe}")).await.expect_status(200);
    let agent = agent_of(&server, &zoe).await;
    let blurred = json!({"avatar_key_id": "nia", "background": {"type": "blur"}});
    let variant = server.create_agent(json!({"avatars": [blurred]})).await;
    wait_for("the background", async || (drawn(&folder).len() == 1).then_some(())).await;
    let variant_id = renewed(&folder).pop().unwrap();
    wait_for("the background in calls", async || {
        (call(&server, &variant).await.id == variant_id).then_some(())
    })
    .await;
    assert_eq!(call(&server, &agent).await.pose_bytes, Some(FIRST_BYTES));
    outdate(&folder).await;
    server.stop().await;
    // A workspace at its limit, too.
    let server =
        TestServer::start_with(&folder.0, |config| config.limits.workspace_bytes = 1).await;
    wait_for("the renewals", async || (swapped(&server).len() == 2).then_some(())).await;
    let mut ids: Vec<String> = swapped(&server).into_iter().map(|(id, _)| id).collect();
    assert!(swapped(&server).iter().all(|(_, version)| *version == PLAN_VERSION));
    assert_eq!(call(&server, &agent).await.pose_bytes, Some(RENEWED_BYTES));
    ids.push(variant_id.clone());
    ids.sort_unstable();
    wait_for("the variant", async || {
        let mut all = renewed(&folder);
        all.remove(0);
        all.sort_unstable();
        (all == ids).then_some(())
    })
    .await;
    assert!(ids.contains(&zoe) && ids.contains(&photo.as_str().unwrap().to_owned()));
    assert!(!ids.contains(&lost["id"].as_str().unwrap().to_owned()), "its source is gone");
    let after = server.get(&format!("{PATH}/{zoe}")).await.expect_status(200);
    assert_ne!(after["output"]["preview_url"], before["output"]["preview_url"]);
    for field in ["status", "progress", "created_at", "character", "avatar_key_id", "error"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(call(&server, &variant).await.id, variant_id);
    server.stop().await;
    let server = TestServer::start(&folder).await;
    draw(&server).await;
    assert_eq!(drawn(&folder).len(), 4, "each was drawn again once");
}

#[tokio::test]
async fn a_renewal_gives_way_to_each_job_and_the_old_poses_stay_until_its_end() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let zoe = draw(&server).await;
    let agent = agent_of(&server, &zoe).await;
    outdate(&folder).await;
    behave(&folder, "wait");
    // The queue is searched after this job, with nothing in it.
    let late = draw(&server).await;
    wait_for("the renewal", async || (renewed(&folder) == [zoe.clone()]).then_some(())).await;
    let record = server.get(&format!("{PATH}/{zoe}")).await.expect_status(200);
    assert_eq!((&record["status"], &record["progress"]), (&json!("COMPLETED"), &json!(100)));
    assert_eq!(call(&server, &agent).await.pose_bytes, Some(FIRST_BYTES));
    // It would wait for a minute, but gives way.
    let later = draw(&server).await;
    wait_for("the renewal again", async || (renewed(&folder).len() == 2).then_some(())).await;
    assert!(swapped(&server).is_empty());
    std::fs::write(folder.0.join("go"), "").unwrap();
    wait_for("its end", async || (swapped(&server).len() == 1).then_some(())).await;
    assert_eq!(swapped(&server), [(zoe.clone(), PLAN_VERSION)]);
    assert_eq!(call(&server, &agent).await.pose_bytes, Some(RENEWED_BYTES));
    assert!(!renewed(&folder).contains(&late) && !renewed(&folder).contains(&later));
    let bakes = std::fs::read_dir(folder.0.join("data/bakes")).unwrap();
    assert_eq!(bakes.count(), 0, "no file with the person is left");
}

#[tokio::test]
async fn a_failed_renewal_is_not_repeated_by_the_same_version() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let zoe = draw(&server).await;
    let agent = agent_of(&server, &zoe).await;
    outdate(&folder).await;
    behave(&folder, "refuse");
    draw(&server).await;
    wait_for("the failure", async || {
        let mut connection = folder.connect().await;
        let failed: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM custom_avatar WHERE failed_version > 0 AND renewing = 0",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        (failed == 1).then_some(())
    })
    .await;
    let record = server.get(&format!("{PATH}/{zoe}")).await.expect_status(200);
    assert_eq!((&record["status"], &record["error"]), (&json!("COMPLETED"), &Value::Null));
    assert_eq!(call(&server, &agent).await.pose_bytes, Some(FIRST_BYTES));
    server.stop().await;
    let server = TestServer::start(&folder).await;
    behave(&folder, "draw");
    draw(&server).await;
    draw(&server).await;
    assert_eq!(renewed(&folder), [zoe], "it was tried once");
    // A later version tries again.
    folder.execute_sql("UPDATE custom_avatar SET failed_version = failed_version - 1".into()).await;
    draw(&server).await;
    wait_for("the next version's", async || (swapped(&server).len() == 1).then_some(())).await;
}

#[tokio::test]
async fn a_deleted_avatar_is_not_drawn_on() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let zoe = draw(&server).await;
    outdate(&folder).await;
    behave(&folder, "wait");
    let other = draw(&server).await;
    wait_for("the renewal", async || (renewed(&folder) == [zoe.clone()]).then_some(())).await;
    server.delete(&format!("{PATH}/{zoe}")).await.expect_status(200);
    wait_for("its end", async || (!folder.0.join("data/bakes").join(&zoe).exists()).then_some(()))
        .await;
    assert!(swapped(&server).is_empty());
    assert_eq!(server.get(&format!("{PATH}/{other}")).await.expect_status(200)["progress"], 100);
}

#[tokio::test]
async fn nothing_is_renewed_while_a_server_of_a_release_before_is_alive() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let zoe = draw(&one).await;
    let old = "INSERT INTO server (id, lease_until, report) \
               VALUES ('old', 9000000000000000, '{\"version\":\"0.1.0\"}')";
    folders[0].execute_sql(old.to_owned()).await;
    outdate(&folders[0]).await;
    // Each server looks for renewals after its first job, and before its second one.
    for server in [&one, &other, &one, &other] {
        draw(server).await;
    }
    let all = || [&folders[0], &folders[1]].into_iter().flat_map(renewed).collect::<Vec<_>>();
    assert_eq!(all(), [""; 0]);
    folders[0].execute_sql("DELETE FROM server WHERE id = 'old'".to_owned()).await;
    draw(&one).await;
    wait_for("the renewal", async || (all() == [zoe.clone()]).then_some(())).await;
}
