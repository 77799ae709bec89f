//! The interface through which the engine gets the models of its calls.

use std::sync::Arc;

use engine_api::metrics::MetricFamily;
use engine_api::{LlmChoice, MissingModel, SttChoice, TtsChoice};
use models::vad::{NetworkState, WINDOW};
use models::{Error, ErrorKind};

/// A model for a choice, and a warning for the operator or the caller (a vendor that is not
/// configured, for example).
pub type WithWarning<T> = (T, Option<String>);

/// Source of the models of calls: the binary's registry, or test doubles.
pub trait Models: Send + Sync + 'static {
    /// Loads what takes time; called once, on a thread of its own.
    ///
    /// # Errors
    /// What is missing, in one sentence; the engine then takes no calls.
    fn load(&self) -> Result<(), String>;

    /// The VAD of one media thread; called after [`Models::load`].
    ///
    /// # Errors
    /// The weights are missing.
    fn vad(&self) -> Result<Box<dyn Vad>, String>;

    /// The STT engine for `choice`.
    fn stt(&self, choice: &SttChoice) -> WithWarning<Result<Arc<dyn models::stt::Stt>, Error>>;

    /// The model that decides whether a turn is over; requested only for agents that enable it
    /// (`stt.turn_model`).
    ///
    /// # Errors
    /// There is none on this server, or it does not work; turns are then decided without it.
    fn turn_model(&self) -> Result<Arc<dyn models::turn::TurnModel>, Error> {
        Err(Error::new(ErrorKind::NotAvailable, "this server has no turn model"))
    }

    /// The language model for `choice`.
    fn llm(
        &self,
        choice: &LlmChoice,
        agent_name: &str,
        fallback: bool,
    ) -> WithWarning<Arc<dyn models::llm::Llm>>;

    /// The TTS engine for `choice`.
    fn tts(&self, choice: &TtsChoice) -> WithWarning<Result<Arc<dyn models::tts::Tts>, Error>>;

    /// Why a new call must wait for the pending requests of running calls, in one sentence; `None`
    /// while the built-in models keep up.
    fn overloaded(&self) -> Option<String> {
        None
    }

    /// Why a call with the server's default STT and TTS would be rejected; `None` while a decoder
    /// is free and a voice works.
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// The models that are not installed, once [`Models::load`] has returned.
    fn missing(&self) -> Vec<MissingModel> {
        Vec::new()
    }

    /// Which built-in models have failed and are restarting, in one sentence; `None` while all
    /// work. Calls may run without some of them.
    fn degraded_reason(&self) -> Option<String> {
        None
    }

    /// Metrics of the models: decoders in use, queue lengths. Empty for models without metrics.
    fn metrics(&self) -> Vec<MetricFamily> {
        Vec::new()
    }
}

/// Computes speech probabilities of windows: the network, or a test double.
pub trait Vad: Send {
    /// Processes the next window of each stream: `probabilities[i]` becomes P(speech) in
    /// `windows[i]`.
    fn infer(
        &mut self,
        states: &mut [&mut NetworkState],
        windows: &[&[f32; WINDOW]],
        probabilities: &mut [f32],
    );
}
