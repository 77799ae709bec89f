//! Numbers with what belongs to them: prices, percentages, units, ordinals, fractions, ranges and
//! versions.

use super::address::identifier_number;
use super::calendar;
use super::context::Context;
use super::numbers::{Number, cardinal, cardinal_of, digits, is_digits, is_year, ordinal, year};

/// Sign, then the main unit and the hundredth, each for one and for many.
const CURRENCIES: &[(&str, [&str; 4])] = &[
    ("US$", ["U.S dollar", "U.S dollars", "cent", "cents"]),
    ("$", ["dollar", "dollars", "cent", "cents"]),
    ("£", ["pound", "pounds", "penny", "pence"]),
    ("€", ["euro", "euros", "cent", "cents"]),
    ("¥", ["yen", "yen", "", ""]),
    ("₹", ["rupee", "rupees", "paisa", "paise"]),
    ("₩", ["won", "won", "", ""]),
    ("USD", ["dollar", "dollars", "cent", "cents"]),
    ("EUR", ["euro", "euros", "cent", "cents"]),
    ("GBP", ["pound", "pounds", "penny", "pence"]),
    ("CHF", ["franc", "francs", "centime", "centimes"]),
    ("JPY", ["yen", "yen", "", ""]),
];
/// Words before a number that is a code.
const CODES: &[&str] = &["code", "pin", "id", "number", "zip", "passcode", "extension", "ext"];
/// Number of digits of a code that is read by digits.
const MIN_CODE_DIGITS: usize = 4;
const SCALES: &[&str] = &["hundred", "thousand", "million", "billion", "trillion"];
/// Unit, for one and for many.
const UNITS: &[(&str, &str, &str)] = &[
    ("%", "percent", "percent"),
    ("°", "degree", "degrees"),
    ("°C", "degree Celsius", "degrees Celsius"),
    ("°F", "degree Fahrenheit", "degrees Fahrenheit"),
    ("℃", "degree Celsius", "degrees Celsius"),
    ("℉", "degree Fahrenheit", "degrees Fahrenheit"),
    ("¢", "cent", "cents"),
    ("km", "kilometer", "kilometers"),
    ("m", "meter", "meters"),
    ("cm", "centimeter", "centimeters"),
    ("mm", "millimeter", "millimeters"),
    ("nm", "nanometer", "nanometers"),
    ("µm", "micrometer", "micrometers"),
    ("mi", "mile", "miles"),
    ("ft", "foot", "feet"),
    ("yd", "yard", "yards"),
    ("kg", "kilogram", "kilograms"),
    ("g", "gram", "grams"),
    ("mg", "milligram", "milligrams"),
    ("µg", "microgram", "micrograms"),
    ("mcg", "microgram", "micrograms"),
    ("lb", "pound", "pounds"),
    ("lbs", "pound", "pounds"),
    ("oz", "ounce", "ounces"),
    ("l", "liter", "liters"),
    ("L", "liter", "liters"),
    ("ml", "milliliter", "milliliters"),
    ("mL", "milliliter", "milliliters"),
    ("h", "hour", "hours"),
    ("hr", "hour", "hours"),
    ("hrs", "hour", "hours"),
    ("min", "minute", "minutes"),
    ("mins", "minute", "minutes"),
    ("sec", "second", "seconds"),
    ("secs", "second", "seconds"),
    ("ms", "millisecond", "milliseconds"),
    ("km/h", "kilometer per hour", "kilometers per hour"),
    ("kph", "kilometer per hour", "kilometers per hour"),
    ("mph", "mile per hour", "miles per hour"),
    ("m/s", "meter per second", "meters per second"),
    ("Hz", "hertz", "hertz"),
    ("kHz", "kilohertz", "kilohertz"),
    ("MHz", "megahertz", "megahertz"),
    ("GHz", "gigahertz", "gigahertz"),
    ("kB", "kilobyte", "kilobytes"),
    ("KB", "kilobyte", "kilobytes"),
    ("MB", "megabyte", "megabytes"),
    ("GB", "gigabyte", "gigabytes"),
    ("TB", "terabyte", "terabytes"),
    ("Mbps", "megabit per second", "megabits per second"),
    ("Gbps", "gigabit per second", "gigabits per second"),
    ("fps", "frame per second", "frames per second"),
    ("W", "watt", "watts"),
    ("kW", "kilowatt", "kilowatts"),
    ("kWh", "kilowatt hour", "kilowatt hours"),
    ("MW", "megawatt", "megawatts"),
    ("V", "volt", "volts"),
    ("mAh", "milliamp hour", "milliamp hours"),
    ("dB", "decibel", "decibels"),
    ("px", "pixel", "pixels"),
    ("m²", "square meter", "square meters"),
    ("km²", "square kilometer", "square kilometers"),
    ("m³", "cubic meter", "cubic meters"),
    ("M", "million", "million"),
    ("mn", "million", "million"),
    ("B", "billion", "billion"),
    ("bn", "billion", "billion"),
];

