//! Lip motion from the phones that a TTS voice reports, and from its audio alone, compared with the
//! phones that the built-in voices spoke.
#![allow(clippy::print_stdout)] // prints the measurements with --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

#[path = "support/lips.rs"]
mod lips;
#[path = "../../models/tests/common/noise.rs"]
mod noise;
mod support;
#[path = "lips/words.rs"]
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::{Position, Time};
use engine::show::visemes::VisemeTrack;
use engine::show::{AvatarAnimator, Avatars};
use engine::speak::tts::{self as voice, SynthesisEvent};
use engine::transport::loopback::LoopbackOutput;
use lips::{CLOSURE_TOLERANCE, LipComparison, closures, correlation, is_closure, lips_are_shut};
use models::face::{Mouth, PoseSet};
use models::tts::{Event, Flite, Phone, Request, Tts, Word};
use models::{Handle, Sink};
use noise::seed_voice_noise;
use support::{Harness, VirtualTime, call_config};

const SECOND: Duration = Duration::from_secs(1);
const SEGMENT: SegmentId = SegmentId(1);

/// Display time of a video frame in seconds.
const FRAME_SECONDS: f32 = 0.04;

const SUBJECTS: [&str; 16] = [
    "A plumber",
    "Every baby",
    "My uncle",
    "The van",
    "Philip",
    "An olive",
    "Most of them",
    "The captain",
    "Her cupboard",
    "Nobody",
    "The robin",
    "Some fellow",
    "That elephant",
    "The mayor",
    "A vivid dream",
    "The beaver",
];
const VERBS: [&str; 15] = [
    "pumps",
    "bumped into",
    "improves",
    "will move",
    "proves",
    "obviously favours",
    "grabbed",
    "may have begun",
    "leaves behind",
    "jumped over",
    "never stops",
    "combines",
    "shaved",
    "hopes to buy",
    "moved with",
];
const OBJECTS: [&str; 17] = [
    "five pumpkins",
    "the empty bathtub",
    "a lump of marble",
    "fabulous pepper",
    "the subway map",
    "some more oatmeal",
    "a very brave puppy",
    "the halfback",
    "these baboons",
    "an ivory comb",
    "the topmost shelf",
    "a bad penny",
    "rough velvet",
    "cheap furniture",
    "the warm beach",
    "Tim's film",
    "a wolf cub",
];
const ADVERBIALS: [&str; 13] = [
    "before noon",
    "for a hobby",
    "above the farm",
    "in vain",
    "without me",
    "from above",
    "by ferry",
    "at the fireplace",
    "before the big bang",
    "up there",
    "as a rule",
    "each evening",
    "on behalf of Bob",
];

/// Two hundred different sentences; the network was trained on none of them.
fn sentences() -> Vec<String> {
    let all: Vec<String> = (0..200)
        .map(|n| {
            let (who, does) = (SUBJECTS[n % SUBJECTS.len()], VERBS[n % VERBS.len()]);
            format!(
                "{who} {does} {} {}.",
                OBJECTS[n % OBJECTS.len()],
                ADVERBIALS[n % ADVERBIALS.len()]
            )
        })
        .collect();
    assert!(all.iter().enumerate().all(|(n, s)| !all[..n].contains(s)));
    all
}

#[derive(Clone, Default)]
struct SpokenSentence {
    phones: Vec<Phone>,
    words: Vec<Word>,
    pcm: Vec<i16>,
    sample_rate: u32,
}

