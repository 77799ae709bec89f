//! What only a live call has: words that stream in, voices that are late, fallbacks, guardrails that fire, a server that stops.

use std::sync::Arc;

use conversation::conversation::Conversation;
use conversation::event::{EndReason, Event, HistoryItem, Role, Stage};
use conversation::input::{
    Command, CommandId, Input, LlmEvent, MAX_VISITOR_CONTEXT, PieceId, PlayoutEvent, StepId, StretchId,
    TtsEvent,
};
use conversation::output::{Answer, LlmRequest, Output, Refusal, SpeechRequest};
use conversation::settings::{Message, Settings};
use conversation::spec::{Spec, ToolSpec};
use conversation::time::{Position, Time};
use serde_json::json;

/// A call whose driver is the test.
struct Call {
    conversation: Conversation,
    now: f64,
    outputs: Vec<Output>,
}

impl Call {
    fn new(change: impl FnOnce(&mut Spec)) -> Self {
        let settings = Settings {
            echo_warmup: 0.0,
            preemptive_generation: false,
            backchannels: false,
            ..Settings::product()
        };
        let mut spec = settings.spec().unwrap();
        change(&mut spec);
        let mut call = Self { conversation: Conversation::new(spec), now: 0.0, outputs: Vec::new() };
        call.give(0.0, Input::Begin);
        call
    }

    /// This input, at this time.
    fn give(&mut self, at: f64, input: Input) -> &mut Self {
        self.now = at;
        self.conversation.handle(input, Time::from_seconds(at));
        self.outputs.extend(core::iter::from_fn(|| self.conversation.poll()));
        self
    }

    fn say(&mut self, at: f64, text: &str) -> &mut Self {
        self.give(at, Input::Transcript { text: text.into(), is_final: true, outstanding: String::new() })
    }

    fn llm(&mut self, at: f64, event: LlmEvent) -> &mut Self {
        let step = self.asked().last().expect("a question").step;
        self.give(at, Input::Llm { step, event })
    }

    fn text(&mut self, at: f64, text: &str) -> &mut Self {
        self.llm(at, LlmEvent::Text(text.into()))
    }

    fn llm_end(&mut self, at: f64) -> &mut Self {
        self.llm(at, LlmEvent::End { prompt_tokens: 7, completion_tokens: 3 })
    }

    fn tts(&mut self, at: f64, piece: usize, event: TtsEvent) -> &mut Self {
        let piece = self.pieces()[piece].piece;
        self.give(at, Input::Tts { piece, event })
    }

    fn voice(&mut self, at: f64, piece: usize, seconds: f64) -> &mut Self {
        self.tts(at, piece, TtsEvent::End { duration: Position::from_seconds(seconds) })
    }

    fn play(&mut self, at: f64, piece: usize, event: PlayoutEvent) -> &mut Self {
        let piece = self.pieces()[piece].piece;
        self.give(at, Input::Playout { piece, event })
    }

    fn command(&mut self, at: f64, command: Command) -> Answer {
        self.give(at, Input::Command { id: CommandId(0), command });
        let mut answers = self
            .outputs
            .iter()
            .filter_map(|o| if let Output::Answer { answer, .. } = o { Some(*answer) } else { None });
        answers.next_back().unwrap()
    }

    fn asked(&self) -> Vec<&LlmRequest> {
        self.outputs
            .iter()
            .filter_map(|o| if let Output::AskLlm(request) = o { Some(request) } else { None })
            .collect()
    }

    fn pieces(&self) -> Vec<&SpeechRequest> {
        self.outputs
            .iter()
            .filter_map(|o| if let Output::Synthesize(request) = o { Some(request) } else { None })
            .collect()
    }

    fn spoken(&self) -> Vec<&str> {
        self.pieces().into_iter().map(|piece| piece.text.as_str()).collect()
    }

    fn permitted(&self) -> Vec<PieceId> {
        self.outputs
            .iter()
            .filter_map(|o| if let Output::Play(piece) = o { Some(*piece) } else { None })
            .collect()
    }

    fn facts(&self) -> impl Iterator<Item = &Event> {
        self.outputs.iter().filter_map(|o| if let Output::Tell(fact) = o { Some(&fact.event) } else { None })
    }

    fn history(&self) -> Vec<(Role, &str)> {
        self.facts()
            .filter_map(|e| {
                if let Event::History(item) = e { Some((item.role, item.text.as_str())) } else { None }
            })
            .collect()
    }

    fn heard(&self) -> Vec<&str> {
        self.facts()
            .filter_map(|e| {
                if let Event::AgentStoppedSpeaking { text, .. } = e { Some(text.as_str()) } else { None }
            })
            .collect()
    }

    /// What was explained so far.
    fn why(&self) -> Vec<&str> {
        self.outputs
            .iter()
            .filter_map(|o| if let Output::Explain(found) = o { Some(found.why.as_str()) } else { None })
            .collect()
    }

