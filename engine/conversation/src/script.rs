//! A written text as the segments that an avatar speaks in a video.
//!
//! A segment is a sentence, as in a call. Blank lines and `[pause S]` become gaps between segments,
//! the other [directions](crate::direction) belong to the segments.

use core::time::Duration;

use crate::contract::direction::{self, DirectionTag, Expression};
use crate::machine::phrase;

/// Pause at a blank line.
const PARAGRAPH_PAUSE: Duration = Duration::from_millis(800);

/// A line with at least this many characters was wrapped by an editor: its sentence goes on in the
/// next line. A shorter line is an item of a list or a heading.
const WRAPPED_LINE_CHARS: usize = 50;

/// A text that is ready to be spoken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// What is spoken. Empty: the text has no letter and no digit.
    pub segments: Vec<Segment>,
    /// Sum of all gaps and the tail.
    pub pauses: Duration,
    /// Pauses after the last segment.
    pub tail: Duration,
}

/// A sentence, or a part of a long one.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Its visible text: without directions, and without blanks at its ends.
    pub text: String,
    /// Its expression, if a tag sets one.
    pub expression: Option<Expression>,
    /// Whether the avatar nods.
    pub nod: bool,
    /// Pause before it.
    pub gap: Duration,
}

/// The segments of a text with [directions](crate::direction).
///
/// An expression holds until the next one or the end of the text, also over blank lines.
#[must_use]
pub fn parse(text: &str) -> Script {
    let mut parser = Parser::default();
    for (index, paragraph) in paragraphs(text).iter().enumerate() {
        if index > 0 {
            parser.pause(PARAGRAPH_PAUSE);
        }
        parser.add_paragraph(paragraph);
    }
    let Parser { mut script, gap, .. } = parser;
    script.tail = gap;
    script
}

/// Paragraphs, which blank lines separate. Wrapped lines are joined.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = Vec::new();
    let mut paragraph = String::new();
    for line in text.lines() {
        if line.trim().is_empty() {
            if !paragraph.is_empty() {
                paragraphs.push(core::mem::take(&mut paragraph));
            }
            continue;
        }
        if let Some(last) = paragraph.lines().next_back() {
            let is_wrapped = last.chars().count() >= WRAPPED_LINE_CHARS;
            paragraph.push(if is_wrapped { ' ' } else { '\n' });
        }
        paragraph.push_str(line);
    }
    if !paragraph.is_empty() {
        paragraphs.push(paragraph);
    }
    paragraphs
}

#[derive(Default)]
struct Parser {
    script: Script,
    /// Before the next segment.
    gap: Duration,
    /// Of the segments from here on.
    expression: Option<Expression>,
    /// A nod before a pause that no segment has shown.
    nod: bool,
}

impl Parser {
    fn pause(&mut self, pause: Duration) {
        self.gap += pause;
        self.script.pauses += pause;
    }

    fn add_paragraph(&mut self, paragraph: &str) {
        let (visible, directions) = direction::split(paragraph);
        let (mut start, mut first) = (0, 0);
        for (index, (at, tag)) in directions.iter().enumerate() {
            let DirectionTag::Pause(seconds) = tag else { continue };
            self.add_part(&visible[start..*at], start, &directions[first..index]);
            self.pause(milliseconds(*seconds));
            (start, first) = (*at, index + 1);
        }
        self.add_part(&visible[start..], start, &directions[first..]);
    }

    /// Adds the sentences of a text without pauses, which begins at `start` of its paragraph.
    fn add_part(&mut self, text: &str, start: usize, directions: &[(usize, DirectionTag)]) {
        let mut done = 0;
        while done < text.len() {
            let rest = &text[done..];
            let len = phrase::first_sentence_len(rest);
            let bytes = start + done..start + done + len;
            let is_last = done + len == text.len();
            let is_in = |at: usize| at >= bytes.start && (is_last || at < bytes.end);
            self.nod |= directions.iter().any(|(at, tag)| *tag == DirectionTag::Nod && is_in(*at));
            if let Some(first) = rest[..len].find(char::is_alphanumeric) {
                let expression = direction::expression_at(directions, bytes.start + first);
                self.script.segments.push(Segment {
                    text: rest[..len].trim().to_owned(),
                    expression: expression.or(self.expression),
                    nod: core::mem::take(&mut self.nod),
                    gap: core::mem::take(&mut self.gap),
                });
            }
            done += len;
        }
        if text.is_empty() {
            self.nod |= directions.iter().any(|(_, tag)| *tag == DirectionTag::Nod);
        }
        self.expression = direction::expression_at(directions, usize::MAX).or(self.expression);
    }
}

