//! A vendor in this process, and a call that speaks through it. A paused clock moves only by
//! [`Call::advance`].

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle as Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{Request as Handshake, Response as Reply};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::test_sink::{Events, Speech, sink};
use crate::tts::{Request, Tts};
use crate::{Error, Handle};

pub(in crate::tts) const KEY: &str = "key-0123456789abcdef";

/// A call.
pub(in crate::tts) struct Call {
    listener: TcpListener,
    /// The voices outside of the call.
    pub(in crate::tts) voices: Arc<dyn Tts>,
    pub(in crate::tts) tts: Option<Arc<dyn Tts>>,
    /// While it exists, the paused clock does not move by itself.
    _clock: std::sync::mpsc::Sender<()>,
}

/// A segment that is being spoken.
pub(in crate::tts) struct Spoken {
    pub(in crate::tts) handle: Handle,
    pub(in crate::tts) events: Events,
}

impl Spoken {
    pub(in crate::tts) async fn speech(&mut self) -> Speech {
        let speech = self.events.speech().await;
        assert!(!speech.failed.contains(&KEY[..8]), "{}", speech.failed);
        speech
    }
}

pub(in crate::tts) fn client() -> egress::Client {
    egress::Client::new(egress::Policy { allow_private: true }).unwrap()
}

impl Call {
    /// A call through the TTS that `make` makes for an address.
    pub(in crate::tts) async fn open(
        make: impl FnOnce(String, egress::Client, Runtime) -> Result<Arc<dyn Tts>, Error>,
    ) -> Self {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || held.recv());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let voices = make(url, client(), Runtime::current()).unwrap();
        let tts = voices.open_call();
        assert!(tts.is_some(), "a connection for each call");
        Self { listener, voices, tts, _clock: hold }
    }

    pub(in crate::tts) fn url(&self) -> String {
        format!("ws://{}", self.listener.local_addr().unwrap())
    }

    pub(in crate::tts) fn speak(&self, reply: u64, text: &str) -> Spoken {
        self.request(Request { text: text.into(), reply, ..Request::default() })
    }

    pub(in crate::tts) fn request(&self, request: Request) -> Spoken {
        let (sink, events) = sink();
        let handle = self.tts.as_ref().unwrap().speak(request, sink).unwrap();
        Spoken { handle, events }
    }

    pub(in crate::tts) async fn advance(&self, millis: u64) {
        // What has arrived is handled before and after.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    /// Accepts a connection.
    pub(in crate::tts) async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut handshake = None;
        #[expect(clippy::result_large_err, reason = "the signature of the crate")]
        let inspect = |request: &Handshake, reply: Reply| {
            handshake = Some(request.clone());
            Ok(reply)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, inspect).await.unwrap();
        let handshake = handshake.unwrap();
        assert!(!handshake.uri().to_string().contains(KEY));
        Peer { socket, handshake }
    }

    /// Accepts a connection and does not answer.
    pub(in crate::tts) async fn accept_silently(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    /// Answers the next connection with a status and a body. Returns the target of the request.
    pub(in crate::tts) async fn refuse(&self, status: &str, body: &str) -> String {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let length = body.len();
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\
                             connection: close\r\n\r\n{body}"
        );
        stream.write_all(reply.as_bytes()).await.unwrap();
        let head = String::from_utf8(head).unwrap();
        head.split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

/// The vendor's side of a connection.
pub(in crate::tts) struct Peer {
    socket: WebSocketStream<TcpStream>,
    pub(in crate::tts) handshake: Handshake,
}

impl Peer {
    /// The path and the query of the address.
    pub(in crate::tts) fn target(&self) -> String {
        self.handshake.uri().to_string()
    }

    /// Receives a JSON message; `None` at the end of the connection.
    pub(in crate::tts) async fn next(&mut self) -> Option<Value> {
        loop {
            match self.socket.next().await?.ok()? {
                Frame::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
                Frame::Ping(_) | Frame::Pong(_) => {}
                Frame::Close(_) => return None,
                other => panic!("{other:?}"),
            }
        }
    }

    pub(in crate::tts) async fn json(&mut self) -> Value {
        self.next().await.expect("a message")
    }

    pub(in crate::tts) async fn send(&mut self, message: impl ToString) {
        self.socket.send(Frame::text(message.to_string())).await.unwrap();
    }

    pub(in crate::tts) async fn send_binary(&mut self, bytes: Vec<u8>) {
        self.socket.send(Frame::binary(bytes)).await.unwrap();
    }

    pub(in crate::tts) async fn close(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.socket.close(Some(frame)).await.unwrap();
    }
}

/// Samples of the duration, all with the same value, as bytes.
pub(in crate::tts) fn pcm(millis: usize, value: i16) -> Vec<u8> {
    vec![value; millis * 24].into_iter().flat_map(i16::to_le_bytes).collect()
}

/// The same in base64.
pub(in crate::tts) fn pcm_base64(millis: usize, value: i16) -> String {
    STANDARD.encode(pcm(millis, value))
}

/// Values of the samples with their durations in ms.
pub(in crate::tts) fn durations(samples: &[i16]) -> Vec<(i16, usize)> {
    samples.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() / 24)).collect()
}
