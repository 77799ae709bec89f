//! The contract of every hosted TTS: the same conversations, interruptions and faults for all of
//! them, with a server in this process and in virtual time. [`vendors`] describes how each vendor's
//! server reads and writes its messages; all else is shared.

mod conversations;
mod faults;
mod interruptions;
mod refusals;
mod vendors;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Handle as Runtime;

use super::Tts;
use super::hosted::test_server::{Call, Spoken};
use super::hosted::test_sink::Speech;
use crate::hosted::loopback::json::{frame_with_unknown_fields, unknown_messages};
use crate::hosted::loopback::{Exchange, Frame, Socket, settle, soon, within};
use crate::{Error, ErrorKind};
use vendors::VENDORS;

/// Longest time from a text to its first sound, between two pieces of sound, or to a failure, in
/// ms: one time limit for the connection and one for the sound.
const LIMIT: u64 = 6_000;

/// Makes the TTS of a server at a URL.
type Make = fn(String, egress::Client, Runtime) -> Result<Arc<dyn Tts>, Error>;

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
    /// A request for each segment. The response has this type, and these bytes before its samples.
    Requests(&'static str, fn() -> Vec<u8>),
}

/// The messages of a server with a WebSocket.
struct SocketWire {
    /// Reads a message of the client: adds to the text of a segment, and returns the segment's
    /// context when the text is complete.
    read: fn(&Value, &mut String) -> Option<String>,
    is_cancel: fn(&Value) -> bool,
    /// The sound of a word.
    word: fn(&Piece<'_>) -> Vec<Frame>,
    /// The end of a segment of the context; the last one of the reply or not.
    end: fn(&str, bool) -> Vec<Frame>,
    /// The last messages about a context that was cancelled.
    cancelled: fn(&str) -> Vec<Frame>,
    /// Whether the vendor reports the times of words.
    has_words: bool,
    /// Whether binary messages are sound.
    has_binary_sound: bool,
    /// Errors after a text was sent. `KEY` in them is the key, `CONTEXT` the context.
    errors: &'static [(&'static str, ErrorKind)],
}

/// A word that is spoken.
struct Piece<'a> {
    context: &'a str,
    word: &'a str,
    /// Position in the context, in ms.
    begin: usize,
    millis: usize,
    /// Value of its samples.
    value: i16,
}

impl Vendor {
    fn socket(&self) -> Option<&SocketWire> {
        match &self.wire {
            Wire::Socket(wire) => Some(wire),
            Wire::Requests(..) => None,
        }
    }
}

/// The vendors with a WebSocket, and what is special about them.
fn sockets() -> impl Iterator<Item = (&'static Vendor, &'static SocketWire)> {
    VENDORS.iter().filter_map(|vendor| Some((vendor, vendor.socket()?)))
}

/// How the server sends a message, or a piece of a response.
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

/// A segment as it arrived at the server.
struct Segment {
    text: String,
    context: String,
    /// Its request, for a vendor with requests.
    exchange: Option<Exchange>,
}

/// A call, and the server's side of it.
struct Session {
    vendor: &'static Vendor,
    call: Call,
    socket: Option<Socket>,
    /// Sound of the contexts so far, in ms.
    positions: HashMap<String, usize>,
    /// Duration of a word, in ms.
    word_millis: usize,
    /// Words so far.
    words: i16,
    delivery: Delivery,
}

impl Session {
    async fn start(vendor: &'static Vendor) -> Self {
        Self::with(vendor, Call::open(vendor.make).await)
    }

    fn with(vendor: &'static Vendor, call: Call) -> Self {
        let positions = HashMap::new();
        let delivery = Delivery::Whole;
        Self { vendor, call, socket: None, positions, word_millis: 40, words: 0, delivery }
    }

    /// Receives a segment, over the connection or over a new one.
    async fn segment(&mut self) -> Segment {
        let Some(wire) = self.vendor.socket() else { return self.requested().await };
        let mut text = String::new();
        loop {
            let message = match &mut self.socket {
                None => {
                    self.connect().await;
                    continue;
                }
                Some(socket) => tokio::select! {
                    biased;
                    message = socket.next() => message,
                    other = self.call.server.socket() => {
                        self.socket = Some(other);
                        text.clear();
                        continue;
                    }
                },
            };
            let Some(Frame::Text(message)) = message else {
                // The connection has ended.
                self.socket = None;
                continue;
            };
            let message = serde_json::from_str(&message).unwrap();
            if let Some(context) = (wire.read)(&message, &mut text) {
                return Segment { text: text.trim().to_owned(), context, exchange: None };
            }
        }
    }

    async fn connect(&mut self) {
        let socket = self.call.server.socket().await;
        assert_eq!(socket.keys().len(), 1, "{}: the key is in one header", self.vendor.label);
        self.socket = Some(socket);
    }

    /// Receives a segment in a request. Requests that only open a connection are answered.
    async fn requested(&self) -> Segment {
        loop {
            let exchange = self.call.server.request().await;
            if exchange.head.starts_with("POST ") {
                let body: Value = serde_json::from_slice(&exchange.body).unwrap();
                let text = body["input"].as_str().unwrap().to_owned();
                return Segment { text, context: String::new(), exchange: Some(exchange) };
            }
            exchange.reply("404 Not Found", "").await;
        }
    }

