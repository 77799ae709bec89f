//! The whole pipeline of a call on one media thread, in virtual time, with scripted models.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints where the time of a turn goes

mod support;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::event::{EndReason, Event, Role};
use conversation::input::{Command, MAX_VISITOR_CONTEXT_BYTES};
use conversation::settings::AgentTurnConfig;
use engine::transport::TransportEvent;
use engine::transport::loopback::LoopbackOutput;
use engine_api::CallConfig;
use models::{Handle, Sink, llm, tts};
use support::{
    Harness, ReceivedOutput, VirtualTime, WORD_DURATION, call_config, call_config_of, sample_at,
    user_audio,
};

const SECOND: Duration = Duration::from_secs(1);
const LONG_ANSWER: &str =
    "This is one long answer that goes on and on and on without any pause until it ends.";

fn ended_because(event: &Event, why: EndReason) -> bool {
    matches!(event, Event::Ended { reason } if *reason == why)
}

#[test]
fn a_question_is_heard_answered_and_told() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &["What is new?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(4 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let spoken = output.speech_spans();
    assert_eq!(spoken.len(), 1, "{spoken:?}");
    let (from, to) = spoken[0];
    assert!(
        (to - from - 3.0 * WORD_DURATION.as_secs_f64()).abs() < 0.001,
        "three words: {spoken:?}"
    );
    let names = harness.recorder.event_names(1);
    let order = [
        "joined",
        "user.started_speaking",
        "user.stopped_speaking",
        "utterance_committed",
        "agent.started_speaking",
        "agent.stopped_speaking",
    ];
    let mut rest = names.iter();
    for name in order {
        assert!(rest.any(|n| n == name), "{name} in {names:?}");
    }
    let events = harness.recorder.events_of(1);
    assert!(
        events.iter().enumerate().all(|(i, f)| f.seq == i as u64),
        "events are numbered without a gap"
    );
}

/// The delay between the end of the user's speech and the agent's first sample. It must be the
/// configured delay, the time of the models, and little else. Speech may end anywhere in a VAD
/// window and in a frame, so sixteen offsets are tried.
#[test]
fn the_path_adds_at_most_ten_milliseconds_to_the_models_and_the_policy() {
    let ideal = 0.400 + 0.016;
    let mut rows = Vec::new();
    for place in 0..16 {
        let mut harness = Harness::new();
        let client = harness.start_call(call_config(1), &["What is new?"], "Nothing at all.");
        let speech = 1.018 + f64::from(place) * 0.0041;
        client.send_audio(user_audio(&[(0.513, speech)]));
        harness.run_for(4 * SECOND);
        let mut output = ReceivedOutput::new(harness.start);
        output.collect(&client);
        let end = 0.513 + speech;
        let first = output.speech_spans()[0].0;
        let when = |wanted: fn(&Event) -> bool| harness.recorder.time_of(1, wanted).unwrap() - end;
        let reported = when(|e| matches!(e, Event::AgentStartedSpeaking { .. }));
        assert!(
            (reported - (first - end)).abs() < 0.001,
            "the event is emitted when the sample is sent"
        );
        rows.push([
            when(|e| matches!(e, Event::UserStoppedSpeaking)),
            when(|e| matches!(e, Event::UserTranscript { is_final: true, .. })),
            when(|e| matches!(e, Event::UtteranceCommitted { .. })),
            when(|e| matches!(e, Event::TtsStarted { .. })),
            first - end,
            first - end - ideal,
        ]);
    }
    let labels = [
        "detector's report (250 ms of silence, windows of 32 ms)",
        "final transcript (STT 25 ms)",
        "commit (min_endpointing_delay 400 ms)",
        "TTS asked",
        "first sample leaves (TTS 16 ms, blocks of 10 ms)",
        "added by the path",
    ];
    eprintln!("ms after the true end of speech: mean, least, most of {}", rows.len());
    for (i, label) in labels.iter().enumerate() {
        let column: Vec<f64> = rows.iter().map(|r| r[i] * 1e3).collect();
        let mean = column.iter().sum::<f64>() / column.len() as f64;
        let (min, max) =
            column.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
        eprintln!("{mean:8.1} {min:8.1} {max:8.1}  {label}");
    }
    let added: Vec<f64> = rows.iter().map(|r| r[5]).collect();
    let mean = added.iter().sum::<f64>() / added.len() as f64;
    assert!(mean <= 0.010, "{mean}");
    assert!(
        added.iter().all(|a| *a <= 0.010 + 0.005),
        "one block at most, and one message: {added:?}"
    );
}

