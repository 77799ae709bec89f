//! Ogg files: the first stream with Vorbis or Opus, and those that are chained to it.
//!
//! Streams of a film that run at the same time, such as pictures, are skipped. The position of the
//! last page cuts off what an encoder has added, and the file may end in the middle of a page.

use std::io::{Cursor, ErrorKind, Write};

use lewton::audio::PreviousWindowRight;
use lewton::header::{IdentHeader, SetupHeader};
use ogg::{OggReadError, Packet, PacketReader};

use super::{Refusal, Stop, mean, pcm};

/// Decoded positions of Opus are of this rate (RFC 7845).
const OPUS_RATE: u32 = 48_000;
/// Samples of the longest packet of Opus: 120 ms.
const OPUS_PACKET_SAMPLES: usize = 5_760;
/// A page on which no packet ends has this position.
const NO_POSITION: u64 = u64::MAX;

/// Decodes a file that begins with a page.
pub(super) fn decode<W: Write>(file: &[u8], sound: &mut pcm::Writer<W>) -> Result<(), Stop> {
    let mut packets = PacketReader::new(Cursor::new(file));
    let mut stream: Option<Stream> = None;
    let mut refusal = Refusal::Damaged;
    loop {
        let packet = match packets.read_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            // The file was cut off.
            Err(OggReadError::ReadError(e)) if e.kind() == ErrorKind::UnexpectedEof => break,
            Err(_) => return Err(Refusal::Damaged.into()),
        };
        // What other streams contain is not sound, or not in a known form.
        refusal = Refusal::UnknownType;
        if packet.first_in_stream() {
            // Streams that run at the same time all begin before the second packet of any.
            if stream.as_ref().is_none_or(|stream| stream.packets > 0)
                && let Some(next) = Stream::new(&packet)?
            {
                sound.set_rate(next.rate)?;
                stream = Some(next);
            }
        } else if let Some(stream) = stream.as_mut().filter(|s| s.serial == packet.stream_serial())
        {
            stream.decode(&packet, sound)?;
        }
    }
    let stream = stream.ok_or(refusal)?;
    // The file was cut off, or its recorder was ended.
    if !stream.has_ended {
        sound.mark_incomplete();
    }
    Ok(())
}

/// A stream of sound.
struct Stream {
    serial: u32,
    rate: u32,
    codec: Codec,
    /// Packets after the first.
    packets: u64,
    /// Samples that were decoded, including those that are skipped.
    decoded: u64,
    /// Samples at the begin that are not to be heard.
    skip: u64,
    /// Position of the first sample. It is not zero in a part of a longer stream.
    first_position: Option<u64>,
    /// Whether its last packet was read.
    has_ended: bool,
}

#[expect(clippy::large_enum_variant, reason = "one stream is read at a time")]
enum Codec {
    Vorbis { ident: IdentHeader, setup: Option<SetupHeader>, window: PreviousWindowRight },
    Opus(opus::Decoder),
}

impl Stream {
    /// The stream that begins with this packet. `None`: it contains something else.
    fn new(first: &Packet) -> Result<Option<Self>, Refusal> {
        let (rate, codec, skip) = if first.data.starts_with(b"\x01vorbis") {
            let ident =
                lewton::header::read_header_ident(&first.data).map_err(|_| Refusal::Damaged)?;
            if ident.audio_channels > 2 {
                return Err(Refusal::Channels);
            }
            let window = PreviousWindowRight::new();
            (ident.audio_sample_rate, Codec::Vorbis { ident, setup: None, window }, 0)
        } else if first.data.starts_with(b"OpusHead") {
            let (decoder, skip) = opus_decoder(&first.data)?;
            (OPUS_RATE, Codec::Opus(decoder), skip)
        } else {
            return Ok(None);
        };
        let serial = first.stream_serial();
        Ok(Some(Self {
            serial,
            rate,
            codec,
            packets: 0,
            decoded: 0,
            skip,
            first_position: None,
            has_ended: false,
        }))
    }

