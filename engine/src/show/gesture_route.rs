//! The way of a head through a nod or a shake.

use models::face::{HeadName, Mood};

use super::stance_paths::{PathEnd, Place, Route, StancePaths};
use crate::speak::gesture_words::Gesture;

/// Depths of a nod, in steps of a path.
const NOD_DEPTHS: [u8; 3] = [3, 2, 1];
/// Turns of a shake, in steps of the paths to the left, to the right and to the left again.
const SHAKE_TURNS: [[u8; 3]; 3] = [[2, 2, 1], [2, 1, 0], [1, 1, 0]];
/// The same of a leaning head, which turns to the upright one and back: steps before the end of its
/// path.
const LEANING_SHAKE_TURNS: [[u8; 3]; 3] = [[3, 0, 2], [2, 0, 2], [2, 0, 1]];

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
    /// The ways to make a gesture between two places, the largest one first.
    pub(super) fn all(
        gesture: Gesture,
        from: Place,
        end: Place,
        paths: &StancePaths,
    ) -> impl Iterator<Item = Self> {
        let turn = move |name, step: u8| {
            let head: Place = paths.find(name, Mood::Calm, false).filter(|_| step > 0)?;
            Some(Place { step: step.min(paths.len(head.path)), ..head })
        };
        let stays = |head: Place| from == end && head == from;
        // A leaning head nods as a listener does.
        let listeners = paths.end(PathEnd::Nod).filter(|nod| stays(paths.start_of(nod.path)));
        let leans = paths.end(PathEnd::LEAN).is_some_and(stays);
        let turns = match gesture {
            Gesture::Nod => NOD_DEPTHS.map(|depth| {
                let deepest = match listeners {
                    Some(nod) => Some(Place { step: depth.min(nod.step), ..nod }),
                    None => turn(HeadName::Down, depth),
                };
                [deepest, None, None]
            }),
            Gesture::Shake if leans => LEANING_SHAKE_TURNS.map(|turns| {
                turns.map(|back| Some(Place { step: end.step.saturating_sub(back), ..end }))
            }),
            Gesture::Shake => SHAKE_TURNS.map(|[first, second, last]| {
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
