//! A failure of one part affects no other: a panic in the code of a call, a hosted STT, and the
//! thread of ICE-TCP.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::time::Duration;

use conversation::event::{EndReason, Event};
use engine::transport::socket::{Socket, SocketConfig};
use engine::transport::tcp;
use str0m::Rtc;
use str0m::media::{Direction, MediaKind};
use support::{Harness, PANIC_TEXT, ReceivedOutput, WARNING_PREFIX, call_config, user_audio};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_panic_in_a_call_ends_that_call_and_no_other() {
    let mut harness = Harness::new();
    let broken =
        harness.start_call(call_config(1), &["What is new?", PANIC_TEXT], "Nothing at all.");
    let other =
        harness.start_call(call_config(2), &["What is new?", "And then?"], "Nothing at all.");
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
    assert_eq!(*harness.recorder.1.lock().unwrap(), [1], "the event writer ends the record of one");
    assert_eq!(harness.media_thread.call_count(), 1);
    assert_eq!([replies(&harness, 1), replies(&harness, 2)], [1, 2], "the other is answered again");
    assert!(harness.recorder.time_of(2, |e| matches!(e, Event::Ended { .. })).is_none());
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&broken);
    assert!(output.closed, "its client is disconnected");
    let fatal =
        |text: &String| text.contains(r#""type":"error""#) && text.contains(r#""fatal":true"#);
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

#[test]
fn a_warning_of_the_stt_is_recorded_and_the_call_goes_on() {
    let mut harness = Harness::new();
    let warning = "The API key for Deepgram is not valid; the built-in STT is used instead.";
    let text: &'static str = format!("{WARNING_PREFIX}{warning}").leak();
    let client = harness.start_call(call_config(1), &[text, "And now?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0), (3.0, 1.0)]));
    harness.run_for(10 * SECOND);
    let is_warning = |e: &Event| matches!(e, Event::Warning { text } if text == warning);
    assert!(harness.recorder.time_of(1, is_warning).is_some());
    assert!(harness.recorder.time_of(1, |e| matches!(e, Event::Error { .. })).is_none());
    let names = harness.recorder.event_names(1);
    assert!(names.iter().any(|name| *name == "agent.stopped_speaking"), "{names:?}");
}

#[test]
fn ice_tcp_is_announced_only_while_its_thread_serves() {
    let hosts = vec![[127, 0, 0, 1].into()];
    let server = tcp::Server::bind(0, &hosts, &[]).unwrap();
    let sender = server.datagram_sender();
    let socket =
        Socket::bind(&SocketConfig { host_addresses: hosts, ..SocketConfig::default() }).unwrap();
    let mut harness = Harness::with_tcp(socket, sender.clone(), server.candidates().to_vec());
    let mut announced = |id| {
        let mut rtc = Rtc::builder().build(harness.now);
        let mut api = rtc.sdp_api();
        api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let (offer, _) = api.apply().unwrap();
        let answer = harness.offer_call(call_config(id), offer.to_sdp_string()).answer;
        let candidates = answer.lines().filter(|line| line.starts_with("a=candidate:"));
        let protocol = |line: &str| line.split(' ').nth(2).unwrap().to_lowercase();
        let mut protocols: Vec<_> = candidates.map(protocol).collect();
        protocols.sort();
        protocols
    };
    assert_eq!(announced(1), ["tcp", "udp"]);
    sender.health().set_failed(0, "it cannot poll");
    assert_eq!(announced(2), ["udp"]);
    sender.health().set_working(0);
    assert_eq!(announced(3), ["tcp", "udp"]);
}
