//! The model of one provider, without those that would replace it: for samples and tests, whose
//! result is that of the provider itself.

use std::sync::Arc;

use engine_api::{LlmChoice, SttChoice, TtsChoice};

use super::{Kind, Registry, normalize_name, settings};
use crate::llm::Llm;
use crate::stt::Stt;
use crate::tts::Tts;

impl Registry {
    /// The STT that `choice` names first. It is used also while its breaker is open.
    ///
    /// # Errors
    /// Why it cannot be served, in one sentence.
    pub fn single_stt(&self, choice: &SttChoice) -> Result<Arc<dyn Stt>, String> {
        let provider = self.first_provider(Kind::Stt, &choice.provider, &choice.workspace);
        let choice = SttChoice { provider, fallback: Vec::new(), ..choice.clone() };
        self.stt_entry(&choice, None).map(|(_, (stt, _))| stt).map_err(sentence)
    }

    /// The language model that `choice` names first. `agent_name` is for the built-in answerer.
    ///
    /// # Errors
    /// Why it cannot be served, in one sentence.
    pub fn single_llm(&self, choice: &LlmChoice, agent_name: &str) -> Result<Arc<dyn Llm>, String> {
        let provider = self.first_provider(Kind::Llm, &choice.provider, &choice.workspace);
        let choice = LlmChoice { provider, fallback: Vec::new(), ..choice.clone() };
        self.llm_entry(&choice, agent_name, super::llm::FIRST_TOKEN_TIME)
            .map(|(entry, _)| entry.model)
            .map_err(sentence)
    }

    /// The TTS that `choice` names first.
    ///
    /// # Errors
    /// Why it cannot be served, in one sentence.
    pub fn single_tts(&self, choice: &TtsChoice) -> Result<Arc<dyn Tts>, String> {
        let provider = self.first_provider(Kind::Tts, &choice.provider, &choice.workspace);
        let choice = TtsChoice { provider, fallback: Vec::new(), ..choice.clone() };
        self.tts_entry(&choice).map(|(entry, _)| entry.model).map_err(sentence)
    }

    /// Whether an agent may name `provider` for this part of a call; it may lack a key.
    #[must_use]
    pub fn knows(&self, kind: Kind, provider: &str) -> bool {
        settings::is_provider(kind, provider, self.config.allow_scripted)
    }

    /// `provider`, or the first one of agents that name none.
    #[must_use]
    pub fn first_provider(&self, kind: Kind, provider: &str, workspace: &str) -> String {
        if !provider.trim().is_empty() {
            return provider.to_owned();
        }
        let defaults = self.default_providers(kind, workspace);
        defaults.first().copied().unwrap_or("builtin").to_owned()
    }
}

/// Whether a TTS provider is one of the built-in voices, which speak in any process.
#[must_use]
pub fn is_builtin_tts(provider: &str) -> bool {
    matches!(normalize_name(provider).as_str(), "" | "builtin" | "visavis" | "hibari" | "flite")
}

fn sentence(text: String) -> String {
    if text.ends_with('.') { text } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::registry::{Accounts, Config, DefaultProviders};

    fn registry(variables: &'static [&'static str]) -> Registry {
        let key = |name: &str| variables.contains(&name).then(|| "k".to_owned());
        let config = Config {
            accounts: Accounts::new(BTreeMap::new(), key).unwrap(),
            defaults: DefaultProviders { tts: vec!["cartesia".into()], ..Default::default() },
            ..Config::default()
        };
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        Registry::new(config, client, tokio::runtime::Handle::current())
    }

    #[tokio::test]
    async fn a_provider_that_cannot_be_served_is_not_replaced() {
        let registry = registry(&[]);
        let tts = |provider: &str| {
            let choice = TtsChoice { provider: provider.into(), ..TtsChoice::default() };
            registry.single_tts(&choice).err()
        };
        assert_eq!(
            tts("elevenlabs").as_deref(),
            Some("The text-to-speech provider \"elevenlabs\" needs an API key.")
        );
        let spaced = TtsChoice {
            provider: "elevenlabs".into(),
            token: Some("two words".into()),
            ..TtsChoice::default()
        };
        assert_eq!(
            registry.single_tts(&spaced).err().as_deref(),
            Some("The API key for ElevenLabs must not contain white space or control characters.")
        );
        assert!(tts("nobody").unwrap().contains("is not available"));
        assert!(tts("").unwrap().contains("cartesia"), "the server's default");
        let llm = |provider: &str| {
            let choice = LlmChoice { provider: provider.into(), ..LlmChoice::default() };
            registry.single_llm(&choice, "Ada").err()
        };
        assert_eq!((llm(""), llm("builtin")), (None, None));
        assert!(llm("anthropic").unwrap().contains("needs an API key"));
        let stt = SttChoice { provider: "deepgram".into(), ..SttChoice::default() };
        assert!(registry.single_stt(&stt).err().unwrap().contains("needs an API key"));
    }

    #[tokio::test]
    async fn providers_are_known_for_their_own_part_of_a_call_only() {
        let registry = registry(&[]);
        for (kind, name, expected) in [
            (Kind::Tts, "11labs", true),
            (Kind::Tts, "Built-in", true),
            (Kind::Tts, "flite", true),
            (Kind::Tts, "anthropic", false),
            (Kind::Tts, "script", false),
            (Kind::Tts, "", false),
            (Kind::Stt, "pocketsphinx", true),
            (Kind::Llm, "openai-responses", true),
            (Kind::Llm, "flite", false),
        ] {
            assert_eq!(registry.knows(kind, name), expected, "{kind} {name}");
        }
    }

    #[tokio::test]
    async fn the_first_provider_is_that_of_the_operator_s_account() {
        let registry = registry(&["ANTHROPIC_API_KEY", "CARTESIA_API_KEY"]);
        assert_eq!(registry.first_provider(Kind::Llm, " ", "w"), "anthropic");
        assert_eq!(registry.first_provider(Kind::Llm, "openai", "w"), "openai");
        assert_eq!(registry.first_provider(Kind::Stt, "", "w"), "builtin");
        assert!(registry.single_tts(&TtsChoice::default()).is_ok());
    }
}
