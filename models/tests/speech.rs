//! From a voice in noise to text: Flite, VAD with its rule, and PocketSphinx, connected as in a
//! call.
#![allow(clippy::print_stdout)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use std::time::Duration;

use conversation::spec;
use crossbeam_channel::unbounded;
use models::Sink;
use models::stt::{Event, PocketSphinxConfig, PocketSphinxPool, Stt};
use models::vad::{Detector, Network, NetworkState, SAMPLE_RATE, Scratch, VadEvent, WINDOW};

const SECOND: usize = SAMPLE_RATE as usize;
/// Audio before the onset that the STT also receives.
const PRE_ROLL: usize = SECOND / 2;

struct SpokenSentence {
    sentence: &'static str,
    from: usize,
    to: usize,
}

/// Sentences with pauses of 1.2 s, in noise with the given peak.
fn build_recording(
    sentences: &[&'static str],
    voice: &str,
    peak: f64,
) -> (Vec<i16>, Vec<SpokenSentence>) {
    let mut sound = vec![0; SECOND];
    let mut truth = Vec::new();
    for &sentence in sentences {
        let from = sound.len();
        sound.extend(common::synthesise(sentence, voice));
        truth.push(SpokenSentence { sentence, from, to: sound.len() });
        sound.extend(vec![0; SECOND * 6 / 5]);
    }
    let noise = common::white_noise(3, sound.len(), peak);
    let sound = sound.iter().zip(noise).map(|(a, b): (&i16, i16)| a.saturating_add(b)).collect();
    (sound, truth)
}

fn detect(sound: &[i16]) -> Vec<(usize, usize)> {
    let network =
        Network::load(&models::paths::vad(&common::models_dir())).unwrap_or_else(|e| panic!("{e}"));
    let (mut scratch, mut state) = (Scratch::new(&network), NetworkState::default());
    let mut detector = Detector::new(spec::VadTiming {
        min_speech_duration: Duration::from_millis(50),
        min_silence_duration: Duration::from_millis(250),
    });
    let mut found = Vec::new();
    for window in sound.as_chunks::<WINDOW>().0 {
        let window = window.map(|x| f32::from(x) / 32_768.0);
        let mut probability = [0.0];
        network.run(&mut scratch, &mut [&mut state], &[&window], &mut probability);
        if let Some(VadEvent::End { onset, end }) = detector.on_probability(probability[0]) {
            found.push((onset as usize, end as usize));
        }
    }
    found
}

#[test]
fn sentences_in_noise_are_found_where_they_are_and_understood() {
    assert_found_and_understood(&common::SENTENCES[..3], &[("rms", 60.0)]);
}

#[test]
#[ignore = "long: providers"]
fn long_providers_all_sentences_with_and_without_noise_are_found_and_understood() {
    assert_found_and_understood(&common::SENTENCES, &[("slt", 0.0), ("slt", 60.0), ("rms", 60.0)]);
}

/// Speaks the sentences with each voice, in noise with the paired peak.
fn assert_found_and_understood(sentences: &[&'static str], calls: &[(&str, f64)]) {
    let pool =
        PocketSphinxPool::start(PocketSphinxConfig { dir: common::models_dir(), decoders: 1 });
    common::wait_for(|| !pool.is_loading());
    for &(voice, peak) in calls {
        let (sound, truth) = build_recording(sentences, voice, peak);
        let found = detect(&sound);

        // Position: each sentence is covered except its soft edges, and nothing is detected between
        // two.
        let (mut late, mut early) = (Vec::new(), Vec::new());
        for &SpokenSentence { sentence, from, to } in &truth {
            let mine: Vec<_> =
                found.iter().filter(|(onset, end)| *onset < to && *end > from).collect();
            assert!(!mine.is_empty(), "{voice}, noise {peak}: {sentence:?} is not heard");
            late.push(mine[0].0.saturating_sub(from) * 1000 / SECOND);
            early.push(mine[mine.len() - 1].1.abs_diff(to) * 1000 / SECOND);
        }
        println!("{voice}, noise {peak}: onsets late by {late:?} ms, ends off by {early:?} ms");
        assert!(
            late.iter().all(|ms| *ms < 250),
            "{voice}, noise {peak}: onsets late by {late:?} ms"
        );
        assert!(
            early.iter().all(|ms| *ms < 350),
            "{voice}, noise {peak}: ends off by {early:?} ms"
        );
        let outside = found
            .iter()
            .filter(|(onset, end)| truth.iter().all(|t| *onset >= t.to || *end <= t.from))
            .count();
        assert_eq!(outside, 0, "{voice}, noise {peak}: speech is reported in silence");

        // Text.
        let (sender, receiver) = unbounded();
        let mut stream = pool
            .open(Sink::new(move |event| sender.send(event).unwrap_or_default()))
            .unwrap_or_else(|e| panic!("{e}"));
        let mut texts = vec![String::new(); truth.len()];
        for &(onset, end) in &found {
            stream.start_speech();
            for frame in sound[onset.saturating_sub(PRE_ROLL)..(end + SECOND / 4).min(sound.len())]
                .chunks(320)
            {
                stream.push_audio(frame);
            }
            stream.end_speech();
            let text = loop {
                match receiver.recv_timeout(common::HANG_TIMEOUT).expect("an answer") {
                    Event::Final(text) => break text,
                    Event::Interim(_) => {}
                    other => panic!("{other:?}"),
                }
            };
            if let Some(i) = truth.iter().position(|t| onset < t.to && end > t.from) {
                texts[i] = format!("{} {text}", texts[i]);
            }
        }
        let wrong: usize =
            truth.iter().zip(&texts).map(|(t, text)| common::word_errors(t.sentence, text)).sum();
        let words: usize = truth.iter().map(|t| t.sentence.split_whitespace().count()).sum();
        println!("{voice}, noise {peak}: {wrong} of {words} words wrong in {texts:?}");
        assert!(
            wrong * 5 <= words,
            "{voice}, noise {peak}: {wrong} of {words} words are wrong: {texts:?}"
        );
    }
}
