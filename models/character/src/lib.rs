//! Renders a character in a pose to a picture.
//!
//! Everything solid is a signed distance field, all hair consists of tens of thousands of strands,
//! and the light is that of a studio. Pure: no file, clock or external randomness; the output bits
//! do not depend on the number of threads. A picture costs seconds: it is meant to be drawn and
//! encoded once ([`render`] for one picture, [`CharacterRenderer`] and [`HeadView`] for many).
//!
//! ```text
//! Character ─► CharacterRenderer   hair is grown
//!           ─► HeadView            one head pose: light through hair, hair drawn
//!           ─► Patch               linear light
//!           ─► Picture
//! ```

mod camera;
mod character;
mod clothing;
mod eye;
mod face_hair;
mod framing;
mod hairline;
mod head;
mod head_hair;
mod light_grid;
mod math;
mod pose;
mod ray_march;
mod render;
mod scene;
mod shade;
mod side_part;
mod skin;
mod slider;
mod soft_limits;
mod strand;
mod tonemap;

use std::sync::OnceLock;

use glam::Vec3;

pub use character::{
    BrowShape, Character, Clothes, ClothesStyle, Colour, EyeShape, Glasses, Hair, HairStyle,
    InvalidColour, Lips, Nose, Proportions, SLIDERS, Skin,
};
pub use framing::Framing;
pub use pose::{Brows, Eyes, Head, Mouth, POSE_SLIDERS, Pose};
pub use slider::{OutOfRange, Slider};

use camera::{Camera, lights};
use face_hair::Whisker;
use light_grid::LightGrid;
use math::smoothstep;
use scene::Scene;
use shade::Shader;
use strand::{HairLayer, Strand};

/// Changes with the renderer's source: pictures of different versions may differ.
pub const VERSION: &str = env!("CHARACTER_VERSION");

/// A rectangle of a picture in pixels: `x0..x1 × y0..y1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Left edge.
    pub x0: usize,
    /// Top edge.
    pub y0: usize,
    /// Right edge, exclusive.
    pub x1: usize,
    /// Bottom edge, exclusive.
    pub y1: usize,
}

impl Rect {
    /// A whole picture.
    #[must_use]
    pub fn whole(width: usize, height: usize) -> Self {
        Self { x0: 0, y0: 0, x1: width, y1: height }
    }

    fn to_array(self) -> [usize; 4] {
        [self.x0, self.y0, self.x1, self.y1]
    }
}

/// Side in pixels of the squares that video is encoded in.
const MACROBLOCK: usize = 16;

/// A finished picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// RGBA, row by row, sRGB; alpha is 255 everywhere.
    pub rgba: Vec<u8>,
}

impl Picture {
    /// The pixels without alpha.
    #[must_use]
    pub fn rgb(&self) -> Vec<u8> {
        let mut rgb = vec![0; self.rgba.len() / 4 * 3];
        for (rgb, rgba) in rgb.chunks_exact_mut(3).zip(self.rgba.chunks_exact(4)) {
            rgb.copy_from_slice(&rgba[..3]);
        }
        rgb
    }
}

/// Renders one picture in [`Framing::Close`], or a rectangle of it (the result then has the
/// rectangle's size).
///
/// # Errors
/// If a slider of the character is out of range.
///
/// # Panics
/// If the rectangle does not lie within the picture.
pub fn render(
    character: &Character,
    pose: &Pose,
    (width, height): (usize, usize),
    rect: Option<Rect>,
) -> Result<Picture, OutOfRange> {
    let renderer = CharacterRenderer::new(character)?;
    let view = renderer.head_view(pose, (width, height));
    let whole = Rect::whole(width, height);
    let Some(r) = rect else { return Ok(view.draw(pose, whole).to_picture()) };
    assert!(
        r.x0 < r.x1 && r.x1 <= width && r.y0 < r.y1 && r.y1 <= height,
        "{r:?} of {width}×{height}"
    );
    // Light spreads into the rectangle from this many pixels around it.
    let reach = tonemap::bloom_radius(height) + render::dependency_radius(&view.camera);
    let around = Rect {
        x0: r.x0.saturating_sub(reach),
        y0: r.y0.saturating_sub(reach),
        x1: (r.x1 + reach).min(width),
        y1: (r.y1 + reach).min(height),
    };
    let part = view.draw(pose, around);
    let mut light = vec![Vec3::ZERO; width * height];
    for (y, row) in (around.y0..).zip(part.light.chunks_exact(around.x1 - around.x0)) {
        light[y * width + around.x0..y * width + around.x1].copy_from_slice(row);
    }
    let whole = Patch { rect: whole, light }.to_picture();
    let rows =
        (r.y0..r.y1).flat_map(|y| &whole.rgba[(y * width + r.x0) * 4..(y * width + r.x1) * 4]);
    Ok(Picture { width: r.x1 - r.x0, height: r.y1 - r.y0, rgba: rows.copied().collect() })
}

/// Renders pictures of one character. Owns its hair.
pub struct CharacterRenderer {
    character: Character,
    framing: Framing,
    hair_and_beard: OnceLock<(Vec<Strand>, Vec<Whisker>)>,
}

