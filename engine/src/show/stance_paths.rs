//! The ways of a head between the stances of a pose set: a tree of paths from calm rest.
//!
//! ```text
//! rest ─┬─ lean ─┬─ nod
//!       │        └─ smile
//!       ├─ left, right, down
//!       ├─ smile
//!       ├─ warm rest ─┬─ warm right
//!       │             └─ broad smile
//!       ├─ glad rest ── glad right
//!       ├─ serious rest ── serious down
//!       └─ curious
//! ```
//!
//! Each path is a row of stances that begins after the end of its parent. A head moves along the
//! paths, and shows each stance on its way.

use models::face::pose_plan::LISTENING_HEAD;
use models::face::{Brows, Head, HeadName, Mood, PoseSet, Stance};

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathEnd {
    /// A head that may speak.
    Head {
        name: HeadName,
        mood: Mood,
        /// Whether the brows are raised.
        raised: bool,
    },
    /// The deepest point of a listener's nod.
    Nod,
    /// A listener's smile, upright or leaning.
    Smile { leaning: bool },
    /// The same smile, upright, from a warm head.
    BroadSmile,
}

impl PathEnd {
    pub(super) const LEAN: Self = Self::calm(HeadName::Lean);

    pub(super) const fn calm(name: HeadName) -> Self {
        Self::Head { name, mood: Mood::Calm, raised: false }
    }
}

/// A step of a path; step 1 is its first stance. Step 0 of path 0 is calm rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) path: u8,
    pub(super) step: u8,
}

impl Place {
    pub(super) const REST: Self = Self { path: 0, step: 0 };
}

struct Path {
    end: PathEnd,
    parent: u8,
    stances: Vec<u8>,
    /// Whether lips move in all stances but the last one, and in the last one.
    moving_lips: bool,
    speaks: bool,
    /// Number of the anchor to which the last stance refers.
    anchor: Option<u8>,
}

/// What a receiver sees on the way from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Number of steps.
    pub(super) steps: u8,
    /// Whether the lips can move on the whole way.
    pub(super) moving_lips: bool,
}

/// The paths of a pose set.
pub(super) struct StancePaths {
    paths: Vec<Path>,
    /// Stances in which a thinker looks away.
    thinking: Vec<u8>,
}

