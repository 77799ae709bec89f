//! A drawn character at rest is processed as a photo, and compared with the same poses as they are
//! drawn. Blue lips and green irises can be measured in both pictures.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stdout)] // measurements, for --nocapture

mod sitter;

use std::sync::OnceLock;

use character::{Eyes, Head, Mouth, Pose, Rect};
use photo::{Change, Landmarks, Photo, PhotoRenderer, TurnedRect};
use sitter::{Rgb, SIDE, blueness, drawn, landmarks, pixel};

/// Deviation of an opening of the lips that nobody sees.
const TOLERANCE: f32 = 0.15;
/// Columns in the middle of the mouth in which openings are measured.
const MIDDLE: std::ops::Range<usize> = 123..134;

fn photo() -> &'static Photo {
    static PHOTO: OnceLock<Photo> = OnceLock::new();
    PHOTO.get_or_init(|| Photo { width: SIDE, height: SIDE, rgb: drawn(&Pose::default()) })
}

fn renderer() -> &'static PhotoRenderer {
    static RENDERER: OnceLock<PhotoRenderer> = OnceLock::new();
    RENDERER.get_or_init(|| PhotoRenderer::new(photo(), &landmarks()).unwrap())
}

fn bent(pose: &Pose) -> Rgb {
    renderer().draw(pose, Rect::whole(SIDE, SIDE))
}

fn mouth(mouth: Mouth) -> Pose {
    Pose { mouth, ..Pose::default() }
}

fn pressed() -> Mouth {
    Mouth { jaw: 0.04, round: 0.1, press: 1.0, ..Mouth::default() }
}

fn open(jaw: f32, width: f32, round: f32) -> Mouth {
    Mouth { jaw, width, round, ..Mouth::default() }
}

/// Mean height of what is visible between the lips in the middle of the mouth, in pixels.
fn opening(rgb: &[u8]) -> f32 {
    let of = |x: usize| {
        let blue: Vec<f32> = (140..200).map(|y| blueness(pixel(rgb, x, y))).collect();
        let first = blue.iter().position(|b| *b > 0.8).unwrap();
        let last = blue.iter().rposition(|b| *b > 0.8).unwrap();
        blue[first..=last].iter().map(|b| 1.0 - b).sum::<f32>()
    };
    MIDDLE.map(of).sum::<f32>() / MIDDLE.len() as f32
}

/// Number of pixels of irises, and their mean x, on the picture's left side.
fn iris(rgb: &[u8]) -> (usize, f32) {
    let green = |x: usize, y: usize| {
        let [r, g, b] = pixel(rgb, x, y);
        g > r + 30.0 && g > b + 30.0
    };
    let all = (90..130).flat_map(|y| (80..125).map(move |x| (x, y)));
    let found: Vec<usize> = all.filter(|(x, y)| green(*x, *y)).map(|(x, _)| x).collect();
    (found.len(), found.iter().sum::<usize>() as f32 / found.len().max(1) as f32)
}

#[test]
fn the_pose_at_rest_is_the_photo() {
    assert!(bent(&Pose::default()) == photo().rgb);
}

#[test]
fn lips_open_as_far_as_those_of_the_drawn_character() {
    // aa, E, oh, ou
    let mouths =
        [open(0.78, 0.1, 0.0), open(0.50, 0.6, 0.0), open(0.68, -0.2, 0.6), open(0.28, -0.3, 1.0)];
    for pose in mouths.map(mouth) {
        let (truth, ours) = (opening(&drawn(&pose)), opening(&bent(&pose)));
        println!("{:?}: drawn {truth:.2}, photo {ours:.2}", pose.mouth);
        assert!((ours / truth - 1.0).abs() < TOLERANCE, "{:?}: {ours} of {truth}", pose.mouth);
    }
}

#[test]
fn a_closure_shows_nothing_of_the_inside() {
    let rest = opening(&photo().rgb);
    for closed in [Mouth::default(), pressed(), Mouth { round: 0.7, width: -0.2, ..pressed() }] {
        let rgb = bent(&mouth(closed));
        assert!(opening(&rgb) <= rest + 0.3, "{closed:?}: {} after {rest}", opening(&rgb));
        // A tooth is bright and grey, and no pixel of skin is.
        let teeth = (150..175).flat_map(|y| (105..152).map(move |x| (x, y))).filter(|(x, y)| {
            let c = pixel(&rgb, *x, *y);
            let (low, high) = (c[0].min(c[1]).min(c[2]), c[0].max(c[1]).max(c[2]));
            high > 150.0 && high - low < 25.0
        });
        assert_eq!(teeth.count(), 0, "{closed:?}");
    }
}

#[test]
fn lips_change_no_pixel_outside_of_their_rectangle() {
    let rect = renderer().mouth_rect(&Pose::default());
    let rgb = bent(&mouth(open(0.88, 0.1, 0.05)));
    let mut inside = 0;
    for (i, (now, before)) in rgb.iter().zip(&photo().rgb).enumerate() {
        let (x, y) = (i / 3 % SIDE, i / 3 / SIDE);
        if (rect.x0..rect.x1).contains(&x) && (rect.y0..rect.y1).contains(&y) {
            inside += usize::from(now != before);
        } else {
            assert_eq!(now, before, "{x}, {y} outside of {rect:?}");
        }
    }
    assert!(inside > 2000, "{inside}");
}

