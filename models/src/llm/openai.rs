//! Any server that speaks OpenAI's chat completions: `POST {url}/chat/completions`, streaming.

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
use crate::{Error, Handle, Kind, Sink, net};

/// Where the server is and what to ask it for.
#[derive(Clone)]
pub struct Config {
    /// Base that ends in `/v1`. May carry a query (API versions).
    pub url: String,
    /// Bearer token. Secret.
    pub token: Option<String>,
    /// Asked where the question names no model; empty = none is named to the server.
    pub model: String,
    /// How long is waited for what.
    pub times: Times,
}

/// How long is waited before an answer counts as failed.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From the question to the first token.
    pub first_token: Duration,
    /// Between tokens.
    pub gap: Duration,
    /// For the count of tokens, after the answer's end.
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

/// Bytes of a whole answer.
const LIMIT: usize = 16 << 20;

/// Bytes of an error's body.
const ERROR_LIMIT: usize = 16 << 10;

/// Longest wait for a moderation.
const MODERATION: Duration = Duration::from_secs(5);

/// Characters of a server's words in a reason.
const WORDS: usize = 240;

/// A client of one server.
pub struct OpenAi {
    server: Arc<Server>,
    runtime: tokio::runtime::Handle,
}

struct Server {
    config: Config,
    client: net::Client,
    /// It takes `stream_options`, as far as we know.
    usage: AtomicBool,
}

impl OpenAi {
    /// A client of the server at `config.url` through `client`, working on `runtime`.
    #[must_use]
    pub fn new(config: Config, client: net::Client, runtime: tokio::runtime::Handle) -> Self {
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
            // Any answer will do: what stays is the open connection.
            if let Ok(request) = server.request(net::Method::GET, "models") {
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
                let body =
                    timeout_at(deadline, response.limit(net::LIMIT).body()).await.map_err(|_| late())??;
                whole(answer, &body.text(), sink)
            } else {
                let chunks = stream::unfold(response, |mut response| async move {
                    response.chunk().await.transpose().map(|chunk| (chunk, response))
                });
                read(std::pin::pin!(chunks), answer, self.config.times, deadline, sink).await
            };
        result.map_err(|error| Error::new(error.kind(), self.clean(&error.to_string())))
    }

    /// Sends the question until it is taken: without what the server refused, and once more where a kept connection turned out dead.
    async fn asked(&self, request: &Request) -> Result<net::Response, Error> {
        let mut again = true;
        loop {
            let usage = self.usage.load(Ordering::Relaxed);
            let response = match self.sent(request, usage).await {
                Err(net::Error::Broken(_)) if again => {
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

    async fn sent(&self, request: &Request, usage: bool) -> Result<net::Response, net::Error> {
        let model = if request.model.is_empty() { &self.config.model } else { &request.model };
        let body = body(request, model, usage).to_string();
        let asked =
            self.request(net::Method::POST, "chat/completions")?.header("accept", "text/event-stream")?;
        self.client.send(asked.json(body).timeout(None).limit(LIMIT)).await
    }

    fn request(&self, method: net::Method, path: &str) -> Result<net::Request, net::Error> {
        let mut url = Url::parse(self.config.url.trim())
            .map_err(|_| net::Error::Invalid("llm.url is no URL".into()))?;
        let base = url.path().trim_end_matches('/').trim_end_matches("/chat/completions").to_owned();
        url.set_path(&format!("{base}/{path}"));
        let request = net::Request::new(method, url.as_str())?;
        match self.config.token.as_deref().map(str::trim) {
            Some(token) if !token.is_empty() => request.bearer(token),
            _ => Ok(request),
        }
    }

    async fn moderated(&self, text: &str) -> Result<Value, Error> {
        let body = json!({ "input": text }).to_string();
        let asked = self.request(net::Method::POST, "moderations")?.json(body).timeout(Some(MODERATION));
        let response = self.client.send(asked.limit(net::LIMIT)).await?;
        if !response.success() {
            return Err(self.refused(response).await);
        }
        let text = response.body().await?.text();
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| json!({ "raw": text })))
    }

    async fn refused(&self, response: net::Response) -> Error {
        let status = response.status();
        let text = response.limit(ERROR_LIMIT).body().await.map(|body| body.text()).unwrap_or_default();
        let words = serde_json::from_str::<Value>(&text).map_or(text, |body| words_of(&body));
        Error::new(status_kind(status), self.clean(&format!("the server answered {status}: {words}")))
    }

    /// A server's words on one line, cut, without our secrets: some repeat the key, or a part of it.
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

/// Reads a stream to its end, telling words as they come.
async fn read<S>(
    mut chunks: S,
    mut answer: Answer,
    times: Times,
    mut deadline: Instant,
    sink: &Sink<Event>,
) -> Result<(), Error>
where
    S: Stream<Item = Result<Bytes, net::Error>> + Unpin,
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
            // All that matters has come: the count of tokens is not worth more waiting, nor a broken connection a failure.
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
            // The bytes that end the body mostly came along: read to them, the connection can be used again.
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

/// An answer that came in one piece.
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
