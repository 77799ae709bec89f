//! What a face does while it does not speak: it leans toward the user, nods, smiles and breathes.
//!
//! A smile of joy lasts one to a few seconds, and rises in a third of a second (Ekman & Friesen,
//! "Felt, false, and miserable smiles", 1982). At rest people take twelve to sixteen breaths a
//! minute; breathing out takes longer than breathing in, and a pause follows.

use std::time::Duration;

use conversation::time::Time;
use models::face::{HeadName, Mood};
use rand::Rng;
use rand::rngs::SmallRng;

use super::head_mover::{HeadMover, QUICK_STEP};
use super::listener_cues::Cue;
use super::motion::random_seconds;
use super::stance_paths::{PathEnd, Place, StancePaths};
use super::visemes::smoothstep;

/// Duration of half a nod: down, or up.
const HALF_NOD_SECONDS: f32 = 0.23;
/// A nod request expires if it cannot start within this time.
const NOD_TIMEOUT: Duration = Duration::from_millis(700);
/// Minimum time between two nods.
const NOD_INTERVAL: Duration = Duration::from_secs(3);
/// Duration of a lean.
const LEAN_SECONDS: f32 = 0.55;
/// Time for a smile to rise or fall, and to answer what the user said.
const SMILE_SECONDS: f32 = 0.36;
const QUICK_SMILE_SECONDS: f32 = 0.15;
/// Duration of a smile at what the user said.
const ANSWERING_SMILE: Duration = Duration::from_millis(1600);
/// Shares of a breath for breathing in and out; the rest is the pause before the next breath. Each
/// picture of a moving chest takes some hundred bytes, so the pause is long.
const INHALE_SHARE: f32 = 0.17;
const EXHALE_SHARE: f32 = 0.23;
/// Delay of the next breath after the motion that blocked it, seconds.
const BREATH_DELAY_SECONDS: f32 = 0.5;
/// Time for a raised chest to sink quickly from its highest point, seconds.
pub(super) const QUICK_EXHALE_SECONDS: f32 = 0.12;

/// A listener's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Listener {
    /// The head leans from this time on.
    lean_from: Time,
    /// Time of a nod request that has not started.
    nod_requested_at: Option<Time>,
    last_nod_at: Option<Time>,
    /// Start and end of the current or next smile.
    smile_period: Option<(Time, Time)>,
    /// Time of a whole smile to rise.
    smile_seconds: f32,
}

impl Listener {
    /// Handles the first frame: an agent without a greeting smiles at the user, then leans toward
    /// the user.
    pub(super) fn start(&mut self, now: Time, smiles: bool, rng: &mut SmallRng) {
        self.lean_from = now + random_seconds(rng, 2.4, 3.0);
        self.smile_seconds = SMILE_SECONDS;
        let (begin, end) = (random_seconds(rng, 0.2, 0.4), random_seconds(rng, 1.5, 2.0));
        self.smile_period = smiles.then_some((now + begin, now + end));
    }

    /// The agent begins to listen. After speech it is still for a moment, and then often waits for
    /// the answer with a smile, once the head leans.
    pub(super) fn listen(&mut self, now: Time, has_spoken: bool, rng: &mut SmallRng) {
        self.stop();
        self.lean_from = now;
        self.smile_seconds = SMILE_SECONDS;
        if has_spoken {
            self.lean_from = now + random_seconds(rng, 0.55, 1.2);
            if rng.random_bool(0.6) {
                let lean = Duration::from_secs_f32(LEAN_SECONDS);
                let begin = self.lean_from + lean + random_seconds(rng, 0.1, 0.5);
                self.smile_period = Some((begin, begin + random_seconds(rng, 1.4, 2.8)));
            }
        }
    }

    /// The agent stops listening.
    pub(super) fn stop(&mut self) {
        self.nod_requested_at = None;
        self.smile_period = None;
    }

    /// The user begins to speak: a smile ends, because it was answered.
    pub(super) fn on_user_speech(&mut self) {
        self.smile_period = None;
    }

    /// The user said something to react to.
    pub(super) fn on_cue(&mut self, cue: Cue, now: Time) {
        match cue {
            Cue::Joy => {
                self.smile_period = Some((now, now + ANSWERING_SMILE));
                self.smile_seconds = QUICK_SMILE_SECONDS;
                self.nod_requested_at = None;
            }
            Cue::ClauseEnd => self.request_nod(now),
        }
    }

    /// Requests a small nod. It comes soon or not at all.
    pub(super) fn request_nod(&mut self, now: Time) {
        let rested = self.last_nod_at.is_none_or(|last| now.since(last) >= NOD_INTERVAL);
        if rested && !self.is_smiling(now) {
            self.nod_requested_at = Some(now);
        }
    }

    fn is_smiling(&self, now: Time) -> bool {
        self.smile_period.is_some_and(|(begin, end)| (begin..end).contains(&now))
    }

    /// Whether a smile or a nod is due, which the chest does not delay.
    pub(super) fn wants_to_move(&self, now: Time, head: &HeadMover, paths: &StancePaths) -> bool {
        let leans = paths.end(PathEnd::LEAN).is_none_or(|lean| head.at() == lean);
        self.nod_requested_at.is_some()
            || self.smile_period.is_some_and(|(_, end)| now < end)
            || (now >= self.lean_from && !leans)
    }

