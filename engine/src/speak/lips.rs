//! What moves the lips of a piece, best first: phones that its voice tells, phones made of the words that it tells, its sound. On the voice's
//! thread.

use models::lips::Lips;
use models::tts::{Aligner, Phone, Word};

/// One piece of speech.
pub(super) struct Source {
    /// Phones are to be made: somebody looks at the lips, and the voice tells none.
    makes: bool,
    /// `None` once words could not be aligned: there would be holes between those that can.
    aligner: Option<Aligner>,
    /// Words that came before the first sound: the voice may still tell phones.
    waiting: Vec<Word>,
    /// Made with the first samples, which come on the voice's thread. Reads all of them, since words may end before the sound does.
    network: Option<Lips>,
    /// The end of the last phone that was told, in seconds. What was told is never taken back.
    told: f32,
}

impl Source {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            makes: wanted,
            aligner: Some(Aligner::default()),
            waiting: Vec::new(),
            network: None,
            told: 0.0,
        }
    }

    /// The voice tells phones itself.
    pub(super) fn phones(&mut self) {
        self.makes = false;
    }

    /// The voice tells words; gives the phones that are known by them.
    pub(super) fn words(&mut self, words: &[Word]) -> Vec<Phone> {
        if !self.makes {
            return Vec::new();
        }
        if self.network.is_some() {
            return self.align(words);
        }
        self.waiting.extend_from_slice(words);
        Vec::new()
    }

    /// The next samples at 48 kHz; gives the phones that are known by now.
    pub(super) fn sound(&mut self, samples: &[i16]) -> Vec<Phone> {
        if !self.makes {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut self.waiting);
        let mut phones = self.align(&waiting);
        let read = self.network.get_or_insert_default().push(samples);
        phones.extend(self.news(read));
        phones
    }

    /// The piece is over: the rest of its phones.
    pub(super) fn finish(&mut self) -> Vec<Phone> {
        let read = self.network.as_mut().filter(|_| self.makes).map_or_else(Vec::new, Lips::finish);
        self.news(read)
    }

    fn align(&mut self, words: &[Word]) -> Vec<Phone> {
        let Some(aligner) = self.aligner.as_mut().filter(|_| !words.is_empty()) else { return Vec::new() };
        match aligner.phones(words) {
            Ok(phones) => self.news(phones),
            Err(reason) => {
                tracing::debug!(reason, "lips are read from the sound instead of the words");
                self.aligner = None;
                Vec::new()
            }
        }
    }

    /// Those of them that come behind what was told; the first of these begins there.
    fn news(&mut self, mut phones: Vec<Phone>) -> Vec<Phone> {
        phones.retain(|phone| phone.end > self.told);
        self.told = phones.last().map_or(self.told, |phone| phone.end);
        phones
    }
}
