//! The JSON Schema of a request's type, as [`crate::http::body`] checks it.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The JSON Schema of a request's type, with all parts inline.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.transforms.push(Box::new(RecursiveTransform(join_choices)));
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Turns a choice between texts into one `enum`. If some of them have a description, the generator
/// makes a `oneOf` of them.
fn join_choices(schema: &mut Schema) {
    let Some(Value::Array(variants)) = schema.get("oneOf") else { return };
    let texts_of = |variant: &Value| match (variant.get("const"), variant.get("enum")) {
        (Some(text @ Value::String(_)), _) => Some(vec![text.clone()]),
        (None, Some(Value::Array(texts))) => Some(texts.clone()),
        _ => None,
    };
    let texts: Option<Vec<Vec<Value>>> = variants.iter().map(texts_of).collect();
    let Some(texts) = texts else { return };
    schema.remove("oneOf");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), Value::Array(texts.concat()));
}
