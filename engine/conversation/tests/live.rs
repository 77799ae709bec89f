//! What only a live call has: streamed text, late voices, fallbacks, guardrails, a server that
//! stops.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use conversation::conversation::Conversation;
use conversation::event::{EndReason, Event, HistoryItem, Role, Stage};
use conversation::input::{
    Command, CommandId, GenerationId, Input, LlmEvent, MAX_VISITOR_CONTEXT_BYTES, PlayoutEvent,
    SegmentId, SpeechSegmentId, TtsEvent,
};
use conversation::output::{CommandOutcome, LlmRequest, Output, Rejection, TtsRequest};
use conversation::participation::Participation;
use conversation::settings::{AgentTurnConfig, Settings, SpokenMessage};
use conversation::spec::{Spec, ToolSpec};
use conversation::time::{Position, Time};
use conversation::view::ConversationView;
use serde_json::{Value, json};

/// A call whose driver is the test.
struct Harness {
    conversation: Conversation,
    now: f64,
    outputs: Vec<Output>,
}

impl Harness {
    fn new(change: impl FnOnce(&mut Spec)) -> Self {
        let settings = Settings {
            echo_warmup: 0.0,
            preemptive_generation: false,
            backchannels: false,
            ..Settings::product_defaults()
        };
        let mut spec = settings.to_spec().unwrap();
        change(&mut spec);
        let mut call =
            Self { conversation: Conversation::new(spec), now: 0.0, outputs: Vec::new() };
        call.send_input(0.0, Input::Start);
        call
    }

    /// Sends an input at this time.
    fn send_input(&mut self, at: f64, input: Input) -> &mut Self {
        self.now = at;
        self.conversation.handle(input, Time::from_seconds(at));
        self.outputs.extend(core::iter::from_fn(|| self.conversation.poll()));
        self
    }

    fn final_transcript(&mut self, at: f64, text: &str) -> &mut Self {
        self.send_input(
            at,
            Input::Transcript {
                text: text.into(),
                is_final: true,
                trailing_interim: String::new(),
            },
        )
    }

    fn llm_event(&mut self, at: f64, event: LlmEvent) -> &mut Self {
        let generation = self.llm_requests().last().expect("a question").generation;
        self.send_input(at, Input::Llm { generation, event })
    }

    fn llm_text(&mut self, at: f64, text: &str) -> &mut Self {
        self.llm_event(at, LlmEvent::Text(text.into()))
    }

    fn llm_end(&mut self, at: f64) -> &mut Self {
        self.llm_event(at, LlmEvent::End { prompt_tokens: 7, completion_tokens: 3 })
    }

    fn tts_event(&mut self, at: f64, segment: usize, event: TtsEvent) -> &mut Self {
        let segment = self.tts_requests()[segment].segment;
        self.send_input(at, Input::Tts { segment, event })
    }

    fn tts_end(&mut self, at: f64, segment: usize, seconds: f64) -> &mut Self {
        self.tts_event(at, segment, TtsEvent::End { duration: Position::from_seconds(seconds) })
    }

    fn playout_event(&mut self, at: f64, segment: usize, event: PlayoutEvent) -> &mut Self {
        let segment = self.tts_requests()[segment].segment;
        self.send_input(at, Input::Playout { segment, event })
    }

    fn send_command(&mut self, at: f64, command: Command) -> CommandOutcome {
        self.send_input(at, Input::Command { id: CommandId(0), command });
        let mut answers = self.outputs.iter().filter_map(|o| {
            if let Output::CommandResult { outcome: answer, .. } = o { Some(*answer) } else { None }
        });
        answers.next_back().unwrap()
    }

    fn llm_requests(&self) -> Vec<&LlmRequest> {
        self.outputs
            .iter()
            .filter_map(|o| if let Output::RequestLlm(request) = o { Some(request) } else { None })
            .collect()
    }

    fn tts_requests(&self) -> Vec<&TtsRequest> {
        self.outputs
            .iter()
            .filter_map(|o| if let Output::Synthesize(request) = o { Some(request) } else { None })
            .collect()
    }

    fn tts_texts(&self) -> Vec<&str> {
        self.tts_requests().into_iter().map(|segment| segment.text.as_str()).collect()
    }

    fn play_outputs(&self) -> Vec<SegmentId> {
        self.outputs
            .iter()
            .filter_map(|o| if let Output::Play(segment) = o { Some(*segment) } else { None })
            .collect()
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.outputs.iter().filter_map(|o| {
            if let Output::Emit(envelope) = o { Some(&envelope.event) } else { None }
        })
    }

    fn history(&self) -> Vec<(Role, &str)> {
        self.events()
            .filter_map(|e| {
                if let Event::History(item) = e {
                    Some((item.role, item.text.as_str()))
                } else {
                    None
                }
            })
            .collect()
    }

    fn heard_texts(&self) -> Vec<&str> {
        self.events()
            .filter_map(|e| {
                if let Event::AgentStoppedSpeaking { text, .. } = e {
                    Some(text.as_str())
                } else {
                    None
                }
            })
            .collect()
    }

    /// The explanations so far.
    fn explanations(&self) -> Vec<&str> {
        self.outputs
            .iter()
            .filter_map(|o| {
                if let Output::Explain(found) = o { Some(found.why.as_str()) } else { None }
            })
            .collect()
    }

    fn has_output(&self, wanted: &Output) -> bool {
        self.outputs.contains(wanted)
    }
}

fn roles_and_texts(history: &[Arc<HistoryItem>]) -> Vec<(Role, &str)> {
    history.iter().map(|item| (item.role, item.text.as_str())).collect()
}

#[test]
fn the_first_phrase_is_spoken_while_the_model_still_writes() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello").send_input(1.4, Input::Tick);
    assert_eq!(call.llm_requests().len(), 1);
    call.llm_text(1.6, "Of course I ").llm_text(1.7, "can, it is");
    assert_eq!(call.tts_texts(), ["Of course I can,"]);
    call.tts_end(1.8, 0, 1.0).playout_event(1.81, 0, PlayoutEvent::Started);
    call.llm_text(2.0, " easy. Do you want 3.").llm_text(2.1, "5 or more?").llm_end(2.2);
    assert_eq!(call.tts_texts(), ["Of course I can,", "it is easy.", "Do you want 3.5 or more?"]);
    call.tts_end(2.3, 1, 1.0).tts_end(2.3, 2, 1.0);
    assert_eq!(call.play_outputs().len(), 3);
    call.playout_event(2.81, 0, PlayoutEvent::Finished(Position::from_seconds(1.0))).playout_event(
        2.81,
        1,
        PlayoutEvent::Started,
    );
    call.playout_event(3.81, 1, PlayoutEvent::Finished(Position::from_seconds(1.0))).playout_event(
        3.81,
        2,
        PlayoutEvent::Started,
    );
    call.playout_event(4.81, 2, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    assert_eq!(call.heard_texts(), ["Of course I can, it is easy. Do you want 3.5 or more?"]);
    assert_eq!(call.conversation.poll_timeout().map(|(_, reason)| reason.name()), Some("idle"));
}

#[test]
fn a_late_voice_is_not_counted_as_heard() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.5, "One two three four.")
        .llm_end(1.6);
    call.tts_event(1.7, 0, TtsEvent::FirstAudio).playout_event(1.7, 0, PlayoutEvent::Started);
    let times = vec![
        ("One".to_owned(), Position::from_seconds(0.5)),
        ("two".to_owned(), Position::from_seconds(1.0)),
    ];
    call.tts_event(1.8, 0, TtsEvent::WordTimestamps(times));
    call.playout_event(2.3, 0, PlayoutEvent::Stalled(Position::from_seconds(0.6)));
    assert_eq!(call.send_command(5.0, Command::Interrupt), CommandOutcome::Accepted);
    assert_eq!(call.heard_texts(), ["One"]);
}

