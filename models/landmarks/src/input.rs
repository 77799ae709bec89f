//! Landmarks that a client sends or receives, as fractions of the picture after EXIF rotation.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::detect::distance;
use crate::level;
use crate::picture::{Frame, Picture, Point};
use crate::points::index::{self, CHIN, LEFT_EYE, NOSE_BASE, RIGHT_EYE};
use crate::points::{POINTS, Points};

/// Landmarks of a face: all points of the mesh, or those that the drawing needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Landmarks {
    /// The 478 points of MediaPipe's face mesh with irises, `[x, y]` each.
    Mesh(Vec<Point>),
    /// Points by name.
    Outline(Outline),
}

/// The points that the drawing needs. Left and right are those of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outline {
    /// The mouth.
    pub mouth: MouthOutline,
    /// The nose.
    pub nose: NoseOutline,
    /// The lowest point of the chin.
    pub chin: Point,
    /// The eye on the left of the picture.
    pub left_eye: EyeOutline,
    /// The eye on the right of the picture.
    pub right_eye: EyeOutline,
}

/// Points of a mouth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MouthOutline {
    /// The corner on the left of the picture.
    pub left: Point,
    /// The corner on the right of the picture.
    pub right: Point,
    /// Middle of the upper lip's upper edge.
    pub upper: Point,
    /// Middle of the lower lip's lower edge.
    pub lower: Point,
}

/// Points of a nose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoseOutline {
    /// Where the nose meets the upper lip.
    pub base: Point,
}

/// Points of an eye.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EyeOutline {
    /// The corner beside the nose.
    pub inner: Point,
    /// The corner beside the temple.
    pub outer: Point,
    /// Middle of the upper lid's edge.
    pub upper: Point,
    /// Middle of the lower lid's edge.
    pub lower: Point,
    /// Middle of the brow's lower edge.
    pub brow: Point,
    /// Centre of the iris.
    pub iris: Point,
}

/// A field of the landmarks that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct InvalidLandmarks {
    /// Path of the field below the landmarks: `[12][0]`, `left_eye.iris`; empty for all of them.
    pub path: String,
    /// A clause that says what it must be. Another field in it has the path from the root of a
    /// request, in parentheses: `(landmarks.mouth.left)`.
    pub reason: String,
}

impl InvalidLandmarks {
    fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

/// Fields of the object form, each with the point of the mesh at its place and its name.
const FIELDS: [(&str, usize, &str); 18] = [
    ("mouth.left", index::MOUTH_LEFT, "left corner of the mouth"),
    ("mouth.right", index::MOUTH_RIGHT, "right corner of the mouth"),
    ("mouth.upper", index::LIP_UPPER, "upper lip"),
    ("mouth.lower", index::LIP_LOWER, "lower lip"),
    ("nose.base", NOSE_BASE, "base of the nose"),
    ("chin", CHIN, "chin"),
    ("left_eye.outer", LEFT_EYE[0], "outer corner of the left eye"),
    ("left_eye.inner", LEFT_EYE[1], "inner corner of the left eye"),
    ("left_eye.upper", LEFT_EYE[2], "upper lid of the left eye"),
    ("left_eye.lower", LEFT_EYE[3], "lower lid of the left eye"),
    ("left_eye.brow", LEFT_EYE[4], "left brow"),
    ("left_eye.iris", index::LEFT_IRIS, "left iris"),
    ("right_eye.outer", RIGHT_EYE[0], "outer corner of the right eye"),
    ("right_eye.inner", RIGHT_EYE[1], "inner corner of the right eye"),
    ("right_eye.upper", RIGHT_EYE[2], "upper lid of the right eye"),
    ("right_eye.lower", RIGHT_EYE[3], "lower lid of the right eye"),
    ("right_eye.brow", RIGHT_EYE[4], "right brow"),
    ("right_eye.iris", index::RIGHT_IRIS, "right iris"),
];
/// Objects of the object form.
const OBJECTS: [&str; 4] = ["mouth", "nose", "left_eye", "right_eye"];
/// Maximum distance of a point from the middle of the crop along its axes, as a share of the crop's
/// side: less than a half, so that rounding cannot move a point out of it.
const MAX_DISTANCE: f32 = 0.499;
/// Maximum slope of the line through the outer corners of the eyes in the direction of the face.
const MAX_EYE_SLOPE: f32 = 0.6;

impl Landmarks {
    /// Reads and validates landmarks.
    ///
    /// # Errors
    /// The first field that is not valid.
    pub fn from_json(value: &Value) -> Result<Self, InvalidLandmarks> {
        let landmarks = match value {
            Value::Array(points) => {
                if points.len() != POINTS {
                    let reason = format!("must have {POINTS} points, not {}", points.len());
                    return Err(InvalidLandmarks::new("", reason));
                }
                let points = points.iter().enumerate();
                let points = points.map(|(i, point)| read_point(point, &format!("[{i}]")));
                Self::Mesh(points.collect::<Result<_, _>>()?)
            }
            Value::Object(_) => {
                check_fields(value)?;
                for (path, ..) in FIELDS {
                    read_point(lookup(value, path), path)?;
                }
                let outline = Outline::deserialize(value)
                    .map_err(|error| InvalidLandmarks::new("", error.to_string()))?;
                Self::Outline(outline)
            }
            _ => {
                let reason = format!("must be an array of {POINTS} points, or an object");
                return Err(InvalidLandmarks::new("", reason));
            }
        };
        landmarks.check_shape()?;
        Ok(landmarks)
    }

