//! Speech and silence inside an utterance, by energy.
//!
//! The detector reports the end of speech .25 s late. A decode that starts in the first .1 s of
//! silence is done by then, so silence is measured here, relative to the utterance: between its
//! quietest .1 s and its loudest .05 s. In loud noise the two are close, and nothing is said about
//! silence.

use super::SAMPLE_RATE;

/// Samples of a frame: 10 ms.
pub(super) const FRAME: usize = SAMPLE_RATE / 100;
/// Frames of the average whose minimum is the level of the background.
const FLOOR_FRAMES: usize = 10;
/// Frames of the average whose maximum is the level of speech.
const PEAK_FRAMES: usize = 5;
/// Decrease of the level of speech, in dB per frame: speakers get quieter. 2 dB per second.
const PEAK_DECAY: f32 = 0.02;
/// Minimum level of speech above that of the background, in dB.
const ABOVE_FLOOR: f32 = 6.0;
/// Minimum level of speech relative to its loudest, in dB. Soft final consonants are above it.
const BELOW_PEAK: f32 = 30.0;
/// Minimum distance between the loudest speech and the threshold, in dB. Noise is too loud with
/// less.
const MIN_RANGE: f32 = 12.0;
/// Number of frames above the threshold in a row that are speech. Fewer are a click.
const MIN_ACTIVE_FRAMES: usize = 3;
/// Level of digital silence in dB relative to full scale.
const MIN_LEVEL: f32 = -96.0;

/// Levels of the frames of an utterance, and where speech is.
pub(super) struct Activity {
    /// Level of each complete frame in dB relative to full scale.
    levels: Vec<f32>,
    /// Energy and number of the samples of the incomplete frame.
    energy: f64,
    samples: usize,
    floor: f32,
    peak: f32,
    /// Number of frames above the threshold in a row, up to now.
    active_run: usize,
    /// First frame with speech, and the end of the last one.
    speech: Option<(usize, usize)>,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            levels: Vec::new(),
            energy: 0.0,
            samples: 0,
            floor: f32::INFINITY,
            peak: MIN_LEVEL,
            active_run: 0,
            speech: None,
        }
    }
}

impl Activity {
    /// Takes the next samples.
    pub(super) fn push(&mut self, pcm: &[i16]) {
        for sample in pcm {
            self.energy += f64::from(*sample) * f64::from(*sample);
            self.samples += 1;
            if self.samples == FRAME {
                let level = level(self.energy / FRAME as f64);
                (self.energy, self.samples) = (0.0, 0);
                self.push_frame(level);
            }
        }
    }

    fn push_frame(&mut self, level: f32) {
        self.levels.push(level);
        if let Some(mean) = self.last_mean(FLOOR_FRAMES) {
            self.floor = self.floor.min(mean);
        }
        self.peak -= PEAK_DECAY;
        if let Some(mean) = self.last_mean(PEAK_FRAMES) {
            self.peak = self.peak.max(mean);
        }
        let is_active = self.threshold().is_some_and(|threshold| level > threshold);
        self.active_run = if is_active { self.active_run + 1 } else { 0 };
        if self.active_run >= MIN_ACTIVE_FRAMES {
            let frames = self.levels.len();
            let onset = self.speech.map_or(frames - self.active_run, |(onset, _)| onset);
            self.speech = Some((onset, frames));
        }
    }

    /// Mean level of the last `count` frames.
    fn last_mean(&self, count: usize) -> Option<f32> {
        let frames = &self.levels[self.levels.len().checked_sub(count)?..];
        Some(mean_level(frames))
    }

    /// Level between silence and speech; `None` if they cannot be distinguished (yet).
    fn threshold(&self) -> Option<f32> {
        let threshold = (self.floor + ABOVE_FLOOR).max(self.peak - BELOW_PEAK);
        (threshold <= self.peak - MIN_RANGE).then_some(threshold)
    }

    /// Whether silence and speech can be distinguished.
    pub(super) fn can_distinguish(&self) -> bool {
        self.threshold().is_some()
    }

    /// Whether there is speech, and silence can be distinguished from it.
    pub(super) fn is_reliable(&self) -> bool {
        self.can_distinguish() && self.speech.is_some()
    }

    /// Level of the loudest speech in dB relative to full scale.
    pub(super) fn peak(&self) -> f32 {
        self.peak
    }

    /// First sample of speech and the end of the last one, if there was any so far.
    pub(super) fn speech_range(&self) -> Option<(usize, usize)> {
        self.speech.map(|(onset, end)| (onset * FRAME, end * FRAME))
    }

    /// Number of samples since the last speech; `None` if silence cannot be told from speech.
    pub(super) fn silence_samples(&self) -> Option<usize> {
        self.threshold()?;
        let (_, end) = self.speech?;
        Some((self.levels.len() - end) * FRAME)
    }

    /// Middle of the longest silence of at least `min_frames` frames that lies between the samples
    /// `from` and `to`; of several, the last one.
    pub(super) fn longest_pause(&self, from: usize, to: usize, min_frames: usize) -> Option<usize> {
        let threshold = self.threshold()?;
        let end = (to / FRAME).min(self.levels.len());
        let (mut best, mut length) = ((0, min_frames), 0);
        for frame in from / FRAME..end {
            length = if self.levels[frame] > threshold { 0 } else { length + 1 };
            if length > 0 && length >= best.1 {
                best = (frame + 1 - length / 2, length);
            }
        }
        (best.0 > 0).then_some(best.0 * FRAME)
    }