/// The delay from the onset of an interruption to silence: the delay of the policy, a frame of 10
/// ms that was already sent, and a fade of 5 ms. Speech may start anywhere in a VAD window and in a
/// frame, so sixteen offsets are tried.
#[test]
fn an_interruption_is_silence_at_most_sixteen_milliseconds_after_the_policy_allows_it() {
    let mut over = Vec::new();
    for place in 0..16 {
        let mut harness = Harness::new();
        let mut call = call_config_of(
            1,
            AgentTurnConfig { interruptability: Some("high"), ..AgentTurnConfig::default() },
        );
        call.spec.echo_warmup = Duration::ZERO;
        let policy =
            (call.spec.vad.min_speech_duration + call.spec.min_interruption_duration).as_secs_f64();
        let client = harness.start_call(call, &["Tell me something.", "Stop it."], LONG_ANSWER);
        let gap = 2.5 + f64::from(place) * 0.0041;
        client.send_audio(user_audio(&[(0.5, 1.0), (gap, 1.0)]));
        harness.run_for(8 * SECOND);
        let mut output = ReceivedOutput::new(harness.start);
        output.collect(&client);
        over.push(output.speech_spans()[0].1 - (1.5 + gap) - policy);
    }
    eprintln!("ms beyond the policy: {:.1?}", over.iter().map(|s| s * 1e3).collect::<Vec<_>>());
    let mean = over.iter().sum::<f64>() / over.len() as f64;
    assert!(mean <= 0.011 && over.iter().all(|s| (-0.001..=0.016).contains(s)), "{mean}: {over:?}");
}

#[test]
fn where_a_change_is_near_blocks_are_short_and_time_stamps_go_on() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &["What is new?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(4 * SECOND);
    let blocks: Vec<_> = client
        .drain_outputs()
        .filter_map(|left| match left {
            LoopbackOutput::Audio { timestamp, pcm, .. } => Some((timestamp, pcm)),
            _ => None,
        })
        .collect();
    assert!(
        blocks.windows(2).all(|w| w[0].0 + w[0].1.len() as u64 == w[1].0),
        "no gap, no overlap"
    );
    let first = blocks.iter().position(|(_, pcm)| pcm.iter().any(|s| *s != 0)).unwrap();
    assert_eq!(blocks[first - 1].1.len(), 480, "it waits for the voice");
    let lengths =
        |blocks: &[(u64, Box<[i16]>)]| blocks.iter().map(|(_, pcm)| pcm.len()).collect::<Vec<_>>();
    assert!(
        lengths(&blocks[..20]).iter().all(|n| *n == 960),
        "no segment is awaited: {:?}",
        lengths(&blocks[..20])
    );
    assert!(
        lengths(&blocks[first + 1..]).iter().all(|n| *n == 960),
        "the agent speaks without interruption"
    );
}

