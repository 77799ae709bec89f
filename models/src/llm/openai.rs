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

use super::check::{self, Check, Checking};
use super::sse::Decoder;
use super::wire::{Answer, body, status_kind, words_of};
use super::{Event, Llm, Moderating, Request};
use crate::{Error, Handle, Kind, Sink};

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
    pub times: Times,
}

/// Time limits after which a request fails.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From the request to the first token.
    pub first_token: Duration,
    /// Between tokens.
    pub gap: Duration,
    /// For the token counts, after the end of the reply.
    pub usage: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            first_token: Duration::from_secs(5),
            gap: Duration::from_secs(5),
            usage: Duration::from_millis(250),
        }
    }
}

/// Maximum size of a whole response in bytes.
const LIMIT: usize = 16 << 20;

/// Maximum size of an error's body in bytes.
const ERROR_LIMIT: usize = 16 << 10;

/// Timeout of a moderation request.
const MODERATION: Duration = Duration::from_secs(5);

/// Maximum number of characters of a server's message in an error.
const WORDS: usize = 240;

/// A client of one server.
pub struct OpenAi {
    server: Arc<Server>,
    runtime: tokio::runtime::Handle,
}

struct Server {
    config: Config,
    client: egress::Client,
    /// Whether the server accepts `stream_options`, as far as known.
    usage: AtomicBool,
}

impl OpenAi {
    /// A client of the server at `config.url` that sends through `client` and runs on `runtime`.
    #[must_use]
    pub fn new(config: Config, client: egress::Client, runtime: tokio::runtime::Handle) -> Self {
        Self { server: Arc::new(Server { config, client, usage: AtomicBool::new(true) }), runtime }
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

    fn check(&self, check: Check) -> Checking {
        check::by_asking(self, check)
    }

    fn moderate(&self, text: String) -> Moderating {
        let server = Arc::clone(&self.server);
        Box::pin(async move { server.moderated(&text).await })
    }

    fn warm(&self) {
        let server = Arc::clone(&self.server);
        self.runtime.spawn(async move {
            // Any response is sufficient: only the open connection matters.
            if let Ok(request) = server.request(egress::Method::GET, "models") {
                let request = request.timeout(Some(server.config.times.first_token));
                if let Ok(response) = server.client.send(request).await {
                    drop(response.body().await);
                }
            }
        });
    }
}

impl Server {
    async fn answer(&self, request: &Request, sink: &Sink<Event>) -> Result<(), Error> {
        let deadline = Instant::now() + self.config.times.first_token;
        let response = timeout_at(deadline, self.asked(request)).await.map_err(|_| late())??;
        let answer = Answer::new(&request.tools);
        let result =
            if response.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
                let body = timeout_at(deadline, response.limit(egress::LIMIT).body())
                    .await
                    .map_err(|_| late())??;
                whole(answer, &body.text(), sink)
            } else {
                let chunks = stream::unfold(response, |mut response| async move {
                    response.chunk().await.transpose().map(|chunk| (chunk, response))
                });
                read(std::pin::pin!(chunks), answer, self.config.times, deadline, sink).await
            };
        result.map_err(|error| Error::new(error.kind(), self.clean(&error.to_string())))
    }

    /// Sends the request until the server accepts it. It is repeated without `stream_options` if
    /// the server rejects these, and once if a pooled connection turns out to be closed.
    async fn asked(&self, request: &Request) -> Result<egress::Response, Error> {
        let mut again = true;
        loop {
            let usage = self.usage.load(Ordering::Relaxed);
            let response = match self.sent(request, usage).await {
                Err(egress::Error::Broken(_)) if again => {
                    again = false;
                    continue;
                }
                sent => sent.map_err(|error| {
                    Error::new(Error::from(error.clone()).kind(), self.clean(&error.to_string()))
                })?,
            };
            match response.status() {
                200..=299 => return Ok(response),
                400 | 422 if usage => match self.sent(request, false).await? {
                    response if response.success() => {
                        self.usage.store(false, Ordering::Relaxed);
                        return Ok(response);
                    }
                    response => return Err(self.refused(response).await),
                },
                _ => return Err(self.refused(response).await),
            }
        }
    }

    async fn sent(&self, request: &Request, usage: bool) -> Result<egress::Response, egress::Error> {
        let model = if request.model.is_empty() { &self.config.model } else { &request.model };
        let body = body(request, model, usage).to_string();
        let asked =
            self.request(egress::Method::POST, "chat/completions")?.header("accept", "text/event-stream")?;
        self.client.send(asked.json(body).timeout(None).limit(LIMIT)).await
    }

