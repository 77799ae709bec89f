//! Time of the last use of API keys. A request only records it in memory. A background task writes
//! it, at most once a minute for each key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Micros;
use crate::state::api_key::{KeyHash, to_hex};
use crate::state::key_usage::{KeyUsage, MIN_WRITE_INTERVAL};
use crate::state::supervise::BackgroundTask;
use crate::store::{self, Lock, Store, api_key};

/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// The task that writes recorded uses.
pub(crate) struct KeyUsageTask {
    pub(crate) store: Store,
    pub(crate) key_usage: Arc<KeyUsage>,
}

impl BackgroundTask for KeyUsageTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = self.key_usage.wake.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if let Err(error) = write(&self.store, self.key_usage.take()).await {
                tracing::warn!(%error, "cannot store the last uses of API keys");
                tokio::select! {
                    () = tokio::time::sleep(RETRY_DELAY) => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
            }
        }
    }
}

async fn write(store: &Store, uses: HashMap<KeyHash, Micros>) -> store::Result<()> {
    if uses.is_empty() {
        return Ok(());
    }
    let mut tx = store.begin_write(Lock::Rows).await?;
    // All servers write in the same order, so that none waits for another in a circle.
    for (hash, at) in BTreeMap::from_iter(uses) {
        // Another server on the same database, or an older entry, may have written a use meanwhile.
        api_key::record_use(&mut tx, &to_hex(&hash), at, at - MIN_WRITE_INTERVAL).await?;
    }
    tx.commit().await
}
