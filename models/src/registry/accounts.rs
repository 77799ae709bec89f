//! Whose key and address a call uses.
//!
//! | the agent has | address | key | private addresses |
//! |---|---|---|---|
//! | `url` | the agent's | the agent's, or none | only if the policy allows them |
//! | `token` alone | the vendor's | the agent's | only if the policy allows them |
//! | neither | the operator's, or the vendor's | the operator's | allowed |
//!
//! An operator's key is never sent to an agent's `url`. The keys of a workspace come with the
//! agent's choice.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Registry;
use super::settings::key_fault;
use super::vendors::{CUSTOM, Kind, VENDORS, Vendor};

/// An account of the operator at a vendor, or a server of the operator with the vendor's interface.
/// It is trusted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Base URL; `None` = the vendor's.
    pub url: Option<String>,
    /// API key. Secret.
    pub token: Option<String>,
    /// Default model.
    pub model: Option<String>,
    /// Ids of the workspaces that may use it; `None` = all. The configuration has names, too: see
    /// [`Accounts::resolve_workspaces`].
    pub workspaces: Option<Vec<String>>,
    /// Whether the vendor may store what it gets and learn from it.
    pub share_data: bool,
}

impl fmt::Debug for Account {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("url", &self.url)
            .field("has_token", &self.token.is_some())
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl Account {
    fn serves(&self, workspace: &str) -> bool {
        self.workspaces.as_ref().is_none_or(|all| all.iter().any(|name| name == workspace))
    }
}

/// The operator's accounts, by the vendor's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts(BTreeMap<&'static str, Account>);

impl Accounts {
    /// The accounts of the file, by the vendor's name, and of the environment: `NAME_API_KEY`,
    /// `NAME_BASE_URL` and `NAME_MODEL`, through `variable`. A variable has precedence over the
    /// file. An account has a key or an address.
    ///
    /// # Errors
    /// The name of the file that is no vendor.
    pub fn new(
        file: BTreeMap<String, Account>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let mut accounts = BTreeMap::new();
        for (name, account) in file {
            let vendor = Vendor::find(&name).ok_or(name)?;
            accounts.insert(vendor.name, account);
        }
        for vendor in &VENDORS {
            let of = |end: &str| vendor.variable(end, &variable);
            let (token, url, model) = (of("API_KEY"), of("BASE_URL"), of("MODEL"));
            if token.is_none() && url.is_none() && !accounts.contains_key(vendor.name) {
                continue;
            }
            let account: &mut Account = accounts.entry(vendor.name).or_default();
            account.token = token.or_else(|| account.token.take());
            account.url = url.or_else(|| account.url.take());
            account.model = model.or_else(|| account.model.take());
        }
        accounts.retain(|_, account| account.token.is_some() || account.url.is_some());
        Ok(Self(accounts))
    }

    /// The account at a vendor, if `workspace` may use it.
    #[must_use]
    pub fn get(&self, vendor: &Vendor, workspace: &str) -> Option<&Account> {
        self.0.get(vendor.name).filter(|account| account.serves(workspace))
    }

    /// All accounts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Vendor, &Account)> {
        self.0.iter().filter_map(|(name, account)| Some((Vendor::find(name)?, account)))
    }

    /// Whether some accounts are limited to workspaces.
    #[must_use]
    pub fn name_workspaces(&self) -> bool {
        self.0.values().any(|account| account.workspaces.is_some())
    }

    /// Replaces the names of workspaces by their ids. `workspaces`: id and name of each. Returns
    /// the entries that are neither, with the vendor of the account.
    pub fn resolve_workspaces(
        &mut self,
        workspaces: &[(String, String)],
    ) -> Vec<(&'static Vendor, String)> {
        let mut unknown = Vec::new();
        for (vendor, account) in &mut self.0 {
            for entry in account.workspaces.iter_mut().flatten() {
                // A name may look like an id. The id has precedence.
                let by_id = workspaces.iter().find(|(id, _)| id.eq_ignore_ascii_case(entry));
                let by_name = || workspaces.iter().find(|(_, name)| name == entry.trim());
                match (by_id.or_else(by_name), Vendor::find(vendor)) {
                    (Some((id, _)), _) => entry.clone_from(id),
                    (None, Some(vendor)) => unknown.push((vendor, entry.clone())),
                    (None, None) => {}
                }
            }
        }
        unknown
    }

    /// Adds or replaces an account.
    pub fn insert(&mut self, vendor: &Vendor, account: Account) {
        self.0.insert(vendor.name, account);
    }
}

/// Time limits of a provider, whoever's key is used; `None` = the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderTimeouts {
    /// To open a connection while somebody waits for it.
    pub connect: Option<Duration>,
    /// To the first token, to the first sound, or to the first message of an STT about speech.
    pub first: Option<Duration>,
    /// Between two parts of an answer of an LLM or a TTS.
    pub gap: Option<Duration>,
    /// From the end of speech to the final transcript of an STT.
    pub final_transcript: Option<Duration>,
}

/// Address and key for a call.
pub(super) struct Access {
    /// Base URL; empty = the vendor's.
    pub(super) url: String,
    pub(super) token: Option<String>,
    /// The operator's default model.
    pub(super) model: String,
    pub(super) client: egress::Client,
    pub(super) share_data: bool,
    pub(super) timeouts: ProviderTimeouts,
}

