//! `--require`: a condition on the results, such as `p95(voice_to_voice) < 1.2s`, `late_audio <
//! 0.1%` or `turns.wrong == 0`.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::recording::RecordingStats;
use crate::report::{EngineStats, Report, SoakStats};

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Requirement {
    text: String,
    /// Path of the value in the report's JSON.
    path: Vec<String>,
    comparison: Comparison,
    limit: f64,
}

/// Statistics of a distribution.
const STATISTICS: [&str; 5] = ["p50", "p95", "p99", "max", "n"];

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: String| format!("--require \"{text}\": {why}");
        let operators = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("==", Comparison::Equal),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ];
        let found = operators.iter().find_map(|(sign, c)| Some((text.split_once(sign)?, *c)));
        let Some(((left, right), comparison)) = found else {
            return Err(bad("has none of the operators < <= > >= ==".into()));
        };
        let path = parse_path(left.trim()).map_err(bad)?;
        let limit = parse_limit(right.trim(), &path).map_err(bad)?;
        Ok(Self { text: text.trim().to_owned(), path, comparison, limit })
    }
}

/// Parses the path of a value, which must exist in a report.
fn parse_path(name: &str) -> Result<Vec<String>, String> {
    let blank = report_json(&Report {
        engine: Some(EngineStats::default()),
        soak: Some(SoakStats::default()),
        recording: Some(RecordingStats::default()),
        ..Report::default()
    });
    if let Some((function, argument)) = name.split_once('(') {
        let (function, argument) = (function.trim(), argument.trim());
        let Some(argument) = argument.strip_suffix(')').map(str::trim) else {
            return Err(format!("\"{name}\" has no closing parenthesis"));
        };
        if !STATISTICS.contains(&function) {
            return Err(format!("\"{function}\" is not one of {}", STATISTICS.join(", ")));
        }
        if blank["ms"].get(argument).is_none() {
            return Err(format!("\"{argument}\" is not one of {}", key_names(&blank["ms"])));
        }
        return Ok(["ms", argument, function].map(str::to_owned).to_vec());
    }
    let path: Vec<String> = name.split('.').map(str::to_owned).collect();
    let mut at = &blank;
    for part in &path {
        at = at.get(part).ok_or_else(|| format!("\"{part}\" is not one of {}", key_names(at)))?;
    }
    if at.is_object() {
        let how = if path[0] == "ms" { "use p95(…)" } else { "name one of its fields" };
        return Err(format!("\"{name}\" is not a single value: {how}"));
    }
    if at.is_string() || at.is_array() {
        return Err(format!("\"{name}\" is not a number"));
    }
    Ok(path)
}

fn key_names(value: &Value) -> String {
    let keys = value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    keys.filter(|k| !k.is_empty()).map_or("the fields of a value".to_owned(), |k| k.join(", "))
}

/// Parses a number with its unit, converted to the unit of the value.
fn parse_limit(text: &str, path: &[String]) -> Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic() || c == '%').trim_end();
    let unit = text[digits.len()..].trim();
    let number: f64 = digits
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite())
        .ok_or_else(|| format!("\"{text}\" is not a number with a unit"))?;
    let last = path.last().map(String::as_str).unwrap_or_default();
    let time = path[0] == "ms" && last != "n"
        || last.ends_with("_ms")
        || last.ends_with("_ms_per_call_second");
    match (unit, time) {
        ("ms", true) => Ok(number),
        ("s", true) => Ok(number * 1e3),
        ("", true) => Err(format!("\"{text}\" has no unit: ms or s")),
        ("", false) => Ok(number),
        ("%", false) if matches!(last, "late_audio" | "busiest" | "rss_growth") => {
            Ok(number / 100.0)
        }
        ("MB", false) if last.starts_with("rss_bytes") => Ok(number * 1e6),
        ("MiB", false) if last.starts_with("rss_bytes") => Ok(number * f64::from(1 << 20)),
        _ => Err(format!("\"{unit}\" is not a unit of {}", path.join("."))),
    }
}

/// A report as JSON.
#[must_use]
pub(crate) fn report_json(report: &Report) -> Value {
    serde_json::to_value(report).unwrap_or_default()
}

