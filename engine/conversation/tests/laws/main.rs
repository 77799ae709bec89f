//! The laws of turn-taking over random calls.
//!
//! A broken law prints its seed. `VISAVIS_LAWS_SEED=N` runs that call alone and writes its whole
//! run to `visavis-laws.txt` in the folder of temporary files. `VISAVIS_LAWS_INPUTS` sets the
//! number of inputs (default 1 000 000). The calls are the same in each run; the long tier draws
//! others.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod harness;
mod laws;
#[path = "../seed.rs"]
mod seed;

use harness::{LogEntry, Random};
use laws::{first_broken_law, run_random_call};

fn check(seed: u64) -> (usize, Option<String>) {
    let history = run_random_call(&Random::new(seed));
    let inputs = history.entries.iter().filter(|s| matches!(s, LogEntry::Input(..))).count();
    (inputs, first_broken_law(&history).map(|why| format!("seed {seed}: {why}")))
}

/// Number of threads. It is fixed, so that every machine runs the same calls.
const WORKERS: u64 = 4;

#[test]
fn the_laws_hold_over_random_histories() {
    if let Ok(seed) = std::env::var("VISAVIS_LAWS_SEED") {
        let seed = seed.parse().expect("VISAVIS_LAWS_SEED is a number");
        let history = run_random_call(&Random::new(seed));
        let text: Vec<String> = history.entries.iter().map(|s| format!("{s:?}")).collect();
        std::fs::write(std::env::temp_dir().join("visavis-laws.txt"), text.join("\n")).unwrap();
        assert_eq!(check(seed).1, None);
        return;
    }
    let min_inputs =
        std::env::var("VISAVIS_LAWS_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    laws_hold(0, min_inputs);
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_the_laws_hold_over_random_histories() {
    laws_hold(seed::random_seed(), 50_000_000);
}

/// Runs the calls of the seeds from `seed` on, until they have had `min_inputs` inputs.
fn laws_hold(seed: u64, min_inputs: usize) {
    let results: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn(move || {
                    let (mut inputs, mut broken, mut seed) = (0, Vec::new(), seed + worker);
                    while inputs < min_inputs.div_ceil(WORKERS as usize) && broken.len() < 5 {
                        let (n, why) = check(seed);
                        inputs += n;
                        broken.extend(why);
                        seed += WORKERS;
                    }
                    (inputs, broken)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("a history panicked")).collect()
    });
    let broken: Vec<&String> = results.iter().flat_map(|r| &r.1).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(results.iter().map(|r| r.0).sum::<usize>() >= min_inputs);
}
