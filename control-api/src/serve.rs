//! Serving a router, so that handlers know their peer's address.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;

/// Serves `router` on `listener` until `shutdown`, then lets the requests that are under way end.
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
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(shutdown)
        .await
}
