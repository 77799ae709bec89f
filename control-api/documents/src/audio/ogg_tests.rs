use std::io::Cursor;

use ogg::{PacketReader, PacketWriteEndInfo, PacketWriter};

use crate::audio::tests::{
    MONO_VORBIS, STEREO_VORBIS, assert_tone, is_incomplete, sound_and_refusal, sound_of, tone,
};
use crate::audio::{MAX_SECONDS, Refusal};

/// Samples that an encoder of Opus puts before the sound.
const PRE_SKIP: u16 = 312;
const OPUS_RATE: u32 = 48_000;
/// Samples of the packets of Opus that are written here: 20 ms.
const PACKET_SAMPLES: usize = 960;

/// A packet, and the position of its page: a page is for each packet.
type PacketAndPosition = (Vec<u8>, u64);

/// A file with these streams, one after the other.
fn file_of(streams: &[(u32, &[PacketAndPosition])]) -> Vec<u8> {
    let mut writer = PacketWriter::new(Cursor::new(Vec::new()));
    for (serial, packets) in streams {
        for (n, (packet, position)) in packets.iter().enumerate() {
            let end = if n + 1 == packets.len() {
                PacketWriteEndInfo::EndStream
            } else {
                PacketWriteEndInfo::EndPage
            };
            writer.write_packet(packet.clone(), *serial, end, *position).unwrap();
        }
    }
    writer.into_inner().into_inner()
}

/// The packets of a file.
fn packets_of(file: &[u8]) -> Vec<PacketAndPosition> {
    let mut reader = PacketReader::new(Cursor::new(file));
    std::iter::from_fn(|| reader.read_packet().unwrap())
        .map(|packet| match packet.last_in_page() {
            true => (packet.data.clone(), packet.absgp_page()),
            false => (packet.data.clone(), super::NO_POSITION),
        })
        .collect()
}

fn opus_head(channels: u8, pre_skip: u16, gain: i16) -> Vec<u8> {
    let mut head = b"OpusHead\x01".to_vec();
    head.push(channels);
    head.extend(pre_skip.to_le_bytes());
    head.extend(44_100u32.to_le_bytes());
    head.extend(gain.to_le_bytes());
    head.push(0);
    head
}

fn opus_packets(channels: u8, count: usize) -> Vec<PacketAndPosition> {
    let layout = if channels == 1 { opus::Channels::Mono } else { opus::Channels::Stereo };
    let mut encoder = opus::Encoder::new(OPUS_RATE, layout, opus::Application::Audio).unwrap();
    assert_eq!(encoder.get_lookahead().unwrap(), i32::from(PRE_SKIP));
    let mut packets =
        vec![(opus_head(channels, PRE_SKIP, 0), 0), (b"OpusTags\0\0\0\0\0\0\0\0".to_vec(), 0)];
    let decoded = count + usize::from(PRE_SKIP);
    let samples: Vec<i16> = tone(OPUS_RATE, decoded.next_multiple_of(PACKET_SAMPLES))
        .flat_map(|s| vec![(s * 32_768.0) as i16; usize::from(channels)])
        .collect();
    let mut position = 0;
    for part in samples.chunks(PACKET_SAMPLES * usize::from(channels)) {
        position = (position + PACKET_SAMPLES).min(decoded);
        packets.push((encoder.encode_vec(part, 1_500).unwrap(), position as u64));
    }
    packets
}

#[test]
fn vorbis_gives_its_sound() {
    for (name, file, rate) in [("mono", MONO_VORBIS, 16_000), ("stereo", STEREO_VORBIS, 44_100)] {
        let (decoded_rate, sound) = sound_of(file).unwrap();
        assert_eq!((decoded_rate, sound.len()), (rate, rate as usize / 2), "{name}");
        assert_tone(name, rate, &sound, 0.05);
    }
}

