use crate::audio::Refusal;
use crate::audio::tests::{assert_tone, is_incomplete, sound_of, tone};

/// Format numbers of the chunk `fmt `.
const PCM: u16 = 1;
const ADPCM: u16 = 2;
const FLOAT: u16 = 3;
const ALAW: u16 = 6;
const EXTENSIBLE: u16 = 0xFFFE;

fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_le_bytes();
    let pad: &[u8] = if content.len() % 2 == 1 { b"\0" } else { b"" };
    [&name[..], &length, content, pad].concat()
}

fn format(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
    let frame_bytes = channels * bits / 8;
    let mut format = Vec::new();
    format.extend(tag.to_le_bytes());
    format.extend(channels.to_le_bytes());
    format.extend(rate.to_le_bytes());
    format.extend((rate * u32::from(frame_bytes)).to_le_bytes());
    format.extend(frame_bytes.to_le_bytes());
    format.extend(bits.to_le_bytes());
    format
}

fn file_of(chunks: &[Vec<u8>]) -> Vec<u8> {
    let content = [&b"WAVE"[..], &chunks.concat()].concat();
    chunk(b"RIFF", &content)
}

fn wav(tag: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    file_of(&[chunk(b"fmt ", &format(tag, channels, rate, bits)), chunk(b"data", data)])
}

/// A file of 16 bits.
fn wav_of(channels: u16, rate: u32, samples: &[i16]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
    wav(PCM, channels, rate, 16, &data)
}

/// A sample from -1 to 1 in the file's encoding.
fn encode(tag: u16, bits: u16, sample: f64) -> Vec<u8> {
    match (tag, bits) {
        (FLOAT, _) => (sample as f32).to_le_bytes().to_vec(),
        (_, 8) => vec![(sample * 127.0 + 128.0).round() as u8],
        _ => {
            let full_scale = f64::from(2u32.pow(u32::from(bits) - 1));
            let number = (sample * full_scale).round() as i32;
            number.to_le_bytes()[..usize::from(bits / 8)].to_vec()
        }
    }
}

#[test]
fn each_encoding_gives_the_same_sound() {
    for (tag, bits) in [(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32)] {
        for channels in [1, 2] {
            for rate in [8_000, 22_050, 44_100, 96_000] {
                let data: Vec<u8> = tone(rate, 4_000)
                    .flat_map(|s| encode(tag, bits, s).repeat(usize::from(channels)))
                    .collect();
                let name = format!("{tag}, {bits} bits, {channels} channels, {rate} Hz");
                let (decoded_rate, sound) =
                    sound_of(&wav(tag, channels, rate, bits, &data)).unwrap();
                assert_eq!((decoded_rate, sound.len()), (rate, 4_000), "{name}");
                assert_tone(&name, rate, &sound, if bits == 8 { 0.02 } else { 0.001 });
            }
        }
    }
}

#[test]
fn an_extensible_format_is_read() {
    // Number of bytes, valid bits, speakers, and the identifier of PCM or FLOAT.
    let extension = |tag: u16, bits: u16| {
        let identifier = b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71";
        let numbers = [22, bits, 3, 0, tag].map(u16::to_le_bytes).concat();
        [&numbers[..], identifier].concat()
    };
    for (tag, bits) in [(PCM, 16), (PCM, 24), (FLOAT, 32)] {
        let data: Vec<u8> = tone(48_000, 900).flat_map(|s| encode(tag, bits, s)).collect();
        let format = [format(EXTENSIBLE, 1, 48_000, bits), extension(tag, bits)].concat();
        let file = file_of(&[chunk(b"fmt ", &format), chunk(b"data", &data)]);
        let (_, sound) = sound_of(&file).unwrap();
        assert_eq!(sound.len(), 900);
        assert_tone("extensible", 48_000, &sound, 0.001);
    }
    let format = [format(EXTENSIBLE, 1, 48_000, 16), extension(ALAW, 16)].concat();
    let file = file_of(&[chunk(b"fmt ", &format), chunk(b"data", &[0; 8])]);
    assert_eq!(sound_of(&file), Err(Refusal::Encoding));
}

#[test]
fn stereo_is_mixed_by_the_mean() {
    let file = wav_of(2, 16_000, &[1_000, 3_000, -7, -8, i16::MAX, i16::MAX, i16::MIN, i16::MIN]);
    assert_eq!(sound_of(&file), Ok((16_000, vec![2_000, -7, i16::MAX, i16::MIN])));
}

