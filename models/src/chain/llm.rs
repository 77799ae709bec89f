//! A chain of language models.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conversation::event::Snippet;
use tokio::time::Instant;

use super::ChainEntry;
use super::outbox::Outbox;
use super::race::{Decision, Failure, Hedge, Race, Runner};
use super::warnings::Warnings;
use crate::breaker::Breaker;
use crate::llm::guardrails::{GuardrailCheck, GuardrailFuture};
use crate::llm::{Event, Llm, ModerationFuture, Request};
use crate::{Error, ErrorKind, Handle, Sink};

/// The language models of one call, in the order in which they are tried.
pub(crate) struct LlmChain {
    entries: Arc<[ChainEntry<dyn Llm>]>,
    warnings: Arc<Warnings>,
    hedge: Option<Hedge>,
}

impl LlmChain {
    /// A chain of at least one model. With `hedge`, a request is sent to the next model, too, if
    /// the first one is slow.
    pub(crate) fn new(entries: Vec<ChainEntry<dyn Llm>>, hedge: Option<Hedge>) -> Self {
        Self { entries: entries.into(), warnings: Arc::default(), hedge }
    }

    /// The first model that is not skipped, else the first one.
    fn preferred(&self) -> Option<&Arc<dyn Llm>> {
        let works =
            |entry: &&ChainEntry<dyn Llm>| entry.breaker.as_ref().is_none_or(|b| b.is_closed());
        self.entries.iter().find(works).or(self.entries.first()).map(|entry| &entry.model)
    }
}

impl Llm for LlmChain {
    fn ask(&self, request: Request, sink: Sink<Event>) -> Handle {
        let attempts = Arc::new(Attempts {
            entries: Arc::clone(&self.entries),
            warnings: Arc::clone(&self.warnings),
            hedge: self.hedge.clone(),
            request,
            outbox: Outbox::new(sink),
            race: Mutex::default(),
        });
        attempts.start(None);
        Handle::new(move || attempts.cancel())
    }

    fn warm_up(&self) {
        self.preferred().inspect(|llm| llm.warm_up());
    }

    fn max_passages(&self) -> Option<usize> {
        self.entries.first().and_then(|entry| entry.model.max_passages())
    }

    /// Whether any model does: which one answers is not known before. The others ignore the request.
    fn follows_directions(&self) -> bool {
        self.entries.iter().any(|entry| entry.model.follows_directions())
    }

    fn prepare(&self, passages: Vec<Snippet>, prompt: &str) {
        self.entries.first().inspect(|entry| entry.model.prepare(passages, prompt));
    }

    fn check_guardrails(&self, check: GuardrailCheck) -> GuardrailFuture {
        match self.preferred() {
            Some(llm) => llm.check_guardrails(check),
            None => Box::pin(core::future::ready(Ok(None))),
        }
    }

    fn moderate(&self, text: String) -> ModerationFuture {
        match self.preferred() {
            Some(llm) => llm.moderate(text),
            None => Box::pin(core::future::ready(Err(no_model()))),
        }
    }
}

fn no_model() -> Error {
    Error::new(ErrorKind::NotAvailable, "there is no language model")
}

