//! Words that are not stressed in a sentence, whatever the dictionary says about them alone.

/// Function words, in lower case: articles, pronouns, prepositions, conjunctions and auxiliary
/// verbs that sentences rarely stress. "No", "not" and forms such as "don't" are stressed.
const FUNCTION_WORDS: &[&str] = &[
    "a", "about", "am", "an", "and", "are", "as", "at", "be", "because", "been", "being", "but",
    "by", "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "having", "he",
    "her", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "may", "me", "might",
    "must", "my", "nor", "of", "on", "or", "our", "per", "shall", "she", "should", "so", "some",
    "than", "that", "the", "their", "them", "there", "these", "they", "this", "those", "though",
    "through", "to", "until", "us", "was", "we", "were", "what", "when", "where", "which", "while",
    "who", "whom", "whose", "why", "will", "with", "would", "you", "your",
];

/// Whether a word is a function word, or one with a clitic: "I'll", "that's". Case and surrounding
/// punctuation are ignored.
pub(super) fn is_function_word(word: &str) -> bool {
    let core = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let stem = match core.split_once(['\'', '’']) {
        // "Don't", "can't".
        Some((_, "t")) => return false,
        Some((stem, _)) => stem,
        None => &core,
    };
    FUNCTION_WORDS.binary_search(&stem).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_words_are_found_in_any_case_and_with_clitics() {
        assert!(FUNCTION_WORDS.is_sorted(), "they are searched");
        for word in ["the", "The", "\"And", "you,", "I'll", "that’s", "we've", "WHAT?"] {
            assert!(is_function_word(word), "{word}");
        }
        for word in ["no", "No,", "not", "don't", "can’t", "theme", "cat's", "", "42", "…"] {
            assert!(!is_function_word(word), "{word}");
        }
    }
}
