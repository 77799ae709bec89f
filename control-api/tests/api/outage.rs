//! A store that rejects writes for a while, one that does not respond, one that rejects a single
//! event or erasure, and one with a row that cannot be read.

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use control_api::CrashPoint;
use conversation::event::{EndReason, Event};
use conversation::input::Command;
use engine_api::CommandError;
use serde_json::json;
use sqlx::Executor as _;

use crate::harness::{
    Reply, TempFolder, TestServer, WebhookReceiver, advance_clock, agent_body, joined_event,
    wait_for,
};

/// Every write of the server touches one of these tables.
const WRITTEN_TABLES: [&str; 6] =
    ["agent", "conversation", "delivery", "event", "failed_event", "setting"];
/// Time for which DELETE waits until the end of the call is stored.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Makes the tables reject rows for which `when` holds. SQLite then rolls back the whole
/// transaction, as it does when a disk is full.
async fn refuse_writes(folder: &TempFolder, tables: &[&str], when: &str) {
    let mut store = folder.connect().await;
    let postgres = folder.database_url().await.is_some();
    if postgres {
        let function = "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ \
            BEGIN RAISE EXCEPTION 'no space'; END $$";
        store.execute(function).await.unwrap();
    }
    for table in tables {
        for what in ["INSERT", "UPDATE"] {
            let name = format!("refuse_{table}_{what}");
            let sql = if postgres {
                format!(
                    "CREATE TRIGGER {name} BEFORE {what} ON {table} FOR EACH ROW \
                     WHEN ({when}) EXECUTE FUNCTION refuse()"
                )
            } else {
                format!(
                    "CREATE TRIGGER {name} BEFORE {what} ON {table} WHEN {when} BEGIN \
                     SELECT RAISE(ROLLBACK, 'no space'); END"
                )
            };
            store.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
        }
    }
}

/// Makes the tables accept all rows again.
async fn accept_writes(folder: &TempFolder, tables: &[&str]) {
    let mut store = folder.connect().await;
    let postgres = folder.database_url().await.is_some();
    for table in tables {
        for what in ["INSERT", "UPDATE"] {
            let on = if postgres { format!(" ON {table}") } else { String::new() };
            store
                .execute(sqlx::AssertSqlSafe(format!("DROP TRIGGER refuse_{table}_{what}{on}")))
                .await
                .unwrap();
        }
    }
}

fn utterance(n: u64) -> (f64, Event) {
    (n as f64, Event::UtteranceCommitted { text: format!("number {n}"), speaker: None })
}

fn call_end_events(seconds: f64) -> [(f64, Event); 2] {
    [(seconds, Event::CallEnded), (seconds, Event::Ended { reason: EndReason::UserLeft })]
}