/// The words of a text with digits that begins with a digit, a sign or a currency; `None` if it has
/// none of the forms of this module.
pub(super) fn quantity(core: &str, context: Context<'_>) -> Option<String> {
    price(core, context)
        .or_else(|| ordinal_number(core))
        .or_else(|| fraction(core, context))
        .or_else(|| range(core, context))
        .or_else(|| version(core))
        .or_else(|| with_unit(core))
        .or_else(|| rate(core, context))
        .or_else(|| plain(core, context))
}

fn currency(sign: &str) -> Option<[&'static str; 4]> {
    CURRENCIES.iter().find(|(known, _)| *known == sign).map(|(_, names)| *names)
}

/// A unit or a scale behind a number: "km" in "5 km", "billion" in "$3 billion".
pub(super) fn unit_word(core: &str, context: Context<'_>) -> Option<String> {
    let previous = context.previous();
    if SCALES.contains(&core) {
        let [_, many, ..] = CURRENCIES.iter().find_map(|(sign, names)| {
            Number::parse(previous.strip_prefix(sign)?).map(|_| *names)
        })?;
        return Some(format!("{core} {many}"));
    }
    if let Some([one, many, ..]) = currency(core).filter(|_| core.len() == 3) {
        if let Some(number) = Number::parse(previous) {
            return Some(if number.is_one() { one } else { many }.to_owned());
        }
        return Number::parse(context.next()).map(|_| String::new());
    }
    // Letters that are also words.
    if matches!(core, "W" | "V" | "L" | "l" | "h" | "M" | "B") {
        return None;
    }
    // "5 km" or "5-10 km".
    let last = previous.rsplit(['-', '–']).next().filter(|last| !last.is_empty());
    let number = Number::parse(previous).or_else(|| Number::parse(last?))?;
    unit(core).map(|(one, many)| if number.is_one() { one } else { many }.to_owned())
}

fn unit(core: &str) -> Option<(&'static str, &'static str)> {
    UNITS.iter().find(|(short, _, _)| *short == core).map(|(_, one, many)| (*one, *many))
}

/// `$3.50`, `£1,200`, `5€`, `$3M`, `-$5`.
fn price(core: &str, context: Context<'_>) -> Option<String> {
    let unsigned = core.strip_prefix(['-', '−']).unwrap_or(core);
    let sign = if unsigned.len() < core.len() { "minus " } else { "" };
    let before = CURRENCIES.iter().find_map(|(s, names)| Some((unsigned.strip_prefix(s)?, *names)));
    let behind = CURRENCIES.iter().find_map(|(s, names)| Some((unsigned.strip_suffix(s)?, *names)));
    let code = currency(context.previous()).filter(|_| context.previous().len() == 3);
    let (amount, names) = before.or(behind).or_else(|| code.map(|names| (unsigned, names)))?;
    amount_words(amount, names, context).map(|words| format!("{sign}{words}"))
}