#[test]
fn a_voice_whose_length_is_unknown_claims_no_words() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.5, "One two three four.")
        .llm_end(1.6);
    call.tts_event(1.7, 0, TtsEvent::FirstAudio).playout_event(1.7, 0, PlayoutEvent::Started);
    call.send_command(3.0, Command::Interrupt);
    assert_eq!(call.heard_texts(), [""]);
    assert_eq!(call.history(), [(Role::User, "Hello")]);
}

#[test]
fn a_failing_model_has_its_words_so_far_spoken_then_the_apology() {
    let mut call = Harness::new(|spec| spec.fallback_llm = true);
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.6, "It is fine. And the")
        .llm_event(1.7, LlmEvent::Failed("broken".into()));
    assert_eq!(call.llm_requests().len(), 1, "text was sent to the TTS: no fallback model");
    call.tts_end(1.8, 0, 1.0).playout_event(1.8, 0, PlayoutEvent::Started);
    call.playout_event(2.8, 0, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    assert_eq!(
        call.tts_texts(),
        ["It is fine.", "I'm sorry, something went wrong.", "Please say that again."]
    );
    assert_eq!(call.heard_texts(), ["It is fine."]);
}

#[test]
fn of_a_failing_models_many_phrases_those_that_the_voice_was_given_are_spoken() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.6, "One is here. Two is here. Three is here. Four is here. Five");
    call.llm_event(1.7, LlmEvent::Failed("broken".into()));
    let mut at = 2.0;
    for segment in 0..3 {
        call.tts_end(at, segment, 1.0).playout_event(at, segment, PlayoutEvent::Started);
        at += 1.0;
        call.playout_event(at, segment, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    }
    assert_eq!(call.heard_texts(), ["One is here. Two is here. Three is here."]);
    assert_eq!(call.tts_texts()[3], "I'm sorry, something went wrong.");
}

#[test]
fn a_model_that_fails_before_its_first_word_is_replaced_once() {
    let mut call = Harness::new(|spec| spec.fallback_llm = true);
    call.final_transcript(1.0, "Hello").send_input(1.4, Input::Tick).send_input(6.5, Input::Tick);
    assert!(call.llm_requests()[1].use_fallback, "after 5 s of silence");
    assert!(call.has_output(&Output::CancelLlm(call.llm_requests()[0].generation)));
    call.llm_event(6.6, LlmEvent::Failed("broken too".into()));
    assert_eq!(call.llm_requests().len(), 2);
    assert_eq!(call.tts_texts()[0], "I'm sorry, something went wrong.");
    let errors =
        call.events().filter(|e| matches!(e, Event::Error { stage: Stage::Llm, .. })).count();
    assert_eq!(errors, 2);
}

#[test]
fn no_fallback_is_asked_when_all_models_have_failed() {
    let mut call = Harness::new(|spec| spec.fallback_llm = true);
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_event(1.6, LlmEvent::Exhausted("the last one is broken".into()));
    assert_eq!(call.llm_requests().len(), 1);
    assert_eq!(call.tts_texts()[0], "I'm sorry, something went wrong.");
}

#[test]
fn a_model_that_fails_after_words_that_the_voice_was_not_given_is_replaced() {
    let mut call = Harness::new(|spec| spec.fallback_llm = true);
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.6, "It is")
        .llm_event(1.7, LlmEvent::Failed("broken".into()));
    assert!(call.llm_requests()[1].use_fallback);
    call.llm_text(1.9, "It is open.").llm_end(1.9);
    assert_eq!(call.tts_texts(), ["It is open."]);
}

#[test]
fn an_empty_answer_is_a_failure() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello").send_input(1.4, Input::Tick).llm_end(1.6);
    assert_eq!(call.tts_texts()[0], "I'm sorry, something went wrong.");
}

#[test]
fn an_answer_that_cannot_be_spoken_is_an_empty_one() {
    for text in ["😀 🎉", "— … —", "😀!\n— 🎉."] {
        let mut call = Harness::new(|spec| spec.fallback_llm = true);
        call.final_transcript(1.0, "Hello").send_input(1.4, Input::Tick).llm_text(1.5, text);
        let is_sent = !call.tts_requests().is_empty();
        call.llm_end(1.6);
        if !is_sent {
            assert!(call.llm_requests()[1].use_fallback, "{text}");
            call.llm_text(1.7, text).llm_end(1.8);
            assert_eq!(call.tts_texts()[0], "I'm sorry, something went wrong.", "{text}");
            continue;
        }
        assert_eq!(call.llm_requests().len(), 1, "{text}");
        call.tts_end(1.9, 0, 0.0).playout_event(1.9, 0, PlayoutEvent::Started);
        call.playout_event(1.9, 0, PlayoutEvent::Finished(Position::ZERO));
        assert!(call.tts_texts().contains(&"I'm sorry, something went wrong."), "{text}");
    }
    for text in ["7", "好。", "Да"] {
        let mut call = Harness::new(|_| {});
        call.final_transcript(1.0, "Hello").send_input(1.4, Input::Tick).llm_text(1.5, text);
        call.llm_end(1.6);
        assert_eq!(call.tts_texts(), [text]);
    }
}

#[test]
fn a_segment_waits_while_the_one_before_it_is_still_being_spoken() {
    let start = || {
        let mut call = Harness::new(|_| {});
        call.final_transcript(1.0, "Hello").send_input(1.4, Input::Tick);
        call.llm_text(1.5, "One is here. Two is here. Three is here.").llm_end(1.5);
        call.tts_event(2.0, 0, TtsEvent::FirstAudio).playout_event(2.0, 0, PlayoutEvent::Started);
        call.send_input(9.0, Input::Tick);
        assert_eq!(call.tts_texts().len(), 3, "no segment has failed");
        call.tts_end(9.0, 0, 8.0);
        call
    };
    let failures = |call: &Harness| {
        call.events().filter(|e| matches!(e, Event::Error { stage: Stage::Tts, .. })).count()
    };
    let mut call = start();
    call.send_input(13.9, Input::Tick).tts_end(13.9, 1, 1.0).send_input(18.8, Input::Tick);
    call.tts_end(18.8, 2, 1.0).send_input(30.0, Input::Tick);
    assert_eq!(failures(&call), 0);
    let mut late = start();
    assert_eq!(failures(&late), 0);
    late.send_input(14.1, Input::Tick);
    assert_eq!(failures(&late), 1, "5 s after the sound before it");
}

#[test]
fn a_failing_voice_is_replaced_once_for_the_same_words() {
    let mut call = Harness::new(|spec| spec.fallback_tts = true);
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.6, "Hi there.")
        .llm_end(1.6);
    call.tts_event(1.7, 0, TtsEvent::Failed("no voice".into()));
    assert_eq!(call.tts_texts(), ["Hi there.", "Hi there."]);
    assert!(call.tts_requests()[1].use_fallback);
    call.tts_end(1.8, 1, 1.0).playout_event(1.8, 1, PlayoutEvent::Started).playout_event(
        2.8,
        1,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    assert_eq!(call.heard_texts(), ["Hi there."]);
}

