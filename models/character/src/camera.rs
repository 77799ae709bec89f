//! Camera and lights.

use glam::{Vec3, vec3};

use crate::character::Character;
use crate::framing::{Framing, View};
use crate::math::{smoothstep, square};

/// A camera in front of the face, 90 cm away.
pub(crate) struct Camera {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) eye: Vec3,
    /// Column that the camera faces, in pixels.
    pub(crate) centre_x: f32,
    /// Half the picture's height at distance 1.
    half_height: f32,
}

/// Distance of the camera.
pub(crate) const CAMERA_DISTANCE: f32 = 9.0;

impl Camera {
    pub(crate) fn new(
        (width, height): (usize, usize),
        framing: Framing,
        character: &Character,
    ) -> Self {
        let View { centre_y, half_height, centre_x } =
            View::new(width as f32 / height as f32, framing, character);
        Self {
            width,
            height,
            eye: vec3(0.0, centre_y, CAMERA_DISTANCE),
            centre_x: centre_x * width as f32,
            half_height: half_height / CAMERA_DISTANCE,
        }
    }

    /// Direction through a point of the picture, in pixels.
    pub(crate) fn ray(&self, x: f32, y: f32) -> Vec3 {
        let half_height = self.height as f32 * 0.5;
        let a = (x - self.centre_x) / half_height;
        let b = (half_height - y) / half_height;
        vec3(a * self.half_height, b * self.half_height, -1.0).normalize()
    }

    /// Pixel and depth of a point of the world.
    pub(crate) fn project(&self, p: Vec3) -> (f32, f32, f32) {
        let q = p - self.eye;
        let k = self.scale(-q.z);
        (self.centre_x + q.x * k, self.height as f32 * 0.5 - q.y * k, -q.z)
    }

    /// Pixels per unit at this depth.
    pub(crate) fn scale(&self, depth: f32) -> f32 {
        self.height as f32 * 0.5 / self.half_height / depth
    }

    pub(crate) fn depth(&self, p: Vec3) -> f32 {
        self.eye.z - p.z
    }
}

/// A lamp, infinitely far away.
pub(crate) struct Light {
    pub(crate) direction: Vec3,
    pub(crate) colour: Vec3,
    pub(crate) casts_shadow: bool,
    /// Hardness of its shadow.
    pub(crate) hardness: f32,
    pub(crate) specular: f32,
}

/// A warm soft key light from the upper left, a cool fill light, a warm and a cool rim light.
pub(crate) fn lights() -> [Light; 4] {
    let light = |direction: Vec3, colour, casts_shadow, hardness, specular| Light {
        direction: direction.normalize(),
        colour,
        casts_shadow,
        hardness,
        specular,
    };
    [
        light(vec3(-0.62, 0.58, 0.72), vec3(1.0, 0.925, 0.83) * 1.75, true, 5.0, 1.0),
        light(vec3(0.85, 0.10, 0.70), vec3(0.80, 0.88, 1.0) * 0.50, false, 4.0, 0.6),
        light(vec3(0.80, 0.48, -0.62), vec3(1.0, 0.93, 0.86) * 2.3, true, 8.0, 1.0),
        light(vec3(-0.85, 0.35, -0.62), vec3(0.80, 0.90, 1.0) * 1.2, true, 8.0, 1.0),
    ]
}

/// Light from all around.
pub(crate) fn sky_light(n: Vec3) -> Vec3 {
    let t = n.y * 0.5 + 0.5;
    let c = vec3(0.44, 0.39, 0.37).lerp(vec3(0.64, 0.69, 0.78), t * t * (3.0 - 2.0 * t));
    c * (0.80 + 0.20 * n.z)
}

/// The reflection in a mirror: soft boxes over a gradient.
pub(crate) fn studio_reflection(d: Vec3) -> Vec3 {
    let soft_box = |middle: Vec3, width: f32, height: f32, soft: f32| {
        let middle = middle.normalize();
        let right = middle.cross(Vec3::Y).normalize();
        let up = right.cross(middle);
        let z = d.dot(middle);
        if z <= 0.0 {
            return 0.0;
        }
        let (a, b) = ((d.dot(right) / z).abs(), (d.dot(up) / z).abs());
        smoothstep(width + soft, width - soft, a) * smoothstep(height + soft, height - soft, b)
    };
    sky_light(d) * 0.35
        + vec3(1.0, 0.97, 0.93) * 7.0 * soft_box(vec3(-0.50, 0.48, 0.72), 0.26, 0.32, 0.03)
        + vec3(0.85, 0.92, 1.0) * 2.2 * soft_box(vec3(0.62, -0.34, 0.70), 0.16, 0.16, 0.10)
        + Vec3::ONE * 2.0 * soft_box(vec3(0.8, 0.45, -0.5), 0.3, 0.6, 0.1)
}

/// Glossy reflection of a light (GGX, Walter et al. 2007, with Schlick's approximations).
pub(crate) fn ggx_specular(n: Vec3, v: Vec3, l: Vec3, roughness: f32, f0: f32) -> f32 {
    let h = (v + l).normalize_or_zero();
    let (nl, nv) = (n.dot(l).max(0.0), n.dot(v).max(0.05));
    let (nh, vh) = (n.dot(h).max(0.0), v.dot(h).max(0.0));
    let a2 = square(roughness * roughness);
    let spread = nh * nh * (a2 - 1.0) + 1.0;
    let d = a2 / (core::f32::consts::PI * spread * spread);
    let k = square(roughness + 1.0) / 8.0;
    let g = 1.0 / ((nl * (1.0 - k) + k) * (nv * (1.0 - k) + k));
    nl * d * g * (f0 + (1.0 - f0) * (1.0 - vh).powi(5)) * 0.25
}

pub(crate) fn luminance(c: Vec3) -> f32 {
    c.dot(vec3(0.3, 0.6, 0.1))
}