    fn has(&self, wanted: &Output) -> bool {
        self.outputs.contains(wanted)
    }
}

fn roles(history: &[Arc<HistoryItem>]) -> Vec<(Role, &str)> {
    history.iter().map(|item| (item.role, item.text.as_str())).collect()
}

#[test]
fn the_first_phrase_is_spoken_while_the_model_still_writes() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick);
    assert_eq!(call.asked().len(), 1);
    call.text(1.6, "Of course I ").text(1.7, "can, it is");
    assert_eq!(call.spoken(), ["Of course I can,"]);
    call.voice(1.8, 0, 1.0).play(1.81, 0, PlayoutEvent::Started);
    call.text(2.0, " easy. Do you want 3.").text(2.1, "5 or more?").llm_end(2.2);
    assert_eq!(call.spoken(), ["Of course I can,", "it is easy.", "Do you want 3.5 or more?"]);
    call.voice(2.3, 1, 1.0).voice(2.3, 2, 1.0);
    assert_eq!(call.permitted().len(), 3);
    call.play(2.81, 0, PlayoutEvent::Finished(Position::from_seconds(1.0))).play(
        2.81,
        1,
        PlayoutEvent::Started,
    );
    call.play(3.81, 1, PlayoutEvent::Finished(Position::from_seconds(1.0))).play(
        3.81,
        2,
        PlayoutEvent::Started,
    );
    call.play(4.81, 2, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    assert_eq!(call.heard(), ["Of course I can, it is easy. Do you want 3.5 or more?"]);
    assert_eq!(call.conversation.poll_timeout().map(|(_, reason)| reason.name()), Some("idle"));
}

#[test]
fn a_late_voice_is_not_counted_as_heard() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.5, "One two three four.").llm_end(1.6);
    call.tts(1.7, 0, TtsEvent::Ready).play(1.7, 0, PlayoutEvent::Started);
    let times = vec![
        ("One".to_owned(), Position::from_seconds(0.5)),
        ("two".to_owned(), Position::from_seconds(1.0)),
    ];
    call.tts(1.8, 0, TtsEvent::Words(times));
    call.play(2.3, 0, PlayoutEvent::Stalled(Position::from_seconds(0.6)));
    assert_eq!(call.command(5.0, Command::Interrupt), Answer::Accepted);
    assert_eq!(call.heard(), ["One"]);
}

#[test]
fn a_voice_whose_length_is_unknown_claims_no_words() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.5, "One two three four.").llm_end(1.6);
    call.tts(1.7, 0, TtsEvent::Ready).play(1.7, 0, PlayoutEvent::Started);
    call.command(3.0, Command::Interrupt);
    assert_eq!(call.heard(), [""]);
    assert_eq!(call.history(), [(Role::User, "Hello")]);
}

#[test]
fn a_failing_model_has_its_words_so_far_spoken_then_the_apology() {
    let mut call = Call::new(|spec| spec.fallback_llm = true);
    call.say(1.0, "Hello")
        .give(1.4, Input::Tick)
        .text(1.6, "It is fine. And the")
        .llm(1.7, LlmEvent::Failed("broken".into()));
    assert_eq!(call.asked().len(), 1, "words were given to the voice: no second model");
    call.voice(1.8, 0, 1.0).play(1.8, 0, PlayoutEvent::Started);
    call.play(2.8, 0, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    assert_eq!(call.spoken(), ["It is fine.", "I'm sorry, something went wrong.", "Please say that again."]);
    assert_eq!(call.heard(), ["It is fine."]);
}

#[test]
fn of_a_failing_models_many_phrases_those_that_the_voice_was_given_are_spoken() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello")
        .give(1.4, Input::Tick)
        .text(1.6, "One is here. Two is here. Three is here. Four is here. Five");
    call.llm(1.7, LlmEvent::Failed("broken".into()));
    let mut at = 2.0;
    for piece in 0..3 {
        call.voice(at, piece, 1.0).play(at, piece, PlayoutEvent::Started);
        at += 1.0;
        call.play(at, piece, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    }
    assert_eq!(call.heard(), ["One is here. Two is here. Three is here."]);
    assert_eq!(call.spoken()[3], "I'm sorry, something went wrong.");
}

#[test]
fn a_model_that_fails_before_its_first_word_is_replaced_once() {
    let mut call = Call::new(|spec| spec.fallback_llm = true);
    call.say(1.0, "Hello").give(1.4, Input::Tick).give(6.5, Input::Tick);
    assert!(call.asked()[1].fallback, "after 5 s of silence");
    assert!(call.has(&Output::CancelLlm(call.asked()[0].step)));
    call.llm(6.6, LlmEvent::Failed("broken too".into()));
    assert_eq!(call.asked().len(), 2);
    assert_eq!(call.spoken()[0], "I'm sorry, something went wrong.");
    let errors = call.facts().filter(|e| matches!(e, Event::Error { stage: Stage::Llm, .. })).count();
    assert_eq!(errors, 2);
}

#[test]
fn an_empty_answer_is_a_failure() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).llm_end(1.6);
    assert_eq!(call.spoken()[0], "I'm sorry, something went wrong.");
}

