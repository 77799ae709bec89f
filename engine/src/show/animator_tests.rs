//! Tests of the animator: frames, anchors, bandwidth, and segments of speech.

use bytes::Bytes;

use models::face::pose_set::{Anchor, Manifest};
use models::face::{Look, PoseId, Stance};

use super::*;
use crate::show::visemes::Viseme;

/// A pose set with all visemes as mouths, a blink, and one other head. The bytes of each frame
/// are its number.
fn test_pose_set() -> Arc<PoseSet> {
    let mouths: Vec<Mouth> = Viseme::ALL.iter().map(|v| v.mouth()).collect();
    let mut shut = Look::default();
    shut.eyes.lids = 1.0;
    let looks = vec![Look::default(), shut];
    let mut frames = Vec::new();
    for look in 0..2 {
        for mouth in 0..mouths.len() as u8 {
            frames.push((PoseId { look, mouth, ..PoseId::default() }, Vec::new()));
        }
    }
    frames.push((PoseId { stance: 1, ..PoseId::default() }, Vec::new()));
    // The coarse quality level has a third of the bytes.
    let bytes = (0..frames.len() as u8)
        .map(|i| [1000, 340].map(|length| Bytes::from(vec![i; length])).to_vec())
        .collect();
    let manifest = Manifest {
        width: 16,
        height: 16,
        quantizers: vec![8, 30, 50],
        anchors: vec![Anchor::of(vec![1])],
        stances: vec![
            Stance::default(),
            Stance { head: models::face::pose_plan::LISTENING_HEAD, ..Stance::default() },
        ],
        breaths: vec![0.0],
        looks,
        mouths,
        frames,
        ..Manifest::default()
    };
    let (key, anchors) = (Bytes::from_static(b"key"), vec![Bytes::from_static(b"anchor")]);
    Arc::new(PoseSet::new(manifest, key, anchors, bytes).unwrap())
}

fn phones(names: &[&str]) -> Vec<Phone> {
    names.iter().enumerate().map(|(i, n)| Phone::new(*n, 0.1 * (i + 1) as f32)).collect()
}

/// Number of the mouth that a frame shows, with or without a blink.
fn mouth_of(frame: &VideoFrame) -> u8 {
    if frame.is_key_frame || frame.payload[0] >= 30 { 0 } else { frame.payload[0] % 15 }
}

const SEGMENT: SegmentId = SegmentId(1);

fn at(frame: u64) -> Time {
    Time::from_micros(frame * 40_000)
}

#[test]
fn the_first_frame_is_the_key_and_a_request_brings_another_but_no_storm() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    assert!(animator.next_frame(at(0), None).unwrap().is_key_frame);
    let mut keys = 0;
    for n in 1..=50 {
        animator.request_key_frame();
        keys += usize::from(animator.next_frame(at(n), None).is_some_and(|f| f.is_key_frame));
    }
    assert_eq!(keys, 8, "one at once, then one in each 280 ms");
}

#[test]
fn lips_follow_the_phones_and_every_frame_is_sent_while_they_do() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    animator.next_frame(at(0), None);
    animator.set_state(AgentState::Speaking, false);
    animator.add_phones(SEGMENT, &phones(&["aa", "aa", "p", "aa", "aa"]));
    let frames: Vec<VideoFrame> = (1..=12)
        .map(|n| {
            animator.next_frame(at(n), Some((SEGMENT, (n - 1) as f32 * 0.04))).expect("every frame")
        })
        .collect();
    let mouths: Vec<u8> = frames.iter().map(mouth_of).collect();
    assert_eq!(mouths[2], 10, "aa: {mouths:?}");
    assert!(mouths[5..8].contains(&1), "p: {mouths:?}");
    assert_eq!(mouths[9], 10, "aa: {mouths:?}");
}

#[test]
fn the_manner_of_a_segment_is_known_until_it_is_dropped() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    let (asks, other) = (Manner { is_question: true, ..Manner::default() }, SegmentId(2));
    animator.announce_segment(SEGMENT, asks);
    animator.announce_segment(other, Manner::default());
    assert_eq!(animator.manner_of(SEGMENT), Some(asks));
    animator.retain_segments(|segment| segment == other);
    let known = (animator.manner_of(SEGMENT), animator.manner_of(other));
    assert_eq!(known, (None, Some(Manner::default())));
}

