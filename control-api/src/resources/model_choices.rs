//! The providers that an avatar names, as the engine's choices.
//!
//! The key of a choice is the agent's own one, else the one that the workspace has stored for the
//! vendor, else the operator's. A workspace's key is sent only to the address that it was stored
//! with: an agent that names another `url` does not get it.

use engine_api::{LlmChoice, Pronunciation, SttChoice, TtsChoice};
use models::registry::{Kind, Registry, Vendor};
use serde_json::Number;

use crate::store::credential::{Credential, Credentials};
use crate::store::providers::{
    Llm, LlmFallback, Providers, Stt, SttFallback, Tts, TtsFallback, TurnSource,
};
use crate::store::secrets::AvatarSecrets;

/// A text that is set.
pub(crate) fn non_empty(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// A number that is set.
pub(crate) fn number(value: Option<&Number>) -> Option<f64> {
    value.and_then(Number::as_f64)
}

/// The choices of one call.
pub(crate) struct ModelChoices {
    pub(crate) stt: SttChoice,
    pub(crate) llm: LlmChoice,
    pub(crate) tts: TtsChoice,
}

/// Whose keys the choices may use.
pub(crate) struct Account<'a> {
    pub(crate) workspace: &'a str,
    /// The keys that the workspace has stored.
    pub(crate) credentials: &'a Credentials,
    /// For the providers of agents that name none.
    pub(crate) registry: Option<&'a Registry>,
}

/// The choices of an avatar.
pub(crate) fn of_avatar(
    providers: &Providers,
    secrets: AvatarSecrets,
    account: &Account<'_>,
) -> ModelChoices {
    let stt = stt_choice(&providers.stt, secrets.stt);
    let tts = tts_choice(&providers.tts, secrets.tts, &stt.language);
    let llm = llm_choice(&providers.llm, secrets.llm);
    ModelChoices { stt: account.apply(stt), llm: account.apply(llm), tts: account.apply(tts) }
}

/// What the choices of all kinds have in common.
pub(crate) trait Choice: Sized {
    const KIND: Kind;
    /// The provider with its address and its key.
    fn access(&mut self) -> (&str, &mut Option<String>, &mut Option<String>);
    fn workspace(&mut self) -> &mut String;
    fn fallback(&mut self) -> &mut Vec<Self>;
    /// The choice for one of the server's default providers, where the agent names none.
    fn with_provider(&self, provider: &str) -> Self;
}

macro_rules! choice {
    ($type:ident, $kind:ident, $this:ident => $default:expr) => {
        impl Choice for $type {
            const KIND: Kind = Kind::$kind;

            fn access(&mut self) -> (&str, &mut Option<String>, &mut Option<String>) {
                (&self.provider, &mut self.url, &mut self.token)
            }

            fn workspace(&mut self) -> &mut String {
                &mut self.workspace
            }

            fn fallback(&mut self) -> &mut Vec<Self> {
                &mut self.fallback
            }

            fn with_provider(&self, provider: &str) -> Self {
                let $this = self.clone();
                $type { provider: provider.to_owned(), fallback: Vec::new(), ..$default }
            }
        }
    };
}

choice!(SttChoice, Stt, this => this);
choice!(TtsChoice, Tts, this => this);
// A model and its options belong to one provider.
choice!(LlmChoice, Llm, _this => LlmChoice::default());

