//! Input features of smart-turn: the log-mel spectrogram of Whisper, over eight seconds.
//!
//! Computed as by `transformers.WhisperFeatureExtractor(chunk_length=8)` with `do_normalize=True`,
//! on which the network was trained. Reference values come from the copy of that extractor in the
//! Python package that ships the network (`models/tests/turn/expected.py`).

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

/// Samples of a buffer: 8 s at 16 kHz.
pub const BUFFER_SAMPLES: usize = 128_000;
/// Number of mel bands.
pub const MEL_BANDS: usize = 80;
/// Frames of a buffer, 10 ms apart.
pub const FRAMES: usize = BUFFER_SAMPLES / HOP;

const HOP: usize = 160;
/// Samples of a frame.
const FFT_SIZE: usize = 400;
const BINS: usize = FFT_SIZE / 2 + 1;
/// Width of an FFT bin, Hz.
const BIN_HZ: f64 = 40.0;
/// Lower bound of the power of a band.
const POWER_FLOOR: f64 = 1e-10;
/// Added to the variance, which is zero for silence.
const VARIANCE_EPSILON: f64 = 1e-7;
/// Dynamic range below the loudest value of the spectrogram, in decades of power.
const DYNAMIC_RANGE: f32 = 8.0;

/// One triangle of the filter bank: weights from bin `from` on.
struct Filter {
    from: usize,
    weights: Vec<f64>,
}

/// Feature extractor with its buffers.
pub struct FeatureExtractor {
    fft: Arc<dyn RealToComplex<f64>>,
    window: Vec<f64>,
    filters: Vec<Filter>,
    /// The normalized buffer, extended by half a frame of reflected samples at each end.
    padded: Vec<f64>,
    frame: Vec<f64>,
    bins: Vec<Complex<f64>>,
    power: Vec<f64>,
    scratch: Vec<Complex<f64>>,
}

impl Default for FeatureExtractor {
    fn default() -> Self {
        Self::new()
    }
}

impl FeatureExtractor {
    /// Creates an extractor: about 10 ms of work and 1 MiB.
    #[must_use]
    pub fn new() -> Self {
        let fft = RealFftPlanner::new().plan_fft_forward(FFT_SIZE);
        // The periodic Hann window: one period of a cosine. Its last sample would be the first of
        // the next period.
        let hann = |n| 0.5 - 0.5 * (std::f64::consts::TAU * n as f64 / FFT_SIZE as f64).cos();
        Self {
            window: (0..FFT_SIZE).map(hann).collect(),
            filters: filter_bank(),
            padded: vec![0.0; BUFFER_SAMPLES + FFT_SIZE],
            frame: fft.make_input_vec(),
            bins: fft.make_output_vec(),
            power: vec![0.0; BINS],
            scratch: fft.make_scratch_vec(),
            fft,
        }
    }

    /// Writes the [`MEL_BANDS`] × [`FRAMES`] features of the last 8 s of `sound` (16 kHz mono) to
    /// `out`, band by band. Shorter audio is preceded by silence.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn extract(&mut self, sound: &[i16], out: &mut [f32]) {
        assert_eq!(out.len(), MEL_BANDS * FRAMES, "the output has the size of one buffer");
        self.fill_normalized(sound);
        let mut loudest = f32::MIN;
        for at in 0..FRAMES {
            for ((to, from), window) in
                self.frame.iter_mut().zip(&self.padded[at * HOP..]).zip(&self.window)
            {
                *to = from * window;
            }
            // The FFT fails only for buffers of wrong lengths; these are its own.
            let transformed =
                self.fft.process_with_scratch(&mut self.frame, &mut self.bins, &mut self.scratch);
            debug_assert!(transformed.is_ok());
            for (power, bin) in self.power.iter_mut().zip(&self.bins) {
                *power = bin.norm_sqr();
            }
            for (band, filter) in self.filters.iter().enumerate() {
                let power =
                    filter.weights.iter().zip(&self.power[filter.from..]).map(|(w, p)| w * p);
                let log = power.sum::<f64>().max(POWER_FLOOR).log10() as f32;
                loudest = loudest.max(log);
                out[band * FRAMES + at] = log;
            }
        }
        for value in out {
            *value = (value.max(loudest - DYNAMIC_RANGE) + 4.0) / 4.0;
        }
    }

    /// Fills the buffer with samples of mean 0 and variance 1, then reflects its ends. The silence
    /// before short audio counts in both.
    fn fill_normalized(&mut self, sound: &[i16]) {
        const HALF: usize = FFT_SIZE / 2;
        let sound = &sound[sound.len().saturating_sub(BUFFER_SAMPLES)..];
        let count = BUFFER_SAMPLES as f64;
        let mean = sound.iter().map(|s| f64::from(*s)).sum::<f64>() / count / 32_768.0;
        let silence = BUFFER_SAMPLES - sound.len();
        let buffer = &mut self.padded[HALF..HALF + BUFFER_SAMPLES];
        buffer[..silence].fill(-mean);
        for (to, from) in buffer[silence..].iter_mut().zip(sound) {
            *to = f64::from(*from) / 32_768.0 - mean;
        }
        let variance = buffer.iter().map(|x| x * x).sum::<f64>() / count;
        let scale = 1.0 / (variance + VARIANCE_EPSILON).sqrt();
        for x in buffer {
            *x *= scale;
        }
        for i in 0..HALF {
            self.padded[i] = self.padded[FFT_SIZE - i];
            self.padded[HALF + BUFFER_SAMPLES + i] = self.padded[HALF + BUFFER_SAMPLES - 2 - i];
        }
    }
}

