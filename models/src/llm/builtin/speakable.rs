//! Written text as speech.

use super::MAX_ANSWER_BYTES;
use super::phrases::Phrases;

/// Converts text to speakable text: no markup, no list marks, a final punctuation mark. Dashes in
/// ranges of numbers become a word.
pub(super) fn speakable(text: &str) -> String {
    let phrases = &Phrases::english().knowledge;
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim();
    for label in phrases.question_labels.iter().chain(&phrases.answer_labels) {
        rest = rest.strip_prefix(label.as_str()).unwrap_or(rest).trim_start();
    }
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        let is_range = |out: &str, next: Option<&char>| {
            out.ends_with(|c: char| c.is_ascii_digit()) && next.is_some_and(char::is_ascii_digit)
        };
        match c {
            '*' | '`' | '#' | '[' | ']' | '|' => {}
            '_' if out.ends_with(' ')
                || out.is_empty()
                || chars.peek().is_none_or(|next| !next.is_alphanumeric()) => {}
            // [text](where): the URL is not spoken.
            '(' if text.contains("](") && matches!(chars.peek(), Some('h' | '/' | '#')) => {
                while chars.next_if(|c| *c != ')').is_some() {}
            }
            ')' if text.contains("](") => {}
            '–' if is_range(&out, chars.peek()) => {
                out.push(' ');
                out.push_str(&phrases.range_word);
                out.push(' ');
            }
            c => out.push(c),
        }
    }
    let mut out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(first) = out.chars().next().filter(|c| c.is_lowercase()) {
        out.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
    }
    let end = out.trim_end_matches([',', ';', ':', '-', ' ']).len();
    out.truncate(end);
    if out.chars().last().is_some_and(char::is_alphanumeric)
        || out.ends_with([')', '"', '%', '€', '$'])
    {
        out.push('.');
    }
    out
}

/// Limits an answer to [`MAX_ANSWER_BYTES`] bytes and a final period, cut after a clause if
/// necessary.
pub(super) fn truncate_at_clause(answer: &str) -> String {
    if answer.len() <= MAX_ANSWER_BYTES {
        return answer.to_owned();
    }
    let end = (0..=MAX_ANSWER_BYTES).rev().find(|i| answer.is_char_boundary(*i)).unwrap_or(0);
    let head = &answer[..end];
    let at = head
        .rfind(['.', ';', ','])
        .filter(|at| *at > MAX_ANSWER_BYTES / 3)
        .or_else(|| head.rfind(' '))
        .unwrap_or(end);
    format!("{}.", head[..at].trim_end_matches([',', ';', '.', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speakable_text_has_no_markup() {
        assert_eq!(
            speakable("**Bold** and `code`, see [our page](https://x.example/y) (really)"),
            "Bold and code, see our page (really."
        );
        assert_eq!(speakable("A: opens at _nine_,"), "Opens at nine.");
        assert_eq!(speakable("snake_case stays!"), "Snake_case stays!");
        assert_eq!(speakable("Open 9–17"), "Open 9 to 17.");
    }

    #[test]
    fn long_answers_end_after_a_clause() {
        let long = format!("{}, and {}", "a".repeat(200), "b ".repeat(100));
        assert_eq!(truncate_at_clause(&long), format!("{}.", "a".repeat(200)));
        assert_eq!(truncate_at_clause("Short."), "Short.");
    }
}