#[test]
fn the_agent_falls_silent_when_it_is_interrupted() {
    let mut harness = Harness::new();
    let agent = AgentTurnConfig { interruptability: Some("high"), ..AgentTurnConfig::default() };
    let mut call = call_config_of(1, agent);
    call.spec.echo_warmup = Duration::ZERO;
    let client = harness.start_call(call, &["Tell me something.", "Stop it."], LONG_ANSWER);
    let onset = 4.0;
    client.send_audio(user_audio(&[(0.5, 1.0), (onset - 1.5, 1.0)]));
    harness.run_for(8 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let spoken = output.speech_spans();
    let silence = spoken[0].1 - onset;
    eprintln!("onset to silence: {:.0} ms at a minimum duration of 250 ms", silence * 1e3);
    assert!(spoken[0].0 < onset && (0.25..=0.45).contains(&silence), "{spoken:?}");
    assert!(harness.recorder.event_names(1).contains(&"agent.interrupted".to_owned()));
}

#[test]
fn a_false_interruption_resumes_at_the_sample_it_was_held_at() {
    let mut harness = Harness::new();
    let mut call = call_config(1);
    call.spec.echo_warmup = Duration::ZERO;
    // The second speech segment has no text: a cough.
    let client = harness.start_call(call, &["Tell me something.", ""], LONG_ANSWER);
    client.send_audio(user_audio(&[(0.5, 1.0), (2.0, 0.9)]));
    harness.run_for(14 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let names = harness.recorder.event_names(1);
    assert!(
        names.contains(&"playout.held".to_owned()) && names.contains(&"playout.resumed".to_owned()),
        "{names:?}"
    );
    assert_eq!(names.iter().filter(|n| *n == "agent.stopped_speaking").count(), 1);
    let place = |wanted: fn(&Event) -> Option<f64>| {
        let events = harness.recorder.events_of(1);
        (events.iter().find_map(|f| wanted(&f.event)).unwrap() * 48_000.0).round() as u64
    };
    let reported =
        place(|e| if let Event::PlayoutHeld { position } = e { Some(*position) } else { None });
    let held =
        place(|e| if let Event::PlayoutResumed { position } = e { Some(*position) } else { None });
    assert!(
        held.abs_diff(reported) <= 960,
        "the positions differ by at most one block: {reported} {held}"
    );
    // The fade of 5 ms at the hold is followed by silence, a fade-in of 5 ms, then the unchanged
    // samples.
    let blocks: Vec<i16> = output.blocks.iter().flat_map(|(_, b)| b.iter().copied()).collect();
    let silence = blocks.windows(4_800).position(|w| w[0] != 0 && w[1..].iter().all(|s| *s == 0));
    let resumed =
        silence.map(|at| at + 1 + blocks[at + 1..].iter().position(|s| *s != 0).unwrap()).unwrap();
    let exact: Vec<i16> = (held + 240..held + 1_240).map(sample_at).collect();
    let near = resumed - 1; // the fade-in starts with zero
    let found = blocks[near..near + 2_000].windows(1_000).position(|w| w == exact);
    assert!(found.is_some_and(|at| (239..=241).contains(&at)), "held at {held}: {found:?}");
}

#[test]
fn another_connection_takes_the_call_over_and_the_older_one_is_told() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &["Tell me something."], LONG_ANSWER);
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(3 * SECOND);
    let newer = harness.reconnect(call_config(1));
    harness.run_for(SECOND);
    let (mut old, mut new) =
        (ReceivedOutput::new(harness.start), ReceivedOutput::new(harness.start));
    old.collect(&client);
    new.collect(&newer);
    assert!(old.closed && old.texts.iter().any(|t| t.contains("peerLeft")), "{:?}", old.texts);
    let (before, after) = (old.speech_spans(), new.speech_spans());
    assert_eq!((before.len(), after.len()), (1, 1));
    assert!(after[0].0 - before[0].1 < 0.021, "the audio continues: {before:?} {after:?}");
    assert_eq!(harness.media_thread.call_count(), 1);
    assert_eq!(harness.recorder.event_names(1).iter().filter(|n| *n == "joined").count(), 1);
    drop(client);
    harness.run_for(7 * SECOND);
    assert_eq!(
        harness.media_thread.call_count(),
        1,
        "the end of the older connection does not end the call"
    );
}

