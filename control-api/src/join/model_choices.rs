//! The providers that an avatar names, as the engine's choices.

use engine_api::{LlmChoice, Pronunciation, SttChoice, TtsChoice};

use serde_json::Number;

use crate::store::providers::{Llm, LlmFallback, Providers, Stt, SttFallback, Tts, TtsFallback};
use crate::store::secrets::AvatarSecrets;

/// A text that is set.
pub(super) fn non_empty(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// A number that is set.
pub(super) fn number(value: Option<&Number>) -> Option<f64> {
    value.and_then(Number::as_f64)
}

/// The choices of one call.
pub(super) struct ModelChoices {
    pub(super) stt: SttChoice,
    pub(super) llm: LlmChoice,
    pub(super) tts: TtsChoice,
}

/// The choices of an avatar of `workspace`.
pub(super) fn of_avatar(
    providers: &Providers,
    secrets: AvatarSecrets,
    workspace: &str,
) -> ModelChoices {
    let mut stt = stt_choice(&providers.stt, secrets.stt);
    let mut llm = llm_choice(&providers.llm, secrets.llm);
    let mut tts = tts_choice(&providers.tts, secrets.tts, &stt.language);
    workspace.clone_into(&mut stt.workspace);
    workspace.clone_into(&mut llm.workspace);
    workspace.clone_into(&mut tts.workspace);
    ModelChoices { stt, llm, tts }
}

fn stt_choice(stt: &Stt, token: Option<String>) -> SttChoice {
    let language = stt.language.clone().unwrap_or_default();
    let next = |next: &SttFallback| SttChoice {
        provider: next.provider.clone(),
        model: next.model.clone().unwrap_or_default(),
        language: next.language.clone().unwrap_or_else(|| language.clone()),
        url: non_empty(next.url.as_ref()),
        keyterms: stt.keyterms.clone(),
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_options_of_a_language_model_reach_the_call() {
        let stored = serde_json::json!({"provider": "anthropic", "options": {"max_tokens": 50}});
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
        let ModelChoices { stt, llm, tts } = of_avatar(&providers, secrets, "w");
        let languages: Vec<&str> = stt.fallback.iter().map(|next| &*next.language).collect();
        assert_eq!(languages, ["fr", "auto"]);
        assert_eq!(stt.fallback[0].keyterms, ["Visavis"]);
        assert_eq!((tts.language.as_str(), tts.token.as_deref()), ("fr", Some("key")));
        assert_eq!((&*tts.fallback[0].voice_id, tts.fallback[0].token.clone()), ("v", None));
        assert_eq!(tts.options["speed"], 1.1);
        assert_eq!(llm.fallback[0].model, "m");
        assert!([&stt.workspace, &llm.workspace, &tts.workspace].iter().all(|name| *name == "w"));
    }
}
