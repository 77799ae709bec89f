//! `[providers]`: the operator's accounts at vendors, and the providers of agents that name none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use models::registry::settings::{is_provider, key_fault, url_fault};
use models::registry::{
    Account, Accounts, DefaultProviders, HedgeDelays, Kind, ProviderTimeouts, VENDORS, Vendor,
};
use serde::Deserialize;

use super::secret_file::read_secret;
use super::source::ValueKind;

/// `[providers]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Providers {
    pub(crate) stt: Vec<String>,
    pub(crate) llm: Vec<String>,
    pub(crate) tts: Vec<String>,
    pub(crate) hedge: bool,
    pub(crate) hedge_llm_after: f64,
    pub(crate) hedge_tts_after: f64,
    /// `[providers.NAME]`
    #[serde(flatten)]
    pub(crate) accounts: BTreeMap<String, AccountSettings>,
}

impl Default for Providers {
    fn default() -> Self {
        let HedgeDelays { llm, tts } = HedgeDelays::default();
        Self {
            stt: Vec::new(),
            llm: Vec::new(),
            tts: Vec::new(),
            hedge: false,
            hedge_llm_after: llm.as_secs_f64(),
            hedge_tts_after: tts.as_secs_f64(),
            accounts: BTreeMap::new(),
        }
    }
}

/// `[providers.NAME]`
#[derive(Clone, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AccountSettings {
    pub(crate) api_key: Option<String>,
    pub(crate) api_key_file: Option<PathBuf>,
    pub(crate) base_url: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) workspaces: Option<Vec<String>>,
    pub(crate) share_data: bool,
    pub(crate) connect_timeout: Option<f64>,
    pub(crate) first_timeout: Option<f64>,
    pub(crate) gap_timeout: Option<f64>,
    pub(crate) final_timeout: Option<f64>,
}

impl std::fmt::Debug for AccountSettings {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountSettings").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

impl AccountSettings {
    /// The time limits in seconds, with their keys.
    fn timeouts(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("connect_timeout", self.connect_timeout),
            ("first_timeout", self.first_timeout),
            ("gap_timeout", self.gap_timeout),
            ("final_timeout", self.final_timeout),
        ]
    }
}

/// Keys of `[providers.NAME]`, and the types of their values.
pub(super) const ACCOUNT_KEYS: [(&str, ValueKind); 10] = [
    ("api_key", ValueKind::Text),
    ("api_key_file", ValueKind::Text),
    ("base_url", ValueKind::Text),
    ("model", ValueKind::Text),
    ("workspaces", ValueKind::TextList),
    ("share_data", ValueKind::Bool),
    ("connect_timeout", ValueKind::Number),
    ("first_timeout", ValueKind::Number),
    ("gap_timeout", ValueKind::Number),
    ("final_timeout", ValueKind::Number),
];

/// Range of a time limit, in seconds.
const TIMEOUTS: std::ops::RangeInclusive<f64> = 0.1..=60.0;

/// Names of `[providers.NAME]`.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    VENDORS.iter().map(|vendor| vendor.name)
}

/// Whether `name` is one of a vendor.
pub(super) fn is_vendor(name: &str) -> bool {
    Vendor::find(name).is_some()
}

impl Providers {
    /// Checks the time limits.
    ///
    /// # Errors
    /// The key, or that of the account, and what is wrong.
    pub(super) fn check_timeouts(&self) -> Result<(), (String, String)> {
        let (min, max) = (TIMEOUTS.start(), TIMEOUTS.end());
        let range = format!("a number of seconds between {min} and {max}");
        for (key, seconds) in
            [("hedge_llm_after", self.hedge_llm_after), ("hedge_tts_after", self.hedge_tts_after)]
        {
            if !TIMEOUTS.contains(&seconds) {
                return Err((format!("providers.{key}"), format!("is not {range}")));
            }
        }
        for (name, settings) in &self.accounts {
            for (key, seconds) in settings.timeouts() {
                if seconds.is_some_and(|seconds| !TIMEOUTS.contains(&seconds)) {
                    return Err((format!("providers.{name}"), format!("{key} is not {range}")));
                }
            }
        }
        Ok(())
    }