impl CharacterRenderer {
    /// Creates the renderer. The hair is grown with the first picture, in some tenths of a second.
    ///
    /// # Errors
    /// If a slider is out of range.
    pub fn new(character: &Character) -> Result<Self, OutOfRange> {
        character.check()?;
        Ok(Self {
            character: character.clone(),
            framing: Framing::default(),
            hair_and_beard: OnceLock::new(),
        })
    }

    /// Changes what pictures show from [`Framing::Close`] to this framing.
    #[must_use]
    pub fn with_framing(self, framing: Framing) -> Self {
        Self { framing, ..self }
    }

    /// Hair and beard, grown at the first use.
    fn hair_and_beard(&self) -> &(Vec<Strand>, Vec<Whisker>) {
        self.hair_and_beard.get_or_init(|| {
            let calm = Scene::new(&self.character, &Pose::default());
            (head_hair::grow_head_hair(&calm), face_hair::beard_whiskers(&calm))
        })
    }

    /// A view of the head in one pose, at one picture size (width and height in pixels). All poses
    /// of lips and eyes share it.
    #[must_use]
    pub fn head_view(&self, rest: &Pose, size: (usize, usize)) -> HeadView<'_> {
        HeadView {
            renderer: self,
            camera: Camera::new(size, self.framing, &self.character),
            rest: *rest,
            hair: OnceLock::new(),
        }
    }
}

/// A character with the head in one pose, ready to be drawn with many mouths and eyes.
pub struct HeadView<'a> {
    renderer: &'a CharacterRenderer,
    camera: Camera,
    rest: Pose,
    hair: OnceLock<(Option<LightGrid>, HairLayer)>,
}

impl HeadView<'_> {
    /// The head's hair, and the light that passes through it; drawn in seconds with the first
    /// picture.
    fn hair(&self) -> &(Option<LightGrid>, HairLayer) {
        self.hair.get_or_init(|| {
            let (hair, _) = self.renderer.hair_and_beard();
            let scene = Scene::new(&self.renderer.character, &self.rest);
            let lights = lights();
            let directions = lights.each_ref().map(|l| l.direction);
            let grid = (!hair.is_empty()).then(|| LightGrid::new(&scene, hair, &directions));
            let mut layer = HairLayer::new([0, 0, self.camera.width, self.camera.height]);
            let shader =
                Shader { scene: &scene, camera: &self.camera, lights, grid: grid.as_ref() };
            let strands: Vec<&Strand> = hair.iter().collect();
            let hidden = render::hidden_depths(&scene, &self.camera);
            layer.draw(&strands, &self.camera, &scene, Some(&hidden), |s, p, t, k| {
                shader.shade_hair(s, p, t, k)
            });
            (grid, layer)
        })
    }

    /// A rectangle of the picture in this pose. The head pose is that of the view.
    ///
    /// # Panics
    /// If the rectangle does not lie within the picture.
    #[must_use]
    pub fn draw(&self, pose: &Pose, rect: Rect) -> Patch {
        let (width, height) = (self.camera.width, self.camera.height);
        assert!(
            rect.x0 < rect.x1 && rect.y0 < rect.y1 && rect.x1 <= width && rect.y1 <= height,
            "{rect:?}"
        );
        let scene = Scene::new(&self.renderer.character, &Pose { head: self.rest.head, ..*pose });
        let (grid, hair) = self.hair();
        let shader =
            Shader { scene: &scene, camera: &self.camera, lights: lights(), grid: grid.as_ref() };
        // An open jaw moves a hair down by less than this.
        let reach = self.camera.scale(camera::CAMERA_DISTANCE - 0.7) * 0.4;
        let near = |p: Vec3| {
            let (x, y, _) = self.camera.project(scene.to_world(p));
            let [left, top, right, bottom] = rect.to_array().map(|v| v as f32);
            x > left - reach && x < right + reach && y > top - reach && y < bottom + reach
        };
        let mut strands = face_hair::pose_beard(&scene, &self.renderer.hair_and_beard().1, near);
        // Brows and lashes do not extend below this.
        let lids = self.bounding_rect(Vec3::new(-0.70, -0.19, 0.0), Vec3::new(0.70, 0.46, 0.0), 1);
        if rect.y0 < lids.y1 {
            strands.extend(face_hair::brows_and_lashes(&scene));
        }
        let light =
            render::draw_rect(&shader, hair.crop(rect.to_array()), &strands, rect.to_array());
        Patch { rect, light }
    }

    /// Share of the person in each pixel of the picture in this pose, 0 … 1. The head pose is that
    /// of the view.
    #[must_use]
    pub fn coverage(&self, pose: &Pose) -> Vec<f32> {
        let scene = Scene::new(&self.renderer.character, &Pose { head: self.rest.head, ..*pose });
        let (grid, hair) = self.hair();
        let shader =
            Shader { scene: &scene, camera: &self.camera, lights: lights(), grid: grid.as_ref() };
        render::coverage(&shader, hair)
    }

    /// The background without the person.
    #[must_use]
    pub fn studio(&self) -> Patch {
        let scene = Scene::new(&self.renderer.character, &self.rest);
        let shader = Shader { scene: &scene, camera: &self.camera, lights: lights(), grid: None };
        let (width, height) = (self.camera.width, self.camera.height);
        let place = |i: usize| ((i % width) as f32 + 0.5, (i / width) as f32 + 0.5);
        let light = (0..width * height).map(place).map(|(x, y)| shader.background(x, y)).collect();
        Patch { rect: Rect::whole(width, height), light }
    }

    /// The rectangle of the picture that contains this part of the head in the rest pose, aligned
    /// to a grid of this many pixels.
    fn bounding_rect(&self, low: Vec3, high: Vec3, grid: usize) -> Rect {
        let scene = Scene::new(&self.renderer.character, &self.rest);
        let corners = [(low.x, low.y), (high.x, low.y), (low.x, high.y), (high.x, high.y)]
            .map(|(x, y)| self.camera.project(scene.to_world(Vec3::new(x, y, 0.7))));
        let min_of =
            |f: fn(&(f32, f32, f32)) -> f32| corners.iter().map(f).fold(f32::MAX, f32::min);
        let max_of =
            |f: fn(&(f32, f32, f32)) -> f32| corners.iter().map(f).fold(f32::MIN, f32::max);
        let down = |v: f32| (v.max(0.0) as usize) / grid * grid;
        let up = |v: f32, end: usize| ((v.max(0.0) as usize).div_ceil(grid) * grid).min(end);
        Rect {
            x0: down(min_of(|c| c.0)),
            y0: down(min_of(|c| c.1)),
            x1: up(max_of(|c| c.0), self.camera.width),
            y1: up(max_of(|c| c.1), self.camera.height),
        }
    }

    /// The rectangle in which lips and jaw move.
    #[must_use]
    pub fn mouth_rect(&self) -> Rect {
        self.bounding_rect(Vec3::new(-0.66, -1.36, 0.0), Vec3::new(0.66, -0.34, 0.0), MACROBLOCK)
    }

    /// The rectangle in which lids, eyes and brows move.
    #[must_use]
    pub fn eyes_rect(&self) -> Rect {
        self.bounding_rect(Vec3::new(-0.70, -0.22, 0.0), Vec3::new(0.70, 0.46, 0.0), MACROBLOCK)
    }
}

