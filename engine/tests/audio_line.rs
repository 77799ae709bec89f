//! Calls whose audio comes and goes as samples: losses of the connection, and who may take over.
//! In virtual time, with scripted models.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::time::Duration;

use conversation::event::{EndReason, Event};
use conversation::input::Command;
use conversation::settings::AgentTurnConfig;
use engine::transport::ConnectionReply;
use engine::transport::audio_line::Line;
use engine_api::{AudioLine, CallConfig, OfferError};
use opus::{Application, Channels, Encoder};
use serde_json::json;
use support::virtual_client::{Client, loopback_socket};
use support::{Harness, call_config_of, sample_at, user_audio};

const SECOND: Duration = Duration::from_secs(1);
const BLOCK: Duration = Duration::from_millis(20);
/// 18 words, 5.4 s.
const LONG_ANSWER: &str =
    "This is one long answer that goes on and on and on without any pause until it ends.";
/// How long the calls of these tests wait for a connection.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

fn meeting() -> CallConfig {
    let turn = json!({"echo_warmup": 0});
    let agent = AgentTurnConfig { turn: Some(&turn), ..AgentTurnConfig::default() };
    let call = call_config_of(1, agent);
    CallConfig { reconnect_timeout: Some(RECONNECT_TIMEOUT), ..call }
}

/// A line at 48 kHz, what it sends, and what it has received.
struct Service {
    line: Line,
    heard: Vec<i16>,
    spoken: Vec<i16>,
}

impl Service {
    fn new(line: Line, parts: &[(f64, f64)]) -> Self {
        let heard = user_audio(parts).into_iter().flat_map(|sample| [sample; 3]).collect();
        Self { line, heard, spoken: Vec::new() }
    }

    /// Exchanges audio for `span`; returns whether the call goes on.
    fn run(&mut self, harness: &mut Harness, span: Duration) -> bool {
        let mut goes_on = true;
        for _ in 0..span.as_millis() / BLOCK.as_millis() {
            let n = self.heard.len().min(960);
            let mut block: Vec<i16> = self.heard.drain(..n).collect();
            block.resize(960, 0);
            goes_on &= self.line.exchange(&block, &mut self.spoken);
            harness.run_for(BLOCK);
        }
        goes_on
    }
}

fn committed(harness: &Harness) -> Vec<String> {
    let text = |event: Event| match event {
        Event::UtteranceCommitted { text, .. } => Some(text),
        _ => None,
    };
    harness.recorder.events_of(1).into_iter().filter_map(|e| text(e.event)).collect()
}

fn spoken(harness: &Harness) -> Vec<String> {
    let text = |event: Event| match event {
        Event::AgentStoppedSpeaking { text, .. } => Some(text),
        _ => None,
    };
    harness.recorder.events_of(1).into_iter().filter_map(|e| text(e.event)).collect()
}

fn end_reason(harness: &Harness) -> Option<EndReason> {
    harness.recorder.events_of(1).iter().find_map(|e| match e.event {
        Event::Ended { reason } => Some(reason),
        _ => None,
    })
}

/// The samples of the reply, which must be those of the TTS, in order. At each loss, up to 40 ms
/// may be missing: they were on their way.
fn assert_whole_reply(parts: &[&[i16]], words: u64) {
    let mut position = 0;
    for part in parts {
        let speech = &part[part.iter().position(|s| *s != 0).unwrap()..];
        let first = (position..=position + 1_920).find(|at| sample_at(*at) == speech[0]);
        let first = first.unwrap_or_else(|| panic!("{} does not follow {position}", speech[0]));
        let end = speech.iter().rposition(|s| *s != 0).unwrap() + 1;
        for (n, sample) in speech[..end].iter().enumerate() {
            assert_eq!(*sample, sample_at(first + n as u64), "{n} of {end}");
        }
        position = first + end as u64;
    }
    assert_eq!(position, words * 14_400, "the reply has an end");
}

