//! Ogg Opus files.

use std::path::Path;

/// Samples of a file at 16 kHz mono, without the decoder's delay.
pub(crate) fn decode(path: &Path) -> Vec<i16> {
    const RATE: usize = 16_000;
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let packets = packets(&file);
    // An identification header, a comment header, and audio.
    let [head, _, audio @ ..] = &packets[..] else { panic!("no headers") };
    assert!(head.starts_with(b"OpusHead"));
    let skipped = usize::from(u16::from_le_bytes([head[10], head[11]])) * RATE / 48_000;
    let mut decoder = opus::Decoder::new(RATE as u32, opus::Channels::Mono).unwrap();
    let (mut pcm, mut buffer) = (Vec::new(), [0; RATE / 8]);
    for packet in audio {
        let count = decoder.decode(packet, &mut buffer, false).unwrap();
        pcm.extend_from_slice(&buffer[..count]);
    }
    pcm.drain(..skipped);
    pcm
}

/// Packets of the pages of a file with one stream (RFC 3533).
fn packets(mut file: &[u8]) -> Vec<Vec<u8>> {
    let (mut packets, mut packet) = (Vec::new(), Vec::new());
    while !file.is_empty() {
        assert!(file.starts_with(b"OggS"));
        let (sizes, mut rest) = file[27..].split_at(usize::from(file[26]));
        for size in sizes {
            let (part, after) = rest.split_at(usize::from(*size));
            packet.extend_from_slice(part);
            if *size < 255 {
                packets.push(std::mem::take(&mut packet));
            }
            rest = after;
        }
        file = rest;
    }
    packets
}
