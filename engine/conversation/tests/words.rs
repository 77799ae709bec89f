//! The words of a recorded call: each has the time at which it left for the network.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use conversation::conversation::Conversation;
use conversation::event::{Event, EventEnvelope, HeardWord};
use conversation::input::{Command, CommandId, Input, LlmEvent, PlayoutEvent, SegmentId, TtsEvent};
use conversation::output::Output;
use conversation::replay::{Replay, Verdict};
use conversation::settings::{AgentTurnConfig, Settings};
use conversation::simulate::simulate_traced;
use conversation::spec::Spec;
use conversation::time::{Position, Time};
use conversation::view::ConversationView;
use serde_json::{Value, json};

/// The events of a scenario, read from its trace as from a store.
fn scenario_events(scenario: &Value) -> Vec<EventEnvelope> {
    let (_, trace) = simulate_traced(scenario.to_string().as_bytes()).unwrap();
    let lines = trace.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
    let outputs = lines.flat_map(|line| line["out"].as_array().cloned().unwrap_or_default());
    let emitted = outputs.filter_map(|output| output.get("Tell").cloned());
    emitted.map(|envelope| serde_json::from_value(envelope).unwrap()).collect()
}

/// A user who asks for a story, and the agent's answer.
fn story(reply: Value, more_speech: Value, recorded: bool) -> Value {
    let asks = json!({"from": 0.5, "to": 1.5, "text": "Tell me a story."});
    let user: Vec<Value> = [asks, more_speech].into_iter().filter(|v| !v.is_null()).collect();
    let mut settings = json!({});
    if recorded {
        settings["record_words"] = json!(true);
    }
    json!({"settings": settings, "user": user, "replies": [reply], "until": 30})
}

/// The times in seconds of the events that `pick` selects.
fn times(events: &[EventEnvelope], pick: fn(&Event) -> bool) -> Vec<f64> {
    events.iter().filter(|e| pick(&e.event)).map(|e| e.at.as_seconds()).collect()
}

/// The numbers of words in each `agent.words`.
fn word_counts(events: &[EventEnvelope]) -> Vec<usize> {
    let count = |e: &EventEnvelope| match &e.event {
        Event::AgentWords { words, .. } => Some(words.len()),
        _ => None,
    };
    events.iter().filter_map(count).collect()
}

/// The only message of the agent in `chat_history`.
fn agent_message(events: &[EventEnvelope]) -> Value {
    let mut view = ConversationView::default();
    events.iter().for_each(|envelope| view.apply(envelope));
    let stored = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<ConversationView>(&stored).unwrap(), view);
    let mut history = view.chat_history(|_| Value::Null);
    let messages = history["messages"].as_array_mut().unwrap();
    assert!(messages.iter().all(|m| m["role"] == "assistant" || m.get("words").is_none()));
    messages.retain(|message| message["role"] == "assistant");
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

/// The words of a message, with times relative to `origin`.
fn words(message: &Value, origin: f64) -> Vec<(String, f64, f64)> {
    let words: Vec<HeardWord> = serde_json::from_value(message["words"].clone()).unwrap();
    let relative = |seconds: f64| ((seconds - origin) * 1e3).round() / 1e3;
    words.into_iter().map(|w| (w.text, relative(w.start), relative(w.end))).collect()
}

fn expect_words(list: &[(&str, f64, f64)]) -> Vec<(String, f64, f64)> {
    list.iter().map(|(text, start, end)| ((*text).to_owned(), *start, *end)).collect()
}

/// Four words of a second each.
fn four_words() -> Value {
    let words = json!([["One", 1.0], ["two", 2.0], ["three", 3.0], ["four.", 4.0]]);
    json!({"to": "Tell me a story.", "say": "One two three four.", "audio": 4.0, "words": words})
}

