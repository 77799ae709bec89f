//! English words of numbers.

const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const SCALES: [(u64, &str); 4] = [
    (1_000_000_000_000, "trillion"),
    (1_000_000_000, "billion"),
    (1_000_000, "million"),
    (1_000, "thousand"),
];
/// A longer run of digits without separators, such as an account number, is read by digits.
const MAX_QUANTITY_DIGITS: usize = 6;
/// A longer number is read by digits even with separators.
const MAX_DIGITS: usize = 15;

/// A number as written: digits of the integer, without separators, and of the fraction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number<'a> {
    pub(super) negative: bool,
    pub(super) integer: String,
    pub(super) fraction: Option<&'a str>,
    /// Whether the integer has separators of thousands.
    grouped: bool,
}

impl<'a> Number<'a> {
    /// Parses `-1,234.5`; `None` if `text` is anything else.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix(['-', '−']);
        let (negative, rest) = (unsigned.is_some(), unsigned.unwrap_or(text));
        let (integer, fraction) = match rest.split_once('.') {
            Some((integer, fraction)) => (integer, Some(fraction)),
            None => (rest, None),
        };
        if fraction.is_some_and(|fraction| !is_digits(fraction)) {
            return None;
        }
        let mut groups = integer.split(',');
        let first = groups.next()?;
        let rest: Vec<&str> = groups.collect();
        let grouped = !rest.is_empty();
        let well_grouped = !grouped || (1..=3).contains(&first.len());
        if !well_grouped || rest.iter().any(|group| group.len() != 3) {
            return None;
        }
        let integer = first.to_owned() + &rest.concat();
        if !(is_digits(&integer) || integer.is_empty() && fraction.is_some()) {
            return None;
        }
        Some(Self { negative, integer, fraction, grouped })
    }

    /// Whether a noun after it is in the singular.
    pub(super) fn is_one(&self) -> bool {
        self.integer == "1" && self.fraction.is_none_or(|f| f.bytes().all(|b| b == b'0'))
    }

    /// The words of the number, as a quantity.
    pub(super) fn words(&self) -> String {
        let mut words = String::new();
        if self.negative {
            words.push_str("minus ");
        }
        match self.fraction {
            // "two hundred point five", but "point five" without an integer.
            Some(fraction) => {
                if !self.integer.is_empty() {
                    words.push_str(&self.integer_words());
                    words.push(' ');
                }
                words.push_str("point ");
                words.push_str(&digits(fraction));
            }
            None => words.push_str(&self.integer_words()),
        }
        words
    }

    fn integer_words(&self) -> String {
        let long = !self.grouped && self.integer.len() > MAX_QUANTITY_DIGITS;
        let leading_zero = self.integer.len() > 1 && self.integer.starts_with('0');
        if long || leading_zero {
            return digits(&self.integer);
        }
        cardinal_of(&self.integer)
    }
}

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The digits one after the other.
pub(super) fn digits(text: &str) -> String {
    let names = text.bytes().filter(u8::is_ascii_digit);
    names.map(|digit| ONES[usize::from(digit - b'0')]).collect::<Vec<_>>().join(" ")
}

/// The words of a run of digits as a quantity, or the digits if there are too many.
pub(super) fn cardinal_of(text: &str) -> String {
    match text.parse() {
        Ok(n) if text.len() <= MAX_DIGITS => cardinal(n),
        _ => digits(text),
    }
}

/// `1234`: "one thousand two hundred thirty four".
pub(super) fn cardinal(mut n: u64) -> String {
    if n == 0 {
        return ONES[0].to_owned();
    }
    let mut words = Vec::new();
    for (scale, name) in SCALES {
        if n >= scale {
            words.push(cardinal(n / scale));
            words.push(name.to_owned());
            n %= scale;
        }
    }
    if n >= 100 {
        words.push(format!("{} hundred", ONES[(n / 100) as usize]));
        n %= 100;
    }
    if n >= 20 {
        words.push(TENS[(n / 10) as usize].to_owned());
        n %= 10;
    }
    if n > 0 {
        words.push(ONES[n as usize].to_owned());
    }
    words.join(" ")
}

/// `23`: "twenty third".
pub(super) fn ordinal(n: u64) -> String {
    let words = cardinal(n);
    let (before, last) = words.rsplit_once(' ').unwrap_or(("", &words));
    let last = match last {
        "one" => "first".to_owned(),
        "two" => "second".to_owned(),
        "three" => "third".to_owned(),
        "five" => "fifth".to_owned(),
        "eight" => "eighth".to_owned(),
        "nine" => "ninth".to_owned(),
        "twelve" => "twelfth".to_owned(),
        last => match last.strip_suffix('y') {
            Some(stem) => format!("{stem}ieth"),
            None => format!("{last}th"),
        },
    };
    if before.is_empty() { last } else { format!("{before} {last}") }
}

