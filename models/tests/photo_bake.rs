//! Properties of the bake of a photo. The photo is a drawn character at rest.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stdout)] // measurements, for --nocapture

#[path = "backgrounds.rs"]
mod backgrounds;
#[path = "common/plan.rs"]
mod plan;
#[path = "photo_upload.rs"]
mod upload;

use character::{Character, CharacterRenderer, Framing, Hair, HairStyle, Pose, Rect};
use models::face::avatar_spec::Gender;
use models::face::bake::{self, BakeEvent, Error, PatchCache, PlanSubset, PosePlan};
use models::face::photo_avatar::PhotoAvatar;
use models::face::picture::I420;
use models::face::vp8::Decoder;
use models::face::{Landmarks, Photo, PoseId, PoseSet};
use photo::PhotoRenderer;
use plan::small_plan;
use rustix::time::{ClockId, clock_gettime};

const SIDE: usize = 128;
/// Limits of a pose set of 512 × 512 pixels, in seconds of CPU time.
const MAX_DRAWING: f64 = 4.0;
const MAX_ENCODING: f64 = 9.0;
/// The same of a whole job.
const MAX_JOB: f64 = 15.0;
/// Difference in levels from which a change is visible.
const VISIBLE_LEVELS: u8 = 10;

/// The points that a user would mark on [`avatar`], in pixels of 512.
const LANDMARKS: &str = r#"{
    "mouth": {"left": [213.5, 319.4], "right": [298.8, 319.4],
              "upper": [256.2, 308.3], "lower": [256.2, 335.7]},
    "nose": {"base": [255.6, 289.0]},
    "chin": [256.0, 384.8],
    "left_eye": {"outer": [176.7, 225.9], "inner": [238.1, 225.9], "upper": [206.5, 207.2],
                 "lower": [206.5, 240.5], "brow": [200.0, 189.0], "iris": [207.7, 224.8]},
    "right_eye": {"inner": [274.3, 225.9], "outer": [334.4, 225.9], "upper": [304.7, 207.2],
                  "lower": [304.7, 240.5], "brow": [312.0, 188.0], "iris": [304.0, 224.8]}
}"#;

/// The person on the photo.
fn character() -> Character {
    Character {
        seed: 3,
        asymmetry: 0.0,
        hair: Hair { style: HairStyle::None, ..Hair::default() },
        ..Character::default()
    }
}

/// An avatar from a photo of this size.
fn avatar((width, height): (usize, usize)) -> PhotoAvatar {
    let renderer = CharacterRenderer::new(&character()).unwrap().with_framing(Framing::Bust);
    let view = renderer.head_view(&Pose::default(), (width, height));
    let rgb = view.draw(&Pose::default(), Rect::whole(width, height)).to_picture().rgb();
    let scale = height as f32 / 512.0;
    let left = (width as f32 - height as f32) * 0.5;
    let landmarks: Landmarks = serde_json::from_str(LANDMARKS).unwrap();
    PhotoAvatar {
        id: "p1".into(),
        name: "Pat".into(),
        gender: Gender::Female,
        voice: "heart".into(),
        photo: Photo { width, height, rgb },
        framing: Framing::Bust,
        landmarks: landmarks.map(|[x, y]| [left + x * scale, y * scale]),
        mask: None,
    }
}

fn decode_pose(set: &PoseSet, key: PoseId) -> I420 {
    let (width, height) = (set.manifest().width as usize, set.manifest().height as usize);
    let mut decoder = Decoder::new(width, height).unwrap();
    let index = set.frame_index(key);
    decoder.decode(set.key_frame()).unwrap();
    if let Some(anchor) = set.anchor_of(index, key) {
        decoder.decode(set.anchor_frame(anchor)).unwrap();
    }
    decoder.decode(set.frame(index, 0)).unwrap()
}

fn no_cache() -> PatchCache {
    PatchCache::new(None).unwrap()
}

#[test]
fn a_photo_is_baked_to_a_set_with_the_poses_of_the_plan_and_only_lips_speak() {
    let (avatar, plan) = (avatar((SIDE, SIDE)), small_plan());
    let baked = bake::bake(&avatar, (SIDE, SIDE), &plan, &no_cache(), |_| ()).unwrap();
    let set = PoseSet::parse(&baked.pose_set.to_bytes().into()).unwrap();
    let manifest = set.manifest();
    assert_eq!(
        (&manifest.id, &manifest.name, &manifest.voice),
        (&avatar.id, &avatar.name, &avatar.voice)
    );
    assert_eq!(manifest.frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), plan.pose_ids());
    assert!(baked.display_picture.starts_with(b"RIFF") && baked.luma_psnr.0 > 28.0);

    let renderer = PhotoRenderer::new(&avatar.photo, &avatar.landmarks).unwrap();
    let rect = renderer.mouth_rect(&Pose::default());
    let still = decode_pose(&set, PoseId::default());
    let moved = decode_pose(&set, PoseId { mouth: 3, ..PoseId::default() });
    let changed = moved.changed_blocks(&still, VISIBLE_LEVELS);
    let blocks: Vec<usize> = (0..changed.len()).filter(|block| changed[*block]).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let (x, y) = (block % (SIDE / 16) * 16, block / (SIDE / 16) * 16);
        let within = (rect.x0..rect.x1).contains(&x) && (rect.y0..rect.y1).contains(&y);
        assert!(within, "macroblock {x}, {y} outside of {rect:?}");
    }
}

