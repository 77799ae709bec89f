//! Builds a valid [`Spec`] from user input: an agent's configuration or a scenario file.
//!
//! There is one struct, with the names of the scenario format, and two sets of defaults:
//! [`Settings::product_defaults`] and [`Settings::scenario_defaults`].

use core::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::participation::Participation;
use crate::contract::spec::{Greeting, Phrasing, Spec, ToolSpec, VadTiming};
use crate::contract::stop_words;

pub use crate::contract::spec::{MAX_SECONDS, SettingError};

/// The product's message after a stage failed.
pub const DEFAULT_ERROR_MESSAGE: &str = "I'm sorry, something went wrong. Please say that again.";

/// A message to speak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpokenMessage {
    /// The text.
    #[serde(rename = "say")]
    pub text: String,
    /// Duration of its audio in seconds; for scripted voices only.
    #[serde(default)]
    #[serde(rename = "audio")]
    pub audio_seconds: f64,
    /// Delay before it in seconds; for the greeting and the recording message only.
    #[serde(default)]
    #[serde(rename = "wait")]
    pub delay_seconds: f64,
}

impl SpokenMessage {
    /// Creates a message for a real voice.
    pub fn new(say: impl Into<String>) -> Self {
        Self { text: say.into(), ..Self::default() }
    }
}

/// The behavior of a conversation, in seconds and counts. The names are those of the scenario
/// format; the default is the product's.
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
    pub greeting: Option<SpokenMessage>,
    pub recording_message: Option<SpokenMessage>,
    pub idle_messages: Vec<SpokenMessage>,
    pub warning_message: Option<SpokenMessage>,
    pub exit_message: Option<SpokenMessage>,
    pub error_message: Option<SpokenMessage>,
    pub record_words: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self::product_defaults()
    }
}

