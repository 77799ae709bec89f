//! Threads of the voices that run in this process, and their queue.

use std::sync::Arc;

use crossbeam_channel::Receiver;

use super::queue::{self, JobQueue, Ticket};
use super::{Event, Request};
use crate::panic_isolation::catch_panic;
use crate::thread_health::ThreadHealth;
use crate::{Error, ErrorKind, Handle, Sink, thread};

/// Maximum length of a text, in bytes: about twenty minutes of speech. Longer texts are rejected.
pub(super) const MAX_TEXT_BYTES: usize = 20_000;

/// A text to speak, and where its events go.
pub(super) struct SynthesisJob {
    pub(super) request: Request,
    pub(super) sink: Sink<Event>,
}

impl SynthesisJob {
    /// A short text that loads what the first utterance needs. `voice` names the TTS in the log.
    pub(super) fn warm_up(tts: &'static str) -> Self {
        Self {
            request: Request { text: "Hello.".into(), ..Request::default() },
            sink: Sink::new(move |event| {
                if let Event::Failed(error) = event {
                    tracing::error!(%error, tts, "the warm-up of the TTS failed");
                }
            }),
        }
    }

    /// Rejects the text.
    pub(super) fn refuse(&self, reason: &str) {
        self.sink.send(Event::Failed(Error::new(ErrorKind::Rejected, reason)));
    }
}

/// A text with the ticket that cancels it.
type QueuedJob = (SynthesisJob, Arc<Ticket>);

/// Threads that speak, and the texts that wait for them.
pub(super) struct SynthesisPool {
    queue: JobQueue<SynthesisJob>,
    health: Arc<ThreadHealth>,
}

impl SynthesisPool {
    /// Starts `threads` threads named `name` with a number, which first speak `warm_ups`. Each
    /// thread calls `load` for its synthesizer, again after a failure.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`] if a thread cannot be started.
    pub(super) fn start<L, S>(
        name: &str,
        threads: usize,
        warm_ups: impl IntoIterator<Item = SynthesisJob>,
        load: L,
    ) -> Result<Self, Error>
    where
        L: Fn() -> Result<S, String> + Send + Sync + 'static,
        S: FnMut(&SynthesisJob, &dyn Fn() -> bool),
    {
        let (queue, jobs) = JobQueue::channel();
        for job in warm_ups {
            drop(queue.push(job));
        }
        let health = Arc::new(ThreadHealth::new(threads));
        let load = Arc::new(load);
        for n in 0..threads {
            let (jobs, health, load) = (jobs.clone(), Arc::downgrade(&health), Arc::clone(&load));
            let started = thread::spawn_low_priority(format!("{name}-{n}"), move || {
                let work = |set_working: &dyn Fn()| {
                    let synthesise = load()?;
                    set_working();
                    run_worker(&jobs, synthesise);
                    Ok(())
                };
                thread::run_with_health(&health, n, work, std::thread::sleep);
            });
            started.map_err(|e| {
                Error::new(ErrorKind::Failed, "cannot start a thread for the TTS").with_source(e)
            })?;
        }
        Ok(Self { queue, health })
    }

    /// A pool of `threads` threads that exist in name only, and its queue.
    #[cfg(test)]
    pub(super) fn without_threads(
        threads: usize,
    ) -> (Self, Arc<ThreadHealth>, Receiver<QueuedJob>) {
        let (queue, jobs) = JobQueue::channel();
        let health = Arc::new(ThreadHealth::new(threads));
        (Self { queue, health: Arc::clone(&health) }, health, jobs)
    }

    /// Queues a text. The handle cancels it.
    ///
    /// # Errors
    /// [`Self::failure`], or [`ErrorKind::Busy`] if the queue is full.
    pub(super) fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let ticket = self.queue.push(SynthesisJob { request, sink });
        let ticket = ticket.ok_or_else(queue_is_full)?;
        Ok(Handle::new(move || ticket.cancel()))
    }

    /// An error if all threads have failed.
    pub(super) fn failure(&self) -> Option<Error> {
        let reason = self.health.total_failure()?;
        Some(Error::new(ErrorKind::NotAvailable, "the TTS threads have failed").with_source(reason))
    }

    /// An error if the queue is full.
    pub(super) fn full(&self) -> Option<Error> {
        let (waiting, maximum) = self.queue_usage();
        (waiting >= maximum).then(queue_is_full)
    }

    /// Number of texts that wait for a thread, and the maximum.
    pub(super) fn queue_usage(&self) -> (usize, usize) {
        (self.queue.waiting_count(), queue::MAX_WAITING_TEXTS)
    }

    /// One sentence about the threads that have failed; `None` if all work.
    pub(super) fn failure_message(&self) -> Option<String> {
        self.health.message("TTS threads")
    }
}

fn queue_is_full() -> Error {
    Error::new(ErrorKind::Busy, "too many texts are queued for the TTS")
}

/// Worker loop: speaks jobs until the queue is dropped. A panic in a job, or in its sink, ends only
/// that job.
fn run_worker(
    jobs: &Receiver<QueuedJob>,
    mut synthesise: impl FnMut(&SynthesisJob, &dyn Fn() -> bool),
) {
    for (job, ticket) in jobs {
        if ticket.start() && catch_panic(|| synthesise(&job, &|| ticket.is_cancelled())).is_none() {
            let failed = Error::new(ErrorKind::Failed, "the TTS failed");
            catch_panic(|| job.sink.send(Event::Failed(failed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;

    use super::*;

    #[test]
    fn a_job_and_a_sink_that_panic_end_only_that_job() {
        let (queue, jobs) = JobQueue::channel();
        let (sender, events) = unbounded();
        for text in ["panic", "panic", "panic", "go on"] {
            let sender = sender.clone();
            let sink = Sink::new(move |event| {
                assert!(!matches!(event, Event::Failed(_)), "the test's own panic");
                sender.send(event).unwrap();
            });
            let request = Request { text: text.into(), voice: String::new(), ..Request::default() };
            queue.push(SynthesisJob { request, sink }).unwrap();
        }
        drop((queue, sender));
        run_worker(&jobs, |job, _| {
            assert!(job.request.text != "panic", "the test's own panic");
            job.sink.send(Event::End);
        });
        assert!(matches!(events.iter().collect::<Vec<_>>()[..], [Event::End]));
    }
}