/// Speaks `texts` with these voices in rotation. Returns the sentences of each voice.
fn synthesize(texts: &[String], voices: &[&str]) -> Vec<Vec<SpokenSentence>> {
    let flite = Flite::start(1).unwrap_or_else(|e| panic!("{e}"));
    let ask = |text: &String, voice: &str| {
        let (sender, events) = crossbeam_channel::unbounded();
        let request = Request { text: text.clone(), voice: voice.into(), ..Request::default() };
        (flite.speak(request, Sink::new(move |event| drop(sender.send(event)))).unwrap(), events)
    };
    let mut all = vec![Vec::new(); voices.len()];
    for (n, text) in texts.iter().enumerate() {
        let (_handle, events) = ask(text, voices[n % voices.len()]);
        let mut sentence = SpokenSentence::default();
        for event in events {
            match event {
                Event::Phones(phones) => sentence.phones.extend(phones),
                Event::Audio { pcm, sample_rate } => {
                    sentence.pcm.extend(pcm);
                    sentence.sample_rate = sample_rate;
                }
                Event::Words(words) => sentence.words.extend(words),
                Event::Usage { .. }
                | Event::Provider(_)
                | Event::ServedBy(_)
                | Event::Warning(_) => {}
                Event::End => break,
                Event::Failed(error) => panic!("{text:?}: {error}"),
            }
        }
        all[n % voices.len()].push(sentence);
    }
    all
}

/// The mouth that each video frame of a pose set shows, keyed by the address of its bytes.
fn mouths_by_frame(set: &PoseSet) -> HashMap<*const u8, Mouth> {
    let manifest = set.manifest();
    let shown = |key| set.frame(set.frame_index(key), 0).as_ptr();
    let poses = manifest
        .frames
        .iter()
        .map(|(key, _)| (shown(*key), manifest.mouths[usize::from(key.mouth)]));
    // An anchor shows a head that arrives while the lips are nearly shut: lips at rest.
    let anchors = set.anchor_frames().iter().map(|anchor| (anchor.as_ptr(), Mouth::default()));
    poses.chain(anchors).collect()
}

#[test]
fn every_closure_of_twelve_sentences_is_shown_by_every_person() {
    let _alone = seed_voice_noise();
    assert_closures_shown(&sentences()[..12]);
}

#[test]
#[ignore = "long: faces"]
fn long_faces_every_closure_of_two_hundred_sentences_is_shown_by_every_person() {
    let _alone = seed_voice_noise();
    assert_closures_shown(&sentences());
}

fn assert_closures_shown(sentences: &[String]) {
    let sentence: Vec<SpokenSentence> =
        synthesize(sentences, &["slt", "rms", "awb", "kal16"]).concat();
    assert_eq!(sentence.len(), sentences.len());
    let (mut seen, mut missed) = (0, Vec::new());
    for avatar in Avatars::built_in().unwrap().as_slice() {
        let mouths = mouths_by_frame(&avatar.pose_set);
        for (n, sentence) in sentence.iter().enumerate() {
            // Video frames may have any phase relative to the audio.
            for (rate, phase) in
                [(25, 0.0), (25, 0.01), (25, 0.02), (25, 0.03), (30, 0.0), (30, 0.02)]
            {
                let mut face = AvatarAnimator::new(Arc::clone(&avatar.pose_set), rate, 1);
                assert!(face.next_frame(Time::ZERO, None).is_some_and(|first| first.is_key_frame));
                face.set_state(AgentState::Speaking, false);
                face.add_phones(SEGMENT, &sentence.phones);
                let length = 1.0 / rate as f32;
                let pictures = (sentence.phones.last().unwrap().end / length) as u64;
                let mut closed = false;
                let shut: Vec<f32> = (0..pictures)
                    .filter_map(|n| {
                        let at = phase + n as f32 * length;
                        let time = Time::from_micros((n + 1) * 1_000_000 / u64::from(rate));
                        // A video frame that is not sent leaves the previous one visible. Above 25
                        // fps, a frame is sent only if it differs.
                        match face.next_frame(time, Some((SEGMENT, at))) {
                            Some(picture) => {
                                closed = lips_are_shut(&mouths[&picture.payload.as_ptr()])
                            }
                            None => assert!(rate > 25, "every picture is sent while lips move"),
                        }
                        closed.then_some(at + length / 2.0)
                    })
                    .collect();
                for (start, end) in closures(&sentence.phones) {
                    let shown = shut.iter().any(|middle| {
                        (start - CLOSURE_TOLERANCE..=end + CLOSURE_TOLERANCE).contains(middle)
                    });
                    seen += usize::from(shown);
                    if !shown {
                        missed.push(format!(
                            "{}, sentence {n}, {start} to {end}, {rate} a second, phase {phase}",
                            avatar.pose_set.manifest().name
                        ));
                    }
                }
            }
        }
    }
    println!("{seen} closures shown, {} missed", missed.len());
    assert!(
        seen > 9 * 6 * sentences.len() * 3 && missed.is_empty(),
        "{seen} shown, missed: {missed:#?}"
    );
}

