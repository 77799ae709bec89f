//! The view of a conversation is the projection of its events and nothing else. Over all scenarios
//! it agrees with the state machine.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::path::Path;

use conversation::event::{Event, EventEnvelope, Role};
use conversation::output::Output;
use conversation::simulate::simulate_traced;
use conversation::view::ConversationView;
use serde_json::{Value, json};

/// The events of a trace, read from its text as from a store.
fn trace_events(trace: &str) -> Vec<EventEnvelope> {
    let outputs = trace.lines().skip(1).flat_map(|line| {
        serde_json::from_str::<Value>(line).unwrap()["out"].as_array().cloned().unwrap_or_default()
    });
    let emitted = outputs.filter(|output| output.get("Tell").is_some());
    emitted
        .map(|output| match serde_json::from_value(output).unwrap() {
            Output::Emit(envelope) => envelope,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn fold_events<'a>(events: impl IntoIterator<Item = &'a EventEnvelope>) -> ConversationView {
    let mut view = ConversationView::default();
    events.into_iter().for_each(|envelope| view.apply(envelope));
    view
}

#[test]
fn the_projection_of_the_events_equals_the_state_of_the_machine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut items = 0;
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let name = path.display();
        let Ok((printed, trace)) = simulate_traced(&std::fs::read(&path).unwrap()) else {
            continue;
        };
        let events = trace_events(&trace);
        let view = fold_events(&events);
        let summary: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();

        // The history.
        let folded: Vec<Value> = view
            .items
            .iter()
            .map(|item| match &item.tool {
                Some((tool, arguments)) => {
                    json!({"role": "tool", "name": tool, "arguments": arguments, "text": item.text})
                }
                None => {
                    json!({"role": item.role, "text": item.text, "interrupted": item.interrupted})
                }
            })
            .collect();
        assert_eq!(Value::from(folded), summary["history"], "{name}");

        // The agent's texts are those of its `agent.stopped_speaking` events.
        let stopped = events.iter().filter_map(|envelope| match &envelope.event {
            Event::AgentStoppedSpeaking { text, .. } if !text.is_empty() => Some(text.as_str()),
            _ => None,
        });
        let spoken = view
            .items
            .iter()
            .filter(|item| item.role == Role::Assistant)
            .map(|item| item.text.as_str());
        assert!(stopped.eq(spoken), "{name}");

        // Turns with an event. A turn whose reply is pending is in the summary only.
        let turns = summary["turns"].as_array().unwrap();
        for turn in &view.turns {
            let round = |value: Option<f64>| json!(value.map(conversation::view::round_to_millis));
            assert_eq!(
                round(turn.voice_to_voice),
                turns[turn.turn as usize]["voice_to_voice"],
                "{name}"
            );
            assert_eq!(round(turn.endpointing), turns[turn.turn as usize]["endpointing"], "{name}");
        }

        // The projection can be resumed anywhere: a view that was stored as JSON continues with the
        // events that follow.
        for at in 0..events.len() {
            let view_json = serde_json::to_string(&fold_events(&events[..at])).unwrap();
            let mut resumed: ConversationView = serde_json::from_str(&view_json).unwrap();
            events[at..].iter().for_each(|envelope| resumed.apply(envelope));
            assert_eq!(resumed, view, "{name}, from {at}");
        }
        items += view.items.len();
    }
    assert!(items > 200, "{items}");
}