/// A setting without blanks around it; `None` if nothing is left.
pub(super) fn non_empty(setting: Option<&String>) -> Option<&str> {
    setting.map(|text| text.trim()).filter(|text| !text.is_empty())
}

impl Registry {
    /// Address and key at `vendor` for an agent of `workspace` with its own `url` and `token`.
    ///
    /// # Errors
    /// Why there is none, without a full stop.
    pub(super) fn access(
        &self,
        vendor: &Vendor,
        kind: Kind,
        (url, token): (Option<&String>, Option<&String>),
        workspace: &str,
    ) -> Result<Access, String> {
        let (url, token) = (non_empty(url), non_empty(token));
        // It may have been stored by an earlier version, which accepted more.
        if let Some(fault) = token.and_then(key_fault) {
            return Err(format!("The API key for {} {fault}", vendor.display_name));
        }
        let account = self.config.accounts.get(vendor, workspace);
        let timeouts = self.config.timeouts.get(vendor.name).copied().unwrap_or_default();
        match (url, token, account) {
            (None, None, Some(account)) => Ok(Access {
                url: account.url.clone().unwrap_or_default(),
                token: account.token.clone(),
                // The model of the configuration is one of the vendor's first kind.
                model: account
                    .model
                    .clone()
                    .filter(|_| vendor.kinds.first() == Some(&kind))
                    .unwrap_or_default(),
                client: self.client.trusted(),
                share_data: account.share_data,
                timeouts,
            }),
            (None, None, None) if vendor.needs_key => {
                Err(format!("The {kind} provider {:?} needs an API key", vendor.name))
            }
            (None, ..) if vendor.name == CUSTOM && account.is_none() => {
                Err(format!("The {kind} provider {CUSTOM:?} requires a url"))
            }
            (url, token, _) => Ok(Access {
                url: url.unwrap_or_default().to_owned(),
                token: token.map(str::to_owned),
                model: String::new(),
                client: self.client.clone(),
                share_data: false,
                timeouts,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.clone())
    }

    fn account(accounts: &Accounts, name: &str) -> Account {
        accounts.get(Vendor::find(name).unwrap(), "w").cloned().unwrap_or_default()
    }

    #[test]
    fn an_account_needs_a_key_or_an_address() {
        for unset in [&[][..], &[("OPENAI_API_KEY", " ")], &[("ANTHROPIC_MODEL", "m")]] {
            let accounts = Accounts::new(BTreeMap::new(), variables(unset)).unwrap();
            assert_eq!(accounts.iter().count(), 0, "{unset:?}");
        }
        let set = [("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("ELEVEN_API_KEY", "k")];
        let accounts = Accounts::new(BTreeMap::new(), variables(&set)).unwrap();
        assert_eq!(account(&accounts, "openai").url.as_deref(), Some("http://127.0.0.1:1/v1"));
        assert_eq!(account(&accounts, "elevenlabs").token.as_deref(), Some("k"));
        assert_eq!(accounts.iter().count(), 2);
    }

    #[test]
    fn workspaces_are_named_or_given_by_their_ids() {
        let limited = Account {
            token: Some("k".into()),
            workspaces: Some(vec!["default".into(), "01A2".into(), "gone".into()]),
            ..Account::default()
        };
        let file = BTreeMap::from([("deepgram".to_owned(), limited)]);
        let mut accounts = Accounts::new(file, variables(&[("GROQ_API_KEY", "g")])).unwrap();
        assert!(accounts.name_workspaces());
        let all = [("01a1", "default"), ("01a2", "sales"), ("01a3", "support")]
            .map(|(id, name)| (id.to_owned(), name.to_owned()));
        let deepgram = Vendor::find("deepgram").unwrap();
        assert_eq!(accounts.resolve_workspaces(&all), [(deepgram, "gone".to_owned())]);
        for (id, may_use) in [("01a1", true), ("01a2", true), ("01a3", false)] {
            assert_eq!(accounts.get(deepgram, id).is_some(), may_use, "{id}");
        }
        assert!(accounts.get(Vendor::find("groq").unwrap(), "01a3").is_some());
    }

    #[test]
    fn variables_have_precedence_over_the_file_and_unknown_names_are_reported() {
        let in_file = Account {
            token: Some("file".into()),
            model: Some("nova-2".into()),
            workspaces: Some(vec!["a".into()]),
            ..Account::default()
        };
        let file = BTreeMap::from([("Deepgram".to_owned(), in_file.clone())]);
        let accounts = Accounts::new(file, variables(&[("DEEPGRAM_API_KEY", "env")])).unwrap();
        let deepgram = Vendor::find("deepgram").unwrap();
        assert_eq!(accounts.get(deepgram, "b"), None, "another workspace");
        let expected = Account { token: Some("env".into()), ..in_file.clone() };
        assert_eq!(accounts.get(deepgram, "a"), Some(&expected));
        assert!(!format!("{accounts:?}").contains("env"), "keys are not printed");
        let unknown = BTreeMap::from([("deepgrm".to_owned(), in_file)]);
        assert_eq!(Accounts::new(unknown, variables(&[])), Err("deepgrm".into()));
    }
}
