//! Checks the shapes of a graph, reads its weights, and decides in which step each tensor is
//! computed. A plan that was made runs without errors.

use std::collections::BTreeMap;

use super::flatbuffer::{Malformed, Table};
use super::graph::{Graph, MAX_ELEMENTS, Operation, Tensor};
use super::kernels::{Activation, PackedWeights, Size, Window};

/// Maximum number of elements of all tensors and packed weights together.
const MAX_TOTAL_ELEMENTS: usize = 1 << 24;
/// Maximum number of multiplications of a run.
const MAX_MULTIPLICATIONS: usize = 1 << 29;
/// Maximum side of a window, and of its stride.
const MAX_WINDOW: usize = 64;
/// Padding SAME, and a stride of 2 × 2.
const UPSAMPLE_OPTIONS: [u8; 12] = [1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0];

const SHAPES: Malformed = Malformed("the shapes of an operation do not fit");
const UNSUPPORTED: Malformed = Malformed("an option of an operation is not supported");

/// What a step computes.
#[derive(Debug)]
pub(super) enum Kernel {
    Convolve {
        window: Window,
        weights: PackedWeights,
    },
    ConvolveDepthwise {
        window: Window,
        weights: Vec<f32>,
        bias: Vec<f32>,
    },
    Add,
    Pad {
        from: Size,
        to: Size,
        before: [usize; 3],
    },
    MaxPool(Window),
    Prelu {
        slopes: Vec<f32>,
    },
    Concatenate {
        runs: Vec<usize>,
    },
    /// The same numbers in another shape.
    Copy,
    Mean {
        channels: usize,
    },
    /// By one factor for each channel.
    Scale,
    HardSwish,
    Logistic,
    Resize {
        from: Size,
        to: Size,
    },
    Upsample {
        from: Size,
        to: Size,
        weights: PackedWeights,
    },
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) kernel: Kernel,
    pub(super) activation: Activation,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
    /// Tensors that no later step needs.
    pub(super) last_uses: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Number of tensors.
    pub(super) tensors: usize,
    pub(super) input: usize,
    pub(super) input_shape: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// Number of elements of each output.
    pub(super) output_lengths: Vec<usize>,
}

impl Plan {
    pub(super) fn read(file: &[u8]) -> Result<Self, Malformed> {
        let graph = Graph::read(file)?;
        let mut planner = Planner::new(&graph)?;
        for operation in &graph.operations {
            planner.add(operation)?;
        }
        let Planner { mut steps, computed, .. } = planner;
        if !graph.outputs.iter().all(|output| computed[*output]) {
            return Err(Malformed("no operation computes an output"));
        }
        let mut needed = graph.outputs.clone();
        for step in steps.iter_mut().rev() {
            for input in &step.inputs {
                if !needed.contains(input) {
                    needed.push(*input);
                    step.last_uses.push(*input);
                }
            }
        }
        Ok(Self {
            steps,
            tensors: graph.tensors.len(),
            input: graph.input,
            input_shape: graph.tensors[graph.input].shape.clone(),
            output_lengths: graph.outputs.iter().map(|i| graph.tensors[*i].count).collect(),
            outputs: graph.outputs,
        })
    }
}

