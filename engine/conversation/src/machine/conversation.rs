//! State machine of one conversation: inputs and their times come in, requests and events go out.
//! The crate's documentation describes the driver's side.
//!
//! Phases of a conversation (`Phase`):
//!
//! ```text
//! New --first input--> Running --call limit, Stop with exit message--> Ending
//!                         |                                              |
//!                         | Leave, End, Stop without exit message,       | exit message played
//!                         | idle_end_after, stage failure;               | or failed; Leave, End,
//!                         | no exit message configured                   | Stop without exit
//!                         |                                              | message; stage failure
//!                         +-----------------> Ended <--------------------+
//! ```
//!
//! Each module holds the rules of its name:
//!
//! - `speech`: the user's speech as the VAD reports it.
//! - `endpointing`: end of the user's turn.
//! - `barge_in`: duck, hold, cancel, resume.
//! - `floor`: the reply that plays, and those that wait.
//! - `reply`, `phrase`: one reply; its text, cut into segments.
//! - `think`: generations of the LLM.
//! - `preemptive`: replies that are generated before the commit.
//! - `tools`, `guardrail`: tools and their messages; triggered guardrails.
//! - `voice`: TTS and playout.
//! - `departures`: when each word of the agent left, in calls that are recorded.
//! - `heard_text`, `history`: what the user has heard; the history for the LLM.
//! - `lifecycle`: idle, limit, commands, end.
//! - `opening`: greeting and recording message.
//! - `participation`, `addressing`: conversations of several people; who is addressed.
//! - `model_decision`, `open_words`: the model decides whether to answer what the rules leave open.
//! - `timers`: the deadlines of all rules.

use std::collections::VecDeque;

use crate::contract::event::{AgentState, EndReason, Event, EventEnvelope, TurnTimes, UtteranceId};
use crate::contract::input::Input;
use crate::contract::output::{Explanation, Output};
use crate::contract::spec::Spec;
use crate::contract::time::Time;
use crate::machine::departures::Departures;
use crate::machine::history::History;
use crate::machine::open_words::ModelDecisions;
use crate::machine::people::People;
use crate::machine::reply::{Reply, RunningTool};
use crate::machine::speech::{Turn, UserSpeech};
use crate::machine::timers::{TimerKind, Timers};

/// Phase of the call. The drawing above shows the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No input has arrived.
    New,
    /// The call is running.
    Running,
    /// The exit message is played.
    Ending(EndReason),
    /// The call is over.
    Ended,
}

/// One conversation.
pub struct Conversation {
    pub(crate) spec: Spec,
    pub(crate) now: Time,
    pub(crate) phase: Phase,
    pub(crate) outputs: VecDeque<Output>,
    explain_enabled: bool,
    seq: u64,
    pub(crate) timers: Timers,
    pub(crate) speech: UserSpeech,
    pub(crate) turn: Turn,
    /// Text of turns with too few words. It becomes part of the next turn.
    pub(crate) carried_text: String,
    /// Queue of replies. The first one has the floor.
    pub(crate) floor: VecDeque<Reply>,
    /// A reply to the open turn, generated before the turn is committed.
    pub(crate) preemptive_reply: Option<Box<Reply>>,
    /// Whether a reply of the model was cut because of its length, which is told once.
    pub(crate) has_cut_reply: bool,
    pub(crate) running_tools: Vec<RunningTool>,
    pub(crate) history: History,
    pub(crate) agent_state: AgentState,
    pub(crate) ducked: bool,
    /// Whether [`Output::Hold`] was sent and no [`Output::Resume`] has followed.
    pub(crate) playout_paused: bool,
    /// When the samples of the segment that is playing left; kept if the call is recorded.
    pub(crate) departures: Option<Departures>,
    /// End of the echo warm-up. Set at the first sample of the call.
    pub(crate) warmup_until: Option<Time>,
    pub(crate) last_playout_end: Option<Time>,
    pub(crate) last_reply_end: Time,
    pub(crate) last_tool_result_at: Option<Time>,
    pub(crate) last_callout_at: Option<Time>,
    pub(crate) unanswered_callouts: u32,
    pub(crate) next_idle_message: usize,
    pub(crate) warning_pending: bool,
    /// Whether the recording message is still to be heard.
    pub(crate) recording_message_pending: bool,
    /// Whether the agent has said goodbye: the call ends when the floor is free, unless a turn is
    /// committed before.
    pub(crate) farewell_spoken: bool,
    /// Time of each stage's first failure since its last success, indexed by
    /// [`Stage`](crate::contract::event::Stage).
    pub(crate) failing_since: [Option<Time>; 4],
    /// Whether a stage has failed for too long. The conversation then ends.
    pub(crate) failure_limit_reached: bool,
    /// The provider of the STT, if it is known.
    pub(crate) stt_provider: Option<String>,
    /// What is known about the people of a conversation of several.
    pub(crate) people: People,
    /// What the model is asked about.
    pub(crate) decisions: ModelDecisions,
    /// Final transcripts that the STT has not delivered for finished speech segments.
    pub(crate) pending_finals: u32,
    /// Times of the last committed turn that got a reply.
    pub(crate) last_turn_times: Option<TurnTimes>,
    pub(crate) last_turn_speech_end: Option<Time>,
    pub(crate) next_epoch: u32,
    pub(crate) next_segment: u32,
    pub(crate) next_tool_call: u32,
    pub(crate) next_utterance: u32,
    pub(crate) next_turn: u32,
}

