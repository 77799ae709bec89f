//! Servers that refuse, break off, or do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc;

use super::super::deepgram;
use super::kit::{CHUNK_SAMPLES, start};
use crate::breaker::{BreakerKey, Breakers};
use crate::hosted::loopback::{Loopback, client, within};
use crate::stt::streaming::Timeouts;
use crate::stt::streaming::test_support::{Harness, KEY, Peer};
use crate::stt::{Event, Fallback, HostedConfig, Stt, SttStream};
use crate::{Error, ErrorKind, Sink};

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_is_replaced_and_gets_the_utterance_again() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(10);
    peer.audio(10).await;
    peer.send(false, "hel").await;
    assert_eq!(call.event().await, "interim hel");
    drop(peer);
    call.push(5);
    call.user().end_speech();
    let mut peer = call.accept().await;
    peer.finalize(15).await;
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "final Hello.");
    // A connection of 5 s is stable, and is replaced at once. Utterances with a final transcript
    // are not sent again.
    call.advance(5_000).await;
    peer.close(1011, "NET-0001").await;
    let mut peer = call.accept().await;
    call.speak(1);
    peer.audio(1).await;
    assert_eq!(peer.audio_bytes, 2 * CHUNK_SAMPLES);
}

#[tokio::test(start_paused = true)]
async fn a_close_after_the_end_of_speech_repeats_the_audio_and_the_end_mark() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(10);
    call.user().end_speech();
    peer.finalize(10).await;
    peer.close(1012, "restart").await;
    let mut peer = call.accept().await;
    peer.finalize(10).await;
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "final Hello.");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_finishes_no_transcript_fails_with_the_second_utterance() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    for is_second in [false, true] {
        call.speak(30);
        peer.audio(30).await;
        peer.send(false, "hello").await;
        assert_eq!(call.event().await, "interim hello");
        call.user().end_speech();
        peer.finalize(0).await;
        call.advance(800).await;
        if !is_second {
            assert_eq!(call.event().await, "final hello", "one may be lost");
        }
    }
    assert_eq!(
        call.event().await,
        "warning Deepgram sends no final transcript; the built-in STT is used instead."
    );
    assert_eq!(call.event().await, format!("final {} samples", 30 * CHUNK_SAMPLES));
}

