//! A chain of language models.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conversation::event::Snippet;
use tokio::time::Instant;

use super::ChainEntry;
use super::warnings::Warnings;
use crate::breaker::Breaker;
use crate::llm::guardrails::{GuardrailCheck, GuardrailFuture};
use crate::llm::{Event, Llm, ModerationFuture, Request};
use crate::{Error, ErrorKind, Handle, Sink};

/// The language models of one call, in the order in which they are tried.
pub(crate) struct LlmChain {
    entries: Arc<[ChainEntry<dyn Llm>]>,
    warnings: Arc<Warnings>,
}

impl LlmChain {
    /// A chain of at least one model.
    pub(crate) fn new(entries: Vec<ChainEntry<dyn Llm>>) -> Self {
        Self { entries: entries.into(), warnings: Arc::default() }
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
            request,
            sink,
            running: Mutex::new(Running { entry: 0, handle: None, is_over: false }),
        });
        attempts.start(0, None);
        Handle::new(move || attempts.cancel())
    }

    fn warm_up(&self) {
        self.preferred().inspect(|llm| llm.warm_up());
    }

    fn max_passages(&self) -> Option<usize> {
        self.entries.first().and_then(|entry| entry.model.max_passages())
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

/// One request and the models that it is sent to, one after the other.
struct Attempts {
    entries: Arc<[ChainEntry<dyn Llm>]>,
    warnings: Arc<Warnings>,
    request: Request,
    sink: Sink<Event>,
    running: Mutex<Running>,
}

struct Running {
    /// The entry that answers.
    entry: usize,
    handle: Option<Handle>,
    /// Whether the request was cancelled or has ended.
    is_over: bool,
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request to the first entry from `from` that is not skipped. `failure`: why the one
    /// before it does not answer.
    fn start(self: &Arc<Self>, from: usize, failure: Option<Error>) {
        let mut last_error = failure;
        let mut reasons: Vec<String> = last_error.iter().map(ToString::to_string).collect();
        for number in from..self.entries.len() {
            let entry = &self.entries[number];
            if let Some(Err(reason)) = entry.breaker.as_ref().map(|b| b.admit(Instant::now())) {
                last_error = Some(Error::new(ErrorKind::NotAvailable, reason.clone()));
                reasons.push(reason);
                continue;
            }
            self.warn(&reasons, Some(&entry.name));
            self.ask(number);
            return;
        }
        self.warn(&reasons, None);
        self.lock().is_over = true;
        self.sink.send(Event::Failed(last_error.unwrap_or_else(no_model)));
    }

    fn warn(&self, reasons: &[String], next: Option<&str>) {
        for reason in reasons {
            if let Some(sentence) = self.warnings.sentence(reason, next) {
                self.sink.send(Event::Warning(sentence));
            }
        }
    }

    fn ask(self: &Arc<Self>, number: usize) {
        let breaker = self.entries[number].breaker.clone();
        {
            let mut running = self.lock();
            if running.is_over {
                breaker.iter().for_each(|breaker| breaker.abandoned());
                return;
            }
            running.entry = number;
        }
        self.sink.send(Event::Provider(self.entries[number].provider));
        let (attempts, has_answered) = (Arc::clone(self), AtomicBool::new(false));
        let sink = Sink::new(move |event| {
            attempts.on_event(number, breaker.as_deref(), &has_answered, event);
        });
        let handle = self.entries[number].model.ask(self.request.clone(), sink);
        let mut running = self.lock();
        // It may have failed already, and the next one may have been asked.
        if running.entry == number && !running.is_over {
            running.handle = Some(handle);
        }
    }

    fn on_event(
        self: &Arc<Self>,
        number: usize,
        breaker: Option<&Breaker>,
        has_answered: &AtomicBool,
        event: Event,
    ) {
        match event {
            Event::Failed(error) => {
                breaker.inspect(|breaker| breaker.failed(Instant::now(), &error));
                if !has_answered.load(Ordering::Acquire) {
                    return self.start(number + 1, Some(error));
                }
                self.warn(&[error.to_string()], None);
                self.lock().is_over = true;
                self.sink.send(Event::Failed(error));
            }
            event => {
                let is_answer = !matches!(event, Event::Warning(_) | Event::Provider(_));
                if is_answer && !has_answered.swap(true, Ordering::AcqRel) {
                    breaker.inspect(|breaker| breaker.succeeded());
                }
                if matches!(event, Event::End { .. }) {
                    self.lock().is_over = true;
                }
                self.sink.send(event);
            }
        }
    }

    fn cancel(&self) {
        let (handle, entry, was_over) = {
            let mut running = self.lock();
            let was_over = std::mem::replace(&mut running.is_over, true);
            (running.handle.take(), running.entry, was_over)
        };
        if !was_over && let Some(breaker) = self.entries.get(entry).and_then(|l| l.breaker.as_ref())
        {
            breaker.abandoned();
        }
        drop(handle);
    }
}

#[cfg(test)]
mod tests;
