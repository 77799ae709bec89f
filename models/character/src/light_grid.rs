//! How much of each light arrives through the hair: a coarse grid in head space, one sweep for each light and twelve for the sky.
//!
//! Built from the rest pose once, so that hair does not flicker with the jaw.

use glam::{Vec3, Vec4, vec3, vec4};
use rayon::prelude::*;

use crate::math::mix;
use crate::scene::Scene;
use crate::strand::Strand;

/// Side of a cell, in units.
const CELL: f32 = 0.034;
/// Directions of the sky.
const SKY: usize = 12;

pub(crate) struct LightGrid {
    n: [usize; 3],
    low: Vec3,
    /// What passes the hair, and what passes hair and head.
    pub(crate) hair: Field,
    pub(crate) all: Field,
}

/// For each cell the share that arrives of each light, and of the sky.
pub(crate) struct Field {
    lights: Vec<Vec4>,
    sky: Vec<f32>,
}

impl LightGrid {
    /// `lights` are directions in the world.
    pub(crate) fn new(scene: &Scene, strands: &[Strand], lights: &[Vec3; 4]) -> Self {
        let (mut low, mut high) = (Vec3::splat(9.0), Vec3::splat(-9.0));
        for p in strands.iter().flat_map(|s| &s.points) {
            (low, high) = (low.min(*p), high.max(*p));
        }
        low -= Vec3::splat(0.35);
        high += Vec3::splat(0.35);
        let cells = (high - low) / CELL;
        let n = [cells.x as usize + 2, cells.y as usize + 2, cells.z as usize + 2];
        let none = || Field { lights: Vec::new(), sky: Vec::new() };
        let mut grid = Self { n, low, hair: none(), all: none() };
        let hair = grid.density(strands);
        let all: Vec<f32> = hair
            .par_iter()
            .enumerate()
            .map(|(i, d)| {
                let cell = vec3((i % n[0]) as f32, (i / n[0] % n[1]) as f32, (i / n[0] / n[1]) as f32);
                d + if scene.is_solid(low + cell * CELL) { 60.0 } else { 0.0 }
            })
            .collect();
        let directions = lights.map(|l| scene.unturn * l);
        grid.hair = grid.field(&hair, &directions);
        grid.all = grid.field(&all, &directions);
        grid
    }

    fn field(&self, density: &[f32], lights: &[Vec3; 4]) -> Field {
        let sweeps: Vec<Vec<f32>> = lights.par_iter().map(|l| self.sweep(density, *l)).collect();
        let lights = (0..density.len())
            .map(|i| vec4(sweeps[0][i], sweeps[1][i], sweeps[2][i], sweeps[3][i]))
            .collect();
        Field { lights, sky: self.sky(density) }
    }

    /// Hair's projected area in a cell's volume.
    fn density(&self, strands: &[Strand]) -> Vec<f32> {
        let n = self.n;
        let mut density = vec![0.0f32; n[0] * n[1] * n[2]];
        for strand in strands {
            for pair in strand.points.windows(2) {
                let middle = ((pair[0] + pair[1]) * 0.5 - self.low) / CELL;
                let area = strand.width * (pair[1] - pair[0]).length();
                let floor = middle.floor();
                let f = middle - floor;
                let at = [floor.x as usize, floor.y as usize, floor.z as usize];
                for corner in 0..8 {
                    let (a, b, c) = (corner & 1, corner >> 1 & 1, corner >> 2);
                    let share = |bit: usize, f: f32| if bit == 1 { f } else { 1.0 - f };
                    let cell = ((at[2] + c) * n[1] + at[1] + b) * n[0] + at[0] + a;
                    density[cell] += area * share(a, f.x) * share(b, f.y) * share(c, f.z);
                }
            }
        }
        for d in &mut density {
            *d = *d / (CELL * CELL * CELL) * 0.75;
        }
        density
    }

