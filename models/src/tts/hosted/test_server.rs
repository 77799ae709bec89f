//! A vendor in this process, and a call that speaks through it. A paused clock moves only by
//! [`Call::advance`].

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Handle as Runtime;
use tokio_tungstenite::tungstenite::handshake::server::Request as Handshake;

use super::test_sink::{Events, Speech, sink};
use crate::hosted::loopback::{Frame, Loopback, Socket, advance, assert_no_key};
pub(in crate::tts) use crate::hosted::loopback::{KEY, client};
use crate::tts::{Request, Tts};
use crate::{Error, Handle};

/// A call.
pub(in crate::tts) struct Call {
    pub(in crate::tts) server: Loopback,
    /// The voices outside of the call.
    pub(in crate::tts) voices: Arc<dyn Tts>,
    pub(in crate::tts) tts: Option<Arc<dyn Tts>>,
}

/// A segment that is being spoken.
pub(in crate::tts) struct Spoken {
    pub(in crate::tts) handle: Handle,
    pub(in crate::tts) events: Events,
}

impl Spoken {
    pub(in crate::tts) async fn speech(&mut self) -> Speech {
        let speech = self.events.speech().await;
        assert_no_key(&speech.failed);
        speech
    }
}

impl Call {
    /// A call through the TTS that `make` makes for an address.
    pub(in crate::tts) async fn open(
        make: impl FnOnce(String, egress::Client, Runtime) -> Result<Arc<dyn Tts>, Error>,
    ) -> Self {
        Self::open_like(&Request::default(), make).await
    }

    /// The same with the voice and the language of `like`.
    pub(in crate::tts) async fn open_like(
        like: &Request,
        make: impl FnOnce(String, egress::Client, Runtime) -> Result<Arc<dyn Tts>, Error>,
    ) -> Self {
        let server = Loopback::bind().await;
        let url = server.url("ws");
        let voices = make(url, client(), Runtime::current()).unwrap();
        let tts = voices.open_call(like);
        assert!(tts.is_some(), "a connection for each call");
        Self { server, voices, tts }
    }

    pub(in crate::tts) fn url(&self) -> String {
        self.server.url("ws")
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
        advance(millis).await;
    }

    /// Accepts a connection.
    pub(in crate::tts) async fn accept(&self) -> Peer {
        let socket = self.server.socket().await;
        Peer { handshake: socket.handshake.clone(), socket }
    }

    /// Accepts a connection and does not answer.
    pub(in crate::tts) async fn accept_silently(&self) -> TcpStream {
        self.server.accept().await
    }

    /// Answers the next connection with a status and a body. Returns the target of the request.
    pub(in crate::tts) async fn refuse(&self, status: &str, body: &str) -> String {
        self.server.refuse(status, body).await
    }
}

/// The vendor's side of a connection.
pub(in crate::tts) struct Peer {
    socket: Socket,
    pub(in crate::tts) handshake: Handshake,
}

impl Peer {
    /// The path and the query of the address.
    pub(in crate::tts) fn target(&self) -> String {
        self.socket.target()
    }

    /// Receives a JSON message; `None` at the end of the connection.
    pub(in crate::tts) async fn next(&mut self) -> Option<Value> {
        match self.socket.next().await? {
            Frame::Text(text) => Some(serde_json::from_str(&text).unwrap()),
            Frame::Binary(bytes) => panic!("{bytes:?}"),
        }
    }

    pub(in crate::tts) async fn json(&mut self) -> Value {
        self.next().await.expect("a message")
    }

    pub(in crate::tts) async fn send(&mut self, message: impl ToString) {
        self.socket.send(&Frame::text(message)).await;
    }

    pub(in crate::tts) async fn send_binary(&mut self, bytes: Vec<u8>) {
        self.socket.send(&Frame::Binary(bytes)).await;
    }

    pub(in crate::tts) async fn close(&mut self, code: u16, reason: &str) {
        self.socket.close(code, reason).await;
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
