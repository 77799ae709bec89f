//! Requests in which the model may stay silent, as a live call has them: the text streams in, and
//! nothing of it is emitted before the model has decided.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use conversation::conversation::Conversation;
use conversation::event::{EndReason, Event, Snippet, Stage};
use conversation::input::{
    Command, CommandId, GenerationId, Input, LlmEvent, PlayoutEvent, TtsEvent,
};
use conversation::output::{LlmRequest, Output, STAY_SILENT};
use conversation::participation::{Decider, Participation, ParticipationMode};
use conversation::settings::Settings;
use conversation::spec::Spec;
use conversation::time::{Position, Time};
use serde_json::json;

/// A meeting whose driver is the test.
struct Meeting {
    conversation: Conversation,
    outputs: Vec<Output>,
}

impl Meeting {
    fn new() -> Self {
        Self::with(|_| {}, |_| {})
    }

    fn with(
        change_spec: impl FnOnce(&mut Spec),
        change_rules: impl FnOnce(&mut Participation),
    ) -> Self {
        let mut rules = Participation {
            names: vec!["Clara".into()],
            decide: Decider::Model,
            ..Participation::default()
        };
        change_rules(&mut rules);
        let mut spec = Settings::product_defaults().to_spec().unwrap();
        change_spec(&mut spec);
        let spec = spec.with_participation(Some(rules));
        let mut meeting = Self { conversation: Conversation::new(spec), outputs: Vec::new() };
        meeting.send(0.0, Input::Start);
        meeting
    }

    /// Sends an input. Returns its outputs, and those of the deadlines before it.
    fn send(&mut self, at: f64, input: Input) -> Vec<Output> {
        self.conversation.handle(input, Time::from_seconds(at));
        let outputs: Vec<Output> = core::iter::from_fn(|| self.conversation.poll()).collect();
        self.outputs.extend(outputs.iter().cloned());
        outputs
    }

    /// Somebody says a sentence, which is committed at `at`.
    fn say(&mut self, at: f64, text: &str) {
        let time = |seconds: f64| Time::from_seconds(at + seconds);
        self.send(at - 1.9, Input::SpeechStarted { onset: time(-2.0) });
        self.send(at - 0.5, Input::SpeechStopped { end: time(-1.0) });
        let text = text.to_owned();
        let trailing_interim = String::new();
        self.send(at - 0.4, Input::Transcript { text, is_final: true, trailing_interim });
        self.send(at, Input::Tick);
    }

    /// The same with the name of who speaks.
    fn say_as(&mut self, name: &str, at: f64, text: &str) {
        let (name, onset) = (name.to_owned(), Time::from_seconds(at - 2.0));
        self.send(at - 1.95, Input::SpeakerStarted { name: name.clone(), at: onset });
        self.say(at, text);
        self.send(at, Input::SpeakerStopped { name, at: Time::from_seconds(at - 1.0) });
    }

    fn requests(&self) -> Vec<&LlmRequest> {
        self.outputs
            .iter()
            .filter_map(|output| match output {
                Output::RequestLlm(request) => Some(request),
                _ => None,
            })
            .collect()
    }

    fn generation(&self) -> GenerationId {
        self.requests().last().expect("a request").generation
    }

    fn llm(&mut self, at: f64, event: LlmEvent) -> Vec<Output> {
        let generation = self.generation();
        self.send(at, Input::Llm { generation, event })
    }
}

fn text(text: &str) -> LlmEvent {
    LlmEvent::Text(text.into())
}

fn stay_silent() -> LlmEvent {
    LlmEvent::ToolCall { id: "call_1".into(), name: STAY_SILENT.into(), arguments: json!({}) }
}

const END: LlmEvent = LlmEvent::End { prompt_tokens: 70, completion_tokens: 3 };

fn events(outputs: &[Output]) -> Vec<Event> {
    let event = |output: &Output| match output {
        Output::Emit(envelope) => Some(envelope.event.clone()),
        _ => None,
    };
    outputs.iter().filter_map(event).collect()
}

fn snippets() -> Event {
    let (kb_id, doc_id, text) = ("kb".into(), "doc".into(), "The deadline is on Friday.".into());
    Event::Snippets { items: vec![Snippet { kb_id, doc_id, text, score: 1.0 }] }
}

