//! Blinks, glances and brows.
//!
//! People blink 17 times a minute at rest and 26 in conversation, at log-normal intervals
//! (Bentivoglio et al., "Analysis of blink rate patterns in normal subjects", 1997). A blink closes
//! in about 80 ms and opens in 160 ms. Speakers look away now and then, and listeners less often
//! (Argyle & Cook, "Gaze and mutual gaze", 1976). Brows rise with accents and at the end of
//! questions.

use std::time::Duration;

use conversation::event::AgentState;
use conversation::time::Time;
use models::face::pose_plan::{EMPHASIS_BROWS, SIDE_GLANCE, THINKING_BROWS, THINKING_GAZE};
use models::face::{Brows, Eyes as EyePose, Look};
use rand::Rng;
use rand::rngs::SmallRng;

use super::motion::random_seconds;
use super::visemes::smoothstep;

/// Durations of a blink: closing, shut, opening.
pub(super) const BLINK_CLOSE_SECONDS: f32 = 0.08;
pub(super) const BLINK_SHUT_SECONDS: f32 = 0.05;
pub(super) const BLINK_OPEN_SECONDS: f32 = 0.16;
/// Time for the brows to rise or fall.
pub(super) const BROW_SECONDS: f32 = 0.2;

/// What the rest of the face lets the eyes do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freedom {
    /// Whether the gaze may leave the user.
    pub(super) may_glance: bool,
    /// Whether brows may rise.
    pub(super) may_raise: bool,
}

/// Eyes and brows of one avatar in one call.
#[derive(Clone, Debug)]
pub(super) struct Eyes {
    /// Start of the current or next blink.
    next_blink: Time,
    gaze: [f32; 2],
    /// When the gaze changes next.
    next_glance: Time,
    /// Shape of the brows, and their progress from 0 to 1.
    brow_shape: Brows,
    brow_height: f32,
    /// Brows stress the speech until this time.
    stress_until: Time,
    /// Side of the last glance, and when it began.
    glance: (f32, Time),
}

impl Default for Eyes {
    fn default() -> Self {
        Self {
            next_blink: Time::ZERO,
            gaze: [0.0; 2],
            next_glance: Time::ZERO,
            brow_shape: EMPHASIS_BROWS,
            brow_height: 0.0,
            stress_until: Time::ZERO,
            glance: (0.0, Time::ZERO),
        }
    }
}

impl Eyes {
    /// Handles the first frame.
    pub(super) fn start(&mut self, now: Time, state: AgentState, rng: &mut SmallRng) {
        self.next_blink = now + random_blink_delay(state, rng);
        self.next_glance = now + random_seconds(rng, 3.0, 5.0);
    }

    /// Handles a change of the agent's state.
    pub(super) fn set_state(&mut self, state: AgentState, now: Time, rng: &mut SmallRng) {
        self.look_at_user();
        // A new thought moves the eyes, and moving eyes blink.
        match state {
            AgentState::Thinking => {
                self.next_glance = now + random_seconds(rng, 0.25, 0.5);
                self.next_blink = self.next_blink.min(now + Duration::from_millis(200));
            }
            AgentState::Listening | AgentState::Speaking => {
                self.next_glance = now + random_seconds(rng, 1.2, 3.5);
            }
        }
    }

    /// Looks at the user, and lets the brows fall.
    pub(super) fn look_at_user(&mut self) {
        self.gaze = [0.0; 2];
        self.stress_until = Time::ZERO;
    }

    /// No glance begins before this time.
    pub(super) fn keep_until(&mut self, time: Time) {
        self.next_glance = self.next_glance.max(time);
    }

    /// Blinks now, unless a blink is under way.
    pub(super) fn blink(&mut self, now: Time) {
        self.next_blink = self.next_blink.min(now);
    }

    /// Whether lids are shut by more than half, or close.
    pub(super) fn is_blinking(&self, now: Time) -> bool {
        let seconds = BLINK_CLOSE_SECONDS + BLINK_SHUT_SECONDS + BLINK_OPEN_SECONDS / 2.0;
        now >= self.next_blink && now < self.next_blink + Duration::from_secs_f32(seconds)
    }

    /// No blink begins before this time.
    pub(super) fn keep_open_until(&mut self, now: Time, time: Time) {
        if self.next_blink > now {
            self.next_blink = self.next_blink.max(time);
        }
    }

    /// Raises the brows until this time.
    pub(super) fn stress(&mut self, until: Time) {
        self.stress_until = until;
    }

    /// Whether the user is looked at.
    pub(super) fn at_user(&self) -> bool {
        self.gaze == [0.0; 2]
    }

    /// Whether the brows are at rest.
    pub(super) fn brows_rest(&self) -> bool {
        self.brow_height <= 0.0
    }

    /// Side of the last glance, -1 or 1, if it was after `time`.
    pub(super) fn glanced_since(&self, time: Time) -> Option<f32> {
        (self.glance.1 >= time && self.glance.0 != 0.0).then_some(self.glance.0)
    }

    /// When the gaze left the user, if it has.
    pub(super) fn away_since(&self) -> Option<Time> {
        (!self.at_user()).then_some(self.glance.1)
    }

