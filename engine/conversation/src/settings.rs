//! From what people write (an agent's configuration, a scenario file) to a valid [`Spec`].
//!
//! One struct with the names of the scenario format, and two sets of defaults: [`Settings::product`] and [`Settings::scenario`].

use core::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::{Greeting, Phrasing, Spec, ToolSpec, Vad};
use crate::stop;

/// The longest time that a setting may name, in seconds.
pub const LONGEST: f64 = 1e7;

/// The product's words for a stage that failed.
pub const ERROR_MESSAGE: &str = "I'm sorry, something went wrong. Please say that again.";

/// A setting is out of range or of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadSetting {
    /// Which one, by its name in the scenario format.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl BadSetting {
    /// A setting at fault.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// Words to be spoken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The words.
    pub say: String,
    /// Seconds that they last; only of scripted voices.
    #[serde(default)]
    pub audio: f64,
    /// Seconds before them; only of the greeting.
    #[serde(default)]
    pub wait: f64,
}

impl Message {
    /// Words that a real voice will speak.
    pub fn new(say: impl Into<String>) -> Self {
        Self { say: say.into(), ..Self::default() }
    }
}

/// How a conversation behaves, in seconds and counts. Names are those of the scenario format; the default is the product's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the fields of `Spec`, one to one
pub struct Settings {
    pub min_endpointing_delay: f64,
    pub max_endpointing_delay: f64,
    pub min_interruption_duration: f64,
    pub min_interruption_words: usize,
    pub false_interruption_timeout: Option<f64>,
    pub allow_interruptions: bool,
    pub backchannels: bool,
    pub stop_words: bool,
    pub preemptive_generation: bool,
    pub preemptive_tts: bool,
    pub echo_warmup: f64,
    pub idle_timeout: Option<f64>,
    pub max_tool_steps: u32,
    pub min_consecutive_speech_delay: f64,
    pub transcript_timeout: Option<f64>,
    pub turn_threshold: f64,
    pub max_call_duration: Option<f64>,
    pub call_warning_before: f64,
    pub idle_end_after: Option<u32>,
    pub greeting: Option<Message>,
    pub idle_messages: Vec<Message>,
    pub warning_message: Option<Message>,
    pub exit_message: Option<Message>,
    pub error_message: Option<Message>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::product()
    }
}

/// The keys that `config.turn` of an agent may set.
pub const TURN_KEYS: [&str; 15] = [
    "min_endpointing_delay",
    "max_endpointing_delay",
    "min_interruption_duration",
    "min_interruption_words",
    "false_interruption_timeout",
    "allow_interruptions",
    "backchannels",
    "stop_words",
    "preemptive_generation",
    "preemptive_tts",
    "echo_warmup",
    "max_tool_steps",
    "min_consecutive_speech_delay",
    "transcript_timeout",
    "turn_threshold",
];

impl Settings {
    /// What an agent gets that says nothing: `balanced`, `medium`.
    #[must_use]
    pub fn product() -> Self {
        Self {
            min_endpointing_delay: 0.4,
            max_endpointing_delay: 3.0,
            min_interruption_duration: 0.5,
            min_interruption_words: 0,
            false_interruption_timeout: Some(2.0),
            allow_interruptions: true,
            backchannels: true,
            stop_words: true,
            preemptive_generation: true,
            preemptive_tts: false,
            echo_warmup: 3.0,
            idle_timeout: Some(30.0),
            max_tool_steps: 3,
            min_consecutive_speech_delay: 0.0,
            transcript_timeout: Some(2.0),
            turn_threshold: 0.36,
            max_call_duration: Some(300.0),
            call_warning_before: 10.0,
            idle_end_after: Some(3),
            greeting: None,
            idle_messages: Vec::new(),
            warning_message: None,
            exit_message: None,
            error_message: Some(Message::new(ERROR_MESSAGE)),
        }
    }

    /// What a scenario gets that says nothing.
    #[must_use]
    pub fn scenario() -> Self {
        Self {
            min_endpointing_delay: 0.5,
            max_endpointing_delay: 6.0,
            backchannels: false,
            stop_words: false,
            echo_warmup: 0.0,
            idle_timeout: None,
            transcript_timeout: None,
            turn_threshold: 0.5,
            max_call_duration: None,
            idle_end_after: None,
            error_message: None,
            ..Self::product()
        }
    }

