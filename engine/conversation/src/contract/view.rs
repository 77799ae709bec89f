//! What REST returns about a conversation: the projection of its events. There is no other source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::contract::event::{
    AgentState, EndReason, Event, EventEnvelope, HeardWord, Role, Snippet, TurnTimes, UtteranceId,
    is_false,
};
use crate::contract::providers::{ProviderUsage, UsageAmounts};
use crate::contract::time::Time;

/// The state of a conversation after the events so far.
///
/// Times are relative to the start of the conversation; the caller knows the wall clock. Without an
/// `ended` event (the server died), [`ConversationView::transcript`] and
/// [`ConversationView::messages`] contain what was heard up to the last `agent.heard`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationView {
    /// Whether the user joined.
    pub started: bool,
    /// Why the conversation ended, if it did.
    #[serde(rename = "ended")]
    pub end_reason: Option<EndReason>,
    /// Time of the last event, at most that of the end.
    #[serde(rename = "last")]
    pub last_event_at: Time,
    /// The state of the agent.
    #[serde(rename = "state")]
    pub agent_state: AgentState,
    /// Finished items, oldest first.
    pub items: Vec<TranscriptItem>,
    /// The utterance that is playing, with the text that is known to have been heard.
    #[serde(rename = "sounding")]
    pub speaking_item: Option<TranscriptItem>,
    /// The words of the agent's utterances with their times, if the call is recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub words: BTreeMap<UtteranceId, Vec<HeardWord>>,
    /// The passages that the knowledge search returned.
    pub snippets: Vec<UsedSnippet>,
    /// Whether packets of the call were recorded.
    #[serde(default)]
    pub is_recorded: bool,
    /// Warnings for the operator or the caller.
    pub warnings: Vec<String>,
    /// One entry per committed turn, in order of their numbers.
    pub turns: Vec<TurnTimes>,
    /// Consumption.
    pub usage: Usage,
    /// When the VAD reported the start of the user's current speech.
    #[serde(rename = "user_since")]
    pub user_speaking_since: Option<Time>,
    /// Whether the tool of the last `tool_call` failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub last_tool_failed: bool,
}

/// An item of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TranscriptItem {
    /// The author.
    pub role: Role,
    /// The name of the person who spoke, if several people take part and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// The text: spoken by the user, heard from the agent, or returned by the tool.
    pub text: String,
    /// When its first word was spoken.
    #[serde(rename = "began")]
    pub started_at: Time,
    /// Seconds from then to its last word.
    pub duration: f64,
    /// When the turn of the user was committed. It stands there in the transcript, although its
    /// words are earlier: a turn that cuts a reply may begin before the reply does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<Time>,
    /// The agent's utterance.
    pub utterance: Option<UtteranceId>,
    /// Whether it was cut.
    pub interrupted: bool,
    /// The tool's name and arguments.
    pub tool: Option<(String, Value)>,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tool_failed: bool,
}

/// A passage with the answer that it was used for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsedSnippet {
    /// The passage.
    #[serde(flatten)]
    pub snippet: Snippet,
    /// The first utterance of the answer, once it is known.
    pub utterance: Option<UtteranceId>,
}

/// Consumption of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Total duration of the user's speech in seconds, between the reports of the VAD.
    pub stt_seconds: f64,
    /// Tokens of requests to the LLM.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub completion_tokens: u64,
    /// Characters sent to the TTS.
    pub tts_characters: u64,
    /// The use of each provider and kind, in the order of their first reports.
    #[serde(default)]
    pub providers: Vec<ProviderUsage>,
}

impl Usage {
    fn add_provider(&mut self, used: &ProviderUsage) {
        let is_same = |known: &&mut ProviderUsage| {
            (known.kind, &known.provider) == (used.kind, &used.provider)
        };
        match self.providers.iter_mut().find(is_same) {
            Some(known) => known.amounts.add(&used.amounts),
            None => self.providers.push(used.clone()),
        }
    }
}

/// The distribution of one latency over the turns, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
    /// Number of values.
    #[serde(rename = "n")]
    pub count: usize,
}

