//! What the server of one session may send and take, and the end of the session: at a limit, and with the call.
//!
//! Nothing of a session outlives its budget: every request, stream and message of it goes through here and is dropped when the budget is
//! closed, whatever `rmcp`'s tasks wait for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use models::net::{self, Request, Response};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Bytes of the bodies of all answers and streams of a session.
const BYTES: usize = 8 << 20;
/// Answers, and events of streams, of a session.
const MESSAGES: usize = 2_000;

/// A limit that a session went over, in words that follow the server's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Limit {
    /// [`BYTES`].
    #[error("it sent more than 8 MiB")]
    Bytes,
    /// [`MESSAGES`].
    #[error("it sent more than 2000 messages")]
    Messages,
    /// [`super::session::TOOLS`].
    #[error("it has more than 64 tools")]
    Tools,
    /// [`super::session::LISTING`].
    #[error("it did not tell its tools within 10 s")]
    Listing,
    /// [`super::session::CALL`].
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

/// The budget of one session. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Budget(Arc<Inner>);

impl Budget {
    /// What closes the session when it is dropped.
    pub(super) fn guard(&self) -> DropGuard {
        self.0.over.clone().drop_guard()
    }

    /// Whether the session is over, by a limit or by its end.
    pub(super) fn is_closed(&self) -> bool {
        self.0.over.is_cancelled()
    }

    /// The limit that ended the session, if one did.
    pub(super) fn passed(&self) -> Option<Limit> {
        self.0.passed.get().copied()
    }

    /// The session has gone over a limit and is closed; who asked by [`Budget::on_limit`] is told, once.
    pub(super) fn pass(&self, limit: Limit) {
        if self.is_closed() || self.0.passed.set(limit).is_err() {
            return;
        }
        self.0.over.cancel();
        self.tell();
    }

    /// Calls `tell` when a limit ends the session; at once where one has.
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

    /// Why nothing goes on in the session.
    fn closed(&self) -> net::Error {
        net::Error::Broken(match self.passed() {
            Some(limit) => format!("the MCP server's session was closed: {limit}"),
            None => "the MCP server's session is over".into(),
        })
    }

    fn count(&self, counter: &AtomicUsize, more: usize, most: usize, limit: Limit) -> Result<(), net::Error> {
        let before = counter.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > most {
            self.pass(limit);
        }
        if self.is_closed() { Err(self.closed()) } else { Ok(()) }
    }

    /// Counts an answer or an event.
    ///
    /// # Errors
    /// The session is over: it was one too many, or it was over before.
    pub(super) fn message(&self) -> Result<(), net::Error> {
        self.count(&self.0.messages, 1, MESSAGES, Limit::Messages)
    }

    /// Does `work` as long as the session lasts.
    ///
    /// # Errors
    /// The session was over first.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, net::Error> {
        tokio::select! {
            biased;
            () = self.0.over.cancelled() => Err(self.closed()),
            done = work => Ok(done),
        }
    }

    /// Sends a request of the session.
    ///
    /// # Errors
    /// As [`net::Client::send`]; and the session is over.
    pub(super) async fn send(&self, client: &net::Client, request: Request) -> Result<Response, net::Error> {
        let response = self.within(client.send(request)).await??;
        self.message()?;
        Ok(response)
    }

    /// The next piece of an answer.
    ///
    /// # Errors
    /// As [`Response::chunk`]; and the session is over.
    pub(super) async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, net::Error> {
        let chunk = self.within(response.chunk()).await??;
        if let Some(chunk) = &chunk {
            self.count(&self.0.bytes, chunk.len(), BYTES, Limit::Bytes)?;
        }
        Ok(chunk)
    }

    /// The whole of an answer.
    ///
    /// # Errors
    /// As [`Budget::chunk`].
    pub(super) async fn body(&self, mut response: Response) -> Result<Vec<u8>, net::Error> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// A transport that ends with its session's budget. It is dropped rather than closed: `rmcp`'s own closing waits for a task that may
/// itself wait for the messages that nobody receives any more.
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
    type Error = net::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), net::Error>> + Send + 'static {
        let sending = self.transport.as_mut().map(|transport| transport.send(item));
        let budget = self.budget.clone();
        async move {
            let Some(sending) = sending else { return Err(budget.closed()) };
            let sent = budget.within(sending).await?;
            sent.map_err(|error| net::Error::Broken(error.to_string()))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let transport = self.transport.as_mut()?;
        self.budget.within(transport.receive()).await.ok()?
    }

    async fn close(&mut self) -> Result<(), net::Error> {
        self.transport = None;
        Ok(())
    }
}
