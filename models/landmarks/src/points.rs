//! The 478 points of a face: 468 of the mesh of MediaPipe, then five of each iris.

use crate::detect::{Detection, distance};
use crate::networks::{IRIS_POINTS, MESH_POINTS, Mesh, Networks};
use crate::picture::{Frame, Point, Pyramid};

/// Number of points.
pub const POINTS: usize = MESH_POINTS + 2 * IRIS_POINTS;

/// Points of a face in the order of the mesh, in pixels of the picture.
pub type Points = [Point; POINTS];

/// Numbers of the points that have a meaning here. Left and right are those of the picture, which
/// are the other ones for the person.
pub mod index {
    /// Top of the forehead.
    pub const FOREHEAD: usize = 10;
    /// Lowest point of the chin.
    pub const CHIN: usize = 152;
    /// Side of the face at the height of the eyes.
    pub const LEFT_SIDE: usize = 234;
    /// As [`LEFT_SIDE`].
    pub const RIGHT_SIDE: usize = 454;
    /// Corner of the mouth.
    pub const MOUTH_LEFT: usize = 61;
    /// As [`MOUTH_LEFT`].
    pub const MOUTH_RIGHT: usize = 291;
    /// Middle of the upper lip's upper edge.
    pub const LIP_UPPER: usize = 0;
    /// Middle of the lower lip's lower edge.
    pub const LIP_LOWER: usize = 17;
    /// Where the nose meets the upper lip.
    pub const NOSE_BASE: usize = 2;
    /// Centre of the left iris; its edge follows.
    pub const LEFT_IRIS: usize = 468;
    /// As [`LEFT_IRIS`].
    pub const RIGHT_IRIS: usize = 473;
    /// Outer corner, inner corner, middle of the upper lid, of the lower lid, and of the brow's
    /// lower edge.
    pub const LEFT_EYE: [usize; 5] = [33, 133, 159, 145, 52];
    /// As [`LEFT_EYE`].
    pub const RIGHT_EYE: [usize; 5] = [263, 362, 386, 374, 282];
    /// The middle of each cheek.
    pub const CHEEKS: [usize; 2] = [50, 280];
}

use index::{CHIN, FOREHEAD, LEFT_EYE, LEFT_SIDE, RIGHT_EYE, RIGHT_SIDE};

/// Side of the mesh network's region, as a share of the face's size.
const MESH_MARGIN: f32 = 1.5;
/// Side of the iris network's region, as a share of the eye's width.
const IRIS_MARGIN: f32 = 2.3;
/// A first look with less presence than this shows no face.
const MIN_FIRST_PRESENCE: f32 = 0.3;

/// A face that was looked at.
pub(crate) struct Face {
    /// In pixels, with depth in the same unit.
    pub(crate) mesh: Vec<[f32; 3]>,
    /// How likely it is a face, 0 … 1.
    pub(crate) presence: f32,
}

impl Face {
    /// Looks at a detected face twice: the second region is the one that the points of the first
    /// look ask for.
    pub(crate) fn look(
        networks: &Networks,
        pyramid: &Pyramid<'_>,
        detection: &Detection,
    ) -> Option<Self> {
        let side = detection.width * MESH_MARGIN;
        let first = Frame::square(detection.centre, side, detection.turn());
        let face = Self::from_mesh(networks.mesh(pyramid, first)?, first);
        if face.presence < MIN_FIRST_PRESENCE {
            return Some(face);
        }
        let second = face.region();
        Some(Self::from_mesh(networks.mesh(pyramid, second)?, second))
    }

    fn from_mesh(mesh: Mesh, frame: Frame) -> Self {
        let side = frame.size[0];
        let to_picture = |[x, y, z]: [f32; 3]| {
            let [x, y] = frame.to_picture([x, y]);
            [x, y, z * side]
        };
        Self { mesh: mesh.points.into_iter().map(to_picture).collect(), presence: mesh.presence }
    }

    pub(crate) fn point(&self, i: usize) -> Point {
        [self.mesh[i][0], self.mesh[i][1]]
    }

    /// The square around the points, in the direction of the eyes.
    fn region(&self) -> Frame {
        let turn = eye_line(|i| self.point(i));
        let axes = Frame::square([0.5, 0.5], 1.0, turn);
        let (mut low, mut high) = ([f32::MAX; 2], [f32::MIN; 2]);
        for i in 0..self.mesh.len() {
            let point = axes.fractions_of(self.point(i));
            for axis in 0..2 {
                low[axis] = low[axis].min(point[axis]);
                high[axis] = high[axis].max(point[axis]);
            }
        }
        let centre = axes.to_picture([(low[0] + high[0]) / 2.0, (low[1] + high[1]) / 2.0]);
        let side = (high[0] - low[0]).max(high[1] - low[1]) * MESH_MARGIN;
        Frame::square(centre, side, turn)
    }

    /// All points, with the irises.
    pub(crate) fn with_irises(&self, networks: &Networks, pyramid: &Pyramid<'_>) -> Option<Points> {
        let mut points: Points = [[0.0; 2]; POINTS];
        for (i, point) in points.iter_mut().take(MESH_POINTS).enumerate() {
            *point = self.point(i);
        }
        let eyes = [(LEFT_EYE, index::LEFT_IRIS, true), (RIGHT_EYE, index::RIGHT_IRIS, false)];
        for ([outer, inner, ..], first, mirrored) in eyes {
            let (outer, inner) = (self.point(outer), self.point(inner));
            let (left, right) = if mirrored { (outer, inner) } else { (inner, outer) };
            let frame = Frame::square(
                [(left[0] + right[0]) / 2.0, (left[1] + right[1]) / 2.0],
                distance(left, right) * IRIS_MARGIN,
                (right[1] - left[1]).atan2(right[0] - left[0]),
            );
            let iris = networks.iris(pyramid, frame, mirrored)?;
            for (point, found) in points[first..].iter_mut().zip(iris) {
                *point = frame.to_picture(found);
            }
        }
        points.iter().flatten().all(|v| v.is_finite()).then_some(points)
    }

    /// Yaw, pitch and roll in degrees, of the plane through the sides, the forehead and the chin.
    /// Yaw is positive if the face looks to the right of the picture, pitch if it looks down; of a
    /// face that looks into the camera, this network gives a pitch of about 10.
    pub(crate) fn angles(&self) -> [f32; 3] {
        let between = |a: usize, b: usize| -> [f32; 3] {
            std::array::from_fn(|i| self.mesh[b][i] - self.mesh[a][i])
        };
        let roll = eye_line(|i| self.point(i));
        let (sin, cos) = roll.sin_cos();
        // In the directions of an upright face.
        let level = |[x, y, z]: [f32; 3]| [x * cos + y * sin, y * cos - x * sin, z];
        let (a, b) = (level(between(LEFT_SIDE, RIGHT_SIDE)), level(between(FOREHEAD, CHIN)));
        let normal =
            [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
        let length = normal.iter().map(|v| v * v).sum::<f32>().sqrt();
        [-normal[0].atan2(normal[2]), -(normal[1] / length).asin(), roll].map(f32::to_degrees)
    }
}

/// Angle of the line through the outer corners of the eyes, in radians.
pub(crate) fn eye_line(point: impl Fn(usize) -> Point) -> f32 {
    let (left, right) = (point(LEFT_EYE[0]), point(RIGHT_EYE[0]));
    (right[1] - left[1]).atan2(right[0] - left[0])
}