#[test]
fn gestures_are_known_of_each_segment_until_it_is_dropped() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    let word = |text: &str, end| vec![(text.to_owned(), Position::from_seconds(end))];
    let other = SegmentId(2);
    animator.add_words(SEGMENT, &word("Well,", 0.5));
    animator.add_words(other, &word("No,", 0.25));
    animator.add_words(SEGMENT, &word("yes.", 1.0));
    let starts = |animator: &AvatarAnimator, segment| -> Vec<f32> {
        animator.gesture_words(segment).iter().map(|word| word.start).collect()
    };
    assert_eq!((starts(&animator, SEGMENT), starts(&animator, other)), (vec![0.5], vec![0.0]));
    animator.retain_segments(|segment| segment == other);
    assert_eq!((starts(&animator, SEGMENT), starts(&animator, other)), (vec![], vec![0.0]));
}

#[test]
fn on_hold_the_mouth_is_shut_within_two_frames_and_goes_on_in_place() {
    let speaking_face = || {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        animator.next_frame(at(0), None);
        animator.set_state(AgentState::Speaking, false);
        animator.add_phones(SEGMENT, &phones(&["aa", "aa", "iy", "s", "ow", "p", "aa", "f", "iy"]));
        animator
    };
    let mut uninterrupted = speaking_face();
    let all: Vec<u8> = (1..=20)
        .map(|n| {
            mouth_of(&uninterrupted.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04))).unwrap())
        })
        .collect();
    assert!(all.iter().collect::<std::collections::HashSet<_>>().len() > 4, "{all:?}");
    for held_at in [3, 7, 12] {
        let mut animator = speaking_face();
        let show = |animator: &mut AvatarAnimator, n: u64, of: usize| {
            mouth_of(&animator.next_frame(at(n), Some((SEGMENT, (of + 1) as f32 * 0.04))).unwrap())
        };
        let mut seen: Vec<u8> =
            (0..held_at).map(|of| show(&mut animator, of as u64 + 1, of)).collect();
        // While held, the state changes to listening, but the head stays in place.
        animator.set_state(AgentState::Listening, true);
        let now = held_at as u64 + 1;
        let shuts = [now, now + 1]
            .map(|n| animator.next_frame(at(n), Some((SEGMENT, held_at as f32 * 0.04))));
        let last = shuts.into_iter().flatten().last().expect("it was open");
        assert_eq!(mouth_of(&last), 0);
        animator.set_state(AgentState::Speaking, false);
        seen.extend((held_at..20).map(|of| show(&mut animator, of as u64 + 4, of)));
        assert_eq!(seen, all, "held at {held_at}");
    }
}

#[test]
fn a_key_that_is_left_out_costs_no_second_anchor() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    let mut anchor_count = 0;
    for n in 0..25 * 30 {
        if n > 0 && n % 5 == 0 {
            animator.request_key_frame();
        }
        let Some(frame) = animator.next_frame(at(n), None) else { continue };
        if frame.is_key_frame && n > 0 {
            animator.on_key_frame_dropped();
        }
        anchor_count += usize::from(*frame.payload == *b"anchor");
    }
    assert_eq!(anchor_count, 1);
}

#[test]
fn an_anchor_goes_before_what_depends_on_it_and_again_after_each_key() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    let mut anchor_sent_at = None;
    let (mut anchor_count, mut leant) = (0, 0);
    for n in 0..25 * 60 {
        if n % 500 == 0 {
            animator.request_key_frame();
        }
        let Some(frame) = animator.next_frame(at(n), None) else { continue };
        if frame.is_key_frame {
            anchor_sent_at = None;
        } else if *frame.payload == *b"anchor" {
            assert!(frame.base_layer, "a reference frame is sent reliably");
            assert_eq!(anchor_sent_at.replace(n), None, "one is enough");
            anchor_count += 1;
        } else if frame.payload[0] >= 30 {
            assert!(anchor_sent_at.is_some(), "frame {n}");
            leant += 1;
        }
    }
    assert_eq!(anchor_count, 3);
    assert!(leant > 30, "{leant}");
}

#[test]
fn a_cut_closes_the_mouth_and_a_forgotten_piece_is_silent() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    animator.next_frame(at(0), None);
    animator.add_phones(SEGMENT, &phones(&["aa"; 9]));
    animator.next_frame(at(1), Some((SEGMENT, 0.3)));
    animator.retain_segments(|segment| segment != SEGMENT);
    animator.next_frame(at(2), Some((SEGMENT, 0.34)));
    assert_eq!(mouth_of(&animator.next_frame(at(3), Some((SEGMENT, 0.38))).unwrap()), 0);
}