/// One request and the models that it is sent to: one after the other, or two at the same time.
struct Attempts {
    entries: Arc<[ChainEntry<dyn Llm>]>,
    warnings: Arc<Warnings>,
    hedge: Option<Hedge>,
    request: Request,
    outbox: Outbox<Event>,
    race: Mutex<Race>,
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, Race> {
        self.race.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breaker(&self, number: usize) -> Option<&Breaker> {
        self.entries[number].breaker.as_deref()
    }

    /// Sends the request to the next entry that is not skipped. `failure`: why the one before it
    /// does not answer.
    fn start(self: &Arc<Self>, failure: Option<Error>) {
        let mut reasons: Vec<String> = failure.iter().map(ToString::to_string).collect();
        let mut last_error = failure;
        let first = self.lock().next();
        for number in first..self.entries.len() {
            if let Some(Err(reason)) = self.breaker(number).map(|b| b.admit(Instant::now())) {
                last_error = Some(Error::new(ErrorKind::NotAvailable, reason.clone()));
                reasons.push(reason);
                continue;
            }
            self.warn(&reasons, Some(&self.entries[number].name));
            {
                let mut race = self.lock();
                if !self.add(&mut race, number) {
                    return;
                }
                self.set_timer(&mut race, number);
            }
            return self.send(number);
        }
        self.warn(&reasons, None);
        self.lock().finish();
        self.outbox.push(Event::Failed(last_error.unwrap_or_else(no_model).exhausted()));
        self.outbox.flush();
    }

    fn warn(&self, reasons: &[String], next: Option<&str>) {
        for reason in reasons {
            if let Some(sentence) = self.warnings.sentence(reason, next) {
                self.outbox.push(Event::Warning(sentence));
            }
        }
    }

    /// Adds an entry to those that run, before [`send`](Self::send). False if it must not be asked.
    fn add(&self, race: &mut Race, number: usize) -> bool {
        let is_added = race.add(number);
        if is_added {
            self.outbox.push(Event::Provider(self.entries[number].provider));
        } else {
            self.breaker(number).inspect(|breaker| breaker.abandoned());
        }
        is_added
    }

    /// Sets the timer after which the next entry is asked, too.
    fn set_timer(self: &Arc<Self>, race: &mut Race, number: usize) {
        if let Some(hedge) = &self.hedge
            && race.next() < self.entries.len()
        {
            let attempts = Arc::clone(self);
            race.set_timer(hedge.timer(move || attempts.hedge(number)));
        }
    }

    fn send(self: &Arc<Self>, number: usize) {
        self.outbox.flush();
        let attempts = Arc::clone(self);
        let sink = Sink::new(move |event| attempts.on_event(number, event));
        let handle = self.entries[number].model.ask(self.request.clone(), sink);
        // It may have failed already, or the other one has answered.
        let unused = self.lock().set_handle(number, handle);
        drop(unused);
    }

    /// Sends the request to the next entry, too, because `slow` has sent nothing.
    fn hedge(self: &Arc<Self>, slow: usize) {
        let admits =
            |number: &usize| self.breaker(*number).is_none_or(|b| b.admit(Instant::now()).is_ok());
        let mut race = self.lock();
        if race.is_waiting(slow)
            && let Some(number) = (race.next()..self.entries.len()).find(admits)
            && self.add(&mut race, number)
        {
            drop(race);
            self.send(number);
        }
    }

    fn on_event(self: &Arc<Self>, number: usize, event: Event) {
        match event {
            Event::Failed(error) => self.on_failure(number, error),
            Event::Warning(_) | Event::Provider(_) | Event::ServedBy(_) => {
                let race = self.lock();
                if race.is_running(number) {
                    self.outbox.push(event);
                }
            }
            event => self.on_answer(number, event),
        }
        self.outbox.flush();
    }

    fn on_answer(&self, number: usize, event: Event) {
        let mut race = self.lock();
        let loser = match race.decide(number) {
            Decision::Lost => return,
            Decision::Known => None,
            Decision::Won(loser) => {
                if race.latest() != number {
                    self.outbox.push(Event::ServedBy(self.entries[number].provider));
                }
                loser
            }
        };
        if let (Some(slow), Some(hedge)) = (&loser, &self.hedge)
            && slow.number < number
        {
            let reason = hedge.reason(&self.entries[slow.number].name, "sent no answer");
            self.warn(&[reason], Some(&self.entries[number].name));
        }
        let is_end = matches!(event, Event::End { .. });
        if is_end {
            race.finish();
        }
        self.outbox.push(event);
        drop(race);
        // An answer that begins may still stall.
        if is_end {
            self.breaker(number).inspect(|breaker| breaker.succeeded());
        }
        loser.inspect(|loser| self.note_loser(loser));
    }

    /// Counts a model that had sent nothing when the other one answered, if it had enough time.
    fn note_loser(&self, loser: &Runner) {
        let Some(breaker) = self.breaker(loser.number) else { return };
        let name = &self.entries[loser.number].name;
        match self.hedge.as_ref().and_then(|h| h.lateness(loser, name, "sent no answer")) {
            Some(error) => breaker.failed(Instant::now(), &error),
            None => breaker.abandoned(),
        }
    }

    fn on_failure(self: &Arc<Self>, number: usize, error: Error) {
        let mut race = self.lock();
        let (failure, handle) = race.fail(number);
        match failure {
            Failure::Ignored => return,
            Failure::OtherRuns(other) => {
                self.warn(&[error.to_string()], Some(&self.entries[other].name));
            }
            Failure::Last { has_answered: true } => {
                race.finish();
                self.warn(&[error.to_string()], None);
            }
            Failure::Last { has_answered: false } => {}
        }
        drop(race);
        drop(handle);
        self.breaker(number).inspect(|breaker| breaker.failed(Instant::now(), &error));
        match failure {
            Failure::Last { has_answered: true } => self.outbox.push(Event::Failed(error)),
            Failure::Last { has_answered: false } => self.start(Some(error)),
            Failure::Ignored | Failure::OtherRuns(_) => {}
        }
    }

    fn cancel(&self) {
        let running = self.lock().cancel();
        for runner in &running {
            self.breaker(runner.number).inspect(|breaker| breaker.abandoned());
        }
    }
}

#[cfg(test)]
mod hedge_tests;
#[cfg(test)]
mod tests;
