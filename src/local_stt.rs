//! The STTs on this machine: Moonshine if it is installed, and PocketSphinx where it is used.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine_api::metrics::MetricFamily;
use models::registry::Registry;
use models::stt::moonshine::{self, DecodeStats};
use models::stt::pocketsphinx;
use models::stt::{
    Event, Moonshine, MoonshineConfig, PocketSphinxConfig, PocketSphinxPool, Stt, SttStream,
};
use models::{Error, ErrorKind, Sink};

use crate::config;

/// Maximum number of queued 20 ms frames per PocketSphinx decoder in use, on average, while new
/// calls are admitted: two seconds of audio.
const MAX_QUEUED_FRAMES: usize = 100;
/// How often the warm-up polls whether the models are loaded.
const LOAD_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The STTs, not loaded at first.
pub(crate) struct LocalStt {
    dir: PathBuf,
    /// Number of workers of Moonshine.
    workers: usize,
    /// Whether PocketSphinx is loaded at start even if Moonshine is installed.
    loads_pocketsphinx: bool,
    moonshine: OnceLock<Arc<Moonshine>>,
    pocketsphinx: Arc<PocketSphinx>,
}

impl LocalStt {
    pub(crate) fn new(dir: PathBuf, settings: &config::Stt) -> Self {
        let or_default = |count: usize, default: usize| if count == 0 { default } else { count };
        let cores = engine::thread::cores();
        let decoders = or_default(settings.pool, cores);
        let config = PocketSphinxConfig { dir: dir.clone(), decoders };
        Self {
            dir,
            workers: or_default(settings.workers, moonshine::default_workers(cores)),
            loads_pocketsphinx: settings.pool > 0,
            moonshine: OnceLock::new(),
            pocketsphinx: Arc::new(PocketSphinx::new(config)),
        }
    }

    /// Starts what calls use from the beginning. [`Self::wait_loaded`] waits for it.
    pub(crate) fn start(&self, registry: &Registry) {
        let config = MoonshineConfig { dir: self.dir.clone(), workers: self.workers };
        match Moonshine::start(config).map(Arc::new) {
            Ok(stt) => {
                registry.set_moonshine(Arc::clone(&stt) as _);
                // `start` runs once, so the cell is empty.
                let _ = self.moonshine.set(stt);
            }
            Err(reason) => {
                tracing::warn!(reason, "Moonshine is not used; PocketSphinx is the built-in STT");
            }
        }
        registry.set_pocketsphinx(Arc::clone(&self.pocketsphinx) as _);
        if self.loads_pocketsphinx || self.moonshine.get().is_none() {
            match pocketsphinx::check_installed(&self.dir) {
                Ok(()) => {
                    self.pocketsphinx.pool();
                }
                Err(reason) => {
                    let _ = self.pocketsphinx.missing.set(reason);
                }
            }
        }
    }

    /// Waits until everything is loaded that [`Self::start`] has started.
    pub(crate) fn wait_loaded(&self) {
        let is_loading = || {
            self.moonshine.get().is_some_and(|stt| stt.is_loading())
                || self.pool().is_some_and(PocketSphinxPool::is_loading)
        };
        while is_loading() {
            std::thread::sleep(LOAD_POLL_INTERVAL);
        }
        let failures = [
            self.moonshine.get().and_then(|stt| stt.failure()),
            self.pool().and_then(PocketSphinxPool::failure),
        ];
        let missing = self.pocketsphinx.missing.get().cloned();
        for reason in failures.into_iter().flatten().chain(missing) {
            // Not fatal: scripted calls need no STT, and all other calls are rejected for this
            // reason.
            tracing::error!(%reason, "the built-in STT is unavailable");
        }
    }

    /// The decoders of PocketSphinx, if they are used.
    fn pool(&self) -> Option<&PocketSphinxPool> {
        self.pocketsphinx.pool.get()
    }

    /// Name of each STT that is not installed, and why.
    pub(crate) fn missing(&self) -> Vec<(&'static str, String)> {
        let moonshine = moonshine::check_installed(&self.dir).err();
        let pocketsphinx = pocketsphinx::check_installed(&self.dir).err();
        let all = [("Moonshine", moonshine), ("PocketSphinx", pocketsphinx)];
        all.into_iter().filter_map(|(name, reason)| Some((name, reason?))).collect()
    }

    /// Whether a further call would make the others late.
    pub(crate) fn is_overloaded(&self) -> bool {
        let pool_is_late = self.pool().is_some_and(|pool| {
            pool.queue_usage().0 > pool.taken_count().max(1) * MAX_QUEUED_FRAMES
        });
        pool_is_late || self.moonshine.get().is_some_and(|stt| stt.is_overloaded())
    }

    /// One sentence about each STT whose threads have failed.
    pub(crate) fn failure_messages(&self) -> [Option<String>; 2] {
        [
            self.moonshine.get().and_then(|stt| stt.failure_message()),
            self.pool().and_then(PocketSphinxPool::failure_message),
        ]
    }

