//! A traced call replays: every output of the replay equals that of the live call.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints the size of a trace

mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::conversation::Conversation;
use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::input::{Command, Input};
use conversation::output::Output;
use conversation::replay::{Replay, Verdict};
use conversation::settings::AgentTurnConfig;
use conversation::spec::{Spec, ToolSpec};
use conversation::time::Time;
use conversation::trace;
use engine::channel;
use engine::trace::TraceMessage;
use engine_api::{CallConfig, Tool, ToolBackend};
use models::{Handle, Sink, llm};
use serde_json::{Value, json};
use support::{Harness, ScriptedTurnModel, VirtualTime, call_config_of, user_audio};

const SECOND: Duration = Duration::from_secs(1);
const SECRET: &str = "correct-horse-battery";

/// An input with its time, and its outputs.
type Step = (Time, Input, Vec<Output>);

/// Inputs and outputs of one call's state machine as the call saw them, its events, and the trace
/// file written from them.
struct RecordedCall {
    steps: Vec<Step>,
    events: Vec<EventEnvelope>,
    trace: String,
}

/// Runs calls on a traced media thread; `scenario` acts on them.
fn record_calls(calls: u128, scenario: impl FnOnce(&mut Harness)) -> Vec<RecordedCall> {
    let (trace, lines) = channel::open(&channel::TRACE, None);
    let mut harness = Harness::with_trace(trace);
    scenario(&mut harness);
    let folder = temp_folder();
    let (disk, thread) = engine::trace::start(folder.clone()).unwrap();
    let mut steps: Vec<(ConversationId, Step)> = Vec::new();
    for line in lines.try_iter() {
        if let TraceMessage::Step(id, at, step) = &line {
            steps.push((*id, (*at, step.0.clone(), step.1.clone())));
        }
        assert!(disk.send(line).is_ok());
    }
    drop(disk);
    thread.join().unwrap();
    let recorded = (1..=calls)
        .map(|id| RecordedCall {
            steps: steps
                .iter()
                .filter(|(of, _)| of.0 == id)
                .map(|(_, step)| step.clone())
                .collect(),
            events: harness.recorder.events_of(id),
            trace: fs::read_to_string(folder.join(trace::file_name(ConversationId(id)))).unwrap(),
        })
        .collect();
    fs::remove_dir_all(folder).unwrap();
    recorded
}

fn temp_folder() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::env::temp_dir().join(format!(
        "visavis-replay-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Relaxed)
    ))
}

/// Checks the replay twice: by the verdict of [`Replay`], and with a state machine that gets only
/// the inputs of the file.
fn assert_replays(call: &RecordedCall) -> String {
    let mut replay = Replay::new(true);
    let mut printed = String::new();
    for line in call.trace.lines() {
        printed += &replay.read_line(line.as_bytes()).unwrap();
    }
    let (summary, verdict) = replay.finish().unwrap();
    printed += &summary;
    let outputs = call.steps.iter().map(|(_, _, out)| out.len() as u64).sum();
    assert_eq!(
        verdict,
        Verdict::Identical { inputs: call.steps.len() as u64, outputs },
        "{verdict}"
    );

    let mut lines = call.trace.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let spec: Spec = serde_json::from_value(lines.next().unwrap()["spec"].take()).unwrap();
    let mut conversation = Conversation::new(spec);
    for (mut line, (at, input, out)) in lines.zip(&call.steps) {
        let read: Input = serde_json::from_value(line["input"].take()).unwrap();
        assert_eq!((line["at"].as_u64(), &read), (Some(at.as_micros()), input));
        conversation.handle(read, *at);
        let replayed: Vec<Output> = std::iter::from_fn(|| conversation.poll()).collect();
        assert_eq!(replayed, *out, "at {at}, after {input:?}");
    }

    let emitted = call.steps.iter().flat_map(|(_, _, out)| out).filter_map(|output| match output {
        Output::Emit(event) => Some(event),
        _ => None,
    });
    assert!(emitted.eq(&call.events), "the event sink has the events of the trace");
    printed
}

