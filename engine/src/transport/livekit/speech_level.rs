//! Whether one of several voices speaks, by its level alone. The VAD hears only their mix.

use std::time::{Duration, Instant};

/// Silence after which a stretch of speech is over.
const HANGOVER: Duration = Duration::from_millis(300);
/// Level over the noise floor that counts as speech, in dB.
const SPEECH_OVER_NOISE_DB: f32 = 9.0;
/// Minimum level of speech in dBFS.
const MIN_SPEECH_DBFS: f32 = -50.0;
/// How fast the estimate of the noise rises, in dB per block of 20 ms: a voice needs some seconds to
/// be taken for noise, and pauses for breath lower it at once.
const NOISE_RISE_DB: f32 = 0.04;
/// Level of digital silence in dBFS.
const SILENCE_DBFS: f32 = -96.0;

/// The level of one voice.
pub(super) struct SpeechLevel {
    noise_dbfs: f32,
    level_dbfs: f32,
    last_loud: Option<Instant>,
    is_speaking: bool,
}

impl Default for SpeechLevel {
    fn default() -> Self {
        Self { noise_dbfs: -60.0, level_dbfs: SILENCE_DBFS, last_loud: None, is_speaking: false }
    }
}

impl SpeechLevel {
    /// Takes a block that ends at `end`. Returns when the voice started or stopped, if it did.
    pub(super) fn push(&mut self, block: &[i16], end: Instant) -> Option<(bool, Instant)> {
        self.level_dbfs = dbfs(block);
        self.noise_dbfs = (self.noise_dbfs + NOISE_RISE_DB).min(self.level_dbfs.max(-70.0));
        let is_loud = self.level_dbfs > MIN_SPEECH_DBFS.max(self.noise_dbfs + SPEECH_OVER_NOISE_DB);
        if is_loud {
            self.last_loud = Some(end);
            let is_new = !std::mem::replace(&mut self.is_speaking, true);
            return is_new.then_some((true, end));
        }
        let last = self.last_loud.filter(|_| self.is_speaking)?;
        if end.saturating_duration_since(last) < HANGOVER {
            return None;
        }
        self.is_speaking = false;
        Some((false, last))
    }

    /// Whether the voice is within a stretch of speech.
    pub(super) fn is_speaking(&self) -> bool {
        self.is_speaking
    }

    /// Level of the last block in dBFS.
    pub(super) fn level_dbfs(&self) -> f32 {
        self.level_dbfs
    }
}

/// Level of samples in dBFS: the RMS relative to a full-scale square wave.
pub(super) fn dbfs(samples: &[i16]) -> f32 {
    let sum: u64 = samples.iter().map(|sample| u64::from(sample.unsigned_abs()).pow(2)).sum();
    if sum == 0 {
        return SILENCE_DBFS;
    }
    let mean = sum as f32 / samples.len() as f32;
    (10.0 * (mean / (32_768.0 * 32_768.0)).log10()).max(SILENCE_DBFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Duration = Duration::from_millis(20);

    /// A block of noise with this peak.
    fn block(peak: i16) -> [i16; 320] {
        core::array::from_fn(|n| if n % 2 == 0 { peak } else { -peak })
    }

    #[test]
    fn levels_are_relative_to_full_scale() {
        assert!((dbfs(&block(32_767)) - 0.0).abs() < 0.01);
        assert!((dbfs(&block(3_277)) + 20.0).abs() < 0.01);
        assert_eq!((dbfs(&block(0)), dbfs(&[])), (SILENCE_DBFS, SILENCE_DBFS));
    }

    #[test]
    fn a_stretch_of_speech_bridges_short_pauses() {
        let (mut level, start) = (SpeechLevel::default(), crate::clock::now());
        let mut reports = Vec::new();
        // Speech of 1 s with a pause of 240 ms, and then silence.
        for n in 0..100_u32 {
            let is_pause = (20..32).contains(&n) || n >= 50;
            let end = start + BLOCK * (n + 1);
            reports.extend(level.push(&block(if is_pause { 5 } else { 2_000 }), end));
        }
        assert_eq!(reports, [(true, start + BLOCK), (false, start + BLOCK * 50)]);
    }

    #[test]
    fn steady_noise_is_not_speech_for_long() {
        let (mut level, start) = (SpeechLevel::default(), crate::clock::now());
        for n in 0..1_500_u32 {
            level.push(&block(400), start + BLOCK * n);
        }
        assert!(!level.is_speaking(), "after 30 s of noise at {} dBFS", level.level_dbfs());
        let speech = level.push(&block(6_000), start + BLOCK * 1_500);
        assert!(speech.is_some_and(|(is_speaking, _)| is_speaking));
    }
}
