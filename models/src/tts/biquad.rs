//! Second-order filter sections ("biquads") for the audio of voices.
//!
//! The coefficients follow R. Bristow-Johnson, "Cookbook formulae for audio equalizer biquad filter
//! coefficients". All sections are minimum-phase and add no latency.

use std::f32::consts::{FRAC_1_SQRT_2, PI};

/// Below this magnitude the state becomes zero: denormal numbers are slow. The unit is that of the
/// samples, so it is far below one quantization step.
const SMALLEST_STATE: f32 = 1e-12;

/// A filter section with its state (transposed direct form II).
#[derive(Clone, Copy, Debug)]
pub(super) struct Biquad {
    b: [f32; 3],
    a: [f32; 2],
    state: [f32; 2],
}

impl Biquad {
    /// A section from the cookbook's coefficients b0, b1, b2 and a0, a1, a2.
    fn new(b: [f32; 3], a: [f32; 3]) -> Self {
        Self { b: b.map(|b| b / a[0]), a: [a[1] / a[0], a[2] / a[0]], state: [0.0; 2] }
    }

    /// Raises or lowers the band around `hz` by `decibels`; the bandwidth is `hz / quality`.
    pub(super) fn peak(sample_rate: f32, hz: f32, quality: f32, decibels: f32) -> Self {
        let (cos, alpha) = angle(sample_rate, hz, quality);
        let gain = amplitude(decibels);
        Self::new(
            [1.0 + alpha * gain, -2.0 * cos, 1.0 - alpha * gain],
            [1.0 + alpha / gain, -2.0 * cos, 1.0 - alpha / gain],
        )
    }

    /// Raises or lowers everything below `hz` by `decibels`.
    pub(super) fn low_shelf(sample_rate: f32, hz: f32, decibels: f32) -> Self {
        Self::shelf(sample_rate, hz, decibels, 1.0)
    }

    /// Raises or lowers everything above `hz` by `decibels`.
    pub(super) fn high_shelf(sample_rate: f32, hz: f32, decibels: f32) -> Self {
        Self::shelf(sample_rate, hz, decibels, -1.0)
    }

    /// `side` is 1 for a low shelf and -1 for a high one.
    fn shelf(sample_rate: f32, hz: f32, decibels: f32, side: f32) -> Self {
        let (cos, alpha) = angle(sample_rate, hz, FRAC_1_SQRT_2);
        let cos = side * cos;
        let gain = amplitude(decibels);
        let (more, less, slope) = (gain + 1.0, gain - 1.0, 2.0 * gain.sqrt() * alpha);
        Self::new(
            [
                gain * (more - less * cos + slope),
                side * 2.0 * gain * (less - more * cos),
                gain * (more - less * cos - slope),
            ],
            [
                more + less * cos + slope,
                side * -2.0 * (less + more * cos),
                more + less * cos - slope,
            ],
        )
    }

    /// A Butterworth low-pass filter of second order.
    pub(super) fn low_pass(sample_rate: f32, hz: f32) -> Self {
        let (cos, alpha) = angle(sample_rate, hz, FRAC_1_SQRT_2);
        let half = (1.0 - cos) / 2.0;
        Self::new([half, 2.0 * half, half], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
    }

    /// A Butterworth high-pass filter of second order.
    pub(super) fn high_pass(sample_rate: f32, hz: f32) -> Self {
        let (cos, alpha) = angle(sample_rate, hz, FRAC_1_SQRT_2);
        let half = f32::midpoint(1.0, cos);
        Self::new([half, -2.0 * half, half], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
    }

    /// Filters one sample.
    pub(super) fn process(&mut self, x: f32) -> f32 {
        let y = self.b[0] * x + self.state[0];
        let next = [self.b[1] * x - self.a[0] * y + self.state[1], self.b[2] * x - self.a[1] * y];
        self.state = next.map(|state| if state.abs() < SMALLEST_STATE { 0.0 } else { state });
        y
    }
}

/// Cosine of the angular frequency, and the cookbook's alpha.
fn angle(sample_rate: f32, hz: f32, quality: f32) -> (f32, f32) {
    let (sin, cos) = (2.0 * PI * hz / sample_rate).sin_cos();
    (cos, sin / (2.0 * quality))
}

/// The cookbook's A: the square root of the gain.
fn amplitude(decibels: f32) -> f32 {
    10f32.powf(decibels / 40.0)
}

/// Filters one sample with all sections in turn.
pub(super) fn cascade(sections: &mut [Biquad], x: f32) -> f32 {
    sections.iter_mut().fold(x, |x, section| section.process(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f32 = 16_000.0;

    /// Gain in dB at a frequency, from the impulse response.
    fn gain(mut section: Biquad, hz: f32) -> f32 {
        let (mut re, mut im) = (0.0, 0.0);
        for n in 0..4_000 {
            let y = section.process(if n == 0 { 1.0 } else { 0.0 });
            let (sin, cos) = (2.0 * PI * hz / RATE * n as f32).sin_cos();
            (re, im) = (re + y * cos, im - y * sin);
        }
        20.0 * re.hypot(im).log10()
    }

    #[test]
    fn each_section_has_the_gain_of_its_formula() {
        let cases = [
            (Biquad::peak(RATE, 2_000.0, 0.9, 6.0), [(2_000.0, 6.0), (20.0, 0.0), (7_900.0, 0.0)]),
            (Biquad::low_shelf(RATE, 250.0, -4.0), [(10.0, -4.0), (250.0, -2.0), (7_000.0, 0.0)]),
            (Biquad::high_shelf(RATE, 5_000.0, 3.0), [(50.0, 0.0), (5_000.0, 1.5), (7_900.0, 3.0)]),
            (Biquad::low_pass(RATE, 1_000.0), [(20.0, 0.0), (1_000.0, -3.0), (4_000.0, -28.1)]),
            (Biquad::high_pass(RATE, 1_000.0), [(7_000.0, 0.0), (1_000.0, -3.0), (100.0, -40.0)]),
        ];
        for (section, points) in cases {
            for (hz, decibels) in points {
                let found = gain(section, hz);
                assert!((found - decibels).abs() < 0.3, "{section:?}: {found} dB at {hz} Hz");
            }
        }
    }

    #[test]
    fn the_poles_and_zeros_lie_inside_the_unit_circle() {
        for section in [
            Biquad::peak(RATE, 750.0, 0.7, 6.0),
            Biquad::peak(RATE, 750.0, 0.7, -6.0),
            Biquad::low_shelf(RATE, 250.0, -4.0),
            Biquad::high_shelf(RATE, 5_500.0, -5.0),
        ] {
            // Jury's criterion of a polynomial 1 + c1 z^-1 + c2 z^-2.
            let stable = |c1: f32, c2: f32| c2.abs() < 1.0 && c1.abs() < 1.0 + c2;
            let [b0, b1, b2] = section.b;
            assert!(stable(section.a[0], section.a[1]) && stable(b1 / b0, b2 / b0), "{section:?}");
        }
    }

    #[test]
    fn the_state_decays_to_zero() {
        let mut section = Biquad::low_pass(RATE, 100.0);
        section.process(30_000.0);
        (0..8_000).for_each(|_| _ = section.process(0.0));
        assert_eq!(section.state, [0.0; 2]);
    }
}
