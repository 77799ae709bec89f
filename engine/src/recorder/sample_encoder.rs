//! Encodes samples of the user's voice as Opus, for the recording of a call whose audio arrives
//! without packets.

use bytes::{Bytes, BytesMut};
use opus::{Application, Bitrate, Channels};

/// Sample rate of the user's audio in a call, in Hz.
const SAMPLE_RATE: u32 = 16_000;
/// Bits per second. The audio has a bandwidth of 8 kHz.
const BITRATE: i32 = 24_000;
/// Maximum size of an encoded packet.
const MAX_PACKET_BYTES: usize = 1_000;
/// Memory for the packets of about a second.
const BUFFER_BYTES: usize = 8 << 10;

/// The encoder of one call.
pub(crate) struct SampleEncoder {
    opus: opus::Encoder,
    packet: [u8; MAX_PACKET_BYTES],
    memory: BytesMut,
}

impl SampleEncoder {
    /// # Errors
    /// The library rejects the configuration, or is out of memory.
    pub(crate) fn new() -> Result<Self, opus::Error> {
        let mut opus = opus::Encoder::new(SAMPLE_RATE, Channels::Mono, Application::Voip)?;
        opus.set_bitrate(Bitrate::Bits(BITRATE))?;
        opus.set_complexity(1)?;
        Ok(Self { opus, packet: [0; MAX_PACKET_BYTES], memory: BytesMut::new() })
    }

    /// The packet of 20 ms of samples; `None` if the library rejects them.
    pub(crate) fn encode(&mut self, pcm: &[i16]) -> Option<Bytes> {
        let length = self.opus.encode(pcm, &mut self.packet).ok()?;
        if self.memory.capacity() < length {
            self.memory.reserve(BUFFER_BYTES);
        }
        self.memory.extend_from_slice(&self.packet[..length]);
        Some(self.memory.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_packets_that_decode_to_the_same_sound() {
        let mut encoder = SampleEncoder::new().unwrap();
        let mut decoder = opus::Decoder::new(SAMPLE_RATE, Channels::Mono).unwrap();
        let tone = |at: usize| ((at as f32 * 0.2).sin() * 8_000.0) as i16;
        let mut heard = Vec::new();
        for block in 0..20 {
            let pcm: Vec<i16> = (block * 320..(block + 1) * 320).map(tone).collect();
            let packet = encoder.encode(&pcm).unwrap();
            let mut out = [0; 320];
            assert_eq!(decoder.decode(&packet, &mut out, false).unwrap(), 320);
            heard.extend(out);
        }
        let power = |samples: &[i16]| {
            samples.iter().map(|s| f64::from(*s).powi(2)).sum::<f64>() / samples.len() as f64
        };
        let sent: Vec<i16> = (3_200..6_400).map(tone).collect();
        let ratio = power(&heard[3_200..]) / power(&sent);
        assert!((0.7..1.4).contains(&ratio), "{ratio}");
        assert!(encoder.encode(&[0; 7]).is_none());
    }
}
