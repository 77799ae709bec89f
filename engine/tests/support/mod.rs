//! A media thread in virtual time, with scripted models. Nothing here sleeps or reads a clock.

#![allow(dead_code, missing_docs, unreachable_pub)] // each test file uses a part of it

pub mod livekit_room;
pub mod udp_client;
pub mod virtual_client;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::settings::AgentTurnConfig;
use engine::channel::Sender;
use engine::context::{EngineContext, PresenceGuard, Slot};
use engine::hear::vad::{NetworkState, Vad, WINDOW};
use engine::latency::LatencyMetrics;
use engine::media_thread::{Inbox, MediaThread};
use engine::messages::{
    CallId, CallModels, CallSetup, ConnectedCall, LineRequest, LoopbackCall, Message, NewCall,
    OfferReply, OfferRequest, PrepareCall, RoomRequest, ThreadResources,
};
use engine::recorder::{self, Recorder};
use engine::show::pose_cache::PoseCache;
use engine::stats::ThreadStats;
use engine::transport::ConnectionReply;
use engine::transport::audio_line::{self, Line};
use engine::transport::livekit::room_peer::RoomPeer;
use engine::transport::livekit::room_socket::RoomSocket;
use engine::transport::loopback::{self, LoopbackClient, LoopbackOutput};
use engine::transport::socket::Socket;
use engine::transport::tcp;
use engine::transport::webrtc::{Certificate, LocalCandidate};
use engine_api::{AcceptedOffer, CallConfig, EventSink};
use models::face::PoseSet;
use models::turn::{TurnModel, TurnRequest};
use models::{Handle, Sink, llm, stt, tts};

/// An action that is due at an instant of virtual time.
type Action = Box<dyn FnOnce() + Send>;

/// Virtual time, and the scheduled actions of the scripted models.
#[derive(Clone)]
pub struct VirtualTime(Arc<Mutex<VirtualTimeState>>);

struct VirtualTimeState {
    now: Instant,
    next_number: u64,
    actions: BTreeMap<(Instant, u64), Action>,
}

impl VirtualTime {
    fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(VirtualTimeState {
            now,
            next_number: 0,
            actions: BTreeMap::new(),
        })))
    }

    pub fn schedule_after(&self, delay: Duration, deed: impl FnOnce() + Send + 'static) {
        let mut inner = self.0.lock().unwrap();
        let key = (inner.now + delay, inner.next_number);
        inner.next_number += 1;
        inner.actions.insert(key, Box::new(deed));
    }

    fn next_at(&self) -> Option<Instant> {
        self.0.lock().unwrap().actions.keys().next().map(|(at, _)| *at)
    }

    fn advance(&self, now: Instant) {
        self.0.lock().unwrap().now = now;
        loop {
            let deed = {
                let mut inner = self.0.lock().unwrap();
                match inner.actions.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => return,
                }
            };
            deed();
        }
    }
}

/// A setup that is ready when it is requested.
struct PreparedSetup {
    setup: Option<Box<CallSetup>>,
    stage_events: Sender<Message>,
}

impl PrepareCall for PreparedSetup {
    fn open_connections(&mut self) {}

    fn request_setup(&mut self) {
        let setup = self.setup.take().ok_or_else(|| "it was opened already".to_owned());
        let key = setup.as_ref().map_or(CallId(0), |setup| setup.id);
        assert!(self.stage_events.send(Message::CallSetup(key, setup)).is_ok());
    }
}

/// A VAD for which loud audio is speech.
pub struct LoudnessVad;

impl Vad for LoudnessVad {
    fn infer(
        &mut self,
        _: &mut [&mut NetworkState],
        windows: &[&[f32; WINDOW]],
        probabilities: &mut [f32],
    ) {
        for (window, p) in windows.iter().zip(probabilities) {
            let power = window.iter().map(|s| s * s).sum::<f32>() / WINDOW as f32;
            *p = if power > 0.01 { 0.95 } else { 0.02 };
        }
    }
}

