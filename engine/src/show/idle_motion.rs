//! Idle motion of an avatar: blinks, glances, nods, breath, and a lean and a smile while it
//! listens. Lips are not included.
//!
//! The parameters follow human data. People blink 17 times a minute at rest and 26 in conversation,
//! at log-normal intervals (Bentivoglio et al., "Analysis of blink rate patterns in normal
//! subjects", 1997). A blink closes in about 80 ms and opens in 160 ms. Speakers look away now and
//! then, and listeners less often (Argyle & Cook, "Gaze and mutual gaze", 1976). At rest people
//! take twelve to sixteen breaths a minute; breathing out takes longer than breathing in, and a
//! pause follows. A smile of joy lasts one to a few seconds, and rises in a third of a second
//! (Ekman & Friesen, "Felt, false, and miserable smiles", 1982).
//!
//! Not every motion is drawn with every other one (see [`models::face::plan::Plan`]), so they take
//! turns. The head leans or nods after the breath and the smile have ended. The gaze changes while
//! the head is still. Lips move while the head is upright or leans. So a speaker shifts the head in
//! a pause, as people do between two sentences. A motion that must end first ends soon, but over
//! several frames: no pose ever jumps, whenever the state changes.
//!
//! A lean, its return and a nod start only while smile, chest and brows are at rest. A lean also
//! waits for the end of a nod.
//!
//! ```text
//!          Listening, from lean_from on; Speaking, if speaker_leans
//!        ┌─────────────────────────────────────────────────────────┐
//!        │                                                         ▼
//!     upright                                                   leaning
//!        ▲                                                       │ │ ▲
//!        └───────────────────────────────────────────────────────┘ │ │ up: after the deepest
//!          Thinking; Speaking, if not speaker_leans                │ │ point, or at the end
//!                                                                  │ │ of Listening
//!             nod request, at most 0.7 s old (Listening only) ──── ▼ │
//!                                                               nodding
//! ```

use std::time::Duration;

use conversation::event::AgentState;
use conversation::time::Time;
use models::face::pose_plan::{
    EMPHASIS_BROWS, LISTENING_HEAD, NOD_DEPTH, SIDE_GLANCE, THINKING_BROWS, THINKING_GAZE,
};
use models::face::{Brows, Eyes, Head, Look, Stance};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::visemes::smoothstep;

/// Durations of a blink: closing, shut, opening.
const BLINK_CLOSE_SECONDS: f32 = 0.08;
const BLINK_SHUT_SECONDS: f32 = 0.05;
const BLINK_OPEN_SECONDS: f32 = 0.16;
/// Duration of half a nod: down, or up.
const HALF_NOD_SECONDS: f32 = 0.32;
/// A nod request expires if it cannot start within this time.
const NOD_TIMEOUT: Duration = Duration::from_millis(700);
/// Duration of a lean.
const LEAN_SECONDS: f32 = 0.6;
/// Time for a smile to rise or fall.
const SMILE_SECONDS: f32 = 0.36;
/// Time for the brows to rise or fall.
const BROW_SECONDS: f32 = 0.2;
/// Shares of a breath for breathing in and out; the rest is the pause before the next breath.
const INHALE_SHARE: f32 = 0.35;
const EXHALE_SHARE: f32 = 0.45;
/// Delay of the next breath after the motion that blocked it, seconds.
const BREATH_DELAY_SECONDS: f32 = 0.5;
/// Time for a raised chest to sink quickly from its highest point, seconds.
const QUICK_EXHALE_SECONDS: f32 = 0.12;
/// A head is upright enough for lips to move if its lean is below this fraction, a quarter. It
/// leans enough if no more than this fraction is missing.
const LEAN_TOLERANCE: f32 = 0.25;
/// Minimum length of a speech pause in which a speaker shifts the head, seconds.
pub(super) const MIN_HEAD_SHIFT_PAUSE: f32 = 0.18;
/// Maximum time step between two frames, seconds, so that a stall does not become a jump.
const MAX_STEP_SECONDS: f32 = 0.1;

