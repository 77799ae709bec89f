//! Settings of a conversation of several people, from an agent's configuration or a scenario file.

use core::time::Duration;

use serde_json::Value;

use crate::contract::participation::{Decider, Participation};
use crate::contract::setting_error::SettingError;
use crate::contract::settings::parse_seconds;

/// The keys of `config.turn.meeting`. All but `decide` and `room_mode` are in seconds.
pub const MEETING_SETTING_KEYS: [&str; 9] = [
    "decide",
    "room_mode",
    "min_endpointing_delay",
    "max_endpointing_delay",
    "min_silence_before_answer",
    "max_answer_wait",
    "follow_up_window",
    "anonymous_follow_up_window",
    "max_speaker_wait",
];

impl Participation {
    /// Sets one of [`MEETING_SETTING_KEYS`]. Returns whether the setting exists.
    ///
    /// # Errors
    /// A value of the wrong type or out of range.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<bool, SettingError> {
        let setting = match key {
            "min_endpointing_delay" => &mut self.min_endpointing_delay,
            "max_endpointing_delay" => &mut self.max_endpointing_delay,
            "min_silence_before_answer" => &mut self.min_silence_before_answer,
            "max_answer_wait" => &mut self.max_answer_wait,
            "follow_up_window" => &mut self.follow_up_window,
            "anonymous_follow_up_window" => &mut self.anonymous_follow_up_window,
            "max_speaker_wait" => &mut self.max_speaker_wait,
            "decide" => {
                self.decide = match value.as_str() {
                    Some("rules") => Decider::Rules,
                    Some("model") => Decider::Model,
                    _ => {
                        return Err(SettingError::new("meeting.decide", "must be rules or model"));
                    }
                };
                return Ok(true);
            }
            // The mode of LiveKit rooms. That of a meeting is part of the request for it.
            "room_mode" => {
                return match value.as_str() {
                    Some("one_to_one" | "participant" | "observer") => Ok(true),
                    _ => Err(SettingError::new(
                        "meeting.room_mode",
                        "must be one_to_one, participant or observer",
                    )),
                };
            }
            _ => return Ok(false),
        };
        let field = format!("meeting.{key}");
        *setting = Duration::from_secs_f64(parse_seconds(&field, value)?);
        Ok(true)
    }

    /// Applies the known keys of `config.turn.meeting`. Others are ignored.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn apply(&mut self, meeting: Option<&Value>) -> Result<(), SettingError> {
        match meeting {
            None | Some(Value::Null) => {}
            Some(Value::Object(meeting)) => {
                for (key, value) in meeting {
                    self.set(key, value)?;
                }
            }
            Some(_) => return Err(SettingError::new("meeting", "must be an object")),
        }
        self.validate()
    }
}