    /// Fractions of a picture of this size in pixels.
    #[must_use]
    pub fn from_points(points: &Points, width: usize, height: usize) -> Self {
        Self::Mesh(points.iter().map(|[x, y]| [x / width as f32, y / height as f32]).collect())
    }

    /// The points by name.
    #[must_use]
    pub fn outline(&self) -> Outline {
        let points = match self {
            Self::Outline(outline) => return *outline,
            Self::Mesh(points) => points,
        };
        let at = |i: usize| points.get(i).copied().unwrap_or_default();
        let eye = |[outer, inner, upper, lower, brow]: [usize; 5], iris: usize| EyeOutline {
            inner: at(inner),
            outer: at(outer),
            upper: at(upper),
            lower: at(lower),
            brow: at(brow),
            iris: at(iris),
        };
        Outline {
            mouth: MouthOutline {
                left: at(index::MOUTH_LEFT),
                right: at(index::MOUTH_RIGHT),
                upper: at(index::LIP_UPPER),
                lower: at(index::LIP_LOWER),
            },
            nose: NoseOutline { base: at(NOSE_BASE) },
            chin: at(CHIN),
            left_eye: eye(LEFT_EYE, index::LEFT_IRIS),
            right_eye: eye(RIGHT_EYE, index::RIGHT_IRIS),
        }
    }

    /// All points in pixels of a picture of this size. Those that the object form does not name are
    /// placed by an average face that is bent to the named ones.
    #[must_use]
    pub fn to_points(&self, width: usize, height: usize) -> Points {
        let scale = |[x, y]: Point| [x * width as f32, y * height as f32];
        match self {
            Self::Mesh(points) => {
                std::array::from_fn(|i| scale(points.get(i).copied().unwrap_or_default()))
            }
            Self::Outline(outline) => {
                let named = outline.points().map(scale);
                crate::average_face::bend(&FIELDS.map(|(_, i, _)| i), &named)
            }
        }
    }

    /// Checks that all points lie near the face. `points`: those of [`Self::to_points`].
    ///
    /// # Errors
    /// The point that is the farthest from the middle of the crop of this shape, of those outside of
    /// the crop.
    pub fn check_distance(
        &self,
        picture: &Picture,
        points: &Points,
        size: [usize; 2],
    ) -> Result<(), InvalidLandmarks> {
        let crop = level::frame(picture, points, size.into());
        let from_centre = |point: Point| {
            let [x, y] = crop.fractions_of(point);
            (x - 0.5).abs().max((y - 0.5).abs())
        };
        let distances = points.iter().map(|point| from_centre(*point)).enumerate();
        let Some((i, _)) =
            distances.filter(|(_, far)| *far > MAX_DISTANCE).max_by(|a, b| a.1.total_cmp(&b.1))
        else {
            return Ok(());
        };
        let named = FIELDS.iter().find(|(_, point, _)| *point == i);
        Err(match (self, named) {
            (Self::Mesh(_), _) => {
                InvalidLandmarks::new(format!("[{i}]"), "is too far from the face")
            }
            (Self::Outline(_), Some((path, ..))) => {
                InvalidLandmarks::new(*path, "is too far from the face")
            }
            (Self::Outline(_), None) => {
                InvalidLandmarks::new("", "must be the points of one face: one is too far away")
            }
        })
    }

