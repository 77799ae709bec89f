//! The providers of a conversation: who served each turn, what they used, and their opinions about
//! the user's turn.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use conversation::conversation::Conversation;
use conversation::event::{Event, EventEnvelope, Stage};
use conversation::input::{
    Command, CommandId, Input, LlmEvent, PlayoutEvent, SegmentId, SpeechSegmentId, TtsEvent,
    TurnHint,
};
use conversation::output::Output;
use conversation::providers::{ProviderUsage, TurnProviders, UsageAmounts};
use conversation::settings::Settings;
use conversation::simulate::simulate_traced;
use conversation::spec::Spec;
use conversation::time::{Position, Time};
use conversation::view::ConversationView;
use serde_json::{Value, json};

/// A call whose driver is the test.
struct Harness {
    conversation: Conversation,
    outputs: Vec<Output>,
}

impl Harness {
    fn new() -> Self {
        let settings = Settings {
            echo_warmup: 0.0,
            preemptive_generation: false,
            ..Settings::product_defaults()
        };
        let spec = Spec { turn_model: true, ..settings.to_spec().unwrap() };
        let conversation = Conversation::new(spec);
        let mut call = Self { conversation, outputs: Vec::new() };
        call.send(0.0, Input::Start);
        call
    }

    fn send(&mut self, at: f64, input: Input) -> &mut Self {
        self.conversation.handle(input, Time::from_seconds(at));
        self.outputs.extend(core::iter::from_fn(|| self.conversation.poll()));
        self
    }

    fn transcript(&mut self, at: f64, text: &str) -> &mut Self {
        let (text, trailing_interim) = (text.to_owned(), String::new());
        self.send(at, Input::Transcript { text, is_final: true, trailing_interim })
    }

    fn llm(&mut self, at: f64, event: LlmEvent) -> &mut Self {
        let mut generations = self.outputs.iter().filter_map(|output| match output {
            Output::RequestLlm(request) => Some(request.generation),
            _ => None,
        });
        let generation = generations.next_back().unwrap();
        self.send(at, Input::Llm { generation, event })
    }

    fn tts(&mut self, at: f64, segment: u32, event: TtsEvent) -> &mut Self {
        self.send(at, Input::Tts { segment: SegmentId(segment), event })
    }

    fn playout(&mut self, at: f64, segment: u32, event: PlayoutEvent) -> &mut Self {
        self.send(at, Input::Playout { segment: SegmentId(segment), event })
    }

    fn events(&self) -> impl Iterator<Item = &EventEnvelope> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Emit(envelope) => Some(envelope),
            _ => None,
        })
    }

    fn view(&self) -> ConversationView {
        let mut view = ConversationView::default();
        self.events().for_each(|envelope| view.apply(envelope));
        view
    }

    fn commit_time(&self) -> Option<f64> {
        let committed = |e: &&EventEnvelope| matches!(e.event, Event::UtteranceCommitted { .. });
        self.events().find(committed).map(|e| e.at.as_seconds())
    }
}