#[test]
fn a_guardrail_cuts_the_answer_and_says_its_own_words() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Bad words")
        .send_input(1.4, Input::Tick)
        .llm_text(1.6, "Well, let me see now.")
        .llm_end(1.7);
    call.tts_end(1.8, 0, 2.0).playout_event(1.8, 0, PlayoutEvent::Started);
    call.send_input(
        2.9,
        Input::GuardrailTriggered { response: "I cannot talk about that.".into() },
    );
    assert_eq!(call.heard_texts(), ["Well, let"]);
    call.tts_end(3.0, 1, 2.0).playout_event(3.0, 1, PlayoutEvent::Started);
    assert_eq!(
        call.send_command(3.5, Command::Interrupt),
        CommandOutcome::Rejected(Rejection::Uninterruptible)
    );
    call.playout_event(5.0, 1, PlayoutEvent::Finished(Position::from_seconds(2.0)));
    let expected = [
        (Role::User, "Bad words"),
        (Role::Assistant, "Well, let"),
        (Role::Assistant, "I cannot talk about that."),
    ];
    assert_eq!(call.history(), expected);
    assert_eq!(call.events().filter(|e| matches!(e, Event::AgentInterrupted)).count(), 1);
}

#[test]
fn the_model_sees_a_steps_words_before_its_tools_result() {
    let tool = ToolSpec { name: "look".into(), ..ToolSpec::default() };
    let mut call = Harness::new(|spec| spec.tools = vec![tool]);
    call.final_transcript(1.0, "Go").send_input(1.4, Input::Tick).llm_text(1.6, "One moment.");
    call.llm_event(
        1.6,
        LlmEvent::ToolCall { id: "c".into(), name: "look".into(), arguments: json!({}) },
    )
    .llm_end(1.7);
    let run = call
        .outputs
        .iter()
        .find_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .unwrap();
    call.send_input(1.8, Input::ToolResult { call: run, result: Ok(json!("Sunny")) });
    call.tts_end(1.9, 0, 1.0).playout_event(1.9, 0, PlayoutEvent::Started).playout_event(
        2.9,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    let requests = call.llm_requests();
    assert_eq!(
        roles_and_texts(&requests[1].history),
        [(Role::User, "Go"), (Role::Assistant, "One moment."), (Role::Tool, "Sunny")]
    );
    assert_eq!(requests[1].generation, GenerationId { index: 1, ..requests[0].generation });
}

#[test]
fn a_tools_messages_never_stand_behind_its_result_where_the_model_sees_them() {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        on_start: Some(format!("Starting {name}.")),
        on_success: Some(format!("Got {name}.")),
        ..ToolSpec::default()
    };
    let mut call = Harness::new(|spec| spec.tools = vec![tool("one"), tool("two")]);
    call.final_transcript(1.0, "Go").send_input(1.4, Input::Tick).llm_text(1.6, "Let me see.");
    for name in ["one", "two"] {
        call.llm_event(
            1.6,
            LlmEvent::ToolCall { id: name.into(), name: name.into(), arguments: json!({}) },
        );
    }
    call.llm_end(1.7);
    let runs: Vec<_> = call
        .outputs
        .iter()
        .filter_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .collect();
    // The first result arrives before any audio was played, the second after the first tool's
    // success message.
    call.send_input(1.8, Input::ToolResult { call: runs[0], result: Ok(json!("1")) });
    let mut at = 2.0;
    for segment in 0..3 {
        call.tts_end(at, segment, 1.0).playout_event(at, segment, PlayoutEvent::Started);
        at += 1.0;
        call.playout_event(at, segment, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    }
    assert_eq!(call.tts_texts(), ["Let me see.", "Starting one.", "Starting two.", "Got one."]);
    call.tts_end(at, 3, 1.0).playout_event(at, 3, PlayoutEvent::Started);
    call.playout_event(at + 1.0, 3, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    assert_eq!(call.llm_requests().len(), 1, "the second result is not there");
    call.send_input(at + 2.0, Input::ToolResult { call: runs[1], result: Ok(json!("2")) });
    assert_eq!(
        roles_and_texts(&call.llm_requests()[1].history),
        [
            (Role::User, "Go"),
            (Role::Assistant, "Let me see."),
            (Role::Assistant, "Starting one."),
            (Role::Assistant, "Starting two."),
            (Role::Assistant, "Got one."),
            (Role::Tool, "1"),
            (Role::Tool, "2"),
        ]
    );
}

#[test]
fn a_long_text_is_asked_for_as_it_is_played_and_costs_nothing_once_it_is_killed() {
    let mut call = Harness::new(|_| {});
    call.conversation.set_explain(true);
    let text = "Hello world. ".repeat(500);
    let say = Command::Say {
        text,
        interrupt: true,
        allow_interruptions: true,
        add_to_context: true,
        expression: None,
    };
    assert_eq!(call.send_command(1.0, say), CommandOutcome::Accepted);
    assert_eq!(call.tts_requests().len(), 3, "the next segment and two more");
    for segment in 0..3 {
        call.tts_end(1.1, segment, 1.0);
    }
    assert_eq!(call.tts_requests().len(), 3, "synthesized, and not played yet");
    for segment in 0..10 {
        let at = 2.0 + segment as f64;
        call.playout_event(at, segment, PlayoutEvent::Started);
        call.playout_event(at + 1.0, segment, PlayoutEvent::Finished(Position::from_seconds(1.0)));
        assert_eq!(call.tts_requests().len(), segment + 4);
        call.tts_end(at + 1.0, segment + 3, 1.0);
    }
    assert_eq!(call.send_command(12.5, Command::Interrupt), CommandOutcome::Accepted);
    call.send_input(60.0, Input::Tick);
    assert_eq!(call.tts_requests().len(), 13, "nothing more is requested");
    // Segments that are not requested yet wait for playout, not for the minimum silence between two
    // utterances.
    assert!(
        !call.explanations().iter().any(|why| why.contains("the TTS is requested at")),
        "{:#?}",
        call.explanations()
    );
}

#[test]
fn replies_that_are_cut_are_told_once_in_a_call() {
    let mut call = Harness::new(|_| {});
    for turn in 0..2 {
        let at = 1.0 + 40.0 * f64::from(turn);
        call.final_transcript(at, "Tell me").send_input(at + 0.4, Input::Tick);
        call.llm_text(at + 0.6, &"word ".repeat(4_001)).send_input(at + 1.0, Input::Tick);
        assert_eq!(call.send_command(at + 2.0, Command::Interrupt), CommandOutcome::Accepted);
    }
    assert_eq!(call.llm_requests().len(), 2);
    for request in call.llm_requests() {
        assert!(call.has_output(&Output::CancelLlm(request.generation)), "both are cut");
    }
    let warnings = call.events().filter(|e| matches!(e, Event::Warning { .. })).count();
    assert_eq!(warnings, 1);
}

#[test]
fn a_model_that_does_not_end_is_cut_and_its_reply_is_spoken_to_there() {
    let mut call = Harness::new(|spec| spec.fallback_llm = true);
    call.final_transcript(1.0, "Tell me").send_input(1.4, Input::Tick);
    for _ in 0..3_999 {
        call.llm_text(1.6, "word ");
    }
    assert!(!call.has_output(&Output::CancelLlm(call.llm_requests()[0].generation)));
    call.llm_text(1.6, "wörd ö and more");
    assert!(
        call.has_output(&Output::CancelLlm(call.llm_requests()[0].generation)),
        "20 000 characters were received"
    );
    call.llm_text(1.7, "nobody wants this").llm_end(1.8);
    let given: String = call
        .events()
        .filter_map(|e| if let Event::LlmText { text } = e { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(given.chars().count(), 20_000);
    assert_eq!(call.llm_requests().len(), 1, "that is no failure");
    assert_eq!(call.events().filter(|e| matches!(e, Event::Error { .. })).count(), 0);
    assert_eq!(call.events().filter(|e| matches!(e, Event::LlmStopped { .. })).count(), 1);
    let warnings: Vec<_> = call
        .events()
        .filter_map(|e| if let Event::Warning { text } = e { Some(text) } else { None })
        .collect();
    assert_eq!(warnings, ["The language model's reply was cut at 20000 characters."]);
    // The accepted text is spoken completely, then the reply ends.
    let (mut at, mut segment) = (2.0, 0);
    while segment < call.tts_requests().len() {
        call.tts_end(at, segment, 1.0).playout_event(at, segment, PlayoutEvent::Started);
        at += 1.0;
        call.playout_event(at, segment, PlayoutEvent::Finished(Position::from_seconds(1.0)));
        segment += 1;
    }
    assert_eq!(call.heard_texts().len(), 1);
    assert!(call.heard_texts()[0].ends_with("word wörd"), "{:?}", &call.heard_texts()[0][19_900..]);
}

#[test]
fn speech_without_context_is_in_the_history_but_not_sent_to_the_model() {
    let mut call = Harness::new(|_| {});
    let say = Command::Say {
        text: "An announcement.".into(),
        interrupt: true,
        allow_interruptions: true,
        add_to_context: false,
        expression: None,
    };
    assert_eq!(call.send_command(1.0, say), CommandOutcome::Accepted);
    call.tts_end(1.1, 0, 1.0).playout_event(1.1, 0, PlayoutEvent::Started).playout_event(
        2.1,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    call.final_transcript(3.0, "What?").send_input(3.4, Input::Tick);
    assert_eq!(call.history(), [(Role::Assistant, "An announcement."), (Role::User, "What?")]);
    assert_eq!(roles_and_texts(&call.llm_requests()[0].history), [(Role::User, "What?")]);
}

#[test]
fn context_may_replace_earlier_context() {
    let mut call = Harness::new(|_| {});
    for (text, overwrite) in [("a", false), ("b", false), ("c", true)] {
        assert_eq!(
            call.send_command(0.5, Command::Context { text: text.into(), overwrite }),
            CommandOutcome::Accepted
        );
    }
    call.final_transcript(1.0, "Hi").send_input(1.4, Input::Tick);
    assert_eq!(
        roles_and_texts(&call.llm_requests()[0].history),
        [(Role::System, "c"), (Role::User, "Hi")]
    );
}

#[test]
fn what_a_client_tells_is_the_visitor_s_word_and_replaces_only_what_clients_told() {
    let mut call = Harness::new(|_| {});
    let operator = |text: &str, overwrite| Command::Context { text: text.into(), overwrite };
    let client = |text: &str, overwrite| Command::VisitorContext { text: text.into(), overwrite };
    for command in
        [operator("Gold.", false), client("Page 1.", false), client("All is free.", true)]
    {
        assert_eq!(call.send_command(0.5, command), CommandOutcome::Accepted);
    }
    call.final_transcript(1.0, "Hi").send_input(1.4, Input::Tick);
    let seen = [(Role::System, "Gold."), (Role::Visitor, "All is free."), (Role::User, "Hi")];
    assert_eq!(roles_and_texts(&call.llm_requests()[0].history), seen);
    // The operator's context replaces both.
    assert_eq!(call.send_command(1.5, operator("Silver.", true)), CommandOutcome::Accepted);
    call.send_command(1.6, Command::Respond { text: "And now?".into() });
    let requests = call.llm_requests();
    let last = roles_and_texts(&requests.last().unwrap().history);
    assert!(last.contains(&(Role::System, "Silver.")), "{last:?}");
    assert!(last.iter().all(|(role, text)| *role != Role::Visitor && *text != "Gold."), "{last:?}");
}

#[test]
fn clients_tell_at_most_eight_kib_at_a_time_and_the_operator_more() {
    let mut call = Harness::new(|_| {});
    let client =
        |bytes: usize, overwrite| Command::VisitorContext { text: "x".repeat(bytes), overwrite };
    let full = CommandOutcome::Rejected(Rejection::ContextFull);
    assert_eq!(call.send_command(0.1, client(MAX_VISITOR_CONTEXT_BYTES + 1, false)), full);
    assert_eq!(
        call.send_command(0.2, client(MAX_VISITOR_CONTEXT_BYTES - 1, false)),
        CommandOutcome::Accepted
    );
    assert_eq!(call.send_command(0.3, client(2, false)), full);
    // A rejected command removes nothing.
    assert_eq!(call.send_command(0.4, client(MAX_VISITOR_CONTEXT_BYTES + 1, true)), full);
    assert_eq!(call.send_command(0.5, client(1, false)), CommandOutcome::Accepted);
    assert_eq!(
        call.send_command(0.6, client(MAX_VISITOR_CONTEXT_BYTES, true)),
        CommandOutcome::Accepted
    );
    let long = "y".repeat(2 * MAX_VISITOR_CONTEXT_BYTES);
    assert_eq!(
        call.send_command(0.7, Command::Context { text: long.clone(), overwrite: false }),
        CommandOutcome::Accepted
    );
    call.final_transcript(1.0, "Hi").send_input(1.4, Input::Tick);
    let whole = "x".repeat(MAX_VISITOR_CONTEXT_BYTES);
    let seen = [(Role::Visitor, &*whole), (Role::System, &*long), (Role::User, "Hi")];
    assert_eq!(roles_and_texts(&call.llm_requests()[0].history), seen);
}

#[test]
fn a_server_that_stops_says_goodbye_first() {
    let mut call = Harness::new(|spec| spec.exit_message = Some("Goodbye.".into()));
    let stop = Command::Stop { reason: EndReason::EndedByApi, exit_message: true };
    assert_eq!(call.send_command(1.0, stop.clone()), CommandOutcome::Accepted);
    assert_eq!(call.send_command(1.1, stop), CommandOutcome::NothingToDo);
    assert_eq!(
        call.send_command(1.1, Command::Respond { text: "Wait".into() }),
        CommandOutcome::Rejected(Rejection::Ending)
    );
    call.tts_end(1.2, 0, 1.0).playout_event(1.2, 0, PlayoutEvent::Started).playout_event(
        2.2,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    assert!(call.has_output(&Output::End(EndReason::EndedByApi)));
    assert_eq!(
        call.send_command(2.3, Command::Interrupt),
        CommandOutcome::Rejected(Rejection::Ended)
    );
    assert_eq!(call.send_command(2.3, Command::End), CommandOutcome::NothingToDo);
}

#[test]
fn an_stt_failure_of_thirty_seconds_ends_the_call() {
    let mut call = Harness::new(|_| {});
    let broken = || Input::StageFailed { stage: Stage::Stt, reason: "gone".into() };
    call.send_input(1.0, broken())
        .send_input(20.0, broken())
        .send_input(20.5, Input::StageRecovered { stage: Stage::Stt });
    call.send_input(21.0, broken()).send_input(50.9, broken());
    assert!(!call.has_output(&Output::End(EndReason::Error)));
    call.send_input(51.0, broken());
    assert!(call.has_output(&Output::End(EndReason::Error)));
}

#[test]
fn a_turn_model_that_answers_in_time_prolongs_the_wait() {
    let mut call = Harness::new(|spec| spec.turn_model = true);
    call.send_input(1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) })
        .final_transcript(1.9, "I think");
    call.send_input(2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) });
    let speech_segment = call
        .outputs
        .iter()
        .find_map(|o| {
            if let Output::RequestTurnProbability(speech_segment) = o {
                Some(*speech_segment)
            } else {
                None
            }
        })
        .unwrap();
    let open_turn = call.conversation.open_turn();
    assert_eq!(
        (open_turn.onset, open_turn.transcript.as_str()),
        (Some(Time::from_seconds(1.0)), "I think")
    );
    assert!(call.conversation.awaits_turn_probability());
    call.send_input(2.3, Input::TurnProbability { speech_segment, probability: 0.2 });
    assert!(!call.conversation.awaits_turn_probability());
    assert_eq!(call.conversation.poll_timeout().map(|(at, _)| at), Some(Time::from_seconds(5.0)));
    call.send_input(2.35, Input::TurnProbability { speech_segment, probability: f32::NAN });
    assert_eq!(call.conversation.poll_timeout().map(|(at, _)| at), Some(Time::from_seconds(5.0)));
}

#[test]
fn an_answer_of_the_turn_model_after_its_deadline_changes_nothing() {
    let last_request = |call: &Harness| {
        let speech_segment = |o: &Output| {
            if let Output::RequestTurnProbability(speech_segment) = o {
                Some(*speech_segment)
            } else {
                None
            }
        };
        call.outputs.iter().rev().find_map(speech_segment).unwrap()
    };
    let next = |call: &Harness| call.conversation.poll_timeout().map(|(at, _)| at);
    let mut call = Harness::new(|spec| spec.turn_model = true);
    call.conversation.set_explain(true);
    call.send_input(1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) })
        .final_transcript(1.9, "I think");
    call.send_input(2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) });
    let first = last_request(&call);
    // The user continues: the answer about the earlier speech segment is useless and not awaited.
    call.send_input(2.35, Input::SpeechStarted { onset: Time::from_seconds(2.3) });
    assert!(!call.conversation.awaits_turn_probability());
    call.send_input(2.4, Input::TurnProbability { speech_segment: first, probability: 0.1 });
    call.send_input(3.25, Input::SpeechStopped { end: Time::from_seconds(3.0) });
    assert!(call.conversation.awaits_turn_probability());
    assert_eq!(next(&call), Some(Time::from_seconds(3.4)), "no answer: the shorter wait");
    let second = last_request(&call);
    call.send_input(3.4, Input::Tick);
    assert!(!call.conversation.awaits_turn_probability(), "the turn is committed");
    let deadline = next(&call);
    call.send_input(3.45, Input::TurnProbability { speech_segment: second, probability: 0.1 });
    assert_eq!(next(&call), deadline);
    let count = |what: &str| call.explanations().iter().filter(|why| why.contains(what)).count();
    assert_eq!(
        count("no result of the turn model in time: min_endpointing_delay 400ms"),
        1,
        "{:#?}",
        call.explanations()
    );
    assert_eq!(
        count("the turn model's result 0.1 arrived too late"),
        2,
        "{:#?}",
        call.explanations()
    );
}