/// Requests a tool for the first question, fails at the second, then answers.
struct FlakyLlm {
    time: VirtualTime,
    requests: Mutex<u32>,
}

impl llm::Llm for FlakyLlm {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let mut asked = self.requests.lock().unwrap();
        *asked += 1;
        let end = llm::Event::End { prompt_tokens: 3, cached_tokens: 0, completion_tokens: 4 };
        let events = match *asked {
            1 => {
                let arguments = json!({"far": 1e23, "near": 0.1, "text": "\u{2028}日本"});
                vec![llm::Event::ToolCall { id: "c1".into(), name: "map".into(), arguments }, end]
            }
            3 => {
                vec![llm::Event::Failed(models::Error::new(models::ErrorKind::Failed, "it broke"))]
            }
            _ => {
                let words =
                    "This is one long answer that goes on and on without any pause until it ends.";
                words
                    .split_inclusive(' ')
                    .map(|word| llm::Event::Text(word.into()))
                    .chain([end])
                    .collect()
            }
        };
        for (n, event) in events.into_iter().enumerate() {
            let sink = sink.clone();
            self.time
                .schedule_after(Duration::from_millis(5 + 2 * n as u64), move || sink.send(event));
        }
        Handle::noop()
    }
}

fn traced_call(mut call: CallConfig) -> CallConfig {
    call.record_trace = true;
    call.spec.echo_warmup = Duration::ZERO;
    call
}

#[test]
fn a_live_call_replays_exactly_and_its_trace_contains_no_secret() {
    let mut agent = AgentTurnConfig {
        greeting: Some("Hello and welcome to the museum."),
        ..AgentTurnConfig::default()
    };
    agent.exit_message = Some("Goodbye.".into());
    agent.tools = vec![ToolSpec {
        name: "map".into(),
        on_start: Some("One moment.".into()),
        ..ToolSpec::default()
    }];
    let spec = agent.to_spec().unwrap();
    let mut call = traced_call(call_config_of(1, agent));
    call.spec.greeting = spec.greeting;
    call.llm.token = Some(SECRET.into());
    call.llm.url = Some(format!("https://models.example/{SECRET}/v1"));
    call.system_prompt = SECRET.into();
    let tool = |name: &str, run| Tool {
        name: name.into(),
        description: SECRET.into(),
        parameters: Value::Null,
        backend: run,
    };
    let headers = vec![("authorization".into(), SECRET.into())];
    let api = ToolBackend::Http {
        method: "GET".into(),
        url: format!("https://tool.example/?key={SECRET}"),
        headers,
    };
    call.tools = vec![tool("map", ToolBackend::Client), tool("weather", api)];

    let recorded = record_calls(1, |harness| {
        let moody = Arc::new(FlakyLlm { time: harness.time.clone(), requests: Mutex::new(0) });
        let client = harness.start_call_with_llm(
            call.clone(),
            &["Where is it?", "", "Stop it.", "And now?", "okay"],
            moody,
        );
        // A question during the greeting, a cough, a real interruption, a question, an "okay".
        client.send_audio(user_audio(&[
            (2.5, 1.0),
            (22.5, 0.9),
            (4.0, 1.2),
            (6.0, 1.0),
            (2.2, 0.3),
        ]));
        harness.run_for(45 * SECOND);
        harness.command(1, Command::Context { text: "It rains.".into(), overwrite: true });
        harness.command(1, Command::Respond { text: "What do you mean?".into() });
        harness.run_for(2 * SECOND);
        let say = |interrupt| Command::Say {
            text: "Nobody stops this.".into(),
            interrupt,
            allow_interruptions: false,
            add_to_context: false,
            expression: None,
        };
        harness.command(1, say(true));
        harness.run_for(SECOND / 2);
        harness.command(1, Command::Interrupt);
        harness.command(1, say(false));
        let newer = harness.reconnect(call.clone());
        harness.run_for(8 * SECOND);
        newer.send_event(engine::transport::TransportEvent::Closed);
        harness.run_for(10 * SECOND);
    });
    let printed = assert_replays(&recorded[0]);
    let has = |name: &str| {
        assert!(printed.contains(&format!("\"what\":\"{name}\"")), "no {name} in\n{printed}")
    };
    [
        "agent.interrupted",
        "playout.held",
        "playout.resumed",
        "tool_call",
        "error",
        "participant_left",
        "ended",
        "explain",
        "summary",
    ]
    .into_iter()
    .for_each(has);
    let text = &recorded[0].trace;
    assert!(
        !text.contains(SECRET),
        "{}",
        text.lines().find(|line| line.contains(SECRET)).unwrap_or_default()
    );
    eprintln!(
        "{} bytes for {} inputs of a call of {}",
        text.len(),
        recorded[0].steps.len(),
        recorded[0].steps.last().unwrap().0
    );
}

