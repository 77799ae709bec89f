//! The models on this machine, in the form that the engine needs: the registry with the built-in
//! STT, TTS and VAD.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use engine::hear::vad::{BatchedVad, Vad};
use engine::{Models, WithWarning};
use engine_api::metrics::{MetricFamily, MetricPoint};
use engine_api::{LlmChoice, SttChoice, TtsChoice};
use models::registry::{self, Accounts, Registry};
use models::sentence_encoder::SentenceEncoder;
use models::turn::{self, SmartTurn, TurnModel};
use models::{Error, llm, paths, stt, tts, vad};
use tokio::runtime::Handle;

use crate::config::Config;
use crate::local_stt::LocalStt;

/// Number of TTS threads. A phrase takes about 20 ms of one thread, so two threads serve every call
/// that a laptop can run. With two, a phrase does not wait for the one that was requested before
/// it.
const TTS_THREADS: usize = 2;

/// Cores per thread of the turn model. A call runs the model every few seconds, for 60 ms of CPU
/// time; its STT and TTS cost more.
const CORES_PER_TURN_THREAD: usize = 8;

/// Maximum number of queued TTS texts while new calls are admitted: half a second of work for two
/// threads.
const MAX_QUEUED_TEXTS: usize = 50;

struct LocalModels {
    registry: Arc<Registry>,
    dir: PathBuf,
    /// Why `dir` does not exist, if so.
    missing: Option<String>,
    vad_network: OnceLock<Arc<vad::Network>>,
    /// Also in the registry. Here it has its concrete type, because its load is queried.
    stt: LocalStt,
    hibari: OnceLock<Arc<tts::Hibari>>,
    flite: OnceLock<Arc<tts::Flite>>,
    turn_model: OnceLock<Arc<SmartTurn>>,
}

/// The operator's settings for the registry.
fn registry_config(config: &Config, accounts: Accounts) -> registry::Config {
    registry::Config {
        allow_scripted: config.server.allow_scripted,
        accounts,
        defaults: config.providers.defaults(),
        timeouts: config.providers.timeouts(),
        hedge: config.providers.hedge_delays(),
        tap_folder: config.server.allow_scripted.then(|| config.server.data.join("taps")),
        ..registry::Config::default()
    }
}

/// The models of all providers. The built-in ones are added when they are loaded.
pub(crate) fn create_registry(
    config: &Config,
    accounts: Accounts,
    client: egress::Client,
    runtime: &Handle,
) -> Arc<Registry> {
    Arc::new(Registry::new(registry_config(config, accounts), client, runtime.clone()))
}

/// The models of all calls, not loaded yet.
pub(crate) fn create_models(config: &Config, registry: Arc<Registry>) -> Arc<dyn Models> {
    Arc::new(LocalModels {
        registry,
        dir: config.models.folder(),
        missing: config.models.missing_reason(),
        vad_network: OnceLock::new(),
        stt: LocalStt::new(config.models.folder(), &config.stt),
        hibari: OnceLock::new(),
        flite: OnceLock::new(),
        turn_model: OnceLock::new(),
    })
}

impl LocalModels {
    /// Texts that wait for each TTS, and the maximum.
    fn tts_queues(&self) -> impl Iterator<Item = (usize, usize)> {
        let hibari = self.hibari.get().map(|hibari| hibari.queue_usage());
        hibari.into_iter().chain(self.flite.get().map(|flite| flite.queue_usage()))
    }

    fn provider_states(&self) -> MetricFamily {
        let family = MetricFamily::gauge(
            "visavis_provider_up",
            "1 while all accounts at a provider that calls have used are believed to work, else 0.",
        );
        let points = self.registry.provider_states().into_iter().map(|(kind, vendor, works)| {
            let labels = vec![("provider", vendor.to_owned()), ("kind", kind.to_owned())];
            MetricPoint { labels, value: u64::from(works).into() }
        });
        MetricFamily { points: points.collect(), ..family }
    }
}

