//! Maps a requested pose to the nearest encoded frame.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use models::face::{Brows, Eyes, Look, Mouth, PoseId, PoseSet, Stance};

use super::idle_motion::PoseState;

/// Weight of a full smile against one radian of head rotation: half a smile counts as one degree.
const SMILE_WEIGHT: f32 = 1.2e-3;

/// The poses of an avatar, with a nearest-pose search.
pub struct PoseCache {
    pose_set: Arc<PoseSet>,
    /// A better pose set of the same avatar, if there is one. Another thread writes it once;
    /// readers take no lock.
    upgrade: OnceLock<Arc<PoseCache>>,
    /// The stances in which lips move, each with the looks that are baked with every mouth. While
    /// lips move only these looks are used, so that the eyes do not flicker with the lips. Rest
    /// comes first; the list is never empty.
    speaking_stances: Vec<(u8, Vec<u8>)>,
    mean_frame_bytes: f64,
}

impl PoseCache {
    /// A cache over a pose set.
    #[must_use]
    pub fn new(set: Arc<PoseSet>) -> Self {
        let manifest = set.manifest();
        let count = manifest.mouths.len();
        let mut mouths: HashMap<(u8, u8), usize> = HashMap::new();
        for (key, _) in manifest.frames.iter().filter(|(key, _)| key.breath == 0) {
            *mouths.entry((key.stance, key.look)).or_default() += 1;
        }
        let looks = |stance: u8| {
            let all = 0..manifest.looks.len() as u8;
            all.filter(|look| mouths.get(&(stance, *look)) == Some(&count)).collect::<Vec<u8>>()
        };
        let moving = (1..manifest.stances.len() as u8).map(|stance| (stance, looks(stance)));
        let upright = Some(looks(0)).filter(|looks| !looks.is_empty()).unwrap_or_else(|| vec![0]);
        let talking = std::iter::once((0, upright))
            .chain(moving.filter(|(_, looks)| count > 1 && !looks.is_empty()))
            .collect();
        let finest = |lengths: &[u32]| lengths.first().map_or(0.0, |n| f64::from(*n));
        let speaking_frames =
            manifest.frames.iter().filter(|(k, _)| k.mouth != 0).map(|(_, n)| finest(n));
        let (count, sum) =
            speaking_frames.fold((0.0, 0.0), |(n, sum), bytes| (n + 1.0, sum + bytes));
        let mean_bytes = if count > 0.0 { sum / count } else { 0.0 };
        Self {
            speaking_stances: talking,
            mean_frame_bytes: mean_bytes,
            pose_set: set,
            upgrade: OnceLock::new(),
        }
    }

    /// Sets the upgrade for all calls that show this pose set. Only the first upgrade is stored.
    pub fn set_upgrade(&self, upgrade: Arc<Self>) {
        let _ = self.upgrade.set(upgrade);
    }

    /// The better pose set, if one was set.
    #[must_use]
    pub fn upgrade(&self) -> Option<&Arc<Self>> {
        self.upgrade.get()
    }

    /// The pose set.
    #[must_use]
    pub fn pose_set(&self) -> &Arc<PoseSet> {
        &self.pose_set
    }

    /// The key frame; it shows rest.
    #[must_use]
    pub fn key_frame(&self) -> &Bytes {
        self.pose_set.key_frame()
    }

    /// The altref frame, the second reference frame.
    #[must_use]
    pub fn altref_frame(&self) -> &Bytes {
        self.pose_set.altref_frame()
    }

    /// Whether a frame refers to the altref frame.
    #[must_use]
    pub fn uses_altref(&self, index: u16) -> bool {
        self.pose_set.uses_altref(index)
    }

    /// Number of the frame nearest to this pose. Equal numbers mean the same picture. `speaking`
    /// restricts the eyes to looks that are baked with every mouth.
    #[must_use]
    pub fn nearest_frame(&self, pose_state: &PoseState, mouth: Mouth, speaking: bool) -> u16 {
        self.pose_set.frame_index(self.nearest_pose_id(pose_state, mouth, speaking))
    }

