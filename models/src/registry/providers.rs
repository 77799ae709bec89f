//! The STT, LLM and TTS providers that an agent may name on this server, as clients list them.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Config, OPENAI_MODEL, OPENAI_URL};
use crate::llm::anthropic;
use crate::stt::deepgram::DEFAULT_MODEL as DEEPGRAM_MODEL;
use crate::tts::{HEART, Voice};

/// One provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Provider {
    /// Display name.
    pub display_name: &'static str,
    /// Name that an agent uses.
    pub provider: &'static str,
    /// Its part in a call.
    #[schemars(extend("enum" = ["stt", "llm", "tts"]))]
    pub provider_type: &'static str,
    /// Default model; empty if the agent must name one.
    pub model: String,
    /// Whether it works on this server without further configuration. Otherwise the agent needs its
    /// own key.
    pub configured: bool,
    /// Further fields that may be chosen.
    pub additional_fields: Vec<ProviderField>,
}

/// A further field of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProviderField {
    /// Name of the field in the agent's configuration.
    pub name: &'static str,
    /// Always `ENUM`.
    #[schemars(extend("enum" = ["ENUM"]))]
    pub r#type: &'static str,
    /// Display name.
    pub label: &'static str,
    /// Possible values.
    pub items: Vec<ProviderOption>,
    /// Default, if the agent names none.
    pub default_value: &'static str,
}

/// One value of a [`ProviderField`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProviderOption {
    /// Display name.
    pub label: &'static str,
    /// Value that an agent uses.
    pub value: &'static str,
}

/// The voice of Hibari.
const HEART_OPTION: ProviderOption =
    ProviderOption { label: "Woman, American English, natural", value: HEART };

/// Models of Deepgram. Agents may name others.
const DEEPGRAM_MODELS: [ProviderOption; 3] = [
    ProviderOption { label: "Nova-3", value: "nova-3" },
    ProviderOption { label: "Nova-3 for medical terms, English", value: "nova-3-medical" },
    ProviderOption { label: "Nova-2", value: "nova-2" },
];

/// Languages of Deepgram's Nova-3. Agents may name others.
const DEEPGRAM_LANGUAGES: [ProviderOption; 11] = [
    ProviderOption { label: "English", value: "en" },
    ProviderOption { label: "Several languages in one call", value: "multi" },
    ProviderOption { label: "Dutch", value: "nl" },
    ProviderOption { label: "French", value: "fr" },
    ProviderOption { label: "German", value: "de" },
    ProviderOption { label: "Hindi", value: "hi" },
    ProviderOption { label: "Italian", value: "it" },
    ProviderOption { label: "Japanese", value: "ja" },
    ProviderOption { label: "Portuguese", value: "pt" },
    ProviderOption { label: "Russian", value: "ru" },
    ProviderOption { label: "Spanish", value: "es" },
];

fn voice_option(voice: Voice) -> ProviderOption {
    let label = match voice {
        Voice::Slt => "Woman, American English",
        Voice::Rms => "Man, American English",
        Voice::Awb => "Man, Scottish English",
        Voice::Kal16 => "Man, American English, robotic",
        Voice::Kal => "Man, American English, robotic, telephone quality",
    };
    ProviderOption { label, value: voice.name() }
}

