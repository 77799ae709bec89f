//! Text extraction in a child process, with a time limit. The child's code is in the crate
//! `documents`.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// Maximum time for one document.
const EXTRACT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes that are read from a child.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// Extracts the text of a document with `command` (a program and its arguments; the type is
/// appended).
pub(super) async fn extract_text(
    command: &[OsString],
    kind: &str,
    bytes: Vec<u8>,
) -> Result<String, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| {
            tracing::error!(%error, "the child process that extracts a document {what}");
            "the document could not be read".to_owned()
        }
    };
    let (program, arguments) =
        command.split_first().ok_or("no document extractor is configured")?;
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
    let exchange = async {
        let write = async {
            // A child that has read enough closes its end.
            let _ = input.write_all(&bytes).await;
            drop(input);
        };
        let mut stdout = Vec::new();
        let mut output = output.take(MAX_OUTPUT_BYTES);
        let (read, ()) = tokio::join!(output.read_to_end(&mut stdout), write);
        read.map_err(failed("did not return its output"))?;
        Ok::<_, String>(stdout)
    };
    let stdout = tokio::time::timeout(EXTRACT_TIMEOUT, exchange)
        .await
        .map_err(|_| "reading the document took too long".to_owned())??;
    drop(child);
    documents::parse_output(&stdout)
        .unwrap_or_else(|| Err("reading the document took too much time or memory".into()))
}
