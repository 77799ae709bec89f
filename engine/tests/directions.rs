//! Directions of a language model in a whole call, in virtual time: what the model reads about them,
//! and that the client reads none of them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::direction::Expression;
use conversation::input::Command;
use engine::show::Avatars;
use engine::transport::TransportEvent;
use engine_api::CallConfig;
use models::{Handle, Sink, llm};
use support::{Harness, ReceivedOutput, VirtualTime, call_config, user_audio};

const SECOND: Duration = Duration::from_secs(1);
/// What the model writes, token by token.
const TOKENS: [&str; 5] = ["[wa", "rm] Fine, ", "thanks. [n", "od]", " Bye."];

/// Records its requests, and answers with [`TOKENS`].
struct DirectingLlm {
    time: VirtualTime,
    follows_directions: bool,
    requests: Mutex<Vec<llm::Request>>,
}

impl llm::Llm for DirectingLlm {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        self.requests.lock().unwrap().push(request);
        self.time.schedule_after(Duration::from_millis(5), move || {
            for token in TOKENS {
                sink.send(llm::Event::Text(token.into()));
            }
            sink.send(llm::Event::End { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 1 });
        });
        Handle::noop()
    }

    fn follows_directions(&self) -> bool {
        self.follows_directions
    }
}

/// A call in which the user speaks twice.
fn run_call(call: CallConfig, has_avatar: bool, follows: bool) -> (Harness, Arc<DirectingLlm>) {
    let mut harness = Harness::new();
    if has_avatar {
        harness.pose_set = Some(Arc::clone(&Avatars::built_in().unwrap().as_slice()[0].pose_set));
    }
    let llm = Arc::new(DirectingLlm {
        time: harness.time.clone(),
        follows_directions: follows,
        requests: Mutex::default(),
    });
    let client = harness.start_call_with_llm(call, &["Hello.", "And now?"], llm.clone());
    client.send_event(TransportEvent::ChannelOpen);
    client.send_audio(user_audio(&[(0.5, 1.0), (8.0, 1.0)]));
    harness.run_for(16 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    assert!(output.texts.iter().any(|text| text.contains("bot-llm-text")), "{:?}", output.texts);
    let tag = |text: &&String| ["[wa", "rm]", "[n", "od]"].iter().any(|part| text.contains(part));
    assert_eq!(output.texts.iter().find(tag), None);
    (harness, llm)
}

#[test]
fn a_model_reads_about_expressions_if_it_follows_and_an_avatar_shows_them() {
    for (has_avatar, is_wanted, follows) in
        [(true, true, true), (false, true, true), (true, false, true), (true, true, false)]
    {
        let call = CallConfig {
            system_prompt: "Be kind.".into(),
            offers_expressions: is_wanted,
            ..call_config(1)
        };
        let (_, llm) = run_call(call, has_avatar, follows);
        let requests = llm.requests.lock().unwrap();
        let begins = "Be kind.\n\nBegin a sentence with [calm], [warm], [glad], [concerned] or";
        let case = format!("{has_avatar} {is_wanted} {follows}: {}", requests[0].prompt);
        assert_eq!(
            requests[0].prompt.starts_with(begins),
            has_avatar && is_wanted && follows,
            "{case}"
        );
        assert_eq!(
            requests[0].prompt == "Be kind.",
            !(has_avatar && is_wanted && follows),
            "{case}"
        );
        assert_eq!(requests[0].prompt, requests[1].prompt);
    }
}

#[test]
fn directions_of_a_model_are_in_no_event_and_not_in_its_next_request() {
    let (harness, llm) = run_call(call_config(1), true, true);
    let requests = llm.requests.lock().unwrap();
    let said = &requests[1].history[1];
    assert_eq!(said.text, "Fine, thanks. Bye.");
    let events = format!("{:?}", harness.recorder.events_of(1));
    assert!(events.contains("Fine, thanks. Bye."), "{events}");
    for part in ["[wa", "rm]", "[n", "od]"] {
        assert!(!events.contains(part), "{part} in {events}");
    }
}

/// Seconds from the command to the first sound of an avatar that speaks with an expression.
fn delay_of_speech(text: &str, expression: Option<Expression>) -> f64 {
    let mut harness = Harness::new();
    harness.pose_set = Some(Arc::clone(&Avatars::built_in().unwrap().as_slice()[0].pose_set));
    let client = harness.start_call(call_config(1), &[], "No.");
    client.send_event(TransportEvent::ChannelOpen);
    harness.run_for(SECOND);
    let (text, interrupt) = (text.to_owned(), true);
    let say = Command::Say {
        text,
        interrupt,
        allow_interruptions: true,
        add_to_context: false,
        expression,
    };
    harness.command(1, say);
    harness.run_for(4 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    output.speech_spans()[0].0 - 1.0
}

#[test]
fn a_farewell_waits_for_the_smile_and_an_answer_waits_for_nothing() {
    let [answer, thanks, farewell] =
        ["It is noon.", "Thank you.", "Have a nice day."].map(|text| delay_of_speech(text, None));
    assert!((thanks - answer).abs() < 0.03, "{answer} and {thanks}");
    assert!((0.1..0.4).contains(&(farewell - answer)), "{answer} and {farewell}");
}

#[test]
fn the_face_has_time_for_an_expression_however_many_segments_follow() {
    let one = "The garden is closed.";
    let calm = delay_of_speech(one, None);
    let concerned = delay_of_speech(one, Some(Expression::Concerned));
    assert!((0.1..0.4).contains(&(concerned - calm)), "{calm} and {concerned}");
    for several in
        ["The garden is closed. A storm came.", "It is closed. We are sorry. Come again."]
    {
        let delay = delay_of_speech(several, Some(Expression::Concerned));
        assert!((delay - concerned).abs() < 0.03, "{several}: {delay}, not {concerned}");
    }
}
