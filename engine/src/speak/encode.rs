//! The agent's voice into Opus: 48 kHz mono, packets of 20 ms.

use opus::{Application, Bitrate, Channels, Signal};

/// Samples of one packet.
pub const FRAME: usize = 960;
/// Largest packet we make.
const MAX_PACKET: usize = 1000;

/// The Opus library refused.
#[derive(Debug, thiserror::Error)]
#[error("opus: {0}")]
pub struct Error(#[from] opus::Error);

/// How to encode.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// 0 (84 µs a packet) to 10 (238 µs); 5 costs 213 µs.
    pub complexity: u8,
    /// Bits a second, variable.
    pub bitrate: u32,
    /// Loss that the in-band error correction is laid out for, per cent.
    pub loss: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self { complexity: 5, bitrate: 32_000, loss: 10 }
    }
}

/// One call's encoder.
pub struct Encoder {
    opus: opus::Encoder,
    packet: [u8; MAX_PACKET],
    silence: Silence,
}

/// Digital silence: after a few encoded frames of it the packet no longer changes, and is kept.
struct Silence {
    frames: u32,
    packet: Vec<u8>,
}

/// Frames of silence that are still encoded, so that the voice before them fades out inside the decoder as it should.
const SETTLE: u32 = 5;

impl Encoder {
    /// # Errors
    ///
    /// The library refuses the configuration, or is out of memory.
    pub fn new(config: Config) -> Result<Self, Error> {
        let mut opus = opus::Encoder::new(48_000, Channels::Mono, Application::Voip)?;
        opus.set_bitrate(Bitrate::Bits(config.bitrate.clamp(6_000, 510_000) as i32))?;
        opus.set_vbr(true)?;
        opus.set_complexity(i32::from(config.complexity.min(10)))?;
        opus.set_signal(Signal::Voice)?;
        opus.set_inband_fec(true)?;
        opus.set_packet_loss_perc(i32::from(config.loss.min(100)))?;
        Ok(Self { opus, packet: [0; MAX_PACKET], silence: Silence { frames: 0, packet: Vec::new() } })
    }

    /// One packet for 20 ms of sound. A silent frame is a packet too: a track that stops makes the browser invent sound.
    ///
    /// # Errors
    ///
    /// The library fails; nothing was encoded.
    pub fn encode(&mut self, frame: &[i16; FRAME]) -> Result<&[u8], Error> {
        if frame.iter().any(|sample| *sample != 0) {
            self.silence.frames = 0;
        } else {
            self.silence.frames += 1;
            if self.silence.frames > SETTLE && !self.silence.packet.is_empty() {
                self.silence.frames = SETTLE + 1;
                return Ok(&self.silence.packet);
            }
        }
        let length = self.opus.encode(frame, &mut self.packet)?;
        if self.silence.frames > SETTLE {
            self.silence.packet = self.packet[..length].to_vec();
        }
        Ok(&self.packet[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(at: usize) -> [i16; FRAME] {
        core::array::from_fn(|i| ((((at * FRAME + i) as f32) * 0.05).sin() * 8000.0) as i16)
    }

    #[test]
    fn silence_settles_into_one_cached_packet_that_decodes_to_silence() {
        let mut encoder = Encoder::new(Config::default()).unwrap();
        for i in 0..10 {
            assert!(!encoder.encode(&tone(i)).unwrap().is_empty());
        }
        let quiet: Vec<Vec<u8>> = (0..20).map(|_| encoder.encode(&[0; FRAME]).unwrap().to_vec()).collect();
        assert!(quiet[6..].iter().all(|packet| *packet == quiet[6]));
        let mut decoder = opus::Decoder::new(48_000, Channels::Mono).unwrap();
        let mut out = [1; FRAME];
        for packet in &quiet {
            assert_eq!(decoder.decode(packet, &mut out, false).unwrap(), FRAME);
        }
        assert!(out.iter().all(|sample| sample.abs() <= 4), "{:?}", out.iter().max());
    }

    #[test]
    fn sound_after_silence_is_encoded_again() {
        let mut encoder = Encoder::new(Config::default()).unwrap();
        (0..20).for_each(|_| drop(encoder.encode(&[0; FRAME]).map(<[u8]>::len)));
        let silent = encoder.encode(&[0; FRAME]).unwrap().to_vec();
        let loud: Vec<_> = (0..3).map(|i| encoder.encode(&tone(i)).unwrap().to_vec()).collect();
        assert!(loud.iter().all(|packet| *packet != silent && packet.len() > silent.len()));
    }

    #[test]
    fn the_rate_is_near_what_was_asked_for() {
        let mut encoder = Encoder::new(Config::default()).unwrap();
        let bytes: usize = (0..100).map(|i| encoder.encode(&tone(i)).unwrap().len()).sum();
        assert!((2_000..6_000).contains(&(bytes / 2)), "{bytes} bytes in 2 s");
    }
}
