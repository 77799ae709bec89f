//! Moves the head of a speaker: with accents and at the ends of phrases, while the lips are nearly
//! shut.
//!
//! The head changes between rest and one other head, the partner, which is replaced after a few
//! visits: each partner needs an anchor. A change begins only if the lips stay nearly shut until it
//! ends. It also carries the expression of a sentence, and nods and shakes with "yes" and "no".

use std::time::Duration;

use conversation::direction::Expression;
use conversation::input::SegmentId;
use conversation::time::Time;
use models::face::{HeadName, Mood};
use rand::Rng;
use rand::rngs::SmallRng;

use super::eyes::{BROW_SECONDS, Eyes};
use super::gesture_route::GestureRoute;
use super::head_mover::{HeadMover, QUICK_STEP};
use super::listening::{is_gesture, mood_at};
use super::mood::{Prelude, home};
use super::motion::random_seconds;
use super::rhythm::{CALM_JAW, Rhythm};
use super::stance_paths::{PathEnd, Place, Route, StancePaths};
use crate::speak::gesture_words::{Gesture, GestureWord};
use crate::speak::manners::Manner;

/// Time between two changes of the head, in seconds: minimum and maximum of the shortest one, and
/// the time after which any calm moment will do.
const REST_SECONDS: (f32, f32) = (1.2, 1.7);
const MAX_REST: Duration = Duration::from_millis(2800);
/// Number of visits of a partner before another one: minimum and maximum.
const VISITS: (u8, u8) = (2, 3);
/// The head turns to a side that it has not visited for this time, so that it uses its whole range
/// within a minute.
const MAX_SIDE_AWAY: Duration = Duration::from_secs(15);
/// An accent follows a change by at most this many seconds.
const ACCENT_SECONDS: f32 = 0.12;
/// A change at the end of a phrase begins within this many seconds.
const PHRASE_END_SECONDS: f32 = 0.12;
/// A gesture begins at most this many seconds before or after its word.
const GESTURE_LEAD_SECONDS: f32 = 0.05;
const GESTURE_LAG_SECONDS: f32 = 0.6;
/// During a gesture, the lips may be less open than they should for this many seconds.
const GESTURE_OPEN_SECONDS: f32 = 0.18;
const MAX_GESTURE_OPEN_SECONDS: f32 = 0.2;
/// Maximum number of steps of a gesture that begins before speech, of a calm face and of others:
/// 0.52 and 0.36 s at 25 frames a second.
const MAX_OPENING_STEPS: [u8; 2] = [13, 9];
/// A gesture is small if the head has rested for less than this time.
const GESTURE_REST: Duration = Duration::from_millis(500);
/// The head returns to rest if a gesture follows within this many seconds.
const GESTURE_AHEAD_SECONDS: f32 = 2.0;
/// An expression is not begun with less than this many seconds of the segment left.
const MIN_MOOD_SECONDS: f32 = 0.8;
/// The last seconds of a segment: its pause already has the expression of the next one.
const LAST_SECONDS: f32 = 0.35;
/// Brows rise this long before an accent at least, and stay up after it, in seconds.
const BROW_LEAD_SECONDS: f32 = 0.08;
const BROW_HOLD_SECONDS: f32 = 0.15;
/// Share of the accents that brows stress, if they may.
const STRESSED_SHARE: f64 = 0.5;
/// A glance to the side is followed by the head if it is at most this old.
const GLANCE_AGE: Duration = Duration::from_millis(2500);
/// The sides to which a head turns.
const SIDES: [HeadName; 2] = [HeadName::Left, HeadName::Right];
/// In a reduced send mode, the head comes to rest in the next calm moment, or after this time.
const MAX_REDUCED: Duration = Duration::from_secs(1);

