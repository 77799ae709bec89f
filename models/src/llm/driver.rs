//! Asks a server in any protocol: sends the request until the server accepts it, reads the reply,
//! and opens the connection before the first request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use url::Url;

use super::failure::{Failure, MAX_MODEL_CHARS};
use super::guardrails::{self, GuardrailCheck, GuardrailFuture};
use super::server_message::{MAX_ERROR_BODY_BYTES, redact};
use super::stream::{MAX_RESPONSE_BYTES, Repetition, StreamParser, late_start, read_response};
use super::{Event, Llm, ModerationFuture, Request, Timeouts};
use crate::hosted::phrases::capitalized;
use crate::{Error, ErrorKind, Handle, Sink};

/// Name in [`Protocol::body`]'s `omitted` that stands for the tools of the request.
pub(super) const TOOLS: &str = "tools";

/// Longest wait before a request is repeated. A longer one does not help the turn.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// Timeout of a moderation request.
const MODERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a request that makes a local server load its model.
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of models whose refused parameters are remembered.
const MAX_REMEMBERED_MODELS: usize = 64;

/// Server and model.
#[derive(Clone)]
pub struct Config {
    /// Base URL of the server, see the protocol. May have a query (API versions), and `ws` and
    /// `wss` stand for `http` and `https`.
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Model for requests that name none.
    pub model: String,
    /// Time limits.
    pub timeouts: Timeouts,
}

/// Optional parameters that models refused. Clones share their content.
#[derive(Clone, Default)]
pub struct RefusedParameters(Arc<Mutex<HashMap<String, Vec<&'static str>>>>);

impl RefusedParameters {
    fn of_model(&self, key: &str) -> Vec<&'static str> {
        let models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.get(key).cloned().unwrap_or_default()
    }

    fn remember(&self, key: &str, parameter: &'static str) {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if models.len() < MAX_REMEMBERED_MODELS || models.contains_key(key) {
            let refused = models.entry(key.to_owned()).or_default();
            if !refused.contains(&parameter) {
                refused.push(parameter);
            }
        }
    }
}