impl StancePaths {
    /// The paths of a set. `moves_lips` and `anchor` tell of a stance whether it has several mouths,
    /// and to which anchor it refers.
    pub(super) fn new(
        set: &PoseSet,
        moves_lips: impl Fn(u8) -> bool,
        anchor: impl Fn(u8) -> Option<u8>,
    ) -> Self {
        let path = |end, parent, stances: Vec<u8>| {
            let (last, ways) = stances.split_last().unwrap_or((&0, &[]));
            Path {
                end,
                parent,
                moving_lips: ways.iter().all(|way| moves_lips(*way)),
                speaks: moves_lips(*last),
                anchor: anchor(*last),
                stances,
            }
        };
        let rest = Path { stances: Vec::new(), ..path(PathEnd::calm(HeadName::Rest), 0, vec![0]) };
        let thinks = |look: u8| set.manifest().looks[usize::from(look)].eyes.gaze_y > 0.3;
        let frames = set.manifest().frames.iter();
        let thinking = frames.filter(|(id, _)| thinks(id.look)).map(|(id, _)| id.stance).collect();
        let mut paths = Self { paths: vec![rest], thinking };
        for head in set.heads().iter().filter(|head| head.stance != 0) {
            let parent = match head.name {
                HeadName::Rest => 0,
                _ => paths.find(HeadName::Rest, head.mood, false).unwrap_or_default().path,
            };
            let ends = [(Some(head.stance), false), (head.raised, true)];
            for (stance, raised) in ends.into_iter().filter_map(|end| Some((end.0?, end.1))) {
                let end = PathEnd::Head { name: head.name, mood: head.mood, raised };
                let stances = head.ways.iter().copied().chain([stance]).collect();
                paths.paths.push(path(end, parent, stances));
            }
        }
        let manifest = set.manifest();
        let known: Vec<u8> = paths.paths.iter().flat_map(|path| &path.stances).copied().collect();
        // Stances without speech, with a value by which they are sorted.
        let others = |value: &dyn Fn(&Stance) -> Option<f32>| -> Vec<u8> {
            let calm = |stance: &&(u8, &Stance)| stance.1.brows == Brows::default();
            let all: Vec<(u8, &Stance)> = (0..).zip(&manifest.stances).skip(1).collect();
            let free = all.iter().filter(|(n, _)| !known.contains(n)).filter(calm);
            let mut found: Vec<(f32, u8)> =
                free.filter_map(|(n, stance)| Some((value(stance)?, *n))).collect();
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            found.into_iter().map(|(_, n)| n).collect()
        };
        if paths.end(PathEnd::LEAN).is_none() {
            let lean = |stance: &Stance| {
                fraction_of(stance.head, LISTENING_HEAD).filter(|_| stance.smile == 0.0)
            };
            let stances = others(&lean);
            if !stances.is_empty() {
                paths.paths.push(path(PathEnd::LEAN, 0, stances));
            }
        }
        if let Some(lean) = paths.end(PathEnd::LEAN) {
            let leaning = manifest.stances[usize::from(paths.stance(lean))].head;
            let nod = |stance: &Stance| {
                let deeper = stance.head.pitch - leaning.pitch;
                let same = Head { pitch: leaning.pitch, ..stance.head } == leaning;
                (same && deeper > 0.0 && stance.smile == 0.0).then_some(deeper)
            };
            let smile = |stance: &Stance| {
                (stance.head == leaning && stance.smile > 0.0).then_some(stance.smile)
            };
            for (end, stances) in
                [(PathEnd::Nod, others(&nod)), (PathEnd::Smile { leaning: true }, others(&smile))]
            {
                if !stances.is_empty() {
                    paths.paths.push(path(end, lean.path, stances));
                }
            }
        }
        let smile = |stance: &Stance| {
            (stance.head == Head::default() && stance.smile > 0.0).then_some(stance.smile)
        };
        let stances = others(&smile);
        if let Some(broadest) = stances.last().copied() {
            paths.paths.push(path(PathEnd::Smile { leaning: false }, 0, stances));
            if let Some(warm) = paths.find(HeadName::Rest, Mood::Warm, false) {
                paths.paths.push(path(PathEnd::BroadSmile, warm.path, vec![broadest]));
            }
        }
        paths
    }

    fn path(&self, path: u8) -> &Path {
        &self.paths[usize::from(path)]
    }

    /// Number of steps of a path.
    pub(super) fn len(&self, path: u8) -> u8 {
        self.path(path).stances.len() as u8
    }

    /// The place at the end of a path.
    pub(super) fn end_of(&self, path: u8) -> Place {
        Place { path, step: self.len(path) }
    }

    /// What the path of a place leads to.
    pub(super) fn end_at(&self, place: Place) -> PathEnd {
        self.path(place.path).end
    }

    /// The place at which this path ends, if there is such a path.
    pub(super) fn end(&self, end: PathEnd) -> Option<Place> {
        let path = self.paths.iter().position(|path| path.end == end)? as u8;
        Some(self.end_of(path))
    }

    /// The place of a head, if it speaks.
    pub(super) fn find(&self, name: HeadName, mood: Mood, raised: bool) -> Option<Place> {
        self.end(PathEnd::Head { name, mood, raised }).filter(|place| self.speaks(*place))
    }

    /// Whether the place is the end of its path.
    pub(super) fn is_end(&self, place: Place) -> bool {
        place.step == self.len(place.path)
    }

    /// Whether lips speak at the end of the path of a place.
    pub(super) fn speaks(&self, place: Place) -> bool {
        self.path(place.path).speaks
    }

    /// Whether lips move at a place.
    pub(super) fn shows_lips(&self, place: Place) -> bool {
        let path = self.path(place.path);
        if self.is_end(place) { path.speaks } else { path.moving_lips }
    }

    /// Whether a thinker's eyes look away at a place.
    pub(super) fn thinks_at(&self, place: Place) -> bool {
        self.thinking.contains(&self.stance(place))
    }

    /// Whether only the head at rest speaks.
    pub(super) fn is_single(&self) -> bool {
        self.paths.iter().filter(|path| path.speaks).count() == 1
    }

    /// The anchor of the end of the path of a place.
    pub(super) fn anchor(&self, place: Place) -> Option<u8> {
        self.path(place.path).anchor
    }

    /// The stance at a place.
    pub(super) fn stance(&self, place: Place) -> u8 {
        match place.step.checked_sub(1) {
            Some(at) => self.path(place.path).stances[usize::from(at)],
            None => 0,
        }
    }

