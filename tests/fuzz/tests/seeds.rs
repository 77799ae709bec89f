//! Runs the seeds of the fuzz targets, which include every input that ever failed, and mutations of
//! them, with the stable compiler.

use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target, mutate};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// Number of mutations per target in `make test`.
const FEW: usize = 300;

fn target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).expect("a target").1
}

/// The seed files of a target.
fn seeds(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let mut files: Vec<PathBuf> =
        folder.read_dir().expect("a folder of seeds").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{} seeds in {}", files.len(), folder.display());
    files.into_iter().map(|file| (file.clone(), std::fs::read(file).expect("a seed can be read"))).collect()
}

/// Runs a target on an input. An input that fails is saved, and the panic names its file.
fn survives(name: &str, bytes: &[u8], place: &str) {
    let run = target(name);
    if std::panic::catch_unwind(|| run(bytes)).is_err() {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        std::fs::write(&kept, bytes).expect("what failed can be kept");
        panic!("{place} fails, see above; its bytes are in {}", kept.display());
    }
}

/// Runs each seed, and a few mutations of them.
fn replay(name: &str) {
    let seeds = seeds(name);
    for (file, bytes) in &seeds {
        survives(name, bytes, &file.display().to_string());
    }
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(|(_, bytes)| bytes).collect();
    let mut random = StdRng::seed_from_u64(19);
    for n in 0..FEW {
        survives(name, &mutate::mutated(&mut random, &seeds), &format!("mutation {n}"));
    }
}

#[test]
fn seeds_of_demux_are_survived() {
    replay("demux");
}

#[test]
fn seeds_of_rtp_are_survived() {
    replay("rtp");
}

#[test]
fn seeds_of_sdp_are_survived() {
    replay("sdp");
}

#[test]
fn seeds_of_rtvi_are_survived() {
    replay("rtvi");
}

#[test]
fn seeds_of_trickle_are_survived() {
    replay("trickle");
}

#[test]
fn seeds_of_tcp_are_survived() {
    replay("tcp");
}

#[test]
fn every_target_has_seeds_and_a_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(folder.join("libfuzzer/Cargo.toml")).expect("a manifest");
    for (name, _) in TARGETS {
        assert!(!seeds(name).is_empty());
        let fuzzer = format!("fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("path = \"{fuzzer}\"")), "{fuzzer} is not in the manifest");
        let text = std::fs::read_to_string(folder.join("libfuzzer").join(&fuzzer)).expect("a fuzzer");
        assert!(text.contains(&format!("fuzz::{name}(bytes)")), "{fuzzer} does not run its target");
    }
}

/// A number from an environment variable.
fn setting(name: &str, default: impl FnOnce() -> u64) -> u64 {
    std::env::var(name).ok().map_or_else(default, |text| text.parse().expect("a number"))
}

/// Runs mutations for `VISAVIS_FUZZ_MINUTES` (default: one minute). `VISAVIS_FUZZ_SEED` is the seed
/// (default: a random one).
#[allow(clippy::print_stdout, reason = "who looks into a failure needs it")]
fn long(name: &str) {
    let minutes = setting("VISAVIS_FUZZ_MINUTES", || 1);
    let seed = setting("VISAVIS_FUZZ_SEED", rand::random);
    println!("{name}: VISAVIS_FUZZ_SEED={seed} VISAVIS_FUZZ_MINUTES={minutes}");
    let seeds: Vec<Vec<u8>> = seeds(name).into_iter().map(|(_, bytes)| bytes).collect();
    let mut random = StdRng::seed_from_u64(seed);
    let until = engine::clock::now() + std::time::Duration::from_secs(60 * minutes);
    let mut inputs = 0_u64;
    while engine::clock::now() < until {
        survives(name, &mutate::mutated(&mut random, &seeds), &format!("mutation {inputs} of seed {seed}"));
        inputs += 1;
    }
    println!("{name}: {inputs} inputs");
    assert!(inputs > 0);
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_demux() {
    long("demux");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_rtp() {
    long("rtp");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_sdp() {
    long("sdp");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_rtvi() {
    long("rtvi");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_trickle() {
    long("trickle");
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_tcp() {
    long("tcp");
}
