//! Client of any server with OpenAI's chat completions: `POST {url}/chat/completions`, streaming.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use url::Url;

use super::guardrails::{self, GuardrailCheck, GuardrailFuture};
use super::server_message::{MAX_ERROR_BODY_BYTES, error_message, redact};
use super::stream::{MAX_RESPONSE_BYTES, read_response, timeout_error};
use super::wire::{AnswerParser, request_body, status_kind};
use super::{Event, Llm, ModerationFuture, Request, Timeouts};
use crate::{Error, Handle, Sink};

/// Server and model.
#[derive(Clone)]
pub struct Config {
    /// Base URL that ends in `/v1`. May have a query (API versions).
    pub url: String,
    /// Bearer token. Secret.
    pub token: Option<String>,
    /// Model for requests that name none; empty = the server gets no model name.
    pub model: String,
    /// Time limits.
    pub timeouts: Timeouts,
}

/// Timeout of a moderation request.
const MODERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of one server.
pub struct OpenAi {
    server: Arc<Server>,
    runtime: tokio::runtime::Handle,
}

struct Server {
    config: Config,
    client: egress::Client,
    /// Whether the server accepts `stream_options`, as far as known.
    supports_usage: AtomicBool,
}

impl OpenAi {
    /// A client of the server at `config.url` that sends through `client` and runs on `runtime`.
    #[must_use]
    pub fn new(config: Config, client: egress::Client, runtime: tokio::runtime::Handle) -> Self {
        Self {
            server: Arc::new(Server { config, client, supports_usage: AtomicBool::new(true) }),
            runtime,
        }
    }
}

impl Llm for OpenAi {
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
        Box::pin(async move { server.moderate(&text).await })
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
        let response = timeout_at(deadline, self.send_until_accepted(request))
            .await
            .map_err(|_| timeout_error())??;
        let parser = AnswerParser::new(&request.tools);
        let result = read_response(response, parser, self.config.timeouts, deadline, sink).await;
        result.map_err(|error| Error::new(error.kind(), self.redact(&error.to_string())))
    }

    /// Sends the request until the server accepts it. It is repeated without `stream_options` if
    /// the server rejects these, and once if a pooled connection turns out to be closed.
    async fn send_until_accepted(&self, request: &Request) -> Result<egress::Response, Error> {
        let mut again = true;
        loop {
            let usage = self.supports_usage.load(Ordering::Relaxed);
            let response = match self.send_request(request, usage).await {
                Err(egress::Error::Connection(_)) if again => {
                    again = false;
                    continue;
                }
                sent => sent.map_err(|error| {
                    Error::new(Error::from(error.clone()).kind(), self.redact(&error.to_string()))
                })?,
            };
            match response.status() {
                200..=299 => return Ok(response),
                400 | 422 if usage => match self.send_request(request, false).await? {
                    response if response.is_success() => {
                        self.supports_usage.store(false, Ordering::Relaxed);
                        return Ok(response);
                    }
                    response => return Err(self.response_error(response).await),
                },
                _ => return Err(self.response_error(response).await),
            }
        }
    }

    async fn send_request(
        &self,
        request: &Request,
        usage: bool,
    ) -> Result<egress::Response, egress::Error> {
        let model = if request.model.is_empty() { &self.config.model } else { &request.model };
        let body = request_body(request, model, usage).to_string();
        let http_request = self
            .build_request(egress::Method::POST, "chat/completions")?
            .header("accept", "text/event-stream")?;
        self.client.send(http_request.json(body).timeout(None).limit(MAX_RESPONSE_BYTES)).await
    }

    fn build_request(
        &self,
        method: egress::Method,
        path: &str,
    ) -> Result<egress::Request, egress::Error> {
        let mut url = Url::parse(self.config.url.trim())
            .map_err(|_| egress::Error::Invalid("llm.url is not a URL".into()))?;
        let base =
            url.path().trim_end_matches('/').trim_end_matches("/chat/completions").to_owned();
        url.set_path(&format!("{base}/{path}"));
        let request = egress::Request::new(method, url.as_str())?;
        match self.config.token.as_deref().map(str::trim) {
            Some(token) if !token.is_empty() => request.bearer(token),
            _ => Ok(request),
        }
    }

    async fn moderate(&self, text: &str) -> Result<Value, Error> {
        let body = json!({ "input": text }).to_string();
        let http_request = self
            .build_request(egress::Method::POST, "moderations")?
            .json(body)
            .timeout(Some(MODERATION_TIMEOUT));
        let response = self.client.send(http_request.limit(egress::DEFAULT_BODY_LIMIT)).await?;
        if !response.is_success() {
            return Err(self.response_error(response).await);
        }
        let text = response.body().await?.text();
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| json!({ "raw": text })))
    }

    async fn response_error(&self, response: egress::Response) -> Error {
        let status = response.status();
        let text = response
            .limit(MAX_ERROR_BODY_BYTES)
            .body()
            .await
            .map(|body| body.text())
            .unwrap_or_default();
        let words = serde_json::from_str::<Value>(&text).map_or(text, |body| error_message(&body));
        Error::new(
            status_kind(status),
            self.redact(&format!("the server returned {status}: {words}")),
        )
    }

    fn redact(&self, words: &str) -> String {
        redact(words, &self.config.url, self.config.token.as_deref())
    }
}

#[cfg(test)]
mod tests;