#[test]
fn a_failing_voice_is_replaced_once_for_the_same_words() {
    let mut call = Call::new(|spec| spec.fallback_tts = true);
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.6, "Hi there.").llm_end(1.6);
    call.tts(1.7, 0, TtsEvent::Failed("no voice".into()));
    assert_eq!(call.spoken(), ["Hi there.", "Hi there."]);
    assert!(call.pieces()[1].fallback);
    call.voice(1.8, 1, 1.0).play(1.8, 1, PlayoutEvent::Started).play(
        2.8,
        1,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    assert_eq!(call.heard(), ["Hi there."]);
}

#[test]
fn a_guardrail_cuts_the_answer_and_says_its_own_words() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Bad words").give(1.4, Input::Tick).text(1.6, "Well, let me see now.").llm_end(1.7);
    call.voice(1.8, 0, 2.0).play(1.8, 0, PlayoutEvent::Started);
    call.give(2.9, Input::Guardrail { say: "I cannot talk about that.".into() });
    assert_eq!(call.heard(), ["Well, let"]);
    call.voice(3.0, 1, 2.0).play(3.0, 1, PlayoutEvent::Started);
    assert_eq!(call.command(3.5, Command::Interrupt), Answer::Refused(Refusal::Uninterruptible));
    call.play(5.0, 1, PlayoutEvent::Finished(Position::from_seconds(2.0)));
    let expected = [
        (Role::User, "Bad words"),
        (Role::Assistant, "Well, let"),
        (Role::Assistant, "I cannot talk about that."),
    ];
    assert_eq!(call.history(), expected);
    assert_eq!(call.facts().filter(|e| matches!(e, Event::AgentInterrupted)).count(), 1);
}

