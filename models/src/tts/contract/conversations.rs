//! Conversations in which nothing fails.

use super::{Delivery, Session, VENDORS, sockets};
use crate::hosted::loopback::{advance, settle, soon, within};
use crate::tts::Request;
use crate::tts::hosted::test_server::Call;

#[tokio::test(start_paused = true)]
async fn the_connection_in_advance_is_the_one_that_speaks_with_the_agents_voice() {
    const TEXT: &str = "One two.";
    for (vendor, _) in sockets() {
        let like = Request { voice: "agent-voice".into(), ..Request::default() };
        let call = Call::open_like(&like, vendor.make);
        let mut session = Session::with(vendor, call.await);
        session.connect().await;
        let request = Request { text: TEXT.into(), reply: 1, ..like };
        let mut spoken = session.call.request(request);
        let other = within(500, 50, session.call.server.accept()).await;
        assert!(other.is_none(), "{}: another connection", vendor.label);
        let mut segment = session.segments(&[TEXT]).await.remove(0);
        session.speak(&mut segment, true).await;
        let speech = session.heard(&mut spoken).await;
        session.check(&speech, 0, TEXT);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_replies_are_heard_whole_and_in_order() {
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        for reply in 0..10 {
            let texts = [format!("Reply {reply}, one two."), "Three, four and five.".to_owned()];
            let texts = texts.each_ref().map(String::as_str);
            let [mut first, mut second] = texts.map(|text| session.call.speak(reply, text));
            let mut segments = session.segments(&texts).await;
            let before = session.words;
            session.speak(&mut segments[0], false).await;
            session.speak(&mut segments[1], true).await;
            let speech = session.heard(&mut first).await;
            session.check(&speech, before, texts[0]);
            let speech = session.heard(&mut second).await;
            session.check(&speech, before + 4, texts[1]);
            advance(2_000).await;
            for spoken in [&mut first, &mut second] {
                assert!(spoken.events.try_next().is_none(), "{}: one end", vendor.label);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_in_pieces_are_the_same_messages() {
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        session.word_millis = 10;
        session.delivery = Delivery::Bytes;
        session.say(1, "Grüße, señor!").await;
    }
    // Each word is one message, or one piece of a response, that is cut at another byte.
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        session.word_millis = 2;
        let words: Vec<String> = (0..350).map(|n| format!("w{n}")).collect();
        let text = words.join(" ");
        let mut spoken = session.call.speak(1, &text);
        let mut segment = session.segments(&[&text]).await.remove(0);
        session.begin(&mut segment).await;
        for (size, frame) in session.frames(&segment, true).iter().enumerate() {
            session.delivery = Delivery::CutAt(size);
            session.send(&mut segment, frame).await;
        }
        if let Some(exchange) = segment.exchange.take() {
            exchange.end().await;
        }
        let speech = session.heard(&mut spoken).await;
        session.check(&speech, 0, &text);
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_messages_and_fields_change_nothing() {
    for (vendor, _) in sockets() {
        let mut session = Session::start(vendor).await;
        session.delivery = Delivery::Later;
        session.say(1, "Hello there.").await;
        session.say(2, "How are you today?").await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_words_are_spoken_or_refused() {
    let words: Vec<String> = (0..10_000).map(|n| format!("w{}", n % 900)).collect();
    let text = words.join(" ");
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        session.word_millis = 1;
        if vendor.socket().is_none() {
            // The interface of the vendor permits 4,096 characters.
            let mut spoken = session.call.speak(1, &text);
            settle().await;
            let failed = soon("a failure", spoken.speech()).await.failed;
            let expected = "Rejected OpenAI-compatible TTS speaks at most 4096 characters at once";
            assert_eq!(failed, expected);
        } else {
            session.say(1, &text).await;
        }
        session.say(2, "And on.").await;
    }
}
