//! The checks of the fuzz targets as ordinary tests: their seeds, which include all earlier
//! findings, and a bounded number of random bytes. See `engine/conversation/fuzz/README.md`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

#[path = "../laws/harness.rs"]
mod harness;
mod histories;
#[path = "../laws/laws.rs"]
mod laws;
mod scenario;
mod trace;

use std::path::{Path, PathBuf};

use conversation::id::ConversationId;
use conversation::settings::{Settings, SpokenMessage};
use conversation::simulate::simulate_traced;
use conversation::trace::header_line;
use harness::Random;

/// The seed files of a target.
fn seed_files(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let mut files: Vec<PathBuf> = folder
        .read_dir()
        .expect("a folder of seeds")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds in {}", folder.display());
    files
}

/// Runs `check` on each seed. A panic names the seed that fails.
fn run_seeds(target: &str, check: fn(&[u8])) {
    for file in seed_files(target) {
        let bytes = std::fs::read(&file).expect("a seed can be read");
        let survived = std::panic::catch_unwind(|| check(&bytes));
        assert!(survived.is_ok(), "{} fails, see above", file.display());
    }
}

#[test]
fn seeds_of_histories_keep_the_laws() {
    run_seeds("history", histories::keeps_the_laws);
}

#[test]
fn seeds_of_scenarios_are_played_or_refused() {
    run_seeds("scenario", scenario::played_or_refused);
}

#[test]
fn seeds_of_traces_are_replayed_or_refused() {
    run_seeds("trace", trace::replayed_or_refused);
}

#[test]
fn histories_of_random_bytes_keep_the_laws() {
    let mut random = Random::new(20);
    for _ in 0..300 {
        let length = random.below(1500);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        histories::keeps_the_laws(&bytes);
    }
}

/// The shipped scenarios.
fn read_scenarios() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<PathBuf> = folder
        .read_dir()
        .expect("scenarios")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|path| std::fs::read(path).expect("a scenario can be read")).collect()
}

const TOKENS: [&str; 16] = [
    "null",
    "true",
    "-1",
    "1e7",
    "1e-7",
    "\"\"",
    "[]",
    "{}",
    "0",
    "0.1",
    "3",
    "\"*\"",
    "99999999999999999999",
    "\"tool:slow\"",
    ",",
    "\u{fffd}",
];

/// Changes, removes or inserts some bytes, and replaces some values.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes.truncate(at.max(1)),
            2 => {
                let end = (at + random.below(40) as usize).min(bytes.len());
                bytes.drain(at..end);
                bytes.push(b'}');
            }
            _ => {
                // Replace a whole value by another.
                let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b'\n');
                let from = bytes[..at]
                    .iter()
                    .rposition(|b| matches!(b, b':' | b'['))
                    .map_or(at, |n| n + 1);
                let to = bytes[from..].iter().position(ends).map_or(bytes.len(), |n| from + n);
                bytes.splice(from..to, random.pick(&TOKENS).bytes());
            }
        }
    }
}

/// Nearly valid files: a shipped scenario with a few bytes changed, removed or inserted.
#[test]
fn damaged_scenarios_are_played_or_refused() {
    let (files, mut random) = (read_scenarios(), Random::new(21));
    for _ in 0..6000 {
        let mut bytes = random.pick(&files);
        damage(&mut bytes, &mut random);
        scenario::played_or_refused(&bytes);
    }
}

/// The same for traces: those that the scenarios would have written as calls.
#[test]
fn damaged_traces_are_replayed_or_refused() {
    let traced =
        |json: &Vec<u8>| simulate_traced(json).expect("a scenario is traced").1.into_bytes();
    let (files, mut random) =
        (read_scenarios().iter().map(traced).collect::<Vec<_>>(), Random::new(22));
    for _ in 0..3000 {
        let mut bytes = random.pick(&files);
        damage(&mut bytes, &mut random);
        trace::replayed_or_refused(&bytes);
    }
}

/// A header that asks for 1 MB of speech at each idle timeout, over 104 days. The file has no
/// outputs for it, so the replay must not generate them.
#[test]
fn a_trace_makes_no_more_than_it_holds() {
    let settings = Settings {
        idle_timeout: Some(0.001),
        idle_messages: vec![SpokenMessage::new("word ".repeat(200_000))],
        idle_end_after: None,
        max_call_duration: None,
        ..Settings::product_defaults()
    };
    let header = header_line(ConversationId(0), 0, &settings.to_spec().expect("legal settings"));
    let text = format!(
        "{header}{{\"at\":0,\"input\":\"Begin\"}}\n{{\"at\":9000000000000,\"input\":\"Tick\"}}\n"
    );
    let (printed, verdict) = trace::replay(text.as_bytes(), false).expect("a trace");
    assert!(
        verdict
            .to_string()
            .starts_with("line 3 (9000000.000 s) differs: output 1 is absent in the live call"),
        "{verdict}"
    );
    assert!(printed.len() < 10_000, "{printed:.2000}");
}