/// `1905`: "nineteen oh five"; also a number of three or four digits in a name.
pub(super) fn year(n: u64) -> String {
    let (century, rest) = (n / 100, n % 100);
    if century == 0 || (century.is_multiple_of(10) && rest < 10) || century >= 100 {
        return cardinal(n);
    }
    let rest = match rest {
        0 => "hundred".to_owned(),
        1..=9 => format!("oh {}", cardinal(rest)),
        _ => cardinal(rest),
    };
    format!("{} {rest}", cardinal(century))
}

/// Whether a number of four digits without separators is read as a year.
pub(super) fn is_year(text: &str) -> bool {
    is_digits(text) && text.len() == 4 && ("1100".."2100").contains(&text)
}

/// The plural of a number's words: "nineteen eighties".
pub(super) fn plural(words: &str) -> String {
    match words.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if words.ends_with('x') => format!("{words}es"),
        None => format!("{words}s"),
    }
}

/// The value of a Roman numeral from 1 to 399 in its usual form.
pub(super) fn roman(text: &str) -> Option<u64> {
    let value = |c| {
        Some(match c {
            'I' => 1,
            'V' => 5,
            'X' => 10,
            'L' => 50,
            'C' => 100,
            _ => return None,
        })
    };
    let values: Vec<u64> = text.chars().map(value).collect::<Option<_>>()?;
    let (mut added, mut subtracted) = (0, 0);
    for (at, value) in values.iter().enumerate() {
        let subtracts = values.get(at + 1).is_some_and(|next| next > value);
        *(if subtracts { &mut subtracted } else { &mut added }) += value;
    }
    let total = added.checked_sub(subtracted).filter(|total| *total < 400)?;
    (total > 0 && to_roman(total) == text).then_some(total)
}

fn to_roman(mut n: u64) -> String {
    let mut text = String::new();
    for (value, letters) in [
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ] {
        while n >= value {
            text.push_str(letters);
            n -= value;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        Number::parse(text).unwrap_or_else(|| panic!("{text}")).words()
    }

    #[test]
    fn quantities_are_read_as_in_american_english() {
        for (text, expected) in [
            ("0", "zero"),
            ("21", "twenty one"),
            ("100", "one hundred"),
            ("1,234", "one thousand two hundred thirty four"),
            ("5000", "five thousand"),
            ("1,000,001", "one million one"),
            ("3.14", "three point one four"),
            ("2.0", "two point zero"),
            (".5", "point five"),
            ("-5", "minus five"),
            ("007", "zero zero seven"),
            ("12345678", "one two three four five six seven eight"),
            (
                "12,345,678",
                "twelve million three hundred forty five thousand six hundred seventy eight",
            ),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
        assert!(words("1,234,567,890,123,456,789").starts_with("one two three four"));
    }

    #[test]
    fn other_texts_are_no_numbers() {
        for text in ["", "-", ".", "1,2", "1,23,456", "1234,567", "1.2.3", "1a", "1.", ",5", "½"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ordinals_and_years() {
        let ordinals = [1, 2, 3, 5, 8, 9, 12, 20, 21, 100, 1000].map(ordinal).join(", ");
        assert_eq!(
            ordinals,
            "first, second, third, fifth, eighth, ninth, twelfth, twentieth, twenty first, \
             one hundredth, one thousandth"
        );
        let years = [1066, 1900, 1905, 1984, 2000, 2005, 2010, 2026].map(year).join(", ");
        assert_eq!(
            years,
            "ten sixty six, nineteen hundred, nineteen oh five, nineteen eighty four, \
             two thousand, two thousand five, twenty ten, twenty twenty six"
        );
        assert!(is_year("1100") && is_year("2099") && !is_year("2100") && !is_year("1066"));
        assert_eq!(["sixty", "six", "ten"].map(plural), ["sixties", "sixes", "tens"]);
    }

    #[test]
    fn roman_numerals_in_their_usual_form_only() {
        let values = ["I", "IV", "VIII", "XIV", "XLII", "XC", "CXX"].map(roman);
        assert_eq!(values, [1, 4, 8, 14, 42, 90, 120].map(Some));
        assert_eq!(["", "IIII", "VX", "IC", "HELLO", "ABC"].map(roman), [None; 6]);
    }
}
