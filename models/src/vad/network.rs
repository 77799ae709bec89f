//! Runs the layers of the network.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use sha2::{Digest as _, Sha256};

use super::aligned::AlignedFloats;
use super::kernels::{self, FRAME_STRIDE, RowLayout};
use super::weights::{BINS, FFT_SIZE, Layer, Weights};
use super::{Error, SHA256, WINDOW, onnx};
use crate::simd::{DetectedIsa, Isa, Kernel};

/// Samples of the previous window, which the network gets again.
const CONTEXT_SAMPLES: usize = 64;
/// Maximum number of streams that pass through all layers together; [`Scratch`] has space for as
/// many.
const MAX_BATCH_STREAMS: usize = 16;

/// The weights: one instance per process, shared by its threads.
pub struct Network {
    isa: DetectedIsa,
    weights: Weights,
    fft: Arc<dyn RealToComplex<f32>>,
}

/// The network's state of one stream: 1280 bytes. [`NetworkState::default`] is the state before the
/// first window.
#[derive(Clone)]
#[repr(align(64))]
pub struct NetworkState {
    h: [f32; 128],
    c: [f32; 128],
    context: [f32; CONTEXT_SAMPLES],
}

impl Default for NetworkState {
    fn default() -> Self {
        Self { h: [0.0; 128], c: [0.0; 128], context: [0.0; CONTEXT_SAMPLES] }
    }
}

/// Buffers of one thread, shared by its streams: about 140 KiB, allocated once.
pub struct Scratch {
    /// Magnitudes, the outputs of successive layers, and `x` next to `h`: one row per stream. A
    /// kernel that always takes two streams needs one additional row.
    magnitudes: AlignedFloats,
    layers: [AlignedFloats; 3],
    xh: AlignedFloats,
    gates: AlignedFloats,
    samples: [f32; CONTEXT_SAMPLES + WINDOW + CONTEXT_SAMPLES],
    frame: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    fft: Vec<Complex<f32>>,
}

impl Scratch {
    /// Buffers for `network`.
    #[must_use]
    pub fn new(network: &Network) -> Self {
        Self {
            magnitudes: AlignedFloats::zeros((MAX_BATCH_STREAMS + 1) * 4 * FRAME_STRIDE),
            layers: [
                AlignedFloats::zeros((MAX_BATCH_STREAMS + 1) * 512),
                AlignedFloats::zeros((MAX_BATCH_STREAMS + 1) * 128),
                AlignedFloats::zeros(MAX_BATCH_STREAMS * 64),
            ],
            xh: AlignedFloats::zeros(MAX_BATCH_STREAMS * 256),
            gates: AlignedFloats::zeros(MAX_BATCH_STREAMS * 512),
            samples: [0.0; CONTEXT_SAMPLES + WINDOW + CONTEXT_SAMPLES],
            frame: network.fft.make_input_vec(),
            spectrum: network.fft.make_output_vec(),
            fft: network.fft.make_scratch_vec(),
        }
    }
}

