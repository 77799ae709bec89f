//! A call as plain data: settings, what the user does and when, what providers answer. The scenario
//! file for the state machine is made from it; the oracle reads it directly. Times are whole
//! microseconds and texts are strings: no type of the crate is used here.

use serde_json::{Map, Value, json};

/// Microseconds.
pub(crate) type Micros = i64;

/// One second.
pub(crate) const SECOND: Micros = 1_000_000;

/// A message with the duration of its audio; `delay` is for the greeting and the recording
/// message only.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) audio_duration: Micros,
    pub(crate) delay: Micros,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) min_endpointing_delay: Micros,
    pub(crate) max_endpointing_delay: Micros,
    pub(crate) min_interruption_duration: Micros,
    pub(crate) min_interruption_words: usize,
    pub(crate) false_interruption_timeout: Option<Micros>,
    pub(crate) allow_interruptions: bool,
    pub(crate) backchannels: bool,
    pub(crate) preemptive_generation: bool,
    pub(crate) preemptive_tts: bool,
    pub(crate) echo_warmup: Micros,
    pub(crate) idle_timeout: Option<Micros>,
    pub(crate) max_tool_steps: usize,
    pub(crate) min_consecutive_speech_delay: Micros,
    pub(crate) transcript_timeout: Option<Micros>,
    /// In hundredths.
    pub(crate) turn_threshold: i64,
    pub(crate) max_call_duration: Option<Micros>,
    pub(crate) call_warning_before: Micros,
    pub(crate) idle_end_after: Option<usize>,
    pub(crate) greeting: Option<Message>,
    pub(crate) recording_message: Option<Message>,
    pub(crate) idle_messages: Vec<Message>,
    pub(crate) warning_message: Option<Message>,
    pub(crate) exit_message: Option<Message>,
    pub(crate) error_message: Option<Message>,
}

/// One speech segment of the user, or one noise.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedSpeech {
    pub(crate) from: Micros,
    pub(crate) to: Micros,
    pub(crate) text: Option<String>,
    pub(crate) stt_delay: Micros,
    /// The answer of the turn model, in hundredths.
    pub(crate) end_of_turn: Option<i64>,
}

/// What the STT's provider thinks about the user's turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hint {
    EagerEnd,
    Resumed,
    End,
}

impl Hint {
    pub(crate) const ALL: [(Self, &'static str); 3] =
        [(Self::EagerEnd, "eager_end"), (Self::Resumed, "resumed"), (Self::End, "end")];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(hint, _)| *hint == self).map_or("", |(_, name)| name)
    }
}

