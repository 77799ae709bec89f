//! The server's side of a WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request as Handshake, Response as Reply};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as Fragment;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::KEY;

/// A message in either direction. Over HTTP, it is a piece of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Text(String),
    Binary(Vec<u8>),
}

impl Frame {
    pub(crate) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// A connection. The key is in a header of its handshake, and never in the address.
pub(crate) struct Socket {
    pub(crate) stream: WebSocketStream<TcpStream>,
    pub(crate) handshake: Handshake,
}

impl Socket {
    /// Answers the handshake.
    pub(crate) async fn accept(stream: TcpStream) -> Self {
        let mut handshake = None;
        #[expect(clippy::result_large_err, reason = "the signature of the crate")]
        let inspect = |request: &Handshake, reply: Reply| {
            handshake = Some(request.clone());
            Ok(reply)
        };
        let stream = tokio_tungstenite::accept_hdr_async(stream, inspect).await.unwrap();
        let socket = Self { stream, handshake: handshake.unwrap() };
        assert!(!socket.target().contains(KEY), "{}", socket.target());
        socket
    }

    /// Path and query of the address.
    pub(crate) fn target(&self) -> String {
        self.handshake.uri().to_string()
    }

    /// The headers with the key.
    pub(crate) fn keys(&self) -> Vec<String> {
        let headers = self.handshake.headers().iter();
        let text = headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        text.filter(|header| header.contains(KEY)).collect()
    }

    /// The next message; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.stream.next().await?.ok()? {
                Message::Text(text) => return Some(Frame::Text(text.to_string())),
                Message::Binary(bytes) => return Some(Frame::Binary(bytes.to_vec())),
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) | Message::Frame(_) => return None,
            }
        }
    }

    /// Sends a message. A client that has gone is no failure of the server.
    pub(crate) async fn send(&mut self, frame: &Frame) {
        let message = match frame.clone() {
            Frame::Text(text) => Message::text(text),
            Frame::Binary(bytes) => Message::binary(bytes),
        };
        let _ = self.stream.send(message).await;
    }

    /// Sends a message in fragments of the sizes, and the rest in one.
    pub(crate) async fn send_fragments(&mut self, frame: &Frame, sizes: &[usize]) {
        let mut rest = frame.bytes();
        let first = if matches!(frame, Frame::Text(_)) { Data::Text } else { Data::Binary };
        let mut data = first;
        for size in sizes {
            let (piece, later) = rest.split_at((*size).min(rest.len()));
            self.send_fragment(piece, data, false).await;
            (rest, data) = (later, Data::Continue);
        }
        self.send_fragment(rest, data, true).await;
    }

    /// Sends the beginning of a text whose rest never comes.
    pub(crate) async fn send_beginning(&mut self, text: &str) {
        self.send_fragment(text.as_bytes(), Data::Text, false).await;
    }

    async fn send_fragment(&mut self, piece: &[u8], data: Data, is_last: bool) {
        let fragment = Fragment::message(piece.to_vec(), OpCode::Data(data), is_last);
        self.stream.send(Message::Frame(fragment)).await.unwrap();
    }

    pub(crate) async fn close(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.stream.close(Some(frame)).await.unwrap();
    }
}
