//! Collects the errors of a request body, each with its path, so that one response reports all of
//! them, and the checks of texts.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::error::{ApiError, FieldError};
use crate::web::is_csp_source;

/// Maximum number of errors reported for one body. More do not help, and a body of 2 MB may have a
/// million.
const MAX_FIELD_ERRORS: usize = 100;
/// Maximum length of a reported path, characters: the client chooses the field names.
const MAX_PATH_CHARS: usize = 200;

/// Errors found so far.
#[derive(Default)]
pub(crate) struct FieldErrors(RefCell<Vec<FieldError>>);

impl FieldErrors {
    /// Adds an error, unless the maximum is reached.
    pub(crate) fn add(&self, field: impl Into<String>, reason: impl Into<String>) {
        if !self.is_full() {
            self.0.borrow_mut().push(FieldError { field: field.into(), reason: reason.into() });
        }
    }

    /// Whether an error of this field, or of a part of it, was added.
    pub(crate) fn contains(&self, field: &str) -> bool {
        self.0.borrow().iter().any(|error| error.field.starts_with(field))
    }

    /// Whether the maximum number of errors is reached.
    fn is_full(&self) -> bool {
        self.0.borrow().len() >= MAX_FIELD_ERRORS
    }

    /// `value` if there is no error, otherwise 400.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, ApiError> {
        let errors = self.0.into_inner();
        if errors.is_empty() { Ok(value) } else { Err(ApiError::Invalid(errors)) }
    }
}

/// The object of a body. 400 without details if it is none. A NUL character is an error anywhere in
/// the body, also in parts that are not parsed further (messages, schemas, metadata): no text needs
/// it, and PostgreSQL cannot store it.
pub(crate) fn body_object(
    value: Value,
    errors: &FieldErrors,
) -> Result<Map<String, Value>, ApiError> {
    let Value::Object(map) = value else { return Err(ApiError::Invalid(Vec::new())) };
    let mut path = Vec::new();
    for (name, value) in &map {
        path.push(PathStep::Field(name));
        report_nul_characters(&mut path, value, errors);
        path.pop();
    }
    Ok(map)
}

/// A step of a path.
#[derive(Clone, Copy)]
enum PathStep<'a> {
    Field(&'a str),
    Index(usize),
}

/// The path as it is reported, with NUL characters made visible.
fn format_path(path: &[PathStep<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Field(name) => {
                let dot = if text.is_empty() { "" } else { "." };
                text.push_str(dot);
                text.extend(
                    name.chars()
                        .take(MAX_PATH_CHARS)
                        .map(|c| if c == '\0' { '\u{2400}' } else { c }),
                );
            }
            PathStep::Index(i) => text.push_str(&format!("[{i}]")),
        }
    }
    text.chars().take(MAX_PATH_CHARS).collect()
}

/// Reports each string in `value`, and each field name, that contains a NUL character. The path is
/// formatted only for an error: its names may be long, and the items many.
fn report_nul_characters<'a>(path: &mut Vec<PathStep<'a>>, value: &'a Value, errors: &FieldErrors) {
    if errors.is_full() {
        return;
    }
    if matches!(path.last(), Some(PathStep::Field(name)) if name.contains('\0')) {
        errors.add(format_path(path), "must not contain a NUL character in its name");
    }
    match value {
        Value::String(text) if text.contains('\0') => {
            errors.add(format_path(path), "must not contain a NUL character");
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                path.push(PathStep::Index(i));
                report_nul_characters(path, item, errors);
                path.pop();
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                path.push(PathStep::Field(name));
                report_nul_characters(path, value, errors);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Whether `text` is a well-formed http(s) URL with a host.
pub(crate) fn is_http_url(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|u| matches!(u.scheme(), "http" | "https") && u.has_host())
}

/// Whether `text` is an origin: scheme, host and port only.
pub(crate) fn is_origin(text: &str) -> bool {
    is_http_url(text)
        && is_csp_source(text)
        && url::Url::parse(text).is_ok_and(|u| {
            u.path() == "/"
                && u.query().is_none()
                && u.fragment().is_none()
                && u.username().is_empty()
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body_errors(body: Value) -> Vec<FieldError> {
        let errors = FieldErrors::default();
        body_object(body, &errors).unwrap();
        match errors.into_result(()) {
            Err(ApiError::Invalid(errors)) => errors,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_nul_character_is_reported_with_its_path() {
        let body = json!({"a": {"b": ["x", "y\0"], "c\0": 1}, "d": "good"});
        let found: Vec<_> =
            body_errors(body).into_iter().map(|error| (error.field, error.reason)).collect();
        let wanted = [
            ("a.b[1]", "must not contain a NUL character"),
            ("a.c\u{2400}", "must not contain a NUL character in its name"),
        ];
        assert_eq!(found, wanted.map(|(field, reason)| (field.to_owned(), reason.to_owned())));
    }

    #[test]
    fn reports_of_many_errors_and_long_paths_are_truncated() {
        let long = "x".repeat(10_000);
        let reported = body_errors(json!({long: vec!["\0"; 2_000]}));
        assert_eq!(reported.len(), MAX_FIELD_ERRORS);
        assert!(reported.iter().all(|error| error.field.chars().count() <= MAX_PATH_CHARS));
    }
}
