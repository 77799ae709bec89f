//! Metrics: the times of a turn, as events and as histograms, and the cost of measuring: a media
//! thread may not allocate for it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints the cost of measuring

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::sync::Arc;
use std::time::Duration;

use conversation::event::{Event, TurnTimes};
use conversation::input::Command;
use conversation::settings::AgentTurnConfig;
use conversation::view::ConversationView;
use engine::stats::{StepMeter, ThreadStats};
use engine_api::metrics::{MetricFamily, MetricValue};
use support::{Harness, ReceivedOutput, call_config, call_config_of, user_audio};

const SECOND: Duration = Duration::from_secs(1);
const LONG_ANSWER: &str =
    "This is one long answer that goes on and on and on without any pause until it ends.";

/// The turns of a call, as the REST plane returns them.
fn turn_times(harness: &Harness) -> Vec<TurnTimes> {
    let mut view = ConversationView::default();
    for event in harness.recorder.events_of(1) {
        view.apply(&event);
    }
    view.turns
}

/// Number of values of a histogram, and their sum.
fn histogram_totals(families: &[MetricFamily], name: &str) -> (u64, f64) {
    let family = families.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no {name}"));
    match &family.points[..] {
        [point] => match &point.value {
            MetricValue::Histogram { buckets, sum } => (buckets.iter().map(|(_, n)| n).sum(), *sum),
            other => panic!("{name}: {other:?}"),
        },
        other => panic!("{name}: {other:?}"),
    }
}

fn assert_near(measured: Option<f64>, wanted: f64, tolerance: f64, what: &str) {
    let measured = measured.unwrap_or_else(|| panic!("{what} is not reported"));
    assert!((measured - wanted).abs() <= tolerance, "{what}: {measured:.3}, not {wanted:.3}");
}

