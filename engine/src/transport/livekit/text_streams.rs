//! Text streams: texts that arrive in parts, and those of our own.

use std::collections::{HashMap, VecDeque};

use livekit_protocol as proto;
use proto::data_packet::Value;
use proto::data_stream::header::ContentHeader;
use proto::data_stream::{Chunk, Header, TextHeader, Trailer};

/// Maximum number of streams that are incomplete at the same time; the oldest is dropped.
const MAX_OPEN_STREAMS: usize = 16;
/// Maximum size of a text in bytes. A longer one is dropped as a whole.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Maximum size of a part that is sent, in bytes, as in LiveKit's own clients.
const MAX_CHUNK_BYTES: usize = 15_000;

/// A complete text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReceivedText {
    /// Identity of the sender.
    pub(super) sender: String,
    pub(super) text: String,
}

struct OpenStream {
    id: String,
    sender: String,
    bytes: Vec<u8>,
}

/// Collects the parts of texts of one topic.
#[derive(Default)]
pub(super) struct IncomingTexts {
    streams: VecDeque<OpenStream>,
}

impl IncomingTexts {
    pub(super) fn on_header(&mut self, sender: &str, header: Header) {
        let is_text = matches!(header.content_header, Some(ContentHeader::TextHeader(_)));
        let is_too_long = header.total_length.is_some_and(|n| n > MAX_TEXT_BYTES as u64);
        if !is_text || is_too_long {
            return;
        }
        if self.streams.len() == MAX_OPEN_STREAMS {
            self.streams.pop_front();
        }
        let bytes = header.inline_content.unwrap_or_default();
        self.streams.push_back(OpenStream {
            id: header.stream_id,
            sender: sender.to_owned(),
            bytes,
        });
    }

    pub(super) fn on_chunk(&mut self, sender: &str, chunk: &Chunk) {
        let Some(index) = self.find(sender, &chunk.stream_id) else { return };
        let stream = &mut self.streams[index];
        stream.bytes.extend_from_slice(&chunk.content);
        if stream.bytes.len() > MAX_TEXT_BYTES {
            self.streams.remove(index);
        }
    }

    /// The text, if this part is its end and it is valid UTF-8.
    pub(super) fn on_trailer(&mut self, sender: &str, trailer: &Trailer) -> Option<ReceivedText> {
        let index = self.find(sender, &trailer.stream_id)?;
        let stream = self.streams.remove(index)?;
        let text = String::from_utf8(stream.bytes).ok()?;
        Some(ReceivedText { sender: stream.sender, text })
    }

    fn find(&self, sender: &str, id: &str) -> Option<usize> {
        self.streams.iter().position(|stream| stream.id == id && stream.sender == sender)
    }
}

/// The first packet of a text stream.
pub(super) fn stream_header(
    id: &str,
    topic: &str,
    unix_ms: i64,
    attributes: HashMap<String, String>,
) -> Value {
    Value::StreamHeader(Header {
        stream_id: id.to_owned(),
        timestamp: unix_ms,
        topic: topic.to_owned(),
        mime_type: "text/plain".to_owned(),
        attributes,
        content_header: Some(ContentHeader::TextHeader(TextHeader::default())),
        ..Header::default()
    })
}

/// The packets with a text, each of at most [`MAX_CHUNK_BYTES`]. `next_index`: number of the next
/// part of the stream.
pub(super) fn stream_chunks<'a>(
    id: &'a str,
    next_index: &'a mut u64,
    text: &'a str,
) -> impl Iterator<Item = Value> + 'a {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, remaining) = rest.split_at(rest.floor_char_boundary(MAX_CHUNK_BYTES));
        rest = remaining;
        let chunk_index = *next_index;
        *next_index += 1;
        let content = part.as_bytes().to_vec();
        let stream_id = id.to_owned();
        Some(Value::StreamChunk(Chunk { stream_id, chunk_index, content, ..Chunk::default() }))
    })
}

/// The last packet of a text stream.
pub(super) fn stream_trailer(id: &str, attributes: HashMap<String, String>) -> Value {
    let (stream_id, reason) = (id.to_owned(), String::new());
    Value::StreamTrailer(Trailer { stream_id, reason, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(id: &str) -> Header {
        let Value::StreamHeader(header) = stream_header(id, "lk.chat", 0, HashMap::new()) else {
            unreachable!()
        };
        header
    }

    fn trailer(id: &str) -> Trailer {
        Trailer { stream_id: id.into(), ..Trailer::default() }
    }

    #[test]
    fn a_text_arrives_in_parts() {
        let mut texts = IncomingTexts::default();
        let text = "ä".repeat(20_000);
        texts.on_header("maria", header("s"));
        let mut index = 0;
        let chunks: Vec<Value> = stream_chunks("s", &mut index, &text).collect();
        assert_eq!((chunks.len(), index), (3, 3));
        for chunk in &chunks {
            let Value::StreamChunk(chunk) = chunk else { panic!("{chunk:?}") };
            assert!(chunk.content.len() <= MAX_CHUNK_BYTES);
            texts.on_chunk("tom", chunk);
            texts.on_chunk("maria", chunk);
        }
        assert_eq!(texts.on_trailer("tom", &trailer("s")), None);
        let received = texts.on_trailer("maria", &trailer("s")).unwrap();
        assert_eq!((received.sender.as_str(), received.text == text), ("maria", true));
        assert_eq!(texts.on_trailer("maria", &trailer("s")), None);
    }

    #[test]
    fn floods_and_long_texts_are_dropped() {
        let mut texts = IncomingTexts::default();
        texts.on_header("maria", header("long"));
        let content = vec![b'x'; 15_000];
        let chunk = Chunk { stream_id: "long".into(), content, ..Chunk::default() };
        for _ in 0..5 {
            texts.on_chunk("maria", &chunk);
        }
        assert_eq!(texts.on_trailer("maria", &trailer("long")), None);
        for n in 0..1_000 {
            texts.on_header("maria", header(&n.to_string()));
        }
        assert_eq!(texts.streams.len(), MAX_OPEN_STREAMS);
        texts.on_header("maria", Header { content_header: None, ..header("bytes") });
        assert_eq!(texts.on_trailer("maria", &trailer("bytes")), None);
    }
}
