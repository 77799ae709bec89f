//! Bounded queue for the requests of all calls, and the worker threads that answer waiting requests
//! in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::features::{FRAMES, FeatureExtractor, MEL_BANDS};
use super::{SAMPLE_RATE, TurnRequest};
use crate::{Handle, Sink};

/// Maximum number of waiting requests: far more than can be answered in time.
pub(super) const MAX_QUEUED_REQUESTS: usize = 64;

/// A queued request.
pub(super) struct QueuedRequest {
    audio: Vec<i16>,
    answer: Sink<f32>,
    cancelled: Arc<AtomicBool>,
}

/// Sending end of the queue.
pub(super) struct RequestQueue(Sender<QueuedRequest>);

/// Creates a queue.
pub(super) fn request_queue() -> (RequestQueue, Receiver<QueuedRequest>) {
    let (sender, receiver) = crossbeam_channel::bounded(MAX_QUEUED_REQUESTS);
    (RequestQueue(sender), receiver)
}

impl RequestQueue {
    /// Number of waiting requests.
    pub(super) fn waiting_count(&self) -> usize {
        self.0.len()
    }

    /// Queues a request. A request that finds the queue full is not answered; the answer would be
    /// too late anyway.
    pub(super) fn push(&self, question: TurnRequest, answer: Sink<f32>) -> Handle {
        let withdrawn = Arc::new(AtomicBool::new(false));
        let queued =
            QueuedRequest { audio: question.audio, answer, cancelled: Arc::clone(&withdrawn) };
        match self.0.try_send(queued) {
            Ok(()) => Handle::new(move || withdrawn.store(true, Ordering::Relaxed)),
            Err(TrySendError::Full(_)) => {
                tracing::warn!(
                    queued = MAX_QUEUED_REQUESTS,
                    "the turn model is too slow: a turn is decided without it"
                );
                Handle::noop()
            }
            // No thread could be started, which was logged.
            Err(TrySendError::Disconnected(_)) => Handle::noop(),
        }
    }
}

/// The network: computes P(turn is over) for each [`MEL_BANDS`] × [`FRAMES`] block of `features`
/// and replaces `probabilities` with the results.
pub(super) trait BatchNetwork {
    /// Current maximum number of requests in a batch. At least one.
    fn max_batch(&self) -> usize;

    fn infer(&mut self, features: &[f32], probabilities: &mut Vec<f32>) -> Result<(), String>;
}

