//! Calls through Deepgram Aura in this process.

use serde_json::json;

use super::*;
use crate::tts::hosted::test_server::{Call, KEY, Peer, client, durations, pcm};

async fn start(config: DeepgramTtsConfig) -> Call {
    Call::open(|url, client, runtime| {
        let config = DeepgramTtsConfig { url, token: Some(KEY.into()), ..config };
        assert!(!format!("{config:?}").contains(KEY));
        deepgram(&config, client, runtime)
    })
    .await
}

async fn start_default() -> (Call, Peer) {
    let call = start(DeepgramTtsConfig::default()).await;
    let peer = call.accept().await;
    (call, peer)
}

async fn text(peer: &mut Peer, text: &str) {
    assert_eq!(peer.json().await, json!({"type": "Speak", "text": format!("{text} ")}));
    assert_eq!(peer.json().await, json!({"type": "Flush"}));
}

async fn flushed(peer: &mut Peer, millis: usize, value: i16) {
    // Odd sizes: a sample may be split.
    for bytes in pcm(millis, value).chunks(1_001) {
        peer.send_binary(bytes.to_vec()).await;
    }
    peer.send(json!({"type": "Flushed", "sequence_id": 0})).await;
}

#[tokio::test(start_paused = true)]
async fn segments_end_with_their_flush() {
    let values = json!({"speed": 0.9, "x": 1});
    let (options, ignored) = Options::read(values.as_object().unwrap());
    assert_eq!(ignored, ["x"]);
    assert_eq!(Options::read(json!({"speed": 9}).as_object().unwrap()).1, ["speed"]);
    let mut call = start(DeepgramTtsConfig { options, ..Default::default() }).await;
    let mut peer = call.accept().await;
    assert_eq!(peer.handshake.headers()["authorization"], format!("Token {KEY}").as_str());
    assert_eq!(
        peer.target(),
        "/v1/speak?model=aura-2-thalia-en&encoding=linear16&sample_rate=24000&mip_opt_out=true\
         &speed=0.9"
    );
    let (mut first, mut second) = (call.speak(1, "One."), call.speak(1, "Two."));
    text(&mut peer, "One.").await;
    text(&mut peer, "Two.").await;
    peer.send(json!({"type": "Metadata", "request_id": "r"})).await;
    flushed(&mut peer, 300, 1).await;
    flushed(&mut peer, 200, 2).await;
    let speech = first.speech().await;
    assert_eq!((durations(&speech.samples), speech.characters), (vec![(1, 300)], 4));
    assert_eq!(durations(&second.speech().await.samples), [(2, 200)]);
    drop((first, second));
    call.tts = None;
    assert_eq!(peer.json().await, json!({"type": "Close"}));
}

#[tokio::test(start_paused = true)]
async fn after_a_cancel_everything_is_dropped_until_it_is_answered() {
    let (call, mut peer) = start_default().await;
    let (first, second) = (call.speak(1, "One."), call.speak(1, "Two."));
    text(&mut peer, "One.").await;
    text(&mut peer, "Two.").await;
    drop((first.handle, second.handle));
    assert_eq!(peer.json().await, json!({"type": "Clear"}));
    let mut third = call.speak(2, "Three.");
    text(&mut peer, "Three.").await;
    flushed(&mut peer, 300, 9).await;
    peer.send_binary(vec![9]).await;
    peer.send(json!({"type": "Cleared", "sequence_id": 0})).await;
    for garbage in ["", "{", r#"{"type":7}"#, r#"{"type":"Warning","warn_msg":"x"}"#] {
        peer.send(garbage).await;
    }
    flushed(&mut peer, 300, 3).await;
    assert_eq!(durations(&third.speech().await.samples), [(3, 300)]);
}

