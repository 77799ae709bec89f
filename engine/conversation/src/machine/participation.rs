//! Conversations of several people: who spoke, which utterances are answered, and when an answer may
//! begin ([`Participation`]).
//!
//! The VAD hears the mix, so a turn may hold the words of several people. Each final transcript is a
//! part of the turn. At the commit, neighbouring parts of one speaker become one utterance, and at
//! most the last utterances get a common answer.
//!
//! ```text
//! turn:        | Tom: "That was all." | Maria: "Clara, what is next?" |
//! utterances:    committed, silent      committed, answered
//! ```

use core::time::Duration;

use crate::contract::event::{Event, TurnTimes};
use crate::contract::participation::{Participation, ParticipationMode};
use crate::contract::time::Time;
use crate::machine::addressing::{Address, addresses_name, find_address, is_bare_address};
use crate::machine::conversation::Conversation;
use crate::machine::endpointing::is_backchannel;
use crate::machine::people::{SpokenTurn, TurnPart};
use crate::machine::reply::{Reply, ReplyKind};
use crate::machine::timers::TimerKind;
use crate::words::append_words;

/// What happens to an utterance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// It is only recorded.
    None,
    /// The model decides.
    Open,
    /// It is answered.
    Now,
}

/// Silence of all people after which the missing report of an end counts as lost. Services report an
/// end about a second late.
const MIN_COMMON_SILENCE: Duration = Duration::from_millis(1_500);

/// Why an utterance is answered or not.
struct AnswerDecision {
    answer: Answer,
    is_direct: bool,
    why: &'static str,
}

impl Conversation {
    /// The rules of a conversation in which only some utterances are answered.
    pub(crate) fn group_rules(&self) -> Option<&Participation> {
        let rules = self.spec.participation.as_ref().filter(|rules| rules.is_group())?;
        (!rules.only_with_several || self.people.spec_for_one.is_some()).then_some(rules)
    }

    /// People came or left. The rules of a group hold from the second person on.
    pub(crate) fn people_present(&mut self, count: u32) {
        self.people.present = Some(count);
        let depends = self.spec.participation.as_ref().is_some_and(|rules| rules.only_with_several);
        if count > 1 && depends && self.people.spec_for_one.is_none() {
            self.people.spec_for_one = Some(Box::new(self.spec.clone()));
            self.spec = self.spec.clone().for_group();
        } else if count <= 1
            && let Some(spec) = self.people.spec_for_one.take()
        {
            self.spec = *spec;
        }
    }

    pub(crate) fn speaker_started(&mut self, name: &str, at: Time) {
        if self.people.start_interval(name, at.min(self.now)) {
            self.speakers_changed();
        }
    }

    pub(crate) fn speaker_stopped(&mut self, name: &str, at: Time) {
        if self.people.end_interval(name, at.min(self.now)) {
            self.speakers_changed();
        }
    }

    /// Speech begins at `onset`. After a silence of all people, nobody of before still speaks.
    pub(crate) fn end_lost_intervals(&mut self, onset: Time) {
        let is_known = self.spec.participation.is_some() && self.speech.end_reported_at.is_some();
        if is_known && onset.since(self.speech.end) >= MIN_COMMON_SILENCE {
            self.people.end_open_intervals(self.speech.end);
        }
    }

    /// A report may name the speaker for whom a commit waits, or correct committed utterances.
    fn speakers_changed(&mut self) {
        if self.turn.speaker_wait_until.is_some() && self.open_turn_has_speaker() {
            self.timers.set(TimerKind::Commit, self.now);
        }
        for (turn, speaker) in self.people.correct_committed(self.now) {
            self.emit(Event::SpeakerCorrected { turn, speaker });
        }
    }

    fn open_turn_has_speaker(&self) -> bool {
        let now = self.now;
        self.turn
            .parts
            .last()
            .and_then(|part| part.span)
            .is_none_or(|span| self.people.speaker_of(span, now).is_some())
    }

    /// Lets the commit wait for the report of the speaker. Returns whether it waits.
    pub(crate) fn waits_for_speaker(&mut self) -> bool {
        let Some(rules) = &self.spec.participation else { return false };
        let max_wait = rules.max_speaker_wait;
        // Nobody reports who speaks while one person is alone.
        let is_alone = self.people.present == Some(1);
        if is_alone || !self.people.are_reported() || self.open_turn_has_speaker() {
            return false;
        }
        let until = *self.turn.speaker_wait_until.get_or_insert(self.now + max_wait);
        if self.now >= until {
            return false;
        }
        self.explain_decision(|| {
            format!("the commit waits for the speaker's name until {until}: max_speaker_wait")
        });
        self.timers.set(TimerKind::Commit, until);
        true
    }