/// Worker loop: answers requests until every sender is dropped.
pub(super) fn run_worker(mut network: impl BatchNetwork, questions: &Receiver<QueuedRequest>) {
    let mut transform = FeatureExtractor::new();
    let (mut batch, mut features, mut probabilities) = (Vec::new(), Vec::new(), Vec::new());
    let wanted = |request: &QueuedRequest| !request.cancelled.load(Ordering::Relaxed);
    while let Ok(first) = questions.recv() {
        batch.extend(Some(first).filter(wanted));
        while batch.len() < network.max_batch()
            && let Ok(next) = questions.try_recv()
        {
            batch.extend(Some(next).filter(wanted));
        }
        if batch.is_empty() {
            continue;
        }
        features.resize(batch.len() * MEL_BANDS * FRAMES, 0.0);
        for (request, out) in batch.iter().zip(features.chunks_exact_mut(MEL_BANDS * FRAMES)) {
            transform.extract(&request.audio, out);
        }
        match network.infer(&features, &mut probabilities) {
            Ok(()) => {
                for (request, p) in batch.iter().zip(&probabilities) {
                    tracing::debug!(
                        probability = p,
                        seconds = request.audio.len() as f32 / SAMPLE_RATE as f32,
                        "turn model result"
                    );
                    request.answer.send(*p);
                }
            }
            Err(error) => {
                tracing::warn!(error, "turn model inference failed: turns are decided without it")
            }
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crossbeam_channel::{Receiver, Sender, unbounded};

    use super::*;
    use crate::thread::run_with_health;
    use crate::thread_health::ThreadHealth;

    /// Answers with the loudness of the last frame, when the test permits it.
    struct GatedNetwork {
        max_batch: usize,
        entered: Sender<usize>,
        gate: Receiver<Result<(), String>>,
    }

    impl BatchNetwork for GatedNetwork {
        fn max_batch(&self) -> usize {
            self.max_batch
        }

        fn infer(&mut self, features: &[f32], probabilities: &mut Vec<f32>) -> Result<(), String> {
            let each = features.chunks_exact(MEL_BANDS * FRAMES);
            self.entered.send(each.len()).unwrap();
            self.gate.recv().unwrap()?;
            probabilities.clear();
            probabilities.extend(each.map(|f| f[FRAMES - 1]));
            Ok(())
        }
    }

    struct Harness {
        requests: RequestQueue,
        entered: Receiver<usize>,
        gate: Sender<Result<(), String>>,
        answers: Receiver<(usize, f32)>,
        sink: Sender<(usize, f32)>,
        thread: thread::JoinHandle<()>,
    }

    impl Harness {
        fn new(max_batch: usize) -> Self {
            let (questions, received) = request_queue();
            let ((entering, entered), (gate, gated), (sink, answers)) =
                (unbounded(), unbounded(), unbounded());
            let network = GatedNetwork { max_batch, entered: entering, gate: gated };
            let thread = thread::spawn(move || run_worker(network, &received));
            Self { requests: questions, entered, gate, answers, sink, thread }
        }

        /// Sends request number `n`: a tone for an even number, silence otherwise.
        fn ask(&self, n: usize) -> Handle {
            let sound = (0..4_000)
                .map(|i| if n.is_multiple_of(2) && i % 40 < 20 { 9_000 } else { 0 })
                .collect();
            let sink = self.sink.clone();
            let answer = Sink::new(move |p| sink.send((n, p)).unwrap());
            self.requests.push(TurnRequest { audio: sound, transcript: String::new() }, answer)
        }
    }

    #[test]
    fn what_waits_is_answered_together_each_with_its_own_answer() {
        let bench = Harness::new(3);
        let mut handles = vec![bench.ask(0)];
        assert_eq!(bench.entered.recv(), Ok(1), "the first request does not wait for others");
        handles.extend((1..6).map(|n| bench.ask(n)));
        for expected in [3, 2] {
            bench.gate.send(Ok(())).unwrap();
            assert_eq!(bench.entered.recv(), Ok(expected));
        }
        bench.gate.send(Ok(())).unwrap();
        let answers: Vec<_> = (0..6).map(|_| bench.answers.recv().unwrap()).collect();
        for (at, (n, p)) in answers.iter().enumerate() {
            assert_eq!(at, *n);
            assert_eq!(*p > 0.0, n.is_multiple_of(2), "{answers:?}");
        }
    }

    #[test]
    fn a_withdrawn_question_is_left_out_and_costs_nothing() {
        let bench = Harness::new(4);
        let _first = bench.ask(0);
        assert_eq!(bench.entered.recv(), Ok(1));
        let (second, _third) = (bench.ask(1), bench.ask(2));
        drop(second);
        bench.gate.send(Ok(())).unwrap();
        assert_eq!(bench.entered.recv(), Ok(1));
        bench.gate.send(Ok(())).unwrap();
        assert_eq!(bench.answers.recv().unwrap().0, 0);
        assert_eq!(bench.answers.recv().unwrap().0, 2);
    }

    #[test]
    fn a_full_queue_leaves_the_question_unanswered_and_never_blocks() {
        let bench = Harness::new(MAX_QUEUED_REQUESTS);
        let _first = bench.ask(0);
        assert_eq!(bench.entered.recv(), Ok(1));
        let _handles: Vec<_> = (0..=MAX_QUEUED_REQUESTS).map(|n| bench.ask(n)).collect();
        bench.gate.send(Ok(())).unwrap();
        let entered = bench.entered.recv();
        assert_eq!(entered, Ok(MAX_QUEUED_REQUESTS), "one more than there is room for was asked");
        bench.gate.send(Ok(())).unwrap();
        let Harness { requests: questions, sink, answers, thread, .. } = bench;
        drop((questions, sink));
        thread.join().unwrap();
        assert_eq!(answers.iter().count(), 1 + MAX_QUEUED_REQUESTS);
    }

    #[test]
    fn a_network_that_fails_answers_nothing_and_is_asked_again() {
        let bench = Harness::new(1);
        let _handles = [bench.ask(0), bench.ask(1)];
        assert_eq!(bench.entered.recv(), Ok(1));
        bench.gate.send(Err("out of memory".into())).unwrap();
        assert_eq!(bench.entered.recv(), Ok(1));
        bench.gate.send(Ok(())).unwrap();
        assert_eq!(bench.answers.recv().unwrap().0, 1);
    }

    /// Answers, or panics.
    struct PanickingNetwork {
        panics: bool,
    }

    impl BatchNetwork for PanickingNetwork {
        fn max_batch(&self) -> usize {
            1
        }

        fn infer(&mut self, _: &[f32], probabilities: &mut Vec<f32>) -> Result<(), String> {
            assert!(!self.panics, "the test's own panic");
            *probabilities = vec![0.5];
            Ok(())
        }
    }

    #[test]
    fn a_network_that_panics_is_reloaded_and_answers_later_requests() {
        let (requests, received) = request_queue();
        let (sender, answers) = unbounded();
        let ask = |_| {
            let sender = sender.clone();
            let request = TurnRequest { audio: vec![0; 4_000], transcript: String::new() };
            requests.push(request, Sink::new(move |p| sender.send(p).unwrap()))
        };
        let _handles: Vec<_> = (0..=10).map(ask).collect();
        drop((requests, sender));
        let health = Arc::new(ThreadHealth::new(1));
        let (mut loads, mut pauses) = (0, 0);
        let work = |set_working: &dyn Fn()| {
            loads += 1;
            set_working();
            run_worker(PanickingNetwork { panics: loads <= 10 }, &received);
            Ok(())
        };
        run_with_health(&Arc::downgrade(&health), 0, work, |_| {
            assert!(health.total_failure().is_some());
            pauses += 1;
        });
        assert_eq!((pauses, health.failed_count()), (10, 0));
        assert_eq!(answers.iter().collect::<Vec<_>>(), [0.5]);
    }
}
