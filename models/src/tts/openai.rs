//! OpenAI's `POST /v1/audio/speech`, and every server that has it. One request for each segment.
//!
//! The response is a stream of samples. Compatible servers do not always send the requested format,
//! so the type of the response decides ([`response_format`]). The vendor reports no words.

mod options;
mod response_format;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use url::Url;

pub use options::Options;

use self::response_format::ResponseDecoder;
use super::hosted::spoken_text::SpokenText;
use super::hosted::voices::{ListedVoice, VoicePage, VoiceQuery, fetch_json, refused, text_of};
use super::hosted::{Timeouts, may_be_vendor_voice, non_empty};
use super::{Event, Request, Tts};
use crate::hosted::failure::Failure;
use crate::hosted::{Endpoint, base_url, is_openai_host, with_path};
use crate::{Error, ErrorKind, Handle, Sink};

/// OpenAI's own server.
pub const DEFAULT_URL: &str = "https://api.openai.com/v1";
/// Model of agents that name none, at OpenAI's own server.
pub const DEFAULT_MODEL: &str = "gpt-4o-mini-tts";
/// Voice of agents that name none, at OpenAI's own server.
pub const DEFAULT_VOICE: &str = "coral";

/// Name of another server in sentences.
const OTHER_SERVER: &str = "OpenAI-compatible TTS";

/// Voices of OpenAI, which has no list of them.
const VOICES: [&str; 13] = [
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
    "shimmer", "verse",
];
/// Sample rate in Hz that is requested, and that is assumed if the response names none.
const SAMPLE_RATE: u32 = 24_000;
/// Segments of a call that are requested at the same time: the one that plays and the next one.
const MAX_REQUESTS: usize = 2;
/// Maximum number of characters of a text.
const MAX_CHARACTERS: usize = 4_096;
/// Time for the request that opens the connection.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// Server and voice.
#[derive(Clone, Default)]
pub struct OpenAiConfig {
    /// Name of the vendor in sentences; `None` = by the address.
    pub name: Option<&'static str>,
    /// Base URL that ends in `/v1`; empty = [`DEFAULT_URL`].
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Model; empty = [`DEFAULT_MODEL`] at OpenAI, none at another server.
    pub model: String,
    /// Voice of requests that name none; empty = [`DEFAULT_VOICE`] at OpenAI, none at another
    /// server.
    pub voice: String,
    /// Further settings.
    pub options: Options,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl fmt::Debug for OpenAiConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiConfig")
            .field("model", &self.model)
            .field("voice", &self.voice)
            .finish_non_exhaustive()
    }
}

/// Model of agents that name none, at a base URL (empty = [`DEFAULT_URL`]); empty = the server's own.
#[must_use]
pub fn default_model(url: &str) -> &'static str {
    let base = base_url(OTHER_SERVER, url, DEFAULT_URL, &[]);
    if base.is_ok_and(|base| is_openai(&base)) { DEFAULT_MODEL } else { "" }
}

fn is_openai(base: &Url) -> bool {
    base.host_str().is_some_and(is_openai_host)
}

/// The voices of the server at `config.url`, with requests through `client` and tasks on `runtime`.
/// Sends nothing before a text is spoken or a call is opened.
///
/// # Errors
/// [`ErrorKind::Rejected`] if the address is not a URL.
pub fn openai(
    config: &OpenAiConfig,
    client: egress::Client,
    runtime: Runtime,
) -> Result<Arc<dyn Tts>, Error> {
    let server = Arc::new(Server::new(config, client)?);
    Ok(Arc::new(OpenAiTts { server, permits: Arc::new(Semaphore::new(MAX_REQUESTS)), runtime }))
}

/// The voices of OpenAI, or those that a compatible server lists at `audio/voices`.
///
/// # Errors
/// One sentence with the reason.
pub async fn voices(
    config: &OpenAiConfig,
    client: egress::Client,
    query: &VoiceQuery,
) -> Result<VoicePage, Error> {
    let server = Server::new(config, client)?;
    if server.is_openai {
        let voice = |name: &str| ListedVoice {
            id: name.to_owned(),
            name: name.to_owned(),
            ..ListedVoice::default()
        };
        return Ok(query.select(VOICES.into_iter().map(voice).collect()));
    }
    let endpoint = server.endpoint_at("audio/voices");
    Ok(query.select(listed_voices(&fetch_json(&endpoint, &[]).await?)))
}

