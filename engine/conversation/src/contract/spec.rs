//! The behavior of one conversation. Parsed once from the agent's configuration or a scenario, and
//! valid from then on.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contract::participation::{Participation, ParticipationMode};

pub use crate::contract::setting_error::SettingError;

/// The longest duration that a setting allows, in seconds.
pub const MAX_SECONDS: f64 = 1e7;

/// Everything that the state machine knows about its agent. Built by [`crate::contract::settings`];
/// every value is in range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Wait after the true end of speech, unless the turn model predicts that the turn continues.
    pub min_endpointing_delay: Duration,
    /// Wait if the turn model predicts that the turn continues; never less than the minimum.
    pub max_endpointing_delay: Duration,
    /// P(turn is over) below which the maximum delay applies.
    pub turn_threshold: f32,
    /// Whether a turn model is used.
    pub turn_model: bool,
    /// Maximum wait for a transcript after the VAD reports the end of speech; `None` = no limit.
    pub transcript_timeout: Option<Duration>,
    /// Duration of speech that holds the agent.
    pub min_interruption_duration: Duration,
    /// Minimum number of words of an interruption.
    pub min_interruption_words: usize,
    /// How long a held reply waits for words before it resumes; `None` = a hold cuts the reply.
    pub false_interruption_timeout: Option<Duration>,
    /// Whether the user may interrupt replies and messages.
    pub allow_interruptions: bool,
    /// Whether the agent continues after backchannels such as "mm-hm".
    pub backchannels: bool,
    /// Words that end a reply as soon as they are recognized at the start of the user's turn. If
    /// empty, only the other rules apply.
    #[serde(default)]
    pub stop_words: Vec<String>,
    /// Whether the LLM is called before the turn is committed.
    pub preemptive_generation: bool,
    /// Whether the TTS is called before the turn is committed, too.
    pub preemptive_tts: bool,
    /// Time from the first sample of the call in which the user's speech neither ducks nor holds
    /// the agent.
    pub echo_warmup: Duration,
    /// Silence before a call-out; `None` = no call-outs.
    pub idle_timeout: Option<Duration>,
    /// Number of unanswered call-outs after which the next idle timeout ends the call; `None` =
    /// never.
    pub idle_end_after: Option<u32>,
    /// Maximum rounds of tools in one turn.
    pub max_tool_steps: u32,
    /// Minimum silence between two utterances.
    pub min_consecutive_speech_delay: Duration,
    /// Maximum duration of the call; `None` = no limit.
    pub max_call_duration: Option<Duration>,
    /// Time between the warning and the limit.
    pub call_warning_before: Duration,
    /// Spoken first, after [`Greeting::delay`].
    pub greeting: Option<Greeting>,
    /// States that the call is recorded. Spoken once, when the floor is free for the first time:
    /// after the greeting, or after [`Greeting::delay`] without one.
    #[serde(default)]
    pub recording_message: Option<Greeting>,
    /// Spoken when idle, in rotation.
    pub idle_messages: Vec<String>,
    /// Spoken at the warning before the limit.
    pub warning_message: Option<String>,
    /// Spoken in full before the call ends by its limit or by a stop with exit message.
    pub exit_message: Option<String>,
    /// Spoken after a stage failed; `None` = silence.
    pub error_message: Option<String>,
    /// How the LLM's text is split into segments for the TTS.
    pub phrasing: Phrasing,
    /// Whether a second LLM is available after a failure.
    pub fallback_llm: bool,
    /// Whether a second voice is available after a failure.
    pub fallback_tts: bool,
    /// Whether the times of the agent's words are emitted ([`Event::AgentWords`]): the call is
    /// recorded.
    ///
    /// [`Event::AgentWords`]: crate::contract::event::Event::AgentWords
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub record_words: bool,
    /// Timing of the VAD: it reports an onset `min_speech_duration` late, and an end
    /// `min_silence_duration` late.
    pub vad: VadTiming,
    /// The rules of a conversation of several people; `None` = a call with one user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participation: Option<Participation>,
    /// The user's id in `participant_left`.
    pub user_id: String,
    /// The tools by name, with their messages.
    pub tools: Vec<ToolSpec>,
}

/// Maximum [`Spec::min_interruption_duration`] if only some utterances are answered: the agent
/// yields to any voice.
const MAX_GROUP_INTERRUPTION_DURATION: Duration = Duration::from_millis(250);

