//! `[livekit]`.

use control_api::LiveKitConfig;
use serde::Deserialize;

use super::InvalidValue;

/// Name of the agent for dispatches, unless the operator chooses another.
const DEFAULT_AGENT_NAME: &str = "visavis";
/// Minimum length of the secret in bytes: LiveKit refuses shorter ones.
const MIN_SECRET_BYTES: usize = 32;

/// `[livekit]`
#[derive(Clone, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct LiveKit {
    pub(crate) url: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) api_secret: Option<String>,
    pub(crate) agent_name: String,
    pub(crate) default_agent: Option<String>,
    pub(crate) workspace: Option<String>,
}

impl Default for LiveKit {
    fn default() -> Self {
        Self {
            url: None,
            api_key: None,
            api_secret: None,
            agent_name: DEFAULT_AGENT_NAME.to_owned(),
            default_agent: None,
            workspace: None,
        }
    }
}

impl std::fmt::Debug for LiveKit {
    /// Omits the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveKit").field("url", &self.url).finish_non_exhaustive()
    }
}

impl LiveKit {
    /// Takes what is absent from the variables that all programs for LiveKit read.
    pub(super) fn add_standard_variables(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for (value, name) in [
            (&mut self.url, "LIVEKIT_URL"),
            (&mut self.api_key, "LIVEKIT_API_KEY"),
            (&mut self.api_secret, "LIVEKIT_API_SECRET"),
        ] {
            if value.is_none() {
                *value = variable(name).filter(|text| !text.trim().is_empty());
            }
        }
    }

    pub(super) fn validate(&self) -> Result<(), InvalidValue> {
        let Some(url) = &self.url else { return Ok(()) };
        LiveKitConfig::check_url(url)
            .map_err(|reason| ("livekit.url", format!("\"{url}\" {reason}")))?;
        let is_missing = |value: &Option<String>| value.as_deref().is_none_or(str::is_empty);
        if is_missing(&self.api_key) {
            return Err(("livekit.api_key", "is required if url is set".into()));
        }
        if is_missing(&self.api_secret) {
            return Err(("livekit.api_secret", "is required if url is set".into()));
        }
        if self.api_secret.as_ref().is_some_and(|secret| secret.len() < MIN_SECRET_BYTES) {
            let reason = format!("has fewer than {MIN_SECRET_BYTES} characters");
            return Err(("livekit.api_secret", reason));
        }
        Ok(())
    }

    /// Whether agents join LiveKit rooms.
    pub(crate) fn is_used(&self) -> bool {
        self.url.is_some()
    }

    /// The same for the control plane; `None` without a URL.
    pub(crate) fn config(&self) -> Option<LiveKitConfig> {
        Some(LiveKitConfig {
            url: self.url.clone()?.trim().trim_end_matches('/').to_owned(),
            api_key: self.api_key.clone()?,
            api_secret: self.api_secret.clone()?,
            agent_name: self.agent_name.clone(),
            default_agent: self.default_agent.clone(),
            workspace: self.workspace.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::CONFIG_KEYS;
    use crate::config::tests::load_toml;

    const BASE: &str = "[livekit]\nurl = \"ws://127.0.0.1:7880\"\napi_key = \"k\"\n\
                        api_secret = \"a-secret-of-at-least-32-characters\"\n";

    #[test]
    fn every_key_takes_its_value_from_the_environment() {
        type Getter = fn(&LiveKitConfig) -> String;
        let secret = "another-secret-of-32-characters!";
        let table: &[(&str, &str, Getter, &str)] = &[
            ("url", "wss://lk.example/", |c| c.url.clone(), "wss://lk.example"),
            ("api_key", "42", |c| c.api_key.clone(), "42"),
            ("api_secret", secret, |c| c.api_secret.clone(), secret),
            ("agent_name", "7", |c| c.agent_name.clone(), "7"),
            ("default_agent", "a", |c| format!("{:?}", c.default_agent), "Some(\"a\")"),
            ("workspace", "w", |c| format!("{:?}", c.workspace), "Some(\"w\")"),
        ];
        for (key, text, value, expected) in table {
            let name = format!("VISAVIS_LIVEKIT_{}", key.to_uppercase());
            let config = load_toml(BASE, &[(&name, text)]).unwrap();
            assert_eq!(value(&config.livekit.config().unwrap()), *expected, "{name}={text}");
        }
        let section = CONFIG_KEYS.iter().find(|(name, _)| *name == "livekit").unwrap();
        let tested: Vec<&str> = table.iter().map(|(key, ..)| *key).collect();
        assert_eq!(section.1.iter().map(|(key, _)| *key).collect::<Vec<_>>(), tested);
    }

    #[test]
    fn the_standard_variables_fill_what_is_absent() {
        let secret = "a-secret-of-at-least-32-characters";
        let variables = [
            ("LIVEKIT_URL", "ws://127.0.0.1:7880"),
            ("LIVEKIT_API_KEY", "standard"),
            ("LIVEKIT_API_SECRET", secret),
        ];
        let config = load_toml("[livekit]\napi_key = \"own\"\n", &variables).unwrap();
        let livekit = config.livekit.config().unwrap();
        assert_eq!((&*livekit.api_key, &*livekit.api_secret), ("own", secret));
        assert_eq!(livekit.agent_name, DEFAULT_AGENT_NAME);
        assert!(load_toml("", &[]).unwrap().livekit.config().is_none());
    }

    #[test]
    fn invalid_values_are_refused_with_their_place() {
        let fault = |text: &str| load_toml(&format!("[livekit]\n{text}"), &[]).unwrap_err();
        assert!(fault("url = \"ftp://x\"").contains("is not a ws, wss, http or https URL"));
        assert!(fault("url = \"ws://x\"").contains("livekit.api_key: is required if url is set"));
        let short = fault("url = \"ws://x\"\napi_key = \"k\"\napi_secret = \"short\"");
        assert!(short.contains("has fewer than 32 characters") && !short.contains("short\""));
    }
}
