//! The tools of a generation and the messages spoken around them.

use core::time::Duration;

use serde_json::Value;

use crate::contract::event::{Event, Stage};
use crate::contract::input::{Epoch, GenerationId, ToolCallId};
use crate::contract::output::{Output, SpeechSource, ToolMessage};
use crate::contract::spec::ToolSpec;
use crate::contract::time::Time;
use crate::machine::conversation::Conversation;
use crate::machine::history::tool_item;
use crate::machine::reply::{RunningTool, ToolCallRequest, UtteranceOrigin};

/// Timeout for a tool's result: 20 s. The additional microsecond makes a result at exactly 20 s
/// count.
const TOOL_TIMEOUT: Duration = Duration::from_micros(20_000_001);

impl Conversation {
    /// Adds tools whose servers announced them after the start of the call.
    pub(crate) fn add_tools(&mut self, names: Vec<String>) {
        for name in names {
            if self.spec.tools.iter().all(|known| known.name != name) {
                self.spec.tools.push(ToolSpec { name, ..ToolSpec::default() });
            }
        }
    }

    /// Starts the tools of a generation that has ended and whose turn is committed.
    pub(crate) fn start_tools(&mut self, index: usize) {
        let Some(reply) = self.floor.get_mut(index) else { return };
        let Some(generation) = reply
            .generation
            .as_mut()
            .filter(|generation| generation.ended && !generation.tool_calls.is_empty())
        else {
            return;
        };
        let (mut calls, generation) = (core::mem::take(&mut generation.tool_calls), generation.id);
        self.take_end_call(index, &mut calls);
        if calls.is_empty() {
            return;
        }
        let Some(reply) = self.floor.get_mut(index) else { return };
        reply.awaiting_tools = true;
        reply.tool_rounds += 1;
        self.explain_decision(|| {
            "the tools start: their generation has ended and its turn is committed".into()
        });
        let mut unknown = Vec::new();
        for request in calls {
            let call = ToolCallId(self.next_tool_call);
            self.next_tool_call += 1;
            let spec = self.spec.tools.iter().find(|tool| tool.name == request.name);
            let delay_at =
                spec.filter(|tool| tool.on_delay.is_some()).map(|tool| self.now + tool.delay);
            let known = spec.is_some();
            let on_start = spec.and_then(|tool| tool.on_start.clone());
            self.emit(Event::ToolStarted {
                call_id: request.id.clone(),
                tool_name: request.name.clone(),
                parameters: request.arguments.clone(),
            });
            self.running_tools.push(RunningTool {
                call,
                generation,
                name: request.name.clone(),
                arguments: request.arguments.clone(),
                started_at: self.now,
                delay_message_at: delay_at,
                orphaned: false,
            });
            if let Some(text) = on_start {
                self.push_tool_message(call, generation, ToolMessage::OnStart, text);
            }
            if known {
                let (name, arguments) = (request.name, request.arguments);
                self.outputs.push_back(Output::RunTool { call, id: request.id, name, arguments });
            } else {
                unknown.push(call);
            }
        }
        for call in unknown {
            self.handle_tool_result(call, Err("unknown tool".into()));
        }
    }

    /// Takes calls that end the conversation out of `calls`: the farewell becomes the last words of
    /// the reply, which the user cannot interrupt any more, and the call ends after it. While the
    /// user speaks, nothing of this happens.
    fn take_end_call(&mut self, index: usize, calls: &mut Vec<ToolCallRequest>) {
        let tools = &self.spec.tools;
        let ends_call = |call: &ToolCallRequest| {
            tools.iter().any(|tool| tool.ends_call && tool.name == call.name)
        };
        let Some(request) = calls.iter().position(&ends_call).map(|at| calls.remove(at)) else {
            return;
        };
        calls.retain(|call| !ends_call(call));
        let is_held = self.floor.get(index).is_some_and(|reply| reply.held);
        if is_held || self.speech.active || self.is_ending() {
            self.explain_decision(|| "the call does not end: the user is speaking".into());
            return;
        }
        self.explain_decision(|| "the call ends after this reply".into());
        let farewell = request.arguments["farewell"].as_str().unwrap_or_default().trim();
        let farewell = (!farewell.is_empty())
            .then(|| self.new_message_utterance(SpeechSource::Farewell, farewell.to_owned()));
        let Some(reply) = self.floor.get_mut(index) else { return };
        reply.utterances.extend(farewell);
        reply.interruptible = false;
        reply.ends_call = true;
    }

    fn push_tool_message(
        &mut self,
        call: ToolCallId,
        generation: GenerationId,
        message: ToolMessage,
        text: String,
    ) {
        let mut utterance = self.new_message_utterance(SpeechSource::Tool { call, message }, text);
        utterance.generation = Some(generation);
        if let Some(reply) = self.floor.iter_mut().find(|reply| reply.epoch == generation.epoch) {
            reply.utterances.push_back(utterance);
        }
    }

