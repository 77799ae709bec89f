//! The avatar as a receiver sees it: a sentence spoken by flite, shown with the built-in pose sets
//! and decoded by libvpx.
#![allow(clippy::print_stdout)] // prints the measurements with --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::Time;
use engine::show::pose_cache::PoseCache;
use engine::show::visemes::VisemeTrack;
use engine::show::{AvatarAnimator, Avatars};
use engine::transport::VideoFrame;
use models::face::avatar_spec;
use models::face::bake::{self, BakeEvent, PatchCache, PlanSubset, PosePlan};
use models::face::picture::I420;
use models::face::pose_plan::PoseGroup;
use models::face::vp8::Decoder;
use models::face::{PoseId, PoseSet, SpeakingHead};
use models::tts::Phone;

/// "Hello there, my name is Theo, and I am pleased to meet you.", flite 2.2, voice rms. Phones with
/// their end times in seconds.
const SENTENCE: &str = "pau:0.119 hh:0.212 ax:0.261 l:0.412 ow:0.582 dh:0.638 eh:0.776 r:0.877 \
    pau:1.000 m:1.044 ay:1.183 n:1.227 ey:1.476 m:1.560 ih:1.637 z:1.727 th:1.840 iy:1.963 \
    ow:2.064 pau:2.152 ae:2.301 n:2.340 d:2.365 ay:2.590 ae:2.721 m:2.801 \
    p:2.922 l:2.975 iy:3.120 z:3.212 d:3.263 t:3.337 ax:3.378 m:3.469 iy:3.579 t:3.652 y:3.767 \
    uw:3.919 pau:4.153";

const SEGMENT: SegmentId = SegmentId(1);

fn sentence_phones() -> Vec<Phone> {
    SENTENCE
        .split_whitespace()
        .map(|word| {
            let (name, end) = word.split_once(':').unwrap();
            Phone::new(name, end.parse().unwrap())
        })
        .collect()
}

fn built_in_pose_sets() -> Vec<Arc<PoseSet>> {
    Avatars::built_in()
        .unwrap()
        .as_slice()
        .iter()
        .map(|avatar| Arc::clone(&avatar.pose_set))
        .collect()
}

fn first_pose_set() -> Arc<PoseSet> {
    built_in_pose_sets().swap_remove(0)
}

/// A decoder that has received the key frame.
fn decoder_for(set: &PoseSet) -> Decoder {
    let mut decoder =
        Decoder::new(set.manifest().width as usize, set.manifest().height as usize).unwrap();
    decoder.decode(set.key_frame()).unwrap();
    decoder
}

/// The picture of a pose at a quality level, after the reference frames that it needs.
fn decode_pose(set: &PoseSet, id: PoseId, level: usize) -> I420 {
    let (mut decoder, index) = (decoder_for(set), set.frame_index(id));
    if let Some(anchor) = set.anchor_of(index, id) {
        decoder.decode(set.anchor_frame(anchor)).unwrap();
    }
    decoder.decode(set.frame(index, level)).unwrap()
}

/// How dark the mouth is: the mean luma below that at rest. Measured where an open mouth is darker
/// than a closed one.
struct MouthDarkness {
    rest: I420,
    mask: Vec<(usize, usize)>,
}

impl MouthDarkness {
    fn new(set: &PoseSet, stance: u8) -> Self {
        let still = PoseId { stance, ..PoseId::default() };
        let mouths = &set.manifest().mouths;
        // A broad smile shows bright teeth at rest, but not with pressed lips.
        let pressed = mouths.iter().position(|mouth| mouth.press == 1.0).unwrap() as u8;
        let shows_teeth = set.manifest().stances[usize::from(stance)].smile > 0.7;
        let shut = PoseId { mouth: if shows_teeth { pressed } else { 0 }, ..still };
        let rest = decode_pose(set, shut, 0);
        let widest =
            (0..mouths.len()).max_by(|a, b| mouths[*a].jaw.total_cmp(&mouths[*b].jaw)).unwrap();
        let open = decode_pose(set, PoseId { mouth: widest as u8, ..still }, 0);
        let pixels = (0..rest.height()).flat_map(|y| (0..rest.width()).map(move |x| (x, y)));
        let mask = pixels
            .filter(|(x, y)| rest.luma(*x, *y) > open.luma(*x, *y).saturating_add(30))
            .collect();
        Self { rest, mask }
    }

