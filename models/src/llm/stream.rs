//! Reads the response of a server to its end, for every protocol.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
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

/// Content of one event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerDelta {
    /// Text to be spoken.
    pub(super) text: String,
    /// Whether the reply progressed: text, or part of a tool call.
    pub(super) progressed: bool,
}

/// Parser of a streamed reply in one protocol. Pure.
pub(super) trait StreamParser {
    /// Processes the data of an event. An error contains the server's message, from which the
    /// caller must remove secrets.
    fn push(&mut self, data: &str) -> Result<AnswerDelta, Error>;

    /// Whether the end mark has arrived.
    fn is_finished(&self) -> bool;

    /// Whether no more data can arrive.
    fn is_closed(&self) -> bool;

    /// Ends the stream: returns its tool calls, then its end.
    fn finish(self) -> Result<Vec<Event>, Error>;
}

/// The error of an expired time limit.
pub(super) fn timeout_error() -> Error {
    Error::new(ErrorKind::Timeout, "timeout")
}

/// Reads the body of a response of status 2xx, a stream or not, and emits text as it arrives.
/// `deadline`: of the first token.
pub(super) async fn read_response(
    response: egress::Response,
    parser: impl StreamParser,
    timeouts: Timeouts,
    deadline: Instant,
    sink: &Sink<Event>,
) -> Result<(), Error> {
    if response.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
        let body = timeout_at(deadline, response.limit(egress::DEFAULT_BODY_LIMIT).body())
            .await
            .map_err(|_| timeout_error())??;
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
    mut answer: impl StreamParser,
    times: Timeouts,
    mut deadline: Instant,
    sink: &Sink<Event>,
) -> Result<(), Error>
where
    S: Stream<Item = Result<Bytes, egress::Error>> + Unpin,
{
    let mut decoder = SseDecoder::default();
    let mut ended = false;
    loop {
        let mut events: Vec<String> = Vec::new();
        let mut at_end = false;
        match timeout_at(deadline, chunks.next()).await {
            Ok(Some(Ok(chunk))) => {
                let too_long =
                    |_| Error::new(ErrorKind::Failed, "the server sent an oversized event");
                decoder.push(&chunk, |data| events.push(data.to_owned())).map_err(too_long)?;
            }
            // The reply is complete. Neither a wait for the token counts nor a broken connection is
            // a failure.
            Err(_) | Ok(Some(Err(_))) if answer.is_finished() => at_end = true,
            Err(_) => return Err(timeout_error()),
            Ok(Some(Err(error))) => return Err(error.into()),
            Ok(None) => {
                decoder.finish(|data| events.push(data.to_owned()));
                at_end = true;
            }
        }
        for event_data in events {
            let delta = answer.push(&event_data)?;
            if delta.progressed {
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
fn read_whole(mut answer: impl StreamParser, text: &str, sink: &Sink<Event>) -> Result<(), Error> {
    let delta = answer.push(text)?;
    if !delta.text.is_empty() {
        sink.send(Event::Text(delta.text));
    }
    finish_answer(answer, sink)
}

fn finish_answer(answer: impl StreamParser, sink: &Sink<Event>) -> Result<(), Error> {
    for event in answer.finish()? {
        sink.send(event);
    }
    Ok(())
}
