//! Shading of surfaces and hair.

use glam::{Vec3, Vec4, vec3};

use crate::camera::{Camera, Light, ggx_specular, luminance, sky_light, studio_reflection};
use crate::character::{ClothesStyle, Glasses};
use crate::light_grid::LightGrid;
use crate::math::{fractal_noise, mix, noise, smoothstep};
use crate::ray_march;
use crate::scene::{Material, Scene};
use crate::skin::{fold_ambient, grazing_sheen, perturb_normal, wrapped_diffuse};
use crate::strand::Strand;

/// A scene under its lights.
pub(crate) struct Shader<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) camera: &'a Camera,
    pub(crate) lights: [Light; 4],
    pub(crate) grid: Option<&'a LightGrid>,
}

/// Light that arrives at a point.
pub(crate) struct Lighting {
    /// Visible share of each lamp.
    pub(crate) light_visibility: [f32; 4],
    /// Visible share of the sky.
    pub(crate) sky_visibility: f32,
}

/// What a ray sees. For skin, light and color stay separate until the light has been blurred.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Light on skin.
    pub(crate) irradiance: Vec3,
    /// Color of skin.
    pub(crate) albedo: Vec3,
    /// 1 on skin, 0 elsewhere.
    pub(crate) is_skin: f32,
    /// All light of other materials, and the gloss of skin.
    pub(crate) other_light: Vec3,
    pub(crate) depth: f32,
    pub(crate) normal: Vec3,
    pub(crate) material: Material,
}

/// Depth of the background.
pub(crate) const BACKGROUND_DEPTH: f32 = 1e9;

/// The surface that a ray hits.
#[derive(Clone, Copy)]
pub(crate) struct Hit {
    /// In the world, and in head space.
    point: Vec3,
    head_point: Vec3,
    ray: Vec3,
    pub(crate) normal: Vec3,
    pub(crate) depth: f32,
    pub(crate) material: Material,
}

impl Hit {
    /// Whether each of two hits lies nearly in the plane of the other: a surface may be steep
    /// without a step.
    pub(crate) fn is_coplanar_with(&self, other: &Self) -> bool {
        let way = other.point - self.point;
        way.dot(self.normal).abs().max(way.dot(other.normal).abs()) < 0.01
    }
}

/// Visibility of lights and sky from a surface. It changes slowly along a surface, and computing it
/// is most of the work.
#[derive(Clone, Copy, Default)]
pub(crate) struct Visibility {
    pub(crate) light_visibility: [f32; 4],
    pub(crate) sky_visibility: f32,
}

