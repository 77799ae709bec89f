//! Frame, mouth and eyes of a face, as the landmarks have them.
//!
//! All coordinates are those of the face's own frame, in pixels of the photo: x along the line
//! through the outer corners of the eyes, y downward across it.

use glam::{Vec2, vec2};

use crate::curve::Curve;
use crate::outline::{EyeOutline, Outline};

/// A gap between the lips of more than this many half widths is a parted mouth.
const PARTED_GAP: f32 = 0.10;

/// The axes of a face.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) origin: Vec2,
    pub(crate) axis: Vec2,
}

impl Frame {
    /// From a place of the photo.
    #[inline]
    pub(crate) fn to_face(self, p: Vec2) -> Vec2 {
        let d = p - self.origin;
        vec2(d.dot(self.axis), self.axis.perp_dot(d))
    }

    /// To a place of the photo.
    #[inline]
    pub(crate) fn to_photo(self, p: Vec2) -> Vec2 {
        self.origin + self.axis * p.x + self.axis.perp() * p.y
    }
}

/// A mouth at rest. Curves are over [`Mouth::u`].
pub(crate) struct Mouth {
    /// In the middle, at the height of the corners.
    pub(crate) centre: Vec2,
    left_width: f32,
    right_width: f32,
    /// Half of the width.
    pub(crate) half: f32,
    /// Edges of the upper lip.
    pub(crate) upper_outer: Curve,
    pub(crate) upper_inner: Curve,
    /// Edges of the lower lip.
    pub(crate) lower_inner: Curve,
    pub(crate) lower_outer: Curve,
    /// Where closed lips meet.
    pub(crate) lip_line: Curve,
    /// Height of the gap between the lips, in pixels; 0 if the photo shows closed lips.
    pub(crate) gap: f32,
}

impl Mouth {
    /// Position along the mouth: −1 at the left corner, 1 at the right one.
    #[inline]
    pub(crate) fn u(&self, x: f32) -> f32 {
        let d = x - self.centre.x;
        d / if d < 0.0 { self.left_width } else { self.right_width }
    }

    /// Inverse of [`Mouth::u`].
    pub(crate) fn x(&self, u: f32) -> f32 {
        self.centre.x + u * if u < 0.0 { self.left_width } else { self.right_width }
    }

    /// Width of the narrower half.
    pub(crate) fn narrower_half(&self) -> f32 {
        self.left_width.min(self.right_width)
    }

    /// Whether the photo shows parted lips.
    pub(crate) fn is_parted(&self) -> bool {
        self.gap > 0.0
    }
}

/// An eye at rest. Curves are over [`Eye::u`].
pub(crate) struct Eye {
    pub(crate) centre: Vec2,
    /// Half of the width.
    pub(crate) half: f32,
    /// Edges of the lids.
    pub(crate) upper: Curve,
    pub(crate) lower: Curve,
    /// Lower edge of the brow.
    pub(crate) brow: Curve,
    pub(crate) iris: Vec2,
    pub(crate) iris_radius: f32,
    /// −1 if the outer corner is on the left, else 1.
    pub(crate) outward: f32,
}

impl Eye {
    /// Position along the eye: −1 at the left corner, 1 at the right one.
    #[inline]
    pub(crate) fn u(&self, x: f32) -> f32 {
        (x - self.centre.x) / self.half
    }
}

/// The mouth of these landmarks.
pub(crate) fn mouth(outline: &Outline, frame: Frame) -> Mouth {
    let lips = outline
        .lips
        .each_ref()
        .map(|line| line.iter().map(|p| frame.to_face(*p)).collect::<Vec<_>>());
    let ends = |line: &[Vec2]| match (line.first(), line.last()) {
        (Some(first), Some(last)) => (*first, *last),
        _ => (Vec2::ZERO, Vec2::ZERO),
    };
    let (outer, inner) = (ends(&lips[0]), ends(&lips[1]));
    let middle = lips.iter().map(|line| line[line.len() / 2].x).sum::<f32>() / 4.0;
    // The visible corner lies between those of the two outlines.
    let (left, right) = (outer.0.lerp(inner.0, 0.65), outer.1.lerp(inner.1, 0.65));
    let mut mouth = Mouth {
        centre: vec2(middle, left.midpoint(right).y),
        left_width: middle - left.x,
        right_width: right.x - middle,
        half: (right.x - left.x) * 0.5,
        upper_outer: Curve::from_fn(|_| 0.0),
        upper_inner: Curve::from_fn(|_| 0.0),
        lower_inner: Curve::from_fn(|_| 0.0),
        lower_outer: Curve::from_fn(|_| 0.0),
        lip_line: Curve::from_fn(|_| 0.0),
        gap: 0.0,
    };
    let [a, b, c, d] =
        lips.map(|line| Curve::through(line.iter().map(|p| vec2(mouth.u(p.x), p.y))));
    let gap_at = |u: f32| c.at(u) - b.at(u);
    let gap = (-3..=3).map(|i| gap_at(i as f32 * 0.15)).fold(0.0, f32::max);
    if gap > PARTED_GAP * mouth.half {
        mouth.gap = gap;
    }
    mouth.lip_line = Curve::from_fn(|u| b.at(u) + gap_at(u) * 0.45);
    (mouth.upper_outer, mouth.upper_inner, mouth.lower_inner, mouth.lower_outer) = (a, b, c, d);
    mouth
}

/// An eye of these landmarks.
pub(crate) fn eye(outline: &EyeOutline, frame: Frame, outward: f32) -> Eye {
    let face = |line: &[Vec2]| line.iter().map(|p| frame.to_face(*p)).collect::<Vec<_>>();
    let upper = face(&outline.upper);
    let (left, right) = (upper[0], upper[upper.len() - 1]);
    let (centre, half) = (left.midpoint(right), (right.x - left.x) * 0.5);
    let curve = |line: &[Vec2]| {
        Curve::through(line.iter().map(|p| vec2((p.x - centre.x) / half.max(1.0), p.y)))
    };
    let radius = outline.iris_radius.unwrap_or(0.0);
    let iris = frame.to_face(outline.iris);
    Eye {
        centre,
        half,
        upper: curve(&upper),
        lower: curve(&face(&outline.lower)),
        brow: curve(&face(&outline.brow)),
        // Within the eye, wherever the landmark lies.
        iris: centre + (iris - centre).clamp(Vec2::splat(-half), Vec2::splat(half.max(-half))),
        iris_radius: radius.clamp(0.2 * half.abs(), 0.7 * half.abs()),
        outward,
    }
}
