//! A media thread in virtual time, with scripted models: nothing here sleeps or reads a clock.

#![allow(dead_code, missing_docs, unreachable_pub)] // each test file uses its part

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conversation::call_config::{CallConfig, ConversationId};
use conversation::engine::{AcceptedOffer, EventSink};
use conversation::event::{Event, EventEnvelope};
use conversation::input::Command;
use conversation::settings::AgentTurnConfig;
use engine::graph::{Arrival, CallKey, CallModels, Kit, Loopback, Message, Offer, Opening, Reply};
use engine::hear::vad::{Judge, State, WINDOW};
use engine::host::{Presence, Seat, Shared};
use engine::latency::Latencies;
use engine::meter::Stats;
use engine::shard::{Inbox, Shard};
use engine::show::pose_cache::PoseCache;
use engine::transport::loopback::{self, Far, Left};
use engine::transport::socket::Socket;
use engine::transport::webrtc::Certificate;
use models::face::PoseSet;
use models::turn::{Question, TurnModel};
use models::{Handle, Sink, llm, stt, tts};

/// Something that will happen at an instant of virtual time.
type Deed = Box<dyn FnOnce() + Send>;

/// Virtual time, and what the scripted models will do in it.
#[derive(Clone)]
pub struct World(Arc<Mutex<Inner>>);

struct Inner {
    now: Instant,
    next: u64,
    deeds: BTreeMap<(Instant, u64), Deed>,
}

impl World {
    fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Inner { now, next: 0, deeds: BTreeMap::new() })))
    }

    pub fn after(&self, delay: Duration, deed: impl FnOnce() + Send + 'static) {
        let mut inner = self.0.lock().unwrap();
        let key = (inner.now + delay, inner.next);
        inner.next += 1;
        inner.deeds.insert(key, Box::new(deed));
    }

    fn next(&self) -> Option<Instant> {
        self.0.lock().unwrap().deeds.keys().next().map(|(at, _)| *at)
    }

    fn advance(&self, now: Instant) {
        self.0.lock().unwrap().now = now;
        loop {
            let deed = {
                let mut inner = self.0.lock().unwrap();
                match inner.deeds.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => return,
                }
            };
            deed();
        }
    }
}

/// Loud is speech.
pub struct Loudness;

impl Judge for Loudness {
    fn judge(&mut self, _: &mut [&mut State], windows: &[&[f32; WINDOW]], probabilities: &mut [f32]) {
        for (window, p) in windows.iter().zip(probabilities) {
            let power = window.iter().map(|s| s * s).sum::<f32>() / WINDOW as f32;
            *p = if power > 0.01 { 0.95 } else { 0.02 };
        }
    }
}

/// Understands its script, one text for each stretch of speech, 25 ms after the stretch was closed. At [`PANIC`] its code panics, on the
/// thread that calls it.
pub struct Listener {
    pub world: World,
    pub script: Vec<&'static str>,
    pub open: Arc<Mutex<usize>>,
}

/// What no user says.
pub const PANIC: &str = "!panic";

struct Stream {
    world: World,
    script: std::vec::IntoIter<&'static str>,
    sink: Sink<stt::Event>,
    open: Arc<Mutex<usize>>,
}

impl stt::Stt for Listener {
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn stt::Stream>, models::Error> {
        *self.open.lock().unwrap() += 1;
        let script = self.script.clone().into_iter();
        Ok(Box::new(Stream { world: self.world.clone(), script, sink, open: Arc::clone(&self.open) }))
    }
}

impl stt::Stream for Stream {
    fn begin(&mut self) {}
    fn audio(&mut self, _: &[i16]) {}
    fn end(&mut self) {
        assert_ne!(self.script.as_slice().first(), Some(&PANIC), "the test's own panic");
        let (text, sink) = (self.script.next().unwrap_or_default().to_owned(), self.sink.clone());
        self.world.after(Duration::from_millis(25), move || sink.send(stt::Event::Final(text)));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *self.open.lock().unwrap() -= 1;
    }
}

/// Answers everything with one text, word by word, the first 5 ms after it was asked, 2 ms apart. Of a message that holds a guardrail's key
/// it finds 300 ms after it was asked that the guardrail fires.
pub struct Thinker {
    pub world: World,
    pub answer: String,
}

impl llm::Llm for Thinker {
    fn ask(&self, _: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let mut at = Duration::from_millis(5);
        for word in self.answer.split_inclusive(' ') {
            let (word, sink) = (word.to_owned(), sink.clone());
            self.world.after(at, move || sink.send(llm::Event::Text(word)));
            at += Duration::from_millis(2);
        }
        let end = llm::Event::End { prompt_tokens: 1, completion_tokens: 1 };
        self.world.after(at, move || sink.send(end));
        Handle::done()
    }

