//! Lips, mouth cavity, teeth and tongue, in head space.
//!
//! The lips are two tapered tubes along curves through twelve points per side. They are laid on the
//! face for the current jaw, so that they follow the chin. The cavity is carved between the curves
//! and widens behind them.

use glam::{Vec3, vec3};

use crate::math::{capsule, ellipsoid, gaussian, mix, smax, smin, smoothstep, square};
use crate::scene::Scene;

const CURVE_POINTS: usize = 12;
/// Positions of the curve points as shares of the mouth's half width, from the middle outward.
const CURVE_POSITIONS: [f32; CURVE_POINTS] =
    [0.0, 0.09, 0.18, 0.28, 0.39, 0.50, 0.61, 0.71, 0.80, 0.88, 0.95, 1.0];

/// Depth of the upper incisors, radii of the arch of the upper teeth, and the angle of one tooth on
/// it.
const UPPER_TEETH_Z: f32 = 0.745;
const UPPER_ARCH: Vec3 = vec3(0.275, 1.0, 0.27);
const UPPER_PITCH: f32 = 0.26;

/// Shape of the lips.
#[derive(Clone, Copy, Default)]
pub(crate) struct MouthShape {
    /// Center line and radius of the upper lip.
    upper: [(Vec3, f32); CURVE_POINTS],
    /// Center line and radius of the lower lip.
    lower: [(Vec3, f32); CURVE_POINTS],
    /// Half width.
    pub(crate) width: f32,
    /// Height of the seam in the middle.
    pub(crate) y: f32,
    /// Depth of the upper lip in the middle.
    pub(crate) z: f32,
    /// Distance of the upper and the lower edge from the seam in the middle.
    upper_gap: f32,
    lower_gap: f32,
    /// Exponent of the opening's outline: 0.5 is an ellipse; larger values give pointed corners.
    opening_exponent: f32,
    /// Position where the fold of the cheek passes the corner: offset to the side, and height over
    /// the seam.
    fold_corner: (f32, f32),
    /// How much higher the edges of the upper teeth are at the corner than in the middle, and how
    /// much lower than at rest in the middle. A smile with a level row looks like a strip of paper.
    upper_teeth_shift: (f32, f32),
    /// Lift of the lower teeth relative to the jaw: between spread lips, as in "s", the rows nearly
    /// meet.
    lower_teeth_lift: f32,
    /// How much less than the jaw the lower lip moves down when it is tucked under the teeth.
    tucked_lip_lift: f32,
}

/// Thickness of the upper lip at a share of the half width. With a `bow` above that of the default,
/// it has a peak beside the dip in the middle and is thinner outside of it; `corners` fill its end.
fn upper_profile(s: f32, bow: f32, corners: f32) -> f32 {
    let more = bow / DEFAULT_BOW - 1.0;
    let peak = 0.105 * gaussian((s - 0.25) / 0.13) - 0.055 * gaussian((s - 0.66) / 0.22);
    0.14 + 0.96 * (1.0 - s.powf(1.25)).max(0.0).powf(0.9) - 0.22 * gaussian(s / 0.085)
        + more * (peak - 0.10 * gaussian(s / 0.09))
        + corners * 0.17 * smoothstep(0.60, 0.92, s)
}

fn lower_profile(s: f32, corners: f32) -> f32 {
    0.12 + 0.92 * (1.0 - s.powf(1.75)).max(0.0).powf(0.9) - 0.06 * gaussian(s / 0.12)
        + corners * 0.14 * smoothstep(0.60, 0.92, s)
}

/// The bow of [`crate::Lips::default`].
const DEFAULT_BOW: f32 = 0.3;

impl MouthShape {
    /// Shape of the opening from the middle (1) to the corner (0).
    fn opening_profile(&self, s: f32) -> f32 {
        (1.0 - s * s).max(0.0).powf(self.opening_exponent)
    }

    /// Whether anything behind the lips is visible.
    pub(crate) fn is_open(&self) -> bool {
        self.upper_gap + self.lower_gap > 0.008
    }
}

