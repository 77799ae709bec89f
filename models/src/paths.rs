//! Paths of the built-in models' files. `make setup` installs them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Environment variable with the models' directory, for when no configuration names it.
pub const MODELS_DIR_VARIABLE: &str = "VISAVIS_MODELS_DIR";
/// Directory of the setup script, relative to the checkout.
pub const DEFAULT_MODELS_DIR: &str = ".cache/models";

/// Where a package installs the models.
const SYSTEM_MODELS_DIR: &str = "/usr/lib/visavis/models";
/// A file in the root of a checkout, and nowhere else.
const CHECKOUT_MARK: &str = "models.toml";

/// The models' directory: the configured one, else that of [`MODELS_DIR_VARIABLE`], else the first
/// of [`standard_models_dirs`] that exists. If none does, [`DEFAULT_MODELS_DIR`] in the working
/// directory, which set-up creates.
#[must_use]
pub fn models_dir(configured: Option<&Path>) -> PathBuf {
    let first = || standard_models_dirs().into_iter().find(|dir| dir.is_dir());
    named_models_dir(configured).or_else(first).unwrap_or_else(|| DEFAULT_MODELS_DIR.into())
}

/// Why there is no models' directory, in one sentence; `None` if there is one.
#[must_use]
pub fn missing_models_dir(configured: Option<&Path>) -> Option<String> {
    let dir = models_dir(configured);
    if dir.is_dir() {
        return None;
    }
    let dir = std::path::absolute(&dir).unwrap_or(dir);
    if named_models_dir(configured).is_some() {
        return Some(format!("the folder {} (models.dir) does not exist", dir.display()));
    }
    let tried = standard_models_dirs();
    let tried: Vec<String> = tried.iter().map(|dir| dir.display().to_string()).collect();
    let tried = tried.join(", ");
    Some(format!("models.dir is not set, and none of these folders with models exists: {tried}"))
}

/// The directory that the configuration or the environment names.
fn named_models_dir(configured: Option<&Path>) -> Option<PathBuf> {
    let variable =
        || std::env::var_os(MODELS_DIR_VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    configured.map(Path::to_owned).or_else(variable)
}

/// The directories in which models are searched, if none is named: that of the checkout that
/// contains the program, those beside the program, that of a package, and that of the working
/// directory.
fn standard_models_dirs() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let working_dir = std::env::current_dir().unwrap_or_default();
    models_dirs_of(program.as_deref(), &working_dir)
}

fn models_dirs_of(program: Option<&Path>, working_dir: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(folder) = program.and_then(Path::parent) {
        let checkout = folder.ancestors().find(|dir| dir.join(CHECKOUT_MARK).is_file());
        dirs.extend(checkout.map(|dir| dir.join(DEFAULT_MODELS_DIR)));
        dirs.push(folder.join("models"));
        dirs.extend(folder.parent().map(|dir| dir.join("lib/visavis/models")));
    }
    dirs.push(SYSTEM_MODELS_DIR.into());
    dirs.push(working_dir.join(DEFAULT_MODELS_DIR));
    let mut seen = BTreeSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    dirs
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

    #[test]
    fn models_are_searched_in_the_checkout_then_beside_the_program_then_in_the_system() {
        let root = std::env::temp_dir().join(format!("visavis-models-dirs-{}", std::process::id()));
        let program = root.join("target/release/visavis");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        let names = |program: Option<&Path>| {
            let dirs = models_dirs_of(program, Path::new("/home/ann"));
            let relative = |dir: &PathBuf| match dir.strip_prefix(&root) {
                Ok(inside) => inside.display().to_string(),
                Err(_) => dir.display().to_string(),
            };
            dirs.iter().map(relative).collect::<Vec<_>>()
        };
        let beside = ["target/release/models", "target/lib/visavis/models"];
        let elsewhere = ["/usr/lib/visavis/models", "/home/ann/.cache/models"];
        assert_eq!(names(Some(&program)), [beside, elsewhere].concat(), "no checkout");
        std::fs::write(root.join(CHECKOUT_MARK), "").unwrap();
        assert_eq!(
            names(Some(&program)),
            [&[".cache/models"][..], &beside, &elsewhere[..]].concat()
        );
        assert_eq!(names(None), elsewhere);
        // The program of a package: the folder beside it is that of the system.
        let installed = names(Some(Path::new("/usr/bin/visavis")));
        assert_eq!(
            installed,
            ["/usr/bin/models", "/usr/lib/visavis/models", "/home/ann/.cache/models"]
        );
        std::fs::remove_dir_all(&root).unwrap();
    }
}
