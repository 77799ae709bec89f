//! For tests: a call with a server in this process, and a codec without a connection.
//! A paused clock moves only by [`Harness::advance`].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::breaker::{Breaker, BreakerKey, Breakers};
pub(in crate::stt) use crate::hosted::loopback::KEY;
use crate::hosted::loopback::{Loopback, Random, Socket, assert_no_key, client};
use crate::stt::streaming::{
    CHUNK_BYTES, Codec, Counts, Fallback, HostedConfig, Outgoing, Output, Timeouts,
};
use crate::stt::{Event, Stt, SttStream};
use crate::{Error, Sink};

/// 50 ms of audio.
pub(in crate::stt) const CHUNK_SAMPLES: usize = CHUNK_BYTES / 2;

/// The constructor of a hosted STT.
pub(in crate::stt) type Make =
    fn(&HostedConfig, egress::Client, Fallback, Runtime) -> Result<Arc<dyn Stt>, Error>;

/// A closed breaker.
pub(in crate::stt) fn breaker() -> Arc<Breaker> {
    Breakers::default().get(BreakerKey::new("stt", "test", "", None))
}

/// A fallback that answers each utterance with its length in samples.
pub(in crate::stt) fn fallback(breaker: &Arc<Breaker>) -> Fallback {
    let stt: Arc<dyn Stt> = Arc::new(CountingStt::default());
    Fallback::new(Some(("the built-in STT".into(), stt)), Arc::clone(breaker))
}

/// An STT that answers each utterance with its length in samples.
#[derive(Clone, Default)]
struct CountingStt(Arc<Mutex<Vec<Sink<Event>>>>);

struct CountingStream(Sink<Event>, usize);

impl Stt for CountingStt {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        self.0.lock().unwrap().push(sink.clone());
        Ok(Box::new(CountingStream(sink, 0)))
    }
}

impl SttStream for CountingStream {
    fn start_speech(&mut self) {
        self.1 = 0;
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        assert!(pcm.iter().all(|sample| *sample == -2), "the samples arrive unchanged");
        self.1 += pcm.len();
    }

    fn end_speech(&mut self) {
        self.0.send(Event::Final(format!("{} samples", self.1)));
    }
}

type Events = mpsc::UnboundedReceiver<Event>;
/// The stream and the events of a call.
pub(in crate::stt) type OpenCall = (Option<Box<dyn SttStream>>, Events);

fn open_stream(stt: &dyn Stt) -> (Box<dyn SttStream>, Events) {
    let (sender, events) = mpsc::unbounded_channel();
    (stt.open(Sink::new(move |event| drop(sender.send(event)))).unwrap(), events)
}

/// A call.
pub(in crate::stt) struct Harness {
    pub(in crate::stt) server: Loopback,
    stt: Arc<dyn Stt>,
    pub(in crate::stt) stream: Option<Box<dyn SttStream>>,
    pub(in crate::stt) events: Events,
}

impl Harness {
    /// A call with a fallback.
    pub(in crate::stt) async fn start(make: Make) -> Self {
        let mut call = Self::start_early(make).await;
        call.user().start_call();
        call
    }

    /// The same before the call has started.
    pub(in crate::stt) async fn start_early(make: Make) -> Self {
        Self::open(make, fallback(&breaker()), Timeouts::default()).await
    }

    pub(in crate::stt) async fn open(make: Make, fallback: Fallback, timeouts: Timeouts) -> Self {
        let server = Loopback::bind().await;
        let config = HostedConfig {
            url: server.url("ws"),
            token: Some(KEY.into()),
            timeouts,
            ..HostedConfig::default()
        };
        let stt = make(&config, client(), fallback, Runtime::current()).unwrap();
        let (stream, events) = open_stream(&*stt);
        Self { server, stt, stream: Some(stream), events }
    }

    /// The next call with the same STT.
    pub(in crate::stt) fn reopen(&mut self) {
        self.stream = None;
        self.swap(None);
    }

    /// Another call with the same STT takes the place of this one: `other`, or a new one. Returns
    /// this one.
    pub(in crate::stt) fn swap(&mut self, other: Option<OpenCall>) -> OpenCall {
        let is_new = other.is_none();
        let (stream, events) = other.unwrap_or_else(|| {
            let (stream, events) = open_stream(&*self.stt);
            (Some(stream), events)
        });
        let old = (self.stream.take(), std::mem::replace(&mut self.events, events));
        self.stream = stream;
        if is_new {
            self.user().start_call();
        }
        old
    }

