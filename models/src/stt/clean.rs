//! What a small recogniser says, made fit for a transcript.

/// Rude words that a small recogniser hears in harmless ones, with the likeliest of these; without one the word is dropped. A user who truly says
/// them loses little, an agent that reads them out or answers them offends.
const RUDE: &[(&str, &str)] = &[
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

/// The words of a hypothesis: without fillers (`<sil>`, `[NOISE]`, `++UM++`), numbers of pronunciations (`the(2)`) and rude words.
pub(super) fn clean(hypothesis: &str) -> String {
    let mut out = String::with_capacity(hypothesis.len());
    for token in hypothesis.split_whitespace() {
        if token.starts_with(['<', '[', '+']) {
            continue;
        }
        let word = token.split_once('(').map_or(token, |(word, _)| word);
        let word = RUDE.binary_search_by_key(&word, |(rude, _)| rude).map_or(word, |at| RUDE[at].1);
        if !word.is_empty() {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(word);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(RUDE.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn no_neighbour_is_rude_itself() {
        assert!(RUDE.iter().all(|(_, neighbour)| RUDE.iter().all(|(rude, _)| rude != neighbour)));
    }

    #[test]
    fn markers_and_numbers_of_pronunciations_are_removed() {
        assert_eq!(clean("<s> the(2) weather <sil> [NOISE] ++UM++ in tokyo </s>"), "the weather in tokyo");
        assert_eq!(clean(" <sil> "), "");
    }

    #[test]
    fn rude_words_become_harmless_or_nothing() {
        assert_eq!(clean("please shit down you bastard"), "please sit down you");
        assert_eq!(clean("pass the class assignment"), "pass the class assignment");
    }
}
