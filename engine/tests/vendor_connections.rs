//! When the connections to vendors are opened and closed, with a client over UDP.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::event::{Event, Stage};
use conversation::id::ConversationId;
use engine::hear::vad::Vad;
use engine::show::Avatars;
use engine::{CallEngine, Config, Models, Timeouts, WithWarning};
use engine_api::{
    AcceptedOffer, Caller, Engine as _, HangUp, LlmChoice, Offer, SttChoice, TtsChoice,
};
use models::{Error, Handle, Sink, llm, stt, tts};
use str0m::change::SdpPendingOffer;
use support::udp_client::{Client, connect, run_until, wait_for};
use support::{EventRecorder, LoudnessVad, call_config};

/// What was opened so far, and what is open.
#[derive(Default)]
struct Counts {
    opened: AtomicUsize,
    closed: AtomicUsize,
}

impl Counts {
    fn open(self: &Arc<Self>) -> OpenGuard {
        self.opened.fetch_add(1, Relaxed);
        OpenGuard(Arc::clone(self))
    }

    fn open_count(&self) -> usize {
        self.opened.load(Relaxed) - self.closed.load(Relaxed)
    }
}

struct OpenGuard(Arc<Counts>);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}

/// Models of a vendor.
#[derive(Default)]
struct VendorModels {
    stt: Arc<Counts>,
    tts: Arc<Counts>,
    /// The voices with which the TTS was opened.
    voices: Arc<Mutex<Vec<String>>>,
    warm_ups: Arc<AtomicUsize>,
    started_calls: Arc<AtomicUsize>,
    /// Whether the STT is one of this server: it takes a decoder.
    stt_is_local: bool,
    /// Whether the next opening of the STT panics.
    panics: Arc<AtomicBool>,
}

impl VendorModels {
    fn opened(&self) -> (usize, usize, usize) {
        let (stt, tts) = (self.stt.opened.load(Relaxed), self.tts.opened.load(Relaxed));
        (stt, tts, self.warm_ups.load(Relaxed))
    }

    fn open(&self) -> (usize, usize) {
        (self.stt.open_count(), self.tts.open_count())
    }
}

struct VendorStt {
    counts: Arc<Counts>,
    started_calls: Arc<AtomicUsize>,
    is_local: bool,
    panics: Arc<AtomicBool>,
}

struct VendorStream {
    _guard: OpenGuard,
    started_calls: Arc<AtomicUsize>,
}

impl stt::Stt for VendorStt {
    /// The stream reports a use of three seconds at once, before the call starts.
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn stt::SttStream>, Error> {
        assert!(!self.panics.swap(false, Relaxed), "the test's own panic");
        let connected = Duration::from_secs(3);
        sink.send(stt::Event::Usage(stt::Usage {
            provider: "deepgram",
            connected,
            ..stt::Usage::default()
        }));
        let (guard, started_calls) = (self.counts.open(), Arc::clone(&self.started_calls));
        Ok(Box::new(VendorStream { _guard: guard, started_calls }))
    }

    fn connects_on_open(&self) -> bool {
        !self.is_local
    }
}

impl stt::SttStream for VendorStream {
    fn start_call(&mut self) {
        self.started_calls.fetch_add(1, Relaxed);
    }
    fn start_speech(&mut self) {}
    fn push_audio(&mut self, _: &[i16]) {}
    fn end_speech(&mut self) {}
}

struct VendorTts(Arc<Counts>, Arc<Mutex<Vec<String>>>, Option<OpenGuard>);

impl tts::Tts for VendorTts {
    fn speak(&self, _: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, Error> {
        sink.send(tts::Event::End);
        Ok(Handle::noop())
    }

    fn open_call(&self, like: &tts::Request) -> Option<Arc<dyn tts::Tts>> {
        assert!(self.2.is_none(), "it was opened already");
        self.1.lock().unwrap().push(like.voice.clone());
        Some(Arc::new(Self(Arc::clone(&self.0), Arc::clone(&self.1), Some(self.0.open()))))
    }
}

struct VendorLlm(Arc<AtomicUsize>);

impl llm::Llm for VendorLlm {
    fn ask(&self, _: llm::Request, _: Sink<llm::Event>) -> Handle {
        Handle::noop()
    }

