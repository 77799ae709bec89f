//! Draws pictures of a character while its file is being written, and says what they cost.
//!
//! ```text
//! draw FILE.toml OUT.png [size=512] [slider=value …]     one picture; sliders of the pose: jaw, width, round, press, tuck, tongue, smile,
//!                                                        lids, squint, gaze_x, gaze_y, raise, knit, yaw, pitch, roll
//! draw FILE.toml OUT.png mouths|looks [size=512]         all visemes or states of the eyes, close
//! ```
#![allow(clippy::print_stdout)] // its output is its purpose

use std::fs::{self, File};
use std::io::BufWriter;
use std::time::Instant;

use character::{Character, Mouth, Pose, Rect, Sitter};
use serde::Deserialize;

/// The tables of a person's file that matter here.
#[derive(Deserialize)]
struct Person {
    character: Character,
    #[serde(default)]
    rest: Pose,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, out, rest @ ..] = &arguments[..] else { panic!("see the head of this file") };
    let text = fs::read_to_string(file).expect("a readable file");
    let person: Person = toml::from_str(&text).expect("a person");
    let mut pose = person.rest;
    let (mut size, mut sheet) = (512, None);
    for word in rest {
        match word.split_once('=') {
            Some(("size", n)) => size = n.parse().expect("a size"),
            Some((name, value)) => set(&mut pose, name, value.parse().expect("a number")),
            None => sheet = Some(word.as_str()),
        }
    }
    let watch = Watch::new();
    let sitter = Sitter::new(&person.character).expect("sliders in range");
    let stage = sitter.stage(&pose, (size, size));
    let _ = stage.draw(&pose, Rect { x0: 0, y0: 0, x1: 8, y1: 8 });
    watch.say("hair and the light in it, once a head pose");
    match sheet {
        None => {
            let patch = stage.draw(&pose, Rect::whole(size, size));
            watch.say("whole picture");
            let _ = stage.draw(&pose, stage.mouth_rect());
            watch.say("mouth rectangle");
            let _ = stage.draw(&pose, stage.eyes_rect());
            watch.say("eyes rectangle");
            let picture = patch.finish();
            watch.say("finish");
            save(out, &picture.rgb(), size, size);
        }
        Some(what) => {
            let mouths = what == "mouths";
            let rect = if mouths { stage.mouth_rect() } else { stage.eyes_rect() };
            let poses = if mouths { visemes(&pose) } else { looks(&pose) };
            let columns = if mouths { 6 } else { 4 };
            let (w, h) = (rect.x1 - rect.x0, rect.y1 - rect.y0);
            let mut rgb = vec![0; columns * w * poses.len().div_ceil(columns) * h * 3];
            for (i, pose) in poses.iter().enumerate() {
                let cell = stage.draw(pose, rect).finish().rgb();
                for y in 0..h {
                    let to = ((i / columns * h + y) * columns * w + i % columns * w) * 3;
                    rgb[to..to + w * 3].copy_from_slice(&cell[y * w * 3..(y + 1) * w * 3]);
                }
            }
            watch.say(what);
            save(out, &rgb, columns * w, poses.len().div_ceil(columns) * h);
        }
    }
}

/// sil PP FF TH DD CH SS aa E ih oh ou.
fn visemes(rest: &Pose) -> Vec<Pose> {
    let m = |jaw, width, round, tongue| Mouth { jaw, width, round, tongue, ..Mouth::default() };
    [
        Mouth::default(),
        Mouth { press: 1.0, ..m(0.04, 0.0, 0.1, 0.0) },
        Mouth { tuck: 1.0, ..m(0.18, 0.1, 0.0, 0.0) },
        m(0.28, 0.1, 0.0, 1.0),
        m(0.26, 0.15, 0.0, 0.6),
        m(0.20, -0.2, 0.55, 0.2),
        m(0.13, 0.5, 0.0, 0.3),
        m(0.78, 0.1, 0.0, 0.0),
        m(0.50, 0.6, 0.0, 0.1),
        m(0.30, 0.7, 0.0, 0.1),
        m(0.68, -0.2, 0.6, 0.0),
        m(0.28, -0.3, 1.0, 0.0),
    ]
    .into_iter()
    .map(|mouth| Pose { mouth, ..*rest })
    .collect()
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

/// Seconds of the clock and of the processor between two calls.
struct Watch(std::cell::Cell<(Instant, f64)>);

impl Watch {
    fn new() -> Self {
        Self(std::cell::Cell::new((Instant::now(), Self::processor())))
    }

    fn say(&self, what: &str) {
        let (wall, cpu) = self.0.replace((Instant::now(), Self::processor()));
        println!("{what}: {:.2} core-s, {:.2} s", Self::processor() - cpu, wall.elapsed().as_secs_f64());
    }

    /// User time of this process in seconds, in steps of 10 ms (field 14 of proc(5)'s stat).
    fn processor() -> f64 {
        let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        behind_name.split_whitespace().nth(11).and_then(|n| n.parse::<f64>().ok()).expect("a number") / 100.0
    }
}

fn set(pose: &mut Pose, name: &str, value: f32) {
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

fn save(path: &str, rgb: &[u8], width: usize, height: usize) {
    let file = BufWriter::new(File::create(path).expect("a writable file"));
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().and_then(|mut w| w.write_image_data(rgb)).expect("a written file");
}
