//! The built-in voices as one synthesizer: Hibari where it is installed, and flite.

use std::sync::Arc;

use super::voice::{self, Voice};
use super::{Event, Request, Tts};
use crate::{Error, ErrorKind, Handle, Sink};

/// Speaks with the synthesizer that has the voice. The voice of Hibari becomes flite's default voice
/// where Hibari is missing, has failed or is overloaded.
pub struct BuiltinTts {
    hibari: Option<Arc<dyn Tts>>,
    flite: Option<Arc<dyn Tts>>,
}

impl BuiltinTts {
    /// The installed ones of both synthesizers.
    ///
    /// # Errors
    /// Neither is installed.
    pub fn new(hibari: Option<Arc<dyn Tts>>, flite: Option<Arc<dyn Tts>>) -> Result<Self, Error> {
        if hibari.is_none() && flite.is_none() {
            return Err(Error::new(ErrorKind::NotAvailable, "no TTS engine is installed"));
        }
        Ok(Self { hibari, flite })
    }

    /// The synthesizer of a voice, and the name of the voice in it.
    fn synthesizer<'a>(&'a self, voice: &'a str) -> Option<(&'a dyn Tts, &'a str)> {
        let flite = self.flite.as_deref();
        if let Some(flite) = flite.filter(|_| voice::is_flite_voice(voice)) {
            return Some((flite, voice));
        }
        let hibari = self.hibari.as_deref();
        if let Some(hibari) = hibari.filter(|hibari| hibari.capacity_error().is_none()) {
            return Some((hibari, voice::HEART));
        }
        flite.or(hibari).map(|tts| (tts, ""))
    }
}

impl Tts for BuiltinTts {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        match self.synthesizer(&request.voice) {
            Some((tts, voice)) => {
                let voice = voice.to_owned();
                tts.speak(Request { voice, ..request }, sink)
            }
            None => Err(Error::new(ErrorKind::NotAvailable, "no TTS engine is installed")),
        }
    }

    fn has_voice(&self, voice: &str) -> bool {
        voice.is_empty()
            || (voice::is_flite_voice(voice) && self.flite.is_some())
            || (voice::is_hibari_voice(voice) && self.hibari.is_some())
    }

    fn capacity_error(&self) -> Option<Error> {
        let error = |tts: &Option<Arc<dyn Tts>>| tts.as_ref().map(|tts| tts.capacity_error());
        // One of both suffices.
        match (error(&self.hibari), error(&self.flite)) {
            (Some(error), None) | (None, Some(error)) => error,
            (Some(hibari), Some(flite)) => hibari.and(flite),
            (None, None) => None,
        }
    }
}

/// The default voice of an avatar: Hibari's for a woman, one of flite's for a man, because Hibari
/// has no voice of a man.
#[must_use]
pub fn default_voice(female: bool) -> &'static str {
    if female { voice::HEART } else { Voice::Rms.name() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Records the voices of its requests.
    #[derive(Default)]
    struct Recorder {
        voices: Mutex<Vec<String>>,
        error: Option<&'static str>,
    }

    impl Tts for Recorder {
        fn speak(&self, request: Request, _: Sink<Event>) -> Result<Handle, Error> {
            self.voices.lock().unwrap().push(request.voice);
            Ok(Handle::noop())
        }

        fn capacity_error(&self) -> Option<Error> {
            self.error.map(|why| Error::new(ErrorKind::NotAvailable, why))
        }
    }

    fn request(voice: &str) -> Request {
        Request { text: "Hello.".into(), voice: voice.into(), ..Request::default() }
    }

    /// The voices that Hibari and flite got.
    fn spoken(hibari: Option<Recorder>, flite: Option<Recorder>) -> [Vec<String>; 2] {
        let (hibari, flite) = (hibari.map(Arc::new), flite.map(Arc::new));
        let tts =
            BuiltinTts::new(hibari.clone().map(|tts| tts as _), flite.clone().map(|tts| tts as _))
                .unwrap();
        for voice in ["", "heart", "slt", "cmu_us_rms", "nobody"] {
            drop(tts.speak(request(voice), Sink::new(|_| {})).unwrap());
        }
        [hibari, flite].map(|recorder| {
            recorder.map_or_else(Vec::new, |recorder| recorder.voices.lock().unwrap().clone())
        })
    }

    #[test]
    fn each_voice_is_spoken_by_its_synthesizer() {
        let [hibari, flite] = spoken(Some(Recorder::default()), Some(Recorder::default()));
        assert_eq!(hibari, ["heart", "heart", "heart"]);
        assert_eq!(flite, ["slt", "cmu_us_rms"]);
    }

    #[test]
    fn flite_replaces_hibari_where_it_is_missing_or_has_no_capacity() {
        let busy = Recorder { error: Some("too many texts wait"), ..Recorder::default() };
        for hibari in [None, Some(busy)] {
            let [hibari, flite] = spoken(hibari, Some(Recorder::default()));
            assert!(hibari.is_empty());
            assert_eq!(flite, ["", "", "slt", "cmu_us_rms", ""]);
        }
        let [hibari, _] = spoken(Some(Recorder::default()), None);
        assert_eq!(hibari, ["heart"; 5]);
        assert!(BuiltinTts::new(None, None).is_err());
    }

    #[test]
    fn a_voice_is_offered_where_its_synthesizer_is_installed() {
        let tts = |hibari: bool, flite: bool| {
            let recorder =
                |is_there: bool| is_there.then(|| Arc::new(Recorder::default()) as Arc<dyn Tts>);
            BuiltinTts::new(recorder(hibari), recorder(flite)).unwrap()
        };
        let has =
            |tts: &BuiltinTts| ["", "Heart", "slt", "nobody"].map(|voice| tts.has_voice(voice));
        assert_eq!(has(&tts(true, true)), [true, true, true, false]);
        assert_eq!(has(&tts(false, true)), [true, false, true, false]);
        assert_eq!(has(&tts(true, false)), [true, true, false, false]);
    }

    #[test]
    fn calls_are_refused_only_if_neither_synthesizer_has_capacity() {
        let with = |hibari: Option<&'static str>, flite: Option<&'static str>| {
            let recorder =
                |error| Arc::new(Recorder { error, ..Recorder::default() }) as Arc<dyn Tts>;
            BuiltinTts::new(Some(recorder(hibari)), Some(recorder(flite))).unwrap().capacity_error()
        };
        assert!(with(Some("full"), None).is_none() && with(None, Some("full")).is_none());
        assert!(with(Some("full"), Some("full")).is_some());
    }
}
