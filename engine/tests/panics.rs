//! A panic in the code of one call ends that call only.

mod support;

use std::time::Duration;

use conversation::event::{EndReason, Event};
use support::{Harness, PANIC_TEXT, ReceivedOutput, call_config, user_audio};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_panic_in_a_call_ends_that_call_and_no_other() {
    let mut harness = Harness::new();
    let broken = harness.start_call(call_config(1), &["What is new?", PANIC_TEXT], "Nothing at all.");
    let other = harness.start_call(call_config(2), &["What is new?", "And then?"], "Nothing at all.");
    for client in [&broken, &other] {
        client.send_audio(user_audio(&[(0.5, 1.0), (3.0, 1.0)]));
    }
    harness.run_for(4 * SECOND);
    let replies = |harness: &Harness, id| {
        harness.recorder.event_names(id).iter().filter(|n| *n == "agent.stopped_speaking").count()
    };
    assert_eq!([replies(&harness, 1), replies(&harness, 2)], [1, 1], "both are answered once");
    assert_eq!(harness.media_thread.call_count(), 2);
    harness.run_for(6 * SECOND);
    assert_eq!(*harness.recorder.1.lock().unwrap(), [1], "the record of one is ended by the ledger");
    assert_eq!(harness.media_thread.call_count(), 1);
    assert_eq!([replies(&harness, 1), replies(&harness, 2)], [1, 2], "the other is answered again");
    assert!(harness.recorder.time_of(2, |e| matches!(e, Event::Ended { .. })).is_none());
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&broken);
    assert!(output.closed, "its client is hung up");
    let fatal = |text: &String| text.contains(r#""type":"error""#) && text.contains(r#""fatal":true"#);
    assert!(output.texts.iter().any(fatal), "{:?}", output.texts);
    // The decoder of the failed call is free, and the other call still handles commands.
    assert_eq!(*harness.open_streams.lock().unwrap(), 1);
    harness.command(2, conversation::input::Command::End);
    harness.run_for(SECOND);
    assert!(
        harness
            .recorder
            .time_of(2, |e| matches!(e, Event::Ended { reason: EndReason::EndedByApi }))
            .is_some()
    );
}
