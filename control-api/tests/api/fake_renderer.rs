//! Stands in for `visavis bake` and `visavis draw` in these tests. It draws nothing; the seed of
//! the character selects its behavior.
#![allow(clippy::print_stdout, clippy::print_stderr)] // the output is the interface of this program
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::Path;

use models::face::avatar_spec;

/// Behavior of a bake, indexed by the character's seed. Any other seed yields a pose set.
const BEHAVIOURS: [&str; 7] = ["draw", "crash", "refuse", "nonsense", "half", "shares", "torn"];
const POSES: &[u8] = include_bytes!("../../../assets/avatars/mei.512.poses");
/// Stand in for partial pose sets: the sets of other avatars.
const PARTIAL_POSES: &[u8] = include_bytes!("../../../assets/avatars/leo.512.poses");
const LARGER_POSES: &[u8] = include_bytes!("../../../assets/avatars/nia.512.poses");
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
    let (out, keep_folder, first) = (after("--out"), after("--keep"), after("--first"));
    assert!(
        arguments.iter().any(|word| word == "--json")
            && arguments.iter().any(|word| word == "--background")
    );
    let file = Path::new(&arguments[0]);
    let id = file.file_stem().unwrap().to_str().unwrap();
    let person = avatar_spec::parse(id, &std::fs::read_to_string(file).unwrap()).unwrap();
    let print_progress = |progress: f64| println!("{{\"progress\":{progress}}}");
    print_progress(0.1);
    let write_partial = |poses: &[u8], share: f64| {
        std::fs::write(first.with_extension("webp"), PICTURE).unwrap();
        // Written whole and renamed, as the real command does: the server may read the file while
        // the next one is written.
        std::fs::write(first.with_extension("new"), poses).unwrap();
        std::fs::rename(first.with_extension("new"), first).unwrap();
        println!("{{\"first\":{share}}}");
    };
    // Waits, at most 60 s, for a file of this name beside the server's folders.
    let wait_for_signal = |word: &str| {
        let file = keep_folder.ancestors().nth(4).unwrap().join(word);
        for _ in 0..3000 {
            if file.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{word} was not sent");
    };
    let half_marker = keep_folder.join("half");
    let behaviour = BEHAVIOURS.get(person.character.seed as usize).copied().unwrap_or_default();
    match behaviour {
        "crash" => std::process::abort(),
        "refuse" => {
            eprintln!("somebody: no space left");
            std::process::exit(1);
        }
        "nonsense" => {
            write_partial(b"no poses", 0.2);
            std::fs::write(out, b"no poses").unwrap();
        }
        // Stops half way, unless an earlier run of this bake already did.
        "half" if !half_marker.exists() => {
            std::fs::create_dir_all(keep_folder).unwrap();
            std::fs::write(half_marker, b"drawn").unwrap();
            print_progress(0.5);
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            return;
        }
        "shares" | "torn" => {
            write_partial(PARTIAL_POSES, 0.2);
            wait_for_signal("more");
            write_partial(LARGER_POSES, 0.5);
            wait_for_signal("all");
            if behaviour == "torn" {
                std::process::abort();
            }
            std::fs::write(out, POSES).unwrap();
        }
        _ => std::fs::write(out, POSES).unwrap(),
    }
    std::fs::write(out.with_extension("webp"), PICTURE).unwrap();
    print_progress(1.0);
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
