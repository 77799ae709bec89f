//! Adds sound above the band of a voice.
//!
//! ```text
//! samples ─┬─► drive band ─► envelope (1 ms) ───────────────────┐
//!          │        └──────► power (8 ms) ─┐                    ▼
//!          └─► low band ───► power (8 ms) ─┴─► friction ─► gain × ─► added sound
//!                                       noise ─► noise band ────┘
//! ```
//!
//! The added sound is noise with the temporal envelope of the highest band that exists. The method is
//! time-domain envelope shaping, as in ITU-T G.729.1, 7.3 (TDBWE), without transmitted parameters. The
//! friction is the fraction of the power in the drive band. It is near 1 in fricatives and near 0 in
//! vowels, which need little noise. The envelope follows each pitch pulse, so the noise in a vowel is
//! not heard as a separate hiss. Silence stays silence.

use super::biquad::{Biquad, cascade};

/// Time constants in seconds.
const ENVELOPE_SECONDS: f32 = 0.001;
const POWER_SECONDS: f32 = 0.008;
/// Powers of the low band and of the drive band in this ratio are half friction.
const LOW_BAND_WEIGHT: f32 = 0.3;
/// Upper limit of the low band in Hz: the first formants of vowels.
const LOW_BAND_HZ: f32 = 1_000.0;
/// Power below which there is no friction, in squared 16-bit steps.
const POWER_FLOOR: f32 = 1e-3;

/// Bands in Hz and gains of an extension.
pub(super) struct Config {
    /// Limits of the band that drives the noise. The upper one may be that of the voice.
    pub(super) drive_hz: (f32, f32),
    /// Limits of the noise.
    pub(super) noise_hz: (f32, f32),
    /// Ratio of the noise to the envelope, in vowels and in fricatives.
    pub(super) vowel_gain: f32,
    pub(super) fricative_gain: f32,
}

/// The state of an extension. The result depends on the samples only, not on how they are split.
pub(super) struct BandExtension {
    drive: [Biquad; 3],
    low: Biquad,
    noise: [Biquad; 4],
    vowel_gain: f32,
    friction_gain: f32,
    envelope_rate: f32,
    power_rate: f32,
    envelope: f32,
    drive_power: f32,
    low_power: f32,
    random: u32,
}

impl BandExtension {
    pub(super) fn new(sample_rate: f32, config: &Config) -> Self {
        let ((drive_from, drive_to), (from, to)) = (config.drive_hz, config.noise_hz);
        let high_pass = |hz| Biquad::high_pass(sample_rate, hz);
        let low_pass = |hz| Biquad::low_pass(sample_rate, hz);
        let rate = |seconds: f32| 1.0 - (-1.0 / (seconds * sample_rate)).exp();
        Self {
            drive: [high_pass(drive_from), high_pass(drive_from), low_pass(drive_to)],
            low: low_pass(LOW_BAND_HZ),
            noise: [high_pass(from), high_pass(from), low_pass(to), low_pass(to)],
            vowel_gain: config.vowel_gain,
            friction_gain: config.fricative_gain - config.vowel_gain,
            envelope_rate: rate(ENVELOPE_SECONDS),
            power_rate: rate(POWER_SECONDS),
            envelope: 0.0,
            drive_power: 0.0,
            low_power: 0.0,
            random: 0x9e37_79b9,
        }
    }

    /// The sound to add to the sample `x`.
    pub(super) fn process(&mut self, x: f32) -> f32 {
        let drive = cascade(&mut self.drive, x);
        let low = self.low.process(x);
        self.envelope += self.envelope_rate * (drive.abs() - self.envelope);
        self.drive_power += self.power_rate * (drive * drive - self.drive_power);
        self.low_power += self.power_rate * (low * low - self.low_power);
        let total = self.drive_power + LOW_BAND_WEIGHT * self.low_power + POWER_FLOOR;
        let friction = self.drive_power / total;
        let noise = self.next_noise();
        let noise = cascade(&mut self.noise, noise);
        noise * self.envelope * (self.vowel_gain + self.friction_gain * friction)
    }

    /// White noise of variance 1: uniform, of a linear congruential generator (Numerical Recipes).
    fn next_noise(&mut self) -> f32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // The lowest bits have short periods.
        (self.random as i32 >> 8) as f32 * (1.732_050_8 / 8_388_608.0)
    }
}

#[cfg(test)]
mod tests {
    use std::f32::consts::TAU;

    use super::*;

    const RATE: f32 = 48_000.0;

    fn extension() -> BandExtension {
        let config = Config {
            drive_hz: (5_500.0, 8_000.0),
            noise_hz: (8_000.0, 10_500.0),
            vowel_gain: 0.2,
            fricative_gain: 0.8,
        };
        BandExtension::new(RATE, &config)
    }

    fn power(sound: impl Iterator<Item = f32>) -> f32 {
        let (sum, count) = sound.fold((0.0, 0), |(sum, count), x| (sum + x * x, count + 1));
        sum / count as f32
    }

    /// Power of the added sound per power of a tone of 6.5 kHz, with a tone of 300 Hz beside it.
    fn ratio(low: f32) -> f32 {
        let mut extension = extension();
        let added = (0..48_000).map(|n| {
            let at = |hz: f32| (TAU * hz / RATE * n as f32).sin();
            extension.process(1_000.0 * at(6_500.0) + low * at(300.0))
        });
        power(added.skip(4_800)) / 500_000.0
    }

    #[test]
    fn friction_gets_more_sound_than_a_vowel() {
        let (fricative, vowel) = (ratio(0.0), ratio(20_000.0));
        assert!(fricative > 0.005, "{fricative}");
        // The gains are in the ratio 4, thus 16 in power.
        let quotient = fricative / vowel;
        assert!((8.0..17.0).contains(&quotient), "{quotient}");
    }

    #[test]
    fn silence_gets_none_and_a_sound_leaves_none_behind() {
        let mut extension = extension();
        assert!((0..1_000).all(|_| extension.process(0.0) == 0.0));
        (0..480).for_each(|n| _ = extension.process(if n % 4 < 2 { 30_000.0 } else { -30_000.0 }));
        (0..2_400).for_each(|_| _ = extension.process(0.0));
        assert!((0..1_000).all(|_| extension.process(0.0).abs() < 0.5), "after 50 ms");
    }

    #[test]
    fn the_noise_is_white_and_of_variance_one() {
        let mut extension = extension();
        let noise: Vec<f32> = (0..100_000).map(|_| extension.next_noise()).collect();
        let mean = noise.iter().sum::<f32>() / 1e5;
        let lag = noise.windows(2).map(|pair| pair[0] * pair[1]).sum::<f32>() / 1e5;
        let variance = power(noise.into_iter());
        assert!(mean.abs() < 0.02 && lag.abs() < 0.02, "{mean} {lag}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }
}
