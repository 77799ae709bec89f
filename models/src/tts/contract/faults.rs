//! Servers that stall, never stop, break off, or send what cannot be read.

use super::{Delivery, LIMIT, Segment, Session, VENDORS, sockets};
use crate::ErrorKind::{self, Failed, Rejected, Timeout};
use crate::hosted::loopback::json::malformed_messages;
use crate::hosted::loopback::{Frame, advance, assert_clear, settle, within};
use crate::tts::hosted::test_server::Spoken;
use crate::tts::hosted::test_sink::Speech;

const TEXT: &str = "One two three.";

/// Checks that a segment ends in time with one clear failure.
async fn expect_failure(
    session: &Session,
    spoken: &mut Spoken,
    kind: ErrorKind,
    cause: &str,
) -> Speech {
    let speech = session.heard(spoken).await;
    check_failure(session, &speech, kind, cause);
    speech
}

fn check_failure(session: &Session, speech: &Speech, kind: ErrorKind, cause: &str) {
    let label = session.vendor.label;
    let sentence = speech.failed.strip_prefix(&format!("{kind:?} "));
    let sentence = sentence.unwrap_or_else(|| panic!("{label} {cause}: {:?}", speech.failed));
    assert_clear(sentence, session.vendor.name);
}

/// A segment at the server, with its first word if it `sounds`.
async fn begun(session: &mut Session, sounds: bool) -> (Spoken, Segment, Vec<Frame>) {
    let spoken = session.call.speak(1, TEXT);
    let mut segment = session.segments(&[TEXT]).await.remove(0);
    session.begin(&mut segment).await;
    let mut frames = session.frames(&segment, true);
    if sounds {
        // The header, or the times of the word, and its sound.
        for frame in frames.drain(..2) {
            session.send(&mut segment, &frame).await;
        }
    }
    (spoken, segment, frames)
}

#[tokio::test(start_paused = true)]
async fn messages_that_cannot_be_read_change_nothing() {
    let noise: Vec<u8> =
        (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (vendor, wire) in sockets() {
        let mut session = Session::start(vendor).await;
        let mut spoken = session.call.speak(1, TEXT);
        let mut segment = session.segments(&[TEXT]).await.remove(0);
        session.word_millis = 5;
        let frames = session.frames(&segment, true);
        for frame in &frames {
            for damaged in malformed_messages(frame) {
                session.send(&mut segment, &damaged).await;
            }
            session.send(&mut segment, frame).await;
        }
        if !wire.has_binary_sound {
            for size in [0, 1, 1_000, noise.len()] {
                session.send(&mut segment, &Frame::Binary(noise[..size].to_vec())).await;
            }
        }
        let speech = session.heard(&mut spoken).await;
        session.check(&speech, 0, TEXT);
        session.say(2, "And on.").await;
    }
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_no_sound_are_failures() {
    for vendor in VENDORS.iter().filter(|vendor| vendor.socket().is_none()) {
        for (kind, body, expected) in [
            ("text/html", "<html>", Rejected),
            ("audio/mpeg", "ID3", Rejected),
            ("application/json", "{\"error\":\"no\"}", Rejected),
            ("audio/wav", "RIFF", Failed),
            ("audio/wav", "no file at all, but something else", Rejected),
            ("audio/pcm", "", Failed),
            ("audio/pcm", "x", Failed),
        ] {
            let mut session = Session::start(vendor).await;
            let mut spoken = session.call.speak(1, TEXT);
            let segment = session.segments(&[TEXT]).await.remove(0);
            let status = format!("200 OK\r\ncontent-type: {kind}");
            segment.exchange.unwrap().reply(&status, body).await;
            expect_failure(&session, &mut spoken, expected, &format!("{kind} {body}")).await;
            session.say(2, "And on.").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stalls_fails_in_time() {
    for vendor in &VENDORS {
        // At the handshake.
        let session = Session::start(vendor).await;
        let mut spoken = session.call.speak(1, TEXT);
        let server = async {
            let mut held = Vec::new();
            loop {
                held.push(session.call.server.accept().await);
            }
        };
        let heard = within(LIMIT, 50, async {
            tokio::select! { () = server => unreachable!(), speech = spoken.speech() => speech }
        });
        let speech = heard.await.expect(vendor.label);
        check_failure(&session, &speech, Timeout, "stalls at the handshake");
        // Before its first sound, and in its sound. The next reply works.
        for sounds in [false, true] {
            let mut session = Session::start(vendor).await;
            let (mut spoken, _segment, _) = begun(&mut session, sounds).await;
            let why = format!("stalls, and has sounded: {sounds}");
            let speech = expect_failure(&session, &mut spoken, Timeout, &why).await;
            assert_eq!(speech.samples.is_empty(), !sounds, "{}", vendor.label);
            session.say(2, "And on.").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_sending_ends_in_time() {
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        session.word_millis = 2_000;
        let (mut spoken, mut segment, frames) = begun(&mut session, true).await;
        // The sound without its end, again and again.
        let sound = &frames[..if vendor.socket().is_some() { frames.len() - 1 } else { 1 }];
        let (mut speech, mut passed) = (None, 0);
        while speech.is_none() {
            for frame in sound {
                session.send(&mut segment, frame).await;
            }
            speech = within(100, 50, spoken.speech()).await;
            passed += 100;
            assert!(passed <= 60_000, "{}: does not end", vendor.label);
        }
        let speech = speech.unwrap();
        let cause = "sends sound without end";
        check_failure(&session, &speech, Failed, cause);
    }
    // Messages without sound.
    for (vendor, _) in sockets() {
        let mut session = Session::start(vendor).await;
        session.delivery = Delivery::Later;
        let (mut spoken, mut segment, _) = begun(&mut session, false).await;
        let mut passed = 0;
        while !spoken.events.has_more() {
            session.send(&mut segment, &Frame::text("{}")).await;
            advance(50).await;
            settle().await;
            passed += 50;
            assert!(passed <= LIMIT, "{}: does not end", vendor.label);
        }
        expect_failure(&session, &mut spoken, Timeout, "sends no sound").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_in_a_sentence_is_a_failure_and_the_next_reply_works() {
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        let (mut spoken, mut segment, frames) = begun(&mut session, true).await;
        settle().await;
        // In the middle of a message, or of a response.
        if let (Some(socket), Frame::Text(message)) = (&mut session.socket, &frames[0]) {
            socket.send_beginning(&message[..message.len() / 2]).await;
        }
        settle().await;
        session.socket = None;
        segment.exchange = None;
        let speech = expect_failure(&session, &mut spoken, Failed, "breaks off").await;
        assert!(!speech.samples.is_empty(), "{}: what came before is heard", vendor.label);
        session.say(2, "And on.").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_before_the_first_sound_is_replaced_once() {
    for (vendor, _) in sockets() {
        let mut session = Session::start(vendor).await;
        let (mut spoken, _, _) = begun(&mut session, false).await;
        session.socket = None;
        let mut segment = session.segments(&[TEXT]).await.remove(0);
        let before = session.words;
        session.speak(&mut segment, true).await;
        let mut speech = session.heard(&mut spoken).await;
        // It was sent twice.
        speech.characters /= 2;
        session.check(&speech, before, TEXT);
    }
}