#[test]
fn the_model_sees_a_steps_words_before_its_tools_result() {
    let tool = ToolSpec { name: "look".into(), ..ToolSpec::default() };
    let mut call = Call::new(|spec| spec.tools = vec![tool]);
    call.say(1.0, "Go").give(1.4, Input::Tick).text(1.6, "One moment.");
    call.llm(1.6, LlmEvent::Call { id: "c".into(), name: "look".into(), arguments: json!({}) }).llm_end(1.7);
    let run = call
        .outputs
        .iter()
        .find_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .unwrap();
    call.give(1.8, Input::Tool { call: run, result: Ok(json!("Sunny")) });
    call.voice(1.9, 0, 1.0).play(1.9, 0, PlayoutEvent::Started).play(
        2.9,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    let asked = call.asked();
    assert_eq!(
        roles(&asked[1].history),
        [(Role::User, "Go"), (Role::Assistant, "One moment."), (Role::Tool, "Sunny")]
    );
    assert_eq!(asked[1].step, StepId { step: 1, ..asked[0].step });
}

#[test]
fn a_tools_messages_never_stand_behind_its_result_where_the_model_sees_them() {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        on_start: Some(format!("Starting {name}.")),
        on_success: Some(format!("Got {name}.")),
        ..ToolSpec::default()
    };
    let mut call = Call::new(|spec| spec.tools = vec![tool("one"), tool("two")]);
    call.say(1.0, "Go").give(1.4, Input::Tick).text(1.6, "Let me see.");
    for name in ["one", "two"] {
        call.llm(1.6, LlmEvent::Call { id: name.into(), name: name.into(), arguments: json!({}) });
    }
    call.llm_end(1.7);
    let runs: Vec<_> = call
        .outputs
        .iter()
        .filter_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .collect();
    // The first result is there before a word was heard, the second while the first tool's success is told.
    call.give(1.8, Input::Tool { call: runs[0], result: Ok(json!("1")) });
    let mut at = 2.0;
    for piece in 0..3 {
        call.voice(at, piece, 1.0).play(at, piece, PlayoutEvent::Started);
        at += 1.0;
        call.play(at, piece, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    }
    assert_eq!(call.spoken(), ["Let me see.", "Starting one.", "Starting two.", "Got one."]);
    call.voice(at, 3, 1.0).play(at, 3, PlayoutEvent::Started);
    call.play(at + 1.0, 3, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    assert_eq!(call.asked().len(), 1, "the second result is not there");
    call.give(at + 2.0, Input::Tool { call: runs[1], result: Ok(json!("2")) });
    assert_eq!(
        roles(&call.asked()[1].history),
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
    let mut call = Call::new(|_| {});
    call.conversation.explain(true);
    let text = "Hello world. ".repeat(500);
    let say = Command::Say { text, interrupt: true, allow_interruptions: true, add_to_context: true };
    assert_eq!(call.command(1.0, say), Answer::Accepted);
    assert_eq!(call.pieces().len(), 3, "the one that will sound, and two ahead");
    for piece in 0..3 {
        call.voice(1.1, piece, 1.0);
    }
    assert_eq!(call.pieces().len(), 3, "made, and not played yet");
    for piece in 0..10 {
        let at = 2.0 + piece as f64;
        call.play(at, piece, PlayoutEvent::Started);
        call.play(at + 1.0, piece, PlayoutEvent::Finished(Position::from_seconds(1.0)));
        assert_eq!(call.pieces().len(), piece + 4);
        call.voice(at + 1.0, piece + 3, 1.0);
    }
    assert_eq!(call.command(12.5, Command::Interrupt), Answer::Accepted);
    call.give(60.0, Input::Tick);
    assert_eq!(call.pieces().len(), 13, "nothing more is asked for");
    // What is not asked for yet waits for what sounds, not for a time between two speeches.
    assert!(!call.why().iter().any(|why| why.contains("the voice is asked at")), "{:#?}", call.why());
}

#[test]
fn a_model_that_does_not_end_is_cut_and_its_reply_is_spoken_to_there() {
    let mut call = Call::new(|spec| spec.fallback_llm = true);
    call.say(1.0, "Tell me").give(1.4, Input::Tick);
    for _ in 0..3_999 {
        call.text(1.6, "word ");
    }
    assert!(!call.has(&Output::CancelLlm(call.asked()[0].step)));
    call.text(1.6, "wörd ö and more");
    assert!(call.has(&Output::CancelLlm(call.asked()[0].step)), "20 000 characters were given");
    call.text(1.7, "nobody wants this").llm_end(1.8);
    let given: String = call
        .facts()
        .filter_map(|e| if let Event::LlmText { text } = e { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(given.chars().count(), 20_000);
    assert_eq!(call.asked().len(), 1, "that is no failure");
    assert_eq!(call.facts().filter(|e| matches!(e, Event::Error { .. })).count(), 0);
    assert_eq!(call.facts().filter(|e| matches!(e, Event::LlmStopped { .. })).count(), 1);
    let warnings: Vec<_> = call
        .facts()
        .filter_map(|e| if let Event::Warning { text } = e { Some(text) } else { None })
        .collect();
    assert_eq!(warnings, ["The language model's reply was cut at 20000 characters."]);
    // All that was taken is spoken, and then the reply ends.
    let (mut at, mut piece) = (2.0, 0);
    while piece < call.pieces().len() {
        call.voice(at, piece, 1.0).play(at, piece, PlayoutEvent::Started);
        at += 1.0;
        call.play(at, piece, PlayoutEvent::Finished(Position::from_seconds(1.0)));
        piece += 1;
    }
    assert_eq!(call.heard().len(), 1);
    assert!(call.heard()[0].ends_with("word wörd"), "{:?}", &call.heard()[0][19_900..]);
}

#[test]
fn words_without_context_are_told_and_not_seen_by_the_model() {
    let mut call = Call::new(|_| {});
    let say = Command::Say {
        text: "An announcement.".into(),
        interrupt: true,
        allow_interruptions: true,
        add_to_context: false,
    };
    assert_eq!(call.command(1.0, say), Answer::Accepted);
    call.voice(1.1, 0, 1.0).play(1.1, 0, PlayoutEvent::Started).play(
        2.1,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    call.say(3.0, "What?").give(3.4, Input::Tick);
    assert_eq!(call.history(), [(Role::Assistant, "An announcement."), (Role::User, "What?")]);
    assert_eq!(roles(&call.asked()[0].history), [(Role::User, "What?")]);
}

#[test]
fn context_may_replace_earlier_context() {
    let mut call = Call::new(|_| {});
    for (text, overwrite) in [("a", false), ("b", false), ("c", true)] {
        assert_eq!(call.command(0.5, Command::Context { text: text.into(), overwrite }), Answer::Accepted);
    }
    call.say(1.0, "Hi").give(1.4, Input::Tick);
    assert_eq!(roles(&call.asked()[0].history), [(Role::System, "c"), (Role::User, "Hi")]);
}

#[test]
fn what_a_client_tells_is_the_visitor_s_word_and_replaces_only_what_clients_told() {
    let mut call = Call::new(|_| {});
    let operator = |text: &str, overwrite| Command::Context { text: text.into(), overwrite };
    let client = |text: &str, overwrite| Command::VisitorContext { text: text.into(), overwrite };
    for command in [operator("Gold.", false), client("Page 1.", false), client("All is free.", true)] {
        assert_eq!(call.command(0.5, command), Answer::Accepted);
    }
    call.say(1.0, "Hi").give(1.4, Input::Tick);
    let seen = [(Role::System, "Gold."), (Role::Visitor, "All is free."), (Role::User, "Hi")];
    assert_eq!(roles(&call.asked()[0].history), seen);
    // The operator's word replaces both.
    assert_eq!(call.command(1.5, operator("Silver.", true)), Answer::Accepted);
    call.command(1.6, Command::Respond { text: "And now?".into() });
    let asked = call.asked();
    let last = roles(&asked.last().unwrap().history);
    assert!(last.contains(&(Role::System, "Silver.")), "{last:?}");
    assert!(last.iter().all(|(role, text)| *role != Role::Visitor && *text != "Gold."), "{last:?}");
}

#[test]
fn clients_tell_at_most_eight_kib_at_a_time_and_the_operator_more() {
    let mut call = Call::new(|_| {});
    let client = |bytes: usize, overwrite| Command::VisitorContext { text: "x".repeat(bytes), overwrite };
    let full = Answer::Refused(Refusal::ContextFull);
    assert_eq!(call.command(0.1, client(MAX_VISITOR_CONTEXT + 1, false)), full);
    assert_eq!(call.command(0.2, client(MAX_VISITOR_CONTEXT - 1, false)), Answer::Accepted);
    assert_eq!(call.command(0.3, client(2, false)), full);
    // What is refused takes nothing back.
    assert_eq!(call.command(0.4, client(MAX_VISITOR_CONTEXT + 1, true)), full);
    assert_eq!(call.command(0.5, client(1, false)), Answer::Accepted);
    assert_eq!(call.command(0.6, client(MAX_VISITOR_CONTEXT, true)), Answer::Accepted);
    let long = "y".repeat(2 * MAX_VISITOR_CONTEXT);
    assert_eq!(
        call.command(0.7, Command::Context { text: long.clone(), overwrite: false }),
        Answer::Accepted
    );
    call.say(1.0, "Hi").give(1.4, Input::Tick);
    let whole = "x".repeat(MAX_VISITOR_CONTEXT);
    let seen = [(Role::Visitor, &*whole), (Role::System, &*long), (Role::User, "Hi")];
    assert_eq!(roles(&call.asked()[0].history), seen);
}

#[test]
fn a_server_that_stops_says_goodbye_first() {
    let mut call = Call::new(|spec| spec.exit_message = Some("Goodbye.".into()));
    let stop = Command::Stop { reason: EndReason::EndedByApi, exit_message: true };
    assert_eq!(call.command(1.0, stop.clone()), Answer::Accepted);
    assert_eq!(call.command(1.1, stop), Answer::Already);
    assert_eq!(call.command(1.1, Command::Respond { text: "Wait".into() }), Answer::Refused(Refusal::Ending));
    call.voice(1.2, 0, 1.0).play(1.2, 0, PlayoutEvent::Started).play(
        2.2,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    assert!(call.has(&Output::End(EndReason::EndedByApi)));
    assert_eq!(call.command(2.3, Command::Interrupt), Answer::Refused(Refusal::Ended));
    assert_eq!(call.command(2.3, Command::End), Answer::Already);
}

#[test]
fn ears_that_are_broken_for_half_a_minute_end_the_call() {
    let mut call = Call::new(|_| {});
    let broken = || Input::Failed { stage: Stage::Stt, reason: "gone".into() };
    call.give(1.0, broken()).give(20.0, broken()).give(20.5, Input::Recovered { stage: Stage::Stt });
    call.give(21.0, broken()).give(50.9, broken());
    assert!(!call.has(&Output::End(EndReason::Error)));
    call.give(51.0, broken());
    assert!(call.has(&Output::End(EndReason::Error)));
}

#[test]
fn a_turn_model_that_answers_in_time_prolongs_the_wait() {
    let mut call = Call::new(|spec| spec.turn_model = true);
    call.give(1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) }).say(1.9, "I think");
    call.give(2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) });
    let stretch = call
        .outputs
        .iter()
        .find_map(|o| if let Output::AskTurn(stretch) = o { Some(*stretch) } else { None })
        .unwrap();
    let asked = call.conversation.open_turn();
    assert_eq!((asked.onset, asked.words.as_str()), (Some(Time::from_seconds(1.0)), "I think"));
    assert!(call.conversation.awaits_turn_probability());
    call.give(2.3, Input::TurnProbability { stretch, p: 0.2 });
    assert!(!call.conversation.awaits_turn_probability());
    assert_eq!(call.conversation.poll_timeout().map(|(at, _)| at), Some(Time::from_seconds(5.0)));
    call.give(2.35, Input::TurnProbability { stretch, p: f32::NAN });
    assert_eq!(call.conversation.poll_timeout().map(|(at, _)| at), Some(Time::from_seconds(5.0)));
}

#[test]
fn an_answer_of_the_turn_model_after_its_deadline_changes_nothing() {
    let asked = |call: &Call| {
        let stretch = |o: &Output| if let Output::AskTurn(stretch) = o { Some(*stretch) } else { None };
        call.outputs.iter().rev().find_map(stretch).unwrap()
    };
    let next = |call: &Call| call.conversation.poll_timeout().map(|(at, _)| at);
    let mut call = Call::new(|spec| spec.turn_model = true);
    call.conversation.explain(true);
    call.give(1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) }).say(1.9, "I think");
    call.give(2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) });
    let first = asked(&call);
    // The user goes on: the answer about the stretch before is worth nothing, and is not waited for.
    call.give(2.35, Input::SpeechStarted { onset: Time::from_seconds(2.3) });
    assert!(!call.conversation.awaits_turn_probability());
    call.give(2.4, Input::TurnProbability { stretch: first, p: 0.1 });
    call.give(3.25, Input::SpeechStopped { end: Time::from_seconds(3.0) });
    assert!(call.conversation.awaits_turn_probability());
    assert_eq!(next(&call), Some(Time::from_seconds(3.4)), "no answer: the shorter wait");
    let second = asked(&call);
    call.give(3.4, Input::Tick);
    assert!(!call.conversation.awaits_turn_probability(), "the turn is committed");
    let deadline = next(&call);
    call.give(3.45, Input::TurnProbability { stretch: second, p: 0.1 });
    assert_eq!(next(&call), deadline);
    let said = |what: &str| call.why().iter().filter(|why| why.contains(what)).count();
    assert_eq!(
        said("the turn model has not answered in time: min_endpointing_delay 400ms"),
        1,
        "{:#?}",
        call.why()
    );
    assert_eq!(said("the turn model's answer 0.1 came too late to count"), 2, "{:#?}", call.why());
}

