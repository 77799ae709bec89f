//! The inputs of a conversation.
//!
//! They are serializable: the list of inputs with their times is the trace that replays a call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::direction::Expression;
use crate::contract::event::{Event, Stage};
use crate::contract::time::{Position, Time};

/// A reply, or other speech that is cut as a whole. Epochs increase. Canceling an epoch makes
/// everything stamped with it stale.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u32);

/// One request to the LLM. Unique in the call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct GenerationId {
    /// The reply it belongs to.
    pub epoch: Epoch,
    /// 0 for the first request of a reply; one more after each round of tools and each retry.
    #[serde(rename = "step")]
    pub index: u32,
}

/// One segment: text that is sent to the TTS and played as a unit. Unique in the call; increases in
/// the order of requests.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SegmentId(pub u32);

/// One tool call. Unique in the call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ToolCallId(pub u32);

/// One speech segment of the user, as reported by the VAD. Counted from 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SpeechSegmentId(pub u32);

/// One external command, answered by [`crate::contract::output::Output::CommandResult`]. The driver
/// chooses the id; it is unique in the call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CommandId(pub u32);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// The user's connection is up. The first input, at [`Time::ZERO`].
    #[serde(rename = "Begin")]
    Start,
    /// Time has passed. Processes the deadlines that are due and nothing else.
    Tick,
    /// The VAD detected the start of speech.
    SpeechStarted {
        /// True onset: the start of the first window at or over the threshold.
        onset: Time,
    },
    /// Speech continues. Sent after [`Input::SpeechStarted`] for each window at or over the
    /// threshold. An overlap becomes an interruption by the duration of speech without trailing
    /// silence, and only the VAD knows that duration in time.
    #[serde(rename = "SpeechHeard")]
    SpeechContinued {
        /// End of the window.
        until: Time,
    },
    /// The VAD detected the end of speech.
    SpeechStopped {
        /// True end: the end of the last window at or over the threshold.
        end: Time,
    },
    /// The STT received the end of the speech segment and will send one final transcript for it,
    /// with or without text. Sent after [`Input::SpeechStopped`] by drivers whose STT promises
    /// this.
    #[serde(rename = "FinalDue")]
    FinalTranscriptPending,
    /// A transcript from the STT.
    Transcript {
        /// The text since the last final transcript.
        text: String,
        /// False for an interim transcript, which may still change.
        is_final: bool,
        /// With a final transcript: text after it that may still change and that no interim
        /// transcript has reported.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[serde(rename = "outstanding")]
        trailing_interim: String,
    },
    /// The provider whose transcripts follow.
    SttProvider(String),
    /// A person of a conversation of several people started to speak. May be late.
    SpeakerStarted {
        /// The name, which identifies the person.
        name: String,
        /// When the speech started.
        at: Time,
    },
    /// A person stopped speaking. May be late.
    SpeakerStopped {
        /// The name.
        name: String,
        /// When the speech stopped.
        at: Time,
    },
    /// The number of people in the conversation, besides the agent. With 0, the departure of each
    /// was reported ([`Event::ParticipantLeft`] as [`Input::ExternalEvent`]).
    PeoplePresent {
        /// The number.
        count: u32,
    },
    /// The STT's provider has an opinion about the user's turn.
    TurnHint(TurnHint),
    /// The answer of the turn model.
    TurnProbability {
        /// The speech segment of the request.
        #[serde(rename = "stretch")]
        speech_segment: SpeechSegmentId,
        /// P(turn is over).
        #[serde(deserialize_with = "crate::simulation::trace::number_or_nan")]
        #[serde(rename = "p")]
        probability: f32,
    },
    /// An event from the LLM.
    Llm {
        /// The request.
        #[serde(rename = "step")]
        generation: GenerationId,
        /// The event.
        event: LlmEvent,
    },
    /// An event from the TTS.
    Tts {
        /// The segment.
        // The name in stored traces.
        #[serde(rename = "piece")]
        segment: SegmentId,
        /// The event.
        event: TtsEvent,
    },
    /// An event from playout.
    Playout {
        /// The segment.
        // The name in stored traces.
        #[serde(rename = "piece")]
        segment: SegmentId,
        /// The event.
        event: PlayoutEvent,
    },
    /// The LLM may call these tools too from now on. They have no messages.
    #[serde(rename = "Tools")]
    ToolsAdded(Vec<String>),
    /// The result of a tool.
    #[serde(rename = "Tool")]
    ToolResult {
        /// The tool call.
        call: ToolCallId,
        /// The returned value, or the reason of the failure.
        result: Result<Value, String>,
    },
    /// A guardrail fired for the last committed turn. Its response is spoken verbatim and the turn
    /// ends.
    #[serde(rename = "Guardrail")]
    GuardrailTriggered {
        /// The text to speak.
        #[serde(rename = "say")]
        response: String,
    },
    /// An external command.
    Command {
        /// The id for the result.
        id: CommandId,
        /// The command.
        command: Command,
    },
    /// A stage failed outside of a request (for example, the STT's connection).
    #[serde(rename = "Failed")]
    StageFailed {
        /// The stage.
        stage: Stage,
        /// The reason, in the stage's words.
        reason: String,
    },
    /// A stage works again.
    #[serde(rename = "Recovered")]
    StageRecovered {
        /// The stage.
        stage: Stage,
    },
    /// An event that another component observed first. It is stamped and emitted unchanged.
    #[serde(rename = "Fact")]
    ExternalEvent(Event),
}

