//! Calls with one face that says a script, for tests of its motion.

use std::sync::OnceLock;

use conversation::direction::Expression;
use models::face::bake::PosePlan;
use models::face::{PoseId, Stance};

use super::super::test_poses::{cache_of, crown, shown_pose};
use super::*;

/// A spoken segment: phones with their ends, a stressed vowel with `'`; words with their ends. By
/// flite 2.2, voice rms.
pub(super) struct Spoken {
    pub(super) phones: Vec<Phone>,
    pub(super) words: Vec<(String, Position)>,
}

pub(super) fn spoken(phones: &str, words: &str) -> Spoken {
    let split = |word: &str| {
        let (text, end) = word.rsplit_once(':').unwrap();
        (text.to_owned(), end.parse::<f32>().unwrap())
    };
    let phone = |word: &str| {
        let (name, end) = split(word);
        Phone { stress: name.ends_with('\''), ..Phone::new(name.trim_end_matches('\''), end) }
    };
    let place = |word: &str| {
        let (text, end) = split(word);
        (text, Position::from_seconds(f64::from(end)))
    };
    Spoken {
        phones: phones.split_whitespace().map(phone).collect(),
        words: words.split_whitespace().map(place).collect(),
    }
}

/// Eight of the sentences of `engine/examples/motion.rs`: 31 s.
pub(super) fn script() -> Vec<Spoken> {
    [
        (
            "pau:0.03 g:0.12 uh':0.23 d:0.29 m:0.37 ao':0.45 r:0.52 n:0.57 ih:0.63 ng:0.74 \
             pau:0.87 ae:0.98 n:1.02 d:1.07 w:1.19 eh':1.28 l:1.38 k:1.47 ax:1.50 m:1.60 \
             t:1.67 ax:1.77 dh:1.84 ax:1.88 m:1.94 y:2.10 uw:2.13 z:2.23 iy':2.39 ax:2.41 \
             m:2.52 ah:2.58 v:2.63 k:2.77 l:2.81 aa':2.89 k:2.99 s:3.16 pau:3.33",
            "Good:0.29 morning,:0.74 and:1.07 welcome:1.60 to:1.77 the:1.88 museum:2.52 \
             of:2.63 clocks.:3.16",
        ),
        (
            "pau:0.03 m:0.11 ay:0.25 n:0.29 ey':0.52 m:0.58 ih:0.65 z:0.72 r:0.81 aa':0.85 \
             b:0.92 ax:0.97 n:1.09 pau:1.22 ae:1.31 n:1.36 d:1.38 ay:1.59 ae:1.73 m:1.79 \
             hh:1.85 ae':1.99 p:2.07 iy:2.15 t:2.21 ax:2.27 sh:2.41 ow':2.49 y:2.65 uw:2.73 \
             er:2.84 aw':3.04 n:3.12 d:3.19 pau:3.32",
            "My:0.25 name:0.58 is:0.72 Robin,:1.09 and:1.38 I:1.59 am:1.79 happy:2.15 to:2.27 \
             show:2.49 you:2.73 around.:3.19",
        ),
        (
            "pau:0.03 w:0.10 uh:0.14 d:0.19 y:0.29 uw:0.33 l:0.45 ay':0.57 k:0.64 t:0.73 \
             ax:0.78 s:0.92 iy':1.07 dh:1.13 iy:1.20 ow':1.31 l:1.48 d:1.52 k:1.67 l:1.71 \
             aa':1.82 k:1.88 s:1.95 f:2.07 er':2.21 s:2.28 t:2.33 pau:2.45 ao:2.54 r:2.59 \
             dh:2.66 ax:2.69 w:2.80 er':2.86 k:2.90 sh:3.03 aa:3.21 p:3.39 pau:3.54",
            "Would:0.19 you:0.33 like:0.64 to:0.78 see:1.07 the:1.20 old:1.52 clocks:1.95 \
             first,:2.33 or:2.59 the:2.69 workshop?:3.39",
        ),
        (
            "pau:0.03 y:0.17 eh':0.32 s:0.47 pau:0.56 ah:0.66 v:0.72 k:0.86 ao':0.93 r:1.04 \
             s:1.23 pau:1.37",
            "Yes,:0.47 of:0.72 course.:1.23",
        ),
        (
            "pau:0.03 dh:0.14 iy:0.22 ow':0.29 l:0.44 d:0.49 ax:0.53 s:0.66 t:0.70 ah:0.86 \
             v:0.93 dh:1.02 eh:1.14 m:1.21 w:1.27 aa:1.31 z:1.38 b:1.45 ih':1.51 l:1.57 \
             t:1.72 ih:1.85 n:1.90 s:1.99 ih:2.04 k:2.08 s:2.19 t:2.25 iy':2.35 n:2.42 s:2.55 \
             eh':2.61 v:2.68 ax:2.74 n:2.81 t:2.87 iy:2.97 s:3.09 ih':3.22 k:3.27 s:3.39 \
             pau:3.55 ae:3.64 n:3.71 d:3.73 f:3.83 ay':3.98 v:4.04 ah:4.13 v:4.18 ih:4.26 \
             t:4.30 s:4.39 w:4.46 iy':4.55 l:4.65 z:4.74 aa:4.77 r:4.85 m:4.90 ey':5.06 \
             d:5.12 ah:5.26 v:5.29 p:5.43 eh':5.46 r:5.55 w:5.69 uh':5.90 d:5.98 pau:6.15",
            "The:0.22 oldest:0.70 of:0.93 them:1.21 was:1.38 built:1.72 in:1.90 sixteen:2.42 \
             seventy:2.97 six,:3.39 and:3.73 five:4.04 of:4.18 its:4.39 wheels:4.74 are:4.85 \
             made:5.12 of:5.29 pear:5.55 wood.:5.98",
        ),
        (
            "pau:0.03 ih:0.13 t:0.21 r:0.31 ah':0.38 n:0.43 z:0.50 f:0.61 ao:0.65 r:0.70 \
             th:0.85 er':0.93 d:0.98 iy:1.09 aw':1.24 er:1.42 z:1.54 pau:1.62 l:1.74 uw':1.83 \
             z:1.91 ax:1.94 z:2.06 ax:2.15 b:2.20 aw:2.35 t:2.41 ax:2.47 m:2.58 ih':2.64 \
             n:2.69 ax:2.76 t:2.84 ax:2.89 d:2.96 ey':3.26 pau:3.42 ae:3.55 n:3.62 d:3.64 \
             s:3.76 ah:3.84 m:3.91 b:3.98 aa':4.09 d:4.12 iy:4.22 w:4.33 ih':4.41 n:4.50 \
             d:4.53 z:4.60 ih:4.67 t:4.75 eh':4.86 v:4.92 er:5.00 iy:5.11 m:5.20 ao':5.27 \
             r:5.33 n:5.38 ih:5.45 ng:5.57 pau:5.75",
            "It:0.21 runs:0.50 for:0.70 thirty:1.09 hours,:1.54 loses:2.06 about:2.41 a:2.47 \
             minute:2.84 a:2.89 day,:3.26 and:3.64 somebody:4.22 winds:4.60 it:4.75 \
             every:5.11 morning.:5.57",
        ),
        (
            "pau:0.03 n:0.12 ow':0.32 pau:0.40 y:0.54 uw:0.57 m:0.68 ah:0.80 s:0.92 t:0.97 \
             n:1.04 aa':1.19 t:1.25 t:1.33 ah':1.37 ch:1.47 ih:1.57 t:1.63 pau:1.72 ay:1.87 \
             ae:1.99 m:2.06 s:2.17 aa':2.24 r:2.34 iy:2.47 pau:2.63",
            "No,:0.32 you:0.57 must:0.97 not:1.25 touch:1.47 it,:1.63 I:1.87 am:2.06 \
             sorry.:2.47",
        ),
        (
            "pau:0.03 n:0.14 eh':0.24 k:0.30 s:0.41 t:0.47 d:0.52 ao':0.64 r:0.70 y:0.80 \
             uw:0.84 f:0.94 ay':1.20 n:1.28 d:1.29 th:1.44 r:1.49 iy':1.55 r:1.68 uw':1.70 \
             m:1.76 z:1.84 w:1.94 ih:1.98 dh:2.05 w:2.14 aa':2.22 ch:2.32 ax:2.40 z:2.51 \
             pau:2.61 m:2.64 y:2.79 uw':2.83 z:2.92 ih:2.98 k:3.07 b:3.15 aa':3.27 k:3.30 \
             s:3.41 ax:3.48 z:3.60 ae:3.71 n:3.75 d:3.78 ao:3.99 t:4.01 ax:4.03 m:4.13 \
             ae':4.27 t:4.29 ih:4.36 k:4.41 f:4.54 ih':4.62 g:4.68 y:4.74 er:4.88 z:5.04 \
             pau:5.20",
            "Next:0.47 door:0.70 you:0.84 find:1.29 three:1.55 rooms:1.84 with:2.05 \
             watches,:2.51 music:3.07 boxes:3.60 and:3.78 automatic:4.41 figures.:5.04",
        ),
    ]
    .map(|(phones, words)| spoken(phones, words))
    .into()
}

