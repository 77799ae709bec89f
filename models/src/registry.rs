//! Registry: maps the names in an agent's configuration to models. Vendors are distinguished only
//! here.
//!
//! Names are free strings. A model that this server lacks is replaced by one that it has, with a
//! warning for the conversation's record. An agent that was made for another server works
//! unchanged.

mod hosted_stt;
mod operators;
mod providers;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use engine_api::{LlmChoice, SttChoice, TtsChoice};
use tokio::runtime::Handle as Runtime;

use crate::llm::anthropic::{self, Anthropic, RefusedParameters};
use crate::llm::builtin::{BuiltinLlm, CachedEncoder, TextEncoder};
use crate::llm::openai::{self, OpenAi};
use crate::llm::{Llm, Timeouts};
use crate::scripted::{Script, ScriptedProvider};
use crate::stt::Stt;
use crate::tts::{BuiltinTts, Tts};
use crate::turn::TurnModel;
use crate::{Error, ErrorKind};

pub use hosted_stt::OperatorStt;
pub use operators::{OperatorLlm, Operators};
pub use providers::{Provider, ProviderField, ProviderOption, providers};

/// The operator's configuration.
#[derive(Clone, Default)]
pub struct Config {
    /// Whether agents may name `script`.
    pub allow_scripted: bool,
    /// The operator's own language models.
    pub operators: Operators,
    /// Deepgram, for agents that name it without a key of their own.
    pub deepgram: Option<OperatorStt>,
    /// Script of the scripted models when the agent provides none.
    pub script: Script,
    /// Folder for the samples that the scripted STT receives, if a script requests them.
    pub tap_folder: Option<PathBuf>,
}

/// OpenAI's own server.
const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Default model on OpenAI's own server; it has a short time to the first token.
const OPENAI_MODEL: &str = "gpt-4.1-mini";

/// All models of this server.
pub struct Registry {
    config: Config,
    client: egress::Client,
    runtime: Runtime,
    moonshine: OnceLock<Arc<dyn Stt>>,
    pocketsphinx: OnceLock<Arc<dyn Stt>>,
    hibari: OnceLock<Arc<dyn Tts>>,
    flite: OnceLock<Arc<dyn Tts>>,
    turn: OnceLock<Result<Arc<dyn TurnModel>, String>>,
    encoder: OnceLock<Arc<CachedEncoder>>,
    refused_parameters: RefusedParameters,
}

/// A model for a choice, and an optional warning for the operator or the caller.
pub type WithWarning<T> = (T, Option<String>);

impl Registry {
    /// A registry without built-in STT, TTS and turn model.
    #[must_use]
    pub fn new(config: Config, client: egress::Client, runtime: Runtime) -> Self {
        Self {
            config,
            client,
            runtime,
            moonshine: OnceLock::new(),
            pocketsphinx: OnceLock::new(),
            hibari: OnceLock::new(),
            flite: OnceLock::new(),
            turn: OnceLock::new(),
            encoder: OnceLock::new(),
            refused_parameters: RefusedParameters::default(),
        }
    }

    /// Sets Moonshine, the built-in STT. A second call has no effect.
    pub fn set_moonshine(&self, stt: Arc<dyn Stt>) {
        let _ = self.moonshine.set(stt);
    }

    /// Sets PocketSphinx, the built-in STT of a server without Moonshine. A second call has no
    /// effect.
    pub fn set_pocketsphinx(&self, stt: Arc<dyn Stt>) {
        let _ = self.pocketsphinx.set(stt);
    }

    /// Sets Hibari, the TTS of female avatars. A second call has no effect.
    pub fn set_hibari(&self, tts: Arc<dyn Tts>) {
        let _ = self.hibari.set(tts);
    }

    /// Sets flite, the TTS of male avatars and of a server without Hibari. A second call has no
    /// effect.
    pub fn set_flite(&self, tts: Arc<dyn Tts>) {
        let _ = self.flite.set(tts);
    }

