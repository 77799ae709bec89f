//! What the threads of the engine share, and what a call holds of the engine: its slot, its entry
//! in the directory, its pending offer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use engine_api::EventSink;
use tokio::runtime::Handle;

use crate::channel::Sender;
use crate::latency::LatencyMetrics;
use crate::recorder::Recorder;
use crate::trace;

/// State that all media threads share. No access to it blocks.
pub struct EngineContext {
    /// The network thread pool.
    pub runtime: Handle,
    /// HTTP client for tools.
    pub http_client: egress::Client,
    /// Receives the events of all calls.
    pub event_sink: Arc<dyn EventSink>,
    /// Channel for traced inputs.
    pub trace: Option<Sender<trace::TraceMessage>>,
    /// Records calls; without it no call is recorded.
    pub recorder: Option<Recorder>,
    /// When a user counts as gone.
    pub timeouts: Timeouts,
    /// Latency histograms of turns.
    pub latencies: Arc<LatencyMetrics>,
    /// Share of a media thread's time above which it takes no new call; 0 = no limit.
    pub max_load: f64,
    /// Questions per second that a client may type; 0 = no limit.
    pub max_questions_per_second: f64,
}

/// Times after which an absent user counts as gone.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time within which an offer must connect; after it the offer is dropped.
    pub offer: Duration,
    /// Time within which a client may return after it closed its connection without a hang-up.
    pub closed: Duration,
    /// Time within which a client may return after its last packet.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            offer: Duration::from_secs(15),
            closed: Duration::from_secs(5),
            silence: Duration::from_secs(25),
        }
    }
}

/// Marks a call, or an offer for one, as present on its thread; dropping it clears the mark.
pub struct PresenceGuard(pub(crate) Arc<AtomicBool>);

impl Default for PresenceGuard {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for PresenceGuard {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// A call's slot on its thread; dropping it frees the slot.
pub struct Slot {
    slots_taken: Arc<AtomicUsize>,
}

impl Slot {
    pub(crate) fn take(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Relaxed);
        Self { slots_taken: Arc::clone(taken) }
    }

    /// A slot for a test's call.
    #[must_use]
    pub fn for_test() -> Self {
        Self::take(&Arc::default())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots_taken.fetch_sub(1, Relaxed);
    }
}

/// The entry of an offer; dropping it, when the offer connects or is abandoned, frees the entry.
#[derive(Debug)]
pub struct PendingOffer {
    pub(crate) number: u64,
    pub(crate) is_pending: Arc<AtomicBool>,
}

impl PendingOffer {
    /// An entry that belongs to no list, for a test's offer.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self { number, is_pending: Arc::new(AtomicBool::new(true)) }
    }
}

impl Drop for PendingOffer {
    fn drop(&mut self) {
        self.is_pending.store(false, Relaxed);
    }
}