#[test]
fn a_whole_reply_has_its_words_from_its_first_sample_on() {
    let events = scenario_events(&story(four_words(), Value::Null, true));
    let start = times(&events, |e| matches!(e, Event::AgentStartedSpeaking { .. }))[0];
    let message = agent_message(&events);
    let expected = [("One", 0.0, 1.0), ("two", 1.0, 2.0), ("three", 2.0, 3.0), ("four.", 3.0, 4.0)];
    assert_eq!(words(&message, start), expect_words(&expected));
    assert_eq!(message["seconds_from_start"], json!(start), "the same origin");
    assert_eq!(word_counts(&events), [4]);
    let event = events.iter().find(|e| matches!(e.event, Event::AgentWords { .. })).unwrap();
    assert_eq!(event.event.webhook_name(), None);
    assert!(!event.event.is_progress(), "a full queue must not drop it");
    let written = json!(event.event);
    assert_eq!(
        (&written["what"], &written["utterance"], &written["words"]),
        (&json!("agent.words"), &json!(0), &message["words"])
    );
}

#[test]
fn a_reply_that_was_interrupted_ends_with_its_last_heard_word() {
    let stops = json!({"from": 4.0, "to": 4.6, "text": "Stop!"});
    let events = scenario_events(&story(four_words(), stops, true));
    let start = times(&events, |e| matches!(e, Event::AgentStartedSpeaking { .. }))[0];
    let silent = times(&events, |e| matches!(e, Event::PlayoutHeld { .. }))[0];
    assert!(silent > start + 2.0 && silent < start + 3.0, "{start} to {silent}: in the third word");
    let message = agent_message(&events);
    assert_eq!((&message["content"], &message["interrupted"]), (&json!("One two"), &json!(true)));
    let expected = [("One", 0.0, 1.0), ("two", 1.0, 2.0)];
    assert_eq!(words(&message, start), expect_words(&expected));
}

#[test]
fn words_after_a_hold_stand_where_they_were_heard() {
    let noise = json!({"from": 4.0, "to": 5.0});
    let events = scenario_events(&story(four_words(), noise, true));
    let start = times(&events, |e| matches!(e, Event::AgentStartedSpeaking { .. }))[0];
    let held = times(&events, |e| matches!(e, Event::PlayoutHeld { .. }))[0];
    let resumed = times(&events, |e| matches!(e, Event::PlayoutResumed { .. }))[0];
    let end = times(&events, |e| matches!(e, Event::PlayoutFinished { .. }))[0];
    let pause = resumed - held;
    assert!(pause > 1.0 && held > start + 2.0 && held < start + 3.0, "{start}, {held}, {resumed}");
    let round = |seconds: f64| (seconds * 1e3).round() / 1e3;
    let (third, fourth) = (round(3.0 + pause), round(4.0 + pause));
    let expected =
        [("One", 0.0, 1.0), ("two", 1.0, 2.0), ("three", 2.0, third), ("four.", third, fourth)];
    let message = agent_message(&events);
    assert_eq!(words(&message, start), expect_words(&expected));
    // The audio of the scripted voice is 10 ms longer than its words.
    assert_eq!(round(end - start), round(fourth + 0.01));
}

#[test]
fn a_word_that_starts_where_playout_was_held_starts_at_the_resume() {
    let mut reply = four_words();
    let noise = json!({"from": 4.0, "to": 5.0});
    let events = scenario_events(&story(reply.clone(), noise.clone(), true));
    let start = times(&events, |e| matches!(e, Event::AgentStartedSpeaking { .. }))[0];
    let held = times(&events, |e| matches!(e, Event::PlayoutHeld { .. }))[0] - start;
    reply["words"][1][1] = json!((held * 1e3).round() / 1e3);
    let events = scenario_events(&story(reply, noise, true));
    let resumed = times(&events, |e| matches!(e, Event::PlayoutResumed { .. }))[0] - start;
    let found = words(&agent_message(&events), start);
    assert!((found[1].2 - held).abs() < 0.001, "{found:?}: two ends at the hold, {held}");
    assert!((found[2].1 - resumed).abs() < 0.001, "{found:?}: three starts at {resumed}");
}