/// One segment of a reply.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedSegment {
    pub(crate) text: String,
    pub(crate) audio_duration: Micros,
    pub(crate) word_times: Vec<(String, Micros)>,
    pub(crate) tts_fails: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptedReply {
    pub(crate) in_reply_to: String,
    pub(crate) segments: Vec<ScriptedSegment>,
    /// Tools with their arguments.
    pub(crate) tool_calls: Vec<(String, Value)>,
    pub(crate) llm_ttft: Micros,
    pub(crate) llm_duration: Micros,
    pub(crate) tts_ttfb: Micros,
    pub(crate) llm_fails: bool,
    pub(crate) is_guardrail: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptedTool {
    pub(crate) name: String,
    pub(crate) duration: Micros,
    pub(crate) returns: Result<Value, String>,
    pub(crate) on_start: Option<Message>,
    pub(crate) on_delay: Option<Message>,
    pub(crate) on_success: Option<Message>,
    pub(crate) on_error: Option<Message>,
    pub(crate) delay: Micros,
    pub(crate) ends_call: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ActionKind {
    Interrupt,
    Respond(String),
    Say { text: String, audio_duration: Micros, interrupt: bool, allow_interruptions: bool },
    Context(String),
    End,
    Leave,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptedAction {
    pub(crate) at: Micros,
    pub(crate) kind: ActionKind,
}

/// A whole call.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) settings: Settings,
    /// `start` and `silence` of the VAD.
    pub(crate) vad: (Micros, Micros),
    /// Defaults for replies: time to first token, to the whole text, and to first audio.
    pub(crate) defaults: (Micros, Micros, Micros),
    pub(crate) user: Vec<ScriptedSpeech>,
    pub(crate) hints: Vec<(Micros, Hint)>,
    pub(crate) replies: Vec<ScriptedReply>,
    pub(crate) tools: Vec<ScriptedTool>,
    pub(crate) actions: Vec<ScriptedAction>,
    pub(crate) until: Micros,
}

fn seconds(us: Micros) -> Value {
    json!(us as f64 / 1e6)
}

fn optional_seconds(us: Option<Micros>) -> Value {
    us.map_or(Value::Null, seconds)
}

fn message(message: &Message) -> Value {
    json!({"say": message.text, "audio": seconds(message.audio_duration)})
}

fn optional_message(of: Option<&Message>) -> Value {
    of.map_or(Value::Null, message)
}

impl Settings {
    fn json(&self) -> Value {
        let opening = |message: Option<&Message>| {
            message.map_or(Value::Null, |m| {
                json!({
                    "say": m.text,
                    "audio": seconds(m.audio_duration),
                    "wait": seconds(m.delay),
                })
            })
        };
        json!({
            "min_endpointing_delay": seconds(self.min_endpointing_delay),
            "max_endpointing_delay": seconds(self.max_endpointing_delay),
            "min_interruption_duration": seconds(self.min_interruption_duration),
            "min_interruption_words": self.min_interruption_words,
            "false_interruption_timeout": optional_seconds(self.false_interruption_timeout),
            "allow_interruptions": self.allow_interruptions,
            "backchannels": self.backchannels,
            "preemptive_generation": self.preemptive_generation,
            "preemptive_tts": self.preemptive_tts,
            "echo_warmup": seconds(self.echo_warmup),
            "idle_timeout": optional_seconds(self.idle_timeout),
            "max_tool_steps": self.max_tool_steps,
            "min_consecutive_speech_delay": seconds(self.min_consecutive_speech_delay),
            "transcript_timeout": optional_seconds(self.transcript_timeout),
            "turn_threshold": self.turn_threshold as f64 / 100.0,
            "max_call_duration": optional_seconds(self.max_call_duration),
            "call_warning_before": seconds(self.call_warning_before),
            "idle_end_after": self.idle_end_after,
            "greeting": opening(self.greeting.as_ref()),
            "recording_message": opening(self.recording_message.as_ref()),
            "idle_messages": self.idle_messages.iter().map(message).collect::<Vec<_>>(),
            "warning_message": optional_message(self.warning_message.as_ref()),
            "exit_message": optional_message(self.exit_message.as_ref()),
            "error_message": optional_message(self.error_message.as_ref()),
        })
    }
}

impl ScriptedSpeech {
    fn json(&self) -> Value {
        let mut item = json!({"from": seconds(self.from), "to": seconds(self.to)});
        if let Some(text) = &self.text {
            item["text"] = json!(text);
            item["stt_delay"] = seconds(self.stt_delay);
        }
        if let Some(over) = self.end_of_turn {
            item["end_of_turn"] = json!(over as f64 / 100.0);
        }
        item
    }
}

impl ScriptedSegment {
    fn json(&self) -> Value {
        let mut part = json!({"say": self.text, "audio": seconds(self.audio_duration)});
        if !self.word_times.is_empty() {
            part["words"] =
                self.word_times.iter().map(|(word, end)| json!([word, seconds(*end)])).collect();
        }
        if self.tts_fails {
            part["fail"] = json!("tts");
        }
        part
    }
}

impl ScriptedReply {
    fn json(&self) -> Value {
        let mut answer = json!({
            "to": self.in_reply_to, "llm_ttft": seconds(self.llm_ttft),
            "llm_duration": seconds(self.llm_duration), "tts_ttfb": seconds(self.tts_ttfb),
        });
        if !self.segments.is_empty() {
            answer["parts"] = self.segments.iter().map(ScriptedSegment::json).collect();
        }
        if !self.tool_calls.is_empty() {
            answer["calls"] = self
                .tool_calls
                .iter()
                .map(|(name, arguments)| json!({"tool": name, "arguments": arguments}))
                .collect();
        }
        if self.llm_fails {
            answer["fail"] = json!("llm");
        }
        if self.is_guardrail {
            answer["guardrail"] = json!(true);
        }
        answer
    }
}

impl ScriptedTool {
    fn json(&self) -> Value {
        let mut tool = json!({"takes": seconds(self.duration), "delay": seconds(self.delay)});
        match &self.returns {
            Ok(value) => tool["returns"] = value.clone(),
            Err(reason) => tool["fail"] = json!(reason),
        }
        if self.ends_call {
            tool["ends_call"] = true.into();
        }
        let messages = [
            ("on_start", &self.on_start),
            ("on_delay", &self.on_delay),
            ("on_success", &self.on_success),
            ("on_error", &self.on_error),
        ];
        for (key, words) in messages {
            if let Some(words) = words {
                tool[key] = message(words);
            }
        }
        tool
    }
}

impl ScriptedAction {
    fn json(&self) -> Value {
        let at = seconds(self.at);
        match &self.kind {
            ActionKind::Interrupt => json!({"at": at, "do": "interrupt"}),
            ActionKind::Respond(text) => json!({"at": at, "do": "respond", "text": text}),
            ActionKind::Say {
                text,
                audio_duration: audio,
                interrupt,
                allow_interruptions: allow,
            } => json!({
                "at": at, "do": "say", "text": text, "audio": seconds(*audio),
                "interrupt": interrupt, "allow_interruptions": allow,
            }),
            ActionKind::Context(text) => json!({"at": at, "do": "context", "text": text}),
            ActionKind::End => json!({"at": at, "do": "end"}),
            ActionKind::Leave => json!({"at": at, "do": "leave"}),
        }
    }
}

impl Case {
    /// The scenario file of this call.
    pub(crate) fn json(&self) -> String {
        let (ttft, llm, ttfb) = self.defaults;
        let tools: Map<String, Value> =
            self.tools.iter().map(|tool| (tool.name.clone(), tool.json())).collect();
        json!({
            "settings": self.settings.json(),
            "vad": {"start": seconds(self.vad.0), "silence": seconds(self.vad.1)},
            "defaults": {
                "llm_ttft": seconds(ttft),
                "llm_duration": seconds(llm),
                "tts_ttfb": seconds(ttfb),
            },
            "user": self.user.iter().map(ScriptedSpeech::json).collect::<Vec<_>>(),
            "hints": self.hints.iter()
                .map(|(at, hint)| json!({"at": seconds(*at), "hint": hint.name()}))
                .collect::<Vec<_>>(),
            "replies": self.replies.iter().map(ScriptedReply::json).collect::<Vec<_>>(),
            "tools": tools,
            "actions": self.actions.iter().map(ScriptedAction::json).collect::<Vec<_>>(),
            "until": seconds(self.until),
        })
        .to_string()
    }
}
