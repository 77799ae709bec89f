//! The stances of a plan: the heads with which an avatar listens and speaks, the ways between them,
//! and the poses that are baked of each.

use character::{Brows, Head};
use serde::Serialize;

use super::manifest::{HeadName, Mood, SpeakingHead, Stance};
use super::pose_plan::{
    BROWS, BROWS_HALFWAY, GLANCES, HALF_SHUT, LISTENING_HEAD, NOD_DEPTH, OPEN, PoseGroup,
    QUARTER_SHUT, SHUT, THINKING,
};

/// Quantizer offset of what is seen for a tenth of a second: heads on the way, lids, and the chest.
/// Lips that speak are not part of that.
const TRANSIENT_OFFSET: u32 = 8;
/// The same of a head on the way, except lips that speak: nothing of it stands still.
const WAY_OFFSET: u32 = 12;
/// Number of stances on the way to a head. The crown then moves by at most 3 pixels of 512 a
/// picture.
const WAY_STEPS: u8 = 4;
/// The same for the expression of a mood.
const MOOD_STEPS: u8 = 2;
/// The stances on the way to the listening head, and that head: the first ones after rest.
pub(super) const LEAN_WAYS: [u8; WAY_STEPS as usize] = [1, 2, 3, 4];
pub(super) const LEAN: u8 = 5;
/// Depths of a nod, relative to [`NOD_DEPTH`].
const NOD_STEPS: [f32; 3] = [0.34, 0.68, 1.0];
/// A listener's smile: half, and whole.
const SMILE_STEPS: [f32; 2] = [0.5, 1.0];

/// Head turned to the picture's right, in radians. It also tilts that way: a turn alone looks stiff.
/// The other side has the opposite signs.
const TURNED_HEAD: Head = Head { yaw: 0.0524, pitch: 0.0, roll: -0.011 };
/// Head with a lowered chin, in radians.
const LOWERED_HEAD: Head = Head { yaw: 0.0, pitch: 0.052, roll: 0.0 };
/// Head of curiosity, in radians. The crown moves less than with a tilt alone, so that it takes no
/// more steps than other heads.
const TILTED_HEAD: Head = Head { yaw: 0.052, pitch: -0.011, roll: 0.052 };
/// Expressions of the moods. A glad smile shows the teeth.
const WARM_SMILE: f32 = 0.6;
const GLAD_SMILE: f32 = 0.9;
const GLAD_BROWS: Brows = Brows { raise: 0.35, knit: 0.0 };
const SERIOUS_BROWS: Brows = Brows { raise: -0.1, knit: 0.7 };
/// The same of photos, whose mouth keeps its smile.
const PHOTO_SERIOUS_BROWS: Brows = Brows { raise: 0.0, knit: 1.0 };
const CURIOUS_SMILE: f32 = -0.2;
const CURIOUS_BROWS: Brows = Brows { raise: 0.9, knit: 0.0 };

/// Mouths at rest beside closed eyes and glances, 12 of [`super::pose_plan::PosePlan::mouths`]: all
/// closures, a tongue, and each shape in two or three openings.
const FEW_MOUTHS: [u8; 12] = [0, 1, 2, 5, 8, 11, 13, 15, 19, 22, 24, 28];
/// Mouths of other heads beside closed eyes.
const LID_MOUTHS: [u8; 8] = [0, 1, 5, 11, 13, 15, 19, 28];
/// The nearly shut mouths, with the jaw open by at most 0.2: a head moves only while they are
/// shown.
const WAY_MOUTHS: [u8; 6] = [0, 1, 5, 10, 18, 27];
/// As [`LID_MOUTHS`] and [`WAY_MOUTHS`], for photos.
const PHOTO_LID_MOUTHS: [u8; 6] = [0, 1, 5, 13, 19, 28];
const PHOTO_WAY_MOUTHS: [u8; 5] = [0, 1, 5, 10, 27];