    /// Sets the turn model, or the reason why there is none. A second call has no effect.
    pub fn set_turn(&self, turn: Result<Arc<dyn TurnModel>, String>) {
        let _ = self.turn.set(turn);
    }

    /// Sets the sentence encoder, with which the built-in answerer recognizes paraphrases. A second
    /// call has no effect.
    pub fn set_encoder(&self, encoder: Arc<dyn TextEncoder>) {
        let _ = self.encoder.set(Arc::new(CachedEncoder::new(encoder)));
    }

    /// The turn model, prepared.
    ///
    /// # Errors
    /// There is none on this server, or it is known not to work. The error's source tells the
    /// operator what to do.
    pub fn turn_model(&self) -> Result<Arc<dyn TurnModel>, Error> {
        let missing = || {
            Error::new(ErrorKind::NotAvailable, "the turn model is not installed on this server")
        };
        let turn = match self.turn.get() {
            Some(Ok(turn)) => turn,
            Some(Err(why)) => return Err(missing().with_source(why.clone())),
            None => return Err(missing()),
        };
        turn.prepare()?;
        Ok(Arc::clone(turn))
    }

    /// The language model for `choice`. With `fallback`, the model to use after the first one
    /// failed. The result knows its model name: leave [`crate::llm::Request::model`] empty.
    pub fn llm(
        &self,
        choice: &LlmChoice,
        agent_name: &str,
        fallback: bool,
    ) -> WithWarning<Arc<dyn Llm>> {
        let (llm, warning) = self.find_llm(choice, agent_name, fallback);
        (llm, warning.or_else(|| ignored_options(choice)))
    }

    fn find_llm(
        &self,
        choice: &LlmChoice,
        agent_name: &str,
        fallback: bool,
    ) -> WithWarning<Arc<dyn Llm>> {
        let model = Some(&choice.fallback_model)
            .filter(|_| fallback)
            .and_then(Option::as_deref)
            .unwrap_or(&choice.model)
            .trim();
        let url = choice.url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let token = choice.token.as_deref().map(str::trim).filter(|token| !token.is_empty());
        let own = |url: &str| {
            let model = if model.is_empty() && url == OPENAI_URL { OPENAI_MODEL } else { model };
            self.openai_llm(url, token, model, self.client.clone())
        };
        let operators = &self.config.operators;
        let name = normalize_name(&choice.provider);
        match (name.as_str(), url) {
            ("", _) => (self.default_llm(agent_name), None),
            ("builtin" | "visavis", _) => (self.builtin_llm(agent_name), None),
            ("custom", Some(url)) => (own(url), None),
            ("custom", None) => {
                self.fallback_llm(agent_name, "The LLM provider \"custom\" requires a url")
            }
            // The agent's own account.
            ("openai", url) if token.is_some() => (own(url.unwrap_or(OPENAI_URL)), None),
            ("anthropic" | "claude", url) if token.is_some() || url.is_some() => {
                let url = url.unwrap_or(anthropic::DEFAULT_URL);
                let options = anthropic::Options::read(&choice.options).0;
                (self.anthropic_llm(url, token, model, options, self.client.clone()), None)
            }
            ("script", _) => self.scripted_llm(&choice.model, agent_name),
            (name, _) => match (name, &operators.openai, &operators.anthropic) {
                ("openai", Some(openai), _) => (self.operator_openai(openai, model), None),
                ("anthropic" | "claude", _, Some(anthropic)) => {
                    let options = anthropic::Options::read(&choice.options).0;
                    (self.operator_anthropic(anthropic, model, options), None)
                }
                _ => {
                    let requested = truncate_for_message(&choice.provider);
                    let why =
                        format!("The LLM provider {requested:?} is not available on this server");
                    self.fallback_llm(agent_name, &why)
                }
            },
        }
    }

