//! The WebSocket of a participant (`/rtc/v1`): binary frames with one message each.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use egress::Request as HttpRequest;
use egress::websocket::{HandshakeError, Message, WebSocket};
use flate2::Compression;
use flate2::write::GzEncoder;
use livekit_protocol as proto;
use prost::Message as _;
use proto::wrapped_join_request::Compression as JoinCompression;
use proto::{JoinRequest, signal_request, signal_response};

/// Time for the handshake. The server answers it after it has found a node for the room.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Version of LiveKit's protocol: single peer connection, join request in the URL.
const PROTOCOL_VERSION: i32 = 17;

/// Why a connection could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The server refused it; another attempt may fail for the same reason.
    #[error("the LiveKit server refused the agent: {0}")]
    Refused(String),
    /// The server does not know the participant that wants to resume.
    #[error("the LiveKit server does not know the participant")]
    Unknown,
    /// The server was not reachable, or broke off.
    #[error("the LiveKit server cannot be reached: {0}")]
    Unreachable(String),
}

/// What arrives.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message.
    Signal(Box<signal_response::Message>),
    /// The connection is lost, and why.
    Lost(String),
}

/// An open connection.
pub(crate) struct SignalConnection {
    socket: WebSocket,
}

impl SignalConnection {
    /// Connects with a request to join or to resume.
    pub(crate) async fn open(
        client: &egress::Client,
        server_url: &str,
        token: &str,
        mut request: JoinRequest,
    ) -> Result<Self, ConnectError> {
        request.client_info = Some(client_info());
        request.connection_settings =
            Some(proto::ConnectionSettings { auto_subscribe: false, ..Default::default() });
        let base = server_url.trim_end_matches('/');
        let url = format!("{base}/rtc/v1?join_request={}", encode(&request));
        let invalid = |error: egress::Error| ConnectError::Refused(error.to_string());
        let http = HttpRequest::websocket(&url).and_then(|request| request.bearer(token));
        let http = http.map_err(invalid)?.timeout(Some(HANDSHAKE_TIMEOUT));
        match client.connect(http).await {
            Ok(socket) => Ok(Self { socket }),
            Err(HandshakeError::Refused(refusal)) => {
                let text = refusal.body.trim();
                let text = &text[..text.floor_char_boundary(200)];
                Err(match refusal.status {
                    404 if request.reconnect => ConnectError::Unknown,
                    401 | 403 => ConnectError::Refused(format!("{} {text}", refusal.status)),
                    404 => ConnectError::Refused(
                        "it is older than version 1.9.1, which is needed".to_owned(),
                    ),
                    status => ConnectError::Unreachable(format!("status {status} {text}")),
                })
            }
            Err(HandshakeError::Request(error)) => {
                Err(ConnectError::Unreachable(error.to_string()))
            }
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) async fn send(&mut self, request: signal_request::Message) -> Result<(), String> {
        let request = proto::SignalRequest { message: Some(request) };
        let sent = self.socket.send_binary(request.encode_to_vec()).await;
        sent.map_err(|error| error.to_string())
    }

    /// The next message. Those that cannot be read are skipped: later versions of the server know
    /// more messages. Cancel-safe.
    pub(crate) async fn receive(&mut self) -> Incoming {
        loop {
            match self.socket.receive().await {
                Ok(Some(Message::Binary(bytes))) => {
                    match proto::SignalResponse::decode(bytes).map(|response| response.message) {
                        Ok(Some(signal)) => return Incoming::Signal(Box::new(signal)),
                        Ok(None) => {}
                        Err(error) => tracing::debug!(%error, "a signal cannot be read"),
                    }
                }
                Ok(Some(Message::Text(_))) => {}
                Ok(Some(Message::Close { code, reason })) => {
                    return Incoming::Lost(format!("closed with {code} {reason}"));
                }
                Ok(None) => return Incoming::Lost("closed".to_owned()),
                Err(error) => return Incoming::Lost(error.to_string()),
            }
        }
    }

    /// Leaves the room and closes the connection.
    pub(crate) async fn leave(mut self) {
        let leave = proto::LeaveRequest {
            reason: proto::DisconnectReason::ClientInitiated as i32,
            action: proto::leave_request::Action::Disconnect as i32,
            ..proto::LeaveRequest::default()
        };
        // The server notices a lost connection too, later.
        if self.send(signal_request::Message::Leave(leave)).await.is_ok() {
            let _ = self.socket.close().await;
        }
    }
}

fn client_info() -> proto::ClientInfo {
    proto::ClientInfo {
        sdk: proto::client_info::Sdk::Rust as i32,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL_VERSION,
        os: "linux".to_owned(),
        other_sdks: concat!("visavis:", env!("CARGO_PKG_VERSION")).to_owned(),
        ..proto::ClientInfo::default()
    }
}

/// The request as a query parameter. Compressed, it fits the URL limits of proxies.
fn encode(request: &JoinRequest) -> String {
    let plain = request.encode_to_vec();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(&plain).and_then(|()| encoder.finish());
    let (compression, join_request) = match compressed {
        Ok(bytes) => (JoinCompression::Gzip, bytes),
        Err(_) => (JoinCompression::None, plain),
    };
    let wrapped = proto::WrappedJoinRequest { compression: compression as i32, join_request };
    URL_SAFE.encode(wrapped.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_request_is_compressed_and_safe_in_a_url() {
        let sdp = "a=candidate:1 1 udp 2130706431 127.0.0.1 50000 typ host\r\n".repeat(100);
        let offer = proto::SessionDescription { sdp, ..Default::default() };
        let request = JoinRequest { publisher_offer: Some(offer), ..Default::default() };
        let text = encode(&request);
        assert!(text.len() < 1_000, "{} characters", text.len());
        let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_=".contains(c);
        assert!(text.chars().all(is_safe));
        let wrapped = proto::WrappedJoinRequest::decode(&URL_SAFE.decode(text).unwrap()[..]);
        let bytes = wrapped.unwrap().join_request;
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(JoinRequest::decode(&plain[..]).unwrap(), request);
    }
}