    fn check(&self, check: llm::check::Check) -> llm::check::Checking {
        let (tell, told) = tokio::sync::oneshot::channel();
        let broken =
            check.rules.iter().find(|rule| check.said.contains(&rule.key)).map(|rule| rule.key.clone());
        self.world.after(Duration::from_millis(300), move || drop(tell.send(broken)));
        Box::pin(async move { Ok(told.await.unwrap_or_default()) })
    }
}

/// Speaks .3 s a word at 48 kHz, 16 ms after it was asked. Every sample tells its own position in the piece ([`sample`]).
pub struct Speaker {
    pub world: World,
}

/// The sample at a position of any piece: never silent, never the same within a second.
pub fn sample(position: u64) -> i16 {
    (position % 30_000) as i16 + 1_000
}

pub const WORD: Duration = Duration::from_millis(300);

impl tts::Tts for Speaker {
    fn speak(&self, request: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, models::Error> {
        let words = request.text.split_whitespace().count() as u64;
        let samples = words * WORD.as_micros() as u64 * 48 / 1_000;
        self.world.after(Duration::from_millis(16), move || {
            let pcm = (0..samples).map(sample).collect();
            sink.send(tts::Event::Audio { pcm, sample_rate: 48_000 });
            sink.send(tts::Event::End);
        });
        Ok(Handle::done())
    }
}

/// Says its script, one P(turn is over) for each question, so long after it was asked; nothing where the script has nothing.
#[derive(Clone)]
pub struct Oracle {
    pub world: World,
    pub span: Duration,
    pub script: Vec<Option<(Duration, f32)>>,
    pub asked: Arc<Mutex<Vec<Question>>>,
    /// Numbers of the questions that were withdrawn, or answered and done with.
    pub withdrawn: Arc<Mutex<Vec<usize>>>,
}

impl Oracle {
    pub fn new(world: World, script: &[Option<(Duration, f32)>]) -> Self {
        Self {
            world,
            span: Duration::from_secs(8),
            script: script.to_vec(),
            asked: Arc::default(),
            withdrawn: Arc::default(),
        }
    }
}

impl TurnModel for Oracle {
    fn prepare(&self) -> Result<(), models::Error> {
        Ok(())
    }

    fn span(&self) -> Duration {
        self.span
    }

    fn ask(&self, question: Question, answer: Sink<f32>) -> Handle {
        let mut asked = self.asked.lock().unwrap();
        let number = asked.len();
        asked.push(question);
        if let Some((delay, p)) = self.script.get(number).copied().flatten() {
            // Told though it was withdrawn: a real one may be at work on it.
            self.world.after(delay, move || answer.send(p));
        }
        let withdrawn = Arc::clone(&self.withdrawn);
        Handle::new(move || withdrawn.lock().unwrap().push(number))
    }
}

/// Keeps facts, and which calls broke.
#[derive(Clone, Default)]
pub struct Book(pub Arc<Mutex<Vec<(ConversationId, EventEnvelope)>>>, pub Arc<Mutex<Vec<u128>>>);

impl EventSink for Book {
    fn record(&self, conversation: ConversationId, fact: EventEnvelope) {
        self.0.lock().unwrap().push((conversation, fact));
    }

    fn call_panicked(&self, conversation: ConversationId) {
        self.1.lock().unwrap().push(conversation.0);
    }
}

impl Book {
    /// What is known of one call.
    pub fn of(&self, id: u128) -> Vec<EventEnvelope> {
        self.0.lock().unwrap().iter().filter(|(c, _)| c.0 == id).map(|(_, f)| f.clone()).collect()
    }

    /// When a fact first held, in seconds of the call.
    pub fn when(&self, id: u128, wanted: impl Fn(&Event) -> bool) -> Option<f64> {
        self.of(id).iter().find(|f| wanted(&f.event)).map(|f| f.at.as_seconds())
    }

    /// Names of facts, in order.
    pub fn names(&self, id: u128) -> Vec<String> {
        let name =
            |f: &EventEnvelope| serde_json::to_value(&f.event).unwrap()["what"].as_str().unwrap().to_owned();
        self.of(id).iter().map(name).collect()
    }
}

/// One media thread in virtual time.
pub struct Bench {
    pub world: World,
    pub shard: Shard,
    pub inbox: Inbox,
    pub stats: Arc<Stats>,
    pub latencies: Arc<Latencies>,
    pub book: Book,
    pub start: Instant,
    pub now: Instant,
    pub streams: Arc<Mutex<usize>>,
    /// Asked by the calls that begin from now on.
    pub turn: Option<Arc<dyn TurnModel>>,
    /// Shown by the calls that begin from now on.
    pub face: Option<Arc<PoseSet>>,
    runtime: tokio::runtime::Runtime,
    next_key: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self::made(Box::new(Loudness), None, None, 0.0)
    }

