//! Times of phones and words from the durations of the symbols, and the part of the audio that is
//! sent.

use std::ops::Range;

use super::frontend::Symbol;
use super::frontend::stress::{PRIMARY, is_stress};
use super::vocoder::{SAMPLE_RATE, UNIT};

/// The sound of a symbol precedes its place by this time, in units. Over the sentences of
/// `models/tests/hibari`, the energy of vowels and sibilants correlates best at 3.7 frames.
const SOUND_LEAD: i64 = 2;
/// The last symbol of a chunk has the time until its end. The sound is no longer than this, in
/// units.
const MAX_LAST_SOUND: i64 = 4;
/// A blank between two words is silent only if it lasts longer, in units.
const MAX_JOINED_BLANK: i64 = 4;

/// Silence around a chunk that is sent, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) leading: f32,
    pub(super) trailing: f32,
}

/// What is known about a chunk before its first sample.
#[derive(Debug, PartialEq)]
pub(super) struct Marks {
    /// Samples of the network's audio that are sent.
    pub(super) range: Range<usize>,
    pub(super) phones: Vec<MarkedPhone>,
    /// Written word, and end in samples of the sent audio.
    pub(super) words: Vec<(usize, usize)>,
}

/// A phone of a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MarkedPhone {
    /// Name in the CMU phone set.
    pub(super) name: &'static str,
    /// End in samples of the sent audio.
    pub(super) end: usize,
    /// Whether it is the vowel with the primary stress of a content word.
    pub(super) stress: bool,
}

impl MarkedPhone {
    pub(super) fn pause(end: usize) -> Self {
        Self { name: "pau", end, stress: false }
    }
}

impl Marks {
    /// `durations`: one of each symbol and one before and after them, in units of [`UNIT`] samples.
    /// `is_content_word`: whether the written word with this number can be stressed.
    pub(super) fn new(
        symbols: &[Symbol],
        durations: &[i64],
        silence: Silence,
        is_content_word: impl Fn(usize) -> bool,
    ) -> Self {
        let samples = |units: i64| usize::try_from(units).unwrap_or(0) * UNIT;
        let total: usize = durations.iter().map(|units| samples(*units)).sum();
        let last_symbol = symbols.iter().rposition(|symbol| is_sound(symbol.symbol));
        let mut end = samples(durations.first().copied().unwrap_or(0) - SOUND_LEAD);
        let onset = end;
        let mut last_sound = end;
        let mut phones = vec![MarkedPhone::pause(end)];
        let mut stress = false;
        let mut words: Vec<(usize, usize)> = Vec::new();
        let durations = durations.iter().skip(1).copied();
        for (at, (Symbol { symbol, word }, units)) in symbols.iter().zip(durations).enumerate() {
            let is_last = Some(at) == last_symbol;
            end += samples(if is_last { units.min(MAX_LAST_SOUND) } else { units });
            let sound = Sound::of(*symbol);
            match sound {
                Sound::Phone(name) => {
                    phones.push(MarkedPhone { name, end, stress });
                    stress = false;
                    last_sound = end;
                }
                Sound::Length => extend(&mut phones, end),
                Sound::Stress => {
                    // It belongs to the vowel behind it, which follows without a pause.
                    stress = *symbol == PRIMARY && is_content_word(*word);
                    continue;
                }
                Sound::Blank if units <= MAX_JOINED_BLANK => extend(&mut phones, end),
                Sound::Blank | Sound::Pause => phones.push(MarkedPhone::pause(end)),
            }
            if matches!(sound, Sound::Phone(_) | Sound::Length) {
                match words.last_mut() {
                    Some((last, time)) if last == word => *time = end,
                    _ => words.push((*word, end)),
                }
            }
        }
        phones.push(MarkedPhone::pause(total));
        let seconds = |seconds: f32| (seconds * SAMPLE_RATE as f32) as usize;
        let from = onset.saturating_sub(seconds(silence.leading));
        let to = (last_sound + seconds(silence.trailing)).min(total).max(from);
        let sent = |at: usize| at.clamp(from, to) - from;
        let mut merged: Vec<MarkedPhone> = Vec::new();
        for phone in phones {
            let end = sent(phone.end);
            match merged.last_mut() {
                Some(last) if last.name == "pau" && phone.name == "pau" => last.end = end,
                _ => merged.push(MarkedPhone { end, ..phone }),
            }
        }
        words.iter_mut().for_each(|(_, at)| *at = sent(*at));
        Self { range: from..to, phones: merged, words }
    }
}

/// The last phone ends later.
fn extend(phones: &mut [MarkedPhone], to: usize) {
    if let Some(last) = phones.last_mut() {
        last.end = to;
    }
}

