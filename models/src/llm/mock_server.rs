//! A server on loopback for the tests of the clients, and the reply that a client reads from it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use conversation::event::{HistoryItem, Role, Snippet};
use serde_json::Value;
use tokio::sync::mpsc;

use super::sse::SseDecoder;
use super::stream::StreamParser;
use super::{Event, Llm, Request, Timeouts, Tool};
pub(super) use crate::hosted::loopback::client as loopback;
use crate::{Error, ErrorKind, Sink};

/// The reply to a request.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) calls: Vec<String>,
    /// Tokens of the prompt and of the reply.
    pub(super) end: Option<(u32, u32)>,
    pub(super) failed: Option<(ErrorKind, String)>,
    pub(super) warnings: Vec<String>,
}

/// A request with the question "Hi".
pub(super) fn question() -> Request {
    with_history(vec![user("Hi")])
}

pub(super) fn with_history(history: Vec<HistoryItem>) -> Request {
    Request {
        prompt: "Be kind.".into(),
        history: history.into_iter().map(Arc::new).collect(),
        snippets: Vec::new(),
        tools: Vec::new(),
        model: String::new(),
    }
}

pub(super) fn item(role: Role, text: &str) -> HistoryItem {
    HistoryItem {
        role,
        speaker: None,
        name: None,
        arguments: None,
        text: text.into(),
        interrupted: false,
        utterance: None,
        started_at: None,
        ended_at: None,
        in_context: true,
    }
}

pub(super) fn user(text: &str) -> HistoryItem {
    item(Role::User, text)
}

pub(super) fn agent(text: &str) -> HistoryItem {
    item(Role::Assistant, text)
}

/// A tool that ran, and its result.
pub(super) fn tool_item(name: &str, arguments: Value, text: &str) -> HistoryItem {
    HistoryItem { name: Some(name.into()), arguments: Some(arguments), ..item(Role::Tool, text) }
}

/// An excerpt from the agent's knowledge.
pub(super) fn snippet(text: &str) -> Snippet {
    Snippet { kb_id: "k".into(), doc_id: "d".into(), text: text.into(), score: 1.0 }
}

/// A tool without parameters.
pub(super) fn tool(name: &str) -> Tool {
    Tool { name: name.into(), description: "Does it.".into(), parameters: Value::Null, rule: None }
}

/// Time limits of tests that do not depend on time: on a machine that stalls, a server must not
/// count as silent.
pub(super) const NO_LIMITS: Timeouts = Timeouts {
    first_token: Duration::from_secs(60),
    between_tokens: Duration::from_secs(60),
    usage: Duration::from_millis(250),
};

pub(super) fn sink() -> (Sink<Event>, mpsc::UnboundedReceiver<Event>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Sink::new(move |event| drop(sender.send(event))), receiver)
}

pub(super) async fn collect_reply(mut events: mpsc::UnboundedReceiver<Event>) -> Reply {
    let mut reply = Reply::default();
    while let Some(event) = events.recv().await {
        match event {
            Event::Text(text) => reply.text += &text,
            Event::ToolCall { name, .. } => reply.calls.push(name),
            Event::End { prompt_tokens, completion_tokens, .. } => {
                reply.end = Some((prompt_tokens, completion_tokens));
                break;
            }
            Event::Provider(name) | Event::ServedBy(name) => {
                panic!("no vendor names itself: {name}")
            }
            Event::Warning(text) => reply.warnings.push(text),
            Event::Failed(error) => {
                reply.failed = Some((error.kind(), error.to_string()));
                break;
            }
        }
    }
    reply
}

/// Asks `llm` a question and reads its reply to the end.
pub(super) async fn ask(llm: &dyn Llm) -> Reply {
    ask_for(llm, question()).await
}

/// Reads the reply to `request` to the end.
pub(super) async fn ask_for(llm: &dyn Llm, request: Request) -> Reply {
    let (sink, events) = sink();
    let handle = llm.ask(request, sink);
    let reply = collect_reply(events).await;
    drop(handle);
    reply
}

/// The text and the events of a reply that arrives in these chunks.
pub(super) fn parse_chunks<'a>(
    mut parser: impl StreamParser,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (String, Result<Vec<Event>, Error>) {
    let (mut decoder, mut text, mut failed) = (SseDecoder::default(), String::new(), None);
    let mut push = |data: &str| {
        if failed.is_none() {
            match parser.push(data) {
                Ok(delta) => text += &delta.text,
                Err(error) => failed = Some(error),
            }
        }
    };
    for chunk in chunks {
        decoder.push(chunk, &mut push).unwrap();
    }
    decoder.finish(&mut push);
    (text, failed.map_or_else(|| parser.finish(), Err))
}

/// Checks that a reply is the same however the bytes of its stream are cut.
pub(super) fn assert_same_in_pieces<P: StreamParser>(stream: &str, parser: impl Fn() -> P) {
    let of = |chunks: Vec<&[u8]>| format!("{:?}", parse_chunks(parser(), chunks));
    let whole = of(vec![stream.as_bytes()]);
    let with_cr = stream.replace('\n', "\r\n");
    assert_eq!(of(vec![with_cr.as_bytes()]), whole, "with CR LF");
    for size in 1..10 {
        assert_eq!(of(stream.as_bytes().chunks(size).collect()), whole, "chunks of {size}");
    }
    for at in 0..stream.len() {
        let (first, second) = stream.as_bytes().split_at(at);
        assert_eq!(of(vec![first, second]), whole, "cut at {at}");
    }
}

/// The requests that a server received, and its next responses.
pub(super) struct MockServer {
    /// Headers, path with query, body, and port of the client.
    pub(super) requests: Mutex<Vec<(HeaderMap, Uri, Value, u16)>>,
    responses: Mutex<Vec<Response>>,
    default_stream: String,
    pub(super) count: AtomicUsize,
}

async fn handle(
    State(server): State<Arc<MockServer>>,
    ConnectInfo(peer): ConnectInfo<std::net::SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or_default();
    server.requests.lock().unwrap().push((headers, uri, body, peer.port()));
    server.count.fetch_add(1, Ordering::SeqCst);
    let mut answers = server.responses.lock().unwrap();
    if answers.is_empty() { sse(&server.default_stream) } else { answers.remove(0) }
}

pub(super) fn sse(text: &str) -> Response {
    ([("content-type", "text/event-stream")], text.to_owned()).into_response()
}

pub(super) fn error_response(status: u16, body: &str) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.to_owned()).into_response()
}

/// Serves `answers`, then `default_stream`; returns the base URL without a path.
pub(super) async fn serve(
    default_stream: String,
    answers: Vec<Response>,
) -> (Arc<MockServer>, String) {
    let server = Arc::new(MockServer {
        requests: Mutex::default(),
        responses: Mutex::new(answers),
        default_stream,
        count: AtomicUsize::new(0),
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(handle).with_state(Arc::clone(&server));
    tokio::spawn(async move {
        axum::serve(listener, router.into_make_service_with_connect_info::<std::net::SocketAddr>())
            .await
    });
    (server, url)
}
