//! Transmittance of the hair for each light: a coarse grid in head space, with one sweep for each
//! light and twelve for the sky.
//!
//! It is computed once from the rest pose, so that hair does not flicker with the jaw.

use glam::{Vec3, Vec4, vec3, vec4};
use rayon::prelude::*;

use crate::math::mix;
use crate::scene::Scene;
use crate::strand::Strand;

/// Side of a cell, in units.
const CELL_SIZE: f32 = 0.034;
/// Number of directions of the sky.
const SKY_DIRECTIONS: usize = 12;

pub(crate) struct LightGrid {
    cell_counts: [usize; 3],
    origin: Vec3,
    /// Transmittance of the hair, and of hair and head.
    pub(crate) through_hair: Transmittance,
    pub(crate) through_hair_and_head: Transmittance,
}

/// For each cell, the share of each light and of the sky that arrives.
pub(crate) struct Transmittance {
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
        let cells = (high - low) / CELL_SIZE;
        let n = [cells.x as usize + 2, cells.y as usize + 2, cells.z as usize + 2];
        let none = || Transmittance { lights: Vec::new(), sky: Vec::new() };
        let mut grid = Self {
            cell_counts: n,
            origin: low,
            through_hair: none(),
            through_hair_and_head: none(),
        };
        let hair = grid.density(strands);
        let all: Vec<f32> = hair
            .par_iter()
            .enumerate()
            .map(|(i, d)| {
                let cell =
                    vec3((i % n[0]) as f32, (i / n[0] % n[1]) as f32, (i / n[0] / n[1]) as f32);
                d + if scene.is_inside_collider(low + cell * CELL_SIZE) { 60.0 } else { 0.0 }
            })
            .collect();
        let directions = lights.map(|l| scene.inverse_head_rotation * l);
        grid.through_hair = grid.transmittance(&hair, &directions);
        grid.through_hair_and_head = grid.transmittance(&all, &directions);
        grid
    }

    fn transmittance(&self, density: &[f32], lights: &[Vec3; 4]) -> Transmittance {
        let sweeps: Vec<Vec<f32>> = lights.par_iter().map(|l| self.sweep(density, *l)).collect();
        let lights = (0..density.len())
            .into_par_iter()
            .map(|i| vec4(sweeps[0][i], sweeps[1][i], sweeps[2][i], sweeps[3][i]))
            .collect();
        Transmittance { lights, sky: self.sky_transmittance(density) }
    }

    /// Projected area of the hair in a cell's volume.
    fn density(&self, strands: &[Strand]) -> Vec<f32> {
        // A fixed number of parts, so that the sum does not depend on the number of threads.
        let parts: Vec<Vec<f32>> = strands
            .par_chunks(strands.len().div_ceil(4).max(1))
            .map(|part| self.projected_area(part))
            .collect();
        let sum = |i: usize| parts.iter().map(|part| part[i]).sum::<f32>();
        let share = 0.75 / (CELL_SIZE * CELL_SIZE * CELL_SIZE);
        (0..self.cell_counts.iter().product()).into_par_iter().map(|i| sum(i) * share).collect()
    }

    /// Projected area of the hair in each cell.
    fn projected_area(&self, strands: &[Strand]) -> Vec<f32> {
        let n = self.cell_counts;
        let mut out = vec![0.0f32; n[0] * n[1] * n[2]];
        for strand in strands {
            for pair in strand.points.windows(2) {
                let middle = ((pair[0] + pair[1]) * 0.5 - self.origin) / CELL_SIZE;
                let area = strand.width * (pair[1] - pair[0]).length();
                // All coordinates in the grid are positive, so casts round down.
                let at = [middle.x as usize, middle.y as usize, middle.z as usize];
                let f = middle - vec3(at[0] as f32, at[1] as f32, at[2] as f32);
                for corner in 0..8 {
                    let (a, b, c) = (corner & 1, corner >> 1 & 1, corner >> 2);
                    let share = |bit: usize, f: f32| if bit == 1 { f } else { 1.0 - f };
                    let cell = ((at[2] + c) * n[1] + at[1] + b) * n[0] + at[0] + a;
                    out[cell] += area * share(a, f.x) * share(b, f.y) * share(c, f.z);
                }
            }
        }
        out
    }

    fn sky_transmittance(&self, density: &[f32]) -> Vec<f32> {
        let directions: Vec<Vec3> = (0..SKY_DIRECTIONS)
            .map(|i| {
                let y = 1.0 - (i as f32 + 0.5) / SKY_DIRECTIONS as f32 * 1.5;
                let angle = i as f32 * 2.399_96; // the golden angle
                let r = (1.0 - y * y).sqrt();
                vec3(angle.cos() * r, y, angle.sin() * r)
            })
            .collect();
        let sweeps: Vec<Vec<f32>> =
            directions.par_iter().map(|l| self.sweep(density, *l)).collect();
        let mean = |i: usize| sweeps.iter().map(|s| s[i]).sum::<f32>() / SKY_DIRECTIONS as f32;
        (0..density.len()).into_par_iter().map(mean).collect()
    }

    /// Light that arrives at each cell from direction `l`, computed slice by slice along the
    /// longest axis, starting at the light.
    fn sweep(&self, density: &[f32], l: Vec3) -> Vec<f32> {
        let n = self.cell_counts;
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
        // Rows run along the shorter stride.
        let (u, w) = [(1, 2), (0, 2), (0, 1)][axis];
        let k = 1.0 / a[axis];
        let (du, dw, length) = (l[u] * k, l[w] * k, CELL_SIZE * k);
        // The lateral offset is the same for all cells, and at most one whole cell.
        let (ru, rw) = (du - du.floor(), dw - dw.floor());
        let (su, sw) = ((du.floor() + 1.0) as usize, (dw.floor() + 1.0) as usize);
        let mut light = vec![1.0f32; density.len()];
        // Light that leaves a slice, with a border of full light; then the light that arrives at
        // the next one.
        let row = n[u] + 3;
        let mut leaves = vec![1.0f32; row * (n[w] + 3)];
        let slice = |i: usize| stride[axis] * if l[axis] > 0.0 { n[axis] - 1 - i } else { i };
        for i in 1..n[axis] {
            let (cur, prev) = (slice(i), slice(i - 1));
            for j in 0..n[w] {
                let to = &mut leaves[(j + 1) * row + 1..][..n[u]];
                for (h, to) in to.iter_mut().enumerate() {
                    let q = prev + h * stride[u] + j * stride[w];
                    let d = density[q];
                    *to = if d == 0.0 { light[q] } else { light[q] * (-d * length).exp() };
                }
            }
            for j in 0..n[w] {
                let near = &leaves[(j + sw) * row + su..][..n[u] + 1];
                let far = &leaves[(j + sw + 1) * row + su..][..n[u] + 1];
                let at = cur + j * stride[w];
                for (h, (near, far)) in near.windows(2).zip(far.windows(2)).enumerate() {
                    light[at + h * stride[u]] =
                        mix(mix(near[0], near[1], ru), mix(far[0], far[1], ru), rw);
                }
            }
        }
        light
    }

    /// Value of one transmittance at a point of head space: the lights, and the sky. Outside the
    /// grid all light arrives.
    pub(crate) fn sample(&self, field: &Transmittance, p: Vec3) -> (Vec4, f32) {
        let q = (p - self.origin) / CELL_SIZE;
        let n = self.cell_counts;
        let outside = |v: f32, n: usize| !(v >= 0.0 && v < (n - 1) as f32);
        if outside(q.x, n[0]) || outside(q.y, n[1]) || outside(q.z, n[2]) {
            return (Vec4::ONE, 1.0);
        }
        let cell = [q.x as usize, q.y as usize, q.z as usize];
        let r = q - vec3(cell[0] as f32, cell[1] as f32, cell[2] as f32);
        let i = (cell[2] * n[1] + cell[1]) * n[0] + cell[0];
        let (sy, sz) = (n[0], n[0] * n[1]);
        let l = &field.lights;
        let slice =
            |i: usize| l[i].lerp(l[i + 1], r.x).lerp(l[i + sy].lerp(l[i + sy + 1], r.x), r.y);
        let s = &field.sky;
        let sky = |i: usize| mix(mix(s[i], s[i + 1], r.x), mix(s[i + sy], s[i + sy + 1], r.x), r.y);
        (slice(i).lerp(slice(i + sz), r.z), mix(sky(i), sky(i + sz), r.z))
    }
}
