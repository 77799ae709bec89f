//! The picture of a pose.

use character::{Pose, Rect};
use glam::{Vec2, Vec3, vec2};
use rayon::prelude::*;

use crate::cavity::Cavity;
use crate::curve::{bump, gaussian, smoothstep};
use crate::face::Face;
use crate::image::{Image, luma};
use crate::landmarks::Landmarks;
use crate::lids::{self, Lids};
use crate::light::Light;
use crate::lips::LipEdges;
use crate::skin::{self, Sheet, Skin};
use crate::{Error, Photo, brow, turn};

/// Side in pixels of the squares that video is encoded in.
const MACROBLOCK: usize = 16;
/// Height of the brows' motion over an eye, in half widths of the eye.
const FOREHEAD: f32 = 2.9;
/// Extent of the brows beside an eye, in half widths of the eye.
const TEMPLE: f32 = 1.8;
/// Gaps of fewer pixels than the first are closed, and of more than the second open.
const OPEN_GAP: (f32, f32) = (0.25, 1.0);

/// Place of the face in the photo, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaceBounds {
    /// The middle between the eyes.
    pub eyes: [f32; 2],
    /// The lowest point of the chin.
    pub chin: [f32; 2],
}

/// Renders pictures of the person in one photo.
pub struct PhotoRenderer {
    image: Image,
    face: Face,
    light: Light,
    lids: [Lids; 2],
}

impl PhotoRenderer {
    /// Creates the renderer. `landmarks` are in pixels of the photo.
    ///
    /// # Errors
    /// If the photo is empty or incomplete, or the landmarks are not those of a face in it.
    pub fn new(photo: &Photo, landmarks: &Landmarks) -> Result<Self, Error> {
        let image = Image::new(photo)?;
        let face = Face::new(landmarks, photo, &image)?;
        let light = Light::new(&face, &image);
        let lids = face.eyes.each_ref().map(|eye| Lids::new(eye, face.frame, &image));
        Ok(Self { image, face, light, lids })
    }

    /// Width and height of the photo, which are those of every picture.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.image.width, self.image.height)
    }

    /// Place of the face in the photo.
    #[must_use]
    pub fn face_bounds(&self) -> FaceBounds {
        let Face { frame, eyes, centre, chin, .. } = &self.face;
        FaceBounds {
            eyes: frame.to_photo(eyes[0].centre.midpoint(eyes[1].centre)).to_array(),
            chin: frame.to_photo(vec2(centre.x, *chin)).to_array(),
        }
    }

    pub(crate) fn face(&self) -> &Face {
        &self.face
    }

    /// The place of the photo, in pixels, that appears at `pixel` while the head is held as in
    /// `pose`. The motions of eyes and mouth are ignored.
    #[must_use]
    pub fn photo_place(&self, pose: &Pose, pixel: [f32; 2]) -> [f32; 2] {
        let Face { frame, .. } = self.face;
        let place = frame.to_face(Vec2::from(pixel));
        let from = turn::source(&self.face, pose.head, place);
        if from == place { pixel } else { frame.to_photo(from).to_array() }
    }

    /// The rectangle in which lips and jaw move while the head is held as in `rest`, on the grid of
    /// macroblocks.
    #[must_use]
    pub fn mouth_rect(&self, rest: &Pose) -> Rect {
        let mouth = &self.face.mouth;
        let [side, up, down] = skin::REACH.map(|r| r * mouth.half);
        self.bounding_rect(rest, mouth.centre - vec2(side, up), mouth.centre + vec2(side, down))
    }

    /// The rectangle in which lids, eyes and brows move while the head is held as in `rest`, on the
    /// grid of macroblocks.
    #[must_use]
    pub fn eyes_rect(&self, rest: &Pose) -> Rect {
        let [left, right] = &self.face.eyes;
        let low = left.centre - vec2(TEMPLE, FOREHEAD) * left.half;
        let high = right.centre + vec2(TEMPLE, lids::EXTENT[2]) * right.half;
        let low = low.min(vec2(low.x, right.centre.y - FOREHEAD * right.half));
        let high = high.max(vec2(high.x, left.centre.y + lids::EXTENT[2] * left.half));
        self.bounding_rect(rest, low, high)
    }

    fn bounding_rect(&self, rest: &Pose, low: Vec2, high: Vec2) -> Rect {
        let Face { frame, .. } = self.face;
        let corners = [low, vec2(high.x, low.y), vec2(low.x, high.y), high]
            .map(|p| frame.to_photo(p + turn::displacement(&self.face, rest.head, p)));
        let low = corners.iter().fold(Vec2::MAX, |a, b| a.min(*b));
        let high = corners.iter().fold(Vec2::MIN, |a, b| a.max(*b));
        let (width, height) = self.size();
        // At least one macroblock, for any face.
        let down = |v: f32, end: usize| {
            ((v.max(0.0) as usize) / MACROBLOCK * MACROBLOCK).min(end - MACROBLOCK)
        };
        let up = |v: f32, from: usize, end: usize| {
            ((v.max(0.0) as usize).div_ceil(MACROBLOCK) * MACROBLOCK)
                .max(from + MACROBLOCK)
                .min(end)
        };
        let (x0, y0) = (down(low.x, width), down(low.y, height));
        Rect { x0, y0, x1: up(high.x, x0, width), y1: up(high.y, y0, height) }
    }

    /// A rectangle of the picture in this pose: red, green and blue of each pixel, row by row.
    /// Where the pose differs from the default one in nothing, the bytes are those of the photo.
    ///
    /// # Panics
    /// If the rectangle does not lie within the picture.
    #[must_use]
    pub fn draw(&self, pose: &Pose, rect: Rect) -> Vec<u8> {
        let (width, height) = self.size();
        assert!(
            rect.x0 < rect.x1 && rect.y0 < rect.y1 && rect.x1 <= width && rect.y1 <= height,
            "{rect:?}"
        );
        let edges = LipEdges::new(&self.face, pose);
        let drawing = Drawing {
            renderer: self,
            pose,
            skin: Skin { face: &self.face, edges: &edges, pose },
            cavity: Cavity { face: &self.face, light: &self.light, edges: &edges, pose },
        };
        let columns = rect.x1 - rect.x0;
        let mut rgb = vec![0; columns * (rect.y1 - rect.y0) * 3];
        rgb.par_chunks_exact_mut(columns * 3).zip(rect.y0..rect.y1).for_each(|(row, y)| {
            for (pixel, x) in row.chunks_exact_mut(3).zip(rect.x0..rect.x1) {
                let c = drawing.colour(vec2(x as f32, y as f32)) + 0.5;
                pixel.copy_from_slice(&c.to_array().map(|v| v as u8));
            }
        });
        rgb
    }
}

