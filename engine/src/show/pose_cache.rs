//! Maps a requested pose to the nearest encoded frame.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use models::face::{Brows, Eyes, Look, Mouth, PoseId, PoseSet};

use super::motion::PoseState;
use super::nearest::{Axis, Limits, NearestTable, Point, squared_distance};
use super::stance_paths::StancePaths;

/// A frame, and what a receiver must have to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Number of the frame.
    pub frame: u16,
    /// Number of the anchor to which it refers; `None` = the key frame. One frame shows different
    /// pictures with different anchors.
    pub anchor: Option<u8>,
}

/// The poses of an avatar, with a nearest-pose search.
pub struct PoseCache {
    pose_set: Arc<PoseSet>,
    /// A better pose set of the same avatar, if there is one. Another thread writes it once;
    /// readers take no lock.
    upgrade: OnceLock<Arc<PoseCache>>,
    /// By number of the stance.
    stances: Vec<StancePoses>,
    paths: StancePaths,
    mouths: MouthTables,
    mean_frame_bytes: f64,
}

/// The baked poses of a stance.
#[derive(Clone, Default)]
struct StancePoses {
    anchor: Option<u8>,
    /// Those that are shown while lips move come first.
    looks: Vec<LookPoses>,
    /// Number of the looks that are shown while lips move. These have several mouths, so that the
    /// eyes do not flicker with the lips. On the way between two heads, all looks: there the lips
    /// are nearly shut, and shut during a blink.
    speech_looks: usize,
}

/// The baked poses of a stance with one look.
#[derive(Clone)]
struct LookPoses {
    look: Look,
    /// For each mouth, the frame with the nearest baked one.
    by_mouth: Vec<u16>,
    /// For each breath, the frame with closed lips.
    by_breath: Vec<u16>,
}

