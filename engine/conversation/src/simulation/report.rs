//! The output of `simulate` and `replay`: one JSON object per line, in the scenario format.

use serde_json::{Map, Value, json};

use crate::contract::event::{Event, EventEnvelope, HistoryItem, Role, TurnTimes};
use crate::contract::output::Explanation;
use crate::contract::time::Time;
use crate::contract::view::round_to_millis;
use crate::machine::conversation::Conversation;

/// Lines that were not taken yet, and the data for the summary.
#[derive(Default)]
pub(crate) struct Report {
    text: String,
    history: Vec<Value>,
    turns: Vec<TurnTimes>,
}

impl Report {
    /// Takes the lines since the last call.
    pub(crate) fn take(&mut self) -> String {
        core::mem::take(&mut self.text)
    }

    /// Adds the reason of a decision.
    pub(crate) fn push_explanation(&mut self, explanation: &Explanation) {
        let t = round_to_millis(explanation.at.as_seconds());
        self.push_line(&json!({"t": t, "what": "explain", "why": explanation.why}));
    }

    /// Adds an event, unless the scenario format has no line for it.
    pub(crate) fn push_event(&mut self, envelope: EventEnvelope) {
        let t = round_to_millis(envelope.at.as_seconds());
        let line = match envelope.event {
            Event::Joined { .. }
            | Event::UserTranscript { .. }
            | Event::AgentSpeechHeard { .. }
            | Event::AgentWords { .. }
            | Event::LlmText { .. }
            | Event::LlmStopped { .. }
            | Event::ToolStarted { .. }
            | Event::Snippets { .. }
            | Event::TurnReplyHeard { .. }
            | Event::Warning { .. }
            | Event::MeetingStatus { .. }
            | Event::RecordingEnded { .. }
            | Event::RecordingStarted
            | Event::RecordingReady { .. }
            | Event::ProviderUsage(_) => return,
            Event::Turn(times) => {
                self.turns.push(times);
                return;
            }
            Event::History(item) => {
                let item = history_item_json(&item);
                self.history.push(Value::Object(item.clone()));
                let mut line =
                    Map::from_iter([("t".into(), json!(t)), ("what".into(), json!("history"))]);
                line.extend(item);
                Value::Object(line)
            }
            event => {
                let Ok(Value::Object(fields)) = serde_json::to_value(event) else { return };
                let mut line = Map::from_iter([("t".into(), json!(t))]);
                let is_shown = |(key, _): &(String, _)| !matches!(&**key, "utterance" | "failed");
                for (key, value) in fields.into_iter().filter(is_shown) {
                    let rounded =
                        matches!(key.as_str(), "position" | "call_duration" | "max_call_duration");
                    let value = value
                        .as_f64()
                        .filter(|_| rounded)
                        .map_or(value, |number| json!(round_to_millis(number)));
                    line.insert(key, value);
                }
                Value::Object(line)
            }
        };
        self.push_line(&line);
    }

    /// Adds the last line, at `t`: the history, and the latencies of each turn.
    pub(crate) fn push_summary(&mut self, t: Time, conversation: &Conversation) {
        let reported_turns: Vec<u32> = self.turns.iter().map(|turn| turn.turn).collect();
        self.turns.extend(
            conversation
                .unreported_turn_times()
                .filter(|turn| !reported_turns.contains(&turn.turn))
                .cloned(),
        );
        // A guardrail's response emits the times of its turn again: the last event counts.
        self.turns.reverse();
        self.turns.sort_by_key(|turn| turn.turn);
        self.turns.dedup_by_key(|turn| turn.turn);
        let number = |value: Option<f64>| value.map(round_to_millis);
        let turns: Vec<Value> = self
            .turns
            .iter()
            .map(|turn| {
                json!({
                    "endpointing": number(turn.endpointing),
                    "llm_ttft": number(turn.llm_ttft),
                    "tts_ttfb": number(turn.tts_ttfb),
                    "voice_to_voice": number(turn.voice_to_voice),
                })
            })
            .collect();
        let history = core::mem::take(&mut self.history);
        self.push_line(&json!({
            "t": round_to_millis(t.as_seconds()),
            "what": "summary",
            "history": history,
            "turns": turns,
        }));
    }

    fn push_line(&mut self, line: &Value) {
        self.text.push_str(&line.to_string());
        self.text.push('\n');
    }
}

/// An item in the scenario format.
fn history_item_json(item: &HistoryItem) -> Map<String, Value> {
    let mut map = Map::from_iter([("role".into(), json!(item.role))]);
    if item.role == Role::Tool {
        map.insert("name".into(), json!(item.name));
        map.insert("arguments".into(), json!(item.arguments));
        map.insert("text".into(), json!(item.text));
    } else {
        map.insert("text".into(), json!(item.text));
        map.insert("interrupted".into(), json!(item.interrupted));
    }
    map
}