/// Returns its script: one text for each speech segment, 25 ms after the end of the segment. At
/// [`PANIC_TEXT`] it panics on the calling thread.
pub struct ScriptedStt {
    pub time: VirtualTime,
    pub script: Vec<&'static str>,
    pub open_streams: Arc<Mutex<usize>>,
}

/// A text that no user says.
pub const PANIC_TEXT: &str = "!panic";
/// Begins a text that the STT sends as a warning.
pub const WARNING_PREFIX: &str = "!warning ";

struct ScriptedStream {
    time: VirtualTime,
    script: std::vec::IntoIter<&'static str>,
    sink: Sink<stt::Event>,
    open_streams: Arc<Mutex<usize>>,
}

impl stt::Stt for ScriptedStt {
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn stt::SttStream>, models::Error> {
        *self.open_streams.lock().unwrap() += 1;
        let script = self.script.clone().into_iter();
        Ok(Box::new(ScriptedStream {
            time: self.time.clone(),
            script,
            sink,
            open_streams: Arc::clone(&self.open_streams),
        }))
    }
}

impl stt::SttStream for ScriptedStream {
    fn start_speech(&mut self) {}
    fn push_audio(&mut self, _: &[i16]) {}
    fn end_speech(&mut self) {
        assert_ne!(self.script.as_slice().first(), Some(&PANIC_TEXT), "the test's own panic");
        let (text, sink) = (self.script.next().unwrap_or_default().to_owned(), self.sink.clone());
        self.time.schedule_after(Duration::from_millis(25), move || {
            sink.send(match text.strip_prefix(WARNING_PREFIX) {
                Some(warning) => stt::Event::Warning(warning.to_owned()),
                None => stt::Event::Final(text),
            });
        });
    }
}

impl Drop for ScriptedStream {
    fn drop(&mut self) {
        *self.open_streams.lock().unwrap() -= 1;
    }
}

/// Answers everything with one text, word by word: the first after 5 ms, then one every 2 ms. The
/// check of a text that contains a guardrail's key reports after 300 ms that the guardrail fires.
pub struct ScriptedLlm {
    pub time: VirtualTime,
    pub answer: String,
}

impl llm::Llm for ScriptedLlm {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let mut at = Duration::from_millis(5);
        for word in self.answer.split_inclusive(' ') {
            let (word, sink) = (word.to_owned(), sink.clone());
            self.time.schedule_after(at, move || sink.send(llm::Event::Text(word)));
            at += Duration::from_millis(2);
        }
        let end = llm::Event::End { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 1 };
        self.time.schedule_after(at, move || sink.send(end));
        Handle::noop()
    }

    fn check_guardrails(
        &self,
        check: llm::guardrails::GuardrailCheck,
    ) -> llm::guardrails::GuardrailFuture {
        let (tell, verdict) = tokio::sync::oneshot::channel();
        let broken = check
            .rules
            .iter()
            .find(|rule| check.user_text.contains(&rule.key))
            .map(|rule| rule.key.clone());
        self.time.schedule_after(Duration::from_millis(300), move || drop(tell.send(broken)));
        Box::pin(async move { Ok(verdict.await.unwrap_or_default()) })
    }
}

/// Returns 0.3 s of audio per word at 48 kHz, 16 ms after the request. Every sample encodes its own
/// position in the segment ([`sample_at`]).
pub struct ScriptedTts {
    pub time: VirtualTime,
}

/// The sample at a position of any segment: never silent, and different within 30,000 samples
/// (0.625 s).
pub fn sample_at(position: u64) -> i16 {
    (position % 30_000) as i16 + 1_000
}

pub const WORD_DURATION: Duration = Duration::from_millis(300);

impl tts::Tts for ScriptedTts {
    fn speak(
        &self,
        request: tts::Request,
        sink: Sink<tts::Event>,
    ) -> Result<Handle, models::Error> {
        let words = request.text.split_whitespace().count() as u64;
        let samples = words * WORD_DURATION.as_micros() as u64 * 48 / 1_000;
        self.time.schedule_after(Duration::from_millis(16), move || {
            let pcm = (0..samples).map(sample_at).collect();
            sink.send(tts::Event::Audio { pcm, sample_rate: 48_000 });
            sink.send(tts::Event::End);
        });
        Ok(Handle::noop())
    }
}

