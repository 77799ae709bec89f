//! The operator's accounts at vendors, one real request to each of them (`visavis check --live`),
//! and the LLM servers of this machine.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{LlmChoice, SttChoice, TtsChoice};
use futures_util::future::join_all;
use models::llm::local_servers::{LocalServer, STANDARD_PORTS, TIME_LIMIT, local_servers_on};
use models::probe::{self, Speech};
use models::registry::{self, Account, Accounts, Kind, Registry, Vendor};
use models::tts::{self, Flite, Tts};

use super::{CheckResult, check_result};
use crate::config::Config;
use crate::config::providers::unreadable_key_files;
use crate::serve::unknown_workspace;

/// Time for each real request.
const LIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// What a voice says.
const SPOKEN_TEXT: &str = "Hello.";
/// What is transcribed, spoken by a voice of this program.
const TRANSCRIBED_TEXT: &str = "Hello, can you hear me?";

/// The lines of the report, and whether it is a failure: nothing of an account works, or the
/// configuration names what does not exist.
pub(super) fn check(config: &Config, live: bool) -> std::io::Result<(Vec<CheckResult>, bool)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // The addresses are the operator's.
    let client = egress::Client::new(egress::Policy { allow_private: true });
    let client = client.map_err(std::io::Error::other)?;
    let mut accounts = config.providers.accounts();
    let mut faults = key_file_faults(unreadable_key_files(|name| std::env::var(name).ok()));
    let mut failures = workspace_faults(config, &mut accounts, &runtime);
    failures.extend(default_faults(config, &accounts, &client, runtime.handle()));
    let has_failures = !failures.is_empty();
    faults.append(&mut failures);
    let own_port = config.server.listen.port();
    let found = runtime.block_on(async {
        let ports: Vec<_> =
            STANDARD_PORTS.into_iter().filter(|port| port.port != own_port).collect();
        local_servers_on(&client, &ports, TIME_LIMIT).await
    });
    let (mut lines, failed) = if live {
        let handle = runtime.handle().clone();
        runtime.block_on(live_results(&accounts, client, handle))
    } else {
        (configured_results(&accounts), false)
    };
    if !lines.iter().any(|line| line.kind == Kind::Llm.name()) {
        let detail = "the built-in answerer; set OPENAI_API_KEY, OPENAI_BASE_URL or \
                      ANTHROPIC_API_KEY to use a language model";
        lines.push(check_result("language model", "llm", true, false, detail.into()));
    }
    lines.append(&mut faults);
    lines.extend(local_results(&found, &accounts));
    // Requests that were given up may still run.
    runtime.shutdown_background();
    Ok((lines, failed || has_failures))
}

/// The default providers of the configuration that lack a key or an address.
fn default_faults(
    config: &Config,
    accounts: &Accounts,
    client: &egress::Client,
    runtime: &tokio::runtime::Handle,
) -> Vec<CheckResult> {
    let registry = registry_of(accounts, client.clone(), runtime.clone());
    let defaults = config.providers.defaults();
    let mut lines = Vec::new();
    for (kind, names) in
        [(Kind::Stt, defaults.stt), (Kind::Llm, defaults.llm), (Kind::Tts, defaults.tts)]
    {
        // The models of this server have lines of their own.
        for name in names {
            let Some(vendor) = Vendor::of_provider(&name) else { continue };
            let fault = match kind {
                Kind::Stt => {
                    let choice = SttChoice { provider: name, ..SttChoice::default() };
                    registry.single_stt(&choice).err()
                }
                Kind::Llm => {
                    let choice = LlmChoice { provider: name, ..LlmChoice::default() };
                    registry.single_llm(&choice, "Visavis").err()
                }
                Kind::Tts => {
                    let choice = TtsChoice { provider: name, ..TtsChoice::default() };
                    registry.single_tts(&choice).err()
                }
            };
            if let Some(why) = fault {
                let why = format!("failed: providers.{}: {why}", kind.name());
                lines.push(check_result(vendor.display_name, kind.name(), false, false, why));
            }
        }
    }
    lines
}