#[test]
fn pictures_go_on_between_two_pieces_of_speech() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    animator.next_frame(at(0), None);
    animator.set_state(AgentState::Speaking, false);
    assert!((1..25 * 3).all(|n| animator.next_frame(at(n), None).is_some()));
}

#[test]
fn in_silence_pictures_lie_at_most_a_tenth_of_a_second_apart() {
    for (rate, max_gap) in [(15, 1), (25, 2), (30, 3)] {
        let mut animator = AvatarAnimator::new(test_pose_set(), rate, 1);
        let at = |n: u64| Time::from_micros(n * 1_000_000 / u64::from(rate));
        let frames = u64::from(rate) * 60;
        let times: Vec<u64> =
            (0..frames).filter(|n| animator.next_frame(at(*n), None).is_some()).collect();
        let gap = times.windows(2).map(|w| w[1] - w[0]).max().unwrap();
        assert_eq!(gap, max_gap, "{rate} a second: {} s", at(gap));
        assert!(times.len() as u64 <= frames / max_gap + frames / 4, "{} of {frames}", times.len());
    }
}

#[test]
fn a_narrow_line_gets_a_still_picture_less_often() {
    let need = PoseCache::new(test_pose_set()).mean_frame_bytes() * 8.0 * 25.0;
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    animator.add_phones(SEGMENT, &phones(&["aa", "p", "s", "uw", "t", "ow"].repeat(40)));
    for n in 0..200 {
        animator.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04)));
    }
    // The bandwidth falls below the send rate; the reduction lasts for ten seconds.
    animator.set_bandwidth((need * 2.0) as u64);
    animator.set_bandwidth((need * 0.2) as u64);
    let times: Vec<u64> =
        (200..400).filter(|n| animator.next_frame(at(*n), None).is_some()).collect();
    let gap = times.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert_eq!(at(gap).since(Time::ZERO), MAX_LOW_BANDWIDTH_GAP);
}

#[test]
fn thirty_pictures_a_second_are_sent_where_they_differ() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 30, 1);
    animator.add_phones(SEGMENT, &phones(&["aa"; 100]));
    let at = |n: u64| Time::from_micros(n * 1_000_000 / 30);
    animator.set_state(AgentState::Speaking, false);
    let sent: Vec<u64> = (1..150)
        .filter(|n| animator.next_frame(at(*n), Some((SEGMENT, 1.0 + *n as f32 / 30.0))).is_some())
        .collect();
    assert!((60..110).contains(&sent.len()), "{} of 149", sent.len());
    assert!(sent.windows(2).all(|w| w[1] - w[0] <= 2), "{sent:?}");
}

#[test]
fn the_base_layer_comes_at_least_every_250_frames() {
    let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
    animator.add_phones(SEGMENT, &phones(&["aa"; 200]));
    let mut gap = 0;
    for n in 0..2000 {
        let Some(frame) = animator.next_frame(at(n), Some((SEGMENT, (n % 400) as f32 * 0.04)))
        else {
            continue;
        };
        gap = if frame.base_layer { 0 } else { gap + 1 };
        assert!(gap < 250);
    }
}

#[test]
fn a_narrow_line_gets_fewer_and_smaller_frames_and_never_none() {
    let need = {
        let cache = PoseCache::new(test_pose_set());
        cache.mean_frame_bytes() * 8.0 * 25.0
    };
    let sent = |part: f64| {
        let mut animator = AvatarAnimator::new(test_pose_set(), 25, 1);
        animator.add_phones(SEGMENT, &phones(&["aa", "p", "s", "uw", "t", "ow"].repeat(40)));
        let mut speak = |from: u64| -> Vec<usize> {
            (from..from + 200)
                .filter_map(|n| animator.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04))))
                .map(|frame| frame.payload.len())
                .collect()
        };
        assert_eq!(speak(0).len(), 200);
        animator.set_bandwidth((need * 2.0) as u64);
        animator.set_bandwidth((need * part) as u64);
        (200..400)
            .filter_map(|n| animator.next_frame(at(n), Some((SEGMENT, n as f32 * 0.04))))
            .map(|frame| frame.payload.len())
            .collect::<Vec<usize>>()
    };
    let (full, changes, coarse, half) = (sent(1.9), sent(0.65), sent(0.4), sent(0.2));
    assert_eq!(full.len(), 200);
    assert!(changes.len() < full.len() && changes.iter().all(|n| *n == 1000), "{}", changes.len());
    assert!(coarse.len() == changes.len() && coarse.iter().all(|n| *n == 340), "{}", coarse.len());
    assert!((49..=104).contains(&half.len()) && half.iter().all(|n| *n == 340), "{}", half.len());
}

