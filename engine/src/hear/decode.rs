//! Decodes Opus directly to the format of the VAD and the STT: 16 kHz mono. The decoder mixes
//! stereo down.

use opus::Channels;

use super::jitter::{Frame, FrameKind};

/// Sample rate of the output in Hz.
pub const SAMPLE_RATE: u32 = 16_000;
/// Samples of the longest Opus packet, 120 ms.
const MAX_FRAME_SAMPLES: usize = 1920;

/// An error of the Opus library.
#[derive(Debug, thiserror::Error)]
#[error("opus: {0}")]
pub struct Error(#[from] opus::Error);

/// The decoder of one call.
pub struct Decoder {
    opus: opus::Decoder,
    buffer: [i16; MAX_FRAME_SAMPLES],
    decode_failures: u64,
}

impl Decoder {
    /// Creates a decoder.
    ///
    /// # Errors
    ///
    /// The library is out of memory.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            opus: opus::Decoder::new(SAMPLE_RATE, Channels::Mono)?,
            buffer: [0; MAX_FRAME_SAMPLES],
            decode_failures: 0,
        })
    }

    /// Number of packets that could not be decoded and were replaced by silence.
    #[must_use]
    pub fn decode_failures(&self) -> u64 {
        self.decode_failures
    }

    /// Appends the frame's samples: always a third of `frame.samples`, whatever the packet
    /// contains.
    pub fn decode(&mut self, frame: &Frame, out: &mut Vec<i16>) {
        let samples = (frame.samples as usize / 3).min(MAX_FRAME_SAMPLES);
        let decoded = match &frame.kind {
            FrameKind::Packet(packet) => self.opus.decode(packet, &mut self.buffer, false),
            // With FEC and concealment, the output length tells the decoder how much is missing.
            FrameKind::Fec(next) => self.opus.decode(next, &mut self.buffer[..samples], true),
            FrameKind::Conceal => self.opus.decode(&[], &mut self.buffer[..samples], false),
            FrameKind::Silence => Ok(0),
        };
        let length = decoded.unwrap_or_else(|_| {
            self.decode_failures += 1;
            0
        });
        let length = length.min(samples);
        out.extend_from_slice(&self.buffer[..length]);
        out.resize(out.len() + samples - length, 0);
    }
}

/// Audio level in dB of full scale: 0 is a full-scale square wave, −3 a sine, silence
/// [`SILENCE_DBFS`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelMeter {
    sum: f64,
    count: u32,
}

/// Level of silence, and the lowest level reported.
pub const SILENCE_DBFS: f32 = -90.0;

impl LevelMeter {
    /// Adds samples to the measurement.
    pub fn add(&mut self, samples: &[i16]) {
        self.sum +=
            samples.iter().map(|sample| f64::from(*sample) * f64::from(*sample)).sum::<f64>();
        self.count += samples.len() as u32;
    }

    /// Number of samples added since the last [`LevelMeter::take`].
    #[must_use]
    pub fn sample_count(&self) -> u32 {
        self.count
    }

    /// Returns the RMS level of the added samples in dBFS and resets the measurement.
    pub fn take(&mut self) -> f32 {
        let Self { sum, count } = std::mem::take(self);
        if count == 0 || sum == 0.0 {
            return SILENCE_DBFS;
        }
        let rms = (sum / f64::from(count)).sqrt() / 32_768.0;
        ((20.0 * rms.log10()) as f32).max(SILENCE_DBFS)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn packets(count: usize) -> Vec<Bytes> {
        let mut encoder = crate::speak::encode::Encoder::new().unwrap();
        // With in-band FEC: each packet contains a copy of the one before.
        encoder.on_packet_loss(0.1).unwrap();
        (0..count)
            .map(|at| {
                let tone: [i16; 960] = core::array::from_fn(|i| {
                    (((at * 960 + i) as f32 * 0.06).sin() * 9000.0) as i16
                });
                Bytes::copy_from_slice(encoder.encode(&tone).unwrap())
            })
            .collect()
    }

    fn frame(kind: FrameKind) -> Frame {
        Frame { timestamp: 0, samples: 960, end_time: crate::clock::now(), kind }
    }

    fn level(samples: &[i16]) -> f32 {
        let mut level = LevelMeter::default();
        level.add(samples);
        level.take()
    }

    #[test]
    fn a_lost_packet_is_heard_again_from_the_next_one() {
        let packets = packets(12);
        let mut decoder = Decoder::new().unwrap();
        let mut out = Vec::new();
        for packet in &packets[..10] {
            decoder.decode(&frame(FrameKind::Packet(packet.clone())), &mut out);
        }
        out.clear();
        decoder.decode(&frame(FrameKind::Fec(packets[11].clone())), &mut out);
        decoder.decode(&frame(FrameKind::Packet(packets[11].clone())), &mut out);
        assert_eq!(out.len(), 640);
        assert!((level(&out[..320]) + 14.0).abs() < 3.0, "{}", level(&out[..320]));
        assert!((level(&out[320..]) + 14.0).abs() < 3.0);
    }

    #[test]
    fn concealment_fades_and_silence_is_silent() {
        let mut decoder = Decoder::new().unwrap();
        let mut out = Vec::new();
        for packet in &packets(10) {
            decoder.decode(&frame(FrameKind::Packet(packet.clone())), &mut out);
        }
        out.clear();
        decoder.decode(&frame(FrameKind::Conceal), &mut out);
        assert_eq!(out.len(), 320);
        assert!(level(&out) > -40.0);
        out.clear();
        decoder.decode(&frame(FrameKind::Silence), &mut out);
        assert_eq!(out, vec![0; 320]);
    }

    #[test]
    fn an_invalid_packet_is_decoded_as_silence_of_the_right_length() {
        let mut decoder = Decoder::new().unwrap();
        let mut out = Vec::new();
        decoder
            .decode(&frame(FrameKind::Packet(Bytes::from_static(&[0xff, 0xff, 0xff]))), &mut out);
        assert_eq!(out.len(), 320);
        assert_eq!(decoder.decode_failures(), 1);
    }

    #[test]
    fn levels_are_those_of_known_signals() {
        assert_eq!(level(&[]), SILENCE_DBFS);
        assert_eq!(level(&[0; 100]), SILENCE_DBFS);
        assert!(level(&[i16::MIN; 100]).abs() < 0.01);
        assert!((level(&[3277; 100]) + 20.0).abs() < 0.01);
    }
}
