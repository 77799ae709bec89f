//! Draws the poses of a person from a photo and its landmarks, side by side in one PNG.
//!
//! ```text
//! contact_sheet PHOTO.png LANDMARKS.json OUT.png visemes|looks|heads|all
//! ```
//!
//! The photo is levelled and has 8 bits per channel. The landmarks are in pixels of the photo:
//! `[[x, y], …]` or `{"mouth": {"left": [x, y], …}, …}`. Prints the CPU time of the drawing.
#![allow(clippy::print_stdout)] // its output is its purpose
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the program")]

use std::fs::{self, File};
use std::io::BufWriter;

use character::{Brows, Eyes, Head, Mouth, Pose, Rect};
use photo::{Landmarks, Photo, PhotoRenderer};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [photo, landmarks, out, which] = &arguments[..] else {
        panic!("usage: see the comment at the top of this file")
    };
    let photo = read_png(photo);
    let text = fs::read_to_string(landmarks).expect("readable landmarks");
    let landmarks: Landmarks = serde_json::from_str(&text).expect("landmarks");
    let start = cpu_seconds();
    let renderer = PhotoRenderer::new(&photo, &landmarks).expect("a face");
    println!("renderer: {:.3} core-s", cpu_seconds() - start);
    let poses = match which.as_str() {
        "visemes" => visemes(),
        "looks" => looks(),
        "heads" => heads(),
        _ => [visemes(), looks(), heads()].concat(),
    };
    let crop = crop(&renderer);
    let start = cpu_seconds();
    let tiles: Vec<Vec<u8>> = poses.iter().map(|pose| renderer.draw(pose, crop)).collect();
    println!("{} pictures: {:.2} core-s", tiles.len(), cpu_seconds() - start);
    save_tiles(out, &tiles, 5, crop.x1 - crop.x0, crop.y1 - crop.y0);
}

/// The head.
fn crop(renderer: &PhotoRenderer) -> Rect {
    let ((width, height), bounds) = (renderer.size(), renderer.face_bounds());
    let tall = bounds.chin[1] - bounds.eyes[1];
    let side = |v: f32, end: usize| (v.max(0.0) as usize).min(end);
    Rect {
        x0: side(bounds.eyes[0] - tall * 1.25, width - 1),
        y0: side(bounds.eyes[1] - tall * 1.1, height - 1),
        x1: side(bounds.eyes[0] + tall * 1.25, width),
        y1: side(bounds.chin[1] + tall * 0.55, height),
    }
}

/// sil PP FF TH DD, kk CH SS nn RR, aa E ih oh ou.
fn visemes() -> Vec<Pose> {
    let m = |jaw, width, round, tongue| Mouth { jaw, width, round, tongue, ..Mouth::default() };
    let mouths = [
        Mouth::default(),
        Mouth { press: 1.0, ..m(0.04, 0.0, 0.1, 0.0) },
        Mouth { tuck: 1.0, ..m(0.18, 0.1, 0.0, 0.0) },
        m(0.28, 0.1, 0.0, 1.0),
        m(0.26, 0.15, 0.0, 0.6),
        m(0.32, 0.15, 0.0, 0.0),
        m(0.20, -0.2, 0.55, 0.2),
        m(0.13, 0.5, 0.0, 0.3),
        m(0.24, 0.1, 0.0, 0.6),
        m(0.24, -0.2, 0.45, 0.25),
        m(0.78, 0.1, 0.0, 0.0),
        m(0.50, 0.6, 0.0, 0.1),
        m(0.30, 0.7, 0.0, 0.1),
        m(0.68, -0.2, 0.6, 0.0),
        m(0.28, -0.3, 1.0, 0.0),
    ];
    mouths.map(|mouth| Pose { mouth, ..Pose::default() }).to_vec()
}

/// Blink, glances, brows, smiles.
fn looks() -> Vec<Pose> {
    let look = |lids, squint, gaze_x, gaze_y, raise, knit, smile| Pose {
        eyes: Eyes { lids, squint, gaze_x, gaze_y },
        brows: Brows { raise, knit },
        smile,
        ..Pose::default()
    };
    vec![
        look(0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        look(0.55, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        look(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        look(0.0, 0.0, -0.4, -0.05, 0.0, 0.0, 0.0),
        look(0.0, 0.0, 0.4, -0.05, 0.0, 0.0, 0.0),
        look(0.0, 0.0, 0.55, 0.5, 0.4, 0.3, 0.0),
        look(0.55, 0.0, 0.55, 0.5, 0.4, 0.3, 0.0),
        look(0.0, 0.0, 0.0, 0.0, 0.45, 0.0, 0.0),
        look(0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0),
        look(0.0, 0.12, 0.0, 0.0, 0.0, 0.0, 0.5),
        look(0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 1.0),
    ]
}

/// A lean, a nod, and turns farther than the plan of poses has.
fn heads() -> Vec<Pose> {
    let head = |yaw, pitch, roll| Pose {
        head: Head { yaw, pitch, roll },
        eyes: Eyes { gaze_x: -yaw / 0.45, gaze_y: pitch / 0.35, ..Eyes::default() },
        ..Pose::default()
    };
    let lean = head(0.025, 0.012, 0.038);
    let open = Mouth { jaw: 0.54, width: 0.1, round: 0.05, tongue: 0.1, ..Mouth::default() };
    vec![
        lean,
        Pose { mouth: open, ..lean },
        head(0.025, 0.062, 0.038),
        head(0.1, 0.0, 0.0),
        head(-0.1, 0.0, 0.0),
    ]
}

fn read_png(path: &str) -> Photo {
    let decoder = png::Decoder::new(std::io::BufReader::new(File::open(path).expect("a photo")));
    let mut reader = decoder.read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut bytes).expect("a whole PNG");
    let channels = info.color_type.samples();
    let rgb = bytes.chunks_exact(channels).flat_map(|p| [p[0], p[1], p[2]]).collect();
    Photo { width: info.width as usize, height: info.height as usize, rgb }
}

/// User time of this process in seconds, in steps of 10 ms (field 14 of stat in proc(5)).
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_whitespace().nth(11).and_then(|n| n.parse::<f64>().ok());
    ticks.expect("a number") / 100.0
}

/// Saves pictures of one size side by side, `columns` in a row.
fn save_tiles(path: &str, tiles: &[Vec<u8>], columns: usize, w: usize, h: usize) {
    let rows = tiles.len().div_ceil(columns);
    let mut rgb = vec![0; columns * w * rows * h * 3];
    for (i, tile) in tiles.iter().enumerate() {
        for y in 0..h {
            let to = ((i / columns * h + y) * columns * w + i % columns * w) * 3;
            rgb[to..to + w * 3].copy_from_slice(&tile[y * w * 3..(y + 1) * w * 3]);
        }
    }
    let file = BufWriter::new(File::create(path).expect("a writable file"));
    let mut encoder = png::Encoder::new(file, (columns * w) as u32, (rows * h) as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().and_then(|mut w| w.write_image_data(&rgb)).expect("a written file");
}