#[test]
fn speech_is_no_interruption_while_the_detector_reports_only_its_start() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.5, "One two three four five.").llm_end(1.6);
    call.voice(1.7, 0, 10.0).play(1.7, 0, PlayoutEvent::Started);
    call.give(3.05, Input::SpeechStarted { onset: Time::from_seconds(3.0) });
    call.give(3.3, Input::SpeechHeard { until: Time::from_seconds(3.28) }).give(3.7, Input::Tick);
    assert!(!call.has(&Output::Hold), "the voice was last heard .28 s after its onset");
    assert!(call.has(&Output::Duck));
    call.give(3.72, Input::SpeechHeard { until: Time::from_seconds(3.7) });
    assert!(call.has(&Output::Hold));
}

#[test]
fn a_turns_times_count_from_the_true_end_of_speech() {
    let mut call = Call::new(|_| {});
    call.give(0.55, Input::SpeechStarted { onset: Time::from_seconds(0.5) });
    call.give(1.75, Input::SpeechStopped { end: Time::from_seconds(1.5) });
    call.say(1.8, "Hello").give(2.5, Input::Tick);
    let times = call.conversation.open_turns().next().unwrap();
    let near = |found: Option<f64>, expected: f64| found.is_some_and(|found| (found - expected).abs() < 1e-6);
    assert!(near(times.stt, 0.3) && near(times.endpointing, 0.4), "{times:?}");
}

