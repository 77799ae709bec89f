//! The face in a photo: its geometry, with lips and irises found in the picture.

use glam::Vec2;

use crate::geometry::{Eye, Frame, Mouth, eye, mouth};
use crate::image::Image;
use crate::landmarks::Landmarks;
use crate::outline::Outline;
use crate::{Error, Photo, iris, lip_line};

/// The geometry of a face, in its frame.
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
                within(mouth.half, 0.15, 1.0) && mouth.narrower_half() > 0.3 * mouth.half,
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
