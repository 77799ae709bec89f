//! Deadlines, in a fixed table, each with its reason.

use crate::time::Time;

/// Why the conversation wants to be called. The order is the order in which deadlines of one instant are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKind {
    /// The LLM gave nothing for 5 s.
    LlmTimeout,
    /// The TTS gave nothing for 5 s.
    TtsTimeout,
    /// A tool gave no result for 20 s.
    ToolTimeout,
    /// The user's voice makes the agent quieter.
    Duck,
    /// The user's voice has lasted long enough to hold the agent.
    Hold,
    /// The time in which the agent's own echo is feared is over.
    WarmupEnd,
    /// No transcript came.
    TranscriptTimeout,
    /// The user's turn is over.
    Commit,
    /// The interruption was false.
    Resume,
    /// A tool is slow: its message is due.
    ToolDelay,
    /// The next utterance may be asked for.
    Spacing,
    /// What was heard is told.
    HeardUpdate,
    /// The warning before the limit.
    LimitWarning,
    /// The limit of the call.
    CallLimit,
    /// Nobody says anything.
    Idle,
}

impl TimerKind {
    const ALL: [Self; 15] = [
        Self::LlmTimeout,
        Self::TtsTimeout,
        Self::ToolTimeout,
        Self::Duck,
        Self::Hold,
        Self::WarmupEnd,
        Self::TranscriptTimeout,
        Self::Commit,
        Self::Resume,
        Self::ToolDelay,
        Self::Spacing,
        Self::HeardUpdate,
        Self::LimitWarning,
        Self::CallLimit,
        Self::Idle,
    ];

    /// A label for metrics and logs.
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
        }
    }
}

/// One deadline at most for each reason.
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

    /// The earliest; of one instant the first in the order of [`TimerKind`].
    pub(crate) fn next_deadline(&self) -> Option<(Time, TimerKind)> {
        let set = TimerKind::ALL.into_iter().filter_map(|kind| Some((self.deadline(kind)?, kind)));
        set.min()
    }
}