#[test]
fn speech_is_no_interruption_while_the_detector_reports_only_its_start() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.5, "One two three four five.")
        .llm_end(1.6);
    call.tts_end(1.7, 0, 10.0).playout_event(1.7, 0, PlayoutEvent::Started);
    call.send_input(3.05, Input::SpeechStarted { onset: Time::from_seconds(3.0) });
    call.send_input(3.3, Input::SpeechContinued { until: Time::from_seconds(3.28) })
        .send_input(3.7, Input::Tick);
    assert!(!call.has_output(&Output::Hold), "the agent was last heard .28 s after its onset");
    assert!(call.has_output(&Output::Duck));
    call.send_input(3.72, Input::SpeechContinued { until: Time::from_seconds(3.7) });
    assert!(call.has_output(&Output::Hold));
}

#[test]
fn turn_times_are_measured_from_the_true_end_of_speech() {
    let mut call = Harness::new(|_| {});
    call.send_input(0.55, Input::SpeechStarted { onset: Time::from_seconds(0.5) });
    call.send_input(1.75, Input::SpeechStopped { end: Time::from_seconds(1.5) });
    call.final_transcript(1.8, "Hello").send_input(2.5, Input::Tick);
    let times = call.conversation.unreported_turn_times().next().unwrap();
    let near = |found: Option<f64>, expected: f64| {
        found.is_some_and(|found| (found - expected).abs() < 1e-6)
    };
    assert!(near(times.stt, 0.3) && near(times.endpointing, 0.4), "{times:?}");
}

