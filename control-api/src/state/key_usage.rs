//! Uses of API keys that are not written yet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::clock::{self, Micros};
use crate::state::api_key::Hash;

/// Minimum interval between two writes for the same key, in µs.
pub(crate) const FRESH: Micros = 60_000_000;

/// Uses that are not written yet.
#[derive(Default)]
pub(crate) struct Uses {
    /// At most one entry for each stored key.
    noted: Mutex<HashMap<Hash, Micros>>,
    pub(crate) wake: Notify,
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

    pub(crate) fn take(&self) -> HashMap<Hash, Micros> {
        std::mem::take(&mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
