//! Paths of the built-in models' files. `make setup` installs them.

use std::path::{Path, PathBuf};

/// Environment variable with the models' directory, for when no configuration names it.
pub const MODELS_DIR_VARIABLE: &str = "VISAVIS_MODELS_DIR";
/// Default directory of the setup script, relative to the checkout.
pub const DEFAULT_MODELS_DIR: &str = ".cache/models";

/// The models' directory: the configured one, else that of [`MODELS_DIR_VARIABLE`], else
/// [`DEFAULT_MODELS_DIR`] in the working directory.
#[must_use]
pub fn models_dir(configured: Option<&Path>) -> PathBuf {
    let named =
        || std::env::var_os(MODELS_DIR_VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    configured
        .map(Path::to_owned)
        .or_else(named)
        .unwrap_or_else(|| PathBuf::from(DEFAULT_MODELS_DIR))
}

/// Weights of the VAD.
#[must_use]
pub fn vad(dir: &Path) -> PathBuf {
    dir.join("silero").join(crate::vad::FILE)
}

/// Directory of PocketSphinx: its library, acoustic and language models, and dictionary.
#[must_use]
pub fn pocketsphinx(dir: &Path) -> PathBuf {
    dir.join("pocketsphinx")
}

/// Directory of Moonshine: its encoder, decoder and tokens.
#[must_use]
pub fn moonshine(dir: &Path) -> PathBuf {
    dir.join("moonshine-tiny-en")
}

/// Directory of the voice Hibari: its networks, dictionaries and tagger.
#[must_use]
pub fn hibari(dir: &Path) -> PathBuf {
    dir.join("hibari")
}

/// ONNX Runtime, for Moonshine, Hibari and the optional turn model.
#[must_use]
pub fn onnx_runtime(dir: &Path) -> PathBuf {
    dir.join("onnxruntime").join("libonnxruntime.so")
}

/// Weights of the turn model, which is optional.
#[must_use]
pub fn turn(dir: &Path) -> PathBuf {
    dir.join("smart-turn").join("smart-turn-v3.2-cpu.onnx")
}

/// Directory of the sentence encoder, which is optional: its weights and vocabulary.
#[must_use]
pub fn sentence_encoder(dir: &Path) -> PathBuf {
    dir.join("minilm")
}

/// Directory of the networks that find a face and its landmarks, which are optional.
#[must_use]
pub fn mediapipe(dir: &Path) -> PathBuf {
    dir.join("mediapipe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_directory_wins() {
        assert_eq!(models_dir(Some(Path::new("/srv/models"))), Path::new("/srv/models"));
    }
}