/// The models of `accounts`. The operator may use those that are limited to some workspaces.
fn registry_of(
    accounts: &Accounts,
    client: egress::Client,
    runtime: tokio::runtime::Handle,
) -> Registry {
    let mut all = Accounts::default();
    for (vendor, account) in accounts.iter() {
        all.insert(vendor, Account { workspaces: None, ..account.clone() });
    }
    let config = registry::Config { accounts: all, ..registry::Config::default() };
    Registry::new(config, client, runtime)
}

/// The lines of keys that cannot be read. An account that is meant to serve does not.
fn key_file_faults(unreadable: Vec<(String, String)>) -> Vec<CheckResult> {
    let unreadable = unreadable.into_iter();
    unreadable.map(|(name, reason)| check_result(&name, "key", false, true, reason)).collect()
}

/// The entries of `workspaces` that are no workspace of the store.
fn workspace_faults(
    config: &Config,
    accounts: &mut Accounts,
    runtime: &tokio::runtime::Runtime,
) -> Vec<CheckResult> {
    if !accounts.name_workspaces() {
        return Vec::new();
    }
    let (data, url) = (&config.server.data, config.server.database_url.as_deref());
    // A store that cannot be read has a line of its own.
    let Ok(workspaces) = runtime.block_on(control_api::workspaces::list(data, url)) else {
        return Vec::new();
    };
    let unknown = accounts.resolve_workspaces(&workspaces).into_iter();
    let line = |(vendor, entry): (&Vendor, String)| {
        let why = format!("failed: {}", unknown_workspace(vendor, &entry));
        check_result(vendor.display_name, "key", false, false, why)
    };
    unknown.map(line).collect()
}

/// Whether the account has a key, and where its server is. A query may contain a key.
fn place(account: &Account) -> String {
    let key = if account.token.is_some() { "with a key" } else { "without a key" };
    match account.url.as_deref().and_then(|url| url.split(['?', '#']).next()) {
        Some(url) => format!("{key}, at {url}"),
        None => key.to_owned(),
    }
}

/// The accounts. Nothing is sent, because requests cost money.
fn configured_results(accounts: &Accounts) -> Vec<CheckResult> {
    let mut lines = Vec::new();
    for (vendor, account) in accounts.iter() {
        for kind in vendor.kinds {
            let detail = format!("{} (not tested; --live tests it)", place(account));
            lines.push(check_result(vendor.display_name, kind.name(), true, false, detail));
        }
    }
    lines
}

/// One real request to each account, all at once.
async fn live_results(
    accounts: &Accounts,
    client: egress::Client,
    runtime: tokio::runtime::Handle,
) -> (Vec<CheckResult>, bool) {
    let registry = registry_of(accounts, client, runtime);
    let has_stt = accounts.iter().any(|(vendor, _)| vendor.serves(Kind::Stt));
    let sentence = if has_stt { spoken_sentence().await } else { Err(String::new()) };
    let (registry, sentence) = (&registry, &sentence);
    let mut trials: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
    for (vendor, account) in accounts.iter() {
        for kind in vendor.kinds {
            trials.push(Box::pin(async move {
                let result =
                    tokio::time::timeout(LIVE_TIMEOUT, live(registry, vendor, *kind, sentence));
                let result = result.await.unwrap_or_else(|_| {
                    Err(format!("no result within {} s", LIVE_TIMEOUT.as_secs()))
                });
                (vendor, live_result(vendor, *kind, account, result))
            }));
        }
    }
    let results = join_all(trials).await;
    let working: BTreeSet<&str> =
        results.iter().filter(|(_, line)| line.ready).map(|(vendor, _)| vendor.name).collect();
    let failed = results.iter().any(|(vendor, _)| !working.contains(vendor.name));
    (results.into_iter().map(|(_, line)| line).collect(), failed)
}

