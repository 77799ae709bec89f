//! From the network's spectrum to samples.
//!
//! With the spectrum `E` of the pulse train and complex Gaussian noise `Z`, a frame has the spectrum
//!
//! ```text
//! S = exp(harmonic) · e^(iπ tanh(harmonic_phase)) · E  +  exp(noise) · Z
//!   + exp(free) · e^(i · free_phase)
//! ```
//!
//! and the samples are its inverse short-time Fourier transform: Hann windows of 1200 samples, 300
//! samples apart. (Formulas of the package `hibari-tts`.)

use std::ops::Range;
use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::fast_math::{cos, exp, sin, tanh};
use super::pulses::pulse_train;

pub(super) const SAMPLE_RATE: u32 = 24_000;
/// Samples between two frames.
pub(super) const HOP: usize = 300;
/// Samples of one unit of the network's durations: two frames.
pub(super) const UNIT: usize = 2 * HOP;
const WINDOW: usize = 1_200;
const BINS: usize = WINDOW / 2 + 1;
/// Windows that overlap.
const OVERLAP: usize = WINDOW / HOP;
/// Frames that are computed together: .2 s.
const BLOCK: usize = 16;
/// Upper limit of a logarithmic magnitude.
const MAX_LOG_MAGNITUDE: f32 = 7.0;
/// Complex values in the table of noise.
const NOISE: usize = 1 << 13;

/// The network's outputs. All but the pitch are `[BINS, frames]`, bin by bin.
pub(super) struct Spectra<'a> {
    pub(super) harmonic: &'a [f32],
    pub(super) harmonic_phase: &'a [f32],
    pub(super) noise: &'a [f32],
    pub(super) free: &'a [f32],
    pub(super) free_phase: &'a [f32],
    /// Pitch of each frame in Hz; 0 if it is unvoiced.
    pub(super) pitch: &'a [f32],
}

impl Spectra<'_> {
    /// Number of frames.
    fn frames(&self) -> usize {
        self.pitch.len()
    }

    /// Whether all parts have the same number of frames.
    pub(super) fn is_complete(&self) -> bool {
        let parts = [self.harmonic, self.harmonic_phase, self.noise, self.free, self.free_phase];
        parts.iter().all(|part| part.len() == BINS * self.frames())
    }

    /// Number of samples.
    pub(super) fn samples(&self) -> usize {
        self.frames() * HOP
    }
}

/// The transforms, with their memory.
pub(super) struct Vocoder {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    scratch: Vec<Complex32>,
    window: Vec<f32>,
    noise: Vec<Complex32>,
    random: u64,
    pulses: Vec<f32>,
    frame: Vec<f32>,
    /// Spectra of the pulses, and of the result: `[BLOCK, BINS]`.
    source: Vec<Complex32>,
    result: Vec<Complex32>,
    /// Sum of the windows that are not complete yet.
    overlap: Vec<f32>,
}

impl Vocoder {
    pub(super) fn new() -> Self {
        let mut planner = RealFftPlanner::new();
        let (forward, inverse) =
            (planner.plan_fft_forward(WINDOW), planner.plan_fft_inverse(WINDOW));
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        let hann = |n| 0.5 - 0.5 * (std::f32::consts::TAU * n as f32 / WINDOW as f32).cos();
        Self {
            scratch: vec![Complex32::default(); scratch],
            forward,
            inverse,
            window: (0..WINDOW).map(hann).collect(),
            noise: gaussian_noise(),
            random: 0,
            pulses: Vec::new(),
            frame: vec![0.0; WINDOW],
            source: vec![Complex32::default(); BLOCK * BINS],
            result: vec![Complex32::default(); BLOCK * BINS],
            overlap: vec![0.0; WINDOW],
        }
    }

    /// Makes the noise of the following calls a function of `seed`.
    pub(super) fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// Computes the samples of `range`, from -1 to 1, and passes them to `emit` in order, .2 s at a
    /// time. Stops when `emit` returns false.
    pub(super) fn synthesise(
        &mut self,
        spectra: &Spectra<'_>,
        range: Range<usize>,
        mut emit: impl FnMut(&[f32]) -> bool,
    ) {
        let range = range.start..range.end.min(spectra.samples());
        if range.is_empty() {
            return;
        }
        pulse_train(spectra.pitch, &mut self.pulses);
        self.overlap.fill(0.0);
        // Hop `n` of the result is the sum of the frames `n - 1` to `n + 2`.
        let first = (range.start / HOP).saturating_sub(1);
        let last = (range.end.div_ceil(HOP) + 2).min(spectra.frames());
        let mut samples: Vec<f32> = Vec::with_capacity((BLOCK + 2) * HOP);
        let mut next_hop = first as isize - 2;
        for start in (first..last).step_by(BLOCK) {
            let count = BLOCK.min(last - start);
            self.transform_block(spectra, start, count);
            samples.clear();
            for at in 0..count {
                self.add_frame(at);
                self.take_hop(&mut samples, next_hop, &range, spectra.frames());
                next_hop += 1;
            }
            if start + count == last {
                // The rest of the last windows.
                for _ in 0..2 {
                    self.take_hop(&mut samples, next_hop, &range, spectra.frames());
                    next_hop += 1;
                }
            }
            if !samples.is_empty() && !emit(&samples) {
                return;
            }
        }
    }

