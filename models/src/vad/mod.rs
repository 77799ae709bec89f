//! Voice activity detection: the Silero network (version 6, 16 kHz) in plain Rust, and the rule
//! that turns its probabilities into speech segments.
//!
//! Three types have three lifetimes, so that a media thread serves all its calls with one set of
//! buffers: [`Network`] (the weights, one per process, shared), [`Scratch`] (one per thread) and
//! [`NetworkState`] (one per stream, 1280 bytes). [`Network::run`] processes together the windows
//! that several streams completed at the same tick. In batches of eight, a window costs half as
//! much as alone, because each weight is loaded once for several streams.
//!
//! ```no_run
//! # fn main() -> Result<(), models::vad::Error> {
//! use models::vad;
//! let network = vad::Network::load("silero_vad_16k_op15.onnx".as_ref())?;
//! let (mut scratch, mut state) = (vad::Scratch::new(&network), vad::NetworkState::default());
//! let mut probability = [0.0];
//! network.run(&mut scratch, &mut [&mut state], &[&[0.0; vad::WINDOW]], &mut probability);
//! # Ok(()) }
//! ```

mod aligned;
mod detector;
mod kernels;
mod network;
mod onnx;
mod weights;

use std::io;
use std::path::PathBuf;

pub use crate::simd::Isa;
pub use detector::{Detector, VadEvent};
pub use network::{Network, NetworkState, Scratch};

/// Samples of a window: 32 ms at [`SAMPLE_RATE`].
pub const WINDOW: usize = 512;
/// Sample rate in Hz that the network was trained on.
pub const SAMPLE_RATE: u32 = 16_000;
/// SHA-256 of `silero_vad_16k_op15.onnx` of the `silero-vad` 6.2 Python package (MIT). The package
/// contains networks with other weights under similar names. Their probabilities differ by up to
/// .9, so a file's name is no proof.
pub const SHA256: &str = "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49";

/// The network could not be loaded. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the VAD model {path}; run `make setup`")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is another one, or damaged.
    #[error(
        "the VAD model is not silero_vad_16k_op15.onnx of silero-vad 6.2: its SHA-256 is {found}"
    )]
    Hash {
        /// Its hash in hexadecimal digits.
        found: String,
    },
    /// A tensor is missing or has another shape.
    #[error("the VAD model has no tensor {name} of shape {shape:?}")]
    Shape {
        /// Name of the tensor.
        name: &'static str,
        /// Shape that the network needs.
        shape: Vec<usize>,
    },
    /// The filter bank in the file is not the Fourier transform that we compute instead.
    #[error("the filter bank of the VAD model is not a Hann-windowed Fourier transform")]
    FilterBank,
}
