//! Passes the commit of the build to the program, for the reports.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn main() {
    // Git writes this log whenever HEAD moves.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    // After a change to a file of the checkout, the build no longer matches the commit.
    if let Some(root) = git(&["rev-parse", "--show-toplevel"]) {
        for sources in [
            "src",
            "engine",
            "models",
            "control-api",
            "benches",
            "assets",
            "Cargo.toml",
            "Cargo.lock",
        ] {
            println!("cargo:rerun-if-changed={root}/{sources}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|files| !files.is_empty());
    let dirty = if changed { "-dirty" } else { "" };
    println!("cargo:rustc-env=VISAVIS_COMMIT={commit}{dirty}");
}
