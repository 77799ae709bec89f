//! Retired names: docs/glossary.md has the names that replace them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::{code, script_code};

/// Words that no identifier contains, in `snake_case` or `CamelCase`.
const RETIRED_WORDS: &[&str] = &[
    "told", "kept", "wish", "wishes", "heeded", "anew", "door", "doors", "seat", "seats", "deaf",
    "deafness", "shard", "shards", "patience", "humble", "thrift", "rung", "most", "least",
];
/// Identifiers that are retired as a whole; the words in them have other uses.
const RETIRED_NAMES: &[&str] = &[
    "Node",
    "Link",
    "Edge",
    "Letter",
    "Direction",
    "Shared",
    "LOOK",
    "Judge",
    "Ledger",
    "News",
    "AGAIN",
];
/// The same in lower case: local variables, parameters, fields and functions.
const RETIRED_LOCALS: &[&str] =
    &["fact", "facts", "news", "asker", "stretch", "ledger", "fate", "ears", "manner"];
/// Files that may use such identifiers, each with its reason.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    ("benches/load/src/requirement.rs", &["AtLeast", "AtMost"], "comparisons"),
    ("benches/steps/webrtc.rs", &["Direction"], "a type of str0m"),
    ("engine/src/transport/livekit/negotiation.rs", &["Direction"], "a type of str0m"),
    ("engine/src/transport/webrtc.rs", &["Direction"], "a type of str0m"),
    ("engine/src/transport/webrtc_tests.rs", &["Direction"], "a type of str0m"),
    ("engine/tests/panics.rs", &["Direction"], "a type of str0m"),
    ("engine/tests/support/udp_client.rs", &["Direction"], "a type of str0m"),
    ("engine/tests/support/virtual_client.rs", &["Direction"], "a type of str0m"),
    ("tests/fuzz/src/harness.rs", &["Direction"], "a type of str0m"),
    ("scripts/mutants.py", &["shard", "shards", "shard_count"], "the term of cargo-mutants"),
    (
        "control-api/src/web/console/agent-new.js",
        &["facts"],
        "a field of the form: what an agent knows",
    ),
    (
        "control-api/src/web/console/character.js",
        &["least", "most"],
        "fields of the REST interface",
    ),
    ("control-api/src/web/console/editor.js", &["least", "most"], "fields of the REST interface"),
    ("tests/js/console.test.mjs", &["least", "most"], "fields of the REST interface"),
];

/// The words of an identifier, in lower case.
fn words(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut previous = ' ';
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && previous.is_lowercase()) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        previous = c;
    }
    words
}

/// The code of a file without comments and strings; `None` for a file of another language.
fn read_code(file: &Path) -> Option<String> {
    let read = || std::fs::read_to_string(file).unwrap();
    match file.extension()?.to_str()? {
        "rs" => Some(code(&read())),
        "py" => Some(script_code(&read(), true)),
        "js" | "mjs" => Some(script_code(&read(), false)),
        _ => None,
    }
}

/// The identifiers of the code, without the names of tests, which are sentences.
fn identifiers(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (number, line) in code.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("#[test") || trimmed.starts_with("#[tokio::test") {
            is_test = true;
            continue;
        }
        if is_test && (trimmed.starts_with("fn ") || trimmed.starts_with("async fn ")) {
            is_test = false;
            continue;
        }
        let parts = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        // In Python, `test_` marks the name of a test.
        let parts = parts.filter(|part| !part.is_empty() && !part.starts_with("test_"));
        found.extend(parts.map(|part| (number + 1, part)));
    }
    found
}

fn is_retired(identifier: &str) -> bool {
    RETIRED_NAMES.contains(&identifier)
        || RETIRED_LOCALS.contains(&identifier)
        || words(identifier).iter().any(|word| RETIRED_WORDS.contains(&word.as_str()))
}

#[test]
fn retired_names_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    crate::collect_files(root, &mut files);
    files.sort();
    let mut wrong = Vec::new();
    let mut used_exceptions = BTreeSet::new();
    let mut count = 0;
    for file in files {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        // The words themselves.
        if name.starts_with("tests/tidy") {
            continue;
        }
        let Some(code) = read_code(&file) else { continue };
        for (line, identifier) in identifiers(&code) {
            count += 1;
            if !is_retired(identifier) {
                continue;
            }
            if EXCEPTIONS
                .iter()
                .any(|(file, names, _)| *file == name && names.contains(&identifier))
            {
                used_exceptions.insert(format!("{name}: {identifier}"));
            } else {
                wrong.push(format!("{name}:{line}: {identifier}"));
            }
        }
    }
    assert!(count > 200_000, "only {count} identifiers found");
    assert!(
        wrong.is_empty(),
        "docs/glossary.md has the names for these ({}): {wrong:#?}",
        wrong.len()
    );
    for (file, names, _) in EXCEPTIONS {
        for identifier in *names {
            let used = used_exceptions.contains(&format!("{file}: {identifier}"));
            assert!(used, "{file} does not use {identifier} any more");
        }
    }
}

#[test]
fn the_words_of_an_identifier_are_found() {
    assert_eq!(words("MAX_WAIT"), ["max", "wait"]);
    assert_eq!(words("CallEngine"), ["call", "engine"]);
    let tests = "#[test]\nfn it_is_told() {\n    told();\n}\n";
    assert_eq!(identifiers(tests), [(3, "told")]);
}

#[test]
fn strings_and_comments_of_scripts_are_no_code() {
    let python = "a = 'told' # told\n\"\"\"told\ntold\"\"\"\nb = \"\\\"told\" + seat\n";
    assert_eq!(identifiers(&script_code(python, true)), [(1, "a"), (4, "b"), (4, "seat")]);
    let javascript =
        "a = `told ${seat + `told`} told`; // told\nb = /told'/.test(a) / c; /* told */\n";
    let expected = [(1, "a"), (1, "seat"), (2, "b"), (2, "test"), (2, "a"), (2, "c")];
    assert_eq!(identifiers(&script_code(javascript, false)), expected);
}
