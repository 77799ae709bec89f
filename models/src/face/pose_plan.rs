//! The plan of a pose set: which poses of an avatar are drawn and baked, and with which quantizers.

use character::{Brows, Eyes, Head, Mouth};
use serde::Serialize;

use super::pose_set::{Look, PoseId, Stance};

/// Head of a listener, in radians.
pub const LISTENING_HEAD: Head = Head { yaw: 0.025, pitch: 0.012, roll: 0.038 };
/// Deepest point of a nod, relative to the head's position, in radians.
pub const NOD_DEPTH: f32 = 0.05;
/// Gaze while thinking.
pub const THINKING_GAZE: [f32; 2] = [0.55, 0.5];
/// Brows while thinking.
pub const THINKING_BROWS: Brows = Brows { raise: 0.4, knit: 0.3 };
/// Brows that emphasize speech.
pub const EMPHASIS_BROWS: Brows = Brows { raise: 0.45, knit: 0.0 };
/// A side glance while speaking or listening. The other side has the opposite sign of the first
/// number.
pub const SIDE_GLANCE: [f32; 2] = [0.4, -0.05];

/// Poses to draw, relative to rest.
#[derive(Serialize)]
pub struct PosePlan {
    /// Heads and smiles, rest first.
    pub stances: Vec<Stance>,
    /// Eyes and brows, rest first.
    pub looks: Vec<Look>,
    /// The stances in which lips move, rest first, each with the looks that are baked with every
    /// mouth.
    #[serde(rename = "talking")]
    pub speaking_stances: Vec<(u8, Vec<u8>)>,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// For each stance but the first: the looks with which it is baked.
    pub stance_looks: Vec<Vec<u8>>,
    /// Rise of the chest, breathed out first.
    pub breaths: Vec<f32>,
    /// Pairs of stance and look that breathe, with closed mouth.
    #[serde(rename = "breathing")]
    pub breathing_poses: Vec<(u8, u8)>,
    /// Stances whose frames refer to the altref frame, which shows the first of them. The frames of
    /// all others refer to the key frame.
    #[serde(rename = "anchored")]
    pub altref_stances: Vec<u8>,
    /// Quantizer of the key frame.
    pub key_quantizer: u32,
    /// Quantizer of the altref frame. It determines the quality of all that does not move in the
    /// poses that refer to it.
    #[serde(rename = "anchor_quantizer")]
    pub altref_quantizer: u32,
    /// Quantizer offset in large pictures, for the key frame, the altref frame, and transient
    /// stances and looks.
    #[serde(rename = "larger")]
    pub large_picture_offset: u32,
    /// Quantizer of all changes except lips, and how much finer than the lips' it may be at most.
    /// With coarse lips, finer eyes would take too many bytes.
    #[serde(rename = "quantizer")]
    pub base_quantizer: (u32, u32),
    /// Quantizers of moving lips, finest first. The first one that makes the set small enough is
    /// used.
    #[serde(rename = "quantizers")]
    pub lip_quantizers: Vec<u32>,
    /// Stances that are only seen in transitions, for a tenth of a second each, and their quantizer
    /// offset.
    #[serde(rename = "passing")]
    pub transient_stances: (Vec<u8>, u32),
    /// Looks that are only seen for one or two frames, and their quantizer offset.
    #[serde(rename = "brief")]
    pub transient_looks: (Vec<u8>, u32),
    /// Quantizer offsets of the further quality levels.
    #[serde(rename = "coarser")]
    pub level_offsets: Vec<u32>,
}