#[test]
fn opus_gives_its_sound_without_what_the_encoder_added() {
    for channels in [1, 2] {
        for count in [48_000, 30_001, 1] {
            let file = file_of(&[(7, &opus_packets(channels, count))]);
            let (rate, sound) = sound_of(&file).unwrap();
            assert_eq!((rate, sound.len()), (OPUS_RATE, count));
            if count > 1 {
                // The codec changes the sound, most at its begin.
                assert_tone("opus", rate, &sound, 0.1);
            }
        }
    }
}

#[test]
fn a_file_that_was_cut_off_gives_its_begin_and_says_so() {
    let opus = file_of(&[(7, &opus_packets(1, 48_000))]);
    let vorbis = file_of(&[(7, &packets_of(STEREO_VORBIS))]);
    for (name, file) in [("vorbis", vorbis), ("opus", opus)] {
        assert!(!is_incomplete(&file), "{name}");
        let cut = &file[..file.len() * 9 / 10];
        let (whole, begin) = (sound_of(&file).unwrap().1, sound_of(cut).unwrap().1);
        assert!(is_incomplete(cut) && begin.len() < whole.len(), "{name}: {}", begin.len());
    }
}

#[test]
fn the_gain_of_opus_is_applied() {
    let mut packets = opus_packets(1, 20_000);
    let (_, loud) = sound_of(&file_of(&[(7, &packets)])).unwrap();
    // In 1/256 dB.
    packets[0].0 = opus_head(1, PRE_SKIP, -6 * 256);
    let (_, quiet) = sound_of(&file_of(&[(7, &packets)])).unwrap();
    let peak = |sound: &[i16]| f64::from(sound.iter().copied().max().unwrap());
    let ratio = peak(&quiet) / peak(&loud);
    assert!((0.49..0.52).contains(&ratio), "{ratio}");
}

#[test]
fn a_part_of_a_longer_stream_keeps_its_end() {
    // A recorder that joined a broadcast an hour late.
    let mut packets = opus_packets(1, 9_000);
    for (_, position) in &mut packets[2..] {
        *position += 3_600 * u64::from(OPUS_RATE);
    }
    let (_, sound) = sound_of(&file_of(&[(7, &packets)])).unwrap();
    assert_eq!(sound.len(), 9_000);
}

#[test]
fn chained_streams_are_all_heard() {
    let opus = opus_packets(1, 10_000);
    let (_, sound) = sound_of(&file_of(&[(1, &opus), (2, &opus[..]), (3, &opus)])).unwrap();
    assert_eq!(sound.len(), 30_000);
    let (_, vorbis, refusal) =
        sound_and_refusal(&file_of(&[(1, &packets_of(MONO_VORBIS)), (2, &opus)]));
    assert_eq!((vorbis.len(), refusal), (0, Some(Refusal::RateChange)));
}

#[test]
fn a_refusal_may_follow_sound() {
    let file = file_of(&[(1, &packets_of(STEREO_VORBIS)), (2, &opus_packets(1, 960))]);
    let (rate, sound, refusal) = sound_and_refusal(&file);
    assert_eq!((rate, refusal), (44_100, Some(Refusal::RateChange)));
    assert_eq!(sound, sound_of(STEREO_VORBIS).unwrap().1[..sound.len()]);
    assert!(sound.len() >= 16_384, "{} samples", sound.len());
}

#[test]
fn a_stream_of_pictures_is_skipped() {
    let mut writer = PacketWriter::new(Cursor::new(Vec::new()));
    let mut write = |packet: &[u8], serial, position, end| {
        let end = if end { PacketWriteEndInfo::EndStream } else { PacketWriteEndInfo::EndPage };
        writer.write_packet(packet.to_vec(), serial, end, position).unwrap();
    };
    let opus = opus_packets(1, 9_000);
    write(b"\x80theora", 1, 0, false);
    write(&opus[0].0, 2, 0, false);
    // A second sound that runs at the same time.
    write(&opus[0].0, 3, 0, false);
    for (n, (packet, position)) in opus[1..].iter().enumerate() {
        write(b"\x81picture", 1, *position, false);
        write(packet, 2, *position, n + 2 == opus.len());
        write(packet, 3, *position, n + 2 == opus.len());
    }
    let file = writer.into_inner().into_inner();
    assert_eq!(sound_of(&file).unwrap().1.len(), 9_000);
    let pictures = file_of(&[(1, &[(b"\x80theora".to_vec(), 0), (b"\x81picture".to_vec(), 1)])]);
    assert_eq!(sound_of(&pictures), Err(Refusal::UnknownType));
}

