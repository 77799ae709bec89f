//! Faults of ElevenLabs and of the connection to it.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_before_the_first_sound_is_replaced_once() {
    let (call, mut peer) = start_default().await;
    let mut segment = call.speak(1, "Hello.");
    first_text(&mut peer, "reply-1", "Hello.").await;
    peer.close(1011, "oops").await;
    let mut other = call.accept().await;
    first_text(&mut other, "reply-2", "Hello.").await;
    other.send(sound("reply-2", 300, 1, "Hello. ", 0)).await;
    other.send(flush_done("reply-2")).await;
    let speech = segment.speech().await;
    assert_eq!((durations(&speech.samples), speech.failed), (vec![(1, 300)], String::new()));

    let mut segment = call.speak(2, "Bye.");
    assert_eq!(other.json().await, json!({"context_id": "reply-2", "close_context": true}));
    first_text(&mut other, "reply-3", "Bye.").await;
    drop(other);
    let mut third = call.accept().await;
    first_text(&mut third, "reply-4", "Bye.").await;
    third.close(1011, &format!("again {KEY}")).await;
    assert_eq!(
        segment.speech().await.failed,
        "Failed ElevenLabs closed the connection, code 1011: again ***"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_in_the_speech_fails_its_segments() {
    let (call, mut peer) = start_default().await;
    let (mut first, mut second) = (call.speak(1, "One two three."), call.speak(1, "Four."));
    first_text(&mut peer, "reply-1", "One two three.").await;
    peer.send(sound("reply-1", 100, 1, "One ", 0)).await;
    next_text(&mut peer, "reply-1", "Four.").await;
    peer.send(json!({"message": "bad", "error": "internal", "code": 1011})).await;
    let speech = first.speech().await;
    let failure = "Failed ElevenLabs closed the connection, code 1011: internal: bad";
    assert_eq!((speech.text().as_str(), speech.failed.as_str()), ("One", failure));
    assert_eq!(second.speech().await.failed, failure);
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_stops_is_not_waited_for() {
    let (call, mut peer) = start_default().await;
    let mut silent = call.speak(1, "Hello.");
    first_text(&mut peer, "reply-1", "Hello.").await;
    call.advance(2_400).await;
    assert!(matches!(
        silent.events.try_next(),
        Some(crate::tts::Event::Usage { characters: 6, .. })
    ));
    assert!(silent.events.try_next().is_none());
    call.advance(200).await;
    assert_eq!(silent.speech().await.failed, "Timeout ElevenLabs gave no sound in time");

    let mut stopped = call.speak(2, "Hello there, my friend.");
    let mut peer = call.accept().await;
    first_text(&mut peer, "reply-2", "Hello there, my friend.").await;
    peer.send(sound("reply-2", 400, 1, "Hello ", 0)).await;
    call.advance(2_600).await;
    call.advance(1).await;
    let speech = stopped.speech().await;
    assert_eq!(speech.failed, "Timeout ElevenLabs stopped in the middle of the speech");
    assert_eq!(speech.text(), "Hello");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_fails_the_segments_that_wait() {
    let call = start(ElevenLabsConfig::default()).await;
    let _socket = call.accept_silently().await;
    let mut segment = call.speak(1, "Hello.");
    call.advance(2_900).await;
    assert!(segment.events.try_next().is_none());
    call.advance(200).await;
    assert_eq!(
        segment.speech().await.failed,
        "Timeout ElevenLabs does not accept a connection in time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_fails_every_segment_without_another_attempt() {
    let detail = |status: &str| json!({"detail": {"status": status, "message": KEY}}).to_string();
    for (status, body, expected) in [
        ("401 X", detail("invalid_api_key"), "InvalidKey The API key for ElevenLabs is not valid"),
        ("401 X", detail("quota_exceeded"), "NoCredit The ElevenLabs account has no credit left"),
        (
            "400 X",
            detail("voice_not_found"),
            "Rejected ElevenLabs refused the request, status 400: ***",
        ),
    ] {
        let call = start(ElevenLabsConfig::default()).await;
        let mut segment = call.speak(1, "Hello.");
        call.refuse(status, &body).await;
        assert_eq!(segment.speech().await.failed, expected);
        assert_eq!(call.speak(1, "Hello.").speech().await.failed, expected);
    }
    // A busy vendor is asked again by the next segment.
    let call = start(ElevenLabsConfig::default()).await;
    let mut segment = call.speak(1, "Hello.");
    call.refuse("429 X", &detail("too_many_concurrent_requests")).await;
    assert_eq!(
        segment.speech().await.failed,
        "Busy ElevenLabs is at its limit of simultaneous requests"
    );
    let _next = call.speak(1, "Hello.");
    let mut peer = call.accept().await;
    first_text(&mut peer, "reply-1", "Hello.").await;
}

#[tokio::test(start_paused = true)]
async fn an_account_that_must_log_is_served_all_the_same() {
    let call = start(ElevenLabsConfig::default()).await;
    let body = json!({"detail": {"message": "Zero retention mode is for enterprise customers"}});
    let target = call.refuse("403 X", &body.to_string()).await;
    assert!(target.contains("enable_logging=false"), "{target}");
    let peer = call.accept().await;
    assert!(!peer.target().contains("enable_logging"), "{}", peer.target());
    let call = start(ElevenLabsConfig { share_data: true, ..Default::default() }).await;
    assert!(!call.accept().await.target().contains("enable_logging"));
}

#[tokio::test(start_paused = true)]
async fn damaged_and_unknown_messages_change_nothing() {
    let (call, mut peer) = start_default().await;
    let mut segment = call.speak(1, "One hundred.");
    first_text(&mut peer, "reply-1", "One hundred.").await;
    for garbage in ["", "{", "[[", "3", r#"{"audio":3}"#, r#"{"isFinal":true}"#, "\u{0}"] {
        peer.send(garbage).await;
    }
    peer.send_binary(vec![255; 1_000]).await;
    peer.send(json!({"type": "news", "contextId": "reply-1", "x": [1]})).await;
    peer.send(json!({"audio": "%%%", "contextId": "reply-1"})).await;
    peer.send(json!({"audio": pcm_base64(50, 9), "contextId": "reply-99"})).await;
    // Damaged times do not cost the sound. The other names are those of other versions.
    peer.send(json!({
        "audio": pcm_base64(100, 1), "context_id": "reply-1", "alignment": {"chars": 3},
    }))
    .await;
    peer.send(json!({
        "audio": pcm_base64(500, 2), "context_id": "reply-1", "alignment": null,
        "normalized_alignment": {
            "chars": ["One", " ", "hundred."], "char_start_times_ms": [0, 150, 200],
            "charsDurationsMs": [150, 50, 400],
        },
    }))
    .await;
    peer.send(json!({"is_final": true, "context_id": "reply-1"})).await;
    let speech = segment.speech().await;
    assert_eq!(durations(&speech.samples), [(1, 100), (2, 500)]);
    assert_eq!(speech.words, [("One".into(), 0, 150), ("hundred.".into(), 200, 600)]);
    assert_eq!(call.speak(2, " … ").speech().await.failed, "");
}

#[tokio::test(start_paused = true)]
async fn an_endless_sound_fails() {
    let (call, mut peer) = start_default().await;
    let mut segment = call.speak(1, "Hi.");
    first_text(&mut peer, "reply-1", "Hi.").await;
    for _ in 0..17 {
        peer.send(sound("reply-1", 1_000, 1, "", 0)).await;
    }
    let failed = segment.speech().await.failed;
    assert_eq!(failed, "Failed ElevenLabs sends more sound than the text can take");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_worked_is_replaced_whatever_closed_it() {
    let (call, mut peer) = start_default().await;
    let mut first = call.speak(1, "One.");
    first_text(&mut peer, "reply-1", "One.").await;
    peer.send(sound("reply-1", 300, 1, "One. ", 0)).await;
    peer.send(flush_done("reply-1")).await;
    assert_eq!(first.speech().await.failed, "");
    let mut second = call.speak(2, "Two.");
    assert_eq!(peer.json().await["close_context"], true);
    first_text(&mut peer, "reply-2", "Two.").await;
    peer.close(1008, "policy").await;
    let failed = second.speech().await.failed;
    assert_eq!(failed, "Rejected ElevenLabs refused the request, code 1008: policy");
    let _third = call.speak(3, "Three.");
    let mut other = call.accept().await;
    first_text(&mut other, "reply-3", "Three.").await;
    // One that has not worked is not.
    let (call, mut peer) = start_default().await;
    peer.close(1008, "invalid key").await;
    for _ in 0..2 {
        let failed = call.speak(1, "One.").speech().await.failed;
        assert_eq!(failed, "Rejected ElevenLabs refused the request, code 1008: invalid key");
    }
    // An idle connection that the vendor closes is opened again at once.
    let (call, mut peer) = start_default().await;
    call.advance(6_000).await;
    peer.close(1008, "input_timeout_exceeded").await;
    let mut other = call.accept().await;
    let _segment = call.speak(1, "One.");
    first_text(&mut other, "reply-1", "One.").await;
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_only_sends_other_messages_is_not_waited_for() {
    let (call, mut peer) = start_default().await;
    let mut segment = call.speak(1, "One.");
    first_text(&mut peer, "reply-1", "One.").await;
    for _ in 0..6 {
        peer.send(json!({"type": "news", "contextId": "reply-1"})).await;
        call.advance(500).await;
    }
    assert_eq!(segment.speech().await.failed, "Timeout ElevenLabs gave no sound in time");
}
