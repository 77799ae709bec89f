//! Sets `PHOTO_VERSION` to a hash of the renderer's source, so that the version cannot be
//! forgotten.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed build says where")]

use std::path::{Path, PathBuf};
use std::{env, fs};

/// All files of a folder and of those in it.
fn source_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .expect("the source folder is readable")
        .map(|e| e.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { source_files(&path) } else { vec![path] }).collect()
}

fn main() {
    println!("cargo:rerun-if-changed=src");
    let root =
        PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let mut files = source_files(&root.join("src"));
    files.sort();
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in files.iter().flat_map(|f| fs::read(f).expect("a readable file")) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    println!("cargo:rustc-env=PHOTO_VERSION={hash:016x}");
}
