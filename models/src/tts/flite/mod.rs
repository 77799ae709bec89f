//! Flite: five English voices without a model file. The first audio takes 16 ms, the rest a
//! sixtieth of real time.
//!
//! A text is split into segments of about one sentence. flite computes all durations before the
//! first sample. The phones and word ends of a segment are therefore sent before its audio.
//!
//! flite adds up to .2 s of silence at each end of an utterance, which would delay the answer. Both
//! silences are trimmed. All times refer to the remaining audio.
//!
//! flite also supplies the pronunciation of text that other voices speak: [`pronounce`].

mod ffi;
mod pronounce;
mod prosody;
mod stress;
mod tone;

use self::ffi::{Engine, SpeechMarks, SynthesisListener};
pub(super) use self::pronounce::{PronouncedPhone, WordPronunciation, pronounce};
use self::tone::VoiceTone;
use super::pool::{MAX_TEXT_BYTES, SynthesisJob, SynthesisPool};
use super::text::{self, TextSegment};
use super::{Event, Phone, Request, Tts, Voice, Word, resolve_voice};
use crate::{Error, ErrorKind, Handle, Sink};

/// Silence that remains before the first phone and after the last one, in seconds.
const LEADING_SILENCE_SECONDS: f32 = 0.03;
const TRAILING_SILENCE_SECONDS: f32 = 0.2;
/// Duration of the first chunk and of the others, in seconds. The first is short for a low latency.
const FIRST_CHUNK_SECONDS: f32 = 0.02;
const CHUNK_SECONDS: f32 = 0.1;
/// Seed of the noise in repeatable speech.
const NOISE_SEED: u32 = 1;

/// The built-in voices, on threads of their own.
pub struct Flite {
    pool: SynthesisPool,
}

impl Flite {
    /// Opens the library and starts `threads` threads (at least one). They first warm up the
    /// default voice.
    ///
    /// # Errors
    /// [`ErrorKind::NotAvailable`] if flite or its default voice is not installed.
    pub fn start(threads: usize) -> Result<Self, Error> {
        Self::start_with_noise(threads, None)
    }

    /// Like [`Self::start`] with one thread. Equal texts give equal samples, in any order. The noise
    /// of a voice comes from the C library's generator, so nothing else in the process may use it
    /// meanwhile.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_repeatable() -> Result<Self, Error> {
        Self::start_with_noise(1, Some(NOISE_SEED))
    }

    fn start_with_noise(threads: usize, seed: Option<u32>) -> Result<Self, Error> {
        let missing = |reason: String| Error::new(ErrorKind::NotAvailable, reason);
        let engine = Engine::shared().map_err(missing)?;
        engine.check_voice(Voice::Slt).map_err(missing)?;
        // The first utterance pages the voice in. It is an ordinary job, so a panic in it ends no
        // thread.
        let warm_up = [SynthesisJob::warm_up("flite")];
        let pool = SynthesisPool::start("model-tts", threads.max(1), warm_up, move || {
            Ok(move |job: &SynthesisJob, is_cancelled: &dyn Fn() -> bool| {
                synthesise_job(engine, seed, job, is_cancelled);
            })
        })?;
        Ok(Self { pool })
    }

    /// Number of texts that wait for a thread, and the maximum.
    #[must_use]
    pub fn queue_usage(&self) -> (usize, usize) {
        self.pool.queue_usage()
    }

    /// One sentence about its threads that have failed; `None` if all work.
    #[must_use]
    pub fn failure_message(&self) -> Option<String> {
        self.pool.failure_message()
    }
}

impl Tts for Flite {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        self.pool.speak(request, sink)
    }

    fn has_voice(&self, voice: &str) -> bool {
        resolve_voice(voice).1.is_none()
    }

    fn capacity_error(&self) -> Option<Error> {
        self.pool.failure()
    }
}

/// Checks that `voice` can speak here.
///
/// # Errors
/// One sentence that says what to install.
pub fn check_installed(voice: Voice) -> Result<(), String> {
    Engine::shared()?.check_voice(voice)
}

fn synthesise_job(
    engine: &Engine,
    seed: Option<u32>,
    job: &SynthesisJob,
    cancelled: &dyn Fn() -> bool,
) {
    if job.request.text.len() > MAX_TEXT_BYTES {
        return job.refuse("the text is too long");
    }
    let segments = text::split_segments(&job.request.text, &job.request.pronunciation);
    if segments.is_empty() {
        return job.refuse("the text contains nothing to speak");
    }
    let (voice, _) = resolve_voice(&job.request.voice);
    let mut emitter = EventEmitter::new(job, cancelled, voice);
    for part in &segments {
        emitter.start_segment(part);
        if part.spoken.is_empty() {
            // Only punctuation and emoji: reported as words, with a short silence as audio.
            emitter.on_marks(SpeechMarks {
                phones: vec![Phone::new("pau", LEADING_SILENCE_SECONDS)],
                tokens: Vec::new(),
            });
            let silence = vec![0; emitter.sample_count(LEADING_SILENCE_SECONDS)];
            emitter.on_samples(&silence);
        } else if let Err(reason) = engine.synthesise(voice, seed, &part.spoken, &mut emitter) {
            return job.sink.send(Event::Failed(Error::new(ErrorKind::Failed, reason)));
        }
        if cancelled() {
            return;
        }
        emitter.finish_segment();
    }
    job.sink.send(Event::End);
}