#[tokio::test(start_paused = true)]
async fn a_late_final_transcript_is_an_answer() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    for _ in 0..4 {
        call.speak(30);
        peer.audio(30).await;
        peer.send(false, "hello").await;
        assert_eq!(call.event().await, "interim hello");
        call.user().end_speech();
        peer.finalize(0).await;
        call.advance(800).await;
        assert_eq!(call.event().await, "final hello");
        peer.send(true, "hello").await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_transcript_and_then_nothing_is_repeated_once_and_is_a_failure() {
    let mut call = start().await;
    call.speak(30);
    for is_second in [false, true] {
        let mut peer = call.accept().await;
        peer.audio(30).await;
        peer.send(false, "").await;
        if !is_second {
            call.user().end_speech();
        }
        peer.finalize(0).await;
        call.advance(2_000).await;
    }
    assert_eq!(
        call.event().await,
        "warning Deepgram sends no final transcript; the built-in STT is used instead."
    );
    assert_eq!(call.event().await, format!("final {} samples", 30 * CHUNK_SAMPLES));
}

#[tokio::test]
async fn connections_that_end_at_once_are_a_failure() {
    // The delays between the attempts pass in real time.
    let mut call = start().await;
    for _ in 0..4 {
        call.accept().await.close(1011, &format!("bad key {KEY}")).await;
    }
    assert_eq!(
        call.event().await,
        "warning Deepgram closed the connection, code 1011: bad key ***; the built-in STT is used \
         instead."
    );
}

#[tokio::test]
async fn a_refusal_hands_the_call_over_to_the_fallback_with_the_utterance() {
    let invalid = format!(r#"{{"err_code":"INVALID_AUTH","err_msg":"key {KEY} is bad"}}"#);
    let credit = r#"{"err_code":"ASR_PAYMENT_REQUIRED","err_msg":"pay"}"#;
    for (status, body, sentence) in [
        ("401 Unauthorized", invalid.as_str(), "The API key for Deepgram is not valid"),
        ("403 Forbidden", "", "The API key for Deepgram does not permit this request"),
        ("402 Payment Required", credit, "The Deepgram account has no credit left"),
        (
            "400 Bad Request",
            invalid.as_str(),
            "Deepgram refused the request, status 400: key *** is bad",
        ),
        (
            "429 Too Many Requests\r\nretry-after: 60",
            "",
            "Deepgram is at its limit of simultaneous requests",
        ),
    ] {
        let mut call = start().await;
        call.speak(4);
        call.refuse(status, body).await;
        let warning = format!("warning {sentence}; the built-in STT is used instead.");
        assert_eq!(call.event().await, warning);
        call.push(3);
        call.user().end_speech();
        assert_eq!(call.event().await, format!("final {} samples", 7 * CHUNK_SAMPLES));
        call.speak(1);
        call.user().end_speech();
        assert_eq!(call.event().await, format!("final {CHUNK_SAMPLES} samples"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again_after_the_time_that_it_requests() {
    let mut call = start().await;
    call.refuse("429 Too Many Requests\r\nretry-after: 2", "").await;
    let stream = within(2_500, 100, call.server.accept()).await.unwrap();
    let mut peer = Peer::new(stream).await;
    call.speak(2);
    call.user().end_speech();
    peer.finalize(2).await;
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "final Hello.");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_replaced() {
    // The delays between the attempts pass in real time.
    let mut call = start().await;
    call.server.listener = None;
    call.speak(2);
    call.user().end_speech();
    let warning = call.event().await;
    assert!(warning.starts_with("warning The connection to Deepgram failed: "), "{warning}");
    assert_eq!(call.event().await, format!("final {} samples", 2 * CHUNK_SAMPLES));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_finish_the_handshake_is_replaced_after_3_s_of_waiting_audio() {
    let mut call = start().await;
    let _silent = call.server.accept().await;
    call.speak(2);
    call.user().end_speech();
    while call.events.is_empty() {
        call.advance(100).await;
    }
    assert_eq!(
        call.event().await,
        "warning Deepgram does not accept a connection in time; the built-in STT is used instead."
    );
    assert_eq!(call.event().await, format!("final {} samples", 2 * CHUNK_SAMPLES));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stalls_is_replaced() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(40);
    peer.audio(40).await;
    call.advance(2_500).await;
    assert_eq!(
        call.event().await,
        "warning Deepgram accepts the audio, but sends no transcript; the built-in STT is used \
         instead."
    );
    call.user().end_speech();
    assert_eq!(call.event().await, format!("final {} samples", 40 * CHUNK_SAMPLES));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_worked_and_stalls_is_replaced_once() {
    let mut call = start().await;
    let mut peer = call.accept().await;
    call.speak(40);
    call.user().end_speech();
    peer.finalize(40).await;
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "final Hello.");
    call.speak(40);
    call.user().end_speech();
    peer.finalize(40).await;
    call.advance(2_500).await;
    let mut peer = call.accept().await;
    peer.finalize(40).await;
    peer.send(true, "Bye.").await;
    assert_eq!(call.event().await, "final Bye.");
}

#[tokio::test(start_paused = true)]
async fn without_a_fallback_the_failure_is_reported_and_the_stream_recovers() {
    let mut call = Harness::open(deepgram, Fallback::default(), Timeouts::default()).await;
    let mut peer = call.accept().await;
    call.speak(40);
    call.user().end_speech();
    peer.finalize(40).await;
    call.advance(2_500).await;
    let failed = "failed Timeout Deepgram accepts the audio, but sends no transcript";
    assert_eq!(call.event().await, failed);
    call.speak(1);
    call.user().end_speech();
    assert_eq!(call.event().await, failed, "no transcript of this utterance comes");
    call.advance(5_000).await;
    let mut peer = call.accept().await;
    call.speak(1);
    call.user().end_speech();
    peer.finalize(1).await;
    peer.send(true, "Hello.").await;
    assert_eq!(call.event().await, "recovered");
    assert_eq!(call.event().await, "final Hello.");
}

#[tokio::test(start_paused = true)]
async fn without_a_fallback_a_bad_key_is_reported_for_each_utterance() {
    let mut call = Harness::open(deepgram, Fallback::default(), Timeouts::default()).await;
    call.refuse("401 Unauthorized", "").await;
    let failed =
        format!("failed {:?} The API key for Deepgram is not valid", ErrorKind::InvalidKey);
    assert_eq!(call.event().await, failed);
    call.advance(600_000).await;
    call.speak(1);
    call.user().end_speech();
    assert_eq!(call.event().await, failed);
}

#[tokio::test]
async fn a_failure_before_the_start_of_the_call_is_told_when_it_has_started() {
    let mut call = Harness::start_early(deepgram).await;
    call.refuse("401 Unauthorized", "").await;
    call.speak(1);
    call.user().end_speech();
    assert_eq!(call.event().await, format!("final {CHUNK_SAMPLES} samples"), "no warning yet");
    call.user().start_call();
    assert_eq!(
        call.event().await,
        "warning The API key for Deepgram is not valid; the built-in STT is used instead."
    );
}

/// An STT of this server, which may be opened only after the start of the call.
struct DecoderStt(Arc<AtomicBool>);

struct SilentStream;

impl Stt for DecoderStt {
    fn open(&self, _: Sink<Event>) -> Result<Box<dyn SttStream>, Error> {
        assert!(self.0.load(Ordering::Relaxed), "the call has no place yet");
        Ok(Box::new(SilentStream))
    }
}

impl SttStream for SilentStream {
    fn start_speech(&mut self) {}
    fn push_audio(&mut self, _: &[i16]) {}
    fn end_speech(&mut self) {}
}

#[tokio::test]
async fn a_failure_before_the_start_of_the_call_takes_no_decoder_until_it_has_started() {
    let (server, has_started) = (Loopback::bind().await, Arc::<AtomicBool>::default());
    let breaker = Breakers::default().get(BreakerKey::new("stt", "deepgram", "", None));
    let decoder: Arc<dyn Stt> = Arc::new(DecoderStt(Arc::clone(&has_started)));
    let fallback = Fallback::new(Some(("the decoder".into(), decoder)), Arc::clone(&breaker));
    let config = HostedConfig { url: server.url("ws"), ..HostedConfig::default() };
    let stt = deepgram(&config, client(), fallback, Runtime::current()).unwrap();
    let (sender, mut events) = mpsc::unbounded_channel();
    let mut stream = stt.open(Sink::new(move |event| drop(sender.send(event)))).unwrap();
    server.refuse("401 Unauthorized", "").await;
    // The failure is noted before a fallback is opened, in the same poll of the task.
    while breaker.is_closed() {
        tokio::task::yield_now().await;
    }
    has_started.store(true, Ordering::Relaxed);
    stream.start_call();
    let event = events.recv().await;
    assert!(
        matches!(&event, Some(Event::Warning(text)) if text.contains("the decoder")),
        "{event:?}"
    );
}