#[test]
fn a_silent_answer_leaves_only_its_tokens() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Does anybody know the deadline?");
    assert!(meeting.requests()[0].may_stay_silent);
    let mut outputs = meeting.send(3.1, Input::ExternalEvent(snippets()));
    for (at, event) in [
        (3.1, LlmEvent::Provider("vendor".into())),
        (3.2, text("Nobody asked me. ")),
        (3.3, text("So I am silent.")),
        (3.4, stay_silent()),
        (3.5, text("Yes.")),
        (3.6, END),
    ] {
        outputs.extend(meeting.llm(at, event));
    }
    outputs.extend(meeting.send(30.0, Input::Tick));
    let used = Event::LlmStopped { prompt_tokens: 70, completion_tokens: 3 };
    assert_eq!((outputs.len(), events(&outputs)), (1, vec![used]));
}

#[test]
fn a_model_that_writes_nothing_or_the_name_of_the_tool_is_silent() {
    for words in ["", " \n", "…", "stay_silent", "`stay_silent()`", "[calm]", "[nod] stay_silent"]
    {
        let mut meeting = Meeting::new();
        meeting.say(3.0, "Does anybody know the deadline?");
        let mut outputs = meeting.llm(3.2, text(words));
        outputs.extend(meeting.llm(3.3, END));
        assert_eq!(outputs.len(), 1, "{words:?}: {outputs:?}");
    }
}

#[test]
fn an_answer_is_emitted_when_it_is_complete() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Does anybody know the deadline?");
    assert!(meeting.send(3.1, Input::ExternalEvent(snippets())).is_empty());
    assert!(meeting.llm(3.2, text("It is ")).is_empty());
    assert!(meeting.llm(3.3, text("on Friday.")).is_empty());
    let outputs = meeting.llm(3.4, END);
    let emitted = events(&outputs);
    assert!(emitted.contains(&Event::LlmText { text: "It is on Friday.".into() }), "{emitted:?}");
    assert!(emitted.contains(&snippets()), "{emitted:?}");
    let text = |output: &Output| match output {
        Output::Synthesize(request) => request.text.clone(),
        _ => String::new(),
    };
    let spoken = outputs.iter().any(|output| text(output) == "It is on Friday.");
    assert!(spoken, "{outputs:?}");
}

#[test]
fn an_address_cancels_an_undecided_request_without_an_event() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Does anybody know the deadline?");
    let undecided = meeting.generation();
    meeting.llm(3.2, text("It is on Friday."));
    meeting.say(6.0, "Clara, what is the price?");
    assert!(meeting.outputs.contains(&Output::CancelLlm(undecided)));
    let emitted = events(&meeting.outputs);
    assert!(!emitted.contains(&Event::LlmCancelled) && !emitted.contains(&Event::AgentInterrupted));
    assert!(!meeting.requests().last().unwrap().may_stay_silent, "an address is answered");
    // The rest of the cancelled answer changes nothing.
    let late = Input::Llm { generation: undecided, event: END };
    assert!(meeting.send(6.1, late).is_empty());
    // Words before the answer are not asked about any more.
    assert_eq!(meeting.requests().len(), 2);
}

#[test]
fn the_end_of_the_call_cancels_an_undecided_request() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Does anybody know the deadline?");
    let (undecided, command) = (meeting.generation(), Command::End);
    let outputs = meeting.send(3.5, Input::Command { id: CommandId(0), command });
    assert!(outputs.contains(&Output::CancelLlm(undecided)), "{outputs:?}");
    assert!(outputs.contains(&Output::End(EndReason::EndedByApi)), "{outputs:?}");
}

#[test]
fn a_failure_is_reported_and_not_spoken_and_the_fallback_may_decide() {
    let mut meeting = Meeting::with(
        |spec| {
            spec.fallback_llm = true;
            spec.error_message = Some("Sorry.".into());
        },
        |_| {},
    );
    meeting.say(3.0, "Does anybody know the deadline?");
    meeting.llm(3.2, text("It is"));
    let outputs = meeting.llm(3.3, LlmEvent::Failed("overloaded".into()));
    let failed = Event::Error { stage: Stage::Llm, reason: "overloaded".into() };
    assert_eq!(events(&outputs), [failed]);
    let fallback = meeting.requests().pop().unwrap();
    assert!(fallback.use_fallback && fallback.may_stay_silent);
    // It sends nothing for five seconds.
    let failed = Event::Error { stage: Stage::Llm, reason: "timeout".into() };
    let outputs = meeting.send(20.0, Input::Tick);
    assert_eq!(outputs[0], Output::CancelLlm(meeting.generation()));
    assert_eq!(events(&outputs), [failed]);
    assert_eq!(outputs.len(), 2);
}

