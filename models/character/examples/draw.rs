//! Draws pictures of a character while its file is being written, and prints their cost.
//!
//! ```text
//! draw FILE.toml OUT.png [size=512] [slider=value …]     one picture; size=720x1280 for a
//!                                                        shape, framing=bust for the shoulders;
//!                                                        sliders of the pose: jaw,
//!                                                        width, round, press, tuck, tongue, smile,
//!                                                        lids, squint, gaze_x, gaze_y, raise,
//!                                                        knit, yaw, pitch, roll
//! draw FILE.toml OUT.png mouths|looks [size=512]         all visemes or states of the eyes, in
//!                                                        close-up
//! draw FILE.toml OUT.png FF,TH,aa [size=512]             these visemes, in close-up
//! draw FILE.toml OUT.png extremes [size=256] [from=0]    this character with each slider at its
//!                                                        minimum and maximum, 4 pairs in a row;
//!                                                        24 sliders, starting with this one
//! ```
#![allow(clippy::print_stdout)] // its output is its purpose
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the program")]

use std::fs::{self, File};
use std::io::BufWriter;
use std::time::Instant;

use character::{Character, CharacterRenderer, Framing, Mouth, Pose, Rect, SLIDERS, render};
use serde::Deserialize;

/// The tables of an avatar's file that are used here.
#[derive(Deserialize)]
struct Person {
    character: Character,
    #[serde(default)]
    rest: Pose,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, out, rest @ ..] = &arguments[..] else {
        panic!("usage: see the comment at the top of this file")
    };
    let text = fs::read_to_string(file).expect("a readable file");
    let person: Person = toml::from_str(&text).expect("a character file");
    let mut pose = person.rest;
    let (mut size, mut first, mut sheet) = ((512, 512), 0, None);
    let mut framing = Framing::default();
    for word in rest {
        match word.split_once('=') {
            Some(("size", n)) => {
                let (width, height) = n.split_once('x').unwrap_or((n, n));
                size = (width.parse().expect("a width"), height.parse().expect("a height"));
            }
            Some(("framing", name)) => framing = Framing::from_name(name).expect("a framing"),
            Some(("from", n)) => first = n.parse().expect("a slider's number"),
            Some((name, value)) => set_slider(&mut pose, name, value.parse().expect("a number")),
            None => sheet = Some(word.as_str()),
        }
    }
    let stopwatch = Stopwatch::new();
    if sheet == Some("extremes") {
        let (tiles, columns) = (extremes(&person.character, &pose, first, size), 8);
        save_tiles(out, &tiles, columns, size.0, size.1);
        return stopwatch.print_lap("extremes");
    }
    let renderer = CharacterRenderer::new(&person.character).expect("sliders in range");
    let renderer = renderer.with_framing(framing);
    let view = renderer.head_view(&pose, size);
    let _ = view.draw(&pose, Rect { x0: 0, y0: 0, x1: 8, y1: 8 });
    stopwatch.print_lap("hair and the light in it, once a head pose");
    match sheet {
        None => {
            let patch = view.draw(&pose, Rect::whole(size.0, size.1));
            stopwatch.print_lap("whole picture");
            let _ = view.draw(&pose, view.mouth_rect());
            stopwatch.print_lap("mouth rectangle");
            let _ = view.draw(&pose, view.eyes_rect());
            stopwatch.print_lap("eyes rectangle");
            let picture = patch.to_picture();
            stopwatch.print_lap("finish");
            save(out, &picture.rgb(), size.0, size.1);
        }
        Some(what) => {
            let eyes = what == "looks";
            let rect = if eyes { view.eyes_rect() } else { view.mouth_rect() };
            let poses = if eyes { looks(&pose) } else { visemes(&pose, what) };
            let tiles: Vec<_> =
                poses.iter().map(|pose| view.draw(pose, rect).to_picture().rgb()).collect();
            stopwatch.print_lap(what);
            save_tiles(out, &tiles, if eyes { 4 } else { 5 }, rect.x1 - rect.x0, rect.y1 - rect.y0);
        }
    }
}

/// Number of sliders on a sheet.
const SLIDERS_PER_SHEET: usize = 24;

/// Each slider at its minimum and its maximum. The names are printed in drawing order.
fn extremes(
    character: &Character,
    pose: &Pose,
    first: usize,
    size: (usize, usize),
) -> Vec<Vec<u8>> {
    let mut tiles = Vec::new();
    for slider in SLIDERS.iter().skip(first).take(SLIDERS_PER_SHEET) {
        println!("{} {} … {}", slider.name, slider.min, slider.max);
        for value in [slider.min, slider.max] {
            let mut character_variant = character.clone();
            *(slider.field)(&mut character_variant) = value;
            tiles.push(
                render(&character_variant, pose, size, None).expect("sliders in range").rgb(),
            );
        }
    }
    tiles
}

