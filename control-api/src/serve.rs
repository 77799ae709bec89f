//! Serving a router, so that handlers know their peer's address.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Time that requests under way have to end: a stream of events would never.
const GRACE: Duration = Duration::from_secs(3);

/// Serves `router` on `listener` until `shutdown`, then gives the requests that are under way a moment to end.
///
/// # Errors
/// The listener broke.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = listener.tap_io(|stream| {
        // Answers are small and written at once: waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
    });
    let (told, tell) = oneshot::channel();
    let stop = async move {
        shutdown.await;
        // Nobody waits any more if serving has ended by itself.
        let _ = told.send(());
    };
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let grace = async {
        let _ = tell.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = axum::serve(listener, service).with_graceful_shutdown(stop).into_future() => served,
        () = grace => Ok(()),
    }
}