fn seconds(seconds: f64) -> Position {
    Position::from_seconds(seconds)
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_turn_names_the_providers_that_served_it_in_their_order() {
    let mut call = Harness::new();
    call.send(0.1, Input::SttProvider("deepgram".into())).transcript(1.0, "What is");
    call.send(1.1, Input::SttProvider("builtin".into())).transcript(1.2, "the time?");
    call.send(2.0, Input::Tick);
    // The first model fails before it answers.
    call.llm(2.1, LlmEvent::Provider("anthropic".into()));
    call.llm(2.2, LlmEvent::Provider("openai".into()));
    call.llm(2.3, LlmEvent::Text("It is ten. It is late.".into()));
    call.llm(2.4, LlmEvent::End { prompt_tokens: 1, completion_tokens: 1 });
    call.tts(2.5, 0, TtsEvent::Provider("cartesia".into()));
    call.tts(2.6, 0, TtsEvent::FirstAudio);
    call.playout(2.6, 0, PlayoutEvent::Started);
    let served = |call: &Harness| call.view().turns[0].providers.clone();
    let mut expected = TurnProviders {
        stt: names(&["deepgram", "builtin"]),
        llm: names(&["openai"]),
        tts: names(&["cartesia"]),
    };
    assert_eq!(served(&call), expected);
    // Another voice goes on within the segment, and the first one is back for the next.
    call.tts(2.7, 0, TtsEvent::Provider("elevenlabs".into()));
    call.tts(2.8, 0, TtsEvent::End { duration: seconds(0.5) });
    call.tts(2.8, 1, TtsEvent::Provider("cartesia".into()));
    call.tts(2.9, 1, TtsEvent::End { duration: seconds(0.5) });
    call.playout(3.1, 0, PlayoutEvent::Finished(seconds(0.5)));
    call.playout(3.1, 1, PlayoutEvent::Started);
    assert_eq!(served(&call), expected, "the rest is told at the end");
    call.playout(3.6, 1, PlayoutEvent::Finished(seconds(0.5)));
    expected.tts = names(&["cartesia", "elevenlabs", "cartesia"]);
    assert_eq!(served(&call), expected);
    let turn = json!(call.view().turns[0]);
    assert_eq!(turn.as_object().unwrap().keys().next_back().unwrap(), "providers");
    assert_eq!(call.view().turns[0].llm_ttft, Some(0.7), "a provider is no token");
}

#[test]
fn use_is_added_up_and_accepted_after_the_end() {
    let usage = |kind, provider: &str, connected_seconds| {
        Input::ExternalEvent(Event::ProviderUsage(ProviderUsage {
            kind,
            provider: provider.into(),
            amounts: UsageAmounts { connected_seconds, requests: 1, ..UsageAmounts::default() },
        }))
    };
    let mut call = Harness::new();
    call.send(1.0, usage(Stage::Stt, "deepgram", 10.0));
    call.send(1.0, usage(Stage::Tts, "deepgram", 0.5));
    call.send(9.0, Input::Command { id: CommandId(0), command: Command::End });
    call.send(9.0, Input::ExternalEvent(Event::Warning { text: "Late.".into() }));
    call.send(9.0, usage(Stage::Stt, "deepgram", 2.25));
    let view = call.view();
    assert_eq!((view.duration(), view.warnings.len()), (0.0, 0));
    let expected = json!([
        {
            "kind": "stt", "provider": "deepgram", "connected_seconds": 12.25,
            "audio_seconds": 0.0, "characters": 0, "input_tokens": 0, "cached_tokens": 0,
            "output_tokens": 0, "requests": 2,
        },
        {
            "kind": "tts", "provider": "deepgram", "connected_seconds": 0.5,
            "audio_seconds": 0.0, "characters": 0, "input_tokens": 0, "cached_tokens": 0,
            "output_tokens": 0, "requests": 1,
        },
    ]);
    assert_eq!(view.usage_json(0.0)["providers"], expected);
    let last = call.events().last().unwrap();
    let written = json!({
        "what": "provider.usage", "kind": "stt", "provider": "deepgram",
        "connected_seconds": 2.25, "audio_seconds": 0.0, "characters": 0, "input_tokens": 0,
        "cached_tokens": 0, "output_tokens": 0, "requests": 1,
    });
    assert_eq!((json!(last.event), last.at), (written, Time::from_seconds(9.0)));
    let again: EventEnvelope = serde_json::from_value(json!(last)).unwrap();
    assert_eq!(again, *last);
}

/// Speech from 1.0 to 2.0 s, reported at 2.25 s, with a final transcript at 2.3 s, and what else
/// happens. Returns the time of the commit.
fn commit_with(inputs: &[(f64, Input)]) -> f64 {
    let mut call = Harness::new();
    let mut all = vec![
        (1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) }),
        (2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) }),
        (
            2.3,
            Input::Transcript {
                text: "Book a table.".into(),
                is_final: true,
                trailing_interim: String::new(),
            },
        ),
        (9.0, Input::Tick),
    ];
    all.extend(inputs.iter().cloned());
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, input) in all {
        call.send(at, input);
    }
    call.commit_time().unwrap()
}

#[test]
fn a_hint_replaces_the_turn_model_s_result_and_never_shortens_the_minimum() {
    let model = |at, probability| {
        (at, Input::TurnProbability { speech_segment: SpeechSegmentId(0), probability })
    };
    let hint = |at, hint| (at, Input::TurnHint(hint));
    let (min, max) = (2.4, 5.0);
    for (inputs, expected) in [
        (vec![], min),
        (vec![model(2.35, 0.0)], max),
        (vec![model(2.35, 0.0), hint(3.0, TurnHint::End)], 3.0),
        (vec![hint(1.9, TurnHint::End)], min),
        (vec![hint(1.9, TurnHint::End), model(2.35, 0.0)], min),
        (vec![hint(2.1, TurnHint::Resumed)], max),
        (vec![hint(2.1, TurnHint::Resumed), model(2.35, 1.0)], max),
        (vec![hint(2.1, TurnHint::End), hint(2.35, TurnHint::Resumed)], max),
        (vec![hint(2.1, TurnHint::Resumed), hint(2.2, TurnHint::End)], min),
        (vec![hint(0.5, TurnHint::Resumed)], min),
        (vec![hint(1.9, TurnHint::EagerEnd)], min),
    ] {
        let committed = commit_with(&inputs);
        assert!((committed - expected).abs() < 1e-9, "{inputs:?}: {committed}");
    }
}

