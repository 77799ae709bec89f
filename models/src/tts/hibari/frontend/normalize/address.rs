//! E-mail addresses, web addresses and telephone numbers.

use super::context::Written;
use super::numbers::{cardinal_of, digits, is_digits, year};

/// Endings of names in the internet that are recognized without a scheme.
const TOP_LEVELS: &[&str] = &[
    "com", "org", "net", "edu", "gov", "io", "co", "uk", "de", "fr", "info", "biz", "us", "ca",
    "au", "tv", "me", "ly", "ai", "app", "dev", "example", "eu", "ch", "at", "nl", "jp",
];
/// Top levels that are read as words, unlike other short ones.
const SPOKEN_TOP_LEVELS: &[&str] = &["com", "org", "net", "info", "biz", "app", "dev", "me", "co"];
/// Number of digits of a telephone number.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;

/// The words of an e-mail or web address; `None` for any other text.
pub(super) fn address(core: &str) -> Option<String> {
    let scheme = ["https://", "http://", "ftp://"].into_iter().find_map(|scheme| {
        core.get(..scheme.len()).filter(|head| head.eq_ignore_ascii_case(scheme))
    });
    let bare = core.strip_prefix("mailto:").unwrap_or(&core[scheme.map_or(0, str::len)..]);
    let host = bare.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let (user, domain) = host.split_once('@').unwrap_or(("", host));
    let labels: Vec<&str> = domain.split('.').collect();
    let plain = |label: &&str| {
        !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    let is_domain = labels.len() >= 2 && labels.iter().all(plain);
    let top = labels.last().map(|top| top.to_lowercase()).unwrap_or_default();
    let letters = domain.chars().any(char::is_alphabetic);
    let is_web = scheme.is_some()
        || is_domain && letters && (labels[0] == "www" || is_known_domain(&labels, &top));
    let is_mail = !user.is_empty() && is_domain && letters;
    if !is_mail && !is_web {
        return None;
    }
    let mut words = Vec::new();
    let mut start = 0;
    let is_symbol = |c: char| !c.is_alphanumeric();
    for (at, c) in bare.char_indices().filter(|(_, c)| is_symbol(*c)) {
        words.push(part(&bare[start..at], at == domain_end(bare) || start >= last_label(bare)));
        words.push(symbol(c).to_owned());
        start = at + c.len_utf8();
    }
    words.push(part(&bare[start..], start >= last_label(bare) && start < domain_end(bare)));
    words.retain(|word| !word.is_empty());
    // The slash at the end has no meaning for people.
    if words.last().is_some_and(|word| word == "slash") {
        words.pop();
    }
    Some(words.join(" "))
}

/// Whether a name without a scheme is one: "e.g." and "Mr.Smith" are not.
fn is_known_domain(labels: &[&str], top: &str) -> bool {
    TOP_LEVELS.contains(&top) && labels.iter().rev().nth(1).is_some_and(|label| label.len() > 1)
}

fn domain_end(bare: &str) -> usize {
    bare.find(['/', '?', '#', ':']).unwrap_or(bare.len())
}

/// Where the last label of the domain begins.
fn last_label(bare: &str) -> usize {
    bare[..domain_end(bare)].rfind('.').map_or(0, |dot| dot + 1)
}

/// A part between two symbols: letters and digits.
fn part(text: &str, in_top_level: bool) -> String {
    let short = text.len() <= 2 && text.chars().all(char::is_alphabetic);
    if text.eq_ignore_ascii_case("www") || short && in_top_level && !is_spoken(text) {
        return letters(text);
    }
    split_digits(text)
}

fn is_spoken(top: &str) -> bool {
    SPOKEN_TOP_LEVELS.contains(&top.to_lowercase().as_str())
}

/// Single letters, in capitals.
fn letters(text: &str) -> String {
    text.to_uppercase().chars().map(String::from).collect::<Vec<_>>().join(" ")
}

/// Letters and numbers of an identifier, separated: "mp3" is "mp three".
pub(super) fn split_digits(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digit).unwrap_or(rest.len());
        let (part, others) = rest.split_at(end);
        words.push(match digit {
            true => identifier_number(part),
            false if part.chars().count() == 1 => part.to_uppercase(),
            false => part.to_owned(),
        });
        rest = others;
    }
    words.join(" ")
}

/// A number in a name: "747" is "seven forty seven".
pub(super) fn identifier_number(text: &str) -> String {
    let value = text.parse().unwrap_or_default();
    match text.len() {
        _ if text.len() > 1 && text.starts_with('0') => digits(text),
        1 | 2 => cardinal_of(text),
        3 | 4 => year(value),
        _ => digits(text),
    }
}

fn symbol(c: char) -> &'static str {
    match c {
        '.' => "dot",
        '/' => "slash",
        '@' => "at",
        '-' => "dash",
        '_' => "underscore",
        '?' => "question mark",
        '=' => "equals",
        '&' => "and",
        '#' => "hash",
        '~' => "tilde",
        '%' => "percent",
        ':' => "colon",
        '+' => "plus",
        _ => "",
    }
}

/// Whether each of `words` belongs to a telephone number.
pub(super) fn find_phones(words: &[Written]) -> Vec<bool> {
    let mut found = vec![false; words.len()];
    let mut start = 0;
    while start < words.len() {
        let group = |word: &Written| {
            let text = word.core();
            text.bytes().any(|b| b.is_ascii_digit())
                && text.bytes().all(|b| b.is_ascii_digit() || b"+-.()".contains(&b))
        };
        let mut end = start;
        while words.get(end).is_some_and(group) {
            end += 1;
            // A mark ends the number.
            if words[end - 1].suffix().contains([',', '.', ';', '!', '?']) {
                break;
            }
        }
        if is_phone(&words[start..end]) {
            found[start..end].fill(true);
        }
        start = end.max(start + 1);
    }
    found
}

fn is_phone(words: &[Written]) -> bool {
    let Some(first) = words.first() else { return false };
    let count = words.iter().flat_map(|w| w.core().bytes()).filter(u8::is_ascii_digit).count();
    if !PHONE_DIGITS.contains(&count) {
        return false;
    }
    let area_code = first.prefix().ends_with('(') && first.suffix().starts_with(')');
    let groups: Vec<&str> = words.iter().flat_map(|word| word.core().split('-')).collect();
    let digit_groups = groups.iter().all(|group| is_digits(group));
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let national = matches!(lengths[..], [3, 4] | [3, 3, 4] | [1, 3, 3, 4]);
    let hyphens = words.iter().any(|word| word.core().contains('-'));
    first.core().starts_with('+')
        || area_code && groups.len() > 1
        || digit_groups && hyphens && national
        || digit_groups && groups.len() > 1 && groups[0].starts_with('0') && groups[0].len() > 1
}

/// A word of a telephone number: its digits, with a pause between groups.
pub(super) fn phone(core: &str) -> String {
    let groups = core.split(|c: char| !c.is_ascii_digit()).filter(|group| !group.is_empty());
    let read = groups.map(digits).collect::<Vec<_>>().join(", ");
    if core.starts_with('+') { format!("plus {read}") } else { read }
}
