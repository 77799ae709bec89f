//! Cleans the hypotheses of a small recognizer for the transcript.

use std::sync::LazyLock;

/// The list of words to replace. Its first comment describes the format.
const PROFANITY_FILE: &str = include_str!("../../../assets/stt/profanity-en.txt");

/// Profane words, sorted, each with its replacement. An empty one drops the word.
static PROFANITY: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lines = PROFANITY_FILE.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect()
});

/// Words without meaning by themselves. Hiss, hum and the noise of keys are recognized as one of
/// them, or as profanity.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "as", "at", "be", "but", "by", "for", "from", "had", "has", "he", "her",
    "his", "huh", "if", "in", "is", "it", "its", "of", "on", "or", "the", "their", "to", "uh",
    "um", "was", "were", "with",
];

/// Words of a hypothesis, without fillers (`<sil>`, `[NOISE]`, `++UM++`), pronunciation numbers
/// (`the(2)`) and profanity. Empty if no word has a meaning by itself: the audio was then noise,
/// and any word would interrupt the agent.
pub(super) fn clean_transcript(hypothesis: &str) -> String {
    let mut out = String::with_capacity(hypothesis.len());
    let mut has_content_word = false;
    for token in hypothesis.split_whitespace() {
        if token.starts_with(['<', '[', '+']) {
            continue;
        }
        let word = token.split_once('(').map_or(token, |(word, _)| word);
        let word = match replacement(word) {
            Some(replacement) => replacement,
            None => {
                has_content_word |= STOP_WORDS.binary_search(&word).is_err();
                word
            }
        };
        if !word.is_empty() {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(word);
        }
    }
    if has_content_word { out } else { String::new() }
}

/// Text with case and punctuation, without profanity. Only whole words are replaced.
pub(super) fn replace_profanity(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let is_word = |c: char| c.is_alphanumeric() || c == '\'';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        if is_word(first) {
            push_without_profanity(&mut out, piece);
        } else if out.ends_with(char::is_whitespace) || out.is_empty() {
            // The word before it was dropped.
            if !piece.trim().is_empty() {
                out.truncate(out.trim_end().len());
                out.push_str(if out.is_empty() { "" } else { piece });
            }
        } else {
            out.push_str(piece);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Appends a word, or its replacement with the case of its first letter.
fn push_without_profanity(out: &mut String, word: &str) {
    let (stem, ending) = word.strip_suffix("'s").map_or((word, ""), |stem| (stem, "'s"));
    match replacement(&stem.to_lowercase()) {
        None => out.push_str(word),
        Some("") => {}
        Some(replacement) => {
            let capital = stem.starts_with(char::is_uppercase);
            let (first, others) = replacement.split_at(1);
            out.push_str(&if capital { first.to_uppercase() } else { first.to_owned() });
            out.push_str(others);
            out.push_str(ending);
        }
    }
}

/// Replacement of a word in lower case, if it is profane.
fn replacement(word: &str) -> Option<&'static str> {
    let at = PROFANITY.binary_search_by_key(&word, |(rude, _)| rude).ok()?;
    Some(PROFANITY[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        assert!(PROFANITY.len() > 80 && PROFANITY.is_sorted_by(|a, b| a.0 < b.0));
        let valid = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '\'');
        assert!(PROFANITY.iter().all(|(rude, other)| valid(rude) && valid(other)));
        assert!(STOP_WORDS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn no_neighbour_is_rude_itself() {
        assert!(
            PROFANITY
                .iter()
                .all(|(_, neighbour)| PROFANITY.iter().all(|(rude, _)| rude != neighbour))
        );
    }

    #[test]
    fn markers_and_numbers_of_pronunciations_are_removed() {
        assert_eq!(
            clean_transcript("<s> the(2) weather <sil> [NOISE] ++UM++ in tokyo </s>"),
            "the weather in tokyo"
        );
        assert_eq!(clean_transcript(" <sil> "), "");
    }

    #[test]
    fn rude_words_become_harmless_or_nothing() {
        assert_eq!(clean_transcript("please shit down you bastard"), "please sit down you");
        assert_eq!(clean_transcript("what the fuck"), "what the folk");
        assert_eq!(clean_transcript("pass the class assignment"), "pass the class assignment");
    }

    #[test]
    fn text_with_case_and_punctuation_keeps_them() {
        for (rude, harmless) in [
            ("The bitch I could be.", "The pitch I could be."),
            ("Bitch, please!", "Pitch, please!"),
            ("Shit, down you bastard.", "Sit, down you."),
            ("The fucking train is late.", "The train is late."),
            ("Fucking, hell", "hell"),
            ("You motherfucker", "You"),
            ("That mother-fucker's car", "That mother- car"),
            ("Is it SHIT?", "Is it Sit?"),
            ("Pass the class assignment, Dickens.", "Pass the class assignment, Dickens."),
            ("", ""),
        ] {
            assert_eq!(replace_profanity(rude), harmless);
        }
    }

    #[test]
    fn transcripts_of_noise_are_removed() {
        for noise in ["if", "be", "if if if", "shit", "the fuck", "and the"] {
            assert_eq!(clean_transcript(noise), "", "{noise}");
        }
        for word in ["yes", "no", "stop", "i", "okay", "that", "and then"] {
            assert_eq!(clean_transcript(word), word);
        }
    }
}
