//! The models on this machine, in the form that the engine needs: the registry with the built-in
//! STT, TTS and VAD.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use engine::hear::vad::{BatchedVad, Vad};
use engine::{Models, WithWarning};
use engine_api::metrics::{MetricFamily, MetricPoint};
use engine_api::{LlmChoice, MissingModel, SttChoice, TtsChoice};
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
    /// Why `dir` does not exist, with the folders that were tried.
    no_folder: Option<String>,
    vad_network: OnceLock<Arc<vad::Network>>,
    /// Also in the registry. Here it has its concrete type, because its load is queried.
    stt: LocalStt,
    hibari: OnceLock<Arc<tts::Hibari>>,
    flite: OnceLock<Arc<tts::Flite>>,
    turn_model: OnceLock<Arc<SmartTurn>>,
    /// Workspaces with accounts of their own, and the empty id for all others.
    workspaces: Vec<String>,
    /// Name, purpose and reason of each model that is not installed.
    missing: OnceLock<Vec<(&'static str, &'static str, String)>>,
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

/// The empty id, for all workspaces, and the id of each one that an account is limited to.
pub(crate) fn account_workspaces(accounts: &Accounts) -> Vec<String> {
    let named = accounts.iter().flat_map(|(_, account)| account.workspaces.iter().flatten());
    std::iter::once(String::new()).chain(named.cloned()).collect()
}

/// The models of all calls, not loaded yet. `workspaces`: those of [`account_workspaces`].
pub(crate) fn create_models(
    config: &Config,
    registry: Arc<Registry>,
    workspaces: Vec<String>,
) -> Arc<dyn Models> {
    Arc::new(LocalModels {
        registry,
        dir: config.models.folder(),
        no_folder: config.models.missing_reason(),
        vad_network: OnceLock::new(),
        stt: LocalStt::new(config.models.folder(), &config.stt),
        hibari: OnceLock::new(),
        flite: OnceLock::new(),
        turn_model: OnceLock::new(),
        workspaces,
        missing: OnceLock::new(),
    })
}

impl LocalModels {
    /// Texts that wait for each TTS, and the maximum.
    fn tts_queues(&self) -> impl Iterator<Item = (usize, usize)> {
        let hibari = self.hibari.get().map(|hibari| hibari.queue_usage());
        hibari.into_iter().chain(self.flite.get().map(|flite| flite.queue_usage()))
    }

    /// Why no agent with the server's default providers can hear.
    fn stt_error(&self) -> Option<Error> {
        let error = |workspace: &String| {
            let choice = SttChoice { workspace: workspace.clone(), ..SttChoice::default() };
            self.stt(&choice).0.map_or_else(Some, |stt| stt.capacity_error())
        };
        self.workspaces.iter().map(error).reduce(|first, next| first.and(next)).flatten()
    }

