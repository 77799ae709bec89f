//! When the samples of the segment that is playing left for the network, for the times of its words.
//! Kept only in calls that are recorded.

use core::time::Duration;

use crate::contract::event::{Event, HeardWord};
use crate::contract::time::{Position, Time};
use crate::contract::view::round_to_millis;
use crate::machine::heard_text::timed_words;
use crate::machine::reply::Utterance;

/// A report of playout that differs by more from what the earlier ones imply begins a new run. A
/// smaller difference is the lateness of the thread that reports it.
const REPORT_TOLERANCE: Duration = Duration::from_millis(10);

/// Runs of samples that left without a gap: the time and position of the first sample of each.
/// Holds and stalls separate them.
#[derive(Default)]
pub(crate) struct Departures {
    runs: Vec<(Time, Position)>,
}

impl Departures {
    /// The first sample of a segment leaves.
    pub(crate) fn start_segment(&mut self, now: Time) {
        self.runs.clear();
        self.runs.push((now, Position::ZERO));
    }

    /// The segment continues after a hold.
    pub(crate) fn resume(&mut self, now: Time, position: Position) {
        self.runs.push((now, position));
    }

    /// The samples up to `position` have left, and the next one leaves now.
    pub(crate) fn observe(&mut self, now: Time, position: Position) {
        let Some(run) = self.runs.last() else { return };
        let expected = time_in_run(run, position);
        if now.since(expected).max(expected.since(now)) > REPORT_TOLERANCE {
            self.runs.push((now, position));
        }
    }

    /// The event with the words of the utterance's front segment before byte `heard` of its text.
    /// `None` if the times of its words are unknown, or none was heard.
    pub(crate) fn words_event(
        &self,
        utterance: &Utterance,
        heard: usize,
        now: Time,
    ) -> Option<Event> {
        let segment = utterance.segments.front()?;
        let text = &utterance.text[segment.start..segment.end];
        let heard = heard.saturating_sub(segment.start);
        let mut latest = Time::ZERO;
        let words = timed_words(text, &segment.word_times, heard).into_iter().map(|word| {
            // Times of a voice may overlap, or lie behind its audio.
            let start = self.start_time(word.start).clamp(latest, now.max(latest));
            latest = self.end_time(word.end).clamp(start, now.max(start));
            HeardWord {
                text: word.text.to_owned(),
                start: round_to_millis(start.as_seconds()),
                end: round_to_millis(latest.as_seconds()),
            }
        });
        let words: Vec<HeardWord> = words.collect();
        (!words.is_empty()).then_some(Event::AgentWords { utterance: utterance.id, words })
    }

    /// When the sample at `position` left.
    fn start_time(&self, position: Position) -> Time {
        let run = self.runs.iter().rev().find(|(_, first)| *first <= position);
        run.map_or(Time::ZERO, |run| time_in_run(run, position))
    }

    /// When the sample before `position` had left.
    fn end_time(&self, position: Position) -> Time {
        let run = self.runs.iter().rev().find(|(_, first)| *first < position);
        run.map_or(Time::ZERO, |run| time_in_run(run, position))
    }
}

fn time_in_run((start, first): &(Time, Position), position: Position) -> Time {
    let samples = position.as_samples().saturating_sub(first.as_samples());
    *start + Duration::from_micros(samples.saturating_mul(1000) / 48)
}
