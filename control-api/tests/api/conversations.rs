//! The endpoints of conversations: create, read, control.

use std::sync::atomic::Ordering;

use conversation::direction::Expression;
use conversation::event::{
    AgentState, EndReason, Event, EventEnvelope, HeardWord, HistoryItem, Role, Stage, TurnTimes,
    UtteranceId,
};
use conversation::input::Command;
use conversation::output::{CommandOutcome, Rejection};
use conversation::providers::{ProviderUsage, TurnProviders, UsageAmounts};
use conversation::simulate::simulate_traced;
use conversation::time::Time;
use conversation::trace;
use conversation::view::ConversationView;
use engine_api::CommandError;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer, joined_event, wait_for};

const UNKNOWN_ID: &str = "00000000-0000-4000-8000-000000000000";

pub(crate) fn history_event(role: Role, text: &str, started_at: f64) -> Event {
    Event::History(HistoryItem {
        role,
        speaker: None,
        name: None,
        arguments: None,
        text: text.into(),
        interrupted: false,
        utterance: (role == Role::Assistant).then_some(UtteranceId(0)),
        started_at: Some(Time::from_seconds(started_at)),
        ended_at: None,
        in_context: true,
    })
}

/// The events of a short call, from the join to the hang-up.
pub(crate) fn sample_call() -> Vec<(f64, Event)> {
    let utterance = UtteranceId(0);
    vec![
        (0.0, joined_event()),
        (1.0, Event::UserStartedSpeaking),
        (2.0, Event::UserStoppedSpeaking),
        (2.5, Event::UtteranceCommitted { text: "Hello?".into(), speaker: None }),
        (2.5, history_event(Role::User, "Hello?", 1.0)),
        (2.5, Event::AgentState { state: AgentState::Thinking }),
        (3.0, Event::AgentStartedSpeaking { text: "Hi there.".into(), utterance }),
        (4.0, Event::AgentStoppedSpeaking { text: "Hi there.".into(), utterance }),
        (4.0, history_event(Role::Assistant, "Hi there.", 3.0)),
        (5.0, Event::ParticipantLeft { id: "u".into() }),
        (5.0, Event::CallEnded),
        (5.0, Event::Ended { reason: EndReason::UserLeft }),
    ]
}

#[tokio::test]
async fn a_new_conversation_tells_how_to_join() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let body = json!({
        "agent_id": agent,
        "user_name": "Ada",
        "user_id": "a-1",
        "context": {"plan": "gold"},
        "meta_data": {"x": 1},
    });
    let created = server.post("/v1/ext/conversation", body).await.expect_status(201);
    let (id, token) = (created["id"].as_str().unwrap(), created["token"].as_str().unwrap());
    assert_eq!(created["status"], "STARTED");
    assert_eq!(created["context"], "{\"plan\":\"gold\"}");
    assert_eq!(created["meta_data"], json!({"x": 1}));
    assert_eq!(
        (&created["user_name"], &created["user_id"], &created["avatar_id"]),
        (&json!("Ada"), &json!("a-1"), &json!("ada"))
    );
    assert_eq!(created["transcript"], json!([]));
    assert_eq!(created["join_link"], format!("{}/join/{id}#token={token}", server.url));
    assert_eq!(
        created["webrtcRequestParams"]["endpoint"],
        format!("{}/api/offer?token={token}", server.url)
    );
    assert_eq!(created["iceConfig"], json!({"iceServers": []}));
    let read = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
    assert_eq!((&read["recording_url"], &read["is_recorded"]), (&json!(""), &json!(false)));
    assert_eq!(read["end_reason"], Value::Null);

    let body = json!({"agentId": agent, "userName": "Ada", "context": "plain"});
    let answer = server.post("/v1/auth/conversation", body).await.expect_status(200);
    assert_eq!((&answer["avatar_key_id"], &answer["avatar_name"]), (&json!("ada"), &json!("Ada")));
    let other = answer["conversationId"].as_str().unwrap();
    assert!(answer["url"].as_str().unwrap().contains(other) && answer["token"] != token);
    let list = server.get("/v1/ext/conversation").await;
    assert_eq!(list.header("x-total-count"), "2");
    let list = list.expect_status(200);
    assert_eq!(
        (&list[0]["id"], &list[0]["context"], &list[0]["is_active"]),
        (&json!(other), &json!("\"plain\""), &json!(true))
    );
    assert_eq!(list[1]["join_link"], created["join_link"]);
    assert_eq!(server.get("/v1/ext/conversation?search=ada").await.header("x-total-count"), "2");
    assert_eq!(server.get("/v1/ext/conversation?search=ended").await.header("x-total-count"), "0");
}