impl Scene {
    /// Whether a point is so close to the cavity that teeth and tongue matter; `skin` is its
    /// distance to the skin.
    pub(crate) fn near_mouth_cavity(&self, p: Vec3, skin: f32) -> bool {
        let m = &self.mouth;
        // The point is farther than that in front of the teeth, or of the tip of the tongue.
        let front = if self.tongue.1 > 0.0 { 0.93 } else { 0.76 };
        (p.z - front) * 0.9 < skin
            && p.x.abs() < 0.36
            && p.z < m.z + 0.12
            && p.y < m.y + 0.22
            && p.y > m.y - 0.5
            && p.z > 0.1
    }

    pub(crate) fn shape_mouth(&self) -> MouthShape {
        let (m, smile) = (&self.pose.mouth, self.pose.smile);
        let lips = &self.character.lips;
        let fullness = lips.fullness;
        let width = self.appearance.mouth_width
            * (1.0 + 0.20 * m.width + 0.20 * smile - 0.44 * m.round)
            * (1.0 - 0.04 * m.jaw);
        // The opening follows the jaw; pressing and tucking close it.
        let open = m.jaw * 0.30 * (1.0 - 0.96 * m.press) * (1.0 - m.tuck * 0.55);
        let thin = (1.0 - 0.21 * m.press)
            * (1.0 + 0.06 * m.round)
            * (1.0 - 0.10 * m.jaw * (1.0 - m.round));
        let upper_radius = 0.034 * fullness * lips.upper * thin * (1.0 - 0.16 * smile);
        let lower_radius = 0.044 * fullness * thin * (1.0 - 0.10 * smile) * (1.0 - 0.22 * m.tuck);
        let mut shape = MouthShape {
            width,
            y: self.mouth_rest_y(),
            upper_gap: 0.0035
                + open * 0.22
                + self.upper_lift * 0.045 * (1.0 - 0.85 * m.tuck)
                + m.round * m.jaw * 0.015
                // Two millimetres of teeth: a lip that is lifted farther looks like a snarl.
                + m.tuck * 0.030
                + self.smile_parting * 0.050,
            // Lower than the jaw moves it, so that the lower teeth are visible, above all between
            // spread lips.
            lower_gap: 0.0035 + open * (0.86 + 0.10 * m.width.max(0.0) - 0.06 * m.round)
                - m.tuck * 0.012
                + self.smile_parting * 0.010,
            // When tucked, the lips touch except in the middle.
            opening_exponent: 0.62 - 0.13 * m.round * (m.jaw * 4.0).min(1.0) + 0.55 * m.tuck,
            // Speech moves it little.
            fold_corner: (
                self.appearance.mouth_width
                    * (1.0 + 0.20 * smile + 0.05 * m.width - 0.08 * m.round)
                    + 0.060,
                smile * 0.06,
            ),
            upper_teeth_shift: (
                smile * 0.095 * (1.0 - 0.8 * m.round),
                self.smile_parting * 0.012 + m.tuck * 0.012,
            ),
            lower_teeth_lift: 0.050
                * (m.width * 2.0).clamp(0.0, 1.0)
                * smoothstep(0.45, 0.13, m.jaw)
                * (1.0 - m.tuck),
            ..MouthShape::default()
        };
        shape.tucked_lip_lift = m.tuck * (self.jaw_angle * 0.87 - shape.lower_gap + 0.0455);
        let forward = |s: f32| {
            m.round * 0.115 * (1.0 - s * 0.8) - m.press * 0.010 - 0.03 * smile * (1.0 - s * 0.3)
        };
        for (i, s) in CURVE_POSITIONS.into_iter().enumerate() {
            let x = width * s;
            let lift = self.corner_lift(s);
            let ra = upper_radius * upper_profile(s, lips.bow, lips.corners);
            let rb = lower_radius * lower_profile(s, lips.corners);
            let ya = shape.y + shape.upper_gap * shape.opening_profile(s) + lift + ra * 0.86;
            let yb = shape.y - shape.lower_gap * shape.opening_profile(s) + lift - rb * 0.86;
            let (za, zb) = (self.face_depth(x, ya), self.face_depth(x, yb));
            let bow = if i == 0 { -0.006 } else { 0.0 };
            shape.upper[i] = (vec3(x, ya + bow, za - ra * 0.30 + 0.012 + forward(s)), ra);
            let tuck = m.tuck * (1.0 - s * s) * 0.022;
            shape.lower[i] = (vec3(x, yb + tuck, zb - rb * 0.42 + 0.004 + forward(s) - tuck), rb);
        }
        let corner_z =
            (shape.upper[CURVE_POINTS - 1].0.z + shape.lower[CURVE_POINTS - 1].0.z) * 0.5 - 0.012;
        shape.upper[CURVE_POINTS - 1].0.z = corner_z;
        shape.lower[CURVE_POINTS - 1].0.z = corner_z;
        shape.z = shape.upper[0].0.z;
        shape
    }