/// The speech at one instant.
#[derive(Clone, Copy)]
pub(super) struct Speech<'a> {
    pub(super) segment: SegmentId,
    /// Seconds from the segment's first sample to the middle of the picture.
    pub(super) at: f32,
    /// Opening of the jaw.
    pub(super) jaw: f32,
    /// Rhythm of the segment, if its phones are known, and of the next one.
    pub(super) rhythm: Option<&'a Rhythm>,
    pub(super) next_rhythm: Option<&'a Rhythm>,
    pub(super) gestures: &'a [GestureWord],
    /// The manner of this segment, and of the next one if it is known.
    pub(super) shown_as: Manner,
    pub(super) next: Option<Manner>,
}

impl Speech<'_> {
    /// Seconds in which the lips stay nearly shut, or shut.
    fn room(&self, shut: bool) -> f32 {
        let Some(rhythm) = self.rhythm else { return 0.0 };
        let room = rhythm.calm_from(self.at, shut);
        match self.next_rhythm {
            Some(next) if room.is_infinite() => {
                (rhythm.end() - self.at).max(0.0) + next.calm_from(0.0, shut)
            }
            _ => room,
        }
    }

    /// For how many of the next seconds the lips are not nearly shut, or not shut.
    fn open_seconds(&self, seconds: f32, shut: bool) -> f32 {
        let Some(rhythm) = self.rhythm else { return seconds };
        let after = (self.at + seconds - rhythm.end()).clamp(0.0, seconds);
        let next = self.next_rhythm.map_or(0.0, |next| next.open_seconds(0.0, after, shut));
        rhythm.open_seconds(self.at, seconds - after, shut) + next
    }

    /// Seconds left of the segment.
    pub(super) fn left(&self) -> f32 {
        self.rhythm.map_or(0.0, |rhythm| rhythm.end() - self.at)
    }
}

/// The parts of the face that a change of the head concerns.
pub(super) struct Face<'a> {
    pub(super) now: Time,
    pub(super) head: &'a mut HeadMover,
    pub(super) eyes: &'a mut Eyes,
    pub(super) paths: &'a StancePaths,
    /// Whether the chest is down: it rises in still heads only.
    pub(super) chest_is_down: bool,
    /// The anchor that the receiver has.
    pub(super) anchor: Option<u8>,
    /// Time between two pictures, in seconds.
    pub(super) frame_seconds: f32,
    /// Time since when few bytes may be sent.
    pub(super) reduced_since: Option<Time>,
    pub(super) rng: &'a mut SmallRng,
}

/// The moving head of a speaker.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadMotion {
    /// When the head came to rest, and how long it stays at least.
    rested_at: Time,
    rest: Duration,
    moving: bool,
    /// The head with which rest alternates, and the number of visits left.
    partner: Option<Place>,
    visits: u8,
    /// When the head last turned to the left and to the right.
    turned_at: [Time; 2],
    /// The places of a gesture that are left, the last one first.
    gesture: Vec<Place>,
    /// Whether the head is on the way of a gesture, and for how many seconds of it the lips should
    /// have been open.
    in_gesture: bool,
    open_seconds: f32,
    /// The segment whose opening gesture began before it.
    opened: Option<SegmentId>,
    segment: Option<SegmentId>,
    /// Gestures of words that end before this time of the segment are over.
    gestured_until: f32,
    nod_requested: bool,
    /// The last accent that the brows could stress, and when they may rise next.
    last_accent: f32,
    next_stress: Time,
}

impl HeadMotion {
    pub(super) fn new() -> Self {
        Self { gesture: Vec::with_capacity(4), ..Self::default() }
    }

    /// Speech begins at `now`. The head does not change at once.
    pub(super) fn start(&mut self, now: Time, rng: &mut SmallRng) {
        self.rested_at = now;
        self.rest = random_seconds(rng, 0.3, 1.0);
        self.moving = false;
        self.stop_gesture();
    }

    /// Whether a gesture is under way.
    pub(super) fn is_gesturing(&self) -> bool {
        self.in_gesture
    }

