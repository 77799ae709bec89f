//! From an agent in a request to the stored document: every field is present and in range, secrets
//! are removed.
//!
//! A value that the request omits and that depends on another setting (the endpointing delays) is
//! stored as null, so that a later change of that setting takes effect. Reading fills it in.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::tokens::{self, Replaced};
use super::{access, turn};
use crate::config::StockAvatar;
use crate::error::ApiError;
use crate::http::body;
use crate::http::schema::schema_of;
use crate::http::validate::{FieldErrors, body_object};
use crate::resources::backgrounds::fields;
use crate::store::agent::{Agent, AgentSettings, Avatar, Template, TurnSettings};
use crate::store::secrets::{self, AgentSecrets};

/// The providers of an avatar, which a request may give beside `config` or in it. In the order of
/// [`tokens::take`].
const PROVIDERS: [&str; 3] = ["llm", "stt", "tts"];
/// Maximum number of fallbacks of a provider, as in its schema.
const MAX_FALLBACKS: usize = 5;

/// A document that [`parse`] reads: an [`Agent`] or a [`Template`].
pub(crate) trait AgentDocument: Serialize + DeserializeOwned + JsonSchema + Default {
    /// The schema of a request.
    fn request_schema() -> &'static Value;
    fn name(&self) -> &str;
    fn settings(&self) -> &AgentSettings;
    fn settings_mut(&mut self) -> &mut AgentSettings;
}

impl AgentDocument for Agent {
    fn request_schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
            let mut schema = schema_with_flat_providers::<Agent>();
            // A template may have no avatar, an agent must.
            if let Value::Array(required) = &mut schema["required"] {
                required.push("avatars".into());
            }
            let avatar = &mut schema["properties"]["avatars"]["items"];
            avatar["required"] = json!(["avatar_key_id"]);
            avatar["properties"]["avatar_key_id"]["minLength"] = 1.into();
            schema
        });
        &SCHEMA
    }

    fn name(&self) -> &str {
        &self.agent_name
    }

    fn settings(&self) -> &AgentSettings {
        &self.settings
    }

    fn settings_mut(&mut self) -> &mut AgentSettings {
        &mut self.settings
    }
}

impl AgentDocument for Template {
    fn request_schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> = LazyLock::new(schema_with_flat_providers::<Template>);
        &SCHEMA
    }

    fn name(&self) -> &str {
        &self.template_name
    }

    fn settings(&self) -> &AgentSettings {
        &self.settings
    }

    fn settings_mut(&mut self) -> &mut AgentSettings {
        &mut self.settings
    }
}

/// The schema of a document whose avatars may have their providers beside `config`, too.
fn schema_with_flat_providers<D: JsonSchema>() -> Value {
    let mut schema = schema_of::<D>();
    let avatar = &mut schema["properties"]["avatars"]["items"]["properties"];
    for provider in PROVIDERS {
        let mut flat = avatar["config"]["properties"][provider].clone();
        flat["type"] = json!(["object", "null"]);
        avatar[provider] = flat;
    }
    schema
}

/// A valid agent or template.
pub(crate) struct Parsed<D> {
    pub(crate) document: D,
    pub(crate) secrets: AgentSecrets,
}

