//! Functions that build schemas.

use serde_json::{Map, Value, json};

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn id() -> Value {
    json!({"type": "string", "format": "uuid"})
}

pub(super) fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

pub(super) fn string_enum(values: &[&str]) -> Value {
    json!({"type": "string", "enum": values})
}

pub(super) fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

pub(super) fn schema_ref(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// `schema`, or null.
pub(super) fn nullable(mut schema: Value) -> Value {
    let kinds = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.clone()],
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(|k| k.as_str().map(str::to_owned)).collect()
        }
        _ => {
            let null_schema = json!({"type": "null"});
            match schema.get_mut("anyOf") {
                Some(Value::Array(choices)) if choices.contains(&null_schema) => {}
                Some(Value::Array(choices)) => choices.push(null_schema),
                _ => return json!({"anyOf": [schema, null_schema]}),
            }
            return schema;
        }
    };
    if kinds.iter().all(|kind| kind != "null") {
        schema["type"] = json!([kinds, vec!["null".to_owned()]].concat());
        if let Some(Value::Array(values)) = schema.get_mut("enum") {
            values.push(Value::Null);
        }
    }
    schema
}

/// An object with these fields. A field whose name ends in `*` is always present. Any other one may
/// be null, which means the same as absent.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    form_object(
        fields.map(|(name, schema)| {
            (name, if name.ends_with('*') { schema } else { nullable(schema) })
        }),
    )
}

/// The same for a form, in which no field may be null.
pub(super) fn form_object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, schema) in fields {
        let plain = name.trim_end_matches('*');
        if plain != name {
            required.push(plain);
        }
        properties.insert(plain.into(), schema);
    }
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}
