//! A fault in the code of one call, and one in the code of a media thread.

mod support;

use std::time::Duration;

use conversation::event::{EndReason, Event};
use support::{Harness, PANIC_TEXT, ReceivedOutput, call_config, user_audio};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_panic_in_a_call_ends_that_call_and_no_other() {
    let mut bench = Harness::new();
    let broken = bench.start_call(call_config(1), &["What is new?", PANIC_TEXT], "Nothing at all.");
    let other = bench.start_call(call_config(2), &["What is new?", "And then?"], "Nothing at all.");
    for far in [&broken, &other] {
        far.send_audio(user_audio(&[(0.5, 1.0), (3.0, 1.0)]));
    }
    bench.run_for(4 * SECOND);
    let told = |bench: &Harness, id| {
        bench.recorder.event_names(id).iter().filter(|n| *n == "agent.stopped_speaking").count()
    };
    assert_eq!([told(&bench, 1), told(&bench, 2)], [1, 1], "both are answered once");
    assert_eq!(bench.media_thread.call_count(), 2);
    bench.run_for(6 * SECOND);
    assert_eq!(*bench.recorder.1.lock().unwrap(), [1], "the record of one is ended by the ledger");
    assert_eq!(bench.media_thread.call_count(), 1);
    assert_eq!([told(&bench, 1), told(&bench, 2)], [1, 2], "the other is answered again");
    assert!(bench.recorder.time_of(2, |e| matches!(e, Event::Ended { .. })).is_none());
    let mut heard = ReceivedOutput::new(bench.start);
    heard.collect(&broken);
    assert!(heard.closed, "its client is hung up");
    let fatal = |text: &String| text.contains(r#""type":"error""#) && text.contains(r#""fatal":true"#);
    assert!(heard.texts.iter().any(fatal), "{:?}", heard.texts);
    // Its decoder is free, and the same conversation's news find nobody.
    assert_eq!(*bench.open_streams.lock().unwrap(), 1);
    bench.command(2, conversation::input::Command::End);
    bench.run_for(SECOND);
    assert!(
        bench.recorder.time_of(2, |e| matches!(e, Event::Ended { reason: EndReason::EndedByApi })).is_some()
    );
}
