//! Time limits that are configured.

use std::time::Duration;

use tokio::time::Instant;

use super::{CHUNKS, Session, VENDORS, Vendor, sockets};
use crate::hosted::loopback::{soon, within};
use crate::stt::{Fallback, Timeouts};

/// Longest time after a limit, in ms: the clock moves in steps of 50 ms.
const STEP: u64 = 100;

async fn start(vendor: &'static Vendor, timeouts: Timeouts) -> Session {
    Session::with(vendor, Fallback::default(), timeouts).await
}

/// The last event of the utterance, which comes `limit` ms after now.
async fn event_after(session: &mut Session, limit: u64) -> String {
    let start = Instant::now();
    let events = within(20_000, 50, session.call.event()).await.expect("an event");
    let millis = start.elapsed().as_millis() as u64;
    let label = session.vendor.label;
    assert!((limit..=limit + STEP).contains(&millis), "{label}: {events} after {millis} ms");
    events
}

fn final_transcript(millis: u64) -> Timeouts {
    let time = Duration::from_millis(millis);
    Timeouts { final_transcript: Some(time), ..Timeouts::default() }
}

#[tokio::test(start_paused = true)]
async fn the_last_interim_is_final_after_the_time_for_a_final() {
    for (vendor, wire) in sockets() {
        for limit in [200, 5_000] {
            let mut session = start(vendor, final_transcript(limit)).await;
            session.connect().await;
            let start = session.seconds;
            session.speak().await;
            let turn = session.turn(start);
            session.send(&(wire.interim)(&turn, "", "Hello")).await;
            assert_eq!(soon("an interim", session.call.event()).await, "interim Hello");
            session.call.user().end_speech();
            session.read_end_mark(wire).await;
            assert_eq!(event_after(&mut session, limit).await, "final Hello");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_sends_nothing_has_the_time_for_a_final_too() {
    // They answer each end mark. The utterance is too short for an answer before.
    for (vendor, wire) in
        sockets().filter(|(vendor, _)| ["ElevenLabs", "OpenAI"].contains(&vendor.name))
    {
        let mut session = start(vendor, final_transcript(6_000)).await;
        session.connect().await;
        session.speak().await;
        session.call.user().end_speech();
        session.read_end_mark(wire).await;
        let event = event_after(&mut session, 6_000).await;
        assert!(event.starts_with("failed Timeout"), "{}: {event}", vendor.label);
    }
    for vendor in VENDORS.iter().filter(|vendor| vendor.socket().is_none()) {
        let mut session = start(vendor, final_transcript(300)).await;
        session.speak().await;
        session.call.user().end_speech();
        let _unanswered = soon("a request", session.request()).await;
        // With a fifth of 1.2 s.
        let event = event_after(&mut session, 540).await;
        assert!(event.starts_with("failed Timeout"), "{}: {event}", vendor.label);
    }
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_sends_nothing_while_the_user_speaks_fails_after_the_first_timeout() {
    // OpenAI may send nothing.
    for (vendor, _) in sockets().filter(|(vendor, _)| vendor.name != "OpenAI") {
        for limit in [500, 8_000] {
            let first = Duration::from_millis(limit);
            let mut session = start(vendor, Timeouts { first, ..Timeouts::default() }).await;
            session.connect().await;
            session.speak().await;
            // An answer is due after at most 1.5 s of audio.
            let due = Instant::now();
            for _ in 0..8 {
                session.call.push(1);
                crate::hosted::loopback::advance(50).await;
            }
            let event = within(20_000, 50, session.call.event()).await.expect("an event");
            assert!(event.starts_with("failed Timeout"), "{}: {event}", vendor.label);
            let millis = due.elapsed().as_millis() as u64;
            let range = limit.saturating_sub(400)..=limit + 400 + STEP;
            assert!(range.contains(&millis), "{}: after {millis} ms", vendor.label);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_accepted_fails_after_the_connect_timeout() {
    for (vendor, _) in sockets() {
        for limit in [700, 15_000] {
            let connect = Duration::from_millis(limit);
            let mut session = start(vendor, Timeouts { connect, ..Timeouts::default() }).await;
            let _silent = soon("a connection", session.call.server.accept()).await;
            session.call.user().start_speech();
            session.call.push(CHUNKS);
            let event = event_after(&mut session, limit).await;
            assert!(event.starts_with("failed Timeout"), "{}: {event}", vendor.label);
        }
    }
}