    fn measure(&self, picture: &I420) -> f64 {
        let below = |(x, y): &(usize, usize)| {
            f64::from(self.rest.luma(*x, *y)) - f64::from(picture.luma(*x, *y))
        };
        self.mask.iter().map(below).sum::<f64>() / self.mask.len() as f64
    }
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(x, y)| f(x - ma, y - mb)).sum::<f64>();
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

/// The darkness of mouths in the pictures of a set, in each stance in which lips speak. The head
/// moves, so the mouth is at different places.
struct ShownMouths<'a> {
    set: &'a PoseSet,
    /// The pose of each frame by the address of its bytes.
    poses: HashMap<*const u8, PoseId>,
    by_stance: HashMap<u8, MouthDarkness>,
}

impl<'a> ShownMouths<'a> {
    fn new(set: &'a PoseSet) -> Self {
        let ids = set.manifest().frames.iter().map(|(id, _)| *id);
        let poses = ids.map(|id| (set.frame(set.frame_index(id), 0).as_ptr(), id)).collect();
        let stances = set.heads().iter().map(|head| head.stance);
        let by_stance = stances.map(|stance| (stance, MouthDarkness::new(set, stance))).collect();
        Self { set, poses, by_stance }
    }

    /// The darkness of the mouth of a frame in its picture. On the way between two heads, where
    /// few mouths are baked, that of the same mouth at rest.
    fn measure(&self, payload: &Bytes, picture: &I420) -> f64 {
        match self.poses.get(&payload.as_ptr()) {
            Some(id) if self.by_stance.contains_key(&id.stance) => {
                self.by_stance[&id.stance].measure(picture)
            }
            // An anchor and the key frame show lips at rest.
            id => {
                let mouth = id.map_or(0, |id| id.mouth);
                let upright = PoseId { mouth, ..PoseId::default() };
                self.by_stance[&0].measure(&decode_pose(self.set, upright, 0))
            }
        }
    }
}

/// Times and mouth darkness of the decoded frames of the sentence, in seconds of the audio. `delay`
/// shifts the video behind the audio.
fn render_sentence(set: &Arc<PoseSet>, frames: usize, delay: f32) -> Vec<(f32, f64)> {
    let mouths = ShownMouths::new(set);
    let mut decoder = decoder_for(set);
    let mut face = AvatarAnimator::new(Arc::clone(set), 25, 3);
    let mut picture = decoder.decode(&face.next_frame(Time::ZERO, None).unwrap().payload).unwrap();
    face.set_state(AgentState::Speaking, false);
    face.add_phones(SEGMENT, &sentence_phones());
    (0..frames)
        .map(|n| {
            let at = n as f32 * 0.04;
            let now = Time::from_micros((n as u64 + 1) * 40_000);
            let frame = face
                .next_frame(now, Some((SEGMENT, at - delay)))
                .expect("every frame is sent while speaking");
            picture = decoder.decode(&frame.payload).unwrap();
            (at, mouths.measure(&frame.payload, &picture))
        })
        .collect()
}

