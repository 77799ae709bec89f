//! The models on this machine, in the form that the engine needs: the registry with the built-in
//! STT, TTS and VAD.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use engine::hear::vad::{BatchedVad, Vad};
use engine::{Models, WithWarning};
use engine_api::metrics::MetricFamily;
use engine_api::{LlmChoice, SttChoice, TtsChoice};
use models::registry::{self, Registry};
use models::stt::Stt as _;
use models::tts::Tts as _;
use models::turn::{self, SmartTurn, TurnModel};
use models::{Error, llm, paths, stt, tts, vad};
use tokio::runtime::Handle;

use crate::config::Config;

/// Number of TTS threads. A phrase takes about 20 ms of one thread, so two threads serve every call
/// that a laptop can run. With two, a phrase does not wait for the one that was requested before
/// it.
const TTS_THREADS: usize = 2;

/// Cores per thread of the turn model. A call runs the model every few seconds, for 60 ms of CPU
/// time; its STT and TTS cost more.
const CORES_PER_TURN_THREAD: usize = 8;

/// Maximum number of queued 20 ms frames per decoder in use, on average, while new calls are
/// admitted: two seconds of audio.
const MAX_QUEUED_FRAMES: usize = 100;
/// Maximum number of queued TTS texts while new calls are admitted: half a second of work for two
/// threads.
const MAX_QUEUED_TEXTS: usize = 50;

/// How often the warm-up polls whether the decoders are loaded.
const DECODERS_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

struct LocalModels {
    registry: Registry,
    dir: PathBuf,
    decoder_count: usize,
    vad_network: OnceLock<Arc<vad::Network>>,
    /// Also in the registry. Here it has its concrete type, because its load is queried.
    stt_pool: OnceLock<Arc<stt::PocketSphinxPool>>,
    flite: OnceLock<Arc<tts::Flite>>,
    turn_model: OnceLock<Arc<SmartTurn>>,
}

/// The operator's settings for the registry.
pub(crate) fn registry_config(config: &Config) -> registry::Config {
    registry::Config {
        allow_scripted: config.server.allow_scripted,
        openai: registry::OperatorLlm::from_env(|name| std::env::var(name).ok()),
        tap_folder: config.server.allow_scripted.then(|| config.server.data.join("taps")),
        ..registry::Config::default()
    }
}

/// The models of all calls, not loaded yet.
pub(crate) fn create_models(
    config: &Config,
    client: egress::Client,
    runtime: &Handle,
) -> Arc<dyn Models> {
    let settings = registry_config(config);
    let decoders = if config.stt.pool == 0 { engine::thread::cores() } else { config.stt.pool };
    Arc::new(LocalModels {
        registry: Registry::new(settings, client, runtime.clone()),
        dir: config.models.dir.clone(),
        decoder_count: decoders,
        vad_network: OnceLock::new(),
        stt_pool: OnceLock::new(),
        flite: OnceLock::new(),
        turn_model: OnceLock::new(),
    })
}

impl Models for LocalModels {
    fn load(&self) -> Result<(), String> {
        // The decoders load in parallel to the rest, each on its own thread.
        let stt_pool = Arc::new(stt::PocketSphinxPool::start(stt::PocketSphinxConfig {
            dir: self.dir.clone(),
            decoders: self.decoder_count,
        }));
        let file = paths::vad(&self.dir);
        let network =
            vad::Network::load(&file).map_err(|e| format!("cannot load the VAD model ({e})"))?;
        let _ = self.vad_network.set(Arc::new(network));
        let threads = (engine::thread::cores() / CORES_PER_TURN_THREAD).max(1);
        let turn = SmartTurn::open(turn::Config { dir: self.dir.clone(), threads }).map(Arc::new);
        self.registry.set_turn(turn.clone().map(|turn| turn as _));
        // `load` runs once, so each cell is empty here.
        let _ = turn.map(|turn| self.turn_model.set(turn));
        match tts::Flite::start(TTS_THREADS).map(Arc::new) {
            Ok(flite) => {
                self.registry.set_tts(Arc::clone(&flite) as _);
                let _ = self.flite.set(flite);
            }
            Err(error) => tracing::warn!(%error, "the built-in TTS is unavailable"),
        }
        while stt_pool.is_loading() {
            std::thread::sleep(DECODERS_POLL_INTERVAL);
        }
        if let Some(why) = stt_pool.failure() {
            // Not fatal: scripted calls need no decoder, and all other calls are rejected for this
            // reason.
            tracing::error!(reason = %why, "the built-in STT is unavailable");
        }
        self.registry.set_stt(Arc::clone(&stt_pool) as _);
        let _ = self.stt_pool.set(stt_pool);
        Ok(())
    }