/// Returns its script: for each question one P(turn is over) after a delay, or no answer.
#[derive(Clone)]
pub struct ScriptedTurnModel {
    pub time: VirtualTime,
    pub span: Duration,
    pub script: Vec<Option<(Duration, f32)>>,
    pub questions: Arc<Mutex<Vec<TurnRequest>>>,
    /// Numbers of the questions whose handle was dropped: withdrawn, or answered and finished.
    pub withdrawn: Arc<Mutex<Vec<usize>>>,
}

impl ScriptedTurnModel {
    pub fn new(time: VirtualTime, script: &[Option<(Duration, f32)>]) -> Self {
        Self {
            time,
            span: Duration::from_secs(8),
            script: script.to_vec(),
            questions: Arc::default(),
            withdrawn: Arc::default(),
        }
    }
}

impl TurnModel for ScriptedTurnModel {
    fn prepare(&self) -> Result<(), models::Error> {
        Ok(())
    }

    fn max_audio(&self) -> Duration {
        self.span
    }

    fn predict(&self, question: TurnRequest, answer: Sink<f32>) -> Handle {
        let mut asked = self.questions.lock().unwrap();
        let number = asked.len();
        asked.push(question);
        if let Some((delay, p)) = self.script.get(number).copied().flatten() {
            // Sent even if the question was withdrawn: a real model may already be processing it.
            self.time.schedule_after(delay, move || answer.send(p));
        }
        let withdrawn = Arc::clone(&self.withdrawn);
        Handle::new(move || withdrawn.lock().unwrap().push(number))
    }
}

/// Records events, and the calls that panicked.
#[derive(Clone, Default)]
pub struct EventRecorder(
    pub Arc<Mutex<Vec<(ConversationId, EventEnvelope)>>>,
    pub Arc<Mutex<Vec<u128>>>,
);

impl EventSink for EventRecorder {
    fn record(&self, conversation: ConversationId, event: EventEnvelope) {
        self.0.lock().unwrap().push((conversation, event));
    }

    fn call_panicked(&self, conversation: ConversationId) {
        self.1.lock().unwrap().push(conversation.0);
    }
}

impl EventRecorder {
    /// The events of one call.
    pub fn events_of(&self, id: u128) -> Vec<EventEnvelope> {
        self.0.lock().unwrap().iter().filter(|(c, _)| c.0 == id).map(|(_, f)| f.clone()).collect()
    }

    /// Time of the first event that matches, in seconds of the call.
    pub fn time_of(&self, id: u128, wanted: impl Fn(&Event) -> bool) -> Option<f64> {
        self.events_of(id).iter().find(|f| wanted(&f.event)).map(|f| f.at.as_seconds())
    }

    /// Names of the events, in order.
    pub fn event_names(&self, id: u128) -> Vec<String> {
        let name = |f: &EventEnvelope| {
            serde_json::to_value(&f.event).unwrap()["what"].as_str().unwrap().to_owned()
        };
        self.events_of(id).iter().map(name).collect()
    }
}

/// One media thread in virtual time.
pub struct Harness {
    pub time: VirtualTime,
    pub media_thread: MediaThread,
    pub inbox: Inbox,
    pub stats: Arc<ThreadStats>,
    pub latencies: Arc<LatencyMetrics>,
    pub recorder: EventRecorder,
    /// Records the calls.
    pub call_recorder: Option<Recorder>,
    pub start: Instant,
    pub now: Instant,
    pub open_streams: Arc<Mutex<usize>>,
    /// The turn model of calls that start from now on.
    pub turn_model: Option<Arc<dyn TurnModel>>,
    /// The avatar of calls that start from now on.
    pub pose_set: Option<Arc<PoseSet>>,
    runtime: tokio::runtime::Runtime,
    next_call_id: u64,
}

impl Harness {
    pub fn new() -> Self {
        Self::build(Box::new(LoudnessVad), None, None, None, 0.0)
    }