/// The keys that `config.turn` of an agent may set.
pub const TURN_SETTING_KEYS: [&str; 15] = [
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
    /// The defaults of an agent without turn-taking settings: `balanced`, `medium`.
    #[must_use]
    pub fn product_defaults() -> Self {
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
            recording_message: None,
            idle_messages: Vec::new(),
            warning_message: None,
            exit_message: None,
            error_message: Some(SpokenMessage::new(DEFAULT_ERROR_MESSAGE)),
            record_words: false,
        }
    }

    /// The defaults of a scenario.
    #[must_use]
    pub fn scenario_defaults() -> Self {
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
            ..Self::product_defaults()
        }
    }

    /// Applies the presets of `turn_handling` and `interruptability` over the current values. An
    /// absent preset means the default one.
    ///
    /// # Errors
    /// A preset that is none of the six.
    pub fn apply_presets(
        &mut self,
        turn_handling: Option<&str>,
        interruptability: Option<&str>,
    ) -> Result<(), SettingError> {
        (self.min_endpointing_delay, self.max_endpointing_delay, self.preemptive_generation) =
            match turn_handling.unwrap_or("balanced") {
                "proactive" => (0.3, 2.0, true),
                "balanced" => (0.4, 3.0, true),
                "deliberate" => (0.8, 5.0, false),
                _ => {
                    return Err(SettingError::new(
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
                _ => {
                    return Err(SettingError::new(
                        "interruptability",
                        "must be low, medium or high",
                    ));
                }
            };
        Ok(())
    }

    /// Sets one of [`TURN_SETTING_KEYS`], or any other setting that is a number, a flag or null.
    ///
    /// Returns whether the setting exists.
    ///
    /// # Errors
    /// A value of the wrong type or out of range.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<bool, SettingError> {
        match key {
            "min_endpointing_delay" => self.min_endpointing_delay = parse_seconds(key, value)?,
            "max_endpointing_delay" => self.max_endpointing_delay = parse_seconds(key, value)?,
            "min_interruption_duration" => {
                self.min_interruption_duration = parse_seconds(key, value)?
            }
            "min_interruption_words" => {
                self.min_interruption_words = parse_count(key, value)? as usize
            }
            "false_interruption_timeout" => {
                self.false_interruption_timeout = parse_optional_seconds(key, value)?
            }
            "allow_interruptions" => self.allow_interruptions = parse_flag(key, value)?,
            "backchannels" => self.backchannels = parse_flag(key, value)?,
            "stop_words" => self.stop_words = parse_flag(key, value)?,
            "preemptive_generation" => self.preemptive_generation = parse_flag(key, value)?,
            "preemptive_tts" => self.preemptive_tts = parse_flag(key, value)?,
            "echo_warmup" => self.echo_warmup = parse_seconds(key, value)?,
            "idle_timeout" => self.idle_timeout = parse_optional_seconds(key, value)?,
            "max_tool_steps" => self.max_tool_steps = parse_count(key, value)?,
            "min_consecutive_speech_delay" => {
                self.min_consecutive_speech_delay = parse_seconds(key, value)?
            }
            "transcript_timeout" => self.transcript_timeout = parse_optional_seconds(key, value)?,
            "turn_threshold" => self.turn_threshold = parse_ratio(key, value)?,
            "max_call_duration" => self.max_call_duration = parse_optional_seconds(key, value)?,
            "call_warning_before" => self.call_warning_before = parse_seconds(key, value)?,
            "record_words" => self.record_words = parse_flag(key, value)?,
            "idle_end_after" => {
                self.idle_end_after =
                    if value.is_null() { None } else { Some(parse_count(key, value)?) };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks every value and builds the [`Spec`]. The caller sets the fields that settings do not
    /// cover: `phrasing`, `fallback_*`, `vad`, `user_id`, `tools`, `turn_model`.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn to_spec(&self) -> Result<Spec, SettingError> {
        let s = self;
        let min = duration_from_seconds("min_endpointing_delay", s.min_endpointing_delay)?;
        let max = duration_from_seconds("max_endpointing_delay", s.max_endpointing_delay)?;
        if min > max {
            return Err(SettingError::new(
                "min_endpointing_delay",
                "must not be greater than max_endpointing_delay",
            ));
        }
        if !(0.0..=1.0).contains(&s.turn_threshold) {
            return Err(SettingError::new("turn_threshold", "must be between 0 and 1"));
        }
        Ok(Spec {
            min_endpointing_delay: min,
            max_endpointing_delay: max,
            turn_threshold: s.turn_threshold as f32,
            turn_model: false,
            transcript_timeout: optional_duration("transcript_timeout", s.transcript_timeout)?,
            min_interruption_duration: duration_from_seconds(
                "min_interruption_duration",
                s.min_interruption_duration,
            )?,
            min_interruption_words: s.min_interruption_words,
            false_interruption_timeout: optional_duration(
                "false_interruption_timeout",
                s.false_interruption_timeout,
            )?,
            allow_interruptions: s.allow_interruptions,
            backchannels: s.backchannels,
            stop_words: if s.stop_words { stop_words::stop_words_for("en") } else { Vec::new() },
            preemptive_generation: s.preemptive_generation,
            preemptive_tts: s.preemptive_tts,
            echo_warmup: duration_from_seconds("echo_warmup", s.echo_warmup)?,
            idle_timeout: optional_duration("idle_timeout", s.idle_timeout)?
                .filter(|t| !t.is_zero()),
            idle_end_after: s.idle_end_after,
            max_tool_steps: s.max_tool_steps,
            min_consecutive_speech_delay: duration_from_seconds(
                "min_consecutive_speech_delay",
                s.min_consecutive_speech_delay,
            )?,
            max_call_duration: optional_duration("max_call_duration", s.max_call_duration)?,
            call_warning_before: duration_from_seconds(
                "call_warning_before",
                s.call_warning_before,
            )?,
            greeting: opening("greeting.wait", s.greeting.as_ref())?,
            recording_message: opening("recording_message.wait", s.recording_message.as_ref())?,
            idle_messages: s
                .idle_messages
                .iter()
                .map(|m| m.text.trim().to_owned())
                .filter(|m| !m.is_empty())
                .collect(),
            warning_message: message_text(s.warning_message.as_ref()),
            exit_message: message_text(s.exit_message.as_ref()),
            error_message: message_text(s.error_message.as_ref()),
            phrasing: Phrasing::Stream,
            fallback_llm: false,
            fallback_tts: false,
            record_words: s.record_words,
            vad: VadTiming {
                min_speech_duration: Duration::from_millis(50),
                min_silence_duration: Duration::from_millis(250),
            },
            participation: None,
            user_id: String::new(),
            tools: Vec::new(),
        })
    }
}

/// The turn-taking part of an agent's configuration, unchecked. Absent values have defaults.
#[derive(Clone, Debug, Default)]
pub struct AgentTurnConfig<'a> {
    /// `proactive`, `balanced` or `deliberate`.
    pub turn_handling: Option<&'a str>,
    /// `low`, `medium` or `high`.
    pub interruptability: Option<&'a str>,
    /// `config.turn`: an object with the keys of [`TURN_SETTING_KEYS`]; other keys are ignored.
    pub turn: Option<&'a Value>,
    /// `stt.min_endpointing_delay` in seconds, if the request sets it.
    pub min_endpointing_delay: Option<f64>,
    /// `stt.max_endpointing_delay` in seconds, if the request sets it.
    pub max_endpointing_delay: Option<f64>,
    /// Whether `stt.turn_model` is on.
    pub turn_model: bool,
    /// `stt.language`: selects the stop words.
    pub language: Option<&'a str>,
    /// The welcome message of this conversation.
    pub greeting: Option<&'a str>,
    /// `welcome_message.wait_time` in seconds, before the first words; absent = 1.
    pub greeting_delay: Option<f64>,
    /// Spoken after the greeting, because the call is recorded.
    pub recording_message: Option<&'a str>,
    /// `idle_timeout.timeout` in seconds: absent = 30, 0 = no call-outs.
    pub idle_timeout: Option<f64>,
    /// `idle_timeout.filler_phrases`.
    pub idle_messages: Vec<String>,
    /// `idle_timeout.end_after`: outer `None` = absent (3), inner = never.
    pub idle_end_after: Option<Option<u32>>,
    /// Limit of the call in seconds, precedence resolved; absent or 0 = 300.
    pub max_call_duration: Option<f64>,
    /// `exit_heads_up_message.callout_before` in seconds; absent = 10.
    pub call_warning_before: Option<f64>,
    /// First of `exit_heads_up_message.messages`.
    pub warning_message: Option<String>,
    /// First of `exit_message.messages`.
    pub exit_message: Option<String>,
    /// `config.error_message`: outer `None` = absent, inner = silence.
    pub error_message: Option<Option<String>>,
    /// The user's id in `participant_left`, or the conversation's id without one.
    pub user_id: String,
    /// The tools with their messages.
    pub tools: Vec<ToolSpec>,
    /// Whether a second LLM is available.
    pub fallback_llm: bool,
    /// Whether a second voice is available.
    pub fallback_tts: bool,
    /// `record`: whether the call is recorded, with the times of the agent's words.
    pub record_words: bool,
    /// The rules of a conversation of several people, such as a meeting.
    pub participation: Option<Participation>,
}

impl AgentTurnConfig<'_> {
    /// Builds the rules of the conversation: presets, then `config.turn`, then the delays of `stt`.
    ///
    /// # Errors
    /// The first invalid value, by its name.
    pub fn to_spec(&self) -> Result<Spec, SettingError> {
        let mut s = Settings::product_defaults();
        s.apply_presets(self.turn_handling, self.interruptability)?;
        match self.turn {
            None | Some(Value::Null) => {}
            Some(Value::Object(turn)) => {
                for (key, value) in
                    turn.iter().filter(|(key, _)| TURN_SETTING_KEYS.contains(&key.as_str()))
                {
                    s.set(key, value)?;
                }
            }
            Some(_) => return Err(SettingError::new("turn", "must be an object")),
        }
        s.min_endpointing_delay = self.min_endpointing_delay.unwrap_or(s.min_endpointing_delay);
        s.max_endpointing_delay = self.max_endpointing_delay.unwrap_or(s.max_endpointing_delay);
        for (field, value) in [
            ("min_endpointing_delay", s.min_endpointing_delay),
            ("max_endpointing_delay", s.max_endpointing_delay),
        ] {
            if !(0.0..=10.0).contains(&value) {
                return Err(SettingError::new(field, "must be between 0 and 10"));
            }
        }
        let opening = |say: &str| SpokenMessage {
            delay_seconds: self.greeting_delay.unwrap_or(1.0),
            ..SpokenMessage::new(say)
        };
        s.greeting = self.greeting.map(opening);
        s.recording_message = self.recording_message.map(opening);
        s.idle_timeout = Some(self.idle_timeout.unwrap_or(30.0));
        s.idle_messages = self.idle_messages.iter().map(SpokenMessage::new).collect();
        s.idle_end_after = self.idle_end_after.unwrap_or(Some(3));
        s.max_call_duration = Some(self.max_call_duration.filter(|d| *d != 0.0).unwrap_or(300.0));
        s.call_warning_before = self.call_warning_before.unwrap_or(10.0);
        s.warning_message = self.warning_message.as_ref().map(SpokenMessage::new);
        s.exit_message = self.exit_message.as_ref().map(SpokenMessage::new);
        if let Some(message) = &self.error_message {
            s.error_message = message.as_ref().map(SpokenMessage::new);
        }
        let spec = s.to_spec()?;
        Ok(Spec {
            stop_words: if s.stop_words {
                stop_words::stop_words_for(self.language.unwrap_or("en"))
            } else {
                Vec::new()
            },
            turn_model: self.turn_model,
            user_id: self.user_id.clone(),
            tools: self.tools.clone(),
            fallback_llm: self.fallback_llm,
            fallback_tts: self.fallback_tts,
            record_words: self.record_words,
            ..spec
        }
        .with_participation(self.participation.clone()))
    }
}

fn opening(field: &str, message: Option<&SpokenMessage>) -> Result<Option<Greeting>, SettingError> {
    let Some(text) = message_text(message) else { return Ok(None) };
    let delay = duration_from_seconds(field, message.map_or(0.0, |m| m.delay_seconds))?;
    Ok(Some(Greeting { text, delay }))
}

fn message_text(message: Option<&SpokenMessage>) -> Option<String> {
    message.map(|m| m.text.trim().to_owned()).filter(|say| !say.is_empty())
}

/// Parses a duration: a number of seconds from 0 to [`MAX_SECONDS`].
///
/// # Errors
/// Any other value.
pub fn parse_seconds(field: &str, value: &Value) -> Result<f64, SettingError> {
    let number = value.as_f64().ok_or_else(|| SettingError::new(field, "must be a number"))?;
    duration_from_seconds(field, number).map(|_| number)
}

fn parse_ratio(field: &str, value: &Value) -> Result<f64, SettingError> {
    let number = value.as_f64().ok_or_else(|| SettingError::new(field, "must be a number"))?;
    if (0.0..=1.0).contains(&number) {
        Ok(number)
    } else {
        Err(SettingError::new(field, "must be between 0 and 1"))
    }
}

fn parse_optional_seconds(field: &str, value: &Value) -> Result<Option<f64>, SettingError> {
    if value.is_null() { Ok(None) } else { parse_seconds(field, value).map(Some) }
}

fn parse_count(field: &str, value: &Value) -> Result<u32, SettingError> {
    let whole = value.as_u64().or_else(|| {
        value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1.8e19).contains(n)).map(|n| n as u64)
    });
    let whole = whole
        .ok_or_else(|| SettingError::new(field, "must be a whole number that is not negative"))?;
    u32::try_from(whole).map_err(|_| SettingError::new(field, "must be at most 4294967295"))
}

