//! Ends conversations that the engine does not end (not joined, or the server was restarted), and
//! erases old records.
//!
//! ```text
//! STARTED ------ not joined within the join timeout: end_unjoined -----> ENDED (NoJoin)
//! IN_PROGRESS -- its server died or restarted: recover_conversation ---> ENDED (Error)
//! ENDED -------- older than retention_days: erase_conversation --------> (erased)
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conversation::event::EndReason;
use tokio::sync::watch;

use crate::clock::{self, Micros};
use crate::cluster::erasure;
use crate::events::ending::{end_unjoined, recover_conversation};
use crate::state::event_storage::EventStorage;
use crate::state::live_calls::PendingOffers;
use crate::state::supervise::{BackgroundTask, catch_panic};
use crate::state::video_queue::VideoQueue;
use crate::store::{self, Lock, Store, idempotency, video};

/// Maximum interval between two sweeps. A conversation may be created at any time, but ends no
/// sooner than after the join timeout.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval between two sweeps.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(200);
const DAY: Duration = Duration::from_secs(86_400);

/// Ends the conversations that ran on this server when it died. The last utterance of the agent is
/// stored as far as it was heard.
pub(crate) async fn recover_conversations(storage: &EventStorage) {
    let running = match storage.store.running_conversations_on(&storage.server_id).await {
        Ok(running) => running,
        Err(error) => {
            tracing::error!(%error, "cannot read the conversations that a crash left open");
            return;
        }
    };
    for id in running {
        // A conversation whose code panics must not prevent the server's start.
        if let Err(error) = catch_panic(recover_conversation(storage, &id)).await {
            tracing::error!(
                conversation = %id,
                %error,
                "cannot end a conversation that a crash left open"
            );
        }
    }
}

/// The task that ends conversations that were not joined in time, and erases those that are too
/// old.
pub(crate) struct RecoveryTask {
    pub(crate) store: Store,
    pub(crate) server_id: Arc<str>,
    /// The data folder, whose files of erased conversations are removed.
    pub(crate) data: PathBuf,
    /// `timeouts.join`
    pub(crate) join_timeout: Duration,
    /// `server.retention_days`; 0 = conversations are never erased.
    pub(crate) retention_days: u32,
    /// Conversations that may still be joined.
    pub(crate) pending_offers: Arc<PendingOffers>,
    /// Stores the ends of conversations.
    pub(crate) event_storage: EventStorage,
    /// Notified of videos that are deleted because of their age.
    pub(crate) videos: Arc<VideoQueue>,
}

impl BackgroundTask for RecoveryTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let wait = match self.sweep().await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::error!(%error, "cannot end unjoined conversations");
                    MAX_SWEEP_INTERVAL
                }
            };
            // Files that could not be removed together with their record.
            let removed = erasure::remove_erased_files(&self.store, &self.server_id, &self.data);
            if let Err(error) = removed.await {
                tracing::error!(%error, "cannot clean up the traces of erased conversations");
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl RecoveryTask {
    /// One sweep; returns the delay until the next one.
    async fn sweep(&self) -> store::Result<Duration> {
        let now = clock::now();
        let join = clock::to_micros(self.join_timeout);
        let mut damaged = false;
        for id in self.store.unjoined_conversations(now - join, &self.server_id).await? {
            // An offer that arrived in time may still connect.
            if id.parse().is_ok_and(|id| self.pending_offers.contains(id)) {
                continue;
            }
            match end_unjoined(&self.event_storage, &id, EndReason::NoJoin, None).await {
                Ok(_) => {}
                Err(error) if error.is_outage() => return Err(error),
                // The other conversations are ended regardless.
                Err(error) => {
                    tracing::error!(
                        conversation = %id,
                        %error,
                        "cannot end an unjoined conversation"
                    );
                    damaged = true;
                }
            }
        }
        if self.retention_days > 0 {
            let before = now - clock::to_micros(DAY * self.retention_days);
            for id in self.store.conversations_ended_before(before).await? {
                match erasure::erase_conversation(&self.store, &self.server_id, &self.data, &id)
                    .await
                {
                    Ok(_) => {}
                    Err(error) if error.is_outage() => return Err(error),
                    // The other conversations are erased regardless. The next sweep tries again.
                    Err(error) => {
                        tracing::error!(conversation = %id, %error, "cannot erase a conversation")
                    }
                }
            }
        }
        self.delete_old_videos(now).await?;
        if damaged {
            // The failed one stays the oldest, so its age does not say when the next one is due.
            return Ok(MAX_SWEEP_INTERVAL);
        }
        let next = self
            .store
            .oldest_unjoined_at(&self.server_id)
            .await?
            .map_or(join, |at| at + join - clock::now());
        // A conversation created right after this sweep is due no sooner than after a whole join
        // timeout.
        Ok(Duration::from_micros(u64::try_from(next.min(join)).unwrap_or(0))
            .clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL))
    }

    /// Deletes the videos that are too old, and forgets old requests.
    async fn delete_old_videos(&self, now: Micros) -> store::Result<()> {
        let mut old = Vec::new();
        if self.retention_days > 0 {
            let before = now - clock::to_micros(DAY * self.retention_days);
            old = self.store.videos_finished_before(before).await?;
        }
        for id in &old {
            let mut tx = self.store.begin_write(Lock::Rows).await?;
            video::begin_deletion(&mut tx, None, id, now).await?;
            tx.commit().await?;
        }
        if !old.is_empty() {
            self.videos.begin_deletion();
        }
        // Most checks find none and should not write.
        if self.store.has_old_idempotency_keys(now).await? {
            let mut tx = self.store.begin_write(Lock::Rows).await?;
            idempotency::delete_old(&mut tx, now).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