#[test]
fn a_reply_goes_on_where_a_loss_of_three_seconds_stopped_it() {
    let mut harness = Harness::new();
    let line = harness.start_line(meeting(), &["What is new?"], LONG_ANSWER, 48_000);
    let mut before = Service::new(line, &[(0.5, 1.0)]);
    assert!(before.run(&mut harness, 4 * SECOND));
    drop(before.line);
    harness.run_for(3 * SECOND);
    assert_eq!(spoken(&harness), [""; 0], "the reply waits");
    let (line, reply) = harness.open_line(1, 48_000);
    assert_eq!(reply, ConnectionReply::Accepted);
    let mut after = Service::new(line, &[(6.0, 0.0)]);
    assert!(after.run(&mut harness, 6 * SECOND));
    assert_eq!(committed(&harness), ["What is new?"]);
    assert_eq!(spoken(&harness), [LONG_ANSWER], "no word is lost");
    assert_whole_reply(&[&before.spoken, &after.spoken], 18);
    assert_eq!(end_reason(&harness), None);
}

#[test]
fn a_reply_that_a_line_began_goes_on_over_webrtc() {
    let mut harness = Harness::with_socket(loopback_socket());
    let line = harness.start_line(meeting(), &["What is new?"], LONG_ANSWER, 24_000);
    let mut service = Service::new(line, &[]);
    service.heard = user_audio(&[(0.5, 1.0)]);
    // At 24 kHz, the speech lasts two thirds as long.
    assert!(service.run(&mut harness, 3 * SECOND));
    let Service { line, spoken: begun, .. } = service;
    assert!(begun.len() > 24_000, "{}", begun.len());
    drop(line);
    harness.run_for(SECOND);
    let mut client = Client::join(&mut harness, meeting());
    let mut encoder = Encoder::new(16_000, Channels::Mono, Application::Voip).unwrap();
    for n in 0..300 {
        let packet = encoder.encode_vec(&[0; 320], 1_500).unwrap();
        client.send_voice(harness.now, n, packet);
        harness.run_for(BLOCK);
        client.exchange(harness.now);
    }
    assert_eq!(spoken(&harness), [LONG_ANSWER]);
    assert_eq!(harness.media_thread.call_count(), 1);
}

#[test]
fn speech_that_a_loss_cuts_is_committed_and_answered_and_so_is_the_next_question() {
    let mut harness = Harness::new();
    let script = ["What is", "And now?"];
    let line = harness.start_line(meeting(), &script, "Nothing at all.", 48_000);
    let mut before = Service::new(line, &[(0.5, 5.0)]);
    assert!(before.run(&mut harness, 2 * SECOND));
    drop(before.line);
    harness.run_for(3 * SECOND);
    assert_eq!(committed(&harness), ["What is"]);
    let stopped = harness.recorder.time_of(1, |e| matches!(e, Event::UserStoppedSpeaking)).unwrap();
    assert!((2.5..2.75).contains(&stopped), "600 ms after the last audio: {stopped}");
    let (line, _) = harness.open_line(1, 48_000);
    let mut after = Service::new(line, &[(3.0, 1.0)]);
    assert!(after.run(&mut harness, 8 * SECOND));
    assert_eq!(committed(&harness), script);
    assert_eq!(spoken(&harness), ["Nothing at all."; 2]);
    assert_whole_reply(&[&after.spoken[..after.spoken.len() / 2]], 3);
}

#[test]
fn a_call_waits_for_a_line_as_long_as_it_says() {
    let mut harness = Harness::new();
    drop(harness.start_line(meeting(), &[], "", 16_000));
    harness.run_for(RECONNECT_TIMEOUT - SECOND);
    assert_eq!(end_reason(&harness), None);
    harness.run_for(2 * SECOND);
    assert_eq!(end_reason(&harness), Some(EndReason::Error));
    assert_eq!(harness.media_thread.call_count(), 0);

    // Without a time of its own, the call ends as the engine is configured: after 5 s.
    let mut harness = Harness::new();
    let call = CallConfig { reconnect_timeout: None, ..meeting() };
    drop(harness.start_line(call, &[], "", 16_000));
    harness.run_for(4 * SECOND);
    assert_eq!(end_reason(&harness), None);
    harness.run_for(2 * SECOND);
    assert_eq!(end_reason(&harness), Some(EndReason::UserLeft));
}

#[test]
fn a_line_that_exchanges_nothing_stops_the_reply_and_ends_the_call_in_time() {
    let mut harness = Harness::new();
    let line = harness.start_line(meeting(), &["What is new?"], LONG_ANSWER, 48_000);
    let mut service = Service::new(line, &[(0.5, 1.0)]);
    assert!(service.run(&mut harness, 3 * SECOND));
    harness.run_for(20 * SECOND);
    assert_eq!(spoken(&harness), [""; 0], "the reply waits");
    assert!(service.run(&mut harness, 6 * SECOND));
    assert_eq!(spoken(&harness), [LONG_ANSWER]);
    assert_whole_reply(&[&service.spoken], 18);
    harness.run_for(RECONNECT_TIMEOUT + SECOND);
    assert_eq!(end_reason(&harness), Some(EndReason::Error));
    assert!(!service.run(&mut harness, BLOCK));
}

