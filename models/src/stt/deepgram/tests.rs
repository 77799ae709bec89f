//! Streams against a server in this process.

mod faults;
mod kit;

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message as Frame;

use self::kit::{CHUNK_SAMPLES, start};
use super::*;
use crate::ErrorKind;
use crate::stt::streaming::test_support::{Harness, KEY};
use crate::stt::{Event, Usage};

#[tokio::test(start_paused = true)]
async fn two_utterances_are_transcribed_over_one_connection() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    assert!(peer.uri.starts_with("/v1/listen?model=nova-3&"), "{}", peer.uri);
    assert_eq!(peer.keys, [format!("authorization: Token {KEY}")]);
    call.speak(10);
    peer.audio(10).await;
    peer.send(false, "hello").await;
    assert_eq!(call.event().await, "interim hello");
    // A rest of a chunk is sent before the end mark.
    call.user().push_audio(&[-2; 400]);
    call.user().end_speech();
    assert_eq!(peer.text().await, "{\"type\":\"Finalize\"}");
    assert_eq!(peer.audio_bytes, 21 * CHUNK_SAMPLES);
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "final Hello.");
    // Audio outside of speech is not sent.
    call.push(3);
    call.speak(4);
    call.user().end_speech();
    peer.finalize(4).await;
    peer.send(true, "Bye.").await;
    assert_eq!(call.event().await, "final Bye.");
}

#[tokio::test(start_paused = true)]
async fn audio_that_waits_for_the_connection_is_sent_first() {
    let mut call = start().await;
    call.speak(20);
    call.user().end_speech();
    call.speak(2);
    let mut peer = call.accept().await;
    peer.finalize(20).await;
    peer.audio(2).await;
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "final Hello.");
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_finalize_ends_with_the_last_interim_transcript() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(30);
    peer.audio(30).await;
    peer.send(false, "hello").await;
    assert_eq!(call.event().await, "interim hello");
    call.user().end_speech();
    peer.finalize(0).await;
    // The pre-roll and audio at once take time, too.
    call.advance(800).await;
    assert_eq!(call.event().await, "final hello");
}

#[tokio::test(start_paused = true)]
async fn garbage_binary_and_huge_messages_change_nothing() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(2);
    peer.audio(2).await;
    for garbage in ["", "{", "\u{0}", "[[[", r#"{"type":"Results","channel":3}"#] {
        peer.socket.send(Frame::text(garbage)).await.unwrap();
    }
    peer.socket.send(Frame::binary(vec![255; 100_000])).await.unwrap();
    peer.socket.send(Frame::text("x".repeat(2 << 20))).await.unwrap();
    call.user().end_speech();
    peer.finalize(0).await;
    peer.send(true, "Hello.").await;
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "final Hello.");
    call.speak(2);
    call.user().end_speech();
    peer.finalize(2).await;
    peer.send(true, "Bye.").await;
    assert_eq!(call.event().await, "final Bye.");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_open_by_texts_and_pings() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(1);
    peer.audio(1).await;
    for _ in 0..3 {
        call.advance(5_000).await;
        assert_eq!(peer.text().await, "{\"type\":\"KeepAlive\"}");
    }
    // Audio replaces the next one.
    call.advance(4_000).await;
    call.push(1);
    peer.audio(1).await;
    call.advance(1_000).await;
    assert_eq!(peer.socket.next().await.unwrap().unwrap(), Frame::Ping(Vec::new().into()));
    call.advance(4_000).await;
    assert_eq!(peer.text().await, "{\"type\":\"KeepAlive\"}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_is_closed_politely() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(1);
    peer.audio(1).await;
    call.stream = None;
    assert_eq!(peer.text().await, "{\"type\":\"CloseStream\"}");
    peer.socket.send(Frame::text(r#"{"type":"Metadata","duration":1.0}"#)).await.unwrap();
    peer.close(1000, "").await;
    let answer = peer.socket.next().await;
    assert!(matches!(answer, Some(Ok(Frame::Close(_)))), "{answer:?}");
    assert!(peer.socket.next().await.is_none(), "no reset");

    // A server that does not close is not waited for.
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(1);
    peer.audio(1).await;
    call.stream = None;
    assert_eq!(peer.text().await, "{\"type\":\"CloseStream\"}");
    call.advance(600).await;
    let close = peer.socket.next().await;
    assert!(matches!(close, Some(Ok(Frame::Close(Some(frame)))) if frame.code == 1000.into()));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_audio_and_never_waits() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    // More than the queue holds, before the task runs: the rest is dropped, and the ends of speech
    // pass.
    for _ in 0..3 {
        call.speak(2_000);
        call.user().end_speech();
    }
    for _ in 0..3 {
        assert_eq!(peer.text().await, "{\"type\":\"Finalize\"}");
    }
    let chunks = peer.audio_bytes / (2 * CHUNK_SAMPLES);
    assert!((900..1_000).contains(&chunks), "{chunks}");
}

#[tokio::test(start_paused = true)]
async fn usage_is_reported_every_10_s_and_at_the_end() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(20);
    peer.audio(20).await;
    peer.send(false, "hello").await;
    assert_eq!(call.event().await, "interim hello");
    call.advance(10_000).await;
    let usage = call.events.recv().await;
    let seconds = Duration::from_secs;
    let expected = Usage { connected: seconds(10), audio: seconds(1), ..Usage::default() };
    assert!(matches!(usage, Some(Event::Usage(usage)) if usage == expected), "{usage:?}");
    call.advance(5_000).await;
    call.stream = None;
    drop(peer);
    let last = call.events.recv().await;
    let expected = Usage { connected: seconds(5), ..Usage::default() };
    assert!(matches!(last, Some(Event::Usage(usage)) if usage == expected), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_model_of_flux_is_served_by_the_second_interface() {
    let mut call = Harness::start(|config, client, fallback, runtime| {
        let config = HostedConfig { model: "flux-general-en".into(), ..config.clone() };
        deepgram(&config, client, fallback, runtime)
    })
    .await;
    let mut peer = call.accept().await;
    assert!(peer.uri.starts_with("/v2/listen?model=flux-general-en&"), "{}", peer.uri);
    assert_eq!(peer.keys, [format!("authorization: Token {KEY}")]);
    call.speak(10);
    peer.audio(10).await;
    // No audio comes, for example because packets are lost.
    call.advance(500).await;
    let silence = peer.socket.next().await.unwrap().unwrap();
    assert_eq!(silence, Frame::binary(vec![0; 16_000]));
    call.user().end_speech();
    assert_eq!(peer.text().await, r#"{"type":"ForceEndTurn"}"#);
    let info = r#"{"type":"TurnInfo","event":"EndOfTurn","trigger":"manual","turn_index":0,
        "transcript":"Hello.","words":[]}"#;
    peer.send_text(info.into()).await;
    assert_eq!(call.event().await, "final Hello.");
    call.stream = None;
    assert_eq!(peer.text().await, r#"{"type":"CloseStream"}"#);
}

#[test]
fn an_address_that_is_no_url_is_refused() {
    let config =
        HostedConfig { url: "nonsense".into(), token: Some(KEY.into()), ..HostedConfig::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let client = egress::Client::new(egress::Policy::default()).unwrap();
    let refused = deepgram(&config, client, Fallback::default(), runtime.handle().clone());
    let error = refused.err().expect("it is not a URL");
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert_eq!(error.to_string(), "The address of Deepgram is not a valid URL");
}
