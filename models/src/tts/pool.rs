//! Worker loop of the synthesis threads, shared by the voices that run in this process.

use std::sync::Arc;

use crossbeam_channel::Receiver;

use super::queue::Ticket;
use super::{Event, Request};
use crate::panic_isolation::catch_panic;
use crate::{Error, ErrorKind, Sink};

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
            request: Request {
                text: "Hello.".into(),
                voice: String::new(),
                pronunciation: Vec::new(),
            },
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

/// Worker loop: speaks jobs until the queue is dropped. A panic in a job, or in its sink, ends only
/// that job.
pub(super) fn run_worker(
    jobs: &Receiver<(SynthesisJob, Arc<Ticket>)>,
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

    use super::super::queue::JobQueue;
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
            let request =
                Request { text: text.into(), voice: String::new(), pronunciation: Vec::new() };
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
