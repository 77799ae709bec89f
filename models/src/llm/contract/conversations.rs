//! Conversations in which nothing fails.

use std::collections::HashSet;

use super::{Answer, Delivery, Session, VENDORS, Vendor, city, conversation, question};

/// The first vendor of each protocol.
pub(super) fn protocols() -> impl Iterator<Item = &'static Vendor> {
    let mut known = HashSet::new();
    VENDORS.iter().filter(move |vendor| known.insert(vendor.wire.path))
}

#[tokio::test(start_paused = true)]
async fn ten_questions_get_their_answers_and_the_history_is_sent() {
    for vendor in &VENDORS {
        let session = Session::start(vendor).await;
        let mut turns: Vec<(String, Answer)> = Vec::new();
        for n in 0..10 {
            let asked = format!("Question {n}?");
            let mut answer = Answer::of(&format!("Answer {n}: Grüße 你好 🎈!"));
            if n % 3 == 1 {
                answer.calls = vec![city("Rome"), city("Oslo")];
            }
            let mut reply = session.ask(conversation(&turns, &asked));
            let exchange = session.request().await;
            let body: serde_json::Value = serde_json::from_slice(&exchange.body).unwrap();
            let sent = body.to_string();
            for (question, answer) in &turns {
                let label = vendor.label;
                assert!(sent.contains(question), "{label}: {question} is in the history");
                assert!(sent.contains(&answer.text.concat()), "{label}: its answer, too");
            }
            assert!(sent.contains(&asked), "{}", vendor.label);
            session.answer(exchange, &answer).await;
            let received = reply.received().await;
            assert_eq!(received.text, answer.text.concat(), "{}", vendor.label);
            assert_eq!(received.calls, answer.calls, "{}", vendor.label);
            assert_eq!((received.end, received.failed), (Some((120, 15)), None));
            turns.push((asked, answer));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_the_same_wherever_its_bytes_are_cut() {
    let answer = Answer { text: vec!["Hi ü".into(), " 🎈.".into()], calls: vec![city("Rome")] };
    for vendor in protocols() {
        let mut session = Session::start(vendor).await;
        session.delivery = Delivery::Bytes;
        session.exchange(question("Hi"), &answer).await;
        let length = vendor.wire.events(&answer, false).concat().len();
        for size in (1..length).step_by(17) {
            session.delivery = Delivery::CutAt(size);
            session.exchange(question("Hi"), &answer).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_events_and_fields_change_nothing() {
    let with_call = Answer { calls: vec![city("Rome")], ..Answer::of("I look.") };
    for vendor in &VENDORS {
        let mut session = Session::start(vendor).await;
        session.delivery = Delivery::Later;
        session.exchange(question("Hi"), &Answer::of("Hello there.")).await;
        session.exchange(question("Hi"), &with_call).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_words_are_received_whole() {
    let words: Vec<String> = (0..10_000).map(|n| format!("word{n}")).collect();
    let answer = Answer {
        text: words.chunks(100).map(|words| words.join(" ") + " ").collect(),
        calls: Vec::new(),
    };
    for vendor in protocols() {
        let session = Session::start(vendor).await;
        session.exchange(question("Hi"), &answer).await;
        session.exchange(question("And?"), &Answer::of("And on.")).await;
    }
}
