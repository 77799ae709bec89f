//! Deepgram Aura over its WebSocket (`/v1/speak`). The model is the voice. It reports no words.

mod codec;
mod options;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Handle as Runtime;
use url::Url;

pub use options::Options;

use self::codec::AuraCodec;
use super::Tts;
use super::hosted::call::SocketTts;
use super::hosted::voices::{
    ListedVoice, VoicePage, VoiceQuery, fetch_json, primary_language, text_of,
};
use super::hosted::{Timeouts, non_empty};
use crate::Error;
use crate::hosted::{Endpoint, base_url, with_path};

/// Deepgram's own server.
pub const DEFAULT_URL: &str = "https://api.deepgram.com";
/// Family of voices of agents that name none.
pub const DEFAULT_MODEL: &str = "aura-2";
/// Voice of agents that name none.
pub const DEFAULT_VOICE: &str = "thalia";

/// Name of the vendor in sentences.
const VENDOR: &str = "Deepgram";
/// Endings of a base URL that people paste, longest first.
const KNOWN_PATHS: [&str; 4] = ["/v1/speak", "/v2/speak", "/v1", "/v2"];

/// Server and voice.
#[derive(Clone, Default)]
pub struct DeepgramTtsConfig {
    /// Base URL: `http`, `https`, `ws` or `wss`, with an optional path prefix. Empty =
    /// [`DEFAULT_URL`].
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Family of voices, or a whole voice such as `aura-2-thalia-en`; empty = [`DEFAULT_MODEL`].
    pub model: String,
    /// Voice of requests that name none: a name such as `thalia`, or a whole voice; empty =
    /// [`DEFAULT_VOICE`].
    pub voice: String,
    /// BCP 47 tag; empty = `en`. Not used if the whole voice is named.
    pub language: String,
    /// Further settings.
    pub options: Options,
    /// Whether the vendor may train on the texts (`mip_opt_out`).
    pub share_data: bool,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl fmt::Debug for DeepgramTtsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeepgramTtsConfig")
            .field("model", &self.model)
            .field("voice", &self.voice)
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

impl DeepgramTtsConfig {
    /// The address of `path` on the server.
    fn url_of(&self, path: &str) -> Result<Url, Error> {
        let base = base_url(VENDOR, &self.url, DEFAULT_URL, &KNOWN_PATHS)?;
        Ok(with_path(base, path))
    }

    fn endpoint(&self, client: egress::Client) -> Endpoint {
        Endpoint::new(
            VENDOR,
            String::new(),
            ("authorization", "Token "),
            self.token.as_deref(),
            client,
        )
    }

    /// The whole name of a voice: `FAMILY-NAME-LANGUAGE`.
    fn full_voice(&self, voice: &str, language: Option<&str>) -> String {
        let model = non_empty(&self.model, DEFAULT_MODEL);
        let voice = non_empty(voice, &self.voice).trim();
        if voice.starts_with("aura-") {
            return voice.to_owned();
        }
        // A family is a name with at most a number.
        let is_family = model.trim_start_matches("aura").trim_matches('-').parse::<u32>().is_ok()
            || model == "aura";
        if !is_family && voice.is_empty() {
            return model.to_owned();
        }
        let family = if is_family { model } else { DEFAULT_MODEL };
        let language = primary_language(language.unwrap_or(&self.language));
        let language = match language.as_str() {
            "" | "auto" | "multi" => "en",
            language => language,
        };
        format!("{family}-{}-{language}", non_empty(voice, DEFAULT_VOICE).to_lowercase())
    }
}

/// The voices of Deepgram, with connections through `client` and tasks on `runtime`. Sends nothing
/// before a text is spoken or a call is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn deepgram(
    config: &DeepgramTtsConfig,
    client: egress::Client,
    runtime: Runtime,
) -> Result<Arc<dyn Tts>, Error> {
    let (url, settings) = (config.url_of("v1/speak")?, config.clone());
    let make_codec = move || AuraCodec::new(url.clone(), settings.clone());
    let endpoint = config.endpoint(client);
    Ok(Arc::new(SocketTts::new(endpoint, make_codec, config.timeouts, runtime)))
}

/// The voices of the vendor.
///
/// # Errors
/// One sentence with the reason.
pub async fn voices(
    config: &DeepgramTtsConfig,
    client: egress::Client,
    query: &VoiceQuery,
) -> Result<VoicePage, Error> {
    let endpoint = config.endpoint(client).at(config.url_of("v1/models")?);
    let list = fetch_json(&endpoint, &[]).await?;
    let voices = list["tts"].as_array().into_iter().flatten().filter_map(listed_voice);
    Ok(query.select(voices.collect()))
}

fn listed_voice(voice: &Value) -> Option<ListedVoice> {
    let id = text_of(&voice["canonical_name"])?;
    let tags = voice["metadata"]["tags"].as_array().into_iter().flatten();
    let gender =
        tags.filter_map(Value::as_str).find(|tag| matches!(*tag, "feminine" | "masculine"));
    Some(ListedVoice {
        name: text_of(&voice["name"]).unwrap_or_else(|| id.clone()),
        language: text_of(&voice["languages"][0]),
        gender: gender.map(str::to_owned),
        preview: text_of(&voice["metadata"]["sample"]),
        id,
    })
}

#[cfg(test)]
mod tests;