    pub(in crate::stt) async fn advance(&self, millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    /// Accepts a connection.
    pub(in crate::stt) async fn accept(&self) -> Peer {
        Peer::of(self.server.socket().await)
    }

    /// Answers the next connection with a status and a body.
    pub(in crate::stt) async fn refuse(&self, status: &str, body: &str) {
        self.server.refuse(status, body).await;
    }

    pub(in crate::stt) fn user(&mut self) -> &mut dyn SttStream {
        &mut **self.stream.as_mut().unwrap()
    }

    /// The user starts to speak, for so many chunks.
    pub(in crate::stt) fn speak(&mut self, chunks: usize) {
        self.user().start_speech();
        self.push(chunks);
    }

    pub(in crate::stt) fn push(&mut self, chunks: usize) {
        // Frames of 20 ms, as in a call.
        let pcm = vec![-2; chunks * CHUNK_SAMPLES];
        pcm.chunks(320).for_each(|frame| self.user().push_audio(frame));
    }

    /// The next event, in short. Usage is skipped.
    pub(in crate::stt) async fn event(&mut self) -> String {
        let text = loop {
            break match self.events.recv().await.expect("an event") {
                Event::Interim(text) => format!("interim {text}"),
                Event::Final(text) => format!("final {text}"),
                Event::Failed(error) => format!("failed {:?} {error}", error.kind()),
                Event::Recovered => "recovered".into(),
                Event::Warning(text) => format!("warning {text}"),
                Event::Turn(hint) => format!("turn {hint:?}"),
                Event::Usage(_) => continue,
                Event::Provider(name) => format!("provider {name}"),
            };
        };
        assert_no_key(&text);
        text
    }
}

/// The server's side of a connection.
pub(in crate::stt) struct Peer {
    pub(in crate::stt) socket: WebSocketStream<TcpStream>,
    pub(in crate::stt) audio_bytes: usize,
    /// Silence at the ends of messages.
    pub(in crate::stt) silence_bytes: usize,
    /// Path and query of the handshake.
    pub(in crate::stt) uri: String,
    /// The headers with the key.
    pub(in crate::stt) keys: Vec<String>,
}

impl Peer {
    /// Answers the handshake.
    pub(in crate::stt) async fn new(stream: TcpStream) -> Self {
        Self::of(Socket::accept(stream).await)
    }

    fn of(socket: Socket) -> Self {
        let (uri, keys) = (socket.target(), socket.keys());
        Self { socket: socket.stream, audio_bytes: 0, silence_bytes: 0, uri, keys }
    }