/// A rectangle of a picture in linear light.
#[derive(Clone)]
pub struct Patch {
    rect: Rect,
    light: Vec<Vec3>,
}

impl Patch {
    /// Adds the difference between `rest` and `moved`, two drawings of one rectangle of this
    /// picture. It fades out over `feather` pixels at the rectangle's border. Where the two do not
    /// differ, the bits stay unchanged.
    ///
    /// # Panics
    /// If the two have different rectangles, or these do not lie within this one.
    pub fn add_change(&mut self, rest: &Self, moved: &Self, feather: usize) {
        let (r, whole) = (moved.rect, self.rect);
        assert_eq!(rest.rect, r, "both drawings have the same rectangle");
        assert!(
            r.x0 >= whole.x0 && r.y0 >= whole.y0 && r.x1 <= whole.x1 && r.y1 <= whole.y1,
            "{r:?}"
        );
        for y in r.y0..r.y1 {
            for x in r.x0..r.x1 {
                let edge = (x - r.x0).min(r.x1 - 1 - x).min(y - r.y0).min(r.y1 - 1 - y);
                let i = (y - r.y0) * (r.x1 - r.x0) + x - r.x0;
                let change =
                    (moved.light[i] - rest.light[i]) * smoothstep(0.0, feather as f32, edge as f32);
                self.light[(y - whole.y0) * (whole.x1 - whole.x0) + x - whole.x0] += change;
            }
        }
    }

    /// Position in the picture.
    #[must_use]
    pub fn rect(&self) -> Rect {
        self.rect
    }

    /// Serializes the pixels: red, green and blue of each, row by row, as little-endian `f32`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.light.iter().flat_map(|c| c.to_array()).flat_map(f32::to_le_bytes).collect()
    }

    /// Reads the output of [`Patch::to_bytes`] for this rectangle; `None` if the length does not
    /// match.
    #[must_use]
    pub fn from_bytes(rect: Rect, bytes: &[u8]) -> Option<Self> {
        if rect.x1 <= rect.x0
            || rect.y1 <= rect.y0
            || bytes.len() != (rect.x1 - rect.x0) * (rect.y1 - rect.y0) * 12
        {
            return None;
        }
        let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let colour = |b: &[u8]| Vec3::new(number(b), number(&b[4..]), number(&b[8..]));
        Some(Self { rect, light: bytes.chunks_exact(12).map(colour).collect() })
    }

    /// Converts the light to a picture.
    #[must_use]
    pub fn to_picture(&self) -> Picture {
        let (width, height) = (self.rect.x1 - self.rect.x0, self.rect.y1 - self.rect.y0);
        let rgb = tonemap::tonemap(&self.light, width, height);
        let rgba = rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect();
        Picture { width, height, rgba }
    }
}
