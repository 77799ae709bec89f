//! Is somebody speaking: the Silero network (version 6, 16 kHz) in plain Rust, and the rule that makes speech of its probabilities.
//!
//! Three things of three lifetimes, so that a media thread serves all its calls with one set of buffers: [`Network`] (the weights, one per
//! process, shared), [`Scratch`] (one per thread) and [`State`] (one per stream, 1280 bytes). [`Network::run`] takes the windows that
//! several streams completed at the same tick and runs them together: in batches of eight a window costs half of what it costs alone, because each weight is
//! loaded once for several streams.
//!
//! ```no_run
//! # fn main() -> Result<(), models::vad::Error> {
//! use models::vad;
//! let network = vad::Network::load("silero_vad_16k_op15.onnx".as_ref())?;
//! let (mut scratch, mut state) = (vad::Scratch::new(&network), vad::State::default());
//! let mut probability = [0.0];
//! network.run(&mut scratch, &mut [&mut state], &[&[0.0; vad::WINDOW]], &mut probability);
//! # Ok(()) }
//! ```

mod aligned;
mod detector;
mod kernels;
mod network;
mod onnx;
mod simd;
mod weights;

use std::io;
use std::path::PathBuf;

pub use detector::{Detector, Report};
pub use network::{Network, Scratch, State};
pub use simd::Isa;

/// Samples of a window: 32 ms at [`SAMPLE_RATE`].
pub const WINDOW: usize = 512;
/// Samples a second that the network was trained on.
pub const SAMPLE_RATE: u32 = 16_000;
/// SHA-256 of `silero_vad_16k_op15.onnx` of the `silero-vad` 6.2 Python package (MIT). The package holds networks with other weights under
/// similar names, and their probabilities differ by up to .9: the name of a file says nothing.
pub const SHA256: &str = "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49";

/// The network could not be loaded. Trying again does not help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("the speech detector's file {path} cannot be read; run `make setup`")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is another file, or a damaged one.
    #[error(
        "the speech detector's file is not silero_vad_16k_op15.onnx of silero-vad 6.2: its SHA-256 is {found}"
    )]
    Hash {
        /// The hash it has, in hexadecimal digits.
        found: String,
    },
    /// A tensor is missing or has another shape.
    #[error("the speech detector's file has no tensor {name} of shape {shape:?}")]
    Shape {
        /// The tensor.
        name: &'static str,
        /// The shape that the network needs.
        shape: Vec<usize>,
    },
    /// The file's filter bank is not the Fourier transform that we compute in its place.
    #[error("the speech detector's filter bank is not a Hann-windowed Fourier transform")]
    FilterBank,
}
