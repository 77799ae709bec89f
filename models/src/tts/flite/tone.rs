//! Tone of the male voices: an equalizer, sound above the band of the voice, and a limiter.
//!
//! `docs/voices.md` describes how the values were found, and what they change.

use super::super::Voice;
use super::super::band_extension::{BandExtension, Config};
use super::super::biquad::{Biquad, cascade};

/// Sections of the equalizer; unused ones have a gain of 0 dB.
const SECTIONS: usize = 5;
/// Magnitude up to which the limiter changes nothing, and its highest output.
const KNEE: f32 = 27_000.0;
const CEILING: f32 = 32_500.0;

/// Filters the samples of one voice. It adds no latency. The result does not depend on how the
/// samples are split.
pub(super) struct VoiceTone {
    equalizer: [Biquad; SECTIONS],
    extension: Option<BandExtension>,
    /// Keeps the loudness of the voice.
    gain: f32,
}

impl VoiceTone {
    /// The filter of a voice; `None` if its samples stay as they are.
    pub(super) fn new(voice: Voice) -> Option<Self> {
        let rate = voice.sample_rate() as f32;
        let peak = |hz, quality, decibels| Biquad::peak(rate, hz, quality, decibels);
        match voice {
            Voice::Rms => Some(Self {
                equalizer: [
                    Biquad::low_shelf(rate, 250.0, -4.0),
                    peak(750.0, 0.7, 5.1),
                    peak(2_150.0, 0.9, 5.8),
                    peak(3_750.0, 1.0, -4.5),
                    Biquad::high_shelf(rate, 5_590.0, -3.0),
                ],
                extension: None,
                gain: 1.04,
            }),
            Voice::Awb => Some(Self {
                equalizer: [
                    Biquad::low_shelf(rate, 240.0, -4.0),
                    peak(590.0, 0.7, 4.7),
                    peak(1_390.0, 0.8, 3.5),
                    peak(4_310.0, 1.0, 5.4),
                    peak(1_000.0, 1.0, 0.0),
                ],
                // The band of this voice ends at 4.5 kHz.
                extension: Some(BandExtension::new(
                    rate,
                    &Config {
                        drive_hz: (2_500.0, 4_300.0),
                        noise_hz: (4_600.0, 7_300.0),
                        vowel_gain: 0.3,
                        fricative_gain: 3.0,
                    },
                )),
                gain: 0.8,
            }),
            Voice::Slt | Voice::Kal16 | Voice::Kal => None,
        }
    }

    /// Filters samples in place.
    pub(super) fn process(&mut self, pcm: &mut [i16]) {
        for sample in pcm {
            let x = cascade(&mut self.equalizer, f32::from(*sample));
            let added = self.extension.as_mut().map_or(0.0, |extension| extension.process(x));
            let y = limit((x + added) * self.gain);
            // Rounds halves away from zero.
            *sample = (y + 0.5f32.copysign(y)) as i16;
        }
    }
}

/// Limits the magnitude to [`CEILING`], with a smooth transition from [`KNEE`] on.
fn limit(x: f32) -> f32 {
    let excess = x.abs() - KNEE;
    if excess <= 0.0 {
        return x;
    }
    let range = CEILING - KNEE;
    (KNEE + range * (excess / range).tanh()).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MALE: [Voice; 2] = [Voice::Rms, Voice::Awb];

    /// Noise with the given peak.
    fn noise(samples: usize, peak: i32) -> Vec<i16> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) as i32 - 32_768) * peak / 32_768
        };
        (0..samples).map(|_| next() as i16).collect()
    }

    fn filter(voice: Voice, pcm: &[i16], portion: usize) -> Vec<i16> {
        let mut tone = VoiceTone::new(voice).unwrap();
        let mut pcm = pcm.to_vec();
        pcm.chunks_mut(portion).for_each(|part| tone.process(part));
        pcm
    }

    #[test]
    fn only_the_male_voices_of_avatars_are_filtered() {
        for voice in Voice::ALL {
            assert_eq!(VoiceTone::new(voice).is_some(), MALE.contains(&voice), "{voice:?}");
        }
    }

    #[test]
    fn silence_stays_silence_and_no_sound_remains_after_the_last() {
        for voice in MALE {
            assert!(filter(voice, &[0; 1_000], 1_000).iter().all(|x| *x == 0), "{voice:?}");
            let mut sound = noise(1_600, 20_000);
            sound.resize(4_800, 0);
            let tail = &filter(voice, &sound, 4_800)[2_400..];
            assert!(tail.iter().all(|x| x.abs() <= 1), "{voice:?}: after 50 ms");
        }
    }

    #[test]
    fn the_result_is_the_same_for_any_split() {
        let sound = noise(3_000, 12_000);
        for voice in MALE {
            let whole = filter(voice, &sound, sound.len());
            for portion in [1, 7, 160, 320, 1_601] {
                assert_eq!(filter(voice, &sound, portion), whole, "{voice:?}, {portion}");
            }
        }
    }

    #[test]
    fn the_filter_adds_no_delay() {
        for voice in MALE {
            let mut impulse = vec![0; 1_600];
            impulse[100] = 10_000;
            let response = filter(voice, &impulse, 64);
            assert!(response[..100].iter().all(|x| *x == 0), "{voice:?}");
            let energy = |pcm: &[i16]| pcm.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
            // Minimum phase: 90% of the energy is at the beginning.
            let early = energy(&response[100..116]) / energy(&response);
            assert!(early > 0.9, "{voice:?}: {early} in the first millisecond");
        }
    }

    #[test]
    fn a_sound_at_full_scale_is_limited_without_a_step() {
        for voice in MALE {
            let square: Vec<i16> =
                (0..8_000).map(|n| if n % 20 < 10 { i16::MAX } else { i16::MIN }).collect();
            let loudest = |pcm: &[i16]| pcm.iter().map(|x| i32::from(*x).abs()).max().unwrap();
            for sound in [square, noise(8_000, 32_767)] {
                let filtered = filter(voice, &sound, 320);
                assert!(loudest(&filtered) <= CEILING as i32, "{voice:?}");
            }
        }
        let curve: Vec<f32> = (0..80_000).map(|x| limit(x as f32)).collect();
        assert!(curve.windows(2).all(|w| w[1] >= w[0] && w[1] - w[0] < 1.01));
        assert_eq!(limit(-26_000.0), -26_000.0);
        assert_eq!(limit(-60_000.0), -limit(60_000.0));
    }
}
