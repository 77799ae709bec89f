//! The machine: what happened comes in, wishes and facts go out. See the crate's documentation for the driver's side.
//!
//! Its parts, each with the rules of its name: `endpoint` (when the user's turn is over), `barge_in` (duck, hold, kill, resume),
//! `floor` (whose words sound), `think` (the LLM's steps), `tools`, `voice` (TTS and playout), `lifecycle` (greeting, idle, limit, commands, end).

use std::collections::VecDeque;

use crate::endpoint::Turn;
use crate::event::{AgentState, EndReason, Event, Stamped, TurnTimes};
use crate::history::History;
use crate::input::Input;
use crate::lifecycle::Life;
use crate::output::{Explanation, Output};
use crate::reply::{Reply, Running};
use crate::spec::Spec;
use crate::speech::Speech;
use crate::time::Time;
use crate::timers::{Reason, Timers};

/// One conversation.
pub struct Conversation {
    pub(crate) spec: Spec,
    pub(crate) now: Time,
    pub(crate) life: Life,
    pub(crate) outputs: VecDeque<Output>,
    explains: bool,
    seq: u64,
    pub(crate) timers: Timers,
    pub(crate) speech: Speech,
    pub(crate) turn: Turn,
    /// Text of turns with too few words, which joins the next turn.
    pub(crate) kept: String,
    /// The first has the floor.
    pub(crate) floor: VecDeque<Reply>,
    /// A reply to the open turn, in case it ends as it is.
    pub(crate) prep: Option<Box<Reply>>,
    pub(crate) tools: Vec<Running>,
    pub(crate) history: History,
    pub(crate) state: AgentState,
    pub(crate) ducked: bool,
    /// Whether playout was told to hold.
    pub(crate) paused: bool,
    /// Set with the first sample of the call.
    pub(crate) warmup_until: Option<Time>,
    pub(crate) last_playout_end: Option<Time>,
    pub(crate) last_reply_end: Time,
    pub(crate) last_tool: Option<Time>,
    pub(crate) last_callout: Option<Time>,
    pub(crate) idle_count: u32,
    pub(crate) next_idle: usize,
    pub(crate) warning_waits: bool,
    /// Since when each stage has failed without a success.
    pub(crate) failing: [Option<Time>; 4],
    /// A stage has failed for too long.
    pub(crate) broken: bool,
    /// Final transcripts that the STT still owes for stretches that have ended.
    pub(crate) finals_due: u32,
    /// Of the turn committed last.
    pub(crate) last_times: Option<TurnTimes>,
    pub(crate) last_end: Option<Time>,
    pub(crate) next_epoch: u32,
    pub(crate) next_piece: u32,
    pub(crate) next_call: u32,
    pub(crate) next_utterance: u32,
    pub(crate) next_turn: u32,
}