    /// Number of commands and frames that wait for the threads, and the maximum; `None` before
    /// anything is started.
    pub(crate) fn queue_usage(&self) -> Option<(usize, usize)> {
        let queues = [
            self.moonshine.get().map(|stt| stt.queue_usage()),
            self.pool().map(PocketSphinxPool::queue_usage),
        ];
        queues.into_iter().flatten().reduce(|a, b| (a.0 + b.0, a.1 + b.1))
    }

    pub(crate) fn metrics(&self) -> Vec<MetricFamily> {
        let pool = self.pool();
        let states = [
            ("free", pool.map_or(0, PocketSphinxPool::free_count)),
            ("taken", pool.map_or(0, PocketSphinxPool::taken_count)),
            ("failed", pool.map_or(0, PocketSphinxPool::failed_count)),
        ];
        let decodes: Vec<DecodeStats> =
            self.moonshine.get().map_or_else(Vec::new, |stt| stt.stats().to_vec());
        let count = |number: fn(&DecodeStats) -> u64| {
            decodes.iter().map(move |stats| (stats.purpose, number(stats)))
        };
        let seconds = |time: fn(&DecodeStats) -> Duration| {
            decodes.iter().map(move |stats| (stats.purpose, time(stats).as_secs_f64()))
        };
        let wait = self.moonshine.get().map(|stt| stt.expected_wait().as_secs_f64());
        vec![
            MetricFamily::gauge(
                "visavis_stt_decoders",
                "PocketSphinx decoders by state; a call with PocketSphinx takes one.",
            )
            .with_each("state", states),
            MetricFamily::counter("visavis_stt_decodes", "Decodes of Moonshine by purpose.")
                .with_each("purpose", count(|stats| stats.decodes)),
            MetricFamily::counter(
                "visavis_stt_decodes_discarded",
                "Decodes of Moonshine whose result was of no use, by purpose.",
            )
            .with_each("purpose", count(|stats| stats.discarded)),
            MetricFamily::counter(
                "visavis_stt_decode_seconds",
                "Time of Moonshine's workers by purpose.",
            )
            .with_each("purpose", seconds(|stats| stats.decode_time)),
            MetricFamily::counter(
                "visavis_stt_queue_wait_seconds",
                "Time that decodes waited for a worker of Moonshine, by purpose.",
            )
            .with_each("purpose", seconds(|stats| stats.queue_wait)),
            MetricFamily::counter(
                "visavis_stt_audio_seconds",
                "Duration of the audio that Moonshine decoded, by purpose.",
            )
            .with_each("purpose", seconds(|stats| stats.audio)),
            MetricFamily::gauge(
                "visavis_stt_expected_wait_seconds",
                "Smoothed time that a final transcript waits for a worker of Moonshine.",
            )
            .with_value(wait.unwrap_or(0.0)),
        ]
    }
}

/// PocketSphinx, whose decoders start to load when they are first used.
struct PocketSphinx {
    config: PocketSphinxConfig,
    pool: OnceLock<PocketSphinxPool>,
    /// What is not installed. Decoders would fail to load again and again.
    missing: OnceLock<String>,
}

impl PocketSphinx {
    fn new(config: PocketSphinxConfig) -> Self {
        Self { config, pool: OnceLock::new(), missing: OnceLock::new() }
    }

    fn missing_error(&self) -> Option<Error> {
        let reason = self.missing.get()?;
        Some(Error::new(ErrorKind::NotAvailable, reason.clone()))
    }

    fn pool(&self) -> &PocketSphinxPool {
        self.pool.get_or_init(|| PocketSphinxPool::start(self.config.clone()))
    }
}

impl Stt for PocketSphinx {
    fn open(&self, sink: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        match self.missing_error() {
            Some(error) => Err(error),
            None => self.pool().open(sink),
        }
    }

    fn capacity_error(&self) -> Option<Error> {
        // A question must not load the decoders. A call may take one that is still loading.
        let of_pool = || self.pool.get().filter(|pool| !pool.is_loading())?.capacity_error();
        self.missing_error().or_else(of_pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pocketsphinx_is_loaded_only_where_it_is_used() {
        let dir = PathBuf::from("no/such/directory");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let registry =
            Registry::new(models::registry::Config::default(), client, runtime.handle().clone());
        let stt = LocalStt::new(dir.clone(), &config::Stt::default());
        assert!(stt.pool().is_none());
        assert_eq!(stt.queue_usage(), None);
        // Without Moonshine, it is the built-in STT.
        stt.start(&registry);
        stt.wait_loaded();
        let reason = stt.pocketsphinx.capacity_error().unwrap().to_string();
        assert!(reason.contains("make setup"), "{reason}");
        // Decoders that cannot load do not start.
        assert!(stt.pool().is_none());

        let lazy = LocalStt::new(dir, &config::Stt::default()).pocketsphinx;
        assert!(lazy.capacity_error().is_none());
        assert!(lazy.pool.get().is_none());
        let _ = lazy.open(Sink::new(|_| ()));
        assert!(lazy.pool.get().is_some());
    }
}
