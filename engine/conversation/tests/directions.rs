//! Directions in what the model writes and in fixed texts: they reach the TTS request of their
//! segment, and no text.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use conversation::conversation::Conversation;
use conversation::direction::Expression;
use conversation::event::Event;
use conversation::input::{Command, CommandId, Input, LlmEvent, PlayoutEvent, TtsEvent};
use conversation::output::{LlmRequest, Output, SpeechSource, TtsRequest};
use conversation::settings::{Settings, SpokenMessage};
use conversation::spec::{Spec, ToolSpec};
use conversation::time::{Position, Time};
use serde_json::json;

const ONE_SECOND: Position = Position::from_samples(48_000);
const END: LlmEvent = LlmEvent::End { prompt_tokens: 7, completion_tokens: 3 };

/// A call whose driver is the test.
struct Call {
    conversation: Conversation,
    now: f64,
    outputs: Vec<Output>,
    played: usize,
}

impl Call {
    fn new(change: impl FnOnce(&mut Spec)) -> Self {
        let settings = Settings {
            preemptive_generation: false,
            backchannels: false,
            ..Settings::product_defaults()
        };
        let mut spec = settings.to_spec().unwrap();
        change(&mut spec);
        let conversation = Conversation::new(spec);
        let mut call = Self { conversation, now: 0.0, outputs: Vec::new(), played: 0 };
        call.send(0.0, Input::Start);
        call
    }

    /// Sends an input `after` seconds.
    fn send(&mut self, after: f64, input: Input) {
        self.now += after;
        self.conversation.handle(input, Time::from_seconds(self.now));
        self.outputs.extend(core::iter::from_fn(|| self.conversation.poll()));
    }

    /// The user says something, and the model is asked.
    fn ask(&mut self) {
        let (text, trailing_interim) = ("Hello".into(), String::new());
        self.send(1.0, Input::Transcript { text, is_final: true, trailing_interim });
        self.send(1.0, Input::Tick);
    }

    fn llm(&mut self, event: LlmEvent) {
        let generation = self.llm_requests().last().expect("a request").generation;
        self.send(0.01, Input::Llm { generation, event });
    }

    /// The model writes these tokens.
    fn llm_texts(&mut self, texts: &[&str]) {
        texts.iter().for_each(|text| self.llm(LlmEvent::Text((*text).into())));
    }

    fn command(&mut self, command: Command) {
        self.send(0.01, Input::Command { id: CommandId(0), command });
    }

    /// Synthesizes and plays all segments.
    fn play(&mut self) {
        while let Some(request) = self.tts_requests().get(self.played) {
            let segment = request.segment;
            let tts = |event| Input::Tts { segment, event };
            let playout = |event| Input::Playout { segment, event };
            self.send(0.0, tts(TtsEvent::End { duration: ONE_SECOND }));
            self.send(0.0, playout(PlayoutEvent::Started));
            self.send(1.0, playout(PlayoutEvent::Finished(ONE_SECOND)));
            self.played += 1;
        }
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

    /// The text of each segment, its expression, and whether the avatar nods.
    fn segments(&self) -> Vec<(&str, Option<Expression>, bool)> {
        let requests = self.tts_requests().into_iter();
        requests.map(|request| (request.text.as_str(), request.expression, request.nod)).collect()
    }

    fn texts<'a>(&'a self, text: impl Fn(&'a Event) -> Option<&'a String>) -> Vec<&'a str> {
        let event = |output: &'a Output| match output {
            Output::Emit(envelope) => text(&envelope.event),
            _ => None,
        };
        self.outputs.iter().filter_map(event).map(String::as_str).collect()
    }

    fn llm_text(&self) -> String {
        self.texts(|event| if let Event::LlmText { text } = event { Some(text) } else { None })
            .concat()
    }

    fn heard_texts(&self) -> Vec<&str> {
        self.texts(|event| match event {
            Event::AgentStoppedSpeaking { text, .. } => Some(text),
            _ => None,
        })
    }
}

const CALM: Option<Expression> = Some(Expression::Calm);
const WARM: Option<Expression> = Some(Expression::Warm);
const GLAD: Option<Expression> = Some(Expression::Glad);

#[test]
fn directions_of_a_streamed_answer_go_with_their_segments_and_into_no_text() {
    let mut call = Call::new(|_| {});
    call.ask();
    call.llm_texts(&[
        "Well met. [wa",
        "rm",
        "] \"Ann\" is my name. ",
        "[",
        "glad",
        "] How",
        " nice!",
    ]);
    call.llm_texts(&[" That is it. ", "[nod]Yes, sure. [pause 1", ".5] [calm] Bye. [nod]"]);
    call.llm(END);
    let spoken = "Well met. \"Ann\" is my name. How nice! That is it. Yes, sure. Bye.";
    assert_eq!(call.llm_text().trim_end(), spoken);
    call.play();
    let segments = [
        ("Well met.", None, false),
        ("\"Ann\" is my name.", WARM, false),
        ("How nice!", GLAD, false),
        ("That is it.", GLAD, false),
        ("Yes, sure.", GLAD, true),
        ("Bye.", CALM, true),
    ];
    assert_eq!(call.segments(), segments);
    assert_eq!(call.heard_texts(), [spoken]);
    call.ask();
    let history = &call.llm_requests()[1].history;
    assert_eq!(history[1].text, spoken, "the model sees its words without directions");
    let all = format!("{:?}", call.outputs);
    for tag in ["[wa", "[glad", "[nod", "[pause", "[calm"] {
        assert!(!all.contains(tag), "{tag} in {all}");
    }
}

