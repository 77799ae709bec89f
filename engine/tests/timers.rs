//! The timers of a whole call, in virtual time, with scripted models. Each timer fires once, at its
//! time, and the call continues or ends as its settings require.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::event::{EndReason, Event, HistoryItem, Role, Stage};
use conversation::input::Command;
use conversation::output::{CommandOutcome, Rejection};
use conversation::settings::{AgentTurnConfig, DEFAULT_ERROR_MESSAGE};
use conversation::spec::{Greeting, ToolSpec};
use engine::messages::Message;
use engine::transport::TransportEvent;
use engine_api::{
    BoxFuture, CallConfig, CommandError, RemoteTool, RemoteToolHandle, Tool, ToolBackend,
    ToolServers,
};
use models::{Handle, Sink, llm};
use serde_json::{Value, json};
use support::{
    Harness, ReceivedOutput, VirtualTime, WORD_DURATION, call_config, call_config_of, user_audio,
};
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);
/// Maximum time in seconds from a TTS request to its first sample: the latency of the TTS, the
/// frame of 20 ms that was already sent, and a margin.
const VOICE_DELAY: f64 = 0.016 + 0.020 + 0.010;
/// Interval of the thread's ticks in seconds.
const TICK_SECONDS: f64 = 0.010;
const LONG_ANSWER: &str =
    "This is one long answer that goes on and on and on without any pause until it ends.";

/// Answers the last item of the history by its script: each event follows the previous one after
/// the given delay. A script without an end event is a stall.
struct TimedLlm {
    time: VirtualTime,
    script: fn(&HistoryItem) -> Vec<(Duration, llm::Event)>,
}

impl TimedLlm {
    fn new(
        time: &VirtualTime,
        script: fn(&HistoryItem) -> Vec<(Duration, llm::Event)>,
    ) -> Arc<Self> {
        Arc::new(Self { time: time.clone(), script })
    }
}

impl llm::Llm for TimedLlm {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let mut at = Duration::ZERO;
        for (pause, event) in (self.script)(request.history.last().expect("something was said")) {
            at += pause;
            let sink = sink.clone();
            self.time.schedule_after(at, move || sink.send(event));
        }
        Handle::noop()
    }
}

/// The usual delay of a model.
fn after_5_ms(event: llm::Event) -> (Duration, llm::Event) {
    (Duration::from_millis(5), event)
}

fn text_event(words: &str) -> (Duration, llm::Event) {
    after_5_ms(llm::Event::Text(words.into()))
}

fn end_event() -> (Duration, llm::Event) {
    after_5_ms(llm::Event::End { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 1 })
}

/// The user types; sent as a command.
fn type_text(harness: &mut Harness, words: &str) {
    harness.command(1, Command::Respond { text: words.into() });
}

/// The user types in a client. The client's message interrupts the agent first.
fn client_text_event(words: &str) -> TransportEvent {
    let message =
        json!({"label": "rtvi-ai", "type": "send-text", "id": "typed", "data": {"content": words}});
    TransportEvent::Text(message.to_string())
}

/// Sends a command; returns the channel of its answer.
fn send_command(
    harness: &Harness,
    command: Command,
) -> oneshot::Receiver<Result<CommandOutcome, CommandError>> {
    let (reply, answer) = oneshot::channel();
    let conversation = call_config(1).id;
    assert!(
        harness
            .inbox
            .requests
            .send(Message::Command { conversation, command, reply: Some(reply) })
            .is_ok()
    );
    answer
}

/// A text that was played, with start and end in seconds of the call.
#[derive(Debug)]
struct SpokenText {
    text: String,
    start: f64,
    end: f64,
}

fn spoken_texts(harness: &Harness) -> Vec<SpokenText> {
    let (mut from, mut spoken) = (0.0, Vec::new());
    for event in harness.recorder.events_of(1) {
        match event.event {
            Event::AgentStartedSpeaking { .. } => from = event.at.as_seconds(),
            Event::AgentStoppedSpeaking { text, .. } => {
                spoken.push(SpokenText { text, start: from, end: event.at.as_seconds() });
            }
            _ => {}
        }
    }
    spoken
}

fn texts_of(spoken: &[SpokenText]) -> Vec<&str> {
    spoken.iter().map(|spoken| spoken.text.as_str()).collect()
}

