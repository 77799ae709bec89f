//! What all types have in common, and helpers.

use super::*;

pub(super) const MONO_MP3: &[u8] = include_bytes!("../../fixtures/mono-cbr.mp3");
pub(super) const STEREO_MP3: &[u8] = include_bytes!("../../fixtures/stereo-vbr.mp3");
pub(super) const MONO_VORBIS: &[u8] = include_bytes!("../../fixtures/mono.ogg");
pub(super) const STEREO_VORBIS: &[u8] = include_bytes!("../../fixtures/stereo.ogg");
/// Frequency of the tone in all files, in Hz.
const FREQUENCY: f64 = 440.0;

/// The sample rate and the sound of a file.
pub(super) fn sound_of(file: &[u8]) -> Result<(u32, Vec<i16>), Refusal> {
    let (rate, samples, refusal) = sound_and_refusal(file);
    refusal.map_or(Ok((rate, samples)), Err)
}

/// The sample rate, the sound, and the refusal that follows it. The rate is 0 if none was told.
pub(super) fn sound_and_refusal(file: &[u8]) -> (u32, Vec<i16>, Option<Refusal>) {
    let mut stream = Vec::new();
    decode_audio(file, &mut stream).unwrap();
    let refused = |error| match error {
        AudioError::Refused(refusal) => Some(refusal),
        AudioError::Read(error) => panic!("{error}"),
    };
    let mut samples = Vec::new();
    let mut reader = match PcmReader::new(&stream[..]) {
        Ok(reader) => reader,
        Err(error) => return (0, samples, refused(error)),
    };
    loop {
        match reader.next_block() {
            Ok(Some(block)) => samples.extend(block),
            Ok(None) => return (reader.rate(), samples, None),
            Err(error) => return (reader.rate(), samples, refused(error)),
        }
    }
}

/// Whether the decoder reports that parts of a file are missing.
pub(super) fn is_incomplete(file: &[u8]) -> bool {
    let mut stream = Vec::new();
    decode_audio(file, &mut stream).unwrap();
    let mut reader = PcmReader::new(&stream[..]).unwrap();
    while reader.next_block().unwrap().is_some() {}
    reader.is_incomplete()
}

/// Samples of the tone from -1 to 1, with the amplitude 0.5.
pub(super) fn tone(rate: u32, count: usize) -> impl Iterator<Item = f64> {
    let step = std::f64::consts::TAU * FREQUENCY / f64::from(rate);
    (0..count).map(move |n| 0.5 * (step * n as f64).sin())
}

/// Fails unless the sound is that tone. `tolerance` is the share of amplitude that may be
/// something else.
pub(super) fn assert_tone(name: &str, rate: u32, sound: &[i16], tolerance: f64) {
    let expected: Vec<f64> = tone(rate, sound.len()).collect();
    let energy = |samples: &mut dyn Iterator<Item = f64>| samples.map(|s| s * s).sum::<f64>();
    let heard = sound.iter().map(|s| f64::from(*s) / 32_768.0);
    let wrong = energy(&mut heard.zip(&expected).map(|(heard, expected)| heard - expected));
    let share = (wrong / energy(&mut expected.iter().copied())).sqrt();
    assert!(share < tolerance, "{name}: {share:.4} of the amplitude is not the tone");
}

/// Numbers that look random, always the same.
pub(super) fn noise(count: usize, mut state: u64) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn a_file_of_another_type_is_refused() {
    let others: [&[u8]; 6] = [
        b"Open daily.",
        b"fLaC\0\0\0\x22",
        b"RIFF\x04\0\0\0AVI ",
        b"\0\0\0\x20ftypM4A ",
        b"R",
        b"\xff\x00",
    ];
    for other in others {
        assert_eq!(sound_of(other), Err(Refusal::UnknownType), "{other:?}");
    }
    assert_eq!(sound_of(b""), Err(Refusal::NoSound));
    let large = vec![0; MAX_FILE_BYTES as usize + 1];
    assert_eq!(sound_of(&large), Err(Refusal::TooLarge));
}

#[test]
fn noise_in_the_form_of_each_type_is_refused() {
    for begin in
        [&b"RIFF\xff\xff\xff\xffWAVE"[..], b"OggS", b"ID3\x04\0\0\0\0\x01\x05", b"\xff\xfb"]
    {
        for seed in 0..50 {
            let file = [begin, &noise(4_000, seed)].concat();
            assert_eq!(sound_of(&file), Err(Refusal::Damaged), "{begin:?}, seed {seed}");
        }
    }
}

#[test]
fn a_file_that_is_cut_off_gives_what_is_there_or_is_refused() {
    for file in [MONO_MP3, STEREO_MP3, MONO_VORBIS, STEREO_VORBIS] {
        let (rate, whole) = sound_of(file).unwrap();
        for length in (2..file.len()).step_by(7) {
            let (cut_rate, cut, refusal) = sound_and_refusal(&file[..length]);
            match refusal {
                None => {
                    assert_eq!(cut_rate, rate);
                    assert!(cut.len() <= whole.len() + 2_000, "{length}: {} samples", cut.len());
                }
                Some(refusal) => assert!(
                    matches!(refusal, Refusal::Damaged | Refusal::NoSound | Refusal::UnknownType),
                    "{length}: {refusal}"
                ),
            }
        }
    }
}

#[test]
fn a_damaged_byte_ends_no_process() {
    for file in [MONO_MP3, STEREO_MP3, MONO_VORBIS, STEREO_VORBIS] {
        for at in (0..file.len()).step_by(3) {
            let mut damaged = file.to_vec();
            damaged[at] ^= 0x55;
            let (_, samples, _) = sound_and_refusal(&damaged);
            assert!(samples.len() < 60_000, "byte {at}: {} samples", samples.len());
        }
    }
}

#[test]
fn each_sentence_is_recognized() {
    for refusal in Refusal::ALL {
        assert_eq!(Refusal::from_sentence(refusal.to_string().as_bytes()), refusal);
    }
    assert_eq!(Refusal::from_sentence(b"send us money"), Refusal::Damaged);
}
