//! Checks the fields of a background that depend on its type, and fills in their defaults.

use serde_json::Number;

use crate::error::ApiError;
use crate::http::validate::FieldErrors;
use crate::resources::custom_avatars::picture;
use crate::store::background::{Background, BackgroundKind, IMAGE_PREFIX};

/// Direction of a gradient in degrees: from top to bottom.
const DEFAULT_ANGLE: u32 = 180;
const DEFAULT_STRENGTH: f64 = 0.5;

/// The fields of a type.
fn fields_of(kind: BackgroundKind) -> &'static [&'static str] {
    match kind {
        BackgroundKind::Keep => &[],
        BackgroundKind::Colour => &["colour"],
        BackgroundKind::Gradient => &["from", "to", "angle"],
        BackgroundKind::Blur => &["strength"],
        BackgroundKind::Image => &["image"],
    }
}

/// Adds an error for each missing or superfluous field of the background at `path`, whose fields
/// match their schema, and fills in defaults. Uploaded pictures were replaced by their references.
///
/// # Errors
/// 413 for a picture that is too large.
pub(crate) fn complete(
    background: &mut Background,
    path: &str,
    errors: &FieldErrors,
) -> Result<(), ApiError> {
    if errors.contains(&format!("{path}.type")) {
        return Ok(());
    }
    let fields = fields_of(background.kind);
    if background.kind == BackgroundKind::Gradient {
        background.angle.get_or_insert_with(|| DEFAULT_ANGLE.into());
    }
    if background.kind == BackgroundKind::Blur && background.strength.is_none() {
        background.strength = Number::from_f64(DEFAULT_STRENGTH);
    }
    for (name, is_set) in [
        ("colour", background.colour.is_some()),
        ("from", background.from.is_some()),
        ("to", background.to.is_some()),
        ("angle", background.angle.is_some()),
        ("strength", background.strength.is_some()),
        ("image", background.image.is_some()),
    ] {
        let path = format!("{path}.{name}");
        let belongs = fields.contains(&name);
        if is_set && !belongs {
            let kind = background.kind.name();
            errors.add(path, format!("is not allowed for the type {kind}"));
        } else if belongs && !is_set && !errors.contains(&path) {
            errors.add(path, "is required");
        }
    }
    let colours = [&mut background.colour, &mut background.from, &mut background.to];
    colours.into_iter().flatten().for_each(|colour| colour.make_ascii_lowercase());
    if background.kind == BackgroundKind::Image
        && let Some(image) = &background.image
        && let Some(fault) = image_fault(image)?
    {
        errors.add(format!("{path}.image"), fault);
    }
    Ok(())
}

/// What is wrong with a picture, if anything.
fn image_fault(image: &str) -> Result<Option<&'static str>, ApiError> {
    match image.strip_prefix(IMAGE_PREFIX) {
        Some(hash) => {
            let is_hash = hash.len() == 64
                && hash.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
            Ok((!is_hash).then_some("must be sha256: and 64 hexadecimal digits"))
        }
        // A valid one was replaced.
        None => Ok(Some(picture::check_data_uri(image)?.err().unwrap_or("must be uploaded"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The completed background, or the fields that are refused.
    fn check(background: Value) -> Result<Value, Vec<(String, String)>> {
        let mut background: Background = serde_json::from_value(background).unwrap();
        let errors = FieldErrors::default();
        complete(&mut background, "b", &errors).unwrap();
        errors.into_result(json!(background)).map_err(|error| match error {
            ApiError::Invalid(errors) => errors.into_iter().map(|f| (f.field, f.reason)).collect(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_type_has_its_fields_and_defaults() {
        let image = format!("sha256:{}", "0a".repeat(32));
        for (given, completed) in [
            (json!({"type": "keep"}), json!({"type": "keep"})),
            (
                json!({"type": "colour", "colour": "#AABBcc"}),
                json!({"type": "colour", "colour": "#aabbcc"}),
            ),
            (
                json!({"type": "gradient", "from": "#000000", "to": "#FFFFFF"}),
                json!({"type": "gradient", "from": "#000000", "to": "#ffffff", "angle": 180}),
            ),
            (json!({"type": "blur"}), json!({"type": "blur", "strength": 0.5})),
            (json!({"type": "blur", "strength": 0}), json!({"type": "blur", "strength": 0})),
            (json!({"type": "image", "image": image}), json!({"type": "image", "image": image})),
        ] {
            assert_eq!(check(given.clone()), Ok(completed), "{given}");
        }
    }

    #[test]
    fn each_missing_and_superfluous_field_is_reported() {
        for (given, faults) in [
            (json!({"type": "colour"}), vec![("b.colour", "is required")]),
            (json!({"type": "gradient"}), vec![("b.from", "is required"), ("b.to", "is required")]),
            (json!({"type": "image"}), vec![("b.image", "is required")]),
            (
                json!({"type": "keep", "colour": "#000000", "angle": 1}),
                vec![
                    ("b.colour", "is not allowed for the type keep"),
                    ("b.angle", "is not allowed for the type keep"),
                ],
            ),
            (
                json!({"type": "blur", "image": "x"}),
                vec![("b.image", "is not allowed for the type blur")],
            ),
            (
                json!({"type": "image", "image": "sha256:0A"}),
                vec![("b.image", "must be sha256: and 64 hexadecimal digits")],
            ),
            (
                json!({"type": "image", "image": "https://example.com/a.png"}),
                vec![("b.image", "must be a base64 data URI")],
            ),
        ] {
            let faults: Vec<_> =
                faults.into_iter().map(|(f, r)| (f.to_owned(), r.to_owned())).collect();
            assert_eq!(check(given.clone()), Err(faults), "{given}");
        }
    }
}
