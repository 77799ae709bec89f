//! From what a face wants to show to the frame that shows it best.

use std::sync::Arc;

use bytes::Bytes;

use models::face::{Brows, Eyes, Head, Key, Look, Mouth, PoseSet};

/// A person's poses, and how to find the nearest. One for each call; the frames are shared.
pub struct PoseCache {
    set: Arc<PoseSet>,
    /// Looks that are baked with every mouth: the only ones while lips move, lest the eyes flicker with the lips.
    talking: Vec<u8>,
    mean_bytes: f64,
}

impl PoseCache {
    /// Over a set.
    #[must_use]
    pub fn new(set: Arc<PoseSet>) -> Self {
        let manifest = set.manifest();
        let (looks, mouths) = (manifest.looks.len(), manifest.mouths.len());
        let baked = |look: usize| {
            (0..mouths).all(|mouth| {
                let key = Key { head: 0, look: look as u8, mouth: mouth as u8 };
                manifest.frames.iter().any(|(k, _)| *k == key)
            })
        };
        let talking: Vec<u8> = (0..looks).filter(|look| baked(*look)).map(|look| look as u8).collect();
        let talking = if talking.is_empty() { vec![0] } else { talking };
        let spoken = manifest.frames.iter().filter(|(k, _)| k.mouth != 0).map(|(_, n)| f64::from(*n));
        let (count, sum) = spoken.fold((0.0, 0.0), |(n, sum), bytes| (n + 1.0, sum + bytes));
        Self { talking, mean_bytes: if count > 0.0 { sum / count } else { 0.0 }, set }
    }

    /// The key frame: rest.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        self.set.key()
    }

    /// The number of the frame nearest to this pose. Two equal numbers are one picture. `speaking` confines the eyes to what is baked with
    /// every mouth.
    #[must_use]
    pub fn nearest(&self, head: Head, look: Look, mouth: Mouth, speaking: bool) -> u16 {
        let mouth = self.nearest_mouth(mouth);
        let head = if mouth == 0 { self.nearest_head(head) } else { 0 };
        self.set.index(Key { head, look: self.nearest_look(look, speaking || mouth != 0), mouth })
    }

    /// A frame by its number.
    #[must_use]
    pub fn frame(&self, index: u16) -> &Bytes {
        self.set.frame(index)
    }

    /// Mean length of a frame with moving lips, in bytes.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        self.mean_bytes
    }

    /// The baked mouth that looks most like `mouth`. A closure is answered by a closure.
    #[must_use]
    pub fn nearest_mouth(&self, mouth: Mouth) -> u8 {
        let mouths = &self.set.manifest().mouths;
        let closure = |m: &Mouth| (m.press > 0.7, m.tuck > 0.7);
        let distance = |m: &Mouth| {
            let misses = if closure(m) == closure(&mouth) { 0.0 } else { 10.0 };
            let d = |a: f32, b: f32, weight: f32| (a - b) * (a - b) * weight;
            // The tongue shows in an open mouth only.
            misses
                + d(m.jaw, mouth.jaw, 2.0)
                + d(m.width, mouth.width, 0.3)
                + d(m.round, mouth.round, 0.7)
                + d(m.press, mouth.press, 1.0)
                + d(m.tuck, mouth.tuck, 0.8)
                + d(m.tongue, mouth.tongue, 0.25 * (mouth.jaw * 3.0).min(1.0))
        };
        nearest(mouths.iter().map(distance))
    }

    fn nearest_look(&self, look: Look, talking: bool) -> u8 {
        let looks = &self.set.manifest().looks;
        let distance = |l: &Look| {
            let (a, b): (&Eyes, &Eyes) = (&l.eyes, &look.eyes);
            let (c, d): (&Brows, &Brows) = (&l.brows, &look.brows);
            3.0 * (a.lids - b.lids).powi(2)
                + (a.squint - b.squint).powi(2)
                // A closed eye looks nowhere.
                + ((a.gaze_x - b.gaze_x).powi(2) + (a.gaze_y - b.gaze_y).powi(2)) * 4.0 * (1.0 - b.lids).max(0.02)
                + 0.5 * ((c.raise - d.raise).powi(2) + (c.knit - d.knit).powi(2))
        };
        if talking {
            self.talking[usize::from(nearest(self.talking.iter().map(|&i| distance(&looks[usize::from(i)]))))]
        } else {
            nearest(looks.iter().map(distance))
        }
    }

    fn nearest_head(&self, head: Head) -> u8 {
        nearest(self.set.manifest().heads.iter().map(|h| {
            (h.yaw - head.yaw).powi(2) + (h.pitch - head.pitch).powi(2) + (h.roll - head.roll).powi(2)
        }))
    }
}

/// Index of the least distance; the first of equals.
fn nearest(distances: impl Iterator<Item = f32>) -> u8 {
    let mut best = (f32::INFINITY, 0);
    for (i, distance) in distances.enumerate() {
        if distance < best.0 {
            best = (distance, i as u8);
        }
    }
    best.1
}