/// How many mouths a plan bakes beside those of its heads.
pub(super) struct PlanExtent {
    /// With raised brows. Empty: all.
    brows: &'static [u8],
    /// With closed lids on all heads but that at rest.
    lids: &'static [u8],
    /// On the way to a head.
    ways: &'static [u8],
    /// Smile of [`Mood::Serious`].
    serious_smile: f32,
    /// Its brows.
    serious_brows: Brows,
}

/// For drawn characters.
pub(super) const CHARACTER_EXTENT: PlanExtent = PlanExtent {
    brows: &[],
    lids: &LID_MOUTHS,
    ways: &WAY_MOUTHS,
    serious_smile: -0.9,
    serious_brows: SERIOUS_BROWS,
};
/// For photos: a job has little time. Its person at rest has the photo's smile, so only the brows
/// are serious, and the mouths at rest are drawn for both.
pub(super) const PHOTO_EXTENT: PlanExtent = PlanExtent {
    brows: &FEW_MOUTHS,
    lids: &PHOTO_LID_MOUTHS,
    ways: &PHOTO_WAY_MOUTHS,
    serious_smile: 0.0,
    serious_brows: PHOTO_SERIOUS_BROWS,
};

/// A head that a plan bakes with moving lips.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlannedHead {
    /// Position of the head.
    pub name: HeadName,
    /// Expression.
    pub mood: Mood,
    /// How far the brows are raised in [`SpeakingHead::raised`].
    pub raise: Option<f32>,
}

const fn planned(name: HeadName, mood: Mood, raise: Option<f32>) -> PlannedHead {
    PlannedHead { name, mood, raise }
}

/// How far brows of photos rise with joy, and with curiosity.
const GLAD_RAISE: f32 = 0.35;
const CURIOUS_RAISE: f32 = 0.5;

/// The heads of drawn characters.
pub const CHARACTER_HEADS: &[PlannedHead] = &[
    planned(HeadName::Rest, Mood::Calm, None),
    planned(HeadName::Lean, Mood::Calm, None),
    planned(HeadName::Right, Mood::Calm, None),
    planned(HeadName::Left, Mood::Calm, None),
    planned(HeadName::Down, Mood::Calm, None),
    planned(HeadName::Rest, Mood::Warm, None),
    planned(HeadName::Right, Mood::Warm, None),
    planned(HeadName::Rest, Mood::Glad, None),
    planned(HeadName::Right, Mood::Glad, None),
    planned(HeadName::Rest, Mood::Serious, None),
    planned(HeadName::Down, Mood::Serious, None),
    planned(HeadName::Lean, Mood::Curious, None),
];
/// The heads of photos. Joy and curiosity raise the brows of other heads, whose mouths they share.
pub const PHOTO_HEADS: &[PlannedHead] = &[
    planned(HeadName::Rest, Mood::Calm, None),
    planned(HeadName::Lean, Mood::Calm, Some(CURIOUS_RAISE)),
    planned(HeadName::Right, Mood::Calm, None),
    planned(HeadName::Left, Mood::Calm, None),
    planned(HeadName::Down, Mood::Calm, None),
    planned(HeadName::Rest, Mood::Warm, Some(GLAD_RAISE)),
    planned(HeadName::Rest, Mood::Serious, None),
];

/// The stances, their poses, their anchors, and the heads among them that speak.
pub(super) struct PlannedStances {
    pub(super) stances: Vec<Stance>,
    pub(super) groups: Vec<PoseGroup>,
    pub(super) anchors: Vec<Vec<u8>>,
    pub(super) heads: Vec<SpeakingHead>,
    /// Number of mouths.
    mouths: u8,
    /// The breaths but the first.
    breaths: Vec<u8>,
    extent: &'static PlanExtent,
}

impl PlannedStances {
    /// The stances of a listener, then those of the heads that speak. The first one of these is
    /// calm rest; each other head comes after the rest of its mood.
    pub(super) fn new(
        heads: &[PlannedHead],
        extent: &'static PlanExtent,
        mouths: u8,
        breaths: u8,
    ) -> Self {
        let mut plan = Self {
            stances: Vec::new(),
            groups: Vec::new(),
            anchors: Vec::new(),
            heads: Vec::new(),
            mouths,
            breaths: (1..breaths).collect(),
            extent,
        };
        plan.add_rest();
        let leans = heads.iter().any(|head| head.name == HeadName::Lean);
        plan.add_listener(leans);
        for head in heads {
            plan.add_speaking_head(*head);
        }
        plan
    }

