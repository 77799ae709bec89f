//! A trace replays exactly, and an error in a trace is reported in one sentence.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::path::Path;

use conversation::conversation::Conversation;
use conversation::id::ConversationId;
use conversation::input::{Command, CommandId, Input, SpeechSegmentId, ToolCallId, TurnHint};
use conversation::output::Output;
use conversation::replay::{Replay, TraceError, Verdict};
use conversation::settings::Settings;
use conversation::simulate::{simulate, simulate_traced};
use conversation::spec::Spec;
use conversation::time::Time;
use conversation::trace;
use serde_json::{Value, json};

/// What a replay of these bytes prints, and its verdict.
fn replay(trace: &[u8], explain: bool) -> Result<(String, Verdict), TraceError> {
    let mut replay = Replay::new(explain);
    let mut printed = String::new();
    for line in trace.split_inclusive(|byte| *byte == b'\n') {
        printed += &match line.strip_suffix(b"\n") {
            Some(line) => replay.read_line(line)?,
            None => replay.read_partial_line(line)?,
        };
    }
    let (summary, verdict) = replay.finish()?;
    Ok((printed + &summary, verdict))
}

fn read_scenarios() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let json = files.filter(|path| path.extension().is_some_and(|e| e == "json"));
    json.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

/// Everything except the time of the summary: `until` in a scenario, the last line in a trace.
fn without_summary_time(printed: &str) -> (Vec<&str>, Value) {
    let mut lines: Vec<&str> = printed.lines().collect();
    let mut summary: Value = serde_json::from_str(lines.pop().unwrap()).unwrap();
    summary["t"].take();
    (lines, summary)
}

#[test]
fn every_scenario_replays_from_its_trace_and_prints_what_simulate_prints() {
    let mut played = 0;
    for (file, json) in read_scenarios() {
        let (printed, trace) = simulate_traced(&json).unwrap();
        for explain in [false, true] {
            let (replayed, verdict) = replay(trace.as_bytes(), explain).unwrap();
            let simulated = simulate(&json, explain).unwrap();
            assert_eq!(without_summary_time(&replayed), without_summary_time(&simulated), "{file}");
            let ended = printed.contains("\"what\":\"ended\"");
            match verdict {
                Verdict::Identical { inputs, .. } => {
                    assert!(
                        ended && inputs + 1 == trace.lines().count() as u64,
                        "{file}: {verdict}"
                    );
                }
                Verdict::Truncated { line, .. } => {
                    assert!(!ended && line == trace.lines().count() as u64, "{file}: {verdict}");
                }
                _ => panic!("{file}: {verdict}"),
            }
        }
        played += 1;
    }
    assert!(played >= 60, "only {played} scenarios were played");
}

/// A trace of a call that ends, of some fifty lines.
fn story_trace() -> String {
    let scenario = json!({
        "settings": {"echo_warmup": 0},
        "user": [
            {"from": 0.5, "to": 2.5, "text": "Tell me a story."},
            {"from": 5, "to": 5.9, "text": "Stop!"},
            {"from": 8, "to": 9, "text": "What is the weather?"},
        ],
        "replies": [
            {
                "to": "Tell me a story.",
                "say": "Here is a long story for you, and it does not end.",
                "audio": 10,
            },
            {
                "to": "What is the weather?",
                "say": "Let me see.",
                "audio": 1,
                "calls": [{"tool": "weather", "arguments": {"far": 1e23, "near": 0.1}}],
            },
            {"to": "tool:weather", "say": "It is sunny.", "audio": 1},
        ],
        "tools": {
            "weather": {
                "takes": 0.5,
                "returns": {"wind": 0.30000000000000004, "text": "\u{7f}\n\"sunny\" \u{2028}日本"},
            },
        },
        "actions": [{"at": 14, "do": "leave"}],
        "until": 20,
    });
    simulate_traced(scenario.to_string().as_bytes()).unwrap().1
}

