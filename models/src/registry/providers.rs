//! The STT, LLM and TTS providers that an agent may name on this server, as clients list them.

use schemars::JsonSchema;
use serde::Serialize;

use super::vendors::CUSTOM;
use super::{Config, Kind, VENDORS, Vendor};
use crate::llm::{anthropic, gemini, openai, responses};
use crate::stt;
use crate::tts::{
    HEART, ListedVoice, Voice, cartesia, deepgram as aura, elevenlabs, openai as openai_tts,
};

/// One provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Provider {
    /// Display name.
    pub display_name: String,
    /// Name that an agent uses.
    pub provider: &'static str,
    /// Its part in a call.
    #[schemars(extend("enum" = ["stt", "llm", "tts"]))]
    pub provider_type: &'static str,
    /// Model of agents that name none; empty = the server's own, or the agent must name one.
    pub model: String,
    /// Whether it works on this server without further configuration. Otherwise the agent needs its
    /// own key.
    pub configured: bool,
    /// Where its key or its model comes from: `builtin`, `operator` (the server's configuration),
    /// `workspace` (a stored credential), or `none`: the agent needs its own key or address.
    #[schemars(extend("enum" = ["builtin", "operator", "workspace", "none"]))]
    pub source: &'static str,
    /// Environment variables with the operator's key, the preferred one first; empty if there are
    /// none.
    pub key_variables: Vec<String>,
    /// Languages as BCP 47 tags; empty if they are not known. Agents may name others.
    pub languages: Vec<&'static str>,
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
    pub default_value: String,
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

/// Models of a vendor. Agents may name others.
fn models(vendor: &str, kind: Kind) -> &'static [ProviderOption] {
    const fn option(label: &'static str, value: &'static str) -> ProviderOption {
        ProviderOption { label, value }
    }
    match (vendor, kind) {
        ("deepgram", Kind::Stt) => {
            const {
                &[
                    option("Nova-3", "nova-3"),
                    option("Nova-3 for medical terms, English", "nova-3-medical"),
                    option("Nova-2", "nova-2"),
                    option("Flux, decides about turns, English", "flux-general-en"),
                    option("Flux, decides about turns, ten languages", "flux-general-multi"),
                ]
            }
        }
        ("openai", Kind::Stt) => {
            const {
                &[
                    option("GPT Live Transcribe, streaming", "gpt-live-transcribe"),
                    option("GPT Realtime Whisper, streaming", "gpt-realtime-whisper"),
                    option("GPT Transcribe, one request per utterance", "gpt-transcribe"),
                    option("Whisper, one request per utterance", "whisper-1"),
                ]
            }
        }
        ("elevenlabs", Kind::Tts) => {
            const {
                &[
                    option("Flash v2.5, fast", "eleven_flash_v2_5"),
                    option("Turbo v2.5", "eleven_turbo_v2_5"),
                    option("Multilingual v2", "eleven_multilingual_v2"),
                ]
            }
        }
        ("cartesia", Kind::Tts) => {
            const { &[option("Sonic 3.5", "sonic-3.5"), option("Sonic 3", "sonic-3")] }
        }
        ("openai", Kind::Tts) => {
            const {
                &[
                    option("GPT-4o mini TTS", "gpt-4o-mini-tts"),
                    option("TTS-1", "tts-1"),
                    option("TTS-1 HD", "tts-1-hd"),
                ]
            }
        }
        ("anthropic", Kind::Llm) => {
            const {
                &[
                    option("Claude Haiku 4.5, fast", "claude-haiku-4-5"),
                    option("Claude Sonnet 4.5", "claude-sonnet-4-5"),
                ]
            }
        }
        ("openai", Kind::Llm) => {
            const {
                &[
                    option("GPT-4.1 mini, fast", "gpt-4.1-mini"),
                    option("GPT-4.1", "gpt-4.1"),
                    option("GPT-4o mini", "gpt-4o-mini"),
                ]
            }
        }
        ("google", Kind::Llm) => {
            const {
                &[
                    option("Gemini 2.5 Flash", "gemini-2.5-flash"),
                    option("Gemini 2.5 Pro", "gemini-2.5-pro"),
                ]
            }
        }
        _ => &[],
    }
}

