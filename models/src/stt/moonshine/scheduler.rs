//! Decides which decode a worker does next. It has no clock and no thread: each input comes with
//! its time, and the outputs collect until they are taken.
//!
//! A stream has at most one entry in the queue: the most urgent decode that it needs at the time
//! when a worker is free. Thus a newer decode replaces an older one, and the queue is never longer
//! than the number of streams. Of equally urgent decodes, the one that has waited longest is first.
//! While a final transcript waits for a worker, interim ones are cancelled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::load::{Counters, Load};
use super::stream::{Stream, Ticket};
use super::utterance::Purpose;
use super::{Event, Transcription};
use crate::Sink;

/// Maximum number of unused buffers that are kept.
const MAX_SPARE_BUFFERS: usize = 16;

/// An input.
pub(super) enum Command {
    /// A stream is opened.
    Open {
        stream: u64,
        sink: Sink<Event>,
    },
    StartSpeech(u64),
    Audio(u64, Vec<i16>),
    EndSpeech(u64),
    Close(u64),
    /// A worker has loaded the network.
    WorkerReady(usize),
    /// A worker has failed again and again, and waits before it loads the network anew.
    WorkerDown {
        worker: usize,
    },
    /// A worker has done a job.
    Done(Done),
    /// The pool and all streams are dropped.
    Stop,
}

/// The result of a job.
pub(super) struct Done {
    pub(super) worker: usize,
    pub(super) job: u64,
    /// The samples, to be used again.
    pub(super) pcm: Vec<i16>,
    /// `None` if it was cancelled. After an error the worker loads the network anew.
    pub(super) result: Result<Option<Transcription>, String>,
    pub(super) duration: Duration,
}

/// A decode for a worker.
pub(super) struct Job {
    pub(super) number: u64,
    /// Mono at 16 kHz.
    pub(super) pcm: Vec<i16>,
    /// Whether an uncertain result is worth a second attempt: of all but interim transcripts.
    pub(super) careful: bool,
    /// The result is of no use any more.
    pub(super) cancelled: Arc<AtomicBool>,
}

/// An output.
pub(super) enum Output {
    /// The worker, which is idle, does the job.
    Run { worker: usize, job: Job },
    /// The event is sent.
    Send { sink: Sink<Event>, event: Event },
}

struct Entry {
    stream: Stream,
    sink: Sink<Event>,
    /// The decode that waits, and since when.
    waiting: Option<(Purpose, Duration)>,
}

struct Running {
    number: u64,
    stream: u64,
    ticket: Ticket,
    cancelled: Arc<AtomicBool>,
}

impl Running {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// State of all streams and workers.
pub(super) struct Scheduler {
    streams: BTreeMap<u64, Entry>,
    running: Vec<Running>,
    idle: Vec<usize>,
    /// Whether each worker is down.
    down: Vec<bool>,
    next_job: u64,
    /// Buffers of jobs, empty.
    spare_buffers: Vec<Vec<i16>>,
    /// Buffers of audio commands, empty.
    used_buffers: Vec<Vec<i16>>,
    load: Load,
    counters: Arc<Counters>,
    outputs: Vec<Output>,
}

impl Scheduler {
    /// A scheduler for `workers` workers, none of which is ready.
    pub(super) fn new(workers: usize, counters: Arc<Counters>) -> Self {
        Self {
            streams: BTreeMap::new(),
            running: Vec::new(),
            idle: Vec::new(),
            down: vec![false; workers],
            next_job: 0,
            spare_buffers: Vec::new(),
            used_buffers: Vec::new(),
            load: Load::new(workers),
            counters,
            outputs: Vec::new(),
        }
    }

