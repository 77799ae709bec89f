//! What the engine asks for the models of its calls.

use std::sync::Arc;

use conversation::call_config::{LlmChoice, SttChoice, TtsChoice};
use conversation::metrics::MetricFamily;
use models::{Error, Kind};

use crate::hear::vad::Vad;

/// A model for a choice, and what the operator or the caller should know about it (a vendor that is not configured, say).
pub type WithWarning<T> = (T, Option<String>);

/// The models that calls are made of. The binary's registry, or a test's doubles.
pub trait Models: Send + Sync + 'static {
    /// Loads what takes time; called once, on a thread of its own.
    ///
    /// # Errors
    /// What is missing, in one sentence: no call is taken.
    fn load(&self) -> Result<(), String>;

    /// Who judges windows of sound, one for each media thread; after [`Models::load`].
    ///
    /// # Errors
    /// The weights are missing.
    fn vad(&self) -> Result<Box<dyn Vad>, String>;

    /// An ear.
    fn stt(&self, choice: &SttChoice) -> WithWarning<Result<Arc<dyn models::stt::Stt>, Error>>;

    /// Who says whether a turn is over; asked only for agents that want it (`stt.turn_model`).
    ///
    /// # Errors
    /// There is none here, or it does not work: turns are decided without.
    fn turn_model(&self) -> Result<Arc<dyn models::turn::TurnModel>, Error> {
        Err(Error::new(Kind::Missing, "this server has no turn model"))
    }

    /// A mind.
    fn llm(
        &self,
        choice: &LlmChoice,
        agent_name: &str,
        fallback: bool,
    ) -> WithWarning<Arc<dyn models::llm::Llm>>;

    /// A voice.
    fn tts(&self, choice: &TtsChoice) -> WithWarning<Result<Arc<dyn models::tts::Tts>, Error>>;

    /// Why a new call must wait for what running ones have asked for already, in one sentence; `None` while the built-in models keep up.
    fn overloaded(&self) -> Option<String> {
        None
    }

    /// Why a call that is heard by a built-in decoder could not be taken; `None` while one is free, or there is no such thing.
    fn stt_unavailable(&self) -> Option<String> {
        None
    }

    /// What they measure of themselves: decoders taken, what waits. Models that do not know measure nothing.
    fn metrics(&self) -> Vec<MetricFamily> {
        Vec::new()
    }
}