#[tokio::test]
async fn an_invalid_conversation_request_is_rejected() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let missing = json!({"message": "Agent details not found"});
    server
        .post("/v1/ext/conversation", json!({"agent_id": UNKNOWN_ID}))
        .await
        .assert_is(404, missing.clone());
    server
        .post("/v1/auth/conversation", json!({"agentId": "nonsense"}))
        .await
        .assert_is(404, missing);
    for body in [json!({}), json!({"agent_id": 1}), json!({"agent_id": UNKNOWN_ID, "context": 5})] {
        assert_eq!(
            server.post("/v1/ext/conversation", body).await.expect_status(400)["error"],
            "Invalid request body"
        );
    }
    for path in ["", "/turns", "/events"] {
        for id in [UNKNOWN_ID, "nonsense"] {
            let reply = server.get(&format!("/v1/ext/conversation/{id}{path}")).await;
            reply.assert_is(404, json!({"error": "Conversation not found"}));
        }
    }
}

#[tokio::test]
async fn the_words_of_a_recorded_call_are_in_its_chat_history() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({"record": true})).await;
    let (plain, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&plain, 0, sample_call());
    let (recorded, _) = server.create_conversation(&agent).await;
    let mut events = sample_call();
    let word = |text: &str, start, end| HeardWord { text: text.into(), start, end };
    let words = vec![word("Hi", 3.0, 3.25), word("there.", 3.25, 4.0)];
    let end = events.iter().position(|(_, e)| matches!(e, Event::AgentStoppedSpeaking { .. }));
    let words = Event::AgentWords { utterance: UtteranceId(0), words };
    events.insert(end.unwrap(), (4.0, words));
    server.engine.record_events(&recorded, 0, events);
    let record = server.wait_for_status(&recorded, "ENDED").await;
    let messages = &record["chat_history"]["messages"];
    assert_eq!(messages[0].get("words"), None, "no recognizer reports the user's");
    assert_eq!(
        messages[1]["words"],
        json!([
            {"text": "Hi", "start": 3.0, "end": 3.25},
            {"text": "there.", "start": 3.25, "end": 4.0},
        ])
    );
    let stored = server.get(&format!("/v1/ext/conversation/{recorded}/events")).await;
    let stored = stored.expect_status(200);
    let found = stored.as_array().unwrap().iter().find(|event| event["what"] == "agent.words");
    assert_eq!(found.unwrap()["words"], messages[1]["words"]);
    let record = server.wait_for_status(&plain, "ENDED").await;
    assert_eq!(record["chat_history"]["messages"][1].get("words"), None);
}

