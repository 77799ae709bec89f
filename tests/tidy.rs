//! Rules about the shape of the source that no compiler checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which crate may use which of ours. Arrows only point down.
const ARROWS: &[(&str, &[&str])] = &[
    ("engine/conversation", &[]),
    ("engine/knowledge", &[]),
    ("models/character", &[]),
    ("models", &["conversation", "knowledge", "character"]),
    ("engine", &["models", "conversation"]),
    ("control-api", &["models", "knowledge", "conversation"]),
    ("benches/load", &["engine", "models", "conversation"]),
];
const OURS: &[&str] = &["conversation", "knowledge", "character", "models", "engine", "control-api", "load"];
/// All that the pure crate may stand on.
const PURE: &[&str] = &[
    "serde",
    "serde_json",
    "serde_path_to_error",
    "smallvec",
    "thiserror",
    "unicode-normalization",
    "unicode-segmentation",
];
/// Lines of code a file may have, tests apart.
const CEILING: usize = 400;
/// Files above the ceiling, each with its reason.
const LONGER: &[(&str, usize, &str)] = &[
    (
        "engine/src/host.rs",
        470,
        "the engine's life and its door: splitting them would make its directory of calls public",
    ),
    ("engine/src/transport/webrtc.rs", 470, "one connection: every method turns the same state machine"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn dependencies(manifest: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(manifest).unwrap();
    let table: toml::Table = text.parse().unwrap();
    table
        .get("dependencies")
        .and_then(toml::Value::as_table)
        .map(|d| d.keys().cloned().collect())
        .unwrap_or_default()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir()
            && !["tests", "target", "node_modules", "benches", "examples"].contains(&&*name.to_string_lossy())
            && !name.to_string_lossy().starts_with('.')
        {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs")
            && !name.to_string_lossy().ends_with("_tests.rs")
        {
            found.push(path);
        }
    }
}

/// Lines that are neither blank nor comment, before the file's tests.
fn code_lines(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")).count()
}

#[test]
fn arrows_between_crates_only_point_down() {
    for (krate, allowed) in ARROWS {
        for dependency in dependencies(&root().join(krate).join("Cargo.toml")) {
            if OURS.contains(&dependency.as_str()) {
                assert!(allowed.contains(&dependency.as_str()), "{krate} must not use {dependency}");
            }
        }
    }
}

#[test]
fn the_pure_crates_stay_pure() {
    for dependency in dependencies(&root().join("engine/conversation/Cargo.toml")) {
        assert!(
            PURE.contains(&dependency.as_str()),
            "engine/conversation is pure and must not use {dependency}"
        );
    }
    let mut files = Vec::new();
    sources(&root().join("engine/conversation/src"), &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["std::thread", "std::net", "std::fs", "Instant::now", "SystemTime", "HashMap"] {
            assert!(
                !text.contains(word),
                "{} uses {word}: the conversation has no clock, thread or I/O, and iterates in a fixed order",
                file.display()
            );
        }
    }
}

#[test]
fn a_file_has_one_purpose_and_about_four_hundred_lines() {
    let mut files = Vec::new();
    sources(root(), &mut files);
    assert!(files.len() > 50, "only {} sources found", files.len());
    let named: BTreeMap<&str, usize> = LONGER.iter().map(|(file, lines, _)| (*file, *lines)).collect();
    let long: Vec<String> = files
        .iter()
        .filter_map(|path| {
            let file = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            let lines = code_lines(&std::fs::read_to_string(path).unwrap());
            (lines > named.get(file.as_str()).copied().unwrap_or(CEILING)).then(|| format!("{file}: {lines}"))
        })
        .collect();
    assert!(long.is_empty(), "split these files, or name them with a reason: {long:#?}");
}
