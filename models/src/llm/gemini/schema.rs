//! JSON Schemas as the server accepts them: a subset of OpenAPI's schemas. Pure.

use serde_json::{Map, Value, json};

/// Keywords whose values are kept as they are.
const PLAIN: [&str; 13] = [
    "title",
    "description",
    "nullable",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
];

/// Formats that the server knows.
const FORMATS: [&str; 6] = ["float", "double", "int32", "int64", "enum", "date-time"];

/// Maximum depth of a schema; a reference may lead to itself.
const MAX_DEPTH: usize = 16;

/// `schema` in the server's subset. Local references are resolved, and what the subset lacks is
/// left out: the model then knows less about the arguments.
pub(super) fn simplify(schema: &Value) -> Value {
    simplify_at(schema, schema, MAX_DEPTH)
}

fn simplify_at(schema: &Value, root: &Value, depth: usize) -> Value {
    let schema = resolve(schema, root);
    let Some(source) = schema.as_object().filter(|_| depth > 0) else {
        return json!({"type": "string"});
    };
    let deeper = |inner: &Value| simplify_at(inner, root, depth - 1);
    let mut simple = Map::new();
    for (name, value) in source.iter().filter(|(name, _)| PLAIN.contains(&name.as_str())) {
        simple.insert(name.clone(), value.clone());
    }
    set_type(&mut simple, source);
    set_values(&mut simple, source);
    if let Some(format) = source.get("format").filter(|f| FORMATS.iter().any(|known| *f == known)) {
        simple.insert("format".into(), format.clone());
    }
    if let Some(properties) = source.get("properties").and_then(Value::as_object) {
        let inner: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), deeper(schema))).collect();
        let required = source.get("required").and_then(Value::as_array).into_iter().flatten();
        let known = |name: &&Value| name.as_str().is_some_and(|name| inner.contains_key(name));
        let required: Vec<Value> = required.filter(known).cloned().collect();
        if !required.is_empty() {
            simple.insert("required".into(), required.into());
        }
        simple.insert("properties".into(), inner.into());
    }
    if let Some(items) = source.get("items") {
        simple.insert("items".into(), deeper(items));
    } else if simple.get("type").is_some_and(|kind| kind == "array") {
        simple.insert("items".into(), json!({"type": "string"}));
    }
    let choices = ["anyOf", "oneOf"].into_iter().filter_map(|name| source.get(name)?.as_array());
    let choices: Vec<Value> = choices.flatten().map(deeper).collect();
    if !choices.is_empty() {
        simple.insert("anyOf".into(), choices.into());
    } else if !simple.contains_key("type") {
        let kind = if simple.contains_key("properties") { "object" } else { "string" };
        simple.insert("type".into(), kind.into());
    }
    simple.into()
}

/// The schema to which a local reference leads, such as `#/$defs/city`.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?));
    target.unwrap_or(schema)
}

/// The server accepts one type, and a mark of values that may be null.
fn set_type(simple: &mut Map<String, Value>, source: &Map<String, Value>) {
    match source.get("type") {
        Some(Value::String(kind)) => {
            simple.insert("type".into(), kind.as_str().into());
        }
        Some(Value::Array(kinds)) => {
            if let Some(kind) = kinds.iter().find(|kind| *kind != "null") {
                simple.insert("type".into(), kind.clone());
            }
            if kinds.iter().any(|kind| kind == "null") {
                simple.insert("nullable".into(), true.into());
            }
        }
        _ => {}
    }
}

/// Enumerations are of texts only; a constant is an enumeration of one value.
fn set_values(simple: &mut Map<String, Value>, source: &Map<String, Value>) {
    let constant = source.get("const").map(std::slice::from_ref);
    let values = source.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(constant);
    let values = values.unwrap_or_default();
    if !values.is_empty() && values.iter().all(Value::is_string) {
        simple.insert("enum".into(), values.into());
        simple.insert("type".into(), "string".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_subset_lacks_is_left_out_and_the_rest_stays() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "city": {"type": "string", "description": "Where.", "examples": ["Rome"]},
                "unit": {"const": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 9},
                "level": {"type": "integer", "enum": [1, 2]},
                "when": {"type": "string", "format": "date"},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array"},
                "$ref": {"type": "string"},
            },
            "required": ["city", "missing"],
        });
        assert_eq!(
            simplify(&schema),
            json!({
                "type": "object",
                "required": ["city"],
                "properties": {
                    "city": {"description": "Where.", "type": "string"},
                    "unit": {"enum": ["celsius"], "type": "string"},
                    "days": {"minimum": 1, "type": "integer", "nullable": true},
                    "level": {"type": "integer"},
                    "when": {"type": "string"},
                    "at": {"type": "string", "format": "date-time"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "$ref": {"type": "string"},
                },
            })
        );
    }

    #[test]
    fn choices_and_references_are_resolved() {
        let schema = json!({
            "type": "object",
            "properties": {
                "place": {"$ref": "#/$defs/place"},
                "choice": {"oneOf": [{"type": "string"}, {"type": "number"}]},
                "lost": {"$ref": "#/$defs/nothing"},
            },
            "$defs": {"place": {"properties": {"lat": {"type": "number"}}}},
        });
        let simple = simplify(&schema);
        assert_eq!(
            simple["properties"],
            json!({
                "place": {"properties": {"lat": {"type": "number"}}, "type": "object"},
                "choice": {"anyOf": [{"type": "string"}, {"type": "number"}]},
                "lost": {"type": "string"},
            })
        );
        assert!(simple.get("$defs").is_none());
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let schema = json!({
            "type": "object",
            "properties": {"child": {"$ref": "#"}},
        });
        let text = simplify(&schema).to_string();
        assert_eq!(text.matches("child").count(), MAX_DEPTH);
        for odd in [json!(null), json!(true), json!([1]), json!({"type": 7})] {
            assert!(simplify(&odd)["type"].is_string(), "{odd}");
        }
    }
}
