//! The plan of a pose set: which poses of an avatar are drawn and baked, and with which quantizers.

use character::{Brows, Eyes, Head, Mouth};
use serde::Serialize;

use super::set::{Key, Look, Stance};

/// Head of a listener, in radians.
pub const LISTENING: Head = Head { yaw: 0.025, pitch: 0.012, roll: 0.038 };
/// Deepest point of a nod, relative to the head's position, in radians.
pub const NOD_DEPTH: f32 = 0.05;
/// Gaze while thinking.
pub const AWAY: [f32; 2] = [0.55, 0.5];
/// Brows while thinking.
pub const PONDERING: Brows = Brows { raise: 0.4, knit: 0.3 };
/// Brows that emphasize speech.
pub const STRESSING: Brows = Brows { raise: 0.45, knit: 0.0 };
/// A side glance while speaking or listening. The other side has the opposite sign of the first
/// number.
pub const ASIDE: [f32; 2] = [0.4, -0.05];

/// Poses to draw, relative to rest.
#[derive(Serialize)]
pub struct Plan {
    /// Heads and smiles, rest first.
    pub stances: Vec<Stance>,
    /// Eyes and brows, rest first.
    pub looks: Vec<Look>,
    /// The stances in which lips move, rest first, each with the looks that are baked with every
    /// mouth.
    pub talking: Vec<(u8, Vec<u8>)>,
    /// Mouths, the closed one first.
    pub mouths: Vec<Mouth>,
    /// For each stance but the first: the looks with which it is baked.
    pub stance_looks: Vec<Vec<u8>>,
    /// Rise of the chest, breathed out first.
    pub breaths: Vec<f32>,
    /// Pairs of stance and look that breathe, with closed mouth.
    pub breathing: Vec<(u8, u8)>,
    /// Stances whose frames refer to the altref frame, which shows the first of them. The frames of
    /// all others refer to the key frame.
    pub anchored: Vec<u8>,
    /// Quantizer of the key frame.
    pub key_quantizer: u32,
    /// Quantizer of the altref frame. It determines the quality of all that does not move in the
    /// poses that refer to it.
    pub anchor_quantizer: u32,
    /// Quantizer offset in large pictures, for the key frame, the altref frame, and transient
    /// stances and looks.
    pub larger: u32,
    /// Quantizer of all changes except lips, and how much finer than the lips' it may be at most.
    /// With coarse lips, finer eyes would take too many bytes.
    pub quantizer: (u32, u32),
    /// Quantizers of moving lips, finest first. The first one that makes the set small enough is
    /// used.
    pub quantizers: Vec<u32>,
    /// Stances that are only seen in transitions, for a tenth of a second each, and their quantizer
    /// offset.
    pub passing: (Vec<u8>, u32),
    /// Looks that are only seen for one or two frames, and their quantizer offset.
    pub brief: (Vec<u8>, u32),
    /// Quantizer offsets of the further quality levels.
    pub coarser: Vec<u32>,
}

impl Plan {
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
                yaw: LISTENING.yaw * lean,
                pitch: LISTENING.pitch * lean + nod * NOD_DEPTH,
                roll: LISTENING.roll * lean,
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
            breathing: [0, 4]
                .into_iter()
                .flat_map(|stance| calm.clone().map(move |look| (stance, look)))
                .collect(),
            looks: vec![
                look(0.0, user),
                look(0.55, user),
                look(1.0, user),
                look(0.25, user),
                look(0.0, [-ASIDE[0], ASIDE[1]]),
                look(0.0, ASIDE),
                with(STRESSING, 1.0, look(0.0, user)),
                with(STRESSING, 0.5, look(0.0, user)),
                with(PONDERING, 1.0, look(0.0, AWAY)),
                with(PONDERING, 1.0, look(0.55, AWAY)),
                with(PONDERING, 1.0, look(1.0, user)),
                with(PONDERING, 0.5, look(0.0, AWAY)),
                with(PONDERING, 0.5, look(0.0, user)),
            ],
            talking: vec![(0, (0..8).collect()), (4, vec![0, 1, 2])],
            mouths: mouths(),
            anchored: vec![4, 5, 6, 7, 10, 11],
            key_quantizer: 8,
            anchor_quantizer: 20,
            larger: 4,
            quantizer: (30, 2),
            quantizers: vec![30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 54],
            passing: (vec![1, 2, 3, 5, 6, 7], 8),
            brief: (vec![1, 2, 3], 8),
            coarser: vec![20],
        }
    }
}

/// Pictures with more pixels are large. A larger part of them is flat, so key frame and altref
/// frame may be coarser.
pub(super) const LARGE: usize = 512 * 512;

impl Plan {
    /// The plan for pictures of this size. In large ones, lips move only with the upright head and
    /// without raised brows, so that the set is no larger than others.
    #[must_use]
    pub fn of_size((width, height): (usize, usize)) -> Self {
        let mut plan = Self::new();
        if width * height > LARGE {
            plan.talking = vec![(0, (0..6).collect())];
        }
        plan
    }

    /// Whether lips move in this stance with this look.
    fn talks(&self, stance: u8, look: u8) -> bool {
        self.talking.iter().any(|(talks, looks)| *talks == stance && looks.contains(&look))
    }

    /// The poses in the order of a set: rest first.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        let calm: Vec<u8> = (0..self.looks.len() as u8).collect();
        for (stance, looks) in
            (0..self.stances.len() as u8).zip(std::iter::once(&calm).chain(&self.stance_looks))
        {
            for &look in looks {
                let mouths = if self.talks(stance, look) { self.mouths.len() } else { 1 };
                keys.extend((0..mouths as u8).map(|mouth| Key { stance, look, mouth, breath: 0 }));
            }
        }
        for &(stance, look) in &self.breathing {
            keys.extend((1..self.breaths.len() as u8).map(|breath| Key { stance, look, mouth: 0, breath }));
        }
        keys
    }
}

