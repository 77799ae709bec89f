//! Hairs, drawn as opaque lines into a z-buffer of higher resolution.

use glam::Vec3;
use rayon::prelude::*;

use crate::camera::Camera;
use crate::math::{mix, smoothstep};
use crate::scene::Scene;

/// One hair, in head space.
#[derive(Clone)]
pub(crate) struct Strand {
    pub(crate) points: Vec<Vec3>,
    /// Width at the root.
    pub(crate) width: f32,
    /// Share of that width at the tip.
    pub(crate) tip: f32,
    pub(crate) colour: Vec3,
    /// Factor of the highlights.
    pub(crate) shine: f32,
    /// Tilt of its scales, which moves the highlights along it: neighbours glint apart.
    pub(crate) tilt: f32,
    /// Light that its root has of that at its tip, 0 … 1: roots are among other hair.
    pub(crate) root_light: f32,
    /// For brows, lashes and beard, the normal of the skin they grow on; `None` for the hair of the
    /// head.
    pub(crate) skin_normal: Option<Vec3>,
}

/// Heights between which hair becomes free of the head: at the chin, and on the shoulders.
const HANGS_FROM: f32 = -0.85;
const HANGS_BELOW: f32 = -1.70;
/// How far the tips of long hair swing against the head's rotation: at 1 they hang still.
const SWAY: f32 = 1.4;

impl Strand {
    /// A point in the world. Hair turns with the head down to the chin. Below, it hangs and lies on
    /// the shoulders, and sways against the rotation of the head.
    fn place(&self, scene: &Scene, i: usize) -> Vec3 {
        let p = self.points[i];
        let turned = scene.to_world(p);
        if p.y > HANGS_FROM || self.skin_normal.is_some() {
            return turned;
        }
        turned.lerp(p, SWAY * smoothstep(HANGS_FROM, HANGS_BELOW, p.y))
    }
}

/// Samples per side of a pixel.
pub(crate) const SUBPIXELS: usize = 4;

/// A z-buffer of hair for a rectangle of the picture, with [`SUBPIXELS`] × [`SUBPIXELS`] samples
/// per pixel.
#[derive(Clone)]
pub(crate) struct HairLayer {
    /// Column and row of the first sample in the whole picture.
    x0: usize,
    y0: usize,
    width: usize,
    depth: Vec<f32>,
    colour: Vec<Vec3>,
}

/// A vertex on the screen: position in samples, depth, width in samples.
#[derive(Clone, Copy)]
struct Vertex {
    x: f32,
    y: f32,
    z: f32,
    width: f32,
}

/// What a sample shows: a segment (the index of its first vertex plus one; 0: none of these
/// strands), and the position along it, 0 … 1.
type VisibleSegment = (u32, f32);

/// Rows of a layer that one task draws. Fixed, so that the result does not depend on the number of
/// threads.
const BAND_ROWS: usize = 32;

impl HairLayer {
    /// A layer without hair, over the pixels `x0..x1 × y0..y1`.
    pub(crate) fn new([x0, y0, x1, y1]: [usize; 4]) -> Self {
        let (width, height) = ((x1 - x0) * SUBPIXELS, (y1 - y0) * SUBPIXELS);
        Self {
            x0: x0 * SUBPIXELS,
            y0: y0 * SUBPIXELS,
            width,
            depth: vec![f32::MAX; width * height],
            colour: vec![Vec3::ZERO; width * height],
        }
    }

    /// The part of this layer over some pixels.
    pub(crate) fn crop(&self, rect: [usize; 4]) -> Self {
        let mut part = Self::new(rect);
        for (row, (depth, colour)) in
            part.depth.chunks_mut(part.width).zip(part.colour.chunks_mut(part.width)).enumerate()
        {
            let from = (row + part.y0 - self.y0) * self.width + part.x0 - self.x0;
            depth.copy_from_slice(&self.depth[from..from + part.width]);
            colour.copy_from_slice(&self.colour[from..from + part.width]);
        }
        part
    }

