//! Avatars from photos: finding the face of an upload, and drawing a part of a pose. The photo is
//! the picture of a drawn avatar.

use std::path::Path;

use benches::cpu::{CpuTime, bench_with_count, measure};
use criterion::Criterion;
use landmarks::{DecodeLimits, Networks};
use models::face::{Landmarks, Mouth, Photo, Pose, photo_upload};
use photo::PhotoRenderer;

use crate::hear::models_folder;

/// The picture of an avatar, 256 × 256.
const PICTURE: &str = "../assets/avatars/mei.512.webp";
/// Side of the photo that is drawn, in pixels.
const SIDE: usize = 512;
/// Iterations whose instructions are counted.
const COUNT: u64 = 2;

pub(crate) fn benches(c: &mut Criterion<CpuTime>) {
    // CPU time is that of this thread.
    photo_upload::draw_with_one_thread();
    let file = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE));
    let file = file.expect("the picture of an avatar");
    let networks = Networks::load(&models::paths::mediapipe(&models_folder())).expect("networks");
    let find = || {
        let picture = landmarks::decode(&file, DecodeLimits::default()).expect("a picture");
        let found = landmarks::find(&networks, &picture).expect("a face");
        (picture, found)
    };
    bench_with_count(c, "photo: decode, and find the face", COUNT, |count| {
        measure(|| (0..count).for_each(|_| drop(std::hint::black_box(find()))))
    });
    let (picture, found) = find();
    let (crop, points) = landmarks::level(&picture, &found.points, [SIDE, SIDE]);
    let photo = Photo { width: SIDE, height: SIDE, rgb: crop.rgb().to_vec() };
    let renderer = PhotoRenderer::new(&photo, &Landmarks::Mesh(points.to_vec())).expect("a face");
    let open = Mouth { jaw: 0.5, width: 0.1, ..Mouth::default() };
    let pose = Pose { mouth: open, ..Pose::default() };
    let rect = renderer.mouth_rect(&Pose::default());
    bench_with_count(c, "photo: draw a mouth", COUNT, |count| {
        measure(|| (0..count).for_each(|_| drop(std::hint::black_box(renderer.draw(&pose, rect)))))
    });
}