impl Account<'_> {
    /// The choice with the keys of the workspace.
    pub(crate) fn apply<C: Choice>(&self, mut choice: C) -> C {
        if choice.access().0.trim().is_empty()
            && let Some(expanded) = self.expand_defaults(&choice)
        {
            choice = expanded;
        }
        self.workspace.clone_into(choice.workspace());
        self.add_key(&mut choice);
        choice.fallback().iter_mut().for_each(|next| self.add_key(next));
        choice
    }

    /// The server's default providers by name, if the workspace has stored a key of one of them:
    /// the registry would use the operator's.
    fn expand_defaults<C: Choice>(&self, choice: &C) -> Option<C> {
        let names = self.registry?.default_providers(C::KIND, self.workspace);
        names.iter().find(|name| self.credential(name).is_some())?;
        let mut choices = names.iter().map(|name| choice.with_provider(name));
        let mut first = choices.next()?;
        *first.fallback() = choices.collect();
        Some(first)
    }

    fn credential(&self, provider: &str) -> Option<&Credential> {
        self.credentials.get(Vendor::of_provider(provider)?.name)
    }

    fn add_key<C: Choice>(&self, choice: &mut C) {
        let (provider, url, token) = choice.access();
        if token.as_ref().is_some_and(|token| !token.trim().is_empty()) {
            return;
        }
        let Some(credential) = self.credential(provider) else { return };
        let is_same = |own: &String| {
            let stored = credential.url.as_deref().unwrap_or_default();
            own.trim().trim_end_matches('/') == stored.trim_end_matches('/')
        };
        if url.as_ref().is_none_or(is_same) {
            url.clone_from(&credential.url);
            *token = Some(credential.token.clone());
        }
    }
}

fn stt_choice(stt: &Stt, token: Option<String>) -> SttChoice {
    let language = stt.language.clone().unwrap_or_default();
    let provider_turns = stt.turn == TurnSource::Provider;
    let next = |next: &SttFallback| SttChoice {
        provider: next.provider.clone(),
        model: next.model.clone().unwrap_or_default(),
        language: next.language.clone().unwrap_or_else(|| language.clone()),
        url: non_empty(next.url.as_ref()),
        keyterms: stt.keyterms.clone(),
        provider_turns,
        options: next.options.clone(),
        ..SttChoice::default()
    };
    SttChoice {
        provider: stt.provider.clone().unwrap_or_default(),
        model: stt.model.clone().unwrap_or_default(),
        fallback_model: non_empty(stt.fallback_model.as_ref()),
        fallback: stt.fallback.iter().map(next).collect(),
        language,
        url: non_empty(stt.url.as_ref()),
        token,
        keyterms: stt.keyterms.clone(),
        provider_turns,
        options: stt.options.clone(),
        workspace: String::new(),
    }
}

fn llm_choice(llm: &Llm, token: Option<String>) -> LlmChoice {
    let next = |next: &LlmFallback| LlmChoice {
        provider: next.provider.clone(),
        model: next.model.clone().unwrap_or_default(),
        url: non_empty(next.url.as_ref()),
        options: next.options.clone(),
        ..LlmChoice::default()
    };
    LlmChoice {
        provider: llm.provider.clone().unwrap_or_default(),
        model: llm.model.clone().unwrap_or_default(),
        fallback_model: non_empty(llm.fallback_model.as_ref()),
        url: non_empty(llm.url.as_ref()),
        token,
        options: llm.options.clone(),
        fallback: llm.fallback.iter().map(next).collect(),
        workspace: String::new(),
    }
}

