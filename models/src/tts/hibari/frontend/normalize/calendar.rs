//! Times and dates.

use super::context::Context;
use super::numbers::{cardinal, is_digits, is_year, ordinal, plural, year};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The month of a name, or of an abbreviation of at least three letters.
fn month(name: &str) -> Option<&'static str> {
    let short = name.len() == 3 || name == "Sept";
    let matches = |month: &&&str| **month == name || short && month.starts_with(name);
    MONTHS.iter().find(matches).copied()
}

fn month_name(number: u64) -> Option<&'static str> {
    MONTHS.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
}

/// A number of one or two digits in a range.
fn small(text: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let n = if text.len() <= 2 && is_digits(text) { text.parse().ok()? } else { return None };
    range.contains(&n).then_some(n)
}

/// `5:30`, `17:00`, `9am`, `5:30:15pm`; `None` for any other text.
pub(super) fn time(core: &str, context: Context<'_>) -> Option<String> {
    let lower = core.to_ascii_lowercase();
    let half = [("am", "A.M"), ("a.m", "A.M"), ("pm", "P.M"), ("p.m", "P.M")];
    let suffix = half.iter().find_map(|(end, words)| Some((lower.strip_suffix(end)?, *words)));
    let (clock, half) = suffix.map_or((lower.as_str(), None), |(clock, half)| (clock, Some(half)));
    let mut parts = clock.split(':');
    let hour = small(parts.next()?, 0..=24)?;
    let minute = parts.next();
    let second = parts.next();
    if parts.next().is_some() || minute.is_none() && half.is_none() {
        return None;
    }
    let two = |text: &str| if text.len() == 2 { small(text, 0..=59) } else { None };
    let minute = minute.map_or(Some(0), two)?;
    let next = context.next().to_ascii_lowercase();
    let has_half = half.is_some() || matches!(&*next, "am" | "pm" | "a.m" | "p.m" | "o'clock");
    let mut words = cardinal(hour);
    match minute {
        0 if has_half || second.is_some() => {}
        0 if hour > 12 || hour == 0 => words.push_str(" hundred"),
        0 => words.push_str(" o'clock"),
        1..=9 => words.extend([" oh ", &cardinal(minute)]),
        _ => words.extend([" ", &cardinal(minute)]),
    }
    if let Some(second) = second {
        let second = two(second)?;
        let unit = if second == 1 { "second" } else { "seconds" };
        words.extend([" and ", &cardinal(second), " ", unit]);
    }
    words.extend(half.map(|half| format!(" {half}")));
    Some(words)
}

/// A date in digits: `2026-11-26`, `11/26/2026`, `26.11.2026`; `None` for any other text.
pub(super) fn date(core: &str) -> Option<String> {
    let parts = |separator| core.split(separator).collect::<Vec<_>>();
    if let [y, m, d] = parts('-')[..]
        && y.len() == 4
        && is_digits(y)
    {
        return in_words(small(m, 1..=12)?, small(d, 1..=31)?, Some(y));
    }
    if let [a, b, y] = parts('/')[..] {
        let (a, b) = (small(a, 1..=31)?, small(b, 1..=31)?);
        // The month is first, unless it cannot be.
        let (month, day) = if a <= 12 { (a, b) } else { (b, a) };
        return in_words(month, day, Some(y));
    }
    if let [d, m, y] = parts('.')[..]
        && y.len() == 4
    {
        return in_words(small(m, 1..=12)?, small(d, 1..=31)?, Some(y));
    }
    None
}

/// `10/12` as a day of the year.
pub(super) fn day_of_year(month: &str, day: &str) -> Option<String> {
    in_words(small(month, 1..=12)?, small(day, 1..=31)?, None)
}

fn in_words(month: u64, day: u64, year_digits: Option<&str>) -> Option<String> {
    let mut words = format!("{} {}", month_name(month)?, ordinal(day));
    if let Some(digits) = year_digits {
        let n: u64 = digits.parse().ok().filter(|_| is_digits(digits))?;
        let n = match digits.len() {
            2 => n + if n > 30 { 1900 } else { 2000 },
            4 => n,
            _ => return None,
        };
        words.extend([", ", &year(n)]);
    }
    Some(words)
}

/// A month, or a day beside one: `Jan. 5`, `5 January`; `None` for any other word.
pub(super) fn day_or_month(core: &str, period: bool, context: Context<'_>) -> Option<String> {
    let number_follows = context.next().starts_with(|c: char| c.is_ascii_digit());
    let follows_day = small(context.previous(), 1..=31).is_some();
    if let Some(month) = month(core).filter(|_| core.len() != 3 || core != "Mar" || period) {
        // "May", "Jan" and "June" are words of their own.
        let dated = number_follows || follows_day || period;
        return (dated && core.len() > 2 || month == core).then(|| month.to_owned());
    }
    let day = small(core, 1..=31)?;
    if month(context.previous()).is_some() {
        return Some(ordinal(day));
    }
    // "the fifth of January", unless a year or a unit follows instead.
    let next = context.next();
    (month(next).is_some() && (next.len() > 3 || next != "Mar")).then(|| {
        let article = if context.previous().eq_ignore_ascii_case("the") { "" } else { "the " };
        format!("{article}{} of", ordinal(day))
    })
}

/// `Mon-Fri`; `None` for any other text.
pub(super) fn days(core: &str) -> Option<String> {
    let day = |short: &str| {
        let is_short = short.len() >= 3;
        DAYS.iter().find(|day| is_short && day.starts_with(short)).copied()
    };
    let (from, to) = core.split_once(['-', '–'])?;
    Some(format!("{} to {}", day(from)?, day(to)?))
}

/// `1990s`, `'90s`, `80s`; `None` for any other text.
pub(super) fn decade(core: &str) -> Option<String> {
    let digits = core.strip_suffix("'s").or_else(|| core.strip_suffix('s'))?;
    let digits = digits.strip_prefix('\'').unwrap_or(digits);
    let n: u64 = if is_digits(digits) { digits.parse().ok()? } else { return None };
    if is_year(digits) {
        return Some(plural(&year(n)));
    }
    (digits.len() == 2 && n >= 20 && n.is_multiple_of(10)).then(|| plural(&cardinal(n)))
}
