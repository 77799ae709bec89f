//! What is known about the people in a conversation of several: who spoke when, and whose utterance
//! was answered. Plain data and queries on it.

use core::time::Duration;
use std::collections::VecDeque;

use crate::contract::spec::Spec;
use crate::contract::time::Time;

/// How long reports about speakers are kept: they may be late by seconds, and correct committed
/// utterances.
const SPEAKER_MEMORY: Duration = Duration::from_secs(60);

/// Maximum number of reported ends that wait for the report of their start.
const MAX_EARLY_ENDS: usize = 20;

/// Maximum number of names that are remembered, to see who else is addressed.
const MAX_KNOWN_NAMES: usize = 100;

/// The words of one final transcript.
#[derive(Clone, Debug)]
pub(crate) struct TurnPart {
    pub(crate) text: String,
    /// True onset and end of its speech, if the VAD detected it.
    pub(crate) span: Option<(Time, Time)>,
}

/// An utterance of one speaker, and how it is answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpokenTurn {
    /// True onset and end.
    pub(crate) span: Option<(Time, Time)>,
    pub(crate) speaker: Option<String>,
    /// Whether its answer begins as in a call, without the wait for silence.
    pub(crate) is_direct: bool,
}

impl SpokenTurn {
    /// Speech of a call with one user.
    pub(crate) fn of_user(span: Option<(Time, Time)>) -> Self {
        Self { span, ..Self::default() }
    }
}

/// A reported interval of speech.
pub(crate) struct SpokenInterval {
    name: String,
    start: Time,
    /// `None` = the person still speaks.
    end: Option<Time>,
}

/// What is known about the people in the conversation.
#[derive(Default)]
pub(crate) struct People {
    /// In the order of the reports.
    pub(crate) intervals: VecDeque<SpokenInterval>,
    /// Ends of intervals whose starts are not reported yet: name and time.
    early_ends: VecDeque<(String, Time)>,
    /// Utterances whose speakers may still change: number of the turn, time, speaker.
    pub(crate) committed: VecDeque<(u32, (Time, Time), Option<String>)>,
    /// Everybody who has spoken.
    pub(crate) names: Vec<String>,
    /// The number of people who are present, if it is reported.
    pub(crate) present: Option<u32>,
    /// The speaker of the last answered turn, if there is one.
    pub(crate) answered: Option<Option<String>>,
    /// End of the last answer that was heard.
    pub(crate) last_answer_end: Option<Time>,
    /// The rules for one person, while those of a group hold because several are present.
    pub(crate) spec_for_one: Option<Box<Spec>>,
    /// The speaker of a wake phrase without a request, and the time until which one may follow.
    pub(crate) attention: Option<(Option<String>, Time)>,
}

impl People {
    pub(crate) fn speaker_of(&self, span: (Time, Time), now: Time) -> Option<String> {
        longest_speaker(&self.intervals, span, now)
    }

    /// Whether any speaker was ever reported.
    pub(crate) fn are_reported(&self) -> bool {
        !self.names.is_empty()
    }

    /// Ends the intervals that began before `silence` and were never ended: the report of their end
    /// is lost, and nobody has spoken since.
    pub(crate) fn end_open_intervals(&mut self, silence: Time) {
        let open = self.intervals.iter_mut().filter(|one| one.end.is_none());
        for interval in open.filter(|one| one.start < silence) {
            interval.end = Some(silence);
        }
    }

    /// Records that a person speaks since `at`. Returns whether that is new.
    pub(crate) fn start_interval(&mut self, name: &str, at: Time) -> bool {
        if !self.names.iter().any(|known| known == name) && self.names.len() < MAX_KNOWN_NAMES {
            self.names.push(name.to_owned());
        }
        let is_new = !self.intervals.iter().any(|known| known.name == name && known.end.is_none());
        if is_new {
            let early = self.early_ends.iter().position(|(who, end)| who == name && *end >= at);
            let end = early.and_then(|index| self.early_ends.remove(index)).map(|(_, end)| end);
            let name = name.to_owned();
            self.intervals.push_back(SpokenInterval { name, start: at, end });
        }
        is_new
    }

    /// Records that a person stopped at `at`. Returns whether that is new.
    pub(crate) fn end_interval(&mut self, name: &str, at: Time) -> bool {
        let mut known = self.intervals.iter_mut().rev();
        match known.find(|known| known.name == name && known.end.is_none()) {
            Some(interval) => {
                interval.end = Some(at.max(interval.start));
                true
            }
            None => {
                // The report of the start may be later than that of the end.
                if self.early_ends.len() == MAX_EARLY_ENDS {
                    self.early_ends.pop_front();
                }
                self.early_ends.push_back((name.to_owned(), at));
                false
            }
        }
    }

    /// The committed utterances whose speaker is another one by the reports so far: number of the
    /// turn, and name. Forgets old reports.
    pub(crate) fn correct_committed(&mut self, now: Time) -> Vec<(u32, String)> {
        let mut corrections = Vec::new();
        for (turn, span, speaker) in &mut self.committed {
            let name = longest_speaker(&self.intervals, *span, now);
            if let Some(name) = name.filter(|name| speaker.as_ref() != Some(name)) {
                *speaker = Some(name.clone());
                corrections.push((*turn, name));
            }
        }
        let is_old = |at: Time| now.since(at) > SPEAKER_MEMORY;
        self.intervals.retain(|interval| interval.end.is_none_or(|end| !is_old(end)));
        self.committed.retain(|(_, (_, end), _)| !is_old(*end));
        corrections
    }
}

/// The person with the longest reported speech within a time.
fn longest_speaker(
    intervals: &VecDeque<SpokenInterval>,
    (onset, end): (Time, Time),
    now: Time,
) -> Option<String> {
    let mut totals: Vec<(Duration, &str)> = Vec::new();
    for interval in intervals {
        let (from, to) = (interval.start.max(onset), interval.end.unwrap_or(now).min(end));
        if to <= from {
            continue;
        }
        match totals.iter_mut().find(|(_, name)| *name == interval.name) {
            Some(total) => total.0 += to.since(from),
            None => totals.push((to.since(from), &interval.name)),
        }
    }
    // The first one of equals.
    let longest = totals.into_iter().rev().max_by_key(|(total, _)| *total);
    longest.map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn an_interval_whose_end_is_lost_ends_with_the_silence_of_all() {
        let mut people = People::default();
        people.start_interval("Tom", at(1));
        people.end_open_intervals(at(3));
        people.start_interval("Maria", at(6));
        assert_eq!(people.speaker_of((at(1), at(3)), at(9)).as_deref(), Some("Tom"));
        assert_eq!(people.speaker_of((at(6), at(8)), at(9)).as_deref(), Some("Maria"));
        // A report that comes later than the silence begins a new interval.
        people.end_open_intervals(at(5));
        assert_eq!(people.speaker_of((at(8), at(9)), at(9)).as_deref(), Some("Maria"));
    }

    #[test]
    fn an_end_may_be_reported_before_its_start() {
        let mut people = People::default();
        assert!(!people.end_interval("Tom", at(2)));
        people.start_interval("Tom", at(1));
        people.start_interval("Maria", at(3));
        assert_eq!(people.speaker_of((at(1), at(2)), at(9)).as_deref(), Some("Tom"));
        assert_eq!(people.speaker_of((at(3), at(8)), at(9)).as_deref(), Some("Maria"));
        // The early end counts once.
        people.end_interval("Maria", at(8));
        people.start_interval("Tom", at(9));
        assert_eq!(people.speaker_of((at(10), at(11)), at(12)).as_deref(), Some("Tom"));
    }
}
