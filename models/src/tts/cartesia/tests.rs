//! Calls through Cartesia in this process.

use serde_json::json;

use super::*;
use crate::tts::Request;
use crate::tts::hosted::test_server::{Call, KEY, Peer, client, durations, pcm_base64};
use crate::tts::hosted::test_sink::sink;

async fn start(config: CartesiaConfig) -> Call {
    Call::open(|url, client, runtime| {
        let url = format!("{url}/prefix/tts/websocket");
        let config = CartesiaConfig { url, token: Some(KEY.into()), ..config };
        assert!(!format!("{config:?}").contains(KEY));
        cartesia(&config, client, runtime)
    })
    .await
}

async fn start_default() -> (Call, Peer) {
    let call = start(CartesiaConfig::default()).await;
    let peer = call.accept().await;
    (call, peer)
}

/// Receives a text; returns the context.
async fn text(peer: &mut Peer, text: &str) -> String {
    let message = peer.json().await;
    assert_eq!(message["transcript"], format!("{text} "));
    assert_eq!((&message["continue"], &message["max_buffer_delay_ms"]), (&json!(true), &json!(0)));
    message["context_id"].as_str().unwrap().to_owned()
}

fn chunk(context: &str, millis: usize, value: i16) -> Value {
    json!({
        "type": "chunk", "context_id": context, "status_code": 206, "done": false, "step_time": 9.5,
        "data": pcm_base64(millis, value),
    })
}

fn times(context: &str, words: &[(&str, f64, f64)]) -> Value {
    let list = |n: usize| -> Vec<f64> { words.iter().map(|w| [w.1, w.2][n]).collect() };
    let texts: Vec<&str> = words.iter().map(|word| word.0).collect();
    json!({
        "type": "timestamps", "context_id": context, "done": false,
        "word_timestamps": {"words": texts, "start": list(0), "end": list(1)},
    })
}

