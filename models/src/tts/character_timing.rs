//! Converts character times, which some vendors report, to word times.

use super::Word;

/// Words of `characters`. Each element is what the vendor calls a character: a letter, a letter
/// with its accents, a blank. `begins` and `ends` are their times in seconds. They count from
/// `offset` seconds after the first sample of the segment.
///
/// Blanks separate words, and their time is a pause. No word is lost, whatever the times are:
///
/// - A time that is missing, negative or not finite is replaced. A start becomes the end of the
///   previous character, an end the start of the next one.
/// - A time before one that was already returned is raised to that one.
/// - The lists of times may be shorter or longer than `characters`, or empty.
#[must_use]
pub fn words_from_characters<C: AsRef<str>>(
    characters: &[C],
    begins: &[f64],
    ends: &[f64],
    offset: f64,
) -> Vec<Word> {
    let offset = valid_time(&[offset], 0).unwrap_or(0.0);
    let mut words = WordBuilder { words: Vec::new(), current: None, latest_time: offset };
    for (n, character) in characters.iter().enumerate() {
        let before = n.checked_sub(1).and_then(|before| valid_time(ends, before));
        let begin = valid_time(begins, n).or(before).map(|t| t + offset);
        let end = valid_time(ends, n).or_else(|| valid_time(begins, n + 1)).map(|t| t + offset);
        for c in character.as_ref().chars() {
            if c.is_whitespace() {
                words.finish_word();
            } else {
                words.push(c, begin, end);
            }
        }
    }
    words.finish_word();
    words.words
}

/// The time at `n`, if it is valid.
fn valid_time(times: &[f64], n: usize) -> Option<f64> {
    times.get(n).copied().filter(|t| t.is_finite() && *t >= 0.0)
}

/// Words under construction.
struct WordBuilder {
    words: Vec<Word>,
    current: Option<Word>,
    /// The latest time of any word so far.
    latest_time: f64,
}

impl WordBuilder {
    fn push(&mut self, c: char, begin: Option<f64>, end: Option<f64>) {
        let word = self.current.get_or_insert_with(|| {
            let begin = begin.map(|begin| begin.max(self.latest_time));
            self.latest_time = begin.unwrap_or(self.latest_time);
            Word { text: String::new(), begin, end: self.latest_time }
        });
        word.text.push(c);
        // A last character without an end has no duration, but its start is known.
        self.latest_time = end.or(begin).map_or(self.latest_time, |end| end.max(self.latest_time));
        word.end = self.latest_time;
    }

    fn finish_word(&mut self) {
        self.words.extend(self.current.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    /// Each character lasts .1 s, without a gap.
    fn even(n: usize) -> (Vec<f64>, Vec<f64>) {
        let times = |from: usize| (from..from + n).map(|n| n as f64 / 10.0).collect();
        (times(0), times(1))
    }

    fn word_times(words: &[Word]) -> Vec<(&str, Option<f64>, f64)> {
        let round = |t: f64| (t * 1e6).round() / 1e6;
        words.iter().map(|w| (w.text.as_str(), w.begin.map(round), round(w.end))).collect()
    }

    #[test]
    fn blanks_separate_words_and_their_time_belongs_to_no_word() {
        let (begins, ends) = even(12);
        let words = words_from_characters(&split(" Hi, \n Bob. "), &begins, &ends, 2.0);
        assert_eq!(word_times(&words), [("Hi,", Some(2.1), 2.4), ("Bob.", Some(2.7), 3.1)]);
        assert_eq!(words_from_characters(&split(" \t "), &begins, &ends, 0.0), []);
        assert_eq!(words_from_characters(&[] as &[&str], &begins, &ends, 0.0), []);
        assert_eq!(
            word_times(&words_from_characters(&["a b"], &begins, &ends, 0.0)),
            [("a", Some(0.0), 0.1), ("b", Some(0.1), 0.1)]
        );
    }

    #[test]
    fn a_character_may_be_several_code_points_or_none() {
        let (begins, ends) = even(6);
        let words = words_from_characters(
            &["e\u{301}", "", "t", " ", "👩\u{200d}🚀", "字"],
            &begins,
            &ends,
            0.0,
        );
        assert_eq!(
            word_times(&words),
            [("e\u{301}t", Some(0.0), 0.3), ("👩\u{200d}🚀字", Some(0.4), 0.6)]
        );
    }

    #[test]
    fn lists_of_another_length_lose_no_word() {
        let (begins, ends) = even(5);
        let text = split("ab cd");
        let whole = [("ab", Some(0.0), 0.2), ("cd", Some(0.3), 0.5)];
        assert_eq!(word_times(&words_from_characters(&text, &begins, &ends, 0.0)), whole);
        let more = [&ends[..], &[7.0, 8.0]].concat();
        assert_eq!(
            word_times(&words_from_characters(&text, &begins, &more, 0.0)),
            whole,
            "times of nothing"
        );
        assert_eq!(
            word_times(&words_from_characters(&text, &begins, &[], 0.0)),
            [("ab", Some(0.0), 0.2), ("cd", Some(0.3), 0.4)],
            "without ends a character ends where the next begins, and the last one has its begin \
             alone"
        );
        assert_eq!(
            word_times(&words_from_characters(&text, &[], &ends, 0.0)),
            [("ab", None, 0.2), ("cd", Some(0.3), 0.5)]
        );
        assert_eq!(
            word_times(&words_from_characters(&text, &begins[..2], &ends[..2], 0.0)),
            [("ab", Some(0.0), 0.2), ("cd", None, 0.2)]
        );
        assert_eq!(
            word_times(&words_from_characters(&text, &[], &[], 1.0)),
            [("ab", None, 1.0), ("cd", None, 1.0)]
        );
    }

    #[test]
    fn times_that_are_none_and_times_out_of_order_lose_no_word() {
        let (begins, ends) = even(5);
        let text = split("ab cd");
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.4, 0.0, 1e300] {
            for n in 0..5 {
                for offset in [0.0, 3.0, bad] {
                    let (mut b, mut e) = (begins.clone(), ends.clone());
                    (b[n], e[n]) = (bad, bad);
                    let words = words_from_characters(&text, &b, &e, offset);
                    assert_eq!(
                        words.iter().map(|w| w.text.as_str()).collect::<Vec<_>>(),
                        ["ab", "cd"]
                    );
                    let mut last = 0.0;
                    for word in &words {
                        let begin = word.begin.unwrap_or(last);
                        assert!(
                            begin >= last && word.end >= begin && word.end.is_finite(),
                            "{bad} at {n}: {words:?}"
                        );
                        last = word.end;
                    }
                }
            }
        }
        let backwards: Vec<f64> = ends.iter().rev().copied().collect();
        assert_eq!(
            word_times(&words_from_characters(&text, &begins, &backwards, 0.0)),
            [("ab", Some(0.0), 0.5), ("cd", Some(0.5), 0.5)]
        );
    }

    #[test]
    fn a_batch_counts_from_its_own_beginning() {
        let (begins, ends) = even(2);
        let first = words_from_characters(&split("ab"), &begins, &ends, 0.0);
        let second = words_from_characters(&split("cd"), &begins, &ends, first[0].end + 0.05);
        assert_eq!(word_times(&second), [("cd", Some(0.25), 0.45)]);
    }
}
