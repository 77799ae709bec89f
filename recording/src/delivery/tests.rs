use std::io::Cursor;

use bytes::Bytes;
use opus::{Application, Encoder};

use super::*;
use crate::capture::CaptureWriter;
use crate::ebml::{children, read_element, uint};
use crate::webm::{flag, id, read_block};
use crate::{Frame, Size};

const SIZE: Size = Size { width: 64, height: 48 };

/// Packets of 20 ms: a tone of `frequency` during the seconds `sounds`, and silence.
fn voice(frequency: f64, seconds: usize, sounds: &[std::ops::Range<f64>]) -> Vec<Bytes> {
    let layout = opus::Channels::Mono;
    let mut encoder = Encoder::new(SAMPLE_RATE, layout, Application::Voip).unwrap();
    (0..seconds * 50)
        .map(|n| {
            let frame: Vec<i16> = (0..960)
                .map(|i| {
                    let time = (n * 960 + i) as f64 / f64::from(SAMPLE_RATE);
                    let sounds = sounds.iter().any(|range| range.contains(&time));
                    let value = (time * frequency * std::f64::consts::TAU).sin() * 8_000.0;
                    if sounds { value as i16 } else { 0 }
                })
                .collect();
            encoder.encode_vec(&frame, 1_500).unwrap().into()
        })
        .collect()
}

/// A call of 12 s: the agent sounds from 2 to 4 s, the user from 5 to 7 s.
fn capture() -> Vec<u8> {
    let agent = voice(440.0, 12, &[2.0..4.0]);
    let user = voice(880.0, 12, &[5.0..7.0]);
    let mut out = Vec::new();
    let mut writer = CaptureWriter::new(&mut out, Some(SIZE)).unwrap();
    let mut push = |at: u64, track, data: &Bytes| {
        let packet = Packet { at: Duration::from_millis(at), track, data: data.clone() };
        writer.push(packet).unwrap();
    };
    push(0, Track::Video(Frame::Key), &Bytes::from_static(&[0x10, 0, 0]));
    for (n, (agent, user)) in agent.iter().zip(&user).enumerate() {
        let at = n as u64 * 20;
        push(at, Track::Agent, agent);
        push(at, Track::User, user);
        if n % 2 == 1 {
            let frame = if n == 101 { Frame::Altref } else { Frame::Picture };
            push(at, Track::Video(frame), &Bytes::from(vec![0x31, n as u8, (n >> 8) as u8]));
        }
    }
    writer.flush().unwrap();
    out
}

struct Delivered {
    summary: Summary,
    file: Vec<u8>,
}

fn deliver(capture: &[u8], channels: Channels) -> Delivered {
    let mut file = Cursor::new(Vec::new());
    let mut reported = Duration::ZERO;
    let summary = write(capture, &mut file, channels, |time| {
        assert!(time >= reported);
        reported = time;
    });
    Delivered { summary: summary.unwrap(), file: file.into_inner() }
}

struct ReadBlock {
    track: u8,
    time: u64,
    flags: u8,
    data: Vec<u8>,
}

impl Delivered {
    /// The content of the segment.
    fn segment(&self) -> &[u8] {
        let mut input = &self.file[..];
        let header = read_element(&mut input).unwrap().unwrap();
        assert_eq!(header.id, id::EBML);
        input = &input[header.size.unwrap() as usize..];
        let segment = read_element(&mut input).unwrap().unwrap();
        assert_eq!((segment.id, segment.size), (id::SEGMENT, Some(input.len() as u64)));
        input
    }

    fn blocks(&self) -> Vec<ReadBlock> {
        let clusters = children(self.segment()).filter(|(id, _)| *id == id::CLUSTER);
        clusters
            .flat_map(|(_, cluster)| {
                let (_, start) = children(cluster).next().unwrap();
                let start = uint(start).unwrap();
                let blocks = children(cluster).skip(1).map(|(_, content)| content);
                blocks.map(move |content| {
                    let block = read_block(content).unwrap();
                    assert!(block.time >= 0);
                    let time = start + block.time as u64;
                    let (track, flags) = (block.track, block.flags);
                    ReadBlock { track, time, flags, data: block.data.to_vec() }
                })
            })
            .collect()
    }