/// Times of all events that match, in seconds of the call.
fn event_times(harness: &Harness, wanted: impl Fn(&Event) -> bool) -> Vec<f64> {
    harness
        .recorder
        .events_of(1)
        .iter()
        .filter(|f| wanted(&f.event))
        .map(|f| f.at.as_seconds())
        .collect()
}

/// Time and reason of the call's end.
fn end_of_call(harness: &Harness) -> Option<(f64, EndReason)> {
    let events = harness.recorder.events_of(1);
    let found = events.iter().find_map(|f| match f.event {
        Event::Ended { reason } => Some((f.at.as_seconds(), reason)),
        _ => None,
    });
    assert_eq!(
        found.is_some(),
        harness.media_thread.call_count() == 0,
        "a call that has ended has left its thread"
    );
    found
}

/// Never early, and late by at most `tolerance` seconds.
#[track_caller]
fn assert_due(what: &str, measured: f64, expected: f64, tolerance: f64) {
    assert!(
        (expected - 1e-5..=expected + tolerance + 1e-5).contains(&measured),
        "{what}: at {measured:.6}, due at {expected:.6}"
    );
}

/// Asserts the duration of `count` words, including the frame that carries the last of them.
#[track_caller]
fn assert_full_length(spoken: &SpokenText, count: u32) {
    let length = f64::from(count) * WORD_DURATION.as_secs_f64();
    assert!(
        (spoken.end - spoken.start - length).abs() < 0.03,
        "{count} words take {length}: {spoken:?}"
    );
}

/// A tool of a server that never answers.
struct SilentToolServer;

impl RemoteTool for SilentToolServer {
    fn call(&self, _: Value) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(std::future::pending())
    }
}

impl ToolServers for SilentToolServer {
    fn list_tools(
        &self,
        tell: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(tell);
        })
    }
}

fn call_with_tool(run: ToolBackend) -> CallConfig {
    let mut call = call_config(1);
    call.spec.tools.push(ToolSpec {
        name: "tickets_left".into(),
        on_start: Some("Let me look.".into()),
        on_delay: Some("It takes a little longer.".into()),
        delay: 3 * SECOND,
        on_success: Some("I have found it.".into()),
        on_error: Some("That did not work.".into()),
        ..ToolSpec::default()
    });
    call.tools.push(Tool {
        name: "tickets_left".into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        backend: run,
    });
    call
}

/// Calls the tool for a question about tickets, then answers with its result.
fn ticket_script(last: &HistoryItem) -> Vec<(Duration, llm::Event)> {
    match last.role {
        Role::Tool => vec![text_event("Nobody can tell."), end_event()],
        _ if last.text.contains("tickets") => {
            let (id, name) = ("call_1".into(), "tickets_left".into());
            vec![after_5_ms(llm::Event::ToolCall { id, name, arguments: json!({}) }), end_event()]
        }
        _ => vec![text_event("I am still here."), end_event()],
    }
}

#[test]
fn a_tool_that_never_answers_is_excused_after_its_delay_and_given_up_after_twenty_seconds() {
    for run in
        [ToolBackend::Client, ToolBackend::Remote(RemoteToolHandle(Arc::new(SilentToolServer)))]
    {
        let in_client = run == ToolBackend::Client;
        let mut harness = Harness::new();
        let llm = TimedLlm::new(&harness.time, ticket_script);
        let client = harness.start_call_with_llm(call_with_tool(run), &[], llm);
        harness.run_for(SECOND);
        type_text(&mut harness, "How many tickets are left?");
        harness.run_for(25 * SECOND);
        let started = event_times(&harness, |e| matches!(e, Event::ToolStarted { .. }));
        let [started] = started[..] else { panic!("it is called once: {started:?}") };
        let said_so_far = spoken_texts(&harness);
        assert_eq!(
            texts_of(&said_so_far),
            ["Let me look.", "It takes a little longer.", "That did not work.", "Nobody can tell."]
        );
        assert_due("on_start", said_so_far[0].start, started, VOICE_DELAY);
        assert_due("on_delay", said_so_far[1].start, started + 3.0, VOICE_DELAY);
        assert_due("on_error", said_so_far[2].start, started + 20.0, TICK_SECONDS + VOICE_DELAY);
        let result = |e: &Event| matches!(e, Event::ToolCall { result, .. } if result == "timeout");
        let failed = event_times(&harness, result);
        assert_eq!(failed.len(), 1, "{:?}", harness.recorder.event_names(1));
        assert_due("the time-out", failed[0], started + 20.0, TICK_SECONDS);

        // A result after the timeout finds no pending tool call.
        if in_client {
            let data = json!({
                "function_name": "tickets_left",
                "tool_call_id": "call_1",
                "result": {"free": 3},
            });
            let late = json!({
                "label": "rtvi-ai",
                "type": "llm-function-call-result",
                "id": "late",
                "data": data,
            });
            client.send_event(TransportEvent::Text(late.to_string()));
            harness.run_for(SECOND);
            let mut output = ReceivedOutput::new(harness.start);
            output.collect(&client);
            let received =
                |what: &str| output.texts.iter().filter(|text| text.contains(what)).count();
            assert_eq!(received("llm-function-call-in-progress"), 1, "the client was asked");
            assert_eq!(received("The tool call is not pending"), 1, "{:?}", output.texts);
        }
        type_text(&mut harness, "Are you still here?");
        harness.run_for(3 * SECOND);
        assert_eq!(texts_of(&spoken_texts(&harness))[4..], ["I am still here."]);
        assert_eq!(end_of_call(&harness), None);
    }
}

