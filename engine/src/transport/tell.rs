//! What a client is told: the facts of a conversation as RTVI messages. Pure; described in `docs/client-messages.md`.

use std::collections::{HashSet, VecDeque};

use conversation::call_config::ConversationId;
use conversation::event::{AgentState, EndReason, Event, EventEnvelope, Stage, TurnTimes, UtteranceId};
use conversation::time::Time;
use serde_json::{Value, json};

use super::Text;
use super::rtvi::error;

/// The protocol's version that we speak.
const VERSION: &str = "2.2.0";

/// Bytes of a tool's arguments or result, as JSON, that a client is told.
const SHOWN: usize = 16 * 1024;

/// What a session must know of its call.
#[derive(Clone, Debug)]
pub struct About {
    /// The conversation.
    pub conversation: ConversationId,
    /// Told as the speaker of the user's words.
    pub user_id: String,
    /// Whether the client sees arguments and results of all tools, not only of its own.
    pub expose_tools: bool,
    /// Tools that run in the client.
    pub client_tools: HashSet<String>,
}

/// One call's side of the data channel. It outlives connections: a client that comes back goes on where the call was.
pub struct Session {
    about: About,
    /// Wall clock of the beginning, µs since the Unix epoch.
    began: u64,
    state: AgentState,
    synthesizing: bool,
    thinking: bool,
    /// The words of the LLM's step, as far as they are known.
    step: String,
    sounding: Option<Sounding>,
    /// Tools that run: id and name.
    tools: VecDeque<(String, String)>,
}

/// The utterance that sounds.
struct Sounding {
    utterance: UtteranceId,
    said: String,
    heard: String,
}

fn message(kind: &str, data: Option<Value>) -> Text {
    let mut message = json!({"label": "rtvi-ai", "type": kind});
    if let (Some(data), Some(object)) = (data, message.as_object_mut()) {
        object.insert("data".to_owned(), data);
    }
    message.to_string().into()
}

fn own(data: Value) -> Text {
    message("server-message", Some(data))
}

/// How loudly the server hears the user, from the level in dB of full scale. Told about ten times a second.
#[must_use]
pub fn level(dbfs: f32) -> Text {
    let linear = (f64::from(dbfs) + 60.0).clamp(0.0, 60.0) / 60.0;
    own(json!({"level": (linear * 1000.0).round() / 1000.0, "dbfs": (f64::from(dbfs) * 10.0).round() / 10.0}))
        .progress()
}

/// A tool's value as the client sees it: whole, or the beginning of its JSON text. A long one would fill the channel that captions wait for.
fn shown(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() <= SHOWN {
        return value.clone();
    }
    format!("{}… ({} bytes)", &text[..text.floor_char_boundary(SHOWN)], text.len()).into()
}

impl Session {
    /// At the beginning of a call.
    #[must_use]
    pub fn new(about: About) -> Self {
        Self {
            about,
            began: 0,
            state: AgentState::Listening,
            synthesizing: false,
            thinking: false,
            step: String::new(),
            sounding: None,
            tools: VecDeque::new(),
        }
    }

    /// The answer to `client-ready`. The public client waits for it for ever. `video`: whether a face is shown.
    #[must_use]
    pub fn ready(&self, id: &str, video: bool) -> String {
        json!({
            "label": "rtvi-ai",
            "type": "bot-ready",
            "id": id,
            "data": {
                "version": VERSION,
                "about": {"library": "visavis", "library_version": env!("CARGO_PKG_VERSION")},
                "capabilities": {
                    "audio_in": true, "audio_out": true, "video_in": false, "screen_in": false, "video_out": video, "metrics": true,
                },
                "conversation_id": self.about.conversation,
            },
        })
        .to_string()
    }

    /// What the agent does, for a client whose channel has just opened: it may have come in mid-call.
    #[must_use]
    pub fn state(&self) -> Text {
        own(json!({"state": self.state}))
    }