/// The user asks from 0.5 to 1.5 s. LLM and TTS take 5 and 16 ms. Speech from 4.0 s on interrupts
/// the answer.
#[test]
fn a_turn_that_is_cut_tells_when_each_step_happened_and_how_fast_the_agent_fell_silent() {
    let mut harness = Harness::new();
    let mut call = call_config_of(
        1,
        AgentTurnConfig { interruptability: Some("high"), ..AgentTurnConfig::default() },
    );
    call.spec.echo_warmup = Duration::ZERO;
    let client = harness.start_call(call, &["Tell me something.", "Stop it."], LONG_ANSWER);
    client.send_audio(user_audio(&[(0.5, 1.0), (2.5, 1.0)]));
    harness.run_for(8 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let (first, last) = output.speech_spans()[0];
    let turn = turn_times(&harness).into_iter().next().unwrap();
    let line = &turn.timeline;
    assert_near(line.speech_end, 1.5, 0.04, "speech end");
    assert_near(line.committed, 1.9, 0.04, "commit");
    assert_near(line.first_sample, first, 0.001, "first sample");
    assert_near(line.heard_end, last, 0.026, "heard end: a block and its fade");
    assert_near(line.interrupted, 4.0, 0.04, "interruption");
    assert_near(turn.barge_in, last - 4.0, 0.06, "barge-in");
    let order = [line.speech_end, line.llm_first_token, line.tts_first_byte, line.first_sample];
    assert!(order.windows(2).all(|w| w[0].unwrap() <= w[1].unwrap()), "{line:?}");
    assert_near(
        turn.voice_to_voice,
        line.first_sample.unwrap() - line.speech_end.unwrap(),
        1e-6,
        "voice to voice",
    );
    assert_near(
        turn.endpointing,
        line.committed.unwrap() - line.speech_end.unwrap(),
        1e-6,
        "endpointing",
    );
    assert_near(
        turn.playout,
        line.first_sample.unwrap() - line.tts_first_byte.unwrap(),
        1e-6,
        "playout",
    );
    assert_near(
        turn.barge_in,
        line.heard_end.unwrap() - line.interrupted.unwrap(),
        1e-6,
        "barge-in",
    );

    let families = harness.latencies.metrics();
    let recorded = turn_times(&harness);
    for (name, of) in [
        (
            "visavis_turn_voice_to_voice_seconds",
            (|t| t.voice_to_voice) as fn(&TurnTimes) -> Option<f64>,
        ),
        ("visavis_turn_endpointing_seconds", |t| t.endpointing),
        ("visavis_turn_llm_first_token_seconds", |t| t.llm_ttft),
        ("visavis_turn_tts_first_byte_seconds", |t| t.tts_ttfb),
        ("visavis_turn_first_sample_seconds", |t| t.playout),
        ("visavis_turn_barge_in_seconds", |t| t.barge_in),
    ] {
        let values: Vec<f64> = recorded.iter().filter_map(of).collect();
        let (n, sum) = histogram_totals(&families, name);
        assert_eq!(n, values.len() as u64, "{name}");
        assert!(
            n > 0 && (sum - values.iter().sum::<f64>()).abs() < 1e-4,
            "{name}: {sum}, {values:?}"
        );
    }
}

#[test]
fn a_reply_that_is_played_to_its_end_is_not_interrupted() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &["What is new?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(4 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let turn = turn_times(&harness).remove(0);
    assert_near(turn.timeline.heard_end, output.speech_spans()[0].1, 0.021, "heard end");
    assert_eq!((turn.timeline.interrupted, turn.barge_in), (None, None));
}

#[test]
fn a_cough_that_only_held_the_answer_is_no_barge_in() {
    let mut harness = Harness::new();
    let mut call = call_config(1);
    call.spec.echo_warmup = Duration::ZERO;
    let client = harness.start_call(call, &["Tell me something.", ""], LONG_ANSWER);
    client.send_audio(user_audio(&[(0.5, 1.0), (2.0, 0.9)]));
    harness.run_for(14 * SECOND);
    assert!(harness.recorder.event_names(1).contains(&"playout.resumed".to_owned()));
    let turn = turn_times(&harness).remove(0);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    assert_near(
        turn.timeline.heard_end,
        output.speech_spans().last().unwrap().1,
        0.021,
        "heard end",
    );
    assert_eq!((turn.timeline.interrupted, turn.barge_in), (None, None));
}

#[test]
fn a_command_that_cuts_is_an_interruption_and_no_barge_in() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &["Tell me something."], LONG_ANSWER);
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(3 * SECOND);
    harness.command(1, Command::Interrupt);
    harness.run_for(SECOND);
    let turn = turn_times(&harness).remove(0);
    assert_near(turn.timeline.interrupted, 3.0, 0.011, "interruption");
    assert_near(turn.timeline.heard_end, 3.0, 0.011, "heard end");
    assert_eq!(turn.barge_in, None);
    assert_eq!(
        harness
            .recorder
            .events_of(1)
            .iter()
            .filter(|f| matches!(f.event, Event::TurnReplyHeard { .. }))
            .count(),
        1
    );
}

#[test]
fn measuring_a_step_allocates_nothing() {
    let stats = Arc::new(ThreadStats::default());
    let mut meter = StepMeter::new(Arc::clone(&stats));
    let (before, begun) = (allocations::allocation_count(), engine::clock::now());
    for step in 0..1_000u64 {
        meter.record_tick(Duration::from_micros(step * 30), 100);
        for call in 0..100u64 {
            meter.record_frame(Duration::from_micros(step * 90 + call));
        }
        meter.record_losses(step % 2, step % 3);
        meter.end_step(Duration::from_micros(step * 100));
    }
    let (after, took) = (allocations::allocation_count(), engine::clock::now() - begun);
    eprintln!("measuring a tick with a hundred frames takes {} ns", took.as_nanos() / 1_000);
    assert_eq!(after, before);
    drop(std::hint::black_box(vec![0u8; 9]));
    assert!(allocations::allocation_count() > before, "it counts");
}
