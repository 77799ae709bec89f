//! The contract of every hosted LLM: the same conversations, interruptions and faults for all of
//! them, with a server in this process and in virtual time. [`vendors`] describes how each vendor's
//! server writes a reply; all else is shared.

mod conversations;
mod faults;
mod interruptions;
mod vendors;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::mock_server::{self, agent, tool, tool_item, user, with_history};
use super::{Event, Llm, Request, Timeouts};
use crate::hosted::loopback::json::with_unknown_fields;
use crate::hosted::loopback::{Exchange, Loopback, client, settle, soon, within};
use crate::{ErrorKind, Handle};
use vendors::VENDORS;

/// Longest time from a request to its first token, between two tokens, or to a failure, in ms.
const LIMIT: u64 = 6_000;
/// Name of the tool that the model may call.
const TOOL: &str = "get_weather";

/// A vendor's server.
struct Vendor {
    /// For the messages of the tests.
    label: &'static str,
    /// Name in sentences.
    name: &'static str,
    make: fn(String) -> Arc<dyn Llm>,
    wire: &'static Wire,
}

/// The messages of a protocol.
struct Wire {
    /// Part of the request's path.
    path: &'static str,
    /// The events before the first text.
    opening: fn() -> Vec<Value>,
    /// A part of the text.
    text: fn(&str) -> Value,
    /// A call of [`TOOL`] with arguments, for which `n` is unique.
    call: fn(n: usize, arguments: &Value) -> Vec<Value>,
    /// The end, with 120 tokens of the prompt and 15 of the reply. `calls`: the reply has some.
    end: fn(calls: bool) -> Vec<Value>,
    /// Text of the event after which nothing follows, if it is not JSON.
    done: Option<&'static str>,
    /// Names of fields whose value has names of its own.
    free: &'static [&'static str],
    /// Errors in a stream of status 200; `KEY` in them is the key.
    errors: &'static [(&'static str, ErrorKind)],
    /// Events that do not exist so far.
    unknown: &'static [&'static str],
}

/// What the model says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    text: Vec<String>,
    /// Arguments of its calls.
    calls: Vec<Value>,
}

impl Answer {
    /// A text, word by word.
    fn of(text: &str) -> Self {
        let text = text.split_inclusive(' ').map(str::to_owned).collect();
        Self { text, calls: Vec::new() }
    }
}

/// How the server sends the pieces of its reply.
#[derive(Clone, Copy, PartialEq)]
enum Delivery {
    /// Each event alone.
    Events,
    /// All bytes, in two pieces of which the first has this size.
    CutAt(usize),
    /// Byte by byte.
    Bytes,
    /// With unknown fields and events.
    Later,
}

impl Wire {
    /// The events of an answer, as a server sends them.
    fn events(&self, answer: &Answer, is_later: bool) -> Vec<String> {
        let mut all = (self.opening)();
        all.extend(answer.text.iter().map(|text| (self.text)(text)));
        let calls = (0..).zip(&answer.calls);
        all.extend(calls.flat_map(|(n, arguments)| (self.call)(n, arguments)));
        all.extend((self.end)(!answer.calls.is_empty()));
        let mut events = Vec::new();
        for message in all {
            if is_later {
                let unknown = self.unknown.iter().map(|data| format!("data: {data}\n\n"));
                events.extend(unknown);
                let later = with_unknown_fields(&message, self.free);
                let kind = message["type"].as_str().unwrap_or("message");
                let fields = format!("event: {kind}\nid: 7\nretry: 10\nnew: x\n");
                events.push(format!(": a comment\n\n{fields}data: {later}\n\n"));
            } else {
                events.push(event(&message));
            }
        }
        events.extend(self.done.map(|done| format!("data: {done}\n\n")));
        events
    }
}

