//! Uses of API keys that are not written yet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::clock::{self, Micros};
use crate::state::api_key::KeyHash;

/// Minimum interval between two writes for the same key, in µs.
pub(crate) const MIN_WRITE_INTERVAL: Micros = 60_000_000;

/// Uses that are not written yet.
#[derive(Default)]
pub(crate) struct KeyUsage {
    /// At most one entry for each stored key.
    pending: Mutex<HashMap<KeyHash, Micros>>,
    pub(crate) wake: Notify,
}

impl KeyUsage {
    /// Records a use now, unless the stored one is newer than [`MIN_WRITE_INTERVAL`].
    pub(crate) fn record(&self, hash: KeyHash, known: Option<Micros>) {
        let now = clock::now();
        if known.is_some_and(|known| known > now - MIN_WRITE_INTERVAL) {
            return;
        }
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(hash, now);
        self.wake.notify_one();
    }

    pub(crate) fn take(&self) -> HashMap<KeyHash, Micros> {
        std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
