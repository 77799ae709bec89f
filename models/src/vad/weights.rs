//! The network's weights, checked and packed for the kernels.
//!
//! | step | shape | tensor |
//! |---|---|---|
//! | STFT of 256, hop 128, periodic Hann, magnitude | 4 frames × 129 | see below: an FFT instead |
//! | convolution 129→128, kernel 3, padding 1, ReLU | 128 × 4 | `encoder.0` |
//! | convolution 128→64, kernel 3, stride 2, padding 1, ReLU | 64 × 2 | `encoder.1` |
//! | convolution 64→64, kernel 3, stride 2, padding 1, ReLU | 64 × 1 | `encoder.2` (taps 1, 2) |
//! | convolution 64→128, kernel 3, padding 1, ReLU | 128 × 1 | `encoder.3` (middle tap) |
//! | LSTM cell 128→128, gates i f g o | h, c | `decoder.rnn` |
//! | ReLU(h), 128→1, sigmoid | 1 | `decoder.decoder.2` |
//!
//! The tensor of the STFT is `stft.forward_basis_buffer` (258, 1, 256). It is checked and replaced
//! by an FFT. In `encoder.2`, tap 0 gets only padding; in `encoder.3`, only the middle tap gets
//! data.

use std::collections::HashMap;
use std::f64::consts::TAU;

use super::Error;
use super::aligned::AlignedFloats;
use super::onnx::Tensor;

/// FFT length.
pub(super) const FFT_SIZE: usize = 256;
/// Number of frequencies of a frame.
pub(super) const BINS: usize = FFT_SIZE / 2 + 1;

/// One layer. `weight` is stored as [block of outputs][input][tap][output in block], so that the
/// kernels read it sequentially.
pub(super) struct Layer {
    pub(super) weight: AlignedFloats,
    pub(super) bias: AlignedFloats,
}

pub(super) struct Weights {
    pub(super) convolutions: [Layer; 4],
    /// The inputs are x, then h.
    pub(super) lstm: Layer,
    pub(super) output: [f32; 128],
    pub(super) output_bias: f32,
    pub(super) hann: [f32; FFT_SIZE],
}

impl Weights {
    /// Reads the tensors; `block` outputs are computed together.
    pub(super) fn pack(tensors: &HashMap<String, Tensor>, block: usize) -> Result<Self, Error> {
        let find = |name: &'static str, shape: &[usize]| {
            let found =
                tensors.get(name).filter(|(s, _)| s == shape).map(|(_, values)| values.as_slice());
            found.ok_or_else(|| Error::Shape { name, shape: shape.to_vec() })
        };
        let hann =
            std::array::from_fn(|n| (0.5 - 0.5 * (TAU * n as f64 / FFT_SIZE as f64).cos()) as f32);
        check_filter_bank(
            find("model.stft.forward_basis_buffer", &[2 * BINS, 1, FFT_SIZE])?,
            &hann,
        )?;

        // Arguments: names of weights and bias; numbers of outputs and inputs; used values of an
        // output's row; and which value of the row is the kernel's k-th.
        let conv = |weight,
                    bias,
                    [outputs, inputs]: [usize; 2],
                    used: usize,
                    pick: &dyn Fn(usize) -> usize| {
            let (w, b) = (find(weight, &[outputs, inputs, 3])?, find(bias, &[outputs])?);
            let weight = pack_weights(block, outputs, used, |o, k| w[o * inputs * 3 + pick(k)]);
            Ok::<_, Error>(Layer { weight, bias: AlignedFloats::from_fn(outputs, |o| b[o]) })
        };
        let convolutions = [
            conv(
                "model.encoder.0.reparam_conv.weight",
                "model.encoder.0.reparam_conv.bias",
                [128, BINS],
                BINS * 3,
                &|k| k,
            )?,
            conv(
                "model.encoder.1.reparam_conv.weight",
                "model.encoder.1.reparam_conv.bias",
                [64, 128],
                128 * 3,
                &|k| k,
            )?,
            // Taps 1 and 2: all inputs of tap 1 come before those of tap 2. The previous layer
            // stores its two frames in this order.
            conv(
                "model.encoder.2.reparam_conv.weight",
                "model.encoder.2.reparam_conv.bias",
                [64, 64],
                128,
                &|k| k % 64 * 3 + 1 + k / 64,
            )?,
            conv(
                "model.encoder.3.reparam_conv.weight",
                "model.encoder.3.reparam_conv.bias",
                [128, 64],
                64,
                &|k| k * 3 + 1,
            )?,
        ];

        let (input, hidden) = (
            find("model.decoder.rnn.weight_ih", &[512, 128])?,
            find("model.decoder.rnn.weight_hh", &[512, 128])?,
        );
        let (input_bias, hidden_bias) = (
            find("model.decoder.rnn.bias_ih", &[512])?,
            find("model.decoder.rnn.bias_hh", &[512])?,
        );
        let gate = |o: usize, k: usize| {
            if k < 128 { input[o * 128 + k] } else { hidden[o * 128 + k - 128] }
        };
        let lstm = Layer {
            weight: pack_weights(block, 512, 256, gate),
            bias: AlignedFloats::from_fn(512, |o| input_bias[o] + hidden_bias[o]),
        };

        let mut output = [0.0; 128];
        output.copy_from_slice(find("model.decoder.decoder.2.weight", &[1, 128, 1])?);
        let output_bias = find("model.decoder.decoder.2.bias", &[1])?[0];
        Ok(Self { convolutions, lstm, output, output_bias, hann })
    }

    /// Size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let layers = self.convolutions.iter().chain([&self.lstm]);
        layers.map(|l| 4 * (l.weight.as_slice().len() + l.bias.as_slice().len())).sum()
    }
}

fn pack_weights(
    block: usize,
    outputs: usize,
    inputs: usize,
    value: impl Fn(usize, usize) -> f32,
) -> AlignedFloats {
    AlignedFloats::from_fn(outputs * inputs, |at| {
        let (row, lane) = (at / block, at % block);
        value(row / inputs * block + lane, row % inputs)
    })
}

/// Checks that the filter bank in the file is what the FFT computes: cosines, then negative sines,
/// times the window. All 66 048 values are compared.
fn check_filter_bank(bank: &[f32], hann: &[f32; FFT_SIZE]) -> Result<(), Error> {
    for (row, filter) in bank.as_chunks::<FFT_SIZE>().0.iter().enumerate() {
        for (n, &tap) in filter.iter().enumerate() {
            // Reduced modulo the FFT length first: the product of row and n would lose digits.
            let angle = TAU * ((row % BINS) * n % FFT_SIZE) as f64 / FFT_SIZE as f64;
            let expected = if row < BINS { angle.cos() } else { -angle.sin() } * f64::from(hann[n]);
            // NaN must fail too.
            let error = (expected - f64::from(tap)).abs();
            if error.is_nan() || error > 1e-5 {
                return Err(Error::FilterBank);
            }
        }
    }
    Ok(())
}