    /// The end before a place: that of the parent of its path.
    pub(super) fn start_of(&self, path: u8) -> Place {
        self.end_of(self.path(path).parent)
    }

    /// The nearer end of a path: that of the place's path, or of its parent.
    pub(super) fn nearer_end(&self, place: Place) -> Place {
        if place.step * 2 < self.len(place.path) {
            self.start_of(place.path)
        } else {
            self.end_of(place.path)
        }
    }

    /// The path after `from` on the way to the path `to`, if `from` is an ancestor.
    fn child_toward(&self, from: u8, to: u8) -> Option<u8> {
        let mut path = to;
        while path != 0 {
            let parent = self.path(path).parent;
            if parent == from {
                return Some(path);
            }
            path = parent;
        }
        None
    }

    /// Whether two paths have the same ways: those to a head, and to the same head with raised
    /// brows.
    fn are_twins(&self, a: u8, b: u8) -> bool {
        let ends = [a, b].map(|path| self.path(path).end);
        matches!(ends, [
            PathEnd::Head { name, mood, .. },
            PathEnd::Head { name: other, mood: same, .. },
        ] if (name, mood) == (other, same))
    }

    /// The next place on the way from one place to another.
    pub(super) fn next(&self, from: Place, to: Place) -> Place {
        if from == to {
            return from;
        }
        let back = |from: Place| match from.step {
            0 | 1 => self.start_of(from.path),
            step => Place { step: step - 1, ..from },
        };
        if from.path != to.path && self.are_twins(from.path, to.path) && from.step > 0 {
            let at = Place { path: to.path, ..from };
            return if self.is_end(from) && self.is_end(to) { to } else { self.next(at, to) };
        }
        if from.path == to.path {
            return if from.step < to.step {
                Place { step: from.step + 1, ..from }
            } else {
                back(from)
            };
        }
        match self.child_toward(from.path, to.path) {
            Some(child) if self.is_end(from) => Place { path: child, step: 1 },
            Some(_) => Place { step: from.step + 1, ..from },
            None => back(from),
        }
    }

    /// The way from one place to another.
    pub(super) fn route(&self, from: Place, to: Place) -> Route {
        let mut route = Route { steps: 0, moving_lips: true };
        let mut at = from;
        while at != to {
            at = self.next(at, to);
            route.steps += 1;
            route.moving_lips &= self.shows_lips(at) || at == to;
        }
        route
    }

    /// The place of these paths that resembles a place of others: as far on the way to the same
    /// end, or rest.
    pub(super) fn same_place(&self, others: &Self, place: Place) -> Place {
        let Some(end) = self.end(others.end_at(place)) else { return Place::REST };
        let (all, here) = (others.len(place.path), self.len(end.path));
        match (place.step * here).checked_add(all / 2).map(|n| n / all.max(1)) {
            Some(0) | None => self.start_of(end.path),
            Some(step) => Place { step, ..end },
        }
    }
}

/// How far `head` is on the straight way from rest to `end`, if it is on it.
fn fraction_of(head: Head, end: Head) -> Option<f32> {
    /// Maximum distance from the way, in radians.
    const TOLERANCE: f32 = 1e-4;
    let [a, b] = [head, end].map(|head| [head.yaw, head.pitch, head.roll]);
    let dot = |a: [f32; 3], b: [f32; 3]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let fraction = dot(a, b) / dot(b, b);
    let beside = a.iter().zip(b).map(|(a, b)| (a - fraction * b).abs()).fold(0.0, f32::max);
    (fraction > 0.01 && fraction < 1.01 && beside < TOLERANCE).then_some(fraction)
}

#[cfg(test)]
mod tests {
    use models::face::bake::PosePlan;

    use super::super::pose_cache::PoseCache;
    use super::super::test_poses::{cache_of, version_2};
    use super::*;

    fn head(name: HeadName, mood: Mood, raised: bool) -> PathEnd {
        PathEnd::Head { name, mood, raised }
    }

    /// All places of all paths.
    fn places(paths: &StancePaths) -> Vec<Place> {
        let steps = |path: u8| (1..=paths.len(path)).map(move |step| Place { path, step });
        let others = (1..paths.paths.len() as u8).flat_map(steps);
        [Place::REST].into_iter().chain(others).collect()
    }

