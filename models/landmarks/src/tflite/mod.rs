//! Runs small networks from TensorFlow Lite files: sixteen operations, 32-bit arithmetic, one thread.
//!
//! CONV_2D, DEPTHWISE_CONV_2D, ADD, PAD, MAX_POOL_2D, RESHAPE, CONCATENATION, RELU, PRELU, and
//! DEQUANTIZE of weights with 16 bits; for the mask of the person also HARD_SWISH, LOGISTIC,
//! AVERAGE_POOL_2D over all pixels, MUL by channels, RESIZE_BILINEAR with half-pixel centres, and a
//! custom transposed convolution of 2 × 2. [`Network::read`] checks everything that a run relies on: a
//! file that it accepts runs in bounded time and memory.
//!
//! Own code, because `tract-tflite` loads none of the networks of [`crate::Networks`] (it does not know
//! their 16-bit DEQUANTIZE), and ONNX Runtime needs a conversion by a tool that imports TensorFlow.

mod flatbuffer;
mod graph;
mod kernels;
mod mask_kernels;
mod plan;

use kernels::{concatenate, convolve, convolve_depthwise, max_pool, pad, prelu};
use mask_kernels::{hard_swish, logistic, mean, resize, scale, upsample};
use plan::{Kernel, Plan, Step};

/// A network that is ready to run.
#[derive(Debug)]
pub struct Network {
    plan: Plan,
}

impl Network {
    /// Reads a network.
    ///
    /// # Errors
    /// A clause that says why the file is not usable.
    pub fn read(file: &[u8]) -> Result<Self, String> {
        Plan::read(file).map(|plan| Self { plan }).map_err(|malformed| malformed.0.to_owned())
    }

    /// Shape of the input: 1, height, width and channels.
    #[must_use]
    pub fn input_shape(&self) -> &[usize] {
        &self.plan.input_shape
    }

    /// Number of elements of each output.
    #[must_use]
    pub fn output_lengths(&self) -> &[usize] {
        &self.plan.output_lengths
    }

    /// Computes all outputs, in the order of the file. `None` if the input has another length than
    /// its shape says.
    #[must_use]
    pub fn run(&self, input: Vec<f32>) -> Option<Vec<Vec<f32>>> {
        let plan = &self.plan;
        if input.len() != plan.input_shape.iter().product::<usize>() {
            return None;
        }
        let mut tensors: Vec<Vec<f32>> = vec![Vec::new(); plan.tensors];
        tensors[plan.input] = input;
        for step in &plan.steps {
            let mut output = run_step(step, &mut tensors);
            step.activation.apply(&mut output);
            for tensor in &step.last_uses {
                tensors[*tensor] = Vec::new();
            }
            tensors[step.output] = output;
        }
        Some(plan.outputs.iter().map(|output| tensors[*output].clone()).collect())
    }
}

fn run_step(step: &Step, tensors: &mut [Vec<f32>]) -> Vec<f32> {
    let first = step.inputs.first().copied().unwrap_or_default();
    match &step.kernel {
        Kernel::Convolve { window, weights } => convolve(&tensors[first], window, weights),
        Kernel::ConvolveDepthwise { window, weights, bias } => {
            convolve_depthwise(&tensors[first], window, weights, bias)
        }
        Kernel::MaxPool(window) => max_pool(&tensors[first], window),
        Kernel::Pad { from, to, before } => pad(&tensors[first], *from, *to, *before),
        Kernel::Concatenate { runs } => {
            let parts: Vec<&[f32]> = step.inputs.iter().map(|i| &*tensors[*i]).collect();
            concatenate(&parts, runs)
        }
        Kernel::Add => {
            let second = step.inputs[1];
            // The first input is used again if both are the same tensor.
            let mut sum =
                if first == second { tensors[first].clone() } else { take(step, first, tensors) };
            sum.iter_mut().zip(&tensors[second]).for_each(|(sum, value)| *sum += value);
            sum
        }
        Kernel::Prelu { slopes } => {
            let mut values = take(step, first, tensors);
            prelu(&mut values, slopes);
            values
        }
        Kernel::Copy => take(step, first, tensors),
        Kernel::Mean { channels } => mean(&tensors[first], *channels),
        Kernel::Scale => {
            // A copy, because both inputs may be the same tensor of one pixel.
            let factors = tensors[step.inputs[1]].clone();
            let mut values = take(step, first, tensors);
            scale(&mut values, &factors);
            values
        }
        Kernel::HardSwish => {
            let mut values = take(step, first, tensors);
            hard_swish(&mut values);
            values
        }
        Kernel::Logistic => {
            let mut values = take(step, first, tensors);
            logistic(&mut values);
            values
        }
        Kernel::Resize { from, to } => resize(&tensors[first], *from, *to),
        Kernel::Upsample { from, to, weights } => upsample(&tensors[first], *from, *to, weights),
    }
}

/// The content of a tensor; a copy if a later step needs it.
fn take(step: &Step, tensor: usize, tensors: &mut [Vec<f32>]) -> Vec<f32> {
    if step.last_uses.contains(&tensor) {
        std::mem::take(&mut tensors[tensor])
    } else {
        tensors[tensor].clone()
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