    /// Adds a final transcript to the parts of the open turn.
    pub(crate) fn push_turn_part(&mut self, text: &str) {
        if self.spec.participation.is_none() {
            return;
        }
        let before = self.turn.parts.last().and_then(|part| part.span);
        // Further words of the same speech begin where the last ones ended.
        let onset = self.turn.part_onset.take().or(before.map(|(_, end)| end));
        // The STT may be faster than the VAD's report of the end: the words are then those of the
        // speech that is active.
        let end = self.turn.speech_end.filter(|end| onset.is_none_or(|onset| onset <= *end));
        let end = end.unwrap_or(self.now);
        let span = onset.map(|onset| (onset, end.max(onset)));
        if self.speech.active && self.speech.onset > end {
            self.turn.part_onset = Some(self.speech.onset);
        }
        self.turn.parts.push(TurnPart { text: text.to_owned(), span });
    }

    /// The utterances of a turn: neighbouring parts of one speaker are one.
    fn utterances_of(&self, parts: Vec<TurnPart>) -> Vec<(String, SpokenTurn)> {
        let mut utterances: Vec<(String, SpokenTurn)> = Vec::new();
        for part in parts {
            let speaker = part.span.and_then(|span| self.people.speaker_of(span, self.now));
            match utterances.last_mut().filter(|(_, last)| last.speaker == speaker) {
                Some((text, last)) => {
                    append_words(text, &part.text);
                    last.span = match (last.span, part.span) {
                        (Some((onset, _)), Some((_, end))) => Some((onset, end)),
                        (known, new) => known.or(new),
                    };
                }
                None => utterances
                    .push((part.text, SpokenTurn { span: part.span, speaker, is_direct: false })),
            }
        }
        utterances
    }

    /// Splits a turn into the utterances of its speakers. The last item is the one that is answered
    /// or not; the others are only recorded.
    pub(crate) fn split_turn(
        &mut self,
        parts: Vec<TurnPart>,
        is_answerable: bool,
    ) -> Option<(Vec<(String, SpokenTurn)>, Answer)> {
        self.spec.participation.as_ref()?;
        let texts: Vec<(String, Option<(Time, Time)>)> =
            parts.iter().map(|part| (part.text.clone(), part.span)).collect();
        let mut utterances = self.utterances_of(parts);
        let mut answer = if is_answerable { Answer::Now } else { Answer::None };
        if self.group_rules().is_some() {
            answer = Answer::None;
            let count = texts.len();
            for (index, (text, span)) in texts.into_iter().enumerate() {
                let speaker = span.and_then(|span| self.people.speaker_of(span, self.now));
                let decision = self.decide_answer(&text, span, speaker.as_ref());
                let why = decision.why;
                self.explain_decision(|| why.into());
                if is_answerable {
                    answer = answer.max(decision.answer);
                }
                if is_answerable && decision.answer == Answer::Now {
                    self.people.answered = Some(speaker);
                }
                if let Some((_, last)) = utterances.last_mut().filter(|_| index + 1 == count) {
                    last.is_direct = decision.is_direct;
                }
            }
        }
        for ((_, spoken), turn) in utterances.iter().zip(self.next_turn..) {
            if let Some(span) = spoken.span {
                self.people.committed.push_back((turn, span, spoken.speaker.clone()));
            }
        }
        Some((utterances, answer))
    }

    /// Commits the utterances of a turn. `answer`: what happens to the last one.
    pub(crate) fn commit_utterances(
        &mut self,
        utterances: Vec<(String, SpokenTurn)>,
        times: TurnTimes,
        answer: Answer,
    ) {
        let last = utterances.len().saturating_sub(1);
        let open = utterances.last().filter(|_| answer == Answer::Open).map(|(_, spoken)| {
            let turn = self.next_turn + last as u32;
            (spoken.clone(), TurnTimes { turn, ..times.clone() })
        });
        let mut times = Some(times);
        for (index, (text, spoken)) in utterances.into_iter().enumerate() {
            let is_last = index == last;
            let times = times.take_if(|_| is_last).unwrap_or_default();
            let is_answered = is_last && answer == Answer::Now;
            self.commit_turn(text, times, spoken, is_answered, false);
        }
        if let Some((spoken, times)) = open {
            let speech_end = spoken.span.map(|(_, end)| end);
            self.collect_open_utterance(spoken.speaker, times, speech_end);
        }
    }

    /// An answer has ended: follow-ups to it need no address.
    pub(crate) fn note_answer_end(&mut self, reply: &Reply) {
        if reply.kind == ReplyKind::Turn && reply.has_spoken {
            self.people.last_answer_end = Some(self.now);
        }
    }

