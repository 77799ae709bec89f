//! ElevenLabs over its WebSocket with several contexts (`multi-stream-input`).
//!
//! The voice and the language are in the address of the connection. Models of the third and fourth
//! generation have another endpoint with other messages ([`codec`]).

mod codec;
mod messages;
mod options;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Handle as Runtime;
use url::Url;

pub use options::Options;

use self::codec::ElevenLabsCodec;
use super::Tts;
use super::hosted::call::SocketTts;
use super::hosted::voices::{ListedVoice, VoicePage, VoiceQuery, fetch_json, text_of};
use super::hosted::{Timeouts, non_empty};
use crate::Error;
use crate::hosted::{Endpoint, base_url, with_path};

/// ElevenLabs' own server.
pub const DEFAULT_URL: &str = "https://api.elevenlabs.io";
/// Model of agents that name none: the fastest one.
pub const DEFAULT_MODEL: &str = "eleven_flash_v2_5";
/// Voice of agents that name none: George.
pub const DEFAULT_VOICE: &str = "JBFqnCBsd6RMkjVDRZzb";

/// Name of the vendor in sentences.
const VENDOR: &str = "ElevenLabs";
/// Endings of a base URL that people paste, longest first.
const KNOWN_PATHS: [&str; 4] = ["/v1/text-to-speech", "/v1/text-to-dialogue", "/v1", "/v2"];
/// Voices for each request of the list.
const PAGE_SIZE: &str = "100";
/// Maximum number of requests for a list.
const MAX_PAGES: usize = 20;

/// Server and voice.
#[derive(Clone, Default)]
pub struct ElevenLabsConfig {
    /// Base URL: `http`, `https`, `ws` or `wss`, with an optional path prefix. Empty =
    /// [`DEFAULT_URL`].
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Model; empty = [`DEFAULT_MODEL`].
    pub model: String,
    /// Id of the voice of requests that name none; empty = [`DEFAULT_VOICE`].
    pub voice: String,
    /// BCP 47 tag; empty = the language of the text.
    pub language: String,
    /// Further settings.
    pub options: Options,
    /// Whether the vendor may store the texts. Otherwise it is asked not to (`enable_logging`),
    /// which it does for some accounts only; the others are served all the same.
    pub share_data: bool,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl fmt::Debug for ElevenLabsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElevenLabsConfig")
            .field("model", &self.model)
            .field("voice", &self.voice)
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

impl ElevenLabsConfig {
    fn base(&self) -> Result<Url, Error> {
        base_url(VENDOR, &self.url, DEFAULT_URL, &KNOWN_PATHS)
    }

    fn model(&self) -> &str {
        non_empty(&self.model, DEFAULT_MODEL)
    }

    fn endpoint(&self, client: egress::Client) -> Endpoint {
        Endpoint::new(VENDOR, String::new(), ("xi-api-key", ""), self.token.as_deref(), client)
    }
}

/// The voices of ElevenLabs, with connections through `client` and tasks on `runtime`. Sends nothing
/// before a text is spoken or a call is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn elevenlabs(
    config: &ElevenLabsConfig,
    client: egress::Client,
    runtime: Runtime,
) -> Result<Arc<dyn Tts>, Error> {
    let (base, endpoint) = (config.base()?, config.endpoint(client));
    let (settings, timeouts) = (config.clone(), config.timeouts);
    let make_codec = move || ElevenLabsCodec::new(base.clone(), settings.clone());
    Ok(Arc::new(SocketTts::new(endpoint, make_codec, timeouts, runtime)))
}

/// The voices of the account. A language is that of the recordings of a voice; the models speak all
/// of theirs with any voice.
///
/// # Errors
/// One sentence with the reason.
pub async fn voices(
    config: &ElevenLabsConfig,
    client: egress::Client,
    query: &VoiceQuery,
) -> Result<VoicePage, Error> {
    let mut url = with_path(config.base()?, "v2/voices");
    let mut endpoint = config.endpoint(client);
    let (mut voices, mut next_page) = (Vec::new(), None::<String>);
    for _ in 0..MAX_PAGES {
        url.query_pairs_mut()
            .clear()
            .append_pair("page_size", PAGE_SIZE)
            .extend_pairs(next_page.iter().map(|token| ("next_page_token", token)));
        endpoint.url = url.to_string();
        let page = fetch_json(&endpoint, &[]).await?;
        voices.extend(page["voices"].as_array().into_iter().flatten().filter_map(listed_voice));
        next_page = text_of(&page["next_page_token"]).filter(|_| page["has_more"] == true);
        if next_page.is_none() {
            break;
        }
    }
    Ok(query.select(voices))
}

fn listed_voice(voice: &Value) -> Option<ListedVoice> {
    let id = text_of(&voice["voice_id"])?;
    Some(ListedVoice {
        name: text_of(&voice["name"]).unwrap_or_else(|| id.clone()),
        language: text_of(&voice["labels"]["language"]),
        gender: text_of(&voice["labels"]["gender"]),
        preview: text_of(&voice["preview_url"]),
        id,
    })
}

#[cfg(test)]
mod tests;
