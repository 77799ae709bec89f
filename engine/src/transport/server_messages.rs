//! Messages to the client: the events of a conversation as RTVI messages. Pure; described in
//! `docs/client-messages.md`.

use std::collections::{HashSet, VecDeque};

use conversation::event::{
    AgentState, EndReason, Event, EventEnvelope, Stage, TurnTimes, UtteranceId,
};
use conversation::id::ConversationId;
use conversation::time::Time;
use engine_api::RecordingChoice;
use serde_json::{Value, json};

use super::TextMessage;
use super::client_messages::error_message;

/// Supported protocol version.
const RTVI_VERSION: &str = "2.2.0";

/// Maximum size of a tool's arguments or result in a message, bytes of JSON.
const MAX_TOOL_VALUE_BYTES: usize = 16 * 1024;

/// Properties of the call that a session needs.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Reported as the speaker in the user's transcripts.
    pub user_id: String,
    /// Whether the client sees arguments and results of all tools, not only of its own.
    pub expose_tools: bool,
    /// Names of the tools that run in the client.
    pub client_tools: HashSet<String>,
    /// How the call is recorded; `None` if it is not.
    pub recording: Option<RecordingChoice>,
}

/// The RTVI state of one call. It outlives connections: a client that reconnects resumes at the
/// call's current state.
pub struct RtviSession {
    info: SessionInfo,
    /// Whether the recording has failed during the call. What was recorded before remains.
    recording_failed: bool,
    /// Wall clock of the start, µs since the Unix epoch.
    started_unix_micros: u64,
    state: AgentState,
    synthesizing: bool,
    generating: bool,
    /// Text of the current generation, as far as it is known.
    generated_text: String,
    current_utterance: Option<CurrentUtterance>,
    /// Running tools: call id and name.
    running_tools: VecDeque<(String, String)>,
}

/// The utterance that is playing.
struct CurrentUtterance {
    utterance: UtteranceId,
    full_text: String,
    heard_text: String,
}

fn rtvi_message(kind: &str, data: Option<Value>) -> TextMessage {
    let mut message = json!({"label": "rtvi-ai", "type": kind});
    if let (Some(data), Some(object)) = (data, message.as_object_mut()) {
        object.insert("data".to_owned(), data);
    }
    message.to_string().into()
}

fn server_message(data: Value) -> TextMessage {
    rtvi_message("server-message", Some(data))
}

/// The level of the user's audio, from `dbfs` in dB of full scale. Sent about ten times per second.
#[must_use]
pub fn level_message(dbfs: f32) -> TextMessage {
    let linear = (f64::from(dbfs) + 60.0).clamp(0.0, 60.0) / 60.0;
    server_message(json!({
        "level": (linear * 1000.0).round() / 1000.0,
        "dbfs": (f64::from(dbfs) * 10.0).round() / 10.0,
    }))
    .as_progress()
}

/// A tool's value as the client sees it: whole, or the start of its JSON text. A long value would
/// fill the channel and delay captions.
fn truncate_value(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_TOOL_VALUE_BYTES {
        return value.clone();
    }
    format!("{}… ({} bytes)", &text[..text.floor_char_boundary(MAX_TOOL_VALUE_BYTES)], text.len())
        .into()
}

impl RtviSession {
    /// A session at the start of a call.
    #[must_use]
    pub fn new(info: SessionInfo) -> Self {
        Self {
            info,
            recording_failed: false,
            started_unix_micros: 0,
            state: AgentState::Listening,
            synthesizing: false,
            generating: false,
            generated_text: String::new(),
            current_utterance: None,
            running_tools: VecDeque::new(),
        }
    }

    /// The answer to `client-ready`. The public client waits for it without a timeout. `video`:
    /// whether an avatar is shown.
    #[must_use]
    pub fn bot_ready(&self, id: &str, video: bool) -> String {
        let mut data = json!({
            "version": RTVI_VERSION,
            "about": {"library": "visavis", "library_version": env!("CARGO_PKG_VERSION")},
            "capabilities": {
                "audio_in": true, "audio_out": true, "video_in": false, "screen_in": false,
                "video_out": video, "metrics": true,
            },
            "conversation_id": self.info.conversation_id,
        });
        if let Some(recording) = self.info.recording.as_ref().filter(|r| r.notice) {
            data["recording"] = json!({"notice": true, "optional": recording.is_optional});
            if self.recording_failed {
                data["recording"]["enabled"] = false.into();
            }
        }
        json!({"label": "rtvi-ai", "type": "bot-ready", "id": id, "data": data}).to_string()
    }

