//! Reads a request body into a type. The type's JSON Schema, which the OpenAPI document publishes,
//! is the check: every part that does not match it is reported with its path, so that one response
//! names all faults.
//!
//! Keywords that are checked: `type`, `properties`, `required`, `additionalProperties`, `items`,
//! `maxItems`, `minItems` with the same `maxItems`, `enum`, `minLength`, `maxLength`, `minimum`, `maximum`,
//! `multipleOf`, and `format` (see [`check_format`]). A null counts as absent, unless the property
//! has [`NULL_MEANING`].

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::http::schema::schema_of;
use crate::http::validate::{FieldErrors, body_object, is_http_url, is_origin};

/// Maximum number of unknown properties reported for one object.
const MAX_UNKNOWN_PROPERTIES: usize = 32;
/// Maximum length of an unknown property's name in a report, characters: the client chooses it.
const MAX_NAME_CHARS: usize = 100;

/// Schema keyword: the meaning of null where it differs from an absent property. The rest of the
/// document describes it in text.
pub(crate) const NULL_MEANING: &str = "x-null";

/// The schema of a request's type, built on first use.
pub(crate) fn request_schema<T: JsonSchema + 'static>() -> &'static Value {
    static SCHEMAS: LazyLock<RwLock<HashMap<TypeId, &'static Value>>> =
        LazyLock::new(RwLock::default);
    let id = TypeId::of::<T>();
    if let Some(schema) = SCHEMAS.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
        return schema;
    }
    // One per type, for the life of the process.
    let schema = Box::leak(Box::new(schema_of::<T>()));
    SCHEMAS.write().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(schema)
}

/// Reads a body into a type and adds every fault to `errors`. The result is only meaningful if
/// there is none.
///
/// # Errors
/// 400 without details if the body is not an object.
pub(crate) fn read<T>(body: Value, errors: &FieldErrors) -> Result<T, ApiError>
where
    T: DeserializeOwned + Default + JsonSchema + 'static,
{
    let map = body_object(body, errors)?;
    Ok(convert(check(request_schema::<T>(), Value::Object(map), errors), errors))
}

/// Reads a body whose only checks are those of its type.
///
/// # Errors
/// 400 with every fault.
pub(crate) fn parse<T>(body: Value) -> Result<T, ApiError>
where
    T: DeserializeOwned + Default + JsonSchema + 'static,
{
    let errors = FieldErrors::default();
    let value = read(body, &errors)?;
    errors.into_result(value)
}

/// The parts of `body` that match the schema; all others are added to `errors` and left out, so
/// that their defaults apply and later checks can report theirs too.
pub(crate) fn check(schema: &Value, body: Value, errors: &FieldErrors) -> Value {
    SchemaCheck { errors }.check_object(schema, body, "")
}

/// The type's value for a checked body.
pub(crate) fn convert<T: DeserializeOwned + Default>(checked: Value, errors: &FieldErrors) -> T {
    serde_json::from_value(checked).unwrap_or_else(|error| {
        // The schema admits a value that the type does not. The client gets 400 in any case.
        tracing::warn!(%error, "a checked request body does not fit its type");
        errors.add("", error.to_string());
        T::default()
    })
}

/// JSON paths (`config.turn`) below which a merge patch stores null instead of removing the
/// property.
pub(crate) fn nullable_paths(schema: &Value) -> Vec<String> {
    fn collect(schema: &Value, path: &str, found: &mut Vec<String>) {
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        for (name, property) in properties {
            let path = join(path, name);
            if property.get(NULL_MEANING).is_some() {
                found.push(path.clone());
            }
            collect(property, &path, found);
        }
    }
    let mut found = Vec::new();
    collect(schema, "", &mut found);
    found
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The types of a schema other than null.
fn types_of(schema: &Value) -> impl Iterator<Item = &str> {
    let types = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.as_slice(),
        Some(kind) => std::slice::from_ref(kind),
        None => &[],
    };
    types.iter().filter_map(Value::as_str).filter(|kind| *kind != "null")
}

/// The type of a schema other than null; `None` if it has none or several.
fn type_of(schema: &Value) -> Option<&str> {
    let mut types = types_of(schema);
    types.next().filter(|_| types.next().is_none())
}

