//! A fault in the code of one call, and one in the code of a media thread.

mod support;

use std::time::Duration;

use conversation::event::{EndReason, Event};
use support::{Bench, Heard, PANIC, call, voice};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_panic_in_a_call_ends_that_call_and_no_other() {
    let mut bench = Bench::new();
    let broken = bench.call(call(1), &["What is new?", PANIC], "Nothing at all.");
    let other = bench.call(call(2), &["What is new?", "And then?"], "Nothing at all.");
    for far in [&broken, &other] {
        far.say(voice(&[(0.5, 1.0), (3.0, 1.0)]));
    }
    bench.run(4 * SECOND);
    let told =
        |bench: &Bench, id| bench.book.names(id).iter().filter(|n| *n == "agent.stopped_speaking").count();
    assert_eq!([told(&bench, 1), told(&bench, 2)], [1, 1], "both are answered once");
    assert_eq!(bench.shard.calls(), 2);
    bench.run(6 * SECOND);
    assert_eq!(*bench.book.1.lock().unwrap(), [1], "the record of one is ended by the ledger");
    assert_eq!(bench.shard.calls(), 1);
    assert_eq!([told(&bench, 1), told(&bench, 2)], [1, 2], "the other is answered again");
    assert!(bench.book.when(2, |e| matches!(e, Event::Ended { .. })).is_none());
    let mut heard = Heard::new(bench.start);
    heard.listen(&broken);
    assert!(heard.closed, "its client is hung up");
    let fatal = |text: &String| text.contains(r#""type":"error""#) && text.contains(r#""fatal":true"#);
    assert!(heard.texts.iter().any(fatal), "{:?}", heard.texts);
    // Its decoder is free, and the same conversation's news find nobody.
    assert_eq!(*bench.streams.lock().unwrap(), 1);
    bench.command(2, conversation::input::Command::End);
    bench.run(SECOND);
    assert!(bench.book.when(2, |e| matches!(e, Event::Ended { reason: EndReason::EndedByApi })).is_some());
}
