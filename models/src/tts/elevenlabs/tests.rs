//! Calls through ElevenLabs in this process.

mod faults;

use serde_json::json;

use super::*;
use crate::tts::Request;
use crate::tts::hosted::test_server::{Call, KEY, Peer, client, durations, pcm_base64};

async fn start(config: ElevenLabsConfig) -> Call {
    Call::open(|url, client, runtime| {
        let config = ElevenLabsConfig { url, token: Some(KEY.into()), ..config };
        assert!(!format!("{config:?}").contains(KEY));
        elevenlabs(&config, client, runtime)
    })
    .await
}

async fn start_default() -> (Call, Peer) {
    let call = start(ElevenLabsConfig::default()).await;
    let peer = call.accept().await;
    (call, peer)
}

/// Receives the beginning of a context, and its first text.
async fn first_text(peer: &mut Peer, context: &str, text: &str) {
    assert_eq!(peer.json().await, json!({"text": " ", "context_id": context}));
    next_text(peer, context, text).await;
}

async fn next_text(peer: &mut Peer, context: &str, text: &str) {
    let expected = json!({"text": format!("{text} "), "context_id": context, "flush": true});
    assert_eq!(peer.json().await, expected);
}

/// A message with sound, and times of characters that last 50 ms each.
fn sound(context: &str, millis: usize, value: i16, text: &str, begin: usize) -> Value {
    let starts: Vec<usize> = (0..text.chars().count()).map(|n| begin + 50 * n).collect();
    json!({
        "audio": pcm_base64(millis, value), "contextId": context, "isFinal": null,
        "normalizedAlignment": null,
        "alignment": {
            "chars": text.chars().map(String::from).collect::<Vec<_>>(),
            "charStartTimesMs": starts, "charDurationsMs": vec![50; starts.len()],
        },
    })
}