#[test]
fn a_turn_model_is_asked_only_where_there_is_one_and_once_for_each_stretch() {
    let is_asked = |turn_model: bool, early: bool| {
        let mut call = Harness::new(|spec| spec.turn_model = turn_model);
        call.send_input(0.55, Input::SpeechStarted { onset: Time::from_seconds(0.5) });
        if early {
            call.send_input(
                1.0,
                Input::TurnProbability { speech_segment: SpeechSegmentId(0), probability: 0.9 },
            );
        }
        call.send_input(1.75, Input::SpeechStopped { end: Time::from_seconds(1.5) });
        call.has_output(&Output::RequestTurnProbability(SpeechSegmentId(0)))
    };
    assert!(is_asked(true, false));
    assert!(!is_asked(true, true), "it has answered already");
    assert!(!is_asked(false, false) && !is_asked(false, true));
}

#[test]
fn a_reply_that_has_not_begun_to_sound_is_held_too() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.5, "One two three four five.")
        .llm_end(1.6);
    call.tts_end(1.7, 0, 10.0);
    assert_eq!(call.play_outputs().len(), 1);
    call.send_input(1.85, Input::SpeechStarted { onset: Time::from_seconds(1.8) });
    call.send_input(2.62, Input::SpeechContinued { until: Time::from_seconds(2.6) });
    assert!(
        call.has_output(&Output::Hold),
        "playout would begin in the middle of the user's words"
    );
}

#[test]
fn a_warning_message_and_a_greeting_are_cut_into_sentences_for_the_voice() {
    let settings = Settings {
        greeting: Some(SpokenMessage {
            delay_seconds: 1.0,
            ..SpokenMessage::new("Hello. I am Ann.")
        }),
        ..Settings::product_defaults()
    };
    let spec = settings.to_spec().unwrap();
    let mut call = Harness::new(|own| *own = spec);
    call.send_input(0.99, Input::Tick);
    assert_eq!(call.tts_requests().len(), 0);
    call.send_input(1.01, Input::Tick);
    assert_eq!(call.tts_texts(), ["Hello.", "I am Ann."]);
}

/// A call with a recording message, which is recorded until this event.
fn recorded_call(is_discarded: bool, begins: bool) -> Harness {
    let message = SpokenMessage::new("This call is recorded.");
    let settings = Settings { recording_message: Some(message), ..Settings::product_defaults() };
    let spec = settings.to_spec().unwrap();
    let mut call = Harness::new(|own| *own = spec);
    if begins {
        call.tts_end(0.2, 0, 2.0).playout_event(0.2, 0, PlayoutEvent::Started);
    }
    call.send_input(0.5, Input::ExternalEvent(Event::RecordingEnded { is_discarded }));
    call.send_input(5.0, Input::Tick);
    call
}