    fn vad(&self) -> Result<Box<dyn Vad>, String> {
        let network = self.vad_network.get().ok_or("the VAD model is not loaded")?;
        Ok(Box::new(BatchedVad::new(Arc::clone(network))))
    }

    fn stt(&self, choice: &SttChoice) -> WithWarning<Result<Arc<dyn stt::Stt>, Error>> {
        self.registry.stt(choice)
    }

    fn turn_model(&self) -> Result<Arc<dyn TurnModel>, Error> {
        self.registry.turn_model()
    }

    fn llm(
        &self,
        choice: &LlmChoice,
        agent_name: &str,
        fallback: bool,
    ) -> WithWarning<Arc<dyn llm::Llm>> {
        self.registry.llm(choice, agent_name, fallback)
    }

    fn tts(&self, choice: &TtsChoice) -> WithWarning<Result<Arc<dyn tts::Tts>, Error>> {
        self.registry.tts(choice)
    }

    fn overloaded(&self) -> Option<String> {
        let decoders = self.stt_pool.get().map_or(0, |pool| pool.taken_count());
        let stt_busy = self
            .stt_pool
            .get()
            .is_some_and(|pool| pool.queue_usage().0 > decoders.max(1) * MAX_QUEUED_FRAMES);
        let tts_busy =
            self.flite.get().is_some_and(|flite| flite.queue_usage().0 > MAX_QUEUED_TEXTS);
        match (stt_busy, tts_busy) {
            (true, _) => Some("the STT decoders are overloaded".into()),
            (_, true) => Some("the TTS is overloaded".into()),
            _ => None,
        }
    }

    fn unavailable(&self) -> Option<String> {
        let stt = self.stt_pool.get().and_then(|pool| pool.capacity_error());
        let tts = || self.flite.get().and_then(|flite| flite.capacity_error());
        stt.or_else(tts).map(|error| error.to_string())
    }

    fn degraded_reason(&self) -> Option<String> {
        let reasons = [
            self.stt_pool.get().and_then(|pool| pool.failure_message()),
            self.flite.get().and_then(|flite| flite.failure_message()),
            self.turn_model.get().and_then(|turn_model| turn_model.failure_message()),
        ];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let (stt_pool, flite, turn_model) =
            (self.stt_pool.get(), self.flite.get(), self.turn_model.get());
        let states = stt_pool.map(|pool| {
            [
                ("free", pool.free_count()),
                ("taken", pool.taken_count()),
                ("failed", pool.failed_count()),
            ]
        });
        let queues = [
            ("stt", stt_pool.map(|pool| pool.queue_usage())),
            ("tts", flite.map(|flite| flite.queue_usage())),
            ("turn", turn_model.map(|turn_model| turn_model.queue_usage())),
        ];
        let queues = queues.into_iter().filter_map(|(model, queue)| Some((model, queue?)));
        vec![
            MetricFamily::gauge(
                "visavis_stt_decoders",
                "STT decoders by state; a call with the built-in STT takes one.",
            )
            .with_each("state", states.into_iter().flatten()),
            MetricFamily::gauge(
                "visavis_model_queue",
                "Requests that wait for the threads of a built-in model.",
            )
            .with_each("model", queues.clone().map(|(model, (waiting, _))| (model, waiting))),
            MetricFamily::gauge(
                "visavis_model_queue_limit",
                "Maximum number of requests that wait for the threads of a built-in model.",
            )
            .with_each("model", queues.map(|(model, (_, limit))| (model, limit))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_decoders_are_reported_with_the_reason() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let models = LocalModels {
            registry: Registry::new(registry::Config::default(), client, runtime.handle().clone()),
            dir: PathBuf::new(),
            decoder_count: 2,
            vad_network: OnceLock::new(),
            stt_pool: OnceLock::new(),
            flite: OnceLock::new(),
            turn_model: OnceLock::new(),
        };
        assert_eq!((models.unavailable(), models.degraded_reason()), (None, None));
        let dir = "no/such/directory".into();
        let pool = stt::PocketSphinxPool::start(stt::PocketSphinxConfig {
            dir,
            decoders: models.decoder_count,
        });
        while pool.is_loading() {
            std::thread::yield_now();
        }
        assert!(models.stt_pool.set(Arc::new(pool)).is_ok());
        let reason = models.unavailable().unwrap();
        assert!(reason.starts_with("the STT decoders have failed: "), "{reason}");
        assert!(reason.contains("make setup"), "{reason}");
        let reason = models.degraded_reason().unwrap();
        assert!(
            reason.starts_with("STT decoders that have failed and are restarting: 2 of 2 ("),
            "{reason}"
        );
    }
}