/// The mouths of the named visemes, separated by commas, or of all visemes.
fn visemes(rest: &Pose, names: &str) -> Vec<Pose> {
    let m = |jaw, width, round, tongue| Mouth { jaw, width, round, tongue, ..Mouth::default() };
    let all = [
        ("sil", Mouth::default()),
        ("PP", Mouth { press: 1.0, ..m(0.04, 0.0, 0.1, 0.0) }),
        ("FF", Mouth { tuck: 1.0, ..m(0.18, 0.1, 0.0, 0.0) }),
        ("TH", m(0.28, 0.1, 0.0, 1.0)),
        ("DD", m(0.26, 0.15, 0.0, 0.6)),
        ("kk", m(0.32, 0.15, 0.0, 0.0)),
        ("CH", m(0.20, -0.2, 0.55, 0.2)),
        ("SS", m(0.13, 0.5, 0.0, 0.3)),
        ("nn", m(0.24, 0.1, 0.0, 0.6)),
        ("RR", m(0.24, -0.2, 0.45, 0.25)),
        ("aa", m(0.78, 0.1, 0.0, 0.0)),
        ("E", m(0.50, 0.6, 0.0, 0.1)),
        ("ih", m(0.30, 0.7, 0.0, 0.1)),
        ("oh", m(0.68, -0.2, 0.6, 0.0)),
        ("ou", m(0.28, -0.3, 1.0, 0.0)),
    ];
    let named = |name: &str| names == "mouths" || names.split(',').any(|wanted| wanted == name);
    let chosen = all.into_iter().filter(|(name, _)| named(name));
    chosen.map(|(_, mouth)| Pose { mouth, ..*rest }).collect()
}

fn looks(rest: &Pose) -> Vec<Pose> {
    let change = |lids: f32, x: f32, y: f32, raise: f32, knit: f32| {
        let mut pose = *rest;
        pose.eyes.lids += lids;
        pose.eyes.gaze_x += x;
        pose.eyes.gaze_y += y;
        pose.brows.raise += raise;
        pose.brows.knit += knit;
        pose
    };
    vec![
        change(0.0, 0.0, 0.0, 0.0, 0.0),
        change(0.25, 0.0, 0.0, 0.0, 0.0),
        change(0.55, 0.0, 0.0, 0.0, 0.0),
        change(1.0, 0.0, 0.0, 0.0, 0.0),
        change(0.0, -0.4, -0.05, 0.0, 0.0),
        change(0.0, 0.55, 0.5, 0.4, 0.0),
        change(0.0, 0.0, 0.0, 0.5, 0.0),
        change(0.0, 0.0, 0.0, -0.6, -0.8),
    ]
}

/// Measures wall-clock and CPU seconds between two calls.
struct Stopwatch(std::cell::Cell<(Instant, f64)>);

impl Stopwatch {
    fn new() -> Self {
        Self(std::cell::Cell::new((Instant::now(), Self::cpu_seconds())))
    }

    fn print_lap(&self, what: &str) {
        let (wall, cpu) = self.0.replace((Instant::now(), Self::cpu_seconds()));
        println!(
            "{what}: {:.2} core-s, {:.2} s",
            Self::cpu_seconds() - cpu,
            wall.elapsed().as_secs_f64()
        );
    }

    /// User time of this process in seconds, in steps of 10 ms (field 14 of stat in proc(5)).
    fn cpu_seconds() -> f64 {
        let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        behind_name
            .split_whitespace()
            .nth(11)
            .and_then(|n| n.parse::<f64>().ok())
            .expect("a number")
            / 100.0
    }
}

fn set_slider(pose: &mut Pose, name: &str, value: f32) {
    let field = match name {
        "jaw" => &mut pose.mouth.jaw,
        "width" => &mut pose.mouth.width,
        "round" => &mut pose.mouth.round,
        "press" => &mut pose.mouth.press,
        "tuck" => &mut pose.mouth.tuck,
        "tongue" => &mut pose.mouth.tongue,
        "smile" => &mut pose.smile,
        "lids" => &mut pose.eyes.lids,
        "squint" => &mut pose.eyes.squint,
        "gaze_x" => &mut pose.eyes.gaze_x,
        "gaze_y" => &mut pose.eyes.gaze_y,
        "raise" => &mut pose.brows.raise,
        "knit" => &mut pose.brows.knit,
        "yaw" => &mut pose.head.yaw,
        "pitch" => &mut pose.head.pitch,
        "roll" => &mut pose.head.roll,
        _ => panic!("no slider {name}"),
    };
    *field = value;
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
    save(path, &rgb, columns * w, rows * h);
}

fn save(path: &str, rgb: &[u8], width: usize, height: usize) {
    let file = BufWriter::new(File::create(path).expect("a writable file"));
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().and_then(|mut w| w.write_image_data(rgb)).expect("a written file");
}
