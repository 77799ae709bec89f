//! What happened in a conversation: the public vocabulary, one enum.
//!
//! A fact is written once, where it is first known, stamped with its number and time. That same value is the source of the
//! webhook's body, the item of the event stream, the message on the data channel, the metric, the line of `simulate` and the
//! record that REST reads ([`crate::view`]).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call_config::ConversationId;
use crate::time::Time;

/// A fact with its place in the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventEnvelope {
    /// 0, 1, 2 … without a gap within the conversation.
    pub seq: u64,
    /// When it happened.
    pub at: Time,
    /// What happened.
    pub event: Event,
}

impl EventEnvelope {
    /// The body of the webhook: `{timestamp, conversation_id, type: "pipeline", event: {name, payload}}`, as the interface words it;
    /// `None` for facts that are not among its eleven. `began` is the wall clock of the conversation's beginning in µs since the Unix
    /// epoch, told by [`Event::Joined`].
    #[must_use]
    pub fn webhook_body(&self, conversation: ConversationId, started_micros: u64) -> Option<String> {
        let (name, payload) = self.event.webhook_name_and_payload()?;
        let timestamp = (started_micros + self.at.as_micros()) as f64 / 1e6;
        let event = json!({ "name": name, "payload": payload });
        Some(json!({ "timestamp": timestamp, "conversation_id": conversation, "type": "pipeline", "event": event }).to_string())
    }
}

/// The eleven events that webhooks tell, by name.
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

impl Event {
    /// The name under which the world is told of it; `None` for what is not among the interface's eleven events.
    #[must_use]
    pub fn webhook_name(&self) -> Option<&'static str> {
        self.webhook_name_and_payload().map(|(name, _)| name)
    }

    /// Whether it only tells how far something is or how long it took: neither a webhook nor the transcript lacks
    /// anything without it.
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

    /// Name and payload as the interface words them; `None` for what is not among its eleven events.
    fn webhook_name_and_payload(&self) -> Option<(&'static str, Value)> {
        let call = |now: f64, limit: f64| json!({ "call_duration": now, "max_call_duration": limit });
        Some(match self {
            Self::AgentInterrupted => ("agent.interrupted", json!({})),
            Self::AgentStartedSpeaking { text, .. } => ("agent.started_speaking", json!({ "text": text })),
            Self::AgentStoppedSpeaking { text, .. } => ("agent.stopped_speaking", json!({ "text": text })),
            Self::CallEnded => ("call_ended", json!({})),
            Self::MaxCallDurationTimeout { call_duration, max_call_duration } => {
                ("max_call_duration_timeout", call(*call_duration, *max_call_duration))
            }
            Self::MaxCallDurationWarning { call_duration, max_call_duration } => {
                ("max_call_duration_warning", call(*call_duration, *max_call_duration))
            }
            Self::ParticipantLeft { id } => ("participant_left", json!({ "id": id })),
            Self::ToolCall { tool_name, parameters, result } => {
                // The interface calls the result an object; what a tool returned may be anything.
                let result = if result.is_object() { result.clone() } else { json!({ "result": result }) };
                ("tool_call", json!({ "tool_name": tool_name, "parameters": parameters, "result": result }))
            }
            Self::UtteranceCommitted { text } => ("utterance_committed", json!({ "text": text })),
            Self::UserStartedSpeaking => ("user.started_speaking", json!({})),
            Self::UserStoppedSpeaking => ("user.stopped_speaking", json!({})),
            _ => return None,
        })
    }
}

/// One utterance of the agent (an LLM step, a say, a message) within a conversation. Shown to clients as `speech_N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UtteranceId(pub u32);

/// A guardrail that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggeredGuardrail {
    /// Its permanent name.
    pub key: String,
    /// Its tag.
    pub category: String,
    /// What the user said.
    pub content: String,
    /// What is said in the reply's place.
    pub response_message: Option<String>,
    /// What a moderation endpoint said, where there are no words to say.
    pub verdict: Option<Value>,
    /// Who is told.
    pub callback_url: Option<String>,
}

