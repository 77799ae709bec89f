//! Several servers on one database. Each renews its lease, and the leader among them takes over what
//! a lost server left behind.
//!
//! ```text
//! (start) start ---> alive
//! alive --- renew, 6 times per lease -------> alive
//! alive --- declared lost by the leader -----> lost: its deliveries, calls and jobs are taken over
//! lost ---- renew: it was only cut off -----> alive: it hangs up the calls that others have ended
//! alive --- release at shutdown ------------> lost, with nothing left to take over
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conversation::input::Command;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::failure_detector::FailureDetector;
use super::failure_log::FailureLog;
use super::presence::{Observation, Presence};
use crate::clock::{self, Micros};
use crate::cluster::erasure;
use crate::events::ending;
use crate::state::EngineCell;
use crate::state::event_storage::EventStorage;
use crate::state::server_report::Reporter;
use crate::state::supervise::BackgroundTask;
use crate::state::video_queue::VideoQueue;
use crate::state::webhook_queue::OutboxMessage;
use crate::store::ownership::Holder;
use crate::store::{self, Lock, Store, delivery, server};

/// Requests between servers are removed after this time. Their senders wait a few seconds.
const MESSAGE_LIFETIME: Duration = Duration::from_secs(60);
/// Number of renewals within a lease.
const RENEWALS_PER_LEASE: u32 = 6;
/// How old the end of a call may be for which this server looks. The clocks of servers differ.
const MAX_FENCED_AGE: Duration = Duration::from_secs(24 * 3600);
/// Why a process whose server id was taken accepts nothing any more.
const REPLACED: &str = "another process runs with the id of this server, as a copy of its data \
                        folder does: stop one of them, and remove server.id from a copy";
/// Maximum time of a step of a renewal. The database may not respond.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

/// The task that renews this server's lease, and takes over what lost servers left behind.
pub(crate) struct LeaseTask {
    pub(crate) store: Store,
    pub(crate) server_id: Arc<str>,
    /// `timeouts.lease`
    pub(crate) duration: Duration,
    /// `server.database_url`; `None` = there are no other servers.
    pub(crate) database_url: Option<String>,
    /// The data folder, whose files of erased conversations are removed.
    pub(crate) data: PathBuf,
    /// Stores the ends of the calls of lost servers.
    pub(crate) event_storage: EventStorage,
    /// Ends calls that others have ended.
    pub(crate) engine: Arc<EngineCell>,
    /// What other servers show of this one.
    pub(crate) reporter: Reporter,
    /// Notified of adopted deliveries.
    pub(crate) outbox: mpsc::UnboundedSender<OutboxMessage>,
    /// Notified of drawing jobs that may be claimed.
    pub(crate) bake_queued: Arc<Notify>,
    /// Notified of documents that may be claimed.
    pub(crate) document_queued: Arc<Notify>,
    /// Notified of videos that may be claimed.
    pub(crate) videos: Arc<VideoQueue>,
    pub(crate) failure_detector: FailureDetector,
    pub(crate) renewals: Renewals,
    pub(crate) presence: Option<Presence>,
    /// A session that did not respond in time. It is open until there is another one: its end would
    /// look like that of this process.
    pub(crate) unresponsive_presence: Option<Presence>,
    pub(crate) failure_log: FailureLog,
    /// Until when calls are looked for that others have ended, by the database's clock.
    pub(crate) fenced_until: Micros,
}

/// The renewals so far. Times are those of the database's clock.
#[derive(Clone, Copy, Default)]
pub(crate) struct Renewals {
    /// First one of those that follow each other without a gap.
    since: Micros,
    last: Micros,
}

impl BackgroundTask for LeaseTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let renewed = match self.database_url.clone() {
                Some(url) => {
                    let renewed = self.renew_and_take_over(&url).await;
                    if self.failure_log.is_new(&renewed) {
                        match &renewed {
                            Ok(()) => tracing::info!("renews this server's lease again"),
                            Err(error) => {
                                tracing::error!(%error, "cannot renew this server's lease");
                            }
                        }
                    }
                    if let Err(error) = &renewed
                        && error.is_outage()
                    {
                        self.store.health.report_failure(&error.to_string());
                    }
                    renewed.is_ok()
                }
                // No other server uses the file.
                None => false,
            };
            if !renewed && self.store.health.failure_reason().is_none() {
                // A write shows an outage in `/readyz` before a call needs the store.
                self.probe().await;
            }
            tokio::select! {
                () = tokio::time::sleep(self.duration / RENEWALS_PER_LEASE) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
    }
}

impl LeaseTask {
    /// Reports the store's health.
    async fn probe(&self) {
        if timeout(STEP_TIMEOUT, self.store.probe()).await.is_err() {
            self.store.health.report_failure("the database does not respond");
        }
    }