    /// When the next change of the gaze is due.
    pub(super) fn next_change(&self) -> Time {
        self.next_glance
    }

    /// The look at `now`.
    pub(super) fn update(
        &mut self,
        now: Time,
        dt: f32,
        state: AgentState,
        freedom: Freedom,
        rng: &mut SmallRng,
    ) -> Look {
        let lids = self.lids(now, state, rng);
        if now >= self.next_glance {
            self.change_gaze(now, state, freedom.may_glance, rng);
        }
        let [gaze_x, gaze_y] = self.gaze;
        let brows = self.update_brows(now, dt, state, freedom.may_raise);
        Look { eyes: EyePose { lids, gaze_x, gaze_y, squint: 0.0 }, brows }
    }

    /// Brows are knit while thinking and raised to stress speech. They return to rest between the
    /// two.
    fn update_brows(&mut self, now: Time, dt: f32, state: AgentState, may_raise: bool) -> Brows {
        let wanted = match state {
            AgentState::Thinking if !self.at_user() => Some(THINKING_BROWS),
            _ => (now < self.stress_until && may_raise).then_some(EMPHASIS_BROWS),
        };
        if let Some(wanted) = wanted.filter(|_| self.brows_rest()) {
            self.brow_shape = wanted;
        }
        let step = dt / BROW_SECONDS;
        let rises = wanted == Some(self.brow_shape);
        self.brow_height = (self.brow_height + if rises { step } else { -step }).clamp(0.0, 1.0);
        let part = smoothstep(self.brow_height);
        Brows { raise: self.brow_shape.raise * part, knit: self.brow_shape.knit * part }
    }

    fn lids(&mut self, now: Time, state: AgentState, rng: &mut SmallRng) -> f32 {
        if now < self.next_blink {
            return 0.0;
        }
        let t = now.since(self.next_blink).as_secs_f32();
        if t < BLINK_CLOSE_SECONDS {
            smoothstep((t + 0.02) / BLINK_CLOSE_SECONDS)
        } else if t < BLINK_CLOSE_SECONDS + BLINK_SHUT_SECONDS {
            1.0
        } else if t < BLINK_CLOSE_SECONDS + BLINK_SHUT_SECONDS + BLINK_OPEN_SECONDS {
            1.0 - smoothstep((t - BLINK_CLOSE_SECONDS - BLINK_SHUT_SECONDS) / BLINK_OPEN_SECONDS)
        } else {
            self.next_blink = now + random_blink_delay(state, rng);
            0.0
        }
    }

    fn change_gaze(&mut self, now: Time, state: AgentState, may_glance: bool, rng: &mut SmallRng) {
        let at_user = self.at_user();
        if at_user && !may_glance {
            return;
        }
        let side = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
        let aside = [SIDE_GLANCE[0] * side, SIDE_GLANCE[1]];
        let gaze_time;
        (self.gaze, gaze_time) = match (state, at_user) {
            // The gaze moves away to think, and back to check on the user.
            (AgentState::Thinking, true) => (THINKING_GAZE, random_seconds(rng, 0.9, 2.2)),
            (AgentState::Thinking, false) => ([0.0; 2], random_seconds(rng, 0.5, 1.2)),
            (AgentState::Speaking, true) => (aside, random_seconds(rng, 0.3, 0.56)),
            (AgentState::Listening, true) => (aside, random_seconds(rng, 0.25, 0.6)),
            (AgentState::Speaking, false) => ([0.0; 2], random_seconds(rng, 2.0, 5.0)),
            (AgentState::Listening, false) => ([0.0; 2], random_seconds(rng, 4.0, 9.0)),
        };
        if at_user {
            self.glance = (side, now);
        }
        self.next_glance = now + gaze_time;
    }
}

