//! From the samples of a TTS to playout. Audio is resampled to 48 kHz. If the TTS reports no
//! phones, they are generated from its words or its audio. All this happens on the thread of the
//! TTS, so that a media thread only moves the results.

use std::sync::{Arc, Mutex, PoisonError};

use conversation::time::Position;
use engine_api::TtsChoice;
use models::tts::{Event, Phone, Tts, Upsampler};
use models::{Error, Sink};

use super::lips::PhoneSource;
use super::words::WordTimes;

/// Events of a segment's synthesis, for a media thread.
#[derive(Debug)]
pub enum SynthesisEvent {
    /// Phones, for the lips.
    Phones(Vec<Phone>),
    /// Words and the positions of their ends. A pause before a word is a word without text.
    Words(Vec<(String, Position)>),
    /// Samples at 48 kHz.
    Samples(Vec<i16>),
    /// Another TTS speaks: one sentence for the conversation's record.
    Warning(String),
    /// The text was sent to this provider, which sends what follows.
    Provider(&'static str),
    /// Of the providers that got the text, this one sends what follows.
    ServedBy(&'static str),
    /// Characters that were sent to a provider.
    Usage {
        /// Its name; empty if it is unknown.
        provider: &'static str,
        /// Their number.
        characters: u32,
    },
    /// The segment has no more samples.
    End,
    /// The synthesis failed; no event follows.
    Failed(Error),
}

/// A warning for the caller if the TTS engine has no voice of this name.
#[must_use]
pub fn missing_voice_warning(engine: &dyn Tts, voice: &str) -> Option<String> {
    let name: String = voice.chars().take(40).collect();
    let warning = || {
        format!(
            "The voice {name:?} is not available on this server; the avatar's voice is used \
             instead."
        )
    };
    (!engine.has_voice(voice)).then(warning)
}

/// The first of the names that is a voice of the TTS: the agent's voice, then the avatar's. Empty,
/// the default voice, if none is.
pub fn known_voice(tts: &dyn Tts, names: &[&str]) -> String {
    let known = names.iter().find(|name| !name.is_empty() && tts.has_voice(name));
    known.map(|name| (*name).to_owned()).unwrap_or_default()
}

/// The instance of a TTS for one call, or the TTS itself. It connects with the agent's voice. The
/// avatar's voice is not known yet; those of avatars are built-in voices, which need no connection.
pub fn open_for_call(tts: Arc<dyn Tts>, choice: &TtsChoice) -> Arc<dyn Tts> {
    let voice = known_voice(&*tts, &[&choice.voice_id]);
    let like = models::tts::Request { voice, ..models::tts::Request::default() };
    tts.open_call(&like).unwrap_or(tts)
}

/// A sink for a TTS that forwards its events, with samples at 48 kHz. With `make_phones`, phones
/// are generated if the TTS reports none before its first audio: from its words, or from the audio
/// if it reports no words either. With `report_pauses`, the pauses between words are reported.
pub fn synthesis_sink(
    make_phones: bool,
    report_pauses: bool,
    push: impl Fn(SynthesisEvent) + Send + Sync + 'static,
) -> Sink<Event> {
    // One thread synthesizes a segment, so the lock is never contended; it exists because the
    // sink's type is shared.
    let processor = Mutex::new(VoiceProcessor {
        provider: "",
        upsampler: None,
        phone_source: PhoneSource::new(make_phones),
        word_times: WordTimes::new(report_pauses),
    });
    Sink::new(move |event| {
        let mut processor = processor.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Phones(phones) => {
                processor.phone_source.use_voice_phones();
                processor.word_times.add_phones(&phones);
                push(SynthesisEvent::Phones(phones));
            }
            Event::Words(words) => {
                push_phones_and_samples(
                    &push,
                    processor.phone_source.push_words(&words),
                    Vec::new(),
                );
                push(SynthesisEvent::Words(processor.word_times.place(words)));
            }
            Event::Audio { pcm, sample_rate } => match processor.push(&pcm, sample_rate) {
                Ok((phones, samples)) => push_phones_and_samples(&push, phones, samples),
                Err(e) => push(SynthesisEvent::Failed(e)),
            },
            Event::Provider(provider) => {
                processor.provider = provider;
                push(SynthesisEvent::Provider(provider));
            }
            Event::ServedBy(provider) => {
                processor.provider = provider;
                push(SynthesisEvent::ServedBy(provider));
            }
            Event::Usage { provider, characters } => {
                let provider = if provider.is_empty() { processor.provider } else { provider };
                push(SynthesisEvent::Usage { provider, characters });
            }
            Event::Warning(text) => push(SynthesisEvent::Warning(text)),
            Event::End => {
                let (phones, samples) = processor.finish();
                push_phones_and_samples(&push, phones, samples);
                push(SynthesisEvent::End);
            }
            Event::Failed(e) => push(SynthesisEvent::Failed(e)),
        }
    })
}

/// Phones come first: they must be known before the audio leaves.
fn push_phones_and_samples(push: &impl Fn(SynthesisEvent), phones: Vec<Phone>, samples: Vec<i16>) {
    if !phones.is_empty() {
        push(SynthesisEvent::Phones(phones));
    }
    if !samples.is_empty() {
        push(SynthesisEvent::Samples(samples));
    }
}

/// Processing state of one segment's samples.
struct VoiceProcessor {
    /// The provider that speaks; empty if it is unknown.
    provider: &'static str,
    /// With its input rate in Hz.
    upsampler: Option<(u32, Upsampler)>,
    phone_source: PhoneSource,
    word_times: WordTimes,
}

impl VoiceProcessor {
    fn push(&mut self, pcm: &[i16], rate: u32) -> Result<(Vec<Phone>, Vec<i16>), Error> {
        let mut samples = Vec::new();
        let (_, upsampler) = match &mut self.upsampler {
            Some(made) if made.0 == rate => made,
            other => {
                // Another voice goes on.
                if let Some((_, last)) = other {
                    samples = last.finish();
                }
                other.insert((rate, Upsampler::new(rate)?))
            }
        };
        let next = upsampler.push(pcm);
        if samples.is_empty() {
            samples = next;
        } else {
            samples.extend(next);
        }
        Ok((self.phone_source.push_samples(&samples), samples))
    }

    fn finish(&mut self) -> (Vec<Phone>, Vec<i16>) {
        let samples = self.upsampler.as_mut().map_or_else(Vec::new, |(_, last)| last.finish());
        let mut phones =
            if samples.is_empty() { Vec::new() } else { self.phone_source.push_samples(&samples) };
        phones.extend(self.phone_source.finish());
        (phones, samples)
    }
}
