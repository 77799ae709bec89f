//! Models of the in-process calls: the workload's script, and the real VAD.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use engine::hear::vad::{BatchedVad, Vad};
use engine::{Models, WithWarning};
use engine_api::{LlmChoice, SttChoice, TtsChoice};
use models::scripted::{Script, ScriptedProvider};
use models::{Error, llm, paths, stt, tts, vad};
use tokio::runtime::Handle;

/// Scripted models.
pub(super) struct ScriptedModels {
    scripted: Arc<ScriptedProvider>,
    vad_weights: PathBuf,
    vad_network: OnceLock<Arc<vad::Network>>,
}

impl ScriptedModels {
    pub(super) fn new(dir: &Path, script: Script, runtime: Handle) -> Self {
        let scripted = Arc::new(ScriptedProvider::new(script, runtime));
        Self { scripted, vad_weights: paths::vad(dir), vad_network: OnceLock::new() }
    }
}

impl Models for ScriptedModels {
    fn load(&self) -> Result<(), String> {
        let network = vad::Network::load(&self.vad_weights)
            .map_err(|e| format!("cannot load the VAD model ({e})"))?;
        // `load` runs once, so the cell is empty.
        let _ = self.vad_network.set(Arc::new(network));
        Ok(())
    }

    fn vad(&self) -> Result<Box<dyn Vad>, String> {
        let network = self.vad_network.get().ok_or("the VAD model is not loaded")?;
        Ok(Box::new(BatchedVad::new(Arc::clone(network))))
    }

    fn stt(&self, _: &SttChoice) -> WithWarning<Result<Arc<dyn stt::Stt>, Error>> {
        (Ok(Arc::clone(&self.scripted) as _), None)
    }

    fn llm(&self, _: &LlmChoice, _: &str, _: bool) -> WithWarning<Arc<dyn llm::Llm>> {
        (Arc::clone(&self.scripted) as _, None)
    }

    fn tts(&self, _: &TtsChoice) -> WithWarning<Result<Arc<dyn tts::Tts>, Error>> {
        (Ok(Arc::clone(&self.scripted) as _), None)
    }
}