/// The voices of a server.
struct OpenAiTts {
    server: Arc<Server>,
    permits: Arc<Semaphore>,
    runtime: Runtime,
}

struct Server {
    base: Url,
    /// Without an address.
    endpoint: Endpoint,
    config: OpenAiConfig,
    is_openai: bool,
}

/// The voices of a list in the forms of compatible servers: names, or objects with an id.
fn listed_voices(list: &Value) -> Vec<ListedVoice> {
    let voices = [&list["voices"], &list["data"], list].into_iter().find_map(Value::as_array);
    let voice = |value: &Value| {
        let id = [value, &value["id"], &value["voice_id"], &value["name"]]
            .into_iter()
            .find_map(text_of)?;
        Some(ListedVoice {
            name: text_of(&value["name"]).unwrap_or_else(|| id.clone()),
            language: text_of(&value["language"]),
            gender: text_of(&value["gender"]),
            preview: None,
            id,
        })
    };
    voices.into_iter().flatten().filter_map(voice).collect()
}

impl Tts for OpenAiTts {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        let (server, permits) = (Arc::clone(&self.server), Arc::clone(&self.permits));
        let speaking = async move {
            // Never closed.
            let _permit = permits.acquire().await;
            match server.speak(&request, &sink).await {
                Ok(()) => sink.send(Event::End),
                Err(error) => {
                    tracing::warn!(%error, "a hosted TTS failed");
                    sink.send(Event::Failed(error));
                }
            }
        };
        let task = self.runtime.spawn(speaking.in_current_span());
        Ok(Handle::new(move || task.abort()))
    }

    fn open_call(&self, _: &Request) -> Option<Arc<dyn Tts>> {
        let server = Arc::clone(&self.server);
        self.runtime.spawn(async move {
            // Any response is sufficient: only the open connection matters.
            if let Ok(request) = server.request(egress::Method::GET, "models") {
                let request = request.timeout(Some(WARM_UP_TIMEOUT));
                if let Ok(response) = server.endpoint.client.send(request).await {
                    drop(response.body().await);
                }
            }
        });
        Some(Arc::new(Self {
            server: Arc::clone(&self.server),
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            runtime: self.runtime.clone(),
        }))
    }

    fn has_voice(&self, voice: &str) -> bool {
        may_be_vendor_voice(voice)
    }
}

impl Server {
    fn new(config: &OpenAiConfig, client: egress::Client) -> Result<Self, Error> {
        let name = config.name.unwrap_or(OTHER_SERVER);
        let base = base_url(name, &config.url, DEFAULT_URL, &["/audio/speech"])?;
        let is_openai = is_openai(&base);
        let by_address = if is_openai { "OpenAI" } else { OTHER_SERVER };
        let vendor = config.name.unwrap_or(by_address);
        let (token, bearer) = (config.token.as_deref(), ("authorization", "Bearer "));
        let endpoint = Endpoint::new(vendor, String::new(), bearer, token, client);
        Ok(Self { base, endpoint, config: config.clone(), is_openai })
    }

    fn endpoint_at(&self, path: &str) -> Endpoint {
        self.endpoint.at(with_path(self.base.clone(), path))
    }

    fn request(
        &self,
        method: egress::Method,
        path: &str,
    ) -> Result<egress::Request, egress::Error> {
        let request = egress::Request::new(method, &self.endpoint_at(path).url)?;
        match &self.endpoint.authorization {
            Some((name, value)) => request.header(name, value),
            None => Ok(request),
        }
    }

    /// Speaks a text; returns when all of its samples were delivered. A connection that breaks
    /// before the first sound is replaced once: a pooled one may be closed already.
    async fn speak(&self, request: &Request, sink: &Sink<Event>) -> Result<(), Error> {
        let text = SpokenText::new(&request.text, &request.pronunciation);
        if text.is_silent() {
            return Ok(());
        }
        let characters = text.sent().chars().count();
        let vendor = self.endpoint.vendor;
        if characters > MAX_CHARACTERS {
            let message = format!("{vendor} speaks at most {MAX_CHARACTERS} characters at once");
            return Err(Error::new(ErrorKind::Rejected, message));
        }
        let deadline = Instant::now() + self.config.timeouts.first_sound;
        let body = self.body(text.sent(), &request.voice);
        match self.speak_once(&text, &body, deadline, sink).await {
            Err(Interrupted::BeforeSound(_)) => {
                tracing::info!("a connection to a hosted TTS ended before the first sound");
                self.speak_once(&text, &body, deadline, sink).await.map_err(Interrupted::into_error)
            }
            spoken => spoken.map_err(Interrupted::into_error),
        }
    }