/// Triangles of equal area from 0 to 8 kHz on Slaney's mel scale, as in his Auditory Toolbox. The
/// scale is linear below 1 kHz and logarithmic above.
fn filter_bank() -> Vec<Filter> {
    let last = mel(8_000.0);
    let edges: Vec<f64> =
        (0..MEL_BANDS + 2).map(|n| hertz(last * n as f64 / (MEL_BANDS + 1) as f64)).collect();
    let filter = |edges: &[f64]| {
        let [low, middle, high] = [edges[0], edges[1], edges[2]];
        let weight = |bin: usize| {
            let f = bin as f64 * BIN_HZ;
            let rises = (f - low) / (middle - low);
            let falls = (high - f) / (high - middle);
            rises.min(falls).max(0.0) * 2.0 / (high - low)
        };
        let from = (0..BINS).find(|bin| weight(*bin) > 0.0).unwrap_or(0);
        Filter { from, weights: (from..BINS).map(weight).take_while(|w| *w > 0.0).collect() }
    };
    edges.windows(3).map(filter).collect()
}

/// Where the mel scale becomes logarithmic: 1 kHz, 15 mel. A factor of 6.4 is 27 mel.
const LINEAR_LIMIT: (f64, f64) = (1_000.0, 15.0);

fn mel(hertz: f64) -> f64 {
    if hertz < LINEAR_LIMIT.0 {
        hertz * 3.0 / 200.0
    } else {
        LINEAR_LIMIT.1 + (hertz / LINEAR_LIMIT.0).ln() * 27.0 / 6.4f64.ln()
    }
}

fn hertz(mel: f64) -> f64 {
    if mel < LINEAR_LIMIT.1 {
        mel * 200.0 / 3.0
    } else {
        LINEAR_LIMIT.0 * ((mel - LINEAR_LIMIT.1) * 6.4f64.ln() / 27.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_band_hears_something_and_each_bin_between_them_is_heard() {
        let filters = filter_bank();
        assert_eq!(filters.len(), MEL_BANDS);
        assert!(filters.iter().all(|f| !f.weights.is_empty()));
        for bin in 1..BINS - 1 {
            assert!(
                filters.iter().any(|f| (f.from..f.from + f.weights.len()).contains(&bin)),
                "{} Hz is heard by no band",
                bin as f64 * BIN_HZ
            );
        }
    }

    #[test]
    fn silence_is_one_value_and_no_number_is_missing() {
        let mut out = vec![0.0; MEL_BANDS * FRAMES];
        FeatureExtractor::new().extract(&[0; 16_000], &mut out);
        assert!(out.iter().all(|x| *x == -1.5), "(log10 of 1e-10 + 4) / 4 everywhere");
        FeatureExtractor::new().extract(&[i16::MIN; 1], &mut out);
        assert!(out.iter().all(|x| x.is_finite()));
    }

    #[test]
    fn only_the_last_eight_seconds_count_and_buffers_are_used_again() {
        let sound: Vec<i16> =
            (0..BUFFER_SAMPLES + 5_000).map(|i| ((i * i) % 9_001) as i16 - 4_500).collect();
        let (mut whole, mut last) = (vec![0.0; MEL_BANDS * FRAMES], vec![0.0; MEL_BANDS * FRAMES]);
        let mut features = FeatureExtractor::new();
        features.extract(&sound, &mut whole);
        features.extract(&[1_000; 40_000], &mut last);
        features.extract(&sound[5_000..], &mut last);
        assert!(whole == last);
    }
}