/// SplitMix64.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn seconds(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(1_000) as f64 / 1_000.0
    }
}

#[test]
fn calls_of_every_kind_replay_side_by_side() {
    const CALLS: u128 = 24;
    let recorded = record_calls(CALLS, |harness| {
        let mut random = SplitMix(7);
        let probabilities: Vec<_> = (0..600)
            .map(|_| {
                (random.below(5) > 0).then(|| {
                    (Duration::from_millis(random.below(400)), random.seconds(0.0, 1.0) as f32)
                })
            })
            .collect();
        harness.turn_model =
            Some(Arc::new(ScriptedTurnModel::new(harness.time.clone(), &probabilities)));
        let mut client = Vec::new();
        for id in 1..=CALLS {
            let handling = ["proactive", "balanced", "deliberate"][random.below(3) as usize];
            let ability = ["low", "medium", "high"][random.below(3) as usize];
            let agent = AgentTurnConfig {
                turn_handling: Some(handling),
                interruptability: Some(ability),
                idle_timeout: Some(4.0),
                idle_messages: vec!["Are you there?".into()],
                turn_model: random.below(2) == 0,
                ..AgentTurnConfig::default()
            };
            let words = [
                "What is new?",
                "okay",
                "",
                "Stop.",
                "And what about the garden behind the house?",
            ];
            let script: Vec<&'static str> =
                (0..12).map(|_| words[random.below(5) as usize]).collect();
            let speech: Vec<(f64, f64)> =
                (0..12).map(|_| (random.seconds(0.1, 4.0), random.seconds(0.02, 2.0))).collect();
            let call = harness.start_call(
                traced_call(call_config_of(id, agent)),
                &script,
                "Nothing at all, to be honest, but thanks.",
            );
            call.send_audio(user_audio(&speech));
            client.push(call);
        }
        for _ in 0..30 {
            harness.run_for(SECOND);
            let command = match random.below(5) {
                0 => Command::Interrupt,
                1 => Command::Respond { text: "Well?".into() },
                2 => Command::Context { text: "It rains.".into(), overwrite: false },
                3 => Command::Say {
                    text: "One more thing.".into(),
                    interrupt: false,
                    allow_interruptions: true,
                    add_to_context: true,
                    expression: None,
                },
                _ => continue,
            };
            harness.command(u128::from(random.below(CALLS as u64)) + 1, command);
        }
        for id in 1..=CALLS {
            harness.command(id, if id % 2 == 0 { Command::End } else { Command::Leave });
        }
        harness.run_for(3 * SECOND);
    });
    let mut turns = 0;
    let judged = |call: &RecordedCall| {
        call.steps.iter().any(|(_, input, _)| matches!(input, Input::TurnProbability { .. }))
    };
    assert!(recorded.iter().any(judged), "the turn model was asked");
    for call in &recorded {
        assert_replays(call);
        turns += call
            .events
            .iter()
            .filter(|f| matches!(f.event, Event::UtteranceCommitted { .. }))
            .count();
    }
    assert!(turns > 50, "{turns} turns in {CALLS} calls");
}

#[test]
fn a_call_that_does_not_ask_for_it_leaves_no_trace() {
    let (tap, lines) = channel::open(&channel::TRACE, None);
    let mut harness = Harness::with_trace(tap);
    let client = harness.start_call(support::call_config(1), &["What is new?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(4 * SECOND);
    assert_eq!(lines.try_iter().count(), 0);
}
