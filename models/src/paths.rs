//! Where the files of the embedded models are. `scripts/setup.sh` puts them there.

use std::path::{Path, PathBuf};

/// Names the directory where no configuration does.
pub const VARIABLE: &str = "VISAVIS_MODELS_DIR";
/// Where set-up puts the models, seen from the checkout.
pub const DEFAULT: &str = ".cache/models";

/// The models' directory: the configured one, else that of [`VARIABLE`], else [`DEFAULT`] under the working directory.
#[must_use]
pub fn dir(configured: Option<&Path>) -> PathBuf {
    let named = || std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    configured.map(Path::to_owned).or_else(named).unwrap_or_else(|| PathBuf::from(DEFAULT))
}

/// The speech detector's weights.
#[must_use]
pub fn vad(dir: &Path) -> PathBuf {
    dir.join("silero").join("silero_vad_16k_op15.onnx")
}

/// PocketSphinx: its library, its acoustic and language models, its dictionary.
#[must_use]
pub fn pocketsphinx(dir: &Path) -> PathBuf {
    dir.join("pocketsphinx")
}

/// ONNX Runtime, for the optional turn model.
#[must_use]
pub fn onnx_runtime(dir: &Path) -> PathBuf {
    dir.join("onnxruntime").join("libonnxruntime.so")
}

/// The turn model's weights, optional too.
#[must_use]
pub fn turn(dir: &Path) -> PathBuf {
    dir.join("smart-turn").join("smart-turn-v3.2-cpu.onnx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_directory_wins() {
        assert_eq!(dir(Some(Path::new("/srv/models"))), Path::new("/srv/models"));
    }
}
