//! Serving a router over HTTP/1.1, so that handlers know their peer's address, and nobody holds a connection by doing nothing:
//!
//! - a header that does not come in time, and a connection that asks for nothing, are closed;
//! - a body that does not come in time is answered 408;
//! - what a refusal leaves of a body is taken all the same, within bounds, so that the client reads the answer instead of a broken pipe;
//! - an answer that nobody reads ends with its connection;
//! - there are never more than so many connections, and an address holds only a part of them; who leaves for whom is in [`places`](crate::places).

mod unsent;

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

use crate::error::ApiError;
use crate::peer::{self, Network};
use crate::places::{InUse, Kind, Leave, Places, Taken};
use crate::serve::unsent::Stream;

/// Time that requests under way have to end: a stream of events would never.
const GRACE: Duration = Duration::from_secs(3);
/// A body has more time the longer it is: a second for so many bytes, which is slower than any line over which one can talk.
const SLOWEST: u64 = 4 << 10;
/// Of a body that nobody reads any more so much is taken, and for so long.
const LEFT_OVER: usize = 64 << 20;
const LEFT_TIME: Duration = Duration::from_secs(10);
/// After so long without a packet the peer is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The log says at most once in so long that there are too many connections.
const TELL: Duration = Duration::from_secs(60);
/// Time that the request of a connection at a reserved place has to come, header and body; time that a left-over of it is taken.
const RESERVED_TIME: Duration = Duration::from_secs(1);

/// What clients may take of the server.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Time that a request's header has to come, from the connection's beginning or the answer before on; time that its body has from
    /// then on, longer for a long one; time that an answer may lie unread.
    pub request: Duration,
    /// Connections at once; at least one. One address (of IPv6: a /64) may hold a quarter of them. There are 32 more, for health checks
    /// and calls.
    pub connections: usize,
    /// Proxies, whose connections are those of many clients: they may hold all of them, as this machine may.
    pub proxies: Vec<Network>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { request: Duration::from_secs(30), connections: 512, proxies: Vec::new() }
    }
}

/// In the extensions of a request whose connection has a reserved place: only what is [`essential`] is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved;

/// Whether a path is served at reserved places too: health checks, and the doors of calls.
pub(crate) fn essential(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/api/offer" | "/rtc") || path.starts_with("/rtc/")
}

/// Serves `router` on `listener` until `shutdown`, then gives the requests that are under way a moment to end.
///
/// # Errors
/// None yet: a listener that fails for a while (no file descriptors) is tried again.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let unread = bounds.request;
    run(listener, |stream| prepare(stream, unread), router, bounds, shutdown).await;
    Ok(())
}

/// Serves on any listener; `prepare` is called with each stream.
async fn run<L>(
    mut listener: L,
    prepare: impl Fn(&L::Io),
    router: Router,
    bounds: Bounds,
    shutdown: impl Future<Output = ()>,
) where
    L: Listener<Addr = SocketAddr>,
{
    let places = Places::new(bounds.connections);
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    let mut told: Option<Instant> = None;
    let mut tell = |what: &str| {
        if told.is_none_or(|at| at.elapsed() > TELL) {
            tracing::warn!(most = bounds.connections, "{what} (limits.connections)");
            told = Some(Instant::now());
        }
    };
    loop {
        let (stream, peer) = tokio::select! {
            next = listener.accept() => next,
            () = &mut shutdown => break,
        };
        if places.full() {
            tell("all connections are in use: idle ones are closed");
        }
        let place = tokio::select! {
            place = places.take(peer::counted(peer.ip(), &bounds.proxies)) => place,
            () = &mut shutdown => break,
        };
        // Who uses its whole share is not waited for.
        let Some(place) = place else {
            tell("an address uses its share of the connections: a further one is closed");
            continue;
        };
        prepare(&stream);
        tokio::spawn(connection(stream, peer, router.clone(), bounds.request, stopped.clone(), place));
    }
    drop(listener);
    drop(stop);
    let _ = timeout(GRACE, places.empty()).await;
}