impl ConversationView {
    /// Applies the next event.
    pub fn apply(&mut self, envelope: &EventEnvelope) {
        let at = envelope.at;
        if self.end_reason.is_none() {
            self.last_event_at = self.last_event_at.max(at);
        }
        match &envelope.event {
            Event::Joined { .. } => self.started = true,
            Event::UserStartedSpeaking => self.user_speaking_since = Some(at),
            Event::UserStoppedSpeaking => {
                if let Some(since) = self.user_speaking_since.take() {
                    self.usage.stt_seconds += at.since(since).as_secs_f64();
                }
            }
            Event::AgentStartedSpeaking { utterance, .. } => {
                self.speaking_item = Some(TranscriptItem {
                    role: Role::Assistant,
                    speaker: None,
                    text: String::new(),
                    started_at: at,
                    duration: 0.0,
                    committed_at: None,
                    utterance: Some(*utterance),
                    interrupted: true,
                    tool: None,
                    tool_failed: false,
                });
                for used in
                    self.snippets.iter_mut().rev().take_while(|used| used.utterance.is_none())
                {
                    used.utterance = Some(*utterance);
                }
            }
            Event::AgentSpeechHeard { utterance, text } => {
                if let Some(item) =
                    self.speaking_item.as_mut().filter(|item| item.utterance == Some(*utterance))
                {
                    item.text.clone_from(text);
                    item.duration = at.since(item.started_at).as_secs_f64();
                }
            }
            Event::AgentStoppedSpeaking { .. } => self.speaking_item = None,
            Event::AgentWords { utterance, words } => {
                self.words.entry(*utterance).or_default().extend_from_slice(words);
            }
            Event::AgentState { state } => self.agent_state = *state,
            // The item of the history follows.
            Event::ToolCall { failed, .. } => self.last_tool_failed = *failed,
            Event::History(item) => {
                let began = item.started_at.unwrap_or(at);
                self.items.push(TranscriptItem {
                    role: item.role,
                    speaker: item.speaker.clone(),
                    text: item.text.clone(),
                    started_at: began,
                    duration: item.ended_at.unwrap_or(at).since(began).as_secs_f64(),
                    committed_at: (item.role == Role::User).then_some(at),
                    utterance: item.utterance,
                    interrupted: item.interrupted,
                    tool: item
                        .name
                        .clone()
                        .map(|name| (name, item.arguments.clone().unwrap_or(Value::Null))),
                    tool_failed: item.role == Role::Tool && self.last_tool_failed,
                });
            }
            Event::TtsStarted { text } => self.usage.tts_characters += text.chars().count() as u64,
            Event::LlmStopped { prompt_tokens, completion_tokens } => {
                self.usage.prompt_tokens += u64::from(*prompt_tokens);
                self.usage.completion_tokens += u64::from(*completion_tokens);
            }
            Event::Snippets { items } => {
                self.snippets.extend(
                    items.iter().cloned().map(|snippet| UsedSnippet { snippet, utterance: None }),
                );
            }
            Event::SpeakerCorrected { turn, speaker } => {
                // Each turn is one item of the user.
                let mut spoken = self.items.iter_mut().filter(|item| item.role == Role::User);
                if let Some(item) = spoken.nth(*turn as usize) {
                    item.speaker = Some(speaker.clone());
                }
            }
            Event::RecordingStarted => self.is_recorded = true,
            Event::RecordingEnded { is_discarded } => self.is_recorded &= !is_discarded,
            Event::Warning { text } => self.warnings.push(text.clone()),
            Event::Turn(times) => {
                let at = self.turns.partition_point(|other| other.turn < times.turn);
                match self.turns.get_mut(at).filter(|other| other.turn == times.turn) {
                    Some(known) => known.clone_from(times),
                    None => self.turns.insert(at, times.clone()),
                }
            }
            Event::TurnReplyHeard { turn, heard_end, interrupted, barge_in, providers } => {
                if let Some(known) = self.turns.iter_mut().rev().find(|known| known.turn == *turn) {
                    known.barge_in = *barge_in;
                    known.timeline.heard_end = Some(*heard_end);
                    known.timeline.interrupted = *interrupted;
                    if let Some(providers) = providers {
                        known.providers.clone_from(providers);
                    }
                }
            }
            Event::ProviderUsage(used) => self.usage.add_provider(used),
            Event::Ended { reason } => {
                self.end_reason = Some(*reason);
                self.speaking_item = None;
            }
            Event::AgentInterrupted
            | Event::CallEnded
            | Event::MaxCallDurationTimeout { .. }
            | Event::MaxCallDurationWarning { .. }
            | Event::ParticipantLeft { .. }
            | Event::UtteranceCommitted { .. }
            | Event::UserIdle
            | Event::PlayoutStarted { .. }
            | Event::PlayoutDucked { .. }
            | Event::PlayoutUnducked { .. }
            | Event::PlayoutHeld { .. }
            | Event::PlayoutResumed { .. }
            | Event::PlayoutFinished { .. }
            | Event::LlmStarted
            | Event::LlmCancelled
            | Event::Error { .. }
            | Event::MeetingStatus { .. }
            | Event::RecordingReady { .. }
            | Event::UserTranscript { .. }
            | Event::LlmText { .. }
            | Event::GuardrailTriggered(_)
            | Event::ToolStarted { .. } => {}
        }
    }

