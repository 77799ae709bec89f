//! The avatar by which sound and picture are measured: dark while the mouth is shut, bright while it is open, and nothing between. It lies in
//! `tests/flash`, for the end-to-end tests; made anew with `FLASH_OUT=tests/flash cargo test -p visavis-models --test flash`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use models::face::picture::I420;
use models::face::set::Manifest;
use models::face::vp8::{Block, Decoder, Encoder, Quantizers};
use models::face::{Key, Look, Mouth, PoseSet, Stance, webp};

const SIDE: usize = 64;
const QUANTIZERS: [u32; 2] = [8, 30];

fn plain(luma: u8) -> I420 {
    let rgb = vec![luma; SIDE * SIDE * 3];
    I420::from_rgb(&rgb, SIDE, SIDE)
}

fn flash() -> PoseSet {
    let mut encoder = Encoder::new(SIDE, SIDE).unwrap();
    let (shut, open) = (plain(40), plain(220));
    let key = encoder.key(&shut, QUANTIZERS[0]).unwrap();
    let blocks = vec![Block::Moving; SIDE * SIDE / 256];
    let frames =
        [&shut, &open].map(|picture| encoder.pose(picture, Quantizers::all(QUANTIZERS[1]), &blocks).unwrap());
    let manifest = Manifest {
        id: "flash".into(),
        name: "Flash".into(),
        gender: "female".into(),
        voice: "slt".into(),
        width: SIDE as u32,
        height: SIDE as u32,
        quantizers: QUANTIZERS.to_vec(),
        stances: vec![Stance::default()],
        looks: vec![Look::default()],
        // Lips are half open when a vowel begins or ends.
        mouths: vec![Mouth::default(), Mouth { jaw: 0.78, ..Mouth::default() }],
        breaths: vec![0.0],
        frames: [0, 1].map(|mouth| (Key { mouth, ..Key::default() }, Vec::new())).to_vec(),
        ..Manifest::default()
    };
    PoseSet::new(manifest, key.into(), Bytes::new(), frames.map(Bytes::from).to_vec()).unwrap()
}

#[test]
fn the_avatar_that_flashes_is_the_one_that_lies_there() {
    let set = flash();
    let mut decoder = Decoder::new(SIDE, SIDE).unwrap();
    decoder.decode(set.key()).unwrap();
    let lumas = [0, 1].map(|mouth| {
        let frame = set.frame(set.index(Key { mouth, ..Key::default() }), 0);
        decoder.decode(frame).unwrap().luma(SIDE / 2, SIDE / 2)
    });
    assert!(lumas[0] < 60 && lumas[1] > 180, "{lumas:?}");
    let files = [
        ("flash.64.poses", set.to_file()),
        ("flash.64.webp", webp::encode_i420(&plain(220), QUANTIZERS[1]).unwrap()),
    ];
    if let Some(out) = std::env::var_os("FLASH_OUT") {
        files.iter().for_each(|(name, bytes)| std::fs::write(PathBuf::from(&out).join(name), bytes).unwrap());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/flash");
    for (name, bytes) in files {
        assert!(std::fs::read(folder.join(name)).unwrap() == bytes, "{name} is another one");
    }
}