    /// The speech is held, or has ended.
    pub(super) fn stop_gesture(&mut self) {
        self.gesture.clear();
        self.in_gesture = false;
    }

    /// The places of the pose set have changed.
    pub(super) fn forget_places(&mut self) {
        self.partner = None;
        self.stop_gesture();
    }

    /// Decides about the next motion.
    pub(super) fn update(&mut self, face: &mut Face<'_>, speech: &Speech<'_>) {
        if self.segment != Some(speech.segment) {
            self.segment = Some(speech.segment);
            self.gestured_until = -1.0;
            self.nod_requested = speech.shown_as.nod && self.opened != self.segment;
            self.last_accent = -1.0;
        }
        if !face.head.is_still() {
            self.moving = true;
            // The phones came too late to foresee that the lips open.
            if speech.jaw > 1.5 * CALM_JAW && speech.room(false) <= 0.0 {
                self.open_seconds += face.frame_seconds;
                if !self.in_gesture || self.open_seconds > MAX_GESTURE_OPEN_SECONDS {
                    self.stop_gesture();
                    face.head.settle(face.paths);
                }
            }
            return;
        }
        if self.in_gesture {
            self.go_on(face);
            if self.in_gesture {
                return;
            }
        }
        if self.moving {
            self.moving = false;
            self.rested_at = face.now;
            self.rest = random_seconds(face.rng, REST_SECONDS.0, REST_SECONDS.1);
        }
        if let Some(since) = face.reduced_since {
            let late = face.now.since(since) > MAX_REDUCED;
            if face.chest_is_down && (late || fits(face, speech, Place::REST)) {
                face.head.go(Place::REST, QUICK_STEP);
            }
            return;
        }
        if speech.rhythm.is_none() {
            return;
        }
        let ahead = self.gesture_word(speech, GESTURE_AHEAD_SECONDS);
        if self.make_gesture(face, speech) || self.change_mood(face, speech) {
            return;
        }
        self.change_head(face, speech, ahead);
        self.stress(face, speech);
    }

    /// The word whose gesture is due, or that follows within this many seconds.
    fn gesture_word(&self, speech: &Speech<'_>, ahead: f32) -> Option<GestureWord> {
        let tagged =
            GestureWord { gesture: Gesture::Nod, start: 0.2, end: speech.at, is_first: true };
        let word = speech.gestures.iter().find(|word| {
            let is_over = word.is_first && self.opened == self.segment;
            !is_over
                && word.end > self.gestured_until
                && speech.at >= word.start - ahead
                && speech.at <= word.end + GESTURE_LAG_SECONDS
        });
        word.copied()
            .or_else(|| (self.nod_requested && speech.at >= tagged.start - ahead).then_some(tagged))
    }

    /// Begins the gesture of a word.
    fn make_gesture(&mut self, face: &mut Face<'_>, speech: &Speech<'_>) -> bool {
        let Some(word) = self.gesture_word(speech, GESTURE_LEAD_SECONDS) else { return false };
        if !may_leave(face) {
            return false;
        }
        let (here, paths) = (face.head.at(), face.paths);
        let end = end_of_gesture(paths, word.gesture, here).unwrap_or(here);
        // A whole gesture soon after a change would take many bytes within a second.
        let is_small = face.now.since(self.rested_at) < GESTURE_REST;
        let ways = GestureRoute::all(word.gesture, here, here, end, paths);
        let mut ways = ways.skip(is_small.into());
        let Some(way) = ways.find(|way| has_room_for_gesture(face, speech, way.route)) else {
            return false;
        };
        self.gestured_until = word.end.max(speech.at);
        self.nod_requested = false;
        self.begin_gesture(face, way);
        true
    }

