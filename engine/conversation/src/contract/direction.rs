//! Directions for the avatar: tags in a text that is spoken. They are removed before speech.
//!
//! - `[calm]` `[warm]` `[glad]` `[concerned]` `[curious]`: the expression until the next of these
//!   tags, or the end of the utterance
//! - `[nod]`: the avatar nods
//! - `[pause 0.5]`: a pause in seconds, 0.1 to 10
//!
//! Case and blanks within the brackets are ignored. What is in other brackets is spoken.

use core::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Maximum length of a tag in bytes, with its brackets.
const MAX_TAG_BYTES: usize = 16;

/// Length of a pause, in seconds.
const PAUSE_SECONDS: RangeInclusive<f32> = 0.1..=10.0;

const NOD: &str = "nod";
const PAUSE: &str = "pause";

/// Expression of the avatar while it speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expression {
    /// The face at rest.
    #[default]
    Calm,
    /// Friendly.
    Warm,
    /// Pleased.
    Glad,
    /// Sorry, or worried.
    Concerned,
    /// Interested.
    Curious,
}

impl Expression {
    /// All expressions.
    pub const ALL: [Self; 5] = [Self::Calm, Self::Warm, Self::Glad, Self::Concerned, Self::Curious];

    /// The word in its tag, which is also its name in traces and requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Warm => "warm",
            Self::Glad => "glad",
            Self::Concerned => "concerned",
            Self::Curious => "curious",
        }
    }
}

/// What a tag asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DirectionTag {
    /// The expression from here on.
    Expression(Expression),
    /// A nod.
    Nod,
    /// A pause, in seconds.
    Pause(f32),
}

impl DirectionTag {
    /// The direction of a tag, without brackets.
    fn parse(tag: &str) -> Option<Self> {
        let word = without_blanks(tag);
        if word == NOD {
            return Some(Self::Nod);
        }
        if let Some(number) = word.strip_prefix(PAUSE) {
            // `parse` also takes "inf" and "1e1".
            let seconds = number.parse().ok().filter(|_| is_decimal(number));
            return seconds.filter(|s| PAUSE_SECONDS.contains(s)).map(Self::Pause);
        }
        let expression = Expression::ALL.into_iter().find(|known| known.name() == word);
        expression.map(Self::Expression)
    }

    /// Whether a tag may begin like this, without the opening bracket.
    fn may_begin_with(start: &str) -> bool {
        let word = without_blanks(start);
        let mut words = Expression::ALL.into_iter().map(Expression::name).chain([NOD, PAUSE]);
        words.any(|known| known.starts_with(&word))
            || word.strip_prefix(PAUSE).is_some_and(is_decimal)
    }
}