    /// The presets of `turn_handling` × `interruptability`, over what is there. An absent word is the default.
    ///
    /// # Errors
    /// A word that is none of the six.
    pub fn preset(
        &mut self,
        turn_handling: Option<&str>,
        interruptability: Option<&str>,
    ) -> Result<(), BadSetting> {
        (self.min_endpointing_delay, self.max_endpointing_delay, self.preemptive_generation) =
            match turn_handling.unwrap_or("balanced") {
                "proactive" => (0.3, 2.0, true),
                "balanced" => (0.4, 3.0, true),
                "deliberate" => (0.8, 5.0, false),
                _ => {
                    return Err(BadSetting::new(
                        "turn_handling",
                        "must be proactive, balanced or deliberate",
                    ));
                }
            };
        (self.min_interruption_duration, self.min_interruption_words, self.backchannels) =
            match interruptability.unwrap_or("medium") {
                "high" => (0.25, 0, false),
                "medium" => (0.5, 0, true),
                "low" => (0.8, 2, true),
                _ => return Err(BadSetting::new("interruptability", "must be low, medium or high")),
            };
        Ok(())
    }

    /// Sets one of [`TURN_KEYS`], or any other setting that is a number, a flag or null.
    ///
    /// Returns whether there is such a setting.
    ///
    /// # Errors
    /// A value of the wrong type or out of range.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<bool, BadSetting> {
        match key {
            "min_endpointing_delay" => self.min_endpointing_delay = seconds(key, value)?,
            "max_endpointing_delay" => self.max_endpointing_delay = seconds(key, value)?,
            "min_interruption_duration" => self.min_interruption_duration = seconds(key, value)?,
            "min_interruption_words" => self.min_interruption_words = count(key, value)? as usize,
            "false_interruption_timeout" => self.false_interruption_timeout = optional_seconds(key, value)?,
            "allow_interruptions" => self.allow_interruptions = flag(key, value)?,
            "backchannels" => self.backchannels = flag(key, value)?,
            "stop_words" => self.stop_words = flag(key, value)?,
            "preemptive_generation" => self.preemptive_generation = flag(key, value)?,
            "preemptive_tts" => self.preemptive_tts = flag(key, value)?,
            "echo_warmup" => self.echo_warmup = seconds(key, value)?,
            "idle_timeout" => self.idle_timeout = optional_seconds(key, value)?,
            "max_tool_steps" => self.max_tool_steps = count(key, value)?,
            "min_consecutive_speech_delay" => self.min_consecutive_speech_delay = seconds(key, value)?,
            "transcript_timeout" => self.transcript_timeout = optional_seconds(key, value)?,
            "turn_threshold" => self.turn_threshold = seconds(key, value)?,
            "max_call_duration" => self.max_call_duration = optional_seconds(key, value)?,
            "call_warning_before" => self.call_warning_before = seconds(key, value)?,
            "idle_end_after" => {
                self.idle_end_after = if value.is_null() { None } else { Some(count(key, value)?) };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks every value and makes the [`Spec`]. The caller sets what settings do not know: `phrasing`, `fallback_*`, `vad`,
    /// `user_id`, `tools`, `turn_model`.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn spec(&self) -> Result<Spec, BadSetting> {
        let s = self;
        let min = span("min_endpointing_delay", s.min_endpointing_delay)?;
        let max = span("max_endpointing_delay", s.max_endpointing_delay)?;
        if min > max {
            return Err(BadSetting::new(
                "min_endpointing_delay",
                "must not be greater than max_endpointing_delay",
            ));
        }
        if !(0.0..=1.0).contains(&s.turn_threshold) {
            return Err(BadSetting::new("turn_threshold", "must be between 0 and 1"));
        }
        let greeting = s.greeting.as_ref().filter(|m| !m.say.trim().is_empty());
        Ok(Spec {
            min_endpointing_delay: min,
            max_endpointing_delay: max,
            turn_threshold: s.turn_threshold as f32,
            turn_model: false,
            transcript_timeout: optional_span("transcript_timeout", s.transcript_timeout)?,
            min_interruption_duration: span("min_interruption_duration", s.min_interruption_duration)?,
            min_interruption_words: s.min_interruption_words,
            false_interruption_timeout: optional_span(
                "false_interruption_timeout",
                s.false_interruption_timeout,
            )?,
            allow_interruptions: s.allow_interruptions,
            backchannels: s.backchannels,
            stop_words: if s.stop_words { stop::words("en") } else { Vec::new() },
            preemptive_generation: s.preemptive_generation,
            preemptive_tts: s.preemptive_tts,
            echo_warmup: span("echo_warmup", s.echo_warmup)?,
            idle_timeout: optional_span("idle_timeout", s.idle_timeout)?.filter(|t| !t.is_zero()),
            idle_end_after: s.idle_end_after,
            max_tool_steps: s.max_tool_steps,
            min_consecutive_speech_delay: span(
                "min_consecutive_speech_delay",
                s.min_consecutive_speech_delay,
            )?,
            max_call_duration: optional_span("max_call_duration", s.max_call_duration)?,
            call_warning_before: span("call_warning_before", s.call_warning_before)?,
            greeting: match greeting {
                Some(m) => {
                    Some(Greeting { say: m.say.trim().to_owned(), wait: span("greeting.wait", m.wait)? })
                }
                None => None,
            },
            idle_messages: s
                .idle_messages
                .iter()
                .map(|m| m.say.trim().to_owned())
                .filter(|m| !m.is_empty())
                .collect(),
            warning_message: words(s.warning_message.as_ref()),
            exit_message: words(s.exit_message.as_ref()),
            error_message: words(s.error_message.as_ref()),
            phrasing: Phrasing::Stream,
            fallback_llm: false,
            fallback_tts: false,
            vad: Vad { start: Duration::from_millis(50), silence: Duration::from_millis(250) },
            user_id: String::new(),
            tools: Vec::new(),
        })
    }
}

/// What an agent's configuration says about turn-taking, unchecked. Everything absent is the default.
#[derive(Clone, Debug, Default)]
pub struct Agent<'a> {
    /// proactive, balanced, deliberate.
    pub turn_handling: Option<&'a str>,
    /// low, medium, high.
    pub interruptability: Option<&'a str>,
    /// `config.turn`: an object by the names of [`TURN_KEYS`]; others are ignored.
    pub turn: Option<&'a Value>,
    /// `stt.min_endpointing_delay`, where the request states it.
    pub min_endpointing_delay: Option<f64>,
    /// `stt.max_endpointing_delay`, where the request states it.
    pub max_endpointing_delay: Option<f64>,
    /// Whether `stt.turn_model` is on.
    pub turn_model: bool,
    /// `stt.language`: whose stop words count.
    pub language: Option<&'a str>,
    /// The welcome message of this conversation.
    pub greeting: Option<&'a str>,
    /// `welcome_message.wait_time` in seconds; absent = 1.
    pub greeting_wait: Option<f64>,
    /// `idle_timeout.timeout` in seconds: absent = 30, 0 = no call-outs.
    pub idle_timeout: Option<f64>,
    /// `idle_timeout.filler_phrases`.
    pub idle_messages: Vec<String>,
    /// `idle_timeout.end_after`: outer `None` = absent (3), inner = never.
    pub idle_end_after: Option<Option<u32>>,
    /// Seconds, the precedence resolved; absent = 300.
    pub max_call_duration: Option<f64>,
    /// `exit_heads_up_message.callout_before` in seconds; absent = 10.
    pub call_warning_before: Option<f64>,
    /// First of `exit_heads_up_message.messages`.
    pub warning_message: Option<String>,
    /// First of `exit_message.messages`.
    pub exit_message: Option<String>,
    /// `config.error_message`: outer `None` = absent, inner = silence.
    pub error_message: Option<Option<String>>,
    /// Told by `participant_left`: the user's id, else the conversation's.
    pub user_id: String,
    /// Messages of the tools.
    pub tools: Vec<ToolSpec>,
    /// Whether a second LLM, a second voice may be asked.
    pub fallback_llm: bool,
    /// Whether a second voice may be asked.
    pub fallback_tts: bool,
}

