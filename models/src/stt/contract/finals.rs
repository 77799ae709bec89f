//! Final transcripts that are empty although the user was heard.

use super::{Session, sockets};
use crate::hosted::loopback::{advance, soon};

#[tokio::test(start_paused = true)]
async fn an_empty_final_after_words_is_the_last_interim() {
    for (vendor, wire) in sockets() {
        let mut session = Session::connected(vendor).await;
        let start = session.seconds;
        session.speak().await;
        let turn = session.turn(start);
        session.send(&(wire.interim)(&turn, "", "Hel")).await;
        assert_eq!(soon("an interim", session.call.event()).await, "interim Hel");
        session.send(&(wire.interim)(&turn, "Hel", "Hello there")).await;
        assert_eq!(soon("an interim", session.call.event()).await, "interim Hello there");
        session.call.user().end_speech();
        session.read_end_mark(wire).await;
        session.send(&(wire.last)(&turn, "")).await;
        session.turns += 1;
        assert_eq!(session.events().await, ["final Hello there"], "{}", vendor.label);
        advance(1_000).await;
        assert!(session.rest().is_empty(), "{}: one transcript", vendor.label);
        // It does not belong to the next utterance.
        assert_eq!(session.say("And on.").await.last().unwrap(), "final And on.");
        session.speak().await;
        let turn = session.turn(session.seconds - 1.2);
        session.call.user().end_speech();
        session.read_end_mark(wire).await;
        session.send(&(wire.last)(&turn, "")).await;
        assert_eq!(session.events().await, ["final "], "{}: silence", vendor.label);
    }
}

#[tokio::test(start_paused = true)]
async fn words_that_the_vendor_retracts_are_not_the_final() {
    // OpenAI appends to its transcripts, and retracts nothing.
    for (vendor, wire) in sockets().filter(|(vendor, _)| vendor.name != "OpenAI") {
        let mut session = Session::connected(vendor).await;
        let start = session.seconds;
        session.speak().await;
        let turn = session.turn(start);
        session.send(&(wire.interim)(&turn, "", "Uh")).await;
        assert_eq!(soon("an interim", session.call.event()).await, "interim Uh");
        session.send(&(wire.interim)(&turn, "Uh", "")).await;
        session.call.user().end_speech();
        session.read_end_mark(wire).await;
        session.send(&(wire.last)(&turn, "")).await;
        assert_eq!(session.events().await, ["final "], "{}", vendor.label);
    }
}
