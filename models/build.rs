//! Compiles and links the adapters' C code, and derives a version from the source that bakes
//! avatars.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed build says where")]

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    // The package of the tests in `tests/` also compiles the library, for its unit tests, and runs
    // this build script.
    let package =
        PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let root = if package.ends_with("tests") { package.join("..") } else { package };
    build_vp8_shim(&root);
    emit_face_version(&root);
}

/// The VP8 shim of `src/face/vp8.c` over libvpx. libvpx is linked statically, because its shared
/// library has another name in each release of Debian and Ubuntu: one binary runs on all of them.
fn build_vp8_shim(root: &Path) {
    // `statik` adds the libraries that libvpx itself needs.
    let library = pkg_config::Config::new()
        .atleast_version("1.8")
        .statik(true)
        .cargo_metadata(false)
        .probe("vpx")
        .expect("libvpx is missing: install libvpx-dev");
    let mut shim = cc::Build::new();
    shim.file(root.join("src/face/vp8.c")).includes(&library.include_paths).warnings(true);
    shim.compile("visavis_vp8");
    // The linker's command line must name libvpx after the shim, which needs it.
    let archive = find_archive(&library.link_paths, &shim.get_compiler());
    if let Some(folder) = archive.as_deref().and_then(Path::parent) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static=vpx");
    } else {
        println!(
            "cargo::warning=libvpx.a is not installed, so the program needs the shared library \
             of libvpx of this system to start; libvpx-dev of Debian contains libvpx.a"
        );
        for folder in &library.link_paths {
            println!("cargo::rustc-link-search=native={}", folder.display());
        }
        println!("cargo::rustc-link-lib=vpx");
    }
    for name in library.libs.iter().filter(|name| *name != "vpx") {
        println!("cargo::rustc-link-lib={name}");
    }
}

/// `libvpx.a` in the folders that pkg-config names, or where the compiler finds libraries:
/// pkg-config names no folder of the system.
fn find_archive(folders: &[PathBuf], compiler: &cc::Tool) -> Option<PathBuf> {
    let named = folders.iter().map(|folder| folder.join("libvpx.a"));
    // The compiler prints the bare name if it finds no such file.
    let output = compiler.to_command().arg("-print-file-name=libvpx.a").output().ok();
    let found = output.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    named.chain(found).find(|path| path.is_absolute() && path.is_file())
}

/// Sets `FACE_VERSION`, a hash of the source that turns an avatar into a pose set. It changes with
/// that source, so that outdated pose sets are detected.
fn emit_face_version(root: &Path) {
    let folder = root.join("src/face");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the source folder is readable")
        .map(|e| e.expect("an entry").path())
        .collect();
    files.sort();
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in files.iter().flat_map(|f| fs::read(f).expect("a readable file")) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    println!("cargo::rustc-env=FACE_VERSION={hash:016x}");
}