fn flush_done(context: &str) -> Value {
    json!({"type": "flush_done", "contextId": context})
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_spoken_in_one_context_and_its_segments_end_with_marks() {
    let (values, ignored) = (json!({"stability": 0.4, "speed": 1.1, "seed": 3}), ["seed"]);
    let (options, found) = Options::read(values.as_object().unwrap());
    assert_eq!(found, ignored);
    let (voice, language) = ("Vö/1".into(), "de-AT".into());
    let call = start(ElevenLabsConfig { voice, language, options, ..Default::default() }).await;
    let mut peer = call.accept().await;
    assert_eq!(peer.handshake.headers()["xi-api-key"], KEY);
    assert_eq!(
        peer.target(),
        "/v1/text-to-speech/V%C3%B6%2F1/multi-stream-input?model_id=eleven_flash_v2_5\
         &output_format=pcm_24000&sync_alignment=true&language_code=de&enable_logging=false\
         &auto_mode=true&inactivity_timeout=180"
    );
    let request = |text: &str| Request {
        text: text.into(),
        reply: 7,
        pronunciation: vec![("SQL".into(), "sequel".into())],
        ..Request::default()
    };
    let mut first = call.request(request("Use SQL."));
    let settings = json!({"stability": 0.4, "speed": 1.1});
    let expected = json!({"text": " ", "context_id": "reply-1", "voice_settings": settings});
    assert_eq!(peer.json().await, expected);
    next_text(&mut peer, "reply-1", "Use sequel.").await;
    let mut second = call.request(request("Now."));
    next_text(&mut peer, "reply-1", "Now.").await;
    peer.send(sound("reply-1", 300, 1, "Use se", 0)).await;
    peer.send(sound("reply-1", 400, 2, "quel. ", 300)).await;
    peer.send(flush_done("reply-1")).await;
    peer.send(sound("reply-1", 250, 3, "Now. ", 700)).await;
    peer.send(flush_done("reply-1")).await;
    let speech = first.speech().await;
    assert_eq!(
        (durations(&speech.samples), speech.sample_rate),
        (vec![(1, 300), (2, 400)], 24_000)
    );
    assert_eq!(speech.words, [("Use".into(), 0, 150), ("SQL.".into(), 200, 550)]);
    assert_eq!((speech.characters, speech.failed.as_str()), (11, ""));
    let speech = second.speech().await;
    assert_eq!(durations(&speech.samples), [(3, 250)]);
    assert_eq!(speech.words, [("Now.".into(), 0, 200)]);
    // The context ends when the reply pauses, and the next text of it begins another one.
    call.advance(5_000).await;
    assert_eq!(peer.json().await, json!({"context_id": "reply-1", "close_context": true}));
    peer.send(json!({"isFinal": true, "contextId": "reply-1"})).await;
    let _third = call.request(request("More."));
    assert_eq!(peer.json().await["context_id"], "reply-2");
}

#[tokio::test(start_paused = true)]
async fn without_marks_the_words_separate_the_segments_whatever_their_times_count_from() {
    for relative in [false, true] {
        let (call, mut peer) = start_default().await;
        let (mut first, mut second) = (call.speak(1, "One two."), call.speak(1, "Three."));
        first_text(&mut peer, "reply-1", "One two.").await;
        next_text(&mut peer, "reply-1", "Three.").await;
        let at = |millis| if relative { 0 } else { millis };
        peer.send(sound("reply-1", 200, 1, "One ", 0)).await;
        peer.send(sound("reply-1", 300, 2, "two. ", at(200))).await;
        peer.send(sound("reply-1", 400, 3, "Three. ", at(500))).await;
        let speech = first.speech().await;
        assert_eq!(durations(&speech.samples), [(1, 200), (2, 300)], "{relative}");
        assert_eq!(speech.words, [("One".into(), 0, 150), ("two.".into(), 200, 400)]);
        call.advance(900).await;
        call.advance(200).await;
        let speech = second.speech().await;
        assert_eq!((durations(&speech.samples), speech.failed), (vec![(3, 400)], String::new()));
        assert_eq!(speech.words, [("Three.".into(), 0, 300)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_reply_is_cancelled_at_once_and_its_late_sound_is_dropped() {
    let (call, mut peer) = start_default().await;
    for reply in 1..=4 {
        let context = format!("reply-{reply}");
        let (mut first, second) = (call.speak(reply, "One."), call.speak(reply, "Two."));
        first_text(&mut peer, &context, "One.").await;
        next_text(&mut peer, &context, "Two.").await;
        peer.send(sound(&context, 100, 1, "On", 0)).await;
        let mut heard = false;
        while !heard {
            tokio::task::yield_now().await;
            heard = matches!(first.events.try_next(), Some(crate::tts::Event::Audio { .. }));
        }
        drop((first.handle, second.handle));
        assert_eq!(peer.json().await, json!({"context_id": context, "close_context": true}));
        peer.send(sound(&context, 500, 9, "e. ", 100)).await;
        // The first one is final, the others are not.
        if reply == 1 {
            peer.send(json!({"isFinal": true, "contextId": context})).await;
        }
        assert!(first.events.try_next().is_none());
    }
    // Three contexts are not final; with this one, they are four.
    let mut next = call.speak(5, "Three.");
    first_text(&mut peer, "reply-5", "Three.").await;
    peer.send(sound("reply-4", 500, 9, "Two. ", 0)).await;
    peer.send(sound("reply-5", 300, 3, "Three. ", 0)).await;
    peer.send(flush_done("reply-5")).await;
    let speech = next.speech().await;
    assert_eq!((durations(&speech.samples), speech.text()), (vec![(3, 300)], "Three.".into()));
    // The next reply would be the sixth context of a connection.
    let mut last = call.speak(6, "Four.");
    let mut other = call.accept().await;
    first_text(&mut other, "reply-6", "Four.").await;
    other.send(sound("reply-6", 200, 4, "Four. ", 0)).await;
    other.send(flush_done("reply-6")).await;
    assert_eq!(durations(&last.speech().await.samples), [(4, 200)]);
    assert_eq!(peer.json().await, json!({"close_socket": true}));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_cut_off_closes_its_context_also_after_its_last_sound() {
    let (call, mut peer) = start_default().await;
    let tts = call.tts.as_ref().unwrap();
    let mut first = call.speak(1, "One.");
    first_text(&mut peer, "reply-1", "One.").await;
    peer.send(sound("reply-1", 300, 1, "One. ", 0)).await;
    peer.send(flush_done("reply-1")).await;
    assert_eq!(first.speech().await.failed, "");
    tts.cancel_reply(7);
    tts.cancel_reply(1);
    assert_eq!(peer.json().await, json!({"context_id": "reply-1", "close_context": true}));
    let _second = call.speak(2, "Two.");
    first_text(&mut peer, "reply-2", "Two.").await;
    tts.cancel_reply(2);
    assert_eq!(peer.json().await, json!({"context_id": "reply-2", "close_context": true}));
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_is_cancelled_alone_does_not_end_the_reply() {
    let (call, mut peer) = start_default().await;
    let (mut first, second) = (call.speak(1, "One."), call.speak(1, "Two."));
    let mut third = call.speak(1, "Three.");
    drop(second.handle);
    first_text(&mut peer, "reply-1", "One.").await;
    // It was cancelled before or after it was sent.
    peer.send(sound("reply-1", 100, 1, "One. ", 0)).await;
    peer.send(flush_done("reply-1")).await;
    assert_eq!(durations(&first.speech().await.samples), [(1, 100)]);
    let mut message = peer.json().await;
    if message["text"] == "Two. " {
        peer.send(sound("reply-1", 100, 2, "Two. ", 100)).await;
        peer.send(flush_done("reply-1")).await;
        message = peer.json().await;
    }
    assert_eq!(message["text"], "Three. ");
    peer.send(sound("reply-1", 200, 3, "Three. ", 200)).await;
    peer.send(flush_done("reply-1")).await;
    assert_eq!(durations(&third.speech().await.samples), [(3, 200)]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_open_without_a_context_and_closed_with_the_call() {
    let (mut call, mut peer) = start_default().await;
    for _ in 0..3 {
        call.advance(15_000).await;
        assert_eq!(peer.json().await, json!({"text": ""}));
    }
    call.tts = None;
    assert_eq!(peer.json().await, json!({"close_socket": true}));
    call.advance(600).await;
    assert_eq!(peer.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn another_voice_or_language_needs_another_connection() {
    let (call, mut peer) = start_default().await;
    let request = Request {
        text: "Bonjour.".into(),
        voice: "other".into(),
        language: Some("fr".into()),
        ..Request::default()
    };
    let _segment = call.request(request);
    let mut other = call.accept().await;
    assert!(other.target().starts_with("/v1/text-to-speech/other/multi-stream-input?"));
    assert!(other.target().contains("&language_code=fr&"));
    first_text(&mut other, "reply-1", "Bonjour.").await;
    assert_eq!(peer.json().await, json!({"close_socket": true}));
}

#[tokio::test(start_paused = true)]
async fn models_of_dialogues_have_their_own_endpoint() {
    let options = Options { stability: Some(0.5), ..Options::default() };
    let (model, voice) = ("eleven_v4_turbo".into(), "V".into());
    let call = start(ElevenLabsConfig { model, voice, options, ..Default::default() }).await;
    let mut peer = call.accept().await;
    assert_eq!(
        peer.target(),
        "/v1/text-to-dialogue/multi-stream-input?model_id=eleven_v4_turbo&output_format=pcm_24000\
         &sync_alignment=true&enable_logging=false"
    );
    let mut segment = call.speak(1, "Hello there.");
    let settings = json!({"stability": 0.5});
    let first = json!({"context_id": "reply-1", "voices": ["V"], "voice_settings": settings});
    assert_eq!(peer.json().await, first);
    let inputs = json!([{"text": "Hello there. ", "voice_id": "V"}]);
    assert_eq!(
        peer.json().await,
        json!({"context_id": "reply-1", "inputs": inputs, "flush": true})
    );
    for (text, value) in [("Hello ", 1), ("there. ", 2)] {
        let times: Vec<usize> = (0..text.len()).map(|n| 50 * n).collect();
        peer.send(json!({
            "audio": pcm_base64(350, value), "context_id": "reply-1",
            "alignment": {
                "chars": text.chars().map(String::from).collect::<Vec<_>>(),
                "char_start_times_ms": times, "char_durations_ms": vec![50; times.len()],
            },
        }))
        .await;
    }
    peer.send(json!({"is_final": true, "context_id": "reply-1"})).await;
    let speech = segment.speech().await;
    assert_eq!(speech.words, [("Hello".into(), 0, 250), ("there.".into(), 350, 650)]);
}

#[tokio::test]
async fn voices_are_listed_from_all_pages() {
    let call = start(ElevenLabsConfig::default()).await;
    let _socket = call.accept_silently().await;
    let page = |id: &str, more: bool| {
        let labels = json!({"gender": "female", "language": "de"});
        json!({
            "voices": [{"voice_id": id, "name": "Anna", "labels": labels, "preview_url": "u"}, {}],
            "has_more": more, "next_page_token": "t2", "total_count": 2,
        })
        .to_string()
    };
    let config = ElevenLabsConfig {
        url: call.url(),
        token: Some(KEY.into()),
        ..ElevenLabsConfig::default()
    };
    let query = VoiceQuery { search: "ann".into(), limit: 1, ..VoiceQuery::default() };
    let (first, second) = (page("a", true), page("b", false));
    let server = async {
        let first = call.refuse("200 OK", &first).await;
        (first, call.refuse("200 OK", &second).await)
    };
    let (listed, targets) = tokio::join!(voices(&config, client(), &query), server);
    let listed = listed.unwrap();
    assert_eq!((listed.total, listed.voices.len()), (2, 1));
    let anna = &listed.voices[0];
    assert_eq!((anna.id.as_str(), anna.language.as_deref()), ("a", Some("de")));
    assert_eq!((anna.gender.as_deref(), anna.preview.as_deref()), (Some("female"), Some("u")));
    assert_eq!(targets.0, "/v2/voices?page_size=100");
    assert_eq!(targets.1, "/v2/voices?page_size=100&next_page_token=t2");
    let body = format!("bad {KEY}");
    let (refused, _) = tokio::join!(voices(&config, client(), &query), call.refuse("401 X", &body));
    assert_eq!(refused.unwrap_err().to_string(), "The API key for ElevenLabs is not valid");
}
