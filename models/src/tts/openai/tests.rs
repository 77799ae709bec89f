//! Speech from a server in this process.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;
use crate::hosted::loopback::{KEY, client};
use crate::tts::hosted::test_sink::{Speech, sink};

/// Requests that arrived, and the responses to come.
#[derive(Default)]
struct FakeServer {
    requests: Mutex<Vec<(String, Value)>>,
    responses: Mutex<Vec<Response>>,
    arrived: Notify,
}

async fn handle(
    State(server): State<Arc<FakeServer>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    assert_eq!(headers["authorization"], format!("Bearer {KEY}").as_str());
    assert!(!uri.to_string().contains(KEY));
    let body = serde_json::from_slice(&body).unwrap_or_default();
    server.requests.lock().unwrap().push((uri.path().to_owned(), body));
    server.arrived.notify_one();
    server.responses.lock().unwrap().remove(0)
}

async fn serve(responses: Vec<Response>) -> (Arc<FakeServer>, OpenAiConfig) {
    let server = Arc::new(FakeServer { responses: Mutex::new(responses), ..FakeServer::default() });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("ws://{}/v1/audio/speech", listener.local_addr().unwrap());
    let app = Router::new().fallback(handle).with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (server, config_of(&url))
}

fn config_of(url: &str) -> OpenAiConfig {
    let config = OpenAiConfig {
        url: url.into(),
        token: Some(KEY.into()),
        model: "kokoro".into(),
        ..OpenAiConfig::default()
    };
    assert!(!format!("{config:?}").contains(KEY));
    config
}

fn voice_of(config: &OpenAiConfig) -> Arc<dyn Tts> {
    openai(config, client(), Runtime::current()).unwrap()
}

fn request(text: &str) -> Request {
    Request {
        text: text.into(),
        voice: "af_heart".into(),
        pronunciation: vec![("nginx".into(), "engine x".into())],
        ..Request::default()
    }
}

async fn speech(config: &OpenAiConfig, text: &str) -> Speech {
    let tts = voice_of(config);
    let (sink, mut events) = sink();
    let _handle = tts.speak(request(text), sink).unwrap();
    let speech = events.speech().await;
    assert!(!speech.failed.contains(&KEY[..8]), "{}", speech.failed);
    speech
}

/// A body of these pieces, which does not end if the last one is empty.
fn streamed(content_type: &'static str, pieces: &[&'static [u8]]) -> Response {
    let endless = pieces.last().is_some_and(|piece| piece.is_empty());
    let chunks =
        stream::iter(pieces.iter().copied().filter(|piece| !piece.is_empty()).collect::<Vec<_>>())
            .map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece)));
    let body = if endless {
        Body::from_stream(chunks.chain(stream::pending()))
    } else {
        Body::from_stream(chunks)
    };
    ([("content-type", content_type)], body).into_response()
}

#[tokio::test]
async fn a_text_becomes_samples_with_its_pronunciation() {
    let pcm = streamed("audio/pcm", &[b"\x01", b"\x00\x02\x00", b"\xff\xff"]);
    let (server, config) = serve(vec![pcm]).await;
    let spoken = speech(&config, "Start nginx!").await;
    assert_eq!((spoken.samples, spoken.sample_rate), (vec![1, 2, -1], 24_000));
    assert_eq!((spoken.characters, spoken.failed.as_str()), (15, ""));
    let requests = server.requests.lock().unwrap();
    let expected = json!({
        "input": "Start engine x!", "model": "kokoro", "voice": "af_heart",
        "response_format": "pcm", "sample_rate": 24_000,
    });
    assert_eq!(requests[..], [("/v1/audio/speech".to_owned(), expected)]);
}

