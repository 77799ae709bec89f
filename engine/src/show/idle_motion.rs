//! What a face does of itself: blinks, glances, nods, breath, a lean and a smile while it listens. No lips.
//!
//! Numbers are of people: 17 blinks a minute at rest and 26 in conversation, intervals log-normal (Bentivoglio et al., "Analysis of blink
//! rate patterns in normal subjects", 1997); a blink closes in about 80 ms and opens in 160; speakers look away now and then and listeners
//! less (Argyle & Cook, "Gaze and mutual gaze", 1976); twelve to sixteen breaths a minute at rest, out slower than in, then a pause; a smile
//! of joy lasts one to a few seconds and comes up in a third of one (Ekman & Friesen, "Felt, false, and miserable smiles", 1982).
//!
//! Not every manner is drawn with every other (see [`models::animator::bake::Action`]), so they take turns: the head leans or nods when it has
//! breathed out and smiles no more, it glances when the head is still, and lips move when it is upright or has leant. So who speaks shifts
//! the head in a pause, as people do between two sentences. What has to go first goes soon, but over some frames: nothing ever jumps,
//! whenever the state changes.

use std::time::Duration;

use conversation::event::AgentState;
use conversation::time::Time;
use models::face::plan::{ASIDE, AWAY, LISTENING, NOD_DEPTH, PONDERING, STRESSING};
use models::face::{Brows, Eyes, Head, Look, Stance};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::visemes::smoothstep;

/// Lids on their way down, shut, and up again.
const BLINK_CLOSE_SECONDS: f32 = 0.08;
const BLINK_SHUT_SECONDS: f32 = 0.05;
const BLINK_OPEN_SECONDS: f32 = 0.16;
/// Half a nod: down, or up.
const HALF_NOD_SECONDS: f32 = 0.32;
/// How long a nod that was asked for may wait for its turn.
const NOD_TIMEOUT: Duration = Duration::from_millis(700);
/// How long the head takes to lean.
const LEAN_SECONDS: f32 = 0.6;
/// How long a smile takes to come or go.
const SMILE_SECONDS: f32 = 0.36;
/// How long brows take to rise or fall.
const BROW_SECONDS: f32 = 0.2;
/// A breath: in, out, and the pause before the next, as shares of it.
const INHALE_SHARE: f32 = 0.35;
const EXHALE_SHARE: f32 = 0.45;
/// Breathing begins so long after what it had to wait for, in seconds.
const BREATH_DELAY_SECONDS: f32 = 0.5;
/// How soon a chest that must be still sinks from all the way up, in seconds.
const QUICK_EXHALE_SECONDS: f32 = 0.12;
/// A head that leans by no more than this, a quarter, is upright enough for lips to move; and one that lacks no more than this of a lean has
/// leant enough.
const LEAN_TOLERANCE: f32 = 0.25;
/// A speaker shifts the head in a pause that is no shorter, in seconds.
pub(super) const MIN_HEAD_SHIFT_PAUSE: f32 = 0.18;
/// Time between two frames counts as at most so much: a stall must not become a leap.
const MAX_STEP_SECONDS: f32 = 0.1;

/// How a face holds itself at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoseState {
    /// Eyes and brows.
    pub look: Look,
    /// Head and smile.
    pub stance: Stance,
    /// 0 breathed out … 1 breathed in.
    pub breath: f32,
    /// Whether the head is upright or leans, and is calm, so that lips may move.
    pub ready_to_speak: bool,
}

/// A movement from 0 to 1 and back, which turns round wherever it is.
#[derive(Clone, Copy, Debug, Default)]
struct Easing(f32);

impl Easing {
    /// For `dt` seconds there, or back; all the way takes `length`.
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

/// The manners of one face in one call.
pub struct IdleMotion {
    rng: SmallRng,
    state: AgentState,
    /// The instant shown last.
    last_time: Option<Time>,
    /// Start of the blink that runs or is next.
    next_blink: Time,
    gaze: [f32; 2],
    /// When the gaze changes next.
    next_glance: Time,
    /// What the brows do, and how far; and whether they stress what is said.
    brows: (Brows, Easing),
    stressing: bool,
    /// The head leans from then on while it listens.
    lean_from: Time,
    /// Whether lips move while the head leans, too.
    can_speak_leaning: bool,
    /// Whether who speaks leans, and the head is shifted not before then.
    speaker_leans: bool,
    next_head_shift: Time,
    lean: Easing,
    /// When a nod was asked for that has not begun, and the one that runs: down first, then up.
    nod_requested_at: Option<Time>,
    nodding: bool,
    nod: Easing,
    /// Start and length of the breath that runs or is next, and how high the chest is.
    breath: (Time, Duration),
    chest_height: f32,
    /// Start and end of the smile that runs or is next.
    smile_period: Option<(Time, Time)>,
    smile: Easing,
}

impl IdleMotion {
    /// A face at rest. The same seed lives the same life.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rng: SmallRng::seed_from_u64(seed),
            state: AgentState::Listening,
            last_time: None,
            next_blink: Time::ZERO,
            gaze: [0.0; 2],
            next_glance: Time::ZERO,
            brows: (STRESSING, Easing::default()),
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