impl Models for LocalModels {
    fn load(&self) -> Result<(), String> {
        // The STT loads in parallel to the rest, on its own threads.
        self.stt.start(&self.registry);
        let file = paths::vad(&self.dir);
        let network = vad::Network::load(&file).map_err(|error| {
            let reason = self.missing.clone().unwrap_or_else(|| error.to_string());
            format!("cannot load the VAD model ({reason})")
        })?;
        let _ = self.vad_network.set(Arc::new(network));
        let threads = (engine::thread::cores() / CORES_PER_TURN_THREAD).max(1);
        let turn = SmartTurn::open(turn::Config { dir: self.dir.clone(), threads }).map(Arc::new);
        self.registry.set_turn(turn.clone().map(|turn| turn as _));
        // `load` runs once, so each cell is empty here.
        let _ = turn.map(|turn| self.turn_model.set(turn));
        match tts::Flite::start(TTS_THREADS).map(Arc::new) {
            Ok(flite) => {
                self.registry.set_flite(Arc::clone(&flite) as _);
                let _ = self.flite.set(flite);
            }
            Err(error) => tracing::warn!(%error, "the TTS flite is unavailable"),
        }
        match SentenceEncoder::load(&self.dir) {
            Ok(encoder) => self.registry.set_encoder(Arc::new(encoder)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the sentence encoder is unavailable; the built-in answerer finds less"
                );
            }
        }
        match tts::Hibari::load(&self.dir, TTS_THREADS).map(Arc::new) {
            Ok(hibari) => {
                self.registry.set_hibari(Arc::clone(&hibari) as _);
                let _ = self.hibari.set(hibari);
            }
            Err(error) => {
                tracing::warn!(%error, "the TTS Hibari is unavailable; flite speaks instead");
            }
        }
        self.stt.wait_loaded();
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
        let tts_busy = self.tts_queues().any(|(waiting, _)| waiting > MAX_QUEUED_TEXTS);
        match (self.stt.is_overloaded(), tts_busy) {
            (true, _) => Some("the STT is overloaded".into()),
            (_, true) => Some("the TTS is overloaded".into()),
            _ => None,
        }
    }

    fn unavailable(&self) -> Option<String> {
        let stt = self.stt.capacity_error();
        let tts = || self.tts(&TtsChoice::default()).0.ok().and_then(|tts| tts.capacity_error());
        stt.or_else(tts).map(|error| error.to_string())
    }

    fn degraded_reason(&self) -> Option<String> {
        let [moonshine, pocketsphinx] = self.stt.failure_messages();
        let reasons = [
            moonshine,
            pocketsphinx,
            self.hibari.get().and_then(|hibari| hibari.failure_message()),
            self.flite.get().and_then(|flite| flite.failure_message()),
            self.turn_model.get().and_then(|turn_model| turn_model.failure_message()),
        ];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let turn_model = self.turn_model.get();
        let queues = [
            ("stt", self.stt.queue_usage()),
            ("tts", self.tts_queues().reduce(|a, b| (a.0 + b.0, a.1 + b.1))),
            ("turn", turn_model.map(|turn_model| turn_model.queue_usage())),
        ];
        let queues = queues.into_iter().filter_map(|(model, queue)| Some((model, queue?)));
        let mut families = self.stt.metrics();
        families.push(self.provider_states());
        families.extend([
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
        ]);
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models_without_files(runtime: &Handle) -> LocalModels {
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let dir = PathBuf::from("no/such/directory");
        let settings = crate::config::Stt { pool: 2, ..crate::config::Stt::default() };
        let config = registry::Config::default();
        LocalModels {
            registry: Arc::new(Registry::new(config, client, runtime.clone())),
            dir: dir.clone(),
            missing: None,
            vad_network: OnceLock::new(),
            stt: LocalStt::new(dir, &settings),
            hibari: OnceLock::new(),
            flite: OnceLock::new(),
            turn_model: OnceLock::new(),
        }
    }

    #[test]
    fn providers_are_up_until_they_fail() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let models = models_without_files(runtime.handle());
        let points = || models.metrics().into_iter().find(|f| f.name == "visavis_provider_up");
        assert_eq!(points().unwrap().points, []);
        let choice = LlmChoice {
            provider: "anthropic".into(),
            token: Some("key".into()),
            ..LlmChoice::default()
        };
        let (_llm, warning) = models.llm(&choice, "Ada", false);
        assert_eq!(warning, None);
        let labels = vec![("provider", "anthropic".to_owned()), ("kind", "llm".to_owned())];
        let expected = [MetricPoint { labels, value: 1_u64.into() }];
        assert_eq!(points().unwrap().points, expected);
    }

    #[test]
    fn failed_decoders_are_reported_with_the_reason() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let models = models_without_files(runtime.handle());
        assert_eq!((models.unavailable(), models.degraded_reason()), (None, None));
        models.stt.start(&models.registry);
        models.stt.wait_loaded();
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
