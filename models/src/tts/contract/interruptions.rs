//! Replies that are cut off at every moment.

use super::{Segment, Session, Spoken, VENDORS, Vendor, send_over};
use crate::hosted::loopback::{Frame, Random, advance, settle, soon, within};

/// Time in which the vendor learns that the reply is cut off, in ms.
const CANCEL_LIMIT: u64 = 50;
const TEXTS: [&str; 2] = ["One two.", "Three four."];

/// The server's part of a reply: messages with the number of their segment. The last message of a
/// segment ends it.
struct Plan {
    segments: Vec<Segment>,
    frames: Vec<(usize, Frame)>,
}

impl Plan {
    async fn of(session: &mut Session) -> Self {
        let mut segments = session.segments(&TEXTS).await;
        let mut frames = Vec::new();
        for (n, segment) in segments.iter_mut().enumerate() {
            session.begin(segment).await;
            let own = session.frames(segment, n == 1);
            frames.extend(own.into_iter().map(|frame| (n, frame)));
            if segment.exchange.is_some() {
                // The end of the response.
                frames.push((n, Frame::text("")));
            }
        }
        Self { segments, frames }
    }

    async fn send(&mut self, session: &mut Session, at: usize) {
        let (n, frame) = &self.frames[at];
        let segment = &mut self.segments[*n];
        if segment.exchange.is_some() && frame.bytes().is_empty() && at > 0 {
            // The header of raw samples is empty, too, but comes first.
            let is_last = self.frames.get(at + 1).is_none_or(|(next, _)| next != n);
            if is_last {
                return segment.exchange.take().unwrap().end().await;
            }
        }
        session.send(segment, frame).await;
    }
}

/// Waits until the vendor knows that the reply is cut off.
async fn cancelled(session: &mut Session, plan: &mut Plan) {
    let Some(wire) = session.vendor.socket() else {
        for segment in &mut plan.segments {
            if let Some(exchange) = &mut segment.exchange {
                exchange.closed().await;
            }
        }
        return;
    };
    let socket = session.socket.as_mut().unwrap();
    loop {
        let Frame::Text(message) = socket.next().await.expect("a cancel") else { continue };
        if (wire.is_cancel)(&serde_json::from_str(&message).unwrap()) {
            return;
        }
    }
}

/// Cuts a reply off after so many messages, with pauses between them.
async fn interrupt(
    session: &mut Session,
    reply: u64,
    count: usize,
    mut pause: impl FnMut() -> u64,
    by_handles: bool,
) {
    let label = session.vendor.label;
    let mut spoken = TEXTS.map(|text| session.call.speak(reply, text));
    let mut plan = Plan::of(session).await;
    let count = count % (plan.frames.len() + 1);
    for at in 0..count {
        plan.send(session, at).await;
        advance(pause()).await;
    }
    settle().await;
    let mut ended = 0;
    for spoken in &mut spoken {
        while let Some(event) = spoken.events.try_next() {
            ended += usize::from(matches!(event, crate::tts::Event::End));
        }
    }
    let mut events = Vec::new();
    let [first, second] = spoken;
    for Spoken { handle, events: rest } in [first, second] {
        if by_handles || session.vendor.socket().is_none() {
            drop(handle);
        } else {
            // The handles may be dropped later.
            std::mem::forget(handle);
        }
        events.push(rest);
    }
    session.call.tts.as_ref().unwrap().cancel_reply(reply);
    if ended < TEXTS.len() {
        let reported = within(CANCEL_LIMIT, 10, cancelled(session, &mut plan)).await;
        assert!(reported.is_some(), "{label}: reported after {count} messages");
    }
    // What was on its way still arrives.
    for at in count..plan.frames.len() {
        plan.send(session, at).await;
    }
    if let (Some(wire), Some(socket)) = (session.vendor.socket(), &mut session.socket) {
        for frame in (wire.cancelled)(&plan.segments[0].context) {
            send_over(socket, &frame, session.delivery).await;
        }
    }
    drop(plan);
    session.say(reply + 1, "And on.").await;
    for events in &mut events {
        let late = events.try_next();
        assert!(late.is_none(), "{label}: after {count} messages, {late:?}");
    }
}

/// How many messages the reply has.
async fn message_count(vendor: &'static Vendor) -> usize {
    let mut session = Session::start(vendor).await;
    let _spoken = TEXTS.map(|text| session.call.speak(1, text));
    soon("a reply", Plan::of(&mut session)).await.frames.len()
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_cut_off_after_any_message_says_nothing_more() {
    for vendor in &VENDORS {
        for count in 0..=message_count(vendor).await {
            for by_handles in [true, false] {
                let mut session = Session::start(vendor).await;
                interrupt(&mut session, 1, count, || 0, by_handles).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_cut_off_at_random_moments_do_not_disturb_later_ones() {
    for (seed, vendor) in (1..).zip(&VENDORS) {
        let mut random = Random::new(seed);
        let mut session = Session::start(vendor).await;
        for n in 0..6 {
            let (count, by_handles) = (random.below(9), random.below(2) == 0);
            let pause = || random.below(900) as u64;
            interrupt(&mut session, 2 * n + 1, count, pause, by_handles).await;
        }
    }
}
