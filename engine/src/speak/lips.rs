//! Sources of the phones that move the lips in a segment, in order of preference: phones from the
//! TTS, phones aligned from its words, phones recognized in its audio. Runs on the thread of the
//! TTS.

use models::lips::PhoneRecognizer;
use models::tts::{Aligner, Phone, Word};

/// Phone source of one segment.
pub(super) struct PhoneSource {
    /// Phones must be generated: the lips are visible, and the TTS reports no phones.
    enabled: bool,
    /// `None` once words could not be aligned: phones of the other words would leave holes.
    aligner: Option<Aligner>,
    /// Words that came before the first audio: the TTS may still report phones.
    pending_words: Vec<Word>,
    /// Created with the first samples, on the thread of the TTS. It reads all of them, since the
    /// words may end before the audio does.
    phone_recognizer: Option<PhoneRecognizer>,
    /// End of the last emitted phone, in seconds. Emitted phones are never revised.
    emitted_until: f32,
}

impl PhoneSource {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            aligner: Some(Aligner::default()),
            pending_words: Vec::new(),
            phone_recognizer: None,
            emitted_until: 0.0,
        }
    }

    /// The TTS reports phones itself.
    pub(super) fn use_voice_phones(&mut self) {
        self.enabled = false;
    }

    /// The TTS reports words; returns the phones that follow from them.
    pub(super) fn push_words(&mut self, words: &[Word]) -> Vec<Phone> {
        if !self.enabled {
            return Vec::new();
        }
        if self.phone_recognizer.is_some() {
            return self.phones_of_words(words);
        }
        self.pending_words.extend_from_slice(words);
        Vec::new()
    }

    /// Takes the next samples at 48 kHz; returns the phones that are known by now.
    pub(super) fn push_samples(&mut self, samples: &[i16]) -> Vec<Phone> {
        if !self.enabled {
            return Vec::new();
        }
        let pending_words = std::mem::take(&mut self.pending_words);
        let mut phones = self.phones_of_words(&pending_words);
        let read = self.phone_recognizer.get_or_insert_default().push(samples);
        phones.extend(self.skip_emitted(read));
        phones
    }

    /// The segment is over: returns the rest of its phones.
    pub(super) fn finish(&mut self) -> Vec<Phone> {
        let read = self
            .phone_recognizer
            .as_mut()
            .filter(|_| self.enabled)
            .map_or_else(Vec::new, PhoneRecognizer::finish);
        self.skip_emitted(read)
    }

    fn phones_of_words(&mut self, words: &[Word]) -> Vec<Phone> {
        let Some(aligner) = self.aligner.as_mut().filter(|_| !words.is_empty()) else {
            return Vec::new();
        };
        match aligner.phones(words) {
            Ok(phones) => self.skip_emitted(phones),
            Err(reason) => {
                tracing::debug!(reason, "lip sync uses the audio instead of the word timings");
                self.aligner = None;
                Vec::new()
            }
        }
    }

    /// Drops phones that end no later than the last emitted one. A phone has only an end, so the
    /// first one left starts there.
    fn skip_emitted(&mut self, mut phones: Vec<Phone>) -> Vec<Phone> {
        phones.retain(|phone| phone.end > self.emitted_until);
        self.emitted_until = phones.last().map_or(self.emitted_until, |phone| phone.end);
        phones
    }
}
