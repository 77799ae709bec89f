//! The text of a generation without its directions, and the directions of the segments that it is
//! cut into.

use core::ops::Range;

use crate::contract::direction::{self, DirectionTag, Expression};
use crate::contract::spec::Phrasing;
use crate::machine::floor::cut_segments;
use crate::machine::reply::{Reply, Utterance, UtteranceOrigin};
use crate::machine::think::utterance_of;

impl Reply {
    /// Adds text of the running generation to its utterance. Returns what is visible of it.
    pub(crate) fn add_text(&mut self, text: &str, phrasing: Phrasing) -> String {
        let Some(generation) = self.generation.as_mut() else { return String::new() };
        let (mut visible, mut found) = (String::with_capacity(text.len()), Vec::new());
        generation.filter.push(text, &mut visible, &mut found);
        let visible = self.add_visible_text(visible, found);
        if phrasing == Phrasing::Stream
            && let Some(generation) = self.generation.as_mut()
            && let Some(utterance) = utterance_of(&mut self.utterances, generation.id)
        {
            cut_segments(utterance, phrasing, &mut generation.segment_count);
        }
        visible
    }

    /// Adds the text that was held back because it might have become a tag. Returns it.
    pub(crate) fn add_held_text(&mut self) -> String {
        let Some(generation) = self.generation.as_mut() else { return String::new() };
        let mut visible = String::new();
        generation.filter.finish(&mut visible);
        self.add_visible_text(visible, Vec::new())
    }

    /// Ends the current segment. Returns the text that was held back until now.
    pub(crate) fn end_segment(&mut self) -> String {
        let held = self.add_held_text();
        if let Some(generation) = self.generation.as_mut()
            && let Some(utterance) = utterance_of(&mut self.utterances, generation.id)
            && utterance.push_segment(
                utterance.text.len() - utterance.segmented_bytes,
                generation.segment_count,
            )
        {
            generation.segment_count += 1;
        }
        held
    }

    /// Sets the expression of the segments for which no tag sets one.
    pub(crate) fn set_default_expression(&mut self, expression: Option<Expression>) {
        for segment in self.utterances.iter_mut().flat_map(|utterance| &mut utterance.segments) {
            segment.expression = segment.expression.or(expression);
        }
    }

    /// Adds text and its directions to the utterance of the generation, without blanks at its
    /// start. Returns the text that was added.
    fn add_visible_text(
        &mut self,
        mut visible: String,
        directions: Vec<(usize, DirectionTag)>,
    ) -> String {
        let Some(id) = self.generation.as_ref().map(|generation| generation.id) else {
            return String::new();
        };
        let known = utterance_of(&mut self.utterances, id);
        let mut blanks = 0;
        if known.as_ref().is_none_or(|utterance| utterance.text.is_empty()) {
            blanks = visible.len() - visible.trim_start().len();
            visible.drain(..blanks);
        }
        if visible.is_empty() && directions.is_empty() {
            return visible;
        }
        let utterance = match known {
            Some(utterance) => utterance,
            None => {
                let origin = UtteranceOrigin::Generation(id);
                self.utterances.push_back(Utterance::new(origin, String::new(), false));
                let last = self.utterances.len() - 1;
                &mut self.utterances[last]
            }
        };
        let start = utterance.text.len();
        let placed = directions.into_iter().map(|(at, d)| (start + at.saturating_sub(blanks), d));
        utterance.directions.extend(placed);
        utterance.text.push_str(&visible);
        visible
    }
}

impl Utterance {
    /// The expression of a segment: the last one before its first letter or digit.
    pub(crate) fn expression_of(&self, segment: Range<usize>) -> Option<Expression> {
        let start = segment.start;
        let first = self.text[segment].find(char::is_alphanumeric).unwrap_or(0);
        direction::expression_at(self.directions.as_slice(), start + first)
    }

    /// Whether the avatar nods in these bytes of the text. The last ones of a complete text include
    /// its end.
    pub(crate) fn has_nod(&self, bytes: Range<usize>) -> bool {
        let is_last = self.complete && bytes.end == self.text.len();
        let is_in = |at: usize| at >= bytes.start && (is_last || at < bytes.end);
        self.directions.iter().any(|(at, direction)| *direction == DirectionTag::Nod && is_in(*at))
    }
}
