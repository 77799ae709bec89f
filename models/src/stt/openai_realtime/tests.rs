//! Streams against a server in this process.

use super::*;
use crate::stt::streaming::test_support::{Harness, KEY};

const COMPLETED: &str = r#"{"type":"conversation.item.input_audio_transcription.completed",
    "item_id":"i1","transcript":"Hello."}"#;

#[tokio::test(start_paused = true)]
async fn an_old_session_is_renewed_when_no_audio_waits() {
    let mut call = Harness::start(openai_realtime).await;
    let mut peer = call.accept().await;
    assert!(peer.uri.starts_with("/realtime?intent=transcription&model="), "{}", peer.uri);
    assert_eq!(peer.keys, [format!("authorization: Bearer {KEY}")]);
    assert!(peer.text().await.contains("gpt-live-transcribe"));
    call.advance(599_000).await;
    call.speak(1);
    assert!(peer.text().await.contains("input_audio_buffer.append"));
    call.advance(2_000).await;
    call.user().end_speech();
    assert!(peer.text().await.contains("input_audio_buffer.append"));
    assert!(peer.text().await.contains("input_audio_buffer.commit"));
    peer.send_text(COMPLETED.into()).await;
    assert_eq!(call.event().await, "final Hello.");
    peer.expect_close().await;
    let mut peer = call.accept().await;
    assert!(peer.text().await.contains("session.update"));
    call.speak(1);
    call.user().end_speech();
    assert!(peer.text().await.contains("input_audio_buffer.append"));
    peer.send_text(COMPLETED.into()).await;
    assert_eq!(call.event().await, "final Hello.");
}
