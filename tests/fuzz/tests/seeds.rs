//! Runs the seeds of the fuzz targets, which include every input that ever failed, and mutations of
//! them, with the stable compiler.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target, mutate};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// Number of mutations per target in `make test`.
const QUICK_MUTATIONS: usize = 300;

fn find_target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).expect("a target").1
}

/// The seed files of a target.
fn read_seeds(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let mut files: Vec<PathBuf> = folder
        .read_dir()
        .expect("a folder of seeds")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{} seeds in {}", files.len(), folder.display());
    files
        .into_iter()
        .map(|file| (file.clone(), std::fs::read(file).expect("a seed can be read")))
        .collect()
}

/// Runs a target on an input. An input that fails is saved, and the panic names its file.
fn assert_no_panic(name: &str, bytes: &[u8], origin: &str) {
    let run = find_target(name);
    if std::panic::catch_unwind(|| run(bytes)).is_err() {
        let saved = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        std::fs::write(&saved, bytes).expect("a failing input can be stored");
        panic!("{origin} fails, see above; its bytes are in {}", saved.display());
    }
}

/// Runs each seed, and a few mutations of them.
fn replay_seeds(name: &str) {
    let seeds = read_seeds(name);
    for (file, bytes) in &seeds {
        assert_no_panic(name, bytes, &file.display().to_string());
    }
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(|(_, bytes)| bytes).collect();
    let mut random = StdRng::seed_from_u64(19);
    for n in 0..QUICK_MUTATIONS {
        assert_no_panic(name, &mutate::mutate_seed(&mut random, &seeds), &format!("mutation {n}"));
    }
}

#[test]
fn seeds_of_demux_are_survived() {
    replay_seeds("demux");
}

#[test]
fn seeds_of_rtp_are_survived() {
    replay_seeds("rtp");
}

#[test]
fn seeds_of_sdp_are_survived() {
    replay_seeds("sdp");
}

#[test]
fn seeds_of_rtvi_are_survived() {
    replay_seeds("rtvi");
}

#[test]
fn seeds_of_trickle_are_survived() {
    replay_seeds("trickle");
}

#[test]
fn seeds_of_tcp_are_survived() {
    replay_seeds("tcp");
}

#[test]
fn seeds_of_picture_are_survived() {
    replay_seeds("picture");
}

#[test]
fn seeds_of_tflite_are_survived() {
    replay_seeds("tflite");
}

#[test]
fn seeds_of_audio_are_survived() {
    replay_seeds("audio");
}

#[test]
fn seeds_of_script_are_survived() {
    replay_seeds("script");
}

#[test]
fn every_target_has_seeds_and_a_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest =
        std::fs::read_to_string(folder.join("libfuzzer/Cargo.toml")).expect("a manifest");
    for (name, _) in TARGETS {
        assert!(!read_seeds(name).is_empty());
        let fuzzer = format!("fuzz_targets/{name}.rs");
        assert!(
            manifest.contains(&format!("path = \"{fuzzer}\"")),
            "{fuzzer} is not in the manifest"
        );
        let text =
            std::fs::read_to_string(folder.join("libfuzzer").join(&fuzzer)).expect("a fuzzer");
        assert!(text.contains(&format!("fuzz::{name}(bytes)")), "{fuzzer} does not run its target");
    }
}

/// A number from an environment variable.
fn env_number(name: &str, default: impl FnOnce() -> u64) -> u64 {
    std::env::var(name).ok().map_or_else(default, |text| text.parse().expect("a number"))
}

/// Runs mutations for `VISAVIS_FUZZ_MINUTES` (default: one minute). `VISAVIS_FUZZ_SEED` is the seed
/// (default: a random one).
#[allow(clippy::print_stdout, reason = "who looks into a failure needs it")]
fn fuzz_for_minutes(name: &str) {
    let minutes = env_number("VISAVIS_FUZZ_MINUTES", || 1);
    let seed = env_number("VISAVIS_FUZZ_SEED", rand::random);
    println!("{name}: VISAVIS_FUZZ_SEED={seed} VISAVIS_FUZZ_MINUTES={minutes}");
    let seeds: Vec<Vec<u8>> = read_seeds(name).into_iter().map(|(_, bytes)| bytes).collect();
    let mut random = StdRng::seed_from_u64(seed);
    let until = engine::clock::now() + std::time::Duration::from_secs(60 * minutes);
    let mut inputs = 0_u64;
    while engine::clock::now() < until {
        assert_no_panic(
            name,
            &mutate::mutate_seed(&mut random, &seeds),
            &format!("mutation {inputs} of seed {seed}"),
        );
        inputs += 1;
    }
    println!("{name}: {inputs} inputs");
    assert!(inputs > 0);
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_demux() {
    fuzz_for_minutes("demux");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_rtp() {
    fuzz_for_minutes("rtp");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_sdp() {
    fuzz_for_minutes("sdp");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_rtvi() {
    fuzz_for_minutes("rtvi");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_trickle() {
    fuzz_for_minutes("trickle");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_tcp() {
    fuzz_for_minutes("tcp");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_picture() {
    fuzz_for_minutes("picture");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_tflite() {
    fuzz_for_minutes("tflite");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_audio() {
    fuzz_for_minutes("audio");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_script() {
    fuzz_for_minutes("script");
}