#[tokio::test]
async fn the_record_is_the_fold_of_the_events() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, _) = server.create_conversation(&agent).await;
    server.engine.record_events(&id, 0, sample_call());
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "user_left");
    assert_eq!(record["joined_at"], "2023-11-14T22:13:20.000Z");
    assert_eq!(record["ended_at"], "2023-11-14T22:13:25.000Z");
    assert_eq!(
        record["transcript"],
        json!([
            {
                "timestamp": "2023-11-14T22:13:21.000Z",
                "role": "user",
                "content": "Hello?",
                "conversation_id": id,
                "message_timestamp": 1.0,
            },
            {
                "timestamp": "2023-11-14T22:13:23.000Z",
                "role": "assistant",
                "content": "Hi there.",
                "conversation_id": id,
                "message_timestamp": 3.0,
            },
        ])
    );
    assert_eq!(record["chat_history"]["messages"][1]["speech_id"], "speech_0");
    assert_eq!(record["usage_status"], "completed");
    let usage: Value = serde_json::from_str(record["usage_json"].as_str().unwrap()).unwrap();
    assert_eq!((&usage["duration_seconds"], &usage["stt_seconds"]), (&json!(5.0), &json!(1.0)));
    let listed = server.get("/v1/ext/conversation").await.expect_status(200);
    assert_eq!(
        (&listed[0]["is_active"], &listed[0]["chat_history"]),
        (&json!(false), &record["chat_history"])
    );
    assert_eq!(
        server.get(&format!("/v1/ext/conversation/{id}/turns")).await.expect_status(200),
        json!([])
    );
}

#[tokio::test]
async fn events_are_listed_and_streamed_as_they_are_kept() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({})).await;
    let path = format!("/v1/ext/conversation/{id}/events");
    let stream = |last: &str| {
        let request = server
            .request("GET", &path)
            .header("x-api-key", &server.key)
            .header("accept", "text/event-stream");
        request.header("last-event-id", last.to_owned()).send()
    };
    let mut first = stream("").await.unwrap().bytes_stream();
    let first_chunk = String::from_utf8(first.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(
        first_chunk.starts_with(
            "id: 0\nevent: joined\n\
             data: {\"seq\":0,\"at\":0.0,\"timestamp\":\"2023-11-14T22:13:20.000Z\""
        ),
        "{first_chunk}"
    );
    server.engine.record_events(&id, 1, sample_call().into_iter().skip(1));
    // The stream ends with the conversation.
    let rest: Vec<String> =
        first.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap()).collect().await;
    let rest = rest.concat();
    assert_eq!(rest.matches("\nevent: ").count(), 11, "{rest}");
    assert!(rest.contains("event: utterance_committed\ndata: {\"seq\":3,\"at\":2.5,"), "{rest}");
    let after = stream("10").await.unwrap().text().await.unwrap();
    assert!(after.starts_with("id: 11\nevent: ended\n"), "{after}");

    let list = server.get(&path).await.expect_status(200);
    assert_eq!(list.as_array().unwrap().len(), 12);
    assert_eq!((&list[11]["what"], &list[11]["reason"]), (&json!("ended"), &json!("user_left")));
}

#[tokio::test]
async fn commands_before_the_join_wait_for_the_offer() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, token) = server.create_conversation(&agent).await;
    let path = format!("/v1/conversation/{id}");
    let spoken = server.send_json("PUT", &format!("{path}/speak"), json!({"text": "One."})).await;
    spoken.assert_is(200, json!({"message": "Agent is speaking the provided text."}));
    server.post(&format!("{path}/respond"), json!({"text": "Two?"})).await.expect_status(200);
    server
        .post(&format!("{path}/context"), json!({"text": "Three.", "mode": "overwrite"}))
        .await
        .expect_status(200);
    server.post(&format!("{path}/interrupt"), json!({})).await.expect_status(200);
    assert_eq!(server.engine.received_commands(), [], "no process runs yet");
    let refused = server
        .post(&format!("{path}/context"), json!({"text": "x", "mode": "replace"}))
        .await
        .expect_status(400);
    assert_eq!(refused["details"][0]["field"], "mode");
    assert_eq!(server.send_json("PUT", &format!("{path}/speak"), json!({})).await.status, 400);

    let offer = || server.request("POST", &format!("/rtc/{id}")).bearer_auth(&token).body("v=0");
    assert_eq!(server.send(offer()).await.status, 201);
    let expected = vec![
        Command::Say {
            text: "One.".into(),
            interrupt: true,
            allow_interruptions: true,
            add_to_context: false,
            expression: None,
        },
        Command::Respond { text: "Two?".into() },
        Command::Context { text: "Three.".into(), overwrite: true },
        Command::Interrupt,
    ];
    assert_eq!(server.engine.offers.lock().unwrap()[0].commands, expected);
    // An offer whose connection is not established leaves the commands pending; a join consumes
    // them.
    assert_eq!(server.send(offer()).await.status, 201);
    assert_eq!(server.engine.offers.lock().unwrap()[1].commands, expected);
    server.engine.record_event(&id, 0, 0.0, joined_event());
    server.wait_for_status(&id, "IN_PROGRESS").await;
    assert_eq!(server.send(offer()).await.status, 201);
    assert_eq!(server.engine.offers.lock().unwrap()[2].commands, []);
}