    /// The operator's language model, else the built-in answerer.
    fn default_llm(&self, agent_name: &str) -> Arc<dyn Llm> {
        let operators = &self.config.operators;
        match (&operators.openai, &operators.anthropic) {
            (Some(openai), _) => self.operator_openai(openai, ""),
            (None, Some(anthropic)) => {
                self.operator_anthropic(anthropic, "", anthropic::Options::default())
            }
            (None, None) => self.builtin_llm(agent_name),
        }
    }

    /// The operator's OpenAI-compatible server. `model` is the model that the agent requests from
    /// it; empty = the operator's.
    fn operator_openai(&self, operator: &OperatorLlm, model: &str) -> Arc<dyn Llm> {
        let default =
            if operator.url.trim_end_matches('/') == OPENAI_URL { OPENAI_MODEL } else { "" };
        let model = operator.model_or(model, default);
        self.openai_llm(&operator.url, operator.token.as_deref(), model, self.client.trusted())
    }

    /// The operator's server with the Messages API. `model` as in [`Self::operator_openai`].
    fn operator_anthropic(
        &self,
        operator: &OperatorLlm,
        model: &str,
        options: anthropic::Options,
    ) -> Arc<dyn Llm> {
        let model = operator.model_or(model, anthropic::DEFAULT_MODEL);
        let (url, token) = (&operator.url, operator.token.as_deref());
        self.anthropic_llm(url, token, model, options, self.client.trusted())
    }

    fn fallback_llm(&self, agent_name: &str, why: &str) -> WithWarning<Arc<dyn Llm>> {
        let who = if self.config.operators.any() {
            "the server's own language model"
        } else {
            "the built-in answerer"
        };
        (self.default_llm(agent_name), Some(format!("{why}; {who} is used instead.")))
    }

    fn openai_llm(
        &self,
        url: &str,
        token: Option<&str>,
        model: &str,
        client: egress::Client,
    ) -> Arc<dyn Llm> {
        let config = openai::Config {
            url: url.into(),
            token: token.map(str::to_owned),
            model: model.into(),
            timeouts: Timeouts::default(),
        };
        Arc::new(OpenAi::new(config, client, self.runtime.clone()))
    }

    fn anthropic_llm(
        &self,
        url: &str,
        token: Option<&str>,
        model: &str,
        options: anthropic::Options,
        client: egress::Client,
    ) -> Arc<dyn Llm> {
        let config = anthropic::Config {
            url: url.into(),
            token: token.map(str::to_owned),
            model: if model.is_empty() { anthropic::DEFAULT_MODEL } else { model }.into(),
            options,
            timeouts: Timeouts::default(),
        };
        let refused = self.refused_parameters.clone();
        Arc::new(Anthropic::new(config, client, refused, self.runtime.clone()))
    }

    fn builtin_llm(&self, agent_name: &str) -> Arc<dyn Llm> {
        let encoder = self.encoder.get().cloned();
        Arc::new(BuiltinLlm::new(agent_name, self.runtime.clone(), encoder))
    }

    fn scripted_llm(&self, model: &str, agent_name: &str) -> WithWarning<Arc<dyn Llm>> {
        match self.scripted_models(model) {
            Ok(scripted) => (Arc::new(scripted), None),
            Err(why) => self.fallback_llm(agent_name, &why),
        }
    }

    /// The scripted models for an agent. `model` may hold the agent's own script as JSON.
    fn scripted_models(&self, model: &str) -> Result<ScriptedProvider, String> {
        if !self.config.allow_scripted {
            return Err("The provider \"script\" is not allowed on this server".into());
        }
        let script = match model.trim() {
            json if json.starts_with('{') => serde_json::from_str(json)
                .map_err(|e| format!("The script cannot be read ({e})"))?,
            _ => self.config.script.clone(),
        };
        Ok(ScriptedProvider::new(script, self.runtime.clone())
            .with_tap_folder(self.config.tap_folder.clone()))
    }