    /// The gesture of the first word of a segment begins before it, as that of people does. Then
    /// the head is where it belongs with this expression. Returns whether a gesture is under way.
    pub(super) fn gesture_before_speech(&mut self, face: &mut Face<'_>, prelude: &Prelude) -> bool {
        if self.in_gesture {
            self.go_on(face);
            return self.in_gesture;
        }
        let Some((segment, gesture)) = prelude.gesture else { return false };
        if self.opened == Some(segment) || !may_leave(face) {
            return false;
        }
        let (here, paths) = (face.head.at(), face.paths);
        let is_calm = prelude.expression == Expression::Calm;
        let head = if is_gesture(paths, here) { paths.start_of(here.path) } else { here };
        let end = end_of_gesture(paths, gesture, head).filter(|_| is_calm);
        let end = end.unwrap_or_else(|| home(prelude.expression, paths));
        let mut ways = GestureRoute::all(gesture, here, head, end, paths);
        let max_steps = MAX_OPENING_STEPS[usize::from(!is_calm)];
        let way = ways.find(|way| way.route.steps <= max_steps);
        // Without a short way, the expression comes first.
        self.opened = way.map(|_| segment);
        way.is_some_and(|way| {
            self.begin_gesture(face, way);
            true
        })
    }

    fn begin_gesture(&mut self, face: &mut Face<'_>, way: GestureRoute) {
        self.gesture.clear();
        self.gesture.extend(way.places());
        self.in_gesture = true;
        self.open_seconds = 0.0;
        self.moving = true;
        if let Some(first) = self.gesture.pop() {
            go(face, first, way.route.steps);
        }
    }

    /// The next turn of a gesture, once the head is at the last one.
    fn go_on(&mut self, face: &mut Face<'_>) {
        if face.head.is_still() {
            match self.gesture.pop() {
                Some(next) => face.head.go(next, QUICK_STEP),
                None => self.in_gesture = false,
            }
        }
    }

    /// Changes to the expression of the sentence, if there is time. In the pause at the end of a
    /// segment, it is that of the next one.
    fn change_mood(&mut self, face: &mut Face<'_>, speech: &Speech<'_>) -> bool {
        let next = speech.next.filter(|_| speech.left() < LAST_SECONDS);
        let expression = next.unwrap_or(speech.shown_as).expression;
        let (home, here) = (home(expression, face.paths), face.head.at());
        let same_mood = mood_at(face.paths, here) == mood_at(face.paths, home);
        // A calm head that raises its brows.
        let curious = expression == Expression::Curious && same_mood && here != home;
        if same_mood && !(curious && face.now >= self.rested_at + self.rest) {
            return false;
        }
        if next.is_none() && speech.left() < MIN_MOOD_SECONDS {
            return true;
        }
        // Without time for all of it, the head comes to rest first.
        let rest = face.paths.find(HeadName::Rest, mood_at(face.paths, here), false);
        let places = [Some(home), rest.filter(|rest| *rest != here)];
        for place in places.into_iter().flatten() {
            if may_leave(face) && fits(face, speech, place) {
                go(face, place, face.paths.route(here, place).steps);
                self.moving = true;
                return true;
            }
        }
        !curious
    }