impl Agent<'_> {
    /// The conversation's rules: presets, then `config.turn`, then the delays of `stt`.
    ///
    /// # Errors
    /// The first value at fault, by its name.
    pub fn spec(&self) -> Result<Spec, BadSetting> {
        let mut s = Settings::product();
        s.preset(self.turn_handling, self.interruptability)?;
        match self.turn {
            None | Some(Value::Null) => {}
            Some(Value::Object(turn)) => {
                for (key, value) in turn.iter().filter(|(key, _)| TURN_KEYS.contains(&key.as_str())) {
                    s.set(key, value)?;
                }
            }
            Some(_) => return Err(BadSetting::new("turn", "must be an object")),
        }
        s.min_endpointing_delay = self.min_endpointing_delay.unwrap_or(s.min_endpointing_delay);
        s.max_endpointing_delay = self.max_endpointing_delay.unwrap_or(s.max_endpointing_delay);
        for (field, value) in [
            ("min_endpointing_delay", s.min_endpointing_delay),
            ("max_endpointing_delay", s.max_endpointing_delay),
        ] {
            if !(0.0..=10.0).contains(&value) {
                return Err(BadSetting::new(field, "must be between 0 and 10"));
            }
        }
        s.greeting =
            self.greeting.map(|say| Message { wait: self.greeting_wait.unwrap_or(1.0), ..Message::new(say) });
        s.idle_timeout = Some(self.idle_timeout.unwrap_or(30.0));
        s.idle_messages = self.idle_messages.iter().map(Message::new).collect();
        s.idle_end_after = self.idle_end_after.unwrap_or(Some(3));
        s.max_call_duration = Some(self.max_call_duration.filter(|d| *d != 0.0).unwrap_or(300.0));
        s.call_warning_before = self.call_warning_before.unwrap_or(10.0);
        s.warning_message = self.warning_message.as_ref().map(Message::new);
        s.exit_message = self.exit_message.as_ref().map(Message::new);
        if let Some(message) = &self.error_message {
            s.error_message = message.as_ref().map(Message::new);
        }
        let spec = s.spec()?;
        Ok(Spec {
            stop_words: if s.stop_words { stop::words(self.language.unwrap_or("en")) } else { Vec::new() },
            turn_model: self.turn_model,
            user_id: self.user_id.clone(),
            tools: self.tools.clone(),
            fallback_llm: self.fallback_llm,
            fallback_tts: self.fallback_tts,
            ..spec
        })
    }
}

