//! What a face does of itself: blinks, glances, nods, breath, a lean and a smile while it listens. No lips.
//!
//! Numbers are of people: 17 blinks a minute at rest and 26 in conversation, intervals log-normal (Bentivoglio et al., "Analysis of blink
//! rate patterns in normal subjects", 1997); a blink closes in about 80 ms and opens in 160; speakers look away now and then and listeners
//! less (Argyle & Cook, "Gaze and mutual gaze", 1976); twelve to sixteen breaths a minute at rest, out slower than in, then a pause; a smile
//! of joy lasts one to a few seconds and comes up in a third of one (Ekman & Friesen, "Felt, false, and miserable smiles", 1982).

use std::time::Duration;

use conversation::event::AgentState;
use conversation::time::Time;
use models::face::{Brows, Eyes, Head, Look, Stance};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::pose::smooth;

/// Lids on their way down, shut, and up again.
const CLOSE: f32 = 0.08;
const SHUT: f32 = 0.05;
const OPEN: f32 = 0.16;
/// A nod, down and up.
const NOD: f32 = 0.64;
/// How long the head takes to lean or come back.
const LEAN: f32 = 0.6;
/// The listener's lean, radians.
pub const LISTENING: Head = Head { yaw: 0.025, pitch: 0.012, roll: 0.038 };
/// The deepest point of a nod, relative to where the head is.
pub const NOD_DEPTH: f32 = 0.05;
/// Where a thinking face looks.
pub const AWAY: [f32; 2] = [0.55, 0.5];
/// A glance aside while speaking or listening.
pub const ASIDE: [f32; 2] = [0.4, -0.05];

/// A breath: in, out, and the pause before the next, as shares of it.
const IN: f32 = 0.35;
const OUT: f32 = 0.45;
/// How long a smile takes to come or go.
const SMILING: f32 = 0.36;

/// How a face holds itself at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Manner {
    /// Eyes and brows.
    pub look: Look,
    /// Head and smile.
    pub stance: Stance,
    /// 0 breathed out … 1 breathed in.
    pub breath: f32,
}

/// The manners of one face in one call.
pub struct Life {
    rng: SmallRng,
    state: AgentState,
    since: Time,
    /// Start of the blink that runs or is next.
    blink: Time,
    gaze: [f32; 2],
    /// When the gaze changes next.
    glance: Time,
    raised: bool,
    nod: Option<Time>,
    /// Where the head was when it began to move, and since when.
    from: Head,
    moved: Time,
    lean: Head,
    /// Start and length of the breath that runs or is next.
    breath: (Time, Duration),
    /// Start and end of the smile that runs or is next.
    smile: Option<(Time, Time)>,
}

