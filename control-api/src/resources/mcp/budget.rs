//! Limits on the data and the duration of one MCP session, and its end: at a limit, or with the
//! call.
//!
//! Every request, stream and message of a session passes through its budget and is dropped when the
//! budget is closed, whatever the tasks of `rmcp` wait for. So nothing of a session outlives its
//! budget.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use egress::{Request, Response};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Maximum size of all response bodies and streams of a session, bytes.
const BYTES: usize = 8 << 20;
/// Maximum number of responses and stream events of a session.
const MESSAGES: usize = 2_000;

/// A limit that a session exceeded; its text follows the server's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Limit {
    /// [`MAX_SESSION_BYTES`].
    #[error("it sent more than 8 MiB")]
    Bytes,
    /// [`MAX_SESSION_MESSAGES`].
    #[error("it sent more than 2000 messages")]
    Messages,
    /// [`super::session::MAX_TOOLS`].
    #[error("it has more than 64 tools")]
    Tools,
    /// [`super::session::LISTING_TIMEOUT`].
    #[error("it did not tell its tools within 10 s")]
    Listing,
    /// [`super::session::CALL_TIMEOUT`].
    #[error("a tool of it took longer than 20 s")]
    Call,
}

type Tell = Box<dyn FnOnce(Limit) + Send>;

#[derive(Default)]
struct Inner {
    bytes: AtomicUsize,
    messages: AtomicUsize,
    passed: OnceLock<Limit>,
    tell: Mutex<Option<Tell>>,
    over: CancellationToken,
}

/// The budget of one session. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Budget(Arc<Inner>);

impl Budget {
    /// A guard that closes the session when it is dropped.
    pub(super) fn guard(&self) -> DropGuard {
        self.0.over.clone().drop_guard()
    }

    /// Whether the session is closed, by a limit or by its end.
    pub(super) fn is_closed(&self) -> bool {
        self.0.over.is_cancelled()
    }

    /// The limit that closed the session, if any.
    pub(super) fn passed(&self) -> Option<Limit> {
        self.0.passed.get().copied()
    }

    /// Closes the session because it exceeded a limit, and calls the callback of
    /// [`Budget::on_limit`] once.
    pub(super) fn pass(&self, limit: Limit) {
        if self.is_closed() || self.0.passed.set(limit).is_err() {
            return;
        }
        self.0.over.cancel();
        self.tell();
    }

    /// Calls the callback when a limit closes the session; at once if one already has.
    pub(super) fn on_limit(&self, tell: impl FnOnce(Limit) + Send + 'static) {
        *self.lock() = Some(Box::new(tell));
        self.tell();
    }

    fn tell(&self) {
        let Some(limit) = self.passed() else { return };
        let tell = self.lock().take();
        if let Some(tell) = tell {
            tell(limit);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Tell>> {
        self.0.tell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a request in a closed session.
    fn closed(&self) -> egress::Error {
        egress::Error::Connection(match self.passed() {
            Some(limit) => format!("the MCP server's session was closed: {limit}"),
            None => "the MCP server's session is over".into(),
        })
    }

    fn count(
        &self,
        counter: &AtomicUsize,
        more: usize,
        most: usize,
        limit: Limit,
    ) -> Result<(), egress::Error> {
        let before = counter.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > most {
            self.pass(limit);
        }
        if self.is_closed() { Err(self.closed()) } else { Ok(()) }
    }

    /// Counts a response or an event.
    ///
    /// # Errors
    /// The session is closed, by this message or before.
    pub(super) fn message(&self) -> Result<(), egress::Error> {
        self.count(&self.0.messages, 1, MESSAGES, Limit::Messages)
    }

    /// Runs `work` while the session is open.
    ///
    /// # Errors
    /// The session was closed first.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, egress::Error> {
        tokio::select! {
            biased;
            () = self.0.over.cancelled() => Err(self.closed()),
            done = work => Ok(done),
        }
    }

    /// Sends a request of the session.
    ///
    /// # Errors
    /// As for [`egress::Client::send`], or the session is closed.
    pub(super) async fn send(
        &self,
        client: &egress::Client,
        request: Request,
    ) -> Result<Response, egress::Error> {
        let response = self.within(client.send(request)).await??;
        self.message()?;
        Ok(response)
    }

    /// The next chunk of a response.
    ///
    /// # Errors
    /// As for [`Response::chunk`], or the session is closed.
    pub(super) async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, egress::Error> {
        let chunk = self.within(response.chunk()).await??;
        if let Some(chunk) = &chunk {
            self.count(&self.0.bytes, chunk.len(), BYTES, Limit::Bytes)?;
        }
        Ok(chunk)
    }

    /// The whole body of a response.
    ///
    /// # Errors
    /// As for [`Budget::chunk`].
    pub(super) async fn body(&self, mut response: Response) -> Result<Vec<u8>, egress::Error> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// A transport that ends with its session's budget. It is dropped and not closed: closing in `rmcp`
/// waits for a task that may itself wait for messages that are no longer received.
pub(super) struct Within<T> {
    transport: Option<T>,
    budget: Budget,
}

impl<T> Within<T> {
    pub(super) fn new(transport: T, budget: &Budget) -> Self {
        Self { transport: Some(transport), budget: budget.clone() }
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for Within<T> {
    type Error = egress::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), egress::Error>> + Send + 'static {
        let sending = self.transport.as_mut().map(|transport| transport.send(item));
        let budget = self.budget.clone();
        async move {
            let Some(sending) = sending else { return Err(budget.closed()) };
            let sent = budget.within(sending).await?;
            sent.map_err(|error| egress::Error::Connection(error.to_string()))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let transport = self.transport.as_mut()?;
        self.budget.within(transport.receive()).await.ok()?
    }

    async fn close(&mut self) -> Result<(), egress::Error> {
        self.transport = None;
        Ok(())
    }
}
