//! The tools of a step and the words said around them.

use core::time::Duration;

use serde_json::Value;

use crate::conversation::Conversation;
use crate::event::{Event, Stage};
use crate::history::called;
use crate::input::{Epoch, StepId, ToolCallId};
use crate::output::{Output, Source, ToolMessage};
use crate::reply::{From, Running};
use crate::spec::ToolSpec;
use crate::time::Time;

/// A tool that is out for longer has failed. A result at that very instant still counts.
const TIMEOUT: Duration = Duration::from_micros(20_000_001);

impl Conversation {
    /// Tools whose servers have told of them only now.
    pub(crate) fn learn_tools(&mut self, names: Vec<String>) {
        for name in names {
            if self.spec.tools.iter().all(|known| known.name != name) {
                self.spec.tools.push(ToolSpec { name, ..ToolSpec::default() });
            }
        }
    }

    /// Starts the tools of a step that is complete and whose turn is committed.
    pub(crate) fn start_tools(&mut self, index: usize) {
        let Some(reply) = self.floor.get_mut(index) else { return };
        let Some(step) = reply.step.as_mut().filter(|step| step.ended && !step.calls.is_empty()) else {
            return;
        };
        let (calls, step) = (core::mem::take(&mut step.calls), step.id);
        reply.tools_due = true;
        reply.rounds += 1;
        self.because(|| "the tools start: their step has ended and its turn is committed".into());
        let mut unknown = Vec::new();
        for ask in calls {
            let call = ToolCallId(self.next_call);
            self.next_call += 1;
            let spec = self.spec.tools.iter().find(|tool| tool.name == ask.name);
            let delay_at = spec.filter(|tool| tool.on_delay.is_some()).map(|tool| self.now + tool.delay);
            let known = spec.is_some();
            let on_start = spec.and_then(|tool| tool.on_start.clone());
            self.tell(Event::ToolStarted {
                call_id: ask.id.clone(),
                tool_name: ask.name.clone(),
                parameters: ask.arguments.clone(),
            });
            self.tools.push(Running {
                call,
                step,
                name: ask.name.clone(),
                arguments: ask.arguments.clone(),
                started: self.now,
                delay_at,
                orphan: false,
            });
            if let Some(text) = on_start {
                self.tool_message(call, step, ToolMessage::OnStart, text);
            }
            if known {
                let (name, arguments) = (ask.name, ask.arguments);
                self.outputs.push_back(Output::RunTool { call, id: ask.id, name, arguments });
            } else {
                unknown.push(call);
            }
        }
        for call in unknown {
            self.tool_result(call, Err("unknown tool".into()));
        }
    }

    fn tool_message(&mut self, call: ToolCallId, step: StepId, message: ToolMessage, text: String) {
        let mut utterance = self.fixed(Source::Tool { call, message }, text);
        utterance.step = Some(step);
        if let Some(reply) = self.floor.iter_mut().find(|reply| reply.epoch == step.epoch) {
            reply.utterances.push_back(utterance);
        }
    }

    pub(crate) fn tool_result(&mut self, call: ToolCallId, result: Result<Value, String>) {
        let Some(at) = self.tools.iter().position(|tool| tool.call == call) else { return };
        let tool = self.tools.remove(at);
        self.last_tool = Some(self.now);
        let failed = result.is_err();
        let result = match result {
            Ok(value) => value,
            Err(reason) => {
                self.failed(Stage::Tool, reason.clone());
                Value::String(reason)
            }
        };
        let text = match &result {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.tell(Event::ToolCall {
            tool_name: tool.name.clone(),
            parameters: tool.arguments.clone(),
            result,
        });
        let spec = self.spec.tools.iter().find(|spec| spec.name == tool.name);
        let pick: fn(&ToolSpec) -> Option<&String> =
            if failed { |tool| tool.on_error.as_ref() } else { |tool| tool.on_success.as_ref() };
        let message = spec.and_then(pick).cloned();
        self.remember(called(tool.name, tool.arguments, text, tool.started), Some(tool.step));
        if tool.orphan {
            return;
        }
        self.drop_delay_message(call, tool.step.epoch);
        if let Some(text) = message {
            let which = if failed { ToolMessage::OnError } else { ToolMessage::OnSuccess };
            self.tool_message(call, tool.step, which, text);
        }
    }

    /// The result is there before a word of "this takes a moment" was.
    fn drop_delay_message(&mut self, call: ToolCallId, epoch: Epoch) {
        let from = From::Message(Source::Tool { call, message: ToolMessage::OnDelay });
        let Some(reply) = self.floor.iter_mut().find(|reply| reply.epoch == epoch) else { return };
        let Some(at) = reply
            .utterances
            .iter()
            .position(|utterance| utterance.from == from && utterance.started.is_none())
        else {
            return;
        };
        if let Some(utterance) = reply.utterances.remove(at) {
            self.outputs.extend(utterance.pieces.iter().filter_map(|piece| piece.id).map(Output::Drop));
            self.because(|| "on_delay is dropped: the result came first".into());
        }
    }

    /// A slow tool's message, judged once.
    pub(crate) fn tool_delay_due(&mut self) {
        let now = self.now;
        let quiet = self.floor.iter().all(|reply| reply.utterances.is_empty() && !reply.held);
        let due = self.tools.iter_mut().find(|tool| tool.delay_at.is_some_and(|at| at <= now));
        let Some(tool) = due else { return };
        tool.delay_at = None;
        let (call, step, orphan) = (tool.call, tool.step, tool.orphan);
        let name = tool.name.clone();
        let message =
            self.spec.tools.iter().find(|spec| spec.name == name).and_then(|spec| spec.on_delay.clone());
        if let Some(text) = message.filter(|_| !orphan) {
            if !quiet {
                self.because(|| format!("on_delay of {name} is not said: something sounds or is queued"));
                return;
            }
            self.because(|| format!("on_delay of {name} is said: the result is still out"));
            self.tool_message(call, step, ToolMessage::OnDelay, text);
        }
    }

    pub(crate) fn tool_silent(&mut self) {
        let now = self.now;
        let late = self.tools.iter().find(|tool| tool.started + TIMEOUT <= now);
        if let Some((call, started, name)) = late.map(|tool| (tool.call, tool.started, tool.name.clone())) {
            self.because(|| format!("the tool {name} has failed: no result for 20s (fixed) since {started}"));
            self.tool_result(call, Err("timeout".into()));
        }
    }

    /// When the next tool has been out for too long, and when the next one is slow.
    pub(crate) fn tool_deadlines(&self) -> (Option<Time>, Option<Time>) {
        let late = self.tools.iter().map(|tool| tool.started + TIMEOUT).min();
        (late, self.tools.iter().filter_map(|tool| tool.delay_at).min())
    }

    /// A reply is gone: its tools run on and nothing follows them.
    pub(crate) fn orphan_tools(&mut self, epoch: Epoch) {
        for tool in self.tools.iter_mut().filter(|tool| tool.step.epoch == epoch) {
            tool.orphan = true;
            tool.delay_at = None;
        }
    }
}
