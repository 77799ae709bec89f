//! Client of Anthropic's Messages API: `POST {url}/v1/messages`, streaming.

mod options;
mod parser;
mod request;

use serde_json::Value;
use url::Url;

pub use self::options::Options;
use self::parser::MessageParser;
use self::request::request_body;
pub use super::driver::RefusedParameters;
use super::driver::{self, Driver, Protocol, WarmUp};
use super::stream::StreamParser;
use super::{Request, Timeouts};
use crate::hosted::{server_url, with_path};

/// Anthropic's own server.
pub const DEFAULT_URL: &str = "https://api.anthropic.com";

/// Default model; it has a short time to the first token.
pub const DEFAULT_MODEL: &str = "claude-haiku-4-5";

/// Name in errors.
const VENDOR: &str = "Anthropic";

/// Version of the protocol.
const VERSION: &str = "2023-06-01";

/// Server and model.
#[derive(Clone)]
pub struct Config {
    /// Base URL of the server. A path that ends in `/v1` or `/v1/messages` is accepted, and `ws`
    /// and `wss` stand for `http` and `https`.
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Model for requests that name none.
    pub model: String,
    /// Options of each request.
    pub options: Options,
    /// Time limits.
    pub timeouts: Timeouts,
}

/// A client of one server.
pub type Anthropic = Driver<Messages>;

impl Anthropic {
    /// A client of the server at `config.url` that sends through `client` and runs on `runtime`.
    /// It adds to `refused`, which outlives it.
    #[must_use]
    pub fn new(
        config: Config,
        client: egress::Client,
        refused: RefusedParameters,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let Config { url, token, model, options, timeouts } = config;
        let server = driver::Config { url, token, model, timeouts };
        Self::of(Messages { options }, server, client, refused, runtime)
    }
}

/// The protocol.
pub struct Messages {
    options: Options,
}

impl Protocol for Messages {
    fn vendor(&self) -> &'static str {
        VENDOR
    }

    fn optional_parameters(&self) -> &[&'static str] {
        &request::OPTIONAL_PARAMETERS
    }

    fn url(&self, base: &str, _model: &str) -> Option<Url> {
        endpoint(base, "v1/messages")
    }

    fn authorize(
        &self,
        request: egress::Request,
        key: Option<&str>,
    ) -> Result<egress::Request, egress::Error> {
        let request = request.header("anthropic-version", VERSION)?;
        match key {
            Some(key) => request.header("x-api-key", key),
            None => Ok(request),
        }
    }

    fn body(&self, request: &Request, model: &str, omitted: &[&'static str]) -> Value {
        request_body(request, model, self.options, omitted)
    }

    fn parser(&self, request: &Request, model: &str) -> Box<dyn StreamParser> {
        Box::new(MessageParser::new(&request.tools, model))
    }

    fn warm_up(&self, base: &str, _model: &str) -> Option<WarmUp> {
        endpoint(base, "v1/models").map(WarmUp::Connect)
    }
}

/// The URL of an endpoint of the server at `base`.
fn endpoint(base: &str, path: &str) -> Option<Url> {
    server_url(base, &["/v1/messages", "/v1"]).map(|url| with_path(url, path))
}

#[cfg(test)]
mod tests;