/// One pose of one renderer.
struct Drawing<'a> {
    renderer: &'a PhotoRenderer,
    pose: &'a Pose,
    skin: Skin<'a>,
    cavity: Cavity<'a>,
}

impl Drawing<'_> {
    /// Color of a pixel.
    fn colour(&self, pixel: Vec2) -> Vec3 {
        let PhotoRenderer { image, face, .. } = self.renderer;
        let at_rest = face.frame.to_face(pixel);
        let p = turn::source(face, self.pose.head, at_rest);
        // A place that does not move is the photo's pixel: rotated there and back, it would be a
        // sample beside it.
        let sample =
            |q: Vec2| image.sample(if q == at_rest { pixel } else { face.frame.to_photo(q) });
        for (eye, lids) in face.eyes.iter().zip(&self.renderer.lids) {
            let d = (p - eye.centre) / eye.half;
            let [side, up, down] = lids::EXTENT;
            if d.x.abs() < side && d.y > -up && d.y < down {
                let from = brow::source(face, self.pose.brows, p);
                return lids.colour(eye, self.pose, p, from, &sample);
            }
        }
        if self.skin.contains(p) {
            return self.mouth(p, &sample);
        }
        sample(brow::source(face, self.pose.brows, p))
    }

    /// Color of a place where skin may move with lips and jaw.
    fn mouth(&self, p: Vec2, sample: &impl Fn(Vec2) -> Vec3) -> Vec3 {
        let (mouth, edges) = (&self.renderer.face.mouth, self.skin.edges);
        let x = self.skin.source_x(p);
        let place = |sheet| vec2(x, self.skin.source_y(x, p.y, sheet));
        let u = mouth.u(x);
        if u.abs() >= 1.0 {
            // Beside the corners the sheets are one.
            let line = edges.upper.at(u);
            let seam = 0.12 * mouth.half;
            let share = smoothstep(-seam, seam, p.y - line);
            let from = match share {
                0.0 => place(Sheet::Upper),
                1.0 => place(Sheet::Lower),
                _ => place(Sheet::Upper).lerp(place(Sheet::Lower), share),
            };
            return self.soften_corner(sample(from), u, from, sample);
        }
        let (top, bottom) = (edges.upper.at(u), edges.lower.at(u));
        let gap = bottom - top;
        let open = smoothstep(OPEN_GAP.0, OPEN_GAP.1, gap);
        // Coverage of the pixel by each lip. Where they do not part, they share it.
        let middle = (top + bottom) * 0.5;
        let upper = (middle + (top - middle) * open - p.y + 0.5).clamp(0.0, 1.0);
        let lower = (p.y - middle - (bottom - middle) * open + 0.5).clamp(0.0, 1.0);
        let inside = (1.0 - upper - lower).max(0.0);
        let mut c = Vec3::ZERO;
        if upper > 0.0 {
            let from = place(Sheet::Upper);
            let skin = self.soften_corner(sample(from), u, from, sample);
            c += self.wet_edge(skin, top - p.y, gap) * upper;
        }
        if lower > 0.0 {
            let from = place(Sheet::Lower);
            let skin = self.soften_corner(sample(from), u, from, sample);
            c += self.wet_edge(skin, p.y - bottom, gap) * lower;
        }
        if inside > 0.0 {
            c += self.cavity.colour(u, p) * inside;
        }
        c / (upper + lower + inside)
    }

    /// Rounded lips push the corners forward into the light: the dark creases of the photo's
    /// corners take the color of the skin above and below them.
    fn soften_corner(&self, c: Vec3, u: f32, from: Vec2, sample: &impl Fn(Vec2) -> Vec3) -> Vec3 {
        let (mouth, round) = (&self.renderer.face.mouth, self.pose.mouth.round);
        let h = mouth.half;
        let off = vec2(u.abs() - 0.93, (from.y - mouth.lip_line.at(u)) / h);
        let weight = round.min(0.8) * 1.25 * bump((off / vec2(0.40, 0.20)).length_squared());
        if weight <= 0.0 {
            return c;
        }
        let around =
            (sample(from - vec2(0.0, 0.19 * h)) + sample(from + vec2(0.0, 0.19 * h))) * 0.5;
        if luma(around) > luma(c) { c.lerp(around, weight * 0.85) } else { c }
    }

    /// Parted lips turn their inner side away from the light: a thin dark rim at `away` pixels from
    /// it, so that teeth lie behind them.
    fn wet_edge(&self, c: Vec3, away: f32, gap: f32) -> Vec3 {
        let width = 0.035 * self.renderer.face.mouth.half;
        c * (1.0 - 0.22 * smoothstep(0.5, 3.0, gap) * gaussian(away.max(0.0) / width))
    }
}
