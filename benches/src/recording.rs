//! The recording of the load generator's callers: its utterances, as a call receives them and as an
//! agent could speak them.

use engine::speak::encode::{Encoder, FRAME_SAMPLES_48K};
use models::tts::Upsampler;

/// Sample rate of [`utterances`], in Hz.
pub const SAMPLE_RATE: usize = 16_000;
/// Bytes of a WAV header without optional chunks.
const WAV_HEADER_SIZE: usize = 44;

/// The utterances of the recording, 16 kHz mono, each from its true onset to its true end, in whole
/// frames of 20 ms.
///
/// # Panics
/// The recording or its description is damaged.
#[must_use]
pub fn utterances() -> Vec<Vec<i16>> {
    let wav = include_bytes!("../load/workload/user.wav");
    assert_eq!(
        &wav[WAV_HEADER_SIZE - 8..WAV_HEADER_SIZE - 4],
        b"data",
        "the header of the recording has an unexpected length"
    );
    let samples: Vec<i16> =
        wav[WAV_HEADER_SIZE..].as_chunks::<2>().0.iter().map(|b| i16::from_le_bytes(*b)).collect();
    let description: serde_json::Value =
        serde_json::from_str(include_str!("../load/workload/workload.json")).expect("it is JSON");
    let at = |utterance: &serde_json::Value, key: &str| {
        (utterance[key].as_f64().expect("a time in seconds") * SAMPLE_RATE as f64) as usize
    };
    let all = description["utterances"].as_array().expect("a list");
    all.iter()
        .map(|utterance| {
            let mut utterance_samples =
                samples[at(utterance, "onset_s")..at(utterance, "end_s")].to_vec();
            utterance_samples.resize(utterance_samples.len().next_multiple_of(SAMPLE_RATE / 50), 0);
            utterance_samples
        })
        .collect()
}

/// The utterances one after another, as frames of 20 ms at 48 kHz: about 17 s of speech without a
/// pause.
///
/// # Panics
/// As [`utterances`].
#[must_use]
pub fn speech_frames() -> Vec<[i16; FRAME_SAMPLES_48K]> {
    let mut upsampler = Upsampler::new(SAMPLE_RATE as u32).expect("a rate of voices");
    let mut samples = upsampler.push(&utterances().concat());
    samples.extend(upsampler.finish());
    samples.as_chunks::<FRAME_SAMPLES_48K>().0.to_vec()
}

/// Opus packets of [`speech_frames`], encoded with in-band FEC, as browsers do.
///
/// # Panics
/// As [`utterances`], and if the encoder is not available.
#[must_use]
pub fn opus_packets() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new().expect("an encoder");
    encoder.on_packet_loss(0.1).expect("it codes for loss");
    speech_frames().iter().map(|block| encoder.encode(block).expect("a packet").to_vec()).collect()
}