    /// Changes the head between rest and its partner.
    fn change_head(
        &mut self,
        face: &mut Face<'_>,
        speech: &Speech<'_>,
        ahead: Option<GestureWord>,
    ) {
        let (here, rested) = (face.head.at(), face.now.since(self.rested_at));
        let at_rest = is_rest(face.paths, here);
        let leans = face.paths.end(PathEnd::LEAN) == Some(here);
        // Where the head is ready for the gesture, it waits.
        let waits = ahead.is_some_and(|word| {
            at_rest || (leans && (word.gesture == Gesture::Nod || speech.at >= word.start))
        });
        let gesture_ahead = ahead.is_some();
        if waits || (rested < self.rest && !gesture_ahead) || !may_leave(face) {
            return;
        }
        let room = speech.room(false);
        if room <= 0.0 {
            return;
        }
        let Some(rhythm) = speech.rhythm else { return };
        let mood = mood_at(face.paths, here);
        // With joy, the brows rise and fall with each change.
        let raised = mood == Mood::Warm
            && speech.shown_as.expression == Expression::Glad
            && !matches!(face.paths.end_at(here), PathEnd::Head { raised: true, .. });
        let target = if at_rest {
            self.choose_partner(face, speech, mood, raised)
        } else {
            let rest = face.paths.find(HeadName::Rest, mood, raised);
            rest.or_else(|| face.paths.find(HeadName::Rest, mood, false))
        };
        let Some(target) = target.filter(|target| fits(face, speech, *target)) else { return };
        let route = face.paths.route(here, target);
        let needed = pictures(route, true) * face.frame_seconds;
        let accented = rhythm.accent_from(speech.at).is_some_and(|accent| {
            let after = accent - speech.at - needed;
            (-0.04..ACCENT_SECONDS).contains(&after)
        });
        let phrase_ends = rhythm.since_phrase_end(speech.at) < PHRASE_END_SECONDS;
        if accented || phrase_ends || gesture_ahead || rested >= MAX_REST {
            if at_rest {
                self.visits = self.visits.saturating_sub(1);
                if let PathEnd::Head { name, .. } = face.paths.end_at(target)
                    && let Some(side) = SIDES.iter().position(|side| *side == name)
                {
                    self.turned_at[side] = face.now;
                }
            }
            go(face, target, route.steps);
            self.moving = true;
        }
    }

    /// The partner for the next change from rest.
    fn choose_partner(
        &mut self,
        face: &mut Face<'_>,
        speech: &Speech<'_>,
        mood: Mood,
        raised: bool,
    ) -> Option<Place> {
        let find = |name| {
            let place = face.paths.find(name, mood, raised);
            place.or_else(|| face.paths.find(name, mood, false))
        };
        let side = face.eyes.glanced_since(face.now - GLANCE_AGE);
        let current = self.partner.filter(|current| {
            matches!(face.paths.end_at(*current), PathEnd::Head { mood: same, raised: brows, .. }
                if same == mood && brows == raised)
        });
        // A listener leans.
        let listens_next = speech.next.is_none() && speech.left() < 2.5;
        if let Some(lean) = find(HeadName::Lean).filter(|_| listens_next) {
            return Some(lean);
        }
        if let Some(current) = current.filter(|_| self.visits > 0) {
            return Some(current);
        }
        let [left, right] = SIDES.map(find);
        let opposite = if current.is_some() && current == right { left } else { right };
        let opposite = opposite.filter(|place| current != Some(*place));
        let away = |side: usize| face.now.since(self.turned_at[side]);
        let missed = usize::from(away(1) > away(0));
        let missed = [left, right][missed].filter(|_| away(missed) > MAX_SIDE_AWAY);
        let crosses = face.rng.random_bool(0.5);
        let all = [HeadName::Left, HeadName::Right, HeadName::Lean, HeadName::Down].map(find);
        let others = || all.into_iter().flatten().filter(|place| current != Some(*place));
        let count = others().count();
        let aside = side.and_then(|side| all[usize::from(side > 0.0)]);
        let chosen = match missed.or(aside).filter(|place| current != Some(*place)) {
            Some(aside) => Some(aside),
            None if crosses && opposite.is_some() => opposite,
            None if count == 0 => current,
            None => others().nth(face.rng.random_range(0..count)),
        };
        self.partner = chosen;
        self.visits = face.rng.random_range(VISITS.0..=VISITS.1);
        chosen
    }