/// A subset of a plan's states that can be shown by itself. Each list is in ascending order and
/// includes rest.
#[derive(Clone, Debug)]
pub struct Share {
    /// Indices into [`PosePlan::stances`]. A subset with an altref stance includes the first of
    /// these.
    pub stances: Vec<u8>,
    /// Indices into [`PosePlan::looks`].
    pub looks: Vec<u8>,
    /// Indices into [`PosePlan::mouths`].
    pub mouths: Vec<u8>,
}

impl Share {
    /// Converts a pose of this subset to that of the full plan.
    #[must_use]
    pub fn whole(&self, key: Key) -> Key {
        Key {
            stance: self.stances[usize::from(key.stance)],
            look: self.looks[usize::from(key.look)],
            mouth: self.mouths[usize::from(key.mouth)],
            ..key
        }
    }
}

impl Plan {
    /// The subsets of [`PosePlan::new`] that are drawn first, because they are needed soonest. The
    /// first one is enough to speak, blink, breathe and lean; the second one lacks only nods and
    /// smiles. Both include the closures of the lips: a missed closure is what viewers notice.
    #[must_use]
    pub fn shares() -> Vec<Share> {
        let all = Share::of_all(&Self::new());
        // A lean includes its middle: a head must not jump further than in the full set.
        let first = Share {
            stances: vec![0, 2, 4],
            looks: vec![0, 1, 2, 3],
            // Pressed, tucked; jaw slightly open, half open and wide; spread, rounded, pursed.
            mouths: vec![0, 1, 5, 11, 13, 15, 19, 24, 28],
        };
        vec![first, Share { stances: vec![0, 1, 2, 3, 4], ..all }]
    }

    /// The plan of a subset alone, with its states renumbered.
    #[must_use]
    pub fn of(&self, share: &Share) -> Self {
        fn chosen<T: Copy>(list: &[T], which: &[u8]) -> Vec<T> {
            which.iter().map(|i| list[usize::from(*i)]).collect()
        }
        let place = |which: &[u8], i: u8| which.iter().position(|one| *one == i).map(|place| place as u8);
        let stances = |list: &[u8]| list.iter().filter_map(|i| place(&share.stances, *i)).collect();
        let looks = |list: &[u8]| list.iter().filter_map(|i| place(&share.looks, *i)).collect::<Vec<u8>>();
        let breathing = self.breathing.iter().filter_map(|(stance, look)| {
            Some((place(&share.stances, *stance)?, place(&share.looks, *look)?))
        });
        // A leaning head speaks with all mouths or none, so that the first subset is ready soon.
        let whole = share.mouths.len() == self.mouths.len();
        let talking = self.talking.iter().filter(|(stance, _)| *stance == 0 || whole);
        Self {
            stances: chosen(&self.stances, &share.stances),
            looks: chosen(&self.looks, &share.looks),
            talking: talking
                .filter_map(|(s, list)| Some((place(&share.stances, *s)?, looks(list))))
                .collect(),
            mouths: chosen(&self.mouths, &share.mouths),
            stance_looks: share.stances[1..]
                .iter()
                .filter_map(|stance| self.stance_looks.get(usize::from(*stance) - 1).map(|list| looks(list)))
                .collect(),
            breaths: self.breaths.clone(),
            breathing: breathing.collect(),
            anchored: stances(&self.anchored),
            key_quantizer: self.key_quantizer,
            anchor_quantizer: self.anchor_quantizer,
            larger: self.larger,
            quantizer: self.quantizer,
            quantizers: self.quantizers.clone(),
            passing: (stances(&self.passing.0), self.passing.1),
            brief: (looks(&self.brief.0), self.brief.1),
            coarser: self.coarser.clone(),
        }
    }
}

impl Share {
    /// All states of a plan.
    #[must_use]
    pub fn of_all(plan: &Plan) -> Self {
        let all = |n: usize| (0..n as u8).collect();
        Self {
            stances: all(plan.stances.len()),
            looks: all(plan.looks.len()),
            mouths: all(plan.mouths.len()),
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

/// Mouths of speech: closures, then openings by shape.
fn mouths() -> Vec<Mouth> {
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
        let (all, large) = (Plan::of_size((512, 512)), Plan::of_size((1280, 720)));
        assert_eq!(all.keys(), Plan::new().keys());
        assert!(large.keys().iter().all(|key| all.keys().contains(key)));
        assert!(large.keys().len() * 3 < all.keys().len() * 2, "{} poses", large.keys().len());
        // A speaking avatar blinks and glances to the side.
        assert!(large.talks(0, 2) && large.talks(0, 4));
    }

    #[test]
    fn a_share_is_a_part_of_the_plan_and_each_holds_what_the_one_before_holds() {
        let plan = Plan::new();
        let all = plan.keys();
        let mut shares = Plan::shares();
        shares.push(Share::of_all(&plan));
        let mut before = Vec::new();
        for share in &shares {
            let part = plan.of(share);
            let keys: Vec<Key> = part.keys().into_iter().map(|key| share.whole(key)).collect();
            assert_eq!(keys[0], Key::default());
            assert!(keys.iter().all(|key| all.contains(key)) && before.iter().all(|key| keys.contains(key)));
            assert_eq!(share.stances[usize::from(part.anchored[0])], plan.anchored[0]);
            assert!(part.mouths.iter().any(|m| m.press == 1.0) && part.mouths.iter().any(|m| m.tuck == 1.0));
            before = keys;
        }
        assert_eq!(before, all, "the whole is a share as well");
    }
}
