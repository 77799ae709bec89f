//! Delivery of a message to a media thread.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use benches::cpu::{CpuTime, bench_each};
use conversation::input::GenerationId;
use criterion::Criterion;
use engine::channel;
use engine::channel::STAGE_EVENTS;
use engine::messages::{CallId, Message, StageEvent};
use mio::{Events, Poll, Token, Waker};

/// An LLM token, the most frequent message.
fn llm_token_message(text: &str) -> Message {
    Message::StageEvent(
        CallId(1),
        StageEvent::Llm(GenerationId::default(), models::llm::Event::Text(text.to_owned())),
    )
}

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    let (sender, receiver) = channel::open(&STAGE_EVENTS, None);
    bench_each(c, "inbox: a message in and out", || {
        drop(sender.send(llm_token_message(black_box("museum "))));
        black_box(receiver.try_recv().is_ok())
    });
    // Includes both ends: in a server, the sender's thread wakes, and the media thread polls.
    let mut poll = Poll::new().expect("a poll");
    let waker = Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
    let mut events = Events::with_capacity(8);
    let (sender, receiver) = channel::open(&STAGE_EVENTS, Some(waker));
    bench_each(c, "inbox: a message that wakes the thread", || {
        drop(sender.send(llm_token_message(black_box("museum "))));
        poll.poll(&mut events, Some(Duration::ZERO)).expect("a poll");
        assert!(!events.is_empty(), "the thread wakes");
        black_box(receiver.try_recv().is_ok())
    });
}