/// Pose parameters of an avatar at one instant, without the lips.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoseState {
    /// Eyes and brows.
    pub look: Look,
    /// Head and smile.
    pub stance: Stance,
    /// 0 = breathed out … 1 = breathed in.
    pub breath: f32,
    /// Whether lips may move: the head is upright or leans, and is calm.
    pub ready_to_speak: bool,
}

/// Progress of a motion from 0 to 1 and back; it can reverse at any point.
#[derive(Clone, Copy, Debug, Default)]
struct Easing(f32);

impl Easing {
    /// Advances by `dt` seconds forward or back; the full range takes `length` seconds.
    fn advance(&mut self, forward: bool, length: f32, dt: f32) {
        let step = dt / length;
        self.0 = (self.0 + if forward { step } else { -step }).clamp(0.0, 1.0);
    }

    fn value(self) -> f32 {
        smoothstep(self.0)
    }

    fn is_at_start(self) -> bool {
        self.0 <= 0.0
    }

    fn is_at_end(self) -> bool {
        self.0 >= 1.0
    }
}

/// Idle motion of one avatar in one call.
pub struct IdleMotion {
    rng: SmallRng,
    state: AgentState,
    /// Time of the last update.
    last_time: Option<Time>,
    /// Start of the current or next blink.
    next_blink: Time,
    gaze: [f32; 2],
    /// When the gaze changes next.
    next_glance: Time,
    /// Shape and progress of the brows, and whether they stress the speech.
    brows: (Brows, Easing),
    stressing: bool,
    /// The head leans from this time on while the agent listens.
    lean_from: Time,
    /// Whether lips can also move while the head leans.
    can_speak_leaning: bool,
    /// Whether a speaker leans, and the earliest time of the next head shift.
    speaker_leans: bool,
    next_head_shift: Time,
    lean: Easing,
    /// Time of a nod request that has not started, and the current nod: down first, then up.
    nod_requested_at: Option<Time>,
    nodding: bool,
    nod: Easing,
    /// Start and length of the current or next breath, and the height of the chest.
    breath: (Time, Duration),
    chest_height: f32,
    /// Start and end of the current or next smile.
    smile_period: Option<(Time, Time)>,
    smile: Easing,
}

