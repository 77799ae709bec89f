//! What reaches the agent's ear: the complete list of what the user does, known from the start, and every question about the user
//! answered from that list by looking at the part of it that lies behind.
//!
//! Readings where the page leaves room: items that the detector takes for one speech are heard without a gap; the turn model's word
//! about a merged speech is that of its last item. A turn with text waits for an outstanding final from its last trigger on ("each
//! restarts the wait"). An interim of words that were never detected is such a trigger, and words are text from their interim on.
//! With each interim and behind each final the STT tells anew all that is still outstanding.

use super::case::{Action, Case, Us};
use super::heard;

/// A speech as the detector takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: Us,
    pub(crate) to: Us,
    pub(crate) over: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) enum News {
    /// The detector reports the start of a stretch.
    Start(usize),
    /// It reports its end.
    Stop(usize),
    /// First two words of an item.
    Interim(usize),
    /// All of an item.
    Final(usize),
    /// A command.
    Act(Action),
}

/// The list, and how much of it lies behind.
pub(crate) struct Ear<'a> {
    case: &'a Case,
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) list: Vec<(Us, News)>,
    pub(crate) behind: usize,
}

impl<'a> Ear<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        let (start, silence) = case.vad;
        let mut stretches: Vec<Stretch> = Vec::new();
        for item in &case.user {
            match stretches.last_mut() {
                Some(last) if item.from - last.to < silence => {
                    if item.to >= last.to {
                        (last.to, last.over) = (item.to, item.over);
                    }
                }
                _ => stretches.push(Stretch { from: item.from, to: item.to, over: item.over }),
            }
        }
        stretches.retain(|stretch| stretch.to - stretch.from >= start);
        let mut list = Vec::new();
        for (n, stretch) in stretches.iter().enumerate() {
            list.push((stretch.from + start, News::Start(n)));
            list.push((stretch.to + silence, News::Stop(n)));
        }
        for (n, item) in case.user.iter().enumerate().filter(|(_, item)| item.text.is_some()) {
            list.push((item.to + item.stt / 2, News::Interim(n)));
            list.push((item.to + item.stt, News::Final(n)));
        }
        list.extend(case.actions.iter().map(|action| (action.at, News::Act(action.clone()))));
        // Of one instant: the user's voice, then commands.
        list.sort_by_key(|(at, news)| (*at, matches!(news, News::Act(_))));
        Self { case, stretches, list, behind: 0 }
    }

    pub(crate) fn past(&self) -> &[(Us, News)] {
        &self.list[..self.behind]
    }

    /// The stretch that the detector hears now.
    pub(crate) fn hearing(&self) -> Option<usize> {
        self.past().iter().rev().find_map(|(_, news)| match news {
            News::Start(n) => Some(Some(*n)),
            News::Stop(_) => Some(None),
            _ => None,
        })?
    }

    /// The stretch whose start was reported last.
    pub(crate) fn latest(&self) -> Option<usize> {
        self.past().iter().rev().find_map(|(_, news)| if let News::Start(n) = news { Some(*n) } else { None })
    }

    /// When the detector reported the end of the last speech.
    pub(crate) fn last_stop(&self) -> Option<Us> {
        self.past().iter().rev().find(|(_, news)| matches!(news, News::Stop(_))).map(|(at, _)| *at)
    }

    pub(crate) fn report(&self, stretch: usize) -> Us {
        self.stretches[stretch].from + self.case.vad.0
    }

    /// When the stretch has lasted long enough to be an interruption, if it ever does.
    pub(crate) fn long_enough(&self, stretch: usize) -> Option<Us> {
        let Stretch { from, to, .. } = self.stretches[stretch];
        let least = self.case.settings.min_duration;
        (to - from >= least).then_some(from + self.case.vad.0 + least)
    }

    fn words_of(&self, item: usize) -> &'a str {
        self.case.user[item].text.as_deref().unwrap_or_default()
    }

    /// The turn that began behind the first `from` news.
    pub(crate) fn turn(&self, from: usize) -> Turn<'a> {
        let news = &self.past()[from..];
        let speaks_at = |index: usize| {
            let before = &self.list[..index];
            before
                .iter()
                .rev()
                .find_map(|(_, news)| match news {
                    News::Start(_) => Some(true),
                    News::Stop(_) => Some(false),
                    _ => None,
                })
                .unwrap_or(false)
        };
        let mut turn = Turn::default();
        for (index, (at, news)) in news.iter().enumerate() {
            match news {
                News::Start(n) => {
                    turn.onset = turn.onset.or(Some(self.stretches[*n].from));
                    turn.trigger = None;
                    turn.followed = !turn.finals.is_empty();
                }
                News::Stop(n) => {
                    turn.trigger = Some(*at);
                    turn.last = Some(self.stretches[*n]);
                }
                News::Interim(_) => {
                    if turn.trigger.is_none() && turn.onset.is_none() && turn.finals.is_empty() {
                        turn.trigger = Some(*at);
                    }
                }
                News::Final(item) => {
                    if heard::plain(self.words_of(*item)).is_empty() {
                        continue;
                    }
                    turn.finals.push(self.words_of(*item));
                    turn.followed = false;
                    if !speaks_at(from + index) {
                        turn.trigger = Some(*at);
                    }
                }
                News::Act(_) => {}
            }
        }
        if news.iter().any(|(_, news)| matches!(news, News::Interim(_) | News::Final(_))) {
            turn.interims = self.outstanding();
        }
        turn
    }

    /// Items whose interim has come and whose final has not.
    fn outstanding(&self) -> Vec<usize> {
        let mut out = Vec::new();
        for (_, news) in self.past() {
            match news {
                News::Interim(item) => out.push(*item),
                News::Final(item) => out.retain(|other| other != item),
                _ => {}
            }
        }
        out
    }

    /// How many words the interims have that no final has replaced yet.
    pub(crate) fn interim_words(&self, turn: &Turn<'_>) -> usize {
        turn.interims.iter().map(|item| heard::count(self.words_of(*item)).min(2)).sum()
    }
}

/// The open turn, as far as the user made it.
#[derive(Default)]
pub(crate) struct Turn<'a> {
    pub(crate) finals: Vec<&'a str>,
    /// Interims whose finals are still to come.
    pub(crate) interims: Vec<usize>,
    /// True onset of its first speech.
    pub(crate) onset: Option<Us>,
    /// The latest trigger, unless speech began since.
    pub(crate) trigger: Option<Us>,
    /// Its last speech that has ended.
    pub(crate) last: Option<Stretch>,
    /// Speech began behind its last words, and has brought none yet.
    pub(crate) followed: bool,
}

impl Turn<'_> {
    /// When the turn is over, if nothing else happens: the end of the wait. `None` while the user speaks or something is awaited.
    pub(crate) fn over_at(&self, case: &Case) -> Option<Us> {
        let settings = &case.settings;
        let trigger = self.trigger?;
        if self.finals.is_empty() {
            return Some(trigger + settings.transcript_timeout?);
        }
        let unsure = self.last.and_then(|last| last.over).is_some_and(|over| over < settings.threshold);
        let delay = if unsure { settings.max_delay } else { settings.min_delay };
        let spoken_until = self.last.map_or(trigger, |last| last.to);
        let commit_at = trigger.max(spoken_until + delay);
        if self.interims.is_empty() {
            return Some(commit_at);
        }
        Some(commit_at.max(trigger + settings.transcript_timeout?))
    }
}
