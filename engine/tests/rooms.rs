//! Calls in LiveKit rooms: their chat, their captions in a new stay of the agent, and their ends.
//! In virtual time, with scripted models.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::time::Duration;

use conversation::event::{EndReason, Event};
use conversation::settings::AgentTurnConfig;
use engine::transport::livekit::room_peer::RoomSignal;
use engine_api::{CallConfig, RoomEnd};
use serde_json::json;
use support::livekit_room::{LiveKitRoom, left, person};
use support::{Harness, call_config, call_config_of};

const SECOND: Duration = Duration::from_secs(1);
/// Eight words, 2.4 s.
const ANSWER: &str = "There are seven apple trees in the garden.";

fn end_reason(harness: &Harness) -> Option<EndReason> {
    harness.recorder.events_of(1).iter().find_map(|e| match e.event {
        Event::Ended { reason } => Some(reason),
        _ => None,
    })
}

/// Ids of those who have left.
fn departures(harness: &Harness) -> Vec<String> {
    let id = |event: Event| match event {
        Event::ParticipantLeft { id } => Some(id),
        _ => None,
    };
    harness.recorder.events_of(1).into_iter().filter_map(|e| id(e.event)).collect()
}

fn chat(room: &LiveKitRoom) -> Vec<String> {
    room.texts("lk.chat").into_iter().map(|(_, text, _)| text).collect()
}

/// The agent's words, as far as they were captioned: segments of its speech.
fn captions(room: &LiveKitRoom) -> Vec<(String, String, bool)> {
    let texts = room.texts("lk.transcription").into_iter();
    texts.filter(|(segment, ..)| segment.starts_with("visavis-speech")).collect()
}

#[test]
fn each_message_of_the_chat_gets_its_own_answer() {
    let mut harness = Harness::new();
    let mut room = LiveKitRoom::start(&mut harness, call_config(1), ANSWER, &[person("maria")]);
    room.write(&mut harness, "maria", "How many apple trees are there?");
    room.run(&mut harness, SECOND);
    assert_eq!(chat(&room), [""; 0], "the answer has not ended");
    // It interrupts the answer, whose words so far are its answer.
    room.write(&mut harness, "maria", "And how many pear trees?");
    room.run(&mut harness, 4 * SECOND);
    let answers = chat(&room);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(ANSWER.starts_with(&answers[0]) && answers[0].len() < ANSWER.len(), "{answers:?}");
    assert_eq!(answers[1], ANSWER);
}

#[test]
fn speech_that_cannot_be_interrupted_is_not_the_answer_to_a_message() {
    let mut harness = Harness::new();
    let turn = json!({"allow_interruptions": false});
    let agent = AgentTurnConfig { turn: Some(&turn), ..AgentTurnConfig::default() };
    let call = call_config_of(1, agent);
    let mut room = LiveKitRoom::start(&mut harness, call, ANSWER, &[person("maria")]);
    let text = "This is a message of the operator.".to_owned();
    let say = conversation::input::Command::Say {
        text: text.clone(),
        interrupt: false,
        allow_interruptions: false,
        add_to_context: true,
        expression: None,
    };
    harness.command(1, say);
    room.run(&mut harness, SECOND);
    room.write(&mut harness, "maria", "How many apple trees are there?");
    room.run(&mut harness, 8 * SECOND);
    let spoken: Vec<String> = captions(&room).into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(spoken, [text, ANSWER.to_owned()]);
    assert_eq!(chat(&room), [ANSWER]);
}

#[test]
fn a_message_that_is_refused_leaves_no_trace_in_the_chat() {
    // One question in ten seconds.
    let mut harness = Harness::with_question_limit(0.1);
    let mut room = LiveKitRoom::start(&mut harness, call_config(1), ANSWER, &[person("maria")]);
    for _ in 0..2 {
        room.write(&mut harness, "maria", "How many apple trees are there?");
        room.run(&mut harness, 4 * SECOND);
    }
    assert_eq!(chat(&room), [ANSWER], "the second one is refused");
    let respond = conversation::input::Command::Respond { text: "What is new?".into() };
    harness.command(1, respond);
    room.run(&mut harness, 4 * SECOND);
    assert_eq!(captions(&room).len(), 2, "the answer to the API is spoken");
    assert_eq!(chat(&room), [ANSWER]);
}

