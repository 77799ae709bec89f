//! Speech of an audio file. Its lips are read from the sound.

use std::time::Duration;

use models::lips::PhoneRecognizer;
use models::tts::{Phone, Upsampler};

use crate::{Error, SAMPLE_RATE, SpeechSource, Spoken, duration, samples};

/// Name of the phone of silence.
const PAUSE: &str = "pau";
/// A pause of this length ends a segment.
const PHRASE_PAUSE: Duration = Duration::from_millis(350);
/// In a pause of this length, the avatar does not speak.
const LONG_PAUSE: Duration = Duration::from_millis(1_200);
/// How much of a pause belongs to the segment before it, and to the one after a long pause.
const PAUSE_AFTER: Duration = Duration::from_millis(150);
const PAUSE_BEFORE: Duration = Duration::from_millis(100);
const INCOMPLETE: &str =
    "The audio ends early or is damaged in parts; the video has the parts that can be decoded.";
/// Longest segment.
const MAX_SEGMENT: Duration = Duration::from_secs(20);
/// The length of a file is not known before its end. Half of the progress is reported after this
/// time of it.
const HALF_SECONDS: f32 = 60.0;

/// The samples of an audio file, mono.
pub trait Pcm {
    /// Samples per second.
    fn rate(&self) -> u32;

    /// The next samples. `None`: the file ends.
    ///
    /// # Errors
    /// See [`Error`].
    fn next_block(&mut self) -> Result<Option<Vec<i16>>, Error>;

    /// Whether parts of the file are missing. Known at its end.
    fn is_incomplete(&self) -> bool;
}

/// A phone with its end in samples from the start of the file.
struct HeardPhone {
    phone: Phone,
    end: u64,
}

/// Reads an audio file in segments, which end in pauses.
pub struct AudioSource<P> {
    pcm: P,
    upsampler: Upsampler,
    recognizer: PhoneRecognizer,
    /// Samples at 48 kHz that no segment has returned.
    samples: Vec<i16>,
    /// Position of the first of them.
    start: u64,
    /// Phones that end after it.
    phones: Vec<HeardPhone>,
    has_ended: bool,
}

impl<P: Pcm> AudioSource<P> {
    /// Reads these samples.
    ///
    /// # Errors
    /// [`Error::Input`] if their rate is not possible.
    pub fn new(pcm: P) -> Result<Self, Error> {
        let upsampler =
            Upsampler::new(pcm.rate()).map_err(|error| Error::Input(error.to_string()))?;
        Ok(Self {
            pcm,
            upsampler,
            recognizer: PhoneRecognizer::new(),
            samples: Vec::new(),
            start: 0,
            phones: Vec::new(),
            has_ended: false,
        })
    }

    /// Reads the next block.
    fn fill(&mut self) -> Result<(), Error> {
        let (samples, is_last) = match self.pcm.next_block()? {
            Some(block) => (self.upsampler.push(&block), false),
            None => (self.upsampler.finish(), true),
        };
        let mut heard = self.recognizer.push(&samples);
        self.samples.extend(samples);
        if is_last {
            heard.extend(self.recognizer.finish());
            self.has_ended = true;
        }
        for phone in heard {
            let end = position(phone.end);
            match self.phones.last_mut().filter(|last| last.phone.name == phone.name) {
                Some(last) => {
                    last.end = end;
                    last.phone.stress |= phone.stress;
                }
                None => self.phones.push(HeardPhone { phone, end }),
            }
        }
        Ok(())
    }

    /// End of what the recognizer has heard, or of the file.
    fn heard_until(&self) -> u64 {
        let end = self.start + self.samples.len() as u64;
        if self.has_ended {
            return end;
        }
        self.phones.last().map_or(self.start, |last| last.end.min(end))
    }

    /// End of the pause that begins here. `None`: it is not known.
    fn end_of_pause(&self) -> Option<u64> {
        match self.phones.as_slice() {
            [] => self.has_ended.then(|| self.heard_until()),
            [first, ..] if first.phone.name != PAUSE => Some(self.start),
            [first, _, ..] => Some(first.end),
            [_] => self.has_ended.then(|| self.heard_until()),
        }
    }

