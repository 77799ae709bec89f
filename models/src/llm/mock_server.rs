//! A server on loopback for the tests of the clients, and the reply that a client reads from it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Event, Llm, Request};
use crate::{ErrorKind, Sink};

/// The reply to a request.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) calls: Vec<String>,
    /// Tokens of the prompt and of the reply.
    pub(super) end: Option<(u32, u32)>,
    pub(super) failed: Option<(ErrorKind, String)>,
}

pub(super) fn question() -> Request {
    let item = conversation::event::HistoryItem {
        role: conversation::event::Role::User,
        name: None,
        arguments: None,
        text: "Hi".into(),
        interrupted: false,
        utterance: None,
        started_at: None,
        in_context: true,
    };
    Request {
        prompt: "Be kind.".into(),
        history: vec![Arc::new(item)],
        snippets: Vec::new(),
        tools: Vec::new(),
        model: String::new(),
    }
}

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
            Event::End { prompt_tokens, completion_tokens } => {
                reply.end = Some((prompt_tokens, completion_tokens));
                break;
            }
            Event::Warning(text) => panic!("no vendor warns: {text}"),
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
    let (sink, events) = sink();
    let handle = llm.ask(question(), sink);
    let reply = collect_reply(events).await;
    drop(handle);
    reply
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
