//! From the beginning to the end of a call: greeting, warning, limit, idle call-outs, commands, failures, the end.

use core::time::Duration;

use crate::conversation::Conversation;
use crate::event::{EndReason, Event, HistoryItem, Role, Stage};
use crate::history::said;
use crate::input::{Command, CommandId, MAX_VISITOR_CONTEXT, StepId};
use crate::output::{Answer, Output, Refusal, Source};
use crate::reply::{Kind, Reply};
use crate::time::Time;
use crate::timers::Reason;

/// A stage that fails for so long ends the call.
const BROKEN: Duration = Duration::from_secs(30);

/// Where the call is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Nobody is there yet.
    New,
    /// The call goes on.
    Running,
    /// The exit message is spoken.
    Ending(EndReason),
    /// It is over.
    Ended,
}

impl Conversation {
    /// Whether nothing new is begun any more.
    pub(crate) fn is_ending(&self) -> bool {
        !matches!(self.life, Life::Running)
    }

    pub(crate) fn begin(&mut self) {
        self.life = Life::Running;
        if let Some(limit) = self.spec.max_call_duration {
            self.timers.set(Reason::Limit, Time::ZERO + limit);
            if let Some(warning) = limit.checked_sub(self.spec.call_warning_before) {
                self.timers.set(Reason::Warning, Time::ZERO + warning);
            }
        }
        if let Some(greeting) = self.spec.greeting.clone() {
            let interruptible = self.spec.allow_interruptions;
            let mut reply = self.message(Kind::Greeting, Source::Greeting, greeting.say, interruptible);
            reply.not_before = Time::ZERO + greeting.wait;
            self.floor.push_back(reply);
        }
    }

    pub(crate) fn warning_due(&mut self) {
        let Some(limit) = self.spec.max_call_duration else { return };
        let before = self.spec.call_warning_before;
        self.because(|| format!("warned: call_warning_before {before:?} of max_call_duration {limit:?}"));
        self.tell(Event::MaxCallDurationWarning {
            call_duration: self.now.as_seconds(),
            max_call_duration: limit.as_secs_f64(),
        });
        self.warning_waits = self.spec.warning_message.is_some();
        // At once where the floor is free, before anything else that is due now could take it.
        if !self.warn() && self.warning_waits {
            self.because(|| "warning_message waits until the floor is free".into());
        }
    }

    /// Speaks the warning where the floor is free. True if it does.
    pub(crate) fn warn(&mut self) -> bool {
        let over = self.timers.at(Reason::Limit).is_some_and(|limit| limit <= self.now);
        if !self.warning_waits || over || self.is_ending() || !self.is_free() {
            return false;
        }
        self.warning_waits = false;
        let Some(text) = self.spec.warning_message.clone() else { return false };
        self.because(|| "warning_message is said: the floor is free".into());
        let reply = self.message(Kind::Warning, Source::Warning, text, self.spec.allow_interruptions);
        self.floor.push_back(reply);
        true
    }

    pub(crate) fn limit_due(&mut self) {
        let Some(limit) = self.spec.max_call_duration else { return };
        if self.is_ending() {
            return;
        }
        self.tell(Event::MaxCallDurationTimeout {
            call_duration: self.now.as_seconds(),
            max_call_duration: limit.as_secs_f64(),
        });
        self.because(|| format!("max_call_duration {limit:?}: the call ends"));
        self.close_down(EndReason::MaxCallDuration, true);
    }

    /// Drops everything, says the exit message if there is one, and ends.
    fn close_down(&mut self, reason: EndReason, exit_message: bool) {
        self.life = Life::Ending(reason);
        self.silence();
        match self.spec.exit_message.clone().filter(|_| exit_message) {
            Some(text) => {
                let reply = self.message(Kind::Exit, Source::Exit, text, false);
                self.floor.push_back(reply);
            }
            None => self.finish(reason),
        }
    }

    /// Cuts what sounds or is held, and drops what is queued or prepared.
    fn silence(&mut self) {
        while !self.floor.is_empty() {
            self.kill(0, false);
        }
        self.drop_preparation("the call ends");
        self.warning_waits = false;
        self.refresh_state();
    }

    /// The exit message was spoken, or could not be.
    pub(crate) fn exit_spoken(&mut self) {
        if let Life::Ending(reason) = self.life {
            self.finish(reason);
        }
    }

    /// The call is over.
    pub(crate) fn finish(&mut self, reason: EndReason) {
        if self.life == Life::Ended {
            return;
        }
        self.life = Life::Ending(reason);
        self.silence();
        if reason == EndReason::UserLeft {
            let id = self.spec.user_id.clone();
            self.tell(Event::ParticipantLeft { id });
        }
        self.tell(Event::CallEnded);
        self.tell(Event::Ended { reason });
        self.outputs.push_back(Output::End(reason));
        self.life = Life::Ended;
        self.timers.clear_all();
    }

    /// When the user counts as idle; `None` while that cannot be.
    pub(crate) fn idle_deadline(&self) -> Option<Time> {
        let timeout = self.spec.idle_timeout?;
        if self.is_ending() || !self.is_free() {
            return None;
        }
        let since = [self.speech.stopped, self.last_tool, self.last_callout].into_iter().flatten().max();
        Some(since.map_or(self.last_reply_end, |since| since.max(self.last_reply_end)) + timeout)
    }

