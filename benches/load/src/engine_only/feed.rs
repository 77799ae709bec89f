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

use super::Counts;
use crate::args::Plan;
use crate::late::Late;
use crate::machine::{self, Threads};
use crate::progress::Progress;
use crate::score::{Scorer, Scores};
use crate::turns::{self, LAST, Turns};
use crate::workload::{BLOCK, RATE, Workload};

/// How often every caller is polled.
const ROUND: Duration = Duration::from_millis(5);
/// How long audio is sent before it is spoken. The engine uses it at its due time, so lateness of
/// this thread has no effect below this limit.
const AHEAD: Duration = Duration::from_millis(500);
/// Sample rate of the engine's output, in Hz.
const HEARD: usize = 48_000;

/// An event sink that forwards committed turns and discards all other events.
pub(super) struct Commits(Sender<(ConversationId, String)>);

/// An event sink, and the receiver of its committed turns.
pub(super) fn ledger() -> (Commits, Receiver<(ConversationId, String)>) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    (Commits(sender), receiver)
}

impl EventSink for Commits {
    fn record(&self, conversation: ConversationId, fact: EventEnvelope) {
        if let Event::UtteranceCommitted { text } = fact.event {
            // Fails only after the end of the run.
            let _ = self.0.send((conversation, text));
        }
    }

    fn call_panicked(&self, _: ConversationId) {}
}

/// Resources in use at one instant.
pub(super) struct Mark {
    pub(super) at: Instant,
    pub(super) threads: Threads,
    pub(super) resident: Option<u64>,
    pub(super) counts: Counts,
}

/// Result of one call.
pub(super) struct Called {
    pub(super) join: f64,
    pub(super) scores: Scores,
    pub(super) late: Late,
    pub(super) turns: Turns,
    pub(super) late_feeds: u64,
}

/// Result of a finished run.
pub(super) struct Ran {
    pub(super) calls: Vec<Called>,
    pub(super) failed: usize,
    pub(super) begin: Mark,
    pub(super) end: Mark,
    /// Memory with one call, in bytes.
    pub(super) first: Option<u64>,
    /// The user or the system stopped the run.
    pub(super) interrupted: bool,
}

struct Caller {
    far: LoopbackClient,
    asked: Instant,
    /// When the call was connected, which is also the time of its first sample.
    began: Option<Instant>,
    blocks: usize,
    late_feeds: u64,
    scorer: Scorer,
    late: Late,
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

    pub(super) fn run(mut self) -> Ran {
        let stop = crate::interrupted();
        let begun = clock::now();
        let ramp = Duration::from_secs_f64((self.plan.calls - 1) as f64 / self.plan.ramp);
        let ends = begun + ramp + self.plan.duration;
        let mut progress = Progress::new(begun, ramp + self.plan.duration);
        let (mut first, mut begin, mut attached) = (None, None, 0);
        let mut next = begun;
        loop {
            let now = clock::now();
            while attached < self.plan.calls
                && now >= begun + Duration::from_secs_f64(attached as f64 / self.plan.ramp)
            {
                // The first call has run for a while, so one-time allocations are done.
                if attached == 1 {
                    first = machine::resident();
                }
                self.attach(now, attached);
                attached += 1;
            }
            for caller in &mut self.callers {
                caller.serve(&self.plan.workload, now, ends);
            }
            for (id, text) in self.committed.try_iter() {
                if let Some(caller) = self.callers.get_mut(id.0 as usize) {
                    caller.committed.push(text);
                }
            }
            if begin.is_none() && now >= begun + ramp {
                begin = Some(Mark::now(&self.engine));
            }
            let over = now >= ends || stop.load(Relaxed);
            progress.tell(now, self.callers.len(), self.plan.calls, self.failed);
            if over {
                progress.end();
                let end = Mark::now(&self.engine);
                let begin = begin.unwrap_or_else(|| Mark::now(&self.engine));
                let workload = Arc::clone(&self.plan.workload);
                let failed =
                    self.failed + self.callers.iter().filter(|c| c.closed || c.began.is_none()).count();
                let whole = self.callers.into_iter().filter(|c| !c.closed);
                let calls = whole.filter_map(|c| c.leave(&workload, now)).collect();
                let interrupted = stop.load(Relaxed);
                return Ran { calls, failed, begin, end, first, interrupted };
            }
            next = (next + ROUND).max(clock::now());
            std::thread::sleep(next.saturating_duration_since(clock::now()));
        }
    }

    fn attach(&mut self, now: Instant, number: usize) {
        let call = CallConfig { id: ConversationId(self.callers.len() as u128), ..self.call.clone() };
        match self.engine.start_loopback_call(Arc::new(call), Vec::new()) {
            Ok(far) => {
                let mut caller = Caller {
                    far,
                    asked: now,
                    began: None,
                    blocks: 0,
                    late_feeds: 0,
                    scorer: Scorer::new(Arc::clone(&self.plan.workload), HEARD),
                    late: Late::from(0.0),
                    committed: Vec::new(),
                    closed: false,
                };
                // The call may be connected before the next poll.
                while block_time(caller.blocks) < AHEAD {
                    caller.say(&self.plan.workload);
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
    fn serve(&mut self, workload: &Workload, now: Instant, ends: Instant) {
        for left in self.far.drain_outputs() {
            match left {
                LoopbackOutput::Connected { at } => {
                    self.began = Some(at);
                    let whole = ends.saturating_duration_since(at).as_secs_f64();
                    self.scorer.end(whole - LAST);
                }
                LoopbackOutput::Audio { at, timestamp, pcm, .. } => {
                    let Some(began) = self.began else { continue };
                    let at = at.saturating_duration_since(began).as_secs_f64();
                    let _ = self.late.frame(at, timestamp as i64, pcm.len() as i64);
                    self.scorer.frame(at, &pcm);
                }
                LoopbackOutput::Video { at, .. } => {
                    let since = self.began.map(|began| at.saturating_duration_since(began).as_secs_f64());
                    self.scorer.picture(since.unwrap_or_default());
                }
                LoopbackOutput::Closed => self.closed = true,
                LoopbackOutput::Text(_) => {}
            }
        }
        let Some(began) = self.began else { return };
        loop {
            let spoken = began + block_time(self.blocks + 1);
            if spoken > now + AHEAD {
                return;
            }
            self.late_feeds += u64::from(spoken < now);
            self.say(workload);
        }
    }

    /// Sends the next frame.
    fn say(&mut self, workload: &Workload) {
        self.far.send_audio(workload.block(self.blocks).to_vec());
        self.blocks += 1;
    }

    /// Result of the call; `None` if it never connected.
    fn leave(mut self, workload: &Workload, now: Instant) -> Option<Called> {
        let began = self.began?;
        let whole = now.saturating_duration_since(began).as_secs_f64();
        self.late.end(whole);
        Some(Called {
            join: began.saturating_duration_since(self.asked).as_secs_f64(),
            scores: self.scorer.finish(whole - LAST),
            late: self.late,
            turns: turns::judged(workload, whole, &self.committed),
            late_feeds: self.late_feeds,
        })
    }
}

/// Duration of `n` frames.
fn block_time(n: usize) -> Duration {
    Duration::from_nanos((n * BLOCK) as u64 * 1_000_000_000 / RATE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_twenty_milliseconds() {
        assert_eq!(block_time(50), Duration::from_secs(1));
    }
}
