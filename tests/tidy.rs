//! Rules about the structure of the source that the compiler does not check.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The allowed dependencies between our crates. They only point down.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("egress", &[]),
    ("engine/conversation", &[]),
    ("engine/api", &["conversation"]),
    ("knowledge", &[]),
    ("models/character", &[]),
    ("models/landmarks", &[]),
    ("models/photo", &["character"]),
    ("recording", &[]),
    (
        "models",
        &["egress", "engine-api", "conversation", "knowledge", "character", "landmarks", "photo"],
    ),
    ("engine", &["egress", "engine-api", "models", "conversation"]),
    ("studio", &["engine", "models", "conversation"]),
    ("control-api/documents", &[]),
    ("control-api", &["documents", "egress", "engine-api", "models", "knowledge", "conversation"]),
    ("benches/load", &["egress", "engine", "engine-api", "models", "conversation"]),
    ("tests/fuzz", &["control-api", "documents", "engine", "conversation", "landmarks"]),
];
const WORKSPACE_CRATES: &[&str] = &[
    "egress",
    "conversation",
    "engine-api",
    "knowledge",
    "character",
    "landmarks",
    "photo",
    "models",
    "engine",
    "studio",
    "documents",
    "control-api",
    "load",
];
/// The allowed dependencies of the pure crate.
const PURE_CRATE_DEPENDENCIES: &[&str] = &[
    "serde",
    "serde_json",
    "serde_path_to_error",
    "smallvec",
    "thiserror",
    "unicode-normalization",
    "unicode-segmentation",
    // Contains no code (docs/decisions/0002).
    "workspace-hack",
    "uuid",
];
/// Signs of a test that depends on the machine: a test that is repeated, sleeps, checks a duration,
/// or draws a random seed.
const NONDETERMINISTIC_CALLS: &[&str] = &[
    "reruns",
    "flaky",
    "thread::sleep(",
    "time::sleep(",
    "sleep_until(",
    "time.sleep(",
    "asyncio.sleep(",
    "Event().wait(",
    "setTimeout(",
    "wait_for_timeout(",
    "elapsed() <",
    "elapsed() >",
    "perf_counter",
    "rand::random",
    "rand::rng()",
    "random.randrange(",
    "random.random()",
];
/// Test files that may contain one of them, each with its reason.
const NONDETERMINISM_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("tests/e2e/conftest.py", "random.randrange(", "the seed of the long tier, which is printed"),
    ("tests/e2e/kit/mcp_server.py", "Event().wait(", "a tool that never answers"),
    ("tests/e2e/kit/meeting_services/base.py", "asyncio.sleep(", "the pace of a service"),
    ("tests/e2e/kit/meeting_services/meetingbaas.py", "asyncio.sleep(", "the pace of a service"),
    ("tests/e2e/kit/meeting_services/page.py", "asyncio.sleep(", "the pace of a service"),
    ("tests/e2e/kit/meeting_services/page.py", "setTimeout(", "the pace of a service"),
    ("tests/e2e/kit/providers/aura.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/providers/cartesia.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/providers/elevenlabs.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/providers/fake.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/providers/http_stream.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/providers/language_model.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/providers/openai_audio.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/providers/transcription.py", "asyncio.sleep(", "the pace of a vendor"),
    ("tests/e2e/kit/polling.py", "Event().wait(", "the interval at which a state is asked for"),
    (
        "tests/e2e/page/instrument.js",
        "setTimeout(",
        "a delayed picture, the pace of a canvas, and timeouts",
    ),
    ("tests/e2e/test_conversation.py", "setTimeout(", "a timeout"),
    (
        "tests/e2e/kit/webrtc_client.py",
        "asyncio.sleep(",
        "the pace at which a microphone gives sound",
    ),
    ("tests/e2e/kit/relay.py", "random.random()", "a generator with a fixed seed"),
    (
        "tests/e2e/test_control_plane_performance.py",
        "perf_counter",
        "a time that only the long tier judges",
    ),
    (
        "tests/e2e/test_openapi.py",
        "random.randrange(",
        "the seed of the long tier, which is printed",
    ),
    (
        "tests/e2e/test_servers_under_load.py",
        "Event().wait(",
        "the length of an outage, in the long tier",
    ),
    (
        "tests/e2e/test_servers_under_load.py",
        "perf_counter",
        "a time that only the long tier judges",
    ),
    ("engine/tests/engine.rs", "time::sleep(", "the paused clock of tokio"),
    ("engine/tests/engine.rs", "sleep_until(", "the paused clock of tokio"),
    ("engine/tests/peers.py", "setTimeout(", "a timeout"),
    ("models/src/scripted/tests.rs", "time::sleep(", "the paused clock of tokio"),
    ("models/src/llm/openai/tests.rs", "time::sleep(", "the paused clock of tokio"),
    ("models/src/chain/llm/hedge_tests.rs", "sleep_until(", "the paused clock of tokio"),
    ("models/src/chain/tts/hedge_tests.rs", "sleep_until(", "the paused clock of tokio"),
    ("models/src/registry/tests.rs", "time::sleep(", "the paused clock of tokio"),
    (
        "engine/src/hear/jitter_tests.rs",
        "rand::random",
        "the seed of the long tier, which is printed",
    ),
    ("engine/src/transport/webrtc_tests.rs", "elapsed() <", "the elapsed virtual time"),
    ("engine/tests/peers.py", "asyncio.sleep(", "the pace at which a microphone gives sound"),
    (
        "engine/tests/peers.py",
        "wait_for_timeout(",
        "a comparison with other engines, which is run by hand",
    ),
    (
        "control-api/tests/api/fake_renderer.rs",
        "thread::sleep(",
        "the pace at which a file is looked for",
    ),
    ("tests/fuzz/tests/seeds.rs", "rand::random", "the seed of the long tier, which is printed"),
];
/// Maximum number of lines of code in a file, without tests: about four hundred.
const MAX_CODE_LINES: usize = 430;
/// Files above that limit, each with its reason.
const LONG_FILE_EXCEPTIONS: &[(&str, usize, &str)] = &[
    (
        "engine/conversation/src/contract/event.rs",
        450,
        "the public vocabulary as one enum, beside its names in webhooks",
    ),
    (
        "engine/src/transport/webrtc.rs",
        590,
        "one connection: every method turns the same state machine",
    ),
];

fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read_dependencies(manifest: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(manifest).unwrap();
    let table: toml::Table = text.parse().unwrap();
    table
        .get("dependencies")
        .and_then(toml::Value::as_table)
        .map(|d| d.keys().cloned().collect())
        .unwrap_or_default()
}

fn collect_sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir()
            && !["tests", "target", "node_modules", "benches", "examples"]
                .contains(&&*name.to_string_lossy())
            && !name.to_string_lossy().starts_with('.')
        {
            collect_sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs")
            && !name.to_string_lossy().ends_with("_tests.rs")
        {
            found.push(path);
        }
    }
}

/// Number of lines that are neither blank nor comments, before the tests of the file.
fn count_code_lines(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")).count()
}

#[test]
fn arrows_between_crates_only_point_down() {
    for (krate, allowed) in ALLOWED_DEPENDENCIES {
        for dependency in read_dependencies(&workspace_root().join(krate).join("Cargo.toml")) {
            if WORKSPACE_CRATES.contains(&dependency.as_str()) {
                assert!(
                    allowed.contains(&dependency.as_str()),
                    "{krate} must not use {dependency}"
                );
            }
        }
    }
}

#[test]
fn the_pure_crates_stay_pure() {
    for dependency in read_dependencies(&workspace_root().join("engine/conversation/Cargo.toml")) {
        assert!(
            PURE_CRATE_DEPENDENCIES.contains(&dependency.as_str()),
            "engine/conversation is pure and must not use {dependency}"
        );
    }
    let mut files = Vec::new();
    collect_sources(&workspace_root().join("engine/conversation/src"), &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["std::thread", "std::net", "std::fs", "Instant::now", "SystemTime", "HashMap"]
        {
            assert!(
                !text.contains(word),
                "{} uses {word}: the conversation has no clock, thread or I/O, and iterates in a \
                 fixed order",
                file.display()
            );
        }
    }
}

