//! Bust, clothes, glasses, earrings, headscarf.

use glam::{Vec3, vec3};

use crate::character::{ClothesStyle, Glasses};
use crate::math::{capsule, ellipsoid, mix, noise, smax, smin, smoothstep, square};
use crate::scene::{COLLAR_Y, Material, Scene};

impl Scene {
    /// Shoulders and chest, in the world.
    pub(crate) fn torso(&self, p: Vec3) -> f32 {
        if p.y > -0.65 {
            return p.y + 1.05;
        }
        let s = self.character.proportions.shoulders;
        // Mirrored parts must not meet in a crease down the middle of the chest.
        let q = vec3((p.x * p.x + 0.0036).sqrt(), p.y - 0.20, p.z);
        let mut d = ellipsoid(
            vec3(p.x, p.y - 0.20, p.z) - vec3(0.0, -3.05, -0.30),
            vec3(1.04 * s, 1.10, 0.66),
        );
        d = smin(
            d,
            capsule(q, vec3(0.0, -2.02, -0.38), vec3(1.10 * s, -2.24, -0.42), 0.34, 0.32),
            0.30,
        );
        // The arm hangs from the shoulder, beside the chest.
        d = smin(
            d,
            capsule(q, vec3(1.13 * s, -2.33, -0.38), vec3(1.40 * s, -3.4, -0.25), 0.33, 0.28),
            0.14,
        );
        smin(d, capsule(q, vec3(0.05, -1.50, -0.46), vec3(0.8 * s, -2.02, -0.45), 0.15, 0.14), 0.32)
    }

    /// Depth of the seam where a sleeve is sewn in, with the pull of the cloth beside it.
    fn sleeve_seam(&self, p: Vec3) -> f32 {
        let s = self.character.proportions.shoulders;
        let across = p.x.abs() - (0.93 + 0.55 * square(p.y + 2.25)) * s - 0.10 * (p.z + 0.4);
        if across.abs() > 0.16 {
            return 0.0;
        }
        let line = 1.0 / (1.0 + square(across * (1.0 / 0.010)));
        let pull = (1.0 - square(across * (1.0 / 0.16))) * ((p.y + p.z * 0.6) * 26.0).sin();
        0.008 * line + 0.0035 * pull * noise(p * 3.0)
    }

    /// Clothes, in the world. `torso` and `body` (torso and neck) are the distances to the body
    /// below them. A distance above `near` may be inexact.
    pub(crate) fn cloth(&self, p: Vec3, torso: f32, body: f32, near: f32) -> (f32, Material) {
        if self.character.headscarf.is_some() && p.y > COLLAR_Y {
            // The clothes are hidden.
            return (body + 0.05, Material::Cloth);
        }
        if body > 0.4 || body - 0.15 > near {
            return (body - 0.15, Material::Cloth);
        }
        match self.character.clothes.style {
            ClothesStyle::Crew | ClothesStyle::Turtleneck => {
                (self.jumper(p, body), Material::Cloth)
            }
            ClothesStyle::Shirt => (self.shirt(p, body), Material::Cloth),
            ClothesStyle::Blazer | ClothesStyle::Suit => {
                let under = if self.character.clothes.style == ClothesStyle::Suit {
                    self.shirt(p, body)
                } else {
                    let over = (p.y + 1.50) * 0.86 + (p.z + 0.35) * 0.50;
                    let shell =
                        smax(body - 0.03 - cloth_folds(p) * 0.3, over, 0.015).max(-(body + 0.1));
                    let hem = (square(body - 0.028) + square(over + 0.03) * 0.5).sqrt() - 0.028;
                    // Beside the jacket's opening there is nothing to see of it.
                    smin(shell, hem, 0.01).max((p.x.abs() - 0.72) * 0.8)
                };
                let jacket = jacket(p, torso + self.sleeve_seam(p));
                if jacket < under { (jacket, Material::Cloth) } else { (under, Material::Shirt) }
            }
        }
    }

