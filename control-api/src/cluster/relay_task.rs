//! Executes the requests of other servers about calls of this one, and receives the replies to its
//! own. It listens on a connection of its own: notifications arrive only between transactions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgListener, PgNotification};
use tokio::sync::watch;

use super::failure_log::FailureLog;
use crate::state::relay::{Relay, RelayedReply, RelayedRequest};
use crate::state::supervise::BackgroundTask;
use crate::store::message::{REPLY, REQUEST, channel};
use crate::store::{self, Store};

/// Delay before the next attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Executes a request on this server.
pub(crate) type Execute =
    Arc<dyn Fn(RelayedRequest) -> BoxFuture<'static, RelayedReply> + Send + Sync>;

/// The task that listens.
pub(crate) struct RelayTask {
    pub(crate) store: Store,
    pub(crate) server_id: Arc<str>,
    /// `server.database_url`; `None` = there are no other servers.
    pub(crate) database_url: Option<String>,
    pub(crate) relay: Arc<Relay>,
    pub(crate) execute: Execute,
}

impl BackgroundTask for RelayTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let Some(url) = self.database_url.clone() else { return };
        let mut log = FailureLog::default();
        loop {
            let listening = async {
                let listener = self.connect(&url).await?;
                if log.is_new(&Ok::<(), ()>(())) {
                    tracing::info!("listens for requests of other servers again");
                }
                Err::<(), _>(self.listen(listener).await)
            };
            let ended = tokio::select! {
                ended = listening => ended,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            if log.is_new(&ended)
                && let Err(error) = ended
            {
                tracing::error!(%error, "cannot listen for requests of other servers; retrying");
            }
            tokio::select! {
                () = tokio::time::sleep(RECONNECT_DELAY) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl RelayTask {
    /// Listens until the connection fails and cannot be replaced.
    async fn listen(&self, mut listener: PgListener) -> sqlx::Error {
        loop {
            self.read_missed().await;
            loop {
                match listener.try_recv().await {
                    Ok(Some(notification)) => self.on_notification(&notification),
                    // The connection was lost and replaced: notifications may be missing.
                    Ok(None) => break,
                    Err(error) => return error,
                }
            }
        }
    }

    async fn connect(&self, url: &str) -> sqlx::Result<PgListener> {
        let mut listener = PgListener::connect(url).await?;
        listener.listen(&channel(&self.server_id)).await?;
        Ok(listener)
    }

    /// Reads what was announced while nobody listened.
    async fn read_missed(&self) {
        self.relay.on_reconnect();
        match self.store.waiting_messages(&self.server_id).await {
            Ok(ids) => ids.into_iter().for_each(|id| self.on_request(id)),
            Err(error) => tracing::error!(%error, "cannot read the requests of other servers"),
        }
    }

    fn on_notification(&self, notification: &PgNotification) {
        let payload = notification.payload();
        if let Some(id) = payload.strip_prefix(REPLY) {
            self.relay.on_reply(id);
        } else if let Some(id) = payload.strip_prefix(REQUEST) {
            self.on_request(id.to_owned());
        }
    }

    /// Executes a request in a task of its own: an offer must not delay a command.
    fn on_request(&self, id: String) {
        let (store, server_id) = (self.store.clone(), Arc::clone(&self.server_id));
        let execute = Arc::clone(&self.execute);
        tokio::spawn(async move {
            if let Err(error) = serve_request(&store, &server_id, &id, execute).await {
                tracing::error!(%error, "cannot reply to another server");
            }
        });
    }
}

async fn serve_request(
    store: &Store,
    server_id: &str,
    id: &str,
    execute: Execute,
) -> store::Result<()> {
    let Some((sender, request)) = store.take_message(id, server_id).await? else { return Ok(()) };
    let reply = match serde_json::from_str(&request) {
        Ok(request) => execute(request).await,
        // Another release sent it. It does not wait in vain.
        Err(error) => {
            tracing::warn!(%error, "another server sent a request that this one does not know");
            RelayedReply::NotRunning
        }
    };
    let reply = serde_json::to_string(&reply)
        .map_err(|error| store::Error::CorruptRow("message", error.to_string()))?;
    store.reply_to_message(id, &sender, &reply).await
}
