//! The voices of a provider, for people who choose one.

use engine_api::TtsChoice;

use super::providers::builtin_voices;
use super::vendors::{CUSTOM, Kind, Vendor};
use super::{Access, Registry, normalize_name, truncate_for_message};
use crate::Error;
use crate::tts::cartesia::CartesiaConfig;
use crate::tts::deepgram::DeepgramTtsConfig;
use crate::tts::elevenlabs::ElevenLabsConfig;
use crate::tts::openai::OpenAiConfig;
use crate::tts::{self, ListedVoice, VoiceQuery};

/// Why voices cannot be listed.
#[derive(Debug)]
pub enum VoicesError {
    /// There is no such TTS provider.
    Unknown,
    /// The provider needs a key or an address: one sentence.
    NotConfigured(String),
    /// The request to the vendor failed.
    Failed(Error),
}

impl Registry {
    /// All voices of the provider of `choice`, with its account. The voices of this server are known
    /// without a request.
    ///
    /// # Errors
    /// See [`VoicesError`].
    pub async fn voices(&self, choice: &TtsChoice) -> Result<Vec<ListedVoice>, VoicesError> {
        if let Some(voices) = builtin_voices(&normalize_name(&choice.provider)) {
            return Ok(voices);
        }
        let vendor = Vendor::find(&choice.provider).filter(|vendor| vendor.serves(Kind::Tts));
        let vendor = vendor.ok_or(VoicesError::Unknown)?;
        let own = (choice.url.as_ref(), choice.token.as_ref());
        let access = self.access(vendor, Kind::Tts, own, &choice.workspace);
        let access = access.map_err(|why| VoicesError::NotConfigured(format!("{why}.")))?;
        let listed = hosted_voices(vendor, access, &choice.model_id).await;
        listed.map_err(|error| {
            let provider = truncate_for_message(vendor.name);
            tracing::warn!(%error, provider, "the voices of a provider cannot be listed");
            VoicesError::Failed(error)
        })
    }
}

async fn hosted_voices(
    vendor: &Vendor,
    access: Access,
    model: &str,
) -> Result<Vec<ListedVoice>, Error> {
    let Access { url, token, client, .. } = access;
    let model = model.to_owned();
    let query = VoiceQuery { limit: usize::MAX, ..VoiceQuery::default() };
    let page = match vendor.name {
        "elevenlabs" => {
            let config = ElevenLabsConfig { url, token, model, ..ElevenLabsConfig::default() };
            tts::elevenlabs::voices(&config, client, &query).await
        }
        "cartesia" => {
            let config = CartesiaConfig { url, token, model, ..CartesiaConfig::default() };
            tts::cartesia::voices(&config, client, &query).await
        }
        "deepgram" => {
            let config = DeepgramTtsConfig { url, token, model, ..DeepgramTtsConfig::default() };
            tts::deepgram::voices(&config, client, &query).await
        }
        // Also any server with its interface.
        _ => {
            let name = (vendor.name != CUSTOM).then_some(vendor.display_name);
            let config = OpenAiConfig { name, url, token, model, ..OpenAiConfig::default() };
            tts::openai::voices(&config, client, &query).await
        }
    };
    Ok(page?.voices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Config;

    async fn listed(provider: &str) -> Result<Vec<ListedVoice>, VoicesError> {
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let runtime = tokio::runtime::Handle::current();
        let choice = TtsChoice { provider: provider.into(), ..TtsChoice::default() };
        Registry::new(Config::default(), client, runtime).voices(&choice).await
    }

    #[tokio::test]
    async fn built_in_voices_are_listed_without_a_request() {
        for (provider, count) in [("builtin", 6), ("Hibari", 1), ("flite", 5)] {
            let voices = listed(provider).await.unwrap();
            assert_eq!(voices.len(), count, "{provider}");
            assert!(voices.iter().all(|voice| voice.language.as_deref() == Some("en")));
        }
    }

    #[tokio::test]
    async fn a_provider_without_a_key_or_without_voices_says_so() {
        assert!(matches!(listed("anthropic").await, Err(VoicesError::Unknown)));
        assert!(matches!(listed("pocketsphinx").await, Err(VoicesError::Unknown)));
        assert!(matches!(listed("").await, Err(VoicesError::Unknown)));
        let Err(VoicesError::NotConfigured(why)) = listed("ElevenLabs").await else { panic!() };
        assert_eq!(why, "The text-to-speech provider \"elevenlabs\" needs an API key.");
        let Err(VoicesError::NotConfigured(why)) = listed("custom").await else { panic!() };
        assert_eq!(why, "The text-to-speech provider \"custom\" requires a url.");
    }
}
