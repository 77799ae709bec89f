use std::io;

use super::*;

/// What a child writes for these samples at 8 kHz.
fn stream_of(samples: &[i16]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut writer = Writer::new(&mut stream);
    writer.set_rate(8_000).unwrap();
    samples.iter().for_each(|sample| assert!(writer.push(*sample).is_ok()));
    writer.finish().unwrap();
    stream
}

/// The samples of a stream, and how it ends.
fn read(stream: &[u8]) -> (Vec<i16>, Result<(), AudioError>) {
    let mut samples = Vec::new();
    let ended = PcmReader::new(stream).and_then(|mut reader| {
        while let Some(block) = reader.next_block()? {
            samples.extend(block);
        }
        assert!(reader.next_block()?.is_none());
        Ok(())
    });
    (samples, ended)
}

fn refusal(stream: &[u8]) -> Option<Refusal> {
    match read(stream).1 {
        Err(AudioError::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}

/// A stream with this rate and these blocks, as a child that was taken over could write it.
fn hostile(rate: u32, blocks: &[(u32, usize)]) -> Vec<u8> {
    let mut stream = [PCM_MARKER, &rate.to_le_bytes()].concat();
    for (count, samples) in blocks {
        stream.extend(count.to_le_bytes());
        stream.extend(vec![0; 2 * samples]);
    }
    stream
}

#[test]
fn the_protocol_is_as_documented() {
    assert_eq!(
        stream_of(&[1, -2]),
        b"\0visavis-pcm\0\x40\x1f\0\0\x02\0\0\0\x01\0\xfe\xff\0\0\0\0\0\0\0\0"
    );
    let mut stream = Vec::new();
    Writer::new(&mut stream).refuse(Refusal::Damaged).unwrap();
    assert_eq!(stream, b"\0visavis-why\0the audio is damaged");
    assert_eq!(refusal(&stream), Some(Refusal::Damaged));
}

#[test]
fn any_samples_arrive_as_they_were_written() {
    // They look like marks and counts.
    let mut samples = vec![-1, -1, 0, 0, i16::from_le_bytes(*b"\0v")];
    samples.extend((0..3 * BLOCK_SAMPLES).map(|n| n as i16));
    let (arrived, ended) = read(&stream_of(&samples));
    assert!(ended.is_ok());
    assert_eq!(arrived, samples);
}

#[test]
fn a_stream_that_was_cut_off_is_never_complete() {
    let stream = stream_of(&[5; BLOCK_SAMPLES + 3]);
    for length in (0..stream.len()).rev().take(20).chain(0..40) {
        assert_eq!(refusal(&stream[..length]), Some(Refusal::Limits), "{length} bytes");
    }
}

#[test]
fn a_refusal_after_sound_is_told_from_sound() {
    let mut stream = Vec::new();
    let mut writer = Writer::new(&mut stream);
    writer.set_rate(48_000).unwrap();
    for _ in 0..=BLOCK_SAMPLES {
        assert!(writer.push(9).is_ok());
    }
    writer.refuse(Refusal::RateChange).unwrap();
    let (samples, ended) = read(&stream);
    assert_eq!(samples, [9; BLOCK_SAMPLES]);
    assert!(matches!(ended, Err(AudioError::Refused(Refusal::RateChange))));
}

#[test]
fn a_child_that_was_taken_over_is_limited() {
    for (stream, expected) in [
        (b"HTTP/1.1 200 OK\r\n".to_vec(), Refusal::Damaged),
        (hostile(7_999, &[]), Refusal::Rate),
        (hostile(u32::MAX, &[]), Refusal::Rate),
        (hostile(8_000, &[(65_537, 65_537), (0, 0)]), Refusal::Damaged),
        (hostile(8_000, &[(u32::MAX - 1, 9)]), Refusal::Damaged),
        (hostile(8_000, &[(65_536, 65_536); 220]), Refusal::TooLong),
        ([ERROR_MARKER, &[b'x'; 5_000]].concat(), Refusal::Damaged),
        ([ERROR_MARKER, b"\xff\xfe"].concat(), Refusal::Damaged),
    ] {
        assert_eq!(refusal(&stream), Some(expected), "{:?}", &stream[..15]);
    }
    assert!(read(&hostile(8_000, &[(65_536, 65_536), (0, 0), (0, 0)])).1.is_ok());
}

#[test]
fn a_pipe_that_fails_is_no_refusal() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::PermissionDenied.into())
        }
    }
    assert!(matches!(PcmReader::new(Broken), Err(AudioError::Read(_))));
}
