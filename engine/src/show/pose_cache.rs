//! From what a face wants to show to the frame that shows it best.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use models::face::{Brows, Eyes, Key, Look, Mouth, PoseSet, Stance};

use super::life::Manner;

/// What a whole smile is beside a radian of the head: half a smile counts as a degree.
const SMILE: f32 = 1.2e-3;

/// A person's poses, and how to find the nearest.
pub struct PoseCache {
    set: Arc<PoseSet>,
    /// A better set of the same person, once there is one. Written once by another thread; a face that looks takes no lock.
    better: OnceLock<Arc<PoseCache>>,
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
                let key = Key { look: look as u8, mouth: mouth as u8, ..Key::default() };
                manifest.frames.iter().any(|(k, _)| *k == key)
            })
        };
        let talking: Vec<u8> = (0..looks).filter(|look| baked(*look)).map(|look| look as u8).collect();
        let talking = if talking.is_empty() { vec![0] } else { talking };
        let finest = |lengths: &[u32]| lengths.first().map_or(0.0, |n| f64::from(*n));
        let spoken = manifest.frames.iter().filter(|(k, _)| k.mouth != 0).map(|(_, n)| finest(n));
        let (count, sum) = spoken.fold((0.0, 0.0), |(n, sum), bytes| (n + 1.0, sum + bytes));
        let mean_bytes = if count > 0.0 { sum / count } else { 0.0 };
        Self { talking, mean_bytes, set, better: OnceLock::new() }
    }

    /// Leads all who show this set to a better one of the same person. The first one that is named is it.
    pub fn lead_to(&self, better: Arc<Self>) {
        let _ = self.better.set(better);
    }

    /// The better set that this one was led to.
    #[must_use]
    pub fn better(&self) -> Option<&Arc<Self>> {
        self.better.get()
    }

    /// The set.
    #[must_use]
    pub fn set(&self) -> &Arc<PoseSet> {
        &self.set
    }

    /// The key frame: rest.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        self.set.key()
    }

    /// The second key, which anchored frames depend on.
    #[must_use]
    pub fn anchor(&self) -> &Bytes {
        self.set.anchor()
    }

    /// Whether a frame depends on the anchor.
    #[must_use]
    pub fn is_anchored(&self, index: u16) -> bool {
        self.set.is_anchored(index)
    }

    /// The number of the frame nearest to this pose. Two equal numbers are one picture. `speaking` confines the eyes to what is baked with
    /// every mouth.
    #[must_use]
    pub fn nearest(&self, manner: &Manner, mouth: Mouth, speaking: bool) -> u16 {
        self.set.index(self.key_of(manner, mouth, speaking))
    }

    /// The states nearest to this pose, baked together or not.
    fn key_of(&self, manner: &Manner, mouth: Mouth, speaking: bool) -> Key {
        let mouth = self.nearest_mouth(mouth);
        let look = self.nearest_look(manner.look, speaking || mouth != 0);
        if mouth != 0 {
            return Key { look, mouth, ..Key::default() };
        }
        let stance = self.nearest_stance(manner.stance);
        let breaths = &self.set.manifest().breaths;
        let breath = nearest(breaths.iter().map(|breath| (breath - manner.breath).abs()));
        Key { stance, look, mouth, breath }
    }

    /// A frame by its number, in a rung: 0 is the finest.
    #[must_use]
    pub fn frame(&self, index: u16, rung: usize) -> &Bytes {
        self.set.frame(index, rung)
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

    fn nearest_stance(&self, stance: Stance) -> u8 {
        nearest(self.set.manifest().stances.iter().map(|s| {
            let (a, b) = (&s.head, &stance.head);
            let head = (a.yaw - b.yaw).powi(2) + (a.pitch - b.pitch).powi(2) + (a.roll - b.roll).powi(2);
            head + SMILE * (s.smile - stance.smile).powi(2)
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

#[cfg(test)]
mod tests {
    use conversation::event::AgentState;
    use conversation::time::Time;
    use models::face::bake::Plan;
    use models::face::set::Manifest;

    use super::*;
    use crate::show::life::Life;
    use crate::show::pose::Viseme;

    /// All poses that are baked today, each one byte.
    fn cache() -> PoseCache {
        let Plan { stances, looks, mouths, breaths, anchored, .. } = Plan::new();
        let keys = Plan::new().keys();
        let manifest = Manifest {
            quantizers: vec![8, 30],
            anchored,
            stances,
            looks,
            mouths,
            breaths,
            frames: keys.iter().map(|key| (*key, Vec::new())).collect(),
            ..Manifest::default()
        };
        let frames = vec![Bytes::from_static(b"x"); keys.len()];
        let (key, anchor) = (Bytes::from_static(b"key"), Bytes::from_static(b"anchor"));
        PoseCache::new(Arc::new(PoseSet::new(manifest, key, anchor, frames).unwrap()))
    }

    /// How far apart two pictures are: in quarters of the lean, thirds of a nod, halves of a smile and fifths of a breath.
    fn jump(cache: &PoseCache, a: Key, b: Key) -> [f32; 4] {
        let stances = &cache.set.manifest().stances;
        let measures = |key: Key| {
            let Stance { head, smile } = stances[usize::from(key.stance)];
            let lean = head.roll / models::face::plan::LISTENING.roll;
            let nod =
                (head.pitch - lean * models::face::plan::LISTENING.pitch) / models::face::plan::NOD_DEPTH;
            [lean * 4.0, nod * 3.0, smile * 2.0, f32::from(key.breath)]
        };
        let (a, b) = (measures(a), measures(b));
        std::array::from_fn(|i| (a[i] - b[i]).abs())
    }

    #[test]
    fn whatever_happens_only_what_is_baked_is_asked_for_and_nothing_jumps() {
        let cache = cache();
        let states = [AgentState::Listening, AgentState::Thinking, AgentState::Speaking];
        let mut random = 1u32;
        let mut one_in = |n: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8).is_multiple_of(n)
        };
        let mut seen = std::collections::HashSet::new();
        for (seed, hurry) in (0..40).flat_map(|seed| [25, 150].map(|hurry| (seed, hurry))) {
            let mut life = Life::new(seed);
            let mut last = Key::default();
            let mut state = 0;
            for n in 0..25 * 120u64 {
                let now = Time::from_micros(n * 40_000);
                if one_in(hurry) {
                    state = (state + if one_in(2) { 1 } else { 2 }) % 3;
                    life.set_state(states[state], now);
                }
                if one_in(60) {
                    life.nod(now);
                }
                if one_in(100) {
                    life.user_speaks();
                }
                let manner = life.at(now);
                let speaking = states[state] == AgentState::Speaking;
                let lips = if speaking && manner.upright { Viseme::Aa.mouth() } else { Mouth::default() };
                let key = cache.key_of(&manner, lips, speaking);
                let shown = cache.set.manifest().frames[usize::from(cache.set.index(key))].0;
                assert_eq!(shown, key, "seed {seed}, frame {n}: {manner:?}");
                let [lean, nod, smile, breath] = jump(&cache, last, key);
                let told = format!("seed {seed}, frame {n}: {last:?} to {key:?}");
                assert!(lean <= 2.01 && nod <= 2.1 && smile <= 1.01 && breath <= 2.01, "{told}");
                seen.extend([(0, key.stance, 0), (1, key.look, 0), (2, key.stance, key.breath)]);
                last = key;
            }
        }
        let unseen = |key: &&Key| {
            [(0, key.stance, 0), (1, key.look, 0), (2, key.stance, key.breath)]
                .iter()
                .any(|k| !seen.contains(k))
        };
        let keys = Plan::new().keys();
        let unseen: Vec<&Key> = keys.iter().filter(unseen).collect();
        assert!(unseen.is_empty(), "baked for nothing: {unseen:?}");
    }
}
