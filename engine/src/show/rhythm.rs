//! The rhythm of a segment of speech: when its lips are nearly shut, its accents, and the ends of
//! its phrases. Heads move while the lips are nearly shut, and arrive with an accent, as those of
//! people do (McClave, "Linguistic functions of head movements in the context of speech", 2000).

use models::face::Mouth;
use models::tts::Phone;

use super::visemes::{VisemeTrack, is_silence, open_vowel};

/// Maximum opening of the jaw with which the lips count as nearly shut. All stances between two
/// heads have mouths up to this opening.
pub(super) const CALM_JAW: f32 = 0.20;
/// The same for the stances between two expressions, which have the closed mouth only. Pressed or
/// tucked lips do not count.
pub(super) const SHUT_JAW: f32 = 0.12;
/// Press or tuck of the lips from which on a picture must show a closure.
const CLOSURE: f32 = 0.4;
/// Time between two samples of the mouth, in seconds.
const STEP_SECONDS: f32 = 0.02;
/// A mouth depends on the phones up to this many seconds later. It exceeds the reach of the
/// coarticulation by the longest core of a phone that matters.
const UNCERTAIN_SECONDS: f32 = 0.3;
/// Minimum length of a pause that ends a phrase, in seconds.
const MIN_PAUSE_SECONDS: f32 = 0.08;
/// Minimum length of an open vowel that counts as stressed if the voice reports no stress.
const MIN_LONG_VOWEL_SECONDS: f32 = 0.11;

/// Times of one segment, in seconds from its first sample. Phones arrive in batches.
#[derive(Clone, Debug, Default)]
pub(super) struct Rhythm {
    /// When the jaw is open by at most [`CALM_JAW`], and by at most [`SHUT_JAW`].
    calm: Windows,
    shut: Windows,
    /// When the lips are pressed or tucked.
    closures: Windows,
    /// Starts of the stressed vowels, and of the long open ones.
    stressed: Vec<f32>,
    long_vowels: Vec<f32>,
    /// Starts of the pauses, including that at the end.
    phrase_ends: Vec<f32>,
    /// End of the last phone.
    end: f32,
    ends_silent: bool,
}

/// Periods in ascending order: start and end.
#[derive(Clone, Debug, Default)]
struct Windows(Vec<(f32, f32)>);

impl Windows {
    fn truncate(&mut self, from: f32) {
        self.0.retain(|(start, _)| *start < from);
        if let Some(last) = self.0.last_mut() {
            last.1 = last.1.min(from);
        }
    }

    /// Adds a sample, which is later than all others.
    fn add(&mut self, at: f32) {
        match self.0.last_mut() {
            Some(last) if at - last.1 < 1.5 * STEP_SECONDS => last.1 = at,
            _ => self.0.push((at, at)),
        }
    }

    /// Seconds from `at` to the end of the period that contains it; 0 outside of all.
    fn left_at(&self, at: f32) -> f32 {
        let period = self.0.get(self.0.partition_point(|(_, end)| *end < at));
        period.filter(|(start, _)| *start <= at).map_or(0.0, |(_, end)| end - at)
    }

    /// Seconds outside of all periods within this many seconds from `at`.
    fn gaps_within(&self, at: f32, seconds: f32) -> f32 {
        let end = at + seconds;
        let periods = &self.0[self.0.partition_point(|(_, end)| *end < at)..];
        let covered = periods.iter().take_while(|(start, _)| *start < end).map(|period| {
            // A sample stands for the time around it.
            let (start, last) = (period.0 - STEP_SECONDS / 2.0, period.1 + STEP_SECONDS / 2.0);
            last.min(end) - start.max(at)
        });
        (seconds - covered.sum::<f32>()).max(0.0)
    }

    /// Whether a period is at most this many seconds away.
    fn is_near(&self, at: f32, seconds: f32) -> bool {
        let period = self.0.get(self.0.partition_point(|(_, end)| *end < at - seconds));
        period.is_some_and(|(start, _)| *start <= at + seconds)
    }
}