/// The voice speaks `language`, unless the agent names another one for it.
fn tts_choice(tts: &Tts, token: Option<String>, language: &str) -> TtsChoice {
    let language = non_empty(tts.language.as_ref()).unwrap_or_else(|| language.to_owned());
    let next = |next: &TtsFallback| TtsChoice {
        provider: next.provider.clone(),
        model_id: next.model_id.clone().unwrap_or_default(),
        voice_id: next.voice_id.clone().unwrap_or_default(),
        language: next.language.clone().unwrap_or_else(|| language.clone()),
        url: non_empty(next.url.as_ref()),
        options: next.options.clone(),
        ..TtsChoice::default()
    };
    TtsChoice {
        provider: tts.provider.clone().unwrap_or_default(),
        model_id: tts.model_id.clone().unwrap_or_default(),
        voice_id: tts.voice_id.clone().unwrap_or_default(),
        sample_rate: number(tts.sample_rate.as_ref()).map(|rate| rate as u32),
        custom_pronunciation: tts
            .custom_pronunciation
            .iter()
            .map(|p| Pronunciation { word: p.word.clone(), pronunciation: p.pronunciation.clone() })
            .collect(),
        fallback: tts.fallback.iter().map(next).collect(),
        language,
        url: non_empty(tts.url.as_ref()),
        token,
        options: tts.options.clone(),
        workspace: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use models::registry::{Accounts, Config, DefaultProviders};
    use serde_json::{Value, json};

    use super::*;

    fn credentials(all: &[(&str, &str, Option<&str>)]) -> Credentials {
        let credential = |(name, token, url): &(&str, &str, Option<&str>)| {
            let url = url.map(str::to_owned);
            let token = (*token).to_owned();
            ((*name).to_owned(), Credential { token, url, webhook_secret: None })
        };
        all.iter().map(credential).collect()
    }

    /// Address and key of the LLM of an avatar, and of each of its fallbacks.
    fn access(
        llm: Value,
        token: Option<&str>,
        credentials: &Credentials,
    ) -> Vec<(Option<String>, Option<String>)> {
        let providers =
            Providers { llm: serde_json::from_value(llm).unwrap(), ..Providers::default() };
        let secrets = AvatarSecrets { llm: token.map(str::to_owned), ..AvatarSecrets::default() };
        let account = Account { workspace: "w", credentials, registry: None };
        let llm = of_avatar(&providers, secrets, &account).llm;
        let all = [llm.clone()].into_iter().chain(llm.fallback);
        all.map(|choice| (choice.url, choice.token)).collect()
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn the_key_of_the_agent_precedes_that_of_the_workspace() {
        let own = credentials(&[("openai", "stored", Some("https://own.example/v1"))]);
        let none = credentials(&[]);
        let openai = || json!({"provider": "OpenAI"});
        assert_eq!(access(openai(), None, &none), [(None, None)]);
        assert_eq!(access(openai(), Some("agent"), &own), [(None, some("agent"))]);
        let stored = (some("https://own.example/v1"), some("stored"));
        let one = std::slice::from_ref(&stored);
        assert_eq!(access(openai(), None, &own), one);
        let responses = json!({"provider": "openai-responses"});
        assert_eq!(access(responses, None, &own), one, "the same account");
        let anthropic = json!({"provider": "anthropic"});
        assert_eq!(access(anthropic, None, &own), [(None, None)]);
        let fallback = json!({"provider": "builtin", "fallback": [{"provider": "openai"}]});
        assert_eq!(access(fallback, None, &own), [(None, None), stored]);
    }

    #[test]
    fn a_stored_key_goes_only_to_its_own_address() {
        let own = credentials(&[
            ("openai", "stored", Some("https://own.example/v1")),
            ("groq", "stored", None),
        ]);
        let at = |provider: &str, url: &str| json!({"provider": provider, "url": url});
        let found = access(at("openai", "https://own.example/v1/"), None, &own);
        assert_eq!(found, [(some("https://own.example/v1"), some("stored"))]);
        for (provider, url) in [
            ("openai", "https://own.example"),
            ("openai", "https://own.example.evil/v1"),
            ("openai", "http://own.example/v1"),
            ("groq", "https://own.example/v1"),
        ] {
            let found = access(at(provider, url), None, &own);
            assert_eq!(found, [(some(url), None)], "{provider} {url}");
        }
        let fallback = json!({
            "provider": "builtin",
            "fallback": [{"provider": "groq", "url": "https://evil.example"}],
        });
        assert_eq!(access(fallback, None, &own)[1], (some("https://evil.example"), None));
    }

    #[tokio::test]
    async fn a_stored_key_also_precedes_the_operator_s_for_the_server_s_default_providers() {
        let key = |name: &str| (name == "DEEPGRAM_API_KEY").then(|| "operator".to_owned());
        let config = Config {
            accounts: Accounts::new(BTreeMap::new(), key).unwrap(),
            defaults: DefaultProviders {
                stt: vec!["deepgram".into(), "builtin".into()],
                ..DefaultProviders::default()
            },
            ..Config::default()
        };
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let registry = Registry::new(config, client, tokio::runtime::Handle::current());
        let stt = |credentials: &Credentials| {
            let account = Account { workspace: "w", credentials, registry: Some(&registry) };
            of_avatar(&Providers::default(), AvatarSecrets::default(), &account).stt
        };
        let operator = stt(&credentials(&[("openai", "stored", None)]));
        assert_eq!((operator.provider.as_str(), operator.token), ("", None), "the registry's");
        let own = stt(&credentials(&[("deepgram", "stored", None)]));
        assert_eq!((own.provider.as_str(), own.token), ("deepgram", some("stored")));
        assert_eq!(own.workspace, "w");
        let next: Vec<_> = own.fallback.iter().map(|next| (&*next.provider, &next.token)).collect();
        assert_eq!(next, [("builtin", &None)]);
    }

    #[test]
    fn the_options_of_a_language_model_reach_the_call() {
        let stored = json!({"provider": "anthropic", "options": {"max_tokens": 50}});
        let llm: Llm = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(llm_choice(&llm, None).options["max_tokens"], 50);
        assert_eq!(serde_json::to_value(&llm).unwrap()["options"], stored["options"]);
        let none = serde_json::to_value(Llm::default()).unwrap();
        assert!(none.get("options").is_none(), "{none}");
    }

    #[test]
    fn fallbacks_have_the_language_of_the_first_provider_and_the_workspace() {
        let providers: Providers = serde_json::from_value(json!({
            "stt": {
                "provider": "deepgram", "language": "fr", "keyterms": ["Visavis"],
                "fallback": [{"provider": "assemblyai"}, {"provider": "groq", "language": "auto"}],
            },
            "tts": {
                "provider": "cartesia", "url": "https://a.example", "options": {"speed": 1.1},
                "fallback": [{"provider": "elevenlabs", "voice_id": "v"}],
            },
            "llm": {"fallback": [{"provider": "openai", "model": "m"}]},
        }))
        .unwrap();
        let secrets = AvatarSecrets { tts: Some("key".into()), ..AvatarSecrets::default() };
        let none = Credentials::new();
        let account = Account { workspace: "w", credentials: &none, registry: None };
        let ModelChoices { stt, llm, tts } = of_avatar(&providers, secrets, &account);
        let languages: Vec<&str> = stt.fallback.iter().map(|next| &*next.language).collect();
        assert_eq!(languages, ["fr", "auto"]);
        assert_eq!(stt.fallback[0].keyterms, ["Visavis"]);
        assert_eq!((tts.language.as_str(), tts.token.as_deref()), ("fr", Some("key")));
        assert_eq!((&*tts.fallback[0].voice_id, tts.fallback[0].token.clone()), ("v", None));
        assert_eq!(tts.options["speed"], 1.1);
        assert_eq!(llm.fallback[0].model, "m");
        assert!([&stt.workspace, &llm.workspace, &tts.workspace].iter().all(|name| *name == "w"));
    }

    #[test]
    fn the_provider_decides_about_turns_only_if_the_agent_says_so() {
        for (stored, expected) in [
            (json!({}), false),
            (json!({"turn": "local"}), false),
            (json!({"turn": "provider", "fallback": [{"provider": "deepgram"}]}), true),
        ] {
            let stt: Stt = serde_json::from_value(stored.clone()).unwrap();
            let choice = stt_choice(&stt, None);
            let all = std::iter::once(&choice).chain(&choice.fallback);
            assert!(all.into_iter().all(|c| c.provider_turns == expected), "{stored}");
        }
        assert!(serde_json::from_value::<Stt>(json!({"turn": "vendor"})).is_err());
        assert_eq!(serde_json::to_value(Stt::default()).unwrap()["turn"], "local");
    }
}
