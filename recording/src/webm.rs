//! The elements of WebM files: ids, headers and blocks. Times are in milliseconds.

use crate::ebml::{push_bytes, push_float, push_id, push_master, push_text, push_uint};
use crate::{SAMPLE_RATE, Size};

/// Ids of elements (RFC 9559).
pub(crate) mod id {
    pub(crate) const EBML: u32 = 0x1a45_dfa3;
    pub(crate) const SEGMENT: u32 = 0x1853_8067;
    pub(crate) const SEEK_HEAD: u32 = 0x114d_9b74;
    pub(crate) const INFO: u32 = 0x1549_a966;
    pub(crate) const TRACKS: u32 = 0x1654_ae6b;
    pub(crate) const TRACK_ENTRY: u32 = 0xae;
    pub(crate) const TRACK_NUMBER: u32 = 0xd7;
    pub(crate) const VIDEO: u32 = 0xe0;
    pub(crate) const PIXEL_WIDTH: u32 = 0xb0;
    pub(crate) const PIXEL_HEIGHT: u32 = 0xba;
    pub(crate) const CLUSTER: u32 = 0x1f43_b675;
    pub(crate) const TIMESTAMP: u32 = 0xe7;
    pub(crate) const SIMPLE_BLOCK: u32 = 0xa3;
    pub(crate) const CUES: u32 = 0x1c53_bb6b;
}

/// Flags of a block (RFC 9559, 10.2).
pub(crate) mod flag {
    pub(crate) const KEY_FRAME: u8 = 0x80;
    pub(crate) const INVISIBLE: u8 = 0x08;
    pub(crate) const DISCARDABLE: u8 = 0x01;
}

/// Name of the program in files.
const APPLICATION: &str = "Visavis";
/// Nanoseconds of a millisecond, in which all times of a file are.
const TIMESTAMP_SCALE: u64 = 1_000_000;
/// Time that an Opus decoder needs to converge after a seek, in ns (RFC 7845, 4.6).
const SEEK_PRE_ROLL: u64 = 80_000_000;

/// A track of a file.
pub(crate) enum TrackEntry<'a> {
    Video(Size),
    Audio {
        name: &'a str,
        channels: u8,
        /// Samples that a decoder drops at the beginning.
        delay: u16,
    },
}

/// Appends the header that begins a file.
pub(crate) fn push_file_header(out: &mut Vec<u8>) {
    push_master(out, id::EBML, |out| {
        push_uint(out, 0x4286, 1); // EBMLVersion
        push_uint(out, 0x42f7, 1); // EBMLReadVersion
        push_uint(out, 0x42f2, 4); // EBMLMaxIDLength
        push_uint(out, 0x42f3, 8); // EBMLMaxSizeLength
        push_text(out, 0x4282, "webm"); // DocType
        push_uint(out, 0x4287, 4); // DocTypeVersion
        push_uint(out, 0x4285, 2); // DocTypeReadVersion
    });
}

/// Appends the general information. `duration` in ms, if it is known.
pub(crate) fn push_info(out: &mut Vec<u8>, duration: Option<f64>) {
    push_master(out, id::INFO, |out| {
        push_uint(out, 0x2a_d7b1, TIMESTAMP_SCALE);
        if let Some(duration) = duration {
            push_float(out, 0x4489, duration);
        }
        push_text(out, 0x4d80, APPLICATION); // MuxingApp
        push_text(out, 0x5741, APPLICATION); // WritingApp
    });
}

/// Numbers of the tracks. The second voice exists in the file of a call only.
pub(crate) mod number {
    pub(crate) const AGENT: u8 = 1;
    pub(crate) const SOUND: u8 = AGENT;
    pub(crate) const USER: u8 = 2;
    pub(crate) const VIDEO: u8 = 3;
}

/// Appends the list of tracks with their numbers.
pub(crate) fn push_tracks(out: &mut Vec<u8>, tracks: &[(u8, TrackEntry<'_>)]) {
    push_master(out, id::TRACKS, |out| {
        for (number, track) in tracks {
            push_master(out, id::TRACK_ENTRY, |out| push_track(out, *number, track));
        }
    });
}

fn push_track(out: &mut Vec<u8>, number: u8, track: &TrackEntry<'_>) {
    push_uint(out, id::TRACK_NUMBER, number.into());
    push_uint(out, 0x73c5, number.into()); // TrackUID
    push_uint(out, 0x9c, 0); // FlagLacing
    match track {
        TrackEntry::Video(size) => {
            push_uint(out, 0x83, 1); // TrackType
            push_text(out, 0x86, "V_VP8"); // CodecID
            push_master(out, id::VIDEO, |out| {
                push_uint(out, id::PIXEL_WIDTH, size.width.into());
                push_uint(out, id::PIXEL_HEIGHT, size.height.into());
            });
        }
        TrackEntry::Audio { name, channels, delay } => {
            push_uint(out, 0x83, 2); // TrackType
            push_text(out, 0x536e, name); // Name
            push_text(out, 0x86, "A_OPUS"); // CodecID
            push_bytes(out, 0x63a2, &opus_head(*channels, *delay)); // CodecPrivate
            let nanoseconds = u64::from(*delay) * 1_000_000_000 / u64::from(SAMPLE_RATE);
            push_uint(out, 0x56aa, nanoseconds); // CodecDelay
            push_uint(out, 0x56bb, SEEK_PRE_ROLL);
            push_master(out, 0xe1, |out| {
                push_float(out, 0xb5, f64::from(SAMPLE_RATE)); // SamplingFrequency
                push_uint(out, 0x9f, u64::from(*channels)); // Channels
            });
        }
    }
}

/// The identification header of an Opus stream (RFC 7845, 5.1).
fn opus_head(channels: u8, delay: u16) -> Vec<u8> {
    let mut head = b"OpusHead\x01".to_vec();
    head.push(channels);
    head.extend(delay.to_le_bytes());
    head.extend(SAMPLE_RATE.to_le_bytes());
    // Gain, and mapping family 0: mono or stereo.
    head.extend([0, 0, 0]);
    head
}

/// Appends a block. `time`: relative to its cluster.
pub(crate) fn push_block(out: &mut Vec<u8>, track: u8, time: i16, flags: u8, data: &[u8]) {
    push_id(out, id::SIMPLE_BLOCK);
    out.extend(crate::ebml::fixed_size(data.len() as u64 + 4));
    out.push(0x80 | track);
    out.extend(time.to_be_bytes());
    out.push(flags);
    out.extend_from_slice(data);
}

/// A block that was read.
pub(crate) struct Block<'a> {
    pub(crate) track: u8,
    /// Relative to its cluster.
    pub(crate) time: i16,
    pub(crate) flags: u8,
    pub(crate) data: &'a [u8],
}

/// The block in the content of an element; `None` if it is not one of [`push_block`].
pub(crate) fn read_block(content: &[u8]) -> Option<Block<'_>> {
    let ([track, high, low, flags], data) = content.split_first_chunk::<4>()?;
    let track = (track & 0x80 != 0).then_some(track & 0x7f)?;
    Some(Block { track, time: i16::from_be_bytes([*high, *low]), flags: *flags, data })
}
