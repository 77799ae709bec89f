//! Speaks texts: one thread's networks, and the events of a request.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::files;
use super::frontend::{Frontend, Symbol};
use super::network::Network;
use super::sentence::{chunks, sentences};
use super::timing::{MarkedPhone, Marks, Silence, is_sound};
use super::unknown_words::UnknownWords;
use super::vocoder::{SAMPLE_RATE, Vocoder};
use crate::tts::pool::{MAX_TEXT_BYTES, SynthesisJob};
use crate::tts::stress::is_function_word;
use crate::tts::text::apply_pronunciation;
use crate::tts::{Event, Phone, Word};
use crate::{Error, ErrorKind, onnx_runtime, paths};

/// Factor of the samples, with which the speech is as loud as that of flite's voices
/// (`models/tests/hibari.rs` compares them).
const GAIN: f32 = 2.2;
/// Amplitude above which peaks are compressed, so that none is clipped.
const KNEE: f32 = 0.75;
/// Silence before the first sound of a request, in seconds. A sound may begin some 20 ms early.
const FIRST_SILENCE: f32 = 0.05;
/// Silence at both ends of a chunk within a sentence, and of a sentence, in seconds.
const CLAUSE_SILENCE: Silence = Silence { leading: 0.05, trailing: 0.1 };
const SENTENCE_SILENCE: Silence = Silence { leading: 0.15, trailing: 0.2 };
/// Samples of a chunk without sound: 30 ms.
const SILENT_CHUNK: usize = SAMPLE_RATE as usize * 3 / 100;
/// Samples at both ends of a chunk over which its volume rises and falls: 5 ms.
const FADE: usize = 120;
/// Seed of the noise. It is the same for each request, so that a text always sounds the same.
const SEED: u64 = 1;

/// What all threads share: from text to phoneme numbers.
pub(super) struct TextModel {
    frontend: Frontend,
    unknown_words: Mutex<UnknownWords>,
    /// Numbers of the phonemes that the acoustic network knows.
    vocabulary: BTreeMap<char, i64>,
}

impl TextModel {
    /// # Errors
    /// One sentence that says what is missing or damaged, and what to do.
    pub(super) fn load(models_dir: &Path) -> Result<Self, String> {
        let read = |name| files::read(models_dir, name);
        let failed = |name: &'static str| {
            move |why: String| {
                let path = files::path(models_dir, name);
                format!("cannot load {} ({why}): remove it and run `make setup`", path.display())
            }
        };
        let environment = onnx_runtime::environment(&paths::onnx_runtime(models_dir))?;
        let frontend = Frontend::parse(
            &read(files::GOLD_LEXICON)?,
            &read(files::SILVER_LEXICON)?,
            &read(files::TAGGER)?,
        )
        .map_err(failed(files::GOLD_LEXICON))?;
        let unknown_words = UnknownWords::load(
            &environment,
            &read(files::UNKNOWN_WORDS)?,
            &read(files::UNKNOWN_WORDS_ALPHABET)?,
        )
        .map_err(failed(files::UNKNOWN_WORDS))?;
        let vocabulary = serde_json::from_slice(&read(files::VOCABULARY)?)
            .map_err(|error| failed(files::VOCABULARY)(error.to_string()))?;
        Ok(Self { frontend, unknown_words: Mutex::new(unknown_words), vocabulary })
    }

    /// Symbols of a sentence that the acoustic network knows.
    pub(super) fn symbols(&self, words: &[String]) -> Vec<Symbol> {
        let unknown = |word: &str| {
            self.unknown_words.lock().unwrap_or_else(PoisonError::into_inner).pronounce(word)
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut symbols = self.frontend.symbols(&words, &unknown);
        symbols.retain(|symbol| self.vocabulary.contains_key(&symbol.symbol));
        symbols
    }

    /// Phoneme numbers of symbols, with the 0 that begins and ends each chunk.
    fn ids(&self, symbols: &[Symbol]) -> Vec<i64> {
        let known = symbols.iter().filter_map(|s| self.vocabulary.get(&s.symbol).copied());
        std::iter::once(0).chain(known).chain([0]).collect()
    }
}

