//! One segment, and the voices that speak it.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::remaining::Progress;
use super::replies::Replies;
use super::{CallEntry, lock};
use crate::breaker::Breaker;
use crate::chain::outbox::Outbox;
use crate::chain::race::{Decision, Failure, Hedge, Race};
use crate::chain::warnings::Warnings;
use crate::tts::{Event, Phone, Request, Word};
use crate::{Error, ErrorKind, Sink};

/// A segment and the voices that speak it, one after the other. While the first sound of a reply is
/// late, two prepare it.
pub(super) struct Speech {
    entries: Arc<[CallEntry]>,
    warnings: Arc<Warnings>,
    replies: Arc<Mutex<Replies<Self>>>,
    hedge: Option<Hedge>,
    /// Whether it begins a reply. Other segments are not hedged: their voice is known.
    is_first: bool,
    request: Request,
    /// A sink is not called within [`speak`](crate::tts::Tts::speak): what is pushed there is sent
    /// with the next event.
    outbox: Outbox<Event>,
    state: Mutex<State>,
}

struct State {
    race: Race,
    progress: Progress,
    /// Words and phones that came before the first sound, and whose they are. Without hedging they
    /// are sent at once.
    marks: Vec<(usize, Event)>,
}

/// What a chain shares with its segments.
#[derive(Clone)]
pub(super) struct ChainState {
    pub(super) entries: Arc<[CallEntry]>,
    pub(super) warnings: Arc<Warnings>,
    pub(super) replies: Arc<Mutex<Replies<Speech>>>,
    pub(super) hedge: Option<Hedge>,
}

impl Speech {
    pub(super) fn new(
        shared: ChainState,
        request: Request,
        is_first: bool,
        sink: Sink<Event>,
    ) -> Self {
        let ChainState { entries, warnings, replies, hedge } = shared;
        let progress = Progress::new(&request.text);
        Self {
            entries,
            warnings,
            replies,
            hedge,
            is_first,
            request,
            outbox: Outbox::new(sink),
            state: Mutex::new(State { race: Race::default(), progress, marks: Vec::new() }),
        }
    }

    fn breaker(&self, number: usize) -> Option<&Breaker> {
        self.entries[number].entry.entry.breaker.as_deref()
    }

    fn name(&self, number: usize) -> &str {
        &self.entries[number].entry.entry.name
    }

