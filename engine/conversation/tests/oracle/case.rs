//! A call as plain data: settings, what the user does and when, what providers answer. The scenario file is made from it for the
//! machine; the oracle reads it as it is. Times are whole microseconds, texts are texts: nothing here is a type of the crate.

use serde_json::{Map, Value, json};

/// Microseconds.
pub(crate) type Us = i64;

/// A second.
pub(crate) const S: Us = 1_000_000;

/// Words with the length of their sound; `wait` is the greeting's.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) say: String,
    pub(crate) audio: Us,
    pub(crate) wait: Us,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) min_delay: Us,
    pub(crate) max_delay: Us,
    pub(crate) min_duration: Us,
    pub(crate) min_words: usize,
    pub(crate) false_timeout: Option<Us>,
    pub(crate) allow: bool,
    pub(crate) backchannels: bool,
    pub(crate) preemptive: bool,
    pub(crate) preemptive_tts: bool,
    pub(crate) warmup: Us,
    pub(crate) idle: Option<Us>,
    pub(crate) tool_steps: usize,
    pub(crate) spacing: Us,
    pub(crate) transcript_timeout: Option<Us>,
    /// In hundredths.
    pub(crate) threshold: i64,
    pub(crate) limit: Option<Us>,
    pub(crate) warning_before: Us,
    pub(crate) idle_end: Option<usize>,
    pub(crate) greeting: Option<Message>,
    pub(crate) idle_messages: Vec<Message>,
    pub(crate) warning: Option<Message>,
    pub(crate) exit: Option<Message>,
    pub(crate) error: Option<Message>,
}

/// One stretch of the user's voice, or one noise.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) from: Us,
    pub(crate) to: Us,
    pub(crate) text: Option<String>,
    pub(crate) stt: Us,
    /// What the turn model says, in hundredths.
    pub(crate) over: Option<i64>,
}

/// One piece of a reply.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) say: String,
    pub(crate) audio: Us,
    pub(crate) words: Vec<(String, Us)>,
    pub(crate) fails: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) to: String,
    pub(crate) parts: Vec<Part>,
    /// Tools, and with what.
    pub(crate) calls: Vec<(String, Value)>,
    pub(crate) ttft: Us,
    pub(crate) llm: Us,
    pub(crate) ttfb: Us,
    pub(crate) fails: bool,
    pub(crate) guardrail: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) takes: Us,
    pub(crate) returns: Result<Value, String>,
    pub(crate) on_start: Option<Message>,
    pub(crate) on_delay: Option<Message>,
    pub(crate) on_success: Option<Message>,
    pub(crate) on_error: Option<Message>,
    pub(crate) delay: Us,
}

#[derive(Clone, Debug)]
pub(crate) enum Do {
    Interrupt,
    Respond(String),
    Say { text: String, audio: Us, interrupt: bool, allow: bool },
    Context(String),
    End,
    Leave,
}

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) at: Us,
    pub(crate) what: Do,
}

/// A whole call.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) settings: Settings,
    /// Start and silence of the detector.
    pub(crate) vad: (Us, Us),
    /// First token, whole text, first audio, where a reply does not say.
    pub(crate) defaults: (Us, Us, Us),
    pub(crate) user: Vec<Said>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) actions: Vec<Action>,
    pub(crate) until: Us,
}

fn seconds(us: Us) -> Value {
    json!(us as f64 / 1e6)
}

fn optional(us: Option<Us>) -> Value {
    us.map_or(Value::Null, seconds)
}

fn message(message: &Message) -> Value {
    json!({"say": message.say, "audio": seconds(message.audio)})
}

fn maybe(of: Option<&Message>) -> Value {
    of.map_or(Value::Null, message)
}