#[test]
fn a_recording_message_is_withdrawn_when_nothing_is_recorded_any_more() {
    // Before its first sample, nothing was said that could be interrupted.
    let queued = recorded_call(true, false);
    assert!(queued.outputs.iter().any(|output| matches!(output, Output::Cancel(_))));
    assert!(queued.events().all(|event| *event != Event::AgentInterrupted));
    assert_eq!(queued.tts_requests().len(), 1, "it is not requested again");

    let heard = recorded_call(true, true);
    assert!(heard.outputs.iter().any(|output| matches!(output, Output::Cancel(_))));
    assert!(heard.events().any(|event| *event == Event::AgentInterrupted));
    assert_eq!(heard.tts_requests().len(), 1);

    // What was recorded until a failure remains, so the message remains true.
    for begins in [false, true] {
        let failed = recorded_call(false, begins);
        assert!(!failed.outputs.iter().any(|output| matches!(output, Output::Cancel(_))));
    }
}

#[test]
fn a_recording_message_without_a_word_is_passed_over() {
    let message = SpokenMessage::new("…");
    let settings = Settings { recording_message: Some(message), ..Settings::product_defaults() };
    let spec = settings.to_spec().unwrap();
    let mut call = Harness::new(|own| *own = spec);
    call.send_input(2.0, Input::Tick);
    assert_eq!(call.tts_requests().len(), 0);
    assert!(call.events().all(|event| *event != Event::AgentInterrupted));
}

#[test]
fn a_recording_message_waits_for_the_delay_of_the_first_words() {
    let config = AgentTurnConfig {
        recording_message: Some(" This call is recorded. "),
        ..AgentTurnConfig::default()
    };
    let message = config.to_spec().unwrap().recording_message.unwrap();
    assert_eq!(
        (message.text.as_str(), message.delay.as_secs_f64()),
        ("This call is recorded.", 1.0)
    );
    let config = AgentTurnConfig { greeting_delay: Some(2.5), ..config };
    assert_eq!(config.to_spec().unwrap().recording_message.unwrap().delay.as_secs_f64(), 2.5);
    let blank = AgentTurnConfig { recording_message: Some("  "), ..config };
    assert_eq!(blank.to_spec().unwrap().recording_message, None);
}

#[test]
fn a_steps_words_stand_behind_the_result_of_an_older_steps_tool() {
    let tool = |name: &str| ToolSpec { name: name.into(), ..ToolSpec::default() };
    let mut call = Harness::new(|spec| spec.tools = vec![tool("slow"), tool("fast")]);
    let ask = |name: &str| LlmEvent::ToolCall {
        id: name.into(),
        name: name.into(),
        arguments: json!({}),
    };
    call.final_transcript(1.0, "Go")
        .send_input(1.4, Input::Tick)
        .llm_event(1.6, ask("slow"))
        .llm_end(1.7);
    call.final_transcript(2.0, "No, wait")
        .send_input(2.4, Input::Tick)
        .llm_text(2.5, "One moment.");
    call.llm_event(2.6, ask("fast")).llm_end(2.7);
    let runs: Vec<_> = call
        .outputs
        .iter()
        .filter_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .collect();
    call.send_input(2.8, Input::ToolResult { call: runs[0], result: Ok(json!("Late")) });
    call.send_input(2.9, Input::ToolResult { call: runs[1], result: Ok(json!("Sunny")) });
    call.tts_end(3.0, 0, 1.0).playout_event(3.0, 0, PlayoutEvent::Started).playout_event(
        4.0,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    assert_eq!(
        roles_and_texts(&call.llm_requests()[2].history),
        [
            (Role::User, "Go"),
            (Role::User, "No, wait"),
            (Role::Tool, "Late"),
            (Role::Assistant, "One moment."),
            (Role::Tool, "Sunny"),
        ]
    );
}

#[test]
fn what_was_prepared_with_a_context_that_is_taken_back_is_not_said() {
    let mut call = Harness::new(|spec| spec.preemptive_generation = true);
    let context = |text: &str, overwrite| Command::Context { text: text.into(), overwrite };
    call.send_command(0.5, context("It rains.", false));
    call.final_transcript(1.0, "Shall I go out?").llm_text(1.1, "Take an umbrella.");
    assert_eq!(roles_and_texts(&call.llm_requests()[0].history)[0], (Role::System, "It rains."));
    call.send_command(1.2, context("", true));
    call.send_input(1.4, Input::Tick);
    assert_eq!(call.llm_requests().len(), 2, "the prepared reply used outdated context");
    assert_eq!(roles_and_texts(&call.llm_requests()[1].history), [(Role::User, "Shall I go out?")]);
}

#[test]
fn an_item_tells_when_its_tool_started_and_when_its_words_began_to_sound() {
    let tool = ToolSpec { name: "look".into(), ..ToolSpec::default() };
    let mut call = Harness::new(|spec| spec.tools = vec![tool]);
    call.final_transcript(1.0, "Go").send_input(1.4, Input::Tick).llm_text(1.6, "One moment.");
    call.llm_event(
        1.6,
        LlmEvent::ToolCall { id: "c".into(), name: "look".into(), arguments: json!({}) },
    )
    .llm_end(1.7);
    let run = call
        .outputs
        .iter()
        .find_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .unwrap();
    call.send_input(2.8, Input::ToolResult { call: run, result: Ok(json!("Sunny")) });
    call.tts_end(2.9, 0, 1.0).playout_event(3.0, 0, PlayoutEvent::Started).playout_event(
        4.0,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    let began: Vec<_> = call
        .events()
        .filter_map(|e| {
            if let Event::History(item) = e { Some((item.role, item.started_at)) } else { None }
        })
        .collect();
    let at = |seconds| Some(Time::from_seconds(seconds));
    assert_eq!(began, [(Role::User, None), (Role::Tool, at(1.7)), (Role::Assistant, at(3.0))]);
}

#[test]
fn a_held_reply_counts_no_words_without_a_playout_report() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.5, "One two three four five.")
        .llm_end(1.6);
    call.tts_end(1.7, 0, 10.0).playout_event(1.7, 0, PlayoutEvent::Started);
    call.send_input(3.05, Input::SpeechStarted { onset: Time::from_seconds(3.0) });
    call.send_input(3.82, Input::SpeechContinued { until: Time::from_seconds(3.8) });
    assert!(call.has_output(&Output::Hold));
    assert_eq!(call.send_command(9.0, Command::Interrupt), CommandOutcome::Accepted);
    assert_eq!(call.heard_texts(), ["One"], "two seconds a word, held after 2.12 s");
}

#[test]
fn a_turn_tells_until_when_its_answer_was_heard() {
    let heard = |call: &Harness| {
        let reply_heard = |e: &Event| match *e {
            Event::TurnReplyHeard { turn, heard_end, interrupted, barge_in, .. } => {
                Some((turn, heard_end, interrupted, barge_in))
            }
            _ => None,
        };
        call.events().filter_map(reply_heard).collect::<Vec<_>>()
    };
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.5, "One two.")
        .llm_end(1.6);
    call.tts_end(1.7, 0, 1.0).playout_event(1.7, 0, PlayoutEvent::Started);
    assert!(heard(&call).is_empty(), "it is still audible");
    call.playout_event(2.7, 0, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    let first = heard(&call);
    assert!(matches!(first[..], [(_, end, None, None)] if (end - 2.7).abs() < 1e-6), "{first:?}");
    call.final_transcript(3.0, "And now?")
        .send_input(3.4, Input::Tick)
        .llm_text(3.5, "One two three four five.")
        .llm_end(3.6);
    call.tts_end(3.7, 1, 10.0).playout_event(3.7, 1, PlayoutEvent::Started);
    call.send_input(5.05, Input::SpeechStarted { onset: Time::from_seconds(5.0) });
    call.send_input(5.62, Input::SpeechContinued { until: Time::from_seconds(5.6) })
        .final_transcript(5.9, "Stop");
    let second = &heard(&call)[1..];
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    assert!(
        matches!(second, [(turn, end, Some(at), Some(took))]
            if *turn != first[0].0 && near(*end, 5.62) && near(*at, 5.0) && near(*took, 0.62)),
        "{second:?}"
    );
}