/// A provider's opinion about the user's turn. The transcripts so far contain its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnHint {
    /// The user has probably finished: a reply may be prepared.
    EagerEnd,
    /// The user goes on after an [`TurnHint::EagerEnd`] or [`TurnHint::End`].
    Resumed,
    /// The user has finished.
    End,
}

/// An event of an LLM stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LlmEvent {
    /// The request was sent to this provider, which sends what follows. Not a part of the answer.
    Provider(String),
    /// The model has started to answer. Implied by the first of the other events.
    #[serde(rename = "Began")]
    Started,
    /// More text.
    Text(String),
    /// Ends the current segment ([`crate::contract::spec::Phrasing::Flushed`]).
    Flush,
    /// The model calls a tool.
    #[serde(rename = "Call")]
    ToolCall {
        /// The model's own id of the call; returned with the result.
        id: String,
        /// Name of the tool.
        name: String,
        /// The arguments: a JSON object.
        arguments: Value,
    },
    /// The reply comes from a guardrail: its text is spoken verbatim, no tools run, and the turn
    /// ends.
    Guardrail,
    /// The answer is complete.
    End {
        /// Tokens of the request; 0 if unknown.
        prompt_tokens: u32,
        /// Tokens of the answer; 0 if unknown.
        completion_tokens: u32,
    },
    /// The request failed. No further event follows.
    Failed(String),
    /// All models have failed, and none of them has answered: a fallback is of no use. No further
    /// event follows.
    Exhausted(String),
}

/// What the TTS reports about a segment. The samples themselves go to playout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TtsEvent {
    /// The segment was sent to this provider, which sends what follows.
    Provider(String),
    /// The first samples are available.
    #[serde(rename = "Ready")]
    FirstAudio,
    /// Words with the positions of their ends, if the voice provides them. May come in several
    /// parts. If the call is recorded, a pause before a word is a word without text.
    #[serde(rename = "Words")]
    WordTimestamps(Vec<(String, Position)>),
    /// All samples are available.
    End {
        /// Length of the segment.
        duration: Position,
    },
    /// The request failed. No further event follows.
    Failed(String),
}

/// What playout reports about a segment, at the time it happens by the media clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum PlayoutEvent {
    /// The first sample left for the network.
    Started,
    /// Samples up to this position have left, and more follow. Sent at least every 100 ms during
    /// playout, and in answer to Hold. Between two reports the conversation extrapolates in real
    /// time.
    Progress(Position),
    /// The TTS is late: no sample leaves until the next `Progress`. Sent immediately.
    Stalled(Position),
    /// The last sample left.
    Finished(Position),
}

/// Maximum characters of a text that a client or the API sends to be spoken or answered. About ten
/// minutes of speech.
pub const MAX_TEXT_CHARS: usize = 10_000;

/// Maximum bytes of context from the clients of one call ([`Command::VisitorContext`]) at any time,
/// because every request to the LLM includes it.
pub const MAX_VISITOR_CONTEXT_BYTES: usize = 8 << 10;

/// A request from outside: by REST, the data channel or a scenario. Texts have at most
/// [`MAX_TEXT_CHARS`] characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Stop the agent and discard queued speech.
    Interrupt,
    /// Speak a text.
    Say {
        /// The text.
        text: String,
        /// Whether to stop the agent first; otherwise the text waits until the agent has finished.
        interrupt: bool,
        /// Whether the user may interrupt it.
        allow_interruptions: bool,
        /// Whether the LLM sees it in the history.
        add_to_context: bool,
        /// The expression of the avatar, up to the first tag of the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expression: Option<Expression>,
    },
    /// Answer a text as if the user had said it.
    Respond {
        /// The text.
        text: String,
    },
    /// Change the context that the LLM sees.
    Context {
        /// The text.
        text: String,
        /// Whether it replaces all earlier context, including that of visitors.
        overwrite: bool,
    },
    /// Context from a client. The LLM sees it as data from the visitor. At most
    /// [`MAX_VISITOR_CONTEXT_BYTES`] at any time.
    VisitorContext {
        /// The text.
        text: String,
        /// Whether it replaces earlier context from clients. The operator's context stays.
        overwrite: bool,
    },
    /// End the call on behalf of the API.
    End,
    /// The user leaves.
    Leave,
    /// A person of a conversation of several people started or stopped speaking
    /// ([`Input::SpeakerStarted`]). For reports that do not know the call's clock.
    Speaker {
        /// The name, which identifies the person.
        name: String,
        /// Whether the person started.
        is_speaking: bool,
        /// How long ago that was, in milliseconds.
        age_ms: u64,
    },
    /// Emit an event that another component observed first ([`Input::ExternalEvent`]).
    Emit {
        /// The event.
        event: Box<Event>,
    },
    /// The server ends the call: it drains, or it has failed.
    Stop {
        /// The reason.
        reason: crate::contract::event::EndReason,
        /// Whether the exit message is spoken first.
        exit_message: bool,
    },
}