#[test]
fn lips_that_are_read_from_sound_follow_the_phones() {
    let _alone = seed_voice_noise();
    assert_lips_follow(&sentences()[..32]);
}

#[test]
#[ignore = "long: faces"]
fn long_faces_lips_that_are_read_from_the_sound_of_two_hundred_sentences_follow_the_phones() {
    let _alone = seed_voice_noise();
    assert_lips_follow(&sentences());
}

fn assert_lips_follow(sentences: &[String]) {
    // For each voice, the minimum r of the jaw opening and the minimum share of closures that are
    // shut. The voice rms was not part of the training.
    let bounds =
        [("slt", 0.80, 0.93), ("rms", 0.48, 0.93), ("awb", 0.76, 0.93), ("kal16", 0.69, 0.92)];
    let sentence = synthesize(sentences, &bounds.map(|(voice, ..)| voice));
    for ((voice, min_r, part), sentence) in bounds.into_iter().zip(sentence) {
        let mut comparison = LipComparison::default();
        for sentence in &sentence {
            comparison.add(
                &sentence.phones,
                &lips::phones_from_audio(&sentence.pcm, sentence.sample_rate),
            );
        }
        let (all, shut) = comparison.count_closures();
        let (r, lag) = (comparison.jaw_correlation(0.0), comparison.lag());
        let minutes = comparison.seconds() / 60.0;
        println!(
            "{voice}: {} sentences, r = {r:.3}, lag {:.0} ms, {shut} of {all} closures shut \
             ({:.1} %), {} of other sounds in {minutes:.1} minutes",
            sentence.len(),
            lag * 1e3,
            shut as f64 * 100.0 / all as f64,
            comparison.false_closures()
        );
        assert!(r >= min_r, "{voice}: r = {r}");
        assert!(shut as f64 >= part * all as f64, "{voice}: {shut} of {all}");
        assert!(lag.abs() <= 0.03, "{voice}: {lag} s late");
    }
}

/// The events that the synthesis sink emits for a sentence in chunks of 0.1 s. Each of `events` is
/// sent before the chunk with its number.
fn run_tts_sink(
    lips: bool,
    sentence: &SpokenSentence,
    events: Vec<(usize, Event)>,
) -> Vec<SynthesisEvent> {
    run_sink(lips, false, sentence, events)
}

/// The same, with a choice whether pauses are reported.
fn run_sink(
    lips: bool,
    report_pauses: bool,
    sentence: &SpokenSentence,
    mut events: Vec<(usize, Event)>,
) -> Vec<SynthesisEvent> {
    let emitted = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&emitted);
    let sink = voice::synthesis_sink(lips, report_pauses, move |event| {
        collected.lock().unwrap().push(event)
    });
    for (n, chunk) in sentence.pcm.chunks(sentence.sample_rate as usize / 10).enumerate() {
        for (_, event) in events.extract_if(.., |(before, _)| *before == n) {
            sink.send(event);
        }
        sink.send(Event::Audio { pcm: chunk.to_vec(), sample_rate: sentence.sample_rate });
    }
    sink.send(Event::End);
    drop(sink);
    Arc::into_inner(emitted).unwrap().into_inner().unwrap()
}