    fn sky(&self, density: &[f32]) -> Vec<f32> {
        let directions: Vec<Vec3> = (0..SKY)
            .map(|i| {
                let y = 1.0 - (i as f32 + 0.5) / SKY as f32 * 1.5;
                let angle = i as f32 * 2.399_96; // the golden angle
                let r = (1.0 - y * y).sqrt();
                vec3(angle.cos() * r, y, angle.sin() * r)
            })
            .collect();
        let sweeps: Vec<Vec<f32>> = directions.par_iter().map(|l| self.sweep(density, *l)).collect();
        (0..density.len()).map(|i| sweeps.iter().map(|s| s[i]).sum::<f32>() / SKY as f32).collect()
    }

    /// What arrives at each cell from direction `l`: slice by slice along the longest axis, from the light on.
    fn sweep(&self, density: &[f32], l: Vec3) -> Vec<f32> {
        let n = self.n;
        let stride = [1, n[0], n[0] * n[1]];
        let l = l.to_array();
        let a = l.map(f32::abs);
        let axis = if a[0] >= a[1] && a[0] >= a[2] {
            0
        } else if a[1] >= a[2] {
            1
        } else {
            2
        };
        let (u, w) = ((axis + 1) % 3, (axis + 2) % 3);
        let k = 1.0 / a[axis];
        let (du, dw, length) = (l[u] * k, l[w] * k, CELL * k);
        // The same steps aside for all cells.
        let (su, sw) = (du.floor() as i32, dw.floor() as i32);
        let (ru, rw) = (du - du.floor(), dw - dw.floor());
        // What a cell lets through.
        let clear: Vec<f32> =
            density.iter().map(|d| if *d == 0.0 { 1.0 } else { (-d * length).exp() }).collect();
        let mut light = vec![1.0f32; density.len()];
        for i in 1..n[axis] {
            let (cur, prev) = if l[axis] > 0.0 { (n[axis] - 1 - i, n[axis] - i) } else { (i, i - 1) };
            for j in 0..n[w] {
                for h in 0..n[u] {
                    let (iu, iw) = (h as i32 + su, j as i32 + sw);
                    let passed = |x: i32, y: i32| {
                        if x < 0 || y < 0 || x >= n[u] as i32 || y >= n[w] as i32 {
                            return 1.0;
                        }
                        let q = prev * stride[axis] + x as usize * stride[u] + y as usize * stride[w];
                        light[q] * clear[q]
                    };
                    let near = mix(passed(iu, iw), passed(iu + 1, iw), ru);
                    let far = mix(passed(iu, iw + 1), passed(iu + 1, iw + 1), ru);
                    light[cur * stride[axis] + h * stride[u] + j * stride[w]] = mix(near, far, rw);
                }
            }
        }
        light
    }

    /// One of the fields at a point of head space: the lights, and the sky. All arrives outside of the grid.
    pub(crate) fn at(&self, field: &Field, p: Vec3) -> (Vec4, f32) {
        let q = (p - self.low) / CELL;
        let n = self.n;
        let outside = |v: f32, n: usize| !(v >= 0.0 && v < (n - 1) as f32);
        if outside(q.x, n[0]) || outside(q.y, n[1]) || outside(q.z, n[2]) {
            return (Vec4::ONE, 1.0);
        }
        let cell = [q.x as usize, q.y as usize, q.z as usize];
        let r = q - vec3(cell[0] as f32, cell[1] as f32, cell[2] as f32);
        let i = (cell[2] * n[1] + cell[1]) * n[0] + cell[0];
        let (sy, sz) = (n[0], n[0] * n[1]);
        let l = &field.lights;
        let slice = |i: usize| l[i].lerp(l[i + 1], r.x).lerp(l[i + sy].lerp(l[i + sy + 1], r.x), r.y);
        let s = &field.sky;
        let sky = |i: usize| mix(mix(s[i], s[i + 1], r.x), mix(s[i + sy], s[i + sy + 1], r.x), r.y);
        (slice(i).lerp(slice(i + sz), r.z), mix(sky(i), sky(i + sz), r.z))
    }
}
