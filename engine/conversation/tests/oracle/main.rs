//! Compares the state machine with a naive oracle over random calls.
//!
//! A call is plain data ([`oracle::case`]): settings, what the user does and when, what providers
//! answer. The state machine plays it as a scenario. The oracle takes the whole list and derives
//! from the rules which lines must be printed when, with which text and in which order. At each
//! time it examines everything that has happened so far. It shares no code or type with the crate.
//!
//! A difference prints the smallest call that shows it, as a scenario file. `VISAVIS_ORACLE_SEED=N`
//! runs one call alone. `VISAVIS_LAWS_INPUTS` sets the number of inputs (default 300 000). The
//! calls are the same in each run; the long tier draws others.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

#[path = "oracle.rs"]
mod oracle;
#[path = "../seed.rs"]
mod seed;

use std::collections::BTreeSet;

use oracle::random_case::{self, Random};

/// Lines that must occur in some call; without them the calls are too simple to prove anything.
const REQUIRED_LINES: [&str; 40] = [
    "user.started_speaking",
    "user.stopped_speaking",
    "utterance_committed",
    "agent.started_speaking",
    "agent.stopped_speaking",
    "agent.interrupted",
    "tool_call",
    "max_call_duration_warning",
    "max_call_duration_timeout",
    "participant_left",
    "call_ended",
    "user.idle",
    "state\":\"listening",
    "state\":\"thinking",
    "state\":\"speaking",
    "role\":\"user",
    "role\":\"assistant",
    "role\":\"tool",
    "role\":\"system",
    "interrupted\":true",
    "playout.started",
    "playout.ducked",
    "playout.unducked",
    "playout.held",
    "playout.resumed",
    "playout.finished",
    "llm.started",
    "llm.cancelled",
    "tts.started",
    "stage\":\"llm\",\"reason\":\"scripted",
    "stage\":\"llm\",\"reason\":\"timeout",
    "stage\":\"tts\",\"reason\":\"scripted",
    "stage\":\"tts\",\"reason\":\"timeout",
    "stage\":\"tool\",\"reason\":\"out of order",
    "stage\":\"tool\",\"reason\":\"timeout",
    "stage\":\"tool\",\"reason\":\"unknown tool",
    "ended\",\"reason\":\"user_left",
    "ended\",\"reason\":\"ended_by_api",
    "ended\",\"reason\":\"max_call_duration",
    "ended\",\"reason\":\"idle",
];

#[derive(Default)]
struct Tally {
    inputs: usize,
    calls: usize,
    wrong: Vec<String>,
    seen: BTreeSet<&'static str>,
}

impl Tally {
    fn play(&mut self, seed: u64) {
        let outcome = oracle::compare(&random_case::random_case(Random::new(seed)));
        self.inputs += outcome.inputs;
        self.calls += 1;
        self.wrong.extend(outcome.report.map(|report| format!("seed {seed}\n{report}")));
        for kind in REQUIRED_LINES {
            if !self.seen.contains(kind) && outcome.lines.iter().any(|line| line.contains(kind)) {
                self.seen.insert(kind);
            }
        }
    }
}

/// Number of threads. It is fixed, so that every machine runs the same calls.
const WORKERS: usize = 4;

#[test]
fn the_machine_does_what_the_oracle_says() {
    if let Ok(seed) = std::env::var("VISAVIS_ORACLE_SEED") {
        let mut tally = Tally::default();
        tally.play(seed.parse().expect("VISAVIS_ORACLE_SEED is a number"));
        assert!(tally.wrong.is_empty(), "{}", tally.wrong[0]);
        return;
    }
    let wanted =
        std::env::var("VISAVIS_LAWS_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(300_000);
    machine_does_what_the_oracle_says(0, wanted);
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_the_machine_does_what_the_oracle_says() {
    machine_does_what_the_oracle_says(seed::random_seed(), 20_000_000);
}

/// Runs the calls of the seeds from `seed` on, until they have had `min_inputs` inputs.
fn machine_does_what_the_oracle_says(seed: u64, min_inputs: usize) {
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let work = |worker: usize| {
            let mut tally = Tally::default();
            let mut seed = seed + worker as u64;
            while tally.inputs < min_inputs.div_ceil(WORKERS) && tally.wrong.len() < 3 {
                tally.play(seed);
                seed += WORKERS as u64;
            }
            tally
        };
        let workers: Vec<_> = (0..WORKERS).map(|first| scope.spawn(move || work(first))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a call panicked")).collect()
    });
    let calls: usize = tallies.iter().map(|tally| tally.calls).sum();
    if let Some(report) = tallies.iter().find_map(|tally| tally.wrong.first()) {
        panic!("one of {calls} calls differs\n{report}");
    }
    let unseen: Vec<&&str> = REQUIRED_LINES
        .iter()
        .filter(|kind| tallies.iter().all(|tally| !tally.seen.contains(*kind)))
        .collect();
    assert!(min_inputs < 100_000 || unseen.is_empty(), "{calls} calls without {unseen:?}");
    assert!(tallies.iter().map(|tally| tally.inputs).sum::<usize>() >= min_inputs);
}

/// The expected output of the shipped scenarios agrees with the oracle, not only with the state
/// machine that wrote it.
#[test]
fn the_oracle_agrees_with_every_shipped_scenario() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut wrong = Vec::new();
    for file in files {
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        // The oracle follows the turn-taking page, which does not mention stop words or conversations
        // of several people. The expected outputs of these files define their effect.
        if json["settings"]["stop_words"] == true || !json["meeting"].is_null() {
            continue;
        }
        let oracle = oracle::expected_lines(&oracle::parse_case::parse_case(&json));
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
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/call");
    for entry in folder.read_dir().unwrap() {
        oracle::assert_agrees(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}