impl PosePlan {
    /// The poses that the users of [`crate::face`] request: blinks, glances, a thinker's gaze, a
    /// listener's lean and nods.
    #[must_use]
    pub fn new() -> Self {
        let look = |lids, [gaze_x, gaze_y]: [f32; 2]| Look {
            eyes: Eyes { lids, gaze_x, gaze_y, squint: 0.0 },
            brows: Brows::default(),
        };
        let user = [0.0; 2];
        // Brows raised by this fraction.
        let with = |brows: Brows, part: f32, look: Look| Look {
            brows: Brows { raise: brows.raise * part, knit: brows.knit * part },
            ..look
        };
        let stance = |lean: f32, nod: f32, smile: f32| Stance {
            head: Head {
                yaw: LISTENING_HEAD.yaw * lean,
                pitch: LISTENING_HEAD.pitch * lean + nod * NOD_DEPTH,
                roll: LISTENING_HEAD.roll * lean,
            },
            smile,
        };
        // Open, half closed, closed, a quarter closed, side glances.
        let calm = 0..6;
        // A blink may occur at any time.
        let blinks = vec![0, 1, 2, 3];
        Self {
            stances: vec![
                stance(0.0, 0.0, 0.0),
                stance(0.25, 0.0, 0.0),
                stance(0.5, 0.0, 0.0),
                stance(0.75, 0.0, 0.0),
                stance(1.0, 0.0, 0.0),
                stance(1.0, 0.34, 0.0),
                stance(1.0, 0.68, 0.0),
                stance(1.0, 1.0, 0.0),
                stance(0.0, 0.0, 0.5),
                stance(0.0, 0.0, 1.0),
                stance(1.0, 0.0, 0.5),
                stance(1.0, 0.0, 1.0),
            ],
            stance_looks: vec![
                blinks.clone(),
                blinks.clone(),
                blinks.clone(),
                calm.clone().collect(),
                blinks.clone(),
                blinks.clone(),
                blinks.clone(),
                blinks.clone(),
                blinks.clone(),
                blinks.clone(),
                blinks,
            ],
            breaths: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            breathing_poses: [0, 4]
                .into_iter()
                .flat_map(|stance| calm.clone().map(move |look| (stance, look)))
                .collect(),
            looks: vec![
                look(0.0, user),
                look(0.55, user),
                look(1.0, user),
                look(0.25, user),
                look(0.0, [-SIDE_GLANCE[0], SIDE_GLANCE[1]]),
                look(0.0, SIDE_GLANCE),
                with(EMPHASIS_BROWS, 1.0, look(0.0, user)),
                with(EMPHASIS_BROWS, 0.5, look(0.0, user)),
                with(THINKING_BROWS, 1.0, look(0.0, THINKING_GAZE)),
                with(THINKING_BROWS, 1.0, look(0.55, THINKING_GAZE)),
                with(THINKING_BROWS, 1.0, look(1.0, user)),
                with(THINKING_BROWS, 0.5, look(0.0, THINKING_GAZE)),
                with(THINKING_BROWS, 0.5, look(0.0, user)),
            ],
            speaking_stances: vec![(0, (0..8).collect()), (4, vec![0, 1, 2])],
            mouths: speech_mouths(),
            altref_stances: vec![4, 5, 6, 7, 10, 11],
            key_quantizer: 8,
            altref_quantizer: 20,
            large_picture_offset: 4,
            base_quantizer: (30, 2),
            lip_quantizers: vec![30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 54],
            transient_stances: (vec![1, 2, 3, 5, 6, 7], 8),
            transient_looks: (vec![1, 2, 3], 8),
            level_offsets: vec![20],
        }
    }
}

/// Pictures with more pixels are large. A larger part of them is flat, so key frame and altref
/// frame may be coarser.
pub(super) const LARGE_PICTURE_PIXELS: usize = 512 * 512;

impl PosePlan {
    /// The plan for pictures of this size. In large ones, lips move only with the upright head and
    /// without raised brows, so that the set is no larger than others.
    #[must_use]
    pub fn for_size((width, height): (usize, usize)) -> Self {
        let mut plan = Self::new();
        if width * height > LARGE_PICTURE_PIXELS {
            plan.speaking_stances = vec![(0, (0..6).collect())];
        }
        plan
    }

    /// Whether lips move in this stance with this look.
    fn lips_move(&self, stance: u8, look: u8) -> bool {
        self.speaking_stances.iter().any(|(talks, looks)| *talks == stance && looks.contains(&look))
    }