/// The lag of the visible mouth behind the phones, in frames, at the highest correlation, and that
/// correlation.
fn mouth_lag(seen: &[(f32, f64)]) -> (i32, f64) {
    let track = VisemeTrack::new(&sentence_phones());
    let dark: Vec<f64> = seen.iter().map(|(_, d)| *d).collect();
    (-6..=6)
        .map(|shift| {
            let wanted: Vec<f64> = seen
                .iter()
                .map(|(at, _)| f64::from(track.mouth_at(at + 0.04 - shift as f32 * 0.04).jaw))
                .collect();
            (shift, correlation(&dark, &wanted))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap()
}

#[test]
fn the_mouth_is_dark_when_and_only_when_the_phones_open_it() {
    for set in built_in_pose_sets() {
        let (shift, agreement) = mouth_lag(&render_sentence(&set, 108, 0.0));
        assert_eq!(shift, 0, "{}", set.manifest().name);
        assert!(agreement > 0.78, "{}: r = {agreement}", set.manifest().name);
    }
}

#[test]
fn a_picture_that_comes_late_is_noticed_by_this_measure() {
    assert_eq!(mouth_lag(&render_sentence(&first_pose_set(), 108, 0.2)).0, 5);
}

#[test]
fn lips_are_shut_in_the_middle_of_every_closure_and_of_silence() {
    for set in built_in_pose_sets() {
        assert_lips_shut(&set);
    }
}

fn assert_lips_shut(set: &Arc<PoseSet>) {
    let name = &set.manifest().name;
    let seen = render_sentence(set, 108, 0.0);
    let loudest = seen.iter().map(|(_, d)| *d).fold(0.0, f64::max);
    let phones = sentence_phones();
    let mut start = 0.0;
    let mut closures = 0;
    for phone in &phones {
        let closes = ["p", "b", "m"].contains(&phone.name.as_str())
            || phone.name == "pau" && phone.end - start > 0.2;
        if closes {
            closures += 1;
            // A frame shows the mouth at the middle of its time.
            let inside = seen.iter().filter(|(at, _)| at + 0.04 > start && *at < phone.end);
            let darkest = inside.map(|(_, d)| *d).fold(f64::MAX, f64::min);
            assert!(
                darkest < 0.15 * loudest,
                "{name}, {} at {start}: {darkest} of {loudest}",
                phone.name
            );
        }
        start = phone.end;
    }
    assert_eq!(closures, 6);
}

/// A mouth that `lips.rs` counts as closed by its parameters looks closed: for each avatar, in each
/// stance and look with moving lips, at both quality levels.
#[test]
fn mouths_that_are_called_closed_look_closed() {
    for set in built_in_pose_sets() {
        let manifest = set.manifest();
        for stance in set.heads().iter().map(|head| head.stance) {
            let darkness = MouthDarkness::new(&set, stance);
            let seen = |mouth: u8, look: u8, quality: usize| {
                let id = PoseId { stance, look, mouth, breath: 0 };
                darkness.measure(&decode_pose(&set, id, quality))
            };
            let jaws = manifest.mouths.iter().map(|mouth| mouth.jaw);
            let widest = jaws.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
            let open = seen(widest as u8, 0, 0);
            let keys = manifest.frames.iter().map(|(key, _)| *key);
            let (mut shut, mut failures) = (0, Vec::new());
            for key in keys.filter(|key| key.stance == stance) {
                let mouth = &manifest.mouths[usize::from(key.mouth)];
                // A lower lip under the teeth leaves some of the teeth visible.
                let max = match (mouth.press > 0.7, mouth.tuck > 0.7) {
                    (true, _) => 0.18,
                    (_, true) => 0.35,
                    _ => continue,
                };
                for quality in 0..set.quality_levels() {
                    shut += 1;
                    let part = seen(key.mouth, key.look, quality) / open;
                    if part > max {
                        failures.push((key, quality, part));
                    }
                }
            }
            assert!(
                shut >= 7 * 2 && failures.is_empty(),
                "{}, {shut} mouths: {failures:?}",
                manifest.name
            );
        }
    }
}

#[test]
fn frames_that_are_lost_or_repeated_spoil_no_other_frame() {
    let set = first_pose_set();
    let quality_levels = set.quality_levels();
    let ids = set.manifest().frames.iter().map(|(id, _)| *id);
    let frames: Vec<(PoseId, usize)> =
        ids.flat_map(|id| (0..quality_levels).map(move |quality| (id, quality))).collect();
    let alone: Vec<I420> =
        frames.iter().map(|(id, quality)| decode_pose(&set, *id, *quality)).collect();
    let mut spliced = decoder_for(&set);
    let (mut random, mut received) = (1u32, None);
    for step in 0..1500 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if random >> 24 < 13 {
            continue; // 5 % loss
        }
        let n = (random >> 8) as usize % frames.len();
        let (id, quality) = frames[n];
        let index = set.frame_index(id);
        if let Some(anchor) = set.anchor_of(index, id)
            && received.replace(anchor) != Some(anchor)
        {
            spliced.decode(set.anchor_frame(anchor)).unwrap();
        }
        let seen = spliced.decode(set.frame(index, quality)).unwrap();
        assert!(seen == alone[n], "step {step}, {id:?}, quality level {quality}");
    }
}

/// Two partial sets of an avatar and the whole one, baked as for a call, but small.
fn growing_pose_sets() -> Vec<Arc<PoseSet>> {
    let all = PosePlan::new();
    let group = |stance, look, mouths: std::ops::Range<u8>, breaths: &[u8]| PoseGroup {
        stance,
        look,
        mouths: mouths.collect(),
        breaths: breaths.to_vec(),
        offset: 0,
        coarse: true,
    };
    // Rest, four stances on the way, and a leaning head.
    let plan = PosePlan {
        stances: all.stances[..6].to_vec(),
        looks: all.looks[..3].to_vec(),
        mouths: [0, 1, 5, 12, 15, 19, 25].map(|m| all.mouths[m]).to_vec(),
        groups: [group(0, 0, 0..7, &[0]), group(0, 1, 0..7, &[0]), group(0, 2, 0..1, &[0])]
            .into_iter()
            .chain((1..5).map(|way| group(way, 0, 0..1, &[0])))
            .chain([group(5, 0, 0..7, &[0]), group(5, 1, 0..1, &[0]), group(5, 2, 0..1, &[0])])
            .chain([0, 5].map(|stance| group(stance, 0, 0..1, &[1, 2, 3, 4, 5])))
            .collect(),
        heads: all.heads[..2]
            .iter()
            .map(|head| SpeakingHead { raised: None, ..head.clone() })
            .collect(),
        anchors: vec![vec![5]],
        ..all
    };
    let shares = [
        PlanSubset { stances: vec![0, 5], looks: vec![0, 2], mouths: vec![0, 1, 4] },
        PlanSubset { stances: vec![0, 2, 5], looks: vec![0, 1, 2], mouths: vec![0, 1, 2, 4, 5] },
    ];
    let (person, parts) = (avatar_spec::find("theo").unwrap(), PatchCache::new(None).unwrap());
    let mut sets = Vec::new();
    let whole = bake::bake_progressively(&person, (128, 128), &plan, &shares, &parts, |event| {
        if let BakeEvent::PartialSet(share) = event {
            sets.push(Arc::new(share.pose_set));
        }
    });
    sets.push(Arc::new(whole.unwrap().pose_set));
    sets
}

#[test]
fn a_face_that_changes_over_to_better_sets_shows_each_frame_as_it_was_baked() {
    let sets = growing_pose_sets();
    let mut random = 1u32;
    let mut one_in = |n: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8).is_multiple_of(n)
    };
    let (mut compared, mut leant, mut renewed) = (0, 0, 0);
    for seed in 0..16 {
        let mut poses = Arc::new(PoseCache::new(Arc::clone(&sets[0])));
        let mut at = 0;
        let mut face = AvatarAnimator::with_poses(Arc::clone(&poses), 25, seed);
        face.add_phones(SEGMENT, &sentence_phones());
        let mut receiver = Decoder::new(128, 128).unwrap();
        let (mut keys, mut asked, mut blind, mut speaks) = (0, 1, false, false);
        let mut anchor: Option<Vec<u8>> = None;
        for n in 0..400 {
            if at + 1 < sets.len() && one_in(120) {
                at += 1;
                let better = Arc::new(PoseCache::new(Arc::clone(&sets[at])));
                poses.set_upgrade(Arc::clone(&better));
                poses = better;
            }
            renewed += u32::from(face.swap_pose_set());
            if one_in(80) {
                speaks = !speaks;
                face.set_state(
                    if speaks { AgentState::Speaking } else { AgentState::Listening },
                    false,
                );
            }
            let now = Time::from_micros(n * 40_000);
            let Some(frame) =
                face.next_frame(now, speaks.then(|| (SEGMENT, n as f32 * 0.04 % 4.2)))
            else {
                continue;
            };
            keys += u32::from(frame.is_key_frame);
            // 5 % of the frames are lost. The receiver notices the loss of a base-layer frame, and
            // shows nothing until the next key frame.
            if one_in(20) {
                if frame.base_layer {
                    face.request_key_frame();
                    asked += 1;
                    blind = true;
                }
                continue;
            }
            blind &= !frame.is_key_frame;
            if blind {
                continue;
            }
            let Ok(seen) = receiver.decode(&frame.payload) else {
                panic!("seed {seed}, frame {n}")
            };
            let baked = if frame.is_key_frame {
                Decoder::new(128, 128).unwrap().decode(&frame.payload).unwrap()
            } else {
                let mut decoder = decoder_for(&sets[at]);
                if let Some(anchor) = &anchor {
                    decoder.decode(anchor).unwrap();
                }
                if sets[at].anchor_frames().contains(&frame.payload) {
                    leant += 1;
                    anchor = Some(frame.payload.to_vec());
                }
                decoder.decode(&frame.payload).unwrap()
            };
            assert!(seen == baked, "seed {seed}, frame {n}, set {at}");
            compared += 1;
        }
        assert!(keys <= asked, "seed {seed}: {keys} keys of which {asked} were asked for");
    }
    println!("{compared} frames compared, {leant} anchors, {renewed} changes");
    assert!(compared > 2000 && leant > 5 && renewed > 20);
}

