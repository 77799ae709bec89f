//! `[livekit]`.

use std::fmt;

use url::Url;

/// `[livekit]`: the LiveKit server whose rooms agents join.
#[derive(Clone)]
pub struct LiveKitConfig {
    /// `livekit.url`: `ws`, `wss`, `http` or `https`.
    pub url: String,
    /// `livekit.api_key`.
    pub api_key: String,
    /// `livekit.api_secret`. Secret.
    pub api_secret: String,
    /// `livekit.agent_name`: the name by which jobs are dispatched to this server; empty = jobs of
    /// all new rooms.
    pub agent_name: String,
    /// `livekit.default_agent`: id of the agent for jobs that name none.
    pub default_agent: Option<String>,
    /// `livekit.workspace`: name or id of the only workspace whose agents jobs may name; `None` = the
    /// oldest one.
    pub workspace: Option<String>,
}

impl fmt::Debug for LiveKitConfig {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveKitConfig")
            .field("url", &self.url)
            .field("agent_name", &self.agent_name)
            .finish_non_exhaustive()
    }
}

impl LiveKitConfig {
    /// Checks `livekit.url`.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn check_url(url: &str) -> Result<(), String> {
        let is_valid = Url::parse(url).is_ok_and(|url| {
            matches!(url.scheme(), "ws" | "wss" | "http" | "https") && url.has_host()
        });
        if is_valid { Ok(()) } else { Err("is not a ws, wss, http or https URL".to_owned()) }
    }
}
