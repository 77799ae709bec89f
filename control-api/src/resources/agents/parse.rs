//! From an agent in a request to the stored document: every field is present and in range, secrets
//! are removed.
//!
//! A value that the request omits and that depends on another setting (the endpointing delays) is
//! stored as null, so that a later change of that setting takes effect. Reading fills it in.

use conversation::event::WEBHOOK_EVENTS;
use serde_json::{Map, Value, json};

use super::turn;
use crate::config::StockAvatar;
use crate::error::ApiError;
use crate::http::validate::{FieldErrors, Fields, is_origin};
use crate::store::secrets::{self, AgentSecrets, SECRET_MASK};

/// An event name that is accepted and stored, but never sent.
const ACTION_FOUND: &str = "action_found";

/// The lists of attached records, by the names of an agent's fields.
pub(crate) const ATTACHMENT_FIELDS: [&str; 4] = ["knowledge_base", "tool", "guardrail", "mcp"];
/// Maximum of every duration in an agent, in seconds: one day.
const MAX_DURATION_SECONDS: f64 = 86_400.0;

/// The kind of document: an agent, or a template for agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    Agent,
    /// Name and prompt have other field names, and the avatar is optional.
    Template,
}

impl DocumentKind {
    /// The field names of the name and the prompt.
    pub(crate) fn name_fields(self) -> [&'static str; 2] {
        match self {
            Self::Agent => ["agent_name", "agent_system_prompt"],
            Self::Template => ["template_name", "template_system_prompt"],
        }
    }
}

/// A valid agent.
pub(crate) struct ParsedAgent {
    pub(crate) document: Value,
    pub(crate) secrets: AgentSecrets,
}

/// Parses an agent. `old` are the secrets of the agent that it replaces: a `***` preserves them.
pub(crate) fn parse(
    body: Value,
    available_avatars: &[StockAvatar],
    old: Option<&AgentSecrets>,
) -> Result<ParsedAgent, ApiError> {
    parse_as(DocumentKind::Agent, body, available_avatars, old)
}

/// Parses an agent or a template.
pub(crate) fn parse_as(
    kind: DocumentKind,
    body: Value,
    available_avatars: &[StockAvatar],
    old: Option<&AgentSecrets>,
) -> Result<ParsedAgent, ApiError> {
    let errors = FieldErrors::default();
    let fields = Fields::body(body, &errors)?;
    let mut secrets = AgentSecrets {
        webhook: old.map_or_else(secrets::new_webhook_secret, |s| s.webhook.clone()),
        ..AgentSecrets::default()
    };
    let [name_field, prompt_field] = kind.name_fields();
    let name = fields.required(name_field);
    let prompt = fields.required(prompt_field);
    let config = parse_config(&fields.object("config"));
    let mut avatars = Vec::new();
    match fields.objects("avatars") {
        Some(list) if !list.is_empty() => {
            let mut delays_consistent = true;
            for (i, avatar) in list.iter().enumerate() {
                let old = old.and_then(|s| s.avatars.get(i));
                let (document, avatar_secrets) = parse_avatar(
                    kind,
                    avatar,
                    &config["turn"],
                    &mut delays_consistent,
                    available_avatars,
                    old,
                );
                avatars.push(document);
                secrets.avatars.push(avatar_secrets);
            }
            if !delays_consistent {
                turn::report_inconsistent_delays(&fields.object("config").object("turn"));
            }
        }
        _ if kind == DocumentKind::Template => {}
        Some(_) if fields.raw("avatars") == Some(&json!([])) => {
            fields.add_error("avatars", "must hold at least one avatar");
        }
        None if fields.raw("avatars").is_none_or(Value::is_null) => {
            fields.add_error("avatars", "is required")
        }
        // Invalid elements were reported above.
        _ => {}
    }
    let events = fields.string_list("callback_events").unwrap_or_default();
    for (i, event) in events.iter().enumerate() {
        if event != ACTION_FOUND && !WEBHOOK_EVENTS.contains(&event.as_str()) {
            let known = WEBHOOK_EVENTS.join(", ");
            errors.add(format!("callback_events[{i}]"), format!("must be one of {known}, {ACTION_FOUND}"));
        }
    }
    let embed = fields.object("embed");
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| document.insert(name.into(), value);
    put(name_field, name.into());
    put(prompt_field, prompt.into());
    put("avatars", avatars.into());
    put("callback_events", events.into());
    put("callback_url", fields.http_url("callback_url").into());
    put("config", config);
    for name in ATTACHMENT_FIELDS {
        put(name, fields.ids(name).map_or(Value::Null, Value::from));
    }
    put("record", fields.boolean("record").unwrap_or(false).into());
    put("is_active", fields.boolean("is_active").unwrap_or(true).into());
    put("type", fields.text("type").map_or(Value::Null, Value::from));
    put("email", fields.text("email").map_or(Value::Null, Value::from));
    let origins = embed.string_list("origins").unwrap_or_default();
    for (i, origin) in origins.iter().enumerate() {
        if !is_origin(origin) {
            embed.add_error(&format!("origins[{i}]"), "must be an origin such as https://shop.example");
        }
    }
    put("embed", json!({"enabled": embed.boolean("enabled").unwrap_or(false), "origins": origins}));
    errors.into_result(ParsedAgent { document: Value::Object(document), secrets })
}