#[test]
fn a_page_that_vanishes_without_a_word_is_waited_for_and_hears_the_rest_of_the_reply() {
    let mut harness = Harness::with_socket(loopback_socket());
    let script = ["What is new?"];
    let voice = std::sync::Arc::new(support::ScriptedTts { time: harness.time.clone() });
    let long = [LONG_ANSWER; 3].join(" ");
    let client = Client::answered_by(&mut harness, |harness, sdp| {
        harness.offer_scripted_call(meeting(), sdp, &script, &long, voice)
    });
    let mut client = client.connect(&mut harness);
    let mut encoder = Encoder::new(16_000, Channels::Mono, Application::Voip).unwrap();
    for (n, frame) in (0..).zip(user_audio(&[(0.5, 1.0), (1.5, 0.0)]).chunks_exact(320)) {
        client.send_voice(harness.now, n, encoder.encode_vec(frame, 1_500).unwrap());
        harness.run_for(BLOCK);
        client.exchange(harness.now);
    }
    drop(client);
    harness.run_for(50 * SECOND);
    assert_eq!(end_reason(&harness), None, "waits longer than the engine's 25 s");
    let before = spoken(&harness).concat();
    assert!(before.len() < long.len() * 2 / 3, "it did not talk to nobody: {before}");
    let (line, reply) = harness.open_line(1, 48_000);
    assert_eq!(reply, ConnectionReply::Accepted);
    let mut service = Service::new(line, &[]);
    assert!(service.run(&mut harness, 18 * SECOND));
    assert_eq!(spoken(&harness).join(" "), long);
}

#[test]
fn the_newest_line_carries_the_call_and_an_ended_call_takes_none() {
    let mut harness = Harness::new();
    let line = harness.start_line(meeting(), &["What is new?"], "Nothing at all.", 48_000);
    let mut first = Service::new(line, &[]);
    assert!(first.run(&mut harness, SECOND));
    let (line, reply) = harness.open_line(1, 48_000);
    assert_eq!(reply, ConnectionReply::Accepted);
    assert!(!first.run(&mut harness, BLOCK), "the older one is hung up");
    let mut second = Service::new(line, &[(0.5, 1.0)]);
    assert!(second.run(&mut harness, 5 * SECOND));
    drop(first);
    assert!(second.run(&mut harness, 10 * SECOND), "the loss of the older one means nothing");
    assert_eq!(spoken(&harness), ["Nothing at all."]);
    assert_whole_reply(&[&second.spoken], 3);

    harness.command(1, Command::End);
    let (_, reply) = harness.open_line(1, 48_000);
    assert_eq!(reply, ConnectionReply::Rejected(OfferError::Ended));
    assert!(!second.run(&mut harness, SECOND));
    let (_, reply) = harness.open_line(1, 48_000);
    assert_eq!(reply, ConnectionReply::NotRunning, "the call has left its thread");
}

#[test]
fn a_hold_is_heard_as_a_pause_and_silence_is_not_sent() {
    let mut harness = Harness::new();
    let call = meeting();
    let line = harness.start_line(call, &["What is new?", ""], LONG_ANSWER, 48_000);
    // A sound without words pauses the agent for a while.
    let mut service = Service::new(line, &[(0.5, 1.0), (2.0, 1.0)]);
    assert!(service.run(&mut harness, 12 * SECOND));
    assert_eq!(spoken(&harness), [LONG_ANSWER]);
    let events = harness.recorder.event_names(1);
    let first = service.spoken.iter().position(|s| *s != 0).unwrap();
    let last = service.spoken.iter().rposition(|s| *s != 0).unwrap();
    let length = (last - first) as f64 / 48_000.0;
    let silent = service.spoken[first..last].iter().filter(|s| **s == 0).count() as f64 / 48_000.0;
    assert!(silent > 0.3, "{silent} s of {length} s: {events:?}");
    assert!((length - silent - 5.4).abs() < 0.05, "{silent} s of {length} s");
    let around = service.spoken.len() - (last - first);
    assert!(around <= 2 * 1_920, "{around} samples of silence outside");
}
