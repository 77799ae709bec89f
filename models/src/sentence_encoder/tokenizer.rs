//! WordPiece, the tokenizer of BERT for text without case (Devlin et al. 2018, and `BertTokenizer`
//! of Hugging Face).
//!
//! The text loses control characters, accents and case. Spaces, and the borders of punctuation and
//! of Chinese characters, separate words. A word is divided from its left into the longest known
//! pieces. Unlike in the reference, the name of a special token in a text is plain text.

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Maximum number of characters of a word; a longer one is unknown.
const MAX_WORD_CHARS: usize = 100;
/// Prefix of a token that continues a word.
const CONTINUATION: &str = "##";

/// The vocabulary.
pub(super) struct Tokenizer {
    vocabulary: Vocabulary,
    /// Ids of the tokens that enclose a text.
    begin: u16,
    end: u16,
    /// Id of the token for an unknown word.
    unknown: u16,
}

impl Tokenizer {
    /// Takes the content of the file: a token per line, in the order of their ids.
    ///
    /// # Errors
    /// One phrase that says what is wrong with the file.
    pub(super) fn parse(file: String) -> Result<Self, String> {
        let vocabulary = Vocabulary::parse(file)?;
        let special = |name: &str| {
            vocabulary
                .longest_prefix(name, false)
                .filter(|(_, bytes)| *bytes == name.len())
                .map(|(id, _)| id)
                .ok_or_else(|| format!("it has no token {name}"))
        };
        let (begin, end, unknown) = (special("[CLS]")?, special("[SEP]")?, special("[UNK]")?);
        Ok(Self { vocabulary, begin, end, unknown })
    }

    /// Number of tokens in the vocabulary.
    pub(super) fn len(&self) -> usize {
        self.vocabulary.ranges.len()
    }

    /// Ids of the tokens of `text`: at most `max`, with the two that enclose them. Empty for a text
    /// without words.
    pub(super) fn encode(&self, text: &str, max: usize) -> Vec<u16> {
        let mut ids = vec![self.begin];
        let mut word = Word::default();
        let chars = text.chars().filter(|c| !is_removed(*c)).flat_map(spaced).nfd();
        for c in chars
            .filter(|c| c.general_category() != GeneralCategory::NonspacingMark)
            .flat_map(char::to_lowercase)
        {
            if ids.len() >= max {
                break;
            }
            if c.is_whitespace() {
                self.end_word(&mut word, &mut ids);
            } else if is_punctuation(c) {
                self.end_word(&mut word, &mut ids);
                word.push(c);
                self.end_word(&mut word, &mut ids);
            } else {
                word.push(c);
            }
        }
        self.end_word(&mut word, &mut ids);
        if ids.len() == 1 {
            return Vec::new();
        }
        ids.truncate(max.saturating_sub(1));
        ids.push(self.end);
        ids
    }

    /// Appends the tokens of `word`, and clears it.
    fn end_word(&self, word: &mut Word, ids: &mut Vec<u16>) {
        let first = ids.len();
        let mut rest = word.text.as_str();
        while !rest.is_empty() {
            let piece = self.vocabulary.longest_prefix(rest, ids.len() > first);
            let Some((id, bytes)) = piece.filter(|_| word.chars <= MAX_WORD_CHARS) else {
                ids.truncate(first);
                ids.push(self.unknown);
                break;
            };
            ids.push(id);
            rest = &rest[bytes..];
        }
        word.text.clear();
        word.chars = 0;
    }
}

/// The word that is being read.
#[derive(Default)]
struct Word {
    /// Its first [`MAX_WORD_CHARS`] characters.
    text: String,
    chars: usize,
}

impl Word {
    fn push(&mut self, c: char) {
        if self.chars < MAX_WORD_CHARS {
            self.text.push(c);
        }
        self.chars += 1;
    }
}

/// The tokens: the file, and two indices of it.
struct Vocabulary {
    file: String,
    /// Start and end of each token in `file`, without [`CONTINUATION`].
    ranges: Vec<[u32; 2]>,
    /// Ids of the tokens that begin a word, in the order of their text.
    initial: Vec<u16>,
    /// Ids of the tokens that continue a word, in the order of their text.
    continuing: Vec<u16>,
    /// Number of bytes of the longest token.
    max_bytes: usize,
}

impl Vocabulary {
    fn parse(file: String) -> Result<Self, String> {
        u32::try_from(file.len()).map_err(|_| "it is too long".to_owned())?;
        let (mut ranges, mut initial, mut continuing) = (Vec::new(), Vec::new(), Vec::new());
        let (mut line_start, mut max_bytes) = (0, 0);
        for line in file.split_inclusive('\n') {
            let id =
                u16::try_from(ranges.len()).map_err(|_| "it has too many tokens".to_owned())?;
            let token = line.trim_end_matches(['\r', '\n']);
            let continuation = token.strip_prefix(CONTINUATION).filter(|text| !text.is_empty());
            let text = continuation.unwrap_or(token);
            let end = line_start + token.len();
            ranges.push([(end - text.len()) as u32, end as u32]);
            if continuation.is_some() { &mut continuing } else { &mut initial }.push(id);
            max_bytes = max_bytes.max(text.len());
            line_start += line.len();
        }
        let text = |id: &u16| {
            let [start, end] = ranges[usize::from(*id)];
            &file[start as usize..end as usize]
        };
        initial.sort_unstable_by_key(text);
        continuing.sort_unstable_by_key(text);
        Ok(Self { file, ranges, initial, continuing, max_bytes })
    }

