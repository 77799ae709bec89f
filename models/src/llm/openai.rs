//! Client of any server with OpenAI's chat completions: `POST {url}/chat/completions`, streaming.

mod dialect;

use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use url::Url;

pub use self::dialect::{Dialect, dialect, dialect_at};
use super::Request;
pub use super::driver::Config;
use super::driver::{Driver, Protocol, RefusedParameters, WarmUp};
pub use super::options::Options;
use super::stream::StreamParser;
use super::thought_signatures::ThoughtSignatures;
use super::wire::{AnswerParser, STREAM_OPTIONS, request_body};
use crate::hosted::{server_url, with_path};

/// Names of the options that an agent may set.
const OPTIONS: [&str; 9] = [
    "max_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "reasoning_effort",
    "verbosity",
    "parallel_tool_calls",
];

/// Identifies the requests that share a prefix, so that the server finds it in its cache.
const CACHE_KEY: &str = "prompt_cache_key";

/// Parameters that some models or servers refuse, and without which a request works too.
const OPTIONAL_PARAMETERS: [&str; 13] = [
    STREAM_OPTIONS,
    CACHE_KEY,
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "reasoning_effort",
    "verbosity",
    "parallel_tool_calls",
    "max_completion_tokens",
    "max_tokens",
    "cache_prompt",
];

/// Settings of a client beside the server's address.
#[derive(Clone, Copy)]
pub struct Settings {
    /// The differences of the server.
    pub dialect: &'static Dialect,
    /// Options of each request.
    pub options: Options,
    /// Whether the vendor may store the conversation and learn from it, as far as the vendor lets
    /// its clients choose.
    pub share_data: bool,
}

/// A client of one server.
///
/// `Config::url` is a base URL that ends in `/v1` or what the server has in its place. A path that
/// ends in an endpoint is accepted, and a URL without a path gets the vendor's path.
pub type OpenAi = Driver<ChatCompletions>;

impl OpenAi {
    /// A client of the server at `config.url` that sends through `client` and runs on `runtime`.
    /// The address decides about the dialect.
    #[must_use]
    pub fn new(config: Config, client: egress::Client, runtime: tokio::runtime::Handle) -> Self {
        let dialect = Dialect::of_url(&config.url);
        let settings = Settings { dialect, options: Options::default(), share_data: false };
        Self::with_settings(config, settings, client, RefusedParameters::default(), runtime)
    }

    /// As [`Self::new`], with `settings`. The client adds to `refused`, which outlives it.
    #[must_use]
    pub fn with_settings(
        config: Config,
        settings: Settings,
        client: egress::Client,
        refused: RefusedParameters,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let protocol = ChatCompletions { settings, signatures: Arc::default() };
        Self::of(protocol, config, client, refused, runtime)
    }
}

/// Reads the options of an agent (`max_tokens`, `temperature`, `top_p`, `frequency_penalty`,
/// `presence_penalty`, `seed`, `reasoning_effort`, `verbosity`, `parallel_tool_calls`); also returns
/// the names of those that are unknown or have a value that is not allowed.
#[must_use]
pub fn read_options(values: &Map<String, Value>) -> (Options, Vec<&str>) {
    Options::read(values, &OPTIONS)
}

/// The protocol in one dialect.
pub struct ChatCompletions {
    settings: Settings,
    signatures: Arc<ThoughtSignatures>,
}

impl ChatCompletions {
    fn dialect(&self) -> &'static Dialect {
        self.settings.dialect
    }

    fn endpoint(&self, base: &str, path: &str) -> Option<Url> {
        endpoint(self.dialect(), base, path)
    }
}

impl Protocol for ChatCompletions {
    fn vendor(&self) -> &'static str {
        self.dialect().vendor
    }

    fn optional_parameters(&self) -> &[&'static str] {
        &OPTIONAL_PARAMETERS
    }

    fn url(&self, base: &str, _model: &str) -> Option<Url> {
        self.endpoint(base, "chat/completions")
    }

    fn authorize(
        &self,
        request: egress::Request,
        key: Option<&str>,
    ) -> Result<egress::Request, egress::Error> {
        authorize(self.dialect(), request, key)
    }

    fn body(&self, request: &Request, model: &str, omitted: &[&'static str]) -> Value {
        let Settings { dialect, options, share_data } = self.settings;
        let signing_model = if dialect.has_signatures { model } else { "" };
        let mut body = request_body(request, model, omitted, &self.signatures, signing_model);
        let mut add = |name: &'static str, value: Option<Value>| {
            if let Some(value) = value.filter(|_| !omitted.contains(&name)) {
                body.entry(name).or_insert(value);
            }
        };
        add(dialect.max_tokens, options.max_tokens.map(Value::from));
        add("temperature", options.temperature.map(Value::from));
        add("top_p", options.top_p.map(Value::from));
        add("frequency_penalty", options.frequency_penalty.map(Value::from));
        add("presence_penalty", options.presence_penalty.map(Value::from));
        add("seed", options.seed.map(Value::from));
        add("reasoning_effort", options.reasoning_effort.map(Value::from));
        add("verbosity", options.verbosity.map(Value::from));
        // Servers refuse this one without tools.
        let parallel = options.parallel_tool_calls.filter(|_| !request.tools.is_empty());
        add("parallel_tool_calls", parallel.map(Value::from));
        add(CACHE_KEY, dialect.has_cache_key.then(|| cache_key(request).into()));
        for (name, value) in dialect.parameters(model, share_data) {
            add(name, Some(value));
        }
        body.into()
    }

    fn parser(&self, request: &Request, _model: &str) -> Box<dyn StreamParser> {
        let signatures = Arc::clone(&self.signatures);
        Box::new(AnswerParser::new(self.vendor(), &request.tools, signatures))
    }

    fn warm_up(&self, base: &str, model: &str) -> Option<WarmUp> {
        match self.dialect().load(base, model) {
            Some((url, body)) => Some(WarmUp::Load(url, body)),
            None => self.endpoint(base, "models").map(WarmUp::Connect),
        }
    }

    fn moderation_url(&self, base: &str) -> Option<Url> {
        self.endpoint(base, "moderations")
    }
}

/// The URL of an endpoint of the server at `base`.
pub(super) fn endpoint(dialect: &Dialect, base: &str, path: &str) -> Option<Url> {
    let mut url = server_url(base, &["/chat/completions", "/responses", "/models"])?;
    if url.path() == "/"
        && let Ok(own) = Url::parse(dialect.url)
    {
        url.set_path(own.path());
    }
    Some(with_path(url, path))
}

/// Adds the key and the headers of the dialect.
pub(super) fn authorize(
    dialect: &Dialect,
    mut request: egress::Request,
    key: Option<&str>,
) -> Result<egress::Request, egress::Error> {
    for (name, value) in dialect.headers {
        request = request.header(name, value)?;
    }
    match (key, dialect.key_header) {
        (None, _) => Ok(request),
        (Some(key), Some(header)) => request.header(header, key),
        (Some(key), None) => request.bearer(key),
    }
}

/// The same for all conversations of an agent: a hash of its prompt.
pub(super) fn cache_key(request: &Request) -> String {
    let hash = Sha256::digest(request.prompt.as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
