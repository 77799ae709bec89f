//! Everything that a conversation asks for or tells.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{EndReason, EventEnvelope, HistoryItem};
use crate::input::{CommandId, Epoch, GenerationId, SegmentId, SpeechSegmentId, ToolCallId};

/// A wish or a fact. Drain them all after every input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output {
    /// A fact for the world.
    #[serde(rename = "Tell")]
    Emit(EventEnvelope),
    /// Ask the LLM. Answered by [`crate::input::Input::Llm`].
    #[serde(rename = "AskLlm")]
    RequestLlm(LlmRequest),
    /// Stop asking; nothing more of it is wanted. Dropped hard by the driver after 5 s.
    CancelLlm(GenerationId),
    /// Ask the TTS. Its samples go to playout, under the piece; its news comes as [`crate::input::Input::Tts`].
    Synthesize(TtsRequest),
    /// The piece may sound: at once, or right behind the piece that sounds now.
    Play(SegmentId),
    /// −12 dB within 20 ms.
    Duck,
    /// As loud as before.
    Unduck,
    /// Pause at a sample, fading 5 ms. The driver answers with [`crate::input::PlayoutEvent::Progress`] at once.
    Hold,
    /// Go on at that sample.
    Resume,
    /// Everything of this epoch is stale: TTS, queued and sounding pieces (one block is faded). Tools run on.
    Cancel(Epoch),
    /// A piece that never sounds any more, while its epoch goes on.
    #[serde(rename = "Drop")]
    Discard(SegmentId),
    /// Run a tool. Answered by [`crate::input::Input::ToolResult`]. A name without a tool is answered by the conversation itself.
    RunTool {
        /// The call.
        call: ToolCallId,
        /// The model's own id of it.
        id: String,
        /// Which tool.
        name: String,
        /// With what.
        arguments: Value,
    },
    /// Ask the turn model about the stretch that just ended; [`open_turn`](crate::conversation::Conversation::open_turn) is what it is asked
    /// about. Answered by [`crate::input::Input::TurnProbability`], or not: the turn's end does not wait for it.
    #[serde(rename = "AskTurn")]
    RequestTurnProbability(SpeechSegmentId),
    /// The answer to a command.
    #[serde(rename = "Answer")]
    CommandResult {
        /// The command.
        id: CommandId,
        /// What became of it.
        #[serde(rename = "answer")]
        outcome: CommandOutcome,
    },
    /// Why something was decided; only after [`explain`](crate::conversation::Conversation::set_explain).
    Explain(Explanation),
    /// The call is over; nothing follows. The driver closes the connection when what sounds has left.
    End(EndReason),
}

/// What a turn model is asked about: the user's open turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenTurn {
    /// True onset of its first speech.
    pub onset: Option<crate::time::Time>,
    /// What was understood of it so far, words that may still change included.
    pub transcript: String,
}

/// Why something was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// When.
    pub at: crate::time::Time,
    /// The decision, its rule, the deadline and the setting that made it.
    pub why: String,
}

/// A question to the LLM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LlmRequest {
    /// Answered under this id.
    #[serde(rename = "step")]
    pub generation: GenerationId,
    /// The history as the LLM may see it, without the system prompt, oldest first. A preemptive question ends with the open turn.
    pub history: Vec<Arc<HistoryItem>>,
    /// False in the step after the last round of tools.
    #[serde(rename = "tools")]
    pub tools_allowed: bool,
    /// Ask the fallback model.
    #[serde(rename = "fallback")]
    pub use_fallback: bool,
    /// Whether the turn is not committed yet.
    pub preemptive: bool,
}

/// A piece of text to be spoken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TtsRequest {
    /// Answered under this id.
    #[serde(rename = "piece")]
    pub segment: SegmentId,
    /// Stale when this is cancelled.
    pub epoch: Epoch,
    /// The words.
    pub text: String,
    /// Where they come from.
    pub source: SpeechSource,
    /// Ask the fallback voice.
    #[serde(rename = "fallback")]
    pub use_fallback: bool,
}

/// Where a piece of speech comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpeechSource {
    /// Of an LLM's step: its `part`-th piece.
    #[serde(rename = "Step")]
    Generation {
        /// The step.
        #[serde(rename = "step")]
        generation: GenerationId,
        /// 0, 1, 2 …
        #[serde(rename = "part")]
        segment_index: u32,
    },
    /// The greeting.
    Greeting,
    /// The `n`-th idle message of the list.
    #[serde(rename = "Idle")]
    IdleMessage(u32),
    /// The warning message.
    Warning,
    /// The exit message.
    Exit,
    /// The error message.
    Error,
    /// Said by a command.
    Say(CommandId),
    /// A guardrail's words.
    Guardrail,
    /// A tool's message.
    Tool {
        /// The call.
        call: ToolCallId,
        /// Which one.
        message: ToolMessage,
    },
}

/// The messages of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMessage {
    /// As it starts.
    OnStart,
    /// Still out.
    OnDelay,
    /// The result is in.
    OnSuccess,
    /// It failed.
    OnError,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutcome {
    /// Done, or will be.
    Accepted,
    /// There was nothing to do.
    #[serde(rename = "Already")]
    NothingToDo,
    /// Not now.
    #[serde(rename = "Refused")]
    Rejected(Rejection),
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// What sounds may not be interrupted.
    #[error("Agent speech cannot be interrupted")]
    Uninterruptible,
    /// The exit message sounds.
    #[error("Conversation is ending")]
    Ending,
    /// It is over.
    #[error("Conversation has ended")]
    Ended,
    /// Clients have told [`crate::input::MAX_VISITOR_CONTEXT_BYTES`] bytes.
    #[error("The context of a client is limited to 8 KiB a call")]
    ContextFull,
}