/// What is wrong with a value that may have several types, if anything.
fn type_fault(schema: &Value, value: &Value) -> Option<String> {
    let fits = |kind: &str| match kind {
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if types_of(schema).count() == 0 || types_of(schema).any(fits) {
        return None;
    }
    let with_article = |kind: &str| {
        let article = if kind.starts_with(['a', 'o']) { "an" } else { "a" };
        format!("{article} {kind}")
    };
    let kinds: Vec<String> = types_of(schema).map(with_article).collect();
    Some(format!("must be {}", kinds.join(" or ")))
}

/// The number of items that an array must have, if it is fixed.
fn item_count(schema: &Value) -> Option<u64> {
    let count = schema.get("minItems")?.as_u64()?;
    (schema.get("maxItems")?.as_u64()? == count).then_some(count)
}

/// Whether a schema admits null, which makes an absent value something else than an empty object.
fn is_nullable(schema: &Value) -> bool {
    matches!(
        schema.get("type"),
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "null")
    )
}

/// What is wrong with a text of this `format`, if anything. An empty URL is an unset one.
fn check_format(format: &str, text: &str) -> Option<&'static str> {
    match format {
        "uri" => (!text.is_empty() && !is_http_url(text)).then_some("must be a valid http(s) URL"),
        "color" => (!is_color(text)).then_some("must be a colour such as #c0906f"),
        "origin" => (text != "*" && !is_origin(text))
            .then_some("must be an origin such as https://shop.example, or * for any"),
        _ => None,
    }
}

/// Whether a text is a color such as `#c0906f`.
fn is_color(text: &str) -> bool {
    let digits = text.strip_prefix('#');
    digits.is_some_and(|digits| digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
}

/// The empty value of a schema's type, or its first choice.
fn empty_value(schema: &Value) -> Value {
    if let Some(Value::Array(choices)) = schema.get("enum") {
        return choices.first().cloned().unwrap_or_default();
    }
    match type_of(schema) {
        Some("string") => "".into(),
        Some("number" | "integer") => 0.into(),
        Some("array") => Value::Array(Vec::new()),
        Some("object") => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let required =
                properties.into_iter().flatten().filter(|(name, _)| is_required(schema, name));
            Value::Object(required.map(|(name, part)| (name.clone(), empty_value(part))).collect())
        }
        _ => Value::Null,
    }
}

struct SchemaCheck<'a> {
    errors: &'a FieldErrors,
}

impl SchemaCheck<'_> {
    /// The parts of `value` that match the schema; `None` if nothing of it does.
    fn check(&self, schema: &Value, value: Value, path: &str) -> Option<Value> {
        match type_of(schema) {
            Some("object") => Some(self.check_object(schema, value, path)),
            Some("array") => self.check_array(schema, value, path),
            Some(kind) => match scalar_fault(kind, schema, &value) {
                None => Some(value),
                Some(fault) => {
                    self.errors.add(path, fault);
                    None
                }
            },
            None => match type_fault(schema, &value) {
                None => Some(value),
                Some(fault) => {
                    self.errors.add(path, fault);
                    None
                }
            },
        }
    }

    fn check_object(&self, schema: &Value, value: Value, path: &str) -> Value {
        let mut map = match value {
            Value::Object(map) => map,
            _ => {
                self.errors.add(path, "must be an object");
                Map::new()
            }
        };
        let mut checked = Map::new();
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                let found = map.shift_remove(name);
                let path = join(path, name);
                let required = is_required(schema, name);
                match self.check_property(required, property, found, &path) {
                    Some(value) => _ = checked.insert(name.clone(), value),
                    // The type has no default for it. The fault is reported, so the value is not
                    // used.
                    None if required => _ = checked.insert(name.clone(), empty_value(property)),
                    None => {}
                }
            }
        }
        match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => {
                for name in map.keys().take(MAX_UNKNOWN_PROPERTIES) {
                    let name: String = name.chars().take(MAX_NAME_CHARS).collect();
                    self.errors.add(join(path, &name), "is unknown");
                }
            }
            Some(property @ Value::Object(_)) => {
                for (name, value) in map {
                    if let Some(value) = self.check(property, value, &join(path, &name)) {
                        checked.insert(name, value);
                    }
                }
            }
            // An object of no particular form.
            Some(Value::Bool(true)) => checked.extend(map),
            _ => {}
        }
        Value::Object(checked)
    }

    fn check_property(
        &self,
        is_required: bool,
        schema: &Value,
        value: Option<Value>,
        path: &str,
    ) -> Option<Value> {
        match value {
            Some(Value::Null) if schema.get(NULL_MEANING).is_some() => Some(Value::Null),
            None | Some(Value::Null) => {
                let is_object = type_of(schema) == Some("object") && !is_nullable(schema);
                if is_required && (value.is_none() || !is_object) {
                    self.errors.add(path, "is required");
                    None
                } else if is_object {
                    // Its own properties may be required.
                    Some(self.check_object(schema, Value::Object(Map::new()), path))
                } else {
                    None
                }
            }
            Some(value) => self.check(schema, value, path),
        }
    }

    fn check_array(&self, schema: &Value, value: Value, path: &str) -> Option<Value> {
        let item_schema = schema.get("items").unwrap_or(&Value::Null);
        if let Some(count) = item_count(schema) {
            return self.check_tuple(item_schema, count, value, path);
        }
        let is_id_list = item_schema.get("anyOf").is_some();
        let item_type = type_of(item_schema);
        let Value::Array(items) = value else {
            self.errors.add(
                path,
                match item_type {
                    Some("string") => "must be an array of strings",
                    _ if is_id_list => "must be an array of ids",
                    _ => "must be an array",
                },
            );
            return None;
        };
        if item_type == Some("string") && !items.iter().all(Value::is_string) {
            self.errors.add(path, "must be an array of strings");
            return None;
        }
        if let Some(max) = schema.get("maxItems").and_then(Value::as_u64)
            && items.len() as u64 > max
        {
            self.errors.add(path, format!("must contain at most {max} entries"));
            return None;
        }
        let mut checked = Vec::with_capacity(items.len());
        for (i, item) in items.into_iter().enumerate() {
            let path = format!("{path}[{i}]");
            if is_id_list && !item.is_string() && !item["id"].is_string() {
                self.errors.add(path, "must be an id or an object with an id");
            } else if item_type == Some("object") && !item.is_object() {
                self.errors.add(path, "must be an object");
            } else if let Some(item) = self.check(item_schema, item, &path) {
                checked.push(item);
            }
        }
        Some(Value::Array(checked))
    }

    /// An array of exactly `count` items.
    fn check_tuple(
        &self,
        item_schema: &Value,
        count: u64,
        value: Value,
        path: &str,
    ) -> Option<Value> {
        match value {
            Value::Array(items) if items.len() as u64 == count => {
                let check = |(i, item)| self.check(item_schema, item, &format!("{path}[{i}]"));
                let items: Vec<Option<Value>> = items.into_iter().enumerate().map(check).collect();
                items.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
            }
            _ => {
                self.errors.add(path, format!("must be an array of {count}"));
                None
            }
        }
    }
}