    /// Takes an input.
    pub(super) fn handle(&mut self, now: Duration, command: Command) {
        let changed = match command {
            Command::Open { stream, sink } => {
                let entry = Entry { stream: Stream::default(), sink, waiting: None };
                self.streams.insert(stream, entry);
                None
            }
            Command::StartSpeech(id) => self.with_stream(id, Stream::start_speech),
            Command::Audio(id, mut pcm) => {
                let changed = self.with_stream(id, |stream| stream.push_audio(&pcm));
                pcm.clear();
                self.used_buffers.push(pcm);
                changed
            }
            Command::EndSpeech(id) => self.with_stream(id, Stream::end_speech),
            Command::Close(id) => {
                self.streams.remove(&id);
                self.running.iter().filter(|job| job.stream == id).for_each(Running::cancel);
                None
            }
            Command::WorkerReady(worker) => {
                self.down[worker] = false;
                self.idle.push(worker);
                None
            }
            Command::WorkerDown { worker } => {
                self.down[worker] = true;
                self.give_up_if_all_are_down();
                None
            }
            Command::Done(done) => self.finish(done),
            Command::Stop => None,
        };
        if let Some(id) = changed {
            self.update(now, id);
        }
        self.dispatch(now);
        self.tick(now);
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        let is_part_of_final = |entry: &&Entry| {
            entry.waiting.is_some_and(|(purpose, _)| purpose > Purpose::Speculative)
        };
        let waiting = self.streams.values().filter(is_part_of_final).count();
        self.load.set_waiting(now, waiting);
    }

    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    /// Number of decodes that wait for a worker.
    pub(super) fn waiting_count(&self) -> usize {
        self.streams.values().filter(|entry| entry.waiting.is_some()).count()
    }

    /// The outputs since the last call, in order.
    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// The buffers of audio commands since the last call, empty.
    pub(super) fn take_used_buffers(&mut self) -> impl Iterator<Item = Vec<i16>> {
        self.used_buffers.drain(..)
    }

    /// A buffer for the samples of a job, empty.
    fn buffer(&mut self) -> Vec<i16> {
        self.spare_buffers.pop().unwrap_or_default()
    }

