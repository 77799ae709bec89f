//! The outputs of a conversation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::direction::Expression;
use crate::contract::event::{EndReason, EventEnvelope, HistoryItem};
use crate::contract::input::{
    CommandId, Epoch, GenerationId, SegmentId, SpeechSegmentId, ToolCallId,
};

/// A request to the driver, or an event. Drain all outputs after every input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output {
    /// An event to publish.
    #[serde(rename = "Tell")]
    Emit(EventEnvelope),
    /// Send a request to the LLM. Answered by [`crate::contract::input::Input::Llm`].
    #[serde(rename = "AskLlm")]
    RequestLlm(LlmRequest),
    /// Cancel a request to the LLM. No result of it is needed any more; the driver drops the
    /// request.
    CancelLlm(GenerationId),
    /// Send a segment to the TTS. Its samples go to playout under the segment's id; its events come
    /// as [`crate::contract::input::Input::Tts`].
    Synthesize(TtsRequest),
    /// The segment may be played: immediately, or directly after the segment that is playing.
    Play(SegmentId),
    /// Lower the volume by 12 dB within 20 ms.
    Duck,
    /// Restore the volume.
    Unduck,
    /// Pause playout at a sample, with a fade of 5 ms. The driver answers immediately with
    /// [`crate::contract::input::PlayoutEvent::Progress`].
    Hold,
    /// Continue playout at that sample.
    Resume,
    /// Everything of this epoch is stale: TTS requests, queued segments and the playing segment
    /// (faded out within one frame). Tools continue to run.
    Cancel(Epoch),
    /// The segment is never played, or not played further, while its epoch continues.
    #[serde(rename = "Drop")]
    Discard(SegmentId),
    /// Run a tool. Answered by [`crate::contract::input::Input::ToolResult`]. The conversation
    /// itself answers a call of an unknown tool, without this output.
    RunTool {
        /// The tool call.
        call: ToolCallId,
        /// The model's own id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// Arguments of the call.
        arguments: Value,
    },
    /// Ask the turn model about the speech segment that has just ended. Its input is
    /// [`open_turn`](crate::machine::conversation::Conversation::open_turn). The answer is
    /// [`crate::contract::input::Input::TurnProbability`]; it is optional, and the end of the turn
    /// does not wait for it.
    #[serde(rename = "AskTurn")]
    RequestTurnProbability(SpeechSegmentId),
    /// The result of a command.
    #[serde(rename = "Answer")]
    CommandResult {
        /// The command.
        id: CommandId,
        /// The outcome.
        #[serde(rename = "answer")]
        outcome: CommandOutcome,
    },
    /// The reason of a decision; only if
    /// [`explain`](crate::machine::conversation::Conversation::set_explain) is on.
    Explain(Explanation),
    /// The call has ended. Only results of commands and [`Event::ProviderUsage`] follow. The driver closes the connection after the
    /// remaining audio has left.
    ///
    /// [`Event::ProviderUsage`]: crate::contract::event::Event::ProviderUsage
    End(EndReason),
}

/// The input of a turn model: the user's open turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenTurn {
    /// True onset of its first speech segment.
    pub onset: Option<crate::contract::time::Time>,
    /// Its transcript so far, including interim text.
    pub transcript: String,
}

/// The reason of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Time of the decision.
    pub at: crate::contract::time::Time,
    /// The decision, its rule, and the deadline and setting that caused it.
    pub why: String,
}

/// Name of the tool by which the LLM decides not to speak. The conversation itself handles the call.
pub const STAY_SILENT: &str = "stay_silent";

/// A request to the LLM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LlmRequest {
    /// The id for the LLM's events.
    #[serde(rename = "step")]
    pub generation: GenerationId,
    /// The history as the LLM may see it, oldest first, without the system prompt. A preemptive
    /// request ends with the open turn.
    pub history: Vec<Arc<HistoryItem>>,
    /// Whether the LLM may call tools. False in the generation after the last round of tools.
    #[serde(rename = "tools")]
    pub tools_allowed: bool,
    /// Whether to use the fallback model.
    #[serde(rename = "fallback")]
    pub use_fallback: bool,
    /// Whether the turn is still uncommitted.
    pub preemptive: bool,
    /// Whether nobody has addressed the agent: the LLM speaks, or it calls [`STAY_SILENT`], which is
    /// offered in this request only.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub may_stay_silent: bool,
}

/// A segment to synthesize.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TtsRequest {
    /// The id for the events of TTS and playout.
    // The name in stored traces.
    #[serde(rename = "piece")]
    pub segment: SegmentId,
    /// The segment is stale once this epoch is cancelled.
    pub epoch: Epoch,
    /// The text, without directions.
    pub text: String,
    /// The origin of the text.
    pub source: SpeechSource,
    /// Whether to use the fallback voice.
    #[serde(rename = "fallback")]
    pub use_fallback: bool,
    /// The expression of the avatar, if a tag of the text or the command sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<Expression>,
    /// Whether the avatar nods.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub nod: bool,
}

/// The origin of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpeechSource {
    /// A segment of a generation.
    #[serde(rename = "Step")]
    Generation {
        /// The generation.
        #[serde(rename = "step")]
        generation: GenerationId,
        /// Index of the segment in the generation: 0, 1, 2 …
        #[serde(rename = "part")]
        segment_index: u32,
    },
    /// The greeting.
    Greeting,
    /// The message that the call is recorded.
    RecordingMessage,
    /// The idle message with this index.
    #[serde(rename = "Idle")]
    IdleMessage(u32),
    /// The warning message.
    Warning,
    /// The exit message.
    Exit,
    /// The error message.
    Error,
    /// A `say` command.
    Say(CommandId),
    /// The response of a guardrail.
    Guardrail,
    /// The farewell of a tool that ends the call.
    Farewell,
    /// A message of a tool.
    Tool {
        /// The tool call.
        call: ToolCallId,
        /// The message.
        message: ToolMessage,
    },
}

/// The messages of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMessage {
    /// The tool starts.
    OnStart,
    /// The result is still pending.
    OnDelay,
    /// The tool returned its result.
    OnSuccess,
    /// The tool failed.
    OnError,
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutcome {
    /// The command is executed, now or later.
    Accepted,
    /// There was nothing to do.
    #[serde(rename = "Already")]
    NothingToDo,
    /// The command is not possible now.
    #[serde(rename = "Refused")]
    Rejected(Rejection),
}

/// Why a command is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// The current speech cannot be interrupted.
    #[error("Agent speech cannot be interrupted")]
    Uninterruptible,
    /// The call is ending: the exit message is queued or playing.
    #[error("Conversation is ending")]
    Ending,
    /// The conversation has ended.
    #[error("Conversation has ended")]
    Ended,
    /// The context from clients would exceed [`crate::contract::input::MAX_VISITOR_CONTEXT_BYTES`]
    /// bytes.
    #[error("The context of a client is limited to 8 KiB a call")]
    ContextFull,
}
