//! Bust, clothes, glasses, headscarf.

use glam::{Vec3, vec3};

use crate::math::{capsule, clouds, ellipsoid, noise, smax, smin, square, step};
use crate::person::ClothesStyle;
use crate::scene::Scene;

impl Scene {
    /// Shoulders and chest, in the world.
    pub(crate) fn torso(&self, p: Vec3) -> f32 {
        let s = self.c.proportions.shoulders;
        let q = vec3(p.x.abs(), p.y - 0.20, p.z);
        let mut d = ellipsoid(q - vec3(0.0, -3.05, -0.30), vec3(1.10 * s, 1.10, 0.66));
        d = smin(d, capsule(q, vec3(0.0, -2.02, -0.38), vec3(1.10 * s, -2.17, -0.42), 0.34, 0.34), 0.30);
        d = smin(d, capsule(q, vec3(1.10 * s, -2.25, -0.38), vec3(1.28 * s, -3.4, -0.25), 0.36, 0.30), 0.22);
        smin(d, capsule(q, vec3(0.05, -1.50, -0.46), vec3(0.8 * s, -2.02, -0.45), 0.15, 0.14), 0.32)
    }

    /// What is worn, in the world.
    pub(crate) fn cloth(&self, p: Vec3) -> f32 {
        let torso = self.torso(p);
        let turtleneck = self.c.clothes.style == ClothesStyle::Turtleneck;
        if torso > 0.9 && !turtleneck {
            return torso - 0.16;
        }
        let body = smin(torso, self.neck(p), 0.25);
        if body > 0.9 {
            return body - 0.16;
        }
        let over = self.neckline(p);
        let thickness = if turtleneck { 0.055 } else { 0.045 };
        let shell = body - thickness - folds(p) * step(0.05, -0.3, over);
        let d = smax(shell, over, 0.02).max(-(body + 0.1));
        // The collar: a tube along the line where the body meets the neckline.
        if turtleneck {
            let tube = (square(body - 0.06) * 1.2 + square(over + 0.16) * 0.16).sqrt() - 0.075;
            smin(d, tube, 0.05)
        } else {
            let tube = (square(body - 0.03) * 1.6 + square(over + 0.05) * 0.45).sqrt() - 0.048;
            smin(d, tube, 0.02)
        }
    }

    /// Rims, bridge and temples of glasses, in head space.
    pub(crate) fn glasses(&self, p: Vec3) -> f32 {
        let q = vec3(p.x.abs(), p.y, p.z);
        let (outline, sheet) = self.lens(q);
        let rim = (outline * outline + sheet * sheet * 0.55).sqrt() - 0.016;
        let bridge = capsule(q, vec3(0.0, 0.015, 1.02), vec3(0.11, 0.0, self.lens_depth(0.11)), 0.02, 0.02);
        let hinge = vec3(0.60, 0.05, self.lens_depth(0.60));
        let ear = vec3(0.815 * self.c.proportions.face_width, 0.05, -0.1);
        let temple = capsule(q, hinge, ear, 0.019, 0.016);
        let joint = capsule(q, hinge, vec3(0.56, 0.05, self.lens_depth(0.56)), 0.02, 0.02);
        rim.min(smin(bridge, rim, 0.02)).min(smin(temple, joint, 0.01))
    }

    fn lens_depth(&self, x: f32) -> f32 {
        self.eye.z + self.looks.eye_radius + 0.17 - x * x * 0.32
    }

    /// Distance to a lens's outline as seen from the front, and to its sheet.
    pub(crate) fn lens(&self, q: Vec3) -> (f32, f32) {
        let (x, y) = ((q.x.abs() - 0.345).abs() - 0.075, (q.y + 0.04).abs() - 0.045);
        let outline = vec3(x.max(0.0), y.max(0.0), 0.0).length() + x.max(y).min(0.0) - 0.17;
        (outline, q.z - self.lens_depth(q.x.abs()))
    }

    /// A headscarf: wraps the skull, leaves an egg-shaped opening, falls around the neck to the chest. `hp` in head space, `p` in the world.
    pub(crate) fn scarf(&self, hp: Vec3, p: Vec3) -> f32 {
        let q = vec3(hp.x.abs(), hp.y, hp.z);
        let mut cap = ellipsoid(q - vec3(0.0, 0.30, -0.20), vec3(0.91, 0.92, 1.03));
        cap = smin(cap, ellipsoid(q - vec3(0.0, -0.42, -0.12), vec3(0.84, 0.80, 0.84)), 0.3);
        let wrap = smin(
            ellipsoid(p - vec3(0.0, -1.45, -0.22), vec3(0.76, 0.48, 0.74)),
            ellipsoid(p - vec3(0.0, -2.0, -0.2), vec3(1.06, 0.52, 0.82)),
            0.45,
        );
        if cap.min(wrap) > 0.75 {
            return (cap.min(wrap) - 0.2) * 0.8;
        }
        // Folds that radiate from a pin make it cloth.
        let pin = p - vec3(-0.55, -1.10, 0.45);
        let (angle, far) = (pin.y.atan2(pin.x + 0.15), pin.x.hypot(pin.y));
        let wave = (angle * 8.5 + far * 1.4 + clouds(p * 1.3) * 4.0).sin();
        let wave = 0.6 - square(1.0 - wave.abs());
        let chest = wave * 0.050 * step(0.05, 0.55, far) * step(1.25, 0.9, far) * step(-0.80, -1.15, p.y);
        let around = q.x.atan2(hp.z.max(-0.5) + 0.9);
        let crown = (around * 13.0 + hp.y * 3.5 + clouds(hp * 1.8) * 3.5).sin()
            * 0.010
            * step(0.42, 0.85, around + hp.y.abs() * 0.2);
        let chin = ellipsoid(self.unjaw(q) - vec3(0.0, -1.10, 0.16), vec3(0.50, 0.20, 0.50));
        let mut d = smin(smin(cap - crown, wrap - chest, 0.30), chin, 0.12);
        let opening = self.scarf_opening(hp);
        d = smax(d, -opening, 0.05);
        d = smin(d, smax(self.bones(hp) - 0.028, -opening, 0.02), 0.03);
        let hem = (square(cap - crown) * 0.8 + opening * opening).sqrt() - 0.035;
        smin(d, hem, 0.03) * 0.8
    }

    fn scarf_opening(&self, hp: Vec3) -> f32 {
        let bottom = 0.99 * (1.0 - 0.55 * self.short_face()) + self.jaw_angle * 0.55;
        let middle = (0.63 - bottom) * 0.5;
        let egg = ellipsoid(vec3(hp.x, hp.y - middle, 0.0), vec3(0.685, (0.63 + bottom) * 0.5, 5.0));
        egg.max(-(hp.z + 0.02 - hp.y.abs() * 0.05))
    }
}

fn folds(p: Vec3) -> f32 {
    let a = (p.x.abs() * 1.2 + p.y) * 3.2 + noise(p * 1.4) * 2.6;
    (a.sin() * 0.5 + noise(p * vec3(2.4, 1.6, 2.0)) * 1.1) * 0.022
}
