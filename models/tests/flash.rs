//! The avatar for measurements of audio and video: its brightness grows with the opening of the
//! mouth, and nothing else changes. It is stored in `tests/e2e/flash`, for the end-to-end tests. To
//! create it again: `FLASH_OUT=tests/e2e/flash cargo test -p visavis-models --test flash`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use models::face::picture::I420;
use models::face::pose_plan::LISTENING_HEAD;
use models::face::pose_set::Manifest;
use models::face::vp8::{BlockMode, Decoder, Encoder, Quantizers};
use models::face::{Look, Mouth, PoseId, PoseSet, Stance, webp};

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
    let stances = vec![Stance::default(), Stance { head: LISTENING_HEAD, smile: 0.0 }];
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
        Bytes::new(),
        frames.into_iter().map(|(_, frame)| frame).collect(),
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e/flash");
    for (name, bytes) in files {
        assert!(std::fs::read(folder.join(name)).unwrap() == bytes, "{name} is different");
    }
}