impl Network {
    /// Loads `silero_vad_16k_op15.onnx` for the best vectors of this machine; takes some
    /// milliseconds.
    ///
    /// # Errors
    /// The file cannot be read, has another hash, or lacks a tensor.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file =
            std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::from_bytes(&file, Isa::best())
    }

    /// Like [`Network::load`], from the bytes of the file and for a chosen instruction set (for
    /// tests and benches). If the machine lacks `isa`, the portable code runs.
    ///
    /// # Errors
    /// The file has another hash, or lacks a tensor.
    pub fn from_bytes(file: &[u8], isa: Isa) -> Result<Self, Error> {
        let found = Sha256::digest(file).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        if found != SHA256 {
            return Err(Error::Hash { found });
        }
        Self::from_tensors(file, isa)
    }

    fn from_tensors(file: &[u8], isa: Isa) -> Result<Self, Error> {
        let isa = DetectedIsa::new(isa);
        let weights = Weights::pack(&onnx::tensors(file), isa.isa().output_block())?;
        Ok(Self { isa, weights, fft: RealFftPlanner::new().plan_fft_forward(FFT_SIZE) })
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa.isa()
    }

    /// Size of the weights in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Processes the next window of each stream: mono samples at 16 kHz from −1 to 1.
    /// `probabilities[i]` becomes P(speech) in `windows[i]`. Samples must be finite.
    ///
    /// # Panics
    /// If the three slices differ in length.
    pub fn run(
        &self,
        scratch: &mut Scratch,
        states: &mut [&mut NetworkState],
        windows: &[&[f32; WINDOW]],
        probabilities: &mut [f32],
    ) {
        assert!(
            states.len() == windows.len() && windows.len() == probabilities.len(),
            "one state, window and probability per stream"
        );
        let chunks = states
            .chunks_mut(MAX_BATCH_STREAMS)
            .zip(windows.chunks(MAX_BATCH_STREAMS))
            .zip(probabilities.chunks_mut(MAX_BATCH_STREAMS));
        for ((states, windows), probabilities) in chunks {
            for (slot, (state, window)) in states.iter_mut().zip(windows).enumerate() {
                self.magnitudes(scratch, slot, state, window);
            }
            self.isa.run(Layers { network: self, scratch, states, probabilities });
        }
    }

    /// Computes four frames of 129 magnitudes from context and window, reflected by 64 samples at
    /// the right end only.
    fn magnitudes(
        &self,
        scratch: &mut Scratch,
        slot: usize,
        state: &mut NetworkState,
        window: &[f32; WINDOW],
    ) {
        let samples = &mut scratch.samples;
        samples[..CONTEXT_SAMPLES].copy_from_slice(&state.context);
        samples[CONTEXT_SAMPLES..CONTEXT_SAMPLES + WINDOW].copy_from_slice(window);
        for i in 0..CONTEXT_SAMPLES {
            samples[CONTEXT_SAMPLES + WINDOW + i] = samples[CONTEXT_SAMPLES + WINDOW - 2 - i];
        }
        state.context.copy_from_slice(&window[WINDOW - CONTEXT_SAMPLES..]);

        for t in 0..4 {
            let frame = &samples[t * FFT_SIZE / 2..][..FFT_SIZE];
            for ((to, x), w) in scratch.frame.iter_mut().zip(frame).zip(&self.weights.hann) {
                *to = x * w;
            }
            let done = self.fft.process_with_scratch(
                &mut scratch.frame,
                &mut scratch.spectrum,
                &mut scratch.fft,
            );
            debug_assert!(done.is_ok(), "the buffers have the lengths of the plan");
            let row =
                &mut scratch.magnitudes.as_mut_slice()[(slot * 4 + t) * FRAME_STRIDE..][..BINS];
            for (to, x) in row.iter_mut().zip(&scratch.spectrum) {
                *to = (x.re * x.re + x.im * x.im).sqrt();
            }
        }
    }

    /// From magnitudes to probabilities: all streams of the chunk pass through one layer after the
    /// other.
    #[inline(always)]
    fn layers<const L: usize, const FMA: bool>(
        &self,
        scratch: &mut Scratch,
        states: &mut [&mut NetworkState],
        probabilities: &mut [f32],
    ) {
        let n = states.len();
        let block = 2 * L;
        // With 32 registers, more streams can share a weight.
        let wide = L == 16;
        let magnitudes = scratch.magnitudes.as_slice();
        let [first, second, third] = &mut scratch.layers;
        let (first, second, third) =
            (first.as_mut_slice(), second.as_mut_slice(), third.as_mut_slice());
        let (xh, gates) = (scratch.xh.as_mut_slice(), scratch.gates.as_mut_slice());
        let [conv1, conv2, conv3, conv4] = &self.weights.convolutions;

        for q in 0..128 / block {
            let (w, b) = (
                &conv1.weight.vectors::<L>()[q * BINS * 6..][..BINS * 6],
                &conv1.bias.vectors()[q * 2..],
            );
            let mut s = 0;
            while s < n {
                let (x, y) = (&magnitudes[s * 4 * FRAME_STRIDE..], &mut first[s * 512..]);
                s += if wide && n - s >= 2 {
                    kernels::conv_129x4::<L, FMA, 2>(w, b, x, y, q * block);
                    2
                } else {
                    kernels::conv_129x4::<L, FMA, 1>(w, b, x, y, q * block);
                    1
                };
            }
        }
        for q in 0..64 / block {
            let (w, b) = (
                &conv2.weight.vectors::<L>()[q * 128 * 6..][..128 * 6],
                &conv2.bias.vectors()[q * 2..],
            );
            let mut s = 0;
            while s < n {
                let (x, y) = (&first[s * 512..], &mut second[s * 128..]);
                s += if wide && n - s >= 4 {
                    kernels::conv_128x4::<L, FMA, 4>(w, b, x, y, q * block);
                    4
                } else {
                    // A single stream vectorizes badly here, so the additional row is computed too.
                    kernels::conv_128x4::<L, FMA, 2>(w, b, x, y, q * block);
                    2
                };
            }
        }
        dense::<L, FMA, 128>(
            n,
            conv3,
            64,
            second,
            third,
            RowLayout { input: 128, output: 64, relu: true },
        );
        dense::<L, FMA, 64>(
            n,
            conv4,
            128,
            third,
            xh,
            RowLayout { input: 64, output: 256, relu: true },
        );
        for (row, state) in xh.as_chunks_mut::<256>().0.iter_mut().zip(states.iter()) {
            row[128..].copy_from_slice(&state.h);
        }
        dense::<L, FMA, 256>(
            n,
            &self.weights.lstm,
            512,
            xh,
            gates,
            RowLayout { input: 256, output: 512, relu: false },
        );
        for (s, gates) in gates.as_chunks::<512>().0.iter().take(n).enumerate() {
            let NetworkState { h, c, .. } = &mut *states[s];
            kernels::lstm(gates, h, c);
            probabilities[s] = kernels::output(h, &self.weights.output, self.weights.output_bias);
        }
    }
}