/// All providers that [`super::Registry`] can serve.
#[must_use]
pub fn providers(config: &Config) -> Vec<Provider> {
    let field = |name, label, items, default_value| ProviderField {
        name,
        r#type: "ENUM",
        label,
        items,
        default_value,
    };
    let english = vec![ProviderOption { label: "English", value: "en" }];
    let flite_voices: Vec<ProviderOption> = Voice::ALL.into_iter().map(voice_option).collect();
    let deepgram = config.deepgram.as_ref();
    let operator = config.operators.openai.as_ref();
    let anthropic = config.operators.anthropic.as_ref();
    let own = operator.and_then(|operator| operator.model.clone());
    let at_openai =
        operator.is_none_or(|operator| operator.url.trim_end_matches('/') == OPENAI_URL);
    vec![
        Provider {
            display_name: "Built-in STT (Moonshine, or PocketSphinx without it)",
            provider: "builtin",
            provider_type: "stt",
            model: "moonshine".into(),
            configured: true,
            additional_fields: vec![field("language", "Language", english.clone(), "en")],
        },
        Provider {
            display_name: "PocketSphinx",
            provider: "pocketsphinx",
            provider_type: "stt",
            model: "pocketsphinx".into(),
            configured: true,
            additional_fields: vec![field("language", "Language", english, "en")],
        },
        Provider {
            display_name: "Deepgram",
            provider: "deepgram",
            provider_type: "stt",
            model: deepgram
                .and_then(|operator| operator.model.clone())
                .unwrap_or_else(|| DEEPGRAM_MODEL.into()),
            configured: deepgram.is_some(),
            additional_fields: vec![
                field("model", "Model", DEEPGRAM_MODELS.to_vec(), DEEPGRAM_MODEL),
                field("language", "Language", DEEPGRAM_LANGUAGES.to_vec(), "en"),
            ],
        },
        Provider {
            display_name: "Built-in answerer",
            provider: "builtin",
            provider_type: "llm",
            model: "builtin".into(),
            configured: true,
            additional_fields: Vec::new(),
        },
        Provider {
            display_name: "OpenAI, or the operator's compatible server",
            provider: "openai",
            provider_type: "llm",
            model: own
                .unwrap_or_else(|| if at_openai { OPENAI_MODEL.into() } else { String::new() }),
            configured: operator.is_some(),
            additional_fields: Vec::new(),
        },
        Provider {
            display_name: "Anthropic",
            provider: "anthropic",
            provider_type: "llm",
            model: anthropic
                .and_then(|operator| operator.model.clone())
                .unwrap_or_else(|| anthropic::DEFAULT_MODEL.into()),
            configured: anthropic.is_some(),
            additional_fields: Vec::new(),
        },
        Provider {
            display_name: "Any OpenAI-compatible server",
            provider: "custom",
            provider_type: "llm",
            model: String::new(),
            configured: true,
            additional_fields: Vec::new(),
        },
        Provider {
            display_name: "Built-in TTS (Hibari, and flite)",
            provider: "builtin",
            provider_type: "tts",
            model: "hibari".into(),
            configured: true,
            additional_fields: vec![field(
                "voice_id",
                "Voice",
                [HEART_OPTION].into_iter().chain(flite_voices.iter().cloned()).collect(),
                HEART,
            )],
        },
        Provider {
            display_name: "Hibari",
            provider: "hibari",
            provider_type: "tts",
            model: "hibari".into(),
            configured: true,
            additional_fields: vec![field("voice_id", "Voice", vec![HEART_OPTION], HEART)],
        },
        Provider {
            display_name: "Flite",
            provider: "flite",
            provider_type: "tts",
            model: "flite".into(),
            configured: true,
            additional_fields: vec![field("voice_id", "Voice", flite_voices, Voice::Slt.name())],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{OperatorLlm, OperatorStt, Operators};

    #[test]
    fn deepgram_works_where_the_operator_has_a_key() {
        let deepgram = |config: &Config| {
            let all = providers(config);
            let found = all.iter().find(|p| p.provider == "deepgram").expect("it is listed");
            (found.provider_type, found.configured, found.model.clone())
        };
        assert_eq!(deepgram(&Config::default()), ("stt", false, "nova-3".into()));
        let operator = OperatorStt { url: None, token: Some("k".into()), model: None };
        let with = |operator| Config { deepgram: Some(operator), ..Config::default() };
        assert_eq!(deepgram(&with(operator.clone())), ("stt", true, "nova-3".into()));
        let other = OperatorStt { model: Some("nova-2".into()), ..operator };
        assert_eq!(deepgram(&with(other)), ("stt", true, "nova-2".into()));
    }

    #[test]
    fn the_openai_provider_works_where_the_operator_has_a_key() {
        let openai = |config: &Config| {
            let all = providers(config);
            let found = all.iter().find(|p| p.provider == "openai").cloned().expect("it is listed");
            (found.configured, found.model)
        };
        assert_eq!(openai(&Config::default()), (false, OPENAI_MODEL.to_owned()));
        let at = |url: &str, model: Option<&str>| Config {
            operators: Operators {
                openai: Some(OperatorLlm {
                    url: url.into(),
                    token: None,
                    model: model.map(str::to_owned),
                }),
                anthropic: None,
            },
            ..Config::default()
        };
        assert_eq!(openai(&at("http://127.0.0.1:1/v1", None)), (true, String::new()));
        assert_eq!(openai(&at("http://127.0.0.1:1/v1", Some("m"))), (true, "m".into()));
        assert_eq!(openai(&at(OPENAI_URL, None)), (true, OPENAI_MODEL.into()));
    }

    #[test]
    fn the_anthropic_provider_works_where_the_operator_has_a_key() {
        let listed = |operators: Operators| {
            let all = providers(&Config { operators, ..Config::default() });
            let found = all.iter().find(|p| p.provider == "anthropic").cloned();
            found.map(|p| (p.configured, p.model)).expect("it is listed")
        };
        let env = |pairs: &'static [(&str, &str)]| {
            Operators::from_env(move |name| {
                pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            })
        };
        let default_model = anthropic::DEFAULT_MODEL.to_owned();
        assert_eq!(listed(Operators::default()), (false, default_model.clone()));
        assert_eq!(listed(env(&[("OPENAI_API_KEY", "k")])), (false, default_model.clone()));
        assert_eq!(listed(env(&[("ANTHROPIC_API_KEY", "k")])), (true, default_model));
        let named = env(&[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_MODEL", "m")]);
        assert_eq!(listed(named), (true, "m".into()));
    }
}
