//! Geometry of the face in a photo: where lips, lids, brows and chin lie.
//!
//! All coordinates are those of the face's own frame, in pixels of the photo: x along the line
//! through the outer corners of the eyes, y downward across it.

use glam::{Vec2, vec2};

use crate::curve::Curve;
use crate::image::Image;
use crate::landmarks::Landmarks;
use crate::outline::{EyeOutline, Outline};
use crate::{Error, Photo, iris, lip_line};

/// The axes of a face.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    origin: Vec2,
    axis: Vec2,
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

/// The geometry of a face.
pub(crate) struct Face {
    pub(crate) frame: Frame,
    pub(crate) mouth: Mouth,
    /// y of the base of the nose.
    pub(crate) nose_base: f32,
    pub(crate) nose_tip: Vec2,
    /// y of the chin.
    pub(crate) chin: f32,
    /// The picture's left eye and right eye.
    pub(crate) eyes: [Eye; 2],
    /// Middle between hairline and chin, and their distance.
    pub(crate) centre: Vec2,
    pub(crate) height: f32,
    pub(crate) cheeks: [Vec2; 2],
}

/// Minimum distance of the eyes, in pixels: less is not a face that can be animated.
const MIN_EYE_DISTANCE: f32 = 12.0;
/// A gap between the lips of more than this many half widths is a parted mouth.
const PARTED_GAP: f32 = 0.10;

impl Face {
    pub(crate) fn new(landmarks: &Landmarks, photo: &Photo, image: &Image) -> Result<Self, Error> {
        let outline = Outline::new(landmarks, photo)?;
        let ends = outline.eyes.each_ref().map(|e| e.upper.clone());
        let (Some(left), Some(right)) = (ends[0].first(), ends[1].last()) else {
            return Err(Error::Implausible("an eye has no outline"));
        };
        let axis = (*right - *left).try_normalize();
        let axis = axis.ok_or(Error::Implausible("the eyes lie at one place"))?;
        let frame = Frame { origin: left.midpoint(*right), axis };
        let eyes = [eye(&outline.eyes[0], frame, -1.0), eye(&outline.eyes[1], frame, 1.0)];
        let (top, chin) = (frame.to_face(outline.top), frame.to_face(outline.chin));
        let mut face = Self {
            frame,
            mouth: mouth(&outline, frame),
            nose_base: frame.to_face(outline.nose_base).y,
            nose_tip: frame.to_face(outline.nose_tip),
            chin: chin.y,
            eyes,
            centre: top.midpoint(chin),
            height: chin.y - top.y,
            cheeks: outline.cheeks.map(|c| frame.to_face(c)),
        };
        face.check()?;
        let colour = |p: Vec2| image.sample(frame.to_photo(p));
        for (eye, outline) in face.eyes.iter_mut().zip(&outline.eyes) {
            if outline.iris_radius.is_none() {
                eye.iris_radius = iris::find_radius(eye, colour);
            }
        }
        let mouth = &mut face.mouth;
        if mouth.is_parted() {
            mouth.upper_inner =
                lip_line::find_edge(mouth, &mouth.upper_inner, &mouth.upper_outer, colour);
            mouth.lower_inner =
                lip_line::find_edge(mouth, &mouth.lower_inner, &mouth.lower_outer, colour);
        } else {
            let line = lip_line::find(mouth, !outline.has_inner_lips, colour);
            (mouth.upper_inner, mouth.lower_inner) = (line.clone(), line.clone());
            mouth.lip_line = line;
        }
        Ok(face)
    }

    /// Distance between the middles of the eyes.
    pub(crate) fn eye_distance(&self) -> f32 {
        self.eyes[1].centre.x - self.eyes[0].centre.x
    }

    /// Refuses proportions that no face has. All later computations depend on these bounds.
    fn check(&self) -> Result<(), Error> {
        let (distance, mouth) = (self.eye_distance(), &self.mouth);
        let within = |v: f32, low: f32, high: f32| (low * distance..=high * distance).contains(&v);
        let rules = [
            (distance >= MIN_EYE_DISTANCE, "the eyes are too close to each other"),
            (
                self.eyes.iter().all(|e| within(e.half, 0.10, 0.48)),
                "the width of an eye does not fit the distance of the eyes",
            ),
            (
                self.eyes.iter().all(|e| within(e.centre.y.abs(), 0.0, 0.5)),
                "an eye does not lie on the line of the eyes",
            ),
            (within(self.nose_base, 0.2, 1.6), "the base of the nose must lie below the eyes"),
            (
                within(mouth.centre.y - self.nose_base, 0.05, 1.2),
                "the mouth must lie below the nose",
            ),
            (
                within(mouth.half, 0.15, 1.0)
                    && mouth.left_width.min(mouth.right_width) > 0.3 * mouth.half,
                "the width of the mouth does not fit the distance of the eyes",
            ),
            (
                within(mouth.centre.x - self.eyes[0].centre.x, -0.3, 1.3),
                "the mouth must lie between the eyes",
            ),
            (within(self.chin - mouth.centre.y, 0.15, 2.0), "the chin must lie below the mouth"),
            (within(self.height, 1.0, 6.0), "the height of the face does not fit the eyes"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(Error::Implausible(why)),
            None => Ok(()),
        }
    }
}

fn mouth(outline: &Outline, frame: Frame) -> Mouth {
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

fn eye(outline: &EyeOutline, frame: Frame, outward: f32) -> Eye {
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