#[tokio::test]
async fn a_running_call_answers_for_itself() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({})).await;
    let path = format!("/v1/conversation/{id}");
    let quiet = json!({"text": "Later.", "interrupt": false, "add_to_context": true,
        "expression": "concerned"});
    server.send_json("PUT", &format!("{path}/speak"), quiet).await.expect_status(200);
    let say = Command::Say {
        text: "Later.".into(),
        interrupt: false,
        allow_interruptions: true,
        add_to_context: true,
        expression: Some(Expression::Concerned),
    };
    assert_eq!(server.engine.received_commands(), [say]);
    let refuse = |refusal| {
        server
            .engine
            .command_results
            .lock()
            .unwrap()
            .push_back(Ok(CommandOutcome::Rejected(refusal)))
    };
    refuse(Rejection::Uninterruptible);
    let refused = server.post(&format!("{path}/interrupt"), json!({})).await;
    refused.assert_is(409, json!({"error": "Agent speech cannot be interrupted"}));
    refuse(Rejection::Ending);
    let refused = server.post(&format!("{path}/respond"), json!({"text": "x"})).await;
    refused.assert_is(409, json!({"error": "Conversation is ending"}));
}

#[tokio::test]
async fn delete_ends_a_running_call_and_keeps_its_record() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({})).await;
    let ending = async {
        wait_for("the engine to get the command", async || {
            server.engine.received_commands().contains(&Command::End).then_some(())
        })
        .await;
        let events =
            [(2.0, Event::CallEnded), (2.0, Event::Ended { reason: EndReason::EndedByApi })];
        server.engine.record_events(&id, 1, events);
    };
    let path = format!("/v1/conversation/{id}");
    let (reply, ()) = tokio::join!(server.delete(&path), ending);
    reply.assert_is(
        200,
        json!({
            "agent_identity": "Test agent",
            "conversation_id": id,
            "message": "Conversation ended successfully",
        }),
    );
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "ended_by_api");
    let ended = json!({"error": "Conversation has ended"});
    server.delete(&path).await.assert_is(409, ended.clone());
    server
        .send_json("PUT", &format!("{path}/speak"), json!({"text": "x"}))
        .await
        .assert_is(409, ended.clone());
    server.post(&format!("{path}/interrupt"), json!({})).await.assert_is(409, ended.clone());
    server
        .post(&format!("{path}/respond"), json!({"text": "x"}))
        .await
        .assert_is(409, ended.clone());
    server.post(&format!("{path}/context"), json!({"text": "x"})).await.assert_is(409, ended);
    let missing = format!("/v1/conversation/{UNKNOWN_ID}");
    server.delete(&missing).await.assert_is(404, json!({"error": "Conversation not found"}));
}

