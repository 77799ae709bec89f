//! The scripted LLM and TTS of a simulation.

use core::time::Duration;

use serde_json::{Map, Value};

use crate::contract::event::Role;
use crate::contract::input::{Input, LlmEvent, TtsEvent};
use crate::contract::output::{LlmRequest, STAY_SILENT, SpeechSource, ToolMessage, TtsRequest};
use crate::contract::settings::SpokenMessage;
use crate::simulation::scenario::{ActionKind, ScriptedReply, ScriptedSegment};
use crate::simulation::simulate::{RequestedSegment, ScheduledEvent, Simulation, to_position};
use crate::words::normalize_text;

fn non_negative_duration(time: f64) -> Duration {
    Duration::from_secs_f64(time.max(0.0))
}

impl Simulation<'_> {
    /// Finds the script's reply to a request.
    fn find_reply(&self, request: &LlmRequest) -> Option<usize> {
        let replies = &self.scenario.replies;
        if let Some(last) = self.last_generation.get(&request.generation.epoch) {
            let tools: Vec<&str> = last
                .iter()
                .flat_map(|index| replies[*index].tool_calls.iter().map(|call| call.0.as_str()))
                .collect();
            return replies.iter().position(|reply| {
                reply.in_reply_to.strip_prefix("tool:").is_some_and(|name| tools.contains(&name))
            });
        }
        let mut user_texts = request.history.iter().rev().filter(|item| item.role == Role::User);
        let user_text = normalize_text(user_texts.next()?.words());
        if request.may_stay_silent {
            return self.find_decision(request);
        }
        replies.iter().position(|reply| {
            reply.in_reply_to == "*"
                || !reply.in_reply_to.starts_with("tool:")
                    && normalize_text(&reply.in_reply_to) == user_text
        })
    }

    /// Finds the script's reply to any of the utterances since the agent has spoken, newest first.
    /// Without one, the model says nothing.
    fn find_decision(&self, request: &LlmRequest) -> Option<usize> {
        let replies = &self.scenario.replies;
        let recent = request.history.iter().rev();
        let recent = recent.take_while(|item| item.role != Role::Assistant);
        let users = recent.filter(|item| item.role == Role::User);
        let mut texts = users.map(|item| normalize_text(item.words()));
        let decided = texts.find_map(|text| {
            replies.iter().position(|reply| normalize_text(&reply.in_reply_to) == text)
        });
        decided.or_else(|| replies.iter().position(|reply| reply.in_reply_to == "*"))
    }

    /// Schedules the events of the scripted LLM.
    pub(crate) fn request_llm(&mut self, request: &LlmRequest) {
        let generation = request.generation;
        let found = self.find_reply(request);
        self.generations.insert(generation, found);
        self.last_generation.insert(generation.epoch, found);
        let llm = |event| Input::Llm { generation, event };
        let end = LlmEvent::End { prompt_tokens: 0, completion_tokens: 0 };
        let defaults = self.scenario.defaults;
        let empty = ScriptedReply {
            llm_ttft: defaults.llm_ttft,
            llm_duration: defaults.llm_duration,
            ..ScriptedReply::default()
        };
        let scenario = self.scenario;
        let reply = found.map_or(&empty, |index| &scenario.replies[index]);
        let first = self.now + reply.llm_ttft;
        if reply.llm_fails {
            self.schedule(
                first,
                0,
                ScheduledEvent::Inputs(vec![llm(LlmEvent::Failed("scripted".into()))]),
            );
            return;
        }
        // A long answer is a slow stream, not a silent one: events every 4 s avoid the timeout.
        let done = self.now + reply.llm_duration.max(reply.llm_ttft);
        let mut keep_alive_at = first;
        while keep_alive_at < done {
            self.schedule(keep_alive_at, 0, ScheduledEvent::Inputs(vec![llm(LlmEvent::Started)]));
            keep_alive_at = keep_alive_at + Duration::from_secs(4);
        }
        let mut events = Vec::new();
        if reply.is_guardrail {
            events.push(llm(LlmEvent::Guardrail));
        }
        for (index, part) in reply.segments.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            events.push(llm(LlmEvent::Text(format!("{blank}{}", part.text.trim()))));
            events.push(llm(LlmEvent::Flush));
        }
        for (index, (name, arguments)) in reply.tool_calls.iter().enumerate() {
            let id = format!("call_{index}");
            events.push(llm(LlmEvent::ToolCall {
                id,
                name: name.clone(),
                arguments: arguments.clone(),
            }));
        }
        if reply.stays_silent {
            events.push(llm(LlmEvent::ToolCall {
                id: "call_silent".into(),
                name: STAY_SILENT.into(),
                arguments: Value::Object(Map::new()),
            }));
        }
        events.push(llm(end));
        self.schedule(done, 0, ScheduledEvent::Inputs(events));
    }

    /// Schedules the events of the scripted TTS.
    pub(crate) fn synthesize(&mut self, request: &TtsRequest) {
        let mut ttfb = self.scenario.defaults.tts_ttfb;
        let settings = &self.scenario.settings;
        let message = |message: Option<&SpokenMessage>| ScriptedSegment {
            audio_duration: non_negative_duration(message.map_or(0.0, |m| m.audio_seconds)),
            ..ScriptedSegment::default()
        };
        let part = match &request.source {
            SpeechSource::Generation { generation, segment_index: part } => {
                let reply = self
                    .generations
                    .get(generation)
                    .copied()
                    .flatten()
                    .map(|index| &self.scenario.replies[index]);
                ttfb = reply.map_or(ttfb, |reply| reply.tts_ttfb);
                reply
                    .and_then(|reply| reply.segments.get(*part as usize))
                    .cloned()
                    .unwrap_or_default()
            }
            SpeechSource::Greeting => message(settings.greeting.as_ref()),
            SpeechSource::RecordingMessage => message(settings.recording_message.as_ref()),
            SpeechSource::IdleMessage(n) => message(
                settings
                    .idle_messages
                    .iter()
                    .filter(|m| !m.text.trim().is_empty())
                    .nth(*n as usize),
            ),
            SpeechSource::Warning => message(settings.warning_message.as_ref()),
            SpeechSource::Exit => message(settings.exit_message.as_ref()),
            SpeechSource::Error => message(settings.error_message.as_ref()),
            SpeechSource::Say(id) => {
                match self.scenario.actions.get(id.0 as usize).map(|action| &action.kind) {
                    Some(ActionKind::Say { audio_duration: audio, .. }) => {
                        ScriptedSegment { audio_duration: *audio, ..ScriptedSegment::default() }
                    }
                    _ => ScriptedSegment::default(),
                }
            }
            SpeechSource::Guardrail => ScriptedSegment::default(),
            SpeechSource::Farewell => ScriptedSegment {
                audio_duration: Duration::from_secs(1),
                ..ScriptedSegment::default()
            },
            SpeechSource::Tool { call, message: which } => {
                let name = self.tool_names.get(call);
                let tool = self
                    .scenario
                    .tools
                    .iter()
                    .find(|(known, _)| Some(known) == name)
                    .map(|(_, tool)| tool);
                message(tool.and_then(|tool| match which {
                    ToolMessage::OnStart => tool.on_start.as_ref(),
                    ToolMessage::OnDelay => tool.on_delay.as_ref(),
                    ToolMessage::OnSuccess => tool.on_success.as_ref(),
                    ToolMessage::OnError => tool.on_error.as_ref(),
                }))
            }
        };
        let segment = request.segment;
        let length = part.audio_duration + Duration::from_millis(10);
        self.segments.insert(segment, RequestedSegment { epoch: request.epoch, duration: length });
        let tts = |event| Input::Tts { segment, event };
        let events = if part.tts_fails {
            vec![tts(TtsEvent::Failed("scripted".into()))]
        } else {
            let words = part
                .word_times
                .iter()
                .map(|(word, end)| (word.clone(), to_position(*end)))
                .collect();
            vec![
                tts(TtsEvent::WordTimestamps(words)),
                tts(TtsEvent::End { duration: to_position(length) }),
            ]
        };
        self.schedule(self.now + ttfb, 0, ScheduledEvent::Inputs(events));
    }
}