    /// All items in the order of their end. The utterance that is playing (or was, when the server
    /// died) comes last, if a word of it was heard.
    pub fn messages(&self) -> impl Iterator<Item = &TranscriptItem> {
        self.items.iter().chain(self.speaking_item.iter().filter(|item| !item.text.is_empty()))
    }

    /// The spoken messages of user and agent: the agent's in the order of their starts, between
    /// which the user's stand where they were committed. An utterance that was held and resumed
    /// ends after what the user said meanwhile, but comes before it here.
    pub fn transcript(&self) -> impl Iterator<Item = &TranscriptItem> {
        let spoken = |item: &&TranscriptItem| matches!(item.role, Role::User | Role::Assistant);
        let mut items: Vec<&TranscriptItem> = self.messages().filter(spoken).collect();
        items.sort_by_key(|item| item.committed_at.unwrap_or(item.started_at));
        items.into_iter()
    }

    /// The words of a message of the agent with their times. `None` if the times of some of its
    /// words are unknown.
    fn words_of(&self, item: &TranscriptItem) -> Option<&[HeardWord]> {
        let words = self.words.get(&item.utterance?)?;
        let timed = words.iter().flat_map(|word| letters(&word.text));
        timed.eq(letters(&item.text)).then_some(words.as_slice())
    }

    /// Duration of the conversation in seconds; 0 if the user never joined.
    #[must_use]
    pub fn duration(&self) -> f64 {
        if self.started { self.last_event_at.as_seconds() } else { 0.0 }
    }

    /// The `messages` of `chat_history`; `timestamp` converts the start of an item to wall-clock
    /// time. In a call that is recorded, a message of the agent has `words` if the times of all its
    /// words are known.
    pub fn chat_history(&self, mut timestamp: impl FnMut(Time) -> Value) -> Value {
        let messages: Vec<Value> = self
            .messages()
            .map(|item| {
                let mut message = Map::new();
                message.insert("role".into(), json!(item.role));
                message.insert("content".into(), json!(item.text));
                if let Some(speaker) = &item.speaker {
                    message.insert("speaker".into(), json!(speaker));
                }
                message.insert("timestamp".into(), timestamp(item.started_at));
                message.insert(
                    "seconds_from_start".into(),
                    json!(round_to_millis(item.started_at.as_seconds())),
                );
                message.insert("duration".into(), json!(round_to_millis(item.duration)));
                message.insert("speech_id".into(), json!(item.utterance.map(speech_id)));
                message.insert("interrupted".into(), json!(item.interrupted));
                if let Some((name, arguments)) = &item.tool {
                    let status = if item.tool_failed { "failed" } else { "completed" };
                    message.insert(
                        "tool_call".into(),
                        json!({
                            "name": name, "arguments": arguments, "result": item.text,
                            "status": status,
                        }),
                    );
                }
                if let Some(words) = self.words_of(item) {
                    message.insert("words".into(), json!(words));
                }
                Value::Object(message)
            })
            .collect();
        json!({ "messages": messages })
    }

