//! How the agent takes part in a conversation of several people, such as a meeting.
//!
//! The VAD and the STT hear the mix of all people. Who speaks is reported separately
//! ([`Input::SpeakerStarted`](crate::contract::input::Input::SpeakerStarted)), often late, or not at
//! all.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contract::setting_error::SettingError;

/// Which utterances the agent answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParticipationMode {
    /// Every utterance, as in a call.
    OneToOne,
    /// Those that address the agent, and follow-ups to its answers.
    #[default]
    Participant,
    /// Those with the wake phrase.
    Observer,
}

impl ParticipationMode {
    /// The mode with this name. Unknown names count as [`Self::Participant`].
    #[must_use]
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            Some("one_to_one") => Self::OneToOne,
            Some("observer") => Self::Observer,
            _ => Self::Participant,
        }
    }

    /// The name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneToOne => "one_to_one",
            Self::Participant => "participant",
            Self::Observer => "observer",
        }
    }
}

/// What decides about utterances that the rules of [`ParticipationMode::Participant`] leave open:
/// those that are neither addressed to anybody nor a follow-up nor a backchannel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// The rules alone: they are not answered.
    #[default]
    Rules,
    /// The LLM, which is asked at most once in 10 s.
    Model,
}

/// The rules of a conversation of several people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Participation {
    /// Which utterances the agent answers.
    pub mode: ParticipationMode,
    /// Whether the mode holds only while several people are present
    /// ([`Input::PeoplePresent`](crate::contract::input::Input::PeoplePresent)). With one person,
    /// every utterance is answered, as in a call.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub only_with_several: bool,
    /// What decides where the rules do not.
    pub decide: Decider,
    /// The names by which people address the agent.
    pub names: Vec<String>,
    /// Words that address the agent in addition to its names; in [`ParticipationMode::Observer`],
    /// instead of them.
    pub wake_phrase: Option<String>,
    /// [`Spec::min_endpointing_delay`] unless the utterance ends with an address.
    ///
    /// [`Spec::min_endpointing_delay`]: crate::contract::spec::Spec::min_endpointing_delay
    pub min_endpointing_delay: Duration,
    /// The same for the maximum.
    pub max_endpointing_delay: Duration,
    /// Minimum silence of all people before an answer begins, unless the utterance ends with an
    /// address.
    pub min_silence_before_answer: Duration,
    /// Maximum time that an answer waits for this silence. It is then dropped.
    pub max_answer_wait: Duration,
    /// How long after the end of an answer the same speaker can follow up without an address.
    pub follow_up_window: Duration,
    /// The same for anybody, if speakers are not reported.
    pub anonymous_follow_up_window: Duration,
    /// Maximum time that the commit of an utterance waits for the name of its speaker.
    pub max_speaker_wait: Duration,
}

impl Default for Participation {
    fn default() -> Self {
        Self {
            mode: ParticipationMode::Participant,
            only_with_several: false,
            decide: Decider::Rules,
            names: Vec::new(),
            wake_phrase: None,
            min_endpointing_delay: Duration::from_secs(1),
            max_endpointing_delay: Duration::from_secs(4),
            min_silence_before_answer: Duration::from_millis(800),
            max_answer_wait: Duration::from_secs(6),
            follow_up_window: Duration::from_secs(8),
            anonymous_follow_up_window: Duration::from_secs(4),
            max_speaker_wait: Duration::from_millis(200),
        }
    }
}

impl Participation {
    /// Whether only some utterances are answered.
    #[must_use]
    pub fn is_group(&self) -> bool {
        self.mode != ParticipationMode::OneToOne
    }

    /// Checks that every value is in range.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), SettingError> {
        let max = Duration::from_secs(600);
        for (field, value) in [
            ("meeting.min_endpointing_delay", self.min_endpointing_delay),
            ("meeting.max_endpointing_delay", self.max_endpointing_delay),
            ("meeting.min_silence_before_answer", self.min_silence_before_answer),
            ("meeting.max_answer_wait", self.max_answer_wait),
            ("meeting.follow_up_window", self.follow_up_window),
            ("meeting.anonymous_follow_up_window", self.anonymous_follow_up_window),
            ("meeting.max_speaker_wait", self.max_speaker_wait),
        ] {
            if value > max {
                return Err(SettingError::new(field, "must be between 0 and 600"));
            }
        }
        if self.min_endpointing_delay > self.max_endpointing_delay {
            return Err(SettingError::new(
                "meeting.min_endpointing_delay",
                "must not be greater than max_endpointing_delay",
            ));
        }
        Ok(())
    }
}
