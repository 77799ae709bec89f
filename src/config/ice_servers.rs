//! `media.ice_servers`: STUN and TURN servers for the pages.

use std::path::PathBuf;

use serde::Deserialize;

use super::InvalidValue;
use super::secret_file::read_secret;

/// Name of the key in error messages.
const KEY: &str = "media.ice_servers";

/// One entry, as the browser's `RTCIceServer`. `credential_file` is a key of this program.
#[derive(Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct IceServer {
    pub(crate) urls: Vec<String>,
    #[serde(default)]
    pub(crate) username: Option<String>,
    #[serde(default)]
    pub(crate) credential: Option<String>,
    /// File that contains the credential.
    #[serde(default)]
    pub(crate) credential_file: Option<PathBuf>,
}

impl std::fmt::Debug for IceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IceServer").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// Reads the credentials that are in files, and fills `credential` with them.
///
/// # Errors
/// The key, and what is wrong with a file.
pub(super) fn read_credential_files(servers: &mut [IceServer]) -> Result<(), InvalidValue> {
    for server in servers {
        let Some(path) = &server.credential_file else { continue };
        if server.credential.is_some() {
            let both = "an entry has both credential and credential_file; keep one of them";
            return Err((KEY, both.into()));
        }
        server.credential = Some(read_secret(path).map_err(|reason| (KEY, reason))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::tests::load_toml;

    #[test]
    fn a_turn_credential_may_be_in_a_file() {
        let file = std::env::temp_dir().join(format!("visavis-turn-{}", std::process::id()));
        std::fs::write(&file, "from-a-file\n").unwrap();
        let entry = |more: &str| {
            format!(
                "[{{ urls = [\"turn:a\"], username = \"u\", credential_file = '{}'{more} }}]",
                file.display()
            )
        };
        let toml = format!("[media]\nice_servers = {}\n", entry(""));
        let variable = entry("");
        for config in [
            load_toml(&toml, &[]),
            load_toml("", &[("VISAVIS_MEDIA_ICE_SERVERS", variable.as_str())]),
        ] {
            let config = config.unwrap();
            let [server] = &config.media.ice_servers[..] else { panic!("one server") };
            assert_eq!(server.credential.as_deref(), Some("from-a-file"));
            assert!(!format!("{config:?}").contains("from-a-file"));
        }

        let fault =
            |entry: &str| load_toml(&format!("[media]\nice_servers = {entry}\n"), &[]).unwrap_err();
        let both = fault(&entry(", credential = \"c\""));
        assert!(both.contains("media.ice_servers: an entry has both credential and"), "{both}");
        std::fs::remove_file(&file).unwrap();
        let missing = fault(&entry(""));
        assert!(missing.contains("cannot be read"), "{missing}");
        let unknown = fault("[{ urls = [\"turn:a\"], credentials = \"c\" }]");
        assert!(unknown.contains("media.ice_servers") && !unknown.contains("\"c\""), "{unknown}");
    }
}
