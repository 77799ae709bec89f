//! Everything that can happen to a conversation.
//!
//! Serialisable: the list of inputs with their times is the trace from which a call is replayed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, Stage};
use crate::time::{Position, Time};

/// A reply, or anything else that is spoken and can be cut as a whole. Rises; cancelling one makes everything stamped with it stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);

/// One question to the LLM. Unique in the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GenerationId {
    /// The reply it belongs to.
    pub epoch: Epoch,
    /// 0, then one more after each round of tools and each second try.
    #[serde(rename = "step")]
    pub index: u32,
}

/// One piece of text given to the TTS and played as one. Unique in the call; rises in the order of asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SegmentId(pub u32);

/// One call of a tool. Unique in the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolCallId(pub u32);

/// One stretch of the user's speech, counted from 0, as the detector reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpeechSegmentId(pub u32);

/// One command from outside, to be answered by [`crate::output::Output::CommandResult`]. Chosen by the driver, unique in the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandId(pub u32);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// The user's connection is up. The first input, at [`Time::ZERO`].
    #[serde(rename = "Begin")]
    Start,
    /// Time passed; serves what is due and nothing else.
    Tick,
    /// The detector hears the user.
    SpeechStarted {
        /// True onset: start of the first window at or over the threshold.
        onset: Time,
    },
    /// The detector still hears the user: told with each window at or over the threshold, after [`Input::SpeechStarted`]. What makes
    /// an overlap an interruption is speech without its trailing silence, and only the detector knows that in time.
    #[serde(rename = "SpeechHeard")]
    SpeechContinued {
        /// End of that window.
        until: Time,
    },
    /// The detector hears the user no more.
    SpeechStopped {
        /// True end: end of the last window at or over the threshold.
        end: Time,
    },
    /// The STT was given the stretch that has ended, and will tell one final transcript of it, with or without words. Told after
    /// [`Input::SpeechStopped`] by drivers that know it.
    #[serde(rename = "FinalDue")]
    FinalTranscriptPending,
    /// The STT understood something.
    Transcript {
        /// Words since the last final.
        text: String,
        /// False while they may still change.
        is_final: bool,
        /// Of a final one: words heard behind it, which may still change and which no interim one has told.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[serde(rename = "outstanding")]
        trailing_interim: String,
    },
    /// The turn model answered.
    TurnProbability {
        /// The stretch it was asked about.
        #[serde(rename = "stretch")]
        speech_segment: SpeechSegmentId,
        /// P(turn is over).
        #[serde(deserialize_with = "crate::trace::number_or_nan")]
        #[serde(rename = "p")]
        probability: f32,
    },
    /// From the LLM.
    Llm {
        /// The question.
        #[serde(rename = "step")]
        generation: GenerationId,
        /// The answer's next part.
        event: LlmEvent,
    },
    /// From the TTS.
    Tts {
        /// The piece.
        #[serde(rename = "piece")]
        segment: SegmentId,
        /// What came.
        event: TtsEvent,
    },
    /// From playout.
    Playout {
        /// The piece.
        #[serde(rename = "piece")]
        segment: SegmentId,
        /// What it did.
        event: PlayoutEvent,
    },
    /// The LLM may call these tools from now on, too. Nothing is said around them.
    #[serde(rename = "Tools")]
    ToolsAdded(Vec<String>),
    /// A tool's result.
    #[serde(rename = "Tool")]
    ToolResult {
        /// The call.
        call: ToolCallId,
        /// What it returned, or why it failed.
        result: Result<Value, String>,
    },
    /// A guardrail fired for the turn committed last: its words are said verbatim and the turn ends.
    #[serde(rename = "Guardrail")]
    GuardrailTriggered {
        /// The words.
        #[serde(rename = "say")]
        response: String,
    },
    /// A command from outside.
    Command {
        /// Answered under this id.
        id: CommandId,
        /// What is asked.
        command: Command,
    },
    /// A stage failed outside of a request of its own (the STT's connection).
    #[serde(rename = "Failed")]
    StageFailed {
        /// Which one.
        stage: Stage,
        /// Why, in its words.
        reason: String,
    },
    /// The stage works again.
    #[serde(rename = "Recovered")]
    StageRecovered {
        /// Which one.
        stage: Stage,
    },
    /// A fact that another node knew first; it is stamped and told as it is.
    #[serde(rename = "Fact")]
    ExternalEvent(Event),
}