    /// Decoded samples, without the delay of the encoder.
    fn sound(&self, channels: usize) -> Vec<i16> {
        let layout = if channels == 1 { opus::Channels::Mono } else { opus::Channels::Stereo };
        let mut decoder = opus::Decoder::new(SAMPLE_RATE, layout).unwrap();
        let mut samples = Vec::new();
        for block in self.blocks().iter().filter(|block| block.track == 1) {
            assert_eq!(block.time, (samples.len() / channels / 48) as u64);
            let mut frame = vec![0; 960 * channels];
            assert_eq!(decoder.decode(&block.data, &mut frame, false).unwrap(), 960);
            samples.extend(frame);
        }
        samples.split_off(312 * channels)
    }
}

/// Loudness of each piece of 5 ms.
fn loudness(samples: &[i16]) -> Vec<f64> {
    let level = |piece: &[i16]| {
        let sum: f64 = piece.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        (sum / piece.len() as f64).sqrt()
    };
    samples.chunks_exact(240).map(level).collect()
}

/// A voice of 3 s whose packets begin `offset` ms after the start; without those in `lost`. Video
/// and the other voice are between its packets.
fn capture_with_offset(offset: u64, track: Track, lost: &[usize]) -> Vec<u8> {
    let other = if track == Track::Agent { Track::User } else { Track::Agent };
    let (tone, silence) = (voice(440.0, 3, &[0.0..3.0]), voice(440.0, 3, &[]));
    let mut packets: Vec<(u64, Track, Bytes)> = Vec::new();
    for (n, (tone, silence)) in tone.iter().zip(&silence).enumerate() {
        let at = n as u64 * 20;
        if !lost.contains(&n) {
            packets.push((at + offset, track, tone.clone()));
        }
        packets.push((at + 7, other, silence.clone()));
        let frame = if n == 0 { Frame::Key } else { Frame::Picture };
        let picture = if n == 0 { vec![0x10, 0, 0] } else { vec![0x31, n as u8, 0] };
        packets.push((n as u64 * 40, Track::Video(frame), picture.into()));
    }
    packets.sort_by_key(|packet| packet.0);
    let mut out = Vec::new();
    let mut writer = CaptureWriter::new(&mut out, Some(SIZE)).unwrap();
    for (at, track, data) in packets {
        writer.push(Packet { at: Duration::from_millis(at), track, data }).unwrap();
    }
    writer.flush().unwrap();
    out
}

#[test]
fn a_voice_has_no_gaps_at_any_offset_of_its_packets() {
    for track in [Track::Agent, Track::User] {
        for offset in 0..20 {
            let file = deliver(&capture_with_offset(offset, track, &[]), Channels::Mixed);
            let levels = loudness(&file.sound(1));
            // From .1 s to 2.9 s.
            let quietest = levels[20..580].iter().copied().fold(f64::MAX, f64::min);
            assert!(quietest > 4_000.0, "offset {offset} ms of {track:?}: {quietest}");
        }
    }
}

#[test]
fn a_loss_of_two_packets_is_concealed_at_any_offset() {
    for offset in 0..20 {
        let capture = capture_with_offset(offset, Track::User, &[70, 71]);
        let levels = loudness(&deliver(&capture, Channels::Mixed).sound(1));
        // The concealment fades after the first packet.
        let first = levels[282..286].iter().copied().fold(f64::MAX, f64::min);
        assert!(first > 2_000.0, "offset {offset} ms: {:?}", &levels[270..300]);
    }
}

/// The first and the last ms at which samples of 10 ms are loud.
fn loud(samples: &[i16]) -> (usize, usize) {
    let is_loud = |piece: &[i16]| piece.iter().any(|sample| sample.abs() > 2_000);
    let pieces: Vec<bool> = samples.chunks(480).map(is_loud).collect();
    let first = pieces.iter().position(|loud| *loud).unwrap();
    let last = pieces.iter().rposition(|loud| *loud).unwrap();
    (first * 10, (last + 1) * 10)
}

fn assert_near(found: (usize, usize), expected: (usize, usize)) {
    let near = |a: usize, b: usize| a.abs_diff(b) <= 40;
    assert!(near(found.0, expected.0) && near(found.1, expected.1), "{found:?} {expected:?}");
}

#[test]
fn both_voices_stand_at_their_times() {
    let capture = capture();
    let mixed = deliver(&capture, Channels::Mixed);
    let samples = mixed.sound(1);
    assert_near(loud(&samples[..48_000 * 45 / 10]), (2_000, 4_000));
    assert_near(loud(&samples), (2_000, 7_000));
    assert!(mixed.summary.duration.abs_diff(Duration::from_secs(12)) < Duration::from_millis(100));
    let split = deliver(&capture, Channels::Split);
    let samples = split.sound(2);
    let channel = |n| samples.iter().skip(n).step_by(2).copied().collect::<Vec<i16>>();
    assert_near(loud(&channel(0)), (5_000, 7_000));
    assert_near(loud(&channel(1)), (2_000, 4_000));
}