fn words(message: Option<&Message>) -> Option<String> {
    message.map(|m| m.say.trim().to_owned()).filter(|say| !say.is_empty())
}

/// A time that is a number of seconds from 0 to [`LONGEST`].
///
/// # Errors
/// Anything else.
pub fn seconds(field: &str, value: &Value) -> Result<f64, BadSetting> {
    let number = value.as_f64().ok_or_else(|| BadSetting::new(field, "must be a number"))?;
    span(field, number).map(|_| number)
}

fn optional_seconds(field: &str, value: &Value) -> Result<Option<f64>, BadSetting> {
    if value.is_null() { Ok(None) } else { seconds(field, value).map(Some) }
}

fn count(field: &str, value: &Value) -> Result<u32, BadSetting> {
    let whole = value.as_u64().or_else(|| {
        value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1.8e19).contains(n)).map(|n| n as u64)
    });
    let whole = whole.ok_or_else(|| BadSetting::new(field, "must be a whole number that is not negative"))?;
    u32::try_from(whole).map_err(|_| BadSetting::new(field, "must be at most 4294967295"))
}

fn flag(field: &str, value: &Value) -> Result<bool, BadSetting> {
    value.as_bool().ok_or_else(|| BadSetting::new(field, "must be true or false"))
}

fn optional_span(field: &str, seconds: Option<f64>) -> Result<Option<Duration>, BadSetting> {
    seconds.map(|s| span(field, s)).transpose()
}