fn amount_words(amount: &str, names: [&str; 4], context: Context<'_>) -> Option<String> {
    let [one, many, hundredth, hundredths] = names;
    let scaled = [
        ("k", "thousand"),
        ("K", "thousand"),
        ("m", "million"),
        ("M", "million"),
        ("mn", "million"),
        ("b", "billion"),
        ("B", "billion"),
        ("bn", "billion"),
        ("T", "trillion"),
    ];
    let scale = scaled.iter().find_map(|(end, word)| {
        Number::parse(amount.strip_suffix(end)?).map(|number| (number, *word))
    });
    if let Some((number, word)) = scale {
        return Some(format!("{} {word} {many}", number.words()));
    }
    if let Some((from, to)) = amount.split_once(['-', '–'])
        && let (Some(from), Some(to)) = (Number::parse(from), Number::parse(to))
    {
        return Some(format!("{} to {} {many}", from.words(), to.words()));
    }
    let number = Number::parse(amount)?;
    // The currency follows the scale: "three point two billion dollars".
    if SCALES.contains(&context.next()) {
        return Some(number.words());
    }
    let main = if number.is_one() { one } else { many };
    let cents = number.fraction.filter(|cents| cents.len() == 2 && !hundredth.is_empty());
    let Some(cents) = cents else { return Some(format!("{} {main}", number.words())) };
    let whole = cardinal_of(if number.integer.is_empty() { "0" } else { &number.integer });
    let count: u64 = cents.parse().ok()?;
    let hundredths = if count == 1 { hundredth } else { hundredths };
    Some(match (whole.as_str(), count) {
        (_, 0) => format!("{whole} {main}"),
        ("zero", _) => format!("{} {hundredths}", cardinal(count)),
        // "one dollar and fifty cents"
        _ => {
            let main = if number.integer == "1" { one } else { many };
            format!("{whole} {main} and {} {hundredths}", cardinal(count))
        }
    })
}

/// `1st`, `22nd`.
fn ordinal_number(core: &str) -> Option<String> {
    let ends = ["st", "nd", "rd", "th", "ST", "ND", "RD", "TH"];
    let stem = ends.iter().find_map(|end| core.strip_suffix(end))?;
    let number = Number::parse(stem).filter(|n| !n.negative && n.fraction.is_none())?;
    number.integer.parse().ok().filter(|_| number.integer.len() <= 9).map(ordinal)
}

/// `3/4`, `10/12`, `50/50`, `½`.
fn fraction(core: &str, context: Context<'_>) -> Option<String> {
    let glyphs = [('½', 1, 2), ('¼', 1, 4), ('¾', 3, 4)];
    for (glyph, above, below) in glyphs {
        if let Some(whole) = core.strip_suffix(glyph) {
            let part = parts(above, below)?;
            return match whole {
                "" => Some(with_whole(part, above, context)),
                _ => Some(format!("{} and {}", Number::parse(whole)?.words(), mixed(part, above))),
            };
        }
    }
    let (above, below) = core.split_once('/')?;
    let short = |text: &str| is_digits(text) && text.len() <= 3;
    if !(short(above) && short(below)) {
        return None;
    }
    let (a, b): (u64, u64) = (above.parse().ok()?, below.parse().ok()?);
    if a == b {
        return Some(format!("{} {}", cardinal(a), cardinal(b)));
    }
    if 0 < a
        && a < b
        && let Some(part) = parts(a, b)
    {
        return Some(with_whole(part, a, context));
    }
    let slash = || format!("{} slash {}", cardinal(a), cardinal(b));
    Some(calendar::day_of_year(above, below).unwrap_or_else(slash))
}