    /// Spectra of the frames from `start` on, to `self.result`.
    fn transform_block(&mut self, spectra: &Spectra<'_>, start: usize, count: usize) {
        let mut voiced = [false; BLOCK];
        let mut noise_offsets = [0; BLOCK];
        for at in 0..count {
            voiced[at] = self.transform_pulses(start + at, at);
            noise_offsets[at] = self.next_random() as usize % NOISE;
        }
        let frames = spectra.frames();
        let row = |values: &[f32], bin: usize| {
            let mut row = [0.0; BLOCK];
            let from = bin * frames + start;
            row[..count].copy_from_slice(&values[from..from + count]);
            row
        };
        for bin in 0..BINS {
            let harmonic = row(spectra.harmonic, bin).map(magnitude);
            let phase = row(spectra.harmonic_phase, bin).map(|x| std::f32::consts::PI * tanh(x));
            let (phase_re, phase_im) = (phase.map(cos), phase.map(sin));
            let noise = row(spectra.noise, bin).map(magnitude);
            let free = row(spectra.free, bin).map(magnitude);
            let free_phase = row(spectra.free_phase, bin);
            let (free_re, free_im) = (free_phase.map(cos), free_phase.map(sin));
            for at in 0..count {
                let z = self.noise[(noise_offsets[at] + bin) % NOISE];
                let mut sum = z * noise[at] + Complex32::new(free_re[at], free_im[at]) * free[at];
                if voiced[at] {
                    let rotation = Complex32::new(phase_re[at], phase_im[at]);
                    sum += self.source[at * BINS + bin] * rotation * harmonic[at];
                }
                self.result[at * BINS + bin] = sum;
            }
        }
    }

    /// The spectrum of the pulses around `frame`, to `self.source` at `at`. False if there are none.
    fn transform_pulses(&mut self, frame: usize, at: usize) -> bool {
        let center = frame * HOP;
        let begin = center.saturating_sub(WINDOW / 2);
        let end = (center + WINDOW / 2).min(self.pulses.len());
        let pulses = &self.pulses[begin..end];
        if pulses.iter().all(|x| *x == 0.0) {
            return false;
        }
        self.frame.fill(0.0);
        let offset = begin + WINDOW / 2 - center;
        // The sum of the window is WINDOW / 2. With this factor a cosine of amplitude 1 has the
        // magnitude 1.
        let scale = 4.0 / WINDOW as f32;
        let target = self.frame.iter_mut().zip(&self.window).skip(offset);
        for ((target, window), pulse) in target.zip(pulses) {
            *target = pulse * window * scale;
        }
        let spectrum = &mut self.source[at * BINS..(at + 1) * BINS];
        self.forward.process_with_scratch(&mut self.frame, spectrum, &mut self.scratch).is_ok()
    }

    /// Adds the samples of the frame at `at` of the block to the overlap.
    fn add_frame(&mut self, at: usize) {
        let spectrum = &mut self.result[at * BINS..(at + 1) * BINS];
        // The spectrum of real samples is real at both ends.
        spectrum[0].im = 0.0;
        spectrum[BINS - 1].im = 0.0;
        let done = self.inverse.process_with_scratch(spectrum, &mut self.frame, &mut self.scratch);
        if done.is_ok() {
            for ((sum, sample), window) in
                self.overlap.iter_mut().zip(&self.frame).zip(&self.window)
            {
                *sum += sample * window / WINDOW as f32;
            }
        }
    }

