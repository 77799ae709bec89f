//! Color and gloss of skin, lips included.

use glam::{Vec3, vec3};

use crate::camera::luminance;
use crate::face_hair::beard_shade;
use crate::hairline::height_over_hairline;
use crate::head_hair::root_shade;
use crate::math::{fractal_noise, gaussian, mix, noise, smoothstep, square};
use crate::scene::Scene;

/// Skin at a point.
pub(crate) struct SkinSample {
    pub(crate) colour: Vec3,
    pub(crate) roughness: f32,
    /// Factor of the gloss.
    pub(crate) oil: f32,
}

/// Lips and their surroundings lie within this distance of the mouth's center.
const MOUTH_RADIUS: f32 = 0.7;

impl Scene {
    /// Shares of lip and of mouth cavity at a point of head space.
    pub(crate) fn mouth_masks(&self, hp: Vec3) -> (f32, f32) {
        let far = (hp - vec3(0.0, self.mouth.y, self.mouth.z)).length();
        let lip = if far < MOUTH_RADIUS { self.lip_mask(hp) } else { 0.0 };
        let inside = if hp.z > 0.1 && far < 0.9 { self.cavity_mask(hp) } else { 0.0 };
        (lip, inside)
    }

    /// Skin at a point, given in head space and in the world.
    pub(crate) fn skin_at(&self, hp: Vec3, p: Vec3) -> SkinSample {
        let c = &self.character;
        let q = vec3(hp.x.abs(), hp.y, hp.z);
        let spot = |middle: Vec3, radius: f32| gaussian((q - middle).length() / radius);
        let mut a = self.appearance.skin;
        let mut tint = |colour: Vec3, share: f32| a *= Vec3::ONE.lerp(colour, share);

        let red = spot(vec3(0.42, -0.30, 0.66), 0.30) * 0.55
            + spot(vec3(0.0, -0.33, 0.98), 0.13) * 0.7
            + spot(vec3(0.84, -0.1, -0.1), 0.22) * 0.5
            + spot(vec3(0.0, -0.95, 0.72), 0.16) * 0.25;
        tint(vec3(1.04, 0.70, 0.66), (red * c.skin.blush).min(1.2));
        tint(vec3(1.02, 1.0, 0.93), spot(vec3(0.0, 0.48, 0.72), 0.36) * 0.5);
        // The hollow around the eye is darker, and more so with age.
        let e = q - self.eye;
        let hollow = if hp.z > 0.3 { gaussian(e.y / 0.16) * gaussian(e.x / 0.25) } else { 0.0 };
        tint(vec3(0.88, 0.76, 0.74), hollow * (0.42 + 0.3 * c.age));
        if c.skin.under_eyes > 0.0 && hp.z > 0.3 && e.y < 0.0 {
            // A crescent, deepest toward the nose.
            let arc = e.y + 0.165 - 1.3 * square(e.x + 0.03);
            let share = gaussian(arc / 0.042) * smoothstep(0.24, 0.08, e.x.abs());
            tint(vec3(0.84, 0.68, 0.72), share * c.skin.under_eyes * 0.75);
        }
        if hp.z > 0.4 && hp.y < -0.2 && hp.y > -1.0 {
            // The shade in the fold of a cheek is red: a gray one would look like a smear.
            let (fold, across, along) = self.cheek_fold(hp);
            let warm = gaussian((across - 0.01) / 0.055) * along * fold.min(1.0);
            tint(vec3(1.05, 0.88, 0.83), warm * 0.8);
        }
        if c.skin.stubble > 0.0 {
            let j = self.to_jaw_space(hp);
            let chin =
                smoothstep(-0.38, -0.62, j.y + 0.15 * (0.5 - q.x)) * smoothstep(-0.2, 0.1, hp.z);
            let share = chin.max(spot(vec3(0.08, -0.50, 0.9), 0.10));
            tint(vec3(0.74, 0.76, 0.82), share * c.skin.stubble * (0.7 + 0.5 * noise(hp * 60.0)));
        }
        a *= Vec3::ONE + vec3(0.05, 0.12, 0.12) * (fractal_noise(hp * 7.0) - 0.5) * 0.8;
        if c.skin.freckles > 0.0 {
            // Two sizes, fixed to the face as seen from the front.
            let flat = vec3(hp.x, hp.y, 0.0);
            let spots = |fine: f32, k: f32| {
                let f = noise(flat * fine + vec3((hp.y * 31.0).sin() * 0.3, hp.x * 5.0, k));
                smoothstep(0.83 - 0.13 * c.skin.freckles, 0.95, f)
            };
            let place = spot(vec3(0.34, -0.20, 0.72), 0.30)
                + spot(vec3(0.0, -0.18, 0.9), 0.18)
                + 0.35 * spot(vec3(0.0, 0.40, 0.8), 0.40);
            let share = (spots(44.0, 0.4) + 0.7 * spots(66.0, 9.4)).min(1.0) * place.min(1.0);
            a *= Vec3::ONE.lerp(vec3(0.74, 0.53, 0.42), share * (0.35 + 0.65 * c.skin.freckles));
        }
        let old = smoothstep(0.45, 0.95, c.age);
        if old > 0.0 && hp.z > 0.0 {
            // Blotches, and a few spots.
            let blotch = noise(vec3(hp.x, hp.y, 0.2) * 11.0) - 0.5;
            a *= Vec3::ONE - vec3(0.03, 0.13, 0.13) * blotch * old;
            let bend = hp.y * 13.0;
            let spots =
                smoothstep(0.80, 1.0, noise(vec3(hp.x * 20.0 + bend, bend - hp.x * 8.0, 4.2)));
            a *= Vec3::ONE.lerp(vec3(0.90, 0.80, 0.72), spots * old * smoothstep(0.12, 0.35, q.x));
        }
        if self.has_hair() && hp.z < 0.9 && p.y > -0.9 && q.x < 0.84 * c.proportions.face_width {
            // Roots under the hair.
            let over = height_over_hairline(c, hp);
            a = a.lerp(self.appearance.hair[0] * 0.55, root_shade(c, hp, over));
        }
        if q.x > 0.6 && hp.y.abs() < 0.5 {
            // Little light leaves the hollows of an ear, and it is red.
            a *= Vec3::ONE.lerp(vec3(0.50, 0.29, 0.25), self.ear_hollow(hp));
        }
        if c.beard > 0.0 && hp.z > -0.05 && hp.y < -0.2 {
            a *= Vec3::ONE.lerp(vec3(0.70, 0.68, 0.70), beard_shade(self, hp));
            // The skin between the hairs beside the lips is not darkened, because lips move over
            // it. It is less red there, or it would glow like a patch.
            let near = vec3(hp.x * 0.62, hp.y - self.mouth.y + 0.03, 0.0).length();
            let share = smoothstep(0.34, 0.22, near) * c.beard * smoothstep(0.4, 0.6, hp.z);
            let grey = Vec3::splat(luminance(a)) * vec3(0.96, 0.86, 0.82);
            a = a.lerp(grey, share * 0.62);
        }
        // Pores and mottles are fixed to the face as seen from the front: movements of cheeks and
        // jaw change no pixel of them.
        let grain = self.grain(hp) * (0.4 + 1.5 * c.skin.pores);
        let dark = smoothstep(0.40, 0.08, luminance(self.appearance.skin));
        a *=
            Vec3::ONE + vec3(0.24, 0.32, 0.33) * (0.9 + 0.15 * c.age) * (1.0 - 0.45 * dark) * grain;
        let nostril = self.nostril(hp);
        if nostril < 0.05 {
            a *= Vec3::ONE.lerp(vec3(0.25, 0.10, 0.08), smoothstep(0.016, -0.004, nostril) * 0.9);
        }
        a *= self.lid_lines(e);

        // On dark skin the same gloss is far more visible: there it is weaker and more diffuse.
        let oil =
            0.85 + 0.45 * (spot(vec3(0.0, 0.4, 0.8), 0.3) + spot(vec3(0.0, -0.28, 0.98), 0.12));
        let mut skin = SkinSample {
            colour: a,
            roughness: 0.44 + 0.12 * fractal_noise(hp * 14.0) + 0.07 * dark,
            oil: oil * (1.0 - 0.42 * dark) * (0.94 + (1.6 - 1.1 * dark) * grain).max(0.3),
        };
        let (lip, _) = self.mouth_masks(hp);
        if lip > 0.0 {
            let red = self.appearance.lip * (0.9 + 0.2 * noise(vec3(hp.x * 70.0, hp.y * 8.0, 0.0)));
            skin.colour = skin.colour.lerp(red, lip * 0.95);
            skin.roughness = mix(skin.roughness, 0.38, lip);
            skin.oil = mix(skin.oil, 0.45, lip);
        }
        let seam = if (hp - vec3(0.0, self.mouth.y, self.mouth.z)).length() < MOUTH_RADIUS {
            self.seam(hp)
        } else {
            0.0
        };
        skin.colour *= Vec3::ONE.lerp(vec3(0.42, 0.22, 0.22), seam * 0.85 * lip.sqrt());
        skin
    }