    /// Lift of the seam at a share of the half width.
    pub(crate) fn corner_lift(&self, s: f32) -> f32 {
        let smile = self.pose.smile;
        // Round lips that open have no corners to lift: they would become pointed at the bottom.
        let m = &self.pose.mouth;
        let corners = 1.0 - 0.80 * m.round - 0.18 * m.round * (m.jaw * 2.0).min(1.0);
        let [turn, exponent] = self.mouth_corners;
        // A serious mouth does not turn up.
        let turn = turn - 0.014 * smoothstep(0.12, 0.0, smile);
        (smile * 0.115 * corners + turn - m.round * 0.01) * s.powf(exponent)
            - smile * 0.026 * (1.0 - 0.5 * self.smile_parting)
    }

    /// How far the lips move the skin around them up, where the face at rest has `p`; without the
    /// jaw.
    pub(crate) fn skin_lift(&self, p: Vec3) -> f32 {
        let m = &self.mouth;
        let above = p.y - m.y;
        let s = (p.x.abs() / m.width).min(1.1);
        let arc = m.opening_profile(s.min(1.0));
        let lip = if above > 0.0 { (m.upper_gap - 0.0035) * arc } else { 0.0 };
        let held = if above < 0.0 { m.tucked_lip_lift * arc * gaussian(above / 0.38) } else { 0.0 };
        (self.corner_lift(s) - 0.006 * s + lip) * gaussian(above / 0.16) + held
    }

    /// Distances to the upper and the lower lip.
    pub(crate) fn lips(&self, p: Vec3) -> (f32, f32) {
        let q = vec3(p.x.abs(), p.y, p.z);
        // The curves run along x: only the segments around x can be close.
        let at = segment(q.x / self.mouth.width);
        let tube = |curve: &[(Vec3, f32); CURVE_POINTS]| {
            let mut d = 9.0;
            for i in at.saturating_sub(2)..(at + 3).min(CURVE_POINTS - 1) {
                let ((a, ra), (b, rb)) = (curve[i], curve[i + 1]);
                d = smin(d, capsule(q, a, b, ra, rb), 0.02);
            }
            d
        };
        (tube(&self.mouth.upper), tube(&self.mouth.lower))
    }

    /// Depth of the lips at (x, y). Masks must follow it, or corners look boxy and the lower lip
    /// dark.
    fn lip_depth(&self, x: f32, y: f32) -> f32 {
        let s = (x.abs() / self.mouth.width).min(1.0);
        let i = segment(s);
        let k = (s - CURVE_POSITIONS[i]) / (CURVE_POSITIONS[i + 1] - CURVE_POSITIONS[i]);
        let upper = self.mouth.upper[i].0.lerp(self.mouth.upper[i + 1].0, k);
        let lower = self.mouth.lower[i].0.lerp(self.mouth.lower[i + 1].0, k);
        let beyond = if s >= 1.0 { 0.9 * (x.abs() - self.mouth.width) } else { 0.0 };
        mix(lower.z, upper.z, ((y - lower.y) / (upper.y - lower.y).max(0.01)).clamp(0.0, 1.0))
            - beyond
    }

    /// Distance to the cavity between the lips: negative inside.
    fn mouth_cavity(&self, p: Vec3) -> f32 {
        let m = &self.mouth;
        let s = (p.x.abs() / m.width).min(1.0);
        let (arc, lift) = (m.opening_profile(s), self.corner_lift(s));
        let (upper, lower) = (m.y + m.upper_gap * arc + lift, m.y - m.lower_gap * arc + lift);
        // Each lip retains its thickness: the jaw has moved the lower one back.
        let widening = |z: f32| ((z - 0.05 - p.z).max(0.0) * 0.40).min(0.12);
        let share = ((m.upper_gap + m.lower_gap) * 8.0).min(1.0) * (arc * 1.6).min(1.0);
        let back = mix(m.z, m.lower[0].0.z.min(m.z), 0.5);
        let gap = (p.y - upper - widening(m.z) * share).max(lower - p.y - widening(back) * share);
        gap.max(p.x.abs() - m.width * 0.95).max(m.z - 0.62 - p.z) * 0.75
    }

