//! Jobs that create an avatar from a picture. They all fail: this server has no renderer of
//! pictures.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::clock;
use crate::state::supervise::BackgroundTask;
use crate::store::{self, Store, custom_avatar};

/// Delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Reason of failed jobs.
const NO_RENDERER: &str = "no renderer is installed";

/// The task that processes the queued jobs, including those from before the start.
pub(crate) struct PhotoJobTask {
    pub(crate) store: Store,
    /// Notified when a job is queued.
    pub(crate) queued: Arc<Notify>,
}

impl BackgroundTask for PhotoJobTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let fail_queued = async {
                if let Err(error) = fail_jobs(&self.store).await {
                    tracing::error!(%error, "cannot process the queue of photo avatar jobs");
                    return tokio::time::sleep(RETRY_DELAY).await;
                }
                self.queued.notified().await;
            };
            tokio::select! {
                () = fail_queued => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

async fn fail_jobs(store: &Store) -> store::Result<()> {
    let mut tx = store.begin_write().await?;
    custom_avatar::fail_queued_photo_jobs(&mut tx, NO_RENDERER, clock::now()).await?;
    tx.commit().await
}