    /// Checks the names of providers, and the addresses and keys of the accounts. `variable` reads
    /// the environment, whose addresses and keys are checked, too.
    ///
    /// # Errors
    /// The key, or that of the account, or the variable, and what is wrong.
    pub(super) fn check_settings(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), (String, String)> {
        let lists = [(Kind::Stt, &self.stt), (Kind::Llm, &self.llm), (Kind::Tts, &self.tts)];
        for (kind, names) in lists {
            // The command line may allow the scripted models.
            if let Some(name) = names.iter().find(|name| !is_provider(kind, name, true)) {
                let name: String = name.chars().take(40).collect();
                let reason = format!("{name:?} is no {kind} provider");
                return Err((format!("providers.{}", kind.name()), reason));
            }
        }
        let mut vendors: Vec<(&str, &str)> = Vec::new();
        for name in self.accounts.keys() {
            let Some(vendor) = Vendor::find(name) else { continue };
            if let Some((_, other)) = vendors.iter().find(|(known, _)| *known == vendor.name) {
                let reason = format!("is the same provider as providers.{other}; keep one of them");
                return Err((format!("providers.{name}"), reason));
            }
            vendors.push((vendor.name, name));
        }
        for (name, settings) in &self.accounts {
            let has_control = |text: &String| text.chars().any(char::is_control);
            if settings.model.as_ref().is_some_and(has_control) {
                let reason = "model must not contain control characters".to_owned();
                return Err((format!("providers.{name}"), reason));
            }
            let fault = |key: &str, fault: &str| {
                Err((format!("providers.{name}"), format!("{key} {fault}")))
            };
            if let Some(why) = filled(settings.base_url.clone()).as_deref().and_then(url_fault) {
                return fault("base_url", why);
            }
            if let Some(why) = filled(settings.api_key.clone()).as_deref().and_then(key_fault) {
                return fault("api_key", why);
            }
        }
        for vendor in &VENDORS {
            let set = |end: &str| {
                let mut names = vendor.variable_names(end);
                names.find_map(|name| Some((filled(account_variable(&name, &variable))?, name)))
            };
            if let Some((url, name)) = set("BASE_URL")
                && let Some(why) = url_fault(&url)
            {
                return Err((name, why.into()));
            }
            if let Some((key, name)) = set("API_KEY")
                && let Some(why) = key_fault(&key)
            {
                return Err((name, why.into()));
            }
        }
        Ok(())
    }

    /// The delays of hedged requests; `None` = requests are not hedged.
    pub(crate) fn hedge_delays(&self) -> Option<HedgeDelays> {
        let delay = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        let (llm, tts) = (delay(self.hedge_llm_after)?, delay(self.hedge_tts_after)?);
        self.hedge.then_some(HedgeDelays { llm, tts })
    }

    /// The time limits by the vendor's name.
    pub(crate) fn timeouts(&self) -> BTreeMap<&'static str, ProviderTimeouts> {
        let of_account = |(name, settings): (&String, &AccountSettings)| {
            let [connect, first, gap, final_transcript] = settings
                .timeouts()
                .map(|(_, seconds)| seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()));
            let timeouts = ProviderTimeouts { connect, first, gap, final_transcript };
            Some((Vendor::find(name)?.name, timeouts))
        };
        self.accounts.iter().filter_map(of_account).collect()
    }

    /// Reads the keys that are in files, and fills `api_key` with them.
    ///
    /// # Errors
    /// The name of the account, and what is wrong.
    pub(super) fn read_key_files(&mut self) -> Result<(), (String, String)> {
        for (name, settings) in &mut self.accounts {
            let Some(path) = &settings.api_key_file else { continue };
            let key = format!("providers.{name}");
            if settings.api_key.is_some() {
                return Err((key, "has both api_key and api_key_file; keep one of them".into()));
            }
            settings.api_key = Some(read_secret(path).map_err(|why| (key, why))?);
        }
        Ok(())
    }

    /// The accounts of the file and of the environment.
    pub(crate) fn accounts(&self) -> Accounts {
        let account = |settings: &AccountSettings| Account {
            url: filled(settings.base_url.clone()),
            token: filled(settings.api_key.clone()),
            model: filled(settings.model.clone()),
            workspaces: settings.workspaces.clone(),
            share_data: settings.share_data,
        };
        let file = self.accounts.iter().map(|(name, s)| (name.clone(), account(s))).collect();
        Accounts::new(file, environment_variable).unwrap_or_else(|unknown| {
            // `ConfigSource` has rejected it.
            tracing::error!(unknown, "a provider of the configuration is not known");
            Accounts::default()
        })
    }

    /// The providers of agents that name none.
    pub(crate) fn defaults(&self) -> DefaultProviders {
        DefaultProviders { stt: self.stt.clone(), llm: self.llm.clone(), tts: self.tts.clone() }
    }
}

