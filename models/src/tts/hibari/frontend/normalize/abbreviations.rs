//! Abbreviations and the words that they stand for.

use super::context::Context;
use super::numbers::is_digits;

/// Abbreviations that a period follows, without it, and with a capital as in the table.
const WITH_PERIOD: &[(&str, &str)] = &[
    ("Mr", "Mr"),
    ("Mrs", "Mrs"),
    ("Ms", "Miz"),
    ("Prof", "Professor"),
    ("Gen", "General"),
    ("Gov", "Governor"),
    ("Sen", "Senator"),
    ("Rep", "Representative"),
    ("Capt", "Captain"),
    ("Lt", "Lieutenant"),
    ("Sgt", "Sergeant"),
    ("Col", "Colonel"),
    ("Rev", "Reverend"),
    ("Hon", "Honorable"),
    ("Pres", "President"),
    ("Jr", "Junior"),
    ("Sr", "Senior"),
    ("Mt", "Mount"),
    ("Ft", "Fort"),
    ("Ave", "Avenue"),
    ("Blvd", "Boulevard"),
    ("Rd", "Road"),
    ("Ln", "Lane"),
    ("Hwy", "Highway"),
    ("Apt", "Apartment"),
    ("Bldg", "Building"),
    ("Ltd", "Limited"),
    ("Inc", "Incorporated"),
    ("Corp", "Corporation"),
    ("Co", "Company"),
    ("Bros", "Brothers"),
    ("Dept", "Department"),
    ("dept", "department"),
    ("Univ", "University"),
    ("Govt", "Government"),
    ("approx", "approximately"),
    ("est", "estimated"),
    ("incl", "including"),
    ("max", "maximum"),
    ("min", "minimum"),
    ("misc", "miscellaneous"),
    ("tel", "telephone"),
    ("Tel", "Telephone"),
    ("vol", "volume"),
    ("Vol", "Volume"),
    ("fig", "figure"),
    ("Fig", "Figure"),
    ("ch", "chapter"),
    ("Ch", "Chapter"),
    ("pp", "pages"),
    ("ed", "edition"),
    ("cf", "compare"),
    ("ca", "circa"),
    ("al", "al"),
    ("Mon", "Monday"),
    ("Tue", "Tuesday"),
    ("Tues", "Tuesday"),
    ("Wed", "Wednesday"),
    ("Thu", "Thursday"),
    ("Thurs", "Thursday"),
    ("Fri", "Friday"),
    ("Sat", "Saturday"),
    ("Sun", "Sunday"),
    ("etc", "et cetera"),
    ("vs", "versus"),
    ("hr", "hour"),
    ("hrs", "hours"),
    ("mins", "minutes"),
    ("sec", "seconds"),
    ("secs", "seconds"),
];
/// Abbreviations that are read as words with or without a period behind them.
const ALWAYS: &[(&str, &str)] = &[
    ("etc", "et cetera"),
    ("e.g", "for example"),
    ("i.e", "that is"),
    ("vs", "versus"),
    ("a.k.a", "also known as"),
    ("aka", "also known as"),
    ("approx", "approximately"),
    ("w/", "with"),
    ("w/o", "without"),
    ("N/A", "not applicable"),
    ("n/a", "not applicable"),
    ("24/7", "twenty four seven"),
    ("9/11", "nine eleven"),
    ("c/o", "care of"),
    ("AT&T", "A T and T"),
    ("C#", "C sharp"),
    ("F#", "F sharp"),
    ("Mr", "Mr"),
    ("Mrs", "Mrs"),
    ("Ms", "Miz"),
    ("№", "number"),
    ("JSON", "Jason"),
    ("YAML", "yamel"),
    ("SaaS", "sass"),
    ("IEEE", "I triple E"),
    ("nginx", "engine X"),
];
/// Words before a Roman numeral that is read as a number.
const CARDINAL_BEFORE: &[&str] = &[
    "chapter", "part", "act", "scene", "section", "volume", "book", "phase", "article", "war",
    "type", "level", "stage", "class", "grade", "bowl", "apollo", "episode", "round", "appendix",
];
/// Names before a Roman numeral that is read as an ordinal.
const ORDINAL_BEFORE: &[&str] = &[
    "Pope",
    "King",
    "Queen",
    "Henry",
    "Louis",
    "Edward",
    "George",
    "William",
    "Charles",
    "James",
    "Richard",
    "Elizabeth",
    "Napoleon",
    "Pius",
    "Benedict",
    "Leo",
    "Paul",
    "Frederick",
    "Philip",
    "Alexander",
    "Nicholas",
    "Peter",
    "Catherine",
    "Ivan",
    "Emmanuel",
    "Gustav",
    "Christian",
    "Ferdinand",
];