#[test]
fn a_connection_closed_without_a_word_ends_the_call_after_five_seconds() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &[], "");
    harness.run_for(SECOND);
    client.send_event(TransportEvent::Closed);
    harness.run_for(4_900 * SECOND / 1_000);
    assert_eq!(harness.media_thread.call_count(), 1);
    harness.run_for(SECOND);
    assert_eq!(harness.media_thread.call_count(), 0);
    let names = harness.recorder.event_names(1);
    assert!(
        names.contains(&"participant_left".to_owned()) && names.contains(&"call_ended".to_owned()),
        "{names:?}"
    );
    assert!(
        harness.recorder.events_of(1).iter().any(|f| ended_because(&f.event, EndReason::UserLeft))
    );
    assert_eq!(*harness.open_streams.lock().unwrap(), 0, "the decoder is free");
}

#[test]
fn a_reload_within_five_seconds_goes_on_with_the_call() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &[], "");
    harness.run_for(SECOND);
    client.send_event(TransportEvent::Closed);
    harness.run_for(3 * SECOND);
    let _newer = harness.reconnect(call_config(1));
    harness.run_for(20 * SECOND);
    assert_eq!(harness.media_thread.call_count(), 1);
    assert!(!harness.recorder.event_names(1).contains(&"ended".to_owned()));
}

#[test]
fn a_client_of_which_nothing_is_heard_is_gone_after_twenty_five_seconds() {
    let mut harness = Harness::new();
    let mut client = harness.start_call(call_config(1), &[], "");
    harness.run_for(SECOND);
    client.disconnect();
    harness.run_for(24 * SECOND);
    assert_eq!(harness.media_thread.call_count(), 1);
    harness.run_for(3 * SECOND);
    assert_eq!(harness.media_thread.call_count(), 0);
    assert!(
        harness.recorder.events_of(1).iter().any(|f| ended_because(&f.event, EndReason::UserLeft))
    );
}

#[test]
fn the_end_by_the_api_leaves_no_call_and_nothing_sounds_after_it() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &["Tell me something."], LONG_ANSWER);
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(3 * SECOND);
    harness.command(1, Command::End);
    harness.run_for(SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    assert!(output.closed);
    assert!(output.speech_spans()[0].1 < 3.05, "{:?}", output.speech_spans());
    assert_eq!(harness.media_thread.call_count(), 0);
    assert_eq!(harness.media_thread.wake_at(), None, "a thread without calls sleeps");
    assert_eq!(harness.stats.ended_calls.load(Relaxed), 1);
    assert!(
        harness
            .recorder
            .events_of(1)
            .iter()
            .any(|f| ended_because(&f.event, EndReason::EndedByApi))
    );
    assert_eq!(*harness.open_streams.lock().unwrap(), 0);
}

#[test]
fn fifty_calls_at_once_are_fifty_conversations() {
    let mut harness = Harness::new();
    let client: Vec<_> = (0..50u32)
        .map(|i| {
            let client = harness.start_call(
                call_config(u128::from(i) + 1),
                &["What is new?"],
                "Nothing at all.",
            );
            client.send_audio(user_audio(&[(0.5 + f64::from(i) * 0.017, 1.0)]));
            client
        })
        .collect();
    harness.run_for(5 * SECOND);
    assert_eq!(harness.media_thread.call_count(), 50);
    for (i, client) in client.iter().enumerate() {
        let mut output = ReceivedOutput::new(harness.start);
        output.collect(client);
        let spoken = output.speech_spans();
        assert_eq!(spoken.len(), 1, "call {i}: {spoken:?}");
        let asked = 1.5 + i as f64 * 0.017;
        assert!((0.40..0.50).contains(&(spoken[0].0 - asked)), "call {i}: {spoken:?}");
    }
    drop(client);
    let count = |of: &AtomicU64| of.load(Relaxed);
    let stats = &harness.stats;
    assert_eq!(
        [&stats.skipped_audio_frames, &stats.late_audio_frames, &stats.late_ticks].map(count),
        [0; 3]
    );
    // A few frames of each call have 10 ms: those before its answer.
    assert!(
        (50 * 249..=50 * 254).contains(&count(&stats.audio_frames)),
        "{} frames",
        count(&stats.audio_frames)
    );
    assert_eq!(count(&stats.ticks), 501);
}