    /// A harness with a socket of its own, which clients use in virtual time: a datagram over
    /// loopback arrives at once.
    pub fn with_socket(socket: Socket) -> Self {
        Self::build(Box::new(LoudnessVad), None, None, Some((socket, None)), 0.0)
    }

    /// A harness with a socket and with the ICE-TCP server of these candidates.
    pub fn with_tcp(
        socket: Socket,
        sender: tcp::DatagramSender,
        candidates: Vec<LocalCandidate>,
    ) -> Self {
        Self::build(
            Box::new(LoudnessVad),
            None,
            None,
            Some((socket, Some((sender, candidates)))),
            0.0,
        )
    }

    /// A harness whose clients may type this number of questions per second.
    pub fn with_question_limit(questions: f64) -> Self {
        Self::build(Box::new(LoudnessVad), None, None, None, questions)
    }

    /// A harness with another VAD.
    pub fn with_vad(vad: Box<dyn Vad>) -> Self {
        Self::build(vad, None, None, None, 0.0)
    }

    /// A harness whose traced calls write to `trace`.
    pub fn with_trace(trace: engine::channel::Sender<engine::trace::TraceMessage>) -> Self {
        Self::build(Box::new(LoudnessVad), Some(trace), None, None, 0.0)
    }

    /// A harness that records calls.
    pub fn with_recorder(recorder: Recorder) -> Self {
        Self::build(Box::new(LoudnessVad), None, Some(recorder), None, 0.0)
    }

    /// A harness with a socket of its own that records calls.
    pub fn with_socket_and_recorder(socket: Socket, recorder: Recorder) -> Self {
        Self::build(Box::new(LoudnessVad), None, Some(recorder), Some((socket, None)), 0.0)
    }

    fn build(
        vad: Box<dyn Vad>,
        trace: Option<engine::channel::Sender<engine::trace::TraceMessage>>,
        call_recorder: Option<Recorder>,
        network: Option<(Socket, Option<tcp::IceTcp>)>,
        questions: f64,
    ) -> Self {
        let start = engine::clock::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let recorder = EventRecorder::default();
        let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
        let latencies = Arc::<LatencyMetrics>::default();
        let context = Arc::new(EngineContext {
            runtime: runtime.handle().clone(),
            http_client: client,
            event_sink: Arc::new(recorder.clone()),
            trace,
            recorder: call_recorder.clone(),
            timeouts: engine::Timeouts::default(),
            latencies: Arc::clone(&latencies),
            max_load: 0.0,
            max_questions_per_second: questions,
        });
        let (media_thread, inbox, stats) = match network {
            Some((socket, tcp)) => MediaThread::new(socket, tcp, context, start).unwrap(),
            None => MediaThread::without_network(context, start),
        };
        let certificate = Arc::new(Certificate::generate().unwrap());
        let ready = Message::Ready(Box::new(ThreadResources { certificate, vad }));
        assert!(inbox.requests.send(ready).is_ok());
        let streams = Arc::default();
        Self {
            time: VirtualTime::new(start),
            media_thread,
            inbox,
            stats,
            latencies,
            recorder,
            call_recorder,
            start,
            now: start,
            open_streams: streams,
            turn_model: None,
            pose_set: None,
            runtime,
            next_call_id: 1,
        }
    }

    /// Starts a call of an agent that answers everything with `answer`. The user's speech segments
    /// have the texts of `script`.
    pub fn start_call(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        answer: &str,
    ) -> LoopbackClient {
        let speaker = Arc::new(ScriptedTts { time: self.time.clone() });
        self.start_call_with_tts(call, script, answer, speaker, None)
    }

    /// Like [`Self::start_call`], with TTS engines of its own.
    pub fn start_call_with_tts(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        answer: &str,
        tts: Arc<dyn tts::Tts>,
        tts_fallback: Option<Arc<dyn tts::Tts>>,
    ) -> LoopbackClient {
        let llm = Arc::new(ScriptedLlm { time: self.time.clone(), answer: answer.to_owned() });
        self.start_loopback_call(call, script, llm, tts, tts_fallback)
    }