impl Requirement {
    /// Checks that the report satisfies the condition.
    ///
    /// # Errors
    /// The actual value, in one sentence. A value that was not measured satisfies no condition.
    pub(crate) fn check(&self, report: &Value) -> Result<(), String> {
        let found =
            self.path.iter().try_fold(report, |at, part| at.get(part)).and_then(Value::as_f64);
        let Some(found) = found else { return Err(format!("{}: not measured", self.text)) };
        // If nothing was expected, a count of zero failures proves nothing.
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let base = match path[..] {
            ["late_audio" | "late_audio_frames" | "concealed_ms"] => &report["audio_frames"],
            ["turns", part] if part != "expected" => &report["turns"]["expected"],
            ["server", "late_audio_frames"] => &report["server"]["audio_frames"],
            ["events", part] if part != "expected" => &report["events"]["expected"],
            _ => &Value::Null,
        };
        if base.as_f64() == Some(0.0) {
            return Err(format!("{}: nothing was expected", self.text));
        }
        #[allow(clippy::float_cmp)] // values compared for equality are counts
        let holds = match self.comparison {
            Comparison::Less => found < self.limit,
            Comparison::AtMost => found <= self.limit,
            Comparison::More => found > self.limit,
            Comparison::AtLeast => found >= self.limit,
            Comparison::Equal => found == self.limit,
        };
        if holds { Ok(()) } else { Err(format!("{}: the value is {found}", self.text)) }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;
    use crate::turns::TurnStats;

    fn sample_report() -> Value {
        let mut found = Report { late_audio: 0.0005, audio_frames: 20_000, ..Report::default() };
        found.ms.voice_to_voice = Summary::from_seconds(vec![1.0, 1.1, 1.3]);
        found.turns = TurnStats { expected: 3, right: 2, wrong: 1, missing: 0, unanswered: 0 };
        found.server.rss_bytes_per_call = Some(1_400_000.0);
        found.recording = Some(RecordingStats {
            media_ms_per_call_second: Some(0.02),
            call_ms_per_call_second: Some(0.2),
            dropped_packets: Some(2),
            ..RecordingStats::default()
        });
        report_json(&found)
    }

    #[test]
    fn a_limit_is_kept_or_broken() {
        for (text, holds) in [
            ("p95(voice_to_voice) < 1.2s", false),
            ("p95(voice_to_voice) <= 1300 ms", true),
            ("p50( voice_to_voice )<1.2s", true),
            ("n(voice_to_voice) >= 3", true),
            ("late_audio < 0.1%", true),
            ("late_audio < 0.01%", false),
            ("turns.wrong == 0", false),
            ("turns.missing == 0", true),
            ("turns.right > 1", true),
            ("server.rss_bytes_per_call <= 1.5MB", true),
            ("server.rss_bytes_per_call < 1.3MiB", false),
            ("recording.media_ms_per_call_second <= 0.3ms", true),
            ("recording.call_ms_per_call_second <= 300 ms", true),
            ("recording.dropped_packets == 0", false),
            // Nothing was measured.
            ("recording.delivery_ms_per_call_second <= 10ms", false),
            ("p95(join) < 100s", false),
            ("video.fps_speaking >= 0", false),
        ] {
            let requirement: Requirement = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(requirement.check(&sample_report()).is_ok(), holds, "{text}");
        }
        let broken: Requirement = "p95(voice_to_voice) < 1.2s".parse().unwrap();
        assert_eq!(
            broken.check(&sample_report()).unwrap_err(),
            "p95(voice_to_voice) < 1.2s: the value is 1300"
        );
        let empty = report_json(&Report::default());
        for text in ["late_audio < 0.1%", "turns.missing == 0", "turns.wrong == 0"] {
            let of_nothing: Requirement = text.parse().unwrap();
            assert_eq!(
                of_nothing.check(&empty).unwrap_err(),
                format!("{text}: nothing was expected")
            );
        }
        let unmeasured: Requirement = "p95(join) < 1s".parse().unwrap();
        assert_eq!(unmeasured.check(&sample_report()).unwrap_err(), "p95(join) < 1s: not measured");
    }

    #[test]
    fn an_invalid_requirement_is_rejected_with_a_reason() {
        for (text, why) in [
            ("", "has none of the operators < <= > >= =="),
            ("p95(voice_to_voice)", "has none of the operators"),
            ("p95(voice_to_voice < 1s", "has no closing parenthesis"),
            ("p96(voice_to_voice) < 1s", "\"p96\" is not one of p50, p95, p99, max, n"),
            ("p95(latency) < 1s", "\"latency\" is not one of join, voice_to_voice"),
            ("voice_to_voice < 1s", "\"voice_to_voice\" is not one of mode, asked, calls"),
            ("ms.join < 1s", "is not a single value: use p95(…)"),
            ("turns < 1", "is not a single value: name one of its fields"),
            ("turns.lost == 0", "\"lost\" is not one of expected, right, wrong, missing"),
            ("calls.x == 0", "\"x\" is not one of the fields of a value"),
            ("commit == 1", "is not a number"),
            ("p95(join) < 1", "has no unit: ms or s"),
            ("p95(join) < 1 h", "\"h\" is not a unit of ms.join.p95"),
            ("turns.wrong == 0%", "\"%\" is not a unit of turns.wrong"),
            ("calls > NaN", "is not a number with a unit"),
            ("calls > ", "is not a number with a unit"),
            ("calls > 1 < 2", "\"calls > 1\" is not one of mode, asked, calls"),
        ] {
            let error = text.parse::<Requirement>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
