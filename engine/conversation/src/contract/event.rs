//! What happened in a conversation: the public vocabulary as one enum.
//!
//! An event is written once, where it is first known, with its number and time. The same value is
//! the source of the webhook's body, the item of the event stream, the message on the data channel,
//! the metric, the line of `simulate` and the record that REST reads
//! ([`crate::view::ConversationView`]).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::contract::id::ConversationId;
pub use crate::contract::meeting_status::MeetingStatus;
use crate::contract::providers::{ProviderUsage, TurnProviders};
use crate::contract::time::Time;

/// An event with its sequence number and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventEnvelope {
    /// 0, 1, 2 … without a gap within the conversation.
    pub seq: u64,
    /// Time of the event.
    pub at: Time,
    /// The event.
    pub event: Event,
}

impl EventEnvelope {
    /// The body of the webhook, in the exact form of the public interface: `{timestamp,
    /// conversation_id, type: "pipeline", event: {name, payload}}`.
    ///
    /// `None` for events that no webhook delivers. `started_micros` is the wall clock at
    /// the start of the conversation, in µs since the Unix epoch ([`Event::Joined`] carries it).
    #[must_use]
    pub fn webhook_body(
        &self,
        conversation: ConversationId,
        started_micros: u64,
    ) -> Option<String> {
        let (name, payload) = self.event.webhook_name_and_payload()?;
        let timestamp = (started_micros + self.at.as_micros()) as f64 / 1e6;
        let event = json!({ "name": name, "payload": payload });
        Some(
            json!({
                "timestamp": timestamp,
                "conversation_id": conversation,
                "type": "pipeline",
                "event": event,
            })
            .to_string(),
        )
    }
}

/// The names of the eleven events that webhooks deliver.
pub const WEBHOOK_EVENTS: [&str; 11] = [
    "agent.interrupted",
    "agent.started_speaking",
    "agent.stopped_speaking",
    "call_ended",
    "max_call_duration_timeout",
    "max_call_duration_warning",
    "participant_left",
    "tool_call",
    "utterance_committed",
    "user.started_speaking",
    "user.stopped_speaking",
];

/// The names of the events that webhooks deliver in addition to the eleven.
pub const ADDITIONAL_WEBHOOK_EVENTS: [&str; 1] = ["recording_ready"];

impl Event {
    /// The event's name in webhooks; `None` if no webhook delivers it.
    #[must_use]
    pub fn webhook_name(&self) -> Option<&'static str> {
        self.webhook_name_and_payload().map(|(name, _)| name)
    }

    /// Whether the event only reports progress or a duration. Neither webhooks nor the transcript
    /// need it.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        matches!(
            self,
            Self::AgentState { .. }
                | Self::PlayoutStarted { .. }
                | Self::PlayoutDucked { .. }
                | Self::PlayoutUnducked { .. }
                | Self::PlayoutHeld { .. }
                | Self::PlayoutResumed { .. }
                | Self::PlayoutFinished { .. }
                | Self::LlmStarted
                | Self::LlmCancelled
                | Self::LlmText { .. }
                | Self::UserTranscript { is_final: false, .. }
                | Self::AgentSpeechHeard { .. }
                | Self::Turn(_)
                | Self::TurnReplyHeard { .. }
        )
    }

    /// Name and payload as in the public interface; `None` for events that no webhook delivers.
    fn webhook_name_and_payload(&self) -> Option<(&'static str, Value)> {
        let call =
            |now: f64, limit: f64| json!({ "call_duration": now, "max_call_duration": limit });
        Some(match self {
            Self::AgentInterrupted => ("agent.interrupted", json!({})),
            Self::AgentStartedSpeaking { text, .. } => {
                ("agent.started_speaking", json!({ "text": text }))
            }
            Self::AgentStoppedSpeaking { text, .. } => {
                ("agent.stopped_speaking", json!({ "text": text }))
            }
            Self::CallEnded => ("call_ended", json!({})),
            Self::MaxCallDurationTimeout { call_duration, max_call_duration } => {
                ("max_call_duration_timeout", call(*call_duration, *max_call_duration))
            }
            Self::MaxCallDurationWarning { call_duration, max_call_duration } => {
                ("max_call_duration_warning", call(*call_duration, *max_call_duration))
            }
            Self::ParticipantLeft { id } => ("participant_left", json!({ "id": id })),
            Self::RecordingReady { duration, bytes, format } => (
                "recording_ready",
                json!({ "duration": duration, "bytes": bytes, "format": format }),
            ),
            Self::ToolCall { tool_name, parameters, result, failed } => {
                // The interface defines the result as an object, but a tool may return any value.
                let result = match result {
                    reason if *failed => json!({ "error": reason }),
                    Value::Object(_) => result.clone(),
                    value => json!({ "result": value }),
                };
                let status = if *failed { "failed" } else { "completed" };
                let payload = json!({
                    "tool_name": tool_name, "parameters": parameters, "result": result,
                    "status": status,
                });
                ("tool_call", payload)
            }
            Self::UtteranceCommitted { text, speaker: None } => {
                ("utterance_committed", json!({ "text": text }))
            }
            Self::UtteranceCommitted { text, speaker: Some(speaker) } => {
                ("utterance_committed", json!({ "text": text, "speaker": speaker }))
            }
            Self::UserStartedSpeaking => ("user.started_speaking", json!({})),
            Self::UserStoppedSpeaking => ("user.stopped_speaking", json!({})),
            _ => return None,
        })
    }
}

