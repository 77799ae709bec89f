//! WebSockets that clients open to this server (RFC 6455). The framing is that of the library; the
//! handshake is here, because the HTTP server is hyper's.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::error::ApiError;
use crate::state::AppState;

/// Maximum size of a message, in bytes. 100 ms of sound of 48 kHz in base64 have 13 kB.
const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Memory of a connection, in bytes.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// Time within which the connection changes its protocol after the response.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(5);

/// An open WebSocket.
pub(crate) type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// A request that asks for a WebSocket.
pub(crate) struct WebSocketUpgrade {
    accept: String,
    upgrade: OnUpgrade,
}

fn has_token(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(token)))
}

impl FromRequestParts<Arc<AppState>> for WebSocketUpgrade {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &Arc<AppState>,
    ) -> Result<Self, Self::Rejection> {
        let headers = &parts.headers;
        let is_handshake = has_token(headers, header::CONNECTION, "upgrade")
            && has_token(headers, header::UPGRADE, "websocket")
            && headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
        let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_handshake);
        let accept = key.map(|key| derive_accept_key(key.as_bytes()));
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        match (accept, upgrade) {
            (Some(accept), Some(upgrade)) => Ok(Self { accept, upgrade }),
            _ => Err(ApiError::BadRequest("a WebSocket handshake is required".into())),
        }
    }
}

impl WebSocketUpgrade {
    /// The response that opens the WebSocket. `serve` gets it.
    pub(crate) fn open<F>(self, serve: impl FnOnce(WebSocket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { accept, upgrade } = self;
        let Ok(accept) = HeaderValue::from_str(&accept) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        tokio::spawn(async move {
            // The client may have disconnected.
            let Ok(Ok(upgraded)) = timeout(UPGRADE_TIMEOUT, upgrade).await else { return };
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER_BYTES)
                .max_message_size(Some(MAX_MESSAGE_BYTES))
                .max_frame_size(Some(MAX_MESSAGE_BYTES));
            let io = TokioIo::new(upgraded);
            serve(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await).await;
        });
        let headers = [
            (header::CONNECTION, HeaderValue::from_static("upgrade")),
            (header::UPGRADE, HeaderValue::from_static("websocket")),
            (header::SEC_WEBSOCKET_ACCEPT, accept),
        ];
        (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
    }
}