#[test]
fn failures_of_undecided_requests_do_not_end_the_call() {
    let mut meeting = Meeting::new();
    for index in 0..10 {
        let at = 3.0 + 12.0 * f64::from(index);
        meeting.say(at, "Does anybody know the deadline?");
        meeting.llm(at + 0.2, LlmEvent::Failed("overloaded".into()));
    }
    assert_eq!(meeting.requests().len(), 10);
    assert!(!meeting.outputs.iter().any(|output| matches!(output, Output::End(_))));
}

#[test]
fn an_endless_answer_is_cut_as_any_other() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Does anybody know the deadline?");
    let mut outputs = Vec::new();
    for index in 0..30 {
        outputs.extend(meeting.llm(3.1 + f64::from(index) * 0.01, text(&"word ".repeat(200))));
    }
    let warning = |event: &Event| matches!(event, Event::Warning { .. });
    assert!(events(&outputs).iter().any(warning));
    assert!(outputs.contains(&Output::CancelLlm(meeting.generation())));
}

#[test]
fn words_are_too_old_after_fifteen_seconds() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Let us start with the budget.");
    meeting.llm(3.2, stay_silent());
    meeting.llm(3.3, END);
    meeting.say(7.0, "Does anybody know the deadline?");
    // Somebody speaks until the words are old.
    let onset = Time::from_seconds(8.0);
    meeting.send(8.1, Input::SpeechStarted { onset });
    let end = Time::from_seconds(22.5);
    meeting.send(23.0, Input::SpeechStopped { end });
    meeting.send(40.0, Input::Tick);
    assert_eq!(meeting.requests().len(), 1);
}

#[test]
fn only_participants_ask_the_model() {
    for mode in [ParticipationMode::OneToOne, ParticipationMode::Observer] {
        let mut meeting = Meeting::with(|_| {}, |rules| rules.mode = mode);
        meeting.say(3.0, "Does anybody know the deadline?");
        let undecided = meeting.requests().iter().any(|request| request.may_stay_silent);
        assert!(!undecided, "{mode:?}");
    }
    let mut meeting = Meeting::with(|_| {}, |rules| rules.decide = Decider::Rules);
    meeting.say(3.0, "Does anybody know the deadline?");
    assert!(meeting.requests().is_empty());
}

#[test]
fn backchannels_and_words_to_other_people_are_not_asked_about() {
    let mut meeting = Meeting::new();
    let at = Time::from_seconds(0.1);
    meeting.send(0.1, Input::SpeakerStarted { name: "Tom".into(), at });
    meeting.send(0.2, Input::SpeakerStopped { name: "Tom".into(), at });
    meeting.say(3.0, "Mm-hm.");
    meeting.say(6.0, "Tom, do you know the deadline?");
    meeting.send(40.0, Input::Tick);
    assert!(meeting.requests().is_empty());
}

/// The number of requests, and the history of the last one, if somebody speaks at `at` around an
/// answer that sounds from 7.2 to 13.2 s and that nobody can interrupt.
fn requests_around_an_answer(at: f64) -> (usize, Vec<String>) {
    let mut meeting = Meeting::with(|spec| spec.allow_interruptions = false, |_| {});
    meeting.say_as("Tom", 3.0, "Does anybody know the deadline?");
    meeting.llm(3.2, text("It is on Friday."));
    let outputs = meeting.llm(3.3, END);
    let synthesized = |output: &Output| match output {
        Output::Synthesize(request) => Some(request.segment),
        _ => None,
    };
    let segment = outputs.iter().find_map(synthesized).unwrap();
    if at < 7.2 {
        meeting.say_as("Maria", at, "Who is responsible for the fair?");
    }
    let duration = Position::from_seconds(6.0);
    meeting.send(7.1, Input::Tts { segment, event: TtsEvent::End { duration } });
    meeting.send(7.2, Input::Playout { segment, event: PlayoutEvent::Started });
    if at > 7.2 {
        meeting.say_as("Maria", at, "Who is responsible for the fair?");
    }
    meeting.send(13.1, Input::Tick);
    assert_eq!(meeting.requests().len(), 1, "the agent speaks");
    let event = PlayoutEvent::Finished(duration);
    let outputs = meeting.send(13.2, Input::Playout { segment, event });
    let is_heard = |event: &Event| matches!(event, Event::TurnReplyHeard { turn: 0, .. });
    assert!(events(&outputs).iter().any(is_heard), "{outputs:?}");
    meeting.send(20.0, Input::Tick);
    let last = meeting.requests().pop().unwrap();
    let texts = last.history.iter().map(|item| item.text.clone()).collect();
    (meeting.requests().len(), texts)
}