    /// How much lighter or darker than its surroundings a point of the face is, −0.5 … 0.5: pores
    /// and the skin between them.
    fn grain(&self, hp: Vec3) -> f32 {
        // Weaker on a chin, where it would look unwashed.
        let low = mix(0.55, 1.0, smoothstep(-0.80, -0.40, hp.y));
        let place = smoothstep(0.12, 0.35, hp.z) * smoothstep(-1.15, -1.0, hp.y) * low;
        if place == 0.0 {
            return 0.0;
        }
        let at = |fine: f32, k: f32| {
            noise(vec3(hp.x * fine + hp.y * 7.0, hp.y * fine - hp.x * 7.0, k)) - 0.5
        };
        // Coarsest on the nose and beside it.
        let nose = gaussian(hp.x / 0.34) * gaussian((hp.y + 0.22) / 0.30);
        place * (at(46.0, 0.5) * (0.55 + 0.35 * nose) + at(21.0, 7.5) * 0.42)
    }

    /// The dark line of the lashes and the red rim under the eye. `e` is relative to the eye's
    /// center.
    fn lid_lines(&self, e: Vec3) -> Vec3 {
        if e.length() >= self.appearance.eye_radius + 0.06 || e.z <= 0.0 {
            return Vec3::ONE;
        }
        let (upper, lower) = self.lid_contours(e.x);
        let fade = smoothstep(1.02, 0.8, (e.x / self.lid_half_width()).abs());
        let dark = 0.75
            * smoothstep(0.020, 0.004, (e.y - upper).abs())
            * fade
            * self.character.eyes.lashes.min(1.0);
        let rim = smoothstep(0.022, 0.004, (e.y - lower).abs()) * fade * 0.8;
        (1.0 - dark) * Vec3::ONE.lerp(vec3(0.9, 0.62, 0.60), rim)
    }
}

