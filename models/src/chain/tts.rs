//! A chain of voices.
//!
//! A voice that fails is replaced within the segment. The next one speaks the words that have not
//! sounded; without word times it speaks the whole segment if none of it has sounded, else the next
//! segment. The change lasts to the end of the reply, because it is audible.

mod remaining;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use self::remaining::Progress;
use super::ChainEntry;
use super::warnings::Warnings;
use crate::tts::{Event, Phone, Request, Tts, Word};
use crate::{Error, ErrorKind, Handle, Sink};

/// A TTS of a chain.
pub(crate) struct TtsEntry {
    pub(crate) entry: ChainEntry<dyn Tts>,
    /// Its voice; empty = the one that the request names, if the TTS has it, else the avatar's.
    pub(crate) voice: String,
}

/// The voices of one server or call, in the order in which they are tried.
pub(crate) struct TtsChain {
    entries: Arc<[CallEntry]>,
    warnings: Arc<Warnings>,
    /// The reply in which a voice has failed, and the first entry that may speak it.
    current: Arc<Mutex<(u64, usize)>>,
}

struct CallEntry {
    entry: Arc<TtsEntry>,
    /// The instance for the call, opened when it is first used; empty outside of calls.
    instance: OnceLock<Arc<dyn Tts>>,
    is_call: bool,
}

impl CallEntry {
    fn tts(&self) -> &Arc<dyn Tts> {
        let shared = &self.entry.entry.model;
        if !self.is_call {
            return shared;
        }
        self.instance.get_or_init(|| shared.open_call().unwrap_or_else(|| Arc::clone(shared)))
    }

    /// What has been opened so far.
    fn opened(&self) -> Option<&Arc<dyn Tts>> {
        if self.is_call { self.instance.get() } else { Some(&self.entry.entry.model) }
    }

    /// The voice for a request.
    fn voice(&self, request: &Request) -> String {
        let names = [&self.entry.voice, &request.voice, &request.avatar_voice];
        let has = |name: &&&String| !name.is_empty() && self.entry.entry.model.has_voice(name);
        names.iter().find(has).map(|name| (*name).clone()).unwrap_or_default()
    }
}

impl TtsChain {
    /// A chain of at least one TTS.
    pub(crate) fn new(entries: Vec<TtsEntry>) -> Self {
        Self::with_entries(entries.into_iter().map(Arc::new), false)
    }

    fn with_entries(entries: impl Iterator<Item = Arc<TtsEntry>>, is_call: bool) -> Self {
        let entry = |entry| CallEntry { entry, instance: OnceLock::new(), is_call };
        Self {
            entries: entries.map(entry).collect(),
            warnings: Arc::default(),
            current: Arc::default(),
        }
    }
}

