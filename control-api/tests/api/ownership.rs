//! Who may write: processes that no longer hold a call, transactions that do not end, and the list
//! of the servers.

use conversation::event::Event;
use conversation::input::Command;
use serde_json::json;
use sqlx::{Connection as _, Executor as _};

use crate::fairness::create_other_workspace_key;
use crate::harness::{TempFolder, TestServer, joined_event, wait_for};
use crate::servers::{renew_leases, start_two_servers};

#[tokio::test]
async fn a_process_that_lost_its_call_adds_no_event_and_hangs_up() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({})).await;
    let said = |text: &str| Event::UtteranceCommitted { text: text.into(), speaker: None };
    server.engine.record_event(&id, 1, 1.0, said("one"));
    let path = format!("/v1/ext/conversation/{id}/events");
    let stored = async || server.get(&path).await.expect_status(200).as_array().unwrap().len();
    wait_for("the event", async || (stored().await == 2).then_some(())).await;
    // As another server does that takes this one for lost.
    folder.execute_sql(format!("UPDATE conversation SET epoch = 0 WHERE id = '{id}'")).await;
    server.engine.record_event(&id, 2, 2.0, said("two"));
    wait_for("the end of the call", async || {
        server.engine.received_commands().contains(&Command::End).then_some(())
    })
    .await;
    assert_eq!(stored().await, 2);
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("visavis_events_fenced_total 1"), "{metrics}");
}

#[tokio::test]
async fn the_operator_sees_the_servers_and_nobody_else() {
    let folder = TempFolder::new();
    let mut server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({})).await;
    let list = server.get("/v1/ext/servers").await.expect_status(200);
    let [own] = list.as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!(own["is_self"], true);
    assert_eq!(own["state"], "ready");
    assert_eq!(own["version"], env!("CARGO_PKG_VERSION"));
    assert!(!id.is_empty() && own["calls"].is_u64() && own["load"].is_number(), "{own}");
    server.app.drain();
    if folder.database_url().await.is_none() {
        let list = server.get("/v1/ext/servers").await.expect_status(200);
        assert_eq!((&list[0]["state"], &list[0]["renewed_at"]), (&json!("draining"), &json!(null)));
    }
    server.key = create_other_workspace_key(&folder).await;
    assert_eq!(server.get("/v1/ext/servers").await.expect_status(200), json!([]));
}

#[tokio::test]
async fn servers_on_one_database_list_each_other_and_forget_those_that_stopped() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let states = async |server: &TestServer| {
        let list = server.get("/v1/ext/servers").await.expect_status(200);
        let list = list.as_array().unwrap().clone();
        assert!(list.iter().filter(|item| item["is_self"] == true).count() == 1, "{list:?}");
        list.iter().map(|item| item["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for server in [&one, &other] {
        wait_for("both servers", async || {
            (states(server).await == ["ready", "ready"]).then_some(())
        })
        .await;
    }
    other.stop().await;
    assert_eq!(states(&one).await, ["ready"]);
}

#[tokio::test]
async fn a_transaction_that_does_not_end_delays_only_requests_for_its_records() {
    let folder = TempFolder::new();
    let Some(url) = folder.database_url().await else { return };
    let server = TestServer::start(&folder).await;
    let locked = server.create_agent(json!({})).await;
    let call = server.create_running_call(json!({})).await;
    let mut other = sqlx::PgConnection::connect(&url).await.unwrap();
    let lock = format!("BEGIN; SELECT id FROM agent WHERE id = '{locked}' FOR UPDATE");
    other.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.unwrap();
    let path = format!("/v1/ext/agent/{locked}");
    let change = server.send_json("PATCH", &path, json!({"agent_name": "Late"})).await;
    assert_eq!((change.status, change.header("retry-after")), (503, "2"), "{}", change.text);
    // The store works for everything else.
    server.create_agent(json!({})).await;
    let said = Event::UtteranceCommitted { text: "words".into(), speaker: None };
    server.engine.record_event(&call, 1, 1.0, said);
    let events = format!("/v1/ext/conversation/{call}/events");
    wait_for("the event", async || {
        let stored = server.get(&events).await.expect_status(200);
        (stored.as_array().unwrap().len() == 2).then_some(())
    })
    .await;
    server.get("/readyz").await.expect_status(200);
    other.execute(sqlx::raw_sql("ROLLBACK")).await.unwrap();
    let change = server.send_json("PATCH", &path, json!({"agent_name": "In time"})).await;
    change.expect_status(200);
}

#[tokio::test]
async fn an_offer_for_a_locked_conversation_is_refused_soon() {
    let folder = TempFolder::new();
    let Some(url) = folder.database_url().await else { return };
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, token) = server.create_conversation(&agent).await;
    let mut other = sqlx::PgConnection::connect(&url).await.unwrap();
    let lock = format!("BEGIN; SELECT id FROM conversation WHERE id = '{id}' FOR UPDATE");
    other.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.unwrap();
    let offer = async || {
        let request = server.request("POST", &format!("/api/offer?token={token}"));
        server.send(request.json(&json!({"sdp": "v=0", "type": "offer"}))).await
    };
    let refused = offer().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "2"), "{}", refused.text);
    server.get("/readyz").await.expect_status(200);
    other.execute(sqlx::raw_sql("ROLLBACK")).await.unwrap();
    assert_eq!(offer().await.status, 200);
}

#[tokio::test]
async fn a_process_whose_server_id_was_taken_accepts_and_writes_nothing() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let id = one.create_running_call(json!({})).await;
    let agent = one.create_agent(json!({})).await;
    let (waiting, token) = one.create_conversation(&agent).await;
    let request = one.request("POST", &format!("/api/offer?token={token}"));
    let accepted = one.send(request.json(&json!({"sdp": "v=0", "type": "offer"}))).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text);
    // As the start of a process on a copy of its data folder.
    let server = format!("(SELECT server FROM conversation WHERE id = '{id}')");
    folders[0]
        .execute_sql(format!("UPDATE server SET epoch = epoch + 1 WHERE id = {server}"))
        .await;
    let ended = format!("UPDATE conversation SET status = 'ENDED', epoch = 0 WHERE id = '{id}'");
    folders[0].execute_sql(ended).await;
    one.engine.record_event(&waiting, 0, 0.0, joined_event());
    renew_leases().await;
    wait_for("the end of the call", async || {
        one.engine.received_commands().contains(&Command::End).then_some(())
    })
    .await;
    assert_eq!(one.get("/readyz").await.status, 503);
    let (_, token) = other.create_conversation(&agent).await;
    let request = one.request("POST", &format!("/api/offer?token={token}"));
    let refused = one.send(request.json(&json!({"sdp": "v=0", "type": "offer"}))).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    let record = other.get(&format!("/v1/ext/conversation/{waiting}")).await.expect_status(200);
    assert_eq!(record["status"], "STARTED");
}