#[test]
fn a_turn_that_is_cut_before_its_first_sample_tells_so() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello").send_input(1.4, Input::Tick).llm_text(1.6, "Once upon");
    assert_eq!(call.send_command(2.0, Command::Interrupt), CommandOutcome::Accepted);
    let timeline = call
        .events()
        .find_map(|e| if let Event::Turn(times) = e { Some(times.timeline.clone()) } else { None });
    let timeline = timeline.expect("its times are reported");
    assert_eq!((timeline.first_sample, timeline.interrupted), (None, Some(2.0)));
}

#[test]
fn a_model_that_stops_in_the_middle_is_explained() {
    let mut call = Harness::new(|_| {});
    call.conversation.set_explain(true);
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.6, "Once upon")
        .send_input(6.7, Input::Tick);
    let why = call.explanations();
    assert!(
        why.contains(&"the LLM has failed: no further token for 5s (fixed) since 1.600 s"),
        "{why:#?}"
    );
}

#[test]
fn a_final_that_is_due_is_waited_for_but_not_for_ever() {
    for (due, over) in [(false, 4.25), (true, 10.25)] {
        let mut call = Harness::new(|_| {});
        call.conversation.set_explain(true);
        call.send_input(1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) });
        call.send_input(2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) });
        if due {
            call.send_input(2.25, Input::FinalTranscriptPending);
        }
        let over_so_often = |call: &Harness| {
            call.explanations().iter().filter(|why| why.contains("no transcript arrived")).count()
        };
        call.send_input(over - 0.01, Input::Tick);
        assert_eq!(over_so_often(&call), 0, "due: {due}");
        call.send_input(over, Input::Tick);
        assert_eq!(over_so_often(&call), 1, "due: {due}");
        // A lost final transcript does not delay the next turn.
        call.send_input(12.05, Input::SpeechStarted { onset: Time::from_seconds(12.0) });
        call.send_input(13.25, Input::SpeechStopped { end: Time::from_seconds(13.0) });
        call.send_input(15.25, Input::Tick);
        assert_eq!(over_so_often(&call), 2, "due: {due}");
    }
}

#[test]
fn words_that_come_late_are_timed_from_the_speech_that_they_are_of() {
    let near = |found: Option<f64>, expected: f64| {
        found.is_some_and(|found| (found - expected).abs() < 1e-6)
    };
    for due in [false, true] {
        let mut call = Harness::new(|_| {});
        call.send_input(0.55, Input::SpeechStarted { onset: Time::from_seconds(0.5) });
        call.send_input(1.75, Input::SpeechStopped { end: Time::from_seconds(1.5) });
        if due {
            call.send_input(1.75, Input::FinalTranscriptPending);
        }
        // Without the pending final the turn ended after 2 s, and the late text starts another
        // turn.
        call.final_transcript(6.0, "Hello").send_input(6.5, Input::Tick);
        let times = call.conversation.unreported_turn_times().next().unwrap();
        let waited = if due { 4.5 } else { 4.9 };
        assert!(near(times.stt, 4.5) && near(times.endpointing, waited), "due: {due}: {times:?}");
        assert_eq!(user_speech(&call), [(at(0.5), at(1.5))], "due: {due}");
    }
}

/// The time with which an event is compared.
fn at(seconds: f64) -> Option<Time> {
    Some(Time::from_seconds(seconds))
}

/// Begin and end of each message of the user.
fn user_speech(call: &Harness) -> Vec<(Option<Time>, Option<Time>)> {
    let items =
        call.events().filter_map(|e| if let Event::History(item) = e { Some(item) } else { None });
    let of_user = items.filter(|item| item.role == Role::User);
    of_user.map(|item| (item.started_at, item.ended_at)).collect()
}

/// What REST returns about the call.
fn view(call: &Harness) -> ConversationView {
    let mut view = ConversationView::default();
    for output in &call.outputs {
        if let Output::Emit(envelope) = output {
            view.apply(envelope);
        }
    }
    view
}

#[test]
fn a_message_of_the_user_lasts_from_its_first_speech_to_its_last() {
    let mut call = Harness::new(|_| {});
    // A pause within the turn, and the VAD's reports, which are later than the speech.
    call.send_input(1.1, Input::SpeechStarted { onset: Time::from_seconds(1.0) });
    call.send_input(1.6, Input::SpeechStopped { end: Time::from_seconds(1.4) });
    call.final_transcript(1.7, "Please");
    call.send_input(1.75, Input::SpeechStarted { onset: Time::from_seconds(1.65) });
    call.send_input(2.6, Input::SpeechStopped { end: Time::from_seconds(2.4) });
    call.final_transcript(2.7, "go on").send_input(4.0, Input::Tick);
    assert_eq!(user_speech(&call), [(at(1.0), at(2.4))]);
    // What is typed is not spoken, and has the time of its commit.
    call.send_command(5.0, Command::Respond { text: "Or stop".into() });
    assert_eq!(user_speech(&call)[1..], [(None, None)]);
    let history = view(&call).chat_history(|_| Value::Null);
    let times = |n: usize| {
        let message = &history["messages"][n];
        (message["seconds_from_start"].as_f64(), message["duration"].as_f64())
    };
    assert_eq!([times(0), times(1)], [(Some(1.0), Some(1.4)), (Some(5.0), Some(0.0))], "{history}");
}

/// Speech that begins just before a reply, and is reported just after it, cuts the reply.
#[test]
fn the_order_of_messages_is_that_of_the_commits() {
    let mut call = Harness::new(|_| {});
    call.final_transcript(1.0, "Hello")
        .send_input(1.4, Input::Tick)
        .llm_text(1.5, "One two three four five.")
        .llm_end(1.6);
    call.tts_end(2.05, 0, 2.0).playout_event(2.05, 0, PlayoutEvent::Started);
    call.send_input(2.1, Input::SpeechStarted { onset: Time::from_seconds(2.0) });
    call.send_input(2.9, Input::SpeechContinued { until: Time::from_seconds(2.9) });
    call.playout_event(2.9, 0, PlayoutEvent::Progress(Position::from_seconds(0.85)));
    call.send_input(3.4, Input::SpeechStopped { end: Time::from_seconds(3.2) });
    call.final_transcript(3.5, "Stop it").send_input(4.5, Input::Tick);
    assert_eq!(user_speech(&call)[1..], [(at(2.0), at(3.2))]);
    let view = view(&call);
    let order: Vec<_> = view.transcript().map(|item| (item.role, item.started_at)).collect();
    let time = Time::from_seconds;
    let expected =
        [(Role::User, time(1.4)), (Role::Assistant, time(2.05)), (Role::User, time(2.0))];
    assert_eq!(order, expected);
}

/// Start and end of the agent's message, according to REST.
fn agent_message(call: &Harness) -> (f64, f64) {
    let view = view(call);
    let item = view.transcript().find(|item| item.role == Role::Assistant).unwrap();
    let start = item.started_at.as_seconds();
    (start, (1e6 * (start + item.duration)).round() / 1e6)
}

