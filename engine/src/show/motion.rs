//! The motion of a face, but for its lips: it combines head, eyes and chest.
//!
//! Not every motion is drawn with every other one (see [`models::face::plan::Plan`]), so they take
//! turns. The head leaves rest after the breath has ended and while the gaze and the brows rest. No
//! pose ever jumps, whenever the state changes: a motion that must end first ends soon, but over
//! several frames.
//!
//! - Listening: [`super::listening`].
//! - Thinking: the head is upright. The eyes look away, and the head follows them behind a blink.
//! - Speaking: [`super::head_motion`]. A speaker begins with the nearest head that speaks.
//! - On hold, and after an interruption: the head ends its motion at the nearer end, and becomes
//!   calm.

use std::time::Duration;

use conversation::direction::Expression;
use conversation::event::AgentState;
use conversation::time::Time;
use models::face::{HeadName, Look, Mood};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::eyes::{Eyes, Freedom};
use super::head_motion::{Face, HeadMotion, Speech};
use super::head_mover::{HeadMover, QUICK_STEP};
use super::listener_cues::Cue;
use super::listening::{Chest, Listener, QUICK_EXHALE_SECONDS, is_gesture, mood_at};
use super::mood::{MoodTracker, Prelude, Requested, home};
use super::stance_paths::{PathEnd, Place, StancePaths};

/// Maximum time step between two frames, seconds, so that a stall does not become a jump.
const MAX_STEP_SECONDS: f32 = 0.1;
/// Time of a step with which an expression ends after an interruption, seconds. A long way has
/// quick steps, so that it takes a third of a second.
const CALM_DOWN_STEP: f32 = 0.07;
/// Speech with less than this many seconds left has not been interrupted.
const UNHEARD_SECONDS: f32 = 0.3;
/// A thinker's head follows the eyes after this time, and if they stay away for as long again.
const FOLLOW_SECONDS: f32 = 0.12;
/// How far a thinker's head turns, in steps toward the head to the right.
const THINKING_STEP: u8 = 2;
/// Lids that are shut this far hide a step of the head.
const HIDING_LIDS: f32 = 0.9;
/// Time for the lids to shut, seconds.
const SHUTTING: Duration = Duration::from_millis(120);

/// Pose parameters of an avatar at one instant, without the lips.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoseState {
    /// Eyes and brows.
    pub look: Look,
    /// Head and expression: the number of the stance.
    pub stance: u8,
    /// 0 = breathed out … 1 = breathed in.
    pub breath: f32,
    /// Whether lips may move: the chest is down.
    pub ready_to_speak: bool,
}

/// What is known at one instant.
pub(super) struct Moment<'a> {
    pub(super) now: Time,
    pub(super) paths: &'a StancePaths,
    pub(super) state: AgentState,
    pub(super) held: bool,
    pub(super) user_speaking: bool,
    /// The speech that plays.
    pub(super) speech: Option<Speech<'a>>,
    /// The first segment that has not played.
    pub(super) requested: Option<Requested>,
    /// The anchor that the receiver has.
    pub(super) anchor: Option<u8>,
    pub(super) frame_seconds: f32,
    /// Few bytes may be sent.
    pub(super) reduced: bool,
}

/// The motion of one avatar in one call.
pub(super) struct Motion {
    rng: SmallRng,
    state: AgentState,
    /// Time of the last update.
    last_time: Option<Time>,
    head: HeadMover,
    eyes: Eyes,
    chest: Chest,
    listener: Listener,
    speaker: HeadMotion,
    pub(super) mood: MoodTracker,
    expects_greeting: bool,
    reduced_since: Option<Time>,
    /// Seconds left of the last speech.
    unheard: f32,
}

