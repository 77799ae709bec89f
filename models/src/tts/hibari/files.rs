//! The files of the voice.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::paths;

/// Files of the voice, each with its SHA-256, as in the Python package `hibari-tts` 0.2.1
/// (Apache-2.0). The dictionaries and the tagger are decompressed.
pub const FILES: [(&str, &str); 7] = [
    (ACOUSTIC, "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8"),
    (VOCABULARY, "70abefbe8a1c8865e43e0a43bbdc25b91a33e4aa053479d443ccf23e20a59e5d"),
    (GOLD_LEXICON, "acce8d48062d5d9ddbb95abf1e9a5fe3a61716c70f9cbcb514cd48d406a5388d"),
    (SILVER_LEXICON, "7f90a125388084b9081108f0ca0dc64c8f448b849a8397b31ed752753663bbf8"),
    (TAGGER, "59aa6b90e02c18b202b4be339ffea427efd12e8fce0f8d1f796842eb7b28aeb9"),
    (UNKNOWN_WORDS, "d3cfd8122c5f172a98c8de38268bf1213ee09f2c2ae4df6e055fc6532590fe76"),
    (UNKNOWN_WORDS_ALPHABET, "b462e6e5dbdf0e7346c732385d0dd844f612f1770871441c56932bff4ca75d8c"),
];
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
    FILES.iter().try_for_each(|(name, _)| read(models_dir, name).map(drop))
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

/// The contents of the file `name`, which is one of [`FILES`].
///
/// # Errors
/// One sentence that says what is missing or damaged, and what to do.
pub(super) fn read(models_dir: &Path, name: &str) -> Result<Vec<u8>, String> {
    let path = path(models_dir, name);
    let file = std::fs::read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{} is missing: run `make setup`", path.display()),
        _ => format!("{} cannot be read ({error}): run `make setup`", path.display()),
    })?;
    let found: String = Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect();
    if FILES.iter().any(|(known, expected)| *known == name && *expected == found) {
        return Ok(file);
    }
    Err(format!(
        "{} is not the file of the hibari-tts 0.2.1 Python package: its SHA-256 is {found}; remove \
         it and run `make setup`",
        path.display()
    ))
}

pub(super) fn path(models_dir: &Path, name: &str) -> PathBuf {
    paths::hibari(models_dir).join(name)
}