    /// The poses in the order of a set: rest first.
    #[must_use]
    pub fn pose_ids(&self) -> Vec<PoseId> {
        let mut ids = Vec::new();
        let calm: Vec<u8> = (0..self.looks.len() as u8).collect();
        for (stance, looks) in
            (0..self.stances.len() as u8).zip(std::iter::once(&calm).chain(&self.stance_looks))
        {
            for &look in looks {
                let mouths = if self.lips_move(stance, look) { self.mouths.len() } else { 1 };
                ids.extend((0..mouths as u8).map(|mouth| PoseId {
                    stance,
                    look,
                    mouth,
                    breath: 0,
                }));
            }
        }
        for &(stance, look) in &self.breathing_poses {
            ids.extend((1..self.breaths.len() as u8).map(|breath| PoseId {
                stance,
                look,
                mouth: 0,
                breath,
            }));
        }
        ids
    }
}

/// A subset of a plan's states that can be shown by itself. Each list is in ascending order and
/// includes rest.
#[derive(Clone, Debug)]
pub struct PlanSubset {
    /// Indices into [`PosePlan::stances`]. A subset with an altref stance includes the first of
    /// these.
    pub stances: Vec<u8>,
    /// Indices into [`PosePlan::looks`].
    pub looks: Vec<u8>,
    /// Indices into [`PosePlan::mouths`].
    pub mouths: Vec<u8>,
}

impl PlanSubset {
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
    /// The subsets of [`PosePlan::new`] that are drawn first, because they are needed soonest. The
    /// first one is enough to speak, blink, breathe and lean; the second one lacks only nods and
    /// smiles. Both include the closures of the lips: a missed closure is what viewers notice.
    #[must_use]
    pub fn progressive_subsets() -> Vec<PlanSubset> {
        let all = PlanSubset::full(&Self::new());
        // A lean includes its middle: a head must not jump further than in the full set.
        let first = PlanSubset {
            stances: vec![0, 2, 4],
            looks: vec![0, 1, 2, 3],
            // Pressed, tucked; jaw slightly open, half open and wide; spread, rounded, pursed.
            mouths: vec![0, 1, 5, 11, 13, 15, 19, 24, 28],
        };
        vec![first, PlanSubset { stances: vec![0, 1, 2, 3, 4], ..all }]
    }

    /// The plan of a subset alone, with its states renumbered.
    #[must_use]
    pub fn subset(&self, subset: &PlanSubset) -> Self {
        fn chosen<T: Copy>(list: &[T], which: &[u8]) -> Vec<T> {
            which.iter().map(|i| list[usize::from(*i)]).collect()
        }
        let place =
            |which: &[u8], i: u8| which.iter().position(|one| *one == i).map(|place| place as u8);
        let stances =
            |list: &[u8]| list.iter().filter_map(|i| place(&subset.stances, *i)).collect();
        let looks =
            |list: &[u8]| list.iter().filter_map(|i| place(&subset.looks, *i)).collect::<Vec<u8>>();
        let breathing = self.breathing_poses.iter().filter_map(|(stance, look)| {
            Some((place(&subset.stances, *stance)?, place(&subset.looks, *look)?))
        });
        // A leaning head speaks with all mouths or none, so that the first subset is ready soon.
        let whole = subset.mouths.len() == self.mouths.len();
        let talking = self.speaking_stances.iter().filter(|(stance, _)| *stance == 0 || whole);
        Self {
            stances: chosen(&self.stances, &subset.stances),
            looks: chosen(&self.looks, &subset.looks),
            speaking_stances: talking
                .filter_map(|(s, list)| Some((place(&subset.stances, *s)?, looks(list))))
                .collect(),
            mouths: chosen(&self.mouths, &subset.mouths),
            stance_looks: subset.stances[1..]
                .iter()
                .filter_map(|stance| {
                    self.stance_looks.get(usize::from(*stance) - 1).map(|list| looks(list))
                })
                .collect(),
            breaths: self.breaths.clone(),
            breathing_poses: breathing.collect(),
            altref_stances: stances(&self.altref_stances),
            key_quantizer: self.key_quantizer,
            altref_quantizer: self.altref_quantizer,
            large_picture_offset: self.large_picture_offset,
            base_quantizer: self.base_quantizer,
            lip_quantizers: self.lip_quantizers.clone(),
            transient_stances: (stances(&self.transient_stances.0), self.transient_stances.1),
            transient_looks: (looks(&self.transient_looks.0), self.transient_looks.1),
            level_offsets: self.level_offsets.clone(),
        }
    }
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
}