    /// The STT for `choice`. A hosted one has the built-in STT as its fallback.
    pub fn stt(&self, choice: &SttChoice) -> WithWarning<Result<Arc<dyn Stt>, Error>> {
        let name = normalize_name(&choice.provider);
        let named = match name.as_str() {
            "moonshine" => self.moonshine.get(),
            "pocketsphinx" => self.pocketsphinx.get(),
            _ => None,
        };
        let mut warning = match name.as_str() {
            "" | "builtin" | "visavis" => None,
            "moonshine" | "pocketsphinx" if named.is_some() => None,
            "script" => match self.scripted_models(&choice.model) {
                Ok(scripted) => return (Ok(Arc::new(scripted)), None),
                Err(why) => Some(format!("{why}; the built-in STT is used instead.")),
            },
            "deepgram" => match self.deepgram(choice) {
                Ok((stt, warning)) => return (Ok(stt), warning),
                Err(why) => Some(format!("{why}; the built-in STT is used instead.")),
            },
            _ => {
                let requested = truncate_for_message(&choice.provider);
                Some(format!(
                    "The speech-to-text provider {requested:?} is not available on this server; \
                     the built-in STT is used instead."
                ))
            }
        };
        let language = choice.language.trim().to_lowercase();
        let english = language.is_empty()
            || language == "en"
            || language.starts_with("en-")
            || language.starts_with("en_");
        if warning.is_none() && !english && language != "multi" && language != "auto" {
            warning = Some(format!(
                "The built-in STT supports English only, not {:?}.",
                truncate_for_message(&choice.language)
            ));
        }
        (named.map_or_else(|| self.builtin_stt(), |stt| Ok(Arc::clone(stt))), warning)
    }

    /// The best STT on this machine.
    fn builtin_stt(&self) -> Result<Arc<dyn Stt>, Error> {
        let best = self.moonshine.get().or_else(|| self.pocketsphinx.get());
        best.cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotAvailable, "no STT engine is installed"))
    }

    /// The TTS for `choice`. The engine resolves the voice.
    pub fn tts(&self, choice: &TtsChoice) -> WithWarning<Result<Arc<dyn Tts>, Error>> {
        let name = normalize_name(&choice.provider);
        let named = match name.as_str() {
            "hibari" => self.hibari.get(),
            "flite" => self.flite.get(),
            _ => None,
        };
        if let Some(named) = named {
            return (Ok(Arc::clone(named)), None);
        }
        let warning = match name.as_str() {
            "" | "builtin" | "visavis" => None,
            "script" => match self.scripted_models(&choice.model_id) {
                Ok(scripted) => return (Ok(Arc::new(scripted)), None),
                Err(why) => Some(format!("{why}; a built-in TTS voice is used instead.")),
            },
            _ => {
                let requested = truncate_for_message(&choice.provider);
                Some(format!(
                    "The text-to-speech provider {requested:?} is not available on this server; a \
                     built-in TTS voice is used instead."
                ))
            }
        };
        let builtin = BuiltinTts::new(self.hibari.get().cloned(), self.flite.get().cloned());
        (builtin.map(|tts| Arc::new(tts) as _), warning)
    }
}

/// A sentence about the options of the LLM that its provider does not read.
fn ignored_options(choice: &LlmChoice) -> Option<String> {
    let ignored = match normalize_name(&choice.provider).as_str() {
        "anthropic" | "claude" => anthropic::Options::read(&choice.options).1,
        _ => choice.options.keys().map(String::as_str).collect(),
    };
    let quoted: Vec<String> =
        ignored.into_iter().map(|name| format!("{:?}", truncate_for_message(name))).collect();
    (!quoted.is_empty()).then(|| {
        format!(
            "The LLM options {} are unknown or not valid, and have no effect.",
            quoted.join(", ")
        )
    })
}

/// Normalizes a vendor's name: without case, blanks and dashes, `Built-in` is `builtin`.
fn normalize_name(provider: &str) -> String {
    provider.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Truncates a free string to 40 characters, for use in a sentence.
fn truncate_for_message(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests;