    /// Text of a token.
    fn text(&self, id: u16) -> &str {
        let [start, end] = self.ranges[usize::from(id)];
        &self.file[start as usize..end as usize]
    }

    /// The longest token that `word` starts with, and its number of bytes. `is_continuing`: another
    /// token is before it in the word.
    fn longest_prefix(&self, word: &str, is_continuing: bool) -> Option<(u16, usize)> {
        let index = if is_continuing { &self.continuing } else { &self.initial };
        let mut length = word.floor_char_boundary(self.max_bytes);
        while length > 0 {
            let prefix = &word[..length];
            if let Ok(at) = index.binary_search_by(|id| self.text(*id).cmp(prefix)) {
                return Some((index[at], length));
            }
            length = word.floor_char_boundary(length - 1);
        }
        None
    }
}

/// Whether the reference removes `c` before all else: control and format characters, and the
/// replacement of invalid text.
fn is_removed(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => false,
        '\u{fffd}' => true,
        _ => matches!(
            c.general_category(),
            GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::PrivateUse
        ),
    }
}

/// `c`, with spaces around it if it is a Chinese character.
fn spaced(c: char) -> impl Iterator<Item = char> {
    let space = is_chinese(c).then_some(' ');
    space.into_iter().chain([c]).chain(space)
}

/// The blocks of Chinese characters that the reference separates.
fn is_chinese(c: char) -> bool {
    matches!(c,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2b73f}' | '\u{2b740}'..='\u{2b81f}'
        | '\u{2b920}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}

/// Whether the reference separates `c` from its neighbours. In ASCII, all symbols count.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c.general_category_group() == GeneralCategoryGroup::Punctuation
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\n##a\ncafe\n!\n中\nrun\n##s\n##";

    /// The tokens of `text`, separated by spaces.
    fn tokens(text: &str, max: usize) -> String {
        let ids = Tokenizer::parse(FILE.to_owned()).unwrap().encode(text, max);
        let names: Vec<&str> =
            ids.iter().map(|id| FILE.lines().nth(usize::from(*id)).unwrap()).collect();
        names.join(" ")
    }

    #[test]
    fn words_are_divided_into_the_longest_pieces() {
        assert_eq!(tokens("unaffable runs", 128), "[CLS] un ##aff ##able run ##s [SEP]");
        assert_eq!(tokens("runaway", 128), "[CLS] [UNK] [SEP]");
        assert_eq!(tokens("unaff!unaffx", 128), "[CLS] un ##aff ! [UNK] [SEP]");
    }

    #[test]
    fn case_accents_and_control_characters_do_not_matter() {
        for text in ["CAFÉ", "cafe\u{301}", " ca\u{200b}fe\u{0}\t", "ca\u{fffd}fe"] {
            assert_eq!(tokens(text, 128), "[CLS] cafe [SEP]", "{text:?}");
        }
    }

    #[test]
    fn chinese_characters_and_punctuation_are_words() {
        assert_eq!(tokens("run中!!中", 128), "[CLS] run 中 ! ! 中 [SEP]");
    }

    #[test]
    fn a_text_without_words_has_no_tokens() {
        for text in ["", " \n\t ", "\u{200b}\u{0}", "\u{301}"] {
            assert_eq!(tokens(text, 128), "", "{text:?}");
        }
    }

    #[test]
    fn special_tokens_cannot_be_written() {
        let text = "[CLS] [SEP] [PAD] ##s ##";
        let found = tokens(text, 128);
        assert!(!found.contains("[PAD]") && !found.contains("##"), "{found}");
        assert_eq!(found.matches("[SEP]").count(), 1);
    }

    #[test]
    fn a_long_text_and_a_long_word_are_bounded() {
        let found = tokens(&"run ".repeat(10_000), 8);
        assert_eq!(found, "[CLS] run run run run run run [SEP]");
        // The last word has more pieces than there is space.
        assert_eq!(tokens("run run runssss", 5), "[CLS] run run run [SEP]");
        let word = |letters: usize| format!("un{}", "a".repeat(letters - 2));
        assert_eq!(tokens(&word(100), 200).matches("##a").count(), 98);
        assert_eq!(tokens(&word(101), 200), "[CLS] [UNK] [SEP]");
    }

    #[test]
    fn a_vocabulary_without_its_special_tokens_is_an_error() {
        for name in ["[CLS]", "[SEP]", "[UNK]"] {
            let error = Tokenizer::parse(FILE.replace(name, "x")).err().unwrap();
            assert_eq!(error, format!("it has no token {name}"));
        }
        assert!(Tokenizer::parse(String::new()).is_err());
        assert!(Tokenizer::parse("a\n".repeat(70_000)).is_err());
        assert!(Tokenizer::parse(FILE.replace('\n', "\r\n")).is_ok());
    }
}
