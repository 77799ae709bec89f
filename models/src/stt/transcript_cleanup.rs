//! Cleans the hypotheses of a small recognizer for the transcript.

/// Profanity that a small recognizer finds in harmless words, each with the most likely of these.
/// With an empty replacement the word is dropped. A user who really says one of them loses little;
/// an agent that reads it aloud or answers it offends.
const PROFANITY: &[(&str, &str)] = &[
    ("ass", "as"),
    ("asses", "as"),
    ("asshole", ""),
    ("assholes", ""),
    ("bastard", ""),
    ("bastards", ""),
    ("bitch", "pitch"),
    ("bitches", "pitches"),
    ("chink", "think"),
    ("cock", "cook"),
    ("cocks", "cooks"),
    ("cum", "come"),
    ("cunt", "can't"),
    ("cunts", ""),
    ("dick", "deck"),
    ("dicks", "decks"),
    ("dyke", "like"),
    ("fag", "bag"),
    ("faggot", ""),
    ("fags", "bags"),
    ("fuck", "folk"),
    ("fucked", ""),
    ("fucker", ""),
    ("fuckers", ""),
    ("fucking", ""),
    ("fucks", "folks"),
    ("kike", "like"),
    ("motherfucker", ""),
    ("nigga", ""),
    ("nigger", ""),
    ("niggers", ""),
    ("piss", "peace"),
    ("pissed", "passed"),
    ("pussy", "busy"),
    ("retard", ""),
    ("shit", "sit"),
    ("shits", "sits"),
    ("shitty", "city"),
    ("slut", "slot"),
    ("sluts", "slots"),
    ("spic", "speak"),
    ("tit", "it"),
    ("tits", "its"),
    ("twat", "what"),
    ("wank", "bank"),
    ("whore", "for"),
    ("whores", ""),
];

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
        let word = match PROFANITY.binary_search_by_key(&word, |(rude, _)| rude) {
            Ok(at) => PROFANITY[at].1,
            Err(_) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        assert!(PROFANITY.is_sorted_by(|a, b| a.0 < b.0));
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
    fn transcripts_of_noise_are_removed() {
        for noise in ["if", "be", "if if if", "shit", "the fuck", "and the"] {
            assert_eq!(clean_transcript(noise), "", "{noise}");
        }
        for word in ["yes", "no", "stop", "i", "okay", "that", "and then"] {
            assert_eq!(clean_transcript(word), word);
        }
    }
}
