//! Parts of a plan: the poses that are needed soonest are drawn first, and shown by themselves.

use super::manifest::{Mood, PoseId, SpeakingHead};
use super::plan_heads::{LEAN, LEAN_WAYS};
use super::pose_plan::{PoseGroup, PosePlan};

/// A subset of a plan's states that can be shown by itself. Each list is in ascending order and
/// includes rest.
#[derive(Clone, Debug)]
pub struct PlanSubset {
    /// Indices into [`PosePlan::stances`]. A subset with a stance of an anchor includes the first
    /// of that anchor.
    pub stances: Vec<u8>,
    /// Indices into [`PosePlan::looks`].
    pub looks: Vec<u8>,
    /// Indices into [`PosePlan::mouths`].
    pub mouths: Vec<u8>,
}

impl PlanSubset {
    /// All states of a plan.
    #[must_use]
    pub fn full(plan: &PosePlan) -> Self {
        let all = |n: usize| (0..n as u8).collect();
        Self {
            stances: all(plan.stances.len()),
            looks: all(plan.looks.len()),
            mouths: all(plan.mouths.len()),
        }
    }

    /// Converts a pose of this subset to that of the full plan.
    #[must_use]
    pub fn to_full_plan(&self, id: PoseId) -> PoseId {
        PoseId {
            stance: self.stances[usize::from(id.stance)],
            look: self.looks[usize::from(id.look)],
            mouth: self.mouths[usize::from(id.mouth)],
            ..id
        }
    }
}

impl PosePlan {
    /// The subsets that are drawn first, because they are needed soonest. The first one is enough
    /// to speak, blink, breathe and lean; the second one also has the heads that speak calmly. Both
    /// include the closures of the lips: a missed closure is what viewers notice.
    #[must_use]
    pub fn progressive_subsets(&self) -> Vec<PlanSubset> {
        // A lean includes its middle: a head must not jump far.
        let first = PlanSubset {
            stances: vec![0, LEAN_WAYS[2], LEAN],
            looks: vec![0, 1, 2, 3],
            // Pressed, tucked; jaw slightly open, half open and wide; spread, rounded, pursed.
            mouths: vec![0, 1, 5, 11, 13, 15, 19, 24, 28],
        };
        let calm = self.heads.iter().filter(|head| head.mood == Mood::Calm);
        let mut stances: Vec<u8> = calm
            .flat_map(|head| head.ways.iter().copied().chain([head.stance]))
            .chain(LEAN_WAYS)
            .chain([LEAN])
            .collect();
        stances.sort_unstable();
        stances.dedup();
        vec![first, PlanSubset { stances, ..PlanSubset::full(self) }]
    }

    /// The plan of a subset alone, with its states renumbered.
    #[must_use]
    pub fn subset(&self, subset: &PlanSubset) -> Self {
        let whole = subset.mouths.len() == self.mouths.len();
        // Other heads speak with all mouths or none, so that the first subset is ready soon.
        let speaks = |stance: u8| stance == 0 || whole;
        let stances = |list: &[u8]| -> Vec<u8> {
            list.iter().filter_map(|stance| place(&subset.stances, *stance)).collect()
        };
        let group = |group: &PoseGroup| {
            let mouths = group.mouths.iter().filter(|mouth| **mouth == 0 || speaks(group.stance));
            let mouths: Vec<u8> =
                mouths.filter_map(|mouth| place(&subset.mouths, *mouth)).collect();
            (!mouths.is_empty()).then_some(PoseGroup {
                stance: place(&subset.stances, group.stance)?,
                look: place(&subset.looks, group.look)?,
                mouths,
                ..group.clone()
            })
        };
        let head = |head: &SpeakingHead| {
            Some(SpeakingHead {
                stance: place(&subset.stances, head.stance).filter(|_| speaks(head.stance))?,
                ways: stances(&head.ways),
                raised: head.raised.and_then(|raised| place(&subset.stances, raised)),
                ..head.clone()
            })
        };
        let anchors = self.anchors.iter().map(|anchor| stances(anchor));
        Self {
            stances: chosen(&self.stances, &subset.stances),
            looks: chosen(&self.looks, &subset.looks),
            mouths: chosen(&self.mouths, &subset.mouths),
            groups: self.groups.iter().filter_map(group).collect(),
            heads: self.heads.iter().filter_map(head).collect(),
            anchors: anchors.filter(|anchor| !anchor.is_empty()).collect(),
            ..self.clone()
        }
    }
}

fn chosen<T: Copy>(list: &[T], which: &[u8]) -> Vec<T> {
    which.iter().map(|i| list[usize::from(*i)]).collect()
}

/// The place of a state in an ascending list.
fn place(list: &[u8], state: u8) -> Option<u8> {
    list.iter().position(|one| *one == state).map(|place| place as u8)
}
