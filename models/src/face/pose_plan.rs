//! The plan of a pose set: which poses of an avatar are drawn and baked, and with which quantizers.

use character::{Brows, Eyes, Head, Mouth};
use serde::Serialize;

use super::manifest::{Look, PoseId, SpeakingHead, Stance};
use super::plan_heads::{CHARACTER_EXTENT, PHOTO_EXTENT, PlanExtent, PlannedStances};

pub use super::plan_heads::{CHARACTER_HEADS, PHOTO_HEADS, PlannedHead};

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
pub const SIDE_GLANCE: [f32; 2] = [0.25, -0.05];

/// Indices into [`PosePlan::looks`]: lids, side glances, raised brows, and a thinker's looks.
pub(super) const OPEN: u8 = 0;
pub(super) const HALF_SHUT: u8 = 1;
pub(super) const SHUT: u8 = 2;
pub(super) const QUARTER_SHUT: u8 = 3;
pub(super) const GLANCES: [u8; 2] = [4, 5];
pub(super) const BROWS: u8 = 6;
pub(super) const BROWS_HALFWAY: u8 = 7;
pub(super) const THINKING: [u8; 5] = [8, 9, 10, 11, 12];

/// Poses to draw, relative to rest.
#[derive(Clone, Serialize)]
pub struct PosePlan {
    /// Heads and expressions, rest first.
    pub stances: Vec<Stance>,
    /// Eyes and brows, rest first.
    pub looks: Vec<Look>,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// Rise of the chest, breathed out first.
    pub breaths: Vec<f32>,
    /// The poses that are baked. The first one is rest.
    pub groups: Vec<PoseGroup>,
    /// The heads that speak, rest first.
    pub heads: Vec<SpeakingHead>,
    /// For each anchor: the stances whose frames refer to it. It shows the first of them. The
    /// frames of all other stances refer to the key frame.
    pub anchors: Vec<Vec<u8>>,
    /// Quantizer of the key frame.
    pub key_quantizer: u32,
    /// Quantizer of the anchors. It determines the quality of all that does not move in the poses
    /// that refer to them.
    pub anchor_quantizer: u32,
    /// Quantizer offset in large pictures, for the key frame, the anchors, and groups with an
    /// offset.
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
    /// Quantizer offsets of the further quality levels.
    #[serde(rename = "coarser")]
    pub level_offsets: Vec<u32>,
}

/// Poses of one stance with one look: each mouth with each breath.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoseGroup {
    /// Index into [`PosePlan::stances`].
    pub stance: u8,
    /// Index into [`PosePlan::looks`].
    pub look: u8,
    /// Indices into [`PosePlan::mouths`].
    pub mouths: Vec<u8>,
    /// Indices into [`PosePlan::breaths`].
    pub breaths: Vec<u8>,
    /// Quantizer offset of what is seen only briefly, except lips that speak.
    pub offset: u32,
    /// Whether the poses are baked in all quality levels, or in the finest one only.
    pub coarse: bool,
}

impl PoseGroup {
    /// Its poses.
    pub fn pose_ids(&self) -> impl Iterator<Item = PoseId> {
        let Self { stance, look, .. } = *self;
        self.mouths.iter().flat_map(move |&mouth| {
            self.breaths.iter().map(move |&breath| PoseId { stance, look, mouth, breath })
        })
    }
}

/// Pictures with more pixels are large. A larger part of them is flat, so key frame and anchors may
/// be coarser.
pub(super) const LARGE_PICTURE_PIXELS: usize = 512 * 512;

impl PosePlan {
    /// The poses of a drawn character.
    #[must_use]
    pub fn new() -> Self {
        Self::with_heads(CHARACTER_HEADS)
    }

    /// The poses of a photo.
    #[must_use]
    pub fn for_photo() -> Self {
        Self::planned(PHOTO_HEADS, &PHOTO_EXTENT)
    }

    /// The poses that a listener and a speaker with these heads need: blinks, glances, a thinker's
    /// gaze, a listener's lean and nods, and the ways between the heads. The first head is calm
    /// rest, and that of each mood is before the others of the mood.
    #[must_use]
    pub fn with_heads(heads: &[PlannedHead]) -> Self {
        Self::planned(heads, &CHARACTER_EXTENT)
    }