#[test]
fn the_words_of_each_segment_count_from_its_own_first_sample() {
    let parts = json!([
        {"say": "One two.", "audio": 1.0, "words": [["One", 0.5], ["two.", 1.0]]},
        {"say": "Three four.", "audio": 2.0, "words": [["Three", 0.25], ["four.", 2.0]]},
    ]);
    let events = scenario_events(&story(json!({"to": "*", "parts": parts}), Value::Null, true));
    assert_eq!(word_counts(&events), [2, 2], "one event for each segment");
    let starts = times(&events, |e| matches!(e, Event::PlayoutStarted { .. }));
    let message = agent_message(&events);
    assert_eq!(message["content"], "One two. Three four.");
    let found = words(&message, starts[0]);
    assert_eq!(found[..2], expect_words(&[("One", 0.0, 0.5), ("two.", 0.5, 1.0)]));
    let found = words(&message, starts[1]);
    assert_eq!(found[2..], expect_words(&[("Three", 0.0, 0.25), ("four.", 0.25, 2.0)]));

    // The server dies in the second segment: its words have no times, so the message has none.
    let second = events.iter().rposition(|e| matches!(e.event, Event::AgentWords { .. })).unwrap();
    let message = agent_message(&events[..second]);
    assert!(message["content"].as_str().unwrap().starts_with("One two. Three"), "{message}");
    assert_eq!(message.get("words"), None);
}

#[test]
fn a_message_without_the_times_of_all_its_words_has_none() {
    let mut reply = four_words();
    reply.as_object_mut().unwrap().remove("words");
    let events = scenario_events(&story(reply, Value::Null, true));
    assert_eq!((agent_message(&events).get("words"), word_counts(&events).len()), (None, 0));
    let parts = json!([
        {"say": "One two.", "audio": 1.0, "words": [["One", 0.5], ["two.", 1.0]]},
        {"say": "Three four.", "audio": 2.0},
    ]);
    let events = scenario_events(&story(json!({"to": "*", "parts": parts}), Value::Null, true));
    assert_eq!((agent_message(&events).get("words"), word_counts(&events)), (None, vec![2]));
}

#[test]
fn a_call_that_is_not_recorded_differs_in_its_words_only() {
    let noise = json!({"from": 4.0, "to": 5.0});
    let recorded = scenario_events(&story(four_words(), noise.clone(), true));
    let plain = scenario_events(&story(four_words(), noise.clone(), false));
    let without = recorded.iter().filter(|e| !matches!(e.event, Event::AgentWords { .. }));
    let without: Vec<_> = without.map(|envelope| (envelope.at, &envelope.event)).collect();
    assert_eq!(plain.iter().map(|e| (e.at, &e.event)).collect::<Vec<_>>(), without);
    assert_eq!(agent_message(&plain).get("words"), None);

    let trace = |recorded| {
        let scenario = story(four_words(), noise.clone(), recorded);
        simulate_traced(scenario.to_string().as_bytes()).unwrap().1
    };
    let (recorded, plain) = (trace(true), trace(false));
    assert!(!plain.contains("record_words"), "its trace is as before");
    assert!(recorded.lines().next().unwrap().contains("\"record_words\":true"));
    let mut replay = Replay::new(false);
    for line in recorded.lines() {
        replay.read_line(line.as_bytes()).unwrap();
    }
    let (_, verdict) = replay.finish().unwrap();
    assert!(matches!(verdict, Verdict::Truncated { .. }), "{verdict}: no difference, no end");
}

#[test]
fn only_the_agent_s_record_flag_asks_for_words() {
    let turn = json!({"record_words": true});
    let agent = AgentTurnConfig { turn: Some(&turn), ..AgentTurnConfig::default() };
    assert!(!agent.to_spec().unwrap().record_words);
    let agent = AgentTurnConfig { record_words: true, ..AgentTurnConfig::default() };
    assert!(agent.to_spec().unwrap().record_words);
}

/// A recorded call whose driver is the test.
struct Harness {
    conversation: Conversation,
    events: Vec<EventEnvelope>,
}

impl Harness {
    /// A call whose agent starts to answer with this text.
    fn answering(text: &str) -> Self {
        let settings = Settings { echo_warmup: 0.0, ..Settings::product_defaults() };
        let spec = settings.to_spec().unwrap();
        let spec =
            Spec { preemptive_generation: false, record_words: true, fallback_tts: true, ..spec };
        let mut call = Self { conversation: Conversation::new(spec), events: Vec::new() };
        call.send(0.0, Input::Start);
        let command = Command::Respond { text: "Hello".into() };
        let outputs = call.send(1.0, Input::Command { id: CommandId(0), command });
        let generation = outputs.iter().find_map(|output| match output {
            Output::RequestLlm(request) => Some(request.generation),
            _ => None,
        });
        let generation = generation.unwrap();
        call.send(1.1, Input::Llm { generation, event: LlmEvent::Text(text.into()) });
        let end = LlmEvent::End { prompt_tokens: 1, completion_tokens: 1 };
        call.send(1.2, Input::Llm { generation, event: end });
        call
    }

