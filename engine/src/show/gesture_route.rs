//! The way of a head through a nod or a shake.

use models::face::{HeadName, Mood};

use super::stance_paths::{PathEnd, Place, Route, StancePaths};
use crate::speak::gesture_words::Gesture;

/// Depths of a nod, in steps of a path.
const NOD_DEPTHS: [u8; 3] = [3, 2, 1];
/// Turns of a shake, in steps of the paths to the left, to the right and to the left again.
const SHAKE_TURNS: [[u8; 3]; 3] = [[2, 2, 1], [2, 1, 0], [1, 1, 0]];
/// The same of a leaning head, which is turned to the right already, and becomes upright.
const LEANING_SHAKE_TURNS: [[u8; 3]; 3] = [[2, 2, 0], [2, 1, 0], [2, 0, 0]];

/// A gesture from one place to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct GestureRoute {
    /// Where the head turns around.
    turns: [Option<Place>; 3],
    end: Place,
    /// The whole way. Lips move at its turns, too.
    pub(super) route: Route,
}

impl GestureRoute {
    /// The ways to make a gesture, the largest one first. `head` is the speaking head at which the
    /// gesture begins; a listener that nods or smiles goes there first.
    pub(super) fn all(
        gesture: Gesture,
        from: Place,
        head: Place,
        end: Place,
        paths: &StancePaths,
    ) -> impl Iterator<Item = Self> {
        let turn = move |name, step: u8| {
            let head: Place = paths.find(name, Mood::Calm, false).filter(|_| step > 0)?;
            Some(Place { step: step.min(paths.len(head.path)), ..head })
        };
        // A leaning head nods as a listener does.
        let nod = paths.end(PathEnd::Nod);
        let nod = nod.filter(|nod| head == end && paths.start_of(nod.path) == head);
        let shakes =
            if paths.end(PathEnd::LEAN) == Some(head) { LEANING_SHAKE_TURNS } else { SHAKE_TURNS };
        let turns = match gesture {
            Gesture::Nod => NOD_DEPTHS.map(|depth| {
                let deepest = match nod {
                    Some(nod) => Some(Place { step: depth.min(nod.step), ..nod }),
                    None => turn(HeadName::Down, depth),
                };
                [deepest, None, None]
            }),
            Gesture::Shake => shakes.map(|[first, second, last]| {
                let [left, right] = [HeadName::Left, HeadName::Right];
                [turn(left, first), turn(right, second), turn(left, last)]
            }),
        };
        turns.into_iter().filter(|turns| turns[0].is_some()).map(move |turns| {
            let mut route = Route { steps: 0, moving_lips: true };
            let mut at = from;
            for place in turns.into_iter().flatten().chain([end]) {
                let part = paths.route(at, place);
                route.steps += part.steps;
                route.moving_lips &= part.moving_lips && paths.shows_lips(place);
                at = place;
            }
            Self { turns, end, route }
        })
    }

    /// The places at which the head arrives, the last one first.
    pub(super) fn places(self) -> impl Iterator<Item = Place> {
        [Some(self.end)].into_iter().chain(self.turns.into_iter().rev()).flatten()
    }
}