impl Shader<'_> {
    /// The surface at a point of the picture, in pixels, without hair. Nothing is closer than
    /// `start`. A surface behind the depth `hair` gets no material.
    pub(crate) fn intersect(&self, x: f32, y: f32, start: f32, hair: f32) -> Hit {
        let ray = self.camera.ray(x, y);
        let mut out = Hit {
            point: Vec3::ZERO,
            head_point: Vec3::ZERO,
            ray,
            normal: Vec3::ZERO,
            depth: BACKGROUND_DEPTH,
            material: Material::None,
        };
        if let Some((p, material)) = ray_march::intersect(self.scene, self.camera, ray, start) {
            out.depth = self.camera.depth(p);
            if hair >= out.depth {
                out = Hit { point: p, head_point: self.scene.to_head(p), material, ..out };
                out.normal = ray_march::surface_normal(self.scene, material, p);
            }
        }
        out
    }

    /// Computes the visibility of lights and sky from a surface.
    pub(crate) fn trace_visibility(&self, hit: &Hit) -> Visibility {
        let (scene, n) = (self.scene, hit.normal);
        let open = ray_march::sky_visibility(scene, hit.point, n);
        // Thick cloth must not lie in the shadow of its own folds. For a shirt the offset is
        // smaller: from farther out, its light would pass over the edges of collar and jacket in
        // places.
        let shirt = scene.character.clothes.style == ClothesStyle::Shirt;
        let off = match hit.material {
            // Beside the jaw that offset would lie inside the skin.
            Material::Scarf => {
                mix(0.012, 0.045, smoothstep(0.03, 0.12, scene.scarf_opening(hit.head_point)))
            }
            Material::Cloth if !shirt => 0.045,
            _ => 0.01,
        };
        let from = hit.point + n * off;
        // Light wraps far around thin cloth. Where a scarf turns away from a lamp it must fade, or
        // each dent has an edge.
        let turned = if hit.material == Material::Scarf { 0.20 } else { -0.12 };
        let seen = self.lights.each_ref().map(|l| match n.dot(l.direction) {
            away if away <= -0.12 => 0.0,
            along => {
                let share = if along < turned { smoothstep(-0.12, turned, along) } else { 1.0 };
                share
                    * if l.casts_shadow {
                        ray_march::soft_shadow(scene, from, l.direction, l.hardness)
                    } else {
                        open
                    }
            }
        });
        Visibility { light_visibility: seen, sky_visibility: open }
    }

    /// What the camera sees of a surface.
    pub(crate) fn shade(&self, x: f32, y: f32, hit: &Hit, traced: &Visibility) -> Sample {
        let scene = self.scene;
        let mut out = Sample {
            irradiance: Vec3::ZERO,
            albedo: Vec3::ZERO,
            is_skin: 0.0,
            other_light: Vec3::ZERO,
            depth: hit.depth,
            normal: hit.normal,
            material: hit.material,
        };
        let &Hit { point: p, head_point: hp, ray, normal: n, material, .. } = hit;
        if material == Material::None {
            if hit.depth == BACKGROUND_DEPTH {
                out.other_light = self.background(x, y);
            }
            return out;
        }
        let v = -ray;
        let through_hair = self
            .grid
            .map_or(Vec4::ONE, |g| {
                g.sample(&g.through_hair, hp + scene.inverse_head_rotation * n * 0.02).0
            })
            .to_array();
        let mut light = Lighting {
            light_visibility: traced.light_visibility,
            sky_visibility: traced.sky_visibility,
        };
        for (arrives, hair) in light.light_visibility.iter_mut().zip(through_hair) {
            *arrives *= hair;
        }
        let under_hair = self.grid.map_or(1.0, |g| {
            0.25 + 0.75 * g.sample(&g.through_hair, hp + scene.inverse_head_rotation * n * 0.05).1
        });
        let ambient = sky_light(n) * 0.62 + vec3(0.16, 0.155, 0.15) * n.z.max(0.0);
        match material {
            Material::Skin => self.shade_skin(&mut out, (hp, p), v, n, &light, ambient, under_hair),
            Material::Eye => {
                light.sky_visibility *= under_hair;
                out.other_light = self.shade_eye(hp, v, n, &light);
            }
            Material::Teeth | Material::Tongue => {
                out.other_light = self.shade_teeth(material, hp, v, n, &light, ambient);
            }
            Material::Cloth | Material::Shirt | Material::Tie | Material::Scarf => {
                out.other_light = self.shade_cloth(material, p, v, n, &light, ambient, under_hair);
            }
            Material::Frame | Material::Gold => {
                out.other_light = self.shade_frame(material, v, n, &light, ambient)
            }
            Material::None => {}
        }
        if scene.character.glasses != Glasses::None {
            self.shade_through_lens(&mut out, ray, hp);
        }
        out
    }

    #[allow(clippy::too_many_arguments)]
    fn shade_skin(
        &self,
        out: &mut Sample,
        (hp, p): (Vec3, Vec3),
        v: Vec3,
        n: Vec3,
        light: &Lighting,
        ambient: Vec3,
        under_hair: f32,
    ) {
        let scene = self.scene;
        let skin = scene.skin_at(hp, p);
        let (lip, inside) = scene.mouth_masks(hp);
        let smooth = n;
        let (n, crease) = scene.wrinkle_normal(n, hp);
        // Gloss mostly ignores wrinkles: they would glint.
        let shiny = smooth.lerp(n, 0.3).normalize();
        let fine = perturb_normal(scene, shiny, hp, lip);
        let (mut irradiance, mut specular) = (Vec3::ZERO, Vec3::ZERO);
        for (l, &t) in self.lights.iter().zip(&light.light_visibility) {
            let seen = vec3(t.powf(0.80), t, t.powf(1.04));
            irradiance += l.colour * wrapped_diffuse(n.dot(l.direction)) * seen;
            let lobes = ggx_specular(fine, v, l.direction, skin.roughness * 0.92, 0.032) * 0.95
                + ggx_specular(shiny, v, l.direction, 0.62, 0.035) * 0.5;
            specular += l.colour * lobes * t * l.specular;
        }
        irradiance += ambient * fold_ambient(light.sky_visibility) * under_hair;
        let mirror = |n: Vec3| studio_reflection(n * 2.0 * n.dot(v) - v);
        specular +=
            mirror(shiny) * grazing_sheen(shiny, v) * 0.10 * light.sky_visibility * under_hair;
        specular += mirror(fine) * 0.018 * lip * light.sky_visibility * under_hair;
        let mut albedo = skin.colour * Vec3::ONE.lerp(vec3(0.72, 0.56, 0.52), crease * 0.8);
        if inside > 0.0 {
            // Beside the teeth of a smile, the cheeks are close and lit, so there are no dark
            // notches.
            let wall = vec3(0.22, 0.035, 0.03).lerp(vec3(0.42, 0.15, 0.13), scene.smile_parting);
            albedo = albedo.lerp(wall, inside);
            let shade = 0.62 - 0.25 * scene.smile_parting;
            irradiance = irradiance * (1.0 - shade * inside) + vec3(0.20, 0.15, 0.15) * inside;
            specular *= 1.0 - 0.6 * inside;
        }
        out.irradiance = irradiance;
        out.albedo = albedo;
        out.is_skin = 1.0;
        // The bottom of a wrinkle is matt: on dark skin, gloss would look like a white scratch.
        out.other_light = specular * skin.oil * (1.0 - 0.6 * crease);
    }

    fn shade_teeth(
        &self,
        material: Material,
        hp: Vec3,
        v: Vec3,
        n: Vec3,
        light: &Lighting,
        ambient: Vec3,
    ) -> Vec3 {
        let teeth = material == Material::Teeth;
        let mut colour = if teeth { vec3(0.95, 0.895, 0.825) } else { vec3(0.43, 0.125, 0.115) };
        if teeth && hp.z > 0.5 {
            // Gaps between the teeth, and a slightly warmer color toward the gum. Gaps of the
            // lower row are hardly visible.
            let (gap, over) = self.scene.between_teeth(hp);
            let upper = smoothstep(-0.02, 0.0, over);
            colour *= Vec3::ONE.lerp(vec3(0.60, 0.47, 0.42), gap * 0.5 * upper);
            colour *= Vec3::ONE.lerp(vec3(1.0, 0.93, 0.86), smoothstep(0.03, 0.10, over) * 0.6);
        }
        if !teeth && self.scene.tongue.1 > 0.0 {
            // Little light arrives where it meets the upper teeth, and at its sides.
            let (_, over) = self.scene.between_teeth(hp);
            let near =
                smoothstep(-0.055, 0.005, over).max(smoothstep(0.05, 0.17, hp.x.abs()) * 0.8);
            colour *= Vec3::ONE.lerp(vec3(0.55, 0.40, 0.40), near * self.scene.tongue.1);
        }
        // Front teeth are as bright as the face; the corners and everything behind are not.
        let deep = smoothstep(0.02, 0.22, 0.745 - hp.z);
        let open = light.sky_visibility.powf(0.8);
        let (mut out, mut shine) = (Vec3::ZERO, 0.0);
        for (l, &t) in self.lights.iter().zip(&light.light_visibility) {
            let lit = (n.dot(l.direction) * 0.75 + 0.25).max(0.0) * (0.62 + 0.38 * t);
            out += l.colour * lit * 0.80;
            shine += luminance(l.colour)
                * ggx_specular(n, v, l.direction, 0.25, 0.04)
                * t
                * if teeth { 0.6 } else { 0.5 };
        }
        // Most of the light in a mouth was reflected by lips and gums. Cool light of lamps and sky
        // would look green beside them, and shade is red.
        let arrives = out + ambient * open;
        let warm = luminance(arrives) * vec3(1.07, 1.0, 0.93);
        let shade = Vec3::ONE.lerp(vec3(0.95, 0.70, 0.60), (1.0 - open) * 0.55);
        let diffuse = colour * arrives.lerp(warm, 0.85) * shade;
        (diffuse + Vec3::splat(shine))
            * mix(if teeth { 0.95 } else { 0.85 }, 0.50, deep)
            * (0.70 + 0.30 * open)
    }

    #[allow(clippy::too_many_arguments)]
    fn shade_cloth(
        &self,
        material: Material,
        p: Vec3,
        v: Vec3,
        n: Vec3,
        light: &Lighting,
        ambient: Vec3,
        under_hair: f32,
    ) -> Vec3 {
        let scarf = material == Material::Scarf;
        let style = self.scene.character.clothes.style;
        let knitted = matches!(style, ClothesStyle::Crew | ClothesStyle::Turtleneck);
        // The crumple of a scarf, knit, or plain weave. A regular pattern finer than a few pixels
        // would shimmer in the encoder.
        let (bump, slope) = if scarf {
            let bump = fractal_noise(p * 16.0) - 0.5;
            (bump, vec3(bump, -bump * 0.6, 0.0) * 0.07)
        } else if knitted {
            knit(p, style == ClothesStyle::Turtleneck)
        } else {
            let bump = noise(p * 60.0) - 0.5;
            (bump, vec3(bump, -bump * 0.6, 0.0) * 0.05)
        };
        let n = (n + slope).normalize();
        let base = match material {
            Material::Scarf => self.scene.appearance.scarf,
            Material::Shirt => self.scene.appearance.shirt,
            Material::Tie => self.scene.appearance.tie * stripes(p),
            _ => self.scene.appearance.cloth,
        };
        let colour = base * (0.92 + 0.16 * fractal_noise(p * 9.0)) * (1.0 + 0.10 * bump);
        let fuzz = (1.0 - n.dot(v).max(0.0)).powi(3) * 0.9;
        let mut out = Vec3::ZERO;
        for (l, &t) in self.lights.iter().zip(&light.light_visibility) {
            // A scarf is thin: some light passes through it.
            let (t, wrap) = if scarf { (mix(0.14, 1.0, t), 0.25) } else { (t, 0.15) };
            let lit = (n.dot(l.direction) * (1.0 - wrap) + wrap).max(0.0);
            out += l.colour * t * lit * (colour + (colour * 0.5 + Vec3::splat(0.02)) * fuzz);
            if scarf {
                out += l.colour * t * ggx_specular(n, v, l.direction, 0.55, 0.04) * 0.5;
            }
        }
        // Cloth reflects light into its own folds, white cloth the most: they are deep, not black.
        let min_ambient = if scarf { 0.45 } else { 0.16 + 0.50 * luminance(base) };
        out * 0.60
            + colour * ambient * mix(min_ambient, 1.0, light.sky_visibility) * under_hair * 0.75
    }

    fn shade_frame(
        &self,
        material: Material,
        v: Vec3,
        n: Vec3,
        light: &Lighting,
        ambient: Vec3,
    ) -> Vec3 {
        let gold = material == Material::Gold;
        let colour = if gold { vec3(0.75, 0.50, 0.20) } else { self.scene.appearance.frame };
        let mut out = colour * ambient * light.sky_visibility;
        for (l, &t) in self.lights.iter().zip(&light.light_visibility) {
            let shine = ggx_specular(n, v, l.direction, 0.28, 0.04);
            out += l.colour * t * (colour * n.dot(l.direction).max(0.0) + Vec3::splat(shine));
        }
        let fresnel = 0.04 + 0.5 * (1.0 - n.dot(v).max(0.0)).powi(5);
        let mirror = if gold { colour * 0.55 } else { Vec3::splat(fresnel) };
        out + studio_reflection(n * 2.0 * n.dot(v) - v) * mirror * light.sky_visibility
    }

    /// A lens over the surface at `hp`.
    fn shade_through_lens(&self, out: &mut Sample, ray: Vec3, hp: Vec3) {
        let scene = self.scene;
        if hp.y < -0.6 {
            return; // far below the glass
        }
        let eye = scene.to_head(self.camera.eye);
        let direction = scene.inverse_head_rotation * ray;
        let mut t = (0.9 - eye.z) / direction.z;
        for _ in 0..4 {
            t -= scene.lens_distances(eye + direction * t).1 / direction.z;
        }
        let q = eye + direction * t;
        if scene.lens_distances(q).0 >= 0.0 || (q - eye).length() > (hp - eye).length() - 0.01 {
            return;
        }
        let n = scene.head_rotation * vec3(q.x * 0.95, 0.10 + q.y * 0.5, 1.0).normalize();
        let v = -ray;
        let fresnel = 0.045 + 0.6 * (1.0 - n.dot(v).max(0.0)).powi(5);
        out.other_light =
            out.other_light * 0.94 + studio_reflection(n * 2.0 * n.dot(v) - v) * fresnel * 0.32;
        out.albedo *= 0.94;
    }

    /// A gradient with a window and lamps out of focus.
    pub(crate) fn background(&self, x: f32, y: f32) -> Vec3 {
        let height = self.camera.height as f32;
        let (u, v) = ((x - self.camera.centre_x) / height, y / height);
        let [middle, rim] = self.scene.appearance.background;
        let far = ((u - 0.05).powi(2) * 0.9 + (v - 0.36).powi(2)).sqrt();
        let mut out = middle.lerp(rim, smoothstep(0.0, 0.78, far));
        let lamps = [
            (-0.42, 0.22, 0.26, 0.10, vec3(1.0, 0.95, 0.85)),
            (0.44, 0.34, 0.16, 0.07, vec3(1.0, 0.80, 0.6)),
            (0.36, 0.12, 0.09, 0.05, vec3(0.8, 0.9, 1.0)),
            (-0.36, 0.62, 0.13, 0.05, vec3(1.0, 0.85, 0.7)),
        ];
        for (cx, cy, radius, strength, colour) in lamps {
            out +=
                colour * strength * smoothstep(radius * 1.6, radius * 0.2, (u - cx).hypot(v - cy));
        }
        out
    }

    /// Light that leaves a strand at a point of the world: two highlights shifted along the
    /// tangent, diffuse light, and light from behind (after Kajiya & Kay 1989 and Marschner et al.
    /// 2003).
    pub(crate) fn shade_hair(&self, strand: &Strand, p: Vec3, tangent: Vec3, share: f32) -> Vec3 {
        let scene = self.scene;
        let v = (self.camera.eye - p).normalize();
        let hp = scene.to_head(p);
        let outward = scene.head_rotation
            * strand.skin_normal.unwrap_or_else(|| {
                (hp - vec3(0.0, (hp.y * 0.6).clamp(-1.2, 0.25), -0.15)).normalize()
            });
        let n = (outward - tangent * outward.dot(tangent)).normalize_or_zero();
        let on_face = strand.skin_normal.is_some();
        let mut out = Vec3::ZERO;
        let (passed, sky_passes) = self.grid.map_or((Vec4::ONE, 1.0), |g| {
            g.sample(if on_face { &g.through_hair } else { &g.through_hair_and_head }, hp)
        });
        let passed = passed.to_array();
        let inner = strand.colour.powf(0.7);
        for (i, l) in self.lights.iter().enumerate() {
            let arrives = if on_face {
                passed[i] * smoothstep(-0.25, 0.5, outward.dot(l.direction))
            } else {
                passed[i].powf(0.78)
            };
            if arrives == 0.0 {
                continue;
            }
            let along = tangent.dot(l.direction);
            let sine = (1.0 - along * along).max(0.0).sqrt();
            let half = (l.direction + v).normalize_or_zero();
            let wrap = ((n.dot(l.direction) + 0.55) / 1.55).max(0.0);
            let diffuse = strand.colour * (sine * 0.35 + 0.65) * wrap * 0.85;
            // Powers of a sine as integer powers of its square, which need no logarithm.
            let lobe = |shift: f32, half_exponent: i32| {
                let along = (tangent + n * (shift + strand.tilt)).normalize().dot(half);
                (1.0 - along * along).max(0.0).powi(half_exponent)
            };
            let front = smoothstep(-0.2, 0.3, n.dot(l.direction));
            let shine = if front > 0.0 {
                Vec3::splat(lobe(-0.10, 75) * 0.11) + strand.colour * 1.15 * lobe(0.12, 13) * 0.55
            } else {
                Vec3::ZERO
            };
            let backlight = (-l.direction.dot(v)).max(0.0).powi(3);
            let through = inner * backlight * sine * 0.9;
            out += l.colour
                * arrives
                * (diffuse + shine * front * strand.shine + through * (0.4 + 0.6 * strand.shine));
        }
        let sky_passes = if on_face || self.grid.is_none() { 0.8 } else { sky_passes };
        out +=
            strand.colour * (sky_light(outward) * 1.1 + Vec3::splat(0.10)) * sky_passes.powf(0.62);
        out * mix(strand.root_light, 1.0, smoothstep(0.0, 0.25, share))
    }
}