fn parse_config(fields: &Fields<'_>) -> Value {
    let memory = fields.object("memory");
    let mut config = Map::new();
    let mut put = |name: &str, value: Option<Value>| config.insert(name.into(), value.unwrap_or(Value::Null));
    put("timeout", fields.number("timeout", 0.0..=MAX_DURATION_SECONDS));
    put("maxCallDuration", fields.number("maxCallDuration", 0.0..=MAX_DURATION_SECONDS));
    put("conversationalContext", Some(fields.text("conversationalContext").unwrap_or_default().into()));
    put(
        "memory",
        Some(json!({
            "isEnabled": memory.boolean("isEnabled").unwrap_or(false),
            "instruction": memory.text("instruction").unwrap_or_default(),
        })),
    );
    // Null has a meaning here: silence instead of the default message.
    let silence = fields.raw("error_message").is_some_and(Value::is_null);
    let words = fields.text("error_message").unwrap_or_else(|| turn::DEFAULT_ERROR_MESSAGE.into());
    put("error_message", (!silence).then(|| words.into()));
    put("turn", Some(turn::parse(&fields.object("turn"))));
    put("expose_tools", Some(fields.boolean("expose_tools").unwrap_or(false).into()));
    put("trust_client_context", Some(fields.boolean("trust_client_context").unwrap_or(false).into()));
    put("record_trace", Some(fields.boolean("record_trace").unwrap_or(false).into()));
    Value::Object(config)
}