/// "three quarters"; `None` if people would not read it as a fraction.
fn parts(above: u64, below: u64) -> Option<String> {
    let name = match (below, above) {
        (2, 1) => "half".to_owned(),
        (2, _) => "halves".to_owned(),
        (4, 1) => "quarter".to_owned(),
        (4, _) => "quarters".to_owned(),
        (3 | 5..=10 | 16 | 20 | 32 | 64 | 100, 1) => ordinal(below),
        (3 | 5..=10 | 16 | 20 | 32 | 64 | 100, _) => format!("{}s", ordinal(below)),
        _ => return None,
    };
    Some(format!("{} {name}", cardinal(above)))
}

/// A fraction behind a whole number: "and a half".
fn with_whole(part: String, above: u64, context: Context<'_>) -> String {
    let whole = Number::parse(context.previous()).is_some_and(|n| n.fraction.is_none());
    if whole { format!("and {}", mixed(part, above)) } else { part }
}

fn mixed(part: String, above: u64) -> String {
    match part.strip_prefix("one ") {
        Some(name) if above == 1 => format!("a {name}"),
        _ => part,
    }
}

/// `10–12`, `5-10%`, `2019-2021`, `9am-5pm`.
fn range(core: &str, context: Context<'_>) -> Option<String> {
    let (from, to) = core.split_once(['-', '–', '—'])?;
    // Three numbers and more are a code.
    if to.contains(['-', '–', '—']) {
        return None;
    }
    let end = |text: &str| {
        let is_quantity = text.starts_with(|c: char| c.is_ascii_digit() || "$£€¥".contains(c));
        let text = Some(text).filter(|_| is_quantity)?;
        calendar::time(text, context)
            .or_else(|| price(text, context))
            .or_else(|| with_unit(text))
            .or_else(|| plain(text, context))
    };
    Some(format!("{} to {}", end(from)?, end(to)?))
}

/// `$10/month`: a quantity of each unit.
fn rate(core: &str, context: Context<'_>) -> Option<String> {
    let (quantity, each) = core.split_once('/')?;
    if each.is_empty() || !each.chars().all(char::is_alphabetic) {
        return None;
    }
    let quantity = price(quantity, context)
        .or_else(|| with_unit(quantity))
        .or_else(|| plain(quantity, context))?;
    let each = unit(each).map_or(each, |(one, _)| one);
    Some(format!("{quantity} per {each}"))
}

/// `v2.1`, `3.10.2`, `192.168.0.1`.
pub(super) fn version(core: &str) -> Option<String> {
    let named = core.strip_prefix('v');
    let groups: Vec<&str> = named.unwrap_or(core).split('.').collect();
    if !groups.iter().all(|group| is_digits(group)) || named.is_none() && groups.len() < 3 {
        return None;
    }
    // An internet address is read by digits.
    let is_host = groups.len() == 4 && named.is_none();
    let read = |group: &&str| if is_host { digits(group) } else { cardinal_of(group) };
    let words: Vec<String> = groups.iter().map(read).collect();
    let words = words.join(if is_host { " dot " } else { " point " });
    Some(if named.is_some() { format!("version {words}") } else { words })
}

/// `5km`, `50%`, `20°C`.
fn with_unit(core: &str) -> Option<String> {
    let end = core.rfind(|c: char| c.is_ascii_digit())? + 1;
    let (number, short) = core.split_at(end);
    let (one, many) = unit(short)?;
    let number = Number::parse(number)?;
    Some(format!("{} {}", number.words(), if number.is_one() { one } else { many }))
}

/// A number alone. Four digits are a year, unless a unit follows.
fn plain(core: &str, context: Context<'_>) -> Option<String> {
    let is_code = CODES.contains(&context.previous().to_ascii_lowercase().as_str());
    if is_code && core.len() >= MIN_CODE_DIGITS && is_digits(core) {
        return Some(digits(core));
    }
    if is_year(core) && unit(context.next()).is_none() {
        return core.parse().ok().map(year);
    }
    Number::parse(core).map(|number| number.words())
}

/// A number behind a word in a name: "4" in "GPT-4".
pub(super) fn name_number(text: &str) -> Option<String> {
    is_digits(text).then(|| identifier_number(text))
}
