//! How far the head of an avatar moves in pictures. Used by `engine/tests/motion.rs` and
//! `engine/examples/motion.rs`.
#![allow(dead_code, reason = "each user takes its part")]

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use models::face::picture::I420;
use models::face::vp8::Decoder;
use models::face::{Brows, PoseId, PoseSet, Rect};

/// Pixels of a displacement are those of a picture with this height.
const REFERENCE_HEIGHT: f32 = 512.0;
/// Maximum displacement in each direction, in pixels of a picture of [`REFERENCE_HEIGHT`].
const MAX_DISPLACEMENT: f32 = 24.0;
/// Edges of the hair and of the forehead above the middle of the eyes, as fractions of the distance
/// between the outer corners of the eyes: the top of flat hair, the hairline, raised brows.
const CROWN_EDGES: [f32; 3] = [1.15, 0.75, 0.34];
/// Change of luma by which a shut lid is found.
const LID_CHANGE: u8 = 24;

/// Displacement of an avatar's crown, in pixels of a picture of [`REFERENCE_HEIGHT`].
///
/// The crown consists of two rectangles of the picture at rest, as wide as the eyes: the hair and
/// the forehead with the hairline, between the three [`CROWN_EDGES`]. The displacement of each is
/// the translation with the highest normalized cross-correlation of luma between the picture at rest
/// and another picture, with the vertex of a parabola through the neighbors of the best whole pixel.
/// The displacement of the crown is the mean of both. When the head turns or nods, the forehead
/// moves farther than the outline of the hair; in one rectangle, only the one with more contrast
/// would count. Lids, lips and brows do not move the crown.
pub(crate) struct Crown {
    patches: [Patch; 2],
    /// Factor from pixels to those of [`REFERENCE_HEIGHT`].
    scale: f32,
    /// Displacements of earlier pictures, by a hash of the area around the crown.
    known: HashMap<u64, [f32; 2]>,
}

impl Crown {
    /// The crown of the avatar of a pose set, which has a look with shut lids.
    pub(crate) fn of_set(set: &PoseSet) -> Self {
        let manifest = set.manifest();
        let is_shut = |at: &usize| {
            let look = &manifest.looks[*at];
            look.eyes.lids == 1.0 && look.brows == Brows::default()
        };
        let look = (0..manifest.looks.len()).find(is_shut).expect("a look with shut lids") as u8;
        let mut decoder = Decoder::new(manifest.width as usize, manifest.height as usize).unwrap();
        decoder.decode(set.key_frame()).unwrap();
        let [rest, blink] = [PoseId::default(), PoseId { look, ..PoseId::default() }]
            .map(|id| decoder.decode(set.frame(set.frame_index(id), 0)).unwrap());
        Self::above_eyes(&rest, changed_area(&rest, &blink))
    }

    /// The crown above eyes whose lids fill a rectangle.
    pub(crate) fn above_eyes(rest: &I420, eyes: Rect) -> Self {
        let scale = REFERENCE_HEIGHT / rest.height() as f32;
        let reach = (MAX_DISPLACEMENT / scale).ceil() as usize;
        let (width, middle) = ((eyes.x1 - eyes.x0) as f32, (eyes.y0 + eyes.y1) as f32 / 2.0);
        // All displaced rectangles are inside the picture.
        let edge = |edge: f32| ((middle - edge * width).max(0.0) as usize).max(reach);
        let (x0, x1) = (eyes.x0.max(reach), eyes.x1.min(rest.width() - reach));
        let [top, hairline, brows] = CROWN_EDGES.map(edge);
        let patch = |y0, y1| Patch::new(rest, Rect { x0, y0, x1, y1 }, reach as i32);
        let patches = [patch(top, hairline), patch(hairline, brows)];
        Self { patches, scale, known: HashMap::new() }
    }

    /// Displacement to the right and down.
    pub(crate) fn displacement(&mut self, picture: &I420) -> [f32; 2] {
        let mut hasher = DefaultHasher::new();
        for patch in &self.patches {
            patch.searched_rows(picture).for_each(|row| row.hash(&mut hasher));
        }
        *self.known.entry(hasher.finish()).or_insert_with(|| {
            let [a, b] = self.patches.each_ref().map(|patch| patch.displacement(picture));
            [0, 1].map(|axis| (a[axis] + b[axis]) / 2.0 * self.scale)
        })
    }
}

/// A part of the picture at rest.
struct Patch {
    area: Rect,
    /// Its luma, row by row.
    template: Vec<u8>,
    /// Maximum displacement in pixels.
    reach: i32,
}

impl Patch {
    fn new(rest: &I420, area: Rect, reach: i32) -> Self {
        let template = pixels(area).map(|(x, y)| rest.luma(x, y)).collect();
        Self { area, template, reach }
    }