/// What is wrong with a text, number or flag, if anything.
fn scalar_fault(kind: &str, schema: &Value, value: &Value) -> Option<String> {
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    match kind {
        "string" => match value.as_str() {
            Some(text) => text_fault(schema, text),
            None => Some("must be a string".into()),
        },
        "boolean" => (!value.is_boolean()).then(|| "must be true or false".into()),
        "number" => {
            let (min, max) =
                (limit("minimum").unwrap_or(f64::MIN), limit("maximum").unwrap_or(f64::MAX));
            let step = limit("multipleOf");
            match value.as_f64() {
                None => Some("must be a number".into()),
                Some(n) if !(min..=max).contains(&n) && min == max => {
                    Some(format!("must be {min}"))
                }
                Some(n) if !(min..=max).contains(&n) => {
                    Some(format!("must be between {min} and {max}"))
                }
                Some(n) if step.is_some_and(|step| n % step != 0.0) => {
                    let even = if step == Some(2.0) { "an even" } else { "a" };
                    Some(format!("must be {even} whole number"))
                }
                Some(_) => None,
            }
        }
        "integer" => {
            let (min, max) =
                (limit("minimum").unwrap_or(0.0), limit("maximum").unwrap_or(f64::MAX));
            let fits = value.as_u64().is_some_and(|n| (min..=max).contains(&(n as f64)));
            let or_null = if schema.get(NULL_MEANING).is_some() { ", or null" } else { "" };
            (!fits).then(|| format!("must be a whole number between {min} and {max}{or_null}"))
        }
        _ => None,
    }
}

fn text_fault(schema: &Value, text: &str) -> Option<String> {
    let length = |name: &str| schema.get(name).and_then(Value::as_u64);
    if length("minLength").is_some() && text.trim().is_empty() {
        return Some("must not be empty".into());
    }
    if let Some(max) = length("maxLength")
        && text.chars().count() as u64 > max
    {
        return Some(format!("must be at most {max} characters"));
    }
    if let Some(Value::Array(choices)) = schema.get("enum")
        && choices.iter().all(|choice| choice != text)
    {
        let known: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
        return Some(format!("must be one of {}", known.join(", ")));
    }
    let format = schema.get("format").and_then(Value::as_str)?;
    check_format(format, text).map(str::to_owned)
}
