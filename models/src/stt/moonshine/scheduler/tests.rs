//! The scheduler in virtual time.

use super::simulation::{FRAME_TIME, Sim, ms, text, words};
use super::*;
use crate::stt::moonshine::SAMPLE_RATE;

#[test]
fn a_final_is_there_when_the_detector_reports_the_end() {
    let mut sim = Sim::new(1, 0.03);
    sim.open(1);
    let (found, after) = sim.speak_alone(1, words(0..8, 20));
    assert_eq!(found, text(0..8));
    // The detector reports .25 s late; the frame is complete up to 20 ms later.
    assert!(after <= ms(270), "{after:?}");
    assert_eq!((sim.decodes(Purpose::Speculative), sim.decodes(Purpose::Final)), (1, 0));
}

#[test]
fn interims_grow_while_the_user_speaks() {
    let mut sim = Sim::new(1, 0.03);
    sim.open(1);
    sim.speak_alone(1, words(0..10, 20));
    let interims = sim.interims(1);
    assert!((4..=7).contains(&interims.len()), "{interims:?}");
    assert!(interims.is_sorted_by_key(String::len), "{interims:?}");
    let first = sim.log.iter().find(|(_, _, line)| line.starts_with("interim")).unwrap().0;
    assert!((ms(600)..ms(750)).contains(&first), "{first:?}");
    assert!(interims.iter().all(|interim| text(0..10).starts_with(interim.as_str())));
}

#[test]
fn a_transcript_in_advance_is_discarded_if_speech_goes_on() {
    let mut sim = Sim::new(1, 0.03);
    sim.open(1);
    let mut sound = words(0..4, 0);
    // Longer than .1 s, shorter than the detector's silence.
    sound.resize(sound.len() + SAMPLE_RATE / 5, 0);
    sound.extend(words(4..8, 0));
    let (found, _) = sim.speak_alone(1, sound);
    assert_eq!(found, text(0..8));
    assert_eq!(sim.decodes(Purpose::Speculative), 2);
    assert!(sim.interims(1).contains(&text(0..4)), "it is an interim then");
}

#[test]
fn without_time_for_it_the_final_is_decoded_after_the_report() {
    // A decode takes longer than the detector.
    let mut sim = Sim::new(1, 0.3);
    sim.open(1);
    let (found, after) = sim.speak_alone(1, words(0..6, 0));
    assert_eq!(found, text(0..6));
    // The decode in advance of 2.4 s of audio started .1 s after the end and goes on.
    assert!((ms(700)..ms(900)).contains(&after), "{after:?}");
    assert_eq!(sim.decodes(Purpose::Final), 0, "it is not decoded twice");
}

#[test]
fn nothing_is_decoded_in_advance_while_other_decodes_wait() {
    let mut sim = Sim::new(1, 0.5);
    (0..6).for_each(|id| sim.open(id));
    // Five utterances have ended and wait when the sixth user falls silent.
    (1..6).for_each(|id| sim.speak(id, words(0..3, 0)));
    sim.pass(ms(400));
    sim.speak(0, words(0..4, 0));
    sim.pass(ms(10_000));
    assert!((0..6).all(|id| sim.finals(id).len() == 1));
    assert_eq!(sim.finals(0)[0].1, text(0..4));
    assert!(sim.decodes(Purpose::Speculative) <= 1, "only the first one");
    assert!(sim.decodes(Purpose::Final) >= 5);
}

