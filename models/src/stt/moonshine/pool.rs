//! Threads: one runs the scheduler, and one per worker decodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::load::Counters;
use super::scheduler::{Command, Done, Job, Output, Scheduler};
use super::{MAX_QUEUED_COMMANDS, SpeechDecoder};
use crate::panic_isolation::{RESTART_DELAY, catch_panic};
use crate::thread;
use crate::thread_health::ThreadHealth;

/// How often the expected wait is updated while nothing else happens.
const LOAD_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of buffers that return to the callers: 10 s of audio in frames of 20 ms.
const MAX_SPARE_BUFFERS: usize = 512;

/// What the pool, its streams and its threads share.
pub(super) struct PoolContext {
    pub(super) commands: Sender<Command>,
    /// Used buffers of samples, empty.
    pub(super) spare_buffers: Receiver<Vec<i16>>,
    pub(super) next_stream: AtomicU64,
    pub(super) health: Arc<ThreadHealth>,
    pub(super) counters: Arc<Counters>,
    pub(super) status: Arc<Status>,
}

/// State that the scheduler's thread publishes.
#[derive(Default)]
pub(super) struct Status {
    pub(super) expected_wait_us: AtomicU64,
    pub(super) waiting: AtomicUsize,
    /// Number of workers that have not yet loaded the network or failed to.
    loading: AtomicUsize,
}

impl PoolContext {
    pub(super) fn is_loading(&self) -> bool {
        self.status.loading.load(Ordering::Acquire) > 0
    }
}

impl Drop for PoolContext {
    fn drop(&mut self) {
        // The workers hold the channel open, so its thread must be told. It reads the channel until
        // then, so there will be room.
        let _ = self.commands.send_timeout(Command::Stop, Duration::from_secs(1));
    }
}

/// Starts the threads. `load` loads a network; a thread that has failed waits by `pause`.
pub(super) fn start<D: SpeechDecoder>(
    workers: usize,
    load: impl Fn() -> Result<D, String> + Clone + Send + 'static,
    pause: impl Fn(Duration) + Clone + Send + 'static,
) -> Arc<PoolContext> {
    let (commands, received) = crossbeam_channel::bounded(MAX_QUEUED_COMMANDS);
    let (used_buffers, spare_buffers) = crossbeam_channel::bounded(MAX_SPARE_BUFFERS);
    let context = Arc::new(PoolContext {
        commands: commands.clone(),
        spare_buffers,
        next_stream: AtomicU64::new(0),
        health: Arc::new(ThreadHealth::new(workers)),
        counters: Arc::default(),
        status: Arc::new(Status { loading: AtomicUsize::new(workers), ..Status::default() }),
    });
    let mut jobs = Vec::new();
    for number in 0..workers {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        jobs.push(sender);
        let worker = Worker {
            number,
            jobs: receiver,
            commands: commands.clone(),
            status: Arc::clone(&context.status),
            is_loading: AtomicBool::new(true),
        };
        let health = Arc::downgrade(&context.health);
        let (load, pause) = (load.clone(), pause.clone());
        let run = move || {
            let work = |set_working: &dyn Fn()| worker.run(&load, set_working);
            thread::run_with_health(&health, number, work, |delay| worker.pause(delay, &pause));
        };
        let started = thread::spawn_low_priority(format!("model-stt-{number}"), run);
        if let Err(error) = started {
            tracing::error!(%error, "cannot start an STT thread");
            context.health.set_failed(number, &format!("it cannot be started: {error}"));
            context.status.loading.fetch_sub(1, Ordering::AcqRel);
        }
    }
    let scheduler = Scheduler::new(workers, Arc::clone(&context.counters));
    let status = Arc::clone(&context.status);
    let run = move || run_scheduler(scheduler, &received, &jobs, &used_buffers, &status);
    if let Err(error) = thread::spawn_low_priority("model-stt".into(), run) {
        tracing::error!(%error, "cannot start the STT scheduler");
        for number in 0..workers {
            context.health.set_failed(number, &format!("it cannot be started: {error}"));
        }
    }
    context
}

/// Body of the scheduler's thread.
fn run_scheduler(
    mut scheduler: Scheduler,
    commands: &Receiver<Command>,
    jobs: &[Sender<Job>],
    used_buffers: &Sender<Vec<i16>>,
    status: &Status,
) {
    let start = Instant::now();
    loop {
        let command = if scheduler.load().is_settled() {
            commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            commands.recv_timeout(LOAD_INTERVAL)
        };
        let now = start.elapsed();
        // A panic of a sink must not end the STT of all calls.
        let handled = catch_panic(|| match command {
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => false,
            Ok(command) => {
                scheduler.handle(now, command);
                true
            }
            Err(RecvTimeoutError::Timeout) => {
                scheduler.tick(now);
                true
            }
        });
        match handled {
            Some(false) => return,
            Some(true) => {}
            None => tracing::error!("the STT scheduler panicked; it goes on"),
        }
        for output in scheduler.take_outputs() {
            match output {
                // The worker is idle or gone.
                Output::Run { worker, job } => drop(jobs[worker].try_send(job)),
                Output::Send { sink, event } => {
                    if catch_panic(|| sink.send(event)).is_none() {
                        tracing::error!("the receiver of an STT event panicked");
                    }
                }
            }
        }
        for buffer in scheduler.take_used_buffers() {
            let _ = used_buffers.try_send(buffer);
        }
        let wait = u64::try_from(scheduler.load().expected_wait().as_micros()).unwrap_or(u64::MAX);
        status.expected_wait_us.store(wait, Ordering::Relaxed);
        status.waiting.store(scheduler.waiting_count(), Ordering::Relaxed);
    }
}

/// A thread that decodes.
struct Worker {
    number: usize,
    jobs: Receiver<Job>,
    commands: Sender<Command>,
    status: Arc<Status>,
    is_loading: AtomicBool,
}

impl Worker {
    /// Loads the network and does jobs until the scheduler is gone, or one fails.
    fn run<D: SpeechDecoder>(
        &self,
        load: &impl Fn() -> Result<D, String>,
        set_working: &dyn Fn(),
    ) -> Result<(), String> {
        let mut decoder = load()?;
        set_working();
        self.set_loaded();
        if self.commands.send(Command::WorkerReady(self.number)).is_err() {
            return Ok(());
        }
        while let Ok(Job { number, pcm, careful, cancelled }) = self.jobs.recv() {
            let start = Instant::now();
            let result = catch_panic(|| decoder.decode(&pcm, careful, &cancelled))
                .unwrap_or_else(|| Err("it panicked".to_owned()));
            let failure = result.as_ref().err().cloned();
            let duration = start.elapsed();
            let done = Done { worker: self.number, job: number, pcm, result, duration };
            if self.commands.send(Command::Done(done)).is_err() {
                return Ok(());
            }
            if let Some(reason) = failure {
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Waits after a failure. In a short wait streams wait for this worker, in a long one they do
    /// not.
    fn pause(&self, delay: Duration, pause: &impl Fn(Duration)) {
        self.set_loaded();
        if delay > RESTART_DELAY {
            let down = Command::WorkerDown { worker: self.number };
            let _ = self.commands.send(down);
        }
        pause(delay);
    }

    /// The network is loaded, or cannot be.
    fn set_loaded(&self) {
        if self.is_loading.swap(false, Ordering::AcqRel) {
            self.status.loading.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