    fn jumper(&self, p: Vec3, body: f32) -> f32 {
        let high = self.character.clothes.style == ClothesStyle::Turtleneck;
        let over = if high {
            (p.y + 1.22) * 0.97 + (p.z + 0.30) * 0.20
        } else {
            (p.y + 1.38) * 0.90 + (p.z + 0.35) * 0.26
        };
        let thickness = if high { 0.055 } else { 0.045 };
        let shell =
            body - thickness - cloth_folds(p) * smoothstep(0.05, -0.3, over) + self.sleeve_seam(p);
        let d = smax(shell, over, 0.02).max(-(body + 0.1));
        // The collar: a tube along the line where the body meets the neckline.
        if high {
            // The collar is folded over and knitted in ribs.
            let tube = (square(body - 0.06) * 1.2 + square(over + 0.16) * 0.16).sqrt() - 0.075;
            smin(d, ribbed(p, tube, 0.0032, 52.0), 0.05)
        } else {
            let tube = (square(body - 0.03) * 1.6 + square(over + 0.05) * 0.45).sqrt() - 0.048;
            smin(d, ribbed(p, tube, 0.0022, 66.0), 0.015)
        }
    }

    /// A shirt with the top button open, or closed under a tie.
    fn shirt(&self, p: Vec3, body: f32) -> f32 {
        let ax = p.x.abs();
        let front = smoothstep(-0.25, 0.0, p.z);
        let over = (p.y + 1.36) * 0.92 + (p.z + 0.35) * 0.34;
        let tied = self.character.clothes.tie.is_some();
        let slit = if tied { -0.05 } else { (over + 0.30).max(0.0) * 0.62 };
        let throat = mix(1.0, ax - slit, front);
        let placket = 0.010 * smoothstep(0.062, 0.052, ax) * front;
        let sewn = self.sleeve_seam(p);
        let shell = smax(body - 0.035 - placket - cloth_folds(p) * 0.45 + sewn, over, 0.015);
        let d = smax(shell, -throat * 0.8, 0.012).max(-(body + 0.1));
        // The collar's leaves stand off the neck, fold over and end in points.
        let aside = p.x.hypot(p.z + 0.28) - self.appearance.neck_radius;
        // Beside the neck they lie on the shirt: an edge with a gap under it would be jagged there.
        let off =
            mix(0.035, mix(0.055, 0.10, smoothstep(0.50, 0.25, ax)), smoothstep(0.13, -0.20, over));
        let point = smoothstep(0.48, 0.12, ax) * front;
        // Between the leaves is the open throat, or the knot of a tie.
        let between = if tied {
            0.060 + (0.12 - over).max(0.0) * 0.45
        } else {
            ((0.30 + over).max(0.0) * 0.62 + 0.012).max(0.12 - over * 0.60)
        };
        let gap = (between - ax) * front - (1.0 - front);
        let end = (aside - 0.155 - 0.20 * point).max(-0.17 - 0.17 * point - over);
        let leaf = smax((body - off).abs() - 0.015, over - 0.13, 0.02);
        let leaf = smax(smax(leaf, end * 0.8, 0.015), gap * 0.8, 0.015);
        let stand = smax((body - 0.03).abs() - 0.012, over - 0.12, 0.01);
        let stand = if tied { stand } else { smax(stand, gap * 0.8, 0.01) };
        d.min(leaf * 0.60).min(stand.max(-0.04 - over))
    }

    /// A tie over a shirt: a knot that narrows downward, and the blade below it.
    pub(crate) fn tie(&self, p: Vec3, body: f32) -> f32 {
        let ax = p.x.abs();
        if p.z < -0.3 || ax > 0.3 || body > 0.2 {
            return (body - 0.12).max(ax - 0.25).max(0.03);
        }
        let over = (p.y + 1.36) * 0.92 + (p.z + 0.35) * 0.34;
        let below = 0.10 - over;
        // The knot leans to one side, as every knot does.
        let side = p.x + 0.012 * (below - 0.10);
        let knot = (side.abs() - 0.118 + 0.30 * below).max(-below).max(below - 0.21);
        let bulge = 0.090 - 1.2 * square(side) - 0.5 * square(below - 0.09);
        let knot = smax(knot * 0.9, (body - 0.03).abs() - bulge.max(0.01), 0.025);
        // A dimple under the knot.
        let dimple = 0.018 * smoothstep(0.10, 0.0, below - 0.20) / (1.0 + square(p.x / 0.016));
        let width = 0.052 + 0.085 * (below - 0.19).max(0.0);
        let blade = (ax - width).max(0.17 - below);
        let blade = smax(blade * 0.9, (body - 0.05).abs() - 0.026 + dimple, 0.012);
        knot.min(blade) * 0.8
    }