#[test]
fn the_same_photo_gives_the_same_set_with_any_number_of_threads_and_subsets() {
    let (avatar, plan) = (avatar((SIDE, SIDE)), small_plan());
    let pools = [1, 3].map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap());
    let size = (SIDE, SIDE);
    let at_once = pools[0].install(|| bake::bake(&avatar, size, &plan, &no_cache(), |_| ()));
    let subsets = [PlanSubset { stances: vec![0], looks: vec![0, 2], mouths: vec![0, 3] }];
    let mut partial = Vec::new();
    let in_parts = pools[1].install(|| {
        bake::bake_progressively(&avatar, size, &plan, &subsets, &no_cache(), |event| {
            if let BakeEvent::PartialSet(set) = event {
                partial.push(set.pose_set.manifest().frames.len());
            }
        })
    });
    let [a, b] = [at_once, in_parts].map(|baked| baked.unwrap().pose_set.to_bytes());
    assert!(a == b, "{} and {} bytes", a.len(), b.len());
    assert_eq!(partial.len(), 1);
}

#[test]
fn a_fingerprint_depends_on_pixels_landmarks_name_size_and_plan() {
    let (avatar, plan, size) = (avatar((SIDE, SIDE)), small_plan(), (SIDE, SIDE));
    let print = bake::fingerprint(&avatar, size, &plan);
    assert_eq!(print, bake::fingerprint(&avatar.clone(), size, &plan));
    let changed = |change: fn(&mut PhotoAvatar)| {
        let mut other = avatar.clone();
        change(&mut other);
        bake::fingerprint(&other, size, &plan)
    };
    for other in [
        changed(|a| a.photo.rgb[7] ^= 1),
        changed(|a| a.landmarks = a.landmarks.map(|[x, y]| [x + 0.25, y])),
        changed(|a| a.name = "Kim".into()),
        bake::fingerprint(&avatar, (SIDE, 2 * SIDE), &plan),
        bake::fingerprint(&avatar, size, &PosePlan::new()),
    ] {
        assert_ne!(print, other);
    }
}

#[test]
fn an_unsuitable_photo_is_refused_with_a_sentence() {
    let (avatar, plan) = (avatar((SIDE, SIDE)), small_plan());
    let error = bake::bake(&avatar, (256, SIDE), &plan, &no_cache(), |_| ()).err().unwrap();
    assert!(matches!(error, Error::PhotoSize(..)));
    assert_eq!(error.to_string(), "the photo has 128×128 pixels, but the pose set has 256×128");
    let landmarks = avatar.landmarks.map(|[x, y]| [x, 128.0 - y]);
    let turned = PhotoAvatar { landmarks, ..avatar };
    let error = bake::bake(&turned, (SIDE, SIDE), &plan, &no_cache(), |_| ()).err().unwrap();
    assert!(error.to_string().starts_with("the landmarks are not those of a face"), "{error}");
}

#[test]
#[ignore = "long: faces"]
fn long_faces_a_set_of_a_photo_is_not_larger_than_others() {
    for size in [(512, 512), (1280, 720)] {
        let (avatar, plan) = (avatar(size), PosePlan::for_photo());
        let start = cpu_seconds();
        let drawn = std::sync::Mutex::new(None);
        let baked = bake::bake_progressively(&avatar, size, &plan, &[], &no_cache(), |event| {
            // The drawing ends where the encoding begins.
            if let BakeEvent::Progress(done) = event
                && done < 0.8
            {
                *drawn.lock().unwrap() = Some(cpu_seconds() - start);
            }
        })
        .unwrap();
        let (drawing, all) = (drawn.into_inner().unwrap().unwrap(), cpu_seconds() - start);
        println!(
            "{size:?}: {} poses, {} KB, quantizers {:?}, PSNR {:.1} dB, drawing {drawing:.2} \
             core-s, encoding {:.2} core-s",
            baked.pose_set.manifest().frames.len(),
            baked.pose_set.to_bytes().len() / 1000,
            baked.pose_set.manifest().quantizers,
            baked.luma_psnr.0,
            all - drawing,
        );
        assert!(baked.pose_set.to_bytes().len() <= bake::max_set_bytes(size));
        if size.0 == 512 && !cfg!(debug_assertions) {
            assert!(drawing <= MAX_DRAWING && all - drawing <= MAX_ENCODING);
            // As a job does it: with a first subset, which calls show until the set is ready.
            let start = cpu_seconds();
            let first = &plan.progressive_subsets()[..1];
            bake::bake_progressively(&avatar, size, &plan, first, &no_cache(), |_| ()).unwrap();
            let whole = cpu_seconds() - start;
            println!("{size:?}: a job {whole:.2} core-s");
            assert!(whole <= MAX_JOB);
        }
    }
}

/// CPU time of all threads of this process, in seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