pub(super) fn shown_as(expression: Expression) -> Manner {
    Manner { expression, ..Manner::default() }
}

/// A call with one face.
pub(super) struct Call {
    pub(super) animator: AvatarAnimator,
    pub(super) rate: u64,
    /// Number of the next picture.
    n: u64,
    /// The segments that are known, with their ends in seconds; the first one plays.
    queue: Vec<(SegmentId, f32)>,
    next_segment: u32,
    /// When the first segment began, as a number of a picture.
    began: Option<u64>,
}

impl Call {
    pub(super) fn new(cache: Arc<PoseCache>, rate: u32, seed: u64) -> Self {
        let animator = AvatarAnimator::with_poses(cache, rate, seed);
        let (queue, rate) = (Vec::new(), u64::from(rate));
        Self { animator, rate, n: 0, queue, next_segment: 0, began: None }
    }

    pub(super) fn announce(&mut self, shown_as: Manner) -> SegmentId {
        let segment = SegmentId(self.next_segment);
        self.next_segment += 1;
        self.animator.announce_segment(segment, shown_as);
        segment
    }

    /// The speech of a segment is known, and plays after that of the others.
    pub(super) fn play(&mut self, segment: SegmentId, spoken: &Spoken) {
        self.animator.add_phones(segment, &spoken.phones);
        self.animator.add_words(segment, &spoken.words);
        self.queue.push((segment, spoken.phones.last().unwrap().end));
    }