    /// Moves the first hop of the overlap, which is complete, to `samples` as far as it is in
    /// `range`. `hop` is its number.
    fn take_hop(
        &mut self,
        samples: &mut Vec<f32>,
        hop: isize,
        range: &Range<usize>,
        frames: usize,
    ) {
        if let Ok(hop) = usize::try_from(hop) {
            let begin = hop * HOP;
            let from = range.start.clamp(begin, begin + HOP);
            let to = range.end.clamp(begin, begin + HOP);
            for at in from..to {
                let weight: f32 = (0..OVERLAP)
                    // The quarter of the window of frame `hop + 2 - quarter`.
                    .filter(|quarter| (*quarter..frames + quarter).contains(&(hop + 2)))
                    .map(|quarter| self.window[quarter * HOP + at - begin].powi(2))
                    .sum();
                samples.push(self.overlap[at - begin] / weight.max(1e-3));
            }
        }
        self.overlap.copy_within(HOP.., 0);
        self.overlap[WINDOW - HOP..].fill(0.0);
    }

    /// A step of SplitMix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }
}

fn magnitude(log: f32) -> f32 {
    exp(log.min(MAX_LOG_MAGNITUDE))
}

fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Complex values whose parts have the variance 1 (Box and Muller, 1958).
fn gaussian_noise() -> Vec<Complex32> {
    let uniform = |n: u64| (mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 40) as f32 / 16_777_216.0;
    (0..NOISE as u64)
        .map(|n| {
            let radius = (-2.0 * (1.0 - uniform(2 * n + 1)).ln()).sqrt();
            Complex32::from_polar(radius, std::f32::consts::TAU * uniform(2 * n + 2))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames whose magnitudes are all `level` below zero but one bin of the free part.
    fn tone(frames: usize, bin: usize) -> [Vec<f32>; 3] {
        let silent = vec![-80.0; BINS * frames];
        let mut free = silent.clone();
        free[bin * frames..(bin + 1) * frames].fill((WINDOW as f32 / 4.0).ln());
        // A tone in the middle of a bin advances by this phase from frame to frame.
        let step = std::f32::consts::TAU * (bin * HOP) as f32 / WINDOW as f32;
        let phases = (0..BINS * frames).map(|at| step * (at % frames) as f32).collect();
        [silent, free, phases]
    }

    fn synthesise(parts: &[Vec<f32>; 3], range: Range<usize>) -> Vec<f32> {
        let [silent, free, phases] = parts;
        let pitch = vec![0.0; silent.len() / BINS];
        let spectra = Spectra {
            harmonic: silent,
            harmonic_phase: silent,
            noise: silent,
            free,
            free_phase: phases,
            pitch: &pitch,
        };
        assert!(spectra.is_complete());
        let mut samples = Vec::new();
        Vocoder::new().synthesise(&spectra, range, |part| {
            samples.extend_from_slice(part);
            true
        });
        samples
    }

    #[test]
    fn a_steady_bin_becomes_a_steady_tone_and_a_range_of_it_is_the_same() {
        let parts = tone(40, 20);
        let all = synthesise(&parts, 0..usize::MAX);
        assert_eq!(all.len(), 40 * HOP);
        let inner = &all[WINDOW..all.len() - WINDOW];
        let peak = inner.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
        let power = inner.iter().map(|x| x * x).sum::<f32>() / inner.len() as f32;
        assert!((peak - peak.min(2f32.sqrt() * power.sqrt())).abs() < 0.05 * peak, "{peak}");
        assert!((0.3..0.7).contains(&peak), "{peak}");
        let crossings = inner.windows(2).filter(|w| w[0] <= 0.0 && w[1] > 0.0).count();
        let expected = inner.len() * 20 / WINDOW;
        assert!(crossings.abs_diff(expected) <= 1, "{crossings} periods of {expected}");
        for range in [0..1, 100..5_000, 4_801..4_802, 6_000..12_000] {
            let part = synthesise(&parts, range.clone());
            let whole = &all[range.clone()];
            assert_eq!(part.len(), whole.len(), "{range:?}");
            let difference = part.iter().zip(whole).map(|(a, b)| (a - b).abs());
            assert!(difference.fold(0.0, f32::max) < 1e-4, "{range:?}");
        }
        assert!(synthesise(&parts, 12_000..13_000).is_empty());
    }

    #[test]
    fn the_noise_has_unit_variance_and_follows_its_seed() {
        let noise = gaussian_noise();
        let mean = |f: fn(&Complex32) -> f32| noise.iter().map(f).sum::<f32>() / NOISE as f32;
        assert!(mean(|z| z.re).abs() < 0.05 && mean(|z| z.im).abs() < 0.05);
        assert!((mean(|z| z.re * z.re) - 1.0).abs() < 0.06);
        assert!((mean(|z| z.im * z.im) - 1.0).abs() < 0.06);
        let mut vocoder = Vocoder::new();
        let mut draw = |seed| {
            vocoder.seed(seed);
            (vocoder.next_random(), vocoder.next_random())
        };
        assert!(draw(1) == draw(1) && draw(1) != draw(2));
    }
}
