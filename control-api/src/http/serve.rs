//! HTTP/1.1 server for a router. Handlers learn the address of their peer, and no client can occupy
//! a connection without sending or reading data:
//!
//! - A connection without a complete request header in time, or without a request, is closed.
//! - A body that is not complete in time is answered with 408.
//! - The rest of a rejected body is read within limits, so that the client receives the response
//!   instead of a broken pipe.
//! - A response that the client does not read ends with its connection.
//! - The number of connections is limited, and one address holds only a part of them. The rules for
//!   eviction are in [`connection_slots`](crate::http::connection_slots).
//!
//! Life of a connection:
//!
//! ```text
//! accepted -- no slot, address share used up ---> closed
//! accepted -- slot -----------------------------> idle
//! idle ------ request --------------------------> active
//! active ---- response sent --------------------> idle; closed if the slot is reserved
//! idle ------ evicted, or no header in time ----> closed
//! active ---- client does not read in time -----> closed
//! shutdown: no more requests; active ones have 3 s to finish
//! ```

mod tracked_stream;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tower::ServiceExt as _;

use crate::config::Network;
use crate::error::ApiError;
use crate::http::connection_slots::{
    ActiveRequest, ConnectionSlots, EvictionSignal, SlotKind, SlotPermit,
};
use crate::http::peer;
use crate::http::serve::tracked_stream::TrackedStream;

/// Time that active requests have to finish at shutdown. A stream of events would never finish.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);
/// A body may take one more second per this many bytes. That is slower than any network path that
/// can carry a call.
const MIN_BODY_BYTES_PER_SECOND: u64 = 4 << 10;
/// Maximum number of bytes, and maximum time, for draining a body that the handler does not read.
const MAX_DRAINED_BYTES: usize = 64 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time without a packet, TCP probes whether the peer is still there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// Minimum interval between two warnings about too many connections.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time for a request on a reserved connection, header and body; also the maximum time for
/// draining the rest of its body.
const RESERVED_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits for HTTP clients.
#[derive(Clone, Debug)]
pub struct HttpLimits {
    /// Maximum time for a request header, counted from the start of the connection or the previous
    /// response. Maximum time for the body after it, longer for a long body. Maximum time that a
    /// response may stay unread.
    pub request_timeout: Duration,
    /// Maximum number of simultaneous connections; at least one. One address (for IPv6, a /64) may
    /// hold a quarter of them. Another 32 are reserved for health checks and calls.
    pub max_connections: usize,
    /// Proxies. Their connections belong to many clients, so they may hold all connections, as this
    /// machine may.
    pub trusted_proxies: Vec<Network>,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(30),
            max_connections: 512,
            trusted_proxies: Vec::new(),
        }
    }
}

/// In the extensions of a request on a reserved connection: only paths for which
/// [`is_essential_path`] holds are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservedConnection;

/// Whether a path is also served on reserved connections: health checks and the signaling
/// endpoints.
pub(crate) fn is_essential_path(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/api/offer" | "/rtc") || path.starts_with("/rtc/")
}

/// Serves `router` on `listener` until `shutdown`, then waits up to 3 s for active requests.
///
/// # Errors
/// None yet: if the listener fails for a while (no file descriptors), it tries again.
pub fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, io::Result<()>> {
    // Boxed for the same reason as the futures of `App`.
    Box::pin(async move {
        let unread_timeout = limits.request_timeout;
        accept_connections(
            listener,
            |stream| configure_socket(stream, unread_timeout),
            router,
            limits,
            shutdown,
        )
        .await;
        Ok(())
    })
}

/// Serves on any listener. Calls `configure` with each stream.
async fn accept_connections<L>(
    mut listener: L,
    configure: impl Fn(&L::Io),
    router: Router,
    limits: HttpLimits,
    shutdown: impl Future<Output = ()>,
) where
    L: Listener<Addr = SocketAddr>,
{
    let slots = ConnectionSlots::new(limits.max_connections);
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    let mut last_warning: Option<Instant> = None;
    let mut warn_rarely = |what: &str| {
        if last_warning.is_none_or(|at| at.elapsed() > WARN_INTERVAL) {
            tracing::warn!(max_connections = limits.max_connections, "{what} (limits.connections)");
            last_warning = Some(Instant::now());
        }
    };
    loop {
        let (stream, peer) = tokio::select! {
            next = listener.accept() => next,
            () = &mut shutdown => break,
        };
        if slots.is_full() {
            warn_rarely("connection limit reached: idle connections are closed");
        }
        let permit = tokio::select! {
            permit = slots.acquire(
                peer::connection_limit_key(peer.ip(), &limits.trusted_proxies)
            ) => permit,
            () = &mut shutdown => break,
        };
        // An address that uses its whole share is rejected without a wait.
        let Some(permit) = permit else {
            warn_rarely("connection limit of an address reached: a connection is rejected");
            continue;
        };
        configure(&stream);
        tokio::spawn(serve_connection(
            stream,
            peer,
            router.clone(),
            limits.request_timeout,
            stopped.clone(),
            permit,
        ));
    }
    drop(listener);
    drop(stop);
    let _ = timeout(SHUTDOWN_GRACE, slots.wait_until_empty()).await;
}

