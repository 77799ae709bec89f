//! Words of a text, in scripts with and without spaces.

/// The text in lower case without punctuation, with single spaces between words.
pub(crate) fn normalize_text(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        word.chars()
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect::<String>()
    });
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Number of words in a text. In a script without spaces, each character counts as a word.
pub(crate) fn count_words(text: &str) -> usize {
    let count = |word: &str| match word.chars().filter(|c| is_ideograph(*c)).count() {
        0 => usize::from(word.chars().any(char::is_alphanumeric)),
        n => n,
    };
    text.split_whitespace().map(count).sum()
}

/// Appends `more` to `text`, separated by a space.
pub(crate) fn append_words(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(more);
}

/// Whether the character belongs to Chinese, Japanese or Korean writing and is a syllable of its
/// own.
pub(crate) fn is_ideograph(c: char) -> bool {
    matches!(
        u32::from(c),
        0x3041..=0x30ff
            | 0x3400..=0x4dbf
            | 0x4e00..=0x9fff
            | 0xac00..=0xd7a3
            | 0xf900..=0xfaff
            | 0x2_0000..=0x3_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_without_punctuation() {
        assert_eq!(count_words("Stop! ok, - stop!"), 3);
        assert_eq!(count_words("你好 world"), 3);
    }
}