fn live_result(
    vendor: &Vendor,
    kind: Kind,
    account: &Account,
    result: Result<Duration, String>,
) -> CheckResult {
    let place = place(account);
    let (ready, detail) = match result {
        Ok(latency) => (true, format!("{} ms ({place})", latency.as_millis())),
        Err(why) => (false, format!("failed: {why} ({place})")),
    };
    check_result(vendor.display_name, kind.name(), ready, false, detail)
}

/// The latency of one request: to the first sound or text, or from the end of the speech to its
/// transcript.
async fn live(
    registry: &Registry,
    vendor: &Vendor,
    kind: Kind,
    sentence: &Result<Speech, String>,
) -> Result<Duration, String> {
    let provider = vendor.name.to_owned();
    let message = |error: models::Error| error.to_string();
    match kind {
        Kind::Tts => {
            let choice = TtsChoice { provider, ..TtsChoice::default() };
            let tts = registry.single_tts(&choice)?;
            let request = tts::Request { text: SPOKEN_TEXT.into(), ..tts::Request::default() };
            let speech = probe::speak(tts, request, LIVE_TIMEOUT).await;
            speech.map(|speech| speech.latency).map_err(message)
        }
        Kind::Llm => {
            let choice = LlmChoice { provider, ..LlmChoice::default() };
            let llm = registry.single_llm(&choice, "Visavis")?;
            let answer = probe::ask(&*llm, LIVE_TIMEOUT).await;
            answer.map(|answer| answer.latency).map_err(message)
        }
        Kind::Stt => {
            let choice = SttChoice { provider, ..SttChoice::default() };
            let stt = registry.single_stt(&choice)?;
            let speech = sentence.as_ref().map_err(Clone::clone)?;
            let transcript = probe::transcribe(&*stt, speech, LIVE_TIMEOUT).await;
            transcript.map(|transcript| transcript.latency).map_err(message)
        }
    }
}

/// A sentence in a voice of this program.
async fn spoken_sentence() -> Result<Speech, String> {
    let flite = Flite::start(1).map_err(|error| error.to_string())?;
    let flite: Arc<dyn Tts> = Arc::new(flite);
    let request = tts::Request { text: TRANSCRIBED_TEXT.into(), ..tts::Request::default() };
    probe::speak(flite, request, LIVE_TIMEOUT).await.map_err(|error| error.to_string())
}