#[tokio::test]
async fn of_many_deletes_at_once_one_ends_the_call() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (unjoined, _) = server.create_conversation(&agent).await;
    let running = server.create_running_call(json!({})).await;
    for (id, joined) in [(running, true), (unjoined, false)] {
        // The engine does not know a call that no user has joined.
        server.engine.ends_calls.store(joined, Ordering::Relaxed);
        if !joined {
            server
                .engine
                .command_results
                .lock()
                .unwrap()
                .extend([Err(CommandError::NotRunning); 5]);
        }
        let path = format!("/v1/conversation/{id}");
        let delete = || server.delete(&path);
        let (a, b, c, d, e) = tokio::join!(delete(), delete(), delete(), delete(), delete());
        let replies = [a, b, c, d, e];
        let count = |status| replies.iter().filter(|reply| reply.status == status).count();
        assert_eq!((count(200), count(409)), (1, 4), "{replies:?}");
        let late = replies.into_iter().find(|reply| reply.status == 409).unwrap();
        late.assert_is(409, json!({"error": "Conversation has ended"}));
    }
}

#[tokio::test]
async fn a_text_to_be_said_or_answered_has_a_longest() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({})).await;
    let path = format!("/v1/conversation/{id}");
    for (method, name) in [("PUT", "speak"), ("POST", "respond")] {
        let path = format!("{path}/{name}");
        server
            .send_json(method, &path, json!({"text": "é".repeat(10_000)}))
            .await
            .expect_status(200);
        let refused = server
            .send_json(method, &path, json!({"text": "x".repeat(10_001)}))
            .await
            .expect_status(400);
        let fault = json!({"field": "text", "reason": "must be at most 10000 characters"});
        assert_eq!(
            (&refused["error"], &refused["details"]),
            (&json!("Invalid request body"), &json!([fault]))
        );
    }
}

#[tokio::test]
async fn delete_before_the_join_ends_it_too() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, token) = server.create_conversation(&agent).await;
    server.engine.command_results.lock().unwrap().push_back(Err(CommandError::NotRunning));
    server.delete(&format!("/v1/conversation/{id}")).await.expect_status(200);
    let record = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
    assert_eq!(
        (&record["status"], &record["end_reason"]),
        (&json!("ENDED"), &json!("ended_by_api"))
    );
    let usage: Value = serde_json::from_str(record["usage_json"].as_str().unwrap()).unwrap();
    assert_eq!((&usage["duration_seconds"], &usage["video_seconds"]), (&json!(0.0), &json!(0.0)));
    // A connection that is established after the end changes nothing. The server ends its call.
    server.engine.commands.lock().unwrap().clear();
    server.engine.record_events(&id, 0, sample_call());
    wait_for("the engine to get the command", async || {
        server.engine.received_commands().contains(&Command::End).then_some(())
    })
    .await;
    let record = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
    assert_eq!(
        (&record["end_reason"], &record["transcript"]),
        (&json!("ended_by_api"), &json!([]))
    );
    let late = server.request("POST", &format!("/rtc/{id}")).bearer_auth(token).body("v=0");
    server.send(late).await.assert_is(409, json!({"error": "Conversation has ended"}));
}

#[tokio::test]
async fn feedback_is_taken_in_every_state_and_the_last_one_wins() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, _) = server.create_conversation(&agent).await;
    let path = format!("/v1/ext/conversation/{id}/feedback");
    server.post(&path, json!({"rating": 2, "feedback": "slow"})).await.expect_status(200);
    server.engine.record_events(&id, 0, sample_call());
    server.wait_for_status(&id, "ENDED").await;
    server.post(&path, json!({"rating": 5})).await.expect_status(200);
    let record = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
    assert_eq!((&record["rating"], &record["feedback"]), (&json!(5), &Value::Null));
    for body in [json!({}), json!({"rating": 6}), json!({"rating": 2.5}), json!({"rating": "5"})] {
        assert_eq!(
            server.post(&path, body).await.expect_status(400)["details"][0]["field"],
            "rating"
        );
    }
}