/// Parses an agent or a template. `old` is the one that it replaces: a `***` preserves a key of it,
/// if the key's provider and address stay the same.
pub(crate) fn parse<D: AgentDocument>(
    body: Value,
    available_avatars: &[StockAvatar],
    old: Option<Replaced<'_>>,
) -> Result<Parsed<D>, ApiError> {
    let errors = FieldErrors::default();
    let mut map = body_object(body, &errors)?;
    let turn = map
        .get("config")
        .and_then(|config| config["turn"].as_object())
        .cloned()
        .unwrap_or_default();
    if let Some(Value::Array(avatars)) = map.get_mut("avatars") {
        avatars.iter_mut().filter_map(Value::as_object_mut).for_each(merge_flat_providers);
    }
    if let Some(Value::Array(avatars)) = map.get("avatars") {
        for (i, avatar) in avatars.iter().enumerate() {
            check_fallback_tokens(avatar, i, &errors);
        }
    }
    let mut checked = body::check(D::request_schema(), Value::Object(map), &errors);
    let mut paths = Vec::new();
    if let Some(Value::Array(avatars)) = checked.get_mut("avatars") {
        for (i, avatar) in avatars.iter_mut().filter_map(Value::as_object_mut).enumerate() {
            paths.push(PROVIDERS.map(|name| {
                let config = if avatar.contains_key(name) { "" } else { ".config" };
                format!("avatars[{i}]{config}.{name}")
            }));
            move_flat_providers(avatar);
        }
    }
    let mut document: D = body::convert(checked, &errors);
    let settings = document.settings_mut();
    settings.config.turn = turn::parse(&turn, &errors);
    let mut secrets = AgentSecrets {
        webhook: old.map_or_else(secrets::new_webhook_secret, |old| old.secrets.webhook.clone()),
        ..AgentSecrets::default()
    };
    let mut delays_consistent = true;
    for (i, avatar) in settings.avatars.iter_mut().enumerate() {
        let [_, stt_path, _] = &paths[i];
        delays_consistent &= check_delays(avatar, stt_path, &settings.config.turn, &errors);
        complete_avatar(avatar, i, available_avatars, &errors);
        if let Some(background) = &mut avatar.background {
            fields::complete(background, &format!("avatars[{i}].background"), &errors)?;
        }
        access::check(&avatar.config, &paths[i], &errors);
        let replaced = old.and_then(|old| old.avatar(i));
        secrets.avatars.push(tokens::take(&mut avatar.config, replaced, &paths[i], &errors));
    }
    if !delays_consistent {
        turn::report_inconsistent_delays(&turn, &errors);
    }
    let is_required = D::request_schema()["required"]
        .as_array()
        .is_some_and(|all| all.contains(&json!("avatars")));
    if is_required && settings.avatars.is_empty() && !errors.contains("avatars") {
        errors.add("avatars", "must contain at least one avatar");
    }
    errors.into_result(Parsed { document, secrets })
}

/// Lets an avatar have each provider in one place: `config` wins over what stands beside it.
fn merge_flat_providers(avatar: &mut Map<String, Value>) {
    for provider in PROVIDERS {
        let Some(Value::Object(flat)) = avatar.get(provider).cloned() else { continue };
        let Some(config) = avatar.get_mut("config").and_then(Value::as_object_mut) else {
            continue;
        };
        match config.get_mut(provider) {
            Some(Value::Object(nested)) if !nested.is_empty() => {
                let mut merged = flat;
                merged.extend(std::mem::take(nested));
                *nested = merged;
                avatar.shift_remove(provider);
            }
            Some(Value::Object(_)) => _ = config.shift_remove(provider),
            _ => {}
        }
    }
}

/// Reports the keys of fallbacks. They have none of their own, and an ignored one would be missed
/// only when the first provider fails.
fn check_fallback_tokens(avatar: &Value, i: usize, errors: &FieldErrors) {
    for (place, path) in [(avatar, ""), (&avatar["config"], ".config")] {
        for provider in PROVIDERS {
            let fallbacks = place[provider]["fallback"].as_array();
            for (j, fallback) in fallbacks.into_iter().flatten().take(MAX_FALLBACKS).enumerate() {
                let token = &fallback["token"];
                if !token.is_null() && token.as_str() != Some("") {
                    errors.add(
                        format!("avatars[{i}]{path}.{provider}.fallback[{j}].token"),
                        "is not allowed: a fallback uses the key that the workspace or the server \
                         has for its provider",
                    );
                }
            }
        }
    }
}

/// Moves the providers beside `config` into it.
fn move_flat_providers(avatar: &mut Map<String, Value>) {
    for provider in PROVIDERS {
        if let Some(flat) = avatar.shift_remove(provider)
            && let Some(config) = avatar.get_mut("config").and_then(Value::as_object_mut)
        {
            config.insert(provider.into(), flat);
        }
    }
}

fn check_delays(
    avatar: &Avatar,
    stt_path: &str,
    turn: &TurnSettings,
    errors: &FieldErrors,
) -> bool {
    turn::check_delays(&avatar.config.stt, stt_path, avatar.turn_handling, turn, errors)
}

