//! The language models that the operator configures for all agents.

use super::OPENAI_URL;
use crate::llm::anthropic;

/// The operator's own language models, one of each protocol. The first one that is set serves the
/// agents that name no provider.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Operators {
    /// An OpenAI-compatible server.
    pub openai: Option<OperatorLlm>,
    /// A server with Anthropic's Messages API.
    pub anthropic: Option<OperatorLlm>,
}

/// A server of the operator, which is trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct OperatorLlm {
    /// Base URL; of an OpenAI-compatible server, it ends in `/v1`.
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Default model, used when an agent names no model of this server.
    pub model: Option<String>,
}

impl Operators {
    /// Reads `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `OPENAI_MODEL`, and the same three of
    /// `ANTHROPIC` through `variable`.
    #[must_use]
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            openai: OperatorLlm::from_env(&variable, "OPENAI", OPENAI_URL),
            anthropic: OperatorLlm::from_env(&variable, "ANTHROPIC", anthropic::DEFAULT_URL),
        }
    }

    /// Whether the operator has a language model.
    #[must_use]
    pub fn any(&self) -> bool {
        self.openai.is_some() || self.anthropic.is_some()
    }

    /// The servers and their protocols, for the operator; without secrets.
    #[must_use]
    pub fn description(&self) -> Option<String> {
        let openai =
            self.openai.iter().map(|llm| format!("an OpenAI-compatible server at {}", llm.url));
        let anthropic =
            self.anthropic.iter().map(|llm| format!("the Anthropic API at {}", llm.url));
        let servers: Vec<String> = openai.chain(anthropic).collect();
        (!servers.is_empty()).then(|| servers.join(" and "))
    }
}

impl OperatorLlm {
    /// The server whose variables begin with `prefix`; `None` if it has neither a key nor a URL.
    fn from_env(
        variable: impl Fn(&str) -> Option<String>,
        prefix: &str,
        default_url: &str,
    ) -> Option<Self> {
        let set = |name: &str| {
            variable(&format!("{prefix}_{name}"))
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let (token, url) = (set("API_KEY"), set("BASE_URL"));
        if token.is_none() && url.is_none() {
            return None;
        }
        Some(Self { url: url.unwrap_or_else(|| default_url.into()), token, model: set("MODEL") })
    }

    /// The model that the agent requests, else the operator's, else `default`.
    pub(super) fn model_or<'a>(&'a self, requested: &'a str, default: &'a str) -> &'a str {
        let requested = Some(requested).filter(|model| !model.is_empty());
        requested.or(self.model.as_deref()).unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Operators {
        Operators::from_env(|name| {
            pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
        })
    }

    #[test]
    fn each_server_is_read_from_its_variables() {
        for unset in [&[][..], &[("OPENAI_API_KEY", " ")], &[("ANTHROPIC_MODEL", "m")]] {
            assert!(!env(unset).any());
        }
        let keyed = env(&[("OPENAI_API_KEY", "k"), ("OPENAI_MODEL", "m")]);
        assert!(keyed.anthropic.is_none());
        let openai = keyed.openai.unwrap();
        assert_eq!(
            (openai.url.as_str(), openai.token.as_deref(), openai.model.as_deref()),
            (OPENAI_URL, Some("k"), Some("m"))
        );
        let local = env(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")]).openai.unwrap();
        assert_eq!((local.url.as_str(), local.token), ("http://127.0.0.1:1/v1", None));
        let anthropic = env(&[("ANTHROPIC_API_KEY", "a")]).anthropic.unwrap();
        assert_eq!(
            (anthropic.url.as_str(), anthropic.token.as_deref(), anthropic.model),
            (anthropic::DEFAULT_URL, Some("a"), None)
        );
    }

    #[test]
    fn the_description_has_addresses_and_no_keys() {
        assert_eq!(Operators::default().description(), None);
        let both = env(&[("OPENAI_API_KEY", "secret-1"), ("ANTHROPIC_API_KEY", "secret-2")]);
        assert_eq!(
            both.description().unwrap(),
            "an OpenAI-compatible server at https://api.openai.com/v1 and the Anthropic API at \
             https://api.anthropic.com"
        );
    }
}
