//! Landmarks of a face: what a network finds, or what a user marks.

use serde::{Deserialize, Serialize};

/// A place `[x, y]` in a picture, y downward.
pub type Point = [f32; 2];

/// Number of points of the face mesh with both irises.
pub const MESH_POINTS: usize = 478;

/// Landmarks of a face, in either of two forms. [`crate::PhotoRenderer`] takes them in pixels of
/// the photo; [`Landmarks::map`] converts them from other units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Landmarks {
    /// [`MESH_POINTS`] points in the order of the MediaPipe face mesh: 468 of the face, and five of
    /// each iris.
    Mesh(Vec<Point>),
    /// A few named points.
    Points(Box<FacePoints>),
}

/// The points that a drawing needs at least. Left and right are those of the picture; exchanged
/// ones are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FacePoints {
    /// The mouth, with closed lips.
    pub mouth: MouthPoints,
    /// The nose.
    pub nose: NosePoints,
    /// The lowest point of the chin.
    pub chin: Point,
    /// One eye.
    pub left_eye: EyePoints,
    /// The other one.
    pub right_eye: EyePoints,
}

/// Points of a mouth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MouthPoints {
    /// A corner.
    pub left: Point,
    /// The other corner.
    pub right: Point,
    /// Upper edge of the upper lip, in the middle.
    pub upper: Point,
    /// Lower edge of the lower lip, in the middle.
    pub lower: Point,
}

/// Points of a nose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NosePoints {
    /// Where it meets the upper lip.
    pub base: Point,
}

/// Points of an eye.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EyePoints {
    /// The corner beside the nose.
    pub inner: Point,
    /// The other corner.
    pub outer: Point,
    /// Edge of the upper lid, in the middle.
    pub upper: Point,
    /// Edge of the lower lid, in the middle.
    pub lower: Point,
    /// Lower edge of the brow, in the middle.
    pub brow: Point,
    /// Center of the iris.
    pub iris: Point,
}

impl Landmarks {
    /// The landmarks with each point replaced, for example by its place in a crop.
    #[must_use]
    pub fn map(&self, f: impl Fn(Point) -> Point) -> Self {
        match self {
            Self::Mesh(points) => Self::Mesh(points.iter().map(|p| f(*p)).collect()),
            Self::Points(points) => Self::Points(Box::new(points.map(f))),
        }
    }

    /// Every point.
    pub(crate) fn all(&self) -> Vec<Point> {
        match self {
            Self::Mesh(points) => points.clone(),
            Self::Points(points) => {
                let all = std::cell::RefCell::new(Vec::new());
                points.map(|p| {
                    all.borrow_mut().push(p);
                    p
                });
                all.into_inner()
            }
        }
    }
}

impl FacePoints {
    fn map(&self, f: impl Fn(Point) -> Point) -> Self {
        let eye = |e: &EyePoints| EyePoints {
            inner: f(e.inner),
            outer: f(e.outer),
            upper: f(e.upper),
            lower: f(e.lower),
            brow: f(e.brow),
            iris: f(e.iris),
        };
        let MouthPoints { left, right, upper, lower } = self.mouth;
        Self {
            mouth: MouthPoints { left: f(left), right: f(right), upper: f(upper), lower: f(lower) },
            nose: NosePoints { base: f(self.nose.base) },
            chin: f(self.chin),
            left_eye: eye(&self.left_eye),
            right_eye: eye(&self.right_eye),
        }
    }
}
