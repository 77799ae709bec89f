//! Replies that are cut off at every moment.

use super::conversations::protocols;
use super::{Answer, Received, Session, VENDORS, city, question};
use crate::hosted::loopback::{Random, advance, settle, soon, within};

/// Time in which the server learns that the reply is cut off, in ms.
const CANCEL_LIMIT: u64 = 50;

/// Cuts a reply off after so many events, with pauses between them. Then the next one works.
async fn interrupt(session: &Session, count: usize, mut pause: impl FnMut() -> u64) {
    let label = session.vendor.label;
    let answer = Answer { calls: vec![city("Rome")], ..Answer::of("One two three.") };
    let events = session.vendor.wire.events(&answer, false);
    let count = count % (events.len() + 1);
    let mut asked = session.ask(question("Hi"));
    let mut exchange = session.request().await;
    for event in &events[..count] {
        exchange.piece(event.as_bytes()).await;
        advance(pause()).await;
    }
    settle().await;
    let before = asked.so_far();
    assert!(before.failed.is_none(), "{label}: {before:?}");
    drop(asked.handle);
    let reported = within(CANCEL_LIMIT, 10, exchange.closed()).await;
    assert!(reported.is_some(), "{label}: reported to the server after {count} events");
    for event in &events[count..] {
        exchange.piece(event.as_bytes()).await;
    }
    drop(exchange);
    session.exchange(question("And?"), &Answer::of("And on.")).await;
    let mut late = Received::default();
    while let Ok(event) = asked.events.try_recv() {
        late.add(event);
    }
    assert_eq!(late, Received::default(), "{label}: after {count} events");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_cut_off_after_any_event_says_nothing_more() {
    for vendor in &VENDORS {
        let session = Session::start(vendor).await;
        for count in 0..14 {
            interrupt(&session, count, || 0).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_cut_off_at_random_moments_do_not_disturb_later_ones() {
    for (seed, vendor) in (1..).zip(protocols()) {
        let mut random = Random::new(seed);
        let session = Session::start(vendor).await;
        for _ in 0..6 {
            let count = random.below(20);
            interrupt(&session, count, || random.below(200) as u64).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_cut_off_before_the_server_answers_is_dropped() {
    for vendor in &VENDORS {
        let session = Session::start(vendor).await;
        // Before the connection, and before the response.
        for accepts in [false, true] {
            let mut asked = session.ask(question("Hi"));
            let mut exchange = None;
            if accepts {
                exchange = Some(session.refused_request().await);
            }
            drop(asked.handle);
            if let Some(mut exchange) = exchange {
                let reported = within(CANCEL_LIMIT, 10, exchange.closed()).await;
                assert!(reported.is_some(), "{}", vendor.label);
            }
            settle().await;
            assert!(asked.events.try_recv().is_err(), "{}", vendor.label);
        }
        let mut asked = session.ask(question("And?"));
        // The first request may have come as far as a connection.
        let exchange = soon("a request", async {
            loop {
                let stream = session.server.accept().await;
                let request = super::Exchange::read(stream);
                if let Some(Some(exchange)) = within(0, 1, request).await {
                    break exchange;
                }
            }
        });
        let mut exchange = exchange.await;
        exchange.begin("text/event-stream").await;
        session.answer(exchange, &Answer::of("And on.")).await;
        assert_eq!(asked.received().await.text, "And on.", "{}", vendor.label);
    }
}
