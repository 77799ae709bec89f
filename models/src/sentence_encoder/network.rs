//! The network: embeddings, six layers of attention and two linear layers each, the mean over the
//! tokens.
//!
//! | step | shape per token | tensors |
//! |---|---|---|
//! | token + position + type 0, normalised | 384 | `embeddings.*` |
//! | six times: | | `encoder.layer.N.` |
//! | queries, keys, values | 3 × 384 | `attention.self.{query,key,value}` |
//! | attention of 12 heads of 32 | 384 | |
//! | linear, + input, normalised | 384 | `attention.output.*` |
//! | linear, GELU | 1536 | `intermediate.dense` |
//! | linear, + input, normalised | 384 | `output.*` |
//! | mean over the tokens, length 1 | 384 of the text | |

use super::kernels;
use super::layers::{Linear, Norm, Quantised, QuantisedRows};
use super::safetensors::Tensors;
use super::{DIMENSIONS, MAX_TOKENS};
use crate::simd::{DetectedIsa, Kernel};

const LAYERS: usize = 6;
/// Components of a head of the attention.
const HEAD: usize = 32;
/// Outputs of the first linear layer after the attention.
const INTERMEDIATE: usize = 1536;
/// Number of positions in the file, of which [`MAX_TOKENS`] are used.
const POSITIONS: usize = 512;

/// The weights.
pub(super) struct Network {
    tokens: QuantisedRows,
    /// [`MAX_TOKENS`] rows: the embedding of the position and that of type 0.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    /// Queries, keys and values.
    projections: Linear<DIMENSIONS>,
    attention: Linear<DIMENSIONS>,
    attention_norm: Norm,
    intermediate: Linear<DIMENSIONS>,
    output: Linear<INTERMEDIATE>,
    output_norm: Norm,
}

impl Layer {
    fn read(tensors: &Tensors, layer: usize) -> Result<Self, String> {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let mut projections = Linear::read(tensors, &name("attention.self.query"), DIMENSIONS)?;
        projections.scale(1.0 / (HEAD as f32).sqrt());
        projections.append(tensors, &name("attention.self.key"), DIMENSIONS)?;
        projections.append(tensors, &name("attention.self.value"), DIMENSIONS)?;
        Ok(Self {
            projections,
            attention: Linear::read(tensors, &name("attention.output.dense"), DIMENSIONS)?,
            attention_norm: Norm::read(tensors, &name("attention.output.LayerNorm"))?,
            intermediate: Linear::read(tensors, &name("intermediate.dense"), INTERMEDIATE)?,
            output: Linear::read(tensors, &name("output.dense"), DIMENSIONS)?,
            output_norm: Norm::read(tensors, &name("output.LayerNorm"))?,
        })
    }

    /// Computes the layer for the rows in `scratch.x`.
    #[inline(always)]
    fn run(&self, scratch: &mut Scratch) {
        let Scratch { x, wide, narrow, quantised, keys, scores } = scratch;
        let tokens = scores.len();
        let projections = &mut wide[..tokens * self.projections.outputs()];
        self.projections.run(x, quantised, projections);
        for head in (0..DIMENSIONS).step_by(HEAD) {
            kernels::attention::<HEAD>(projections, DIMENSIONS, head, keys, scores, narrow);
        }
        let attention = &mut wide[..tokens * DIMENSIONS];
        self.attention.run(narrow, quantised, attention);
        kernels::add(x, attention);
        self.attention_norm.run(x);
        self.intermediate.run(x, quantised, wide);
        kernels::gelu(wide);
        self.output.run(wide, quantised, narrow);
        kernels::add(x, narrow);
        self.output_norm.run(x);
    }
}

/// Buffers of one text: rows of its tokens.
struct Scratch {
    /// Inputs and outputs of the layers: [`DIMENSIONS`] per token.
    x: Vec<f32>,
    /// [`INTERMEDIATE`] values per token.
    wide: Vec<f32>,
    /// [`DIMENSIONS`] values per token.
    narrow: Vec<f32>,
    quantised: Quantised,
    /// [`HEAD`] values per token.
    keys: Vec<f32>,
    scores: Vec<f32>,
}