    /// `snippets` as returned by REST.
    #[must_use]
    pub fn snippets_json(&self) -> Value {
        let items: Vec<Value> = self
            .snippets
            .iter()
            .map(|used| {
                let s = &used.snippet;
                json!({
                    "kb_id": s.kb_id,
                    "doc_id": s.doc_id,
                    "text": s.text,
                    "score": s.score,
                    "speech_id": used.utterance.map(speech_id),
                })
            })
            .collect();
        json!({ "items": items })
    }

    /// `usage_json` as an object; only the caller knows `video_seconds`.
    #[must_use]
    pub fn usage_json(&self, video_seconds: f64) -> Value {
        let of = |pick: fn(&TurnTimes) -> Option<f64>| json!(self.percentiles(pick));
        json!({
            "duration_seconds": round_to_millis(self.duration()),
            "stt_seconds": round_to_millis(self.usage.stt_seconds),
            "llm": {
                "prompt_tokens": self.usage.prompt_tokens,
                "completion_tokens": self.usage.completion_tokens,
            },
            "tts_characters": self.usage.tts_characters,
            "video_seconds": round_to_millis(video_seconds),
            "turns": self.turns.len(),
            "latency": {
                "voice_to_voice": of(|t| t.voice_to_voice),
                "endpointing": of(|t| t.endpointing),
                "stt": of(|t| t.stt),
                "llm": of(|t| t.llm_ttft),
                "tts": of(|t| t.tts_ttfb),
                "playout": of(|t| t.playout),
                "barge_in": of(|t| t.barge_in),
            },
            "providers": self.usage.providers.iter().map(provider_json).collect::<Vec<_>>(),
        })
    }

    /// The distribution of one value over the turns; `None` if no turn has it. Nearest-rank
    /// percentiles.
    pub fn percentiles(&self, pick: impl Fn(&TurnTimes) -> Option<f64>) -> Option<Percentiles> {
        let mut values: Vec<f64> = self.turns.iter().filter_map(pick).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let rank = |q: f64| {
            values
                .get(((n as f64 * q).ceil() as usize).clamp(1, n.max(1)) - 1)
                .map(|v| round_to_millis(*v))
        };
        Some(Percentiles {
            p50: rank(0.5)?,
            p90: rank(0.9)?,
            p99: rank(0.99)?,
            max: rank(1.0)?,
            count: n,
        })
    }
}

/// The use of a provider as returned by REST.
fn provider_json(used: &ProviderUsage) -> Value {
    let UsageAmounts {
        connected_seconds,
        audio_seconds,
        characters,
        input_tokens,
        cached_tokens,
        output_tokens,
        requests,
    } = used.amounts;
    json!({
        "kind": used.kind,
        "provider": used.provider,
        "connected_seconds": round_to_millis(connected_seconds),
        "audio_seconds": round_to_millis(audio_seconds),
        "characters": characters,
        "input_tokens": input_tokens,
        "cached_tokens": cached_tokens,
        "output_tokens": output_tokens,
        "requests": requests,
    })
}

/// The characters by which words are compared with a message.
fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| c.is_alphanumeric())
}

/// An utterance's id as clients see it.
#[must_use]
pub fn speech_id(utterance: UtteranceId) -> String {
    format!("speech_{}", utterance.0)
}

