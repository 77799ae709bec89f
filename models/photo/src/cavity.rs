//! The inside of the mouth: teeth, tongue and the dark between them, in the light of the photo.

use character::Pose;
use glam::{Vec2, Vec3, vec3};

use crate::curve::{gaussian, smoothstep};
use crate::face::Face;
use crate::light::Light;
use crate::lips::LipEdges;

/// Color of the throat and of the tongue relative to the skin.
const THROAT: Vec3 = vec3(0.20, 0.11, 0.11);
const FLESH: Vec3 = vec3(0.72, 0.44, 0.43);
/// How far the upper teeth reach below the line of closed lips, in half widths of the mouth: where
/// the photo shows none, and where it shows teeth.
const TEETH_EDGE: [f32; 2] = [0.085, 0.115];
/// Gaps between the upper teeth, in half widths beside the middle.
const TOOTH_GAPS: [f32; 5] = [0.0, 0.33, 0.57, 0.79, 0.95];
/// Lower teeth are narrower by this factor.
const LOWER_TEETH: f32 = 1.28;

/// The inside of the mouth in a pose.
pub(crate) struct Cavity<'a> {
    pub(crate) face: &'a Face,
    pub(crate) light: &'a Light,
    pub(crate) edges: &'a LipEdges,
    pub(crate) pose: &'a Pose,
}

impl Cavity<'_> {
    /// Color at a place of the pose, `u` along the mouth.
    pub(crate) fn colour(&self, u: f32, p: Vec2) -> Vec3 {
        let mouth = &self.face.mouth;
        let h = mouth.half;
        let x = (p.x - mouth.centre.x) / h;
        let (top, bottom) = (self.edges.upper.at(u), self.edges.lower.at(u));
        let light = self.light.at(x);
        let below = smoothstep(0.0, 1.0, (p.y - top) / (bottom - top).max(1.0));
        let mut c = self.light.skin * THROAT * (light * (0.7 + 0.5 * below));
        c = self.tongue(c, x, p.y, light);
        c = self.lower_teeth(c, x, p.y, light);
        c = self.tongue_tip(c, x, p.y, (top, bottom), light);
        // The lower lip shades what lies behind it, except the upper teeth.
        let behind = smoothstep(-0.01 * h, 0.11 * h, bottom - p.y);
        c *= 0.66 + 0.34 * behind;
        c = self.upper_teeth(c, x, p.y, top, light);
        // The corners lie in the shadow of the cheeks.
        let centre = smoothstep(1.04, 0.70, u.abs());
        c * shadow(0.5 + 0.5 * centre)
    }

    /// Half the width of a soft border.
    fn softness(&self) -> f32 {
        (self.face.mouth.half * 0.022).max(0.5)
    }

    fn tongue(&self, c: Vec3, x: f32, y: f32, light: f32) -> Vec3 {
        let (h, soft, raised) = (self.face.mouth.half, self.softness(), self.pose.mouth.tongue);
        let (height, wide) = (0.30 + 0.42 * raised.min(0.7), 0.62 - 0.10 * raised);
        let top = self.edges.lower.at(0.0) - (height * self.edges.opening.max(1.0)).min(h * 0.40)
            + h * 0.16 * (x / wide).powi(2);
        let mound = smoothstep(-soft * 1.6, soft * 2.2, y - top)
            * (1.0 - smoothstep(wide * 0.75, wide * 1.1, x.abs()));
        let furrow = 1.0 - 0.10 * gaussian(x / 0.06);
        let shade = 0.50 + 0.45 * smoothstep(0.0, h * 0.35, y - top);
        c.lerp(self.light.skin * FLESH * (light * furrow * shade), mound * 0.92)
    }

    /// The jaw carries them.
    fn lower_teeth(&self, c: Vec3, x: f32, y: f32, light: f32) -> Vec3 {
        let (mouth, soft) = (&self.face.mouth, self.softness());
        let h = mouth.half;
        let (shade, notch) = tooth(x * LOWER_TEETH);
        let top = mouth.lip_line.at(0.0) + 0.045 * h + self.edges.drop * 0.86 - h * 0.05 * x * x
            + 0.012 * h * notch;
        let row =
            smoothstep(-soft * 0.7, soft * 0.7, y - top) * (1.0 - smoothstep(0.50, 0.80, x.abs()));
        let toward_side = 1.0 - 0.45 * smoothstep(0.2, 0.9, x.abs());
        c.lerp(self.light.teeth * shadow(shade * toward_side * 0.70) * light, row)
    }

    /// In "th" the tip lies between the teeth.
    fn tongue_tip(&self, c: Vec3, x: f32, y: f32, (top, bottom): (f32, f32), light: f32) -> Vec3 {
        let tongue = self.pose.mouth.tongue;
        if tongue <= 0.7 {
            return c;
        }
        let start = (self.teeth_edge(0.0, 0.0) - 0.02 * self.face.mouth.half).max(top);
        let middle = (start + bottom) * 0.5;
        let r = (x / 0.46).hypot((y - middle) / ((bottom - start) * 0.62).max(1.0));
        let flesh = self.light.skin * FLESH * (light * (1.0 - 0.2 * r));
        c.lerp(flesh, smoothstep(0.7, 1.0, tongue) * (1.0 - smoothstep(0.8, 1.05, r)))
    }

    /// The skull carries them, so they stay.
    fn upper_teeth(&self, c: Vec3, x: f32, y: f32, top: f32, light: f32) -> Vec3 {
        let (h, soft) = (self.face.mouth.half, self.softness());
        let (shade, notch) = tooth(x);
        let edge = self.teeth_edge(x, notch);
        let row =
            smoothstep(-soft * 0.7, soft * 0.7, edge - y) * (1.0 - smoothstep(0.74, 0.97, x.abs()));
        let toward_side = 1.0 - 0.38 * smoothstep(0.25, 0.95, x.abs());
        let under_lip = 0.86 + 0.14 * smoothstep(0.0, 0.10 * h, y - top);
        let round = 1.0 - 0.25 * self.pose.mouth.round;
        c.lerp(self.light.teeth * shadow(shade * toward_side * under_lip * round) * light, row)
    }

    /// y of the edge of the upper teeth.
    fn teeth_edge(&self, x: f32, notch: f32) -> f32 {
        let mouth = &self.face.mouth;
        let length = TEETH_EDGE[usize::from(mouth.is_parted())];
        let rise = 0.045 * self.pose.mouth.round + 0.12 * x * x + 0.014 * notch;
        mouth.lip_line.at(0.0) + mouth.half * (length - rise)
    }
}

/// Color of a shadow of this brightness in a mouth, whose walls are red.
fn shadow(brightness: f32) -> Vec3 {
    vec3(brightness, brightness.powf(1.12), brightness.powf(1.2))
}

/// Brightness of the teeth and depth of the notches in their edge, each 0 … 1, at `x` half widths
/// beside the middle.
fn tooth(x: f32) -> (f32, f32) {
    let nearest = TOOTH_GAPS.iter().map(|gap| (x.abs() - gap).abs()).fold(f32::MAX, f32::min);
    (1.0 - 0.06 * gaussian(nearest / 0.022), gaussian(nearest / 0.05))
}