#[test]
fn all_pictures_are_there_and_copies_of_the_references_are_not_shown() {
    let delivered = deliver(&capture(), Channels::Mixed);
    let video: Vec<ReadBlock> =
        delivered.blocks().into_iter().filter(|block| block.track == 3).collect();
    let shown = video.iter().filter(|block| block.flags & flag::INVISIBLE == 0);
    let numbers: Vec<usize> = shown
        .skip(1)
        .map(|block| usize::from(block.data[1]) + (usize::from(block.data[2]) << 8))
        .collect();
    assert_eq!(numbers, (1..600).step_by(2).collect::<Vec<_>>());
    let hidden: Vec<(u64, u8)> = video
        .iter()
        .filter(|block| block.flags & flag::INVISIBLE != 0)
        .map(|block| (block.time, block.data[0]))
        .collect();
    assert_eq!(hidden, [(5_020, 0), (5_020, 0x21), (10_020, 0), (10_020, 0x21)]);
}

#[test]
fn the_index_leads_to_clusters_that_begin_with_a_key_frame() {
    let delivered = deliver(&capture(), Channels::Mixed);
    let segment = delivered.segment();
    let (_, seek_head) = children(segment).next().unwrap();
    for (_, seek) in children(seek_head) {
        let fields: Vec<_> = children(seek).map(|(_, content)| content).collect();
        let position = uint(fields[1]).unwrap() as usize;
        let mut at = &segment[position..];
        let found = read_element(&mut at).unwrap().unwrap();
        assert_eq!(u64::from(found.id), uint(fields[0]).unwrap());
    }
    let (_, cues) = children(segment).find(|(id, _)| *id == id::CUES).unwrap();
    let mut times = Vec::new();
    for (_, cue) in children(cues) {
        let (_, time) = children(cue).next().unwrap();
        let (_, target) = children(cue).nth(1).unwrap();
        let (_, position) = children(target).nth(1).unwrap();
        let position = uint(position).unwrap() as usize;
        let (found, cluster) = children(&segment[position..]).next().unwrap();
        assert_eq!(found, id::CLUSTER);
        let first = read_block(children(cluster).nth(1).unwrap().1).unwrap();
        assert_eq!((first.track, first.time), (3, 0));
        assert!(first.flags & flag::KEY_FRAME != 0);
        times.push(uint(time).unwrap());
    }
    assert_eq!(times, [0, 5_020, 10_020]);
    let (_, info) = children(segment).find(|(id, _)| *id == id::INFO).unwrap();
    let (_, duration) = children(info).find(|(id, _)| *id == 0x4489).unwrap();
    let duration = f64::from_be_bytes(duration.try_into().unwrap());
    assert!((duration - 12_000.0).abs() < 100.0, "{duration}");
}

#[test]
fn times_never_decrease() {
    for block in deliver(&capture(), Channels::Mixed).blocks().windows(2) {
        assert!(block[0].time <= block[1].time);
    }
}

#[test]
fn a_call_without_video_has_an_index_too() {
    let mut out = Vec::new();
    let mut writer = CaptureWriter::new(&mut out, None).unwrap();
    for (n, data) in voice(440.0, 12, &[1.0..2.0]).into_iter().enumerate() {
        let at = Duration::from_millis(n as u64 * 20);
        writer.push(Packet { at, track: Track::Agent, data }).unwrap();
    }
    writer.flush().unwrap();
    let delivered = deliver(&out, Channels::Mixed);
    assert_near(loud(&delivered.sound(1)), (1_000, 2_000));
    let (_, cues) = children(delivered.segment()).find(|(id, _)| *id == id::CUES).unwrap();
    assert_eq!(children(cues).count(), 3);
}

#[test]
fn an_empty_capture_and_a_wrong_file_are_errors() {
    let mut out = Vec::new();
    CaptureWriter::new(&mut out, Some(SIZE)).unwrap().flush().unwrap();
    let error = write(&out[..], Cursor::new(Vec::new()), Channels::Mixed, |_| {});
    assert!(matches!(error, Err(Error::Empty)));
    let error = write(&b"no file"[..], Cursor::new(Vec::new()), Channels::Mixed, |_| {});
    assert!(matches!(error, Err(Error::Read(ReadError::NoHeader))));
}