    /// Moves the head. `ready`: chest and brows are at rest. Returns whether a motion begins.
    pub(super) fn move_head(
        &mut self,
        now: Time,
        head: &mut HeadMover,
        paths: &StancePaths,
        ready: bool,
    ) -> bool {
        self.nod_requested_at = self.nod_requested_at.filter(|asked| now < *asked + NOD_TIMEOUT);
        let lean = paths.end(PathEnd::LEAN).unwrap_or(Place::REST);
        let step = |seconds: f32, end: Place| seconds / f32::from(paths.len(end.path).max(1));
        let smiling = self.is_smiling(now);
        if !head.is_still() {
            // A smile at what the user said does not wait for a slow lean.
            if smiling && self.smile_seconds == QUICK_SMILE_SECONDS && head.to() == lean {
                head.settle(paths);
            }
            return false;
        }
        let at = head.at();
        match paths.end_at(at) {
            PathEnd::Nod => head.go(lean, step(HALF_NOD_SECONDS, at)),
            PathEnd::Smile { .. } if smiling => return false,
            PathEnd::Smile { .. } => head.go(paths.start_of(at.path), step(SMILE_SECONDS, at)),
            _ if !ready => return false,
            PathEnd::BroadSmile => head.go(paths.start_of(at.path), QUICK_STEP),
            // A question has been asked.
            PathEnd::Head { name: HeadName::Lean, raised: true, .. } => head.go(lean, QUICK_STEP),
            PathEnd::Head { name, .. } => {
                let leaning = at == lean && name == HeadName::Lean;
                let smile = paths.end(PathEnd::Smile { leaning }).filter(|_| smiling);
                let nod =
                    paths.end(PathEnd::Nod).filter(|_| self.nod_requested_at.is_some() && leaning);
                if let Some(smile) = smile {
                    let pace = step(self.smile_seconds, smile);
                    let far = paths.route(at, smile).steps > paths.len(smile.path);
                    head.go(smile, if far { QUICK_STEP } else { pace });
                } else if let Some(nod) = nod {
                    self.nod_requested_at = None;
                    self.last_nod_at = Some(now);
                    head.go(nod, step(HALF_NOD_SECONDS, nod));
                } else if now >= self.lean_from && at != lean {
                    head.go(lean, step(LEAN_SECONDS, lean));
                } else {
                    return false;
                }
            }
        }
        true
    }
}

/// The rise and fall of the chest.
#[derive(Clone, Debug)]
pub(super) struct Chest {
    /// Start and length of the current or next breath.
    breath: (Time, Duration),
    height: f32,
}

impl Default for Chest {
    fn default() -> Self {
        Self { breath: (Time::ZERO, Duration::from_secs(4)), height: 0.0 }
    }
}

impl Chest {
    /// Handles the first frame.
    pub(super) fn start(&mut self, now: Time, rng: &mut SmallRng) {
        self.breath = (now, random_seconds(rng, 4.0, 5.4));
    }

    /// Height of the chest: 0 breathed out … 1 breathed in.
    pub(super) fn height(&self) -> f32 {
        self.height
    }

    /// Advances by `dt` seconds. Breathing is visible only in a still listener: speech uses the
    /// breath, and a thought holds it.
    pub(super) fn update(&mut self, now: Time, dt: f32, is_free: bool, rng: &mut SmallRng) {
        if !is_free {
            self.breath.0 = now + Duration::from_secs_f32(BREATH_DELAY_SECONDS);
        }
        let (begin, length) = self.breath;
        let t = now.since(begin).as_secs_f32() / length.as_secs_f32();
        if t >= 1.0 {
            self.breath = (now, random_seconds(rng, 4.0, 5.4));
        }
        let wanted = if t < INHALE_SHARE {
            smoothstep(t / INHALE_SHARE)
        } else {
            1.0 - smoothstep((t - INHALE_SHARE) / EXHALE_SHARE)
        };
        let max_step = dt / QUICK_EXHALE_SECONDS;
        self.height += (wanted - self.height).clamp(-max_step, max_step);
    }
}

/// Whether a place is a listener's own, where no lips speak.
pub(super) fn is_gesture(paths: &StancePaths, place: Place) -> bool {
    !matches!(paths.end_at(place), PathEnd::Head { .. })
}

/// The mood that is shown at a place.
pub(super) fn mood_at(paths: &StancePaths, place: Place) -> Mood {
    match paths.end_at(place) {
        PathEnd::Head { mood, .. } => mood,
        PathEnd::BroadSmile => Mood::Warm,
        PathEnd::Nod | PathEnd::Smile { .. } => Mood::Calm,
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn the_chest_rises_as_often_as_that_of_people_at_rest_and_sinks_before_a_motion() {
        let (mut chest, mut rng) = (Chest::default(), SmallRng::seed_from_u64(3));
        chest.start(Time::ZERO, &mut rng);
        let mut height = |n: u64, is_free: bool| {
            chest.update(Time::from_micros(n * 40_000), 0.04, is_free, &mut rng);
            chest.height()
        };
        let heights: Vec<f32> = (0..25 * 600).map(|n| height(n, true)).collect();
        let breaths = heights.windows(2).filter(|w| w[0] < 0.5 && w[1] >= 0.5).count();
        assert!((120..=160).contains(&breaths), "{breaths} in ten minutes");
        assert!(heights.windows(2).all(|w| (w[0] - w[1]).abs() < 0.11));
        let up = (25 * 600..).find(|n| height(*n, true) > 0.9).unwrap();
        let sinking: Vec<f32> = (up + 1..up + 6).map(|n| height(n, false)).collect();
        assert_eq!(sinking[3..], [0.0; 2], "{sinking:?}");
    }
}