/// Languages that the hosted providers have in common. Agents may name others.
const LANGUAGES: [ProviderOption; 11] = [
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

/// Tags of [`LANGUAGES`].
fn language_tags() -> Vec<&'static str> {
    LANGUAGES.iter().map(|language| language.value).collect()
}

/// Model of agents that name none, at a base URL (empty = the vendor's own one).
fn default_model(vendor: &str, kind: Kind, url: &str) -> &'static str {
    match (vendor, kind) {
        ("deepgram", Kind::Stt) => stt::deepgram::DEFAULT_MODEL,
        ("assemblyai", Kind::Stt) => stt::assemblyai::DEFAULT_MODEL,
        ("elevenlabs", Kind::Stt) => stt::elevenlabs::DEFAULT_MODEL,
        ("openai", Kind::Stt) => stt::openai_realtime::DEFAULT_MODEL,
        ("groq", Kind::Stt) => stt::transcriptions::GROQ_DEFAULT_MODEL,
        ("deepgram", Kind::Tts) => aura::DEFAULT_MODEL,
        ("elevenlabs", Kind::Tts) => elevenlabs::DEFAULT_MODEL,
        ("cartesia", Kind::Tts) => cartesia::DEFAULT_MODEL,
        ("openai", Kind::Tts) => openai_tts::default_model(url),
        ("anthropic", Kind::Llm) => anthropic::DEFAULT_MODEL,
        ("google", Kind::Llm) => gemini::DEFAULT_MODEL,
        (vendor, Kind::Llm) => openai::dialect_at(vendor, url).1,
        _ => "",
    }
}

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

/// All providers that [`super::Registry`] can serve to agents of `workspace`. `credentials`: names
/// of the vendors whose keys the workspace has stored.
#[must_use]
pub fn providers(config: &Config, workspace: &str, credentials: &[String]) -> Vec<Provider> {
    let mut all = builtin_providers();
    for kind in [Kind::Stt, Kind::Llm, Kind::Tts] {
        let of_kind = VENDORS.iter().filter(|vendor| vendor.serves(kind));
        all.extend(of_kind.map(|vendor| hosted(config, vendor, kind, workspace, credentials)));
        if kind == Kind::Llm
            && let Some(openai) = all.iter().find(|p| (p.provider, p.provider_type) == OPENAI_LLM)
        {
            all.push(openai_responses(openai));
        }
    }
    // By kind, the built-in ones first.
    let order = ["stt", "llm", "tts"];
    all.sort_by_key(|provider| order.iter().position(|kind| *kind == provider.provider_type));
    all
}

/// `OpenAI`'s Chat Completions.
const OPENAI_LLM: (&str, &str) = ("openai", "llm");

/// `OpenAI`'s Responses API, which uses the same account. It has a default model at any address.
fn openai_responses(openai: &Provider) -> Provider {
    let mut provider = Provider {
        display_name: "OpenAI Responses API".to_owned(),
        provider: "openai-responses",
        ..openai.clone()
    };
    if provider.model.is_empty() {
        responses::DEFAULT_MODEL.clone_into(&mut provider.model);
    }
    for field in &mut provider.additional_fields {
        field.default_value.clone_from(&provider.model);
    }
    provider
}