#[test]
fn a_thread_that_slept_too_long_catches_up_and_counts_what_it_left_out() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &[], "");
    harness.run_for(SECOND);
    // The thread is not stepped for half a second.
    harness.now += SECOND / 2;
    harness.run_for(SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let blocks = output.blocks.len();
    assert!((100 + 10..=125).contains(&blocks), "ten blocks are sent after the delay: {blocks}");
    assert_eq!(harness.stats.late_ticks.load(Relaxed), 1);
    // Of the frames that are caught up with, those due 210 ms ago, 190, … 70 are late. The one due
    // 50 ms ago is in time.
    assert_eq!(harness.stats.late_audio_frames.load(Relaxed), 8);
    assert_eq!(harness.stats.skipped_audio_frames.load(Relaxed), 14);
    assert_eq!(harness.stats.audio_frames.load(Relaxed), blocks as u64);
}

/// An overloaded TTS: it records each request and rejects it as busy. The second field is the voice
/// that it knows.
struct RejectingTts(Arc<Mutex<Vec<tts::Request>>>, &'static str);

impl tts::Tts for RejectingTts {
    fn speak(&self, request: tts::Request, _: Sink<tts::Event>) -> Result<Handle, models::Error> {
        self.0.lock().unwrap().push(request);
        Err(models::Error::new(models::ErrorKind::Busy, "too many texts are queued for the TTS"))
    }

    fn has_voice(&self, voice: &str) -> bool {
        voice.is_empty() || voice == self.1
    }
}

#[test]
fn a_voice_that_takes_nothing_fails_and_the_fallback_speaks_with_a_voice_of_its_own() {
    let mut harness = Harness::new();
    let (first, second) = (Arc::default(), Arc::default());
    let mut call = call_config(1);
    call.spec.fallback_tts = true;
    call.spec.error_message = None;
    call.tts.voice_id = "anna".into();
    let (tts, fallback) =
        (RejectingTts(Arc::clone(&first), "anna"), RejectingTts(Arc::clone(&second), "otto"));
    let client = harness.start_call_with_tts(
        call,
        &["What is new?"],
        "Nothing at all.",
        Arc::new(tts),
        Some(Arc::new(fallback)),
    );
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(4 * SECOND);
    let asked = |of: &Arc<Mutex<Vec<tts::Request>>>| -> Vec<(String, String)> {
        of.lock().unwrap().iter().map(|r| (r.text.clone(), r.voice.clone())).collect()
    };
    assert_eq!(asked(&first), [("Nothing at all.".to_owned(), "anna".to_owned())]);
    assert_eq!(asked(&second), [("Nothing at all.".to_owned(), String::new())]);
    let names = harness.recorder.event_names(1);
    assert_eq!(names.iter().filter(|n| *n == "error").count(), 2, "{names:?}");
    assert_eq!(harness.media_thread.call_count(), 1);
}

/// What a TTS was asked for.
#[derive(Clone, Default)]
struct TtsRecord {
    /// The reply of each request.
    replies: Vec<u64>,
    cancelled_segments: usize,
    cancelled_replies: Vec<u64>,
}

/// Speaks 10 s of sound for each text and does not end.
#[derive(Clone, Default)]
struct RecordingTts(Arc<Mutex<TtsRecord>>);

impl tts::Tts for RecordingTts {
    fn speak(
        &self,
        request: tts::Request,
        sink: Sink<tts::Event>,
    ) -> Result<Handle, models::Error> {
        self.0.lock().unwrap().replies.push(request.reply);
        sink.send(tts::Event::Usage { provider: "", characters: 1 });
        sink.send(tts::Event::Audio { pcm: vec![1_000; 480_000], sample_rate: 48_000 });
        let record = self.clone();
        Ok(Handle::new(move || record.0.lock().unwrap().cancelled_segments += 1))
    }

    fn cancel_reply(&self, reply: u64) {
        self.0.lock().unwrap().cancelled_replies.push(reply);
    }
}

#[test]
fn the_segments_of_a_reply_share_its_number_and_are_cancelled_with_it() {
    let mut harness = Harness::new();
    let tts = RecordingTts::default();
    let text = "This is the first sentence. This is the second one, and it is longer. Three.";
    let client = harness.start_call_with_tts(
        call_config(1),
        &["What is new?", "And more?"],
        text,
        Arc::new(tts.clone()),
        None,
    );
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(4 * SECOND);
    let before = tts.0.lock().unwrap().clone();
    let replies = before.replies;
    assert!(replies.len() > 1, "{replies:?}");
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    assert_eq!((before.cancelled_segments, before.cancelled_replies), (0, Vec::new()));
    harness.command(1, Command::Interrupt);
    harness.run_for(SECOND / 10);
    let after = tts.0.lock().unwrap().clone();
    let expected = (replies.len(), vec![replies[0]]);
    assert_eq!((after.cancelled_segments, after.cancelled_replies), expected);
    // The call ends: nothing holds the TTS any more, although the call has not been removed.
    harness.command(1, Command::End);
    harness.run_for(SECOND / 10);
    assert_eq!(Arc::strong_count(&tts.0), 1);
}

#[test]
fn a_long_text_leaves_the_voice_to_others_and_is_given_up_at_once() {
    let mut harness = Harness::new();
    let (client, other) = (
        harness.start_call(call_config(1), &[], ""),
        harness.start_call(call_config(2), &["What is new?"], "Nothing at all."),
    );
    let text = "Hello world. ".repeat(700);
    let say = Command::Say {
        text,
        interrupt: true,
        allow_interruptions: true,
        add_to_context: false,
        expression: None,
    };
    other.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.command(1, say);
    harness.run_for(4 * SECOND);
    let asked = || harness.recorder.event_names(1).iter().filter(|n| *n == "tts.started").count();
    // Four seconds at 0.6 s per segment, and two segments ahead.
    assert!((7..=10).contains(&asked()), "{} segments were requested", asked());
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&other);
    assert_eq!(output.speech_spans().len(), 1, "the other call is answered");
    let before = asked();
    harness.command(1, Command::Interrupt);
    harness.run_for(10 * SECOND);
    let asked = harness.recorder.event_names(1).iter().filter(|n| *n == "tts.started").count();
    assert_eq!(asked, before, "waiting segments are cancelled");
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    assert!(output.speech_spans().last().unwrap().1 < 4.1, "{:?}", output.speech_spans());
}

