//! A vendor that is skipped, and the shadow streams that find out whether it works again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{CHUNKS, Session, VENDORS, Vendor, sockets};
use crate::breaker::Breaker;
use crate::hosted::loopback::{Exchange, Status, advance, settle, soon, within};
use crate::stt::streaming::test_support::{CHUNK_SAMPLES, breaker, fallback};
use crate::stt::{Event, Fallback, Timeouts, Usage};
use crate::{Error, ErrorKind};

/// Delay of the first probe, in ms.
const DELAY: u64 = 10_000;
/// Time in which the vendor learns that the probe is over, in ms.
const CLOSE_LIMIT: u64 = 50;

/// A call during which the vendor is skipped, and the breaker.
async fn skipped(vendor: &'static Vendor) -> (Session, Arc<Breaker>) {
    let breaker = breaker();
    for _ in 0..3 {
        breaker.failed(Instant::now(), &Error::new(ErrorKind::Failed, "It failed before"));
    }
    let mut session = Session::with(vendor, fallback(&breaker), Timeouts::default()).await;
    let warning = "warning It failed before; the built-in STT is used instead.";
    assert_eq!(soon("a warning", session.call.event()).await, warning, "{}", vendor.label);
    (session, breaker)
}

/// The final transcript of the fallback for an utterance.
fn fallback_final() -> String {
    format!("final {} samples", CHUNKS * CHUNK_SAMPLES)
}

/// The user speaks. The fallback transcribes it, and nothing else happens.
async fn speak_unprobed(session: &mut Session) {
    session.socket = None;
    session.speak().await;
    session.call.user().end_speech();
    expect_fallback(session).await;
    let label = session.vendor.label;
    tokio::select! {
        biased;
        _ = session.call.server.accept() => panic!("{label}: a connection"),
        () = settle() => {}
    }
}

/// Expects the transcript of the fallback for the utterance that has ended, and no other event.
async fn expect_fallback(session: &mut Session) {
    settle().await;
    let label = session.vendor.label;
    assert_eq!(soon("a transcript", session.call.event()).await, fallback_final(), "{label}");
    let rest = session.rest();
    assert!(rest.is_empty(), "{label}: {rest:?}");
}

/// The user begins to speak, and a shadow stream connects.
async fn begin_probe(session: &mut Session) {
    session.call.user().start_speech();
    session.connect().await;
    for _ in 0..CHUNKS {
        session.call.push(1);
        advance(50).await;
    }
    if session.socket.is_some() {
        session.read_audio().await;
    }
}

/// The user has spoken, and the vendor recognizes `text`.
async fn answer_probe(session: &mut Session, text: &str) {
    let Some(wire) = session.vendor.socket() else {
        session.call.user().end_speech();
        let exchange = soon("a request", session.request()).await;
        return session.answer(exchange, &serde_json::json!({"text": text, "usage": {}})).await;
    };
    let turn = session.turn(0.0);
    if !text.is_empty() {
        session.send(&(wire.interim)(&turn, "", text)).await;
    }
    session.call.user().end_speech();
    session.read_end_mark(wire).await;
    session.send(&(wire.last)(&turn, text)).await;
}

/// Expects that the connection of the shadow stream, if there is one, is closed politely.
async fn expect_closed(session: &mut Session) {
    let Some(mut socket) = session.socket.take() else { return };
    let goodbye = session.vendor.socket().and_then(|wire| wire.goodbye);
    let closed = async {
        while let Some(frame) = socket.next().await {
            let text = String::from_utf8_lossy(frame.bytes()).into_owned();
            if goodbye.is_some_and(|goodbye| text.contains(goodbye)) {
                return true;
            }
        }
        goodbye.is_none()
    };
    let label = session.vendor.label;
    assert_eq!(within(CLOSE_LIMIT, 10, closed).await, Some(true), "{label}: closed politely");
    drop(socket);
    settle().await;
}

/// The usage that was reported so far; other events are none.
async fn usage(session: &mut Session) -> Usage {
    settle().await;
    let mut total = Usage::default();
    while let Ok(event) = session.call.events.try_recv() {
        let Event::Usage(usage) = event else { panic!("{event:?}") };
        total.connected += usage.connected;
        total.audio += usage.audio;
        total.requests += usage.requests;
    }
    total
}

