//! The words of a vendor, made fit for logs and records.

use std::collections::HashSet;

/// Maximum number of characters of a vendor's message in an error.
const MAX_REASON_CHARS: usize = 240;

/// Number of characters of a secret that are not repeated: some vendors name its beginning or end.
const SECRET_PART: usize = 6;

/// A vendor's message on one line, truncated, without `secrets`: some vendors repeat the key or a
/// part of it, in other letters or with white space in it. The words of `public`, such as the name
/// of the vendor, remain.
pub(crate) fn redact(words: &str, secrets: &[String], public: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let is_public = |word: &str| public.split_whitespace().any(|name| name == bare(word));
    let repeats = repeated(&words, secrets, is_public);
    let is_key = |word: &str| {
        let start = word.get(..3).unwrap_or_default();
        start.eq_ignore_ascii_case("sk-") || word.contains("***")
    };
    let shown = words.iter().zip(repeats).map(|(word, repeats)| {
        let hides = !is_public(word) && (repeats || is_key(word) || is_key(bare(word)));
        if hides { "***" } else { word }
    });
    shown.collect::<Vec<_>>().join(" ").chars().take(MAX_REASON_CHARS).collect()
}

/// The word without the signs around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

/// Maximum number of characters of an id in a log.
const MAX_ID_CHARS: usize = 64;

/// A vendor's id of a request, for logs: letters, digits and `_-.:`, truncated, without `secrets`.
pub(crate) fn redact_id(id: &str, redact: impl Fn(&str) -> String) -> String {
    let plain = |text: String| -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "_-.:".contains(*c);
        text.chars().filter(is_plain).collect()
    };
    // Again, because what was dropped may have parted a secret.
    plain(redact(&plain(redact(id)))).chars().take(MAX_ID_CHARS).collect()
}

/// Whether each word has a part of a secret. The words are compared in lower case and without the
/// white space between them. A public word has no part, and separates the words around it. Shorter
/// secrets than 4 bytes are none.
fn repeated(words: &[&str], secrets: &[String], is_public: impl Fn(&str) -> bool) -> Vec<bool> {
    let (mut text, mut word_of) = (Vec::new(), Vec::new());
    for (number, word) in words.iter().enumerate() {
        if is_public(word) {
            // No secret has white space here.
            text.push(' ');
        } else {
            text.extend(folded(word));
        }
        word_of.resize(text.len(), number);
    }
    let mut repeats = vec![false; words.len()];
    for secret in secrets.iter().filter(|secret| secret.len() >= 4) {
        let secret: Vec<char> = folded(secret).collect();
        let length = secret.len().min(SECRET_PART);
        if length == 0 {
            continue;
        }
        let parts: HashSet<&[char]> = secret.windows(length).collect();
        for (at, part) in text.windows(length).enumerate() {
            if parts.contains(part) {
                repeats[word_of[at]..=word_of[at + length - 1]].fill(true);
            }
        }
    }
    repeats
}

/// The characters in lower case, without white space.
fn folded(text: &str) -> impl Iterator<Item = char> {
    // Some letters differ only in one direction, such as ß and ς.
    let lower = |c: char| c.to_uppercase().flat_map(char::to_lowercase);
    text.chars().filter(|c| !c.is_whitespace()).flat_map(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_and_its_parts_are_replaced() {
        let secrets = ["key-0123456789abcdef".to_owned(), "pass".to_owned(), "x".to_owned()];
        for (words, expected) in [
            ("bad key-0123456789abcdef\nhere", "bad *** here"),
            ("it ends in 'abcdef', begins with key-01…", "it ends in *** begins with ***"),
            ("of 3456789: pass, compass and x or key", "of *** *** *** and x or key"),
            ("sk-other a***b", "*** ***"),
        ] {
            assert_eq!(redact(words, &secrets, ""), expected, "{words}");
        }
        assert_eq!(redact(&"word ".repeat(100), &secrets, "").chars().count(), MAX_REASON_CHARS);
    }

    #[test]
    fn a_secret_is_found_in_other_letters_and_with_white_space_in_it() {
        let secrets = ["my pass is 1234 Straße".to_owned(), "key-0123456789abcdef".to_owned()];
        for (words, expected) in [
            ("wrong key: my pass is 1234 straße", "wrong key: *** *** *** *** ***"),
            ("MYPASSIS1234STRASSE (KEY-0123456789ABCDEF)", "*** ***"),
            ("of k e y - 0 1 2\n3 in my list", "of *** *** *** *** *** *** *** *** in my list"),
            ("SK-OTHER", "***"),
            ("my list is short", "my list is short"),
        ] {
            assert_eq!(redact(words, &secrets, ""), expected, "{words}");
        }
        let blank = ["    ".to_owned()];
        assert_eq!(redact("any words", &blank, ""), "any words");
        let id = redact_id("KEY-0123456789ABCDEF", |words| redact(words, &secrets, ""));
        assert_eq!(id, "");
    }

    #[test]
    fn an_id_has_plain_characters_and_no_secret() {
        let secrets = ["key-0123456789abcdef".to_owned()];
        let id = |id: &str| redact_id(id, |words| redact(words, &secrets, ""));
        for (given, expected) in [
            ("req_01-A.b:c", "req_01-A.b:c"),
            ("a b\n\"c\"=é\u{1b}[0m", "abc0m"),
            ("key-0123456789abcdef", ""),
            ("req:23456789", ""),
            ("req 234\u{200b}5678/9", ""),
            ("sk-other", ""),
        ] {
            assert_eq!(id(given), expected, "{given:?}");
        }
        assert_eq!(id(&"r".repeat(200)).len(), MAX_ID_CHARS);
    }

    #[test]
    fn the_name_of_the_vendor_remains_although_the_key_contains_it() {
        let secrets = ["Anthropic-0123456789".to_owned()];
        let words = "Anthropic: the key Anthropic-0123 of Anthropic.";
        assert_eq!(redact(words, &secrets, "Anthropic"), "Anthropic: the key *** of Anthropic.");
        let secrets = ["anthropicfake-0123456789".to_owned()];
        assert_eq!(redact("Anthropic failed", &secrets, "Anthropic"), "Anthropic failed");
    }
}