/// Sets what the kernel watches over. It may refuse: the connection works without.
fn prepare(stream: &TcpStream, unread: Duration) {
    // Answers are small and written at once: waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4));
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(unread));
    #[cfg(not(target_os = "linux"))]
    let _ = unread;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: SocketAddr,
    router: Router,
    within: Duration,
    mut stopped: watch::Receiver<()>,
    (place, mut leave): (Taken, Leave),
) {
    let within = if place.kind == Kind::Reserved { within.min(RESERVED_TIME) } else { within };
    let place = &place;
    let service = service_fn(move |request| {
        let router = router.clone();
        async move {
            match place.begin() {
                Some(in_use) => answer(router, request, peer, within, place.kind, in_use).await,
                // The connection ends, and this with it.
                None => std::future::pending().await,
            }
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(within)
            .serve_connection(TokioIo::new(Stream::new(stream, place)), service)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // It is idle, so nobody loses an answer.
        () = leave.told() => return,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Clients come and go as they like: that is no fault of ours.
        tracing::debug!(%error, "a connection broke");
    }
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    peer: SocketAddr,
    within: Duration,
    kind: Kind,
    in_use: InUse,
) -> Result<Response, Infallible> {
    let late = Arc::new(AtomicBool::new(false));
    let reserved = kind == Kind::Reserved;
    // Who asks before sending is not sent to for nothing.
    let asks = request.headers().contains_key(header::EXPECT);
    let drains = (!asks).then_some(if reserved { RESERVED_TIME } else { LEFT_TIME });
    // A reserved place is given back within its second, however much of a body came.
    let slowest = if reserved { u64::MAX } else { SLOWEST };
    let mut request = request.map(|body| timely(body, within, slowest, Arc::clone(&late), drains));
    request.extensions_mut().insert(ConnectInfo(peer));
    if reserved {
        request.extensions_mut().insert(Reserved);
    }
    let mut response = router.oneshot(request).await?;
    // To the handler a body that ends too early is a bad body; the door's headers stay as they are.
    if late.load(Ordering::Relaxed) && response.status() == StatusCode::BAD_REQUEST {
        let (parts, body) = ApiError::Late.into_response().into_parts();
        *response.status_mut() = parts.status;
        *response.body_mut() = body;
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response.headers_mut().extend(parts.headers);
    }
    if reserved {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| Body::new(Answer { body, _in_use: in_use })))
}

/// An answer's body; its connection is in use until it is sent.
struct Answer {
    body: Body,
    _in_use: InUse,
}

impl HttpBody for Answer {
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

/// The body, which fails, and says so in `late`, once it is behind its time: `within`, and a second more for each `slowest` bytes that came.
fn timely(
    body: Incoming,
    within: Duration,
    slowest: u64,
    late: Arc<AtomicBool>,
    drains: Option<Duration>,
) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    let began = Instant::now();
    let body = Rest { body: Some(Body::new(body).into_data_stream()), drains };
    Body::from_stream(stream::unfold(Some((body, 0_u64)), move |state| {
        let late = Arc::clone(&late);
        async move {
            let (mut body, came) = state?;
            let deadline = began + within + Duration::from_millis(came.saturating_mul(1000) / slowest);
            let next = timeout_at(deadline, body.body.as_mut()?.next()).await;
            if let Ok(Some(Ok(bytes))) = next {
                let came = came + bytes.len() as u64;
                return Some((Ok(bytes), Some((body, came))));
            }
            body.drains = None;
            match next {
                Ok(Some(broken)) => Some((broken, None)),
                Ok(None) => None,
                Err(_) => {
                    late.store(true, Ordering::Relaxed);
                    Some((Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut))), None))
                }
            }
        }
    }))
}

/// What has not been read of a body. Left alone, it is taken until its end, for so long at most.
struct Rest {
    body: Option<BodyDataStream>,
    drains: Option<Duration>,
}

impl Drop for Rest {
    fn drop(&mut self) {
        let (Some(mut body), Some(time)) = (self.body.take(), self.drains) else { return };
        let drain = async move {
            let mut taken = 0;
            while let Some(Ok(bytes)) = body.next().await {
                taken += bytes.len();
                if taken > LEFT_OVER {
                    break;
                }
            }
        };
        // Without a runtime the server is gone, and its connections with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(timeout(time, drain));
        }
    }
}

#[cfg(test)]
mod tests;
