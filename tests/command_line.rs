//! Tests of the command line as a stranger meets it: help, tips, version, completions, the health
//! check, and commands in places where no server was started. They run the built binary.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_visavis");

struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir()
            .join(format!("visavis-command-line-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The program in a folder of its own, as a package installs it.
    fn install(&self, path: &str) -> PathBuf {
        let program = self.0.join(path);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        if fs::hard_link(PROGRAM, &program).is_err() {
            fs::copy(PROGRAM, &program).unwrap();
        }
        program
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The result of a command without environment: exit code, standard output and standard error.
fn run_in(
    folder: &Path,
    program: &Path,
    arguments: &[&str],
    env: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_clear().envs(env.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn run(arguments: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    run_in(&std::env::temp_dir(), Path::new(PROGRAM), arguments, env)
}

#[test]
fn the_program_alone_prints_its_help_on_stderr() {
    let (code, stdout, stderr) = run(&[], &[]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    for command in ["serve", "keys", "check", "health", "bake", "video", "completions", "man"] {
        assert!(stderr.contains(&format!("\n  {command} ")), "{command}: {stderr}");
    }
    let (code, stdout, stderr) = run(&["help"], &[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("\n  serve "), "{stdout}");
    for internal in ["extract", "decode-audio", "render-video", "deliver-recording"] {
        assert!(!stdout.contains(&format!("\n  {internal}")), "{stdout}");
    }
}

#[test]
fn the_help_of_a_command_names_the_environment_and_has_examples() {
    for line in [&["help", "serve"][..], &["serve", "--help"], &["serve", "-h"]] {
        let (code, stdout, _) = run(line, &[]);
        assert_eq!(code, Some(0));
        for text in [
            "Environment:",
            "VISAVIS_CONFIG ",
            "VISAVIS_API_KEY ",
            "VISAVIS_SERVER_LISTEN",
            "VISAVIS_SERVER_DATABASE_URL_FILE",
            "A flag overrides the environment",
            "\n  visavis serve --config ",
        ] {
            assert!(stdout.contains(text), "{line:?}: {text}: {stdout}");
        }
        let (_, after) = stdout.split_once("Environment:").unwrap();
        assert!(after.lines().all(|line| line.len() <= 100), "{after}");
    }
    for command in
        ["worker", "keys", "check", "health", "bake", "video", "simulate", "replay", "completions"]
    {
        let (code, stdout, _) = run(&["help", command], &[]);
        assert_eq!(code, Some(0));
        assert!(stdout.contains("Example"), "{command}: {stdout}");
    }
}

#[test]
fn a_similar_name_is_shown_for_an_unknown_one() {
    for (line, expected) in [
        (&["serv"][..], "unrecognized subcommand 'serv'; did you mean 'serve'?"),
        (
            &["serve", "--lisen", "1"],
            "unexpected argument '--lisen' found; did you mean '--listen'?",
        ),
    ] {
        let (code, stdout, stderr) = run(line, &[]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""));
        assert_eq!(stderr, format!("{expected} (see visavis --help)\n"));
    }
}

#[test]
fn the_version_names_the_commit() {
    let (code, stdout, _) = run(&["-V"], &[]);
    assert_eq!((code, stdout), (Some(0), format!("visavis {}\n", env!("VISAVIS_VERSION"))));
    let (_, long, _) = run(&["--version"], &[]);
    let expected =
        format!("visavis {}\ntarget: {}\n", env!("VISAVIS_VERSION"), env!("VISAVIS_TARGET"));
    assert_eq!(long, expected);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if root.join(".git").exists() && std::env::var_os("VISAVIS_COMMIT").is_none() {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--abbrev=8", "--format=%h %cs"]).current_dir(root);
        let commit = String::from_utf8(git.output().unwrap().stdout).unwrap();
        let expected = format!("{} ({})", env!("CARGO_PKG_VERSION"), commit.trim());
        assert_eq!(env!("VISAVIS_VERSION"), expected);
    }
}

#[test]
fn completions_and_manual_pages_are_printed() {
    let folder = TempFolder::new("documentation");
    let (code, bash, _) = run(&["completions", "bash"], &[]);
    assert_eq!(code, Some(0));
    let file = folder.0.join("visavis.bash");
    fs::write(&file, bash).unwrap();
    // Completes the first word of `visavis ser`.
    let script = format!(
        "set -e; . {}; COMP_WORDS=(visavis ser); COMP_CWORD=1; _visavis visavis ser visavis; \
         echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    let completed = Command::new("bash").args(["-c", &script]).output().unwrap();
    let completed = String::from_utf8_lossy(&completed.stdout).into_owned();
    assert_eq!(completed.trim(), "serve");
    for (shell, mark) in [("zsh", "#compdef visavis"), ("fish", "complete -c visavis")] {
        let (code, text, _) = run(&["completions", shell], &[]);
        assert!(code == Some(0) && text.contains(mark), "{shell}: {text}");
    }
    let (code, page, _) = run(&["man"], &[]);
    assert!(code == Some(0) && page.contains(".TH visavis 1"), "{page}");
    let pages = folder.0.join("man1");
    let (code, stdout, _) = run(&["man", "--out", pages.to_str().unwrap()], &[]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    for page in ["visavis.1", "visavis-serve.1", "visavis-keys-create.1"] {
        assert!(fs::read_to_string(pages.join(page)).unwrap().contains(".SH"), "{page}");
    }
    assert!(!pages.join("visavis-extract.1").exists(), "an internal command");
}

/// A server that gives one answer to each request, with the path of the request as a header.
fn start_server(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut first = String::new();
            reader.read_line(&mut first).unwrap();
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                    break;
                }
            }
            let answer = answer.replace("PATH", &path);
            let _ = write!(reader.into_inner(), "HTTP/1.1 {answer}");
        }
    });
    port
}

/// Head of an answer with a body that ends with the connection.
macro_rules! answer {
    ($status:literal, $body:literal) => {
        concat!($status, "\r\nconnection: close\r\n\r\n", $body)
    };
}

#[test]
fn health_says_whether_the_server_accepts_calls() {
    let ready = start_server(answer!("200 OK", r#"{"status":"ready","reason":"asked PATH"}"#));
    let url = format!("http://127.0.0.1:{ready}");
    for (arguments, path) in [
        (&["health", url.as_str()][..], "readyz"),
        (&["health", url.as_str(), "--live"], "healthz"),
    ] {
        let (code, stdout, stderr) = run(arguments, &[]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert_eq!(stdout, format!("{url}/{path}: ready: asked /{path}\n"));
    }
    // The configured address; a wildcard is asked over loopback.
    let listen = format!("0.0.0.0:{ready}");
    let (code, stdout, _) = run(&["health"], &[("VISAVIS_SERVER_LISTEN", &listen)]);
    assert!(code == Some(0) && stdout.starts_with(&url), "{stdout}");

    let loading = start_server(answer!(
        "503 Service Unavailable",
        r#"{"status":"not ready","reason":"the models are loading"}"#
    ));
    let redirect =
        start_server("302 Found\r\nlocation: https://talk.example/x\r\nconnection: close\r\n\r\n");
    let other = start_server(answer!("200 OK", "<html>"));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (port, sentence) in [
        (loading, "not ready: the models are loading"),
        (
            redirect,
            "status 302, a redirect to https://talk.example/x: name the address of the server",
        ),
        (other, "status 200, and not the answer of a Visavis server"),
        (closed, "cannot connect to 127.0.0.1: Connection refused (os error 111)"),
    ] {
        let url = format!("http://127.0.0.1:{port}");
        let (code, stdout, stderr) = run(&["health", &url], &[]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        assert_eq!(stderr, format!("{url}/readyz: {sentence}\n"));
    }
    let (code, _, stderr) = run(&["health", "ftp://h"], &[]);
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("\"ftp://h\" is not an http or https URL"), "{stderr}");
}

#[test]
fn an_unknown_variable_is_a_warning_and_those_of_services_are_ignored() {
    let folder = TempFolder::new("variables");
    let data = folder.0.to_str().unwrap();
    let warning = "the environment variable VISAVIS_STT_POOLS is unknown and ignored; did you \
                   mean VISAVIS_STT_POOL?";
    let env = [("VISAVIS_STT_POOLS", "1"), ("VISAVIS_SERVICE_HOST", "10.0.0.1")];
    let (code, _, stderr) = run(&["check", "--data", data, "--json"], &env);
    assert!(code.is_some_and(|code| code < 2), "{stderr}");
    assert_eq!(stderr, format!("warning: {warning}\n"));

    // A server writes it into its log. This one cannot start.
    let (code, _, stderr) =
        run(&["serve", "--data", "/proc/visavis", "--log-format", "json"], &env);
    assert_eq!(code, Some(1));
    let lines: Vec<&str> = stderr.lines().collect();
    let line: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &warning.into()));
    assert_eq!(lines.iter().filter(|line| line.contains("VISAVIS_")).count(), 1, "{stderr}");
    let error = "the data folder /proc/visavis (server.data) cannot be created: No such file or \
                 directory";
    assert_eq!(lines.last(), Some(&error));
}

#[test]
fn a_secret_in_a_file_that_cannot_be_read_is_named_with_its_variable() {
    for name in ["VISAVIS_API_KEY_FILE", "VISAVIS_SERVER_DATABASE_URL_FILE"] {
        let (code, stdout, stderr) = run(&["serve"], &[(name, "/no/such/file")]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""));
        let expected = format!("{name}: /no/such/file cannot be read: No such file or directory");
        assert!(stderr.starts_with(&expected), "{stderr}");
    }
    let (code, _, stderr) = run(&["serve"], &[("VISAVIS_CONFIG", "/no/such/file")]);
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("VISAVIS_CONFIG: /no/such/file: No such file"), "{stderr}");
}

#[test]
fn commands_create_nothing_where_no_server_was_started() {
    let folder = TempFolder::new("no-data");
    let (absent, empty) = (folder.0.join("typo"), folder.0.join("empty"));
    fs::create_dir(&empty).unwrap();
    for data in [&absent, &empty] {
        let sentence = format!(
            "no Visavis data in {}: start the server once, or name its folder with --data",
            data.display()
        );
        // A relative path, as people type it.
        let name = data.file_name().unwrap().to_str().unwrap();
        for arguments in [
            &["keys", "create", "--workspace", "shop", "--data", name][..],
            &["keys", "list", "--data", name],
            &["keys", "revoke", "id", "--data", name],
        ] {
            let (code, stdout, stderr) = run_in(&folder.0, Path::new(PROGRAM), arguments, &[]);
            assert_eq!((code, stdout.as_str()), (Some(1), ""));
            assert_eq!(stderr, format!("{sentence}\n"));
        }
        let (_, stdout, _) = run_in(&folder.0, Path::new(PROGRAM), &["check", "--data", name], &[]);
        assert!(stdout.contains(&sentence), "{stdout}");
        // The default of `server.data`.
        run_in(data.parent().unwrap(), Path::new(PROGRAM), &["keys", "list"], &[]);
    }
    assert!(!absent.exists() && fs::read_dir(&empty).unwrap().next().is_none());
    let names = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["empty"]);
}

#[test]
fn check_prints_the_settings_that_differ_from_their_defaults() {
    let folder = TempFolder::new("settings");
    let file = folder.0.join("visavis.toml");
    fs::write(&file, "[server]\nlog_format = \"text\"\nregion = \"eu\"\n[limits]\ncalls = 7\n")
        .unwrap();
    let (file, data) = (file.to_str().unwrap(), folder.0.to_str().unwrap());
    let env = [("VISAVIS_SERVER_METRICS_TOKEN", "a-secret"), ("VISAVIS_CONFIG", file)];
    let (_, stdout, stderr) = run(&["check", "--data", data], &env);
    let (_, settings) =
        stdout.split_once("Settings that differ from their defaults:\n").unwrap_or_else(|| {
            panic!("{stdout}{stderr}");
        });
    let expected = [
        format!("limits.calls = 7  ({file}:5)"),
        "server.metrics_token = \"***\"  (VISAVIS_SERVER_METRICS_TOKEN)".to_owned(),
        format!("server.region = \"eu\"  ({file}:3)"),
        format!("server.data = \"{data}\"  (--data)"),
    ];
    assert_eq!(settings.lines().collect::<Vec<_>>(), expected);
    let (_, stdout, _) = run(&["check", "--data", data, "--json"], &env);
    let rows: Vec<Value> = serde_json::from_str(&stdout).unwrap();
    let settings: Vec<&Value> = rows.iter().filter(|row| row["kind"] == "setting").collect();
    assert_eq!(settings.len(), 4);
    assert_eq!(settings[0]["name"], "limits.calls");
    assert_eq!(settings[0]["detail"], "7");
    assert_eq!(settings[0]["source"], format!("{file}:5"));
    assert!(!stdout.contains("a-secret"));
    fs::write(file, "[limits]\ncalls = -1\n").unwrap();
    let (code, stdout, stderr) = run(&["check", "--data", data], &env);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.starts_with(&format!("{file}:2: limits.calls: must be")), "{stderr}");
}

