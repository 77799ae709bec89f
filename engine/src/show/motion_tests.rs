//! The motion of a face in calls, by the poses that it shows.

use std::collections::HashSet;

use conversation::direction::Expression;
use models::face::bake::PosePlan;
use models::face::pose_plan::PHOTO_HEADS;
use models::face::{HeadName, Mood, PoseId, Stance};

use super::super::test_poses::{cache_of, crown, distance, version_2};
use super::test_calls::{Call, all_poses, new_call, script, shown_as, spoken};
use super::*;
use crate::speak::gesture_words::Gesture;

/// Largest distance of the crown in two consecutive pictures, in pixels of 512.
const MAX_JUMP: f32 = 3.0;

#[test]
fn a_speaker_moves_the_head_in_a_third_of_the_seconds_and_over_fifteen_pixels() {
    for (rate, seed) in (0..14).flat_map(|seed| [(25, seed), (30, seed)]) {
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
        let pitch = heads.iter().map(|head| head.pitch).fold(f32::MIN, f32::max);
        (pitch, heads.iter().map(|head| head.yaw).fold(f32::MAX, f32::min))
    };
    let (plain, _) = turned("This:0.56 is:1.60", false);
    // The head leans to the right; a nod is deeper.
    for (pitch, left) in [turned("Yes,:0.56 it:1.60", false), turned("This:0.56", true)] {
        assert!(pitch > plain + 0.008 && left >= 0.0, "{pitch}, {left}");
    }
    let (_, left) = turned("No,:0.56 it:1.60", false);
    assert!(left < -0.02, "{left}");
}

#[test]
fn an_answer_that_begins_with_yes_or_no_begins_with_a_gesture() {
    let sentences = script();
    let mut missed = Vec::new();
    let mut all = 0;
    for (gesture, sentence) in [(Gesture::Nod, &sentences[3]), (Gesture::Shake, &sentences[6])] {
        for (seed, rate) in (0..16).flat_map(|seed| [(seed, 25), (seed, 30)]) {
            // A fast voice and a slow one, without and with a model that thinks.
            for (delay, thinks) in [(0.08, false), (0.24, false), (0.08, true), (0.24, true)] {
                let mut call = Call::new(all_poses(), rate, seed);
                call.pictures(5.0 + 0.17 * seed as f32);
                if thinks {
                    call.animator.set_state(AgentState::Thinking, false);
                    call.pictures(0.8);
                }
                let segment = call.announce(Manner { opening: Some(gesture), ..Manner::default() });
                let mut pictures = call.pictures(delay);
                call.play(segment, sentence);
                // The first word and the pause after it.
                pictures.extend(call.pictures(0.7));
                let heads = pictures.iter().map(|id| call.stance(*id).head);
                let turns: Vec<f32> = match gesture {
                    Gesture::Nod => heads.map(|head| head.pitch).collect(),
                    Gesture::Shake => heads.map(|head| -head.yaw).collect(),
                };
                // It goes there and back.
                let (peak, top) = (1..).zip(&turns).max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
                let lowest = |part: &[f32]| part.iter().copied().fold(*top, f32::min);
                let size = top - lowest(&turns[..peak]).max(lowest(&turns[peak..]));
                all += 1;
                if size < 0.015 {
                    missed.push((gesture, seed, rate, delay, thinks, size));
                }
            }
        }
    }
    assert!(missed.len() * 10 <= all, "{} of {all}: {missed:?}", missed.len());
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
        let (mut last, mut announced) = (PoseId::default(), Vec::new());
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
                    let opening = [None, Some(Gesture::Nod), Some(Gesture::Shake)];
                    let opening = opening[below(3) as usize];
                    let spoken = &sentences[below(sentences.len() as u32) as usize];
                    let shown_as =
                        Manner { expression, is_question, nod, opening, ..Manner::default() };
                    announced.push((call.announce(shown_as), spoken));
                }
            }
            // The TTS takes some time.
            if below(4) == 0 {
                announced.drain(..).for_each(|(segment, spoken)| call.play(segment, spoken));
            }
            if call.is_speaking() && below(10 * hurry) == 0 {
                call.cut();
                announced.clear();
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
    wander(&photo, 24, |call, last, id, details| {
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
            call.say(&sentences[2], Manner { expression, is_question, ..Manner::default() });
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