    fn send(&mut self, at: f64, input: Input) -> Vec<Output> {
        self.conversation.handle(input, Time::from_seconds(at));
        let outputs: Vec<Output> = core::iter::from_fn(|| self.conversation.poll()).collect();
        self.events.extend(outputs.iter().filter_map(|output| match output {
            Output::Emit(envelope) => Some(envelope.clone()),
            _ => None,
        }));
        outputs
    }

    fn tts(&mut self, at: f64, segment: u32, event: TtsEvent) -> &mut Self {
        self.send(at, Input::Tts { segment: SegmentId(segment), event });
        self
    }

    fn words(&mut self, at: f64, segment: u32, words: &[(&str, f64)]) -> &mut Self {
        let words = words.iter().map(|(word, end)| ((*word).to_owned(), seconds(*end)));
        self.tts(at, segment, TtsEvent::WordTimestamps(words.collect()))
    }

    fn playout(&mut self, at: f64, segment: u32, event: PlayoutEvent) -> &mut Self {
        self.send(at, Input::Playout { segment: SegmentId(segment), event });
        self
    }
}

fn seconds(seconds: f64) -> Position {
    Position::from_seconds(seconds)
}

#[test]
fn another_voice_that_takes_over_has_its_own_times() {
    let mut call = Harness::answering("One two.");
    call.words(1.3, 0, &[("One", 0.9)]);
    call.tts(1.4, 0, TtsEvent::Failed("refused".into()));
    call.words(2.0, 1, &[("One", 0.25), ("", 0.5), ("two.", 0.75)]);
    call.tts(2.0, 1, TtsEvent::End { duration: seconds(0.8) });
    call.playout(2.5, 1, PlayoutEvent::Started);
    call.playout(3.3, 1, PlayoutEvent::Finished(seconds(0.8)));
    let expected = [("One", 0.0, 0.25), ("two.", 0.5, 0.75)];
    assert_eq!(words(&agent_message(&call.events), 2.5), expect_words(&expected), "with a pause");
}

#[test]
fn a_voice_that_stalls_delays_the_words_after_it() {
    let mut call = Harness::answering("One two three.");
    call.words(1.3, 0, &[("One", 0.5), ("two", 1.0), ("three.", 1.5)]);
    call.tts(1.3, 0, TtsEvent::FirstAudio).playout(2.0, 0, PlayoutEvent::Started);
    // Reports that are late by less than 10 ms change nothing.
    call.playout(2.104, 0, PlayoutEvent::Progress(seconds(0.1)));
    call.playout(2.6, 0, PlayoutEvent::Stalled(seconds(0.6)));
    call.tts(5.0, 0, TtsEvent::End { duration: seconds(1.6) });
    call.playout(5.0, 0, PlayoutEvent::Progress(seconds(0.6)));
    call.playout(6.0, 0, PlayoutEvent::Finished(seconds(1.6)));
    let expected = [("One", 0.0, 0.5), ("two", 0.5, 3.4), ("three.", 3.4, 3.9)];
    assert_eq!(words(&agent_message(&call.events), 2.0), expect_words(&expected));
}

#[test]
fn a_voice_that_fails_while_it_speaks_keeps_the_words_before() {
    let mut call = Harness::answering("One two three.");
    call.words(1.3, 0, &[("One", 0.5), ("two", 1.0), ("three.", 1.5)]);
    call.tts(1.3, 0, TtsEvent::FirstAudio).playout(2.0, 0, PlayoutEvent::Started);
    call.playout(3.2, 0, PlayoutEvent::Stalled(seconds(1.2)));
    call.tts(3.5, 0, TtsEvent::Failed("disconnected".into()));
    let mut view = ConversationView::default();
    call.events.iter().for_each(|envelope| view.apply(envelope));
    let history = view.chat_history(|_| Value::Null);
    let expected = [("One", 0.0, 0.5), ("two", 0.5, 1.0)];
    assert_eq!(words(&history["messages"][1], 2.0), expect_words(&expected), "{history}");
}
