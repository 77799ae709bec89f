//! The machine against a naive oracle over random calls.
//!
//! A call is plain data ([`case`]): settings, what the user does and when, what providers answer. The machine plays it as a scenario;
//! the oracle takes the whole list and works out from the rules, by looking through everything that ever happened at each instant,
//! which lines must come when, with which text and in which order. It shares no code or type with the crate.
//!
//! A difference prints the smallest call that shows it, as a scenario file. `VISAVIS_ORACLE_SEED=N` runs one call alone,
//! `VISAVIS_LAWS_INPUTS` sets how many inputs are drawn (default 1 000 000; more at night).

#[path = "oracle.rs"]
mod oracle;

use oracle::draw::{self, Random};

fn check(seed: u64) -> (usize, Option<String>) {
    let (inputs, report) = oracle::compare(&draw::case(Random::new(seed)));
    (inputs, report.map(|report| format!("seed {seed}\n{report}")))
}

#[test]
fn the_machine_does_what_the_oracle_says() {
    if let Ok(seed) = std::env::var("VISAVIS_ORACLE_SEED") {
        let seed = seed.parse().expect("VISAVIS_ORACLE_SEED is a number");
        if let Some(report) = check(seed).1 {
            panic!("{report}");
        }
        return;
    }
    let wanted: usize =
        std::env::var("VISAVIS_LAWS_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let results: Vec<(usize, usize, Vec<String>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn(move || {
                    let (mut inputs, mut calls, mut wrong, mut seed) = (0, 0, Vec::new(), first);
                    while inputs < wanted / threads as usize && wrong.len() < 3 {
                        let (n, report) = check(seed);
                        inputs += n;
                        calls += 1;
                        wrong.extend(report);
                        seed += threads;
                    }
                    (inputs, calls, wrong)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("a call panicked")).collect()
    });
    let wrong: Vec<&String> = results.iter().flat_map(|r| &r.2).collect();
    let calls: usize = results.iter().map(|r| r.1).sum();
    assert!(wrong.is_empty(), "{} of {calls} calls differ\n{}", wrong.len(), wrong[0]);
    assert!(results.iter().map(|r| r.0).sum::<usize>() >= wanted);
}

/// What the shipped scenarios print is what the oracle says, not only what the machine once did.
#[test]
fn the_oracle_agrees_with_every_shipped_scenario() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut wrong = Vec::new();
    for file in files {
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let oracle = oracle::expected(&oracle::read::case(&json));
        let shipped = std::fs::read_to_string(file.with_extension("out")).unwrap();
        let shipped: Vec<&str> = shipped.lines().collect();
        if oracle != shipped {
            let at = oracle
                .iter()
                .zip(&shipped)
                .position(|(a, b)| a != b)
                .unwrap_or(oracle.len().min(shipped.len()));
            wrong.push(format!(
                "{}:{}\n  shipped {}\n  oracle  {}",
                file.file_name().unwrap().display(),
                at + 1,
                shipped.get(at).unwrap_or(&"nothing"),
                oracle.get(at).map_or("nothing", String::as_str),
            ));
        }
    }
    assert!(wrong.is_empty(), "{} scenarios\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn seeds_of_calls_go_as_the_oracle_says() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/call");
    for entry in folder.read_dir().unwrap() {
        oracle::agrees(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}
