//! Phone recognition for the lips, compared with the training script (`scripts/lips/train.py
//! numbers` wrote the expected numbers).

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use models::lips::{FeatureExtractor, MEL_BANDS, PhoneRecognizer};
use serde::Deserialize;

/// The script's results for [`common::sound::test_signal`], taken as samples at 48 kHz.
#[derive(Deserialize)]
struct Expected {
    /// Index of a frame, and its features.
    features: Vec<(usize, Vec<f32>)>,
    /// The phone of each frame.
    phones: String,
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("lips/expected.json")).unwrap()
}

#[test]
fn features_are_those_that_the_network_was_trained_on() {
    let mut features = FeatureExtractor::new();
    features.push(&common::sound::test_signal());
    let mut frames: Vec<[f32; MEL_BANDS]> = features.by_ref().collect();
    frames.extend(features.finish());
    assert_eq!(frames.len(), 204_800 / 480);
    let expected = expected();
    assert!(expected.features.len() >= 12);
    for (number, wanted) in expected.features {
        for (band, (found, wanted)) in frames[number].iter().zip(&wanted).enumerate() {
            assert!(
                (found - wanted).abs() < 1e-3,
                "frame {number}, band {band}: {found}, not {wanted}"
            );
        }
    }
}

#[test]
fn phones_are_those_that_the_script_finds() {
    let mut lips = PhoneRecognizer::new();
    let mut phones = lips.push(&common::sound::test_signal());
    phones.extend(lips.finish());
    let mut found = Vec::new();
    for phone in &phones {
        found.resize((phone.end * 100.0).round() as usize, phone.name.as_str());
    }
    let expected = expected();
    let wanted: Vec<&str> = expected.phones.split(' ').collect();
    assert_eq!(found.len(), wanted.len());
    assert!(
        wanted.iter().filter(|name| **name != wanted[0]).count() > 100,
        "the audio contains speech"
    );
    assert_eq!(found, wanted);
}
