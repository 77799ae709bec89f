//! Models outside of a chain that tell their provider, and the STT of each provider.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conversation::event::Snippet;

use super::ChainEntry;
use crate::llm::guardrails::{GuardrailCheck, GuardrailFuture};
use crate::llm::{self, Llm, ModerationFuture};
use crate::stt::{self, Stt, SttStream, Usage};
use crate::tts::{self, Tts};
use crate::{Error, Handle, Sink};

/// Samples per second of an STT's audio.
const SAMPLE_RATE: u64 = 16_000;

/// A language model of this server.
pub(crate) struct NamedLlm(pub(crate) ChainEntry<dyn Llm>);

impl Llm for NamedLlm {
    fn ask(&self, request: llm::Request, sink: Sink<llm::Event>) -> Handle {
        sink.send(llm::Event::Provider(self.0.provider));
        self.0.model.ask(request, sink)
    }

    fn warm_up(&self) {
        self.0.model.warm_up();
    }

    fn max_passages(&self) -> Option<usize> {
        self.0.model.max_passages()
    }

    fn follows_directions(&self) -> bool {
        self.0.model.follows_directions()
    }

    fn prepare(&self, passages: Vec<Snippet>, prompt: &str) {
        self.0.model.prepare(passages, prompt);
    }

    fn check_guardrails(&self, check: GuardrailCheck) -> GuardrailFuture {
        self.0.model.check_guardrails(check)
    }

    fn moderate(&self, text: String) -> ModerationFuture {
        self.0.model.moderate(text)
    }
}

/// A TTS of this server.
pub(crate) struct NamedTts(pub(crate) ChainEntry<dyn Tts>);

impl Tts for NamedTts {
    fn speak(&self, request: tts::Request, sink: Sink<tts::Event>) -> Result<Handle, Error> {
        let (provider, is_announced) = (self.0.provider, AtomicBool::new(false));
        let named = Sink::new(move |event| {
            if !is_announced.swap(true, Ordering::AcqRel) {
                sink.send(tts::Event::Provider(provider));
            }
            sink.send(event);
        });
        self.0.model.speak(request, named)
    }

    fn open_call(&self, like: &tts::Request) -> Option<Arc<dyn Tts>> {
        let model = self.0.model.open_call(like)?;
        let ChainEntry { name, provider, breaker, .. } = &self.0;
        let (name, breaker) = (name.clone(), breaker.clone());
        Some(Arc::new(Self(ChainEntry { name, provider, model, breaker })))
    }

    fn cancel_reply(&self, reply: u64) {
        self.0.model.cancel_reply(reply);
    }

    fn report_connected(&self, report: &mut dyn FnMut(&'static str, Duration)) {
        self.0.model.report_connected(&mut |_, time| report(self.0.provider, time));
    }

    fn has_voice(&self, voice: &str) -> bool {
        self.0.model.has_voice(voice)
    }

    fn capacity_error(&self) -> Option<Error> {
        self.0.model.capacity_error()
    }
}

/// An STT that tells its provider before its first transcript and in its usage. Another STT that it
/// opens as its fallback is named itself.
pub(crate) struct NamedStt {
    pub(crate) provider: &'static str,
    pub(crate) stt: Arc<dyn Stt>,
}

impl Stt for NamedStt {
    fn open(&self, sink: Sink<stt::Event>) -> Result<Box<dyn SttStream>, Error> {
        let (provider, out, is_announced) = (self.provider, sink.clone(), AtomicBool::new(false));
        let named = Sink::new(move |event| {
            let event = match event {
                stt::Event::Usage(usage) if usage.provider.is_empty() => {
                    stt::Event::Usage(Usage { provider, ..usage })
                }
                // The fallback, which serves the rest of the call.
                event @ stt::Event::Provider(_) => {
                    is_announced.store(true, Ordering::Release);
                    event
                }
                event => event,
            };
            let is_transcript = matches!(event, stt::Event::Interim(_) | stt::Event::Final(_));
            if is_transcript && !is_announced.swap(true, Ordering::AcqRel) {
                out.send(stt::Event::Provider(provider));
            }
            out.send(event);
        });
        let stream = self.stt.open(named)?;
        let sample_count = (!stream.reports_usage()).then_some(0);
        Ok(Box::new(NamedStream { stream, provider, sample_count, sink }))
    }

    fn connects_on_open(&self) -> bool {
        self.stt.connects_on_open()
    }

    fn capacity_error(&self) -> Option<Error> {
        self.stt.capacity_error()
    }
}

/// The stream of a [`NamedStt`]. It counts the audio of an STT that reports no usage.
struct NamedStream {
    stream: Box<dyn SttStream>,
    provider: &'static str,
    /// Samples so far; `None` if the stream itself reports its usage.
    sample_count: Option<u64>,
    sink: Sink<stt::Event>,
}

impl SttStream for NamedStream {
    fn start_call(&mut self) {
        self.stream.start_call();
    }

    fn start_speech(&mut self) {
        self.stream.start_speech();
    }

    fn push_audio(&mut self, pcm: &[i16]) {
        if let Some(count) = &mut self.sample_count {
            *count += pcm.len() as u64;
        }
        self.stream.push_audio(pcm);
    }

    fn end_speech(&mut self) {
        self.stream.end_speech();
    }

    fn reports_usage(&self) -> bool {
        true
    }
}

impl Drop for NamedStream {
    fn drop(&mut self) {
        if let Some(count @ 1..) = self.sample_count {
            let audio = Duration::from_micros(count * 1_000_000 / SAMPLE_RATE);
            let usage = Usage { provider: self.provider, audio, ..Usage::default() };
            self.sink.send(stt::Event::Usage(usage));
        }
    }
}

#[cfg(test)]
mod tests;