#[test]
fn a_data_folder_that_cannot_be_used_is_named_with_its_key() {
    let folder = TempFolder::new("data-folder");
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    let data = file.join("data");
    let (code, stdout, stderr) = run(
        &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()],
        &[("VISAVIS_LOG", "off")],
    );
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let expected = format!(
        "the data folder {} (server.data) cannot be created: Not a directory\n",
        data.display()
    );
    assert_eq!(stderr, expected);
}

/// The row of `visavis check` about the models folder.
fn models_folder(folder: &Path, program: &Path, env: &[(&str, &str)]) -> (bool, String) {
    let (_, stdout, stderr) = run_in(folder, program, &["check", "--json", "--data", "d"], env);
    let rows: Vec<Value> =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let row = rows.iter().find(|row| row["name"] == "models folder").unwrap();
    (row["ready"].as_bool().unwrap(), row["detail"].as_str().unwrap().to_owned())
}

#[test]
fn models_are_found_beside_the_program_from_any_folder() {
    let folder = TempFolder::new("models");
    let program = folder.install("opt/bin/visavis");
    let elsewhere = folder.0.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let system = Path::new("/usr/lib/visavis/models");
    if !system.exists() {
        let (ready, detail) = models_folder(&elsewhere, &program, &[]);
        assert!(!ready && detail.starts_with("models.dir is not set, and none of"), "{detail}");
        let tried = ["opt/bin/models", "opt/lib/visavis/models", "elsewhere/.cache/models"];
        for tried in tried.map(|dir| folder.0.join(dir)) {
            assert!(detail.contains(tried.to_str().unwrap()), "{detail}");
        }
        assert!(detail.contains(system.to_str().unwrap()), "{detail}");
    }
    // In the order of precedence, the last one first.
    let dirs = ["elsewhere/.cache/models", "opt/lib/visavis/models", "opt/bin/models"];
    for dir in dirs.map(|dir| folder.0.join(dir)) {
        fs::create_dir_all(&dir).unwrap();
        if dir.starts_with(folder.0.join("opt")) || !system.exists() {
            assert_eq!(models_folder(&elsewhere, &program, &[]), (true, dir.display().to_string()));
        }
    }
    let named = folder.0.join("elsewhere");
    let named = named.to_str().unwrap();
    let env = [("VISAVIS_MODELS_DIR", named)];
    assert_eq!(models_folder(&elsewhere, &program, &env), (true, named.to_owned()));
}

#[test]
fn load_runs_the_load_generator_in_its_own_folder() {
    let folder = TempFolder::new("load");
    let program = folder.install("bin/visavis");
    let (code, stdout, stderr) = run_in(&folder.0, &program, &["load", "--calls", "1"], &[]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("make load") && stderr.matches('\n').count() == 1, "{stderr}");
    let generator = program.with_file_name("visavis-load");
    fs::write(&generator, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&generator, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, stdout, _) = run_in(&folder.0, &program, &["load", "--calls", "1", "--help"], &[]);
    assert_eq!((code, stdout.as_str()), (Some(7), "--calls 1 --help\n"));
}