    /// How much a smile folds the cheek on this side: late in the smile, and slightly more on one
    /// side.
    fn smile_fold(&self, x: f32) -> f32 {
        let smile = self.pose.smile;
        smile * (0.30 + 0.70 * smile) * (1.0 + self.fold_asymmetry * (x * 8.0).clamp(-1.0, 1.0))
    }

    /// The fold from the nose past the corner: an arc that a smile moves outward and up, so that it
    /// never meets the lips. Returns its depth, the lateral distance of the point from it, and 1
    /// between its ends.
    pub(crate) fn cheek_fold(&self, p: Vec3) -> (f32, f32, f32) {
        let fold = self.smile_fold(p.x) * 0.55 + self.character.age * 0.60;
        let y = p.y - self.mouth.y;
        let (aside, below) = self.mouth.fold_corner;
        let k = ((0.27 - y) / (0.27 - below)).clamp(0.0, 1.6);
        let across = p.x.abs() - mix(0.165, aside, k * (1.75 - 0.75 * k));
        (fold, across, smoothstep(below - 0.13, below + 0.12, y) * smoothstep(0.33, 0.16, y))
    }

    /// Adds lips, folds and the cavity to the face.
    pub(crate) fn with_mouth(&self, mut d: f32, p: Vec3) -> f32 {
        let shape = &self.mouth;
        let smile = self.pose.smile;
        let m = vec3(p.x, p.y - shape.y, p.z - shape.z);
        if d > 0.25 || m.z <= -0.8 || m.y.abs() >= 0.62 || m.x.abs() >= 0.62 {
            // Only lips protrude so far. Next to them, a bound that is too low would be visible in
            // the shadow of the chin.
            let beside = m.x.abs() > 0.5 || m.y > 0.35 || p.y < shape.lower[0].0.y - 0.2;
            return match d > 0.25 {
                true if beside => d - 0.03,
                true => d - 0.12,
                false => d,
            };
        }
        let philtrum = smoothstep(0.04, 0.10, m.y) * smoothstep(0.23, 0.13, m.y);
        if philtrum > 0.0 {
            // A deep groove has a column on both sides.
            let deep = self.character.lips.philtrum;
            let column = 0.012 * (deep - 0.4).max(0.0) * gaussian((m.x.abs() - 0.052) / 0.020);
            d += (0.025 * deep * gaussian(m.x / 0.035) - column) * philtrum;
        }
        let (fold, across, along) = self.cheek_fold(p);
        let (age, laugh) = (self.character.age, self.smile_fold(p.x));
        // A soft valley, narrower in an old face.
        if along > 0.0 {
            d += fold * 0.012 * gaussian(across / mix(0.058, 0.036, age)) * along;
        }
        // The cheek bulges over the fold, most at its apple.
        let apple = gaussian((across - 0.125) / 0.105) * gaussian((m.y - 0.235) / 0.165);
        d -= (laugh * 0.018 + fold * 0.004) * apple;

        // Sunken cheeks hang beside the chin.
        let sunk = smoothstep(0.45, 0.95, age);
        if sunk > 0.0 && m.y < 0.05 {
            let j = self.to_jaw_space(p);
            d -= sunk
                * 0.030
                * gaussian((j.x.abs() - 0.345) / 0.10)
                * gaussian((j.y + 0.845) / 0.12);
            d +=
                sunk * 0.010 * gaussian((j.x.abs() - 0.215) / 0.05) * gaussian((j.y + 0.85) / 0.10);
        }

        let (lower, lower_radius) = shape.lower[0];
        let far = (m.x.abs() - shape.width - 0.05).max(m.y - 0.26).max(lower.y - 0.14 - p.y);
        if far > 0.05 {
            return d;
        }
        let room = self.mouth_cavity(p);
        d = smax(d, -room, 0.03);
        let (a, b) = self.lips(p);
        let dimple =
            vec3(p.x.abs() - shape.width - 0.022, p.y - shape.y - self.corner_lift(1.0), 0.0)
                .length();
        let pinch = 1.0 - 0.75 * self.character.lips.corners;
        d += (0.004 + 0.005 * smile) * pinch * gaussian(dimple / 0.052);
        // The hollow under the lower lip.
        let hollow = lower.y - lower_radius - 0.055;
        d += 0.011 * gaussian((p.y - hollow) / 0.045) * gaussian(p.x / 0.13);
        d = smin(d, smin(a, b, 0.004), mix(0.004, 0.040, smoothstep(0.004, 0.045, room)));
        smax(d, -(room + 0.012), 0.012)
    }

