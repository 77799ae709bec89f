//! Names the renderer's version after its source, so that nobody forgets to count it up.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=src");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut files: Vec<PathBuf> =
        fs::read_dir(root.join("src")).expect("the source").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in files.iter().flat_map(|f| fs::read(f).expect("a readable file")) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    println!("cargo:rustc-env=CHARACTER_VERSION={hash:016x}");
}