    pub(crate) fn idle_due(&mut self) {
        if self.spec.idle_end_after.is_some_and(|most| self.idle_count >= most) {
            let most = self.idle_count;
            self.because(|| format!("idle_end_after: {most} call-outs were not answered, the call ends"));
            self.finish(EndReason::Idle);
            return;
        }
        let timeout = self.spec.idle_timeout.unwrap_or_default();
        self.because(|| format!("idle: nobody said anything for idle_timeout {timeout:?}"));
        self.idle_count = self.idle_count.saturating_add(1);
        self.tell(Event::UserIdle);
        if self.spec.idle_messages.is_empty() {
            self.last_callout = Some(self.now);
            return;
        }
        let n = self.next_idle % self.spec.idle_messages.len();
        self.next_idle = n + 1;
        let text = self.spec.idle_messages[n].clone();
        let reply = self.message(Kind::Idle, Source::Idle(n as u32), text, self.spec.allow_interruptions);
        self.floor.push_back(reply);
    }

    pub(crate) fn command(&mut self, id: CommandId, command: Command) {
        let answer = match (self.life, &command) {
            (Life::Ended, Command::End | Command::Leave | Command::Stop { .. }) => Answer::Already,
            (Life::Ended, _) => Answer::Refused(Refusal::Ended),
            (Life::Ending(_), Command::Interrupt | Command::Say { .. } | Command::Respond { .. }) => {
                Answer::Refused(Refusal::Ending)
            }
            (Life::Ending(_), Command::Stop { exit_message: true, .. }) => Answer::Already,
            _ => self.obey(id, command),
        };
        match answer {
            // Behind the end nothing is told.
            _ if self.life == Life::Ended => {}
            Answer::Refused(why) => self.because(|| format!("refused: {why}")),
            Answer::Already => self.because(|| "the command finds nothing to do".into()),
            Answer::Accepted => {}
        }
        self.outputs.push_back(Output::Answer { id, answer });
    }

    fn obey(&mut self, id: CommandId, command: Command) -> Answer {
        match command {
            Command::Interrupt => self.interrupt(),
            Command::Say { text, interrupt, allow_interruptions, add_to_context } => {
                let text = text.trim();
                if text.is_empty() {
                    return Answer::Already;
                }
                if self.floor.front().is_some_and(Reply::is_unheard_greeting) {
                    self.kill(0, false);
                }
                if interrupt {
                    self.interrupt();
                }
                if !self.floor.is_empty() {
                    self.because(|| "these words wait until what is said before them has ended".into());
                }
                let mut reply =
                    self.message(Kind::Say, Source::Say(id), text.to_owned(), allow_interruptions);
                for utterance in &mut reply.utterances {
                    utterance.in_context = add_to_context;
                }
                self.floor.push_back(reply);
                Answer::Accepted
            }
            Command::Respond { text } => {
                let text = text.trim();
                if text.is_empty() {
                    return Answer::Already;
                }
                self.commit(text.to_owned(), crate::event::TurnTimes::default(), None, true, true);
                Answer::Accepted
            }
            Command::Context { text, overwrite } => {
                if overwrite {
                    self.history.forget_context();
                }
                if !text.trim().is_empty() {
                    self.remember(said(Role::System, text.trim().to_owned()), None);
                }
                Answer::Accepted
            }
            Command::VisitorContext { text, overwrite } => {
                let text = text.trim();
                let told = if overwrite { 0 } else { self.history.visitor_context() };
                if told + text.len() > MAX_VISITOR_CONTEXT {
                    return Answer::Refused(Refusal::ContextFull);
                }
                if overwrite {
                    self.history.forget_visitor_context();
                }
                if !text.is_empty() {
                    self.remember(said(Role::Visitor, text.to_owned()), None);
                }
                Answer::Accepted
            }
            Command::End => self.ended(EndReason::EndedByApi),
            Command::Leave => self.ended(EndReason::UserLeft),
            Command::Stop { reason, exit_message: true } => {
                self.close_down(reason, true);
                Answer::Accepted
            }
            Command::Stop { reason, exit_message: false } => self.ended(reason),
        }
    }

    fn ended(&mut self, reason: EndReason) -> Answer {
        self.finish(reason);
        Answer::Accepted
    }

    /// Kills the current reply and drops what is queued, except speech that may not be interrupted.
    fn interrupt(&mut self) -> Answer {
        let Some(head) = self.floor.front() else { return Answer::Already };
        if !head.interruptible && !head.is_unheard_greeting() {
            return Answer::Refused(Refusal::Uninterruptible);
        }
        self.because(|| "killed: an interrupt was asked for".into());
        self.kill(0, true);
        while let Some(index) =
            self.floor.iter().position(|reply| reply.interruptible || reply.kind == Kind::Turn)
        {
            self.kill(index, false);
        }
        Answer::Accepted
    }

    /// A stage failed: told, and the end of the call if it has failed for too long.
    pub(crate) fn failed(&mut self, stage: Stage, reason: String) {
        self.tell(Event::Error { stage, reason });
        // Tools are many and each may fail for ever; the agent talks on without them.
        if stage == Stage::Tool {
            return;
        }
        if stage == Stage::Stt {
            self.finals_due = 0;
        }
        let since = *self.failing[stage as usize].get_or_insert(self.now);
        if self.now.since(since) >= BROKEN {
            self.broken = true;
        }
    }

    pub(crate) fn recovered(&mut self, stage: Stage) {
        self.failing[stage as usize] = None;
    }

    /// An item enters the history.
    pub(crate) fn remember(&mut self, item: HistoryItem, step: Option<StepId>) {
        self.tell(Event::History(item.clone()));
        self.history.push(item, step);
    }
}