    /// A thin golden chain that lies on the skin, and its pendant.
    pub(crate) fn necklace(&self, p: Vec3, body: f32) -> f32 {
        let plane = (p.y + 1.500 + 0.42 * (p.z + 0.02)) * 0.92;
        if plane.abs() > 0.16 || body > 0.1 {
            return (plane.abs() - 0.1).max(body - 0.04);
        }
        // Beads, as far apart as the links of a fine chain.
        let bead = 0.0018 * (p.x.atan2(p.z + 0.35) * 46.0).sin();
        let chain = (square(body - 0.008) + square(plane)).sqrt() - 0.0085 - bead;
        let from_middle = p.x.hypot(plane + 0.052);
        let pendant = smax(from_middle - 0.036, (body - 0.012).abs() - 0.014, 0.012);
        if p.z > -0.2 { chain.min(pendant) } else { chain }
    }

    /// Rims, bridge and temples of glasses, in head space.
    pub(crate) fn glasses(&self, p: Vec3) -> f32 {
        let q = vec3(p.x.abs(), p.y, p.z);
        // All parts lie near the height of the eyes.
        let aside = (q.y + 0.02).abs() - 0.30;
        if q.z < -0.3 || aside > 0.12 {
            return aside.clamp(0.12, 0.25);
        }
        let (outline, sheet) = self.lens_distances(q);
        let thick = if self.character.glasses == Glasses::Round { 0.012 } else { 0.016 };
        let rim = (outline * outline + sheet * sheet * 0.55).sqrt() - thick;
        let bridge =
            capsule(q, vec3(0.0, 0.015, 1.02), vec3(0.11, 0.0, self.lens_depth(0.11)), 0.02, 0.02);
        let hinge = vec3(0.60, 0.05, self.lens_depth(0.60));
        let ear = vec3(0.815 * self.character.proportions.face_width, 0.05, -0.1);
        let temple = capsule(q, hinge, ear, thick + 0.003, thick);
        let joint = capsule(q, hinge, vec3(0.56, 0.05, self.lens_depth(0.56)), 0.02, 0.02);
        rim.min(smin(bridge, rim, 0.02)).min(smin(temple, joint, 0.01))
    }

    fn lens_depth(&self, x: f32) -> f32 {
        self.eye.z + self.appearance.eye_radius + 0.17 - x * x * 0.32
    }

    /// Distance to a lens's outline as seen from the front, and to its sheet.
    pub(crate) fn lens_distances(&self, q: Vec3) -> (f32, f32) {
        // Half sides of the box inside the round corners, and the corners' radius.
        let (width, height, round) = match self.character.glasses {
            Glasses::Slim => (0.125, 0.035, 0.125),
            Glasses::Round => (0.012, 0.0, 0.215),
            Glasses::None | Glasses::Square => (0.075, 0.045, 0.17),
        };
        let (x, y) = ((q.x.abs() - 0.345).abs() - width, (q.y + 0.04).abs() - height);
        let outline = vec3(x.max(0.0), y.max(0.0), 0.0).length() + x.max(y).min(0.0) - round;
        (outline, q.z - self.lens_depth(q.x.abs()))
    }

    /// Studs in the ear lobes, in head space.
    pub(crate) fn earrings(&self, p: Vec3) -> f32 {
        let lobe = vec3(0.80 * self.character.proportions.face_width + 0.035, -0.295, -0.045);
        (vec3(p.x.abs(), p.y, p.z) - lobe).length() - 0.034
    }