    /// One with a socket of its own, which clients reach in virtual time: what is sent over loopback is there at once.
    pub fn listening(socket: Socket) -> Self {
        Self::made(Box::new(Loudness), None, Some(socket), 0.0)
    }

    /// One whose clients may type so many questions a second.
    pub fn asked_at_most(questions: f64) -> Self {
        Self::made(Box::new(Loudness), None, None, questions)
    }

    /// One with another detector of speech.
    pub fn judged_by(judge: Box<dyn Judge>) -> Self {
        Self::made(judge, None, None, 0.0)
    }

    /// One whose traced calls write to `trace`.
    pub fn traced(trace: engine::edge::Sender<engine::keep::trace::Line>) -> Self {
        Self::made(Box::new(Loudness), Some(trace), None, 0.0)
    }

    fn made(
        judge: Box<dyn Judge>,
        trace: Option<engine::edge::Sender<engine::keep::trace::Line>>,
        socket: Option<Socket>,
        questions: f64,
    ) -> Self {
        let start = engine::clock::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let book = Book::default();
        let client = models::net::Client::new(models::net::Policy { allow_private: true }).unwrap();
        let latencies = Arc::<Latencies>::default();
        let shared = Arc::new(Shared {
            net: runtime.handle().clone(),
            client,
            ledger: Arc::new(book.clone()),
            trace,
            timeouts: engine::Timeouts::default(),
            latencies: Arc::clone(&latencies),
            most_load: 0.0,
            questions,
        });
        let (shard, inbox, stats) = match socket {
            Some(socket) => Shard::new(socket, None, shared, start).unwrap(),
            None => Shard::bare(shared, start),
        };
        let certificate = Arc::new(Certificate::generate().unwrap());
        let ready = Message::Ready(Box::new(Kit { certificate, judge }));
        assert!(inbox.requests.send(ready).is_ok());
        let streams = Arc::default();
        Self {
            world: World::new(start),
            shard,
            inbox,
            stats,
            latencies,
            book,
            start,
            now: start,
            streams,
            turn: None,
            face: None,
            runtime,
            next_key: 1,
        }
    }

    /// A call of an agent that answers everything with `answer`, to a user whose stretches of speech mean `script`.
    pub fn call(&mut self, call: CallConfig, script: &[&'static str], answer: &str) -> Far {
        let speaker = Arc::new(Speaker { world: self.world.clone() });
        self.call_with(call, script, answer, speaker, None)
    }

    /// The same with voices of its own.
    pub fn call_with(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        answer: &str,
        tts: Arc<dyn tts::Tts>,
        tts_fallback: Option<Arc<dyn tts::Tts>>,
    ) -> Far {
        let llm = Arc::new(Thinker { world: self.world.clone(), answer: answer.to_owned() });
        self.open(call, script, llm, tts, tts_fallback)
    }

    /// A call of an agent that thinks with `llm`.
    pub fn thinking(&mut self, call: CallConfig, script: &[&'static str], llm: Arc<dyn llm::Llm>) -> Far {
        let speaker = Arc::new(Speaker { world: self.world.clone() });
        self.open(call, script, llm, speaker, None)
    }

    fn open(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        llm: Arc<dyn llm::Llm>,
        tts: Arc<dyn tts::Tts>,
        tts_fallback: Option<Arc<dyn tts::Tts>>,
    ) -> Far {
        let opening = self.opening(call, script, llm, tts, tts_fallback);
        let (near, far) = loopback::pair();
        let begins = Loopback {
            opening: Box::new(opening),
            commands: Vec::new(),
            near,
            presence: Presence::default(),
        };
        assert!(self.inbox.requests.send(Message::Loopback(Box::new(begins))).is_ok());
        far
    }

    /// Offers a connection for a call of an agent that says nothing; the answer.
    pub fn offer(&mut self, call: CallConfig, sdp: String) -> AcceptedOffer {
        let conversation = call.id;
        let speaker = Arc::new(Speaker { world: self.world.clone() });
        let llm = Arc::new(Thinker { world: self.world.clone(), answer: String::new() });
        let opening = self.opening(call, &[], llm, speaker, None);
        let (key, news) = (opening.key, self.inbox.news.clone());
        let opening = Mutex::new(Some(Box::new(opening)));
        let open = Box::new(move || {
            let opening = opening.lock().unwrap().take().ok_or_else(|| "it was opened already".to_owned());
            assert!(news.send(Message::Opened(key, opening)).is_ok());
        });
        let arrival = Some(Arrival { key, commands: Vec::new(), presence: Presence::default(), open });
        let (reply, mut answer) = tokio::sync::oneshot::channel();
        let unconnected = None;
        let offer = Offer { conversation, sdp, replaces: None, restart: false, arrival, unconnected, reply };
        assert!(self.inbox.requests.send(Message::Offer(Box::new(offer))).is_ok());
        self.shard.step(self.now);
        match answer.try_recv().unwrap() {
            Reply::Accepted(accepted, _) => accepted,
            Reply::Refused(why) => panic!("{why:?}"),
            Reply::NotHere => panic!("the call is not here"),
        }
    }

    fn opening(
        &mut self,
        call: CallConfig,
        script: &[&'static str],
        llm: Arc<dyn llm::Llm>,
        tts: Arc<dyn tts::Tts>,
        tts_fallback: Option<Arc<dyn tts::Tts>>,
    ) -> Opening {
        let key = CallKey(self.next_key);
        self.next_key += 1;
        let ear =
            Listener { world: self.world.clone(), script: script.to_vec(), open: Arc::clone(&self.streams) };
        let news = self.inbox.sink(key);
        let sink = Sink::new(move |event| news.send(engine::graph::News::Stt(event)));
        let models = CallModels {
            stt: stt::Stt::open(&ear, sink).unwrap(),
            turn: self.turn.clone(),
            llm,
            llm_fallback: None,
            tts,
            tts_fallback,
            warnings: Vec::new(),
        };
        Opening {
            key,
            call: Arc::new(call),
            models,
            face: self.face.clone().map(|set| Arc::new(PoseCache::new(set))),
            seat: Seat::free(),
        }
    }

    /// A second connection for a call that runs.
    pub fn call_again(&mut self, call: CallConfig) -> Far {
        self.call(call, &[], "")
    }

    pub fn command(&mut self, id: u128, command: Command) {
        let message = Message::Command { conversation: ConversationId(id), command, reply: None };
        assert!(self.inbox.requests.send(message).is_ok());
    }

    /// Runs for this long, from event to event.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.world.advance(self.now);
            self.settle();
            let next = [self.shard.wake_at(), self.world.next()].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        self.now = end;
        self.world.advance(end);
        self.settle();
    }

    /// Steps until nothing more happens at this instant.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.shard.step(self.now);
            self.runtime.block_on(async {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            });
        }
    }
}

