//! Arithmetic on plain arrays, which the compiler turns into vectors of its caller's target
//! features. It uses no intrinsics and no pointers.
//!
//! Every function is `inline(always)`, so that it is compiled inside the functions of `simd`, with
//! their target features. Closures are compiled without these features. Hot loops therefore contain
//! no `array::from_fn` and no iterator adapter with a closure. `L` is the number of lanes of a
//! vector. Weights come in blocks of two vectors of outputs. `S` is the number of streams that are
//! processed together and share each loaded weight.

// The compiler vectorizes index loops over small fixed arrays.
#![allow(clippy::needless_range_loop)]

use super::weights::BINS;
use crate::vector_math::{sigmoid, tanh};

/// Distance between the magnitudes of two frames: [`BINS`] rounded up to whole vectors.
pub(super) const FRAME_STRIDE: usize = 144;

/// A vector of `L` lanes. `FMA`: the target has fused multiply-add; without it, `mul_add` is a
/// library call.
#[derive(Clone, Copy)]
struct Lanes<const L: usize, const FMA: bool>([f32; L]);

impl<const L: usize, const FMA: bool> Lanes<L, FMA> {
    #[inline(always)]
    fn store(self, to: &mut [f32], relu: bool) {
        for (to, x) in to[..L].iter_mut().zip(self.0) {
            *to = if relu { x.max(0.0) } else { x };
        }
    }

    #[inline(always)]
    fn multiply_add(&mut self, a: Self, x: f32) {
        for i in 0..L {
            self.0[i] = if FMA { a.0[i].mul_add(x, self.0[i]) } else { self.0[i] + a.0[i] * x };
        }
    }

    #[inline(always)]
    fn plus(mut self, a: Self) -> Self {
        for i in 0..L {
            self.0[i] += a.0[i];
        }
        self
    }
}

/// One block of the first convolution: 129×4 → block×4, kernel 3, padding 1, for `S` streams. `x`
/// has a row per frame, [`FRAME_STRIDE`] apart. `y` has a row of 128 per frame, written from column
/// `at` on.
#[inline(always)]
#[expect(clippy::unwrap_used, reason = "each slice has the length of its array")]
pub(super) fn conv_129x4<const L: usize, const FMA: bool, const S: usize>(
    w: &[[f32; L]],
    b: &[[f32; L]],
    x: &[f32],
    y: &mut [f32],
    at: usize,
) {
    let w: &[[[f32; L]; 6]; BINS] = w.as_chunks().0.try_into().unwrap();
    let mut rows = [[&[0f32; BINS]; 4]; S];
    for s in 0..S {
        for t in 0..4 {
            rows[s][t] = x[(s * 4 + t) * FRAME_STRIDE..][..BINS].try_into().unwrap();
        }
    }
    let mut sum = [[[Lanes::<L, FMA>(b[0]), Lanes(b[1])]; 4]; S];
    for i in 0..BINS {
        let w = &w[i];
        let taps =
            [[Lanes(w[0]), Lanes(w[1])], [Lanes(w[2]), Lanes(w[3])], [Lanes(w[4]), Lanes(w[5])]];
        for s in 0..S {
            let v = [rows[s][0][i], rows[s][1][i], rows[s][2][i], rows[s][3][i]];
            for h in 0..2 {
                for t in 0..4 {
                    sum[s][t][h].multiply_add(taps[1][h], v[t]);
                }
                for t in 1..4 {
                    sum[s][t][h].multiply_add(taps[0][h], v[t - 1]);
                }
                for t in 0..3 {
                    sum[s][t][h].multiply_add(taps[2][h], v[t + 1]);
                }
            }
        }
    }
    for s in 0..S {
        for t in 0..4 {
            for h in 0..2 {
                sum[s][t][h].store(&mut y[s * 512 + t * 128 + at + h * L..], true);
            }
        }
    }
}