    #[test]
    fn each_stance_of_a_plan_is_a_step_of_a_path() {
        for cache in [cache_of(PosePlan::new()), cache_of(PosePlan::for_photo()), version_2()] {
            let paths = cache.paths();
            let mut found: Vec<u8> =
                places(paths).into_iter().map(|place| paths.stance(place)).collect();
            found.sort_unstable();
            found.dedup();
            let all = cache.pose_set().manifest().stances.len() as u8;
            assert_eq!(found, (0..all).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn a_way_ends_after_as_many_steps_as_its_route_has() {
        let cache = cache_of(PosePlan::new());
        let paths = cache.paths();
        for from in places(paths) {
            for to in places(paths) {
                let (mut at, mut steps) = (from, 0);
                while at != to {
                    at = paths.next(at, to);
                    steps += 1;
                    assert!(steps <= 16, "{from:?} to {to:?}");
                }
                assert_eq!(paths.route(from, to).steps, steps);
            }
        }
    }

    #[test]
    fn lips_move_on_the_ways_from_rest() {
        use HeadName::{Lean, Left, Rest, Right};
        let route = |cache: &PoseCache, from, to| {
            let paths = cache.paths();
            let [from, to] = [from, to].map(|end| paths.end(end).unwrap());
            let Route { steps, moving_lips } = paths.route(from, to);
            (steps, moving_lips)
        };
        let (rest, lean) = (PathEnd::calm(Rest), PathEnd::LEAN);
        let cache = cache_of(PosePlan::new());
        let drawn = |from, to| route(&cache, from, to);
        assert_eq!(drawn(rest, PathEnd::calm(Left)), (5, true));
        assert_eq!(drawn(PathEnd::calm(Left), PathEnd::calm(Right)), (10, true));
        assert_eq!(drawn(rest, head(Lean, Mood::Curious, false)), (5, true));
        assert_eq!(drawn(rest, head(Rest, Mood::Glad, false)), (3, true));
        assert_eq!(drawn(lean, head(Right, Mood::Warm, false)), (13, false));
        assert_eq!(drawn(lean, PathEnd::Nod), (3, false));
        assert_eq!(drawn(rest, PathEnd::Smile { leaning: false }), (2, false));
        let photo = cache_of(PosePlan::for_photo());
        let photo = |from, to| route(&photo, from, to);
        assert_eq!(photo(rest, head(Lean, Mood::Calm, true)), (5, true));
        assert_eq!(photo(lean, head(Lean, Mood::Calm, true)), (1, true));
        assert_eq!(photo(rest, head(Rest, Mood::Warm, true)), (3, true));
        let paths = cache.paths();
        let lean = paths.end(PathEnd::LEAN).unwrap();
        let near = |step| paths.nearer_end(Place { step, ..lean });
        assert_eq!([1, 2, 3, 4].map(near), [Place::REST, Place::REST, lean, lean]);
    }

    #[test]
    fn a_set_of_version_2_leans_nods_and_smiles() {
        let cache = version_2();
        let paths = cache.paths();
        assert!(!paths.is_single());
        assert!(paths.find(HeadName::Lean, Mood::Calm, false).is_some());
        assert!(paths.find(HeadName::Left, Mood::Calm, false).is_none());
        let [lean, nod] = [PathEnd::LEAN, PathEnd::Nod].map(|end| paths.end(end).unwrap());
        assert!(!paths.route(Place::REST, lean).moving_lips);
        assert_eq!([lean, nod].map(|place| place.step), [5, 3]);
        assert!(paths.end(PathEnd::Smile { leaning: true }).is_some());
    }

    #[test]
    fn the_place_in_another_set_is_as_far_on_the_same_way() {
        let (plan, rich) = (PosePlan::new(), cache_of(PosePlan::new()));
        let part = cache_of(plan.subset(&plan.progressive_subsets()[0]));
        let (rich, part) = (rich.paths(), part.paths());
        for place in places(rich) {
            assert_eq!(rich.same_place(rich, place), place);
            let same = part.same_place(rich, place);
            let near = match rich.end_at(place) {
                PathEnd::LEAN => [0, 0, 1, 1, 2, 2][usize::from(place.step)],
                _ => 0,
            };
            assert!(same.step.abs_diff(near) <= 1, "{place:?}: {same:?}");
        }
    }
}
