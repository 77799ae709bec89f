//! Videos of an avatar, read by libwebm.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::io::{Cursor, Write};
use std::time::Duration;

use bytes::Bytes;
use recording::film::{FilmWriter, Summary};
use recording::{Frame, Size};
use recording_tests::libwebm::{Block, COMPLETE, File, Reader};

const SIZE: Size = Size { width: 720, height: 1280 };
const SOUND: i32 = 1;
const VIDEO: i32 = 3;
/// Samples of 40 ms.
const STEP: usize = 1_920;

/// Writes pictures every 40 ms, of which some are not there as if nothing moved, and the sound
/// between them in pieces of `piece` samples.
fn write(seconds: usize, sound_samples: usize, piece: usize) -> (Vec<u8>, Summary) {
    let mut out = Cursor::new(Vec::new());
    let mut film = FilmWriter::new(&mut out, SIZE).unwrap();
    let tone = |n: usize| ((n as f32 * 0.05).sin() * 9_000.0) as i16;
    let sound: Vec<i16> = (0..sound_samples).map(tone).collect();
    let mut sent = 0;
    for n in 0..seconds * 25 {
        let frame = match n {
            0 => Frame::Key,
            30 | 200 => Frame::Altref,
            _ => Frame::Picture,
        };
        let first = if frame == Frame::Key { 0x10 } else { 0x31 };
        if n == 0 || n % 7 != 3 {
            let data = Bytes::from(vec![first, n as u8, 0]);
            film.push_video(Duration::from_millis(n as u64 * 40), frame, &data);
        }
        let until = ((n + 1) * STEP).min(sound.len());
        for piece in sound[sent.min(until)..until].chunks(piece) {
            film.push_sound(piece).unwrap();
        }
        sent = until;
    }
    film.push_sound(&sound[sent..]).unwrap();
    let summary = film.finish().unwrap();
    out.flush().unwrap();
    (out.into_inner(), summary)
}

fn read(file: &[u8]) -> (File, Vec<Block>) {
    let mut reader = Reader::new(100_000);
    let (read, blocks) = reader.read_complete(file, i64::MAX);
    (read, blocks.to_vec())
}

#[test]
fn a_video_has_its_length_and_its_places_to_seek_to() {
    let samples = 21 * 48_000 + 100;
    let (file, summary) = write(21, samples, STEP);
    let (read, blocks) = read(&file);
    assert_eq!(read.status, COMPLETE);
    assert_eq!(summary.bytes, file.len() as u64);
    assert!(blocks.is_sorted_by_key(|block| block.milliseconds));
    let in_file = Duration::from_nanos(read.duration as u64);
    assert!(in_file.abs_diff(summary.duration) < Duration::from_millis(1), "{in_file:?}");
    let spoken = Duration::from_micros(samples as u64 * 1_000 / 48);
    assert!(summary.duration.abs_diff(spoken) < Duration::from_millis(20), "{summary:?}");
    let sound = blocks.iter().filter(|block| block.track == SOUND).count();
    assert!((sound as f64 * 0.02 - spoken.as_secs_f64()).abs() < 0.03, "{sound} packets");
    // The key frame, and a copy of it before a picture every five seconds.
    assert_eq!((read.cue_count, read.valid_cue_count), (5, 5));
    assert!(blocks.iter().any(|block| block.track == VIDEO));
}

#[test]
fn the_bytes_do_not_depend_on_the_pieces_of_the_sound() {
    let (whole, _) = write(6, 6 * 48_000, STEP);
    for piece in [1, 959, 961] {
        assert!(write(6, 6 * 48_000, piece).0 == whole, "pieces of {piece}");
    }
}

#[test]
fn a_silent_video_lasts_as_long_as_its_pictures() {
    let (file, summary) = write(2, 0, STEP);
    let (read, blocks) = read(&file);
    assert_eq!(read.status, COMPLETE);
    assert_eq!(summary.duration, Duration::from_secs(2));
    let sound = blocks.iter().filter(|block| block.track == SOUND).count();
    assert_eq!(sound, 101);
}