/// Converts flite's utterances to the events of one request.
struct EventEmitter<'a> {
    job: &'a SynthesisJob,
    cancelled: &'a dyn Fn() -> bool,
    sample_rate: u32,
    segment: Option<&'a TextSegment>,
    /// Number of samples sent in earlier segments, and in this one.
    samples_before: usize,
    samples_sent: usize,
    /// Number of samples that flite made of this segment, and the range of them that is sent.
    samples_made: usize,
    sent_range: std::ops::Range<usize>,
    chunk: Vec<i16>,
    tone: Option<VoiceTone>,
}

impl<'a> EventEmitter<'a> {
    fn new(job: &'a SynthesisJob, cancelled: &'a dyn Fn() -> bool, voice: Voice) -> Self {
        Self {
            job,
            cancelled,
            sample_rate: voice.sample_rate(),
            segment: None,
            samples_before: 0,
            samples_sent: 0,
            samples_made: 0,
            sent_range: 0..0,
            chunk: Vec::new(),
            tone: VoiceTone::new(voice),
        }
    }

    fn start_segment(&mut self, part: &'a TextSegment) {
        self.segment = Some(part);
        self.samples_before += std::mem::take(&mut self.samples_sent);
        self.samples_made = 0;
    }

    fn sample_count(&self, seconds: f32) -> usize {
        (seconds.max(0.0) * self.sample_rate as f32).round() as usize
    }

    fn flush_chunk(&mut self) {
        if !self.chunk.is_empty() {
            self.samples_sent += self.chunk.len();
            let pcm = std::mem::take(&mut self.chunk);
            self.job.sink.send(Event::Audio { pcm, sample_rate: self.sample_rate });
        }
    }

    fn finish_segment(&mut self) {
        self.flush_chunk();
    }
}

impl SynthesisListener for EventEmitter<'_> {
    fn on_marks(&mut self, marks: SpeechMarks) {
        let end = marks.phones.last().map_or(0.0, |phone| phone.end);
        let first =
            marks.phones.first().filter(|phone| phone.name == "pau").map_or(0.0, |pause| pause.end);
        // The last pause begins where the previous phone ends.
        let last = match marks.phones.as_slice() {
            [.., sound, pause] if pause.name == "pau" => sound.end,
            _ => end,
        };
        let (from, to) = (
            (first - LEADING_SILENCE_SECONDS).max(0.0),
            (last + TRAILING_SILENCE_SECONDS).min(end),
        );
        self.sent_range = self.sample_count(from)..self.sample_count(to);
        let base = self.samples_before as f64 / f64::from(self.sample_rate);
        let time = |t: f32| base + f64::from(t.clamp(from, to) - from);

        let phones =
            marks.phones.into_iter().map(|phone| Phone { end: time(phone.end) as f32, ..phone });
        self.job.sink.send(Event::Phones(phones.collect()));

        let words = self.segment.map_or(&[][..], |part| &part.words);
        let words =
            words.iter().zip(pronounce::word_end_times(words, &marks.tokens)).map(|(word, end)| {
                Word {
                    text: word.written.clone(),
                    // flite reports phones, so pauses between words are not needed.
                    begin: None,
                    end: time(end),
                }
            });
        self.job.sink.send(Event::Words(words.collect()));
    }

    fn on_samples(&mut self, pcm: &[i16]) -> bool {
        if (self.cancelled)() {
            return false;
        }
        let (from, to) = (self.samples_made, self.samples_made + pcm.len());
        self.samples_made = to;
        let sent = self.sent_range.start.clamp(from, to) - from
            ..self.sent_range.end.clamp(from, to) - from;
        let filled = self.chunk.len();
        self.chunk.extend_from_slice(&pcm[sent.start.min(sent.end)..sent.end]);
        if let Some(tone) = &mut self.tone {
            tone.process(&mut self.chunk[filled..]);
        }
        let enough = if self.samples_before + self.samples_sent == 0 {
            FIRST_CHUNK_SECONDS
        } else {
            CHUNK_SECONDS
        };
        if self.chunk.len() >= self.sample_count(enough) {
            self.flush_chunk();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request { text: text.into(), voice: String::new(), ..Request::default() }
    }

    #[test]
    fn voices_refuse_at_once_while_all_their_threads_have_failed() {
        let (pool, health, jobs) = SynthesisPool::without_threads(2);
        let flite = Flite { pool };
        let speak = || flite.speak(request("hello"), Sink::new(|_| ())).map(drop);
        health.set_failed(1, "it panicked");
        assert!(speak().is_ok(), "the other thread speaks");
        assert_eq!(
            flite.failure_message().unwrap(),
            "TTS threads that have failed and are restarting: 1 of 2 (it panicked)"
        );
        health.set_failed(0, "it panicked");
        let error = speak().unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::NotAvailable, "the TTS threads have failed")
        );
        health.set_working(0);
        assert!(speak().is_ok() && flite.capacity_error().is_none());
        assert_eq!(jobs.len(), 2);
    }
}
