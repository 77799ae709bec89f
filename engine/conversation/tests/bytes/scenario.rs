//! Bytes as a scenario file.

use conversation::simulate::simulate;
use serde_json::Value;

/// An invalid file is rejected in one sentence that starts with a field. A valid file ends with a
/// summary, its lines are in the order of time, and `explain` only adds lines.
///
/// # Panics
/// One of these does not hold.
pub(crate) fn played_or_refused(bytes: &[u8]) {
    if bytes.len() > 1 << 16 || takes_long(bytes) {
        return;
    }
    let printed = match simulate(bytes, false) {
        Ok(printed) => printed,
        Err(bad) => {
            let text = bad.to_string();
            assert!(
                !text.contains('\n') && text.contains(": ") && !bad.field.is_empty(),
                "{text:?}"
            );
            return;
        }
    };
    let lines: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    let time = |line: &Value| line["t"].as_f64().expect("each line has a time");
    assert!(lines.is_sorted_by(|a, b| time(a) <= time(b)), "{printed}");
    assert_eq!(lines.last().map(|line| &line["what"]), Some(&Value::from("summary")), "{printed}");
    let explained = simulate(bytes, true).expect("the replay produces the same output");
    let without: String = explained
        .split_inclusive('\n')
        .filter(|line| !line.contains("\"what\":\"explain\""))
        .collect();
    if !printed.contains("\"what\":\"explain\"")
        && !explained.contains("\\\"what\\\":\\\"explain\\\"")
    {
        assert_eq!(without, printed);
    }
}

/// Valid but too slow for this test: hours of call-outs, or endless tool calls.
fn takes_long(bytes: &[u8]) -> bool {
    let Ok(file) = serde_json::from_slice::<Value>(bytes) else { return false };
    let settings = &file["settings"];
    let idle = settings["idle_timeout"].as_f64().unwrap_or(1.0);
    file["until"].as_f64().unwrap_or(0.0) > 200.0
        || idle > 0.0 && idle < 0.05
        || settings["max_tool_steps"].as_f64().unwrap_or(0.0) > 50.0
}
