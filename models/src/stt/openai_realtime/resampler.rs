//! Resampling of chunks to 24 kHz, the only rate that the vendor accepts.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler as _};

use crate::stt::streaming::{CHUNK_BYTES, SAMPLE_RATE};
use crate::{Error, ErrorKind};

/// Samples per second.
pub(super) const OUTPUT_RATE: u32 = 24_000;
/// Samples of a chunk at both rates.
const INPUT_SAMPLES: usize = CHUNK_BYTES / 2;
const OUTPUT_SAMPLES: usize = INPUT_SAMPLES * OUTPUT_RATE as usize / SAMPLE_RATE as usize;

/// Resamples chunks of 50 ms. The output is half a chunk later than the input.
pub(super) struct Resampler {
    filter: Fft<f32>,
    input: Vec<f32>,
    output: Vec<f32>,
    bytes: Vec<u8>,
}

impl Resampler {
    /// # Errors
    /// The library refuses the rates, which it never does.
    pub(super) fn new() -> Result<Self, Error> {
        let rates = (SAMPLE_RATE as usize, OUTPUT_RATE as usize);
        let filter =
            Fft::new(rates.0, rates.1, INPUT_SAMPLES, 1, FixedSync::Both).map_err(|e| {
                Error::new(ErrorKind::Failed, "no resampler for the audio").with_source(e)
            })?;
        let (input, output) = (vec![0.0; INPUT_SAMPLES], vec![0.0; OUTPUT_SAMPLES]);
        Ok(Self { filter, input, output, bytes: Vec::new() })
    }

    /// The next chunk, 50 ms long: 16-bit samples, little-endian. A shorter input is
    /// followed by silence. An empty one returns what the filter still holds.
    pub(super) fn process(&mut self, pcm: &[u8]) -> &[u8] {
        let samples = pcm.as_chunks::<2>().0;
        self.input.fill(0.0);
        for (sample, bytes) in self.input.iter_mut().zip(samples) {
            *sample = f32::from(i16::from_le_bytes(*bytes));
        }
        let (input, output) = (&self.input, &mut self.output);
        let resampled = InterleavedSlice::new(input, 1, INPUT_SAMPLES).ok().and_then(|input| {
            let mut output = InterleavedSlice::new_mut(output, 1, OUTPUT_SAMPLES).ok()?;
            self.filter.process_into_buffer(&input, &mut output, None).ok()
        });
        if resampled.is_none() {
            // The sizes are the filter's own, so it never fails.
            self.output.fill(0.0);
        }
        self.bytes.clear();
        // `as` saturates.
        let samples = self.output.iter().map(|s| (s + 0.5_f32.copysign(*s)) as i16);
        self.bytes.extend(samples.flat_map(i16::to_le_bytes));
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_keeps_its_length_and_loudness() {
        let tone = |rate: u32, n: usize| {
            (10_000.0 * (n as f64 / f64::from(rate) * 440.0 * std::f64::consts::TAU).sin()) as i16
        };
        let input: Vec<u8> =
            (0..10 * INPUT_SAMPLES).flat_map(|n| tone(SAMPLE_RATE, n).to_le_bytes()).collect();
        let mut resampler = Resampler::new().unwrap();
        let mut output = Vec::new();
        for chunk in input.chunks(CHUNK_BYTES).chain([&[][..]]) {
            let bytes = resampler.process(chunk);
            assert_eq!(bytes.len(), 2 * OUTPUT_SAMPLES);
            output.extend(bytes.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)));
        }
        let delay = OUTPUT_SAMPLES / 2;
        let worst = (1_000..10 * OUTPUT_SAMPLES - 1_000)
            .map(|n| i32::from(output[n + delay]) - i32::from(tone(OUTPUT_RATE, n)))
            .map(i32::abs)
            .max();
        assert!(worst < Some(120), "off by {worst:?} of 10000");
        let mut resampler = Resampler::new().unwrap();
        assert!(resampler.process(&[0; CHUNK_BYTES]).iter().all(|byte| *byte == 0), "silence");
    }
}