#[test]
fn a_client_without_a_microphone_is_told_once_that_nothing_is_heard() {
    let mut harness = Harness::new();
    let mut client = harness.start_call(call_config(1), &[], "");
    client.send_event(TransportEvent::ChannelOpen);
    client.disconnect();
    harness.run_for(5 * SECOND);
    let levels = |output: &ReceivedOutput| -> Vec<String> {
        output.texts.iter().filter(|t| t.contains("\"dbfs\"")).cloned().collect()
    };
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let reported = levels(&output);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("-90") && reported[0].contains("\"level\":0.0"), "{reported:?}");
}

/// A sound too short to hold the agent lowers its gain to a quarter while the sound lasts, and has
/// no other effect.
#[test]
fn a_short_sound_makes_the_agent_quieter_and_lets_it_go_on() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &["What is new?"], LONG_ANSWER);
    // After the echo warm-up.
    client.send_audio(user_audio(&[(0.5, 1.0), (5.0, 0.3)]));
    harness.run_for(10 * SECOND);
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let sound = output.audible_samples();
    let words = LONG_ANSWER.split_whitespace().count() as u64;
    assert_eq!(
        sound.len() as u64,
        words * WORD_DURATION.as_micros() as u64 * 48 / 1_000,
        "all of it was heard"
    );
    let gains: Vec<f64> =
        (0..).zip(&sound).map(|(at, now)| f64::from(*now) / f64::from(sample_at(at))).collect();
    let quiet = gains.iter().filter(|gain| **gain < 0.3).count();
    // Ducked until the VAD reports the end of speech: the 0.3 s of the sound and the silence after
    // it, minus the 0.06 s before the duck.
    assert!((9_600..=28_800).contains(&quiet), "{quiet} samples are quiet");
    let min_gain = gains.iter().copied().fold(1.0, f64::min);
    assert!((min_gain - 0.25).abs() < 0.01, "{min_gain}");
    assert!(gains[..144_000].iter().chain(&gains[sound.len() - 9_600..]).all(|gain| *gain > 0.99));
    assert!(harness.recorder.time_of(1, |e| matches!(e, Event::AgentInterrupted)).is_none());
}

