//! Converts written words to text for an English synthesizer, and maps positions in that text back
//! to the written words.

use unicode_normalization::UnicodeNormalization as _;

/// A segment longer than this ends with its sentence, in bytes. The first audio of a segment waits
/// for the work on the whole segment.
const SENTENCE_SPLIT_BYTES: usize = 80;
/// A segment ends here even within a sentence, in bytes.
const MAX_SEGMENT_BYTES: usize = 400;
/// A longer spoken word is split, in bytes.
const MAX_WORD_BYTES: usize = 60;

/// Text of one synthesis.
#[derive(Debug, PartialEq)]
pub(super) struct TextSegment {
    /// Words in ASCII, separated by one blank; empty if nothing in it can be spoken.
    pub(super) spoken: String,
    /// The written words, in order.
    pub(super) words: Vec<WrittenWord>,
}

/// A written word in a segment.
#[derive(Debug, PartialEq)]
pub(super) struct WrittenWord {
    pub(super) written: String,
    /// End of its spoken form in [`TextSegment::spoken`]; that of the previous word if it is not
    /// spoken.
    pub(super) end: usize,
}

/// Splits `text` into segments. `pronunciation`: (as written, as it should sound), compared without
/// case and surrounding punctuation.
pub(super) fn split_segments(text: &str, pronunciation: &[(String, String)]) -> Vec<TextSegment> {
    let mut parts = Vec::new();
    let mut part = TextSegment { spoken: String::new(), words: Vec::new() };
    for written in text.split_whitespace() {
        let sound = to_plain_ascii(&apply_pronunciation(written, pronunciation));
        let spoken = &mut part.spoken;
        if sound.bytes().any(|b| b.is_ascii_alphanumeric()) {
            for chunk in sound.split(' ').flat_map(|word| word.as_bytes().chunks(MAX_WORD_BYTES)) {
                if !spoken.is_empty() && !chunk.is_empty() {
                    spoken.push(' ');
                }
                spoken.extend(chunk.iter().map(|&b| char::from(b)));
            }
        } else if !sound.is_empty() && spoken.ends_with(|c: char| c.is_ascii_alphanumeric()) {
            // A punctuation mark between blanks, such as a dash between two words, is a pause. It
            // belongs to the token of the previous word.
            let before = spoken.len();
            spoken.push(',');
            for word in part.words.iter_mut().rev().take_while(|word| word.end == before) {
                word.end = spoken.len();
            }
        }
        let end = spoken.len();
        part.words.push(WrittenWord { written: written.to_owned(), end });
        let ends_sentence =
            written.trim_end_matches(['"', '\'', ')', '”', '’']).ends_with(['.', '!', '?', '…']);
        if end > MAX_SEGMENT_BYTES || end > SENTENCE_SPLIT_BYTES && ends_sentence {
            parts.push(std::mem::replace(
                &mut part,
                TextSegment { spoken: String::new(), words: Vec::new() },
            ));
        }
    }
    if !part.words.is_empty() {
        parts.push(part);
    }
    parts
}

/// Replaces the core of `written` according to the list. A possessive `'s` remains.
pub(super) fn apply_pronunciation(written: &str, list: &[(String, String)]) -> String {
    let core = written.trim_matches(|c: char| !c.is_alphanumeric());
    if core.is_empty() {
        return written.to_owned();
    }
    let stem = core.strip_suffix("'s").or_else(|| core.strip_suffix("’s")).unwrap_or(core);
    let find = |word: &str| {
        let word = word.to_lowercase();
        list.iter()
            .find(|(as_written, _)| as_written.trim().to_lowercase() == word)
            .map(|(_, sound)| sound.as_str())
    };
    // The full word first: the list may contain "O'Brien's" itself.
    let (word, sound) = match (find(core), find(stem)) {
        (Some(sound), _) => (core, sound),
        (None, Some(sound)) => (stem, sound),
        (None, None) => return written.to_owned(),
    };
    written.replacen(word, sound, 1)
}

