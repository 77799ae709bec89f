use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::{Frame, Packet, Size, Track};

const SIZE: Size = Size { width: 512, height: 512 };

fn packet(at: u64, track: Track, byte: u8) -> Packet {
    Packet { at: Duration::from_millis(at), track, data: Bytes::from(vec![byte; 40]) }
}

/// The packets of some seconds of a call: both voices and the video.
fn call(seconds: u64) -> Vec<Packet> {
    let mut packets = vec![packet(0, Track::Video(Frame::Key), 1)];
    for at in (0..seconds * 1_000).step_by(20) {
        packets.push(packet(at, Track::Agent, (at / 20) as u8));
        if at >= 40 {
            // The jitter buffer delivers the user's packets later.
            packets.push(packet(at - 40, Track::User, (at / 20) as u8));
        }
        if at % 40 == 0 && at > 0 {
            let frame = if at == 400 { Frame::Altref } else { Frame::Picture };
            packets.push(packet(at, Track::Video(frame), (at / 40) as u8));
        }
    }
    packets
}

fn write(packets: &[Packet]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = CaptureWriter::new(&mut out, Some(SIZE)).unwrap();
    packets.iter().for_each(|packet| writer.push(packet.clone()).unwrap());
    writer.flush().unwrap();
    let bytes = writer.bytes();
    assert_eq!(bytes, out.len() as u64);
    out
}

fn read(file: &[u8]) -> Result<Vec<Packet>, ReadError> {
    let mut reader = CaptureReader::new(file)?;
    assert_eq!(reader.header().video, Some(SIZE));
    let next = || reader.next_packet().unwrap();
    Ok(std::iter::from_fn(next).collect())
}

fn of_track(packets: &[Packet], track: fn(&Track) -> bool) -> Vec<Packet> {
    packets.iter().filter(|packet| track(&packet.track)).cloned().collect()
}

#[test]
fn all_packets_are_read_in_the_order_of_each_track() {
    let packets = call(3);
    let found = read(&write(&packets)).unwrap();
    assert_eq!(found.len(), packets.len());
    let tracks: [fn(&Track) -> bool; 3] = [
        |track| *track == Track::Agent,
        |track| *track == Track::User,
        |track| matches!(track, Track::Video(_)),
    ];
    for track in tracks {
        assert_eq!(of_track(&found, track), of_track(&packets, track));
    }
}

#[test]
fn a_file_that_ends_anywhere_has_all_packets_of_its_complete_clusters() {
    let packets = call(4);
    let file = write(&packets);
    let whole = read(&file).unwrap();
    let mut last = 0;
    for end in 0..file.len() {
        match read(&file[..end]) {
            Ok(found) => {
                assert_eq!(found, whole[..found.len()], "cut at {end}");
                assert!(found.len() >= last, "cut at {end}");
                last = found.len();
            }
            Err(ReadError::NoHeader) => assert_eq!(last, 0, "cut at {end}"),
            Err(error) => panic!("cut at {end}: {error}"),
        }
    }
    // At most the last cluster is missing.
    assert!(last + 80 > whole.len(), "{last} of {}", whole.len());
}

#[test]
fn packets_that_a_stalled_network_held_back_keep_their_times() {
    let mut packets = call(1);
    packets.push(packet(100_000, Track::Agent, 7));
    packets.push(packet(50_000, Track::User, 8));
    let found = read(&write(&packets)).unwrap();
    assert!(found.contains(&packet(50_000, Track::User, 8)));
    assert!(found.contains(&packet(100_000, Track::Agent, 7)));
}

#[test]
fn damaged_bytes_end_the_file_or_change_packets_and_nothing_else() {
    let file = write(&call(2));
    let mut random = 24_u32;
    for _ in 0..3_000 {
        let mut damaged = file.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = random as usize % damaged.len();
            damaged[at] = (random >> 24) as u8;
        }
        if let Ok(mut reader) = CaptureReader::new(&damaged[..]) {
            while reader.next_packet().unwrap().is_some() {}
        }
    }
}