#[test]
fn a_server_of_tools_that_stays_silent_delays_no_greeting_and_no_answer() {
    let mut started = Vec::new();
    for servers in [None, Some(Arc::new(SilentToolServer) as Arc<dyn ToolServers>)] {
        let mut harness = Harness::new();
        let mut call = CallConfig { tool_servers: servers, ..call_config(1) };
        call.spec.greeting =
            Some(Greeting { text: "Welcome to the museum.".into(), delay: Duration::ZERO });
        let client = harness.start_call(call, &["What is new?"], "Nothing at all.");
        client.send_audio(user_audio(&[(2.5, 1.0)]));
        harness.run_for(6 * SECOND);
        let spoken = spoken_texts(&harness);
        assert_eq!(texts_of(&spoken), ["Welcome to the museum.", "Nothing at all."]);
        started.push([spoken[0].start, spoken[1].start]);
    }
    assert_eq!(started[0], started[1]);
}

/// A server with a tool that can be closed, and with a listing that does not end. The server, the
/// listing and the tool each hold a clone of `alive`, so that a test can count them.
struct LongToolServer {
    open: Arc<AtomicBool>,
    alive: Arc<()>,
}

struct ClosableTool(LongToolServer);

impl RemoteTool for ClosableTool {
    fn call(&self, _: Value) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(std::future::pending())
    }

    fn is_open(&self) -> bool {
        self.0.open.load(Relaxed)
    }
}

impl ToolServers for LongToolServer {
    fn list_tools(
        &self,
        tell: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        let (open, held) = (Arc::clone(&self.open), Arc::clone(&self.alive));
        Box::pin(async move {
            let run = ToolBackend::Remote(RemoteToolHandle(Arc::new(ClosableTool(Self {
                open,
                alive: Arc::clone(&held),
            }))));
            let parameters = json!({"type": "object"});
            tell(Ok(vec![Tool {
                name: "look".into(),
                description: String::new(),
                parameters,
                backend: run,
            }]));
            std::future::pending::<()>().await;
            drop((tell, held));
        })
    }
}

/// Records the tools of each request.
struct ToolRecordingLlm {
    time: VirtualTime,
    offered_tools: Mutex<Vec<Vec<String>>>,
}

impl llm::Llm for ToolRecordingLlm {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        self.offered_tools
            .lock()
            .unwrap()
            .push(request.tools.iter().map(|tool| tool.name.clone()).collect());
        for (pause, event) in [text_event(LONG_ANSWER), end_event()] {
            let sink = sink.clone();
            self.time.schedule_after(pause, move || sink.send(event));
        }
        Handle::noop()
    }
}

#[test]
fn tools_of_a_server_are_offered_while_they_are_open_and_dropped_with_the_end_of_the_call() {
    let mut harness = Harness::new();
    let (open, held) = (Arc::new(AtomicBool::new(true)), Arc::new(()));
    let servers = LongToolServer { open: Arc::clone(&open), alive: Arc::clone(&held) };
    let llm =
        Arc::new(ToolRecordingLlm { time: harness.time.clone(), offered_tools: Mutex::default() });
    let call = CallConfig { tool_servers: Some(Arc::new(servers)), ..call_config(1) };
    let _far = harness.start_call_with_llm(call, &[], llm.clone());
    harness.run_for(SECOND);
    type_text(&mut harness, "What can you do?");
    harness.run_for(3 * SECOND);
    open.store(false, Relaxed);
    type_text(&mut harness, "And now?");
    harness.run_for(3 * SECOND);
    assert_eq!(*llm.offered_tools.lock().unwrap(), [vec!["look".to_owned()], vec![]]);
    assert_eq!(Arc::strong_count(&held), 4, "the test, the server, its listing and its tool");
    // The command arrives in the middle of an utterance. Its audio may still be played out, but the
    // tools are released at once.
    harness.command(1, Command::End);
    harness.run_for(Duration::ZERO);
    assert!(Arc::strong_count(&held) <= 2, "the test and the server: {}", Arc::strong_count(&held));
}

