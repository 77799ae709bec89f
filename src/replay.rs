//! `visavis replay`: replays a call from its trace and compares the outputs.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use conversation::replay::{Replay, Verdict};
use conversation::trace::MAX_LINE_BYTES;

use crate::CommandError;

/// Reads the trace line by line, so that a trace of any size takes little memory.
pub(crate) fn run(trace: &Path, explain: bool) -> Result<ExitCode, CommandError> {
    let bad = |why: String| CommandError::Usage(format!("{}: {why}", trace.display()));
    let mut file = BufReader::new(File::open(trace).map_err(|e| bad(e.to_string()))?);
    let mut out = io::stdout().lock();
    let mut replay = Replay::new(explain);
    let mut line = Vec::new();
    while !replay.is_decided() {
        line.clear();
        // The longest valid line, its newline and one more byte: enough for the replay to detect
        // the excess.
        let max_bytes = MAX_LINE_BYTES as u64 + 2;
        if file
            .by_ref()
            .take(max_bytes)
            .read_until(b'\n', &mut line)
            .map_err(|e| bad(e.to_string()))?
            == 0
        {
            break;
        }
        let printed = match line.strip_suffix(b"\n") {
            Some(line) => replay.read_line(line),
            None if line.len() > MAX_LINE_BYTES => replay.read_line(&line),
            None => replay.read_partial_line(&line),
        };
        print(&mut out, &printed.map_err(|e| bad(e.to_string()))?)?;
    }
    let (summary, verdict) = replay.finish().map_err(|e| bad(e.to_string()))?;
    print(&mut out, &summary)?;
    out.flush()?;
    // Outputs hidden by a gap may differ, so the exit status must not report equality.
    if matches!(verdict, Verdict::Differs(_) | Verdict::Gap { .. }) {
        return Err(CommandError::Failed(anyhow!("{verdict}")));
    }
    eprintln!("{verdict}");
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut io::StdoutLock<'_>, lines: &str) -> io::Result<()> {
    match out.write_all(lines.as_bytes()) {
        // The reader closed the pipe early, for example `head`. The comparison continues.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