#[test]
fn numbers_outside_the_scale_are_limited_and_nan_is_silence() {
    let samples = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1.5, f32::MIN_POSITIVE, 0.25];
    let data: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
    let limited = vec![0, i16::MAX, i16::MIN, i16::MAX, i16::MIN, 0, 8_192];
    assert_eq!(sound_of(&wav(FLOAT, 1, 8_000, 32, &data)), Ok((8_000, limited)));
}

#[test]
fn a_length_that_lies_is_not_believed() {
    let honest = wav_of(1, 8_000, &[1, 2, 3]);
    let sound = Ok((8_000, vec![1, 2, 3]));
    assert_eq!(sound_of(&honest), sound);
    // A program that wrote to a pipe, and one that was ended, cannot know the lengths.
    for length in [u32::MAX, u32::MAX - 1, 0, 7, 1 << 31] {
        let mut file = honest.clone();
        file[40..44].copy_from_slice(&length.to_le_bytes());
        for riff_length in [0, 1, u32::MAX] {
            file[4..8].copy_from_slice(&u32::to_le_bytes(riff_length));
            assert_eq!(sound_of(&file), sound, "{length} and {riff_length}");
            assert_eq!(is_incomplete(&file), length == 7, "{length}");
        }
    }
    // A part of a sample is left out.
    let cut = &honest[..honest.len() - 1];
    assert_eq!(sound_of(cut), Ok((8_000, vec![1, 2])));
    assert!(is_incomplete(cut) && !is_incomplete(&honest));
    let stereo = wav_of(2, 8_000, &[1, 3, 5, 5]);
    assert_eq!(sound_of(&stereo[..stereo.len() - 2]), Ok((8_000, vec![2])));
}

#[test]
fn other_chunks_are_skipped() {
    let format = chunk(b"fmt ", &format(PCM, 1, 8_000, 16));
    let data = chunk(b"data", &[5, 0]);
    let sound = Ok((8_000, vec![5]));
    let tags = chunk(b"LIST", &vec![b'x'; (8 << 20) + 1]);
    let count = chunk(b"fact", &[0; 12]);
    for chunks in [
        vec![tags.clone(), format.clone(), count, data.clone(), tags.clone()],
        vec![format.clone(), chunk(b"JUNK", b"odd"), data.clone()],
        vec![format.clone(), chunk(b"JUNK", b""), data.clone(), chunk(b"data", &[9, 9])],
    ] {
        assert_eq!(sound_of(&file_of(&chunks)), sound);
    }
    let mut endless = tags;
    endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    for chunks in [
        vec![],
        vec![data.clone()],
        vec![data.clone(), format.clone()],
        vec![format.clone()],
        vec![format.clone(), endless, data.clone()],
        vec![chunk(b"fmt ", &[1, 0]), data],
    ] {
        assert_eq!(sound_of(&file_of(&chunks)), Err(Refusal::Damaged));
    }
}

#[test]
fn a_format_that_cannot_be_used_is_refused() {
    for (tag, channels, rate, bits, refusal) in [
        (PCM, 1, 7_999, 16, Refusal::Rate),
        (PCM, 1, 96_001, 16, Refusal::Rate),
        (PCM, 1, 0, 16, Refusal::Rate),
        (PCM, 3, 8_000, 16, Refusal::Channels),
        (PCM, 255, 8_000, 8, Refusal::Channels),
        (PCM, 0, 8_000, 16, Refusal::Damaged),
        (PCM, 1, 8_000, 64, Refusal::Encoding),
        (PCM, 2, 8_000, 12, Refusal::Encoding),
        (FLOAT, 1, 8_000, 64, Refusal::Encoding),
        (FLOAT, 1, 8_000, 16, Refusal::Encoding),
        (ADPCM, 1, 8_000, 8, Refusal::Encoding),
        (ALAW, 1, 8_000, 8, Refusal::Encoding),
    ] {
        let file = wav(tag, channels, rate, bits, &[0; 24]);
        assert_eq!(sound_of(&file), Err(refusal), "{tag} {channels} {rate} {bits}");
    }
    assert_eq!(sound_of(&wav_of(1, 8_000, &[])), Err(Refusal::NoSound));
}

#[test]
fn thirty_minutes_are_decoded_and_not_more() {
    let data = vec![128; 30 * 60 * 8_000 + 1];
    let (_, sound) = sound_of(&wav(PCM, 1, 8_000, 8, &data[1..])).unwrap();
    assert_eq!(sound.len(), 30 * 60 * 8_000);
    assert_eq!(sound_of(&wav(PCM, 1, 8_000, 8, &data)), Err(Refusal::TooLong));
}
