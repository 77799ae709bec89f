//! The contract of every hosted STT: the same conversations, interruptions and faults for all of
//! them, with a server in this process and in virtual time. [`vendors`] describes how each vendor's
//! server writes its messages; all else is shared.

mod conversations;
mod faults;
mod finals;
mod recovery;
mod refusals;
mod timeouts;
mod vendors;

use serde_json::Value;

use super::streaming::test_support::{Harness, Make};
use crate::ErrorKind;
use crate::hosted::loopback::{Exchange, Frame, Socket, advance, soon, within};
use crate::stt::{Event, Fallback, Timeouts};

use vendors::VENDORS;

/// Longest time from the end of speech to its final transcript or its failure, in ms, for short
/// utterances: the time for a transcript, and for one more connection.
const LIMIT: u64 = 8_000;
/// Chunks of 50 ms in an utterance.
const CHUNKS: usize = 24;

/// A vendor's server.
struct Vendor {
    /// For the messages of the tests.
    label: &'static str,
    /// Name in sentences.
    name: &'static str,
    make: Make,
    wire: Wire,
}

enum Wire {
    Socket(SocketWire),
    /// A request for each utterance.
    Requests,
}

/// The messages of a server with a WebSocket.
struct SocketWire {
    /// Sent when a connection is open.
    opening: &'static [&'static str],
    /// Part of the client's message that requests the final transcript.
    end_mark: &'static str,
    /// Part of the client's message that ends the stream, if there is one.
    goodbye: Option<&'static str>,
    /// The text so far, which was `before` and may change.
    interim: fn(&Turn, before: &str, text: &str) -> Vec<Value>,
    /// The text that answers the end mark.
    last: fn(&Turn, text: &str) -> Vec<Value>,
    /// The user seems to have finished, and goes on.
    hints: Option<fn(&Turn, text: &str) -> Vec<Value>>,
    /// Messages of errors; `KEY` in them is the key.
    errors: &'static [(&'static str, ErrorKind)],
}

impl Vendor {
    fn socket(&self) -> Option<&SocketWire> {
        match &self.wire {
            Wire::Socket(wire) => Some(wire),
            Wire::Requests => None,
        }
    }
}

/// The vendors with a WebSocket, and what is special about them.
fn sockets() -> impl Iterator<Item = (&'static Vendor, &'static SocketWire)> {
    VENDORS.iter().filter_map(|vendor| Some((vendor, vendor.socket()?)))
}

/// An utterance on a connection.
#[derive(Clone, Debug)]
struct Turn {
    number: u64,
    /// Position of its first sample, in seconds.
    start: f64,
    /// Duration of its audio, in seconds.
    duration: f64,
}

impl Turn {
    /// The words of a text with their starts and ends, in seconds on the connection.
    fn words<'a>(&self, text: &'a str) -> Vec<(&'a str, f64, f64)> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let length = (self.duration - 0.4) / words.len().max(1) as f64;
        let start = |n: usize| self.start + 0.3 + n as f64 * length;
        words.iter().enumerate().map(|(n, word)| (*word, start(n), start(n + 1))).collect()
    }
}

/// How the server sends a message.
#[derive(Clone, Copy)]
enum Delivery {
    Whole,
    /// In two pieces, the first of which has this size.
    CutAt(usize),
    /// Byte by byte.
    Bytes,
    /// Whole, with unknown fields, between unknown messages.
    Later,
}

/// A call, and the server's side of it.
struct Session {
    vendor: &'static Vendor,
    call: Harness,
    socket: Option<Socket>,
    /// Utterances and seconds of audio on this connection.
    turns: u64,
    seconds: f64,
    delivery: Delivery,
}

/// Whether a message contains audio, and how much, in seconds.
fn audio_seconds(frame: &Frame) -> Option<f64> {
    match frame {
        Frame::Binary(bytes) => Some(bytes.len() as f64 / 32_000.0),
        Frame::Text(text) => {
            let message: Value = serde_json::from_str(text).ok()?;
            let audio = message.get("audio").or_else(|| message.get("audio_base_64"))?.as_str()?;
            // Base64 of 16-bit samples; the rate does not matter, because these vendors use no
            // times.
            (!audio.is_empty()).then(|| audio.len() as f64 * 0.75 / 32_000.0)
        }
    }
}

impl Session {
    /// A call without a fallback, so that failures are seen.
    async fn start(vendor: &'static Vendor) -> Self {
        Self::with(vendor, Fallback::default(), Timeouts::default()).await
    }

    async fn with(vendor: &'static Vendor, fallback: Fallback, timeouts: Timeouts) -> Self {
        let mut call = Harness::open(vendor.make, fallback, timeouts).await;
        call.user().start_call();
        let delivery = Delivery::Whole;
        Self { vendor, call, socket: None, turns: 0, seconds: 0.0, delivery }
    }

    /// The same with a connection, if the vendor has one.
    async fn connected(vendor: &'static Vendor) -> Self {
        let mut session = Self::start(vendor).await;
        session.connect().await;
        session
    }

    /// Accepts a connection.
    async fn connect(&mut self) {
        let Some(wire) = self.vendor.socket() else { return };
        let mut socket = soon("a connection", self.call.server.socket()).await;
        assert_eq!(socket.keys().len(), 1, "{}: the key is in one header", self.vendor.label);
        for message in wire.opening {
            socket.send(&Frame::text(message)).await;
        }
        (self.turns, self.seconds) = (0, 0.0);
        self.socket = Some(socket);
    }

