//! How much of a segment was heard, by the rules of the turn-taking page: by word times if
//! available, otherwise by syllables in proportion.

use super::case::Micros;

/// The words of a text, each with the byte index of its end and its number of syllables.
fn words_with_syllables(text: &str) -> Vec<(usize, u64)> {
    let mut words: Vec<(usize, u64)> = Vec::new();
    for token in text.split_whitespace() {
        let from = token.as_ptr() as usize - text.as_ptr() as usize;
        let mut latin = String::new();
        let mut end = from;
        // A CJK character is a word of its own, together with the punctuation after it.
        for (at, c) in token.char_indices() {
            let after = from + at + c.len_utf8();
            if ('\u{3040}'..='\u{30ff}').contains(&c) || ('\u{4e00}'..='\u{9fff}').contains(&c) {
                if !latin.is_empty() {
                    words.push((end, count_syllables(&latin)));
                    latin.clear();
                }
                words.push((after, 1));
            } else if c.is_alphanumeric() || !latin.is_empty() {
                latin.push(c);
            } else if let Some(last) = words.last_mut().filter(|last| last.0 == from + at) {
                last.0 = after;
            }
            end = after;
        }
        if latin.chars().any(char::is_alphanumeric) {
            words.push((end, count_syllables(&latin)));
        } else if let Some(last) = words.last_mut() {
            // No letters or digits: it belongs to the word before it.
            last.0 = end;
        }
    }
    words
}

/// Counts groups of the letters aeiouy, at least one. A final e does not count, unless the word
/// ends in -le or has no other group. Punctuation separates groups.
fn count_syllables(word: &str) -> u64 {
    let vowel = |c: char| "aeiouy".contains(c);
    let signs: Vec<char> = word.to_lowercase().chars().map(without_marks).collect();
    let mut groups = 0;
    for (at, c) in signs.iter().enumerate() {
        if vowel(*c) && (at == 0 || !vowel(signs[at - 1])) {
            groups += 1;
        }
    }
    let letters: String = signs.iter().filter(|c| c.is_alphanumeric()).collect();
    if groups > 1 && letters.ends_with('e') && !letters.ends_with("le") {
        groups -= 1;
    }
    groups.max(1)
}

fn without_marks(c: char) -> char {
    match c {
        'à' | 'á' | 'â' | 'ä' | 'ã' => 'a',
        'è' | 'é' | 'ê' | 'ë' => 'e',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        'ò' | 'ó' | 'ô' | 'ö' | 'õ' => 'o',
        'ù' | 'ú' | 'û' | 'ü' => 'u',
        other => other,
    }
}

/// The part of a segment that was heard at `position` of `length`.
pub(crate) fn heard_prefix<'a>(
    text: &'a str,
    times: &[(String, Micros)],
    length: Micros,
    position: Micros,
) -> &'a str {
    let words = words_with_syllables(text);
    let mut end = 0;
    if times.is_empty() {
        // A position is a number of samples.
        let (length, position) = (length * 48 / 1000, position * 48 / 1000);
        let all: u64 = words.iter().map(|word| word.1).sum();
        let mut sum = 0;
        for (until, count) in words {
            sum += count;
            if i128::from(sum) * i128::from(length) <= i128::from(position) * i128::from(all) {
                end = until;
            }
        }
    } else {
        for (word, (_, time)) in text.split_whitespace().zip(times) {
            if *time <= position {
                end = word.as_ptr() as usize - text.as_ptr() as usize + word.len();
            }
        }
    }
    &text[..end]
}

/// The words of a text without case and punctuation.
pub(crate) fn normalize_text(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        word.chars()
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect::<String>()
    });
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

pub(crate) fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}