#[test]
fn a_turn_model_is_asked_only_where_there_is_one_and_once_for_each_stretch() {
    let asked = |turn_model: bool, early: bool| {
        let mut call = Call::new(|spec| spec.turn_model = turn_model);
        call.give(0.55, Input::SpeechStarted { onset: Time::from_seconds(0.5) });
        if early {
            call.give(1.0, Input::TurnProbability { stretch: StretchId(0), p: 0.9 });
        }
        call.give(1.75, Input::SpeechStopped { end: Time::from_seconds(1.5) });
        call.has(&Output::AskTurn(StretchId(0)))
    };
    assert!(asked(true, false));
    assert!(!asked(true, true), "it has answered already");
    assert!(!asked(false, false) && !asked(false, true));
}

#[test]
fn what_may_sound_and_has_not_begun_is_held_too() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.5, "One two three four five.").llm_end(1.6);
    call.voice(1.7, 0, 10.0);
    assert_eq!(call.permitted().len(), 1);
    call.give(1.85, Input::SpeechStarted { onset: Time::from_seconds(1.8) });
    call.give(2.62, Input::SpeechHeard { until: Time::from_seconds(2.6) });
    assert!(call.has(&Output::Hold), "playout would begin in the middle of the user's words");
}

#[test]
fn a_warning_message_and_a_greeting_are_cut_into_sentences_for_the_voice() {
    let settings = Settings {
        greeting: Some(Message { wait: 1.0, ..Message::new("Hello. I am Ann.") }),
        ..Settings::product()
    };
    let spec = settings.spec().unwrap();
    let mut call = Call::new(|own| *own = spec);
    call.give(0.99, Input::Tick);
    assert_eq!(call.pieces().len(), 0);
    call.give(1.01, Input::Tick);
    assert_eq!(call.spoken(), ["Hello.", "I am Ann."]);
}

