//! Every scenario of `tests/scenarios` prints what the `.out` file beside it contains. Each
//! scenario is a small story; its `name` says what a user would experience. Some have a `.why` file
//! with the explanations.
//!
//! After an intended change, `VISAVIS_ACCEPT=1` rewrites these files. Read the difference before
//! you commit it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use conversation::settings::AgentTurnConfig;
use conversation::simulate::simulate;
use serde_json::{Value, json};

fn scenarios_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn scenario_files(extension: &str) -> BTreeSet<PathBuf> {
    let entries = scenarios_folder().read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn each_scenario_prints_what_its_neighbour_says() {
    let mut wrong = Vec::new();
    for file in scenario_files("json") {
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
                    Some((printed, expected)) =>
                        format!("printed\n  {printed}\nexpected\n  {expected}"),
                    None => format!(
                        "{} lines, expected {}",
                        printed.lines().count(),
                        expected.lines().count()
                    ),
                }
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_scenario_says_what_a_person_would_experience() {
    let files = scenario_files("json");
    assert!(files.len() >= 60, "{} scenarios", files.len());
    let mut names = BTreeSet::new();
    for file in &files {
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let name = json["name"].as_str().unwrap_or_default();
        assert!(
            name.ends_with('.') && name.split_whitespace().count() >= 5,
            "{}: {name:?}",
            file.display()
        );
        assert!(names.insert(name.to_owned()), "{name:?} is in two files");
    }
}

#[test]
fn explanations_change_nothing_but_add_lines() {
    for file in scenario_files("json") {
        let json = std::fs::read(&file).unwrap();
        let (Ok(plain), Ok(explained)) = (simulate(&json, false), simulate(&json, true)) else {
            continue;
        };
        let without: String = explained
            .split_inclusive('\n')
            .filter(|line| !line.contains("\"what\":\"explain\""))
            .collect();
        assert_eq!(without, plain, "{}", file.display());
    }
}

/// The reason of each decision, in lines of `time why`.
fn explanations(json: &[u8]) -> String {
    let printed = simulate(json, true).unwrap();
    let lines = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let why = lines.filter(|line| line["what"] == "explain");
    why.map(|line| format!("{} {}\n", line["t"], line["why"].as_str().unwrap())).collect()
}

/// Some scenarios have a `.why` file with everything that `--explain` adds.
#[test]
fn each_decision_is_explained_as_the_scenarios_neighbour_says() {
    let files = scenario_files("why");
    assert!(files.len() >= 25, "{} explained scenarios", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let why = explanations(&std::fs::read(file.with_extension("json")).unwrap());
        if std::env::var_os("VISAVIS_ACCEPT").is_some() {
            std::fs::write(&file, &why).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap();
        if why != expected {
            wrong.push(format!(
                "{}: explained\n{why}expected\n{expected}",
                file.file_name().unwrap().display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each explanation contains the rule, the time and the setting that caused the decision.
#[test]
fn an_explanation_names_rule_deadline_and_setting() {
    let why = |p: Value, more: Value| -> Vec<String> {
        let mut scenario = json!({
            "settings": {
                "turn_threshold": 0.5,
                "transcript_timeout": 2.0,
                "min_endpointing_delay": 0.5,
                "max_endpointing_delay": 3.0,
            },
            "user": [{"from": 0.5, "to": 1.5, "text": "Tell me a story.", "end_of_turn": p}, more],
            "replies": [{"to": "*", "say": "Here is a long story for you.", "audio": 12}],
            "until": 14,
        });
        if p.is_null() {
            scenario["user"][0].as_object_mut().unwrap().remove("end_of_turn");
        }
        explanations(scenario.to_string().as_bytes()).lines().map(str::to_owned).collect()
    };
    let noise = || json!({"from": 6, "to": 7});
    for (p, expected) in [
        (
            json!(0.2),
            "4.5 committed: speech ended at 1.500 s, waited since 2.000 s, \
             turn model 0.2 < turn_threshold 0.5: max_endpointing_delay 3s",
        ),
        (
            json!(0.5),
            "2.0 committed: speech ended at 1.500 s, waited since 2.000 s, \
             turn model 0.5 >= turn_threshold 0.5: min_endpointing_delay 500ms",
        ),
        (
            json!(0.7),
            "2.0 committed: speech ended at 1.500 s, waited since 2.000 s, \
             turn model 0.7 >= turn_threshold 0.5: min_endpointing_delay 500ms",
        ),
        (
            json!(null),
            "2.0 committed: speech ended at 1.500 s, waited since 2.000 s, \
             min_endpointing_delay 500ms",
        ),
    ] {
        let lines = why(p, noise());
        let committed: Vec<&String> =
            lines.iter().filter(|why| why.contains("committed: ")).collect();
        assert_eq!(committed, [expected], "{lines:#?}");
        for expected in [
            "6.06 ducked: the user has spoken since 6.000 s, at least 60ms",
            "6.55 held: speech since 6.000 s lasted min_interruption_duration 500ms",
            "9.5 resumed: nothing was transcribed within false_interruption_timeout 2s",
        ] {
            assert!(lines.iter().any(|why| why == expected), "{expected}: {lines:#?}");
        }
    }
    let lines = why(json!(null), json!({"from": 6, "to": 6.2, "text": "Stop!"}));
    for expected in
        ["6.4 held: the user's words are final", "6.4 cancelled: the user's words are final"]
    {
        assert!(lines.iter().any(|why| why == expected), "{expected}: {lines:#?}");
    }
    // A transcript that never comes.
    let lines = why(json!(null), json!({"from": 6, "to": 7}));
    assert!(
        lines
            .iter()
            .any(|why| why == "9.5 transcript_timeout 2s: no transcript arrived, the turn is over"),
        "{lines:#?}"
    );
}

/// The same for failures and the end of a call.
#[test]
fn an_explanation_names_what_failed_and_what_it_waited_for() {
    let why = |scenario: Value| -> Vec<String> {
        explanations(scenario.to_string().as_bytes()).lines().map(str::to_owned).collect()
    };
    let answered = |answer: Value| {
        why(json!({
            "settings": {
                "max_call_duration": 30, "call_warning_before": 5,
                "warning_message": {"say": "Five more seconds.", "audio": 2},
                "min_endpointing_delay": 0.5, "preemptive_generation": false, "idle_timeout": null,
            },
            "user": [{"from": 0.5, "to": 1.5, "text": "Tell me a story."}],
            "replies": [{"to": "tool:slow", "say": "No idea.", "audio": 1}, answer],
            "tools": {"slow": {"takes": 25, "returns": 1}},
            "until": 40,
        }))
    };
    for (answer, expected) in [
        (
            json!({"to": "*", "say": "Once.", "audio": 1, "llm_ttft": 9}),
            "7.0 the LLM has failed: no first token for 5s (fixed) since 2.000 s",
        ),
        (
            json!({
                "to": "*",
                "say": "Once.",
                "audio": 1,
                "llm_ttft": 0.1,
                "llm_duration": 0.1,
                "tts_ttfb": 9,
            }),
            "7.1 the TTS has failed: no first audio for 5s (fixed) since 2.100 s",
        ),
        (
            json!({"to": "*", "calls": [{"tool": "slow"}], "llm_ttft": 0.1, "llm_duration": 0.1}),
            "22.1 the tool slow has failed: no result for 20s (fixed) since 2.100 s",
        ),
    ] {
        let lines = answered(answer);
        for expected in [
            expected,
            "25.0 warned: call_warning_before 5s of max_call_duration 30s",
            "25.0 warning_message is spoken: the floor is free",
            "30.0 max_call_duration 30s: the call ends",
        ] {
            assert!(lines.iter().any(|why| why == expected), "{expected}: {lines:#?}");
        }
    }
}

/// The same call with different presets and delays: when turns end, when the agent is held, and the
/// effect of a "yes" and of a single word.
#[test]
fn presets_and_delays_determine_the_times_of_a_call() {
    let lines = |agent: &AgentTurnConfig, end_of_turn: f64, over: Value| -> Vec<Value> {
        let spec = agent.to_spec().unwrap();
        let scenario = json!({
            "settings": {
                "min_endpointing_delay": spec.min_endpointing_delay.as_secs_f64(),
                "max_endpointing_delay": spec.max_endpointing_delay.as_secs_f64(),
                "min_interruption_duration": spec.min_interruption_duration.as_secs_f64(),
                "min_interruption_words": spec.min_interruption_words,
                "backchannels": spec.backchannels,
                "preemptive_generation": spec.preemptive_generation,
            },
            "vad": {"start": 0.05, "silence": 0.25},
            "user": [
                {"from": 0.5, "to": 1.5, "text": "Tell me a story.", "end_of_turn": end_of_turn},
                over,
            ],
            "replies": [{"to": "*", "say": "Here is a long story for you.", "audio": 20}],
            "until": 20,
        });
        let printed = simulate(scenario.to_string().as_bytes(), false).unwrap();
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let when = |lines: &[Value], what: &str| {
        lines.iter().find(|line| line["what"] == what).map(|line| line["t"].as_f64().unwrap())
    };
    let noise = || json!({"from": 10, "to": 12});
    let agent = |turn_handling, interruptability| AgentTurnConfig {
        turn_handling,
        interruptability,
        ..AgentTurnConfig::default()
    };
    for (word, sure, unsure, asked) in [
        (Some("proactive"), 1.8, 3.5, 1.7),
        (Some("balanced"), 1.9, 4.5, 1.7),
        (None, 1.9, 4.5, 1.7),
        (Some("deliberate"), 2.3, 6.5, 2.3),
    ] {
        let agent = agent(word, None);
        let (quick, slow) = (lines(&agent, 0.9, noise()), lines(&agent, 0.1, noise()));
        assert_eq!(when(&quick, "utterance_committed"), Some(sure), "{word:?}");
        assert_eq!(when(&slow, "utterance_committed"), Some(unsure), "{word:?}");
        assert_eq!(when(&quick, "llm.started"), Some(asked), "{word:?}");
    }
    for (word, held, yes, stop) in [
        (Some("high"), Some(10.3), Some(10.4), Some(10.4)),
        (Some("medium"), Some(10.55), None, Some(10.4)),
        (None, Some(10.55), None, Some(10.4)),
        (Some("low"), None, None, None),
    ] {
        let agent = agent(None, word);
        let short = |text: &str| json!({"from": 10, "to": 10.2, "text": text});
        let cut = |over| when(&lines(&agent, 0.9, over), "agent.interrupted");
        assert_eq!(
            (cut(noise()), cut(short("Yes.")), cut(short("Stop!"))),
            (held, yes, stop),
            "{word:?}"
        );
        let two = json!({"from": 10, "to": 12, "text": "Please stop!", "stt_delay": 0});
        assert_eq!(cut(two), held.or(Some(12.0)), "{word:?}");
    }
    // The agent's own delays override the preset; the delays of the STT override both.
    let turn = json!({"min_endpointing_delay": 1.0, "max_endpointing_delay": 2.5});
    let own = AgentTurnConfig { turn: Some(&turn), ..agent(Some("deliberate"), None) };
    let stated = AgentTurnConfig {
        min_endpointing_delay: Some(0.6),
        max_endpointing_delay: Some(1.2),
        ..own.clone()
    };
    for (agent, sure, unsure) in [(own, 2.5, 4.0), (stated, 2.1, 2.7)] {
        assert_eq!(when(&lines(&agent, 0.9, noise()), "utterance_committed"), Some(sure));
        assert_eq!(when(&lines(&agent, 0.1, noise()), "utterance_committed"), Some(unsure));
    }
}

#[test]
fn a_malformed_file_is_refused_by_the_name_of_its_field() {
    let refused = |json: &str| simulate(json.as_bytes(), false).unwrap_err().to_string();
    let cases = [
        ("{}", "until: is missing"),
        (r#"{"until": -1}"#, "until: must not be negative"),
        (r#"{"until": 1e8}"#, "until: must be at most 10000000 seconds"),
        (r#"{"until": "1"}"#, "until: must be a number"),
        (r#"{"until": 1, "x": 1}"#, "x: is unknown"),
        (
            r#"{"until": 1, "settings": {"min_endpointing_delay": 7}}"#,
            "settings.min_endpointing_delay: must not be greater than max_endpointing_delay",
        ),
        (r#"{"until": 1, "settings": {"speed": 7}}"#, "settings.speed: is unknown"),
        (
            r#"{"until": 1, "settings": {"greeting": {"audio": 1}}}"#,
            "settings.greeting.say: is missing",
        ),
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
        (
            r#"{"until": 1, "meeting": {"decide": "chance"}}"#,
            "meeting.decide: must be rules or model",
        ),
        (r#"{"until": 1, "user": [{"from": 1}]}"#, "user[0].to: is missing"),
        (r#"{"until": 1, "user": [{"from": 2, "to": 1}]}"#, "user[0].to: must not be before from"),
        (r#"{"until": 1, "user": {"from": 2}}"#, "user: must be a list"),
        (r#"{"until": 1, "replies": [{"say": "x"}]}"#, "replies[0].to: is missing"),
        (
            r#"{"until": 1, "replies": [{"to": "*", "fail": "stt"}]}"#,
            "replies[0].fail: must be llm or tts",
        ),
        (
            r#"{"until": 1, "replies": [{"to": "*", "parts": [{"fail": "llm"}]}]}"#,
            "replies[0].parts[0].fail: must be tts",
        ),
        (
            r#"{"until": 1, "replies": [{"to": "*", "say": "a b", "words": [["a", 1], ["c", 2]]}]}"#,
            "replies[0].words: must match the spoken text",
        ),
        (
            r#"{"until": 1, "replies": [{"to": "*", "say": "a b", "words": [["a", 2], ["b", 1]]}]}"#,
            "replies[0].words[1]: must not end before the previous word",
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
        (
            r#"{"until": 1, "actions": [{"at": 1, "do": "say", "text": "x"}]}"#,
            "actions[0].audio: is missing",
        ),
        (
            r#"{"until": 1, "actions": [{"at": 1, "do": "end", "text": "x"}]}"#,
            "actions[0].text: is unknown",
        ),
        ("[]", "file: must be an object"),
        // One of two values would be lost.
        (r#"{"until": 1, "until": 2}"#, "until: is duplicated in line 1"),
        (
            "{\"until\": 1, \"settings\": {\n\"idle_timeout\": 1,\n\"idle_timeout\": 1}}",
            "settings.idle_timeout: is duplicated in line 3",
        ),
        (
            r#"{"until": 1, "user": [{"from": 1, "to": 2}, {"from": 3, "from": 4, "to": 5}]}"#,
            "user[1].from: is duplicated in line 1",
        ),
        (
            r#"{"until": 1, "tools": {"t": {"takes": 1, "returns": [0, {"a": 1, "a": 2}]}}}"#,
            "tools.t.returns[1].a: is duplicated in line 1",
        ),
        (r#"{"until": 1, "": 1}"#, r#""": is unknown"#),
        (r#"{"": 1, "": 1}"#, r#""": is duplicated in line 1"#),
        (r#"{"until": 1, "two\nlines": 1}"#, r"two\nlines: is unknown"),
        // Invalid JSON is reported at the value where it becomes invalid.
        (r#"{"until": NaN}"#, "until: is not valid JSON: expected value at line 1 column 11"),
        (
            r#"{"until": 1, "settings": {"idle_timeout": -Infinity}}"#,
            "settings.idle_timeout: is not valid JSON: invalid number at line 1 column 44",
        ),
        (
            r#"{"until": 1, "user": [{"from": 1, "to": 1e999}]}"#,
            "user[0].to: is not valid JSON: number out of range at line 1 column 45",
        ),
        (
            r#"{"until": 1, "user": [{"from": 1"#,
            "user[0]: is not valid JSON: EOF while parsing an object at line 1 column 32",
        ),
        (r#"{"until": 1,}"#, "file: is not valid JSON: trailing comma at line 1 column 13"),
    ];
    for (json, expected) in cases {
        assert_eq!(refused(json), expected, "{json}");
    }
    assert!(refused("{\"until\": 1").starts_with("file: is not valid JSON"));
    let large = vec![b' '; (16 << 20) + 1];
    assert_eq!(simulate(&large, false).unwrap_err().to_string(), "file: is larger than 16 MiB");
    assert!(!refused("{\"until\": 1").contains('\n'));
}