#[test]
fn a_person_is_small_and_has_a_picture() {
    for avatar in Avatars::built_in().unwrap().as_slice() {
        let file = avatar.pose_set.to_bytes();
        assert!(file.len() <= bake::max_set_bytes((512, 512)), "{} bytes", file.len());
        assert!(avatar.display_picture.starts_with("data:image/webp;base64,UklGR"));
        assert!(avatar.display_picture.len() <= 40_000 * 4 / 3);
    }
}

/// Size of a frame on the wire, in bytes, with the headers of its packets: UDP, IP, RTP with
/// extensions, the SRTP tag and the VP8 descriptor.
fn wire_bytes(frame: &VideoFrame) -> usize {
    const PACKET: usize = 1114;
    const HEADERS: usize = 64;
    frame.payload.len() + frame.payload.len().div_ceil(PACKET) * HEADERS
}

/// Maximum mean bitrates of the first minute of a call, with its anchors, in kbit/s. Later minutes
/// take less (`scripts/motion.py`).
const MAX_IDLE_KILOBITS: f64 = 29.0;
const MAX_LISTENING_KILOBITS: f64 = 40.0;
const MAX_SPEAKING_KILOBITS: f64 = 200.0;

/// What happens during a minute.
#[derive(Clone, Copy, PartialEq)]
enum Activity {
    /// Both sides are silent.
    Idle,
    /// The user speaks with pauses, and the avatar nods.
    Listening,
    /// The agent repeats the sentence.
    Speaking,
}