    fn add_rest(&mut self) {
        let (all, rest) =
            ((0..self.mouths).collect::<Vec<u8>>(), self.add_stance(Stance::default()));
        self.add_group(rest, OPEN, &all).coarse = true;
        for look in [HALF_SHUT, SHUT] {
            self.add_transient(rest, look, &FEW_MOUTHS).coarse = true;
        }
        let brows = self.extent.brows;
        self.add_group(rest, BROWS, if brows.is_empty() { &all } else { brows });
        for look in [BROWS_HALFWAY].into_iter().chain(GLANCES) {
            self.add_group(rest, look, &FEW_MOUTHS);
        }
        self.add_transient(rest, QUARTER_SHUT, &[0]).coarse = true;
        for look in THINKING {
            self.add_group(rest, look, &[0]).coarse = true;
        }
        self.add_breath(rest);
    }

    /// A listener leans, nods and smiles.
    fn add_listener(&mut self, speaks: bool) {
        let lean = Stance { head: LISTENING_HEAD, ..Stance::default() };
        let way_mouths = if speaks { self.extent.ways } else { &[0] };
        self.add_ways(Stance::default(), lean, way_mouths);
        let stance = self.add_stance(lean);
        debug_assert_eq!(stance, LEAN);
        if !speaks {
            self.add_group(stance, OPEN, &[0]);
            for look in [HALF_SHUT, SHUT] {
                self.add_transient(stance, look, &[0]);
            }
        }
        self.add_transient(stance, QUARTER_SHUT, &[0]);
        for look in GLANCES {
            self.add_group(stance, look, &[0]);
        }
        self.add_breath(stance);
        let mut anchored = vec![stance];
        for depth in NOD_STEPS {
            let pitch = LISTENING_HEAD.pitch + depth * NOD_DEPTH;
            let nod = self.add_stance(Stance { head: Head { pitch, ..LISTENING_HEAD }, ..lean });
            for look in [OPEN, SHUT] {
                self.add_transient(nod, look, &[0]);
            }
            anchored.push(nod);
        }
        for base in [Stance::default(), lean] {
            for smile in SMILE_STEPS {
                let smiling = self.add_stance(Stance { smile, ..base });
                self.add_group(smiling, OPEN, &[0]);
                for look in [HALF_SHUT, SHUT, QUARTER_SHUT] {
                    self.add_transient(smiling, look, &[0]);
                }
                if base == lean {
                    anchored.push(smiling);
                }
            }
        }
        self.anchors.push(anchored);
    }

