//! `[recording]` and `[storage]`.

use serde::Deserialize;

use super::InvalidValue;

/// `[recording]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Recording {
    /// MiB that must be free on the disk of the data folder; below, all recordings end; 0 = off.
    pub(crate) min_free: u64,
    /// Seconds for which a link to a recording is valid.
    pub(crate) link_seconds: u64,
}

impl Default for Recording {
    fn default() -> Self {
        Self { min_free: 1024, link_seconds: 3600 }
    }
}

/// Signed links of Amazon S3 are valid for at most seven days.
const MAX_LINK_SECONDS: u64 = 7 * 86_400;

impl Recording {
    pub(super) fn validate(&self) -> Result<(), InvalidValue> {
        if !(1..=MAX_LINK_SECONDS).contains(&self.link_seconds) {
            return Err((
                "recording.link_seconds",
                format!(
                    "{} is not a number of seconds between 1 and {MAX_LINK_SECONDS}",
                    self.link_seconds
                ),
            ));
        }
        Ok(())
    }
}

/// `[storage]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Storage {
    pub(crate) url: Option<String>,
}

/// Prefixes of the vendors' standard variables for credentials and endpoints.
const VENDOR_PREFIXES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

impl Storage {
    pub(super) fn validate(&self) -> Result<(), InvalidValue> {
        let Some(url) = &self.url else { return Ok(()) };
        control_api::StorageConfig::check_url(url)
            .map_err(|reason| ("storage.url", format!("\"{url}\" {reason}")))
    }

    /// The storage, with the vendors' variables of the environment.
    pub(crate) fn config(&self) -> control_api::StorageConfig {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            VENDOR_PREFIXES.iter().any(|prefix| name.starts_with(prefix)).then_some((name, value))
        });
        control_api::StorageConfig { url: self.url.clone(), options: variables.collect() }
    }
}