/// Fills in what depends on the stock avatar, which must exist.
fn complete_avatar(
    avatar: &mut Avatar,
    i: usize,
    available_avatars: &[StockAvatar],
    errors: &FieldErrors,
) {
    avatar.avatar_key_id.take_if(|key| key.is_empty());
    let Some(key) = &avatar.avatar_key_id else { return };
    match available_avatars.iter().find(|known| known.avatar_key_id == *key) {
        None => errors.add(format!("avatars[{i}].avatar_key_id"), "is not an existing avatar"),
        Some(known) if avatar.persona_name.is_none() => {
            avatar.persona_name = Some(known.avatar_name.clone())
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use conversation::settings::DEFAULT_ERROR_MESSAGE;

    use super::*;

    /// The document as JSON, and the secrets.
    fn parse_agent(body: Value, old: Option<Replaced<'_>>) -> Result<Parsed<Value>, ApiError> {
        let Parsed { document, secrets } = parse::<Agent>(body, &stock(), old)?;
        Ok(Parsed { document: json!(document), secrets })
    }

    fn stock() -> Vec<StockAvatar> {
        vec![StockAvatar {
            avatar_key_id: "ada".into(),
            avatar_name: "Ada".into(),
            ..StockAvatar::default()
        }]
    }

    fn body(extra: Value) -> Value {
        let mut body = json!({
            "agent_name": "A",
            "agent_system_prompt": "P",
            "avatars": [{"avatar_key_id": "ada"}],
        });
        merge(&mut body, extra);
        body
    }

    fn merge(into: &mut Value, extra: Value) {
        if let (Value::Object(into), Value::Object(extra)) = (into, extra) {
            into.extend(extra);
        }
    }

    fn invalid_fields(body: Value) -> Vec<String> {
        match parse_agent(body, None) {
            Err(ApiError::Invalid(errors)) => errors.into_iter().map(|f| f.field).collect(),
            Err(other) => panic!("{other:?}"),
            Ok(_) => Vec::new(),
        }
    }

    #[test]
    fn the_smallest_agent_gets_every_default() {
        let parsed = parse_agent(body(json!({})), None).unwrap();
        let d = &parsed.document;
        assert_eq!(d["record"], false);
        assert_eq!(d["is_active"], true);
        assert_eq!(d["callback_url"], "");
        assert_eq!(d["tool"], Value::Null);
        assert_eq!(d["embed"], json!({"enabled": false, "origins": []}));
        let avatar = &d["avatars"][0];
        assert_eq!(avatar["persona_name"], "Ada");
        assert_eq!(avatar["welcome_message"], json!({"wait_time": 1, "messages": []}));
        assert_eq!(
            avatar["idle_timeout"],
            json!({"timeout": 30, "filler_phrases": [], "end_after": 3})
        );
        assert_eq!(avatar["turn_handling"], "balanced");
        assert_eq!(avatar["frame_rate"], 25);
        assert_eq!((&avatar["framing"], &avatar["size"]), (&json!("close"), &Value::Null));
        assert!(parsed.secrets.webhook.starts_with("whsec_"));
    }

    #[test]
    fn the_key_of_a_fallback_is_refused_where_it_stands() {
        let with_token =
            |token: Value| json!([{"provider": "a"}, {"provider": "b", "token": token}]);
        let avatar = |token: &str| {
            json!({
                "avatar_key_id": "ada",
                "stt": {"fallback": with_token("***".into())},
                "config": {
                    "llm": {"fallback": with_token(json!(7))},
                    "tts": {"token": "own", "fallback": with_token(token.into())},
                },
            })
        };
        let refused = [
            "avatars[0].stt.fallback[1].token",
            "avatars[0].config.llm.fallback[1].token",
            "avatars[0].config.tts.fallback[1].token",
        ];
        assert_eq!(invalid_fields(body(json!({"avatars": [avatar("secret")]}))), refused);
        assert_eq!(invalid_fields(body(json!({"avatars": [avatar("")]}))), refused[..2]);
        let unset = json!({
            "avatar_key_id": "ada",
            "config": {"tts": {"token": "own", "fallback": with_token(Value::Null)}},
        });
        let parsed = parse_agent(body(json!({"avatars": [unset]})), None).unwrap();
        let fallback = &parsed.document["avatars"][0]["config"]["tts"]["fallback"][1];
        assert_eq!((&fallback["provider"], fallback.get("token")), (&json!("b"), None));
    }

    #[test]
    fn every_missing_or_wrong_field_is_named_at_once() {
        assert_eq!(invalid_fields(json!({})), ["agent_name", "agent_system_prompt", "avatars"]);
        assert_eq!(invalid_fields(body(json!({"avatars": []}))), ["avatars"]);
        assert_eq!(
            invalid_fields(body(json!({"avatars": [{"avatar_key_id": "nobody"}]}))),
            ["avatars[0].avatar_key_id"]
        );
        assert_eq!(
            invalid_fields(body(json!({"avatars": ["ada"], "record": "yes"}))),
            ["avatars[0]", "record"]
        );
        assert_eq!(
            invalid_fields(body(
                json!({"callback_url": "ftp://x", "callback_events": ["call_ended", "nothing"]})
            )),
            ["callback_events[1]", "callback_url"]
        );
        assert_eq!(
            invalid_fields(body(json!({"config": {"maxCallDuration": -1}}))),
            ["config.maxCallDuration"]
        );
        let recording = json!({"channels": "stereo", "format": 7});
        assert_eq!(
            invalid_fields(body(json!({"config": {"recording": recording}}))),
            ["config.recording.channels", "config.recording.format"]
        );
        assert!(matches!(parse_agent(json!([]), None), Err(ApiError::Invalid(f)) if f.is_empty()));
    }

    #[test]
    fn endpointing_delays_are_checked_after_the_defaults_of_turn_handling() {
        let with = |handling: &str, stt: Value| {
            body(json!({
                "avatars": [{"avatar_key_id": "ada", "turn_handling": handling, "stt": stt}],
            }))
        };
        let path = ["avatars[0].stt.max_endpointing_delay"];
        assert_eq!(invalid_fields(with("balanced", json!({"min_endpointing_delay": 4}))), path);
        assert!(invalid_fields(with("deliberate", json!({"min_endpointing_delay": 4}))).is_empty());
        assert_eq!(invalid_fields(with("balanced", json!({"max_endpointing_delay": 0.3}))), path);
        assert_eq!(invalid_fields(with("balanced", json!({"max_endpointing_delay": 11}))), path);
        assert_eq!(invalid_fields(with("hasty", json!({}))), ["avatars[0].turn_handling"]);
    }

    #[test]
    fn endpointing_delays_of_the_turn_object_are_checked_with_those_of_every_avatar() {
        let with = |handling: &str, turn: Value, stt: Value| {
            let avatar = json!({"avatar_key_id": "ada", "turn_handling": handling, "stt": stt});
            body(json!({"config": {"turn": turn}, "avatars": [avatar.clone(), avatar]}))
        };
        let none = || json!({});
        let (min, max) = ("config.turn.min_endpointing_delay", "config.turn.max_endpointing_delay");
        // Proactive waits at most 2 s, deliberate at most 5 s, balanced at least 0.4 s.
        assert_eq!(
            invalid_fields(with("proactive", json!({"min_endpointing_delay": 2.5}), none())),
            [min]
        );
        assert!(
            invalid_fields(with("deliberate", json!({"min_endpointing_delay": 4}), none()))
                .is_empty()
        );
        assert_eq!(
            invalid_fields(with("balanced", json!({"max_endpointing_delay": 0.3}), none())),
            [max]
        );
        assert!(
            invalid_fields(with(
                "balanced",
                json!({"max_endpointing_delay": 0.3}),
                json!({"min_endpointing_delay": 0.2})
            ))
            .is_empty()
        );
        let both = json!({"min_endpointing_delay": 2, "max_endpointing_delay": 1});
        assert_eq!(invalid_fields(with("balanced", both.clone(), none())), [min]);
        assert!(
            invalid_fields(with("balanced", both, json!({"min_endpointing_delay": 1}))).is_empty(),
            "stt wins"
        );
        assert_eq!(
            invalid_fields(with("balanced", json!({"max_endpointing_delay": 10.5}), none())),
            [max]
        );
        assert_eq!(
            invalid_fields(with("balanced", json!({"min_endpointing_delay": -1}), none())),
            [min]
        );
        assert_eq!(
            invalid_fields(with("balanced", json!({"turn_threshold": 2}), none())),
            ["config.turn.turn_threshold"]
        );
    }

    #[test]
    fn the_config_object_overrides_the_flat_fields() {
        let avatar = json!({
            "avatar_key_id": "ada",
            "llm": {"model": "flat", "provider": "p"},
            "config": {"llm": {"model": "under"}},
        });
        let parsed = parse_agent(body(json!({"avatars": [avatar]})), None).unwrap();
        let llm = &parsed.document["avatars"][0]["config"]["llm"];
        assert_eq!((llm["model"].as_str(), llm["provider"].as_str()), (Some("under"), Some("p")));
    }

    #[test]
    fn null_means_silence_and_without_end_where_it_says_something() {
        let parsed = parse_agent(
            body(json!({
                "config": {"error_message": null},
                "avatars": [{"avatar_key_id": "ada", "idle_timeout": {"end_after": null}}],
            })),
            None,
        )
        .unwrap();
        assert_eq!(parsed.document["config"]["error_message"], Value::Null);
        assert_eq!(parsed.document["avatars"][0]["idle_timeout"]["end_after"], Value::Null);
        let parsed = parse_agent(body(json!({})), None).unwrap();
        assert_eq!(parsed.document["config"]["error_message"], DEFAULT_ERROR_MESSAGE);
    }

    #[test]
    fn attached_records_are_ids_or_objects_with_an_id() {
        let parsed =
            parse_agent(body(json!({"tool": ["a", {"id": "b", "type": "tool.api"}, "a"]})), None)
                .unwrap();
        assert_eq!(parsed.document["tool"], json!(["a", "b"]));
        assert_eq!(invalid_fields(body(json!({"mcp": [1]}))), ["mcp[0]"]);
    }
}
