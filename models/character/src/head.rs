//! Skull, jaw, cheeks, nose, ears, lids: the skin of the head, in head space.

use glam::{Mat3, Vec3, Vec4, vec3, vec4};

use crate::character::Proportions;
use crate::math::{Ellipsoids, capsule, ellipsoid, gaussian, smax, smin, smoothstep, square};
use crate::pose::Pose;
use crate::scene::Scene;

impl Scene {
    /// The ellipsoids of skull, jaw, cheeks and sockets; the last three belong to the jaw.
    pub(crate) fn head_ellipsoids(c: &Proportions, eye_x: f32, pose: &Pose) -> Ellipsoids {
        let (wide, short) = (c.face_width, 1.0 - c.jaw_height);
        // Cheeks, lifted by a smile.
        let lift = pose.smile * 0.7 + pose.eyes.squint * 0.3;
        let cheek = vec3(0.41 * wide + 0.015 * lift, -0.300 + 0.105 * lift, 0.475 + 0.075 * lift)
            - vec3(0.05, 0.0, 0.06) * pose.mouth.round * 0.5;
        let jw = c.jaw_width * wide;
        let chin =
            vec3(0.0, -0.90 + 0.9 * short - 0.06 * (c.chin - 1.0), 0.55 + 0.03 * (c.chin - 1.0));
        Ellipsoids::new([
            (vec3(0.0, 0.33, -0.13), vec3(0.80 * wide, 0.84, 0.93)),
            (vec3(0.0, -0.22, 0.17), vec3(0.655 * wide, 0.70, 0.66)),
            (cheek, vec3(0.225, 0.20, 0.235) * c.cheeks * (1.0 + 0.06 * lift)),
            (vec3(eye_x + 0.01, 0.005, 0.88), vec3(0.235, 0.155, 0.165)),
            // The teeth's volume under the lips.
            (vec3(0.0, -0.60 + 0.5 * short, 0.52), vec3(0.30, 0.25, 0.27)),
            (vec3(0.0, -0.52 + 0.5 * short, 0.16), vec3(0.56 * jw, 0.50, 0.58)),
            (vec3(0.36 * jw, -0.56, 0.0), vec3(0.175, 0.26, 0.32)),
            (chin, vec3(0.22 * c.jaw_width, 0.15, 0.17) * c.chin.sqrt()),
        ])
    }

    /// Skull, jaw, cheeks and sockets; no nose, lips or lids.
    pub(crate) fn skull(&self, p: Vec3) -> f32 {
        let c = &self.character.proportions;
        let q = vec3(p.x.abs(), p.y, p.z);
        // The jaw, in its own space: it rotates about the x axis.
        let j = self.to_jaw_space(q);
        // A mirrored part at the side must not meet its mirror image in a crease down the middle of
        // the forehead.
        let x = (q.x * q.x + 0.0036).sqrt();
        let ([skull, middle, cheek, socket], [teeth, jaw, angle, chin]) =
            self.ellipsoids.distances(
                [vec4(q.x, q.x, x, x), Vec4::splat(q.y), Vec4::splat(q.z)],
                [Vec4::splat(q.x), vec4(q.y, j.y, j.y, j.y), vec4(q.z, j.z, j.z, j.z)],
            );
        let mut d = smin(skull, middle, 0.22);
        d = smin(d, smin(smin(jaw, angle, 0.25), chin, 0.26), 0.16);
        d = smin(d, cheek, 0.26);
        let (a, b) = (vec3(0.12, 0.205, 0.70), vec3(0.46 * c.face_width, 0.20, 0.52));
        if (q.y - 0.2).abs() < 0.5 {
            d = smin(
                d,
                capsule(vec3(x, q.y, q.z), a, b, 0.085 * c.brow_ridge, 0.06 * c.brow_ridge),
                0.20,
            );
        }
        d = smax(d, -socket, 0.22);
        smin(d, teeth, 0.24)
    }

    /// Height and depth of the nose's tip.
    pub(crate) fn nose_tip(&self) -> (f32, f32) {
        let n = &self.character.nose;
        (-0.335 * n.length + 0.03 * n.upturn, 0.945 + 0.05 * (n.length - 1.0))
    }

    fn nose(&self, p: Vec3) -> f32 {
        let n = &self.character.nose;
        let q = vec3(p.x.abs(), p.y, p.z);
        let (y, z) = self.nose_tip();
        let bridge = 0.078 * (0.5 + 0.5 * n.width) * n.bridge;
        let root = 0.066 * (0.3 + 0.7 * n.bridge);
        let mut d = capsule(q, vec3(0.0, 0.06, 0.745), vec3(0.0, y + 0.06, z - 0.06), root, bridge);
        d = smin(
            d,
            ellipsoid(q - vec3(0.0, y, z), vec3(0.094 * n.width, 0.080, 0.092) * n.tip),
            0.07,
        );
        // Larger wings are broader and reach back into the cheek. They join the tip in a soft line:
        // separate balls would look like growths.
        let flare = n.wings - 1.0;
        let wing = vec3(0.116 * n.width - 0.008 * flare, y - 0.025, z - 0.120 - 0.03 * flare);
        let broader = Vec3::ONE + vec3(0.55, 0.30, 0.70) * flare;
        let wing = ellipsoid(q - wing, vec3(0.054, 0.060, 0.078) * broader);
        d = smin(d, wing, 0.035 + 0.15 * flare.max(0.0));
        smin(d, ellipsoid(q - vec3(0.0, y - 0.07, z - 0.09), vec3(0.05, 0.04, 0.06)), 0.05)
    }

