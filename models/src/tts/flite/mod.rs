//! Flite: five English voices without a model file. The first audio takes 16 ms, the rest a
//! sixtieth of real time.
//!
//! A text is split into segments of about one sentence. flite computes all durations before the
//! first sample, so the phones and word ends of a segment are sent before its audio. flite
//! surrounds each utterance with silence of up to .2 s at either end, which would delay the answer.
//! Both silences are trimmed, and all times refer to the remaining audio.
//!
//! flite also supplies the pronunciation of what other voices speak: [`pronounce`].

mod ffi;
mod pronounce;
mod queue;

use crate::thread;
use std::sync::Arc;

use crossbeam_channel::Receiver;

use self::ffi::{Engine, Listener, Marks};
pub(super) use self::pronounce::{Pronounced, pronounce};
use self::queue::{Queue, Ticket};
use super::text::{self, Part};
use super::{Event, Phone, Request, Tts, Voice, Word, resolve};
use crate::contain::contained;
use crate::{Error, Handle, Kind, Sink};

/// Maximum length of a text, in bytes: about twenty minutes of speech. Longer texts are rejected.
const TEXT: usize = 20_000;
/// Silence that remains before the first phone and after the last one, in seconds.
const LEAD: f32 = 0.03;
const TAIL: f32 = 0.2;
/// Duration of the first chunk and of the others, in seconds. The first is short for a low latency.
const FIRST_CHUNK: f32 = 0.02;
const CHUNK: f32 = 0.1;

/// The built-in voices, on threads of their own.
pub struct Flite {
    queue: Queue<Job>,
}

struct Job {
    request: Request,
    sink: Sink<Event>,
}

impl Flite {
    /// Opens the library and starts `threads` threads (at least one). They first warm up the
    /// default voice.
    ///
    /// # Errors
    /// [`ErrorKind::NotAvailable`] if flite or its default voice is not installed.
    pub fn start(threads: usize) -> Result<Self, Error> {
        let missing = |reason: String| Error::new(Kind::Missing, reason);
        let engine = Engine::shared().map_err(missing)?;
        engine.has(Voice::Slt).map_err(missing)?;
        let (queue, jobs) = Queue::open();
        // The first utterance pages the voice in. It is an ordinary job, so a panic in it ends no
        // thread.
        queue.push(Job {
            request: Request { text: "Hello.".into(), voice: String::new(), pronunciation: Vec::new() },
            sink: Sink::new(|event| {
                if let Event::Failed(error) = event {
                    tracing::error!(%error, "the built-in voice fails at its warm-up");
                }
            }),
        });
        for n in 0..threads.max(1) {
            let jobs = jobs.clone();
            let started = thread::spawn(format!("model-tts-{n}"), move || work(engine, &jobs));
            started.map_err(|e| {
                Error::new(Kind::Broken, "a thread for the voice could not be started").with_source(e)
            })?;
        }
        Ok(Self { queue })
    }

    /// Number of texts that wait for a thread, and the maximum.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.queue.waiting(), queue::WAITING)
    }
}

impl Tts for Flite {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        let ticket = self.queue.push(Job { request, sink });
        let ticket = ticket.ok_or_else(|| Error::new(Kind::Busy, "too many texts wait for the voice"))?;
        Ok(Handle::new(move || ticket.cancel()))
    }

    fn knows(&self, voice: &str) -> bool {
        resolve(voice).1.is_none()
    }
}

/// Checks that `voice` can speak here.
///
/// # Errors
/// One sentence that says what to install.
pub fn installed(voice: Voice) -> Result<(), String> {
    Engine::shared()?.has(voice)
}

fn work(engine: &Engine, jobs: &Receiver<(Job, Arc<Ticket>)>) {
    for (job, ticket) in jobs {
        if ticket.begin() && contained(|| speak(engine, &job, &|| ticket.is_cancelled())).is_none() {
            job.sink.send(Event::Failed(Error::new(Kind::Broken, "the voice failed")));
        }
    }
}

