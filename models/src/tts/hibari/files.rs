//! The files of the voice.

use std::path::{Path, PathBuf};

use crate::{manifest, paths};

pub(super) const ACOUSTIC: &str = "hibari.onnx";
pub(super) const VOCABULARY: &str = "vocab.json";
pub(super) const GOLD_LEXICON: &str = "lexicon_us_gold.json";
pub(super) const SILVER_LEXICON: &str = "lexicon_us_silver.json";
pub(super) const TAGGER: &str = "tagger.json";
pub(super) const UNKNOWN_WORDS: &str = "oov.onnx";
pub(super) const UNKNOWN_WORDS_ALPHABET: &str = "oov.json";

/// Checks that all files of the voice and ONNX Runtime are installed. Does not load them.
///
/// # Errors
/// One sentence that says what is missing or damaged, and what to do.
pub fn check_installed(models_dir: &Path) -> Result<(), String> {
    check_runtime(models_dir)?;
    manifest::model("hibari").check_files(models_dir)
}

/// Checks that ONNX Runtime is installed.
///
/// # Errors
/// One sentence that says what to do.
pub(super) fn check_runtime(models_dir: &Path) -> Result<(), String> {
    let runtime = paths::onnx_runtime(models_dir);
    if runtime.is_file() {
        return Ok(());
    }
    Err(format!("{} is missing (needed by the voice Hibari): run `make setup`", runtime.display()))
}

/// The contents of a file of the voice.
///
/// # Errors
/// One sentence that says what is missing or damaged, and what to do.
pub(super) fn read(models_dir: &Path, name: &str) -> Result<Vec<u8>, String> {
    manifest::model("hibari").read(models_dir, name)
}

pub(super) fn path(models_dir: &Path, name: &str) -> PathBuf {
    paths::hibari(models_dir).join(name)
}
