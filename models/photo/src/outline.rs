//! Outlines of lips, lids and brows as points of the photo, from either form of the landmarks.

use glam::Vec2;

use crate::landmarks::{EyePoints, FacePoints, Landmarks, MESH_POINTS, Point};
use crate::{Error, Photo};

/// Points along the parts of a face, from the picture's left to its right, in pixels of the photo.
pub(crate) struct Outline {
    /// Edges of the lips, from the upper edge of the upper lip downward: upper lip, gap, lower lip.
    pub(crate) lips: [Vec<Vec2>; 4],
    /// The picture's left eye and right eye.
    pub(crate) eyes: [EyeOutline; 2],
    /// Hairline and lowest point of the chin, in the middle.
    pub(crate) top: Vec2,
    pub(crate) chin: Vec2,
    pub(crate) nose_base: Vec2,
    pub(crate) nose_tip: Vec2,
    /// The middle of each cheek.
    pub(crate) cheeks: [Vec2; 2],
    /// Whether the gap between the lips is known. Otherwise the lips are closed.
    pub(crate) has_inner_lips: bool,
}

pub(crate) struct EyeOutline {
    pub(crate) upper: Vec<Vec2>,
    pub(crate) lower: Vec<Vec2>,
    /// Lower edge of the brow.
    pub(crate) brow: Vec<Vec2>,
    pub(crate) iris: Vec2,
    /// `None` if only the center is known.
    pub(crate) iris_radius: Option<f32>,
}

const LIPS: [[usize; 11]; 4] = [
    [61, 185, 40, 39, 37, 0, 267, 269, 270, 409, 291],
    [78, 191, 80, 81, 82, 13, 312, 311, 310, 415, 308],
    [78, 95, 88, 178, 87, 14, 317, 402, 318, 324, 308],
    [61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291],
];
const UPPER_LIDS: [[usize; 9]; 2] =
    [[33, 246, 161, 160, 159, 158, 157, 173, 133], [362, 398, 384, 385, 386, 387, 388, 466, 263]];
const LOWER_LIDS: [[usize; 9]; 2] =
    [[33, 7, 163, 144, 145, 153, 154, 155, 133], [362, 382, 381, 380, 374, 373, 390, 249, 263]];
const BROWS: [[usize; 5]; 2] = [[46, 53, 52, 65, 55], [285, 295, 282, 283, 276]];
/// Centers of the irises. The next four points lie on the rim.
const IRISES: [usize; 2] = [468, 473];
const TOP: usize = 10;
const CHIN: usize = 152;
const NOSE_BASE: usize = 2;
const NOSE_TIP: usize = 4;
const CHEEKS: [usize; 2] = [50, 280];

/// Share of the face's height that lies below the line of the eyes.
const BELOW_EYES: f32 = 0.59;

impl Outline {
    pub(crate) fn new(landmarks: &Landmarks, photo: &Photo) -> Result<Self, Error> {
        let (width, height) = (photo.width as f32, photo.height as f32);
        for point @ [x, y] in landmarks.all() {
            if !(0.0..=width).contains(&x) || !(0.0..=height).contains(&y) {
                return Err(Error::Outside { point });
            }
        }
        match landmarks {
            Landmarks::Mesh(points) if points.len() == MESH_POINTS => Ok(Self::from_mesh(points)),
            Landmarks::Mesh(points) => Err(Error::Count(points.len())),
            Landmarks::Points(points) => Ok(Self::from_points(points)),
        }
    }

    fn from_mesh(points: &[Point]) -> Self {
        let at = |i: usize| Vec2::from(points[i]);
        let all = |list: &[usize]| list.iter().map(|i| at(*i)).collect::<Vec<_>>();
        let eye = |e: usize| EyeOutline {
            upper: all(&UPPER_LIDS[e]),
            lower: all(&LOWER_LIDS[e]),
            brow: all(&BROWS[e]),
            iris: at(IRISES[e]),
            iris_radius: Some(
                (1..=4).map(|k| at(IRISES[e] + k).distance(at(IRISES[e]))).sum::<f32>() / 4.0,
            ),
        };
        Self {
            lips: LIPS.each_ref().map(|list| all(list)),
            eyes: [eye(0), eye(1)],
            top: at(TOP),
            chin: at(CHIN),
            nose_base: at(NOSE_BASE),
            nose_tip: at(NOSE_TIP),
            cheeks: CHEEKS.map(at),
            has_inner_lips: true,
        }
    }

    /// Curves through the few points have the shape of an average face.
    fn from_points(points: &FacePoints) -> Self {
        let mouth = points.mouth;
        let [left, right] = left_first(mouth.left.into(), mouth.right.into());
        let [upper, lower] = [mouth.upper, mouth.lower].map(Vec2::from);
        let line = upper.lerp(lower, 0.46);
        let arc = |through: Vec2, exponent: f32| arc(left, through, right, exponent);
        let mut eyes = [points.left_eye, points.right_eye];
        if eyes[0].iris[0] > eyes[1].iris[0] {
            eyes.swap(0, 1);
        }
        let chin = Vec2::from(points.chin);
        let nose_base = Vec2::from(points.nose.base);
        let middles = eyes.map(|e| (Vec2::from(e.inner) + Vec2::from(e.outer)) * 0.5);
        let between = (middles[0] + middles[1]) * 0.5;
        let outward = (middles[1] - middles[0]) * 0.16;
        let down = nose_base - between;
        Self {
            lips: [arc(upper, 1.6), arc(line, 2.0), arc(line, 2.0), arc(lower, 2.2)],
            eyes: eyes.map(eye_outline),
            top: chin + (between - chin) / BELOW_EYES,
            chin,
            nose_base,
            nose_tip: between + down * 0.78,
            cheeks: [middles[0] - outward + down * 0.75, middles[1] + outward + down * 0.75],
            has_inner_lips: false,
        }
    }
}

fn eye_outline(eye: EyePoints) -> EyeOutline {
    let [left, right] = left_first(eye.inner.into(), eye.outer.into());
    // A brow reaches over both corners of its eye.
    let brow = Vec2::from(eye.brow);
    let half = (right - left) * 0.5;
    let end = Vec2::new(0.0, (brow.y - left.midpoint(right).y).abs() * 0.12);
    EyeOutline {
        upper: arc(left, eye.upper.into(), right, 2.4),
        lower: arc(left, eye.lower.into(), right, 2.5),
        brow: arc(brow - half + end, brow, brow + half + end, 2.0),
        iris: eye.iris.into(),
        iris_radius: None,
    }
}

fn left_first(a: Vec2, b: Vec2) -> [Vec2; 2] {
    if a.x <= b.x { [a, b] } else { [b, a] }
}

/// Nine points of an arc with these ends and this middle.
fn arc(left: Vec2, middle: Vec2, right: Vec2, exponent: f32) -> Vec<Vec2> {
    let rise = middle - left.midpoint(right);
    (-4..=4)
        .map(|i| {
            let u = i as f32 / 4.0;
            left.lerp(right, u * 0.5 + 0.5) + rise * (1.0 - u.abs().powf(exponent))
        })
        .collect()
}
