//! Client of Google's Gemini API: `POST {url}/v1beta/models/{model}:streamGenerateContent`.

mod parser;
mod request;
mod schema;

use std::sync::Arc;

use serde_json::{Map, Value};
use url::Url;

use self::parser::ContentParser;
use self::request::request_body;
use super::Request;
use super::driver::{Config, Driver, Protocol, RefusedParameters, WarmUp};
pub use super::options::Options;
use super::stream::StreamParser;
use super::thought_signatures::ThoughtSignatures;
use crate::hosted::{server_url, with_path};

/// Google's own server.
pub const DEFAULT_URL: &str = "https://generativelanguage.googleapis.com";

/// Default model; it has a short time to the first token.
pub const DEFAULT_MODEL: &str = "gemini-2.5-flash";

/// Name in errors.
const VENDOR: &str = "Google";

/// Names of the options that an agent may set.
const OPTIONS: [&str; 7] = [
    "max_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "reasoning_effort",
];

/// A client of one server. The path of `Config::url` may end in a version (`/v1beta`).
pub type Gemini = Driver<GenerateContent>;

impl Gemini {
    /// A client of the server at `config.url` that sends through `client` and runs on `runtime`.
    /// It adds to `refused`, which outlives it.
    #[must_use]
    pub fn new(
        config: Config,
        options: Options,
        client: egress::Client,
        refused: RefusedParameters,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let protocol = GenerateContent { options, signatures: Arc::default() };
        Self::of(protocol, config, client, refused, runtime)
    }
}

/// Reads the options of an agent (`max_tokens`, `temperature`, `top_p`, `frequency_penalty`,
/// `presence_penalty`, `seed`, `reasoning_effort`); also returns the names of those that are unknown
/// or have a value that is not allowed.
#[must_use]
pub fn read_options(values: &Map<String, Value>) -> (Options, Vec<&str>) {
    Options::read(values, &OPTIONS)
}

/// The protocol.
pub struct GenerateContent {
    options: Options,
    signatures: Arc<ThoughtSignatures>,
}

impl Protocol for GenerateContent {
    fn vendor(&self) -> &'static str {
        VENDOR
    }

    fn optional_parameters(&self) -> &[&'static str] {
        &request::OPTIONAL_PARAMETERS
    }

    fn url(&self, base: &str, model: &str) -> Option<Url> {
        let mut url = server(base)?;
        // The name of a model is one segment, or follows that of its collection.
        let (collection, name) = model.rsplit_once('/').unwrap_or(("models", model));
        url.path_segments_mut()
            .ok()?
            .pop_if_empty()
            .push("v1beta")
            .push(collection)
            .push(&format!("{name}:streamGenerateContent"));
        url.query_pairs_mut().append_pair("alt", "sse");
        Some(url)
    }

    fn authorize(
        &self,
        request: egress::Request,
        key: Option<&str>,
    ) -> Result<egress::Request, egress::Error> {
        match key {
            Some(key) => request.header("x-goog-api-key", key),
            None => Ok(request),
        }
    }

    fn body(&self, request: &Request, model: &str, omitted: &[&'static str]) -> Value {
        request_body(request, model, self.options, omitted, &self.signatures)
    }

    fn parser(&self, request: &Request, model: &str) -> Box<dyn StreamParser> {
        Box::new(ContentParser::new(&request.tools, model, Arc::clone(&self.signatures)))
    }

    fn warm_up(&self, base: &str, _model: &str) -> Option<WarmUp> {
        server(base).map(|url| WarmUp::Connect(with_path(url, "v1beta/models")))
    }
}

/// The server at `base`, without a version.
fn server(base: &str) -> Option<Url> {
    server_url(base, &["/v1beta/openai", "/v1beta/models", "/v1beta", "/v1"])
}

#[cfg(test)]
mod tests;
