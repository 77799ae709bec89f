//! Tokens of Moonshine and their text.
//!
//! The file contains the tokens in order of their ids, each as its length and its bytes. A length
//! below 128 is one byte. A longer one is two bytes, the low seven bits first, with the high bit of
//! the first byte set.

/// Id of the token that begins each transcript.
pub(super) const START: i64 = 1;
/// Id of the token that ends each transcript.
pub(super) const END: i64 = 2;
/// First id with text. The ones before it are control tokens.
const FIRST_TEXT: i64 = 3;
/// First id of the special tokens that the model reserves and never writes.
const FIRST_SPECIAL: i64 = 32_000;
/// Stands for a blank in the text of a token: U+2581.
const BLANK: &str = "\u{2581}";

/// The text of each token.
pub(super) struct Tokenizer {
    bytes: Vec<u8>,
    /// End of each token in `bytes`.
    ends: Vec<usize>,
}

impl Tokenizer {
    /// Reads the content of the file.
    ///
    /// # Errors
    /// One phrase that says what is wrong with the file.
    pub(super) fn parse(file: &[u8]) -> Result<Self, String> {
        let mut tokens = Self { bytes: Vec::with_capacity(file.len()), ends: Vec::new() };
        let mut rest = file;
        while let [first, after @ ..] = rest {
            let (length, text) = match (*first, after) {
                (first @ ..128, text) => (usize::from(first), text),
                (first, [second, text @ ..]) => {
                    (usize::from(first & 127) + usize::from(*second) * 128, text)
                }
                (_, []) => return Err("the length of its last token is incomplete".to_owned()),
            };
            let token = text
                .get(..length)
                .ok_or_else(|| format!("its token {} is incomplete", tokens.ends.len()))?;
            tokens.bytes.extend_from_slice(token);
            tokens.ends.push(tokens.bytes.len());
            rest = &text[length..];
        }
        Ok(tokens)
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text of a transcript, without control tokens and outer blanks. Bytes that are not UTF-8
    /// are replaced.
    pub(super) fn decode(&self, ids: &[i64]) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for id in ids.iter().filter(|id| (FIRST_TEXT..FIRST_SPECIAL).contains(id)) {
            bytes.extend_from_slice(self.token(*id));
        }
        String::from_utf8_lossy(&bytes).replace(BLANK, " ").trim().to_owned()
    }

    /// Bytes of a token; none if there is no such token.
    fn token(&self, id: i64) -> &[u8] {
        let Some((index, end)) =
            usize::try_from(id).ok().and_then(|index| Some((index, *self.ends.get(index)?)))
        else {
            return &[];
        };
        let start = index.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.bytes[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tokens: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for token in tokens {
            match u8::try_from(token.len()).ok().filter(|length| *length < 128) {
                Some(length) => file.push(length),
                None => file.extend([token.len() as u8 | 128, (token.len() / 128) as u8]),
            }
            file.extend(*token);
        }
        file
    }

    #[test]
    fn text_is_joined_without_control_tokens() {
        let tokens: [&[u8]; 7] = [
            b"<unk>",
            b"<s>",
            b"</s>",
            "\u{2581}Hello".as_bytes(),
            ",".as_bytes(),
            "\u{2581}world".as_bytes(),
            &[b'x'; 300],
        ];
        let tokenizer = Tokenizer::parse(&file(&tokens)).unwrap();
        assert_eq!(tokenizer.len(), 7);
        assert_eq!(tokenizer.decode(&[START, 3, 4, 5, END]), "Hello, world");
        assert_eq!(tokenizer.decode(&[6]).len(), 300, "the length is two bytes");
        assert_eq!(tokenizer.decode(&[-1, 7, 40_000]), "", "no such tokens");
    }

    #[test]
    fn a_character_of_several_tokens_is_complete() {
        let tokens: [&[u8]; 5] = [b"<unk>", b"<s>", b"</s>", &[0xc3], &[0xa9]];
        let tokenizer = Tokenizer::parse(&file(&tokens)).unwrap();
        assert_eq!(tokenizer.decode(&[3, 4]), "é");
        assert_eq!(tokenizer.decode(&[3]), "\u{fffd}");
    }

    #[test]
    fn an_incomplete_file_is_refused() {
        assert!(Tokenizer::parse(&[3, b'a']).is_err());
        assert!(Tokenizer::parse(&[200]).is_err());
        assert_eq!(Tokenizer::parse(&[]).unwrap().len(), 0);
    }
}
