//! How the agent takes part in a meeting, as it is stored with the conversation.

use conversation::participation::{Participation, ParticipationMode};
use conversation::settings::SettingError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meeting_services::MediaMode;
use crate::store;
use crate::store::conversation::Row;

/// The settings of one meeting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeetingSettings {
    pub(crate) mode: ParticipationMode,
    /// Display name of the agent.
    pub(crate) name: String,
    pub(crate) wake_phrase: Option<String>,
    /// Whether the media go through a page; otherwise through a socket.
    pub(crate) is_page: bool,
}

impl MeetingSettings {
    /// Those of a conversation; `None` if it is not in a meeting.
    pub(crate) fn of_row(row: &Row) -> store::Result<Option<Self>> {
        let Some(text) = &row.meeting else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|_| {
            store::Error::CorruptRow("conversation", "its meeting is not valid".into())
        })
    }

    /// How the media reach the meeting.
    pub(crate) fn media_mode(&self) -> MediaMode {
        if self.is_page { MediaMode::Page } else { MediaMode::Socket }
    }

    /// The rules of turn-taking. `settings`: `config.turn.meeting` of the agent.
    ///
    /// # Errors
    /// An invalid setting.
    pub(crate) fn participation(
        &self,
        settings: Option<&Value>,
    ) -> Result<Participation, SettingError> {
        let mut rules = Participation {
            mode: self.mode,
            // Nobody in the meeting knows the name that the agent has in this server.
            names: vec![self.name.clone()],
            wake_phrase: self.wake_phrase.clone(),
            ..Participation::default()
        };
        rules.apply(settings)?;
        Ok(rules)
    }
}
