//! The models of this server, and whether calls need those that are not installed: the rule of
//! `/readyz`.

use engine_api::{SttChoice, TtsChoice};
use models::ModelStatus;
use models::registry::Kind;

use super::{CheckResult, check_result};
use crate::config::Config;
use crate::local_models::{account_workspaces, create_registry};

/// The synthesizers that can speak alone. flite does not start without its voice `slt`.
const SYNTHESIZERS: [&str; 2] = ["Hibari", "flite slt"];

/// The lines of the report.
pub(super) fn check(config: &Config) -> std::io::Result<Vec<CheckResult>> {
    let all = models::check(&config.models.folder());
    let hosted = hosted_parts(config)?;
    let line = |model: &ModelStatus| {
        let needed = is_needed(model, &all, &hosted);
        check_result(&model.name, model.kind, model.ready, needed, model.detail.clone())
    };
    Ok(all.iter().map(line).collect())
}

/// Whether calls of agents that name no provider need a model: nothing else does its part of them.
fn is_needed(model: &ModelStatus, all: &[ModelStatus], hosted: &[&str]) -> bool {
    let serves_alone = |model: &ModelStatus| match model.kind {
        "stt" => true,
        "tts" => SYNTHESIZERS.contains(&model.name.as_str()),
        _ => false,
    };
    if !serves_alone(model) {
        return model.kind != "tts" && !model.optional;
    }
    let replaces = |other: &ModelStatus| {
        other.ready && other.kind == model.kind && other.name != model.name && serves_alone(other)
    };
    !hosted.contains(&model.kind) && !all.iter().any(replaces)
}

/// The parts of calls that the default providers serve without a model of this server.
fn hosted_parts(config: &Config) -> std::io::Result<Vec<&'static str>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The addresses are the operator's.
    let client = egress::Client::new(egress::Policy { allow_private: true });
    let client = client.map_err(std::io::Error::other)?;
    let accounts = config.providers.accounts();
    // The accounts may have names of workspaces instead of their ids. Both tell whether any
    // workspace is served.
    let workspaces = account_workspaces(&accounts);
    let registry = create_registry(config, accounts, client, runtime.handle());
    let hears = |workspace: &String| {
        let choice = SttChoice { workspace: workspace.clone(), ..SttChoice::default() };
        registry.stt(&choice).0.is_ok_and(|stt| stt.capacity_error().is_none())
    };
    let speaks = |workspace: &String| {
        let choice = TtsChoice { workspace: workspace.clone(), ..TtsChoice::default() };
        registry.tts(&choice).0.is_ok_and(|tts| tts.capacity_error().is_none())
    };
    let mut parts = Vec::new();
    if workspaces.iter().any(hears) {
        parts.push(Kind::Stt.name());
    }
    if workspaces.iter().any(speaks) {
        parts.push(Kind::Tts.name());
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODELS: [(&str, &str); 7] = [
        ("Silero VAD", "vad"),
        ("Moonshine", "stt"),
        ("PocketSphinx", "stt"),
        ("flite slt", "tts"),
        ("flite rms", "tts"),
        ("Hibari", "tts"),
        ("MiniLM", "llm"),
    ];

    /// The models that are not installed although calls need them.
    fn missing(ready: &[&str], hosted: &[&str]) -> Vec<String> {
        let status = |(name, kind): (&'static str, &'static str)| ModelStatus {
            name: name.to_owned(),
            kind,
            ready: ready.contains(&name),
            optional: kind != "vad",
            detail: String::new(),
        };
        let all = MODELS.map(status);
        let is_missing = |model: &&ModelStatus| !model.ready && is_needed(model, &all, hosted);
        all.iter().filter(is_missing).map(|model| model.name.clone()).collect()
    }

    #[test]
    fn a_model_is_needed_unless_another_one_or_a_provider_serves() {
        let nothing = ["Silero VAD", "Moonshine", "PocketSphinx", "flite slt", "Hibari"];
        assert_eq!(missing(&[], &[]), nothing);
        assert_eq!(missing(&[], &["stt", "tts"]), ["Silero VAD"]);
        assert_eq!(missing(&["Silero VAD", "Hibari"], &["stt"]), [""; 0], "flite is missing");
        let some = ["Silero VAD", "PocketSphinx", "flite rms"];
        assert_eq!(missing(&some, &[]), ["flite slt", "Hibari"]);
    }

    #[test]
    fn a_model_without_which_no_call_works_is_needed_also_while_it_is_ready() {
        let status = |name: &str, ready| ModelStatus {
            name: name.to_owned(),
            kind: "stt",
            ready,
            optional: true,
            detail: String::new(),
        };
        let all = [status("Moonshine", true), status("PocketSphinx", false)];
        assert!(is_needed(&all[0], &all, &[]) && !is_needed(&all[1], &all, &[]));
    }

    #[test]
    fn the_default_providers_serve_if_any_workspace_can_use_them() {
        let parts = |text: &str| hosted_parts(&toml::from_str(text).unwrap()).unwrap();
        assert_eq!(parts(""), [""; 0]);
        let chain = "[providers]\nstt = [\"deepgram\"]\ntts = [\"elevenlabs\"]\n";
        assert_eq!(parts(chain), [""; 0], "there are no keys");
        let key = format!("{chain}[providers.deepgram]\napi_key = \"k\"\n");
        assert_eq!(parts(&key), ["stt"]);
        let keys =
            format!("{key}[providers.elevenlabs]\napi_key = \"k\"\nworkspaces = [\"sales\"]\n");
        assert_eq!(parts(&keys), ["stt", "tts"]);
    }
}