struct Planner<'a> {
    graph: &'a Graph<'a>,
    steps: Vec<Step>,
    /// Weights that a DEQUANTIZE converted, by the tensor of the result.
    dequantized: BTreeMap<usize, Vec<f32>>,
    /// Which tensors the input or a step gives.
    computed: Vec<bool>,
    elements: usize,
    multiplications: usize,
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph<'a>) -> Result<Self, Malformed> {
        let mut computed = vec![false; graph.tensors.len()];
        computed[graph.input] = true;
        let mut planner = Self {
            graph,
            steps: Vec::with_capacity(graph.operations.len()),
            dequantized: BTreeMap::new(),
            computed,
            elements: 0,
            multiplications: 0,
        };
        planner.allow(graph.tensors[graph.input].count, 0)?;
        Ok(planner)
    }

    /// Counts memory and time.
    fn allow(&mut self, elements: usize, multiplications: usize) -> Result<(), Malformed> {
        self.elements = self.elements.saturating_add(elements);
        self.multiplications = self.multiplications.saturating_add(multiplications);
        let fits = self.elements <= MAX_TOTAL_ELEMENTS
            && self.multiplications <= MAX_MULTIPLICATIONS
            && elements <= 2 * MAX_ELEMENTS;
        if fits { Ok(()) } else { Err(Malformed("the network is too large")) }
    }

    fn add(&mut self, operation: &Operation<'a>) -> Result<(), Malformed> {
        let output = &self.graph.tensors[operation.output];
        if self.computed[operation.output]
            || output.is_constant()
            || self.dequantized.contains_key(&operation.output)
        {
            return Err(Malformed("a tensor is computed twice"));
        }
        self.allow(output.count, output.count)?;
        let options = operation.options;
        let byte = |n| options.map_or(Ok(0), |options| options.byte(n));
        // Number of inputs that are computed; the others are weights.
        let (kernel, computed, fused) = match operation.code {
            0 => (Kernel::Add, 2, byte(0)?),
            1 => (self.mean(operation)?, 1, byte(5)?),
            2 => (self.concatenation(operation)?, operation.inputs.len(), byte(1)?),
            3 => (self.convolution(operation)?, 1, byte(3)?),
            4 => (self.depthwise_convolution(operation)?, 1, byte(4)?),
            6 => return self.dequantize(operation),
            14 => (Kernel::Logistic, 1, 0),
            17 => (self.pool(operation)?, 1, byte(5)?),
            18 => (self.scaling(operation)?, 2, byte(0)?),
            19 => (Kernel::Copy, 1, 1),
            22 => (Kernel::Copy, 1, 0),
            23 => (self.resizing(operation)?, 1, 0),
            32 => (self.upsampling(operation)?, 1, 0),
            34 => (self.padding(operation)?, 1, 0),
            54 => (self.prelu(operation)?, 1, 0),
            117 => (Kernel::HardSwish, 1, 0),
            _ => return Err(Malformed("an operation is not supported")),
        };
        let inputs = operation.inputs.get(..computed).ok_or(SHAPES)?.to_vec();
        if !inputs.iter().all(|input| self.computed[*input]) {
            return Err(Malformed("an operation uses a tensor before it is computed"));
        }
        // Operations on each element keep the number of elements.
        let each = matches!(
            kernel,
            Kernel::Add
                | Kernel::Copy
                | Kernel::Prelu { .. }
                | Kernel::HardSwish
                | Kernel::Logistic
        );
        if each && inputs.iter().any(|input| self.graph.tensors[*input].count != output.count) {
            return Err(SHAPES);
        }
        let activation = match fused {
            0 => Activation::None,
            1 => Activation::Relu,
            3 => Activation::Relu6,
            _ => return Err(UNSUPPORTED),
        };
        self.computed[operation.output] = true;
        let (output, last_uses) = (operation.output, Vec::new());
        self.steps.push(Step { kernel, activation, inputs, output, last_uses });
        Ok(())
    }

    fn tensor(&self, operation: &Operation<'a>, n: usize) -> Result<&'a Tensor<'a>, Malformed> {
        operation.inputs.get(n).map(|i| &self.graph.tensors[*i]).ok_or(SHAPES)
    }

    /// The weights in input `n`, which must have this shape.
    fn weights(
        &mut self,
        operation: &Operation<'a>,
        n: usize,
        count: usize,
    ) -> Result<Vec<f32>, Malformed> {
        let tensor = self.tensor(operation, n)?;
        if tensor.count != count {
            return Err(SHAPES);
        }
        self.allow(count, 0)?;
        match operation.inputs.get(n).and_then(|i| self.dequantized.get(i)) {
            Some(weights) => Ok(weights.clone()),
            None => tensor.floats(),
        }
    }

    fn dequantize(&mut self, operation: &Operation<'a>) -> Result<(), Malformed> {
        let weights = self.tensor(operation, 0)?.halves()?;
        if weights.len() != self.graph.tensors[operation.output].count {
            return Err(SHAPES);
        }
        self.dequantized.insert(operation.output, weights);
        Ok(())
    }

    /// The window of a convolution or a pool, with `channels` of output.
    fn window(
        &mut self,
        operation: &Operation<'a>,
        channels: usize,
        kernel: [usize; 2],
    ) -> Result<Window, Malformed> {
        let options = operation.options.ok_or(UNSUPPORTED)?;
        let stride = [options.index(2, 0)?, options.index(1, 0)?];
        if kernel.iter().chain(&stride).any(|length| *length > MAX_WINDOW) {
            return Err(Malformed("a window is too large"));
        }
        let same = match options.byte(0)? {
            0 => true,
            1 => false,
            _ => return Err(UNSUPPORTED),
        };
        let input = size(self.tensor(operation, 0)?)?;
        let window = Window::new(input, channels, kernel, stride, same).ok_or(SHAPES)?;
        if size(&self.graph.tensors[operation.output])? != window.output {
            return Err(SHAPES);
        }
        Ok(window)
    }

    fn convolution(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let [outputs, rows, columns, channels] = rank_4(self.tensor(operation, 1)?)?;
        let window = self.window(operation, outputs, [rows, columns])?;
        if window.input.channels != channels || dilates(operation.options, [4, 5])? {
            return Err(UNSUPPORTED);
        }
        let inputs = rows * columns * channels;
        let weights = self.weights(operation, 1, outputs * inputs)?;
        let bias = self.weights(operation, 2, outputs)?;
        self.allow(
            PackedWeights::packed_len(outputs, inputs),
            window.output.count().saturating_mul(inputs),
        )?;
        self.allow(window.output.width.saturating_mul(inputs), 0)?;
        Ok(Kernel::Convolve { window, weights: PackedWeights::new(&weights, bias, inputs) })
    }

    fn depthwise_convolution(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let [one, rows, columns, channels] = rank_4(self.tensor(operation, 1)?)?;
        let window = self.window(operation, channels, [rows, columns])?;
        let multiplier = operation.options.map_or(Ok(0), |options| options.int(3))?;
        if one != 1
            || window.input.channels != channels
            || multiplier > 1
            || dilates(operation.options, [5, 6])?
        {
            return Err(UNSUPPORTED);
        }
        self.allow(0, window.output.count().saturating_mul(rows * columns))?;
        let weights = self.weights(operation, 1, rows * columns * channels)?;
        let bias = self.weights(operation, 2, channels)?;
        Ok(Kernel::ConvolveDepthwise { window, weights, bias })
    }

    fn pool(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let options = operation.options.ok_or(UNSUPPORTED)?;
        let kernel = [options.index(4, 0)?, options.index(3, 0)?];
        let channels = size(self.tensor(operation, 0)?)?.channels;
        let window = self.window(operation, channels, kernel)?;
        self.allow(0, window.output.count().saturating_mul(kernel[0] * kernel[1]))?;
        Ok(Kernel::MaxPool(window))
    }

    fn mean(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let options = operation.options.ok_or(UNSUPPORTED)?;
        let input = size(self.tensor(operation, 0)?)?;
        let output = size(&self.graph.tensors[operation.output])?;
        if [options.index(4, 0)?, options.index(3, 0)?] != [input.height, input.width]
            || output != (Size { height: 1, width: 1, channels: input.channels })
        {
            return Err(UNSUPPORTED);
        }
        self.allow(0, input.count())?;
        Ok(Kernel::Mean { channels: input.channels })
    }

    fn scaling(&self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let input = size(self.tensor(operation, 0)?)?;
        let factors = Size { height: 1, width: 1, channels: input.channels };
        let output = size(&self.graph.tensors[operation.output])?;
        if size(self.tensor(operation, 1)?)? == factors && output == input {
            Ok(Kernel::Scale)
        } else {
            Err(SHAPES)
        }
    }

    fn resizing(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let options = operation.options.ok_or(UNSUPPORTED)?;
        let from = size(self.tensor(operation, 0)?)?;
        let to = size(&self.graph.tensors[operation.output])?;
        // Corners are not aligned; centres are those of half pixels.
        if [options.byte(2)?, options.byte(3)?] != [0, 1] || from.channels != to.channels {
            return Err(UNSUPPORTED);
        }
        self.allow(to.height + to.width, to.count().saturating_mul(3))?;
        Ok(Kernel::Resize { from, to })
    }

    fn upsampling(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        if operation.custom != [b"Convolution2DTransposeBias".as_slice(), &UPSAMPLE_OPTIONS] {
            return Err(UNSUPPORTED);
        }
        let from = size(self.tensor(operation, 0)?)?;
        let to = size(&self.graph.tensors[operation.output])?;
        let doubled = Size { height: 2 * from.height, width: 2 * from.width, ..to };
        let shape = [to.channels, 2, 2, from.channels];
        if to != doubled || rank_4(self.tensor(operation, 1)?)? != shape {
            return Err(SHAPES);
        }
        let outputs = to.channels * 4;
        let weights = self.weights(operation, 1, outputs * from.channels)?;
        let bias = self.weights(operation, 2, to.channels)?;
        self.allow(
            PackedWeights::packed_len(outputs, from.channels).saturating_add(to.count()),
            to.count().saturating_mul(from.channels),
        )?;
        let bias = bias.iter().flat_map(|bias| [*bias; 4]).collect();
        let weights = PackedWeights::new(&weights, bias, from.channels);
        Ok(Kernel::Upsample { from, to, weights })
    }

    fn prelu(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let channels = size(self.tensor(operation, 0)?)?.channels;
        Ok(Kernel::Prelu { slopes: self.weights(operation, 1, channels)? })
    }

    fn padding(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let amounts = self.tensor(operation, 1)?;
        let from = size(self.tensor(operation, 0)?)?;
        let to = size(&self.graph.tensors[operation.output])?;
        let counts = if amounts.count == 8 { amounts.counts()? } else { return Err(SHAPES) };
        let fits = |from: usize, axis: usize, to: usize| {
            counts[2 * axis].checked_add(counts[2 * axis + 1]).and_then(|n| n.checked_add(from))
                == Some(to)
        };
        if fits(1, 0, 1)
            && fits(from.height, 1, to.height)
            && fits(from.width, 2, to.width)
            && fits(from.channels, 3, to.channels)
        {
            Ok(Kernel::Pad { from, to, before: [counts[2], counts[4], counts[6]] })
        } else {
            Err(SHAPES)
        }
    }

    fn concatenation(&mut self, operation: &Operation<'a>) -> Result<Kernel, Malformed> {
        let output = &self.graph.tensors[operation.output].shape;
        let options = operation.options.ok_or(UNSUPPORTED)?;
        let axis = options.index(0, 0)?;
        let inputs: Vec<&[usize]> =
            operation.inputs.iter().map(|i| &*self.graph.tensors[*i].shape).collect();
        let outside = |shape: &[usize]| {
            let others = shape.iter().enumerate().filter(|(i, _)| *i != axis);
            others.map(|(_, length)| *length).collect::<Vec<_>>()
        };
        let length = output.get(axis).ok_or(SHAPES)?;
        let fits = inputs
            .iter()
            .all(|shape| shape.len() == output.len() && outside(shape) == outside(output));
        if !fits || inputs.iter().map(|shape| shape[axis]).sum::<usize>() != *length {
            return Err(SHAPES);
        }
        Ok(Kernel::Concatenate {
            runs: inputs.iter().map(|shape| shape[axis..].iter().product()).collect(),
        })
    }
}

/// Whether a window has gaps; fields `n` have the distances of its places, 1 by default.
fn dilates(options: Option<Table<'_>>, n: [usize; 2]) -> Result<bool, Malformed> {
    let Some(options) = options else { return Ok(false) };
    Ok(options.index(n[0], 1)? != 1 || options.index(n[1], 1)? != 1)
}

fn rank_4(tensor: &Tensor<'_>) -> Result<[usize; 4], Malformed> {
    tensor.shape[..].try_into().map_err(|_| SHAPES)
}

/// Size of a tensor of one picture.
fn size(tensor: &Tensor<'_>) -> Result<Size, Malformed> {
    match rank_4(tensor)? {
        [1, height, width, channels] => Ok(Size { height, width, channels }),
        _ => Err(SHAPES),
    }
}