impl Scratch {
    fn new(tokens: usize) -> Self {
        Self {
            x: vec![0.0; tokens * DIMENSIONS],
            wide: vec![0.0; tokens * INTERMEDIATE],
            narrow: vec![0.0; tokens * DIMENSIONS],
            quantised: Quantised {
                values: vec![0; tokens * INTERMEDIATE],
                scales: vec![0.0; tokens],
            },
            keys: vec![0.0; tokens * HEAD],
            scores: vec![0.0; tokens],
        }
    }
}

impl Network {
    /// Reads the weights, for a vocabulary of `tokens`.
    ///
    /// # Errors
    /// As [`Tensors::read_rows`].
    pub(super) fn load(tensors: &Tensors, tokens: usize) -> Result<Self, String> {
        let embeddings = |part: &str| format!("embeddings.{part}_embeddings.weight");
        let mut rows = QuantisedRows::default();
        rows.read(tensors, &embeddings("word"), [tokens, DIMENSIONS])?;
        let types = tensors.read(&embeddings("token_type"), &[2, DIMENSIONS])?;
        let mut positions = tensors.read(&embeddings("position"), &[POSITIONS, DIMENSIONS])?;
        positions.truncate(MAX_TOKENS * DIMENSIONS);
        positions.shrink_to_fit();
        for row in positions.chunks_exact_mut(DIMENSIONS) {
            kernels::add(row, &types[..DIMENSIONS]);
        }
        let layers: Result<_, String> = (0..LAYERS).map(|n| Layer::read(tensors, n)).collect();
        let norm = Norm::read(tensors, "embeddings.LayerNorm")?;
        Ok(Self { tokens: rows, positions, norm, layers: layers? })
    }

    /// Vector of the tokens of a text: at most [`MAX_TOKENS`], each in the vocabulary.
    pub(super) fn run(&self, isa: DetectedIsa, tokens: &[u16]) -> Vec<f32> {
        isa.run(Encoding { network: self, tokens })
    }

    #[inline(always)]
    fn encode(&self, tokens: &[u16]) -> Vec<f32> {
        let mut scratch = Scratch::new(tokens.len());
        let rows = scratch.x.chunks_exact_mut(DIMENSIONS).zip(tokens);
        for ((x, token), position) in rows.zip(self.positions.chunks_exact(DIMENSIONS)) {
            let token = usize::from(*token);
            let weights = &self.tokens.weights[token * DIMENSIONS..][..DIMENSIONS];
            let scale = self.tokens.scales[token];
            for ((x, w), p) in x.iter_mut().zip(weights).zip(position) {
                *x = f32::from(*w) * scale + p;
            }
        }
        self.norm.run(&mut scratch.x);
        for layer in &self.layers {
            layer.run(&mut scratch);
        }
        // The mean is the sum divided by a number, which the length does not depend on.
        let mut vector = vec![0.0; DIMENSIONS];
        for row in scratch.x.chunks_exact(DIMENSIONS) {
            kernels::add(&mut vector, row);
        }
        let mut squares = vec![0.0; DIMENSIONS];
        for (square, x) in squares.iter_mut().zip(&vector) {
            *square = x * x;
        }
        let length = kernels::sum(&squares).sqrt();
        // Only damaged weights have another length.
        if !length.is_normal() {
            return vec![0.0; DIMENSIONS];
        }
        for x in &mut vector {
            *x /= length;
        }
        vector
    }
}

/// Arguments of [`Network::encode`].
struct Encoding<'a> {
    network: &'a Network,
    tokens: &'a [u16],
}

impl Kernel for Encoding<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<const L: usize, const FMA: bool>(self) -> Vec<f32> {
        self.network.encode(self.tokens)
    }
}