    /// Whether lips move while the head leans, too. Else who speaks comes upright first.
    pub fn set_can_speak_leaning(&mut self, allowed: bool) {
        self.can_speak_leaning = allowed;
        self.speaker_leans &= allowed;
    }

    /// The first frame is shown: who has nothing to say smiles at the user, and then leans to him.
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

    /// The agent does something else from `now` on.
    pub fn set_state(&mut self, state: AgentState, now: Time) {
        if state == self.state {
            return;
        }
        let was_speaking = self.state == AgentState::Speaking;
        self.state = state;
        self.gaze = [0.0; 2];
        self.stressing = false;
        self.lean_from = now;
        // Who begins to speak takes the nearer of both ways to hold the head.
        self.speaker_leans = self.can_speak_leaning && self.lean.value() >= 0.5;
        self.next_head_shift = now + self.random_seconds(1.5, 4.0);
        self.nod_requested_at = None;
        self.smile_period = None;
        // Who has said something nice waits for the answer with a smile, as soon as it leans.
        if was_speaking && state == AgentState::Listening && self.rng.random_bool(0.6) {
            let begin = now + Duration::from_secs_f32(LEAN_SECONDS) + self.random_seconds(0.1, 0.5);
            self.smile_period = Some((begin, begin + self.random_seconds(1.4, 2.8)));
        }
        // A new thought moves the eyes, and eyes that move blink.
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

    /// A small nod: the user made a pause. Ignored unless the agent listens.
    pub fn request_nod(&mut self, now: Time) {
        let smiles = self.smile_period.is_some_and(|(begin, _)| begin <= now);
        if self.state == AgentState::Listening && self.lean.is_at_end() && !self.nodding && !smiles {
            self.nod_requested_at = Some(now);
        }
    }

    /// The user begins to speak: a smile has had its answer.
    pub fn on_user_speech(&mut self) {
        self.smile_period = None;
    }

    /// The lips are closed and stay so for [`MIN_HEAD_SHIFT_PAUSE`] at least: who speaks may move the head.
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

    /// All of it at `now`, which never runs backwards.
    pub fn update(&mut self, now: Time) -> PoseState {
        if self.last_time.is_none() {
            self.start(now);
        }
        let dt = now.since(self.last_time.replace(now).unwrap_or(now)).as_secs_f32().min(MAX_STEP_SECONDS);
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

    /// Knit while it thinks, up where it stresses what it says. They go down before they do the other.
    fn update_brows(&mut self, dt: f32) -> Brows {
        let wanted = match self.state {
            AgentState::Thinking if self.gaze != [0.0; 2] => Some(PONDERING),
            _ => self.stressing.then_some(STRESSING),
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

    /// How long a movement takes that takes `calm` seconds when there is no hurry: a mind at work has little time, lips that wait have none.
    fn movement_seconds(&self, unhurried: f32) -> f32 {
        match self.state {
            AgentState::Listening => unhurried,
            AgentState::Thinking => unhurried * 0.7,
            AgentState::Speaking => unhurried * 0.35,
        }
    }

    /// The same of a lean. Lips that wait for it have no other way to begin, and it is drawn in more steps than a nod.
    fn lean_seconds(&self) -> f32 {
        if self.state == AgentState::Speaking {
            LEAN_SECONDS * 0.28
        } else {
            self.movement_seconds(LEAN_SECONDS)
        }
    }

    /// The head is upright or leans, and does not move.
    fn is_head_still(&self) -> bool {
        (self.lean.is_at_start() || self.lean.is_at_end()) && self.nod.is_at_start() && !self.nodding
    }

    fn move_smile(&mut self, now: Time, dt: f32) {
        // Lips that speak, and a mind at work, do not smile more than at rest.
        let wanted =
            self.smile_period.is_some_and(|(begin, end)| (begin..end).contains(&now)) && self.is_listening();
        let may_start = self.is_head_still() && self.chest_height == 0.0;
        if wanted && may_start && self.smile.is_at_start() {
            self.gaze = [0.0; 2];
        }
        let length = self.movement_seconds(SMILE_SECONDS);
        self.smile.advance(wanted && (may_start || !self.smile.is_at_start()), length, dt);
    }

    /// Only a listener is seen breathing: speech has the breath, and a thought holds it.
    fn move_chest(&mut self, now: Time, dt: f32) {
        let smiles = self.smile_period.is_some_and(|(_, end)| now < end) || !self.smile.is_at_start();
        if !self.is_listening() || smiles || !self.is_head_still() || self.nod_requested_at.is_some() {
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
        let may_start = self.smile.is_at_start() && self.chest_height == 0.0 && self.brows.1.is_at_start();
        self.nod_requested_at = self.nod_requested_at.filter(|asked| now < *asked + NOD_TIMEOUT);
        if self.nod_requested_at.is_some() && may_start && self.lean.is_at_end() {
            self.nod_requested_at = None;
            self.nodding = true;
            self.gaze = [0.0; 2];
            self.next_glance = self.next_glance.max(now + Duration::from_secs_f32(2.0 * HALF_NOD_SECONDS));
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
        Head { yaw: LISTENING.yaw * k, pitch: LISTENING.pitch * k + nod, roll: LISTENING.roll * k }
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
        // The sum of twelve uniform numbers is near enough to a normal one.
        let normal: f32 = (0..12).map(|_| self.rng.random::<f32>()).sum::<f32>() - 6.0;
        Duration::from_secs_f32((median * (0.45 * normal).exp()).clamp(0.6, 12.0))
    }

    fn change_gaze(&mut self, now: Time) {
        let at_user = self.gaze == [0.0; 2];
        if at_user && self.stressing {
            // The brows go down first.
            self.stressing = false;
        }
        // Who thinks or speaks looks away upright.
        let may_look_away = match self.state {
            AgentState::Thinking => self.lean.is_at_start(),
            AgentState::Speaking => self.lean.is_at_start() && !self.speaker_leans,
            AgentState::Listening => self.is_head_still(),
        } && self.brows.1.is_at_start();
        if at_user && !(may_look_away && self.smile.is_at_start() && self.nod_requested_at.is_none()) {
            return;
        }
        let side = if self.rng.random_bool(0.5) { 1.0 } else { -1.0 };
        let gaze_time;
        (self.gaze, gaze_time) = match (self.state, at_user) {
            // Away to think, back to see whether the other is still there.
            (AgentState::Thinking, true) => (AWAY, self.random_seconds(0.9, 2.2)),
            (AgentState::Thinking, false) => ([0.0; 2], self.random_seconds(0.5, 1.2)),
            (AgentState::Speaking, true) => ([ASIDE[0] * side, ASIDE[1]], self.random_seconds(0.3, 0.9)),
            (AgentState::Listening, true) => ([ASIDE[0] * side, ASIDE[1]], self.random_seconds(0.25, 0.6)),
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
        frames.windows(2).filter(|w| w[0].look.eyes.lids < 0.9 && w[1].look.eyes.lids >= 0.9).count()
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

    /// In order.
    fn sorted(mut seconds: Vec<f32>) -> Vec<f32> {
        seconds.sort_by(f32::total_cmp);
        seconds
    }

    #[test]
    fn times_between_blinks_are_log_normal_as_peoples_are() {
        for (state, median) in [(AgentState::Listening, 3.0f32), (AgentState::Speaking, 2.0)] {
            let frames = simulate_minutes(state, 60);
            let shut = |n: &usize| frames[*n].look.eyes.lids >= 0.9 && frames[n - 1].look.eyes.lids < 0.9;
            let starts: Vec<usize> = (1..frames.len()).filter(shut).collect();
            // From one blink's end to the next one's start; the second half of a double blink is no new one.
            let pause = |w: &[usize]| {
                (w[1] - w[0]) as f32 * 0.04 - (BLINK_CLOSE_SECONDS + BLINK_SHUT_SECONDS + BLINK_OPEN_SECONDS)
            };
            let pauses = sorted(starts.windows(2).map(pause).filter(|pause| *pause > 0.4).collect());
            let part = |k: f32| pauses[(pauses.len() as f32 * k) as usize];
            assert!((part(0.5) / median - 1.0).abs() < 0.1, "{state:?}: {} s", part(0.5));
            // Nine tenths lie within exp(1.2816 σ) of the median, to both sides alike.
            let spread = (1.2816f32 * 0.45).exp();
            assert!((part(0.9) / part(0.5) / spread - 1.0).abs() < 0.1, "{state:?}: {}", part(0.9));
            assert!((part(0.5) / part(0.1) / spread - 1.0).abs() < 0.1, "{state:?}: {}", part(0.1));
        }
    }

    #[test]
    fn glances_are_as_frequent_and_as_long_as_peoples() {
        // At the user: 40 to 75 % of the time in talk, more while listening; glances aside of .3 to 1 s (Argyle & Cook 1976).
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
            let details =
                format!("{state:?}: {at_user} at the user, {count} glances a minute, {:?}", lengths.last());
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
            // A pause of .4 s in three seconds.
            if n % 75 >= 65 {
                idle_motion.on_speech_pause(now);
            }
            let pose_state = idle_motion.update(now);
            let lean = pose_state.stance.head.roll / LISTENING.roll;
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
        // Pictures of 40 ms at most, and on the mean: with mouths for the leaning head, and without.
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
                let frames = (begins..).take_while(|n| !idle_motion.update(at(*n)).ready_to_speak).count();
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
            // It goes sooner when the agent speaks again.
            assert!((stance.smile - shown).abs() < if n % 250 < 4 { 0.5 } else { 0.2 }, "a jump at {n}");
            if stance.smile > 0.0 {
                assert_eq!(stance.head, LISTENING, "frame {n}");
                smiles += usize::from(shown == 0.0);
            }
            shown = stance.smile;
        }
        assert!((24..=50).contains(&smiles), "{smiles} of 60 turns");
    }
}
