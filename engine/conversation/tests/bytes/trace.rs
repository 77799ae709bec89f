//! Bytes as the trace of a call.

use conversation::replay::{Replay, TraceError, Verdict};
use serde_json::Value;

/// An invalid trace is rejected in one sentence that starts with a line. A valid trace ends with a
/// verdict of one sentence and a summary, its lines are in the order of time, and `explain` only
/// adds lines.
///
/// # Panics
/// One of these does not hold.
pub(crate) fn replayed_or_refused(bytes: &[u8]) {
    if bytes.len() > 1 << 16 {
        return;
    }
    let (printed, sentence) = match (replay(bytes, false), replay(bytes, true)) {
        (Ok((printed, verdict)), Ok((explained, again))) => {
            assert_eq!(verdict, again);
            let why = |line: &&Value| line["what"] != "explain";
            assert_eq!(
                parse_lines(&explained).iter().filter(why).cloned().collect::<Vec<_>>(),
                parse_lines(&printed)
            );
            (printed, verdict.to_string())
        }
        (Err(bad), Err(again)) => {
            assert_eq!(bad, again);
            assert!(bad.to_string().starts_with(&format!("line {}: ", bad.line)), "{bad}");
            (String::new(), bad.to_string())
        }
        (one, other) => panic!("{one:?}, explained {other:?}"),
    };
    assert!(!sentence.contains('\n') && !sentence.is_empty(), "{sentence:?}");
    let printed = parse_lines(&printed);
    let time = |line: &Value| line["t"].as_f64().expect("each line has a time");
    assert!(printed.is_sorted_by(|a, b| time(a) <= time(b)), "{printed:?}");
    assert!(printed.last().is_none_or(|line| line["what"] == "summary"), "{printed:?}");
}

fn parse_lines(printed: &str) -> Vec<Value> {
    printed.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// What a replay of these bytes prints, and its verdict.
pub(crate) fn replay(trace: &[u8], explain: bool) -> Result<(String, Verdict), TraceError> {
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