/// An event of a stream.
fn event(data: &Value) -> String {
    match data["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// A client, and the server's side of it.
struct Session {
    vendor: &'static Vendor,
    llm: Arc<dyn Llm>,
    server: Loopback,
    delivery: Delivery,
}

/// A reply that is being received.
struct Asked {
    handle: Handle,
    events: mpsc::UnboundedReceiver<Event>,
}

/// What was received of a reply.
#[derive(Debug, Default, PartialEq)]
struct Received {
    text: String,
    /// Arguments of the calls.
    calls: Vec<Value>,
    /// Tokens of the prompt and of the reply.
    end: Option<(u32, u32)>,
    failed: Option<(ErrorKind, String)>,
}

impl Received {
    fn add(&mut self, event: Event) {
        match event {
            Event::Text(text) => {
                assert!(!text.is_empty());
                self.text += &text;
            }
            Event::ToolCall { id, name, arguments } => {
                assert!(!id.is_empty() && name == TOOL);
                self.calls.push(arguments);
            }
            Event::End { prompt_tokens, completion_tokens, .. } => {
                self.end = Some((prompt_tokens, completion_tokens));
            }
            Event::Failed(error) => self.failed = Some((error.kind(), error.to_string())),
            Event::Warning(text) => panic!("no vendor warns: {text}"),
            Event::Provider(name) | Event::ServedBy(name) => {
                panic!("no vendor names itself: {name}")
            }
        }
    }

    fn is_over(&self) -> bool {
        self.end.is_some() || self.failed.is_some()
    }
}

impl Asked {
    /// The events so far, then those until the reply is over.
    async fn whole(&mut self) -> Received {
        let mut received = Received::default();
        while !received.is_over() {
            received.add(self.events.recv().await.expect("an end"));
        }
        received
    }

    /// The reply, while the clock moves.
    async fn received(&mut self) -> Received {
        within(LIMIT, 50, self.whole()).await.expect("an end of the reply")
    }

    /// The events that have arrived.
    fn so_far(&mut self) -> Received {
        let mut received = Received::default();
        while let Ok(event) = self.events.try_recv() {
            received.add(event);
        }
        received
    }
}

/// A request whose last item is the user's `text`.
fn question(text: &str) -> Request {
    Request { tools: vec![tool(TOOL)], ..with_history(vec![user(text)]) }
}

impl Session {
    async fn start(vendor: &'static Vendor) -> Self {
        let server = Loopback::bind().await;
        let llm = (vendor.make)(server.url("http"));
        Self { vendor, llm, server, delivery: Delivery::Events }
    }

    fn ask(&self, request: Request) -> Asked {
        let (sink, events) = mock_server::sink();
        Asked { handle: self.llm.ask(request, sink), events }
    }

    /// Receives the request and begins the response.
    async fn request(&self) -> Exchange {
        let mut exchange = self.refused_request().await;
        exchange.begin("text/event-stream").await;
        exchange
    }

    /// Receives the request.
    async fn refused_request(&self) -> Exchange {
        let exchange = soon("a request", self.server.request()).await;
        assert!(exchange.target().contains(self.vendor.wire.path), "{}", exchange.target());
        exchange
    }

    /// Sends a whole reply.
    async fn answer(&self, mut exchange: Exchange, answer: &Answer) {
        let events = self.vendor.wire.events(answer, self.delivery == Delivery::Later);
        let bytes = events.concat().into_bytes();
        match self.delivery {
            Delivery::Events | Delivery::Later => {
                for event in events {
                    exchange.piece(event.as_bytes()).await;
                    settle().await;
                }
            }
            Delivery::CutAt(size) => {
                let (first, rest) = bytes.split_at(size.min(bytes.len()));
                exchange.piece(first).await;
                settle().await;
                exchange.piece(rest).await;
            }
            Delivery::Bytes => {
                for byte in bytes {
                    exchange.piece(&[byte]).await;
                    settle().await;
                }
            }
        }
        exchange.end().await;
    }

    /// Asks and answers, and checks what is received.
    async fn exchange(&self, request: Request, answer: &Answer) {
        let mut asked = self.ask(request);
        let exchange = self.request().await;
        self.answer(exchange, answer).await;
        let received = asked.received().await;
        let label = self.vendor.label;
        let expected = Received {
            text: answer.text.concat(),
            calls: answer.calls.clone(),
            end: Some((120, 15)),
            failed: None,
        };
        assert_eq!(received, expected, "{label}");
        settle().await;
        assert_eq!(asked.so_far(), Received::default(), "{label}: one end");
    }
}

/// The history of a conversation, and the next question.
fn conversation(turns: &[(String, Answer)], next: &str) -> Request {
    let mut history = Vec::new();
    for (question, answer) in turns {
        history.push(user(question));
        if !answer.text.is_empty() {
            history.push(agent(&answer.text.concat()));
        }
        for arguments in &answer.calls {
            history.push(tool_item(TOOL, arguments.clone(), "sunny"));
        }
    }
    history.push(user(next));
    Request { tools: vec![tool(TOOL)], ..with_history(history) }
}

/// Arguments of a call.
fn city(name: &str) -> Value {
    json!({ "city": name })
}
