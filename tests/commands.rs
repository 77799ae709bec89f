//! Tests of the commands that read a file: their output, and how they reject an invalid file. They
//! run the built binary with a memory limit.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use conversation::simulate::simulate_traced;

/// Maximum address space of a command, in KiB. Most of it is the program's code and stacks.
const MEMORY_LIMIT_KIB: u64 = 700 << 10;

struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("visavis-commands-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The result of `visavis check` in a data folder: the exit code and the line of each name.
fn run_check(
    data: &Path,
    avatars: Option<&Path>,
    env: &[(&str, &str)],
) -> (Option<i32>, Vec<CheckLine>) {
    let config = data.join("config.toml");
    let table = avatars.map_or(String::new(), |dir| format!("[avatars]\ndir = {dir:?}\n"));
    fs::write(&config, table).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_visavis"));
    command.arg("check").arg("--json").arg("--data").arg(data).arg("--config").arg(config);
    let output = command.env_clear().envs(env.iter().copied()).output().unwrap();
    let lines = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), lines)
}

#[derive(serde::Deserialize)]
struct CheckLine {
    name: String,
    kind: String,
    ready: bool,
    needed: bool,
    detail: String,
}

#[track_caller]
fn line_of<'a>(lines: &'a [CheckLine], name: &str) -> &'a CheckLine {
    lines.iter().find(|line| line.name == name).unwrap()
}

fn run_command(command: &str, file: &Path, explain: bool) -> Output {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        &format!("ulimit -v {MEMORY_LIMIT_KIB}; exec \"$@\""),
        "sh",
        env!("CARGO_BIN_EXE_visavis"),
        command,
    ]);
    shell.arg(file).args(explain.then_some("--explain")).env_clear().output().unwrap()
}

/// The one-sentence error message, without the file's name.
fn refusal_message(command: &str, file: &Path) -> String {
    let output = run_command(command, file, false);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{command} {}: {stderr}", file.display());
    assert_eq!(stderr.matches('\n').count(), 1, "{command} {}: {stderr}", file.display());
    let stderr = stderr.trim_end();
    stderr.strip_prefix(&format!("{}: ", file.display())).unwrap_or(stderr).to_owned()
}

const SCENARIO: &str = r#"{
    "user": [{"from": 0.5, "to": 2.5, "text": "Tell me a story."}, {"from": 5, "to": 6, "text": "Stop!"}],
    "replies": [{"to": "Tell me a story.", "say": "Here is a long story for you, and it does not end.", "audio": 10}],
    "actions": [{"at": 9, "do": "leave"}],
    "until": 20
}"#;

#[test]
fn replay_prints_what_simulate_printed_and_says_that_it_is_identical() {
    let folder = TempFolder::new("same");
    let scenario = folder.write_file("talk.json", SCENARIO);
    let (_, text) = simulate_traced(SCENARIO.as_bytes()).unwrap();
    let trace = folder.write_file("talk.jsonl", &text);
    for explain in [false, true] {
        let (simulated, replayed) =
            (run_command("simulate", &scenario, explain), run_command("replay", &trace, explain));
        assert_eq!(simulated.status.code(), Some(0));
        assert_eq!(replayed.status.code(), Some(0));
        assert_eq!(
            String::from_utf8_lossy(&replayed.stdout),
            String::from_utf8_lossy(&simulated.stdout)
        );
        let stderr = String::from_utf8_lossy(&replayed.stderr).into_owned();
        assert!(
            stderr.starts_with("identical: ")
                && stderr.ends_with(" of the live call, byte for byte\n"),
            "{stderr}"
        );
        assert_eq!(
            String::from_utf8_lossy(&simulated.stdout).contains("\"what\":\"explain\""),
            explain
        );
    }

    let broken = folder.write_file("broken.jsonl", &text[..text.len() / 2]);
    let output = run_command("replay", &broken, false);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && stderr.starts_with("identical up to the end of the trace: "),
        "{stderr}"
    );
    assert_eq!(stderr.matches('\n').count(), 1, "{stderr}");

    let lines: Vec<&str> = text.lines().collect();
    let gap = folder.write_file(
        "gap.jsonl",
        format!("{}\n{{\"dropped\":3}}\n{}\n", lines[..4].join("\n"), lines[5..].join("\n")),
    );
    let output = run_command("replay", &gap, false);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "a missing output may have been different: {stderr}");
    assert!(stderr.contains("3 inputs are missing there"), "{stderr}");

    let other = folder.write_file(
        "other.jsonl",
        text.replacen("\"text\":\"Here is\"", "\"text\":\"Here is a\"", 1),
    );
    let output = run_command("replay", &other, false);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with("line ")
            && stderr.contains(" differs: output ")
            && stderr.contains("Here is a"),
        "{stderr}"
    );
    assert_eq!(stderr.matches('\n').count(), 1, "{stderr}");
}

