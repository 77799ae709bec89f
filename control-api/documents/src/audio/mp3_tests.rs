use crate::audio::Refusal;
use crate::audio::tests::{MONO_MP3, STEREO_MP3, assert_tone, is_incomplete, noise, sound_of};

/// A tag of ID3v2 with this content.
fn id3(content: &[u8]) -> Vec<u8> {
    let length = [21, 14, 7, 0].map(|shift| (content.len() >> shift) as u8 & 0x7F);
    [b"ID3\x04\0\0", &length[..], content].concat()
}

#[test]
fn an_mp3_gives_its_sound_without_the_delay_of_the_encoder() {
    for (name, file, rate) in [("mono", MONO_MP3, 24_000), ("stereo", STEREO_MP3, 44_100)] {
        let (decoded_rate, sound) = sound_of(file).unwrap();
        assert_eq!(decoded_rate, rate);
        let length = rate as usize / 2;
        let padding = sound.len() - length;
        assert!(padding < rate as usize / 10, "{name}: {} samples", sound.len());
        // The encoders fade in and out.
        assert_tone(name, rate, &sound[..length], 0.08);
    }
}

#[test]
fn tags_are_skipped() {
    let (rate, sound) = sound_of(MONO_MP3).unwrap();
    // A picture may contain what looks like frames.
    let picture = MONO_MP3.repeat(4_000);
    let v1 = [&b"TAG"[..], &[b'x'; 125]].concat();
    let ape = [b"APETAGEX\xd0\x07\0\0\x38\0\0\0\x01\0\0\0\0\0\0\0", &[0u8; 8][..], &[0xFF; 24]];
    let ape =
        [&ape.concat()[..], b"APETAGEX\xd0\x07\0\0\x38\0\0\0\x01\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\0"];
    for (name, file) in [
        ("ID3v2", [&id3(&picture), MONO_MP3].concat()),
        ("ID3v2 and ID3v1", [&id3(b"x"), MONO_MP3, &v1].concat()),
        ("APE", [MONO_MP3, &ape.concat()].concat()),
    ] {
        let (tagged_rate, tagged) = sound_of(&file).unwrap();
        assert_eq!(tagged_rate, rate, "{name}");
        assert!(tagged.starts_with(&sound), "{name}: {} samples", tagged.len());
        assert!(tagged.len() <= sound.len() + 1_152, "{name}: {} samples", tagged.len());
    }
    // A tag that is longer than the file, and one with nothing behind it.
    let mut longer = id3(b"");
    longer[6..10].fill(0x7F);
    for file in [[&longer, MONO_MP3].concat(), id3(&picture)] {
        assert_eq!(sound_of(&file), Err(Refusal::Damaged));
    }
}

#[test]
fn a_number_of_frames_that_lies_is_not_believed() {
    let sound = sound_of(MONO_MP3).unwrap();
    let at = MONO_MP3.windows(4).position(|four| four == b"Info").unwrap() + 8;
    for frames in [0, 1, u32::MAX] {
        let mut file = MONO_MP3.to_vec();
        file[at..at + 4].copy_from_slice(&frames.to_be_bytes());
        assert!(sound_of(&file).unwrap() == sound, "{frames} frames");
    }
}

#[test]
fn parts_that_were_joined_are_all_heard() {
    let (rate, sound) = sound_of(MONO_MP3).unwrap();
    let joined = [MONO_MP3, &id3(b"x"), MONO_MP3, MONO_MP3].concat();
    let (_, three) = sound_of(&joined).unwrap();
    assert!(three.len() >= 3 * sound.len(), "{} and {}", three.len(), sound.len());
    assert_eq!(rate, 24_000);
    // The rate is that of the first part, so another one would change the voice.
    let mixed = [MONO_MP3, STEREO_MP3].concat();
    assert_eq!(sound_of(&mixed), Err(Refusal::RateChange));
}

#[test]
fn noise_between_frames_is_skipped() {
    let (_, sound) = sound_of(MONO_MP3).unwrap();
    let file = [MONO_MP3, &noise(3_000, 7), MONO_MP3].concat();
    let (_, with_noise) = sound_of(&file).unwrap();
    assert!(with_noise.len() >= 2 * sound.len() - 2_000, "{} samples", with_noise.len());
}

#[test]
fn missing_and_damaged_parts_are_reported() {
    let long = MONO_MP3.repeat(20);
    for (name, file) in [
        ("mono", MONO_MP3.to_vec()),
        ("stereo", STEREO_MP3.to_vec()),
        ("joined", [MONO_MP3, &id3(b"x"), MONO_MP3].concat()),
        ("a tag", [&id3(&noise(30_000, 3)), MONO_MP3].concat()),
    ] {
        assert!(!is_incomplete(&file), "{name}");
    }
    for (name, file) in [
        ("cut off", MONO_MP3[..MONO_MP3.len() / 2].to_vec()),
        ("cut off, stereo", STEREO_MP3[..STEREO_MP3.len() / 2].to_vec()),
        ("half noise", [&long[..], &noise(long.len(), 5)].concat()),
    ] {
        assert!(sound_of(&file).is_ok() && is_incomplete(&file), "{name}");
    }
}

#[test]
fn more_than_thirty_minutes_of_frames_are_refused_at_once() {
    // Half a second each.
    let long = MONO_MP3.repeat(2 * 60 * 31);
    assert_eq!(sound_of(&long), Err(Refusal::TooLong));
}

#[test]
fn another_layer_is_refused() {
    // Frames of layer II with 32 kbit/s and 44.1 kHz.
    let mut frame = [0; 104];
    frame[..4].copy_from_slice(b"\xff\xfd\x10\xc0");
    assert_eq!(sound_of(&frame.repeat(20)), Err(Refusal::UnknownType));
}
