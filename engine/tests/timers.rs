//! The timers of a call on the real graph, in virtual time, with scripted models: each fires at its time, once, and the call goes on or ends
//! as its settings say.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::call_config::{CallConfig, RemoteToolHandle, Tool, ToolBackend};
use conversation::engine::{BoxFuture, CommandError, RemoteTool, ToolServers};
use conversation::event::{EndReason, Event, HistoryItem, Role, Stage};
use conversation::input::Command;
use conversation::output::{CommandOutcome, Rejection};
use conversation::settings::{AgentTurnConfig, DEFAULT_ERROR_MESSAGE};
use conversation::spec::{Greeting, ToolSpec};
use engine::graph::Message;
use engine::transport::Event as Wire;
use models::{Handle, Sink, llm};
use serde_json::{Value, json};
use support::{Bench, Heard, WORD, World, call, call_of, voice};
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);
/// From the asking for a voice to its first sample: what the voice takes and the block that is out, and a little.
const VOICE: f64 = 0.016 + 0.020 + 0.010;
/// A tick of the thread.
const TICK: f64 = 0.010;
const LONG: &str = "This is one long answer that goes on and on and on without any pause until it ends.";

/// Writes what its script says of the last thing that was said: each event so long after the one before. A script without an end is a stall.
struct Scripted {
    world: World,
    script: fn(&HistoryItem) -> Vec<(Duration, llm::Event)>,
}

impl Scripted {
    fn new(world: &World, script: fn(&HistoryItem) -> Vec<(Duration, llm::Event)>) -> Arc<Self> {
        Arc::new(Self { world: world.clone(), script })
    }
}

impl llm::Llm for Scripted {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let mut at = Duration::ZERO;
        for (pause, event) in (self.script)(request.history.last().expect("something was said")) {
            at += pause;
            let sink = sink.clone();
            self.world.after(at, move || sink.send(event));
        }
        Handle::done()
    }
}

/// After a model's usual 5 ms.
fn soon(event: llm::Event) -> (Duration, llm::Event) {
    (Duration::from_millis(5), event)
}

fn text(words: &str) -> (Duration, llm::Event) {
    soon(llm::Event::Text(words.into()))
}

fn end() -> (Duration, llm::Event) {
    soon(llm::Event::End { prompt_tokens: 1, completion_tokens: 1 })
}

/// The user types.
fn types(bench: &mut Bench, words: &str) {
    bench.command(1, Command::Respond { text: words.into() });
}

/// The user types in a client, which asks for silence first.
fn client_types(words: &str) -> Wire {
    let message = json!({"label": "rtvi-ai", "type": "send-text", "id": "typed", "data": {"content": words}});
    Wire::Text(message.to_string())
}

/// A command, and where its answer will be.
fn asks(bench: &Bench, command: Command) -> oneshot::Receiver<Result<CommandOutcome, CommandError>> {
    let (reply, answer) = oneshot::channel();
    let conversation = call(1).id;
    assert!(
        bench.inbox.requests.send(Message::Command { conversation, command, reply: Some(reply) }).is_ok()
    );
    answer
}

/// Words that sounded: from when to when, in seconds of the call.
#[derive(Debug)]
struct Said {
    words: String,
    from: f64,
    to: f64,
}

fn said(bench: &Bench) -> Vec<Said> {
    let (mut from, mut said) = (0.0, Vec::new());
    for fact in bench.book.of(1) {
        match fact.event {
            Event::AgentStartedSpeaking { .. } => from = fact.at.as_seconds(),
            Event::AgentStoppedSpeaking { text, .. } => {
                said.push(Said { words: text, from, to: fact.at.as_seconds() });
            }
            _ => {}
        }
    }
    said
}

fn words(said: &[Said]) -> Vec<&str> {
    said.iter().map(|said| said.words.as_str()).collect()
}

/// All times of a fact.
fn times(bench: &Bench, wanted: impl Fn(&Event) -> bool) -> Vec<f64> {
    bench.book.of(1).iter().filter(|f| wanted(&f.event)).map(|f| f.at.as_seconds()).collect()
}