/// Part of an LLM's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LlmEvent {
    /// The model has begun to answer. Implied by the first of the others.
    #[serde(rename = "Began")]
    Started,
    /// More text.
    Text(String),
    /// What came so far is a piece of its own ([`crate::spec::Phrasing::Flushed`]).
    Flush,
    /// The model wants a tool.
    #[serde(rename = "Call")]
    ToolCall {
        /// The model's own id, given back with the result.
        id: String,
        /// Name of the tool.
        name: String,
        /// Its arguments: an object.
        arguments: Value,
    },
    /// This reply is a guardrail's: its words verbatim, no tools, and the turn ends.
    Guardrail,
    /// The answer is complete.
    End {
        /// Tokens of the question, 0 if not told.
        prompt_tokens: u32,
        /// Tokens of the answer, 0 if not told.
        completion_tokens: u32,
    },
    /// It failed; nothing follows.
    Failed(String),
}

/// What the TTS tells of a piece. The samples themselves go to playout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TtsEvent {
    /// The first samples are there.
    #[serde(rename = "Ready")]
    FirstAudio,
    /// Words with the position of their ends, if the voice knows them; may come in several parts.
    #[serde(rename = "Words")]
    WordTimestamps(Vec<(String, Position)>),
    /// All samples are there.
    End {
        /// Length of the piece.
        duration: Position,
    },
    /// It failed; nothing follows.
    Failed(String),
}

/// What playout reports of a piece. Reported when it happens, stamped with the media clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlayoutEvent {
    /// The first sample left.
    Started,
    /// Samples up to here have left, and more are leaving. Told at least every 100 ms while playing, and in answer to Hold. In between the
    /// conversation counts on by itself, one second a second.
    Progress(Position),
    /// The voice is late: nothing more leaves until the next `Progress`. Told at once.
    Stalled(Position),
    /// The last sample left.
    Finished(Position),
}

/// Most characters of a text that a client or the API gives to be said, or to be answered. Some ten minutes of speech.
pub const MAX_TEXT_CHARS: usize = 10_000;

/// Most bytes of what clients have told of one call ([`Command::VisitorContext`]) at a time: every question to the LLM carries it.
pub const MAX_VISITOR_CONTEXT_BYTES: usize = 8 << 10;

/// What may be asked from outside, by REST, the data channel or a scenario. Texts from outside have at most [`MAX_TEXT_CHARS`] characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Stop the agent and drop what is queued.
    Interrupt,
    /// Say this.
    Say {
        /// The words.
        text: String,
        /// Stop the agent first, or wait until it has ended.
        interrupt: bool,
        /// Whether the user may interrupt it.
        allow_interruptions: bool,
        /// Whether the LLM sees it in the history.
        add_to_context: bool,
    },
    /// As if the user had said it.
    Respond {
        /// The words.
        text: String,
    },
    /// Change what the LLM knows.
    Context {
        /// The words.
        text: String,
        /// Whether they replace all earlier context, a visitor's too.
        overwrite: bool,
    },
    /// The same by a client: it is the visitor's word, and the LLM sees it as that. At most [`MAX_VISITOR_CONTEXT_BYTES`] at a time.
    VisitorContext {
        /// The words.
        text: String,
        /// Whether they replace what clients have told. What the operator told stays.
        overwrite: bool,
    },
    /// End the call by the API.
    End,
    /// The user leaves.
    Leave,
    /// The server ends the call: a drain, a fault.
    Stop {
        /// Why.
        reason: crate::event::EndReason,
        /// Whether the exit message is spoken first.
        exit_message: bool,
    },
}
