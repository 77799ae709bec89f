//! The servers of the vendors that clients ask with HTTP requests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, sleep_until};

use super::speech::{AgentSpeech, TRANSCRIPT_DELAY, stamped_samples};
use super::{Measured, answer};
use crate::calls::CHUNK_SAMPLES;
use crate::stamp::{self, STAMP_SAMPLES};

/// Maximum size of a request in bytes.
const MAX_BODY: usize = 1 << 24;
/// Gemini's path for the model of the measurement.
const GENERATE_CONTENT: &str = "/v1beta/models/a-model:streamGenerateContent";
/// Bytes of the header of a WAV file.
const WAV_HEADER: usize = 44;

/// A piece of a body: the time at which it is sent, and what makes it then.
pub(super) type Piece = (Instant, Box<dyn FnOnce() -> Bytes + Send>);

/// Serves the requests of a connection.
pub(super) async fn serve<S>(stream: S, measured: Arc<Measured>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let measured = Arc::clone(&measured);
        async move { Ok::<_, Infallible>(respond(request, &measured).await) }
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
    {
        eprintln!("a connection ended: {error}");
    }
}

async fn respond(request: Request<Incoming>, measured: &Measured) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(Body::new(body), MAX_BODY).await else {
        return response(StatusCode::BAD_REQUEST, "text/plain", "the request is not complete");
    };
    let ok = StatusCode::OK;
    match head.uri.path() {
        "/v1/audio/transcriptions" => {
            measured.stt_out.record(last_stamp(&body).unwrap_or_default());
            sleep(TRANSCRIPT_DELAY).await;
            let text = format!("word0 word1 word2 {}", stamp::now());
            let usage = json!({"type": "duration", "seconds": 4});
            response(ok, "application/json", json!({"text": text, "usage": usage}).to_string())
        }
        "/v1/audio/speech" => {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = request["input"].as_str().unwrap_or_default();
            measured.tts_out.record(first_stamp(text));
            response(ok, "audio/pcm", timed(speech(text)))
        }
        path @ ("/v1/chat/completions" | "/v1/messages" | "/v1/responses" | GENERATE_CONTENT) => {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            measured.llm_out.record(first_stamp(answer::question(&request)));
            let pieces = match path {
                "/v1/messages" => answer::message(),
                "/v1/responses" => answer::response(),
                GENERATE_CONTENT => answer::content(),
                _ => answer::chat_completion(),
            };
            response(ok, "text/event-stream", timed(pieces))
        }
        // A request that opens the connection.
        "/v1/models" | "/v1beta/models" => {
            response(ok, "application/json", r#"{"object":"list","data":[]}"#)
        }
        path => {
            eprintln!("unknown path {path}");
            response(StatusCode::NOT_FOUND, "text/plain", "unknown path")
        }
    }
}

fn response(status: StatusCode, content_type: &str, body: impl Into<Body>) -> Response<Body> {
    let builder = Response::builder().status(status).header("content-type", content_type);
    builder.body(body.into()).expect("a valid response")
}

/// A body that is sent piece by piece.
fn timed(pieces: VecDeque<Piece>) -> Body {
    Body::from_stream(stream::unfold(pieces, |mut pieces| async move {
        let (due, make) = pieces.pop_front()?;
        sleep_until(due).await;
        Some((Ok::<_, Infallible>(make()), pieces))
    }))
}

/// The speech for a text of ASCII characters and the pause after it, as long as one character.
fn speech(text: &str) -> VecDeque<Piece> {
    let (parts, _) = AgentSpeech::default().parts(text.len() + 1);
    let piece = |part: super::speech::Part| -> Piece {
        (part.due, Box::new(move || stamped_samples(&part)))
    };
    parts.into_iter().map(piece).collect()
}

/// The stamp at the beginning of a text; 0 if there is none.
fn first_stamp(text: &str) -> u64 {
    text.split(' ').next().and_then(|stamp| stamp.parse().ok()).unwrap_or_default()
}

/// The stamp of the last complete chunk of the WAV file in a form.
fn last_stamp(form: &[u8]) -> Option<u64> {
    let start = form.windows(4).position(|bytes| bytes == b"RIFF")? + WAV_HEADER;
    let size = form.get(start - 4..start)?.first_chunk::<4>().copied().map(u32::from_le_bytes)?;
    let samples = form.get(start..start + size as usize)?.as_chunks::<2>().0;
    let last = (samples.len() / CHUNK_SAMPLES).checked_sub(1)? * CHUNK_SAMPLES;
    let stamp = samples.get(last..)?.first_chunk::<STAMP_SAMPLES>()?;
    Some(stamp::read(&stamp.map(i16::from_le_bytes)))
}
