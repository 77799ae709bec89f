//! Cartesia Sonic over its WebSocket with contexts.

mod codec;
mod options;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Handle as Runtime;
use url::Url;

pub use options::Options;

use self::codec::CartesiaCodec;
use super::Tts;
use super::hosted::Timeouts;
use super::hosted::call::SocketTts;
use super::hosted::voices::{ListedVoice, VoicePage, VoiceQuery, fetch_json, text_of};
use crate::Error;
use crate::hosted::{Endpoint, base_url, with_path};

/// Cartesia's own server.
pub const DEFAULT_URL: &str = "https://api.cartesia.ai";
/// Model of agents that name none.
pub const DEFAULT_MODEL: &str = "sonic-3.5";
/// Voice of agents that name none: Tessa.
pub const DEFAULT_VOICE: &str = "6ccbfb76-1fc6-48f7-b71d-91ac6298247b";

/// Name of the vendor in sentences.
const VENDOR: &str = "Cartesia";
/// Version of the interface.
const VERSION: &str = "2025-04-16";
/// Endings of a base URL that people paste, longest first.
const KNOWN_PATHS: [&str; 2] = ["/tts/websocket", "/tts"];
/// Voices for each request of the list.
const PAGE_SIZE: &str = "100";
/// Maximum number of requests for a list.
const MAX_PAGES: usize = 20;

/// Server and voice.
#[derive(Clone, Default)]
pub struct CartesiaConfig {
    /// Base URL: `http`, `https`, `ws` or `wss`, with an optional path prefix. Empty =
    /// [`DEFAULT_URL`].
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Model; empty = [`DEFAULT_MODEL`].
    pub model: String,
    /// Id of the voice of requests that name none; empty = [`DEFAULT_VOICE`].
    pub voice: String,
    /// BCP 47 tag; empty = `en`.
    pub language: String,
    /// Further settings.
    pub options: Options,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl fmt::Debug for CartesiaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CartesiaConfig")
            .field("model", &self.model)
            .field("voice", &self.voice)
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

impl CartesiaConfig {
    /// The address of `path` on the server.
    fn url_of(&self, path: &str) -> Result<Url, Error> {
        let base = base_url(VENDOR, &self.url, DEFAULT_URL, &KNOWN_PATHS)?;
        Ok(with_path(base, path))
    }

    fn endpoint(&self, client: egress::Client) -> Endpoint {
        Endpoint::new(VENDOR, String::new(), ("x-api-key", ""), self.token.as_deref(), client)
    }
}

/// The voices of Cartesia, with connections through `client` and tasks on `runtime`. Sends nothing
/// before a text is spoken or a call is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn cartesia(
    config: &CartesiaConfig,
    client: egress::Client,
    runtime: Runtime,
) -> Result<Arc<dyn Tts>, Error> {
    let mut url = config.url_of("tts/websocket")?;
    url.query_pairs_mut().append_pair("cartesia_version", VERSION);
    let url = String::from(url);
    let (settings, endpoint) = (config.clone(), config.endpoint(client));
    let make_codec = move || CartesiaCodec::new(url.clone(), settings.clone());
    Ok(Arc::new(SocketTts::new(endpoint, make_codec, config.timeouts, runtime)))
}

/// The public voices and those of the account.
///
/// # Errors
/// One sentence with the reason.
pub async fn voices(
    config: &CartesiaConfig,
    client: egress::Client,
    query: &VoiceQuery,
) -> Result<VoicePage, Error> {
    let mut url = config.url_of("voices")?;
    let mut endpoint = config.endpoint(client);
    let (mut voices, mut last) = (Vec::<ListedVoice>::new(), None::<String>);
    for _ in 0..MAX_PAGES {
        url.query_pairs_mut()
            .clear()
            .append_pair("limit", PAGE_SIZE)
            .append_pair("expand[]", "preview_file_url")
            .extend_pairs(last.iter().map(|id| ("starting_after", id)));
        endpoint.url = url.to_string();
        let page = fetch_json(&endpoint, &[("cartesia-version", VERSION)]).await?;
        let listed = page["data"].as_array().or_else(|| page.as_array());
        let known = voices.len();
        voices.extend(listed.into_iter().flatten().filter_map(listed_voice));
        last = voices[known..].last().map(|voice| voice.id.clone());
        if page["has_more"] != true || last.is_none() {
            break;
        }
    }
    Ok(query.select(voices))
}

fn listed_voice(voice: &Value) -> Option<ListedVoice> {
    let id = text_of(&voice["id"])?;
    Some(ListedVoice {
        name: text_of(&voice["name"]).unwrap_or_else(|| id.clone()),
        language: text_of(&voice["language"]),
        gender: text_of(&voice["gender"]),
        preview: text_of(&voice["preview_file_url"]),
        id,
    })
}

#[cfg(test)]
mod tests;