#[test]
fn a_steps_words_stand_behind_the_result_of_an_older_steps_tool() {
    let tool = |name: &str| ToolSpec { name: name.into(), ..ToolSpec::default() };
    let mut call = Call::new(|spec| spec.tools = vec![tool("slow"), tool("fast")]);
    let ask = |name: &str| LlmEvent::Call { id: name.into(), name: name.into(), arguments: json!({}) };
    call.say(1.0, "Go").give(1.4, Input::Tick).llm(1.6, ask("slow")).llm_end(1.7);
    call.say(2.0, "No, wait").give(2.4, Input::Tick).text(2.5, "One moment.");
    call.llm(2.6, ask("fast")).llm_end(2.7);
    let runs: Vec<_> = call
        .outputs
        .iter()
        .filter_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .collect();
    call.give(2.8, Input::Tool { call: runs[0], result: Ok(json!("Late")) });
    call.give(2.9, Input::Tool { call: runs[1], result: Ok(json!("Sunny")) });
    call.voice(3.0, 0, 1.0).play(3.0, 0, PlayoutEvent::Started).play(
        4.0,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    assert_eq!(
        roles(&call.asked()[2].history),
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
    let mut call = Call::new(|spec| spec.preemptive_generation = true);
    let context = |text: &str, overwrite| Command::Context { text: text.into(), overwrite };
    call.command(0.5, context("It rains.", false));
    call.say(1.0, "Shall I go out?").text(1.1, "Take an umbrella.");
    assert_eq!(roles(&call.asked()[0].history)[0], (Role::System, "It rains."));
    call.command(1.2, context("", true));
    call.give(1.4, Input::Tick);
    assert_eq!(call.asked().len(), 2, "the prepared words knew what is no longer so");
    assert_eq!(roles(&call.asked()[1].history), [(Role::User, "Shall I go out?")]);
}

#[test]
fn an_item_tells_when_its_tool_started_and_when_its_words_began_to_sound() {
    let tool = ToolSpec { name: "look".into(), ..ToolSpec::default() };
    let mut call = Call::new(|spec| spec.tools = vec![tool]);
    call.say(1.0, "Go").give(1.4, Input::Tick).text(1.6, "One moment.");
    call.llm(1.6, LlmEvent::Call { id: "c".into(), name: "look".into(), arguments: json!({}) }).llm_end(1.7);
    let run = call
        .outputs
        .iter()
        .find_map(|o| if let Output::RunTool { call, .. } = o { Some(*call) } else { None })
        .unwrap();
    call.give(2.8, Input::Tool { call: run, result: Ok(json!("Sunny")) });
    call.voice(2.9, 0, 1.0).play(3.0, 0, PlayoutEvent::Started).play(
        4.0,
        0,
        PlayoutEvent::Finished(Position::from_seconds(1.0)),
    );
    let began: Vec<_> = call
        .facts()
        .filter_map(|e| if let Event::History(item) = e { Some((item.role, item.began)) } else { None })
        .collect();
    let at = |seconds| Some(Time::from_seconds(seconds));
    assert_eq!(began, [(Role::User, None), (Role::Tool, at(1.7)), (Role::Assistant, at(3.0))]);
}

#[test]
fn a_held_reply_counts_no_words_though_nobody_reports_where_it_stopped() {
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.5, "One two three four five.").llm_end(1.6);
    call.voice(1.7, 0, 10.0).play(1.7, 0, PlayoutEvent::Started);
    call.give(3.05, Input::SpeechStarted { onset: Time::from_seconds(3.0) });
    call.give(3.82, Input::SpeechHeard { until: Time::from_seconds(3.8) });
    assert!(call.has(&Output::Hold));
    assert_eq!(call.command(9.0, Command::Interrupt), Answer::Accepted);
    assert_eq!(call.heard(), ["One"], "two seconds a word, held after 2.12 s");
}

#[test]
fn a_turn_tells_until_when_its_answer_was_heard() {
    let heard = |call: &Call| {
        let told = |e: &Event| match *e {
            Event::TurnHeard { turn, heard_end, interrupted, barge_in } => {
                Some((turn, heard_end, interrupted, barge_in))
            }
            _ => None,
        };
        call.facts().filter_map(told).collect::<Vec<_>>()
    };
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.5, "One two.").llm_end(1.6);
    call.voice(1.7, 0, 1.0).play(1.7, 0, PlayoutEvent::Started);
    assert!(heard(&call).is_empty(), "it still sounds");
    call.play(2.7, 0, PlayoutEvent::Finished(Position::from_seconds(1.0)));
    let first = heard(&call);
    assert!(matches!(first[..], [(_, end, None, None)] if (end - 2.7).abs() < 1e-6), "{first:?}");
    call.say(3.0, "And now?").give(3.4, Input::Tick).text(3.5, "One two three four five.").llm_end(3.6);
    call.voice(3.7, 1, 10.0).play(3.7, 1, PlayoutEvent::Started);
    call.give(5.05, Input::SpeechStarted { onset: Time::from_seconds(5.0) });
    call.give(5.62, Input::SpeechHeard { until: Time::from_seconds(5.6) }).say(5.9, "Stop");
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
    let mut call = Call::new(|_| {});
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.6, "Once upon");
    assert_eq!(call.command(2.0, Command::Interrupt), Answer::Accepted);
    let told = call
        .facts()
        .find_map(|e| if let Event::Turn(times) = e { Some(times.timeline.clone()) } else { None });
    let told = told.expect("its times are told");
    assert_eq!((told.first_sample, told.interrupted), (None, Some(2.0)));
}

