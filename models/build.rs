//! Compiles and links what the adapters take from system libraries; one function for each.

fn main() {
    vpx();
}

/// The VP8 shim of `src/face/vp8.c` over libvpx.
fn vpx() {
    println!("cargo::rerun-if-changed=src/face/vp8.c");
    let library = pkg_config::Config::new()
        .atleast_version("1.8")
        .probe("vpx")
        .expect("libvpx is missing: install libvpx-dev");
    cc::Build::new()
        .file("src/face/vp8.c")
        .includes(library.include_paths)
        .warnings(true)
        .compile("visavis_vp8");
    // The shim needs the library behind itself on the linker's command line.
    for name in library.libs {
        println!("cargo::rustc-link-lib={name}");
    }
}
