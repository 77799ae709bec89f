//! A chain of voices.
//!
//! A voice that fails is replaced within the segment. The next one speaks the words that have not
//! sounded; without word times it speaks the whole segment if none of it has sounded, else the next
//! segment. The change lasts to the end of the reply, because it is audible.
//!
//! With hedging, the first segment of a reply is given to the next voice, too, if its first sound is
//! late. The first voice that sounds speaks the reply; segments of it that wait move to that voice.

mod remaining;
mod replies;
mod speech;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use self::speech::{ChainState, Speech};
use super::ChainEntry;
use super::race::Hedge;
use crate::tts::{Event, Request, Tts};
use crate::{Error, Handle, Sink};

/// A TTS of a chain.
pub(crate) struct TtsEntry {
    pub(crate) entry: ChainEntry<dyn Tts>,
    /// Its voice; empty = the one that the request names, if the TTS has it, else the avatar's.
    pub(crate) voice: String,
}

/// The voices of one server or call, in the order in which they are tried.
pub(crate) struct TtsChain(ChainState);

struct CallEntry {
    entry: Arc<TtsEntry>,
    /// The instance for the call, opened when it is first used; empty outside of calls.
    instance: OnceLock<Arc<dyn Tts>>,
    is_call: bool,
}

impl CallEntry {
    /// The TTS. `like`: a request, with which the instance for the call is opened.
    fn tts(&self, like: &Request) -> &Arc<dyn Tts> {
        let shared = &self.entry.entry.model;
        if !self.is_call {
            return shared;
        }
        self.instance.get_or_init(|| {
            let like = Request { voice: self.voice(like), ..like.clone() };
            shared.open_call(&like).unwrap_or_else(|| Arc::clone(shared))
        })
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
    /// A chain of at least one TTS. With `hedge`, the first segment of a reply is given to the next
    /// one, too, if its first sound is late.
    pub(crate) fn new(entries: Vec<TtsEntry>, hedge: Option<Hedge>) -> Self {
        Self::with_entries(entries.into_iter().map(Arc::new), false, hedge)
    }

    fn with_entries(
        entries: impl Iterator<Item = Arc<TtsEntry>>,
        is_call: bool,
        hedge: Option<Hedge>,
    ) -> Self {
        let entry = |entry| CallEntry { entry, instance: OnceLock::new(), is_call };
        Self(ChainState {
            entries: entries.map(entry).collect(),
            warnings: Arc::default(),
            replies: Arc::default(),
            hedge,
        })
    }
}

impl Tts for TtsChain {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        let speech = {
            let mut replies = lock(&self.0.replies);
            let (reply, is_first) = (request.reply, replies.is_new(request.reply));
            let speech = Arc::new(Speech::new(self.0.clone(), request, is_first, sink));
            replies.add(reply, &speech);
            speech
        };
        speech.start(None)?;
        Ok(Handle::new(move || speech.cancel()))
    }

    fn open_call(&self, like: &Request) -> Option<Arc<dyn Tts>> {
        let entries = self.0.entries.iter().map(|entry| Arc::clone(&entry.entry));
        let chain = Self::with_entries(entries, true, self.0.hedge.clone());
        // The others are opened if they are needed: an open connection may be billed.
        if let Some(first) = chain.0.entries.first() {
            first.tts(like);
        }
        Some(Arc::new(chain))
    }

    fn cancel_reply(&self, reply: u64) {
        // An instance that was not opened has nothing to cancel.
        for entry in self.0.entries.iter().filter(|entry| entry.is_call) {
            entry.instance.get().inspect(|tts| tts.cancel_reply(reply));
        }
    }

    fn report_connected(&self, report: &mut dyn FnMut(&'static str, Duration)) {
        for entry in &*self.0.entries {
            if let Some(tts) = entry.opened() {
                tts.report_connected(&mut |_, time| report(entry.entry.entry.provider, time));
            }
        }
    }

    fn has_voice(&self, voice: &str) -> bool {
        self.0.entries.first().is_none_or(|entry| entry.entry.entry.model.has_voice(voice))
    }

    fn capacity_error(&self) -> Option<Error> {
        let errors = self.0.entries.iter().map(|entry| entry.entry.entry.model.capacity_error());
        errors.reduce(|first, next| first.and(next)).flatten()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod hedge_tests;
#[cfg(test)]
mod tests;