#[tokio::test(start_paused = true)]
async fn words_in_a_shadow_stream_end_the_time_in_which_a_vendor_is_skipped() {
    for vendor in &VENDORS {
        let (mut session, breaker) = skipped(vendor).await;
        speak_unprobed(&mut session).await;
        advance(DELAY).await;
        // A call that starts now uses the fallback, too.
        session.call.reopen();
        let warning = soon("a warning", session.call.event()).await;
        assert!(warning.starts_with("warning It failed before;"), "{}: {warning}", vendor.label);
        begin_probe(&mut session).await;
        assert!(!breaker.is_closed(), "{}: no words yet", vendor.label);
        answer_probe(&mut session, "Hello there.").await;
        // The usage comes after the connection was closed.
        expect_closed(&mut session).await;
        assert!(breaker.is_closed(), "{}: it works again", vendor.label);
        assert_eq!(soon("a transcript", session.call.event()).await, fallback_final());
        let used = usage(&mut session).await;
        let (audio, connected) = (used.audio.as_secs_f64(), used.connected.as_millis());
        assert!((1.2..1.3).contains(&audio), "{}: {used:?}", vendor.label);
        let is_stream = vendor.socket().is_some();
        let times = if is_stream { 1_200..1_400 } else { 0..1 };
        assert!(times.contains(&connected), "{}: {used:?}", vendor.label);
        assert_eq!(used.requests, u32::from(!is_stream), "{}", vendor.label);
        // This call stays with its fallback, and the next one has the vendor.
        speak_unprobed(&mut session).await;
        session.call.reopen();
        session.connect().await;
        let events = session.say("And on.").await;
        assert_eq!(events.last().unwrap(), "final And on.", "{}", vendor.label);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_a_shadow_stream_doubles_the_delay_and_nobody_hears_of_it() {
    let broken = Status::new("500 Internal Server Error", "");
    let unpaid = Status::new("402 Payment Required", "");
    for vendor in &VENDORS {
        for (status, delay) in [(&broken, 2 * DELAY), (&unpaid, 300_000)] {
            let (mut session, breaker) = skipped(vendor).await;
            advance(DELAY).await;
            session.speak().await;
            session.call.user().end_speech();
            let failed = async {
                while breaker.skip_reason().unwrap().contains("before") {
                    settle().await;
                }
            };
            let failed = async {
                tokio::select! {
                    () = failed => {}
                    _ = session.call.server.refuse_all(status) => {}
                }
            };
            within(super::LIMIT, 10, failed).await.expect("the probe fails");
            expect_fallback(&mut session).await;
            advance(delay - 1_300).await;
            speak_unprobed(&mut session).await;
            advance(200).await;
            begin_probe(&mut session).await;
            answer_probe(&mut session, "Hello there.").await;
            settle().await;
            assert!(breaker.is_closed(), "{} {}", vendor.label, status.line);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_during_its_probe_leaves_the_probe_to_the_next_one() {
    for vendor in &VENDORS {
        let (mut session, breaker) = skipped(vendor).await;
        advance(DELAY).await;
        begin_probe(&mut session).await;
        let mut request: Option<Exchange> = None;
        if vendor.socket().is_none() {
            session.call.user().end_speech();
            request = Some(soon("a request", session.request()).await);
            expect_fallback(&mut session).await;
        }
        session.call.stream = None;
        expect_closed(&mut session).await;
        if let Some(mut request) = request {
            soon("the request is dropped", request.closed()).await;
        }
        settle().await;
        let used = usage(&mut session).await;
        assert!(used.audio > Duration::from_secs(1), "{}: {used:?}", vendor.label);
        assert!(!breaker.is_closed(), "{}: no result", vendor.label);
        session.call.reopen();
        soon("a warning", session.call.event()).await;
        begin_probe(&mut session).await;
        answer_probe(&mut session, "Hello there.").await;
        settle().await;
        assert!(breaker.is_closed(), "{}", vendor.label);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_calls_at_once_one_probes() {
    for vendor in &VENDORS {
        let (mut session, breaker) = skipped(vendor).await;
        advance(DELAY).await;
        session.call.user().start_speech();
        session.connect().await;
        if session.socket.is_none() {
            // Opens the connection in advance.
            soon("a request", session.call.server.request()).await.reply("404 No", "").await;
        }
        let shadow = session.socket.take();
        let first = session.call.swap(None);
        soon("a warning", session.call.event()).await;
        speak_unprobed(&mut session).await;
        speak_unprobed(&mut session).await;
        let second = session.call.swap(Some(first));
        session.socket = shadow;
        for _ in 0..CHUNKS {
            session.call.push(1);
            advance(50).await;
        }
        if session.socket.is_some() {
            session.read_audio().await;
        }
        answer_probe(&mut session, "Hello there.").await;
        settle().await;
        assert!(breaker.is_closed(), "{}", vendor.label);
        // Neither call changes its provider.
        expect_closed(&mut session).await;
        assert_eq!(soon("a transcript", session.call.event()).await, fallback_final());
        drop(session.call.swap(Some(second)));
        speak_unprobed(&mut session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shadow_stream_without_words_is_no_result() {
    for vendor in &VENDORS {
        let (mut session, breaker) = skipped(vendor).await;
        advance(DELAY).await;
        for text in ["", "Hello there."] {
            begin_probe(&mut session).await;
            answer_probe(&mut session, text).await;
            expect_closed(&mut session).await;
            assert_eq!(breaker.is_closed(), !text.is_empty(), "{}: {text:?}", vendor.label);
            assert_eq!(soon("a transcript", session.call.event()).await, fallback_final());
            (session.turns, session.seconds) = (0, 0.0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shadow_stream_is_closed_after_a_minute() {
    // The same for all vendors.
    for (vendor, wire) in sockets().take(1) {
        let (mut session, breaker) = skipped(vendor).await;
        advance(DELAY).await;
        begin_probe(&mut session).await;
        let turn = session.turn(0.0);
        session.send(&(wire.interim)(&turn, "", "Hello there")).await;
        // The user does not stop.
        let talk = async {
            for _ in 0..1_300 {
                session.call.push(1);
                advance(50).await;
            }
        };
        let socket = session.socket.as_mut().unwrap();
        let start = Instant::now();
        let closed = async {
            while let Some(frame) = socket.next().await {
                let text = String::from_utf8_lossy(frame.bytes()).into_owned();
                if wire.goodbye.is_some_and(|goodbye| text.contains(goodbye)) {
                    break;
                }
            }
            start.elapsed()
        };
        let closed_after = tokio::select! {
            biased;
            time = closed => time,
            () = talk => panic!("{}: the shadow stream is open", vendor.label),
        };
        let seconds = closed_after.as_secs_f64() + 1.2;
        assert!((59.0..61.0).contains(&seconds), "{}: {seconds}", vendor.label);
        session.socket = None;
        advance(1_000).await;
        settle().await;
        assert!(!breaker.is_closed(), "{}: no result", vendor.label);
        session.call.user().end_speech();
        settle().await;
        begin_probe(&mut session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_probes_a_vendor_that_failed_in_it() {
    for (vendor, _) in sockets() {
        let breaker = breaker();
        let mut session = Session::with(vendor, fallback(&breaker), Timeouts::default()).await;
        session.call.refuse("401 Unauthorized", "").await;
        let warning = soon("a warning", session.call.event()).await;
        assert!(warning.starts_with("warning The API key"), "{}: {warning}", vendor.label);
        speak_unprobed(&mut session).await;
        advance(300_000).await;
        begin_probe(&mut session).await;
        answer_probe(&mut session, "Hello there.").await;
        settle().await;
        assert!(breaker.is_closed(), "{}", vendor.label);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_fallback_a_call_uses_a_vendor_that_is_skipped() {
    for vendor in &VENDORS {
        let breaker = breaker();
        let unpaid = Error::new(ErrorKind::NoCredit, "It has no credit");
        breaker.failed(Instant::now(), &unpaid);
        let fallback = Fallback::new(None, Arc::clone(&breaker));
        let mut session = Session::with(vendor, fallback, Timeouts::default()).await;
        session.connect().await;
        assert_eq!(session.say("Hello there.").await.last().unwrap(), "final Hello there.");
        assert!(breaker.is_closed(), "{}: it works", vendor.label);
    }
}
