//! WebSocket connections (RFC 6455) under the same policy as requests: the handshake is a request of
//! [`Client`], so its address is checked, and it follows no redirect.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::StatusCode;
use reqwest::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message as Frame};
use url::Url;

pub use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{Client, Error, Method, Request, Response};

#[cfg(test)]
mod tests;

/// Maximum size of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Maximum size of a read, and memory of a connection, in bytes. Each read first clears memory of
/// this size. The library's 128 KiB take longer than a message with 100 ms of sound (6 KiB).
const READ_BUFFER_BYTES: usize = 16 << 10;
/// Maximum part of a refusal's body that is read, in bytes.
const MAX_REFUSAL_BYTES: usize = 4096;
/// Time for the whole handshake, unless the request sets another.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The server answered with another status than 101.
    #[error("the server refused the connection with status {}", .0.status)]
    Refused(Refusal),
}

/// The response of a server that opens no WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub status: u16,
    /// The header `Retry-After`, in seconds, if it is a number.
    pub retry_after: Option<Duration>,
    /// The first 4 KiB of the body, which often name the reason.
    pub body: String,
}

/// A message of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text.
    Text(Utf8Bytes),
    /// Bytes.
    Binary(Bytes),
    /// The server closes the connection; no message follows.
    Close {
        /// The status code; 1005 if the frame has none.
        code: u16,
        /// The reason; often empty.
        reason: String,
    },
}

/// An open connection. Pings are answered while [`WebSocket::receive`] is polled.
#[derive(Debug)]
pub struct WebSocket {
    stream: WebSocketStream<reqwest::Upgraded>,
    host: String,
}

/// Converts `ws` and `wss` to the schemes of the handshake.
///
/// # Errors
/// [`Error::Invalid`] if it is no URL of one of these schemes, or of `http` and `https`.
fn handshake_url(url: &str) -> Result<String, Error> {
    let url = Url::parse(url).map_err(|e| Error::Invalid(format!("bad URL: {e}")))?;
    let text = url.as_str();
    Ok(match url.scheme() {
        "ws" => text.replacen("ws", "http", 1),
        "wss" => text.replacen("wss", "https", 1),
        _ => text.to_owned(),
    })
}

impl Request {
    /// The handshake of a WebSocket at `url`, whose scheme is `ws`, `wss`, `http` or `https`. It
    /// must be complete within [`HANDSHAKE_TIMEOUT`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no such URL with a host.
    pub fn websocket(url: &str) -> Result<Self, Error> {
        let request = Self::new(Method::GET, &handshake_url(url)?)?;
        Ok(request.timeout(Some(HANDSHAKE_TIMEOUT)).limit(MAX_REFUSAL_BYTES))
    }
}

impl Client {
    /// Opens a WebSocket. `request` comes from [`Request::websocket`], perhaps with headers.
    ///
    /// # Errors
    /// See [`HandshakeError`].
    pub async fn connect(&self, mut request: Request) -> Result<WebSocket, HandshakeError> {
        let key = generate_key();
        let accept = derive_accept_key(key.as_bytes());
        let key = HeaderValue::from_str(&key).map_err(|_| Error::Invalid("bad key".into()))?;
        request.headers.extend([
            (CONNECTION, HeaderValue::from_static("Upgrade")),
            (UPGRADE, HeaderValue::from_static("websocket")),
            (SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            (SEC_WEBSOCKET_KEY, key),
        ]);
        // The timeout of the request would also end the connection.
        let timeout = request.timeout.take().unwrap_or(HANDSHAKE_TIMEOUT);
        let opened = tokio::time::timeout(timeout, async {
            let response = self.send_over(&self.upgradable, request).await?;
            if response.inner.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Err(HandshakeError::Refused(read_refusal(response).await));
            }
            if response.header(SEC_WEBSOCKET_ACCEPT.as_str()) != Some(accept.as_str()) {
                let why = format!("{} does not speak WebSocket", response.host);
                return Err(Error::Connection(why).into());
            }
            let Response { inner, host, .. } = response;
            let upgraded = inner.upgrade().await.map_err(|e| super::classify_error(&host, &e))?;
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER_BYTES)
                .max_message_size(Some(MAX_MESSAGE_BYTES))
                .max_frame_size(Some(MAX_MESSAGE_BYTES));
            let stream =
                WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
            Ok(WebSocket { stream, host })
        });
        opened.await.unwrap_or(Err(HandshakeError::Request(Error::Timeout)))
    }
}

/// Reads what the server says; an error while reading leaves the body empty.
async fn read_refusal(response: Response) -> Refusal {
    let retry_after = response.header("retry-after").and_then(|value| value.trim().parse().ok());
    let status = response.status();
    let body = response.body().await.map(|body| body.text()).unwrap_or_default();
    Refusal { status, retry_after: retry_after.map(Duration::from_secs), body }
}

impl WebSocket {
    /// Sends a text.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection is broken or closed.
    pub async fn send_text(&mut self, text: impl Into<Utf8Bytes>) -> Result<(), Error> {
        self.send(Frame::Text(text.into())).await
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// As [`WebSocket::send_text`].
    pub async fn send_binary(&mut self, bytes: impl Into<Bytes>) -> Result<(), Error> {
        self.send(Frame::Binary(bytes.into())).await
    }

    /// Sends a ping, which keeps the connection open and finds out if it is broken.
    ///
    /// # Errors
    /// As [`WebSocket::send_text`].
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.send(Frame::Ping(Bytes::new())).await
    }

    async fn send(&mut self, frame: Frame) -> Result<(), Error> {
        self.stream.send(frame).await.map_err(|e| self.error(&e))
    }

    /// The next message; `None` after the end of the connection. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection breaks, [`Error::TooLarge`] if a message has more
    /// than 16 MiB.
    pub async fn receive(&mut self) -> Result<Option<Message>, Error> {
        while let Some(frame) = self.stream.next().await {
            match frame.map_err(|e| self.error(&e))? {
                Frame::Text(text) => return Ok(Some(Message::Text(text))),
                Frame::Binary(bytes) => return Ok(Some(Message::Binary(bytes))),
                Frame::Close(frame) => {
                    let (code, reason) = frame
                        .map_or((CloseCode::Status, String::new()), |frame| {
                            (frame.code, frame.reason.to_string())
                        });
                    return Ok(Some(Message::Close { code: code.into(), reason }));
                }
                Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_) => {}
            }
        }
        Ok(None)
    }

    /// Closes the connection politely. Does not wait for the server's answer: [`Self::receive`]
    /// returns it.
    ///
    /// # Errors
    /// As [`WebSocket::send_text`].
    pub async fn close(&mut self) -> Result<(), Error> {
        let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        self.stream.close(Some(frame)).await.map_err(|e| self.error(&e))
    }

    fn error(&self, error: &tungstenite::Error) -> Error {
        match error {
            tungstenite::Error::Capacity(_) => Error::TooLarge,
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                Error::Connection(format!("{} closed the connection", self.host))
            }
            other => Error::Connection(format!("connection failed: {}: {other}", self.host)),
        }
    }
}
