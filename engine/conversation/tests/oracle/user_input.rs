//! The input from the user: the complete list of what the user does, known from the start. Every
//! question about the user is answered from the part of the list that has passed.
//!
//! Assumptions where the turn-taking page leaves room:
//!
//! - Items that the VAD merges into one speech segment have no gap. The turn model's answer for a
//!   merged segment is that of its last item.
//! - A turn with text waits for an outstanding final from its last trigger on ("each restarts the
//!   wait"). An interim without detected speech is such a trigger. An interim counts as text of the
//!   turn.
//! - With each interim and after each final, the STT repeats all outstanding interim text.

use super::case::{Case, Hint, Micros, ScriptedAction};
use super::heard_text;

/// A speech segment as the VAD sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpeechSegment {
    pub(crate) from: Micros,
    pub(crate) to: Micros,
    pub(crate) end_of_turn: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) enum UserEvent {
    /// The VAD reports the start of a speech segment.
    Start(usize),
    /// The VAD reports its end.
    Stop(usize),
    /// The first two words of an item.
    Interim(usize),
    /// The whole text of an item.
    Final(usize),
    /// What the STT's provider thinks about the turn.
    Hint(Hint),
    /// A command.
    Action(ScriptedAction),
}

/// The list, and how much of it has passed.
pub(crate) struct UserInput<'a> {
    case: &'a Case,
    pub(crate) speech_segments: Vec<SpeechSegment>,
    pub(crate) events: Vec<(Micros, UserEvent)>,
    pub(crate) consumed: usize,
}

impl<'a> UserInput<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        let (start, silence) = case.vad;
        let mut speech_segments: Vec<SpeechSegment> = Vec::new();
        for item in &case.user {
            match speech_segments.last_mut() {
                Some(last) if item.from - last.to < silence => {
                    if item.to >= last.to {
                        (last.to, last.end_of_turn) = (item.to, item.end_of_turn);
                    }
                }
                _ => speech_segments.push(SpeechSegment {
                    from: item.from,
                    to: item.to,
                    end_of_turn: item.end_of_turn,
                }),
            }
        }
        speech_segments.retain(|speech_segment| speech_segment.to - speech_segment.from >= start);
        let mut list = Vec::new();
        for (n, speech_segment) in speech_segments.iter().enumerate() {
            list.push((speech_segment.from + start, UserEvent::Start(n)));
            list.push((speech_segment.to + silence, UserEvent::Stop(n)));
        }
        for (n, item) in case.user.iter().enumerate().filter(|(_, item)| item.text.is_some()) {
            list.push((item.to + item.stt_delay / 2, UserEvent::Interim(n)));
            list.push((item.to + item.stt_delay, UserEvent::Final(n)));
        }
        list.extend(case.hints.iter().map(|(at, hint)| (*at, UserEvent::Hint(*hint))));
        list.extend(
            case.actions.iter().map(|action| (action.at, UserEvent::Action(action.clone()))),
        );
        // At the same time, the user's speech comes before commands.
        list.sort_by_key(|(at, event)| (*at, matches!(event, UserEvent::Action(_))));
        Self { case, speech_segments, events: list, consumed: 0 }
    }

    pub(crate) fn past_events(&self) -> &[(Micros, UserEvent)] {
        &self.events[..self.consumed]
    }

    /// The speech segment that the VAD detects now.
    pub(crate) fn active_segment(&self) -> Option<usize> {
        self.past_events().iter().rev().find_map(|(_, event)| match event {
            UserEvent::Start(n) => Some(Some(*n)),
            UserEvent::Stop(_) => Some(None),
            _ => None,
        })?
    }

    /// The speech segment whose start was reported last.
    pub(crate) fn latest_segment(&self) -> Option<usize> {
        self.past_events()
            .iter()
            .rev()
            .find_map(|(_, event)| if let UserEvent::Start(n) = event { Some(*n) } else { None })
    }

    /// When the VAD last reported the end of speech.
    pub(crate) fn last_stop_at(&self) -> Option<Micros> {
        self.past_events()
            .iter()
            .rev()
            .find(|(_, event)| matches!(event, UserEvent::Stop(_)))
            .map(|(at, _)| *at)
    }

    pub(crate) fn start_reported_at(&self, speech_segment: usize) -> Micros {
        self.speech_segments[speech_segment].from + self.case.vad.0
    }

    /// When the speech segment has lasted long enough for an interruption, if it does.
    pub(crate) fn min_duration_at(&self, speech_segment: usize) -> Option<Micros> {
        let SpeechSegment { from, to, .. } = self.speech_segments[speech_segment];
        let min_duration = self.case.settings.min_interruption_duration;
        (to - from >= min_duration).then_some(from + self.case.vad.0 + min_duration)
    }

    fn item_text(&self, item: usize) -> &'a str {
        self.case.user[item].text.as_deref().unwrap_or_default()
    }

    /// The turn that began after the first `from` events.
    pub(crate) fn turn_since(&self, from: usize) -> Turn<'a> {
        let events = &self.past_events()[from..];
        let speaks_at = |index: usize| {
            let before = &self.events[..index];
            before
                .iter()
                .rev()
                .find_map(|(_, events)| match events {
                    UserEvent::Start(_) => Some(true),
                    UserEvent::Stop(_) => Some(false),
                    _ => None,
                })
                .unwrap_or(false)
        };
        let mut turn = Turn::default();
        for (index, (at, events)) in events.iter().enumerate() {
            match events {
                UserEvent::Start(n) => {
                    turn.hint = None;
                    turn.onset = turn.onset.or(Some(self.speech_segments[*n].from));
                    turn.wait_started_at = None;
                    turn.followed_by_speech = !turn.finals.is_empty();
                }
                UserEvent::Stop(n) => {
                    turn.wait_started_at = Some(*at);
                    turn.last_segment = Some(self.speech_segments[*n]);
                }
                UserEvent::Interim(_) => {
                    if turn.wait_started_at.is_none()
                        && turn.onset.is_none()
                        && turn.finals.is_empty()
                    {
                        turn.wait_started_at = Some(*at);
                    }
                }
                UserEvent::Final(item) => {
                    if heard_text::normalize_text(self.item_text(*item)).is_empty() {
                        continue;
                    }
                    turn.finals.push(self.item_text(*item));
                    turn.followed_by_speech = false;
                    if !speaks_at(from + index) {
                        turn.wait_started_at = Some(*at);
                    }
                }
                UserEvent::Hint(hint) => {
                    let has_text = !turn.finals.is_empty()
                        || has_transcript(&self.events[from..from + index])
                            && !self.pending_interims(from + index).is_empty();
                    if speaks_at(from + index) || turn.last_segment.is_some() || has_text {
                        turn.hint = match hint {
                            Hint::EagerEnd => turn.hint,
                            Hint::Resumed => Some(0),
                            Hint::End => Some(100),
                        };
                    }
                }
                UserEvent::Action(_) => {}
            }
        }
        if has_transcript(events) {
            turn.interims = self.pending_interims(self.consumed);
        }
        turn
    }

    /// The interim text that the STT repeats: the first two words of each item.
    pub(crate) fn interim_text(&self, turn: &Turn<'_>) -> String {
        let items = turn.interims.iter();
        let words = items.flat_map(|item| self.item_text(*item).split_whitespace().take(2));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Items with an interim but no final yet after so many events.
    fn pending_interims(&self, consumed: usize) -> Vec<usize> {
        let mut out = Vec::new();
        for (_, event) in &self.events[..consumed] {
            match event {
                UserEvent::Interim(item) => out.push(*item),
                UserEvent::Final(item) => out.retain(|other| other != item),
                _ => {}
            }
        }
        out
    }

    /// Number of words in the interims that no final has replaced yet.
    pub(crate) fn interim_word_count(&self, turn: &Turn<'_>) -> usize {
        turn.interims.iter().map(|item| heard_text::count_words(self.item_text(*item)).min(2)).sum()
    }
}