/// When and why the call ended.
fn ended(bench: &Bench) -> Option<(f64, EndReason)> {
    let facts = bench.book.of(1);
    let found = facts.iter().find_map(|f| match f.event {
        Event::Ended { reason } => Some((f.at.as_seconds(), reason)),
        _ => None,
    });
    assert_eq!(found.is_some(), bench.shard.calls() == 0, "a call that has ended has left its thread");
    found
}

/// Never early, and late by at most so much.
#[track_caller]
fn due(what: &str, told: f64, at: f64, most: f64) {
    assert!((at - 1e-5..=at + most + 1e-5).contains(&told), "{what}: at {told:.6}, due at {at:.6}");
}

/// As long as so many words, with the block that carries the last of them.
#[track_caller]
fn whole(said: &Said, count: u32) {
    let length = f64::from(count) * WORD.as_secs_f64();
    assert!((said.to - said.from - length).abs() < 0.03, "{count} words take {length}: {said:?}");
}

/// A tool of a server that never answers.
struct Silent;

impl RemoteTool for Silent {
    fn call(&self, _: Value) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(std::future::pending())
    }
}

impl ToolServers for Silent {
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

fn with_tool(run: ToolBackend) -> CallConfig {
    let mut call = call(1);
    call.spec.tools.push(ToolSpec {
        name: "tickets_left".into(),
        on_start: Some("Let me look.".into()),
        on_delay: Some("It takes a little longer.".into()),
        delay: 3 * SECOND,
        on_success: Some("I have found it.".into()),
        on_error: Some("That did not work.".into()),
    });
    call.tools.push(Tool {
        name: "tickets_left".into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        backend: run,
    });
    call
}

/// Calls the tool for a question about tickets, and says what came of it.
fn about_tickets(last: &HistoryItem) -> Vec<(Duration, llm::Event)> {
    match last.role {
        Role::Tool => vec![text("Nobody can tell."), end()],
        _ if last.text.contains("tickets") => {
            let (id, name) = ("call_1".into(), "tickets_left".into());
            vec![soon(llm::Event::Call { id, name, arguments: json!({}) }), end()]
        }
        _ => vec![text("I am still here."), end()],
    }
}

#[test]
fn a_tool_that_never_answers_is_excused_after_its_delay_and_given_up_after_twenty_seconds() {
    for run in [ToolBackend::Client, ToolBackend::Remote(RemoteToolHandle(Arc::new(Silent)))] {
        let in_client = run == ToolBackend::Client;
        let mut bench = Bench::new();
        let llm = Scripted::new(&bench.world, about_tickets);
        let far = bench.thinking(with_tool(run), &[], llm);
        bench.run(SECOND);
        types(&mut bench, "How many tickets are left?");
        bench.run(25 * SECOND);
        let started = times(&bench, |e| matches!(e, Event::ToolStarted { .. }));
        let [started] = started[..] else { panic!("it is called once: {started:?}") };
        let said_so_far = said(&bench);
        assert_eq!(
            words(&said_so_far),
            ["Let me look.", "It takes a little longer.", "That did not work.", "Nobody can tell."]
        );
        due("on_start", said_so_far[0].from, started, VOICE);
        due("on_delay", said_so_far[1].from, started + 3.0, VOICE);
        due("on_error", said_so_far[2].from, started + 20.0, TICK + VOICE);
        let result = |e: &Event| matches!(e, Event::ToolCall { result, .. } if result == "timeout");
        let failed = times(&bench, result);
        assert_eq!(failed.len(), 1, "{:?}", bench.book.names(1));
        due("the time-out", failed[0], started + 20.0, TICK);

        // What comes behind the time-out finds no call of a tool.
        if in_client {
            let data =
                json!({"function_name": "tickets_left", "tool_call_id": "call_1", "result": {"free": 3}});
            let late =
                json!({"label": "rtvi-ai", "type": "llm-function-call-result", "id": "late", "data": data});
            far.event(Wire::Text(late.to_string()));
            bench.run(SECOND);
            let mut heard = Heard::new(bench.start);
            heard.listen(&far);
            let told = |what: &str| heard.texts.iter().filter(|text| text.contains(what)).count();
            assert_eq!(told("llm-function-call-in-progress"), 1, "the client was asked");
            assert_eq!(told("No such tool call is open"), 1, "{:?}", heard.texts);
        }
        types(&mut bench, "Are you still here?");
        bench.run(3 * SECOND);
        assert_eq!(words(&said(&bench))[4..], ["I am still here."]);
        assert_eq!(ended(&bench), None);
    }
}

#[test]
fn a_server_of_tools_that_stays_silent_delays_no_greeting_and_no_answer() {
    let mut told = Vec::new();
    for servers in [None, Some(Arc::new(Silent) as Arc<dyn ToolServers>)] {
        let mut bench = Bench::new();
        let mut call = CallConfig { tool_servers: servers, ..call(1) };
        call.spec.greeting = Some(Greeting { text: "Welcome to the museum.".into(), delay: Duration::ZERO });
        let far = bench.call(call, &["What is new?"], "Nothing at all.");
        far.say(voice(&[(2.5, 1.0)]));
        bench.run(6 * SECOND);
        let said = said(&bench);
        assert_eq!(words(&said), ["Welcome to the museum.", "Nothing at all."]);
        told.push([said[0].from, said[1].from]);
    }
    assert_eq!(told[0], told[1]);
}

/// A server with a tool that can be closed, and with a listing that lasts. Each of the three holds `held`.
struct Lasting {
    open: Arc<AtomicBool>,
    held: Arc<()>,
}

struct Closable(Lasting);

impl RemoteTool for Closable {
    fn call(&self, _: Value) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(std::future::pending())
    }