    fn keep_buffer(&mut self, mut buffer: Vec<i16>) {
        if self.spare_buffers.len() < MAX_SPARE_BUFFERS {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }

    /// Changes a stream. Returns its id if it exists.
    fn with_stream(&mut self, id: u64, change: impl FnOnce(&mut Stream)) -> Option<u64> {
        let entry = self.streams.get_mut(&id)?;
        change(&mut entry.stream);
        Some(id)
    }

    fn finish(&mut self, done: Done) -> Option<u64> {
        let at = self.running.iter().position(|running| running.number == done.job)?;
        let running = self.running.swap_remove(at);
        if done.result.is_ok() {
            self.idle.push(done.worker);
        }
        let result = match &done.result {
            Ok(found) => Ok(found.as_ref()),
            Err(reason) => Err(reason.as_str()),
        };
        let is_cancelled = !matches!(result, Ok(Some(_)));
        let purpose = running.ticket.purpose;
        let is_used = self
            .streams
            .get_mut(&running.stream)
            .is_some_and(|entry| entry.stream.finish_decode(&running.ticket, result));
        self.load.add_decode(purpose, done.duration, is_cancelled);
        self.counters.add_end(purpose, done.duration, is_used);
        self.keep_buffer(done.pcm);
        Some(running.stream)
    }

    /// A stream has changed: sends its events, cancels what it does not need any more, and updates
    /// its entry in the queue.
    fn update(&mut self, now: Duration, id: u64) {
        // Nothing is decoded in advance while other decodes wait.
        let is_new_speculation = self.streams.get(&id).is_some_and(|entry| {
            entry.stream.wanted() == Some(Purpose::Speculative)
                && entry.waiting.is_none_or(|(purpose, _)| purpose != Purpose::Speculative)
        });
        let forgoes_speculation = is_new_speculation && self.others_wait(now, id);
        let are_all_down = self.are_all_down();
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if are_all_down {
            entry.stream.give_up();
        }
        if forgoes_speculation {
            entry.stream.forgo_speculation();
        }
        let wanted = entry.stream.wanted();
        let since = |purpose| match entry.waiting {
            Some((waiting, since)) if waiting == purpose => since,
            _ => now,
        };
        entry.waiting = wanted.map(|purpose| (purpose, since(purpose)));
        for running in self.running.iter().filter(|running| running.stream == id) {
            // The transcript of the whole speech will replace the interim one.
            let is_replaced =
                running.ticket.purpose == Purpose::Interim && wanted >= Some(Purpose::Speculative);
            if is_replaced || !entry.stream.is_current(&running.ticket) {
                running.cancel();
            }
        }
        for event in entry.stream.take_events() {
            self.outputs.push(Output::Send { sink: entry.sink.clone(), event });
        }
    }

    /// Whether a decode of another stream waits that may be done now.
    fn others_wait(&mut self, now: Duration, id: u64) -> bool {
        let permits_interim = self.load.permits_interim(now);
        self.streams.iter().any(|(other, entry)| {
            *other != id
                && entry
                    .waiting
                    .is_some_and(|(purpose, _)| purpose > Purpose::Interim || permits_interim)
        })
    }

    /// Gives work to idle workers. If there is none, cancels interim decodes for final ones.
    fn dispatch(&mut self, now: Duration) {
        while let Some((id, since)) = self.next_entry(now) {
            let Some(worker) = self.idle.pop() else { break };
            let mut pcm = self.buffer();
            let Some(entry) = self.streams.get_mut(&id) else { return };
            let Some(ticket) = entry.stream.begin_decode(&mut pcm) else { return };
            self.counters.add_start(ticket.purpose, now.saturating_sub(since), ticket.samples);
            let cancelled = Arc::new(AtomicBool::new(false));
            let number = self.next_job;
            self.next_job += 1;
            let careful = ticket.is_careful();
            let job = Job { number, pcm, careful, cancelled: Arc::clone(&cancelled) };
            self.running.push(Running { number, stream: id, ticket, cancelled });
            self.outputs.push(Output::Run { worker, job });
            entry.waiting = None;
            self.update(now, id);
        }
        let is_final =
            |entry: &&Entry| entry.waiting.is_some_and(|(purpose, _)| purpose == Purpose::Final);
        let finals = self.streams.values().filter(is_final).count();
        let cancelled = self.running.iter().filter(|running| running.is_cancelled()).count();
        let is_interim = |running: &&Running| {
            running.ticket.purpose == Purpose::Interim && !running.is_cancelled()
        };
        let needless = finals.saturating_sub(cancelled);
        self.running.iter().filter(is_interim).take(needless).for_each(Running::cancel);
    }

    /// The stream whose decode is next, and since when it waits.
    fn next_entry(&mut self, now: Duration) -> Option<(u64, Duration)> {
        let permits_interim = self.load.permits_interim(now);
        let waiting = self.streams.iter().filter_map(|(id, entry)| {
            let (purpose, since) = entry.waiting?;
            (purpose > Purpose::Interim || permits_interim).then_some((purpose, since, *id))
        });
        let first = |a: (Purpose, Duration, u64), b: (Purpose, Duration, u64)| {
            if b.0 > a.0 || b.0 == a.0 && b.1 < a.1 { b } else { a }
        };
        waiting.reduce(first).map(|(_, since, id)| (id, since))
    }

    /// Whether no worker is left, and none may work soon.
    fn are_all_down(&self) -> bool {
        self.down.iter().all(|down| *down)
    }

    fn give_up_if_all_are_down(&mut self) {
        if !self.are_all_down() {
            return;
        }
        for entry in self.streams.values_mut() {
            entry.stream.give_up();
            entry.waiting = entry.stream.wanted().and(entry.waiting);
            for event in entry.stream.take_events() {
                self.outputs.push(Output::Send { sink: entry.sink.clone(), event });
            }
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
