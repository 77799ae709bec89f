//! Landmarks come from a network or from a request. Whatever they are, a photo is refused with a
//! sentence or drawn.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stdout)] // the case that fails

use character::{Brows, Eyes, Head, Mouth, Pose, Rect};
use photo::{
    EyePoints, FacePoints, Landmarks, MESH_POINTS, MouthPoints, NosePoints, Photo, PhotoRenderer,
    Point,
};

const WIDTH: usize = 96;
const HEIGHT: usize = 80;

fn photo() -> Photo {
    let level = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) as u8;
    Photo { width: WIDTH, height: HEIGHT, rgb: (0..WIDTH * HEIGHT * 3).map(level).collect() }
}

/// The named points as a list, and back.
fn from_list(p: &[Point]) -> Landmarks {
    let eye = |p: &[Point]| EyePoints {
        inner: p[0],
        outer: p[1],
        upper: p[2],
        lower: p[3],
        brow: p[4],
        iris: p[5],
    };
    Landmarks::Points(Box::new(FacePoints {
        mouth: MouthPoints { left: p[0], right: p[1], upper: p[2], lower: p[3] },
        nose: NosePoints { base: p[4] },
        chin: p[5],
        left_eye: eye(&p[6..12]),
        right_eye: eye(&p[12..18]),
    }))
}

/// A face in the middle of the photo.
const FACE: [Point; 18] = [
    [40.0, 54.0],
    [56.0, 54.0],
    [48.0, 51.0],
    [48.0, 57.0],
    [48.0, 47.0],
    [48.0, 68.0],
    [43.0, 32.0],
    [33.0, 32.0],
    [38.0, 30.0],
    [38.0, 34.0],
    [38.0, 27.0],
    [38.0, 32.0],
    [53.0, 32.0],
    [63.0, 32.0],
    [58.0, 30.0],
    [58.0, 34.0],
    [58.0, 27.0],
    [58.0, 32.0],
];

fn poses() -> Vec<Pose> {
    let mouth = |jaw, round, tongue, press| Mouth { jaw, round, tongue, press, ..Mouth::default() };
    vec![
        Pose { mouth: mouth(0.9, 0.1, 0.2, 0.0), ..Pose::default() },
        Pose {
            mouth: mouth(0.3, 1.0, 1.0, 0.5),
            smile: 1.0,
            head: Head { yaw: 0.1, pitch: 0.1, roll: -0.1 },
            eyes: Eyes { lids: 0.6, squint: 0.5, gaze_x: 1.0, gaze_y: -1.0 },
            brows: Brows { raise: 1.0, knit: 1.0 },
        },
    ]
}

/// Draws everything that a renderer for these landmarks draws. Returns whether there is one.
fn draw(landmarks: &Landmarks) -> bool {
    let Ok(renderer) = PhotoRenderer::new(&photo(), landmarks) else { return false };
    for pose in poses() {
        for rect in
            [Rect::whole(WIDTH, HEIGHT), renderer.mouth_rect(&pose), renderer.eyes_rect(&pose)]
        {
            let rgb = renderer.draw(&pose, rect);
            assert_eq!(rgb.len(), (rect.x1 - rect.x0) * (rect.y1 - rect.y0) * 3);
        }
    }
    true
}

/// A xorshift generator: every run draws the same cases.
struct Random(u32);

impl Random {
    /// 0 … 1.
    fn unit(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        (self.0 >> 8) as f32 / 16_777_216.0
    }

    fn points(&mut self, count: usize) -> Vec<Point> {
        (0..count).map(|_| [self.unit() * WIDTH as f32, self.unit() * HEIGHT as f32]).collect()
    }
}

#[test]
fn any_points_within_the_photo_are_drawn_or_refused() {
    let mut random = Random(0x2545_f491);
    for case in 0..400 {
        let (points, mesh) = (random.points(18), random.points(MESH_POINTS));
        println!("case {case}: {points:?}");
        draw(&from_list(&points));
        draw(&Landmarks::Mesh(mesh));
    }
}

#[test]
fn any_points_near_those_of_a_face_are_drawn_or_refused() {
    let mut random = Random(0x9e37_79b9);
    let mut drawn = 0;
    for case in 0..60 {
        // From none to half the distance of the eyes.
        let reach = random.unit() * 10.0;
        let moved = FACE.map(|p| p.map(|v| v + (random.unit() * 2.0 - 1.0) * reach));
        println!("case {case}: {moved:?}");
        drawn += usize::from(draw(&from_list(&moved)));
    }
    assert!((10..60).contains(&drawn), "{drawn} cases are drawn, the others refused");
}

#[test]
fn the_points_of_a_face_are_drawn() {
    assert!(draw(&from_list(&FACE)));
}

#[test]
fn points_outside_of_the_photo_are_refused() {
    for wrong in [[-1.0, 5.0], [5.0, 1e9], [f32::NAN, 5.0], [5.0, f32::INFINITY]] {
        let mut points = FACE;
        points[9] = wrong;
        let why = PhotoRenderer::new(&photo(), &from_list(&points)).err().unwrap().to_string();
        assert!(why.ends_with("lies outside of the photo"), "{why}");
    }
}

#[test]
fn a_face_upside_down_is_refused() {
    let turned = from_list(&FACE).map(|[x, y]| [WIDTH as f32 - x, HEIGHT as f32 - y]);
    let why = PhotoRenderer::new(&photo(), &turned).err().unwrap().to_string();
    assert!(why.starts_with("the landmarks are not those of a face: "), "{why}");
}
