//! Where the agent is in an external meeting.

use serde::{Deserialize, Serialize};

/// Where the agent is in an external meeting. In this order: a later status is never followed by an
/// earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeetingStatus {
    /// The meeting service sends the agent.
    Joining,
    /// The agent waits for its admission, or for the host.
    WaitingRoom,
    /// The agent is in the meeting.
    InCall,
    /// The agent has left, or the meeting has ended.
    Left,
    /// The meeting service has finished.
    Done,
    /// The agent could not join, or the meeting service has failed.
    Error,
}

impl MeetingStatus {
    /// All statuses.
    pub const ALL: [Self; 6] =
        [Self::Joining, Self::WaitingRoom, Self::InCall, Self::Left, Self::Done, Self::Error];

    /// The name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::WaitingRoom => "waiting_room",
            Self::InCall => "in_call",
            Self::Left => "left",
            Self::Done => "done",
            Self::Error => "error",
        }
    }

    /// The status with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether the agent is not in the meeting any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Left | Self::Done | Self::Error)
    }
}
