//! `[meetings]`.

use std::collections::BTreeMap;
use std::time::Duration;

use control_api::MeetingsConfig;
use serde::Deserialize;

use super::InvalidValue;

/// `[meetings]`
#[derive(Clone, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Meetings {
    pub(crate) provider: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) webhook_secret: Option<String>,
    pub(crate) media: String,
    /// Seconds.
    pub(crate) lobby_timeout: f64,
    pub(crate) alone_timeout: f64,
    pub(crate) max_duration: f64,
    pub(crate) reconnect_timeout: f64,
    pub(crate) message: Option<String>,
    /// Entries of the form `email=group`.
    pub(crate) login_groups: Vec<String>,
}

impl Default for Meetings {
    fn default() -> Self {
        let MeetingsConfig {
            media,
            lobby_timeout,
            alone_timeout,
            max_duration,
            reconnect_timeout,
            ..
        } = MeetingsConfig::default();
        Self {
            provider: None,
            url: None,
            key: None,
            webhook_secret: None,
            media,
            lobby_timeout: lobby_timeout.as_secs_f64(),
            alone_timeout: alone_timeout.as_secs_f64(),
            max_duration: max_duration.as_secs_f64(),
            reconnect_timeout: reconnect_timeout.as_secs_f64(),
            message: None,
            login_groups: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Meetings {
    /// Omits the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meetings").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// Maximum of each time, in seconds: a day.
const MAX_SECONDS: f64 = 86_400.0;

impl Meetings {
    pub(super) fn validate(&self) -> Result<(), InvalidValue> {
        if let Some(name) = &self.provider {
            MeetingsConfig::check_provider(name)
                .map_err(|reason| ("meetings.provider", format!("\"{name}\" {reason}")))?;
            if self.key.as_deref().is_none_or(str::is_empty) {
                return Err(("meetings.key", "is required if provider is set".into()));
            }
        }
        if let Some(url) = &self.url
            && !url::Url::parse(url)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        {
            return Err(("meetings.url", format!("\"{url}\" is not an http or https URL")));
        }
        if !matches!(&*self.media, "page" | "socket") {
            return Err((
                "meetings.media",
                format!("\"{}\" is neither \"page\" nor \"socket\"", self.media),
            ));
        }
        for (key, value) in [
            ("meetings.lobby_timeout", self.lobby_timeout),
            ("meetings.alone_timeout", self.alone_timeout),
            ("meetings.max_duration", self.max_duration),
            ("meetings.reconnect_timeout", self.reconnect_timeout),
        ] {
            if !(1.0..=MAX_SECONDS).contains(&value) {
                return Err((key, format!("{value} is not a number between 1 and {MAX_SECONDS}")));
            }
        }
        if let Some(entry) = self.login_groups.iter().find(|entry| split_group(entry).is_none()) {
            return Err((
                "meetings.login_groups",
                format!("\"{entry}\" does not have the form \"email=group\""),
            ));
        }
        Ok(())
    }

    /// The same for the control plane.
    pub(crate) fn config(&self) -> MeetingsConfig {
        let seconds = Duration::from_secs_f64;
        let groups: BTreeMap<&str, &str> =
            self.login_groups.iter().filter_map(|entry| split_group(entry)).collect();
        MeetingsConfig {
            provider: self.provider.clone(),
            url: self.url.clone(),
            key: self.key.clone(),
            webhook_secret: self.webhook_secret.clone(),
            media: self.media.clone(),
            lobby_timeout: seconds(self.lobby_timeout),
            alone_timeout: seconds(self.alone_timeout),
            max_duration: seconds(self.max_duration),
            reconnect_timeout: seconds(self.reconnect_timeout),
            message: self.message.clone(),
            login_groups: groups
                .into_iter()
                .map(|(email, group)| (email.to_lowercase(), group.to_owned()))
                .collect(),
        }
    }
}

/// The parts of `email=group`.
fn split_group(entry: &str) -> Option<(&str, &str)> {
    let (email, group) = entry.split_once('=')?;
    let (email, group) = (email.trim(), group.trim());
    (!email.is_empty() && !group.is_empty()).then_some((email, group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::CONFIG_KEYS;
    use crate::config::tests::load_toml;

    #[test]
    fn every_key_takes_its_value_from_the_environment() {
        type Getter = fn(&MeetingsConfig) -> String;
        let table: &[(&str, &str, Getter, &str)] = &[
            ("provider", "recall", |c| format!("{:?}", c.provider), "Some(\"recall\")"),
            ("url", "http://10.0.0.1", |c| format!("{:?}", c.url), "Some(\"http://10.0.0.1\")"),
            ("key", "42", |c| format!("{:?}", c.key), "Some(\"42\")"),
            ("webhook_secret", "s", |c| format!("{:?}", c.webhook_secret), "Some(\"s\")"),
            ("media", "socket", |c| c.media.clone(), "socket"),
            ("lobby_timeout", "30", |c| format!("{:?}", c.lobby_timeout), "30s"),
            ("alone_timeout", "2.5", |c| format!("{:?}", c.alone_timeout), "2.5s"),
            ("max_duration", "3600", |c| format!("{:?}", c.max_duration), "3600s"),
            ("reconnect_timeout", "9", |c| format!("{:?}", c.reconnect_timeout), "9s"),
            ("message", "7", |c| format!("{:?}", c.message), "Some(\"7\")"),
            (
                "login_groups",
                "a@b=g,c@d=h",
                |c| format!("{:?}", c.login_groups),
                r#"[("a@b", "g"), ("c@d", "h")]"#,
            ),
        ];
        for (key, text, value, expected) in table {
            let name = format!("VISAVIS_MEETINGS_{}", key.to_uppercase());
            let config = load_toml("[meetings]\nkey = \"k\"\n", &[(&name, text)]).unwrap();
            assert_eq!(value(&config.meetings.config()), *expected, "{name}={text}");
        }
        let section = CONFIG_KEYS.iter().find(|(name, _)| *name == "meetings").unwrap();
        let tested: Vec<&str> = table.iter().map(|(key, ..)| *key).collect();
        assert_eq!(section.1.iter().map(|(key, _)| *key).collect::<Vec<_>>(), tested);
    }

    #[test]
    fn invalid_values_are_refused_with_their_place() {
        let fault = |text: &str| load_toml(&format!("[meetings]\n{text}"), &[]).unwrap_err();
        assert_eq!(
            fault("provider = \"zoom\""),
            "FILE:2: meetings.provider: \"zoom\" is not a meeting service; known are attendee, \
             recall, meetingbaas"
        );
        assert!(fault("provider = \"recall\"").contains("meetings.key: is required"));
        assert!(fault("url = \"ftp://x\"").contains("is not an http or https URL"));
        assert!(fault("media = \"video\"").contains("is neither \"page\" nor \"socket\""));
        assert!(fault("lobby_timeout = 0").contains("0 is not a number between 1 and 86400"));
        assert!(fault("login_groups = [\"a@b\"]").contains("\"email=group\""));
    }

    #[test]
    fn login_groups_are_found_by_email() {
        let text = "[meetings]\nlogin_groups = [\" Clara@Example.com = Sales \"]\n";
        let groups = load_toml(text, &[]).unwrap().meetings.config().login_groups;
        assert_eq!(groups, [("clara@example.com".to_owned(), "Sales".to_owned())]);
    }
}