/// Fine relief: a normal perturbed by pores, or by the furrows of the lips.
pub(crate) fn perturb_normal(scene: &Scene, n: Vec3, hp: Vec3, lip: f32) -> Vec3 {
    let e = 0.35;
    let slope = |q: Vec3| {
        let h = noise(q);
        vec3(
            noise(q + vec3(e, 0.0, 0.0)) - h,
            noise(q + vec3(0.0, e, 0.0)) - h,
            noise(q + vec3(0.0, 0.0, e)) - h,
        )
    };
    let coarse = 0.10 + 0.10 * scene.character.age;
    let pores = slope(hp * 34.0) * coarse + slope(hp * 92.0) * (coarse * 1.3);
    let q = vec3(hp.x * 60.0, hp.y * 9.0, hp.z * 9.0);
    let furrow = vec3(noise(q + vec3(e, 0.0, 0.0)) - noise(q), 0.0, 0.0);
    (n - scene.head_rotation * (pores * mix(1.0, 0.15, lip) + furrow * 0.16 * lip)).normalize()
}

impl Scene {
    /// Depth of wrinkles at a point of the face, in units: on the forehead, between the brows,
    /// crow's feet, and under the eyes. They depend on age and on the pose.
    fn wrinkle_depth(&self, hp: Vec3) -> f32 {
        let (age, pose) = (self.character.age, &self.pose);
        let old = smoothstep(0.30, 0.80, age);
        if hp.z < 0.1 || hp.y < -0.5 && old == 0.0 {
            return 0.0;
        }
        let ax = hp.x.abs();
        let mut depth = 0.0;
        if old > 0.0 && hp.y < -0.2 && hp.z > 0.3 {
            depth += old * self.lower_face_wrinkles(hp);
        }
        if hp.y < -0.5 {
            return depth;
        }
        // Forehead: four wavy lines.
        let brow = (age - 0.15).max(0.0) * 0.9
            + 0.4 * old
            + pose.brows.raise.max(0.0) * (0.12 + 0.3 * age);
        if brow > 0.0 && hp.y > 0.34 {
            let wave = hp.y
                + 0.022 * (hp.x * 4.5).cos()
                + 0.014 * noise(vec3(hp.x * 7.0, hp.y * 5.0, 2.0));
            let line = ((wave - 0.40) / 0.078).fract() - 0.5;
            let place = smoothstep(0.44, 0.22, ax)
                * smoothstep(0.35, 0.42, hp.y)
                * smoothstep(0.72, 0.62, hp.y);
            depth += brow * gaussian(line / 0.13) * place * (0.55 + 0.7 * noise(hp * 6.0)) * 0.0055;
        }
        // Between the brows.
        let knit = (age - 0.2).max(0.0) * 0.8 + (-pose.brows.knit).max(0.0) * 0.6;
        if knit > 0.0 && ax < 0.12 && hp.y > 0.05 {
            let place = smoothstep(0.07, 0.14, hp.y) * smoothstep(0.36, 0.26, hp.y);
            depth += knit * gaussian((ax - 0.048 - 0.03 * (hp.y - 0.2)) / 0.014) * place * 0.006;
        }
        // Around the eye.
        let e = vec3(ax, hp.y, hp.z) - self.eye;
        let half = self.lid_half_width();
        let laugh = pose.smile * 0.45 + pose.eyes.squint * 0.5;
        let feet = age * (0.55 + 0.9 * laugh) + 0.10 * laugh + old * (0.7 + 0.8 * laugh);
        let from_corner = vec3(e.x - half * 0.95, e.y + 0.01, 0.0);
        let far = from_corner.length();
        if far < 0.32 && from_corner.x > 0.0 {
            let angle = from_corner.y.atan2(from_corner.x) + 0.05 * noise(hp * 9.0);
            let lines = [-0.62, -0.24, 0.10, 0.46]
                .map(|a: f32| gaussian((angle - a) / 0.075))
                .iter()
                .sum::<f32>();
            let place = smoothstep(0.035, 0.08, far)
                * smoothstep(0.24 + 0.06 * old, 0.12 + 0.06 * old, far);
            depth += feet * lines * place * 0.0032;
        }
        let (_, lower) = self.lid_contours(e.x);
        let under = e.y - lower;
        if under < -0.02 && under > -0.25 && e.x.abs() < half * 1.1 {
            let fade = smoothstep(1.1, 0.6, (e.x / half).abs());
            let arc = 0.05 * square(e.x / half);
            // The bag's lower edge, and a fine line above it.
            depth += age * gaussian((under + 0.125 - arc) / 0.016) * fade * 0.0065;
            depth += (age * 0.5 + laugh * 0.25)
                * gaussian((under + 0.072 - arc * 0.6) / 0.010)
                * fade
                * 0.0040;
        }
        depth
    }