/// Relief of knitted cloth at a point: its height, −1 … 1, and the slope that it adds to a normal.
/// Columns of V-shaped stitches; on a thick jumper they are as large as those of hand-knitted wool,
/// on a thin one so fine that only a soft rib remains.
fn knit(p: Vec3, thick: bool) -> (f32, Vec3) {
    if !thick {
        let rib = (p.x * 120.0).sin();
        return (rib * 0.35, vec3(rib * 0.022, 0.0, 0.0));
    }
    let (column, row) = (p.x * (1.0 / 0.066), p.y * (1.0 / 0.058));
    let across = column - column.floor() - 0.5;
    // The two arms of a stitch rise from the middle of the column to its sides.
    let arm = row + across.abs() * 1.3;
    let (wave, turn) = (arm * core::f32::consts::TAU).sin_cos();
    let valley = 1.0 - 4.0 * across * across;
    let slope = vec3(
        0.18 * across + 0.10 * turn * across.signum() * valley,
        0.13 * turn * (0.35 + 0.65 * valley),
        0.0,
    );
    ((0.5 * valley - 0.25) + 0.4 * wave, slope)
}

/// Brightness of a tie's diagonal stripes.
fn stripes(p: Vec3) -> f32 {
    let along = (p.y * 0.8 + p.x) * (1.0 / 0.085);
    let cell = (along - along.floor() - 0.5).abs();
    mix(0.72, 1.45, smoothstep(0.34, 0.40, cell))
}
