//! Servers that refuse, stall, never stop, break off, or send what cannot be read.

use super::conversations::protocols;
use super::{Answer, Asked, LIMIT, Received, Session, VENDORS, question};
use crate::ErrorKind::{self, Failed, Timeout};
use crate::hosted::loopback::refusals::{failures, refusals, with_key};
use crate::hosted::loopback::{Logs, assert_clear, settle, within};

/// What is received while `server` runs.
async fn received_during(session: &Session, server: impl AsyncFnOnce(&Session)) -> Received {
    let mut asked = session.ask(question("Hi"));
    let received = within(LIMIT, 50, async {
        tokio::select! {
            biased;
            received = asked.whole() => received,
            () = server(session) => unreachable!("the server does not stop"),
        }
    });
    let received = received.await.expect("an end of the reply");
    settle().await;
    assert_eq!(asked.so_far(), Received::default(), "{}: one failure", session.vendor.label);
    received
}

fn expect_failure(session: &Session, received: &Received, kind: ErrorKind, cause: &str) {
    let vendor = session.vendor;
    let (found, sentence) = received.failed.as_ref().unwrap_or_else(|| {
        panic!("{} {cause}: {received:.300?}", vendor.label);
    });
    assert_eq!(*found, kind, "{} {cause}: {sentence}", vendor.label);
    assert_clear(sentence, vendor.name);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_one_sentence_of_its_kind_without_the_key() {
    let logs = Logs::start();
    for vendor in &VENDORS {
        for (status, kind) in refusals().into_iter().chain(failures()) {
            let session = Session::start(vendor).await;
            let received = received_during(&session, async |session| {
                session.server.refuse_all(&status).await;
            })
            .await;
            expect_failure(&session, &received, kind, status.line);
            assert_eq!((received.text.as_str(), received.end), ("", None));
        }
        let mut session = Session::start(vendor).await;
        session.server.listener = None;
        let received = received_during(&session, async |_| std::future::pending().await).await;
        expect_failure(&session, &received, Failed, "connections are refused");
    }
    assert!(logs.text().contains("did not accept a request"));
    logs.assert_no_key();
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again_after_the_time_that_it_names() {
    for vendor in &VENDORS {
        let session = Session::start(vendor).await;
        let mut asked = session.ask(question("Hi"));
        session.server.refuse("429 Too Many Requests\r\nretry-after-ms: 400", "").await;
        let again = within(390, 10, session.server.accept()).await;
        assert!(again.is_none(), "{}: too early", vendor.label);
        let again = within(60, 10, session.server.request()).await;
        let mut exchange = again.expect("the same request");
        exchange.begin("text/event-stream").await;
        session.answer(exchange, &Answer::of("Hello.")).await;
        assert_eq!(asked.received().await.text, "Hello.", "{}", vendor.label);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_stream_is_a_sentence_of_its_kind() {
    let logs = Logs::start();
    for vendor in &VENDORS {
        for (message, kind) in vendor.wire.errors {
            // Alone, and after a part of the answer.
            for begins in [false, true] {
                let session = Session::start(vendor).await;
                let mut asked = session.ask(question("Hi"));
                let mut exchange = session.request().await;
                if begins {
                    exchange.piece(beginning(&session).as_bytes()).await;
                }
                // Errors of several lines are one line in a stream.
                let data = with_key(message).replace('\n', " ");
                exchange.piece(format!("data: {data}\n\n").as_bytes()).await;
                let received = asked.received().await;
                expect_failure(&session, &received, *kind, message);
                assert_eq!(received.text, if begins { "One two " } else { "" });
                settle().await;
                assert_eq!(asked.so_far(), Received::default(), "{}", vendor.label);
            }
        }
    }
    logs.assert_no_key();
}

/// The beginning of an answer.
fn beginning(session: &Session) -> String {
    let wire = session.vendor.wire;
    let words = ["One ", "two "].map(|text| super::event(&(wire.text)(text)));
    (wire.opening)().iter().map(super::event).chain(words).collect()
}

/// Sends the beginning of an answer, then these bytes.
async fn answered_with(session: &Session, kind: &str, bytes: &[u8], ends: bool) -> Received {
    let mut asked = session.ask(question("Hi"));
    let mut exchange = session.refused_request().await;
    exchange.begin(kind).await;
    exchange.piece(bytes).await;
    if ends {
        exchange.end().await;
        return asked.received().await;
    }
    // The connection breaks.
    settle().await;
    drop(exchange);
    asked.received().await
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_a_failure() {
    for vendor in &VENDORS {
        let session = Session::start(vendor).await;
        let noise: Vec<u8> =
            (0..10_000).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let begun = beginning(&session);
        let bad = |data: &str| [begun.as_bytes(), b"data: ", data.as_bytes(), b"\n\n"].concat();
        for (kind, bytes) in [
            ("text/event-stream", Vec::new()),
            ("text/event-stream", noise.clone()),
            ("text/event-stream", bad("{\"type\":")),
            ("text/event-stream", bad("no JSON")),
            ("text/event-stream", bad("\u{0}\u{fffd}")),
            ("text/event-stream", bad(&"[".repeat(10_000))),
            ("text/html", b"<html>".to_vec()),
            ("application/octet-stream", noise),
            ("application/json", b"{\"text\":".to_vec()),
            ("application/json", b"{}".to_vec()),
            ("application/json", b"[]".to_vec()),
        ] {
            let received = answered_with(&session, kind, &bytes, true).await;
            expect_failure(&session, &received, Failed, &format!("{kind} {}", bytes.len()));
        }
        // JSON of another shape is no part of the answer.
        let odd: String = ["", "null", "7", "\"x\"", "{}", "[]", "{\"type\":7}", "{\"choices\":3}"]
            .map(|data| format!("data: {data}\n\n"))
            .concat();
        let events = vendor.wire.events(&Answer::of("Hello."), false);
        let mixed: String = events.iter().map(|event| odd.clone() + event).collect();
        let received = answered_with(&session, "text/event-stream", mixed.as_bytes(), true).await;
        assert_eq!((received.text.as_str(), received.failed), ("Hello.", None), "{}", vendor.label);
        session.exchange(question("And?"), &Answer::of("And on.")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_or_breaks_in_a_sentence_is_a_failure() {
    for vendor in &VENDORS {
        for ends in [true, false] {
            let session = Session::start(vendor).await;
            let begun = beginning(&session);
            let kind = "text/event-stream";
            let received = answered_with(&session, kind, begun.as_bytes(), ends).await;
            assert_eq!(received.text, "One two ", "{}", vendor.label);
            expect_failure(&session, &received, Failed, "ends early");
            session.exchange(question("And?"), &Answer::of("And on.")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stalls_fails_in_time() {
    for vendor in &VENDORS {
        // Before the response, before the first word, in the answer, and with comments alone.
        for stage in 0..4 {
            let session = Session::start(vendor).await;
            let mut asked = session.ask(question("Hi"));
            let mut exchange = session.refused_request().await;
            if stage > 0 {
                exchange.begin("text/event-stream").await;
            }
            if stage > 1 {
                exchange.piece(beginning(&session).as_bytes()).await;
            }
            let comments = async {
                loop {
                    if stage == 3 {
                        exchange.piece(b": wait\n\nevent: ping\n\n").await;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                }
            };
            let received = received_with(&mut asked, comments).await;
            expect_failure(&session, &received, Timeout, &format!("stalls at stage {stage}"));
            settle().await;
            assert_eq!(asked.so_far(), Received::default(), "{}", vendor.label);
        }
    }
}

/// What is received while the server does something that does not end.
async fn received_with(asked: &mut Asked, server: impl Future<Output = ()>) -> Received {
    let received = within(LIMIT, 50, async {
        tokio::select! {
            biased;
            received = asked.whole() => received,
            () = server => unreachable!(),
        }
    });
    received.await.expect("an end of the reply")
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_ends_is_a_failure() {
    const MINUTE: u64 = 60_000;
    for vendor in protocols() {
        // As fast as possible, in events of 256 KiB and in one event.
        let big = "on and on ".repeat(26_000);
        for piece in [super::event(&(vendor.wire.text)(&big)), format!("data: {big}")] {
            let session = Session::start(vendor).await;
            let mut asked = session.ask(question("Hi"));
            let mut exchange = session.request().await;
            let flood = async {
                loop {
                    exchange.piece(piece.as_bytes()).await;
                    settle().await;
                }
            };
            let received = received_with(&mut asked, flood).await;
            expect_failure(&session, &received, Failed, "sends too much");
            assert!(received.text.len() <= 16 << 20, "{}", vendor.label);
        }
        // A word each 4 s.
        let session = Session::start(vendor).await;
        let mut asked = session.ask(question("Hi"));
        let mut exchange = session.request().await;
        let word = super::event(&(vendor.wire.text)("on "));
        let drip = async {
            loop {
                exchange.piece(word.as_bytes()).await;
                tokio::time::sleep(std::time::Duration::from_secs(4)).await;
            }
        };
        let received = within(15 * MINUTE, 2_000, async {
            tokio::select! {
                biased;
                received = asked.whole() => received,
                () = drip => unreachable!(),
            }
        });
        let received = received.await.expect(vendor.label);
        expect_failure(&session, &received, Timeout, "does not stop");
    }
}
