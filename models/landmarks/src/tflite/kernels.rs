//! The operations on tensors in the layout height × width × channels, in 32-bit arithmetic.
//!
//! The order of additions does not depend on the machine, so neither do the results. The inner loops
//! run over arrays of eight numbers, which the compiler turns into vector instructions.

/// Number of output channels that are computed together.
const LANES: usize = 8;
/// Number of output pixels that are computed together.
const ROWS: usize = 4;

/// What follows an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    None,
    Relu,
    Relu6,
}

impl Activation {
    pub(super) fn apply(self, values: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Relu => values.iter_mut().for_each(|v| *v = v.max(0.0)),
            Self::Relu6 => values.iter_mut().for_each(|v| *v = v.clamp(0.0, 6.0)),
        }
    }
}

/// Height, width and channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl Size {
    pub(super) fn count(self) -> usize {
        self.height * self.width * self.channels
    }
}

/// How a window moves over a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Rows and columns of the window.
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    /// Rows and columns of padding before the tensor.
    pub(super) before: [usize; 2],
    pub(super) input: Size,
    pub(super) output: Size,
}

impl Window {
    /// `same`: the padding SAME of TensorFlow, else VALID. `None` if the window does not fit.
    pub(super) fn new(
        input: Size,
        channels: usize,
        kernel: [usize; 2],
        stride: [usize; 2],
        same: bool,
    ) -> Option<Self> {
        let mut places = [(0, 0); 2];
        for (axis, length) in [input.height, input.width].into_iter().enumerate() {
            let (kernel, stride) = (kernel[axis], stride[axis]);
            if kernel == 0 || stride == 0 {
                return None;
            }
            places[axis] = if same {
                let count = length.div_ceil(stride);
                let span = (count - 1).checked_mul(stride)?.checked_add(kernel)?;
                (count, span.saturating_sub(length) / 2)
            } else {
                (length.checked_sub(kernel)? / stride + 1, 0)
            };
        }
        let [(height, top), (width, left)] = places;
        let output = Size { height, width, channels };
        Some(Self { kernel, stride, before: [top, left], input, output })
    }

    /// Whether each output pixel is computed from the input pixel at its place.
    fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1]
    }

    /// Calls `visit` with the number of each place of the window that lies in the input, and the
    /// number of the input pixel there.
    #[inline]
    fn for_each_tap(&self, [row, column]: [usize; 2], mut visit: impl FnMut(usize, usize)) {
        for y in 0..self.kernel[0] {
            let Some(input_y) = (row * self.stride[0] + y).checked_sub(self.before[0]) else {
                continue;
            };
            if input_y >= self.input.height {
                break;
            }
            for x in 0..self.kernel[1] {
                let Some(input_x) = (column * self.stride[1] + x).checked_sub(self.before[1])
                else {
                    continue;
                };
                if input_x >= self.input.width {
                    break;
                }
                visit(y * self.kernel[1] + x, input_y * self.input.width + input_x);
            }
        }
    }
}

/// Weights of a convolution: for each block of [`LANES`] output channels, and each input of the
/// window, the weights of the block.
#[derive(Debug)]
pub(super) struct PackedWeights {
    blocks: Vec<[f32; LANES]>,
    bias: Vec<f32>,
    /// Inputs of a window: rows × columns × channels.
    inputs: usize,
}

impl PackedWeights {
    /// Number of weights after packing `outputs` channels of `inputs` weights.
    pub(super) fn packed_len(outputs: usize, inputs: usize) -> usize {
        outputs.div_ceil(LANES).saturating_mul(LANES).saturating_mul(inputs)
    }

    /// `weights`: output channels × `inputs`; `bias`: one number for each output channel.
    pub(super) fn new(weights: &[f32], bias: Vec<f32>, inputs: usize) -> Self {
        let mut blocks = Vec::with_capacity(bias.len().div_ceil(LANES) * inputs);
        for first in (0..bias.len()).step_by(LANES) {
            for input in 0..inputs {
                blocks.push(std::array::from_fn(|lane| {
                    let output = first + lane;
                    if output < bias.len() { weights[output * inputs + input] } else { 0.0 }
                }));
            }
        }
        Self { blocks, bias, inputs }
    }
}

/// CONV_2D.
pub(super) fn convolve(input: &[f32], window: &Window, weights: &PackedWeights) -> Vec<f32> {
    let mut output = vec![0.0; window.output.count()];
    if window.is_pointwise() {
        multiply(input, weights, &mut output);
        return output;
    }
    let channels = window.input.channels;
    let row_length = window.output.width * window.output.channels;
    let mut patches = vec![0.0; window.output.width * weights.inputs];
    for (row, output) in output.chunks_exact_mut(row_length).enumerate() {
        for (column, patch) in patches.chunks_exact_mut(weights.inputs).enumerate() {
            patch.fill(0.0);
            window.for_each_tap([row, column], |place, pixel| {
                patch[place * channels..][..channels]
                    .copy_from_slice(&input[pixel * channels..][..channels]);
            });
        }
        multiply(&patches, weights, output);
    }
    output
}

