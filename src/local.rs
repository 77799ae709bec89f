//! The models of this machine, as the engine asks for them: the registry, with the embedded ear, voice and speech detector put in.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use conversation::call_config::{LlmChoice, SttChoice, TtsChoice};
use conversation::metrics::MetricFamily;
use engine::hear::vad::{Silero, Vad};
use engine::{Models, WithWarning};
use models::registry::{self, Registry};
use models::turn::{self, SmartTurn, TurnModel};
use models::{Error, llm, net, paths, stt, tts, vad};
use tokio::runtime::Handle;

use crate::config::Config;

/// Threads that speak. A phrase takes some 20 ms of one: two serve every call of a laptop, and a late phrase never waits for an early one.
const VOICES: usize = 2;

/// A thread of the turn model for so many cores. A call asks it every few seconds for .06 s of a core, its ears and voice cost more.
const CORES_A_TURN: usize = 8;

/// Frames of 20 ms that may wait for a decoder, on an average of those in use, while new calls are taken: two seconds of sound.
const BEHIND: usize = 100;
/// Texts that may wait for a voice meanwhile: with two threads half a second's work.
const TEXTS: usize = 50;

/// How often the warm-up looks whether the decoders are loaded.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);

struct Local {
    registry: Registry,
    dir: PathBuf,
    decoders: usize,
    detector: OnceLock<Arc<vad::Network>>,
    /// What the registry has too, here by its own type: it is asked how busy it is.
    ears: OnceLock<Arc<stt::Pool>>,
    voices: OnceLock<Arc<tts::Flite>>,
    turn: OnceLock<Arc<SmartTurn>>,
}

/// What the operator set for the registry.
pub(crate) fn settings(config: &Config) -> registry::Config {
    registry::Config {
        allow_scripted: config.server.allow_scripted,
        openai: registry::Operator::from_env(|name| std::env::var(name).ok()),
        taps: config.server.allow_scripted.then(|| config.server.data.join("taps")),
        ..registry::Config::default()
    }
}

/// The models that calls are made of, still unloaded.
pub(crate) fn models(config: &Config, client: net::Client, runtime: &Handle) -> Arc<dyn Models> {
    let settings = settings(config);
    let decoders = if config.stt.pool == 0 { engine::thread::cores() } else { config.stt.pool };
    Arc::new(Local {
        registry: Registry::new(settings, client, runtime.clone()),
        dir: config.models.dir.clone(),
        decoders,
        detector: OnceLock::new(),
        ears: OnceLock::new(),
        voices: OnceLock::new(),
        turn: OnceLock::new(),
    })
}

impl Models for Local {
    fn load(&self) -> Result<(), String> {
        // Decoders load beside the rest, each on its own thread.
        let pool = Arc::new(stt::Pool::start(stt::Config { dir: self.dir.clone(), decoders: self.decoders }));
        let file = paths::vad(&self.dir);
        let network =
            vad::Network::load(&file).map_err(|e| format!("the speech detector cannot be loaded ({e})"))?;
        let _ = self.detector.set(Arc::new(network));
        let threads = (engine::thread::cores() / CORES_A_TURN).max(1);
        let turn = SmartTurn::find(turn::Config { dir: self.dir.clone(), threads }).map(Arc::new);
        self.registry.set_turn(turn.clone().map(|turn| turn as _));
        // Loaded once: each cell is empty here.
        let _ = turn.map(|turn| self.turn.set(turn));
        match tts::Flite::start(VOICES).map(Arc::new) {
            Ok(voices) => {
                self.registry.set_tts(Arc::clone(&voices) as _);
                let _ = self.voices.set(voices);
            }
            Err(error) => tracing::warn!(%error, "no embedded voice"),
        }
        while pool.loading() {
            std::thread::sleep(LOOK);
        }
        if let Some(why) = pool.failure() {
            // Not the end: scripted calls need none, and every other one is refused with this reason.
            tracing::error!(%why, "no embedded recogniser");
        }
        self.registry.set_stt(Arc::clone(&pool) as _);
        let _ = self.ears.set(pool);
        Ok(())
    }

    fn vad(&self) -> Result<Box<dyn Vad>, String> {
        let network = self.detector.get().ok_or("the speech detector is not loaded")?;
        Ok(Box::new(Silero::new(Arc::clone(network))))
    }

    fn stt(&self, choice: &SttChoice) -> WithWarning<Result<Arc<dyn stt::Stt>, Error>> {
        self.registry.stt(choice)
    }

    fn turn_model(&self) -> Result<Arc<dyn TurnModel>, Error> {
        self.registry.turn()
    }

    fn llm(&self, choice: &LlmChoice, agent_name: &str, fallback: bool) -> WithWarning<Arc<dyn llm::Llm>> {
        self.registry.llm(choice, agent_name, fallback)
    }

    fn tts(&self, choice: &TtsChoice) -> WithWarning<Result<Arc<dyn tts::Tts>, Error>> {
        self.registry.tts(choice)
    }

    fn overloaded(&self) -> Option<String> {
        let decoders = self.ears.get().map_or(0, |pool| pool.ready() - pool.free());
        let heard = self.ears.get().is_some_and(|pool| pool.waiting().0 > decoders.max(1) * BEHIND);
        let said = self.voices.get().is_some_and(|voices| voices.waiting().0 > TEXTS);
        match (heard, said) {
            (true, _) => Some("the speech decoders are behind".into()),
            (_, true) => Some("the voices are behind".into()),
            _ => None,
        }
    }

    fn stt_unavailable(&self) -> Option<String> {
        let pool = self.ears.get()?;
        (pool.free() == 0).then(|| format!("all {} speech decoders are taken", pool.ready()))
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let (ears, voices, turn) = (self.ears.get(), self.voices.get(), self.turn.get());
        let states = ears.map(|pool| [("free", pool.free()), ("taken", pool.ready() - pool.free())]);
        let queues = [
            ("stt", ears.map(|pool| pool.waiting())),
            ("tts", voices.map(|voices| voices.waiting())),
            ("turn", turn.map(|turn| turn.waiting())),
        ];
        let queues = queues.into_iter().filter_map(|(model, queue)| Some((model, queue?)));
        vec![
            MetricFamily::gauge(
                "visavis_decoders",
                "Speech decoders; each call that is heard by one has taken it.",
            )
            .with_each("state", states.into_iter().flatten()),
            MetricFamily::gauge("visavis_model_queue", "Work that waits for a built-in model's threads.")
                .with_each("model", queues.clone().map(|(model, (waiting, _))| (model, waiting))),
            MetricFamily::gauge(
                "visavis_model_queue_limit",
                "Work that may wait for a built-in model's threads.",
            )
            .with_each("model", queues.map(|(model, (_, limit))| (model, limit))),
        ]
    }
}