/// A length that a person has written in seconds, without the error of its binary fraction.
fn milliseconds(seconds: f32) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0.1 to 10 s")]
    Duration::from_millis((seconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &Script) -> Vec<&str> {
        script.segments.iter().map(|segment| segment.text.as_str()).collect()
    }

    fn gaps(script: &Script) -> Vec<u128> {
        script.segments.iter().map(|segment| segment.gap.as_millis()).collect()
    }

    #[test]
    fn sentences_are_segments_and_blank_lines_are_pauses() {
        for text in
            ["One. Two!\n\nThree?\n", "One. Two!\r\n\r\nThree?", "\n\nOne. Two!\n \t\n\nThree?"]
        {
            let script = parse(text);
            assert_eq!(texts(&script), ["One.", "Two!", "Three?"], "{text:?}");
            assert_eq!(gaps(&script), [0, 0, 800], "{text:?}");
            assert_eq!((script.pauses.as_millis(), script.tail.as_millis()), (800, 0), "{text:?}");
        }
        assert_eq!(texts(&parse("你好。世界！")), ["你好。", "世界！"]);
    }

    #[test]
    fn a_pause_cuts_a_sentence_and_lengthens_the_gap() {
        let script =
            parse("[pause 0.1]Well [pause 1.5] yes.\n\n[pause 2] Now. [Pause 3][pause 10]");
        assert_eq!(texts(&script), ["Well", "yes.", "Now."]);
        assert_eq!(gaps(&script), [100, 1500, 2800]);
        assert_eq!((script.pauses.as_millis(), script.tail.as_millis()), (17_400, 13_000));
    }

    #[test]
    fn brackets_that_are_no_direction_are_spoken() {
        for text in ["Well [pause .05] yes", "Well [pause 11] yes", "Well [smile] yes"] {
            assert_eq!(texts(&parse(text)), [text]);
        }
    }

    #[test]
    fn an_expression_holds_until_the_next_one_and_a_nod_for_its_sentence() {
        let script =
            parse("One. [glad] Two [nod] or three.\n\nFour [calm]. Five. [nod][pause 1]Six.");
        let shown: Vec<_> = script.segments.iter().map(|s| (s.expression, s.nod)).collect();
        let (glad, calm) = (Some(Expression::Glad), Some(Expression::Calm));
        assert_eq!(
            shown,
            [(None, false), (glad, true), (glad, false), (calm, true), (calm, false)],
            "{:?}",
            texts(&script)
        );
        let script = parse("[nod] [warm] [pause 1] Hello. Bye. [nod]");
        let shown: Vec<_> = script.segments.iter().map(|s| (s.expression, s.nod)).collect();
        let warm = Some(Expression::Warm);
        assert_eq!(shown, [(warm, true), (warm, true)]);
    }

    #[test]
    fn a_text_without_letters_has_no_segment_but_its_pauses() {
        for text in ["", " \n\n ", "[nod]", "...", "[warm][pause 1] — !"] {
            assert!(parse(text).segments.is_empty(), "{text:?}");
        }
        assert_eq!(parse("[pause 1] ... [pause 2]").tail, Duration::from_secs(3));
        let script = parse("Yes. [pause 1] ... [pause 2] 7");
        assert_eq!((texts(&script), gaps(&script)), (vec!["Yes.", "7"], vec![0, 3000]));
        assert_eq!(parse(&"[pause 10]".repeat(100)).pauses, Duration::from_secs(1000));
    }

    #[test]
    fn a_wrapped_line_goes_on_and_a_short_one_ends() {
        let wrapped = "This sentence was written in an editor that wraps lines\nand goes on here.";
        assert_eq!(texts(&parse(wrapped)), [wrapped.replace('\n', " ")]);
        assert_eq!(texts(&parse("We need\nflour\nwater")), ["We need", "flour", "water"]);
    }

    #[test]
    fn each_visible_character_is_spoken_once() {
        const PARTS: [&str; 16] = [
            "a",
            "Well ",
            ". ",
            "?",
            "\n",
            "\n\n",
            " ",
            "[warm]",
            "[nod]",
            "[pause 1]",
            "[",
            "]",
            "你好。",
            "e.g. ",
            "one, two; ",
            "\r\n",
        ];
        let long = "a".repeat(20_000);
        let mut texts_to_try = vec![long, "word ".repeat(4_000)];
        let mut state = 7u64;
        for _ in 0..2_000 {
            let mut text = String::new();
            for _ in 0..30 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let part = usize::try_from(state >> 60).expect("four bits");
                text.push_str(PARTS[part]);
            }
            texts_to_try.push(text);
        }
        let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
        for text in texts_to_try {
            let script = parse(&text);
            let paragraphs = paragraphs(&text);
            let visible: String = paragraphs.iter().map(|p| direction::split(p).0).collect();
            assert_eq!(letters(&texts(&script).concat()), letters(&visible), "{text:?}");
            let sum: Duration = script.segments.iter().map(|segment| segment.gap).sum();
            assert_eq!(script.pauses, sum + script.tail, "{text:?}");
            assert!(script.segments.iter().all(|segment| segment.text.len() <= 700), "{text:?}");
        }
    }
}
