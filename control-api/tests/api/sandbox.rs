//! The process that extracts documents has access to nothing but the document.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use documents::Sandbox;

use crate::harness::{TempFolder, wait_for};

const EXTRACTOR: &str = env!("CARGO_BIN_EXE_visavis-extract-under-test");

/// The sandbox features of this kernel. Fails if it has neither Landlock nor seccomp, because the
/// tests would prove nothing.
fn require_sandbox() -> Sandbox {
    let available = Sandbox::available();
    assert!(available.refuses_files(), "these tests need a kernel with Landlock or seccomp");
    available
}

#[test]
fn a_reader_that_is_taken_over_gets_at_no_file_socket_or_program() {
    let folder = TempFolder::new();
    let file = folder.0.join("token.key");
    std::fs::write(&file, "secret").unwrap();
    let output =
        Command::new(EXTRACTOR).arg(format!("escape:{}", file.display())).output().unwrap();
    let stdout_text = String::from_utf8(output.stdout).unwrap();
    let mut refused =
        vec!["read: refused", "list: refused", "make: refused", "remove: refused", "run: refused"];
    if require_sandbox().seccomp {
        refused.extend(["tcp: refused", "udp: refused", "unix: refused"]);
    }
    let results: Vec<&str> = stdout_text.lines().take(refused.len()).collect();
    assert_eq!(results, refused, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_reader_is_confined_before_its_document_comes() {
    let mut reader = Command::new(EXTRACTOR)
        .arg("txt")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut expected = vec!["NoNewPrivs:\t1"];
    if require_sandbox().seccomp {
        expected.push("Seccomp:\t2");
    }
    wait_for("the child process to be confined", async || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", reader.id())).unwrap();
        expected.iter().all(|line| status.lines().any(|l| l == *line)).then_some(())
    })
    .await;
    reader.stdin.take().unwrap().write_all(b"Open daily.").unwrap();
    let mut stdout_bytes = Vec::new();
    reader.stdout.take().unwrap().read_to_end(&mut stdout_bytes).unwrap();
    assert!(reader.wait().unwrap().success());
    assert_eq!(documents::parse_output(&stdout_bytes), Some(Ok("Open daily.".into())));
}
