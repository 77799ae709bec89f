//! Any input in any order: no panic, events without a gap, every command answered, and nothing but
//! command results after the end.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use core::time::Duration;

use conversation::conversation::Conversation;
use conversation::direction::Expression;
use conversation::event::{EndReason, Event, Stage};
use conversation::input::{
    Command, CommandId, Epoch, GenerationId, Input, LlmEvent, PlayoutEvent, SegmentId,
    SpeechSegmentId, ToolCallId, TtsEvent,
};
use conversation::output::Output;
use conversation::settings::{Settings, SpokenMessage};
use conversation::spec::{Phrasing, Spec, ToolSpec};
use conversation::time::{Position, Time};
use serde_json::json;

/// xorshift64*: sufficient for shuffling, and the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn random_id(&mut self) -> u32 {
        if self.one_in(40) { u32::MAX } else { self.below(12) as u32 }
    }

    fn random_time(&mut self, now: u64) -> Time {
        Time::from_micros(if self.one_in(50) {
            u64::MAX
        } else {
            (now + 1_000_000).saturating_sub(self.below(3_000_000))
        })
    }

    fn random_text(&mut self) -> String {
        const TEXTS: [&str; 12] = [
            "",
            " ",
            "yeah",
            "Stop!",
            "...",
            "Tell me a story, please.",
            "你好。世界",
            "a\u{301}e\u{0} Dr. 3.5\n",
            "Well, I think so. Yes.",
            "[warm] Hello. [nod",
            "] [pause",
            " 1] Good [glad] bye [x",
        ];
        TEXTS[self.below(12) as usize].to_owned()
    }

    fn random_position(&mut self) -> Position {
        Position::from_samples(if self.one_in(20) { u64::MAX } else { self.below(200_000) })
    }

    fn random_input(&mut self, now: u64) -> Input {
        let generation =
            GenerationId { epoch: Epoch(self.random_id()), index: self.below(3) as u32 };
        let segment = SegmentId(self.random_id());
        match self.below(16) {
            0 if self.one_in(2) => Input::FinalTranscriptPending,
            0 => Input::Tick,
            1 => Input::SpeechStarted { onset: self.random_time(now) },
            2 => Input::SpeechContinued { until: self.random_time(now) },
            3 => Input::SpeechStopped { end: self.random_time(now) },
            4 => Input::Transcript {
                text: self.random_text(),
                is_final: self.one_in(2),
                trailing_interim: if self.one_in(4) { self.random_text() } else { String::new() },
            },
            5 => Input::TurnProbability {
                speech_segment: SpeechSegmentId(self.random_id()),
                probability: [f32::NAN, f32::INFINITY, -1.0, 0.2, 0.9][self.below(5) as usize],
            },
            6..=8 => Input::Llm {
                generation,
                event: match self.below(7) {
                    0 => LlmEvent::Started,
                    1 | 2 => LlmEvent::Text(self.random_text()),
                    3 => LlmEvent::Flush,
                    4 => LlmEvent::ToolCall {
                        id: self.random_text(),
                        name: ["t", "u"][self.below(2) as usize].into(),
                        arguments: json!({}),
                    },
                    5 if self.one_in(4) => LlmEvent::Guardrail,
                    6 if self.one_in(4) => LlmEvent::Failed("x".into()),
                    _ => LlmEvent::End { prompt_tokens: u32::MAX, completion_tokens: 0 },
                },
            },
            9 | 10 => Input::Tts {
                segment,
                event: match self.below(5) {
                    0 => TtsEvent::FirstAudio,
                    1 => TtsEvent::WordTimestamps(vec![
                        (self.random_text(), self.random_position()),
                        (self.random_text(), self.random_position()),
                    ]),
                    2 if self.one_in(3) => TtsEvent::Failed("x".into()),
                    _ => TtsEvent::End { duration: self.random_position() },
                },
            },
            11 | 12 => Input::Playout {
                segment,
                event: match self.below(4) {
                    0 => PlayoutEvent::Started,
                    1 => PlayoutEvent::Progress(self.random_position()),
                    2 => PlayoutEvent::Stalled(self.random_position()),
                    _ => PlayoutEvent::Finished(self.random_position()),
                },
            },
            13 => Input::ToolResult {
                call: ToolCallId(self.random_id()),
                result: if self.one_in(2) { Ok(json!([1])) } else { Err("x".into()) },
            },
            14 => match self.below(7) {
                6 => Input::ToolsAdded(vec!["t".into(), "u".into()]),
                0 => Input::GuardrailTriggered { response: self.random_text() },
                1 => Input::StageFailed {
                    stage: [Stage::Llm, Stage::Stt, Stage::Tts][self.below(3) as usize],
                    reason: "x".into(),
                },
                2 => Input::StageRecovered { stage: Stage::Stt },
                3 if self.one_in(2) => {
                    Input::ExternalEvent(Event::RecordingEnded { is_discarded: self.one_in(2) })
                }
                3 => Input::ExternalEvent(Event::Warning { text: "x".into() }),
                _ => Input::Start,
            },
            _ => {
                let command = match self.below(24) {
                    0..=4 => Command::Interrupt,
                    5..=12 => Command::Say {
                        text: self.random_text(),
                        interrupt: self.one_in(2),
                        allow_interruptions: self.one_in(2),
                        add_to_context: self.one_in(2),
                        expression: self.one_in(2).then_some(Expression::Glad),
                    },
                    13..=18 => Command::Respond { text: self.random_text() },
                    19 | 20 => {
                        Command::Context { text: self.random_text(), overwrite: self.one_in(2) }
                    }
                    21 => Command::VisitorContext {
                        text: self.random_text(),
                        overwrite: self.one_in(2),
                    },
                    22 if self.one_in(3) => Command::Stop {
                        reason: EndReason::EndedByApi,
                        exit_message: self.one_in(2),
                    },
                    23 if self.one_in(6) => Command::End,
                    _ => Command::Interrupt,
                };
                Input::Command { id: CommandId(self.random_id()), command }
            }
        }
    }
}

