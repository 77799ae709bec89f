//! The models of this machine, as the engine asks for them: the registry, with the embedded ear, voice and speech detector put in.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use conversation::call::{LlmChoice, SttChoice, TtsChoice};
use engine::hear::vad::{Judge, Silero};
use engine::{Chosen, Models};
use models::registry::{self, Registry};
use models::turn::{self, SmartTurn, TurnModel};
use models::{Error, llm, net, paths, stt, tts, vad};
use tokio::runtime::Handle;

use crate::config::Config;

/// Threads that speak. A phrase takes some 20 ms of one: two serve every call of a laptop, and a late phrase never waits for an early one.
const VOICES: usize = 2;

/// A thread of the turn model for so many cores. A call asks it every few seconds for .06 s of a core, its ears and voice cost more.
const CORES_A_TURN: usize = 8;

/// How often the warm-up looks whether the decoders are loaded.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);

struct Local {
    registry: Registry,
    dir: PathBuf,
    decoders: usize,
    detector: OnceLock<Arc<vad::Network>>,
}

/// The models that calls are made of, still unloaded.
pub(crate) fn models(config: &Config, client: net::Client, runtime: &Handle) -> Arc<dyn Models> {
    let operator = registry::Operator::from_env(|name| std::env::var(name).ok());
    let settings = registry::Config {
        allow_scripted: config.server.allow_scripted,
        openai: operator,
        ..registry::Config::default()
    };
    let decoders = if config.stt.pool == 0 { engine::thread::cores() } else { config.stt.pool };
    Arc::new(Local {
        registry: Registry::new(settings, client, runtime.clone()),
        dir: config.models.dir.clone(),
        decoders,
        detector: OnceLock::new(),
    })
}

impl Models for Local {
    fn load(&self) -> Result<(), String> {
        // Decoders load beside the rest, each on its own thread.
        let pool = stt::Pool::start(stt::Config { dir: self.dir.clone(), decoders: self.decoders });
        let file = paths::vad(&self.dir);
        let network = vad::Network::load(&file)
            .map_err(|e| format!("the speech detector cannot be loaded ({e}): run make setup"))?;
        let _ = self.detector.set(Arc::new(network));
        let threads = (engine::thread::cores() / CORES_A_TURN).max(1);
        let turn = SmartTurn::find(turn::Config { dir: self.dir.clone(), threads });
        self.registry.set_turn(turn.map(|turn| Arc::new(turn) as _));
        match tts::Flite::start(VOICES) {
            Ok(voices) => self.registry.set_tts(Arc::new(voices)),
            Err(error) => tracing::warn!(%error, "no embedded voice"),
        }
        while pool.loading() {
            std::thread::sleep(LOOK);
        }
        if let Some(why) = pool.failure() {
            // Not the end: scripted calls need none, and every other one is refused with this reason.
            tracing::error!(%why, "no embedded recogniser");
        }
        self.registry.set_stt(Arc::new(pool));
        Ok(())
    }

    fn judge(&self) -> Result<Box<dyn Judge>, String> {
        let network = self.detector.get().ok_or("the speech detector is not loaded")?;
        Ok(Box::new(Silero::new(Arc::clone(network))))
    }

    fn stt(&self, choice: &SttChoice) -> Chosen<Result<Arc<dyn stt::Stt>, Error>> {
        self.registry.stt(choice)
    }

    fn turn(&self) -> Result<Arc<dyn TurnModel>, Error> {
        self.registry.turn()
    }

    fn llm(&self, choice: &LlmChoice, agent_name: &str, fallback: bool) -> Chosen<Arc<dyn llm::Llm>> {
        self.registry.llm(choice, agent_name, fallback)
    }

    fn tts(&self, choice: &TtsChoice) -> Chosen<Result<Arc<dyn tts::Tts>, Error>> {
        self.registry.tts(choice)
    }
}
