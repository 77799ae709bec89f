//! The turn model compared with the reference code: its features, and the network's output for them
//! (`turn/expected.py`).
#![allow(clippy::print_stdout, clippy::print_stderr)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use std::collections::BTreeMap;
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use models::turn::{
    BUFFER_SAMPLES, Config, FRAMES, FeatureExtractor, MEL_BANDS, SmartTurn, TurnModel, TurnRequest,
};
use models::{Handle, Sink};
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    sound: String,
    /// P(turn is over): minimum and maximum for features that differ by a hundred-thousandth.
    p: [f32; 2],
    /// Complete frames by their index.
    frames: BTreeMap<usize, Vec<f32>>,
    /// Mean of each band.
    bands: Vec<f64>,
    /// Mean of each frame.
    means: Vec<f64>,
}

fn expected() -> Vec<Expected> {
    serde_json::from_str(include_str!("turn/expected.json")).unwrap()
}

/// The sounds of `turn/expected.py`.
fn sounds() -> BTreeMap<&'static str, Vec<i16>> {
    let whole = common::sound::test_signal();
    let mut click = vec![0; 16_002];
    click[8_000..8_002].copy_from_slice(&[i16::MAX, i16::MIN]);
    BTreeMap::from([
        ("one sentence", whole[12_800..33_600].to_vec()),
        ("eight seconds", whole[..BUFFER_SAMPLES].to_vec()),
        ("hardly audible", whole[12_800..60_000].iter().map(|x| x >> 7).collect()),
        ("more than eight seconds", whole),
        ("a click", click),
        ("silence", vec![0; 16_000]),
    ])
}

#[test]
fn features_equal_the_reference_within_a_thousandth() {
    let (sounds, mut features) = (sounds(), FeatureExtractor::new());
    let mut out = vec![0.0; MEL_BANDS * FRAMES];
    let mut worst = 0.0f64;
    let expected = expected();
    assert_eq!(expected.len(), sounds.len());
    for case in &expected {
        features.extract(&sounds[case.sound.as_str()], &mut out);
        let at = |band: usize, frame: usize| f64::from(out[band * FRAMES + frame]);
        let mut compare = |what: &str, found: f64, wanted: f64| {
            let difference = (found - wanted).abs();
            worst = worst.max(difference);
            assert!(difference < 1e-3, "{}, {what}: {found} is not {wanted}", case.sound);
        };
        assert!(
            case.frames.len() == 9 && case.bands.len() == MEL_BANDS && case.means.len() == FRAMES
        );
        for (frame, bands) in &case.frames {
            assert_eq!(bands.len(), MEL_BANDS);
            for (band, wanted) in bands.iter().enumerate() {
                compare(
                    &format!("band {band} of frame {frame}"),
                    at(band, *frame),
                    f64::from(*wanted),
                );
            }
        }
        for (band, wanted) in case.bands.iter().enumerate() {
            let mean = (0..FRAMES).map(|frame| at(band, frame)).sum::<f64>() / FRAMES as f64;
            compare(&format!("mean of band {band}"), mean, *wanted);
        }
        for (frame, wanted) in case.means.iter().enumerate() {
            let mean = (0..MEL_BANDS).map(|band| at(band, frame)).sum::<f64>() / MEL_BANDS as f64;
            compare(&format!("mean of frame {frame}"), mean, *wanted);
        }
    }
    let started = Instant::now();
    for _ in 0..20 {
        features.extract(&sounds["eight seconds"], &mut out);
    }
    println!(
        "features differ by {worst:.1e} at most; {:.2} ms each",
        started.elapsed().as_secs_f64() * 50.0
    );
}

/// The real network. `None`, with a message, if the setup could not install it: it is optional.
fn smart_turn() -> Option<SmartTurn> {
    let found = SmartTurn::open(Config { dir: common::models_dir(), threads: 1 });
    found
        .inspect_err(|why| {
            eprintln!("LEFT OUT, without the turn model nothing is proved here: {why}")
        })
        .ok()
}

/// Requests the probability for a sound.
fn predict(model: &SmartTurn, sound: &[i16]) -> (Handle, Receiver<f32>) {
    let (answer, answered) = unbounded();
    let question = TurnRequest { audio: sound.to_vec(), transcript: String::new() };
    (model.predict(question, Sink::new(move |p| answer.send(p).unwrap())), answered)
}

/// Whether the output matches the reference, as closely as two rounding networks can.
fn is_expected(p: f32, case: &Expected) -> bool {
    (case.p[0] - 0.05..=case.p[1] + 0.05).contains(&p)
}

#[test]
fn probabilities_are_those_of_the_reference_one_by_one_and_together() {
    let Some(model) = smart_turn() else { return };
    model.prepare().unwrap();
    let (sounds, expected) = (sounds(), expected());
    let mut spent = Vec::new();
    for case in &expected {
        let started = Instant::now();
        let (_handle, answered) = predict(&model, &sounds[case.sound.as_str()]);
        let p = answered.recv().unwrap();
        spent.push(started.elapsed().as_secs_f64() * 1e3);
        assert!(is_expected(p, case), "{}: {p} is not within {:?}", case.sound, case.p);
    }
    // The first request waited for the network to load.
    println!("loaded and answered in {:.0} ms, then in {:.0?} ms each", spent[0], &spent[1..]);
    let started = Instant::now();
    let pending: Vec<_> =
        expected.iter().map(|case| (predict(&model, &sounds[case.sound.as_str()]), case)).collect();
    for ((_handle, answered), case) in &pending {
        let p = answered.recv().unwrap();
        assert!(
            is_expected(p, case),
            "{} among others: {p} is not within {:?}",
            case.sound,
            case.p
        );
    }
    println!("{} at once in {:.0} ms", pending.len(), started.elapsed().as_secs_f64() * 1e3);
}
