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
    let packets = std::iter::from_fn(|| reader.next_packet().unwrap()).collect();
    assert!(!reader.is_damaged(), "a cut is no damage");
    Ok(packets)
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

/// Positions of the clusters of a file.
fn clusters(file: &[u8]) -> Vec<usize> {
    let id = crate::webm::id::CLUSTER.to_be_bytes();
    file.windows(4).enumerate().filter(|(_, bytes)| *bytes == id).map(|(at, _)| at).collect()
}

#[test]
fn a_damaged_cluster_is_missing_and_reported() {
    let packets = call(4);
    let file = write(&packets);
    let whole = read(&file).unwrap();
    let starts = clusters(&file);
    assert!(starts.len() >= 7, "{starts:?}");
    let cluster = starts[3];
    // Its id, its size with too many bytes, its size with too few, its time, and a block.
    let is_time = file[cluster + 4..].windows(2).position(|b| b == [0xe7, 0x82]).unwrap();
    let time = cluster + 4 + is_time;
    for (at, bytes) in [
        (cluster, &[0x00][..]),
        (cluster + 4, &[0x5f, 0xff]),
        (cluster + 4, &[0x40, 0x08]),
        (cluster + 4, &[0xff]),
        (time + 2, &[0xff, 0xff]),
        (time + 4, &[0xa4]),
    ] {
        let mut damaged = file.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        let mut reader = CaptureReader::new(&damaged[..]).unwrap();
        let found: Vec<_> = std::iter::from_fn(|| reader.next_packet().unwrap()).collect();
        assert!(reader.is_damaged(), "{at}: {bytes:?}");
        // At most two clusters of half a second are missing, and all others are there.
        assert!(found.len() + 150 > whole.len(), "{at}: {} of {}", found.len(), whole.len());
        assert_eq!(found.last(), whole.last(), "{at}: {bytes:?}");
    }
}

#[test]
fn a_time_that_cannot_be_is_not_believed() {
    let packets = call(2);
    let file = write(&packets);
    let week = 8 * 24 * 3_600_000;
    // In the middle, and at the end.
    for (start, is_last) in [(7_200_000, false), (7_200_000, true), (week, true), (u64::MAX, true)]
    {
        let mut cluster = Vec::new();
        crate::ebml::push_uint(&mut cluster, crate::webm::id::TIMESTAMP, start);
        crate::webm::push_block(&mut cluster, 1, 0, 0x80, &[1, 2, 3]);
        let mut element = Vec::new();
        crate::ebml::push_bytes(&mut element, crate::webm::id::CLUSTER, &cluster);
        let at = if is_last { file.len() } else { clusters(&file)[2] };
        let damaged = [&file[..at], &element, &file[at..]].concat();
        let mut reader = CaptureReader::new(&damaged[..]).unwrap();
        let found: Vec<_> = std::iter::from_fn(|| reader.next_packet().unwrap()).collect();
        assert!(reader.is_damaged(), "{start}");
        assert_eq!(found, read(&file).unwrap(), "{start}");
    }
}

#[test]
fn damaged_bytes_change_packets_and_nothing_else() {
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
