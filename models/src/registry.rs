//! Registry: maps the names in an agent's configuration to models. Vendors are distinguished only
//! here.
//!
//! Names are free strings. A model that this server lacks is replaced by one that it has, with a
//! warning for the conversation's record. An agent that was made for another server works
//! unchanged.

mod accounts;
mod llm;
mod providers;
mod recovery;
pub mod settings;
mod single;
mod stt;
mod tts;
mod unserved;
mod vendors;
mod voices;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;

use self::accounts::{Access, non_empty};
use crate::breaker::{Breaker, BreakerKey, Breakers};
use crate::chain::Hedge;
use crate::llm::RefusedParameters;
use crate::llm::builtin::{CachedEncoder, TextEncoder};
use crate::scripted::{Script, ScriptedProvider};
use crate::stt::Stt;
use crate::tts::Tts;
use crate::turn::TurnModel;
use crate::{Error, ErrorKind};

pub use accounts::{Account, Accounts, ProviderTimeouts};
pub use providers::{Provider, ProviderField, ProviderOption, providers};
pub use single::is_builtin_tts;
pub use vendors::{Kind, VENDORS, Vendor};
pub use voices::VoicesError;

/// Name of the models of this server in records.
const BUILTIN: &str = "builtin";

/// Maximum number of options that one warning names.
const MAX_NAMED_OPTIONS: usize = 5;

/// The operator's configuration.
#[derive(Clone, Default)]
pub struct Config {
    /// Whether agents may name `script`.
    pub allow_scripted: bool,
    /// The operator's accounts.
    pub accounts: Accounts,
    /// Providers of agents that name none.
    pub defaults: DefaultProviders,
    /// Time limits by the vendor's name.
    pub timeouts: BTreeMap<&'static str, ProviderTimeouts>,
    /// Delays after which a slow request is sent to the next provider of the agent, too; `None` =
    /// never.
    pub hedge: Option<HedgeDelays>,
    /// Script of the scripted models when the agent provides none.
    pub script: Script,
    /// Folder for the samples that the scripted STT receives, if a script requests them.
    pub tap_folder: Option<PathBuf>,
}

/// Times from a request to its hedge, see [`Config::hedge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeDelays {
    /// Of a language model without a first token.
    pub llm: Duration,
    /// Of a TTS without a first sound, for the first segment of a reply.
    pub tts: Duration,
}

impl Default for HedgeDelays {
    fn default() -> Self {
        Self { llm: Duration::from_millis(1_500), tts: Duration::from_millis(1_200) }
    }
}

/// The providers of agents that name none, in the order in which they are tried. Empty = the
/// built-in models, and for the LLM the first vendor of which the operator has an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultProviders {
    /// Speech to text.
    pub stt: Vec<String>,
    /// Language models.
    pub llm: Vec<String>,
    /// Text to speech.
    pub tts: Vec<String>,
}

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
    breakers: Breakers,
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
            breakers: Breakers::default(),
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

    /// The providers that agents of `workspace` may name. `credentials`: names of the vendors whose
    /// keys the workspace has stored.
    #[must_use]
    pub fn providers(&self, workspace: &str, credentials: &[String]) -> Vec<Provider> {
        providers(&self.config, workspace, credentials)
    }

    /// The providers of an agent that names none, in the order in which they are tried; empty = the
    /// built-in models.
    #[must_use]
    pub fn default_providers(&self, kind: Kind, workspace: &str) -> Vec<&str> {
        let DefaultProviders { stt, llm, tts } = &self.config.defaults;
        let configured = match kind {
            Kind::Stt => stt,
            Kind::Llm => llm,
            Kind::Tts => tts,
        };
        if !configured.is_empty() || kind != Kind::Llm {
            return configured.iter().map(String::as_str).collect();
        }
        let has_account = |vendor: &&Vendor| {
            vendor.serves(kind) && self.config.accounts.get(vendor, workspace).is_some()
        };
        VENDORS.iter().find(has_account).map(|vendor| vendor.name).into_iter().collect()
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

    /// For each kind and vendor in use: whether all of its accounts and models work.
    #[must_use]
    pub fn provider_states(&self) -> Vec<(&'static str, &'static str, bool)> {
        self.breakers.states()
    }

    /// The hedging of chains whose delay is `after`.
    fn hedge(&self, after: impl Fn(&HedgeDelays) -> Duration) -> Option<Hedge> {
        let after = self.config.hedge.as_ref().map(after)?;
        Some(Hedge { after, runtime: self.runtime.clone() })
    }

    /// The breaker of a model; `model`: that of the agent, empty = the default.
    fn breaker(&self, kind: Kind, vendor: &Vendor, access: &Access, model: &str) -> Arc<Breaker> {
        let account =
            BreakerKey::new(kind.name(), vendor.name, &access.url, access.token.as_deref());
        let model = if model.trim().is_empty() { &access.model } else { model };
        self.breakers.get(account.of_model(model.trim()))
    }
}

/// A sentence about the options that a provider does not read.
fn ignored_options(kind: Kind, ignored: &[&str]) -> Option<String> {
    let named = ignored.iter().take(MAX_NAMED_OPTIONS);
    let quoted: Vec<String> =
        named.map(|name| format!("{:?}", truncate_for_message(name))).collect();
    let others = match ignored.len() - quoted.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    (!quoted.is_empty()).then(|| {
        format!(
            "The {kind} options {}{others} are unknown or not valid, and have no effect.",
            quoted.join(", ")
        )
    })
}

/// One sentence of several.
fn joined(warnings: Vec<String>) -> Option<String> {
    (!warnings.is_empty()).then(|| warnings.join(" "))
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