#[tokio::test]
async fn a_text_without_letters_is_not_sent() {
    let (server, config) = serve(Vec::new()).await;
    assert_eq!(speech(&config, " … ").await, Speech::default());
    assert!(server.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_opens_its_connection_at_once_and_requests_two_segments_at_a_time() {
    let response = || streamed("audio/pcm", &[b"\x01\x00"]);
    let open = || streamed("audio/pcm", &[b"\x01\x00", b""]);
    let (server, config) = serve(vec![response(), open(), open(), response()]).await;
    let call = voice_of(&config).open_call(&Request::default()).unwrap();
    server.arrived.notified().await;
    assert_eq!(server.requests.lock().unwrap()[0].0, "/v1/models");
    let mut segments = Vec::new();
    for text in ["One.", "Two.", "Three."] {
        let (sink, events) = sink();
        segments.push((call.speak(request(text), sink).unwrap(), events));
    }
    for _ in 0..2 {
        server.arrived.notified().await;
    }
    tokio::task::yield_now().await;
    let count = || server.requests.lock().unwrap().len();
    assert_eq!(count(), 3);
    // A cancelled segment makes room.
    drop(segments.remove(0));
    let third = segments[1].1.speech().await;
    assert_eq!((third.samples, count()), (vec![1], 4));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_is_not_waited_for() {
    let (_, config) = serve(vec![streamed("audio/pcm", &[b"\x01\x00", b""])]).await;
    let stopped = speech(&config, "Hello.").await;
    assert_eq!(
        (stopped.samples, stopped.failed.as_str()),
        (vec![1], "Timeout OpenAI-compatible TTS stopped in the middle of the speech")
    );
    let (_, config) = serve(vec![streamed("audio/pcm", &[b""])]).await;
    let silent = speech(&config, "Hello.").await;
    assert_eq!(silent.failed, "Timeout OpenAI-compatible TTS gave no sound in time");
}

#[tokio::test]
async fn errors_name_the_vendor_that_the_agent_names() {
    let refused = StatusCode::UNAUTHORIZED.into_response();
    let (_, config) = serve(vec![refused]).await;
    let config = OpenAiConfig { name: Some("OpenAI"), ..config };
    let failed = speech(&config, "Hello.").await.failed;
    assert_eq!(failed, "InvalidKey The API key for OpenAI is not valid");
    let wrong = OpenAiConfig { url: "nonsense".into(), ..config };
    let error = openai(&wrong, client(), Runtime::current()).err().unwrap().to_string();
    assert!(error.contains("OpenAI") && !error.contains("compatible"), "{error}");
}

#[tokio::test]
async fn refusals_are_one_sentence_without_the_key() {
    let status =
        |status: u16, body: String| (StatusCode::from_u16(status).unwrap(), body).into_response();
    let openai =
        |code: &str| json!({"error": {"message": format!("no {KEY}"), "code": code}}).to_string();
    let kokoro = json!({"detail": {"error": "x", "message": "no such voice"}}).to_string();
    for (response, expected) in [
        (status(401, openai("")), "InvalidKey The API key for OpenAI-compatible TTS is not valid"),
        (
            status(429, openai("insufficient_quota")),
            "NoCredit The OpenAI-compatible TTS account has no credit left",
        ),
        (
            status(400, openai("")),
            "Rejected OpenAI-compatible TTS refused the request, status 400: no ***",
        ),
        (
            status(404, kokoro),
            "Rejected OpenAI-compatible TTS refused the request, status 404: no such voice",
        ),
        (status(500, "<html>".into()), "Failed OpenAI-compatible TTS failed with status 500"),
        (
            streamed("audio/mpeg", &[b"x"]),
            "Rejected OpenAI-compatible TTS sends \"audio/mpeg\" instead of pcm or wav",
        ),
        (streamed("audio/pcm", &[]), "Failed OpenAI-compatible TTS sent no sound"),
    ] {
        let (_, config) = serve(vec![response]).await;
        assert_eq!(speech(&config, "Hello.").await.failed, expected);
    }
}

#[tokio::test]
async fn an_endless_stream_ends() {
    static SECOND: [u8; 96_000] = [0; 96_000];
    let chunks = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&SECOND)));
    let response = ([("content-type", "audio/pcm")], Body::from_stream(chunks)).into_response();
    let (_, config) = serve(vec![response]).await;
    let endless = speech(&config, "Hi.").await;
    assert_eq!(
        endless.failed,
        "Failed OpenAI-compatible TTS sends more sound than the text can take"
    );
    assert!(endless.samples.len() <= 5 * 24_000);
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_first_sound_is_replaced_once() {
    let broken = || {
        let chunks = stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
        ([("content-type", "audio/pcm")], Body::from_stream(chunks)).into_response()
    };
    let sound = || streamed("audio/pcm", &[&[1, 0, 2, 0]]);
    let (server, config) = serve(vec![broken(), sound()]).await;
    let speech_after_one = speech(&config, "Hi.").await;
    assert_eq!((speech_after_one.failed.as_str(), speech_after_one.samples), ("", vec![1, 2]));
    assert_eq!(server.requests.lock().unwrap().len(), 2);
    let (server, config) = serve(vec![broken(), broken(), sound()]).await;
    let failed = speech(&config, "Hi.").await.failed;
    assert!(failed.starts_with("Failed The connection to OpenAI-compatible TTS"), "{failed}");
    assert_eq!(server.requests.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn voices_are_listed_in_all_forms() {
    for list in [
        json!({"voices": ["af_heart", "am_adam"]}),
        json!({"voices": [{"id": "af_heart", "name": "Heart"}, {"voice_id": "am_adam"}, {}, 3]}),
        json!(["af_heart", {"name": "am_adam", "gender": "male"}]),
    ] {
        let (server, config) = serve(vec![axum::Json(list).into_response()]).await;
        let query = VoiceQuery { limit: 10, ..VoiceQuery::default() };
        let page = voices(&config, client(), &query).await.unwrap();
        let ids: Vec<&str> = page.voices.iter().map(|voice| voice.id.as_str()).collect();
        assert_eq!((ids, page.total), (vec!["af_heart", "am_adam"], 2));
        assert_eq!(server.requests.lock().unwrap()[0].0, "/v1/audio/voices");
    }
    let query = VoiceQuery { search: "ma".into(), limit: 9, ..VoiceQuery::default() };
    assert_eq!(voices(&config_of(""), client(), &query).await.unwrap().voices[0].id, "marin");
    let own = voice_of(&config_of(""));
    assert!(!own.has_voice("slt") && own.has_voice("nova"));
}
