//! The eye: white, iris, pupil, and the wet surface that reflects the studio.

use glam::{Vec3, vec3};

use crate::camera::studio_reflection;
use crate::math::{fractal_noise, mix, noise, smoothstep};
use crate::shade::{Lighting, Shader};

/// Radius of the pupil relative to that of the iris.
const PUPIL_RATIO: f32 = 0.44;

impl Shader<'_> {
    /// Light that leaves the eye at a point toward `v`; `n` is its normal.
    pub(crate) fn shade_eye(&self, hp: Vec3, v: Vec3, n: Vec3, light: &Lighting) -> Vec3 {
        let scene = self.scene;
        let i = usize::from(hp.x >= 0.0);
        let side = if i == 0 { -1.0 } else { 1.0 };
        let centre = vec3(scene.eye.x * side, scene.eye.y, scene.eye.z);
        let d = (hp - centre) / scene.appearance.eye_radius;
        let gaze = scene.gaze[i];
        let radius = scene.character.eyes.iris;
        let angle = d.dot(gaze).clamp(-1.0, 1.0).acos();
        let right = Vec3::Y.cross(gaze).normalize();
        let up = gaze.cross(right);
        let (a, b) = (d.dot(right), d.dot(up));
        let view = scene.inverse_head_rotation * v;

        // The lids shade the eyeball.
        let (upper, lower) = scene.lid_contours(hp.x.abs() - scene.eye.x);
        let lid = smoothstep(-0.005, 0.085, upper - hp.y)
            * (0.75 + 0.25 * smoothstep(-0.01, 0.04, hp.y - lower));
        let vein = smoothstep(0.5, 0.75, fractal_noise(d * 9.0 + vec3(3.0, 1.0, 7.0)))
            * smoothstep(0.55, 0.95, angle);
        let corner = smoothstep(0.16, 0.23, (hp.x.abs() - scene.eye.x).abs());
        let white = vec3(0.78, 0.765, 0.75)
            .lerp(vec3(0.72, 0.50, 0.47), (vein * 0.14 + corner * 0.55).min(1.0));
        let on_iris = smoothstep(radius + 0.055, radius - 0.035, angle);
        let (mut colour, mut glow) = (white, Vec3::ZERO);
        if on_iris > 0.0 {
            // Refraction: the iris lies deeper than the cornea.
            let deep = 0.08 * (1.0 - angle / radius).max(0.0);
            let (x, y) = (a - view.dot(right) * deep, b - view.dot(up) * deep);
            let (iris, shine) =
                self.shade_iris(x / radius.sin(), y / radius.sin(), (x, y), right, up, radius);
            colour = white.lerp(iris, on_iris);
            glow = shine;
        }

        let mut out = Vec3::ZERO;
        for (k, l) in self.lights.iter().enumerate() {
            let wrap = mix(0.45, 0.9, on_iris);
            let lit = ((n.dot(l.direction) + wrap) / (1.0 + wrap)).max(0.0);
            let front = if k < 2 { 0.75 } else { 0.2 };
            out += l.colour * colour * lit * (0.35 + 0.65 * light.light_visibility[k]) * front;
        }
        out += colour * vec3(0.62, 0.62, 0.64) * light.sky_visibility.powf(0.7);
        out = (out + glow * 1.4) * mix(0.30, 1.08, lid);
        // The cornea bulges, so the reflected window moves with the gaze.
        let bulge = smoothstep(radius + 0.10, 0.0, angle);
        let wet = (n + scene.head_rotation * (right * a + up * b) * 0.55 * bulge).normalize();
        let mirror = wet * 2.0 * wet.dot(v) - v;
        let fresnel = 0.03 + 0.5 * (1.0 - wet.dot(v).max(0.0)).powi(5);
        let seen = studio_reflection(mirror).min(Vec3::splat(6.0));
        // Toward the corners of the eye the reflection would glint.
        let front = smoothstep(radius + 0.45, radius, angle);
        out += seen
            * fresnel
            * mix(1.0, 3.2, front)
            * mix(0.25, 1.0, lid)
            * (0.5 + 0.5 * light.sky_visibility);
        // The tear line on the lower lid.
        let tears = smoothstep(0.016, 0.004, (hp.y - lower - 0.006).abs());
        out + vec3(0.5, 0.48, 0.46) * tears * mix(0.12, 0.35, front) * light.sky_visibility
    }

    /// Color and glow of the iris at (x, y), where its rim is at distance 1; `on_ball` is the same
    /// point on the unit sphere.
    fn shade_iris(
        &self,
        x: f32,
        y: f32,
        on_ball: (f32, f32),
        right: Vec3,
        up: Vec3,
        radius: f32,
    ) -> (Vec3, Vec3) {
        let base = self.scene.appearance.iris;
        let r = x.hypot(y);
        let angle = y.atan2(x);
        let fibre = |n: f32, along: f32| noise(vec3(angle.cos() * n, angle.sin() * n, r * along));
        let fibres = fibre(9.0, 1.2) * 0.6 + fibre(24.0, 2.5) * 0.4;
        let ring = smoothstep(0.42, 0.62, r) * smoothstep(0.80, 0.62, r);
        let mut colour = base * (0.55 + 0.95 * fibres);
        colour = colour.lerp(base * vec3(1.5, 1.25, 0.8) * (0.7 + 0.8 * fibres), ring * 0.65);
        colour *= mix(1.0, 0.20, smoothstep(0.76, 1.02, r)); // the dark limbal ring
        // Light enters on the key light's side and glows on the other.
        let key = self.scene.inverse_head_rotation * self.lights[0].direction;
        let across = -(on_ball.0 * key.dot(right) + on_ball.1 * key.dot(up)) / radius;
        let caustic = across.clamp(-1.0, 1.0) * 0.5 + 0.5;
        colour *= 0.62 + 1.25 * caustic * caustic;
        let rim = smoothstep(1.0, 0.7, r) * smoothstep(PUPIL_RATIO - 0.02, PUPIL_RATIO + 0.12, r);
        let glow = base
            * 0.30
            * caustic.powi(3)
            * (0.5 + fibres)
            * rim
            * smoothstep(PUPIL_RATIO - 0.03, PUPIL_RATIO + 0.05, r);
        (
            colour.lerp(Vec3::splat(0.004), smoothstep(PUPIL_RATIO + 0.05, PUPIL_RATIO - 0.03, r)),
            glow,
        )
    }
}
