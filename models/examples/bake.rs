//! Draws and encodes the people that are shipped.
//!
//! ```text
//! bake NAME                                      assets/avatars/NAME.512.poses and .webp
//! bake look NAME SIZE OUT.png [param=value …]    one picture
//! bake sheet NAME SIZE OUT.png mouths|looks      all mouths, or all looks, close
//! bake show FILE OUT.png HEAD LOOK MOUTH         a pose of a set, as decoded
//! ```
#![allow(clippy::print_stderr)]

use std::fs::{self, File};
use std::io::BufWriter;
use std::time::Instant;

use character::{Head, Pose, Rect, Sitter};
use models::face::bake::{self, Baked, Plan};
use models::face::vp8::Decoder;
use models::face::{Key, PoseSet, people};

/// Pixels a side.
const SIZE: usize = 512;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["sheet", name, size, out, what] => sheet(name, size.parse().expect("a size"), out, what),
        ["show", file, out, head, look, mouth] => show(file, out, [head, look, mouth]),
        [name] => bake(name),
        ["look", name, size, out, ref changes @ ..] => {
            look(name, size.parse().expect("a size"), out, changes)
        }
        _ => eprintln!("see the head of this file"),
    }
}

fn look(name: &str, size: usize, out: &str, changes: &[&str]) {
    let person = people::find(name).expect("a person");
    let mut pose = person.rest;
    for change in changes {
        let (name, value) = change.split_once('=').expect("param=value");
        set(&mut pose, name, value.parse().expect("a number"));
    }
    let start = Instant::now();
    let sitter = Sitter::new(&person.character);
    let stage = sitter.stage(&pose, (size, size));
    let picture = stage.draw(&pose, Rect::whole(size, size)).finish();
    eprintln!("{name} in {:.1?}", start.elapsed());
    save(out, &picture.rgb(), size, size);
}

fn bake(name: &str) {
    let person = people::find(name).expect("a person");
    let start = Instant::now();
    let baked =
        bake::bake(&person, SIZE, &Plan::new(), |done| eprint!("\r{:3.0} %", done * 100.0)).expect("baked");
    let file = baked.set.to_file();
    eprintln!("\r{name}: {} frames in {:.0?}", baked.pictures.len(), start.elapsed());
    report(&baked);
    let stem = format!("{}/../assets/avatars/{name}.{SIZE}", env!("CARGO_MANIFEST_DIR"));
    fs::write(format!("{stem}.poses"), &file).expect("a written file");
    fs::write(format!("{stem}.webp"), &baked.display_picture).expect("a written file");
    eprintln!("{} bytes, display picture {} bytes", file.len(), baked.display_picture.len());
}

/// Bytes and PSNR by kind of frame, as decoded.
fn report(baked: &Baked) {
    let manifest = baked.set.manifest();
    let mut decoder = Decoder::new(SIZE, SIZE).expect("a decoder");
    decoder.decode(baked.set.key()).expect("the key");
    eprintln!("key: {} bytes", baked.set.key().len());
    type Kind = (&'static str, fn(&Key) -> bool);
    let kinds: [Kind; 4] = [
        ("mouths", |k| k.head == 0 && k.look == 0 && k.mouth != 0),
        ("looks", |k| k.head == 0 && k.look != 0 && k.mouth == 0),
        ("mouths with looks", |k| k.head == 0 && k.look != 0 && k.mouth != 0),
        ("heads", |k| k.head != 0),
    ];
    for (kind, is) in kinds {
        let (mut count, mut bytes, mut psnr, mut worst) = (0, 0, 0.0, f64::MAX);
        for (i, (key, _)) in manifest.frames.iter().enumerate().filter(|(_, (key, _))| is(key)) {
            let frame = baked.set.frame(baked.set.index(*key));
            let quality = decoder.decode(frame).expect("a pose").psnr(&baked.pictures[i]);
            count += 1;
            bytes += frame.len();
            psnr += quality;
            worst = worst.min(quality);
        }
        let n = f64::from(count);
        eprintln!("{kind}: {count} of {:.0} bytes, {:.1} dB, worst {worst:.1}", bytes as f64 / n, psnr / n);
    }
}

fn sheet(name: &str, size: usize, out: &str, what: &str) {
    let person = people::find(name).expect("a person");
    let plan = Plan::new();
    let sitter = Sitter::new(&person.character);
    let stage = sitter.stage(&person.rest, (size, size));
    let (rect, poses): (Rect, Vec<Pose>) = if what == "mouths" {
        (stage.mouth_rect(), plan.mouths.iter().map(|m| Pose { mouth: *m, ..person.rest }).collect())
    } else {
        (
            stage.eyes_rect(),
            plan.looks.iter().map(|l| bake::pose(&person.rest, Head::default(), *l)).collect(),
        )
    };
    let columns = if what == "mouths" { 7 } else { 3 };
    let (w, h) = (rect.x1 - rect.x0, rect.y1 - rect.y0);
    let rows = poses.len().div_ceil(columns);
    let mut rgb = vec![0; columns * w * rows * h * 3];
    for (i, pose) in poses.iter().enumerate() {
        let cell = stage.draw(pose, rect).finish().rgb();
        for y in 0..h {
            let to = ((i / columns * h + y) * columns * w + i % columns * w) * 3;
            rgb[to..to + w * 3].copy_from_slice(&cell[y * w * 3..(y + 1) * w * 3]);
        }
    }
    save(out, &rgb, columns * w, rows * h);
}

fn show(file: &str, out: &str, pose: [&str; 3]) {
    let set = PoseSet::parse(&fs::read(file).expect("a file").into()).expect("a pose set");
    let [head, look, mouth] = pose.map(|n| n.parse().expect("a number"));
    let (width, height) = (set.manifest().width as usize, set.manifest().height as usize);
    let mut decoder = Decoder::new(width, height).expect("a decoder");
    decoder.decode(set.key()).expect("the key");
    let picture = decoder.decode(set.frame(set.index(Key { head, look, mouth }))).expect("a pose");
    save(out, &picture.to_rgb(), width, height);
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
        _ => panic!("no parameter {name}"),
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
