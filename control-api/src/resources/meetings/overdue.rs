//! The time limits of a bot.

use std::time::Duration;

use super::settings::MeetingSettings;
use crate::clock::{self, Micros};
use crate::config::MeetingsConfig;
use crate::meeting_services::{Detail, MediaMode};
use crate::store;
use crate::store::conversation::Row as Conversation;
use crate::store::meeting::Row;

/// A bot whose creation has no result after this time is not created: the server was stopped.
pub(super) const CREATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a bot may not stay any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The service has not answered whether it created the bot.
    Creation,
    /// Nobody admitted the bot.
    Lobby,
    /// The bot is in the meeting, but its page or socket has not joined the call.
    NoMedia,
    /// Everyone else has left.
    Alone,
}

impl Overdue {
    pub(super) const fn detail(self) -> Detail {
        match self {
            Self::Creation | Self::NoMedia => Detail::ServiceError,
            Self::Lobby => Detail::LobbyTimeout,
            Self::Alone => Detail::Alone,
        }
    }
}

/// Which time limit of a bot is over. `is_joined`: whether its page or socket has joined the call.
pub(super) fn find_overdue(
    config: &MeetingsConfig,
    row: &Row,
    is_joined: bool,
    now: Micros,
) -> Option<Overdue> {
    let is_over = |since: Micros, limit: Duration| now - since >= clock::to_micros(limit);
    if row.bot.is_empty() {
        return is_over(row.created_at, CREATION_TIMEOUT).then_some(Overdue::Creation);
    }
    let Some(entered) = row.entered_at else {
        return is_over(row.created_at, config.lobby_timeout).then_some(Overdue::Lobby);
    };
    // Others may have left while the bot waited for its admission.
    let alone_since = row.alone_since.map(|since| since.max(entered));
    if alone_since.is_some_and(|since| is_over(since, config.alone_timeout)) {
        return Some(Overdue::Alone);
    }
    // A page or socket that was lost later is waited for by the call.
    (!is_joined && is_over(entered, config.reconnect_timeout)).then_some(Overdue::NoMedia)
}

/// Warning of a conversation whose page or socket has not arrived.
pub(super) fn missing_media(conversation: &Conversation) -> store::Result<&'static str> {
    let settings = MeetingSettings::of_row(conversation)?;
    Ok(match settings.map(|settings| settings.media_mode()) {
        Some(MediaMode::Socket) => "The agent's audio socket did not connect to the call in time.",
        _ => "The agent's page did not connect to the call in time.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn config() -> MeetingsConfig {
        let seconds = Duration::from_secs;
        MeetingsConfig {
            lobby_timeout: seconds(600),
            alone_timeout: seconds(30),
            reconnect_timeout: seconds(60),
            ..MeetingsConfig::default()
        }
    }

    fn overdue(row: &Row, is_joined: bool, seconds: Micros) -> Option<Overdue> {
        find_overdue(&config(), row, is_joined, seconds * SECOND)
    }

    #[test]
    fn a_bot_waits_for_its_admission_and_then_for_its_page_or_socket() {
        let waiting = Row::for_test(0, None);
        assert_eq!(overdue(&waiting, false, 599), None);
        assert_eq!(overdue(&waiting, false, 600), Some(Overdue::Lobby));
        let entered = Row::for_test(0, Some(500 * SECOND));
        assert_eq!(overdue(&entered, false, 559), None);
        assert_eq!(overdue(&entered, false, 560), Some(Overdue::NoMedia));
        assert_eq!(overdue(&entered, true, 5_000), None);
        let mut uncreated = waiting;
        uncreated.bot = String::new();
        assert_eq!(overdue(&uncreated, false, 59), None);
        assert_eq!(overdue(&uncreated, false, 60), Some(Overdue::Creation));
    }

    #[test]
    fn an_agent_that_is_alone_leaves_whether_its_page_has_joined_or_not() {
        let alone = |since: Micros| {
            let mut row = Row::for_test(0, Some(10 * SECOND));
            row.alone_since = Some(since * SECOND);
            row
        };
        for is_joined in [true, false] {
            assert_eq!(overdue(&alone(20), is_joined, 49), None, "{is_joined}");
            assert_eq!(overdue(&alone(20), is_joined, 50), Some(Overdue::Alone), "{is_joined}");
            // They left before the agent entered.
            assert_eq!(overdue(&alone(1), is_joined, 39), None, "{is_joined}");
            assert_eq!(overdue(&alone(1), is_joined, 40), Some(Overdue::Alone), "{is_joined}");
        }
        let mut waiting = Row::for_test(0, None);
        waiting.alone_since = Some(0);
        assert_eq!(overdue(&waiting, false, 599), None, "it has not entered");
    }
}