/// Converts to printable ASCII. Accents are dropped, typographic marks become plain ones, a dash
/// becomes a comma, and other scripts are removed.
fn to_plain_ascii(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    for c in word.nfkd() {
        match c {
            '‘' | '’' | 'ʼ' | '′' => out.push('\''),
            '“' | '”' | '„' | '″' => out.push('"'),
            // Within a word the comma needs a blank; otherwise the two halves are read as one word.
            '–' | '—' | '―' if out.is_empty() => out.push(','),
            '–' | '—' | '―' => out.push_str(", "),
            'ß' => out.push_str("ss"),
            'æ' | 'Æ' => out.push_str("ae"),
            'œ' | 'Œ' => out.push_str("oe"),
            'ø' | 'Ø' => out.push('o'),
            'ł' | 'Ł' => out.push('l'),
            '€' => out.push_str(" euros "),
            '£' => out.push_str(" pounds "),
            '°' => out.push_str(" degrees "),
            // Emphasis and code marks of a language model are not spoken; flite would read them
            // aloud.
            '*' | '`' | '_' | '~' | '|' | '\\' | '<' | '>' | '^' | '{' | '}' | '[' | ']' => {}
            c if c.is_whitespace() => out.push(' '),
            c if c.is_ascii_graphic() => out.push(c),
            _ => {}
        }
    }
    out.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken_text(text: &str, pronunciation: &[(&str, &str)]) -> String {
        let list: Vec<_> =
            pronunciation.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        split_segments(text, &list).into_iter().map(|p| p.spoken).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn plain_english_is_left_alone() {
        assert_eq!(
            spoken_text("Hello,  Dr. Smith's\n$5.50 e-mail!", &[]),
            "Hello, Dr. Smith's $5.50 e-mail!"
        );
    }

    #[test]
    fn typography_becomes_ascii() {
        assert_eq!(spoken_text("“It’s” a café — naïve…", &[]), "\"It's\" a cafe, naive...");
        assert_eq!(spoken_text("well—yes", &[]), "well, yes");
        assert_eq!(spoken_text("**Bold** `code` 👍", &[]), "Bold code");
    }

    #[test]
    fn a_word_is_pronounced_as_listed_whatever_its_case_and_marks() {
        let list = [("nginx", "engine ex"), ("SQL", "sequel")];
        assert_eq!(
            spoken_text("Use NGINX, not nginx's \"SQL\" or mysql.", &list),
            "Use engine ex, not engine ex's \"sequel\" or mysql."
        );
    }

    #[test]
    fn the_written_words_are_all_there_with_the_places_of_their_sounds() {
        let part =
            split_segments("Ask nginx 👍 now", &[("nginx".into(), "engine ex".into())]).remove(0);
        assert_eq!(part.spoken, "Ask engine ex now");
        let words: Vec<_> = part.words.iter().map(|w| (w.written.as_str(), w.end)).collect();
        assert_eq!(words, [("Ask", 3), ("nginx", 13), ("👍", 13), ("now", 17)]);
    }

    #[test]
    fn a_mark_by_itself_belongs_to_the_word_before() {
        let part = split_segments("Ask 42 - now", &[]).remove(0);
        assert_eq!(part.spoken, "Ask 42, now");
        let words: Vec<_> = part.words.iter().map(|w| (w.written.as_str(), w.end)).collect();
        assert_eq!(words, [("Ask", 3), ("42", 7), ("-", 7), ("now", 11)]);
    }

    #[test]
    fn long_text_is_cut_after_sentences_and_loses_no_word() {
        let text = "This sentence goes on for quite a while, so that it alone is longer than \
            eighty bytes. Short one. "
            .repeat(5);
        let parts = split_segments(&text, &[]);
        assert_eq!(parts.len(), 6, "a part after each long sentence, and the last short one");
        assert!(parts[0].spoken.ends_with("bytes."));
        let words: Vec<_> =
            parts.iter().flat_map(|p| &p.words).map(|w| w.written.as_str()).collect();
        assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn text_without_sentences_and_endless_words_are_cut_too() {
        assert!(
            split_segments(&"word ".repeat(1000), &[])
                .iter()
                .all(|p| p.spoken.len() <= MAX_SEGMENT_BYTES + MAX_WORD_BYTES)
        );
        let part = split_segments(&"a".repeat(1000), &[]).remove(0);
        assert!(part.spoken.split(' ').all(|w| w.len() <= MAX_WORD_BYTES));
        assert_eq!(part.words.len(), 1);
    }

    #[test]
    fn what_has_no_sound_has_no_spoken_text() {
        for silent in ["...", "👍 🎉", "?!", "***", "—"] {
            assert_eq!(spoken_text(silent, &[]), "", "{silent}");
        }
        assert!(split_segments(" \n", &[]).is_empty());
    }
}