    /// Distance to the nostrils' hollow.
    pub(crate) fn nostril(&self, p: Vec3) -> f32 {
        let (y, z) = self.nose_tip();
        let n = &self.character.nose;
        let width = n.width * (0.90 + 0.10 * n.wings);
        let q = vec3(p.x.abs(), p.y, p.z) - vec3(0.060 * width, y - 0.082, z - 0.050);
        ellipsoid(Mat3::from_rotation_z(-0.45) * q, vec3(0.042 * width, 0.027, 0.05))
    }

    /// From head space to ear space: x outward from the shell, y up, z to the face.
    fn ear_space(&self, p: Vec3) -> Vec3 {
        let q = vec3(p.x.abs(), p.y, p.z)
            - vec3(0.80 * self.character.proportions.face_width, -0.07, -0.12);
        Mat3::from_rotation_x(0.18) * (Mat3::from_rotation_y(0.58) * q)
    }

    pub(crate) fn ear(&self, p: Vec3) -> f32 {
        let q = self.ear_space(p);
        let body = ellipsoid(q - vec3(0.0, 0.0, -0.02), vec3(0.055, 0.225, 0.14));
        let mut d = smax(
            body,
            -ellipsoid(q - vec3(0.070, 0.035, -0.015), vec3(0.070, 0.170, 0.105)),
            0.018,
        );
        // Helix: a tube around an ellipse. Within it the antihelix, an arc.
        let rim = ellipsoid(vec3(0.0, q.y - 0.02, q.z + 0.02), vec3(1.0, 0.215, 0.145));
        d = smin(d, (rim * rim + square(q.x - 0.038)).sqrt() - 0.025, 0.018);
        let arc = ellipsoid(vec3(0.0, q.y + 0.015, q.z - 0.005), vec3(1.0, 0.125, 0.082));
        let fold = (arc * arc + square(q.x - 0.022)).sqrt() - 0.024;
        d = smin(d, smax(fold, q.z - 0.01, 0.03), 0.018);
        d = smin(d, ellipsoid(q - vec3(0.01, -0.2, 0.03), vec3(0.035, 0.06, 0.05)), 0.05);
        // The concha, and in front of it the tragus.
        d = smax(d, -ellipsoid(q - vec3(0.040, -0.035, 0.030), vec3(0.075, 0.085, 0.058)), 0.022);
        smin(d, ellipsoid(q - vec3(0.035, -0.04, 0.105), vec3(0.032, 0.045, 0.026)), 0.02)
    }

    /// The ear as hair lies on it: only its outline matters.
    pub(crate) fn ear_shell(&self, p: Vec3) -> f32 {
        ellipsoid(self.ear_space(p) - vec3(0.015, 0.0, -0.02), vec3(0.045, 0.235, 0.155))
    }

    /// How deep in the ear's hollows a point of its skin lies, 0 … 1.
    pub(crate) fn ear_hollow(&self, p: Vec3) -> f32 {
        let q = self.ear_space(p);
        let within = ellipsoid(vec3(0.0, q.y - 0.02, q.z + 0.02), vec3(1.0, 0.215, 0.145));
        smoothstep(0.042, -0.012, q.x) * smoothstep(0.012, -0.02, within)
    }

    /// The skin of the head.
    pub(crate) fn head(&self, p: Vec3) -> f32 {
        self.head_from_skull(self.skull(p), p)
    }

    /// Like [`Scene::head`], for a known distance to the skull.
    pub(crate) fn head_from_skull(&self, skull: f32, p: Vec3) -> f32 {
        let mut d = skull;
        let ax = p.x.abs();
        if d > 0.55 {
            return d - 0.22;
        }
        if p.z > 0.45 && ax < 0.42 && p.y < 0.3 && self.nose_tip().0 - 0.15 - p.y < d + 0.06 {
            d = smin(d, self.nose(p), 0.06);
            d = smax(d, -self.nostril(p), 0.03);
        }
        if ax > 0.5 && p.y.abs() < 0.5 && p.z < 0.35 && self.character.headscarf.is_none() {
            d = smin(d, self.ear(p), 0.05);
        }
        d = self.with_lids(d, vec3(ax, p.y, p.z) - self.eye);
        d = self.with_mouth(d, p);
        d
    }

    /// Lids: a sphere slightly larger than the eye, cut by the almond shape of its opening. `e` is
    /// relative to the eye's center.
    fn with_lids(&self, mut d: f32, e: Vec3) -> f32 {
        let radius = self.appearance.eye_radius;
        let length = e.length();
        if length >= radius + 0.22 || e.z <= -0.1 {
            return d;
        }
        let shut = self.pose.eyes.lids;
        let (upper, lower) = self.lid_contours(e.x);
        let half = self.lid_half_width();
        d = smin(d, length - radius - 0.020 - 0.006 * shut, 0.055);
        // A crease over the upper lid, a soft bag under the lower one.
        let fade = smoothstep(1.15, 0.75, (e.x / half).abs());
        let crease = upper.max(-0.02) + 0.050 + 0.018 * shut;
        d += 0.016 * gaussian((e.y - crease) / 0.017) * fade * (1.0 - 0.5 * shut);
        let bag = 0.0045 + 0.008 * self.character.age + 0.006 * self.pose.smile;
        d += bag * gaussian((e.y - (lower - 0.060)) / 0.022) * fade;
        let almond = (e.y - upper).max(lower - e.y).max(e.x.abs() - half) * 0.8;
        smax(d, -almond.max(-e.z), 0.022)
    }
}