/// The networks of one thread.
pub(super) struct Speaker {
    text_model: Arc<TextModel>,
    network: Network,
    vocoder: Vocoder,
}

impl Speaker {
    /// # Errors
    /// One sentence that says what is missing or damaged, and what to do.
    pub(super) fn load(models_dir: &Path, text_model: Arc<TextModel>) -> Result<Self, String> {
        let environment = onnx_runtime::environment(&paths::onnx_runtime(models_dir))?;
        let file = files::read(models_dir, files::ACOUSTIC)?;
        let loaded = Network::load(&environment, &file);
        drop(file);
        onnx_runtime::release_free_memory();
        let network = loaded.map_err(|why| {
            let path = files::path(models_dir, files::ACOUSTIC);
            format!("cannot load {} ({why}): remove it and run `make setup`", path.display())
        })?;
        Ok(Self { text_model, network, vocoder: Vocoder::new() })
    }

    /// Speaks the text of `job` and sends its events.
    pub(super) fn speak(&mut self, job: &SynthesisJob, cancelled: &dyn Fn() -> bool) {
        if job.request.text.len() > MAX_TEXT_BYTES {
            return job.refuse("the text is too long");
        }
        let text = WrittenText::new(&job.request.text, &job.request.pronunciation);
        if text.words.is_empty() {
            return job.refuse("the text contains nothing to speak");
        }
        self.vocoder.seed(SEED);
        let mut progress = Progress { job, cancelled, samples_sent: 0 };
        for sentence in sentences(&text.words, &text.starts_line) {
            if let Err(reason) = self.speak_sentence(&text, sentence, &mut progress) {
                return job.sink.send(Event::Failed(Error::new(ErrorKind::Failed, reason)));
            }
            if cancelled() {
                return;
            }
        }
        job.sink.send(Event::End);
    }

    fn speak_sentence(
        &mut self,
        text: &WrittenText<'_>,
        sentence: Range<usize>,
        progress: &mut Progress<'_>,
    ) -> Result<(), String> {
        let (sounds, owners) = text.sounds(sentence.clone());
        let mut symbols = self.text_model.symbols(&sounds);
        for symbol in &mut symbols {
            symbol.word = owners.get(symbol.word).copied().unwrap_or(sentence.start);
        }
        let ranges = chunks(&symbols, progress.samples_sent == 0);
        let mut first_word = sentence.start;
        for (n, range) in ranges.iter().enumerate() {
            if (progress.cancelled)() {
                return Ok(());
            }
            let is_last = n + 1 == ranges.len();
            let silence = Silence {
                leading: match n {
                    _ if progress.samples_sent == 0 => FIRST_SILENCE,
                    0 => SENTENCE_SILENCE.leading,
                    _ => CLAUSE_SILENCE.leading,
                },
                trailing: if is_last { SENTENCE_SILENCE } else { CLAUSE_SILENCE }.trailing,
            };
            // A word that continues in the next chunk ends there. Words without sound belong to the
            // chunk of the word before them.
            let rest = &symbols[range.end..];
            let next = rest.iter().find(|symbol| is_sound(symbol.symbol)).map(|next| next.word);
            let end = if is_last { sentence.end } else { next.unwrap_or(sentence.end) };
            let words = first_word..end.max(first_word);
            first_word = words.end;
            let symbols = trim_blanks(&symbols[range.clone()]);
            self.speak_chunk(symbols, silence, &text.words, words, progress)?;
        }
        Ok(())
    }