    fn provider(&self, number: usize) -> &'static str {
        self.entries[number].entry.entry.provider
    }

    /// Lets the next entry that is not skipped speak what has not sounded. `failure`: why the one
    /// before it does not.
    ///
    /// # Errors
    /// The failure of the last entry. The sink was not called.
    pub(super) fn start(self: &Arc<Self>, failure: Option<Error>) -> Result<(), Error> {
        let mut reasons: Vec<String> = failure.iter().map(ToString::to_string).collect();
        let mut last_error = failure;
        let first = {
            let mut state = lock(&self.state);
            state.race.skip_to(lock(&self.replies).first_entry(self.request.reply));
            state.race.next()
        };
        for number in first..self.entries.len() {
            let admitted = self.breaker(number).map_or(Ok(()), |b| b.admit(Instant::now()));
            if let Err(reason) = admitted {
                last_error = Some(Error::new(ErrorKind::NotAvailable, reason.clone()));
                reasons.push(reason);
                continue;
            }
            self.warn(&std::mem::take(&mut reasons), Some(self.name(number)));
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
        sentences.for_each(|sentence| self.outbox.push(Event::Warning(sentence)));
    }

    fn speak(self: &Arc<Self>, number: usize) -> Result<(), Error> {
        let (text, offset) = {
            let mut state = lock(&self.state);
            let Some(part) = self.add(&mut state, number) else { return Ok(()) };
            self.set_timer(&mut state.race, number);
            part
        };
        if number > 0 {
            lock(&self.replies).change_voice(self.request.reply, number);
        }
        self.send(number, text, offset).inspect_err(|error| {
            drop(lock(&self.state).race.fail(number));
            self.breaker(number).inspect(|breaker| breaker.failed(Instant::now(), error));
        })
    }

    /// Adds an entry to those that speak, before [`send`](Self::send). Returns the text for it, and
    /// the time at which it begins. `None` if it must not speak.
    fn add(&self, state: &mut State, number: usize) -> Option<(String, f64)> {
        if !state.race.add(number) {
            self.breaker(number).inspect(|breaker| breaker.abandoned());
            return None;
        }
        self.outbox.push(Event::Provider(self.provider(number)));
        Some(state.progress.remaining())
    }

    /// Sets the timer after which the next entry speaks the same, too.
    fn set_timer(self: &Arc<Self>, race: &mut Race, number: usize) {
        if let Some(hedge) = &self.hedge
            && self.is_first
            && race.next() < self.entries.len()
        {
            let speech = Arc::clone(self);
            race.set_timer(hedge.timer(move || speech.hedge(number)));
        }
    }

    fn send(self: &Arc<Self>, number: usize, text: String, offset: f64) -> Result<(), Error> {
        let entry = &self.entries[number];
        let request = Request { text, voice: entry.voice(&self.request), ..self.request.clone() };
        let speech = Arc::clone(self);
        let sink = Sink::new(move |event| speech.on_event(number, offset, event));
        let handle = entry.tts(&request).speak(request, sink)?;
        // It may have failed already, or the other one has sounded.
        let unused = lock(&self.state).race.set_handle(number, handle);
        drop(unused);
        Ok(())
    }

    /// Lets the next entry speak the same, too, because `slow` has not sounded.
    fn hedge(self: &Arc<Self>, slow: usize) {
        let admits =
            |number: &usize| self.breaker(*number).is_none_or(|b| b.admit(Instant::now()).is_ok());
        let (number, text, offset) = {
            let mut state = lock(&self.state);
            let mut next = state.race.next()..self.entries.len();
            let number = if state.race.is_waiting(slow) { next.find(admits) } else { None };
            let Some(number) = number else { return };
            let Some((text, offset)) = self.add(&mut state, number) else { return };
            (number, text, offset)
        };
        if let Err(error) = self.send(number, text, offset) {
            self.on_failure(number, error);
        }
        self.outbox.flush();
    }

    /// An event of an entry. Its times count from `offset`.
    fn on_event(self: &Arc<Self>, number: usize, offset: f64, event: Event) {
        match event {
            Event::Failed(error) => self.on_failure(number, error),
            // Billed in any case.
            Event::Usage { provider: "", characters } => {
                self.outbox.push(Event::Usage { provider: self.provider(number), characters });
            }
            event @ Event::Usage { .. } => self.outbox.push(event),
            Event::Words(words) => {
                let later = |time: f64| time + offset;
                let words = words
                    .into_iter()
                    .map(|w| Word { begin: w.begin.map(later), end: later(w.end), ..w })
                    .collect();
                self.on_mark(number, Event::Words(words));
            }
            Event::Phones(phones) => {
                let later = |phone: Phone| Phone { end: phone.end + offset as f32, ..phone };
                self.on_mark(number, Event::Phones(phones.into_iter().map(later).collect()));
            }
            Event::Audio { pcm, .. } if pcm.is_empty() => {}
            event @ (Event::Audio { .. } | Event::End) => self.on_sound(number, event),
            event @ (Event::Warning(_) | Event::Provider(_) | Event::ServedBy(_)) => {
                let state = lock(&self.state);
                if state.race.is_running(number) {
                    self.outbox.push(event);
                }
            }
        }
        self.outbox.flush();
    }

    fn on_mark(&self, number: usize, event: Event) {
        let mut state = lock(&self.state);
        if !state.race.is_running(number) {
            return;
        }
        // Another voice may be the first one to sound, and its words have other times.
        if self.hedge.is_some() && !state.race.has_won(number) {
            state.marks.push((number, event));
        } else {
            self.deliver(&mut state.progress, event);
        }
    }

    fn deliver(&self, progress: &mut Progress, event: Event) {
        match &event {
            Event::Audio { pcm, sample_rate } => progress.add_audio(pcm.len(), *sample_rate),
            Event::Words(words) => progress.add_words(words),
            _ => {}
        }
        self.outbox.push(event);
    }

    /// Sound, or the end of a segment.
    fn on_sound(self: &Arc<Self>, number: usize, event: Event) {
        let mut state = lock(&self.state);
        let loser = match state.race.decide(number) {
            Decision::Lost => return,
            Decision::Known => None,
            Decision::Won(loser) => {
                if state.race.latest() != number {
                    self.outbox.push(Event::ServedBy(self.provider(number)));
                }
                loser
            }
        };
        let slow = loser.as_ref().map(|loser| loser.number).filter(|slow| *slow < number);
        if let (Some(slow), Some(hedge)) = (slow, &self.hedge) {
            let reason = hedge.reason(self.name(slow), "gave no sound");
            self.warn(&[reason], Some(self.name(number)));
        }
        // A voice that has sent words works.
        let is_silent = |n: usize| state.marks.iter().all(|(from, _)| *from != n);
        let late = loser.as_ref().filter(|loser| is_silent(loser.number)).and_then(|loser| {
            self.hedge.as_ref()?.lateness(loser, self.name(loser.number), "gave no sound")
        });
        for (from, mark) in std::mem::take(&mut state.marks) {
            if from == number {
                self.deliver(&mut state.progress, mark);
            }
        }
        if matches!(event, Event::End) {
            state.race.finish();
            self.breaker(number).inspect(|breaker| breaker.succeeded());
        }
        self.deliver(&mut state.progress, event);
        drop(state);
        if let Some(breaker) = loser.as_ref().and_then(|loser| self.breaker(loser.number)) {
            match late {
                Some(error) => breaker.failed(Instant::now(), &error),
                None => breaker.abandoned(),
            }
        }
        drop(loser);
        if slow.is_some() {
            self.outbox.flush();
            let others = {
                let mut replies = lock(&self.replies);
                replies.change_voice(self.request.reply, number);
                replies.segments(self.request.reply)
            };
            others.iter().for_each(|speech| speech.move_to(number));
        }
    }

    /// The reply has got another voice: a segment that has not sounded is spoken by that one.
    fn move_to(self: &Arc<Self>, number: usize) {
        let withdrawn = {
            let mut state = lock(&self.state);
            let current = state.race.latest();
            let withdrawn = state.race.withdraw(current).filter(|_| current < number);
            if withdrawn.is_some() {
                state.marks.clear();
                state.race.skip_to(number);
            }
            withdrawn
        };
        let Some(withdrawn) = withdrawn else { return };
        self.breaker(withdrawn.number).inspect(|breaker| breaker.abandoned());
        drop(withdrawn);
        if let Err(error) = self.start(None) {
            lock(&self.state).race.finish();
            self.outbox.push(Event::Failed(error));
        }
        self.outbox.flush();
    }

    fn on_failure(self: &Arc<Self>, number: usize, error: Error) {
        let mut state = lock(&self.state);
        // Segments that fail together are one failure: the first one has changed the voice.
        let is_replaced = lock(&self.replies).first_entry(self.request.reply) > number;
        let (failure, handle) = state.race.fail(number);
        if failure == Failure::Ignored {
            return;
        }
        state.marks.retain(|(from, _)| *from != number);
        let (next, can_continue) = (state.race.next(), state.progress.can_continue());
        let is_complete = state.progress.is_complete();
        if let Failure::OtherRuns(other) = failure {
            self.warn(&[error.to_string()], Some(self.name(other)));
        }
        drop(state);
        drop(handle);
        if let Some(breaker) = self.breaker(number) {
            match is_replaced {
                true => breaker.abandoned(),
                false => breaker.failed(Instant::now(), &error),
            }
        }
        if let Failure::OtherRuns(other) = failure {
            if other > number {
                lock(&self.replies).change_voice(self.request.reply, other);
            }
            return;
        }
        let last = match next < self.entries.len() {
            true if can_continue && !is_complete => match self.start(Some(error)) {
                Ok(()) => return,
                Err(error) => Event::Failed(error),
            },
            // Nothing remains, or the rest is unknown. The next voice speaks from the next segment
            // on.
            true => {
                self.warn(&[error.to_string()], Some(self.name(next)));
                lock(&self.replies).change_voice(self.request.reply, next);
                Event::End
            }
            false => {
                self.warn(&[error.to_string()], None);
                Event::Failed(error)
            }
        };
        lock(&self.state).race.finish();
        self.outbox.push(last);
    }

    pub(super) fn cancel(&self) {
        let running = lock(&self.state).race.cancel();
        // Sound alone is no success: it may have stalled or have been endless.
        for breaker in running.iter().filter_map(|runner| self.breaker(runner.number)) {
            breaker.abandoned();
        }
    }
}