impl Rhythm {
    /// Adds phones after the existing ones. `track` contains them.
    pub(super) fn extend(&mut self, track: &VisemeTrack, phones: &[Phone]) {
        let uncertain = (self.end - UNCERTAIN_SECONDS).max(0.0);
        for phone in phones {
            let (start, length) = (self.end, phone.end - self.end);
            if length.is_nan() || length <= 0.0 {
                continue;
            }
            let silent = is_silence(&phone.name);
            if phone.stress {
                self.stressed.push(start);
            } else if length >= MIN_LONG_VOWEL_SECONDS && open_vowel(&phone.name) {
                self.long_vowels.push(start);
            }
            if silent && length >= MIN_PAUSE_SECONDS && !self.ends_silent {
                self.phrase_ends.push(start);
            }
            self.ends_silent = silent;
            self.end = phone.end;
        }
        // Samples have the same times however the phones are divided into batches.
        let first = (uncertain / STEP_SECONDS).ceil() as u32;
        let last = (self.end / STEP_SECONDS).floor() as u32;
        let from = first as f32 * STEP_SECONDS;
        self.calm.truncate(from - STEP_SECONDS / 2.0);
        self.shut.truncate(from - STEP_SECONDS / 2.0);
        self.closures.truncate(from - STEP_SECONDS / 2.0);
        for n in first..=last {
            let at = n as f32 * STEP_SECONDS;
            let Mouth { jaw, press, tuck, .. } = track.mouth_at(at);
            let closed = press.max(tuck) > CLOSURE;
            if jaw <= CALM_JAW {
                self.calm.add(at);
            }
            if jaw <= SHUT_JAW && !closed {
                self.shut.add(at);
            }
            if closed {
                self.closures.add(at);
            }
        }
    }

    /// End of the last phone.
    pub(super) fn end(&self) -> f32 {
        self.end
    }

    /// Seconds from `at` on in which the lips stay nearly shut, or shut; infinite if they do up to
    /// the end of the known phones.
    pub(super) fn calm_from(&self, at: f32, shut: bool) -> f32 {
        if at >= self.end {
            return f32::INFINITY;
        }
        let left = self.windows(shut).left_at(at);
        if left > 0.0 && at + left > self.end - 1.5 * STEP_SECONDS { f32::INFINITY } else { left }
    }

    /// For how many of the `seconds` from `at` on the lips are not nearly shut, or not shut.
    pub(super) fn open_seconds(&self, at: f32, seconds: f32, shut: bool) -> f32 {
        if seconds <= 0.0 { 0.0 } else { self.windows(shut).gaps_within(at, seconds) }
    }

    fn windows(&self, shut: bool) -> &Windows {
        if shut { &self.shut } else { &self.calm }
    }

    /// Whether a picture at `at` may have to show pressed or tucked lips.
    pub(super) fn is_closure(&self, at: f32) -> bool {
        self.closures.is_near(at, STEP_SECONDS)
    }

    /// Start of the first accent from `at` on.
    pub(super) fn accent_from(&self, at: f32) -> Option<f32> {
        let accents = self.accents();
        accents.get(accents.partition_point(|accent| *accent < at)).copied()
    }

    /// Start of the last accent.
    pub(super) fn last_accent(&self) -> Option<f32> {
        self.accents().last().copied()
    }

    /// Seconds since the last end of a phrase before `at`.
    pub(super) fn since_phrase_end(&self, at: f32) -> f32 {
        let ended = self.phrase_ends.partition_point(|end| *end <= at);
        ended.checked_sub(1).map_or(f32::INFINITY, |n| at - self.phrase_ends[n])
    }