#[test]
fn a_mouth_that_is_carried_to_a_turned_head_looks_as_if_it_were_drawn_there() {
    let renderer = renderer();
    let moved = mouth(open(0.54, 0.1, 0.05));
    let upright = renderer.mouth_rect(&moved);
    let [still, shown] = [&Pose::default(), &moved].map(|pose| renderer.draw(pose, upright));
    let levels: Vec<i16> = shown
        .iter()
        .zip(&still)
        .map(|(now, before)| i16::from(*now) - i16::from(*before))
        .collect();
    let change = Change { rect: upright, levels: &levels };
    for (head, min_psnr) in [
        (Head::default(), f64::INFINITY),
        (Head { yaw: 0.052, pitch: 0.0, roll: -0.021 }, 40.0),
        (Head { yaw: 0.0, pitch: 0.052, roll: 0.0 }, 40.0),
    ] {
        let [still, truth] = [Pose::default(), moved].map(|pose| Pose { head, ..pose });
        let rect = renderer.mouth_rect(&still);
        let carried = TurnedRect::new(renderer, &still, rect).carry(change);
        let [still, truth] = [&still, &truth].map(|pose| renderer.draw(pose, rect));
        let shown = still.iter().zip(&carried).map(|(level, change)| i16::from(*level) + change);
        let squares = |a: i16, b: u8| f64::from(a - i16::from(b)).powi(2);
        let error: f64 = shown.zip(&truth).map(|(a, b)| squares(a, *b)).sum();
        let change: f64 = still.iter().zip(&truth).map(|(a, b)| squares((*a).into(), *b)).sum();
        let psnr = |error: f64| 10.0 * (255.0 * 255.0 * truth.len() as f64 / error).log10();
        println!("{head:?}: {:.1} dB instead of {:.1} dB", psnr(error), psnr(change));
        assert!(psnr(error) >= min_psnr && psnr(change) < 30.0, "{head:?}");
    }
}

#[test]
fn a_blink_closes_and_changes_no_pixel_outside_of_its_rectangle() {
    let eyes = Eyes { lids: 1.0, ..Eyes::default() };
    let rgb = bent(&Pose { eyes, ..Pose::default() });
    let (before, after) = (iris(&photo().rgb).0, iris(&rgb).0);
    assert!(before > 150 && after == 0, "{after} of {before} pixels of the iris are visible");
    let rect = renderer().eyes_rect(&Pose::default());
    for (i, (now, before)) in rgb.iter().zip(&photo().rgb).enumerate() {
        let (x, y) = (i / 3 % SIDE, i / 3 / SIDE);
        let within = (rect.x0..rect.x1).contains(&x) && (rect.y0..rect.y1).contains(&y);
        assert!(within || now == before, "{x}, {y} outside of {rect:?}");
    }
}

#[test]
fn a_glance_turns_the_iris_as_far_as_that_of_the_drawn_character() {
    let (_, rest) = iris(&photo().rgb);
    for gaze_x in [-0.4, 0.4] {
        let pose = Pose { eyes: Eyes { gaze_x, ..Eyes::default() }, ..Pose::default() };
        let (truth, ours) = (iris(&drawn(&pose)).1 - rest, iris(&bent(&pose)).1 - rest);
        println!("gaze {gaze_x}: drawn {truth:.2}, photo {ours:.2}");
        assert!(truth * gaze_x > 0.0 && (ours / truth - 1.0).abs() < 0.2, "{ours} of {truth}");
    }
}

#[test]
fn the_same_photo_gives_the_same_bits_with_any_number_of_threads() {
    let pose = Pose {
        mouth: open(0.5, 0.3, 0.2),
        smile: 0.5,
        head: Head { yaw: 0.025, pitch: 0.06, roll: 0.038 },
        eyes: Eyes { lids: 0.4, gaze_x: 0.3, ..Eyes::default() },
        ..Pose::default()
    };
    let pictures = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let renderer = PhotoRenderer::new(photo(), &landmarks()).unwrap();
            renderer.draw(&pose, Rect::whole(SIDE, SIDE))
        })
    });
    assert!(pictures[0] == pictures[1]);
    // A rectangle is a part of the whole picture.
    let rect = renderer().mouth_rect(&pose);
    let part = renderer().draw(&pose, rect);
    for (row, y) in part.chunks_exact((rect.x1 - rect.x0) * 3).zip(rect.y0..) {
        let at = (y * SIDE + rect.x0) * 3;
        assert!(row == &pictures[0][at..at + row.len()], "row {y}");
    }
}

#[test]
fn landmarks_are_read_in_both_documented_forms() {
    let text = serde_json::to_string(&landmarks()).unwrap();
    assert!(text.starts_with(r#"{"mouth":{"left":["#), "{text}");
    assert_eq!(serde_json::from_str::<Landmarks>(&text).unwrap(), landmarks());
    let mesh: Landmarks = serde_json::from_str("[[0.5, 0.25], [1, 0]]").unwrap();
    assert_eq!(mesh, Landmarks::Mesh(vec![[0.5, 0.25], [1.0, 0.0]]));
    let renderer = PhotoRenderer::new(photo(), &mesh);
    assert_eq!(
        renderer.err().unwrap().to_string(),
        "there are 2 landmarks, but a face mesh has 478"
    );
    for wrong in [r#"{"mouth": {"left": [0, 1]}}"#, "[[1]]", "7"] {
        assert!(serde_json::from_str::<Landmarks>(wrong).is_err(), "{wrong}");
    }
}
