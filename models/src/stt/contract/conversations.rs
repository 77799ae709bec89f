//! Conversations, and streams that are dropped at every moment.

use super::{Delivery, Session, VENDORS, Vendor, sockets};
use crate::hosted::loopback::{Random, advance, settle, soon, within};

/// Time in which the vendor learns that the call is over, in ms.
const GOODBYE_LIMIT: u64 = 50;

#[tokio::test(start_paused = true)]
async fn ten_utterances_become_ten_transcripts() {
    for vendor in &VENDORS {
        let mut session = Session::connected(vendor).await;
        for n in 0..10 {
            let text = format!("This is sentence number {n}.");
            let mut events = session.say(&text).await;
            assert_eq!(events.pop(), Some(format!("final {text}")), "{}", vendor.label);
            let interims = events.iter().filter(|event| event.starts_with("interim")).count();
            assert_eq!(interims > 0, vendor.socket().is_some(), "{}: {events:?}", vendor.label);
            let hints: Vec<&String> =
                events.iter().filter(|event| event.starts_with("turn")).collect();
            match vendor.socket().and_then(|wire| wire.hints) {
                Some(_) => assert_eq!(hints, ["turn EagerEnd", "turn Resumed"], "{}", vendor.label),
                None => assert!(hints.is_empty(), "{}: {hints:?}", vendor.label),
            }
            advance(1_000).await;
            assert!(session.rest().is_empty(), "{}: one transcript for each", vendor.label);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_in_fragments_are_the_same_messages() {
    for vendor in &VENDORS {
        let mut session = Session::connected(vendor).await;
        session.delivery = Delivery::Bytes;
        let events = session.say("Hello there, Grüße 你好 🎈!").await;
        let expected = "final Hello there, Grüße 你好 🎈!";
        assert_eq!(events.last().unwrap(), expected, "{}", vendor.label);
    }
    // Cut once, at every byte.
    for (vendor, wire) in sockets() {
        let mut session = Session::connected(vendor).await;
        let start = session.seconds;
        session.speak().await;
        let (turn, mut text) = (session.turn(start), String::from("Hi ü"));
        let mut before = String::new();
        let longest = (wire.interim)(&turn, "", "Hi ü")[0].to_string().len() + 1;
        for size in 0..longest {
            // Each text is another one.
            text.push(if size % 2 == 0 { 'a' } else { 'b' });
            session.delivery = Delivery::CutAt(size);
            let messages = (wire.interim)(&turn, &before, &text);
            session.send(&messages).await;
            let event = soon("an interim transcript", session.call.event()).await;
            assert_eq!(event, format!("interim {text}"), "{}: cut at {size}", vendor.label);
            before.clone_from(&text);
        }
    }
    let vendor = VENDORS.last().unwrap();
    let mut session = Session::connected(vendor).await;
    for size in 0..90 {
        session.delivery = Delivery::CutAt(size);
        assert_eq!(session.say("Hi there.").await, ["final Hi there."], "cut at {size}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_messages_and_fields_change_nothing() {
    for vendor in &VENDORS {
        let (mut today, mut later) =
            (Session::connected(vendor).await, Session::connected(vendor).await);
        later.delivery = Delivery::Later;
        for text in ["Hello there.", "How are you?"] {
            assert_eq!(today.say(text).await, later.say(text).await, "{}", vendor.label);
        }
        settle().await;
        assert!(later.rest().is_empty(), "{}", vendor.label);
    }
}

/// Speaks and drops the stream after so many of the vendor's messages. Then the next call works.
async fn drop_after(vendor: &'static Vendor, session: &mut Session, count: usize, pause: u64) {
    let Some(wire) = vendor.socket() else {
        return drop_request(session, count, pause).await;
    };
    let start = session.seconds;
    session.speak().await;
    let turn = session.turn(start);
    let interims = [("", "One"), ("One", "One two"), ("One two", "One two three")];
    let mut steps: Vec<_> = interims
        .iter()
        .flat_map(|(before, text)| (wire.interim)(&turn, before, text))
        .map(|message| (message, false))
        .collect();
    steps.extend((wire.last)(&turn, "One two three.").into_iter().map(|message| (message, true)));
    let count = count % (steps.len() + 1);
    let mut has_ended = false;
    for (message, ends) in &steps[..count] {
        if *ends && !has_ended {
            session.call.user().end_speech();
            session.read_end_mark(wire).await;
            has_ended = true;
        }
        session.send(std::slice::from_ref(message)).await;
    }
    advance(pause).await;
    settle().await;
    session.call.stream = None;
    drop(session.rest());
    let label = vendor.label;
    let mut socket = session.socket.take().unwrap();
    let reported = async {
        while let Some(frame) = socket.next().await {
            let text = String::from_utf8_lossy(frame.bytes()).into_owned();
            if wire.goodbye.is_some_and(|goodbye| text.contains(goodbye)) {
                return true;
            }
        }
        wire.goodbye.is_none()
    };
    let reported = within(GOODBYE_LIMIT, 10, reported).await;
    assert_eq!(reported, Some(true), "{label}: reported after {count} messages");
    for (message, _) in &steps[count..] {
        socket.send(&crate::hosted::loopback::Frame::text(message)).await;
    }
    advance(2_000).await;
    settle().await;
    let rest = session.rest();
    assert!(rest.is_empty(), "{label}: after {count} messages, {rest:?}");
    drop(socket);
    session.call.reopen();
    session.connect().await;
    let events = session.say("And on.").await;
    assert_eq!(events.last().unwrap(), "final And on.", "{label}: after {count} messages");
}

/// The same for a request: before it, after it, and in its response.
async fn drop_request(session: &mut Session, count: usize, pause: u64) {
    session.speak().await;
    let mut exchange = None;
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"text\":\"One.\"}";
    if count > 0 {
        session.call.user().end_speech();
        let mut request = soon("a request", session.request()).await;
        request.write(&response[..(response.len() * (count - 1) / 4).min(50)]).await;
        exchange = Some(request);
    }
    advance(pause.min(4_000)).await;
    settle().await;
    session.call.stream = None;
    drop(session.rest());
    if let Some(mut exchange) = exchange {
        let reported = within(GOODBYE_LIMIT, 10, exchange.closed()).await;
        assert!(reported.is_some(), "{}: the request is dropped", session.vendor.label);
    }
    advance(2_000).await;
    settle().await;
    assert!(session.rest().is_empty(), "{}", session.vendor.label);
    session.call.reopen();
    let events = session.say("And on.").await;
    assert_eq!(events, ["final And on."], "{}", session.vendor.label);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_at_any_moment_says_nothing_more() {
    for vendor in &VENDORS {
        let mut session = Session::connected(vendor).await;
        for count in 0..6 {
            drop_after(vendor, &mut session, count, 0).await;
        }
        let mut random = Random::new(24);
        for _ in 0..4 {
            let (count, pause) = (random.below(6), random.below(900));
            drop_after(vendor, &mut session, count, pause as u64).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_words_are_a_transcript_of_bounded_length() {
    let words: Vec<String> = (0..10_000).map(|n| format!("word{n}")).collect();
    let long = words.join(" ");
    for vendor in &VENDORS {
        let mut session = Session::connected(vendor).await;
        let events = session.say(&long).await;
        let text = events.last().unwrap();
        let text = text.strip_prefix("final ").unwrap_or_else(|| panic!("{text:.200}"));
        assert!(long.to_lowercase().starts_with(&text.to_lowercase()), "{}", vendor.label);
        assert!(text.len() > 30_000, "{}: {} bytes", vendor.label, text.len());
        assert_eq!(session.say("And on.").await.last().unwrap(), "final And on.");
    }
}
