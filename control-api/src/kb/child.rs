//! Extraction in a child process, with limits on memory and time. Both ends are here: what the server does, and what the child's `main` does.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::extract::extract;

/// Seconds of processor time, then the child is ended.
const CPU_SECONDS: u64 = 30;
/// Time that may pass meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of address space.
const MEMORY: u64 = 1 << 30;
/// Bytes of a child's answer that are read.
const ANSWER: u64 = 16 << 20;
/// In front of the text: libraries may have printed something before.
const MARK: &[u8] = b"\0visavis-text\0";
/// In front of a reason.
const WHY: &[u8] = b"\0visavis-why\0";

/// The words of a document, taken out by `command` (a program and its arguments, to which the type is added).
pub(super) async fn run(command: &[OsString], kind: &str, bytes: Vec<u8>) -> Result<String, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| {
            tracing::error!(%error, "a document's child process {what}");
            "the document could not be read".to_owned()
        }
    };
    let (program, arguments) = command.split_first().ok_or("there is no program to read documents")?;
    let mut child = Command::new(program)
        .args(arguments)
        .arg(kind)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed("cannot be started"))?;
    let (mut input, output) = match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => (input, output),
        _ => return Err("the document could not be read".into()),
    };
    let talk = async {
        let write = async {
            // A child that has seen enough closes its end.
            let _ = input.write_all(&bytes).await;
            drop(input);
        };
        let mut answer = Vec::new();
        let mut output = output.take(ANSWER);
        let (read, ()) = tokio::join!(output.read_to_end(&mut answer), write);
        read.map_err(failed("cannot be heard"))?;
        Ok::<_, String>(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, talk)
        .await
        .map_err(|_| "reading the document took too long".to_owned())??;
    drop(child);
    let after = |mark: &[u8]| {
        let at = answer.windows(mark.len()).position(|window| window == mark)?;
        Some(String::from_utf8_lossy(&answer[at + mark.len()..]).into_owned())
    };
    match (after(MARK), after(WHY)) {
        (Some(text), _) => Ok(text),
        (None, Some(why)) => Err(why),
        (None, None) => Err("reading the document took too much time or memory".into()),
    }
}

/// The child's `main`: reads a document of type `kind` from its standard input and writes its words. Limits itself first.
///
/// # Errors
/// The limits cannot be set, or the pipes broke. What is wrong with the document is told through the pipe.
pub fn extract_as_child(kind: &str) -> std::io::Result<()> {
    rlimit::setrlimit(rlimit::Resource::AS, MEMORY, MEMORY)?;
    rlimit::setrlimit(rlimit::Resource::CPU, CPU_SECONDS, CPU_SECONDS)?;
    // It opens nothing, writes no file and starts nobody.
    rlimit::setrlimit(rlimit::Resource::FSIZE, 0, 0)?;
    rlimit::setrlimit(rlimit::Resource::CORE, 0, 0)?;
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    let (mark, text) = match extract(kind, &bytes) {
        Ok(text) => (MARK, text),
        Err(why) => (WHY, why),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(mark)?;
    out.write_all(text.as_bytes())?;
    out.flush()
}
