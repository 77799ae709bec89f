//! Layers of the network: their weights, read from the file and quantised to 8 bits.

use super::DIMENSIONS;
use super::kernels::{self, MAX_WEIGHT, Matrix, Rows};
use super::safetensors::Tensors;

/// Rows of weights of 8 bits, each with a scale.
#[derive(Default)]
pub(super) struct QuantisedRows {
    pub(super) weights: Vec<i8>,
    pub(super) scales: Vec<f32>,
}

impl QuantisedRows {
    /// Appends the rows of a tensor: `rows` of `columns` values each.
    ///
    /// # Errors
    /// As [`Tensors::read_rows`].
    pub(super) fn read(
        &mut self,
        tensors: &Tensors,
        name: &str,
        [rows, columns]: [usize; 2],
    ) -> Result<(), String> {
        self.weights.reserve_exact(rows * columns);
        self.scales.reserve_exact(rows);
        tensors.read_rows(name, &[rows, columns], |row| {
            let max = row.iter().fold(0f32, |max, w| max.max(w.abs()));
            let factor = if max > 0.0 { MAX_WEIGHT / max } else { 0.0 };
            self.weights.extend(row.iter().map(|w| kernels::round_to_i16(w * factor) as i8));
            self.scales.push(max / MAX_WEIGHT);
        })
    }
}

/// A linear layer with `K` inputs.
#[derive(Default)]
pub(super) struct Linear<const K: usize> {
    rows: QuantisedRows,
    bias: Vec<f32>,
}

impl<const K: usize> Linear<K> {
    /// Appends the outputs of the layer `name` of the file.
    pub(super) fn append(
        &mut self,
        tensors: &Tensors,
        name: &str,
        outputs: usize,
    ) -> Result<(), String> {
        self.rows.read(tensors, &format!("{name}.weight"), [outputs, K])?;
        self.bias.extend(tensors.read(&format!("{name}.bias"), &[outputs])?);
        Ok(())
    }

    pub(super) fn read(tensors: &Tensors, name: &str, outputs: usize) -> Result<Self, String> {
        let mut layer = Self::default();
        layer.append(tensors, name, outputs)?;
        Ok(layer)
    }

    /// Multiplies all outputs by `factor`.
    pub(super) fn scale(&mut self, factor: f32) {
        self.rows.scales.iter_mut().chain(&mut self.bias).for_each(|x| *x *= factor);
    }

    /// Number of outputs.
    pub(super) fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Computes the outputs `y` of the rows `x`. `quantised` has space for the values of `x`.
    #[inline(always)]
    pub(super) fn run(&self, x: &[f32], quantised: &mut Quantised, y: &mut [f32]) {
        let values = &mut quantised.values[..x.len()];
        kernels::quantise_rows::<K>(x, values, &mut quantised.scales);
        let w = Matrix { weights: &self.rows.weights, scales: &self.rows.scales, bias: &self.bias };
        kernels::linear::<K>(&w, &Rows { values, scales: &quantised.scales }, y);
    }
}

/// Space for the quantised inputs of a layer, with a scale per token.
pub(super) struct Quantised {
    pub(super) values: Vec<i16>,
    pub(super) scales: Vec<f32>,
}

/// A layer normalisation over the dimensions.
pub(super) struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Norm {
    pub(super) fn read(tensors: &Tensors, name: &str) -> Result<Self, String> {
        let read = |part: &str| tensors.read(&format!("{name}.{part}"), &[DIMENSIONS]);
        Ok(Self { weight: read("weight")?, bias: read("bias")? })
    }

    #[inline(always)]
    pub(super) fn run(&self, x: &mut [f32]) {
        kernels::layer_norm::<DIMENSIONS>(x, &self.weight, &self.bias);
    }
}