/// A text without blanks around it; `None` if nothing is left.
fn filled(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A variable, or for a key the content of its file, if that can be read.
fn account_variable(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let of_file = || {
        let path = variable(&format!("{name}_FILE")).filter(|path| !path.is_empty())?;
        read_secret(Path::new(&path)).ok()
    };
    variable(name).or_else(|| name.ends_with("_API_KEY").then(of_file).flatten())
}

/// A variable, or for a key the content of the file that `NAME_FILE` names.
fn environment_variable(name: &str) -> Option<String> {
    if let Ok(value) = std::env::var(name) {
        return Some(value);
    }
    if !name.ends_with("_API_KEY") {
        return None;
    }
    let path = std::env::var_os(format!("{name}_FILE")).filter(|path| !path.is_empty())?;
    match read_secret(Path::new(&path)) {
        Ok(key) => Some(key),
        Err(reason) => {
            tracing::error!(variable = format!("{name}_FILE"), reason, "a key is not read");
            None
        }
    }
}

/// The variables `NAME_API_KEY_FILE` whose file cannot be read, each with the reason. `variable`
/// reads the environment.
pub(crate) fn unreadable_key_files(
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let names = VENDORS.iter().flat_map(|vendor| vendor.variable_names("API_KEY"));
    let fault = |name: String| {
        if variable(&name).is_some() {
            return None;
        }
        let name = format!("{name}_FILE");
        let path = variable(&name).filter(|path| !path.is_empty())?;
        Some((name, read_secret(Path::new(&path)).err()?))
    };
    names.filter_map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(text: &str) -> Option<HedgeDelays> {
        toml::from_str::<Providers>(text).unwrap().hedge_delays()
    }

    #[test]
    fn key_files_that_cannot_be_read_are_named_with_the_reason() {
        let variable = |name: &str| match name {
            "DEEPGRAM_API_KEY_FILE" | "GROQ_API_KEY_FILE" => Some("/no/such/key".to_owned()),
            "GROQ_API_KEY" => Some("k".to_owned()),
            "OPENAI_API_KEY_FILE" => Some(String::new()),
            _ => None,
        };
        let found = unreadable_key_files(variable);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "DEEPGRAM_API_KEY_FILE");
        assert!(found[0].1.starts_with("/no/such/key cannot be read: "), "{found:?}");
    }

    #[test]
    fn names_addresses_and_keys_are_checked() {
        let check = |text: &str, set: (&str, &str)| {
            let providers: Providers = toml::from_str(text).unwrap();
            let variable = |name: &str| (name == set.0).then(|| set.1.to_owned());
            let checked = providers.check_settings(variable);
            checked.map_err(|(key, reason)| format!("{key}: {reason}")).err()
        };
        let form = "must be a URL of http, https, ws or wss with a host";
        let user = "must not contain a user name or a password";
        let control = "must not contain white space or control characters";
        for (text, expected) in [
            ("llm = [\"nobody\"]", "providers.llm: \"nobody\" is no LLM provider".to_owned()),
            (
                "stt = [\"builtin\", \"anthropic\"]",
                "providers.stt: \"anthropic\" is no speech-to-text provider".to_owned(),
            ),
            ("[groq]\nbase_url = \"not a url\"", format!("providers.groq: base_url {form}")),
            (
                "[groq]\nbase_url = \"http://u:secret@h\"",
                format!("providers.groq: base_url {user}"),
            ),
            ("[groq]\napi_key = \"secret\\nb\"", format!("providers.groq: api_key {control}")),
            (
                "[anthropic]\nmodel = \"a\"\n[claude]\nmodel = \"b\"",
                "providers.claude: is the same provider as providers.anthropic; keep one of them"
                    .to_owned(),
            ),
            (
                "[openai]\nmodel = \"a\\nb\"",
                "providers.openai: model must not contain control characters".to_owned(),
            ),
        ] {
            assert_eq!(check(text, ("", "")), Some(expected), "{text}");
        }
        for (name, value, expected) in [
            ("OPENAI_BASE_URL", "not a url", Some(form)),
            ("OPENAI_BASE_URL", "https://u:secret@h", Some(user)),
            ("ELEVEN_API_KEY", "a\u{7f}secret", Some(control)),
            ("GROQ_API_KEY", "two secrets", Some(control)),
            ("OPENAI_API_KEY", " k\n", None),
            ("OPENAI_BASE_URL", " ", None),
            ("OPENAI_API_KEY_FILE", "/no/such/file", None),
        ] {
            let expected = expected.map(|reason| format!("{name}: {reason}"));
            assert_eq!(check("", (name, value)), expected, "{name}={value}");
        }
        let valid = "stt = [\"Deepgram\", \"builtin\"]\nllm = [\"openai-responses\", \"script\"]\n\
            tts = [\"hibari\"]\n[custom]\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key = \"\"";
        assert_eq!(check(valid, ("", "")), None);
    }

    #[test]
    fn requests_are_hedged_after_the_configured_delays_if_that_is_switched_on() {
        assert_eq!(delays("hedge_llm_after = 3"), None);
        assert_eq!(delays("hedge = true"), Some(HedgeDelays::default()));
        let changed = delays("hedge = true\nhedge_llm_after = 2\nhedge_tts_after = 0.7").unwrap();
        let expected = (Duration::from_secs(2), Duration::from_millis(700));
        assert_eq!((changed.llm, changed.tts), expected);
        let wrong: Providers = toml::from_str("hedge_tts_after = 0").unwrap();
        let reason = "is not a number of seconds between 0.1 and 60".to_owned();
        assert_eq!(wrong.check_timeouts(), Err(("providers.hedge_tts_after".into(), reason)));
    }
}