#[tokio::test]
async fn the_record_of_a_scenario_is_the_fold_of_its_events() {
    check_records_are_folds(8).await;
}

#[tokio::test]
#[ignore = "long: store"]
async fn long_store_the_record_of_every_scenario_is_the_fold_of_its_events() {
    check_records_are_folds(1).await;
}

/// Plays one in `every` scenarios of turn-taking as a call. Three records must be equal: the one
/// that was updated with each event, the one that is derived from the stored events, and the
/// projection of the scenario's own events.
async fn check_records_are_folds(every: usize) {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let scenarios =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/conversation/tests/scenarios");
    let mut paths: Vec<_> =
        std::fs::read_dir(scenarios).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    let (mut ended, mut open) = (0, 0);
    for path in paths.iter().step_by(every) {
        let (_, trace) = simulate_traced(&std::fs::read(path).unwrap()).unwrap();
        let mut call_events: Vec<(f64, Event)> = vec![(0.0, joined_event())];
        for line in trace.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            for output in
                line["out"].as_array().into_iter().flatten().filter(|o| o.get("Tell").is_some())
            {
                let envelope: EventEnvelope =
                    serde_json::from_value(output["Tell"].clone()).unwrap();
                call_events.push((envelope.at.as_seconds(), envelope.event));
            }
        }
        let mut view = ConversationView::default();
        for (seq, (at, event)) in (0..).zip(&call_events) {
            view.apply(&EventEnvelope { seq, at: Time::from_seconds(*at), event: event.clone() });
        }
        let (id, _) = server.create_conversation(&agent).await;
        let count = call_events.len();
        server.engine.record_events(&id, 0, call_events);
        let events = format!("/v1/ext/conversation/{id}/events");
        wait_for("the events to be stored", async || {
            (server.get(&events).await.json().as_array().unwrap().len() == count).then_some(())
        })
        .await;
        let record = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
        let is_over = view.end_reason.is_some();
        assert_eq!(record["status"] == "ENDED", is_over, "{}", path.display());
        let wall = |item: &Value| item["timestamp"].clone();
        let mut timestamps =
            record["chat_history"]["messages"].as_array().unwrap().iter().map(wall);
        assert_eq!(
            record["chat_history"],
            view.chat_history(|_| timestamps.next().unwrap()),
            "{}",
            path.display()
        );
        let expected_transcript: Vec<_> =
            view.transcript().map(|item| (json!(item.role), json!(item.text))).collect();
        let transcript = record["transcript"].as_array().unwrap();
        let actual_transcript: Vec<_> =
            transcript.iter().map(|t| (t["role"].clone(), t["content"].clone())).collect();
        assert_eq!(actual_transcript, expected_transcript, "{}", path.display());
        let usage: Value = serde_json::from_str(record["usage_json"].as_str().unwrap()).unwrap();
        assert_eq!(usage, view.usage_json(view.duration()), "{}", path.display());
        let turns =
            server.get(&format!("/v1/ext/conversation/{id}/turns")).await.expect_status(200);
        assert_eq!(turns, json!(view.turns), "{}", path.display());
        *(if is_over { &mut ended } else { &mut open }) += 1;
    }
    assert!(ended * every > 10 && open * every > 50, "{ended} ended, {open} did not");
}