#[test]
fn what_begins_like_a_direction_and_ends_is_spoken() {
    let mut call = Call::new(|_| {});
    call.ask();
    call.llm_texts(&["Use a[0", "] and [wa"]);
    assert_eq!(call.llm_text(), "Use a[0] and ");
    call.llm(LlmEvent::Flush);
    assert_eq!(call.segments(), [("Use a[0] and [wa", None, false)]);
    call.llm_texts(&["s] or [calm"]);
    call.llm(END);
    assert_eq!(call.llm_text(), "Use a[0] and [was] or [calm");
    call.play();
    assert_eq!(call.segments()[1], ("s] or [calm", None, false));
}

#[test]
fn fixed_texts_have_directions_too() {
    let mut call = Call::new(|spec| {
        let greeting = SpokenMessage::new("[glad] Hello! [calm] I am Ann.");
        let settings = Settings { greeting: Some(greeting), ..Settings::product_defaults() };
        spec.greeting = settings.to_spec().unwrap().greeting;
        spec.tools = vec![ToolSpec { name: "bye".into(), ends_call: true, ..ToolSpec::default() }];
    });
    call.send(1.0, Input::Tick);
    call.play();
    let greeting = [("Hello!", GLAD, false), ("I am Ann.", CALM, false)];
    assert_eq!(call.segments(), greeting);
    call.ask();
    let (id, name, arguments) = ("1".into(), "bye".into(), json!({"farewell": "[nod] Bye."}));
    call.llm(LlmEvent::ToolCall { id, name, arguments });
    call.llm(END);
    call.play();
    assert_eq!(call.segments()[2], ("Bye.", None, true));
    assert_eq!(call.tts_requests()[2].source, SpeechSource::Farewell);
    assert_eq!(call.heard_texts(), ["Hello! I am Ann.", "Bye."]);
}

#[test]
fn the_expression_of_a_say_command_holds_up_to_the_first_tag() {
    let mut call = Call::new(|_| {});
    let say = |text: &str, expression| Command::Say {
        text: text.into(),
        interrupt: false,
        allow_interruptions: true,
        add_to_context: true,
        expression,
    };
    call.command(say("One is here. [nod] Two. [calm] Three is here. Four.", WARM));
    call.command(say("Five.", None));
    call.play();
    call.send(1.0, Input::Tick);
    call.play();
    let segments = [
        ("One is here.", WARM, false),
        ("Two.", WARM, true),
        ("Three is here.", CALM, false),
        ("Four.", CALM, false),
        ("Five.", None, false),
    ];
    assert_eq!(call.segments(), segments);
}

#[test]
fn an_answer_of_directions_alone_is_an_empty_one() {
    let mut call = Call::new(|spec| spec.fallback_llm = true);
    call.ask();
    call.llm_texts(&["[warm", "]", " [nod]"]);
    call.llm(END);
    assert_eq!(call.llm_text(), "");
    assert!(call.llm_requests()[1].use_fallback);
    call.llm_texts(&["Hello."]);
    call.llm(END);
    assert_eq!(call.segments(), [("Hello.", None, false)], "those of another model");
}

#[test]
fn a_direction_before_a_tool_call_delays_nothing() {
    let mut call = Call::new(|spec| {
        spec.tools = vec![ToolSpec { name: "clock".into(), ..ToolSpec::default() }];
    });
    call.ask();
    call.llm_texts(&["[warm]"]);
    let (id, name, arguments) = ("1".into(), "clock".into(), json!({}));
    call.llm(LlmEvent::ToolCall { id, name, arguments });
    call.llm(END);
    let running = call.outputs.iter().find_map(|output| match output {
        Output::RunTool { call, .. } => Some(*call),
        _ => None,
    });
    let result = Ok(json!("noon"));
    call.send(0.1, Input::ToolResult { call: running.expect("a tool runs"), result });
    assert_eq!(call.llm_requests().len(), 2, "the next generation is requested");
}

#[test]
fn the_fallback_voice_gets_the_same_directions() {
    let mut call = Call::new(|spec| spec.fallback_tts = true);
    call.ask();
    call.llm_texts(&["[warm] Hello [nod] there."]);
    call.llm(END);
    let segment = call.tts_requests()[0].segment;
    call.send(0.1, Input::Tts { segment, event: TtsEvent::Failed("broken".into()) });
    assert_eq!(call.segments(), [("Hello there.", WARM, true); 2]);
    assert!(call.tts_requests()[1].use_fallback);
}

#[test]
fn inputs_and_outputs_without_directions_are_as_in_older_traces() {
    let say = json!({"say": {"text": "Hi.", "interrupt": true, "allow_interruptions": true,
        "add_to_context": false}});
    let command: Command = serde_json::from_value(say.clone()).unwrap();
    assert_eq!(serde_json::to_value(&command).unwrap(), say);
    let mut call = Call::new(|_| {});
    call.command(command);
    let written = serde_json::to_value(call.tts_requests()[0]).unwrap();
    assert!(written.get("expression").is_none() && written.get("nod").is_none(), "{written}");
    call.command(Command::Interrupt);
    let text = "[glad] Hi. [nod]".into();
    let (interrupt, allow_interruptions, add_to_context) = (true, true, true);
    let expression = None;
    call.command(Command::Say { text, interrupt, allow_interruptions, add_to_context, expression });
    let written = serde_json::to_value(call.tts_requests()[1]).unwrap();
    assert_eq!((&written["expression"], &written["nod"]), (&json!("glad"), &json!(true)));
}
