//! The landmarks of a request, and their two forms in the API's document.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const DESCRIPTION: &str = "Positions of the facial features, each [x, y] as fractions of the \
    picture after EXIF rotation; [0, 0] is its upper left corner. They replace those that are \
    found. Either the 478 points of MediaPipe's face mesh with irises, or an object with 18 points \
    by name. Left and right are those of the picture when the face is upright: of an unmirrored \
    photo, `left_eye` is the person's right eye. The object assumes closed lips: if the photo \
    shows teeth, the lips of the avatar do not close, and all 478 points are needed.";

/// Positions of facial features in a picture, as fractions of it. The child process that checks the
/// photo reads and validates them.
#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Landmarks(pub(super) Value);

impl JsonSchema for Landmarks {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Landmarks".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let eye = || {
            object([
                ("inner", point("The corner beside the nose")),
                ("outer", point("The corner beside the temple")),
                ("upper", point("Middle of the upper lid's edge")),
                ("lower", point("Middle of the lower lid's edge")),
                ("brow", point("Middle of the brow's lower edge")),
                ("iris", point("Centre of the iris")),
            ])
        };
        let mouth = object([
            ("left", point("The corner on the left of the picture")),
            ("right", point("The corner on the right of the picture")),
            ("upper", point("Middle of the upper lip's upper edge")),
            ("lower", point("Middle of the lower lip's lower edge")),
        ]);
        let outline = object([
            ("mouth", mouth),
            ("nose", object([("base", point("Where the nose meets the upper lip"))])),
            ("chin", point("The lowest point of the chin")),
            ("left_eye", eye()),
            ("right_eye", eye()),
        ]);
        // Those of an object do not apply to an array, and the reverse.
        json_schema!({
            "description": DESCRIPTION,
            "type": ["array", "object"],
            "minItems": 478,
            "maxItems": 478,
            "items": coordinates(),
            "properties": outline["properties"],
            "required": outline["required"],
            "additionalProperties": false,
            "examples": [example()],
        })
    }
}

fn coordinates() -> Value {
    let fraction = json!({"type": "number", "minimum": 0, "maximum": 1});
    json!({"type": "array", "items": fraction, "minItems": 2, "maxItems": 2})
}

fn point(description: &str) -> Value {
    let mut point = coordinates();
    point["description"] = description.into();
    point
}

/// An object of which all these properties are required, and no others are known.
fn object<const N: usize>(properties: [(&str, Value); N]) -> Value {
    let names = properties.each_ref().map(|(name, _)| (*name).to_owned());
    let properties: Map<_, _> =
        properties.into_iter().map(|(name, part)| (name.to_owned(), part)).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": names.as_slice(),
        "additionalProperties": false,
    })
}

/// An average face in the middle of a square picture.
fn example() -> Value {
    json!({
        "mouth": {
            "left": [0.41, 0.62], "right": [0.59, 0.62],
            "upper": [0.5, 0.61], "lower": [0.5, 0.66],
        },
        "nose": {"base": [0.5, 0.57]},
        "chin": [0.5, 0.76],
        "left_eye": {
            "inner": [0.44, 0.43], "outer": [0.35, 0.42],
            "upper": [0.39, 0.4], "lower": [0.39, 0.44],
            "brow": [0.37, 0.34], "iris": [0.4, 0.42],
        },
        "right_eye": {
            "inner": [0.56, 0.43], "outer": [0.65, 0.42],
            "upper": [0.61, 0.4], "lower": [0.61, 0.44],
            "brow": [0.63, 0.34], "iris": [0.6, 0.42],
        },
    })
}

#[cfg(test)]
mod tests {
    use landmarks::Landmarks as Read;

    use super::*;
    use crate::http::schema::schema_of;

    /// JSON pointers to the points that a schema names.
    fn points_of(schema: &Value, path: &str, found: &mut Vec<String>) {
        for (name, part) in schema["properties"].as_object().unwrap() {
            let path = format!("{path}/{name}");
            match &part["properties"] {
                Value::Null => found.push(path),
                _ => points_of(part, &path, found),
            }
        }
    }

    #[test]
    fn the_named_points_are_those_that_are_read() {
        let schema = schema_of::<Landmarks>();
        let example = &schema["examples"][0];
        assert!(matches!(Read::from_json(example), Ok(Read::Outline(_))));
        let mut points = Vec::new();
        points_of(&schema, "", &mut points);
        assert_eq!(points.len(), 18);
        for point in points {
            let mut changed = example.clone();
            *changed.pointer_mut(&point).unwrap() = json!([2, 2]);
            let fault = Read::from_json(&changed).unwrap_err();
            assert_eq!(fault.path, format!("{}[0]", &point[1..].replace('/', ".")));
        }
        let mesh = Read::from_json(example).unwrap().to_points(1, 1);
        assert_eq!(schema["items"]["maxItems"], 2);
        assert_eq!((&schema["minItems"], &schema["maxItems"]), (&json!(478), &json!(478)));
        assert!(matches!(Read::from_json(&json!(mesh.as_slice())), Ok(Read::Mesh(_))));
    }

    #[test]
    fn the_example_of_the_documents_is_that_of_the_schema() {
        let text = include_str!("../../../../docs/photo-checks.md");
        let block = text.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
        let body: Value = serde_json::from_str(&format!("{{{block}}}")).unwrap();
        assert_eq!(body["landmarks"], example());
    }
}