    /// Depth and color of sample (u, v) of pixel (x, y).
    pub(crate) fn sample(&self, x: usize, y: usize, u: usize, v: usize) -> (f32, Vec3) {
        let i = (y * SUBPIXELS + v - self.y0) * self.width + x * SUBPIXELS + u - self.x0;
        (self.depth[i], self.colour[i])
    }

    /// Depth of the farthest hair in a pixel; beyond any surface if a sample has none.
    pub(crate) fn farthest_depth(&self, x: usize, y: usize) -> f32 {
        let mut far = 0.0f32;
        for v in 0..SUBPIXELS {
            let i = (y * SUBPIXELS + v - self.y0) * self.width + x * SUBPIXELS - self.x0;
            far = self.depth[i..i + SUBPIXELS].iter().fold(far, |a, b| a.max(*b));
        }
        far
    }

    /// Draws strands. `shade` returns the color at a vertex (world position, tangent, share of the
    /// length). It is called for visible vertices only: first every segment is drawn by its number,
    /// then the visible ones are shaded. Nothing is drawn behind `hidden`.
    pub(crate) fn draw(
        &mut self,
        strands: &[&Strand],
        camera: &Camera,
        scene: &Scene,
        hidden: Option<&OcclusionDepths>,
        shade: impl Fn(&Strand, Vec3, Vec3, f32) -> Vec3 + Sync,
    ) {
        let (x0, y0) = (self.x0 as f32, self.y0 as f32);
        let project = |strand: &Strand, i: usize| {
            let t = i as f32 / (strand.points.len() - 1) as f32;
            let (x, y, z) = camera.project(strand.place(scene, i));
            let width =
                strand.width * mix(1.0, strand.tip, t * t) * camera.scale(z) * SUBPIXELS as f32;
            Vertex { x: x * SUBPIXELS as f32 - x0, y: y * SUBPIXELS as f32 - y0, z, width }
        };
        let (width, rows) = (self.width, self.depth.len() / self.width);
        let bundles: Vec<StrandBundle> = strands
            .par_chunks(BUNDLE_STRANDS)
            .map(|strands| {
                let lines = strands.iter().map(|s| (0..s.points.len()).map(|i| project(s, i)));
                StrandBundle::new(lines, (width, rows), |v| {
                    hidden.is_some_and(|h| h.occludes(v, self.x0, self.y0))
                })
            })
            .collect();
        let mut first = Vec::with_capacity(bundles.len());
        let mut vertices = 0u32;
        for bundle in &bundles {
            first.push(vertices);
            vertices += bundle.vertices.len() as u32;
        }

        let mut seen: Vec<VisibleSegment> = vec![(0, 0.0); self.depth.len()];
        let bands = self
            .depth
            .par_chunks_mut(width * BAND_ROWS)
            .zip(seen.par_chunks_mut(width * BAND_ROWS));
        bands.enumerate().for_each(|(band, (depth, seen))| {
            let top = band * BAND_ROWS;
            if let Some(hidden) = hidden {
                for (row, depth) in depth.chunks_mut(width).enumerate() {
                    hidden.clamp_depths(depth, (top + row + self.y0) / SUBPIXELS, self.x0);
                }
            }
            let bottom = top + depth.len() / width;
            for (bundle, first) in bundles.iter().zip(&first) {
                for i in &bundle.bands[band] {
                    let (a, b) = (bundle.vertices[*i as usize], bundle.vertices[*i as usize + 1]);
                    draw_segment(a, b, [top, bottom], width, depth, seen, first + i + 1);
                }
            }
            if hidden.is_some() {
                for (depth, _) in depth.iter_mut().zip(seen.iter()).filter(|(_, seen)| seen.0 == 0)
                {
                    *depth = f32::MAX;
                }
            }
        });

        let mut wanted = vec![false; vertices as usize];
        for (number, _) in &seen {
            if *number > 0 {
                wanted[*number as usize - 1] = true;
                wanted[*number as usize] = true;
            }
        }
        // Colors of the wanted vertices, and the index of each vertex's color.
        let chosen: Vec<Vec<Vec3>> = strands
            .par_chunks(BUNDLE_STRANDS)
            .zip(&first)
            .map(|(strands, first)| {
                let mut colours = Vec::new();
                let mut at = *first as usize;
                for strand in strands {
                    let n = strand.points.len();
                    for i in (0..n).filter(|i| wanted[at + i]) {
                        let along = strand.points[(i + 1).min(n - 1)] - strand.points[i.max(1) - 1];
                        let tangent = scene.head_rotation * along.normalize_or_zero();
                        let p = strand.place(scene, i);
                        let colour = shade(strand, p, tangent, i as f32 / (n - 1) as f32);
                        colours.push(colour.min(Vec3::splat(3.0)));
                    }
                    at += n;
                }
                colours
            })
            .collect();
        let colours = chosen.concat();
        let mut places = Vec::with_capacity(wanted.len());
        let mut place = 0u32;
        for wanted in wanted {
            places.push(place);
            place += u32::from(wanted);
        }
        self.colour.par_iter_mut().zip(&seen).for_each(|(colour, (number, along))| {
            if *number > 0 {
                // Both ends of a visible segment are wanted, and therefore adjacent.
                let i = places[*number as usize - 1] as usize;
                *colour = colours[i].lerp(colours[i + 1], *along);
            }
        });
    }
}