impl IdleMotion {
    /// Idle motion that starts at rest. The same seed gives the same motion.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rng: SmallRng::seed_from_u64(seed),
            state: AgentState::Listening,
            last_time: None,
            next_blink: Time::ZERO,
            gaze: [0.0; 2],
            next_glance: Time::ZERO,
            brows: (EMPHASIS_BROWS, Easing::default()),
            stressing: false,
            lean_from: Time::ZERO,
            can_speak_leaning: true,
            speaker_leans: false,
            next_head_shift: Time::ZERO,
            lean: Easing::default(),
            nod_requested_at: None,
            nodding: false,
            nod: Easing::default(),
            breath: (Time::ZERO, Duration::from_secs(4)),
            chest_height: 0.0,
            smile_period: None,
            smile: Easing::default(),
        }
    }

    /// Sets whether lips can also move while the head leans. If not, the head comes upright before
    /// speech.
    pub fn set_can_speak_leaning(&mut self, allowed: bool) {
        self.can_speak_leaning = allowed;
        self.speaker_leans &= allowed;
    }

    /// Handles the first frame: an agent without a greeting smiles at the user, then leans toward
    /// the user.
    fn start(&mut self, now: Time) {
        self.next_blink = now + self.random_blink_delay();
        self.next_glance = now + self.random_seconds(3.0, 5.0);
        self.lean_from = now + self.random_seconds(2.4, 3.0);
        self.breath = (now, self.random_seconds(3.7, 5.0));
        if self.state == AgentState::Listening {
            self.smile_period =
                Some((now + self.random_seconds(0.2, 0.4), now + self.random_seconds(1.5, 2.0)));
        }
    }

    /// Sets the agent's state from `now` on.
    pub fn set_state(&mut self, state: AgentState, now: Time) {
        if state == self.state {
            return;
        }
        let was_speaking = self.state == AgentState::Speaking;
        self.state = state;
        self.gaze = [0.0; 2];
        self.stressing = false;
        self.lean_from = now;
        // A speaker takes the nearer of both head positions.
        self.speaker_leans = self.can_speak_leaning && self.lean.value() >= 0.5;
        self.next_head_shift = now + self.random_seconds(1.5, 4.0);
        self.nod_requested_at = None;
        self.smile_period = None;
        // After speech, the agent often waits for the answer with a smile, once the head leans.
        if was_speaking && state == AgentState::Listening && self.rng.random_bool(0.6) {
            let begin = now + Duration::from_secs_f32(LEAN_SECONDS) + self.random_seconds(0.1, 0.5);
            self.smile_period = Some((begin, begin + self.random_seconds(1.4, 2.8)));
        }
        // A new thought moves the eyes, and moving eyes blink.
        match state {
            AgentState::Thinking => {
                self.next_glance = now + self.random_seconds(0.25, 0.5);
                self.next_blink = self.next_blink.min(now + Duration::from_millis(200));
            }
            AgentState::Listening | AgentState::Speaking => {
                self.next_glance = now + self.random_seconds(1.2, 3.5)
            }
        }
    }

    /// Requests a small nod after the user paused. Ignored unless the agent listens.
    pub fn request_nod(&mut self, now: Time) {
        let smiles = self.smile_period.is_some_and(|(begin, _)| begin <= now);
        if self.state == AgentState::Listening && self.lean.is_at_end() && !self.nodding && !smiles
        {
            self.nod_requested_at = Some(now);
        }
    }

    /// Handles the start of the user's speech: a smile ends, because it was answered.
    pub fn on_user_speech(&mut self) {
        self.smile_period = None;
    }

    /// Handles a pause in which the lips stay closed for at least [`MIN_HEAD_SHIFT_PAUSE`]: a
    /// speaker may shift the head.
    pub fn on_speech_pause(&mut self, now: Time) {
        let still = self.is_head_still() && self.brows.1.is_at_start();
        if self.can_speak_leaning
            && self.state == AgentState::Speaking
            && now >= self.next_head_shift
            && still
        {
            self.speaker_leans = !self.speaker_leans;
            self.next_head_shift = now + self.random_seconds(2.5, 7.0);
            (self.gaze, self.stressing) = ([0.0; 2], false);
        }
    }

    /// Returns the pose at `now`, which must not decrease.
    pub fn update(&mut self, now: Time) -> PoseState {
        if self.last_time.is_none() {
            self.start(now);
        }
        let dt = now
            .since(self.last_time.replace(now).unwrap_or(now))
            .as_secs_f32()
            .min(MAX_STEP_SECONDS);
        let lids = self.eyelids(now);
        if now >= self.next_glance {
            self.change_gaze(now);
        }
        self.move_smile(now, dt);
        self.move_chest(now, dt);
        self.move_head(now, dt);
        let eyes = Eyes { lids, gaze_x: self.gaze[0], gaze_y: self.gaze[1], squint: 0.0 };
        let brows = self.update_brows(dt);
        let smile = self.smile.value();
        PoseState {
            look: Look { eyes, brows },
            stance: Stance { head: self.head_pose(), smile },
            breath: self.chest_height,
            ready_to_speak: (self.lean.value() < LEAN_TOLERANCE
                || (self.can_speak_leaning && self.lean.value() > 1.0 - LEAN_TOLERANCE))
                && self.nod.is_at_start()
                && smile < 0.25
                && self.chest_height < 1.0 / 6.0,
        }
    }

    /// Brows are knit while thinking and raised to stress speech. They return to rest between the
    /// two.
    fn update_brows(&mut self, dt: f32) -> Brows {
        let wanted = match self.state {
            AgentState::Thinking if self.gaze != [0.0; 2] => Some(THINKING_BROWS),
            _ => self.stressing.then_some(EMPHASIS_BROWS),
        };
        let (shape, ease) = &mut self.brows;
        if let Some(wanted) = wanted.filter(|_| ease.is_at_start()) {
            *shape = wanted;
        }
        ease.advance(wanted == Some(*shape), BROW_SECONDS, dt);
        let part = ease.value();
        Brows { raise: shape.raise * part, knit: shape.knit * part }
    }

    fn is_listening(&self) -> bool {
        self.state == AgentState::Listening
    }

    /// Duration of a motion that takes `unhurried` seconds while listening. It is shorter while
    /// thinking, and shortest while speaking, because the lips wait for it.
    fn movement_seconds(&self, unhurried: f32) -> f32 {
        match self.state {
            AgentState::Listening => unhurried,
            AgentState::Thinking => unhurried * 0.7,
            AgentState::Speaking => unhurried * 0.35,
        }
    }

    /// Like [`Self::movement_seconds`], for a lean. Lips that wait for it have no other way to
    /// begin, and a lean is drawn in more steps than a nod.
    fn lean_seconds(&self) -> f32 {
        if self.state == AgentState::Speaking {
            LEAN_SECONDS * 0.28
        } else {
            self.movement_seconds(LEAN_SECONDS)
        }
    }

    /// Whether the head is upright or leans, and does not move.
    fn is_head_still(&self) -> bool {
        (self.lean.is_at_start() || self.lean.is_at_end())
            && self.nod.is_at_start()
            && !self.nodding
    }

    fn move_smile(&mut self, now: Time, dt: f32) {
        // Speaking or thinking agents do not smile more than at rest.
        let wanted = self.smile_period.is_some_and(|(begin, end)| (begin..end).contains(&now))
            && self.is_listening();
        let may_start = self.is_head_still() && self.chest_height == 0.0;
        if wanted && may_start && self.smile.is_at_start() {
            self.gaze = [0.0; 2];
        }
        let length = self.movement_seconds(SMILE_SECONDS);
        self.smile.advance(wanted && (may_start || !self.smile.is_at_start()), length, dt);
    }

    /// Breathing is visible only while listening: speech uses the breath, and a thought holds it.
    fn move_chest(&mut self, now: Time, dt: f32) {
        let smiles =
            self.smile_period.is_some_and(|(_, end)| now < end) || !self.smile.is_at_start();
        if !self.is_listening()
            || smiles
            || !self.is_head_still()
            || self.nod_requested_at.is_some()
        {
            self.breath.0 = now + Duration::from_secs_f32(BREATH_DELAY_SECONDS);
        }
        let (begin, length) = self.breath;
        let t = now.since(begin).as_secs_f32() / length.as_secs_f32();
        if t >= 1.0 {
            self.breath = (now, self.random_seconds(3.7, 5.0));
        }
        let wanted = if t < INHALE_SHARE {
            smoothstep(t / INHALE_SHARE)
        } else {
            1.0 - smoothstep((t - INHALE_SHARE) / EXHALE_SHARE)
        };
        let max_step = dt / QUICK_EXHALE_SECONDS;
        self.chest_height += (wanted - self.chest_height).clamp(-max_step, max_step);
    }

    fn move_head(&mut self, now: Time, dt: f32) {
        let may_start =
            self.smile.is_at_start() && self.chest_height == 0.0 && self.brows.1.is_at_start();
        self.nod_requested_at = self.nod_requested_at.filter(|asked| now < *asked + NOD_TIMEOUT);
        if self.nod_requested_at.is_some() && may_start && self.lean.is_at_end() {
            self.nod_requested_at = None;
            self.nodding = true;
            self.gaze = [0.0; 2];
            self.next_glance =
                self.next_glance.max(now + Duration::from_secs_f32(2.0 * HALF_NOD_SECONDS));
        }
        self.nodding &= self.is_listening() && !self.nod.is_at_end();
        self.nod.advance(self.nodding, self.movement_seconds(HALF_NOD_SECONDS), dt);
        if may_start && self.nod.is_at_start() {
            let leaning = match self.state {
                AgentState::Listening => now >= self.lean_from,
                AgentState::Thinking => false,
                AgentState::Speaking => self.speaker_leans,
            };
            let length = self.lean_seconds();
            if leaning && !self.lean.is_at_end() {
                self.gaze = [0.0; 2];
            }
            self.lean.advance(leaning, length, dt);
        }
    }

    fn head_pose(&self) -> Head {
        let k = self.lean.value();
        let nod = NOD_DEPTH * self.nod.value();
        Head {
            yaw: LISTENING_HEAD.yaw * k,
            pitch: LISTENING_HEAD.pitch * k + nod,
            roll: LISTENING_HEAD.roll * k,
        }
    }

    fn eyelids(&mut self, now: Time) -> f32 {
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
            self.next_blink = now + self.random_blink_delay();
            0.0
        }
    }

    /// One blink in eight is double.
    fn random_blink_delay(&mut self) -> Duration {
        if self.rng.random_bool(0.12) {
            return self.random_seconds(0.10, 0.25);
        }
        let median = match self.state {
            AgentState::Speaking => 2.0,
            AgentState::Listening | AgentState::Thinking => 3.0,
        };
        // The sum of twelve uniform numbers approximates a normal distribution.
        let normal: f32 = (0..12).map(|_| self.rng.random::<f32>()).sum::<f32>() - 6.0;
        Duration::from_secs_f32((median * (0.45 * normal).exp()).clamp(0.6, 12.0))
    }

    fn change_gaze(&mut self, now: Time) {
        let at_user = self.gaze == [0.0; 2];
        if at_user && self.stressing {
            // The brows return to rest first.
            self.stressing = false;
        }
        // The gaze leaves the user only with an upright head while thinking or speaking.
        let may_look_away = match self.state {
            AgentState::Thinking => self.lean.is_at_start(),
            AgentState::Speaking => self.lean.is_at_start() && !self.speaker_leans,
            AgentState::Listening => self.is_head_still(),
        } && self.brows.1.is_at_start();
        if at_user
            && !(may_look_away && self.smile.is_at_start() && self.nod_requested_at.is_none())
        {
            return;
        }
        let side = if self.rng.random_bool(0.5) { 1.0 } else { -1.0 };
        let gaze_time;
        (self.gaze, gaze_time) = match (self.state, at_user) {
            // The gaze moves away to think, and back to check on the user.
            (AgentState::Thinking, true) => (THINKING_GAZE, self.random_seconds(0.9, 2.2)),
            (AgentState::Thinking, false) => ([0.0; 2], self.random_seconds(0.5, 1.2)),
            (AgentState::Speaking, true) => {
                ([SIDE_GLANCE[0] * side, SIDE_GLANCE[1]], self.random_seconds(0.3, 0.9))
            }
            (AgentState::Listening, true) => {
                ([SIDE_GLANCE[0] * side, SIDE_GLANCE[1]], self.random_seconds(0.25, 0.6))
            }
            (AgentState::Speaking, false) => ([0.0; 2], self.random_seconds(1.5, 4.0)),
            (AgentState::Listening, false) => ([0.0; 2], self.random_seconds(3.0, 7.0)),
        };
        self.next_glance = now + gaze_time;
        let upright = self.lean.is_at_start() && !self.speaker_leans;
        self.stressing = self.state == AgentState::Speaking
            && upright
            && self.gaze == [0.0; 2]
            && self.rng.random_bool(0.4);
    }

    fn random_seconds(&mut self, min: f32, max: f32) -> Duration {
        Duration::from_secs_f32(self.rng.random_range(min..max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulate_minutes(state: AgentState, minutes: u64) -> Vec<PoseState> {
        let mut idle_motion = IdleMotion::new(5);
        idle_motion.set_state(state, Time::ZERO);
        (0..minutes * 60 * 25).map(|n| idle_motion.update(Time::from_micros(n * 40_000))).collect()
    }

    fn blinks(frames: &[PoseState]) -> usize {
        frames
            .windows(2)
            .filter(|w| w[0].look.eyes.lids < 0.9 && w[1].look.eyes.lids >= 0.9)
            .count()
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
        for (state, median) in [(AgentState::Listening, 3.0f32), (AgentState::Speaking, 2.0)] {
            let frames = simulate_minutes(state, 60);
            let shut =
                |n: &usize| frames[*n].look.eyes.lids >= 0.9 && frames[n - 1].look.eyes.lids < 0.9;
            let starts: Vec<usize> = (1..frames.len()).filter(shut).collect();
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
    fn glances_are_as_frequent_and_as_long_as_peoples() {
        // Gaze at the user: 40 to 75 % of the time in conversation, more while listening. Glances
        // aside last .3 to 1 s (Argyle & Cook 1976).
        for (state, share, a_minute, length) in [
            (AgentState::Speaking, 0.7..0.9, 12.0..24.0, 0.3..0.95),
            (AgentState::Listening, 0.85..0.98, 4.0..13.0, 0.2..0.65),
            (AgentState::Thinking, 0.25..0.5, 20.0..36.0, 0.85..2.25),
        ] {
            let frames = simulate_minutes(state, 30);
            let aside = |m: &PoseState| m.look.eyes.gaze_x != 0.0;
            let at_user = frames.iter().filter(|m| !aside(m)).count() as f32 / frames.len() as f32;
            let mut lengths = Vec::new();
            for run in frames.chunk_by(|a, b| aside(a) == aside(b)).filter(|run| aside(&run[0])) {
                lengths.push(run.len() as f32 * 0.04);
            }
            let count = lengths.len() as f32 / 30.0;
            let lengths = sorted(lengths);
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
    fn a_speaker_shifts_the_head_in_pauses_and_only_there() {
        let (mut idle_motion, mut shifts) = (IdleMotion::new(7), 0);
        idle_motion.update(Time::ZERO);
        idle_motion.set_state(AgentState::Speaking, Time::ZERO);
        let mut last = None;
        for n in 1..25 * 120u64 {
            let now = Time::from_micros(n * 40_000);
            // A pause of .4 s every three seconds.
            if n % 75 >= 65 {
                idle_motion.on_speech_pause(now);
            }
            let pose_state = idle_motion.update(now);
            let lean = pose_state.stance.head.roll / LISTENING_HEAD.roll;
            if pose_state.ready_to_speak {
                let leans = lean > 0.5;
                shifts += usize::from(last.replace(leans).is_some_and(|last| last != leans));
            } else {
                assert!(n % 75 >= 65 || n % 75 < 5, "on its way at {n}");
            }
            assert!(
                !pose_state.ready_to_speak || pose_state.look.eyes.gaze_x == 0.0 || lean < 0.01,
                "a glance at {n}"
            );
        }
        assert!((12..=30).contains(&shifts), "{shifts} in two minutes");
    }

    #[test]
    fn every_blink_shuts_the_eye_and_is_short() {
        let frames = simulate_minutes(AgentState::Listening, 5);
        let mut run = 0;
        for PoseState { look, .. } in frames {
            if look.eyes.lids > 0.02 {
                run += 1;
            } else {
                assert!(run <= 9, "{run} frames");
                run = 0;
            }
        }
    }

    #[test]
    fn a_thinking_face_looks_away_and_back() {
        let frames = simulate_minutes(AgentState::Thinking, 1);
        let away = frames.iter().filter(|m| m.look.eyes.gaze_y > 0.3).count();
        assert!((frames.len() / 3..frames.len() * 5 / 6).contains(&away));
    }

    #[test]
    fn a_listener_looks_at_the_user_most_of_the_time() {
        let frames = simulate_minutes(AgentState::Listening, 5);
        let at_user = frames.iter().filter(|m| m.look.eyes.gaze_x == 0.0).count();
        assert!(at_user > frames.len() * 4 / 5);
    }

    #[test]
    fn the_head_moves_without_jumps() {
        let mut idle_motion = IdleMotion::new(9);
        let states = [AgentState::Listening, AgentState::Thinking, AgentState::Speaking];
        let mut last = Head::default();
        for n in 0..3000u64 {
            let now = Time::from_micros(n * 40_000);
            if n % 70 == 0 {
                idle_motion.set_state(states[(n / 70 % 3) as usize], now);
            }
            if n % 31 == 0 {
                idle_motion.request_nod(now);
            }
            let head = idle_motion.update(now).stance.head;
            let step = (head.roll - last.roll).abs().max((head.yaw - last.yaw).abs());
            assert!(step < 0.012, "{step}");
            last = head;
        }
    }

    #[test]
    fn a_listener_breathes_as_often_as_people_at_rest_and_a_speaker_is_not_seen_to() {
        let breaths = |frames: &[PoseState]| {
            frames.windows(2).filter(|w| w[0].breath < 0.5 && w[1].breath >= 0.5).count()
        };
        let listening = breaths(&simulate_minutes(AgentState::Listening, 10));
        assert!((120..=160).contains(&listening), "{listening} in ten minutes");
        assert_eq!(breaths(&simulate_minutes(AgentState::Speaking, 1)), 0);
        let steps = simulate_minutes(AgentState::Listening, 1);
        assert!(steps.windows(2).all(|w| (w[0].breath - w[1].breath).abs() < 0.06));
    }

    #[test]
    fn who_begins_to_speak_is_ready_for_it_in_a_few_pictures_whatever_it_did() {
        // Limits in frames of 40 ms: the maximum and the mean, with and without mouths for the
        // leaning head.
        for (leaning, max, mean) in [(true, 4, 1.5), (false, 7, 4.5)] {
            let mut all = 0;
            for seed in 0..400 {
                let mut idle_motion = IdleMotion::new(seed);
                idle_motion.set_can_speak_leaning(leaning);
                idle_motion.set_state(AgentState::Speaking, Time::ZERO);
                idle_motion.update(Time::ZERO);
                idle_motion.set_state(AgentState::Listening, Time::ZERO);
                let at = |n: u64| Time::from_micros(n * 40_000);
                let begins = 20 + seed;
                for n in 1..begins {
                    if n % 40 == 0 {
                        idle_motion.request_nod(at(n));
                    }
                    idle_motion.update(at(n));
                }
                idle_motion.set_state(AgentState::Speaking, at(begins));
                let frames =
                    (begins..).take_while(|n| !idle_motion.update(at(*n)).ready_to_speak).count();
                assert!(frames <= max, "leaning {leaning}, seed {seed}: {frames} frames");
                all += frames;
            }
            let found = all as f32 / 400.0;
            assert!(found <= mean, "leaning {leaning}: {found} frames on the mean");
        }
    }

    #[test]
    fn it_smiles_now_and_then_when_it_has_spoken_and_neither_nods_nor_leans_meanwhile() {
        let (mut idle_motion, mut smiles, mut shown) = (IdleMotion::new(3), 0, 0.0f32);
        for n in 0..25 * 600u64 {
            let now = Time::from_micros(n * 40_000);
            match n % 250 {
                0 => idle_motion.set_state(AgentState::Speaking, now),
                100 => idle_motion.set_state(AgentState::Listening, now),
                130 | 150 | 180 => idle_motion.request_nod(now),
                _ => {}
            }
            let stance = idle_motion.update(now).stance;
            // The smile falls faster when the agent speaks again.
            assert!(
                (stance.smile - shown).abs() < if n % 250 < 4 { 0.5 } else { 0.2 },
                "a jump at {n}"
            );
            if stance.smile > 0.0 {
                assert_eq!(stance.head, LISTENING_HEAD, "frame {n}");
                smiles += usize::from(shown == 0.0);
            }
            shown = stance.smile;
        }
        assert!((24..=50).contains(&smiles), "{smiles} of 60 turns");
    }
}
