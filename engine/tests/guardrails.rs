//! Guardrails in a whole call, in virtual time, with scripted models.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::event::{Event, Role, TriggeredGuardrail};
use conversation::spec::ToolSpec;
use engine_api::{Tool, ToolBackend};
use models::{Handle, Sink, llm};
use support::{Harness, WORD_DURATION, call_config, user_audio};

const SECOND: Duration = Duration::from_secs(1);

fn call_with_guardrail(response: Option<&str>) -> engine_api::CallConfig {
    let guardrail = engine_api::Guardrail {
        key: "sue".into(),
        category: "law".into(),
        prompt: "The user wants to sue".into(),
        response_message: response.map(str::to_owned),
        callback_url: None,
    };
    engine_api::CallConfig { guardrails: vec![guardrail], ..call_config(1) }
}

/// The guardrails that fired, from the events.
fn triggered_guardrails(harness: &Harness) -> Vec<TriggeredGuardrail> {
    let events = harness.recorder.events_of(1).into_iter();
    events
        .filter_map(|event| match event.event {
            Event::GuardrailTriggered(fired) => Some(*fired),
            _ => None,
        })
        .collect()
}

#[test]
fn a_guardrail_that_does_not_fire_costs_no_time_and_leaves_no_trace() {
    let started = |event: &Event| matches!(event, Event::AgentStartedSpeaking { .. });
    let mut times = Vec::new();
    for call in [call_config(1), call_with_guardrail(Some("I must not."))] {
        let mut harness = Harness::new();
        let client = harness.start_call(call, &["What is new?"], "Nothing at all.");
        client.send_audio(user_audio(&[(0.5, 1.0)]));
        harness.run_for(4 * SECOND);
        assert_eq!(triggered_guardrails(&harness), []);
        times.push(harness.recorder.time_of(1, started).expect("it answered"));
    }
    assert_eq!(times[0], times[1]);
}

#[test]
fn a_guardrail_s_words_take_the_place_of_the_reply_that_has_begun() {
    let mut harness = Harness::new();
    let client = harness.start_call(
        call_with_guardrail(Some("I must not.")),
        &["May I sue?"],
        "Yes of course you may always do that.",
    );
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(8 * SECOND);
    let fired = triggered_guardrails(&harness);
    let [one] = fired.as_slice() else { panic!("it fires once: {fired:?}") };
    assert_eq!(
        (one.key.as_str(), one.category.as_str(), one.content.as_str()),
        ("sue", "law", "May I sue?")
    );
    assert_eq!((one.response_message.as_deref(), &one.verdict), (Some("I must not."), &None));
    let spoken: Vec<String> = harness
        .recorder
        .events_of(1)
        .into_iter()
        .filter_map(|event| match event.event {
            Event::AgentStoppedSpeaking { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(spoken.last().map(String::as_str), Some("I must not."), "{spoken:?}");
    assert!(!spoken[0].contains("always do that"), "the reply is cut: {spoken:?}");
    let words = |text: &str| text == "I must not.";
    let began =
        |event: &Event| matches!(event, Event::AgentStartedSpeaking { text, .. } if words(text));
    let over =
        |event: &Event| matches!(event, Event::AgentStoppedSpeaking { text, .. } if words(text));
    let (began, over) =
        (harness.recorder.time_of(1, began).unwrap(), harness.recorder.time_of(1, over).unwrap());
    assert!(
        (over - began - 3.0 * WORD_DURATION.as_secs_f64()).abs() < 0.03,
        "three words to their end: {began} to {over}"
    );
    drop(client);
}

/// Calls the tool of the rule that it is offered, then declines. It has no moderation endpoint.
struct ToolCallingLlm {
    /// The results of the rule's tool that it received.
    tool_results: Arc<Mutex<Vec<String>>>,
}

impl llm::Llm for ToolCallingLlm {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let last = request.history.last().expect("something was said");
        if last.role == Role::Tool {
            self.tool_results.lock().unwrap().push(last.text.clone());
            sink.send(llm::Event::Text("I had better not.".into()));
        } else {
            let rule = request
                .tools
                .iter()
                .find(|tool| tool.rule.is_some())
                .expect("the guardrail is offered as a tool");
            sink.send(llm::Event::ToolCall {
                id: "call_1".into(),
                name: rule.name.clone(),
                arguments: serde_json::json!({}),
            });
        }
        sink.send(llm::Event::End { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 1 });
        Handle::noop()
    }
}

#[test]
fn a_guardrail_without_words_tells_the_model_what_follows_where_no_moderation_endpoint_does() {
    let mut harness = Harness::new();
    let tool_results = Arc::new(Mutex::new(Vec::new()));
    let mut call = call_with_guardrail(None);
    call.spec.tools.push(ToolSpec { name: "sue".into(), ..ToolSpec::default() });
    call.tools.push(Tool {
        name: "sue".into(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
        backend: ToolBackend::Moderation,
    });
    let client = harness.start_call_with_llm(
        call,
        &["May I sue?"],
        Arc::new(ToolCallingLlm { tool_results: Arc::clone(&tool_results) }),
    );
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(6 * SECOND);
    let fired = triggered_guardrails(&harness);
    let [one] = fired.as_slice() else { panic!("it fires once: {fired:?}") };
    let verdict = one.verdict.as_ref().map(|verdict| verdict["error"].clone());
    assert_eq!(
        (one.response_message.as_deref(), verdict),
        (None, Some("there is no moderation endpoint".into()))
    );
    let tool_results: serde_json::Value =
        serde_json::from_str(&tool_results.lock().unwrap()[0]).unwrap();
    assert_eq!(
        (&tool_results["flagged"], &tool_results["rule"]),
        (&true.into(), &"The user wants to sue".into())
    );
    assert!(
        tool_results["instruction"].as_str().unwrap().contains("keeping with the rule"),
        "{tool_results}"
    );
    let stopped = |event: &Event| {
        matches!(
            event,
            Event::AgentStoppedSpeaking { text, .. } if text == "I had better not."
        )
    };
    assert!(
        harness.recorder.time_of(1, stopped).is_some(),
        "{:?}",
        harness.recorder.event_names(1)
    );
}