/// A hosted STT reports its last use when its connection is closed, after the end of the call.
#[tokio::test]
async fn the_use_of_providers_is_stored_after_the_end_too() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let agent = server.create_agent(json!({})).await;
    let (id, _) = server.create_conversation(&agent).await;
    let usage = |connected_seconds| {
        Event::ProviderUsage(ProviderUsage {
            kind: Stage::Stt,
            provider: "deepgram".into(),
            amounts: UsageAmounts { connected_seconds, ..UsageAmounts::default() },
        })
    };
    let providers = TurnProviders {
        stt: vec!["deepgram".into()],
        llm: vec!["anthropic".into(), "openai".into()],
        tts: vec!["cartesia".into()],
    };
    let mut events = sample_call();
    let end = events.len() as u64;
    events.insert(end as usize - 1, (4.5, usage(4.5)));
    let turn = TurnTimes { providers: providers.clone(), ..TurnTimes::default() };
    events.insert(end as usize - 1, (4.5, Event::Turn(turn)));
    let end = events.len() as u64;
    server.engine.record_events(&id, 0, events);
    let before = server.wait_for_status(&id, "ENDED").await;
    let connected = |record: &Value| -> Value {
        let usage: Value = serde_json::from_str(record["usage_json"].as_str().unwrap()).unwrap();
        assert_eq!(usage["duration_seconds"], 5.0);
        usage["providers"][0]["connected_seconds"].clone()
    };
    assert_eq!(connected(&before), 4.5);
    server.engine.record_events(&id, end, [(5.0, usage(0.75))]);
    let after = wait_for("the late report", async || {
        let record = server.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
        (connected(&record) == 5.25).then_some(record)
    })
    .await;
    for field in ["status", "end_reason", "ended_at", "transcript", "warnings"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let turns = server.get(&format!("/v1/ext/conversation/{id}/turns")).await.expect_status(200);
    assert_eq!(turns[0]["providers"], json!(providers));
}

#[tokio::test]
async fn only_an_ended_record_can_be_erased() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let id = server.create_running_call(json!({})).await;
    let path = format!("/v1/ext/conversation/{id}");
    let traces = folder.0.join("data").join(trace::TRACES_FOLDER);
    std::fs::create_dir(&traces).unwrap();
    let trace = traces.join(trace::file_name(id.parse().unwrap()));
    std::fs::write(&trace, "{}").unwrap();
    assert_eq!(server.delete(&path).await.status, 409);
    server.engine.record_events(&id, 1, sample_call().into_iter().skip(1));
    server.wait_for_status(&id, "ENDED").await;
    assert!(trace.exists());
    assert_eq!(server.delete(&path).await.status, 204);
    assert!(!trace.exists(), "the transcript is erased with the record");
    server.get(&path).await.assert_is(404, json!({"error": "Conversation not found"}));
}

#[tokio::test]
async fn a_conversation_keeps_the_agent_that_it_was_made_with() {
    let folder = TempFolder::new();
    let server = TestServer::start(&folder).await;
    let greeting = |words: [&str; 2]| {
        json!([{
            "avatar_key_id": "ada",
            "welcome_message": {"messages": words},
        }])
    };
    let agent = server
        .create_agent(
            json!({"avatars": greeting(["First.", "Second."]), "config": {"maxCallDuration": 77}}),
        )
        .await;
    let mut offered = Vec::new();
    for _ in 0..3 {
        offered.push(server.create_conversation(&agent).await);
    }
    server
        .send_json(
            "PATCH",
            &format!("/v1/ext/agent/{agent}"),
            json!({"agent_system_prompt": "Changed."}),
        )
        .await
        .expect_status(200);
    server.delete(&format!("/v1/ext/agent/{agent}")).await.expect_status(200);
    let mut greetings = Vec::new();
    for (id, token) in offered {
        let offer = server.request("POST", &format!("/rtc/{id}")).bearer_auth(token).body("v=0");
        assert_eq!(server.send(offer).await.status, 201);
        let offers = server.engine.offers.lock().unwrap();
        let call = &offers.last().unwrap().config;
        assert_eq!(call.system_prompt, "Be kind.");
        assert_eq!(call.spec.max_call_duration.unwrap().as_secs(), 77);
        assert_eq!(call.spec.user_id, id);
        greetings.push(call.spec.greeting.as_ref().unwrap().text.clone());
    }
    assert_eq!(
        greetings,
        ["First.", "Second.", "First."],
        "the number of the conversation selects the welcome message"
    );
}
