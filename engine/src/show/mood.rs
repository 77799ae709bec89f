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

/// An expression that lasts for a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Feeling {
    pub(super) mood: Mood,
    pub(super) raised_brows: bool,
}

impl Feeling {
    pub(super) const CALM: Self = Self { mood: Mood::Calm, raised_brows: false };

    /// The feeling with an expression.
    pub(super) fn of(expression: Expression) -> Self {
        let (mood, raised_brows) = match expression {
            Expression::Calm => (Mood::Calm, false),
            Expression::Warm => (Mood::Warm, false),
            Expression::Glad => (Mood::Warm, true),
            Expression::Concerned => (Mood::Serious, false),
            Expression::Curious => (Mood::Calm, true),
        };
        Self { mood, raised_brows }
    }

    /// Where a head with this feeling is at rest: upright, or leaning with curiosity. Poses that
    /// are not baked are replaced by similar ones.
    pub(super) fn home(self, paths: &StancePaths) -> Place {
        let name = match self {
            Self { mood: Mood::Calm, raised_brows: true } => HeadName::Lean,
            _ => HeadName::Rest,
        };
        let found = paths.find(name, self.mood, self.raised_brows);
        let plain = || paths.find(HeadName::Rest, self.mood, false);
        found.or_else(plain).unwrap_or(Place::REST)
    }
}

/// The feeling of a face over time.
#[derive(Clone, Debug)]
pub(super) struct MoodTracker {
    greeting_until: Time,
    /// The feeling of the last speech, and how long it lasts.
    last: (Feeling, Time),
}

impl Default for MoodTracker {
    fn default() -> Self {
        Self { greeting_until: Time::ZERO, last: (Feeling::CALM, Time::ZERO) }
    }
}

impl MoodTracker {
    /// The agent is about to greet the user.
    pub(super) fn expect_greeting(&mut self, now: Time) {
        self.greeting_until = now + GREETING;
    }

    /// A segment with this feeling plays.
    pub(super) fn on_speech(&mut self, now: Time, feeling: Feeling) {
        self.greeting_until = Time::ZERO;
        self.last = (feeling, now + HOLD);
    }

    /// The feeling before speech, if the face shows it in advance: that of a greeting that is
    /// expected, or of a segment that was requested. `None` is calm, which needs no preparation.
    pub(super) fn before_speech(
        &self,
        now: Time,
        requested: Option<(Manner, Time)>,
    ) -> Option<Feeling> {
        let requested = requested.filter(|(_, at)| now.since(*at) < PRELUDE);
        let feeling = match requested {
            Some((shown_as, _)) => Feeling::of(shown_as.expression),
            None if now < self.greeting_until => Feeling::of(Expression::Warm),
            None => Feeling::CALM,
        };
        (feeling.mood != Mood::Calm).then_some(feeling)
    }

    /// The feeling after speech.
    pub(super) fn after_speech(&self, now: Time) -> Feeling {
        if now < self.last.1 { self.last.0 } else { Feeling::CALM }
    }

    /// What was felt before does not matter any more: the user speaks.
    pub(super) fn calm_down(&mut self) {
        self.last.0 = Feeling::CALM;
        self.greeting_until = Time::ZERO;
    }
}