impl Spec {
    /// These rules with those of a conversation of several people. If only some utterances are
    /// answered, nothing is generated before a commit, and silence is no reason to speak.
    #[must_use]
    pub fn with_participation(self, participation: Option<Participation>) -> Self {
        let Some(rules) = participation else { return self };
        let is_group = rules.is_group() && !rules.only_with_several;
        let spec = Self { participation: Some(rules), ..self };
        if is_group { spec.for_group() } else { spec }
    }

    /// These rules while only some utterances are answered.
    #[must_use]
    pub(crate) fn for_group(self) -> Self {
        let mut spec = self;
        if let Some(rules) = &spec.participation {
            let is_observer = rules.mode == ParticipationMode::Observer;
            spec.min_interruption_duration =
                spec.min_interruption_duration.min(MAX_GROUP_INTERRUPTION_DURATION);
            spec.min_interruption_words = 0;
            spec.preemptive_generation = false;
            spec.preemptive_tts = false;
            spec.idle_timeout = None;
            spec.warning_message = None;
            spec.greeting = spec.greeting.filter(|_| !is_observer);
        }
        spec
    }

    /// Checks that every value is in range. Settings guarantee this; a file does not.
    ///
    /// # Errors
    /// The first value that is out of range.
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
            ("recording_message.wait", self.recording_message.as_ref().map(|m| m.delay)),
            ("vad.start", Some(self.vad.min_speech_duration)),
            ("vad.silence", Some(self.vad.min_silence_duration)),
        ];
        let of_tools = self.tools.iter().map(|tool| ("tools.delay", Some(tool.delay)));
        for (field, duration) in durations.into_iter().chain(of_tools) {
            if duration.is_some_and(|duration| duration.as_secs_f64() > MAX_SECONDS) {
                return Err(SettingError::new(field, "must be at most 10000000 seconds"));
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
        // A timeout of zero always fires: the call-outs would never end.
        if self.idle_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(SettingError::new("idle_timeout", "must not be 0"));
        }
        self.participation.as_ref().map_or(Ok(()), Participation::validate)
    }
}

/// Timing of the VAD.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VadTiming {
    /// Minimum duration of speech before its onset is reported.
    #[serde(rename = "start")]
    pub min_speech_duration: Duration,
    /// Minimum duration of silence before the end of speech is reported.
    #[serde(rename = "silence")]
    pub min_silence_duration: Duration,
}

/// The message with which the agent starts the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// The text.
    #[serde(rename = "say")]
    pub text: String,
    /// Time from the start of the call to the TTS request.
    #[serde(rename = "wait")]
    pub delay: Duration,
}

/// How text is split into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phrasing {
    /// Live: while the text streams in. The first phrase is sent early, then whole sentences, each
    /// as soon as it is complete.
    Stream,
    /// `simulate`: only where the LLM flushes, and only when the generation is complete.
    Flushed,
}

impl Phrasing {
    /// Maximum number of segments of an utterance that are at the TTS or wait for playout,
    /// including the playing one. The rest waits in the conversation.
    ///
    /// In a live call a long text must not block the TTS for other calls, and audio should not be
    /// synthesized only to be discarded. A script's segments are all requested at once.
    pub(crate) fn max_segments_ahead(self) -> usize {
        match self {
            Self::Stream => 3,
            Self::Flushed => usize::MAX,
        }
    }

    /// Maximum audio of the segments at the TTS that was not played, in samples at 48 kHz, for a
    /// further segment to be requested: 10 s. Providers bill text that is sent, also if the reply is
    /// interrupted.
    pub(crate) fn max_samples_ahead(self) -> u64 {
        match self {
            Self::Stream => 480_000,
            Self::Flushed => u64::MAX,
        }
    }
}

/// A tool, as far as turn-taking is concerned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// Spoken when the tool starts.
    pub on_start: Option<String>,
    /// Spoken once if the result is still pending `delay` after the start.
    pub on_delay: Option<String>,
    /// Time from the start of the tool to `on_delay`.
    pub delay: Duration,
    /// Spoken when the tool returns its result.
    pub on_success: Option<String>,
    /// Spoken when the tool fails.
    pub on_error: Option<String>,
    /// Whether a call of it ends the conversation, after its argument `farewell` was spoken. It is
    /// never run.
    #[serde(default)]
    pub ends_call: bool,
}