fn speak(engine: &Engine, job: &Job, cancelled: &dyn Fn() -> bool) {
    let refuse = |reason| job.sink.send(Event::Failed(Error::new(Kind::Refused, reason)));
    if job.request.text.len() > TEXT {
        return refuse("the text is too long to be said");
    }
    let parts = text::parts(&job.request.text, &job.request.pronunciation);
    if parts.is_empty() {
        return refuse("there is no text to be said");
    }
    let (voice, _) = resolve(&job.request.voice);
    let mut speaker = Speaker::new(job, cancelled, voice.sample_rate());
    for part in &parts {
        speaker.begin(part);
        if part.spoken.is_empty() {
            // Only punctuation and emoji: reported as words, with a short silence as audio.
            speaker.marks(Marks { phones: vec![("pau".to_owned(), LEAD)], tokens: Vec::new() });
            let silence = vec![0; speaker.samples_in(LEAD)];
            speaker.samples(&silence);
        } else if let Err(reason) = engine.synthesise(voice, &part.spoken, &mut speaker) {
            return job.sink.send(Event::Failed(Error::new(Kind::Broken, reason)));
        }
        if cancelled() {
            return;
        }
        speaker.finish();
    }
    job.sink.send(Event::End);
}

/// Converts flite's utterances to the events of one request.
struct Speaker<'a> {
    job: &'a Job,
    cancelled: &'a dyn Fn() -> bool,
    sample_rate: u32,
    part: Option<&'a Part>,
    /// Number of samples sent in earlier segments, and in this one.
    before: usize,
    given: usize,
    /// Number of samples that flite made of this segment, and the range of them that is sent.
    made: usize,
    keep: std::ops::Range<usize>,
    chunk: Vec<i16>,
}

impl<'a> Speaker<'a> {
    fn new(job: &'a Job, cancelled: &'a dyn Fn() -> bool, sample_rate: u32) -> Self {
        Self {
            job,
            cancelled,
            sample_rate,
            part: None,
            before: 0,
            given: 0,
            made: 0,
            keep: 0..0,
            chunk: Vec::new(),
        }
    }

    fn begin(&mut self, part: &'a Part) {
        self.part = Some(part);
        self.before += std::mem::take(&mut self.given);
        self.made = 0;
    }

    fn samples_in(&self, seconds: f32) -> usize {
        (seconds.max(0.0) * self.sample_rate as f32).round() as usize
    }

    fn give(&mut self) {
        if !self.chunk.is_empty() {
            self.given += self.chunk.len();
            let pcm = std::mem::take(&mut self.chunk);
            self.job.sink.send(Event::Audio { pcm, sample_rate: self.sample_rate });
        }
    }

    fn finish(&mut self) {
        self.give();
    }
}

impl Listener for Speaker<'_> {
    fn marks(&mut self, marks: Marks) {
        let end = marks.phones.last().map_or(0.0, |(_, end)| *end);
        let first = marks.phones.first().filter(|(name, _)| name == "pau").map_or(0.0, |(_, end)| *end);
        // The last pause begins where the previous phone ends.
        let last = match marks.phones.as_slice() {
            [.., (_, sound), (name, _)] if name == "pau" => *sound,
            _ => end,
        };
        let (from, to) = ((first - LEAD).max(0.0), (last + TAIL).min(end));
        self.keep = self.samples_in(from)..self.samples_in(to);
        let base = self.before as f64 / f64::from(self.sample_rate);
        let time = |t: f32| base + f64::from(t.clamp(from, to) - from);

        let phones = marks.phones.into_iter().map(|(name, end)| Phone { name, end: time(end) as f32 });
        self.job.sink.send(Event::Phones(phones.collect()));

        let words = self.part.map_or(&[][..], |part| &part.words);
        let words = words.iter().zip(pronounce::ends(words, &marks.tokens)).map(|(word, end)| Word {
            text: word.written.clone(),
            // flite reports phones, so pauses between words are not needed.
            begin: None,
            end: time(end),
        });
        self.job.sink.send(Event::Words(words.collect()));
    }

    fn samples(&mut self, pcm: &[i16]) -> bool {
        if (self.cancelled)() {
            return false;
        }
        let (from, to) = (self.made, self.made + pcm.len());
        self.made = to;
        let kept = self.keep.start.clamp(from, to) - from..self.keep.end.clamp(from, to) - from;
        self.chunk.extend_from_slice(&pcm[kept.start.min(kept.end)..kept.end]);
        let enough = if self.before + self.given == 0 { FIRST_CHUNK } else { CHUNK };
        if self.chunk.len() >= self.samples_in(enough) {
            self.give();
        }
        true
    }
}