#[tokio::test(start_paused = true)]
async fn no_more_flushes_are_sent_than_the_vendor_permits() {
    let (call, mut peer) = start_default().await;
    for _ in 0..20 {
        let mut segment = call.speak(1, "One.");
        text(&mut peer, "One.").await;
        flushed(&mut peer, 200, 1).await;
        assert_eq!(segment.speech().await.failed, "");
        call.advance(2_000).await;
    }
    // The oldest flush is 40 s ago.
    let mut waits = call.speak(1, "Two.");
    call.advance(20_000).await;
    assert!(waits.events.try_next().is_none(), "not sent");
    call.advance(600).await;
    text(&mut peer, "Two.").await;
    flushed(&mut peer, 200, 2).await;
    assert_eq!(durations(&waits.speech().await.samples), [(2, 200)]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_mark_ends_with_silence_and_a_stop_fails() {
    let (call, mut peer) = start_default().await;
    let mut segment = call.speak(1, "Hello there.");
    text(&mut peer, "Hello there.").await;
    peer.send_binary(pcm(900, 1)).await;
    call.advance(1_100).await;
    assert_eq!(segment.speech().await.failed, "");
    let mut stopped = call.speak(1, "This is a longer sentence.");
    text(&mut peer, "This is a longer sentence.").await;
    peer.send_binary(pcm(200, 1)).await;
    call.advance(2_600).await;
    let failed = stopped.speech().await.failed;
    assert_eq!(failed, "Timeout Deepgram stopped in the middle of the speech");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_one_sentence() {
    let (call, mut peer) = start_default().await;
    let mut segment = call.speak(1, "Hello.");
    text(&mut peer, "Hello.").await;
    peer.send_binary(pcm(100, 1)).await;
    peer.send(json!({"type": "Error", "description": format!("bad\n{KEY}")})).await;
    let failed = segment.speech().await.failed;
    assert_eq!(failed, "Failed Deepgram closed the connection, code 1011: bad ***");
}

#[tokio::test(start_paused = true)]
async fn a_long_text_is_sent_in_parts() {
    let (call, mut peer) = start_default().await;
    let long = "word ".repeat(1_000);
    let _segment = call.speak(1, &long);
    let (mut sent, mut parts) = (String::new(), 0);
    loop {
        let message = peer.json().await;
        if message["type"] == "Flush" {
            break;
        }
        let part = message["text"].as_str().unwrap();
        assert!(part.chars().count() <= 2_000);
        sent.push_str(part);
        parts += 1;
    }
    assert_eq!((sent, parts), (long, 3));
}

#[test]
fn a_voice_is_named_by_its_parts_or_as_a_whole() {
    let full = |model: &str, voice: &str, language: &str| {
        let (model, language) = (model.into(), language.into());
        DeepgramTtsConfig { model, language, ..Default::default() }.full_voice(voice, None)
    };
    assert_eq!(full("", "", ""), "aura-2-thalia-en");
    assert_eq!(full("aura-2", "Apollo", "en-GB"), "aura-2-apollo-en");
    assert_eq!(full("aura", "asteria", "auto"), "aura-asteria-en");
    assert_eq!(full("aura-2-luna-es", "", ""), "aura-2-luna-es");
    assert_eq!(full("aura-2-luna-es", "celeste", "es"), "aura-2-celeste-es");
    assert_eq!(full("aura-2", "aura-asteria-en", "es"), "aura-asteria-en");
    let config = DeepgramTtsConfig { voice: "orion".into(), ..Default::default() };
    assert_eq!(config.full_voice(" ", Some("nl")), "aura-2-orion-nl");
}

#[tokio::test]
async fn voices_are_listed() {
    let call = start(DeepgramTtsConfig::default()).await;
    let _socket = call.accept_silently().await;
    let list = json!({"stt": [{"canonical_name": "nova-3"}], "tts": [
        {
            "name": "zeus", "canonical_name": "aura-2-zeus-en", "languages": ["en", "en-US"],
            "metadata": {"sample": "u", "tags": ["deep", "masculine"]},
        },
        {"name": "no id"},
    ]});
    let (url, token) = (call.url(), Some(KEY.into()));
    let config = DeepgramTtsConfig { url, token, ..Default::default() };
    let query = VoiceQuery { limit: 9, ..VoiceQuery::default() };
    let list = list.to_string();
    let (listed, target) =
        tokio::join!(voices(&config, client(), &query), call.refuse("200 OK", &list));
    let zeus = ListedVoice {
        id: "aura-2-zeus-en".into(),
        name: "zeus".into(),
        language: Some("en".into()),
        gender: Some("masculine".into()),
        preview: Some("u".into()),
    };
    assert_eq!(listed.unwrap(), VoicePage { voices: vec![zeus], total: 1 });
    assert_eq!(target, "/v1/models");
}