/// The agent is silent from the hold, long before the user's words are final.
#[test]
fn a_message_that_is_cut_ends_where_its_sound_ended() {
    let speaking = || {
        let mut call = Harness::new(|_| {});
        call.final_transcript(1.0, "Hello")
            .send_input(1.4, Input::Tick)
            .llm_text(1.5, "One two three four five.")
            .llm_end(1.6);
        call.tts_end(2.0, 0, 5.0).playout_event(2.0, 0, PlayoutEvent::Started);
        call.playout_event(3.5, 0, PlayoutEvent::Progress(Position::from_seconds(1.5)));
        call
    };
    let held = || {
        let mut call = speaking();
        call.send_input(3.55, Input::SpeechStarted { onset: Time::from_seconds(3.5) });
        call.send_input(4.5, Input::SpeechContinued { until: Time::from_seconds(4.5) });
        let is_held = |output: &Output| matches!(output, Output::Hold);
        assert!(call.outputs.iter().any(is_held));
        call.playout_event(4.51, 0, PlayoutEvent::Progress(Position::from_seconds(2.5)));
        call.send_input(6.0, Input::SpeechStopped { end: Time::from_seconds(5.8) });
        call
    };
    let mut cut = held();
    cut.final_transcript(6.2, "Stop it");
    let held_at = cut
        .outputs
        .iter()
        .find_map(|output| match output {
            Output::Emit(envelope) if matches!(envelope.event, Event::PlayoutHeld { .. }) => {
                Some(envelope.at.as_seconds())
            }
            _ => None,
        })
        .unwrap();
    assert!(held_at <= 4.5, "{held_at}");
    assert_eq!(agent_message(&cut), (2.0, held_at));

    // Sound that has gone on ends where it is cut.
    let mut resumed = held();
    resumed.send_input(9.0, Input::Tick);
    resumed.playout_event(9.1, 0, PlayoutEvent::Progress(Position::from_seconds(2.6)));
    resumed.send_command(9.5, Command::Interrupt);
    assert_eq!(agent_message(&resumed), (2.0, 9.5));

    let mut stalled = speaking();
    stalled.playout_event(4.0, 0, PlayoutEvent::Stalled(Position::from_seconds(2.0)));
    stalled.send_command(5.0, Command::Interrupt);
    assert_eq!(agent_message(&stalled), (2.0, 4.0));
}

#[test]
fn a_held_reply_goes_on_once_it_is_known_that_there_were_no_words() {
    let held = || {
        let mut call = Harness::new(|_| {});
        call.conversation.set_explain(true);
        call.final_transcript(1.0, "Hello")
            .send_input(1.4, Input::Tick)
            .llm_text(1.5, "One two three four five.")
            .llm_end(1.6);
        call.tts_end(1.7, 0, 20.0).playout_event(1.7, 0, PlayoutEvent::Started);
        call.send_input(3.05, Input::SpeechStarted { onset: Time::from_seconds(3.0) });
        call.send_input(4.0, Input::SpeechContinued { until: Time::from_seconds(4.0) });
        assert!(call.has_output(&Output::Hold));
        call.send_input(4.25, Input::SpeechStopped { end: Time::from_seconds(4.0) });
        call.send_input(4.25, Input::FinalTranscriptPending).send_input(9.0, Input::Tick);
        assert!(!call.has_output(&Output::Resume), "its transcript may still arrive");
        call
    };
    let mut call = held();
    call.final_transcript(9.5, "");
    assert!(call.has_output(&Output::Resume), "there were no words");
    let mut call = held();
    call.final_transcript(9.5, "Stop it").send_input(20.0, Input::Tick);
    assert!(
        !call.explanations().iter().any(|why| why.contains("nothing was transcribed")),
        "{:#?}",
        call.explanations()
    );
    let mut call = held();
    call.send_input(12.24, Input::Tick);
    assert!(!call.has_output(&Output::Resume));
    call.send_input(12.25, Input::Tick);
    assert!(call.has_output(&Output::Resume), "it never answers");
}

#[test]
fn the_rules_of_a_group_hold_only_while_several_people_are_present() {
    let rules = Participation {
        only_with_several: true,
        names: vec!["Monica".into()],
        ..Participation::default()
    };
    let mut call =
        Harness::new(|spec| *spec = spec.clone().with_participation(Some(rules.clone())));
    let mut at = 1.0;
    // Words that nobody answers, and the number of requests to the model after each.
    let mut say = |call: &mut Harness, text: &str| {
        call.final_transcript(at, text).send_input(at + 5.0, Input::Tick);
        let count = call.llm_requests().len();
        if count > 0 {
            call.send_command(at + 5.1, Command::Interrupt);
        }
        at += 20.0;
        count
    };
    assert_eq!(say(&mut call, "How are you?"), 1);
    call.send_input(20.0, Input::PeoplePresent { count: 2 });
    assert_eq!(say(&mut call, "The museum opens at nine."), 1, "not addressed");
    assert_eq!(say(&mut call, "Monica, how many trees are there?"), 2, "addressed");
    call.send_input(60.0, Input::PeoplePresent { count: 1 });
    assert_eq!(say(&mut call, "The museum opens at ten."), 3, "one person again");
    // A fixed mode does not depend on the number.
    let fixed = Participation { only_with_several: false, ..rules };
    let mut call = Harness::new(|spec| *spec = spec.clone().with_participation(Some(fixed)));
    call.send_input(0.5, Input::PeoplePresent { count: 1 });
    call.final_transcript(1.0, "The museum opens at nine.").send_input(6.0, Input::Tick);
    assert_eq!(call.llm_requests().len(), 0);
}

#[test]
fn nothing_is_different_for_one_person_after_the_others_have_left() {
    let rules = Participation { only_with_several: true, ..Participation::default() };
    let committed_at = |others: bool| {
        let mut call =
            Harness::new(|spec| *spec = spec.clone().with_participation(Some(rules.clone())));
        let at = |seconds| Time::from_seconds(seconds);
        if others {
            call.send_input(0.1, Input::PeoplePresent { count: 2 });
            call.send_input(0.2, Input::SpeakerStarted { name: "Tom".into(), at: at(0.2) });
            call.send_input(0.3, Input::SpeakerStopped { name: "Tom".into(), at: at(0.3) });
        }
        call.send_input(0.4, Input::PeoplePresent { count: 1 });
        call.send_input(1.1, Input::SpeechStarted { onset: at(1.0) });
        call.send_input(2.1, Input::SpeechStopped { end: at(2.0) });
        call.final_transcript(2.2, "How are you?");
        while !call.events().any(|event| matches!(event, Event::UtteranceCommitted { .. })) {
            let (at, _) = call.conversation.poll_timeout().expect("a deadline");
            call.send_input(at.as_seconds(), Input::Tick);
        }
        call.now
    };
    assert_eq!(committed_at(true), committed_at(false), "no name is waited for");
}

#[test]
fn the_user_who_left_is_told_unless_the_departures_of_all_were() {
    let departures = |count: u32| {
        let mut call = Harness::new(|_| {});
        call.send_input(0.1, Input::PeoplePresent { count });
        call.send_command(1.0, Command::Leave);
        assert!(call.events().any(|event| matches!(event, Event::Ended { .. })));
        call.events().filter(|event| matches!(event, Event::ParticipantLeft { .. })).count()
    };
    assert_eq!((departures(0), departures(1)), (0, 1));
}
