//! Stands in for `visavis bake`, `visavis draw` and `visavis photo` in these tests. It draws nothing;
//! the seed of the character selects its behavior, or a word in the photo.
#![allow(clippy::print_stdout, clippy::print_stderr)] // the output is the interface of this program
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use models::face::background::Background;
use models::face::bake_request::{BakeRequest, BakeSubject};
use models::face::photo_upload::{Request, Task};
use serde_json::json;

/// Behavior of a bake, indexed by the character's seed, or by the blue of a background. Any other
/// value yields a pose set. Bakes without partial sets and without a background, which are variants
/// and renewals, behave as the file `again` beside the server's folders says.
const BEHAVIOURS: [&str; 8] =
    ["draw", "crash", "refuse", "nonsense", "half", "shares", "torn", "wait"];
const POSES: &[u8] = include_bytes!("../../../assets/avatars/mei.512.poses");
/// Stand in for partial pose sets: the sets of other avatars.
const PARTIAL_POSES: &[u8] = include_bytes!("../../../assets/avatars/leo.512.poses");
const LARGER_POSES: &[u8] = include_bytes!("../../../assets/avatars/nia.512.poses");
const PICTURE: &[u8] = include_bytes!("../../../assets/avatars/mei.512.webp");
/// Picture of an avatar in front of another background.
const BACKGROUND_PICTURE: &[u8] = include_bytes!("../../../assets/avatars/leo.512.webp");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments[0].as_str() {
        "draw" => draw(),
        "bake" => bake(&arguments[1..]),
        "photo" => check_photo(),
        other => panic!("{other}"),
    }
}

fn bake(arguments: &[String]) {
    let after = |flag: &str| {
        let at = arguments.iter().position(|word| word == flag).unwrap_or_else(|| panic!("{flag}"));
        Path::new(&arguments[at + 1])
    };
    let has = |flag: &str| arguments.iter().any(|word| word == flag);
    let (out, keep_folder) = (after("--out"), after("--keep"));
    assert!(arguments[0] == "-" && has("--json") && has("--background"));
    let line = std::io::stdin().lock().lines().next().unwrap().unwrap();
    let request: BakeRequest = serde_json::from_str(&line).unwrap();
    let is_progressive = has("--first");
    assert!(!is_progressive || request.background.is_none(), "a background has no partial sets");
    let test_folder = keep_folder.ancestors().nth(4).unwrap();
    if !is_progressive {
        record_request(&line, &test_folder.join("variants.jsonl"));
    }
    let seed = match request.subject {
        BakeSubject::Character(character) => {
            character.into_avatar().unwrap().character.seed as usize
        }
        // Its landmarks came from `check_photo`.
        BakeSubject::Photo(_) => {
            let request: serde_json::Value = serde_json::from_str(&line).unwrap();
            let source = &request["subject"]["photo"]["source"];
            assert_eq!(source["landmarks"], json!([[0.25, 0.5]]), "{request}");
            let file = STANDARD.decode(source["png"].as_str().unwrap()).unwrap();
            let waits = file.get(24..).is_some_and(|word| word.starts_with(b"drawn later"));
            if waits { 7 } else { 0 }
        }
    };
    let (number, poses, picture) = match &request.background {
        None if is_progressive => (seed, POSES, PICTURE),
        None => {
            let word = std::fs::read_to_string(test_folder.join("again")).unwrap_or_default();
            let number = BEHAVIOURS.iter().position(|known| *known == word);
            (number.unwrap_or_default(), LARGER_POSES, BACKGROUND_PICTURE)
        }
        Some(Background::Colour { colour }) => {
            (colour.0 as usize % 256, LARGER_POSES, BACKGROUND_PICTURE)
        }
        Some(_) => (0, PARTIAL_POSES, BACKGROUND_PICTURE),
    };
    let print_progress = |progress: f64| println!("{{\"progress\":{progress}}}");
    print_progress(0.1);
    let write_partial = |poses: &[u8], share: f64| {
        let first = after("--first");
        std::fs::write(first.with_extension("webp"), PICTURE).unwrap();
        // Written whole and renamed, as the real command does: the server may read the file while
        // the next one is written.
        std::fs::write(first.with_extension("new"), poses).unwrap();
        std::fs::rename(first.with_extension("new"), first).unwrap();
        println!("{{\"first\":{share}}}");
    };
    // Waits, at most 60 s, for a file of this name beside the server's folders.
    let wait_for_signal = |word: &str| {
        let file = test_folder.join(word);
        for _ in 0..3000 {
            if file.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{word} was not sent");
    };
    let half_marker = keep_folder.join("half");
    let behaviour = BEHAVIOURS.get(number).copied().unwrap_or_default();
    match behaviour {
        "crash" => std::process::abort(),
        "refuse" => {
            eprintln!("somebody: no space left");
            std::process::exit(1);
        }
        "nonsense" => {
            if is_progressive {
                write_partial(b"no poses", 0.2);
            }
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
            std::fs::write(out, poses).unwrap();
        }
        "wait" => {
            wait_for_signal("go");
            std::fs::write(out, poses).unwrap();
        }
        _ => std::fs::write(out, poses).unwrap(),
    }
    std::fs::write(out.with_extension("webp"), picture).unwrap();
    print_progress(1.0);
}

/// Appends a request to a file that the test reads.
fn record_request(line: &str, file: &Path) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Answers by the word in the picture, after the 24 bytes of its header.
fn check_photo() {
    let task: Task = serde_json::from_reader(std::io::stdin().lock()).unwrap();
    let (Task::Photo(Request { image, .. }) | Task::Background(image)) = &task;
    let file = STANDARD.decode(image).unwrap();
    let word = String::from_utf8_lossy(file.get(24..).unwrap_or_default()).into_owned();
    if let Some(file) = word.strip_prefix("wait:") {
        while !Path::new(file).exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let response = match word.as_str() {
        "crash" => std::process::abort(),
        "nonsense" => return println!("no response"),
        "nobody" => json!({"refused": {"error": "no face was found", "reason": "no face"}}),
        "no networks" => json!({"no_networks": "face.tflite is missing: run `make setup`"}),
        _ => match &task {
            Task::Photo(request) => accept_photo(request, &word),
            Task::Background(_) => {
                json!({"background": STANDARD.encode(format!("small {word:.20}"))})
            }
        },
    };
    println!("{response}");
}

fn accept_photo(request: &Request, word: &str) -> serde_json::Value {
    if request.landmarks.as_ref().is_some_and(|landmarks| landmarks["chin"] == 3) {
        return json!({"invalid_landmarks": {"path": "chin", "reason": "must be [x, y]"}});
    }
    let pictures: BTreeMap<_, _> =
        request.show.iter().map(|pose| (*pose, STANDARD.encode(PICTURE))).collect();
    let source = json!({
        "size": request.size, "png": request.image, "landmarks": [[0.25, 0.5]],
        "mask": (word != "no mask").then_some("AAAA"),
    });
    json!({"accepted": {
        "landmarks": [[0.25, 0.5]], "box": [0.1, 0.2, 0.3, 0.4], "warnings": ["soft"],
        "pictures": pictures, "source": request.keep_source.then_some(source),
    }})
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