/// The turn model is not asked about speech whose end the provider has reported.
#[test]
fn the_turn_model_is_asked_only_without_a_hint() {
    for (hints, asked) in [(&[][..], 1), (&[TurnHint::End][..], 0)] {
        let mut call = Harness::new();
        call.send(1.05, Input::SpeechStarted { onset: Time::from_seconds(1.0) });
        for hint in hints {
            call.send(1.9, Input::TurnHint(*hint));
        }
        call.send(2.25, Input::SpeechStopped { end: Time::from_seconds(2.0) });
        let is_question = |o: &&Output| matches!(o, Output::RequestTurnProbability(_));
        assert_eq!(call.outputs.iter().filter(is_question).count(), asked, "{hints:?}");
        assert_eq!(call.conversation.awaits_turn_probability(), asked == 1);
    }
}

#[test]
fn hints_are_in_the_trace() {
    let scenario = json!({
        "user": [{"from": 0.5, "to": 1.5, "text": "Hello there."}],
        "hints": [
            {"at": 1.6, "hint": "eager_end"}, {"at": 1.65, "hint": "resumed"},
            {"at": 1.7, "hint": "end"},
        ],
        "until": 5,
    });
    let (_, trace) = simulate_traced(scenario.to_string().as_bytes()).unwrap();
    let inputs = trace
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["input"].clone());
    let hints: Vec<Value> = inputs.filter(|input| input.get("TurnHint").is_some()).collect();
    let expected = ["eager_end", "resumed", "end"].map(|hint| json!({ "TurnHint": hint }));
    assert_eq!(hints, expected);
}

/// Providers bill text that is sent, so it is sent at most ten seconds ahead of playout.
#[test]
fn text_is_sent_at_most_ten_seconds_of_audio_ahead() {
    let requested =
        |call: &Harness| call.outputs.iter().filter(|o| matches!(o, Output::Synthesize(_))).count();
    let mut call = Harness::new();
    call.transcript(1.0, "Tell me a story.").send(2.0, Input::Tick);
    // 12 s each, estimated from the text.
    let sentence = format!("{}. ", ["word "; 36].concat().trim());
    call.llm(2.1, LlmEvent::Text(format!("Gladly. {}", [sentence.as_str(); 4].concat())));
    call.llm(2.2, LlmEvent::End { prompt_tokens: 1, completion_tokens: 1 });
    assert_eq!(requested(&call), 2, "half a second, and twelve");
    for segment in 0..2 {
        call.tts(2.3, segment, TtsEvent::FirstAudio);
    }
    call.tts(2.4, 0, TtsEvent::End { duration: seconds(0.5) });
    call.playout(2.4, 0, PlayoutEvent::Started);
    call.playout(2.9, 0, PlayoutEvent::Finished(seconds(0.5)));
    call.playout(2.9, 1, PlayoutEvent::Started);
    call.playout(4.8, 1, PlayoutEvent::Progress(seconds(1.9)));
    // Time alone changes nothing: what counts is what playout reports.
    call.send(6.0, Input::Tick);
    assert_eq!(requested(&call), 2);
    call.playout(6.1, 1, PlayoutEvent::Progress(seconds(2.1)));
    assert_eq!(requested(&call), 3);
    // The voice is slower than estimated.
    call.tts(6.2, 1, TtsEvent::End { duration: seconds(15.0) });
    call.tts(6.2, 2, TtsEvent::FirstAudio);
    call.playout(13.0, 1, PlayoutEvent::Progress(seconds(10.0)));
    assert_eq!(requested(&call), 3, "5 s and 12 s are ahead");
    call.tts(13.1, 2, TtsEvent::End { duration: seconds(4.9) });
    assert_eq!(requested(&call), 4, "the voice is faster than estimated");
}