/// Something that happened. Serialised as `{"what": name, …fields}`, the line of `simulate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what")]
pub enum Event {
    // The eleven of the interface, with its names and fields.
    /// The user cut in: the reply's first hold or cut.
    #[serde(rename = "agent.interrupted")]
    AgentInterrupted,
    /// The first sample of an utterance leaves.
    #[serde(rename = "agent.started_speaking")]
    AgentStartedSpeaking {
        /// All of its text that is known at this instant.
        text: String,
        /// Which utterance; not part of the webhook, nor of `simulate`.
        utterance: UtteranceId,
    },
    /// The last sample of an utterance left, or it was killed.
    #[serde(rename = "agent.stopped_speaking")]
    AgentStoppedSpeaking {
        /// What was heard of it.
        text: String,
        /// Which utterance; not part of the webhook, nor of `simulate`.
        utterance: UtteranceId,
    },
    /// The call is over.
    #[serde(rename = "call_ended")]
    CallEnded,
    /// The call reached its limit.
    #[serde(rename = "max_call_duration_timeout")]
    MaxCallDurationTimeout {
        /// Seconds the call lasted.
        call_duration: f64,
        /// Seconds configured.
        max_call_duration: f64,
    },
    /// The call will soon reach its limit.
    #[serde(rename = "max_call_duration_warning")]
    MaxCallDurationWarning {
        /// Seconds the call has lasted.
        call_duration: f64,
        /// Seconds configured.
        max_call_duration: f64,
    },
    /// The user is gone.
    #[serde(rename = "participant_left")]
    ParticipantLeft {
        /// The user's id, else the conversation's.
        id: String,
    },
    /// The result of a tool is in.
    #[serde(rename = "tool_call")]
    ToolCall {
        /// Its name.
        tool_name: String,
        /// What the model passed.
        parameters: Value,
        /// What came back.
        result: Value,
    },
    /// The user's turn is over.
    #[serde(rename = "utterance_committed")]
    UtteranceCommitted {
        /// Its whole text.
        text: String,
    },
    /// The detector hears the user.
    #[serde(rename = "user.started_speaking")]
    UserStartedSpeaking,
    /// The detector hears the user no more.
    #[serde(rename = "user.stopped_speaking")]
    UserStoppedSpeaking,

    // Our own, in the event stream and the record.
    /// Nobody said anything for `idle_timeout`.
    #[serde(rename = "user.idle")]
    UserIdle,
    /// What the agent is doing changed.
    #[serde(rename = "agent.state")]
    AgentState {
        /// What it does now.
        state: AgentState,
    },
    /// An item entered the history, as the LLM and the transcript see it.
    #[serde(rename = "history")]
    History(HistoryItem),
    /// Sound of the agent.
    #[serde(rename = "playout.started")]
    PlayoutStarted {
        /// Within the piece, in seconds.
        position: f64,
    },
    /// The agent was made quieter as the user began to speak.
    #[serde(rename = "playout.ducked")]
    PlayoutDucked {
        /// Within the piece, in seconds.
        position: f64,
    },
    /// The agent is as loud as before.
    #[serde(rename = "playout.unducked")]
    PlayoutUnducked {
        /// Within the piece, in seconds.
        position: f64,
    },
    /// Playout pauses at a sample.
    #[serde(rename = "playout.held")]
    PlayoutHeld {
        /// Within the piece, in seconds.
        position: f64,
    },
    /// Playout goes on at the sample it was held at.
    #[serde(rename = "playout.resumed")]
    PlayoutResumed {
        /// Within the piece, in seconds.
        position: f64,
    },
    /// A piece is over.
    #[serde(rename = "playout.finished")]
    PlayoutFinished {
        /// Within the piece, in seconds.
        position: f64,
        /// Whether it was cut.
        interrupted: bool,
        /// The piece's words that were heard.
        heard: String,
    },
    /// The LLM was asked.
    #[serde(rename = "llm.started")]
    LlmStarted,
    /// The LLM was stopped.
    #[serde(rename = "llm.cancelled")]
    LlmCancelled,
    /// The TTS was asked for a piece.
    #[serde(rename = "tts.started")]
    TtsStarted {
        /// The piece's text.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        text: String,
    },
    /// A stage failed.
    #[serde(rename = "error")]
    Error {
        /// Which one.
        stage: Stage,
        /// Why, in the provider's words.
        reason: String,
    },
    /// The conversation is over. The last fact but a summary.
    #[serde(rename = "ended")]
    Ended {
        /// Why.
        reason: EndReason,
    },

