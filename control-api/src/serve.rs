//! Serving a router over HTTP/1.1, so that handlers know their peer's address, and nobody holds a connection by doing nothing:
//!
//! - a header that does not come in time, and a connection that asks for nothing, are closed;
//! - a body that does not come in time is answered 408;
//! - what a refusal leaves of a body is taken all the same, within bounds, so that the client reads the answer instead of a broken pipe;
//! - an answer that nobody reads ends with its connection;
//! - there are never more than so many connections; further ones wait until one of them ends.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::{ConnectInfo, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use futures_util::{StreamExt as _, stream};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tower::ServiceExt as _;

use crate::error::ApiError;

/// Time that requests under way have to end: a stream of events would never.
const GRACE: Duration = Duration::from_secs(3);
/// A body has more time the longer it is: a second for so many bytes, which is slower than any line over which one can talk.
const SLOWEST: u64 = 4 << 10;
/// Of a body that nobody reads any more so much is taken, and for so long.
const LEFT_OVER: usize = 64 << 20;
const LEFT_TIME: Duration = Duration::from_secs(10);
/// After so long without a packet the peer is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The log says at most once in so long that connections have to wait.
const TELL: Duration = Duration::from_secs(60);

/// What one client may take of the server.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time that a request's header has to come, from the connection's beginning or the answer before on; time that its body has from
    /// then on, longer for a long one; time that an answer may lie unread.
    pub request: Duration,
    /// Connections at once; at least one.
    pub connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { request: Duration::from_secs(30), connections: 512 }
    }
}

/// Serves `router` on `listener` until `shutdown`, then gives the requests that are under way a moment to end.
///
/// # Errors
/// None yet: a listener that fails for a while (no file descriptors) is tried again.
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    bounds: Bounds,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let most = u32::try_from(bounds.connections).unwrap_or(u32::MAX).max(1);
    let most = most.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
    let places = Arc::new(Semaphore::new(most as usize));
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    let mut told: Option<Instant> = None;
    loop {
        if places.available_permits() == 0 && told.is_none_or(|at| at.elapsed() > TELL) {
            tracing::warn!(most, "all connections are in use (limits.connections): new ones wait");
            told = Some(Instant::now());
        }
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place.expect("the semaphore is never closed"), Listener::accept(&mut listener).await)
        };
        let (place, (stream, peer)) = tokio::select! {
            next = next => next,
            () = &mut shutdown => break,
        };
        prepare(&stream, bounds.request);
        tokio::spawn(connection(stream, peer, router.clone(), bounds, stopped.clone(), place));
    }
    drop(listener);
    drop(stop);
    // All places are free once every connection has ended.
    let _ = timeout(GRACE, places.acquire_many(most)).await;
    Ok(())
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
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    bounds: Bounds,
    mut stopped: watch::Receiver<()>,
    place: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request| answer(router.clone(), request, peer, bounds.request));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.request)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Clients come and go as they like: that is no fault of ours.
        tracing::debug!(%error, "a connection broke");
    }
    drop(place);
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    peer: SocketAddr,
    within: Duration,
) -> Result<Response, Infallible> {
    let late = Arc::new(AtomicBool::new(false));
    // Who asks before sending is not sent to for nothing.
    let asks = request.headers().contains_key(header::EXPECT);
    let mut request = request.map(|body| timely(body, within, Arc::clone(&late), !asks));
    request.extensions_mut().insert(ConnectInfo(peer));
    let mut response = router.oneshot(request).await?;
    // To the handler a body that ends too early is a bad body; the door's headers stay as they are.
    if late.load(Ordering::Relaxed) && response.status() == StatusCode::BAD_REQUEST {
        let (parts, body) = ApiError::Late.into_response().into_parts();
        *response.status_mut() = parts.status;
        *response.body_mut() = body;
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response.headers_mut().extend(parts.headers);
    }
    Ok(response)
}

/// The body, which fails, and says so in `late`, once it is behind its time.
fn timely(body: Incoming, within: Duration, late: Arc<AtomicBool>, drains: bool) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    let began = Instant::now();
    let body = Rest { body: Some(Body::new(body).into_data_stream()), drains };
    Body::from_stream(stream::unfold(Some((body, 0_u64)), move |state| {
        let late = Arc::clone(&late);
        async move {
            let (mut body, came) = state?;
            let deadline = began + within + Duration::from_millis(came.saturating_mul(1000) / SLOWEST);
            let next = timeout_at(deadline, body.body.as_mut()?.next()).await;
            if let Ok(Some(Ok(bytes))) = next {
                let came = came + bytes.len() as u64;
                return Some((Ok(bytes), Some((body, came))));
            }
            body.drains = false;
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

/// What has not been read of a body. Left alone, it is taken until its end.
struct Rest {
    body: Option<BodyDataStream>,
    drains: bool,
}

impl Drop for Rest {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|_| self.drains) else { return };
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
            runtime.spawn(timeout(LEFT_TIME, drain));
        }
    }
}