fn span(field: &str, seconds: f64) -> Result<Duration, BadSetting> {
    if !seconds.is_finite() {
        return Err(BadSetting::new(field, "must be a number"));
    }
    if seconds < 0.0 {
        return Err(BadSetting::new(field, "must not be negative"));
    }
    if seconds > LONGEST {
        return Err(BadSetting::new(field, "must not be greater than 1e7 s"));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_that_says_nothing_is_balanced_and_medium() {
        let spec = Agent::default().spec().unwrap();
        assert_eq!(spec.min_endpointing_delay, Duration::from_millis(400));
        assert_eq!(spec.max_endpointing_delay, Duration::from_secs(3));
        assert_eq!(spec.min_interruption_duration, Duration::from_millis(500));
        assert!(spec.backchannels && spec.preemptive_generation && !spec.preemptive_tts);
        assert_eq!(spec.idle_timeout, Some(Duration::from_secs(30)));
        assert_eq!(spec.max_call_duration, Some(Duration::from_secs(300)));
        assert_eq!(spec.error_message.as_deref(), Some(ERROR_MESSAGE));
    }

    #[test]
    fn the_presets_are_those_of_the_table() {
        let of = |turn_handling, interruptability| {
            let mut settings = Settings::product();
            settings.preset(turn_handling, interruptability).map(|()| settings)
        };
        for (word, min, max, preemptive) in [
            (Some("proactive"), 0.3, 2.0, true),
            (Some("balanced"), 0.4, 3.0, true),
            (None, 0.4, 3.0, true),
            (Some("deliberate"), 0.8, 5.0, false),
        ] {
            let s = of(word, None).unwrap();
            let found = (s.min_endpointing_delay, s.max_endpointing_delay, s.preemptive_generation);
            assert_eq!(found, (min, max, preemptive), "{word:?}");
        }
        for (word, duration, words, backchannels) in [
            (Some("high"), 0.25, 0, false),
            (Some("medium"), 0.5, 0, true),
            (None, 0.5, 0, true),
            (Some("low"), 0.8, 2, true),
        ] {
            let s = of(None, word).unwrap();
            let found = (s.min_interruption_duration, s.min_interruption_words, s.backchannels);
            assert_eq!(found, (duration, words, backchannels), "{word:?}");
        }
        assert_eq!(of(Some("hasty"), None).unwrap_err().field, "turn_handling");
        assert_eq!(of(None, Some("never")).unwrap_err().field, "interruptability");
    }

    #[test]
    fn what_nobody_sets_is_as_the_page_says() {
        let s = Settings::product();
        assert_eq!((s.false_interruption_timeout, s.transcript_timeout), (Some(2.0), Some(2.0)));
        assert_eq!((s.echo_warmup, s.turn_threshold, s.min_consecutive_speech_delay), (3.0, 0.36, 0.0));
        assert_eq!((s.idle_timeout, s.idle_end_after), (Some(30.0), Some(3)));
        assert_eq!((s.max_call_duration, s.call_warning_before), (Some(300.0), 10.0));
        assert_eq!((s.max_tool_steps, s.allow_interruptions, s.preemptive_tts), (3, true, false));
        let s = Settings::scenario();
        assert_eq!((s.min_endpointing_delay, s.max_endpointing_delay), (0.5, 6.0));
        assert_eq!((s.backchannels, s.echo_warmup, s.turn_threshold), (false, 0.0, 0.5));
        assert_eq!((s.idle_timeout, s.transcript_timeout, s.max_call_duration), (None, None, None));
        assert_eq!((s.idle_end_after, s.error_message, s.preemptive_generation), (None, None, true));
    }

    #[test]
    fn the_turn_object_wins_over_the_presets_and_the_stt_delays_over_both() {
        let turn =
            json!({"min_endpointing_delay": 1.0, "backchannels": false, "idle_timeout": 1, "unheard_of": 2});
        let agent = Agent {
            turn_handling: Some("deliberate"),
            interruptability: Some("low"),
            turn: Some(&turn),
            max_endpointing_delay: Some(1.5),
            ..Agent::default()
        };
        let spec = agent.spec().unwrap();
        assert_eq!(spec.min_endpointing_delay, Duration::from_secs(1));
        assert_eq!(spec.max_endpointing_delay, Duration::from_millis(1500));
        assert_eq!(spec.min_interruption_words, 2);
        assert_eq!(spec.idle_timeout, Some(Duration::from_secs(30)));
        assert!(!spec.backchannels && !spec.preemptive_generation);
    }

    #[test]
    fn a_bad_value_is_named_with_its_reason() {
        let case =
            |turn: Value| Agent { turn: Some(&turn), ..Agent::default() }.spec().unwrap_err().to_string();
        assert_eq!(case(json!({"echo_warmup": -1})), "echo_warmup: must not be negative");
        assert_eq!(
            case(json!({"min_interruption_words": 1.5})),
            "min_interruption_words: must be a whole number that is not negative"
        );
        assert_eq!(case(json!({"backchannels": 1})), "backchannels: must be true or false");
        assert_eq!(case(json!([])), "turn: must be an object");
        let agent = Agent { min_endpointing_delay: Some(4.0), ..Agent::default() };
        assert_eq!(agent.spec().unwrap_err().field, "min_endpointing_delay");
        let agent = Agent { max_endpointing_delay: Some(f64::NAN), ..Agent::default() };
        assert_eq!(agent.spec().unwrap_err().field, "max_endpointing_delay");
    }
}
