//! Time of the last use of API keys. A request only records it in memory. A background task writes
//! it, at most once a minute for each key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::app::Shared;
use crate::auth::{self, Hash};
use crate::clock::{self, Micros};
use crate::store::{self, key};

/// Minimum interval between two writes for the same key, in µs.
const FRESH: Micros = 60_000_000;
/// Delay after a failed write.
const AGAIN: Duration = Duration::from_secs(60);

/// Uses that are not written yet.
#[derive(Default)]
pub(crate) struct Uses {
    /// At most one entry for each stored key.
    noted: Mutex<HashMap<Hash, Micros>>,
    wake: Notify,
}

impl Uses {
    /// Records a use now, unless the stored one is newer than [`MIN_WRITE_INTERVAL`].
    pub(crate) fn note(&self, hash: Hash, known: Option<Micros>) {
        let now = clock::now();
        if known.is_some_and(|known| known > now - FRESH) {
            return;
        }
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).insert(hash, now);
        self.wake.notify_one();
    }

    fn take(&self) -> HashMap<Hash, Micros> {
        std::mem::take(&mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes recorded uses, until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = shared.uses.wake.notified() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        if let Err(error) = write(&shared, shared.uses.take()).await {
            tracing::warn!(%error, "the last uses of API keys cannot be written");
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

async fn write(shared: &Shared, noted: HashMap<Hash, Micros>) -> store::Result<()> {
    if noted.is_empty() {
        return Ok(());
    }
    let mut tx = shared.store.write().await?;
    for (hash, at) in noted {
        // Another server on the same database, or an older entry, may have written a use meanwhile.
        key::used(&mut tx, &auth::hex(&hash), at, at - FRESH).await?;
    }
    tx.commit().await
}
