//! Normalization: the words that people say for what is written. `$3.50` becomes "three dollars and
//! fifty cents".
//!
//! Each written word is read on its own, with a view of its neighbors, so that the times of the
//! spoken words can be reported for the written ones.

mod abbreviations;
mod address;
mod calendar;
mod context;
mod numbers;
mod quantity;

use self::abbreviations::RomanReading;
pub(in crate::tts::hibari) use self::abbreviations::is_before_name;
use self::context::{Context, Written};

/// Symbols that are read as words.
const SYMBOLS: &[(char, &str)] = &[
    ('&', "and"),
    ('+', "plus"),
    ('=', "equals"),
    ('%', "percent"),
    ('@', "at"),
    ('°', "degrees"),
    ('±', "plus or minus"),
    ('×', "times"),
    ('÷', "divided by"),
    ('→', "to"),
    ('©', "copyright"),
    ('§', "section"),
    ('½', "one half"),
    ('¼', "one quarter"),
    ('¾', "three quarters"),
    ('²', "squared"),
    ('³', "cubed"),
    ('µ', "micro"),
    ('∞', "infinity"),
    ('≈', "about"),
    ('≤', "at most"),
    ('≥', "at least"),
    ('$', "dollar"),
    ('£', "pound"),
    ('€', "euro"),
    ('¢', "cents"),
];
/// Symbols that are also read if they are a word of their own.
const ALONE: &[(&str, &str)] = &[
    ("*", "times"),
    ("/", "slash"),
    ("<", "less than"),
    (">", "greater than"),
    ("~", "about"),
    ("#", "number"),
];

/// Greek letters that are a word of their own.
const LETTERS: &[(&str, &str)] = &[
    ("α", "alpha"),
    ("β", "beta"),
    ("γ", "gamma"),
    ("δ", "delta"),
    ("Δ", "delta"),
    ("ε", "epsilon"),
    ("θ", "theta"),
    ("λ", "lambda"),
    ("μ", "mu"),
    ("π", "pi"),
    ("σ", "sigma"),
    ("Σ", "sigma"),
    ("φ", "phi"),
    ("ω", "omega"),
    ("Ω", "omega"),
];

/// The spoken form of each written word of a sentence: words separated by one blank, with the
/// punctuation marks that are audible. Empty if a word is not spoken.
pub(super) fn normalize(words: &[&str]) -> Vec<String> {
    let written: Vec<Written> = words.iter().map(|word| Written::new(word)).collect();
    let phones = address::find_phones(&written);
    let read = |at: usize| {
        let context = Context { words: &written, at };
        read_word(&written[at], phones[at], context)
    };
    (0..written.len()).map(read).collect()
}

fn read_word(word: &Written, is_phone: bool, context: Context<'_>) -> String {
    let core = word.core();
    if core.is_empty() {
        return read_marks(word, context);
    }
    let period = word.suffix().starts_with('.');
    let mut belongs = false;
    let spoken = if is_phone {
        address::phone(core)
    } else if let Some(words) = calendar::day_or_month(core, period, context) {
        belongs = period;
        words
    } else if let Some(words) = abbreviations::expand(core, period, context) {
        belongs = period;
        words
    } else {
        let letters = core.chars().all(|c| c.is_alphabetic() || c == '.');
        let initial = core.chars().count() == 1 && context.precedes_capital();
        belongs = period && letters && (core.contains('.') || initial);
        read_core(core, context)
    };
    let mut out = String::new();
    out.extend(word.prefix().chars().filter_map(|c| match c {
        '(' | '[' => Some('('),
        '"' | '“' | '„' | '«' => Some('“'),
        _ => None,
    }));
    out.push_str(spoken.trim());
    // The period of an abbreviation is also that of the sentence.
    let suffix = word.suffix();
    let suffix = if belongs && !context.is_last() { &suffix[1..] } else { suffix };
    out.extend(suffix.chars().filter_map(|c| match c {
        '.' | ',' | '!' | '?' | ';' | ':' | '…' | '—' => Some(c),
        ')' | ']' => Some(')'),
        '"' | '”' | '»' => Some('”'),
        '–' | '-' => Some('—'),
        _ => None,
    }));
    // Between the groups of a telephone number is a pause.
    if is_phone && !context.is_last() && matches!(suffix, "" | ")") {
        out.push(',');
    }
    out
}