#[test]
fn each_output_that_is_another_is_found_where_it_stands() {
    let trace = story_trace();
    let lines: Vec<&str> = trace.lines().collect();
    let mut found = 0;
    for (number, line) in lines.iter().enumerate().skip(1) {
        let out = serde_json::from_str::<Value>(line).unwrap()["out"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for (at, output) in out.iter().enumerate() {
            // Change one character of it.
            let text = output.to_string();
            let digit = text.rfind(|c: char| c.is_ascii_alphanumeric()).unwrap();
            let other = if &text[digit..=digit] == "x" { "y" } else { "x" };
            let changed = format!("{}{other}{}", &text[..digit], &text[digit + 1..]);
            // If the result is not valid JSON, replace the output by one that never occurs.
            let valid = serde_json::from_str::<Value>(&changed).is_ok();
            let changed = if valid { changed } else { "\"Nothing\"".to_owned() };
            let whole = line.replacen(&text, &changed, 1);
            assert_ne!(*line, whole, "{text}");
            let bent: Vec<&str> = lines
                .iter()
                .enumerate()
                .map(|(i, l)| if i == number { whole.as_str() } else { *l })
                .collect();
            let (_, verdict) = replay((bent.join("\n") + "\n").as_bytes(), false).unwrap();
            let Verdict::Differs(difference) = &verdict else { panic!("{changed}: {verdict}") };
            // An earlier output of the line may contain the same text.
            assert!(
                difference.line == number as u64 + 1 && difference.output <= at + 1,
                "{changed}: {verdict}"
            );
            assert_ne!(difference.live, difference.replayed);
            found += 1;
        }
    }
    assert!(found > 50, "{found}");
}

#[test]
fn an_output_too_many_or_too_few_is_a_difference() {
    let trace = story_trace();
    let first = trace.lines().position(|line| line.contains("\"out\":[")).unwrap();
    let bend = |change: &dyn Fn(&str) -> String| {
        let lines: Vec<String> = trace
            .lines()
            .enumerate()
            .map(|(i, l)| if i == first { change(l) } else { l.to_owned() })
            .collect();
        let (_, verdict) = replay((lines.join("\n") + "\n").as_bytes(), false).unwrap();
        let sentence = verdict.to_string();
        assert!(sentence.starts_with(&format!("line {} (", first + 1)), "{sentence}");
        sentence
    };
    let more = bend(&|line| format!("{},\"Duck\"]}}", &line[..line.len() - 2]));
    assert!(more.contains("is \"Duck\" in the live call, and absent in the replay"), "{more}");
    let less = bend(&|line| format!("{}}}", &line[..line.find(",\"out\":").unwrap()]));
    assert!(less.contains("output 1 is absent in the live call, and {"), "{less}");
    assert!(!less.contains("version"), "{less}");
    let elsewhere = trace.replacen("\"visavis\":\"0.1.0\"", "\"visavis\":\"0.0.9\"", 1);
    let elsewhere =
        elsewhere.replacen("\"what\":\"user.started_speaking\"", "\"what\":\"user.idle\"", 1);
    let (_, verdict) = replay(elsewhere.as_bytes(), false).unwrap();
    assert!(
        verdict.to_string().contains("(the call ran on version 0.0.9, this is 0.1.0)"),
        "{verdict}"
    );
}

#[test]
fn a_trace_that_breaks_off_replays_as_far_as_it_goes() {
    let trace = story_trace();
    let (whole, verdict) = replay(trace.as_bytes(), false).unwrap();
    assert!(matches!(verdict, Verdict::Identical { .. }), "{verdict}");
    let header = trace.find('\n').unwrap() + 1;
    // The server is killed at any byte.
    for end in (header..trace.len() - 1).step_by(7) {
        let (printed, verdict) =
            replay(&trace.as_bytes()[..end], false).unwrap_or_else(|bad| panic!("{end}: {bad}"));
        // A line without its newline may be complete.
        if matches!(verdict, Verdict::Identical { .. }) {
            continue;
        }
        assert!(matches!(verdict, Verdict::Truncated { .. }), "{end}: {verdict}");
        let (lines, _) = without_summary_time(&printed);
        assert!(whole.starts_with(&lines.join("\n")), "{end}");
    }
    let (_, verdict) = replay(&trace.as_bytes()[..header], false).unwrap();
    assert_eq!(
        verdict.to_string(),
        "identical up to the end of the trace: it is truncated after line 1 (0.000 s), before the \
         end of the call"
    );
}

#[test]
fn missing_inputs_end_a_replay() {
    let trace = story_trace();
    let lines: Vec<&str> = trace.lines().collect();
    let text = format!("{}\n{{\"dropped\":3}}\nnot even JSON\n", lines[..9].join("\n"));
    let (_, verdict) = replay(text.as_bytes(), false).unwrap();
    assert_eq!(
        verdict.to_string(),
        "identical up to line 10: 3 inputs are missing there because the disk was too slow, \
         and the rest cannot be replayed"
    );
}

/// Every value that an input can hold reads back exactly.
#[test]
fn every_input_reads_back_as_it_was_written() {
    let numbers = [0.1, 1e-320, 5e-324, 1.797_693_134_862_315_7e308, 123_456_789.123_456_79, -0.0];
    let mut inputs: Vec<Input> = numbers
        .iter()
        .flat_map(|n| {
            [
                Ok(json!(n)),
                Ok(json!({"deep": [n, null, {"": u64::MAX}]})),
                Err(format!("{n} \u{0}\n")),
            ]
        })
        .map(|result| Input::ToolResult { call: ToolCallId(u32::MAX), result })
        .collect();
    inputs.extend(
        [0.1_f32, 1e-45, f32::MAX, 16_777_217.0]
            .map(|p| Input::TurnProbability { speech_segment: SpeechSegmentId(0), probability: p }),
    );
    inputs.push(Input::Command { id: CommandId(1), command: Command::Leave });
    inputs.extend([TurnHint::EagerEnd, TurnHint::Resumed, TurnHint::End].map(Input::TurnHint));
    inputs.push(Input::SttProvider("deepgram".into()));
    for input in inputs {
        let text = trace::step_line(Time::ZERO, &input, &[]);
        let line: Value = serde_json::from_str(&text).unwrap();
        let again: Input = serde_json::from_value(line["input"].clone()).unwrap();
        assert_eq!(again, input);
        assert_eq!(trace::step_line(Time::ZERO, &again, &[]), text);
    }
    // NaN is written as null; it reads back as NaN and is ignored.
    let text = trace::step_line(
        Time::ZERO,
        &Input::TurnProbability { speech_segment: SpeechSegmentId(0), probability: f32::NAN },
        &[],
    );
    let whole = trace::header_line(ConversationId(0), 0, &product_spec()) + &text;
    assert!(matches!(replay(whole.as_bytes(), false), Ok((_, Verdict::Truncated { line: 2, .. }))));
}

fn product_spec() -> Spec {
    Settings::product_defaults().to_spec().unwrap()
}

#[test]
fn a_malformed_trace_is_refused_by_line_field_and_reason() {
    let header = trace::header_line(ConversationId(0), 0, &product_spec());
    let refused = |text: &str| replay(text.as_bytes(), false).unwrap_err().to_string();
    let cases = [
        ("", "line 1: is missing: the file is empty"),
        ("[]\n", "line 1: must be an object"),
        ("{}\n", "line 1: trace: is missing: the file is not a call trace"),
        ("{\"until\": 3}\n", "line 1: trace: is missing: the file is not a call trace"),
        ("{\"trace\":2}\n", "line 1: trace: is 2, but this program reads version 1"),
        ("{\"trace\":\"1\"}\n", "line 1: trace: is \"1\", but this program reads version 1"),
        ("{\"trace\":1}\n", "line 1: visavis: is missing"),
        ("{\"trace\":1,\"trace\":1}\n", "line 1: trace: is duplicated"),
        ("{\"trace\":1,\"visavis\":\"0\",\"visavis\":\"1\"}\n", "line 1: visavis: is duplicated"),
        ("not JSON\n", "line 1: is not valid JSON: expected ident (column 2)"),
        ("{\"trace\":1", "line 1: is not valid JSON: EOF while parsing an object (column 10)"),
        ("\u{0}", "line 1: is not valid JSON: expected value (column 1)"),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected, "{text:?}");
    }
    let lines = [
        ("nonsense", "is not valid JSON: expected ident (column 2)"),
        ("", "is not valid JSON: EOF while parsing a value (column 0)"),
        ("{\"at\":NaN}", "at: is not valid JSON: expected value (column 7)"),
        (
            "{\"at\":1,\"input\":{\"TurnProbability\":{\"stretch\":0,\"p\":NaN}}}",
            "input.TurnProbability.p: is not valid JSON: expected value (column 53)",
        ),
        ("{\"at\":1}", "input: is missing"),
        ("{\"input\":\"Tick\"}", "at: is missing"),
        (
            "{\"at\":-1,\"input\":\"Tick\"}",
            "at: invalid value: integer `-1`, expected a whole number that is not negative",
        ),
        (
            "{\"at\":1.5,\"input\":\"Tick\"}",
            "at: invalid type: floating point `1.5`, expected a whole number that is not negative",
        ),
        (
            "{\"at\":\"1\",\"input\":\"Tick\"}",
            "at: invalid type: string \"1\", expected a whole number that is not negative",
        ),
        ("{\"at\":10000000000001,\"input\":\"Tick\"}", "at: must be at most 10000000 seconds"),
        ("{\"at\":1,\"input\":\"Tick\",\"colour\":1}", "colour: is unknown"),
        ("{\"at\":1,\"input\":\"Tick\"} {}", "is not valid JSON: trailing characters (column 25)"),
        ("{\"at\":1,\"input\":\"Tick\",\"dropped\":1}", "dropped: must be the only field"),
        (
            "{\"dropped\":-1}",
            "dropped: invalid value: integer `-1`, expected a whole number that is not negative",
        ),
        ("{\"at\":1,\"input\":{\"SpeechStarted\":{}}}", "input.SpeechStarted.onset: is missing"),
        (
            "{\"at\":1,\"input\":{\"SpeechStarted\":{\"onset\":1,\"loud\":2}}}",
            "input.SpeechStarted.loud: is unknown",
        ),
        (
            "{\"at\":1,\"input\":{\"Transcript\":{\"text\":1,\"is_final\":true}}}",
            "input.Transcript.text: invalid type: integer `1`, expected a string",
        ),
        (
            "{\"at\":1,\"input\":{\"Fact\":{\"what\":\"warning\",\"text\":\"x\",\"colour\":1}}}",
            "input.Fact.colour: is unknown",
        ),
        // One of two values would be lost.
        ("{\"at\":1,\"at\":1,\"input\":\"Tick\"}", "at: is duplicated"),
        (
            "{\"at\":1,\"input\":{\"SpeechStarted\":{\"onset\":1,\"onset\":1}}}",
            "input.SpeechStarted.onset: is duplicated",
        ),
        (
            "{\"at\":1,\"input\":{\"Tool\":{\"call\":0,\"result\":{\"Ok\":[{\"a\":1,\"a\":1}]}}}}",
            "input.Tool.result.Ok[0].a: is duplicated",
        ),
        ("{\"at\":1,\"input\":\"Tick\",\"two\\nlines\":1}", "two\\nlines: is unknown"),
    ];
    for (line, expected) in lines {
        for more in ["\n", "\n{\"at\":1,\"input\":\"Tick\"}\n"] {
            assert_eq!(
                refused(&format!("{header}{line}{more}")),
                format!("line 2: {expected}"),
                "{line}"
            );
        }
    }
    assert!(
        refused(&format!("{header}{{\"at\":1,\"input\":\"Tock\"}}\n"))
            .starts_with("line 2: input: unknown variant `Tock`")
    );
    let twice = header.replacen("\"spec\":{", "\"spec\":{\"preemptive_tts\":true,", 1);
    assert_eq!(refused(&twice), "line 1: spec.preemptive_tts: is duplicated");
    let nan = header.replacen("\"preemptive_tts\":false", "\"preemptive_tts\":NaN", 1);
    let sentence = refused(&nan);
    assert!(
        sentence
            .starts_with("line 1: spec.preemptive_tts: is not valid JSON: expected value (column "),
        "{sentence}"
    );
    let back =
        format!("{header}{{\"at\":5,\"input\":\"Tick\"}}\n{{\"at\":4,\"input\":\"Tick\"}}\n");
    assert_eq!(refused(&back), "line 3: at: is 4 µs, which is earlier than the previous line");
    let mut bytes = header.clone().into_bytes();
    bytes.extend(b"{\"at\":1,\"input\":\"\xff\"}\n");
    assert_eq!(replay(&bytes, false).unwrap_err().to_string(), "line 2: is not UTF-8");
    let long = format!("{header}{}\n", " ".repeat(trace::MAX_LINE_BYTES + 1));
    assert_eq!(refused(&long), "line 2: is longer than 4 MiB");
}

