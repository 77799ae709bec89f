//! The motion of a face in calls, by the poses that it shows.

use std::collections::HashSet;
use std::sync::OnceLock;

use conversation::direction::Expression;
use models::face::bake::PosePlan;
use models::face::pose_plan::PHOTO_HEADS;
use models::face::{HeadName, Mood, PoseId, Stance};

use super::super::test_poses::{cache_of, crown, distance, shown_pose, version_2};
use super::*;

/// Largest distance of the crown in two consecutive pictures, in pixels of 512.
const MAX_JUMP: f32 = 3.0;

/// A spoken segment: phones with their ends, a stressed vowel with `'`; words with their ends. By
/// flite 2.2, voice rms.
struct Spoken {
    phones: Vec<Phone>,
    words: Vec<(String, Position)>,
}

fn spoken(phones: &str, words: &str) -> Spoken {
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
fn script() -> Vec<Spoken> {
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

fn shown_as(expression: Expression) -> Manner {
    Manner { expression, ..Manner::default() }
}

/// A call with one face.
struct Call {
    animator: AvatarAnimator,
    rate: u64,
    /// Number of the next picture.
    n: u64,
    /// The segments that are known, with their ends in seconds; the first one plays.
    queue: Vec<(SegmentId, f32)>,
    next_segment: u32,
    /// When the first segment began, as a number of a picture.
    began: Option<u64>,
}

impl Call {
    fn new(cache: Arc<PoseCache>, rate: u32, seed: u64) -> Self {
        let animator = AvatarAnimator::with_poses(cache, rate, seed);
        let (queue, rate) = (Vec::new(), u64::from(rate));
        Self { animator, rate, n: 0, queue, next_segment: 0, began: None }
    }

    fn announce(&mut self, shown_as: Manner) -> SegmentId {
        let segment = SegmentId(self.next_segment);
        self.next_segment += 1;
        self.animator.announce_segment(segment, shown_as);
        segment
    }

    /// The speech of a segment is known, and plays after that of the others.
    fn play(&mut self, segment: SegmentId, spoken: &Spoken) {
        self.animator.add_phones(segment, &spoken.phones);
        self.animator.add_words(segment, &spoken.words);
        self.queue.push((segment, spoken.phones.last().unwrap().end));
    }

    fn say(&mut self, spoken: &Spoken, shown_as: Manner) {
        let segment = self.announce(shown_as);
        self.play(segment, spoken);
    }

    /// The user interrupts: nothing plays any more.
    fn cut(&mut self) {
        self.queue.clear();
        self.began = None;
        self.animator.retain_segments(|_| false);
        self.animator.set_state(AgentState::Listening, false);
    }

    fn time_to_show(&self, expression: Expression) -> Duration {
        self.animator.time_to_show(expression, self.now())
    }

    fn is_speaking(&self) -> bool {
        !self.queue.is_empty()
    }

    fn now(&self) -> Time {
        Time::from_micros(self.n * 1_000_000 / self.rate)
    }

    /// The pose of the next picture.
    fn picture(&mut self) -> PoseId {
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
    fn stance_of(&self, shown: Shown) -> u8 {
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

    fn pictures(&mut self, seconds: f32) -> Vec<PoseId> {
        (0..(seconds * self.rate as f32) as u64).map(|_| self.picture()).collect()
    }

    /// The pictures until everything was said.
    fn speech(&mut self) -> Vec<PoseId> {
        std::iter::from_fn(|| {
            let id = self.picture();
            self.is_speaking().then_some(id)
        })
        .collect()
    }

    fn stance(&self, id: PoseId) -> Stance {
        self.animator.poses.pose_set().manifest().stances[usize::from(id.stance)]
    }

    fn crown(&self, id: PoseId) -> [f32; 2] {
        crown(&self.stance(id))
    }

    fn jaw(&self, id: PoseId) -> f32 {
        self.animator.poses.pose_set().manifest().mouths[usize::from(id.mouth)].jaw
    }

    /// Says all sentences once.
    fn recite(&mut self, expression: Expression) {
        for spoken in script() {
            self.say(&spoken, shown_as(expression));
        }
    }
}

/// All poses of a drawn character.
fn all_poses() -> Arc<PoseCache> {
    static POSES: OnceLock<Arc<PoseCache>> = OnceLock::new();
    Arc::clone(POSES.get_or_init(|| Arc::new(cache_of(PosePlan::new()))))
}

fn new_call(seed: u64) -> Call {
    Call::new(all_poses(), 25, seed)
}

#[test]
fn a_speaker_moves_the_head_in_a_third_of_the_seconds_and_over_fifteen_pixels() {
    for (rate, seed) in (0..4).flat_map(|seed| [(25, seed), (30, seed)]) {
        let mut call = Call::new(all_poses(), rate, seed);
        call.pictures(2.0);
        (0..2).for_each(|_| call.recite(Expression::Calm));
        let crowns: Vec<[f32; 2]> = call.speech().into_iter().map(|id| call.crown(id)).collect();
        let range = |part: &[[f32; 2]]| {
            let all = part.iter().flat_map(|a| part.iter().map(move |b| distance(*a, *b)));
            all.fold(0.0, f32::max)
        };
        let seconds = crowns.chunks_exact(rate as usize);
        let (count, moved) = (seconds.len(), seconds.filter(|part| range(part) >= 1.0).count());
        let share = moved as f32 / count as f32;
        let details = format!("{rate} fps, seed {seed}: {share}, {} px", range(&crowns));
        assert!((0.3..0.75).contains(&share) && range(&crowns) >= 15.0, "{details}");
        let jump = crowns.windows(2).map(|pair| distance(pair[0], pair[1])).fold(0.0, f32::max);
        assert!(jump <= MAX_JUMP, "{details}, a jump of {jump}");
    }
}

#[test]
fn the_same_seed_gives_the_same_motion_and_another_one_another() {
    let poses = |seed| {
        let mut call = new_call(seed);
        call.recite(Expression::Warm);
        call.speech()
    };
    assert_eq!(poses(1), poses(1));
    assert_ne!(poses(1), poses(2));
}

#[test]
fn a_head_on_its_way_has_nearly_shut_lips_and_others_all_mouths() {
    for expression in [Expression::Calm, Expression::Concerned] {
        let mut call = new_call(3);
        call.pictures(2.0);
        call.recite(expression);
        let set = Arc::clone(call.animator.poses.pose_set());
        let is_head = |id: PoseId| {
            set.heads()
                .iter()
                .any(|head| [Some(head.stance), head.raised].contains(&Some(id.stance)))
        };
        // The mouth of the phones, and that of the picture.
        let mut differences = Vec::new();
        while call.is_speaking() {
            let id = call.picture();
            let poses = &call.animator.poses;
            let wanted = poses.nearest_mouth(call.animator.mouth);
            let wanted = poses.pose_set().manifest().mouths[usize::from(wanted)].jaw;
            assert!(is_head(id) || call.jaw(id) <= 0.2, "{id:?}");
            // Few mouths are baked beside shut eyes.
            if id.look == 0 {
                differences.push(((call.jaw(id) - wanted).abs(), id, wanted));
            }
        }
        let far: Vec<_> = differences.iter().filter(|difference| difference.0 > 0.12).collect();
        assert!(far.len() * 100 <= differences.len(), "{far:?} of {}", differences.len());
    }
}

#[test]
fn after_an_interruption_the_face_is_settled_within_half_a_second() {
    let sentences = script();
    for (n, expression) in (0..30).flat_map(|n| {
        [Expression::Calm, Expression::Glad, Expression::Concerned, Expression::Curious]
            .map(|expression| (n, expression))
    }) {
        let mut call = new_call(n);
        call.pictures(1.0);
        sentences.iter().for_each(|spoken| call.say(spoken, shown_as(expression)));
        call.pictures(3.0 + n as f32 * 0.17);
        let hold = n % 2 == 0;
        if hold {
            call.animator.set_state(AgentState::Listening, true);
        } else {
            call.animator.set_user_speaking(true);
            call.cut();
        }
        call.pictures(0.5);
        let settled = call.picture();
        let stance = call.stance(settled);
        assert_eq!((settled.mouth, stance.smile), (0, 0.0), "{n}, {expression:?}");
        assert_eq!(stance.brows, Default::default(), "{n}, {expression:?}");
        // It is the place of a head.
        let heads = call.animator.poses.pose_set().heads();
        assert!(heads.iter().any(|head| head.stance == settled.stance), "{n}: {settled:?}");
        if hold {
            let still = call.pictures(2.0).iter().all(|id| id.stance == settled.stance);
            assert!(still, "{n}, {expression:?}");
            call.animator.set_state(AgentState::Speaking, false);
            assert!(call.speech().iter().any(|id| id.mouth != 0));
        }
    }
}

#[test]
fn a_greeting_begins_with_a_smile_and_a_farewell_ends_with_one() {
    let sentences = script();
    for seed in 0..8 {
        let mut call = new_call(seed);
        call.animator.expect_greeting();
        call.pictures(1.0);
        let greeting = call.announce(shown_as(Expression::Warm));
        let before = call.picture();
        assert_eq!(call.stance(before).smile, 1.0, "before the first word");
        call.play(greeting, &sentences[0]);
        let speech = call.speech();
        assert!(speech.iter().all(|id| call.stance(*id).smile > 0.3));
        call.pictures(4.0);
        // The TTS takes half a second.
        call.animator.set_state(AgentState::Thinking, false);
        call.pictures(2.0);
        let farewell = call.announce(shown_as(Expression::Warm));
        call.pictures(0.6);
        let before = call.picture();
        assert_eq!(call.stance(before).smile, 1.0, "seed {seed}: before the first word");
        call.play(farewell, &sentences[0]);
        call.speech();
        let after = call.pictures(0.8);
        assert!(after.iter().all(|id| call.stance(*id).smile >= 0.5), "it stays for a moment");
        call.pictures(4.0);
    }
}

#[test]
fn each_expression_is_shown_while_its_sentence_is_spoken() {
    use Expression::{Calm, Concerned, Curious, Glad, Warm};
    let sentences = script();
    for expression in [Calm, Warm, Glad, Concerned, Curious] {
        let (mut shown, mut all) = (0, 0);
        for seed in 0..6 {
            let mut call = new_call(seed);
            call.pictures(1.0);
            // A calm sentence goes before.
            call.say(&sentences[4], shown_as(Calm));
            call.say(&sentences[5], shown_as(expression));
            call.say(&sentences[3], shown_as(Calm));
            let speech = call.speech();
            let start = (sentences[4].phones.last().unwrap().end * 25.0) as usize;
            let end = start + (sentences[5].phones.last().unwrap().end * 25.0) as usize;
            let sentence = &speech[start..end.min(speech.len())];
            all += sentence.len();
            let looks = |id: &&PoseId| expresses(expression, call.stance(**id));
            shown += sentence.iter().filter(looks).count();
        }
        let share = shown as f32 / all as f32;
        let min_share = match expression {
            Calm => 0.9,
            Warm | Glad | Concerned => 0.6,
            Curious => 0.5,
        };
        assert!(share >= min_share, "{expression:?}: {share}");
    }
}

/// Whether a stance has an expression.
fn expresses(expression: Expression, Stance { smile, brows, .. }: Stance) -> bool {
    match expression {
        Expression::Calm => smile == 0.0 && brows.raise == 0.0,
        Expression::Warm => smile > 0.2,
        Expression::Glad => smile > 0.7 && brows.raise > 0.0,
        Expression::Concerned => smile < -0.2 && brows.knit > 0.1,
        Expression::Curious => brows.raise > 0.3,
    }
}

#[test]
fn an_expression_is_shown_before_the_speech_that_waits_for_it() {
    use Expression::{Concerned, Curious, Glad, Warm};
    for (expression, seed) in
        [Warm, Glad, Concerned, Curious].into_iter().flat_map(|e| (0..20).map(move |n| (e, n)))
    {
        let mut call = new_call(seed);
        call.pictures(4.0 + 0.37 * seed as f32);
        let needed = call.time_to_show(expression).as_secs_f32();
        assert!(needed <= 0.6, "{needed}");
        let segment = call.announce(shown_as(expression));
        call.pictures(needed);
        let before = call.picture();
        assert!(expresses(expression, call.stance(before)), "{expression:?}, seed {seed}");
        assert_eq!(call.time_to_show(expression), Duration::ZERO);
        call.play(segment, &script()[0]);
        call.speech();
    }
}

#[test]
fn speech_does_not_wait_for_a_face_that_does_not_prepare_for_it() {
    let mut call = new_call(1);
    // The head leans.
    call.pictures(5.0);
    assert!(call.time_to_show(Expression::Glad) > Duration::ZERO);
    assert_eq!(call.time_to_show(Expression::Calm), Duration::ZERO);
    call.animator.set_user_speaking(true);
    assert_eq!(call.time_to_show(Expression::Glad), Duration::ZERO);
    call.animator.set_user_speaking(false);
    // Nobody sees it.
    let later = call.now() + Duration::from_secs(1);
    assert_eq!(call.animator.time_to_show(Expression::Glad, later), Duration::ZERO);
    call.animator.set_bandwidth(u64::MAX);
    call.animator.set_bandwidth(1);
    call.pictures(1.0);
    assert_eq!(call.time_to_show(Expression::Glad), Duration::ZERO);
}

/// Pictures of a listener to whom this is said after four seconds.
fn listener(transcripts: &[(&str, bool)], seed: u64) -> (Call, Vec<PoseId>) {
    let mut call = new_call(seed);
    call.pictures(5.0);
    call.animator.set_user_speaking(true);
    call.pictures(1.0);
    let mut pictures = Vec::new();
    for (text, is_final) in transcripts {
        call.animator.hear(text, *is_final);
        pictures.extend(call.pictures(1.0));
    }
    (call, pictures)
}

#[test]
fn a_listener_smiles_at_thanks_within_a_third_of_a_second() {
    for seed in 0..20 {
        let (call, pictures) = listener(&[("oh thank you", false)], seed);
        let smiles = |id: &PoseId| call.stance(*id).smile > 0.0;
        assert!(pictures[..8].iter().any(smiles), "seed {seed}");
        assert!(pictures[..25].iter().any(|id| call.stance(*id).smile == 1.0), "seed {seed}");
        let (call, pictures) = listener(&[("oh dear", false)], seed);
        assert!(pictures.iter().all(|id| call.stance(*id).smile == 0.0));
    }
}

#[test]
fn a_listener_nods_at_the_ends_of_clauses_at_most_once_in_three_seconds() {
    let clauses = (1..=12).map(|n| vec!["one two three four,"; n].join(" "));
    let clauses: Vec<String> = clauses.collect();
    for seed in 0..10 {
        let transcripts: Vec<(&str, bool)> =
            clauses.iter().map(|text| (text.as_str(), false)).collect();
        let (call, pictures) = listener(&transcripts, seed);
        let lean = models::face::pose_plan::LISTENING_HEAD.pitch;
        let nods = |pair: &&[PoseId]| {
            let [before, after] = [pair[0], pair[1]].map(|id| call.stance(id).head.pitch > lean);
            !before && after
        };
        let starts: Vec<usize> =
            (1..pictures.len()).filter(|n| nods(&&pictures[n - 1..=*n])).collect();
        assert!((2..=4).contains(&starts.len()), "seed {seed}: {starts:?}");
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 75), "seed {seed}: {starts:?}");
    }
}

#[test]
fn a_narrow_line_shows_the_head_at_rest_and_calm() {
    let mut call = new_call(5);
    call.pictures(1.0);
    (0..2).for_each(|_| call.recite(Expression::Glad));
    call.pictures(5.0);
    call.animator.set_bandwidth(u64::MAX);
    call.animator.set_bandwidth(1);
    call.pictures(2.5);
    // Ten seconds.
    let reduced = call.pictures(7.0);
    assert!(reduced.iter().all(|id| id.stance == 0), "{reduced:?}");
    assert!(call.pictures(6.0).iter().any(|id| id.stance != 0), "it recovers");
}

#[test]
fn one_nods_with_yes_and_shakes_the_head_with_no() {
    let words = |text: &str| {
        spoken(
            "pau:0.12 y:0.20 eh':0.40 s:0.56 pau:1.10 ih:1.30 t:1.40 ih:1.50 z:1.60 pau:1.90",
            text,
        )
    };
    let turned = |text: &str, nod: bool| {
        let mut call = new_call(2);
        call.pictures(4.0);
        // Nothing else happens at the start of speech.
        call.say(&words(text), Manner { nod, ..Manner::default() });
        let heads: Vec<_> = call.speech().iter().map(|id| call.stance(*id).head).collect();
        let maximum = |value: &dyn Fn(&models::face::Head) -> f32| {
            heads.iter().map(value).fold(f32::MIN, f32::max)
        };
        // The head leans; a nod is deeper.
        [maximum(&|head| head.pitch), maximum(&|head| head.yaw), maximum(&|head| -head.yaw)]
    };
    let plain = turned("This:0.56 is:1.60", false);
    for [pitch, right, left] in [turned("Yes,:0.56 it:1.60", false), turned("This:0.56", true)] {
        assert!(pitch > plain[0] + 0.008 && right < 0.03 && left < 0.03, "{pitch}");
    }
    let [_, right, left] = turned("No,:0.56 it:1.60", false);
    assert!(right > 0.02 && left > 0.01, "{right}, {left}");
}

/// Random calls: states, expressions, words, gestures, narrow lines.
fn wander(cache: &Arc<PoseCache>, seeds: u64, mut visit: impl FnMut(&Call, PoseId, PoseId, &str)) {
    let sentences = script();
    let mut random = 1u32;
    let mut below = |n: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % n
    };
    for (seed, rate) in (0..seeds).flat_map(|seed| [(seed, 25), (seed, 30)]) {
        let mut call = Call::new(Arc::clone(cache), rate, seed);
        if seed % 3 == 0 {
            call.animator.expect_greeting();
        }
        let hurry = if seed % 2 == 0 { 40 } else { 200 };
        let mut last = PoseId::default();
        for n in 0..u64::from(rate) * 60 {
            if !call.is_speaking() && below(hurry) == 0 {
                let thinking = below(2) == 0;
                let state = if thinking { AgentState::Thinking } else { AgentState::Listening };
                call.animator.set_state(state, false);
            }
            if !call.is_speaking() && below(2 * hurry) == 0 {
                use Expression::{Calm, Concerned, Curious, Glad, Warm};
                for _ in 0..=below(3) {
                    let expression = [Calm, Warm, Glad, Concerned, Curious][below(5) as usize];
                    let is_question = below(2) == 0;
                    let nod = below(3) == 0;
                    let spoken = &sentences[below(sentences.len() as u32) as usize];
                    call.say(spoken, Manner { expression, is_question, nod });
                }
            }
            if call.is_speaking() && below(10 * hurry) == 0 {
                call.cut();
            }
            if below(if call.animator.held { 20 } else { 10 * hurry }) == 0 {
                call.animator.set_state(AgentState::Listening, !call.animator.held);
            }
            if below(60) == 0 {
                call.animator.set_user_speaking(!call.animator.user_speaking);
            }
            if below(80) == 0 {
                let text = ["thanks a lot", "so there it is now,", "well"][below(3) as usize];
                call.animator.hear(text, true);
            }
            if seed % 4 == 3 && below(500) == 0 {
                call.animator.set_bandwidth(u64::MAX);
                call.animator.set_bandwidth(1);
            }
            let id = call.picture();
            visit(
                &call,
                last,
                id,
                &format!("seed {seed}, {rate} fps, picture {n}: {last:?} to {id:?}"),
            );
            last = id;
        }
    }
}

/// Checks the change from one picture to the next.
fn assert_no_jump(call: &Call, a: PoseId, b: PoseId, details: &str) {
    let jump = distance(call.crown(a), call.crown(b));
    assert!(jump <= MAX_JUMP, "{details}: {jump} px");
    let [from, to] = [a, b].map(|id| call.stance(id));
    assert!((from.smile - to.smile).abs() <= 0.51, "{details}");
    let knit = (from.brows.knit - to.brows.knit).abs();
    let raise = (from.brows.raise - to.brows.raise).abs();
    assert!(knit < 0.3 && raise < 0.51, "{details}");
    // The chest, in fifths. On a narrow line, pictures are left out.
    let is_full = call.animator.bandwidth.send_mode(call.now()) == SendMode::Full;
    assert!(a.breath.abs_diff(b.breath) <= 2 || b.mouth != 0 || !is_full, "{details}");
}

#[test]
fn no_pose_jumps_and_every_baked_pose_is_used() {
    let mut seen = HashSet::new();
    wander(&all_poses(), 48, |call, last, id, details| {
        assert_no_jump(call, last, id, details);
        seen.extend([(0, id.stance, id.look), (1, id.stance, id.mouth), (2, id.stance, id.breath)]);
    });
    let unseen = |id: &PoseId| {
        let PoseId { stance, look, breath, .. } = *id;
        // A thinker's brows have risen before the head turns.
        if stance != 0 && [11, 12].contains(&look) {
            return false;
        }
        // A speaker does not blink on the way, and a listener is seldom on it.
        let poses = all_poses();
        let heads = poses.pose_set().heads();
        if look == 2 && heads.iter().any(|head| head.ways.contains(&stance)) {
            return false;
        }
        !seen.contains(&(0, stance, look)) || !seen.contains(&(2, stance, breath))
    };
    let unseen: Vec<PoseId> = PosePlan::new().pose_ids().into_iter().filter(unseen).collect();
    assert!(unseen.is_empty(), "baked but never used: {unseen:?}");
}

#[test]
fn sets_of_version_2_and_of_photos_move_without_jumps() {
    let mut leans = 0;
    wander(&Arc::new(version_2()), 12, |call, last, id, details| {
        assert_no_jump(call, last, id, details);
        let lean = models::face::pose_plan::LISTENING_HEAD;
        let head = call.stance(id).head;
        leans += usize::from(id.mouth != 0 && head.roll == lean.roll);
    });
    assert!(leans > 500, "{leans}");
    let photo = Arc::new(cache_of(PosePlan::with_heads(PHOTO_HEADS)));
    let mut heads = HashSet::new();
    wander(&photo, 12, |call, last, id, details| {
        assert_no_jump(call, last, id, details);
        heads.insert(id.stance);
    });
    assert!(photo.pose_set().heads().iter().all(|head| heads.contains(&head.stance)));
}

#[test]
fn a_face_continues_with_a_better_set_where_it_was() {
    let plan = PosePlan::new();
    for (from, to) in [(0, 1), (0, 2), (1, 2)] {
        for n in 0..8 {
            let sets = || {
                let subsets = plan.progressive_subsets().into_iter();
                subsets.map(|subset| plan.subset(&subset)).chain([plan.clone()])
            };
            let mut call = Call::new(Arc::new(cache_of(sets().nth(from).unwrap())), 25, n);
            call.pictures(3.0 + 0.12 * n as f32);
            call.recite(Expression::Warm);
            call.pictures(n as f32 * 0.73);
            let before = call.picture();
            let before = call.stance(before);
            let better = Arc::new(cache_of(sets().nth(to).unwrap()));
            call.animator.poses.set_upgrade(better);
            assert!(call.animator.swap_pose_set());
            let after = call.picture();
            let after = call.stance(after);
            assert!(distance(crown(&before), crown(&after)) <= 5.0, "{before:?}, {after:?}");
            assert!((before.smile - after.smile).abs() <= 0.51);
            call.speech();
        }
    }
    // Fewer heads: the head is at rest.
    let rich = all_poses();
    let left = rich.paths().find(HeadName::Left, Mood::Calm, false).unwrap();
    let poor = version_2();
    assert_eq!(poor.paths().stance(poor.paths().same_place(rich.paths(), left)), 0);
}

/// Pictures of a minute in a state without speech.
fn minutes(state: AgentState, minutes: u64, seed: u64) -> Vec<models::face::Look> {
    let mut call = new_call(seed);
    call.pictures(5.0);
    call.animator.set_state(state, false);
    let looks = call.animator.poses.pose_set().manifest().looks.clone();
    call.pictures(60.0 * minutes as f32).iter().map(|id| looks[usize::from(id.look)]).collect()
}

#[test]
fn a_thinker_turns_the_head_to_where_the_eyes_look_and_back_behind_the_lids() {
    let mut call = new_call(4);
    call.pictures(4.0);
    call.animator.set_state(AgentState::Thinking, false);
    let looks = call.animator.poses.pose_set().manifest().looks.clone();
    let pictures = call.pictures(120.0);
    let (mut turned, mut turns, mut last) = (0, 0, pictures[24]);
    for id in &pictures[25..] {
        let (yaw, look) = (call.stance(*id).head.yaw, looks[usize::from(id.look)]);
        if yaw > 0.0 {
            turned += 1;
            turns += usize::from(call.stance(last).head.yaw == 0.0);
            assert!(look.eyes.gaze_y > 0.0 || look.eyes.lids > 0.5, "{id:?}");
            // The eyes go first.
            let before = looks[usize::from(last.look)];
            assert!(before.eyes.gaze_y > 0.0 || before.eyes.lids > 0.2, "{last:?} to {id:?}");
        }
        last = *id;
    }
    assert!((15..60).contains(&turns) && turned > 10 * turns, "{turns} times, {turned} pictures");
}

#[test]
fn a_thinking_face_looks_away_and_back_and_a_listener_at_the_user() {
    let away = |state| {
        let looks = minutes(state, 4, 1);
        let away = |look: &&models::face::Look| look.eyes.gaze_x != 0.0 && look.eyes.lids < 0.9;
        looks.iter().filter(away).count() as f32 / looks.len() as f32
    };
    let (thinking, listening) = (away(AgentState::Thinking), away(AgentState::Listening));
    assert!((0.35..0.8).contains(&thinking), "{thinking}");
    assert!((0.01..0.2).contains(&listening), "{listening}");
}

#[test]
fn glances_of_a_speaker_are_short() {
    let (mut glances, mut seconds) = (0, 0.0);
    for seed in 0..8 {
        let mut call = new_call(seed);
        call.pictures(2.0);
        call.recite(Expression::Calm);
        let speech = call.speech();
        let looks = call.animator.poses.pose_set().manifest().looks.clone();
        let aside = |id: &PoseId| looks[usize::from(id.look)].eyes.gaze_x != 0.0;
        seconds += speech.len() as f32 / 25.0;
        for run in speech.chunk_by(|a, b| aside(a) == aside(b)).filter(|run| aside(&run[0])) {
            assert!(run.len() <= 15, "{} pictures", run.len());
            glances += 1;
        }
    }
    let a_minute = glances as f32 * 60.0 / seconds;
    assert!((4.0..16.0).contains(&a_minute), "{a_minute} a minute");
}

#[test]
fn brows_rise_at_the_end_of_a_question() {
    let sentences = script();
    let rises = |is_question| {
        let count = |seed| {
            let mut call = new_call(seed);
            call.pictures(1.0);
            let expression = Expression::Calm;
            call.say(&sentences[2], Manner { expression, is_question, nod: false });
            let speech = call.speech();
            let looks = call.animator.poses.pose_set().manifest().looks.clone();
            let end = &speech[speech.len() * 2 / 3..];
            end.iter().any(|id| looks[usize::from(id.look)].brows.raise > 0.0)
        };
        (0..40).filter(|seed| count(*seed)).count()
    };
    let (asked, stated) = (rises(true), rises(false));
    assert!(asked > stated + 10, "{asked} with a question, {stated} without");
}