impl Tts for TtsChain {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        let first = match *lock(&self.current) {
            (reply, first) if reply == request.reply => first,
            _ => 0,
        };
        let speech = Arc::new(Speech {
            entries: Arc::clone(&self.entries),
            warnings: Arc::clone(&self.warnings),
            current: Arc::clone(&self.current),
            progress: Mutex::new(Progress::new(&request.text)),
            request,
            sink,
            running: Mutex::default(),
        });
        speech.start(first, None)?;
        Ok(Handle::new(move || speech.cancel()))
    }

    fn open_call(&self) -> Option<Arc<dyn Tts>> {
        let entries = self.entries.iter().map(|entry| Arc::clone(&entry.entry));
        let chain = Self::with_entries(entries, true);
        // The others are opened if they are needed: an open connection may be billed.
        if let Some(first) = chain.entries.first() {
            first.tts();
        }
        Some(Arc::new(chain))
    }

    fn cancel_reply(&self, reply: u64) {
        // An instance that was not opened has nothing to cancel.
        for entry in self.entries.iter().filter(|entry| entry.is_call) {
            entry.instance.get().inspect(|tts| tts.cancel_reply(reply));
        }
    }

    fn report_connected(&self, report: &mut dyn FnMut(&'static str, Duration)) {
        for entry in &*self.entries {
            if let Some(tts) = entry.opened() {
                tts.report_connected(&mut |_, time| report(entry.entry.entry.provider, time));
            }
        }
    }

    fn has_voice(&self, voice: &str) -> bool {
        self.entries.first().is_none_or(|entry| entry.entry.entry.model.has_voice(voice))
    }

    fn capacity_error(&self) -> Option<Error> {
        let errors = self.entries.iter().map(|entry| entry.entry.entry.model.capacity_error());
        errors.reduce(|first, next| first.and(next)).flatten()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A segment and the voices that speak it, one after the other.
struct Speech {
    entries: Arc<[CallEntry]>,
    warnings: Arc<Warnings>,
    current: Arc<Mutex<(u64, usize)>>,
    request: Request,
    progress: Mutex<Progress>,
    sink: Sink<Event>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    entry: usize,
    handle: Option<Handle>,
    /// Whether the request was cancelled or has ended.
    is_over: bool,
    /// Sentences and providers that are sent with the next event: a sink is not called within
    /// `speak`.
    pending: Vec<Event>,
}

impl Speech {
    /// Lets the first entry from `from` that is not skipped speak what has not sounded. `failure`:
    /// why the one before it does not.
    ///
    /// # Errors
    /// The failure of the last entry. The sink was not called.
    fn start(self: &Arc<Self>, from: usize, failure: Option<Error>) -> Result<(), Error> {
        let mut reasons: Vec<String> = failure.iter().map(ToString::to_string).collect();
        let mut last_error = failure;
        for number in from..self.entries.len() {
            let CallEntry { entry, .. } = &self.entries[number];
            let admitted = entry.entry.breaker.as_ref().map_or(Ok(()), |b| b.admit(Instant::now()));
            if let Err(reason) = admitted {
                last_error = Some(Error::new(ErrorKind::NotAvailable, reason.clone()));
                reasons.push(reason);
                continue;
            }
            self.warn(&std::mem::take(&mut reasons), Some(&entry.entry.name));
            match self.speak(number) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    reasons.push(error.to_string());
                    last_error = Some(error);
                }
            }
        }
        self.warn(&reasons, None);
        let no_voice = || Error::new(ErrorKind::NotAvailable, "there is no voice");
        Err(last_error.unwrap_or_else(no_voice))
    }

    fn warn(&self, reasons: &[String], next: Option<&str>) {
        let sentences = reasons.iter().filter_map(|reason| self.warnings.sentence(reason, next));
        lock(&self.running).pending.extend(sentences.map(Event::Warning));
    }

    fn speak(self: &Arc<Self>, number: usize) -> Result<(), Error> {
        let entry = &self.entries[number];
        let (text, offset) = lock(&self.progress).remaining();
        {
            let mut running = lock(&self.running);
            if running.is_over {
                return Ok(());
            }
            running.entry = number;
            running.pending.push(Event::Provider(entry.entry.entry.provider));
        }
        if number > 0 {
            *lock(&self.current) = (self.request.reply, number);
        }
        let request = Request { text, voice: entry.voice(&self.request), ..self.request.clone() };
        let speech = Arc::clone(self);
        let sink = Sink::new(move |event| speech.on_event(number, offset, event));
        let handle = entry.tts().speak(request, sink).inspect_err(|error| {
            let breaker = entry.entry.entry.breaker.as_ref();
            breaker.inspect(|breaker| breaker.failed(Instant::now(), error));
        })?;
        let mut running = lock(&self.running);
        // It may have failed already, and the next one may speak.
        if running.entry == number && !running.is_over {
            running.handle = Some(handle);
        }
        Ok(())
    }

    /// An event of a entry. Its times count from `offset`.
    fn on_event(self: &Arc<Self>, number: usize, offset: f64, event: Event) {
        self.send_pending();
        let breaker = self.entries[number].entry.entry.breaker.as_ref();
        let event = match event {
            Event::Failed(error) => {
                breaker.inspect(|breaker| breaker.failed(Instant::now(), &error));
                return self.on_failure(number, error);
            }
            Event::Audio { pcm, sample_rate } => {
                lock(&self.progress).add_audio(pcm.len(), sample_rate);
                Event::Audio { pcm, sample_rate }
            }
            Event::Words(words) => {
                let later = |time: f64| time + offset;
                let words: Vec<Word> = words
                    .into_iter()
                    .map(|w| Word { begin: w.begin.map(later), end: later(w.end), ..w })
                    .collect();
                lock(&self.progress).add_words(&words);
                Event::Words(words)
            }
            Event::Phones(phones) => {
                let later = |phone: Phone| Phone { end: phone.end + offset as f32, ..phone };
                Event::Phones(phones.into_iter().map(later).collect())
            }
            Event::End => {
                breaker.inspect(|breaker| breaker.succeeded());
                lock(&self.running).is_over = true;
                Event::End
            }
            event => event,
        };
        self.sink.send(event);
    }

    fn on_failure(self: &Arc<Self>, number: usize, error: Error) {
        let next = number + 1;
        let last = match next < self.entries.len() {
            true if lock(&self.progress).can_continue() => match self.start(next, Some(error)) {
                Ok(()) => return,
                Err(error) => Event::Failed(error),
            },
            // The rest is unknown. The next voice speaks from the next segment on.
            true => {
                self.warn(&[error.to_string()], Some(&self.entries[next].entry.entry.name));
                *lock(&self.current) = (self.request.reply, next);
                Event::End
            }
            false => {
                self.warn(&[error.to_string()], None);
                Event::Failed(error)
            }
        };
        lock(&self.running).is_over = true;
        self.send_pending();
        self.sink.send(last);
    }

    fn send_pending(&self) {
        let pending = std::mem::take(&mut lock(&self.running).pending);
        pending.into_iter().for_each(|event| self.sink.send(event));
    }

    fn cancel(&self) {
        let (handle, entry, was_over) = {
            let mut running = lock(&self.running);
            let was_over = std::mem::replace(&mut running.is_over, true);
            (running.handle.take(), running.entry, was_over)
        };
        let breaker = self.entries.get(entry).and_then(|entry| entry.entry.entry.breaker.as_ref());
        if !was_over && let Some(breaker) = breaker {
            match lock(&self.progress).has_sounded() {
                true => breaker.succeeded(),
                false => breaker.abandoned(),
            }
        }
        drop(handle);
    }
}

#[cfg(test)]
mod tests;