impl Default for PosePlan {
    fn default() -> Self {
        Self::new()
    }
}

/// Mouths of speech: closures, then openings by shape.
fn speech_mouths() -> Vec<Mouth> {
    let m = |jaw, width, round, tongue| Mouth { jaw, width, round, tongue, ..Mouth::default() };
    let mut all = vec![
        Mouth::default(),
        Mouth { press: 1.0, ..m(0.04, 0.0, 0.1, 0.0) },
        Mouth { press: 1.0, ..m(0.04, -0.2, 0.7, 0.0) },
        Mouth { press: 0.5, ..m(0.14, 0.1, 0.05, 0.0) },
        Mouth { press: 0.5, ..m(0.12, -0.2, 0.6, 0.0) },
        Mouth { tuck: 1.0, ..m(0.18, 0.1, 0.05, 0.0) },
        Mouth { tuck: 0.5, ..m(0.26, 0.1, 0.05, 0.0) },
        m(0.28, 0.1, 0.0, 1.0),
        m(0.18, 0.2, 0.0, 0.55),
        m(0.34, 0.2, 0.0, 0.55),
    ];
    all.extend([0.08, 0.17, 0.28, 0.40, 0.54, 0.70, 0.88].map(|jaw| m(jaw, 0.1, 0.05, 0.1)));
    all.extend([0.08, 0.17, 0.28, 0.42].map(|jaw| m(jaw, 0.55, 0.0, 0.15)));
    all.extend([0.10, 0.20, 0.30, 0.42, 0.56, 0.70].map(|jaw| m(jaw, -0.15, 0.45, 0.1)));
    all.extend([0.10, 0.20, 0.30, 0.44].map(|jaw| m(jaw, -0.25, 0.9, 0.0)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pictures_have_some_of_the_poses_of_others() {
        let (all, large) = (PosePlan::for_size((512, 512)), PosePlan::for_size((1280, 720)));
        assert_eq!(all.pose_ids(), PosePlan::new().pose_ids());
        assert!(large.pose_ids().iter().all(|key| all.pose_ids().contains(key)));
        assert!(
            large.pose_ids().len() * 3 < all.pose_ids().len() * 2,
            "{} poses",
            large.pose_ids().len()
        );
        // A speaking avatar blinks and glances to the side.
        assert!(large.lips_move(0, 2) && large.lips_move(0, 4));
    }

    #[test]
    fn a_share_is_a_part_of_the_plan_and_each_holds_what_the_one_before_holds() {
        let plan = PosePlan::new();
        let all = plan.pose_ids();
        let mut subsets = PosePlan::progressive_subsets();
        subsets.push(PlanSubset::full(&plan));
        let mut before = Vec::new();
        for subset in &subsets {
            let part = plan.subset(subset);
            let keys: Vec<PoseId> =
                part.pose_ids().into_iter().map(|key| subset.to_full_plan(key)).collect();
            assert_eq!(keys[0], PoseId::default());
            assert!(
                keys.iter().all(|key| all.contains(key))
                    && before.iter().all(|key| keys.contains(key))
            );
            assert_eq!(subset.stances[usize::from(part.altref_stances[0])], plan.altref_stances[0]);
            assert!(
                part.mouths.iter().any(|m| m.press == 1.0)
                    && part.mouths.iter().any(|m| m.tuck == 1.0)
            );
            before = keys;
        }
        assert_eq!(before, all, "the whole is a share as well");
    }
}
