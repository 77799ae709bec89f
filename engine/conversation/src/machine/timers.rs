//! Deadlines of a conversation: a fixed table with one entry for each [`TimerKind`].

use crate::contract::time::Time;

/// Kind of a deadline: why the conversation needs a call of `handle`. Deadlines with the same time
/// are served in the order of this enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKind {
    /// No token from the LLM for 5 s.
    LlmTimeout,
    /// No first audio from the TTS for 5 s.
    TtsTimeout,
    /// No result from a tool for 20 s.
    ToolTimeout,
    /// The echo warm-up is over: the agent's own echo is no longer likely. It comes before the duck
    /// and the hold, which it allows.
    WarmupEnd,
    /// The user has spoken long enough to duck the agent.
    Duck,
    /// The user has spoken long enough to hold the agent.
    Hold,
    /// No final transcript arrived in time.
    TranscriptTimeout,
    /// The user's turn is over.
    Commit,
    /// The interruption was false, and the held reply resumes.
    Resume,
    /// A tool is slow, and its `on_delay` message is due.
    ToolDelay,
    /// The TTS may be requested for the next utterance.
    Spacing,
    /// The heard text of the playing utterance is due.
    HeardUpdate,
    /// The warning before the call limit.
    LimitWarning,
    /// The call limit.
    CallLimit,
    /// The user is idle.
    Idle,
    /// Nobody has spoken for long enough: the answer may begin.
    AnswerSilence,
    /// The answer could not begin, because others speak.
    AnswerWait,
    /// The model is asked whether to answer the utterances that the rules leave open.
    Decision,
}

impl TimerKind {
    const ALL: [Self; 18] = [
        Self::LlmTimeout,
        Self::TtsTimeout,
        Self::ToolTimeout,
        Self::WarmupEnd,
        Self::Duck,
        Self::Hold,
        Self::TranscriptTimeout,
        Self::Commit,
        Self::Resume,
        Self::ToolDelay,
        Self::Spacing,
        Self::HeardUpdate,
        Self::LimitWarning,
        Self::CallLimit,
        Self::Idle,
        Self::AnswerSilence,
        Self::AnswerWait,
        Self::Decision,
    ];

    /// The label for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlmTimeout => "llm",
            Self::TtsTimeout => "tts",
            Self::ToolTimeout => "tool",
            Self::Duck => "duck",
            Self::Hold => "hold",
            Self::WarmupEnd => "warmup",
            Self::TranscriptTimeout => "transcript",
            Self::Commit => "commit",
            Self::Resume => "resume",
            Self::ToolDelay => "tool_delay",
            Self::Spacing => "spacing",
            Self::HeardUpdate => "heard",
            Self::LimitWarning => "warning",
            Self::CallLimit => "limit",
            Self::Idle => "idle",
            Self::AnswerSilence => "answer_silence",
            Self::AnswerWait => "answer_wait",
            Self::Decision => "decision",
        }
    }
}

/// At most one deadline for each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    deadlines: [Option<Time>; TimerKind::ALL.len()],
}

impl Timers {
    pub(crate) fn set(&mut self, kind: TimerKind, at: Time) {
        self.deadlines[kind as usize] = Some(at);
    }

    pub(crate) fn set_or_clear(&mut self, kind: TimerKind, at: Option<Time>) {
        self.deadlines[kind as usize] = at;
    }

    pub(crate) fn clear(&mut self, kind: TimerKind) {
        self.deadlines[kind as usize] = None;
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn deadline(&self, kind: TimerKind) -> Option<Time> {
        self.deadlines[kind as usize]
    }

    /// The earliest deadline. At equal times, the first in the order of [`TimerKind`].
    pub(crate) fn next_deadline(&self) -> Option<(Time, TimerKind)> {
        let set = TimerKind::ALL.into_iter().filter_map(|kind| Some((self.deadline(kind)?, kind)));
        set.min()
    }
}
