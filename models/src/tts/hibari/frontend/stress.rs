//! Stress marks in a phoneme text, and the classes of its symbols.
//!
//! The alphabet is that of Kokoro-82M (github.com/hexgrad/kokoro, Apache-2.0): IPA with `A I O W Y`
//! for the diphthongs, `ʤ ʧ` for the affricates, and the stress mark before its vowel.

pub(in crate::tts::hibari) const PRIMARY: char = 'ˈ';
pub(super) const SECONDARY: char = 'ˌ';

pub(in crate::tts::hibari) fn is_vowel(c: char) -> bool {
    "AIOQWYaiuæɑɒɔəɛɜɪʊʌᵻ".contains(c)
}

pub(super) fn is_consonant(c: char) -> bool {
    "bdfhjklmnpstvwzðŋɡɹɾʃʒʤʧθ".contains(c)
}

pub(in crate::tts::hibari) fn is_stress(c: char) -> bool {
    c == PRIMARY || c == SECONDARY
}

/// How strongly a word is to be stressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stress {
    /// As the dictionary has it.
    Unchanged,
    /// Without primary stress: a primary one becomes secondary, and secondary ones are removed.
    Demoted,
    /// With at least secondary stress: a capitalized word.
    Capitalized,
    /// With primary stress: a word in capitals.
    Emphasized,
}

impl Stress {
    /// The stress that the case of `word` implies.
    pub(super) fn of_case(word: &str) -> Self {
        if word == word.to_lowercase() {
            Self::Unchanged
        } else if word == word.to_uppercase() {
            Self::Emphasized
        } else {
            Self::Capitalized
        }
    }

    /// Phonemes with this stress.
    pub(super) fn apply(self, phonemes: &str) -> String {
        let (primary, secondary) = (phonemes.contains(PRIMARY), phonemes.contains(SECONDARY));
        match self {
            Self::Demoted if primary => phonemes
                .chars()
                .filter(|c| *c != SECONDARY)
                .map(|c| if c == PRIMARY { SECONDARY } else { c })
                .collect(),
            Self::Capitalized if !primary && !secondary => insert(SECONDARY, phonemes),
            Self::Emphasized if !primary && secondary => {
                phonemes.chars().map(|c| if c == SECONDARY { PRIMARY } else { c }).collect()
            }
            Self::Emphasized if !primary => insert(PRIMARY, phonemes),
            _ => phonemes.to_owned(),
        }
    }
}

/// `phonemes` with a mark before the first vowel.
fn insert(mark: char, phonemes: &str) -> String {
    let mut marked = String::with_capacity(phonemes.len() + mark.len_utf8());
    match phonemes.find(is_vowel) {
        Some(at) => {
            marked.push_str(&phonemes[..at]);
            marked.push(mark);
            marked.push_str(&phonemes[at..]);
        }
        None => marked.push_str(phonemes),
    }
    marked
}

/// Length of the phonemes: diphthongs and affricates count twice.
fn weight(phonemes: &str) -> usize {
    phonemes.chars().map(|c| if "AIOQWYʤʧ".contains(c) { 2 } else { 1 }).sum()
}

/// Demotes the stress of the lighter parts of a compound, such as `well-known`, so that about half
/// of its parts remain stressed. `letters` is the number of letters of each part.
pub(super) fn balance(parts: &mut [String], letters: &[usize]) {
    let mut order: Vec<(bool, usize, usize)> = parts
        .iter()
        .enumerate()
        .filter(|(_, part)| !part.is_empty())
        .map(|(at, part)| (part.contains(PRIMARY), weight(part), at))
        .collect();
    let stressed = order.iter().filter(|(stressed, _, _)| *stressed).count();
    let demote = |part: &mut String| *part = Stress::Demoted.apply(part);
    if let [first, second] = order[..]
        && letters.get(first.2) == Some(&1)
    {
        demote(&mut parts[second.2]);
    } else if order.len() >= 2 && stressed > order.len().div_ceil(2) {
        order.sort_unstable();
        for (_, _, at) in &order[..order.len() / 2] {
            demote(&mut parts[*at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_precedes_the_first_vowel() {
        assert_eq!(Stress::Capitalized.apply("ðə"), "ðˌə");
        assert_eq!(Stress::Emphasized.apply("fɹʌm"), "fɹˈʌm");
        assert_eq!(Stress::Emphasized.apply("hm"), "hm");
    }

    #[test]
    fn present_stress_is_raised_or_demoted() {
        assert_eq!(Stress::Capitalized.apply("hˌAlO"), "hˌAlO");
        assert_eq!(Stress::Emphasized.apply("hˌAlO"), "hˈAlO");
        assert_eq!(Stress::Demoted.apply("ˌɪnfəɹmˈAʃən"), "ɪnfəɹmˌAʃən");
        assert_eq!(Stress::Demoted.apply("ðə"), "ðə");
        assert_eq!(Stress::Unchanged.apply("nˈO"), "nˈO");
    }

    #[test]
    fn the_case_decides_the_stress() {
        assert_eq!(Stress::of_case("the"), Stress::Unchanged);
        assert_eq!(Stress::of_case("The"), Stress::Capitalized);
        assert_eq!(Stress::of_case("THE"), Stress::Emphasized);
    }

    #[test]
    fn a_compound_keeps_half_of_its_stresses() {
        let mut parts = ["wˈɛl", "", "nˈOn"].map(String::from);
        balance(&mut parts, &[4, 1, 5]);
        assert_eq!(parts, ["wˌɛl", "", "nˈOn"].map(String::from));
        let mut parts = ["ˈi", "", "mˈAl"].map(String::from);
        balance(&mut parts, &[1, 1, 4]);
        assert_eq!(parts, ["ˈi", "", "mˌAl"].map(String::from));
        let mut parts = ["nˈO"].map(String::from);
        balance(&mut parts, &[2]);
        assert_eq!(parts, ["nˈO"].map(String::from));
    }
}