    fn socket(&mut self) -> &mut Socket {
        self.socket.as_mut().expect("a connection")
    }

    /// Accepts the next request for a transcript. Requests that only open a connection are
    /// answered.
    async fn request(&self) -> Exchange {
        loop {
            let exchange = self.call.server.request().await;
            if exchange.head.starts_with("POST ") {
                assert!(exchange.body.len() > 10_000, "the audio");
                return exchange;
            }
            exchange.reply("404 Not Found", "").await;
        }
    }

    /// Sends messages.
    async fn send(&mut self, messages: &[Value]) {
        use crate::hosted::loopback::json::{unknown_messages, with_unknown_fields};
        let delivery = self.delivery;
        for message in messages {
            let frame = Frame::text(message);
            match delivery {
                Delivery::Whole => self.socket().send(&frame).await,
                Delivery::CutAt(size) => self.socket().send_fragments(&frame, &[size]).await,
                Delivery::Bytes => {
                    let sizes = vec![1; frame.bytes().len()];
                    self.socket().send_fragments(&frame, &sizes).await;
                }
                Delivery::Later => {
                    for unknown in unknown_messages() {
                        self.socket().send(&unknown).await;
                    }
                    let later = with_unknown_fields(message, &[]);
                    self.socket().send(&Frame::text(later)).await;
                }
            }
        }
    }

    /// The user speaks for 1.2 s.
    async fn speak(&mut self) {
        self.call.user().start_speech();
        for _ in 0..CHUNKS {
            self.call.push(1);
            advance(50).await;
        }
        if self.socket.is_some() {
            // The utterance has begun for the adapter, too.
            self.read_audio().await;
        }
    }

    async fn read_audio(&mut self) {
        loop {
            let frame = soon("audio", self.socket().next()).await.expect("audio");
            if let Some(seconds) = audio_seconds(&frame) {
                self.seconds += seconds;
                return;
            }
        }
    }

    /// The current utterance.
    fn turn(&self, start: f64) -> Turn {
        Turn { number: self.turns, start, duration: CHUNKS as f64 * 0.05 }
    }

    /// Receives the audio until the end mark.
    async fn read_end_mark(&mut self, wire: &SocketWire) {
        loop {
            let frame = soon("an end mark", self.socket().next()).await.expect("an end mark");
            match audio_seconds(&frame) {
                Some(seconds) => self.seconds += seconds,
                None if matches!(&frame, Frame::Text(text) if text.contains(wire.end_mark)) => {
                    return;
                }
                None => {}
            }
        }
    }

    /// The user says `text`, and the vendor hears it. Returns the events.
    async fn say(&mut self, text: &str) -> Vec<String> {
        let mut events = match self.vendor.socket() {
            Some(wire) => self.say_over_socket(wire, text).await,
            None => self.say_in_request(text).await,
        };
        events.extend(self.events().await);
        events
    }

    /// Returns the events before the end of speech.
    async fn say_over_socket(&mut self, wire: &SocketWire, text: &str) -> Vec<String> {
        let start = self.seconds;
        self.speak().await;
        let (first, _) = text.rsplit_once(' ').expect("two words");
        let turn = self.turn(start);
        self.send(&(wire.interim)(&turn, "", first)).await;
        let mut events = vec![soon("an interim transcript", self.call.event()).await];
        for hint in wire.hints.map(|hints| hints(&turn, first)).unwrap_or_default() {
            self.send(&[hint]).await;
            events.push(soon("a hint", self.call.event()).await);
        }
        self.call.user().end_speech();
        self.read_end_mark(wire).await;
        self.send(&(wire.last)(&turn, text)).await;
        self.turns += 1;
        events
    }

    async fn say_in_request(&mut self, text: &str) -> Vec<String> {
        self.speak().await;
        self.call.user().end_speech();
        let exchange = soon("a request", self.request()).await;
        self.answer(exchange, &serde_json::json!({"text": text, "usage": {}})).await;
        Vec::new()
    }

    /// Answers a request.
    async fn answer(&self, mut exchange: Exchange, body: &Value) {
        let later = crate::hosted::loopback::json::with_unknown_fields(body, &[]);
        let body = if matches!(self.delivery, Delivery::Later) { &later } else { body }.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let whole = head + &body;
        let size = match self.delivery {
            Delivery::Whole | Delivery::Later => whole.len(),
            Delivery::CutAt(size) => size.clamp(1, whole.len()),
            Delivery::Bytes => 1,
        };
        let (first, rest) = whole.as_bytes().split_at(size);
        for piece in [first].into_iter().chain(rest.chunks(size)) {
            exchange.write(piece).await;
            crate::hosted::loopback::settle().await;
        }
    }

    /// The events until the utterance ends, which is the last one of them.
    async fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            let event = within(LIMIT, 50, self.call.event()).await.expect("an end of the turn");
            let ends = event.starts_with("final") || event.starts_with("failed");
            events.push(event);
            if ends {
                return events;
            }
        }
    }

    /// The events that have arrived, without those about usage.
    fn rest(&mut self) -> Vec<Event> {
        let events = std::iter::from_fn(|| self.call.events.try_recv().ok());
        events.filter(|event| !matches!(event, Event::Usage(_))).collect()
    }
}