/// What distinguishes one protocol, with the options of an agent. Pure.
pub trait Protocol: Send + Sync + 'static {
    /// Name of the vendor in errors.
    fn vendor(&self) -> &'static str;

    /// Parameters that some models refuse, and without which a request works too. A refusal
    /// contains the name.
    fn optional_parameters(&self) -> &[&'static str];

    /// The URL of requests to `model` on the server at `base`; `None` if `base` is not a URL.
    fn url(&self, base: &str, model: &str) -> Option<Url>;

    /// Adds the headers of the protocol and the key.
    ///
    /// # Errors
    /// The key cannot be a header's value.
    fn authorize(
        &self,
        request: egress::Request,
        key: Option<&str>,
    ) -> Result<egress::Request, egress::Error>;

    /// The body of a request without the parameters in `omitted`, which may contain [`TOOLS`].
    fn body(&self, request: &Request, model: &str, omitted: &[&'static str]) -> Value;

    /// A parser of the reply of `model`.
    fn parser(&self, request: &Request, model: &str) -> Box<dyn StreamParser>;

    /// The request that opens the connection.
    fn warm_up(&self, base: &str, model: &str) -> Option<WarmUp>;

    /// The URL of the moderation endpoint, if there is one.
    fn moderation_url(&self, base: &str) -> Option<Url> {
        let _ = base;
        None
    }
}

/// A request whose response does not matter.
#[derive(Debug, PartialEq)]
pub enum WarmUp {
    /// A `GET`, which opens the connection.
    Connect(Url),
    /// A `POST` with this body, which makes a local server load its model.
    Load(Url, Value),
}

/// A client of one server.
pub struct Driver<P> {
    server: Arc<Server<P>>,
    runtime: tokio::runtime::Handle,
}

struct Server<P> {
    protocol: P,
    config: Config,
    client: egress::Client,
    refused: RefusedParameters,
    /// Whether a warning says that the model has no tools.
    has_warned: AtomicBool,
}

impl<P: Protocol> Driver<P> {
    /// A client of the server at `config.url` that sends through `client` and runs on `runtime`.
    /// It adds to `refused`, which outlives it.
    pub(super) fn of(
        protocol: P,
        config: Config,
        client: egress::Client,
        refused: RefusedParameters,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        Self {
            server: Arc::new(Server {
                protocol,
                config,
                client,
                refused,
                has_warned: AtomicBool::new(false),
            }),
            runtime,
        }
    }
}

impl<P: Protocol> Llm for Driver<P> {
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

    fn moderate(&self, text: String) -> ModerationFuture {
        let server = Arc::clone(&self.server);
        Box::pin(async move {
            let result = server.moderate(&text).await;
            result.map_err(|error| server.redact(&error))
        })
    }

    fn warm_up(&self) {
        let server = Arc::clone(&self.server);
        self.runtime.spawn(async move { server.warm_up().await });
    }
}

impl<P: Protocol> Server<P> {
    async fn answer(&self, request: &Request, sink: &Sink<Event>) -> Result<(), Error> {
        let deadline = Instant::now() + self.config.timeouts.first_token;
        let model = if request.model.is_empty() { &self.config.model } else { &request.model };
        let mut attempts = Attempts {
            refused_key: format!("{}\n{model}", self.config.url),
            omitted: Vec::new(),
            again: true,
        };
        attempts.omitted = self.refused.of_model(&attempts.refused_key);
        if needs_tools(request) {
            attempts.omitted.retain(|parameter| *parameter != TOOLS);
        } else if attempts.omitted.contains(&TOOLS) {
            self.warn_without_tools(request, model, sink);
        }
        let result = loop {
            let accepted = self.send_until_accepted(request, model, &mut attempts, sink);
            let response = match timeout_at(deadline, accepted).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => break Err(error),
                Err(_) => break Err(late_start()),
            };
            let mut parser = self.protocol.parser(request, model);
            let timeouts = self.config.timeouts;
            let result = read_response(response, &mut *parser, timeouts, deadline, sink).await;
            match parser.repetition().filter(|_| result.is_err() && attempts.again) {
                Some(repetition) => {
                    attempts.again = false;
                    if repetition == Repetition::WithoutTools {
                        attempts.omitted.push(TOOLS);
                    }
                }
                None => break result,
            }
        };
        result.map_err(|error| self.redact(&self.name_vendor(error)))
    }

    /// Tells once per call that the agent has no tools.
    fn warn_without_tools(&self, request: &Request, model: &str, sink: &Sink<Event>) {
        if !request.tools.is_empty() && !self.has_warned.swap(true, Ordering::Relaxed) {
            let vendor = capitalized(self.protocol.vendor());
            let model: String = model.chars().take(MAX_MODEL_CHARS).collect();
            sink.send(Event::Warning(format!(
                "{vendor} has no tools for the model {model:?}; the agent answers without them."
            )));
        }
    }

    /// The error with the vendor's name, which those of the connection lack.
    fn name_vendor(&self, error: Error) -> Error {
        let (vendor, words) = (self.protocol.vendor(), error.to_string());
        if words.contains(vendor) {
            return error;
        }
        Error::new(error.kind(), format!("{vendor}: {words}"))
    }

    /// Sends the request until the server accepts it. It is repeated without the optional
    /// parameters that the model refuses, and once after a failure that a repetition may avoid.
    async fn send_until_accepted(
        &self,
        request: &Request,
        model: &str,
        attempts: &mut Attempts,
        sink: &Sink<Event>,
    ) -> Result<egress::Response, Error> {
        loop {
            let body = self.protocol.body(request, model, &attempts.omitted).to_string();
            let response = match self.send_request(&body, model).await {
                Err(egress::Error::Connection(_)) if attempts.again => {
                    attempts.again = false;
                    continue;
                }
                Err(egress::Error::Timeout) => return Err(late_start()),
                Err(egress::Error::ForbiddenAddress) => {
                    let vendor = self.protocol.vendor();
                    return Err(Error::new(
                        ErrorKind::Rejected,
                        format!(
                            "The address of {vendor} is private, which this server does not allow"
                        ),
                    ));
                }
                sent => sent?,
            };
            if response.is_success() {
                return Ok(response);
            }
            let failure = self.read_failure(response).await;
            let optional = self.protocol.optional_parameters();
            let refused = failure.refused_parameter(optional, &attempts.omitted, &body);
            let has_tools = !request.tools.is_empty() && !attempts.omitted.contains(&TOOLS);
            let refuses_tools = has_tools && !needs_tools(request) && failure.refuses_tools();
            if refused.is_none() && refuses_tools {
                self.warn_without_tools(request, model, sink);
            }
            if let Some(parameter) = refused.or(refuses_tools.then_some(TOOLS)) {
                attempts.omitted.push(parameter);
                self.refused.remember(&attempts.refused_key, parameter);
            } else if has_tools && failure.is_wrong_tool_call() {
                attempts.omitted.push(TOOLS);
            } else if let Some(wait) =
                failure.retry_wait().filter(|wait| attempts.again && *wait <= MAX_RETRY_WAIT)
            {
                attempts.again = false;
                tokio::time::sleep(wait).await;
            } else {
                failure.log();
                return Err(failure.into_error(model));
            }
        }
    }

    async fn send_request(
        &self,
        body: &str,
        model: &str,
    ) -> Result<egress::Response, egress::Error> {
        let url = self.protocol.url(&self.config.url, model);
        let http_request = self
            .build_request(egress::Method::POST, url)?
            .header("accept", "text/event-stream")?
            .json(body.to_owned());
        self.client.send(http_request.timeout(None).limit(MAX_RESPONSE_BYTES)).await
    }

    fn build_request(
        &self,
        method: egress::Method,
        url: Option<Url>,
    ) -> Result<egress::Request, egress::Error> {
        let url = url.ok_or_else(|| egress::Error::Invalid("llm.url is not a URL".into()))?;
        self.protocol.authorize(egress::Request::new(method, url.as_str())?, self.key())
    }

    fn key(&self) -> Option<&str> {
        self.config.token.as_deref().map(str::trim).filter(|key| !key.is_empty())
    }

    async fn read_failure(&self, response: egress::Response) -> Failure {
        let header = |name: &str| response.header(name).map(str::to_owned);
        let id = header("request-id").or_else(|| header("x-request-id"));
        let failure = Failure::of_status(self.protocol.vendor(), response.status())
            .with_key(self.key().is_some())
            .with_headers(header("retry-after-ms"), header("retry-after"), header("x-should-retry"))
            .with_request_id(id);
        let failure = match response.limit(MAX_ERROR_BODY_BYTES).body().await {
            Ok(body) => failure.with_body(&body.text()),
            Err(_) => failure,
        };
        failure.with_redacted_id(|words| self.redact_words(words))
    }

    async fn warm_up(&self) {
        let Some(warm_up) = self.protocol.warm_up(&self.config.url, &self.config.model) else {
            return;
        };
        let request = match warm_up {
            WarmUp::Connect(url) => self
                .build_request(egress::Method::GET, Some(url))
                .map(|request| request.timeout(Some(self.config.timeouts.first_token))),
            WarmUp::Load(url, body) => self
                .build_request(egress::Method::POST, Some(url))
                .map(|request| request.json(body.to_string()).timeout(Some(LOAD_TIMEOUT))),
        };
        // Any response is sufficient: only the open connection, or the loaded model, matters.
        if let Ok(request) = request
            && let Ok(response) = self.client.send(request).await
        {
            drop(response.body().await);
        }
    }

    async fn moderate(&self, text: &str) -> Result<Value, Error> {
        let Some(url) = self.protocol.moderation_url(&self.config.url) else {
            return Err(Error::new(ErrorKind::NotAvailable, "there is no moderation endpoint"));
        };
        let http_request = self
            .build_request(egress::Method::POST, Some(url))?
            .json(json!({ "input": text }).to_string())
            .timeout(Some(MODERATION_TIMEOUT));
        let response = self.client.send(http_request.limit(egress::DEFAULT_BODY_LIMIT)).await?;
        if !response.is_success() {
            return Err(self.read_failure(response).await.into_error(""));
        }
        let text = response.body().await?.text();
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| json!({ "raw": text })))
    }

    /// The error without the secrets of this client.
    fn redact(&self, error: &Error) -> Error {
        Error::new(error.kind(), self.redact_words(&error.to_string()))
    }

    fn redact_words(&self, words: &str) -> String {
        let (url, token) = (&self.config.url, self.config.token.as_deref());
        redact(words, url, token, self.protocol.vendor())
    }
}

/// Whether an answer without tools means something else: each tool is a rule of a guardrail.
fn needs_tools(request: &Request) -> bool {
    request.tools.iter().any(|tool| tool.rule.is_some())
}

/// What the attempts of one request have learned.
struct Attempts {
    /// Server and model, under which refused parameters are remembered.
    refused_key: String,
    omitted: Vec<&'static str>,
    /// Whether the request may be repeated after a failure.
    again: bool,
}
