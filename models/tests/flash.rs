//! The avatar for measurements of audio and video: its brightness grows with the opening of the
//! mouth, and nothing else changes. It is stored in `tests/e2e/flash`, for the end-to-end tests. To
//! create it in another folder: `FLASH_OUT=FOLDER cargo test -p visavis-models-tests --test flash`.
//!
//! The stored file is also the sample of the sets of version 2, which are still read. It cannot be
//! replaced: only the current version is written.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use models::face::picture::I420;
use models::face::pose_plan::LISTENING_HEAD;
use models::face::pose_set::{Manifest, plan_version_of};
use models::face::vp8::{BlockMode, Decoder, Encoder, Quantizers};
use models::face::{
    Framing, HeadName, Look, Mood, Mouth, PLAN_VERSION, PoseId, PoseSet, Stance, webp,
};

const SIDE: usize = 64;
const QUANTIZERS: [u32; 2] = [8, 30];

fn plain(luma: u8) -> I420 {
    let rgb = vec![luma; SIDE * SIDE * 3];
    I420::from_rgb(&rgb, SIDE, SIDE)
}

/// Opening of the jaw in each mouth.
fn jaws() -> impl Iterator<Item = f32> {
    (0..=18u8).map(|n| f32::from(n) * 0.05)
}

/// Brightness of a picture with this opening of the jaw.
fn luma(jaw: f32) -> u8 {
    (40.0 + jaw / 0.9 * 180.0) as u8
}

fn flash() -> PoseSet {
    let mut encoder = Encoder::new(SIDE, SIDE).unwrap();
    let key = encoder.encode_key_frame(&plain(luma(0.0)), QUANTIZERS[0]).unwrap();
    let blocks = vec![BlockMode::Coded; SIDE * SIDE / 256];
    let mut pose = |jaw| {
        encoder.encode_pose(&plain(luma(jaw)), Quantizers::uniform(QUANTIZERS[1]), &blocks).unwrap()
    };
    // It speaks leaning and upright, so that no head has to move before the first flash.
    let stances = vec![Stance::default(), Stance { head: LISTENING_HEAD, ..Stance::default() }];
    let frames: Vec<(PoseId, Bytes)> = (0..stances.len() as u8)
        .flat_map(|stance| jaws().enumerate().map(move |(mouth, jaw)| (stance, mouth as u8, jaw)))
        .map(|(stance, mouth, jaw)| {
            (PoseId { stance, mouth, ..PoseId::default() }, Bytes::from(pose(jaw)))
        })
        .collect();
    let manifest = Manifest {
        id: "flash".into(),
        name: "Flash".into(),
        gender: "female".into(),
        voice: "slt".into(),
        width: SIDE as u32,
        height: SIDE as u32,
        plan_version: 2,
        framing: Framing::Bust,
        quantizers: QUANTIZERS.to_vec(),
        stances,
        looks: vec![Look::default()],
        mouths: jaws().map(|jaw| Mouth { jaw, ..Mouth::default() }).collect(),
        breaths: vec![0.0],
        frames: frames.iter().map(|(key, _)| (*key, Vec::new())).collect(),
        ..Manifest::default()
    };
    PoseSet::new(
        manifest,
        key.into(),
        Vec::new(),
        frames.into_iter().map(|(_, frame)| vec![frame]).collect(),
    )
    .unwrap()
}

#[test]
fn the_avatar_that_flashes_is_the_one_that_lies_there() {
    let set = flash();
    let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
    decoder.decode(set.key_frame()).unwrap();
    for stance in 0..2 {
        for (mouth, jaw) in jaws().enumerate() {
            let frame = set.frame(
                set.frame_index(PoseId { stance, mouth: mouth as u8, ..PoseId::default() }),
                0,
            );
            let level = decoder.decode(frame).unwrap().luma(SIDE / 2, SIDE / 2);
            // Limited range: 16 to 235 of 0 to 255.
            let wanted = 16.0 + f32::from(luma(jaw)) * 219.0 / 255.0;
            assert!((f32::from(level) - wanted).abs() < 6.0, "jaw {jaw}: {level} for {wanted}");
        }
    }
    let files = [
        ("flash.64.poses", set.to_bytes()),
        ("flash.64.webp", webp::encode_i420(&plain(luma(0.9)), QUANTIZERS[1]).unwrap()),
    ];
    if let Some(out) = std::env::var_os("FLASH_OUT") {
        files.iter().for_each(|(name, bytes)| {
            std::fs::write(PathBuf::from(&out).join(name), bytes).unwrap()
        });
    }
    let [_, (picture, bytes)] = files;
    assert!(stored(picture) == bytes, "{picture} is different");
    let stored = PoseSet::parse(&stored("flash.64.poses").into()).unwrap();
    assert_eq!(stored.manifest(), set.manifest());
    assert_eq!(stored.key_frame(), set.key_frame());
    for index in 0..set.manifest().frames.len() as u16 {
        assert_eq!(stored.frame(index, 0), set.frame(index, 0), "frame {index} is different");
    }
}

/// A file of the stored avatar.
fn stored(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e/flash");
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn a_set_of_version_2_is_read_and_written_in_the_current_version() {
    let file = stored("flash.64.poses");
    assert_eq!(file[6..8], [2, 0], "a sample of version 2 is needed");
    let old = PoseSet::parse(&file.into()).unwrap();
    assert!(old.anchor_frames().is_empty());
    let heads: Vec<_> =
        old.heads().iter().map(|head| (head.name, head.mood, head.stance)).collect();
    assert_eq!(heads, [(HeadName::Rest, Mood::Calm, 0), (HeadName::Lean, Mood::Calm, 1)]);
    let file = old.to_bytes();
    assert_eq!(file[6..8], [3, 0]);
    let new = PoseSet::parse(&file.clone().into()).unwrap();
    assert_eq!((new.manifest(), new.heads()), (old.manifest(), old.heads()));
    // It is still known that the set is outdated.
    assert_eq!((old.plan_version(), plan_version_of(&file)), (2, Some(2)));
    assert!(old.plan_version() < PLAN_VERSION);
    let ids = old.manifest().frames.iter().map(|(id, _)| *id);
    assert!(ids.clone().count() > 30);
    for id in ids {
        let [before, after] = [&old, &new].map(|set| set.frame(set.frame_index(id), 0));
        assert_eq!(before, after, "{id:?}");
    }
}
