//! Passes the results of models and tools to the conversation as inputs.

use std::time::Instant;

use conversation::event::{Event, Stage};
use conversation::input::{Input, SegmentId, TtsEvent, TurnHint};

use super::Call;
use crate::messages::StageEvent;
use crate::speak::tts;
use crate::think::llm;

impl Call {
    /// Handles an event of a model or tool.
    pub(crate) fn handle_stage_event(&mut self, now: Instant, event: StageEvent) {
        if self.started_at.is_none() {
            return;
        }
        let has_ended = self.ended_at.is_some();
        self.count_usage(now, &event);
        if has_ended {
            return;
        }
        match event {
            StageEvent::SttClosed => {}
            StageEvent::Stt(event) => self.on_stt_event(now, event),
            StageEvent::TurnProbability(number, p) => {
                let turn_detector = self.audio_input.turn_detector();
                if let Some(speech_segment) = turn_detector.and_then(|t| t.on_answer(number, p)) {
                    self.handle_input(
                        now,
                        Input::TurnProbability { speech_segment, probability: p },
                    );
                }
            }
            StageEvent::Snippets(items) => {
                self.handle_input(now, Input::ExternalEvent(Event::Snippets { items }))
            }
            StageEvent::Llm(generation, event) => {
                // Events of a cancelled generation that were in flight are ignored.
                if !self.generations.iter().any(|a| a.generation == generation) {
                    return;
                }
                let (event, last) = match llm::to_llm_event(event) {
                    Ok(converted) => converted,
                    Err(text) => {
                        return self
                            .handle_input(now, Input::ExternalEvent(Event::Warning { text }));
                    }
                };
                if last {
                    self.generations.retain(|a| a.generation != generation);
                }
                self.handle_input(now, Input::Llm { generation, event });
            }
            StageEvent::Tts(segment, event) => self.on_tts_event(now, segment, event),
            StageEvent::ToolList(Ok(tools)) => self.add_server_tools(now, tools),
            StageEvent::ToolList(Err(text)) => {
                self.handle_input(now, Input::ExternalEvent(Event::Warning { text }))
            }
            StageEvent::ToolResult(call, result) => {
                self.handle_input(now, Input::ToolResult { call, result })
            }
            StageEvent::Guardrail(guarded) => self.on_guardrail_triggered(now, guarded),
        }
    }

    fn on_stt_event(&mut self, now: Instant, event: models::stt::Event) {
        if let Some(avatar) = &mut self.avatar {
            match &event {
                models::stt::Event::Interim(text) => avatar.animator.hear(text, false),
                models::stt::Event::Final(text) => avatar.animator.hear(text, true),
                _ => {}
            }
        }
        let input = match event {
            models::stt::Event::Interim(text) => {
                Input::Transcript { text, is_final: false, trailing_interim: String::new() }
            }
            models::stt::Event::Final(text) => {
                Input::Transcript { text, is_final: true, trailing_interim: String::new() }
            }
            models::stt::Event::Failed(error) => {
                Input::StageFailed { stage: Stage::Stt, reason: error.to_string() }
            }
            models::stt::Event::Recovered => Input::StageRecovered { stage: Stage::Stt },
            models::stt::Event::Warning(text) => Input::ExternalEvent(Event::Warning { text }),
            models::stt::Event::Provider(name) => Input::SttProvider(name.to_owned()),
            models::stt::Event::Turn(hint) => Input::TurnHint(match hint {
                models::stt::TurnHint::EagerEnd => TurnHint::EagerEnd,
                models::stt::TurnHint::Resumed => TurnHint::Resumed,
                models::stt::TurnHint::End => TurnHint::End,
            }),
            models::stt::Event::Usage(_) => return,
        };
        self.handle_input(now, input);
    }

    fn on_tts_event(&mut self, now: Instant, segment: SegmentId, event: tts::SynthesisEvent) {
        if !self.audio_output.is_synthesizing(segment) {
            return;
        }
        let event = match event {
            tts::SynthesisEvent::Phones(phones) => {
                if let Some(avatar) = &mut self.avatar {
                    avatar.animator.add_phones(segment, &phones);
                }
                return;
            }
            tts::SynthesisEvent::Words(words) => {
                if let Some(avatar) = &mut self.avatar {
                    avatar.animator.add_words(segment, &words);
                }
                TtsEvent::WordTimestamps(words)
            }
            tts::SynthesisEvent::Usage { .. } => return,
            tts::SynthesisEvent::Provider(name) | tts::SynthesisEvent::ServedBy(name) => {
                self.audio_output.set_provider(segment, name);
                TtsEvent::Provider(name.to_owned())
            }
            tts::SynthesisEvent::Warning(text) => {
                return self.handle_input(now, Input::ExternalEvent(Event::Warning { text }));
            }
            tts::SynthesisEvent::Samples(samples) => {
                let count = samples.len();
                self.audio_output.playout.push(segment, samples);
                let Some((is_first, provider)) = self.audio_output.on_samples(segment) else {
                    return;
                };
                self.count_audio(provider, count);
                if !is_first {
                    return;
                }
                TtsEvent::FirstAudio
            }
            tts::SynthesisEvent::End => {
                self.audio_output.end_synthesis(segment);
                let Some(duration) = self.audio_output.playout.complete(segment) else { return };
                TtsEvent::End { duration }
            }
            tts::SynthesisEvent::Failed(error) => {
                self.audio_output.end_synthesis(segment);
                self.audio_output.playout.discard(segment);
                TtsEvent::Failed(error.to_string())
            }
        };
        self.handle_input(now, Input::Tts { segment, event });
    }
}