impl Conversation {
    /// A conversation that has not begun.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        Self {
            spec,
            now: Time::ZERO,
            life: Life::New,
            outputs: VecDeque::new(),
            explains: false,
            seq: 0,
            timers: Timers::default(),
            speech: Speech::default(),
            turn: Turn::default(),
            kept: String::new(),
            floor: VecDeque::new(),
            prep: None,
            tools: Vec::new(),
            history: History::default(),
            state: AgentState::Listening,
            ducked: false,
            paused: false,
            warmup_until: None,
            last_playout_end: None,
            last_reply_end: Time::ZERO,
            last_tool: None,
            last_callout: None,
            idle_count: 0,
            next_idle: 0,
            warning_waits: false,
            failing: [None; 4],
            broken: false,
            last_times: None,
            last_end: None,
            finals_due: 0,
            next_epoch: 0,
            next_piece: 0,
            next_call: 0,
            next_utterance: 0,
            next_turn: 0,
        }
    }

    /// How it behaves.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether each decision is followed by an [`Output::Explain`].
    pub fn explain(&mut self, on: bool) {
        self.explains = on;
    }

    /// Takes in what happened at `now`. What is due before is served first, each deadline at its own time, earliest first. Time that runs
    /// backwards counts as standing still.
    pub fn handle(&mut self, input: Input, now: Time) {
        if self.life == Life::New {
            self.begin();
            self.settle();
        }
        while let Some((at, reason)) = self.timers.next().filter(|(at, _)| *at <= now) {
            self.now = self.now.max(at);
            self.due(reason);
            self.settle();
        }
        self.now = self.now.max(now);
        self.take(input);
        self.settle();
    }

    /// The next wish or fact. Drain them all after every [`Conversation::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Conversation::handle`] must be called at the latest, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, Reason)> {
        self.timers.next()
    }

    /// Times of committed turns that were not told yet (by [`Event::Turn`]): their replies are on the way.
    pub fn open_turns(&self) -> impl Iterator<Item = &TurnTimes> {
        self.floor.iter().filter_map(|reply| reply.times.as_ref())
    }

    fn take(&mut self, input: Input) {
        if self.life == Life::Ended {
            if let Input::Command { id, command } = input {
                self.command(id, command);
            }
            return;
        }
        match input {
            Input::Begin | Input::Tick => {}
            Input::SpeechStarted { onset } => self.speech_started(onset),
            Input::SpeechHeard { until } => self.speech_heard(until),
            Input::SpeechStopped { end } => self.speech_stopped(end),
            Input::FinalDue => self.finals_due = self.finals_due.saturating_add(1),
            Input::Transcript { text, is_final: false, .. } => self.interim(&text),
            Input::Transcript { text, is_final: true, outstanding } => {
                self.final_transcript(&text, &outstanding);
            }
            Input::TurnProbability { stretch, p } => self.turn_probability(stretch, p),
            Input::Llm { step, event } => self.llm(step, event),
            Input::Tts { piece, event } => self.tts(piece, event),
            Input::Playout { piece, event } => self.playout(piece, event),
            Input::Tools(names) => self.learn_tools(names),
            Input::Tool { call, result } => self.tool_result(call, result),
            Input::Guardrail { say } => self.guardrail(&say),
            Input::Command { id, command } => self.command(id, command),
            Input::Failed { stage, reason } => self.failed(stage, reason),
            Input::Recovered { stage } => self.recovered(stage),
            Input::Fact(event) => self.tell(event),
        }
    }

    /// Serves a deadline at its own time.
    fn due(&mut self, reason: Reason) {
        self.timers.clear(reason);
        match reason {
            Reason::Llm => self.llm_silent(),
            Reason::Tts => self.tts_silent(),
            Reason::Tool => self.tool_silent(),
            Reason::Duck => self.duck_due(),
            Reason::Hold => self.judge_hold(),
            Reason::Warmup => self.warmup_over(),
            Reason::Transcript => self.transcript_missing(),
            Reason::Commit => self.commit_due(),
            Reason::Resume => self.resume_due(),
            Reason::ToolDelay => self.tool_delay_due(),
            Reason::Spacing => {}
            Reason::Heard => self.heard_so_far(),
            Reason::Warning => self.warning_due(),
            Reason::Limit => self.limit_due(),
            Reason::Idle => self.idle_due(),
        }
    }

    /// Goes on until nothing is due now and nothing is possible without news.
    fn settle(&mut self) {
        while self.life != Life::Ended {
            if self.broken {
                let reason = if let Life::Ending(reason) = self.life { reason } else { EndReason::Error };
                self.finish(reason);
                return;
            }
            self.derive_deadlines();
            if let Some((_, reason)) = self.timers.next().filter(|(at, _)| *at <= self.now) {
                self.due(reason);
            } else if !self.advance() && !self.warn() {
                return;
            }
        }
    }

    /// Deadlines that follow from what is there, and are set by nobody.
    fn derive_deadlines(&mut self) {
        let (llm, tts) = self.silence_deadlines();
        let (tool, delay) = self.tool_deadlines();
        self.timers.put(Reason::Llm, llm);
        self.timers.put(Reason::Tts, tts);
        self.timers.put(Reason::Tool, tool);
        self.timers.put(Reason::ToolDelay, delay);
        self.timers.put(Reason::Spacing, self.spacing_deadline());
        self.timers.put(Reason::Idle, self.idle_deadline());
    }

    /// A fact for the world, stamped.
    pub(crate) fn tell(&mut self, event: Event) {
        let fact = Stamped { seq: self.seq, at: self.now, event };
        self.seq += 1;
        self.outputs.push_back(Output::Tell(fact));
    }

    /// Why something was decided, if anybody wants to know.
    pub(crate) fn because(&mut self, why: impl FnOnce() -> String) {
        if self.explains {
            self.outputs.push_back(Output::Explain(Explanation { at: self.now, why: why() }));
        }
    }
}
