//! The suffixes -s, -ed and -ing: the stems that a word may have, and the sound of the suffix.

/// Vowels after which an American t between vowels is a flap.
fn flaps_after(c: char) -> bool {
    "AIOWYiuæɑəɛɪɹʊʌ".contains(c)
}

/// Possible stems of a word with -s, the likeliest first.
pub(super) fn stems_of_s(word: &str) -> Vec<String> {
    let mut stems = Vec::new();
    if word.chars().count() < 3 || !word.ends_with('s') {
        return stems;
    }
    let long = word.chars().count() > 4;
    if !word.ends_with("ss") {
        stems.push(word[..word.len() - 1].to_owned());
    }
    if let Some(stem) = word.strip_suffix("'s") {
        stems.push(stem.to_owned());
    } else if let Some(stem) = word.strip_suffix("ies").filter(|_| long) {
        stems.push(format!("{stem}y"));
    } else if let Some(stem) = word.strip_suffix("es").filter(|_| long) {
        stems.push(stem.to_owned());
    }
    stems
}

/// Possible stems of a word with -ed.
pub(super) fn stems_of_ed(word: &str) -> Vec<String> {
    let mut stems = Vec::new();
    if word.chars().count() < 4 || !word.ends_with('d') {
        return stems;
    }
    if !word.ends_with("dd") {
        stems.push(word[..word.len() - 1].to_owned());
    }
    if let Some(stem) = word.strip_suffix("ed").filter(|stem| !stem.ends_with('e'))
        && word.chars().count() > 4
    {
        stems.push(stem.to_owned());
        stems.extend(undoubled(stem));
    }
    stems
}

/// Possible stems of a word with -ing.
pub(super) fn stems_of_ing(word: &str) -> Vec<String> {
    let mut stems = Vec::new();
    let Some(stem) = word.strip_suffix("ing").filter(|stem| stem.chars().count() >= 2) else {
        return stems;
    };
    let long = stem.chars().count() > 2;
    if long {
        stems.push(stem.to_owned());
    }
    stems.push(format!("{stem}e"));
    if long {
        stems.extend(undoubled(stem));
        stems.extend(stem.strip_suffix("ck").map(|stem| format!("{stem}c")));
    }
    stems
}

/// `stem` without the second of two equal consonants at its end: `stopp` of "stopped".
fn undoubled(stem: &str) -> Option<String> {
    let mut chars = stem.chars();
    let (last, before) = (chars.next_back()?, chars.next_back()?);
    (last == before && "bcdgklmnprstvxz".contains(last))
        .then(|| stem[..stem.len() - last.len_utf8()].to_owned())
}

/// Phonemes of a stem with -s.
pub(super) fn attach_s(stem: &str) -> String {
    let suffix = match stem.chars().next_back() {
        None => "",
        Some('p' | 't' | 'k' | 'f' | 'θ') => "s",
        Some('s' | 'z' | 'ʃ' | 'ʒ' | 'ʧ' | 'ʤ') => "ᵻz",
        Some(_) => "z",
    };
    format!("{stem}{suffix}")
}

/// Phonemes of a stem with -ed.
pub(super) fn attach_ed(stem: &str) -> String {
    match stem.chars().next_back() {
        None => String::new(),
        Some('p' | 'k' | 'f' | 'θ' | 'ʃ' | 's' | 'ʧ') => format!("{stem}t"),
        Some('d') => format!("{stem}ᵻd"),
        Some('t') => attach_to_t(stem, "ᵻd"),
        Some(_) => format!("{stem}d"),
    }
}

/// Phonemes of a stem with -ing.
pub(super) fn attach_ing(stem: &str) -> String {
    if stem.is_empty() { String::new() } else { attach_to_t(stem, "ɪŋ") }
}

/// Appends a suffix that begins with a vowel. A t behind a vowel becomes a flap.
fn attach_to_t(stem: &str, suffix: &str) -> String {
    match stem.strip_suffix('t') {
        Some(rest) if rest.ends_with(flaps_after) => format!("{rest}ɾ{suffix}"),
        _ => format!("{stem}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_proposed_in_the_order_of_likelihood() {
        assert_eq!(stems_of_s("cities"), ["citie", "city"]);
        assert_eq!(stems_of_s("boxes"), ["boxe", "box"]);
        assert_eq!(stems_of_s("Paul's"), ["Paul'", "Paul"]);
        assert_eq!(stems_of_ed("stopped"), ["stoppe", "stopp", "stop"]);
        assert_eq!(stems_of_ed("freed"), ["free"]);
        assert_eq!(stems_of_ing("making"), ["mak", "make"]);
        assert_eq!(stems_of_ing("panicking"), ["panick", "panicke", "panic"]);
        assert_eq!(stems_of_ing("running"), ["runn", "runne", "run"]);
        assert!(stems_of_s("glass").is_empty() && stems_of_s("is").is_empty());
        assert!(stems_of_ing("ring").is_empty() && stems_of_ed("bed").is_empty());
    }

    #[test]
    fn the_last_sound_decides_that_of_the_suffix() {
        let words = ["kˈæt", "dˈɔɡ", "bˈʌs", ""];
        assert_eq!(words.map(attach_s), ["kˈæts", "dˈɔɡz", "bˈʌsᵻz", ""]);
        let words = ["wˈɔk", "plˈA", "nˈid", "wˈAt", "ˈækt", ""];
        assert_eq!(words.map(attach_ed), ["wˈɔkt", "plˈAd", "nˈidᵻd", "wˈAɾᵻd", "ˈæktᵻd", ""]);
        assert_eq!(["wˈAt", "ɡˈO", ""].map(attach_ing), ["wˈAɾɪŋ", "ɡˈOɪŋ", ""]);
    }
}
