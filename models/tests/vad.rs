//! The native network compared with the probabilities of ONNX Runtime for the same samples
//! (`vad/expected.py`), and with itself.
#![allow(clippy::print_stdout)] // measurements, for --nocapture
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use models::vad::{Error, Isa, Network, NetworkState, Scratch, WINDOW};

/// The common test signal as the network's input.
fn test_samples() -> Vec<f32> {
    common::sound::test_signal().into_iter().map(|sample| f32::from(sample) / 32_768.0).collect()
}

fn network_file() -> Vec<u8> {
    let path = models::paths::vad(&common::models_dir());
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}: run `make setup`", path.display()))
}

fn expected() -> Vec<f32> {
    include_str!("vad/expected.csv").lines().skip(1).map(|line| line.parse().unwrap()).collect()
}

/// The probabilities of one stream alone.
fn probabilities_alone(network: &Network, sound: &[f32]) -> Vec<f32> {
    let (mut scratch, mut state) = (Scratch::new(network), NetworkState::default());
    let mut probability = [0.0];
    let windows = sound.as_chunks::<WINDOW>().0.iter();
    windows
        .map(|window| {
            network.run(&mut scratch, &mut [&mut state], &[window], &mut probability);
            probability[0]
        })
        .collect()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn every_instruction_set_equals_onnx_runtime() {
    let (file, sound, expected) = (network_file(), test_samples(), expected());
    assert!(
        expected.iter().any(|p| *p > 0.99) && expected.iter().any(|p| *p < 0.01),
        "the sound has speech and none"
    );
    for isa in Isa::available() {
        let network = Network::from_bytes(&file, isa).unwrap();
        assert_eq!(network.isa(), isa);
        let difference = largest_difference(&probabilities_alone(&network, &sound), &expected);
        assert!(difference < 2e-5, "{isa:?} differs by {difference:e}");
    }
}

#[test]
fn a_stream_in_a_batch_of_any_size_gives_what_it_gives_alone() {
    let (file, sound) = (network_file(), test_samples());
    for isa in Isa::available() {
        let network = Network::from_bytes(&file, isa).unwrap();
        let mut scratch = Scratch::new(&network);
        let all = sound.as_chunks::<WINDOW>().0;
        for batch in [2, 3, 5, 8, 16, 17, 40] {
            // Stream i starts i windows into the signal.
            let mut states = vec![NetworkState::default(); batch];
            let mut results = vec![Vec::new(); batch];
            for step in 0..60 {
                let windows: Vec<_> = (0..batch).map(|i| &all[30 + i + step]).collect();
                let mut probabilities = vec![0.0; batch];
                network.run(
                    &mut scratch,
                    &mut states.iter_mut().collect::<Vec<_>>(),
                    &windows,
                    &mut probabilities,
                );
                for (results, p) in results.iter_mut().zip(probabilities) {
                    results.push(p);
                }
            }
            for (i, results) in results.iter().enumerate() {
                let difference = largest_difference(
                    results,
                    &probabilities_alone(&network, &sound[(30 + i) * WINDOW..][..60 * WINDOW]),
                );
                assert!(
                    difference < 5e-6,
                    "{isa:?}, stream {i} of {batch} differs by {difference:e}"
                );
            }
        }
    }
}

#[test]
fn an_empty_batch_is_no_work() {
    let network = Network::from_bytes(&network_file(), Isa::best()).unwrap();
    network.run(&mut Scratch::new(&network), &mut [], &[], &mut []);
}

#[test]
fn a_damaged_file_and_another_file_are_refused_with_a_sentence() {
    let file = network_file();
    for damaged in [&file[..0], &file[..1000], &file[..file.len() - 1], b"<html>"] {
        let error = Network::from_bytes(damaged, Isa::best()).err().unwrap();
        assert!(matches!(error, Error::Hash { .. }), "{error}");
    }
    let mut flipped = file;
    flipped[600_000] ^= 1;
    assert!(matches!(Network::from_bytes(&flipped, Isa::best()), Err(Error::Hash { .. })));
    let error = Network::load("no/such/file".as_ref()).err().unwrap();
    assert!(
        error.to_string().contains("no/such/file") && error.to_string().contains("make setup"),
        "{error}"
    );
}

#[test]
fn a_network_is_shared_by_threads_and_a_state_is_small() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Network>();
    assert_eq!(size_of::<NetworkState>(), 1280);
}

/// A window must cost far less than the budget of a media thread; the benchmark measures it
/// exactly. Measured is the CPU time of this thread.
#[test]
fn a_window_in_a_batch_of_eight_costs_less_than_a_tenth_of_a_millisecond() {
    let (network, sound) =
        (Network::from_bytes(&network_file(), Isa::best()).unwrap(), test_samples());
    let mut scratch = Scratch::new(&network);
    let mut states = vec![NetworkState::default(); 8];
    let windows: Vec<_> = sound.as_chunks::<WINDOW>().0[30..38].iter().collect();
    let mut probabilities = [0.0; 8];
    const REPEATS: u32 = 400;
    let (thread, mut states) =
        (common::ThreadClock::current(), states.iter_mut().collect::<Vec<_>>());
    let before = thread.cpu_time();
    for _ in 0..REPEATS {
        network.run(&mut scratch, &mut states, &windows, &mut probabilities);
    }
    let each = (thread.cpu_time() - before) / (REPEATS * 8);
    println!("{:?}: {each:?} a window", network.isa());
    assert!(each.as_micros() < 100, "{each:?}");
}
