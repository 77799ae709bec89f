use super::*;

/// The spoken form of a text.
fn spoken(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let spoken = normalize(&words);
    assert_eq!(spoken.len(), words.len(), "{text}");
    spoken.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(table: &[(&str, &str)]) {
    let wrong: Vec<String> = table
        .iter()
        .filter(|(text, expected)| spoken(text) != *expected)
        .map(|(text, expected)| format!("{text:?}: {:?}, not {expected:?}", spoken(text)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn plain_text_and_its_marks_remain() {
    check(&[
        ("", ""),
        ("Hello, world!", "Hello, world!"),
        ("Don’t stop; it’s “fine”.", "Don't stop; it's “fine”."),
        ("(well-known)", "(well-known)"),
        ("well—yes", "well— yes"),
        ("well - yes", "well — yes"),
        ("wait...what", "wait— what"),
        ("Hmm...", "Hmm..."),
        ("I use it.", "I use it."),
        ("naïve café", "naïve café"),
        ("rock 'n' roll", "rock n roll"),
        ("[note]", "(note)"),
        ("may I", "may I"),
        ("the sun sat", "the sun sat"),
        ("Go to Sun.", "Go to Sun."),
        ("No.", "No."),
        ("No, no.", "No, no."),
        ("in the co-op", "in the co-op"),
    ]);
}

#[test]
fn prices() {
    check(&[
        ("$3.50", "three dollars and fifty cents"),
        ("$3.50.", "three dollars and fifty cents."),
        ("$1", "one dollar"),
        ("$1.00", "one dollar"),
        ("$1.01", "one dollar and one cent"),
        ("$0.99", "ninety nine cents"),
        ("$.50", "fifty cents"),
        ("$0.01", "one cent"),
        ("£1,200", "one thousand two hundred pounds"),
        ("£2.50", "two pounds and fifty pence"),
        ("€5", "five euros"),
        ("5€", "five euros"),
        ("$3.2 billion", "three point two billion dollars"),
        ("$1 million.", "one million dollars."),
        ("$5M", "five million dollars"),
        ("$10k", "ten thousand dollars"),
        ("£2bn", "two billion pounds"),
        ("-$5", "minus five dollars"),
        ("US$20", "twenty U.S dollars"),
        ("$5-10", "five to ten dollars"),
        ("$5–$10", "five dollars to ten dollars"),
        ("$10/month", "ten dollars per month"),
        ("¥500", "five hundred yen"),
        ("5 USD", "five dollars"),
        ("USD 5", "five dollars"),
        ("1 EUR", "one euro"),
        ("$1,234.56", "one thousand two hundred thirty four dollars and fifty six cents"),
        ("$2.999", "two point nine nine nine dollars"),
    ]);
}

#[test]
fn numbers() {
    check(&[
        ("0", "zero"),
        ("42", "forty two"),
        ("1,250 people", "one thousand two hundred fifty people"),
        ("1984", "nineteen eighty four"),
        ("2026", "twenty twenty six"),
        ("2008", "two thousand eight"),
        ("5000", "five thousand"),
        ("2000 km", "two thousand kilometers"),
        ("-5", "minus five"),
        ("3.14", "three point one four"),
        (".5", "point five"),
        ("007", "zero zero seven"),
        ("1st", "first"),
        ("22nd,", "twenty second,"),
        ("103rd", "one hundred third"),
        ("1990s", "nineteen nineties"),
        ("'90s", "nineties"),
        ("the 80s", "the eighties"),
        ("50%", "fifty percent"),
        ("3.5%", "three point five percent"),
        ("5-10%", "five to ten percent"),
        ("10–12", "ten to twelve"),
        ("2019-2021", "twenty nineteen to twenty twenty one"),
        ("9-5", "nine to five"),
        ("3/4", "three quarters"),
        ("1/2", "one half"),
        ("2/3", "two thirds"),
        ("3 1/2", "three and a half"),
        ("2½", "two and a half"),
        ("¼", "one quarter"),
        ("10/12", "October twelfth"),
        ("50/50", "fifty fifty"),
        ("16/9", "sixteen slash nine"),
        ("12345678", "one two three four five six seven eight"),
        ("1,000,000", "one million"),
        ("No. 5", "number five"),
        ("Nos. 5 and 6", "numbers five and six"),
        ("#5", "number five"),
        ("24/7", "twenty four seven"),
        ("20%–30%", "twenty percent to thirty percent"),
        ("2M users", "two million users"),
        ("your PIN 4729", "your PIN four seven two nine"),
        ("order number 2024", "order number two zero two four"),
        ("4729 steps", "four thousand seven hundred twenty nine steps"),
        ("978-3-16-148410-0", "nine seventy eight three sixteen one four eight four one zero zero"),
        ("20-year-old", "twenty year old"),
        ("mid-2020s", "mid twenty twenties"),
        ("2+2=4", "two plus two equals four"),
        ("3 * 4", "three times four"),
        ("5 < 6", "five less than six"),
        ("1²", "one squared"),
        (
            "99999999999999999999",
            "nine nine nine nine nine nine nine nine nine nine nine nine nine \
          nine nine nine nine nine nine nine",
        ),
    ]);
}

#[test]
fn units() {
    check(&[
        ("5 km", "five kilometers"),
        ("5km", "five kilometers"),
        ("1 km", "one kilometer"),
        ("20°C", "twenty degrees Celsius"),
        ("20 °F", "twenty degrees Fahrenheit"),
        ("-1°", "minus one degree"),
        ("16GB", "sixteen gigabytes"),
        ("100 Mbps", "one hundred megabits per second"),
        ("60 mph", "sixty miles per hour"),
        ("5/day", "five per day"),
        ("10-12 km", "ten to twelve kilometers"),
        ("90 km/h.", "ninety kilometers per hour."),
        ("6 ft", "six feet"),
        ("150 lbs", "one hundred fifty pounds"),
        ("1.5 m", "one point five meters"),
        ("30 min", "thirty minutes"),
        ("a km", "a km"),
        ("50 m²", "fifty square meters"),
    ]);
}

#[test]
fn times_and_dates() {
    check(&[
        ("5 p.m.", "five P.M."),
        ("5 p.m. today", "five P.M today"),
        ("at 5:30 pm", "at five thirty P.M"),
        ("9:05am", "nine oh five A.M"),
        ("9am", "nine A.M"),
        ("10 a.m. to 5 p.m.", "ten A.M to five P.M."),
        ("5:00", "five o'clock"),
        ("17:00", "seventeen hundred"),
        ("17:45", "seventeen forty five"),
        ("3:00 pm", "three P.M"),
        ("1:02:03", "one oh two and three seconds"),
        ("5-7pm", "five to seven P.M"),
        ("9am-5pm", "nine A.M to five P.M"),
        ("9:00–17:30", "nine o'clock to seventeen thirty"),
        ("Mon-Fri", "Monday to Friday"),
        ("Sat–Sun", "Saturday to Sunday"),
        ("2026-11-26", "November twenty sixth, twenty twenty six"),
        ("11/26/2026", "November twenty sixth, twenty twenty six"),
        ("26/11/2026", "November twenty sixth, twenty twenty six"),
        ("26.11.2026", "November twenty sixth, twenty twenty six"),
        ("1/2/99", "January second, nineteen ninety nine"),
        ("Jan. 5", "January fifth"),
        ("Jan. 5th, 2019", "January fifth, twenty nineteen"),
        ("March 3,", "March third,"),
        ("5 January 1990", "the fifth of January nineteen ninety"),
        ("the 5 January", "the fifth of January"),
        ("the 3rd of March", "the third of March"),
        ("in May 2020", "in May twenty twenty"),
        ("On Mon. at 9", "On Monday at nine"),
        ("13/13/2020", "thirteen thirteen twenty twenty"),
    ]);
}

#[test]
fn abbreviations() {
    check(&[
        ("Dr. Smith lives on Elm Dr.", "Doctor Smith lives on Elm Drive."),
        ("Mr. and Mrs. Jones", "Mr and Mrs Jones"),
        ("St. Paul", "Saint Paul"),
        ("We met St. Nicholas", "We met Saint Nicholas"),
        ("on Main St.", "on Main Street."),
        ("on 5th St. today", "on fifth Street today"),
        ("Prof. Lee", "Professor Lee"),
        ("e.g. this", "for example this"),
        ("i.e., that", "that is, that"),
        ("etc.", "et cetera."),
        ("cats vs. dogs", "cats versus dogs"),
        ("approx. 5", "approximately five"),
        ("Acme Inc. grew", "Acme Incorporated grew"),
        ("J. K. Rowling", "J K Rowling"),
        ("U.S. law", "U.S law"),
        ("the U.S.", "the U.S."),
        ("Ph.D.", "Ph.D."),
        ("w/ milk", "with milk"),
        ("N/A", "not applicable"),
        ("Chapter IV", "Chapter four"),
        ("Henry VIII.", "Henry the eighth."),
        ("World War II", "World War two"),
        ("I am", "I am"),
        ("Vol. 3", "Volume three"),
        ("p. 12", "page twelve"),
    ]);
}

#[test]
fn names_with_digits_and_symbols() {
    check(&[
        ("GPU", "GPU"),
        ("GPT-4", "GPT four"),
        ("v2.1", "version two point one"),
        ("V2", "V two"),
        ("3.10.2", "three point ten point two"),
        ("192.168.0.1", "one nine two dot one six eight dot zero dot one"),
        ("COVID-19", "COVID nineteen"),
        ("MP3", "MP three"),
        ("H2O", "H two O"),
        ("B2B", "B two B"),
        ("i7", "I seven"),
        ("747", "seven hundred forty seven"),
        ("A320", "A three twenty"),
        ("3D", "three D"),
        ("5G", "five G"),
        ("R&D", "R and D"),
        ("AT&T", "A T and T"),
        ("C++", "C plus plus"),
        ("C#", "C sharp"),
        ("salt & pepper", "salt and pepper"),
        ("and/or", "and or"),
        ("he/she", "he she"),
        ("snake_case", "snake case"),
        ("#winning", "hashtag winning"),
        ("@home", "at home"),
        ("London–Paris", "London to Paris"),
        ("word2vec's", "word two vec's"),
        ("a.b", "a.b"),
        ("Mr.Smith", "Mr Smith"),
        ("Windows 11", "Windows eleven"),
    ]);
}

#[test]
fn addresses_and_telephone_numbers() {
    check(&[
        ("info@example.com", "info at example dot com"),
        ("jo.doe-1@mail.co.uk,", "jo dot doe dash one at mail dot co dot U K,"),
        ("https://visavis.example/docs", "visavis dot example slash docs"),
        ("https://visavis.example/docs/.", "visavis dot example slash docs."),
        ("www.example.com", "W W W dot example dot com"),
        ("example.com", "example dot com"),
        ("HTTP://A.io/x?y=1", "A dot I O slash X question mark Y equals one"),
        ("localhost:8080", "localhost eighty eighty"),
        ("+1 555 0100", "plus one, five five five, zero one zero zero"),
        ("555-0100", "five five five, zero one zero zero"),
        ("(555) 123-4567.", "(five five five), one two three, four five six seven."),
        ("1-800-555-0199", "one, eight zero zero, five five five, zero one nine nine"),
        ("020 7946 0018", "zero two zero, seven nine four six, zero zero one eight"),
        ("10 20 30", "ten twenty thirty"),
        ("https://", ""),
        ("@", "at"),
    ]);
}

#[test]
fn marks_emoji_and_markup_are_silent() {
    check(&[
        ("👍 🎉", ""),
        ("Great 👍!", "Great !"),
        ("?!", ""),
        ("...", ""),
        (":)", ""),
        ("Hi :)", "Hi"),
        ("***", ""),
        ("- item", "item"),
        ("**Bold** `code` _it_", "Bold code it"),
        ("<b>tag</b>", "b tag b"),
        ("| a | b |", "a b"),
        ("a\u{0}b", "a b"),
        ("™", ""),
        ("iPhone™", "iPhone"),
        ("→", "to"),
        ("日本", "日本"),
    ]);
}

#[test]
fn any_text_is_read_without_a_panic() {
    let odd = [
        "$",
        "$$",
        "-",
        "--",
        "€€5",
        "1/0",
        "0/0",
        "1:2",
        "1:99",
        "25:00",
        "::",
        "#",
        "##",
        "@@",
        "a@",
        "@b",
        "a@b",
        "http://",
        "https:///",
        ".",
        "..",
        "v",
        "v.",
        "v1.",
        "1.",
        "1..2",
        "½½",
        "'",
        "''s",
        "'s",
        "s",
        "No.",
        "5th.",
        "0th",
        "99999999999999999999th",
        "1e5",
        "0x1F",
        "%",
        "%%",
        "5%%",
        "+",
        "+5",
        "++",
        "1-",
        "-1-",
        "1–",
        "–1",
        "1--2",
        "²",
        "°",
        "°C",
        "K°",
        "⅓",
        "Ⅷ",
        "\u{301}",
        "a\u{301}",
        "ﬁ",
        "İ",
        "ß",
        "ẞ",
        "\u{200b}",
        "\u{feff}",
        "🇩🇪",
        "👩‍🚀",
        "(",
        ")",
        "((",
        "“”",
        "…",
        "…a",
        "a…",
        "a…b",
        "1,",
        ",1",
        "1,000,",
        "1,00",
        "12:30:45.678",
        "1/2/3/4",
        "2026-13-01",
        "2026-00-00",
        "0/5/2020",
        "31/31/2020",
        "1.2.2020",
        "99.99.9999",
        "+()",
        "+1",
        "(1)",
        "(1)(2)",
        "٣",
        "५",
        "１２",
        "Ａ",
        "x".repeat(5_000).leak(),
        "9".repeat(5_000).leak(),
        "-a".repeat(2_500).leak(),
        "1/".repeat(2_500).leak(),
        "a.".repeat(2_500).leak(),
        "@".repeat(5_000).leak(),
        "é—".repeat(1_000).leak(),
    ];
    for text in odd {
        spoken(text);
        spoken(&format!("5 {text} pm"));
        spoken(&format!("Jan. {text}, 2020"));
    }
}