#[test]
fn an_unreadable_file_is_rejected_in_one_sentence() {
    let folder = TempFolder::new("bad");
    let missing = folder.0.join("missing");
    let header = simulate_traced(SCENARIO.as_bytes()).unwrap().1.lines().next().unwrap().to_owned();
    for command in ["simulate", "replay"] {
        assert_eq!(refusal_message(command, &missing), "No such file or directory (os error 2)");
        assert_eq!(refusal_message(command, &folder.0), "Is a directory (os error 21)");
    }
    let cases = [
        (
            "simulate",
            String::new(),
            "file: is not valid JSON: EOF while parsing a value at line 1 column 0",
        ),
        ("simulate", "{\"until\": 1, \"colour\": 1}".into(), "colour: is unknown"),
        (
            "simulate",
            "{\"until\": 1,\n\"settings\": {\"idle_timeout\": 1, \"idle_timeout\": 2}}".into(),
            "settings.idle_timeout: is duplicated in line 2",
        ),
        (
            "simulate",
            "{\"until\": 1, \"settings\": {\"max_endpointing_delay\": 0.1}}".into(),
            "settings.min_endpointing_delay: must not be greater than max_endpointing_delay",
        ),
        ("replay", String::new(), "line 1: is missing: the file is empty"),
        (
            "replay",
            SCENARIO.into(),
            "line 1: is not valid JSON: EOF while parsing an object (column 1)",
        ),
        (
            "replay",
            format!("{header}\n{{\"at\":1,\"at\":2,\"input\":\"Tick\"}}\n"),
            "line 2: at: is duplicated",
        ),
        (
            "replay",
            format!("{header}\nnonsense\n"),
            "line 2: is not valid JSON: expected ident (column 2)",
        ),
        (
            "replay",
            format!("{header}\n{{\"at\":-1,\"input\":\"Tick\"}}\n"),
            "line 2: at: invalid value: integer `-1`, expected a whole number that is not negative",
        ),
    ];
    for (i, (command, text, expected)) in cases.into_iter().enumerate() {
        assert_eq!(refusal_message(command, &folder.write_file(&format!("{i}"), text)), expected);
    }
}