    /// Receives messages until a text; audio is counted.
    pub(in crate::stt) async fn text(&mut self) -> String {
        loop {
            match self.socket.next().await.expect("a message").unwrap() {
                Frame::Text(text) => return text.to_string(),
                Frame::Binary(bytes) => self.count(&bytes),
                Frame::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(in crate::stt) fn count(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(2));
        let is_silent = |sample: &&[u8]| **sample == [0, 0];
        let silent = bytes.chunks(2).rev().take_while(is_silent).count();
        let speech = &bytes[..bytes.len() - 2 * silent];
        assert!(speech.chunks(2).all(|sample| sample == [0xfe, 0xff]));
        self.audio_bytes += speech.len();
        self.silence_bytes += 2 * silent;
    }

    /// Receives so many chunks of audio.
    pub(in crate::stt) async fn audio(&mut self, chunks: usize) {
        let end = self.audio_bytes + 2 * chunks * CHUNK_SAMPLES;
        while self.audio_bytes < end {
            match self.socket.next().await.expect("a message").unwrap() {
                Frame::Binary(bytes) => self.count(&bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.audio_bytes, end);
    }

    /// Sends a text.
    pub(in crate::stt) async fn send_text(&mut self, text: String) {
        self.socket.send(Frame::text(text)).await.unwrap();
    }

    /// Receives messages until the client closes the connection, and answers that.
    pub(in crate::stt) async fn expect_close(mut self) {
        while let Some(message) = self.socket.next().await {
            let message = message.unwrap();
            assert!(matches!(message, Frame::Ping(_) | Frame::Close(_)), "{message:?}");
        }
    }

    pub(in crate::stt) async fn close(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.socket.close(Some(frame)).await.unwrap();
    }
}

/// A codec, and the time since its start.
pub(in crate::stt) struct CodecHarness<C> {
    pub(in crate::stt) codec: C,
    start: Instant,
    pub(in crate::stt) now: Instant,
}

impl<C: Codec> CodecHarness<C> {
    pub(in crate::stt) fn new(mut codec: C) -> Self {
        codec.reset(&mut Vec::new());
        let start = Instant::now();
        Self { codec, start, now: start }
    }

    /// The user speaks for so many milliseconds. Returns the messages to the vendor.
    pub(in crate::stt) fn speak(&mut self, millis: u64) -> Vec<Outgoing> {
        self.codec.utterances_mut().start(self.now);
        self.push(millis)
    }

    /// The user goes on.
    pub(in crate::stt) fn push(&mut self, millis: u64) -> Vec<Outgoing> {
        let mut messages = Vec::new();
        for _ in 0..millis / 50 {
            let chunk = Bytes::from_static(&[1; CHUNK_BYTES]);
            self.codec.push_audio(self.now, chunk, &mut messages);
            self.wait(50);
        }
        messages
    }

    /// The user has finished. Returns the end mark.
    pub(in crate::stt) fn end(&mut self) -> Vec<Outgoing> {
        let mut messages = Vec::new();
        self.codec.end_speech(self.now, &mut messages);
        messages
    }

    pub(in crate::stt) fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    pub(in crate::stt) fn receive(&mut self, text: &str) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.codec.receive(self.now, text, &mut outputs);
        outputs
    }

    /// Handles the next deadline. Returns its time since the start, in milliseconds.
    pub(in crate::stt) fn expire(&mut self) -> (u128, Vec<Output>) {
        self.now = self.codec.utterances().deadline().expect("a deadline");
        let mut outputs = Vec::new();
        self.codec.expire(self.now, &mut outputs);
        ((self.now - self.start).as_millis(), outputs)
    }

    pub(in crate::stt) fn counts(&self) -> Counts {
        self.codec.utterances().counts
    }

    /// Sends `message` cut at every character, and other damaged messages; expects that nothing happens.
    pub(in crate::stt) fn expect_garbage_to_be_ignored(&mut self, message: &str) {
        for (end, _) in message.char_indices() {
            assert_eq!(self.receive(&message[..end]), [], "{}", &message[..end]);
        }
        let huge = format!("{}{message}", " ".repeat(5 << 20));
        let deep = "[".repeat(100_000);
        for text in ["null", "[1]", "\u{0}\u{fffd}", "{}", r#"{"type":7}"#, &deep, &huge] {
            assert_eq!(self.receive(text), []);
        }
        let damaged = u32::try_from(message.chars().count() + 7).unwrap();
        assert_eq!(self.counts().malformed, damaged);
    }
}

pub(in crate::stt) fn interim(text: &str) -> Vec<Output> {
    vec![Output::Interim(text.into())]
}

pub(in crate::stt) fn last(text: &str) -> Vec<Output> {
    vec![Output::Final(text.into())]
}

/// The texts of messages.
pub(in crate::stt) fn texts(messages: &[Outgoing]) -> Vec<&str> {
    let mut texts = Vec::new();
    for message in messages {
        let Outgoing::Text(text) = message else { panic!("{message:?}") };
        texts.push(text.as_str());
    }
    texts
}

/// Lets users talk while the server sends `messages` in any order, and expects one final transcript
/// for each end of speech, unless the connection fails. The order is random, from so many seeds.
pub(in crate::stt) fn expect_one_final_per_utterance<C: Codec>(
    seeds: u64,
    make_codec: impl Fn() -> C,
    messages: &[String],
) {
    for seed in 1..=seeds {
        let mut random = Random::new(seed);
        let mut next = move |below: usize| random.below(below);
        let mut h = CodecHarness::new(make_codec());
        let mut expected = 0;
        for _ in 0..100 {
            let mut outputs = Vec::new();
            match (next(6), h.codec.utterances().is_speaking()) {
                (0 | 1, false) => drop(h.speak(next(4) as u64 * 600)),
                (0, true) => drop(h.push(next(8) as u64 * 50)),
                (1, true) => {
                    drop(h.end());
                    expected += 1;
                }
                (2, _) => h.wait(next(800) as u64),
                _ => outputs = h.receive(&messages[next(messages.len())]),
            }
            while h.codec.utterances().deadline().is_some_and(|deadline| deadline <= h.now) {
                h.codec.expire(h.now, &mut outputs);
                if outputs.contains(&Output::Stalled) {
                    break;
                }
            }
            let finals = outputs.iter().filter(|output| matches!(output, Output::Final(_)));
            let finals = finals.count();
            assert!(finals <= expected, "seed {seed}: {outputs:?}");
            expected -= finals;
            if outputs.iter().any(|out| matches!(out, Output::Stalled | Output::Failed(..))) {
                h.codec.reset(&mut Vec::new());
                expected = 0;
            }
        }
        if h.codec.utterances().is_speaking() {
            drop(h.end());
            expected += 1;
        }
        while expected > 0 {
            let (_, outputs) = h.expire();
            if outputs.contains(&Output::Stalled) {
                break;
            }
            expected -= outputs.len();
        }
        assert!(expected > 0 || h.codec.utterances().deadline().is_none(), "seed {seed}");
    }
}
