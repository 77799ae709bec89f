//! Servers that stall, never stop, break off, or send what cannot be read.

use serde_json::json;

use super::{Delivery, LIMIT, Session, VENDORS, audio_seconds, sockets};
use crate::hosted::loopback::json::malformed_messages;
use crate::hosted::loopback::{Frame, Logs, Socket, advance, assert_clear, settle, soon, within};
use crate::stt::Event;

/// Checks the last event: a final transcript, or one clear failure. Returns whether it is a
/// transcript.
async fn is_final(session: &mut Session, cause: &str) -> bool {
    let (events, name) = (session.events().await, session.vendor.name);
    let last = events.last().unwrap();
    if last.starts_with("final") {
        return true;
    }
    let sentence = last.splitn(3, ' ').last().unwrap();
    assert_clear(sentence, name);
    assert!(last.contains("Timeout") || last.contains("Failed"), "{cause}: {last}");
    false
}

#[tokio::test(start_paused = true)]
async fn messages_that_cannot_be_read_change_nothing() {
    let noise: Vec<u8> =
        (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (vendor, wire) in sockets() {
        let mut session = Session::connected(vendor).await;
        let start = session.seconds;
        session.speak().await;
        let turn = session.turn(start);
        let valid = (wire.last)(&turn, "Hello there.");
        let damaged = malformed_messages(&Frame::text(&valid[0]));
        for ends in [false, true] {
            if ends {
                session.call.user().end_speech();
                session.read_end_mark(wire).await;
            }
            for frame in &damaged {
                session.socket().send(frame).await;
            }
            for size in [0, 1, 1_000, noise.len()] {
                session.socket().send(&Frame::Binary(noise[..size].to_vec())).await;
            }
        }
        session.send(&valid).await;
        let events = session.events().await;
        assert_eq!(events.last().unwrap(), "final Hello there.", "{}", vendor.label);
        session.turns += 1;
        assert_eq!(session.say("And on.").await.last().unwrap(), "final And on.");
    }
}

#[tokio::test(start_paused = true)]
async fn responses_that_cannot_be_read_are_failures() {
    let huge = format!("{{\"text\":\"{}\"}}", "x".repeat(2 << 20));
    for vendor in VENDORS.iter().filter(|vendor| vendor.socket().is_none()) {
        for body in ["", "{", "{\"text\":\"Hel", "[]", "\u{0}\u{fffd}", "{\"text\":7}", &huge] {
            // Whole, and cut before its end.
            for missing in [0, 10] {
                let mut session = Session::start(vendor).await;
                session.speak().await;
                session.call.user().end_speech();
                let server = async {
                    loop {
                        let exchange = session.request().await;
                        let bytes = body.as_bytes();
                        exchange.reply_bytes("200 OK", bytes.len() + missing, bytes).await;
                    }
                };
                let limit = within(LIMIT, 50, async {
                    tokio::select! { () = server => {}, () = wait(&session) => {} }
                });
                limit.await.expect("an end");
                let why = format!("{} {body:.9} {missing}", vendor.label);
                assert!(!is_final(&mut session, &why).await, "{why}");
            }
        }
    }
}

/// Waits for an event.
async fn wait(session: &Session) {
    while session.call.events.is_empty() {
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stalls_fails_in_time() {
    let logs = Logs::start();
    for vendor in &VENDORS {
        // At the handshake, after it, and after a turn that worked.
        for stage in 0..3 {
            let mut session = Session::start(vendor).await;
            if stage == 2 {
                session.connect().await;
                session.say("It works.").await;
            }
            session.call.user().start_speech();
            session.call.push(2 * super::CHUNKS);
            session.call.user().end_speech();
            let server = async {
                let mut held = Vec::new();
                let mut sockets = Vec::new();
                loop {
                    let stream = session.call.server.accept().await;
                    if stage == 0 || vendor.socket().is_none() {
                        held.push(stream);
                    } else {
                        sockets.push(Socket::accept(stream).await);
                    }
                }
            };
            let limit = within(LIMIT, 50, async {
                tokio::select! { () = server => {}, () = wait(&session) => {} }
            });
            limit.await.unwrap_or_else(|| panic!("{} stage {stage}", vendor.label));
            let why = format!("{} stalls at stage {stage}", vendor.label);
            assert!(!is_final(&mut session, &why).await, "{why}");
            settle().await;
            assert!(session.rest().is_empty(), "{why}");
        }
    }
    logs.assert_no_key();
}

/// Whether the utterance has its final transcript, or has failed.
fn has_ended(session: &mut Session) -> bool {
    session.rest().iter().any(|event| matches!(event, Event::Final(_) | Event::Failed(_)))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_sending_ends_in_time() {
    for (vendor, wire) in sockets() {
        for is_known in [true, false] {
            let mut session = Session::connected(vendor).await;
            let start = session.seconds;
            session.speak().await;
            let turn = session.turn(start);
            session.call.user().end_speech();
            session.read_end_mark(wire).await;
            let (mut text, mut passed) = (String::from("On"), 0);
            while !has_ended(&mut session) {
                let before = text.clone();
                text += " and on";
                let mut message = (wire.interim)(&turn, &before, &text).remove(0);
                if !is_known {
                    message["type"] = json!("x_new");
                    message["message_type"] = json!("x_new");
                }
                session.socket().send(&Frame::text(message)).await;
                advance(50).await;
                passed += 50;
                assert!(passed <= LIMIT, "{}: does not end", vendor.label);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_that_never_ends_is_cut() {
    for (vendor, wire) in sockets() {
        let mut session = Session::connected(vendor).await;
        let start = session.seconds;
        session.speak().await;
        let turn = session.turn(start);
        let (mut text, mut longest) = (String::new(), 0);
        for _ in 0..3 {
            let before = text.clone();
            text += &"on and ".repeat(1_700);
            session.send(&(wire.interim)(&turn, &before, &text)).await;
            settle().await;
            for event in session.rest() {
                if let Event::Interim(text) = event {
                    longest = longest.max(text.len());
                }
            }
        }
        assert!((1..64 << 10).contains(&longest), "{}: {longest} bytes", vendor.label);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_in_a_sentence_loses_no_word() {
    for (vendor, wire) in sockets() {
        let mut session = Session::connected(vendor).await;
        let start = session.seconds;
        session.speak().await;
        let turn = session.turn(start);
        session.send(&(wire.interim)(&turn, "", "Hel")).await;
        assert_eq!(soon("an interim", session.call.event()).await, "interim Hel");
        // In the middle of a message.
        let message = (wire.interim)(&turn, "Hel", "Hello")[0].to_string();
        session.socket().send_beginning(&message[..message.len() / 2]).await;
        session.socket = None;
        session.connect().await;
        session.call.user().end_speech();
        let mut seconds = 0.0;
        loop {
            let next = within(LIMIT, 10, session.socket().next()).await.expect("the audio again");
            let frame = next.expect("an end mark");
            seconds += audio_seconds(&frame).unwrap_or_default();
            if matches!(&frame, Frame::Text(text) if text.contains(wire.end_mark)) {
                break;
            }
        }
        assert!(seconds > 1.1, "{}: {seconds} s are sent again", vendor.label);
        let turn = session.turn(0.0);
        session.delivery = Delivery::Whole;
        session.send(&(wire.last)(&turn, "Hello there.")).await;
        let events = session.events().await;
        assert_eq!(events.last().unwrap(), "final Hello there.", "{}", vendor.label);
    }
}
