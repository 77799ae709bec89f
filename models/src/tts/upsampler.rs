//! Resampling of a voice to 48 kHz.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler};

use super::band_extension::{BandExtension, Config};
use crate::{Error, ErrorKind};

/// Hz.
const SAMPLE_RATE: u64 = 48_000;
/// Samples at the voice's rate that the resampler takes at once.
const CHUNK_SAMPLES: usize = 160;
/// Rate of the voices whose band is extended, in Hz.
const EXTENDED_RATE: u64 = 16_000;
/// Sound above 8 kHz, which a voice at 16 kHz cannot have.
const EXTENSION: Config = Config {
    drive_hz: (5_000.0, 8_000.0),
    noise_hz: (8_000.0, 10_500.0),
    vowel_gain: 0.6,
    fricative_gain: 4.0,
};

/// Resamples a voice to 48 kHz. It adds no delay (the filter's delay is cut off), and the output is
/// exactly as long as the input. A voice at 16 kHz gets modest noise above 8 kHz in its fricatives.
pub struct Upsampler {
    rate: u64,
    resampler: Option<Fft<f32>>,
    extension: Option<BandExtension>,
    input: Vec<f32>,
    output: Vec<f32>,
    /// Samples of the filter's delay still to be cut off.
    delay_left: usize,
    samples_in: u64,
    samples_out: u64,
}

impl Upsampler {
    /// A resampler from `rate` Hz.
    ///
    /// # Errors
    /// The rate is outside the range of voices (8 to 96 kHz).
    pub fn new(rate: u32) -> Result<Self, Error> {
        let rate = u64::from(rate);
        if !(8_000..=96_000).contains(&rate) {
            return Err(Error::new(
                ErrorKind::Rejected,
                format!("the voice has an invalid sample rate of {rate} Hz"),
            ));
        }
        let mut this = Self {
            rate,
            resampler: None,
            extension: (rate == EXTENDED_RATE)
                .then(|| BandExtension::new(SAMPLE_RATE as f32, &EXTENSION)),
            input: Vec::with_capacity(2 * CHUNK_SAMPLES),
            output: Vec::new(),
            delay_left: 0,
            samples_in: 0,
            samples_out: 0,
        };
        if rate != SAMPLE_RATE {
            let resampler =
                Fft::new(rate as usize, SAMPLE_RATE as usize, CHUNK_SAMPLES, 1, FixedSync::Input)
                    .map_err(|e| {
                    Error::new(ErrorKind::Rejected, "no resampler for the voice").with_source(e)
                })?;
            this.delay_left = resampler.output_delay();
            this.output = vec![0.0; resampler.output_frames_max()];
            this.resampler = Some(resampler);
        }
        Ok(this)
    }

    /// Takes samples and returns the completed output.
    pub fn push(&mut self, pcm: &[i16]) -> Vec<i16> {
        self.samples_in += pcm.len() as u64;
        if self.resampler.is_none() {
            self.samples_out += pcm.len() as u64;
            return pcm.to_vec();
        }
        self.input.extend(pcm.iter().map(|s| f32::from(*s)));
        let mut out = Vec::with_capacity(
            (pcm.len() as u64 * SAMPLE_RATE / self.rate) as usize + CHUNK_SAMPLES * 6,
        );
        let whole = self.input.len() / CHUNK_SAMPLES * CHUNK_SAMPLES;
        for from in (0..whole).step_by(CHUNK_SAMPLES) {
            self.process_chunk(from, CHUNK_SAMPLES, &mut out);
        }
        self.input.drain(..whole);
        out
    }

    /// Returns the rest: what the filter still holds.
    pub fn finish(&mut self) -> Vec<i16> {
        let mut out = Vec::new();
        let due = (self.samples_in * SAMPLE_RATE).div_ceil(self.rate);
        let left = self.input.len();
        if left > 0 {
            self.input.resize(CHUNK_SAMPLES, 0.0);
            self.process_chunk(0, left, &mut out);
            self.input.clear();
        }
        self.input.resize(CHUNK_SAMPLES, 0.0);
        while self.resampler.is_some() && self.samples_out < due {
            self.process_chunk(0, 0, &mut out);
        }
        let surplus = (self.samples_out - due) as usize;
        out.truncate(out.len().saturating_sub(surplus));
        self.samples_out = due;
        self.input.clear();
        out
    }

