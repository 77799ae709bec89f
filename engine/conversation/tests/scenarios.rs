//! Every file of `tests/scenarios` prints what its neighbour `.out` holds. Each is a small story; its `name` says what a person would
//! experience. After a change that is meant, `VISAVIS_ACCEPT=1` writes the neighbours anew: read the difference before committing it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use conversation::simulate::simulate;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn files(extension: &str) -> BTreeSet<PathBuf> {
    let entries = folder().read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn each_scenario_prints_what_its_neighbour_says() {
    let mut wrong = Vec::new();
    for file in files("json") {
        let json = std::fs::read(&file).unwrap();
        let neighbour = file.with_extension("out");
        let printed = match simulate(&json, false) {
            Ok(printed) => printed,
            Err(bad) => format!("{bad}\n"),
        };
        if std::env::var_os("VISAVIS_ACCEPT").is_some() {
            std::fs::write(&neighbour, &printed).unwrap();
        }
        let expected = std::fs::read_to_string(&neighbour).unwrap_or_default();
        let lines = printed.lines().zip(expected.lines()).find(|(a, b)| a != b);
        if printed != expected {
            wrong.push(format!(
                "{}: {}",
                file.file_name().unwrap().display(),
                match lines {
                    Some((printed, expected)) => format!("printed\n  {printed}\nexpected\n  {expected}"),
                    None =>
                        format!("{} lines, expected {}", printed.lines().count(), expected.lines().count()),
                }
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_scenario_says_what_a_person_would_experience() {
    let files = files("json");
    assert!(files.len() >= 60, "{} scenarios", files.len());
    let mut names = BTreeSet::new();
    for file in &files {
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let name = json["name"].as_str().unwrap_or_default();
        assert!(name.ends_with('.') && name.split_whitespace().count() >= 5, "{}: {name:?}", file.display());
        assert!(names.insert(name.to_owned()), "{name:?} stands in two files");
    }
}

#[test]
fn explanations_change_nothing_but_add_lines() {
    for file in files("json") {
        let json = std::fs::read(&file).unwrap();
        let (Ok(plain), Ok(explained)) = (simulate(&json, false), simulate(&json, true)) else { continue };
        let without: String =
            explained.split_inclusive('\n').filter(|line| !line.contains("\"what\":\"explain\"")).collect();
        assert_eq!(without, plain, "{}", file.display());
    }
}

#[test]
fn a_malformed_file_is_refused_by_the_name_of_its_field() {
    let refused = |json: &str| simulate(json.as_bytes(), false).unwrap_err().to_string();
    let cases = [
        ("{}", "until: is missing"),
        (r#"{"until": -1}"#, "until: must not be negative"),
        (r#"{"until": 1e8}"#, "until: must not be greater than 1e7 s"),
        (r#"{"until": "1"}"#, "until: must be a number"),
        (r#"{"until": 1, "x": 1}"#, "x: is unknown"),
        (
            r#"{"until": 1, "settings": {"min_endpointing_delay": 7}}"#,
            "settings.min_endpointing_delay: must not be greater than max_endpointing_delay",
        ),
        (r#"{"until": 1, "settings": {"speed": 7}}"#, "settings.speed: is unknown"),
        (r#"{"until": 1, "settings": {"greeting": {"audio": 1}}}"#, "settings.greeting.say: is missing"),
        (
            r#"{"until": 1, "settings": {"exit_message": {"say": "x", "wait": 1}}}"#,
            "settings.exit_message.wait: is unknown",
        ),
        (
            r#"{"until": 1, "settings": {"turn_threshold": 1.5}}"#,
            "settings.turn_threshold: must be between 0 and 1",
        ),
        (
            r#"{"until": 1, "settings": {"backchannels": null}}"#,
            "settings.backchannels: must be true or false",
        ),
        (r#"{"until": 1, "vad": {"begin": 1}}"#, "vad.begin: is unknown"),
        (r#"{"until": 1, "user": [{"from": 1}]}"#, "user[0].to: is missing"),
        (r#"{"until": 1, "user": [{"from": 2, "to": 1}]}"#, "user[0].to: must not be before from"),
        (r#"{"until": 1, "user": {"from": 2}}"#, "user: must be a list"),
        (r#"{"until": 1, "replies": [{"say": "x"}]}"#, "replies[0].to: is missing"),
        (r#"{"until": 1, "replies": [{"to": "*", "fail": "stt"}]}"#, "replies[0].fail: must be llm or tts"),
        (
            r#"{"until": 1, "replies": [{"to": "*", "parts": [{"fail": "llm"}]}]}"#,
            "replies[0].parts[0].fail: must be tts",
        ),
        (
            r#"{"until": 1, "replies": [{"to": "*", "say": "a b", "words": [["a", 1], ["c", 2]]}]}"#,
            "replies[0].words: must spell what is said",
        ),
        (
            r#"{"until": 1, "replies": [{"to": "*", "say": "a b", "words": [["a", 2], ["b", 1]]}]}"#,
            "replies[0].words[1]: must not end before the word before it",
        ),
        (
            r#"{"until": 1, "replies": [{"to": "*", "calls": [{"arguments": {}}]}]}"#,
            "replies[0].calls[0].tool: is missing",
        ),
        (r#"{"until": 1, "tools": {"t": {"takes": 1}}}"#, "tools.t.returns: is missing"),
        (r#"{"until": 1, "tools": {"t": {"returns": 1}}}"#, "tools.t.takes: is missing"),
        (
            r#"{"until": 1, "actions": [{"at": 1, "do": "shout"}]}"#,
            "actions[0].do: must be interrupt, respond, say, context, end or leave",
        ),
        (r#"{"until": 1, "actions": [{"at": 1, "do": "say", "text": "x"}]}"#, "actions[0].audio: is missing"),
        (r#"{"until": 1, "actions": [{"at": 1, "do": "end", "text": "x"}]}"#, "actions[0].text: is unknown"),
        ("[]", "file: must be an object"),
    ];
    for (json, expected) in cases {
        assert_eq!(refused(json), expected, "{json}");
    }
    assert!(refused("{\"until\": 1").starts_with("file: is no JSON"));
    assert!(refused("{\"until\": NaN}").starts_with("file: is no JSON"));
    let large = vec![b' '; (16 << 20) + 1];
    assert_eq!(simulate(&large, false).unwrap_err().to_string(), "file: is larger than 16 MiB");
    assert!(!refused("{\"until\": 1").contains('\n'));
}
