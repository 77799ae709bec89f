//! How one conversation behaves: parsed once from the agent's configuration or a scenario, valid ever after.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::settings::{MAX_SECONDS, SettingError};

/// Everything that the pure conversation knows of its agent. Made by [`crate::settings`]; every value is in range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Wait after the true end of speech, where no turn model objects.
    pub min_endpointing_delay: Duration,
    /// Wait where the turn model says that the turn goes on; never below the minimum.
    pub max_endpointing_delay: Duration,
    /// P(turn is over) below which the maximum holds.
    pub turn_threshold: f32,
    /// Whether a turn model is asked.
    pub turn_model: bool,
    /// How long a transcript is waited for after the detector's end report; `None` = as long as it takes.
    pub transcript_timeout: Option<Duration>,
    /// Speech of this length holds the agent.
    pub min_interruption_duration: Duration,
    /// Words that an interruption needs.
    pub min_interruption_words: usize,
    /// How long a held reply waits for words before it goes on; `None` = a hold is a kill.
    pub false_interruption_timeout: Option<Duration>,
    /// Whether the user may interrupt replies and messages.
    pub allow_interruptions: bool,
    /// Whether "mm-hm" and its like let the agent go on.
    pub backchannels: bool,
    /// Words that end a reply as soon as they are recognised, where the user's turn begins with one; none = that is left to the other rules.
    #[serde(default)]
    pub stop_words: Vec<String>,
    /// Whether the LLM is asked before the turn is committed.
    pub preemptive_generation: bool,
    /// Whether the TTS is too.
    pub preemptive_tts: bool,
    /// Time from the call's first sample in which the user's voice neither ducks nor holds.
    pub echo_warmup: Duration,
    /// Silence before a call-out; `None` = never.
    pub idle_timeout: Option<Duration>,
    /// Call-outs before the next idle ends the call; `None` = never.
    pub idle_end_after: Option<u32>,
    /// Rounds of tools in one turn.
    pub max_tool_steps: u32,
    /// Silence between two utterances.
    pub min_consecutive_speech_delay: Duration,
    /// Length of the call; `None` = no limit.
    pub max_call_duration: Option<Duration>,
    /// The warning comes this long before the limit.
    pub call_warning_before: Duration,
    /// Spoken first, after `wait`.
    pub greeting: Option<Greeting>,
    /// Spoken when idle, round robin.
    pub idle_messages: Vec<String>,
    /// Spoken at the warning.
    pub warning_message: Option<String>,
    /// Spoken whole before the limit ends the call.
    pub exit_message: Option<String>,
    /// Spoken when a stage failed; `None` = silence.
    pub error_message: Option<String>,
    /// How the LLM's text is cut into pieces for the TTS.
    pub phrasing: Phrasing,
    /// Whether a second LLM may be asked after a failure.
    pub fallback_llm: bool,
    /// Whether a second voice may be asked after a failure.
    pub fallback_tts: bool,
    /// The speech detector's own times: onset is reported `start` after it was, the end `silence` after it was.
    pub vad: VadTiming,
    /// Told by `participant_left`.
    pub user_id: String,
    /// Tools by name, with the words said around them.
    pub tools: Vec<ToolSpec>,
}

impl Spec {
    /// Whether every value is in range, as it is wherever settings made it; a file may say otherwise.
    ///
    /// # Errors
    /// The first value that is not.
    pub fn validate(&self) -> Result<(), SettingError> {
        let durations = [
            ("min_endpointing_delay", Some(self.min_endpointing_delay)),
            ("max_endpointing_delay", Some(self.max_endpointing_delay)),
            ("transcript_timeout", self.transcript_timeout),
            ("min_interruption_duration", Some(self.min_interruption_duration)),
            ("false_interruption_timeout", self.false_interruption_timeout),
            ("echo_warmup", Some(self.echo_warmup)),
            ("idle_timeout", self.idle_timeout),
            ("min_consecutive_speech_delay", Some(self.min_consecutive_speech_delay)),
            ("max_call_duration", self.max_call_duration),
            ("call_warning_before", Some(self.call_warning_before)),
            ("greeting.wait", self.greeting.as_ref().map(|greeting| greeting.delay)),
            ("vad.start", Some(self.vad.min_speech_duration)),
            ("vad.silence", Some(self.vad.min_silence_duration)),
        ];
        let of_tools = self.tools.iter().map(|tool| ("tools.delay", Some(tool.delay)));
        for (field, duration) in durations.into_iter().chain(of_tools) {
            if duration.is_some_and(|duration| duration.as_secs_f64() > MAX_SECONDS) {
                return Err(SettingError::new(field, "must not be greater than 1e7 s"));
            }
        }
        if self.min_endpointing_delay > self.max_endpointing_delay {
            return Err(SettingError::new(
                "min_endpointing_delay",
                "must not be greater than max_endpointing_delay",
            ));
        }
        if !(0.0..=1.0).contains(&self.turn_threshold) {
            return Err(SettingError::new("turn_threshold", "must be between 0 and 1"));
        }
        // Silence of no length is always over: the call-outs would never end.
        if self.idle_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(SettingError::new("idle_timeout", "must not be 0"));
        }
        Ok(())
    }
}

/// Times of the speech detector.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VadTiming {
    /// Speech must last this long to be reported.
    #[serde(rename = "start")]
    pub min_speech_duration: Duration,
    /// Silence must last this long to be the end.
    #[serde(rename = "silence")]
    pub min_silence_duration: Duration,
}

/// The agent speaks first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// Its words.
    #[serde(rename = "say")]
    pub text: String,
    /// Its TTS is asked this long after the beginning.
    #[serde(rename = "wait")]
    pub delay: Duration,
}

/// How text becomes pieces of speech.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phrasing {
    /// As the words stream in: the first phrase early, then whole sentences, asked as they are complete (live).
    Stream,
    /// Only where the LLM says so, and only when the step is complete (`simulate`).
    Flushed,
}

impl Phrasing {
    /// Pieces of an utterance that are with the TTS or wait to be played, the sounding one included: the rest waits in the conversation. Live,
    /// a long text must not take the voice from other calls, nor be made to be thrown away; a script's pieces are all asked at once.
    pub(crate) fn max_segments_ahead(self) -> usize {
        match self {
            Self::Stream => 3,
            Self::Flushed => usize::MAX,
        }
    }
}

/// A tool as far as turn-taking is concerned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// Said as it starts.
    pub on_start: Option<String>,
    /// Said once if the result is still out `delay` after the start.
    pub on_delay: Option<String>,
    /// When `on_delay` is due.
    pub delay: Duration,
    /// Said as the result comes in.
    pub on_success: Option<String>,
    /// Said as it fails.
    pub on_error: Option<String>,
}