fn random_spec(random: &mut Random) -> Spec {
    let mut settings =
        if random.one_in(2) { Settings::product_defaults() } else { Settings::scenario_defaults() };
    let mut maybe = |n: u64| random.one_in(n);
    settings.allow_interruptions = !maybe(4);
    settings.backchannels = maybe(2);
    settings.preemptive_tts = maybe(3);
    settings.min_interruption_words = if maybe(3) { 2 } else { 0 };
    settings.false_interruption_timeout = if maybe(3) { None } else { Some(0.5) };
    settings.idle_timeout = if maybe(2) { Some(2.0) } else { None };
    settings.idle_end_after = if maybe(2) { None } else { Some(5) };
    settings.idle_messages =
        if maybe(2) { vec![SpokenMessage::new("Still there?")] } else { Vec::new() };
    settings.greeting =
        if maybe(2) { Some(SpokenMessage::new("Hello, I am Ann. How are you?")) } else { None };
    settings.recording_message =
        if maybe(2) { Some(SpokenMessage::new("This call is recorded.")) } else { None };
    settings.max_call_duration = if maybe(2) { Some(40.0) } else { None };
    settings.exit_message = if maybe(2) { Some(SpokenMessage::new("Bye.")) } else { None };
    settings.warning_message = if maybe(2) { Some(SpokenMessage::new("Soon over.")) } else { None };
    settings.error_message = if maybe(2) { Some(SpokenMessage::new("Sorry.")) } else { None };
    settings.stop_words = maybe(2);
    settings.min_consecutive_speech_delay = if maybe(4) { 0.3 } else { 0.0 };
    let text = |say: &str| Some(say.to_owned());
    let tool = ToolSpec {
        name: "t".into(),
        on_start: text("Starting."),
        on_delay: text("It takes a while."),
        delay: Duration::from_millis(500),
        on_success: text("There."),
        on_error: text("Oh."),
        ..ToolSpec::default()
    };
    Spec {
        phrasing: if maybe(3) { Phrasing::Flushed } else { Phrasing::Stream },
        fallback_llm: maybe(2),
        fallback_tts: maybe(2),
        turn_model: maybe(2),
        tools: vec![tool],
        ..settings.to_spec().unwrap()
    }
}

#[test]
fn any_input_in_any_order_is_handled_without_a_panic() {
    for seed in 1..=600 {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15) | 1);
        let mut conversation = Conversation::new(random_spec(&mut random));
        conversation.set_explain(seed % 2 == 0);
        let (mut now, mut seq, mut commands, mut answered, mut ended) = (0, 0, 0, 0, false);
        for _ in 0..600 {
            now += if random.one_in(30) { 2_000_000 } else { random.below(150_000) };
            // Sometimes the clock runs backwards.
            let at = if random.one_in(50) { now / 2 } else { now };
            let input = random.random_input(now);
            commands += u32::from(matches!(input, Input::Command { .. }));
            let over = ended;
            conversation.handle(input, Time::from_micros(at));
            while let Some(output) = conversation.poll() {
                match output {
                    Output::Emit(envelope) => {
                        assert_eq!(envelope.seq, seq, "seed {seed}");
                        assert!(!over, "seed {seed}: {envelope:?} after the end");
                        seq += 1;
                    }
                    Output::CommandResult { .. } => answered += 1,
                    Output::End(_) => ended = true,
                    _ => assert!(!over, "seed {seed}: {output:?} after the end"),
                }
            }
            if let Some((deadline, reason)) = conversation.poll_timeout() {
                assert!(
                    deadline > Time::from_micros(at),
                    "seed {seed}: {reason:?} at {deadline} is not in the future"
                );
            }
        }
        assert_eq!(commands, answered, "seed {seed}");
    }
}
