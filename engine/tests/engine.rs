//! The engine with its threads and sockets: offers that are accepted and rejected, and calls over
//! UDP with a client built on str0m.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints the load of a call

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::event::{EndReason, Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::{CommandOutcome, Rejection};
use conversation::settings::AgentTurnConfig;
use engine::WithWarning;
use engine::clock;
use engine::engine::VendorConnections;
use engine::hear::vad::{NetworkState, Vad, WINDOW};
use engine::show::Avatars;
use engine::transport::loopback::LoopbackClient;
use engine::{CallEngine, Config, Models, Timeouts};
use engine_api::{
    AudioLine, AudioOffer, CallConfig, Caller, CommandError, Engine, EventSink, HangUp, LlmChoice,
    Offer, OfferError, SttChoice, TtsChoice,
};
use models::{Error, ErrorKind, Handle, Sink, llm, stt, tts};
use str0m::change::SdpAnswer;
use support::udp_client::{Client, connect, run_until, wait_for};
use support::{EventRecorder, LoudnessVad, call_config, call_config_of};

/// A VAD that panics when the audio contains a loud sample (see [`PANIC_AMPLITUDE`]).
struct PanickingVad(LoudnessVad);

/// Louder than any other audio of these tests.
const PANIC_AMPLITUDE: i16 = 32_000;

impl Vad for PanickingVad {
    fn infer(
        &mut self,
        states: &mut [&mut NetworkState],
        windows: &[&[f32; WINDOW]],
        probabilities: &mut [f32],
    ) {
        let loudest =
            windows.iter().flat_map(|window| window.iter()).fold(0.0_f32, |a, b| a.max(b.abs()));
        assert!(loudest < 0.95, "the test's own panic");
        self.0.infer(states, windows, probabilities);
    }
}

/// Models that do nothing, with a number of free STT decoders and a gate that delays the loading.
struct FakeModels {
    free_decoders: Arc<Mutex<usize>>,
    /// Whether the next request for a decoder panics.
    panics: Arc<AtomicBool>,
    load_gate: Mutex<Option<Receiver<Result<(), String>>>>,
    /// Why the TTS has failed, if it has.
    tts_failure: Arc<Mutex<Option<String>>>,
    /// Number of times that the TTS opened an instance for a call.
    opened_tts: Arc<AtomicUsize>,
}

impl FakeModels {
    fn ready(free_decoders: usize) -> Arc<Self> {
        let free_decoders = Arc::new(Mutex::new(free_decoders));
        let (panics, tts_failure, opened_tts) = (Arc::default(), Arc::default(), Arc::default());
        let load_gate = Mutex::new(None);
        Arc::new(Self { free_decoders, panics, load_gate, tts_failure, opened_tts })
    }

    fn gated() -> (Arc<Self>, Sender<Result<(), String>>) {
        let (open, gate) = channel();
        let (free_decoders, load_gate) = (Arc::new(Mutex::new(1)), Mutex::new(Some(gate)));
        let (panics, tts_failure, opened_tts) = (Arc::default(), Arc::default(), Arc::default());
        (Arc::new(Self { free_decoders, panics, load_gate, tts_failure, opened_tts }), open)
    }
}

struct LimitedStt(Arc<Mutex<usize>>, Arc<AtomicBool>);
struct LimitedSttStream(Arc<Mutex<usize>>);

impl stt::Stt for LimitedStt {
    fn open(&self, _: Sink<stt::Event>) -> Result<Box<dyn stt::SttStream>, Error> {
        assert!(!self.1.swap(false, Relaxed), "the test's own panic");
        let mut left = self.0.lock().unwrap();
        *left = left
            .checked_sub(1)
            .ok_or_else(|| Error::new(ErrorKind::Busy, "all decoders are in use"))?;
        Ok(Box::new(LimitedSttStream(Arc::clone(&self.0))))
    }

    fn capacity_error(&self) -> Option<Error> {
        (*self.0.lock().unwrap() == 0)
            .then(|| Error::new(ErrorKind::Busy, "all decoders are in use"))
    }
}

impl stt::SttStream for LimitedSttStream {
    fn start_speech(&mut self) {}
    fn push_audio(&mut self, _: &[i16]) {}
    fn end_speech(&mut self) {}
}

impl Drop for LimitedSttStream {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

struct SilentLlm;

impl llm::Llm for SilentLlm {
    fn ask(&self, _: llm::Request, _: Sink<llm::Event>) -> Handle {
        Handle::noop()
    }
}

/// Returns two minutes of audio for any text, so that no test hears the end.
struct EndlessTts(Arc<Mutex<Option<String>>>, Arc<AtomicUsize>);

impl tts::Tts for EndlessTts {
    fn speak(&self, _: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, Error> {
        sink.send(tts::Event::Audio { pcm: vec![1_000; 120 * 16_000], sample_rate: 16_000 });
        sink.send(tts::Event::End);
        Ok(Handle::noop())
    }

    fn open_call(&self, _: &tts::Request) -> Option<Arc<dyn tts::Tts>> {
        self.1.fetch_add(1, Relaxed);
        None
    }

    fn capacity_error(&self) -> Option<Error> {
        self.0.lock().unwrap().clone().map(|reason| Error::new(ErrorKind::NotAvailable, reason))
    }
}

impl Models for FakeModels {
    fn load(&self) -> Result<(), String> {
        self.load_gate.lock().unwrap().take().map_or(Ok(()), |gate| gate.recv().unwrap())
    }

    fn vad(&self) -> Result<Box<dyn Vad>, String> {
        Ok(Box::new(PanickingVad(LoudnessVad)))
    }

    fn stt(&self, _: &SttChoice) -> WithWarning<Result<Arc<dyn stt::Stt>, Error>> {
        (Ok(Arc::new(LimitedStt(Arc::clone(&self.free_decoders), Arc::clone(&self.panics)))), None)
    }

    fn llm(&self, _: &LlmChoice, _: &str, _: bool) -> WithWarning<Arc<dyn llm::Llm>> {
        (Arc::new(SilentLlm), None)
    }

    fn tts(&self, _: &TtsChoice) -> WithWarning<Result<Arc<dyn tts::Tts>, Error>> {
        let tts = EndlessTts(Arc::clone(&self.tts_failure), Arc::clone(&self.opened_tts));
        (Ok(Arc::new(tts)), None)
    }

    fn unavailable(&self) -> Option<String> {
        self.tts_failure.lock().unwrap().clone()
    }

    fn degraded_reason(&self) -> Option<String> {
        self.tts_failure.lock().unwrap().clone()
    }
}

fn start_engine(models: Arc<FakeModels>, timeouts: Timeouts) -> (Arc<CallEngine>, EventRecorder) {
    start_engine_with_limit(0, models, timeouts)
}

/// An engine of two threads that runs at most `calls` calls.
fn start_engine_with_limit(
    calls: usize,
    models: Arc<FakeModels>,
    timeouts: Timeouts,
) -> (Arc<CallEngine>, EventRecorder) {
    start_engine_with_config(Config { max_calls: calls, timeouts, ..Config::default() }, models)
}

/// An engine of two threads.
fn start_engine_with_config(
    config: Config,
    models: Arc<FakeModels>,
) -> (Arc<CallEngine>, EventRecorder) {
    let recorder = EventRecorder::default();
    let engine = start_engine_with_sink(2, config, models, Arc::new(recorder.clone()));
    (engine, recorder)
}

/// An engine of `n` threads on the loopback address that records its events in `event_sink`.
fn start_engine_with_sink(
    n: usize,
    config: Config,
    models: Arc<FakeModels>,
    event_sink: Arc<dyn EventSink>,
) -> Arc<CallEngine> {
    let hosts = vec![[127, 0, 0, 1].into()];
    let config = Config { threads: n, host_addresses: hosts, ..config };
    let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
    let net = tokio::runtime::Handle::current();
    CallEngine::start(config, models, Avatars::default(), client, event_sink, net).unwrap()
}

fn offer_for(id: u128, sdp: &str) -> Offer {
    let (call, caller) = (Arc::new(call_config(id)), Caller::default());
    Offer {
        config: call,
        sdp: sdp.into(),
        replaces: None,
        restart: false,
        commands: Vec::new(),
        caller,
    }
}

#[tokio::test]
async fn an_offer_that_comes_too_soon_waits_until_the_models_are_loaded() {
    let (models, gate) = FakeModels::gated();
    let (engine, _) = start_engine(models, Timeouts::default());
    assert!(engine.not_ready_reason().unwrap().contains("loading"));
    let waiting = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.accept_offer(offer_for(1, "no SDP")).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    gate.send(Ok(())).unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(OfferError::BadSdp(_))));
    assert_eq!(engine.not_ready_reason(), None);
    wait_for("a bad offer leaves no call", || engine.active_calls() == 0).await;
}

#[tokio::test]
async fn missing_models_are_reported() {
    let (models, gate) = FakeModels::gated();
    let (engine, _) = start_engine(models, Timeouts::default());
    gate.send(Err("the speech detector's weights are not installed".into())).unwrap();
    let refused = engine.accept_offer(offer_for(1, "no SDP")).await.unwrap_err();
    assert_eq!(
        refused,
        OfferError::NoCapacity("the speech detector's weights are not installed".into())
    );
}

#[tokio::test]
async fn a_panic_while_loading_models_is_reported_as_missing_models() {
    let (models, gate) = FakeModels::gated();
    let (engine, _) = start_engine(models, Timeouts::default());
    assert!(engine.not_ready_reason().unwrap().contains("loading"));
    // The loader waits at the gate. When the gate is dropped, it panics.
    drop(gate);
    let failed = "a panic occurred while the models were loading; see the log";
    let refused = engine.accept_offer(offer_for(1, "no SDP")).await.unwrap_err();
    assert_eq!(refused, OfferError::NoCapacity(failed.into()));
    assert_eq!(engine.not_ready_reason().unwrap(), failed);
}

fn metric_values(engine: &CallEngine, family: &str) -> Vec<(String, u64)> {
    let family = engine.metrics().into_iter().find(|f| f.name == family).unwrap();
    let count = |point: &engine_api::metrics::MetricPoint| match point.value {
        engine_api::metrics::MetricValue::Count(count) => count,
        _ => panic!("{family:?} counts nothing"),
    };
    let label =
        |point: &engine_api::metrics::MetricPoint| point.labels.first().map(|l| l.1.to_string());
    family.points.iter().map(|p| (label(p).unwrap_or_default(), count(p))).collect()
}

#[tokio::test]
async fn a_decoder_is_taken_at_connection_and_a_missing_one_is_reported() {
    let models = FakeModels::ready(1);
    let (engine, recorder) = start_engine(Arc::clone(&models), Timeouts::default());
    let ((one, one_sdp, one_pending), (two, two_sdp, two_pending)) =
        (Client::offer(), Client::offer());
    let one_taken = engine.accept_offer(offer_for(1, &one_sdp)).await.unwrap();
    let two_taken = engine.accept_offer(offer_for(2, &two_sdp)).await.unwrap();
    assert!(one_taken.answer.contains("a=candidate") && !one_taken.connection.is_empty());
    assert_eq!(
        (engine.active_calls(), *models.free_decoders.lock().unwrap()),
        (0, 1),
        "offers hold no resources"
    );
    assert_eq!(metric_values(&engine, "visavis_offers_pending"), [(String::new(), 2)]);

    let one = connect((one, one_pending), &one_taken, "its voice", |c| c.packets() > 0).await;
    assert_eq!((engine.active_calls(), *models.free_decoders.lock().unwrap()), (1, 0));
    let (_, third, _) = Client::offer();
    let refused = engine.accept_offer(offer_for(3, &third)).await.unwrap_err();
    assert_eq!(refused, OfferError::NoCapacity("all decoders are in use".into()));

    let has_left = |c: &Client| c.texts().iter().any(|t| t.contains("peerLeft"));
    let two = connect((two, two_pending), &two_taken, "it is turned away", has_left).await;
    let texts = two.texts();
    let error = texts.iter().find(|t| t.contains(r#""type":"error""#)).expect("an error");
    assert!(error.contains("No capacity") && error.contains(r#""fatal":true"#), "{error}");
    assert_eq!(two.packets(), 0);
    assert!(recorder.events_of(2).is_empty(), "its conversation has not started");
    assert_eq!(engine.active_calls(), 1, "the other call continues");
    let refused: Vec<_> = metric_values(&engine, "visavis_calls_rejected");
    assert!(refused.contains(&("call".into(), 2)), "{refused:?}");

    // The same conversation may be tried again as soon as there is capacity.
    assert_eq!(engine.hang_up(ConversationId(1), one_taken.connection).await, HangUp::Closed);
    drop(one);
    wait_for("the decoder is free", || *models.free_decoders.lock().unwrap() == 1).await;
    let (again, sdp, pending) = Client::offer();
    let taken = engine.accept_offer(offer_for(2, &sdp)).await.unwrap();
    connect((again, pending), &taken, "its voice", |c| c.packets() > 0).await;
    assert_eq!(recorder.event_names(2).iter().filter(|n| *n == "joined").count(), 1);
}

#[tokio::test]
async fn a_client_whose_setup_panics_is_rejected_and_may_try_again() {
    let models = FakeModels::ready(1);
    let (engine, recorder) = start_engine(Arc::clone(&models), Timeouts::default());
    let (client, sdp, pending) = Client::offer();
    let taken = engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    models.panics.store(true, Relaxed);
    let has_left = |c: &Client| c.texts().iter().any(|t| t.contains("peerLeft"));
    let client = connect((client, pending), &taken, "it is turned away", has_left).await;
    assert!(!models.panics.load(Relaxed), "it panicked");
    let texts = client.texts();
    assert!(texts.iter().any(|t| t.contains("No capacity")), "{texts:?}");
    assert_eq!(
        (engine.active_calls(), *models.free_decoders.lock().unwrap()),
        (0, 1),
        "no resources are held"
    );
    let rejected = metric_values(&engine, "visavis_calls_rejected");
    assert!(rejected.contains(&("call".into(), 1)), "{rejected:?}");
    let (again, sdp, pending) = Client::offer();
    let taken = engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    connect((again, pending), &taken, "its voice", |c| c.packets() > 0).await;
    assert_eq!(recorder.event_names(1).iter().filter(|n| *n == "joined").count(), 1);
}

#[tokio::test]
async fn an_offer_that_never_connects_leaves_no_trace() {
    let timeouts = Timeouts { offer: Duration::from_millis(200), ..Timeouts::default() };
    let (engine, recorder) = start_engine(FakeModels::ready(1), timeouts);
    let (_client, sdp, _) = Client::offer();
    let taken = engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    wait_for("it is dropped", || metric_values(&engine, "visavis_offers_pending")[0].1 == 0).await;
    let closed = engine.hang_up(ConversationId(1), taken.connection).await;
    assert_eq!(closed, HangUp::NotFound);
    assert!(recorder.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_oldest_unconnected_offer_of_a_network_is_evicted() {
    let (engine, _) = start_engine(FakeModels::ready(2), Timeouts::default());
    let of_network = |id, sdp: &str| {
        let network = Some([192, 0, 2, 1].into());
        Offer { caller: Caller { network, agent: format!("agent {id}") }, ..offer_for(id, sdp) }
    };
    let (client, sdp, pending) = Client::offer();
    let first = engine.accept_offer(of_network(0, &sdp)).await.unwrap();
    let _connected = connect((client, pending), &first, "its voice", |c| c.packets() > 0).await;
    let (_client, sdp, _) = Client::offer();
    let mut taken = Vec::new();
    for id in 1..=17 {
        taken.push(engine.accept_offer(of_network(id, &sdp)).await.unwrap().connection);
    }
    assert_eq!(metric_values(&engine, "visavis_offers_evicted"), [(String::new(), 1)]);
    assert_eq!(engine.active_calls(), 1, "a connected call is not evicted");
    for (n, connection) in taken.into_iter().enumerate() {
        let here = engine.hang_up(ConversationId(n as u128 + 1), connection).await;
        let expected = if n > 0 { HangUp::LastOffer } else { HangUp::NotFound };
        assert_eq!(here, expected, "offer {n}");
    }
    assert_eq!(engine.hang_up(ConversationId(0), first.connection).await, HangUp::Closed);
}

#[tokio::test]
async fn commands_before_the_connection_are_executed_after_it() {
    let (engine, recorder) = start_engine(FakeModels::ready(2), Timeouts::default());
    let (client, sdp, pending) = Client::offer();
    let speak = |text: &str| Command::Say {
        text: text.into(),
        interrupt: false,
        allow_interruptions: true,
        add_to_context: true,
        expression: None,
    };
    let before = Offer { commands: vec![speak("First of all.")], ..offer_for(1, &sdp) };
    let taken = engine.accept_offer(before).await.unwrap();
    let context = Command::Context { text: "Then this.".into(), overwrite: false };
    assert_eq!(engine.send_command(ConversationId(1), context).await, Ok(CommandOutcome::Accepted));
    connect((client, pending), &taken, "its voice", |c| c.packets() > 0).await;
    let debug_text = |e: &conversation::event::EventEnvelope| format!("{:?}", e.event);
    wait_for("both are done", || {
        let events: String = recorder.events_of(1).iter().map(debug_text).collect();
        events.contains("First of all.") && events.contains("Then this.")
    })
    .await;
    // A call that is ended before its connection is established leaves no events, and its
    // connection is closed.
    let (_client, sdp, _) = Client::offer();
    let taken = engine.accept_offer(offer_for(2, &sdp)).await.unwrap();
    assert_eq!(
        engine.send_command(ConversationId(2), Command::End).await,
        Err(CommandError::NotRunning)
    );
    let closed = engine.hang_up(ConversationId(2), taken.connection).await;
    assert_eq!(closed, HangUp::NotFound);
    assert!(recorder.events_of(2).is_empty());
}

#[tokio::test]
async fn a_call_without_an_available_turn_model_works_and_is_warned() {
    let wanting =
        call_config_of(1, AgentTurnConfig { turn_model: true, ..AgentTurnConfig::default() });
    for (call, warnings) in [
        (
            wanting,
            vec![
                "stt.turn_model is on, but this server has no turn model; turns are decided \
                 without it.",
            ],
        ),
        (call_config(1), vec![]),
    ] {
        let models = engine::engine::resolve_models(
            &*FakeModels::ready(1),
            &call,
            Sink::new(|_| {}),
            VendorConnections::default(),
        )
        .unwrap();
        assert!(models.turn_model.is_none());
        assert_eq!(models.warnings, warnings);
    }
}

#[tokio::test]
async fn the_tts_of_a_call_is_not_opened_for_an_offer_alone() {
    let models = FakeModels::ready(9);
    let (engine, _) = start_engine(Arc::clone(&models), Timeouts::default());
    let (_client, sdp, _) = Client::offer();
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    assert_eq!(models.opened_tts.load(Relaxed), 0, "an offer alone");
    engine.start_loopback_call(Arc::new(call_config(2)), Vec::new()).unwrap();
    assert_eq!(models.opened_tts.load(Relaxed), 1);
}

#[tokio::test]
async fn the_limit_of_calls_is_that_of_all_threads_together() {
    let (engine, _) = start_engine_with_limit(3, FakeModels::ready(9), Timeouts::default());
    let (_client, sdp, _) = Client::offer();
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let _far: Vec<_> = (1..=3)
        .map(|id| engine.start_loopback_call(Arc::new(call_config(id)), Vec::new()).unwrap())
        .collect();
    let refused = engine.accept_offer(offer_for(4, &sdp)).await.unwrap_err();
    assert_eq!(refused, OfferError::NoCapacity("the server is full".into()));
    assert_eq!(engine.active_calls(), 3);
    engine
        .accept_offer(offer_for(2, &sdp))
        .await
        .expect("another connection of a running call takes no slot");
}

/// Virtual-time tests beside the load measurement prove which share of its time a thread may use.
/// This test proves that the engine applies it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_rejected_while_media_threads_are_busy() {
    let timeouts = Timeouts { closed: Duration::from_millis(50), ..Timeouts::default() };
    let config = Config { max_load: 0.05, timeouts, ..Config::default() };
    let (engine, _) = start_engine_with_config(config, FakeModels::ready(usize::MAX));
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let mut client = Vec::new();
    // However cheap a call is, 20,000 of them need more than a twentieth of two threads' time.
    let refused = loop {
        match engine
            .start_loopback_call(Arc::new(call_config(client.len() as u128 + 1)), Vec::new())
        {
            Ok(end) => client.push(end),
            Err(refused) => break refused,
        }
        assert!(client.len() < 20_000, "no limit is found");
    };
    let full = "the media threads have no CPU time for another call";
    assert_eq!(refused, OfferError::NoCapacity(full.into()));
    assert!(!client.is_empty(), "the first one always fits");
    let counts = engine.metrics().into_iter().find(|f| f.name == "visavis_calls_rejected").unwrap();
    let by_load = counts.points.iter().find(|p| p.labels[0].1 == "load").unwrap();
    assert!(matches!(by_load.value, engine_api::metrics::MetricValue::Count(1)), "{counts:?}");
    client.iter().for_each(|end| end.send_event(engine::transport::TransportEvent::Closed));
    wait_for("room again", || Engine::capacity_error(&*engine).is_none()).await;
    engine
        .start_loopback_call(Arc::new(call_config(1_000_000)), Vec::new())
        .map(drop)
        .expect("calls are admitted again");
}

/// The engine admits as many calls as the measured load of its threads allows, and no more. Running
/// calls continue, and capacity returns with the calls that end. The maximum load is low, so that
/// the machine that runs the test is not the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: load"]
async fn long_load_calls_are_admitted_until_media_threads_are_busy_and_after_some_end() {
    let timeouts = Timeouts { closed: Duration::from_millis(50), ..Timeouts::default() };
    let config = Config { max_load: 0.1, timeouts, ..Config::default() };
    let (engine, _) = start_engine_with_config(config, FakeModels::ready(usize::MAX));
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let full = OfferError::NoCapacity("the media threads have no CPU time for another call".into());
    let mut client = Vec::new();
    let mut waits = 0;
    // A rejection based on the estimated cost of the newest calls is not final: capacity returns
    // once their cost was measured.
    while waits < 8 {
        match engine
            .start_loopback_call(Arc::new(call_config(client.len() as u128 + 1)), Vec::new())
        {
            Ok(end) => {
                client.push(end);
                waits = 0;
            }
            Err(refused) => {
                assert_eq!(refused, full);
                assert_eq!(
                    Engine::capacity_error(&*engine),
                    Some("the media threads have no CPU time for another call".into())
                );
                let tick_count = || engine.stats().map(|s| s.ticks.load(Relaxed)).sum::<u64>();
                let before = tick_count();
                wait_for("the threads continue to tick", || tick_count() >= before + 200).await;
                waits += 1;
            }
        }
        assert!(client.len() < 20_000, "no limit is found");
    }
    let frames: u64 = engine.stats().map(|s| s.audio_frames.load(Relaxed)).sum();
    let late: u64 = engine.stats().map(|s| s.late_audio_frames.load(Relaxed)).sum();
    let used: Vec<f64> = engine.stats().map(|s| s.load.busy_ratio()).collect();
    eprintln!(
        "{} calls use {used:.3?} of two threads; {late} of {frames} frames late",
        client.len()
    );
    assert!(
        client.len() > 50,
        "at least fifty calls fit by the estimate of a call: {}",
        client.len()
    );
    assert!(late * 100 <= frames, "running calls keep their quality: {late} of {frames}");
    let refused =
        engine.metrics().into_iter().find(|f| f.name == "visavis_calls_rejected").unwrap();
    let by_load = refused.points.iter().find(|p| p.labels[0].1 == "load").unwrap();
    assert!(
        matches!(by_load.value, engine_api::metrics::MetricValue::Count(n) if n >= 8),
        "{refused:?}"
    );
    let ends = client.split_off(client.len() / 4);
    ends.iter().for_each(|end| end.send_event(engine::transport::TransportEvent::Closed));
    wait_for("room again", || Engine::capacity_error(&*engine).is_none()).await;
    engine
        .start_loopback_call(Arc::new(call_config(1_000_000)), Vec::new())
        .map(drop)
        .expect("calls are admitted again");
}

#[tokio::test]
async fn a_rejected_offer_releases_its_resources() {
    let models = FakeModels::ready(1);
    let (engine, _) = start_engine_with_limit(1, Arc::clone(&models), Timeouts::default());
    let (_client, sdp, _) = Client::offer();
    for bad in [
        "no SDP".to_owned(),
        sdp.replace("opus", "none"),
        sdp.replace("m=audio 9 ", "m=audio 99999999999 "),
    ] {
        assert_ne!(bad, sdp);
        engine.accept_offer(offer_for(1, &bad)).await.unwrap_err();
        assert_eq!(
            (engine.active_calls(), *models.free_decoders.lock().unwrap()),
            (0, 1),
            "at once"
        );
    }
    engine.accept_offer(offer_for(2, &sdp)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offers_that_never_connect_make_room_for_newer_ones_and_never_end_the_call() {
    let (engine, recorder) = start_engine(FakeModels::ready(1), Timeouts::default());
    let (mut client, sdp, pending) = Client::offer();
    let accepted = engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    let answer = SdpAnswer::from_sdp_string(&accepted.answer).unwrap();
    client.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    let mut client = tokio::task::spawn_blocking(move || {
        client.run_until("the channel is open", |c| c.channel.is_some());
        client
    })
    .await
    .unwrap();
    let mut last = None;
    for n in 0..20 {
        let (client, sdp, pending) = Client::offer();
        let taken = engine
            .accept_offer(offer_for(1, &sdp))
            .await
            .unwrap_or_else(|e| panic!("offer {n}: {e}"));
        last = Some((client, taken, pending));
    }
    let before = client.packets();
    let client = tokio::task::spawn_blocking(move || {
        client.run_until("the call goes on", |c| c.packets() >= before + 25);
        client
    })
    .await
    .unwrap();
    assert!(!client.texts().iter().any(|t| t.contains("peerLeft")));
    // Only the newest of these connections may still take over the call.
    let (mut newest, taken, pending) = last.unwrap();
    let answer = SdpAnswer::from_sdp_string(&taken.answer).unwrap();
    newest.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    tokio::task::spawn_blocking(move || {
        newest.run_until("the newest takes over", |c| c.packets() > 0)
    })
    .await
    .unwrap();
    assert_eq!(engine.active_calls(), 1);
    assert_eq!(recorder.event_names(1).iter().filter(|n| *n == "joined").count(), 1);
    drop(client);
}

#[tokio::test]
async fn a_draining_engine_takes_no_new_calls() {
    let (engine, _) = start_engine(FakeModels::ready(4), Timeouts::default());
    engine.drain(Duration::from_secs(30)).await; // no call runs: returns at once
    let refused = engine.accept_offer(offer_for(1, "v=0")).await.unwrap_err();
    assert_eq!(refused, OfferError::NoCapacity("the server is shutting down".into()));
}

/// The drain waits on tokio's clock, which is paused except for the waits of the test itself. The
/// call runs in real time on its thread. The thread handles its messages in order, so the answer to
/// a command shows that the earlier messages were handled.
#[tokio::test]
async fn a_drain_ends_a_call_after_its_exit_message() {
    let (engine, recorder) = start_engine(FakeModels::ready(1), Timeouts::default());
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let mut talker = call_config(1);
    talker.spec.exit_message = Some("Goodbye.".into());
    let _far = engine.start_loopback_call(Arc::new(talker), Vec::new()).unwrap();
    wait_for("the call has begun", || !recorder.events_of(1).is_empty()).await;
    // While a blocking task runs, tokio's clock does not advance by itself.
    let asked = async |command: Command| {
        let engine = Arc::clone(&engine);
        let asking = move || {
            tokio::runtime::Handle::current()
                .block_on(engine.send_command(ConversationId(1), command))
        };
        tokio::task::spawn_blocking(asking).await.unwrap()
    };
    // `moment` is a tolerance on tokio's clock, which adds up to a millisecond to each wait of the
    // drain.
    let (second, moment) = (Duration::from_secs(1), Duration::from_millis(10));

    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let draining = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.drain(30 * second).await }
    });
    tokio::time::sleep_until(begun + 20 * second - moment).await;
    assert_eq!(asked(Command::Interrupt).await, Ok(CommandOutcome::NothingToDo), "it continues");
    tokio::time::sleep_until(begun + 20 * second + moment).await;
    let goodbye = Err(CommandError::Rejected(Rejection::Ending));
    assert_eq!(asked(Command::Interrupt).await, goodbye, "it says goodbye");
    tokio::time::sleep_until(begun + 30 * second - moment).await;
    assert_eq!(asked(Command::Interrupt).await, goodbye, "for ten seconds");
    tokio::time::sleep_until(begun + 30 * second + moment).await;
    assert_eq!(asked(Command::Interrupt).await, Err(CommandError::NotRunning), "it is over");
    draining.await.unwrap();
    let took = begun.elapsed();
    assert!(took <= 33 * second + moment, "the hang-up takes at most three seconds: {took:?}");
    tokio::time::resume();
    wait_for("the call has left its thread", || engine.active_calls() == 0).await;
    let events = recorder.events_of(1);
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|e| wanted(&e.event)).count();
    assert_eq!(
        count(|e| matches!(e, Event::TtsStarted { .. })),
        1,
        "the exit message is said once"
    );
    assert_eq!(count(|e| matches!(e, Event::Ended { reason: EndReason::EndedByApi })), 1);
}

#[tokio::test]
async fn a_drain_is_over_when_its_last_call_is() {
    let (engine, recorder) = start_engine(FakeModels::ready(1), Timeouts::default());
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let _far = engine.start_loopback_call(Arc::new(call_config(1)), Vec::new()).unwrap();
    wait_for("the call has begun", || !recorder.events_of(1).is_empty()).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let second = Duration::from_secs(1);
    let draining = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.drain(60 * second).await }
    });
    tokio::time::sleep(30 * second).await;
    assert!(!draining.is_finished(), "a call runs");
    // The media thread runs in real time. The blocking task stops tokio's clock meanwhile.
    let leaving = Arc::clone(&engine);
    let left = tokio::task::spawn_blocking(move || {
        let leaves = leaving.send_command(ConversationId(1), Command::Leave);
        let left = tokio::runtime::Handle::current().block_on(leaves);
        while leaving.active_calls() > 0 {
            std::thread::yield_now();
        }
        left
    });
    assert_eq!(left.await.unwrap(), Ok(CommandOutcome::Accepted));
    draining.await.unwrap();
    let took = begun.elapsed();
    assert!(took <= 30 * second + second / 10, "{took:?}");
}

#[tokio::test]
async fn commands_for_a_call_that_is_not_here_say_so() {
    let (engine, _) = start_engine(FakeModels::ready(1), Timeouts::default());
    let answer = engine.send_command(ConversationId(9), Command::Interrupt).await;
    assert_eq!(answer, Err(engine_api::CommandError::NotRunning));
    assert_eq!(engine.hang_up(ConversationId(9), "x".into()).await, HangUp::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_joins_over_udp_hears_silence_talks_on_the_channel_and_hangs_up() {
    let (engine, recorder) = start_engine(FakeModels::ready(1), Timeouts::default());
    let (mut client, sdp, pending) = Client::offer();
    let accepted = engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    client
        .rtc
        .sdp_api()
        .accept_answer(pending, SdpAnswer::from_sdp_string(&accepted.answer).unwrap())
        .unwrap();
    let begun = clock::now();
    let mut client = tokio::task::spawn_blocking(move || {
        client.run_until("the channel is open", |c| c.channel.is_some());
        let ready =
            r#"{"label":"rtvi-ai","type":"client-ready","id":"1","data":{"version":"2.1.0"}}"#;
        client
            .rtc
            .channel(client.channel.unwrap())
            .unwrap()
            .write(false, ready.as_bytes())
            .unwrap();
        client.run_until("bot-ready", |c| c.texts().iter().any(|t| t.contains("bot-ready")));
        client.run_until("two seconds of packets", |c| c.packets() >= 100);
        client
    })
    .await
    .unwrap();
    let stamps: Vec<u64> = client
        .events
        .iter()
        .filter_map(
            |e| if let str0m::Event::MediaData(d) = e { Some(d.time.numer()) } else { None },
        )
        .collect();
    // A frame every 20 ms, silence included. A thread without CPU time skips frames and counts
    // them; in virtual time no frame is missing.
    let steps: Vec<u64> = stamps.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(steps.iter().all(|step| *step > 0 && step % 960 == 0), "{stamps:?}");
    let left_out: u64 = steps.iter().map(|step| step / 960 - 1).sum();
    assert!(
        left_out <= engine.stats().map(|s| s.skipped_audio_frames.load(Relaxed)).sum(),
        "{stamps:?}"
    );
    assert_eq!(engine.active_calls(), 1);
    let busy: u64 = engine.stats().map(|s| s.busy_us.load(Relaxed)).sum();
    let share = busy as f64 / 1e4 / (clock::now() - begun).as_secs_f64();
    eprintln!(
        "an idle call keeps its media thread busy for {share:.2} % of the time, the join included"
    );
    assert_eq!(engine.hang_up(ConversationId(1), accepted.connection).await, HangUp::Closed);
    let texts = tokio::task::spawn_blocking(move || {
        client.run_until("peerLeft", |c| c.texts().iter().any(|t| t.contains("peerLeft")));
        client.texts()
    })
    .await
    .unwrap();
    assert!(
        texts.iter().any(|t| t.contains("participant_left")),
        "reported before the hang-up: {texts:?}"
    );
    wait_for("the call is over", || engine.active_calls() == 0).await;
    let events = recorder.events_of(1);
    assert!(matches!(
        events[0].event,
        Event::Joined { unix_micros } if unix_micros > 1_700_000_000_000_000
    ));
    let names = recorder.event_names(1);
    assert!(
        names.iter().any(|n| n == "participant_left") && names.iter().any(|n| n == "ended"),
        "{names:?}"
    );
}

/// Starts a call and sends the audio at which its thread panics.
async fn start_panicking_call(
    engine: &CallEngine,
    recorder: &EventRecorder,
    id: u128,
) -> LoopbackClient {
    let client = engine.start_loopback_call(Arc::new(call_config(id)), Vec::new()).unwrap();
    wait_for("it has begun", || !recorder.events_of(id).is_empty()).await;
    client.send_audio(vec![PANIC_AMPLITUDE; 16_000]);
    client
}

/// Starts a call, lets its thread panic, and waits until the record of the call is ended.
async fn panic_media_thread(engine: &CallEngine, recorder: &EventRecorder, id: u128) {
    let _far = start_panicking_call(engine, recorder, id).await;
    wait_for("its record is ended", || recorder.1.lock().unwrap().contains(&id)).await;
}

/// Number of threads that accept no calls.
fn dead_threads(engine: &CallEngine) -> usize {
    engine.stats().filter(|stats| stats.dead.load(Relaxed)).count()
}

/// The port of the thread that answered.
fn port_of_answer(answer: &str) -> String {
    let line = answer.lines().find(|line| line.contains(" udp ")).unwrap();
    line.split(' ').nth(5).unwrap().to_owned()
}

/// The port of the thread that a new call is assigned to.
async fn port_of_next_call(engine: &CallEngine, id: u128) -> String {
    let (_, sdp, _) = Client::offer();
    let taken = engine.accept_offer(offer_for(id, &sdp)).await.unwrap();
    assert_eq!(engine.hang_up(ConversationId(id), taken.connection).await, HangUp::LastOffer);
    port_of_answer(&taken.answer)
}

/// Starts a call over the network; returns the port of its thread.
async fn connect_over_udp(engine: &CallEngine, recorder: &EventRecorder, id: u128) -> String {
    let (mut client, sdp, pending) = Client::offer();
    let taken = engine.accept_offer(offer_for(id, &sdp)).await.unwrap();
    client
        .rtc
        .sdp_api()
        .accept_answer(pending, SdpAnswer::from_sdp_string(&taken.answer).unwrap())
        .unwrap();
    tokio::task::block_in_place(|| {
        client.run_until("a connection", |c| {
            c.events.iter().any(|e| matches!(e, str0m::Event::Connected))
        })
    });
    wait_for("a call by network", || !recorder.events_of(id).is_empty()).await;
    port_of_answer(&taken.answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_media_thread_that_panics_ends_its_calls_and_takes_new_ones_on_the_same_port() {
    let (engine, recorder) = start_engine(FakeModels::ready(9), Timeouts::default());
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let other = engine.start_loopback_call(Arc::new(call_config(1)), Vec::new()).unwrap();
    wait_for("it has begun", || !recorder.events_of(1).is_empty()).await;
    // The thread that has no call.
    let before = port_of_next_call(&engine, 2).await;
    panic_media_thread(&engine, &recorder, 3).await;
    wait_for("it takes calls again", || dead_threads(&engine) == 0).await;
    wait_for("the slot of its call is free", || engine.active_calls() == 1).await;
    assert_eq!(connect_over_udp(&engine, &recorder, 4).await, before);
    assert_eq!(*recorder.1.lock().unwrap(), [3], "the call of the other thread continues");
    drop(other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_media_thread_that_panics_again_and_again_pauses_and_takes_calls_on_the_same_port() {
    let recorder = EventRecorder::default();
    let engine = start_engine_with_sink(
        1,
        Config::default(),
        FakeModels::ready(9),
        Arc::new(recorder.clone()),
    );
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let before = port_of_next_call(&engine, 1).await;
    let pauses = || engine.stats().map(|s| s.restart_pauses.load(Relaxed)).sum::<u64>();
    // Six panics within ten seconds cause a pause. If the machine stalls between two of them, it
    // takes more.
    let mut ids = 2..200;
    while pauses() == 0 {
        wait_for("it takes calls", || dead_threads(&engine) == 0).await;
        panic_media_thread(&engine, &recorder, ids.next().expect("it pauses finally")).await;
    }
    wait_for("it takes calls again", || dead_threads(&engine) == 0).await;
    assert_eq!(Engine::capacity_error(&*engine), None);
    assert_eq!(connect_over_udp(&engine, &recorder, 1_000).await, before);
    assert_eq!(
        *recorder.1.lock().unwrap(),
        (2..ids.start).collect::<Vec<_>>(),
        "each record is ended once"
    );
}

/// An event sink whose `call_panicked` panics while `is_failing` is set.
struct FailingEventSink {
    recorder: EventRecorder,
    is_failing: AtomicBool,
}

impl EventSink for FailingEventSink {
    fn record(&self, conversation: ConversationId, event: EventEnvelope) {
        self.recorder.record(conversation, event);
    }

    fn call_panicked(&self, conversation: ConversationId) {
        assert!(!self.is_failing.load(Relaxed), "the test's own panic");
        self.recorder.call_panicked(conversation);
    }
}

impl FailingEventSink {
    fn new(recorder: &EventRecorder) -> Arc<Self> {
        Arc::new(Self { recorder: recorder.clone(), is_failing: AtomicBool::new(true) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_media_thread_whose_restart_panics_takes_no_calls_until_one_succeeds() {
    let recorder = EventRecorder::default();
    let event_sink = FailingEventSink::new(&recorder);
    let engine = start_engine_with_sink(
        2,
        Config::default(),
        FakeModels::ready(9),
        Arc::clone(&event_sink) as _,
    );
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let first = port_of_next_call(&engine, 1).await;
    let _one = start_panicking_call(&engine, &recorder, 2).await;
    wait_for("its thread takes no calls", || dead_threads(&engine) == 1).await;
    // The other thread accepts calls.
    assert_eq!(Engine::capacity_error(&*engine), None);
    let failing = |dead| format!("media threads that have failed and are restarting: {dead} of 2");
    assert_eq!(Engine::degraded_reason(&*engine), Some(failing(1)));
    assert_ne!(port_of_next_call(&engine, 3).await, first);
    let _two = start_panicking_call(&engine, &recorder, 4).await;
    wait_for("no thread takes calls", || dead_threads(&engine) == 2).await;
    let failed = "the media threads have failed and are restarting";
    assert_eq!(Engine::capacity_error(&*engine).unwrap(), failed);
    assert_eq!(Engine::degraded_reason(&*engine), Some(failing(2)));
    let refused =
        engine.start_loopback_call(Arc::new(call_config(5)), Vec::new()).map(drop).unwrap_err();
    assert_eq!(refused, OfferError::NoCapacity(failed.into()));
    assert!(recorder.1.lock().unwrap().is_empty());
    event_sink.is_failing.store(false, Relaxed);
    wait_for("both take calls again", || dead_threads(&engine) == 0).await;
    let mut ended = recorder.1.lock().unwrap().clone();
    ended.sort_unstable();
    assert_eq!(ended, [2, 4], "their records are ended after all");
    assert_eq!((Engine::degraded_reason(&*engine), Engine::capacity_error(&*engine)), (None, None));
    wait_for("their slots are free", || engine.active_calls() == 0).await;
    assert_eq!(connect_over_udp(&engine, &recorder, 6).await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_media_thread_that_cannot_restart_ends_with_the_engine() {
    let recorder = EventRecorder::default();
    let event_sink = FailingEventSink::new(&recorder);
    let engine = start_engine_with_sink(
        1,
        Config::default(),
        FakeModels::ready(9),
        Arc::clone(&event_sink) as _,
    );
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    let client = start_panicking_call(&engine, &recorder, 1).await;
    wait_for("it takes no calls", || dead_threads(&engine) == 1).await;
    drop((engine, client));
    wait_for("its thread has ended", || Arc::strong_count(&event_sink) == 1).await;
}

#[tokio::test]
async fn a_failed_voice_is_reported_and_no_call_starts_until_it_works() {
    let models = FakeModels::ready(9);
    let (engine, _) = start_engine(Arc::clone(&models), Timeouts::default());
    wait_for("ready", || engine.not_ready_reason().is_none()).await;
    assert_eq!((engine.models_unavailable(), engine.degraded_reason()), (None, None));
    let reason = "the TTS threads have failed".to_owned();
    *models.tts_failure.lock().unwrap() = Some(reason.clone());
    assert_eq!(engine.models_unavailable().as_ref(), Some(&reason));
    assert_eq!(engine.degraded_reason().as_ref(), Some(&reason));
    let refused = Some(OfferError::NoCapacity(reason));
    let start_call = |id| engine.start_loopback_call(Arc::new(call_config(id)), Vec::new());
    assert_eq!(start_call(1).err(), refused);
    let (_client, sdp, _) = Client::offer();
    assert_eq!(engine.accept_offer(offer_for(2, &sdp)).await.err(), refused);
    assert_eq!(engine.active_calls(), 0);
    *models.tts_failure.lock().unwrap() = None;
    assert!(start_call(3).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_was_answered_before_a_drain_connects() {
    let (engine, recorder) = start_engine(FakeModels::ready(1), Timeouts::default());
    let (mut client, sdp, pending) = Client::offer();
    let accepted = engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    let draining = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.drain(Duration::from_secs(600)).await }
    });
    let (_late, sdp, _) = Client::offer();
    wait_for("the drain", || engine.reject_new_call().is_some()).await;
    engine.accept_offer(offer_for(2, &sdp)).await.unwrap_err();
    let answer = SdpAnswer::from_sdp_string(&accepted.answer).unwrap();
    client.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    let client = tokio::task::spawn_blocking(move || {
        client.run_until("the call runs", |c| c.packets() > 25);
        client
    });
    let client = client.await.unwrap();
    assert!(!draining.is_finished(), "a call runs");
    assert_eq!(
        engine.send_command(ConversationId(1), Command::Leave).await,
        Ok(CommandOutcome::Accepted)
    );
    draining.await.unwrap();
    assert_eq!(recorder.event_names(1).iter().filter(|n| *n == "joined").count(), 1);
    drop(client);
}

fn line_for(id: u128, sample_rate: u32) -> AudioOffer {
    let call = CallConfig { reconnect_timeout: Some(Duration::from_secs(60)), ..call_config(id) };
    AudioOffer {
        config: Arc::new(call),
        commands: Vec::new(),
        input_rate: sample_rate,
        output_rate: sample_rate,
    }
}

fn line_error(result: Result<Box<dyn AudioLine>, OfferError>) -> OfferError {
    result.err().expect("it is rejected")
}

#[tokio::test]
async fn a_line_takes_a_decoder_and_a_missing_one_is_reported() {
    let models = FakeModels::ready(1);
    let (engine, recorder) = start_engine(Arc::clone(&models), Timeouts::default());
    let mut line = engine.open_audio(line_for(1, 16_000)).await.unwrap();
    assert!(line.exchange(&[0; 320], &mut Vec::new()));
    assert_eq!((engine.active_calls(), *models.free_decoders.lock().unwrap()), (1, 0));
    wait_for("joined", || recorder.event_names(1).contains(&"joined".to_owned())).await;
    let refused = line_error(engine.open_audio(line_for(2, 16_000)).await);
    assert_eq!(refused, OfferError::NoCapacity("all decoders are in use".into()));
    assert_eq!(engine.active_calls(), 1, "the rejected call holds nothing");
    for rate in [0, 7_999, 48_001, 96_000] {
        let refused = line_error(engine.open_audio(line_for(3, rate)).await);
        assert!(matches!(refused, OfferError::NotAcceptable(_)), "{rate}: {refused:?}");
    }
    for rate in [8_000, 22_050, 24_000, 44_100, 48_000] {
        let mut next = engine.open_audio(line_for(1, rate)).await.unwrap();
        let mut spoken = Vec::new();
        wait_for_hang_up(&mut *line).await;
        assert!(next.exchange(&[0; 160], &mut spoken), "{rate}");
        line = next;
    }
    assert_eq!(engine.active_calls(), 1);
    let names = recorder.event_names(1);
    assert_eq!(names.iter().filter(|n| *n == "joined").count(), 1, "{names:?}");
    let end = engine.send_command(ConversationId(1), Command::End).await;
    assert_eq!(end, Ok(CommandOutcome::Accepted));
    wait_for_hang_up(&mut *line).await;
    wait_for("the decoder is free", || *models.free_decoders.lock().unwrap() == 1).await;
}

async fn wait_for_hang_up(line: &mut dyn AudioLine) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    while line.exchange(&[0; 320], &mut Vec::new()) {
        ticks.tick().await;
    }
}

#[tokio::test]
async fn a_line_is_rejected_where_an_offer_is() {
    let (models, gate) = FakeModels::gated();
    let (engine, _) = start_engine(models, Timeouts::default());
    gate.send(Err("the speech detector's weights are not installed".into())).unwrap();
    let refused = line_error(engine.open_audio(line_for(1, 16_000)).await);
    let missing = "the speech detector's weights are not installed";
    assert_eq!(refused, OfferError::NoCapacity(missing.into()));

    let (engine, _) = start_engine_with_limit(1, FakeModels::ready(4), Timeouts::default());
    let _line = engine.open_audio(line_for(1, 16_000)).await.unwrap();
    let refused = line_error(engine.open_audio(line_for(2, 16_000)).await);
    assert_eq!(refused, OfferError::NoCapacity("the server is full".into()));

    let models = FakeModels::ready(1);
    let (engine, _) = start_engine(Arc::clone(&models), Timeouts::default());
    models.panics.store(true, Relaxed);
    let refused = line_error(engine.open_audio(line_for(1, 16_000)).await);
    assert_eq!(refused, OfferError::NoCapacity("the setup of the call panicked".into()));
    assert_eq!((engine.active_calls(), *models.free_decoders.lock().unwrap()), (0, 1));
    engine.drain(Duration::from_secs(30)).await; // no call runs: returns at once
    let refused = line_error(engine.open_audio(line_for(1, 16_000)).await);
    assert_eq!(refused, OfferError::NoCapacity("the server is shutting down".into()));
}

#[tokio::test]
async fn a_line_and_webrtc_take_over_from_each_other() {
    let (engine, recorder) = start_engine(FakeModels::ready(1), Timeouts::default());
    let mut line = engine.open_audio(line_for(1, 24_000)).await.unwrap();
    let (client, sdp, pending) = Client::offer();
    let taken = engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    // The server says that it hangs up over the channel.
    let is_up = |c: &Client| c.packets() > 0 && c.channel.is_some();
    let client = connect((client, pending), &taken, "its voice", is_up).await;
    wait_for_hang_up(&mut *line).await;
    let mut line = engine.open_audio(line_for(1, 24_000)).await.unwrap();
    let has_left = |c: &Client| c.texts().iter().any(|t| t.contains("peerLeft"));
    run_until(client, "it is hung up", has_left).await;
    assert!(line.exchange(&[0; 480], &mut Vec::new()));
    assert_eq!(engine.active_calls(), 1);
    assert_eq!(recorder.event_names(1).iter().filter(|n| *n == "joined").count(), 1);
}

#[tokio::test]
async fn a_line_joins_an_offer_that_has_not_connected() {
    let models = FakeModels::ready(1);
    let (engine, recorder) = start_engine(Arc::clone(&models), Timeouts::default());
    let (_client, sdp, _pending) = Client::offer();
    engine.accept_offer(offer_for(1, &sdp)).await.unwrap();
    let mut line = engine.open_audio(line_for(1, 24_000)).await.unwrap();
    assert!(line.exchange(&[0; 480], &mut Vec::new()));
    wait_for("joined", || recorder.event_names(1).contains(&"joined".to_owned())).await;

    let (_client, sdp, _pending) = Client::offer();
    *models.free_decoders.lock().unwrap() = 1;
    engine.accept_offer(offer_for(2, &sdp)).await.unwrap();
    *models.free_decoders.lock().unwrap() = 0;
    let refused = line_error(engine.open_audio(line_for(2, 24_000)).await);
    assert_eq!(refused, OfferError::NoCapacity("No capacity".into()));
}
