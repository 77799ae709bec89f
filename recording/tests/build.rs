//! Compiles the functions over libwebm, whose source is in the crate `webm-sys`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed build says where")]

use std::path::PathBuf;
use std::{env, fs};

/// Name and version of the crate, as in Cargo.toml.
const WEBM_SYS: &str = "webm-sys-2.2.1";

fn main() {
    println!("cargo::rerun-if-changed=libwebm.cc");
    println!("cargo::rerun-if-changed=build.rs");
    cc::Build::new()
        .cpp(true)
        .file("libwebm.cc")
        .include(find_libwebm())
        .flag("-std=c++14")
        // As webm-sys, whose classes have no type information.
        .flag("-fno-rtti")
        .flag("-fno-exceptions")
        .warnings(true)
        .compile("recording_tests_libwebm");
}

/// The folder with the headers, in the sources that cargo has downloaded. The crate does not pass
/// it on.
fn find_libwebm() -> PathBuf {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let home = variable("CARGO_HOME").or_else(|| Some(variable("HOME")?.join(".cargo")));
    let sources = home.expect("CARGO_HOME or HOME is set").join("registry/src");
    let registries = fs::read_dir(&sources).into_iter().flatten().flatten();
    registries
        .map(|registry| registry.path().join(WEBM_SYS).join("libwebm"))
        .find(|folder| folder.is_dir())
        .unwrap_or_else(|| panic!("{} has no {WEBM_SYS}", sources.display()))
}