fn hosted(
    config: &Config,
    vendor: &Vendor,
    kind: Kind,
    workspace: &str,
    credentials: &[String],
) -> Provider {
    let account = config.accounts.get(vendor, workspace);
    let source = match account {
        _ if credentials.iter().any(|name| name == vendor.name) => "workspace",
        Some(_) => "operator",
        None => "none",
    };
    // With a key of the workspace, the address and the model of the operator do not apply.
    let account = account.filter(|_| source == "operator");
    let is_main = vendor.kinds.first() == Some(&kind);
    let own_model = account.and_then(|account| account.model.clone()).filter(|_| is_main);
    let url = account.and_then(|account| account.url.as_deref()).unwrap_or_default();
    let model = own_model.unwrap_or_else(|| default_model(vendor.name, kind, url).to_owned());
    let mut fields = Vec::new();
    let models = models(vendor.name, kind);
    if !models.is_empty() {
        let name = if kind == Kind::Tts { "model_id" } else { "model" };
        fields.push(field(name, "Model", models.to_vec(), &model));
    }
    let is_multilingual = kind != Kind::Llm && vendor.name != CUSTOM;
    if is_multilingual {
        fields.push(field("language", "Language", LANGUAGES.to_vec(), "en"));
    }
    let display_name = match vendor.name {
        CUSTOM => "Any OpenAI-compatible server".to_owned(),
        "openai" if kind == Kind::Llm => "OpenAI, or the operator's compatible server".to_owned(),
        _ => vendor.display_name.to_owned(),
    };
    Provider {
        display_name,
        provider: vendor.name,
        provider_type: kind.name(),
        model,
        // A server that needs no key may run; the agent names the address of any other.
        configured: source != "none" || !vendor.needs_key,
        source,
        key_variables: vendor.variable_names("API_KEY").collect(),
        languages: if is_multilingual { language_tags() } else { Vec::new() },
        additional_fields: fields,
    }
}

fn field(
    name: &'static str,
    label: &'static str,
    items: Vec<ProviderOption>,
    default_value: &str,
) -> ProviderField {
    ProviderField { name, r#type: "ENUM", label, items, default_value: default_value.to_owned() }
}

/// The voices of a provider of this server; `None` if it is not one.
pub(super) fn builtin_voices(provider: &str) -> Option<Vec<ListedVoice>> {
    let is_it = |listed: &Provider| {
        listed.provider_type == Kind::Tts.name()
            && (listed.provider == provider
                || (listed.provider, provider) == ("builtin", "visavis"))
    };
    let fields = builtin_providers().into_iter().find(is_it)?.additional_fields;
    let voices = fields.into_iter().find(|field| field.name == "voice_id")?.items;
    let voice = |option: ProviderOption| ListedVoice {
        id: option.value.into(),
        name: option.label.into(),
        language: Some("en".into()),
        ..ListedVoice::default()
    };
    Some(voices.into_iter().map(voice).collect())
}

pub(super) fn builtin_providers() -> Vec<Provider> {
    let english = || vec![ProviderOption { label: "English", value: "en" }];
    let flite_voices: Vec<ProviderOption> = Voice::ALL.into_iter().map(voice_option).collect();
    let all_voices = [HEART_OPTION].into_iter().chain(flite_voices.iter().cloned()).collect();
    let language = || vec![field("language", "Language", english(), "en")];
    let voices = |items, default| vec![field("voice_id", "Voice", items, default)];
    let builtin = |display_name: &str, provider, kind: Kind, model: &str, fields| Provider {
        display_name: display_name.to_owned(),
        provider,
        provider_type: kind.name(),
        model: model.to_owned(),
        configured: true,
        source: "builtin",
        key_variables: Vec::new(),
        languages: vec!["en"],
        additional_fields: fields,
    };
    vec![
        builtin(
            "Built-in STT (Moonshine, or PocketSphinx without it)",
            "builtin",
            Kind::Stt,
            "moonshine",
            language(),
        ),
        builtin("PocketSphinx", "pocketsphinx", Kind::Stt, "pocketsphinx", language()),
        builtin("Built-in answerer", "builtin", Kind::Llm, "builtin", Vec::new()),
        builtin(
            "Built-in TTS (Hibari, and flite)",
            "builtin",
            Kind::Tts,
            "hibari",
            voices(all_voices, HEART),
        ),
        builtin("Hibari", "hibari", Kind::Tts, "hibari", voices(vec![HEART_OPTION], HEART)),
        builtin("Flite", "flite", Kind::Tts, "flite", voices(flite_voices, Voice::Slt.name())),
    ]
}

#[cfg(test)]
mod tests;
