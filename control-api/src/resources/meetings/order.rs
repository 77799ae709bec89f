//! The bot that a meeting service is asked for.

use std::time::Duration;

use conversation::visible_text::{is_invisible, is_joiner};

use crate::config::MeetingsConfig;
use crate::meeting_services::{BotOrder, MediaMode, ServiceAccount};
use crate::resources::call_limits::max_call_duration;
use crate::resources::meetings::settings::MeetingSettings;
use crate::state::meetings::{Meetings, WebhookAccount};
use crate::store::agent::Agent;
use crate::store::conversation::Row;
use crate::store::meeting::WORKSPACE_ACCOUNT;
use crate::store::{self, json_record};

/// Maximum characters of the agent's name in a meeting.
pub(super) const MAX_NAME_CHARS: usize = 100;

/// A display name that every platform accepts: without control characters, without characters that
/// nobody sees, and without those above U+FFFF, such as emoji. A long one is cut.
pub(super) fn display_name(name: &str) -> String {
    let is_allowed = |c: &char| u32::from(*c) <= 0xffff && !c.is_control() && !is_blank(*c);
    let allowed: String = name.chars().filter(is_allowed).collect();
    let allowed = allowed.split_whitespace().collect::<Vec<_>>().join(" ");
    if allowed.chars().count() <= MAX_NAME_CHARS {
        return allowed;
    }
    let cut: String = allowed.chars().take(MAX_NAME_CHARS - 1).collect();
    format!("{}…", cut.trim_end())
}

/// Whether a character is not shown, or is blank although it is no white space (a Braille pattern
/// without dots).
pub(super) fn is_blank(c: char) -> bool {
    is_invisible(c) || is_joiner(c) || c == '\u{2800}'
}

/// The message for the meeting's chat; `None` if the operator wants none.
pub(super) fn chat_message(config: &MeetingsConfig, row: &Row) -> Option<String> {
    if let Some(message) = &config.message {
        return Some(message.trim().to_owned()).filter(|message| !message.is_empty());
    }
    let settings = MeetingSettings::of_row(row).ok()??;
    let agent: Option<Agent> = json_record::parse_document(&row.agent_document).ok();
    let is_recorded = agent.is_some_and(|agent| agent.settings.record);
    let recording = if is_recorded { " This conversation is recorded." } else { "" };
    Some(format!(
        "{} is an AI agent. It listens to this meeting and can speak.{recording}",
        settings.name
    ))
}

/// What an order is made of.
pub(super) struct OrderParts<'a> {
    pub(super) config: &'a MeetingsConfig,
    pub(super) meetings: &'a Meetings,
    pub(super) account: &'a ServiceAccount,
    /// Whose the account is.
    pub(super) owner: &'a str,
    pub(super) row: &'a Row,
    /// The link, with its password.
    pub(super) link: &'a str,
    pub(super) is_zoom: bool,
    /// `server.public_url`, with https.
    pub(super) base: &'a str,
    /// Session token of the conversation.
    pub(super) token: &'a str,
}

impl OrderParts<'_> {
    pub(super) fn into_order(self) -> store::Result<BotOrder> {
        let Self { config, row, base, token, account, .. } = self;
        let corrupt = || store::Error::CorruptRow("conversation", "it is not in a meeting".into());
        let settings = MeetingSettings::of_row(row)?.ok_or_else(corrupt)?;
        let agent: Agent = json_record::parse_document(&row.agent_document)?;
        let limit = max_call_duration(&agent.settings.config, &agent.settings.first_avatar());
        let mode = settings.media_mode();
        let media_url = match mode {
            MediaMode::Page => format!("{base}/meet/{}#token={token}", row.id),
            MediaMode::Socket => {
                let host = base.strip_prefix("https://").unwrap_or(base);
                format!("wss://{host}/meet/{}/audio?token={token}", row.id)
            }
        };
        let path = self.meetings.webhook_path(&WebhookAccount {
            provider: account.provider.to_owned(),
            workspace: (self.owner == WORKSPACE_ACCOUNT).then(|| row.workspace.clone()),
        });
        let callback_url = format!("{base}{path}");
        let webhook_url = account.webhook_secret.as_ref().map(|_| callback_url.clone());
        let email = agent.settings.email.filter(|email| !email.trim().is_empty());
        let login_group = email.as_deref().and_then(|email| {
            let email = email.trim().to_lowercase();
            let found = config.login_groups.iter().find(|(known, _)| *known == email);
            found.map(|(_, group)| group.clone())
        });
        Ok(BotOrder {
            conversation: row.id.clone(),
            link: self.link.to_owned(),
            is_zoom: self.is_zoom,
            name: settings.name,
            mode,
            media_url,
            webhook_url,
            callback_url,
            lobby_timeout: config.lobby_timeout,
            alone_timeout: config.alone_timeout,
            max_duration: limit.map_or(config.max_duration, Duration::from_secs_f64),
            message: chat_message(config, row),
            login_group,
            email,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_display_name_is_one_every_platform_accepts() {
        assert_eq!(display_name(" Clara \u{1f600}\n  Müller\u{7} "), "Clara Müller");
        assert_eq!(display_name("\u{1f600}"), "");
        assert_eq!(display_name("\u{202e}Cla\u{200b}ra\u{2069} \u{feff}M\u{ad}"), "Clara M");
        for invisible in
            ["\u{200b}", "\u{200d}\u{2066}", "\u{feff} \u{61c}", "\u{3164}", "\u{2800}"]
        {
            assert_eq!(display_name(invisible), "", "{invisible:?}");
        }
        let long = display_name(&"é".repeat(101));
        assert_eq!((long.chars().count(), long.ends_with("é…")), (MAX_NAME_CHARS, true));
        assert_eq!(display_name(&"é".repeat(100)), "é".repeat(100));
    }
}