    /// Starts a call of an agent with `llm`.
    pub fn start_call_with_llm(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        llm: Arc<dyn llm::Llm>,
    ) -> LoopbackClient {
        let speaker = Arc::new(ScriptedTts { time: self.time.clone() });
        self.start_loopback_call(call, script, llm, speaker, None)
    }

    fn start_loopback_call(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        llm: Arc<dyn llm::Llm>,
        tts: Arc<dyn tts::Tts>,
        tts_fallback: Option<Arc<dyn tts::Tts>>,
    ) -> LoopbackClient {
        let stt = self.scripted_stt(script);
        let setup = self.call_setup(call, &stt, llm, tts, tts_fallback);
        self.start_setup(setup)
    }

    /// Starts a call of an agent with these models.
    pub fn start_call_with_models(
        &mut self,
        call: CallConfig,
        stt: &dyn stt::Stt,
        llm: Arc<dyn llm::Llm>,
        tts: Arc<dyn tts::Tts>,
    ) -> LoopbackClient {
        let setup = self.call_setup(call, stt, llm, tts, None);
        self.start_setup(setup)
    }

    fn start_setup(&mut self, setup: CallSetup) -> LoopbackClient {
        let (server, client) = loopback::pair();
        let begins = LoopbackCall {
            setup: Box::new(setup),
            early_commands: Vec::new(),
            server,
            presence: PresenceGuard::default(),
        };
        assert!(self.inbox.requests.send(Message::Loopback(Box::new(begins))).is_ok());
        client
    }

    /// Like [`Self::start_call`], with a connection that carries samples at `rate`.
    pub fn start_line(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        answer: &str,
        rate: u32,
    ) -> Line {
        let tts = Arc::new(ScriptedTts { time: self.time.clone() });
        self.start_line_at(call, script, answer, tts, rate)
    }

    /// Like [`Self::start_line`] at 16 kHz, with a TTS engine of its own.
    pub fn start_line_with_tts(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        answer: &str,
        tts: Arc<dyn tts::Tts>,
    ) -> Line {
        self.start_line_at(call, script, answer, tts, 16_000)
    }

    fn start_line_at(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        answer: &str,
        tts: Arc<dyn tts::Tts>,
        rate: u32,
    ) -> Line {
        let id = call.id;
        let llm = Arc::new(ScriptedLlm { time: self.time.clone(), answer: answer.to_owned() });
        let stt = self.scripted_stt(script);
        let new_call = ConnectedCall {
            setup: Box::new(self.call_setup(call, &stt, llm, tts, None)),
            early_commands: Vec::new(),
            presence: PresenceGuard::default(),
        };
        let (line, reply) = self.send_line(id, Some(new_call), rate);
        assert_eq!(reply, ConnectionReply::Accepted);
        line
    }

    /// A further connection for a call; returns what became of it, too.
    pub fn open_line(&mut self, id: u128, rate: u32) -> (Line, ConnectionReply) {
        self.send_line(ConversationId(id), None, rate)
    }

    fn send_line(
        &mut self,
        conversation: ConversationId,
        new_call: Option<ConnectedCall>,
        rate: u32,
    ) -> (Line, ConnectionReply) {
        let (server, line, mut reply) = audio_line::pair(rate, rate).unwrap();
        let request = LineRequest { conversation, server, new_call: new_call.map(Box::new) };
        assert!(self.inbox.requests.send(Message::Line(Box::new(request))).is_ok());
        self.step_until_idle();
        (line, reply.try_recv().unwrap())
    }

    /// Starts a call of an agent that answers everything with `answer` in a LiveKit room, where it
    /// is this participant.
    pub fn start_room(
        &mut self,
        call: CallConfig,
        answer: &str,
        peer: Box<RoomPeer>,
        socket: RoomSocket,
    ) {
        let id = call.id;
        let tts = Arc::new(ScriptedTts { time: self.time.clone() });
        let llm = Arc::new(ScriptedLlm { time: self.time.clone(), answer: answer.to_owned() });
        let stt = self.scripted_stt(&[]);
        let new_call = ConnectedCall {
            setup: Box::new(self.call_setup(call, &stt, llm, tts, None)),
            early_commands: Vec::new(),
            presence: PresenceGuard::default(),
        };
        self.send_room(id, Some(new_call), peer, socket);
    }