/// The LLM servers of this machine, with the lines that let agents use them.
fn local_results(found: &[LocalServer], accounts: &Accounts) -> Vec<CheckResult> {
    let result = |server: &LocalServer| {
        let LocalServer { name, provider, url, models } = server;
        let in_use = |(_, account): (&Vendor, &Account)| {
            let own = account.url.as_deref().unwrap_or_default();
            own.trim_end_matches('/').trim_end_matches("/v1") == url.trim_end_matches("/v1")
        };
        let count = match models.len() {
            1 => "1 model".to_owned(),
            count => format!("{count} models"),
        };
        let mut detail = format!("runs at {url} with {count}");
        if accounts.iter().any(in_use) {
            detail += "; it is configured";
        } else {
            // JSON's strings are also TOML's.
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            detail += &format!(
                "; to use it, add to the configuration:\n\
                 [providers]\nllm = [{}]\n[providers.{provider}]\nbase_url = {}",
                quoted(provider),
                quoted(url)
            );
            if let Some(model) = models.first() {
                detail += &format!("\nmodel = {}", quoted(model));
            }
        }
        check_result(name, Kind::Llm.name(), true, false, detail)
    };
    found.iter().map(result).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn accounts(name: &str, url: &str) -> Accounts {
        let account = Account {
            url: Some(url.into()),
            token: Some("secret-of-the-test".into()),
            ..Account::default()
        };
        Accounts::new(BTreeMap::from([(name.to_owned(), account)]), |_| None).unwrap()
    }

    fn server(model: &str) -> LocalServer {
        LocalServer {
            name: "Ollama",
            provider: "ollama",
            url: "http://127.0.0.1:11434/v1".into(),
            models: vec![model.into(), "other".into()],
        }
    }

    #[test]
    fn a_server_of_this_machine_comes_with_the_lines_for_the_configuration() {
        let lines = local_results(&[server("qwen\"3\n")], &Accounts::default());
        let (text, lines) = lines[0].detail.split_once(":\n").unwrap();
        assert!(text.starts_with("runs at http://127.0.0.1:11434/v1 with 2 models;"), "{text}");
        let read: toml::Table = lines.parse().unwrap();
        let config: Config = toml::from_str(lines).unwrap();
        assert_eq!(config.providers.llm, ["ollama"]);
        assert_eq!(read["providers"]["ollama"]["model"].as_str(), Some("qwen\"3\n"));
        assert_eq!(config.providers.accounts().iter().count(), 1);
    }

    #[test]
    fn a_configured_server_of_this_machine_needs_no_lines() {
        for url in ["http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/"] {
            let lines = local_results(&[server("m")], &accounts("ollama", url));
            assert!(lines[0].detail.ends_with("it is configured"), "{}", lines[0].detail);
        }
    }

    #[test]
    fn a_key_file_that_cannot_be_read_is_an_error() {
        let unreadable = vec![("DEEPGRAM_API_KEY_FILE".to_owned(), "/f is empty".to_owned())];
        let lines = key_file_faults(unreadable);
        assert!(!lines[0].ready && lines[0].required);
        assert_eq!((&*lines[0].name, &*lines[0].detail), ("DEEPGRAM_API_KEY_FILE", "/f is empty"));
    }

    #[test]
    fn unknown_workspaces_of_an_account_are_reported() {
        let data = std::env::temp_dir().join(format!("visavis-check-{}", std::process::id()));
        let text = "[providers.groq]\napi_key = \"k\"\nworkspaces = [\"default\", \"sales\"]";
        let mut config: Config = toml::from_str(text).unwrap();
        config.server.data = data;
        let mut accounts = config.providers.accounts();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let lines = workspace_faults(&config, &mut accounts, &runtime);
        assert!(check(&config, false).unwrap().1, "the check fails");
        assert_eq!(lines.len(), 1);
        let (line, expected) = (&lines[0], "providers.groq.workspaces: no workspace has the name");
        assert!(line.detail.contains(expected) && line.detail.contains("\"sales\""));
        assert!(!line.ready && !line.required, "calls of other workspaces work");
    }

    #[test]
    fn default_providers_without_a_key_are_reported() {
        let text = "[providers]\nstt = [\"builtin\", \"deepgram\"]\nllm = [\"anthropic\"]\n\
                    tts = [\"script\"]\n[providers.deepgram]\napi_key = \"k\"\nworkspaces = [\"a\"]";
        let config: Config = toml::from_str(text).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let accounts = config.providers.accounts();
        let lines = default_faults(&config, &accounts, &client, runtime.handle());
        let expected = "failed: providers.llm: The LLM provider \"anthropic\" needs an API key.";
        let found: Vec<_> = lines.iter().map(|line| (&*line.name, &*line.detail)).collect();
        assert_eq!(found, [("Anthropic", expected)]);
    }

    #[test]
    fn accounts_are_listed_without_their_keys() {
        let url = "http://127.0.0.1:1/v1?key=secret#secret";
        let lines = configured_results(&accounts("elevenlabs", url));
        let kinds: Vec<&str> = lines.iter().map(|line| line.kind.as_str()).collect();
        assert_eq!(kinds, ["tts", "stt"]);
        for line in lines {
            assert!(line.ready && !line.required && line.detail.contains("not tested"));
            assert!(!line.detail.contains("secret"), "{}", line.detail);
            assert!(line.detail.contains("at http://127.0.0.1:1/v1 ("), "{}", line.detail);
        }
    }
}