/// One utterance of the agent (a generation, a `say`, a message) within a conversation. Clients see
/// it as `speech_N`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UtteranceId(pub u32);

/// A guardrail that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggeredGuardrail {
    /// Its permanent key.
    pub key: String,
    /// Its label.
    pub category: String,
    /// What the user said.
    pub content: String,
    /// The text that is spoken instead of the reply.
    pub response_message: Option<String>,
    /// The verdict of a moderation endpoint, if the guardrail has no text to speak.
    pub verdict: Option<Value>,
    /// URL to notify.
    pub callback_url: Option<String>,
}

/// Something that happened. Serialized as `{"what": name, …fields}`, which is a line of `simulate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what")]
pub enum Event {
    // The eleven events of the public interface, with its names and fields.
    /// The user interrupted: the first hold or cut of a reply.
    #[serde(rename = "agent.interrupted")]
    AgentInterrupted,
    /// The first sample of an utterance left for the network.
    #[serde(rename = "agent.started_speaking")]
    AgentStartedSpeaking {
        /// All of its text that is known at this time.
        text: String,
        /// The utterance; not part of the webhook or of `simulate`.
        utterance: UtteranceId,
    },
    /// The last sample of an utterance left, or the utterance was cut.
    #[serde(rename = "agent.stopped_speaking")]
    AgentStoppedSpeaking {
        /// The text that was heard.
        text: String,
        /// The utterance; not part of the webhook or of `simulate`.
        utterance: UtteranceId,
    },
    /// The call has ended.
    #[serde(rename = "call_ended")]
    CallEnded,
    /// The call reached its time limit.
    #[serde(rename = "max_call_duration_timeout")]
    MaxCallDurationTimeout {
        /// Duration of the call in seconds.
        call_duration: f64,
        /// Configured limit in seconds.
        max_call_duration: f64,
    },
    /// The call will reach its time limit soon.
    #[serde(rename = "max_call_duration_warning")]
    MaxCallDurationWarning {
        /// Duration of the call so far, in seconds.
        call_duration: f64,
        /// Configured limit in seconds.
        max_call_duration: f64,
    },
    /// The user has left, or a person of a meeting or a room.
    #[serde(rename = "participant_left")]
    ParticipantLeft {
        /// The user's id, or the conversation's id without one. Of a meeting or a room, the id of
        /// the person there.
        id: String,
    },
    /// A tool returned its result.
    #[serde(rename = "tool_call")]
    ToolCall {
        /// Name of the tool.
        tool_name: String,
        /// The arguments from the model.
        parameters: Value,
        /// The result, or the reason of a failure.
        result: Value,
        /// Whether the tool failed; not part of `simulate`, where a line `error` precedes.
        #[serde(default, skip_serializing_if = "is_false")]
        failed: bool,
    },
    /// The user's turn has ended.
    #[serde(rename = "utterance_committed")]
    UtteranceCommitted {
        /// The whole text of the turn.
        text: String,
        /// The name of the person who spoke, if several people take part and it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        speaker: Option<String>,
    },
    /// A late report names another speaker of a committed utterance. The record changes; what the
    /// LLM has seen does not.
    #[serde(rename = "utterance.speaker")]
    SpeakerCorrected {
        /// Number of the turn, from 0.
        turn: u32,
        /// The name.
        speaker: String,
    },
    /// The VAD detected the start of the user's speech.
    #[serde(rename = "user.started_speaking")]
    UserStartedSpeaking,
    /// The VAD detected the end of the user's speech.
    #[serde(rename = "user.stopped_speaking")]
    UserStoppedSpeaking,

