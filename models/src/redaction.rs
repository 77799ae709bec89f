//! The words of a vendor, made fit for logs and records.

/// Maximum number of characters of a vendor's message in an error.
const MAX_REASON_CHARS: usize = 240;

/// A vendor's message on one line, truncated, without `secrets`: some vendors repeat the key or a
/// part of it.
pub(crate) fn redact(words: &str, secrets: &[String]) -> String {
    let secret = |word: &str| {
        word.starts_with("sk-")
            || word.contains("***")
            || secrets.iter().any(|secret| {
                let start: String = secret.chars().take(6).collect();
                secret.len() >= 4
                    && (word.contains(secret.as_str())
                        || (start.len() >= 6 && word.contains(&start)))
            })
    };
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let words = words
        .split_whitespace()
        .map(|word| if secret(word) || secret(&bare(word)) { "***" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_REASON_CHARS).collect()
}