/// Rounds seconds to milliseconds, without float noise.
#[must_use]
pub fn round_to_millis(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::event::HistoryItem;

    fn view_of(events: impl IntoIterator<Item = (f64, Event)>) -> ConversationView {
        let mut view = ConversationView::default();
        for (seq, (at, event)) in events.into_iter().enumerate() {
            view.apply(&EventEnvelope { seq: seq as u64, at: Time::from_seconds(at), event });
        }
        view
    }

    #[test]
    fn after_a_crash_the_transcript_holds_what_was_heard_a_second_before() {
        let utterance = UtteranceId(0);
        let view = view_of([
            (0.0, Event::Joined { unix_micros: 0 }),
            (1.0, Event::AgentStartedSpeaking { text: "One two three.".into(), utterance }),
            (2.0, Event::AgentSpeechHeard { utterance, text: "One two".into() }),
        ]);
        assert_eq!(view.end_reason, None);
        let items: Vec<_> =
            view.transcript().map(|item| (item.text.as_str(), item.interrupted)).collect();
        assert_eq!(items, [("One two", true)]);
    }

    #[test]
    fn a_finished_utterance_is_in_the_chat_history_once() {
        let utterance = UtteranceId(3);
        let item = HistoryItem {
            role: Role::Assistant,
            speaker: None,
            name: None,
            arguments: None,
            text: "Hello there.".into(),
            interrupted: false,
            utterance: Some(utterance),
            started_at: Some(Time::from_seconds(1.0)),
            ended_at: None,
            in_context: true,
        };
        let view = view_of([
            (1.0, Event::AgentStartedSpeaking { text: "Hello there.".into(), utterance }),
            (2.0, Event::AgentSpeechHeard { utterance, text: "Hello".into() }),
            (2.5, Event::AgentStoppedSpeaking { text: "Hello there.".into(), utterance }),
            (2.5, Event::History(item)),
        ]);
        let history = view.chat_history(|at| json!(at.as_seconds()));
        assert_eq!(
            history,
            json!({"messages": [{"role": "assistant", "content": "Hello there.", "timestamp": 1.0,
                "seconds_from_start": 1.0, "duration": 1.5, "speech_id": "speech_3",
                "interrupted": false}]})
        );
    }

    #[test]
    fn a_failed_tool_is_recognizable_in_the_history() {
        let called = |name: &str, failed| Event::ToolCall {
            tool_name: name.into(),
            parameters: json!({}),
            result: json!("late"),
            failed,
        };
        let item = |name: &str| {
            Event::History(HistoryItem {
                role: Role::Tool,
                speaker: None,
                name: Some(name.into()),
                arguments: Some(json!({})),
                text: "late".into(),
                interrupted: false,
                utterance: None,
                started_at: None,
                ended_at: None,
                in_context: true,
            })
        };
        let view = view_of([
            (1.0, called("weather", true)),
            (1.0, item("weather")),
            (2.0, called("trains", false)),
            (2.0, item("trains")),
        ]);
        let history = view.chat_history(|at| json!(at.as_seconds()));
        let calls: Vec<&Value> = (0..2).map(|n| &history["messages"][n]["tool_call"]).collect();
        assert_eq!(
            *calls[0],
            json!({"name": "weather", "arguments": {}, "result": "late", "status": "failed"})
        );
        assert_eq!(calls[1]["status"], "completed");
    }

    #[test]
    fn what_was_said_while_an_utterance_was_held_stands_behind_it() {
        let utterance = UtteranceId(0);
        let item = |role, text: &str, began, utterance| HistoryItem {
            role,
            speaker: None,
            name: None,
            arguments: None,
            text: text.into(),
            interrupted: false,
            utterance,
            started_at: Some(Time::from_seconds(began)),
            ended_at: None,
            in_context: true,
        };
        let story = "Here is the story.";
        let mut events = vec![
            (8.8, Event::AgentStartedSpeaking { text: story.into(), utterance }),
            (13.0, Event::AgentSpeechHeard { utterance, text: "Here is".into() }),
            (14.4, Event::History(item(Role::User, "Mm-hm.", 13.8, None))),
        ];
        let read = |view: &ConversationView| {
            view.transcript().map(|item| item.text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(read(&view_of(events.clone())), ["Here is", "Mm-hm."], "during playout");
        events.push((16.0, Event::History(item(Role::Assistant, story, 8.8, Some(utterance)))));
        events.push((16.0, Event::AgentStoppedSpeaking { text: story.into(), utterance }));
        assert_eq!(read(&view_of(events)), [story, "Mm-hm."]);
    }

    #[test]
    fn percentiles_are_those_of_the_turns_that_have_the_value() {
        let turn =
            |turn, v| Event::Turn(TurnTimes { turn, voice_to_voice: v, ..TurnTimes::default() });
        let view = view_of([
            (1.0, turn(0, Some(0.7))),
            (2.0, turn(1, None)),
            (3.0, turn(2, Some(0.5))),
            (4.0, turn(2, Some(0.9))),
        ]);
        let spread = view.percentiles(|t| t.voice_to_voice).unwrap();
        assert_eq!((spread.p50, spread.p90, spread.max, spread.count), (0.7, 0.9, 0.9, 2));
        assert_eq!(view.turns.len(), 3);
    }
}
