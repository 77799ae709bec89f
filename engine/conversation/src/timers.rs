//! Deadlines, in a fixed table, each with its reason.

use crate::time::Time;

/// Why the conversation wants to be called. The order is the order in which deadlines of one instant are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The LLM gave nothing for 5 s.
    Llm,
    /// The TTS gave nothing for 5 s.
    Tts,
    /// A tool gave no result for 20 s.
    Tool,
    /// The user's voice makes the agent quieter.
    Duck,
    /// The user's voice has lasted long enough to hold the agent.
    Hold,
    /// The time in which the agent's own echo is feared is over.
    Warmup,
    /// No transcript came.
    Transcript,
    /// The user's turn is over.
    Commit,
    /// The interruption was false.
    Resume,
    /// A tool is slow: its message is due.
    ToolDelay,
    /// The next utterance may be asked for.
    Spacing,
    /// What was heard is told.
    Heard,
    /// The warning before the limit.
    Warning,
    /// The limit of the call.
    Limit,
    /// Nobody says anything.
    Idle,
}

impl Reason {
    const ALL: [Self; 15] = [
        Self::Llm,
        Self::Tts,
        Self::Tool,
        Self::Duck,
        Self::Hold,
        Self::Warmup,
        Self::Transcript,
        Self::Commit,
        Self::Resume,
        Self::ToolDelay,
        Self::Spacing,
        Self::Heard,
        Self::Warning,
        Self::Limit,
        Self::Idle,
    ];

    /// A label for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Tts => "tts",
            Self::Tool => "tool",
            Self::Duck => "duck",
            Self::Hold => "hold",
            Self::Warmup => "warmup",
            Self::Transcript => "transcript",
            Self::Commit => "commit",
            Self::Resume => "resume",
            Self::ToolDelay => "tool_delay",
            Self::Spacing => "spacing",
            Self::Heard => "heard",
            Self::Warning => "warning",
            Self::Limit => "limit",
            Self::Idle => "idle",
        }
    }
}

/// One deadline at most for each reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    table: [Option<Time>; Reason::ALL.len()],
}

impl Timers {
    pub(crate) fn set(&mut self, reason: Reason, at: Time) {
        self.table[reason as usize] = Some(at);
    }

    pub(crate) fn put(&mut self, reason: Reason, at: Option<Time>) {
        self.table[reason as usize] = at;
    }

    pub(crate) fn clear(&mut self, reason: Reason) {
        self.table[reason as usize] = None;
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn at(&self, reason: Reason) -> Option<Time> {
        self.table[reason as usize]
    }

    /// The earliest; of one instant the first in the order of [`Reason`].
    pub(crate) fn next(&self) -> Option<(Time, Reason)> {
        let set = Reason::ALL.into_iter().filter_map(|reason| Some((self.at(reason)?, reason)));
        set.min()
    }
}
