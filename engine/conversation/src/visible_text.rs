//! Text without what a reader does not see: names and other words of strangers reach the LLM and
//! the transcript.

/// Maximum characters of a person's name.
const MAX_PERSON_CHARS: usize = 100;
/// A Braille pattern without dots: it is blank, and no white space.
const BLANK_BRAILLE: char = '\u{2800}';

/// A person's name on one line, without control characters and what nobody sees, and cut if it is
/// long; `None` if nothing is left.
#[must_use]
pub fn person_name(name: &str) -> Option<String> {
    let is_blank = |c: char| c.is_control() || c.is_whitespace() || c == BLANK_BRAILLE;
    let spaced: String = name.chars().map(|c| if is_blank(c) { ' ' } else { c }).collect();
    let line = remove_invisible(&spaced).split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = line.chars().take(MAX_PERSON_CHARS).collect();
    let cut = cut.trim_end();
    (!cut.is_empty()).then(|| cut.to_owned())
}

/// The text without characters that a reader does not see and a language model reads. Tag
/// characters spell hidden words, bidirectional controls show words in another order than they
/// have.
///
/// ZWJ and ZWNJ stay where they belong to the spelling: one of them between two characters of
/// scripts that are written with joiners (Arabic, Persian, those of India) or between two emoji.
/// What is lost is only how a character looks: a variant of an ideograph, the flag of a region.
#[must_use]
pub fn remove_invisible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut rest = text.chars().filter(|c| !is_invisible(*c)).peekable();
    let mut previous = None;
    while let Some(c) = rest.next() {
        if !is_joiner(c)
            || (previous.is_some_and(takes_joiner)
                && rest.peek().copied().is_some_and(takes_joiner))
        {
            visible.push(c);
            previous = Some(c);
        }
    }
    visible
}

/// Whether a joiner may stand beside the character. Latin, Greek, Cyrillic and Hebrew letters,
/// which come first in Unicode, are written without joiners.
fn takes_joiner(c: char) -> bool {
    c >= '\u{600}' && !c.is_whitespace() && !is_joiner(c)
}

/// Whether the character is zero-width joiner or non-joiner.
#[must_use]
pub fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Whether the character is a format character (Unicode category Cf), or is not shown for another
/// reason (property Default_Ignorable_Code_Point: fillers, variation selectors). Joiners are not
/// included.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_of_what_a_reader_sees() {
        let name = |text: &str| person_name(text).unwrap_or_default();
        assert_eq!(name(" Clara\n\u{7}  M\u{fc}ller\u{2028}"), "Clara M\u{fc}ller");
        assert_eq!(name("\u{202e}Cla\u{200b}ra\u{2069} \u{feff}M\u{ad}"), "Clara M");
        assert_eq!(name("T\u{e0074}om\u{200d} \u{2800}"), "Tom");
        assert_eq!(name("\u{1f600} Ada"), "\u{1f600} Ada");
        let persian = "\u{639}\u{644}\u{6cc}\u{200c}\u{631}\u{636}\u{627}";
        assert_eq!(name(persian), persian, "the joiner belongs to the spelling");
        for invisible in ["", "\u{200b}", "\u{200d}\u{2066}", "\u{3164}", "\u{2800}\n"] {
            assert_eq!(person_name(invisible), None, "{invisible:?}");
        }
        assert_eq!(name(&"\u{e9}".repeat(101)), "\u{e9}".repeat(MAX_PERSON_CHARS));
    }
}