    /// Whether a tool with this id was started in the client and waits for its result.
    #[must_use]
    pub fn awaits(&self, call: &str) -> bool {
        self.tools.iter().any(|(id, name)| id == call && self.about.client_tools.contains(name))
    }

    /// Calls `send` for each message that a fact gives rise to.
    pub fn tell(&mut self, fact: &EventEnvelope, mut send: impl FnMut(Text)) {
        match &fact.event {
            Event::Joined { unix_micros } => self.began = *unix_micros,
            Event::UserStartedSpeaking => send(message("user-started-speaking", None)),
            Event::UserStoppedSpeaking => send(message("user-stopped-speaking", None)),
            Event::UserTranscript { text, is_final } => {
                let data = json!({
                    "text": text,
                    "user_id": self.about.user_id,
                    "timestamp": timestamp(self.began, fact.at),
                    "final": is_final,
                });
                let told = message("user-transcription", Some(data));
                send(if *is_final { told } else { told.progress() });
            }
            Event::UtteranceCommitted { text } => send(message("user-llm-text", Some(json!({"text": text})))),
            Event::AgentState { state } => {
                self.state = *state;
                send(self.state());
            }
            Event::LlmStarted => {
                self.step.clear();
                self.thinking = true;
                send(message("bot-llm-started", None));
            }
            Event::LlmText { text } => {
                self.step.push_str(text);
                send(message("bot-llm-text", Some(json!({"text": text}))).progress());
            }
            Event::LlmStopped { .. } | Event::LlmCancelled => {
                let thinking = std::mem::take(&mut self.thinking);
                if thinking {
                    send(message("bot-llm-stopped", None));
                }
            }
            Event::TtsStarted { text } => {
                if !text.is_empty() {
                    send(message("bot-transcription", Some(json!({"text": text}))));
                }
                if !std::mem::replace(&mut self.synthesizing, true) {
                    send(message("bot-tts-started", None));
                }
            }
            Event::AgentStartedSpeaking { text, utterance } => {
                self.sounding =
                    Some(Sounding { utterance: *utterance, said: text.clone(), heard: String::new() });
                send(message("bot-started-speaking", None));
                self.output("new", &mut send);
            }
            Event::AgentSpeechHeard { utterance, text } => self.heard(*utterance, text, &mut send),
            Event::AgentStoppedSpeaking { text, utterance } => {
                self.heard(*utterance, text, &mut send);
                if self.sounding.as_ref().is_some_and(|s| same_words(&s.said, &s.heard)) {
                    self.output("completed", &mut send);
                }
                self.sounding = None;
                if std::mem::take(&mut self.synthesizing) {
                    send(message("bot-tts-stopped", None));
                }
                send(message("bot-stopped-speaking", None));
            }
            Event::ToolStarted { call_id, tool_name, parameters } => {
                let told = self.about.expose_tools || self.about.client_tools.contains(tool_name);
                // A tool of the client's own needs all of them.
                let own = self.about.client_tools.contains(tool_name);
                let arguments = match told {
                    true if own => parameters.clone(),
                    true => shown(parameters),
                    false => json!({}),
                };
                self.tools.push_back((call_id.clone(), tool_name.clone()));
                send(message("llm-function-call-started", Some(json!({"function_name": tool_name}))));
                send(message(
                    "llm-function-call-in-progress",
                    Some(
                        json!({"tool_call_id": call_id, "function_name": tool_name, "arguments": arguments}),
                    ),
                ));
            }
            Event::ToolCall { tool_name, result, .. } => {
                let place = self.tools.iter().position(|(_, name)| name == tool_name);
                let id = place.and_then(|place| self.tools.remove(place)).map(|(id, _)| id);
                let told = self.about.expose_tools || self.about.client_tools.contains(tool_name);
                let mut data = json!({"tool_call_id": id, "cancelled": false, "function_name": tool_name});
                if told {
                    data["result"] = shown(result);
                }
                send(message("llm-function-call-stopped", Some(data)));
            }
            Event::Turn(times) => send(message("metrics", Some(metrics(times)))),
            // The provider's own words are for the operator.
            Event::Error { stage, .. } => send(Text::from(error(
                match stage {
                    Stage::Llm => "The language model failed",
                    Stage::Tts => "The voice failed",
                    Stage::Stt => "Speech recognition failed",
                    Stage::Tool => "A tool failed",
                },
                false,
            ))),
            Event::Warning { text } => send(own(json!({"warning": text}))),
            Event::Ended { reason: EndReason::Error } => {
                send(error("The call was ended by an error", true).into());
            }
            _ => {}
        }
        if let Some(body) = self.webhook(fact) {
            // The body is JSON already.
            let text = format!(r#"{{"label":"rtvi-ai","type":"server-message","data":{{"event":{body}}}}}"#);
            send(text.into());
        }
    }

    fn webhook(&self, fact: &EventEnvelope) -> Option<String> {
        let Event::ToolCall { tool_name, parameters, result } = &fact.event else {
            return fact.webhook_body(self.about.conversation, self.began);
        };
        let told = self.about.expose_tools;
        let event = Event::ToolCall {
            tool_name: tool_name.clone(),
            parameters: if told { shown(parameters) } else { Value::Null },
            result: if told { shown(result) } else { Value::Null },
        };
        let fact = EventEnvelope { event, ..fact.clone() };
        let body = fact.webhook_body(self.about.conversation, self.began)?;
        if told {
            return Some(body);
        }
        let mut body: Value = serde_json::from_str(&body).ok()?;
        let payload = body.pointer_mut("/event/payload")?.as_object_mut()?;
        payload.retain(|name, _| name == "tool_name");
        Some(body.to_string())
    }

    /// More of the utterance was heard.
    fn heard(&mut self, utterance: UtteranceId, text: &str, send: &mut impl FnMut(Text)) {
        let Some(sounding) = self.sounding.as_mut().filter(|s| s.utterance == utterance) else { return };
        // The step's text may have grown since the utterance began to sound.
        if self.step.trim_start().starts_with(sounding.said.trim()) && self.step.len() > sounding.said.len() {
            sounding.said = self.step.trim().to_owned();
        }
        if !sounding.said.starts_with(text) {
            sounding.said = text.to_owned();
        }
        let new = text.strip_prefix(sounding.heard.as_str()).unwrap_or(text).to_owned();
        sounding.heard = text.to_owned();
        if !new.trim().is_empty() {
            send(message("bot-tts-text", Some(json!({"text": new}))).progress());
            self.output("in-progress", send);
        }
    }

    fn output(&self, status: &str, send: &mut impl FnMut(Text)) {
        let Some(sounding) = &self.sounding else { return };
        let rest = sounding.said.strip_prefix(sounding.heard.as_str()).unwrap_or("");
        let told = message(
            "bot-output",
            Some(json!({
                "text": sounding.said,
                "output_type": "sentence",
                "aggregated_by": "sentence",
                "segment_id": sounding.utterance,
                "spoken": status == "completed",
                "will_be_spoken": true,
                "spoken_status": status,
                "spoken_progress": {"accumulated_text": sounding.heard, "remaining_text": rest},
            })),
        );
        send(if status == "in-progress" { told.progress() } else { told });
    }
}

fn same_words(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

fn metrics(times: &TurnTimes) -> Value {
    let entry = |processor: &str, value: Option<f64>| {
        value.map(|value| json!({"processor": processor, "value": value}))
    };
    let list = |entries: [Option<Value>; 2]| entries.into_iter().flatten().collect::<Vec<_>>();
    json!({
        "ttfb": list([entry("llm", times.llm_ttft), entry("tts", times.tts_ttfb)]),
        "processing": list([entry("endpointing", times.endpointing), entry("voice_to_voice", times.voice_to_voice)]),
    })
}

/// ISO 8601 in UTC with milliseconds.
fn timestamp(began: u64, at: Time) -> String {
    let millis = (began + at.as_micros()) / 1000;
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
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}+00:00", rest % 1000)
}

#[cfg(test)]
mod tests {
    use super::super::Weight;
    use super::*;