/// Multiplies each row of `rows` (of `weights.inputs` numbers) by the weights, and adds the bias.
pub(super) fn multiply(rows: &[f32], weights: &PackedWeights, output: &mut [f32]) {
    let (inputs, outputs) = (weights.inputs, weights.bias.len());
    let groups = rows.chunks(ROWS * inputs).zip(output.chunks_mut(ROWS * outputs));
    for (rows, output) in groups {
        let count = rows.len() / inputs;
        // Rows that do not exist repeat the last one; their results are not stored.
        let row = |i: usize| &rows[i.min(count - 1) * inputs..][..inputs];
        let rows: [&[f32]; ROWS] = std::array::from_fn(row);
        let blocks = weights.blocks.chunks_exact(inputs).zip(weights.bias.chunks(LANES));
        for (block, (weights, bias)) in blocks.enumerate() {
            let sums = multiply_block(rows, weights);
            for (sums, output) in sums.iter().zip(output.chunks_exact_mut(outputs)) {
                let output = &mut output[block * LANES..][..bias.len()];
                for ((output, sum), bias) in output.iter_mut().zip(sums).zip(bias) {
                    *output = sum + bias;
                }
            }
        }
    }
}

#[inline]
fn multiply_block(rows: [&[f32]; ROWS], weights: &[[f32; LANES]]) -> [[f32; LANES]; ROWS] {
    let mut sums = [[0.0; LANES]; ROWS];
    let [a, b, c, d] = rows;
    let inputs = a.iter().zip(b).zip(c).zip(d);
    for (weights, (((a, b), c), d)) in weights.iter().zip(inputs) {
        for (sums, value) in sums.iter_mut().zip([a, b, c, d]) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += value * weight;
            }
        }
    }
    sums
}

/// DEPTHWISE_CONV_2D with one output channel for each input channel. `weights`: places of the window
/// × channels.
pub(super) fn convolve_depthwise(
    input: &[f32],
    window: &Window,
    weights: &[f32],
    bias: &[f32],
) -> Vec<f32> {
    let channels = window.input.channels;
    let mut output = vec![0.0; window.output.count()];
    let mut taps: Vec<(&[f32], &[f32])> = Vec::with_capacity(window.kernel[0] * window.kernel[1]);
    for (pixel, output) in output.chunks_exact_mut(channels).enumerate() {
        taps.clear();
        let place = [pixel / window.output.width, pixel % window.output.width];
        window.for_each_tap(place, |place, pixel| {
            taps.push((
                &input[pixel * channels..][..channels],
                &weights[place * channels..][..channels],
            ));
        });
        let whole = channels - channels % LANES;
        for first in (0..whole).step_by(LANES) {
            let mut sums = [0.0; LANES];
            sums.copy_from_slice(&bias[first..first + LANES]);
            for (values, weights) in &taps {
                let values = &values[first..first + LANES];
                let weights = &weights[first..first + LANES];
                for ((sum, value), weight) in sums.iter_mut().zip(values).zip(weights) {
                    *sum += value * weight;
                }
            }
            output[first..first + LANES].copy_from_slice(&sums);
        }
        for channel in whole..channels {
            let products = taps.iter().map(|(values, weights)| values[channel] * weights[channel]);
            output[channel] = bias[channel] + products.sum::<f32>();
        }
    }
    output
}

/// MAX_POOL_2D.
pub(super) fn max_pool(input: &[f32], window: &Window) -> Vec<f32> {
    let channels = window.input.channels;
    let mut output = vec![f32::MIN; window.output.count()];
    for (pixel, output) in output.chunks_exact_mut(channels).enumerate() {
        let place = [pixel / window.output.width, pixel % window.output.width];
        window.for_each_tap(place, |_, pixel| {
            let values = &input[pixel * channels..][..channels];
            output.iter_mut().zip(values).for_each(|(max, value)| *max = max.max(*value));
        });
    }
    output
}

/// PAD with zeros: `before` are the rows, columns and channels in front of the input.
pub(super) fn pad(input: &[f32], from: Size, to: Size, before: [usize; 3]) -> Vec<f32> {
    let mut output = vec![0.0; to.count()];
    for (pixel, values) in input.chunks_exact(from.channels).enumerate() {
        let (y, x) = (pixel / from.width + before[0], pixel % from.width + before[1]);
        let first = (y * to.width + x) * to.channels + before[2];
        output[first..first + from.channels].copy_from_slice(values);
    }
    output
}

/// PRELU with one slope for each channel.
pub(super) fn prelu(values: &mut [f32], slopes: &[f32]) {
    for values in values.chunks_exact_mut(slopes.len()) {
        for (value, slope) in values.iter_mut().zip(slopes) {
            *value = value.max(0.0) + slope * value.min(0.0);
        }
    }
}

/// Joins tensors along one axis: `runs` are the lengths of what is contiguous in each.
pub(super) fn concatenate(parts: &[&[f32]], runs: &[usize]) -> Vec<f32> {
    let mut output = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    let count = parts.first().zip(runs.first()).map_or(0, |(part, run)| part.len() / run);
    for i in 0..count {
        for (part, run) in parts.iter().zip(runs) {
            output.extend_from_slice(&part[i * run..][..*run]);
        }
    }
    output
}