    /// 1 on the lips' red, 0 on skin.
    pub(crate) fn lip_mask(&self, p: Vec3) -> f32 {
        let (a, b) = self.lips(p);
        let z = self.lip_depth(p.x, p.y);
        // When stretched over the teeth, the lower lip lies deeper in the face.
        smoothstep(0.017, 0.001, a.min(b - 0.006 * self.smile_parting))
            * smoothstep(z - 0.14, z - 0.06, p.z)
    }

    /// 1 on the dark seam between closed lips.
    pub(crate) fn seam(&self, p: Vec3) -> f32 {
        let (a, b) = self.lips(p);
        let width = self.mouth.width;
        gaussian((a - b) / 0.011)
            * smoothstep(0.05, 0.02, a.min(b))
            * smoothstep(width + 0.01, width - 0.03, p.x.abs())
    }

    /// 1 on the walls of the cavity.
    pub(crate) fn cavity_mask(&self, p: Vec3) -> f32 {
        let room = self.mouth_cavity(p);
        if room >= 0.03 {
            return 0.0;
        }
        let z = self.lip_depth(p.x, p.y);
        smoothstep(z + 0.015, z - 0.07, p.z) * smoothstep(0.03, 0.012, room)
    }

    /// How close a point of the upper teeth is to the gap between two of them, 0 … 1, and its
    /// height over their edges.
    pub(crate) fn between_teeth(&self, p: Vec3) -> (f32, f32) {
        let angle = (p.x / UPPER_ARCH.x)
            .atan2((p.z - UPPER_TEETH_Z + UPPER_ARCH.z).max(0.001) / UPPER_ARCH.z);
        let cell = (angle / UPPER_PITCH).abs();
        let aside = 0.5 - (cell - cell.floor() - 0.5).abs();
        (smoothstep(0.16, 0.02, aside), p.y - self.upper_teeth_edge(p.x))
    }

    /// Height of the edges of the upper teeth.
    fn upper_teeth_edge(&self, x: f32) -> f32 {
        let (lift, drop) = self.mouth.upper_teeth_shift;
        self.mouth_rest_y() - 0.016 - drop + lift * square((x / self.mouth.width).clamp(-1.0, 1.0))
    }