    /// The agent of a running call has joined its room again, as this participant.
    pub fn rejoin_room(&mut self, id: u128, peer: Box<RoomPeer>, socket: RoomSocket) {
        self.send_room(ConversationId(id), None, peer, socket);
    }

    fn send_room(
        &mut self,
        conversation: ConversationId,
        new_call: Option<ConnectedCall>,
        peer: Box<RoomPeer>,
        socket: RoomSocket,
    ) {
        let (reply, mut outcome) = tokio::sync::oneshot::channel();
        let new_call = new_call.map(Box::new);
        let request = RoomRequest { conversation, peer, socket, new_call, reply };
        assert!(self.inbox.requests.send(Message::Room(Box::new(request))).is_ok());
        self.step_until_idle();
        assert_eq!(outcome.try_recv().unwrap(), ConnectionReply::Accepted);
    }

    /// Offers a connection for a call of an agent that says nothing; returns the answer.
    pub fn offer_call(&mut self, call: CallConfig, sdp: String) -> AcceptedOffer {
        let tts = Arc::new(ScriptedTts { time: self.time.clone() });
        self.offer_scripted_call(call, sdp, &[], "", tts)
    }

    /// Offers a connection for a call with the script of [`Self::start_call_with_tts`].
    pub fn offer_scripted_call(
        &mut self,
        call: CallConfig,
        sdp: String,
        script: &[&'static str],
        answer: &str,
        tts: Arc<dyn tts::Tts>,
    ) -> AcceptedOffer {
        let conversation = call.id;
        let llm = Arc::new(ScriptedLlm { time: self.time.clone(), answer: answer.to_owned() });
        let stt = self.scripted_stt(script);
        let setup = self.call_setup(call, &stt, llm, tts, None);
        let key = setup.id;
        let preparation = Box::new(PreparedSetup {
            setup: Some(Box::new(setup)),
            stage_events: self.inbox.stage_events.clone(),
        });
        let arrival = Some(NewCall {
            id: key,
            early_commands: Vec::new(),
            presence: PresenceGuard::default(),
            preparation,
        });
        let (reply, mut answer) = tokio::sync::oneshot::channel();
        let unconnected = None;
        let offer = OfferRequest {
            conversation,
            sdp,
            replaces: None,
            restart: false,
            new_call: arrival,
            pending_offer: unconnected,
            reply,
        };
        assert!(self.inbox.requests.send(Message::Offer(Box::new(offer))).is_ok());
        self.media_thread.step(self.now);
        match answer.try_recv().unwrap() {
            OfferReply::Accepted(accepted, _) => accepted,
            OfferReply::Rejected(why) => panic!("{why:?}"),
            OfferReply::NotRunning => panic!("the call is not on this server"),
        }
    }

    fn scripted_stt(&self, script: &[&'static str]) -> ScriptedStt {
        ScriptedStt {
            time: self.time.clone(),
            script: script.to_vec(),
            open_streams: Arc::clone(&self.open_streams),
        }
    }

    fn call_setup(
        &mut self,
        call: CallConfig,
        stt: &dyn stt::Stt,
        llm: Arc<dyn llm::Llm>,
        tts: Arc<dyn tts::Tts>,
        tts_fallback: Option<Arc<dyn tts::Tts>>,
    ) -> CallSetup {
        let key = CallId(self.next_call_id);
        self.next_call_id += 1;
        let sink = engine::messages::stt_sink(self.inbox.stage_event_sink(key));
        let recorder = self.call_recorder.as_ref();
        let recording_error =
            call.recording.as_ref().and_then(|_| recorder::unavailable_reason(recorder));
        let models = CallModels {
            stt: stt.open(sink).unwrap(),
            turn_model: self.turn_model.clone(),
            llm,
            llm_fallback: None,
            tts,
            tts_fallback,
            warnings: Vec::new(),
        };
        CallSetup {
            id: key,
            config: Arc::new(call),
            models,
            poses: self.pose_set.clone().map(|set| Arc::new(PoseCache::new(set))),
            recording_error,
            slot: Slot::for_test(),
        }
    }

    /// A second connection for a running call.
    pub fn reconnect(&mut self, call: CallConfig) -> LoopbackClient {
        self.start_call(call, &[], "")
    }

    pub fn command(&mut self, id: u128, command: Command) {
        let message = Message::Command { conversation: ConversationId(id), command, reply: None };
        assert!(self.inbox.requests.send(message).is_ok());
    }

    /// Runs for `span`, from event to event.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.time.advance(self.now);
            self.step_until_idle();
            let next =
                [self.media_thread.wake_at(), self.time.next_at()].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        self.now = end;
        self.time.advance(end);
        self.step_until_idle();
    }

    /// Steps until nothing more happens at this instant.
    fn step_until_idle(&mut self) {
        for _ in 0..4 {
            self.media_thread.step(self.now);
            self.runtime.block_on(async {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            });
        }
    }
}

/// A call of the default agent.
pub fn call_config(id: u128) -> CallConfig {
    call_config_of(id, AgentTurnConfig::default())
}

/// A call of an agent without a greeting.
pub fn call_config_of(id: u128, agent: AgentTurnConfig<'_>) -> CallConfig {
    let mut spec = agent.to_spec().unwrap();
    spec.greeting = None;
    CallConfig::minimal(ConversationId(id), spec)
}

/// A user's audio at 16 kHz: pairs of silence and speech, in seconds.
pub fn user_audio(parts: &[(f64, f64)]) -> Vec<i16> {
    let mut pcm = Vec::new();
    for (silence, speech) in parts {
        pcm.resize(pcm.len() + (silence * 16_000.0) as usize, 0);
        let from = pcm.len();
        pcm.extend(
            (0..(speech * 16_000.0) as usize)
                .map(|i| if (from + i) % 40 < 20 { 12_000 } else { -12_000 }),
        );
    }
    pcm
}

/// The output of a call as a client received it. `blocks` holds the audio frames, each with its
/// time.
pub struct ReceivedOutput {
    pub start: Instant,
    pub blocks: Vec<(Instant, Box<[i16]>)>,
    pub texts: Vec<String>,
    pub closed: bool,
}

impl ReceivedOutput {
    pub fn new(start: Instant) -> Self {
        Self { start, blocks: Vec::new(), texts: Vec::new(), closed: false }
    }

