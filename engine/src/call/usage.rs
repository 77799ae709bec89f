//! Counts what the providers of a call use, and reports it to the conversation.

use std::time::Instant;

use conversation::event::{Event, Stage};
use conversation::input::Input;
use conversation::providers::UsageAmounts;
use models::{llm, stt};

use super::Call;
use crate::messages::StageEvent;
use crate::speak::tts::SynthesisEvent;
use crate::usage::stt_amounts;

/// Samples per second of the agent's audio.
const SAMPLE_RATE: f64 = 48_000.0;

/// Whether an input reports use. Such inputs are accepted after the end of the conversation.
pub(super) fn is_report(input: &Input) -> bool {
    matches!(input, Input::ExternalEvent(Event::ProviderUsage(_)))
}

impl Call {
    /// Counts the use that an event tells of, also that of cancelled requests and after the end.
    pub(super) fn count_usage(&mut self, now: Instant, event: &StageEvent) {
        match event {
            StageEvent::SttClosed => self.awaits_stt_usage = false,
            StageEvent::Stt(stt::Event::Usage(usage)) => {
                self.usage.add(Stage::Stt, usage.provider, &stt_amounts(usage));
            }
            StageEvent::Llm(generation, event) => {
                let handle = self.generations.iter_mut().find(|a| a.generation == *generation);
                match (event, handle) {
                    (llm::Event::Provider(provider), handle) => {
                        self.usage.add_request(Stage::Llm, provider);
                        if let Some(handle) = handle {
                            handle.provider = provider;
                        }
                    }
                    (llm::Event::ServedBy(provider), Some(handle)) => handle.provider = provider,
                    (
                        llm::Event::End { prompt_tokens, cached_tokens, completion_tokens },
                        Some(handle),
                    ) => {
                        let amounts = UsageAmounts {
                            input_tokens: (*prompt_tokens).into(),
                            cached_tokens: (*cached_tokens).into(),
                            output_tokens: (*completion_tokens).into(),
                            ..UsageAmounts::default()
                        };
                        self.usage.add(Stage::Llm, handle.provider, &amounts);
                    }
                    _ => {}
                }
            }
            StageEvent::Tts(_, SynthesisEvent::Provider(provider)) => {
                self.usage.add_request(Stage::Tts, provider);
            }
            StageEvent::Tts(_, SynthesisEvent::Usage { provider, characters }) => {
                let characters = (*characters).into();
                let amounts = UsageAmounts { characters, ..UsageAmounts::default() };
                self.usage.add(Stage::Tts, provider, &amounts);
            }
            _ => return,
        }
        if self.ended_at.is_some() || self.usage.is_due(now) {
            self.queue_usage_report(now);
            self.drain_inputs(now);
        }
    }

    /// Counts audio of a TTS.
    pub(super) fn count_audio(&mut self, provider: &'static str, samples: usize) {
        let audio_seconds = samples as f64 / SAMPLE_RATE;
        let amounts = UsageAmounts { audio_seconds, ..UsageAmounts::default() };
        self.usage.add(Stage::Tts, provider, &amounts);
    }

    /// Counts the connections of the TTS, which are about to be closed.
    pub(super) fn add_tts_connections(&mut self) {
        let (all, usage) = (self.tts.iter().chain(&self.tts_fallback), &mut self.usage);
        for tts in all {
            tts.report_connected(&mut |provider, time| {
                let connected_seconds = time.as_secs_f64();
                let amounts = UsageAmounts { connected_seconds, ..UsageAmounts::default() };
                usage.add(Stage::Tts, provider, &amounts);
            });
        }
    }

    /// Queues the report of all use so far.
    pub(super) fn queue_usage_report(&mut self, now: Instant) {
        self.inputs.extend(self.usage.take(now).map(Input::ExternalEvent));
    }
}