/// Mean bitrate of a minute in kbit/s, without key frames.
fn mean_kilobits(set: &Arc<PoseSet>, frame_rate: u32, minute: Activity, seed: u64) -> f64 {
    let mut face = AvatarAnimator::new(Arc::clone(set), frame_rate, seed);
    face.add_phones(SEGMENT, &sentence_phones());
    let bytes = (0..u64::from(frame_rate) * 60).map(|n| {
        let now = Time::from_micros(n * 1_000_000 / u64::from(frame_rate));
        let seconds = now.as_micros() as f32 * 1e-6;
        face.set_user_speaking(minute == Activity::Listening && seconds % 8.0 < 6.0);
        let speaking = minute == Activity::Speaking;
        let frame = face.next_frame(now, speaking.then(|| (SEGMENT, seconds % 4.2)));
        frame.filter(|frame| !frame.is_key_frame).map_or(0, |frame| wire_bytes(&frame))
    });
    bytes.sum::<usize>() as f64 * 8.0 / 60.0 / 1000.0
}

#[test]
fn the_bitrates_of_an_idle_a_listening_and_a_speaking_face_are_bounded() {
    let mut over = Vec::new();
    for (set, rate) in built_in_pose_sets()
        .into_iter()
        .flat_map(|set| [25, 30].map(|rate| (Arc::clone(&set), rate)))
    {
        let name = &set.manifest().name;
        let mean =
            |minute| (0..8).map(|seed| mean_kilobits(&set, rate, minute, seed)).sum::<f64>() / 8.0;
        let [idle, listening, speaking] =
            [Activity::Idle, Activity::Listening, Activity::Speaking].map(mean);
        println!(
            "{name}, {rate} fps: {idle:.1} kbit/s idle, {listening:.1} listening, {speaking:.1} \
             speaking"
        );
        if idle > MAX_IDLE_KILOBITS
            || listening > MAX_LISTENING_KILOBITS
            || speaking > MAX_SPEAKING_KILOBITS
        {
            over.push(format!("{name}, {rate} fps"));
        }
    }
    assert!(over.is_empty(), "{over:?}");
}