/// One blink in eight is double.
fn random_blink_delay(state: AgentState, rng: &mut SmallRng) -> Duration {
    if rng.random_bool(0.12) {
        return random_seconds(rng, 0.10, 0.25);
    }
    let median = match state {
        AgentState::Speaking => 2.0,
        AgentState::Listening | AgentState::Thinking => 3.3,
    };
    // The sum of twelve uniform numbers approximates a normal distribution.
    let normal: f32 = (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0;
    Duration::from_secs_f32((median * (0.45 * normal).exp()).clamp(0.6, 12.0))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const FREE: Freedom = Freedom { may_glance: true, may_raise: true };

    fn simulate_minutes(state: AgentState, minutes: u64) -> Vec<Look> {
        let (mut eyes, mut rng) = (Eyes::default(), SmallRng::seed_from_u64(5));
        eyes.start(Time::ZERO, state, &mut rng);
        (0..minutes * 60 * 25)
            .map(|n| eyes.update(Time::from_micros(n * 40_000), 0.04, state, FREE, &mut rng))
            .collect()
    }

    fn blinks(looks: &[Look]) -> usize {
        looks.windows(2).filter(|w| w[0].eyes.lids < 0.9 && w[1].eyes.lids >= 0.9).count()
    }

    #[test]
    fn blinks_come_as_often_as_in_people_and_more_often_in_talk() {
        let (rest, talk) = (
            blinks(&simulate_minutes(AgentState::Listening, 20)),
            blinks(&simulate_minutes(AgentState::Speaking, 20)),
        );
        assert!((12 * 20..24 * 20).contains(&rest), "{} a minute at rest", rest / 20);
        assert!((20 * 20..34 * 20).contains(&talk), "{} a minute in talk", talk / 20);
        assert!(talk > rest);
    }

    /// Sorts ascending.
    fn sorted(mut seconds: Vec<f32>) -> Vec<f32> {
        seconds.sort_by(f32::total_cmp);
        seconds
    }

    #[test]
    fn times_between_blinks_are_log_normal_as_peoples_are() {
        for (state, median) in [(AgentState::Listening, 3.3f32), (AgentState::Speaking, 2.0)] {
            let looks = simulate_minutes(state, 60);
            let shut = |n: &usize| looks[*n].eyes.lids >= 0.9 && looks[n - 1].eyes.lids < 0.9;
            let starts: Vec<usize> = (1..looks.len()).filter(shut).collect();
            // From the end of a blink to the start of the next. The second half of a double blink
            // is not counted as a new one.
            let pause = |w: &[usize]| {
                (w[1] - w[0]) as f32 * 0.04
                    - (BLINK_CLOSE_SECONDS + BLINK_SHUT_SECONDS + BLINK_OPEN_SECONDS)
            };
            let pauses =
                sorted(starts.windows(2).map(pause).filter(|pause| *pause > 0.4).collect());
            let part = |k: f32| pauses[(pauses.len() as f32 * k) as usize];
            assert!((part(0.5) / median - 1.0).abs() < 0.1, "{state:?}: {} s", part(0.5));
            // Nine tenths lie below exp(1.2816 σ) times the median; the distribution is symmetric
            // in the logarithm.
            let spread = (1.2816f32 * 0.45).exp();
            assert!((part(0.9) / part(0.5) / spread - 1.0).abs() < 0.1, "{state:?}: {}", part(0.9));
            assert!((part(0.5) / part(0.1) / spread - 1.0).abs() < 0.1, "{state:?}: {}", part(0.1));
        }
    }

    #[test]
    fn every_blink_shuts_the_eye_and_is_short() {
        let looks = simulate_minutes(AgentState::Listening, 5);
        for blink in looks.chunk_by(|a, b| (a.eyes.lids > 0.02) == (b.eyes.lids > 0.02)) {
            let is_blink = blink[0].eyes.lids > 0.02;
            assert!(!is_blink || blink.len() <= 9, "{} pictures", blink.len());
            let shut = blink.iter().any(|look| look.eyes.lids >= 1.0);
            // The last one may not have ended.
            assert!(!is_blink || shut || blink.len() < 3);
        }
    }

    #[test]
    fn glances_are_as_frequent_and_as_long_as_peoples() {
        // Gaze at the user: 40 to 75 % of the time in conversation, more while listening. Glances
        // aside last .3 to 1 s (Argyle & Cook 1976); those of an avatar are shorter, because longer
        // ones look shifty.
        for (state, share, a_minute, length) in [
            (AgentState::Speaking, 0.8..0.95, 10.0..20.0, 0.3..0.61),
            (AgentState::Listening, 0.85..0.98, 4.0..13.0, 0.2..0.65),
            (AgentState::Thinking, 0.25..0.5, 20.0..36.0, 0.85..2.25),
        ] {
            let looks = simulate_minutes(state, 30);
            let aside = |look: &Look| look.eyes.gaze_x != 0.0;
            let at_user = looks.iter().filter(|look| !aside(look)).count() as f32;
            let at_user = at_user / looks.len() as f32;
            let runs = looks.chunk_by(|a, b| aside(a) == aside(b)).filter(|run| aside(&run[0]));
            let lengths = sorted(runs.map(|run| run.len() as f32 * 0.04).collect());
            let count = lengths.len() as f32 / 30.0;
            let details = format!(
                "{state:?}: {at_user} at the user, {count} glances a minute, {:?}",
                lengths.last()
            );
            assert!(share.contains(&at_user) && a_minute.contains(&count), "{details}");
            assert!(
                length.contains(&lengths[1]) && length.contains(&lengths[lengths.len() - 2]),
                "{details}"
            );
        }
    }

    #[test]
    fn brows_rise_and_fall_over_several_pictures() {
        let (mut eyes, mut rng) = (Eyes::default(), SmallRng::seed_from_u64(1));
        eyes.start(Time::ZERO, AgentState::Speaking, &mut rng);
        eyes.stress(Time::from_micros(400_000));
        let mut raise = |n: u64| {
            let now = Time::from_micros(n * 40_000);
            eyes.update(now, 0.04, AgentState::Speaking, FREE, &mut rng).brows.raise
        };
        let heights: Vec<f32> = (0..20).map(&mut raise).collect();
        assert!(heights.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 0.2), "{heights:?}");
        assert_eq!((heights[8], heights[19]), (EMPHASIS_BROWS.raise, 0.0), "{heights:?}");
    }
}