/// Two servers with a tool of one name. The one that is attached first answers last.
struct TwoToolServers;

impl ToolServers for TwoToolServers {
    fn list_tools(
        &self,
        tell: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        let tool = |name: &str| Tool {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            backend: ToolBackend::Remote(RemoteToolHandle(Arc::new(SilentToolServer))),
        };
        Box::pin(async move {
            tell(Ok(vec![tool("look"), tool("buy")]));
            tell(Ok(vec![tool("look"), tool("tickets_left")]));
            tell(Err("Two servers have a tool \"look\".".into()));
        })
    }
}

#[test]
fn a_tool_of_a_server_replaces_one_of_the_same_name_but_not_the_agents_own() {
    let mut harness = Harness::new();
    let llm =
        Arc::new(ToolRecordingLlm { time: harness.time.clone(), offered_tools: Mutex::default() });
    let call = CallConfig {
        tool_servers: Some(Arc::new(TwoToolServers)),
        ..call_with_tool(ToolBackend::Client)
    };
    let _client = harness.start_call_with_llm(call, &[], llm.clone());
    harness.run_for(SECOND);
    type_text(&mut harness, "What can you do?");
    harness.run_for(3 * SECOND);
    assert_eq!(*llm.offered_tools.lock().unwrap(), [["tickets_left", "buy", "look"]]);
    let is_warning = |event: &Event| matches!(event, Event::Warning { .. });
    assert_eq!(event_times(&harness, is_warning).len(), 1);
}

/// A call that is 3 s old and in the middle of a long answer, with an optional exit message.
fn talking_call(
    exit_message: Option<&str>,
) -> (Harness, engine::transport::loopback::LoopbackClient) {
    let mut harness = Harness::new();
    let agent = AgentTurnConfig {
        exit_message: exit_message.map(str::to_owned),
        ..AgentTurnConfig::default()
    };
    let client = harness.start_call(call_config_of(1, agent), &["Tell me something."], LONG_ANSWER);
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(3 * SECOND);
    assert_eq!(event_times(&harness, |e| matches!(e, Event::AgentStartedSpeaking { .. })).len(), 1);
    (harness, client)
}

fn stop_calls(harness: &Harness, exit_message: bool) {
    assert!(harness.inbox.requests.send(Message::Stop { exit_message }).is_ok());
}

#[test]
fn a_call_that_is_stopped_says_its_exit_message_once_to_its_end_however_often_it_is_stopped() {
    let (mut harness, client) = talking_call(Some("Goodbye, and thank you."));
    stop_calls(&harness, true);
    harness.run_for(SECOND / 2);
    let refused = send_command(&harness, Command::Respond { text: "Wait".into() });
    let again =
        send_command(&harness, Command::Stop { reason: EndReason::EndedByApi, exit_message: true });
    stop_calls(&harness, true);
    harness.run_for(5 * SECOND);
    assert_eq!(refused.blocking_recv().unwrap(), Err(CommandError::Rejected(Rejection::Ending)));
    assert_eq!(again.blocking_recv().unwrap(), Ok(CommandOutcome::NothingToDo));
    let spoken = spoken_texts(&harness);
    let [cut, goodbye] = &spoken[..] else { panic!("{spoken:?}") };
    assert_due("the cut", cut.end, 3.0, TICK_SECONDS);
    assert!(LONG_ANSWER.starts_with(&cut.text) && cut.text != LONG_ANSWER, "{cut:?}");
    assert_eq!(goodbye.text, "Goodbye, and thank you.");
    assert_due("the exit message", goodbye.start, 3.0, TICK_SECONDS + VOICE_DELAY);
    assert_full_length(goodbye, 4);
    let (at, reason) = end_of_call(&harness).expect("it has ended");
    assert_eq!(reason, EndReason::EndedByApi);
    assert_due("the end", at, goodbye.end, TICK_SECONDS);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    assert!(output.closed);
    assert!(
        (output.speech_spans().last().unwrap().1 - goodbye.end).abs() < 0.03,
        "no audio follows it"
    );
}