    pub fn collect(&mut self, client: &LoopbackClient) {
        for left in client.drain_outputs() {
            match left {
                LoopbackOutput::Audio { at, pcm, .. } => self.blocks.push((at, pcm)),
                LoopbackOutput::Text(text) => self.texts.push(text),
                LoopbackOutput::Closed => self.closed = true,
                LoopbackOutput::Connected { .. } | LoopbackOutput::Video { .. } => {}
            }
        }
    }

    /// Spans of audible output: start and end in seconds since `start`. Gaps shorter than 30 ms are
    /// bridged.
    pub fn speech_spans(&self) -> Vec<(f64, f64)> {
        let mut out: Vec<(f64, f64)> = Vec::new();
        for (at, block) in &self.blocks {
            let at = at.duration_since(self.start).as_secs_f64();
            let loud: Vec<usize> =
                block.iter().enumerate().filter(|(_, s)| **s != 0).map(|(i, _)| i).collect();
            let (Some(first), Some(last)) = (loud.first(), loud.last()) else { continue };
            let (from, to) = (at + *first as f64 / 48_000.0, at + (*last + 1) as f64 / 48_000.0);
            match out.last_mut() {
                Some(span) if from - span.1 < 0.03 => span.1 = to,
                _ => out.push((from, to)),
            }
        }
        out
    }

    /// All samples that are not silence.
    pub fn audible_samples(&self) -> Vec<i16> {
        self.blocks.iter().flat_map(|(_, b)| b.iter().copied()).filter(|s| *s != 0).collect()
    }
}
