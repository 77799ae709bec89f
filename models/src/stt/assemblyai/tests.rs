//! Streams against a server in this process.

use serde_json::json;

use super::*;
use crate::stt::streaming::CHUNK_BYTES;
use crate::stt::streaming::test_support::{CHUNK_SAMPLES, Harness, KEY};

fn turn(order: u64, text: &str) -> String {
    json!({"type": "Turn", "turn_order": order, "turn_is_formatted": true, "end_of_turn": true,
           "transcript": text, "words": []})
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn an_utterance_is_padded_forced_and_the_session_is_terminated() {
    let mut call = Harness::start(assemblyai).await;
    let mut peer = call.accept().await;
    assert!(peer.uri.starts_with("/v3/ws?sample_rate=16000&"), "{}", peer.uri);
    assert_eq!(peer.keys, [format!("authorization: {KEY}")]);
    call.speak(4);
    call.user().push_audio(&[-2; 100]);
    call.user().end_speech();
    assert_eq!(peer.text().await, r#"{"type":"ForceEndpoint"}"#);
    assert_eq!(peer.audio_bytes, 4 * CHUNK_BYTES + 200);
    assert_eq!(peer.silence_bytes, CHUNK_BYTES - 200);
    peer.send_text(turn(0, "Hello.")).await;
    assert_eq!(call.event().await, "final Hello.");
    call.stream = None;
    assert_eq!(peer.text().await, r#"{"type":"Terminate"}"#);
}

#[tokio::test(start_paused = true)]
async fn stored_audio_is_sent_again_at_a_limited_speed() {
    let mut call = Harness::start(assemblyai).await;
    let mut peer = call.accept().await;
    call.speak(60);
    call.user().end_speech();
    // 21 chunks at once: the last one begins within a second of 24 chunks.
    peer.audio(21).await;
    peer.close(1011, "restart").await;
    let mut peer = call.accept().await;
    peer.audio(21).await;
    let mut waited = 0;
    while peer.audio_bytes < 60 * CHUNK_BYTES {
        tokio::select! {
            biased;
            () = peer.audio(1) => {}
            () = call.advance(1) => waited += 1,
        }
    }
    // 60 chunks at 1.2 times real time, less the second that was sent at once.
    assert!((1_400..=1_600).contains(&waited), "{waited} ms");
    assert_eq!(peer.text().await, r#"{"type":"ForceEndpoint"}"#);
    peer.send_text(turn(0, "Hello.")).await;
    assert_eq!(call.event().await, "final Hello.");
}

#[tokio::test]
async fn errors_after_the_handshake_hand_the_call_over() {
    for (error, sentence) in [
        (
            r#"{"type":"Error","error_code":1008,"error":"Unauthorized connection"}"#,
            "The API key for AssemblyAI is not valid",
        ),
        (
            r#"{"type":"Error","error_code":4002,"error":"Insufficient funds"}"#,
            "The AssemblyAI account has no credit left",
        ),
        (
            r#"{"type":"Error","error_code":3006,"error":"Invalid parameter"}"#,
            "AssemblyAI refused the request, code 3006: Invalid parameter",
        ),
    ] {
        let mut call = Harness::start(assemblyai).await;
        let mut peer = call.accept().await;
        call.speak(4);
        call.user().end_speech();
        peer.send_text(error.into()).await;
        let warning = format!("warning {sentence}; the built-in STT is used instead.");
        assert_eq!(call.event().await, warning);
        assert_eq!(call.event().await, format!("final {} samples", 4 * CHUNK_SAMPLES));
    }
}