#[test]
fn finals_go_before_interims_and_cancel_them() {
    let mut sim = Sim::new(1, 0.2);
    sim.open(1);
    sim.open(2);
    sim.speak(2, words(0..20, 0));
    while sim.jobs.is_empty() {
        sim.pass(FRAME_TIME);
    }
    assert_eq!((sim.decodes(Purpose::Interim), sim.decodes(Purpose::Final)), (1, 0));
    // Another user's utterance ends at the same time.
    sim.handle(Command::StartSpeech(1));
    sim.handle(Command::Audio(1, words(0..3, 0)));
    assert!(!sim.jobs[0].2.cancelled.load(Ordering::Relaxed));
    sim.handle(Command::EndSpeech(1));
    assert!(sim.jobs[0].2.cancelled.load(Ordering::Relaxed));
    let start = sim.now;
    sim.pass(ms(300));
    let (at, found) = sim.finals(1)[0].clone();
    assert_eq!(found, text(0..3));
    assert!(at - start <= ms(200), "a decode of .9 s, and a frame");
    assert_eq!(sim.counters.snapshot()[Purpose::Interim as usize].discarded, 1);
    sim.pass(ms(8_000));
    assert_eq!(sim.finals(2)[0].1, text(0..20));
}

#[test]
fn an_interim_of_the_whole_speech_is_final_unless_it_is_uncertain() {
    for (careless, decodes) in [(-0.1, 0), (-0.5, 1)] {
        let mut sim = Sim::new(1, 0.1);
        sim.careless = careless;
        sim.open(1);
        sim.handle(Command::StartSpeech(1));
        sim.handle(Command::Audio(1, words(0..4, 0)));
        assert_eq!(sim.decodes(Purpose::Interim), 1);
        sim.handle(Command::EndSpeech(1));
        sim.pass(ms(1_000));
        assert_eq!(sim.finals(1)[0].1, text(0..4));
        assert_eq!(sim.decodes(Purpose::Final), decodes);
    }
}

#[test]
fn interims_of_many_calls_leave_time_for_finals() {
    let mut sim = Sim::new(1, 0.05);
    (0..20).for_each(|id| sim.open(id));
    for _ in 0..4 {
        for id in 0..20 {
            sim.speak(id, words(0..8, 0));
            sim.pass(ms(180));
        }
    }
    sim.pass(ms(6_000));
    let [interim, ..] = sim.counters.snapshot();
    let share = interim.decode_time.as_secs_f64() / sim.now.as_secs_f64();
    assert!(share <= 0.45, "{share}");
    for id in 0..20 {
        let finals = sim.finals(id);
        assert_eq!(finals.len(), 4);
        assert!(finals.iter().all(|(_, found)| *found == text(0..8)), "{finals:?}");
    }
}

#[test]
fn a_long_speech_is_decoded_in_parts_and_its_end_quickly() {
    let mut sim = Sim::new(1, 0.05);
    sim.open(1);
    // Five words, a pause of .22 s, and so on, for 35 s.
    let mut sound = Vec::new();
    for start in (0..100).step_by(5) {
        sound.extend(words(start..start + 5, 5));
        sound.resize(sound.len() + SAMPLE_RATE * 22 / 100, 0);
    }
    let (found, after) = sim.speak_alone(1, sound);
    assert_eq!(found, text(0..100));
    assert!(after <= ms(400), "{after:?}");
    assert!((4..=12).contains(&sim.decodes(Purpose::Part)), "{}", sim.decodes(Purpose::Part));
    let interims = sim.interims(1);
    assert!(interims.is_sorted_by_key(String::len), "text of parts stays: {interims:?}");
}

#[test]
fn a_speech_without_a_pause_is_cut_before_a_decode_takes_seconds() {
    let mut sim = Sim::new(1, 0.05);
    sim.open(1);
    let (found, _) = sim.speak_alone(1, words(0..150, 0));
    let missing = (0..150).filter(|n| !found.split(' ').any(|word| word == format!("w{n}")));
    assert!(missing.count() <= 2, "{found}");
    let counts = found.split(' ').count();
    assert!((148..=150).contains(&counts), "no word twice: {found}");
    assert!(sim.decodes(Purpose::Part) >= 2);
}

