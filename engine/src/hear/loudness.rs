//! Refines the start and end of speech to about 4 ms by the loudness of the audio, in hindsight.
//!
//! The VAD network decides *that* there was speech, but it reports the time late. Its window is 32
//! ms; its probability rises some 25 ms after the first sound and falls up to 100 ms after the last
//! one. Every rule of a turn counts from these instants. At the time of a report the audio before
//! it is known, so its loudness shows where within the last windows the speech began or ended.
//! Loudness alone decides nothing: it moves an instant by at most [`MAX_SHIFT_SAMPLES`], and only
//! as far as the audio differs from the audio before and after.

use models::vad::{SAMPLE_RATE, WINDOW};

/// Samples of a loudness frame: 4 ms at 16 kHz.
const LOUDNESS_FRAME_SAMPLES: usize = 64;
/// Number of stored frames, 1.02 s.
const HISTORY_FRAMES: usize = 256;
/// Maximum shift of an instant, 150 ms in samples: more than the network lags.
pub(crate) const MAX_SHIFT_SAMPLES: u64 = SAMPLE_RATE as u64 * 15 / 100;
/// Minimum energy of a speech frame relative to the loudest frame nearby: −40 dB. The s at the end
/// of a word is 35 dB below its vowels.
const SPEECH_FLOOR_RATIO: f32 = 1e-4;
/// Minimum energy of a speech frame relative to the noise: +6 dB.
const NOISE_MARGIN_RATIO: f32 = 4.0;
/// Maximum number of quieter frames within an onset, as between a consonant and its vowel: 12 ms.
const MAX_GAP_FRAMES: usize = 3;
/// Frames before the end, or after the onset, whose loudest one is the reference: .3 s.
const PEAK_WINDOW_FRAMES: usize = 75;
/// Weight of a new window in the noise estimate.
const NOISE_SMOOTHING: f32 = 0.1;

/// Loudness of the last second.
pub(crate) struct LoudnessHistory {
    /// Mean squares, a ring buffer.
    frames: Box<[f32; HISTORY_FRAMES]>,
    write_index: usize,
    /// Mean square of windows without speech.
    noise: Option<f32>,
}

impl Default for LoudnessHistory {
    fn default() -> Self {
        Self { frames: Box::new([0.0; HISTORY_FRAMES]), write_index: 0, noise: None }
    }
}

impl LoudnessHistory {
    /// Adds the next window. `noise`: it certainly contains no speech.
    pub(crate) fn push(&mut self, window: &[f32; WINDOW], noise: bool) {
        let mut sum = 0.0;
        for frame in window.chunks_exact(LOUDNESS_FRAME_SAMPLES) {
            let square = frame.iter().map(|s| s * s).sum::<f32>() / LOUDNESS_FRAME_SAMPLES as f32;
            sum += square;
            self.frames[self.write_index] = square;
            self.write_index = (self.write_index + 1) % HISTORY_FRAMES;
        }
        if noise {
            let mean = sum / (WINDOW / LOUDNESS_FRAME_SAMPLES) as f32;
            self.noise =
                Some(self.noise.map_or(mean, |known| known + NOISE_SMOOTHING * (mean - known)));
        }
    }

    /// Energy of the frame that ended `back` frames ago.
    fn frame_energy(&self, back: usize) -> f32 {
        self.frames[(self.write_index + 2 * HISTORY_FRAMES - 1 - back.min(HISTORY_FRAMES - 1))
            % HISTORY_FRAMES]
    }

    /// Energy above which a frame counts as speech, near frames `from..to` ago; `None` if no frame
    /// exceeds it.
    fn threshold(&self, from: usize, to: usize) -> Option<f32> {
        let peak =
            (from..to.min(HISTORY_FRAMES)).map(|back| self.frame_energy(back)).fold(0.0, f32::max);
        let threshold =
            (SPEECH_FLOOR_RATIO * peak).max(NOISE_MARGIN_RATIO * self.noise.unwrap_or(0.0));
        (peak > threshold).then_some(threshold)
    }

    /// Refines the end of speech, which the network places `ago` samples ago. Returns samples ago:
    /// never later, and earlier by at most [`MAX_SHIFT_SAMPLES`].
    pub(crate) fn refine_end(&self, ago: u64) -> u64 {
        let back = ago as usize / LOUDNESS_FRAME_SAMPLES;
        let Some(threshold) = self.threshold(back, back + PEAK_WINDOW_FRAMES) else { return ago };
        let last = (back..back + MAX_SHIFT_SAMPLES as usize / LOUDNESS_FRAME_SAMPLES)
            .find(|back| self.frame_energy(*back) > threshold);
        last.map_or(ago, |last| (last * LOUDNESS_FRAME_SAMPLES) as u64)
    }