    /// A headscarf: it wraps the skull, leaves an egg-shaped opening, and falls around the neck to
    /// the chest. `hp` is in head space, `p` in the world. `bones` is the distance to the skull,
    /// `opening` that to the opening's edge. A distance above `near` may be inexact.
    pub(crate) fn scarf(&self, hp: Vec3, p: Vec3, bones: f32, opening: f32, near: f32) -> f32 {
        let lower_bound = (-opening - 0.05) * 0.8;
        if lower_bound > near {
            return lower_bound;
        }
        let q = vec3(hp.x.abs(), hp.y, hp.z);
        let mut cap = ellipsoid(q - vec3(0.0, 0.30, -0.20), vec3(0.91, 0.92, 1.03));
        cap = smin(cap, ellipsoid(q - vec3(0.0, -0.42, -0.12), vec3(0.84, 0.80, 0.84)), 0.3);
        let wrap = smin(
            ellipsoid(p - vec3(0.0, -1.45, -0.22), vec3(0.76, 0.48, 0.74)),
            ellipsoid(p - vec3(0.0, -2.0, -0.2), vec3(1.06, 0.52, 0.82)),
            0.45,
        );
        let chin = ellipsoid(self.to_jaw_space(q) - vec3(0.0, -1.10, 0.16), vec3(0.50, 0.20, 0.50));
        let lower_bound = cap.min(wrap);
        if lower_bound.min(chin) > 0.45 {
            return (lower_bound.min(chin) - 0.12) * 0.8;
        }
        let (mut chest, mut crown) = (0.0, 0.0);
        // Farther out, the folds have no effect through the widest seam below, or the surface would
        // have a step there.
        if lower_bound < 0.23 {
            if wrap < 0.3 {
                // Folds that radiate from a pin make it look like cloth.
                let pin = p - vec3(-0.55, -1.10, 0.45);
                let far = pin.x.hypot(pin.y);
                let depth = 0.050
                    * smoothstep(0.05, 0.55, far)
                    * smoothstep(1.25, 0.9, far)
                    * smoothstep(-0.80, -1.15, p.y);
                if depth > 0.0 {
                    let angle = pin.y.atan2(pin.x + 0.15);
                    let wave = (angle * 8.5 + far * 1.4 + noise(p * 1.9) * 3.4).sin();
                    chest = depth * (0.6 - square(1.0 - wave.abs()));
                }
            }
            let depth = 0.020 * smoothstep(0.03, 0.12, opening) * smoothstep(1.1, 0.5, opening);
            if cap < 0.3 && depth > 0.0 {
                // Folds along the hem, wider apart and shallower toward the back.
                let drift = noise(hp * 2.3 + vec3(4.0, 0.0, 0.0));
                let wave = (opening.max(0.0).sqrt() * 21.0 + drift * 5.0 + hp.x).sin();
                crown = (wave * 0.5 + wave * wave * 0.5) * depth * (0.35 + 0.9 * drift);
            }
        }
        let mut d = smin(smin(cap - crown, wrap - chest, 0.30), chin, 0.12);
        d = smax(d, -opening, 0.05);
        // Thicker at its edge: a slit beside the jaw would be too thin for the pixels.
        let lining = 0.028 + 0.034 * smoothstep(0.12, 0.02, opening);
        d = smin(d, smax(bones - lining, -opening, 0.02), 0.05);
        let hem = (square(cap - crown) * 0.8 + opening * opening).sqrt() - 0.030;
        smin(d, hem, 0.03) * 0.8
    }

    /// Distance to the edge of a headscarf's opening, as seen from the front; negative in the face.
    pub(crate) fn scarf_opening(&self, hp: Vec3) -> f32 {
        let bottom = 0.99 * (1.0 - 0.55 * self.face_shortening()) + self.jaw_angle * 0.55;
        let middle = (0.63 - bottom) * 0.5;
        let egg =
            ellipsoid(vec3(hp.x, hp.y - middle, 0.0), vec3(0.685, (0.63 + bottom) * 0.5, 5.0));
        egg.max(-(hp.z + 0.02 - hp.y.abs() * 0.05))
    }
}

/// A jacket that opens in a V, with lapels: a second leaf with a notch.
fn jacket(p: Vec3, torso: f32) -> f32 {
    let ax = p.x.abs();
    let edge = (0.07 + (p.y + 2.95).max(0.0) * 0.42).min(0.52 + (p.y + 1.9).max(0.0) * 0.1);
    let v = ax - edge + smoothstep(-0.2, -0.5, p.z) * 0.6;
    let coat = smax(torso - 0.095 - cloth_folds(p) * 0.8, -v * 0.85, 0.03);
    let width = 0.30 * smoothstep(-3.0, -2.3, p.y) + 0.04;
    let notch = ((p.y + 1.88) - (ax - 0.55) * 0.35).abs() - 0.012;
    let roll = 0.03 * smoothstep(0.10, 0.0, v);
    let lapel = smax(smax(torso - 0.140 - roll, -v * 0.85, 0.03), v - width, 0.02);
    let lapel = lapel.max(-notch.min(0.02) - if v > 0.13 { 0.0 } else { 0.1 });
    coat.min(lapel).max(-(torso + 0.1))
}

/// Adds ribs to a collar that stands around the neck: `number` of them in a half circle, by π.
fn ribbed(p: Vec3, collar: f32, height: f32, number: f32) -> f32 {
    // Ribs far away need no angle.
    if collar > 0.04 {
        return collar - height;
    }
    collar - height * (p.x.atan2(p.z + 0.33) * number).sin()
}

fn cloth_folds(p: Vec3) -> f32 {
    if p.y > -1.2 {
        return 0.0;
    }
    let a = (p.x.abs() * 1.2 + p.y) * 3.2 + noise(p * 1.4) * 2.6;
    (a.sin() * 0.5 + noise(p * vec3(2.4, 1.6, 2.0)) * 1.1) * 0.022
}
