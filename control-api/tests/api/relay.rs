//! Requests about a call that another server of the same PostgreSQL database holds. With SQLite
//! there is no other server.

use std::sync::atomic::Ordering;

use conversation::input::Command;
use conversation::output::{CommandOutcome, Rejection};
use engine_api::OfferError;
use serde_json::json;

use crate::harness::{Reply, TempFolder, TestServer, joined_event, wait_for};
use crate::servers::start_two_servers;

/// Offers a connection in the format of RTVI clients.
async fn offer(server: &TestServer, token: &str, sdp: &str) -> Reply {
    let request = server.request("POST", &format!("/api/offer?token={token}"));
    server.send(request.json(&json!({"sdp": sdp, "type": "offer"}))).await
}

#[tokio::test]
async fn each_command_through_another_server_takes_effect_in_the_call() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    one.engine.ends_calls.store(true, Ordering::Relaxed);
    let id = one.create_running_call(json!({})).await;
    for (method, path, body, expected) in [
        ("PUT", "/speak", json!({"text": "Hello", "interrupt": false}), "Say"),
        ("POST", "/interrupt", json!({}), "Interrupt"),
        ("POST", "/respond", json!({"text": "Why?"}), "Respond"),
        ("POST", "/context", json!({"text": "It rains."}), "Context"),
    ] {
        let reply = other.send_json(method, &format!("/v1/conversation/{id}{path}"), body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        let sent = one.engine.commands.lock().unwrap().last().cloned().unwrap();
        assert_eq!(sent.0.to_string(), id);
        assert!(format!("{:?}", sent.1).starts_with(expected), "{sent:?}");
    }
    let refused = Ok(CommandOutcome::Rejected(Rejection::Uninterruptible));
    one.engine.command_results.lock().unwrap().push_back(refused);
    let path = format!("/v1/conversation/{id}/interrupt");
    let reply = other.send_json("POST", &path, json!({})).await;
    assert_eq!(reply.status, 409);
    assert!(reply.text.contains("Agent speech cannot be interrupted"), "{}", reply.text);
    let reply = other.delete(&format!("/v1/conversation/{id}")).await;
    assert_eq!(reply.expect_status(200)["message"], "Conversation ended successfully");
    assert_eq!(other.wait_for_status(&id, "ENDED").await["end_reason"], "ended_by_api");
    assert!(other.engine.commands.lock().unwrap().is_empty());
    let again = other.delete(&format!("/v1/conversation/{id}")).await;
    assert_eq!(again.status, 409);
}

#[tokio::test]
async fn concurrent_offers_at_two_servers_reach_the_same_engine() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let agent = one.create_agent(json!({})).await;
    for round in 0..20 {
        let (id, token) = one.create_conversation(&agent).await;
        let (here, there) =
            tokio::join!(offer(&one, &token, "v=0 here"), offer(&other, &token, "v=0 there"));
        assert_eq!((here.status, there.status), (200, 200), "{} {}", here.text, there.text);
        let count = |server: &TestServer| {
            let offers = server.engine.offers.lock().unwrap();
            offers.iter().filter(|offer| offer.config.id.to_string() == id).count()
        };
        assert_eq!(count(&one) + count(&other), 2);
        assert!(count(&one) == 0 || count(&other) == 0, "round {round}: two calls");
        // The call runs where both offers are.
        let holder = if count(&one) == 2 { &one } else { &other };
        holder.engine.record_event(&id, 0, 0.0, joined_event());
        holder.wait_for_status(&id, "IN_PROGRESS").await;
        let reload = offer(&one, &token, "v=0 again").await;
        assert_eq!((reload.status, count(holder)), (200, 3), "{}", reload.text);
    }
}

#[tokio::test]
async fn a_reload_and_a_hang_up_through_another_server_reach_the_call() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let agent = one.create_agent(json!({})).await;
    let (id, token) = one.create_conversation(&agent).await;
    assert_eq!(offer(&one, &token, "v=0 first").await.status, 200);
    one.engine.record_event(&id, 0, 0.0, joined_event());
    one.wait_for_status(&id, "IN_PROGRESS").await;

    let whip = |server: &TestServer, method: &str, path: &str| {
        server.request(method, &format!("/rtc/{id}{path}")).bearer_auth(&token)
    };
    let request = whip(&other, "POST", "").header("content-type", "application/sdp");
    let reply = other.send(request.body("v=0 second")).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    assert_eq!(reply.header("location"), format!("/rtc/{id}/connection-1"));
    assert_eq!(reply.text, "v=0 answer");
    let sdp = one.engine.offers.lock().unwrap().last().unwrap().sdp.clone();
    assert_eq!(sdp, "v=0 second");
    let request = whip(&other, "PATCH", "/connection-1")
        .header("content-type", "application/trickle-ice-sdpfrag");
    assert_eq!(other.send(request.body("a=candidate")).await.status, 204);
    let hung_up = other.send(whip(&other, "DELETE", "/connection-0")).await;
    assert_eq!(hung_up.status, 200, "{}", hung_up.text);
    assert_eq!(other.send(whip(&other, "DELETE", "/connection-7")).await.status, 404);

    let refusals = [
        (OfferError::BadSdp("no audio".into()), 400),
        (OfferError::NotAcceptable("no Opus".into()), 406),
        (OfferError::Ended, 409),
        (OfferError::NoCapacity("full".into()), 503),
    ];
    for (refusal, status) in refusals {
        one.engine.offer_errors.lock().unwrap().push_back(refusal);
        let reply = offer(&other, &token, "v=0 third").await;
        assert_eq!(reply.status, status, "{}", reply.text);
    }
    assert!(other.engine.offers.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_refused_offer_leaves_the_conversation_to_any_server() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let agent = one.create_agent(json!({})).await;
    let (_, token) = one.create_conversation(&agent).await;
    one.engine.offer_errors.lock().unwrap().push_back(OfferError::NoCapacity("full".into()));
    assert_eq!(offer(&one, &token, "v=0").await.status, 503);
    assert_eq!(offer(&other, &token, "v=0").await.status, 200);
    assert_eq!(other.engine.offers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_command_for_a_server_that_does_not_respond_is_refused_and_never_executed() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let id = one.create_running_call(json!({})).await;
    one.kill().await;
    let path = format!("/v1/conversation/{id}/speak");
    let reply = other.send_json("PUT", &path, json!({"text": "Hello"})).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, "2"), "{}", reply.text);
    assert!(reply.text.contains("does not respond"), "{}", reply.text);
    // The server is back before its lease has expired, and reads what it missed.
    let one = TestServer::start(&folders[0]).await;
    other.wait_for_status(&id, "ENDED").await;
    assert!(
        !one.engine.commands.lock().unwrap().iter().any(|(_, c)| matches!(c, Command::Say { .. }))
    );
}

