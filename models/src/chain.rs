//! Chains of providers: if one fails, the next one serves the rest of the reply.
//!
//! - An LLM is replaced only before the first event of its answer ([`LlmChain`]).
//! - A TTS is replaced at the first word that has not sounded ([`TtsChain`]).
//! - STT chains are built into the hosted STT, which replays the audio (`stt::streaming`).
//!
//! A provider whose breaker is open is skipped. Each reason is told once per call.
//!
//! Hedging ([`Hedge`]), which is off by default: a request without an answer after some time is sent
//! to the next provider, too. The first one of both that answers serves; the other is cancelled.
//!
//! Chains, and the [`named`] models outside of chains, tell which provider serves.

mod llm;
mod named;
mod outbox;
mod race;
mod tts;
mod warnings;

use std::sync::Arc;

#[allow(unused_imports)]
pub(crate) use llm::LlmChain;
pub(crate) use named::{NamedLlm, NamedStt, NamedTts};
pub(crate) use race::Hedge;
pub(crate) use tts::{TtsChain, TtsEntry};

use crate::breaker::Breaker;

/// A provider of a chain.
pub(crate) struct ChainEntry<M: ?Sized> {
    /// Name for people.
    pub(crate) name: String,
    /// Name that agents and records use.
    pub(crate) provider: &'static str,
    pub(crate) model: Arc<M>,
    /// `None` for the models of this server, which have no account.
    pub(crate) breaker: Option<Arc<Breaker>>,
}

impl<M: ?Sized> ChainEntry<M> {
    /// The scripted model of a test.
    pub(crate) fn of_script(model: Arc<M>) -> Self {
        Self { name: "the script".into(), provider: "script", model, breaker: None }
    }
}