#[test]
fn a_stop_without_an_exit_message_ends_a_call_in_the_middle_of_it() {
    for exit_message in [None, Some("Goodbye, and thank you.")] {
        let (mut harness, client) = talking_call(exit_message);
        stop_calls(&harness, true);
        harness.run_for(SECOND / 2);
        let stopped = if exit_message.is_some() {
            assert_eq!(end_of_call(&harness), None, "it says goodbye");
            stop_calls(&harness, false);
            harness.run_for(SECOND);
            3.5
        } else {
            3.0
        };
        let (at, reason) = end_of_call(&harness).expect("it has ended");
        assert_eq!(reason, EndReason::EndedByApi);
        assert_due("the end", at, stopped, TICK_SECONDS);
        let mut output = ReceivedOutput::new(harness.start);
        output.collect(&client);
        let last = output.speech_spans().last().unwrap().1;
        assert!(
            output.closed && last < stopped + 0.05,
            "a block that is out, and the fade: {last}"
        );
    }
}

#[test]
fn a_silent_user_is_called_as_often_as_is_set_and_then_left_each_after_the_same_silence() {
    let agent = AgentTurnConfig {
        idle_timeout: Some(1.0),
        idle_messages: vec!["Are you there?".into(), "Hello?".into()],
        idle_end_after: Some(Some(2)),
        exit_message: Some("Goodbye.".into()),
        ..AgentTurnConfig::default()
    };
    let mut harness = Harness::new();
    let _far = harness.start_call(call_config_of(1, agent), &[], "");
    harness.run_for(10 * SECOND);
    let (spoken, idle) =
        (spoken_texts(&harness), event_times(&harness, |e| matches!(e, Event::UserIdle)));
    assert_eq!(texts_of(&spoken), ["Are you there?", "Hello?"], "and no exit message is played");
    assert_eq!(idle.len(), 2);
    assert_due("the first silence", idle[0], 1.0, TICK_SECONDS);
    assert_due("the first call-out", spoken[0].start, idle[0], VOICE_DELAY);
    assert_full_length(&spoken[0], 3);
    assert_due("the second silence", idle[1], spoken[0].end + 1.0, TICK_SECONDS);
    assert_due("the second call-out", spoken[1].start, idle[1], VOICE_DELAY);
    assert_full_length(&spoken[1], 1);
    let (at, reason) = end_of_call(&harness).expect("it has ended");
    assert_eq!(reason, EndReason::Idle);
    assert_due("the end", at, spoken[1].end + 1.0, TICK_SECONDS);
}

#[test]
fn the_limit_of_a_call_is_announced_and_kept_to_the_tick() {
    for goodbye in [None, Some("Goodbye, and thank you.")] {
        let agent = AgentTurnConfig {
            idle_timeout: Some(0.0),
            max_call_duration: Some(5.0),
            call_warning_before: Some(3.0),
            warning_message: Some("We have little time left.".into()),
            exit_message: goodbye.map(str::to_owned),
            ..AgentTurnConfig::default()
        };
        let mut harness = Harness::new();
        let _far = harness.start_call(call_config_of(1, agent), &[], "");
        harness.run_for(10 * SECOND);
        let limits: Vec<(f64, &str, f64, f64)> = harness
            .recorder
            .events_of(1)
            .into_iter()
            .filter_map(|event| match event.event {
                Event::MaxCallDurationWarning { call_duration, max_call_duration } => {
                    Some((event.at.as_seconds(), "warning", call_duration, max_call_duration))
                }
                Event::MaxCallDurationTimeout { call_duration, max_call_duration } => {
                    Some((event.at.as_seconds(), "limit", call_duration, max_call_duration))
                }
                _ => None,
            })
            .collect();
        let [warned, over] = limits[..] else { panic!("{limits:?}") };
        for ((at, which, duration, of), wanted, when) in
            [(warned, "warning", 2.0), (over, "limit", 5.0)]
        {
            assert_eq!((which, of, duration), (wanted, 5.0, at));
            assert_due(which, at, when, TICK_SECONDS);
        }
        let spoken = spoken_texts(&harness);
        assert_eq!(spoken[0].text, "We have little time left.");
        assert_due("the warning's words", spoken[0].start, 2.0, TICK_SECONDS + VOICE_DELAY);
        let (at, reason) = end_of_call(&harness).expect("it has ended");
        assert_eq!(reason, EndReason::MaxCallDuration);
        if goodbye.is_some() {
            assert_eq!(texts_of(&spoken[1..]), ["Goodbye, and thank you."]);
            assert_due("the exit message", spoken[1].start, 5.0, TICK_SECONDS + VOICE_DELAY);
            assert_full_length(&spoken[1], 4);
            assert_due("the end", at, spoken[1].end, TICK_SECONDS);
        } else {
            assert_eq!(spoken.len(), 1);
            assert_due("the end", at, 5.0, TICK_SECONDS);
        }
    }
}

