//! The file of a call of 30 minutes, cut anywhere, read by libwebm; and what is delivered from such
//! a file. tests/e2e/test_recording_cuts.py reads the same files with ffmpeg's reader.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::io::Cursor;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use recording::delivery::{Error, Summary, write};
use recording::{Channels, Track};
use recording_tests::call::{self, Cluster, RecordedCall};
use recording_tests::libwebm::{Block, COMPLETE, INCOMPLETE, Reader};

const CALL: Duration = Duration::from_secs(1_800);
const CUTS: usize = 1_000;
/// Of all prefixes, libwebm loads all clusters. It reads all blocks of one prefix of so many, and
/// those of the last clusters of the others.
const FULLY_READ: usize = 10;
const LAST_CLUSTERS: i64 = 10;
/// Longest id and size of a cluster in bytes.
const CLUSTER_HEAD: usize = 12;
/// Deliveries encode the sound again, so most of them are of the beginning of the call.
const DELIVERIES: usize = 50;
const DELIVERED_CALL: Duration = Duration::from_secs(20);
/// What `kill -9` may lose at most.
const MAX_LOSS: Duration = Duration::from_secs(1);
/// Difference between the duration of a delivered file and the end of the last packet.
const TOLERANCE: Duration = Duration::from_millis(100);
/// Numbers of the tracks in files: of the agent's voice and of the video.
const AGENT: i32 = 1;
const USER: i32 = 2;
const VIDEO: i32 = 3;

fn number(track: Track) -> i32 {
    match track {
        Track::Agent => AGENT,
        Track::User => USER,
        Track::Video(_) => VIDEO,
    }
}

/// The packets of a track in the order of the call, as blocks.
fn recorded(call: &RecordedCall, track: i32) -> Vec<Block> {
    let packets = call.packets.iter().filter(|(of, _)| number(*of) == track);
    packets.map(|(_, at)| Block { track, milliseconds: at.as_millis() as i32 }).collect()
}

/// The blocks of a track. The delay of the encoder is subtracted from the times of Opus blocks by
/// players, not by this reader.
fn of_track(blocks: &[Block], track: i32) -> Vec<Block> {
    blocks.iter().filter(|block| block.track == track).copied().collect()
}

/// The last cluster that ends at or before a size of the file.
fn last_cluster(call: &RecordedCall, bytes: usize) -> Option<Cluster> {
    let count = call.clusters.partition_point(|cluster| cluster.bytes <= bytes);
    call.clusters[..count].last().copied()
}

fn cuts(call: &RecordedCall, count: usize, seed: u64) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(0..call.file.len())).collect()
}

#[test]
fn a_call_of_30_minutes_is_read_up_to_any_byte() {
    let call = call::record(CALL);
    let mut reader = Reader::new(call.packets.len());
    let (file, blocks) = reader.read_growing(&call.file, i64::MAX);
    assert_eq!(file.status, INCOMPLETE, "the segment has no end");
    assert_eq!(file.cluster_count, call.clusters.len() as i64);
    let whole = blocks.to_vec();
    assert_eq!(whole.len(), call.packets.len());
    for track in [AGENT, USER, VIDEO] {
        let found = of_track(&whole, track);
        assert!(found.len() > 20_000, "{} blocks of track {track}", found.len());
        assert_eq!(found, recorded(&call, track));
        assert!(found.is_sorted_by_key(|block| block.milliseconds));
    }
    for pair in call.clusters.windows(2) {
        assert!(pair[1].end - pair[0].end < MAX_LOSS, "{pair:?}");
    }
    for (n, cut) in cuts(&call, CUTS, 1).into_iter().enumerate() {
        let prefix = &call.file[..cut];
        let last = if n % FULLY_READ == 0 { i64::MAX } else { LAST_CLUSTERS };
        let complete = last_cluster(&call, cut);
        let (bytes, packets) = complete.map_or((call.header, 0), |it| (it.bytes, it.packets));
        // Of a file that still grows, the packets of a cluster are read before its end.
        let (file, found) = reader.read_growing(prefix, last);
        assert_eq!(file.status, INCOMPLETE, "cut at {cut}");
        let end = assert_part(&call, &whole, file.cluster_count - last, found);
        assert!(end >= packets, "cut at {cut}: {end} of {packets}");
        let (file, found) = reader.read_complete(prefix, last);
        let is_in_head = cut < bytes + CLUSTER_HEAD;
        let expected = file.status == COMPLETE || (file.status == INCOMPLETE && is_in_head);
        assert!(expected, "cut at {cut}: {file:?}");
        let end = assert_part(&call, &whole, file.cluster_count - last, found);
        assert_eq!(end, packets, "cut at {cut}");
    }
}