    // Only of live calls; never in `simulate`.
    /// A guardrail fired.
    #[serde(rename = "guardrail.triggered")]
    GuardrailTriggered(Box<TriggeredGuardrail>),
    /// The user's connection is up: the conversation began.
    #[serde(rename = "joined")]
    Joined {
        /// Wall clock at the conversation's beginning: µs since the Unix epoch. Every other fact's wall clock is this plus its time.
        unix_micros: u64,
    },
    /// What the STT understood so far, or finally.
    #[serde(rename = "user.transcript")]
    UserTranscript {
        /// Its text.
        text: String,
        /// False while it may still change.
        is_final: bool,
    },
    /// What the user has heard of the utterance that sounds, told at least once a second, so that a crash loses no more.
    #[serde(rename = "agent.heard")]
    AgentSpeechHeard {
        /// Which utterance.
        utterance: UtteranceId,
        /// Heard words so far.
        text: String,
    },
    /// The LLM's words as they come.
    #[serde(rename = "llm.text")]
    LlmText {
        /// The new words.
        text: String,
    },
    /// The LLM's step is complete.
    #[serde(rename = "llm.stopped")]
    LlmStopped {
        /// Tokens of the request, if told.
        prompt_tokens: u32,
        /// Tokens of the answer, if told.
        completion_tokens: u32,
    },
    /// A tool was started.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The call's id.
        call_id: String,
        /// Its name.
        tool_name: String,
        /// What the model passed.
        parameters: Value,
    },
    /// What the knowledge search found for a turn.
    #[serde(rename = "snippets")]
    Snippets {
        /// Best first.
        items: Vec<Snippet>,
    },
    /// Something the operator or the caller should know: a provider that this server lacks, a fallback.
    #[serde(rename = "warning")]
    Warning {
        /// One sentence.
        text: String,
    },
    /// Where a turn's time went.
    #[serde(rename = "turn")]
    Turn(TurnTimes),
    /// A turn's answer is over, after some of it was heard.
    #[serde(rename = "turn.heard")]
    TurnReplyHeard {
        /// Which committed turn.
        turn: u32,
        /// When its last sample left, in seconds since the beginning.
        heard_end: f64,
        /// When the user began to speak who cut it, or the command came that did; null where it was heard to its end.
        interrupted: Option<f64>,
        /// From that beginning, the true one, to its last sample; null where no voice cut it.
        barge_in: Option<f64>,
    },
}

/// What the agent is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// It waits for the user.
    #[default]
    Listening,
    /// From the commit to the first sample, and between steps.
    Thinking,
    /// It sounds.
    Speaking,
}

/// Part of the graph that may fail.
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Llm, Self::Tts, Self::Stt, Self::Tool];

    /// As in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Tts => "tts",
            Self::Stt => "stt",
            Self::Tool => "tool",
        }
    }

    /// For people.
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
    /// Hang-up, or gone.
    UserLeft,
    /// DELETE, or `end`.
    EndedByApi,
    /// The limit.
    MaxCallDuration,
    /// Nobody came.
    NoJoin,
    /// Nobody answered the call-outs.
    Idle,
    /// A stage failed for too long, or the server was restarted.
    Error,
    /// The external meeting is over.
    MeetingEnded,
}

/// Who speaks in an item of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The agent.
    Assistant,
    /// A tool's call and result, one item.
    Tool,
    /// Context given by a command.
    System,
    /// Context that a client gave: the visitor's word, no instruction.
    Visitor,
}