    fn warm_up(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Models for VendorModels {
    fn load(&self) -> Result<(), String> {
        Ok(())
    }

    fn vad(&self) -> Result<Box<dyn Vad>, String> {
        Ok(Box::new(LoudnessVad))
    }

    fn stt(&self, _: &SttChoice) -> WithWarning<Result<Arc<dyn stt::Stt>, Error>> {
        let (counts, started_calls) = (Arc::clone(&self.stt), Arc::clone(&self.started_calls));
        let (is_local, panics) = (self.stt_is_local, Arc::clone(&self.panics));
        (Ok(Arc::new(VendorStt { counts, started_calls, is_local, panics })), None)
    }

    fn llm(&self, _: &LlmChoice, _: &str, _: bool) -> WithWarning<Arc<dyn llm::Llm>> {
        (Arc::new(VendorLlm(Arc::clone(&self.warm_ups))), None)
    }

    fn tts(&self, _: &TtsChoice) -> WithWarning<Result<Arc<dyn tts::Tts>, Error>> {
        (Ok(Arc::new(VendorTts(Arc::clone(&self.tts), Arc::clone(&self.voices), None))), None)
    }
}

struct Server {
    engine: Arc<CallEngine>,
    models: Arc<VendorModels>,
    recorder: EventRecorder,
}

/// A client that sends STUN checks only, with its offer and the answer to it.
type Checking = ((Client, SdpPendingOffer), AcceptedOffer);

impl Server {
    async fn start(models: VendorModels, config: Config) -> Self {
        let (models, recorder) = (Arc::new(models), EventRecorder::default());
        let config = Config { threads: 1, host_addresses: vec![[127, 0, 0, 1].into()], ..config };
        let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
        let engine = CallEngine::start(
            config,
            Arc::clone(&models) as _,
            Avatars::default(),
            client,
            Arc::new(recorder.clone()),
            tokio::runtime::Handle::current(),
        )
        .unwrap();
        wait_for("ready", || engine.not_ready_reason().is_none()).await;
        Self { engine, models, recorder }
    }

    /// Gets an offer for conversation 1.
    async fn offer(&self) -> Checking {
        let (mut client, sdp, pending) = Client::offer();
        client.withholds_dtls = true;
        let mut config = call_config(1);
        config.tts.voice_id = "agent-voice".to_owned();
        let offer = Offer {
            config: Arc::new(config),
            sdp,
            replaces: None,
            restart: false,
            commands: Vec::new(),
            caller: Caller::default(),
        };
        let accepted = self.engine.accept_offer(offer).await.unwrap();
        ((client, pending), accepted)
    }

    /// Runs a client until the TTS, which is opened after the STT, has been opened.
    async fn check(&self, (client, accepted): Checking) -> Client {
        let models = Arc::clone(&self.models);
        let is_open = move |_: &Client| models.opened().1 > 0;
        let client = connect(client, &accepted, "an open connection", is_open).await;
        assert!(!client.events.iter().any(|e| matches!(e, str0m::Event::Connected)));
        client
    }

    fn pending_offers(&self) -> u64 {
        let families = self.engine.metrics();
        let family = families.iter().find(|f| f.name == "visavis_offers_pending").unwrap();
        match family.points[0].value {
            engine_api::metrics::MetricValue::Count(count) => count,
            _ => panic!("{family:?} counts nothing"),
        }
    }
}

/// Completes DTLS, and runs the client until `enough` holds.
async fn join(mut client: Client, what: &'static str, enough: fn(&Client) -> bool) -> Client {
    client.withholds_dtls = false;
    run_until(client, what, enough).await
}

fn hears(client: &Client) -> bool {
    client.packets() > 0
}

fn is_rejected(client: &Client) -> bool {
    let texts = client.texts();
    let has = |what: &str| texts.iter().any(|text| text.contains(what));
    has("No capacity") && has("peerLeft")
}

#[tokio::test]
async fn connections_are_opened_once_before_dtls_is_complete_and_closed_with_the_call() {
    let server = Server::start(VendorModels::default(), Config::default()).await;
    let (first, second) = (server.offer().await, server.offer().await);
    let connection = first.1.connection.clone();
    assert_eq!(server.models.opened(), (0, 0, 0), "offers alone");
    let client = server.check(first).await;
    // The second one repeats its checks, which are answered, as long as the first one connects.
    let checked = |c: &Client| {
        c.events.iter().any(
            |e| matches!(e, str0m::Event::IceConnectionStateChange(state) if state.is_connected()),
        )
    };
    let (second, accepted) = second;
    let _second = connect(second, &accepted, "a second client with a check", checked).await;
    assert_eq!((server.engine.active_calls(), server.models.open()), (0, (1, 1)), "no slot yet");
    assert!(server.recorder.events_of(1).is_empty());

    let client = join(client, "its voice", hears).await;
    assert_eq!(server.engine.active_calls(), 1);
    assert_eq!((server.models.opened(), server.models.open()), ((1, 1, 1), (1, 1)));
    assert_eq!(*server.models.voices.lock().unwrap(), ["agent-voice"]);
    assert_eq!(server.models.started_calls.load(Relaxed), 1);
    assert_eq!(server.engine.hang_up(ConversationId(1), connection).await, HangUp::Closed);
    drop(client);
    wait_for("the end of the call", || server.engine.active_calls() == 0).await;
    wait_for("closed connections", || server.models.open() == (0, 0)).await;
    assert_eq!(server.models.opened(), (1, 1, 1));
    let events = server.recorder.events_of(1);
    let seconds = events.iter().find_map(|envelope| match &envelope.event {
        Event::ProviderUsage(usage) if usage.kind == Stage::Stt => {
            Some(usage.amounts.connected_seconds)
        }
        _ => None,
    });
    assert_eq!(seconds, Some(3.0), "the use before the start of the call counts");
}

#[tokio::test]
async fn an_offer_whose_client_sends_no_check_opens_nothing() {
    let timeouts = Timeouts { offer: Duration::from_millis(200), ..Timeouts::default() };
    let config = Config { timeouts, ..Config::default() };
    let server = Server::start(VendorModels::default(), config).await;
    let _client = server.offer().await;
    wait_for("it is dropped", || server.pending_offers() == 0).await;
    assert_eq!(server.models.opened(), (0, 0, 0));
}

#[tokio::test]
async fn the_connections_of_a_client_that_vanishes_after_its_check_are_closed() {
    let timeouts = Timeouts { offer: Duration::from_secs(3), ..Timeouts::default() };
    let config = Config { timeouts, ..Config::default() };
    let server = Server::start(VendorModels::default(), config).await;
    let checking = server.offer().await;
    drop(server.check(checking).await);
    wait_for("closed connections", || server.models.open() == (0, 0)).await;
    assert_eq!((server.models.opened(), server.pending_offers()), ((1, 1, 1), 0));
    assert!(server.recorder.events_of(1).is_empty(), "there was no call");
}

#[tokio::test]
async fn a_decoder_of_this_server_is_taken_only_when_dtls_is_complete() {
    let models = VendorModels { stt_is_local: true, ..VendorModels::default() };
    let server = Server::start(models, Config::default()).await;
    let checking = server.offer().await;
    let client = server.check(checking).await;
    assert_eq!(server.models.opened(), (0, 1, 1));
    join(client, "its voice", hears).await;
    assert_eq!(server.models.opened(), (1, 1, 1));
}

#[tokio::test]
async fn a_call_that_is_rejected_after_its_check_closes_its_connections() {
    let server =
        Server::start(VendorModels::default(), Config { max_calls: 1, ..Config::default() }).await;
    let checking = server.offer().await;
    let client = server.check(checking).await;
    let _other =
        server.engine.start_loopback_call(Arc::new(call_config(2)), Vec::new()).expect("a slot");
    assert_eq!(server.models.open(), (2, 2));
    join(client, "it is turned away", is_rejected).await;
    assert_eq!(server.models.open(), (1, 1), "those of the other call");
    assert_eq!(server.models.opened(), (2, 2, 2));
}

#[tokio::test]
async fn a_client_of_a_full_server_opens_nothing() {
    let server =
        Server::start(VendorModels::default(), Config { max_calls: 1, ..Config::default() }).await;
    let ((mut client, pending), accepted) = server.offer().await;
    let _other =
        server.engine.start_loopback_call(Arc::new(call_config(2)), Vec::new()).expect("a slot");
    client.withholds_dtls = false;
    connect((client, pending), &accepted, "it is turned away", is_rejected).await;
    assert_eq!(server.models.opened(), (1, 1, 1), "those of the other call");
}

#[tokio::test]
async fn a_panic_while_connections_are_opened_does_not_reject_the_call() {
    let server = Server::start(VendorModels::default(), Config::default()).await;
    server.models.panics.store(true, Relaxed);
    let ((client, pending), accepted) = server.offer().await;
    let panics = Arc::clone(&server.models.panics);
    let has_panicked = move |_: &Client| !panics.load(Relaxed);
    let client = connect((client, pending), &accepted, "a panic", has_panicked).await;
    join(client, "its voice", hears).await;
    assert_eq!((server.models.opened(), server.models.open()), ((1, 1, 1), (1, 1)));
}