    /// Why no agent with the server's default providers can speak.
    fn tts_error(&self) -> Option<Error> {
        let error = |workspace: &String| {
            let choice = TtsChoice { workspace: workspace.clone(), ..TtsChoice::default() };
            self.tts(&choice).0.map_or_else(Some, |tts| tts.capacity_error())
        };
        self.workspaces.iter().map(error).reduce(|first, next| first.and(next)).flatten()
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
        let mut missing = Vec::new();
        // The STT loads in parallel to the rest, on its own threads.
        self.stt.start(&self.registry);
        let network = vad::Network::load(&paths::vad(&self.dir)).map_err(|error| {
            let reason = self.no_folder.clone().unwrap_or_else(|| error.to_string());
            format!("cannot load the VAD model ({reason})")
        });
        let vad = match network {
            Ok(network) => {
                let _ = self.vad_network.set(Arc::new(network));
                Ok(())
            }
            Err(reason) => {
                missing.push(("Silero VAD", "vad", reason.clone()));
                Err(reason)
            }
        };
        let threads = (engine::thread::cores() / CORES_PER_TURN_THREAD).max(1);
        let turn = SmartTurn::open(turn::Config { dir: self.dir.clone(), threads }).map(Arc::new);
        if let Err(reason) = &turn {
            missing.push(("smart-turn", "turn", reason.clone()));
        }
        self.registry.set_turn(turn.clone().map(|turn| turn as _));
        // `load` runs once, so each cell is empty here.
        let _ = turn.map(|turn| self.turn_model.set(turn));
        match tts::Flite::start(TTS_THREADS).map(Arc::new) {
            Ok(flite) => {
                self.registry.set_flite(Arc::clone(&flite) as _);
                let _ = self.flite.set(flite);
            }
            Err(error) => {
                tracing::warn!(%error, "the TTS flite is unavailable");
                missing.push(("flite", "tts", error.to_string()));
            }
        }
        match SentenceEncoder::load(&self.dir) {
            Ok(encoder) => self.registry.set_encoder(Arc::new(encoder)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the sentence encoder is unavailable; the built-in answerer finds less"
                );
                missing.push(("MiniLM", "llm", error.to_string()));
            }
        }
        match tts::Hibari::load(&self.dir, TTS_THREADS).map(Arc::new) {
            Ok(hibari) => {
                self.registry.set_hibari(Arc::clone(&hibari) as _);
                let _ = self.hibari.set(hibari);
            }
            Err(error) => {
                tracing::warn!(%error, "the TTS Hibari is unavailable; flite speaks instead");
                missing.push(("Hibari", "tts", error.to_string()));
            }
        }
        self.stt.wait_loaded();
        missing.extend(self.stt.missing().into_iter().map(|(name, reason)| (name, "stt", reason)));
        let _ = self.missing.set(missing);
        vad
    }

    fn missing(&self) -> Vec<MissingModel> {
        let (hears, speaks) = (self.stt_error().is_none(), self.tts_error().is_none());
        let all = self.missing.get().into_iter().flatten();
        all.map(|&(name, kind, ref reason)| {
            let needed = match kind {
                "vad" => true,
                "stt" => !hears,
                "tts" => !speaks,
                _ => false,
            };
            MissingModel { name, kind, needed, reason: reason.clone() }
        })
        .collect()
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
        self.stt_error().or_else(|| self.tts_error()).map(|error| error.to_string())
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
            no_folder: None,
            vad_network: OnceLock::new(),
            stt: LocalStt::new(dir, &settings),
            hibari: OnceLock::new(),
            flite: OnceLock::new(),
            turn_model: OnceLock::new(),
            workspaces: vec![String::new()],
            missing: OnceLock::new(),
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
    fn missing_models_are_needed_unless_another_model_serves() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let models = models_without_files(runtime.handle());
        let error = models.load().unwrap_err();
        assert!(error.starts_with("cannot load the VAD model "), "{error}");
        let needed = |models: &LocalModels, name: &str| {
            let missing = models.missing();
            let found = missing.iter().find(|model| model.name == name);
            found.map(|model| model.needed)
        };
        for (name, expected) in [
            ("Silero VAD", true),
            ("Moonshine", true),
            ("PocketSphinx", true),
            ("MiniLM", false),
            ("smart-turn", false),
        ] {
            assert_eq!(needed(&models, name), Some(expected), "{name}");
        }
        // A package of the system brings flite.
        let of_setup = |model: &&MissingModel| model.name != "flite";
        for model in models.missing().iter().filter(of_setup) {
            assert!(model.reason.contains("make setup"), "{model:?}");
        }

        // A hosted STT serves agents that name none.
        let key = |name: &str| (name == "DEEPGRAM_API_KEY").then(|| "k".to_owned());
        let accounts = Accounts::new(std::collections::BTreeMap::new(), key).unwrap();
        let defaults = registry::DefaultProviders {
            stt: vec!["deepgram".to_owned()],
            tts: vec!["deepgram".to_owned()],
            ..registry::DefaultProviders::default()
        };
        let config = registry::Config { accounts, defaults, ..registry::Config::default() };
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let registry = Arc::new(Registry::new(config, client, runtime.handle().clone()));
        let hosted = LocalModels { registry, ..models_without_files(runtime.handle()) };
        hosted.load().unwrap_err();
        assert_eq!(hosted.unavailable(), None);
        assert_eq!(needed(&hosted, "Moonshine"), Some(false));
        assert_eq!(needed(&hosted, "Silero VAD"), Some(true));
    }

    #[test]
    fn a_missing_stt_is_reported_with_the_reason() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let models = models_without_files(runtime.handle());
        models.stt.start(&models.registry);
        models.stt.wait_loaded();
        let reason = models.unavailable().unwrap();
        assert!(reason.contains("pocketsphinx") && reason.contains("make setup"), "{reason}");
        // A server with hosted models only is not degraded.
        assert_eq!(models.degraded_reason(), None);
    }
}