/// Number of strands of a [`StrandBundle`].
const BUNDLE_STRANDS: usize = 1024;

/// Some strands on the screen.
struct StrandBundle {
    /// The vertices of all strands, strand by strand.
    vertices: Vec<Vertex>,
    /// For each band of the layer, the segments that may touch it, by the index of their first
    /// vertex.
    bands: Vec<Vec<u32>>,
}

impl StrandBundle {
    /// `width` and `rows` are the layer's, in samples. A segment with two `hidden` ends is omitted.
    fn new(
        lines: impl Iterator<Item = impl Iterator<Item = Vertex>>,
        (width, rows): (usize, usize),
        hidden: impl Fn(&Vertex) -> bool,
    ) -> Self {
        let mut out =
            Self { vertices: Vec::new(), bands: vec![Vec::new(); rows.div_ceil(BAND_ROWS)] };
        for line in lines {
            let first = out.vertices.len();
            out.vertices.extend(line);
            for i in first..out.vertices.len() - 1 {
                let (a, b) = (out.vertices[i], out.vertices[i + 1]);
                let pad = a.width.max(1.0) + 1.0;
                let (top, bottom) = (a.y.min(b.y) - pad, a.y.max(b.y) + pad);
                let aside = a.x.max(b.x) + pad < 0.0 || a.x.min(b.x) - pad > width as f32;
                if aside || bottom < 0.0 || top > rows as f32 || hidden(&a) && hidden(&b) {
                    continue;
                }
                let last = (bottom as usize / BAND_ROWS).min(out.bands.len() - 1);
                for band in &mut out.bands[top.max(0.0) as usize / BAND_ROWS..=last] {
                    band.push(i as u32);
                }
            }
        }
        out
    }
}

/// Depths behind which solids hide all hair, one for each square of the picture.
pub(crate) struct OcclusionDepths {
    /// Side of a square in pixels.
    pub(crate) tile_pixels: usize,
    /// Number of squares in a row.
    pub(crate) columns: usize,
    pub(crate) depths: Vec<f32>,
}

impl OcclusionDepths {
    /// Whether a vertex of a layer that starts at sample (`x0`, `y0`) is invisible.
    fn occludes(&self, v: &Vertex, x0: usize, y0: usize) -> bool {
        let (x, y) = (v.x + x0 as f32, v.y + y0 as f32);
        if x < 0.0 || y < 0.0 {
            return false;
        }
        let (column, row) = (
            x as usize / (SUBPIXELS * self.tile_pixels),
            y as usize / (SUBPIXELS * self.tile_pixels),
        );
        column < self.columns
            && self.depths.get(row * self.columns + column).is_some_and(|d| v.z > *d)
    }