/// A call whose greeting cannot be interrupted.
fn start_greeted_call(harness: &mut Harness) -> engine::transport::loopback::LoopbackClient {
    let mut call = call_config(1);
    call.spec.allow_interruptions = false;
    call.spec.greeting = Some(Greeting { text: LONG_ANSWER.into(), delay: Duration::ZERO });
    harness.start_call(call, &[], "The parrot is fine.")
}

/// The greeting is played to its end without a gap. The question from 1 s is answered after it.
fn assert_greeting_whole(harness: &Harness, client: &engine::transport::loopback::LoopbackClient) {
    let spoken = spoken_texts(harness);
    assert_eq!(texts_of(&spoken), [LONG_ANSWER, "The parrot is fine."]);
    assert_full_length(&spoken[0], LONG_ANSWER.split(' ').count() as u32);
    let committed = event_times(harness, |e| matches!(e, Event::UtteranceCommitted { .. }));
    assert_eq!(committed.len(), 1);
    assert_due("the turn", committed[0], 1.0, TICK_SECONDS);
    assert_due("the answer", spoken[1].start, spoken[0].end, TICK_SECONDS + VOICE_DELAY);
    let interrupted =
        event_times(harness, |e| matches!(e, Event::AgentInterrupted | Event::PlayoutHeld { .. }));
    assert_eq!(interrupted, Vec::<f64>::new());
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(client);
    let samples = (LONG_ANSWER.split(' ').count() + 4) * WORD_DURATION.as_millis() as usize * 48;
    assert_eq!(output.audible_samples().len(), samples, "not a sample is missing");
    assert!(!output.texts.iter().any(|text| text.contains("error-response")), "{:?}", output.texts);
}

#[test]
fn a_greeting_that_may_not_be_interrupted_outlasts_every_command_and_the_turn_is_taken_meanwhile() {
    let mut harness = Harness::new();
    let client = start_greeted_call(&mut harness);
    harness.run_for(SECOND);
    let interrupt = send_command(&harness, Command::Interrupt);
    let respond = send_command(&harness, Command::Respond { text: "How is the parrot?".into() });
    harness.run_for(SECOND);
    assert_eq!(
        interrupt.blocking_recv().unwrap(),
        Err(CommandError::Rejected(Rejection::Uninterruptible))
    );
    assert_eq!(respond.blocking_recv().unwrap(), Ok(CommandOutcome::Accepted));
    let interrupt = send_command(&harness, Command::Interrupt);
    harness.run_for(7 * SECOND);
    assert_eq!(
        interrupt.blocking_recv().unwrap(),
        Err(CommandError::Rejected(Rejection::Uninterruptible))
    );
    assert_greeting_whole(&harness, &client);
}

#[test]
fn a_text_typed_over_a_greeting_that_may_not_be_interrupted_is_answered_behind_it() {
    let mut harness = Harness::new();
    let client = start_greeted_call(&mut harness);
    harness.run_for(SECOND);
    client.send_event(client_text_event("How is the parrot?"));
    harness.run_for(8 * SECOND);
    assert_greeting_whole(&harness, &client);
}

/// Stalls before the first word or in the middle of a sentence, or answers.
fn stalling_script(last: &HistoryItem) -> Vec<(Duration, llm::Event)> {
    match last.text.as_str() {
        "Nothing?" => vec![],
        "A part?" => vec![
            text_event("The first room is full of clocks. "),
            text_event("And then there "),
            text_event("is a"),
        ],
        _ => vec![text_event("All is well again."), end_event()],
    }
}

