//! Erasure removes everything: rows, webhooks as soon as no attempt is pending, and files on every
//! server.

use std::path::PathBuf;
use std::time::Duration;

use conversation::event::{EndReason, Event};
use futures_util::future::join_all;
use serde_json::json;
use sqlx::Executor as _;

use crate::harness::{TempFolder, TestServer, WebhookReceiver, advance_clock, wait_for};
use crate::servers::{renew_leases, start_two_servers};

fn call_end_events() -> [(f64, Event); 2] {
    [(2.0, Event::CallEnded), (2.0, Event::Ended { reason: EndReason::UserLeft })]
}

/// A conversation that has ended, with a trace in the folder of the server that ran the call, as
/// the engine leaves one.
async fn ended_call_with_trace(server: &TestServer, folder: &TempFolder) -> (String, PathBuf) {
    let id = server.create_running_call(json!({})).await;
    server.engine.record_events(&id, 1, call_end_events());
    server.wait_for_status(&id, "ENDED").await;
    let traces = folder.0.join("data").join("traces");
    std::fs::create_dir_all(&traces).unwrap();
    let file = traces.join(format!("{id}.jsonl"));
    std::fs::write(&file, "{\"trace\":1}\n").unwrap();
    (id, file)
}

async fn erase_conversation(server: &TestServer, id: &str) {
    let path = format!("/v1/ext/conversation/{id}");
    assert_eq!(server.delete(&path).await.status, 204);
    assert_eq!(server.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_trace_goes_with_its_record() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let (id, file) = ended_call_with_trace(&server, &folder).await;
    let (other, other_file) = ended_call_with_trace(&server, &folder).await;
    erase_conversation(&server, &id).await;
    assert!(!file.exists(), "it is deleted before the response");
    assert!(
        other_file.exists()
            && server.get(&format!("/v1/ext/conversation/{other}")).await.status == 200
    );
}

#[tokio::test]
async fn a_record_is_gone_though_the_list_of_its_files_cannot_be_settled_yet() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let (id, file) = ended_call_with_trace(&server, &folder).await;
    let mut store = folder.connect().await;
    let listed = async || {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM erased")
            .fetch_one(&mut folder.connect().await)
            .await
            .unwrap();
        count
    };
    let take_again = if folder.database_url().await.is_some() {
        let function = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ \
            BEGIN RAISE EXCEPTION 'not now'; END $$";
        store.execute(function).await.unwrap();
        let trigger =
            "CREATE TRIGGER refuse BEFORE DELETE ON erased FOR EACH ROW EXECUTE FUNCTION refuse()";
        store.execute(trigger).await.unwrap();
        "DROP TRIGGER refuse ON erased"
    } else {
        let trigger = "CREATE TRIGGER refuse BEFORE DELETE ON erased BEGIN \
            SELECT RAISE(ABORT, 'not now'); END";
        store.execute(trigger).await.unwrap();
        "DROP TRIGGER refuse"
    };
    erase_conversation(&server, &id).await;
    assert_eq!((listed().await, file.exists()), (1, false));
    store.execute(take_again).await.unwrap();
    // The sweep runs every 30 s.
    advance_clock(Duration::from_secs(31)).await;
    wait_for("the list to be processed", async || (listed().await == 0).then_some(())).await;
}

#[tokio::test]
async fn of_many_erasures_at_once_one_erases() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let (id, file) = ended_call_with_trace(&server, &folder).await;
    let path = format!("/v1/ext/conversation/{id}");
    let replies = join_all((0..40).map(|_| server.delete(&path))).await;
    let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (204, [404; 39].as_slice()));
    for reply in replies.iter().filter(|reply| reply.status == 404) {
        assert_eq!(reply.json(), json!({"error": "Conversation not found"}));
    }
    assert!(!file.exists());
    assert_eq!(server.get("/v1/ext/conversation").await.header("x-total-count"), "0");
}

#[tokio::test]
async fn erasure_deletes_the_trace_on_another_running_or_stopped_server() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let (awake, file) = ended_call_with_trace(&one, &folders[0]).await;
    let (asleep, left) = ended_call_with_trace(&one, &folders[0]).await;
    erase_conversation(&other, &awake).await;
    renew_leases().await;
    wait_for("the trace to be deleted", async || (!file.exists()).then_some(())).await;
    assert!(left.exists());
    one.stop().await;
    erase_conversation(&other, &asleep).await;
    assert!(left.exists(), "no other server can reach it");
    let one = TestServer::start(&folders[0]).await;
    assert!(!left.exists(), "it is deleted before the first request");
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn pending_deliveries_are_sent_before_they_are_erased() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.schedule = [0, 300, 60_000].map(Duration::from_millis).to_vec();
    })
    .await;
    hooks.respond_with([503]);
    let id = server
        .create_running_call(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]}))
        .await;
    server.engine.record_events(&id, 1, call_end_events());
    hooks.wait_for_first(1).await;
    server.wait_for_status(&id, "ENDED").await;
    erase_conversation(&server, &id).await;
    hooks.wait_for_first(2).await;
    wait_for("all of it to be deleted", async || {
        let mut left = 0;
        for state in ["pending", "done", "dead"] {
            left += server.webhook_count(state).await;
        }
        (left == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_of_an_erased_conversation_is_no_letter() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_by_rule(|_, _| 500);
    let server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.schedule = [0, 300].map(Duration::from_millis).to_vec();
    })
    .await;
    let id = server
        .create_running_call(json!({"callback_url": hooks.url, "callback_events": ["call_ended"]}))
        .await;
    server.engine.record_events(&id, 1, call_end_events());
    hooks.wait_for_first(1).await;
    server.wait_for_status(&id, "ENDED").await;
    erase_conversation(&server, &id).await;
    hooks.wait_for_first(2).await;
    wait_for("no delivery to wait", async || {
        (server.webhook_count("pending").await == 0).then_some(())
    })
    .await;
    assert_eq!(server.get("/v1/ext/deadletters").await.expect_status(200), json!([]));
    assert_eq!(server.webhook_count("dead").await, 0);
}