/// Typed questions cause requests to the LLM, so they are limited to one per second with a burst of
/// five. Spoken questions and those sent as commands do not count.
#[test]
fn a_client_that_types_too_many_questions_is_refused_and_costs_nothing() {
    let mut harness = Harness::with_question_limit(1.0);
    let client = harness.start_call(call_config(1), &[], "Nothing at all.");
    harness.run_for(SECOND);
    client.send_event(TransportEvent::ChannelOpen);
    let ask = |n: u32| {
        let data = serde_json::json!({"content": format!("Question {n}?")});
        let text = serde_json::json!({
            "label": "rtvi-ai",
            "type": "send-text",
            "id": n.to_string(),
            "data": data,
        });
        client.send_event(TransportEvent::Text(text.to_string()));
    };
    (0..40).for_each(ask);
    harness.run_for(10 * SECOND);
    let committed = |harness: &Harness| {
        harness.recorder.event_names(1).iter().filter(|n| *n == "utterance_committed").count()
    };
    let asked = |harness: &Harness| {
        harness.recorder.event_names(1).iter().filter(|n| *n == "llm.started").count()
    };
    assert_eq!(
        (committed(&harness), asked(&harness)),
        (5, 5),
        "{:?}",
        harness.recorder.event_names(1)
    );
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let refused = output
        .texts
        .iter()
        .filter(|text| text.contains("error-response") && text.contains("too many questions"));
    assert_eq!(refused.count(), 35);
    ask(40);
    harness.command(1, Command::Respond { text: "And this?".into() });
    harness.run_for(5 * SECOND);
    assert_eq!(committed(&harness), 7);
}

