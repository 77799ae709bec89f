//! Streams against a server in this process.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::stt::streaming::test_support::{CHUNK_SAMPLES, Harness, KEY};
use crate::stt::{Event, Usage};

/// A request for a transcript.
struct Asked {
    path: String,
    headers: HeaderMap,
    body: Bytes,
    answer: oneshot::Sender<Response>,
}

impl Asked {
    /// Checks the audio and answers.
    fn answer(self, chunks: usize, status: u16, body: &str) {
        assert_eq!(self.headers["authorization"], format!("Bearer {KEY}").as_str());
        let find = |part: &[u8]| self.body.windows(part.len()).position(|bytes| bytes == part);
        let start = find(b"\x10\0data").unwrap() + 6;
        let size = u32::from_le_bytes(self.body[start..start + 4].try_into().unwrap()) as usize;
        assert_eq!(size, 2 * chunks * CHUNK_SAMPLES);
        let audio = &self.body[start + 4..start + 4 + size];
        assert!(audio.chunks(2).all(|sample| sample == [0xfe, 0xff]));
        assert!(find(b"whisper-large-v3-turbo").is_some() && find(KEY.as_bytes()).is_none());
        let status = StatusCode::from_u16(status).unwrap();
        self.answer.send((status, body.to_owned()).into_response()).unwrap();
    }
}

/// The requests of a server.
struct Server(mpsc::UnboundedReceiver<Asked>);

impl Server {
    /// The next request that only opens a connection.
    async fn warm_up(&mut self) {
        let asked = self.0.recv().await.unwrap();
        assert_eq!(asked.path, "/models");
        asked.answer.send(StatusCode::NOT_FOUND.into_response()).unwrap();
    }

    /// The next request for a transcript.
    async fn request(&mut self) -> Asked {
        let asked = self.0.recv().await.unwrap();
        assert_eq!(asked.path, "/audio/transcriptions");
        asked
    }
}

async fn handle(
    State(asked): State<mpsc::UnboundedSender<Asked>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (answer, answered) = oneshot::channel();
    let path = uri.path().to_owned();
    let _ = asked.send(Asked { path, headers, body, answer });
    answered.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// A call with a server.
async fn start() -> (Harness, Server) {
    let mut call = Harness::start(groq).await;
    let (sender, asked) = mpsc::unbounded_channel();
    let router = Router::new().fallback(handle).with_state(sender);
    let listener = call.server.listener.take().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut server = Server(asked);
    server.warm_up().await;
    (call, server)
}

#[tokio::test(start_paused = true)]
async fn each_utterance_is_one_request_in_order() {
    let (mut call, mut server) = start().await;
    call.speak(10);
    call.user().end_speech();
    let first = server.request().await;
    // While the server works, the user goes on.
    call.speak(4);
    call.user().end_speech();
    call.speak(7);
    first.answer(10, 200, r#"{"text":" Hello."}"#);
    assert_eq!(call.event().await, "final Hello.");
    server.request().await.answer(4, 200, r#"{"text":"How are you?"}"#);
    assert_eq!(call.event().await, "final How are you?");
    call.user().end_speech();
    server.request().await.answer(7, 200, r#"{"text":""}"#);
    assert_eq!(call.event().await, "final ");
    // Too short for a word.
    call.speak(1);
    call.user().end_speech();
    assert_eq!(call.event().await, "final ");
    // A connection that was idle for long may be closed.
    call.advance(31_000).await;
    call.speak(2);
    server.warm_up().await;
    call.stream = None;
    let event = call.events.recv().await;
    let audio = Duration::from_millis(21 * 50);
    let usage = Usage { audio, requests: 3, ..Usage::default() };
    assert!(matches!(event, Some(Event::Usage(used)) if used == usage), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_is_repeated() {
    let (mut call, mut server) = start().await;
    call.speak(10);
    call.user().end_speech();
    server.request().await.answer(10, 503, "");
    server.request().await.answer(10, 200, "no JSON");
    let third = loop {
        tokio::select! {
            biased;
            third = server.request() => break third,
            () = call.advance(1) => {}
        }
    };
    third.answer(10, 200, r#"{"text":"Hello."}"#);
    assert_eq!(call.event().await, "final Hello.");
}

#[tokio::test]
async fn a_refusal_hands_the_call_over_with_the_utterance() {
    let key = format!(r#"{{"error":{{"message":"no model for {KEY}","code":"x"}}}}"#);
    let quota = r#"{"error":{"message":"You exceeded","code":"insufficient_quota"}}"#;
    for (status, body, sentence) in [
        (401, key.as_str(), "The API key for Groq is not valid"),
        (429, quota, "The Groq account has no credit left"),
        (404, key.as_str(), "Groq refused the request, status 404: no model for ***"),
    ] {
        let (mut call, mut server) = start().await;
        call.speak(4);
        call.user().end_speech();
        server.request().await.answer(4, status, body);
        let warning = format!("warning {sentence}; the built-in STT is used instead.");
        assert_eq!(call.event().await, warning);
        assert_eq!(call.event().await, format!("final {} samples", 4 * CHUNK_SAMPLES));
        call.speak(2);
        call.user().end_speech();
        assert_eq!(call.event().await, format!("final {} samples", 2 * CHUNK_SAMPLES));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_replaced() {
    let (mut call, mut server) = start().await;
    call.speak(20);
    call.user().end_speech();
    let _unanswered = server.request().await;
    call.speak(3);
    while call.events.is_empty() {
        call.advance(100).await;
    }
    assert_eq!(
        call.event().await,
        "warning Groq sends no transcript in time; the built-in STT is used instead."
    );
    assert_eq!(call.event().await, format!("final {} samples", 20 * CHUNK_SAMPLES));
    call.user().end_speech();
    assert_eq!(call.event().await, format!("final {} samples", 3 * CHUNK_SAMPLES));
}
