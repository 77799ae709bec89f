//! What moves the lips of a piece, best first: phones that its voice tells, phones made of the words that it tells, its sound. On the voice's
//! thread.

use models::lips::Lips;
use models::tts::{Aligner, Phone, Word};

/// One piece of speech.
pub(super) struct PhoneSource {
    /// Phones are to be made: somebody looks at the lips, and the voice tells none.
    enabled: bool,
    /// `None` once words could not be aligned: there would be holes between those that can.
    aligner: Option<Aligner>,
    /// Words that came before the first sound: the voice may still tell phones.
    pending_words: Vec<Word>,
    /// Made with the first samples, which come on the voice's thread. Reads all of them, since words may end before the sound does.
    phone_recognizer: Option<Lips>,
    /// The end of the last phone that was told, in seconds. What was told is never taken back.
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

    /// The voice tells phones itself.
    pub(super) fn use_voice_phones(&mut self) {
        self.enabled = false;
    }

    /// The voice tells words; gives the phones that are known by them.
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

    /// The next samples at 48 kHz; gives the phones that are known by now.
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

    /// The piece is over: the rest of its phones.
    pub(super) fn finish(&mut self) -> Vec<Phone> {
        let read =
            self.phone_recognizer.as_mut().filter(|_| self.enabled).map_or_else(Vec::new, Lips::finish);
        self.skip_emitted(read)
    }

    fn phones_of_words(&mut self, words: &[Word]) -> Vec<Phone> {
        let Some(aligner) = self.aligner.as_mut().filter(|_| !words.is_empty()) else { return Vec::new() };
        match aligner.phones(words) {
            Ok(phones) => self.skip_emitted(phones),
            Err(reason) => {
                tracing::debug!(reason, "lips are read from the sound instead of the words");
                self.aligner = None;
                Vec::new()
            }
        }
    }

    /// Those of them that come behind what was told; the first of these begins there.
    fn skip_emitted(&mut self, mut phones: Vec<Phone>) -> Vec<Phone> {
        phones.retain(|phone| phone.end > self.emitted_until);
        self.emitted_until = phones.last().map_or(self.emitted_until, |phone| phone.end);
        phones
    }
}
