//! Several servers on one PostgreSQL database. With SQLite ([`TempFolder::database_url`] is `None`)
//! there is nothing to share.

use std::io::Write as _;
use std::time::Duration;

use control_api::{Config, SecretKey};
use conversation::event::{EndReason, Event};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::harness::{
    TempFolder, TestServer, WebhookReceiver, advance_clock, agent_body, joined_event, wait_for,
};
use crate::knowledge::{search_results, upload_to};

/// Longer than a server stalls on a busy machine.
const LEASE: Duration = Duration::from_secs(60);

/// Two servers with the same keys on the database of the first one's folder; `None` if the tests
/// run on SQLite.
pub(crate) async fn start_two_servers(folders: &[TempFolder; 2]) -> Option<[TestServer; 2]> {
    start_two_servers_with(folders, |_| {}).await
}

/// The same, with configurations changed by `change`.
pub(crate) async fn start_two_servers_with(
    folders: &[TempFolder; 2],
    change: impl Fn(&mut Config),
) -> Option<[TestServer; 2]> {
    let Some(url) = folders[0].database_url().await else {
        // Written past the capture of the test harness, which hides the output of a test that
        // passes.
        std::io::stderr().write_all(b"needs PostgreSQL: not run\n").unwrap();
        return None;
    };
    let one = TestServer::start_with(&folders[0].0, |config| {
        config.timeouts.lease = LEASE;
        change(config);
    })
    .await;
    let data = folders[1].0.join("data");
    std::fs::create_dir_all(&data).unwrap();
    for file in ["secrets.key", "tokens.key"] {
        std::fs::copy(folders[0].0.join("data").join(file), data.join(file)).unwrap();
    }
    let other = TestServer::start_with(&folders[1].0, |config| {
        config.database_url = Some(url);
        config.timeouts.lease = LEASE;
        change(config);
    })
    .await;
    Some([one, other])
}

/// Advances the clock so that both servers renew their leases and search for pending work.
pub(crate) async fn renew_leases() {
    advance_clock(LEASE / 5).await;
}

/// Expires the lease of the killed server that owns the row `id` of a table, and lets the other
/// server take over.
pub(crate) async fn expire_lease(folders: &[TempFolder; 2], table: &str, id: &str) {
    let server = format!("(SELECT server FROM {table} WHERE id = '{id}')");
    folders[0].execute_sql(format!("UPDATE server SET lease_until = 0 WHERE id = {server}")).await;
    renew_leases().await;
}

#[tokio::test]
async fn one_restart_never_ends_the_calls_of_another() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let id = one.create_running_call(json!({})).await;
    let path = format!("/v1/ext/conversation/{id}");
    assert_eq!(other.get(&path).await.expect_status(200)["status"], "IN_PROGRESS");
    other.stop().await;
    let url = folders[0].database_url().await;
    let other =
        TestServer::start_with(&folders[1].0, |config| config.database_url = url.clone()).await;
    for server in [&one, &other] {
        assert_eq!(server.get(&path).await.expect_status(200)["status"], "IN_PROGRESS");
    }
}

#[tokio::test]
async fn what_a_dead_server_left_behind_is_taken_over() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let hooks = WebhookReceiver::start().await;
    let id = one
        .create_running_call(json!({
            "callback_url": hooks.url,
            "callback_events": ["utterance_committed", "call_ended"],
        }))
        .await;
    one.engine.record_event(
        &id,
        1,
        1.0,
        Event::UtteranceCommitted { text: "Hello?".into(), speaker: None },
    );
    hooks.wait_for_first(1).await;
    one.kill().await;
    expire_lease(&folders, "conversation", &id).await;
    let record = other.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "error");
    let deliveries = wait_for("the end to be reported", async || {
        let received = hooks.received();
        received.iter().any(|one| one.name() == "call_ended").then_some(received)
    })
    .await;
    let (last, before) = deliveries.split_last().unwrap();
    assert_eq!((last.name(), last.sequence()), ("call_ended".to_owned(), 2));
    // The killed server may not have stored that the first delivery succeeded. It is then sent
    // again, with the same id.
    assert!(
        before.iter().all(|one| one.id() == before[0].id() && one.sequence() == 1),
        "{before:#?}"
    );
}