    /// The agent's current state, for a client whose data channel has just opened: it may join in
    /// mid-call.
    #[must_use]
    pub fn state_message(&self) -> TextMessage {
        server_message(json!({"state": self.state}))
    }

    /// The agent's current state.
    #[must_use]
    pub fn state(&self) -> AgentState {
        self.state
    }

    /// The wall clock at a time of the call, in µs since the Unix epoch.
    #[must_use]
    pub fn unix_micros(&self, at: Time) -> u64 {
        self.started_unix_micros + at.as_micros()
    }

    /// Whether a tool call with this id was started in the client and its result is pending.
    #[must_use]
    pub fn awaits_tool_result(&self, tool_call_id: &str) -> bool {
        self.running_tools
            .iter()
            .any(|(id, name)| id == tool_call_id && self.info.client_tools.contains(name))
    }

    /// Calls `send` for each message that results from an event.
    pub fn on_event(&mut self, envelope: &EventEnvelope, mut send: impl FnMut(TextMessage)) {
        match &envelope.event {
            Event::Joined { unix_micros } => self.started_unix_micros = *unix_micros,
            Event::UserStartedSpeaking => send(rtvi_message("user-started-speaking", None)),
            Event::UserStoppedSpeaking => send(rtvi_message("user-stopped-speaking", None)),
            Event::UserTranscript { text, is_final } => {
                let data = json!({
                    "text": text,
                    "user_id": self.info.user_id,
                    "timestamp": iso_timestamp(self.started_unix_micros, envelope.at),
                    "final": is_final,
                });
                let visible = rtvi_message("user-transcription", Some(data));
                send(if *is_final { visible } else { visible.as_progress() });
            }
            Event::UtteranceCommitted { text, .. } => {
                send(rtvi_message("user-llm-text", Some(json!({"text": text}))))
            }
            Event::AgentState { state } => {
                self.state = *state;
                send(self.state_message());
            }
            Event::LlmStarted => {
                self.generated_text.clear();
                self.generating = true;
                send(rtvi_message("bot-llm-started", None));
            }
            Event::LlmText { text } => {
                self.generated_text.push_str(text);
                send(rtvi_message("bot-llm-text", Some(json!({"text": text}))).as_progress());
            }
            Event::LlmStopped { .. } | Event::LlmCancelled => {
                let thinking = std::mem::take(&mut self.generating);
                if thinking {
                    send(rtvi_message("bot-llm-stopped", None));
                }
            }
            Event::TtsStarted { text } => {
                if !text.is_empty() {
                    send(rtvi_message("bot-transcription", Some(json!({"text": text}))));
                }
                if !std::mem::replace(&mut self.synthesizing, true) {
                    send(rtvi_message("bot-tts-started", None));
                }
            }
            Event::AgentStartedSpeaking { text, utterance } => {
                self.current_utterance = Some(CurrentUtterance {
                    utterance: *utterance,
                    full_text: text.clone(),
                    heard_text: String::new(),
                });
                send(rtvi_message("bot-started-speaking", None));
                self.send_output("new", &mut send);
            }
            Event::AgentSpeechHeard { utterance, text } => {
                self.update_heard_text(*utterance, text, &mut send)
            }
            Event::AgentStoppedSpeaking { text, utterance } => {
                self.update_heard_text(*utterance, text, &mut send);
                if self
                    .current_utterance
                    .as_ref()
                    .is_some_and(|s| same_words(&s.full_text, &s.heard_text))
                {
                    self.send_output("completed", &mut send);
                }
                self.current_utterance = None;
                if std::mem::take(&mut self.synthesizing) {
                    send(rtvi_message("bot-tts-stopped", None));
                }
                send(rtvi_message("bot-stopped-speaking", None));
            }
            Event::ToolStarted { call_id, tool_name, parameters } => {
                let visible = self.info.expose_tools || self.info.client_tools.contains(tool_name);
                // A tool that runs in the client needs all arguments.
                let runs_in_client = self.info.client_tools.contains(tool_name);
                let arguments = match visible {
                    true if runs_in_client => parameters.clone(),
                    true => truncate_value(parameters),
                    false => json!({}),
                };
                self.running_tools.push_back((call_id.clone(), tool_name.clone()));
                send(rtvi_message(
                    "llm-function-call-started",
                    Some(json!({"function_name": tool_name})),
                ));
                send(rtvi_message(
                    "llm-function-call-in-progress",
                    Some(json!({
                        "tool_call_id": call_id,
                        "function_name": tool_name,
                        "arguments": arguments,
                    })),
                ));
            }
            Event::ToolCall { tool_name, result, .. } => {
                let place = self.running_tools.iter().position(|(_, name)| name == tool_name);
                let id = place.and_then(|place| self.running_tools.remove(place)).map(|(id, _)| id);
                let visible = self.info.expose_tools || self.info.client_tools.contains(tool_name);
                let mut data =
                    json!({"tool_call_id": id, "cancelled": false, "function_name": tool_name});
                if visible {
                    data["result"] = truncate_value(result);
                }
                send(rtvi_message("llm-function-call-stopped", Some(data)));
            }
            Event::Turn(times) => send(rtvi_message("metrics", Some(metrics_data(times)))),
            // The provider's error text is for the operator only.
            Event::Error { stage, .. } => send(TextMessage::from(error_message(
                match stage {
                    Stage::Llm => "The language model failed",
                    Stage::Tts => "Speech synthesis failed",
                    Stage::Stt => "Speech recognition failed",
                    Stage::Tool => "A tool failed",
                },
                false,
            ))),
            Event::Warning { text } => send(server_message(json!({"warning": text}))),
            Event::RecordingEnded { is_discarded } => {
                self.recording_failed = true;
                self.info.recording.take_if(|_| *is_discarded);
                let state = json!({"enabled": false, "discarded": is_discarded});
                send(server_message(json!({"recording": state})));
            }
            Event::Ended { reason: EndReason::Error } => {
                send(error_message("The call was ended by an error", true).into());
            }
            _ => {}
        }
        if let Some(body) = self.webhook_body(envelope) {
            // The body is already JSON.
            let text = format!(
                r#"{{"label":"rtvi-ai","type":"server-message","data":{{"event":{body}}}}}"#
            );
            send(text.into());
        }
    }