#[test]
fn a_model_that_stops_in_the_middle_is_explained() {
    let mut call = Call::new(|_| {});
    call.conversation.explain(true);
    call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.6, "Once upon").give(6.7, Input::Tick);
    let why = call.why();
    assert!(why.contains(&"the LLM has failed: no further token for 5s (fixed) since 1.600 s"), "{why:#?}");
}

#[test]
fn a_final_that_is_due_is_waited_for_but_not_for_ever() {
    for (due, over) in [(false, 4.25), (true, 10.25)] {
        let mut call = Call::new(|_| {});
        call.conversation.explain(true);
        call.give(1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) });
        call.give(2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) });
        if due {
            call.give(2.25, Input::FinalDue);
        }
        let over_so_often =
            |call: &Call| call.why().iter().filter(|why| why.contains("no words came")).count();
        call.give(over - 0.01, Input::Tick);
        assert_eq!(over_so_often(&call), 0, "due: {due}");
        call.give(over, Input::Tick);
        assert_eq!(over_so_often(&call), 1, "due: {due}");
        // What never came is not waited for with the next speech.
        call.give(12.05, Input::SpeechStarted { onset: Time::from_seconds(12.0) });
        call.give(13.25, Input::SpeechStopped { end: Time::from_seconds(13.0) });
        call.give(15.25, Input::Tick);
        assert_eq!(over_so_often(&call), 2, "due: {due}");
    }
}

#[test]
fn words_that_come_late_are_timed_from_the_speech_that_they_are_of() {
    let near = |found: Option<f64>, expected: f64| found.is_some_and(|found| (found - expected).abs() < 1e-6);
    for due in [false, true] {
        let mut call = Call::new(|_| {});
        call.give(0.55, Input::SpeechStarted { onset: Time::from_seconds(0.5) });
        call.give(1.75, Input::SpeechStopped { end: Time::from_seconds(1.5) });
        if due {
            call.give(1.75, Input::FinalDue);
        }
        // Without the promise the turn was over after 2 s, and the words open another one.
        call.say(6.0, "Hello").give(6.5, Input::Tick);
        let times = call.conversation.open_turns().next().unwrap();
        let waited = if due { 4.5 } else { 4.9 };
        assert!(near(times.stt, 4.5) && near(times.endpointing, waited), "due: {due}: {times:?}");
    }
}

#[test]
fn a_held_reply_goes_on_once_it_is_known_that_there_were_no_words() {
    let held = || {
        let mut call = Call::new(|_| {});
        call.conversation.explain(true);
        call.say(1.0, "Hello").give(1.4, Input::Tick).text(1.5, "One two three four five.").llm_end(1.6);
        call.voice(1.7, 0, 20.0).play(1.7, 0, PlayoutEvent::Started);
        call.give(3.05, Input::SpeechStarted { onset: Time::from_seconds(3.0) });
        call.give(4.0, Input::SpeechHeard { until: Time::from_seconds(4.0) });
        assert!(call.has(&Output::Hold));
        call.give(4.25, Input::SpeechStopped { end: Time::from_seconds(4.0) });
        call.give(4.25, Input::FinalDue).give(9.0, Input::Tick);
        assert!(!call.has(&Output::Resume), "its words may still come");
        call
    };
    let mut call = held();
    call.say(9.5, "");
    assert!(call.has(&Output::Resume), "there were none");
    let mut call = held();
    call.say(9.5, "Stop it").give(20.0, Input::Tick);
    assert!(!call.why().iter().any(|why| why.contains("nothing was transcribed")), "{:#?}", call.why());
    let mut call = held();
    call.give(12.24, Input::Tick);
    assert!(!call.has(&Output::Resume));
    call.give(12.25, Input::Tick);
    assert!(call.has(&Output::Resume), "it never answers");
}
