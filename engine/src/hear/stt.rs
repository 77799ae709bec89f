//! What the STT is given: the user's speech with half a second before it, nothing else.

use std::collections::VecDeque;

use models::stt::Stream;

/// Samples kept from before the detector's report: .5 s at 16 kHz. The report comes some .1 s after the onset, the rest is for soft beginnings.
const PRE_ROLL: usize = 8_000;

/// One call's ear.
pub struct Ear {
    stream: Box<dyn Stream>,
    before: VecDeque<i16>,
    open: bool,
    /// Samples given to the STT.
    given: u64,
}

impl Ear {
    /// An ear on a stream of its own.
    #[must_use]
    pub fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, before: VecDeque::with_capacity(PRE_ROLL + 512), open: false, given: 0 }
    }

    /// The user's sound, 16 kHz mono, speech or not.
    pub fn audio(&mut self, pcm: &[i16]) {
        if self.open {
            self.given += pcm.len() as u64;
            self.stream.audio(pcm);
        } else {
            let surplus = (self.before.len() + pcm.len()).saturating_sub(PRE_ROLL);
            self.before.drain(..surplus.min(self.before.len()));
            self.before.extend(pcm);
        }
    }

    /// The detector hears the user: the STT gets what came just before, and what comes.
    pub fn begin(&mut self) {
        if self.open {
            return;
        }
        self.open = true;
        self.stream.begin();
        self.given += self.before.len() as u64;
        let (a, b) = self.before.as_slices();
        if !a.is_empty() {
            self.stream.audio(a);
        }
        if !b.is_empty() {
            self.stream.audio(b);
        }
        self.before.clear();
    }

    /// The detector hears the user no more.
    pub fn end(&mut self) {
        if self.open {
            self.open = false;
            self.stream.end();
        }
    }

    /// Seconds of sound that the STT was given.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.given as f64 / 16_000.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Tape(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<i16>>>);

    impl Stream for Tape {
        fn begin(&mut self) {
            self.0.lock().unwrap().push("begin".into());
        }
        fn audio(&mut self, pcm: &[i16]) {
            self.1.lock().unwrap().extend(pcm);
        }
        fn end(&mut self) {
            self.0.lock().unwrap().push("end".into());
        }
    }

    #[test]
    fn speech_begins_half_a_second_early_and_silence_is_never_given() {
        let tape = Tape::default();
        let mut ear = Ear::new(Box::new(tape.clone()));
        let sound: Vec<i16> = (0..20_000).collect();
        for part in sound.chunks(320) {
            ear.audio(part);
        }
        ear.begin();
        ear.begin();
        ear.audio(&[1, 2, 3]);
        ear.end();
        ear.audio(&[4; 320]);
        let heard = tape.1.lock().unwrap();
        assert_eq!(heard.len(), PRE_ROLL + 3);
        assert_eq!(heard[..PRE_ROLL], sound[20_000 - PRE_ROLL..]);
        assert_eq!(*tape.0.lock().unwrap(), ["begin", "end"]);
    }
}