    const BEGAN: u64 = 1_795_266_606_000_000;

    fn session(expose_tools: bool) -> Session {
        let client_tools = HashSet::from(["page_title".to_owned()]);
        let about =
            About { conversation: ConversationId(7), user_id: "u".into(), expose_tools, client_tools };
        let mut session = Session::new(about);
        told(&mut session, Event::Joined { unix_micros: BEGAN });
        session
    }

    fn told(session: &mut Session, event: Event) -> Vec<Value> {
        let mut out = Vec::new();
        session.tell(&EventEnvelope { seq: 1, at: Time::from_seconds(1.5), event }, |text| {
            out.push(serde_json::from_str(&text.body).unwrap())
        });
        out
    }

    fn kinds(messages: &[Value]) -> Vec<&str> {
        messages.iter().map(|m| m["type"].as_str().unwrap()).collect()
    }

    #[test]
    fn every_event_of_the_interface_comes_as_its_webhook_body_too() {
        let mut session = session(false);
        let told = told(&mut session, Event::UserStartedSpeaking);
        assert_eq!(told[0], json!({"label": "rtvi-ai", "type": "user-started-speaking"}));
        assert_eq!(
            told[1],
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
        let told = told(&mut session(false), Event::UserTranscript { text: "Good".into(), is_final: false });
        let data = json!({"text": "Good", "user_id": "u", "timestamp": "2026-11-21T13:10:07.500+00:00", "final": false});
        assert_eq!(told, [json!({"label": "rtvi-ai", "type": "user-transcription", "data": data})]);
    }

    #[test]
    fn captions_follow_what_is_heard_and_complete_only_when_all_was() {
        let mut session = session(false);
        let utterance = UtteranceId(3);
        told(&mut session, Event::LlmStarted);
        told(&mut session, Event::LlmText { text: "One two. ".into() });
        let start = told(&mut session, Event::AgentStartedSpeaking { text: "One two.".into(), utterance });
        assert_eq!(kinds(&start), ["bot-started-speaking", "bot-output", "server-message"]);
        assert_eq!(
            start[1]["data"]["spoken_progress"],
            json!({"accumulated_text": "", "remaining_text": "One two."})
        );
        told(&mut session, Event::LlmText { text: "Three.".into() });
        let heard = told(&mut session, Event::AgentSpeechHeard { utterance, text: "One".into() });
        assert_eq!(kinds(&heard), ["bot-tts-text", "bot-output"]);
        assert_eq!(heard[1]["data"]["text"], "One two. Three.");
        assert_eq!(heard[1]["data"]["spoken_status"], "in-progress");
        assert_eq!(heard[1]["data"]["spoken_progress"]["remaining_text"], " two. Three.");
        let stop =
            told(&mut session, Event::AgentStoppedSpeaking { text: "One two. Three.".into(), utterance });
        assert_eq!(
            kinds(&stop),
            ["bot-tts-text", "bot-output", "bot-output", "bot-stopped-speaking", "server-message"]
        );
        assert_eq!(stop[0]["data"]["text"], " two. Three.");
        assert_eq!(stop[2]["data"]["spoken_status"], "completed");

        let utterance = UtteranceId(4);
        told(&mut session, Event::TtsStarted { text: "Four five.".into() });
        told(&mut session, Event::AgentStartedSpeaking { text: "Four five.".into(), utterance });
        let cut = told(&mut session, Event::AgentStoppedSpeaking { text: "Four".into(), utterance });
        assert_eq!(
            kinds(&cut),
            ["bot-tts-text", "bot-output", "bot-tts-stopped", "bot-stopped-speaking", "server-message"]
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
            };
            let start = told(&mut session, started("weather"));
            assert_eq!(
                start[1]["data"]["arguments"],
                if expose { json!({"city": "Paris"}) } else { json!({}) }
            );
            assert!(!session.awaits("call_1"));
            let long = Event::ToolCall {
                tool_name: "weather".into(),
                parameters: json!({}),
                result: json!({"result": "ü".repeat(100_000)}),
            };
            let most: usize = told(&mut session, long).iter().map(|m| m.to_string().len()).sum();
            assert!(most < 3 * SHOWN, "{most} bytes of a long result");
            told(&mut session, started("weather"));
            let stop = told(&mut session, called("weather"));
            assert_eq!(stop[0]["data"]["tool_call_id"], "call_1");
            let text = Value::from(stop).to_string();
            assert_eq!((text.contains("secret"), text.contains("Paris")), (expose, expose));
            assert!(text.contains(r#""tool_name":"weather""#));
            // A tool of the client itself needs its arguments.
            let start = told(&mut session, started("page_title"));
            assert_eq!(start[1]["data"]["arguments"], json!({"city": "Paris"}));
            assert!(session.awaits("call_1"));
            told(&mut session, called("page_title"));
            assert!(!session.awaits("call_1"));
        }
    }

    #[test]
    fn our_own_messages_tell_state_and_level() {
        let mut session = session(false);
        let told = told(&mut session, Event::AgentState { state: AgentState::Thinking });
        assert_eq!(
            told,
            [json!({"label": "rtvi-ai", "type": "server-message", "data": {"state": "thinking"}})]
        );
        assert_eq!(serde_json::from_str::<Value>(&session.state().body).unwrap(), told[0]);
        let level: Value = serde_json::from_str(&level(-30.04).body).unwrap();
        assert_eq!(level["data"], json!({"level": 0.499, "dbfs": -30.0}));
        let ready: Value = serde_json::from_str(&session.ready("58307d34", true)).unwrap();
        assert_eq!((&ready["type"], &ready["id"]), (&json!("bot-ready"), &json!("58307d34")));
        assert_eq!(ready["data"]["version"], "2.2.0");
    }

    #[test]
    fn errors_are_told_without_the_providers_words_and_are_fatal_only_at_the_end() {
        let mut session = session(false);
        let failed = told(&mut session, Event::Error { stage: Stage::Llm, reason: "key sk-123".into() });
        assert_eq!(failed[0]["data"], json!({"error": "The language model failed", "fatal": false}));
        let ended = told(&mut session, Event::Ended { reason: EndReason::Error });
        assert_eq!(ended[0]["data"]["fatal"], true);
        assert!(told(&mut session, Event::Ended { reason: EndReason::UserLeft }).is_empty());
    }

    #[test]
    fn only_what_later_messages_make_up_for_is_progress() {
        let mut session = session(false);
        let utterance = UtteranceId(3);
        let said = |text: &str| Event::AgentSpeechHeard { text: text.into(), utterance };
        let mut told: Vec<(String, Weight)> = Vec::new();
        for event in [
            Event::UserTranscript { text: "Hel".into(), is_final: false },
            Event::UserTranscript { text: "Hello".into(), is_final: true },
            Event::LlmText { text: "One two.".into() },
            Event::AgentStartedSpeaking { text: "One two.".into(), utterance },
            said("One"),
            Event::AgentStoppedSpeaking { text: "One two.".into(), utterance },
            Event::AgentState { state: AgentState::Listening },
        ] {
            session.tell(&EventEnvelope { seq: 1, at: Time::ZERO, event }, |text| {
                let value: Value = serde_json::from_str(&text.body).unwrap();
                let status = value["data"]["spoken_status"].as_str().unwrap_or_default();
                told.push((format!("{} {status}", value["type"].as_str().unwrap()), text.weight));
            });
        }
        let progress: Vec<&str> = told
            .iter()
            .filter(|(_, weight)| *weight == Weight::Progress)
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
            "{told:?}"
        );
        assert_eq!(level(-20.0).weight, Weight::Progress);
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(timestamp(0, Time::ZERO), "1970-01-01T00:00:00.000+00:00");
        assert_eq!(timestamp(951_782_400_000_000, Time::ZERO), "2000-02-29T00:00:00.000+00:00");
        assert_eq!(timestamp(1_735_689_599_999_000, Time::ZERO), "2024-12-31T23:59:59.999+00:00");
    }
}
