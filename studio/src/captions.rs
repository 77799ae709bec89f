//! Captions as WebVTT, from the words of a text and their times.

use std::fmt::Write as _;
use std::time::Duration;

use crate::{Spoken, duration, samples};

/// Longest line, in columns, and the number of lines of a caption.
const LINE_COLUMNS: usize = 42;
const LINES: usize = 2;
/// Longest and shortest time of a caption. It is shorter if the next one follows at once.
const MAX_LENGTH: Duration = Duration::from_secs(6);
const MIN_LENGTH: Duration = Duration::from_secs(1);
/// A pause of this length ends a caption.
const PAUSE: Duration = Duration::from_millis(500);

/// A word with the punctuation around it. Times are in samples.
#[derive(Clone, Debug, PartialEq)]
struct Unit {
    text: String,
    /// Whether a blank follows.
    has_blank: bool,
    begin: u64,
    end: u64,
}

/// The captions of a video.
#[derive(Default)]
pub struct Captions {
    units: Vec<Unit>,
}

impl Captions {
    /// Adds a segment, whose sound begins at a position in samples.
    pub(crate) fn add(&mut self, start: u64, spoken: &Spoken) {
        let timed = timed_units(spoken).unwrap_or_else(|| estimated_units(spoken));
        self.units.extend(timed.into_iter().map(|unit| Unit {
            begin: start + unit.begin,
            end: start + unit.end,
            ..unit
        }));
        // The next segment is another sentence or the next part of this one.
        if let Some(last) = self.units.last_mut() {
            last.has_blank = !last.text.ends_with(is_wide);
        }
    }

    /// The file.
    #[must_use]
    pub fn to_vtt(&self) -> String {
        let mut file = "WEBVTT\n".to_owned();
        let captions = captions(&self.units);
        for (n, caption) in captions.iter().enumerate() {
            let (Some(first), Some(last)) = (caption.first(), caption.last()) else { continue };
            let next = captions.get(n + 1).and_then(|next| next.first());
            let wanted = last.end.max(first.begin + samples(MIN_LENGTH));
            let end = next.map_or(wanted, |next| wanted.min(next.begin.max(last.end)));
            let (begin, end) = (timestamp(first.begin), timestamp(end));
            let text = lines(caption).unwrap_or_else(|| vec![join(caption)]).join("\n");
            let _ = write!(file, "\n{begin} --> {end}\n{}\n", escape(&text));
        }
        file
    }
}

/// The words of a segment with their times from its start, if the text contains all words that were
/// spoken. Punctuation belongs to the word before it, or to the first word.
fn timed_units(spoken: &Spoken) -> Option<Vec<Unit>> {
    /// Largest distance of two words in the text, in bytes.
    const MAX_DISTANCE: usize = 80;

    let text = &spoken.text;
    let mut units: Vec<(usize, u64, u64)> = Vec::new();
    let (mut cursor, mut time) = (0, 0);
    for (word, position) in &spoken.words {
        let at = position.as_samples();
        if word.is_empty() {
            time = time.max(at);
            continue;
        }
        let found =
            text[cursor..].find(word.trim()).filter(|distance| *distance <= MAX_DISTANCE)?;
        units.push((cursor + found, time, at.max(time)));
        cursor += found + word.trim().len();
        time = time.max(at);
    }
    if units.is_empty() {
        return None;
    }
    let ends = units.iter().skip(1).map(|unit| unit.0).chain([text.len()]).collect::<Vec<_>>();
    let unit = |(n, (from, begin, end)): (usize, &(usize, u64, u64))| {
        let part = &text[if n == 0 { 0 } else { *from }..ends[n]];
        let has_blank = part.ends_with(char::is_whitespace);
        Unit { text: one_line(part), has_blank, begin: *begin, end: *end }
    };
    Some(units.iter().enumerate().map(unit).collect())
}

/// The words of a segment, whose times are estimated by their length.
fn estimated_units(spoken: &Spoken) -> Vec<Unit> {
    let mut parts: Vec<(String, bool)> = Vec::new();
    for word in spoken.text.split_whitespace() {
        let mut part = String::new();
        for c in word.chars() {
            part.push(c);
            // Scripts without blanks are cut anywhere.
            if is_wide(c) || part.len() >= LINE_COLUMNS {
                parts.push((std::mem::take(&mut part), false));
            }
        }
        if !part.is_empty() {
            parts.push((part, false));
        }
        if let Some(last) = parts.last_mut() {
            last.1 = true;
        }
    }
    let total: usize = parts.iter().map(|(part, _)| part.chars().count()).sum();
    let length = spoken.samples.len() as u64;
    let mut done = 0;
    let mut unit = |(text, has_blank): (String, bool)| {
        let begin = length * done as u64 / total.max(1) as u64;
        done += text.chars().count();
        let end = length * done as u64 / total.max(1) as u64;
        Unit { text, has_blank, begin, end }
    };
    parts.into_iter().map(&mut unit).collect()
}

/// Divides the words among captions.
fn captions(units: &[Unit]) -> Vec<&[Unit]> {
    let mut captions = Vec::new();
    let mut rest = units;
    while !rest.is_empty() {
        let fitting = (1..=rest.len()).take_while(|count| fits(&rest[..*count])).last();
        let full = fitting.unwrap_or(1);
        // The first end of a sentence or long pause, else the last clause in the second half.
        let sentence = (1..=full).find(|count| *count == rest.len() || ends_caption(rest, *count));
        let clause =
            (full.div_ceil(2)..full).rev().find(|n| *n > 0 && ends_in(&rest[*n - 1], ",;:"));
        let (caption, after) = rest.split_at(sentence.or(clause).unwrap_or(full));
        captions.push(caption);
        rest = after;
    }
    captions
}

