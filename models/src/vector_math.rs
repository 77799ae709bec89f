//! Elementary functions without branches, which the compiler turns into vectors of its caller's
//! target features (see `simd`).

/// Rational approximation with the coefficients of Eigen's `generic_fast_tanh_float`; error below
/// 1e-6.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let x = x.clamp(-7.905_311, 7.905_311);
    let y = x * x;
    let p = ((((((-2.760_768_5e-16 * y + 2.000_188e-13) * y - 8.604_672e-11) * y + 5.122_297e-8)
        * y
        + 1.485_722_4e-5)
        * y
        + 6.372_619_3e-4)
        * y
        + 4.893_524_6e-3)
        * x;
    p / (((1.198_258_4e-6 * y + 1.185_347e-4) * y + 2.268_434_6e-3) * y + 4.893_525e-3)
}

/// Uses `exp`, not `tanh`: the forget gate is close to 1, and its error accumulates over an hour
/// (3e-4 with `tanh`, 3e-5 with `exp`).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// As `expf` of Cephes, with an error of one or two units in the last place. It has no branch, so
/// that it can be vectorized.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // 1.5 · 2^23: adding and subtracting it rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 87.0);
    let n = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let p = (((((1.987_569_1e-4 * r + 1.398_199_9e-3) * r + 8.333_452e-3) * r + 4.166_579_6e-2)
        * r
        + 1.666_666_5e-1)
        * r
        + 0.5)
        * r
        * r
        + r
        + 1.0;
    // The low bits of ROUND + 127 + n are the exponent of 2^n.
    p * f32::from_bits((n + ROUND + 127.0).to_bits() << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_the_gates_are_right_to_a_millionth() {
        for i in -4000..=4000 {
            let x = i as f32 / 100.0;
            let exact = f64::from(x);
            assert!((f64::from(tanh(x)) - exact.tanh()).abs() < 1e-6, "tanh({x})");
            assert!(
                (f64::from(sigmoid(x)) - 1.0 / (1.0 + (-exact).exp())).abs() < 3e-7,
                "sigmoid({x})"
            );
            let relative = f64::from(exp(x)) / exact.exp() - 1.0;
            assert!(relative.abs() < 3e-7, "exp({x}) is off by {relative:e}");
        }
    }
}