/// Sets socket options. The kernel may reject them; the connection works without them.
fn configure_socket(stream: &TcpStream, unread_timeout: Duration) {
    // Responses are small and written at once. Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_TIME / 4),
    );
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(unread_timeout));
    #[cfg(not(target_os = "linux"))]
    let _ = unread_timeout;
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: SocketAddr,
    router: Router,
    request_timeout: Duration,
    mut stopped: watch::Receiver<()>,
    (permit, mut eviction): (SlotPermit, EvictionSignal),
) {
    let request_timeout = if permit.kind == SlotKind::Reserved {
        request_timeout.min(RESERVED_TIMEOUT)
    } else {
        request_timeout
    };
    let permit = Arc::new(permit);
    let stream = TrackedStream::new(stream, Arc::clone(&permit));
    let permit = &permit;
    let service = service_fn(move |request| {
        let router = router.clone();
        async move {
            match permit.start_request() {
                Some(active) => {
                    handle_request(router, request, peer, request_timeout, permit.kind, active)
                        .await
                }
                // The connection was evicted. It ends, and this future with it.
                None => std::future::pending().await,
            }
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(request_timeout)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // The connection is idle, so no response is lost.
        () = eviction.evicted() => return,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client may disconnect at any time; that is not an error of this server.
        tracing::debug!(%error, "connection failed");
    }
}

async fn handle_request(
    router: Router,
    request: Request<Incoming>,
    peer: SocketAddr,
    request_timeout: Duration,
    kind: SlotKind,
    active: ActiveRequest,
) -> Result<Response, Infallible> {
    let timed_out = Arc::new(AtomicBool::new(false));
    let reserved = kind == SlotKind::Reserved;
    // A client that sends `Expect` waits before it sends its body. Draining would make it send the
    // body for nothing.
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let drain_timeout =
        (!expects_continue).then_some(if reserved { RESERVED_TIMEOUT } else { DRAIN_TIMEOUT });
    // No extra time per byte on a reserved slot: it is free again after its one second, however
    // many bytes arrived.
    let min_rate = if reserved { u64::MAX } else { MIN_BODY_BYTES_PER_SECOND };
    let mut request = request.map(|body| {
        with_deadline(body, request_timeout, min_rate, Arc::clone(&timed_out), drain_timeout)
    });
    request.extensions_mut().insert(ConnectInfo(peer));
    if reserved {
        request.extensions_mut().insert(ReservedConnection);
    }
    let mut response = router.oneshot(request).await?;
    // The handler answers 400, because for it the body just ends too early. Headers of the
    // signaling endpoints stay.
    if timed_out.load(Ordering::Relaxed) && response.status() == StatusCode::BAD_REQUEST {
        let (parts, body) = ApiError::RequestTimeout.into_response().into_parts();
        *response.status_mut() = parts.status;
        *response.body_mut() = body;
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response.headers_mut().extend(parts.headers);
    }
    if reserved {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        active.keep_connection();
        return Ok(response);
    }
    Ok(response.map(|body| Body::new(TrackedBody { body, _request: active })))
}

/// The body of a response. The connection is active until it is sent.
struct TrackedBody {
    body: Body,
    _request: ActiveRequest,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body with a deadline: `request_timeout`, plus one second per `min_rate` bytes received. Past
/// the deadline it fails and sets `timed_out`.
fn with_deadline(
    body: Incoming,
    request_timeout: Duration,
    min_rate: u64,
    timed_out: Arc<AtomicBool>,
    drain_timeout: Option<Duration>,
) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    let started_at = Instant::now();
    let body = UnreadBody { body: Some(Body::new(body).into_data_stream()), drain_timeout };
    Body::from_stream(stream::unfold(Some((body, 0_u64)), move |state| {
        let timed_out = Arc::clone(&timed_out);
        async move {
            let (mut body, received) = state?;
            let deadline = started_at
                + request_timeout
                + Duration::from_millis(received.saturating_mul(1000) / min_rate);
            let next = timeout_at(deadline, body.body.as_mut()?.next()).await;
            if let Ok(Some(Ok(bytes))) = next {
                let received = received + bytes.len() as u64;
                return Some((Ok(bytes), Some((body, received))));
            }
            body.drain_timeout = None;
            match next {
                Ok(Some(broken)) => Some((broken, None)),
                Ok(None) => None,
                Err(_) => {
                    timed_out.store(true, Ordering::Relaxed);
                    Some((Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut))), None))
                }
            }
        }
    }))
}

/// The unread rest of a body. When dropped, it is drained until its end, for at most
/// `drain_timeout`.
struct UnreadBody {
    body: Option<BodyDataStream>,
    drain_timeout: Option<Duration>,
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        let (Some(mut body), Some(time)) = (self.body.take(), self.drain_timeout) else { return };
        let drain = async move {
            let mut taken = 0;
            while let Some(Ok(bytes)) = body.next().await {
                taken += bytes.len();
                if taken > MAX_DRAINED_BYTES {
                    break;
                }
            }
        };
        // Without a runtime the server has ended, and its connections with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(timeout(time, drain));
        }
    }
}

#[cfg(test)]
mod tests;
