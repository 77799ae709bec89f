//! Lifecycle of a call: start, warning, limit, idle messages, commands, failures, end.

use core::time::Duration;

use crate::contract::event::{EndReason, Event, HistoryItem, Role, Stage};
use crate::contract::input::{Command, CommandId, GenerationId, MAX_VISITOR_CONTEXT_BYTES};
use crate::contract::output::{CommandOutcome, Output, Rejection, SpeechSource};
use crate::contract::time::Time;
use crate::machine::conversation::{Conversation, Phase};
use crate::machine::history::text_item;
use crate::machine::people::SpokenTurn;
use crate::machine::reply::{Reply, ReplyKind};
use crate::machine::timers::TimerKind;

/// A stage that has failed for this long without a success ends the call.
const MAX_STAGE_FAILURE_TIME: Duration = Duration::from_secs(30);

impl Conversation {
    /// Whether the phase is not `Running`, so that no new speech may start.
    pub(crate) fn is_ending(&self) -> bool {
        !matches!(self.phase, Phase::Running)
    }

    pub(crate) fn start(&mut self) {
        self.phase = Phase::Running;
        if let Some(limit) = self.spec.max_call_duration {
            self.timers.set(TimerKind::CallLimit, Time::ZERO + limit);
            if let Some(warning) = limit.checked_sub(self.spec.call_warning_before) {
                self.timers.set(TimerKind::LimitWarning, Time::ZERO + warning);
            }
        }
        self.open_call();
    }

    pub(crate) fn warning_due(&mut self) {
        let Some(limit) = self.spec.max_call_duration else { return };
        let before = self.spec.call_warning_before;
        self.explain_decision(|| {
            format!("warned: call_warning_before {before:?} of max_call_duration {limit:?}")
        });
        self.emit(Event::MaxCallDurationWarning {
            call_duration: self.now.as_seconds(),
            max_call_duration: limit.as_secs_f64(),
        });
        self.warning_pending = self.spec.warning_message.is_some();
        // A free floor is used at once, before another due deadline takes it.
        if !self.say_warning() && self.warning_pending {
            self.explain_decision(|| "warning_message waits until the floor is free".into());
        }
    }

    /// Starts the warning message if the floor is free. Returns whether it did.
    pub(crate) fn say_warning(&mut self) -> bool {
        let over =
            self.timers.deadline(TimerKind::CallLimit).is_some_and(|limit| limit <= self.now);
        if !self.warning_pending || over || self.is_ending() || !self.is_floor_free() {
            return false;
        }
        self.warning_pending = false;
        let Some(text) = self.spec.warning_message.clone() else { return false };
        self.explain_decision(|| "warning_message is spoken: the floor is free".into());
        let reply = self.new_message_reply(
            ReplyKind::Warning,
            SpeechSource::Warning,
            text,
            self.spec.allow_interruptions,
        );
        self.floor.push_back(reply);
        true
    }

    pub(crate) fn limit_due(&mut self) {
        let Some(limit) = self.spec.max_call_duration else { return };
        if self.is_ending() {
            return;
        }
        self.emit(Event::MaxCallDurationTimeout {
            call_duration: self.now.as_seconds(),
            max_call_duration: limit.as_secs_f64(),
        });
        self.explain_decision(|| format!("max_call_duration {limit:?}: the call ends"));
        self.close_down(EndReason::MaxCallDuration, true);
    }

    /// Stops all speech, plays the exit message if there is one, and ends the call.
    fn close_down(&mut self, reason: EndReason, exit_message: bool) {
        self.phase = Phase::Ending(reason);
        self.stop_all_speech();
        match self.spec.exit_message.clone().filter(|_| exit_message) {
            Some(text) => {
                let reply =
                    self.new_message_reply(ReplyKind::Exit, SpeechSource::Exit, text, false);
                self.floor.push_back(reply);
            }
            None => self.end_call(reason),
        }
    }

    /// Kills playing, held and queued replies, and discards the preemptive reply and the pending
    /// warning.
    fn stop_all_speech(&mut self) {
        while !self.floor.is_empty() {
            self.cancel_reply(0, false);
        }
        self.discard_preemptive_reply("the call ends");
        self.cancel_decision("the call ends");
        self.warning_pending = false;
        self.recording_message_pending = false;
        self.update_agent_state();
    }

    /// Ends the call after the exit message was played or has failed.
    pub(crate) fn exit_message_ended(&mut self) {
        if let Phase::Ending(reason) = self.phase {
            self.end_call(reason);
        }
    }