fn has_transcript(events: &[(Micros, UserEvent)]) -> bool {
    let is_transcript =
        |event: &UserEvent| matches!(event, UserEvent::Interim(_) | UserEvent::Final(_));
    events.iter().any(|(_, event)| is_transcript(event))
}

/// The open turn, as far as the user's events define it.
#[derive(Default)]
pub(crate) struct Turn<'a> {
    pub(crate) finals: Vec<&'a str>,
    /// Interims whose finals are pending.
    pub(crate) interims: Vec<usize>,
    /// True onset of its first speech segment.
    pub(crate) onset: Option<Micros>,
    /// The last trigger of the wait, unless speech started since.
    pub(crate) wait_started_at: Option<Micros>,
    /// Its last speech segment that has ended.
    pub(crate) last_segment: Option<SpeechSegment>,
    /// Speech started after its last text and has brought no text yet.
    pub(crate) followed_by_speech: bool,
    /// P(turn is over) of the STT's provider for the last speech segment, in hundredths.
    pub(crate) hint: Option<i64>,
}

impl Turn<'_> {
    /// When the turn ends if nothing else happens. `None` while the user speaks, or if the wait has
    /// no limit.
    pub(crate) fn ends_at(&self, case: &Case) -> Option<Micros> {
        let settings = &case.settings;
        let trigger = self.wait_started_at?;
        if self.finals.is_empty() {
            return Some(trigger + settings.transcript_timeout?);
        }
        let unsure = self
            .hint
            .or(self.last_segment.and_then(|last| last.end_of_turn))
            .is_some_and(|over| over < settings.turn_threshold);
        let delay =
            if unsure { settings.max_endpointing_delay } else { settings.min_endpointing_delay };
        let spoken_until = self.last_segment.map_or(trigger, |last| last.to);
        let commit_at = trigger.max(spoken_until + delay);
        if self.interims.is_empty() {
            return Some(commit_at);
        }
        Some(commit_at.max(trigger + settings.transcript_timeout?))
    }
}
