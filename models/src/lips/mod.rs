//! Phone recognition from audio, for the lips of a voice that reports neither phones nor words.
//!
//! ```text
//! 48 kHz ─► features (24 bands, every 10 ms) ─► network (three dense layers)
//!        ─► viterbi (best path, bounded look-ahead) ─► phones
//! ```
//!
//! The network distinguishes 18 visemes. Each is named by a phone that has it: `p` stands for p, b
//! and m. It was trained by `scripts/lips/train.py` on synthetic voices. `docs/lips.md` reports its
//! accuracy on voices outside the training set. The phone of an instant is known
//! [`PhoneRecognizer::look_ahead`] after it. With a voice that is synthesized faster than real
//! time, the phones are still in time.

mod features;
mod network;
mod viterbi;

use crate::tts::Phone;

pub use features::{FeatureExtractor, MEL_BANDS};
use network::Stream;
pub use network::{Error, Network};
use viterbi::ViterbiDecoder;

/// Duration of a frame in seconds.
const FRAME_SECONDS: f32 = 0.01;
/// Classes of open vowels. One that lasts at least [`STRESSED_FRAMES`] counts as stressed, because
/// audio has no other marks of stress that are known in time.
const OPEN_VOWELS: [&str; 3] = ["aa", "eh", "ao"];
/// Minimum duration of a stressed vowel, in frames.
const STRESSED_FRAMES: usize = 11;

/// Phone recognizer for one segment. It takes about 15 µs of CPU time for 10 ms of audio.
pub struct PhoneRecognizer {
    network: &'static Network,
    features: FeatureExtractor,
    stream: Stream,
    decoder: ViterbiDecoder,
    /// Number of frames that the network has processed, without the silence around the segment, and
    /// number of frames whose phone is known.
    frames_heard: usize,
    frames_decoded: usize,
    /// The last class, and for how many frames it has lasted.
    last_class: Option<u8>,
    class_frames: usize,
}

impl Default for PhoneRecognizer {
    fn default() -> Self {
        Self::new()
    }
}

impl PhoneRecognizer {
    /// A recognizer for a new segment.
    #[must_use]
    pub fn new() -> Self {
        let network = Network::built_in();
        let mut lips = Self {
            network,
            features: FeatureExtractor::new(),
            stream: Stream::new(network),
            decoder: ViterbiDecoder::new(network),
            frames_heard: 0,
            frames_decoded: 0,
            last_class: None,
            class_frames: 0,
        };
        let mut none = Vec::new();
        for _ in 0..network.past_frames() {
            lips.push_frame(&features::SILENT_FRAME, &mut none);
        }
        lips
    }

    /// Seconds of audio after an instant by which its phone is known.
    #[must_use]
    pub fn look_ahead() -> f32 {
        let network = Network::built_in();
        (network.future_frames() + network.lag() + 1) as f32 * FRAME_SECONDS
            + features::SECONDS_AFTER
    }

    /// Takes mono samples at 48 kHz. Returns the phones that are known by now, after those of
    /// earlier calls. A phone that continues is returned in parts, of which at most one is stressed.
    pub fn push(&mut self, pcm: &[i16]) -> Vec<Phone> {
        self.features.push(pcm);
        let mut phones = Vec::new();
        while let Some(frame) = self.features.next() {
            self.frames_heard += 1;
            self.push_frame(&frame, &mut phones);
        }
        phones
    }

    /// Ends the segment: returns its remaining phones.
    pub fn finish(&mut self) -> Vec<Phone> {
        let mut phones = Vec::new();
        let last: Vec<_> = self.features.finish().collect();
        for frame in last {
            self.frames_heard += 1;
            self.push_frame(&frame, &mut phones);
        }
        if self.frames_heard > 0 {
            for _ in 0..self.network.future_frames() {
                self.push_frame(&features::SILENT_FRAME, &mut phones);
            }
            for class in self.decoder.finish() {
                self.append_phone(class, &mut phones);
            }
        }
        phones
    }

    fn push_frame(&mut self, frame: &[f32; MEL_BANDS], phones: &mut Vec<Phone>) {
        if let Some(logits) = self.stream.push(self.network, frame)
            && let Some(class) = self.decoder.push(self.network, logits)
        {
            self.append_phone(class, phones);
        }
    }