/// An item of the history: what the LLM, the transcript and the captions agree on to the letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryItem {
    /// Who.
    pub role: Role,
    /// Name of the tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// What the model passed to the tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<Value>,
    /// The words: said by the user, heard from the agent, returned by the tool.
    pub text: String,
    /// Whether the utterance was cut (assistant only).
    #[serde(skip_serializing_if = "is_false", default)]
    pub interrupted: bool,
    /// The agent's utterance; not in `simulate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub utterance: Option<UtteranceId>,
    /// When its first word was spoken; not in `simulate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[serde(rename = "began")]
    pub started_at: Option<Time>,
    /// Whether the LLM sees it (a `say` without `add_to_context` is heard, told and recorded, but not seen); not in `simulate`.
    #[serde(skip_serializing_if = "is_true", default = "default_true")]
    pub in_context: bool,
}

/// A piece of the agent's knowledge that went into an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snippet {
    /// Knowledge base.
    pub kb_id: String,
    /// Document.
    pub doc_id: String,
    /// The words.
    pub text: String,
    /// Larger is better; comparable within one answer only.
    pub score: f32,
}

/// Where a turn's time went, in seconds; null where there was no speech or no reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTimes {
    /// Which committed turn: 0, 1, 2 …; not in `simulate`.
    #[serde(default)]
    pub turn: u32,
    /// True end of speech to the last final transcript; not in `simulate`.
    #[serde(default)]
    pub stt: Option<f64>,
    /// First audio there to first sample left; not in `simulate`.
    #[serde(default)]
    pub playout: Option<f64>,
    /// True end of speech to commit.
    pub endpointing: Option<f64>,
    /// Asked to first token, of the first step.
    pub llm_ttft: Option<f64>,
    /// Asked to first audio, of the turn's first sound.
    pub tts_ttfb: Option<f64>,
    /// True end of speech to the first sample.
    pub voice_to_voice: Option<f64>,
    /// True onset of the user's voice over the answer to its last sample, where that voice cut it; told by [`Event::TurnReplyHeard`].
    #[serde(default)]
    pub barge_in: Option<f64>,
    /// When each of it happened; not in `simulate`.
    #[serde(default)]
    pub timeline: Timeline,
}

/// When the steps of a turn happened, in seconds since the conversation's beginning; null where one did not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// True end of the user's speech.
    pub speech_end: Option<f64>,
    /// The turn was over.
    pub committed: Option<f64>,
    /// Of the first step; before the commit where the answer was prepared.
    pub llm_first_token: Option<f64>,
    /// Of the turn's first sound.
    pub tts_first_byte: Option<f64>,
    /// It left.
    pub first_sample: Option<f64>,
    /// The last one left; told by [`Event::TurnReplyHeard`], as what follows.
    pub heard_end: Option<f64>,
    /// The user began to speak who cut the answer, or the command came that did.
    pub interrupted: Option<f64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_false(b: &bool) -> bool {
    !b
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
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
            event: Event::UtteranceCommitted { text: "Hi.".into() },
        };
        assert_eq!(
            envelope.webhook_body(ConversationId(1), 1_700_000_000_000_000).unwrap(),
            "{\"timestamp\":1700000001.5,\"conversation_id\":\"00000000-0000-0000-0000-000000000001\",\"type\":\"pipeline\",\
             \"event\":{\"name\":\"utterance_committed\",\"payload\":{\"text\":\"Hi.\"}}}"
        );
    }

    #[test]
    fn the_eleven_have_a_body_with_their_own_fields_and_nothing_else_has_one() {
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
                },
                json!({ "tool_name": "t", "parameters": { "a": 1 }, "result": { "result": "sunny" } }),
            ),
            (Event::UtteranceCommitted { text }, json!({ "text": "x" })),
            (Event::UserStartedSpeaking, json!({})),
            (Event::UserStoppedSpeaking, json!({})),
        ];
        let names: HashSet<_> = eleven.iter().filter_map(|(event, _)| event.webhook_name()).collect();
        assert_eq!(names, HashSet::from(WEBHOOK_EVENTS));
        for (event, payload) in eleven {
            let name = serde_json::to_value(&event).unwrap()["what"].clone();
            assert_eq!(body(event).unwrap()["event"], json!({ "name": name, "payload": payload }));
        }
        for other in
            [Event::Joined { unix_micros: 0 }, Event::UserIdle, Event::Ended { reason: EndReason::Idle }]
        {
            assert_eq!(body(other), None);
        }
    }
}