    /// Wrinkles of an old face below the cheek bones: from the nose to the mouth, down from its
    /// corners, and over the upper lip.
    fn lower_face_wrinkles(&self, hp: Vec3) -> f32 {
        let (ax, mouth) = (hp.x.abs(), &self.mouth);
        let (_, across, along) = self.cheek_fold(hp);
        let mut depth =
            gaussian((across - 0.004) / 0.013) * along * (0.0045 + 0.0015 * self.pose.smile);
        let below = mouth.y + self.corner_lift(1.0) - hp.y;
        if below > 0.0 && below < 0.28 {
            let line = ax - mouth.width - 0.012 - 0.16 * below;
            depth += gaussian(line / 0.014)
                * smoothstep(0.02, 0.08, below)
                * smoothstep(0.26, 0.12, below)
                * 0.0030;
        }
        let over = hp.y - mouth.y;
        if over > 0.05 && over < 0.2 && ax < mouth.width {
            let fine = gaussian(((hp.x * 19.0 + 0.6 * noise(hp * 5.0)).fract().abs() - 0.5) / 0.14);
            let lips = mouth.width * 0.85;
            let place = smoothstep(0.06, 0.085, over)
                * smoothstep(0.16, 0.09, over)
                * smoothstep(lips, lips * 0.7, ax);
            depth += fine * place * smoothstep(0.04, 0.08, ax) * 0.0012;
        }
        depth
    }

    /// Effect of wrinkles at a point: the perturbed normal, and a darkening, 0 … 1.
    pub(crate) fn wrinkle_normal(&self, n: Vec3, hp: Vec3) -> (Vec3, f32) {
        let depth = self.wrinkle_depth(hp);
        let e = 0.004;
        let x = self.wrinkle_depth(hp + vec3(e, 0.0, 0.0)) - depth;
        let y = self.wrinkle_depth(hp + vec3(0.0, e, 0.0)) - depth;
        if depth == 0.0 && x == 0.0 && y == 0.0 {
            return (n, 0.0);
        }
        // Depth increases into the skin.
        ((n + self.head_rotation * vec3(x, y, 0.0) / e).normalize(), (depth / 0.006).min(1.0))
    }
}

/// Light that wraps around the edge of shadow, red the most, because it has traveled inside the
/// skin.
pub(crate) fn wrapped_diffuse(cos: f32) -> Vec3 {
    let w = vec3(0.30, 0.17, 0.12);
    let d = ((Vec3::splat(cos) + w) / (Vec3::ONE + w)).max(Vec3::ZERO);
    d * d.powf(0.25)
}

/// Sky light in folds: it is reflected there and turns red.
pub(crate) fn fold_ambient(openness: f32) -> Vec3 {
    vec3(openness.powf(0.70), openness.powf(0.84), openness.powf(0.88))
}

/// Sheen at grazing angles.
pub(crate) fn grazing_sheen(n: Vec3, v: Vec3) -> f32 {
    square(square(1.0 - n.dot(v).max(0.0)))
}