    /// Appends the class of the next frame.
    fn append_phone(&mut self, class: u8, phones: &mut Vec<Phone>) {
        self.frames_decoded += 1;
        let end = self.frames_decoded as f32 * FRAME_SECONDS;
        let continues = self.last_class.replace(class) == Some(class);
        self.class_frames = if continues { self.class_frames + 1 } else { 1 };
        let name = self.network.name(class);
        let stress = self.class_frames == STRESSED_FRAMES && OPEN_VOWELS.contains(&name);
        match phones.last_mut().filter(|phone| phone.name == name) {
            Some(same) => {
                same.end = end;
                same.stress |= stress;
            }
            None => phones.push(Phone { name: name.to_owned(), end, stress }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognize(pcm: &[i16], portion: usize) -> Vec<Phone> {
        let mut lips = PhoneRecognizer::new();
        let mut phones: Vec<Phone> = pcm.chunks(portion).flat_map(|part| lips.push(part)).collect();
        phones.extend(lips.finish());
        phones
    }

    /// The phone of each frame, regardless of how the phones were divided.
    fn frames(phones: &[Phone]) -> Vec<&str> {
        let mut out = Vec::new();
        for phone in phones {
            out.resize((phone.end / FRAME_SECONDS).round() as usize, phone.name.as_str());
        }
        out
    }

    #[test]
    fn silence_is_a_pause_as_long_as_it_lasts() {
        let phones = recognize(&[0; 48_000], 4_800);
        assert!(phones.iter().all(|p| p.name == "pau"), "{phones:?}");
        assert!((phones.last().unwrap().end - 1.0).abs() < 0.011, "{phones:?}");
    }

    #[test]
    fn it_does_not_matter_in_which_portions_sound_comes() {
        let sound: Vec<i16> = (0..60_000_i64)
            .map(|i| {
                ((i * i / 7 + i * 311) % 20_000 - 10_000) as i16
                    / if i / 9_000 % 2 == 0 { 1 } else { 50 }
            })
            .collect();
        let whole = recognize(&sound, sound.len());
        for portion in [1, 479, 480, 4_801] {
            assert_eq!(frames(&recognize(&sound, portion)), frames(&whole), "{portion}");
        }
        assert!(whole.is_sorted_by(|a, b| a.end < b.end));
    }

    #[test]
    fn a_phone_is_known_after_the_look_ahead_at_the_latest() {
        let mut lips = PhoneRecognizer::new();
        let mut known: f32 = 0.0;
        for n in 1..100 {
            known = lips.push(&[100; 480]).last().map_or(known, |p| p.end);
            let given = n as f32 * FRAME_SECONDS;
            assert!(
                known >= given - PhoneRecognizer::look_ahead() - 1e-4,
                "{given} s were given, {known} are known"
            );
        }
        assert!(PhoneRecognizer::look_ahead() <= 0.15);
    }

    #[test]
    fn a_long_open_vowel_is_stressed_once_in_whatever_parts_it_comes() {
        let class = |name| (0..64).find(|n| Network::built_in().name(*n) == name).unwrap();
        let stressed = |name, frames: usize, portion: usize| {
            let mut lips = PhoneRecognizer::new();
            let (mut parts, classes) = (Vec::new(), vec![class(name); frames]);
            for portion in classes.chunks(portion) {
                let mut phones = Vec::new();
                portion.iter().for_each(|class| lips.append_phone(*class, &mut phones));
                parts.extend(phones);
            }
            lips.append_phone(class("pau"), &mut parts);
            parts.iter().filter(|phone| phone.stress).count()
        };
        for portion in [1, 5, 30] {
            assert_eq!(stressed("aa", 30, portion), 1, "{portion}");
            assert_eq!(stressed("aa", 10, portion), 0, "short, {portion}");
            assert_eq!(stressed("s", 30, portion), 0, "no vowel, {portion}");
        }
    }

    #[test]
    fn a_piece_without_sound_has_no_phones() {
        assert_eq!(recognize(&[], 1), []);
        assert_eq!(recognize(&[1; 100], 1), [], "shorter than a frame");
    }
}
