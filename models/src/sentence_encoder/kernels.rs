//! Arithmetic of the sentence encoder on plain arrays, which the compiler turns into vectors of its
//! caller's target features. It uses no intrinsics and no pointers. See [`Kernel`] for the rules.
//!
//! Every function computes the same bits with every instruction set: sums of products are integers,
//! or are added in an order that the code fixes, and there is no fused multiply-add.
//!
//! [`Kernel`]: crate::simd::Kernel

// The compiler vectorizes index loops over small fixed arrays.
#![allow(clippy::needless_range_loop)]

use crate::vector_math::exp;

/// Largest magnitude of a quantised weight.
pub(super) const MAX_WEIGHT: f32 = 127.0;
/// Largest magnitude of a quantised activation: a sum of 1536 products fits in 32 bits.
const MAX_ACTIVATION: f32 = 8191.0;
const _: () = assert!(1536 * MAX_WEIGHT as i64 * MAX_ACTIVATION as i64 <= i32::MAX as i64);

/// Number of tokens that share each loaded weight.
const TOKEN_BLOCK: usize = 4;
/// Number of partial sums of a row. It fixes the order of additions.
const LANES: usize = 16;
/// Square root of one half.
const SQRT_HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;

/// A matrix of 8 bits with `K` columns: row `o` times `scales[o]` are the weights of output `o`.
pub(super) struct Matrix<'a> {
    pub(super) weights: &'a [i8],
    pub(super) scales: &'a [f32],
    pub(super) bias: &'a [f32],
}

/// Rows of 16 bits: row `t` times `scales[t]` are the values of token `t`.
pub(super) struct Rows<'a> {
    pub(super) values: &'a [i16],
    pub(super) scales: &'a [f32],
}

/// Rounds to the nearest integer; exact for magnitudes below 2²².
#[inline(always)]
pub(super) fn round_to_i16(x: f32) -> i16 {
    // 1.5 · 2^23: the low bits of the sum are the integer.
    const ROUND: f32 = 12_582_912.0;
    (x + ROUND).to_bits() as i16
}

/// Quantises each row of `K` values: the largest magnitude of a row becomes [`MAX_ACTIVATION`].
#[inline(always)]
pub(super) fn quantise_rows<const K: usize>(x: &[f32], values: &mut [i16], scales: &mut [f32]) {
    let rows = x.as_chunks::<K>().0.iter().zip(values.as_chunks_mut::<K>().0).zip(scales);
    for ((x, values), scale) in rows {
        let max = max_magnitude(x);
        let factor = if max > 0.0 { MAX_ACTIVATION / max } else { 0.0 };
        for i in 0..K {
            values[i] = round_to_i16(x[i] * factor);
        }
        *scale = max / MAX_ACTIVATION;
    }
}

/// Largest magnitude of some values.
#[inline(always)]
fn max_magnitude<const K: usize>(x: &[f32; K]) -> f32 {
    let mut lanes = [0f32; LANES];
    for part in x.as_chunks::<LANES>().0 {
        for i in 0..LANES {
            let magnitude = part[i].abs();
            lanes[i] = if magnitude > lanes[i] { magnitude } else { lanes[i] };
        }
    }
    let mut max = 0f32;
    for lane in lanes {
        max = if lane > max { lane } else { max };
    }
    max
}

/// `y[t] = w · x[t] + b`: a row of `y` has an output per row of `w`.
#[inline(always)]
pub(super) fn linear<const K: usize>(w: &Matrix, x: &Rows, y: &mut [f32]) {
    let outputs = w.scales.len();
    let (blocks, rest) = x.values.as_chunks::<K>().0.as_chunks::<TOKEN_BLOCK>();
    let mut wide = [0i16; K];
    for (o, row) in w.weights.as_chunks::<K>().0.iter().enumerate() {
        for i in 0..K {
            wide[i] = i16::from(row[i]);
        }
        let (scale, bias) = (w.scales[o], w.bias[o]);
        for (b, block) in blocks.iter().enumerate() {
            let sums = dot_products(&wide, block);
            for (i, sum) in sums.iter().enumerate() {
                let t = b * TOKEN_BLOCK + i;
                y[t * outputs + o] = *sum as f32 * (scale * x.scales[t]) + bias;
            }
        }
        for (i, token) in rest.iter().enumerate() {
            let [sum] = dot_products(&wide, std::array::from_ref(token));
            let t = blocks.len() * TOKEN_BLOCK + i;
            y[t * outputs + o] = sum as f32 * (scale * x.scales[t]) + bias;
        }
    }
}