    fn webhook_body(&self, envelope: &EventEnvelope) -> Option<String> {
        let Event::ToolCall { tool_name, parameters, result, failed } = &envelope.event else {
            return envelope.webhook_body(self.info.conversation_id, self.started_unix_micros);
        };
        let exposed = self.info.expose_tools;
        let event = Event::ToolCall {
            tool_name: tool_name.clone(),
            parameters: if exposed { truncate_value(parameters) } else { Value::Null },
            result: if exposed { truncate_value(result) } else { Value::Null },
            failed: *failed,
        };
        let envelope = EventEnvelope { event, ..envelope.clone() };
        let body = envelope.webhook_body(self.info.conversation_id, self.started_unix_micros)?;
        if exposed {
            return Some(body);
        }
        let mut body: Value = serde_json::from_str(&body).ok()?;
        let payload = body.pointer_mut("/event/payload")?.as_object_mut()?;
        payload.retain(|name, _| matches!(&**name, "tool_name" | "status"));
        Some(body.to_string())
    }

    /// Handles an increase of the heard text of the utterance.
    fn update_heard_text(
        &mut self,
        utterance: UtteranceId,
        text: &str,
        send: &mut impl FnMut(TextMessage),
    ) {
        let Some(current) = self.current_utterance.as_mut().filter(|s| s.utterance == utterance)
        else {
            return;
        };
        // The generation's text may have grown since the utterance started to play.
        if self.generated_text.trim_start().starts_with(current.full_text.trim())
            && self.generated_text.len() > current.full_text.len()
        {
            current.full_text = self.generated_text.trim().to_owned();
        }
        if !current.full_text.starts_with(text) {
            current.full_text = text.to_owned();
        }
        let new = text.strip_prefix(current.heard_text.as_str()).unwrap_or(text).to_owned();
        current.heard_text = text.to_owned();
        if !new.trim().is_empty() {
            send(rtvi_message("bot-tts-text", Some(json!({"text": new}))).as_progress());
            self.send_output("in-progress", send);
        }
    }

