use serde_json::json;

use super::*;
use crate::picture::Picture;

/// A face in the object form.
fn face() -> Value {
    json!({
        "mouth": {"left": [0.4, 0.7], "right": [0.6, 0.7], "upper": [0.5, 0.68], "lower": [0.5, 0.73]},
        "nose": {"base": [0.5, 0.6]},
        "chin": [0.5, 0.85],
        "left_eye": {
            "outer": [0.35, 0.4], "inner": [0.45, 0.41], "upper": [0.4, 0.38], "lower": [0.4, 0.42],
            "brow": [0.4, 0.33], "iris": [0.4, 0.4],
        },
        "right_eye": {
            "outer": [0.65, 0.4], "inner": [0.55, 0.41], "upper": [0.6, 0.38], "lower": [0.6, 0.42],
            "brow": [0.6, 0.33], "iris": [0.6, 0.4],
        },
    })
}

fn rejection(value: &Value) -> (String, String) {
    let error = Landmarks::from_json(value).unwrap_err();
    (error.path, error.reason)
}

#[test]
fn the_object_form_is_read_and_written() {
    let landmarks = Landmarks::from_json(&face()).unwrap();
    let outline = landmarks.outline();
    assert_eq!(outline.left_eye.brow, [0.4, 0.33]);
    let again = serde_json::to_value(&landmarks).unwrap();
    assert_eq!(Landmarks::from_json(&again).unwrap(), landmarks);
}

#[test]
fn the_mesh_form_is_read_and_has_the_same_outline() {
    let outline = Landmarks::from_json(&face()).unwrap();
    let points = outline.to_points(1000, 1000);
    let mesh = Landmarks::from_points(&points, 1000, 1000);
    let mesh = Landmarks::from_json(&serde_json::to_value(&mesh).unwrap()).unwrap();
    assert!(matches!(&mesh, Landmarks::Mesh(points) if points.len() == POINTS));
    let pairs = mesh.outline().points().into_iter().zip(outline.outline().points());
    assert!(pairs.flat_map(|(a, b)| [a[0] - b[0], a[1] - b[1]]).all(|d| d.abs() < 1e-5));
    let back = mesh.to_points(1000, 1000);
    assert!(back.iter().zip(&points).all(|(a, b)| distance(*a, *b) < 1e-2));
    // The unnamed forehead lies above the brows, in the middle.
    let [x, y] = points[index::FOREHEAD];
    assert!((450.0..550.0).contains(&x) && y < 330.0, "{x}, {y}");
}

#[test]
fn a_wrong_field_is_named_by_its_path() {
    let changed = |pointer: &str, value: Value| {
        let mut face = face();
        *face.pointer_mut(pointer).unwrap() = value;
        face
    };
    const LEFT_CORNER_OF_MESH: &str =
        "must be to the right of the left corner of the mouth (landmarks[61])";
    let fraction = "must be a number between 0 and 1, a fraction of the picture";
    for (value, path, reason) in [
        (json!("no"), "", "must be an array of 478 points, or an object"),
        (json!([[0.5, 0.5]]), "", "must have 478 points, not 1"),
        (json!(vec![[0.5, 1.5]; 478]), "[0][1]", fraction),
        (json!(vec![[0.5]; 478]), "[0]", "must be [x, y]"),
        (json!(vec![[0.5, 0.5]; 478]), "[291]", LEFT_CORNER_OF_MESH),
        (json!({}), "mouth", "must be an object"),
        (changed("/nose", json!([1, 2])), "nose", "must be an object"),
        (changed("/chin", json!(null)), "chin", "must be [x, y]"),
        (changed("/chin", json!([0.5, "low"])), "chin[1]", fraction),
        (
            changed("/chin", json!([0.5, 0.7])),
            "chin",
            "must be below the lower lip (landmarks.mouth.lower)",
        ),
        (changed("/left_eye/iris/0", json!(-0.1)), "left_eye.iris[0]", fraction),
        (
            changed("/left_eye/iris", json!([0.4, 0.2])),
            "left_eye.iris",
            "must be below the left brow (landmarks.left_eye.brow)",
        ),
        (
            changed("/nose/base", json!([0.5, 0.3])),
            "nose.base",
            "must be below the lower lid of the left eye (landmarks.left_eye.lower)",
        ),
        (
            changed("/mouth/right", json!([0.3, 0.7])),
            "mouth.right",
            "must be to the right of the left corner of the mouth (landmarks.mouth.left)",
        ),
    ] {
        assert_eq!(rejection(&value), (path.to_owned(), reason.to_owned()), "{path}");
    }
    let mut unknown = face();
    unknown["mouth"]["teeth"] = json!([0.5, 0.7]);
    assert_eq!(rejection(&unknown).0, "mouth.teeth");
    let mut missing = face();
    missing["right_eye"].as_object_mut().unwrap().remove("brow");
    assert_eq!(rejection(&missing), ("right_eye.brow".to_owned(), "must be [x, y]".to_owned()));
}

