use std::collections::BTreeMap;

use super::*;
use crate::registry::Accounts;

fn config(variables: &'static [(&'static str, &'static str)]) -> Config {
    let variable = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_owned());
    let accounts = Accounts::new(BTreeMap::new(), variable).unwrap();
    Config { accounts, ..Config::default() }
}

fn listed(config: &Config, kind: &str, name: &str, credentials: &[String]) -> Provider {
    let all = providers(config, "w", credentials);
    let found = all.into_iter().find(|p| p.provider == name && p.provider_type == kind);
    found.expect("it is listed")
}

#[test]
fn a_vendor_works_where_there_is_a_key() {
    let none = listed(&Config::default(), "stt", "deepgram", &[]);
    assert_eq!((none.source, none.configured), ("none", false));
    assert_eq!(none.model, "nova-3");
    let keyed = config(&[("DEEPGRAM_API_KEY", "k"), ("DEEPGRAM_MODEL", "nova-2")]);
    let own = listed(&keyed, "stt", "deepgram", &[]);
    assert_eq!((own.source, own.configured, &*own.model), ("operator", true, "nova-2"));
    let voices = listed(&keyed, "tts", "deepgram", &[]);
    assert_eq!((voices.configured, &*voices.model), (true, "aura-2"), "a model of the STT");
    let stored = listed(&Config::default(), "tts", "elevenlabs", &["elevenlabs".into()]);
    assert_eq!((stored.source, stored.configured), ("workspace", true));
}

#[test]
fn an_own_server_with_openais_interface_has_no_default_model() {
    let model = |config: &Config| listed(config, "llm", "openai", &[]).model;
    assert_eq!(model(&Config::default()), "gpt-4.1-mini");
    assert_eq!(model(&config(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")])), "");
    let named = [("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_MODEL", "m")];
    assert_eq!(model(&config(Box::leak(Box::new(named)))), "m");
}

#[test]
fn the_model_is_the_one_that_is_requested() {
    let none = Config::default();
    for (kind, name, model) in [
        ("stt", "openai", "gpt-live-transcribe"),
        ("stt", "groq", "whisper-large-v3-turbo"),
        ("stt", "custom", ""),
        ("llm", "groq", "llama-3.3-70b-versatile"),
        ("llm", "ollama", "llama3.2"),
        ("llm", "vllm", ""),
        ("tts", "openai", "gpt-4o-mini-tts"),
    ] {
        assert_eq!(listed(&none, kind, name, &[]).model, model, "{kind} {name}");
    }
    // Another server has models of its own.
    let proxies = config(&[
        ("GROQ_BASE_URL", "http://127.0.0.1:1/v1"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
    ]);
    for (kind, name) in [("llm", "groq"), ("llm", "openai"), ("tts", "openai")] {
        assert_eq!(listed(&proxies, kind, name, &[]).model, "", "{kind} {name}");
    }
    let responses = listed(&proxies, "llm", "openai-responses", &[]);
    assert_eq!((responses.source, &*responses.model), ("operator", "gpt-4.1-mini"));
    // The workspace's key is not sent to the operator's address.
    let stored = ["groq".to_owned()];
    let groq = listed(&proxies, "llm", "groq", &stored);
    assert_eq!((groq.source, &*groq.model), ("workspace", "llama-3.3-70b-versatile"));
    // The choice of models begins with the operator's one.
    let own = config(&[("DEEPGRAM_API_KEY", "k"), ("DEEPGRAM_MODEL", "nova-2")]);
    let nova = listed(&own, "stt", "deepgram", &[]);
    assert_eq!(nova.additional_fields[0].default_value, "nova-2");
}

#[test]
fn the_document_names_all_keys_and_default_models() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/speech.md");
    let document = std::fs::read_to_string(file).unwrap();
    for provider in providers(&Config::default(), "w", &[]) {
        let Provider { provider: name, source, model, key_variables, .. } = provider;
        if source == "builtin" {
            continue;
        }
        let is_row = |line: &&str| line.starts_with('|') && line.contains(&format!("`{name}`"));
        let row = document.lines().find(is_row).expect("a row of the table of providers");
        let code = |text: &String| format!("`{text}`");
        let keys: Vec<String> = key_variables.iter().map(code).collect();
        assert!(name == "custom" || row.contains(&keys.join(", ")), "{name}: {row}");
        assert!(model.is_empty() || document.contains(&code(&model)), "{name}: {model}");
    }
}

#[test]
fn providers_are_sorted_by_kind_and_each_is_listed_once() {
    let all = providers(&Config::default(), "", &[]);
    let mut names: Vec<_> = all.iter().map(|p| (p.provider_type, p.provider)).collect();
    assert_eq!(names[0], ("stt", "builtin"));
    let kinds: Vec<&str> = names.iter().map(|name| name.0).collect();
    assert!(kinds.is_sorted_by_key(|kind| ["stt", "llm", "tts"].iter().position(|k| k == kind)));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
