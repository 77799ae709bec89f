//! Client of Anthropic's Messages API: `POST {url}/v1/messages`, streaming.

mod failure;
mod options;
mod parser;
mod request;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use url::Url;

use self::failure::Failure;
pub use self::options::Options;
use self::parser::MessageParser;
use self::request::{OptionalParameter, request_body};
use super::guardrails::{self, GuardrailCheck, GuardrailFuture};
use super::server_message::{MAX_ERROR_BODY_BYTES, redact};
use super::stream::{MAX_RESPONSE_BYTES, read_response, timeout_error};
use super::{Event, Llm, Request, Timeouts};
use crate::{Error, Handle, Sink};

/// Anthropic's own server.
pub const DEFAULT_URL: &str = "https://api.anthropic.com";

/// Default model; it has a short time to the first token.
pub const DEFAULT_MODEL: &str = "claude-haiku-4-5";

/// Version of the protocol.
const VERSION: &str = "2023-06-01";

/// Longest wait before a request is repeated. A longer one does not help the turn.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of models whose refused parameters are remembered.
const MAX_REMEMBERED_MODELS: usize = 64;

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

/// Optional parameters that models refused. Clones share their content.
#[derive(Clone, Default)]
pub struct RefusedParameters(Arc<Mutex<HashMap<String, Vec<OptionalParameter>>>>);

impl RefusedParameters {
    fn of_model(&self, model: &str) -> Vec<OptionalParameter> {
        let models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.get(model).cloned().unwrap_or_default()
    }

    fn remember(&self, model: &str, refused: &[OptionalParameter]) {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if models.len() < MAX_REMEMBERED_MODELS || models.contains_key(model) {
            models.insert(model.to_owned(), refused.to_vec());
        }
    }
}

/// A client of one server.
pub struct Anthropic {
    server: Arc<Server>,
    runtime: tokio::runtime::Handle,
}

struct Server {
    config: Config,
    client: egress::Client,
    refused: RefusedParameters,
}

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
        Self { server: Arc::new(Server { config, client, refused }), runtime }
    }
}

impl Llm for Anthropic {
    fn ask(&self, request: Request, sink: Sink<Event>) -> Handle {
        let server = Arc::clone(&self.server);
        let answering = async move {
            if let Err(error) = server.answer(&request, &sink).await {
                sink.send(Event::Failed(error));
            }
        };
        let task = self.runtime.spawn(answering.in_current_span());
        Handle::new(move || task.abort())
    }

    fn check_guardrails(&self, check: GuardrailCheck) -> GuardrailFuture {
        guardrails::check_by_tool_calls(self, check)
    }

    fn warm_up(&self) {
        let server = Arc::clone(&self.server);
        self.runtime.spawn(async move {
            // Any response is sufficient: only the open connection matters.
            if let Ok(request) = server.build_request(egress::Method::GET, "models") {
                let request = request.timeout(Some(server.config.timeouts.first_token));
                if let Ok(response) = server.client.send(request).await {
                    drop(response.body().await);
                }
            }
        });
    }
}

impl Server {
    async fn answer(&self, request: &Request, sink: &Sink<Event>) -> Result<(), Error> {
        let deadline = Instant::now() + self.config.timeouts.first_token;
        let model = if request.model.is_empty() { &self.config.model } else { &request.model };
        let result = match timeout_at(deadline, self.send_until_accepted(request, model)).await {
            Ok(Ok(response)) => {
                let parser = MessageParser::new(&request.tools, model);
                read_response(response, parser, self.config.timeouts, deadline, sink).await
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(timeout_error()),
        };
        result.map_err(|error| Error::new(error.kind(), self.redact(&error.to_string())))
    }

    /// Sends the request until the server accepts it. It is repeated without the optional
    /// parameters that the model refuses, and once after a failure that a repetition may avoid.
    async fn send_until_accepted(
        &self,
        request: &Request,
        model: &str,
    ) -> Result<egress::Response, Error> {
        let mut refused = self.refused.of_model(model);
        let mut again = true;
        loop {
            let response = match self.send_request(request, model, &refused).await {
                Err(egress::Error::Connection(_)) if again => {
                    again = false;
                    continue;
                }
                sent => sent?,
            };
            if response.is_success() {
                return Ok(response);
            }
            let failure = read_failure(response).await;
            if let Some(parameter) = failure.refused_parameter(&refused) {
                refused.push(parameter);
                self.refused.remember(model, &refused);
            } else if let Some(wait) =
                failure.retry_wait().filter(|wait| again && *wait <= MAX_RETRY_WAIT)
            {
                again = false;
                tokio::time::sleep(wait).await;
            } else {
                failure.log();
                return Err(failure.into_error(model));
            }
        }
    }

    async fn send_request(
        &self,
        request: &Request,
        model: &str,
        refused: &[OptionalParameter],
    ) -> Result<egress::Response, egress::Error> {
        let body = request_body(request, model, self.config.options, refused).to_string();
        let http_request = self
            .build_request(egress::Method::POST, "messages")?
            .header("accept", "text/event-stream")?;
        self.client.send(http_request.json(body).timeout(None).limit(MAX_RESPONSE_BYTES)).await
    }

    fn build_request(
        &self,
        method: egress::Method,
        path: &str,
    ) -> Result<egress::Request, egress::Error> {
        let url = endpoint(&self.config.url, path)
            .ok_or_else(|| egress::Error::Invalid("llm.url is not a URL".into()))?;
        let request =
            egress::Request::new(method, url.as_str())?.header("anthropic-version", VERSION)?;
        match self.config.token.as_deref().map(str::trim) {
            Some(token) if !token.is_empty() => request.header("x-api-key", token),
            _ => Ok(request),
        }
    }

    /// A server's message without the secrets of this client.
    fn redact(&self, words: &str) -> String {
        redact(words, &self.config.url, self.config.token.as_deref())
    }
}

/// The URL of an endpoint of the server at `base`.
fn endpoint(base: &str, path: &str) -> Option<Url> {
    let mut url = Url::parse(base.trim()).ok()?;
    match url.scheme() {
        "ws" => url.set_scheme("http").ok()?,
        "wss" => url.set_scheme("https").ok()?,
        _ => {}
    }
    if url.cannot_be_a_base() {
        return None;
    }
    let mut prefix = url.path().trim_end_matches('/');
    for end in ["/messages", "/v1"] {
        prefix = prefix.strip_suffix(end).unwrap_or(prefix).trim_end_matches('/');
    }
    let whole = format!("{prefix}/v1/{path}");
    url.set_path(&whole);
    Some(url)
}

async fn read_failure(response: egress::Response) -> Failure {
    let status = response.status();
    let header = |name: &str| response.header(name).map(str::to_owned);
    let mut failure = Failure::of_status(status)
        .with_headers(header("retry-after-ms"), header("retry-after"), header("x-should-retry"))
        .with_request_id(header("request-id"));
    if let Ok(body) = response.limit(MAX_ERROR_BODY_BYTES).body().await {
        failure = failure.with_body(&body.text());
    }
    failure
}

#[cfg(test)]
mod tests;