    // Events of our own, in the event stream and the record.
    /// Neither side spoke for `idle_timeout`.
    #[serde(rename = "user.idle")]
    UserIdle,
    /// The state of the agent changed.
    #[serde(rename = "agent.state")]
    AgentState {
        /// The new state.
        state: AgentState,
    },
    /// An item was appended to the history. The LLM and the transcript see the same item.
    #[serde(rename = "history")]
    History(HistoryItem),
    /// The first sample of a segment left for the network.
    #[serde(rename = "playout.started")]
    PlayoutStarted {
        /// Position in the segment, in seconds.
        position: f64,
    },
    /// The agent's volume was lowered because the user started to speak.
    #[serde(rename = "playout.ducked")]
    PlayoutDucked {
        /// Position in the segment, in seconds.
        position: f64,
    },
    /// The agent's volume is back to normal.
    #[serde(rename = "playout.unducked")]
    PlayoutUnducked {
        /// Position in the segment, in seconds.
        position: f64,
    },
    /// Playout paused at a sample.
    #[serde(rename = "playout.held")]
    PlayoutHeld {
        /// Position in the segment, in seconds.
        position: f64,
    },
    /// Playout continues at the sample where it paused.
    #[serde(rename = "playout.resumed")]
    PlayoutResumed {
        /// Position in the segment, in seconds.
        position: f64,
    },
    /// Playout of a segment ended.
    #[serde(rename = "playout.finished")]
    PlayoutFinished {
        /// Position in the segment, in seconds.
        position: f64,
        /// Whether the segment was cut.
        interrupted: bool,
        /// The words of the segment that were heard.
        heard: String,
    },
    /// A request was sent to the LLM.
    #[serde(rename = "llm.started")]
    LlmStarted,
    /// A request to the LLM was cancelled.
    #[serde(rename = "llm.cancelled")]
    LlmCancelled,
    /// A segment was sent to the TTS.
    #[serde(rename = "tts.started")]
    TtsStarted {
        /// The text of the segment.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        text: String,
    },
    /// The agent's place in the external meeting changed.
    #[serde(rename = "meeting.status")]
    MeetingStatus {
        /// The new status.
        status: MeetingStatus,
        /// Why the agent is not in the meeting any more, in one word; absent before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A stage failed.
    #[serde(rename = "error")]
    Error {
        /// The stage.
        stage: Stage,
        /// The reason, in the provider's words.
        reason: String,
    },
    /// The conversation has ended. The last event, except for [`Event::ProviderUsage`], results of
    /// tools, and what is said of the recording.
    #[serde(rename = "ended")]
    Ended {
        /// The reason.
        reason: EndReason,
    },

    // Events of live calls only; `simulate` does not print them.
    /// A guardrail fired.
    #[serde(rename = "guardrail.triggered")]
    GuardrailTriggered(Box<TriggeredGuardrail>),
    /// The user's connection is up and the conversation has started.
    #[serde(rename = "joined")]
    Joined {
        /// Wall clock at the start of the conversation, in µs since the Unix epoch. The wall clock
        /// of any other event is this value plus its time.
        unix_micros: u64,
    },
    /// A transcript from the STT, interim or final.
    #[serde(rename = "user.transcript")]
    UserTranscript {
        /// The text.
        text: String,
        /// False for an interim transcript, which may still change.
        is_final: bool,
    },
    /// What the user has heard so far of the current utterance. Emitted at least once per second of
    /// playout if more was heard, so that a crash loses no more than one second.
    #[serde(rename = "agent.heard")]
    AgentSpeechHeard {
        /// The utterance.
        utterance: UtteranceId,
        /// The words heard so far.
        text: String,
    },
    /// The words of a segment that were heard, with their times. Follows [`Event::PlayoutFinished`]
    /// in calls that are recorded ([`Spec::record_words`]), if the voice reports when it speaks
    /// each word.
    ///
    /// [`Spec::record_words`]: crate::contract::spec::Spec::record_words
    #[serde(rename = "agent.words")]
    AgentWords {
        /// The utterance of the segment.
        utterance: UtteranceId,
        /// In order. A word that was cut is absent, as it is in the transcript.
        words: Vec<HeardWord>,
    },
    /// Text from the LLM as it streams in.
    #[serde(rename = "llm.text")]
    LlmText {
        /// The new text.
        text: String,
    },
    /// A generation is complete.
    #[serde(rename = "llm.stopped")]
    LlmStopped {
        /// Tokens of the request; 0 if unknown.
        prompt_tokens: u32,
        /// Tokens of the answer; 0 if unknown.
        completion_tokens: u32,
    },
    /// A tool was started.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The id of the tool call.
        call_id: String,
        /// Name of the tool.
        tool_name: String,
        /// The arguments from the model.
        parameters: Value,
    },
    /// What the knowledge search found for a turn.
    #[serde(rename = "snippets")]
    Snippets {
        /// Best first.
        items: Vec<Snippet>,
    },
    /// Information for the operator or the caller: a provider that this server lacks, a fallback.
    #[serde(rename = "warning")]
    Warning {
        /// One sentence.
        text: String,
    },
    /// The recording has ended before the call.
    #[serde(rename = "recording.ended")]
    RecordingEnded {
        /// Whether nothing of it remains: the user does not want it, or it could not begin.
        /// Otherwise what was recorded until now remains.
        is_discarded: bool,
    },
    /// The latencies of a turn.
    #[serde(rename = "turn")]
    Turn(TurnTimes),
    /// The answer to a turn has ended, after some of it was heard.
    #[serde(rename = "turn.heard")]
    TurnReplyHeard {
        /// The committed turn.
        turn: u32,
        /// When the last sample of the answer left, in seconds since the start.
        heard_end: f64,
        /// When the interruption began: the onset of the user's speech, or the time of the command.
        /// Null if the answer was played to its end.
        interrupted: Option<f64>,
        /// Seconds from the true onset of the interrupting speech to the last sample; null if no
        /// speech interrupted it.
        barge_in: Option<f64>,
        /// The providers of the whole turn, if another one has taken over since
        /// [`Event::Turn`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        providers: Option<TurnProviders>,
    },
    /// The first packets of the call were recorded.
    #[serde(rename = "recording.started")]
    RecordingStarted,
    /// The recording can be read. After the end of the conversation. Webhooks deliver it, in
    /// addition to the eleven.
    #[serde(rename = "recording_ready")]
    RecordingReady {
        /// Seconds.
        duration: f64,
        /// Size of the file.
        bytes: u64,
        /// Format of the file: `webm` or `mp4`.
        format: String,
    },
    /// What a provider used since its last report. The last reports follow the end of the
    /// conversation, with its time.
    #[serde(rename = "provider.usage")]
    ProviderUsage(ProviderUsage),
}

