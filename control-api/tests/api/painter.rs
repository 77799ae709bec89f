//! What stands for `visavis bake` and `visavis draw` in these tests: it draws nobody, and does what a person's voice (or a character's seed)
//! tells it to.
#![allow(clippy::print_stdout, clippy::print_stderr)] // its output is its contract

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::Path;

use models::face::people;

const POSES: &[u8] = include_bytes!("../../../assets/avatars/mei.512.poses");
const PICTURE: &[u8] = include_bytes!("../../../assets/avatars/mei.512.webp");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments[0].as_str() {
        "draw" => draw(),
        "bake" => bake(&arguments[1..]),
        other => panic!("{other}"),
    }
}

fn bake(arguments: &[String]) {
    let after = |flag: &str| {
        let at = arguments.iter().position(|word| word == flag).unwrap_or_else(|| panic!("{flag}"));
        Path::new(&arguments[at + 1])
    };
    let (out, keep) = (after("--out"), after("--keep"));
    assert!(
        arguments.iter().any(|word| word == "--json") && arguments.iter().any(|word| word == "--background")
    );
    let file = Path::new(&arguments[0]);
    let id = file.file_stem().unwrap().to_str().unwrap();
    let person = people::parse(id, &std::fs::read_to_string(file).unwrap()).unwrap();
    let tell = |progress: f64| println!("{{\"progress\":{progress}}}");
    tell(0.1);
    let before = keep.join("half");
    match person.voice.as_str() {
        "crash" => std::process::abort(),
        "refuse" => {
            eprintln!("somebody: no space left");
            std::process::exit(1);
        }
        "nonsense" => std::fs::write(out, b"no poses").unwrap(),
        // Gets half way and no further, unless somebody got there before.
        "half" if !before.exists() => {
            std::fs::create_dir_all(keep).unwrap();
            std::fs::write(before, b"drawn").unwrap();
            tell(0.5);
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            return;
        }
        _ => std::fs::write(out, POSES).unwrap(),
    }
    std::fs::write(out.with_extension("webp"), PICTURE).unwrap();
    tell(1.0);
}

fn draw() {
    for line in std::io::stdin().lock().lines() {
        let order: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if order["character"]["seed"] == 13 {
            std::process::abort();
        }
        let picture = if order["character"]["seed"] == 404 { &[] } else { PICTURE };
        let mut out = std::io::stdout().lock();
        out.write_all(&(picture.len() as u32).to_le_bytes()).unwrap();
        out.write_all(picture).unwrap();
        out.flush().unwrap();
    }
}