/// Whether a symbol is a phone, not a mark or a blank.
pub(super) fn is_sound(symbol: char) -> bool {
    matches!(Sound::of(symbol), Sound::Phone(_))
}

/// What a symbol is for the lips.
enum Sound {
    Phone(&'static str),
    /// A mark that lengthens the phone before it.
    Length,
    Stress,
    Blank,
    Pause,
}

impl Sound {
    fn of(symbol: char) -> Self {
        if is_stress(symbol) {
            return Self::Stress;
        }
        Self::Phone(match symbol {
            'A' | 'e' => "ey",
            'I' => "ay",
            'O' | 'o' | 'Q' => "ow",
            'W' => "aw",
            'Y' => "oy",
            'i' => "iy",
            'u' => "uw",
            'a' | 'ɑ' => "aa",
            'æ' => "ae",
            'ɔ' | 'ɒ' => "ao",
            'ə' | 'ɐ' | 'ᵊ' => "ax",
            'ɛ' => "eh",
            'ɜ' | 'ɚ' => "er",
            'ɪ' | 'ᵻ' => "ih",
            'ʊ' => "uh",
            'ʌ' => "ah",
            'ʤ' => "jh",
            'ʧ' => "ch",
            'b' => "b",
            'd' => "d",
            'f' => "f",
            'ɡ' => "g",
            'h' => "hh",
            'j' => "y",
            'k' | 'x' | 'q' => "k",
            'l' => "l",
            'm' => "m",
            'n' => "n",
            'ŋ' => "ng",
            'p' => "p",
            'r' | 'ɹ' => "r",
            's' => "s",
            'ʃ' => "sh",
            't' => "t",
            'T' | 'ɾ' => "d",
            'ð' => "dh",
            'θ' => "th",
            'v' => "v",
            'w' => "w",
            'z' => "z",
            'ʒ' => "zh",
            'y' => "y",
            'ː' | 'ʰ' | 'ʲ' | '̃' => return Self::Length,
            ' ' => return Self::Blank,
            _ => return Self::Pause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Silence = Silence { leading: 0.05, trailing: 0.1 };

    fn symbols(text: &str) -> Vec<Symbol> {
        let mut word = 0;
        text.chars()
            .map(|symbol| {
                let own = word;
                word += usize::from(symbol == ' ');
                Symbol { symbol, word: own }
            })
            .collect()
    }

    fn in_units(marks: &Marks) -> Vec<(&'static str, usize)> {
        marks.phones.iter().map(|phone| (phone.name, phone.end / UNIT)).collect()
    }

    #[test]
    fn phones_and_words_end_where_their_sounds_do() {
        let durations = [14, 2, 1, 4, 1, 2, 1, 3, 9, 10, 2];
        let marks = Marks::new(&symbols("hˈI bˈɪɡ."), &durations, SILENCE, |_| true);
        assert_eq!(marks.range, 10 * UNIT..34 * UNIT);
        let expected =
            [("pau", 2), ("hh", 4), ("ay", 10), ("b", 12), ("ih", 16), ("g", 20), ("pau", 24)];
        assert_eq!(in_units(&marks), expected);
        assert_eq!(marks.words, [(0, 9 * UNIT), (1, 20 * UNIT)]);
    }

    #[test]
    fn a_long_blank_and_a_mark_are_pauses() {
        let durations = [4, 4, 8, 1, 4, 6, 4, 2];
        let marks = Marks::new(&symbols("I, I I"), &durations, SILENCE, |_| true);
        let expected = [("pau", 2), ("ay", 6), ("pau", 15), ("ay", 19), ("pau", 25), ("ay", 29)];
        assert_eq!(in_units(&marks)[..6], expected);
        assert_eq!(marks.range.end, 33 * UNIT, "no more than there is");
    }

    #[test]
    fn a_chunk_without_sound_is_short() {
        let marks = Marks::new(&symbols("…"), &[10, 20, 10], SILENCE, |_| true);
        assert_eq!(marks.range.len(), 6 * UNIT);
        assert_eq!((in_units(&marks), marks.words), (vec![("pau", 6)], vec![]));
        assert_eq!(Marks::new(&[], &[], SILENCE, |_| true).range, 0..0);
    }

    #[test]
    fn a_primary_stress_mark_stresses_the_vowel_behind_it_if_the_word_has_content() {
        let symbols = symbols("hˌIlˈOz ˈɪn");
        let stressed = |is_content_word: fn(usize) -> bool| -> Vec<&str> {
            let marks = Marks::new(&symbols, &[2; 13], SILENCE, is_content_word);
            marks.phones.iter().filter(|phone| phone.stress).map(|phone| phone.name).collect()
        };
        assert_eq!(stressed(|_| true), ["ow", "ih"]);
        assert_eq!(stressed(|word| word == 0), ["ow"]);
    }
}
