//! Hairs, and how they are drawn: opaque lines into a finer z-buffer.

use glam::Vec3;
use rayon::prelude::*;

use crate::camera::Camera;
use crate::math::mix;
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
    /// For brows, lashes and beard the normal of the skin they grow on; `None` for the hair of the head.
    pub(crate) skin: Option<Vec3>,
}

/// Samples a pixel's side.
pub(crate) const FINE: usize = 4;

/// A z-buffer of hair, [`FINE`] × [`FINE`] samples a pixel, of a part of the picture.
#[derive(Clone)]
pub(crate) struct Layer {
    /// First sample's column and row in the whole picture.
    x0: usize,
    y0: usize,
    width: usize,
    depth: Vec<f32>,
    colour: Vec<Vec3>,
}

/// A vertex on the screen: position in samples, depth, width in samples, colour.
type Vertex = (f32, f32, f32, f32, Vec3);

/// Rows of a layer that one task draws. Fixed, so that the result does not depend on the number of threads.
const BAND: usize = 64;

impl Layer {
    /// No hair, over the pixels `x0..x1 × y0..y1`.
    pub(crate) fn new([x0, y0, x1, y1]: [usize; 4]) -> Self {
        let (width, height) = ((x1 - x0) * FINE, (y1 - y0) * FINE);
        Self {
            x0: x0 * FINE,
            y0: y0 * FINE,
            width,
            depth: vec![f32::MAX; width * height],
            colour: vec![Vec3::ZERO; width * height],
        }
    }

    /// The part of this layer over some pixels.
    pub(crate) fn cut(&self, rect: [usize; 4]) -> Self {
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

    /// Depth and colour of sample (u, v) of pixel (x, y).
    pub(crate) fn at(&self, x: usize, y: usize, u: usize, v: usize) -> (f32, Vec3) {
        let i = (y * FINE + v - self.y0) * self.width + x * FINE + u - self.x0;
        (self.depth[i], self.colour[i])
    }

    /// Draws strands; `shade` gives the colour at a vertex (world position, tangent, share of the length).
    pub(crate) fn draw(
        &mut self,
        strands: &[&Strand],
        camera: &Camera,
        scene: &Scene,
        shade: impl Fn(&Strand, Vec3, Vec3, f32) -> Vec3 + Sync,
    ) {
        let (x0, y0) = (self.x0 as f32, self.y0 as f32);
        let lines: Vec<Vec<Vertex>> = strands
            .par_iter()
            .map(|strand| {
                let n = strand.points.len();
                (0..n)
                    .map(|i| {
                        let t = i as f32 / (n - 1) as f32;
                        let along = strand.points[(i + 1).min(n - 1)] - strand.points[i.max(1) - 1];
                        let p = scene.to_world(strand.points[i]);
                        let tangent = scene.turn * along.normalize_or_zero();
                        let (x, y, z) = camera.project(p);
                        let width =
                            strand.width * mix(1.0, strand.tip, t * t) * camera.scale(z) * FINE as f32;
                        let colour = shade(strand, p, tangent, t);
                        (x * FINE as f32 - x0, y * FINE as f32 - y0, z, width, colour)
                    })
                    .collect()
            })
            .collect();
        let width = self.width;
        let bands = self.depth.par_chunks_mut(width * BAND).zip(self.colour.par_chunks_mut(width * BAND));
        bands.enumerate().for_each(|(band, (depth, colour))| {
            let top = band * BAND;
            let bottom = top + depth.len() / width;
            for line in &lines {
                for pair in line.windows(2) {
                    draw_segment(pair[0], pair[1], [top, bottom], width, depth, colour);
                }
            }
        });
    }
}

/// Steps along the longer axis and fills the width across it.
fn draw_segment(
    a: Vertex,
    b: Vertex,
    [top, bottom]: [usize; 2],
    width: usize,
    depth: &mut [f32],
    colour: &mut [Vec3],
) {
    let pad = a.3.max(1.0) + 1.0;
    if a.1.max(b.1) + pad < top as f32 || a.1.min(b.1) - pad > bottom as f32 {
        return;
    }
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let flat = dx.abs() > dy.abs();
    let steps = dx.abs().max(dy.abs()).ceil().max(1.0);
    for k in 0..steps as usize {
        let t = k as f32 / steps;
        let (x, y, z) = (a.0 + dx * t, a.1 + dy * t, mix(a.2, b.2, t));
        let wide = mix(a.3, b.3, t).max(0.6);
        let across = if flat { y } else { x };
        let from = (across - wide * 0.5).round() as i32;
        let to = ((across + wide * 0.5).round() as i32).max(from + 1);
        for q in from..to {
            let (px, py) = if flat { (x.floor() as i32, q) } else { (q, y.floor() as i32) };
            if px < 0 || px >= width as i32 || py < top as i32 || py >= bottom as i32 {
                continue;
            }
            let i = (py as usize - top) * width + px as usize;
            if z < depth[i] {
                depth[i] = z;
                colour[i] = a.4.lerp(b.4, t);
            }
        }
    }
}
