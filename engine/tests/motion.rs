//! The measure of the head's motion (`support/motion.rs`).
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

#[path = "support/motion.rs"]
mod motion;

use engine::show::Avatars;
use models::face::picture::I420;
use models::face::vp8::Decoder;
use models::face::{Head, PoseId, Rect};
use motion::{Crown, largest_jump, moving_share, range};

/// A picture of soft spots, 256 pixels a side, displaced by these pixels.
fn spots([dx, dy]: [f32; 2]) -> I420 {
    let mut rgb = vec![0; 256 * 256 * 3];
    for (at, pixel) in rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((at % 256) as f32 - dx, (at / 256) as f32 - dy);
        let level = 120.0 + 50.0 * (x / 5.0).sin() * (y / 7.0).cos() + 40.0 * (x / 31.0).sin();
        pixel.fill(level as u8);
    }
    I420::from_rgb(&rgb, 256, 256)
}

#[test]
fn a_displacement_is_found_to_a_fraction_of_a_pixel() {
    let eyes = Rect { x0: 90, x1: 170, y0: 130, y1: 140 };
    let mut crown = Crown::above_eyes(&spots([0.0, 0.0]), eyes);
    for pixels in [[0.0, 0.0], [3.0, -2.0], [0.5, 4.25], [-7.3, 0.4]] {
        // Twice as many in a picture of 512 pixels.
        let expected = pixels.map(|pixels| 2.0 * pixels);
        let found = crown.displacement(&spots(pixels));
        assert!(range(&[found, expected]) < 0.2, "{found:?}, expected {expected:?}");
    }
}

#[test]
fn the_crown_moves_with_the_head_and_not_with_lids_or_lips() {
    let avatars = Avatars::built_in().unwrap();
    let set = &avatars.find("amina").unwrap().pose_set;
    let (mut crown, mut decoder) = (Crown::of_set(set), Decoder::new(512, 512).unwrap());
    decoder.decode(set.key_frame()).unwrap();
    let mut displacement = |id: PoseId| {
        let index = set.frame_index(id);
        if let Some(anchor) = set.anchor_of(index, id) {
            decoder.decode(set.anchor_frame(anchor)).unwrap();
        }
        crown.displacement(&decoder.decode(set.frame(index, 0)).unwrap())
    };
    let (manifest, still) = (set.manifest(), PoseId::default());
    let looks = (0..manifest.looks.len() as u8).map(|look| PoseId { look, ..still });
    let mouths = (0..manifest.mouths.len() as u8).map(|mouth| PoseId { mouth, ..still });
    for id in looks.chain(mouths) {
        let found = displacement(id);
        assert!(range(&[found, [0.0; 2]]) < 0.3, "{id:?}: {found:?}");
    }
    let stance_with_largest = |angle: fn(&Head) -> f32| {
        let heads = manifest.stances.iter().map(|stance| angle(&stance.head)).enumerate();
        heads.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0 as u8
    };
    let [leaning, nodding] =
        [stance_with_largest(|head| head.roll), stance_with_largest(|head| head.pitch)]
            .map(|stance| displacement(PoseId { stance, ..still }));
    assert!(range(&[leaning, [0.0; 2]]) > 2.0, "{leaning:?}");
    assert!((3.0..14.0).contains(&nodding[1]), "{nodding:?}");
}

#[test]
fn range_jump_and_share_are_those_of_the_displacements() {
    let still = [[1.0, 1.0]; 4];
    let moving = [[1.0, 1.0], [1.5, 1.0], [1.5, 2.0], [4.5, 6.0]];
    let all: Vec<[f32; 2]> = [still, moving, still, still].concat();
    assert_eq!(range(&all), 3.5_f32.hypot(5.0));
    assert_eq!(largest_jump(&all), 3.5_f32.hypot(5.0));
    assert_eq!(largest_jump(&moving), 5.0);
    assert_eq!(moving_share(&all, 4), 0.25);
}