    /// The nearest value of each part of the pose; the combination may not be baked.
    fn nearest_pose_id(&self, pose_state: &PoseState, mouth: Mouth, speaking: bool) -> PoseId {
        let mouth = self.nearest_mouth(mouth);
        if mouth != 0 {
            let nearest = index_of_min(
                self.speaking_stances
                    .iter()
                    .map(|(stance, _)| self.stance_distance(*stance, pose_state.stance)),
            );
            let (stance, looks) = &self.speaking_stances[usize::from(nearest)];
            return PoseId {
                stance: *stance,
                look: self.nearest_look(looks, pose_state.look),
                mouth,
                breath: 0,
            };
        }
        let stance = index_of_min(
            (0..self.pose_set.manifest().stances.len() as u8)
                .map(|s| self.stance_distance(s, pose_state.stance)),
        );
        let look = if speaking {
            let there = self
                .speaking_stances
                .iter()
                .find(|(talks, _)| *talks == stance)
                .unwrap_or(&self.speaking_stances[0]);
            self.nearest_look(&there.1, pose_state.look)
        } else {
            index_of_min(
                self.pose_set
                    .manifest()
                    .looks
                    .iter()
                    .map(|look| look_distance(look, &pose_state.look)),
            )
        };
        let breaths = &self.pose_set.manifest().breaths;
        let breath = index_of_min(breaths.iter().map(|breath| (breath - pose_state.breath).abs()));
        PoseId { stance, look, mouth, breath }
    }

    /// Whether lips also move in a stance other than rest.
    #[must_use]
    pub fn can_speak_leaning(&self) -> bool {
        self.speaking_stances.len() > 1
    }

    /// A frame by its number, at a quality level; level 0 is the finest.
    #[must_use]
    pub fn frame(&self, index: u16, level: usize) -> &Bytes {
        self.pose_set.frame(index, level)
    }

    /// Mean length of a frame with moving lips, bytes.
    #[must_use]
    pub fn mean_frame_bytes(&self) -> f64 {
        self.mean_frame_bytes
    }

    /// Index of the baked mouth nearest to `mouth`. A closure maps to a closure.
    #[must_use]
    pub fn nearest_mouth(&self, mouth: Mouth) -> u8 {
        let mouths = &self.pose_set.manifest().mouths;
        let closure = |m: &Mouth| (m.press > 0.7, m.tuck > 0.7);
        let distance = |m: &Mouth| {
            let misses = if closure(m) == closure(&mouth) { 0.0 } else { 10.0 };
            let d = |a: f32, b: f32, weight: f32| (a - b) * (a - b) * weight;
            // The tongue is visible only in an open mouth.
            misses
                + d(m.jaw, mouth.jaw, 2.0)
                + d(m.width, mouth.width, 0.3)
                + d(m.round, mouth.round, 0.7)
                + d(m.press, mouth.press, 1.0)
                + d(m.tuck, mouth.tuck, 0.8)
                + d(m.tongue, mouth.tongue, 0.25 * (mouth.jaw * 3.0).min(1.0))
        };
        index_of_min(mouths.iter().map(distance))
    }

    /// The one of `looks` that is nearest to `look`.
    fn nearest_look(&self, looks: &[u8], look: Look) -> u8 {
        let all = &self.pose_set.manifest().looks;
        looks[usize::from(index_of_min(
            looks.iter().map(|i| look_distance(&all[usize::from(*i)], &look)),
        ))]
    }

    /// Distance of a baked stance from `stance`.
    fn stance_distance(&self, baked: u8, stance: Stance) -> f32 {
        let baked = &self.pose_set.manifest().stances[usize::from(baked)];
        let (a, b) = (&baked.head, &stance.head);
        let head =
            (a.yaw - b.yaw).powi(2) + (a.pitch - b.pitch).powi(2) + (a.roll - b.roll).powi(2);
        head + SMILE_WEIGHT * (baked.smile - stance.smile).powi(2)
    }
}

/// Distance of a baked look from the requested one.
fn look_distance(baked: &Look, wanted: &Look) -> f32 {
    let (a, b): (&Eyes, &Eyes) = (&baked.eyes, &wanted.eyes);
    let (c, d): (&Brows, &Brows) = (&baked.brows, &wanted.brows);
    3.0 * (a.lids - b.lids).powi(2)
        + (a.squint - b.squint).powi(2)
        // The gaze of a closed eye is invisible.
        + ((a.gaze_x - b.gaze_x).powi(2) + (a.gaze_y - b.gaze_y).powi(2))
            * 4.0
            * (1.0 - b.lids).max(0.02)
        + 0.5 * ((c.raise - d.raise).powi(2) + (c.knit - d.knit).powi(2))
}

