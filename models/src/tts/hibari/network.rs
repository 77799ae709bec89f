//! The acoustic network: from phoneme numbers to durations and the parts of a spectrum.
//!
//! ```text
//! ids [1, L] ─► network ─► durations [1, L] in units of 25 ms
//!                      ├─► harmonic and noise magnitudes, phases: five of [1, 601, F]
//!                      └─► pitch [1, F] in Hz, F frames of 12.5 ms
//! ```
//!
//! The file does not declare the durations as an output. They are declared when it is loaded.

use ort::environment::Environment;
use ort::ep;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionOutputs};
use ort::value::TensorRef;

use super::vocoder::Spectra;

/// The tensor with the durations of the phonemes.
const DURATIONS: &str = "/Cast_32_output_0";
/// Pace: 1 is that of the training data.
const SPEED: f32 = 1.0;

/// A loaded network.
pub(super) struct Network {
    session: Session,
}

impl Network {
    /// From the contents of the file.
    ///
    /// # Errors
    /// The reason, without the name of the file.
    pub(super) fn load(environment: &Environment, file: &[u8]) -> Result<Self, String> {
        let file = with_output(file, DURATIONS);
        let session = open_session(environment, &file).map_err(|error| error.to_string())?;
        Ok(Self { session })
    }

    /// Runs the network for the phoneme numbers `ids` and passes the durations, in units of
    /// [`super::vocoder::UNIT`] samples, and the spectrum to `use_result`.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn run<T>(
        &mut self,
        ids: &[i64],
        use_result: impl FnOnce(&[i64], &Spectra<'_>) -> T,
    ) -> Result<T, String> {
        let run = || -> ort::Result<T> {
            let outputs = self.session.run(ort::inputs![
                "ids" => TensorRef::from_array_view(([1usize, ids.len()], ids))?,
                "speed" => TensorRef::from_array_view(([1usize], &[SPEED][..]))?,
            ])?;
            let durations = output(&outputs, DURATIONS)?.try_extract_tensor::<i64>()?.1;
            let values = |name| -> ort::Result<&[f32]> {
                Ok(output(&outputs, name)?.try_extract_tensor::<f32>()?.1)
            };
            let spectra = Spectra {
                harmonic: values("lh")?,
                harmonic_phase: values("theta")?,
                noise: values("ln")?,
                free: values("lr")?,
                free_phase: values("phi")?,
                pitch: values("f0")?,
            };
            if durations.len() != ids.len() || !spectra.is_complete() {
                return Err(ort::Error::new("the outputs have other shapes"));
            }
            Ok(use_result(durations, &spectra))
        };
        run().map_err(|error| error.to_string())
    }
}

fn output<'a>(
    outputs: &'a SessionOutputs<'_>,
    name: &str,
) -> ort::Result<&'a ort::value::DynValue> {
    outputs.get(name).ok_or_else(|| ort::Error::new(format!("there is no output {name}")))
}

/// The ONNX file with a tensor of 64-bit integers as a further output.
///
/// Parsers of protobuf merge a message field that occurs twice. A second `ModelProto.graph` (field
/// 7) at the end of the file therefore adds its `output` (field 12) to the graph. That is a
/// `ValueInfoProto` with a name (field 1) and a type (field 2): a tensor (field 1) with elements
/// (field 1) of `INT64` (7).
fn with_output(file: &[u8], name: &str) -> Vec<u8> {
    let mut info = Vec::new();
    push_field(&mut info, 1, name.as_bytes());
    push_field(&mut info, 2, &[0x0a, 2, 0x08, 7]);
    let mut graph = Vec::new();
    push_field(&mut graph, 12, &info);
    let mut changed = file.to_vec();
    push_field(&mut changed, 7, &graph);
    changed
}

/// Appends a field of bytes, at most 127.
fn push_field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    debug_assert!(bytes.len() < 128);
    message.extend([number << 3 | 2, bytes.len() as u8]);
    message.extend(bytes);
}

/// A session with one thread, because the calls need the cores, and without memory for later.
pub(super) fn open_session(environment: &Environment, file: &[u8]) -> ort::Result<Session> {
    Session::builder(environment)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_memory_pattern(false)?
        .with_execution_providers([ep::CPU::default().with_arena_allocator(false).build()])?
        .commit_from_memory(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_appended_as_a_second_graph() {
        let file = with_output(&[1, 2], "d");
        assert_eq!(file, [1, 2, 0x3a, 11, 0x62, 9, 0x0a, 1, b'd', 0x12, 4, 0x0a, 2, 0x08, 7]);
    }
}