    pub(crate) fn handle_tool_result(&mut self, call: ToolCallId, result: Result<Value, String>) {
        let Some(at) = self.running_tools.iter().position(|tool| tool.call == call) else { return };
        let tool = self.running_tools.remove(at);
        self.last_tool_result_at = Some(self.now);
        let failed = result.is_err();
        let result = match result {
            Ok(value) => value,
            Err(reason) => {
                self.stage_failed(Stage::Tool, reason.clone());
                Value::String(reason)
            }
        };
        let text = match &result {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.emit(Event::ToolCall {
            tool_name: tool.name.clone(),
            parameters: tool.arguments.clone(),
            result,
            failed,
        });
        let spec = self.spec.tools.iter().find(|spec| spec.name == tool.name);
        let pick: fn(&ToolSpec) -> Option<&String> =
            if failed { |tool| tool.on_error.as_ref() } else { |tool| tool.on_success.as_ref() };
        let message = spec.and_then(pick).cloned();
        self.append_history(
            tool_item(tool.name, tool.arguments, text, tool.started_at),
            Some(tool.generation),
        );
        if tool.orphaned {
            return;
        }
        self.discard_delay_message(call, tool.generation.epoch);
        if let Some(text) = message {
            let which = if failed { ToolMessage::OnError } else { ToolMessage::OnSuccess };
            self.push_tool_message(call, tool.generation, which, text);
        }
    }

    /// Discards the `on_delay` message if the result arrives before the message starts.
    fn discard_delay_message(&mut self, call: ToolCallId, epoch: Epoch) {
        let from =
            UtteranceOrigin::Message(SpeechSource::Tool { call, message: ToolMessage::OnDelay });
        let Some(reply) = self.floor.iter_mut().find(|reply| reply.epoch == epoch) else { return };
        let Some(at) = reply
            .utterances
            .iter()
            .position(|utterance| utterance.origin == from && utterance.started_at.is_none())
        else {
            return;
        };
        if let Some(utterance) = reply.utterances.remove(at) {
            self.outputs.extend(
                utterance.segments.iter().filter_map(|segment| segment.id).map(Output::Discard),
            );
            self.explain_decision(|| "on_delay is discarded: the result arrived first".into());
        }
    }

    /// Handles the message of a slow tool. The decision to speak it is made once.
    pub(crate) fn tool_delay_due(&mut self) {
        let now = self.now;
        let quiet = self.floor.iter().all(|reply| reply.utterances.is_empty() && !reply.held);
        let due = self
            .running_tools
            .iter_mut()
            .find(|tool| tool.delay_message_at.is_some_and(|at| at <= now));
        let Some(tool) = due else { return };
        tool.delay_message_at = None;
        let (call, generation, orphan) = (tool.call, tool.generation, tool.orphaned);
        let name = tool.name.clone();
        let message = self
            .spec
            .tools
            .iter()
            .find(|spec| spec.name == name)
            .and_then(|spec| spec.on_delay.clone());
        if let Some(text) = message.filter(|_| !orphan) {
            if !quiet {
                self.explain_decision(|| {
                    format!("on_delay of {name} is not spoken: other speech is playing or queued")
                });
                return;
            }
            self.explain_decision(|| {
                format!("on_delay of {name} is spoken: the result is still pending")
            });
            self.push_tool_message(call, generation, ToolMessage::OnDelay, text);
        }
    }

    pub(crate) fn tool_timed_out(&mut self) {
        let now = self.now;
        let late = self.running_tools.iter().find(|tool| tool.started_at + TOOL_TIMEOUT <= now);
        if let Some((call, started, name)) =
            late.map(|tool| (tool.call, tool.started_at, tool.name.clone()))
        {
            self.explain_decision(|| {
                format!("the tool {name} has failed: no result for 20s (fixed) since {started}")
            });
            self.handle_tool_result(call, Err("timeout".into()));
        }
    }

    /// The next timeout of a running tool, and the next due `on_delay` message.
    pub(crate) fn tool_deadlines(&self) -> (Option<Time>, Option<Time>) {
        let late = self.running_tools.iter().map(|tool| tool.started_at + TOOL_TIMEOUT).min();
        (late, self.running_tools.iter().filter_map(|tool| tool.delay_message_at).min())
    }

    /// Marks the tools of an ended reply as orphaned: they run to their end and trigger nothing.
    pub(crate) fn orphan_tools(&mut self, epoch: Epoch) {
        for tool in self.running_tools.iter_mut().filter(|tool| tool.generation.epoch == epoch) {
            tool.orphaned = true;
            tool.delay_message_at = None;
        }
    }
}
