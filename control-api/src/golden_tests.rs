//! What each request body becomes: the stored document, or the faults that are reported. The golden
//! files in `tests/golden/` hold the outcome of every single change of a complete body;
//! `UPDATE_GOLDEN=1` rewrites them.

mod requests;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::StockAvatar;
use crate::error::ApiError;
use crate::resources::agents::parse::{AgentDocument, parse};
use crate::resources::agents::tokens::Replaced;
use crate::resources::{guardrails, mcp, tools};
use crate::store::agent::{Agent, Template};
use crate::store::secrets::{AgentSecrets, AvatarSecrets};

/// A stored document with its secrets, or the error that the client gets.
type Outcome = Result<(Value, Value), ApiError>;

/// Values that replace a part of the body, one at a time. `None` removes it.
fn replacements() -> Vec<Option<Value>> {
    let values = [
        json!(null),
        json!(""),
        json!("x"),
        json!(7),
        json!(-1.5),
        json!(true),
        json!([]),
        json!({}),
    ];
    std::iter::once(None).chain(values.map(Some)).collect()
}

/// JSON pointers of all parts of a value.
fn pointers(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let mut add = |step: &str, part: &Value| {
        let pointer = format!("{pointer}/{step}");
        found.push(pointer.clone());
        pointers(part, &pointer, found);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, part)| add(name, part)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, part)| add(&i.to_string(), part))
        }
        _ => {}
    }
}

fn replace(body: &Value, pointer: &str, replacement: Option<&Value>) -> Value {
    let mut body = body.clone();
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    match (body.pointer_mut(parent).unwrap(), replacement) {
        (Value::Object(map), Some(value)) => _ = map.insert(last.into(), value.clone()),
        (Value::Object(map), None) => _ = map.shift_remove(last),
        (Value::Array(items), Some(value)) => items[last.parse::<usize>().unwrap()] = value.clone(),
        (Value::Array(items), None) => _ = items.remove(last.parse().unwrap()),
        other => panic!("{pointer}: {other:?}"),
    }
    body
}

/// The parts in which `value` differs from `base`.
fn difference(base: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    match (base, value) {
        (Value::Object(a), Value::Object(b)) => {
            let names: Vec<&String> =
                a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))).collect();
            for name in names {
                let path = format!("{path}.{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => difference(a, b, &path, found),
                    (None, Some(b)) => found.push(format!("{path}: new {b}")),
                    _ => found.push(format!("{path}: removed")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                difference(a, b, &format!("{path}[{i}]"), found);
            }
        }
        (a, b) if a != b => found.push(format!("{path}: {b}")),
        _ => {}
    }
}

fn describe(outcome: &Outcome, base: &(Value, Value)) -> String {
    match outcome {
        Ok((document, secrets)) => {
            let mut found = Vec::new();
            difference(&base.0, document, "", &mut found);
            difference(&base.1, secrets, "secrets", &mut found);
            if found.is_empty() { "same".into() } else { found.join("; ") }
        }
        Err(ApiError::Invalid(errors)) => {
            // Their order has no meaning.
            let mut faults: Vec<String> =
                errors.iter().map(|fault| format!("{} {}", fault.field, fault.reason)).collect();
            faults.sort();
            format!("400 {}", faults.join("; "))
        }
        Err(ApiError::BadRequest(text)) => format!("400 error: {text}"),
        Err(other) => format!("{other:?}"),
    }
}

/// Compares the outcomes of all changes of `body` with the golden file.
fn check(name: &str, body: &Value, parse: impl Fn(Value) -> Outcome) {
    let base = parse(body.clone()).unwrap();
    let mut text = format!("body: {body}\ndocument: {}\nsecrets: {}\n", base.0, base.1);
    for value in [json!({}), json!([]), json!(null), json!({"unknown": 1, "nul": "a\0b"})] {
        writeln!(text, "body {value}: {}", describe(&parse(value.clone()), &base)).unwrap();
    }
    let mut all = Vec::new();
    pointers(body, "", &mut all);
    for pointer in all {
        for replacement in replacements() {
            let outcome = parse(replace(body, &pointer, replacement.as_ref()));
            let written = replacement.map_or("removed".into(), |value| value.to_string());
            writeln!(text, "{pointer} {written}: {}", describe(&outcome, &base)).unwrap();
        }
    }
    compare(name, &text);
}