/// Dot products of `w` with `T` rows.
#[inline(always)]
fn dot_products<const K: usize, const T: usize>(w: &[i16; K], x: &[[i16; K]; T]) -> [i32; T] {
    let mut sums = [0; T];
    for i in 0..K {
        for t in 0..T {
            sums[t] += i32::from(w[i]) * i32::from(x[t][i]);
        }
    }
    sums
}

/// Layer normalisation of each row of `K` values (Ba et al. 2016), with ε = 1e-12.
#[inline(always)]
pub(super) fn layer_norm<const K: usize>(x: &mut [f32], weight: &[f32], bias: &[f32]) {
    for row in x.as_chunks_mut::<K>().0 {
        let mean = sum(row) / K as f32;
        let mut squares = [0f32; K];
        for i in 0..K {
            row[i] -= mean;
            squares[i] = row[i] * row[i];
        }
        let factor = 1.0 / (sum(&squares) / K as f32 + 1e-12).sqrt();
        for ((x, w), b) in row.iter_mut().zip(weight).zip(bias) {
            *x = *x * factor * w + b;
        }
    }
}

/// Adds `y` to `x`.
#[inline(always)]
pub(super) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Sum of some values.
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    let (parts, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for part in parts {
        for i in 0..LANES {
            lanes[i] += part[i];
        }
    }
    let mut sum = 0.0;
    for lane in lanes {
        sum += lane;
    }
    for x in rest {
        sum += x;
    }
    sum
}

/// x · Φ(x) of each value (Hendrycks & Gimpel 2016), where Φ is the normal distribution.
#[inline(always)]
pub(super) fn gelu(x: &mut [f32]) {
    for x in x {
        *x = 0.5 * *x * (1.0 + erf(*x * SQRT_HALF));
    }
}

/// The error function, as 7.1.26 of Abramowitz & Stegun; error below 1e-6.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * magnitude);
    let p = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_7) * t - 0.284_496_74) * t
        + 0.254_829_6)
        * t;
    (1.0 - p * exp(-magnitude * magnitude)).copysign(x)
}

/// Replaces scores by their softmax.
#[inline(always)]
fn softmax(scores: &mut [f32]) {
    let mut max = f32::MIN;
    for score in scores.iter() {
        max = if *score > max { *score } else { max };
    }
    for score in scores.iter_mut() {
        *score = exp(*score - max);
    }
    let factor = 1.0 / sum(scores);
    for score in scores {
        *score *= factor;
    }
}