fn is_decimal(number: &str) -> bool {
    number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// In lower case, without blanks.
fn without_blanks(text: &str) -> String {
    text.chars().filter(|c| *c != ' ').map(|c| c.to_ascii_lowercase()).collect()
}

/// Takes the directions out of a text that arrives in parts. A tag may be split over several parts.
#[derive(Debug, Default)]
pub struct DirectionFilter {
    /// What may become a tag: an opening bracket and what follows it.
    held: String,
    /// Whether the visible text so far ends in anything but a blank.
    ends_in_word: bool,
    /// Whether a tag was removed behind it.
    has_removed: bool,
}

impl DirectionFilter {
    /// Appends what is visible of the next part to `visible`, and the directions with their byte
    /// positions in `visible` to `found`. A bracket that may become a tag is held back.
    ///
    /// Of the blanks around a tag, one remains. A tag between two words counts as a blank.
    pub fn push(
        &mut self,
        text: &str,
        visible: &mut String,
        found: &mut Vec<(usize, DirectionTag)>,
    ) {
        if self.held.is_empty() && !self.has_removed && !text.contains('[') {
            // Almost every text of a model.
            visible.push_str(text);
            if let Some(last) = text.chars().next_back() {
                self.ends_in_word = !last.is_whitespace();
            }
            return;
        }
        for c in text.chars() {
            if c == '[' {
                self.finish(visible);
                self.held.push(c);
                continue;
            }
            if self.held.is_empty() {
                self.show(c, visible);
                continue;
            }
            if c == ']'
                && let Some(direction) = DirectionTag::parse(&self.held[1..])
            {
                self.held.clear();
                self.has_removed = true;
                found.push((visible.len(), direction));
                continue;
            }
            self.held.push(c);
            let is_short = self.held.len() < MAX_TAG_BYTES;
            if !(is_short && DirectionTag::may_begin_with(&self.held[1..])) {
                self.finish(visible);
            }
        }
    }

    /// Ends the text: appends what is held back to `visible`.
    pub fn finish(&mut self, visible: &mut String) {
        for c in core::mem::take(&mut self.held).chars() {
            self.show(c, visible);
        }
    }

    fn show(&mut self, c: char, visible: &mut String) {
        if self.has_removed {
            if c == ' ' && !self.ends_in_word {
                return;
            }
            if c.is_alphanumeric() && self.ends_in_word {
                visible.push(' ');
            }
            self.has_removed = false;
        }
        visible.push(c);
        self.ends_in_word = !c.is_whitespace();
    }
}

/// A complete text without its directions, and the directions with their byte positions in it.
#[must_use]
pub fn split(text: &str) -> (String, Vec<(usize, DirectionTag)>) {
    let (mut visible, mut found) = (String::with_capacity(text.len()), Vec::new());
    let mut filter = DirectionFilter::default();
    filter.push(text, &mut visible, &mut found);
    filter.finish(&mut visible);
    (visible, found)
}

/// The expression at a byte position of a text: that of the last tag at or before it.
pub(crate) fn expression_at(
    found: &[(usize, DirectionTag)],
    position: usize,
) -> Option<Expression> {
    found.iter().rev().find_map(|(at, direction)| match direction {
        DirectionTag::Expression(expression) if *at <= position => Some(*expression),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARM: DirectionTag = DirectionTag::Expression(Expression::Warm);
    const GLAD: DirectionTag = DirectionTag::Expression(Expression::Glad);

    /// The text that each part makes visible, the last one at the end, and the directions.
    fn stream(parts: &[&str]) -> (Vec<String>, Vec<(usize, DirectionTag)>) {
        let (mut filter, mut found, mut all) = (DirectionFilter::default(), Vec::new(), Vec::new());
        for part in parts {
            let mut visible = String::new();
            filter.push(part, &mut visible, &mut found);
            all.push(visible);
        }
        let mut visible = String::new();
        filter.finish(&mut visible);
        all.push(visible);
        (all, found)
    }

    #[test]
    fn tags_are_removed_and_become_directions() {
        let (text, found) = split("[warm] Hello. [glad] How nice! [nod]Yes [pause 1.5] of course.");
        assert_eq!(text, "Hello. How nice! Yes of course.");
        let pause = DirectionTag::Pause(1.5);
        assert_eq!(found, [(0, WARM), (7, GLAD), (17, DirectionTag::Nod), (21, pause)]);
        for expression in Expression::ALL {
            let tag = format!("[{}]", expression.name());
            assert_eq!(
                split(&tag),
                (String::new(), vec![(0, DirectionTag::Expression(expression))])
            );
            assert_eq!(serde_json::to_value(expression).unwrap(), expression.name());
        }
    }

    #[test]
    fn a_tag_may_be_split_over_parts_and_nothing_else_is_held_back() {
        let (shown, found) = stream(&["Hi [wa", "rm", "] the", "re [", "a] [", "glad", "]"]);
        assert_eq!(shown, ["Hi ", "", "the", "re ", "[a] ", "", "", ""]);
        assert_eq!(found, [(0, WARM), (0, GLAD)], "relative to what the part makes visible");
        for text in ["See [warm] it.", "[nod][glad]Ä [pause 10] [x] [[warm]] [wa"] {
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(stream(&letters).0.concat(), split(text).0);
        }
    }

    #[test]
    fn an_unfinished_or_unknown_bracket_is_text() {
        let long = format!("[{}]", "warm".repeat(1_000));
        let texts = [
            "[wa",
            "Well [",
            "[smiles] Hello [1] [link](https://a.example/[x]) [sad]",
            "[warm", // The bracket is not closed.
            "]warm[",
            "[pause] [pause 0] [pause 11] [pause inf] [pause 1e1] [pause 1.5.2] [pause -1]",
            "[wärm] [温] [\u{1F600}] [ŴARM]",
            "[               ] [warm                ]",
            "[wa\nrm]",
            &long,
        ];
        for text in texts {
            assert_eq!(split(text), (text.to_owned(), Vec::new()));
        }
        let (shown, _) = stream(&["[w", "x", "[", "[", "warm", " and so on, without an end"]);
        assert_eq!(shown, ["", "[wx", "", "[", "", "[warm and so on, without an end", ""]);
        let (shown, _) = stream(&[&long]);
        assert_eq!(shown[0], long, "a long bracket is not held back");
    }

    #[test]
    fn case_and_blanks_within_brackets_are_ignored() {
        for tag in ["[WARM]", "[ warm ]", "[Warm]", "[      warm   ]"] {
            assert_eq!(split(tag), (String::new(), vec![(0, WARM)]), "{tag}");
        }
        assert_eq!(split("[Pause 0.1]").1, [(0, DirectionTag::Pause(0.1))]);
        assert_eq!(split("[pause  10.00 ]").1, [(0, DirectionTag::Pause(10.0))]);
    }

    #[test]
    fn brackets_around_a_tag_stay() {
        assert_eq!(split("[[warm]]"), ("[]".to_owned(), vec![(1, WARM)]));
        assert_eq!(split("[wa[glad]rm]"), ("[wa rm]".to_owned(), vec![(3, GLAD)]));
    }

    #[test]
    fn one_blank_remains_of_those_around_a_tag() {
        let texts = [
            ("One. [warm] Two.", "One. Two."),
            ("One.[warm] Two.", "One. Two."),
            ("One. [warm]Two.", "One. Two."),
            ("One.[warm]Two.", "One. Two."),
            ("One. [warm] [nod]   Two.", "One. Two."),
            ("One. [warm]\nTwo.", "One. \nTwo."),
            ("One[warm], two[nod].", "One, two."),
            ("[warm]   One", "One"),
            ("One  two", "One  two"),
        ];
        for (text, visible) in texts {
            assert_eq!(split(text).0, visible, "{text:?}");
        }
    }
}