async fn stored_seqs(server: &TestServer, id: &str) -> Vec<u64> {
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.expect_status(200);
    events.as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

async fn send_offer(server: &TestServer, id: &str, token: &str) -> Reply {
    let request = server.request("POST", &format!("/rtc/{id}")).bearer_auth(token);
    server.send(request.header("content-type", "application/sdp").body("v=0 offer")).await
}

async fn wait_for_ready_status(server: &TestServer, status: u16) {
    wait_for("readiness", async || (server.get("/readyz").await.status == status).then_some(()))
        .await;
}

#[tokio::test]
async fn no_event_is_lost_and_no_success_is_reported_while_writes_fail() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    server.engine.ends_calls.store(true, Ordering::Relaxed);
    let agent_fields = json!({
        "callback_url": hooks.url,
        "callback_events": ["utterance_committed", "call_ended"],
    });
    let created = server.create_agent(agent_fields).await;
    let (id, _) = server.create_conversation(&created).await;
    let (ended, _) = server.create_conversation(&created).await;
    let (waiting, token) = server.create_conversation(&created).await;
    for call in [&id, &ended] {
        server.engine.record_event(call, 0, 0.0, joined_event());
    }
    server.engine.record_events(&id, 1, [utterance(1)]);
    hooks.wait_for_first(1).await;
    // The outcome of the attempt is stored, too; otherwise the webhook would be sent again.
    wait_for("the outcome", async || (server.webhook_count("done").await == 1).then_some(())).await;

    refuse_writes(&folder, &WRITTEN_TABLES, "true").await;
    server.engine.record_events(&id, 2, (2..=40).map(utterance));
    server
        .wait_for_readiness(
            503,
            json!({"status": "not ready", "reason": "the store accepts no writes"}),
        )
        .await;
    // Reads and running calls continue; every request that must store something is rejected.
    assert_eq!(server.get("/v1/ext/agent").await.status, 200);
    let refused = server.send_json("POST", "/v1/ext/agent", agent_body(json!({}))).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "2"), "{refused:?}");
    let refused =
        server.send_json("POST", "/v1/ext/conversation", json!({"agent_id": created})).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let refused = send_offer(&server, &waiting, &token).await;
    assert_eq!(refused.status, 503, "a new call could not be stored: {refused:?}");
    let end = format!("/v1/conversation/{ended}");
    for _ in 0..2 {
        let response = server.delete(&end).await;
        assert_eq!((response.status, response.header("retry-after")), (503, "2"), "{response:?}");
    }
    server.engine.record_events(&id, 41, (41..=60).map(utterance));
    assert_eq!(hooks.received().len(), 1, "only stored events are sent");

    accept_writes(&folder, &WRITTEN_TABLES).await;
    wait_for_ready_status(&server, 200).await;
    server.engine.record_events(
        &id,
        61,
        [(61.0, Event::CallEnded), (61.0, Event::Ended { reason: EndReason::UserLeft })],
    );
    let received = hooks.wait_for_first(62).await;
    let of = |call: &str| {
        received
            .iter()
            .filter(|one| one.body.contains(call))
            .map(|one| one.sequence())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&id), (1..=61).collect::<Vec<_>>(), "each once, in order, without a gap");
    assert_eq!(of(&ended), [1], "the end that was requested during the outage");
    wait_for("the end", async || {
        let record = server.get(&format!("/v1/ext/conversation/{ended}")).await.json();
        (record["status"] == "ENDED").then_some(())
    })
    .await;
    server.delete(&end).await.expect_status(200);
    assert_eq!(server.delete(&end).await.status, 409);
    server.send_json("POST", "/v1/ext/agent", agent_body(json!({}))).await.expect_status(200);
    assert_eq!(send_offer(&server, &waiting, &token).await.status, 201);
}