    fn add_speaking_head(&mut self, PlannedHead { name, mood, raise }: PlannedHead) {
        let &PlanExtent { lids, ways: way_mouths, serious_smile, serious_brows, .. } = self.extent;
        let head = match (name, mood) {
            (HeadName::Rest, _) => Head::default(),
            (HeadName::Lean, Mood::Curious) => TILTED_HEAD,
            (HeadName::Lean, _) => LISTENING_HEAD,
            (HeadName::Left, _) => {
                Head { yaw: -TURNED_HEAD.yaw, roll: -TURNED_HEAD.roll, ..TURNED_HEAD }
            }
            (HeadName::Right, _) => TURNED_HEAD,
            (HeadName::Down, _) => LOWERED_HEAD,
        };
        let (smile, brows) = match mood {
            Mood::Calm => (0.0, Brows::default()),
            Mood::Warm => (WARM_SMILE, Brows::default()),
            Mood::Glad => (GLAD_SMILE, GLAD_BROWS),
            Mood::Serious => (serious_smile, serious_brows),
            Mood::Curious => (CURIOUS_SMILE, CURIOUS_BROWS),
        };
        let wanted = Stance { head, smile, brows };
        let (stance, ways) = match (name, mood) {
            (HeadName::Rest, Mood::Calm) => (0, Vec::new()),
            (HeadName::Lean, Mood::Calm) => (LEAN, LEAN_WAYS.to_vec()),
            // Expressions change in short moments, so more mouths let them.
            (HeadName::Rest, _) | (_, Mood::Calm | Mood::Curious) => {
                let ways = self.add_ways(Stance::default(), wanted, way_mouths);
                (self.add_stance(wanted), ways)
            }
            _ => {
                let upright = Stance { head: Head::default(), ..wanted };
                let ways = self.add_ways(upright, wanted, &[0]);
                (self.add_stance(wanted), ways)
            }
        };
        if stance != 0 {
            let all = (0..self.mouths).collect::<Vec<u8>>();
            self.add_group(stance, OPEN, &all);
            for look in [HALF_SHUT, SHUT] {
                self.add_transient(stance, look, lids);
            }
            if stance != LEAN {
                self.anchors.push(vec![stance]);
            }
        }
        // A thinker turns halfway to where the eyes look.
        if (name, mood) == (HeadName::Right, Mood::Calm) {
            for look in THINKING {
                self.add_group(ways[ways.len() / 2 - 1], look, &[0]);
            }
        }
        let raised = raise.map(|raise| {
            let brows = Brows { raise: brows.raise + raise, ..brows };
            let raised = self.add_stance(Stance { brows, ..wanted });
            for look in [HALF_SHUT, SHUT] {
                self.add_transient(raised, look, lids);
            }
            self.anchors.push(vec![raised]);
            raised
        });
        self.heads.push(SpeakingHead { name, mood, stance, ways, raised });
    }

    /// Adds the stances between two others, each with these mouths, and one with closed eyes.
    fn add_ways(&mut self, from: Stance, to: Stance, mouths: &[u8]) -> Vec<u8> {
        let (steps, offset) = if from.head == to.head {
            (MOOD_STEPS, TRANSIENT_OFFSET)
        } else {
            (WAY_STEPS, WAY_OFFSET)
        };
        let between =
            |k: u8, from: f32, to: f32| from + (to - from) * f32::from(k) / f32::from(steps + 1);
        let mut ways = Vec::new();
        for k in 1..=steps {
            let way = self.add_stance(Stance {
                head: Head {
                    yaw: between(k, from.head.yaw, to.head.yaw),
                    pitch: between(k, from.head.pitch, to.head.pitch),
                    roll: between(k, from.head.roll, to.head.roll),
                },
                smile: between(k, from.smile, to.smile),
                brows: Brows {
                    raise: between(k, from.brows.raise, to.brows.raise),
                    knit: between(k, from.brows.knit, to.brows.knit),
                },
            });
            self.add_group(way, OPEN, mouths).offset = offset;
            self.add_group(way, SHUT, &[0]).offset = offset;
            ways.push(way);
        }
        ways
    }

    fn add_stance(&mut self, stance: Stance) -> u8 {
        self.stances.push(stance);
        (self.stances.len() - 1) as u8
    }

    fn add_group(&mut self, stance: u8, look: u8, mouths: &[u8]) -> &mut PoseGroup {
        self.groups.push(PoseGroup {
            stance,
            look,
            mouths: mouths.to_vec(),
            breaths: vec![0],
            offset: 0,
            coarse: false,
        });
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn add_transient(&mut self, stance: u8, look: u8, mouths: &[u8]) -> &mut PoseGroup {
        let group = self.add_group(stance, look, mouths);
        group.offset = TRANSIENT_OFFSET;
        group
    }

    /// The chest rises while a listener blinks or glances.
    fn add_breath(&mut self, stance: u8) {
        for look in [OPEN, HALF_SHUT, SHUT, QUARTER_SHUT].into_iter().chain(GLANCES) {
            let breaths = self.breaths.clone();
            self.add_transient(stance, look, &[0]).breaths = breaths;
        }
    }
}