    /// Clamps the depths of a row of samples that starts at column `x0` to these depths.
    fn clamp_depths(&self, depths: &mut [f32], y: usize, x0: usize) {
        let row = &self.depths[y / self.tile_pixels * self.columns..][..self.columns];
        for (i, depth) in depths.iter_mut().enumerate() {
            *depth = depth.min(row[(x0 + i) / (SUBPIXELS * self.tile_pixels)]);
        }
    }
}

/// Steps along the longer axis and fills the width across it.
fn draw_segment(
    a: Vertex,
    b: Vertex,
    [top, bottom]: [usize; 2],
    width: usize,
    depth: &mut [f32],
    seen: &mut [VisibleSegment],
    number: u32,
) {
    let (dx, dy) = (b.x - a.x, b.y - a.y);
    let flat = dx.abs() > dy.abs();
    let steps = dx.abs().max(dy.abs()).ceil().max(1.0);
    let share = 1.0 / steps;
    // In integers of 1/65536, along the line and across: rounding is a shift.
    let fixed = |v: f32| (v * 65_536.0) as i64;
    let [(x, pace_x), (y, pace_y)] =
        [(a.x, dx), (a.y, dy)].map(|(v, d)| (fixed(v), fixed(d * share)));
    let ((mut along, pace), (mut across, slope)) =
        if flat { ((x, pace_x), (y, pace_y)) } else { ((y, pace_y), (x, pace_x)) };
    let (mut half, swell) = (fixed(a.width * 0.5), fixed((b.width - a.width) * 0.5 * share));
    let (min_half_width, dz) = (fixed(0.3), b.z - a.z);
    let (rows, columns) = (top as i64..bottom as i64, 0..width as i64);
    let (lengthwise, crosswise) = if flat { (columns, rows) } else { (rows, columns) };
    for k in 0..steps as usize {
        let at = along >> 16;
        if lengthwise.contains(&at) {
            let wide = half.max(min_half_width);
            let from = (across - wide + 32_768) >> 16;
            let to = ((across + wide + 32_768) >> 16).max(from + 1);
            let t = k as f32 * share;
            let z = a.z + dz * t;
            for q in from.max(crosswise.start)..to.min(crosswise.end) {
                let (px, py) = if flat { (at, q) } else { (q, at) };
                let i = (py as usize - top) * width + px as usize;
                if z < depth[i] {
                    depth[i] = z;
                    seen[i] = (number, t);
                }
            }
        }
        along += pace;
        across += slope;
        half += swell;
    }
}

#[cfg(test)]
mod tests {
    use glam::vec3;

    use super::*;
    use crate::character::Character;
    use crate::pose::{Head, Pose};

    #[test]
    fn tips_of_long_hair_sway_against_the_roll_of_the_head_and_the_rest_turns_with_it() {
        let strand = Strand {
            points: vec![vec3(0.6, 0.4, -0.2), vec3(0.6, -0.5, -0.2), vec3(0.6, -1.8, -0.2)],
            width: 0.005,
            tip: 0.1,
            colour: Vec3::ONE,
            shine: 1.0,
            tilt: 0.0,
            root_light: 1.0,
            skin_normal: None,
        };
        for roll in [-0.04_f32, 0.04] {
            let pose = Pose { head: Head { roll, ..Head::default() }, ..Pose::default() };
            let scene = Scene::new(&Character::default(), &pose);
            for i in 0..2 {
                assert_eq!(strand.place(&scene, i), scene.to_world(strand.points[i]));
            }
            let tip = strand.points[2];
            let (rigid, swayed) =
                (scene.to_world(tip).x - tip.x, strand.place(&scene, 2).x - tip.x);
            // A roll to one side moves what is below the pivot to the other.
            assert!(rigid * roll > 0.02 * roll.abs(), "{rigid}");
            assert!(swayed * rigid < 0.0 && swayed.abs() < rigid.abs(), "{swayed} and {rigid}");
        }
        let fixed = Strand { skin_normal: Some(Vec3::Z), ..strand };
        let pose = Pose { head: Head { roll: 0.04, ..Head::default() }, ..Pose::default() };
        let scene = Scene::new(&Character::default(), &pose);
        assert_eq!(fixed.place(&scene, 2), scene.to_world(fixed.points[2]));
    }
}
