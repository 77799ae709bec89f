//! Client of any server with OpenAI's chat completions: `POST {url}/chat/completions`, streaming.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use url::Url;

use super::guardrails::{self, GuardrailCheck, GuardrailFuture};
use super::sse::SseDecoder;
use super::wire::{AnswerParser, error_message, request_body, status_kind};
use super::{Event, Llm, ModerationFuture, Request};
use crate::redaction::redact;
use crate::{Error, ErrorKind, Handle, Sink};

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

/// Time limits after which a request fails.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the request to the first token.
    pub first_token: Duration,
    /// Between tokens.
    pub between_tokens: Duration,
    /// For the token counts, after the end of the reply.
    pub usage: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_token: Duration::from_secs(5),
            between_tokens: Duration::from_secs(5),
            usage: Duration::from_millis(250),
        }
    }
}

/// Maximum size of a whole response in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Maximum size of an error's body in bytes.
const MAX_ERROR_BODY_BYTES: usize = 16 << 10;

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
        let answer = AnswerParser::new(&request.tools);
        let result = if response
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("application/json"))
        {
            let body = timeout_at(deadline, response.limit(egress::DEFAULT_BODY_LIMIT).body())
                .await
                .map_err(|_| timeout_error())??;
            read_whole(answer, &body.text(), sink)
        } else {
            let chunks = stream::unfold(response, |mut response| async move {
                response.chunk().await.transpose().map(|chunk| (chunk, response))
            });
            read_stream(std::pin::pin!(chunks), answer, self.config.timeouts, deadline, sink).await
        };
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

    /// A server's message on one line, truncated, without our secrets: some servers repeat the key
    /// or a part of it.
    fn redact(&self, words: &str) -> String {
        let url = Url::parse(&self.config.url).ok();
        let mut secrets: Vec<String> =
            self.config.token.iter().map(|token| token.trim().to_owned()).collect();
        if let Some(url) = &url {
            secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
            secrets.extend(url.query().map(str::to_owned));
            secrets.extend(url.password().map(str::to_owned));
        }
        redact(words, &secrets)
    }
}

fn timeout_error() -> Error {
    Error::new(ErrorKind::Timeout, "timeout")
}

/// Reads a stream to its end and emits text as it arrives.
async fn read_stream<S>(
    mut chunks: S,
    mut answer: AnswerParser,
    times: Timeouts,
    mut deadline: Instant,
    sink: &Sink<Event>,
) -> Result<(), Error>
where
    S: Stream<Item = Result<Bytes, egress::Error>> + Unpin,
{
    let mut decoder = SseDecoder::default();
    let mut ended = false;
    loop {
        let mut events: Vec<String> = Vec::new();
        let mut at_end = false;
        match timeout_at(deadline, chunks.next()).await {
            Ok(Some(Ok(chunk))) => {
                let too_long =
                    |_| Error::new(ErrorKind::Failed, "the server sent an oversized event");
                decoder.push(&chunk, |data| events.push(data.to_owned())).map_err(too_long)?;
            }
            // The reply is complete. Neither a wait for the token counts nor a broken connection is
            // a failure.
            Err(_) | Ok(Some(Err(_))) if answer.is_finished() => at_end = true,
            Err(_) => return Err(timeout_error()),
            Ok(Some(Err(error))) => return Err(error.into()),
            Ok(None) => {
                decoder.finish(|data| events.push(data.to_owned()));
                at_end = true;
            }
        }
        for event_data in events {
            let delta = answer.push(&event_data)?;
            if delta.progressed {
                deadline = Instant::now() + times.between_tokens;
            }
            if !delta.text.is_empty() {
                sink.send(Event::Text(delta.text));
            }
        }
        if answer.is_finished() && !ended {
            ended = true;
            deadline = Instant::now() + times.usage;
        }
        if answer.is_closed() && !at_end {
            // The bytes that end the body usually arrive with the last event. If they are read, the
            // connection can be reused.
            let rest = async { while let Some(Ok(_)) = chunks.next().await {} };
            at_end = true;
            drop(timeout_at(Instant::now() + Duration::from_millis(5), rest).await);
        }
        if at_end {
            break;
        }
    }
    finish_answer(answer, sink)
}

/// Reads a response that is not a stream.
fn read_whole(mut answer: AnswerParser, text: &str, sink: &Sink<Event>) -> Result<(), Error> {
    let delta = answer.push(text)?;
    if !delta.text.is_empty() {
        sink.send(Event::Text(delta.text));
    }
    finish_answer(answer, sink)
}

fn finish_answer(answer: AnswerParser, sink: &Sink<Event>) -> Result<(), Error> {
    for event in answer.finish()? {
        sink.send(event);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
