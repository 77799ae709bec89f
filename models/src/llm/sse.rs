//! Decoder of server-sent events (WHATWG HTML, section 9.2), as far as streamed replies need them:
//! the data of each event.

/// Maximum size of an event in bytes; a longer one is no part of a reply.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// Turns bytes into the data of complete events. Fields other than `data` are ignored.
#[derive(Debug, Default)]
pub(super) struct SseDecoder {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a CR: a following LF belongs to it.
    after_cr: bool,
    /// Whether the first line is complete; before that, a byte order mark may come.
    started: bool,
}

/// An event does not end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventTooLong;

impl SseDecoder {
    /// Processes more bytes and calls `event` with the data of each event that they complete.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut event: impl FnMut(&str),
    ) -> Result<(), EventTooLong> {
        for &byte in bytes {
            match byte {
                b'\n' if self.after_cr => {}
                b'\n' | b'\r' => self.end_line(&mut event),
                _ => self.line.push(byte),
            }
            self.after_cr = byte == b'\r';
        }
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held > MAX_EVENT_BYTES { Err(EventTooLong) } else { Ok(()) }
    }

    /// Ends the stream. A last event without the final blank line counts, because some servers omit
    /// it.
    pub(super) fn finish(&mut self, mut event: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.end_line(&mut event);
        }
        self.end_line(&mut event);
    }

    fn end_line(&mut self, event: &mut impl FnMut(&str)) {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.started, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            if let Some(data) = self.data.take() {
                event(&data);
            }
            return;
        }
        let Some(value) = line.strip_prefix(b"data") else { return };
        let value = match value {
            [b':', b' ', value @ ..] | [b':', value @ ..] | value @ [] => value,
            _ => return,
        };
        // Lines are complete, so a character that was split between two chunks is complete too.
        let value = String::from_utf8_lossy(value);
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&value);
            }
            none => *none = Some(value.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: hello\r\n\r\nevent: x\r\nid: 1\r\ndata: {\"a\":1}\r\n\r\n\
        data:two\ndata: lines\n\n:keep-alive\n\ndata\n\rdata: Grüße 你好 🎈\r\rdatax: no\n\n\
        data: [DONE]\n\n";

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let (mut decoder, mut all) = (SseDecoder::default(), Vec::new());
        for chunk in chunks {
            decoder.push(chunk, |data| all.push(data.to_owned())).unwrap();
        }
        decoder.finish(|data| all.push(data.to_owned()));
        all
    }

    #[test]
    fn events_come_out_whole_however_the_bytes_are_cut() {
        let bytes = STREAM.as_bytes();
        let whole = ["{\"a\":1}", "two\nlines", "", "Grüße 你好 🎈", "[DONE]"];
        assert_eq!(events(&[bytes]), whole);
        for size in 1..20 {
            assert_eq!(events(&bytes.chunks(size).collect::<Vec<_>>()), whole, "chunks of {size}");
        }
        for at in 0..bytes.len() {
            assert_eq!(events(&[&bytes[..at], &bytes[at..]]), whole, "cut at {at}");
        }
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        assert_eq!(events(&[b"data: a\n\ndata: b"]), ["a", "b"]);
        assert_eq!(events(&[b"data: a\n"]), ["a"]);
        assert!(events(&[b""]).is_empty());
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut decoder = SseDecoder::default();
        let chunk = vec![b'x'; 600_000];
        assert_eq!(decoder.push(&chunk, |_| ()), Ok(()));
        assert_eq!(decoder.push(&chunk, |_| ()), Err(EventTooLong));
    }

    #[test]
    fn invalid_utf8_is_handled() {
        assert_eq!(events(&[b"data: a\xff\xfeb\n\n"]), ["a\u{fffd}\u{fffd}b"]);
    }
}