    /// Decodes a packet after the first.
    fn decode<W: Write>(
        &mut self,
        packet: &Packet,
        sound: &mut pcm::Writer<W>,
    ) -> Result<(), Stop> {
        self.packets += 1;
        self.has_ended |= packet.last_in_stream();
        let data = &packet.data;
        let samples = match &mut self.codec {
            // The comments may be long, and declare more than there is. Nobody needs them.
            Codec::Vorbis { .. } if self.packets == 1 => {
                require(data.starts_with(b"\x03vorbis"))?;
                return Ok(());
            }
            Codec::Opus(_) if self.packets == 1 => {
                require(data.starts_with(b"OpusTags"))?;
                return Ok(());
            }
            Codec::Vorbis { ident, setup: setup @ None, .. } => {
                let block_sizes = (ident.blocksize_0, ident.blocksize_1);
                let read = lewton::header::read_header_setup;
                let header = read(data, ident.audio_channels, block_sizes);
                *setup = Some(header.map_err(|_| Refusal::Damaged)?);
                return Ok(());
            }
            // A packet that was lost.
            _ if data.is_empty() => Vec::new(),
            Codec::Vorbis { ident, setup: Some(setup), window } => {
                let decoded = lewton::audio::read_audio_packet(ident, setup, data, window);
                let mut channels = decoded.map_err(|_| Refusal::Damaged)?.into_iter();
                let mut samples = channels.next().unwrap_or_default();
                if let Some(right) = channels.next() {
                    samples.iter_mut().zip(right).for_each(|(l, r)| *l = mean(*l, r));
                }
                samples
            }
            Codec::Opus(decoder) => {
                let mut samples = vec![0; OPUS_PACKET_SAMPLES];
                let count = decoder.decode(data, &mut samples, false);
                samples.truncate(count.map_err(|_| Refusal::Damaged)?);
                samples
            }
        };
        let before = self.decoded;
        self.decoded += samples.len() as u64;
        let skip = self.skip.saturating_sub(before) as usize;
        let count = samples.len() - self.excess(packet, samples.len());
        samples[..count].iter().skip(skip).try_for_each(|sample| sound.push(*sample))
    }

    /// How many of the last packet's samples come after the end that the last page declares.
    fn excess(&mut self, packet: &Packet, samples: usize) -> usize {
        let position = packet.absgp_page();
        if !packet.last_in_page() || position == NO_POSITION {
            return 0;
        }
        let start = position.saturating_sub(self.decoded);
        if !packet.last_in_stream() {
            self.first_position.get_or_insert(start);
            return 0;
        }
        let end = position.saturating_sub(self.first_position.unwrap_or(0));
        self.decoded.saturating_sub(end).min(samples as u64) as usize
    }
}

/// A decoder for a stream of Opus, and the number of samples to skip (RFC 7845, 5.1). Both channels
/// are mixed by the decoder, which knows where they have opposite phases.
fn opus_decoder(head: &[u8]) -> Result<(opus::Decoder, u64), Refusal> {
    let Some((&[.., version, channels, skip0, skip1, _, _, _, _, gain0, gain1, family], rest)) =
        head.split_first_chunk::<19>()
    else {
        return Err(Refusal::Damaged);
    };
    match (version >> 4, channels, family, rest.first()) {
        (0, 3.., _, _) => return Err(Refusal::Channels),
        (0, 1 | 2, 0, _) | (0, 1 | 2, 1, Some(1)) => {}
        _ => return Err(Refusal::Damaged),
    }
    let mut decoder =
        opus::Decoder::new(OPUS_RATE, opus::Channels::Mono).map_err(|_| Refusal::Damaged)?;
    let gain = i16::from_le_bytes([gain0, gain1]);
    decoder.set_gain(gain.into()).map_err(|_| Refusal::Damaged)?;
    Ok((decoder, u16::from_le_bytes([skip0, skip1]).into()))
}

fn require(valid: bool) -> Result<(), Refusal> {
    valid.then_some(()).ok_or(Refusal::Damaged)
}

#[cfg(test)]
#[path = "ogg_tests.rs"]
mod tests;