fn collect_phones(events: &[SynthesisEvent]) -> Vec<Phone> {
    events
        .iter()
        .flat_map(|n| if let SynthesisEvent::Phones(p) = n { p.clone() } else { Vec::new() })
        .collect()
}

#[test]
fn phones_come_before_their_sound_and_a_voice_that_tells_its_own_keeps_them() {
    let _alone = seed_voice_noise();
    let sentence = &synthesize(&["Maybe Bob will improve.".to_owned()], &["kal16"])[0][0];
    let read = run_tts_sink(true, sentence, vec![]);
    let (mut known, mut given) = (0.0, 0.0);
    for event in &read {
        match event {
            SynthesisEvent::Phones(phones) => known = phones.last().unwrap().end,
            SynthesisEvent::Samples(samples) => {
                given += samples.len() as f32 / 48_000.0;
                let delay = given - known;
                assert!(
                    delay <= models::lips::PhoneRecognizer::look_ahead() + 1e-3,
                    "{given} s given, {known} known"
                );
            }
            SynthesisEvent::End => {
                assert!((given - known).abs() < 0.011, "all of it is known: {known} of {given}")
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(collect_phones(&read).iter().any(|p| is_closure(&p.name)), "{read:?}");

    let own_phones = vec![(0, Event::Phones(sentence.phones.clone()))];
    assert_eq!(collect_phones(&run_tts_sink(true, sentence, own_phones)), sentence.phones);
    assert_eq!(
        collect_phones(&run_tts_sink(false, sentence, vec![])),
        [],
        "without an avatar, no phones are computed"
    );
}

/// In a recording, the next word is marked when it begins, not when the previous one ends.
#[test]
fn the_pauses_of_a_voice_that_reports_phones_are_known_for_recordings() {
    let _alone = seed_voice_noise();
    for voice in ["slt", "rms", "awb", "kal16"] {
        let text = "Yes, of course, we can.".to_owned();
        let sentence = &synthesize(&[text], &[voice])[0][0];
        let events = || {
            let phones = Event::Phones(sentence.phones.clone());
            vec![(0, phones), (0, Event::Words(sentence.words.clone()))]
        };
        let words = |report_pauses| {
            let events = run_sink(false, report_pauses, sentence, events());
            let mut words = events.into_iter().filter_map(|event| match event {
                SynthesisEvent::Words(words) => Some(words),
                _ => None,
            });
            words.next().unwrap()
        };
        let is_word = |entry: &(String, Position)| !entry.0.is_empty();
        let with_pauses = words(true);
        let spoken: Vec<_> = with_pauses.iter().filter(|entry| is_word(entry)).cloned().collect();
        assert_eq!(spoken, words(false), "{voice}");
        let mut pauses = with_pauses.windows(2).filter(|pair| pair[0].0.ends_with(','));
        assert_eq!(pauses.clone().count(), 2, "{voice}: {with_pauses:?}");
        assert!(
            pauses
                .all(|pair| !is_word(&pair[1])
                    && pair[1].1.as_seconds() > pair[0].1.as_seconds() + 0.05),
            "{voice}: {with_pauses:?}"
        );
    }
}

/// Speaks one recorded sentence for any text, in chunks of 0.1 s, the first after 0.1 s, at `speed`
/// times real time. It behaves like a vendor that sends audio only, or also the words with the
/// first chunk (`words`).
struct RecordedTts {
    time: VirtualTime,
    sentence: SpokenSentence,
    speed: f64,
    words: bool,
}

impl Tts for RecordedTts {
    fn speak(&self, _: Request, sink: Sink<Event>) -> Result<Handle, models::Error> {
        let sample_rate = self.sentence.sample_rate;
        let chunks = self.sentence.pcm.chunks(sample_rate as usize / 10);
        let last = chunks.len();
        for (n, chunk) in chunks.enumerate() {
            let (pcm, sink) = (chunk.to_vec(), sink.clone());
            let words = (self.words && n == 0).then(|| self.sentence.words.clone());
            self.time.schedule_after(
                SECOND.mul_f64(0.1 + 0.1 * n as f64 / self.speed),
                move || {
                    if let Some(words) = words {
                        sink.send(Event::Words(words));
                    }
                    sink.send(Event::Audio { pcm, sample_rate });
                    if n + 1 == last {
                        sink.send(Event::End);
                    }
                },
            );
        }
        Ok(Handle::noop())
    }
}

#[test]
fn in_a_call_the_face_follows_a_vendor_that_gives_nothing_but_sound_or_words_with_it() {
    let _alone = seed_voice_noise();
    let sentence = synthesize(
        &["My brother may have moved the big apple box above the map.".to_owned()],
        &["slt"],
    );
    let sentence = &sentence[0][0];
    // If audio arrives hardly faster than it is played, phones inferred from it are known too late.
    // Words are known early enough.
    for (speed, words) in [(5.0, false), (2.0, false), (1.2, true)] {
        let avatars = Avatars::built_in().unwrap();
        let set = &avatars.as_slice()[0].pose_set;
        let mouths = mouths_by_frame(set);
        let mut harness = Harness::new();
        harness.pose_set = Some(Arc::clone(set));
        let vendor =
            RecordedTts { time: harness.time.clone(), sentence: sentence.clone(), speed, words };
        let client = harness.start_call_with_tts(
            call_config(1),
            &["What is new?"],
            "Nothing at all.",
            Arc::new(vendor),
            None,
        );
        client.send_audio(support::user_audio(&[(0.5, 1.0)]));
        harness.run_for(8 * SECOND);

        let (mut began, mut pictures): (Option<Instant>, Vec<(Instant, Mouth)>) =
            (None, Vec::new());
        for left in client.drain_outputs() {
            match left {
                LoopbackOutput::Audio { at, segment: Some((_, position)), .. }
                    if began.is_none() =>
                {
                    assert_eq!(position, Position::from_samples(0));
                    began = Some(at);
                }
                LoopbackOutput::Video { at, frame } if !frame.is_key_frame => {
                    // An anchor counts as lips at rest: its head has just moved.
                    pictures.extend(mouths.get(&frame.payload.as_ptr()).map(|mouth| (at, *mouth)));
                }
                _ => {}
            }
        }
        let began = began.expect("it speaks");
        let track = VisemeTrack::new(&sentence.phones);
        let (mut wanted, mut shown, mut closed) = (Vec::new(), Vec::new(), Vec::new());
        for (at, mouth) in &pictures {
            // A video frame shows the mouth at the middle of its display time.
            let middle = at.saturating_duration_since(began).as_secs_f32() + FRAME_SECONDS / 2.0;
            if *at >= began && middle < track.end() {
                wanted.push(f64::from(track.mouth_at(middle).jaw));
                shown.push(f64::from(mouth.jaw));
                if lips_are_shut(mouth) {
                    closed.push(middle);
                }
            }
        }
        let all = closures(&sentence.phones);
        let near = |(start, end): &&(f32, f32)| {
            closed
                .iter()
                .any(|at| (start - CLOSURE_TOLERANCE..=end + CLOSURE_TOLERANCE).contains(at))
        };
        let (r, seen) = (correlation(&wanted, &shown), all.iter().filter(near).count());
        println!(
            "{speed} times as fast: {} pictures, r = {r:.3}, {seen} of {} closures",
            shown.len(),
            all.len()
        );
        assert!(shown.len() > 60, "a picture in 40 ms: {}", shown.len());
        assert!(r > 0.65 && seen * 10 >= all.len() * 8, "r = {r}, {seen} of {}", all.len());
        assert!(!words || seen == all.len(), "none comes late: {seen} of {}", all.len());
    }
}
