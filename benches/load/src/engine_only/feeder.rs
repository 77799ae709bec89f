//! All callers of an in-process engine, on one thread: they send and receive the audio.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use crossbeam_channel::{Receiver, Sender};
use engine::transport::loopback::{LoopbackClient, LoopbackOutput};
use engine::{CallEngine, clock};
use engine_api::{CallConfig, EventSink};

use super::EngineCounters;
use crate::args::Plan;
use crate::lateness::Lateness;
use crate::machine::{self, ThreadTimes};
use crate::progress::Progress;
use crate::score::{Scorer, Scores};
use crate::turns::{self, TurnStats, UNJUDGED_TAIL};
use crate::workload::{FRAME_SAMPLES_16K, SAMPLE_RATE, Workload};

/// How often every caller is polled.
const CALLER_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long audio is sent before it is spoken. The engine uses it at its due time, so lateness of
/// this thread has no effect below this limit.
const SEND_AHEAD: Duration = Duration::from_millis(500);
/// Sample rate of the engine's output, in Hz.
const OUTPUT_SAMPLE_RATE: usize = 48_000;

/// An event sink that forwards committed turns and discards all other events.
pub(super) struct CommitSink(Sender<(ConversationId, String)>);

/// An event sink, and the receiver of its committed turns.
pub(super) fn commit_channel() -> (CommitSink, Receiver<(ConversationId, String)>) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    (CommitSink(sender), receiver)
}

impl EventSink for CommitSink {
    fn record(&self, conversation: ConversationId, event: EventEnvelope) {
        if let Event::UtteranceCommitted { text, .. } = event.event {
            // Fails only after the end of the run.
            let _ = self.0.send((conversation, text));
        }
    }

    fn call_panicked(&self, _: ConversationId) {}
}

/// Resources in use at one instant.
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) threads: ThreadTimes,
    pub(super) resident_bytes: Option<u64>,
    pub(super) counters: EngineCounters,
}

/// Result of one call.
pub(super) struct CallResult {
    pub(super) join: f64,
    pub(super) scores: Scores,
    pub(super) lateness: Lateness,
    pub(super) turns: TurnStats,
    pub(super) late_frames: u64,
}

/// Result of a finished run.
pub(super) struct RunResult {
    pub(super) calls: Vec<CallResult>,
    pub(super) failed: usize,
    pub(super) start: Snapshot,
    pub(super) end: Snapshot,
    /// Memory with one call, in bytes.
    pub(super) first_call_memory: Option<u64>,
    /// The user or the system stopped the run.
    pub(super) interrupted: bool,
}

struct Caller {
    client: LoopbackClient,
    requested_at: Instant,
    /// When the call was connected, which is also the time of its first sample.
    connected_at: Option<Instant>,
    sent_frames: usize,
    late_frames: u64,
    scorer: Scorer,
    lateness: Lateness,
    committed: Vec<String>,
    closed: bool,
}

pub(super) struct Feeder {
    plan: Plan,
    engine: Arc<CallEngine>,
    call: CallConfig,
    committed: Receiver<(ConversationId, String)>,
    callers: Vec<Caller>,
    failed: usize,
}

impl Feeder {
    pub(super) fn new(
        plan: Plan,
        engine: Arc<CallEngine>,
        call: CallConfig,
        committed: Receiver<(ConversationId, String)>,
    ) -> Self {
        let callers = Vec::with_capacity(plan.calls);
        Self { plan, engine, call, committed, callers, failed: 0 }
    }

    pub(super) fn run(mut self) -> RunResult {
        let stop = crate::interrupt_flag();
        let started_at = clock::now();
        let ramp = Duration::from_secs_f64((self.plan.calls - 1) as f64 / self.plan.ramp);
        let ends_at = started_at + ramp + self.plan.duration;
        let mut progress = Progress::new(started_at, ramp + self.plan.duration);
        let (mut first, mut begin, mut attached) = (None, None, 0);
        let mut next = started_at;
        loop {
            let now = clock::now();
            while attached < self.plan.calls
                && now >= started_at + Duration::from_secs_f64(attached as f64 / self.plan.ramp)
            {
                // The first call has run for a while, so one-time allocations are done.
                if attached == 1 {
                    first = machine::resident_bytes();
                }
                self.attach_caller(now, attached);
                attached += 1;
            }
            for caller in &mut self.callers {
                caller.poll(&self.plan.workload, now, ends_at);
            }
            for (id, text) in self.committed.try_iter() {
                if let Some(caller) = self.callers.get_mut(id.0 as usize) {
                    caller.committed.push(text);
                }
            }
            if begin.is_none() && now >= started_at + ramp {
                begin = Some(Snapshot::capture(&self.engine));
            }
            let finished = now >= ends_at || stop.load(Relaxed);
            progress.update(now, self.callers.len(), self.plan.calls, self.failed);
            if finished {
                progress.finish();
                let end = Snapshot::capture(&self.engine);
                let begin = begin.unwrap_or_else(|| Snapshot::capture(&self.engine));
                let workload = Arc::clone(&self.plan.workload);
                let failed = self.failed
                    + self.callers.iter().filter(|c| c.closed || c.connected_at.is_none()).count();
                let connected = self.callers.into_iter().filter(|c| !c.closed);
                let calls = connected.filter_map(|c| c.finish(&workload, now)).collect();
                let interrupted = stop.load(Relaxed);
                return RunResult {
                    calls,
                    failed,
                    start: begin,
                    end,
                    first_call_memory: first,
                    interrupted,
                };
            }
            next = (next + CALLER_POLL_INTERVAL).max(clock::now());
            std::thread::sleep(next.saturating_duration_since(clock::now()));
        }
    }

