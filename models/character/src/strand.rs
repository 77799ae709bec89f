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

/// A vertex on the screen: position in samples, depth, width in samples.
#[derive(Clone, Copy)]
struct Vertex {
    x: f32,
    y: f32,
    z: f32,
    width: f32,
}

/// What a sample shows: a segment (the number of its first vertex plus one; 0: none of these strands) and how far along it.
type Seen = (u32, f32);

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

    /// Depth of the farthest hair in a pixel; more than any surface's where a sample has none.
    pub(crate) fn farthest(&self, x: usize, y: usize) -> f32 {
        let mut far = 0.0f32;
        for v in 0..FINE {
            let i = (y * FINE + v - self.y0) * self.width + x * FINE - self.x0;
            far = self.depth[i..i + FINE].iter().fold(far, |a, b| a.max(*b));
        }
        far
    }

    /// Draws strands; `shade` gives the colour at a vertex (world position, tangent, share of the length). It is asked for vertices that
    /// are seen only: first every segment is drawn by number, then those that are left are shaded.
    pub(crate) fn draw(
        &mut self,
        strands: &[&Strand],
        camera: &Camera,
        scene: &Scene,
        shade: impl Fn(&Strand, Vec3, Vec3, f32) -> Vec3 + Sync,
    ) {
        let (x0, y0) = (self.x0 as f32, self.y0 as f32);
        let project = |strand: &Strand, i: usize| {
            let t = i as f32 / (strand.points.len() - 1) as f32;
            let (x, y, z) = camera.project(scene.to_world(strand.points[i]));
            let width = strand.width * mix(1.0, strand.tip, t * t) * camera.scale(z) * FINE as f32;
            Vertex { x: x * FINE as f32 - x0, y: y * FINE as f32 - y0, z, width }
        };
        let lines: Vec<Vec<Vertex>> =
            strands.par_iter().map(|s| (0..s.points.len()).map(|i| project(s, i)).collect()).collect();
        let mut first = Vec::with_capacity(lines.len());
        let mut vertices = 0u32;
        for line in &lines {
            first.push(vertices);
            vertices += line.len() as u32;
        }
        // Top and bottom of each strand, to pass over those of other bands.
        let spans: Vec<(f32, f32)> = lines
            .iter()
            .map(|line| {
                let span = |(top, bottom): (f32, f32), v: &Vertex| {
                    let pad = v.width.max(1.0) + 1.0;
                    (top.min(v.y - pad), bottom.max(v.y + pad))
                };
                line.iter().fold((f32::MAX, f32::MIN), span)
            })
            .collect();

        let width = self.width;
        let mut seen: Vec<Seen> = vec![(0, 0.0); self.depth.len()];
        let bands = self.depth.par_chunks_mut(width * BAND).zip(seen.par_chunks_mut(width * BAND));
        bands.enumerate().for_each(|(band, (depth, seen))| {
            let top = band * BAND;
            let bottom = top + depth.len() / width;
            for ((line, first), span) in lines.iter().zip(&first).zip(&spans) {
                if span.1 < top as f32 || span.0 > bottom as f32 {
                    continue;
                }
                for (i, pair) in line.windows(2).enumerate() {
                    let number = first + i as u32 + 1;
                    draw_segment(pair[0], pair[1], [top, bottom], width, depth, seen, number);
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
        let colours: Vec<Vec<Vec3>> = strands
            .par_iter()
            .zip(&first)
            .map(|(strand, first)| {
                let n = strand.points.len();
                let wanted = &wanted[*first as usize..*first as usize + n];
                if !wanted.contains(&true) {
                    return Vec::new();
                }
                let colour = |i: usize| {
                    if !wanted[i] {
                        return Vec3::ZERO;
                    }
                    let along = strand.points[(i + 1).min(n - 1)] - strand.points[i.max(1) - 1];
                    let tangent = scene.turn * along.normalize_or_zero();
                    let p = scene.to_world(strand.points[i]);
                    shade(strand, p, tangent, i as f32 / (n - 1) as f32).min(Vec3::splat(3.0))
                };
                (0..n).map(colour).collect()
            })
            .collect();
        self.colour.par_iter_mut().zip(&seen).for_each(|(colour, (number, along))| {
            if *number > 0 {
                let vertex = number - 1;
                let strand = first.partition_point(|f| *f <= vertex) - 1;
                let i = (vertex - first[strand]) as usize;
                *colour = colours[strand][i].lerp(colours[strand][i + 1], *along);
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
    seen: &mut [Seen],
    number: u32,
) {
    let pad = a.width.max(1.0) + 1.0;
    if a.y.max(b.y) + pad < top as f32
        || a.y.min(b.y) - pad > bottom as f32
        || a.x.max(b.x) + pad < 0.0
        || a.x.min(b.x) - pad > width as f32
    {
        return;
    }
    let (dx, dy) = (b.x - a.x, b.y - a.y);
    let flat = dx.abs() > dy.abs();
    let steps = dx.abs().max(dy.abs()).ceil().max(1.0);
    // Rounding by a cast is far quicker than by a call; the offset keeps it away from negative numbers.
    let round = |v: f32| (v + 4096.5) as i32 - 4096;
    for k in 0..steps as usize {
        let t = k as f32 / steps;
        let (x, y, z) = (a.x + dx * t, a.y + dy * t, mix(a.z, b.z, t));
        let wide = mix(a.width, b.width, t).max(0.6);
        let across = if flat { y } else { x };
        let from = round(across - wide * 0.5);
        let to = round(across + wide * 0.5).max(from + 1);
        for q in from..to {
            let (px, py) = if flat { (round(x - 0.5), q) } else { (q, round(y - 0.5)) };
            if px < 0 || px >= width as i32 || py < top as i32 || py >= bottom as i32 {
                continue;
            }
            let i = (py as usize - top) * width + px as usize;
            if z < depth[i] {
                depth[i] = z;
                seen[i] = (number, t);
            }
        }
    }
}
