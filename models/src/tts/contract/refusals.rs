//! Servers that refuse the key, the account, the voice, or everything.

use super::{LIMIT, Session, VENDORS, sockets};
use crate::ErrorKind;
use crate::hosted::loopback::refusals::{closes, failures, refusals, with_key};
use crate::hosted::loopback::{Frame, Logs, assert_clear, settle, within};
use crate::tts::hosted::test_sink::Speech;

/// What is heard of a text while `server` runs.
async fn heard_during(session: &mut Session, server: impl AsyncFnOnce(&mut Session)) -> Speech {
    let mut spoken = session.call.speak(1, "One two three.");
    let heard = within(LIMIT, 50, async {
        tokio::select! {
            biased;
            speech = spoken.speech() => speech,
            () = server(session) => unreachable!("the server does not stop"),
        }
    });
    let speech = heard.await.expect("an end of the segment");
    settle().await;
    assert!(spoken.events.try_next().is_none(), "{}: one failure", session.vendor.label);
    speech
}

fn expect_failure(session: &Session, speech: &Speech, kind: ErrorKind, cause: &str) {
    let vendor = session.vendor;
    let sentence = speech.failed.strip_prefix(&format!("{kind:?} "));
    let sentence =
        sentence.unwrap_or_else(|| panic!("{} {cause}: {:?}", vendor.label, speech.failed));
    assert_clear(sentence, vendor.name);
    assert!(speech.samples.is_empty(), "{} {cause}", vendor.label);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_one_sentence_of_its_kind_without_the_key() {
    let logs = Logs::start();
    for vendor in &VENDORS {
        for (status, kind) in refusals().into_iter().chain(failures()) {
            let mut session = Session::start(vendor).await;
            let speech = heard_during(&mut session, async |session| {
                session.call.server.refuse_all(&status).await;
            })
            .await;
            expect_failure(&session, &speech, kind, status.line);
        }
    }
    assert!(logs.text().contains("a hosted TTS failed"));
    logs.assert_no_key();
}

#[tokio::test(start_paused = true)]
async fn a_close_frame_and_an_error_in_a_message_are_sentences_of_their_kinds() {
    let logs = Logs::start();
    for (vendor, wire) in sockets() {
        for (code, reason, kind) in closes() {
            let mut session = Session::start(vendor).await;
            let speech = heard_during(&mut session, async |session| {
                loop {
                    let mut socket = session.call.server.socket().await;
                    socket.close(code, &reason).await;
                    while socket.next().await.is_some() {}
                }
            })
            .await;
            expect_failure(&session, &speech, kind, &format!("closes with {code} {reason}"));
        }
        for (message, kind) in wire.errors {
            let mut session = Session::start(vendor).await;
            let speech = heard_during(&mut session, async |session| {
                loop {
                    let mut segment = session.segment().await;
                    let message = with_key(message).replace("CONTEXT", &segment.context);
                    session.send(&mut segment, &Frame::Text(message)).await;
                }
            })
            .await;
            expect_failure(&session, &speech, *kind, message);
        }
    }
    logs.assert_no_key();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_connections_is_a_failure() {
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        session.call.server.listener = None;
        let speech = heard_during(&mut session, async |_| std::future::pending().await).await;
        expect_failure(&session, &speech, ErrorKind::Failed, "connections are refused");
    }
}