#[test]
fn settings_that_no_agent_can_have_are_refused() {
    let refused = |path: &[&str], value: Value| {
        let mut header: Value =
            serde_json::from_str(&trace::header_line(ConversationId(0), 0, &product_spec()))
                .unwrap();
        let place = path.iter().fold(&mut header["spec"], |place, key| &mut place[*key]);
        *place = value;
        replay(format!("{header}\n").as_bytes(), false).unwrap_err().to_string()
    };
    let seconds = |secs: i64| json!({"secs": secs, "nanos": 0});
    let cases: [(&[&str], Value, &str); 9] = [
        (
            &["min_endpointing_delay"],
            seconds(7),
            "min_endpointing_delay: must not be greater than max_endpointing_delay",
        ),
        (
            &["echo_warmup", "secs"],
            json!(-1),
            "echo_warmup.secs: invalid value: integer `-1`, expected a whole number that is not \
             negative",
        ),
        (&["echo_warmup"], seconds(10_000_001), "echo_warmup: must be at most 10000000 seconds"),
        (&["vad", "silence"], seconds(i64::MAX), "vad.silence: must be at most 10000000 seconds"),
        (&["turn_threshold"], json!(1.5), "turn_threshold: must be between 0 and 1"),
        (&["turn_threshold"], json!(null), "turn_threshold: invalid type: null, expected f32"),
        (&["idle_timeout"], seconds(0), "idle_timeout: must not be 0"),
        (&["speed"], json!(1), "speed: is unknown"),
        (
            &["phrasing"],
            json!("Loud"),
            "phrasing: unknown variant `Loud`, expected `Stream` or `Flushed`",
        ),
    ];
    for (path, value, expected) in cases {
        assert_eq!(refused(path, value), format!("line 1: spec.{expected}"));
    }
}

