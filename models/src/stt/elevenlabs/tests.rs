//! Streams against a server in this process.

use super::*;
use crate::stt::streaming::test_support::{CHUNK_SAMPLES, Harness, KEY};

#[tokio::test(start_paused = true)]
async fn utterances_are_committed_and_the_connection_is_kept_open() {
    let mut call = Harness::start(elevenlabs).await;
    let mut peer = call.accept().await;
    assert!(peer.uri.starts_with("/v1/speech-to-text/realtime?model_id="), "{}", peer.uri);
    assert_eq!(peer.keys, [format!("xi-api-key: {KEY}")]);
    call.speak(10);
    call.user().end_speech();
    for _ in 0..10 {
        assert!(peer.text().await.contains("\"commit\":false"));
    }
    assert!(peer.text().await.contains("\"commit\":true"));
    peer.send_text(r#"{"message_type":"committed_transcript","text":"Hello."}"#.into()).await;
    assert_eq!(call.event().await, "final Hello.");
    call.advance(10_000).await;
    assert!(peer.text().await.contains("\"audio_base_64\":\"\",\"commit\":false"));
}

#[tokio::test]
async fn an_error_after_the_handshake_hands_the_call_over() {
    for (error, sentence) in [
        (
            format!(r#"{{"message_type":"auth_error","error":"bad key {KEY}"}}"#),
            "The API key for ElevenLabs is not valid",
        ),
        (
            r#"{"message_type":"quota_exceeded","error":"pay"}"#.into(),
            "The ElevenLabs account has no credit left",
        ),
        (
            format!(r#"{{"message_type":"invalid_request","error":"no model for {KEY}"}}"#),
            "ElevenLabs refused the request: no model for ***",
        ),
    ] {
        let mut call = Harness::start(elevenlabs).await;
        let mut peer = call.accept().await;
        call.speak(4);
        call.user().end_speech();
        peer.send_text(error).await;
        let warning = format!("warning {sentence}; the built-in STT is used instead.");
        assert_eq!(call.event().await, warning);
        assert_eq!(call.event().await, format!("final {} samples", 4 * CHUNK_SAMPLES));
    }
}