impl Settings {
    fn json(&self) -> Value {
        let greeting = self.greeting.as_ref().map_or(
            Value::Null,
            |m| json!({"say": m.say, "audio": seconds(m.audio), "wait": seconds(m.wait)}),
        );
        json!({
            "min_endpointing_delay": seconds(self.min_delay),
            "max_endpointing_delay": seconds(self.max_delay),
            "min_interruption_duration": seconds(self.min_duration),
            "min_interruption_words": self.min_words,
            "false_interruption_timeout": optional(self.false_timeout),
            "allow_interruptions": self.allow,
            "backchannels": self.backchannels,
            "preemptive_generation": self.preemptive,
            "preemptive_tts": self.preemptive_tts,
            "echo_warmup": seconds(self.warmup),
            "idle_timeout": optional(self.idle),
            "max_tool_steps": self.tool_steps,
            "min_consecutive_speech_delay": seconds(self.spacing),
            "transcript_timeout": optional(self.transcript_timeout),
            "turn_threshold": self.threshold as f64 / 100.0,
            "max_call_duration": optional(self.limit),
            "call_warning_before": seconds(self.warning_before),
            "idle_end_after": self.idle_end,
            "greeting": greeting,
            "idle_messages": self.idle_messages.iter().map(message).collect::<Vec<_>>(),
            "warning_message": maybe(self.warning.as_ref()),
            "exit_message": maybe(self.exit.as_ref()),
            "error_message": maybe(self.error.as_ref()),
        })
    }
}

impl Said {
    fn json(&self) -> Value {
        let mut item = json!({"from": seconds(self.from), "to": seconds(self.to)});
        if let Some(text) = &self.text {
            item["text"] = json!(text);
            item["stt_delay"] = seconds(self.stt);
        }
        if let Some(over) = self.over {
            item["end_of_turn"] = json!(over as f64 / 100.0);
        }
        item
    }
}

impl Part {
    fn json(&self) -> Value {
        let mut part = json!({"say": self.say, "audio": seconds(self.audio)});
        if !self.words.is_empty() {
            part["words"] = self.words.iter().map(|(word, end)| json!([word, seconds(*end)])).collect();
        }
        if self.fails {
            part["fail"] = json!("tts");
        }
        part
    }
}

impl Answer {
    fn json(&self) -> Value {
        let mut answer = json!({
            "to": self.to, "llm_ttft": seconds(self.ttft), "llm_duration": seconds(self.llm), "tts_ttfb": seconds(self.ttfb),
        });
        if !self.parts.is_empty() {
            answer["parts"] = self.parts.iter().map(Part::json).collect();
        }
        if !self.calls.is_empty() {
            answer["calls"] = self
                .calls
                .iter()
                .map(|(name, arguments)| json!({"tool": name, "arguments": arguments}))
                .collect();
        }
        if self.fails {
            answer["fail"] = json!("llm");
        }
        if self.guardrail {
            answer["guardrail"] = json!(true);
        }
        answer
    }
}

impl Tool {
    fn json(&self) -> Value {
        let mut tool = json!({"takes": seconds(self.takes), "delay": seconds(self.delay)});
        match &self.returns {
            Ok(value) => tool["returns"] = value.clone(),
            Err(reason) => tool["fail"] = json!(reason),
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

impl Action {
    fn json(&self) -> Value {
        let at = seconds(self.at);
        match &self.what {
            Do::Interrupt => json!({"at": at, "do": "interrupt"}),
            Do::Respond(text) => json!({"at": at, "do": "respond", "text": text}),
            Do::Say { text, audio, interrupt, allow } => json!({
                "at": at, "do": "say", "text": text, "audio": seconds(*audio), "interrupt": interrupt, "allow_interruptions": allow,
            }),
            Do::Context(text) => json!({"at": at, "do": "context", "text": text}),
            Do::End => json!({"at": at, "do": "end"}),
            Do::Leave => json!({"at": at, "do": "leave"}),
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
            "defaults": {"llm_ttft": seconds(ttft), "llm_duration": seconds(llm), "tts_ttfb": seconds(ttfb)},
            "user": self.user.iter().map(Said::json).collect::<Vec<_>>(),
            "replies": self.answers.iter().map(Answer::json).collect::<Vec<_>>(),
            "tools": tools,
            "actions": self.actions.iter().map(Action::json).collect::<Vec<_>>(),
            "until": seconds(self.until),
        })
        .to_string()
    }
}
