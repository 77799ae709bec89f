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
const MAX_SESSION_BYTES: usize = 8 << 20;
/// Maximum number of responses and stream events of a session.
const MAX_SESSION_MESSAGES: usize = 2_000;

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
    #[error("it did not list its tools within 10 s")]
    ListingTimeout,
    /// [`super::session::CALL_TIMEOUT`].
    #[error("one of its tools took longer than 20 s")]
    CallTimeout,
}

type OnLimit = Box<dyn FnOnce(Limit) + Send>;

#[derive(Default)]
struct BudgetState {
    bytes: AtomicUsize,
    messages: AtomicUsize,
    exceeded: OnceLock<Limit>,
    on_limit: Mutex<Option<OnLimit>>,
    closed: CancellationToken,
}

/// The budget of one session. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Budget(Arc<BudgetState>);

impl Budget {
    /// A guard that closes the session when it is dropped.
    pub(super) fn close_on_drop(&self) -> DropGuard {
        self.0.closed.clone().drop_guard()
    }

    /// Whether the session is closed, by a limit or by its end.
    pub(super) fn is_closed(&self) -> bool {
        self.0.closed.is_cancelled()
    }

    /// The limit that closed the session, if any.
    pub(super) fn exceeded_limit(&self) -> Option<Limit> {
        self.0.exceeded.get().copied()
    }

    /// Closes the session because it exceeded a limit, and calls the callback of
    /// [`Budget::on_limit`] once.
    pub(super) fn exceed(&self, limit: Limit) {
        if self.is_closed() || self.0.exceeded.set(limit).is_err() {
            return;
        }
        self.0.closed.cancel();
        self.notify_limit();
    }

    /// Calls the callback when a limit closes the session; at once if one already has.
    pub(super) fn on_limit(&self, on_limit: impl FnOnce(Limit) + Send + 'static) {
        *self.lock_on_limit() = Some(Box::new(on_limit));
        self.notify_limit();
    }

    fn notify_limit(&self) {
        let Some(limit) = self.exceeded_limit() else { return };
        let on_limit = self.lock_on_limit().take();
        if let Some(on_limit) = on_limit {
            on_limit(limit);
        }
    }

    fn lock_on_limit(&self) -> std::sync::MutexGuard<'_, Option<OnLimit>> {
        self.0.on_limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a request in a closed session.
    fn closed_error(&self) -> egress::Error {
        egress::Error::Connection(match self.exceeded_limit() {
            Some(limit) => format!("the MCP server's session was closed: {limit}"),
            None => "the MCP server's session has ended".into(),
        })
    }

    fn charge(
        &self,
        counter: &AtomicUsize,
        amount: usize,
        max: usize,
        limit: Limit,
    ) -> Result<(), egress::Error> {
        let before = counter.fetch_add(amount, Ordering::Relaxed);
        if before.saturating_add(amount) > max {
            self.exceed(limit);
        }
        if self.is_closed() { Err(self.closed_error()) } else { Ok(()) }
    }

    /// Counts a response or an event.
    ///
    /// # Errors
    /// The session is closed, by this message or before.
    pub(super) fn count_message(&self) -> Result<(), egress::Error> {
        self.charge(&self.0.messages, 1, MAX_SESSION_MESSAGES, Limit::Messages)
    }

    /// Runs `work` while the session is open.
    ///
    /// # Errors
    /// The session was closed first.
    pub(super) async fn run_until_closed<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, egress::Error> {
        tokio::select! {
            biased;
            () = self.0.closed.cancelled() => Err(self.closed_error()),
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
        let response = self.run_until_closed(client.send(request)).await??;
        self.count_message()?;
        Ok(response)
    }

    /// The next chunk of a response.
    ///
    /// # Errors
    /// As for [`Response::chunk`], or the session is closed.
    pub(super) async fn chunk(
        &self,
        response: &mut Response,
    ) -> Result<Option<Bytes>, egress::Error> {
        let chunk = self.run_until_closed(response.chunk()).await??;
        if let Some(chunk) = &chunk {
            self.charge(&self.0.bytes, chunk.len(), MAX_SESSION_BYTES, Limit::Bytes)?;
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
pub(super) struct BudgetedTransport<T> {
    transport: Option<T>,
    budget: Budget,
}

impl<T> BudgetedTransport<T> {
    pub(super) fn new(transport: T, budget: &Budget) -> Self {
        Self { transport: Some(transport), budget: budget.clone() }
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for BudgetedTransport<T> {
    type Error = egress::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), egress::Error>> + Send + 'static {
        let sending = self.transport.as_mut().map(|transport| transport.send(item));
        let budget = self.budget.clone();
        async move {
            let Some(sending) = sending else { return Err(budget.closed_error()) };
            let sent = budget.run_until_closed(sending).await?;
            sent.map_err(|error| egress::Error::Connection(error.to_string()))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let transport = self.transport.as_mut()?;
        self.budget.run_until_closed(transport.receive()).await.ok()?
    }

    async fn close(&mut self) -> Result<(), egress::Error> {
        self.transport = None;
        Ok(())
    }
}