    /// End of the segment whose sound begins at `start`. `None`: it is not known.
    fn end_of_segment(&self, start: u64) -> Option<u64> {
        let mut before = self.start;
        let mut boundary = None;
        for (index, HeardPhone { phone, end }) in self.phones.iter().enumerate() {
            let length = end.saturating_sub(before);
            if index > 0 && phone.name == PAUSE && length >= samples(PHRASE_PAUSE) {
                return Some(before + samples(PAUSE_AFTER));
            }
            before = *end;
            if *end > start && *end <= start + samples(MAX_SEGMENT) {
                boundary = Some(*end);
            }
        }
        if self.heard_until() >= start + samples(MAX_SEGMENT) {
            return boundary.or(Some(start + samples(MAX_SEGMENT)));
        }
        self.has_ended.then(|| self.heard_until())
    }

    /// Takes the samples up to a position.
    fn take(&mut self, end: u64) -> Vec<i16> {
        let count = usize::try_from(end.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let rest = self.samples.split_off(count.min(self.samples.len()));
        let taken = std::mem::replace(&mut self.samples, rest);
        self.start += taken.len() as u64;
        taken
    }
}

impl<P: Pcm> SpeechSource for AudioSource<P> {
    fn next_segment(&mut self) -> Result<Option<Spoken>, Error> {
        let pause_end = loop {
            match self.end_of_pause() {
                Some(end) => break end,
                None => self.fill()?,
            }
        };
        let pause = duration(pause_end - self.start);
        let mut spoken = Spoken::default();
        if self.has_ended && pause_end >= self.heard_until() {
            // Nobody speaks any more.
            spoken.gap_samples = self.take(pause_end);
            self.phones.clear();
            return Ok((!spoken.gap_samples.is_empty()).then_some(spoken));
        }
        if pause >= LONG_PAUSE {
            spoken.gap_samples = self.take(pause_end - samples(PAUSE_BEFORE));
        }
        let end = loop {
            match self.end_of_segment(self.start) {
                Some(end) => break end,
                None => self.fill()?,
            }
        };
        let start = self.start;
        spoken.phones = phones_between(&self.phones, start, end);
        spoken.samples = self.take(end);
        self.phones.retain(|heard| heard.end > end);
        Ok(Some(spoken))
    }

    fn done(&self) -> f32 {
        let seconds = duration(self.start).as_secs_f32();
        if self.has_ended && self.samples.is_empty() {
            1.0
        } else {
            seconds / (seconds + HALF_SECONDS)
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.pcm.is_incomplete().then(|| INCOMPLETE.to_owned()).into_iter().collect()
    }

    fn tail(&self) -> Duration {
        Duration::ZERO
    }
}

/// The phones of a part, with times from its start.
fn phones_between(phones: &[HeardPhone], start: u64, end: u64) -> Vec<Phone> {
    let mut part = Vec::new();
    for heard in phones.iter().filter(|heard| heard.end > start) {
        let until = duration(heard.end.min(end) - start).as_secs_f32();
        part.push(Phone { end: until, ..heard.phone.clone() });
        if heard.end >= end {
            break;
        }
    }
    part
}

/// Position of a time of the recognizer.
fn position(seconds: f32) -> u64 {
    (f64::from(seconds) * SAMPLE_RATE as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(phones: &[(&str, u64)]) -> Vec<HeardPhone> {
        let heard =
            |(name, end): &(&str, u64)| HeardPhone { phone: Phone::new(*name, 0.0), end: *end };
        phones.iter().map(heard).collect()
    }

    #[test]
    fn a_phone_that_is_cut_belongs_to_both_parts() {
        let phones = heard(&[("pau", 4_800), ("aa", 14_400), ("m", 19_200)]);
        let cut = |start, end| -> Vec<(String, f32)> {
            phones_between(&phones, start, end).into_iter().map(|p| (p.name, p.end)).collect()
        };
        assert_eq!(cut(0, 9_600), [("pau".to_owned(), 0.1), ("aa".to_owned(), 0.2)]);
        assert_eq!(cut(9_600, 19_200), [("aa".to_owned(), 0.1), ("m".to_owned(), 0.2)]);
    }
}