    /// Whether the points have the order of a face, in the direction of the whole face: one wrong
    /// point hardly turns it.
    fn check_shape(&self) -> Result<(), InvalidLandmarks> {
        let named = self.outline().points();
        let place = |i: usize| FIELDS.iter().position(|(_, at, _)| *at == i).unwrap_or_default();
        let point = |i: usize| named[place(i)];
        let error = |wrong: usize, relation: &str, other: usize| {
            let path = |i: usize| match self {
                Self::Mesh(_) => format!("[{i}]"),
                Self::Outline(_) => FIELDS[place(i)].0.to_owned(),
            };
            let (name, dot) = (FIELDS[place(other)].2, ["", "."][usize::from(self.is_outline())]);
            let reason = format!("must be {relation} the {name} (landmarks{dot}{})", path(other));
            Err(InvalidLandmarks::new(path(wrong), reason))
        };
        let turn = across_line(point);
        let axes = Frame::square([0.0, 0.0], 1.0, turn);
        let [right, down] = [0, 1].map(|axis| move |p: Point| axes.fractions_of(p)[axis]);
        // Each pair in the order from left to right, or from top to bottom.
        for [left, then] in [
            [index::MOUTH_LEFT, index::MOUTH_RIGHT],
            [LEFT_EYE[0], LEFT_EYE[1]],
            [LEFT_EYE[1], RIGHT_EYE[1]],
            [RIGHT_EYE[1], RIGHT_EYE[0]],
        ] {
            if distance(point(left), point(then)) < 1e-4 || right(point(left)) >= right(point(then))
            {
                return error(then, "to the right of", left);
            }
        }
        let eyes = [(LEFT_EYE, index::LEFT_IRIS), (RIGHT_EYE, index::RIGHT_IRIS)];
        let downwards = eyes
            .iter()
            .flat_map(|([_, _, upper, lower, brow], iris)| {
                [[*brow, *upper], [*upper, *lower], [*brow, *iris]]
            })
            .chain([
                [LEFT_EYE[3], NOSE_BASE],
                [NOSE_BASE, index::LIP_UPPER],
                [index::LIP_UPPER, index::LIP_LOWER],
                [index::LIP_LOWER, CHIN],
            ]);
        for [above, then] in downwards {
            if down(point(above)) >= down(point(then)) {
                return error(then, "below", above);
            }
        }
        // The photo is levelled by the outer corners.
        let along_eyes = axes.fractions_of(add(point(RIGHT_EYE[0]), point(LEFT_EYE[0]), -1.0));
        let slope = (along_eyes[1] - 0.5) / (along_eyes[0] - 0.5);
        if slope.abs() > MAX_EYE_SLOPE {
            let offset = |eye: [usize; 5]| (down(point(eye[0])) - down(point(eye[1]))).abs();
            let [outer, inner, ..] =
                if offset(LEFT_EYE) > offset(RIGHT_EYE) { LEFT_EYE } else { RIGHT_EYE };
            return error(outer, "at the height of", inner);
        }
        Ok(())
    }

    fn is_outline(&self) -> bool {
        matches!(self, Self::Outline(_))
    }
}

/// `a + factor · b`.
fn add(a: Point, b: Point, factor: f32) -> Point {
    [a[0] + factor * b[0], a[1] + factor * b[1]]
}

/// Angle of a face's direction from left to right, in radians: the mean of six pairs of points.
fn across_line(point: impl Fn(usize) -> Point) -> f32 {
    let eyes = LEFT_EYE.into_iter().zip(RIGHT_EYE);
    let [x, y] = eyes
        .chain([(index::MOUTH_LEFT, index::MOUTH_RIGHT)])
        .map(|(left, right)| (point(left), point(right)))
        .filter(|(left, right)| distance(*left, *right) > 0.0)
        .fold([0.0; 2], |sum, (left, right)| {
            add(sum, add(right, left, -1.0), 1.0 / distance(left, right))
        });
    y.atan2(x)
}

impl Outline {
    /// The points in the order of [`FIELDS`].
    fn points(&self) -> [Point; 18] {
        let Self { mouth, nose, chin, left_eye: l, right_eye: r } = self;
        [
            mouth.left,
            mouth.right,
            mouth.upper,
            mouth.lower,
            nose.base,
            *chin,
            l.outer,
            l.inner,
            l.upper,
            l.lower,
            l.brow,
            l.iris,
            r.outer,
            r.inner,
            r.upper,
            r.lower,
            r.brow,
            r.iris,
        ]
    }
}

/// The value at a path of names; `null` if it is absent.
fn lookup<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, name| &value[name])
}

/// Rejects unknown fields, and objects that are none.
fn check_fields(value: &Value) -> Result<(), InvalidLandmarks> {
    for object in OBJECTS {
        if !value[object].is_object() {
            return Err(InvalidLandmarks::new(object, "must be an object"));
        }
    }
    let known = |path: &str| OBJECTS.contains(&path) || FIELDS.iter().any(|(f, ..)| *f == path);
    let objects = std::iter::once("").chain(OBJECTS);
    for object in objects {
        let fields = if object.is_empty() { value } else { &value[object] };
        for name in fields.as_object().into_iter().flat_map(|fields| fields.keys()) {
            let path = if object.is_empty() { name.clone() } else { format!("{object}.{name}") };
            if !known(&path) {
                return Err(InvalidLandmarks::new(path, "is not known"));
            }
        }
    }
    Ok(())
}

/// Reads `[x, y]`, fractions of the picture.
fn read_point(value: &Value, path: &str) -> Result<Point, InvalidLandmarks> {
    let Some([x, y]) = value.as_array().map(Vec::as_slice) else {
        return Err(InvalidLandmarks::new(path, "must be [x, y]"));
    };
    let mut point = [0.0; 2];
    for (i, (number, slot)) in [x, y].into_iter().zip(&mut point).enumerate() {
        let number = number.as_f64().filter(|number| (0.0..=1.0).contains(number));
        let reason = "must be a number between 0 and 1, a fraction of the picture";
        *slot = number.ok_or_else(|| InvalidLandmarks::new(format!("{path}[{i}]"), reason))? as f32;
    }
    Ok(point)
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
