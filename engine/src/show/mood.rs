//! The expression of a face: by the manner of what is spoken, and of what will be spoken next.

use std::time::Duration;

use conversation::direction::Expression;
use conversation::input::SegmentId;
use conversation::time::Time;
use models::face::{HeadName, Mood};

use super::stance_paths::{Place, StancePaths};
use crate::speak::gesture_words::Gesture;
use crate::speak::manners::Manner;

/// How long a face keeps its expression after it has spoken, unless the user speaks.
const HOLD: Duration = Duration::from_millis(1000);
/// Speech is expected to begin within this time after it was requested from the TTS. Then its
/// expression is dropped.
const PRELUDE: Duration = Duration::from_secs(3);
/// The same for the greeting, from the start of the call on.
const GREETING: Duration = Duration::from_secs(6);

/// Where a head with this expression is at rest: upright, or leaning with curiosity. Poses that are
/// not baked are replaced by similar ones: photos raise the brows of other heads.
pub(super) fn home(expression: Expression, paths: &StancePaths) -> Place {
    use HeadName::{Lean, Rest};
    let [first, second, third] = match expression {
        Expression::Calm => return Place::REST,
        Expression::Warm => [(Rest, Mood::Warm, false); 3],
        Expression::Glad => {
            [(Rest, Mood::Glad, false), (Rest, Mood::Warm, true), (Rest, Mood::Warm, false)]
        }
        Expression::Concerned => [(Rest, Mood::Serious, false); 3],
        Expression::Curious => {
            [(Lean, Mood::Curious, false), (Lean, Mood::Calm, true), (Lean, Mood::Calm, false)]
        }
    };
    let find = |(name, mood, raised)| paths.find(name, mood, raised);
    find(first).or_else(|| find(second)).or_else(|| find(third)).unwrap_or(Place::REST)
}

/// A segment that was requested from the TTS and has not played.
#[derive(Clone, Copy)]
pub(super) struct Requested {
    pub(super) segment: SegmentId,
    pub(super) shown_as: Manner,
    /// When it was requested.
    pub(super) at: Time,
}

/// What a face shows before speech.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prelude {
    pub(super) expression: Expression,
    /// The gesture of the first word of this segment.
    pub(super) gesture: Option<(SegmentId, Gesture)>,
}

/// The expression of a face over time.
#[derive(Clone, Debug)]
pub(super) struct MoodTracker {
    greeting_until: Time,
    /// The expression of the last speech, and how long it lasts.
    last: (Expression, Time),
}

impl Default for MoodTracker {
    fn default() -> Self {
        Self { greeting_until: Time::ZERO, last: (Expression::Calm, Time::ZERO) }
    }
}

impl MoodTracker {
    /// The agent is about to greet the user.
    pub(super) fn expect_greeting(&mut self, now: Time) {
        self.greeting_until = now + GREETING;
    }

    /// A segment with this expression plays.
    pub(super) fn on_speech(&mut self, now: Time, expression: Expression) {
        self.greeting_until = Time::ZERO;
        self.last = (expression, now + HOLD);
    }

    /// What the face shows before speech: the expression of a greeting that is expected, or
    /// expression and gesture of a segment that was requested. `None`: nothing to prepare.
    pub(super) fn before_speech(&self, now: Time, requested: Option<Requested>) -> Option<Prelude> {
        let requested = requested.filter(|requested| now.since(requested.at) < PRELUDE);
        let (expression, gesture) = match requested {
            Some(Requested { segment, shown_as, .. }) => {
                let gesture = shown_as.opening_gesture().map(|gesture| (segment, gesture));
                (shown_as.expression, gesture)
            }
            None if now < self.greeting_until => (Expression::Warm, None),
            None => (Expression::Calm, None),
        };
        let is_needed = expression != Expression::Calm || gesture.is_some();
        is_needed.then_some(Prelude { expression, gesture })
    }

    /// The expression after speech.
    pub(super) fn after_speech(&self, now: Time) -> Expression {
        if now < self.last.1 { self.last.0 } else { Expression::Calm }
    }

    /// Earlier expressions do not matter any more: the user speaks.
    pub(super) fn calm_down(&mut self) {
        self.last.0 = Expression::Calm;
        self.greeting_until = Time::ZERO;
    }
}