#[test]
fn an_open_caption_goes_on_after_a_rejoin_and_ends() {
    let mut harness = Harness::new();
    let people = [person("maria")];
    let mut before = LiveKitRoom::start(&mut harness, call_config(1), ANSWER, &people);
    before.write(&mut harness, "maria", "How many apple trees are there?");
    before.run(&mut harness, SECOND);
    let open = captions(&before);
    let [(segment, text, false)] = &open[..] else { panic!("{open:?}") };
    assert!(!text.is_empty() && text.len() < ANSWER.len(), "{text:?}");
    let mut after = LiveKitRoom::rejoin(&mut harness, 1, &people);
    after.run(&mut harness, 4 * SECOND);
    assert_eq!(captions(&after), [(segment.clone(), ANSWER.to_owned(), true)]);
    assert_eq!(chat(&after), [ANSWER], "it still answers the message");
}

#[test]
fn all_who_leave_at_once_are_named_and_the_call_ends() {
    let mut harness = Harness::new();
    let people = [person("maria"), person("tom")];
    let mut room = LiveKitRoom::start(&mut harness, call_config(1), ANSWER, &people);
    room.update(&mut harness, vec![left("maria"), left("tom")]);
    room.run(&mut harness, SECOND);
    assert_eq!((departures(&harness), end_reason(&harness)), (vec!["maria".into()], None));
    room.run(&mut harness, 5 * SECOND);
    assert_eq!(departures(&harness), ["maria", "tom"]);
    assert_eq!(end_reason(&harness), Some(EndReason::UserLeft));
}

#[test]
fn a_person_who_comes_back_in_time_has_not_left() {
    let mut harness = Harness::new();
    let mut room = LiveKitRoom::start(&mut harness, call_config(1), ANSWER, &[person("maria")]);
    room.update(&mut harness, vec![left("maria")]);
    room.run(&mut harness, 2 * SECOND);
    room.update(&mut harness, vec![person("maria")]);
    room.run(&mut harness, 10 * SECOND);
    assert_eq!((departures(&harness), end_reason(&harness)), (vec![], None));
    room.signal(&mut harness, RoomSignal::Closed(RoomEnd::RoomClosed));
    let user = call_config(1).spec.user_id;
    assert_eq!(departures(&harness), [user], "she is there: the room is closed for the user");
}

/// How a call ends whose agent loses its room.
fn end_of(end: RoomEnd) -> (Option<EndReason>, Vec<String>) {
    let mut harness = Harness::new();
    let call: CallConfig = call_config(1);
    let mut room = LiveKitRoom::start(&mut harness, call, ANSWER, &[person("maria")]);
    room.signal(&mut harness, RoomSignal::Closed(end));
    let warning = |event: Event| match event {
        Event::Warning { text } => Some(text),
        _ => None,
    };
    let events = harness.recorder.events_of(1).into_iter();
    (end_reason(&harness), events.filter_map(|e| warning(e.event)).collect())
}

#[test]
fn a_room_that_is_lost_is_an_error_and_one_that_is_closed_is_not() {
    let (reason, warnings) = end_of(RoomEnd::Failed("the server refused the agent".into()));
    assert_eq!(reason, Some(EndReason::Error));
    assert_eq!(warnings, ["The room was lost: the server refused the agent."]);
    for end in [RoomEnd::Removed, RoomEnd::RoomClosed, RoomEnd::Superseded] {
        assert_eq!(end_of(end.clone()), (Some(EndReason::UserLeft), vec![]), "{end:?}");
    }
}