    /// Speaks `symbols` and reports the written words of the range `words`.
    fn speak_chunk(
        &mut self,
        symbols: &[Symbol],
        silence: Silence,
        written: &[&str],
        words: Range<usize>,
        progress: &mut Progress<'_>,
    ) -> Result<(), String> {
        if !symbols.iter().any(|symbol| is_sound(symbol.symbol)) {
            // Only punctuation and emoji: reported as words, with a short silence as audio.
            let phones = vec![MarkedPhone::pause(SILENT_CHUNK)];
            let marks = Marks { range: 0..SILENT_CHUNK, phones, words: Vec::new() };
            progress.send_marks(&marks, written, words);
            progress.send_audio(vec![0; SILENT_CHUNK]);
            return Ok(());
        }
        let Self { text_model, network, vocoder } = self;
        let ids = text_model.ids(symbols);
        let is_content_word =
            |word: usize| written.get(word).is_none_or(|word| !is_function_word(word));
        network.run(&ids, |durations, spectra| {
            let marks = Marks::new(symbols, durations, silence, is_content_word);
            progress.send_marks(&marks, written, words);
            let (total, mut position) = (marks.range.len(), 0);
            vocoder.synthesise(spectra, marks.range, |samples| {
                if (progress.cancelled)() {
                    return false;
                }
                progress.send_audio(to_pcm(samples, position, total));
                position += samples.len();
                true
            });
        })
    }
}

/// The symbols without blanks at both ends.
fn trim_blanks(symbols: &[Symbol]) -> &[Symbol] {
    let is_audible = |symbol: &Symbol| symbol.symbol != ' ';
    let start = symbols.iter().position(is_audible).unwrap_or(symbols.len());
    let end = symbols.iter().rposition(is_audible).map_or(start, |at| at + 1);
    &symbols[start..end]
}

/// The words of a request.
struct WrittenText<'a> {
    words: Vec<&'a str>,
    /// Whether each word begins a line.
    starts_line: Vec<bool>,
    pronunciation: &'a [(String, String)],
}

impl<'a> WrittenText<'a> {
    fn new(text: &'a str, pronunciation: &'a [(String, String)]) -> Self {
        let (mut words, mut starts_line) = (Vec::new(), Vec::new());
        for line in text.lines() {
            for (n, word) in line.split_whitespace().enumerate() {
                words.push(word);
                starts_line.push(n == 0);
            }
        }
        Self { words, starts_line, pronunciation }
    }

    /// What is spoken for the words of a range, and the written word of each part of it.
    fn sounds(&self, range: Range<usize>) -> (Vec<String>, Vec<usize>) {
        let (mut sounds, mut owners) = (Vec::new(), Vec::new());
        for at in range {
            let sound = apply_pronunciation(self.words[at], self.pronunciation);
            for part in sound.split_whitespace() {
                sounds.push(part.to_owned());
                owners.push(at);
            }
        }
        (sounds, owners)
    }
}

/// The events of a request so far.
struct Progress<'a> {
    job: &'a SynthesisJob,
    cancelled: &'a dyn Fn() -> bool,
    samples_sent: usize,
}

impl Progress<'_> {
    /// Sends the phones and the words of a chunk.
    fn send_marks(&self, marks: &Marks, written: &[&str], words: Range<usize>) {
        let seconds = |at: usize| (self.samples_sent + at) as f64 / f64::from(SAMPLE_RATE);
        let phones = marks.phones.iter();
        let phone = |phone: &MarkedPhone| Phone {
            name: phone.name.to_owned(),
            end: seconds(phone.end) as f32,
            stress: phone.stress,
        };
        self.job.sink.send(Event::Phones(phones.map(phone).collect()));
        let mut end = 0;
        let word = |at: usize| {
            let spoken = marks.words.iter().rfind(|(word, _)| *word == at);
            end = spoken.map_or(end, |(_, spoken)| end.max(*spoken));
            let text = written.get(at).copied().unwrap_or_default().to_owned();
            // The phones have the pauses between words.
            Word { text, begin: None, end: seconds(end) }
        };
        let words: Vec<Word> = words.map(word).collect();
        if !words.is_empty() {
            self.job.sink.send(Event::Words(words));
        }
    }

    fn send_audio(&mut self, pcm: Vec<i16>) {
        self.samples_sent += pcm.len();
        self.job.sink.send(Event::Audio { pcm, sample_rate: SAMPLE_RATE });
    }
}

