//! Pronunciation of a text without its audio: flite's dictionary and letter-to-sound rules, and the
//! phone lengths of one of its voices. For voices that report words but no phones.

use super::super::Voice;
use super::super::text::{self, WrittenWord};
use super::ffi::{Engine, SpeechMarks, SynthesisListener};

/// Pronunciation of a written word, lengths in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::tts) struct WordPronunciation {
    /// The pause before it.
    pub(in crate::tts) pause: f32,
    /// Its phones; empty for a word without audio.
    pub(in crate::tts) phones: Vec<PronouncedPhone>,
}

/// A phone with its length instead of its end.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tts) struct PronouncedPhone {
    /// Name and stress as in [`Phone`](super::super::Phone).
    pub(in crate::tts) name: String,
    pub(in crate::tts) stress: bool,
    /// Length in seconds.
    pub(in crate::tts) length: f32,
}

/// Pronounces each written word of `text` (separated by blanks), in order. `list` as in
/// [`text::split_segments`].
///
/// # Errors
/// One sentence that says why flite cannot.
pub(in crate::tts) fn pronounce(
    voice: Voice,
    text: &str,
    list: &[(String, String)],
) -> Result<Vec<WordPronunciation>, String> {
    let engine = Engine::shared()?;
    let mut words = Vec::new();
    for part in text::split_segments(text, list) {
        let mut collector = MarksCollector(None);
        if !part.spoken.is_empty() {
            engine.synthesise(voice, None, &part.spoken, &mut collector)?;
        }
        // Punctuation alone has no audio, and therefore no utterance.
        let marks = collector.0.unwrap_or(SpeechMarks { phones: Vec::new(), tokens: Vec::new() });
        words.extend(word_pronunciations(&part.words, &marks));
    }
    Ok(words)
}

/// Stores the marks, and stops the synthesis before any sample.
struct MarksCollector(Option<SpeechMarks>);

impl SynthesisListener for MarksCollector {
    fn on_marks(&mut self, marks: SpeechMarks) {
        self.0 = Some(marks);
    }

    fn on_samples(&mut self, _: &[i16]) -> bool {
        false
    }
}

/// End of each word in the utterance, in seconds. A word without audio has the end of the previous
/// one.
pub(super) fn word_end_times(words: &[WrittenWord], tokens: &[(usize, f32)]) -> Vec<f32> {
    let mut tokens = tokens.iter().peekable();
    let mut last_end: f32 = 0.0;
    let end = |word: &WrittenWord| {
        // The position of a token may be the blank after it.
        while let Some((_, end)) = tokens.next_if(|(at, _)| *at <= word.end + 1) {
            last_end = last_end.max(*end);
        }
        last_end
    };
    words.iter().map(end).collect()
}

fn word_pronunciations(words: &[WrittenWord], marks: &SpeechMarks) -> Vec<WordPronunciation> {
    let mut phones = marks.phones.iter().peekable();
    let mut begin = 0.0;
    let mut all = Vec::with_capacity(words.len());
    for end in word_end_times(words, &marks.tokens) {
        let mut word = WordPronunciation::default();
        while let Some(phone) = phones.next_if(|phone| phone.end <= end + 1e-4) {
            let length = phone.end - begin;
            begin = phone.end;
            if word.phones.is_empty() && phone.name == "pau" {
                word.pause += length;
            } else {
                let (name, stress) = (phone.name.clone(), phone.stress);
                word.phones.push(PronouncedPhone { name, stress, length });
            }
        }
        all.push(word);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phone_names(word: &WordPronunciation) -> String {
        word.phones.iter().map(|phone| phone.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_written_word_has_its_phones_and_pauses_lie_between() {
        let list = [("nginx".to_owned(), "engine ex".to_owned())];
        for voice in Voice::ALL {
            let words = pronounce(voice, "Bob, 👍 ask nginx 42 - maps.", &list).unwrap();
            let found: Vec<String> = words.iter().map(phone_names).collect();
            assert_eq!(found[..3], ["b aa b", "", "ae s k"], "{voice:?}");
            assert_eq!(found[3], "eh n jh ax n eh k s", "{voice:?}");
            assert_eq!(found[4..], ["f ao r t iy t uw", "", "m ae p s"], "{voice:?}");
            assert!(words[2].pause > 0.05, "{voice:?}: after the comma {}", words[2].pause);
            assert_eq!(words[3].pause, 0.0, "{voice:?}");
            let phones = words.iter().flat_map(|word| &word.phones);
            let stressed = phones.filter(|phone| phone.stress).map(|phone| phone.name.as_str());
            let stressed: Vec<&str> = stressed.collect();
            assert_eq!(stressed, ["aa", "ae", "eh", "eh", "ao", "uw", "ae"], "{voice:?}");
            assert!(
                words.iter().flat_map(|w| &w.phones).all(|phone| phone.length > 0.0),
                "{voice:?}"
            );
        }
    }

    #[test]
    fn a_long_text_is_pronounced_in_parts_and_what_is_silent_not_at_all() {
        let text =
            "My brother may have moved the big apple box above the map of the farm by the river. "
                .repeat(9);
        let words = pronounce(Voice::Kal16, &text, &[]).unwrap();
        assert_eq!(words.len(), text.split_whitespace().count());
        assert!(words.iter().all(|word| !word.phones.is_empty()));
        assert_eq!(
            pronounce(Voice::Kal16, "... 👍", &[]).unwrap(),
            vec![WordPronunciation::default(); 2]
        );
        assert_eq!(pronounce(Voice::Kal16, "", &[]).unwrap(), []);
    }
}