#[test]
fn comments_are_not_read() {
    let mut opus = opus_packets(1, 9_000);
    let sound = sound_of(&file_of(&[(7, &opus)]));
    opus[1].0.extend(vec![b'x'; 8 << 20]);
    assert!(sound_of(&file_of(&[(7, &opus)])) == sound);
    // The length of the vendor's name.
    let mut vorbis = packets_of(MONO_VORBIS);
    vorbis[1].0[7..11].fill(0xFF);
    assert!(sound_of(&file_of(&[(7, &vorbis)])) == sound_of(MONO_VORBIS));
}

#[test]
fn tiny_packets_give_at_most_thirty_minutes() {
    // A packet of one byte is a frame of 60 ms that was not sent.
    let mut packets = opus_packets(1, 0);
    packets.truncate(2);
    packets.extend((0..31_000).map(|_| (vec![0x18], super::NO_POSITION)));
    let mut writer = PacketWriter::new(Cursor::new(Vec::new()));
    for (packet, _) in packets {
        let end = if packet.len() > 1 {
            PacketWriteEndInfo::EndPage
        } else {
            PacketWriteEndInfo::NormalPacket
        };
        writer.write_packet(packet, 7, end, 0).unwrap();
    }
    let (rate, sound, refusal) = sound_and_refusal(&writer.into_inner().into_inner());
    assert_eq!(refusal, Some(Refusal::TooLong));
    assert!(sound.len() as u64 <= MAX_SECONDS * u64::from(rate), "{} samples", sound.len());
}

#[test]
fn a_stream_that_contradicts_its_type_is_refused() {
    let opus = opus_packets(1, 960);
    let with_head = |head: Vec<u8>| {
        let mut packets = opus.clone();
        packets[0].0 = head;
        sound_of(&file_of(&[(7, &packets)]))
    };
    assert_eq!(with_head(opus_head(6, 0, 0)), Err(Refusal::Channels));
    assert_eq!(with_head(opus_head(0, 0, 0)), Err(Refusal::Damaged));
    assert_eq!(with_head(opus_head(1, 0, 0)[..18].to_vec()), Err(Refusal::Damaged));
    let mut ident = packets_of(MONO_VORBIS)[0].0.clone();
    ident[11] = 6;
    assert_eq!(with_head(ident.clone()), Err(Refusal::Channels));
    ident[11] = 1;
    ident[12..16].copy_from_slice(&192_000u32.to_le_bytes());
    assert_eq!(with_head(ident), Err(Refusal::Rate));
    let mut no_tags = opus.clone();
    no_tags[1].0[4] = b'x';
    assert_eq!(sound_of(&file_of(&[(7, &no_tags)])), Err(Refusal::Damaged));
    let mut no_setup = packets_of(MONO_VORBIS);
    no_setup.remove(2);
    assert_eq!(sound_of(&file_of(&[(7, &no_setup)])), Err(Refusal::Damaged));
    assert_eq!(sound_of(&file_of(&[(7, &opus[..2])])), Err(Refusal::NoSound));
    // Its length is beyond the last page, or it has no last page.
    let mut long = opus.clone();
    long.last_mut().unwrap().1 = u64::MAX - 1;
    let added = PACKET_SAMPLES * (opus.len() - 2) - usize::from(PRE_SKIP);
    assert_eq!(sound_of(&file_of(&[(7, &long)])).unwrap().1.len(), added);
}