#[test]
fn a_turned_face_keeps_its_order() {
    let mut face = face();
    // Upside down.
    fn turn(value: &mut Value) {
        match value {
            Value::Array(point) => point.iter_mut().for_each(|v| {
                *v = json!(1.0 - v.as_f64().unwrap());
            }),
            Value::Object(fields) => fields.values_mut().for_each(turn),
            _ => {}
        }
    }
    turn(&mut face);
    assert!(Landmarks::from_json(&face).is_ok());
}

#[test]
fn one_wrong_point_is_named_in_both_forms() {
    // Where one point is moved to, and the two points that its rejection names.
    for (moved, place, wrong, other) in [
        ("mouth.left", [0.7, 0.7], "mouth.right", "mouth.left"),
        ("left_eye.outer", [0.9, 0.4], "left_eye.inner", "left_eye.outer"),
        ("left_eye.outer", [0.9, 0.1], "left_eye.inner", "left_eye.outer"),
        ("left_eye.outer", [0.35, 0.95], "left_eye.outer", "left_eye.inner"),
        ("right_eye.outer", [0.1, 0.4], "right_eye.outer", "right_eye.inner"),
        ("right_eye.outer", [0.6, 0.0], "right_eye.outer", "right_eye.inner"),
        ("chin", [0.5, 0.3], "chin", "mouth.lower"),
    ] {
        let index = |path: &str| FIELDS.iter().find(|(field, ..)| *field == path).unwrap().1;
        let mut outline = face();
        *outline.pointer_mut(&format!("/{}", moved.replace('.', "/"))).unwrap() = json!(place);
        let (path, reason) = rejection(&outline);
        assert_eq!(path, wrong, "{moved} at {place:?}: {reason}");
        assert!(reason.ends_with(&format!("(landmarks.{other})")), "{reason}");

        let mesh = Landmarks::from_json(&face()).unwrap().to_points(1, 1);
        let mut mesh = mesh.map(|point| json!(point));
        mesh[index(moved)] = json!(place);
        let (path, reason) = rejection(&json!(mesh.to_vec()));
        assert_eq!(path, format!("[{}]", index(wrong)), "{moved} at {place:?}: {reason}");
        assert!(reason.ends_with(&format!("(landmarks[{}])", index(other))), "{reason}");
    }
}

#[test]
fn a_point_outside_of_the_crop_is_too_far_from_the_face() {
    // The face is in the upper left quarter.
    fn halve(value: &mut Value) {
        match value {
            Value::Array(point) => {
                point.iter_mut().for_each(|v| *v = json!(v.as_f64().unwrap() / 2.0));
            }
            Value::Object(fields) => fields.values_mut().for_each(halve),
            _ => {}
        }
    }
    let mut outline = face();
    halve(&mut outline);
    let size = [900, 700];
    let landmarks = Landmarks::from_json(&outline).unwrap();
    let points = landmarks.to_points(size[0], size[1]);
    let mesh = Landmarks::from_points(&points, size[0], size[1]);
    let picture = Picture::new(size[0], size[1], vec![0; size[0] * size[1] * 3]).unwrap();
    assert_eq!(landmarks.check_distance(&picture, &points, [200, 200]), Ok(()));
    let (mut near, mut far) = (0, 0);
    for i in 0..=40 {
        let mut points = points;
        points[473] = [300.0 + 600.0 * i as f32 / 40.0, 100.0 + 12.0 * i as f32];
        points[475] = [points[473][0] - 1.0, points[473][1] - 1.0];
        let [x, y] = crate::level::level(&picture, &points, [200, 200]).1[473];
        let expected = match (0.0..=200.0).contains(&x) && (0.0..=200.0).contains(&y) {
            true => Ok(()),
            false => Err(InvalidLandmarks::new("[473]", "is too far from the face")),
        };
        *if expected.is_ok() { &mut near } else { &mut far } += 1;
        assert_eq!(
            mesh.check_distance(&picture, &points, [200, 200]),
            expected,
            "{:?}",
            points[473]
        );
    }
    assert!(near > 5 && far > 5, "{near} and {far}");

    outline["right_eye"]["iris"] = json!([0.99, 0.99]);
    let landmarks = Landmarks::from_json(&outline).unwrap();
    let points = landmarks.to_points(900, 700);
    let error = landmarks.check_distance(&picture, &points, [200, 200]).unwrap_err();
    assert_eq!((&*error.path, &*error.reason), ("right_eye.iris", "is too far from the face"));
}