    async fn speak_once(
        &self,
        text: &SpokenText,
        body: &str,
        mut deadline: Instant,
        sink: &Sink<Event>,
    ) -> Result<(), Interrupted> {
        let vendor = self.endpoint.vendor;
        let late = |what: &str| Failure::timeout(&self.endpoint, what).error;
        let rejected = |why: String| Error::new(ErrorKind::Rejected, format!("{vendor} {why}"));
        let no_sound = "gave no sound in time";
        let broken = |error: egress::Error| {
            let failure = Failure::from_transport(&self.endpoint, &error).error;
            match error {
                egress::Error::Connection(_) => Interrupted::BeforeSound(failure),
                _ => failure.into(),
            }
        };
        let request = self.request(egress::Method::POST, "audio/speech").map_err(broken)?;
        let request = request.json(body.to_owned()).timeout(None);
        let sent = timeout_at(deadline, self.endpoint.client.send(request)).await;
        let response = sent.map_err(|_| late(no_sound))?.map_err(broken)?;
        if !response.is_success() {
            return Err(refused(&self.endpoint, response).await.into());
        }
        let characters = text.sent().chars().count();
        let characters = u32::try_from(characters).unwrap_or(u32::MAX);
        sink.send(Event::Usage { provider: "", characters });
        let content_type = response.header("content-type").unwrap_or_default();
        if response.header("content-encoding").is_some_and(|encoding| encoding != "identity") {
            let words = format!("{vendor} sent compressed sound, which nobody asked for");
            return Err(Error::new(ErrorKind::Failed, words).into());
        }
        let mut decoder = ResponseDecoder::new(content_type, &self.config.options.response_format)
            .map_err(&rejected)?;
        let speed = self.config.options.speed.unwrap_or(1.0).clamp(0.25, 1.0);
        let max_seconds = text.max_seconds() / speed;
        // At the highest usual rate.
        let mut response = response.limit((96_000.0 * max_seconds) as usize);
        let mut samples = 0;
        loop {
            let has_sound = samples > 0;
            let what = if has_sound { "stopped in the middle of the speech" } else { no_sound };
            let chunk = timeout_at(deadline, response.chunk()).await.map_err(|_| late(what))?;
            let chunk = chunk.map_err(|error| match error {
                egress::Error::TooLarge => Failure::endless(&self.endpoint).error.into(),
                error if has_sound => Failure::from_transport(&self.endpoint, &error).error.into(),
                error => broken(error),
            })?;
            let Some(chunk) = chunk else { break };
            let pcm = decoder.push(&chunk).map_err(&rejected)?;
            if !pcm.is_empty() {
                samples += pcm.len();
                if samples as f64 > max_seconds * f64::from(decoder.sample_rate()) {
                    return Err(Failure::endless(&self.endpoint).error.into());
                }
                deadline = Instant::now() + self.config.timeouts.gap;
                sink.send(Event::Audio { pcm, sample_rate: decoder.sample_rate() });
            }
        }
        if samples == 0 {
            return Err(Error::new(ErrorKind::Failed, format!("{vendor} sent no sound")).into());
        }
        Ok(())
    }

    fn body(&self, text: &str, voice: &str) -> String {
        let own = |default| if self.is_openai { default } else { "" };
        let model = non_empty(&self.config.model, own(DEFAULT_MODEL));
        let voice = non_empty(voice, non_empty(&self.config.voice, own(DEFAULT_VOICE)));
        let mut body = Map::new();
        body.insert("input".into(), text.into());
        for (name, value) in [("model", model), ("voice", voice)] {
            if !value.is_empty() {
                body.insert(name.into(), value.into());
            }
        }
        if !self.is_openai {
            // Some servers have models of another rate. OpenAI refuses unknown parameters.
            body.insert("sample_rate".into(), SAMPLE_RATE.into());
        }
        self.config.options.add_to(&mut body);
        Value::Object(body).to_string()
    }
}

/// Why a text was not spoken to its end.
enum Interrupted {
    /// The connection broke, and nothing has sounded.
    BeforeSound(Error),
    /// A repetition does not help, or would repeat what has sounded.
    Failed(Error),
}

impl Interrupted {
    fn into_error(self) -> Error {
        match self {
            Self::BeforeSound(error) | Self::Failed(error) => error,
        }
    }
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests;
