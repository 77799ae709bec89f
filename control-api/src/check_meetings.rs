//! What `visavis check` reports about the meeting service of the operator.

use std::path::Path;

use crate::config::MeetingsConfig;
use crate::meeting_services::{MediaMode, SERVICES, is_secret, media_mode};
use crate::secret_key::SecretKey;
use crate::state::meetings::{Meetings, WebhookAccount};
use crate::store::vault;

/// What the check needs of the configuration.
pub struct MeetingsCheck<'a> {
    /// `[meetings]`
    pub config: &'a MeetingsConfig,
    /// `server.public_url`
    pub public_url: Option<&'a str>,
    /// `server.data`
    pub data: &'a Path,
    /// `server.tokens_key`
    pub tokens_key: Option<&'a SecretKey>,
}

impl MeetingsCheck<'_> {
    /// How agents get into meetings with the operator's account, in a few lines; `Ok(None)` without
    /// one.
    ///
    /// # Errors
    /// Why they do not, in one sentence.
    pub fn report(&self) -> Result<Option<String>, String> {
        let Some(name) = &self.config.provider else {
            return match self.config.key.as_deref() {
                None | Some("") => Ok(None),
                Some(_) => {
                    Err("meetings.key is set without meetings.provider: nothing uses it".into())
                }
            };
        };
        if let Some(secret) = &self.config.webhook_secret
            && !is_secret(secret)
        {
            return Err(
                "meetings.webhook_secret is not in base64: no webhook would be accepted".into()
            );
        }
        let known = SERVICES.into_iter().find(|(known, _)| known == name);
        let Some((provider, display_name)) = known else {
            return Err(format!("\"{name}\" is not a meeting service"));
        };
        let Some(base) = self.public_url.filter(|url| url.starts_with("https://")) else {
            return Err(
                "set server.public_url to an address with https: the service opens addresses \
                        of this server"
                    .into(),
            );
        };
        let mut lines = vec![match media_mode(provider, self.config.preferred_media()) {
            MediaMode::Page => format!("{display_name}, which opens pages of {base}"),
            MediaMode::Socket => {
                format!("{display_name}, which opens WebSockets of {base}; without video")
            }
        }];
        if provider == "meetingbaas" {
            lines.push(
                "It does not report who is in a meeting: its own time limits apply to an agent that \
                 is alone"
                    .into(),
            );
        }
        match (&self.config.webhook_secret, provider) {
            (None, _) => lines.push("No webhook_secret: its status is polled".into()),
            (Some(_), "attendee") => {}
            (Some(_), _) => match self.webhook_path(provider) {
                Ok(Some(path)) => {
                    lines.push(format!(
                        "Address for its webhooks: {}{path}",
                        base.trim_end_matches('/')
                    ));
                }
                Ok(None) => {
                    lines.push(
                        "The first start of the server creates the address for webhooks".into(),
                    );
                }
                Err(error) => return Err(format!("tokens.key cannot be read: {error}")),
            },
        }
        Ok(Some(lines.join("\n")))
    }

    /// The path of its webhooks; `None` if the server was never started.
    fn webhook_path(&self, provider: &str) -> std::io::Result<Option<String>> {
        let file = self.data.join("tokens.key");
        let key = match self.tokens_key {
            Some(key) => *key.bytes(),
            None if file.exists() => vault::load_or_create_key(&file)?,
            None => return Ok(None),
        };
        let account = WebhookAccount { provider: provider.to_owned(), workspace: None };
        Ok(Some(Meetings::new(&key).webhook_path(&account)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_needs_https_and_its_limits_are_named() {
        let config = |provider: Option<&str>, secret: Option<&str>| MeetingsConfig {
            provider: provider.map(str::to_owned),
            key: Some("k".into()),
            webhook_secret: secret.map(str::to_owned),
            ..MeetingsConfig::default()
        };
        let report = |config: &MeetingsConfig, public_url: Option<&str>| {
            let data = Path::new("/nonexistent");
            MeetingsCheck { config, public_url, data, tokens_key: None }.report()
        };
        let refused = report(&config(None, None), None).unwrap_err();
        assert!(refused.contains("without meetings.provider"), "{refused}");
        for key in [None, Some(String::new())] {
            let unused = MeetingsConfig { key, ..MeetingsConfig::default() };
            assert_eq!(report(&unused, None), Ok(None));
        }
        let attendee = config(Some("attendee"), None);
        for url in [None, Some("http://here.example")] {
            assert!(report(&attendee, url).unwrap_err().contains("with https"), "{url:?}");
        }
        let text = |config: &MeetingsConfig| {
            report(config, Some("https://here.example")).unwrap().unwrap()
        };
        assert!(text(&attendee).contains("its status is polled"));
        let wrong = config(Some("attendee"), Some("not base64"));
        assert!(report(&wrong, Some("https://here.example")).unwrap_err().contains("base64"));
        let baas = text(&config(Some("meetingbaas"), Some("whsec_AAAA")));
        assert!(baas.contains("does not report who") && baas.contains("first start"), "{baas}");
    }
}
