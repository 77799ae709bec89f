//! What the tests with real models share.

use std::path::{Path, PathBuf};

/// Where set-up put the models: the named directory, else the checkout's.
pub(crate) fn models() -> PathBuf {
    let named = std::env::var_os(models::paths::VARIABLE).map(PathBuf::from);
    let dir = named
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(models::paths::DEFAULT));
    assert!(dir.is_dir(), "the models are missing ({}): run `make setup`", dir.display());
    dir
}