/// Arguments of [`Network::layers`].
struct Layers<'a, 's> {
    network: &'a Network,
    scratch: &'a mut Scratch,
    states: &'a mut [&'s mut NetworkState],
    probabilities: &'a mut [f32],
}

impl Kernel for Layers<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<const L: usize, const FMA: bool>(self) {
        self.network.layers::<L, FMA>(self.scratch, self.states, self.probabilities);
    }
}

/// A dense layer of `K` inputs for `n` streams.
#[inline(always)]
fn dense<const L: usize, const FMA: bool, const K: usize>(
    n: usize,
    layer: &Layer,
    outputs: usize,
    x: &[f32],
    y: &mut [f32],
    rows: RowLayout,
) {
    let block = 2 * L;
    for q in 0..outputs / block {
        let (w, b) =
            (&layer.weight.vectors::<L>()[q * K * 2..][..K * 2], &layer.bias.vectors()[q * 2..]);
        let mut s = 0;
        while s < n {
            let (x, y) = (&x[s * rows.input..], &mut y[s * rows.output..]);
            s += match n - s {
                8.. if L == 16 => {
                    kernels::dense::<L, FMA, K, 8>(w, b, x, y, q * block, rows);
                    8
                }
                4.. => {
                    kernels::dense::<L, FMA, K, 4>(w, b, x, y, q * block, rows);
                    4
                }
                2.. => {
                    kernels::dense::<L, FMA, K, 2>(w, b, x, y, q * block, rows);
                    2
                }
                _ => {
                    kernels::dense::<L, FMA, K, 1>(w, b, x, y, q * block, rows);
                    1
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_refused_even_without_the_hash() {
        for garbage in [&b""[..], b"\x00", b"garbage", &[0xff; 4096], &[0x3a, 0x7f]] {
            assert!(matches!(
                Network::from_tensors(garbage, Isa::Portable),
                Err(Error::Shape { .. })
            ));
        }
    }
}