/// A word of marks only: a pause, or a symbol between blanks.
fn read_marks(word: &Written, context: Context<'_>) -> String {
    let marks = [word.prefix(), word.suffix()].concat();
    let between = context.at > 0 && !context.is_last();
    if between && let Some((_, name)) = ALONE.iter().find(|(symbol, _)| *symbol == marks) {
        return (*name).to_owned();
    }
    match marks.as_str() {
        // At the start of a line it is the mark of a list.
        "-" | "–" | "—" | "--" | "---" if context.at > 0 => "—".to_owned(),
        "…" | "..." | "." | "," | ":" | ";" | "!" | "?" if context.at > 0 => marks,
        _ => String::new(),
    }
}

/// A word without marks around it.
fn read_core(core: &str, context: Context<'_>) -> String {
    if let Some(words) = address::address(core) {
        return words;
    }
    if let Some((_, name)) = LETTERS.iter().find(|(letter, _)| *letter == core) {
        return (*name).to_owned();
    }
    if let Some(words) = calendar::days(core) {
        return words;
    }
    if let Some(words) = roman(core, context).or_else(|| quantity::unit_word(core, context)) {
        return words;
    }
    let numeric = core.contains(|c: char| c.is_ascii_digit() || "½¼¾".contains(c));
    if numeric {
        let forms = calendar::time(core, context)
            .or_else(|| calendar::date(core))
            .or_else(|| calendar::decade(core))
            .or_else(|| quantity::quantity(core, context));
        if let Some(words) = forms {
            return words;
        }
        if let Some(tag) = core.strip_prefix('#') {
            return format!("number {}", read_core(tag, context));
        }
        if let Some(word) = core.strip_suffix("'s") {
            return format!("{}'s", read_core(word, context));
        }
    } else if let Some(tag) = core.strip_prefix('#').filter(|tag| !tag.is_empty()) {
        return format!("hashtag {}", read_core(tag, context));
    }
    read_parts(core, context)
}

fn roman(core: &str, context: Context<'_>) -> Option<String> {
    let value = numbers::roman(core)?;
    Some(match abbreviations::roman_reading(context.previous())? {
        RomanReading::Cardinal => numbers::cardinal(value),
        RomanReading::Ordinal => format!("the {}", numbers::ordinal(value)),
    })
}

/// A word with symbols, dashes or digits inside: its parts one after the other.
fn read_parts(core: &str, context: Context<'_>) -> String {
    if let Some((before, after)) = split_dash(core) {
        let name = |text: &str| text.starts_with(char::is_uppercase);
        let en_dash = core[before.len()..].starts_with('–');
        // "London–Paris" is a range, "well – yes" a pause.
        let between = if en_dash && name(before) && name(after) { " to " } else { "— " };
        return [read_core(before, context).as_str(), between, &read_core(after, context)].concat();
    }
    let mut out = String::new();
    let mut part = String::new();
    for c in core.chars() {
        let symbol = SYMBOLS.iter().find(|(symbol, _)| *symbol == c).map(|(_, name)| *name);
        match (c, symbol) {
            (_, Some(name)) => {
                read_plain(&mut out, &std::mem::take(&mut part));
                push_word(&mut out, name);
            }
            ('-', _) if !part.is_empty() => part.push('-'),
            // An apostrophe or a period within a word, or within an initialism.
            ('\'' | '.', _) => part.push(c),
            _ if c.is_alphanumeric() || is_combining(c) => part.push(c),
            _ => read_plain(&mut out, &std::mem::take(&mut part)),
        }
    }
    read_plain(&mut out, &part);
    out
}

/// A mark that is part of the letter before it.
fn is_combining(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

/// The texts before and after a dash, or after periods between two words.
fn split_dash(core: &str) -> Option<(&str, &str)> {
    ["—", "–", "--", "...", "…"].iter().find_map(|dash| {
        let (before, after) = core.split_once(dash)?;
        let after = after.trim_start_matches(['-', '.']);
        (!before.is_empty() && !after.is_empty()).then_some((before, after))
    })
}

/// Appends a part of letters, digits, hyphens and apostrophes. Digits become words of their own.
fn read_plain(out: &mut String, part: &str) {
    if !part.contains(|c: char| c.is_ascii_digit()) {
        let initialism = part.split('.').all(|part| part.chars().count() < 3);
        let part = part.trim_matches('-');
        if initialism {
            push_word(out, part);
        } else {
            part.split('.').for_each(|part| push_word(out, part));
        }
        return;
    }
    for piece in part.split(['-', '.']) {
        let words = quantity::name_number(piece)
            .or_else(|| calendar::decade(piece))
            .or_else(|| quantity::version(piece))
            .unwrap_or_else(|| address::split_digits(piece));
        push_word(out, &words);
    }
}

fn push_word(out: &mut String, word: &str) {
    if !out.is_empty() && !word.is_empty() {
        out.push(' ');
    }
    out.push_str(word);
}

#[cfg(test)]
mod tests;
