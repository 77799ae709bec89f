//! The expression of a face: by the manner of what is spoken, and of what will be spoken next.

use std::time::Duration;

use conversation::direction::Expression;
use conversation::time::Time;
use models::face::{HeadName, Mood};

use super::stance_paths::{Place, StancePaths};
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

    /// The expression before speech, if the face shows it in advance: that of a greeting that is
    /// expected, or of a segment that was requested. `None` is calm, which needs no preparation.
    pub(super) fn before_speech(
        &self,
        now: Time,
        requested: Option<(Manner, Time)>,
    ) -> Option<Expression> {
        let requested = requested.filter(|(_, at)| now.since(*at) < PRELUDE);
        let expression = match requested {
            Some((shown_as, _)) => shown_as.expression,
            None if now < self.greeting_until => Expression::Warm,
            None => Expression::Calm,
        };
        (expression != Expression::Calm).then_some(expression)
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
