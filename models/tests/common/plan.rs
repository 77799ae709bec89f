//! A plan for tests that bake.

use models::face::bake::PosePlan;
use models::face::pose_plan::PoseGroup;

/// A plan with a few poses of each kind.
pub(crate) fn small_plan() -> PosePlan {
    let all = PosePlan::new();
    let group = |stance, look, mouths: &[u8], breaths: &[u8]| PoseGroup {
        stance,
        look,
        mouths: mouths.to_vec(),
        breaths: breaths.to_vec(),
        offset: 0,
        coarse: true,
    };
    PosePlan {
        stances: all.stances[..2].to_vec(),
        looks: all.looks[..3].to_vec(),
        mouths: [0, 1, 5, 14].map(|m| all.mouths[m]).to_vec(),
        groups: vec![
            group(0, 0, &[0, 1, 2, 3], &[0]),
            group(0, 1, &[0, 1, 2, 3], &[0]),
            group(0, 2, &[0], &[0]),
            group(1, 0, &[0], &[0]),
            group(1, 1, &[0], &[0]),
            group(0, 0, &[0], &[1, 2, 3, 4, 5]),
            group(1, 1, &[0], &[1, 2, 3, 4, 5]),
        ],
        heads: all.heads[..1].to_vec(),
        anchors: vec![vec![1]],
        ..all
    }
}
