//! Elementary functions of `f32` without branches, so that loops over them are vectorized.
//!
//! The errors are far below what is audible: 2⁻¹⁶ relative for [`exp`], 10⁻⁵ absolute for the
//! others.

use std::f32::consts::{FRAC_PI_2, LOG2_E, PI, TAU};

/// 1.5 · 2²³. A number added to it is rounded to an integer, which is in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

fn round(x: f32) -> f32 {
    (x + ROUND) - ROUND
}

/// eˣ for -87 ≤ x ≤ 88; other arguments are clamped.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    let t = x.clamp(-87.0, 88.0) * LOG2_E;
    let shifted = t + ROUND;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    let f = (t - (shifted - ROUND)) * std::f32::consts::LN_2;
    // The series of eᶠ for |f| ≤ ln 2 / 2.
    let series = 1.0 + f * (1.0 + f * (0.5 + f * (1.0 / 6.0 + f * (1.0 / 24.0 + f / 120.0))));
    series * f32::from_bits(n.wrapping_add(127) << 23)
}

/// Hyperbolic tangent.
#[inline]
pub(super) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x.clamp(-9.0, 9.0)) + 1.0)
}

/// Sine for |x| below 10⁵.
#[inline]
pub(super) fn sin(x: f32) -> f32 {
    let r = x - TAU * round(x * (1.0 / TAU));
    // To 0 … π/2, where the series converges.
    let magnitude = r.abs();
    let folded = magnitude.min(PI - magnitude);
    let s = folded * folded;
    let series = folded
        * (1.0
            + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5_040.0 + s * (1.0 / 362_880.0)))));
    series.copysign(r)
}

/// Cosine for |x| below 10⁵.
#[inline]
pub(super) fn cos(x: f32) -> f32 {
    sin(x + FRAC_PI_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_agree_with_those_of_the_library() {
        for n in -2_000..2_000 {
            let x = n as f32 / 100.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 3e-5, "exp({x}) = {}", exp(x));
            assert!((tanh(x) - x.tanh()).abs() < 1e-5, "tanh({x}) = {}", tanh(x));
            assert!((sin(x) - x.sin()).abs() < 1e-5, "sin({x}) = {}", sin(x));
            assert!((cos(x) - x.cos()).abs() < 1e-5, "cos({x}) = {}", cos(x));
        }
        assert!((sin(1_700.0) - 1_700f32.sin()).abs() < 1e-3);
        assert!(exp(-1e9) > 0.0 && exp(1e9).is_finite());
    }
}