/// Each message with context is stored. With `overwrite` it makes room for the next one, so the
/// limit of 8 KiB alone does not bound how much a client stores.
#[test]
fn a_client_that_replaces_its_context_too_often_is_refused_and_stores_nothing() {
    let mut harness = Harness::new();
    let client = harness.start_call(call_config(1), &[], "Nothing at all.");
    harness.run_for(SECOND);
    client.send_event(TransportEvent::ChannelOpen);
    let tell = |id: u32, kind: &str, data: serde_json::Value| {
        let text = serde_json::json!({
            "label": "rtvi-ai",
            "type": kind,
            "id": id.to_string(),
            "data": data,
        });
        client.send_event(TransportEvent::Text(text.to_string()));
    };
    let replace = |id: u32| {
        let context = serde_json::json!({"text": format!("Page {id}."), "mode": "overwrite"});
        tell(id, "client-message", serde_json::json!({"t": "context", "d": context}));
    };
    (0..20).for_each(replace);
    // The other way to add context has the same limit.
    let quiet = serde_json::json!({"content": "Page 20.", "options": {"run_immediately": false}});
    tell(20, "send-text", quiet);
    harness.run_for(10 * SECOND);
    let stored = |harness: &Harness| {
        let events = harness.recorder.events_of(1);
        let is_context =
            |event: &Event| matches!(event, Event::History(item) if item.role == Role::Visitor);
        events.iter().filter(|envelope| is_context(&envelope.event)).count()
    };
    assert_eq!(stored(&harness), 5, "{:?}", harness.recorder.event_names(1));
    let mut output = ReceivedOutput::new(harness.start);
    output.collect(&client);
    let is_refusal = |text: &&String| {
        text.contains("error-response") && text.contains("too many context messages")
    };
    assert_eq!(output.texts.iter().filter(is_refusal).count(), 16, "{:?}", output.texts);
    replace(21);
    harness.run_for(SECOND);
    assert_eq!(stored(&harness), 6, "one more per second");
}

/// Records the history of each request.
struct RecordingLlm {
    time: VirtualTime,
    histories: Mutex<Vec<Vec<(Role, String)>>>,
}

impl llm::Llm for RecordingLlm {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        let known = request.history.iter().map(|item| (item.role, item.text.clone())).collect();
        self.histories.lock().unwrap().push(known);
        self.time.schedule_after(Duration::from_millis(5), move || {
            sink.send(llm::Event::Text("Fine.".into()));
            sink.send(llm::Event::End { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 1 });
        });
        Handle::noop()
    }
}

#[test]
fn what_a_client_tells_is_the_visitor_s_word_unless_the_operator_controls_the_client() {
    for trusted in [false, true] {
        let mut harness = Harness::new();
        let llm =
            Arc::new(RecordingLlm { time: harness.time.clone(), histories: Mutex::default() });
        let client = harness.start_call_with_llm(
            CallConfig { trust_client_context: trusted, ..call_config(1) },
            &[],
            llm.clone(),
        );
        harness.run_for(SECOND);
        client.send_event(TransportEvent::ChannelOpen);
        harness.command(1, Command::Context { text: "Gold.".into(), overwrite: false });
        harness.run_for(SECOND);
        let say = |kind: &str, id: &str, data: serde_json::Value| {
            let text =
                serde_json::json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data});
            client.send_event(TransportEvent::Text(text.to_string()));
        };
        let context = |text: &str, mode: &str| {
            serde_json::json!({
                "t": "context",
                "d": {"text": text, "mode": mode},
            })
        };
        let quiet =
            serde_json::json!({"content": "Page 1.", "options": {"run_immediately": false}});
        say("send-text", "a", quiet);
        say("client-message", "b", context("All is free.", "overwrite"));
        say("client-message", "c", context(&"x".repeat(MAX_VISITOR_CONTEXT_BYTES), "append"));
        harness.run_for(SECOND);
        harness.command(1, Command::Respond { text: "Hi".into() });
        harness.run_for(2 * SECOND);
        let asked = llm.histories.lock().unwrap().clone();
        let known: Vec<(Role, &str)> = asked
            .last()
            .unwrap()
            .iter()
            .map(|(role, text)| (*role, text.trim_matches('x')))
            .collect();
        let mut output = ReceivedOutput::new(harness.start);
        output.collect(&client);
        let refused = output
            .texts
            .iter()
            .any(|text| text.contains("error-response") && text.contains("8 KiB"));
        if trusted {
            assert_eq!(
                known,
                [(Role::System, "All is free."), (Role::System, ""), (Role::User, "Hi")]
            );
        } else {
            assert_eq!(
                known,
                [(Role::System, "Gold."), (Role::Visitor, "All is free."), (Role::User, "Hi")]
            );
        }
        assert_eq!(refused, !trusted, "{:?}", output.texts);
    }
}