    /// The rows of all displaced patches.
    fn searched_rows<'a>(&self, picture: &'a I420) -> impl Iterator<Item = &'a [u8]> {
        let (area, reach) = (self.area, self.reach as usize);
        let rows = area.y0 - reach..area.y1 + reach;
        rows.map(move |y| {
            let start = y * picture.width();
            &picture.bytes()[start + area.x0 - reach..start + area.x1 + reach]
        })
    }

    /// Displacement in pixels.
    fn displacement(&self, picture: &I420) -> [f32; 2] {
        let best = |places: &mut dyn Iterator<Item = (i32, i32)>, pixels: usize| {
            places
                .map(|at| (self.similarity(picture, at, pixels), at))
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .unwrap_or_default()
                .1
        };
        // The correlation is smooth: every second place and every third pixel of the patch are
        // enough to come near its maximum.
        let side = || (-self.reach..=self.reach).step_by(2);
        let (near_x, near_y) = best(&mut side().flat_map(|y| side().map(move |x| (x, y))), 3);
        let around = |near: i32| (near - 2).max(-self.reach)..=(near + 2).min(self.reach);
        let mut places = around(near_y).flat_map(|y| around(near_x).map(move |x| (x, y)));
        let (x, y) = best(&mut places, 1);
        if x.abs() == self.reach || y.abs() == self.reach {
            return [x as f32, y as f32];
        }
        let at = |dx, dy| self.similarity(picture, (x + dx, y + dy), 1);
        let middle = at(0, 0);
        [
            x as f32 + vertex(at(-1, 0), middle, at(1, 0)),
            y as f32 + vertex(at(0, -1), middle, at(0, 1)),
        ]
    }

    /// Normalized cross-correlation, -1 to 1, of the displaced patch, on every `step`th pixel of
    /// its rows and columns.
    fn similarity(&self, picture: &I420, (dx, dy): (i32, i32), step: usize) -> f64 {
        let width = self.area.x1 - self.area.x0;
        let left = (self.area.x0 as i32 + dx) as usize;
        // Number of pixels; sums of a, b, a², b² and ab of all pairs of luma.
        let mut sums = [0_u64; 6];
        let rows = (self.area.y0..self.area.y1).zip(self.template.chunks_exact(width));
        for (y, template) in rows.step_by(step) {
            let start = (y as i32 + dy) as usize * picture.width() + left;
            let luma = &picture.bytes()[start..start + width];
            let mut row = [0_u32; 6];
            for (a, b) in template.iter().zip(luma).step_by(step) {
                let (a, b) = (u32::from(*a), u32::from(*b));
                for (sum, term) in row.iter_mut().zip([1, a, b, a * a, b * b, a * b]) {
                    *sum += term;
                }
            }
            for (sum, row) in sums.iter_mut().zip(row) {
                *sum += u64::from(row);
            }
        }
        let [n, a, b, aa, bb, ab] = sums.map(|sum| sum as f64);
        (n * ab - a * b) / ((n * aa - a * a) * (n * bb - b * b)).sqrt().max(1.0)
    }
}

fn pixels(rect: Rect) -> impl Iterator<Item = (usize, usize)> {
    (rect.y0..rect.y1).flat_map(move |y| (rect.x0..rect.x1).map(move |x| (x, y)))
}

/// The vertex of the parabola through three points at -1, 0 and 1, of which the middle one is the
/// highest.
fn vertex(before: f64, middle: f64, after: f64) -> f32 {
    let curvature = before - 2.0 * middle + after;
    if curvature < 0.0 { (0.5 * (before - after) / curvature).clamp(-0.5, 0.5) as f32 } else { 0.0 }
}

/// The smallest rectangle that contains 98 % of the pixels that differ.
fn changed_area(a: &I420, b: &I420) -> Rect {
    let changed: Vec<(usize, usize)> = pixels(Rect::whole(a.width(), a.height()))
        .filter(|(x, y)| a.luma(*x, *y).abs_diff(b.luma(*x, *y)) > LID_CHANGE)
        .collect();
    assert!(!changed.is_empty(), "shut lids differ from open ones");
    let edges = |mut values: Vec<usize>| {
        values.sort_unstable();
        let margin = values.len() / 100;
        (values[margin], values[values.len() - 1 - margin] + 1)
    };
    let (x0, x1) = edges(changed.iter().map(|(x, _)| *x).collect());
    let (y0, y1) = edges(changed.iter().map(|(_, y)| *y).collect());
    Rect { x0, y0, x1, y1 }
}

/// The largest distance between two displacements.
pub(crate) fn range(displacements: &[[f32; 2]]) -> f32 {
    let pairs = displacements.iter().enumerate().flat_map(|(n, a)| {
        displacements[n + 1..].iter().map(move |b| (a[0] - b[0]).hypot(a[1] - b[1]))
    });
    pairs.fold(0.0, f32::max)
}

/// The largest distance between two consecutive displacements.
pub(crate) fn largest_jump(displacements: &[[f32; 2]]) -> f32 {
    displacements.windows(2).map(range).fold(0.0, f32::max)
}

/// The share of whole seconds within which the range is at least one pixel. `displacements`:
/// one of each picture, `frame_rate` of them a second.
pub(crate) fn moving_share(displacements: &[[f32; 2]], frame_rate: usize) -> f32 {
    let seconds = displacements.chunks_exact(frame_rate);
    let count = seconds.len();
    seconds.filter(|second| range(second) >= 1.0).count() as f32 / count as f32
}
