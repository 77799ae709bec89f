//! The video of a recording: what was seen in the call, from each place that a player seeks to.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::Time;
use engine::show::{AvatarAnimator, Avatars};
use models::face::PoseSet;
use models::face::vp8::Decoder;
use models::tts::Phone;
use opus::{Application, Channels as OpusChannels, Encoder};
use recording::capture::{CaptureReader, CaptureWriter};
use recording::delivery::write;
use recording::{Channels, Frame, Packet, Size, Track};

/// Bit of the first byte of a VP8 frame that is shown (RFC 6386, 9.1).
const SHOW_FRAME: u8 = 0x10;
const FRAME_RATE: u32 = 25;

fn pose_set() -> Arc<PoseSet> {
    Arc::clone(&Avatars::built_in().unwrap().as_slice()[0].pose_set)
}

fn decoder(size: Size) -> Decoder {
    Decoder::new(size.width as usize, size.height as usize).unwrap()
}

/// A call of some seconds with pictures of all kinds. Returns its file and the pictures that the
/// client has seen.
fn call(seconds: u64) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut animator = AvatarAnimator::new(pose_set(), FRAME_RATE, 5);
    let size = animator.size();
    let (mut decoder, mut seen) = (decoder(size), Vec::new());
    let mut file = Vec::new();
    let mut writer = CaptureWriter::new(&mut file, Some(size)).unwrap();
    let mut opus = Encoder::new(48_000, OpusChannels::Mono, Application::Voip).unwrap();
    for n in 0..seconds * 50 {
        let now = Time::from_micros(n * 20_000);
        let at = Duration::from_millis(n * 20);
        let second = n / 50;
        let tone: Vec<i16> = (0..960)
            .map(|i| {
                let time = (n * 960 + i) as f64 / 48_000.0;
                let loud = if second % 4 == 2 { 9_000.0 } else { 0.0 };
                ((time * 440.0 * std::f64::consts::TAU).sin() * loud) as i16
            })
            .collect();
        let data = Bytes::from(opus.encode_vec(&tone, 1_500).unwrap());
        writer.push(Packet { at, track: Track::Agent, data }).unwrap();
        if n % 2 == 1 {
            continue;
        }
        // Speech in every fourth second, and a client that reloads the page.
        let segment = SegmentId(second as u32);
        if n % 50 == 0 {
            let speaks = second % 4 == 2;
            animator.set_state(
                if speaks { AgentState::Speaking } else { AgentState::Listening },
                false,
            );
            if speaks {
                let phones: Vec<Phone> = (1..9)
                    .map(|k| Phone::new(["aa", "m", "iy", "ow"][k % 4], k as f32 * 0.12))
                    .collect();
                animator.add_phones(segment, &phones);
            }
            if second % 11 == 7 {
                animator.request_key_frame();
            }
        }
        let position = (second % 4 == 2).then_some((segment, (n % 50) as f32 / 50.0));
        let Some(frame) = animator.next_frame(now, position) else { continue };
        seen.push(decoder.decode(&frame.payload).unwrap().bytes().to_vec());
        let (kind, data) = animator.finest(&frame);
        writer.push(Packet { at, track: Track::Video(kind), data }).unwrap();
    }
    writer.flush().unwrap();
    (file, seen)
}

fn deliver(capture: &[u8]) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    write(capture, &mut out, Channels::Mixed, |_| {}).unwrap();
    out.into_inner()
}

/// The frames of the video and whether each is shown.
fn frames(file: &[u8]) -> Vec<(Frame, bool, Bytes)> {
    let mut reader = CaptureReader::new(file).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        if let Track::Video(frame) = packet.track {
            frames.push((frame, packet.data[0] & SHOW_FRAME != 0, packet.data));
        }
    }
    frames
}

/// The pictures that a player shows that begins at this frame.
fn pictures(frames: &[(Frame, bool, Bytes)]) -> Vec<Vec<u8>> {
    let size = AvatarAnimator::new(pose_set(), FRAME_RATE, 5).size();
    let mut decoder = decoder(size);
    let mut pictures = Vec::new();
    for (_, is_shown, data) in frames {
        // The decoder returns no picture of a frame that is not shown.
        let picture = decoder.decode(data);
        if *is_shown {
            pictures.push(picture.unwrap().bytes().to_vec());
        }
    }
    pictures
}

#[test]
fn the_decoded_recording_is_what_was_seen() {
    let (capture, seen) = call(40);
    let delivered = deliver(&capture);
    if let Ok(folder) = std::env::var("VISAVIS_RECORDINGS") {
        std::fs::write(format!("{folder}/capture.webm"), &capture).unwrap();
        std::fs::write(format!("{folder}/delivered.webm"), &delivered).unwrap();
    }
    let frames = frames(&delivered);
    let pictures_of_file = pictures(&frames);
    assert_eq!(pictures_of_file.len(), seen.len());
    assert!(pictures_of_file.iter().zip(&seen).all(|(a, b)| a == b));
    // From each key frame on, the pictures are the same.
    let starts: Vec<usize> = (0..frames.len()).filter(|n| frames[*n].0 == Frame::Key).collect();
    assert!(starts.len() >= 8, "{starts:?}");
    for start in starts {
        let before = frames[..start].iter().filter(|(_, is_shown, _)| *is_shown).count();
        let from_here = pictures(&frames[start..]);
        assert!(from_here.iter().zip(&seen[before..]).all(|(a, b)| a == b), "from frame {start}");
    }
}