#[test]
fn a_panic_unwinds_in_every_profile() {
    // A panic in a call's code ends that call alone, because it is caught.
    let manifest = std::fs::read_to_string(workspace_root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("[profile.release]"));
    assert!(!manifest.lines().any(|line| line.replace(' ', "").starts_with("panic=\"abort\"")));
}

#[test]
fn a_file_has_one_purpose_and_about_four_hundred_lines() {
    let mut files = Vec::new();
    collect_sources(workspace_root(), &mut files);
    assert!(files.len() > 50, "only {} sources found", files.len());
    let named: BTreeMap<&str, usize> =
        LONG_FILE_EXCEPTIONS.iter().map(|(file, lines, _)| (*file, *lines)).collect();
    let long: Vec<String> = files
        .iter()
        .filter_map(|path| {
            let file =
                path.strip_prefix(workspace_root()).unwrap().to_string_lossy().replace('\\', "/");
            let lines = count_code_lines(&std::fs::read_to_string(path).unwrap());
            (lines > named.get(file.as_str()).copied().unwrap_or(MAX_CODE_LINES))
                .then(|| format!("{file}: {lines}"))
        })
        .collect();
    assert!(long.is_empty(), "split these files, or name them with a reason: {long:#?}");
}

/// Whether a file contains only tests.
fn is_test_file(file: &str) -> bool {
    let folder = file.starts_with("tests/") || file.contains("/tests/");
    (folder
        && [".rs", ".py", ".ini", ".js", ".mjs"].iter().any(|ending| file.ends_with(ending))
        && !file.starts_with("tests/tidy"))
        || file.ends_with("_tests.rs")
        || file.ends_with("/tests.rs")
}

fn collect_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || ["target", "node_modules", "__pycache__"].contains(&&*name) {
            continue;
        }
        match entry.path() {
            path if path.is_dir() => collect_files(&path, found),
            path => found.push(path),
        }
    }
}

#[test]
fn tests_are_deterministic() {
    let mut all = Vec::new();
    collect_files(workspace_root(), &mut all);
    let mut used = Vec::new();
    let mut checked = 0;
    for path in all {
        let file =
            path.strip_prefix(workspace_root()).unwrap().to_string_lossy().replace('\\', "/");
        if !is_test_file(&file) {
            continue;
        }
        checked += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        for word in NONDETERMINISTIC_CALLS.iter().filter(|word| text.contains(**word)) {
            used.push((file.clone(), *word));
        }
    }
    assert!(checked > 80, "only {checked} files of tests found");
    let named = |file: &str, word: &str| {
        NONDETERMINISM_EXCEPTIONS.iter().any(|(f, w, _)| *f == file && *w == word)
    };
    let wrong: Vec<_> = used.iter().filter(|(file, word)| !named(file, word)).collect();
    assert!(
        wrong.is_empty(),
        "wait for a state, use virtual time, fix the seed, or name the file with a reason: \
         {wrong:#?}"
    );
    for (file, word, _) in NONDETERMINISM_EXCEPTIONS {
        assert!(
            used.iter().any(|(f, w)| f == file && w == word),
            "{file} does not use {word} any more"
        );
    }
}

/// `scripts/mutants.py` replaces the text of each rule, so a reformatted line would stop it.
#[test]
fn each_mutant_of_a_rule_matches_the_source_once() {
    let conversation = workspace_root().join("engine/conversation");
    let rules: toml::Table =
        std::fs::read_to_string(conversation.join("mutants/rules.toml")).unwrap().parse().unwrap();
    let files = source::rust_files(&conversation.join("src"));
    let text = |name: &str| {
        let file = files
            .iter()
            .find(|file| file.ends_with(name))
            .unwrap_or_else(|| panic!("no file {name}"));
        std::fs::read_to_string(file).unwrap()
    };
    let rules = rules["rule"].as_array().unwrap();
    assert!(rules.len() > 100, "only {} rules", rules.len());
    let wrong: Vec<_> = rules
        .iter()
        .filter(|rule| {
            text(rule["file"].as_str().unwrap()).matches(rule["old"].as_str().unwrap()).count() != 1
        })
        .map(|rule| rule["rule"].as_str().unwrap())
        .collect();
    assert!(
        wrong.is_empty(),
        "engine/conversation/mutants/rules.toml does not match the source: {wrong:#?}"
    );
}