    fn send_output(&self, status: &str, send: &mut impl FnMut(TextMessage)) {
        let Some(current) = &self.current_utterance else { return };
        let rest = current.full_text.strip_prefix(current.heard_text.as_str()).unwrap_or("");
        let message = rtvi_message(
            "bot-output",
            Some(json!({
                "text": current.full_text,
                "output_type": "sentence",
                "aggregated_by": "sentence",
                "segment_id": current.utterance,
                "spoken": status == "completed",
                "will_be_spoken": true,
                "spoken_status": status,
                "spoken_progress": {"accumulated_text": current.heard_text, "remaining_text": rest},
            })),
        );
        send(if status == "in-progress" { message.as_progress() } else { message });
    }
}

fn same_words(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

fn metrics_data(times: &TurnTimes) -> Value {
    let entry = |processor: &str, value: Option<f64>| {
        value.map(|value| json!({"processor": processor, "value": value}))
    };
    let list = |entries: [Option<Value>; 2]| entries.into_iter().flatten().collect::<Vec<_>>();
    json!({
        "ttfb": list([entry("llm", times.llm_ttft), entry("tts", times.tts_ttfb)]),
        "processing": list([
            entry("endpointing", times.endpointing),
            entry("voice_to_voice", times.voice_to_voice),
        ]),
    })
}

/// ISO 8601 in UTC with milliseconds.
fn iso_timestamp(started_unix_micros: u64, at: Time) -> String {
    let millis = (started_unix_micros + at.as_micros()) / 1000;
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    // Civil from days: https://howardhinnant.github.io/date_algorithms.html
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let day = day - (153 * shifted + 2) / 5 + 1;
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}+00:00",
        rest % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::super::Priority;
    use super::*;

    const STARTED_UNIX_MICROS: u64 = 1_795_266_606_000_000;

    fn session(expose_tools: bool) -> RtviSession {
        let client_tools = HashSet::from(["page_title".to_owned()]);
        let about = SessionInfo {
            conversation_id: ConversationId(7),
            user_id: "u".into(),
            expose_tools,
            client_tools,
            recording: None,
        };
        let mut session = RtviSession::new(about);
        messages_for(&mut session, Event::Joined { unix_micros: STARTED_UNIX_MICROS });
        session
    }

    fn messages_for(session: &mut RtviSession, event: Event) -> Vec<Value> {
        let mut out = Vec::new();
        session.on_event(&EventEnvelope { seq: 1, at: Time::from_seconds(1.5), event }, |text| {
            out.push(serde_json::from_str(&text.body).unwrap())
        });
        out
    }

    fn message_types(messages: &[Value]) -> Vec<&str> {
        messages.iter().map(|m| m["type"].as_str().unwrap()).collect()
    }

    #[test]
    fn every_event_of_the_interface_comes_as_its_webhook_body_too() {
        let mut session = session(false);
        let messages = messages_for(&mut session, Event::UserStartedSpeaking);
        assert_eq!(messages[0], json!({"label": "rtvi-ai", "type": "user-started-speaking"}));
        assert_eq!(
            messages[1],
            json!({"label": "rtvi-ai", "type": "server-message", "data": {"event": {
                "timestamp": 1_795_266_607.5,
                "conversation_id": "00000000-0000-0000-0000-000000000007",
                "type": "pipeline",
                "event": {"name": "user.started_speaking", "payload": {}},
            }}})
        );
    }

    #[test]
    fn words_of_the_user_have_all_four_fields() {
        let messages = messages_for(
            &mut session(false),
            Event::UserTranscript { text: "Good".into(), is_final: false },
        );
        let data = json!({
            "text": "Good",
            "user_id": "u",
            "timestamp": "2026-11-21T13:10:07.500+00:00",
            "final": false,
        });
        assert_eq!(
            messages,
            [json!({"label": "rtvi-ai", "type": "user-transcription", "data": data})]
        );
    }

    #[test]
    fn captions_follow_what_is_heard_and_complete_only_when_all_was() {
        let mut session = session(false);
        let utterance = UtteranceId(3);
        messages_for(&mut session, Event::LlmStarted);
        messages_for(&mut session, Event::LlmText { text: "One two. ".into() });
        let start = messages_for(
            &mut session,
            Event::AgentStartedSpeaking { text: "One two.".into(), utterance },
        );
        assert_eq!(message_types(&start), ["bot-started-speaking", "bot-output", "server-message"]);
        assert_eq!(
            start[1]["data"]["spoken_progress"],
            json!({"accumulated_text": "", "remaining_text": "One two."})
        );
        messages_for(&mut session, Event::LlmText { text: "Three.".into() });
        let heard =
            messages_for(&mut session, Event::AgentSpeechHeard { utterance, text: "One".into() });
        assert_eq!(message_types(&heard), ["bot-tts-text", "bot-output"]);
        assert_eq!(heard[1]["data"]["text"], "One two. Three.");
        assert_eq!(heard[1]["data"]["spoken_status"], "in-progress");
        assert_eq!(heard[1]["data"]["spoken_progress"]["remaining_text"], " two. Three.");
        let stop = messages_for(
            &mut session,
            Event::AgentStoppedSpeaking { text: "One two. Three.".into(), utterance },
        );
        assert_eq!(
            message_types(&stop),
            ["bot-tts-text", "bot-output", "bot-output", "bot-stopped-speaking", "server-message"]
        );
        assert_eq!(stop[0]["data"]["text"], " two. Three.");
        assert_eq!(stop[2]["data"]["spoken_status"], "completed");

        let utterance = UtteranceId(4);
        messages_for(&mut session, Event::TtsStarted { text: "Four five.".into() });
        messages_for(
            &mut session,
            Event::AgentStartedSpeaking { text: "Four five.".into(), utterance },
        );
        let cut = messages_for(
            &mut session,
            Event::AgentStoppedSpeaking { text: "Four".into(), utterance },
        );
        assert_eq!(
            message_types(&cut),
            [
                "bot-tts-text",
                "bot-output",
                "bot-tts-stopped",
                "bot-stopped-speaking",
                "server-message"
            ]
        );
        assert!(cut.iter().all(|m| m["data"]["spoken_status"] != "completed"));
    }

    #[test]
    fn arguments_and_results_of_the_servers_own_tools_are_shown_only_if_the_agent_says_so() {
        for expose in [false, true] {
            let mut session = session(expose);
            let started = |name: &str| Event::ToolStarted {
                call_id: "call_1".into(),
                tool_name: name.into(),
                parameters: json!({"city": "Paris"}),
            };
            let called = |name: &str| Event::ToolCall {
                tool_name: name.into(),
                parameters: json!({"city": "Paris"}),
                result: json!({"secret": 1}),
                failed: false,
            };
            let start = messages_for(&mut session, started("weather"));
            assert_eq!(
                start[1]["data"]["arguments"],
                if expose { json!({"city": "Paris"}) } else { json!({}) }
            );
            assert!(!session.awaits_tool_result("call_1"));
            let long = Event::ToolCall {
                tool_name: "weather".into(),
                parameters: json!({}),
                result: json!({"result": "ü".repeat(100_000)}),
                failed: false,
            };
            let total_bytes: usize =
                messages_for(&mut session, long).iter().map(|m| m.to_string().len()).sum();
            assert!(total_bytes < 3 * MAX_TOOL_VALUE_BYTES, "{total_bytes} bytes of a long result");
            messages_for(&mut session, started("weather"));
            let stop = messages_for(&mut session, called("weather"));
            assert_eq!(stop[0]["data"]["tool_call_id"], "call_1");
            let text = Value::from(stop).to_string();
            assert_eq!((text.contains("secret"), text.contains("Paris")), (expose, expose));
            assert!(text.contains(r#""tool_name":"weather""#));
            assert!(text.contains(r#""status":"completed""#));
            // A tool that runs in the client needs its arguments.
            let start = messages_for(&mut session, started("page_title"));
            assert_eq!(start[1]["data"]["arguments"], json!({"city": "Paris"}));
            assert!(session.awaits_tool_result("call_1"));
            messages_for(&mut session, called("page_title"));
            assert!(!session.awaits_tool_result("call_1"));
        }
    }

    #[test]
    fn our_own_messages_tell_state_and_level() {
        let mut session = session(false);
        let messages =
            messages_for(&mut session, Event::AgentState { state: AgentState::Thinking });
        assert_eq!(
            messages,
            [json!({"label": "rtvi-ai", "type": "server-message", "data": {"state": "thinking"}})]
        );
        assert_eq!(
            serde_json::from_str::<Value>(&session.state_message().body).unwrap(),
            messages[0]
        );
        let message: Value = serde_json::from_str(&level_message(-30.04).body).unwrap();
        assert_eq!(message["data"], json!({"level": 0.499, "dbfs": -30.0}));
        let ready: Value = serde_json::from_str(&session.bot_ready("58307d34", true)).unwrap();
        assert_eq!((&ready["type"], &ready["id"]), (&json!("bot-ready"), &json!("58307d34")));
        assert_eq!(ready["data"]["version"], "2.2.0");
    }

    #[test]
    fn a_client_learns_that_the_call_is_recorded_and_when_it_is_not_any_more() {
        let ready = |session: &RtviSession| -> Value {
            let message: Value = serde_json::from_str(&session.bot_ready("1", false)).unwrap();
            message["data"]["recording"].clone()
        };
        for (notice, is_optional, expected) in [
            (true, false, json!({"notice": true, "optional": false})),
            (true, true, json!({"notice": true, "optional": true})),
            (false, true, Value::Null),
        ] {
            let mut session = session(false);
            assert_eq!(ready(&session), Value::Null);
            session.info.recording = Some(RecordingChoice { notice, is_optional, warning: None });
            assert_eq!(ready(&session), expected);
            let messages =
                messages_for(&mut session, Event::RecordingEnded { is_discarded: is_optional });
            let state = json!({"recording": {"enabled": false, "discarded": is_optional}});
            assert_eq!(messages.len(), 1, "{messages:?}");
            assert_eq!(
                (&messages[0]["type"], &messages[0]["data"]),
                (&json!("server-message"), &state)
            );
            // A page that takes over the call sees a notice as long as something is recorded.
            let remains = json!({"notice": true, "optional": false, "enabled": false});
            let remains = if is_optional { Value::Null } else { remains };
            assert_eq!(ready(&session), remains);
        }
    }

    #[test]
    fn errors_are_told_without_the_providers_words_and_are_fatal_only_at_the_end() {
        let mut session = session(false);
        let failed = messages_for(
            &mut session,
            Event::Error { stage: Stage::Llm, reason: "key sk-123".into() },
        );
        assert_eq!(
            failed[0]["data"],
            json!({"error": "The language model failed", "fatal": false})
        );
        let ended = messages_for(&mut session, Event::Ended { reason: EndReason::Error });
        assert_eq!(ended[0]["data"]["fatal"], true);
        assert!(
            messages_for(&mut session, Event::Ended { reason: EndReason::UserLeft }).is_empty()
        );
    }

    #[test]
    fn only_what_later_messages_make_up_for_is_progress() {
        let mut session = session(false);
        let utterance = UtteranceId(3);
        let heard = |text: &str| Event::AgentSpeechHeard { text: text.into(), utterance };
        let mut messages: Vec<(String, Priority)> = Vec::new();
        for event in [
            Event::UserTranscript { text: "Hel".into(), is_final: false },
            Event::UserTranscript { text: "Hello".into(), is_final: true },
            Event::LlmText { text: "One two.".into() },
            Event::AgentStartedSpeaking { text: "One two.".into(), utterance },
            heard("One"),
            Event::AgentStoppedSpeaking { text: "One two.".into(), utterance },
            Event::AgentState { state: AgentState::Listening },
        ] {
            session.on_event(&EventEnvelope { seq: 1, at: Time::ZERO, event }, |text| {
                let value: Value = serde_json::from_str(&text.body).unwrap();
                let status = value["data"]["spoken_status"].as_str().unwrap_or_default();
                messages
                    .push((format!("{} {status}", value["type"].as_str().unwrap()), text.priority));
            });
        }
        let progress: Vec<&str> = messages
            .iter()
            .filter(|(_, priority)| *priority == Priority::Progress)
            .map(|(kind, _)| kind.trim_end())
            .collect();
        assert_eq!(
            progress,
            [
                "user-transcription",
                "bot-llm-text",
                "bot-tts-text",
                "bot-output in-progress",
                "bot-tts-text",
                "bot-output in-progress"
            ],
            "{messages:?}"
        );
        assert_eq!(level_message(-20.0).priority, Priority::Progress);
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(iso_timestamp(0, Time::ZERO), "1970-01-01T00:00:00.000+00:00");
        assert_eq!(iso_timestamp(951_782_400_000_000, Time::ZERO), "2000-02-29T00:00:00.000+00:00");
        assert_eq!(
            iso_timestamp(1_735_689_599_999_000, Time::ZERO),
            "2024-12-31T23:59:59.999+00:00"
        );
    }
}
