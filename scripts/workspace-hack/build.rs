//! Cargo regards `[build-dependencies]` of packages with a build script only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
