//! Features of the network: the logarithmic power in 24 bands, every 10 ms. As computed by
//! `scripts/lips/sound.py`.

use std::sync::{Arc, LazyLock};

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

/// Number of bands, evenly spaced on the mel scale.
pub const MEL_BANDS: usize = 24;
const MIN_HZ: f64 = 60.0;
const MAX_HZ: f64 = 7_600.0;
/// Samples at 48 kHz from one frame to the next, and samples in the window of a frame. The window
/// extends equally before and after the frame's 10 ms.
const HOP: usize = 480;
const WINDOW: usize = 1_200;
const SAMPLES_BEFORE: usize = (WINDOW - HOP) / 2;
/// Duration of the window after the frame's 10 ms, in seconds.
pub(super) const SECONDS_AFTER: f32 = 0.0075;
/// Width of an FFT bin, Hz.
const BIN_HZ: f64 = 40.0;
/// Added to the power of every band, so that anything quieter is silence.
const POWER_FLOOR: f32 = 1e-9;
/// Features of silence: ln of [`POWER_FLOOR`].
pub(super) const SILENT_FRAME: [f32; MEL_BANDS] = [-20.723_266; MEL_BANDS];

/// Tables that all streams share.
struct FilterBank {
    fft: Arc<dyn RealToComplex<f32>>,
    /// One period of a cosine (Hann), divided by its sum and by 32,768, the full scale of a sample.
    window: Vec<f32>,
    /// First bin and weights of each band's triangle.
    filters: Vec<(usize, Vec<f32>)>,
}

static FILTER_BANK: LazyLock<FilterBank> = LazyLock::new(|| {
    let hann = |n| 0.5 - 0.5 * (std::f64::consts::TAU * n as f64 / WINDOW as f64).cos();
    let scale = (0..WINDOW).map(hann).sum::<f64>() * 32_768.0;
    FilterBank {
        fft: RealFftPlanner::new().plan_fft_forward(WINDOW),
        window: (0..WINDOW).map(|n| (hann(n) / scale) as f32).collect(),
        filters: mel_filters(),
    }
});

/// Triangles of height 1 on the mel scale.
fn mel_filters() -> Vec<(usize, Vec<f32>)> {
    let mel = |hertz: f64| 2_595.0 * (1.0 + hertz / 700.0).log10();
    let hertz = |mel: f64| 700.0 * (10f64.powf(mel / 2_595.0) - 1.0);
    let step = (mel(MAX_HZ) - mel(MIN_HZ)) / (MEL_BANDS + 1) as f64;
    let edges: Vec<f64> =
        (0..MEL_BANDS + 2).map(|n| hertz(mel(MIN_HZ) + step * n as f64)).collect();
    let triangle = |edges: &[f64]| {
        let [low, middle, high] = [edges[0], edges[1], edges[2]];
        let weight = |bin: usize| {
            let f = bin as f64 * BIN_HZ;
            ((f - low) / (middle - low)).min((high - f) / (high - middle))
        };
        let from = (low / BIN_HZ) as usize + 1;
        (from, (from..).map(weight).take_while(|w| *w > 0.0).map(|w| w as f32).collect())
    };
    edges.windows(3).map(triangle).collect()
}

/// Iterator over the frames of one stream of samples.
pub struct FeatureExtractor {
    /// Samples from the window of the next frame on, after the first `consumed` samples.
    pending: Vec<i16>,
    consumed: usize,
    /// Samples after the last complete 10 ms.
    remainder: usize,
    input: Vec<f32>,
    bins: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl Default for FeatureExtractor {
    fn default() -> Self {
        Self::new()
    }
}

impl FeatureExtractor {
    /// A new stream, preceded by silence.
    #[must_use]
    pub fn new() -> Self {
        let fft = &FILTER_BANK.fft;
        let mut waiting = Vec::with_capacity(4 * WINDOW);
        waiting.resize(SAMPLES_BEFORE, 0);
        Self {
            pending: waiting,
            consumed: 0,
            remainder: 0,
            input: fft.make_input_vec(),
            bins: fft.make_output_vec(),
            scratch: fft.make_scratch_vec(),
        }
    }

    /// Takes mono samples at 48 kHz.
    pub fn push(&mut self, pcm: &[i16]) {
        self.pending.drain(..std::mem::take(&mut self.consumed));
        self.pending.extend_from_slice(pcm);
        self.remainder = (self.remainder + pcm.len()) % HOP;
    }

    /// Ends the stream with silence, and returns the frames whose windows are now complete. A
    /// remainder of less than 10 ms has no frame.
    pub fn finish(&mut self) -> impl Iterator<Item = [f32; MEL_BANDS]> + use<'_> {
        const SAMPLES_AFTER: usize = WINDOW - HOP - SAMPLES_BEFORE;
        self.push(&[0; SAMPLES_AFTER][self.remainder.min(SAMPLES_AFTER)..]);
        self
    }
}

impl Iterator for FeatureExtractor {
    type Item = [f32; MEL_BANDS];

    /// The next frame whose window is complete.
    fn next(&mut self) -> Option<Self::Item> {
        let samples = self.pending.get(self.consumed..self.consumed + WINDOW)?;
        for ((to, from), weight) in self.input.iter_mut().zip(samples).zip(&FILTER_BANK.window) {
            *to = f32::from(*from) * weight;
        }
        self.consumed += HOP;
        // The FFT fails only for buffers of wrong lengths; these are its own.
        let done = FILTER_BANK.fft.process_with_scratch(
            &mut self.input,
            &mut self.bins,
            &mut self.scratch,
        );
        debug_assert!(done.is_ok());
        let mut frame = [0.0; MEL_BANDS];
        for (value, (from, weights)) in frame.iter_mut().zip(&FILTER_BANK.filters) {
            let power: f32 =
                weights.iter().zip(&self.bins[*from..]).map(|(w, bin)| w * bin.norm_sqr()).sum();
            *value = (power + POWER_FLOOR).ln();
        }
        Some(frame)
    }
}