fn mark(context: &str, id: u32) -> Value {
    json!({"type": "flush_done", "context_id": context, "flush_id": id, "flush_done": true})
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_spoken_in_one_context() {
    let values = json!({"speed": 1.2, "output_format": "mp3"});
    let (options, ignored) = Options::read(values.as_object().unwrap());
    assert_eq!(ignored, ["output_format"]);
    let (voice, language) = ("v1".into(), "de_AT".into());
    let call = start(CartesiaConfig { voice, language, options, ..Default::default() }).await;
    let mut peer = call.accept().await;
    assert_eq!(peer.handshake.headers()["x-api-key"], KEY);
    assert_eq!(peer.target(), "/prefix/tts/websocket?cartesia_version=2025-04-16");
    let request = |text: &str| Request {
        text: text.into(),
        reply: 7,
        pronunciation: vec![("Visavis".into(), "Veezavee".into())],
        ..Request::default()
    };
    let (mut first, mut second) =
        (call.request(request("Ask Visavis.")), call.request(request("Now.")));
    let message = peer.json().await;
    let context = message["context_id"].as_str().unwrap().to_owned();
    let format = json!({"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000});
    let expected = json!({
        "context_id": context, "model_id": "sonic-3.5", "transcript": "Ask Veezavee. ",
        "voice": {"mode": "id", "id": "v1"}, "language": "de", "output_format": format,
        "continue": true, "max_buffer_delay_ms": 0, "add_timestamps": true,
        "use_normalized_timestamps": false, "generation_config": {"speed": 1.2},
    });
    assert_eq!(message, expected);
    assert_eq!(text(&mut peer, "Now.").await, context);
    peer.send(chunk(&context, 300, 1)).await;
    peer.send(times(&context, &[("Ask", 0.0, 0.2), ("Veezavee.", 0.2, 0.7)])).await;
    peer.send(chunk(&context, 500, 2)).await;
    peer.send(mark(&context, 1)).await;
    peer.send(times(&context, &[("Now.", 0.9, 1.1)])).await;
    peer.send(chunk(&context, 400, 3)).await;
    peer.send(mark(&context, 2)).await;
    let speech = first.speech().await;
    assert_eq!(
        (durations(&speech.samples), speech.sample_rate),
        (vec![(1, 300), (2, 500)], 24_000)
    );
    assert_eq!(speech.words, [("Ask".into(), 0, 200), ("Visavis.".into(), 200, 700)]);
    assert_eq!(speech.characters, 13);
    let speech = second.speech().await;
    assert_eq!(durations(&speech.samples), [(3, 400)]);
    assert_eq!(speech.words, [("Now.".into(), 100, 300)]);
    // In time, the reply goes on in its context; later, in another one.
    call.advance(500).await;
    let mut third = call.request(request("And"));
    assert_eq!(text(&mut peer, "And").await, context);
    peer.send(chunk(&context, 200, 4)).await;
    peer.send(mark(&context, 3)).await;
    assert_eq!(durations(&third.speech().await.samples), [(4, 200)]);
    call.advance(700).await;
    let _fourth = call.request(request("then."));
    assert_ne!(text(&mut peer, "then.").await, context);
}

#[tokio::test(start_paused = true)]
async fn a_context_that_has_expired_is_replaced_silently() {
    let (call, mut peer) = start_default().await;
    let mut segment = call.speak(1, "Hello.");
    let context = text(&mut peer, "Hello.").await;
    let expired = json!({
        "type": "error", "context_id": context, "status_code": 400, "done": true,
        "title": "Invalid context", "message": "The context has expired",
    });
    peer.send(&expired).await;
    let other = text(&mut peer, "Hello.").await;
    assert_ne!(other, context);
    peer.send(chunk(&other, 300, 1)).await;
    peer.send(json!({"type": "done", "context_id": other, "done": true})).await;
    let speech = segment.speech().await;
    assert_eq!((durations(&speech.samples), speech.failed), (vec![(1, 300)], String::new()));
    // Only once.
    let mut segment = call.speak(2, "Bye.");
    for _ in 0..2 {
        let context = text(&mut peer, "Bye.").await;
        peer.send(json!({"type": "done", "context_id": context, "done": true})).await;
    }
    assert_eq!(segment.speech().await.failed, "Failed Cartesia gave no sound for a text");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_reply_is_cancelled_at_once_and_its_late_sound_is_dropped() {
    let (call, mut peer) = start_default().await;
    let (first, second) = (call.speak(1, "One."), call.speak(1, "Two."));
    let context = text(&mut peer, "One.").await;
    text(&mut peer, "Two.").await;
    drop((first.handle, second.handle));
    assert_eq!(peer.json().await, json!({"context_id": context, "cancel": true}));
    let mut next = call.speak(2, "Three.");
    let other = text(&mut peer, "Three.").await;
    peer.send(chunk(&context, 500, 9)).await;
    peer.send(mark(&context, 1)).await;
    peer.send(json!({"type": "done", "context_id": context, "done": true})).await;
    peer.send(chunk(&other, 300, 3)).await;
    peer.send(mark(&other, 1)).await;
    assert_eq!(durations(&next.speech().await.samples), [(3, 300)]);
}

#[tokio::test(start_paused = true)]
async fn errors_fail_the_segments_and_the_connection_serves_the_next_reply() {
    let (call, mut peer) = start_default().await;
    let cases = [
        (429, "concurrency_limited", "Busy Cartesia is at its limit of simultaneous requests"),
        (402, "", "NoCredit The Cartesia account has no credit left"),
        (400, "bad_voice", "Rejected Cartesia refused the request, status 400: bad_voice: no ***"),
        (500, "", "Failed Cartesia failed with status 500: no ***"),
    ];
    for (reply, (status, code, expected)) in cases.into_iter().enumerate() {
        let (mut first, mut second) =
            (call.speak(reply as u64, "One."), call.speak(reply as u64, "Two."));
        let context = text(&mut peer, "One.").await;
        text(&mut peer, "Two.").await;
        let mut error = json!({
            "type": "error", "context_id": context, "status_code": status, "done": true,
            "message": format!("no {KEY}"),
        });
        if !code.is_empty() {
            error["error_code"] = code.into();
        }
        peer.send(&error).await;
        assert_eq!(first.speech().await.failed, expected);
        assert_eq!(second.speech().await.failed, expected);
    }
    let mut last = call.speak(9, "Three.");
    let context = text(&mut peer, "Three.").await;
    for garbage in ["", "{", "[]", "null", r#"{"type":3}"#, r#"{"type":"chunk","data":"AAAA"}"#] {
        peer.send(garbage).await;
    }
    peer.send_binary(vec![7; 999]).await;
    peer.send(json!({"type": "chunk", "context_id": context, "data": "?"})).await;
    peer.send(json!({"type": "phoneme_timestamps", "context_id": context})).await;
    peer.send(times(&context, &[])).await;
    peer.send(chunk(&context, 300, 3)).await;
    peer.send(json!({"type": "done", "context_id": context})).await;
    assert_eq!(durations(&last.speech().await.samples), [(3, 300)]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_replaced_before_the_vendor_closes_it() {
    let (mut call, mut peer) = start_default().await;
    call.advance(240_001).await;
    let mut other = call.accept().await;
    assert_eq!(peer.next().await, None);
    let _segment = call.speak(1, "Hello.");
    text(&mut other, "Hello.").await;
    call.tts = None;
    drop(_segment.handle);
    assert_eq!(other.json().await["cancel"], true);
    assert_eq!(other.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_text_outside_of_a_call_has_its_own_connection() {
    let (call, _peer) = start_default().await;
    let (sink, mut events) = sink();
    let request = Request { text: "Sample.".into(), ..Request::default() };
    let handle = call.voices.speak(request, sink).unwrap();
    let mut other = call.accept().await;
    let context = text(&mut other, "Sample.").await;
    other.send(chunk(&context, 400, 5)).await;
    other.send(mark(&context, 1)).await;
    assert_eq!(durations(&events.speech().await.samples), [(5, 400)]);
    drop(handle);
    assert_eq!(other.next().await, None);
}

#[tokio::test]
async fn voices_are_listed_from_all_pages() {
    let call = start(CartesiaConfig::default()).await;
    let _socket = call.accept_silently().await;
    let page = |id: &str, more: bool| {
        let voice = json!({"id": id, "name": "Eva", "language": "de", "gender": "feminine"});
        json!({"data": [voice, {"name": "no id"}], "has_more": more}).to_string()
    };
    let (url, token) = (call.url(), Some(KEY.into()));
    let config = CartesiaConfig { url, token, ..CartesiaConfig::default() };
    let query = VoiceQuery { language: "de-DE".into(), limit: 9, ..VoiceQuery::default() };
    let (first, second) = (page("a", true), page("b", false));
    let server = async {
        let first = call.refuse("200 OK", &first).await;
        (first, call.refuse("200 OK", &second).await)
    };
    let (listed, targets) = tokio::join!(voices(&config, client(), &query), server);
    let listed = listed.unwrap();
    assert_eq!((listed.total, listed.voices[1].id.as_str()), (2, "b"));
    assert_eq!(listed.voices[0].gender.as_deref(), Some("feminine"));
    assert_eq!(targets.0, "/voices?limit=100&expand%5B%5D=preview_file_url");
    assert!(targets.1.ends_with("&starting_after=a"), "{}", targets.1);
}