/// A file may ask for 116 days (1e7 s) of call-outs between two lines. The replay ends at the first
/// call-out that the file does not have; if the file has them all, there are too many deadlines.
#[test]
fn a_replay_skips_long_gaps_between_lines() {
    let settings = Settings {
        idle_timeout: Some(0.001),
        idle_end_after: None,
        max_call_duration: None,
        ..Settings::product_defaults()
    };
    let spec = settings.to_spec().unwrap();
    let header = trace::header_line(ConversationId(0), 0, &spec);
    for at in [10_000_000_000_000_u64, 1_000_000] {
        let text = format!("{header}{{\"at\":{at},\"input\":\"Tick\"}}\n");
        let (_, verdict) = replay(text.as_bytes(), false).unwrap();
        let Verdict::Differs(difference) = &verdict else { panic!("{verdict}") };
        assert!(difference.output == 1 && difference.live.is_none(), "{verdict}");
    }
    let whole = |seconds: f64| {
        let (mut conversation, at) = (Conversation::new(spec.clone()), Time::from_seconds(seconds));
        conversation.handle(Input::Tick, at);
        let out: Vec<Output> = std::iter::from_fn(|| conversation.poll()).collect();
        replay((header.clone() + &trace::step_line(at, &Input::Tick, &out)).as_bytes(), false)
    };
    assert!(matches!(whole(9.0), Ok((_, Verdict::Truncated { line: 2, .. }))));
    assert_eq!(
        whole(11.0).unwrap_err().to_string(),
        "line 2: at: leaves more than 10000 deadlines unprocessed since the previous line"
    );
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// Every damaged trace ends its replay with one sentence.
#[test]
fn a_trace_that_was_bent_at_random_ends_with_one_sentence() {
    let mut random = Random(1);
    let traces: Vec<String> = read_scenarios()
        .iter()
        .map(|(_, json)| simulate_traced(json).unwrap().1)
        .chain([story_trace()])
        .collect();
    let mut ends = [0; 5];
    for round in 0..4_000 {
        let mut lines: Vec<String> =
            traces[random.below(traces.len())].lines().map(str::to_owned).collect();
        for _ in 0..=random.below(3) {
            let (one, other) = (random.below(lines.len()), random.below(lines.len()));
            match random.below(6) {
                0 => lines.swap(one, other),
                1 => drop(lines.remove(one)),
                2 => lines.insert(one, lines[other].clone()),
                3 => {
                    // Another input in its place leads to other outputs.
                    let (a, b) = (
                        serde_json::from_str::<Value>(&lines[one]),
                        serde_json::from_str::<Value>(&lines[other]),
                    );
                    if let (Ok(mut a), Ok(mut b)) = (a, b)
                        && let (Some(a), Some(b)) = (a.as_object_mut(), b.as_object_mut())
                        && let Some(input) = b.remove("input")
                    {
                        a.insert("input".into(), input);
                        lines[one] = json!(a).to_string();
                    }
                }
                _ => {
                    let mut bytes = std::mem::take(&mut lines[one]).into_bytes();
                    if !bytes.is_empty() {
                        let at = random.below(bytes.len());
                        bytes[at] = b"0123456789-+.eE\"\\{}[],: \x00\x7fnT"[random.below(28)];
                    }
                    lines[one] = String::from_utf8_lossy(&bytes).into_owned();
                }
            }
            if lines.is_empty() {
                break;
            }
        }
        let sentence = match replay((lines.join("\n") + "\n").as_bytes(), round % 2 == 0) {
            Ok((_, verdict)) => {
                ends[match verdict {
                    Verdict::Identical { .. } => 0,
                    Verdict::Truncated { .. } => 1,
                    Verdict::Gap { .. } => 2,
                    Verdict::Differs(_) => 3,
                }] += 1;
                verdict.to_string()
            }
            Err(bad) => {
                ends[4] += 1;
                bad.to_string()
            }
        };
        assert!(!sentence.contains('\n') && !sentence.is_empty(), "{sentence:?}");
    }
    // Each of these occurred. No scenario writes gaps.
    assert!([0, 1, 3, 4].iter().all(|end| ends[*end] >= 20), "{ends:?}");
}