    fn process_chunk(&mut self, from: usize, valid: usize, out: &mut Vec<i16>) {
        let Some(resampler) = self.resampler.as_mut() else { return };
        let frames = self.output.len();
        let written =
            InterleavedSlice::new(&self.input[from..from + CHUNK_SAMPLES], 1, CHUNK_SAMPLES)
                .ok()
                .and_then(|input| {
                    let mut output = InterleavedSlice::new_mut(&mut self.output, 1, frames).ok()?;
                    resampler
                        .process_into_buffer(
                            &input,
                            &mut output,
                            Some(&Indexing::new().partial_len(valid)),
                        )
                        .ok()
                });
        // The sizes are the resampler's own, so it never fails; if it did, silence would replace
        // the audio.
        let (_, written) = written.unwrap_or((CHUNK_SAMPLES, 0));
        let cut = self.delay_left.min(written);
        self.delay_left -= cut;
        self.samples_out += (written - cut) as u64;
        if let Some(extension) = &mut self.extension {
            self.output[cut..written].iter_mut().for_each(|s| *s += extension.process(*s));
        }
        // Rounds halves away from zero; `as` saturates. `round` would be a function call per
        // sample.
        out.extend(self.output[cut..written].iter().map(|s| (s + 0.5f32.copysign(*s)) as i16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hz: f64, samples: usize) -> Vec<i16> {
        (0..samples)
            .map(|i| {
                (10_000.0 * (i as f64 / f64::from(rate) * hz * std::f64::consts::TAU).sin()) as i16
            })
            .collect()
    }

    fn upsample(rate: u32, pcm: &[i16], portion: usize) -> Vec<i16> {
        let mut upsampler = Upsampler::new(rate).unwrap();
        let mut out = Vec::new();
        for part in pcm.chunks(portion) {
            out.extend(upsampler.push(part));
        }
        out.extend(upsampler.finish());
        out
    }

    #[test]
    fn a_tone_keeps_its_length_place_and_loudness() {
        for rate in [8_000, 16_000, 22_050, 24_000, 44_100, 48_000] {
            let n = rate as usize / 2 + 77;
            let out = upsample(rate, &tone(rate, 440.0, n), 333);
            assert_eq!(out.len(), (n as u64 * 48_000).div_ceil(u64::from(rate)) as usize, "{rate}");
            let ideal = tone(48_000, 440.0, out.len());
            let worst = out[480..out.len() - 480]
                .iter()
                .zip(&ideal[480..])
                .map(|(a, b)| (i32::from(*a) - i32::from(*b)).abs())
                .max()
                .unwrap();
            // If 48 kHz is not a multiple of the rate, the whole segment is up to one sample early:
            // at most 576 on this slope.
            let limit = if 48_000 % rate == 0 { 120 } else { 576 };
            assert!(worst < limit, "{rate} Hz: off by {worst} of 10000");
        }
    }

    #[test]
    fn the_first_chunk_is_passed_on_at_once() {
        let mut upsampler = Upsampler::new(16_000).unwrap();
        let first = upsampler.push(&tone(16_000, 440.0, 800));
        assert!(first.len() >= 2_150, "all but the filter's 5 ms: {}", first.len());
    }

    #[test]
    fn a_fricative_at_16_khz_gets_sound_above_8_khz_in_the_same_way_for_any_split() {
        let hiss: Vec<i16> = tone(16_000, 6_500.0, 8_000);
        let whole = upsample(16_000, &hiss, hiss.len());
        for portion in [1, 7, 160, 333] {
            assert_eq!(upsample(16_000, &hiss, portion), whole, "{portion}");
        }
        // Without the tone itself, found as the projection on it.
        let (mut re, mut im, mut power) = (0.0, 0.0, 0.0);
        let inner = &whole[2_400..21_600];
        for (n, x) in inner.iter().enumerate() {
            let (sin, cos) = (std::f64::consts::TAU * 6_500.0 / 48_000.0 * n as f64).sin_cos();
            let x = f64::from(*x);
            (re, im, power) = (re + x * cos, im + x * sin, power + x * x);
        }
        let tone = 2.0 * (re * re + im * im) / inner.len() as f64;
        let decibels = 10.0 * ((power - tone) / tone).log10();
        assert!((-20.0..0.0).contains(&decibels), "the added sound has {decibels:.1} dB");
        assert!(upsample(16_000, &[0; 1_600], 160).iter().all(|x| *x == 0), "silence");
    }

    #[test]
    fn an_impossible_rate_is_a_failure_of_the_voice() {
        assert_eq!(Upsampler::new(0).err().unwrap().kind(), ErrorKind::Rejected);
    }

    #[test]
    fn an_empty_piece_ends_without_samples() {
        assert!(Upsampler::new(16_000).unwrap().finish().is_empty());
    }
}