/// Attention of one head with `D` components (Vaswani et al. 2017, 3.2.1). A row of `qkv` has
/// `3 · width` values: queries, which are already divided by √`D`, keys and values of all heads.
/// Those of this head start at `head`. A row of `y` has `width` values. `keys` has space for `D`
/// values per token, and `scores` for one.
#[inline(always)]
pub(super) fn attention<const D: usize>(
    qkv: &[f32],
    width: usize,
    head: usize,
    keys: &mut [f32],
    scores: &mut [f32],
    y: &mut [f32],
) {
    let tokens = scores.len();
    for (t, row) in qkv.chunks_exact(3 * width).enumerate() {
        for (d, key) in row[width + head..][..D].iter().enumerate() {
            keys[d * tokens + t] = *key;
        }
    }
    for (row, y) in qkv.chunks_exact(3 * width).zip(y.chunks_exact_mut(width)) {
        scores.fill(0.0);
        for (query, keys) in row[head..][..D].iter().zip(keys.chunks_exact(tokens)) {
            for (score, key) in scores.iter_mut().zip(keys) {
                *score += query * key;
            }
        }
        softmax(scores);
        let mut context = [0f32; D];
        for (score, row) in scores.iter().zip(qkv.chunks_exact(3 * width)) {
            for (sum, value) in context.iter_mut().zip(&row[2 * width + head..][..D]) {
                *sum += score * value;
            }
        }
        y[head..][..D].copy_from_slice(&context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random values from −1 to 1.
    fn values(seed: u32, count: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_linear_layer_has_the_sums_of_its_definition() {
        const K: usize = 64;
        let weights: Vec<i8> = values(1, 3 * K).iter().map(|w| (w * 127.0) as i8).collect();
        let (scales, bias) = ([0.5, 0.25, 2.0], [1.0, -1.0, 0.0]);
        // Four tokens are a block; the others are computed one by one.
        for tokens in [1, 4, 6] {
            let x = values(2, tokens * K);
            let (mut quantised, mut x_scales) = (vec![0; tokens * K], vec![0.0; tokens]);
            quantise_rows::<K>(&x, &mut quantised, &mut x_scales);
            let mut y = vec![0.0; tokens * 3];
            let w = Matrix { weights: &weights, scales: &scales, bias: &bias };
            linear::<K>(&w, &Rows { values: &quantised, scales: &x_scales }, &mut y);
            for (at, y) in y.iter().enumerate() {
                let (t, o) = (at / 3, at % 3);
                let products = x[t * K..][..K].iter().zip(&weights[o * K..][..K]);
                let sum: f64 = products.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let wanted = sum * f64::from(scales[o]) + f64::from(bias[o]);
                assert!((f64::from(*y) - wanted).abs() < 0.5, "{y} is not {wanted}");
            }
        }
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        let (weights, x) = ([-127i8; 1536], [8191i16; 1536]);
        let mut y = [0.0];
        let w = Matrix { weights: &weights, scales: &[1.0], bias: &[0.0] };
        linear::<1536>(&w, &Rows { values: &x, scales: &[1.0] }, &mut y);
        assert_eq!(y[0], -1536.0 * 127.0 * 8191.0);
    }

    #[test]
    fn quantised_rows_are_right_to_half_a_step() {
        let mut x = values(3, 96);
        x[32..64].fill(0.0);
        x[70] = -1e6;
        let (mut quantised, mut scales) = ([0; 96], [1.0; 3]);
        quantise_rows::<32>(&x, &mut quantised, &mut scales);
        assert_eq!((scales[1], quantised[70]), (0.0, -8191));
        for (at, x) in x.iter().enumerate() {
            let scale = scales[at / 32];
            assert!((f32::from(quantised[at]) * scale - x).abs() <= 0.501 * scale, "{x}");
        }
    }

    #[test]
    fn normalised_rows_have_mean_0_and_variance_1() {
        let mut x = values(4, 96);
        layer_norm::<48>(&mut x, &[2.0; 48], &[3.0; 48]);
        for row in x.chunks(48) {
            let mean = row.iter().sum::<f32>() / 48.0;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / 48.0;
            assert!((mean - 3.0).abs() < 1e-5 && (variance - 4.0).abs() < 1e-4);
        }
    }

    #[test]
    fn gelu_is_right_to_a_millionth() {
        // Φ by Simpson's rule from −8.
        let distribution = |x: f64| {
            let (steps, density) = (4000, |t: f64| (-t * t / 2.0).exp());
            let h = (x + 8.0) / f64::from(steps);
            let inner: f64 = (1..steps)
                .map(|i| density(-8.0 + f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 })
                .sum();
            (density(-8.0) + inner + density(x)) * h / 3.0 / std::f64::consts::TAU.sqrt()
        };
        for i in -60..=60 {
            let x = f64::from(i) / 10.0;
            let mut found = [x as f32];
            gelu(&mut found);
            let wanted = x * distribution(x);
            assert!((f64::from(found[0]) - wanted).abs() < 2e-6, "{x}: {} {wanted}", found[0]);
        }
    }

    #[test]
    fn attention_is_the_mean_of_values_weighted_by_the_softmax() {
        const WIDTH: usize = 8;
        let qkv = values(5, 5 * 3 * WIDTH);
        let (mut keys, mut scores, mut y) = ([0.0; 20], [0.0; 5], [0.0; 5 * WIDTH]);
        attention::<4>(&qkv, WIDTH, 4, &mut keys, &mut scores, &mut y);
        let part = |t: usize, at: usize, d: usize| f64::from(qkv[t * 24 + at * WIDTH + 4 + d]);
        for t in 0..5 {
            let score = |j| (0..4).map(|d| part(t, 0, d) * part(j, 1, d)).sum::<f64>().exp();
            let total: f64 = (0..5).map(score).sum();
            for d in 0..4 {
                let wanted: f64 = (0..5).map(|j| score(j) / total * part(j, 2, d)).sum();
                assert!((f64::from(y[t * WIDTH + 4 + d]) - wanted).abs() < 1e-6);
                assert_eq!(y[t * WIDTH + d], 0.0, "another head");
            }
        }
    }
}