/// Sets `agree` to false if `turn` and the avatar's preset are inconsistent.
fn parse_avatar(
    kind: DocumentKind,
    fields: &Fields<'_>,
    turn: &Value,
    delays_consistent: &mut bool,
    available_avatars: &[StockAvatar],
    old: Option<&secrets::AvatarSecrets>,
) -> (Value, secrets::AvatarSecrets) {
    let key = match kind {
        DocumentKind::Agent => fields.required("avatar_key_id"),
        DocumentKind::Template => fields.text("avatar_key_id").unwrap_or_default(),
    };
    let known = available_avatars.iter().find(|a| a.avatar_key_id == key);
    if known.is_none() && !key.is_empty() {
        fields.add_error("avatar_key_id", "names no avatar");
    }
    let nested_config = fields.object("config");
    let provider_fields = |name: &str| fields.object(name).merged_with(nested_config.object(name));
    let (llm, stt, tts) = (provider_fields("llm"), provider_fields("stt"), provider_fields("tts"));
    let mut secrets = secrets::AvatarSecrets::default();
    let handling = fields.choice("turn_handling", turn::HANDLINGS, "balanced");
    let interruptability = fields.choice("interruptability", turn::INTERRUPTABILITIES, "medium");
    *delays_consistent &= turn::check_delays(&stt, &handling, turn);
    let messages = |f: &Fields<'_>, name: &str| f.string_list(name).unwrap_or_default();
    let welcome = fields.object("welcome_message");
    let idle = fields.object("idle_timeout");
    let exit_warning = fields.object("exit_heads_up_message");
    let exit = fields.object("exit_message");
    // Null has a meaning in both: no call-outs, and call-outs without end.
    let idle_timeout = match idle.raw("timeout") {
        Some(Value::Null) => Value::Null,
        _ => idle.number("timeout", 0.0..=MAX_DURATION_SECONDS).unwrap_or_else(|| 30.into()),
    };
    let end_after = match idle.raw("end_after") {
        None => 3.into(),
        Some(Value::Null) => Value::Null,
        Some(n) if n.as_u64().is_some_and(|n| n <= 1000) => n.clone(),
        Some(_) => {
            idle.add_error("end_after", "must be a whole number between 0 and 1000, or null");
            Value::Null
        }
    };
    let frame_rate = fields.number("frame_rate", 1.0..=60.0).unwrap_or_else(|| 25.into());
    let document = json!({
        "avatar_key_id": (!key.is_empty()).then_some(key),
        "persona_name": fields.text("persona_name").or_else(|| known.map(|a| a.avatar_name.clone())),
        "config": {
            "llm": {
                "provider": llm.text("provider"),
                "model": llm.text("model"),
                "fallback_model": llm.text("fallback_model"),
                "url": llm.text("url"),
                "token": take_token(&llm, &mut secrets.llm, old.and_then(|o| o.llm.as_deref())),
            },
            "stt": {
                "provider": stt.text("provider"),
                "model": stt.text("model"),
                "fallback_model": stt.text("fallback_model"),
                "language": stt.text("language"),
                "min_endpointing_delay": stt.number("min_endpointing_delay", 0.0..=10.0),
                "max_endpointing_delay": stt.number("max_endpointing_delay", 0.0..=10.0),
                "turn_model": stt.boolean("turn_model").unwrap_or(false),
                "token": take_token(&stt, &mut secrets.stt, old.and_then(|o| o.stt.as_deref())),
            },
            "tts": {
                "model_id": tts.text("model_id"),
                "provider": tts.text("provider"),
                "voice_id": tts.text("voice_id"),
                "sample_rate": tts.number("sample_rate", 8000.0..=48_000.0),
                "custom_pronunciation": pronunciations(&tts),
                "token": take_token(&tts, &mut secrets.tts, old.and_then(|o| o.tts.as_deref())),
            },
        },
        "welcome_message": {
            "wait_time": welcome.number("wait_time", 0.0..=60.0).unwrap_or_else(|| 1.into()),
            "messages": messages(&welcome, "messages"),
        },
        "idle_timeout": {"timeout": idle_timeout, "filler_phrases": messages(&idle, "filler_phrases"), "end_after": end_after},
        "exit_heads_up_message": {
            "callout_before": exit_warning.number("callout_before", 0.0..=MAX_DURATION_SECONDS).unwrap_or_else(|| 10.into()),
            "messages": messages(&exit_warning, "messages"),
        },
        "exit_message": {"messages": messages(&exit, "messages"), "max_call_duration": exit.number("max_call_duration", 0.0..=MAX_DURATION_SECONDS)},
        "turn_handling": handling,
        "interruptability": interruptability,
        "frame_rate": frame_rate,
    });
    (document, secrets)
}

fn pronunciations(tts: &Fields<'_>) -> Vec<Value> {
    let list = tts.objects("custom_pronunciation").unwrap_or_default();
    list.iter()
        .map(|p| json!({"word": p.required("word"), "pronunciation": p.required("pronunciation")}))
        .collect()
}

