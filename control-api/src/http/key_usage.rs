//! Time of the last use of API keys. A request only records it in memory. A background task writes
//! it, at most once a minute for each key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Micros;
use crate::state::AppState;
use crate::state::api_key::{Hash, hex};
use crate::state::key_usage::FRESH;
use crate::store::{self, api_key};

/// Delay after a failed write.
const AGAIN: Duration = Duration::from_secs(60);

/// Writes recorded uses, until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = shared.uses.wake.notified() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        if let Err(error) = write(&shared, shared.uses.take()).await {
            tracing::warn!(%error, "cannot store the last uses of API keys");
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

async fn write(shared: &AppState, noted: HashMap<Hash, Micros>) -> store::Result<()> {
    if noted.is_empty() {
        return Ok(());
    }
    let mut tx = shared.store.write().await?;
    for (hash, at) in noted {
        // Another server on the same database, or an older entry, may have written a use meanwhile.
        api_key::used(&mut tx, &hex(&hash), at, at - FRESH).await?;
    }
    tx.commit().await
}