    /// Receives the segments of these texts, which may arrive in any order.
    async fn segments(&mut self, texts: &[&str]) -> Vec<Segment> {
        let mut segments = Vec::new();
        for _ in texts {
            segments.push(soon("a text", self.segment()).await);
        }
        let place = |segment: &Segment| texts.iter().position(|text| *text == segment.text);
        segments.sort_by_key(place);
        let arrived: Vec<&str> = segments.iter().map(|segment| segment.text.as_str()).collect();
        assert_eq!(arrived, texts, "{}", self.vendor.label);
        segments
    }

    /// The messages that speak a segment, or the pieces of its response.
    fn frames(&mut self, segment: &Segment, is_last: bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let Wire::Requests(_, header) = self.vendor.wire {
            frames.push(Frame::Binary(header()));
        }
        let begin = self.positions.entry(segment.context.clone()).or_default();
        for word in segment.text.split_whitespace() {
            self.words += 1;
            let piece = Piece {
                context: &segment.context,
                word,
                begin: *begin,
                millis: self.word_millis,
                value: self.words,
            };
            *begin += self.word_millis;
            match &self.vendor.wire {
                Wire::Socket(wire) => frames.extend((wire.word)(&piece)),
                Wire::Requests(..) => frames.push(Frame::Binary(piece.pcm())),
            }
        }
        if let Some(wire) = self.vendor.socket() {
            frames.extend((wire.end)(&segment.context, is_last));
        }
        frames
    }

    /// Sends a message, or a piece of a response.
    async fn send(&mut self, segment: &mut Segment, frame: &Frame) {
        let Some(exchange) = &mut segment.exchange else {
            return send_over(self.socket.as_mut().unwrap(), frame, self.delivery).await;
        };
        let (length, bytes) = (frame.bytes().len(), frame.bytes());
        let size = match self.delivery {
            Delivery::Whole | Delivery::Later => length,
            Delivery::CutAt(size) => size.clamp(1, length.max(1)),
            Delivery::Bytes => 1,
        };
        let (first, rest) = bytes.split_at(size.min(length));
        for piece in [first].into_iter().chain(rest.chunks(size.max(1))) {
            exchange.piece(piece).await;
            if piece.len() < length {
                settle().await;
            }
        }
    }

    /// Begins the response of a request.
    async fn begin(&self, segment: &mut Segment) {
        if let (Some(exchange), Wire::Requests(kind, _)) =
            (&mut segment.exchange, &self.vendor.wire)
        {
            exchange.begin(kind).await;
        }
    }

    /// Speaks a segment to its end.
    async fn speak(&mut self, segment: &mut Segment, is_last: bool) {
        self.begin(segment).await;
        for frame in self.frames(segment, is_last) {
            self.send(segment, &frame).await;
        }
        if let Some(exchange) = segment.exchange.take() {
            exchange.end().await;
        }
    }

    /// Speaks one text as a reply of its own, and checks what is heard.
    async fn say(&mut self, reply: u64, text: &str) {
        let mut spoken = self.call.speak(reply, text);
        let before = self.words;
        let mut segment = self.segments(&[text]).await.remove(0);
        self.speak(&mut segment, true).await;
        let speech = self.heard(&mut spoken).await;
        self.check(&speech, before, text);
    }

    /// What is heard of a segment.
    async fn heard(&self, spoken: &mut Spoken) -> Speech {
        within(LIMIT, 50, spoken.speech()).await.expect("an end of the segment")
    }

    /// Checks that the words of a text were heard in order, whole, and at their times. They follow
    /// `before` other words.
    fn check(&self, speech: &Speech, before: i16, text: &str) {
        let label = self.vendor.label;
        assert_eq!(speech.failed, "", "{label}: {text:.80}");
        let samples = self.word_millis * 24;
        let heard: Vec<(i16, usize)> =
            speech.samples.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        let words: Vec<&str> = text.split_whitespace().collect();
        let expected: Vec<(i16, usize)> =
            (1..).take(words.len()).map(|n| (before + n, samples)).collect();
        assert_eq!(heard, expected, "{label}: the sound of {text:.80}");
        assert_eq!(speech.sample_rate, 24_000, "{label}");
        if self.vendor.socket().is_some_and(|wire| wire.has_words) {
            let written: Vec<&str> = speech.words.iter().map(|(word, ..)| word.as_str()).collect();
            assert_eq!(written, words, "{label}: the words");
            for (n, (word, begin, end)) in speech.words.iter().enumerate() {
                let expected = (n * self.word_millis) as i64;
                assert!((begin - expected).abs() <= 1, "{label}: {word} begins at {begin}");
                assert!(end > begin, "{label}: {word} ends at {end}");
            }
        } else {
            assert!(speech.words.is_empty(), "{label}: {:?}", speech.words);
        }
        let characters = speech.characters as usize;
        assert_eq!(characters, text.chars().count(), "{label}: characters");
    }
}

/// Sends a message over a WebSocket.
async fn send_over(socket: &mut Socket, frame: &Frame, delivery: Delivery) {
    match delivery {
        Delivery::Whole => socket.send(frame).await,
        Delivery::CutAt(size) => socket.send_fragments(frame, &[size]).await,
        Delivery::Bytes => socket.send_fragments(frame, &vec![1; frame.bytes().len()]).await,
        Delivery::Later => {
            for unknown in unknown_messages() {
                socket.send(&unknown).await;
            }
            socket.send(&frame_with_unknown_fields(frame, &[])).await;
        }
    }
}
