//! The words of a vendor, made fit for logs and records.

/// Maximum number of characters of a vendor's message in an error.
const MAX_REASON_CHARS: usize = 240;

/// Number of characters of a secret that are not repeated: some vendors name its beginning or end.
const SECRET_PART: usize = 6;

/// A vendor's message on one line, truncated, without `secrets`: some vendors repeat the key or a
/// part of it. The words of `public`, such as the name of the vendor, remain.
pub(crate) fn redact(words: &str, secrets: &[String], public: &str) -> String {
    let is_secret = |word: &str| {
        word.starts_with("sk-")
            || word.contains("***")
            || secrets.iter().any(|secret| repeats(word, secret))
    };
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let is_public = |word: &str| public.split_whitespace().any(|name| name == bare(word));
    let words = words.split_whitespace().map(|word| {
        let hides = !is_public(word) && (is_secret(word) || is_secret(&bare(word)));
        if hides { "***" } else { word }
    });
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_REASON_CHARS).collect()
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

/// Whether a word contains a secret or a part of it. Shorter secrets than 4 bytes are none.
fn repeats(word: &str, secret: &str) -> bool {
    if secret.len() < 4 {
        return false;
    }
    let starts: Vec<usize> = secret.char_indices().map(|(at, _)| at).collect();
    let ends = starts.iter().copied().skip(SECRET_PART).chain([secret.len()]);
    starts.iter().zip(ends).any(|(start, end)| word.contains(&secret[*start..end]))
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
    }
}
