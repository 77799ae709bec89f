use super::Network;

/// A network with all ten operations; tests/fuzz/file_seeds.py writes it.
const EVERY_OPERATION: &[u8] =
    include_bytes!("../../../../tests/fuzz/seeds/tflite/every-operation");
/// Output of that network for the input i/8 − 2, as `file_seeds.py --expected` computes it.
const EXPECTED: [f32; 24] = [
    -0.265_625,
    -1.875,
    1.937_5,
    -0.921_875,
    2.171_875,
    -1.375,
    -3.671_875,
    -0.320_312_5,
    2.304_687_5,
    0.187_5,
    0.257_812_5,
    -1.164_062_5,
    -0.5,
    -0.281_25,
    1.992_187_5,
    -0.640_625,
    0.804_687_5,
    2.062_5,
    0.468_75,
    0.531_25,
    3.296_875,
    1.593_75,
    3.867_187_5,
    -1.718_75,
];
/// The same of the network with the operations of masks, from the same file.
const EXPECTED_MASK: [f32; 48] = [
    0.50364, 0.29263, 0.5031, 0.28808, 0.50203, 0.27898, 0.50149, 0.27443, 0.45847, 0.64431,
    0.45874, 0.64645, 0.45928, 0.65072, 0.45955, 0.65286, 0.50149, 0.28085, 0.50096, 0.27951,
    0.49989, 0.27684, 0.49935, 0.2755, 0.46062, 0.64859, 0.46142, 0.64859, 0.46302, 0.64859,
    0.46383, 0.64859, 0.49935, 0.26908, 0.49881, 0.27095, 0.49775, 0.27469, 0.49721, 0.27657,
    0.46276, 0.65286, 0.4641, 0.65072, 0.46677, 0.64645, 0.4681, 0.64431,
];

fn input(network: &Network) -> Vec<f32> {
    let count = network.input_shape().iter().product::<usize>();
    (0..count).map(|i| i as f32 / 8.0 - 2.0).collect()
}

#[test]
fn all_operations_give_the_numbers_of_their_definitions() {
    let network = Network::read(EVERY_OPERATION).unwrap();
    assert_eq!(network.input_shape(), [1, 5, 4, 2]);
    assert_eq!(network.output_lengths(), [48]);
    let output = network.run(input(&network)).unwrap();
    // The second half is the first one after RELU. All numbers are exact in 32 bits.
    let expected = [EXPECTED, EXPECTED.map(|v| v.max(0.0))].concat();
    assert_eq!(output, [expected]);
}

#[test]
fn the_operations_of_masks_give_the_numbers_of_their_definitions() {
    let file = include_bytes!("../../../../tests/fuzz/seeds/tflite/mask-operations");
    let network = Network::read(file).unwrap();
    let output = network.run(input(&network)).unwrap();
    assert_eq!(output[0].len(), EXPECTED_MASK.len());
    for (value, expected) in output[0].iter().zip(EXPECTED_MASK) {
        assert!((value - expected).abs() < 2e-5, "{value} for {expected}");
    }
}

#[test]
fn an_input_of_another_length_gives_nothing() {
    let network = Network::read(EVERY_OPERATION).unwrap();
    assert!(network.run(vec![0.0; 39]).is_none());
}

#[test]
fn a_file_that_breaks_a_limit_is_rejected_with_the_reason() {
    macro_rules! reason {
        ($name:literal) => {
            Network::read(include_bytes!(concat!("../../../../tests/fuzz/seeds/tflite/", $name)))
                .unwrap_err()
        };
    }
    for (reason, expected) in [
        (reason!("empty"), "it is not a TensorFlow Lite file"),
        (reason!("every-operation-cut"), "an offset points outside the file"),
        (reason!("large-window"), "a window is too large"),
        (reason!("large-tensor"), "a tensor is too large"),
        (reason!("no-stride"), "the shapes of an operation do not fit"),
        (reason!("wrong-shape"), "the shapes of an operation do not fit"),
        (reason!("uses-its-own-output"), "an operation uses a tensor before it is computed"),
    ] {
        assert_eq!(reason, expected);
    }
}

/// Reads a file that may be malformed. If it is accepted, it runs as it promises.
fn read_and_run(file: &[u8]) -> bool {
    let Ok(network) = Network::read(file) else { return false };
    let output = network.run(input(&network)).unwrap();
    let lengths: Vec<usize> = output.iter().map(Vec::len).collect();
    assert_eq!(lengths, network.output_lengths());
    true
}

#[test]
fn a_cut_file_is_rejected() {
    // The last bytes are the weights of the last constant in the file.
    for length in 0..EVERY_OPERATION.len() {
        assert!(!read_and_run(&EVERY_OPERATION[..length]), "{length} bytes");
    }
}

#[test]
fn a_file_with_any_wrong_byte_is_rejected_or_runs() {
    let mut file = EVERY_OPERATION.to_vec();
    let (mut accepted, mut rejected) = (0, 0);
    for at in 0..file.len() {
        let byte = file[at];
        for wrong in [byte ^ 1, byte ^ 0x80, 0, 0xff, byte.wrapping_add(4)] {
            file[at] = wrong;
            if read_and_run(&file) { accepted += 1 } else { rejected += 1 }
        }
        file[at] = byte;
    }
    assert!(accepted > 1_000 && rejected > 1_000, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn a_file_with_any_wrong_number_is_rejected_or_runs() {
    let mut file = EVERY_OPERATION.to_vec();
    for at in (0..file.len() - 3).step_by(2) {
        let old: [u8; 4] = file[at..at + 4].try_into().unwrap();
        for wrong in [0, 1, 3, 65, 4_096, 1 << 22, i32::MAX, -1, i32::MIN] {
            file[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
            read_and_run(&file);
        }
        file[at..at + 4].copy_from_slice(&old);
    }
}
