//! A text that a built-in voice speaks.

use std::path::Path;
use std::time::Duration;

use conversation::script::Script;
use models::tts::{Flite, HEART, Hibari, Request, Tts, builtin_provider_has, resolve_voice};

use crate::synthesis::{Shown, Synthesis};
use crate::{Error, SpeechSource, Spoken};

/// The text is one speech: its intonation continues over sentences.
const REPLY: u64 = 1;

/// Speaks a text with a built-in voice.
///
/// The synthesizer follows from the voice's name alone, never from the load of the machine, and
/// gives equal samples for equal texts.
pub struct VoiceSource {
    script: Script,
    next: usize,
    tts: Box<dyn Tts>,
    request: Request,
    shown: Shown,
    warnings: Vec<String>,
}

impl VoiceSource {
    /// Loads the voice. `provider`: the built-in provider that has it, or empty. `voices`: names in
    /// the order in which they are wanted, the first one that of the user. `models`: folder of the
    /// models.
    ///
    /// # Errors
    /// [`Error::Input`] if there is nothing to speak, [`Error::Failed`] without any voice.
    pub fn new(
        script: Script,
        provider: &str,
        voices: &[&str],
        pronunciation: Vec<(String, String)>,
        models: &Path,
    ) -> Result<Self, Error> {
        if script.segments.is_empty() {
            return Err(Error::Input("the text contains nothing to speak".into()));
        }
        let mut warnings = Vec::new();
        let is_known = |voice: &&&str| builtin_provider_has(provider, voice);
        let wanted = voices.first().filter(|voice| !voice.trim().is_empty());
        if let Some(wanted) = wanted.filter(|voice| !is_known(voice)) {
            let name: String = wanted.chars().take(40).collect();
            warnings
                .push(format!("The voice {name:?} is not built in; the avatar's voice is used."));
        }
        let default =
            if builtin_provider_has(provider, HEART) { HEART } else { resolve_voice("").0.name() };
        let voice = voices.iter().find(is_known).map_or(default, |voice| voice.trim());
        let (tts, voice) = load(voice, models, &mut warnings)?;
        let request = Request { voice, reply: REPLY, pronunciation, ..Request::default() };
        Ok(Self { script, next: 0, tts, request, shown: Shown::default(), warnings })
    }
}

/// The synthesizer of a voice, and the voice's name in it.
fn load(
    voice: &str,
    models: &Path,
    warnings: &mut Vec<String>,
) -> Result<(Box<dyn Tts>, String), Error> {
    let mut name = voice.to_owned();
    if voice.eq_ignore_ascii_case(HEART) {
        match Hibari::load(models, 1) {
            Ok(hibari) => return Ok((Box::new(hibari), HEART.to_owned())),
            Err(error) => {
                tracing::warn!(%error, "the voice {HEART} is not installed");
                warnings.push(format!("The voice {HEART} is not installed; another one speaks."));
                name = resolve_voice("").0.name().to_owned();
            }
        }
    }
    Ok((Box::new(Flite::start_repeatable().map_err(Error::failed)?), name))
}

impl SpeechSource for VoiceSource {
    fn next_segment(&mut self) -> Result<Option<Spoken>, Error> {
        let Some(segment) = self.script.segments.get(self.next) else { return Ok(None) };
        self.next += 1;
        let mut spoken = self.shown.start(segment);
        let request = Request { text: segment.text.clone(), ..self.request.clone() };
        let (sink, synthesis) = Synthesis::new();
        let handle = self.tts.speak(request, sink).map_err(Error::failed)?;
        synthesis.collect(&mut spoken)?;
        handle.cancel();
        Ok(Some(spoken))
    }

    fn done(&self) -> f32 {
        share(&self.script, self.next)
    }

    fn tail(&self) -> Duration {
        self.script.tail
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

/// Share of the characters that the first `count` segments of a script have.
pub(crate) fn share(script: &Script, count: usize) -> f32 {
    let bytes = |count: usize| -> usize {
        script.segments[..count].iter().map(|segment| segment.text.len()).sum()
    };
    bytes(count) as f32 / bytes(script.segments.len()).max(1) as f32
}
