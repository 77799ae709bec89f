//! Sets `VISAVIS_VERSION`, the version with the commit and its date, and `VISAVIS_TARGET`.
//!
//! The commit is that of the checkout. `VISAVIS_COMMIT` and `VISAVIS_COMMIT_DATE` replace it, for
//! builds of an archive. Without both, the version stands alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    for name in ["VISAVIS_COMMIT", "VISAVIS_COMMIT_DATE"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    // Without a file to watch, cargo would run this script after every change.
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).ok().filter(|text| !text.trim().is_empty());
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commit = match (variable("VISAVIS_COMMIT"), variable("VISAVIS_COMMIT_DATE")) {
        (Some(commit), Some(date)) => Some(format!("{commit} {date}")),
        (Some(commit), None) => Some(commit),
        (None, _) => commit_of_checkout(&root),
    };
    let version = variable("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit {
        Some(commit) => format!("{version} ({})", commit.trim()),
        None => version,
    };
    println!("cargo::rustc-env=VISAVIS_VERSION={version}");
    println!("cargo::rustc-env=VISAVIS_TARGET={}", variable("TARGET").unwrap_or_default());
}

/// The commit with its date, if `root` is the root of a checkout. Lets cargo watch the files that
/// change with the commit.
fn commit_of_checkout(root: &Path) -> Option<String> {
    let git = git_folder(&root.join(".git"))?;
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    watch(&git.join("HEAD"));
    if let Some(branch) = head.trim().strip_prefix("ref: ") {
        // The branches of a linked working tree are in the folder of the repository.
        let common = fs::read_to_string(git.join("commondir"));
        let common = common.map_or_else(|_| git.clone(), |path| git.join(path.trim()));
        let file = common.join(branch);
        if file.is_file() {
            watch(&file);
        } else {
            // Git has packed the branch; the next commit creates its file and appends to the log.
            [common.join("packed-refs"), git.join("logs/HEAD")].iter().for_each(|file| watch(file));
        }
    }
    let log = Command::new("git")
        .current_dir(root)
        .args(["log", "-1", "--abbrev=8", "--format=%h %cs"])
        .output()
        .ok()?;
    let text = String::from_utf8(log.stdout).ok()?;
    (log.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// The folder of Git's files. In a linked working tree, `.git` is a file that names it.
fn git_folder(dot_git: &Path) -> Option<PathBuf> {
    if dot_git.is_dir() {
        return Some(dot_git.to_owned());
    }
    let text = fs::read_to_string(dot_git).ok()?;
    let path = text.trim().strip_prefix("gitdir: ")?;
    Some(dot_git.parent()?.join(path))
}

/// Runs this script again when the file changes. A missing file would run it each time.
fn watch(file: &Path) {
    if file.is_file() {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}