#[tokio::test]
async fn two_servers_lose_and_double_no_event_and_no_key_suffix() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some(servers) = start_two_servers(&folders).await else { return };
    let hooks = WebhookReceiver::start().await;
    let body = json!({"name": "Same name", "prompt": "p"});
    let make = async |server: &TestServer| {
        for _ in 0..20 {
            server.post("/v1/ext/guardrail", body.clone()).await.expect_status(201);
        }
    };
    tokio::join!(make(&servers[0]), make(&servers[1]));
    let all = servers[0].get("/v1/ext/guardrail").await.expect_status(200);
    let mut keys: Vec<&str> =
        all.as_array().unwrap().iter().map(|g| g["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    let mut expected: Vec<String> =
        (2..=40).map(|n| format!("same_name_{n}")).chain(["same_name".into()]).collect();
    expected.sort_unstable();
    assert_eq!(keys, expected);

    let created = servers[0]
        .post(
            "/v1/ext/agent",
            agent_body(
                json!({"callback_url": hooks.url, "callback_events": ["utterance_committed"]}),
            ),
        )
        .await
        .expect_status(200);
    let agent = created["id"].as_str().unwrap();
    let mut ids = Vec::new();
    for server in &servers {
        let (id, _) = server.create_conversation(agent).await;
        server.engine.record_event(&id, 0, 0.0, joined_event());
        ids.push(id);
    }
    for n in 1..=50 {
        for (server, id) in servers.iter().zip(&ids) {
            server.engine.record_event(
                id,
                n,
                n as f64,
                Event::UtteranceCommitted { text: n.to_string(), speaker: None },
            );
        }
    }
    let received = hooks.wait_for_first(100).await;
    for id in &ids {
        let of: Vec<String> = received
            .iter()
            .map(|one| serde_json::from_str::<Value>(&one.body).unwrap())
            .filter(|body| body["conversation_id"] == id.as_str())
            .map(|body| body["event"]["payload"]["text"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            of,
            (1..=50).map(|n: u64| n.to_string()).collect::<Vec<_>>(),
            "in order, no event lost or duplicated"
        );
        let events =
            servers[0].get(&format!("/v1/ext/conversation/{id}/events")).await.expect_status(200);
        assert_eq!(events.as_array().unwrap().len(), 51);
    }
    let numbers: Vec<String> = wait_for("both records", async || {
        let list = servers[1].get("/v1/ext/conversation").await.expect_status(200);
        let ids: Vec<String> =
            list.as_array()?.iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect();
        (ids.len() == 2).then_some(ids)
    })
    .await;
    assert!(ids.iter().all(|id| numbers.contains(id)));
}

#[tokio::test]
async fn an_update_or_deletion_at_one_server_applies_to_the_other() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let parts: [(&str, Option<&str>, &[u8]); 3] = [
        ("name", None, b"K"),
        ("description", None, b"d"),
        ("text", None, b"The ferry leaves at noon."),
    ];
    let created = upload_to(&one, "/v1/ext/kb", &parts).await.expect_status(200);
    let base = created["id"].as_str().unwrap();
    assert_eq!(
        search_results(&other, base, "when does the ferry leave").await,
        ["The ferry leaves at noon."]
    );
    // The other server has an index now, which is out of date from here on.
    let text: [(&str, Option<&str>, &[u8]); 1] =
        [("text", None, b"The lighthouse keeper is called Ottoline.")];
    let added = upload_to(&one, &format!("/v1/ext/kb/{base}/doc"), &text).await.expect_status(200);
    let question = "who is the lighthouse keeper";
    assert_eq!(
        search_results(&other, base, question).await,
        ["The lighthouse keeper is called Ottoline."]
    );
    assert_eq!(search_results(&one, base, question).await.len(), 1);
    let document = format!("/v1/ext/kb/doc/{}", added["doc_id"].as_str().unwrap());
    assert_eq!(other.delete(&document).await.status, 200);
    assert!(search_results(&one, base, question).await.is_empty());
}

#[tokio::test]
async fn a_server_with_other_keys_is_told_which_files_to_copy() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    server.stop().await;
    let data = folder.0.join("data");
    std::fs::remove_file(data.join("tokens.key")).unwrap();
    let config = control_api::Config {
        data,
        database_url: folder.database_url().await,
        ..control_api::Config::default()
    };
    let net = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
    let Err(error) = control_api::App::open(config, Vec::new(), net).await else {
        panic!("it opened")
    };
    assert!(error.to_string().contains("tokens.key"), "{error}");
}

