//! Hosted STT: whose key and address a call uses.
//!
//! | the agent has | address | key | private addresses |
//! |---|---|---|---|
//! | `url` | the agent's | the agent's, or none | only if the policy allows them |
//! | `token` alone | the vendor's | the agent's | only if the policy allows them |
//! | neither | the operator's, or the vendor's | the operator's | allowed |
//!
//! An operator's key is never sent to an agent's `url`.

use std::sync::Arc;

use engine_api::SttChoice;

use super::{Registry, WithWarning, truncate_for_message};
use crate::stt::Stt;
use crate::stt::deepgram::{DEFAULT_MODEL, DeepgramConfig, deepgram};

/// The operator's account at a vendor, or own server with the vendor's interface. Trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorStt {
    /// Base URL; `None` = the vendor's.
    pub url: Option<String>,
    /// API key. Secret.
    pub token: Option<String>,
    /// Default model.
    pub model: Option<String>,
}

impl OperatorStt {
    /// Reads `{prefix}_API_KEY`, `{prefix}_BASE_URL` and `{prefix}_MODEL` through `variable`.
    /// `None` if neither of the first two is set.
    #[must_use]
    pub fn from_env(prefix: &str, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str| {
            let value = variable(&format!("{prefix}_{name}"))?.trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        let operator = Self { url: set("BASE_URL"), token: set("API_KEY"), model: set("MODEL") };
        (operator.url.is_some() || operator.token.is_some()).then_some(operator)
    }
}

/// A setting without blanks around it; `None` if nothing is left.
fn non_empty(setting: Option<&String>) -> Option<&str> {
    setting.map(|text| text.trim()).filter(|text| !text.is_empty())
}

impl Registry {
    /// Deepgram for `choice`, or why it cannot be used.
    pub(super) fn deepgram(&self, choice: &SttChoice) -> Result<WithWarning<Arc<dyn Stt>>, String> {
        let own = (non_empty(choice.url.as_ref()), non_empty(choice.token.as_ref()));
        let (url, token, default_model, client) = match (own, &self.config.deepgram) {
            ((None, None), None) => {
                return Err("The speech-to-text provider \"deepgram\" needs an API key".into());
            }
            ((None, None), Some(operator)) => (
                operator.url.as_deref(),
                operator.token.as_deref(),
                operator.model.as_deref(),
                self.client.trusted(),
            ),
            ((url, token), _) => (url, token, None, self.client.clone()),
        };
        let requested = choice.model.trim();
        let default_model = default_model.unwrap_or(DEFAULT_MODEL);
        let (model, warning) = match requested {
            "" => (default_model, None),
            // The models of Deepgram's interface for turns.
            flux if flux.to_lowercase().starts_with("flux") => {
                let requested = truncate_for_message(flux);
                let warning = format!(
                    "The Deepgram model {requested:?} is not available on this server; \
                     {default_model} is used instead."
                );
                (default_model, Some(warning))
            }
            model => (model, None),
        };
        let config = DeepgramConfig {
            url: url.unwrap_or_default().into(),
            token: token.map(str::to_owned),
            model: model.into(),
            language: choice.language.clone(),
            keyterms: choice.keyterms.clone(),
        };
        let stt = deepgram(&config, client, self.builtin_stt().ok(), self.runtime.clone())
            .map_err(|error| error.to_string())?;
        Ok((stt, warning))
    }
}

#[cfg(test)]
mod tests;