/// Samples in 16 bits. `position` is that of the first one among the `total` samples of its chunk,
/// which is faded in and out.
fn to_pcm(samples: &[f32], position: usize, total: usize) -> Vec<i16> {
    let convert = |(at, sample): (usize, &f32)| {
        let at = position + at;
        let edge = (at + 1).min(total.saturating_sub(at)).min(FADE);
        let volume = edge as f32 / FADE as f32;
        (limit(sample * GAIN) * volume * 32_767.0) as i16
    };
    samples.iter().enumerate().map(convert).collect()
}

/// A sample between -1 and 1. Above [`KNEE`] it approaches 1 smoothly.
fn limit(sample: f32) -> f32 {
    let excess = sample.abs() - KNEE;
    if excess <= 0.0 {
        return sample;
    }
    let room = 1.0 - KNEE;
    (KNEE + room * (excess / room).tanh()).copysign(sample)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::vocoder::UNIT;
    use super::*;

    /// A sentence of `models/tests/hibari/expected.py`.
    #[derive(serde::Deserialize)]
    struct Expected {
        phonemes: String,
        samples: usize,
    }

    #[test]
    fn the_durations_add_up_to_the_length_of_the_reference() {
        let dir = crate::tts::hibari::frontend::test_models_dir();
        let text_model = TextModel::load(&dir).unwrap_or_else(|why| panic!("{why}"));
        let mut speaker = Speaker::load(&dir, Arc::new(text_model)).unwrap();
        let json = include_str!("../../../tests/hibari/expected.json");
        let expected: HashMap<String, Expected> = serde_json::from_str(json).unwrap();
        let mut different = 0;
        for Expected { phonemes, samples } in expected.values() {
            let symbols: Vec<Symbol> =
                phonemes.chars().map(|symbol| Symbol { symbol, word: 0 }).collect();
            let ids = speaker.text_model.ids(&symbols);
            let (durations, length) = speaker
                .network
                .run(&ids, |durations, spectra| (durations.to_vec(), spectra.samples()))
                .unwrap();
            assert_eq!(durations.len(), ids.len());
            assert_eq!(durations.iter().sum::<i64>() as usize * UNIT, length, "{phonemes}");
            different += length.abs_diff(*samples) / UNIT;
        }
        // The network computes in 8 bits. Processors with other instructions round differently.
        assert!(different <= expected.len() / 2, "{different} units");
    }

    #[test]
    fn samples_are_faded_at_the_ends_of_their_chunk_and_limited() {
        let pcm = to_pcm(&[0.2; 1_000], 0, 1_000);
        let full = (0.2 * GAIN * 32_767.0) as i16;
        assert!(pcm[0] < full / 50 && pcm[999] < full / 50);
        assert!(pcm[FADE..1_000 - FADE].iter().all(|x| *x == full));
        assert_eq!(to_pcm(&[9.0, -9.0], 500, 1_000), [i16::MAX, -i16::MAX]);
        let rising: Vec<f32> = (0..200).map(|n| limit(n as f32 / 100.0)).collect();
        assert!(rising.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 1.0));
    }

    #[test]
    fn lines_words_and_their_pronunciation_are_separated() {
        let list = [("nginx".to_owned(), "engine ex".to_owned())];
        let text = WrittenText::new("Use nginx,\n\n now.", &list);
        assert_eq!(text.words, ["Use", "nginx,", "now."]);
        assert_eq!(text.starts_line, [true, false, true]);
        let (sounds, owners) = text.sounds(0..3);
        assert_eq!(sounds, ["Use", "engine", "ex,", "now."]);
        assert_eq!(owners, [0, 1, 1, 2]);
    }

    #[test]
    fn blanks_around_a_chunk_are_left_out() {
        let all: Vec<Symbol> = " a b ".chars().map(|symbol| Symbol { symbol, word: 0 }).collect();
        assert_eq!(trim_blanks(&all), &all[1..4]);
        assert!(trim_blanks(&all[..1]).is_empty() && trim_blanks(&[]).is_empty());
    }
}
