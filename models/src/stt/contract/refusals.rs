//! Servers that refuse the key, the account, the model, or everything.

use super::{LIMIT, Session, VENDORS, sockets};
use crate::ErrorKind;
use crate::hosted::loopback::refusals::{closes, failures, refusals, with_key};
use crate::hosted::loopback::{Frame, Logs, assert_clear, settle, within};

/// Checks that an utterance ended with one clear failure of this kind, and with nothing else.
async fn expect_failure(session: &mut Session, kind: ErrorKind, cause: &str) {
    let vendor = session.vendor;
    let events = session.events().await;
    let failed = format!("failed {kind:?} ");
    let sentence = events.last().unwrap().strip_prefix(&failed);
    let sentence = sentence.unwrap_or_else(|| panic!("{} {cause}: {events:?}", vendor.label));
    assert_clear(sentence, vendor.name);
    settle().await;
    let rest = session.rest();
    assert!(events.len() == 1 && rest.is_empty(), "{} {cause}: {rest:?}", vendor.label);
}

/// The user says something while `server` runs.
async fn speak_during(session: &mut Session, server: impl AsyncFnOnce(&Session)) {
    session.call.user().start_speech();
    session.call.push(super::CHUNKS);
    session.call.user().end_speech();
    let ended = async {
        while session.call.events.is_empty() {
            settle().await;
        }
    };
    let served = within(LIMIT, 50, async {
        tokio::select! {
            () = ended => {}
            () = server(session) => {}
        }
    });
    served.await.expect("the utterance ends");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_one_sentence_of_its_kind_without_the_key() {
    let logs = Logs::start();
    for vendor in &VENDORS {
        for (status, kind) in refusals().into_iter().chain(failures()) {
            let mut session = Session::start(vendor).await;
            speak_during(&mut session, async |session| {
                session.call.server.refuse_all(&status).await;
            })
            .await;
            expect_failure(&mut session, kind, status.line).await;
        }
    }
    assert!(logs.text().contains("a hosted STT failed"));
    logs.assert_no_key();
}

/// Accepts connections, and does the same with each.
async fn accept_all(session: &Session, frame: &Frame, close: Option<(u16, &str)>) {
    loop {
        let mut socket = session.call.server.socket().await;
        match close {
            Some((code, reason)) => socket.close(code, reason).await,
            None => socket.send(frame).await,
        }
        while socket.next().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_frame_and_an_error_in_a_message_are_sentences_of_their_kinds() {
    let logs = Logs::start();
    for (vendor, wire) in sockets() {
        for (code, reason, kind) in closes() {
            let mut session = Session::start(vendor).await;
            speak_during(&mut session, async |session| {
                accept_all(session, &Frame::text(""), Some((code, &reason))).await;
            })
            .await;
            expect_failure(&mut session, kind, &format!("closes with {code} {reason}")).await;
        }
        for (message, kind) in wire.errors {
            let mut session = Session::start(vendor).await;
            let frame = Frame::Text(with_key(message));
            speak_during(&mut session, async |session| {
                accept_all(session, &frame, None).await;
            })
            .await;
            expect_failure(&mut session, *kind, message).await;
        }
    }
    logs.assert_no_key();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_connections_is_a_failure() {
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        session.call.server.listener = None;
        speak_during(&mut session, async |_| std::future::pending().await).await;
        expect_failure(&mut session, ErrorKind::Failed, "connections are refused").await;
    }
}
