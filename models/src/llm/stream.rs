//! Reads the response of a server to its end, for every protocol.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::Event;
use super::sse::SseDecoder;
use crate::{Error, ErrorKind, Sink};

/// Time limits after which a request fails.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the request to the first token.
    pub first_token: Duration,
    /// Between tokens.
    pub between_tokens: Duration,
    /// For the token counts, after the end of the reply.
    pub usage: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_token: Duration::from_secs(5),
            between_tokens: Duration::from_secs(5),
            usage: Duration::from_millis(250),
        }
    }
}

/// Maximum size of a whole response in bytes.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Maximum duration of a whole response. A long answer of a slow model takes a few minutes.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(600);

/// Content of one event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AnswerDelta {
    /// Text to be spoken.
    pub text: String,
    /// Whether the reply progressed: text, or part of a tool call.
    pub progressed: bool,
}

impl AnswerDelta {
    /// More text, if it is not empty.
    pub(super) fn of_text(text: String) -> Self {
        Self { progressed: !text.is_empty(), text }
    }

    /// Adds the content of a later event.
    pub(super) fn append(&mut self, more: Self) {
        self.text += &more.text;
        self.progressed |= more.progressed;
    }
}

/// A repetition of the request after which the reply may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// The same request.
    Same,
    /// The request without its tools.
    WithoutTools,
}

/// Parser of a streamed reply in one protocol. Pure.
pub trait StreamParser: Send {
    /// Processes the data of an event.
    ///
    /// # Errors
    /// The server reported a failure, or sent what the protocol does not allow. The error contains
    /// the server's message, from which the caller must remove secrets.
    fn push(&mut self, data: &str) -> Result<AnswerDelta, Error>;

    /// Whether the end mark has arrived.
    fn is_finished(&self) -> bool;

    /// Whether no more data can arrive.
    fn is_closed(&self) -> bool;

    /// Ends the stream: returns its tool calls, then its end. Called once.
    ///
    /// # Errors
    /// The reply is not complete or has no content.
    fn finish(&mut self) -> Result<Vec<Event>, Error>;

    /// What may help after an error, if nothing of the reply was used.
    fn repetition(&self) -> Option<Repetition> {
        None
    }
}

/// The JSON of an event; `None` if it is empty.
pub(super) fn parse_event(vendor: &str, data: &str) -> Result<Option<Value>, Error> {
    match data.trim() {
        "" => Ok(None),
        data => serde_json::from_str(data).map(Some).map_err(|_| {
            Error::new(ErrorKind::Failed, format!("{vendor} sent an event that is not JSON"))
        }),
    }
}

/// The error of a stream without its end mark.
pub(super) fn early_end() -> Error {
    Error::new(ErrorKind::Failed, "the stream ended early")
}

/// The error of a tool call whose arguments may be incomplete.
pub(super) fn cut_off_call() -> Error {
    Error::new(ErrorKind::Failed, "the limit of tokens cut off a tool call")
}

/// The error of a reply that the server's filter stopped.
pub(super) fn filtered() -> Error {
    Error::new(ErrorKind::Rejected, "the server's content filter stopped the answer")
}

/// The error of a reply whose first token is late.
pub(super) fn late_start() -> Error {
    Error::new(ErrorKind::Timeout, "no answer came in time")
}

/// The error of a reply that stopped before its end, or that does not stop.
fn late_end(since: Instant) -> Error {
    let what = if since.elapsed() >= MAX_RESPONSE_TIME {
        "the answer does not end"
    } else {
        "the answer stopped before its end"
    };
    Error::new(ErrorKind::Timeout, what)
}

/// The error of a connection. Only here a response is too large because it does not end.
fn broken(error: egress::Error) -> Error {
    match error {
        egress::Error::TooLarge => Error::new(ErrorKind::Failed, "the answer is too long"),
        error => error.into(),
    }
}

/// Reads the body of a response of status 2xx, a stream or not, and emits text as it arrives.
/// `deadline`: of the first token.
pub(super) async fn read_response(
    response: egress::Response,
    parser: &mut dyn StreamParser,
    timeouts: Timeouts,
    deadline: Instant,
    sink: &Sink<Event>,
) -> Result<(), Error> {
    if response.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
        let body = timeout_at(deadline, response.limit(egress::DEFAULT_BODY_LIMIT).body())
            .await
            .map_err(|_| late_start())??;
        return read_whole(parser, &body.text(), sink);
    }
    let chunks = stream::unfold(response, |mut response| async move {
        response.chunk().await.transpose().map(|chunk| (chunk, response))
    });
    read_stream(std::pin::pin!(chunks), parser, timeouts, deadline, sink).await
}

/// Reads a stream to its end and emits text as it arrives.
pub(super) async fn read_stream<S>(
    mut chunks: S,
    answer: &mut dyn StreamParser,
    times: Timeouts,
    mut deadline: Instant,
    sink: &Sink<Event>,
) -> Result<(), Error>
where
    S: Stream<Item = Result<Bytes, egress::Error>> + Unpin,
{
    let mut decoder = SseDecoder::default();
    let (since, mut started, mut ended) = (Instant::now(), false, false);
    loop {
        let mut events: Vec<String> = Vec::new();
        let mut at_end = false;
        // A chunk that is there wins over the deadline, and some servers always have one.
        let limit = deadline.min(since + MAX_RESPONSE_TIME);
        let is_late = Instant::now() >= limit;
        let next = if is_late { None } else { timeout_at(limit, chunks.next()).await.ok() };
        match next {
            Some(Some(Ok(chunk))) => {
                let too_long =
                    |_| Error::new(ErrorKind::Failed, "the server sent an oversized event");
                decoder.push(&chunk, |data| events.push(data.to_owned())).map_err(too_long)?;
            }
            // The reply is complete. Neither a wait for the token counts nor a broken connection is
            // a failure.
            None | Some(Some(Err(_))) if answer.is_finished() => at_end = true,
            None => return Err(if started { late_end(since) } else { late_start() }),
            Some(Some(Err(error))) => return Err(broken(error)),
            Some(None) => {
                decoder.finish(|data| events.push(data.to_owned()));
                at_end = true;
            }
        }
        for event_data in events {
            let delta = answer.push(&event_data)?;
            if delta.progressed {
                started = true;
                deadline = Instant::now() + times.between_tokens;
            }
            if !delta.text.is_empty() {
                sink.send(Event::Text(delta.text));
            }
        }
        if answer.is_finished() && !ended {
            ended = true;
            deadline = Instant::now() + times.usage;
        }
        if answer.is_closed() && !at_end {
            // The bytes that end the body usually arrive with the last event. If they are read, the
            // connection can be reused.
            let rest = async { while let Some(Ok(_)) = chunks.next().await {} };
            at_end = true;
            drop(timeout_at(Instant::now() + Duration::from_millis(5), rest).await);
        }
        if at_end {
            break;
        }
    }
    finish_answer(answer, sink)
}

/// Reads a response that is not a stream.
fn read_whole(answer: &mut dyn StreamParser, text: &str, sink: &Sink<Event>) -> Result<(), Error> {
    let delta = answer.push(text)?;
    if !delta.text.is_empty() {
        sink.send(Event::Text(delta.text));
    }
    finish_answer(answer, sink)
}

fn finish_answer(answer: &mut dyn StreamParser, sink: &Sink<Event>) -> Result<(), Error> {
    for event in answer.finish()? {
        sink.send(event);
    }
    Ok(())
}