    fn is_open(&self) -> bool {
        self.0.open.load(Relaxed)
    }
}

impl ToolServers for Lasting {
    fn list_tools(
        &self,
        tell: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        let (open, held) = (Arc::clone(&self.open), Arc::clone(&self.held));
        Box::pin(async move {
            let run = ToolBackend::Remote(RemoteToolHandle(Arc::new(Closable(Self {
                open,
                held: Arc::clone(&held),
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

/// Notes the tools that each question offers.
struct Offered {
    world: World,
    seen: Mutex<Vec<Vec<String>>>,
}

impl llm::Llm for Offered {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        self.seen.lock().unwrap().push(request.tools.iter().map(|tool| tool.name.clone()).collect());
        for (pause, event) in [text(LONG), end()] {
            let sink = sink.clone();
            self.world.after(pause, move || sink.send(event));
        }
        Handle::done()
    }
}

#[test]
fn tools_of_a_server_are_offered_while_they_are_open_and_dropped_with_the_end_of_the_call() {
    let mut bench = Bench::new();
    let (open, held) = (Arc::new(AtomicBool::new(true)), Arc::new(()));
    let servers = Lasting { open: Arc::clone(&open), held: Arc::clone(&held) };
    let llm = Arc::new(Offered { world: bench.world.clone(), seen: Mutex::default() });
    let call = CallConfig { tool_servers: Some(Arc::new(servers)), ..call(1) };
    let _far = bench.thinking(call, &[], llm.clone());
    bench.run(SECOND);
    types(&mut bench, "What can you do?");
    bench.run(3 * SECOND);
    open.store(false, Relaxed);
    types(&mut bench, "And now?");
    bench.run(3 * SECOND);
    assert_eq!(*llm.seen.lock().unwrap(), [vec!["look".to_owned()], vec![]]);
    assert_eq!(Arc::strong_count(&held), 4, "the test, the server, its listing and its tool");
    // In the middle of its words: what sounds may leave before the call does, but the tools do not wait for it.
    bench.command(1, Command::End);
    bench.run(Duration::ZERO);
    assert!(Arc::strong_count(&held) <= 2, "the test and the server: {}", Arc::strong_count(&held));
}

/// A call that is in the middle of a long answer, 3 s old, and says goodbye at its end.
fn talking(exit_message: Option<&str>) -> (Bench, engine::transport::loopback::Far) {
    let mut bench = Bench::new();
    let agent =
        AgentTurnConfig { exit_message: exit_message.map(str::to_owned), ..AgentTurnConfig::default() };
    let far = bench.call(call_of(1, agent), &["Tell me something."], LONG);
    far.say(voice(&[(0.5, 1.0)]));
    bench.run(3 * SECOND);
    assert_eq!(times(&bench, |e| matches!(e, Event::AgentStartedSpeaking { .. })).len(), 1);
    (bench, far)
}

fn stop(bench: &Bench, exit_message: bool) {
    assert!(bench.inbox.requests.send(Message::Stop { exit_message }).is_ok());
}

#[test]
fn a_call_that_is_stopped_says_its_exit_message_once_to_its_end_however_often_it_is_stopped() {
    let (mut bench, far) = talking(Some("Goodbye, and thank you."));
    stop(&bench, true);
    bench.run(SECOND / 2);
    let refused = asks(&bench, Command::Respond { text: "Wait".into() });
    let again = asks(&bench, Command::Stop { reason: EndReason::EndedByApi, exit_message: true });
    stop(&bench, true);
    bench.run(5 * SECOND);
    assert_eq!(refused.blocking_recv().unwrap(), Err(CommandError::Rejected(Rejection::Ending)));
    assert_eq!(again.blocking_recv().unwrap(), Ok(CommandOutcome::NothingToDo));
    let said = said(&bench);
    let [cut, goodbye] = &said[..] else { panic!("{said:?}") };
    due("the cut", cut.to, 3.0, TICK);
    assert!(LONG.starts_with(&cut.words) && cut.words != LONG, "{cut:?}");
    assert_eq!(goodbye.words, "Goodbye, and thank you.");
    due("the exit message", goodbye.from, 3.0, TICK + VOICE);
    whole(goodbye, 4);
    let (at, reason) = ended(&bench).expect("it has ended");
    assert_eq!(reason, EndReason::EndedByApi);
    due("the end", at, goodbye.to, TICK);
    let mut heard = Heard::new(bench.start);
    heard.listen(&far);
    assert!(heard.closed);
    assert!((heard.spoken().last().unwrap().1 - goodbye.to).abs() < 0.03, "nothing sounds behind it");
}

#[test]
fn a_stop_without_an_exit_message_ends_a_call_in_the_middle_of_it() {
    for exit_message in [None, Some("Goodbye, and thank you.")] {
        let (mut bench, far) = talking(exit_message);
        stop(&bench, true);
        bench.run(SECOND / 2);
        let stopped = if exit_message.is_some() {
            assert_eq!(ended(&bench), None, "it says goodbye");
            stop(&bench, false);
            bench.run(SECOND);
            3.5
        } else {
            3.0
        };
        let (at, reason) = ended(&bench).expect("it has ended");
        assert_eq!(reason, EndReason::EndedByApi);
        due("the end", at, stopped, TICK);
        let mut heard = Heard::new(bench.start);
        heard.listen(&far);
        let last = heard.spoken().last().unwrap().1;
        assert!(heard.closed && last < stopped + 0.05, "a block that is out, and the fade: {last}");
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
    let mut bench = Bench::new();
    let _far = bench.call(call_of(1, agent), &[], "");
    bench.run(10 * SECOND);
    let (said, idle) = (said(&bench), times(&bench, |e| matches!(e, Event::UserIdle)));
    assert_eq!(words(&said), ["Are you there?", "Hello?"], "and nobody hears a goodbye");
    assert_eq!(idle.len(), 2);
    due("the first silence", idle[0], 1.0, TICK);
    due("the first call-out", said[0].from, idle[0], VOICE);
    whole(&said[0], 3);
    due("the second silence", idle[1], said[0].to + 1.0, TICK);
    due("the second call-out", said[1].from, idle[1], VOICE);
    whole(&said[1], 1);
    let (at, reason) = ended(&bench).expect("it has ended");
    assert_eq!(reason, EndReason::Idle);
    due("the end", at, said[1].to + 1.0, TICK);
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
        let mut bench = Bench::new();
        let _far = bench.call(call_of(1, agent), &[], "");
        bench.run(10 * SECOND);
        let limits: Vec<(f64, &str, f64, f64)> = bench
            .book
            .of(1)
            .into_iter()
            .filter_map(|fact| match fact.event {
                Event::MaxCallDurationWarning { call_duration, max_call_duration } => {
                    Some((fact.at.as_seconds(), "warning", call_duration, max_call_duration))
                }
                Event::MaxCallDurationTimeout { call_duration, max_call_duration } => {
                    Some((fact.at.as_seconds(), "limit", call_duration, max_call_duration))
                }
                _ => None,
            })
            .collect();
        let [warned, over] = limits[..] else { panic!("{limits:?}") };
        for ((at, which, duration, of), wanted, when) in [(warned, "warning", 2.0), (over, "limit", 5.0)] {
            assert_eq!((which, of, duration), (wanted, 5.0, at));
            due(which, at, when, TICK);
        }
        let said = said(&bench);
        assert_eq!(said[0].words, "We have little time left.");
        due("the warning's words", said[0].from, 2.0, TICK + VOICE);
        let (at, reason) = ended(&bench).expect("it has ended");
        assert_eq!(reason, EndReason::MaxCallDuration);
        if goodbye.is_some() {
            assert_eq!(words(&said[1..]), ["Goodbye, and thank you."]);
            due("the exit message", said[1].from, 5.0, TICK + VOICE);
            whole(&said[1], 4);
            due("the end", at, said[1].to, TICK);
        } else {
            assert_eq!(said.len(), 1);
            due("the end", at, 5.0, TICK);
        }
    }
}

/// A call whose greeting nobody may interrupt.
fn greeted(bench: &mut Bench) -> engine::transport::loopback::Far {
    let mut call = call(1);
    call.spec.allow_interruptions = false;
    call.spec.greeting = Some(Greeting { text: LONG.into(), delay: Duration::ZERO });
    bench.call(call, &[], "The parrot is fine.")
}

/// The greeting is heard to its end without a gap, and the question that was put at 1 s is answered behind it.
fn check_greeted(bench: &Bench, far: &engine::transport::loopback::Far) {
    let told = said(bench);
    assert_eq!(words(&told), [LONG, "The parrot is fine."]);
    whole(&told[0], LONG.split(' ').count() as u32);
    let committed = times(bench, |e| matches!(e, Event::UtteranceCommitted { .. }));
    assert_eq!(committed.len(), 1);
    due("the turn", committed[0], 1.0, TICK);
    due("the answer", told[1].from, told[0].to, TICK + VOICE);
    let interrupted = times(bench, |e| matches!(e, Event::AgentInterrupted | Event::PlayoutHeld { .. }));
    assert_eq!(interrupted, Vec::<f64>::new());
    let mut heard = Heard::new(bench.start);
    heard.listen(far);
    let samples = (LONG.split(' ').count() + 4) * WORD.as_millis() as usize * 48;
    assert_eq!(heard.sound().len(), samples, "not a sample is missing");
    assert!(!heard.texts.iter().any(|text| text.contains("error-response")), "{:?}", heard.texts);
}

#[test]
fn a_greeting_that_may_not_be_interrupted_outlasts_every_command_and_the_turn_is_taken_meanwhile() {
    let mut bench = Bench::new();
    let far = greeted(&mut bench);
    bench.run(SECOND);
    let interrupt = asks(&bench, Command::Interrupt);
    let respond = asks(&bench, Command::Respond { text: "How is the parrot?".into() });
    bench.run(SECOND);
    assert_eq!(interrupt.blocking_recv().unwrap(), Err(CommandError::Rejected(Rejection::Uninterruptible)));
    assert_eq!(respond.blocking_recv().unwrap(), Ok(CommandOutcome::Accepted));
    let interrupt = asks(&bench, Command::Interrupt);
    bench.run(7 * SECOND);
    assert_eq!(interrupt.blocking_recv().unwrap(), Err(CommandError::Rejected(Rejection::Uninterruptible)));
    check_greeted(&bench, &far);
}

#[test]
fn a_text_typed_over_a_greeting_that_may_not_be_interrupted_is_answered_behind_it() {
    let mut bench = Bench::new();
    let far = greeted(&mut bench);
    bench.run(SECOND);
    far.event(client_types("How is the parrot?"));
    bench.run(8 * SECOND);
    check_greeted(&bench, &far);
}

/// Stalls before its first word, or in the middle of a sentence, or answers.
fn moody(last: &HistoryItem) -> Vec<(Duration, llm::Event)> {
    match last.text.as_str() {
        "Nothing?" => vec![],
        "A part?" => vec![text("The first room is full of clocks. "), text("And then there "), text("is a")],
        _ => vec![text("All is well again."), end()],
    }
}

#[test]
fn a_model_that_stalls_for_five_seconds_is_apologised_for_and_the_next_question_is_answered() {
    for (question, last_word, heard) in
        [("Nothing?", 0.0, vec![]), ("A part?", 0.015, vec!["The first room is full of clocks."])]
    {
        let mut bench = Bench::new();
        let llm = Scripted::new(&bench.world, moody);
        let _far = bench.thinking(call(1), &[], llm);
        bench.run(SECOND);
        types(&mut bench, question);
        bench.run(12 * SECOND);
        let failed =
            times(&bench, |e| matches!(e, Event::Error { stage: Stage::Llm, reason } if reason == "timeout"));
        let [failed] = failed[..] else { panic!("it fails once: {failed:?}") };
        due("the failure", failed, 1.0 + last_word + 5.0, TICK);
        let so_far = said(&bench);
        assert_eq!(words(&so_far), [heard.as_slice(), &[DEFAULT_ERROR_MESSAGE]].concat());
        due("the apology", so_far.last().unwrap().from, failed, VOICE);
        types(&mut bench, "Is all well?");
        bench.run(3 * SECOND);
        assert_eq!(said(&bench).last().unwrap().words, "All is well again.");
        assert_eq!(ended(&bench), None);
    }
}

/// Writes a word each millisecond until somebody stops it, then answers.
struct Endless {
    world: World,
    written: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    questions: Mutex<u32>,
}

fn write(world: World, written: Arc<AtomicUsize>, stopped: Arc<AtomicBool>, sink: Sink<llm::Event>) {
    world.clone().after(Duration::from_millis(1), move || {
        if !stopped.load(Relaxed) {
            written.fetch_add(1, Relaxed);
            sink.send(llm::Event::Text("word ".into()));
            write(world, written, stopped, sink);
        }
    });
}

impl llm::Llm for Endless {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let mut questions = self.questions.lock().unwrap();
        *questions += 1;
        if *questions > 1 {
            for event in [llm::Event::Text("All is well.".into()), end().1] {
                let sink = sink.clone();
                self.world.after(Duration::from_millis(5), move || sink.send(event));
            }
            return Handle::done();
        }
        let stopped = Arc::clone(&self.stopped);
        write(self.world.clone(), Arc::clone(&self.written), Arc::clone(&self.stopped), sink);
        Handle::new(move || stopped.store(true, Relaxed))
    }
}

#[test]
fn a_model_that_never_ends_is_stopped_at_twenty_thousand_characters_and_the_call_goes_on() {
    let mut bench = Bench::new();
    let (written, stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let llm = Endless {
        world: bench.world.clone(),
        written: Arc::clone(&written),
        stopped: Arc::clone(&stopped),
        questions: Mutex::default(),
    };
    let far = bench.thinking(call(1), &[], Arc::new(llm));
    bench.run(SECOND);
    types(&mut bench, "Tell me everything.");
    bench.run(8 * SECOND);
    assert!(stopped.load(Relaxed), "the question was cancelled");
    // Four thousand words of five characters, the one that is too much, and what was written before the news of it came.
    assert!((4_001..=4_003).contains(&written.load(Relaxed)), "{} words", written.load(Relaxed));
    let facts = bench.book.of(1);
    let warnings: Vec<&str> = facts
        .iter()
        .filter_map(|f| if let Event::Warning { text } = &f.event { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(warnings, ["The language model's reply was cut at 20000 characters."]);
    assert_eq!(times(&bench, |e| matches!(e, Event::Error { .. })), Vec::<f64>::new(), "that is no failure");

    // It is spoken on, with no more than some pieces ahead, until somebody stops it.
    far.event(client_types("Is all well?"));
    bench.run(3 * SECOND);
    let said = said(&bench);
    let [endless, answer] = &said[..] else { panic!("{said:?}") };
    assert!(endless.words.split(' ').all(|word| word == "word"), "{endless:?}");
    due("the interruption", endless.to, 9.0, TICK);
    assert_eq!(answer.words, "All is well.");
    assert_eq!(ended(&bench), None);
}