/// An animator of `test_pose_set()`, and its pose cache, which takes upgrades.
fn animator_and_poses() -> (AvatarAnimator, Arc<PoseCache>) {
    let poses = Arc::new(PoseCache::new(test_pose_set()));
    (AvatarAnimator::with_poses(Arc::clone(&poses), 25, 1), poses)
}

#[test]
fn a_face_changes_over_to_a_better_set_without_a_key() {
    let (mut animator, poses) = animator_and_poses();
    assert!(animator.next_frame(at(0), None).unwrap().is_key_frame && !animator.swap_pose_set());
    let mut n = 1;
    let mut wait_for = |animator: &mut AvatarAnimator, wanted: &dyn Fn(&VideoFrame) -> bool| loop {
        let frame = animator.next_frame(at(n), None);
        n += 1;
        assert!(n < 2000 && frame.as_ref().is_none_or(|frame| !frame.is_key_frame));
        if let Some(frame) = frame.filter(|frame| wanted(frame)) {
            return frame;
        }
    };
    // The head leans.
    wait_for(&mut animator, &|frame| *frame.payload == *b"anchor");
    wait_for(&mut animator, &|frame| frame.payload[0] >= 30);
    let better = Arc::new(PoseCache::new(test_pose_set()));
    poses.set_upgrade(Arc::clone(&better));
    poses.set_upgrade(Arc::new(PoseCache::new(test_pose_set())));
    assert!(animator.swap_pose_set() && !animator.swap_pose_set());
    let next = wait_for(&mut animator, &|_| true);
    assert!(
        next.payload[0] >= 30 && next.payload.len() > 6,
        "the current pose continues, without a reference frame before it"
    );
    let bytes = (0..31).map(|frame| better.frame(frame, 0).as_ptr());
    assert!(bytes.into_iter().any(|bytes| bytes == next.payload.as_ptr()), "of the better set");
}

#[test]
fn a_better_set_with_other_keys_sends_them_first() {
    let other = |key: &'static [u8], anchor: &'static [u8]| {
        let set = test_pose_set();
        let frames = (0..31).map(|i| [0, 1].map(|level| set.frame(i, level).clone()).to_vec());
        let (key, anchors) = (Bytes::from_static(key), vec![Bytes::from_static(anchor)]);
        let set = PoseSet::new(set.manifest().clone(), key, anchors, frames.collect()).unwrap();
        Arc::new(PoseCache::new(Arc::new(set)))
    };
    let (mut animator, poses) = animator_and_poses();
    animator.next_frame(at(0), None);
    let leans = |animator: &mut AvatarAnimator, from: u64| {
        (from..from + 1000).find_map(|n| {
            let payload = animator.next_frame(at(n), None)?.payload;
            (payload[0] >= 30).then_some((n, payload))
        })
    };
    let (n, _) = leans(&mut animator, 1).unwrap();
    let next = other(b"key", b"other anchor");
    poses.set_upgrade(Arc::clone(&next));
    assert!(animator.swap_pose_set());
    let (n, payload) = leans(&mut animator, n + 1).unwrap();
    assert_eq!(*payload, *b"other anchor", "before what depends on it");
    next.set_upgrade(other(b"other key", b"other anchor"));
    animator.request_key_frame();
    assert!(animator.next_frame(at(n + 1), None).unwrap().is_key_frame);
    assert!(animator.swap_pose_set());
    let frame = animator.next_frame(at(n + 2), None).unwrap();
    assert!(
        frame.is_key_frame && *frame.payload == *b"other key",
        "at once, although another key frame was just sent"
    );
}

#[test]
fn frames_are_shared_and_not_copied() {
    let set = test_pose_set();
    let mut animator = AvatarAnimator::new(Arc::clone(&set), 25, 1);
    assert_eq!(
        animator.next_frame(at(0), None).unwrap().payload.as_ptr(),
        set.key_frame().as_ptr()
    );
}