    fn planned(heads: &[PlannedHead], extent: &'static PlanExtent) -> Self {
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
        let mouths = speech_mouths();
        let breaths = vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
        let PlannedStances { stances, groups, heads, anchors, .. } =
            PlannedStances::new(heads, extent, mouths.len() as u8, breaths.len() as u8);
        Self {
            stances,
            // In the order of the constants above.
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
            mouths,
            breaths,
            groups,
            heads,
            anchors,
            key_quantizer: 8,
            anchor_quantizer: 24,
            large_picture_offset: 4,
            base_quantizer: (30, 2),
            lip_quantizers: vec![30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 58, 63],
            level_offsets: vec![20],
        }
    }

    /// The poses in the order of a set: rest first.
    #[must_use]
    pub fn pose_ids(&self) -> Vec<PoseId> {
        self.groups.iter().flat_map(PoseGroup::pose_ids).collect()
    }

    /// The first stance that differs from this one in the brows only, or itself: only eyes and
    /// brows are drawn for both.
    #[must_use]
    pub fn drawn_stance(&self, stance: u8) -> u8 {
        let of = |stance: &Stance| (stance.head, stance.smile);
        let own = self.stances.get(usize::from(stance)).map(of);
        let same = self.stances.iter().position(|other| Some(of(other)) == own);
        same.map_or(stance, |same| same as u8)
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
    use sha2::{Digest, Sha256};

    use super::super::bake::PLAN_VERSION;
    use super::super::manifest::{HeadName, Mood};
    use super::super::plan_subset::PlanSubset;
    use super::*;

    /// The looks with more than one mouth, and these mouths.
    fn spoken(plan: &PosePlan, stance: u8) -> Vec<(u8, &[u8])> {
        let groups = plan.groups.iter().filter(|group| group.stance == stance);
        groups
            .filter(|group| group.mouths.len() > 1)
            .map(|group| (group.look, &*group.mouths))
            .collect()
    }

    fn plans() -> [PosePlan; 2] {
        [PosePlan::new(), PosePlan::for_photo()]
    }

    /// The plans of the current version. If they change after a release, so must
    /// [`super::super::bake::PLAN_VERSION`].
    const PLANS_OF_VERSION: (u32, &str) = (3, "602ed1f9a8b17498");

    #[test]
    fn another_plan_has_another_version() {
        let plans = serde_json::to_vec(&plans()).unwrap();
        let hash: String =
            Sha256::digest(plans).iter().take(8).map(|b| format!("{b:02x}")).collect();
        assert_eq!((PLAN_VERSION, hash.as_str()), PLANS_OF_VERSION);
    }

    #[test]
    fn each_pose_is_baked_once_and_rest_is_first() {
        for plan in plans() {
            let mut ids = plan.pose_ids();
            assert_eq!(ids[0], PoseId::default());
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), count);
            // Each look in which the chest rises is also there breathed out.
            assert!(ids.iter().all(|id| ids.contains(&PoseId { breath: 0, ..*id })));
        }
    }

    #[test]
    fn a_head_that_speaks_has_all_mouths_its_anchor_and_a_way_from_rest() {
        for plan in plans() {
            let rest = |mood| {
                let is_rest =
                    |head: &&SpeakingHead| (head.name, head.mood) == (HeadName::Rest, mood);
                plan.heads.iter().find(is_rest)
            };
            for head in &plan.heads {
                let mouths: Vec<Vec<u8>> =
                    spoken(&plan, head.stance).into_iter().map(|(_, list)| list.to_vec()).collect();
                assert_eq!(mouths[0].len(), plan.mouths.len(), "{head:?}");
                let anchor = plan.anchors.iter().find(|stances| stances.contains(&head.stance));
                assert_eq!(anchor.is_none(), head.stance == 0, "{head:?}");
                assert!(anchor.is_none_or(|stances| stances[0] == head.stance), "{head:?}");
                // Equal steps of at most the fifth of a way.
                let from = match (head.name, head.mood) {
                    (HeadName::Rest, _) => Stance::default(),
                    // A mood without a head at rest leads there from calm rest.
                    (_, mood) => rest(mood)
                        .map_or_else(Stance::default, |r| plan.stances[usize::from(r.stance)]),
                };
                let way: Vec<Stance> =
                    head.ways.iter().map(|way| plan.stances[usize::from(*way)]).collect();
                let to = plan.stances[usize::from(head.stance)];
                let steps = (way.len() + 1) as f32;
                for (k, way) in (1_u8..).zip(&way) {
                    let part = f32::from(k) / steps;
                    for value in [
                        |s: &Stance| s.head.yaw,
                        |s: &Stance| s.head.roll,
                        |s: &Stance| s.smile,
                        |s: &Stance| s.brows.knit,
                    ] {
                        let straight = value(&from) + (value(&to) - value(&from)) * part;
                        assert!((value(way) - straight).abs() < 1e-5, "{head:?}, step {k}");
                    }
                }
                assert_eq!(way.is_empty(), head.stance == 0, "{head:?}");
            }
        }
    }

    #[test]
    fn on_the_way_lips_are_nearly_shut_and_closures_are_shown() {
        for plan in plans() {
            let from_rest = |head: &&SpeakingHead| {
                [Mood::Calm, Mood::Curious].contains(&head.mood) || head.name == HeadName::Rest
            };
            let mut ways = 0;
            for way in plan.heads.iter().filter(from_rest).flat_map(|head| &head.ways) {
                let spoken = spoken(&plan, *way);
                let (_, mouths) = spoken.iter().find(|(look, _)| *look == OPEN).unwrap();
                let mouths: Vec<Mouth> =
                    mouths.iter().map(|mouth| plan.mouths[usize::from(*mouth)]).collect();
                assert!(mouths.iter().all(|mouth| mouth.jaw <= 0.2), "{mouths:?}");
                assert!(mouths.iter().any(|mouth| mouth.press == 1.0));
                assert!(mouths.iter().any(|mouth| mouth.tuck == 1.0));
                ways += 1;
            }
            assert!(ways >= 16);
        }
    }

    #[test]
    fn raised_brows_share_the_mouths_of_their_head() {
        let plan = PosePlan::for_photo();
        let raised: Vec<(Mood, HeadName, u8)> = plan
            .heads
            .iter()
            .filter_map(|head| Some((head.mood, head.name, head.raised?)))
            .collect();
        assert_eq!(raised.len(), 2);
        for (_, _, stance) in &raised {
            let base = plan.stances[usize::from(plan.drawn_stance(*stance))];
            let own = plan.stances[usize::from(*stance)];
            assert_eq!((base.head, base.smile), (own.head, own.smile));
            assert!(own.brows.raise > base.brows.raise);
            assert!(plan.groups.iter().all(|group| group.stance != *stance || group.look != OPEN));
        }
    }

    #[test]
    fn the_first_share_speaks_upright_and_the_second_with_all_calm_heads() {
        for plan in plans() {
            let calm: Vec<HeadName> = plan
                .heads
                .iter()
                .filter(|head| head.mood == Mood::Calm)
                .map(|head| head.name)
                .collect();
            let shares = plan.progressive_subsets();
            let heads = shares.iter().map(|share| plan.subset(share).heads);
            let names = heads.map(|heads| heads.iter().map(|head| head.name).collect());
            assert_eq!(names.collect::<Vec<Vec<_>>>(), [vec![HeadName::Rest], calm]);
        }
    }

    #[test]
    fn a_share_is_a_part_of_the_plan_and_each_holds_what_the_one_before_holds() {
        for plan in plans() {
            let all = plan.pose_ids();
            let mut subsets = plan.progressive_subsets();
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
                let whole = |stance: &u8| subset.stances[usize::from(*stance)];
                for anchor in &part.anchors {
                    let shown = whole(&anchor[0]);
                    assert!(plan.anchors.iter().any(|anchor| anchor[0] == shown));
                }
                for head in &part.heads {
                    assert!(plan.heads.iter().any(|same| {
                        same.stance == whole(&head.stance)
                            && same.ways == head.ways.iter().map(whole).collect::<Vec<u8>>()
                    }));
                }
                assert!(
                    part.mouths.iter().any(|m| m.press == 1.0)
                        && part.mouths.iter().any(|m| m.tuck == 1.0)
                );
                before = keys;
            }
            assert_eq!(before, all, "the whole is a share as well");
        }
    }
}