#[test]
fn a_model_that_stalls_for_five_seconds_is_apologised_for_and_the_next_question_is_answered() {
    for (question, last_word, output) in
        [("Nothing?", 0.0, vec![]), ("A part?", 0.015, vec!["The first room is full of clocks."])]
    {
        let mut harness = Harness::new();
        let llm = TimedLlm::new(&harness.time, stalling_script);
        let _far = harness.start_call_with_llm(call_config(1), &[], llm);
        harness.run_for(SECOND);
        type_text(&mut harness, question);
        harness.run_for(12 * SECOND);
        let failed = event_times(
            &harness,
            |e| matches!(e, Event::Error { stage: Stage::Llm, reason } if reason == "timeout"),
        );
        let [failed] = failed[..] else { panic!("it fails once: {failed:?}") };
        assert_due("the failure", failed, 1.0 + last_word + 5.0, TICK_SECONDS);
        let so_far = spoken_texts(&harness);
        assert_eq!(texts_of(&so_far), [output.as_slice(), &[DEFAULT_ERROR_MESSAGE]].concat());
        assert_due("the apology", so_far.last().unwrap().start, failed, VOICE_DELAY);
        type_text(&mut harness, "Is all well?");
        harness.run_for(3 * SECOND);
        assert_eq!(spoken_texts(&harness).last().unwrap().text, "All is well again.");
        assert_eq!(end_of_call(&harness), None);
    }
}

/// Writes a word each millisecond until it is cancelled, then answers further requests.
struct EndlessLlm {
    time: VirtualTime,
    written: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    questions: Mutex<u32>,
}

fn write_words(
    time: VirtualTime,
    written: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    sink: Sink<llm::Event>,
) {
    time.clone().schedule_after(Duration::from_millis(1), move || {
        if !stopped.load(Relaxed) {
            written.fetch_add(1, Relaxed);
            sink.send(llm::Event::Text("word ".into()));
            write_words(time, written, stopped, sink);
        }
    });
}

impl llm::Llm for EndlessLlm {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let mut questions = self.questions.lock().unwrap();
        *questions += 1;
        if *questions > 1 {
            for event in [llm::Event::Text("All is well.".into()), end_event().1] {
                let sink = sink.clone();
                self.time.schedule_after(Duration::from_millis(5), move || sink.send(event));
            }
            return Handle::noop();
        }
        let stopped = Arc::clone(&self.stopped);
        write_words(self.time.clone(), Arc::clone(&self.written), Arc::clone(&self.stopped), sink);
        Handle::new(move || stopped.store(true, Relaxed))
    }
}

#[test]
fn a_model_that_never_ends_is_stopped_at_twenty_thousand_characters_and_the_call_goes_on() {
    let mut harness = Harness::new();
    let (written, stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let llm = EndlessLlm {
        time: harness.time.clone(),
        written: Arc::clone(&written),
        stopped: Arc::clone(&stopped),
        questions: Mutex::default(),
    };
    let client = harness.start_call_with_llm(call_config(1), &[], Arc::new(llm));
    harness.run_for(SECOND);
    type_text(&mut harness, "Tell me everything.");
    harness.run_for(8 * SECOND);
    assert!(stopped.load(Relaxed), "the question was cancelled");
    // 4,000 words of five characters, the one over the limit, and those written before the
    // cancellation arrived.
    assert!((4_001..=4_003).contains(&written.load(Relaxed)), "{} words", written.load(Relaxed));
    let events = harness.recorder.events_of(1);
    let warnings: Vec<&str> = events
        .iter()
        .filter_map(
            |f| if let Event::Warning { text } = &f.event { Some(text.as_str()) } else { None },
        )
        .collect();
    assert_eq!(warnings, ["The language model's reply was cut at 20000 characters."]);
    assert_eq!(
        event_times(&harness, |e| matches!(e, Event::Error { .. })),
        Vec::<f64>::new(),
        "that is no failure"
    );

    // The text is spoken, with at most a few segments ahead, until the user interrupts.
    client.send_event(client_text_event("Is all well?"));
    harness.run_for(3 * SECOND);
    let spoken = spoken_texts(&harness);
    let [endless, answer] = &spoken[..] else { panic!("{spoken:?}") };
    assert!(endless.text.split(' ').all(|word| word == "word"), "{endless:?}");
    assert_due("the interruption", endless.end, 9.0, TICK_SECONDS);
    assert_eq!(answer.text, "All is well.");
    assert_eq!(end_of_call(&harness), None);
}
