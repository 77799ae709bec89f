//! Landmarks as a mesh, which also tell where parted lips are.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod sitter;

use character::{Mouth, Pose, Rect};
use photo::{EyePoints, Landmarks, MESH_POINTS, Photo, PhotoRenderer, Point};
use sitter::{SIDE, blueness, drawn, landmarks, pixel};

/// Edges of the lips in the order of the mesh, downward: upper lip, gap, lower lip.
const LIPS: [[usize; 11]; 4] = [
    [61, 185, 40, 39, 37, 0, 267, 269, 270, 409, 291],
    [78, 191, 80, 81, 82, 13, 312, 311, 310, 415, 308],
    [78, 95, 88, 178, 87, 14, 317, 402, 318, 324, 308],
    [61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291],
];

/// A mesh in which only the points that matter are those of the face. The edges of the lips are
/// measured in the picture, and off by a pixel as those of a network.
fn mesh(rgb: &[u8], mouth: [f32; 2]) -> Landmarks {
    let Landmarks::Points(face) = landmarks() else { panic!("named points") };
    let mut points = vec![face.nose.base; MESH_POINTS];
    let [left, right] = mouth;
    for i in 0..11 {
        let x = left + (right - left) * i as f32 / 10.0;
        let is_blue = |y: &usize| blueness(pixel(rgb, x.round() as usize, *y)) > 0.5;
        let blue: Vec<usize> = (140..200).filter(is_blue).collect();
        let gap = blue.windows(2).find(|w| w[1] > w[0] + 1);
        // At the corners the lips are thinner than a pixel.
        let end = |y: Option<&usize>| y.map_or(159.7, |y| *y as f32);
        let (top, bottom) = (end(blue.first()), end(blue.last()));
        let middle = (top + bottom) * 0.5;
        let (upper, lower) = gap.map_or((middle, middle), |w| (w[0] as f32, w[1] as f32));
        for (edge, y) in [top, upper + 1.0, lower - 1.0, bottom].into_iter().enumerate() {
            points[LIPS[edge][i]] = [x, y];
        }
    }
    let mut set = |list: &[(usize, Point)]| list.iter().for_each(|(i, p)| points[*i] = *p);
    // Corners, lids in the middle and beside it, brow.
    let lids = |e: &EyePoints, [left, right, upper, lower]: [usize; 4]| {
        let (a, b) = if e.inner[0] < e.outer[0] { (e.inner, e.outer) } else { (e.outer, e.inner) };
        [(left, a), (right, b), (upper, e.upper), (lower, e.lower)]
    };
    set(&lids(&face.left_eye, [33, 133, 159, 145]));
    set(&lids(&face.right_eye, [362, 263, 386, 374]));
    for (eye, others) in [
        (&face.left_eye, [246, 161, 160, 158, 157, 173]),
        (&face.right_eye, [398, 384, 385, 387, 388, 466]),
    ] {
        set(&others.map(|i| (i, eye.upper)));
    }
    for (eye, others) in [
        (&face.left_eye, [7, 163, 144, 153, 154, 155]),
        (&face.right_eye, [382, 381, 380, 373, 390, 249]),
    ] {
        set(&others.map(|i| (i, eye.lower)));
    }
    for (eye, iris) in [(&face.left_eye, 468), (&face.right_eye, 473)] {
        let [x, y] = eye.iris;
        let rim = [[x, y], [x + 9.0, y], [x, y - 9.0], [x - 9.0, y], [x, y + 9.0]];
        set(&[0, 1, 2, 3, 4].map(|k| (iris + k, rim[k])));
    }
    set(&[46, 53, 52, 65, 55].map(|i| (i, face.left_eye.brow)));
    set(&[285, 295, 282, 283, 276].map(|i| (i, face.right_eye.brow)));
    set(&[(10, [128.0, 60.0]), (152, face.chin), (4, [128.0, 138.0])]);
    set(&[(50, [88.0, 140.0]), (280, [168.0, 140.0])]);
    Landmarks::Mesh(points)
}

#[test]
fn parted_lips_of_a_photo_close() {
    let parted = Mouth { jaw: 0.2, width: 0.2, ..Mouth::default() };
    let rgb = drawn(&Pose { mouth: parted, ..Pose::default() });
    let landmarks = mesh(&rgb, [106.5, 149.5]);
    let renderer =
        PhotoRenderer::new(&Photo { width: SIDE, height: SIDE, rgb: rgb.clone() }, &landmarks)
            .unwrap();
    // Columns of the inner two thirds of the mouth.
    let between_lips = |rgb: &[u8]| {
        let column = |x: usize| {
            let blue: Vec<f32> = (140..200).map(|y| blueness(pixel(rgb, x, y))).collect();
            let first = blue.iter().position(|b| *b > 0.8).unwrap();
            let last = blue.iter().rposition(|b| *b > 0.8).unwrap();
            blue[first..=last].iter().map(|b| 1.0 - b).sum::<f32>()
        };
        (115..142).map(column).fold(0.0, f32::max)
    };
    let before = between_lips(&rgb);
    assert!(before > 4.0, "the photo shows parted lips: {before}");
    for mouth in [Mouth::default(), Mouth { jaw: 0.04, press: 1.0, ..Mouth::default() }] {
        let closed = renderer.draw(&Pose { mouth, ..Pose::default() }, Rect::whole(SIDE, SIDE));
        let after = between_lips(&closed);
        assert!(after < 1.2, "{mouth:?}: {after} pixels after {before}");
    }
}