/// Checks the server while another connection holds a lock that blocks all of its writes. The
/// statements `held_by` take that lock.
async fn check_while_writes_hang(folder: &TempFolder, held_by: &[&str]) {
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(folder).await;
    server.engine.ends_calls.store(true, Ordering::Relaxed);
    let agent_fields = json!({
        "callback_url": hooks.url,
        "callback_events": ["utterance_committed", "call_ended"],
    });
    let created = server.create_agent(agent_fields).await;
    let (id, _) = server.create_conversation(&created).await;
    let (ended, _) = server.create_conversation(&created).await;
    let (unjoined, _) = server.create_conversation(&created).await;
    for call in [&id, &ended] {
        server.engine.record_event(call, 0, 0.0, joined_event());
        server.wait_for_status(call, "IN_PROGRESS").await;
    }
    server.engine.record_events(&id, 1, [utterance(1)]);
    hooks.wait_for_first(1).await;
    wait_for("the outcome", async || (server.webhook_count("done").await == 1).then_some(())).await;

    let mut holder = folder.connect().await;
    for sql in held_by {
        holder.execute(sqlx::AssertSqlSafe((*sql).to_owned())).await.unwrap();
    }
    server.engine.record_events(&id, 2, (2..=40).map(utterance));
    let end = format!("/v1/conversation/{ended}");
    let wait = async {
        let response =
            async || server.engine.received_commands().contains(&Command::End).then_some(());
        wait_for("the engine to get the command", response).await;
        advance_clock(END_TIMEOUT).await;
    };
    let (response, ()) = tokio::join!(server.delete(&end), wait);
    assert_eq!((response.status, response.header("retry-after")), (503, "2"), "{response:?}");
    // Each iteration advances the clock by one second.
    let reason = json!({"status": "not ready", "reason": "the store accepts no writes"});
    wait_for("/readyz", async || {
        advance_clock(Duration::from_secs(1)).await;
        let reply = server.get("/readyz").await;
        (reply.status == 503 && reply.json() == reason).then_some(())
    })
    .await;
    // Reads continue; every request that must store something is rejected.
    assert_eq!(server.get("/v1/ext/agent").await.status, 200);
    let refused = server.send_json("POST", "/v1/ext/agent", agent_body(json!({}))).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "2"), "{refused:?}");
    server.engine.command_results.lock().unwrap().push_back(Err(CommandError::NotRunning));
    server.engine.ends_calls.store(false, Ordering::Relaxed);
    let unjoined = format!("/v1/conversation/{unjoined}");
    for path in [&end, &unjoined] {
        let response = server.delete(path).await;
        assert_eq!((response.status, response.header("retry-after")), (503, "2"), "{response:?}");
        server.engine.command_results.lock().unwrap().push_back(Err(CommandError::NotRunning));
    }
    // Events that arrive meanwhile wait within the same limits as after a failed write.
    server.engine.record_events(&id, 41, (41..=60).map(utterance));
    server.engine.record_event(&id, 61, 700.0, Event::LlmText { text: "ten minutes later".into() });
    wait_for("the bound", async || {
        let metrics = server.get("/metrics").await.text;
        metrics.contains("visavis_events_dropped_total 1").then_some(())
    })
    .await;
    assert_eq!(hooks.received().len(), 1, "only stored events are sent");

    holder.execute("ROLLBACK").await.unwrap();
    wait_for_ready_status(&server, 200).await;
    server.engine.record_events(
        &id,
        62,
        [(701.0, Event::CallEnded), (701.0, Event::Ended { reason: EndReason::UserLeft })],
    );
    let received = hooks.wait_for_first(62).await;
    let of = |call: &str| {
        received
            .iter()
            .filter(|one| one.body.contains(call))
            .map(|one| one.sequence())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&id), (1..=61).collect::<Vec<_>>(), "each once, in order, without a gap");
    assert_eq!(of(&ended), [1], "the end that was requested during the outage");
    for call in [&id, &ended] {
        server.wait_for_status(call, "ENDED").await;
    }
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.json();
    assert_eq!(events.as_array().unwrap().len(), 63, "{events}");
    for path in [&end, &unjoined] {
        server.delete(path).await.expect_status(200);
        assert_eq!(server.delete(path).await.status, 409);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_loses_nothing_and_no_success_is_told() {
    let folder = TempFolder::new();
    // The first statement of a transaction of events locks their conversations.
    let held_by: &[&str] = match folder.database_url().await {
        Some(_) => &["BEGIN", "LOCK TABLE conversation IN EXCLUSIVE MODE"],
        None => &["BEGIN IMMEDIATE"],
    };
    check_while_writes_hang(&folder, held_by).await;
}

#[tokio::test]
async fn a_transaction_that_hangs_half_way_loses_nothing_and_no_success_is_told() {
    let folder = TempFolder::new();
    if folder.database_url().await.is_none() {
        // Written past the capture of the test harness, which hides the output of a test that
        // passes.
        std::io::stderr().write_all(b"needs PostgreSQL: not run\n").unwrap();
        return;
    }
    check_while_writes_hang(&folder, &["BEGIN", "LOCK TABLE event IN EXCLUSIVE MODE"]).await;
}

/// A server whose store rejects all writes, with a running call of which ten events wait.
async fn start_with_waiting_events(folder: &TempFolder) -> (TestServer, String) {
    let server = TestServer::start(folder).await;
    let created = server.create_agent(json!({})).await;
    let (id, _) = server.create_conversation(&created).await;
    server.engine.record_event(&id, 0, 0.0, joined_event());
    server.wait_for_status(&id, "IN_PROGRESS").await;
    refuse_writes(folder, &WRITTEN_TABLES, "true").await;
    server.engine.record_events(&id, 1, (1..=10).map(utterance));
    wait_for_ready_status(&server, 503).await;
    (server, id)
}

#[tokio::test]
async fn what_waits_for_the_store_when_the_server_stops_is_kept() {
    let folder = TempFolder::new();
    let (server, id) = start_with_waiting_events(&folder).await;
    server.engine.record_events(&id, 11, (11..=30).map(utterance));
    accept_writes(&folder, &WRITTEN_TABLES).await;
    // The stop must store the events whether or not the server has noticed that the store accepts
    // writes again.
    server.stop().await;
    let server = TestServer::start(&folder).await;
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.json();
    let texts =
        events.as_array().unwrap().iter().filter(|event| event["what"] == "utterance_committed");
    assert_eq!(texts.count(), 30, "{events}");
}

#[tokio::test]
async fn what_waits_is_kept_if_the_store_recovers_while_the_server_stops() {
    let folder = TempFolder::new();
    let (server, id) = start_with_waiting_events(&folder).await;
    let recover = async {
        // The attempts of several seconds fail.
        for _ in 0..20 {
            advance_clock(Duration::from_millis(500)).await;
        }
        accept_writes(&folder, &WRITTEN_TABLES).await;
    };
    tokio::join!(server.stop(), recover);
    let server = TestServer::start(&folder).await;
    let stored = stored_seqs(&server, &id).await;
    assert!((0..=10).all(|seq| stored.contains(&seq)), "{stored:?}");
}

#[tokio::test]
async fn a_server_without_a_call_notices_that_its_store_takes_no_writes() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    wait_for_ready_status(&server, 200).await;
    refuse_writes(&folder, &["server", "setting"], "true").await;
    advance_clock(Duration::from_secs(6)).await;
    wait_for_ready_status(&server, 503).await;
    accept_writes(&folder, &["server", "setting"]).await;
    wait_for_ready_status(&server, 200).await;
}