/// Compares a text with the golden file.
fn compare(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    let differences: Vec<String> = golden
        .lines()
        .zip(text.lines())
        .filter(|(before, now)| before != now)
        .map(|(before, now)| format!("before: {before}\n   now: {now}"))
        .collect();
    assert!(
        differences.is_empty(),
        "{name}: {} differ\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert_eq!(golden.lines().count(), text.lines().count());
}

fn agent_body() -> Value {
    let avatar = json!({
        "avatar_key_id": "ada",
        "persona_name": "Ada L.",
        "llm": {
            "provider": "openai",
            "model": "m",
            "fallback_model": "f",
            "url": "https://llm.example",
            "token": "llm-secret",
        },
        "config": {
            "stt": {"provider": "p", "model": "m", "fallback_model": "f", "language": "en",
                    "min_endpointing_delay": 0.5, "max_endpointing_delay": 3, "turn_model": true,
                    "url": "wss://stt.example", "token": "***", "keyterms": ["Visavis"]},
            "tts": {"model_id": "m", "provider": "p", "voice_id": "v", "sample_rate": 24000,
                    "custom_pronunciation": [{"word": "SQL", "pronunciation": "sequel"}],
                    "token": "tts-secret"},
        },
        "welcome_message": {"wait_time": 2, "messages": ["Hello!"]},
        "idle_timeout": {"timeout": 20, "filler_phrases": ["Still there?"], "end_after": 2},
        "exit_heads_up_message": {"callout_before": 5, "messages": ["One minute."]},
        "exit_message": {"messages": ["Bye."], "max_call_duration": 600},
        "turn_handling": "proactive",
        "interruptability": "high",
        "frame_rate": 20,
        "framing": "bust",
        "size": "720x1280",
        "background": {"type": "gradient", "from": "#112233", "to": "#FFFFFF", "angle": 90},
    });
    json!({
        "agent_name": "Agent",
        "agent_system_prompt": "Be kind.",
        "avatars": [avatar],
        "callback_events": ["call_ended"],
        "callback_url": "https://shop.example/hook",
        "config": {
            "timeout": 300,
            "maxCallDuration": 400,
            "conversationalContext": "context",
            "memory": {"isEnabled": true, "instruction": "i"},
            "error_message": "Sorry.",
            "turn": {
                "min_endpointing_delay": 0.4,
                "false_interruption_timeout": 2,
                "min_interruption_words": 1,
            },
            "expose_tools": true,
            "trust_client_context": true,
            "record_trace": true,
        },
        "knowledge_base": ["k1"],
        "tool": ["t1", {"id": "t2"}],
        "guardrail": ["g1"],
        "mcp": ["m1"],
        "record": true,
        "is_active": false,
        "type": "kind",
        "email": "a@shop.example",
        "embed": {"enabled": true, "origins": ["https://shop.example"]},
    })
}

fn parse_agent<D: AgentDocument>(body: Value) -> Outcome {
    let stock = [StockAvatar {
        avatar_key_id: "ada".into(),
        avatar_name: "Ada".into(),
        ..StockAvatar::default()
    }];
    let old = AvatarSecrets { stt: Some("old-stt".into()), ..AvatarSecrets::default() };
    let secrets = AgentSecrets { webhook: "whsec_old".into(), avatars: vec![old] };
    let stt = json!({"provider": "p", "url": "wss://stt.example"});
    let avatars = [serde_json::from_value(json!({"config": {"stt": stt}})).unwrap()];
    let old = Replaced { avatars: &avatars, secrets: &secrets };
    let parsed = parse::<D>(body, &stock, Some(old))?;
    Ok((json!(parsed.document), serde_json::to_value(&parsed.secrets).unwrap()))
}

#[test]
fn each_change_of_an_agent_has_the_same_outcome_as_before() {
    let body = agent_body();
    check("agent", &body, parse_agent::<Agent>);
}

#[test]
fn each_change_of_a_template_has_the_same_outcome_as_before() {
    // Only what differs from an agent.
    let body = json!({
        "template_name": "Template",
        "template_system_prompt": "Be kind.",
        "avatars": [{"avatar_key_id": "ada"}],
        "tool": ["t1"],
    });
    check("template", &body, parse_agent::<Template>);
}

#[test]
fn each_change_of_a_tool_has_the_same_outcome_as_before() {
    let body = json!({
        "type": "tool.api",
        "schema": {"type": "function", "name": "weather", "description": "d", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}},
            "required": ["city"], "more": 1}},
        "request_config": {
            "method": "get",
            "url": "https://weather.example/{city}",
            "headers": {"Authorization": "Bearer s", "X-Kept": "***"},
        },
        "event_messages": {"on_start": {"message": "a"}, "on_success": {"message": "b"},
                           "on_error": {"message": "c"}, "on_delay": {"delay": 3, "message": "d"}},
    });
    let old = [("X-Kept".to_owned(), "kept".to_owned())].into();
    let parse = |body| {
        let (document, secrets) = tools::parse(body, Some(&old))?;
        Ok((json!(document), json!(secrets)))
    };
    check("tool", &body, parse);
    let mut client = body;
    client["type"] = json!("tool.client");
    check("client-tool", &client, parse);
}

#[test]
fn each_change_of_a_guardrail_has_the_same_outcome_as_before() {
    let body = json!({
        "name": "n",
        "category": "c",
        "prompt": "p",
        "response_message": "r",
        "callback_url": "https://shop.example",
    });
    let parse = |body| {
        let mut document = json!(guardrails::parse(body)?);
        // The server sets it.
        document.as_object_mut().unwrap().shift_remove("key");
        Ok((document, json!({})))
    };
    check("guardrail", &body, parse);
}

#[test]
fn each_change_of_an_mcp_configuration_has_the_same_outcome_as_before() {
    let body = json!({"name": "n", "description": "d", "type": "shttp",
                      "request_config": {"url": "https://mcp.example",
                                         "headers": {"Authorization": "s", "X-Kept": "***"}}});
    let old = [("X-Kept".to_owned(), "kept".to_owned())].into();
    let parse = |body| {
        let (document, secrets) = mcp::parse(body, Some(&old))?;
        Ok((json!(document), json!(secrets)))
    };
    check("mcp", &body, parse);
}
