//! Pose sets without pictures, for tests.

use std::sync::Arc;

use bytes::Bytes;
use models::face::bake::PosePlan;
use models::face::pose_set::{Anchor, Manifest};
use models::face::{PoseId, PoseSet, Stance};

use super::pose_cache::{PoseCache, Shown};

/// All poses of a plan, one byte each.
pub(super) fn cache_of(plan: PosePlan) -> PoseCache {
    let keys = plan.pose_ids();
    let anchors = vec![Bytes::from_static(b"anchor"); plan.anchors.len()];
    let manifest = Manifest {
        quantizers: vec![8, 30],
        anchors: plan.anchors.into_iter().map(Anchor::of).collect(),
        heads: plan.heads,
        stances: plan.stances,
        looks: plan.looks,
        mouths: plan.mouths,
        breaths: plan.breaths,
        frames: keys.iter().map(|key| (*key, Vec::new())).collect(),
        ..Manifest::default()
    };
    let frames = vec![vec![Bytes::from_static(b"x")]; keys.len()];
    let set = PoseSet::new(manifest, Bytes::from_static(b"key"), anchors, frames).unwrap();
    PoseCache::new(Arc::new(set))
}

/// The poses of a set of version 2: of a plan with rest and a leaning head, without mouths between
/// both, with one anchor, and without a list of heads.
pub(super) fn version_2() -> PoseCache {
    let mut plan = PosePlan::with_heads(&models::face::pose_plan::CHARACTER_HEADS[..2]);
    let ways = plan.heads[1].ways.clone();
    for group in plan.groups.iter_mut().filter(|group| ways.contains(&group.stance)) {
        group.mouths = vec![0];
    }
    plan.anchors.truncate(1);
    plan.heads.clear();
    cache_of(plan)
}

/// The pose that is shown.
pub(super) fn shown_pose(cache: &PoseCache, shown: Shown) -> PoseId {
    cache.pose_set().manifest().frames[usize::from(shown.frame)].0
}

/// Displacement of the crown of a stance from rest, in pixels of a picture of 512 pixels: that of
/// the baked pictures of a close face, approximated by a linear function.
pub(super) fn crown(stance: &Stance) -> [f32; 2] {
    let head = stance.head;
    [110.0 * head.yaw - 208.0 * head.roll, 92.0 * head.pitch]
}

/// Distance of two displacements.
pub(super) fn distance(a: [f32; 2], b: [f32; 2]) -> f32 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}