    fn accents(&self) -> &[f32] {
        if self.stressed.is_empty() { &self.long_vowels } else { &self.stressed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Phones with their ends in seconds. A vowel with `'` is stressed.
    fn phones(text: &str) -> Vec<Phone> {
        let phone = |word: &str| {
            let (name, end) = word.split_once(':').unwrap();
            let stress = name.ends_with('\'');
            Phone { stress, ..Phone::new(name.trim_end_matches('\''), end.parse().unwrap()) }
        };
        text.split_whitespace().map(phone).collect()
    }

    fn rhythm(batches: &[&[Phone]]) -> Rhythm {
        let (mut rhythm, mut track) = (Rhythm::default(), VisemeTrack::default());
        for batch in batches {
            track.extend(batch);
            rhythm.extend(&track, batch);
        }
        rhythm
    }

    /// "Hello, my name is Theo."
    const SENTENCE: &str = "pau:0.12 hh:0.21 ax:0.26 l:0.41 ow':0.58 pau:0.80 m:0.90 ay:1.05 n:1.10 \
        ey':1.35 m:1.45 ih:1.52 z:1.70 th:1.82 iy':1.95 ow:2.05 pau:2.30";

    #[test]
    fn lips_are_nearly_shut_in_pauses_and_closures_and_not_in_open_vowels() {
        let phones = phones(SENTENCE);
        let (rhythm, track) = (rhythm(&[&phones]), VisemeTrack::new(&phones));
        for n in 0..114 {
            let at = n as f32 * STEP_SECONDS;
            let jaw = track.mouth_at(at).jaw;
            assert_eq!(
                rhythm.calm_from(at + 1e-4, false) > 0.0,
                jaw <= CALM_JAW && {
                    // The last sample of a period has nothing left of it.
                    track.mouth_at(at + STEP_SECONDS).jaw <= CALM_JAW
                }
            );
            let left = rhythm.calm_from(at, true);
            let shut = (0..).map(|n| n as f32 * STEP_SECONDS).take_while(|later| *later < left);
            assert!(shut.take(100).all(|later| track.mouth_at(at + later).jaw <= SHUT_JAW + 0.02));
        }
        assert!(rhythm.calm_from(0.60, false) > 0.15, "{}", rhythm.calm_from(0.60, false));
        assert_eq!(rhythm.calm_from(0.98, false), 0.0);
        assert_eq!([2.2, 2.3, 9.0].map(|at| rhythm.calm_from(at, true)), [f32::INFINITY; 3]);
    }

    #[test]
    fn closures_are_known_and_are_no_windows_of_shut_lips() {
        let rhythm = rhythm(&[&phones(SENTENCE)]);
        assert_eq!(
            [0.7, 0.85, 1.0, 1.4].map(|at| rhythm.is_closure(at)),
            [false, true, false, true]
        );
        assert!(rhythm.calm_from(0.85, false) > 0.0);
        assert_eq!(rhythm.calm_from(0.85, true), 0.0);
    }

    #[test]
    fn accents_are_stressed_vowels_or_else_long_open_ones() {
        let stressed = rhythm(&[&phones(SENTENCE)]);
        let plain = SENTENCE.replace('\'', "");
        let plain = rhythm(&[&phones(&plain)]);
        let accents = |rhythm: &Rhythm| -> Vec<f32> {
            let mut at = 0.0;
            std::iter::from_fn(|| {
                let accent = rhythm.accent_from(at)?;
                at = accent + 0.001;
                Some(accent)
            })
            .collect()
        };
        assert_eq!(accents(&stressed), [0.41, 1.10, 1.82]);
        assert_eq!(accents(&plain), [0.41, 0.90, 1.10]);
        assert_eq!((stressed.last_accent(), plain.last_accent()), (Some(1.82), Some(1.10)));
        assert_eq!(Rhythm::default().last_accent(), None);
    }

    #[test]
    fn phrases_end_where_a_pause_begins() {
        let rhythm = rhythm(&[&phones(SENTENCE)]);
        for (at, since) in [(0.05, 0.05), (0.60, 0.02), (1.0, 0.42), (2.1, 0.05)] {
            assert!((rhythm.since_phrase_end(at) - since).abs() < 1e-4, "{at}");
        }
        assert_eq!(Rhythm::default().since_phrase_end(3.0), f32::INFINITY);
    }

    #[test]
    fn phones_in_batches_have_the_rhythm_of_phones_at_once() {
        let phones = phones(SENTENCE);
        let whole = rhythm(&[&phones]);
        for at in 1..phones.len() {
            let parts = rhythm(&[&phones[..at], &phones[at..]]);
            for n in 0..240 {
                let at = n as f32 * 0.01 + 0.003;
                let read = |rhythm: &Rhythm| {
                    (
                        [true, false].map(|shut| rhythm.calm_from(at, shut)),
                        rhythm.accent_from(at),
                        rhythm.since_phrase_end(at),
                    )
                };
                assert_eq!(read(&parts), read(&whole), "{at}");
            }
        }
    }
}
