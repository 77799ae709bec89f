//! The scripted LLM and voice of a simulation.

use core::time::Duration;

use crate::endpoint::plain;
use crate::event::Role;
use crate::input::{Input, LlmEvent, TtsEvent};
use crate::output::{LlmRequest, Source, SpeechRequest, ToolMessage};
use crate::scenario::{Act, Answer, Part};
use crate::settings::Message;
use crate::simulate::{Happening, Simulation, Voiced, position};

fn seconds(time: f64) -> Duration {
    Duration::from_secs_f64(time.max(0.0))
}

impl Simulation<'_> {
    /// The script's answer to a question.
    fn find_answer(&self, request: &LlmRequest) -> Option<usize> {
        let replies = &self.script.replies;
        if let Some(last) = self.last_step.get(&request.step.epoch) {
            let tools: Vec<&str> = last
                .iter()
                .flat_map(|index| replies[*index].calls.iter().map(|call| call.0.as_str()))
                .collect();
            return replies
                .iter()
                .position(|reply| reply.to.strip_prefix("tool:").is_some_and(|name| tools.contains(&name)));
        }
        let said = request
            .history
            .iter()
            .rev()
            .find(|item| item.role == Role::User)
            .map(|item| plain(&item.text))?;
        replies
            .iter()
            .position(|reply| reply.to == "*" || !reply.to.starts_with("tool:") && plain(&reply.to) == said)
    }

    /// Schedules what the scripted LLM says.
    pub(crate) fn ask_llm(&mut self, request: &LlmRequest) {
        let step = request.step;
        let found = self.find_answer(request);
        self.steps.insert(step, found);
        self.last_step.insert(step.epoch, found);
        let llm = |event| Input::Llm { step, event };
        let end = LlmEvent::End { prompt_tokens: 0, completion_tokens: 0 };
        let defaults = self.script.defaults;
        let empty =
            Answer { llm_ttft: defaults.llm_ttft, llm_duration: defaults.llm_duration, ..Answer::default() };
        let script = self.script;
        let answer = found.map_or(&empty, |index| &script.replies[index]);
        let first = self.now + answer.llm_ttft;
        if answer.llm_fails {
            self.schedule(first, 0, Happening::Inputs(vec![llm(LlmEvent::Failed("scripted".into()))]));
            return;
        }
        // A stream that is slow, not silent: its gaps are no failure.
        let done = self.now + answer.llm_duration.max(answer.llm_ttft);
        let mut alive = first;
        while alive < done {
            self.schedule(alive, 0, Happening::Inputs(vec![llm(LlmEvent::Began)]));
            alive = alive + Duration::from_secs(4);
        }
        let mut events = Vec::new();
        if answer.guardrail {
            events.push(llm(LlmEvent::Guardrail));
        }
        for (index, part) in answer.parts.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            events.push(llm(LlmEvent::Text(format!("{blank}{}", part.say.trim()))));
            events.push(llm(LlmEvent::Flush));
        }
        for (index, (name, arguments)) in answer.calls.iter().enumerate() {
            let id = format!("call_{index}");
            events.push(llm(LlmEvent::Call { id, name: name.clone(), arguments: arguments.clone() }));
        }
        events.push(llm(end));
        self.schedule(done, 0, Happening::Inputs(events));
    }

    /// Schedules what the scripted voice says.
    pub(crate) fn synthesize(&mut self, request: &SpeechRequest) {
        let mut ttfb = self.script.defaults.tts_ttfb;
        let settings = &self.script.settings;
        let message = |message: Option<&Message>| Part {
            audio: seconds(message.map_or(0.0, |m| m.audio)),
            ..Part::default()
        };
        let part = match &request.source {
            Source::Step { step, part } => {
                let answer = self.steps.get(step).copied().flatten().map(|index| &self.script.replies[index]);
                ttfb = answer.map_or(ttfb, |answer| answer.tts_ttfb);
                answer.and_then(|answer| answer.parts.get(*part as usize)).cloned().unwrap_or_default()
            }
            Source::Greeting => message(settings.greeting.as_ref()),
            Source::Idle(n) => {
                message(settings.idle_messages.iter().filter(|m| !m.say.trim().is_empty()).nth(*n as usize))
            }
            Source::Warning => message(settings.warning_message.as_ref()),
            Source::Exit => message(settings.exit_message.as_ref()),
            Source::Error => message(settings.error_message.as_ref()),
            Source::Say(id) => match self.script.actions.get(id.0 as usize).map(|action| &action.act) {
                Some(Act::Say { audio, .. }) => Part { audio: *audio, ..Part::default() },
                _ => Part::default(),
            },
            Source::Guardrail => Part::default(),
            Source::Tool { call, message: which } => {
                let name = self.tool_names.get(call);
                let tool =
                    self.script.tools.iter().find(|(known, _)| Some(known) == name).map(|(_, tool)| tool);
                message(tool.and_then(|tool| match which {
                    ToolMessage::OnStart => tool.on_start.as_ref(),
                    ToolMessage::OnDelay => tool.on_delay.as_ref(),
                    ToolMessage::OnSuccess => tool.on_success.as_ref(),
                    ToolMessage::OnError => tool.on_error.as_ref(),
                }))
            }
        };
        let piece = request.piece;
        let length = part.audio + Duration::from_millis(10);
        self.pieces.insert(piece, Voiced { epoch: request.epoch, length });
        let tts = |event| Input::Tts { piece, event };
        let events = if part.fails {
            vec![tts(TtsEvent::Failed("scripted".into()))]
        } else {
            let words = part.words.iter().map(|(word, end)| (word.clone(), position(*end))).collect();
            vec![tts(TtsEvent::Words(words)), tts(TtsEvent::End { duration: position(length) })]
        };
        self.schedule(self.now + ttfb, 0, Happening::Inputs(events));
    }
}