fn parse_flag(field: &str, value: &Value) -> Result<bool, SettingError> {
    value.as_bool().ok_or_else(|| SettingError::new(field, "must be true or false"))
}

fn optional_duration(field: &str, seconds: Option<f64>) -> Result<Option<Duration>, SettingError> {
    seconds.map(|s| duration_from_seconds(field, s)).transpose()
}

fn duration_from_seconds(field: &str, seconds: f64) -> Result<Duration, SettingError> {
    if !seconds.is_finite() {
        return Err(SettingError::new(field, "must be a number"));
    }
    if seconds < 0.0 {
        return Err(SettingError::new(field, "must not be negative"));
    }
    if seconds > MAX_SECONDS {
        return Err(SettingError::new(field, "must be at most 10000000 seconds"));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_that_says_nothing_is_balanced_and_medium() {
        let spec = AgentTurnConfig::default().to_spec().unwrap();
        assert_eq!(spec.min_endpointing_delay, Duration::from_millis(400));
        assert_eq!(spec.max_endpointing_delay, Duration::from_secs(3));
        assert_eq!(spec.min_interruption_duration, Duration::from_millis(500));
        assert!(spec.backchannels && spec.preemptive_generation && !spec.preemptive_tts);
        assert_eq!(spec.idle_timeout, Some(Duration::from_secs(30)));
        assert_eq!(spec.max_call_duration, Some(Duration::from_secs(300)));
        assert_eq!(spec.error_message.as_deref(), Some(DEFAULT_ERROR_MESSAGE));
    }

    #[test]
    fn the_presets_are_those_of_the_table() {
        let of = |turn_handling, interruptability| {
            let mut settings = Settings::product_defaults();
            settings.apply_presets(turn_handling, interruptability).map(|()| settings)
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
    fn defaults_match_the_documentation() {
        let s = Settings::product_defaults();
        assert_eq!((s.false_interruption_timeout, s.transcript_timeout), (Some(2.0), Some(2.0)));
        assert_eq!(
            (s.echo_warmup, s.turn_threshold, s.min_consecutive_speech_delay),
            (3.0, 0.36, 0.0)
        );
        assert_eq!((s.idle_timeout, s.idle_end_after), (Some(30.0), Some(3)));
        assert_eq!((s.max_call_duration, s.call_warning_before), (Some(300.0), 10.0));
        assert_eq!((s.max_tool_steps, s.allow_interruptions, s.preemptive_tts), (3, true, false));
        let s = Settings::scenario_defaults();
        assert_eq!((s.min_endpointing_delay, s.max_endpointing_delay), (0.5, 6.0));
        assert_eq!((s.backchannels, s.echo_warmup, s.turn_threshold), (false, 0.0, 0.5));
        assert_eq!((s.idle_timeout, s.transcript_timeout, s.max_call_duration), (None, None, None));
        assert_eq!(
            (s.idle_end_after, s.error_message, s.preemptive_generation),
            (None, None, true)
        );
    }

    #[test]
    fn the_turn_object_wins_over_the_presets_and_the_stt_delays_over_both() {
        let turn = json!({
            "min_endpointing_delay": 1.0,
            "backchannels": false,
            "idle_timeout": 1,
            "unheard_of": 2,
        });
        let agent = AgentTurnConfig {
            turn_handling: Some("deliberate"),
            interruptability: Some("low"),
            turn: Some(&turn),
            max_endpointing_delay: Some(1.5),
            ..AgentTurnConfig::default()
        };
        let spec = agent.to_spec().unwrap();
        assert_eq!(spec.min_endpointing_delay, Duration::from_secs(1));
        assert_eq!(spec.max_endpointing_delay, Duration::from_millis(1500));
        assert_eq!(spec.min_interruption_words, 2);
        assert_eq!(spec.idle_timeout, Some(Duration::from_secs(30)));
        assert!(!spec.backchannels && !spec.preemptive_generation);
    }

    #[test]
    fn a_bad_value_is_named_with_its_reason() {
        let case = |turn: Value| {
            AgentTurnConfig { turn: Some(&turn), ..AgentTurnConfig::default() }
                .to_spec()
                .unwrap_err()
                .to_string()
        };
        assert_eq!(case(json!({"echo_warmup": -1})), "echo_warmup: must not be negative");
        assert_eq!(
            case(json!({"min_interruption_words": 1.5})),
            "min_interruption_words: must be a whole number that is not negative"
        );
        assert_eq!(case(json!({"backchannels": 1})), "backchannels: must be true or false");
        assert_eq!(case(json!([])), "turn: must be an object");
        let agent =
            AgentTurnConfig { min_endpointing_delay: Some(4.0), ..AgentTurnConfig::default() };
        assert_eq!(agent.to_spec().unwrap_err().field, "min_endpointing_delay");
        let agent =
            AgentTurnConfig { max_endpointing_delay: Some(f64::NAN), ..AgentTurnConfig::default() };
        assert_eq!(agent.to_spec().unwrap_err().field, "max_endpointing_delay");
    }
}