    /// Middle of the quietest .1 s between the samples `from` and `to`.
    pub(super) fn quietest(&self, from: usize, to: usize) -> usize {
        let (from, to) = (from / FRAME, (to / FRAME).min(self.levels.len()));
        let windows = self.levels.get(from..to).unwrap_or_default().windows(FLOOR_FRAMES);
        let means = windows.map(mean_level).enumerate();
        let quietest = means.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at);
        (from + quietest + FLOOR_FRAMES / 2) * FRAME
    }

    /// Forgets the first `samples` samples, a multiple of [`FRAME`]. The levels of background and
    /// speech remain known.
    pub(super) fn forget(&mut self, samples: usize) {
        let frames = (samples / FRAME).min(self.levels.len());
        self.levels.drain(..frames);
        self.active_run = self.active_run.min(self.levels.len());
        self.speech = self
            .speech
            .filter(|(_, end)| *end > frames)
            .map(|(onset, end)| (onset.saturating_sub(frames), end - frames));
        // The onset is that of the first speech that remains.
        if let (Some((onset, end)), Some(threshold)) = (self.speech, self.threshold()) {
            let active = self.levels[onset..end].iter().position(|level| *level > threshold);
            self.speech = Some((active.map_or(onset, |at| onset + at), end));
        }
    }
}

/// Level of a mean square of samples in dB relative to full scale.
fn level(mean_square: f64) -> f32 {
    let relative = mean_square / (32_768.0 * 32_768.0);
    (10.0 * relative.log10()).max(f64::from(MIN_LEVEL)) as f32
}

/// Mean of levels, by their energy.
fn mean_level(levels: &[f32]) -> f32 {
    let energy: f32 = levels.iter().map(|level| 10f32.powf(level / 10.0)).sum();
    10.0 * (energy / levels.len() as f32).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone of `ms` milliseconds.
    fn tone(ms: usize, amplitude: f64) -> Vec<i16> {
        let samples = ms * SAMPLE_RATE / 1000;
        (0..samples).map(|n| ((n as f64 * 0.3).sin() * amplitude) as i16).collect()
    }

    fn noise(ms: usize, amplitude: i64) -> Vec<i16> {
        let mut state = 1i64;
        let mut next = || {
            state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
            state * 2 * amplitude / 2_147_483_648 - amplitude
        };
        (0..ms * SAMPLE_RATE / 1000).map(|_| next() as i16).collect()
    }

    fn activity(parts: &[Vec<i16>]) -> Activity {
        let mut activity = Activity::default();
        parts.iter().for_each(|part| activity.push(part));
        activity
    }

    #[test]
    fn speech_and_silence_are_found_in_quiet_and_in_low_noise() {
        for background in [vec![0; 4_800], noise(300, 40), noise(300, 300)] {
            let found = activity(&[background.clone(), tone(500, 9_000.0), background]);
            assert!(found.is_reliable());
            assert_eq!(found.speech_range(), Some((4_800, 12_800)));
            assert_eq!(found.silence_samples(), Some(4_800));
        }
    }

    #[test]
    fn loud_noise_leaves_silence_to_the_detector() {
        let mut speech = tone(500, 6_000.0);
        speech.iter_mut().zip(noise(500, 5_000)).for_each(|(a, b)| *a = a.saturating_add(b));
        let found = activity(&[noise(300, 5_000), speech, noise(300, 5_000)]);
        assert_eq!((found.is_reliable(), found.silence_samples()), (false, None));
    }

    #[test]
    fn silence_and_steady_noise_contain_no_speech() {
        for sound in [vec![0; 16_000], noise(1_000, 3_000)] {
            assert_eq!(activity(&[sound]).speech_range(), None);
        }
    }

    #[test]
    fn a_click_does_not_end_a_silence() {
        let click = tone(20, 9_000.0);
        let found =
            activity(&[vec![0; 3_200], tone(400, 9_000.0), vec![0; 1_600], click, vec![0; 1_600]]);
        assert_eq!(found.silence_samples(), Some(3_520));
    }

    #[test]
    fn a_soft_end_is_still_speech() {
        let found = activity(&[vec![0; 1_600], tone(400, 9_000.0), tone(100, 500.0)]);
        assert_eq!(found.silence_samples(), Some(0));
    }

    #[test]
    fn the_longest_pause_is_found_and_cut_in_its_middle() {
        let speech = tone(500, 9_000.0);
        let found = activity(&[
            vec![0; 1_600],
            speech.clone(),
            vec![0; 1_600],
            speech.clone(),
            vec![0; 3_200],
            speech,
        ]);
        let middle = 1_600 + 8_000 + 1_600 + 8_000 + 1_600;
        assert_eq!(found.longest_pause(1_600, 40_000, 10), Some(middle));
        assert_eq!(found.longest_pause(1_600, 16_000, 10), Some(1_600 + 8_000 + 800));
        assert_eq!(found.longest_pause(1_600, 40_000, 30), None);
        let near = found.quietest(12_000, 40_000);
        assert!((middle - 1_600..=middle + 1_600).contains(&near), "{near}");
    }

    #[test]
    fn what_is_cut_off_is_forgotten_but_not_the_levels() {
        let speech = tone(500, 9_000.0);
        let mut found = activity(&[vec![0; 1_600], speech.clone(), vec![0; 3_200], speech]);
        found.forget(1_600 + 8_000 + 1_600);
        assert_eq!(found.speech_range(), Some((1_600, 9_600)));
        found.push(&[0; 1_600]);
        assert_eq!(found.silence_samples(), Some(1_600));
        found.forget(9_600 + 1_600);
        assert_eq!((found.speech_range(), found.silence_samples()), (None, None));
    }
}