    /// Refines the onset of speech, which the network places `ago` samples ago. Returns samples
    /// ago: at most [`MAX_SHIFT_SAMPLES`] earlier or two windows later.
    pub(crate) fn refine_onset(&self, ago: u64) -> u64 {
        let back = ago as usize / LOUDNESS_FRAME_SAMPLES;
        let Some(threshold) = self.threshold(back.saturating_sub(PEAK_WINDOW_FRAMES), back) else {
            return ago;
        };
        let latest = back.saturating_sub(2 * WINDOW / LOUDNESS_FRAME_SAMPLES);
        let Some(mut first) =
            (latest..back).rev().find(|back| self.frame_energy(*back) > threshold)
        else {
            return ago;
        };
        if first + 1 == back {
            // Speech had already begun when the network's window started: find its start.
            let mut quiet = 0;
            let earliest = back + MAX_SHIFT_SAMPLES as usize / LOUDNESS_FRAME_SAMPLES;
            for earlier in back..earliest.min(HISTORY_FRAMES) {
                if self.frame_energy(earlier) > threshold {
                    (first, quiet) = (earlier, 0);
                } else {
                    quiet += 1;
                    if quiet > MAX_GAP_FRAMES {
                        break;
                    }
                }
            }
        }
        ((first + 1) * LOUDNESS_FRAME_SAMPLES) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows with these amplitudes, one per frame, over noise of amplitude `noise`.
    fn loudness_of(amplitudes: &[f32], noise: f32) -> LoudnessHistory {
        let mut loudness = LoudnessHistory::default();
        let mut seed = 7_u32;
        let mut random = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        // A second of noise alone.
        let before = vec![0.0; 31 * WINDOW / LOUDNESS_FRAME_SAMPLES];
        for (n, frames) in
            before.iter().chain(amplitudes).copied().collect::<Vec<_>>().chunks(8).enumerate()
        {
            let mut window = [0.0; WINDOW];
            for (at, sample) in window.iter_mut().enumerate() {
                let amplitude = frames.get(at / LOUDNESS_FRAME_SAMPLES).copied().unwrap_or(0.0);
                *sample = amplitude * (at as f32 * 0.3).sin() + noise * random();
            }
            loudness.push(&window, n < 31);
        }
        loudness
    }

    const SAMPLES_PER_MS: u64 = 16;

    #[test]
    fn an_end_is_dated_by_the_last_sound_under_any_noise_that_is_quieter() {
        // .4 s of speech, then .24 s of silence.
        let sound: Vec<f32> = [vec![0.3; 100], vec![0.0; 60]].concat();
        for noise in [0.0, 0.001, 0.01, 0.05] {
            let loudness = loudness_of(&sound, noise);
            for lag in [0, 20, 60, 90, 140] {
                let end = loudness.refine_end((240 - lag) * SAMPLES_PER_MS);
                assert!(
                    end.abs_diff(240 * SAMPLES_PER_MS) <= 4 * SAMPLES_PER_MS,
                    "noise {noise}, {lag} ms late: {end}"
                );
            }
        }
    }

    #[test]
    fn a_network_that_lags_by_more_is_believed_and_noise_as_loud_as_speech_moves_nothing() {
        let sound: Vec<f32> = [vec![0.3; 100], vec![0.0; 60]].concat();
        assert_eq!(loudness_of(&sound, 0.0).refine_end(80 * SAMPLES_PER_MS), 80 * SAMPLES_PER_MS);
        assert_eq!(loudness_of(&sound, 0.5).refine_end(200 * SAMPLES_PER_MS), 200 * SAMPLES_PER_MS);
        assert_eq!(
            loudness_of(&sound, 0.5).refine_onset(640 * SAMPLES_PER_MS),
            640 * SAMPLES_PER_MS
        );
        assert_eq!(
            loudness_of(&[0.0; 64], 0.0).refine_end(100 * SAMPLES_PER_MS),
            100 * SAMPLES_PER_MS
        );
    }

    #[test]
    fn a_sound_that_dies_away_ends_forty_decibels_down() {
        // 1 dB per frame.
        let dying: Vec<f32> = (0..64).map(|n| 0.3 * 10_f32.powf(-(n as f32) / 20.0)).collect();
        let loudness = loudness_of(&[vec![0.3; 96], dying, vec![0.0; 24]].concat(), 0.0);
        // 40 frames into the decay: 48 frames ago.
        let end = loudness.refine_end(48 * 4 * SAMPLES_PER_MS - 60 * SAMPLES_PER_MS);
        assert!(end.abs_diff(48 * 4 * SAMPLES_PER_MS) <= 8 * SAMPLES_PER_MS, "{end}");
    }

    #[test]
    fn a_beginning_is_dated_by_the_first_sound_before_or_in_the_networks_window() {
        for noise in [0.0, 0.001, 0.02] {
            // Speech begins 160 ms ago; the network reports an earlier or later onset.
            let loudness = loudness_of(&[vec![0.0; 24], vec![0.3; 40]].concat(), noise);
            for reported in [100, 128, 150, 160, 180, 200] {
                let onset = loudness.refine_onset(reported * SAMPLES_PER_MS);
                assert!(
                    onset.abs_diff(160 * SAMPLES_PER_MS) <= 4 * SAMPLES_PER_MS,
                    "noise {noise}, {reported} ms ago by the network: {onset}"
                );
            }
        }
    }

    #[test]
    fn a_click_long_before_is_no_beginning_and_a_consonant_is_one() {
        let mut sound = [vec![0.0; 24], vec![0.3; 40]].concat();
        sound[15] = 0.3; // 20 ms apart
        assert_eq!(
            loudness_of(&sound, 0.0).refine_onset(160 * SAMPLES_PER_MS),
            160 * SAMPLES_PER_MS
        );
        sound[20..22].fill(0.05); // 8 ms apart
        assert_eq!(
            loudness_of(&sound, 0.0).refine_onset(160 * SAMPLES_PER_MS),
            176 * SAMPLES_PER_MS
        );
    }
}