#[test]
fn words_during_an_answer_are_asked_about_and_words_before_it_are_not() {
    assert_eq!(requests_around_an_answer(7.0).0, 1);
    let (count, texts) = requests_around_an_answer(11.0);
    assert_eq!(count, 2);
    assert!(texts.contains(&"Maria: Who is responsible for the fair?".into()), "{texts:?}");
}

#[test]
fn a_guardrails_response_takes_the_place_of_an_undecided_answer() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Clara, what is the price?");
    meeting.llm(3.2, text("Ten euros."));
    meeting.llm(3.3, END);
    let interrupt = Input::Command { id: CommandId(0), command: Command::Interrupt };
    meeting.send(3.4, interrupt);
    meeting.say(20.0, "Does anybody know the deadline?");
    let undecided = meeting.generation();
    let response = "I may not talk about it.".into();
    let outputs = meeting.send(20.1, Input::GuardrailTriggered { response });
    assert!(outputs.contains(&Output::CancelLlm(undecided)), "{outputs:?}");
}

#[test]
fn the_fallback_decides_from_the_beginning_unless_the_model_has_decided() {
    let with_fallback = || {
        let mut meeting = Meeting::with(|spec| spec.fallback_llm = true, |_| {});
        meeting.say(3.0, "Does anybody know the deadline?");
        meeting
    };
    let failed = || LlmEvent::Failed("overloaded".into());
    let mut meeting = with_fallback();
    meeting.llm(3.2, text("It is"));
    meeting.llm(3.3, failed());
    meeting.llm(3.4, text("On Friday."));
    let outputs = meeting.llm(3.5, END);
    assert!(events(&outputs).contains(&Event::LlmText { text: "On Friday.".into() }));
    let mut meeting = with_fallback();
    meeting.llm(3.2, stay_silent());
    meeting.llm(3.3, failed());
    assert_eq!(meeting.requests().len(), 1);
}

#[test]
fn a_slow_request_is_the_only_one() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Does anybody know the deadline?");
    for at in [7.0, 11.0, 15.0] {
        meeting.llm(at, LlmEvent::Started);
        meeting.say(at + 3.0, "Let us look it up.");
    }
    assert_eq!(meeting.requests().len(), 1);
    meeting.llm(19.0, stay_silent());
    // Endless words after the call of the tool are not spoken, either.
    for _ in 0..30 {
        meeting.llm(19.1, text(&"word ".repeat(200)));
    }
    let outputs = meeting.llm(19.2, END);
    assert_eq!(events(&outputs).len(), 1, "{outputs:?}");
    meeting.send(19.3, Input::Tick);
    assert_eq!(meeting.requests().len(), 2);
}

#[test]
fn the_model_is_asked_after_a_short_silence() {
    let mut meeting = Meeting::new();
    meeting.say(3.0, "Let us start with the budget.");
    meeting.llm(3.2, stay_silent());
    meeting.llm(3.3, END);
    meeting.say(7.0, "Does anybody know the deadline?");
    // Somebody coughs while the ten seconds end.
    meeting.send(12.3, Input::SpeechStarted { onset: Time::from_seconds(12.2) });
    meeting.send(13.1, Input::SpeechStopped { end: Time::from_seconds(12.6) });
    meeting.send(13.35, Input::Tick);
    assert_eq!(meeting.requests().len(), 1);
    meeting.send(13.45, Input::Tick);
    assert_eq!(meeting.requests().len(), 2);
}