#[tokio::test]
async fn servers_with_configured_keys_start_together_on_an_empty_database() {
    let folders = [TempFolder::new(), TempFolder::new(), TempFolder::new()];
    let url = folders[0].database_url().await;
    if url.is_none() {
        std::io::stderr().write_all(b"needs PostgreSQL: not run\n").unwrap();
        return;
    }
    let key = |n: u8| SecretKey::from([n; 32]);
    let start = |folder: &TempFolder| {
        let (data, url) = (folder.0.clone(), url.clone());
        async move {
            TestServer::start_with(&data, |config| {
                config.database_url = url;
                (config.secrets_key, config.tokens_key) = (Some(key(1)), Some(key(2)));
            })
            .await
        }
    };
    let (one, two, three) =
        tokio::join!(start(&folders[0]), start(&folders[1]), start(&folders[2]));
    // One of them creates the demo agent.
    let (a, b, c) = tokio::join!(one.app.bootstrap(), two.app.bootstrap(), three.app.bootstrap());
    assert!([a, b, c].into_iter().all(|key| key.unwrap().is_none()), "the key is configured");
    let agents = one.get("/v1/ext/agent").await.expect_status(200);
    assert_eq!(agents.as_array().unwrap().len(), 1, "{agents}");
    let agent = one.create_agent(json!({})).await;
    let (id, _) = one.create_conversation(&agent).await;
    for server in [&two, &three] {
        let path = format!("/v1/ext/conversation/{id}");
        assert_eq!(server.get(&path).await.expect_status(200)["status"], "STARTED");
    }
    for folder in &folders {
        assert!(!folder.0.join("data").join("secrets.key").exists());
        assert!(!folder.0.join("data").join("tokens.key").exists());
    }
    // The key files of an older server are not those of the configuration.
    three.stop().await;
    let config = control_api::Config {
        data: folders[2].0.join("data"),
        database_url: url.clone(),
        ..control_api::Config::default()
    };
    let net = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
    let Err(error) = control_api::App::open(config, Vec::new(), net).await else {
        panic!("it opened")
    };
    assert!(error.to_string().contains("server.secrets_key"), "{error}");
}

#[tokio::test]
async fn a_server_starts_beside_one_of_the_next_release() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    one.stop().await;
    let url = folders[0].database_url().await.unwrap();
    let mut database = sqlx::PgConnection::connect(&url).await.unwrap();
    let next = "ALTER TABLE conversation ADD COLUMN later TEXT NOT NULL DEFAULT ''; \
        ALTER TABLE event ADD COLUMN later BIGINT; CREATE TABLE later (id TEXT PRIMARY KEY); \
        INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES (9999, 'later', true, '\\x00', 1)";
    database.execute(sqlx::raw_sql(next)).await.unwrap();
    let one = TestServer::start(&folders[0]).await;
    let id = one.create_running_call(json!({})).await;
    one.engine.record_event(&id, 1, 1.0, Event::Ended { reason: EndReason::UserLeft });
    other.wait_for_status(&id, "ENDED").await;
}