#[test]
fn a_short_sound_gives_an_empty_final_at_once() {
    let mut sim = Sim::new(1, 0.05);
    sim.open(1);
    let (found, after) = sim.speak_alone(1, words(0..1, 0)[..SAMPLE_RATE / 10].to_vec());
    assert_eq!((found.as_str(), after <= ms(270)), ("", true));
    sim.handle(Command::StartSpeech(1));
    sim.handle(Command::Audio(1, vec![0; SAMPLE_RATE]));
    sim.handle(Command::EndSpeech(1));
    assert_eq!(sim.finals(1).len(), 2, "silence");
    sim.handle(Command::StartSpeech(1));
    sim.handle(Command::EndSpeech(1));
    assert_eq!(sim.finals(1).len(), 3, "no sound");
    let decodes: u64 = Purpose::ALL.iter().map(|purpose| sim.decodes(*purpose)).sum();
    assert_eq!(decodes, 0);
}

#[test]
fn finals_of_one_stream_come_in_order_even_with_many_workers() {
    let mut sim = Sim::new(3, 1.0);
    sim.open(1);
    for start in [0, 10, 20] {
        sim.speak(1, words(start..start + if start == 0 { 8 } else { 2 }, 0));
        sim.pass(ms(if start == 0 { 2_700 } else { 900 }));
    }
    sim.pass(ms(8_000));
    let found: Vec<String> = sim.finals(1).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, [text(0..8), text(10..12), text(20..22)]);
}

#[test]
fn a_decode_that_fails_is_tried_again_and_told() {
    let mut sim = Sim::new(1, 0.05);
    sim.open(1);
    sim.failing = 2;
    let (found, _) = sim.speak_alone(1, words(0..8, 0));
    assert_eq!(found, text(0..8));
    let states: Vec<&str> = sim
        .log
        .iter()
        .map(|(_, _, line)| line.as_str())
        .filter(|line| ["failed", "recovered"].contains(line))
        .collect();
    assert_eq!(states, ["failed", "recovered"]);
}

#[test]
fn while_all_workers_are_down_finals_are_what_is_known() {
    let mut sim = Sim::new(1, 0.05);
    sim.open(1);
    sim.speak(1, words(0..10, 0));
    sim.pass(ms(2_000));
    let known = sim.interims(1).last().unwrap().clone();
    sim.jobs.clear();
    sim.scheduler.idle.clear();
    sim.handle(Command::WorkerDown { worker: 0 });
    sim.pass(ms(2_000));
    assert_eq!(sim.finals(1)[0].1, known);
    let (found, _) = sim.speak_alone(1, words(0..4, 0));
    assert_eq!(found, "");
    sim.handle(Command::WorkerReady(0));
    let (found, _) = sim.speak_alone(1, words(0..4, 0));
    assert_eq!(found, text(0..4));
}

#[test]
fn a_closed_stream_costs_nothing_more() {
    let mut sim = Sim::new(1, 0.5);
    sim.open(1);
    sim.speak(1, words(0..8, 0));
    sim.pass(ms(1_000));
    sim.handle(Command::Close(1));
    sim.users.clear();
    sim.pass(ms(2_000));
    assert_eq!((sim.jobs.len(), sim.scheduler.waiting_count()), (0, 0));
    assert!(sim.finals(1).is_empty());
}

#[test]
fn the_expected_wait_tells_when_there_are_too_many_calls() {
    let mut sim = Sim::new(1, 0.4);
    (0..12).for_each(|id| sim.open(id));
    assert_eq!(sim.scheduler.load().expected_wait(), Duration::ZERO);
    for _ in 0..3 {
        (0..12).for_each(|id| sim.speak(id, words(0..6, 0)));
        sim.pass(ms(2_500));
    }
    assert!(sim.scheduler.load().expected_wait() > ms(1_000));
    for _ in 0..100 {
        sim.pass(ms(500));
        sim.scheduler.tick(sim.now);
    }
    assert!(sim.scheduler.load().expected_wait() < ms(10));
    assert!(sim.scheduler.waiting_count() == 0);
}