    fn request(&self, method: egress::Method, path: &str) -> Result<egress::Request, egress::Error> {
        let mut url = Url::parse(self.config.url.trim())
            .map_err(|_| egress::Error::Invalid("llm.url is no URL".into()))?;
        let base = url.path().trim_end_matches('/').trim_end_matches("/chat/completions").to_owned();
        url.set_path(&format!("{base}/{path}"));
        let request = egress::Request::new(method, url.as_str())?;
        match self.config.token.as_deref().map(str::trim) {
            Some(token) if !token.is_empty() => request.bearer(token),
            _ => Ok(request),
        }
    }

    async fn moderated(&self, text: &str) -> Result<Value, Error> {
        let body = json!({ "input": text }).to_string();
        let asked = self.request(egress::Method::POST, "moderations")?.json(body).timeout(Some(MODERATION));
        let response = self.client.send(asked.limit(egress::LIMIT)).await?;
        if !response.success() {
            return Err(self.refused(response).await);
        }
        let text = response.body().await?.text();
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| json!({ "raw": text })))
    }

    async fn refused(&self, response: egress::Response) -> Error {
        let status = response.status();
        let text = response.limit(ERROR_LIMIT).body().await.map(|body| body.text()).unwrap_or_default();
        let words = serde_json::from_str::<Value>(&text).map_or(text, |body| words_of(&body));
        Error::new(status_kind(status), self.clean(&format!("the server answered {status}: {words}")))
    }

    /// A server's message on one line, truncated, without our secrets: some servers repeat the key
    /// or a part of it.
    fn clean(&self, words: &str) -> String {
        let url = Url::parse(&self.config.url).ok();
        let mut secrets: Vec<String> =
            self.config.token.iter().map(|token| token.trim().to_owned()).collect();
        if let Some(url) = &url {
            secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
            secrets.extend(url.query().map(str::to_owned));
            secrets.extend(url.password().map(str::to_owned));
        }
        let secret = |word: &str| {
            word.starts_with("sk-")
                || word.contains("***")
                || secrets.iter().any(|secret| {
                    let start: String = secret.chars().take(6).collect();
                    secret.len() >= 4
                        && (word.contains(secret.as_str()) || (start.len() >= 6 && word.contains(&start)))
                })
        };
        let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        let words = words
            .split_whitespace()
            .map(|word| if secret(word) || secret(&bare(word)) { "***" } else { word });
        words.collect::<Vec<_>>().join(" ").chars().take(WORDS).collect()
    }
}

fn late() -> Error {
    Error::new(Kind::Timeout, "timeout")
}

/// Reads a stream to its end and emits text as it arrives.
async fn read<S>(
    mut chunks: S,
    mut answer: Answer,
    times: Times,
    mut deadline: Instant,
    sink: &Sink<Event>,
) -> Result<(), Error>
where
    S: Stream<Item = Result<Bytes, egress::Error>> + Unpin,
{
    let mut decoder = Decoder::default();
    let mut ended = false;
    loop {
        let mut pieces: Vec<String> = Vec::new();
        let mut over = false;
        match timeout_at(deadline, chunks.next()).await {
            Ok(Some(Ok(chunk))) => {
                let too_long = |_| Error::new(Kind::Broken, "the server sent an endless event");
                decoder.push(&chunk, |data| pieces.push(data.to_owned())).map_err(too_long)?;
            }
            // The reply is complete. Neither a wait for the token counts nor a broken connection is
            // a failure.
            Err(_) | Ok(Some(Err(_))) if answer.ended() => over = true,
            Err(_) => return Err(late()),
            Ok(Some(Err(error))) => return Err(error.into()),
            Ok(None) => {
                decoder.finish(|data| pieces.push(data.to_owned()));
                over = true;
            }
        }
        for piece in pieces {
            let news = answer.take(&piece)?;
            if news.token {
                deadline = Instant::now() + times.gap;
            }
            if !news.text.is_empty() {
                sink.send(Event::Text(news.text));
            }
        }
        if answer.ended() && !ended {
            ended = true;
            deadline = Instant::now() + times.usage;
        }
        if answer.done() && !over {
            // The bytes that end the body usually arrive with the last event. If they are read, the
            // connection can be reused.
            let rest = async { while let Some(Ok(_)) = chunks.next().await {} };
            over = true;
            drop(timeout_at(Instant::now() + Duration::from_millis(5), rest).await);
        }
        if over {
            break;
        }
    }
    told(answer, sink)
}

/// Reads a response that is not a stream.
fn whole(mut answer: Answer, text: &str, sink: &Sink<Event>) -> Result<(), Error> {
    let news = answer.take(text)?;
    if !news.text.is_empty() {
        sink.send(Event::Text(news.text));
    }
    told(answer, sink)
}

fn told(answer: Answer, sink: &Sink<Event>) -> Result<(), Error> {
    for event in answer.finish()? {
        sink.send(event);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