/// One block of the second convolution: 128×4 → block×2, kernel 3, stride 2, padding 1, for `S`
/// streams. `x` has a row of 128 per frame. `y` has a row of 64 per frame, written from column `at`
/// on.
#[inline(always)]
#[expect(clippy::unwrap_used, reason = "each slice has the length of its array")]
pub(super) fn conv_128x4<const L: usize, const FMA: bool, const S: usize>(
    w: &[[f32; L]],
    b: &[[f32; L]],
    x: &[f32],
    y: &mut [f32],
    at: usize,
) {
    let w: &[[[f32; L]; 6]; 128] = w.as_chunks().0.try_into().unwrap();
    let mut rows = [[&[0f32; 128]; 4]; S];
    for s in 0..S {
        for t in 0..4 {
            rows[s][t] = x[s * 512 + t * 128..][..128].try_into().unwrap();
        }
    }
    let mut sum = [[[Lanes::<L, FMA>(b[0]), Lanes(b[1])]; 2]; S];
    for i in 0..128 {
        let w = &w[i];
        let taps =
            [[Lanes(w[0]), Lanes(w[1])], [Lanes(w[2]), Lanes(w[3])], [Lanes(w[4]), Lanes(w[5])]];
        for s in 0..S {
            for h in 0..2 {
                sum[s][0][h].multiply_add(taps[1][h], rows[s][0][i]);
                sum[s][1][h].multiply_add(taps[1][h], rows[s][2][i]);
                sum[s][0][h].multiply_add(taps[2][h], rows[s][1][i]);
                sum[s][1][h].multiply_add(taps[2][h], rows[s][3][i]);
                sum[s][1][h].multiply_add(taps[0][h], rows[s][1][i]);
            }
        }
    }
    for s in 0..S {
        for t in 0..2 {
            for h in 0..2 {
                sum[s][t][h].store(&mut y[s * 128 + t * 64 + at + h * L..], true);
            }
        }
    }
}

/// Layout of a dense layer's input and output: the distances between the rows of two streams, and
/// whether ReLU follows.
#[derive(Clone, Copy)]
pub(super) struct RowLayout {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) relu: bool,
}

/// One block of a dense layer with `K` inputs, for `S` streams, written from column `at` on.
#[inline(always)]
#[expect(clippy::unwrap_used, reason = "each slice has the length of its array")]
pub(super) fn dense<const L: usize, const FMA: bool, const K: usize, const S: usize>(
    w: &[[f32; L]],
    b: &[[f32; L]],
    x: &[f32],
    y: &mut [f32],
    at: usize,
    rows: RowLayout,
) {
    let w: &[[[f32; L]; 2]; K] = w.as_chunks().0.try_into().unwrap();
    let mut input = [&[0f32; K]; S];
    for s in 0..S {
        input[s] = x[s * rows.input..][..K].try_into().unwrap();
    }
    let mut sum = [[Lanes::<L, FMA>(b[0]), Lanes(b[1])]; S];
    if S == 1 {
        // Four chains hide the latency of the multiply-add. With more streams there are enough
        // chains.
        let zero = Lanes([0.0; L]);
        let mut chains = [sum[0], [zero; 2], [zero; 2], [zero; 2]];
        for (w, x) in w.as_chunks::<4>().0.iter().zip(input[0].as_chunks::<4>().0) {
            for h in 0..2 {
                for c in 0..4 {
                    chains[c][h].multiply_add(Lanes(w[c][h]), x[c]);
                }
            }
        }
        for h in 0..2 {
            sum[0][h] = chains[0][h].plus(chains[1][h]).plus(chains[2][h].plus(chains[3][h]));
        }
    } else {
        for i in 0..K {
            let w = [Lanes(w[i][0]), Lanes(w[i][1])];
            for s in 0..S {
                sum[s][0].multiply_add(w[0], input[s][i]);
                sum[s][1].multiply_add(w[1], input[s][i]);
            }
        }
    }
    for s in 0..S {
        for h in 0..2 {
            sum[s][h].store(&mut y[s * rows.output + at + h * L..], rows.relu);
        }
    }
}

/// The LSTM cell: updates `c` and `h` from the sums of the gates i, f, g, o (128 of each).
#[inline(always)]
pub(super) fn lstm(gates: &[f32; 512], h: &mut [f32; 128], c: &mut [f32; 128]) {
    for i in 0..128 {
        c[i] = sigmoid(gates[128 + i]) * c[i] + sigmoid(gates[i]) * tanh(gates[256 + i]);
    }
    for i in 0..128 {
        h[i] = sigmoid(gates[384 + i]) * tanh(c[i]);
    }
}

/// σ(w·ReLU(h) + b).
#[inline(always)]
pub(super) fn output(h: &[f32; 128], w: &[f32; 128], b: f32) -> f32 {
    let mut sums = [0f32; 16];
    for i in (0..128).step_by(16) {
        for j in 0..16 {
            sums[j] += h[i + j].max(0.0) * w[i + j];
        }
    }
    let mut sum = b;
    for j in 0..16 {
        sum += sums[j];
    }
    sigmoid(sum)
}