#[tokio::test]
async fn an_event_that_is_refused_alone_is_kept_as_text_and_all_others_go_on() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    let agent_fields = json!({
        "callback_url": hooks.url,
        "callback_events": ["utterance_committed", "call_ended"],
    });
    let created = server.create_agent(agent_fields).await;
    let (bad, _) = server.create_conversation(&created).await;
    let (good, _) = server.create_conversation(&created).await;
    refuse_writes(&folder, &["event"], &format!("NEW.conversation = '{bad}' AND NEW.seq = 2"))
        .await;
    for call in [&bad, &good] {
        server.engine.record_event(call, 0, 0.0, joined_event());
        server.engine.record_events(call, 1, (1..=4).map(utterance));
        server.engine.record_events(
            call,
            5,
            [(5.0, Event::CallEnded), (5.0, Event::Ended { reason: EndReason::UserLeft })],
        );
    }
    // The call with the rejected event sends one webhook less.
    let received = hooks.wait_for_first(9).await;
    let texts = |call: &str| {
        let of = received.iter().filter(|one| one.body.contains(call));
        of.map(|one| {
            one.body.split("number ").nth(1).map_or('e', |rest| rest.chars().next().unwrap())
        })
        .collect::<String>()
    };
    assert_eq!([texts(&good), texts(&bad)], ["1234e", "134e"]);
    for call in [&bad, &good] {
        wait_for("the end", async || {
            let record = server.get(&format!("/v1/ext/conversation/{call}")).await.json();
            (record["status"] == "ENDED").then_some(())
        })
        .await;
    }
    wait_for_ready_status(&server, 200).await;
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("visavis_events_failed 1"), "{metrics}");
    let failed_event: (String, i64, String) =
        sqlx::query_as("SELECT conversation, seq, json FROM failed_event")
            .fetch_one(&mut folder.connect().await)
            .await
            .unwrap();
    assert_eq!((failed_event.0, failed_event.1), (bad.clone(), 2));
    assert!(failed_event.2.contains("number 2"), "{}", failed_event.2);
    let url = folder.database_url().await;
    let counted =
        control_api::check_store::failed_events(&folder.0.join("data"), url.as_deref()).await;
    assert_eq!(counted.unwrap(), Some(1), "as `visavis check` reports");
}

