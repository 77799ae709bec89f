//! Which voice speaks a video. Its provider and its model are those of the request's time, so that
//! later changes of the defaults change no video that waits.

use engine_api::{Pronunciation, TtsChoice};
use models::registry::{Kind, is_builtin_tts};
use models::tts::builtin_provider_has;

use super::document::VideoTts;
use crate::error::ApiError;
use crate::resources::model_choices::Account;
use crate::resources::providers::registry_of;
use crate::state::AppState;

const UNKNOWN_PROVIDER: &str = "is not a provider of this server";
const UNKNOWN_VOICE: &str = "is not a voice of this provider";

/// The provider of a video's voice, and its settings.
pub(super) fn choice_of(tts: &VideoTts) -> TtsChoice {
    let pronunciation = tts.custom_pronunciation.iter().map(|one| Pronunciation {
        word: one.word.clone(),
        pronunciation: one.pronunciation.clone(),
    });
    TtsChoice {
        provider: tts.provider.clone().unwrap_or_default(),
        model_id: tts.model_id.clone().unwrap_or_default(),
        voice_id: tts.voice_id.clone().unwrap_or_default(),
        language: tts.language.clone().unwrap_or_default(),
        custom_pronunciation: pronunciation.collect(),
        ..TtsChoice::default()
    }
}

/// The voice of a request with its provider, which exists and can be used.
///
/// # Errors
/// 400 with the field; 503 on a server without models.
pub(super) async fn resolve(
    state: &AppState,
    workspace: &str,
    tts: VideoTts,
) -> Result<VideoTts, ApiError> {
    let registry = registry_of(state)?;
    let choice = choice_of(&tts);
    let named = choice.provider.trim();
    if !named.is_empty() && !registry.knows(Kind::Tts, named) {
        return Err(ApiError::invalid_field("tts.provider", UNKNOWN_PROVIDER));
    }
    let credentials = state.store.credentials(&state.vault, workspace).await?;
    let account = Account { workspace, credentials: &credentials, registry: Some(registry) };
    let choice = account.apply(choice);
    let provider = registry.first_provider(Kind::Tts, &choice.provider, workspace);
    let voice = choice.voice_id.clone();
    let is_known = if is_builtin_tts(&provider) {
        builtin_provider_has(&provider, &voice)
    } else {
        let tts = registry
            .single_tts(&TtsChoice { provider: provider.clone(), ..choice })
            .map_err(|reason| ApiError::invalid_field("tts.provider", reason))?;
        tts.has_voice(&voice)
    };
    if !voice.is_empty() && !is_known {
        return Err(ApiError::invalid_field("tts.voice_id", UNKNOWN_VOICE));
    }
    Ok(VideoTts { provider: Some(provider), ..tts })
}
