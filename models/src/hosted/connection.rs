//! WebSocket connections to the server of a vendor: how they are opened, used and closed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egress::Request;
use egress::websocket::{Message, WebSocket};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout};

use super::Endpoint;
use super::failure::Failure;

/// Time for a message to leave.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_millis(2_500);
/// Interval of pings, which find out that a connection is broken.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time for the vendor to end the stream after it was asked to.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(600);
/// Time to close the connection afterwards.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

/// Opens a connection to the address of `endpoint`, within `limit`.
pub(crate) async fn open(endpoint: &Endpoint, limit: Duration) -> Result<WebSocket, Failure> {
    let request =
        Request::websocket(&endpoint.url).and_then(|request| match &endpoint.authorization {
            Some((name, value)) => request.header(name, value),
            None => Ok(request),
        });
    let request = request.map_err(|error| Failure::from_transport(endpoint, &error))?;
    let opened = endpoint.client.connect(request.timeout(Some(limit))).await;
    opened.map_err(|error| Failure::from_handshake(endpoint, error))
}

/// The result of a message that had [`SEND_TIMEOUT`] to leave. `late` says what the vendor does not
/// do if that time is over.
pub(crate) fn check_sent(
    endpoint: &Endpoint,
    sent: Result<Result<(), egress::Error>, Elapsed>,
    late: &str,
) -> Result<(), Failure> {
    match sent {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::from_transport(endpoint, &error)),
        Err(_) => Err(Failure::timeout(endpoint, late)),
    }
}

/// Ends a connection politely. `say_goodbye` sends the vendor's own last message; `None` if there
/// is none, or if it was not sent. Takes at most [`DRAIN_TIMEOUT`] and [`CLOSE_TIMEOUT`].
pub(crate) async fn close(
    mut socket: WebSocket,
    say_goodbye: impl AsyncFnOnce(&mut WebSocket) -> Option<()>,
) {
    let end_stream = async {
        say_goodbye(&mut socket).await?;
        while !matches!(socket.receive().await.ok()??, Message::Close { .. }) {}
        Some(())
    };
    let was_closed = matches!(timeout(DRAIN_TIMEOUT, end_stream).await, Ok(Some(())));
    let end_connection = async {
        if !was_closed {
            socket.close().await.ok()?;
        }
        // The answer to a close frame leaves while messages are received.
        while socket.receive().await.ok()?.is_some() {}
        Some(())
    };
    let _ = timeout(CLOSE_TIMEOUT, end_connection).await;
}

/// Waits until `deadline`; `None` = for ever.
pub(crate) async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Total duration of successive connections. Several threads may read it.
#[derive(Default)]
pub(crate) struct ConnectedTime(Mutex<(Duration, Option<Instant>)>);

impl ConnectedTime {
    /// A connection is open.
    pub(crate) fn start(&self, now: Instant) {
        self.lock().1 = Some(now);
    }

    /// It is open no longer.
    pub(crate) fn stop(&self, now: Instant) {
        *self.lock() = (self.total(now), None);
    }

    /// The duration until `now`.
    pub(crate) fn total(&self, now: Instant) -> Duration {
        let (before, since) = *self.lock();
        before + since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn lock(&self) -> MutexGuard<'_, (Duration, Option<Instant>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_durations_of_successive_connections_add_up() {
        let (time, start) = (ConnectedTime::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(time.total(at(5)), Duration::ZERO);
        time.start(at(5));
        assert_eq!(time.total(at(7)), Duration::from_secs(2));
        time.stop(at(8));
        assert_eq!(time.total(at(60)), Duration::from_secs(3));
        time.start(at(100));
        time.stop(at(101));
        time.stop(at(200));
        assert_eq!(time.total(at(300)), Duration::from_secs(4));
    }
}