/// Index of the smallest distance; the first one if several are equal.
fn index_of_min(distances: impl Iterator<Item = f32>) -> u8 {
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
    use models::face::bake::PosePlan;
    use models::face::pose_set::Manifest;

    use super::*;
    use crate::show::idle_motion::IdleMotion;
    use crate::show::visemes::Viseme;

    /// All poses that are baked today, one byte each.
    fn cache() -> PoseCache {
        let PosePlan { stances, looks, mouths, breaths, altref_stances, .. } = PosePlan::new();
        let keys = PosePlan::new().pose_ids();
        let manifest = Manifest {
            quantizers: vec![8, 30],
            altref_stances,
            stances,
            looks,
            mouths,
            breaths,
            frames: keys.iter().map(|key| (*key, Vec::new())).collect(),
            ..Manifest::default()
        };
        let frames = vec![Bytes::from_static(b"x"); keys.len()];
        let (key, altref_frame) = (Bytes::from_static(b"key"), Bytes::from_static(b"anchor"));
        PoseCache::new(Arc::new(PoseSet::new(manifest, key, altref_frame, frames).unwrap()))
    }

    /// Distance of two pictures, in five units: quarters of the lean, thirds of a nod, halves of a
    /// smile, fifths of a breath, and the raise or knit of the brows.
    fn pose_jump(cache: &PoseCache, a: PoseId, b: PoseId) -> [f32; 5] {
        let (stances, looks) =
            (&cache.pose_set.manifest().stances, &cache.pose_set.manifest().looks);
        let measures = |key: PoseId| {
            let Stance { head, smile } = stances[usize::from(key.stance)];
            let lean = head.roll / models::face::pose_plan::LISTENING_HEAD.roll;
            let nod = (head.pitch - lean * models::face::pose_plan::LISTENING_HEAD.pitch)
                / models::face::pose_plan::NOD_DEPTH;
            let brows = looks[usize::from(key.look)].brows;
            ([lean * 4.0, nod * 3.0, smile * 2.0, f32::from(key.breath)], [brows.raise, brows.knit])
        };
        let ((a, c), (b, d)) = (measures(a), measures(b));
        let brows = (c[0] - d[0]).abs().max((c[1] - d[1]).abs());
        std::array::from_fn(|i| if i < 4 { (a[i] - b[i]).abs() } else { brows })
    }

    #[test]
    fn only_encoded_poses_are_requested_and_no_pose_jumps() {
        let cache = cache();
        let states = [AgentState::Listening, AgentState::Thinking, AgentState::Speaking];
        let mut random = 1u32;
        let mut one_in = |n: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8).is_multiple_of(n)
        };
        let mut seen = std::collections::HashSet::new();
        for (seed, hurry) in (0..40).flat_map(|seed| [25, 150].map(|hurry| (seed, hurry))) {
            let mut idle_motion = IdleMotion::new(seed);
            let mut last = PoseId::default();
            let mut state = 0;
            for n in 0..25 * 120u64 {
                let now = Time::from_micros(n * 40_000);
                if one_in(hurry) {
                    state = (state + if one_in(2) { 1 } else { 2 }) % 3;
                    idle_motion.set_state(states[state], now);
                }
                if one_in(60) {
                    idle_motion.request_nod(now);
                }
                if one_in(100) {
                    idle_motion.on_user_speech();
                }
                if one_in(20) {
                    idle_motion.on_speech_pause(now);
                }
                let pose_state = idle_motion.update(now);
                let speaking = states[state] == AgentState::Speaking;
                let lips = if speaking && pose_state.ready_to_speak {
                    Viseme::Aa.mouth()
                } else {
                    Mouth::default()
                };
                let key = cache.nearest_pose_id(&pose_state, lips, speaking);
                let shown = cache.pose_set.manifest().frames
                    [usize::from(cache.pose_set.frame_index(key))]
                .0;
                assert_eq!(shown, key, "seed {seed}, frame {n}: {pose_state:?}");
                let [lean, nod, smile, breath, brows] = pose_jump(&cache, last, key);
                let details = format!("seed {seed}, frame {n}: {last:?} to {key:?}");
                assert!(lean <= 2.01 && nod <= 2.1 && smile <= 1.01 && breath <= 2.01, "{details}");
                // At most half of the brows' range per frame. The full range is allowed behind lids
                // that close or open, and where speech ends a thought: lips do not wait for brows.
                let look = |key: PoseId| cache.pose_set.manifest().looks[usize::from(key.look)];
                let blinks = look(last).eyes.lids + look(key).eyes.lids > 0.2;
                let begins = last.mouth == 0 && key.mouth != 0;
                assert!(brows <= if blinks || begins { 0.46 } else { 0.26 }, "{details}");
                seen.extend([(0, key.stance, 0), (1, key.look, 0), (2, key.stance, key.breath)]);
                last = key;
            }
        }
        let unseen = |key: &&PoseId| {
            [(0, key.stance, 0), (1, key.look, 0), (2, key.stance, key.breath)]
                .iter()
                .any(|k| !seen.contains(k))
        };
        let keys = PosePlan::new().pose_ids();
        let unseen: Vec<&PoseId> = keys.iter().filter(unseen).collect();
        assert!(unseen.is_empty(), "baked but never used: {unseen:?}");
    }
}