#[tokio::test]
async fn a_text_that_postgresql_refuses_is_kept_aside_and_all_others_are_stored() {
    let folder = TempFolder::new();
    if folder.database_url().await.is_none() {
        // Written past the capture of the test harness, which hides the output of a test that
        // passes.
        std::io::stderr().write_all(b"needs PostgreSQL: not run\n").unwrap();
        return;
    }
    let server = TestServer::start(&folder).await;
    let created = server.create_agent(json!({})).await;
    let (bad, _) = server.create_conversation(&created).await;
    let (good, _) = server.create_conversation(&created).await;
    // In JSON, NUL is an escape sequence, which a text column accepts. A reader of the text as
    // `jsonb`, such as an operator's index, rejects it.
    let reads = "ALTER TABLE event ADD CONSTRAINT reads CHECK (json::jsonb IS NOT NULL)";
    folder.connect().await.execute(reads).await.unwrap();
    for call in [&bad, &good] {
        server.engine.record_event(call, 0, 0.0, joined_event());
        let text = if call == &bad { "number 2\0" } else { "number 2" };
        let second = (2.0, Event::UtteranceCommitted { text: text.into(), speaker: None });
        server.engine.record_events(call, 1, [utterance(1), second, utterance(3)]);
        server.engine.record_events(
            call,
            4,
            [(4.0, Event::CallEnded), (4.0, Event::Ended { reason: EndReason::UserLeft })],
        );
    }
    for (call, stored) in [(&bad, vec![0, 1, 3, 4, 5]), (&good, vec![0, 1, 2, 3, 4, 5])] {
        server.wait_for_status(call, "ENDED").await;
        let events = server.get(&format!("/v1/ext/conversation/{call}/events")).await.json();
        let numbers: Vec<u64> =
            events.as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, stored);
    }
    let failed_events: Vec<(String, i64, String, String)> =
        sqlx::query_as("SELECT conversation, seq, json, reason FROM failed_event")
            .fetch_all(&mut folder.connect().await)
            .await
            .unwrap();
    assert_eq!(failed_events.len(), 1, "{failed_events:?}");
    assert_eq!((&failed_events[0].0, failed_events[0].1), (&bad, 2));
    assert!(
        failed_events[0].2.contains("number 2") && failed_events[0].3.contains("Unicode"),
        "{failed_events:?}"
    );
    wait_for_ready_status(&server, 200).await;
}

#[tokio::test]
async fn a_conversation_that_cannot_be_read_holds_up_no_other() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let created = server.create_agent(json!({})).await;
    let (bad, _) = server.create_conversation(&created).await;
    let (good, _) = server.create_conversation(&created).await;
    folder
        .execute_sql(format!("UPDATE conversation SET agent_document = '{{' WHERE id = '{bad}'"))
        .await;
    for call in [&bad, &good] {
        server.engine.record_event(call, 0, 0.0, joined_event());
        server.engine.record_events(call, 1, [utterance(1)]);
    }
    wait_for("the events of the valid one", async || {
        let events = server.get(&format!("/v1/ext/conversation/{good}/events")).await;
        (events.json().as_array().is_some_and(|events| events.len() == 2)).then_some(())
    })
    .await;
    wait_for("the events of the invalid one", async || {
        let metrics = server.get("/metrics").await.text;
        metrics.contains("visavis_events_failed 2").then_some(())
    })
    .await;
    wait_for_ready_status(&server, 200).await;
}

