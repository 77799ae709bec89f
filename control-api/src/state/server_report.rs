//! What a server reports of itself to the others with each renewal of its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use models::face::PLAN_VERSION;
use serde::{Deserialize, Serialize};

use super::EngineCell;
use crate::store::Store;

/// Whether a server accepts calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Readiness {
    Ready,
    /// It has no capacity for another call now.
    Full,
    /// It stops as soon as its calls have ended.
    Draining,
    /// It starts, or something that calls need does not work.
    #[default]
    Unavailable,
}

/// A report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerReport {
    pub(crate) version: String,
    pub(crate) region: String,
    pub(crate) calls: u64,
    /// The figure that `limits.load` is compared with, 0 to 1.
    pub(crate) load: f64,
    pub(crate) readiness: Readiness,
    /// Version of the pose sets that it draws; it reads them up to this one. 0 = of a release
    /// before.
    pub(crate) plan_version: u32,
}

/// Creates the reports of this server.
pub(crate) struct Reporter {
    pub(crate) engine: Arc<EngineCell>,
    pub(crate) store: Store,
    pub(crate) draining: Arc<AtomicBool>,
    /// `server.region`
    pub(crate) region: String,
}

impl Reporter {
    /// The present report, as JSON.
    pub(crate) fn report(&self) -> String {
        let engine = self.engine.get();
        let readiness = if self.draining.load(Ordering::Relaxed) {
            Readiness::Draining
        } else if engine.is_none_or(|engine| engine.not_ready_reason().is_some())
            || self.store.health.failure_reason().is_some()
        {
            Readiness::Unavailable
        } else if engine.is_some_and(|engine| engine.capacity_error().is_some()) {
            Readiness::Full
        } else {
            Readiness::Ready
        };
        let report = ServerReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            region: self.region.clone(),
            calls: engine.map_or(0, |engine| engine.active_calls() as u64),
            load: engine.map_or(0.0, |engine| engine.load_ratio()),
            readiness,
            plan_version: PLAN_VERSION,
        };
        serde_json::to_string(&report).unwrap_or_else(|_| "{}".to_owned())
    }
}