/// A call of the default agent.
pub fn call(id: u128) -> CallConfig {
    call_of(id, AgentTurnConfig::default())
}

/// A call of an agent.
pub fn call_of(id: u128, agent: AgentTurnConfig<'_>) -> CallConfig {
    let mut spec = agent.to_spec().unwrap();
    spec.greeting = None;
    CallConfig::minimal(ConversationId(id), spec)
}

/// A user's sound: `(silence, speech)` in seconds, one after the other.
pub fn voice(parts: &[(f64, f64)]) -> Vec<i16> {
    let mut pcm = Vec::new();
    for (silence, speech) in parts {
        pcm.resize(pcm.len() + (silence * 16_000.0) as usize, 0);
        let from = pcm.len();
        pcm.extend(
            (0..(speech * 16_000.0) as usize).map(|i| if (from + i) % 40 < 20 { 12_000 } else { -12_000 }),
        );
    }
    pcm
}

/// What was heard, as one run of samples: `(seconds since start, samples)` per block.
pub struct Heard {
    pub start: Instant,
    pub blocks: Vec<(Instant, Box<[i16]>)>,
    pub texts: Vec<String>,
    pub closed: bool,
}

impl Heard {
    pub fn new(start: Instant) -> Self {
        Self { start, blocks: Vec::new(), texts: Vec::new(), closed: false }
    }

    pub fn listen(&mut self, far: &Far) {
        for left in far.heard() {
            match left {
                Left::Sound { at, pcm, .. } => self.blocks.push((at, pcm)),
                Left::Text(text) => self.texts.push(text),
                Left::Closed => self.closed = true,
                Left::Began { .. } | Left::Picture { .. } => {}
            }
        }
    }

    /// Stretches of sound: seconds of begin and end.
    pub fn spoken(&self) -> Vec<(f64, f64)> {
        let mut out: Vec<(f64, f64)> = Vec::new();
        for (at, block) in &self.blocks {
            let at = at.duration_since(self.start).as_secs_f64();
            let loud: Vec<usize> =
                block.iter().enumerate().filter(|(_, s)| **s != 0).map(|(i, _)| i).collect();
            let (Some(first), Some(last)) = (loud.first(), loud.last()) else { continue };
            let (from, to) = (at + *first as f64 / 48_000.0, at + (*last + 1) as f64 / 48_000.0);
            match out.last_mut() {
                Some(stretch) if from - stretch.1 < 0.03 => stretch.1 = to,
                _ => out.push((from, to)),
            }
        }
        out
    }

    /// All samples that are not silence.
    pub fn sound(&self) -> Vec<i16> {
        self.blocks.iter().flat_map(|(_, b)| b.iter().copied()).filter(|s| *s != 0).collect()
    }
}