    /// Ends the call.
    pub(crate) fn end_call(&mut self, reason: EndReason) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ending(reason);
        self.stop_all_speech();
        // If nobody is there, the departures of all were reported.
        if reason == EndReason::UserLeft && self.people.present != Some(0) {
            let id = self.spec.user_id.clone();
            self.emit(Event::ParticipantLeft { id });
        }
        self.emit(Event::CallEnded);
        self.emit(Event::Ended { reason });
        self.outputs.push_back(Output::End(reason));
        self.phase = Phase::Ended;
        self.timers.clear_all();
    }

    /// Ends the call after the farewell if the floor is free. Returns whether it did.
    pub(crate) fn end_after_farewell(&mut self) -> bool {
        if !self.farewell_spoken || self.is_ending() || !self.is_floor_free() {
            return false;
        }
        self.explain_decision(|| "the call ends: the agent said goodbye".into());
        self.end_call(EndReason::AgentEnded);
        true
    }

    /// The user has something to say: the call goes on after a farewell.
    pub(crate) fn cancel_farewell(&mut self) {
        let announced = self.floor.iter_mut().fold(self.farewell_spoken, |announced, reply| {
            core::mem::take(&mut reply.ends_call) || announced
        });
        self.farewell_spoken = false;
        if announced {
            self.explain_decision(|| "the call does not end: the user spoke".into());
        }
    }

    /// When the user counts as idle. `None` without `idle_timeout`, while the call ends, and while
    /// the floor is not free.
    pub(crate) fn idle_deadline(&self) -> Option<Time> {
        let timeout = self.spec.idle_timeout?;
        if self.is_ending() || !self.is_floor_free() {
            return None;
        }
        let since = [self.speech.end_reported_at, self.last_tool_result_at, self.last_callout_at]
            .into_iter()
            .flatten()
            .max();
        Some(since.map_or(self.last_reply_end, |since| since.max(self.last_reply_end)) + timeout)
    }

    pub(crate) fn idle_due(&mut self) {
        if self
            .spec
            .idle_end_after
            .is_some_and(|max_callouts| self.unanswered_callouts >= max_callouts)
        {
            let max_callouts = self.unanswered_callouts;
            self.explain_decision(|| {
                format!("idle_end_after: {max_callouts} call-outs were not answered, the call ends")
            });
            self.end_call(EndReason::Idle);
            return;
        }
        let timeout = self.spec.idle_timeout.unwrap_or_default();
        self.explain_decision(|| format!("idle: no speech for idle_timeout {timeout:?}"));
        self.unanswered_callouts = self.unanswered_callouts.saturating_add(1);
        self.emit(Event::UserIdle);
        if self.spec.idle_messages.is_empty() {
            self.last_callout_at = Some(self.now);
            return;
        }
        let n = self.next_idle_message % self.spec.idle_messages.len();
        self.next_idle_message = n + 1;
        let text = self.spec.idle_messages[n].clone();
        let reply = self.new_message_reply(
            ReplyKind::Idle,
            SpeechSource::IdleMessage(n as u32),
            text,
            self.spec.allow_interruptions,
        );
        self.floor.push_back(reply);
    }

    pub(crate) fn handle_command(&mut self, id: CommandId, command: Command) {
        let answer = match (self.phase, &command) {
            (Phase::Ended, Command::End | Command::Leave | Command::Stop { .. }) => {
                CommandOutcome::NothingToDo
            }
            (Phase::Ended, _) => CommandOutcome::Rejected(Rejection::Ended),
            (
                Phase::Ending(_),
                Command::Interrupt | Command::Say { .. } | Command::Respond { .. },
            ) => CommandOutcome::Rejected(Rejection::Ending),
            (Phase::Ending(_), Command::Stop { exit_message: true, .. }) => {
                CommandOutcome::NothingToDo
            }
            _ => self.execute_command(id, command),
        };
        match answer {
            // No explanation is emitted after the end.
            _ if self.phase == Phase::Ended => {}
            CommandOutcome::Rejected(why) => self.explain_decision(|| format!("rejected: {why}")),
            CommandOutcome::NothingToDo => {
                self.explain_decision(|| "the command has no effect".into())
            }
            CommandOutcome::Accepted => {}
        }
        self.outputs.push_back(Output::CommandResult { id, outcome: answer });
    }

    fn execute_command(&mut self, id: CommandId, command: Command) -> CommandOutcome {
        match command {
            Command::Interrupt => self.interrupt(),
            Command::Say { text, interrupt, allow_interruptions, add_to_context, expression } => {
                let text = text.trim();
                if text.is_empty() {
                    return CommandOutcome::NothingToDo;
                }
                if self.floor.front().is_some_and(Reply::is_unheard_opening) {
                    self.cancel_reply(0, false);
                }
                if interrupt {
                    self.interrupt();
                }
                if !self.floor.is_empty() {
                    self.explain_decision(|| {
                        "the speech waits until the previous speech has ended".into()
                    });
                }
                let mut reply = self.new_message_reply(
                    ReplyKind::Say,
                    SpeechSource::Say(id),
                    text.to_owned(),
                    allow_interruptions,
                );
                reply.set_default_expression(expression);
                for utterance in &mut reply.utterances {
                    utterance.in_context = add_to_context;
                }
                self.floor.push_back(reply);
                CommandOutcome::Accepted
            }
            Command::Respond { text } => {
                let text = text.trim();
                if text.is_empty() {
                    return CommandOutcome::NothingToDo;
                }
                self.commit_turn(
                    text.to_owned(),
                    crate::contract::event::TurnTimes::default(),
                    SpokenTurn::default(),
                    true,
                    true,
                );
                CommandOutcome::Accepted
            }
            Command::Context { text, overwrite } => {
                if overwrite {
                    self.history.remove_context();
                }
                if !text.trim().is_empty() {
                    self.append_history(text_item(Role::System, text.trim().to_owned()), None);
                }
                CommandOutcome::Accepted
            }
            Command::VisitorContext { text, overwrite } => {
                let text = text.trim();
                let context_bytes =
                    if overwrite { 0 } else { self.history.visitor_context_bytes() };
                if context_bytes + text.len() > MAX_VISITOR_CONTEXT_BYTES {
                    return CommandOutcome::Rejected(Rejection::ContextFull);
                }
                if overwrite {
                    self.history.remove_visitor_context();
                }
                if !text.is_empty() {
                    self.append_history(text_item(Role::Visitor, text.to_owned()), None);
                }
                CommandOutcome::Accepted
            }
            Command::Speaker { name, is_speaking, age_ms } => {
                let at = self.now - Duration::from_millis(age_ms);
                if is_speaking {
                    self.speaker_started(&name, at);
                } else {
                    self.speaker_stopped(&name, at);
                }
                CommandOutcome::Accepted
            }
            Command::Emit { event } => {
                self.emit(*event);
                CommandOutcome::Accepted
            }
            Command::End => self.end_by_command(EndReason::EndedByApi),
            Command::Leave => self.end_by_command(EndReason::UserLeft),
            Command::Stop { reason, exit_message: true } => {
                self.close_down(reason, true);
                CommandOutcome::Accepted
            }
            Command::Stop { reason, exit_message: false } => self.end_by_command(reason),
        }
    }

    fn end_by_command(&mut self, reason: EndReason) -> CommandOutcome {
        self.end_call(reason);
        CommandOutcome::Accepted
    }

    /// Cancels the current reply and the queued ones. Uninterruptible speech is not cancelled,
    /// except queued answers to turns: they have not started to speak.
    fn interrupt(&mut self) -> CommandOutcome {
        self.cancel_decision("an interrupt was requested");
        let Some(head) = self.floor.front() else { return CommandOutcome::NothingToDo };
        if !head.interruptible && !head.is_unheard_opening() {
            return CommandOutcome::Rejected(Rejection::Uninterruptible);
        }
        self.explain_decision(|| "cancelled: an interrupt was requested".into());
        self.cancel_reply(0, true);
        while let Some(index) =
            self.floor.iter().position(|reply| reply.interruptible || reply.kind == ReplyKind::Turn)
        {
            self.cancel_reply(index, false);
        }
        CommandOutcome::Accepted
    }

    /// Emits a stage's failure, and ends the call if the stage has failed for too long.
    pub(crate) fn stage_failed(&mut self, stage: Stage, reason: String) {
        self.emit(Event::Error { stage, reason });
        // One of many tools may fail permanently. The agent continues without it, so a tool's
        // failure never ends the call.
        if stage == Stage::Tool {
            return;
        }
        if stage == Stage::Stt {
            self.pending_finals = 0;
        }
        let since = *self.failing_since[stage as usize].get_or_insert(self.now);
        if self.now.since(since) >= MAX_STAGE_FAILURE_TIME {
            self.failure_limit_reached = true;
        }
    }

    pub(crate) fn stage_recovered(&mut self, stage: Stage) {
        self.failing_since[stage as usize] = None;
    }

    /// Adds an item to the history and emits it.
    pub(crate) fn append_history(&mut self, item: HistoryItem, generation: Option<GenerationId>) {
        self.emit(Event::History(item.clone()));
        self.history.push(item, generation);
    }
}