    pub(super) fn say(&mut self, spoken: &Spoken, shown_as: Manner) {
        let segment = self.announce(shown_as);
        self.play(segment, spoken);
    }

    /// The user interrupts: nothing plays any more.
    pub(super) fn cut(&mut self) {
        self.queue.clear();
        self.began = None;
        self.animator.retain_segments(|_| false);
        self.animator.set_state(AgentState::Listening, false);
    }

    pub(super) fn time_to_show(&self, expression: Expression) -> Duration {
        self.animator.time_to_show(expression, self.now())
    }

    pub(super) fn is_speaking(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn now(&self) -> Time {
        Time::from_micros(self.n * 1_000_000 / self.rate)
    }

    /// The pose of the next picture.
    pub(super) fn picture(&mut self) -> PoseId {
        let seconds = |n: u64| n as f32 / self.rate as f32;
        let mut at = self.began.map_or(0.0, |began| seconds(self.n - began));
        while let Some((_, end)) = self.queue.first().copied().filter(|(_, end)| at >= *end) {
            let (ended, _) = self.queue.remove(0);
            at -= end;
            self.animator.retain_segments(|segment| segment != ended);
            self.began = Some(self.n);
            if self.queue.is_empty() {
                self.began = None;
                self.animator.set_state(AgentState::Listening, false);
            }
        }
        let position = self.queue.first().map(|(segment, _)| {
            self.began.get_or_insert(self.n);
            (*segment, at)
        });
        if position.is_some() && !self.animator.held {
            self.animator.set_state(AgentState::Speaking, false);
        }
        let now = self.now();
        self.animator.next_frame(now, position);
        self.n += 1;
        let poses = &self.animator.poses;
        match (self.animator.last_pose, self.animator.anchor) {
            (Some(shown), _) => PoseId {
                // Brows of an anchor are those of its stance.
                stance: shown
                    .anchor
                    .map_or(shown_pose(poses, shown).stance, |_| self.stance_of(shown)),
                ..shown_pose(poses, shown)
            },
            (None, Some(anchor)) => {
                let anchor = &poses.pose_set().manifest().anchors[usize::from(anchor)];
                PoseId { stance: anchor.stances[0], ..PoseId::default() }
            }
            (None, None) => PoseId::default(),
        }
    }

    /// The stance of an anchored frame: a raised one shares the mouths of its head.
    pub(super) fn stance_of(&self, shown: Shown) -> u8 {
        let id = shown_pose(&self.animator.poses, shown);
        let set = self.animator.poses.pose_set();
        let raised = set.heads().iter().filter(|head| head.stance == id.stance);
        let mut raised = raised.filter_map(|head| head.raised);
        raised
            .find(|raised| {
                shown.anchor.is_some_and(|anchor| {
                    set.manifest().anchors[usize::from(anchor)].stances.contains(raised)
                })
            })
            .unwrap_or(id.stance)
    }

    pub(super) fn pictures(&mut self, seconds: f32) -> Vec<PoseId> {
        (0..(seconds * self.rate as f32) as u64).map(|_| self.picture()).collect()
    }

    /// The pictures until everything was said.
    pub(super) fn speech(&mut self) -> Vec<PoseId> {
        std::iter::from_fn(|| {
            let id = self.picture();
            self.is_speaking().then_some(id)
        })
        .collect()
    }

    pub(super) fn stance(&self, id: PoseId) -> Stance {
        self.animator.poses.pose_set().manifest().stances[usize::from(id.stance)]
    }

    pub(super) fn crown(&self, id: PoseId) -> [f32; 2] {
        crown(&self.stance(id))
    }

    pub(super) fn jaw(&self, id: PoseId) -> f32 {
        self.animator.poses.pose_set().manifest().mouths[usize::from(id.mouth)].jaw
    }

    /// Says all sentences once.
    pub(super) fn recite(&mut self, expression: Expression) {
        for spoken in script() {
            self.say(&spoken, shown_as(expression));
        }
    }
}

/// All poses of a drawn character.
pub(super) fn all_poses() -> Arc<PoseCache> {
    static POSES: OnceLock<Arc<PoseCache>> = OnceLock::new();
    Arc::clone(POSES.get_or_init(|| Arc::new(cache_of(PosePlan::new()))))
}

pub(super) fn new_call(seed: u64) -> Call {
    Call::new(all_poses(), 25, seed)
}