/// A word of the agent that was heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeardWord {
    /// The word as in the transcript, with its punctuation.
    pub text: String,
    /// When its first sample left for the network, in seconds since the start of the conversation,
    /// rounded to milliseconds. A recording has the same origin.
    pub start: f64,
    /// When its last sample left. A pause within the word, such as a hold, is included.
    pub end: f64,
}

/// The state of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// It waits for the user.
    #[default]
    Listening,
    /// From the commit to the first sample, and between generations.
    Thinking,
    /// Its audio is played.
    Speaking,
}

/// A stage of the pipeline that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Language model.
    Llm,
    /// Text to speech.
    Tts,
    /// Speech to text.
    Stt,
    /// A tool.
    Tool,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 4] = [Self::Llm, Self::Tts, Self::Stt, Self::Tool];

    /// The name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Tts => "tts",
            Self::Stt => "stt",
            Self::Tool => "tool",
        }
    }

    /// The name for users.
    #[must_use]
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Llm => "language model",
            Self::Tts => "speech synthesis",
            Self::Stt => "speech recognition",
            Self::Tool => "tool",
        }
    }
}

/// Why a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The user hung up or disconnected.
    UserLeft,
    /// A DELETE request or an `end` command.
    EndedByApi,
    /// The time limit.
    MaxCallDuration,
    /// The user never joined.
    NoJoin,
    /// The call-outs were not answered.
    Idle,
    /// A stage failed for too long, or the server was restarted.
    Error,
    /// The external meeting has ended.
    MeetingEnded,
    /// The agent said goodbye.
    AgentEnded,
}