/// Checks that `found` is a part of the blocks of the file. Returns the number of blocks up to its
/// end. `skipped`: number of clusters before it.
fn assert_part(call: &RecordedCall, whole: &[Block], skipped: i64, found: &[Block]) -> usize {
    let skipped = usize::try_from(skipped).unwrap_or(0);
    let start = skipped.checked_sub(1).map_or(0, |before| call.clusters[before].packets);
    let end = start + found.len();
    assert!(*found == whole[start..end], "blocks {start} to {end}");
    end
}

#[test]
fn a_byte_that_changes_is_found_by_the_reader() {
    let mut call = call::record(Duration::from_secs(5));
    let mut reader = Reader::new(call.packets.len());
    // The id of the second cluster.
    call.file[call.clusters[0].bytes] = 0;
    let (file, blocks) = reader.read_growing(&call.file, i64::MAX);
    assert!(![COMPLETE, INCOMPLETE].contains(&file.status), "{file:?}");
    assert_eq!(blocks.len(), call.clusters[0].packets);
}

/// Delivers a file that ends here, and checks the delivered one.
fn deliver(call: &RecordedCall, cut: usize, reader: &mut Reader) {
    let mut out = Cursor::new(Vec::new());
    let summary = write(&call.file[..cut], &mut out, Channels::Split, |_| {});
    let Some(cluster) = last_cluster(call, cut) else {
        let is_empty = matches!(summary, Err(Error::Empty));
        return assert!(cut < call.header || is_empty, "cut at {cut}: {summary:?}");
    };
    let Summary { duration, bytes, .. } = summary.unwrap();
    assert!(duration.abs_diff(cluster.end) < TOLERANCE, "cut at {cut}: {duration:?} {cluster:?}");
    let file = out.into_inner();
    assert_eq!(bytes, file.len() as u64);
    let (read, blocks) = reader.read_complete(&file, i64::MAX);
    assert_eq!(read.status, COMPLETE, "cut at {cut}");
    assert!(blocks.is_sorted_by_key(|block| block.milliseconds), "cut at {cut}");
    let in_file = Duration::from_nanos(read.duration as u64);
    assert!(in_file.abs_diff(duration) < Duration::from_millis(1), "cut at {cut}: {in_file:?}");
    let sound = of_track(blocks, AGENT);
    assert!(sound.len() * 20 + 20 >= duration.as_millis() as usize, "cut at {cut}");
    let pictures = call.packets[..cluster.packets].iter().filter(|(of, _)| call::is_video(*of));
    let video = of_track(blocks, VIDEO);
    assert!(video.len() >= pictures.count(), "cut at {cut}");
    // A place to seek to every five seconds, or at the first picture after them.
    let expected = duration.as_secs() as i64 / 6 + 1;
    assert!(read.cue_count >= expected, "cut at {cut}: {read:?}");
    assert_eq!(read.valid_cue_count, read.cue_count, "cut at {cut}");
}

#[test]
fn a_call_that_was_cut_is_delivered() {
    let call = call::record(DELIVERED_CALL);
    let mut reader = Reader::new(4 * call.packets.len());
    for cut in cuts(&call, DELIVERIES, 2) {
        deliver(&call, cut, &mut reader);
    }
}

#[test]
fn a_long_call_that_was_cut_is_delivered() {
    let call = call::record(Duration::from_secs(300));
    let mut reader = Reader::new(4 * call.packets.len());
    for cut in cuts(&call, 1, 3) {
        deliver(&call, cut.max(call.file.len() / 2), &mut reader);
    }
}