fn fits(units: &[Unit]) -> bool {
    let length = units[units.len() - 1].end.saturating_sub(units[0].begin);
    length <= samples(MAX_LENGTH) && lines(units).is_some()
}

/// Whether a caption ends after this many words.
fn ends_caption(units: &[Unit], count: usize) -> bool {
    let pause = units[count].begin.saturating_sub(units[count - 1].end);
    ends_in(&units[count - 1], ".!?…。！？") || pause >= samples(PAUSE)
}

fn ends_in(unit: &Unit, punctuation: &str) -> bool {
    let text = unit.text.trim_end_matches(['"', '\'', '”', '’', ')', ']', '*']);
    text.ends_with(|c| punctuation.contains(c))
}

/// The lines of a caption, as equal as possible. `None`: it does not fit.
fn lines(units: &[Unit]) -> Option<Vec<String>> {
    let whole = join(units);
    if columns(&whole) <= LINE_COLUMNS {
        return Some(vec![whole]);
    }
    const { assert!(LINES == 2) };
    let pairs = (1..units.len()).map(|at| [join(&units[..at]), join(&units[at..])]);
    let longer = |pair: &[String; LINES]| columns(&pair[0]).max(columns(&pair[1]));
    let best = pairs.min_by_key(longer)?;
    (longer(&best) <= LINE_COLUMNS).then(|| best.to_vec())
}

fn join(units: &[Unit]) -> String {
    let mut text = String::new();
    for unit in units {
        text.push_str(&unit.text);
        if unit.has_blank {
            text.push(' ');
        }
    }
    text.trim_end().to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn columns(text: &str) -> usize {
    text.chars().map(|c| if is_wide(c) { 2 } else { 1 }).sum()
}

/// Whether a character is as wide as two letters: Chinese, Japanese and Korean.
fn is_wide(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{ffdc}' | '\u{20000}'..='\u{3fffd}')
}

fn timestamp(samples: u64) -> String {
    let ms = duration(samples).as_millis();
    let (seconds, minutes) = (ms / 1_000, ms / 60_000);
    format!("{:02}:{:02}:{:02}.{:03}", minutes / 60, minutes % 60, seconds % 60, ms % 1_000)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use conversation::time::Position;

    use super::*;

    fn spoken(text: &str, seconds: f64, words: &[(&str, f64)]) -> Spoken {
        let place = |(word, end): &(&str, f64)| ((*word).to_owned(), Position::from_seconds(*end));
        Spoken {
            text: text.into(),
            samples: vec![0; (seconds * 48_000.0) as usize],
            words: words.iter().map(place).collect(),
            ..Spoken::default()
        }
    }

    fn vtt(segments: &[(f64, Spoken)]) -> String {
        let mut captions = Captions::default();
        for (start, spoken) in segments {
            captions.add((start * 48_000.0) as u64, spoken);
        }
        captions.to_vtt()
    }

    #[test]
    fn words_with_times_become_captions() {
        let words = [("\"Yes,\"", 0.5), ("", 1.25), ("he", 1.5), ("said.", 2.0)];
        let first = spoken("\"Yes,\" he said.", 2.2, &words);
        let second = spoken("A < B & C.", 2.0, &[("A", 0.25), ("B", 1.0), ("C.", 1.5)]);
        assert_eq!(
            vtt(&[(0.4, first), (3.0, second)]),
            "WEBVTT\n\n00:00:00.400 --> 00:00:01.400\n\"Yes,\"\n\n\
             00:00:01.650 --> 00:00:02.650\nhe said.\n\n\
             00:00:03.000 --> 00:00:04.500\nA &lt; B &amp; C.\n"
        );
    }

    #[test]
    fn without_times_the_words_share_the_time_by_their_length() {
        let segment = spoken("One two. Three four?", 4.0, &[]);
        assert_eq!(
            vtt(&[(3_599.0, segment)]),
            "WEBVTT\n\n00:59:59.000 --> 01:00:00.647\nOne two.\n\n\
             01:00:00.647 --> 01:00:03.000\nThree four?\n"
        );
    }

    #[test]
    fn a_caption_has_two_lines_and_lasts_six_seconds() {
        let words = ["water ", "and, "].iter().cycle().take(60).copied().collect::<String>();
        let chinese = "水".repeat(100);
        for (text, seconds) in [(&words, 12.0), (&words, 60.0), (&chinese, 20.0)] {
            let file = vtt(&[(0.0, spoken(text, seconds, &[]))]);
            let captions: Vec<&str> = file.split("\n\n").skip(1).collect();
            assert!(captions.len() >= 3, "{file}");
            let mut shown = String::new();
            for caption in captions {
                let (times, text) = caption.split_once('\n').unwrap();
                let seconds: Vec<f64> =
                    times.split(" --> ").map(|t| t[6..].parse().unwrap()).collect();
                let length = (seconds[1] - seconds[0]).rem_euclid(60.0);
                assert!(length <= 6.0, "{caption}");
                let lines: Vec<&str> = text.trim_end().split('\n').collect();
                assert!(lines.len() <= 2, "{caption}");
                assert!(lines.iter().all(|line| columns(line) <= 42), "{caption}");
                shown.extend(lines);
            }
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(letters(&shown), letters(text));
        }
    }
}