impl Conversation {
    /// A conversation before its first input.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        Self {
            departures: spec.record_words.then(Departures::default),
            spec,
            now: Time::ZERO,
            phase: Phase::New,
            outputs: VecDeque::new(),
            explain_enabled: false,
            seq: 0,
            timers: Timers::default(),
            speech: UserSpeech::default(),
            turn: Turn::default(),
            carried_text: String::new(),
            floor: VecDeque::new(),
            preemptive_reply: None,
            has_cut_reply: false,
            running_tools: Vec::new(),
            history: History::default(),
            agent_state: AgentState::Listening,
            ducked: false,
            playout_paused: false,
            warmup_until: None,
            last_playout_end: None,
            last_reply_end: Time::ZERO,
            last_tool_result_at: None,
            last_callout_at: None,
            unanswered_callouts: 0,
            next_idle_message: 0,
            warning_pending: false,
            recording_message_pending: false,
            farewell_spoken: false,
            failing_since: [None; 4],
            failure_limit_reached: false,
            last_turn_times: None,
            last_turn_speech_end: None,
            stt_provider: None,
            people: People::default(),
            decisions: ModelDecisions::default(),
            pending_finals: 0,
            next_epoch: 0,
            next_segment: 0,
            next_tool_call: 0,
            next_utterance: 0,
            next_turn: 0,
        }
    }

    /// The rules of this conversation.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Sets whether each decision is followed by an [`Output::Explain`].
    pub fn set_explain(&mut self, on: bool) {
        self.explain_enabled = on;
    }

    /// Handles an input that happened at `now`. Deadlines up to and including `now` are served
    /// first, each at its own time, earliest first. A `now` before the previous one counts as the
    /// previous one.
    pub fn handle(&mut self, input: Input, now: Time) {
        if self.phase == Phase::New {
            self.start();
            self.settle();
        }
        while let Some((at, reason)) = self.timers.next_deadline().filter(|(at, _)| *at <= now) {
            self.now = self.now.max(at);
            self.handle_deadline(reason);
            self.settle();
        }
        self.now = self.now.max(now);
        self.dispatch_input(input);
        self.settle();
    }

    /// The next output: a request or an event. Call it until it returns `None` after every
    /// [`Conversation::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The utterance that plays, and its words that were heard by `now`. It has no effect: events
    /// report the same text every second.
    #[must_use]
    pub fn heard_words(&self, now: Time) -> Option<(UtteranceId, &str)> {
        let utterance = self.floor.front()?.utterances.front()?;
        utterance.started_at?;
        Some((utterance.id, utterance.heard_text(now)))
    }

    /// The latest time for the next [`Conversation::handle`], and the reason.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, TimerKind)> {
        self.timers.next_deadline()
    }

    /// Times of committed turns that no [`Event::Turn`] has reported yet, because their replies
    /// have not started to play.
    pub fn unreported_turn_times(&self) -> impl Iterator<Item = &TurnTimes> {
        self.floor.iter().filter_map(|reply| reply.turn_times.as_ref())
    }

    fn dispatch_input(&mut self, input: Input) {
        if self.phase == Phase::Ended {
            match input {
                Input::Command { id, command } => self.handle_command(id, command),
                Input::ExternalEvent(event @ Event::ProviderUsage(_)) => self.emit(event),
                _ => {}
            }
            return;
        }
        match input {
            Input::Start | Input::Tick => {}
            Input::SpeechStarted { onset } => self.speech_started(onset),
            Input::SpeechContinued { until } => self.speech_continued(until),
            Input::SpeechStopped { end } => self.speech_stopped(end),
            Input::FinalTranscriptPending => {
                self.pending_finals = self.pending_finals.saturating_add(1)
            }
            Input::Transcript { text, is_final: false, .. } => {
                self.handle_interim_transcript(&text)
            }
            Input::Transcript { text, is_final: true, trailing_interim: outstanding } => {
                self.handle_final_transcript(&text, &outstanding);
            }
            Input::SttProvider(provider) => self.stt_provider = Some(provider),
            Input::SpeakerStarted { name, at } => self.speaker_started(&name, at),
            Input::SpeakerStopped { name, at } => self.speaker_stopped(&name, at),
            Input::PeoplePresent { count } => self.people_present(count),
            Input::TurnHint(hint) => self.handle_turn_hint(hint),
            Input::TurnProbability { speech_segment, probability: p } => {
                self.handle_turn_probability(speech_segment, p)
            }
            Input::Llm { generation, event } => self.handle_llm_event(generation, event),
            Input::Tts { segment, event } => self.handle_tts_event(segment, event),
            Input::Playout { segment, event } => self.handle_playout_event(segment, event),
            Input::ToolsAdded(names) => self.add_tools(names),
            Input::ToolResult { call, result } => self.handle_tool_result(call, result),
            Input::GuardrailTriggered { response: say } => self.handle_guardrail(&say),
            Input::Command { id, command } => self.handle_command(id, command),
            Input::StageFailed { stage, reason } => self.stage_failed(stage, reason),
            Input::StageRecovered { stage } => self.stage_recovered(stage),
            Input::ExternalEvent(event) => {
                let Some(event) = self.hold_undecided_snippets(event) else { return };
                let is_discarded = event == Event::RecordingEnded { is_discarded: true };
                self.emit(event);
                if is_discarded {
                    self.withdraw_recording_message();
                }
            }
        }
    }

    /// Serves a deadline at its own time.
    fn handle_deadline(&mut self, kind: TimerKind) {
        self.timers.clear(kind);
        match kind {
            TimerKind::LlmTimeout => self.llm_timed_out(),
            TimerKind::TtsTimeout => self.tts_timed_out(),
            TimerKind::ToolTimeout => self.tool_timed_out(),
            TimerKind::Duck => self.duck_due(),
            TimerKind::Hold => self.evaluate_hold(),
            TimerKind::WarmupEnd => self.warmup_over(),
            TimerKind::TranscriptTimeout => self.transcript_timed_out(),
            TimerKind::Commit => self.commit_due(),
            TimerKind::Resume => self.resume_due(),
            TimerKind::ToolDelay => self.tool_delay_due(),
            TimerKind::Spacing => {}
            TimerKind::HeardUpdate => self.emit_heard_text(),
            TimerKind::LimitWarning => self.warning_due(),
            TimerKind::CallLimit => self.limit_due(),
            TimerKind::Idle => self.idle_due(),
            TimerKind::AnswerSilence => {}
            TimerKind::AnswerWait => self.answer_wait_due(),
            TimerKind::Decision => self.decision_due(),
        }
    }

    /// Repeats until no deadline is due and no reply can advance without a new input.
    fn settle(&mut self) {
        while self.phase != Phase::Ended {
            if self.failure_limit_reached {
                let reason =
                    if let Phase::Ending(reason) = self.phase { reason } else { EndReason::Error };
                self.end_call(reason);
                return;
            }
            self.derive_deadlines();
            if let Some((_, reason)) = self.timers.next_deadline().filter(|(at, _)| *at <= self.now)
            {
                self.handle_deadline(reason);
            } else if !self.advance()
                && !self.end_after_farewell()
                && !self.say_recording_message()
                && !self.say_warning()
            {
                return;
            }
        }
    }

    /// Sets the deadlines that are computed from the state instead of being set by an input.
    fn derive_deadlines(&mut self) {
        let (llm, tts) = self.provider_deadlines();
        let (tool, delay) = self.tool_deadlines();
        self.timers.set_or_clear(TimerKind::LlmTimeout, llm);
        self.timers.set_or_clear(TimerKind::TtsTimeout, tts);
        self.timers.set_or_clear(TimerKind::ToolTimeout, tool);
        self.timers.set_or_clear(TimerKind::ToolDelay, delay);
        self.timers.set_or_clear(TimerKind::Spacing, self.spacing_deadline());
        self.timers.set_or_clear(TimerKind::Idle, self.idle_deadline());
        self.timers.set_or_clear(TimerKind::AnswerSilence, self.silence_deadline());
        self.timers.set_or_clear(TimerKind::AnswerWait, self.answer_wait_deadline());
        self.timers.set_or_clear(TimerKind::Decision, self.decision_deadline());
    }

    /// Emits an event with its sequence number and time.
    pub(crate) fn emit(&mut self, event: Event) {
        let envelope = EventEnvelope { seq: self.seq, at: self.now, event };
        self.seq += 1;
        self.outputs.push_back(Output::Emit(envelope));
    }

    /// Emits the reason for a decision, if explanations are enabled.
    pub(crate) fn explain_decision(&mut self, why: impl FnOnce() -> String) {
        if self.explain_enabled {
            self.outputs.push_back(Output::Explain(Explanation { at: self.now, why: why() }));
        }
    }
}