impl PoseCache {
    /// A cache over a pose set.
    #[must_use]
    pub fn new(set: Arc<PoseSet>) -> Self {
        let mut stances = baked_poses(&set);
        // A stance without frames looks like rest.
        let rest = stances.first().cloned().unwrap_or_default();
        stances.iter_mut().filter(|poses| poses.looks.is_empty()).for_each(|poses| {
            poses.clone_from(&rest);
        });
        let manifest = set.manifest();
        let lengths: Vec<f64> = manifest
            .frames
            .iter()
            .filter(|(id, _)| id.mouth != 0 && (id.stance, id.look) == (0, 0))
            .map(|(_, lengths)| lengths.first().map_or(0.0, |n| f64::from(*n)))
            .collect();
        Self {
            paths: StancePaths::new(
                &set,
                |stance| stances[usize::from(stance)].moves_lips(),
                |stance| stances[usize::from(stance)].anchor,
            ),
            mouths: MouthTables::new(&manifest.mouths),
            mean_frame_bytes: lengths.iter().sum::<f64>() / lengths.len().max(1) as f64,
            stances,
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

    /// An anchor, a second reference frame, by its number.
    #[must_use]
    pub fn anchor_frame(&self, anchor: u8) -> &Bytes {
        self.pose_set.anchor_frame(anchor)
    }

    /// The number of an anchor with this frame, which another set of the avatar may have too.
    #[must_use]
    pub fn find_anchor(&self, frame: &Bytes) -> Option<u8> {
        let found = self.pose_set.anchor_frames().iter().position(|anchor| anchor == frame);
        found.map(|n| n as u8)
    }

    /// The frame nearest to this pose. Equal results mean the same picture. `speaking` restricts
    /// the eyes to looks that are shown while lips move.
    #[must_use]
    pub fn nearest_frame(&self, pose_state: &PoseState, mouth: Mouth, speaking: bool) -> Shown {
        let mouth = self.nearest_mouth(mouth);
        let stance = &self.stances[usize::from(pose_state.stance)];
        let count = if mouth != 0 || speaking { stance.speech_looks } else { stance.looks.len() };
        let looks = &stance.looks[..count];
        let nearest = looks.iter().map(|poses| look_distance(&poses.look, &pose_state.look));
        let look = &looks[usize::from(index_of_min(nearest))];
        let frame = if mouth == 0 {
            let breaths = &self.pose_set.manifest().breaths;
            let nearest = breaths.iter().map(|breath| (breath - pose_state.breath).abs());
            look.by_breath[usize::from(index_of_min(nearest))]
        } else {
            look.by_mouth[usize::from(mouth)]
        };
        Shown { frame, anchor: stance.anchor }
    }

    /// The ways of the head.
    pub(super) fn paths(&self) -> &StancePaths {
        &self.paths
    }

    /// A frame by its number, at a quality level; level 0 is the finest.
    #[must_use]
    pub fn frame(&self, index: u16, level: usize) -> &Bytes {
        self.pose_set.frame(index, level)
    }

    /// Mean length of a frame of moving lips, bytes.
    #[must_use]
    pub fn mean_frame_bytes(&self) -> f64 {
        self.mean_frame_bytes
    }

    /// Index of the mouth nearest to `mouth`. A closure maps to a closure. It may not be baked in a
    /// stance with a look.
    #[must_use]
    pub fn nearest_mouth(&self, mouth: Mouth) -> u8 {
        self.mouths.nearest(&mouth)
    }
}

impl StancePoses {
    /// Whether more than one mouth is baked.
    fn moves_lips(&self) -> bool {
        self.looks.iter().any(|poses| poses.by_mouth.iter().any(|n| *n != poses.by_mouth[0]))
    }
}

/// The baked poses of each stance.
fn baked_poses(set: &PoseSet) -> Vec<StancePoses> {
    let manifest = set.manifest();
    let frames = || manifest.frames.iter().map(|(id, _)| *id).zip(0..);
    // The poses of each stance with each look, and their frames.
    let mut poses: BTreeMap<(u8, u8), Vec<(PoseId, u16)>> = BTreeMap::new();
    for (id, frame) in frames() {
        poses.entry((id.stance, id.look)).or_default().push((id, frame));
    }
    for (head, raised) in set.heads().iter().filter_map(|head| Some((head.stance, head.raised?))) {
        for (id, frame) in frames().filter(|(id, _)| (id.stance, id.look) == (head, 0)) {
            let shown = PoseId { stance: raised, ..id };
            poses.entry((raised, 0)).or_default().push((shown, frame));
        }
    }
    let of_stance = |stance: u8| {
        let is_head =
            set.heads().iter().any(|head| head.stance == stance || head.raised == Some(stance));
        let looks = poses.iter().filter(|((of, _), _)| *of == stance);
        let (mut spoken, mut silent): (Vec<_>, Vec<_>) =
            looks.partition(|(_, poses)| !is_head || poses.iter().any(|(id, _)| id.mouth != 0));
        if spoken.is_empty() {
            std::mem::swap(&mut spoken, &mut silent);
        }
        let anchor = spoken.first().map(|(_, poses)| poses[0]);
        StancePoses {
            anchor: anchor.and_then(|(id, frame)| set.anchor_of(frame, id)),
            speech_looks: spoken.len(),
            looks: spoken
                .into_iter()
                .chain(silent)
                .map(|((_, look), poses)| look_poses(set, *look, poses))
                .collect(),
        }
    };
    (0..manifest.stances.len() as u8).map(of_stance).collect()
}

/// The frames of these poses of one stance with one look.
fn look_poses(set: &PoseSet, look: u8, poses: &[(PoseId, u16)]) -> LookPoses {
    let manifest = set.manifest();
    let breathed_out = || poses.iter().filter(|(id, _)| id.breath == 0);
    let nearest_mouth = |wanted: &Mouth| {
        let mouth = |id: &PoseId| &manifest.mouths[usize::from(id.mouth)];
        let near = index_of_min(breathed_out().map(|(id, _)| mouth_distance(mouth(id), wanted)));
        breathed_out().nth(usize::from(near)).unwrap_or(&poses[0]).1
    };
    let by_mouth: Vec<u16> = manifest.mouths.iter().map(nearest_mouth).collect();
    let breath = |breath: u8| {
        let found = poses.iter().find(|(id, _)| (id.mouth, id.breath) == (0, breath));
        found.map_or(by_mouth[0], |(_, frame)| *frame)
    };
    let by_breath = (0..manifest.breaths.len() as u8).map(breath).collect();
    LookPoses { look: manifest.looks[usize::from(look)], by_mouth, by_breath }
}

/// The nearest of a set's mouths, by the closure of the requested one: none, pressed, tucked, both.
struct MouthTables([NearestTable<6, 2>; 4]);

impl MouthTables {
    fn new(mouths: &[Mouth]) -> Self {
        let points: Vec<(u8, Point<6>)> = (0..).zip(mouths.iter().map(mouth_point)).collect();
        let weights = [0.0, 1.0].map(mouth_weights);
        let weights: Limits<6> = std::array::from_fn(|i| weights.map(|weights| weights[i]));
        let unit = [0.0, 1.0];
        let limits = [unit, [-1.0, 1.0], unit, unit, unit, unit];
        let axes = [(0, 10), (2, 4)].map(|(value, parts)| Axis { value, parts });
        Self(std::array::from_fn(|class| {
            let same =
                points.iter().copied().filter(|(n, _)| closure(&mouths[usize::from(*n)]) == class);
            let same: Vec<_> = same.collect();
            let candidates = if same.is_empty() { &points } else { &same };
            NearestTable::new(candidates, limits, weights, axes)
        }))
    }

    fn nearest(&self, mouth: &Mouth) -> u8 {
        self.0[closure(mouth)].nearest(mouth_point(mouth), mouth_weights(mouth.jaw))
    }
}

/// Index of the closure of a mouth.
fn closure(mouth: &Mouth) -> usize {
    usize::from(mouth.press > 0.7) + 2 * usize::from(mouth.tuck > 0.7)
}

fn mouth_point(mouth: &Mouth) -> Point<6> {
    [mouth.jaw, mouth.width, mouth.round, mouth.press, mouth.tuck, mouth.tongue]
}

/// The tongue is visible only in an open mouth.
fn mouth_weights(jaw: f32) -> Point<6> {
    [2.0, 0.3, 0.7, 1.0, 0.8, 0.25 * (jaw * 3.0).min(1.0)]
}

/// Distance of a baked mouth from the requested one. A closure is nearest to a closure.
fn mouth_distance(baked: &Mouth, wanted: &Mouth) -> f32 {
    /// More than any other difference.
    const WRONG_CLOSURE: f32 = 10.0;
    let wrong = if closure(baked) == closure(wanted) { 0.0 } else { WRONG_CLOSURE };
    wrong + squared_distance(&mouth_point(baked), &mouth_point(wanted), &mouth_weights(wanted.jaw))
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
    use models::face::bake::PosePlan;

    use super::super::test_poses::{cache_of, shown_pose};
    use super::*;

    #[test]
    fn each_baked_pose_is_found_with_its_anchor() {
        let cache = cache_of(PosePlan::new());
        let set = cache.pose_set();
        let manifest = set.manifest();
        for (id, _) in &manifest.frames {
            let mouth = manifest.mouths[usize::from(id.mouth)];
            let pose_state = PoseState {
                look: manifest.looks[usize::from(id.look)],
                stance: id.stance,
                breath: manifest.breaths[usize::from(id.breath)],
                ready_to_speak: true,
            };
            let shown = cache.nearest_frame(&pose_state, mouth, false);
            let found = shown_pose(&cache, shown);
            assert_eq!(found, *id);
            assert_eq!(shown.anchor, set.anchor_of(shown.frame, found), "{id:?}");
        }
    }

    #[test]
    fn raised_brows_show_the_mouths_of_their_head_on_their_own_anchor() {
        let cache = cache_of(PosePlan::for_photo());
        let manifest = cache.pose_set().manifest();
        let raised = cache.pose_set().heads().iter().filter_map(|head| Some((head, head.raised?)));
        for (head, raised) in raised {
            let nearest = |stance: u8, lids: f32, mouth: u8| {
                let mut pose_state = PoseState { stance, ..PoseState::default() };
                pose_state.look.eyes.lids = lids;
                cache.nearest_frame(&pose_state, manifest.mouths[usize::from(mouth)], true)
            };
            for mouth in 1..manifest.mouths.len() as u8 {
                let [own, other] = [head.stance, raised].map(|stance| nearest(stance, 0.0, mouth));
                assert_eq!(own.frame, other.frame);
                assert_ne!(own.anchor, other.anchor);
                let blink = nearest(raised, 1.0, mouth);
                assert_eq!(shown_pose(&cache, blink).stance, raised);
                assert_eq!(blink.anchor, other.anchor);
            }
        }
    }

    #[test]
    fn each_subset_of_a_plan_shows_what_it_has() {
        let plan = PosePlan::new();
        for subset in plan.progressive_subsets() {
            let cache = cache_of(plan.subset(&subset));
            let manifest = cache.pose_set().manifest();
            for stance in 0..manifest.stances.len() as u8 {
                for (look, mouth) in plan
                    .looks
                    .iter()
                    .flat_map(|look| plan.mouths.iter().map(move |mouth| (look, mouth)))
                {
                    let pose_state = PoseState { stance, look: *look, ..PoseState::default() };
                    let id = shown_pose(&cache, cache.nearest_frame(&pose_state, *mouth, true));
                    let shared = cache.pose_set().heads().iter().any(|head| {
                        head.raised == Some(stance) && head.stance == id.stance && id.look == 0
                    });
                    assert!(id.stance == stance || shared, "{stance}: {id:?}");
                }
            }
        }
    }

    #[test]
    fn a_closure_is_shown_as_a_closure_in_each_stance_in_which_lips_move() {
        let cache = cache_of(PosePlan::new());
        let manifest = cache.pose_set().manifest();
        let closures = manifest.mouths.iter().filter(|mouth| closure(mouth) != 0);
        for mouth in closures {
            for (stance, poses) in (0..).zip(&cache.stances) {
                for spoken in
                    poses.looks[..poses.speech_looks].iter().filter(|_| poses.moves_lips())
                {
                    let pose_state =
                        PoseState { stance, look: spoken.look, ..PoseState::default() };
                    let id = shown_pose(&cache, cache.nearest_frame(&pose_state, *mouth, true));
                    let shown = &manifest.mouths[usize::from(id.mouth)];
                    // On the way, closed eyes have closed lips only.
                    assert!(closure(shown) == closure(mouth) || id.mouth == 0, "{id:?}");
                }
            }
        }
    }
}