impl Life {
    /// A face at rest. The same seed lives the same life.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut life = Self {
            rng: SmallRng::seed_from_u64(seed),
            state: AgentState::Listening,
            since: Time::ZERO,
            blink: Time::ZERO,
            gaze: [0.0; 2],
            glance: Time::ZERO,
            raised: false,
            nod: None,
            from: Head::default(),
            moved: Time::ZERO,
            lean: Head::default(),
            breath: (Time::ZERO, Duration::ZERO),
            smile: None,
        };
        life.breath.1 = life.seconds(3.7, 5.0);
        life.blink = Time::ZERO + life.until_blink();
        life.glance = Time::ZERO + life.seconds(1.5, 4.0);
        life
    }

    /// The agent does something else from `now` on.
    pub fn set_state(&mut self, state: AgentState, now: Time) {
        if state == self.state {
            return;
        }
        let spoke = self.state == AgentState::Speaking;
        self.state = state;
        self.since = now;
        let target = match state {
            AgentState::Listening => LISTENING,
            _ => Head::default(),
        };
        self.from = self.head(now);
        self.lean = target;
        self.moved = now;
        self.nod = None;
        self.raised = false;
        // Lips that speak, and a mind at work, do not smile more than at rest.
        self.smile = None;
        // Who has said something nice waits for the answer with a smile; behind the lean, since a smile is drawn upright and leant.
        if spoke && state == AgentState::Listening && self.rng.random_bool(0.6) {
            let begin = now + Duration::from_secs_f32(LEAN) + self.seconds(0.1, 0.5);
            self.smile = Some((begin, begin + self.seconds(1.4, 2.8)));
        }
        // Breath is held while speaking; it begins anew with the next silence.
        self.breath = (now + self.seconds(0.8, 1.4), self.seconds(3.7, 5.0));
        // A new thought moves the eyes, and eyes that move blink.
        match state {
            AgentState::Thinking => {
                self.glance = now + self.seconds(0.25, 0.5);
                self.blink = self.blink.min(now + Duration::from_millis(200));
            }
            AgentState::Listening | AgentState::Speaking => {
                self.gaze = [0.0; 2];
                self.glance = now + self.seconds(1.2, 3.5);
            }
        }
    }

    /// A small nod: the user made a pause. Ignored unless the agent listens.
    pub fn nod(&mut self, now: Time) {
        // Each is drawn without the other.
        let smiles = self.smile.is_some_and(|(begin, _)| begin <= now + Duration::from_secs_f32(NOD));
        if self.state == AgentState::Listening && self.nod.is_none() && !smiles {
            self.nod = Some(now);
        }
    }

    /// All of it at `now`, which never runs backwards.
    pub fn at(&mut self, now: Time) -> Manner {
        let lids = self.lids(now);
        if now >= self.glance {
            self.look_elsewhere(now);
        }
        let eyes = Eyes { lids, gaze_x: self.gaze[0], gaze_y: self.gaze[1], squint: 0.0 };
        let raise = match self.state {
            AgentState::Thinking if self.gaze != [0.0; 2] => 0.4,
            _ if self.raised => 0.5,
            _ => 0.0,
        };
        Manner {
            look: Look { eyes, brows: Brows { raise, knit: 0.0 } },
            stance: Stance { head: self.head(now), smile: self.smile(now) },
            breath: self.breath(now),
        }
    }

    /// Only a listener is seen breathing: speech has the breath, and a thought holds it.
    fn breath(&mut self, now: Time) -> f32 {
        if self.state != AgentState::Listening {
            return 0.0;
        }
        let (begin, length) = self.breath;
        let t = now.since(begin).as_secs_f32() / length.as_secs_f32();
        if t >= 1.0 {
            self.breath = (now, self.seconds(3.7, 5.0));
        }
        if t < IN { smooth(t / IN) } else { 1.0 - smooth((t - IN) / OUT) }
    }

    fn smile(&mut self, now: Time) -> f32 {
        let Some((begin, end)) = self.smile else { return 0.0 };
        if now >= end {
            self.smile = None;
        }
        let since = |from: Time| now.since(from).as_secs_f32() / SMILING;
        let leaves = (end.since(now).as_secs_f32() / SMILING).min(1.0);
        smooth(since(begin).min(leaves))
    }

    fn lids(&mut self, now: Time) -> f32 {
        if now < self.blink {
            return 0.0;
        }
        let t = now.since(self.blink).as_secs_f32();
        if t < CLOSE {
            smooth((t + 0.02) / CLOSE)
        } else if t < CLOSE + SHUT {
            1.0
        } else if t < CLOSE + SHUT + OPEN {
            1.0 - smooth((t - CLOSE - SHUT) / OPEN)
        } else {
            self.blink = now + self.until_blink();
            0.0
        }
    }

    /// One blink in eight is double.
    fn until_blink(&mut self) -> Duration {
        if self.rng.random_bool(0.12) {
            return self.seconds(0.10, 0.25);
        }
        let median = match self.state {
            AgentState::Speaking => 2.0,
            AgentState::Listening | AgentState::Thinking => 3.0,
        };
        // The sum of twelve uniform numbers is near enough to a normal one.
        let normal: f32 = (0..12).map(|_| self.rng.random::<f32>()).sum::<f32>() - 6.0;
        Duration::from_secs_f32((median * (0.45 * normal).exp()).clamp(0.6, 12.0))
    }

    fn look_elsewhere(&mut self, now: Time) {
        let at_user = self.gaze == [0.0; 2];
        let side = if self.rng.random_bool(0.5) { 1.0 } else { -1.0 };
        let stay;
        (self.gaze, stay) = match (self.state, at_user) {
            // Away to think, back to see whether the other is still there.
            (AgentState::Thinking, true) => (AWAY, self.seconds(0.9, 2.2)),
            (AgentState::Thinking, false) => ([0.0; 2], self.seconds(0.5, 1.2)),
            (AgentState::Speaking, true) => ([ASIDE[0] * side, ASIDE[1]], self.seconds(0.3, 0.9)),
            (AgentState::Listening, true) => ([ASIDE[0] * side, ASIDE[1]], self.seconds(0.25, 0.6)),
            (AgentState::Speaking, false) => ([0.0; 2], self.seconds(1.5, 4.0)),
            (AgentState::Listening, false) => ([0.0; 2], self.seconds(3.0, 7.0)),
        };
        self.glance = now + stay;
        self.raised =
            self.state == AgentState::Speaking && self.gaze == [0.0; 2] && self.rng.random_bool(0.4);
    }

    fn head(&mut self, now: Time) -> Head {
        let k = smooth(now.since(self.moved).as_secs_f32() / LEAN);
        let mix = |a: f32, b: f32| a + (b - a) * k;
        let mut head = Head {
            yaw: mix(self.from.yaw, self.lean.yaw),
            pitch: mix(self.from.pitch, self.lean.pitch),
            roll: mix(self.from.roll, self.lean.roll),
        };
        if let Some(start) = self.nod {
            let t = now.since(start).as_secs_f32() / NOD;
            if t >= 1.0 {
                self.nod = None;
            } else {
                head.pitch += NOD_DEPTH * smooth(1.0 - (2.0 * t - 1.0).abs());
            }
        }
        head
    }

    fn seconds(&mut self, least: f32, most: f32) -> Duration {
        Duration::from_secs_f32(self.rng.random_range(least..most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(state: AgentState, minutes: u64) -> Vec<Manner> {
        let mut life = Life::new(5);
        life.set_state(state, Time::ZERO);
        (0..minutes * 60 * 25).map(|n| life.at(Time::from_micros(n * 40_000))).collect()
    }

    fn blinks(frames: &[Manner]) -> usize {
        frames.windows(2).filter(|w| w[0].look.eyes.lids < 0.9 && w[1].look.eyes.lids >= 0.9).count()
    }

    #[test]
    fn blinks_come_as_often_as_in_people_and_more_often_in_talk() {
        let (rest, talk) =
            (blinks(&minutes(AgentState::Listening, 20)), blinks(&minutes(AgentState::Speaking, 20)));
        assert!((12 * 20..24 * 20).contains(&rest), "{} a minute at rest", rest / 20);
        assert!((20 * 20..34 * 20).contains(&talk), "{} a minute in talk", talk / 20);
        assert!(talk > rest);
    }

    #[test]
    fn every_blink_shuts_the_eye_and_is_short() {
        let frames = minutes(AgentState::Listening, 5);
        let mut run = 0;
        for Manner { look, .. } in frames {
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
        let frames = minutes(AgentState::Thinking, 1);
        let away = frames.iter().filter(|m| m.look.eyes.gaze_y > 0.3).count();
        assert!((frames.len() / 3..frames.len() * 5 / 6).contains(&away));
    }

    #[test]
    fn a_listener_looks_at_the_user_most_of_the_time() {
        let frames = minutes(AgentState::Listening, 5);
        let at_user = frames.iter().filter(|m| m.look.eyes.gaze_x == 0.0).count();
        assert!(at_user > frames.len() * 4 / 5);
    }

    #[test]
    fn the_head_moves_without_jumps() {
        let mut life = Life::new(9);
        let states = [AgentState::Listening, AgentState::Thinking, AgentState::Speaking];
        let mut last = Head::default();
        for n in 0..3000u64 {
            let now = Time::from_micros(n * 40_000);
            if n % 70 == 0 {
                life.set_state(states[(n / 70 % 3) as usize], now);
            }
            if n % 31 == 0 {
                life.nod(now);
            }
            let head = life.at(now).stance.head;
            let step = (head.roll - last.roll).abs().max((head.yaw - last.yaw).abs());
            assert!(step < 0.008, "{step}");
            last = head;
        }
    }

    #[test]
    fn a_listener_breathes_as_often_as_people_at_rest_and_a_speaker_is_not_seen_to() {
        let breaths =
            |frames: &[Manner]| frames.windows(2).filter(|w| w[0].breath < 0.5 && w[1].breath >= 0.5).count();
        let listening = breaths(&minutes(AgentState::Listening, 10));
        assert!((120..=160).contains(&listening), "{listening} in ten minutes");
        assert_eq!(breaths(&minutes(AgentState::Speaking, 1)), 0);
        let steps = minutes(AgentState::Listening, 1);
        assert!(steps.windows(2).all(|w| (w[0].breath - w[1].breath).abs() < 0.06));
    }

    #[test]
    fn it_smiles_now_and_then_when_it_has_spoken_and_neither_nods_nor_leans_meanwhile() {
        let (mut life, mut smiles, mut shown) = (Life::new(3), 0, 0.0f32);
        for n in 0..25 * 600u64 {
            let now = Time::from_micros(n * 40_000);
            match n % 250 {
                0 => life.set_state(AgentState::Speaking, now),
                100 => life.set_state(AgentState::Listening, now),
                130 | 150 | 180 => life.nod(now),
                _ => {}
            }
            let stance = life.at(now).stance;
            assert!((stance.smile - shown).abs() < 0.2 || n % 250 == 0, "a jump at {n}");
            if stance.smile > 0.0 {
                assert_eq!(stance.head, LISTENING, "frame {n}");
                smiles += usize::from(shown == 0.0);
            }
            shown = stance.smile;
        }
        assert!((24..=50).contains(&smiles), "{smiles} of 60 turns");
    }
}