    /// A row of teeth: an arch with shallow grooves over a solid band. A distance above
    /// `near_enough` may be inexact.
    pub(crate) fn teeth(&self, p: Vec3, upper: bool, near_enough: f32) -> f32 {
        let q = if upper { p } else { self.to_jaw_space(p) };
        let front = UPPER_TEETH_Z - if upper { 0.0 } else { 0.05 };
        let gum = if upper {
            self.upper_teeth_edge(q.x)
        } else {
            self.mouth_rest_y() - 0.034 + self.mouth.lower_teeth_lift
        };
        let radii = if upper { UPPER_ARCH } else { vec3(0.235, 1.0, 0.25) };
        let half = if upper { 0.075 } else { 0.055 };
        // Above or below the row. Its teeth differ in height.
        let away = (q.y - if upper { gum + half } else { gum - half }).abs() - half - 0.06;
        if away > near_enough {
            return away;
        }
        let v = vec3(q.x, 0.0, q.z - (front - radii.z));
        let arch = ellipsoid(v, radii);
        let angle = (v.x / radii.x).atan2(v.z.max(0.001) / radii.z);
        let pitch = if upper { UPPER_PITCH } else { 0.19 };
        let number = angle / pitch;
        let cell = if upper { number.abs() } else { number + 0.5 };
        let tooth = pitch * 0.26;
        let dx = (cell - cell.floor() - 0.5).abs() * tooth;
        // Cuspids are shorter than incisors, molars shorter still.
        let size = match number.abs() {
            _ if !upper => 1.0,
            n if n < 1.0 => 1.0,
            n if n < 2.0 => 0.90,
            n => 0.94 - 0.05 * (n - 2.0),
        };
        // The lower arch descends toward the back, or it would protrude in the corners of a smile.
        let shorter = (1.0 - size) * (0.10 - 0.06 * self.smile_parting);
        let middle = if upper { gum + half + shorter } else { gum - half - 0.03 * angle * angle };
        let height = (q.y - middle).abs();
        // Lower incisors are flat: only their edges are visible, and round ones would look like
        // thorns.
        let round = if upper { 0.016 } else { 0.006 };
        let b = vec3(dx, height, (arch + 0.02).abs()) - vec3(tooth * 0.5 - 0.0015, half, 0.02)
            + Vec3::splat(round);
        let d = b.max(Vec3::ZERO).length() + b.max_element().min(0.0) - round;
        let (fy, fz) = (height - half + 0.012, (arch + 0.030).abs() - 0.018);
        let band = vec3(0.0, fy, fz).max(Vec3::ZERO).length() + fy.max(fz).min(0.0);
        smin(d, band, 0.012).max((angle.abs() - 1.35) * 0.2).max(-v.z - 0.02)
    }

    /// Distance to the tongue. A distance above `near` may be inexact.
    pub(crate) fn tongue(&self, p: Vec3, near: f32) -> f32 {
        let q = self.to_jaw_space(p);
        let (up, out) = self.tongue;
        let y = self.mouth_rest_y();
        // The whole tongue lies below this height.
        let above = q.y - (y + 0.005 + 0.115 * up + 0.024 * out);
        if above > near {
            return above;
        }
        // When out, it is broad and fills the cavity to the cheeks.
        let (body, wide) = (vec3(0.0, y - 0.14 + 0.045 * out, 0.42), vec3(0.06, 0.0, 0.02) * out);
        let mut d = ellipsoid(q - body, vec3(0.19, 0.085, 0.24) + wide);
        // Between the teeth it touches the edges of the upper ones and lies on the lower lip.
        let tip = vec3(0.0, y - 0.11 + up * 0.115 + 0.004 * out, 0.60 + 0.02 * up + out * 0.155);
        d = smin(d, capsule(q, vec3(0.0, y - 0.13 + 0.02 * up, 0.44), tip, 0.10, 0.040), 0.08);
        // The tip is broad and flat behind the teeth, and round between them.
        let round = vec3(0.030, 0.018, 0.010) * out;
        d = smin(d, ellipsoid(q - tip, vec3(0.115, 0.036, 0.085) + round), 0.05);
        d + 0.006 * gaussian(q.x / 0.02)
    }
}

/// The segment of the curves that contains a share of the half width.
fn segment(s: f32) -> usize {
    let mut i = 0;
    while i < CURVE_POINTS - 2 && CURVE_POSITIONS[i + 1] < s {
        i += 1;
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::character::Lips;

    #[test]
    fn lips_without_the_newer_sliders_keep_their_shape() {
        let Lips { bow, corners, upper, .. } = Lips::default();
        assert_eq!((bow, upper), (DEFAULT_BOW, 1.0));
        // Thickness of both lips as it was before bow and corners were adjustable.
        for (s, above, below) in [
            (0.0, 0.880, 0.980),
            (0.25, 0.946, 0.966),
            (0.5, 0.728, 0.790),
            (0.75, 0.467, 0.519),
            (1.0, 0.140, 0.120),
        ] {
            let (a, b) = (upper_profile(s, bow, corners), lower_profile(s, corners));
            assert!((a - above).abs() < 0.001 && (b - below).abs() < 0.001, "{s}: {a} {b}");
        }
        // A bow has two peaks beside a dip.
        let peak = |bow: f32| upper_profile(0.22, bow, 0.0) - upper_profile(0.0, bow, 0.0);
        assert!(peak(1.0) > peak(DEFAULT_BOW) + 0.2 && peak(0.0) < peak(DEFAULT_BOW));
    }
}
