//! A file of TensorFlow Lite.

use landmarks::tflite::Network;

use crate::MAX_INPUT;

/// A network.
///
/// # Panics
/// It is accepted, but does not compute the numbers that it promises.
pub fn tflite(bytes: &[u8]) {
    if bytes.len() > MAX_INPUT {
        return;
    }
    let Ok(network) = Network::read(bytes) else { return };
    let count = network.input_shape().iter().product();
    let outputs = network.run(vec![0.5; count]).expect("the input has the network's length");
    let lengths: Vec<usize> = outputs.iter().map(Vec::len).collect();
    assert_eq!(lengths, network.output_lengths());
}