/// The author of an item of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The agent.
    Assistant,
    /// A tool call with its result, as one item.
    Tool,
    /// Context from a command.
    System,
    /// Context from a client: data from the visitor, not an instruction.
    Visitor,
}

/// An item of the history. The LLM, the transcript and the captions have exactly this text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryItem {
    /// The author.
    pub role: Role,
    /// The name of the person who spoke, if several people take part and it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speaker: Option<String>,
    /// Name of the tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// The arguments that the model passed to the tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<Value>,
    /// The text: spoken by the user, heard from the agent, or returned by the tool.
    pub text: String,
    /// Whether the utterance was cut (assistant only).
    #[serde(skip_serializing_if = "is_false", default)]
    pub interrupted: bool,
    /// The agent's utterance; not in `simulate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub utterance: Option<UtteranceId>,
    /// When its first word was spoken; of the user, the true onset of the turn's first speech. None
    /// for text that was not heard by the VAD. Not in `simulate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[serde(rename = "began")]
    pub started_at: Option<Time>,
    /// True end of the turn's last speech, or when the agent's last sample left, if that was before
    /// the event: it is held before it is cut. Not in `simulate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[serde(rename = "speech_end")]
    pub ended_at: Option<Time>,
    /// Whether the LLM sees it. A `say` without `add_to_context` is played and recorded, but the
    /// LLM does not see it. Not in `simulate`.
    #[serde(skip_serializing_if = "is_true", default = "default_true")]
    pub in_context: bool,
}

/// A passage of the agent's knowledge that was used for an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snippet {
    /// Id of the knowledge base.
    pub kb_id: String,
    /// Id of the document.
    pub doc_id: String,
    /// The text.
    pub text: String,
    /// Relevance; larger is better. Comparable within one answer only.
    pub score: f32,
}

/// The latencies of a turn in seconds; null if there was no speech or no reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTimes {
    /// Number of the committed turn: 0, 1, 2 …; not in `simulate`.
    #[serde(default)]
    pub turn: u32,
    /// From the true end of speech to the last final transcript; not in `simulate`.
    #[serde(default)]
    pub stt: Option<f64>,
    /// From the first audio of the TTS to the first sample sent; not in `simulate`.
    #[serde(default)]
    pub playout: Option<f64>,
    /// From the true end of speech to the commit.
    pub endpointing: Option<f64>,
    /// From the request to the first token of the first generation.
    pub llm_ttft: Option<f64>,
    /// From the request to the first audio of the turn's first segment.
    pub tts_ttfb: Option<f64>,
    /// From the true end of speech to the first sample sent.
    pub voice_to_voice: Option<f64>,
    /// From the true onset of an interruption to the last sample of the answer; null if speech did
    /// not cut it. Set by [`Event::TurnReplyHeard`].
    #[serde(default)]
    pub barge_in: Option<f64>,
    /// The times of the phases; not in `simulate`.
    #[serde(default)]
    pub timeline: Timeline,
    /// The providers that served the turn so far; not in `simulate`.
    #[serde(default, skip_serializing_if = "TurnProviders::is_empty")]
    pub providers: TurnProviders,
}

/// The times of a turn's phases, in seconds since the start of the conversation; null for a phase
/// that did not happen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// True end of the user's speech.
    pub speech_end: Option<f64>,
    /// Commit of the turn.
    pub committed: Option<f64>,
    /// First token of the first generation; before the commit if the reply was generated
    /// preemptively.
    pub llm_first_token: Option<f64>,
    /// First audio of the turn's first segment.
    pub tts_first_byte: Option<f64>,
    /// The first sample left for the network.
    pub first_sample: Option<f64>,
    /// The last sample left. This field and the next are set by [`Event::TurnReplyHeard`].
    pub heard_end: Option<f64>,
    /// Onset of the speech that cut the answer, or the time of the command that did.
    pub interrupted: Option<f64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature
pub(super) fn is_false(b: &bool) -> bool {
    !b
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature
fn is_true(b: &bool) -> bool {
    *b
}

fn default_true() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn body(event: Event) -> Option<Value> {
        let envelope = EventEnvelope { seq: 0, at: Time::from_micros(250_000), event };
        envelope
            .webhook_body(ConversationId(1), 1_700_000_000_000_000)
            .map(|body| serde_json::from_str(&body).unwrap())
    }

    #[test]
    fn a_webhook_is_worded_as_the_interface_words_it() {
        let envelope = EventEnvelope {
            seq: 9,
            at: Time::from_micros(1_500_000),
            event: Event::UtteranceCommitted { text: "Hi.".into(), speaker: None },
        };
        assert_eq!(
            envelope.webhook_body(ConversationId(1), 1_700_000_000_000_000).unwrap(),
            "{\"timestamp\":1700000001.5,\
             \"conversation_id\":\"00000000-0000-0000-0000-000000000001\",\"type\":\"pipeline\",\
             \"event\":{\"name\":\"utterance_committed\",\"payload\":{\"text\":\"Hi.\"}}}"
        );
    }

    #[test]
    fn the_eleven_and_recording_ready_have_a_body_with_their_own_fields_and_nothing_else_has_one() {
        let utterance = UtteranceId(3);
        let text = "x".to_owned();
        let eleven = [
            (Event::AgentInterrupted, json!({})),
            (Event::AgentStartedSpeaking { text: text.clone(), utterance }, json!({ "text": "x" })),
            (Event::AgentStoppedSpeaking { text: text.clone(), utterance }, json!({ "text": "x" })),
            (Event::CallEnded, json!({})),
            (
                Event::MaxCallDurationTimeout { call_duration: 60.5, max_call_duration: 60.0 },
                json!({ "call_duration": 60.5, "max_call_duration": 60.0 }),
            ),
            (
                Event::MaxCallDurationWarning { call_duration: 30.0, max_call_duration: 60.0 },
                json!({ "call_duration": 30.0, "max_call_duration": 60.0 }),
            ),
            (Event::ParticipantLeft { id: "u".into() }, json!({ "id": "u" })),
            (
                Event::ToolCall {
                    tool_name: "t".into(),
                    parameters: json!({ "a": 1 }),
                    result: json!("sunny"),
                    failed: false,
                },
                json!({
                    "tool_name": "t",
                    "parameters": { "a": 1 },
                    "result": { "result": "sunny" },
                    "status": "completed",
                }),
            ),
            (Event::UtteranceCommitted { text, speaker: None }, json!({ "text": "x" })),
            (Event::UserStartedSpeaking, json!({})),
            (Event::UserStoppedSpeaking, json!({})),
        ];
        let names: HashSet<_> =
            eleven.iter().filter_map(|(event, _)| event.webhook_name()).collect();
        assert_eq!(names, HashSet::from(WEBHOOK_EVENTS));
        for (event, payload) in eleven {
            let name = serde_json::to_value(&event).unwrap()["what"].clone();
            assert_eq!(body(event).unwrap()["event"], json!({ "name": name, "payload": payload }));
        }
        let ready = Event::RecordingReady { duration: 61.5, bytes: 7, format: "webm".into() };
        assert!(ready.webhook_name().is_some_and(|n| ADDITIONAL_WEBHOOK_EVENTS.contains(&n)));
        assert_eq!(
            body(ready).unwrap()["event"],
            json!({
                "name": "recording_ready",
                "payload": {"duration": 61.5, "bytes": 7, "format": "webm"},
            })
        );
        for other in [
            Event::RecordingStarted,
            Event::Joined { unix_micros: 0 },
            Event::UserIdle,
            Event::Ended { reason: EndReason::Idle },
        ] {
            assert_eq!(body(other), None);
        }
    }
}