    fn attach_caller(&mut self, now: Instant, number: usize) {
        let call =
            CallConfig { id: ConversationId(self.callers.len() as u128), ..self.call.clone() };
        match self.engine.start_loopback_call(Arc::new(call), Vec::new()) {
            Ok(client) => {
                let mut caller = Caller {
                    client,
                    requested_at: now,
                    connected_at: None,
                    sent_frames: 0,
                    late_frames: 0,
                    scorer: Scorer::new(Arc::clone(&self.plan.workload), OUTPUT_SAMPLE_RATE),
                    lateness: Lateness::with_start(0.0),
                    committed: Vec::new(),
                    closed: false,
                };
                // The call may be connected before the next poll.
                while frames_duration(caller.sent_frames) < SEND_AHEAD {
                    caller.send_frame(&self.plan.workload);
                }
                self.callers.push(caller);
            }
            Err(error) => {
                self.failed += 1;
                eprintln!("cannot start call {number}: {error}");
            }
        }
    }
}

impl Caller {
    fn poll(&mut self, workload: &Workload, now: Instant, ends_at: Instant) {
        for output in self.client.drain_outputs() {
            match output {
                LoopbackOutput::Connected { at } => {
                    self.connected_at = Some(at);
                    let whole = ends_at.saturating_duration_since(at).as_secs_f64();
                    self.scorer.set_end(whole - UNJUDGED_TAIL);
                }
                LoopbackOutput::Audio { at, timestamp, pcm, .. } => {
                    let Some(connected_at) = self.connected_at else { continue };
                    let at = at.saturating_duration_since(connected_at).as_secs_f64();
                    let _ = self.lateness.record_frame(at, timestamp as i64, pcm.len() as i64);
                    self.scorer.process_audio(at, &pcm);
                }
                LoopbackOutput::Video { at, .. } => {
                    let since = self.connected_at.map(|connected_at| {
                        at.saturating_duration_since(connected_at).as_secs_f64()
                    });
                    self.scorer.record_frame(since.unwrap_or_default());
                }
                LoopbackOutput::Closed => self.closed = true,
                LoopbackOutput::Text(_) => {}
            }
        }
        let Some(connected_at) = self.connected_at else { return };
        loop {
            let spoken = connected_at + frames_duration(self.sent_frames + 1);
            if spoken > now + SEND_AHEAD {
                return;
            }
            self.late_frames += u64::from(spoken < now);
            self.send_frame(workload);
        }
    }

    /// Sends the next frame.
    fn send_frame(&mut self, workload: &Workload) {
        self.client.send_audio(workload.frame(self.sent_frames).to_vec());
        self.sent_frames += 1;
    }

    /// Result of the call; `None` if it never connected.
    fn finish(mut self, workload: &Workload, now: Instant) -> Option<CallResult> {
        let connected_at = self.connected_at?;
        let duration = now.saturating_duration_since(connected_at).as_secs_f64();
        self.lateness.finish(duration);
        Some(CallResult {
            join: connected_at.saturating_duration_since(self.requested_at).as_secs_f64(),
            scores: self.scorer.finish(duration - UNJUDGED_TAIL),
            lateness: self.lateness,
            turns: turns::evaluate_turns(workload, duration, &self.committed),
            late_frames: self.late_frames,
        })
    }
}

/// Duration of `n` frames.
fn frames_duration(n: usize) -> Duration {
    Duration::from_nanos((n * FRAME_SAMPLES_16K) as u64 * 1_000_000_000 / SAMPLE_RATE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_twenty_milliseconds() {
        assert_eq!(frames_duration(50), Duration::from_secs(1));
    }
}