#[tokio::test]
async fn the_record_of_a_call_whose_code_panicked_ends_with_an_error() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start(&folder).await;
    let created = server
        .create_agent(json!({
            "callback_url": hooks.url,
            "callback_events": ["utterance_committed", "call_ended"],
        }))
        .await;
    let (id, _) = server.create_conversation(&created).await;
    server.engine.record_event(&id, 0, 0.0, joined_event());
    server.engine.record_events(&id, 1, [utterance(1), utterance(2)]);
    server.engine.panic_call(&id);
    let received = hooks.wait_for_first(3).await;
    assert_eq!(received[2].name(), "call_ended");
    let record = server.get(&format!("/v1/ext/conversation/{id}")).await.json();
    assert_eq!((&record["status"], &record["end_reason"]), (&json!("ENDED"), &json!("error")));
}

/// Plays two calls of which one loses its event number 2, whose text the store rejects too.
async fn check_that_one_event_is_dropped(server: &TestServer, bad: &str, good: &str) {
    for call in [bad, good] {
        server.engine.record_event(call, 0, 0.0, joined_event());
        server.engine.record_events(call, 1, (1..=3).map(utterance));
        server.engine.record_events(call, 4, call_end_events(4.0));
    }
    for (call, stored) in [(bad, vec![0, 1, 3, 4, 5]), (good, vec![0, 1, 2, 3, 4, 5])] {
        server.wait_for_status(call, "ENDED").await;
        assert_eq!(stored_seqs(server, call).await, stored);
    }
    wait_for_ready_status(server, 200).await;
    let expected =
        ["visavis_events_dropped_total 1", "visavis_events_failed 0", "visavis_events_queued 0"];
    wait_for("the counts", async || {
        let metrics = server.get("/metrics").await.text;
        expected.iter().all(|line| metrics.lines().any(|one| one == *line)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_event_that_panics_and_whose_text_is_refused_holds_up_no_other() {
    static EVENTS: AtomicU32 = AtomicU32::new(0);
    fn panic_at_third_event(point: CrashPoint) {
        if point == CrashPoint::BeforeEvent {
            assert_ne!(EVENTS.fetch_add(1, Ordering::Relaxed), 2, "the test's own panic");
        }
    }
    let folder = TempFolder::new();
    let server =
        TestServer::start_with(&folder.0, |config| config.crash_hook = Some(panic_at_third_event))
            .await;
    let created = server.create_agent(json!({})).await;
    let (bad, _) = server.create_conversation(&created).await;
    let (good, _) = server.create_conversation(&created).await;
    refuse_writes(&folder, &["failed_event"], "true").await;
    check_that_one_event_is_dropped(&server, &bad, &good).await;
}

#[tokio::test]
async fn an_event_that_is_refused_and_whose_text_is_refused_too_holds_up_no_other() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let created = server.create_agent(json!({})).await;
    let (bad, _) = server.create_conversation(&created).await;
    let (good, _) = server.create_conversation(&created).await;
    refuse_writes(&folder, &["event"], &format!("NEW.conversation = '{bad}' AND NEW.seq = 2"))
        .await;
    refuse_writes(&folder, &["failed_event"], "true").await;
    check_that_one_event_is_dropped(&server, &bad, &good).await;
}

#[tokio::test]
async fn an_old_conversation_that_cannot_be_erased_keeps_no_other() {
    let folder = TempFolder::new();
    // The conversations of these tests start in 2023.
    let server = TestServer::start_with(&folder.0, |config| {
        config.retention_days = 1;
        config.timeouts.join = Duration::from_secs(3600);
    })
    .await;
    let created = server.create_agent(json!({})).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(server.create_conversation(&created).await.0);
    }
    // Whether the sweep takes the oldest or the newest first, one comes after this one.
    let bad = &calls[1];
    let mut store = folder.connect().await;
    if folder.database_url().await.is_some() {
        let function = "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ \
            BEGIN RAISE EXCEPTION 'it stays'; END $$";
        store.execute(function).await.unwrap();
        let trigger = format!(
            "CREATE TRIGGER keep BEFORE DELETE ON conversation FOR EACH ROW \
             WHEN (OLD.id = '{bad}') EXECUTE FUNCTION keep()"
        );
        store.execute(sqlx::AssertSqlSafe(trigger)).await.unwrap();
    } else {
        let trigger = format!(
            "CREATE TRIGGER keep BEFORE DELETE ON conversation WHEN OLD.id = '{bad}' BEGIN \
             SELECT RAISE(ABORT, 'it stays'); END"
        );
        store.execute(sqlx::AssertSqlSafe(trigger)).await.unwrap();
    }
    for call in &calls {
        server.engine.record_event(call, 0, 0.0, joined_event());
        server.engine.record_events(call, 1, call_end_events(1.0));
    }
    let status_of =
        async |call: &str| server.get(&format!("/v1/ext/conversation/{call}")).await.status;
    for call in &calls {
        wait_for("the end", async || {
            let reply = server.get(&format!("/v1/ext/conversation/{call}")).await;
            (reply.status == 404 || reply.json()["status"] == "ENDED").then_some(())
        })
        .await;
    }
    // The sweep runs every 30 s.
    advance_clock(Duration::from_secs(31)).await;
    for call in [&calls[0], &calls[2]] {
        wait_for("an old one to be erased", async || (status_of(call).await == 404).then_some(()))
            .await;
    }
    assert_eq!(status_of(bad).await, 200);
    wait_for_ready_status(&server, 200).await;
}

#[tokio::test]
async fn webhooks_that_cannot_be_read_are_set_aside_and_all_others_are_sent() {
    let folder = TempFolder::new();
    if folder.database_url().await.is_some() {
        // Written past the capture of the test harness, which hides the output of a test that
        // passes.
        std::io::stderr()
            .write_all(b"needs SQLite, which stores values of any type: not run\n")
            .unwrap();
        return;
    }
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.schedule = [3600, 3600].map(Duration::from_secs).to_vec();
    })
    .await;
    let agent_fields =
        json!({"callback_url": hooks.url, "callback_events": ["utterance_committed"]});
    let created = server.create_agent(agent_fields).await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        let (id, _) = server.create_conversation(&created).await;
        server.engine.record_event(&id, 0, 0.0, joined_event());
        server.engine.record_events(&id, 1, [utterance(1), utterance(2)]);
        calls.push(id);
    }
    wait_for("all of them to wait", async || {
        (server.webhook_count("pending").await == 8).then_some(())
    })
    .await;
    server.stop().await;

    // The first webhook of two conversations has bytes in place of its URL, or a text that is not
    // UTF-8. One of them waits for its first attempt, and one was attempted before.
    let [untried_bad, untried_good, tried_bad, tried_good] = &calls[..] else { unreachable!() };
    let statements = [
        "UPDATE delivery SET next_try = 0".to_owned(),
        format!(
            "UPDATE delivery SET attempts = 1, first_try = 1 WHERE conversation IN ('{tried_bad}', \
             '{tried_good}')"
        ),
        format!(
            "UPDATE delivery SET url = x'ff' WHERE sequence = 1 AND conversation = '{untried_bad}'"
        ),
        format!(
            "UPDATE delivery SET url = CAST(x'ff' AS TEXT) WHERE sequence = 1 \
             AND conversation = '{tried_bad}'"
        ),
    ];
    for statement in statements {
        folder.execute_sql(statement).await;
    }
    let server = TestServer::start(&folder).await;
    let received = hooks.wait_for_first(6).await;
    let sequences = |call: &str| {
        let mut of: Vec<u64> = received
            .iter()
            .filter(|one| one.body.contains(call))
            .map(|one| one.sequence())
            .collect();
        of.sort_unstable();
        of
    };
    for good in [untried_good, tried_good] {
        assert_eq!(sequences(good), [1, 2]);
    }
    for bad in [untried_bad, tried_bad] {
        assert_eq!(sequences(bad), [2]);
        let log =
            server.get(&format!("/v1/ext/conversation/{bad}/deliveries")).await.expect_status(200);
        assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
    }
    wait_for("the outcomes", async || (server.webhook_count("done").await == 6).then_some(()))
        .await;
    assert_eq!(
        (server.webhook_count("unreadable").await, server.webhook_count("pending").await),
        (2, 0)
    );
}