    /// Decides whether an utterance is answered.
    fn decide_answer(
        &mut self,
        text: &str,
        span: Option<(Time, Time)>,
        speaker: Option<&String>,
    ) -> AnswerDecision {
        let decision = |is_answered, is_direct, why| {
            let answer = if is_answered { Answer::Now } else { Answer::None };
            AnswerDecision { answer, is_direct, why }
        };
        let Some(rules) = self.group_rules() else {
            return decision(true, true, "answered: mode one_to_one");
        };
        let with_names =
            rules.mode == ParticipationMode::Participant || rules.wake_phrase.is_none();
        let address = find_address(text, rules, with_names);
        if address.is_some() {
            let is_bare = is_bare_address(text, rules, with_names);
            let (mode, window) = (rules.mode, rules.follow_up_window);
            if is_bare && mode == ParticipationMode::Observer {
                self.people.attention = Some((speaker.cloned(), self.now + window));
                return decision(false, false, "not answered: the wake phrase without a request");
            }
            self.people.attention = None;
            let is_direct = address == Some(Address::End);
            return decision(true, is_direct, "answered: the agent is addressed");
        }
        let onset = span.map_or(self.now, |(onset, _)| onset);
        if let Some((who, until)) = &self.people.attention
            && onset <= *until
            && (who.is_none() || speaker.is_none() || who.as_ref() == speaker)
        {
            self.people.attention = None;
            return decision(true, false, "answered: the request after the wake phrase");
        }
        if rules_mode(self) == Some(ParticipationMode::Observer) {
            return decision(false, false, "not answered: no wake phrase, mode observer");
        }
        if is_backchannel(text) {
            return decision(false, false, "not answered: a backchannel");
        }
        if self.addresses_another(text) {
            return decision(false, false, "not answered: it addresses another person");
        }
        if self.is_follow_up(onset, speaker) {
            return decision(true, false, "answered: a follow-up to the agent's answer");
        }
        if self.model_decides() {
            let why = "left open to the model: the agent is not addressed";
            return AnswerDecision { answer: Answer::Open, is_direct: false, why };
        }
        decision(false, false, "not answered: the agent is not addressed, mode participant")
    }

    fn addresses_another(&self, text: &str) -> bool {
        self.people.names.iter().any(|name| addresses_name(text, name))
    }

    /// Whether an utterance that began at `onset` follows up an answer of the agent, or the question
    /// that it is about to answer.
    fn is_follow_up(&self, onset: Time, speaker: Option<&String>) -> bool {
        let (Some(rules), Some(answered)) = (self.group_rules(), &self.people.answered) else {
            return false;
        };
        let is_known = answered.is_some() && speaker.is_some();
        if is_known && answered.as_ref() != speaker {
            return false;
        }
        let window =
            if is_known { rules.follow_up_window } else { rules.anonymous_follow_up_window };
        let is_pending = self.floor.iter().any(|reply| reply.kind == ReplyKind::Turn);
        is_pending || self.people.last_answer_end.is_some_and(|end| onset <= end + window)
    }

    /// Whether the words of the open turn so far end with an address. It is then committed as soon
    /// as in a call.
    pub(crate) fn open_turn_ends_with_address(&self) -> bool {
        let Some(rules) = self.group_rules() else { return true };
        let with_names =
            rules.mode == ParticipationMode::Participant || rules.wake_phrase.is_none();
        self.turn
            .parts
            .last()
            .is_some_and(|part| find_address(&part.text, rules, with_names) == Some(Address::End))
    }

    /// The minimum and maximum endpointing delay of the open turn.
    pub(crate) fn endpointing_delays(&self) -> (Duration, Duration) {
        let call = (self.spec.min_endpointing_delay, self.spec.max_endpointing_delay);
        match self.group_rules() {
            Some(rules) if !self.open_turn_ends_with_address() => {
                (rules.min_endpointing_delay, rules.max_endpointing_delay)
            }
            _ => call,
        }
    }

    /// Whether the reply on the floor has not begun and waits until nobody speaks: other people's
    /// words neither hold nor cancel it.
    pub(crate) fn head_waits_for_silence(&self) -> bool {
        self.group_rules().is_some()
            && self
                .floor
                .front()
                .is_some_and(|head| head.kind == ReplyKind::Turn && !head.has_spoken)
    }

    /// When the reply on the floor may begin, if its first audio is ready and people have spoken too
    /// recently.
    pub(crate) fn silence_deadline(&self) -> Option<Time> {
        let rules = self.group_rules()?;
        let head = self.floor.front().filter(|_| self.head_waits_for_silence())?;
        if head.is_direct || self.speech.active || head.ready_since().is_none() {
            return None;
        }
        self.speech.end_reported_at?;
        Some(self.speech.end + rules.min_silence_before_answer).filter(|at| *at > self.now)
    }

    /// When the reply on the floor is dropped, because it could not begin.
    pub(crate) fn answer_wait_deadline(&self) -> Option<Time> {
        let rules = self.group_rules()?;
        let head = self.floor.front().filter(|_| self.head_waits_for_silence())?;
        Some(head.ready_since()? + rules.max_answer_wait)
    }

    pub(crate) fn answer_wait_due(&mut self) {
        let max_wait = self.group_rules().map(|rules| rules.max_answer_wait).unwrap_or_default();
        self.explain_decision(|| {
            format!("the answer is dropped: others speak for max_answer_wait {max_wait:?}")
        });
        self.cancel_reply(0, false);
    }
}

fn rules_mode(conversation: &Conversation) -> Option<ParticipationMode> {
    conversation.group_rules().map(|rules| rules.mode)
}