/// Moves the field `token` into `kept`. Returns its replacement in the document.
fn take_token(fields: &Fields<'_>, secret: &mut Option<String>, old: Option<&str>) -> Value {
    *secret = match fields.text("token") {
        Some(stars) if stars == SECRET_MASK => old.map(str::to_owned),
        Some(token) if token.is_empty() => None,
        token => token,
    };
    secret.as_ref().map_or(Value::Null, |_| SECRET_MASK.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock() -> Vec<StockAvatar> {
        vec![StockAvatar { avatar_key_id: "ada".into(), avatar_name: "Ada".into(), ..StockAvatar::default() }]
    }

    fn body(extra: Value) -> Value {
        let mut body =
            json!({"agent_name": "A", "agent_system_prompt": "P", "avatars": [{"avatar_key_id": "ada"}]});
        merge(&mut body, extra);
        body
    }

    fn merge(into: &mut Value, extra: Value) {
        if let (Value::Object(into), Value::Object(extra)) = (into, extra) {
            into.extend(extra);
        }
    }

    fn invalid_fields(body: Value) -> Vec<String> {
        match parse(body, &stock(), None) {
            Err(ApiError::Invalid(errors)) => errors.into_iter().map(|f| f.field).collect(),
            Err(other) => panic!("{other:?}"),
            Ok(_) => Vec::new(),
        }
    }

    #[test]
    fn the_smallest_agent_gets_every_default() {
        let parsed = parse(body(json!({})), &stock(), None).unwrap();
        let d = &parsed.document;
        assert_eq!(d["record"], false);
        assert_eq!(d["is_active"], true);
        assert_eq!(d["callback_url"], "");
        assert_eq!(d["tool"], Value::Null);
        assert_eq!(d["embed"], json!({"enabled": false, "origins": []}));
        let avatar = &d["avatars"][0];
        assert_eq!(avatar["persona_name"], "Ada");
        assert_eq!(avatar["welcome_message"], json!({"wait_time": 1, "messages": []}));
        assert_eq!(avatar["idle_timeout"], json!({"timeout": 30, "filler_phrases": [], "end_after": 3}));
        assert_eq!(avatar["turn_handling"], "balanced");
        assert_eq!(avatar["frame_rate"], 25);
        assert!(parsed.secrets.webhook.starts_with("whsec_"));
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
        assert!(matches!(parse(json!([]), &stock(), None), Err(ApiError::Invalid(f)) if f.is_empty()));
    }

    #[test]
    fn endpointing_delays_are_checked_after_the_defaults_of_turn_handling() {
        let with = |handling: &str, stt: Value| {
            body(json!({"avatars": [{"avatar_key_id": "ada", "turn_handling": handling, "stt": stt}]}))
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
        assert_eq!(invalid_fields(with("proactive", json!({"min_endpointing_delay": 2.5}), none())), [min]);
        assert!(invalid_fields(with("deliberate", json!({"min_endpointing_delay": 4}), none())).is_empty());
        assert_eq!(invalid_fields(with("balanced", json!({"max_endpointing_delay": 0.3}), none())), [max]);
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
        assert_eq!(invalid_fields(with("balanced", json!({"max_endpointing_delay": 10.5}), none())), [max]);
        assert_eq!(invalid_fields(with("balanced", json!({"min_endpointing_delay": -1}), none())), [min]);
        assert_eq!(
            invalid_fields(with("balanced", json!({"turn_threshold": 2}), none())),
            ["config.turn.turn_threshold"]
        );
    }

    #[test]
    fn config_wins_over_what_stands_flat() {
        let avatar = json!({"avatar_key_id": "ada", "llm": {"model": "flat", "provider": "p"}, "config": {"llm": {"model": "under"}}});
        let parsed = parse(body(json!({"avatars": [avatar]})), &stock(), None).unwrap();
        let llm = &parsed.document["avatars"][0]["config"]["llm"];
        assert_eq!((llm["model"].as_str(), llm["provider"].as_str()), (Some("under"), Some("p")));
    }

    #[test]
    fn a_token_is_kept_by_stars_and_cleared_by_silence() {
        let with =
            |token: Value| body(json!({"avatars": [{"avatar_key_id": "ada", "llm": {"token": token}}]}));
        let first = parse(with("secret".into()), &stock(), None).unwrap();
        assert!(!first.document.to_string().contains("secret"));
        assert_eq!(first.document["avatars"][0]["config"]["llm"]["token"], "***");
        let replaced = parse(with("***".into()), &stock(), Some(&first.secrets)).unwrap();
        assert_eq!(replaced.secrets.avatars[0].llm.as_deref(), Some("secret"));
        assert_eq!(replaced.secrets.webhook, first.secrets.webhook);
        let cleared = parse(body(json!({})), &stock(), Some(&first.secrets)).unwrap();
        assert_eq!(cleared.secrets.avatars[0].llm, None);
        let nothing = parse(with("***".into()), &stock(), None).unwrap();
        assert_eq!(nothing.document["avatars"][0]["config"]["llm"]["token"], Value::Null);
    }

    #[test]
    fn null_means_silence_and_without_end_where_it_says_something() {
        let parsed = parse(
            body(json!({"config": {"error_message": null}, "avatars": [{"avatar_key_id": "ada", "idle_timeout": {"end_after": null}}]})),
            &stock(),
            None,
        )
        .unwrap();
        assert_eq!(parsed.document["config"]["error_message"], Value::Null);
        assert_eq!(parsed.document["avatars"][0]["idle_timeout"]["end_after"], Value::Null);
        let parsed = parse(body(json!({})), &stock(), None).unwrap();
        assert_eq!(parsed.document["config"]["error_message"], turn::DEFAULT_ERROR_MESSAGE);
    }

    #[test]
    fn attached_records_are_ids_or_objects_with_an_id() {
        let parsed =
            parse(body(json!({"tool": ["a", {"id": "b", "type": "tool.api"}, "a"]})), &stock(), None)
                .unwrap();
        assert_eq!(parsed.document["tool"], json!(["a", "b"]));
        assert_eq!(invalid_fields(body(json!({"mcp": [1]}))), ["mcp[0]"]);
    }
}