    async fn renew_and_take_over(&mut self, url: &str) -> store::Result<()> {
        let holder = &self.event_storage.holder;
        let (lease, report) = (clock::to_micros(self.duration), self.reporter.report());
        let renewal = self.store.renew_lease(holder, lease, &report);
        let Some(now) = timeout(STEP_TIMEOUT, renewal).await.map_err(|_| late())?? else {
            self.store.health.report_permanent_failure(REPLACED);
            self.hang_up_fenced().await?;
            return Err(store::Error::Unwritable(REPLACED.into()));
        };
        let last = self.renewals.last;
        if now - last >= lease {
            self.renewals.since = now;
            // The first renewal of a process finds no call that it may have lost.
            if last > 0 {
                // The leader may still be about to end calls.
                self.fenced_until = now + lease;
            }
        }
        self.renewals.last = now;
        if now <= self.fenced_until {
            self.hang_up_fenced().await?;
        }
        let seen = match timeout(STEP_TIMEOUT, self.check_presence(url)).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => {
                self.presence = None;
                return Err(error.into());
            }
            Err(_) => {
                self.unresponsive_presence =
                    self.presence.take().or(self.unresponsive_presence.take());
                return Err(late());
            }
        };
        if let Some(seen) = seen {
            self.take_over(&seen).await?;
        }
        // Any server may claim the jobs of a lost one, and an idle server those that a busy one has
        // queued.
        self.bake_queued.notify_one();
        self.document_queued.notify_one();
        self.videos.queued.notify_one();
        self.store.remove_old_messages(clock::to_micros(MESSAGE_LIFETIME)).await?;
        // Another server may have erased conversations whose files are here.
        erasure::remove_erased_files(&self.store, &self.server_id, &self.data).await?;
        Ok(())
    }

    /// Ends the calls here that others have ended, because this server seemed lost. Their records do
    /// not change any more.
    async fn hang_up_fenced(&self) -> store::Result<()> {
        let Some(engine) = self.engine.get() else { return Ok(()) };
        let since = clock::now() - clock::to_micros(MAX_FENCED_AGE);
        for id in self.store.fenced_conversations(&self.server_id, since).await? {
            if let Ok(id) = id.parse() {
                // It may have ended here too.
                let _ = engine.send_command(id, Command::End).await;
            }
        }
        Ok(())
    }

    async fn check_presence(&mut self, url: &str) -> sqlx::Result<Option<Observation>> {
        if let Some(presence) = &mut self.presence {
            return presence.check().await;
        }
        let presence = Presence::open(url, &self.server_id, self.duration).await?;
        // It releases the locks, for the new session.
        self.unresponsive_presence = None;
        self.presence.insert(presence).check().await
    }

    /// Declares servers lost, and takes over what they left behind.
    async fn take_over(&mut self, seen: &Observation) -> store::Result<()> {
        let servers = self.store.servers().await?;
        for row in
            self.failure_detector.find_lost(&self.server_id, self.renewals.since, seen, &servers)
        {
            if self.store.declare_lost(row).await? {
                tracing::warn!(server = %row.id, "a server is lost: its calls end");
            }
        }
        // Also what remains of an earlier attempt.
        if adopt_deliveries(&self.store, &self.server_id).await? {
            // The dispatcher of deliveries lives as long as this task.
            let _ = self.outbox.send(OutboxMessage::Rescan);
        }
        for id in self.store.orphaned_conversations(&self.server_id).await? {
            ending::recover_conversation(&self.event_storage, &id).await?;
        }
        Ok(())
    }
}

fn late() -> store::Error {
    store::Error::Unwritable("the database does not respond".into())
}

async fn adopt_deliveries(store: &Store, server_id: &str) -> store::Result<bool> {
    // Most checks find none and should not write.
    if !store.has_orphaned_deliveries(server_id).await? {
        return Ok(false);
    }
    let mut tx = store.begin_write(Lock::Rows).await?;
    let adopted = delivery::adopt_orphans(&mut tx, server_id).await?;
    tx.commit().await?;
    Ok(adopted)
}

/// Registers the start of this server, with its first lease.
pub(crate) async fn start(
    store: &Store,
    server_id: &Arc<str>,
    duration: Duration,
) -> store::Result<Holder> {
    let mut tx = store.begin_write(Lock::Rows).await?;
    let epoch = server::register(&mut tx, server_id).await?;
    if !store.is_shared() {
        server::set_alive(&mut tx, server_id).await?;
    }
    tx.commit().await?;
    let holder = Holder { server: Arc::clone(server_id), epoch };
    if store.is_shared() {
        store.renew_lease(&holder, clock::to_micros(duration), "{}").await?;
    } else {
        adopt_deliveries(store, server_id).await?;
    }
    Ok(holder)
}

/// Releases a server's lease, so that no other server waits for it to expire. Called only after the
/// ends of the server's calls are stored: other servers treat a call that is still open as left by
/// a lost server.
pub(crate) async fn release(store: &Store, server_id: &str) {
    if !store.is_shared() {
        return;
    }
    let end = async {
        let mut tx = store.begin_write(Lock::Rows).await?;
        server::set_lost(&mut tx, server_id).await?;
        tx.commit().await
    };
    if let Err(error) = end.await {
        tracing::error!(%error, "cannot release this server's lease");
    }
}