impl Motion {
    /// A face at rest. The same seed gives the same motion.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: SmallRng::seed_from_u64(seed),
            state: AgentState::Listening,
            last_time: None,
            head: HeadMover::default(),
            eyes: Eyes::default(),
            chest: Chest::default(),
            listener: Listener::default(),
            speaker: HeadMotion::new(),
            mood: MoodTracker::default(),
            expects_greeting: false,
            reduced_since: None,
            unheard: 0.0,
        }
    }

    /// The agent is about to greet the user.
    pub(super) fn expect_greeting(&mut self) {
        self.expects_greeting = true;
    }

    /// The user begins to speak.
    pub(super) fn on_user_speech(&mut self) {
        self.listener.on_user_speech();
        self.mood.calm_down();
    }

    /// The user pauses: a listener may nod.
    pub(super) fn on_user_pause(&mut self, now: Time) {
        if self.state == AgentState::Listening {
            self.listener.request_nod(now);
        }
    }

    /// The user said something to react to.
    pub(super) fn on_cue(&mut self, cue: Cue, now: Time) {
        if self.state == AgentState::Listening {
            self.listener.on_cue(cue, now);
        }
    }

    /// Continues with the paths of another pose set.
    pub(super) fn change_paths(&mut self, from: &StancePaths, to: &StancePaths) {
        self.head.change_paths(from, to);
        self.speaker.forget_places();
    }

    fn start(&mut self, now: Time) {
        if self.expects_greeting {
            self.mood.expect_greeting(now);
        }
        self.eyes.start(now, self.state, &mut self.rng);
        let smiles = self.state == AgentState::Listening && !self.expects_greeting;
        self.listener.start(now, smiles, &mut self.rng);
        self.chest.start(now, &mut self.rng);
    }

    fn set_state(&mut self, moment: &Moment<'_>, state: AgentState) {
        if state == self.state {
            return;
        }
        let was_speaking = self.state == AgentState::Speaking;
        self.state = state;
        self.eyes.set_state(state, moment.now, &mut self.rng);
        if was_speaking && self.unheard > UNHEARD_SECONDS {
            self.mood.calm_down();
            self.head.settle(moment.paths);
        }
        self.unheard = 0.0;
        self.speaker.stop_gesture();
        match state {
            AgentState::Listening => self.listener.listen(moment.now, was_speaking, &mut self.rng),
            AgentState::Thinking => self.listener.stop(),
            AgentState::Speaking => {
                self.listener.stop();
                self.speaker.start(moment.now, &mut self.rng);
                self.get_ready(moment.paths);
            }
        }
    }

    /// Returns the pose at an instant. Time must not decrease.
    pub(super) fn update(&mut self, moment: &Moment<'_>) -> PoseState {
        let (now, paths) = (moment.now, moment.paths);
        if self.last_time.is_none() {
            self.start(now);
        }
        let dt = now
            .since(self.last_time.replace(now).unwrap_or(now))
            .as_secs_f32()
            .min(MAX_STEP_SECONDS);
        self.reduced_since = moment.reduced.then(|| self.reduced_since.unwrap_or(now));
        if let Some(speech) = &moment.speech {
            self.unheard = if speech.next.is_some() { f32::INFINITY } else { speech.left() };
        }
        let prelude = self.mood.before_speech(now, moment.requested).filter(|_| {
            moment.speech.is_none() && !moment.held && !moment.user_speaking && !moment.reduced
        });
        if !moment.held {
            let state = if prelude.is_some() { AgentState::Speaking } else { moment.state };
            self.set_state(moment, state);
        }
        let look = self.look(moment, dt);
        let lids = look.eyes.lids;
        match (self.state, moment.speech, prelude) {
            _ if moment.held => {
                self.speaker.stop_gesture();
                self.calm_down(paths);
            }
            (_, Some(speech), _) => {
                self.mood.on_speech(now, speech.shown_as.expression);
                self.speak(moment, &speech);
            }
            (_, None, Some(prelude)) => self.prepare(moment, &prelude),
            (AgentState::Speaking, None, None) => self.get_ready(paths),
            (AgentState::Thinking, ..) => self.think(now, paths, lids, moment.reduced),
            (AgentState::Listening, ..) => self.listen(moment),
        }
        let still = self.head.is_still();
        let at = self.head.at();
        let upright_or_leaning =
            at == Place::REST || paths.end(PathEnd::LEAN).is_some_and(|lean| at == lean);
        let breathes = self.state == AgentState::Listening
            && still
            && upright_or_leaning
            && !moment.held
            && !moment.reduced
            && !self.listener.wants_to_move(now, &self.head, paths);
        self.chest.update(now, dt, breathes, &mut self.rng);
        // Half of the pictures may be left out.
        let min_seconds = if moment.reduced { 1.9 * moment.frame_seconds } else { 0.0 };
        self.head.update(dt, min_seconds, paths);
        PoseState {
            look,
            stance: paths.stance(self.head.at()),
            breath: self.chest.height(),
            ready_to_speak: self.chest.height() < 1.0 / 6.0,
        }
    }

    fn look(&mut self, moment: &Moment<'_>, dt: f32) -> Look {
        let (at, still, paths) = (self.head.at(), self.head.is_still(), moment.paths);
        let upright = at == Place::REST && still && self.eyes.brows_rest();
        let listening = self.state == AgentState::Listening;
        let leans = listening && still && paths.end(PathEnd::LEAN) == Some(at);
        let busy = listening && self.listener.wants_to_move(moment.now, &self.head, paths);
        let speaking = self.state == AgentState::Speaking;
        let freedom = Freedom {
            may_glance: (upright || leans)
                && !busy
                && !(speaking && moment.reduced)
                && (!speaking || moment.speech.is_some()),
            may_raise: at == Place::REST && still,
        };
        self.eyes.update(moment.now, dt, self.state, freedom, &mut self.rng)
    }

    /// The head of an agent that speaks.
    fn speak(&mut self, moment: &Moment<'_>, speech: &Speech<'_>) {
        let paths = moment.paths;
        let at = self.head.at();
        let speaks = !is_gesture(paths, at) && paths.speaks(self.head.to());
        if !speaks && !self.speaker.is_gesturing() {
            return self.get_ready(paths);
        }
        let (speaker, mut face) = self.speaker_and_face(moment);
        speaker.update(&mut face, speech);
    }

    fn speaker_and_face<'a>(&'a mut self, moment: &Moment<'a>) -> (&'a mut HeadMotion, Face<'a>) {
        let face = Face {
            now: moment.now,
            head: &mut self.head,
            eyes: &mut self.eyes,
            paths: moment.paths,
            chest_is_down: self.chest.height() <= 0.0,
            anchor: moment.anchor,
            frame_seconds: moment.frame_seconds,
            reduced_since: self.reduced_since,
            rng: &mut self.rng,
        };
        (&mut self.speaker, face)
    }

    /// The head comes to the nearest place where lips speak.
    fn get_ready(&mut self, paths: &StancePaths) {
        let (at, to) = (self.head.at(), self.head.to());
        if is_gesture(paths, at) {
            let end = paths.start_of(at.path);
            let end = if paths.speaks(end) { end } else { Place::REST };
            self.head.go(end, QUICK_STEP);
        } else if !paths.is_end(at) || !paths.speaks(at) {
            let near = paths.nearer_end(at);
            let near = if paths.speaks(near) { near } else { Place::REST };
            let moves_on = paths.is_end(to) && paths.speaks(to) && !self.head.is_still();
            if !moves_on || is_gesture(paths, to) || paths.route(at, to).steps > 5 {
                self.head.go(near, QUICK_STEP);
            }
        }
    }

    /// Number of pictures until the face shows an expression, at this interval in seconds: the chest
    /// sinks first.
    pub(super) fn pictures_to(
        &self,
        expression: Expression,
        paths: &StancePaths,
        frame_seconds: f32,
    ) -> u32 {
        let (here, home) = (self.head.at(), home(expression, paths));
        let [shown, wanted] = [here, home].map(|place| mood_at(paths, place));
        if here == home || (shown == wanted && wanted != Mood::Calm && paths.is_end(here)) {
            return 0;
        }
        let exhale = self.chest.height() * QUICK_EXHALE_SECONDS / frame_seconds;
        exhale.ceil() as u32 + u32::from(paths.route(here, home).steps)
    }

    /// The expression of what will be spoken appears before the first word, and the gesture of that
    /// word begins.
    fn prepare(&mut self, moment: &Moment<'_>, prelude: &Prelude) {
        let (paths, expression) = (moment.paths, prelude.expression);
        let (speaker, mut face) = self.speaker_and_face(moment);
        if speaker.gesture_before_speech(&mut face, prelude) {
            return;
        }
        if expression == Expression::Calm {
            return self.get_ready(paths);
        }
        // The smile is broader than that of moving lips.
        let broad = paths.end(PathEnd::BroadSmile).filter(|_| expression == Expression::Warm);
        let home = broad.unwrap_or_else(|| home(expression, paths));
        if self.head.to() == home || self.chest.height() > 0.0 || !self.eyes.brows_rest() {
            return;
        }
        self.eyes.look_at_user();
        self.head.go(home, QUICK_STEP);
    }

    /// The head comes to rest at the nearer end of its way, with a calm expression.
    fn calm_down(&mut self, paths: &StancePaths) {
        if !paths.is_end(self.head.to()) {
            return self.head.settle(paths);
        }
        let to = self.head.to();
        let calm = match paths.end_at(to) {
            PathEnd::Head { mood: Mood::Calm, raised: true, name } => {
                paths.find(name, Mood::Calm, false).unwrap_or(Place::REST)
            }
            PathEnd::Head { mood: Mood::Calm, .. } if self.head.is_still() => to,
            PathEnd::Head { mood: Mood::Calm, .. } => paths.nearer_end(self.head.at()),
            PathEnd::Head { .. } | PathEnd::BroadSmile => Place::REST,
            PathEnd::Nod | PathEnd::Smile { .. } => paths.start_of(to.path),
        };
        if calm != to {
            let steps = paths.route(self.head.at(), calm).steps;
            self.head.go(calm, if steps > 4 { QUICK_STEP } else { CALM_DOWN_STEP });
        }
    }

    /// A thinker is upright. The eyes look away first, and the head follows them while a blink hides
    /// that the stance between both has no such look.
    fn think(&mut self, now: Time, paths: &StancePaths, lids: f32, reduced: bool) {
        let away = paths
            .find(HeadName::Right, Mood::Calm, false)
            .map(|right| Place { step: THINKING_STEP, ..right })
            .filter(|place| !reduced && paths.thinks_at(*place));
        let (at, to) = (self.head.at(), self.head.to());
        if !self.head.is_still() {
            return;
        }
        let change = self.eyes.next_change();
        match away {
            Some(away) if at == away => {
                let returns = self.eyes.at_user() || now + SHUTTING >= change;
                if returns {
                    self.eyes.blink(now);
                    if lids >= HIDING_LIDS {
                        self.head.go(Place::REST, QUICK_STEP);
                    }
                }
            }
            Some(away) if at == Place::REST => {
                let follow = Duration::from_secs_f32(FOLLOW_SECONDS);
                let since = self.eyes.away_since();
                if since.is_some_and(|since| now >= since + follow && now + follow * 3 < change) {
                    self.eyes.blink(now);
                    if lids >= HIDING_LIDS {
                        self.head.go(away, QUICK_STEP);
                    }
                }
            }
            _ if to != Place::REST && self.chest.height() == 0.0 => {
                self.eyes.look_at_user();
                let steps = f32::from(paths.route(at, Place::REST).steps.max(1));
                self.head.go(Place::REST, (0.4 / steps).max(QUICK_STEP));
            }
            _ => {}
        }
    }

    fn listen(&mut self, moment: &Moment<'_>) {
        let (now, paths) = (moment.now, moment.paths);
        let expression = self.mood.after_speech(now);
        let to = self.head.to();
        if mood_at(paths, to) != Mood::Calm {
            // A smile after speech lasts for a moment.
            let own = mood_at(paths, home(expression, paths));
            let keeps = own == mood_at(paths, to) && !moment.user_speaking;
            let broad = paths
                .end(PathEnd::BroadSmile)
                .filter(|broad| self.head.is_still() && paths.start_of(broad.path) == to);
            match broad {
                _ if !keeps => self.calm_down(paths),
                Some(broad) => self.head.go(broad, QUICK_STEP),
                None => {}
            }
            return;
        }
        if moment.reduced {
            if to != Place::REST && self.chest.height() <= 0.0 {
                self.head.go(Place::REST, QUICK_STEP);
            }
            return;
        }
        let asks = matches!(paths.end_at(to), PathEnd::Head { raised: true, .. });
        if asks && expression == Expression::Curious && !moment.user_speaking {
            return;
        }
        if !paths.is_end(to) {
            return self.head.settle(paths);
        }
        let ready = self.chest.height() == 0.0 && self.eyes.brows_rest();
        if self.listener.move_head(now, &mut self.head, paths, ready) {
            self.eyes.look_at_user();
            self.eyes.keep_until(now + Duration::from_millis(640));
        }
    }
}

/// A random time between two numbers of seconds.
pub(super) fn random_seconds(rng: &mut SmallRng, min: f32, max: f32) -> Duration {
    Duration::from_secs_f32(rng.random_range(min..max))
}