    /// Brows rise with some accents, and with the last one of a question.
    fn stress(&mut self, face: &mut Face<'_>, speech: &Speech<'_>) {
        let Some(rhythm) = speech.rhythm else { return };
        let Some(accent) = rhythm.accent_from(speech.at + BROW_LEAD_SECONDS) else { return };
        let lead = accent - speech.at;
        if accent <= self.last_accent || lead > BROW_SECONDS || face.head.at() != Place::REST {
            return;
        }
        self.last_accent = accent;
        let asks = speech.shown_as.is_question && rhythm.last_accent() == Some(accent);
        // The head does not wait for brows.
        let length = Duration::from_secs_f32(lead + BROW_HOLD_SECONDS);
        let fallen = face.now + length + Duration::from_secs_f32(BROW_SECONDS);
        let is_free = fallen < self.rested_at + self.rest || face.paths.is_single();
        let chance = is_free && face.now >= self.next_stress;
        if face.head.is_still()
            && face.eyes.at_user()
            && (asks || (chance && face.rng.random_bool(STRESSED_SHARE)))
        {
            face.eyes.stress(face.now + length);
            self.next_stress = face.now + random_seconds(face.rng, 1.0, 2.5);
        }
    }
}

/// Where a calm head is after a gesture: a nod returns to where it began.
fn end_of_gesture(paths: &StancePaths, gesture: Gesture, here: Place) -> Option<Place> {
    let is_head = paths.is_end(here) && paths.speaks(here) && !is_gesture(paths, here);
    if !is_head || mood_at(paths, here) != Mood::Calm {
        return None;
    }
    Some(if gesture == Gesture::Nod { here } else { Place::REST })
}

/// Whether a place is rest, calm or with an expression.
fn is_rest(paths: &StancePaths, place: Place) -> bool {
    matches!(paths.end_at(place), PathEnd::Head { name: HeadName::Rest, .. })
}

/// Whether eyes and brows let the head leave: raised brows are baked at rest only, and on the way
/// shut eyes have closed lips.
fn may_leave(face: &Face<'_>) -> bool {
    let brows_rest = face.head.at() != Place::REST || face.eyes.brows_rest();
    brows_rest && face.chest_is_down && !face.eyes.is_blinking(face.now)
}

/// Begins a motion that passes this many places. The eyes look at the user and do not blink on the
/// way.
fn go(face: &mut Face<'_>, to: Place, steps: u8) {
    let seconds = f32::from(steps) * face.frame_seconds;
    face.eyes.look_at_user();
    face.eyes.keep_open_until(face.now, face.now + Duration::from_secs_f32(seconds));
    face.head.go(to, QUICK_STEP);
}

/// Number of pictures without all mouths on a route; the anchor of its end is one.
fn pictures(route: Route, with_anchor: bool) -> f32 {
    f32::from(route.steps.saturating_sub(1) + u8::from(with_anchor))
}

/// Whether the lips stay nearly shut while a head moves to a place.
fn fits(face: &Face<'_>, speech: &Speech<'_>, to: Place) -> bool {
    let anchor = face.paths.anchor(to);
    let with_anchor = anchor.is_some() && anchor != face.anchor;
    let steps = face.paths.route(face.head.at(), to).steps;
    // An anchor shows closed lips.
    let arrival = speech.at + f32::from(steps.saturating_sub(1)) * face.frame_seconds;
    if with_anchor && speech.rhythm.is_some_and(|rhythm| rhythm.is_closure(arrival)) {
        return false;
    }
    has_room(face, speech, face.paths.route(face.head.at(), to), with_anchor)
}

/// Whether the lips stay nearly shut during a gesture, but for a moment.
fn has_room_for_gesture(face: &Face<'_>, speech: &Speech<'_>, route: Route) -> bool {
    let needed = (pictures(route, false) - 1.0).max(0.0) * face.frame_seconds;
    speech.open_seconds(needed, !route.moving_lips) <= GESTURE_OPEN_SECONDS
}

fn has_room(face: &Face<'_>, speech: &Speech<'_>, route: Route, with_anchor: bool) -> bool {
    // The first of the pictures is this one.
    let needed = (pictures(route, with_anchor) - 1.0).max(0.0) * face.frame_seconds;
    let room = speech.room(!route.moving_lips);
    room > 0.0 && room >= needed
}