/// An invalid value is named together with the reason, wherever it is in the file.
#[test]
fn a_bad_value_is_named_with_its_reason() {
    let folder = TempFolder::new("values");
    let scenarios = [
        ("{\"until\": -1}", "until: must not be negative"),
        ("{\"until\": NaN}", "until: is not valid JSON: expected value at line 1 column 11"),
        (
            r#"{"until": 1, "settings": {"min_endpointing_delay": 3, "max_endpointing_delay": 2}}"#,
            "settings.min_endpointing_delay: must not be greater than max_endpointing_delay",
        ),
        (
            r#"{"until": 1, "settings": {"idle_timeout": -1}}"#,
            "settings.idle_timeout: must not be negative",
        ),
        (
            r#"{"until": 1, "settings": {"echo_warmup": NaN}}"#,
            "settings.echo_warmup: is not valid JSON: expected value at line 1 column 42",
        ),
        (
            r#"{"until": 1, "settings": {"echo_warmup": "NaN"}}"#,
            "settings.echo_warmup: must be a number",
        ),
        (
            r#"{"until": 1, "settings": {"echo_warmup": 1e999}}"#,
            "settings.echo_warmup: is not valid JSON: number out of range at line 1 column 46",
        ),
        (
            r#"{"until": 1, "settings": {"echo_warmup": 1e8}}"#,
            "settings.echo_warmup: must be at most 10000000 seconds",
        ),
        (
            r#"{"until": 1, "settings": {"max_tool_steps": -1}}"#,
            "settings.max_tool_steps: must be a whole number that is not negative",
        ),
        (
            r#"{"until": 1, "settings": {"turn_threshold": 2}}"#,
            "settings.turn_threshold: must be between 0 and 1",
        ),
        (r#"{"until": 1, "settings": {"colour": 1}}"#, "settings.colour: is unknown"),
        (
            r#"{"until": 1, "settings": {"idle_messages": [{"say": "Hello?", "audio": 1, "wait": 1}]}}"#,
            "settings.idle_messages[0].wait: is unknown",
        ),
        (r#"{"until": 1, "vad": {"silence": -0.1}}"#, "vad.silence: must not be negative"),
        (
            r#"{"until": 1, "defaults": {"stt_delay": -1}}"#,
            "defaults.stt_delay: must not be negative",
        ),
        (r#"{"until": 1, "user": [{"from": 2, "to": 1}]}"#, "user[0].to: must not be before from"),
        (r#"{"until": 1, "user": [{"from": 1, "to": 2, "loud": 1}]}"#, "user[0].loud: is unknown"),
        (
            r#"{"until": 1, "replies": [{"to": "*", "say": "Yes.", "audio": -1}]}"#,
            "replies[0].audio: must not be negative",
        ),
        (
            r#"{"until": 1, "tools": {"look": {"takes": -1, "returns": 1}}}"#,
            "tools.look.takes: must not be negative",
        ),
        (
            r#"{"until": 1, "actions": [{"at": 1, "do": "shout"}]}"#,
            "actions[0].do: must be interrupt, respond, say, context, end or leave",
        ),
        (
            r#"{"until": 1, "actions": [{"at": 1, "do": "end", "at": 2}]}"#,
            "actions[0].at: is duplicated in line 1",
        ),
    ];
    for (text, sentence) in scenarios {
        assert_eq!(
            refusal_message("simulate", &folder.write_file("scenario", text)),
            sentence,
            "{text}"
        );
    }

    let header = simulate_traced(SCENARIO.as_bytes()).unwrap().1.lines().next().unwrap().to_owned();
    let settings = [
        (
            r#""max_endpointing_delay":{"secs":6,"nanos":0}"#,
            r#""max_endpointing_delay":{"secs":0,"nanos":0}"#,
            "spec.min_endpointing_delay: must not be greater than max_endpointing_delay",
        ),
        (
            r#""max_endpointing_delay":{"secs":6,"nanos":0}"#,
            r#""max_endpointing_delay":{"secs":-6,"nanos":0}"#,
            "spec.max_endpointing_delay.secs: invalid value: integer `-6`, expected a whole number \
             that is not negative",
        ),
        (
            r#""turn_threshold":0.5"#,
            r#""turn_threshold":-0.5"#,
            "spec.turn_threshold: must be between 0 and 1",
        ),
        (
            r#""backchannels":false"#,
            r#""backchannels":false,"colour":1"#,
            "spec.colour: is unknown",
        ),
        (
            r#""backchannels":false"#,
            r#""backchannels":false,"backchannels":true"#,
            "spec.backchannels: is duplicated",
        ),
    ];
    for (old, new, sentence) in settings {
        assert!(header.contains(old), "{header}");
        let trace = folder.write_file("trace", header.replacen(old, new, 1) + "\n");
        assert_eq!(refusal_message("replay", &trace), format!("line 1: {sentence}"));
    }
    let trace = folder.write_file(
        "trace",
        header.replacen(r#""turn_threshold":0.5"#, r#""turn_threshold":NaN"#, 1) + "\n",
    );
    let sentence = refusal_message("replay", &trace);
    assert!(
        sentence
            .starts_with("line 1: spec.turn_threshold: is not valid JSON: expected value (column "),
        "{sentence}"
    );
}

#[test]
fn huge_files_are_refused_in_little_memory() {
    let folder = TempFolder::new("huge");
    let header = simulate_traced(SCENARIO.as_bytes()).unwrap().1.lines().next().unwrap().to_owned();
    // 100 MB of zeros, and a file without end.
    let nothing = folder.0.join("nothing");
    File::create(&nothing).unwrap().set_len(100_000_000).unwrap();
    assert_eq!(refusal_message("simulate", &nothing), "file: is larger than 16 MiB");
    assert_eq!(refusal_message("replay", &nothing), "line 1: is longer than 4 MiB");
    let endless = Path::new("/dev/zero");
    assert_eq!(refusal_message("simulate", endless), "file: is larger than 16 MiB");
    assert_eq!(refusal_message("replay", endless), "line 1: is longer than 4 MiB");
    // A line of 50 MB.
    let long = folder.write_file(
        "long",
        format!("{header}\n{{\"at\":1,\"input\":\"{}\"}}\n", "x".repeat(50_000_000)),
    );
    assert_eq!(refusal_message("replay", &long), "line 2: is longer than 4 MiB");
    // 100 MB of valid lines, followed by an invalid one.
    let many = folder.0.join("many");
    let mut file = std::io::BufWriter::new(File::create(&many).unwrap());
    writeln!(file, "{header}").unwrap();
    // The words of a segment that was never requested, so they are ignored.
    let words = "[\"a\",1],".repeat(200);
    let line = format!(
        "{{\"at\":1,\"input\":{{\"Tts\":{{\"piece\":9,\
         \"event\":{{\"Words\":[{words}[\"a\",1]]}}}}}}}}\n"
    );
    let lines = 100_000_000 / line.len();
    for _ in 0..lines {
        file.write_all(line.as_bytes()).unwrap();
    }
    writeln!(file, "{{\"at\":0,\"input\":\"Tick\"}}").unwrap();
    file.into_inner().unwrap();
    let last = lines + 2;
    assert_eq!(
        refusal_message("replay", &many),
        format!("line {last}: at: is 0 µs, which is earlier than the previous line")
    );
}

#[test]
fn check_reads_the_avatars_and_the_store_that_serve_would_use() {
    let folder = TempFolder::new("check");
    let avatars = folder.0.join("avatars");
    let (code, lines) = run_check(&folder.0, Some(&avatars), &[]);
    let faces = line_of(&lines, "faces");
    assert_eq!((code, faces.ready), (Some(1), false), "the folder does not exist");
    assert!(
        faces.detail.starts_with("avatars.dir: ") && faces.detail.contains("avatars"),
        "{}",
        faces.detail
    );
    fs::create_dir(&avatars).unwrap();
    let (_, lines) = run_check(&folder.0, Some(&avatars), &[]);
    assert!(line_of(&lines, "faces").ready);
    assert!(lines.iter().all(|line| line.name != "events"), "there is no store yet");
    fs::write(avatars.join("broken.poses"), "no poses").unwrap();
    let (code, lines) = run_check(&folder.0, Some(&avatars), &[]);
    let faces = line_of(&lines, "faces");
    assert_eq!((code, faces.ready), (Some(1), false));
    assert!(faces.detail.contains("broken."), "{}", faces.detail);

    // An SQLite file without tables, as before the migrations of the first start.
    let store = folder.write_file("visavis.db", "");
    let (_, lines) = run_check(&folder.0, None, &[]);
    assert_eq!(line_of(&lines, "events").detail, "all events are stored");
    fs::write(&store, "no database, but longer than the header of one: ".repeat(100)).unwrap();
    let (code, lines) = run_check(&folder.0, None, &[]);
    let events = line_of(&lines, "events");
    assert_eq!((code, events.ready), (Some(1), false), "{}", events.detail);
}

#[test]
fn check_needs_no_built_in_model_whose_part_a_provider_serves() {
    let folder = TempFolder::new("check-hosted");
    let models = ("VISAVIS_MODELS_DIR", "/no/such/folder");
    let (_, lines) = run_check(&folder.0, None, &[models]);
    assert!(line_of(&lines, "PocketSphinx").needed && line_of(&lines, "Moonshine").needed);
    let hosted = [
        models,
        ("DEEPGRAM_API_KEY", "secret-of-the-test"),
        ("VISAVIS_PROVIDERS_STT", "deepgram"),
        ("VISAVIS_PROVIDERS_TTS", "deepgram"),
    ];
    let (_, lines) = run_check(&folder.0, None, &hosted);
    for name in ["Moonshine", "PocketSphinx", "Hibari", "flite slt"] {
        assert!(!line_of(&lines, name).needed, "{name}");
    }
    assert!(line_of(&lines, "Silero VAD").needed, "no provider detects speech");
}

#[test]
fn check_fails_if_the_data_folder_cannot_be_read() {
    let folder = TempFolder::new("check-unreadable");
    let data = folder.0.join("data");
    fs::create_dir(&data).unwrap();
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mut program = PathBuf::from(env!("CARGO_BIN_EXE_visavis"));
    // The root user can read every folder, so another user runs the program, from where it can.
    let is_root = rustix::process::geteuid().is_root();
    set_mode(&data, if is_root { 0o700 } else { 0o000 });
    if is_root {
        set_mode(&folder.0, 0o755);
        let link = folder.0.join("visavis");
        if fs::hard_link(&program, &link).is_err() {
            fs::copy(&program, &link).unwrap();
        }
        program = link;
    }
    let mut command = Command::new(&program);
    command.args(["check", "--json", "--data"]).arg(&data).current_dir("/").env_clear();
    if is_root {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let lines: Vec<CheckLine> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let line = line_of(&lines, "data");
    assert!(!line.ready && line.needed, "{}", line.detail);
    let expected = format!(
        "the data folder {} (server.data) cannot be read: Permission denied",
        data.display()
    );
    assert_eq!((output.status.code(), &*line.detail), (Some(1), &*expected));
    assert!(lines.iter().all(|line| line.name != "events"), "nothing else is known");
    set_mode(&data, 0o700);
}

#[test]
fn check_says_that_it_does_not_test_the_accounts() {
    let folder = TempFolder::new("check-llm");
    let env =
        [("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_API_KEY", "secret-of-the-test")];
    let (_, lines) = run_check(&folder.0, None, &env);
    let model = line_of(&lines, "OpenAI");
    assert!(model.ready);
    let detail = "with a key, at http://127.0.0.1:1/v1 (not tested; --live tests it)";
    assert_eq!(model.detail, detail);
    assert!(lines.iter().all(|line| !line.detail.contains("secret-of-the-test")));
    let (_, lines) = run_check(&folder.0, None, &[("ANTHROPIC_API_KEY", "secret-of-the-test")]);
    assert_eq!(line_of(&lines, "Anthropic").detail, "with a key (not tested; --live tests it)");
    assert!(lines.iter().all(|line| !line.detail.contains("secret-of-the-test")));
}

/// A server with OpenAI's interface whose language model answers, if `answers`. All other requests
/// are refused, with the key in the body.
fn start_openai_server(answers: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                    break;
                }
                lines.push(line);
            }
            let length = lines.iter().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = reader.read_exact(&mut body);
            let is_chat = lines.first().is_some_and(|line| line.contains("/chat/completions"));
            let response = if is_chat && answers {
                let chunk = r#"{"choices":[{"delta":{"content":"Yes."},"finish_reason":"stop"}]}"#;
                let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
                format!(
                    "200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            } else {
                let body =
                    r#"{"error":{"message":"Incorrect API key provided: secret-of-the-test"}}"#;
                format!(
                    "401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            };
            let mut stream = reader.into_inner();
            let _ = write!(stream, "HTTP/1.1 {response}");
        }
    });
    url
}

#[test]
fn check_live_sends_a_request_to_each_account_and_tells_its_latency_or_its_error() {
    let folder = TempFolder::new("check-live");
    let run = |answers: bool| {
        let url = start_openai_server(answers);
        let mut command = Command::new(env!("CARGO_BIN_EXE_visavis"));
        command.args(["check", "--live", "--json", "--data"]).arg(&folder.0).env_clear();
        command.env("OPENAI_BASE_URL", &url).env("OPENAI_MODEL", "m");
        let output = command.env("OPENAI_API_KEY", "secret-of-the-test").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!format!("{text}{errors}").contains("secret-of-the-test"), "{text}{errors}");
        let lines: Vec<CheckLine> = serde_json::from_str(&text).unwrap();
        let lines = lines.into_iter().filter(|line| line.name == "OpenAI");
        lines.map(|line| (line.kind, (line.ready, line.detail))).collect::<BTreeMap<_, _>>()
    };
    let lines = run(true);
    let kinds: Vec<&str> = lines.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["llm", "stt", "tts"]);
    let (ready, detail) = &lines["llm"];
    assert!(*ready && detail.contains(" ms (with a key, at http://127.0.0.1:"), "{detail}");
    for kind in ["stt", "tts"] {
        let (ready, detail) = &lines[kind];
        assert!(!ready && detail.starts_with("failed: ") && detail.contains("key"), "{detail}");
    }
    assert!(run(false).values().all(|(ready, _)| !ready));
}

#[test]
fn a_key_made_by_the_command_line_has_the_scope_that_was_asked_for() {
    let folder = TempFolder::new("keys");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // What the start of a server creates.
    runtime.block_on(control_api::workspaces::prepare(&folder.0, None)).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_visavis"));
        let output = command
            .arg("keys")
            .args(args)
            .arg("--data")
            .arg(&folder.0)
            .env_clear()
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let key = run(&["create", "--workspace", "shop", "--scope", "read"]);
    assert_eq!(key.lines().count(), 1, "{key}");
    run(&["create", "--workspace", "office"]);
    let listed = run(&["list"]);
    assert!(!listed.contains(key.trim()), "a key is shown once");
    for (workspace, scope) in [("shop", "read"), ("office", "administer")] {
        let line = listed.lines().find(|line| line.contains(workspace)).unwrap();
        assert!(line.contains(scope), "{line}");
    }
}
