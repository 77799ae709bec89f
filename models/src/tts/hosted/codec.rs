//! The protocol of a vendor with a WebSocket.

use std::time::Duration;

use egress::websocket::Refusal;
use tokio::time::Instant;

use crate::tts::Word;

/// A message of the vendor.
pub(in crate::tts) enum Incoming<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
}

/// What a message of the vendor leads to.
#[derive(Debug, PartialEq)]
pub(in crate::tts) enum Output {
    /// Samples of the current context.
    Samples(Vec<i16>),
    /// Words of the current context, with the vendor's times.
    Words(Vec<Word>),
    /// The end of a segment.
    Mark,
    /// The end of the current context. Text of it that has not sounded must be sent again.
    End,
    /// The vendor refuses what was sent, with a status as in HTTP.
    Refused(Refusal),
    /// The vendor will close the connection, with this code and reason.
    Closing(u16, String),
}

/// The protocol of a vendor, for one connection at a time. It performs no I/O and reads no clock.
pub(in crate::tts) trait Codec: Send + 'static {
    /// The address of a connection for this voice (empty = the configured one) and language.
    /// Contains no secret.
    fn url(&self, voice: &str, language: Option<&str>) -> String;
    /// A new connection is open: the contexts of the previous one are forgotten.
    fn reset(&mut self);
    /// Speaks `text` in the current context. It begins with this text if `starts`.
    fn speak(&mut self, now: Instant, text: &Text<'_>, starts: bool, messages: &mut Vec<String>);
    /// Cancels the current context. What still arrives for it is dropped.
    fn cancel(&mut self, messages: &mut Vec<String>);
    /// Ends the current context, which is idle.
    fn close_context(&mut self, messages: &mut Vec<String>);
    /// Reads a message.
    fn receive(&mut self, message: &Incoming<'_>, outputs: &mut Vec<Output>);
    /// The time before which no more text may be sent.
    fn ready_at(&self) -> Option<Instant> {
        None
    }
    /// The vendor refuses the connection with these words. Returns whether it may accept another
    /// one, because the codec now omits what the vendor does not permit.
    fn omit_refused(&mut self, words: &str) -> bool {
        let _ = words;
        false
    }
    /// Whether the connection takes no more contexts.
    fn is_full(&self) -> bool {
        false
    }
    /// Time after its last sound in which a context takes more text.
    fn context_lifetime(&self) -> Option<Duration> {
        None
    }
    /// The message that keeps an idle connection open, and its interval.
    fn keep_alive(&self) -> Option<(Duration, &'static str)> {
        None
    }
    /// Time without text after which a connection is replaced, before the vendor closes it.
    fn max_idle(&self) -> Option<Duration> {
        None
    }
    /// The message that ends the connection.
    fn goodbye(&self) -> Option<&'static str> {
        None
    }
}

/// A text as a codec gets it.
pub(in crate::tts) struct Text<'a> {
    /// The text, without a blank at its end.
    pub(in crate::tts) text: &'a str,
    /// Empty = the configured voice.
    pub(in crate::tts) voice: &'a str,
    pub(in crate::tts) language: Option<&'a str>,
}
