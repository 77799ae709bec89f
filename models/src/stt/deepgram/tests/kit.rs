//! A call with a server in this process. A paused clock moves only by [`Harness::advance`].

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{Request as Handshake, Response as Reply};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::super::*;
use crate::Sink;
use crate::stt::{Event, SttStream};

pub(super) const KEY: &str = "dg-0123456789abcdef";
/// 50 ms of audio.
pub(super) const CHUNK_SAMPLES: usize = 800;

/// An STT that answers the n-th utterance with its length in samples.
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

/// A call.
pub(super) struct Harness {
    pub(super) listener: Option<TcpListener>,
    pub(super) stream: Option<Box<dyn SttStream>>,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    /// While it exists, the paused clock does not move by itself.
    _clock: std::sync::mpsc::Sender<()>,
}

impl Harness {
    /// A call with a fallback.
    pub(super) async fn start() -> Self {
        let mut call = Self::open(Some(Arc::new(CountingStt::default()))).await;
        call.user().start_call();
        call
    }

    /// The same before the call has started.
    pub(super) async fn start_early() -> Self {
        Self::open(Some(Arc::new(CountingStt::default()))).await
    }

    pub(super) async fn open(fallback: Option<Arc<dyn Stt>>) -> Self {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || held.recv());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let config = DeepgramConfig {
            url: format!("ws://{}", listener.local_addr().unwrap()),
            token: Some(KEY.into()),
            ..DeepgramConfig::default()
        };
        let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
        let stt = deepgram(&config, client, fallback, Runtime::current()).unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let stream = stt.open(Sink::new(move |event| drop(sender.send(event)))).unwrap();
        Self { listener: Some(listener), stream: Some(stream), events, _clock: hold }
    }

    pub(super) async fn advance(&self, millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    /// Accepts a connection.
    pub(super) async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.as_ref().unwrap().accept().await.unwrap();
        Peer::new(stream).await
    }

    /// Answers the next connection with a status and a body.
    pub(super) async fn refuse(&self, status: &str, body: &str) {
        let (mut stream, _) = self.listener.as_ref().unwrap().accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let length = body.len();
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(reply.as_bytes()).await.unwrap();
    }

    pub(super) fn user(&mut self) -> &mut dyn SttStream {
        &mut **self.stream.as_mut().unwrap()
    }

    /// The user starts to speak, for so many chunks.
    pub(super) fn speak(&mut self, chunks: usize) {
        self.user().start_speech();
        self.push(chunks);
    }

    pub(super) fn push(&mut self, chunks: usize) {
        // Frames of 20 ms, as in a call.
        let pcm = vec![-2; chunks * CHUNK_SAMPLES];
        pcm.chunks(320).for_each(|frame| self.user().push_audio(frame));
    }

    /// The next event, in short.
    pub(super) async fn event(&mut self) -> String {
        let text = match self.events.recv().await.expect("an event") {
            Event::Interim(text) => format!("interim {text}"),
            Event::Final(text) => format!("final {text}"),
            Event::Failed(error) => format!("failed {:?} {error}", error.kind()),
            Event::Recovered => "recovered".into(),
            Event::Warning(text) => format!("warning {text}"),
        };
        assert!(!text.contains(KEY) && !text.contains(&KEY[..8]), "{text}");
        text
    }
}

/// The server's side of a connection.
pub(super) struct Peer {
    pub(super) socket: WebSocketStream<TcpStream>,
    pub(super) audio_bytes: usize,
}

impl Peer {
    /// Answers the handshake.
    pub(super) async fn new(stream: TcpStream) -> Self {
        let mut handshake = None;
        #[expect(clippy::result_large_err, reason = "the signature of the crate")]
        let inspect = |request: &Handshake, reply: Reply| {
            handshake = Some(request.clone());
            Ok(reply)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, inspect).await.unwrap();
        let handshake = handshake.unwrap();
        assert_eq!(handshake.headers()["authorization"], format!("Token {KEY}").as_str());
        let uri = handshake.uri().to_string();
        assert!(uri.starts_with("/v1/listen?model=nova-3&") && !uri.contains(KEY), "{uri}");
        Self { socket, audio_bytes: 0 }
    }

    /// Receives messages until a text; audio is counted.
    pub(super) async fn text(&mut self) -> String {
        loop {
            match self.socket.next().await.expect("a message").unwrap() {
                Frame::Text(text) => return text.to_string(),
                Frame::Binary(bytes) => self.count(&bytes),
                Frame::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn count(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty() && bytes.len() <= 2 * CHUNK_SAMPLES);
        assert!(bytes.chunks(2).all(|sample| sample == [0xfe, 0xff]));
        self.audio_bytes += bytes.len();
    }

    /// Receives so many chunks of audio.
    pub(super) async fn audio(&mut self, chunks: usize) {
        let end = self.audio_bytes + 2 * chunks * CHUNK_SAMPLES;
        while self.audio_bytes < end {
            match self.socket.next().await.expect("a message").unwrap() {
                Frame::Binary(bytes) => self.count(&bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.audio_bytes, end);
    }

    /// Receives the audio until the end mark.
    pub(super) async fn finalize(&mut self, chunks: usize) {
        let start = self.audio_bytes;
        assert_eq!(self.text().await, "{\"type\":\"Finalize\"}");
        assert_eq!(self.audio_bytes - start, 2 * chunks * CHUNK_SAMPLES);
    }

    /// Sends results for all audio so far.
    pub(super) async fn send(&mut self, is_final: bool, text: &str) {
        let message = json!({
            "type": "Results", "start": 0.0, "duration": self.audio_bytes as f64 / 32_000.0,
            "is_final": is_final, "from_finalize": is_final,
            "channel": {"alternatives": [{"transcript": text}]},
        });
        self.socket.send(Frame::text(message.to_string())).await.unwrap();
    }

    pub(super) async fn close(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.socket.close(Some(frame)).await.unwrap();
    }
}