/// The words of an abbreviation; `None` for any other word. `period`: whether one follows it.
pub(super) fn expand(core: &str, period: bool, context: Context<'_>) -> Option<String> {
    let find = |table: &[(&str, &'static str)]| {
        table.iter().find(|(short, _)| *short == core).map(|(_, long)| *long)
    };
    if let Some(words) = by_neighbors(core, period, context) {
        return Some(words.to_owned());
    }
    let with_period = if period && !is_ambiguous(core, context) { find(WITH_PERIOD) } else { None };
    let always = || if core.is_empty() { None } else { find(ALWAYS) };
    with_period.or_else(always).map(str::to_owned)
}

/// Words that are also written out, where the period may end the sentence.
fn is_ambiguous(core: &str, context: Context<'_>) -> bool {
    match core {
        "max" | "min" | "est" | "ed" | "al" | "fig" | "Fig" | "ch" | "vol" => {
            context.is_last() && core != "al"
        }
        "Sun" | "Sat" | "Mon" | "Wed" | "Gen" | "Col" | "Rep" | "Rev" | "Co" => {
            context.is_last() && core != "Co"
        }
        _ => false,
    }
}

/// Abbreviations whose words depend on the neighbors.
fn by_neighbors(core: &str, period: bool, context: Context<'_>) -> Option<&'static str> {
    let number_follows = context.next().starts_with(|c: char| c.is_ascii_digit());
    let is_street = context.follows_name() || is_street_number(context.previous());
    Some(match core {
        "Dr" if period && is_street && !context.precedes_capital() => "Drive",
        "Dr" if period && is_street && context.is_last() => "Drive",
        "Dr" => "Doctor",
        "St" if is_street && (period || context.is_last()) => "Street",
        "St" if context.precedes_capital() => "Saint",
        "St" if period => "Street",
        "No" | "no" if period && number_follows => "number",
        "Nos" | "nos" if period && number_follows => "numbers",
        "p" if period && number_follows => "page",
        "ext" if number_follows => "extension",
        "a.m" | "am" | "AM" | "A.M" if is_hour(context.previous()) => "A.M",
        "p.m" | "pm" | "PM" | "P.M" if is_hour(context.previous()) => "P.M",
        "a.m" | "A.M" => "A.M",
        "p.m" | "P.M" => "P.M",
        _ => return None,
    })
}

/// "5th", as in "5th St."
fn is_street_number(word: &str) -> bool {
    let stem = ["st", "nd", "rd", "th"].iter().find_map(|suffix| word.strip_suffix(suffix));
    stem.is_some_and(is_digits)
}

/// "5" or "5:30".
fn is_hour(word: &str) -> bool {
    let (hour, minute) = word.split_once(':').unwrap_or((word, "00"));
    is_digits(hour) && hour.len() <= 2 && is_digits(minute) && minute.len() == 2
}

/// How a Roman numeral behind `previous` is read.
#[derive(Debug, PartialEq)]
pub(super) enum RomanReading {
    Cardinal,
    Ordinal,
}

pub(super) fn roman_reading(previous: &str) -> Option<RomanReading> {
    if CARDINAL_BEFORE.contains(&previous.to_lowercase().as_str()) {
        Some(RomanReading::Cardinal)
    } else {
        ORDINAL_BEFORE.contains(&previous).then_some(RomanReading::Ordinal)
    }
}

/// Whether a period behind `word` belongs to it, so that it ends no sentence before a capital.
pub(in crate::tts::hibari) fn is_before_name(word: &str) -> bool {
    const BEFORE_NAMES: &[&str] = &[
        "Mr", "Mrs", "Ms", "Dr", "St", "Prof", "Gen", "Gov", "Sen", "Rep", "Capt", "Lt", "Sgt",
        "Col", "Rev", "Hon", "Pres", "Mt", "Ft", "e.g", "i.e", "vs", "Fig", "fig", "approx", "ca",
        "cf", "No", "Vol", "vol", "ext",
    ];
    let mut chars = word.chars();
    let is_initial = chars.next().is_some_and(char::is_uppercase) && chars.next().is_none();
    is_initial && word != "I" || BEFORE_NAMES.contains(&word)
}