#[tokio::test]
async fn a_refused_command_is_not_left_for_the_next_offer() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let agent = one.create_agent(json!({})).await;
    let (id, token) = one.create_conversation(&agent).await;
    let path = format!("/v1/conversation/{id}/speak");
    other.send_json("PUT", &path, json!({"text": "Early"})).await.expect_status(200);
    assert_eq!(offer(&one, &token, "v=0").await.status, 200);
    one.kill().await;
    let reply = other.send_json("PUT", &path, json!({"text": "Refused"})).await;
    assert_eq!(reply.status, 503, "{}", reply.text);
    let one = TestServer::start(&folders[0]).await;
    assert_eq!(offer(&one, &token, "v=0 again").await.status, 200);
    let commands = one.engine.offers.lock().unwrap()[0].commands.clone();
    assert!(
        matches!(commands.as_slice(), [Command::Say { text, .. }] if text == "Early"),
        "{commands:?}"
    );
}

#[tokio::test]
async fn concurrent_commands_before_the_join_all_wait_for_the_offer() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, token) = server.create_conversation(&agent).await;
    let path = format!("/v1/conversation/{id}/context");
    let send = async |n: usize| {
        server.send_json("POST", &path, json!({"text": format!("{n}")})).await.expect_status(200)
    };
    futures_util::future::join_all((0..12).map(send)).await;
    assert_eq!(offer(&server, &token, "v=0").await.status, 200);
    assert_eq!(server.engine.offers.lock().unwrap()[0].commands.len(), 12);
}

#[tokio::test]
async fn a_request_whose_sender_is_gone_is_not_executed_after_its_deadline() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let id = one.create_running_call(json!({})).await;
    let path = format!("/v1/conversation/{id}/speak");
    other.send_json("PUT", &path, json!({"text": "First"})).await.expect_status(200);
    // As a sender that ends before it gives the request up.
    let request = json!({"Command": {"conversation": id, "command": {"say": {
        "text": "Late", "interrupt": true, "allow_interruptions": true, "add_to_context": false
    }}}});
    let send = async |name: &str, deadline: &str| {
        let from = format!("FROM conversation WHERE id = '{id}'");
        let insert = format!(
            "INSERT INTO message (id, sender, target, request, state, created_at, deadline) \
             SELECT '{name}', 'gone', server, '{request}', 'new', 0, {deadline} {from}"
        );
        folders[0].execute_sql(insert).await;
        let notify = format!("SELECT pg_notify('visavis_' || server, 'request {name}') {from}");
        folders[0].execute_sql(notify).await;
    };
    send("expired", "1").await;
    other.send_json("PUT", &path, json!({"text": "Last"})).await.expect_status(200);
    // Within its deadline, such a request is executed.
    send("valid", "9000000000000000").await;
    let texts = wait_for("the valid request", async || {
        let said = one.engine.received_commands().into_iter().filter_map(|command| match command {
            Command::Say { text, .. } => Some(text),
            _ => None,
        });
        let said: Vec<String> = said.collect();
        (said.len() == 3).then_some(said)
    })
    .await;
    assert_eq!(texts, ["First", "Last", "Late"]);
}

#[tokio::test]
async fn an_offer_that_a_dead_or_draining_server_holds_moves_to_another_one() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let Some([one, other]) = start_two_servers(&folders).await else { return };
    let agent = one.create_agent(json!({})).await;
    let [(_, draining), (id, dead)] =
        [one.create_conversation(&agent).await, one.create_conversation(&agent).await];
    for token in [&draining, &dead] {
        assert_eq!(offer(&one, token, "v=0 first").await.status, 200);
    }
    one.app.drain();
    let moved = offer(&other, &draining, "v=0 second").await;
    assert_eq!(moved.status, 200, "{}", moved.text);
    assert_eq!(other.engine.offers.lock().unwrap().len(), 1);
    one.kill().await;
    let moved = offer(&other, &dead, "v=0 second").await;
    assert_eq!(moved.status, 200, "{}", moved.text);
    other.engine.record_event(&id, 0, 0.0, joined_event());
    other.wait_for_status(&id, "IN_PROGRESS").await;
}
