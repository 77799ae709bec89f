//! Retired names: docs/glossary.md has the names that replace them.

use std::path::Path;

use crate::source::{code, rust_files};

/// Words that no identifier contains, in `snake_case` or `CamelCase`.
const RETIRED_WORDS: &[&str] = &[
    "told", "kept", "wish", "wishes", "heeded", "anew", "door", "doors", "seat", "seats", "deaf", "deafness",
    "shard", "shards", "patience", "humble", "thrift", "rung", "most", "least",
];
/// Identifiers that are retired as a whole; the words in them have other uses.
const RETIRED_NAMES: &[&str] =
    &["Node", "Link", "Edge", "Letter", "Direction", "Shared", "LOOK", "Judge", "Ledger", "News", "AGAIN"];
/// Identifiers that are not ours (str0m and the WebRTC API have a `Direction`), or comparisons.
const EXCEPTIONS: &[&str] = &["Direction", "AtLeast", "AtMost"];

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
        found.extend(parts.filter(|part| !part.is_empty()).map(|part| (number + 1, part)));
    }
    found
}

#[test]
fn retired_names_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in rust_files(root) {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        // The words themselves.
        if name.starts_with("tests/tidy") {
            continue;
        }
        let code = code(&std::fs::read_to_string(&file).unwrap());
        for (line, identifier) in identifiers(&code) {
            count += 1;
            let retired = RETIRED_NAMES.contains(&identifier)
                || words(identifier).iter().any(|word| RETIRED_WORDS.contains(&word.as_str()));
            if retired && !EXCEPTIONS.contains(&identifier) {
                wrong.push(format!("{name}:{line}: {identifier}"));
            }
        }
    }
    assert!(count > 50_000, "only {count} identifiers found");
    assert!(wrong.is_empty(), "docs/glossary.md has the names for these ({}): {wrong:#?}", wrong.len());
}

#[test]
fn the_words_of_an_identifier_are_found() {
    assert_eq!(words("MAX_WAIT"), ["max", "wait"]);
    assert_eq!(words("CallEngine"), ["call", "engine"]);
    let tests = "#[test]\nfn it_is_told() {\n    told();\n}\n";
    assert_eq!(identifiers(tests), [(3, "told")]);
}
